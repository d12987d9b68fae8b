# How many sessions were active in a minute of the archive, and how many idle in a transaction: whatever the profile evicts, and also
# where the sampler paused or was reset.
use strict;
use warnings;
use PgscaleTest;
use Test::More;

my $node = pgscale_node('main', conf => <<'EOC');
pgscale.archive_database = 'postgres'
pgscale.sampler_debug_period = 1s
pgscale.sampler_profile_size = 100
EOC
my $db = session($node);
my @idle = map { session($node) } 1 .. 3;
my @busy = map { session($node) } 1 .. 2;
my $right = q{active_sessions BETWEEN 1.9 AND 3.2 AND idle_in_transaction_sessions BETWEEN 2.8 AND 3.05 AND observed_ms <= period_s * 1000 + 0.001};

$_->sql('BEGIN') for @idle;
for my $n (0, 1)
{
    my @sleeps = map { 'SELECT ' . 'NULL, ' x $n . 'pg_sleep(0.015)' . ', 1' x $_ } 1 .. 120;
    $busy[$n]->start(join '\;', (@sleeps) x 30);
}
until_true(sub { $db->sql(q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'PgSleep'}) eq '2' });
my $since = $db->sql('SELECT clock_timestamp()');
my $rows = "FROM pgscale.archive_minutes WHERE at >= '$since'";
my $wrong = "SELECT string_agg(concat_ws(' ', observed_ms, active_sessions, idle_in_transaction_sessions), ', ') $rows AND ($right) = false";

$db->poll_ok("SELECT count(*) > 1 $rows", 'rows of two busy sessions and three idle in a transaction');
is($db->sql($wrong), '', 'which say so');
my $sampler = $db->sql('SELECT pid FROM pgscale.sampler_stats');
kill 'STOP', $sampler or die $!;
$db->poll_ok("SELECT count(*) > 0 $rows AND observed_ms = 0 AND active_sessions IS NULL AND idle_in_transaction_sessions IS NULL", 'the sampler pauses');
my $pause = $db->sql("SELECT max(at) $rows");
kill 'CONT', $sampler;
$db->poll_ok("SELECT count(*) > 0 $rows AND at > '$pause' AND observed_ms > 0", 'and goes on');
$db->sql('SELECT pgscale.reset($$sampler$$)');
$db->poll_ok(q{SELECT count(*) FROM pgscale.archive_minutes m, pgscale.sampler_stats s
    WHERE s.stats_reset >= m.at AND s.stats_reset < m.at + make_interval(secs => m.period_s)}, 'a reset is seen', 1);
# the sampler itself has observed no less since then, however late the row was written
is($db->sql(q{SELECT count(*), bool_and(m.observed_ms <= s.observed_ms + 0.001)
    FROM pgscale.archive_minutes m, pgscale_internal.sampler_stats() s WHERE s.stats_reset >= m.at AND s.stats_reset < m.at + make_interval(secs => m.period_s)}),
    '1|t', 'before a reset nothing is known');
is($db->sql($wrong), '', 'no row says anything else');
$db->sql('SELECT pg_cancel_backend(' . $_->pid . ')') for @busy;
$_->finish for @busy;
$_->quit for @idle, @busy;
$db->quit;
$node->stop('fast');
done_testing();
