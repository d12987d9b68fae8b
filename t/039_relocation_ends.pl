# Moves that are cancelled, ended, put off, switched off, rolled back, two at a time, or get no lock: each ends as it should, and
# nothing is left of those that were not made.
use strict;
use warnings;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

relocation_node();
relocation_objects();
clean_ok();
my $schema = schema();

### Ended in the midst of it

$db->set('pgscale.relocation_max_transaction_age', -1);
my $writer = q{BEGIN; UPDATE t SET v = v WHERE id = 1};
my $snapshot = q{BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM empty};
my $reader = q{BEGIN; SELECT count(*) FROM t};
for my $hold ([ $writer, 'waiting for writers before build' ], [ $snapshot, 'waiting for old snapshots' ])
{
    my ($holder, $job, $worker) = held(@$hold, 't_partial');

    is($db->sql("SELECT pgscale.relocation_cancel($job)"), 't', 'relocation_cancel');
    $holder->sql('ROLLBACK') if $hold->[0] eq $writer;    # to drop an index waits for writers, too
    job_ok($job, 'state, sqlstate, finished_at > started_at', 'cancelled|57014|t', 'ends it');
    clean_ok('and leaves nothing behind');
    is(place('t_partial'), 'pg_default', 'it has not moved');
    is($db->sql("SELECT pgscale.relocation_cancel($job)"), 'f', 'it cannot be ended again');
    $holder->quit;
}
{
    my ($holder, $job, $worker) = held($snapshot, 'waiting for old snapshots', 't_partial');

    is($db->sql("SELECT pg_cancel_backend($worker)"), 't', 'pg_cancel_backend of the worker');
    job_ok($job, 'state, sqlstate', 'cancelled|57014', 'ends the job');
    clean_ok('and leaves nothing behind');
    $holder->quit;
}
{
    my ($holder, $job, $worker) = held($snapshot, 'waiting for old snapshots', 't_partial');

    is($db->sql("SELECT pg_terminate_backend($worker)"), 't', 'pg_terminate_backend of the worker');
    job_ok($job, q{state, phase, attempts}, 'running|waiting for old snapshots|2', 'another worker tries again');
    isnt($db->sql("SELECT pid FROM pgscale.relocation_job WHERE job = $job"), $worker, 'in another process');
    $holder->quit;
    done_ok('when nothing is in its way', $job);
    clean_ok('and leaves nothing behind');
    is(place('t_partial'), 'fast', 'it has moved');
}
{
    my ($holder, $job, $worker) = held($reader, 'waiting for readers before marking dead', 't_partial');

    is($db->sql("SELECT pgscale.relocation_cancel($job)"), 't', 'relocation_cancel after the swap');
    $holder->quit;
    done_ok('comes too late', $job);
    clean_ok('and leaves nothing behind');
    is(place('t_partial'), 'other', 'it has moved');
    is($db->sql("SELECT pgscale.relocation_cancel($job)"), 'f', 'it cannot be ended any more');
}
{
    my ($holder, $job, $worker) = held($reader, 'waiting for readers before marking dead', 't_partial');

    is($db->sql("SELECT pg_terminate_backend($worker)"), 't', 'pg_terminate_backend after the swap');
    $db->poll_ok("SELECT count(*) FROM pg_stat_activity WHERE pid = $worker", 'the worker ends', 0);
    $holder->quit;
    done_ok('it has moved', $job);
    clean_ok('and leaves nothing behind');
}
is(schema(), $schema, 'all is what it was');

# The server is shut down, while a prepared transaction holds the move up for ever
{
    my ($holder, $job, $worker) = held("$writer; PREPARE TRANSACTION 'prepared'", 'waiting for writers before build', 't_partial');
    $_->quit for $db, $holder;
    $node->stop('fast');
    $node->start;
    $db = session($node);
    job_ok($job, 'state', 'running', 'after a restart it goes on');
    $db->sql(q{ROLLBACK PREPARED 'prepared'});
    done_ok('and is done', $job);
    clean_ok('nothing is left behind');
}

### Put off

