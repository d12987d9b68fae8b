# Live moves and who reads their WAL: a slot that would be lost, a synchronous standby that does not confirm, one that
# replays late, one that is gone, and a logical consumer. A move waits, says for whom, and goes on by itself.
use strict;
use warnings;
use PgscaleLive;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

relocation_node(
    init => [ allows_streaming => 'logical', extra => ['--wal-segsize=1'] ],
    conf => "pgscale.relocation_max_transaction_age = -1\nautovacuum = off\nshared_buffers = 32MB\nmax_wal_size = 16MB\nmin_wal_size = 4MB\n"
      . "wal_keep_size = 0\nmax_slot_wal_keep_size = 32MB\nwal_receiver_status_interval = 1s\nwal_sender_timeout = 0"
);
$db->sql(q{CREATE TABLE t AS SELECT i AS id, repeat('x', 500) AS v FROM generate_series(1, 100000) i});
my $rows = rows($db, 't');

sub moved_ok
{
    my ($job, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    is(ended($job), 'done', $name) or diag job_text($job);
    is($db->sql("SELECT attempts FROM pgscale.relocation_jobs WHERE job = $job"), 1, 'at the first attempt');
    return is(rows($db, 't'), $rows, 'with the same rows');
}

### A slot that nobody reads from

$db->sql(q{SELECT pg_create_physical_replication_slot('forgotten', true)});
$db->sql('SET client_min_messages = notice');
my (undef, $said) = $db->try(q{SELECT pgscale.relocate_table('t', 'fast')});
$db->sql('SET client_min_messages = warning');
my $job = $db->sql('SELECT max(job) FROM pgscale.relocation_jobs');
like($said, qr/moves write \d+ MB of WAL, and wait before there is no room for it: replication slot "forgotten" would be lost after/,
    'the request says that a slot is in the way');
job_ok($job, q{state, message ~ '^replication slot "forgotten" would be lost after \d+ MB more of WAL \(max_slot_wal_keep_size\)$', copied_bytes > 0},
    'waiting|t|t', 'the move waits before the slot is lost');
$db->poll_ok(qq{SELECT reason LIKE '%job $job waits: replication slot "forgotten" would be lost%' FROM pgscale.health WHERE feature = 'relocation'},
    'health says so, too');
$db->sql('CHECKPOINT');
is($db->sql(q{SELECT wal_status, safe_wal_size > 0 FROM pg_replication_slots}), 'extended|t', 'the slot has its WAL after a checkpoint');
$db->sql(q{UPDATE t SET id = -id WHERE id <= 10; UPDATE t SET id = -id WHERE id < 0});
$rows = rows($db, 't');
$db->sql(q{SELECT pg_replication_slot_advance('forgotten', pg_current_wal_lsn())});
job_ok($job, q{copied_bytes > 30 * 1024 * 1024}, 't', 'when the slot has advanced, the move goes on');
$db->sql(q{SELECT pg_drop_replication_slot('forgotten')});
moved_ok($job, 'and ends without it');

### A logical consumer that has stopped

my $stream = $node->basedir . '/stream';
$db->sql('ALTER SYSTEM SET max_slot_wal_keep_size = -1; SELECT pg_reload_conf()');
$db->sql(q{SELECT pg_create_logical_replication_slot('consumer', 'test_decoding')});
my $consumer = IPC::Run::start([ 'pg_recvlogical', '-d', $node->connstr('postgres'), '-S', 'consumer', '--start', '-f', $stream ], '>', '/dev/null', '2>', '/dev/null');
$db->poll_ok('SELECT count(*) FROM pg_stat_replication', 'a logical consumer', 1);
my $sender = $db->sql('SELECT pid FROM pg_stat_replication');
$db->poll_ok('SELECT flush_lsn IS NOT NULL FROM pg_stat_replication', 'which has confirmed something');
kill 'STOP', $sender;
$db->set('pgscale.relocation_max_lag', 0);
($job) = ask(q{relocate_table('t', 'other')});
moved_ok($job, 'it is no standby: the move does not wait for it');
kill 'CONT', $sender;
$consumer->kill_kill;
$db->poll_ok(q{SELECT count(*) FROM pg_replication_slots WHERE active}, 'it is gone', 0);
$db->sql(q{SELECT pg_drop_replication_slot('consumer')});
$db->set('pgscale.relocation_max_lag');

### A synchronous standby

my $standby = pgscale_standby($node);
my $there = session($standby);
$db->set('synchronous_standby_names', 'standby');
$db->poll_ok(q{SELECT sync_state FROM pg_stat_replication}, 'a synchronous standby', 'sync');
($job) = ask(q{relocate_table('t', 'fast')});
moved_ok($job, 'a move beside it');
$db->sql('SET synchronous_commit = local');
my $receiver = $there->sql(q{SELECT pid FROM pg_stat_wal_receiver});
kill 'STOP', $receiver;
($job) = ask(q{relocate_table('t', 'other')});
job_ok($job, 'state, message', 'waiting|synchronous standby "standby" has not confirmed the WAL of the last piece', 'a standby that does not confirm');
my $copied = $db->sql("SELECT copied_bytes FROM pgscale.relocation_jobs WHERE job = $job");
ok($copied <= 1024 * 1024, 'one piece was written') or diag $copied;
kill 'CONT', $receiver;
moved_ok($job, 'it goes on when it confirms');

### It replays hours later

$there->set('recovery_min_apply_delay', '4h');
$there->poll_ok('SHOW recovery_min_apply_delay', 'a delayed standby', '4h');
$db->sql('CREATE TABLE late ()');
$db->set('pgscale.relocation_max_lag', 4);
for my $synchronous ('', 'standby')
{
    $db->set('synchronous_standby_names', $synchronous);
    $db->poll_ok('SHOW synchronous_standby_names', 'commits wait for ' . ($synchronous || 'none'), $synchronous);
    ($job) = ask("relocate_table('t', '" . elsewhere('t') . "')");
    moved_ok($job, 'a move does not wait for what a standby has still to replay');
}
is($db->sql(q{SELECT pg_current_wal_insert_lsn() - replay_lsn > 64 * 1048576 FROM pg_stat_replication}), 't', 'which is much');
is($there->sql('SELECT count(*) FROM pg_class WHERE relname = $$late$$'), 0, 'it has replayed nothing of it');
$db->set('pgscale.relocation_max_lag');
$there->set('recovery_min_apply_delay');

$there->quit;
$standby->stop;
($job) = ask(q{relocate_table('t', 'fast')});
job_ok($job, 'state, message', 'waiting|only 0 of 1 synchronous standbys stream WAL (synchronous_standby_names)', 'a standby that is gone');
$db->set('synchronous_standby_names', '');
moved_ok($job, 'it goes on when commits wait for none');

strays_ok('no file is left');
$db->quit;
$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, 'nothing crashed');
done_testing();
