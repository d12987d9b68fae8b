# The archive: what its rows have is what the profile has grown by, whatever becomes of that; the longest waits and the rest; whose way
# was blocked; counters, settings and texts; what is old becomes hours, and goes. What the SQL functions of the archive do with rows:
# see sql/archive.sql.
# Runs on 18, too.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

# A clock that can be set, where there is a compiler
my $clock = compiled('clock');
$ENV{PGSCALE_CLOCK} = number_file();
sub set_clock { my $seconds = shift; return write_number($ENV{PGSCALE_CLOCK}, $seconds * 1_000_000); }
my $node;
{
    local $ENV{LD_PRELOAD} = $clock if $clock;
    $node = pgscale_node('main', conf => <<'EOC');
pgscale.debug_period = 1s
pgscale.sampler_profile_size = 100
deadlock_timeout = 100ms
compute_query_id = on
EOC
}
my $db = session($node);
my $health = q{SELECT state FROM pgscale.health WHERE feature = 'archive'};

$db->set('pgscale.archive_database' => 'postgres');
$db->poll_ok($health, 'on, it works', 'working');

# Rows follow each other without a gap
$db->poll_ok('SELECT count(*) > 2 FROM pgscale.archive_minutes', 'rows');
is($db->sql(q{SELECT count(*) FROM (SELECT at, lag(at + make_interval(secs => period_s)) OVER (ORDER BY at) AS before
    FROM pgscale.archive_minutes) m WHERE at <> before}), 0, 'which follow each other');
is($db->sql(q{SELECT count(*) FROM pgscale.archive_minutes WHERE period_s <= 0 OR rounds <> 1 OR origin IS NOT NULL
    OR node <> (SELECT node FROM pgscale.node_identity()) OR (observed_ms BETWEEN period_s * 100 AND period_s * 1000 + 0.001) IS NOT TRUE}), 0, 'of here');

# What was waited since the reset is in both. Rows are written while this looks, so it is not to the last sample.
my $archive = q{(SELECT sum(wait_ms) FROM pgscale.archive_waits WHERE at >= (SELECT max(m.at) FROM pgscale.archive_minutes m, pgscale.sampler_stats s WHERE m.at <= s.stats_reset))};
my $profile = q{(SELECT sum(wait_ms) FROM pgscale_internal.wait_profile() WHERE NOT idle)};

sub reset_profile
{
    $db->sql('SELECT pgscale.reset($$sampler$$)');
    return $db->poll_ok(q{SELECT count(*) FROM pgscale.archive_minutes m, pgscale.sampler_stats s
        WHERE s.stats_reset >= m.at AND s.stats_reset < m.at + make_interval(secs => m.period_s)}, 'a reset is seen', 1);
}

sub same_ok
{
    my $name = shift;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return $db->poll_ok("SELECT $profile > 1 AND $archive - $profile BETWEEN -30 AND 1", $name) || diag $db->sql("SELECT $archive, $profile");
}
reset_profile();
my $sleeper = session($node);
$sleeper->sql('SET application_name = sleeper; SELECT pg_sleep(1.1)');
same_ok('what was slept');
is($db->sql(q{SELECT DISTINCT backend_type, datname, datid = (SELECT oid FROM pg_database WHERE datname = current_database()),
    usename = current_user, event_type, blocker FROM pgscale.archive_waits WHERE event = 'PgSleep'}), 'client backend|postgres|t|t|Timeout|',
    'whose it was');
$db->poll_ok(q{SELECT count(*) FROM pgscale.archive_queries WHERE query ~ 'pg_sleep'}, 'with its text', 1);

# More queries than the profile has room for: what it evicts is not archived twice
$sleeper->sql('SELECT pg_sleep(0.012)' . ', 1' x $_) for 1 .. 120;
cmp_ok($db->sql('SELECT evictions FROM pgscale.sampler_stats'), '>', 10, 'entries were evicted');
same_ok('sums are whole');

