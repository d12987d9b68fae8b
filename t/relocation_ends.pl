# Moves that are put off, switched off, rolled back, two at a time, not verified, or find no moment for their lock: each ends as it
# should, whoever holds it up is named, and no other session waits because of it.
use strict;
use warnings;
use PgscaleRelocation;
use PgscaleTest;
use Test::More;

relocation_node(conf => 'pgscale.relocation_switch_timeout = 1h');
two_tables(10);
$db->sql('CREATE INDEX t_a ON t (n); CREATE INDEX t_b ON t (n) WHERE n % 2 = 0; CREATE UNIQUE INDEX t_c ON t (n DESC)');
$db->sql('CREATE TABLE second (id int PRIMARY KEY); CREATE TABLE empty (id int PRIMARY KEY)');
clean_ok();
my $writer = 'BEGIN; UPDATE t SET n = n WHERE id = 1';
my $snapshot = 'BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM empty';
my $other = session($node);
$other->sql(q{SET statement_timeout = '30 s'; SET lock_timeout = '20 s'});

# Others do not wait for a move that waits.
sub others_ok
{
    my ($table, @statements) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    is(($other->try($_))[0], '00000', "meanwhile: $_") for "SELECT count(*) FROM $table", @statements;
    is($db->sql("SELECT count(*) FROM pg_locks WHERE relation = '$table'::regclass AND NOT granted"), 0, 'nobody queues');
    return;
}

### A job is cancelled, and not the next one of its worker; in the end, or later, it cannot be cancelled

{
    my ($holder, $job) = held($snapshot, 'waiting for old snapshots', 't_b');
    my ($next) = ask(rebuild('t_a'));

    is($db->sql("SELECT pgscale.relocation_cancel($job)"), 't', 'relocation_cancel');
    ended_ok($job, 'cancelled|57014|t', 'ends it', 'state, sqlstate, finished_at > started_at');
    is($db->sql("SELECT pgscale.relocation_cancel($job)"), 'f', 'it cannot be ended again');
    $holder->quit;
    done_ok('the next one of that worker', $next);
    clean_ok('nothing is left behind');
}

# ... and not while what has become of an attempt is written down: that the row cannot be written holds its worker there.
{
    my ($holder, $row) = map { session($node) } 1 .. 2;
    $holder->sql('BEGIN; SELECT count(*) FROM empty');
    my ($job) = ask(q{relocate_table('empty', 'fast', 'lock', '3 s')});
    job_ok($job, 'state, attempts', 'running|1', 'a move waits for its lock');
    $row->sql("BEGIN; SELECT FROM pgscale_internal.relocation_job WHERE job = $job FOR UPDATE");
    $db->poll_ok(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pgscale relocation worker' AND wait_event = 'transactionid'},
        'its attempt has failed', 1);
    $other->start("SELECT pgscale.relocation_cancel($job)");
    $db->poll_ok('SELECT count(*) FROM pg_locks WHERE NOT granted AND waitstart IS NOT NULL AND pid = ' . $other->pid,
        'relocation_cancel then waits for the row', 1);
    $row->sql('COMMIT');
    is(($other->finish)[1], 't', 'and is obeyed');
    ended_ok($job, 'cancelled|1', 'it is not tried again', 'state, attempts');
    $_->quit for $holder, $row;
}

### What an index is by its text has changed meanwhile: with the name of its schema

$db->sql('CREATE SCHEMA before; CREATE TABLE before.moved (id int PRIMARY KEY)');
{
    my ($holder, $job) = held('BEGIN; INSERT INTO before.moved VALUES (1)', 'waiting for writers before build',
        'before.moved_pkey');

    $db->sql('ALTER SCHEMA before RENAME TO after');
    $holder->sql('COMMIT');
    ended_ok($job, 'failed|55000|t', 'an index that is not what it was',
        q{state, sqlstate, message ~ ('^it has moved, but its verification failed: the index has moved, but differs from before '
        '[(]Before: [^\n]*before.moved.*\nAfter: [^\n]*after.moved')});
    is(place('after.moved_pkey'), 'fast', 'it has moved');
    done_ok('back', $db->sql("SELECT pgscale.relocation_undo($job)"));
    is(place('after.moved_pkey'), 'pg_default', 'it is where it was');
    $holder->quit;
}
$db->sql('DROP SCHEMA after CASCADE');

