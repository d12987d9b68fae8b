# pgscale.sampler_nested: waits count for the statement within a function, and neither errors nor dead sessions leave traces.
# Runs on each major.
use strict;
use warnings;
use PgscaleSampler;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main', conf => <<'EOC');
pgscale.sampler_nested = on
pgscale.sampler_period = 2
max_connections = 8
max_worker_processes = 16
EOC
my ($db, $other) = map { session($node) } 1, 2;
naps($db, $other);

# Each function's statement has a shape of its own, so that its identifier names it. The one of behind() that sleeps is
# evaluated without a statement of its own, after one that had.
$db->sql(<<'EOQ');
CREATE TABLE zero AS SELECT 0 AS i;
CREATE TABLE written (i int);
CREATE FUNCTION plain() RETURNS int LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_sleep(0.1); RETURN 1; END';
CREATE FUNCTION deep() RETURNS int LANGUAGE plpgsql AS
    'BEGIN PERFORM plain(); PERFORM pg_sleep(0.1), 1; RETURN 1; END';
CREATE FUNCTION behind() RETURNS bool LANGUAGE plpgsql AS
    'BEGIN PERFORM count(*) FROM pg_class; RETURN pg_sleep(0.1) IS NULL; END';
CREATE FUNCTION failing() RETURNS int LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_sleep(0.1), 1 / i FROM zero; RETURN 1; END';
CREATE FUNCTION catching() RETURNS bool LANGUAGE plpgsql AS $$
BEGIN
    BEGIN
        PERFORM failing();
    EXCEPTION WHEN division_by_zero THEN
        PERFORM pg_sleep(0.1), 1, 2;
    END;
    RETURN pg_sleep(0.1) IS NULL;
END $$;
CREATE FUNCTION on_write() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_sleep(0.1), 1, 2, 3; RETURN NULL; END';
CREATE TRIGGER on_write AFTER INSERT ON written FOR EACH STATEMENT EXECUTE FUNCTION on_write();
CREATE FUNCTION utility() RETURNS int LANGUAGE plpgsql AS
    'BEGIN LOCK TABLE written IN SHARE MODE; RETURN 1; END';
CREATE FUNCTION forever() RETURNS int LANGUAGE plpgsql AS
    'BEGIN PERFORM pg_sleep(600.0), 1, 2, 3, 4; RETURN 1; END';
CREATE FUNCTION naps() RETURNS int LANGUAGE plpgsql AS
    'BEGIN PERFORM count(*) FROM lines WHERE nap(i); RETURN 1; END';

CREATE TABLE statement (queryid bigint PRIMARY KEY, name text);
-- the statements that waited for something: their names, or what else is known of them
CREATE FUNCTION waiting(what text) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(name, ', ' ORDER BY name COLLATE "C"), '')
      FROM (SELECT DISTINCT coalesce(s.name, p.queryid::text, 'none')
              FROM pgscale.wait_profile p LEFT JOIN statement s USING (queryid)
             WHERE p.event = what) AS waiting (name)
$$;
EOQ
my %named = (
    plain => 'SELECT pg_sleep(0.0)', deep => 'SELECT pg_sleep(0.0), 1', failing => 'SELECT pg_sleep(0.0), 1 / i FROM zero',
    recovery => 'SELECT pg_sleep(0.0), 1, 2', trigger => 'SELECT pg_sleep(0.0), 1, 2, 3',
    forever => 'SELECT pg_sleep(0.0), 1, 2, 3, 4');
for (sort keys %named)
{
    $other->try($named{$_});
    $db->sql('INSERT INTO statement VALUES (' . $db->queryid($other) . ", '$_')");
}

# Runs a statement and tests which ones slept; again where the sampler had no CPU while some did, but not where others did.
sub slept_ok
{
    my ($text, $expected, $name) = @_;
    my %expected = map { $_ => 1 } split /, /, $expected;
    my $slept;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    until_true(sub {
        $db->sql('SELECT pgscale.reset($$sampler$$)');
        $other->try($text);
        $db->sql('INSERT INTO statement VALUES (' . $db->queryid($other) . ", 'itself') ON CONFLICT DO NOTHING");
        $slept = $db->sql(q{SELECT waiting('PgSleep')});
        $db->sql("DELETE FROM statement WHERE name = 'itself'");
        my @slept = split /, /, $slept;
        return @slept == keys %expected || grep { !$expected{$_} } @slept;
    });
    return is($slept, $expected, $name);
}

