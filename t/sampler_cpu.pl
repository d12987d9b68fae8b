# Where a session's time is: all of it is in the profile, what it ran and queued for a CPU is what the kernel counted, and a
# transaction that idles is told from a session that does.
# Runs on each major.
use strict;
use warnings;
use POSIX qw(fmod);
use PgscaleSampler;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main', conf => "pgscale.sampler_period = 5\npgscale.sampler_history_period = 5\nshared_buffers = 4MB");
my $db = session($node);
$db->sql(<<'EOQ');
CREATE ROLE burner LOGIN;
CREATE ROLE talker LOGIN;
CREATE ROLE idler LOGIN;

-- the milliseconds of a role's sessions, by event
CREATE FUNCTION ms(who regrole, what text) RETURNS float8 LANGUAGE sql AS $$
    SELECT coalesce(sum(wait_ms), 0) FROM pgscale_internal.wait_profile() WHERE userid = who AND event_type || ':' || event ~ what
$$;
EOQ
my ($burner, $talker, $idler) = map { session($node, user => $_) } 'burner', 'talker', 'idler';
my $burn = q{DO 'BEGIN LOOP END LOOP; END'};
sub anew
{
    $db->sql('SELECT pgscale.reset($$sampler$$)');
    # the kernel's counts are read at the end of the first tick, which is not split
    return until_true(sub { $db->sql('SELECT ticks > 1 FROM pgscale.sampler_stats') eq 't' });
}

# The milliseconds that processes ran, and queued, since they began.
sub kernel_counts
{
    my @sums = (0, 0);

    for my $pid (@_)
    {
        my @counts = split / /, slurp_file("/proc/$pid/schedstat");
        $sums[$_] += $counts[$_] / 1e6 for 0, 1;
    }
    return @sums;
}

### What the kernel counted

