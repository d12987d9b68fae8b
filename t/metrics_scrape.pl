# What monitoring systems scrape: no counter falls while the profile evicts and the sampler is started anew; rates are active
# sessions; a locked table; a restart.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = pgscale_node('primary', conf => <<'EOC');
pgscale.sampler_period = 1ms
pgscale.sampler_profile_size = 100
EOC
my $db = session($primary);
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
is($db->sql(q{SELECT count(*) > 0 FROM pgscale_internal.wait_profile() WHERE backend_type = 'other' AND event = 'PgSleep'}), 't',
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

# A locked table of pgscale: all other features are there; who asks for just this one waits for half a second, or as the caller wants
my $lock = session($primary);
$lock->sql('BEGIN; LOCK TABLE pgscale_internal.archive_minute');
my ($state, $text) = $db->try('SELECT count(*) FROM pgscale.top_waits()');
is($state, '55P03', 'top_waits does not wait for a lock without end');
like($text, qr/HINT: .*pgscale\.blockers/, 'and says where to look');
is(($db->try('SELECT count(*) FROM pgscale.contention()'))[0], '55P03', 'nor does contention');
is(($db->try('SELECT count(*) FROM pgscale_internal.past_coverage($$-infinity$$)'))[0], '55P03', 'nor the search for the oldest row');
is($db->sql(q{SELECT string_agg(DISTINCT labels ->> 'feature', ' ') FILTER (WHERE name = 'pgscale_metrics_missing'), count(*) > 100,
    bool_or(name ~ '^pgscale_archive') FROM pgscale.metrics()}), 'archive|t|f', 'metrics have all but the archive, and say so');
is($db->sql('SHOW lock_timeout'), '0', 'lock_timeout is as it was');
is($db->sql("SET lock_timeout = '$_->[0]'; BEGIN; SELECT pgscale_internal.short_locks(); SHOW lock_timeout; COMMIT; RESET lock_timeout") =~ s/\s+//gr, $_->[1],
    "of $_->[0] and half a second the shorter one counts") for [ '1ms', '1ms' ], [ '2s', '500ms' ];
$lock->sql('ROLLBACK');
$lock->quit;
is($db->sql(q{SELECT count(*) FROM pgscale.metrics() WHERE name = 'pgscale_metrics_missing'}), 0, 'then none is missing');

is($db->sql(q{SELECT count(*) FROM pgscale.metrics() WHERE help IS NULL OR help = ''}), 0, 'each has its help');

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

# A restart begins anew, though the profile is kept.
$_->quit for @workers, $holder, @waiters;
$primary->restart;
$db = session($primary);
is($db->sql(q{SELECT coalesce(sum(wait_ms), 0) < (SELECT sum(wait_ms) FROM pgscale_internal.wait_profile() WHERE NOT idle) FROM pgscale_internal.wait_totals()}), 't',
    'after a restart the totals begin anew');
$db->quit;
done_testing();
