# Readers do not disturb the sampler nor each other, and what they read is of one piece: with a tick each millisecond, a
# small profile that evicts all the time, and load.
# Runs on 18, too.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

# Without the kernel's counts nothing is moved from a wait to CPU, so sessions that idle are the same in every tick.
my $library = compiled('forged_schedstat') or plan skip_all => 'no compiler';
local $ENV{LD_PRELOAD} = $library;

my $node = pgscale_node('main', conf => <<'EOC');
pgscale.sampler_period = 1
pgscale.sampler_profile_size = 200
pgscale.sampler_history_size = 200
pgscale.sampler_history_period = 1
EOC
my $db = session($node);

# What each reader reads, again and again: a number that only grows, how often something was wrong, and milliseconds, if the
# two are of a profile as a whole. $1 is the number that it has read before.
my %reads = (
    profile => q{SELECT sum(samples), count(*) - count(DISTINCT to_jsonb(p) - ARRAY['samples', 'wait_ms'])
               + count(*) FILTER (WHERE samples < 0 OR wait_ms < 0 OR samples = 0 AND wait_ms = 0), sum(wait_ms)
          FROM pgscale_internal.wait_profile() p},
    # sessions that are always idle are seen in every tick: since some moment, all of them equally often
    idle => q{SELECT min(p.samples - s.samples)::numeric, (count(*) <> 12)::int
               + (max(p.samples - s.samples) > min(p.samples - s.samples))::int
               + (max(p.wait_ms - s.wait_ms) - min(p.wait_ms - s.wait_ms) > 0.001)::int
          FROM pgscale_internal.wait_profile() p JOIN since s USING (userid) WHERE p.event = 'ClientRead'},
    # samples in order, a process at most once a tick
    history => q{SELECT extract(epoch FROM max(sampled_at)), (count(*) > 200)::int
               + (count(*) <> count(DISTINCT (sampled_at, pid)))::int
               + count(*) FILTER (WHERE sampled_at < previous OR pid <= 0 OR event IS NULL OR event ~ '[?]|unknown')
          FROM (SELECT *, lag(sampled_at) OVER () AS previous FROM pgscale.wait_history) h},
    activity => q{SELECT extract(epoch FROM max(at)), (count(*) <> count(DISTINCT (at, event_type)))::int
               + count(*) FILTER (WHERE active_sessions IS NULL OR active_sessions NOT BETWEEN 0 AND 60)
          FROM pgscale.activity(clock_timestamp() - interval '1 min', NULL, '1 s') WHERE coverage_fraction > 0},
    # two that are idle in a transaction are both seen by each look, and no look is read in part
    past => q{SELECT coalesce(extract(epoch FROM max(at)), $1),
                 (sum(CASE usename WHEN 'waiter1' THEN 1 WHEN 'waiter2' THEN -1 END) <> 0)::int
               + (abs(sum(CASE usename WHEN 'waiter1' THEN wait_ms WHEN 'waiter2' THEN -wait_ms END)) > 0.001)::int
               + count(*) FILTER (WHERE period_s <= 0 OR wait_ms <= 0 OR event IS NULL)
          FROM pgscale.past_waits('-infinity', 'infinity', 0)});
$db->sql(<<'EOQ');
CREATE TABLE go_on (i int);
INSERT INTO go_on VALUES (1);
CREATE TABLE since (userid oid PRIMARY KEY, samples bigint, wait_ms float8);
-- reads until go_on is empty; how often it was wrong. A profile is as of one tick: between the totals before and after, which
-- only grow. The sequence counts how often it was something new.
CREATE FUNCTION reads(query text, news regclass) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    before record;
    after record;
    this numeric;
    last numeric := 0;
    ms float8;
    bad bigint;
    wrong bigint := 0;
BEGIN
    WHILE EXISTS (SELECT FROM go_on) LOOP
        SELECT samples, wait_ms INTO before FROM pgscale_internal.sampler_stats();
        EXECUTE query INTO this, bad, ms USING last;
        SELECT samples, wait_ms INTO after FROM pgscale_internal.sampler_stats();
        IF this > last THEN
            PERFORM nextval(news);
        END IF;
        IF bad <> 0 OR this < last OR ms IS NOT NULL AND NOT
           (this BETWEEN before.samples AND after.samples AND ms BETWEEN before.wait_ms * (1 - 1e-6)
               AND after.wait_ms * (1 + 1e-6)) THEN
            wrong := wrong + 1;
            RAISE WARNING 'read % and %, before % %, after %, % are wrong', this, ms, last, before, after, bad;
        END IF;
        last := greatest(this, last);
    END LOOP;
    RETURN wrong;
