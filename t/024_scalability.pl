# The scalability law of a running server: what is measured, discarded, forgotten and said, on a standby too.
use strict;
use warnings;
use IPC::Run;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

# A bucket takes a second, after one more.
$PostgreSQL::Test::Utils::timeout_default = 90 unless $ENV{PG_TEST_TIMEOUT_DEFAULT};

my $primary = pgscale_node('primary', init => [ allows_streaming => 1 ], conf => <<'EOC');
synchronous_commit = off
stats_fetch_consistency = snapshot
pgscale.scalability_debug_period = 1s
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
    my ($node, $clients) = @_;
    my $out = '';
    $load = IPC::Run::start([ 'pgbench', '-n', '-f', $script, '-c', $clients, '-T', 3600, $node->connstr('postgres') ],
        '>&', \$out);
    return;
}

sub stop_load
{
    $load->kill_kill if $load;
    undef $load;
    return;
}

END { stop_load() }

# Under so many clients two buckets are measured; returns the latest as the view shows it.
sub measure
{
    my ($node, $session, $clients) = @_;
    my $before = $session->sql($buckets);

    start_load($node, $clients);
    my ($measured, @latest);
    # sessions tell what they have done once a second, on a slow machine later: then it is in a later bucket
    until_ok(sub {
        ($measured, @latest) = split /\|/, $session->sql("SELECT buckets >= $before + 2 AND throughput > 0,
            concurrency, throughput, measured_at > now() - interval '20 s' FROM pgscale.scalability");
        return $measured eq 't';
    }, "$clients clients are measured");
    stop_load();
    return @latest;
}

# measured

is($db->sql('SELECT status, points, buckets FROM pgscale.scalability'),
    'insufficient range: nothing has been measured yet|0|0', 'a server at rest has no law');
$db->poll_ok(q{SELECT state = 'working' FROM pgscale.health WHERE feature = 'scalability'}, 'health says that it works');
for my $clients (1, 3, 6, 12, 24)
{
    my ($concurrency, $throughput, $recent) = measure($primary, $db, $clients);
    cmp_ok($concurrency, '>', 0, "$clients clients are active sessions");
    cmp_ok($concurrency, '<', $clients + 2, 'and not more than there are');
    cmp_ok($throughput, '>', 0, 'that do transactions');
    is($recent, 't', 'now');
}
cmp_ok($db->sql('SELECT points FROM pgscale.scalability'), '>=', 4, 'a law has enough points');
is($db->sql(q{SELECT status ~ '^(ok|no peak|noisy: |insufficient range: )', lambda > 0, sigma >= 0, kappa >= 0, max_concurrency > 2 * min_concurrency,
        (status = 'ok') = (peak_concurrency IS NOT NULL) FROM pgscale.scalability}), 't|t|t|t|t|t', 'the law')
  or diag $db->sql('SELECT row_to_json(s) FROM pgscale.scalability s');
is($db->sql(q{SELECT s.points = count(*), s.max_concurrency = max(p.concurrency), sum(p.seconds) > 5, bool_and(p.throughput > 0)
        FROM pgscale.scalability() s, pgscale.scalability_points() p GROUP BY s.points, s.max_concurrency}),
    't|t|t|t', 'and the points it is fitted to');

# Transactions are counted as the server counts them: what was measured does not exceed them all.
is($db->sql(q{SELECT sum(p.throughput * p.seconds) <= (SELECT sum(xact_commit) FROM pg_stat_database)
    FROM pgscale.scalability_points() p}), 't', 'no transaction is counted twice');

# discarded: sessions that come and go, and statistics that are gone

my $discarded = $db->sql('SELECT discarded FROM pgscale.scalability');
start_load($primary, 12);
$db->poll_ok("SELECT discarded > $discarded FROM pgscale.scalability", 'sessions come: the bucket is discarded');
$discarded = $db->sql('SELECT discarded FROM pgscale.scalability');
$db->poll_ok('SELECT concurrency > 4 AND measured_at > now() - interval \'10 s\' FROM pgscale.scalability', 'and measured when they stay');
stop_load();
$db->poll_ok("SELECT discarded > $discarded FROM pgscale.scalability", 'they go: discarded');
start_load($primary, 2);
my $kept = $db->sql($buckets);
$db->poll_ok("SELECT buckets > $kept FROM pgscale.scalability", 'measured again');
# a database that comes and goes disturbs nothing, however often
my $unmoved = $db->sql($buckets);
until_ok(sub {
    $db->sql('CREATE DATABASE other');
    session($primary, dbname => 'other')->quit;
    $db->sql('DROP DATABASE other');
    return $db->sql($buckets) > $unmoved + 1;
}, 'measured while databases come and go');
$discarded = $db->sql('SELECT discarded FROM pgscale.scalability');
$db->sql('SELECT pg_stat_reset()');
$db->poll_ok("SELECT discarded > $discarded FROM pgscale.scalability", 'statistics reset: the bucket is discarded');
$unmoved = $db->sql($buckets);
$db->poll_ok("SELECT buckets > $unmoved FROM pgscale.scalability", 'and it goes on');

# switched off and on

$db->sql('ALTER SYSTEM SET pgscale.scalability = off');
$db->sql('SELECT pg_reload_conf()');
$db->poll_ok(q{SELECT NOT enabled AND state = 'off' AND action ~ 'pgscale.scalability to on' FROM pgscale.health
    WHERE feature = 'scalability'}, 'switched off: health says so');
is($db->sql('SELECT points > 3 FROM pgscale.scalability'), 't', 'what was measured is kept');
$db->sql('ALTER SYSTEM RESET pgscale.scalability');
$db->sql('ALTER SYSTEM SET track_counts = off');
$db->sql('SELECT pg_reload_conf()');
$db->poll_ok(q{SELECT enabled AND state = 'broken' AND action ~ 'track_counts' FROM pgscale.health WHERE feature = 'scalability'},
    'without track_counts: health says so');
$db->sql('ALTER SYSTEM RESET track_counts');
$db->sampler('off');
$db->poll_ok(q{SELECT enabled AND state = 'broken' AND action ~ 'sampler' FROM pgscale.health WHERE feature = 'scalability'},
    'without the sampler: health says so');
$db->sampler('on');
$db->poll_ok(q{SELECT state = 'working' FROM pgscale.health WHERE feature = 'scalability'}, 'all is back');

# reset

my $since = $db->sql('SELECT stats_reset FROM pgscale.scalability');
is($db->sql(q{SELECT s.buckets, s.points, s.stats_reset > } . "'$since'" . q{ FROM pgscale.scalability_reset(), LATERAL pgscale.scalability() s}),
    '0|0|t', 'a reset forgets all at once');
$db->poll_ok('SELECT buckets > 0 FROM pgscale.scalability', 'and it begins anew');
stop_load();

# a standby

my $standby = pgscale_standby($primary);
my $replica = session($standby);
is($replica->sql('SELECT pg_is_in_recovery()'), 't', 'a standby');
my ($concurrency, $throughput) = measure($standby, $replica, 4);
cmp_ok($throughput, '>', 0, 'its transactions are measured');

done_testing();
