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
    my @next = $hold->[0] eq $writer ? ask(q{relocate_index('t_gist', 'fast', mode => 'rebuild')}) : ();

    is($db->sql("SELECT pgscale.relocation_cancel($job)"), 't', 'relocation_cancel');
    $holder->sql('ROLLBACK') if @next;    # to drop an index waits for writers, too
    job_ok($job, 'state, sqlstate, finished_at > started_at', 'cancelled|57014|t', 'ends it');
    done_ok('but not the next one of that worker', @next) if @next;
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
    isnt($db->sql("SELECT pid FROM pgscale_internal.relocation_job WHERE job = $job"), $worker, 'in another process');
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

# What an index is by its text has changed meanwhile: with the name of its schema
$db->sql('CREATE SCHEMA before; CREATE TABLE before.moved (id int PRIMARY KEY)');
{
    my ($holder, $job, $worker) = held('BEGIN; INSERT INTO before.moved VALUES (1)', 'waiting for writers before build', 'before.moved_pkey');
    $db->sql('ALTER SCHEMA before RENAME TO after');
    $holder->sql('COMMIT');
    job_ok($job, q{state, sqlstate, message ~ ('^it has moved, but its verification failed: the index has moved, but differs from before '
        '[(]Before: [^\n]*before.moved.*\nAfter: [^\n]*after.moved')}, 'failed|55000|t', 'an index that is not what it was');
    is(place('after.moved_pkey'), 'fast', 'it has moved');
    done_ok('and can be moved back', $db->sql("SELECT pgscale.relocation_undo($job)"));
    is(place('after.moved_pkey'), 'pg_default', 'it is where it was');
    $holder->quit;
}
$db->sql('DROP SCHEMA after CASCADE');
clean_ok('nothing is left');

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

# Whom a job on t would wait for that looks at transactions of any age, or only at old ones
sub obstacle
{
    my ($table, $age) = (@_, 0);

    return $db->sql("SELECT substring(pgscale_internal.relocation_obstacle('$table'::regclass, false, $age), '^.* process (\\d+) has been open for')");
}
{
    my ($first, $second) = map { session($node) } 1 .. 2;

    $first->sql($reader);
    is(obstacle('t'), '', 'who has read in a transaction, and does not at the moment, is no obstacle');
    $first->sql('ROLLBACK');
    $first->sql($writer);
    is(obstacle('t'), $first->pid, 'who has written is one');
    is(obstacle('empty'), '', 'for a job on that table');
    is(obstacle('t', 60), '', 'not while that is not so old');
    is(obstacle('t', -1), '', 'nor where none is looked at');
    $second->sql($snapshot);
    is(obstacle('t'), $first->pid, 'of two it is the older one');
    is(obstacle('empty'), $second->pid, 'who has a snapshot is one for each table');
    $_->sql('ROLLBACK') for $first, $second;

    # one that writes nothing and whose snapshot counts for nothing
    $first->sql('SET vacuum_cost_delay = 100; SET vacuum_cost_limit = 1');
    $first->start('VACUUM t');
    $db->poll_ok('SELECT count(*) FROM pg_stat_progress_vacuum', 'a table is vacuumed', 1);
    is(obstacle('t'), '', 'which is no obstacle');
    $db->sql('SELECT pg_cancel_backend(' . $first->pid . ')');
    is(($first->finish)[0], '57014', 'while that lasted');
    $_->quit for $first, $second;
}

$db->set('pgscale.relocation_max_transaction_age', 0);
{
    my $holder = session($node);
    $holder->sql($snapshot);
    my ($job) = ask(q{relocate_index('t_unique', 'fast', mode => 'rebuild')});
    job_ok($job, q{state, sqlstate, message ~ ('^the transaction of process } . $holder->pid . q{ has been open for \d'), attempts, wait_until > requested_at},
        'waiting|55006|t|0|t', 'it waits for an old transaction');
    my ($waiting) = ask(q{relocate_index('t_hash', 'fast', mode => 'rebuild')});
    job_ok($waiting, 'state', 'waiting', 'so does another one');
    is($db->sql("SELECT pgscale.relocation_cancel($waiting)"), 't', 'that is cancelled');
    job_ok($waiting, 'state, finished_at IS NOT NULL, wait_until', 'cancelled|t|', 'at once');
    $holder->quit;
    done_ok('when that has ended', $job);

    $holder = session($node);
    $holder->sql("$writer; PREPARE TRANSACTION 'it''s prepared'");
    ($job) = ask(q{relocate_index('t_unique', 'other', mode => 'rebuild')});
    job_ok($job, q{state, message ~ $$^the prepared transaction 'it''s prepared' has been open for \d$$}, 'waiting|t', 'it waits for a prepared one');
    $db->sql(q{ROLLBACK PREPARED 'it''s prepared'});
    done_ok('when that has ended', $job);
    $holder->quit;

    # one that reads another table in another database, or nothing at all, does not count
    $db->sql('CREATE DATABASE another');
    $holder = session($node, dbname => 'another');
    $holder->sql($snapshot =~ s/empty/pg_class/r);
    done_ok('a transaction of another database is none', ask(q{relocate_index('t_unique', 'fast', mode => 'rebuild')}));
    $holder->quit;
}
$db->set('pgscale.relocation_max_transaction_age');