END $$;
EOQ
my @readers = (sort(keys %reads), 'idle');
$db->sql("CREATE SEQUENCE new_$_") for keys %reads;

# The load: short transactions, more different statements than there is room for, and locks that are waited for in parse
# analysis, so that entries are made, evicted and moved all the time.
$node->command_ok([ 'pgbench', '-i', '-q', 'postgres' ], 'tables for the load');
my $dir = PostgreSQL::Test::Utils::tempdir();
append_to_file("$dir/many.sql", 'SELECT pg_sleep(0.001)' . ', 1' x $_ . ";\n") for 1 .. 500;
append_to_file("$dir/lock.sql", "BEGIN;\nLOCK TABLE pgbench_branches;\nEND;\n");

# How often a process has slept: a session that idles sleeps until it is woken.
sub sleeps { return slurp_file("/proc/$_[0]/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m ? $1 : 0; }

# Half of the idle sessions have entries among the first, half among those that are made again and again.
my (@idle, @waiters);
for my $i (1 .. 12)
{
    if ($i == 7)
    {
        $node->command_ok([ 'pgbench', '-n', '-c', 1, '-t', 1, '-f', "$dir/many.sql", 'postgres' ], 'many statements');
        $db->poll_ok('SELECT entries > 100 FROM pgscale.sampler_stats', 'and many entries');
    }
    $db->sql("CREATE ROLE idle$i LOGIN");
    push @idle, session($node, user => "idle$i");
    my $seen = "SELECT sum(samples) > 3 FROM pgscale_internal.wait_profile() WHERE event = 'ClientRead' AND userid = 'idle$i'::regrole";
    until_true(sub { $db->sql($seen) eq 't' }) or die "idle$i is not seen";
}
# since before anybody reads
for my $i (1, 2)
{
    $db->sql("CREATE ROLE waiter$i LOGIN");
    push @waiters, session($node, user => "waiter$i");
    $waiters[-1]->sql('BEGIN; SELECT 1');
}
$db->poll_ok(q{SELECT count(DISTINCT userid) FROM pgscale_internal.wait_history() WHERE event = 'IdleInTransaction'
    AND userid IN ('waiter1'::regrole, 'waiter2'::regrole)}, 'two are idle in a transaction', 2);

# Ten seconds after its first statement a session is woken once more, to send the statistics that it has kept back; where it
# had none to keep back, it is not.
{
    my @pids = map { $_->pid } @idle, @waiters;
    until_true(sub { !grep { process_state($_) ne 'S' } @pids }) or die 'some do not idle';
    my %slept = map { $_ => sleeps($_) } @pids;
    local $PostgreSQL::Test::Utils::timeout_default = 14;
    until_true(sub { !grep { sleeps($_) == $slept{$_} } @pids });
}
$db->sql(q{INSERT INTO since SELECT userid, samples, wait_ms FROM pgscale_internal.wait_profile()
    JOIN pg_roles ON userid = pg_roles.oid WHERE event = 'ClientRead' AND rolname LIKE 'idle%'});

my @sessions = map { session($node) } @readers;
$sessions[$_]->start("SELECT reads(\$query\$$reads{$readers[$_]}\$query\$, 'new_$readers[$_]')") for 0 .. $#readers;
# for as long as it takes
my $load = 1;
my $enough = 'SELECT ' . join(' AND ', '(SELECT evictions > 500 FROM pgscale.sampler_stats)',
    map { '(SELECT last_value > ' . ($_ eq 'activity' ? 2 : 10) . " FROM new_$_)" } keys %reads);
in_time_ok(sub {
    $load &&= $node->run_log([ 'pgbench', '-n', '-c', 4, '-T', 2, '-b', 'tpcb-like@20', '-f', "$dir/many.sql\@1",
        '-f', "$dir/lock.sql\@2", $node->connstr('postgres') ]);
    return !$load || $db->sql($enough) eq 't';
}, 'enough was read, while entries were evicted');
ok($load, 'under load');
$db->sql('DELETE FROM go_on');
for my $i (0 .. $#readers)
{
    my ($state, $text) = $sessions[$i]->finish;
    is("$state $text", '00000 0', "$readers[$i]: no error, and never anything inconsistent");
}
is($db->sql(q{SELECT count(*) > 0 FROM pgscale.wait_profile WHERE backend_type = 'other'}), 't',
    'there are rows for what was evicted');

$node->stop;
done_testing();
