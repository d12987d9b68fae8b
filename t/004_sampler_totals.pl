# The profile's rows add up to its totals, whatever was evicted and moved.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main', conf => <<'EOC');
pgscale.sampler_period = 1
pgscale.sampler_profile_size = 100
EOC
my $db = session($node);
my ($worker, $holder, $waiter) = map { session($node) } 1 .. 3;

# with the sampler off, so that nothing moves between the two
my $reconcile = <<'EOQ';
SELECT p.samples = s.samples, p.wait_ms / s.wait_ms BETWEEN 1 - 1e-6 AND 1 + 1e-6, s.samples > 0
  FROM (SELECT sum(samples) AS samples, sum(wait_ms) AS wait_ms FROM pgscale.wait_profile()) p, pgscale_internal.sampler_stats() s
EOQ

$db->poll_ok('SELECT samples > 100 FROM pgscale.sampler_stats', 'samples');
$db->sampler('off');
is($db->sql($reconcile), 't|t|t', 'a small profile adds up, idle waits included');
is($db->sql(q{SELECT evictions, (SELECT count(*) FROM pgscale.wait_profile() WHERE backend_type = 'other')
    FROM pgscale.sampler_stats}), '0|0', 'nothing was evicted');

# Statements that differ in the number of their columns have different identifiers. Meanwhile others wait for a lock in
# parse analysis: what is parked for them is moved to their identifiers, evictions or not. How many statements are seen is up to
# the machine, so there are as many as it takes.
$db->sampler('on');
$db->sql('CREATE TABLE locked (i int)');
my $enough = q{SELECT evictions > 100 AND
    (SELECT sum(samples) > 100 FROM pgscale.wait_profile() WHERE event = 'PgSleep' AND backend_type = 'other') FROM pgscale.sampler_stats};
until_true(sub {
    $worker->start(q{SELECT format('SELECT pg_sleep(0.008)%s', repeat(', 1', i)) FROM generate_series(1, 300) i
\gexec
SELECT 1});
    for my $columns (1 .. 10)
    {
        $holder->sql('BEGIN; LOCK TABLE locked');
        $waiter->start('SELECT i' . ', i' x $columns . ' FROM locked');
        my $wait = 'SELECT event_type FROM pgscale.wait_current(' . $waiter->pid . ')';
        until_true(sub { $db->sql($wait) eq 'Lock' }) or die 'no lock';
        $holder->sql('ROLLBACK');
        $waiter->finish;
    }
    $worker->finish;
    return $db->sql($enough) eq 't';
});

$db->sampler('off');
is($db->sql($reconcile), 't|t|t', 'a profile that is too small adds up');
is($db->sql(q{SELECT entries <= 100, evictions > 100,
    (SELECT count(*) <= 100 FROM pgscale.wait_profile() WHERE backend_type <> 'other')
    FROM pgscale.sampler_stats}), 't|t|t', 'it keeps to its size');
is($db->sql(q{SELECT count(*) > 0, bool_and(datid IS NULL AND userid IS NULL AND queryid IS NULL),
    bool_and(event IS NOT NULL), count(*) = count(DISTINCT (event_type, event))
    FROM pgscale.wait_profile() WHERE backend_type = 'other'}),
    't|t|t|t', 'one row an event has what was evicted, and no more than the event');
is($db->sql(q{SELECT sum(samples) > 100 FROM pgscale.wait_profile() WHERE event = 'PgSleep' AND backend_type = 'other'}), 't',
    'such as sleep');
my $queries = $db->sql(q{SELECT count(DISTINCT queryid) FROM pgscale.wait_profile WHERE event = 'PgSleep'});
cmp_ok($queries, '>', 10, 'and queries are told as far as there is room');
is($db->sql('SELECT round(sum(fraction)::numeric, 3) FROM pgscale.wait_profile'), '1.000', 'fractions add up to one');

