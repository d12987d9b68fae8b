# The sweeper's modes, switched to and fro, and with several workers.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my @modes = (has_freelist() ? 'freelist' : (), 'window');
my $node = pgscale_node('main', conf => <<'EOC');
shared_buffers = 8MB
max_worker_processes = 60
checkpoint_timeout = 1h
synchronous_commit = off
pgscale.sweeper = on
pgscale.sweeper_adaptive = off
pgscale.sweeper_writers = 2
pgscale.sweeper_mode = window
EOC
my $db = session($node);

# Each worker does something.
sub all_work_ok
{
    my ($workers, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    $db->sql('SELECT pgscale.reset($$sweeper$$)');
    return $db->poll_ok(q{SELECT count(*), bool_and(state = 'working' AND supplied_clean + supplied_written > 0 AND written > 0
        AND writers > 0) FROM pgscale.sweeper_stats}, $name, "$workers|t")
      || !diag $db->sql('SELECT row_to_json(s) FROM pgscale.sweeper_stats s');
}

$db->churn_table(40000);
my @churning = churn($node, 4);
all_work_ok(1, 'in a window, it works');
my $consumed = $db->sql('SELECT consumed FROM pgscale.sweeper_stats');
$db->poll_ok("SELECT mode, consumed > $consumed + 100, reused > 0 FROM pgscale.sweeper_stats", 'and backends take what it supplies, or use it',
    'window|t|t') or diag $db->sql('SELECT row_to_json(s) FROM pgscale.sweeper_stats s');

# It ticks as often as there is demand, which is that the server's hand moves: then a tick is due each 4 ms, and else each 50 ms.
# The clock for it is the sampler's, with one each 10 ms.
$db->churn_end(@churning);
my $ticks = '(SELECT s.ticks FROM pgscale.sweeper_stats s), (SELECT s.ticks FROM pgscale.sampler_stats s)';
until_ok(sub {
    my ($sweeper, $sampler) = split /\|/, $db->sql("SELECT $ticks");
    my ($swept, $sampled);
    until_true(sub { ($swept, $sampled) = split /\|/, $db->sql("SELECT $ticks"); $sampled - $sampler >= 50 });
    return $swept - $sweeper <= 0.4 * ($sampled - $sampler);
}, 'without demand it ticks less often than the sampler');
my $reader = session($node);
$reader->start('DO $$ BEGIN WHILE EXISTS (SELECT FROM churn_on) LOOP PERFORM n FROM churn WHERE id = (40000 * random())::int; END LOOP; END $$');
my $enough = $db->sql('SELECT ticks + 300 FROM pgscale.sweeper_stats');
$db->poll_ok("SELECT ticks > $enough FROM pgscale.sweeper_stats", 'under a load that only reads it ticks');
until_ok(sub {
    my ($sweeper, $sampler) = split /\|/, $db->sql("SELECT $ticks");
    my ($swept, $sampled);
    until_true(sub { ($swept, $sampled) = split /\|/, $db->sql("SELECT $ticks"); $sampled - $sampler >= 100 });
    return $swept - $sweeper >= 0.8 * ($sampled - $sampler);
}, 'and does so often') or diag $db->sql('SELECT row_to_json(s) FROM pgscale.sweeper_stats s');
$db->churn_end($reader);
@churning = churn($node, 4);

# To and fro, whatever is under way
for my $round (1 .. ($ENV{PGSCALE_TEST_FULL} ? 50 : 3))
{
    for my $mode (@modes)
    {
        $db->set('pgscale.sweeper_mode', $mode);
        until_true(sub { $db->sql('SELECT mode FROM pgscale.sweeper_stats') eq $mode }) or die "the mode is not $mode";
    }
}
for my $mode (@modes, 'window', $modes[0])
{
    $db->set('pgscale.sweeper_mode', $mode);
    $db->poll_ok('SELECT mode FROM pgscale.sweeper_stats', "switched to $mode", $mode);
    all_work_ok(1, 'it works');
    my $consumed = $db->sql('SELECT consumed FROM pgscale.sweeper_stats');
    $db->poll_ok("SELECT consumed > $consumed + 100 FROM pgscale.sweeper_stats", 'and backends take what it supplies');
}
$db->churn_end(@churning);
$db->churn_right('the data is right');

# Three workers
$node->append_conf('postgresql.conf', 'pgscale.sweeper_workers = 3');
$db->quit;
$node->restart;
$db = session($node);
@churning = churn($node, 4);
for my $mode (@modes)
{
    $db->set('pgscale.sweeper_mode', $mode);
    $db->poll_ok('SELECT count(DISTINCT mode), min(mode) FROM pgscale.sweeper_stats', "three workers, $mode", "1|$mode");
    all_work_ok(3, 'all work');
}
is($db->sql('SELECT string_agg(worker::text, $$ $$), sum(buffers), max(buffers) - min(buffers) <= 1 FROM pgscale.sweeper_stats'),
    '1 2 3|1024|t', 'they share the buffers');
$db->poll_ok(q{SELECT string_agg(backend_type || ': ' || n, ', ' ORDER BY backend_type COLLATE "C") FROM
    (SELECT backend_type, count(*) AS n FROM pg_stat_activity WHERE backend_type LIKE 'pgscale sweeper%' GROUP BY 1) a},
    'each has its processes', join ', ', (map { "pgscale sweeper $_: 1" } 1 .. 3), map { "pgscale sweeper writer $_: 2" } 1 .. 3);
$db->set('pgscale.sweeper_mode', $modes[0]);
all_work_ok(3, 'back to the first mode');
$db->churn_end(@churning);
$db->set('pgscale.sweeper', 'off');
$db->poll_ok(q{SELECT bool_and(state = 'off') FROM pgscale.sweeper_stats}, 'all are switched off');
is($db->sql('SELECT bool_and(consumed + reused <= supplied_clean + supplied_written + buffers / 4 + 1), sum(errors)
    FROM pgscale.sweeper_stats'), 't|0', 'no more is taken than was supplied');
$db->churn_right('the data is right');

# More workers than can be of use
$node->append_conf('postgresql.conf', "pgscale.sweeper_workers = 16\nshared_buffers = 1MB");
$db->set('pgscale.sweeper', 'on');
$db->quit;
$node->restart;
$db = session($node);
@churning = churn($node, 2);
for my $mode (@modes)
{
    $db->set('pgscale.sweeper_mode', $mode);
    $db->poll_ok('SELECT count(DISTINCT mode), min(mode) FROM pgscale.sweeper_stats', "sixteen workers, eight buffers each, $mode",
        "1|$mode");
    $db->sweeps_on('they work');
    $db->poll_ok('SELECT max(worker), max(writers), sum(writers) BETWEEN 1 AND 8 FROM pgscale.sweeper_stats WHERE writers > 0 OR worker = 8',
        'with one writer for 16 buffers, of the first eight', '8|1|t');
    my $n = $db->sql('SELECT sum(n) FROM churned');
    $db->poll_ok("SELECT sum(n) > $n + 1000 FROM churned", 'and so do the backends');
}
is($db->sql('SELECT sum(buffers), bool_and(low_watermark BETWEEN 1 AND high_watermark - 1), sum(errors) FROM pgscale.sweeper_stats'), '128|t|0',
    'they share them');
$db->churn_end(@churning);
$db->churn_right('the data is right');

# A server without a freelist refuses the mode of that name, and goes on in the other one if a file names it.
if (!has_freelist())
{
    like(($db->try('ALTER SYSTEM SET pgscale.sweeper_mode = freelist'))[1], qr/invalid value.*HINT:  Available values: window\./s, 'no mode for this major');
    $node->append_conf('postgresql.conf', 'pgscale.sweeper_mode = freelist');
    $db->quit;
    $node->restart;
    $db = session($node);
    $db->poll_ok('SELECT count(*) FILTER (WHERE mode = $$window$$) FROM pgscale.sweeper_stats', 'it starts in the one there is', 16);
}

$node->stop;
done_testing();
