# The past as the history has it: a period of its own, weights, gaps, sums that agree, who may see what, and bad input.
use strict;
use warnings;
use PgscaleTest;
use Test::More;
use Time::HiRes ();

my $statements = have_module('pg_stat_statements');
my $node = pgscale_node('main', preload => 'pgscale' . ($statements ? ', pg_stat_statements' : ''), conf => <<'EOC');
pgscale.sampler_period = 5ms
pgscale.sampler_history_period = 100ms
pgscale.sampler_dimensions = 'application_name'
deadlock_timeout = 100ms
max_prepared_transactions = 2
EOC
my $db = session($node);
$db->sql(q{CREATE ROLE sleeper LOGIN; CREATE ROLE gone LOGIN; CREATE ROLE observer LOGIN IN ROLE pg_monitor; CREATE ROLE granted LOGIN});
$db->sql('CREATE DATABASE dropped');
$db->sql('CREATE TABLE t (i int PRIMARY KEY, v int); INSERT INTO t VALUES (1, 0)');
my $sleeper = session($node, user => 'sleeper');
$sleeper->sql(q{SET application_name = 'nightly'});

# One look in twenty ticks is remembered, and stands for the time since the look before. The session sleeps all the while, so that
# its time is the time that is known. A look long after the one before stands for a period, and what is before it is a gap.
$sleeper->start('SELECT pg_sleep(600)');
$db->poll_ok(q{SELECT count(DISTINCT sampled_at) > 6 FROM pgscale.wait_history WHERE event = 'PgSleep'}, 'a session sleeps');
is($db->sql(q{SELECT count(*) * 10 < (SELECT samples FROM pgscale.wait_profile() WHERE event = 'PgSleep' AND userid = 'sleeper'::regrole)
    FROM pgscale.wait_history WHERE event = 'PgSleep'}), 't', 'few of its samples are kept');
my $sampler = $db->sql('SELECT pid FROM pgscale.sampler_stats');
$db->sql('CREATE TABLE slept AS SELECT max(sampled_at) AS since FROM pgscale.wait_history');
my $looks_so_far = q{SELECT count(DISTINCT sampled_at) FROM pgscale.wait_history WHERE event = 'PgSleep'};
my $clock = sub { Time::HiRes::clock_gettime(Time::HiRes::CLOCK_MONOTONIC()) };
kill 'STOP', $sampler or die "cannot stop the sampler: $!";
my $stopped = $clock->();
my $looked = $db->sql($looks_so_far);
until_true(sub { $clock->() > $stopped + 3.2 });
$stopped = $clock->() - $stopped;
kill 'CONT', $sampler;
$db->poll_ok("SELECT ($looks_so_far) > $looked + 4", 'the sampler was stopped for more than three seconds, and goes on');
$db->sampler('off');
is($db->sql(q{SELECT abs(active_sessions - 1) < 0.02 FROM slept, pgscale.top_waits(since) WHERE item = 'Timeout:PgSleep'}), 't', 'its time is the time that is known')
  or diag $db->sql(q{SELECT t.* FROM slept, pgscale.top_waits(since) t; SELECT * FROM pgscale.past_coverage()});
is($db->sql(q{SELECT sum(period_s) / (SELECT count(DISTINCT sampled_at) FROM pgscale.wait_history WHERE sampled_at > since) BETWEEN 0.05 AND 1
    FROM slept, pgscale.past_coverage(since) GROUP BY since}), 't', 'a look each 100 ms')
  or diag $db->sql(q{SELECT sum(period_s), (SELECT count(DISTINCT sampled_at) FROM pgscale.wait_history WHERE sampled_at > since) FROM slept, pgscale.past_coverage(since) GROUP BY since});
is($db->sql(qq{SELECT count(*), bool_and(gap_s IS NULL OR gap_s BETWEEN $stopped - 0.15 AND $stopped + 2) FROM (SELECT extract(epoch FROM at
    - lag(at + make_interval(secs => period_s)) OVER (ORDER BY at)) AS gap_s FROM pgscale.past_coverage()) g}), '2|t', 'the rest is a gap');
$db->sql('SELECT pg_cancel_backend(' . $sleeper->pid . ')');
$sleeper->finish;
$db->sampler('on');
$sleeper->sql('SELECT clock_timestamp() AS began, pg_sleep(0.3)');

