# The scalability law of a running server: what is measured, discarded, forgotten and said.
use strict;
use warnings;
use IPC::Run;
use PgscaleMadeUp;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

made_up();

# A bucket takes a second, after one more.
$PostgreSQL::Test::Utils::timeout_default = 90 unless $ENV{PG_TEST_TIMEOUT_DEFAULT};

my $primary = pgscale_node('primary', init => [ allows_streaming => 1 ], conf => <<'EOC');
synchronous_commit = off
stats_fetch_consistency = snapshot
pgscale.debug_period = 1s
pgscale.sampler = off
EOC
my $db = session($primary);
my $buckets = 'SELECT buckets FROM pgscale.scalability';

$db->sql('CREATE TABLE t AS SELECT i FROM generate_series(1, 100) i');
my $script = $primary->basedir . '/select.sql';
# It waits as for a disk: sessions that only compute are never more than there are cores.
append_to_file($script, "SELECT count(*), pg_sleep(0.005) FROM t;\n");

# So many clients until stop.
my $load;
sub start_load
{
    my $clients = shift;

    $load = IPC::Run::start([ 'pgbench', '-n', '-f', $script, '-c', $clients, '-T', 3600, $primary->connstr('postgres') ], '>&', \my $out);
    return;
}

sub stop_load
{
    $load->kill_kill if $load;
    undef $load;
    return;
}

END { stop_load() }

### Measured, as this session has it: of buckets of five seconds, and transactions of a database in which nobody is

made_up_functions($db);
my ($transactions, $at) = (1000, '2026-01-01 00:00:00+00');

