# What the sampler says about sessions of which the truth is known: what they wait for, for how long, and in which
# statement.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main', conf => <<'EOC');
wal_level = replica
max_wal_senders = 2
max_worker_processes = 16
max_parallel_workers = 8
pgscale.sampler_history_period = 1ms
EOC
my $db = session($node);
my $other = session($node);
my $third = session($node);

$db->sql(<<'EOQ');
CREATE TABLE t (i int);
CREATE TABLE lines (i int PRIMARY KEY, filler char(2000));
ALTER TABLE lines ALTER filler SET STORAGE PLAIN, SET (parallel_workers = 2);
INSERT INTO lines SELECT i, 'x' FROM generate_series(1, 100) i;

-- seconds on CPU by the server's clock; the milliseconds that it took
CREATE FUNCTION busy(seconds float8) RETURNS float8 LANGUAGE plpgsql AS $$
DECLARE
    began timestamptz := clock_timestamp();
BEGIN
    WHILE clock_timestamp() < began + seconds * interval '1 s' LOOP
    END LOOP;
    RETURN 1000 * extract(epoch FROM clock_timestamp() - began);
END $$;

-- sleeps until there is a file of this name, which sessions in the midst of a statement can see
CREATE FUNCTION nap(i int) RETURNS int LANGUAGE plpgsql PARALLEL SAFE IMMUTABLE AS $$
BEGIN
    WHILE (pg_stat_file('go_on', true)).size IS NULL LOOP
        PERFORM pg_sleep(0.01);
    END LOOP;
    RETURN i;
END $$;

CREATE FUNCTION naps() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM count(*) FROM lines WHERE nap(i) > 1;
END $$;

-- time and samples of an event, whoever's
CREATE FUNCTION of_event(what text, OUT queryid bigint, OUT backend_type text, OUT samples bigint, OUT wait_ms float8)
RETURNS SETOF record LANGUAGE sql AS $$
    SELECT queryid, backend_type, sum(samples)::bigint, sum(wait_ms) FROM pgscale.wait_profile()
     WHERE what IN (event_type, event_type || ':' || event, event) GROUP BY 1, 2
$$;
EOQ

