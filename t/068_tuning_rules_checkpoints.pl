# Each rule about checkpoints, the kernel, tables and pgscale itself, on evidence that is made up, as in t/067_tuning_rules.pl.
use strict;
use warnings;
use PgscaleTest;
use PgscaleMadeUp;
use PostgreSQL::Test::Utils;
use Test::More;

made_up();
my $forged = PostgreSQL::Test::Utils::tempdir();
my $library = "$forged/forged_files.so";
my $forges = system("cc -shared -fPIC -o $library t/lib/forged_files.c -ldl >$library.out 2>&1") == 0;
chmod 0755, $library if $forges;
my $node;
{
    local ($ENV{LD_PRELOAD}, $ENV{FORGED_FILES}) = ($forges ? $library : '', $forged);
    $node = pgscale_node('main', conf => <<'EOC');
pgscale.sampler_debug_period = 1h
EOC
}
my $db = session($node);
made_up_functions($db);

### Stalls

# A transaction takes 0.12 s of the sessions' time where nothing is synced, the median of 0.1, 0.12 and 0.15. Beyond that are
# 0, 0, 30 and, with the sync and without a transaction, 160 and 30: 220 of 800
sub stalled
{
    my (%more) = @_;
    my %first = (checkpoints_timed => 1, checkpoints_requested => 1, checkpoint_buffers => 3000, bgwriter_buffers => 1000);
    my @records = (
        { s => 20, sessions => 100, commits => 1000, %first }, { s => 20, sessions => 120, commits => 1000 }, { s => 20, sessions => 150, commits => 1000 },
        { s => 20, sessions => 400, commits => 2000, sync_s => 6 }, { s => 20, sessions => 30 });

    $records[3]{$_} = $more{$_} for keys %more;
    return \@records;
}

$rule = 'checkpoint_flush_after';
%settings = (checkpoint_flush_after => 0, bgwriter_flush_after => 0);
# 0.275, three quarters of it the checkpointer's
found('stalls', "checkpoint_flush_after|256kB|0.2063|high\nbgwriter_flush_after|512kB|0.0688|high", stalled());
found('of which the background writer makes more', "checkpoint_flush_after|256kB|0.1375|high\nbgwriter_flush_after|512kB|0.1348|high", stalled(bgwriter_buffers => 8000));
told("advises|0|reload|checkpoint_sync_fraction=0.06 checkpoint_sync_ms=5000 checkpoints=3 data_fraction=0 stall_fraction=0.275 wal_fraction=0",
    stalled(checkpoint_sync_ms => 5000, checkpoints_timed => 1), { bgwriter_flush_after => '64kB' });
found('one of them', 'checkpoint_flush_after|256kB|0.2063|high', stalled(), { bgwriter_flush_after => '64kB' });
found('the other', 'bgwriter_flush_after|512kB|0.0688|high', stalled(), { checkpoint_flush_after => '64kB' });
found('both are on', 'satisfied: both are on', stalled(), { checkpoint_flush_after => '64kB', bgwriter_flush_after => '64kB' });
my $alone = stalled();
$alone->[0]{bgwriter_buffers} = 0;
$alone->[0]{checkpoints_timed} = 0;
found('all by the checkpointer, once', 'checkpoint_flush_after|256kB|0.2750|medium', $alone);
found('none by the background writer', 'satisfied: the background writer wrote nothing', $alone, { checkpoint_flush_after => '64kB' });
found('a twentieth of the time', qr/^satisfied: the syncs that end checkpoints took 5.0 % of the time, and sessions stalled for 27.5 %/, stalled(sync_s => 5));
found('by the server\'s count', qr/^checkpoint_flush_after.*\nbgwriter/, stalled(sync_s => 1, checkpoint_sync_ms => 5001));
my $even = [ map { { s => 20, sessions => 100, commits => 1000 + $_, sync_s => 2, checkpoint_buffers => 1 } } 1 .. 5 ];
found('without stalls', qr/^satisfied: the syncs that end checkpoints took 10.0 % of the time, and sessions stalled for 0.1 %/, $even);
found('no checkpoint', 'silent: there was no checkpoint in 100 s', [ { s => 100, sessions => 100 } ]);
found('a sync that is not over', qr/^satisfied: the syncs/, [ { s => 100, sessions => 100, sync_s => 1 } ]);
# without a record in which nothing is synced the median is of all: 0.15 is the third of 0.1, 0.12, 0.15, 0.2. 100 + 30 of 800
my $syncs = stalled();
$_->{sync_s} = 6 for @$syncs;
found('syncs all the time', qr/^checkpoint_flush_after\|256kB\|0.1219/, $syncs);

