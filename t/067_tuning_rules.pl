# Each rule, on evidence that is made up: both sides of each threshold, what it advises and how much that wins, and what it
# leaves to others. The figures that are expected are worked out beside each.
use strict;
use warnings;
use PgscaleTest;
use PgscaleMadeUp;
use PostgreSQL::Test::Utils;
use Test::More;

made_up();
my $node;
{
    local $ENV{LD_PRELOAD} = little_memory();
    memory_is(800);
    $node = pgscale_node('main', conf => <<'EOC');
pgscale.sampler_debug_period = 1h
EOC
}
my $db = session($node);
made_up_functions($db);

### All rules: how much evidence there is, and whether sessions are at work

$rule = 'relation_extension';
%evidence = (s => 28.6, sessions => 2.87, LOCK_EXTEND => 2);
found('enough evidence, and work', 'relation extension|load with fewer sessions at a time, or into several partitions; COPY instead of INSERT|0.3484|medium');
found('too little', 'silent: 28 s of evidence: 30 s are needed', { s => 28.4 });
found('too little to do', 'satisfied: the server is idle: 0.10 sessions at work on average', { sessions => 2.85 });
# 0.2 of the sessions' time, half of which it would win
%evidence = (s => 100, sessions => 1000, LOCK_EXTEND => 200, DATA_EXTEND => 70);
found('a fifth', qr/^relation extension\|.*\|0\.1000\|medium$/);
found('less than a fifth', 'satisfied: waits for the extension lock take 19.9 % of the sessions\' time', { LOCK_EXTEND => 199 });
told('advises|a change of the application|data_extend_fraction=0.07 extension_lock_fraction=0.2');

### WAL