# A reset leaves nothing, and what follows adds up again.
$db->sql('SELECT pgscale.reset($$sampler$$)');
is($db->sql('SELECT ticks, samples, wait_ms, entries, evictions, (SELECT count(*) FROM pgscale.wait_profile()),
    (SELECT count(*) FROM pgscale.wait_history), (SELECT count(*) FROM pgscale.activity($$-infinity$$))
    FROM pgscale.sampler_stats'), '0|0|0|0|0|0|0|0', 'a reset empties all');
$db->sampler('on');
$db->poll_ok('SELECT samples > 100 FROM pgscale.sampler_stats', 'samples');
$db->sampler('off');
is($db->sql($reconcile), 't|t|t', 'after a reset it adds up');
is($db->sql(q{SELECT count(*), min(p.samples) > max(ticks) / 2, max(p.samples) <= max(ticks) FROM pgscale_internal.sampler_stats(),
    (SELECT sum(samples) AS samples FROM pgscale.wait_profile()
      WHERE backend_type IN ('checkpointer', 'background writer', 'walwriter') GROUP BY backend_type) p}), '3|t|t',
    'each process that idles has its own samples');
is($db->sql(q{SELECT sum(p.samples) > 2 * max(ticks) FROM pgscale.wait_profile() p, pgscale_internal.sampler_stats() s
    WHERE backend_type = 'client backend' AND event = 'ClientRead'}), 't', 'and so have three sessions');

# What is parked may be evicted while the statement still waits: here its time on CPU in parse analysis, which makes a small
# entry among large ones. It is not taken from whatever lies in its place later.
$db->sampler('on');
$db->sql('CREATE ROLE parser LOGIN; GRANT SELECT ON locked TO parser');
my $parser = session($node, user => 'parser');
my $evicted = q{SELECT count(*) = 0 FROM pgscale.wait_profile()
    WHERE userid = 'parser'::regrole AND event = 'CPU' AND queryid IS NULL};
my $script = PostgreSQL::Test::Utils::tempdir() . '/sleep.sql';
$holder->sql('BEGIN; LOCK TABLE locked');
# once more where the sampler had no CPU while the statement had it
until_ok(sub {
    my $seen = q{SELECT string_agg(DISTINCT event, ' ' ORDER BY event) FROM pgscale.wait_profile() WHERE userid = 'parser'::regrole
        AND event IN ('CPU', 'relation') AND queryid IS NULL AND samples > 0};
    $db->sql('SELECT pgscale.reset($$sampler$$)');
    $parser->start('SELECT 1 WHERE 1 IN (' . join(', ', 1 .. 20000) . ') UNION ALL SELECT i FROM locked');
    until_true(sub { $db->sql($seen) =~ /relation/ });
    return 1 if $db->sql($seen) eq 'CPU relation';
    $db->sql('SELECT pg_cancel_backend(' . $parser->pid . ')');
    $parser->finish;
    return 0;
}, 'a statement that was on CPU and then waits, in parse analysis');
# A statement that queues for CPU is on CPU for long, so how long the others sleep follows from that: eight sessions make twice as much.
my $sleep = $db->sql(q{SELECT greatest(0.01, max(wait_ms) / 4000) FROM pgscale.wait_profile()
    WHERE userid = 'parser'::regrole AND event = 'CPU' AND queryid IS NULL});
append_to_file($script, "SELECT pg_sleep($sleep)" . ', 1' x $_ . ";\n") for 1 .. 150;
my $others = 1;
until_ok(sub {
    $others &&= $node->run_log([ 'pgbench', '-n', '-c', 8, '-t', 1, '-f', $script, $node->connstr('postgres') ]);
    return !$others || $db->sql($evicted) eq 't';
}, 'its time on CPU is evicted');
ok($others, 'by other statements');
$holder->sql('ROLLBACK');
$parser->finish;
my $parsed = $db->queryid($parser);
$db->poll_ok("SELECT count(*) FROM pgscale.wait_profile WHERE queryid = $parsed AND event = 'relation'",
    'its wait is moved', 1);
$db->sampler('off');
is($db->sql("SELECT count(*) FROM pgscale.wait_profile()
    WHERE queryid = $parsed AND userid IS DISTINCT FROM 'parser'::regrole"), 0,
    'and nothing that was not its own');
is($db->sql($reconcile), 't|t|t', 'and it adds up');

# A reset while something is parked: what was parked is gone, and is not taken from whatever lies in its place now.
$db->sampler('on');
$db->sql('SELECT pgscale.reset($$sampler$$)');
$holder->sql('BEGIN; LOCK TABLE locked');
$waiter->start('SELECT FROM locked');
my $parked = q{SELECT coalesce(sum(samples), 0) > 20 FROM pgscale.wait_profile() WHERE event = 'relation' AND queryid IS NULL};
$db->poll_ok($parked, 'a wait in parse analysis');
$db->sql('SELECT pgscale.reset($$sampler$$)');
$worker->sql(q{SELECT format('SELECT pg_sleep(0.003)%s', repeat(', 1', i)) FROM generate_series(1, 60) i
\gexec
SELECT 1});
$holder->sql('ROLLBACK');
$waiter->finish;
my $queryid = $db->queryid($waiter);
my $ticks = $db->sql('SELECT ticks FROM pgscale.sampler_stats');
$db->poll_ok("SELECT ticks > $ticks + 1 FROM pgscale.sampler_stats", 'it is seen that this is over');
$db->sampler('off');
is($db->sql($reconcile), 't|t|t', 'after a reset meanwhile it adds up');
is($db->sql('SELECT count(*) FROM pgscale.wait_profile() p, pgscale_internal.sampler_stats() s
    WHERE NOT p.samples BETWEEN 0 AND s.samples OR NOT p.wait_ms BETWEEN 0 AND s.wait_ms'), 0, 'each row is a part of it');
# It may have waited for more than the lock: reading a catalog on a busy machine, say. Only the others slept.
is($db->sql("SELECT count(*) FROM pgscale.wait_profile WHERE queryid = $queryid AND event = 'PgSleep'"), 0,
    'and the statement has none of the others\' waits');

$node->stop;
done_testing();