slept_ok('SELECT deep()', 'deep, plain', 'one nested twice, and its outer one afterwards');
slept_ok('SELECT behind()', 'itself', 'behind a nested statement, the outer one again');
slept_ok('INSERT INTO written VALUES (1)', 'trigger', 'a trigger');
slept_ok('DO $$ BEGIN PERFORM pg_sleep(0.1); END $$', 'plain', 'within DO');
$other->sql('PREPARE p AS SELECT pg_sleep(0.1), 1, 2, 3, 4, 5');
slept_ok('EXECUTE p', 'itself', 'EXECUTE is no level of its own');

slept_ok('SELECT catching()', 'failing, itself, recovery', 'an error that is caught');
slept_ok('SELECT failing()', 'failing', 'an error that is not caught');
slept_ok('SELECT pg_sleep(0.1), 0, 0, 0, 0, 0, 0', 'itself', 'and the next statement');
slept_ok('SELECT behind()', 'itself', 'and the one after that');
slept_ok('SELECT deep()', 'deep, plain', 'and nested ones');

# Parallel workers count for the nested statement that their leader is in.
my $workers = q{SELECT string_agg(DISTINCT coalesce(queryid::text, 'none'), ' ') FROM pgscale_internal.wait_profile()
    WHERE backend_type = 'parallel worker' AND event = 'PgSleep'};
in_time_ok(sub {
    $db->sql('SELECT pgscale.reset($$sampler$$)');
    $other->sql('SELECT naps()');
    return $db->sql($workers) ne '';
}, 'parallel workers in a nested statement');
isnt($db->sql($workers), $db->queryid($other), 'their waits do not count for the outer one');

# wait_current shows what is to be seen in pg_stat_activity, in any case
$other->start('SELECT forever()');
$db->poll_ok(q{SELECT waiting('PgSleep') LIKE '%forever%'}, 'a session within a nested statement');
is($db->sql('SELECT c.queryid = a.query_id FROM pg_stat_activity a, pgscale.wait_current c
    WHERE c.pid = a.pid AND a.pid = ' . $other->pid), 't', 'wait_current shows the top-level one');

# It dies there, and sessions take all places, its own included.
$db->sql('SELECT pg_terminate_backend(' . $other->pid . ')');
$db->poll_ok('SELECT count(*) FROM pg_stat_activity WHERE pid = ' . $other->pid, 'that session is ended', 0);
$db->sql('SELECT pgscale.reset($$sampler$$)');
my $script = "$PostgreSQL::Test::Utils::tmp_check/behind.sql";
append_to_file($script, "SELECT behind();\n");
in_time_ok(sub {
    $node->run_log([ 'pgbench', '-n', '-c', 7, '-t', 1, '-f', $script, $node->connstr('postgres') ]);
    return $db->sql(q{SELECT waiting('PgSleep')}) ne '';
}, 'new sessions in all places');
$other = session($node);
$other->sql('SELECT behind()');
$db->sql('INSERT INTO statement VALUES (' . $db->queryid($other) . ", 'behind')");
is($db->sql(q{SELECT waiting('PgSleep')}), 'behind', 'do not inherit the statement of the one that was there before');

# A lock in a nested utility statement
$db->sql('BEGIN; LOCK TABLE written IN ROW EXCLUSIVE MODE');
$other->start('SELECT utility()');
$db->poll_ok(q{SELECT max(samples) > 3 FROM pgscale_internal.wait_profile() WHERE event = 'relation' AND queryid IS NOT NULL},
    'a wait for a lock');
$db->sql('ROLLBACK');
$other->finish;
$other->sql("BEGIN;\nLOCK TABLE written IN SHARE MODE");
is($db->sql(q{SELECT string_agg(DISTINCT queryid::text, ' ') FROM pgscale.wait_profile
    WHERE event = 'relation'}), $db->queryid($other),
    'in a nested utility statement');

$node->stop;
done_testing();
