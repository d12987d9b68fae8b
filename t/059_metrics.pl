# What monitoring systems scrape: no counter falls while the profile evicts and the sampler is started anew; rates are active
# sessions; who may scrape; a restart, a standby and a promotion.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = pgscale_node('primary', init => [ allows_streaming => 1 ], conf => <<'EOC');
pgscale.sampler_period = 1ms
pgscale.sampler_profile_size = 100
EOC
my $db = session($primary);
$db->sql('CREATE ROLE scraper LOGIN IN ROLE pg_monitor');
$db->sql('CREATE ROLE stranger LOGIN');
$db->poll_ok('SELECT ticks > 10 FROM pgscale.sampler_stats', 'the sampler ticks');

### Counters

# What a scrape remembers of the one before, and what of it has fallen
$db->sql(<<'EOQ');
CREATE TABLE scraped AS SELECT name, labels, value FROM pgscale.metrics() WHERE type <> 'gauge';
CREATE FUNCTION fallen(OUT fallen text, OUT grown bigint) LANGUAGE plpgsql AS $$
BEGIN
    CREATE TEMP TABLE latest ON COMMIT DROP AS SELECT name, labels, value FROM pgscale.metrics() WHERE type <> 'gauge';
    SELECT string_agg(format('%s%s: %s, %s', s.name, s.labels, s.value, l.value), '; ') FILTER (WHERE l.value IS NULL OR l.value < s.value),
           count(*) FILTER (WHERE l.value > s.value)
      INTO fallen, grown FROM scraped s LEFT JOIN latest l USING (name, labels);
    DELETE FROM scraped;
    INSERT INTO scraped SELECT * FROM latest;
END $$;
EOQ

# Statements that differ in the number of their columns have different identifiers. They work as well as wait, so that time is moved
# between events, too.
my @workers = map { session($primary) } 1 .. 3;
my $statements = q{SELECT format('SELECT pg_sleep(0.002), (SELECT count(*) FROM generate_series(1, 3000)) n%%s', repeat(', 1', i))
    FROM generate_series(%d, %d) i};
my ($fallen, $scrapes, $grown) = ('', 0, 0);
my $evictions = 'SELECT evictions FROM pgscale.sampler_stats';
until_true(sub {
    $workers[$_]->start(sprintf($statements, 1 + 200 * $_, 200 + 200 * $_) . "\n\\gexec\nSELECT 1") for 0 .. $#workers;
    for my $scrape (1 .. 20)
    {
        my ($what, $how_many) = split /\|/, $db->sql('SELECT * FROM fallen()');
        $fallen .= $what;
        $grown += $how_many;
        $scrapes++;
    }
    $_->finish for @workers;
    return $fallen ne '' || $db->sql("$evictions") > 500;
});
cmp_ok($db->sql($evictions), '>', 500, 'the profile has evicted');
is($fallen, '', "no counter has fallen from one of $scrapes scrapes to the next");
cmp_ok($grown, '>', 0, 'and some have grown');
is($db->sql(q{SELECT count(*) > 0 FROM pgscale.wait_profile() WHERE backend_type = 'other' AND event = 'PgSleep'}), 't',
    'though rows of the profile have');

# A sampler that ends and comes back goes on with what was there.
my $pid = $db->sql('SELECT pid FROM pgscale.sampler_stats');
$workers[0]->start('SELECT pg_sleep(0.5)');
$db->sql("SELECT pg_terminate_backend($pid)");
$db->poll_ok("SELECT pid <> $pid AND period_ms IS NOT NULL FROM pgscale.sampler_stats", 'another sampler');
$workers[0]->finish;
is($db->sql('SELECT fallen FROM fallen()'), '', 'nothing has fallen');
$db->sampler('off');
is($db->sql('SELECT fallen FROM fallen()'), '', 'nor when it is switched off');
$db->sampler('on');
is($db->sql('SELECT fallen FROM fallen()'), '', 'and on');
is($db->sql(q{SELECT count(*) - count(DISTINCT (name, labels)) FROM pgscale.metrics()}), 0, 'each series is there once');

# The archive: what this database has of the last hour
is($db->sql(q{SELECT count(*) FROM pgscale.metrics('archive')}), 0, 'without an archive there is nothing of it');
$db->sql(q{CREATE TABLE archived PARTITION OF pgscale_internal.archive_minute DEFAULT});
$db->sql(q{INSERT INTO archived (at, period_s, rounds, cluster, database, backend_types, datids, datnames, usenames,
        application_names, queryids, event_types, events, blockers, wait_ms)
    SELECT at, 60, 1, 1, 1, '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}', '{}' FROM generate_series(now() - interval '130 minutes', now() - interval '10 minutes', '1 minute') at});
is($db->sql(q{SELECT round((value - extract(epoch FROM (SELECT max(at) FROM archived)))::numeric, 3) FROM pgscale.metrics('archive')
    WHERE name = 'pgscale_archive_last_timestamp_seconds'}), '60.000', 'the end of its last minute');
# a minute may pass meanwhile
is($db->sql(q{SELECT value BETWEEN 40 AND 50 FROM pgscale.metrics('archive') WHERE name = 'pgscale_archive_rounds'}), 't',
    'and how many of the last hour there are');