# A known span of sleep, and one on CPU; what the server measured of itself is the truth. Where the sampler gets no CPU just
# then, it does not see how long a wait was before its first sample and after the last: so again, until it could see it.
my ($sleeper, $burner);
for (
    [ 'Timeout:PgSleep', $other, q{SELECT clock_timestamp() AS began, pg_sleep(1), clock_timestamp()} ],
    [ 'CPU', $third, q{SELECT busy(1)} ])
{
    my ($event, $session, $statement) = @$_;
    my ($queryid, $truth);

    until_ok(sub {
        $db->sql('SELECT pgscale.reset($$sampler$$)');
        $truth = $session->sql($statement);
        $queryid = $db->queryid($session);
        $truth = $db->sql("SELECT 1000 * extract(epoch FROM '$2'::timestamptz - '$1'::timestamptz)") if $truth =~ /(.+)\|\|(.+)/;
        return $db->sql("SELECT abs(wait_ms / $truth - 1) < 0.2 AND samples > 10 FROM of_event('$event')
            WHERE queryid = $queryid AND backend_type = 'client backend'") eq 't';
    }, "$event lasts as long as it did") or diag $db->sql("SELECT $truth, e, s FROM of_event('$event') e, pgscale.sampler_stats s");
    $event eq 'CPU' ? $burner = $queryid : ($sleeper = $queryid);
    next if $event eq 'CPU';
    is($db->sql(q{SELECT datid = (SELECT oid FROM pg_database WHERE datname = current_database()), userid = current_user::regrole
        FROM pgscale.wait_profile() WHERE event = 'PgSleep'}), 't|t', 'with its database and role');
    # one that was taken before the statement was analyzed has no identifier there; the latest may come a moment later than in the profile
    $db->poll_ok("SELECT count(*) = (SELECT samples FROM of_event('PgSleep')), count(DISTINCT pid), min(state) FROM pgscale.wait_history
        WHERE event = 'PgSleep' AND coalesce(queryid, $sleeper) = $sleeper AND pid = " . $other->pid, 'and each sample in the history', 't|1|active');
}
isnt($sleeper, '', 'the sleeper has a query identifier');
isnt($sleeper, $burner, 'which is not that of the burner');

# Idle sessions
# by the process, too: one that is not yet known by its name is not known to idle either
is($db->sql('SELECT count(*) FROM pgscale.wait_profile JOIN pgscale.wait_profile() s USING (backend_type, event_type, event)
    WHERE s.idle'), 0, 'no idle waits');
$db->poll_ok(q{SELECT count(*) > 0 FROM pgscale.wait_profile() WHERE event_type = 'Client' AND event = 'ClientRead'
    AND backend_type = 'client backend' AND queryid IS NULL AND idle}, 'the function has idle sessions');
is($db->sql(q{SELECT count(*) > 0, bool_and(idle) FROM pgscale.wait_profile() WHERE event_type = 'Activity'}), 't|t',
    'and idle server processes');

# A pause that a setting asks for is idle, but not a session's, whose statement takes longer by it
my $pauses = q{event IN ('CheckpointWriteDelay', 'VacuumDelay') AND backend_type IN ('checkpointer', 'client backend')};
$db->sql('CREATE TABLE paused AS SELECT generate_series(1, 3000) AS i');
$other->start(q{SELECT pg_backup_start('paced', false)});
$third->start('SET vacuum_cost_delay = 10; SET vacuum_cost_limit = 1; VACUUM paused; RESET vacuum_cost_delay; RESET vacuum_cost_limit');
$db->poll_ok("SELECT string_agg(DISTINCT concat_ws(' ', backend_type, event, idle), ', ' ORDER BY concat_ws(' ', backend_type, event, idle))
    FROM pgscale.wait_profile() WHERE $pauses", 'pauses', 'checkpointer CheckpointWriteDelay t, client backend VacuumDelay f');
is($db->sql("SELECT DISTINCT event FROM pgscale.wait_profile WHERE $pauses"), 'VacuumDelay', 'those on purpose are not shown');
$db->poll_ok("SELECT string_agg(event, ' ') FROM pgscale_internal.wait_totals() WHERE $pauses", 'nor added up', 'VacuumDelay');
$db->sql('CHECKPOINT');
$other->finish;
$other->sql('SELECT pg_backup_stop(false)');
$third->finish;

# A lock
$db->sql('SELECT pgscale.reset($$sampler$$)');
$other->sql('BEGIN; UPDATE lines SET filler = i WHERE i = 1');
$third->start('UPDATE lines SET filler = 2 * i WHERE i = 1');
$db->poll_ok('SELECT event, queryid IS NOT NULL FROM pgscale.wait_current WHERE pid = ' . $third->pid,
    'wait_current: a lock, with its query', 'transactionid|t');
$db->poll_ok(q{SELECT sum(samples) > 3 FROM of_event('Lock:transactionid')}, 'wait_profile: a lock');
$other->sql('ROLLBACK');
$third->finish;
is($db->sql(q{SELECT DISTINCT queryid FROM of_event('Lock:transactionid')}), $db->queryid($third), 'of the waiting query');

# A wait in parse analysis, before there is an identifier: it is found with the statement afterwards.
$other->sql('BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE');
$third->start('SELECT i AS waited_for FROM t');
$db->poll_ok(q{SELECT samples > 5 FROM of_event('Lock:relation') WHERE queryid IS NULL},
    'a wait in parse analysis has no query yet');
my $before = $db->sql(q{SELECT samples FROM of_event('Lock:relation')});
$other->sql('ROLLBACK');
$third->finish;
my $reader = $db->queryid($third);
$db->poll_ok(q{SELECT count(*) FROM of_event('Lock:relation') WHERE queryid IS NULL}, 'it is moved, and nothing is left', 0);
is($db->sql("SELECT count(*), sum(samples) >= $before FROM of_event('Lock:relation') WHERE queryid = $reader"), '1|t',
    'to the query that it was of');
is($db->sql("SELECT count(*) FROM of_event('Lock:relation')"), 1, 'and to no other');

# Waits for the commit of a single statement
my $insert = 'INSERT INTO t VALUES (1)';
$other->sql($insert);
my $inserter = $db->queryid($other);
my $script = PostgreSQL::Test::Utils::tempdir() . '/insert.sql';
append_to_file($script, "$insert;\n");
for my $protocol ('simple', 'extended', 'prepared')
{
    $db->sql('SELECT pgscale.reset($$sampler$$)');
    $db->sql('ALTER SYSTEM SET synchronous_standby_names = missing');
    $db->sql('SELECT pg_reload_conf()');
    my $output;
    my $pgbench = IPC::Run::start(
        [ 'pgbench', '-n', '-t', 1, '-M', $protocol, '-f', $script, $node->connstr('postgres') ],
        '>&', \$output, IPC::Run::timeout(2 * $PostgreSQL::Test::Utils::timeout_default));
    $db->poll_ok(q{SELECT queryid FROM pgscale.wait_current WHERE event_type = 'IPC' AND event = 'SyncRep'},
        "wait_current: a wait for commit, $protocol protocol", $inserter);
    $db->poll_ok(q{SELECT queryid FROM of_event('SyncRep') WHERE samples > 3}, 'wait_profile: likewise', $inserter);
    $db->sql('ALTER SYSTEM RESET synchronous_standby_names');
    $db->sql('SELECT pg_reload_conf()');
    $pgbench->finish;
    is($db->sql(q{SELECT string_agg(DISTINCT coalesce(queryid::text, 'none'), ' ') FROM of_event('SyncRep')}), $inserter,
        'and nothing without a query');
}

# Parallel workers count for the statement of their leader, even where they know another one or none.
$other->sql('SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0');
$other->sql(q{SET max_parallel_workers_per_gather = 2; SET maintenance_work_mem = '256MB'});
for my $statement ('SELECT count(*) FROM lines WHERE nap(i) > 2', 'SELECT naps()', 'CREATE INDEX lines_i ON lines (nap(i))')
{
    $db->sql('SELECT pgscale.reset($$sampler$$)');
    unlink $node->data_dir . '/go_on';
    $other->start($statement);
    $db->poll_ok(q{SELECT DISTINCT leader_pid FROM pgscale.wait_current WHERE backend_type = 'parallel worker'},
        "$statement: parallel workers, with their leader", $other->pid);
    $db->poll_ok(q{SELECT count(*) > 0 FROM of_event('PgSleep') WHERE backend_type = 'parallel worker'}, 'which wait');
    append_to_file($node->data_dir . '/go_on', '');
    my ($state, $text) = $other->finish;
    is($state, '00000', "$statement") or diag $text;
    my $leader = $db->queryid($other);
    my $queries = q{SELECT string_agg(DISTINCT coalesce(queryid::text, 'none'), ' ') FROM of_event('PgSleep')};
    is($db->sql("$queries WHERE backend_type = 'parallel worker'"), $leader, 'their waits count for its statement');
    is($db->sql($queries), $leader, 'and so does all of its sleep');
}

$node->stop;
done_testing();
