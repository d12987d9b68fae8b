# Kernel writeback from its being switched on to its end: what it sees, asks for and says, when it stands down, and that
# nobody has to wait for it. What the kernel really has dirty is asked from outside.
use strict;
use warnings;
use POSIX ();
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $cap = 1024 * 1024;
my $page = POSIX::sysconf(&POSIX::_SC_PAGESIZE);
my $node = pgscale_node('main', init => [ allows_streaming => 1 ], conf => <<'EOC');
shared_buffers = 8MB
max_worker_processes = 16
checkpoint_timeout = 1h
max_wal_size = 2GB
fsync = on
synchronous_commit = off
bgwriter_lru_maxpages = 0
checkpoint_flush_after = 0
bgwriter_flush_after = 0
backend_flush_after = 0
max_parallel_maintenance_workers = 0
pgscale.writeback_cap = 1MB
pgscale.writeback_adaptive = off
EOC
my $db = session($node);
$db->sql("SET statement_timeout = '${PostgreSQL::Test::Utils::timeout_default}s'");
my $health = q{SELECT enabled, state, reason, action FROM pgscale.health WHERE feature = 'writeback'};
my $stopped;    # a process that is stopped now

# A server without room for it, which takes ten seconds to say so: it is looked at now and then, and asked at the end.
my $crowded = pgscale_node('crowded', conf => "max_worker_processes = 2\npgscale.writeback = on");
my $in_crowd = session($crowded);

END { kill 'CONT', $stopped if $stopped }

sub seen { my $columns = shift; return $db->sql("SELECT $columns FROM pgscale.writeback_stats"); }

sub worker_pid { return $db->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'pgscale writeback'}); }

# Waits until more was seen to be written, and asked for, from now on; a test. The load goes on by itself.
sub goes_on
{
    my ($name, $session) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    $session //= $db;
    my ($written, $requests) = split /\|/, $session->sql('SELECT written_bytes, requests FROM pgscale.writeback_stats');

    return $session->poll_ok("SELECT written_bytes > $written + 2000000 AND requests > $requests + 10 FROM pgscale.writeback_stats",
        $name) || !diag $session->sql('SELECT row_to_json(w) FROM pgscale.writeback_stats w');
}

# What the kernel has dirty of files, in bytes; undef if it does not tell.
my $CACHESTAT = 451;
sub kernel_dirty
{
    my $sum = 0;

    for my $file (@_)
    {
        my ($range, $stat) = (pack('QQ', 0, 0), "\0" x 40);

        open my $fh, '<:raw', $file or next;
        return if syscall($CACHESTAT, fileno $fh, $range, $stat, 0) != 0;
        $sum += (unpack 'Q5', $stat)[1] * 4096;
        close $fh;
    }
    return $sum;
}

# But for those of initdb, which does not flush here
sub data_files { return grep { m{/(\d+)[^/]*$} && $1 >= 16384 } glob $node->data_dir . '/base/*/[0-9]*'; }

# A file as a relation has it, that no buffer knows of
sub write_file
{
    my ($path, $mb) = @_;

    open my $fh, '>:raw', $path or die "$path: $!";
    print $fh 'x' x 8192 for 1 .. $mb * 128;
    close $fh or die $!;
    return $path;
}

# so many pages that some of them are written
sub fill { my $table = shift; return "INSERT INTO $table SELECT i, '' FROM generate_series(1, 4000) i"; }

