# Transactions that fail, that are forgotten, and sessions that are refused, on a real server; and what is healthy and looks alike.
# Waits for long.
use strict;
use warnings;
use IPC::Run;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main', init => [ allows_streaming => 1 ], conf => <<'EOC');
max_connections = 60
max_prepared_transactions = 2
wal_level = logical
autovacuum = off
EOC
my $db = session($node);
$db->sql('CREATE ROLE monitor LOGIN IN ROLE pg_monitor');
$db->sql('CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 10) i');
my $monitor = session($node, user => 'monitor');

sub finding { return $monitor->sql(qq{SELECT concat_ws('|', certainty, pid, sentence) FROM pgscale.diagnosis() WHERE rule = '$_[0]'}) }

sub found_ok
{
    my ($rule, $expected, $name) = @_;
    my $found = '';
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    until_true(sub { ($found = finding($rule)) =~ $expected });
    like($found, $expected, $name);
    return;
}

# Findings about locks, whatever their certainty
sub locks
{
    return $monitor->sql(q{SELECT string_agg(concat_ws('|', rule, certainty, sentence), chr(10)) FROM pgscale.diagnosis()
        WHERE rule IN ('blocker', 'hot_row', 'hot_lock', 'advisory_lock', 'deadlocks')});
}

sub cure { return $monitor->sql(qq{SELECT cure FROM pgscale.diagnosis() WHERE rule = '$_[0]'}) }

### What will be forgotten in a minute; the oldest is none of it: the leader of a parallel dump

$db->sql('CREATE TABLE ids (i int)');
$db->sql(q{SELECT pg_create_logical_replication_slot('consumer', 'pgoutput')});
my $leader = session($node);
my $snapshot = $leader->sql('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_export_snapshot()');
my $dump = session($node);
$dump->sql("BEGIN ISOLATION LEVEL REPEATABLE READ; SET TRANSACTION SNAPSHOT '$snapshot'");
$dump->start('SELECT count(*) FROM t, pg_sleep(3600)');
my $idle = session($node);
my $pid = $idle->pid;
$idle->sql(q{SET application_name = 'forgotten'; BEGIN; UPDATE t SET v = 1 WHERE id = 10});
$db->sql(q{BEGIN; UPDATE t SET v = 1 WHERE id = 9; PREPARE TRANSACTION 'left over'});
$db->sql(q{DO $$ BEGIN FOR i IN 1 .. 100100 LOOP BEGIN INSERT INTO ids VALUES (1); EXCEPTION WHEN division_by_zero THEN NULL; END; END LOOP; END $$});

### The screen has the commits of the last seconds

$db->sql('UPDATE t SET v = v + 1 WHERE id = 1') for 1 .. 20;
until_true(sub { $monitor->sql('SELECT string_agg(now, chr(10)) FROM pgscale.now') =~ /^  commits a second +\d+([.]\d)?.*now: last \d+ s/m });
like($monitor->sql('SELECT string_agg(now, chr(10)) FROM pgscale.now'), qr/^  commits a second +\d+([.]\d)?.*now: last \d+ s/m, 'commits a second are on the screen');
is(cure('failing_transactions'), '', 'no transaction fails');

### Clients that fail

{
    my $dir = $node->basedir;
    append_to_file("$dir/fail.sql", "\\set id random(1, 8)\nBEGIN;\nUPDATE t SET v = v + 1 WHERE id = :id;\nROLLBACK;\n");
    append_to_file("$dir/work.sql", "\\set id random(1, 8)\nUPDATE t SET v = v + 1 WHERE id = :id;\n");
    my $load = sub {
        my ($script, @more) = @_;
        return IPC::Run::start([ 'pgbench', '-n', '-c', 2, '-T', 600, '-R', 40, @more, '-f', "$dir/$script.sql",
                $node->connstr('postgres') ], '>&', \my $said);
    };
    my $end = sub { $_[0]->signal('TERM'); $_[0]->finish };
    my $work = $load->('work');
    $db->poll_ok(q{SELECT (pgscale_internal.now_counts()->'recent'->>'commits')::int > 20}, 'a load that does not fail');
    is(finding('failing_transactions'), '', 'is healthy');
    $end->($work);
    $db->sql('CREATE TABLE queue AS SELECT i AS id, false AS done FROM generate_series(1, 100000) i');
    $db->sql('ALTER TABLE queue ADD PRIMARY KEY (id)');
    append_to_file("$dir/queue.sql", "BEGIN;\nSELECT id FROM queue WHERE NOT done ORDER BY id LIMIT 1 FOR UPDATE SKIP LOCKED"
            . " \\gset\n\\sleep 20 ms\nUPDATE queue SET done = true WHERE id = :id;\nCOMMIT;\n");
    my $pool = $load->('queue', '-c', 8, '-R', 400);
    my $found = '';
    until_ok(sub {
        $found ||= locks();
        return $found || $db->sql('SELECT count(*) > 500 FROM queue WHERE done') eq 't';
    }, 'workers take rows with SKIP LOCKED');
    is($found, '', 'and wait for none');
    $end->($pool);
    my $fail = $load->('fail');
    found_ok('failing_transactions', qr/^(low|medium)\|\d+ transactions a second are rolled back, ([5-9]\d|100) % of all/, 'most of them fail');
    $monitor->sql(cure('failing_transactions'));
    $end->($fail);
}

### Deadlocks, which are no row that is hot