### Put off

# Whom a job would wait for that looks at transactions of any age, or only at old ones
sub obstacle
{
    my ($table, $age) = (@_, 0);
    my $obstacle = "pgscale_internal.relocation_obstacle('$table'::regclass, false, $age)";

    return $db->sql("SELECT substring($obstacle, '^.* process (\\d+) has been open for')");
}
{
    my $first = session($node);

    $first->sql('BEGIN; SELECT count(*) FROM t');
    is(obstacle('t'), '', 'who has read in a transaction, and does not at the moment, is no obstacle');
    $first->sql('ROLLBACK');
    $first->sql($writer);
    is(obstacle('t'), $first->pid, 'who has written is one');
    is(obstacle('empty'), '', 'for a job on that table');
    is(obstacle('t', $_), '', "not while that is not so old, or none is looked at: $_") for 3600, -1;
    my $second = session($node);
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
    my ($job, $waiting) = (ask(rebuild('t_c')), ask(rebuild('t_a')));
    my $pid = $holder->pid;
    job_ok($job, "state, sqlstate, message ~ '^the transaction of process $pid has been open for', attempts", 'waiting|55006|t|0',
        'it waits for an old transaction');
    job_ok($waiting, 'state', 'waiting', 'so does another one');
    is($db->sql("SELECT pgscale.relocation_cancel($waiting)"), 't', 'that is cancelled');
    is(of_job($waiting, 'state, finished_at IS NOT NULL, wait_until'), 'cancelled|t|', 'at once');
    $holder->sql('ROLLBACK');
    done_ok('when that has ended', $job);

    $holder->sql("$writer; PREPARE TRANSACTION 'it''s prepared'");
    ($job) = ask(rebuild('t_c'));
    job_ok($job, q{state, message ~ $$^the prepared transaction 'it''s prepared' has been open for \d$$}, 'waiting|t',
        'it waits for a prepared one');
    $db->sql(q{ROLLBACK PREPARED 'it''s prepared'});
    done_ok('when that has ended', $job);
    $holder->quit;

    $db->sql('CREATE DATABASE another');
    $holder = session($node, dbname => 'another');
    $holder->sql($snapshot =~ s/empty/pg_class/r);
    done_ok('a transaction of another database does not count', ask(rebuild('t_c')));
    $holder->quit;
}
$db->set('pgscale.relocation_max_transaction_age');

### Switched off, and rolled back

my $health = q{SELECT enabled, state, reason FROM pgscale.health WHERE feature = 'relocation'};
{
    my ($holder, $job) = held($writer, 'waiting for writers before build', 't_b');
    is($db->sql($health), 't|working|1 of its workers is at a job; see pgscale.relocation_jobs', 'health says that it is at work');
    my @queued = ask(rebuild('t_c'));
    $db->set('pgscale.relocation_workers', 0);
    $db->poll_ok($health, 'switched off', 'f|off|it is switched off; jobs that are under way go on');
    $holder->quit;
    done_ok('what is under way', $job);
    workers_gone();
    $db->poll_ok($health, 'nothing is', 'f|off|it is switched off; a database may have queued jobs');
    # a table of its own: whoever takes it first starts it first
    push @queued, ask(rebuild('second_pkey'));
    is(of_job($_, 'state, attempts, started_at'), 'queued|0|', 'jobs are queued') for @queued;
    is($db->sql("CALL pgscale.relocation_wait($queued[0], '300 ms')"), 'queued', 'and stay so');
    launching('on');
    is($db->sql("CALL pgscale.relocation_wait($_)"), 'done', 'switched on, they are started; relocation_wait waits') for @queued;
    in_order_ok(@queued[ 0, 1 ], 'in their order');
    $db->poll_ok($health, 'health says that it has nothing to do', 't|idle|ready; nothing is under way');
}
$db->sql('BEGIN');
my ($kept) = ask(rebuild('t_a'));
$db->sql('SAVEPOINT here');
my ($gone) = ask(rebuild('second_pkey'));
$db->sql('ROLLBACK TO here; COMMIT');
done_ok('of a transaction what was kept', $kept);
is(of_job($gone, 'count(*)'), 0, 'and nothing else');

