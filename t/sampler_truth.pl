# What the sampler says about sessions of which the truth is known: what they wait for, for how long, and in which statement.
# Runs on each major.
use strict;
use warnings;
use PgscaleSampler;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main', conf => <<'EOC');
wal_level = replica
max_wal_senders = 2
max_worker_processes = 16
pgscale.sampler_history_period = 1ms
EOC
my ($db, $other, $third) = map { session($node) } 1 .. 3;
naps($db, $other);
$db->sql(<<'EOQ');
CREATE TABLE t (i int);
CREATE FUNCTION naps() RETURNS void LANGUAGE plpgsql AS 'BEGIN PERFORM count(*) FROM lines WHERE nap(i); END';

-- time and samples of an event, whoever's
CREATE FUNCTION of_event(what text, OUT queryid bigint, OUT backend_type text, OUT samples bigint, OUT wait_ms float8)
RETURNS SETOF record LANGUAGE sql AS $$
    SELECT queryid, backend_type, sum(samples)::bigint, sum(wait_ms) FROM pgscale_internal.wait_profile()
     WHERE what IN (event_type, event_type || ':' || event, event) GROUP BY 1, 2
$$;
-- the queries that waited for it
CREATE FUNCTION queries(what text, of_type text = '') RETURNS text LANGUAGE sql AS $$
    SELECT string_agg(DISTINCT coalesce(queryid::text, 'none'), ' ') FROM of_event(what) WHERE backend_type ~ of_type
$$;
EOQ