my %loads = (
    burner => [ $burner, q{DO 'DECLARE began timestamptz := clock_timestamp(); BEGIN
        WHILE clock_timestamp() < began + interval $$1.1 s$$ LOOP END LOOP; END'} ],
    talker => [ $talker, join("\n;", ('SELECT 1') x 5_000) ]);
for my $role (sort keys %loads)
{
    my ($session, $statements) = @{ $loads{$role} };
    my ($ran, $queued);

    in_time_ok(sub {
        anew();
        my @before = kernel_counts($session->pid);
        $session->sql($statements);
        my @after = kernel_counts($session->pid);
        ($ran, $queued) = map { $after[$_] - $before[$_] } 0, 1;
        # what was sampled last is split a second later; within three per cent of the kernel's counts, or a tick
        local $PostgreSQL::Test::Utils::timeout_default = 4;
        return until_true(sub { $db->sql("SELECT abs(ms('$role', '^CPU:Running') - $ran) <= 0.03 * $ran + 5
            AND abs(ms('$role', '^CPU:Queued') - $queued) <= 0.03 * $queued + 5") eq 't' });
    }, "$role: it ran and queued for as long as the kernel says")
      or diag("kernel: $ran, $queued; ", $db->sql("SELECT event_type, event, wait_ms FROM pgscale_internal.wait_profile()
        WHERE userid = '$role'::regrole"));
    $db->poll_ok("SELECT ms('$role', '^CPU:CPU')", 'and nothing is left that is not split', 0);
}
# by chance a sample is of such a moment, on a busy machine rarely
until_ok(sub {
    $talker->sql($loads{talker}[1]);
    return $db->sql(q{SELECT count(*) > 0 FROM pgscale.wait_history WHERE usename = 'talker' AND event = 'CPU' AND state = 'idle'}) eq 't';
}, 'between two statements a session is on CPU as well');
until_ok(sub { $db->sql(q{SELECT observed_ms > 1200 AND abs(ms('talker', '') / observed_ms - 1) < 0.01
    AND abs(ms('burner', '') / observed_ms - 1) < 0.01 FROM pgscale_internal.sampler_stats()}) eq 't' },
    'the rows of a session add up to the clock')
  or diag $db->sql(q{SELECT ms('talker', ''), ms('burner', ''), observed_ms FROM pgscale_internal.sampler_stats()});

### Io workers, which do the reads of sessions

my $major = server_major();
SKIP:
{
    skip 'there are no io workers', 1 if $major < 18;
    $db->set($_ => 3) for $major > 18 ? ('io_min_workers', 'io_max_workers') : 'io_workers';
    $db->poll_ok(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'io worker'}, 'io workers', 3);
    my @pids = split /\n/, $db->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'io worker'});
    my $shown = q{SELECT sum(wait_ms) FILTER (WHERE event ~ '^Running') FROM pgscale_internal.wait_profile()
        WHERE backend_type = 'io worker'};
    my ($kernel, $cpu);

    $db->sql(q{CREATE UNLOGGED TABLE rows_to_read AS SELECT i, repeat('x', 500) FROM generate_series(1, 40000) i;
        GRANT SELECT ON rows_to_read TO PUBLIC});
    in_time_ok(sub {
        anew();
        my ($before) = kernel_counts(@pids);
        $burner->sql(q{DO 'DECLARE began timestamptz := clock_timestamp(); BEGIN
            WHILE clock_timestamp() < began + interval $$2.1 s$$ LOOP PERFORM count(*) FROM rows_to_read; END LOOP; END'});
        $kernel = (kernel_counts(@pids))[0] - $before;
        local $PostgreSQL::Test::Utils::timeout_default = 4;
        return until_true(sub {
            $cpu = $db->sql($shown);
            return $kernel > 50 && abs($cpu - $kernel) <= 0.03 * $kernel + 15;
        });
    }, 'they ran for as long as the kernel says') or diag "kernel: $kernel, $cpu";
}

### Idle in a transaction

$db->sql('SELECT pgscale.reset($$sampler$$)');
$idler->sql('BEGIN; SELECT 1');
$db->poll_ok(q{SELECT count(*) FROM pgscale.wait_profile WHERE event_type = 'Client' AND event = 'IdleInTransaction'
    AND usename = 'idler' AND wait_ms > 15 AND queryid IS NULL}, 'a transaction that idles has a row of its own', 1);
is($db->sql(q{SELECT abs(v.idle_in_transaction_ms - f.idle_in_transaction_ms) <= 0.1 + 0.01 * f.idle_in_transaction_ms
    FROM pgscale.sampler_stats v, pgscale_internal.sampler_stats() f}), 't', 'and sampler_stats shows the sum');
is($db->sql('SELECT event FROM pgscale.wait_current WHERE pid = ' . $idler->pid), 'IdleInTransaction', 'wait_current shows it');
is($db->sql(q{SELECT bool_or(event = 'IdleInTransaction'), bool_or(event = 'ClientRead') FROM pgscale.wait_history
    WHERE usename = 'idler' AND state = 'idle in transaction'}), 't|f', 'the history has it');
$db->poll_ok(q{SELECT count(*) > 0, count(*) FILTER (WHERE event_type = 'Client') FROM pgscale.activity(bucket => '10 s')
    WHERE event_type ~ 'Client|IdleInTransaction'}, 'and so has activity', 't|0');
$idler->try('SELECT 1/0');
$db->sql('SELECT pgscale.reset($$sampler$$)');
$db->poll_ok(q{SELECT count(*) > 0 FROM pgscale.wait_history WHERE usename = 'idler' AND state = 'idle in transaction (aborted)'
    AND event = 'IdleInTransaction'}, 'one that failed counts, too');
$idler->sql('ROLLBACK');
$db->sql('SELECT pgscale.reset($$sampler$$)');
$db->poll_ok(q{SELECT ms('idler', '^Client:ClientRead') > 50, ms('idler', 'IdleInTransaction') = 0},
    'after its end the session idles', 't|t');

### A session that ends while it runs: what was not split yet is split as it was in the second before.

$burner->start($burn);
$db->poll_ok(q{SELECT ms('burner', '^CPU:Running') > 0 AND ms('burner', '^CPU:CPU') > 100},
    'a session runs, and some of it is not split yet');
$db->sql('SELECT pg_terminate_backend(' . $burner->pid . ')');
# but for its very end, less than two ticks
$db->poll_ok(q{SELECT ms('burner', '^CPU:CPU') < 20}, 'at its end all of it is');
$_->quit for $burner, $talker, $idler;

### Over a restart, and by counts that are known: the kernel's are a file, and so is the time by which the server's clock is ahead.

my ($library, $clock) = (compiled('forged_schedstat'), compiled('clock'));
my $split = $db->sql(q{SELECT ms('burner', '^CPU:Running') > 0});
my $counts_file = $node->data_dir . '/schedstat';
my ($ran_ms, $queued_ms, $ahead_s) = (1000, 0, 0);

# All sessions have the same counts: milliseconds that they ran, and queued.
sub counts
{
    my ($more_ran, $more_queued) = @_;

    open my $handle, '+<', $counts_file or die $!;
    syswrite $handle, sprintf "%020d %020d 1\n", map { $_ * 1_000_000 } $ran_ms += $more_ran, $queued_ms += $more_queued or die $!;
    close $handle or die $!;
    return;
}
append_to_file($counts_file, '');
counts(0, 0);
local $ENV{PGSCALE_CLOCK} = number_file();
sub set_clock_ahead { return write_number($ENV{PGSCALE_CLOCK}, 1_000_000 * ($ahead_s += shift)); }
$ENV{LD_PRELOAD} = "$library:$clock" if $library;
$db = restarted($db, $node);
delete $ENV{LD_PRELOAD};
is($db->sql(q{SELECT ms('burner', '^CPU:Running') > 0}), $split, 'what was split is kept over a restart');

# More counts, and by how much the sums of events change: [event, milliseconds, slack]
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
    skip 'no compiler', 30 unless $library && $clock;

    # It shows no wait event, and the kernel counts nothing of it. Of that, some may be chance: 1.5 divided by the root of
    # the ticks.
    ($burner, my $sleeper) = map { session($node, user => $_) } 'burner', 'talker';
    my $idling = session($node, user => 'idler');
    $db->sql('SELECT pgscale.reset($$sampler$$)');
    $burner->start($burn);
    $sleeper->start('SELECT pg_sleep(600)');
    $db->poll_ok(q{SELECT ms('burner', '^CPU:(Blocked|Running|Queued)') > 2500}, 'time that the kernel did not count is split');
    is($db->sql(q{SELECT ms('burner', '^CPU:Blocked') / ms('burner', '^CPU:(Blocked|Running|Queued)') > 0.75,
        ms('burner', '^CPU:Running') BETWEEN 20 AND 500, ms('burner', '^CPU:Queued')}), 't|t|0',
            'it was Blocked, but for what may be chance');
    is($db->sql(q{SELECT sum(wait_ms) > 2000 FROM pgscale_internal.wait_totals() WHERE event_type = 'CPU'
        AND event = 'Blocked'}), 't',
        'and so it is in the totals');
    changes_ok('burner', 500, 200, [ [ 'CPU:Running', 500, 150 ], [ 'CPU:Queued', 200, 70 ] ], 'it ran and queued');
    cancelled($db, $burner);
    $burner->sql('BEGIN');

    # The same while a wait event is shown; of what sleeps that much is taken.
    is($db->sql(q{SELECT abs(ms('talker', 'InWait') - 700) < 30}), 't', 'that one and each other session');
    changes_ok('talker', 150, 400, [ [ 'CPU:RunningInWait', 150, 20 ], [ 'CPU:QueuedInWait', 400, 20 ] ],
        'it ran and queued within a wait');

    is($db->sql(q{SELECT count(*) FROM pgscale.wait_history WHERE event = 'ClientRead'}), 0, 'a session that idles has no samples');
    $db->sampler('off');
    # four sessions, and from 18 on three io workers
    my $most = $major < 18 ? 4.5 : 7.5;
    is($db->sql("SELECT cpu_readings / observed_ms * 1000 BETWEEN 1.5 AND $most FROM pgscale.sampler_stats"), 't',
        'each session that does anything is read once a second')
          or diag $db->sql('SELECT cpu_readings, observed_ms FROM pgscale.sampler_stats');

    # What sessions did is in all views
    $db->sql(q{CREATE TABLE shown AS SELECT event_type, event, sum(wait_ms) AS ms, sum(sum(wait_ms)) OVER () AS all_ms,
            CASE WHEN event_type <> event THEN event_type || ':' ELSE '' END || event AS item
        FROM pgscale_internal.wait_profile() WHERE NOT idle AND backend_type = 'client backend' GROUP BY 1, 2});
    my $differ = 'string_agg(format($$%s %s %s$$, item, i.ms, p.ms), $$, $$)';
    is($db->sql(qq{SELECT count(*) > 1, $differ FILTER (WHERE abs(coalesce(i.ms, 0) - coalesce(p.ms, 0)) >= 1), sum(p.ms) > 5000
        FROM (SELECT event_type AS item, active_sessions * coverage_fraction * 36500 * 86400e3 AS ms
                FROM pgscale.activity(now() - interval '12 h', NULL, '36500 d')) i
        FULL JOIN (SELECT CASE event WHEN 'IdleInTransaction' THEN event ELSE event_type END AS item, sum(ms) AS ms FROM shown
            GROUP BY 1) p
        USING (item)}), 't||t', 'activity has it as time on CPU, and each class has as much as in the profile');
    is($db->sql(qq{SELECT count(*) > 3, $differ FILTER (WHERE abs(coalesce(i.ms, 0) - coalesce(p.ms, 0)) > 0.02 * p.all_ms)
        FROM (SELECT item, wait_ms AS ms FROM pgscale.top_waits(now() - interval '12 h', top => 1000)) i
        FULL JOIN (SELECT item, all_ms, sum(ms) AS ms FROM shown GROUP BY 1, 2) p USING (item)}), 't|',
        'and so has top_waits each event, from the samples of the history');
    $burner->sql('ROLLBACK');
    $db->sampler('on');

    # A storm of a minute, in which a session that sleeps mostly queues, and another one that sleeps in the minute after it:
    # the first takes nothing from the second, so an hour has of each minute what the minute has.
    my $next_minute = sub { set_clock_ahead(65 - fmod($db->sql('SELECT extract(epoch FROM clock_timestamp())'), 60)) };
    $next_minute->();
    $db->sql('SELECT pgscale.reset($$sampler$$)');
    $db->poll_ok(q{SELECT ms('talker', '^Timeout:PgSleep') > 1200}, 'a session sleeps');
    changes_ok('talker', 150, 700, [ [ 'CPU:RunningInWait', 150, 20 ], [ 'CPU:QueuedInWait', 700, 20 ] ], 'a part of a storm')
      for 1, 2;
    $db->sql('SELECT pg_terminate_backend(' . $sleeper->pid . ')');
    $db->poll_ok(q{SELECT count(*) FROM pg_stat_activity WHERE usename = 'talker'}, 'which is over', 0);
    $next_minute->();
    $burner->start('SELECT pg_sleep(600)');
    $db->poll_ok(q{SELECT ms('burner', '^Timeout:PgSleep') > 2000}, 'a minute later another one sleeps');
    $db->sampler('off');
    $db->sql(q{CREATE TABLE period AS SELECT date_trunc('minute', min(at)) AS since,
        date_trunc('second', max(at + make_interval(secs => period_s))) + interval '2 s' AS until FROM pgscale_internal.past_coverage()});
    set_clock_ahead(5);
    is($db->sql(q{SELECT abs(max(t.wait_ms) / ms('burner', '^(Timeout|CPU):') - 1) < 0.1
        FROM period, pgscale.top_waits(since, until, 'user') t WHERE item = 'burner'}), 't',
            'and has all of its time, beside the storm');
    $db->sampler('on');
    cancelled($db, $burner);

    # A wait that has samples in one minute, and in the next one, for chance, none: in both together it is of who waited.
    my $waits_for_ms = sub {
        my ($ms, $name) = @_;
        $db->sql('SELECT pg_advisory_lock(1)');
        $burner->start('SELECT pg_advisory_lock(1)');
        return $db->poll_ok("SELECT ms('burner', '^Lock:') > $ms", $name);
    };
    my $gets_it = sub {
        $db->sql('SELECT pg_advisory_unlock_all()');
        $burner->finish;
        $burner->sql('SELECT pg_advisory_unlock_all()');
    };
    $db->set('pgscale.sampler_history_period', '60s');
    $db->poll_ok('SHOW pgscale.sampler_history_period', 'samples are rare', '1min');
    $next_minute->();
    $db->sql('SELECT pgscale.reset($$sampler$$)');
    $db->poll_ok('SELECT count(*) > 0 FROM pgscale_internal.past_coverage()', 'a sample');
    $waits_for_ms->(300, 'a session waits, without a sample');
    $gets_it->();
    $db->set('pgscale.sampler_history_period', '5');
    # the next one ends the time that is known
    $db->poll_ok(q{SELECT sum(known_s) > 0.3 FROM pgscale_internal.past_coverage()}, 'the time of the wait is known');
    $next_minute->();
    $waits_for_ms->(2300, 'it waits again, and has samples');
    $db->sampler('off');
    set_clock_ahead(5);
    my $locks = sub { $db->sql("SELECT $_[0] FROM pgscale.top_waits(now() - interval '10 min'$_[1]) WHERE event_type = 'Lock'") };
    is($locks->('item, wait_ms > 2000', ''), 'Lock:advisory|t', 'by event it is one item');
    is($locks->(q{item, abs(wait_ms / ms('burner', '^(?!Client:ClientRead)') - 1) < 0.06}, q{, by => 'user'}), 'burner|t',
        q{and by user its role's});
    is($locks->('item, event', q{, (SELECT date_trunc('minute', min(at)) + interval '1 min' FROM pgscale_internal.past_coverage())}),
        'Lock|Lock', 'alone, the first minute has its class only');
    $db->sampler('on');
    $gets_it->();

    # Counts that cannot be read
    truncate $counts_file, 0 or die $!;
    $db->sql('SELECT pgscale.reset($$sampler$$)');
    $burner->start($burn);
    $db->poll_ok(q{SELECT ms('burner', '^CPU:CPU') > 1200}, 'counts that cannot be read: time on CPU has one row');
    is($db->sql(q{SELECT ms('burner', '^CPU:(Running|Queued|Blocked)')}), 0, 'which is not split');
    $db->poll_ok(q{SELECT state FROM pgscale.health WHERE feature = 'sampler' AND reason ~ 'is not split'}, 'and health says so',
        'working');
}
$node->stop('immediate');
done_testing();