# Observations of so many seconds and active sessions, each [ 1, 4.5 ], the last of which sees that so many transactions have
# ended; or "anew" => 1
sub observed
{
    my ($ended, $list, $anew) = @_;

    $transactions += $ended;
    $db->sql('DO $$ BEGIN ' . join('', map {
        my ($s, $active) = @{ $list->[$_] };
        ($_ == $#$list ? "PERFORM made_up_transactions(1, $transactions - 300, 300);" : '')
          . "PERFORM made_up_observation('scalability', '$at', " . int($s * 1e9) . ", $active, " . ($anew ? 'true' : 'false') . ', ARRAY[1]::oid[], ARRAY[]::bigint[]);'
    } 0 .. $#$list) . ' END $$');
    return;
}

sub figures { return $db->sql('SELECT buckets, discarded, concurrency, throughput FROM pgscale.scalability') }

# What the points are: concurrency, throughput and seconds of each
sub points
{
    return $db->sql(q{SELECT string_agg(format('%s %s %s', round(concurrency::numeric, 3), round(throughput::numeric, 3), round(seconds::numeric, 3)), ', ' ORDER BY concurrency)
        FROM pgscale_internal.scalability_points()});
}

SKIP:
{
    skip 'pgscale does not show its features', 29 unless shows_modules();
    observed(0, [ [ 1, 3.5 ] ], 1);
    observed(0, [ [ 1, 3 ], [ 2, 4 ], [ 1.9, 4.5 ] ]);
    is(figures(), '0|0||', 'a bucket that is not full');
    observed(700, [ [ 0.1, 4.5 ] ]);
    # 3 + 8 + 9 in 5 s
    is(figures(), '1|0|4|140', 'one that is: sessions by time, and transactions of both kinds');
    is($db->sql(qq{SELECT measured_at = '$at' FROM pgscale.scalability}), 't', 'and when');
    is(points(), '4.000 140.000 5.000', 'a point');
    # Seconds may differ by half of the mean, or by one; the second before the bucket is one of them. A twentieth of a session is
    # enough; less is no measurement, and nothing is discarded. After a gap it begins anew, and has nothing of before.
    for my $case (
        [ 'seconds that differ by two of 4.5', '2|0|4.5|100', [ 500, [ [ 2.5, 3.5 ], [ 2.5, 5.5 ] ] ] ],
        [ 'by more than half: discarded', '2|1|4.5|100', [ 500, [ [ 2.5, 3.1 ], [ 2.5, 5.5 ] ] ] ],
        [ 'by one', '3|1|1.2|100', [ 0, [ [ 1, 0.7 ] ], 1 ], [ 500, [ [ 2.5, 1.7 ], [ 2.5, 0.7 ] ] ] ],
        [ 'by more: the second before counts', '3|2|1.2|100', [ 500, [ [ 5, 1.71 ] ] ] ],
        [ 'and less', '4|2|0.72|100', [ 500, [ [ 5, 0.72 ] ] ] ],
        [ 'a twentieth of a session', '5|2|0.05|1', [ 0, [ [ 1, 0.05 ] ], 1 ], [ 5, [ [ 5, 0.05 ] ] ] ],
        [ 'less', '5|2|0.05|1', [ 5, [ [ 5, 0.049 ] ] ] ],
        [ 'a gap', '5|2|0.05|1', [ 500, [ [ 2, 0.05 ] ] ], [ 0, [ [ 2, 0.05 ] ], 1 ], [ 40, [ [ 4, 0.05 ] ] ] ],
        [ 'and after it', '6|2|0.05|10', [ 10, [ [ 1, 0.05 ] ] ] ],
        [ 'statistics that were reset: discarded', '6|3|0.05|10', [ -800, [ [ 1, 0.05 ] ] ] ],
        [ 'not full', '6|3|0.05|10', [ 300, [ [ 4.5, 0.05 ] ] ] ])
    {
        my ($name, $expected, @observed) = @$case;
        observed(@$_) for @observed;
        is(figures(), $expected, $name);
    }

    # Classes: a quarter of a doubling each. 4 and 4.3 are of one, 4.4 of the next; and all of them decay, by half in a day
    $db->sql('SELECT pgscale.reset($$scalability$$)');
    is($db->sql('SELECT buckets, discarded, points, num_nulls(concurrency, throughput, measured_at) FROM pgscale.scalability'), '0|0|0|3', 'a reset');
    observed(1000, [ [ 2, 4 ] ]);
    is(figures(), '0|0||', 'after which a bucket begins');
    observed(72_000, [ [ 720, 4 ] ]);
    observed(216_000, [ [ 1440, 4.3 ] ]);
    my $kept = 2**(-1440 / 86_400);
    my $n = (4 * $kept * 720 + 4.3 * 1440) / (720 * $kept + 1440);
    my $x = (72_000 * $kept + 216_000) / (720 * $kept + 1440);
    is(points(), sprintf('%.3f %.3f %.3f', $n, $x, 720 * $kept + 1440), 'two of one class, the first of them decayed');
    observed(900, [ [ 6, 4.4 ] ]);
    like(points(), qr/, 4\.400 150\.000 6\.000$/, 'one of the next');
    observed(0, [ [ 60, 4.4 ], [ 1, 0.2 ] ], 1);
    observed(0, [ [ 86_400, 0.2 ] ]);
    like(points(), qr/^\d+\.\d+ \d+\.\d+ 107\d\.\d+$/, 'without a transaction there is no point; and what has less than a bucket left is forgotten');

    # Points of unequal time: a minute of it makes half of the weight. The law by normal equations, of (X / N)^2 times that
    $db->sql('SELECT pgscale.reset($$scalability$$)');
    observed(0, [ [ 1, 1 ] ], 1);
    for my $point ([ 1, 990, 7 ], [ 2, 1850, 200 ], [ 4, 3700, 30 ], [ 8, 5500, 90 ], [ 16, 8800, 12 ], [ 32, 9000, 400 ], [ 64, 9900, 20 ])
    {
        my ($sessions, $rate, $seconds) = @$point;

        observed(0, [ [ 1, $sessions ] ], 1);
        observed($rate * $seconds, [ [ $seconds, $sessions ] ]);
    }
    is($db->sql(q{SELECT count(*), sum((seconds > 0)::int) FROM pgscale_internal.scalability_points()}), '7|7', 'seven points');
    my ($expected) = $db->sql(q{WITH p AS (SELECT concurrency::numeric AS n, throughput::numeric AS x, (seconds / (seconds + 60))::numeric AS w FROM pgscale_internal.scalability_points()),
        r AS (SELECT w, x / n AS a, x / n * (n - 1) AS b, x / n * n * (n - 1) AS c FROM p),
        s AS (SELECT sum(w*a*a) aa, sum(w*a*b) ab, sum(w*a*c) ac, sum(w*b*b) bb, sum(w*b*c) bc, sum(w*c*c) cc, sum(w*a) ya, sum(w*b) yb, sum(w*c) yc FROM r),
        d AS (SELECT ya*(bb*cc-bc*bc) - ab*(yb*cc-bc*yc) + ac*(yb*bc-bb*yc) AS c0, aa*(yb*cc-bc*yc) - ya*(ab*cc-bc*ac) + ac*(ab*yc-yb*ac) AS c1,
                     aa*(bb*yc-yb*bc) - ab*(ab*yc-yb*ac) + ya*(ab*bc-bb*ac) AS c2, aa*(bb*cc-bc*bc) - ab*(ab*cc-bc*ac) + ac*(ab*bc-bb*ac) AS d FROM s)
        SELECT round(d / c0, 4), round(c1 / c0, 8), round(c2 / c0, 10) FROM d});
    is($db->sql('SELECT round(lambda::numeric, 4), round(sigma::numeric, 8), round(kappa::numeric, 10) FROM pgscale_internal.scalability()'), $expected, 'the law, by their weights');
    is($db->sql(q{SELECT min_concurrency, max_concurrency, points FROM pgscale.scalability}), '1|64|7', 'of so many points');
    $db->sql('SELECT pgscale.reset($$scalability$$)');
}
$db->quit;
$db = session($primary);
$db->sampler('on');

### Measured by the sampler, of a load

is($db->sql('SELECT status, points, buckets FROM pgscale.scalability'),
    'insufficient range: nothing has been measured yet|0|0', 'a server at rest has no law');
my $health = q{SELECT enabled, state FROM pgscale.health WHERE feature = 'scalability'};
$db->poll_ok($health, 'health says that it works', 't|working');
for my $clients (7, 2)
{
    my $before = $db->sql($buckets);
    my ($measured, $concurrency, $recent);

    start_load($clients);
    # sessions tell what they have done once a second, on a slow machine later: then it is in a later bucket
    until_ok(sub {
        ($measured, $concurrency, $recent) = split /\|/, $db->sql("SELECT buckets >= $before + 2 AND throughput > 0,
            concurrency, measured_at > now() - interval '20 s' FROM pgscale.scalability");
        return $measured eq 't';
    }, "$clients clients are measured");
    ok($concurrency > 0 && $concurrency < $clients + 2 && $recent eq 't', 'they are active sessions, and not more than there are, now')
      or diag "$concurrency $recent";
    stop_load();
}
# Transactions are counted as the server counts them: what was measured does not exceed them all.
is($db->sql(q{SELECT sum(p.throughput * p.seconds) <= (SELECT sum(xact_commit) FROM pg_stat_database)
    FROM pgscale_internal.scalability_points() p}), 't', 'no transaction is counted twice');

# Does that until a bucket is discarded for it. On a busy machine sessions may come one by one; and where the sampler is late, a
# bucket begins anew instead.
sub discarded_ok
{
    my ($code, $name) = @_;
    my $discarded = $db->sql('SELECT discarded FROM pgscale.scalability');
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return until_ok(sub {
        $code->();
        my $enough = $db->sql($buckets) + 4;
        until_true(sub { $db->sql("SELECT discarded > $discarded OR buckets > $enough FROM pgscale.scalability") eq 't' });
        return $db->sql("SELECT discarded > $discarded FROM pgscale.scalability") eq 't';
    }, $name);
}
discarded_ok(sub { stop_load(); start_load(12) }, 'sessions come: the bucket is discarded');
$db->poll_ok('SELECT concurrency > 4 AND measured_at > now() - interval \'10 s\' FROM pgscale.scalability', 'and measured when they stay');
# a database that comes and goes disturbs nothing, however often
my $unmoved = $db->sql($buckets);
until_ok(sub {
    $db->sql('CREATE DATABASE other');
    session($primary, dbname => 'other')->quit;
    $db->sql('DROP DATABASE other');
    return $db->sql($buckets) > $unmoved;
}, 'measured while databases come and go');
discarded_ok(sub { $db->sql('SELECT pg_stat_reset()') }, 'statistics reset: the bucket is discarded');

### Switched off and on, and reset

$db->sampler('off');
$db->poll_ok($health, 'without the sampler: health says so', 'f|off');
is($db->sql('SELECT points > 0 FROM pgscale.scalability'), 't', 'what was measured is kept');
$db->sampler('on');
$db->poll_ok($health, 'all is back', 't|working');
my $since = $db->sql('SELECT stats_reset FROM pgscale.scalability');
is($db->sql(q{SELECT s.buckets, s.points, s.stats_reset > } . "'$since'" . q{ FROM pgscale.reset('scalability'), LATERAL pgscale_internal.scalability() s}),
    '0|0|t', 'a reset forgets all at once');
$db->poll_ok('SELECT buckets > 0 FROM pgscale.scalability', 'and it begins anew');
stop_load();

$db->quit;
$primary->stop('immediate');
done_testing();
