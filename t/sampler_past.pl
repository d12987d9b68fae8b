# The past as the history has it: gaps, what the archive has of it, who may see what, and bad input. Figures are in
# t/sampler_exact.pl.
use strict;
use warnings;
use PgscaleSampler;
use PgscaleTest;
use Test::More;
use Time::HiRes ();

my $node = pgscale_node('main', conf => <<'EOC');
pgscale.sampler_period = 5ms
pgscale.sampler_history_period = 100ms
pgscale.sampler_dimensions = 'application_name'
EOC
my $db = session($node);
$db->sql('CREATE ROLE sleeper LOGIN; CREATE ROLE gone LOGIN; CREATE ROLE granted LOGIN;
    CREATE ROLE observer LOGIN IN ROLE pg_monitor');
$db->sql('CREATE DATABASE dropped');
my $sleeper = session($node, user => 'sleeper');
$sleeper->sql(q{SET application_name = 'nightly'});

# One look in twenty ticks is remembered, and stands for the time since the look before. The session sleeps all the while, so
# that its time is the time that is known. A look long after the one before stands for a period, and what is before it is a
# gap.
$sleeper->start('SELECT pg_sleep(600)');
$db->poll_ok(q{SELECT count(DISTINCT sampled_at) > 6 FROM pgscale.wait_history WHERE event = 'PgSleep'}, 'a session sleeps');
is($db->sql(q{SELECT count(*) * 10 < (SELECT samples FROM pgscale_internal.wait_profile()
        WHERE event = 'PgSleep' AND userid = 'sleeper'::regrole)
    FROM pgscale.wait_history WHERE event = 'PgSleep'}), 't', 'few of its samples are kept');
my $sampler = $db->sql('SELECT pid FROM pgscale.sampler_stats');
$db->sql('CREATE TABLE slept AS SELECT max(sampled_at) AS since FROM pgscale.wait_history');
my $looks = q{SELECT count(DISTINCT sampled_at) FROM pgscale.wait_history};
my $clock = sub { Time::HiRes::clock_gettime(Time::HiRes::CLOCK_MONOTONIC()) };
kill 'STOP', $sampler or die "cannot stop the sampler: $!";
my $stopped = $clock->();
my $looked = $db->sql($looks);
until_true(sub { $clock->() > $stopped + 3.2 });
$stopped = $clock->() - $stopped;
kill 'CONT', $sampler;
$db->poll_ok("SELECT ($looks) > $looked + 4", 'the sampler was stopped for more than three seconds, and goes on');
$db->sampler('off');
is($db->sql(q{SELECT abs(active_sessions - 1) < 0.05 FROM slept, pgscale.top_waits(since) WHERE item = 'Timeout:PgSleep'}), 't',
    'its time is the time that is known')
  or diag $db->sql(q{SELECT t.* FROM slept, pgscale.top_waits(since) t; SELECT * FROM pgscale_internal.past_coverage()});
is($db->sql(q{SELECT sum(period_s) / (SELECT count(DISTINCT sampled_at) FROM pgscale.wait_history WHERE sampled_at > since)
        BETWEEN 0.05 AND 1 FROM slept, pgscale_internal.past_coverage(since) GROUP BY since}), 't', 'a look each 100 ms');
is($db->sql(qq{SELECT count(*), bool_and(gap_s IS NULL OR gap_s BETWEEN $stopped - 0.15 AND $stopped + 2)
    FROM (SELECT extract(epoch FROM at - lag(at + make_interval(secs => period_s)) OVER (ORDER BY at)) AS gap_s
            FROM pgscale_internal.past_coverage()) g}), '2|t', 'the rest is a gap');
cancelled($db, $sleeper);
$db->sampler('on');
$sleeper->sql('SELECT pg_sleep(0.3)');

# What is dropped afterwards
my $of_gone = session($node, user => 'gone', dbname => 'dropped');
$of_gone->sql('SELECT pg_sleep(0.5)');
my $dropped = $db->sql(q{SELECT oid FROM pg_database WHERE datname = 'dropped'});
$of_gone->quit;
until_true(sub { ($db->try('DROP DATABASE dropped'))[0] eq '00000' });
$db->sql('DROP ROLE gone');
$db->sampler('off');
is($db->sql(qq{SELECT count(*) > 0, bool_and(datname IS NULL AND usename ~ '^role [0-9]+\$') FROM pgscale.past_waits()
    WHERE datid = $dropped}),
    't|t', 'what was dropped has its OID for a name');
is($db->sql(qq{SELECT count(*) FROM pgscale.top_waits(by => 'database') WHERE item = 'database $dropped'}), 1, 'and is an item');

# Of times that the archive has, its rows count, and memory for the rest: nothing is twice, and nothing is missing. What it
# does not tell apart is other, whatever is asked for.
$db->poll_ok('SELECT clock_timestamp() > max(at + make_interval(secs => period_s)) + interval $$1.1 s$$
    FROM pgscale_internal.past_coverage()', 'a gap');
$db->sql(q{CREATE TABLE whole AS SELECT sum(wait_ms) AS ms FROM pgscale.past_waits();
    CREATE TABLE archived AS SELECT since, middle AS until, extract(epoch FROM middle - since)::float8 AS s,
        (SELECT sum(wait_ms) FROM pgscale.past_waits(middle, until)) AS ms_beside,
        (SELECT sum(period_s) FROM pgscale_internal.past_coverage(middle, until)) AS s_beside
      FROM (SELECT since, until, since + (until - since) / 2 AS middle
              FROM (SELECT min(at) AS since, max(at + make_interval(secs => period_s)) AS until FROM pgscale_internal.past_coverage()) s) m;
    CREATE TABLE partition PARTITION OF pgscale_internal.archive_minute DEFAULT});
my $seconds = q{SELECT a.at, a.event_type, round(a.active_sessions::numeric, 6)
    FROM archived, pgscale.activity(since, until, '1 s') a WHERE coverage_fraction > 0.999};
$db->sql("CREATE TABLE seconds AS $seconds");
$db->sql(q{INSERT INTO pgscale_internal.archive_minute (at, period_s, rounds, cluster, database, backend_types, datids, datnames,
        usenames, application_names, queryids, event_types, events, blockers, wait_ms)
    SELECT since, s, 1, 1, 1, '{client backend,checkpointer,other}', '{1,0,0}', '{old,NULL,NULL}', '{somebody,NULL,NULL}',
        '{batch,NULL,NULL}', '{4711,NULL,NULL}', '{Lock,IO,other}', '{tuple,DataFileSync,other}', '{99 psql,NULL,NULL}',
        '{4000,200,100}' FROM archived});
is($db->sql(q{SELECT abs(sum(wait_ms) - 4300 - max(ms_beside)) < 0.01 FROM archived, pgscale.past_waits()}), 't',
    'half of it from the archive');
is($db->sql(q{SELECT string_agg(DISTINCT source, ' '), abs(sum(period_s) - max(s + s_beside)) < 1e-5
    FROM archived, pgscale_internal.past_coverage()}),
    'archive memory|t', 'no time is twice');
is($db->sql(q{SELECT round(sum(wait_ms)), abs(sum(period_s) - s / 4 * 3) < 1e-3 FROM archived,
    pgscale.past_waits(since + make_interval(secs => s / 4), since + make_interval(secs => s / 2)) GROUP BY s}), '1075|t',
    'a row of the archive counts by its part');
for (
    [ event => 'Lock:tuple|4000|other|100' ], [ class => 'Lock|4000|other|100' ], [ query => '4711|4000|other|100' ],
    [ user => 'somebody|4000|other|100' ], [ database => 'old|4000|other|100' ], [ application => 'batch|4000|other|100' ],
    [ blocker => '99 psql|4000' ], [ backend_type => 'client backend|4000|other|300' ])
{
    is($db->sql(qq{SELECT string_agg(item || '|' || round(t.wait_ms), '|' ORDER BY rank)
        FROM archived a, pgscale.top_waits(a.since, a.until, '$_->[0]', 1) t}), $_->[1], "of the archive, by $_->[0]");
}
# A second in memory is finer than a row of the archive. What another server did is only in the archive. On a busy machine no
# second may be known as a whole.
is($db->sql("SELECT count(*) FROM (TABLE seconds EXCEPT $seconds) s"), 0, 'activity has what memory has of each second');
$db->sql(q{UPDATE pgscale_internal.archive_minute SET node = 'elsewhere'});
is($db->sql(q{SELECT abs(sum(active_sessions * coverage_fraction) - 4.1) < 0.01
    FROM archived p, pgscale.activity(p.since, p.until, '1 s')}), 't',
    'activity of another server');
is($db->sql(q{SELECT string_agg(item, ' ' ORDER BY item) FROM archived a,
    pgscale.compare_waits(a.since, a.until, now() - interval '1 d', now() - interval '1 h', 'query', 1)}), '4711 other',
        'and beside another period');
my $observer = session($node, user => 'observer');
is($observer->sql(q{SELECT count(*) FROM pgscale.top_waits(by => 'user') WHERE item = 'somebody'}), 1, 'for pg_monitor, too');
$db->sql('DROP TABLE partition');

# Times at both ends and beyond
my $none = q{SELECT (SELECT count(*) FROM pgscale.past_waits(%1$s)), (SELECT count(*) FROM pgscale.top_waits(%1$s)),
    (SELECT count(*) FROM pgscale_internal.past_coverage(%1$s)), (SELECT count(*) FROM pgscale.activity(%1$s) WHERE event_type IS NOT NULL)};
is($db->sql(sprintf $none, $_), '0|0|0|0', "nothing: $_")
  for q{now() + interval '1 h', now() + interval '2 h'}, q{'infinity'}, q{'infinity', 'infinity'}, q{NULL, '-infinity'},
  q{'4713-01-01 BC', '1999-01-01'}, q{now(), now()};
is($db->sql(qq{SELECT abs(sum(wait_ms) - max(ms)) < 0.01 FROM whole, pgscale.past_waits($_)}), 't', "everything: $_")
  for q{'-infinity', 'infinity'}, q{'1980-01-01', '294276-12-31'}, q{NULL, 'infinity'};
for (
    (map { [ 'since must not be later than until', $_, q{now(), now() - interval '1 s'} ] }
          qw(past_waits top_waits activity)),
    [ 'since must not be later', 'activity', q{'infinity', '-infinity'} ],
    [ 'cannot group waits by', 'top_waits', q{by => 'moon'} ],
    [ 'cannot group waits by', 'top_waits', q{by => NULL} ],
    (map { [ 'top must be', 'top_waits', "top => $_" ] } qw(0 NULL 1000001)),
    (map { [ 'resolution', 'past_waits', "NULL, NULL, $_" ] } qw(0.99 -1 1000000001 'NaN' 'infinity')),
    (map { [ 'bucket must be', 'activity', "bucket => '$_'" ] } '0', '-1 s', '1 month', '1 year -1 day', '36501 days'),
    [ 'more than 100000', 'activity', q{'2001-01-01', bucket => '1 s'} ],
    [ 'cannot group', 'compare_waits', q{NULL, NULL, NULL, NULL, 'moon'} ],
    [ 'top must', 'compare_waits', q{NULL, NULL, NULL, NULL, 'event', -1} ],
    [ 'since must', 'compare_waits', q{NULL, NULL, now(), '2020-01-01'} ])
{
    my ($message, $function, $arguments) = @$_;
    my ($state, $text) = $db->try("SELECT * FROM pgscale.$function($arguments)");
    like("$state $text", qr/^22023 .*$message.*HINT: /s, "$function($arguments): the reason and what to do");
}

# Who may see what. Text is what pg_stat_statements shows the caller, and a planted view of that name is nothing.
is($observer->sql(q{SELECT count(*) > 0 FROM pgscale.top_waits()}), 't', 'pg_monitor');
$db->sql(q{GRANT USAGE ON SCHEMA pgscale, pgscale_internal TO granted;
    GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA pgscale, pgscale_internal TO granted});
my $granted = session($node, user => 'granted');
is($granted->sql(q{SELECT count(*) > 0, count(application_name) FROM pgscale.past_waits() WHERE event = 'PgSleep'}), 't|0',
    'without pg_read_all_stats applications are hidden');
my $trap = q{LANGUAGE plpgsql AS 'BEGIN RAISE EXCEPTION $$trapped$$; END'};
$db->sql("CREATE FUNCTION $_ $trap") for 'public.trap() RETURNS bigint', 'public.lower(tstzrange) RETURNS timestamptz',
  'pgscale_internal.past_items(timestamptz, timestamptz, text, bigint) RETURNS int',
  'pgscale_internal.past_queries(anyarray) RETURNS int',
  'pgscale.past_waits(timestamptz, timestamptz) RETURNS int', 'pgscale.past_waits(timestamptz, timestamptz, numeric) RETURNS int';
$db->sql('CREATE VIEW public.pg_stat_statements AS SELECT public.trap() AS queryid, public.trap()::text AS query;
    GRANT SELECT ON public.pg_stat_statements TO PUBLIC; SET search_path = public, pg_catalog');
for my $call ('top_waits()', q{top_waits(by => 'query')}, 'activity()', 'compare_waits(NULL, NULL, NULL, NULL)')
{
    is(($db->try("SELECT * FROM pgscale.$call"))[0], '00000', "$call: what others have planted does not run");
}
$db->sql('RESET search_path; DROP VIEW public.pg_stat_statements');

# A reset empties it. What goes on after that begins a time of its own.
$db->sql('SELECT pgscale.reset($$sampler$$)');
is($db->sql(sprintf $none, q{'-infinity'}), '0|0|0|0', 'a reset empties all of it');
$db->sampler('on');
$sleeper->start('SELECT pg_sleep(600)');
$db->poll_ok(q{SELECT count(*) > 0 FROM pgscale.top_waits() WHERE item = 'Timeout:PgSleep'}, 'it goes on');
$db->sampler('off');
$db->poll_ok('SELECT clock_timestamp() > max(at + make_interval(secs => period_s)) + interval $$1 s$$ FROM pgscale_internal.past_coverage()',
    'a gap');
$db->sampler('on');
$db->poll_ok(q{SELECT count(*) FROM pgscale_internal.past_coverage() WHERE source = 'memory'}, 'is seen as one', 2);
is($db->sql(q{SELECT max(n) FROM (SELECT count(*) AS n FROM pgscale.past_waits() WHERE event = 'PgSleep' GROUP BY at) a}), 1,
    'and nothing is twice');
is($db->sql('SELECT abs((ticks + missed_ticks) * 5 - observed_ms) < 500 + lateness_max_us / 1000
    FROM pgscale_internal.sampler_stats()'), 't',
    'nor has anything been observed then') or diag $db->sql('SELECT ticks, missed_ticks, observed_ms FROM pgscale.sampler_stats');

# What is known after a reset begins with it, not with the look before.
$db->sql('SELECT pgscale.reset($$sampler$$)');
$db->poll_ok('SELECT count(*) FROM pgscale_internal.past_coverage()', 'a look after a reset', 1);
is($db->sql('SELECT min(at) >= max(stats_reset) - interval $$2 ms$$ FROM pgscale_internal.past_coverage(), pgscale.sampler_stats'), 't',
    'stands for the time since then');

# A longer period does not wait for the end of the shorter one, nor the other way round.
my $ticks_on = sub {
    my ($more, $name) = @_;
    my $ticks = $db->sql('SELECT ticks FROM pgscale.sampler_stats');
    $db->poll_ok("SELECT ticks > $ticks + $more FROM pgscale.sampler_stats", $name);
};
$db->set('pgscale.sampler_history_period', '60s');
$db->poll_ok('SHOW pgscale.sampler_history_period', 'a long period', '1min');
$ticks_on->(60, 'one look may still be of the shorter one');
my $before = $db->sql($looks);
$ticks_on->(100, 'ticks go on');
is($db->sql($looks), $before, 'and no look is remembered');
$db->set('pgscale.sampler_history_period', '1ms');
$db->poll_ok("SELECT ($looks) > $before + 20", 'a short period: each tick is a look');

$db->sql('SELECT pg_terminate_backend(' . $sleeper->pid . ')');
$node->stop;
done_testing();