# Switched off
$db->set('pgscale.relocation_max_transaction_age', -1);
my $health = q{SELECT enabled, state, reason FROM pgscale.health WHERE feature = 'relocation'};
{
    my ($holder, $job, $worker) = held($writer, 'waiting for writers before build', 't_partial');
    is($db->sql($health), 't|working|1 of its workers is at a job; see pgscale.relocation_jobs', 'health says that it is at work');
    my @queued = ask(q{relocate_index('t_unique', 'other', mode => 'rebuild')});
    $db->set('pgscale.relocation_workers', 0);
    $db->poll_ok($health, 'switched off', 'f|off|it is switched off; jobs that are under way go on');
    $holder->sql('ROLLBACK');
    done_ok('what is under way', $job);
    workers_gone();
    $db->poll_ok($health, 'nothing is', 'f|off|it is switched off; a database may have queued jobs');
    # a table of its own: whoever takes it first starts it first
    push @queued, ask(q{relocate_index('unlogged_pkey', 'other', mode => 'rebuild')});
    is($db->sql("SELECT state, attempts, started_at FROM pgscale.relocation_jobs WHERE job = $_"), 'queued|0|', 'jobs are queued') for @queued;
    is($db->sql("CALL pgscale.relocation_wait($queued[0], '300 ms')"), 'queued', 'and stay so');
    launching('on');
    is($db->sql("CALL pgscale.relocation_wait($_)"), 'done', 'switched on, they are started; relocation_wait waits') for @queued;
    is($db->sql("SELECT max(started_at) FILTER (WHERE job = $queued[1]) >= max(finished_at) FILTER (WHERE job = $queued[0])
        FROM pgscale.relocation_jobs"), 't', 'in their order');
    $db->poll_ok($health, 'health says that it has nothing to do', 't|idle|ready; nothing is under way');
    $holder->quit;
}
$db->set('pgscale.relocation_max_transaction_age');

# A request that is rolled back
$db->sql('BEGIN');
ask(q{relocate_index('t_unique', 'fast', mode => 'rebuild')});
$db->sql('ROLLBACK');
$db->sql('BEGIN');
my ($kept) = ask(q{relocate_index('t_hash', 'fast', mode => 'rebuild')});
$db->sql('SAVEPOINT here');
my ($gone) = ask(q{relocate_index('t_unique', 'fast', mode => 'rebuild')});
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
    my @of_t = map { ask("relocate_index('$_', 'pg_default', mode => 'rebuild')") } qw(t_unique t_hash t_partial);
    my ($of_other) = ask(q{relocate_index('unlogged_pkey', 'fast', mode => 'rebuild')});
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

{
    my $holder = session($node);
    my $other = session($node);
    $holder->sql('BEGIN; SELECT count(*) FROM toasted');
    my ($job) = ask(q{relocate_table('toasted', 'fast', 'lock', '200 ms')});
    my $not_before = "SELECT extract(epoch FROM not_before) FROM pgscale_internal.relocation_job WHERE job = $job";
    job_ok($job, q{state, sqlstate, attempts, wait_until - started_at > interval '1.2 s'}, 'waiting|55P03|1|t', 'no lock: it is tried again, after a second');
    my $first = $db->sql($not_before);
    $other->sql('SELECT count(*) FROM toasted');
    job_ok($job, q{state, sqlstate, attempts}, 'waiting|55P03|2', 'and again');
    cmp_ok($db->sql($not_before) - $first, '>=', 2.2, 'after twice as long');
    $db->sql("UPDATE pgscale_internal.relocation_job SET attempts = 4 WHERE job = $job");    # which would take 12 s
    job_ok($job, 'state, sqlstate, attempts', 'failed|55P03|5', 'but not for ever');
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
    my $worker = $db->sql("SELECT pid FROM pgscale_internal.relocation_job WHERE job = $job");
    $db->sql("SELECT pg_terminate_backend($worker)");
    $db->poll_ok("SELECT state, attempts, crashes, pid <> $worker FROM pgscale_internal.relocation_job WHERE job = $job",
        'after pg_terminate_backend another worker verifies it', 'verifying|1|0|t');
    $db->sql("SELECT pg_cancel_backend(pid) FROM pgscale_internal.relocation_job WHERE job = $job");
    job_ok($job, q{state, sqlstate, message ~ '^it has moved, but it was not verified: '}, 'done|57014|t', 'pg_cancel_backend ends no more than that');
    $next->sql('COMMIT');
    is(place('empty'), 'fast', 'it stays where it is');
    $_->quit for $holder, $next;
}

$db->quit;
$node->stop;
done_testing();
