# pgscale.sampler_nested: waits count for the statement within a function, and neither errors nor dead sessions leave traces.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main', conf => <<'EOC');
pgscale.sampler_nested = on
pgscale.sampler_period = 2
max_connections = 8
max_worker_processes = 16
EOC
my $db = session($node);
my $other = session($node);

# Each function's statement has a shape of its own, so that it can be told by its identifier.
$db->sql(<<'EOQ');
CREATE TABLE zero AS SELECT 0 AS i;
CREATE TABLE written (i int);
CREATE FUNCTION plain() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_sleep(0.1);
    RETURN 1;
END $$;
CREATE FUNCTION deep() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    PERFORM plain();
    PERFORM pg_sleep(0.1), 1;
    RETURN 1;
END $$;
-- evaluated without a statement of its own, after one that had
CREATE FUNCTION behind() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    PERFORM count(*) FROM pg_class;
    IF pg_sleep(0.1) IS NULL THEN
        RETURN 0;
    END IF;
    RETURN 1;
END $$;
CREATE FUNCTION failing() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_sleep(0.1), 1 / i FROM zero;
    RETURN 1;
END $$;
CREATE FUNCTION catching() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        PERFORM failing();
        RETURN 0;
    EXCEPTION WHEN division_by_zero THEN
        PERFORM pg_sleep(0.1), 1, 2;
    END;
    IF pg_sleep(0.1) IS NULL THEN
        RETURN 0;
    END IF;
    RETURN 1;
END $$;
CREATE FUNCTION on_write() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_sleep(0.1), 1, 2, 3;
    RETURN NULL;
END $$;
CREATE TRIGGER on_write AFTER INSERT ON written FOR EACH STATEMENT EXECUTE FUNCTION on_write();
CREATE FUNCTION utility() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    LOCK TABLE written IN SHARE MODE;
    RETURN 1;
END $$;
CREATE FUNCTION forever() RETURNS int LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_sleep(600.0), 1, 2, 3, 4;
    RETURN 1;
END $$;

CREATE TABLE statement (queryid bigint PRIMARY KEY, name text);
-- the statements that waited for something: their names, or what else is known of them
CREATE FUNCTION waiting(what text) RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(name, ', ' ORDER BY name COLLATE "C")
      FROM (SELECT DISTINCT coalesce(s.name, p.queryid::text, 'none')
              FROM pgscale.wait_profile p LEFT JOIN statement s USING (queryid)
             WHERE p.event = what) AS waiting (name)
$$;
EOQ
for (
    [ plain => 'SELECT pg_sleep(0.0)' ],
    [ deep => 'SELECT pg_sleep(0.0), 1' ],
    [ failing => 'SELECT pg_sleep(0.0), 1 / i FROM zero' ],
    [ recovery => 'SELECT pg_sleep(0.0), 1, 2' ],
    [ trigger => 'SELECT pg_sleep(0.0), 1, 2, 3' ],
    [ forever => 'SELECT pg_sleep(0.0), 1, 2, 3, 4' ])
{
    $other->try($_->[1]);
    $db->sql("INSERT INTO statement VALUES (" . $db->queryid($other) . ", '$_->[0]')");
}

# Runs a statement and tells which ones slept; again where the sampler had no CPU while some did, but not where others did.
sub slept_in
{
    my ($text, $expected) = @_;
    my %expected = map { $_ => 1 } split /, /, $expected =~ s/.*: //r;
    my $slept;

    until_true(sub {
        $slept = sleep_once($text);
        my @slept = split /, /, $slept =~ s/.*: //r;
        return @slept == keys %expected || grep { !$expected{$_} } @slept;
    });
    return $slept;
}

