# Readers do not disturb the sampler nor each other, and what they read is of one piece: with a tick each millisecond, a
# small profile that evicts all the time, and load.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

# Without the kernel's counts nothing is moved from a wait to CPU, so sessions that idle are the same in every tick.
my $library = PostgreSQL::Test::Utils::tempdir() . '/no_schedstat.so';
system("cc -shared -fPIC -o $library t/lib/no_schedstat.c -ldl >$library.out 2>&1") == 0
  or plan skip_all => 'no compiler: ' . slurp_file("$library.out");
chmod 0755, $library or die $!;
local $ENV{LD_PRELOAD} = $library;

my $node = pgscale_node('main', conf => <<'EOC');
pgscale.sampler_period = 1
pgscale.sampler_profile_size = 200
pgscale.sampler_history_size = 200
pgscale.sampler_history_period = 1
EOC
my $db = session($node);

# Each reads until told to stop and answers: how often, whether that was something new, and in how many cases it was wrong.
# Sequences tell meanwhile how often it was something new.
my @functions = ('read_profile', 'read_idle', 'read_idle', 'read_history', 'read_activity', 'read_past');
$db->sql(<<'EOQ');
CREATE TABLE go_on (i int);
INSERT INTO go_on VALUES (1);
CREATE SEQUENCE new_read_profile;
CREATE SEQUENCE new_read_idle;
CREATE SEQUENCE new_read_history;
CREATE SEQUENCE new_read_activity;
CREATE SEQUENCE new_read_past;

-- a profile is as of one tick: between the totals before and after, which only grow; its times and samples likewise
CREATE FUNCTION read_profile(OUT reads bigint, OUT different bigint, OUT wrong bigint) LANGUAGE plpgsql AS $$
DECLARE
    before record;
    after record;
    this record;
    last record;
BEGIN
    reads := 0; different := 0; wrong := 0;
    SELECT 0::bigint AS samples, 0::float8 AS wait_ms INTO last;
    WHILE EXISTS (SELECT FROM go_on) LOOP
        SELECT samples, wait_ms, evictions INTO before FROM pgscale_internal.sampler_stats();
        SELECT sum(samples)::bigint AS samples, sum(wait_ms) AS wait_ms,
               count(*) - count(DISTINCT p - ARRAY['samples', 'wait_ms']) AS twice,
               count(*) FILTER (WHERE samples < 0 OR wait_ms < 0 OR samples = 0 AND wait_ms = 0) AS empty
          INTO this
          FROM (SELECT to_jsonb(s) AS p, samples, wait_ms FROM pgscale.wait_profile() s) s;
        SELECT samples, wait_ms, evictions INTO after FROM pgscale_internal.sampler_stats();
        reads := reads + 1;
        IF this.samples > last.samples THEN
            different := different + 1;
            PERFORM nextval('new_read_profile');
        END IF;
        IF NOT this.samples BETWEEN before.samples AND after.samples OR
           NOT this.wait_ms BETWEEN before.wait_ms * (1 - 1e-6) AND after.wait_ms * (1 + 1e-6) OR
           this.samples < last.samples OR this.twice > 0 OR this.empty > 0 THEN
            wrong := wrong + 1;
            RAISE WARNING 'before %, read %, after %, read before %', before, this, after, last;
        END IF;
        last := this;
    END LOOP;
END $$;

-- sessions that are always idle are seen in every tick: since some moment, all of them equally often
CREATE TABLE since (userid oid PRIMARY KEY, samples bigint, wait_ms float8);
CREATE FUNCTION read_idle(OUT reads bigint, OUT different bigint, OUT wrong bigint) LANGUAGE plpgsql AS $$
DECLARE
    this record;
    last bigint := 0;
BEGIN
    reads := 0; different := 0; wrong := 0;
    WHILE EXISTS (SELECT FROM go_on) LOOP
        SELECT count(*) AS sessions, min(p.samples - s.samples) AS least, max(p.samples - s.samples) AS most,
               max(p.wait_ms - s.wait_ms) - min(p.wait_ms - s.wait_ms) AS ms
          INTO this FROM pgscale.wait_profile() p JOIN since s USING (userid) WHERE p.event = 'ClientRead';
        reads := reads + 1;
        IF this.least > last THEN
            different := different + 1;
            PERFORM nextval('new_read_idle');
        END IF;
        IF this.sessions <> (SELECT count(*) FROM since) OR this.least < last OR this.most > this.least OR
           this.ms > 0.001 THEN
            wrong := wrong + 1;
            RAISE WARNING 'read %, before %', this, last;
        END IF;
        last := this.least;
    END LOOP;
