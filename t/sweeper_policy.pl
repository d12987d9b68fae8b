# The policy on a server under load, on and off; what replacement_stats shows; and how often the sweeper ticks.
# Runs on 18, too.
use strict;
use warnings;
use PgscaleTest;
use Test::More;

my $node = pgscale_node('main', conf => <<'EOC');
shared_buffers = 8MB
max_worker_processes = 32
checkpoint_timeout = 1h
synchronous_commit = off
pgscale.sweeper_writers = 2
EOC
my $db = session($node);

sub replacement { my $columns = shift; return $db->sql("SELECT $columns FROM pgscale.replacement_stats"); }

# Off: nothing is chosen
my $figures = 'choice, evictions, reads_saved, switches, shadow_references, shadow_misses, chosen_misses, half_lives, shadow_sample';
is(replacement("num_nonnulls($figures), memory_bytes > 0"), '0|t', 'before it was ever on, it has nothing to show');

# Under a load
$db->churn_table(40000);
$db->set('pgscale.sweeper', 'on');
my @churning = churn($node, 4);
$db->sweeps_on('it supplies and writes');
my $consumed = $db->sql('SELECT consumed FROM pgscale.sweeper_stats');
$db->poll_ok("SELECT consumed > $consumed + 100 FROM pgscale.sweeper_stats", 'and backends take what it supplies')
  or diag $db->sql('SELECT row_to_json(s) FROM pgscale.sweeper_stats s');
$db->poll_ok('SELECT evictions > 1000, shadow_references > 1000, (SELECT min(m) FROM unnest(shadow_misses) m) > 0 FROM pgscale.replacement_stats',
    'pages leave, and its shadow caches see pages and miss some',
        't|t|t') or diag replacement('row_to_json(replacement_stats)');
is(replacement(q{half_lives, cardinality(shadow_misses), (SELECT max(m) FROM unnest(shadow_misses) m) <= shadow_references,
    choice = ANY (SELECT CASE h WHEN 0 THEN 'clock' ELSE 'half-life ' || h END FROM unnest(half_lives) h), shadow_sample >= 1,
    chosen_misses <= shadow_references, switches >= 0}), '{0,0.5,2,8,32}|5|t|t|t|t|t',
        'of five candidates, one of which is in force');
$db->poll_ok('SELECT chosen_misses >= 1000 AND reads_saved IS NOT NULL FROM pgscale.replacement_stats',
    'when it has missed enough, it says what is saved')
  or diag replacement('row_to_json(replacement_stats)');

# A reset, while it works
my ($evictions, $before) = split /\|/, replacement('evictions, clock_timestamp()');
$db->sql(q{SELECT pgscale.reset('sweeper')});
is(replacement("evictions < $evictions, stats_reset >= '$before', reads_saved IS NULL"), 't|t|t',
    'a reset sets its counts to zero');
my $known = replacement('evictions');
$db->poll_ok("SELECT evictions > $known + 1000 FROM pgscale.replacement_stats", 'and it goes on to count');

# Its process is ended: the next one goes on with what was known.
($evictions) = replacement('evictions');
my ($sweeper) = $db->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'pgscale sweeper'});
$db->sql("SELECT pg_terminate_backend($sweeper)");
$db->poll_ok("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pgscale sweeper' AND pid <> $sweeper",
    'it is ended, and started again', 1);
is(replacement("evictions >= $evictions"), 't', 'with the memory that it had');
$db->sweeps_on('and works');

# On and off, whatever is under way
for my $round (1 .. ($ENV{PGSCALE_TEST_FULL} ? 30 : 3))
{
    $db->set('pgscale.sweeper', 'off');
    until_true(sub { $db->sweeper_pids == 0 }) or die 'it is not off';
    $db->set('pgscale.sweeper', 'on');
    until_true(sub { $db->sweeper_pids > 0 }) or die 'it is not on';
}
$db->sweeps_on('it works after all of that');
$db->churn_end(@churning);
is($db->sql('SELECT errors FROM pgscale.sweeper_stats'), 0, 'without an error');
$db->churn_right('and the data is right');

# It ticks as often as there is demand, which is that the server's hand moves: then a tick is due each 4 ms, or each 16 ms if
# little of what is ready is taken in that time, and else each 50 ms. The clock for it is the sampler's, with one each 10 ms.
my $ticks = '(SELECT s.ticks FROM pgscale.sweeper_stats s), (SELECT s.ticks FROM pgscale.sampler_stats s)';
sub ticks_ok
{
    my ($asks, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return until_ok(sub {
        my ($swept, $sampled) = split /\|/, $db->sql("SELECT $ticks");
        my ($by_then, $and);
        until_true(sub { ($by_then, $and) = split /\|/, $db->sql("SELECT $ticks"); $and - $sampled >= 50 });
        return $asks->(($by_then - $swept) / ($and - $sampled));
    }, $name);
}
ticks_ok(sub { $_[0] <= 0.4 }, 'without demand it ticks less often than the sampler');
for (
    [ '(40000 * random())::int', sub { $_[0] >= 0.8 }, 'under a load that only reads it does so often' ],
    [ '(SELECT (40000 * random())::int FROM pg_sleep(0.02))', sub { $_[0] > 0.3 && $_[0] <= 0.8 },
        'and where few buffers are needed, less often' ])
{
    my ($id, $asks, $name) = @$_;
    my $reader = session($node);
    $reader->start("DO \$\$ BEGIN WHILE EXISTS (SELECT FROM churn_on) LOOP PERFORM n FROM churn WHERE id = $id; END LOOP; END \$\$");
    ticks_ok($asks, $name);
    $db->churn_end($reader);
}

# A server that starts
$db->quit;
$node->restart;
$db = session($node);
@churning = churn($node, 4);
$db->sweeps_on('it works');
$db->poll_ok('SELECT evictions > 100 FROM pgscale.replacement_stats', 'and sees what leaves')
  or diag replacement('row_to_json(replacement_stats)');
$db->poll_ok(q{SELECT string_agg(backend_type || ': ' || n, ', ' ORDER BY backend_type COLLATE "C") FROM
    (SELECT backend_type, count(*) AS n FROM pg_stat_activity WHERE backend_type LIKE 'pgscale sweeper%' GROUP BY 1) a},
    'it has its processes', 'pgscale sweeper: 1, pgscale sweeper writer: 2');
my $segments = q{SELECT count(*) FROM pg_ls_dir('pg_dynshmem') f
    WHERE (pg_stat_file('pg_dynshmem/' || f, true)).size IN (SELECT memory_bytes FROM pgscale.replacement_stats)};
is($db->sql($segments), 1, 'and a dynamic segment');
$db->churn_end(@churning);
$db->set('pgscale.sweeper', 'off');
$db->poll_ok('SELECT state FROM pgscale.sweeper_stats', 'it is switched off', 'off');
$db->poll_ok($segments, 'and gives its memory back', 0);
is($db->sql('SELECT consumed + reused <= supplied_clean + supplied_written, errors FROM pgscale.sweeper_stats'), 't|0',
    'no more is taken than was supplied');
$db->churn_right('the data is right');

$db->quit;
$node->stop;
done_testing();
