# Each rule, on evidence that is made up, as tables: both sides of each threshold, what it advises and how much that wins, and
# what it leaves to others. The figures that are expected are worked out beside each. And what a rule leaves to a feature that is
# at work.
# Runs on 18, too.
use strict;
use warnings;
use PgscaleTest;
use PgscaleMadeUp;
use PostgreSQL::Test::Utils;
use Test::More;

made_up();
my $forged = PostgreSQL::Test::Utils::tempdir();
my $memory = $ENV{PGSCALE_MEMORY} = PostgreSQL::Test::Utils::tempdir() . '/memory';
my $node;

# How much memory the server's machine has, by t/lib/little_memory.c
sub memory_is
{
    my $mb = shift;

    open my $file, '>', $memory or die $!;
    print $file $mb;
    close $file;
    return;
}
{
    my @libraries = map { compiled($_) // die 'no compiler' } 'little_memory', 'forged_files';
    local ($ENV{LD_PRELOAD}, $ENV{FORGED_FILES}) = ("@libraries", $forged);
    memory_is(800);
    $node = pgscale_node('main', conf => "pgscale.debug_period = 1h\nmax_worker_processes = 16");
}
my $db = session($node);
my $major = server_major();
made_up_functions($db);

### Tables. A line is what differs from the settings (name:value) and the evidence (name=value, as in PgscaleMadeUp) that its rule
### has here, "=>", and what the rule then finds: object|recommended|gain|confidence, or verdict: reason, in which ".." is any
### text and " + " begins the next row. "x=a|b y=c|d => v|w" are verdicts on both sides of thresholds, of x and of y; "numbers"
### are those that come with the advice. @name is a list of records, of which the values that differ are the fourth's. "do" calls
### one of %do first. An indented line goes on with the one before.

my (%records, %default, %do);
my $probe = 'false';
my ($rule, %settings, %evidence);

sub finds
{
    my ($what, $differs, $set) = @_;
    my %session = (%settings, %$set);
    my $list = delete $differs->{records};
    my @records = $list ? $records{$list}->(%$differs) : { %evidence, %$differs };

    $default{$_} //= $db->sql("SELECT current_setting('$_')") for keys %session;
    return $db->sql('DO $made_up$ BEGIN ' . settings_are(%session) . evidence_is(\@records) . ' END $made_up$;'
          . "SELECT string_agg($what, E'\\n') FROM pgscale.advice_rules('10 min', $probe) WHERE rule = '$rule';"
          . 'DO $made_up$ BEGIN ' . settings_are(map { $_ => $default{$_} } keys %session) . ' END $made_up$');
}

my $advice = q{CASE WHEN verdict = 'advises' THEN concat_ws('|', coalesce(setting, object), recommended, round(gain::numeric, 4), confidence)
    ELSE verdict || ': ' || reason END};
my $numbers = q{concat_ws('|', verdict, current, needs, (SELECT string_agg(key || '=' || round(value::text::numeric, 4)::float8, ' ' ORDER BY key COLLATE "C")
    FROM jsonb_each(evidence) WHERE jsonb_typeof(value) = 'number' AND key <> 'used_again_fraction'))};

sub line_ok
{
    my ($differs, $expected) = @_;
    my $what = $differs =~ s/^numbers *// ? $numbers : $advice;
    my (%differs, %set, @edges);
    my $pattern = join "\n", map { join '.*', map { quotemeta } split /\.\./, $_, -1 } split / \+ /, $expected;
    local $Test::Builder::Level = $Test::Builder::Level + 2;

    for (split ' ', $differs)
    {
        if (/^@(.*)/) { $differs{records} = $1; next }
        my ($name, $sign, $value) = /^([^:=]+)([:=])(.*)$/ or die $_;
        my $where = $sign eq ':' ? \%set : \%differs;

        if ($value =~ /\|/) { push @edges, [ $where, $name, split /\|/, $value ] }
        else { $where->{$name} = $value }
    }
    like(finds($what, \%differs, \%set), qr/^$pattern$/, "$rule: $differs") unless @edges;
    for my $edge (@edges)
    {
        my ($where, $name, @values) = @$edge;
        my @found;

        for my $value (@values)
        {
            local $where->{$name} = $value;
            push @found, finds('verdict', {%differs}, {%set}) =~ s/\n.*//sr;
        }
        is(join('|', @found), $expected, "$rule: " . join('|', $name, @values) . ", where $differs");
    }
    return;
}

# "name=value name=value", or with "mix" first; as a list
sub values_of
{
    my ($text) = @_;
    my $mix = $text =~ s/^mix//;
    my @list = map { split /[:=]/ } split ' ', $text;

    return $mix ? of_mix(@list) : @list;
}

sub rules
{
    my $text = shift =~ s/\n {3,}/ /gr =~ s/^#.*\n//gmr;

    for (split /\n/, $text)
    {
        if (/^rule (.*)/) { ($rule, %settings) = ($1) }
        elsif (/^settings (.*)/) { %settings = values_of($1) }
        elsif (/^evidence (.*)/) { %evidence = values_of($1) }
        elsif (/^ *do (\w+) ?(.*)$/) { $do{$1}->(split ' ', $2) }
        elsif (/^ *(.*?) *=> (.*)$/) { line_ok($1, $2) }
        elsif (/\S/) { die "no such line: $_" }
    }
    return;
}

### WAL

# 21 records at 0.5 MB/s, 1, 2 ... 20; those of 4 s, but one: 19 MB/s * 300 s * 1.5 * 1.2 are 10.02 GB
$records{rates} = sub { return ({ %evidence, s => 20, wal_position => 10 * 2**20 },
    map { { s => $_ == 5 ? 8 : 4, wal_position => $_ * ($_ == 5 ? 8 : 4) * 2**20 } } 1 .. 20) };
# what begins late counts, the latest minute's 95th percentile; what is over does not
$records{storm} = sub { return ((map { { s => 60, sessions => 60, wal_position => 2**20 } } 1 .. 4),
    map { { %evidence, s => 5, checkpoints_requested => 3, wal_position => 25 * 2**20 } } 1 .. 12) };
$records{storm_over} = sub { return ({ %evidence, s => 60 }, { s => 300, sessions => 300, wal_position => 3 * 2**20 }) };
# a burst: commits wait for WAL after it, too, and not for room
my %burst = (s => 60, sessions => 600, WAL_WRITE_LOCK => 300, wal_buffers_full => 20_000, wal_writes => 20_000, commits => 10);
my %quiet = (s => 300, sessions => 3000, WAL_WRITE_LOCK => 1000, WAL_WRITE => 500, wal_writes => 5000, commits => 5000);
$records{short_burst} = sub { return ({ %burst, WAL_WRITE_LOCK => 60 }, \%quiet) };
$records{burst_over} = sub { return (\%burst, \%quiet) };
$records{burst} = sub { return (\%quiet, \%burst) };
rules(<<'EOT');
# how much evidence there is, and whether sessions are at work, for all rules; a fifth of the time, half of which it would win
rule relation_extension
evidence LOCK_EXTEND=2 s=28.6 sessions=2.87
  => relation extension|load with fewer sessions at a time, or into several partitions; COPY instead of INSERT|0.3484|medium
  s=28.4 => silent: 28 s of evidence: 30 s are needed
  sessions=2.85 => satisfied: the server is idle: 0.10 sessions at work on average
evidence DATA_EXTEND=70 LOCK_EXTEND=200 s=100 sessions=1000
  => relation extension|..|0.1000|medium
  numbers => advises|a change of the application|data_extend_fraction=0.07 extension_lock_fraction=0.2
  LOCK_EXTEND=199|200 => satisfied|advises

# One begins all 20 s of 300, 0.4 of WAL are page images: 0.4 * (1 - 20 / 300) * (0.235 + 0.26 + 0.3 / 4); 0.97 MB/s * 300 s * 1.5
# * 1.2 are 524 MB. Of three, and four: 100 s / 3, 0.4 * (1 - 33.3 / 300) * 0.57. At least twice as much as now.
rule max_wal_size
settings checkpoint_completion_target:0.5 checkpoint_timeout:300s max_wal_size:96MB wal_compression:off
evidence mix checkpoints_requested=3 checkpoints_timed=2 wal_bytes=819200000 wal_pages=40000 wal_position=101711872
  => max_wal_size|640MB|0.2128|high
  numbers => advises|96MB|reload|checkpoints_requested=3 checkpoints_timed=2 data_fraction=0.26 interval_s=20 page_image_fraction=0.4
    wal_bytes_per_s_p95=1017118.72 wal_fraction=0.235
  checkpoints_requested=2 checkpoints_timed=1 => max_wal_size|640MB|0.2027|medium
  checkpoints_timed=1 => max_wal_size|640MB|0.2090|high
  @rates => max_wal_size|11GB|..
  numbers @rates => ..interval_s=20.8 ..
  checkpoint_timeout:30s => max_wal_size|192MB|0.0760|high
  wal_position=-1 => max_wal_size|5GB|0.2128|high
  checkpoints_timed=18|17 checkpoints_requested=2 => satisfied|advises
  checkpoints_requested=1|0|2 checkpoints_timed=0 => satisfied|satisfied|advises
  wal_position=100663296|101711872 wal_pages=3750|3770 => satisfied|advises
# images that are compressed: no more than 4,000,000 records of 80 bytes leave; in full; at most; by their bytes, as 19 counts
  wal_pages=80000 wal_records=4000000 wal_compression:pglz => max_wal_size|640MB|0.3242|high
  wal_pages=80000 wal_records=4000000 => max_wal_size|640MB|0.4256|high
  wal_pages=200000 => max_wal_size|640MB|0.5214|high
  wal_page_bytes=204800000 wal_pages=80000 wal_records=4000000 => max_wal_size|640MB|0.1330|high
  wal_page_bytes=204800000 wal_pages=80000 wal_records=4000000 wal_compression:pglz => max_wal_size|640MB|0.1330|high
  wal_position=1e17 max_wal_size:1000TB => satisfied: .. no room for a larger max_wal_size..
  @storm max_wal_size:16MB => max_wal_size|3GB|..
  @storm_over => satisfied: WAL started checkpoints, but the clock would at the rate of the last 300 s, 0.01 MB a second

# 0.03 of the time for places, and 0.11 * 150 / (150 + 450). Once a second; each twentieth write, or a twentieth of the time, for
# places, too; a whole segment
rule wal_buffers
settings wal_buffers:1024
evidence mix commits=450 wal_buffers_full=150 wal_writes=2000
  => wal_buffers|16MB|0.0575|high
  numbers => advises|8MB|restart|commits=450 wal_buffers_full=150 wal_buffers_full_per_s=1.5 wal_insert_fraction=0.02
    wal_write_fraction=0.04 wal_write_lock_fraction=0.07 wal_writes=2000
  @short_burst => satisfied: .. which cost less than 1.7 %..
  @burst_over => satisfied: in the last 300 s: WAL buffers were full 0.0 times a second; before that: 56 times a second..
  @burst => wal_buffers|16MB|0.0833|high
  wal_buffers_full=100|101 wal_writes=100 => satisfied|advises
  WAL_BUFFERS=30|31 wal_writes=3000 => satisfied|advises
  WAL_INSERT=40|41 wal_writes=3000 => satisfied|advises
  WAL_BUFFERS=4 WAL_INSERT=10 WAL_WRITE=4 WAL_WRITE_LOCK=15 => satisfied: WAL buffers were full 1.5 times a second, which cost less than 1.9 %..
  wal_writes=3000|2999 wal_buffers:2048|2047 => satisfied|advises

# Six sessions commit at a time, 1.5 a flush of 120 s / 20,000: a quarter of 0.6. The server's clock; shared: 0.6 * (1 - 1.5 * 3.2
# / 6); flushes of half a second, and of a millisecond; a quarter of the time, half of it flushing
rule commit_delay
settings commit_delay:0 commit_siblings:2
evidence WAL_SYNC=120 WAL_WRITE=80 WAL_WRITE_LOCK=400 commits=30000 s=100 sessions=1000 wal_syncs=20000
  => commit_delay|3000|0.1500|medium
  numbers => advises|0|reload|commit_fraction=0.6 commits_per_flush=1.5 commits_per_s=300 flush_ms=6 flushes_per_s=200 sessions_committing=6
  wal_sync_us=80000000 => commit_delay|2000|0.1500|medium
  commits=64000 => commit_delay|3000|0.1200|medium
  commits=360 wal_syncs=240 => commit_delay|100000|0.1500|medium
  commits=180000 wal_syncs=120000 => commit_delay|500|0.1500|medium
  wal_syncs=120001|0|120000 commits=180000 => satisfied|satisfied|advises
  WAL_SYNC=50 WAL_WRITE_LOCK=120 => commit_delay|1250|0.0250|medium
  WAL_WRITE_LOCK=119|120 WAL_SYNC=50 => satisfied|advises
  WAL_SYNC=49|50 WAL_WRITE_LOCK=121 => satisfied|advises
  wal_buffers_full=200 => silent: WAL buffers are full..
  checkpoints_requested=2 wal_position=1e12 => silent: WAL starts checkpoints..
  commits=80000|64000 commit_siblings:7|6 commit_delay:1|0 => satisfied|advises
  sync_s=5.1|5 => silent|advises

rule commit_siblings
settings commit_delay:100 commit_siblings:7
  => commit_siblings|6|0.0750|low
  numbers => advises|7|reload|commit_fraction=0.6 flush_ms=6 sessions_committing=6
  WAL_WRITE_LOCK=490 => commit_siblings|6|0.0863|low
  WAL_SYNC=50 WAL_WRITE_LOCK=70 sessions=700 => commit_siblings|2|0.0357|low
  WAL_WRITE_LOCK=69|70 WAL_SYNC=50 sessions=700 => satisfied|advises
  WAL_SYNC=49|50 WAL_WRITE_LOCK=71 sessions=700 => satisfied|advises
  WAL_WRITE_LOCK=119|120 WAL_SYNC=50 => satisfied|advises
  commit_siblings:6|7 commit_delay:0|1 => satisfied|advises

# 0.75 of the time in which files are made; segments have 16 MB
rule wal_segment_size
evidence WAL_INIT=27 checkpoints_requested=1 checkpoints_timed=1 s=100 sessions=1000 wal_position=1677721600
  => wal_segment_size|a larger min_wal_size..|0.0203|low
  numbers => advises|16MB|offline|segments_per_s=1 wal_init_fraction=0.027
  wal_position=1676673024|1677721600 WAL_INIT=26|27 => satisfied|advises
  checkpoints_timed=0|1 => silent|advises
EOT
($rule, %settings) = ('max_wal_size', max_wal_size => '96MB', checkpoint_timeout => '300s');
%evidence = of_mix(checkpoints_requested => 3, checkpoints_timed => 2, wal_bytes => 819_200_000, wal_pages => 40_000, wal_position => 1e17);
my ($available) = qx(df --output=avail -B1 @{[ $node->data_dir ]}) =~ /(\d+)/;
my ($room) = finds('recommended', {}, {}) =~ /^(\d+)GB/;
cmp_ok(abs($room - $available / 2 / 2**30), '<', 3 + 0.03 * $room, 'max_wal_size: at most half of what is free');

### Locks: 18 waits, of which half would be saved; from 19 on the server counts locks that found no slot

rules($major < 18 ? <<'EOT' : <<'EOT');
rule max_locks_per_transaction
evidence LOCK_MANAGER=40 fast_path_exceeded=10000 s=100 sessions=1000
  => silent: a session has 16 fast-path slots whatever the setting; from 18 on..
EOT
rule max_locks_per_transaction
settings max_locks_per_transaction:64
evidence LOCK_MANAGER=40 fast_path_exceeded=10000 s=100 sessions=1000
  => max_locks_per_transaction|256|0.0200|medium
  numbers => advises|64|restart|fast_path_exceeded_per_s=100 lock_manager_fraction=0.04
  fast_path_exceeded=-1 => max_locks_per_transaction|256|0.0200|low
  fast_path_exceeded=9990|10000 LOCK_MANAGER=39|40 => satisfied|advises
  max_locks_per_transaction:128 => max_locks_per_transaction|512|..
  max_locks_per_transaction:129 => max_locks_per_transaction|1024|..
  max_locks_per_transaction:16383 => max_locks_per_transaction|16384|..
  max_locks_per_transaction:16384|16383 => satisfied|advises
EOT

### Buffers

$do{memory} = \&memory_is;
$do{fill} = sub { $db->sql('CREATE TABLE filling (i int, t char(500)); INSERT INTO filling SELECT i, i FROM generate_series(1, 70000) i') };
# A quarter of the pages, 30,000 a second, which cost 0.08 and 3,000,000 * 2 us; half of which it would win.
# Pages for 3,010 allocations a second in 200 ms, twice: 1,204
rules(<<'EOT');
rule bgwriter_lru_maxpages
settings bgwriter_delay:200ms bgwriter_lru_maxpages:100 bgwriter_lru_multiplier:2
evidence mix backend_buffers=3000000 bgwriter_buffers=5000000 bgwriter_stopped=50 buffers_allocated=301000 checkpoint_buffers=4000000
  => bgwriter_lru_maxpages|1300|0.0430|medium
  numbers => advises|100|reload|allocations_per_s=3010 backend_buffers=3000000 bgwriter_buffers=5000000 bgwriter_stopped=50
    checkpoint_buffers=4000000 data_write_fraction=0.08
  buffers_allocated=1e15 => bgwriter_lru_maxpages|1073741823|..
# in one of ten rounds only; as much as is needed; as good as off
  bgwriter_lru_maxpages:100|99 buffers_allocated=20000 => satisfied|advises
  bgwriter_lru_maxpages:26|25 bgwriter_stopped=0 => satisfied|advises
  buffers_allocated=20000 bgwriter_lru_maxpages:99 => bgwriter_lru_maxpages|1000|0.0430|medium
  bgwriter_stopped=25 bgwriter_delay:400ms => bgwriter_lru_maxpages|1300|0.0430|medium + bgwriter_delay|200ms|0.0430|medium
  bgwriter_stopped=25 buffers_allocated=20000 bgwriter_delay:400ms => bgwriter_delay|200ms|0.0430|medium
  bgwriter_stopped=100 bgwriter_delay:100ms => bgwriter_lru_maxpages|1000|0.0430|medium
  bgwriter_delay:201ms bgwriter_lru_maxpages:99 bgwriter_lru_multiplier:1.9 => bgwriter_lru_maxpages|1300|0.0430|medium +
    bgwriter_delay|200ms|0.0426|medium + bgwriter_lru_multiplier|2|0.0421|medium
  bgwriter_stopped=0 bgwriter_lru_maxpages:25 => bgwriter_lru_maxpages|1300|0.0860|high
  bgwriter_lru_multiplier:0.5 => bgwriter_lru_maxpages|1300|0.0430|medium + bgwriter_lru_multiplier|2|0.0421|medium
  bgwriter_lru_multiplier:0.49 => bgwriter_lru_maxpages|1300|0.0860|high + bgwriter_lru_multiplier|2|0.0843|high
  bgwriter_stopped=49|50 => satisfied|advises
# a fifth of the pages, ten a second; a bulk load, where that is counted, and where it is not: as much as they read and write
  backend_buffers=1000 bgwriter_buffers=3000 checkpoint_buffers=1000 => bgwriter_lru_maxpages|1300|0.0400..
  backend_buffers=999|1000 bgwriter_buffers=3000 checkpoint_buffers=900 => satisfied|advises
  bgwriter_buffers=3001|3000 backend_buffers=1000 checkpoint_buffers=1000 => satisfied|advises
# with those of the sweeper
  sweeper_buffers=1001|1000 bgwriter_buffers=2000 backend_buffers=1000 checkpoint_buffers=1000 => satisfied|advises
  LOCK_EXTEND=41|40 DATA_EXTEND=60 DATA_READ=20 DATA_WRITE=80 backend_ring_buffers=-1 => satisfied|advises
  backend_buffers=-1|3000000 backend_ring_buffers=3000001|3000000 DATA_WRITE=33.9|34.1 => satisfied|advises
# waits for WAL without a commit tell of it, unless they tell of full buffers; no more than all of the time
  synchronous_commit:off => bgwriter_lru_maxpages|1300|0.1430..
  wal_buffers_full=150 synchronous_commit:off => bgwriter_lru_maxpages|1300|0.0430..
  backend_buffers=600000000 bgwriter_lru_maxpages:25 => bgwriter_lru_maxpages|1300|1.0000|high

# 800,000 misses of 9,800,000: 0.25 in waits and 800,000 * 2 us. First of a server that has just started. A quarter of the memory,
# and not 16 times 16; log2(100 / 16) / 3; a quarter that is half as much again: 0.2516 * 0.8 * log2(1.5) / 3
rule shared_buffers
settings bgwriter_lru_maxpages:100
evidence mix backend_ring_reads=200000 blocks_hit=9000000 blocks_read=1000000 buffers_allocated=350 sweep_ticks=700
  => satisfied: .. % of shared buffers hold nothing yet..
  do fill
  do memory 400
  => shared_buffers|112MB|0.1774|high
  do memory 96
  => shared_buffers|32MB|0.0392|high
  do memory 95
  => satisfied: shared buffers are about a quarter of the memory, or more
  do memory 800
  => shared_buffers|208MB|0.2013|high
  numbers => advises|16MB|restart|data_read_fraction=0.11 data_write_fraction=0.08 memory_bytes=838860800 miss_fraction=0.0816
    misses_per_s=8000 read_us=110 sweep_ticks_per_allocation=2
# reads of 200 us, and slower ones; where rings are not counted: what needs a buffer that is allocated, and no more than there are
  backend_ring_reads=0 blocks_read=550000 => shared_buffers|208MB|0.2009|high
  backend_ring_reads=0 blocks_read=549000 => shared_buffers|208MB|0.1004|low
  backend_ring_reads=-1 buffers_allocated=800000 => shared_buffers|208MB|0.2013|high
  backend_ring_reads=-1 buffers_allocated=2000000 => shared_buffers|208MB|0.2016|high
  backend_ring_buffers=1 => satisfied: reads and writes are bulk load..
  DATA_WRITE=20|19 bgwriter_lru_maxpages:0 => silent|advises
  BUFFER_MAPPING=4|5 BUFFER_IO=4 DATA_READ=10 DATA_WRITE=5 => satisfied|advises
  swapped=10000|9999 bgwriter_lru_maxpages:0|100 => silent|advises
  blocks_hit=39201000|39200000 => satisfied|advises
EOT
# it notices a buffer that is beyond these; 16 times as much, and 128 MB at least
rules(<<'EOT') unless $db->sql('SHOW debug_assertions') eq 'on';
  shared_buffers:10MB => shared_buffers|160MB|0.2013..
  shared_buffers:4MB => shared_buffers|128MB|0.2013..
EOT

### Reads, from 18 on: a tenth of the time, half of which it would win; half of the pages come several in one read, half of whose
### time it would win

my $most = $major > 18 ? 'io_max_workers' : 'io_workers';
my $forbidden = -e '/proc/sys/kernel/io_uring_disabled' && slurp_file('/proc/sys/kernel/io_uring_disabled') !~ /^0/;
my $has = $db->sql(q{SELECT 'io_uring' = ANY (enumvals) FROM pg_settings WHERE name = 'io_method'}) eq 't';
my $uring = !$has ? 'silent: this server is built without io_uring'
  : $forbidden ? 'silent: the kernel forbids io_uring..' : 'io_method|io_uring|0.0210|medium';
rules($major < 18 ? <<'EOT' : <<"EOT");
rule io_workers
evidence mix io_queue_s=100
  => silent: there are io workers from 18 on
rule io_method
  => silent: it can be set from 18 on
EOT
rule io_workers
settings $most:8
evidence mix io_queue_s=100
  => $most|16|0.0500|medium
  numbers => advises|8|reload|data_read_fraction=0.11 queued_fraction=0.1 sessions_queued=1 workers=8
  io_queue_s=40 => $most|16|0.0200|medium
  io_queue_s=39|40 => satisfied|advises
  $most:17 => $most|32|0.0500|medium
  $most:32|31 => satisfied|advises
  io_method:sync => satisfied: io_method is sync, which has no io workers
rule io_method
settings io_method:sync
evidence mix blocks_read=1000 reads=500
  => io_method|worker|0.0275|low
  numbers => advises|sync|restart|combined_fraction=0.5 data_read_fraction=0.11 queue_lock_fraction=0 reads_per_s=5
  reads=501|500 DATA_READ=79|80 => satisfied|advises
rule io_method
evidence mix AIO_QUEUE=21
  => $uring
  AIO_QUEUE=19 => satisfied: waits for the queue of the io workers take 1..
EOT

### Stalls

# A transaction takes 0.12 s of the sessions' time where nothing is synced, the median of 0.1, 0.12 and 0.15. Beyond that are
# 0, 0, 30 and, with the sync and without a transaction, 160 and 30: 220 of 800
$records{stalled} = sub {
    my %more = @_;
    my %first = (checkpoints_timed => 1, checkpoints_requested => 1, checkpoint_buffers => 3000, bgwriter_buffers => 1000);

    return ({ s => 20, sessions => 100, commits => 1000, %first }, { s => 20, sessions => 120, commits => 1000 },
        { s => 20, sessions => 150, commits => 1000 }, { s => 20, sessions => 400, commits => 2000, sync_s => 6, %more },
        { s => 20, sessions => 30 });
};
# with another first record; all by the checkpointer
sub stalled_first { my %first = @_; my @records = $records{stalled}->(); %{ $records[0] } = (%{ $records[0] }, %first); return @records; }
$records{alone} = sub { stalled_first(bgwriter_buffers => 0, checkpoints_timed => 0) };
$records{few} = sub { stalled_first(checkpoint_buffers => 99) };
$records{hundred} = sub { stalled_first(checkpoint_buffers => 100) };
$records{even} = sub { map { { s => 20, sessions => 100, commits => 1000 + $_, sync_s => 2, checkpoint_buffers => 100 } } 1 .. 5 };
$records{one} = sub { return { s => 100, sessions => 100, @_ } };
$records{all_synced} = sub { map { { %$_, sync_s => 6 } } $records{stalled}->() };
rules(<<'EOT');
# 0.275, three quarters of it the checkpointer's
rule checkpoint_flush_after
settings bgwriter_flush_after:0 checkpoint_flush_after:0
  @stalled => checkpoint_flush_after|256kB|0.2063|high + bgwriter_flush_after|512kB|0.0688|high
  @stalled bgwriter_buffers=8000 => checkpoint_flush_after|256kB|0.1375|high + bgwriter_flush_after|512kB|0.1348|high
  numbers @stalled checkpoint_sync_ms=5000 checkpoints_timed=1 bgwriter_flush_after:64kB => advises|0|reload|checkpoint_sync_fraction=0.06
    checkpoint_sync_ms=5000 checkpoints=3 data_fraction=0 stall_fraction=0.275 wal_fraction=0
  @stalled bgwriter_flush_after:64kB => checkpoint_flush_after|256kB|0.2063|high
  @stalled checkpoint_flush_after:64kB => bgwriter_flush_after|512kB|0.0688|high
  @stalled bgwriter_flush_after:64kB checkpoint_flush_after:64kB => satisfied: both are on
  @alone => checkpoint_flush_after|256kB|0.2750|medium
  @alone checkpoint_flush_after:64kB => satisfied: the background writer wrote nothing
  @stalled sync_s=5 => satisfied: the syncs that end checkpoints took 5.0 % of the time, and sessions stalled for 27.5 %..
  @stalled sync_s=1 checkpoint_sync_ms=5001 => checkpoint_flush_after.. + bgwriter..
  @even => satisfied: the syncs that end checkpoints took 10.0 % of the time, and sessions stalled for 0.1 %..
  @one => silent: there was no checkpoint in 100 s
  @one sync_s=1 => satisfied: the syncs..
# without a record in which nothing is synced the median is of all: 0.15 is the third of 0.1, 0.12, 0.15, 0.2. 100 + 30 of 800
  @all_synced => checkpoint_flush_after|256kB|0.1219.. + ..

# 0.275 * (1 - 0.5 / 0.9)
rule checkpoint_completion_target
settings checkpoint_completion_target:0.5
  @stalled => checkpoint_completion_target|0.9|0.1222|medium
  numbers @stalled checkpoint_write_ms=70 => advises|0.5|reload|checkpoint_buffers=3000 checkpoint_sync_ms=0 checkpoint_write_ms=70
    stall_fraction=0.275
  @stalled checkpoint_completion_target:0.7 => satisfied: checkpoints are spread over 70 % of the time between them
  @stalled checkpoint_completion_target:0.69 => checkpoint_completion_target|0.9|0.0642|medium
  @few => silent: checkpoints wrote 99 pages in 100 s..
  @hundred => checkpoint_completion..
  @even => satisfied: sessions stalled for 0.1 % of their time..

# two fifths of the stalls, unless the kernel has the pages: 400 s / 2,000,100 are 199.99 us a read; a twentieth of them
rule pgscale.writeback
  @stalled => pgscale.writeback|auto|0.1100|medium
  numbers @stalled => advises|off|reload|checkpoint_sync_ms=0 stall_fraction=0.275
  @stalled sync_s=5 => satisfied: the syncs that end checkpoints took 5.0 % of the time..
  @stalled bgwriter_flush_after:0 => silent: checkpoint_flush_after or bgwriter_flush_after is off..
  @stalled checkpoint_flush_after:0 => silent: checkpoint_flush_after or bgwriter_flush_after is off..
  @stalled DATA_READ=400 blocks_read=2000100 blocks_hit=38000000 => satisfied: the kernel's cache holds..
  @stalled DATA_READ=400 blocks_read=2000000 blocks_hit=1 => pgscale.writeback..
  @stalled DATA_READ=400 blocks_read=2000100 blocks_hit=38001900 => pgscale.writeback..

rule vm.dirty_background_bytes
  @stalled bgwriter_flush_after:0 => silent: checkpoint_flush_after or..
  @stalled sync_s=5 => satisfied: the syncs that end checkpoints took 5.0 % of the time..
EOT
# half of the stalls, if the kernel waits for much
like(finds($advice, { records => 'stalled' }, {}), qr/^(vm.dirty_background_bytes\|.*\|0.1375\|medium
    |satisfied:\ the\ kernel\ begins\ to\ write\ at\ ([1-9]?\d|1\d\d|2[0-5]\d)\ MB.*)$/x, 'vm.dirty_background_bytes');

### Writes of sessions, page images, memory

rules(<<'EOT');
# 80 s / 80,000 are a millisecond each; half of 0.08. Pages that the kernel has: 110 s / 1,000,000
rule backend_flush_after
settings backend_flush_after:0 bgwriter_lru_maxpages:100
evidence mix backend_buffers=80000 bgwriter_buffers=200000 blocks_hit=95 blocks_read=5 checkpoint_buffers=120000
  => backend_flush_after|512kB|0.0400|low
  numbers => advises|0|reload|backend_buffers_per_s=800 backend_write_fraction=0.2 data_write_fraction=0.08 write_ms=1
  DATA_WRITE=39.9|40 backend_buffers=39900 bgwriter_buffers=39000 => satisfied|advises
  blocks_hit=18000000 blocks_read=1000000 => satisfied: sessions' writes are slow, but..
  backend_buffers=80001|80000 bgwriter_buffers=200001|200000 backend_flush_after:1|0 => satisfied|advises
  bgwriter_lru_maxpages:0|100 => silent|advises

# 0.1 of the time, half of it; the background writer could not do more
rule pgscale.sweeper
settings bgwriter_lru_maxpages:100
evidence mix DATA_WRITE=100 backend_buffers=80000 bgwriter_buffers=200000 checkpoint_buffers=120000
  => pgscale.sweeper|auto|0.0500|medium
  numbers => advises|off|reload|backend_buffers_per_s=800 backend_write_fraction=0.2 data_write_fraction=0.1
  bgwriter_stopped=1000 buffers_allocated=1000000 => silent: the background writer stops at its limit..
  DATA_WRITE=99.9|100 bgwriter_buffers=200001|200000 backend_ring_buffers=80001|80000 => satisfied|advises
  bgwriter_lru_maxpages:0|100 => silent|advises

# 0.4 of WAL; 0.235 of the time and a quarter of 0.3: 0.4 * (1 - 300 / 900) * 0.31. Five minutes at least, half an hour at most
rule checkpoint_timeout
settings checkpoint_completion_target:0.9 checkpoint_timeout:300s max_wal_size:10GB
evidence mix checkpoints_timed=2 wal_bytes=819200000 wal_pages=40000 wal_position=104857600
  => checkpoint_timeout|900s|0.0827|medium
  numbers => advises|5min|reload|checkpoints_requested=0 checkpoints_timed=2 page_image_fraction=0.4 wal_bytes_per_s=1048576 wal_fraction=0.235
  checkpoint_timeout:60s => checkpoint_timeout|300s|0.0992|medium
  checkpoint_timeout:700s => checkpoint_timeout|1800s|0.0758|medium
  checkpoints_requested=0|1 checkpoints_timed=1 => silent|advises
  checkpoints_requested=2 wal_position=1e12 => silent: WAL starts checkpoints..
  sync_s=6 checkpoint_flush_after:0 => silent: checkpoints end in stalls..
  sync_s=6 => checkpoint_timeout..
  WAL_SYNC=4.9|5.1 WAL_WRITE=0 WAL_WRITE_LOCK=35 => satisfied|advises
  checkpoint_timeout:1201s|1200s wal_pages=29999|30000 => satisfied|advises

# 0.5 of WAL, 0.25 of the time: a quarter of that; 1 MB/s; 0.6 of the time the CPU's
rule wal_compression
settings max_wal_size:10GB wal_compression:off
evidence mix CPU=600 DATA_READ=0 DATA_WRITE=0 SLRU_IO=0 TEMP_FILE=0 WAL_SYNC=105 checkpoints_timed=2 wal_bytes=819200000 wal_pages=50000
    wal_position=104857600
  => wal_compression|..|0.0313|medium
  numbers => advises|off|reload|cpu_fraction=0.6 page_image_fraction=0.5 wal_bytes_per_s=1048576 wal_fraction=0.25
  checkpoints_requested=2 wal_position=1e12 => silent: WAL starts checkpoints..
  sync_s=6 bgwriter_flush_after:0 => silent: checkpoints end in stalls..
  wal_pages=49999|50000 WAL_SYNC=104.9|105 wal_position=104857500|104857600 CPU=600.1|600 => satisfied|advises
  wal_compression:pglz|off => satisfied|advises
  checkpoints_timed=1|2 => silent|advises

# 0.6 of WAL, 0.235 of the time: a quarter of that
rule full_page_images
settings checkpoint_timeout:900s max_wal_size:10GB
evidence mix checkpoints_timed=2 wal_bytes=819200000 wal_pages=60000 wal_position=104857600
  => full-page images|drop unused indexes..|0.0353|low
  numbers => advises|a change of the schema|page_image_fraction=0.6 wal_fraction=0.235
  WAL_SYNC=0 WAL_WRITE=0 WAL_WRITE_LOCK=70 => satisfied: page images are 60 % of WAL
  checkpoints_requested=2 wal_position=1e12 => satisfied: checkpoints could be further apart..
  wal_pages=59999|60000 checkpoint_timeout:899s|900s => satisfied|advises
  checkpoints_timed=1|2 => silent|advises

rule vm.swappiness
evidence s=100 sessions=1000 swapped=10000
  => vm.swappiness|..less memory for shared buffers or sessions|0.0500|medium
  swapped=9999|-1|10000 => satisfied|silent|advises

# two gigabytes: 0.03 * 0.67
rule huge_pages
settings huge_pages:off shared_memory_size:2048
evidence CPU=670 s=100 sessions=1000
  => huge_pages|try|0.0201|medium
  numbers => advises|off|restart|cpu_fraction=0.67 huge_pages_needed=.. shared_memory_bytes=2147483648
  huge_pages:try => vm.nr_hugepages|sysctl vm.nr_hugepages=.., because huge_pages is try and got none|0.0201|medium
  shared_memory_size:2047|2048 CPU=660|670 => satisfied|advises
EOT
if (my ($kb) = slurp_file('/proc/meminfo') =~ /^Hugepagesize:\s+(\d+) kB$/m)
{
    my $limit = 'hugetlb.' . ($kb >= 1024 ? $kb / 1024 . 'MB' : "${kb}KB") . '.max';

    forge($forged, '/proc/self/cgroup' => '0::/pod', "/sys/fs/cgroup/pod/$limit" => 3072 * $kb);
    line_ok('huge_pages:try', "silent: shared memory takes .. huge pages, and the server's cgroup (hugetlb) allows 3: in huge pages it would not start");
    unlink "$forged/proc/self/cgroup";
}
($rule, %settings) = ('transparent_hugepage');
forge($forged, '/sys/kernel/mm/transparent_hugepage/enabled' => '[always] madvise never');
line_ok('compact_stalls=1000|999|-1', 'advises|satisfied|silent');
forge($forged, '/sys/kernel/mm/transparent_hugepage/enabled' => 'always [madvise] never');
line_ok('compact_stalls=1000|999|-1', 'satisfied|satisfied|silent');
unlink "$forged/sys/kernel/mm/transparent_hugepage/enabled";

### Nodes of memory: a machine of two, or four, whose fullest holds so much of 1000 bytes

$do{machine} = sub {
    my ($nodes, @bytes) = @_;
    my $rows = join ', ', map { "($_, $bytes[$_])" } 0 .. $#bytes;

    $db->sql(<<"EOQ");
CREATE OR REPLACE FUNCTION pgscale_internal.numa_nodes(OUT node integer, OUT cpus integer, OUT cpu_list text, OUT memory_bytes bigint,
    OUT free_bytes bigint, OUT distance integer[]) RETURNS SETOF record LANGUAGE sql
    AS 'SELECT n, 1, ''0'', CASE WHEN n < $nodes THEN 9 ELSE 0 END, 0, NULL::int[] FROM generate_series(0, 7) n';
CREATE OR REPLACE FUNCTION pgscale.numa_buffers(everything boolean DEFAULT false, OUT node integer, OUT pages bigint, OUT bytes bigint,
    OUT fraction double precision, OUT fraction_low double precision, OUT fraction_high double precision, OUT sampled boolean)
    RETURNS SETOF record LANGUAGE sql AS 'SELECT n, 1, b, 0, 0, 0, true FROM (VALUES (NULL, 5000), $rows) v (n, b)'
EOQ
};
# Three quarters on one of two: 0.05 * 0.6 * 0.75; twice its part on one of four: 0.05 * 0.6; half as much again: 0.05 * 0.6 * 0.752
($rule, %settings) = ('pgscale.numa_interleave');
rules(<<'EOT');
rule pgscale.numa_interleave
settings pgscale.numa_interleave:off
evidence CPU=600 s=100 sessions=1000
  do machine 2 750 250
  => pgscale.numa_interleave|on|0.0225|low
  numbers => advises|off|restart|cpu_fraction=0.6 largest_fraction=0.75 nodes=2
  CPU=499|600 => satisfied|advises
  pgscale.numa_interleave:on|off => satisfied|advises
  do machine 2 251 749
  => satisfied: of 2 nodes the fullest holds 75 %..
  do machine 4 100 500 200 200
  => pgscale.numa_interleave|on|0.0300|low
  do machine 8 810 190
  => pgscale.numa_interleave|on|0.0300|low
  do machine 4 200 200 224 376
  => pgscale.numa_interleave|on|0.0226|low
  do machine 4 200 200 226 374
  => satisfied: of 4 nodes the fullest holds 37 %..
  do machine 1 1000
  => satisfied: the machine has one node..
EOT

### Tablespaces and tables

$do{disk} = sub {
    my ($read_ms, $cost) = @_;

    $db->sql(<<"EOQ");
CREATE OR REPLACE FUNCTION pgscale.tablespace_latency(tablespace name DEFAULT NULL, OUT tablespace name, OUT reads integer,
    OUT read_ms double precision, OUT max_ms double precision, OUT spread double precision, OUT sequential_bytes_per_s bigint,
    OUT random_page_cost double precision, OUT device text, OUT reason text) RETURNS SETOF record LANGUAGE sql ROWS 2
    AS 'SELECT name ''pg_default'', 256, $read_ms\::float8, 9, 0, 5, $cost\::float8, ''sda'', ''as it says''
        UNION ALL SELECT ''pg_global'', 0, NULL, NULL, NULL, NULL, NULL, NULL, ''is not there'''
EOQ
};
$do{probe} = sub { $probe = shift };
$do{pg_default} = sub { $db->sql("ALTER TABLESPACE pg_default @_") };
rules(<<'EOT');
rule random_page_cost
evidence s=100 sessions=1000 DATA_READ=600
  => silent: the disks were not timed..
  do probe true
  do disk 0.25 2.4
  => pg_default|ALTER TABLESPACE pg_default SET (random_page_cost = 2.4)|0.0300|medium + silent: pg_global: is not there
  do disk 0.25 2.7
  => satisfied: pg_default: 4.0 is set, and the measurement suggests 2.7 + ..
  do disk 0.25 6
  => ..random_page_cost = 6.0.. + ..
  do disk 0.25 NULL
  => silent: pg_default: as it says + ..
  do disk 0.25 5.9
  => satisfied: pg_default: 4.0 is set, and the measurement suggests 5.9 + ..
  random_page_cost:2 => ..random_page_cost = 5.9.. + ..
  do pg_default SET (random_page_cost = 3, effective_io_concurrency = 15)
  => pg_default|..random_page_cost = 5.9.. + ..
rule effective_io_concurrency
evidence s=100 sessions=1000 DATA_READ=500
  do disk 0.099 2
  => satisfied: .. + ..
  do disk 0.1 2
  => pg_default|ALTER TABLESPACE pg_default SET (effective_io_concurrency = 16)|0.0500|low + ..
  do disk 3.01 2
  => satisfied: .. + ..
  do disk 3 2
  => pg_default|.. + ..
  DATA_READ=49.9 => satisfied: pg_default: 15 are set, a read takes 3.00 ms, and reads take 5 %.. + ..
  DATA_READ=190|200 => satisfied|advises
EOT
like(finds(q{concat_ws('|', current, needs, evidence)}, {}, {}), qr/^15\b.*\|superuser\|.*"read_ms": 3\b/, 'with its numbers');
rules(<<'EOT');
  do pg_default SET (effective_io_concurrency = 16)
  => satisfied: pg_default: 16 are set.. + ..
  do pg_default RESET (random_page_cost, effective_io_concurrency)
  do probe false
EOT

# Tables of two rows, each updated so often that no statement is about it in the end
sub updated
{
    my ($table, $updates, $hot, $pages, $with) = @_;

    $db->sql("CREATE TABLE $table (i int, k int) " . ($with // '') . "; CREATE INDEX ON $table (k); INSERT INTO $table VALUES (1, 0), (2, 0)");
    $db->sql("DO \$\$ BEGIN FOR n IN 1 .. $updates LOOP
        IF n <= $hot THEN UPDATE $table SET i = i WHERE i = 1; ELSE UPDATE $table SET k = n WHERE i = 1; END IF; COMMIT; END LOOP; END \$\$");
    $db->sql("UPDATE pg_class SET relpages = $pages WHERE relname = '$table'");
    return;
}
($rule, %evidence) = ('fillfactor', s => 100, sessions => 1000, WAL_SYNC => 200);
updated(@$_) for [ 'twelve', 12, 5, 1001 ], [ 'eleven', 11, 5, 1001 ], [ 'ten', 10, 0, 1001 ], [ 'hot', 12, 6, 1001 ], [ 'small', 12, 0, 1000 ],
  [ 'made_so', 12, 0, 1001, 'WITH (fillfactor = 90)' ];
$db->sql('SELECT pg_stat_force_next_flush()');
$db->sql('SELECT pg_stat_clear_snapshot()');
# a fifth of the time that goes to WAL, and half of that
my $to_85 = 'SET (fillfactor = 85), and VACUUM FULL it when there is time';
line_ok('', "public.twelve|ALTER TABLE public.twelve $to_85|0.0400|low + public.eleven|ALTER TABLE public.eleven $to_85|0.0200|low");
is(finds(q{concat_ws('|', current, needs, evidence ->> 'updates', round((evidence ->> 'hot_fraction')::numeric, 3),
        evidence ->> 'updates_per_row', evidence ->> 'wal_fraction')}, {}, {}),
    "100|the table's owner|12|0.417|6|0.2\n100|the table's owner|11|0.455|5.5|0.2", 'with the counts');
line_ok('WAL_SYNC=100', 'public.twelve|..0.0200.. + ..would save 1.0 %..');
line_ok('WAL_SYNC=99', 'satisfied: waiting for WAL takes 9.9 % of the sessions\' time');
# a score of 2 and of less, which 19 tells
my $dead = $db->sql(q{SELECT n_dead_tup FROM pg_stat_user_tables WHERE relname = 'twelve'});
for my $due (int($dead / 2), int($dead / 2) + 1)
{
    $db->sql("ALTER TABLE twelve SET (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = $due)");
    my $times = sprintf '%.1f', $dead / $due;
    my $expected = $major >= 19 && $dead >= 2 * $due
      ? "silent: public.twelve has $times times the dead rows at which autovacuum is due, and they fill its pages: VACUUM comes first.."
      : 'public.twelve|ALTER TABLE..';
    line_ok('', "$expected + public.eleven|..0.0200..");
}
$db->sql('DROP TABLE twelve, eleven');
line_ok('', 'satisfied: no table of this database..');

### A setting that a feature at work claims is left to it. This session's are made up, so another one asks.

$db->quit;
$db = session($node);
my $claims = q{SELECT string_agg(rule, ' ' ORDER BY rule) FROM pgscale.advice_rules() WHERE verdict = 'silent' AND reason ~ '^pgscale.%s is on and claims'};
my $asks = q{SELECT state, action FROM pgscale.health WHERE feature = 'sweeper'};
$db->set('pgscale.sweeper' => 'on');
$db->poll_ok($asks =~ s/state/state IN ('idle', 'working')/r, 'the sweeper works, and health asks for nothing', 't|');
is($db->sql(sprintf $claims, 'sweeper'), '', 'and claims nothing');
$db->set('pgscale.sweeper' => 'off');
$db->poll_ok($asks, 'off, it asks for nothing', 'off|set pgscale.sweeper to auto and reload');
is($db->sql(sprintf $claims, 'sweeper'), '', 'nor minds anything');
# while the writeback worker learns, or has nothing to do
$db->set($_->[0] => $_->[1]) for [ fsync => 'on' ], [ 'pgscale.writeback' => 'auto' ];
$db->poll_ok(sprintf($claims, 'writeback'), 'what the writeback worker does in their place', 'backend_flush_after vm.dirty_background_bytes');

$db->quit;
$node->stop('immediate');
done_testing();
