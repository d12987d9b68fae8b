# Moves among people who wish each other no good: names that were planted where the library looks, what messages tell to whom,
# copies of databases, and what must not be held up by a move.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main', conf => <<'EOC');
fsync = off
max_worker_processes = 20
max_prepared_transactions = 5
checkpoint_timeout = 1h
allow_in_place_tablespaces = on
client_min_messages = warning
pgscale.relocation_max_transaction_age = -1
EOC
my $db = session($node);
$db->sql("CREATE TABLESPACE $_ LOCATION ''") for qw(fast other);
$db->sql(<<'EOQ');
CREATE ROLE mallory LOGIN;
GRANT CREATE ON SCHEMA public TO mallory;
CREATE TABLE t (id int PRIMARY KEY, n int);
INSERT INTO t SELECT i, i FROM generate_series(1, 1000) i;
CREATE INDEX t_n ON t (n);
EOQ

# Asks for a move; the job.
sub ask
{
    my ($call, $session) = @_;

    return ($session // $db)->sql("SELECT * FROM pgscale.$call");
}

# Waits until a job has the expected values; a test.
sub job_ok
{
    my ($job, $columns, $expected, $name, $session) = @_;
    $session //= $db;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return $session->poll_ok("SELECT $columns FROM pgscale.relocation_jobs WHERE job = $job", $name, $expected)
      || !diag $session->sql('SELECT row_to_json(j) FROM pgscale.relocation_jobs j WHERE job = ' . $job);
}

# Has jobs started, or not: returns when the launcher knows, and no worker may take one that does not know yet.
sub launching
{
    my $on = shift;

    $db->set('pgscale.relocation', $on);
    until_true(sub { $db->sql("SELECT enabled = '$on' AND (enabled OR NOT EXISTS (SELECT FROM pg_stat_activity
        WHERE backend_type = 'pgscale relocation worker')) FROM pgscale.health WHERE feature = 'relocation'") eq 't' })
      or die "pgscale.relocation is not $on";
    return;
}

sub elsewhere { my $index = shift; return $db->sql("SELECT CASE spcname WHEN 'fast' THEN 'other' ELSE 'fast' END FROM pg_class c
    LEFT JOIN pg_tablespace s ON s.oid = c.reltablespace WHERE c.oid = '$index'::regclass"); }

### Planted names

# What mallory plants makes him a superuser when one runs it.
my $spring = q{LANGUAGE plpgsql AS $$BEGIN EXECUTE 'ALTER ROLE mallory SUPERUSER'; RETURN %s; END$$};
sub unharmed
{
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    is($db->sql(q{SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'}), 'f', 'nothing that was planted has run as a superuser');
    $db->sql('ALTER ROLE mallory NOSUPERUSER');
    return;
}
my $mallory = session($node, user => 'mallory');

# an operator in a schema that the caller looks into before the server's own
$mallory->sql('CREATE FUNCTION public.same("char", "char") RETURNS boolean ' . sprintf($spring, '$1 OPERATOR(pg_catalog.=) $2'));
$mallory->sql('CREATE OPERATOR public.= (LEFTARG = "char", RIGHTARG = "char", FUNCTION = public.same)');
launching('off');
my $careless = session($node);
$careless->sql('SET search_path = public, pg_catalog');
$careless->try(q{SELECT pgscale.relocate_all_indexes('pg_default', 'fast')});
$careless->quit;
unharmed();
$mallory->sql('DROP FUNCTION public.same CASCADE');
$db->sql('SELECT pgscale.relocation_cancel(job) FROM pgscale.relocation_jobs WHERE finished_at IS NULL');
launching('on');

SKIP:
{
    skip 'this server has no amcheck', 8 unless have_module('amcheck');

    # as after pg_upgrade from a server that had it: it lacks what looks up every row
    $db->sql(q{CREATE SCHEMA checks; GRANT USAGE, CREATE ON SCHEMA checks TO mallory});
    $db->sql(q{CREATE EXTENSION amcheck SCHEMA checks VERSION '1.0'});
    $mallory->sql('CREATE FUNCTION checks.bt_index_check(regclass, boolean) RETURNS void ' . sprintf($spring, ''));
    my ($state, $text) = $db->try(q{SELECT pgscale.relocate_index('t_n', 'fast', amcheck => true)});
    is($state, '55000', 'amcheck of an old version is refused');
    like($text, qr/HINT:  ALTER EXTENSION amcheck UPDATE/, 'with a hint');
    $db->sql('SELECT pgscale.relocation_cancel(job) FROM pgscale.relocation_jobs WHERE finished_at IS NULL');
    $db->poll_ok('SELECT count(*) FROM pgscale.relocation_jobs WHERE finished_at IS NULL', 'no job is left', 0);
    unharmed();

    # it gets old while the job is in the queue
    $db->sql('DROP EXTENSION amcheck; DROP FUNCTION checks.bt_index_check(regclass, boolean); CREATE EXTENSION amcheck SCHEMA checks');
    launching('off');
    my $job = ask("relocate_index('t_n', '" . elsewhere('t_n') . "', amcheck => true)");
    $db->sql(q{DROP EXTENSION amcheck; CREATE EXTENSION amcheck SCHEMA checks VERSION '1.0'});
    $mallory->sql('CREATE FUNCTION checks.bt_index_check(regclass, boolean) RETURNS void ' . sprintf($spring, ''));
    launching('on');
    job_ok($job, 'state, sqlstate', 'failed|55000', 'nor is it called when it has become old');
    unharmed();
    $db->sql('DROP EXTENSION amcheck; DROP SCHEMA checks CASCADE; CREATE EXTENSION amcheck');
    $job = ask("relocate_index('t_n', '" . elsewhere('t_n') . "', amcheck => true, prewarm => false)");
    job_ok($job, 'state, sqlstate', 'done|', 'the right one is');
}
SKIP:
{
    skip 'this server has no pg_stat_statements', 2 unless have_module('pg_stat_statements');

    $db->sql(q{CREATE EXTENSION pg_stat_statements VERSION '1.4'});
    my ($state, $text) = $db->try('SELECT * FROM pgscale.query_waits');
    is($state, '55000', 'pg_stat_statements of an old version');
    like($text, qr/HINT:  Run ALTER EXTENSION pg_stat_statements UPDATE/, 'gets a hint');
    $db->sql('DROP EXTENSION pg_stat_statements');
}
$mallory->quit;

$db->quit;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, 'nothing crashed');
$node->stop;
done_testing();