END $$;

-- samples in order, a process at most once a tick
CREATE FUNCTION read_history(OUT reads bigint, OUT different bigint, OUT wrong bigint) LANGUAGE plpgsql AS $$
DECLARE
    this record;
    last timestamptz := '-infinity';
BEGIN
    reads := 0; different := 0; wrong := 0;
    WHILE EXISTS (SELECT FROM go_on) LOOP
        SELECT max(sampled_at) AS newest, count(*) > 200 AS many, count(*) <> count(DISTINCT (sampled_at, pid)) AS twice,
               count(*) FILTER (WHERE sampled_at < previous) AS unordered,
               count(*) FILTER (WHERE pid <= 0 OR event IS NULL OR event ~ '[?]|unknown') AS bad
          INTO this
          FROM (SELECT *, lag(sampled_at) OVER () AS previous FROM pgscale.wait_history) h;
        reads := reads + 1;
        IF this.newest > last THEN
            different := different + 1;
            PERFORM nextval('new_read_history');
        END IF;
        IF this.newest < last OR this.twice OR this.many OR this.unordered > 0 OR this.bad > 0 THEN
            wrong := wrong + 1;
            RAISE WARNING 'read %, before %', this, last;
        END IF;
        last := this.newest;
    END LOOP;
END $$;

CREATE FUNCTION read_activity(OUT reads bigint, OUT different bigint, OUT wrong bigint) LANGUAGE plpgsql AS $$
DECLARE
    this record;
    last timestamptz := '-infinity';
BEGIN
    reads := 0; different := 0; wrong := 0;
    WHILE EXISTS (SELECT FROM go_on) LOOP
        SELECT max(at) AS newest, count(*) <> count(DISTINCT (at, event_type)) AS twice,
               count(*) FILTER (WHERE active_sessions IS NULL OR NOT active_sessions BETWEEN 0 AND 60) AS bad
          INTO this FROM pgscale.activity(clock_timestamp() - interval '1 min', NULL, '1 s') WHERE covered_fraction > 0;
        reads := reads + 1;
        IF this.newest > last THEN
            different := different + 1;
            PERFORM nextval('new_read_activity');
        END IF;
        IF this.newest < last OR this.twice OR this.bad > 0 THEN
            wrong := wrong + 1;
            RAISE WARNING 'read %, before %', this, last;
        END IF;
        last := this.newest;
    END LOOP;
END $$;

-- two that are idle in a transaction are both seen by each look, and no look is read in part
CREATE FUNCTION read_past(OUT reads bigint, OUT different bigint, OUT wrong bigint) LANGUAGE plpgsql AS $$
DECLARE
    this record;
    last timestamptz := '-infinity';
BEGIN
    reads := 0; different := 0; wrong := 0;
    WHILE EXISTS (SELECT FROM go_on) LOOP
        SELECT max(at) AS newest, count(*) FILTER (WHERE usename = 'waiter1') AS one, count(*) FILTER (WHERE usename = 'waiter2') AS two,
               sum(wait_ms) FILTER (WHERE usename = 'waiter1') AS one_ms, sum(wait_ms) FILTER (WHERE usename = 'waiter2') AS two_ms,
               count(*) FILTER (WHERE period_s <= 0 OR wait_ms <= 0 OR event IS NULL) AS bad
          INTO this FROM pgscale.past_waits('-infinity', 'infinity', 0);
        reads := reads + 1;
        IF this.newest > last THEN
            different := different + 1;
            PERFORM nextval('new_read_past');
        END IF;
        IF this.newest < last OR this.one <> this.two OR abs(this.one_ms - this.two_ms) > 0.001 OR this.bad > 0 THEN
            wrong := wrong + 1;
            RAISE WARNING 'read %, before %', this, last;
        END IF;
        last := greatest(this.newest, last);
    END LOOP;
END $$;
EOQ

# The load: short transactions, more different statements than there is room for, and locks that are waited for in parse
# analysis, so that entries are made, evicted and moved all the time.
$node->command_ok([ 'pgbench', '-i', '-q', 'postgres' ], 'tables for the load');
my $dir = PostgreSQL::Test::Utils::tempdir();
append_to_file("$dir/many.sql", 'SELECT pg_sleep(0.001)' . ', 1' x $_ . ";\n") for 1 .. 500;
append_to_file("$dir/lock.sql", "BEGIN;\nLOCK TABLE pgbench_branches;\nEND;\n");

