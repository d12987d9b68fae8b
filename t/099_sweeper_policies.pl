# How the sweeper chooses the pages that leave: what it reports to its policy, and what each policy makes of it, step by step
# (t/lib/known_pages_steps.c, policy_steps.c); and each policy on a server under load, in each mode, switched to and fro. And what
# replacement_stats shows of them.
use strict;
use warnings;
use PgscaleTest;
use Test::More;

my @modes = (has_freelist() ? 'freelist' : (), 'window');
my $node = pgscale_node('main', conf => <<'EOC');
shared_buffers = 8MB
max_worker_processes = 32
checkpoint_timeout = 1h
synchronous_commit = off
bgwriter_lru_maxpages = 0
pgscale.sweeper_adaptive = off
pgscale.sweeper_writers = 2
pgscale.sweeper_policy = history
EOC
my $db = session($node);

sub replacement { my $columns = shift; return $db->sql("SELECT $columns FROM pgscale.replacement_stats"); }

$db->steps_ok('known_pages_steps');
$db->steps_ok('policy_steps');

# Off: what it would begin with, and nothing else
my $figures = 'choice, evictions, reads_saved, switches, shadow_references, shadow_misses, chosen_misses, half_lives, shadow_sample';
is(replacement("policy, num_nonnulls($figures), memory_bytes > 0"), 'history|0|t', 'before it was ever on, it has nothing to show');

# Under a load, each works in each mode.
$db->churn_table(40000);
$db->set('pgscale.sweeper', 'on');
my @churning = churn($node, 4);

sub works_ok
{
    my ($mode, $policy) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    $db->set('pgscale.sweeper_mode', $mode);
    $db->set('pgscale.sweeper_policy', $policy);
    $db->poll_ok('SELECT mode, policy FROM pgscale.sweeper_stats JOIN pgscale.replacement_stats USING (worker)', "$mode, $policy", "$mode|$policy");
    $db->sweeps_on('it supplies and writes');
    my $consumed = $db->sql('SELECT consumed FROM pgscale.sweeper_stats');
    return $db->poll_ok("SELECT consumed > $consumed + 100 FROM pgscale.sweeper_stats", 'and backends take what it supplies')
      || !diag $db->sql('SELECT row_to_json(s) FROM pgscale.sweeper_stats s');
}

for my $mode (@modes)
{
    works_ok($mode, $_) for qw(history adaptive clock);
    $db->sql(q{SELECT pgscale.reset('sweeper')});
    $db->poll_ok('SELECT choice, chosen_misses > 0 AND chosen_misses = shadow_misses[1], (SELECT min(m) FROM unnest(shadow_misses) m) > 0
        FROM pgscale.replacement_stats', 'the clock shows what others would miss', 'clock|t|t') or diag replacement('row_to_json(replacement_stats)');
}

# What adaptive shows
works_ok($modes[0], 'adaptive');
$db->poll_ok('SELECT evictions > 1000, shadow_references > 1000, (SELECT min(m) FROM unnest(shadow_misses) m) > 0 FROM pgscale.replacement_stats',
    'adaptive: pages leave, and its shadow caches see pages and miss some', 't|t|t') or diag replacement('row_to_json(replacement_stats)');
is(replacement(q{half_lives, cardinality(shadow_misses), (SELECT max(m) FROM unnest(shadow_misses) m) <= shadow_references,
    choice = ANY (SELECT CASE h WHEN 0 THEN 'clock' ELSE 'half-life ' || h END FROM unnest(half_lives) h), shadow_sample >= 1,
    chosen_misses <= shadow_references, switches >= 0}), '{0,0.5,2,8,32}|5|t|t|t|t|t', 'of five candidates, one of which is in force');
$db->poll_ok('SELECT chosen_misses >= 1000 AND reads_saved IS NOT NULL FROM pgscale.replacement_stats', 'when it has missed enough, it says what is saved')
  or diag replacement('row_to_json(replacement_stats)');

# A reset, while it works
my ($evictions, $before) = split /\|/, replacement('evictions, clock_timestamp()');
$db->sql(q{SELECT pgscale.reset('sweeper')});
is(replacement("evictions < $evictions, stats_reset >= '$before', reads_saved IS NULL"), 't|t|t', 'a reset sets its counts to zero');
my $known = replacement('evictions');
$db->poll_ok("SELECT evictions > $known + 1000 FROM pgscale.replacement_stats", 'and it goes on to count');

# Its process is ended: the next one goes on with what was known.
($evictions) = replacement('evictions');
my ($sweeper) = $db->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'pgscale sweeper 1'});
$db->sql("SELECT pg_terminate_backend($sweeper)");
$db->poll_ok("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pgscale sweeper 1' AND pid <> $sweeper", 'it is ended, and started again', 1);
is(replacement("policy, evictions >= $evictions"), 'adaptive|t', 'with the memory that it had');
$db->sweeps_on('and works');

