# cancel() and terminate(): whom they act on, whom they refuse, who may call them, and what they say.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main', init => [ allows_streaming => 1 ], conf => <<'EOC');
max_prepared_transactions = 2
autovacuum_naptime = 1s
autovacuum_freeze_max_age = 100000
EOC
my $db = session($node);
$db->sql($_) for ('CREATE ROLE owner LOGIN', 'CREATE ROLE observer LOGIN IN ROLE pg_monitor', 'CREATE ROLE signaler LOGIN IN ROLE pg_signal_backend',
    'GRANT CREATE ON SCHEMA public TO owner');
my $me = $db->sql('SELECT current_user');
my $signaler = session($node, user => 'signaler');
my $owner = sub { session($node, user => 'owner') };
my $holder = $owner->();
my @waiters = map { $owner->() } 1 .. 2;

sub of { my ($session, $function, $arguments) = @_; return $session->sql("SELECT * FROM pgscale.$function($arguments)"); }

# An error, and its hint
sub refused_ok
{
    my ($session, $call, $state, $said, $hint) = @_;
    my ($got, $text) = $session->try("SELECT * FROM pgscale.$call");
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    is($got, $state, "$call is refused") or diag $text;
    like($text, $said, 'with the reason');
    like($text, qr/HINT: .*$hint/, 'and a hint') if $hint;
    return;
}

# Who may call them
for my $function (qw(cancel terminate))
{
    refused_ok(session($node, user => $_), "$function(" . $holder->pid . ')', '42501', qr/permission denied/) for qw(observer owner);
}
my $superusers = session($node);
$superusers->start('SELECT pg_sleep(600)');
$db->poll_ok('SELECT count(*) FROM pgscale.wait_current WHERE pid = ' . $superusers->pid . q{ AND event = 'PgSleep'}, 'a superuser sleeps', 1);
refused_ok($signaler, "$_(" . $superusers->pid . ')', '42501', qr/superuser/i) for qw(cancel terminate);
like(of($db, 'cancel', $superusers->pid), qr/^\d+\|t\|cancelled the statement of process \d+ \(user \Q$me\E, application blockers_cancel\.pl, active for \d+ s\)$/, 'a superuser may');
is(($superusers->finish)[0], '57014', 'and it is cancelled');
like(of($signaler, 'cancel', $holder->pid), qr/\|f\|nothing to cancel: process \d+ \(user owner, .*, idle for \d+ s\) runs no statement$/, 'an idle session has nothing to cancel');

# A root that is idle in its transaction, and who waits for it
$holder->sql(q{SET application_name = 'nightly'; CREATE TABLE t (id int, v int); INSERT INTO t VALUES (1, 0); BEGIN; UPDATE t SET v = 1});
$db->sees_waiting($_, 'UPDATE t SET v = 2') for @waiters;
my ($root, $waiter) = ($holder->pid, $waiters[1]->pid);
for my $function (qw(cancel terminate))
{
    like(of($signaler, $function, $waiter), qr/^$waiter\|f\|nothing was done: process $waiter is not a root blocker, because it waits for a lock itself; its root is process $root: SELECT \* FROM pgscale\.$function\($root\); to end the waiting one: SELECT pg_${function}_backend\($waiter\)$/,
        "$function: not one that waits");
}
like(of($signaler, 'cancel', $root),
    qr/^$root\|f\|nothing to cancel: process $root \(user owner, application nightly, idle in transaction for \d+ s\) runs no statement; to end its transaction, use pgscale\.terminate\($root\); 2 transactions waited for it$/,
    'to cancel a session that is idle in a transaction does nothing');
is($holder->sql('SELECT v FROM t'), 1, 'so it goes on');
like(of($signaler, 'terminate', "$waiter, root => true"),
    qr/^$root\|t\|terminated process $root \(user owner, application nightly, idle in transaction for \d+ s\); 2 transactions waited for it$/,
    'the root of one that waits');
is(($_->finish)[0], '00000', 'who waits no more') for @waiters;
is($db->sql("SELECT count(*) FROM pg_stat_activity WHERE pid = $root"), 0, 'and the root is gone');
like(of($signaler, $_, $root), qr/^$root\|f\|nothing to $_: there is no process $root, or it has ended$/, "$_: which is no error") for qw(cancel terminate);
is(of($signaler, 'terminate', 'NULL'), '||', 'nothing of nothing');
like(of($signaler, 'terminate', -1), qr/^-1\|f\|nothing to terminate/, 'nor of what is no pid');