# A known span of sleep, and one on CPU; what the server measured of itself is the truth. Where the sampler gets no CPU just
# then, it does not see how long a wait was before its first sample and after the last: so again, until it could see it.
my %queryid;
for ([ 'Timeout:PgSleep', 'pg_sleep(0.5)' ], [ 'CPU', '(SELECT count(*) FROM generate_series(1, 3000000) i WHERE i % 7 = 3)' ])
{
    my ($event, $does) = @$_;
    my $truth;

    in_time_ok(sub {
        $db->sql('SELECT pgscale.reset($$sampler$$)');
        my ($from, $to) = $third->sql("SELECT clock_timestamp() AS began, $does, clock_timestamp()") =~ /^(.*?)\|.*\|(.*)$/;
        $queryid{$event} = $db->queryid($third);
        $truth = $db->sql("SELECT 1000 * extract(epoch FROM '$to'::timestamptz - '$from'::timestamptz)");
        return $db->sql("SELECT abs(wait_ms / $truth - 1) < 0.2 AND samples > 10 FROM of_event('$event')
            WHERE queryid = $queryid{$event} AND backend_type = 'client backend'") eq 't';
    }, "$event lasts as long as it did") or diag $db->sql("SELECT $truth, e, s FROM of_event('$event') e, pgscale.sampler_stats s");
    next if $event eq 'CPU';
    is($db->sql(q{SELECT DISTINCT datid = (SELECT oid FROM pg_database WHERE datname = current_database()),
        userid = current_user::regrole FROM pgscale_internal.wait_profile() WHERE event = 'PgSleep'}), 't|t', 'with its database and role');
    # the latest may come a moment later than in the profile
    $db->poll_ok("SELECT count(*) = (SELECT sum(samples) FROM of_event('PgSleep')), count(DISTINCT pid), min(state)
        FROM pgscale.wait_history WHERE event = 'PgSleep' AND pid = " . $third->pid, 'and each sample in the history',
            't|1|active');
}
isnt($queryid{CPU}, $queryid{'Timeout:PgSleep'}, 'each has its query identifier');

# Idle sessions
# by the process, too: one that is not yet known by its name is not known to idle either
is($db->sql('SELECT count(*) FROM pgscale.wait_profile JOIN pgscale_internal.wait_profile() s USING (backend_type, event_type, event)
    WHERE s.idle'), 0, 'no idle waits');
$db->poll_ok(q{SELECT count(*) > 0 FROM pgscale_internal.wait_profile() WHERE event_type = 'Client' AND event = 'ClientRead'
    AND backend_type = 'client backend' AND queryid IS NULL AND idle}, 'the function has idle sessions');

# A pause that a setting asks for is idle, but not a session's, whose statement takes longer by it
my $pauses = q{event IN ('CheckpointWriteDelay', 'VacuumDelay') AND backend_type IN ('checkpointer', 'client backend')};
$db->sql('CREATE TABLE paused AS SELECT generate_series(1, 3000) AS i');
$other->start(q{SELECT pg_backup_start('paced', false)});
$third->start('SET vacuum_cost_delay = 10; SET vacuum_cost_limit = 1; VACUUM paused');
$db->poll_ok("SELECT string_agg(DISTINCT concat_ws(' ', backend_type, event, idle), ', ') FROM pgscale_internal.wait_profile()
    WHERE $pauses",
    'pauses', 'checkpointer CheckpointWriteDelay t, client backend VacuumDelay f');
is($db->sql("SELECT DISTINCT event FROM pgscale.wait_profile WHERE $pauses"), 'VacuumDelay', 'those on purpose are not shown');
$db->poll_ok("SELECT string_agg(event, ' ') FROM pgscale_internal.wait_totals() WHERE $pauses", 'nor added up', 'VacuumDelay');
$db->sql('CHECKPOINT');
$other->finish;
$other->sql('SELECT pg_backup_stop(false)');
cancelled($db, $third);

# A wait in parse analysis, before there is an identifier: it is found with the statement afterwards.
$db->sql('SELECT pgscale.reset($$sampler$$)');
$other->sql('BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE');
$third->start('SELECT i AS waited_for FROM t');
$db->poll_ok(q{SELECT sum(samples) > 5 FROM of_event('Lock:relation') WHERE queryid IS NULL},
    'a wait in parse analysis has no query yet');
my $before = $db->sql(q{SELECT sum(wait_ms) FROM of_event('Lock:relation')});
$other->sql('ROLLBACK');
$third->finish;
$db->poll_ok(q{SELECT queries('Lock:relation')}, 'it is moved, and nothing is left', $db->queryid($third));
is($db->sql("SELECT wait_ms >= $before FROM of_event('Lock:relation')"), 't', 'with its time');

# Waits for the commit of a single statement
my $insert = 'INSERT INTO t VALUES (1)';
$other->sql($insert);
my $inserter = $db->queryid($other);
my $script = PostgreSQL::Test::Utils::tempdir() . '/insert.sql';
append_to_file($script, "$insert;\n");
for my $protocol ('simple', 'extended', 'prepared')
{
    $db->sql('SELECT pgscale.reset($$sampler$$)');
    $db->set('synchronous_standby_names', 'missing');
    my $output;
    my $pgbench = IPC::Run::start(
        [ 'pgbench', '-n', '-t', 1, '-M', $protocol, '-f', $script, $node->connstr('postgres') ],
        '>&', \$output, IPC::Run::timeout(4 * $PostgreSQL::Test::Utils::timeout_default));
    $db->poll_ok(q{SELECT queryid FROM pgscale.wait_current WHERE event_type = 'IPC' AND event = 'SyncRep'},
        "wait_current: a wait for commit, $protocol protocol", $inserter);
    $db->poll_ok(q{SELECT queryid FROM of_event('SyncRep') WHERE samples > 3}, 'so has the profile', $inserter);
    $db->set('synchronous_standby_names');
    $pgbench->finish;
    is($db->sql(q{SELECT queries('SyncRep')}), $inserter, 'and nothing without a query');
}

# Parallel workers count for the statement of their leader, even where they know another one or none.
$other->sql(q{SET maintenance_work_mem = '256MB'});
for my $statement ('SELECT count(*) FROM lines WHERE nap(i)', 'SELECT naps()', 'CREATE INDEX lines_i ON lines (nap(i))')
{
    my ($leaders, $workers, $others);

    # again where they had no CPU, or the sampler
    in_time_ok(sub {
        $db->sql('DROP INDEX IF EXISTS lines_i; SELECT pgscale.reset($$sampler$$)');
        $other->start($statement);
        until_true(sub {
            $leaders = $db->sql(q{SELECT DISTINCT leader_pid FROM pgscale.wait_current WHERE backend_type = 'parallel worker'});
            return $leaders ne '' || $db->sql('SELECT state FROM pg_stat_activity WHERE pid = ' . $other->pid) eq 'idle';
        });
        $other->finish;
        $workers = $db->sql(q{SELECT queries('PgSleep', 'parallel worker')});
        return $leaders ne '' && $workers ne '';
    }, "$statement: parallel workers wait");
    is($leaders, $other->pid, 'their leader');
    is($workers, $db->queryid($other), 'their waits count for its statement');
    is($db->sql(q{SELECT queries('PgSleep')}), $workers, 'and so does all of its sleep');
}

$node->stop;
done_testing();