# One begins all 20 s of 300, 0.4 of WAL are page images: 0.4 * (1 - 20 / 300) * (0.235 + 0.26 + 0.3 / 4)
$rule = 'max_wal_size';
%settings = (max_wal_size => '96MB', checkpoint_completion_target => '0.5', checkpoint_timeout => '300s');
%evidence = of_mix(checkpoints_requested => 3, checkpoints_timed => 2, wal_bytes => 819_200_000, wal_pages => 40_000, wal_position => 97 * 2**20);
# 0.97 MB/s * 300 s * 1.5 * 1.2 are 524 MB
found('checkpoints by WAL', 'max_wal_size|640MB|0.2128|high');
told('advises|96MB|reload|checkpoints_requested=3 checkpoints_timed=2 data_fraction=0.26 interval_s=20 page_image_fraction=0.4 wal_bytes_per_s_p95=1017118.72 wal_fraction=0.235');
# 100 s / 3, and 4: 0.4 * (1 - 33.3 / 300) * 0.57
found('three checkpoints', 'max_wal_size|640MB|0.2027|medium', { checkpoints_requested => 2, checkpoints_timed => 1 });
found('four', 'max_wal_size|640MB|0.2090|high', { checkpoints_timed => 1 });
# 21 records at 0.5 MB/s, 1, 2 ... 20; those of 4 s, but one: 19 MB/s * 300 s * 1.5 * 1.2 are 10.02 GB
my @rates = ({ %evidence, s => 20, wal_position => 10 * 2**20 }, map { { s => $_ == 5 ? 8 : 4, wal_position => $_ * ($_ == 5 ? 8 : 4) * 2**20 } } 1 .. 20);
found('the 95th percentile of the rate', qr/^max_wal_size\|11GB\|/, \@rates);
# the clock: 104 s / 5 are 20.8
like(finds(q{evidence ->> 'interval_s'}, \@rates), qr/^20\.8/, 'time is the sum of all records');
found('twice as much as now, at least', 'max_wal_size|192MB|0.0760|high', {}, { checkpoint_timeout => '30s' });
found('of an unknown position, by the bytes', qr/^max_wal_size\|5GB\|0\.2128\|high/, { wal_position => -1 });
found('just as much WAL as half of the distance', qr/^satisfied: WAL started few of the 5 checkpoints in 100 s/, { wal_position => 96 * 2**20 });
found('a tenth of the checkpoints', qr/^satisfied: WAL started few of the 20 checkpoints/, { checkpoints_requested => 2, checkpoints_timed => 18 });
found('more than a tenth', qr/^max_wal_size/, { checkpoints_requested => 2, checkpoints_timed => 17 });
found('a single one', qr/^satisfied: WAL started few of the 1 checkpoints/, { checkpoints_requested => 1, checkpoints_timed => 0 });
found('none', qr/^satisfied: WAL started none of the 2 checkpoints/, { checkpoints_requested => 0 });
found('a gain of less than 2 %', 'satisfied: WAL starts checkpoints, but that costs little: page images are 4 % of it', { wal_pages => 3750 });
found('of 2 %', 'max_wal_size|640MB|0.0201|high', { wal_pages => 3770 });
# images that are compressed: no more than 4,000,000 records of 80 bytes leave
found('what compressed images leave', 'max_wal_size|640MB|0.3242|high', { wal_pages => 80_000, wal_records => 4_000_000 }, { wal_compression => 'pglz' });
found('images in full', 'max_wal_size|640MB|0.4256|high', { wal_pages => 80_000, wal_records => 4_000_000 });
found('images, at most', 'max_wal_size|640MB|0.5214|high', { wal_pages => 200_000 });
# 0.25 of it, as 19 counts
found('images by their bytes', 'max_wal_size|640MB|0.1330|high', { wal_pages => 80_000, wal_page_bytes => 204_800_000 });
found('which are compressed', 'max_wal_size|640MB|0.1330|high', { wal_page_bytes => 204_800_000, wal_records => 4_000_000 }, { wal_compression => 'pglz' });
found('as much as there is room', qr/^max_wal_size\|\d+GB\|/, { wal_position => 1e17 });
my ($available) = qx(df --output=avail -B1 @{[ $node->data_dir ]}) =~ /(\d+)/;
my ($room) = finds('recommended', { wal_position => 1e17 }) =~ /^(\d+)GB/;
cmp_ok(abs($room - $available / 2 / 2**30), '<', 3 + 0.03 * $room, 'half of what is free');
found('no room', 'satisfied: WAL starts checkpoints, but its file system has no room for a larger max_wal_size', { wal_position => 1e17 }, { max_wal_size => '1000TB' });
# what begins late counts: the latest minute's 95th percentile; what is over does not
my %storm = (%evidence, s => 60, wal_position => 97 * 2**20);
found('a storm that has begun', qr/^max_wal_size\|3GB\|/, [ (map { { s => 60, sessions => 60, wal_position => 2**20 } } 1 .. 4),
    map { { %storm, s => 5, sessions => 1000, checkpoints_requested => 3, wal_position => 25 * 2**20 } } 1 .. 12 ], { max_wal_size => '16MB' });
found('one that is over', 'satisfied: WAL started checkpoints, but the clock would at the rate of the last 300 s, 0.01 MB a second',
    [ \%storm, { s => 300, sessions => 300, wal_position => 3 * 2**20 } ]);

# 0.03 of the time for places, and 0.11 * 150 / (150 + 450)
$rule = 'wal_buffers';
%settings = (wal_buffers => '8MB');
%evidence = of_mix(wal_buffers_full => 150, wal_writes => 2000, commits => 450);
found('full buffers', 'wal_buffers|16MB|0.0575|high');
told('advises|8MB|restart|commits=450 wal_buffers_full=150 wal_buffers_full_per_s=1.5 wal_insert_fraction=0.02 wal_write_fraction=0.04 wal_write_lock_fraction=0.07 wal_writes=2000');
# a burst: commits wait for WAL after it, too, and not for room
my %burst = (s => 60, sessions => 600, WAL_WRITE_LOCK => 60, wal_buffers_full => 20_000, wal_writes => 20_000, commits => 10);
my %quiet = (s => 300, sessions => 3000, WAL_WRITE_LOCK => 1000, WAL_WRITE => 500, wal_writes => 5000, commits => 5000);
found('a burst of little time', qr/^satisfied: .* which cost less than 1[.]7 %/, [ \%burst, \%quiet ]);
found('one that is over', qr/^satisfied: in the last 300 s: WAL buffers were full 0[.]0 times a second; before that: 56 times a second a session found/,
    [ { %burst, WAL_WRITE_LOCK => 300 }, \%quiet ]);