# A statement that runs and blocks others
my $runner = $owner->();
$runner->start('BEGIN; LOCK t; SELECT pg_sleep(600)');
$db->poll_ok('SELECT count(*) FROM pgscale.wait_current WHERE pid = ' . $runner->pid . q{ AND event = 'PgSleep'}, 'a statement runs', 1);
$db->sees_waiting($waiters[0], 'SELECT count(*) FROM t');
like(of($signaler, 'cancel', $waiters[0]->pid . ', true'), qr/^@{[ $runner->pid ]}\|t\|cancelled the statement of process .*, active for \d+ s\); 1 transaction waited for it$/, 'is cancelled');
is(($runner->finish)[0], '57014', 'and says so');
is(($waiters[0]->finish)[1], 1, 'and who waited goes on');
like(of($signaler, 'terminate', $runner->pid), qr/\|t\|terminated process/, 'one that waits for nothing, and nothing for it');

# The next transaction, and the next statement: the caller is held up, in its look for the name of the owner, before it acts
sub held_up
{
    my ($call, $go_on) = @_;
    my $caller = session($node, user => 'signaler');

    is(of($caller, $_, -1) =~ /nothing to/, 1, "$_ is known") for qw(cancel terminate);
    $db->sql('BEGIN; LOCK pg_authid');
    $caller->start("SELECT * FROM pgscale.$call");
    $db->poll_ok(q{SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'pg_authid'::regclass AND pid = } . $caller->pid,
        "$call is held up", 1);
    $go_on->();
    $db->sql('ROLLBACK');
    return ($caller->finish)[1];
}
$holder = $owner->();
$holder->sql('BEGIN; UPDATE t SET v = 3');
$db->sees_waiting($waiters[0], 'UPDATE t SET v = 4');
like(held_up('terminate(' . $holder->pid . ')', sub { $holder->sql($_) for 'COMMIT', 'BEGIN', 'SELECT 1'; }),
    qr/\|f\|nothing was done: process @{[ $holder->pid ]} .* has gone on to something else meanwhile$/, 'a root is not terminated in its next transaction');
$waiters[0]->finish;
is($holder->sql('SELECT 1; COMMIT'), 1, 'it goes on');
$holder->start('SELECT pg_sleep(600)');
$db->poll_ok('SELECT count(*) FROM pgscale.wait_current WHERE pid = ' . $holder->pid . q{ AND event = 'PgSleep'}, 'a statement', 1);
like(held_up('cancel(' . $holder->pid . ')', sub {
    $db->sql('SELECT pg_cancel_backend(' . $holder->pid . ')');
    is(($holder->finish)[0], '57014', 'it ends');
    $holder->start('SELECT pg_sleep(600)');
    $db->poll_ok('SELECT count(*) FROM pgscale.wait_current WHERE pid = ' . $holder->pid . q{ AND event = 'PgSleep'}, 'another begins', 1);
}), qr/\|f\|nothing was done: process .* has gone on to something else meanwhile$/, 'the next statement is not cancelled');
like(of($signaler, 'cancel', $holder->pid), qr/\|t\|cancelled the statement/, 'which is cancelled when it is named');
is(($holder->finish)[0], '57014', 'indeed');
like(held_up('terminate(' . $holder->pid . ')', sub { $holder->sql('SELECT 1') }),
    qr/\|f\|nothing was done: process @{[ $holder->pid ]} .*, idle for \d+ s\) has gone on to something else meanwhile$/, 'an idle session is not terminated when it has work');

# A parallel worker stands for its leader
my $setting = $db->sql(q{SELECT name FROM pg_settings WHERE name IN ('debug_parallel_query', 'force_parallel_mode')});
my $leader = $owner->();
$leader->sql("SET $setting = on");
$leader->start('SELECT pg_sleep(600)');
my $workers = 'SELECT pid FROM pg_stat_activity WHERE leader_pid = ' . $leader->pid;
$db->poll_ok("SELECT count(*) FROM ($workers) w", 'a parallel worker', 1);
like(of($signaler, 'cancel', $db->sql($workers)), qr/^@{[ $leader->pid ]}\|t\|cancelled the statement of process @{[ $leader->pid ]} /, 'its leader is cancelled');
is(($leader->finish)[0], '57014', 'indeed');