sub try_ok
{
    my ($command, $name) = @_;
    my ($state, $text) = $db->try($command);
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return is($state, '00000', $name // ($command =~ s/ LOCATION.*//r)) || !diag $text;
}

# Off by default: nothing happens, whatever the load.
my $zeros = 'written_bytes + found_bytes + unseen_bytes + requests + requested_bytes + taken_bytes + request_ms + backed_off + rounds
    + errors';
$db->churn_table(40000);
is(seen("state, reason, $zeros, peak_dirty_bytes"), 'off|it is switched off|0|0', 'it is off by default, and does nothing');
is(seen('num_nonnulls(cluster_dirty_bytes, cap_bytes, skipped_bytes, redirty_fraction, server_bytes_per_s, disk_bytes_per_s,
    window_bytes)'), 0, 'and knows nothing');
is($db->sql($health), 'f|off|it is switched off|set pgscale.writeback to on and reload', 'health says so');
is(worker_pid(), '', 'it has no process');
my $cachestat_works = defined kernel_dirty($node->data_dir . '/PG_VERSION');

# On; what was written before is not its concern.
$db->sql('CHECKPOINT');
$db->set('pgscale.writeback', 'on');
$db->poll_ok(q{SELECT state IN ('watching', 'capping'), cap_bytes, redirty_fraction IS NULL FROM pgscale.writeback_stats},
    'switched on, it works', "t|$cap|t");
my $pid = worker_pid();
like($pid, qr/^\d+$/, 'in one process');
my @churning = churn($node, 3);
goes_on('it sees what backends write, and asks for it');
$db->poll_ok(q{SELECT state FROM pgscale.writeback_stats}, 'it says so', 'capping');
like(seen('reason'), qr/^(keeps the data|over the cap|asks for less)/, 'and how');
$db->poll_ok(q{SELECT enabled, state IN ('idle', 'working') FROM pgscale.health WHERE feature = 'writeback'}, 'so does health', 't|t');
$db->poll_ok('SELECT redirty_fraction BETWEEN 0 AND 1 AND server_bytes_per_s > 0 AND window_bytes > 0
    AND disk_bytes_per_s > 0 FROM pgscale.writeback_stats', 'rates and shares are measured');
# as much a second as was written meanwhile
until_ok(sub {
    my @at = map { my $n = $_; until_true(sub { seen("rounds >= $n") eq 't' }); [ split /\|/, seen('written_bytes + found_bytes, server_bytes_per_s, extract(epoch FROM clock_timestamp())') ] }
      map { $_ + seen('rounds') } 0, 30;
    my $rate = ($at[1][0] - $at[0][0]) / ($at[1][2] - $at[0][2]);
    return $rate > 0 && $at[1][1] > $rate / 3 && $at[1][1] < $rate * 3;
}, 'the server\'s rate is that of its writes') or diag seen('row_to_json(writeback_stats)');
$db->churn_end(@churning);
$db->poll_ok("SELECT cluster_dirty_bytes <= $cap FROM pgscale.writeback_stats", 'at the end of the load it is under the cap');

# Of the whole machine, as the kernel tells others
sub vmstat { my $name = shift; return slurp_file('/proc/vmstat') =~ /^$name (\d+)$/m ? $1 * $page : ''; }
until_ok(sub { seen('background_threshold_bytes, threshold_bytes') eq join '|', map { vmstat("nr_dirty$_") } '_background_threshold', '_threshold' },
    'thresholds are the kernel\'s');
SKIP:
{
    skip 'the kernel does not tell', 1 if vmstat('nr_dirty') eq '';
    until_ok(sub {
        my @is = split /\|/, seen('dirty_bytes, writeback_bytes');
        my @told = map { vmstat("nr_$_") } 'dirty', 'writeback';
        return !grep { abs($is[$_] - $told[$_]) > $told[$_] / 10 + 100 * $page } 0, 1;
    }, 'so is what is dirty, and what is being written') or diag seen('row_to_json(writeback_stats)');
}

# What is copied goes through a few buffers only.
my $before = seen('requested_bytes');
$db->sql('CREATE TABLE copied AS SELECT i, repeat($$x$$, 1000) FROM generate_series(1, 30000) i');
my $size = $db->sql(q{SELECT pg_relation_size('copied')});
$db->poll_ok("SELECT requested_bytes > $before AND cluster_dirty_bytes <= $cap FROM pgscale.writeback_stats",
    'it sees that something is copied, and asks for it');
SKIP:
{
    skip 'the kernel does not tell what is dirty', 2 unless $cachestat_works;

    # by itself the kernel would not before 30 s
    local $PostgreSQL::Test::Utils::timeout_default = 20;
    my $file = $node->data_dir . '/' . $db->sql(q{SELECT pg_relation_filepath('copied')});
    until_ok(sub { kernel_dirty($file) < $size / 4 }, 'the kernel has begun with what was copied')
      or diag kernel_dirty($file), ' ', seen('row_to_json(writeback_stats)');
    until_ok(sub { kernel_dirty(data_files()) < 16 * $cap }, 'and has little of all that is the cluster\'s')
      or diag kernel_dirty(data_files());
}
is(seen("requested_bytes <= written_bytes + found_bytes, requested_bytes >= 8192 * 10, requested_bytes > taken_bytes,
    least(taken_bytes, request_ms, backed_off) >= 0, request_ms > 0, cpu_ms > 0, rounds > 0, errors, unseen_bytes,
    peak_dirty_bytes >= cluster_dirty_bytes, skipped_bytes"), 't|t|t|t|t|t|t|0|0|t|0', 'its counts fit together')
  or diag seen('row_to_json(writeback_stats)');

# Files that no buffer knows of
SKIP:
{
    skip 'the kernel does not tell what is dirty', 3 unless $cachestat_works;

    my $tablespace = PostgreSQL::Test::Utils::tempdir();
    $db->sql("CREATE TABLESPACE elsewhere LOCATION '$tablespace'");
    $db->sql('CREATE TABLE there (i int) TABLESPACE elsewhere');
    my ($base, $there) = map { ($node->data_dir . '/' . $db->sql("SELECT pg_relation_filepath('$_')")) =~ s/\d+$//r } 'copied', 'there';
    my ($found, $asked) = split /\|/, seen('found_bytes, requested_bytes');
    my (@files, @others);
    for my $place ($base, $there)
    {
        # left alone: of a temporary relation, and of none
        push @others, write_file("${place}t3_99999999", 20), write_file("${place}x99999999", 20);
        push @files, write_file("$place$_", 3) for '99999999', '99999998_fsm', '99999997.1';
    }
    my $mb = 1024 * 1024;
    $db->poll_ok("SELECT found_bytes >= $found + 18 * $mb AND requested_bytes >= $asked + 17 * $mb FROM pgscale.writeback_stats",
        'files are found by themselves, and asked for')
      or diag seen('row_to_json(writeback_stats)');
    is(seen("found_bytes < $found + 38 * $mb"), 't', 'but not those that are no relation\'s, or a temporary one\'s');
    until_ok(sub { kernel_dirty(@files) <= $cap }, 'the kernel has begun with them');
    push @files, @others;
    unlink @files;
    $db->sql('DROP TABLE there');
    $db->sql('DROP TABLESPACE elsewhere');
}

# What wants files gone gets them gone.
sub open_files { return map { readlink($_) // '' } glob "/proc/$pid/fd/*"; }
my $open = () = open_files();
@churning = churn($node, 2);
for my $round (1 .. ($ENV{PGSCALE_TEST_FULL} ? 2 : 1))
{
    try_ok('CREATE TABLE t (i int, filler char(1000))');
    try_ok(fill('t'), 'filled');
    try_ok('CREATE INDEX ON t (i)');
    try_ok('TRUNCATE t');
    try_ok(fill('t'), 'filled');
    try_ok('DELETE FROM t WHERE i > 10');
    try_ok('VACUUM t');
    try_ok(fill('t'), 'filled');
    try_ok('VACUUM FULL t');
    try_ok('BEGIN; ' . fill('t') . '; TRUNCATE t; ' . fill('t') . '; ROLLBACK', 'a transaction that is undone');
    is($db->sql('SELECT count(*), count(DISTINCT i) FROM t'), '4010|4000', 'the data is right');
    try_ok('DROP TABLE t');
}
my $tablespace = PostgreSQL::Test::Utils::tempdir();
for my $strategy ('wal_log', 'file_copy')
{
    try_ok("CREATE TABLESPACE elsewhere LOCATION '$tablespace'");
    try_ok("CREATE DATABASE other STRATEGY $strategy");
    my $there = session($node, dbname => 'other');
    $there->sql('CREATE TABLE t (i int, filler char(1000))');
    $there->sql(fill('t'));
    $there->quit;
    try_ok('ALTER DATABASE other SET TABLESPACE elsewhere') if $strategy eq 'wal_log';
    goes_on('another database');
    try_ok('DROP DATABASE other');
    try_ok('DROP TABLESPACE elsewhere');
}
goes_on('it goes on');
$db->churn_end(@churning);
try_ok('CHECKPOINT');
until_ok(sub { !grep { / \(deleted\)$/ } open_files() }, 'no file that is gone is open') or diag join "\n", open_files();
until_ok(sub { $open + 1 >= (() = open_files()) }, 'nor any other') or diag join "\n", open_files();
is(seen('errors'), 0, 'no errors');
is(worker_pid(), $pid, 'it is the same process');

$in_crowd->sql($health);

# Reset
isnt(seen($zeros), 0, 'there are counts');
my $now = $db->sql('SELECT clock_timestamp()');
# it goes on meanwhile, and may find something
until_ok(sub { $db->sql('SELECT pgscale.reset($$writeback$$)'); seen("written_bytes + found_bytes + requests + errors < 1000") eq 't' },
    'reset: there are none');
is(seen("stats_reset >= '$now', cap_bytes"), "t|$cap", 'and the rest stays');
until_ok(sub { $db->sql('SELECT pgscale.reset($$writeback$$)'); seen("peak_dirty_bytes <= $cap") eq 't' }, 'nor is there a peak');

# Pages that are written again and again: it is better to leave the kernel alone.
$db->sql('CREATE TABLE hot (i int, filler char(1000)) WITH (fillfactor = 15)');
$db->sql(q{INSERT INTO hot SELECT i, '' FROM generate_series(1, 400) i});
$db->sql('VACUUM hot');
sub looks { my $rounds = seen('rounds'); return until_true(sub { seen("rounds >= $rounds + 3") eq 't' }); }
# slow enough for each write to be seen
sub rewrite
{
    my $rounds = seen('rounds');

    $db->sql('UPDATE hot SET i = i + 1');
    until_true(sub { seen("rounds >= $rounds + 3") eq 't' });
    $db->sql('CHECKPOINT');
    until_true(sub { seen("rounds >= $rounds + 6") eq 't' });
    return;
}
sub again { $db->set('pgscale.writeback', $_), $db->poll_ok(q{SELECT state = 'off' FROM pgscale.writeback_stats}, "switched $_",
    $_ eq 'off' ? 't' : 'f') for 'off', 'on'; return; }
again();    # with nothing remembered
until_ok(sub { rewrite(); seen("redirty_fraction > 0.8") eq 't' }, 'pages are written again and again')
  or diag seen('row_to_json(writeback_stats)');
$db->set('pgscale.writeback_adaptive', 'on');
$db->poll_ok('SELECT state FROM pgscale.writeback_stats', 'it stands down', 'standing down');
like(seen('reason'), qr/^\d+ % of the writes hit a page again within 30 s, and the kernel saves these by waiting$/, 'and says why');
is($db->sql($health =~ s/reason/reason ~ 'hit a page again'/r), 't|standing down|t|raise shared_buffers, so that pages which change often stay in them',
    'so does health');
$db->set(backend_flush_after => '512kB');
$db->poll_ok(q{SELECT action ~ '; set backend_flush_after to 0 and reload: it makes the kernel write pages at once' FROM pgscale.health WHERE feature = 'writeback'},
    'which asks for what would have the kernel write at once, too');
is($db->sql(q{SET backend_flush_after = 0; SELECT action ~ 'set backend_flush_after to 0' FROM pgscale.health WHERE feature = 'writeback'}), 't',
    'whatever the asking session has set it to');
$db->sql('RESET backend_flush_after');
$db->set('backend_flush_after');
is($db->sql(q{SELECT string_agg(rule, ' ' ORDER BY rule) FROM pgscale.advice_rules WHERE verdict = 'silent' AND reason ~ '^pgscale.writeback is on and claims'}),
    'backend_flush_after checkpoint_flush_after vm.dirty_background_bytes', 'and no rule advises that');
my $requests = seen('requests');
my $written = seen('written_bytes');
until_ok(sub { rewrite(); seen("written_bytes > $written + 4000000") eq 't' }, 'the load goes on');
is(seen('requests, state'), "$requests|standing down", 'and it asks for nothing');
unlike(seen('reason'), qr/-/, 'with a number that makes sense');
# When there are fewer it comes back, and only the load is needed for that.
until_ok(sub { $db->sql(fill('copied')); looks(); seen('redirty_fraction < 0.2') eq 't' }, 'other pages are written')
  or diag seen('row_to_json(writeback_stats)');
$db->poll_ok(q{SELECT state <> 'standing down' FROM pgscale.writeback_stats}, 'it comes back by itself');
is(seen('redirty_fraction BETWEEN 0.01 AND 0.3 OR redirty_fraction IS NULL'), 't', 'since there are fewer');
$db->poll_ok(q{SELECT state IN ('idle', 'working') FROM pgscale.health WHERE feature = 'writeback'}, 'health says so');
$db->set('pgscale.writeback_adaptive', 'off');
until_ok(sub { $db->sql(fill('copied')); seen("requests > $requests") eq 't' }, 'and asks again') or diag seen('row_to_json(writeback_stats)');
is(seen('skipped_bytes'), 0, 'and leaves nothing alone');

# Where it is but a part of what is written, that part is left alone as far as the cap allows, and the rest is not.
sub mixed
{
    rewrite();
    my $rounds = seen('rounds');
    $db->sql('UPDATE hot SET i = i + 1');
    $db->sql(fill('cold')) for 1 .. 8;    # more than there are buffers
    until_true(sub { seen("rounds >= $rounds + 3") eq 't' });
    return;
}
$db->set('pgscale.writeback_cap', '16MB');
again();
$db->sql('CREATE TABLE cold (i int, filler char(1000))');
until_ok(sub { mixed(); seen('redirty_fraction BETWEEN 0.05 AND 0.25') eq 't' }, 'some pages are written again')
  or diag seen('row_to_json(writeback_stats)');
$db->set('pgscale.writeback_adaptive', 'on');
until_ok(sub { mixed(); seen("skipped_bytes > 0 AND state <> 'standing down'") eq 't' }, 'they are left alone')
  or diag seen('row_to_json(writeback_stats)');
$requests = seen('requests');
until_ok(sub { $db->sql(fill('cold')); seen("requests > $requests") eq 't' }, 'and the others are not');
$db->set('pgscale.writeback_adaptive', 'off');
$db->poll_ok('SELECT skipped_bytes FROM pgscale.writeback_stats', 'none is, if it is to work all the time', 0);

# Below half the cap it waits: until it is on disk without being asked for, as by a checkpoint, or dropped before it is written.
SKIP:
{
    skip 'the kernel does not tell what is dirty', 2 unless $cachestat_works;

    $db->set('pgscale.writeback_cap', '256MB');
    $db->poll_ok('SELECT cap_bytes >> 20 FROM pgscale.writeback_stats', 'a large cap', 256);
    my $taken = seen('taken_bytes');
    $db->sql(fill('cold')) for 1 .. 3;
    $db->sql('CHECKPOINT');
    $db->poll_ok("SELECT cluster_dirty_bytes = 0 AND taken_bytes > $taken + 4000000 FROM pgscale.writeback_stats",
        'what a checkpoint has had written does not wait any more') or diag seen('row_to_json(writeback_stats)');
}
looks();
$written = seen('written_bytes');
$db->sql('CREATE TABLE dropped (filler char(1000))');
$db->sql(q{INSERT INTO dropped SELECT '' FROM generate_series(1, 1000)});
looks();
$db->sql('DROP TABLE dropped');
looks();
is(seen("written_bytes < $written + 70 * 8192"), 't', 'what was dropped was not written') or diag seen("written_bytes - $written");
$db->set('pgscale.writeback_cap', '1MB');

# Nobody waits for a disk.
$db->set('fsync', 'off');
$db->poll_ok('SELECT state, reason FROM pgscale.writeback_stats', 'without fsync it stands down',
    'standing down|fsync is off: no checkpoint waits for the disk');
is($db->sql($health), 't|standing down|fsync is off: no checkpoint waits for the disk|', 'health says so');
my $changed = seen('state_change');
($requests, $written) = split /\|/, seen('requests, written_bytes');
until_ok(sub { $db->sql(fill('copied')); seen("written_bytes > $written + 4000000") eq 't' }, 'a load');
is(seen('requests, state_change'), "$requests|$changed", 'and it asks for nothing');
$db->set('fsync');
$db->poll_ok("SELECT state <> 'standing down' AND requests > $requests AND state_change > '$changed' FROM pgscale.writeback_stats",
    'with fsync it goes on');

# Ended, and stopped
@churning = churn($node, 2);
goes_on('under load');
$written = seen('written_bytes');
$pid = worker_pid();
is($db->sql("SELECT pg_terminate_backend($pid)"), 't', 'pg_terminate_backend');
$db->poll_ok("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pgscale writeback' AND pid <> $pid", 'it is started again', 1);
goes_on('and works');
is(seen("written_bytes > $written, errors"), 't|0', 'with the counts that it had');
$pid = worker_pid();
kill 'STOP', $pid or die $!;
$stopped = $pid;
$db->poll_ok(qq{SELECT enabled, state, reason, action ~ 'stopped' FROM pgscale.health WHERE feature = 'writeback'},
    'stopped: health says so', "t|broken|its background worker, process $pid, is not responding|t");
is(seen('count(*) OVER ()'), 1, 'the view answers');
kill 'CONT', $pid;
undef $stopped;
$db->poll_ok(q{SELECT state IN ('idle', 'working') FROM pgscale.health WHERE feature = 'writeback'}, 'it goes on, and health says that, too');

# Off, while the load goes on
sub context_bytes
{
    my $what = shift;
    my $log = -s $node->logfile;
    my $bytes;

    $db->sql("SELECT pg_log_backend_memory_contexts($pid)");
    until_true(sub { substr(slurp_file($node->logfile), $log) =~ /Grand total/ }) or return -1;
    my $text = substr(slurp_file($node->logfile), $log);
    $bytes += $1 while $text =~ /; pgscale $what: (\d+) total/g;
    return $bytes // 0;
}
my $memory = context_bytes('writeback watch');
cmp_ok($memory, '>', 8_000_000, 'while on it has memory');
$db->set('pgscale.writeback', 'off');
$db->poll_ok('SELECT state, reason FROM pgscale.writeback_stats', 'switched off, it stops', 'off|it is switched off');
my $counts = 'requests, requested_bytes, written_bytes, found_bytes, rounds';
$before = seen($counts);
my $n = $db->sql('SELECT sum(n) FROM churned');
$db->poll_ok("SELECT sum(n) > $n + 1000 FROM churned", 'the load goes on');
is(seen($counts), $before, 'and it does nothing more');
until_ok(sub { worker_pid() eq '' }, 'its process has ended, and what it had is free');
$db->sql('SELECT pgscale.reset($$writeback$$)');
is(seen("$zeros, peak_dirty_bytes"), '0|0', 'a reset while it is off') or diag seen('row_to_json(writeback_stats)');
$db->set('pgscale.writeback', 'on');
goes_on('on again');
$pid = worker_pid();
is(context_bytes('writeback watch'), $memory, 'its memory is the same however many files it has seen');
$db->churn_end(@churning);
$db->churn_right('the data is right');

# On a standby
my $standby = pgscale_standby($node);
my $there = session($standby);
@churning = churn($node, 2);
goes_on('on a standby it sees and asks for what replay writes', $there);
$there->poll_ok(q{SELECT enabled, state IN ('idle', 'working') FROM pgscale.health WHERE feature = 'writeback'}, 'health says so', 't|t');
$node->stop('immediate');
$_->quit for $db, @churning;
$standby->promote;
$there->poll_ok('SELECT NOT pg_is_in_recovery()', 'promoted');
$there->churn_right('the data is right');
@churning = churn($standby, 2);
goes_on('now under a load of its own it goes on', $there);
$there->churn_end(@churning);
is($there->sql('SELECT errors FROM pgscale.writeback_stats'), 0, 'no errors');
$there->quit;
$standby->stop;

# After a crash, and where the kernel refuses to tell what is dirty
SKIP:
{
    my $path = refuse_cachestat($node);
    skip 'no filter of system calls can be set up here', 1 unless defined $path;

    {
        local $ENV{PATH} = $path;
        $node->start;
    }
    $db = session($node);
    $db->churn_right('after a crash the data is right');
    $pid = worker_pid();
    @churning = churn($node, 2);
    goes_on('without cachestat it sees and asks');
    $db->churn_end(@churning);
    $db->poll_ok("SELECT cluster_dirty_bytes <= $cap, errors FROM pgscale.writeback_stats", 'and keeps to the cap', 't|0');
    $db->quit;
    $node->stop;
}

# Where the kernel or a filter refuses sync_file_range, nothing is asked for or counted, and no session crashes
SKIP:
{
    my $path = refuse_call($node, 'sync_file_range');
    skip 'no filter of system calls can be set up here', 10 unless defined $path;

    for my $errno (POSIX::EPERM, POSIX::ENOSYS)
    {
        local ($ENV{PATH}, $ENV{REFUSE_WITH}) = ($path, $errno);

        $node->start;
        $db = session($node);
        $db->poll_ok($health, "error $errno of sync_file_range: health says so",
            't|broken|the kernel or the container does not let it call sync_file_range, which begins writing|'
              . q{allow the system call sync_file_range, as in the container's seccomp profile, and restart});
        my $seen = seen('rounds');
        @churning = churn($node, 2);
        $db->poll_ok("SELECT rounds > $seen + 40 AND cluster_dirty_bytes > $cap FROM pgscale.writeback_stats", "error $errno: it sees what waits");
        $db->churn_end(@churning);
        is(seen('requests, requested_bytes, errors'), '0|0|0', "error $errno: nothing counts as requested");
        is(($db->try(q{SELECT pgscale.os_cache_flush('churn')}))[0], '0A000', "error $errno: os_cache_flush refuses");
        is(($db->try(q{SELECT pgscale.os_cache_flush('churn', true)}))[0], '00000', "error $errno: unless it waits");
        $db->quit;
        $node->stop;
    }
}

# No room for it
$in_crowd->poll_ok(q{SELECT enabled AND state = 'broken' AND reason ~ 'no slot for its background worker; max_worker_processes is 2'
    AND action ~ 'max_worker_processes' FROM pgscale.health WHERE feature = 'writeback'}, 'no room for it: health says so');
is($in_crowd->sql('SELECT state, requests, dirty_bytes >= 0 FROM pgscale.writeback_stats'), 'off|0|t', 'the view answers');
$in_crowd->quit;
$crowded->stop;
unlike(slurp_file($_->logfile), qr/PANIC|TRAP|terminated by signal/, $_->name . ': nothing crashed') for $node, $standby, $crowded;

done_testing();