found('one that goes on', 'wal_buffers|16MB|0.0833|high', [ \%quiet, { %burst, WAL_WRITE_LOCK => 300 } ]);
found('once a second', 'satisfied: WAL buffers were full 1.0 times a second', { wal_buffers_full => 100, wal_writes => 100 });
found('less than each twentieth write', qr/^satisfied: WAL buffers were full 1.5/, { wal_writes => 3000 });
found('nor a twentieth of the time', qr/^satisfied: /, { wal_writes => 3000, WAL_BUFFERS => 30 });
found('a twentieth of the time', 'wal_buffers|16MB|0.0785|high', { wal_writes => 3000, WAL_BUFFERS => 31 });
found('for places', qr/^wal_buffers/, { wal_writes => 3000, WAL_INSERT => 41 });
found('a whole segment', qr/^satisfied: WAL buffers were full 1.5 times a second, but hold a whole segment/, {}, { wal_buffers => 2048 });
found('nearly a whole segment', qr/^wal_buffers/, {}, { wal_buffers => 2047 });
found('what costs too little', qr/^satisfied: WAL buffers were full 1.5 times a second, which cost less than 1\.9 %/, { WAL_INSERT => 10, WAL_BUFFERS => 4, WAL_WRITE_LOCK => 15, WAL_WRITE => 4 });