# A locked table of pgscale: all other features are there; who asks for just this one waits for half a second, or as the caller wants
my $lock = session($primary);
$lock->sql('BEGIN; LOCK TABLE pgscale_internal.archive_minute');
my ($state, $text) = $db->try('SELECT count(*) FROM pgscale.top_waits()');
is($state, '55P03', 'top_waits does not wait for a lock without end');
like($text, qr/HINT: .*pgscale\.blockers/, 'and says where to look');
is(($db->try('SELECT count(*) FROM pgscale.contention()'))[0], '55P03', 'nor does contention');
is(($db->try('SELECT count(*) FROM pgscale.past_coverage($$-infinity$$)'))[0], '55P03', 'nor the search for the oldest row');
is($db->sql(q{SELECT string_agg(DISTINCT labels ->> 'feature', ' ') FILTER (WHERE name = 'pgscale_metrics_missing'), count(*) > 100,
    bool_or(name ~ '^pgscale_archive') FROM pgscale.metrics()}), 'archive|t|f', 'metrics have all but the archive, and say so');
is($db->sql('SHOW lock_timeout'), '0', 'lock_timeout is as it was');
is($db->sql("SET lock_timeout = '$_->[0]'; BEGIN; SELECT pgscale_internal.short_locks(); SHOW lock_timeout; COMMIT; SHOW lock_timeout") =~ s/\s+/ /gr, "$_->[1] $_->[0]",
    "of $_->[0] and half a second the shorter one counts, until it ends")
    for [ '1ms', ' 1ms' ], [ '2s', ' 500ms' ];
$db->sql(q{SET lock_timeout = '1ms'});
like(($db->try(q{DO $$ BEGIN PERFORM pgscale.top_waits(); EXCEPTION WHEN lock_not_available THEN RAISE EXCEPTION 'then %', current_setting('lock_timeout'); END $$}))[1],
    qr/then 1ms/, 'lock_timeout is as it was after the error, too');
$db->sql('RESET lock_timeout');
$lock->sql('ROLLBACK');
$lock->quit;
is($db->sql(q{SELECT count(*) FROM pgscale.metrics() WHERE name = 'pgscale_metrics_missing'}), 0, 'then none is missing');

# What is there is described.
my $page = slurp_file('doc/metrics.md');
is(join(' ', grep { $page !~ /`$_`/ } split /\n/, $db->sql('SELECT DISTINCT name FROM pgscale.metrics() ORDER BY 1')), '',
    'doc/metrics.md has each of them');

### Rates

# Two sessions wait for a third, which idles in a transaction: the longer the window, the less matters that time is added a second late.
my ($holder, @waiters) = map { session($primary) } 1 .. 3;
$holder->sql('BEGIN; SELECT pg_advisory_lock(1)');
$_->start('SELECT pg_advisory_lock_shared(1)') for @waiters;
$db->poll_ok(q{SELECT value FROM pgscale.metrics('blockers') WHERE name = 'pgscale_blockers_waiting_processes'}, 'two wait', 2);
is($db->sql(q{SELECT value FROM pgscale.metrics('blockers') WHERE name = 'pgscale_blockers_roots'}), 1, 'for one');
my $sums = q{SELECT sum(value) FILTER (WHERE labels ->> 'event_type' = 'Lock' AND labels ->> 'backend_type' = 'client backend'),
    sum(value) FILTER (WHERE name = 'pgscale_sampler_observed_seconds_total'), sum(value) FILTER (WHERE labels ->> 'event' = 'IdleInTransaction') FROM pgscale.metrics('sampler')};
my ($waited, $observed, $idled);
until_true(sub { ($waited, $observed, $idled) = split /\|/, $db->sql($sums); $waited && $idled });
my ($sessions, $idle);
in_time_ok(
    sub {
        my ($now, $seconds, $idles) = split /\|/, $db->sql($sums);
        return 0 if $seconds - $observed < 1;
        $sessions = ($now - $waited) / ($seconds - $observed);
        $idle = ($idles - $idled) / ($seconds - $observed);
        return $sessions > 1.8 && $sessions < 2.2 && $idle > 0.8 && $idle < 1.2;
    },
    'rates are the numbers of sessions that wait for a lock, and that are idle in a transaction') or diag "$sessions $idle";
$db->poll_ok(q{SELECT value > 1 FROM pgscale.metrics('blockers') WHERE name = 'pgscale_blockers_longest_wait_seconds'},
    'and the longest has waited for more than a second');
$holder->sql('COMMIT; SELECT pg_advisory_unlock_all()');
$_->finish for @waiters;

### Who may, and where

my $scraper = session($primary, user => 'scraper');
cmp_ok($scraper->sql('SELECT count(*) FROM pgscale.metrics()'), '>', 100, 'pg_monitor is enough');
is(($scraper->try('SELECT pgscale.reset($$sampler$$)'))[0], '42501', 'but for a reset');
my $stranger = session($primary, user => 'stranger');
is(($stranger->try('SELECT * FROM pgscale.metrics()'))[0], '42501', 'others may not scrape');
$_->quit for $scraper, $stranger;

# A restart begins anew, though the profile is kept.
$_->quit for @workers, $holder, @waiters;
$primary->restart;
$db = session($primary);
is($db->sql(q{SELECT coalesce(sum(wait_ms), 0) < (SELECT sum(wait_ms) FROM pgscale.wait_profile() WHERE NOT idle) FROM pgscale_internal.wait_totals()}), 't',
    'after a restart the totals begin anew');
$db->quit;
done_testing();