# A prepared transaction has no process
$waiters[1]->sql(q{BEGIN; UPDATE t SET v = 5; PREPARE TRANSACTION 'p'});
$db->sees_waiting($waiters[0], 'UPDATE t SET v = 6');
like(of($signaler, 'terminate', $waiters[0]->pid . $_), qr/^@{[ $waiters[0]->pid ]}\|f\|nothing was done: the root blocker of process \d+ is a prepared transaction; to end it: COMMIT PREPARED or ROLLBACK PREPARED with the gid of transaction \d+ in pg_prepared_xacts$/,
    "a prepared transaction$_") for '', ', true';

# Many at once: what has become of each, and an error for one that may not be ended
my @pool = map { $owner->() } 1 .. 2;
my $many = join ', ', map { '(' . $_ . ')' } $waiters[0]->pid, $pool[0]->pid, 2147483647, $pool[1]->pid;
is($signaler->sql("SELECT t.done FROM (VALUES $many) s(pid), pgscale.terminate(s.pid) t"), "f\nt\nf\nt", 'many sessions, of which one waits and one is not there');
# as far as they still idle when their turn comes
@pool = map { $owner->() } 1 .. 3;
$pool[1]->sql('BEGIN');
$many = join ', ', map { '(' . $_->pid . ')' } @pool;
is($signaler->sql("SELECT t.done, t.what LIKE 'nothing was done: % is not idle' FROM (VALUES $many) s(pid), pgscale.terminate(s.pid, idle => true) t"),
    "t|f\nf|t\nt|f", 'one that has begun a transaction is left alone');
is($pool[1]->sql('COMMIT; SELECT 1'), 1, 'it goes on');
$db->sql(q{ROLLBACK PREPARED 'p'});
$waiters[0]->finish;

# What is no session
my $pid_of = sub { $db->sql("SELECT pid FROM pg_stat_activity WHERE backend_type = '$_[0]'") };
my $walsender = session($node, user => "$me replication=database");
is($db->sql('SELECT backend_type FROM pg_stat_activity WHERE pid = ' . $walsender->pid), 'walsender', 'a walsender');
for my $function (qw(cancel terminate))
{
    refused_ok($db, "$function(" . $walsender->pid . ')', '42809', qr/it is a walsender/, qr/Stop the standby/);
    refused_ok($db, "$function(" . $pid_of->('pgscale sampler') . ')', '42809', qr/it is a worker of pgscale/, qr/Switch off its feature/);
    refused_ok($db, "$function(" . $pid_of->('logical replication launcher') . ')', '42809', qr/it is a background worker/, qr/subscription/);
    refused_ok($db, "$function(" . $pid_of->('checkpointer') . ')', '42809', qr/it is a server process \(checkpointer\)/, qr/Only sessions/);
    refused_ok($db, "$function(" . $db->pid . ')', '22023', qr/it is this session/, qr/ROLLBACK/);
}
is($db->sql('SELECT count(*) FROM pg_stat_activity WHERE pid = ' . $walsender->pid), 1, 'the walsender is there');

# An autovacuum worker that prevents wraparound, which waits for a table
$db->sql('ALTER SYSTEM SET autovacuum = on; SELECT pg_reload_conf()');
my $lock = session($node);
$lock->sql('BEGIN; LOCK t IN SHARE UPDATE EXCLUSIVE MODE');
$db->sql('SET synchronous_commit = off');
$db->sql(q{DO $$ BEGIN FOR i IN 1..110000 LOOP PERFORM pg_current_xact_id(); COMMIT; END LOOP; END $$});
my $vacuums = q{SELECT a.pid FROM pg_stat_activity a JOIN pg_locks l USING (pid) WHERE a.backend_type = 'autovacuum worker' AND NOT l.granted AND a.query ~ 'wraparound'};
in_time_ok(sub { $db->sql($vacuums) ne '' }, 'autovacuum prevents wraparound');
my $vacuum = (split /\n/, $db->sql($vacuums))[0];
refused_ok($db, "$_($vacuum)", '42809', qr/it is an autovacuum worker that prevents transaction ID wraparound/, qr/Let it finish/) for qw(cancel terminate);
like(of($db, 'terminate', "$vacuum, true"), qr/^@{[ $lock->pid ]}\|t\|terminated process /, 'but what it waits for can be ended');

$node->stop('fast');
done_testing();