sub deadlock_load
{
    my $dir = $node->basedir;

    append_to_file("$dir/deadlock.sql", "\\set pair 2 * random(0, 1)\n\\set first random(1, 2)\nBEGIN;\nUPDATE t SET v = v + 1 WHERE id = :pair + :first;\n"
            . "UPDATE t SET v = v + 1 WHERE id = :pair + 3 - :first;\nCOMMIT;\n");
    return IPC::Run::start([ 'pgbench', '-n', '-c', 10, '-T', 600, '-f', "$dir/deadlock.sql", $node->connstr('postgres') ], '>&', \my $said);
}
{
    my ($one, $other) = map { session($node) } 0 .. 1;
    $one->sql('BEGIN; UPDATE t SET v = 0 WHERE id = 5');
    $other->sql('BEGIN; UPDATE t SET v = 0 WHERE id = 6');
    $db->sees_waiting($one, 'UPDATE t SET v = 0 WHERE id = 6');
    $other->start('UPDATE t SET v = 0 WHERE id = 5');
    is(join(' ', sort map { ($_->finish)[0] } $one, $other), '00000 40P01', 'a deadlock');
    $_->quit for $one, $other;
    $db->poll_ok(q{SELECT pgscale_internal.now_counts()->'recent'->>'deadlocks'}, 'is counted', 1);
    is(locks(), '', 'and nothing to mind');
    my $load = deadlock_load();
    found_ok('deadlocks', qr/^high\|\d+[.]\d deadlocks a second, each of up to 1 s, hold up \d+[.]\d of the \d+[.]\d lock waits/, 'many of them');
    my ($first, $rows);
    until_true(sub {
        ($first, $rows) = split /\|/, $monitor->sql(q{WITH d AS MATERIALIZED (SELECT * FROM pgscale.diagnosis())
            SELECT (SELECT concat(rule, ' ', certainty) FROM d WHERE rank = 1), (SELECT count(*) FROM d WHERE rule = 'hot_row')});
        return $first eq 'deadlocks high';
    });
    is("$first, $rows", 'deadlocks high, 0', 'they are the first line, and no row is hot');
    $monitor->sql(cure('deadlocks'));
    $load->signal('TERM');
    $load->finish;
    until_true(sub { finding('deadlocks') eq '' });
    is(finding('deadlocks'), '', 'no more of them');
}

### A change of a setting, on the screens of roles that may take it back and that may not

my ($change) = $db->sql("SET client_min_messages = error; CALL pgscale.set('work_mem', '5MB', true)") =~ /(\d+)\s*\z/;
my $screen = 'SELECT string_agg(now, chr(10)) FROM pgscale.now';
like($db->sql($screen), qr/^CALL pgscale[.]revert\($change, true\) takes back: work_mem from 4MB to 5MB, /m, 'a superuser takes a change back');
like($monitor->sql($screen), qr/^CALL pgscale[.]revert\($change, true\) \(superuser\) takes back: work_mem from 4MB to 5MB, /m, 'and no other role');

### Limits of connections

$db->sql('CREATE ROLE "Shop" LOGIN CONNECTION LIMIT 4');
my @clients = map { session($node, user => 'Shop') } 1 .. 4;
found_ok('connection_limit', qr/^low\|All 4 connections that role Shop may have are used, 4 of them idle: the next one is refused$/, 'a pool that has all it may have');
$_->sql('BEGIN') for @clients;
found_ok('connection_limit', qr/^medium\|All 4 .* 0 of them idle/, 'and uses them');
is(cure('connection_limit'), 'ALTER ROLE "Shop" CONNECTION LIMIT 8', 'its cure');
$db->sql(cure('connection_limit'));
is(finding('connection_limit'), '', 'cures it');

### A lock on the journal of changes does not hold up the screen

my $locker = session($node);
$locker->sql('BEGIN; LOCK TABLE pgscale_internal.tuning_change');
$monitor->sql(q{SET statement_timeout = '20 s'});
cmp_ok($monitor->sql('SELECT count(*) FROM pgscale.now'), '>', 3, 'the screen is there while the journal is locked');
$locker->quit;

### Nor does it write, and wait for a standby, where the journal is not marked as local yet

$db->sql('UPDATE pg_class SET relrewrite = 0 WHERE relrewrite <> 0');
$monitor->sql('BEGIN; SELECT count(*) FROM pgscale.now');
is($monitor->sql('SELECT pg_current_xact_id_if_assigned() IS NULL'), 't', 'a screen takes no transaction ID');
$monitor->sql('COMMIT');

### A slot without a consumer

found_ok('forgotten_xmin', qr/^low\|The unused replication slot consumer keeps VACUUM from the dead rows, or those of catalogs, of \d{6,} transactions$/, 'is the oldest');
is($db->sql(cure('forgotten_xmin') =~ s/SELECT [*]/SELECT slot_name/r), 'consumer', 'its cure finds it');
$db->sql(q{SELECT pg_drop_replication_slot('consumer')});

### A minute has passed

found_ok('forgotten_xmin', qr/^medium\|$pid\|The idle transaction of pid $pid, forgotten keeps VACUUM from the dead rows of \d{6,} transactions, for (\d+ s|\d+ min)$/, 'an idle transaction');
is(cure('forgotten_xmin'), "SELECT pgscale.terminate($pid)", 'its cure');
$db->sql(cure('forgotten_xmin'));
found_ok('forgotten_xmin', qr/^medium\|The prepared transaction 'left over' keeps VACUUM from the dead rows of \d{6,} transactions, for (\d+ s|\d+ min)$/, 'cures it, and a prepared transaction is next');
is($db->sql(cure('forgotten_xmin') =~ s/SELECT [*]/SELECT gid/r), 'left over', 'its cure finds it');
$db->sql(q{ROLLBACK PREPARED 'left over'});
is(finding('forgotten_xmin'), '', 'and the dump is at work');

$_->quit for @clients, $monitor, $leader;
$db->sql('SELECT pg_cancel_backend(' . $dump->pid . ')');
$dump->finish;
$_->quit for $dump, $db;
$node->stop;
done_testing();