# All kinds of waits, of one that is dropped afterwards as well
my ($holder, $waiter) = (session($node), session($node));
my $of_gone = session($node, user => 'gone', dbname => 'dropped');
$of_gone->sql('SELECT pg_sleep(0.5)');
my $dropped = $db->sql(q{SELECT oid FROM pg_database WHERE datname = 'dropped'});
$of_gone->quit;
$holder->sql(q{SET application_name = 'billing'; BEGIN; UPDATE t SET v = 1});
my $pid = $holder->pid;
$db->sees_waiting($waiter, 'UPDATE t SET v = 2');
$db->poll_ok(qq{SELECT bool_or(item ~ '^$pid( billing)?\$' AND event_type = 'Lock') FROM pgscale.top_waits(by => 'blocker')}, 'who was in the way, and whose that is');
$holder->sql('COMMIT');
$waiter->finish;
$holder->sql(q{BEGIN; UPDATE t SET v = 3; PREPARE TRANSACTION 'p'});
$db->sees_waiting($waiter, 'UPDATE t SET v = 4');
$db->poll_ok(q{SELECT count(*) FROM pgscale.top_waits(by => 'blocker') WHERE item = 'prepared transaction'}, 'a prepared transaction', 1);
$db->sql(q{ROLLBACK PREPARED 'p'});
$waiter->finish;
until_true(sub { ($db->try('DROP DATABASE dropped'))[0] eq '00000' });
$db->sql('DROP ROLE gone');

# Nothing moves while the sampler is off: sums agree, whatever they are made of.
$db->sampler('off');
$db->poll_ok('SELECT clock_timestamp() > max(at + make_interval(secs => period_s)) + interval $$1.1 s$$ FROM pgscale.past_coverage()', 'a gap');
$db->sql(q{CREATE TABLE span AS SELECT min(at) AS since, max(at + make_interval(secs => period_s)) AS until, sum(period_s) AS known_s
    FROM pgscale.past_coverage()});
$db->sql(q{CREATE TABLE whole AS SELECT sum(wait_ms) AS ms, sum(wait_ms) FILTER (WHERE backend_type = 'client backend') AS database_ms
    FROM pgscale.past_waits()});
