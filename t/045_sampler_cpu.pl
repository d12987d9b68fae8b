# Where a session's time is: all of it is in the profile, what it ran and queued for a CPU is what the kernel counted, and a
# transaction that idles is told from a session that does.
use strict;
use warnings;
use POSIX qw(fmod);
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main', conf => "pgscale.sampler_period = 5\npgscale.sampler_history_period = 5\nshared_buffers = 4MB");
my $db = session($node);
$db->sql(<<'EOQ');
CREATE ROLE burner LOGIN;
CREATE ROLE talker LOGIN;
CREATE ROLE idler LOGIN;
GRANT SELECT, INSERT, UPDATE ON ALL TABLES IN SCHEMA public TO PUBLIC;

-- the milliseconds of a role's sessions, by event
CREATE FUNCTION ms(who regrole, what text) RETURNS float8 LANGUAGE sql AS $$
    SELECT coalesce(sum(wait_ms), 0) FROM pgscale.wait_profile() WHERE userid = who AND event_type || ':' || event ~ what
$$;
EOQ
my $burner = session($node, user => 'burner');
my $talker = session($node, user => 'talker');
my $idler = session($node, user => 'idler');

# The milliseconds that a session ran, and queued, since it began.
sub kernel_counts
{
    my $session = shift;

    return map { $_ / 1e6 } (split / /, slurp_file('/proc/' . $session->pid . '/schedstat'))[ 0, 1 ];
}

# Is the profile's time within three per cent of the kernel's, or a tick?
sub agrees
{
    my ($role, $what, $kernel) = @_;

    return abs($db->sql("SELECT ms('$role', '$what')") - $kernel) <= 0.03 * $kernel + 5;
}

### What the kernel counted