# How often a process has slept: a session that idles sleeps until it is woken.
sub sleeps
{
    my ($sleeps) = slurp_file('/proc/' . shift() . '/status') =~ /^voluntary_ctxt_switches:\s+(\d+)/m;

    return $sleeps;
}

# Half of the idle sessions have entries among the first, half among those that are made again and again.
my @idle;
for my $i (1 .. 12)
{
    if ($i == 7)
    {
        $node->command_ok([ 'pgbench', '-n', '-c', 1, '-t', 1, '-f', "$dir/many.sql", 'postgres' ], 'many statements');
        $db->poll_ok('SELECT entries > 100 FROM pgscale.sampler_stats', 'and many entries');
    }
    $db->sql("CREATE ROLE idle$i LOGIN");
    push @idle, session($node, user => "idle$i");
    my $seen = "SELECT sum(samples) > 3 FROM pgscale.wait_profile()
        WHERE event = 'ClientRead' AND userid = 'idle$i'::regrole";
    until_true(sub { $db->sql($seen) eq 't' }) or die "idle$i is not seen";
}
# since before anybody reads
my @waiters;
for my $i (1, 2)
{
    $db->sql("CREATE ROLE waiter$i LOGIN");
    push @waiters, session($node, user => "waiter$i");
    $waiters[-1]->sql('BEGIN; SELECT 1');
}
$db->poll_ok(q{SELECT count(DISTINCT userid) FROM pgscale.wait_history() WHERE event = 'IdleInTransaction'
    AND userid IN ('waiter1'::regrole, 'waiter2'::regrole)}, 'two are idle in a transaction', 2);

# Ten seconds after its first statement a session is woken once more, to send the statistics that it has kept back; where it had
# none to keep back, it is not.
{
    my @pids = map { $_->pid } @idle, @waiters;
    until_true(sub { !grep { process_state($_) ne 'S' } @pids }) or die 'some do not idle';
    my %slept = map { $_ => sleeps($_) } @pids;
    local $PostgreSQL::Test::Utils::timeout_default = 14;
    until_true(sub { !grep { sleeps($_) == $slept{$_} } @pids });
}
$db->sql(q{INSERT INTO since SELECT userid, samples, wait_ms FROM pgscale.wait_profile()
    JOIN pg_roles ON userid = pg_roles.oid WHERE event = 'ClientRead' AND rolname LIKE 'idle%'});

my @readers = map { session($node) } @functions;
$readers[$_]->start("SELECT * FROM $functions[$_]()") for 0 .. $#readers;
# for as long as it takes
my $load = 1;
my $enough = 'SELECT ' . join(' AND ', '(SELECT evictions > 500 FROM pgscale.sampler_stats)',
    map { '(SELECT last_value > ' . ($_ eq 'read_activity' ? 2 : 10) . " FROM new_$_)" } @functions);
until_ok(sub {
    $load &&= $node->run_log([ 'pgbench', '-n', '-c', 4, '-T', 3, '-b', 'tpcb-like@20', '-f', "$dir/many.sql\@1", '-f', "$dir/lock.sql\@2",
        $node->connstr('postgres') ]);
    return !$load || $db->sql($enough) eq 't';
}, 'enough was read');
ok($load, 'under load');
$db->sql('DELETE FROM go_on');
for my $i (0 .. $#readers)
{
    my ($state, $text) = $readers[$i]->finish;
    my ($reads, $different, $wrong) = $text =~ /^(\d+)\|(\d+)\|(\d+)$/m;
    is($state, '00000', "$functions[$i]: no error") or diag $text;
    cmp_ok($different // 0, '>', 1, "$functions[$i]: it read while the sampler went on");
    is($wrong, 0, "$functions[$i]: never anything inconsistent") or diag $text;
    note "$functions[$i]: $text";
}
is($db->sql('SELECT evictions > 500 FROM pgscale.sampler_stats'), 't', 'there were evictions');
is($db->sql(q{SELECT count(*) > 0 FROM pgscale.wait_profile WHERE backend_type = 'other'}), 't', 'and rows for them');

# and when nothing moves any more, sums agree
$db->sampler('off');
is($db->sql('SELECT (SELECT sum(samples) FROM pgscale.wait_profile()) = samples FROM pgscale.sampler_stats'), 't',
    'it adds up');

$node->stop;
done_testing();