### Two at a time, of different tables

$db->set('pgscale.relocation_workers', 2);
{
    my $holder = session($node);
    $holder->sql("$writer; INSERT INTO second VALUES (-1)");
    my @of_t = map { ask(rebuild($_)) } qw(t_a t_b t_c);
    my ($of_other) = ask(rebuild('second_pkey'));
    job_ok($of_other, 'state', 'running', 'two workers: a job of another table runs');
    job_ok($of_t[0], 'state', 'running', 'at the same time');
    is(of_job($_, 'state'), 'queued', 'another one of the same table does not') for @of_t[ 1, 2 ];
    is($db->sql("SELECT pgscale.relocation_cancel($of_t[1])"), 't', 'a queued one is cancelled');
    is(of_job($of_t[1], 'state, started_at'), 'cancelled|', 'and never starts');
    $holder->quit;
    done_ok('the others', $of_other, @of_t[ 0, 2 ]);
    in_order_ok(@of_t[ 0, 2 ], 'one after the other');
}
$db->set('pgscale.relocation_workers');

### A table whose lock is not to be had

my $wanting = q{SELECT count(*) FROM pg_locks WHERE relation = 'empty'::regclass AND mode = 'AccessExclusiveLock' AND NOT granted};
{
    my $holder = session($node);
    $holder->sql('BEGIN; SELECT count(*) FROM empty');
    my ($job) = ask(q{relocate_table('empty', 'fast', 'lock', '200 ms')});
    my $not_before = "SELECT extract(epoch FROM not_before) FROM pgscale_internal.relocation_job WHERE job = $job";
    job_ok($job, q{state, sqlstate, attempts, wait_until - started_at > interval '1.2 s'}, 'waiting|55P03|1|t',
        'it is tried again, after a second');
    my $first = $db->sql($not_before);
    job_ok($job, q{state, sqlstate, attempts}, 'waiting|55P03|2', 'and again');
    cmp_ok($db->sql($not_before) - $first, '>=', 2.2, 'after twice as long');
    $db->sql("UPDATE pgscale_internal.relocation_job SET attempts = 4 WHERE job = $job");    # which would take 12 s
    ended_ok($job, 'failed|55P03|5', 'but not for ever', 'state, sqlstate, attempts');
    others_ok('empty');
    is(place('empty'), 'pg_default', 'it has not moved');

    # within the timeout; and ended while it is verified: it has moved by then
    ($job) = ask(q{relocate_table('empty', 'fast', 'lock', '1 hour')});
    $db->poll_ok($wanting, 'one that has time waits', 1);
    my $next = session($node);
    $next->start('BEGIN; LOCK TABLE empty');
    $db->poll_ok($wanting, 'another session wants it next', 2);
    $holder->quit;
    job_ok($job, 'state, attempts', 'verifying|1', 'it has moved, and its worker waits to verify it');
    is(($next->finish)[0], '00000', 'for who has locked it');
    my $worker = $db->sql("SELECT pid FROM pgscale_internal.relocation_job WHERE job = $job");
    $db->sql("SELECT pg_terminate_backend($worker)");
    $db->poll_ok("SELECT state, attempts, crashes, pid <> $worker FROM pgscale_internal.relocation_job WHERE job = $job",
        'after pg_terminate_backend another worker verifies it', 'verifying|1|0|t');
    $db->sql("SELECT pg_cancel_backend(pid) FROM pgscale_internal.relocation_job WHERE job = $job");
    ended_ok($job, 'done|57014|t', 'pg_cancel_backend ends no more than that',
        q{state, sqlstate, message ~ '^it has moved, but it was not verified: '});
    $next->quit;
    is(place('empty'), 'fast', 'it stays where it is');
}