# Six sessions commit at a time, 1.5 a flush of 120 s / 20,000: a quarter of 0.6
$rule = 'commit_delay';
%settings = (commit_siblings => 2);
%evidence = (s => 100, sessions => 1000, WAL_SYNC => 120, WAL_WRITE => 80, WAL_WRITE_LOCK => 400, commits => 30_000, wal_syncs => 20_000);
found('slow flushes', 'commit_delay|3000|0.1500|medium');
told('advises|0|reload|commit_fraction=0.6 commits_per_flush=1.5 commits_per_s=300 flush_ms=6 flushes_per_s=200 sessions_committing=6');
found('by the server\'s clock', 'commit_delay|2000|0.1500|medium', { wal_sync_us => 80_000_000 });
found('flushes that are shared: 0.6 * (1 - 1.5 * 3.2 / 6)', 'commit_delay|3000|0.1200|medium', { commits => 64_000 });
found('that are shared enough', 'satisfied: 6.0 sessions commit at a time, and 4.0 of them share a flush already', { commits => 80_000 });
found('a flush of half a second', 'commit_delay|100000|0.1500|medium', { commits => 360, wal_syncs => 240 });
found('of a millisecond', 'commit_delay|500|0.1500|medium', { commits => 180_000, wal_syncs => 120_000 });
found('of less', 'satisfied: a flush takes 1.00 ms: it pays to wait for slow ones only', { commits => 180_000, wal_syncs => 120_001 });
found('none', 'satisfied: a flush takes 0.00 ms: it pays to wait for slow ones only', { wal_syncs => 0 });
found('a quarter of the time, half of it flushing', 'commit_delay|1250|0.0250|medium', { WAL_SYNC => 50, WAL_WRITE_LOCK => 120 });
found('less of the time', qr/^satisfied: commits wait for 25 % of the sessions' time, and the disk flushes WAL for 50 % of it/, { WAL_SYNC => 50, WAL_WRITE_LOCK => 119 });
found('less flushing', qr/^satisfied: commits wait for 25 % of the sessions' time, and the disk flushes WAL for 49 % of it/, { WAL_SYNC => 49, WAL_WRITE_LOCK => 121 });
found('as many as siblings', 'commit_delay|3000|0.1500|medium', {}, { commit_siblings => 6 });
found('fewer', 'satisfied: 6.0 sessions commit at a time: too few to wait for', {}, { commit_siblings => 7 });
found('a delay', 'satisfied: there is a delay: 1 microseconds', {}, { commit_delay => 1 });
found('full buffers', qr/^silent: WAL buffers are full/, { wal_buffers_full => 200 });
found('checkpoints by WAL', qr/^silent: WAL starts checkpoints/, { checkpoints_requested => 2, wal_position => 1e12 });
found('a twentieth of the time in syncs', qr/^commit_delay/, { sync_s => 5 });
found('more', qr/^silent: checkpoints keep the disk/, { sync_s => 5.1 });

$rule = 'commit_siblings';
%settings = (commit_delay => 100, commit_siblings => 7);
found('too few to be waited for', 'commit_siblings|6|0.0750|low');
told('advises|7|reload|commit_fraction=0.6 flush_ms=6 sessions_committing=6');
found('6.9 of them', 'commit_siblings|6|0.0863|low', { WAL_WRITE_LOCK => 490 });
found('enough', 'satisfied: 6.0 sessions commit at a time, for 60 % of the sessions\' time', {}, { commit_siblings => 6 });
found('two', 'commit_siblings|2|0.0357|low', { sessions => 700, WAL_SYNC => 50, WAL_WRITE_LOCK => 70 });
found('fewer than two', qr/^satisfied: 2.0 sessions/, { sessions => 700, WAL_SYNC => 50, WAL_WRITE_LOCK => 69 });
found('little flushing', qr/^satisfied: /, { sessions => 700, WAL_SYNC => 49, WAL_WRITE_LOCK => 71 });
found('little of the time', qr/^satisfied: /, { WAL_SYNC => 50, WAL_WRITE_LOCK => 119 });
found('no delay', 'satisfied: without commit_delay it has no effect', {}, { commit_delay => 0 });

# 0.75 of the time in which files are made; segments have 16 MB
$rule = 'wal_segment_size';
%settings = ();
%evidence = (s => 100, sessions => 1000, WAL_INIT => 27, wal_position => 1600 * 2**20, checkpoints_timed => 1, checkpoints_requested => 1);
found('new files all the time', qr/^wal_segment_size\|a larger min_wal_size.*\|0\.0203\|low$/);
told('advises|16MB|offline|segments_per_s=1 wal_init_fraction=0.027');
found('not even one a second', qr/^satisfied: 1.00 segments of 16 MB begin a second/, { wal_position => 1599 * 2**20 });
found('which are made quickly', qr/^satisfied: 1.00 segments.*2.6 %/, { WAL_INIT => 26 });
found('before there are old ones', qr/^silent: two checkpoints are needed .*; there were 1$/, { checkpoints_timed => 0 });

### Locks

# 18 waits, of which half would be saved; from 19 on the server counts locks that found no slot
$rule = 'max_locks_per_transaction';
%settings = (max_locks_per_transaction => 64);
%evidence = (s => 100, sessions => 1000, LOCK_MANAGER => 40, fast_path_exceeded => 10_000);
SKIP:
{
    if ($db->sql('SELECT pgscale_internal.major()') < 18)
    {
        found('slots that are fixed', 'silent: a session has 16 fast-path slots whatever the setting; from 18 on the setting is their number');
        skip 'slots are fixed', 9;
    }
    found('a hundred locks a second', 'max_locks_per_transaction|256|0.0200|medium');
    told('advises|64|restart|fast_path_exceeded_per_s=100 lock_manager_fraction=0.04');
    found('fewer', 'satisfied: waits for the lock table\'s own locks take 4.0 % of the sessions\' time, but only 99.9 locks a second found no fast-path slot',
        { fast_path_exceeded => 9_990 });
    found('where they are not counted', 'max_locks_per_transaction|256|0.0200|low', { fast_path_exceeded => -1 });
    found('fewer waits', 'satisfied: waits for the lock table\'s own locks take 3.9 % of the sessions\' time', { LOCK_MANAGER => 39 });
    found('of 19\'s default', qr/^max_locks_per_transaction\|512\|/, {}, { max_locks_per_transaction => 128 });
    found('up to a power of two', qr/^max_locks_per_transaction\|1024\|/, {}, { max_locks_per_transaction => 129 });
    found('at most', qr/^max_locks_per_transaction\|16384\|/, {}, { max_locks_per_transaction => 16_383 });
    found('as many as there can be', 'satisfied: a session has 16384 fast-path slots, and cannot have more', {}, { max_locks_per_transaction => 16_384 });
}

### Buffers

# A quarter of the pages, 30,000 a second, which cost 0.08 and 3,000,000 * 2 us; half of which it would win.
# Pages for 3,010 allocations a second in 200 ms, twice: 1,204
$rule = 'bgwriter_lru_maxpages';
%settings = (bgwriter_lru_maxpages => 100, bgwriter_delay => '200ms', bgwriter_lru_multiplier => 2);
%evidence = of_mix(backend_buffers => 3e6, bgwriter_buffers => 5e6, checkpoint_buffers => 4e6, buffers_allocated => 301_000, bgwriter_stopped => 50);
found('a writer that stops', 'bgwriter_lru_maxpages|1300|0.0430|medium');
told('advises|100|reload|allocations_per_s=3010 backend_buffers=3000000 bgwriter_buffers=5000000 bgwriter_stopped=50 checkpoint_buffers=4000000 data_write_fraction=0.08');
found('at most', qr/^bgwriter_lru_maxpages\|1073741823\|/, { buffers_allocated => 1e15 });
found('in one of ten rounds only', qr/^satisfied: sessions write 25 % .* does not stop/, { bgwriter_stopped => 49 });
found('enough pages', 'satisfied: the background writer may write as much as is needed', { buffers_allocated => 20_000 });
found('less than a hundred', 'bgwriter_lru_maxpages|1000|0.0430|medium', { buffers_allocated => 20_000 }, { bgwriter_lru_maxpages => 99 });
found('rarely at work: half as many rounds', "bgwriter_lru_maxpages|1300|0.0430|medium\nbgwriter_delay|200ms|0.0430|medium", { bgwriter_stopped => 25 }, { bgwriter_delay => '400ms' });
found('nothing else to be had', "bgwriter_delay|200ms|0.0430|medium", { bgwriter_stopped => 25, buffers_allocated => 20_000 }, { bgwriter_delay => '400ms' });
found('a short delay', 'bgwriter_lru_maxpages|1000|0.0430|medium', { bgwriter_stopped => 100 }, { bgwriter_delay => '100ms' });
found('all of it', "bgwriter_lru_maxpages|1300|0.0430|medium\nbgwriter_delay|200ms|0.0426|medium\nbgwriter_lru_multiplier|2|0.0421|medium",
    {}, { bgwriter_lru_maxpages => 99, bgwriter_delay => '201ms', bgwriter_lru_multiplier => '1.9' });
found('as good as off', 'bgwriter_lru_maxpages|1300|0.0860|high', { bgwriter_stopped => 0 }, { bgwriter_lru_maxpages => 25 });
found('just not', qr/^satisfied: .* does not stop/, { bgwriter_stopped => 0 }, { bgwriter_lru_maxpages => 26 });
found('with half a thought for what comes', "bgwriter_lru_maxpages|1300|0.0430|medium\nbgwriter_lru_multiplier|2|0.0421|medium", {}, { bgwriter_lru_multiplier => '0.5' });
found('and with less', "bgwriter_lru_maxpages|1300|0.0860|high\nbgwriter_lru_multiplier|2|0.0843|high", {}, { bgwriter_lru_multiplier => '0.49' });
found('a fifth of the pages, ten a second', qr/^bgwriter_lru_maxpages\|1300\|0\.0400/, { backend_buffers => 1000, bgwriter_buffers => 3000, checkpoint_buffers => 1000 });
found('a fifth, and less a second', 'satisfied: sessions wrote 20 % of the pages themselves, 10.0 a second', { backend_buffers => 999, bgwriter_buffers => 3000, checkpoint_buffers => 900 });
found('less than a fifth', qr/^satisfied: sessions wrote 20 %/, { backend_buffers => 1000, bgwriter_buffers => 3001, checkpoint_buffers => 1000 });
found('not counted', qr/^satisfied/, { backend_buffers => -1 });
found('a bulk load, where that is counted', qr/^satisfied: sessions' own writes are bulk load/, { backend_ring_buffers => 3e6 + 1 });
found('as many others', qr/^bgwriter/, { backend_ring_buffers => 3e6 });
my %grows = (backend_ring_buffers => -1, DATA_READ => 20, DATA_WRITE => 80, DATA_EXTEND => 60);
found('where it is not', qr/^satisfied: sessions' own writes are bulk load/, { %grows, LOCK_EXTEND => 41 });
found('as much as they read and write', qr/^bgwriter/, { %grows, LOCK_EXTEND => 40 });
found('what costs too little', "satisfied: sessions' own writes cost 4.0 % of their time", { DATA_WRITE => 33.9 });
found('just enough', qr/^bgwriter_lru_maxpages\|1300\|0\.0201/, { DATA_WRITE => 34.1 });
found('waits for WAL without a commit', qr/^bgwriter_lru_maxpages\|1300\|0\.1430/, {}, { synchronous_commit => 'off' });
found('which tell of full buffers', qr/^bgwriter_lru_maxpages\|1300\|0\.0430/, { wal_buffers_full => 150 }, { synchronous_commit => 'off' });
found('no more than all of the time', qr/^bgwriter_lru_maxpages\|1300\|1\.0000\|high/, { backend_buffers => 6e8 }, { bgwriter_lru_maxpages => 25 });

# 800,000 misses of 9,800,000: 0.25 in waits and 800,000 * 2 us
$rule = 'shared_buffers';
%settings = ();
%evidence = of_mix(blocks_read => 1e6, blocks_hit => 9e6, backend_ring_reads => 2e5, sweep_ticks => 700, buffers_allocated => 350);
found('of a server that has just started', qr/^satisfied: \d+ % of shared buffers hold nothing yet/);
$db->sql(q{CREATE TABLE filling (i int, filler char(500)); INSERT INTO filling SELECT i, i FROM generate_series(1, 70000) i});
# a quarter of 800 MB, and not 16 times 16
found('what the kernel\'s cache has as well', 'shared_buffers|208MB|0.2013|high');
told('advises|16MB|restart|data_read_fraction=0.11 data_write_fraction=0.08 memory_bytes=838860800 miss_fraction=0.0816 misses_per_s=8000 read_us=110 sweep_ticks_per_allocation=2');
SKIP:
{
    # it notices a buffer that is beyond these
    skip 'a server with assertions cannot be made to believe that it has fewer buffers', 2 if $db->sql('SHOW debug_assertions') eq 'on';
    found('sixteen times as much', qr/^shared_buffers\|160MB\|0.2013/, {}, { shared_buffers => '10MB' });
    found('128 MB at least', qr/^shared_buffers\|128MB\|0.2013/, {}, { shared_buffers => '4MB' });
}
# log2(100 / 16) / 3
memory_is(400);
found('a smaller step', 'shared_buffers|112MB|0.1774|high');
memory_is(800);
# 550,000 misses: 0.2511
found('reads of 200 us', 'shared_buffers|208MB|0.2009|high', { blocks_read => 5.5e5, backend_ring_reads => 0 });
found('slower ones', 'shared_buffers|208MB|0.1004|low', { blocks_read => 5.49e5, backend_ring_reads => 0 });
# where rings are not counted: what needs a buffer that is allocated
found('800,000 of the reads allocate a buffer', 'shared_buffers|208MB|0.2013|high', { backend_ring_reads => -1, buffers_allocated => 8e5 });
found('and no more than there are, where tables grow', 'shared_buffers|208MB|0.2016|high', { backend_ring_reads => -1, buffers_allocated => 2e6 });
found('a fiftieth that misses', qr/^shared_buffers/, { blocks_hit => 39_200_000 });
found('less than that', 'satisfied: 2.00 % of the requested pages were not in shared buffers', { blocks_hit => 39_201_000 });
found('bulk load', qr/^satisfied: reads and writes are bulk load/, { backend_ring_buffers => 1 });
found('99 pages swapped a second', qr/^shared_buffers/, { swapped => 9_999 });
found('a hundred', qr/^silent: the machine swaps/, { swapped => 10_000 });
found('a writer that is off', qr/^silent: the background writer does next to nothing/, {}, { bgwriter_lru_maxpages => 0 });
found('which costs nothing', qr/^shared_buffers/, { DATA_WRITE => 19 }, { bgwriter_lru_maxpages => 0 });
found('misses that cost too little', 'satisfied: misses cost 2.5 % of the sessions\' time', { DATA_READ => 10, DATA_WRITE => 5, BUFFER_IO => 4, BUFFER_MAPPING => 4 });
found('just enough', qr/^shared_buffers\|208MB\|0\.0205/, { DATA_READ => 10, DATA_WRITE => 5, BUFFER_IO => 4, BUFFER_MAPPING => 5 });
memory_is(96);
found('a quarter that is half as much again: 0.2516 * 0.8 * log2(1.5) / 3', 'shared_buffers|32MB|0.0392|high');
memory_is(95);
found('that is less', 'satisfied: shared buffers are about a quarter of the memory, or more');
memory_is(800);

### Reads, from 18 on

my $major = int($db->sql('SHOW server_version_num') / 10000);
SKIP:
{
    %settings = ();
    %evidence = of_mix(io_queue_s => 100);
    $rule = 'io_workers';
    if ($major < 18)
    {
        found('there are none', 'silent: there are io workers from 18 on');
        $rule = 'io_method';
        found('nor other methods', 'silent: it can be set from 18 on');
        skip 'there are no io workers', 13;
    }
    # a tenth of the time, half of which it would win
    my $most = $major > 18 ? 'io_max_workers' : 'io_workers';
    %settings = ($most => 8);
    found('all of them are busy', "$most|16|0.0500|medium");
    told('advises|8|reload|data_read_fraction=0.11 queued_fraction=0.1 sessions_queued=1 workers=8');
    found('for 4 % of the time', "$most|16|0.0200|medium", { io_queue_s => 40 });
    found('for less', q{satisfied: waits for reads while all of 8 io workers are busy take 3.9 % of the sessions' time}, { io_queue_s => 39 });
    found('no more than there may be', "$most|32|0.0500|medium", {}, { $most => 17 });
    found('which there are', 'satisfied: there are 32 io workers, the maximum', {}, { $most => 32 });
    found('another method', 'satisfied: io_method is sync, which has no io workers', {}, { io_method => 'sync' });

    $rule = 'io_method';
    %settings = (io_method => 'sync');
    # half of the pages come several in one read, half of whose time it would win
    %evidence = of_mix(blocks_read => 1000, reads => 500);
    found('reads that can be ahead', 'io_method|worker|0.0275|low');
    told('advises|sync|restart|combined_fraction=0.5 data_read_fraction=0.11 queue_lock_fraction=0 reads_per_s=5');
    found('too few of them', q{satisfied: reading takes 11.0 % of the sessions' time, and 50 % of the pages come several in one read, which can be read ahead}, { reads => 501 });
    found('little reading', qr/^satisfied: reading takes 7.9 %/, { DATA_READ => 79 });
    %settings = ();
    %evidence = of_mix(AIO_QUEUE => 21);
    my $forbidden = -e '/proc/sys/kernel/io_uring_disabled' && slurp_file('/proc/sys/kernel/io_uring_disabled') !~ /^0/;
    found('waits for the queue',
        $db->sql(q{SELECT 'io_uring' = ANY (enumvals) FROM pg_settings WHERE name = 'io_method'}) eq 'f' ? 'silent: this server is built without io_uring'
        : $forbidden ? qr/^silent: the kernel forbids io_uring/ : 'io_method|io_uring|0.0210|medium');
    found('short ones', qr/^satisfied: waits for the queue of the io workers take 1\.\d %/, { AIO_QUEUE => 19 });
}

$db->quit;
$node->stop('immediate');
done_testing();