$db->set('pgscale.relocation_max_transaction_age', 0);
{
    my $holder = session($node);
    $holder->sql($snapshot);
    my ($job) = ask(q{relocate_index('t_unique', 'fast')});
    job_ok($job, q{state, sqlstate, message ~ ('^the transaction of process } . $holder->pid . q{ has been open for \d'), attempts, wait_until > requested_at},
        'waiting|55006|t|0|t', 'it waits for an old transaction');
    my ($waiting) = ask(q{relocate_index('t_hash', 'fast')});
    job_ok($waiting, 'state', 'waiting', 'so does another one');
    is($db->sql("SELECT pgscale.relocation_cancel($waiting)"), 't', 'that is cancelled');
    job_ok($waiting, 'state, finished_at IS NOT NULL, wait_until', 'cancelled|t|', 'at once');
    $holder->quit;
    done_ok('when that has ended', $job);

    $holder = session($node);
    $holder->sql("$writer; PREPARE TRANSACTION 'it''s prepared'");
    ($job) = ask(q{relocate_index('t_unique', 'other')});
    job_ok($job, q{state, message ~ $$^the prepared transaction 'it''s prepared' has been open for \d$$}, 'waiting|t', 'it waits for a prepared one');
    $db->sql(q{ROLLBACK PREPARED 'it''s prepared'});
    done_ok('when that has ended', $job);
    $holder->quit;

    # one that reads another table in another database, or nothing at all, does not count
    $db->sql('CREATE DATABASE another');
    $holder = session($node, dbname => 'another');
    $holder->sql($snapshot =~ s/empty/pg_class/r);
    done_ok('a transaction of another database is none', ask(q{relocate_index('t_unique', 'fast')}));
    $holder->quit;
}
$db->set('pgscale.relocation_max_transaction_age');

# Switched off
launching('off');
$db->poll_ok(q{SELECT enabled, state, action ~ 'pgscale.relocation to on' FROM pgscale.health WHERE feature = 'relocation'}, 'switched off', 'f|off|t');
my ($queued) = ask(q{relocate_index('t_unique', 'other')});
is($db->sql("SELECT state, attempts, started_at FROM pgscale.relocation_jobs WHERE job = $queued"), 'queued|0|', 'jobs are queued');
$db->sql("CALL pgscale.relocation_wait($queued, '300 ms')");
is($db->sql("CALL pgscale.relocation_wait($queued, '1 ms')"), 'queued', 'and stay so');
launching('on');
is($db->sql("CALL pgscale.relocation_wait($queued)"), 'done', 'switched on, they are started; relocation_wait waits');
$db->poll_ok(q{SELECT enabled, state FROM pgscale.health WHERE feature = 'relocation'}, 'health says that it works', 't|idle');

# A request that is rolled back
$db->sql('BEGIN');
ask(q{relocate_index('t_unique', 'fast')});
$db->sql('ROLLBACK');
$db->sql('BEGIN');
my ($kept) = ask(q{relocate_index('t_hash', 'fast')});
$db->sql('SAVEPOINT here');
my ($gone) = ask(q{relocate_index('t_unique', 'fast')});
$db->sql('ROLLBACK TO here; COMMIT');
done_ok('of a transaction what was kept', $kept);
is($db->sql("SELECT count(*) FROM pgscale.relocation_jobs WHERE job = $gone"), 0, 'and nothing else');
is(place('t_unique'), 'other', 'is done');

### Two at a time, of different tables

$db->set('pgscale.relocation_workers', 2);
$db->set('pgscale.relocation_max_transaction_age', -1);
{
    my $holder = session($node);
    $holder->sql("$writer; INSERT INTO unlogged VALUES (-1)");
    my @of_t = map { ask("relocate_index('$_', 'pg_default')") } qw(t_unique t_hash t_partial);
    my ($of_other) = ask(q{relocate_index('unlogged_pkey', 'fast')});
    job_ok($of_other, 'state', 'running', 'two workers: a job of another table runs');
    job_ok($of_t[0], 'state', 'running', 'at the same time');
    is($db->sql("SELECT string_agg(DISTINCT state, ' ') FROM pgscale.relocation_jobs WHERE job IN ($of_t[1], $of_t[2])"), 'queued', 'one of the same table does not');
    is($db->sql("SELECT pgscale.relocation_cancel($of_t[1])"), 't', 'a queued one is cancelled');
    job_ok($of_t[1], 'state, started_at', 'cancelled|', 'and never starts');
    $holder->quit;
    done_ok('the others', $of_other, @of_t[0, 2]);
    is($db->sql("SELECT max(started_at) >= min(finished_at) FROM pgscale.relocation_jobs WHERE job IN ($of_t[0], $of_t[2])"), 't',
        'one after the other');
}
$db->set('pgscale.relocation_max_transaction_age');
$db->set('pgscale.relocation_workers');