### An online move that finds no gap

{
    my ($holder, $job) = held_online('t', 'fast');
    my $pid = $holder->pid;

    is(of_job($job, 'message'), "in use by process $pid", 'it says whom it waits for');
    others_ok('t', 'UPDATE t SET n = -n WHERE id = 1', 'UPDATE t SET n = -n WHERE id = 1');
    $db->set('pgscale.relocation_switch_timeout', '2s');
    ended_ok($job, "failed|55006|the relation could not be switched within 2 s: in use by process $pid|1|0",
        'after its time, which was made shorter meanwhile, it fails; it has never queued',
            'state, sqlstate, message, attempts, lock_tries');
    is(place('t'), 'pg_default', 'it has not moved');
    strays_ok('a reader that never leaves');
    $holder->quit;
    reloaded('pgscale.relocation_switch_timeout');
}
{
    # one that reads the TOAST table only
    my $toast = $db->sql(q{SELECT reltoastrelid::regclass FROM pg_class WHERE oid = 't'::regclass});
    my ($holder, $job) = held_online('t', 'fast', "BEGIN; SELECT count(*) FROM $toast");
    is(of_job($job, 'message'), 'in use by process ' . $holder->pid, 'who uses the TOAST table is named, too');
    $holder->quit;
    ended_ok($job, 'done', 'without that it is done');
}
{
    # A GRANT has changed the row in pg_class; before 18 it has not locked the table
    my ($holder, $job) = held_online('second', 'fast', 'BEGIN; GRANT SELECT ON second TO PUBLIC');
    job_ok($job, 'lock_tries > 1 OR message IS NOT NULL', 't', 'the switch does not wait for a GRANT');
    is(($other->try('SELECT count(*) FROM second'))[0], '00000', 'nor do others for the switch');
    $holder->sql('COMMIT');
    ended_ok($job, 'done', 'after the GRANT it is done');
    $holder->quit;
}
{
    my ($holder, $job) = held_online('t', 'other', q{BEGIN; UPDATE t SET n = n WHERE id = 2; PREPARE TRANSACTION 'p'});
    is(of_job($job, 'message'), 'in use by a prepared transaction', 'a prepared transaction is named as such');
    $holder->sql('BEGIN; SELECT FROM t');
    my $pid = $holder->pid;
    job_ok($job, "message ~ '^in use by .*process $pid'", 't', 'so is another user');
    is(($db->try(q{SELECT pgscale.relocate_table('t', 'other')}))[0], '55006', 'a second job of the table is refused');
    like(($db->try(q{SELECT pgscale.relocate_table('t', 'fast', 'lock')}))[1], qr/"t" is already/, 'whatever its mode and place');
    $holder->sql('COMMIT');
    $db->sql(q{COMMIT PREPARED 'p'});
    ended_ok($job, 'done|1', 'when they have ended it is done, at the first attempt', 'state, attempts');
    $holder->quit;
}
{
    # A worker that is stopped in the midst of a copy holds nobody up.
    my ($job, $worker) = copying(q{relocate_table('t', 'fast')});
    kill 'STOP', $worker;
    until_ok(sub { process_state($worker) eq 'T' }, 'a worker is stopped');
    others_ok('t', 'UPDATE t SET n = n WHERE id = 3');
    kill 'CONT', $worker;
    reloaded('pgscale.relocation_rate');
    ended_ok($job, 'done', 'it goes on and is done');
}

clean_ok('nothing is left behind');
strays_ok('at the end');
$other->quit;
stop_ok();
done_testing();
