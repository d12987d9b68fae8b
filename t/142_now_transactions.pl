# Transactions that fail, that are forgotten, and sessions that are refused, on a real server; and what is healthy and looks alike.
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

sub cure { return $monitor->sql(qq{SELECT cure FROM pgscale.diagnosis() WHERE rule = '$_[0]'}) }

# Consumes that many transaction IDs, each by a subtransaction
sub age
{
    $db->sql(<<"EOC");
DO \$\$
BEGIN
    FOR i IN 1 .. $_[0] LOOP
        BEGIN
            INSERT INTO ids VALUES (1);
        EXCEPTION WHEN division_by_zero THEN
            RAISE;
        END;
    END LOOP;
END
\$\$
EOC
    return;
}

### The screen has the commits of the last seconds

$db->sql('UPDATE t SET v = v + 1 WHERE id = 1') for 1 .. 20;
until_true(sub { $monitor->sql('SELECT string_agg(now, chr(10)) FROM pgscale.now') =~ /^  commits a second +\d+([.]\d)?.*now: last \d+ s/m });
like($monitor->sql('SELECT string_agg(now, chr(10)) FROM pgscale.now'), qr/^  commits a second +\d+([.]\d)?.*now: last \d+ s/m, 'commits a second are on the screen');
is(cure('failing_transactions'), '', 'no transaction fails');

### Clients that fail

{
    my $dir = $node->basedir;
    append_to_file("$dir/fail.sql", "\\set id random(1, 10)\nBEGIN;\nUPDATE t SET v = v + 1 WHERE id = :id;\nROLLBACK;\n");
    append_to_file("$dir/work.sql", "\\set id random(1, 10)\nUPDATE t SET v = v + 1 WHERE id = :id;\n");
    my $load = sub { return IPC::Run::start([ 'pgbench', '-n', '-c', 2, '-T', 600, '-R', 40, '-f', "$dir/$_[0].sql", $node->connstr('postgres') ], '>&', \my $said) };
    my $end = sub { $_[0]->signal('TERM'); $_[0]->finish };
    my $work = $load->('work');
    $db->poll_ok(q{SELECT (pgscale_internal.now_counts()->'recent'->>'commits')::int > 100}, 'a load that does not fail');
    is(finding('failing_transactions'), '', 'is healthy');
    $end->($work);
    my $fail = $load->('fail');
    found_ok('failing_transactions', qr/^(low|medium)\|\d+ transactions a second are rolled back, ([5-9]\d|100) % of all/, 'most of them fail');
    $monitor->sql(cure('failing_transactions'));
    $end->($fail);
}

### A prepared transaction, a slot, a session

$db->sql('CREATE TABLE ids (i int)');
$db->sql(q{BEGIN; UPDATE t SET v = 1 WHERE id = 2; PREPARE TRANSACTION 'left over'});
age(100_100);
is(finding('forgotten_xmin'), '', 'a prepared transaction is not forgotten at once');
# a minute that does not pass
my $later = sub { return $db->sql(qq{SELECT concat_ws('|', certainty, pid, sentence, cure) FROM pgscale_internal.now_findings(
    pgscale_internal.now_evidence() || '{"xmin_s": 60}') WHERE rule = 'forgotten_xmin'}) };
like($later->(), qr/^medium\|The prepared transaction 'left over' keeps VACUUM from the dead rows of \d{6,} transactions, for 60 s\|.*gid = 'left over'/, 'but after a minute');
$db->sql(q{ROLLBACK PREPARED 'left over'});
is($db->sql('SELECT pgscale_internal.now_horizon()'), '', 'and it is gone');
my $idle = session($node);
my $pid = $idle->pid;
$idle->sql(q{SET application_name = 'forgotten'; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t});
age(100_100);
like($later->(), qr/^medium\|$pid\|The idle transaction of pid $pid, forgotten keeps VACUUM from the dead rows of \d{6,} transactions, for 60 s\|SELECT pgscale[.]terminate[(]$pid[)]$/, 'an idle transaction with a snapshot');
$idle->sql('COMMIT');
$db->sql(q{SELECT pg_create_logical_replication_slot('consumer', 'pgoutput')});
age(100_100);
found_ok('forgotten_xmin', qr/^medium\|The unused replication slot consumer keeps VACUUM from the dead rows of \d{6,} transactions$/, 'a slot without a consumer');
$monitor->sql(cure('forgotten_xmin'));
$db->sql(q{SELECT pg_drop_replication_slot('consumer')});
is(finding('forgotten_xmin'), '', 'and it is gone, too');
$idle->sql('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t');
$idle->quit;

### Limits of connections

$db->sql('CREATE ROLE "Shop" LOGIN CONNECTION LIMIT 2');
my @clients = map { session($node, user => 'Shop') } 1 .. 2;
found_ok('connection_limit', qr/^low\|All 2 connections that role Shop may have are used, 2 of them idle: another one is refused$/, 'a pool that has all it may have');
$_->sql('BEGIN') for @clients;
found_ok('connection_limit', qr/^medium\|All 2 .* 0 of them idle/, 'and uses them');
is(cure('connection_limit'), 'ALTER ROLE "Shop" CONNECTION LIMIT 4', 'its cure');
$db->sql(cure('connection_limit'));
is(finding('connection_limit'), '', 'cures it');
$db->sql('ALTER DATABASE postgres CONNECTION LIMIT 3');
found_ok('connection_limit', qr/that database postgres may have/, 'a database');
$db->sql('ALTER DATABASE postgres CONNECTION LIMIT -1');
is(finding('connection_limit'), '', 'without a limit');

$_->quit for @clients, $monitor, $db;
$node->stop;
done_testing();