# Off and on: also then
$db->set('pgscale.sweeper', 'off');
until_ok(sub { $db->sweeper_pids == 0 }, 'switched off');
($evictions) = replacement('evictions');
is(replacement('evictions > 0'), 't', 'it still shows what it knew');
$db->set('pgscale.sweeper', 'on');
$db->sweeps_on('switched on, it works');
is(replacement("policy, evictions >= $evictions"), 'adaptive|t', 'with that memory');

# Another policy is chosen while it is off: it begins when it is on.
$db->set('pgscale.sweeper', 'off');
until_ok(sub { $db->sweeper_pids == 0 }, 'off again');
$db->set('pgscale.sweeper_policy', 'history');
$db->poll_ok('SHOW pgscale.sweeper_policy', 'another policy is set', 'history');
is(replacement('policy'), 'adaptive', 'it has none of it yet');
$db->set('pgscale.sweeper', 'on');
$db->poll_ok('SELECT policy FROM pgscale.replacement_stats', 'it begins with that', 'history');

# To and fro, whatever is under way
for my $round (1 .. ($ENV{PGSCALE_TEST_FULL} ? 30 : 3))
{
    for my $policy (qw(adaptive clock history))
    {
        $db->set('pgscale.sweeper_mode', $modes[ $round % @modes ]);
        $db->set('pgscale.sweeper_policy', $policy);
        until_true(sub { replacement('policy') eq $policy }) or die "the policy is not $policy";
    }
}
$db->sweeps_on('it works after all of that');
$db->churn_end(@churning);
is($db->sql('SELECT errors FROM pgscale.sweeper_stats'), 0, 'without an error');
$db->churn_right('and the data is right');

# Several workers, and a server that starts with adaptive
$node->append_conf('postgresql.conf', "pgscale.sweeper_workers = 3");
$db->set('pgscale.sweeper_policy', 'adaptive');
$db->quit;
$node->restart;
$db = session($node);
@churning = churn($node, 4);
for my $mode (@modes)
{
    $db->set('pgscale.sweeper_mode', $mode);
    $db->poll_ok('SELECT count(*) FROM pgscale.sweeper_stats WHERE mode = ' . "'$mode'", "three workers, $mode", 3);
    $evictions = replacement('min(evictions)') || 0;
    $db->poll_ok("SELECT count(*), min(evictions) > $evictions + 100, min(policy) FROM pgscale.replacement_stats", 'all of them see what leaves',
        '3|t|adaptive') or diag $db->sql('SELECT json_agg(r) FROM pgscale.replacement_stats r');
}
is(replacement('sum(memory_bytes) <= (SELECT allocated_size FROM pg_shmem_allocations WHERE name = $$pgscale sweeper policy$$)'), 't',
    'their memory is an area of its own');
$db->churn_end(@churning);

# Killed: all shared memory is set up again, and the policy begins anew.
@churning = churn($node, 2);
($sweeper) = $db->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'pgscale sweeper 2'});
# or the row that has the load go on could be lost: commits are asynchronous
$db->sql('CHECKPOINT');
kill 'KILL', $sweeper;
$_->quit for $db, @churning;
until_ok(sub { $node->psql('postgres', q{SELECT 1}) == 0 }, 'a sweeper is killed, and the server starts anew');
$db = session($node);
@churning = churn($node, 2);
$db->poll_ok('SELECT min(evictions) > 0, min(policy) FROM pgscale.replacement_stats', 'the policy, too', 't|adaptive');
$db->churn_end(@churning);
$db->churn_right('the data is right');

# A value that cannot be, in the file
$node->append_conf('postgresql.conf', "pgscale.sweeper_policy = lru");
$db->sql('ALTER SYSTEM RESET pgscale.sweeper_policy');
$db->quit;
$node->restart;
$db = session($node);
is($db->sql('SHOW pgscale.sweeper_policy'), 'clock', 'a server starts with an unknown policy in its file, and has the default');

$db->quit;
$node->stop;
done_testing();