# How many sessions were active, and idle in a transaction, whatever the profile evicts, and also where the sampler pauses or is reset
my @idle = map { session($node) } 1 .. 3;
$_->sql('BEGIN') for @idle;
my $busy = session($node);
$busy->start(join '\;', (map { 'SELECT pg_sleep(0.015)' . ', 1' x $_ } 1 .. 120) x 60);
until_true(sub { $db->sql(q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'}) eq '1' });
my $since = $db->sql('SELECT clock_timestamp()');
my $rows = "FROM pgscale.archive_minutes WHERE at >= '$since'";
my $right = q{active_sessions BETWEEN 0.9 AND 2.2 AND idle_in_transaction_sessions BETWEEN 2.8 AND 3.05 AND observed_ms <= period_s * 1000 + 0.001};
my $wrong = "SELECT string_agg(concat_ws(' ', observed_ms, active_sessions, idle_in_transaction_sessions), ', ') $rows AND ($right) = false";
$db->poll_ok("SELECT count(*) > 1 $rows AND $right", 'rows of a busy session and three idle in a transaction');
my $sampler = $db->sql('SELECT pid FROM pgscale.sampler_stats');
kill 'STOP', $sampler or die $!;
$db->poll_ok("SELECT count(*) > 0 $rows AND observed_ms = 0 AND active_sessions IS NULL AND idle_in_transaction_sessions IS NULL", 'the sampler pauses');
kill 'CONT', $sampler;
reset_profile();
# the sampler itself has observed no less since then, however late the row was written
is($db->sql(q{SELECT count(*), bool_and(m.observed_ms <= s.observed_ms + 0.001) FROM pgscale.archive_minutes m, pgscale_internal.sampler_stats() s
    WHERE s.stats_reset >= m.at AND s.stats_reset < m.at + make_interval(secs => m.period_s)}), '1|t', 'before a reset nothing is known');
is($db->sql($wrong), '', 'no row says anything else');
$db->sql('SELECT pg_cancel_backend(' . $busy->pid . ')');
$busy->finish;
$_->quit for @idle, $busy;

# Who was in the way
my $root = session($node);
$root->sql('CREATE TABLE t (); SET application_name = nightly; BEGIN; LOCK t');
my $pid = $root->pid;
$sleeper->start('SELECT count(*) FROM t');
$db->poll_ok("SELECT count(*) > 0 FROM pgscale.archive_waits WHERE event_type = 'Lock' AND blocker = '$pid nightly' AND wait_ms > 300", 'the root has a name');
$root->sql('COMMIT');
$sleeper->finish;
$_->quit for $root, $sleeper;
$db->set('work_mem' => '5MB');
$db->poll_ok(q{SELECT setting, old, new FROM pgscale.archive_changes WHERE setting = 'work_mem'}, 'a setting', 'work_mem|4096|5120');
$db->sql(q{ALTER DATABASE postgres SET lock_timeout = '3s'; DO $$ BEGIN EXECUTE format('ALTER ROLE %I SET statement_timeout = ''1h''', current_user); END $$});
$db->set('log_min_messages' => 'log');
$db->poll_ok(q{SELECT setting, old, new FROM pgscale.archive_changes WHERE setting = 'log_min_messages'},
    'one that a round overrides before it connects', 'log_min_messages|warning|log');
is($db->sql(q{SELECT setting, new FROM pgscale.archive_changes WHERE setting IN ('lock_timeout', 'statement_timeout')}), '', 'not one of a database or a role');
$db->sql(q{ALTER DATABASE postgres RESET lock_timeout; DO $$ BEGIN EXECUTE format('ALTER ROLE %I RESET statement_timeout', current_user); END $$});
$db->set('log_min_messages');
is($db->sql('SELECT count(*) <= extract(epoch FROM max(at) - min(at)) + 2 FROM pgscale.archive_minutes'), 't', 'not more rows than periods');

# While the sampler is off, nothing is known: no rest
$db->set('pgscale.sampler' => 'off');
$db->poll_ok('SELECT active_sessions IS NULL AND observed_ms = 0 FROM pgscale.archive_minutes ORDER BY at DESC LIMIT 1', 'nothing was observed');
is($db->sql(q{SELECT count(*) FROM pgscale.archive_minutes m, pgscale_internal.past_coverage() c WHERE m.observed_ms = 0
    AND c.at <= m.at AND c.at + make_interval(secs => c.period_s) > m.at + make_interval(secs => m.period_s / 2)}), 0, 'nor is that known');
$db->set('pgscale.sampler');
$db->poll_ok('SELECT observed_ms > 0 FROM pgscale.archive_minutes ORDER BY at DESC LIMIT 1', 'it is observed again');

# From here on the profile, the counters and the history are what tables have: what each step adds is known to the millisecond.
$db->set('pgscale.archive_database' => '');
$db->poll_ok($health, 'off', 'off');
$db->sql('CREATE DATABASE scripted');
my $in = session($node, dbname => 'scripted');
$in->sql(<<'EOS');
CREATE EXTENSION pgscale;
CREATE TABLE step (now int, reset timestamptz);
INSERT INTO step VALUES (1, '2020-01-01');
CREATE TABLE profile (step int, backend_type text, queryid bigint, event_type text, event text, ms float8, idle boolean DEFAULT false);
CREATE TABLE counters (step int, "values" float8[], markers bigint[]);
CREATE TABLE history (step int, sampled_at timestamptz, queryid bigint, event text, root_pid int, application text, event_type text DEFAULT 'Lock');
DO $do$
BEGIN
    EXECUTE (SELECT format('CREATE OR REPLACE FUNCTION pgscale_internal.sampler_stats(%s) RETURNS record LANGUAGE sql AS $f$SELECT %s FROM public.step$f$',
                           pg_get_function_arguments('pgscale_internal.sampler_stats'::regproc), string_agg(CASE n WHEN 'stats_reset' THEN 'reset' ELSE format('NULL::%s', t::regtype) END, ', ' ORDER BY i))
               FROM pg_proc p, unnest(p.proallargtypes, p.proargnames) WITH ORDINALITY a (t, n, i) WHERE p.oid = 'pgscale_internal.sampler_stats'::regproc);
    EXECUTE format('CREATE OR REPLACE FUNCTION pgscale_internal.wait_profile(%s) RETURNS SETOF record LANGUAGE sql AS $f$
        SELECT p.backend_type, CASE WHEN p.backend_type ~ ''client|parallel'' THEN 1::oid END, 10::oid, p.queryid, p.event_type, p.event, p.idle, 1::bigint, p.ms * part, NULL::text, addr, NULL::bigint, NULL::float8
          FROM public.profile p, public.step s, (VALUES (0.25, inet ''10.0.0.1''), (0.75, ''10.0.0.2'')) a (part, addr) WHERE p.step = s.now$f$', pg_get_function_arguments('pgscale_internal.wait_profile'::regproc));
    EXECUTE format('CREATE OR REPLACE FUNCTION pgscale_internal.wait_history(%s) RETURNS SETOF record LANGUAGE sql AS $f$
        SELECT h.sampled_at, 1, ''client backend'', 1::oid, 10::oid, h.queryid, ''active'', h.event_type, h.event, 1, h.root_pid, h.application
          FROM public.history h, public.step s WHERE h.step = s.now AND h.sampled_at >= coalesce($1, ''-infinity'') AND h.sampled_at <= coalesce($2, ''infinity'')$f$',
        pg_get_function_arguments('pgscale_internal.wait_history(timestamptz, timestamptz)'::regprocedure));
END
$do$;
CREATE OR REPLACE FUNCTION pgscale_internal.archive_counters(OUT name text, OUT source text, OUT value double precision, OUT marker bigint) RETURNS SETOF record LANGUAGE sql AS
    $$SELECT l.name, l.source, CASE l.source WHEN 'sampler' THEN ('{100,250,400}'::float8[])[l.n - (SELECT count(*) FROM pgscale_internal.archive_counter o WHERE o.source <> 'sampler')] ELSE c."values"[l.n] END, c.markers[l.n]
        FROM pgscale_internal.archive_counter l, public.counters c, public.step s WHERE c.step = s.now$$;

-- 1: what is there when it begins, and is nobody's growth
INSERT INTO profile VALUES (1, 'client backend', 1, 'IO', 'Read', 1000), (1, 'client backend', 2, 'IO', 'Read', 500), (1, 'client backend', 3, 'LWLock', 'X', 300),
    (1, 'client backend', 3, 'CPU', 'CPU', 100), (1, 'parallel worker', 3, 'CPU', 'CPU', 100), (1, 'client backend', 4, 'Lock', 'Y', 400), (1, 'client backend', 6, 'Lock', 'V', 100), (1, 'other', NULL, 'IO', 'Read', 200),
    (1, 'other', NULL, 'Lock', 'Y', 50);
INSERT INTO profile VALUES (1, 'client backend', 1, 'Client', 'ClientRead', 10000, true), (2, 'client backend', 1, 'Client', 'ClientRead', 20000, true);
INSERT INTO counters VALUES (1, '{100,500,10,70,7,NULL,NULL,1000}', '{1,2,3,4,NULL,6,NULL,8}');
-- 2: one grows, two were folded, one has moved to CPU (and not to what a worker had there), one has lost a part to its folded one, one is new
INSERT INTO profile VALUES (2, 'client backend', 1, 'IO', 'Read', 1600), (2, 'other', NULL, 'IO', 'Read', 770), (2, 'client backend', 3, 'LWLock', 'X', 250),
    (2, 'client backend', 3, 'CPU', 'CPU', 170), (2, 'parallel worker', 3, 'CPU', 'CPU', 150), (2, 'client backend', 4, 'Lock', 'Y', 380), (2, 'other', NULL, 'Lock', 'V', 105), (2, 'other', NULL, 'Lock', 'Y', 80),
    (2, 'client backend', 5, 'IO', 'Write', 33);
INSERT INTO counters VALUES (2, '{150,30,900,60,9,5,NULL,1000}', '{1,22,33,4,NULL,6,NULL,8}');
-- 3: one has lost a part that is nowhere; 4: it grows by less than that, and one is new; 5: and by more; the one that was new is folded with others
INSERT INTO profile SELECT 3, backend_type, queryid, event_type, event, CASE queryid WHEN 4 THEN 320 WHEN 1 THEN 1700 ELSE ms END FROM profile WHERE step = 2 AND NOT idle;
INSERT INTO profile SELECT 4, backend_type, queryid, event_type, event, CASE queryid WHEN 4 THEN 350 ELSE ms END FROM profile WHERE step = 3;
INSERT INTO profile VALUES (4, 'client backend', 7, 'IO', 'Fsync', 80);
INSERT INTO profile SELECT 5, backend_type, queryid, event_type, event, CASE queryid WHEN 4 THEN 420 ELSE ms END FROM profile WHERE step = 4 AND queryid IS DISTINCT FROM 7;
INSERT INTO profile VALUES (5, 'other', NULL, 'other', 'other', 95);
INSERT INTO counters VALUES (3, '{160,31,900,65,8,8,3,1001}', '{1,22,33,4,NULL,6,NULL,8}'), (4, '{160,31,900,65,8,8,3}', '{1,22,33,4,NULL,6,NULL}'),
    (5, '{160,31,900,65,8,8,3,1010}', '{1,22,33,4,NULL,6,NULL,8}');
-- 6: after a reset all is new, whatever it was; in whose way was whose, by samples of this row
INSERT INTO profile VALUES (6, 'client backend', 1, 'IO', 'Read', 40), (6, 'client backend', 4, 'Lock', 'Y', 420), (6, 'client backend', 8, 'Lock', 'Y', 7), (6, 'checkpointer', NULL, 'IO', 'Sync', 500);
INSERT INTO counters VALUES (6, '{161,31,900,65,8,8,3,1010}', '{1,22,33,4,NULL,6,NULL,8}');
INSERT INTO history SELECT 6, 'infinity', 4, 'Y', r, a FROM unnest('{11,11,11,11,11,0}'::int[], '{nightly,nightly,nightly,web,web}'::text[]) u (r, a);
INSERT INTO history VALUES (6, '2020-01-01', 4, 'Y', 99), (6, 'infinity', 4, 'Z', 98);
INSERT INTO history VALUES (6, 'infinity', 8, 'Y', 97, '', 'LWLock');
-- 7: more than it has room for
INSERT INTO profile VALUES (7, 'client backend', 1, 'IO', 'Read', 90), (7, 'client backend', 4, 'Lock', 'Y', 460), (7, 'client backend', 8, 'Lock', 'Y', 37), (7, 'client backend', 9, 'IO', 'Read', 20), (7, 'checkpointer', NULL, 'IO', 'Sync', 500);
INSERT INTO counters SELECT 7, "values", markers FROM counters WHERE step = 6;
EOS
$db->set('pgscale.archive_database' => 'scripted');
$in->poll_ok('SELECT count(*) > 1 FROM pgscale.archive_minutes', 'rows of the script');
is($in->sql('SELECT count(*) FROM pgscale.archive_waits'), 0, 'what was there before is not theirs');

# Goes on to a step; these rows then have that much, all steps together, and no other one has changed. Of values of the moment it is the
# latest.
my %before;
sub step_ok
{
    my ($step, $waits, $counted) = @_;
    my ($changed, @rows);
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    $in->sql("UPDATE step SET now = $step, reset = CASE WHEN $step < 6 THEN '2020-01-01' ELSE '2020-01-02' END::timestamptz");
    until_true(sub {
        @rows = split /\n/, $in->sql(q{SELECT concat_ws(' ', backend_type, queryid, event_type || ':' || event, blocker, round(sum(wait_ms)))
            FROM pgscale.archive_waits GROUP BY backend_type, queryid, event_type, event, blocker
            ORDER BY backend_type, queryid, event_type, event, sum(wait_ms) DESC});
        $changed = join ', ', grep { !$before{$_} } @rows;
        return $changed eq $waits;
    });
    is($changed, $waits, "step $step: waits") or die "what follows builds on it\n";
    %before = map { $_ => 1 } @rows;
    $in->poll_ok(q{SELECT string_agg(concat(CASE WHEN n IN (5, 7) THEN 'last ' || coalesce(last::text, '-') ELSE coalesce(sum, 0)::text END,
            CASE WHEN n NOT IN (6, 7, 8) AND nulls > 0 THEN ' (' || nulls || ')' END), ', ' ORDER BY n)
        FROM (SELECT n, sum(c), count(*) FILTER (WHERE c IS NULL) AS nulls, (array_agg(c ORDER BY at DESC))[1] AS last
            FROM pgscale_internal.archive_minute m, LATERAL (SELECT n, (to_jsonb(m) ->> name)::float8 AS c
                FROM pgscale_internal.archive_counter WHERE n <= 8) u GROUP BY n) s}, "step $step: counters", $counted)
      or die "what follows builds on it\n";
    return;
}
step_ok(2, 'client backend 1 IO:Read 600, client backend 3 CPU:CPU 20, client backend 5 IO:Write 33, '
      . 'other IO:Read 70, other Lock:V 5, other Lock:Y 10, parallel worker 3 CPU:CPU 50', '50, 0 (1), 0 (1), 0 (1), last 9, 0, last -, 0');
my $counted = '60, 1 (1), 0 (1), 5 (1), last 8, 3, last 3, 1';
step_ok(3, 'client backend 1 IO:Read 700', $counted);
step_ok(4, 'client backend 7 IO:Fsync 80', $counted);
step_ok(5, 'client backend 4 Lock:Y 40, other other:other 15', $counted);
$counted = '61, 1 (1), 0 (1), 5 (1), last 8, 3, last 3, 1';
step_ok(6, 'checkpointer IO:Sync 500, client backend 1 IO:Read 740, client backend 4 Lock:Y 11 nightly 210, client backend 4 Lock:Y 11 web 140, '
      . 'client backend 4 Lock:Y prepared transaction 70, client backend 8 Lock:Y 7', $counted);
$db->set('pgscale.archive_top' => 2);
rounds_ok('only the two longest waits are archived');
step_ok(7, 'client backend 1 IO:Read 790, client backend 4 Lock:Y 80, other other:other 65', $counted);
is($in->sql('SELECT DISTINCT round(active_sessions::numeric, 3), round(idle_in_transaction_sessions::numeric, 3) FROM pgscale.archive_minutes'), '2.500|1.500',
    'active sessions are of the time observed');

# More waits than there is room for: they are archived once, and then there is a gap
my $all = 'SELECT round(sum(wait_ms)) FROM pgscale.archive_waits';
my $sum = $in->sql($all);
$in->sql(q{INSERT INTO profile SELECT 8, 'client backend', 1000 + i, 'IO', 'Read', 1 FROM generate_series(1, 1200) i; INSERT INTO counters SELECT 8, "values", markers FROM counters WHERE step = 7;
    UPDATE step SET now = 8});
$in->poll_ok($all, 'more than there is room for', $sum + 1200);
$db->set('work_mem' => '6MB');
$in->poll_ok(q{SELECT new FROM pgscale.archive_changes WHERE setting = 'work_mem'}, 'a round later', 6144);
is($in->sql($all), $sum + 1200, 'nothing is there twice');
$in->sql('UPDATE step SET now = 7');
$in->poll_ok('SELECT count(*) > 0 FROM pgscale.archive_minutes m WHERE at > (SELECT max(at + make_interval(secs => period_s)) FROM pgscale.archive_waits)', 'after a gap it goes on');

# Upkeep: what the settings say. A clock that was set by half an hour is believed.
$db->set('pgscale.archive_retention' => 3650);
$db->set('pgscale.archive_detail' => 3650);
set_clock(1800) if $clock;
my $days = q{SELECT string_agg(concat(substring(relname FROM '_(.).*_'), (clock_timestamp() AT TIME ZONE 'UTC')::date - to_date(right(relname, 8), 'YYYYMMDD')), ' ' ORDER BY right(relname, 8))
    FROM pg_inherits JOIN pg_class ON oid = inhrelid WHERE inhparent = 'pgscale_internal.archive_minute'::regclass
    AND (clock_timestamp() AT TIME ZONE 'UTC')::date - to_date(right(relname, 8), 'YYYYMMDD') > 1};
my $make = q{SELECT pgscale_internal.archive_partition('archive_minute', (clock_timestamp() AT TIME ZONE 'UTC')::date - i) FROM unnest('{%s}'::int[]) i};
$in->sql("BEGIN; " . sprintf($make, '6,5,3,2') . q{; INSERT INTO pgscale_internal.archive_minute
        (at, period_s, rounds, node, cluster, database, backend_types, datids, datnames, usenames, application_names, queryids, event_types, events, blockers, wait_ms)
    SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date - 3 + time '12:00' AT TIME ZONE 'UTC', 60, 1, node, cluster, database,
           array_fill('client backend'::text, ARRAY[4]), array_fill(1::oid, ARRAY[4]), '{d,d,d,d}', '{u,u,u,u}', '{a,a,a,a}', '{1,2,3,4}', '{IO,IO,IO,IO}', '{a,b,c,d}', '{NULL,NULL,NULL,NULL}', '{1,2,4,8}'
      FROM pgscale_internal.archive_minute LIMIT 1; COMMIT});
is($in->sql($days), 'm6 m5 m3 m2', 'old days');
$db->set('pgscale.archive_detail' => 2);
$db->set('pgscale.archive_retention' => 5);
$in->poll_ok($days, 'one too old is dropped, others are rolled up', 'h5 h3 m2');
is($in->sql(q{SELECT string_agg(event || ' ' || wait_ms, ', ' ORDER BY event) FROM pgscale.archive_waits WHERE at < now() - interval '40 h'}), 'c 4, d 8, other 3', 'with the longest waits');

# There are so many more rows: what was to be done after the first of them is done
sub rounds_ok
{
    my $name = shift;
    my $more = $in->sql('SELECT count(*) + 2 FROM pgscale.archive_minutes');
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return $in->poll_ok("SELECT count(*) >= $more FROM pgscale.archive_minutes", $name);
}

SKIP:
{
    skip 'NOT TESTED: no compiler for a clock that can be set', 10 unless $clock;

    # A transaction that has read hinders upkeep, which is a fault after half an hour
    my $reader = session($node, dbname => 'scripted');
    my $day = $in->sql(q{SELECT to_char(clock_timestamp() AT TIME ZONE 'UTC' - interval '4 days', 'YYYYMMDD')});
    $reader->sql('BEGIN; SELECT count(*) FROM pgscale.archive_waits');
    $in->sql(sprintf $make, '4');
    rounds_ok('a transaction that has read');
    is($db->sql($health), 'working', 'is no fault');
    set_clock(2 * 1800 + 60);
    $db->poll_ok(q{SELECT state, reason ~ 'transactions that have read or locked the archive have been open for 30 minutes' FROM pgscale.health WHERE feature = 'archive'}, 'it does not end', 'broken|t');
    $reader->sql('COMMIT');
    $reader->quit;
    $in->poll_ok("SELECT to_regclass('pgscale_internal.archive_hour_$day') IS NOT NULL", 'when it has ended, upkeep goes on');
    $db->poll_ok($health, 'and works', 'working');

    # A clock that was set by more than an hour is not believed: for a day it makes nothing old, also by another launcher
    my $latest = $in->sql('SELECT max(at) FROM pgscale.archive_minutes');
    set_clock(2 * 1800 + 60 + 7200);
    $in->poll_ok("SELECT max(at) > '$latest'::timestamptz + interval '110 min' FROM pgscale.archive_minutes", 'rows go on by the clock that was set');
    # with the locks in the worker's own order
    $in->sql("BEGIN; LOCK TABLE pgscale_internal.archive_minute; SELECT pgscale_internal.archive_drop('archive_hour_$_'); COMMIT") for split / /, $in->sql(q{SELECT string_agg(right(relname, 8), ' ') FROM pg_class WHERE relname ~ '^archive_hour_\d+$'});
    $in->sql(sprintf $make, '9,4');
    rounds_ok('it is set');
    my $launcher = $db->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'pgscale archive'});
    $db->sql("SELECT pg_terminate_backend($launcher)");
    $db->poll_ok(qq{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pgscale archive' AND pid <> $launcher}, 'another launcher', 1);
    rounds_ok('which goes on');
    is($in->sql($days =~ s/> 1\}?$/> 3/r), 'm9 m4', 'by it nothing is dropped or rolled up');
}
is($db->sql($health), 'working', 'it has worked all the time');
is($in->sql(q{SELECT count(*) FROM pgscale.archive_minutes WHERE period_s > 5.6 AND at > now() - interval '1 day'}), 0,
    'and no row is as long as the clock was set');
$_->quit for $in, $db;
$node->stop('fast');
done_testing();