sub slept_ok
{
    my ($text, $expected, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return is(slept_in($text, $expected), $expected, $name);
}

sub sleep_once
{
    my $text = shift;

    $db->sql('SELECT pgscale.reset($$sampler$$)');
    my ($state) = $other->try($text);
    $db->sql('INSERT INTO statement VALUES (' . $db->queryid($other) . ", 'itself') ON CONFLICT DO NOTHING");
    my $slept = $db->sql(q{SELECT coalesce(waiting('PgSleep'), '')});
    $db->sql("DELETE FROM statement WHERE name = 'itself'");
    return $state eq '00000' ? $slept : "$state: $slept";
}

slept_ok('SELECT plain()', 'plain', 'a nested statement');
slept_ok('SELECT deep()', 'deep, plain', 'one nested twice, and its outer one afterwards');
slept_ok('SELECT behind()', 'itself', 'behind a nested statement, the outer one again');
slept_ok('INSERT INTO written VALUES (1)', 'trigger', 'a trigger');
slept_ok('DO $$ BEGIN PERFORM pg_sleep(0.1); END $$', 'plain', 'within DO');
$other->sql('PREPARE p AS SELECT pg_sleep(0.1), 1, 2, 3, 4, 5');
slept_ok('EXECUTE p', 'itself', 'EXECUTE is no level of its own');

slept_ok('SELECT catching()', 'failing, itself, recovery', 'an error that is caught');
slept_ok('SELECT pg_sleep(0.1), 0, 0, 0, 0, 0, 0', 'itself', 'and the next statement');
slept_ok('SELECT failing()', '22012: failing', 'an error that is not caught');
slept_ok('SELECT pg_sleep(0.1), 0, 0, 0, 0, 0, 0', 'itself', 'and the next statement');
slept_ok('SELECT behind()', 'itself', 'and the one after that');
slept_ok('SELECT deep()', 'deep, plain', 'and nested ones');

# Parallel workers count for the nested statement that their leader is in.
$db->sql(q{CREATE FUNCTION nap(int) RETURNS boolean LANGUAGE plpgsql PARALLEL SAFE AS 'BEGIN PERFORM pg_sleep(0.02); RETURN true; END';
    CREATE TABLE few (i int, filler text); ALTER TABLE few ALTER filler SET STORAGE PLAIN, SET (parallel_workers = 2);
    INSERT INTO few SELECT i, repeat('x', 2000) FROM generate_series(1, 40) i;
    CREATE FUNCTION naps() RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM count(*) FROM few WHERE nap(i); END'});
$other->sql('SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0');
$other->sql('SET max_parallel_workers_per_gather = 2');
my $workers = q{SELECT string_agg(DISTINCT coalesce(queryid::text, 'none'), ' ') FROM pgscale.wait_profile() WHERE backend_type = 'parallel worker' AND event = 'PgSleep'};
until_ok(sub {
    $db->sql('SELECT pgscale.reset($$sampler$$)');
    $other->sql('SELECT naps()');
    return $db->sql($workers) ne '';
}, 'parallel workers in a nested statement');
isnt($db->sql($workers), $db->queryid($other), 'their waits do not count for the outer one');

# wait_current tells what is to be seen in pg_stat_activity, in any case
$other->start('SELECT forever()');
$db->poll_ok(q{SELECT waiting('PgSleep') LIKE '%forever%'}, 'a session within a nested statement');
is($db->sql('SELECT c.queryid = a.query_id FROM pg_stat_activity a, pgscale.wait_current(a.pid) c
    WHERE a.pid = ' . $other->pid), 't', 'wait_current tells the top-level one');

# It dies there, and sessions take all places, its own included.
$db->sql('SELECT pg_terminate_backend(' . $other->pid . ')');
$db->poll_ok('SELECT count(*) FROM pg_stat_activity WHERE pid = ' . $other->pid, 'that session is ended', 0);
$db->sql('SELECT pgscale.reset($$sampler$$)');
my $script = "$PostgreSQL::Test::Utils::tmp_check/behind.sql";
PostgreSQL::Test::Utils::append_to_file($script, "SELECT behind();\n");
$node->command_ok([ 'pgbench', '-n', '-c', 7, '-t', 1, '-f', $script, 'postgres' ], 'new sessions in all places');
$other = session($node);
$other->sql('SELECT behind()');
$db->sql('INSERT INTO statement VALUES (' . $db->queryid($other) . ", 'behind')");
is($db->sql(q{SELECT waiting('PgSleep')}), 'behind', 'do not inherit the statement of the one that was there before');

# A lock in a nested utility statement
$db->sql('BEGIN; LOCK TABLE written IN ROW EXCLUSIVE MODE');
$other->start('SELECT utility()');
$db->poll_ok(q{SELECT max(samples) > 3 FROM pgscale.wait_profile() WHERE event = 'relation' AND queryid IS NOT NULL},
    'a wait for a lock');
$db->sql('ROLLBACK');
$other->finish;
$other->sql("BEGIN;\nLOCK TABLE written IN SHARE MODE");
my $lock = $db->queryid($other);
$other->sql('ROLLBACK');
is($db->sql(q{SELECT string_agg(DISTINCT queryid::text, ' ') FROM pgscale.wait_profile WHERE event = 'relation'}), $lock,
    'in a nested utility statement');

$node->stop;
done_testing();
