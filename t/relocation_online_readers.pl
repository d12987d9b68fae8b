# Online moves and who reads their WAL: a slot that would be lost, a base backup, a logical consumer, a synchronous standby that does
# not confirm, one that replays late, one that is gone. A move waits, says for whom, and goes on by itself; readers get each change
# once.
use strict;
use warnings;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

relocation_node(
    init => [ allows_streaming => 'logical', extra => ['--wal-segsize=1'] ],
    conf => "shared_buffers = 32MB\nmax_wal_size = 16MB\nmin_wal_size = 4MB\nwal_keep_size = 0\nmax_slot_wal_keep_size = 32MB\n"
      . "wal_receiver_status_interval = 1s\nwal_sender_timeout = 0");
$db->sql(q{CREATE TABLE t AS SELECT i AS id, repeat('x', 500) AS v FROM generate_series(1, 80000) i});
my $rows = rows($db, 't');

sub moved_ok
{
    my ($job, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    ended_ok($job, 'done|1', "$name, at the first attempt", 'state, attempts');
    return is(rows($db, 't'), $rows, 'with the same rows');
}

sub move { return (ask("relocate_table('t', '" . elsewhere('t') . "')"))[0]; }

### A slot that nobody reads from

$db->sql(q{SELECT pg_create_physical_replication_slot('forgotten', true)});
$db->sql('SET client_min_messages = notice');
my (undef, $said) = $db->try(q{SELECT pgscale.relocate_table('t', 'fast')});
$db->sql('SET client_min_messages = warning');
my $job = $db->sql('SELECT max(job) FROM pgscale.relocation_jobs');
like($said, qr/moves write \d+ MB of WAL, and will wait: replication slot "forgotten" would be lost/,
    'the request says that a slot is in the way');
job_ok($job, q{state, message ~ '^replication slot "forgotten" would be lost after \d+ more MB of WAL \(max_slot_wal_keep_size\)$',
    copied_bytes > 0}, 'waiting|t|t', 'the move waits before the slot is lost');
$db->poll_ok(qq{SELECT reason LIKE '%job $job waits: replication slot "forgotten" would be lost%' FROM pgscale.health
    WHERE feature = 'relocation'}, 'health says so, too');
$db->sql('CHECKPOINT');
is($db->sql(q{SELECT wal_status, safe_wal_size > 0 FROM pg_replication_slots}), 'extended|t',
    'the slot has its WAL after a checkpoint');
my $copied = of_job($job, 'copied_bytes');
$db->sql(q{SELECT pg_replication_slot_advance('forgotten', pg_current_wal_lsn())});
job_ok($job, "copied_bytes > $copied", 't', 'when the slot has advanced, the move goes on');
$db->sql(q{SELECT pg_drop_replication_slot('forgotten')});
moved_ok($job, 'and ends without it');
$db->set('max_slot_wal_keep_size', -1);

### A base backup and a logical consumer that has stopped are no standbys

my $dir = $node->basedir;
my $backup = IPC::Run::start([ 'pg_basebackup', '-D', "$dir/slow", '-X', 'none', '-r', '32k', '-c', 'fast', '-d', $node->connstr ],
    '>', '/dev/null', '2>', '/dev/null');
$db->poll_ok(q{SELECT count(*) FROM pg_stat_replication WHERE state = 'backup'}, 'a slow base backup', 1);
$db->set('pgscale.relocation_max_lag', 0);
moved_ok(move(), 'a move does not wait for a base backup');
$backup->kill_kill;
$db->poll_ok('SELECT count(*) FROM pg_stat_replication', 'which ends', 0);
$db->sql(q{SELECT pg_create_logical_replication_slot('consumer', 'test_decoding')});
my $consumer = IPC::Run::start([ 'pg_recvlogical', '-d', $node->connstr('postgres'), '-S', 'consumer', '--start', '-f',
    "$dir/stream" ],
    '>', '/dev/null', '2>', '/dev/null');
$db->poll_ok('SELECT count(*), bool_and(flush_lsn IS NOT NULL) FROM pg_stat_replication',
    'a logical consumer, which has confirmed something', '1|t');
kill 'STOP', $db->sql('SELECT pid FROM pg_stat_replication');
moved_ok(move(), 'nor for a consumer');
kill 'CONT', $db->sql('SELECT pid FROM pg_stat_replication');
$consumer->kill_kill;
$db->poll_ok(q{SELECT count(*) FROM pg_replication_slots WHERE active}, 'it is gone', 0);
$db->set('pgscale.relocation_max_lag');

# A consumer gets each change once, of a table that moves with its indexes.
$db->sql('SELECT pg_replication_slot_advance($$consumer$$, pg_current_wal_lsn())');
$db->sql('CREATE TABLE decoded (id int PRIMARY KEY, n int, v text); ALTER TABLE decoded ALTER v SET STORAGE EXTERNAL;
    INSERT INTO decoded SELECT i, i, repeat(md5(i::text), 70) FROM generate_series(1, 500) i');
my $n = 1000;
my $write = sub {
    $db->sql("INSERT INTO decoded VALUES ($_, 0, repeat('y', 3000)); UPDATE decoded SET n = n + 1 WHERE id = $_; DELETE
        FROM decoded WHERE id = $_")
      for $n .. $n + 9;
    $n += 10;
};
for my $to ('fast', 'other')
{
    ($job) = copying("relocate_table('decoded', '$to')");
    $write->();
    reloaded('pgscale.relocation_rate');
    done_ok("to $to", $job);
    my @indexes = ask("relocate_indexes('decoded', '$to', mode => 'online')");
    $write->();
    done_ok('its indexes', @indexes);
}
is($db->sql(q{SELECT string_agg(concat_ws(' ', kind, n, distinct_n), ', ' ORDER BY kind) FROM (
    SELECT kind, count(*) AS n, count(DISTINCT id) AS distinct_n FROM (
        SELECT substring(data FROM ': ([A-Z]+):') AS kind, substring(data FROM 'id\[integer\]:(\d+)')::int AS id
          FROM pg_logical_slot_get_changes('consumer', NULL, NULL) WHERE data LIKE 'table public.decoded:%') d
     WHERE id >= 1000 GROUP BY kind) k}), join(', ', map { "$_ " . ($n - 1000) . ' ' . ($n - 1000) } qw(DELETE INSERT UPDATE)),
    'a logical slot has each change once');
$db->sql(q{SELECT pg_drop_replication_slot('consumer')});

### A synchronous standby

my $standby = pgscale_standby($node);
my $there = session($standby);
reloaded('synchronous_standby_names', 'standby');
$db->poll_ok(q{SELECT sync_state FROM pg_stat_replication}, 'a synchronous standby', 'sync');
moved_ok(move(), 'a move beside it');
$db->sql('SET synchronous_commit = local');
my $receiver = $there->sql(q{SELECT pid FROM pg_stat_wal_receiver});
kill 'STOP', $receiver;
$job = move();
job_ok($job, 'state, message', 'waiting|synchronous standby "standby" has not confirmed the WAL of the last piece',
    'a standby does not confirm');
cmp_ok(of_job($job, 'copied_bytes'), '<=', 1024 * 1024, 'one piece was written');
kill 'CONT', $receiver;
moved_ok($job, 'it goes on when that confirms');

### It replays hours later

$there->set('recovery_min_apply_delay', '4h');
$there->poll_ok('SHOW recovery_min_apply_delay', 'a delayed standby', '4h');
$db->sql('CREATE TABLE late ()');
$db->set('pgscale.relocation_max_lag', 4);
for my $synchronous ('', 'standby')
{
    reloaded('synchronous_standby_names', $synchronous);
    moved_ok(move(), 'a move does not wait for what a standby has still to replay');
}
is($db->sql(q{SELECT pg_current_wal_insert_lsn() - replay_lsn > 32 * 1048576 FROM pg_stat_replication}), 't', 'which is much');
is($there->sql('SELECT count(*) FROM pg_class WHERE relname = $$late$$'), 0, 'it has replayed nothing of it');
$db->set('pgscale.relocation_max_lag');

### It is gone: the move waits, and commits of others as before

$there->quit;
$standby->stop;
$job = move();
my $writer = session($node);
$writer->start('DROP TABLE late');
job_ok($job, 'state, message', 'waiting|only 0 of 1 synchronous standbys stream WAL (synchronous_standby_names)',
    'a standby that is gone');
$db->poll_ok('SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $writer->pid, 'commits of others wait as before', 'SyncRep');
is($db->sql('SELECT count(*) FROM t'), 80000, 'the table is in use');
reloaded('synchronous_standby_names', '');
is(($writer->finish)[0], '00000', 'until none is wanted');
moved_ok($job, 'so does the move');

$writer->quit;
strays_ok('at the end');
stop_ok();
done_testing();