is($db->sql(q{SELECT ms > 2000 AND database_ms > 2000 FROM whole}), 't', 'there are waits');
is($db->sql(q{SELECT abs(sum(wait_ms) - max(ms)) < 0.01 FROM whole, pgscale.past_waits(NULL, NULL, } . $_ . ')'), 't', "the same in buckets of $_ s")
  for 2.5, 1e9;
is($db->sql(q{SELECT count(DISTINCT n) FROM (SELECT count(*) AS n FROM pgscale.past_waits(NULL, NULL, 1e9)
    UNION ALL SELECT count(*) FROM (SELECT DISTINCT backend_type, datid, usename, application_name, queryid, event_type, event, blocker
    FROM pgscale.past_waits()) d) c}), 1, 'and then no two rows are alike');
is($db->sql(q{SELECT abs(a + b + c - ms) < 0.01 * ms FROM whole, LATERAL (SELECT since + (until - since) * 0.312 AS one, since + (until - since) * 0.77 AS two
    FROM span) s, LATERAL (SELECT (SELECT sum(wait_ms) FROM pgscale.past_waits(NULL, one)) AS a,
    (SELECT sum(wait_ms) FROM pgscale.past_waits(one, two)) AS b, (SELECT sum(wait_ms) FROM pgscale.past_waits(two)) AS c) p}), 't',
    'three periods make up the whole');
for my $by (qw(event application))
{
    is($db->sql("SELECT abs(sum(wait_ms) - max(database_ms)) < 0.01, abs(sum(fraction) - 1) < 1e-6, abs(sum((active_sessions + CASE WHEN '$by' = 'event' THEN 0 ELSE idle_in_transaction_sessions END) * known_s * 1000) - max(database_ms)) < 1,
        max(rank) <= 3, bool_and(item = 'other') FILTER (WHERE rank = 3) IS NOT FALSE FROM whole, span, pgscale_internal.past_items(NULL, NULL, '$by', 2)"), 't|t|t|t|t', "by $by: it adds up");
}
is($db->sql(q{SELECT abs(sum(wait_ms) - max(ms)) < 0.01 FROM whole, pgscale_internal.past_items(NULL, NULL, 'backend_type', 100)}), 't', 'by backend type: all processes');
is($db->sql(q{SELECT bool_and(fraction IS NULL) FROM pgscale.top_waits(by => 'backend_type', top => 100) WHERE item <> 'client backend'}) || 't', 't',
    'of which server processes are no database time');
my $activity = q{SELECT sum(active_sessions * covered_fraction * %2$s) FROM %1$s p, pgscale.activity(p.since, p.until, '%2$s s') a};
my $active_s = sprintf $activity, 'span', 3e9;
is($db->sql(qq{SELECT ($active_s) > 2, abs((} . sprintf($activity, 'span', $_) . qq{) - ($active_s)) < 0.01}), 't|t', "activity in buckets of $_ s adds up") for 1, 3;
is($db->sql(q{SELECT count(*) > 0, bool_and(active_sessions IS NULL AND covered_fraction = 0) FROM span, pgscale.activity(since, until, '1 s')
    WHERE event_type IS NULL}), 't|t', 'and a gap is seen');
is($db->sql(q{SELECT bool_and(abs(coalesce(active_sessions_2, 0) - coalesce(active_sessions_1, 0) - difference) < 0.02), count(*) > 2,
    abs(sum(fraction_1) - 1) < 0.01, abs(sum(fraction_2) - 1) < 0.01
    FROM span, pgscale.compare_waits(since, since + (until - since) / 2, since + (until - since) / 2, until, top => 2)}), 't|t|t|t', 'two periods beside each other');
is($db->sql(q{SELECT bool_and(active_sessions_1 IS NULL AND difference IS NULL), count(*) > 0
    FROM span, pgscale.compare_waits(since - interval '2 h', since - interval '1 h', since, until)}), 't|t', 'of which one is not known');
is($db->sql(qq{SELECT count(*) > 0, bool_and(datname IS NULL AND usename ~ '^role [0-9]+\$') FROM pgscale.past_waits() WHERE datid = $dropped}), 't|t',
    'what was dropped has its OID for a name');
is($db->sql(qq{SELECT count(*) FROM pgscale.top_waits(by => 'database') WHERE item = 'database $dropped'}), 1, 'and is an item');
is($db->sql(q{SELECT event FROM pgscale.top_waits(by => 'application') WHERE item = 'nightly'}), 'PgSleep', 'an application, with its longest wait');

# Of times that the archive has, its rows count, and memory for the rest: nothing is twice, and nothing is missing. What it does
# not tell apart is other, whatever is asked for.
my $seconds = q{SELECT a.at, a.event_type, round(a.active_sessions::numeric, 6) FROM span, pgscale.activity(since, since + (until - since) / 2, '1 s') a WHERE covered_fraction > 0.999};
$db->sql("CREATE TABLE seconds AS $seconds");
is($db->sql("SELECT count(*) > 0 FROM span, pgscale.activity(since, since + (until - since) / 2, '1 s') a WHERE covered_fraction > 0"), 't', 'activity knows seconds');
$db->sql(q{CREATE TABLE archived AS SELECT since, since + (until - since) / 2 AS until, extract(epoch FROM (until - since) / 2)::float8 AS s,
    (SELECT sum(wait_ms) FROM pgscale.past_waits(since + (until - since) / 2, until)) AS ms_beside,
    (SELECT sum(period_s) FROM pgscale.past_coverage(since + (until - since) / 2, until)) AS s_beside FROM span;
    CREATE TABLE partition PARTITION OF pgscale_internal.archive_minute DEFAULT;
    INSERT INTO pgscale_internal.archive_minute (at, period_s, rounds, cluster, database, backend_types, datids, datnames, usenames,
        application_names, queryids, event_types, events, blockers, wait_ms)
    SELECT since, s, 1, 1, 1, '{client backend,checkpointer,other}', '{1,0,0}', '{old,NULL,NULL}', '{somebody,NULL,NULL}',
        '{batch,NULL,NULL}', '{4711,NULL,NULL}', '{Lock,IO,other}', '{tuple,DataFileSync,other}', '{99 psql,NULL,NULL}', '{4000,200,100}' FROM archived});
is($db->sql(q{SELECT abs(sum(wait_ms) - 4300 - max(ms_beside)) < 0.01 FROM archived, pgscale.past_waits()}), 't', 'half of it from the archive');
is($db->sql(q{SELECT string_agg(DISTINCT source, ' '), abs(sum(period_s) - max(s + s_beside)) < 1e-5 FROM archived, pgscale.past_coverage()}), 'archive memory|t', 'no time is twice');
is($db->sql(q{SELECT round(sum(wait_ms)), abs(sum(period_s) - s / 4 * 3) < 1e-3 FROM archived, pgscale.past_waits(archived.since + make_interval(secs => s / 4),
    archived.since + make_interval(secs => s / 2)) GROUP BY s}), '1075|t', 'a row of the archive counts by its part');
for (
    [ event => 'Lock:tuple|4000|other|100' ], [ class => 'Lock|4000|other|100' ], [ query => '4711|4000|other|100' ], [ user => 'somebody|4000|other|100' ],
    [ database => 'old|4000|other|100' ], [ application => 'batch|4000|other|100' ], [ blocker => '99 psql|4000' ], [ backend_type => 'client backend|4000|other|300' ])
{
    is($db->sql(qq{SELECT string_agg(item || '|' || round(t.wait_ms), '|' ORDER BY rank) FROM archived a, pgscale.top_waits(a.since, a.until, '$_->[0]', 1) t}),
        $_->[1], "of the archive, by $_->[0]");
}
# A second in memory is finer than a row of the archive. What another server did is only in the archive.
# On a busy machine no second may be known as a whole.
is($db->sql("SELECT count(*) FROM (TABLE seconds EXCEPT $seconds) s"), 0, 'activity has what memory has of each second');
$db->sql(q{UPDATE pgscale_internal.archive_minute SET node = 'elsewhere'});
is($db->sql('SELECT abs((' . sprintf($activity, 'archived', 1) . ') - 4.1) < 0.01'), 't', 'activity of another server');
is($db->sql(q{SELECT string_agg(item, ' ' ORDER BY item) FROM archived a, pgscale.compare_waits(a.since, a.until, now() - interval '1 d', now() - interval '1 h', 'query', 1)}),
    '4711 other', 'and beside another period');
is(session($node, user => 'observer')->sql(q{SELECT count(*) FROM pgscale.top_waits(by => 'user') WHERE item = 'somebody'}), 1, 'for pg_monitor, too');
$db->sql('DROP TABLE partition');

# Times at both ends and beyond
my $none = q{SELECT (SELECT count(*) FROM pgscale.past_waits(%1$s)), (SELECT count(*) FROM pgscale.top_waits(%1$s)),
    (SELECT count(*) FROM pgscale.past_coverage(%1$s)), (SELECT count(*) FROM pgscale.activity(%1$s) WHERE event_type IS NOT NULL)};
is($db->sql(sprintf $none, $_), '0|0|0|0', "nothing: $_")
  for q{now() + interval '1 h'}, q{now() + interval '1 h', now() + interval '2 h'}, q{'infinity'}, q{'infinity', 'infinity'}, q{NULL, '-infinity'},
  q{'-infinity', '-infinity'}, q{now() - interval '2 h', now() - interval '1 h'}, q{'4713-01-01 BC', '1999-01-01'}, q{now(), now()}, q{NULL, '4713-01-01 BC'};
is($db->sql(qq{SELECT abs(sum(wait_ms) - max(ms)) < 0.01 FROM whole, pgscale.past_waits($_)}), 't', "everything: $_")
  for q{'-infinity'}, q{'-infinity', 'infinity'}, q{'1980-01-01', '294276-12-31'}, q{(SELECT since FROM span)}, q{NULL, 'infinity'};
for (
    [ '22023', 'since must not be later than until', qw(past_waits top_waits past_coverage activity), q{now(), now() - interval '1 s'} ],
    [ '22023', 'since must not be later than until', qw(past_waits top_waits past_coverage activity), q{'infinity', '-infinity'} ],
    [ '22023', 'cannot group waits by', 'top_waits', q{by => 'moon'} ],
    [ '22023', 'cannot group waits by', 'top_waits', q{by => NULL} ],
    [ '22023', 'top must be', 'top_waits', q{top => 0} ],
    [ '22023', 'top must be', 'top_waits', q{top => NULL} ],
    [ '22023', 'top must be', 'top_waits', q{top => 1000001} ],
    [ '22023', 'resolution', 'past_waits', q{NULL, NULL, 0.99} ],
    [ '22023', 'resolution', 'past_waits', q{NULL, NULL, 1000000001} ],
    [ '22023', 'bucket must be', 'activity', q{bucket => '0'} ],
    [ '22023', 'bucket must be', 'activity', q{bucket => '-1 s'} ],
    [ '22023', 'bucket must be', 'activity', q{bucket => '1 month'} ],
    [ '22023', 'bucket must be', 'activity', q{bucket => '1 year -1 day'} ],
    [ '22023', 'more than 100000', 'activity', q{'2001-01-01', bucket => '1 s'} ],
    [ '22023', 'cannot group', 'compare_waits', q{NULL, NULL, NULL, NULL, 'moon'} ],
    [ '22023', 'top must', 'compare_waits', q{NULL, NULL, NULL, NULL, 'event', -1} ],
    [ '22023', 'since must', 'compare_waits', q{NULL, NULL, now(), '2020-01-01'} ],
    [ '22023', 'resolution', 'past_waits', q{NULL, NULL, 'NaN'} ],
    [ '22023', 'resolution', 'past_waits', q{NULL, NULL, -1} ],
    [ '22023', 'resolution', 'past_waits', q{NULL, NULL, 'infinity'} ],
    [ '22023', 'bucket must be', 'activity', q{bucket => '36501 days'} ],
    [ '22023', 'bucket must be', 'activity', q{bucket => '2147483647 days'} ])
{
    my ($state, $message, @functions) = @$_;
    my $arguments = pop @functions;
    for my $function (@functions)
    {
        my ($got, $text) = $db->try("SELECT * FROM pgscale.$function($arguments)");
        is($got, $state, "$function($arguments)") or diag $text;
        like($text, qr/$message.*HINT: /s, 'with the reason and what to do');
    }
}

# Who may see what. Text is what pg_stat_statements shows the caller, and a planted view of that name is nothing.
my $observer = session($node, user => 'observer');
is($observer->sql(q{SELECT count(*) > 0 FROM pgscale.top_waits()}), 't', 'pg_monitor');
$db->sql(q{GRANT USAGE ON SCHEMA pgscale, pgscale_internal TO granted; GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA pgscale, pgscale_internal TO granted});
my $granted = session($node, user => 'granted');
is($granted->sql(q{SELECT count(*) > 0, count(application_name) FROM pgscale.past_waits() WHERE event = 'PgSleep'}), 't|0',
    'without pg_read_all_stats applications are hidden');
$db->sql(q{CREATE FUNCTION public.trap() RETURNS bigint LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION $$trapped$$; END';
    CREATE VIEW public.pg_stat_statements AS SELECT public.trap() AS queryid, public.trap()::text AS query;
    GRANT SELECT ON public.pg_stat_statements TO PUBLIC;
    CREATE FUNCTION public.lower(tstzrange) RETURNS timestamptz LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION $$trapped$$; END';
    CREATE FUNCTION pgscale_internal.past_items(timestamptz, timestamptz, text, bigint) RETURNS int LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION $$trapped$$; END';
    CREATE FUNCTION pgscale_internal.past_queries(anyarray) RETURNS int LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION $$trapped$$; END';
    CREATE FUNCTION pgscale.past_waits(timestamptz, timestamptz) RETURNS int LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION $$trapped$$; END';
    CREATE FUNCTION pgscale.past_waits(timestamptz, timestamptz, numeric) RETURNS int LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION $$trapped$$; END';
    SET search_path = public, pg_catalog});
for my $call ('top_waits()', q{top_waits(by => 'query')}, 'activity()', 'compare_waits(NULL, NULL, NULL, NULL)', 'past_coverage()')
{
    my ($state, $text) = $db->try("SELECT * FROM pgscale.$call");
    is($state, '00000', "$call: what others have planted does not run") or diag $text;
}
$db->sql('RESET search_path; DROP VIEW public.pg_stat_statements');
SKIP:
{
    skip 'this server has no pg_stat_statements', 6 unless $statements;

    my $text = q{SELECT string_agg(DISTINCT query, ';') FROM pgscale.top_waits(by => 'query') WHERE event = 'PgSleep' AND query ~ 'began|insufficient'};
    my $health = q{SELECT state, reason, action FROM pgscale.health WHERE feature = 'query_waits'};
    like($db->sql($text), qr/^SELECT clock_timestamp\(\) AS began, pg_sleep\(0\.3\)/, 'where the extension is not installed, the text of a session that is there');
    is($granted->sql($text), '', 'which others do not see');
    is($db->sql($health), 'off|pg_stat_statements is not installed in this database|run CREATE EXTENSION pg_stat_statements', 'health says so');
    $db->sql('CREATE SCHEMA elsewhere; CREATE EXTENSION pg_stat_statements SCHEMA elsewhere; GRANT USAGE ON SCHEMA elsewhere TO PUBLIC');
    like($db->sql($text), qr/^SELECT clock_timestamp\(\) AS began, pg_sleep\(\$1\)/, 'a text, wherever it is installed');
    is($observer->sql($text), $db->sql($text), 'for pg_monitor, too');
    is($granted->sql($text), '', 'and not for others');
}

# A reset empties it.
$db->sql('SELECT pgscale.reset($$sampler$$)');
is($db->sql(sprintf $none, q{'-infinity'}), '0|0|0|0', 'a reset empties all of it');

# What goes on after that begins a time of its own.
$db->sampler('on');
$sleeper->start('SELECT pg_sleep(60)');
$db->poll_ok(q{SELECT count(*) > 0 FROM pgscale.top_waits() WHERE item = 'Timeout:PgSleep'}, 'it goes on');
$db->sampler('off');
$db->poll_ok('SELECT clock_timestamp() > max(at + make_interval(secs => period_s)) + interval $$1 s$$ FROM pgscale.past_coverage()', 'a gap');
$db->sampler('on');
$db->poll_ok(q{SELECT count(*) FROM pgscale.past_coverage() WHERE source = 'memory'}, 'is seen as one', 2);
is($db->sql(q{SELECT max(n) FROM (SELECT count(*) AS n FROM pgscale.past_waits() WHERE event = 'PgSleep' GROUP BY at) a}), 1, 'and nothing is twice');
is($db->sql('SELECT abs((ticks + missed_ticks) * 5 - observed_ms) < 500 + lateness_max_us / 1000 FROM pgscale_internal.sampler_stats()'), 't', 'nor has anything been observed then')
  or diag $db->sql('SELECT ticks, missed_ticks, observed_ms FROM pgscale.sampler_stats');

# What is known after a reset begins with it, not with the look before.
$db->sql('SELECT pgscale.reset($$sampler$$)');
$db->poll_ok('SELECT count(*) FROM pgscale.past_coverage()', 'a look after a reset', 1);
is($db->sql('SELECT min(at) >= max(stats_reset) - interval $$2 ms$$ FROM pgscale.past_coverage(), pgscale.sampler_stats'), 't', 'stands for the time since then');

# A longer period does not wait for the end of the shorter one, nor the other way round.
$db->set('pgscale.sampler_history_period', '60s');
$db->poll_ok('SHOW pgscale.sampler_history_period', 'a long period', '1min');
my $looks = 'SELECT count(DISTINCT sampled_at) FROM pgscale.wait_history';
my ($ticks) = $db->sql('SELECT ticks FROM pgscale.sampler_stats');
$db->poll_ok("SELECT ticks > $ticks + 60 FROM pgscale.sampler_stats", 'one look may still be of the shorter one');
my $before = $db->sql($looks);
$ticks = $db->sql('SELECT ticks FROM pgscale.sampler_stats');
$db->poll_ok("SELECT ticks > $ticks + 100 FROM pgscale.sampler_stats", 'ticks go on');
is($db->sql($looks), $before, 'and no look is remembered');
$db->set('pgscale.sampler_history_period', '1ms');
$db->poll_ok("SELECT count(DISTINCT sampled_at) > $before + 20 FROM pgscale.wait_history", 'a short period: each tick is a look');

$db->sql(qq{SELECT pg_terminate_backend(} . $sleeper->pid . ')');
$node->stop;
done_testing();