my %loads = (
    burner => [ $burner, q{DO 'DECLARE began timestamptz := clock_timestamp(); BEGIN
        WHILE clock_timestamp() < began + interval $$1.1 s$$ LOOP END LOOP; END'} ],
    talker => [ $talker, join("\n;", ('SELECT 1') x 10_000) ]);
for my $role (sort keys %loads)
{
    my ($session, $statements) = @{ $loads{$role} };
    my ($ran, $queued, $state, $text);

    until_ok(sub {
        $db->sql('SELECT pgscale.reset($$sampler$$)');
        # the kernel's counts are read at the end of the first tick, which is not split
        until_true(sub { $db->sql('SELECT ticks > 1 FROM pgscale.sampler_stats') eq 't' });
        my @before = kernel_counts($session);
        ($state, $text) = $session->try($statements);
        my @after = kernel_counts($session);
        ($ran, $queued) = map { $after[$_] - $before[$_] } 0, 1;
        # what was sampled last is split a second later
        local $PostgreSQL::Test::Utils::timeout_default = 4;
        return until_true(sub { agrees($role, '^CPU:Running', $ran) && agrees($role, '^CPU:Queued', $queued) });
    }, "$role: it ran and queued for as long as the kernel says")
      or diag("kernel: $ran, $queued; ", $db->sql("SELECT event_type, event, wait_ms FROM pgscale.wait_profile()
        WHERE userid = '$role'::regrole"));
    is($state, '00000', 'its statements succeed') or diag $text;
    $db->poll_ok("SELECT ms('$role', '^CPU:CPU')", 'and nothing is left that is not split', 0);
}
is($db->sql(q{SELECT count(*) > 0 FROM pgscale.wait_history WHERE usename = 'talker' AND event = 'CPU' AND state = 'idle'}), 't',
    'between two statements a session is on CPU as well');

### All of the time

$db->sql('SELECT pgscale.reset($$sampler$$)');
$talker->sql(join "\n;", ('SELECT 1') x 2_000);
until_ok(sub { $db->sql(q{SELECT observed_ms > 1200 AND abs(ms('talker', '') / observed_ms - 1) < 0.01
    AND abs(ms('burner', '') / observed_ms - 1) < 0.01 FROM pgscale_internal.sampler_stats()}) eq 't' },
    'the rows of a session add up to the clock')
  or diag $db->sql(q{SELECT ms('talker', ''), ms('burner', ''), observed_ms FROM pgscale_internal.sampler_stats()});

### Io workers, which do the reads of sessions

my $major = int($db->sql('SHOW server_version_num') / 10000);
SKIP:
{
    skip 'there are no io workers', 2 if $major < 18;
    $db->set($_ => 3) for $major > 18 ? ('io_min_workers', 'io_max_workers') : 'io_workers';
    $db->poll_ok(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'io worker'}, 'io workers', 3);
    my @pids = split /\n/, $db->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'io worker'});
    my $ran = sub { my $ms = 0; $ms += (split / /, slurp_file("/proc/$_/schedstat"))[0] / 1e6 for @pids; return $ms };
    my $shown = q{SELECT sum(wait_ms) FILTER (WHERE event ~ '^Running'), sum(wait_ms) / 3 FROM pgscale.wait_profile() WHERE backend_type = 'io worker'};
    my ($kernel, $cpu, $all, $observed);

    $db->sql(q{CREATE UNLOGGED TABLE rows_to_read AS SELECT i, repeat('x', 500) FROM generate_series(1, 40000) i; GRANT SELECT ON rows_to_read TO PUBLIC});
    until_ok(sub {
        $db->sql('SELECT pgscale.reset($$sampler$$)');
        until_true(sub { $db->sql('SELECT ticks > 1 FROM pgscale.sampler_stats') eq 't' });
        my $before = $ran->();
        $burner->sql(q{DO 'DECLARE began timestamptz := clock_timestamp(); BEGIN
            WHILE clock_timestamp() < began + interval $$2.1 s$$ LOOP PERFORM count(*) FROM rows_to_read; END LOOP; END'});
        $kernel = $ran->() - $before;
        local $PostgreSQL::Test::Utils::timeout_default = 4;
        return until_true(sub { ($cpu, $all) = split /\|/, $db->sql($shown); return $kernel > 50 && abs($cpu - $kernel) <= 0.03 * $kernel + 15 });
    }, 'they ran for as long as the kernel says') or diag "kernel: $kernel, $cpu";
    until_ok(sub {
        ($all, $observed) = split /\|/, $db->sql(qq{SELECT s.ms, observed_ms FROM ($shown) s(cpu, ms), pgscale_internal.sampler_stats()});
        return abs($all - $observed) < 20;
    }, 'and their rows add up to the clock') or diag "$all, $observed";
}

### Idle in a transaction

$db->sql('SELECT pgscale.reset($$sampler$$)');
$idler->sql('BEGIN');
$idler->sql('SELECT 1');
$db->poll_ok(q{SELECT count(*) FROM pgscale.wait_profile WHERE event_type = 'Client' AND event = 'IdleInTransaction'
    AND usename = 'idler' AND wait_ms > 15 AND queryid IS NULL}, 'a transaction that idles has a row of its own', 1);
is($db->sql('SELECT event FROM pgscale.wait_current WHERE pid = ' . $idler->pid), 'IdleInTransaction', 'wait_current shows it');
is($db->sql(q{SELECT bool_or(event = 'IdleInTransaction'), bool_or(event = 'ClientRead') FROM pgscale.wait_history
    WHERE usename = 'idler' AND state = 'idle in transaction'}), 't|f', 'the history has it');
$db->poll_ok(q{SELECT count(*) > 0, count(*) FILTER (WHERE event_type = 'Client') FROM pgscale.activity(bucket => '10 s') WHERE event_type ~ 'Client|IdleInTransaction'}, 'and so has activity', 't|0');
$idler->try('SELECT 1/0');
$db->sql('SELECT pgscale.reset($$sampler$$)');
$db->poll_ok(q{SELECT count(*) > 0 FROM pgscale.wait_history WHERE usename = 'idler' AND state = 'idle in transaction (aborted)'
    AND event = 'IdleInTransaction'}, 'one that failed counts, too');
$idler->sql('ROLLBACK');
$db->sql('SELECT pgscale.reset($$sampler$$)');
$db->poll_ok(q{SELECT ms('idler', '^Client:ClientRead') > 50, ms('idler', 'IdleInTransaction') = 0}, 'after its end the session idles', 't|t');

### A session that ends while it runs: what was not split yet is split as it was in the second before.

$db->sql('SELECT pgscale.reset($$sampler$$)');
my $dying = session($node, user => 'burner');
$dying->start(q{DO 'BEGIN LOOP END LOOP; END'});
$db->poll_ok(q{SELECT ms('burner', '^CPU:Running') > 0 AND ms('burner', '^CPU:CPU') > 100}, 'a session runs, and some of it is not split yet');
$db->sql('SELECT pg_terminate_backend(' . $dying->pid . ')');
# but for its very end, less than two ticks
$db->poll_ok(q{SELECT ms('burner', '^CPU:CPU') < 20}, 'at its end all of it is');

### Over a restart, and by counts that are known

$_->quit for $burner, $talker, $idler;
my ($library, $clock) = map { PostgreSQL::Test::Utils::tempdir() . "/$_.so" } 'forged_schedstat', 'clock';
my $compiled = system("(cc -shared -fPIC -o $library t/lib/forged_schedstat.c -ldl && cc -shared -fPIC -o $clock t/lib/clock.c) >$library.out 2>&1") == 0;
chmod 0755, $library, $clock;
my $split = $db->sql(q{SELECT ms('burner', '^CPU:Running') > 0});
$db->quit;
$node->stop;

# All sessions have the same counts: milliseconds that they ran, and queued.
my ($ran_ms, $queued_ms) = (1000, 0);
sub counts
{
    my ($more_ran, $more_queued) = @_;
    my $bytes = sprintf "%020d %020d 1\n", map { $_ * 1_000_000 } $ran_ms += $more_ran, $queued_ms += $more_queued;

    open my $handle, '+<', $node->data_dir . '/schedstat' or die $!;
    syswrite $handle, $bytes or die $!;
    close $handle or die $!;
    return;
}
append_to_file($node->data_dir . '/schedstat', '');
counts(0, 0);

# The server's clock is ahead of the machine's.
local $ENV{PGSCALE_CLOCK} = $node->data_dir . '/clock';
my $ahead_s = 0;
sub set_clock_ahead
{
    my $bytes = pack 'q', 1_000_000 * ($ahead_s += shift);

    open my $handle, '+<', $ENV{PGSCALE_CLOCK} or die $!;
    syswrite $handle, $bytes or die $!;
    close $handle or die $!;
    return;
}
append_to_file($ENV{PGSCALE_CLOCK}, '');
set_clock_ahead(0);
{
    local $ENV{LD_PRELOAD} = $compiled ? "$library:$clock" : $ENV{LD_PRELOAD} // '';
    $node->start;
}
$db = session($node);
is($db->sql(q{SELECT ms('burner', '^CPU:Running') > 0}), $split, 'what was split is kept over a restart');

sub changes_ok
{
    my ($who, $ran, $queued, $expected, $name) = @_;
    my $sums = 'SELECT ' . join ', ', map { "ms('$who', '^$_->[0]\$')" } @$expected;
    my @before = split /\|/, $db->sql($sums);
    my @change;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    counts($ran, $queued);
    return until_ok(sub {
        my @after = split /\|/, $db->sql($sums);
        @change = map { $after[$_] - $before[$_] } 0 .. $#before;
        return !grep { abs($change[$_] - $expected->[$_][1]) > $expected->[$_][2] } 0 .. $#change;
    }, $name) || !diag "changed by @change";
}

SKIP:
{
    skip 'no compiler: ' . slurp_file("$library.out"), 33 unless $compiled;

    # It shows no wait event, and the kernel counts nothing of it. Of that, some may be chance: 1.5 divided by the root of the ticks.
    my ($burner, $sleeper, $idler) = map { session($node, user => $_) } 'burner', 'talker', 'idler';
    $db->sql('SELECT pgscale.reset($$sampler$$)');
    $burner->start(q{DO 'BEGIN LOOP END LOOP; END'});
    $sleeper->start('SELECT pg_sleep(600)');
    $db->poll_ok(q{SELECT ms('burner', '^CPU:(Blocked|Running|Queued)') > 2500}, 'time that the kernel did not count is split');
    is($db->sql(q{SELECT ms('burner', '^CPU:Blocked') / ms('burner', '^CPU:(Blocked|Running|Queued)') > 0.75}), 't', 'it was Blocked');
    is($db->sql(q{SELECT ms('burner', '^CPU:Running') BETWEEN 20 AND 500, ms('burner', '^CPU:Queued')}), 't|0', 'but for what may be chance');
    is($db->sql(q{SELECT sum(wait_ms) > 2000 FROM pgscale_internal.wait_totals() WHERE event_type = 'CPU' AND event = 'Blocked'}), 't', 'and so it is in the totals');
    changes_ok('burner', 500, 200, [ [ 'CPU:Running', 500, 150 ], [ 'CPU:Queued', 200, 70 ] ], 'it ran and queued');
    $db->sql('SELECT pg_cancel_backend(' . $burner->pid . ')');
    $burner->finish;
    $burner->sql('BEGIN');

    # The same while a wait event is shown; of what sleeps that much is taken.
    is($db->sql(q{SELECT abs(ms('talker', 'InWait') - 700) < 30}), 't', 'that one and each other session');
    changes_ok('talker', 150, 400, [ [ 'CPU:RunningInWait', 150, 20 ], [ 'CPU:QueuedInWait', 400, 20 ] ], 'it ran and queued within a wait');

    is($db->sql(q{SELECT count(*) FROM pgscale.wait_history WHERE event = 'ClientRead'}), 0, 'a session that idles has no samples');
    $db->sampler('off');
    # four sessions, and from 18 on three io workers
    my $most = $major < 18 ? 4.5 : 7.5;
    is($db->sql("SELECT cpu_readings / observed_ms * 1000 BETWEEN 1.5 AND $most FROM pgscale.sampler_stats"), 't',
        'each session that does anything is read once a second') or diag $db->sql('SELECT cpu_readings, observed_ms FROM pgscale.sampler_stats');
    is($db->sql(q{SELECT count(*) > 1, bool_and(abs(coalesce(t.ms, 0) - coalesce(p.ms, 0)) < 1), sum(p.ms) > 5000
         FROM (SELECT event_type, active_sessions * covered_fraction * 36500 * 86400e3 AS ms FROM pgscale.activity(now() - interval '12 h', NULL, '36500 d')) t
         FULL JOIN (SELECT CASE event WHEN 'IdleInTransaction' THEN event ELSE event_type END AS event_type, sum(wait_ms) AS ms
                      FROM pgscale.wait_profile() WHERE NOT idle AND backend_type = 'client backend' GROUP BY 1) p
        USING (event_type)}), 't|t|t', 'activity has it as time on CPU, and each class has as much as in the profile')
      or diag $db->sql(q{SELECT event_type, active_sessions * covered_fraction * 36500 * 86400e3 AS ms FROM pgscale.activity(now() - interval '12 h', NULL, '36500 d');
        SELECT event_type, event, idle, sum(wait_ms) FROM pgscale.wait_profile() WHERE backend_type = 'client backend' GROUP BY 1, 2, 3});
    is($db->sql(q{SELECT count(*) > 3, string_agg(format('%s %s %s', item, t.ms, p.ms), ', ') FILTER (WHERE abs(coalesce(t.ms, 0) - coalesce(p.ms, 0)) > 0.02 * p.all_ms)
         FROM (SELECT item, wait_ms AS ms FROM pgscale.top_waits(now() - interval '12 h', top => 1000)) t
         FULL JOIN (SELECT CASE WHEN event_type <> event THEN event_type || ':' ELSE '' END || event AS item, sum(wait_ms) AS ms, sum(sum(wait_ms)) OVER () AS all_ms
                      FROM pgscale.wait_profile() WHERE NOT idle AND backend_type = 'client backend' GROUP BY 1) p
        USING (item)}), 't|', 'and so has top_waits each event, from the samples of the history')
      or diag $db->sql(q{SELECT item, wait_ms FROM pgscale.top_waits(now() - interval '12 h', top => 1000);
        SELECT event_type, event, idle, sum(wait_ms) FROM pgscale.wait_profile() WHERE backend_type = 'client backend' GROUP BY 1, 2, 3});
    is($db->sql(q{SELECT string_agg(format('%s %s %s', by, i.ms, p.ms), ', ') FILTER (WHERE abs(i.ms / p.ms - 1) > 0.01)
         FROM (SELECT sum(wait_ms) AS ms FROM pgscale.wait_profile() WHERE NOT idle AND backend_type = 'client backend') p
         CROSS JOIN unnest('{event,class,query,user,database,application,backend_type}'::text[]) by
         CROSS JOIN LATERAL (SELECT sum(wait_ms) AS ms FROM pgscale_internal.past_items(now() - interval '12 h', NULL, by, 1000) WHERE fraction IS NOT NULL) i}), '',
        'by whatever they are grouped, they add up to the same number of sessions');
    is($db->sql(q{SELECT count(*) FROM (SELECT backend_type, event_type, event, sum(wait_ms) AS ms FROM pgscale.wait_profile() WHERE NOT idle GROUP BY 1, 2, 3) p
        FULL JOIN pgscale_internal.wait_totals() t USING (backend_type, event_type, event) WHERE abs(coalesce(ms, 0) - coalesce(wait_ms, 0)) > 0.001}), 0,
        'the totals are those of the profile');
    is($db->sql(q{SELECT abs(active_ms - active) < 1, abs(idle_in_transaction_ms - idle) < 1, idle > 500 FROM pgscale_internal.sampler_stats(),
         (SELECT sum(wait_ms) FILTER (WHERE event <> 'IdleInTransaction') AS active, sum(wait_ms) FILTER (WHERE event = 'IdleInTransaction') AS idle
            FROM pgscale.wait_profile() WHERE NOT idle AND backend_type = 'client backend') p}), 't|t|t', 'sessions were active, or idle in a transaction, for as long');
    $burner->sql('ROLLBACK');
    $db->sampler('on');

    # A storm of a minute, in which a session that sleeps mostly queues, and another one that sleeps in the minute after it: the first
    # takes nothing from the second, so an hour has of each minute what the minute has.
    my $next_minute = sub { set_clock_ahead(65 - fmod($db->sql('SELECT extract(epoch FROM clock_timestamp())'), 60)) };
    $next_minute->();
    $db->sql('SELECT pgscale.reset($$sampler$$)');
    $db->poll_ok(q{SELECT ms('talker', '^Timeout:PgSleep') > 1200}, 'a session sleeps');
    changes_ok('talker', 150, 700, [ [ 'CPU:RunningInWait', 150, 20 ], [ 'CPU:QueuedInWait', 700, 20 ] ], 'a part of a storm') for 1 .. 4;
    $db->sql('SELECT pg_terminate_backend(' . $sleeper->pid . ')');
    $db->poll_ok(q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'talker'}, 'which is over', 0);
    $next_minute->();
    $burner->start('SELECT pg_sleep(600)');
    $db->poll_ok(q{SELECT ms('burner', '^Timeout:PgSleep') > 3000}, 'a minute later another one sleeps');
    $db->sampler('off');
    $db->sql(q{CREATE TABLE minutes AS SELECT date_trunc('minute', min(at)) AS one, date_trunc('minute', max(at + make_interval(secs => period_s))) AS two,
        date_trunc('second', max(at + make_interval(secs => period_s))) + interval '2 s' AS three FROM pgscale.past_coverage()});
    set_clock_ahead(5);
    is($db->sql(q{SELECT abs(max(t.wait_ms) / ms('burner', '^(Timeout|CPU):') - 1) < 0.02 FROM minutes, pgscale.top_waits(one, three, 'user') t WHERE item = 'burner'}),
        't', 'and has all of its time, beside the storm');
    # of the class Timeout each minute has samples; what of the others has none in one of them is added up by class only
    is($db->sql(q{SELECT string_agg(item, ' ' ORDER BY item) FILTER (WHERE by = 'event' AND item ~ 'Timeout'), count(*) FILTER (WHERE by = 'class') > 1,
                string_agg(format('%s %s: %s and %s are %s', by, item, first, second, whole), '; ') FILTER (WHERE abs(first + second - whole) > 0.001)
         FROM minutes CROSS JOIN unnest('{event,class}'::text[]) by CROSS JOIN LATERAL (
              SELECT item, kind, sum(CASE n WHEN 1 THEN wait_ms ELSE 0 END) AS first, sum(CASE n WHEN 2 THEN wait_ms ELSE 0 END) AS second,
                     sum(CASE n WHEN 3 THEN wait_ms ELSE 0 END) AS whole
                FROM (VALUES (1, one, two), (2, two, three), (3, one, three)) p (n, since, until)
               CROSS JOIN LATERAL pgscale_internal.past_items(since, until, by, 1000) WHERE by = 'class' OR item ~ 'Timeout' GROUP BY 1, 2) i}),
        'Timeout:PgSleep|t|', 'two periods make up one, by class, and by event where both have samples');
    $db->sampler('on');
    $db->sql('SELECT pg_cancel_backend(' . $burner->pid . ')');
    $burner->finish;

    # A wait that has samples in one minute, and in the next one, for chance, none: in both together it is of who waited.
    $db->set('pgscale.sampler_history_period', '60s');
    $db->poll_ok('SHOW pgscale.sampler_history_period', 'samples are rare', '1min');
    $next_minute->();
    $db->sql('SELECT pgscale.reset($$sampler$$)');
    $db->poll_ok('SELECT count(*) > 0 FROM pgscale.past_coverage()', 'a sample');
    $db->sql('SELECT pg_advisory_lock(1)');
    $burner->start('SELECT pg_advisory_lock(1)');
    $db->poll_ok(q{SELECT ms('burner', '^Lock:') > 300}, 'a session waits, without a sample');
    $db->sql('SELECT pg_advisory_unlock(1)');
    $burner->finish;
    $burner->sql('SELECT pg_advisory_unlock_all()');
    $db->set('pgscale.sampler_history_period', '5');
    $db->poll_ok('SHOW pgscale.sampler_history_period', 'samples are frequent', '5ms');
    # the next one ends the time that is known
    $db->poll_ok(q{SELECT sum(known_s) > 0.3 FROM pgscale.past_coverage()}, 'the time of the wait is known');
    $next_minute->();
    $db->sql('SELECT pg_advisory_lock(1)');
    $burner->start('SELECT pg_advisory_lock(1)');
    $db->poll_ok(q{SELECT ms('burner', '^Lock:') > 2500}, 'it waits again, and has samples');
    $db->sampler('off');
    set_clock_ahead(5);
    is($db->sql(q{SELECT item, wait_ms > 2000 FROM pgscale.top_waits(now() - interval '10 min') WHERE event_type = 'Lock'}), 'Lock:advisory|t', 'by event it is one item');
    is($db->sql(q{SELECT item, abs(wait_ms / ms('burner', '') - 1) < 0.06 FROM pgscale.top_waits(now() - interval '10 min', by => 'user') WHERE event_type = 'Lock'}),
        'burner|t', 'and by user its role\'s');
    is($db->sql(q{SELECT item, event FROM pgscale.top_waits(now() - interval '10 min', (SELECT date_trunc('minute', min(at)) + interval '1 min' FROM pgscale.past_coverage())) WHERE event_type = 'Lock'}),
        'Lock|Lock', 'alone, the first minute has its class only');
    $db->sampler('on');
    $db->sql('SELECT pg_advisory_unlock_all()');
    $burner->finish;
    $burner->sql('SELECT pg_advisory_unlock_all()');

    # Counts that cannot be read
    truncate $node->data_dir . '/schedstat', 0 or die $!;
    $db->sql('SELECT pgscale.reset($$sampler$$)');
    $burner->start(q{DO 'BEGIN LOOP END LOOP; END'});
    $db->poll_ok(q{SELECT ms('burner', '^CPU:CPU') > 1200}, 'counts that cannot be read: time on CPU has one row');
    is($db->sql(q{SELECT ms('burner', '^CPU:(Running|Queued|Blocked)')}), 0, 'which is not split');
    $db->poll_ok(q{SELECT state FROM pgscale.health WHERE feature = 'sampler' AND reason ~ 'is not split'}, 'and health says so', 'working');
    $db->sql('SELECT pg_cancel_backend(' . $burner->pid . ')');
    $burner->finish;
    $_->quit for $burner, $idler;
}
$db->quit;
$node->stop;
done_testing();