### A table whose lock is not to be had

$db->set('pgscale.relocation_attempts', 2);
{
    my $holder = session($node);
    my $other = session($node);
    $holder->sql('BEGIN; SELECT count(*) FROM toasted');
    my ($job) = ask(q{relocate_table('toasted', 'fast', 'lock', '200 ms')});
    job_ok($job, q{state, sqlstate, attempts, wait_until > clock_timestamp() - interval '1 min'}, 'waiting|55P03|1|t', 'no lock: it is tried again');
    $other->sql('SELECT count(*) FROM toasted');
    job_ok($job, 'state, sqlstate, attempts, finished_at - started_at > interval $$1 s$$', 'failed|55P03|2|t', 'later, and not for ever');
    is($other->sql('SELECT count(*) FROM toasted'), 50, 'nobody waits for it any more');
    is(place('toasted'), 'pg_default', 'it has not moved');

    # within the timeout
    ($job) = ask(q{relocate_table('toasted', 'fast', 'lock', '1 hour')});
    $db->poll_ok(q{SELECT count(*) FROM pg_locks WHERE relation = 'toasted'::regclass AND mode = 'AccessExclusiveLock' AND NOT granted},
        'one that has time waits', 1);
    is($db->sql("SELECT pgscale.relocation_cancel($job)"), 't', 'it is cancelled');
    job_ok($job, 'state', 'cancelled', 'and ends');
    ($job) = ask(q{relocate_table('toasted', 'fast', 'lock', '1 hour')});
    $db->poll_ok(q{SELECT count(*) FROM pg_locks WHERE relation = 'toasted'::regclass AND mode = 'AccessExclusiveLock' AND NOT granted},
        'one that has time waits', 1);
    $holder->sql('COMMIT');
    done_ok('and gets its lock', $job);
    $_->quit for $holder, $other;
}
$db->set('pgscale.relocation_attempts');

### Ended while it is verified: it has moved by then

{
    my $holder = session($node);
    my $next = session($node);
    my $wanting = q{SELECT count(*) FROM pg_locks WHERE relation = 'empty'::regclass AND mode = 'AccessExclusiveLock' AND NOT granted};
    $holder->sql('BEGIN; SELECT count(*) FROM empty');
    my ($job) = ask(q{relocate_table('empty', 'fast', 'lock', '1 hour')});
    $db->poll_ok($wanting, 'a table is to be moved', 1);
    $next->start('BEGIN; LOCK TABLE empty');
    $db->poll_ok($wanting, 'somebody else wants it next', 2);
    $holder->sql('COMMIT');
    job_ok($job, 'state, attempts', 'verifying|1', 'it has moved, and its worker waits to verify it');
    is(($next->finish)[0], '00000', 'for who has locked it');
    my $worker = $db->sql("SELECT pid FROM pgscale.relocation_job WHERE job = $job");
    $db->sql("SELECT pg_terminate_backend($worker)");
    $db->poll_ok("SELECT state, attempts, crashes, pid <> $worker FROM pgscale.relocation_job WHERE job = $job",
        'after pg_terminate_backend another worker verifies it', 'verifying|1|0|t');
    $db->sql("SELECT pg_cancel_backend(pid) FROM pgscale.relocation_job WHERE job = $job");
    job_ok($job, q{state, sqlstate, message ~ '^it has moved, but was not found to be in order: '}, 'done|57014|t', 'pg_cancel_backend ends no more than that');
    $next->sql('COMMIT');
    is(place('empty'), 'fast', 'it stays where it is');
    $_->quit for $holder, $next;
}

$db->quit;
$node->stop;
done_testing();