$rule = 'checkpoint_completion_target';
%settings = (checkpoint_completion_target => '0.5');
# 0.275 * (1 - 0.5 / 0.9)
found('stalls', 'checkpoint_completion_target|0.9|0.1222|medium', stalled());
told('advises|0.5|reload|checkpoint_buffers=3000 checkpoint_sync_ms=0 checkpoint_write_ms=70 stall_fraction=0.275', stalled(checkpoint_write_ms => 70));
found('of 0.7', 'satisfied: checkpoints are spread over 70 % of the time between them', stalled(), { checkpoint_completion_target => '0.7' });
found('of less', 'checkpoint_completion_target|0.9|0.0642|medium', stalled(), { checkpoint_completion_target => '0.69' });
my $few = stalled();
$few->[0]{checkpoint_buffers} = 99;
found('few pages', 'silent: checkpoints wrote 99 pages in 100 s', $few);
$few->[0]{checkpoint_buffers} = 100;
found('a hundred', qr/^checkpoint_completion/, $few);
found('without stalls', qr/^satisfied: sessions stalled for 0.1 % of their time/, [ map { { %$_, checkpoint_buffers => 100 } } @$even ]);

$rule = 'pgscale.writeback';
%settings = ();
found('two fifths of the stalls', 'pgscale.writeback|on|0.1100|medium', stalled());
told('advises|off|reload|checkpoint_sync_ms=0 stall_fraction=0.275', stalled());
like(finds('reason', stalled()), qr/^the syncs that end checkpoints took 6 % of the time and sessions stalled for 2[78] % of theirs, although/, 'and why');
found('a twentieth of the time', qr/^satisfied: the syncs/, stalled(sync_s => 5));
found('what comes first', qr/^silent: checkpoint_flush_after or bgwriter_flush_after is off/, stalled(), { bgwriter_flush_after => 0 });
found('and the other', qr/^silent: checkpoint_flush_after or bgwriter_flush_after is off/, stalled(), { checkpoint_flush_after => 0 });
# 400 s / 2,000,100 are 199.99 us a read
my %cached = (DATA_READ => 400, blocks_read => 2_000_100, blocks_hit => 38_000_000);
found('pages that the kernel has', qr/^satisfied: the kernel's cache holds/, stalled(%cached));
found('and has not', qr/^pgscale.writeback/, stalled(%cached, blocks_read => 2_000_000, blocks_hit => 1));
found('a twentieth of them', qr/^pgscale.writeback/, stalled(%cached, blocks_hit => 38_001_900));
found('on', 'satisfied: it is on', stalled(), { 'pgscale.writeback' => 'on' }) if $db->sql(q{SELECT state = 'off' FROM pgscale.health WHERE feature = 'writeback'}) eq 'f';

$rule = 'vm.dirty_background_bytes';
my ($background) = $db->sql(q{SELECT split_part(reason, ' ', 1) FROM pgscale.tuning_findings('1 ms') WHERE rule = 'vm.dirty_background_bytes'});
found('what comes first', qr/^silent: checkpoint_flush_after or/, stalled(), { bgwriter_flush_after => 0 });
found('no stalls', qr/^satisfied: the syncs that end checkpoints took 5.0 %/, stalled(sync_s => 5));
found('half of the stalls, if the kernel waits for much', qr/^(vm.dirty_background_bytes\|.*\|0.1375\|medium|satisfied: the kernel begins to write at ([1-9]?\d|1\d\d|2[0-5]\d) MB.*)$/, stalled());

### Writes of sessions

# 80 s / 80,000 are a millisecond each; half of 0.08
$rule = 'backend_flush_after';
%evidence = of_mix(backend_buffers => 80_000, bgwriter_buffers => 200_000, checkpoint_buffers => 120_000, blocks_read => 5, blocks_hit => 95);
found('slow writes', 'backend_flush_after|512kB|0.0400|low');
told('advises|0|reload|backend_buffers_per_s=800 backend_write_fraction=0.2 data_write_fraction=0.08 write_ms=1');
found('quicker ones', 'satisfied: sessions\' writes take 8.0 % of their time, 1.00 ms each', { backend_buffers => 80_001 });
found('less than a fifth', qr/^satisfied/, { bgwriter_buffers => 200_001 });
found('4 % of the time', qr/^backend_flush_after\|512kB\|0\.0200/, { DATA_WRITE => 40, backend_buffers => 40_000, bgwriter_buffers => 40_000 });
found('less', qr/^satisfied/, { DATA_WRITE => 39.9, backend_buffers => 39_900, bgwriter_buffers => 39_000 });
found('it is on', 'satisfied: it is on', {}, { backend_flush_after => 1 });
found('a writer that is off', qr/^silent: the background writer/, {}, { bgwriter_lru_maxpages => 0 });
# 110 s / 1,000,000: 110 us
found('pages that the kernel has', qr/^satisfied: sessions' writes are slow, but/, { blocks_read => 1_000_000, blocks_hit => 18_000_000 });

# 0.1 of the time; the background writer could not do more
$rule = 'pgscale.sweeper';
%evidence = of_mix(backend_buffers => 80_000, bgwriter_buffers => 200_000, checkpoint_buffers => 120_000, DATA_WRITE => 100);
found('half of it', 'pgscale.sweeper|on|0.0500|medium');
told('advises|off|reload|backend_buffers_per_s=800 backend_write_fraction=0.2 data_write_fraction=0.1');
found('less of the time', qr/^satisfied: sessions' writes take 10.0 % of their time/, { DATA_WRITE => 99.9 });
found('less than a fifth of the pages', qr/^satisfied: /, { bgwriter_buffers => 200_001 });
found('bulk load', qr/^satisfied: sessions' own writes/, { backend_ring_buffers => 80_001 });
found('a writer that is off', qr/^silent: the background writer does next to nothing/, {}, { bgwriter_lru_maxpages => 0 });
found('that stops', qr/^silent: the background writer stops at its limit/, { bgwriter_stopped => 1000, buffers_allocated => 1e6 });

# A quarter of the time, of which a quarter
$rule = 'pgscale.sweeper_policy';
%settings = ('pgscale.sweeper' => 'on');
%evidence = (s => 100, sessions => 1000, DATA_READ => 250);
SKIP:
{
    skip 'a forecast cannot be made up here', 11 unless $shown;
    $db->sql('SELECT made_up_forecast(false, 0, 0)');
    found('nothing is known', 'silent: the sweeper has not seen enough reads');
    $db->sql('SELECT made_up_forecast(true, 1000, 750)');
    found('a quarter', 'pgscale.sweeper_policy|adaptive|0.0625|medium');
    told('advises|clock|reload|data_read_fraction=0.25 expected_reads=-0.25');
    found('2 % of the time', qr/^pgscale.sweeper_policy\|adaptive\|0\.0200/, { DATA_READ => 80 });
    found('less', 'satisfied: waits for reads take 7.9 % of the sessions\' time, and another choice of pages saves 25 % of the reads', { DATA_READ => 79 });
    found('half of the reads were scans\'', qr/^pgscale.sweeper_policy\|adaptive\|0\.0313/, { blocks_read => 2000, buffers_allocated => 1000 });
    found('off', qr/^silent: pgscale.sweeper is off/, {}, { 'pgscale.sweeper' => 'off' });
    found('another policy', 'satisfied: it is history', {}, { 'pgscale.sweeper_policy' => 'history' });
    $db->sql('SELECT made_up_forecast(true, 1000, 899)');
    found('a tenth of the reads', qr/^pgscale.sweeper_policy\|adaptive\|0\.0253/);
    $db->sql('SELECT made_up_forecast(true, 1000, 901)');
    found('less', qr/^satisfied: waits for reads take 25.0 % .* saves 10 % of the reads$/);
    $db->sql('SELECT made_up_forecast(true, 1000, 1100)');
    found('none', qr/^satisfied: .* saves 0 % of the reads$/);
}
%settings = ();

### Page images: 0.4 of WAL; 0.235 of the time and a quarter of 0.3

my %images = (checkpoints_timed => 2, wal_bytes => 819_200_000, wal_pages => 40_000, wal_position => 100 * 2**20);
$rule = 'checkpoint_timeout';
%evidence = of_mix(%images);
%settings = (checkpoint_timeout => '300s', max_wal_size => '10GB', checkpoint_completion_target => '0.9');
found('0.4 * (1 - 300 / 900) * 0.31', 'checkpoint_timeout|900s|0.0827|medium');
told('advises|5min|reload|checkpoints_requested=0 checkpoints_timed=2 page_image_fraction=0.4 wal_bytes_per_s=1048576 wal_fraction=0.235');
found('five minutes at least: 0.4 * (1 - 60 / 300) * 0.31', 'checkpoint_timeout|300s|0.0992|medium', {}, { checkpoint_timeout => '60s' });
found('half an hour at most: 0.4 * (1 - 700 / 1800) * 0.31', 'checkpoint_timeout|1800s|0.0758|medium', {}, { checkpoint_timeout => '700s' });
found('twenty minutes', 'checkpoint_timeout|1800s|0.0413|medium', {}, { checkpoint_timeout => '1200s' });
found('more than that', 'satisfied: checkpoints are far apart', {}, { checkpoint_timeout => '1201s' });
found('one checkpoint', qr/^silent: two checkpoints are needed .* there were 1$/, { checkpoints_timed => 1 });
found('one of each', qr/^checkpoint_timeout/, { checkpoints_timed => 1, checkpoints_requested => 1 });
found('checkpoints by WAL', qr/^silent: WAL starts checkpoints/, { checkpoints_requested => 2, wal_position => 1e12 });
found('stalls', qr/^silent: checkpoints end in stalls/, { sync_s => 6 }, { checkpoint_flush_after => 0 });
found('of which it can do nothing', qr/^checkpoint_timeout/, { sync_s => 6 });
found('0.3 of WAL', qr/^checkpoint_timeout\|900s\|0.0620/, { wal_pages => 30_000 });
found('less', qr/^satisfied: page images are 30 % of WAL/, { wal_pages => 29_999 });
# 0.4 * 0.6667 * 0.15
found('4 % to be won', qr/^checkpoint_timeout\|900s\|0.0400/, { WAL_SYNC => 5.1, CPU => 300, WAL_WRITE => 0, WAL_WRITE_LOCK => 35 });
found('less to be won', qr/^satisfied: page images are 40 % of WAL, which cost 4.0 %/, { WAL_SYNC => 4.9, CPU => 300, WAL_WRITE => 0, WAL_WRITE_LOCK => 35 });

# 0.5 of WAL, 0.25 of the time: a quarter of that; 1 MB/s; 0.6 of the time the CPU's
$rule = 'wal_compression';
%evidence = of_mix(%images, wal_pages => 50_000, WAL_SYNC => 105, CPU => 600, DATA_READ => 0, DATA_WRITE => 0, TEMP_FILE => 0, SLRU_IO => 0);
%settings = (wal_compression => 'off', max_wal_size => '10GB');
my $method = $db->sql(q{SELECT 'lz4' = ANY (enumvals) FROM pg_settings WHERE name = 'wal_compression'}) eq 't' ? 'lz4' : 'pglz';
found('half of WAL', "wal_compression|$method|0.0313|medium");
told('advises|off|reload|cpu_fraction=0.6 page_image_fraction=0.5 wal_bytes_per_s=1048576 wal_fraction=0.25');
found('less of WAL', qr/^satisfied: page images are 50 %/, { wal_pages => 49_999 });
found('less of the time', qr/^satisfied: page images are 50 %/, { WAL_SYNC => 104.9 });
found('less WAL', qr/^satisfied: page images are 50 %/, { wal_position => 100 * 2**20 - 100 });
found('less left of the CPU', qr/^satisfied: page images are 50 %/, { CPU => 600.1 });
found('one checkpoint', qr/^silent: two checkpoints/, { checkpoints_timed => 1 });
found('checkpoints by WAL', qr/^silent: WAL starts checkpoints/, { checkpoints_requested => 2, wal_position => 1e12 });
found('stalls', qr/^silent: checkpoints end in stalls/, { sync_s => 6 }, { bgwriter_flush_after => 0 });
found('it is on', 'satisfied: it is on', {}, { wal_compression => 'pglz' });

# 0.6 of WAL, 0.235 of the time: a quarter of that
$rule = 'full_page_images';
%evidence = of_mix(%images, wal_pages => 60_000);
%settings = (checkpoint_timeout => '900s', max_wal_size => '10GB');
found('all the same', qr/^full-page images\|drop unused indexes.*\|0\.0353\|low$/);
told('advises|a change of the schema|page_image_fraction=0.6 wal_fraction=0.235');
found('less of WAL', 'satisfied: page images are 60 % of WAL', { wal_pages => 59_999 });
found('less to be won', 'satisfied: page images are 60 % of WAL', { WAL_SYNC => 0, WAL_WRITE => 0, WAL_WRITE_LOCK => 70 });
found('checkpoints in between', qr/^satisfied: checkpoints could be further apart/, {}, { checkpoint_timeout => '899s' });
found('checkpoints by WAL', qr/^satisfied: checkpoints could be further apart/, { checkpoints_requested => 2, wal_position => 1e12 });
found('one checkpoint', qr/^silent: two checkpoints/, { checkpoints_timed => 1 });

### Memory and the kernel

$rule = 'huge_pages';
%settings = (huge_pages => 'off', shared_memory_size => 2048);
%evidence = (s => 100, sessions => 1000, CPU => 670);
my $pages = $db->sql(q{SELECT current_setting('shared_memory_size_in_huge_pages')});
found('two gigabytes: 0.03 * 0.67', 'huge_pages|try|0.0201|medium');
told("advises|off|restart|cpu_fraction=0.67 huge_pages_needed=$pages shared_memory_bytes=2147483648");
found('less', 'satisfied: shared memory is less than 2 GB', {}, { shared_memory_size => 2047 });
found('less of the CPU', 'satisfied: the CPU takes 66 % of the sessions\' time', { CPU => 660 });
found('none to be had', "vm.nr_hugepages|sysctl vm.nr_hugepages=$pages, because huge_pages is try and got none|0.0201|medium", {}, { huge_pages => 'try' });
SKIP:
{
    my ($kb) = slurp_file('/proc/meminfo') =~ /^Hugepagesize:\s+(\d+) kB$/m;
    skip 'no compiler, or no huge pages', 1 unless $forges && $kb;
    my $size = $kb >= 1024 ? $kb / 1024 . 'MB' : "${kb}KB";

    mkdir "$forged/$_" or die $! for qw(proc proc/self sys sys/fs sys/fs/cgroup sys/fs/cgroup/pod);
    append_to_file("$forged/proc/self/cgroup", "0::/pod\n");
    append_to_file("$forged/sys/fs/cgroup/pod/hugetlb.$size.max", $kb * 1024 * 3 . "\n");
    found('the cgroup allows fewer', "silent: shared memory takes $pages huge pages, and the server's cgroup (hugetlb) allows 3: in huge pages it would not start",
        {}, { huge_pages => 'try' });
    unlink "$forged/proc/self/cgroup";
}

$rule = 'vm.swappiness';
%settings = ();
%evidence = (s => 100, sessions => 1000, swapped => 10_000);
found('a hundred pages a second', qr/^vm.swappiness\|.*less memory for shared buffers or sessions\|0\.0500\|medium$/);
found('less', 'satisfied: 100.0 pages are swapped a second', { swapped => 9_999 });
found('unknown', qr/^silent: the kernel does not report on swapping/, { swapped => -1 });
$rule = 'transparent_hugepage';
my $always = (eval { slurp_file('/sys/kernel/mm/transparent_hugepage/enabled') } // '') =~ /\[always\]/;
found('ten waits a second', $always ? qr/^transparent huge pages\|echo madvise.*\|0\.0200\|low/ : qr/^(satisfied|silent): /, { compact_stalls => 1000 });
found('less', qr/^(satisfied: they are set to .*; 10\.0 waits a second|silent: )/, { compact_stalls => 999 });
found('unknown', qr/^silent: the kernel does not report/, { compact_stalls => -1 });

# A machine of two nodes, or four, whose fullest holds so much of 1000 bytes
$rule = 'pgscale.numa_interleave';
%evidence = (s => 100, sessions => 1000, CPU => 600);
sub machine
{
    my ($nodes, @bytes) = @_;

    $db->sql("CREATE OR REPLACE FUNCTION pgscale_internal.numa_nodes(OUT node integer, OUT cpus integer, OUT cpu_list text, OUT memory_bytes bigint,
        OUT free_bytes bigint, OUT distance integer[]) RETURNS SETOF record LANGUAGE sql AS 'SELECT n, 1, ''0'', CASE WHEN n < $nodes THEN 9 ELSE 0 END, 0, NULL::int[] FROM generate_series(0, 7) n'");
    $db->sql("CREATE OR REPLACE FUNCTION pgscale.numa_buffers(everything boolean DEFAULT false, OUT node integer, OUT pages bigint, OUT bytes bigint,
        OUT fraction double precision, OUT fraction_low double precision, OUT fraction_high double precision, OUT sampled boolean)
        RETURNS SETOF record LANGUAGE sql AS 'SELECT n, 1, b, 0, 0, 0, true FROM (VALUES (NULL, 5000), " . join(', ', map { "($_, $bytes[$_])" } 0 .. $#bytes) . ") v (n, b)'");
    return;
}
SKIP:
{
    machine(2, 750, 250);
    skip 'pgscale was built without libnuma', 12 if finds('reason') =~ /does not know where this server's memory lies/;
    found('three quarters on one of two: 0.05 * 0.6 * 0.75', qr/^pgscale.numa_interleave\|on\|0\.0225\|low/);
    told('advises|off|restart|cpu_fraction=0.6 largest_fraction=0.75 nodes=2');
    found('less of the CPU', qr/^satisfied: of 2 nodes the fullest holds 75 %/, { CPU => 499 });
    machine(2, 251, 749);
    found('less', 'satisfied: of 2 nodes the fullest holds 75 % of shared buffers');
    machine(4, 100, 500, 200, 200);
    found('twice its part on one of four, 0.05 * 0.6', qr/^pgscale.numa_interleave\|on\|0\.0300\|low/);
    is(finds('reason'), 'one of 4 nodes holds 50 % of shared buffers, 2.0 times its share', 'and why');
    machine(4, 0, 1000, 0, 0);
    found('more than twice is no more', qr/^pgscale.numa_interleave\|on\|0\.0300\|low/);
    machine(8, 810, 190);
    found('nor on one of eight', qr/^pgscale.numa_interleave\|on\|0\.0300\|low/);
    machine(4, 200, 200, 224, 376);
    found('half as much again as its part: 0.05 * 0.6 * 0.752', qr/^pgscale.numa_interleave\|on\|0\.0226\|low/);
    machine(4, 200, 200, 226, 374);
    found('less', qr/^satisfied: of 4 nodes the fullest holds 37 %/, { CPU => 1000 });
    machine(1, 1000);
    found('a single node', 'satisfied: the machine has one node');
    found('on', qr/^satisfied: it is on/, {}, { 'pgscale.numa_interleave' => 'on' });
}

### Tablespaces and tables

$rule = 'random_page_cost';
%evidence = (s => 100, sessions => 1000, DATA_READ => 600);
found('not asked', qr/^silent: the disks were not timed/);
$probe = 'true';
sub disk
{
    my ($read_ms, $cost) = @_;
    $db->sql("CREATE OR REPLACE FUNCTION pgscale.tablespace_latency(tablespace name DEFAULT NULL, OUT tablespace name, OUT reads integer, OUT read_ms double precision,
        OUT max_ms double precision, OUT spread double precision, OUT sequential_bytes_per_s bigint, OUT random_page_cost double precision, OUT device text, OUT reason text)
        RETURNS SETOF record LANGUAGE sql AS 'SELECT name ''pg_default'', 256, $read_ms\::float8, 9, 0, 5, $cost\::float8, ''sda'', ''as it says''
        UNION ALL SELECT ''pg_global'', 0, NULL, NULL, NULL, NULL, NULL, NULL, ''is not there''' ROWS 2");
    return;
}
disk(0.25, 2.4);
my $rest = 'silent: pg_global: is not there';
found('4 is set, 2.4 measured', "pg_default|ALTER TABLESPACE pg_default SET (random_page_cost = 2.4)|0.0300|medium\n$rest");
like(finds(q{concat_ws('|', current, needs, evidence)}), qr/^4\.0\|superuser\|.*"read_ms": 0\.25, "data_read_fraction": 0\.6, "measured_random_page_cost": 2\.4/, 'with its numbers');
like(finds('reason'), qr/^a random read takes 0\.25 ms there; where 90 % of them are answered by a cache, a random page costs 2\.4 times one in sequence/, 'and why');
disk(0.25, 2.7);
found('2.7 measured', "satisfied: pg_default: 4.0 is set, and the measurement suggests 2.7\n$rest");
disk(0.25, 6);
found('more measured', qr/random_page_cost = 6\.0/);
disk(0.25, 5.9);
found('a little more', qr/^satisfied: pg_default: 4.0 is set, and the measurement suggests 5.9/);
found('unless less is set', qr/random_page_cost = 5\.9/, {}, { random_page_cost => 2 });
$db->sql('ALTER TABLESPACE pg_default SET (random_page_cost = 3, effective_io_concurrency = 15)');
found('for this one', qr/^pg_default\|.*random_page_cost = 5\.9/);
disk(0.25, 'NULL');
found('rounds that disagree', "silent: pg_default: as it says\n$rest");

$rule = 'effective_io_concurrency';
%evidence = (s => 100, sessions => 1000, DATA_READ => 500);
found('a tenth of the reads', "pg_default|ALTER TABLESPACE pg_default SET (effective_io_concurrency = 16)|0.0500|low\n$rest");
like(finds('current'), qr/^15\b/, 'with what is set');
found('less than a twentieth', qr/^satisfied: pg_default: 15 are set, a read takes 0.25 ms, and reads take 5 %/, { DATA_READ => 49.9 });
disk(0.1, 2);
found('a read of a tenth', qr/^pg_default\|/);
disk(0.099, 2);
found('of less', qr/^satisfied: pg_default/);
disk(3, 2);
found('of 3 ms', qr/^pg_default\|/);
disk(3.01, 2);
found('of more', qr/^satisfied: pg_default/);
disk(3, 2);
$db->sql('ALTER TABLESPACE pg_default SET (effective_io_concurrency = 16)');
found('16 are set', qr/^satisfied: pg_default: 16 are set/);
$db->sql('ALTER TABLESPACE pg_default RESET (random_page_cost, effective_io_concurrency)');
$probe = 'false';

# Tables of two rows, each updated so often that no statement is about it in the end
$rule = 'fillfactor';
%evidence = (s => 100, sessions => 1000, WAL_SYNC => 200);
sub updated
{
    my ($table, $updates, $hot, $pages, $with) = @_;

    $db->sql("CREATE TABLE $table (i int, k int) " . ($with // ''));
    $db->sql("CREATE INDEX ON $table (k)");
    $db->sql("INSERT INTO $table VALUES (1, 0), (2, 0)");
    $db->sql("DO \$\$ BEGIN FOR n IN 1 .. $updates LOOP IF n <= $hot THEN UPDATE $table SET i = i WHERE i = 1; ELSE UPDATE $table SET k = n WHERE i = 1; END IF; COMMIT; END LOOP; END \$\$");
    $db->sql("UPDATE pg_class SET relpages = $pages WHERE relname = '$table'");
    return;
}
updated('twelve', 12, 5, 1001);
updated('eleven', 11, 5, 1001);
updated('ten', 10, 0, 1001);
updated('hot', 12, 6, 1001);
updated('small', 12, 0, 1000);
updated('made_so', 12, 0, 1001, 'WITH (fillfactor = 90)');
$db->sql('SELECT pg_stat_force_next_flush()');
$db->sql('SELECT pg_stat_clear_snapshot()');
# a fifth of the time that goes to WAL, and half of that
found('the most first', "public.twelve|ALTER TABLE public.twelve SET (fillfactor = 85), and VACUUM FULL it when there is time|0.0400|low\n"
    . "public.eleven|ALTER TABLE public.eleven SET (fillfactor = 85), and VACUUM FULL it when there is time|0.0200|low");
is(finds(q{concat_ws('|', current, needs, evidence ->> 'updates', round((evidence ->> 'hot_fraction')::numeric, 3), evidence ->> 'updates_per_row', evidence ->> 'wal_fraction')}),
    "100|the table's owner|12|0.417|6|0.2\n100|the table's owner|11|0.455|5.5|0.2", 'with the counts');
# a score of 2 and of less, which 19 tells
my $dead = $db->sql(q{SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'twelve'});
for my $due (int($dead / 2), int($dead / 2) + 1)
{
    $db->sql("ALTER TABLE twelve SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = $due)");
    my $overdue = $db->sql('SELECT pgscale_internal.major()') >= 19 && $dead >= 2 * $due;
    my $expected = $overdue ? sprintf('silent: public.twelve has %.1f times the dead rows at which autovacuum is due, and they fill its pages: VACUUM comes first', $dead / $due) : 'public.twelve|ALTER TABLE';
    found("$dead dead rows, where autovacuum is due at $due", qr/^\Q$expected\E.*\npublic.eleven\|.*0\.0200/);
}
found('a tenth of the time', qr/^public.twelve\|.*0\.0200.*\n.*would save 1.0 %/, { WAL_SYNC => 100 });
found('less', 'satisfied: waiting for WAL takes 9.9 % of the sessions\' time', { WAL_SYNC => 99 });
$db->sql('DROP TABLE twelve, eleven');
found('none', qr/^satisfied: no table of this database/);

$db->quit;
$node->stop('immediate');
done_testing();
