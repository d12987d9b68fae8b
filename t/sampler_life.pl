# The sampler as one of the server's processes: it is ended, killed, stopped, reconfigured, and must neither be lost nor hold up
# anything.
use strict;
use warnings;
use PgscaleSampler;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

# many more slots than sessions
my $node = pgscale_node('main', conf => "pgscale.sampler_history_period = 100ms\nmax_connections = 2000");
my ($db, $sleeper) = map { session($node) } 1, 2;
my $stopped;    # a process that is stopped now

# what hangs fails
sub limited { $db->sql("SET statement_timeout = '${PostgreSQL::Test::Utils::timeout_default}s'"); return; }
sub stats { return $db->sql("SELECT $_[0] FROM pgscale.sampler_stats"); }

sub ticks_on
{
    my $name = shift;
    my $ticks = stats('ticks');
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return $db->poll_ok("SELECT ticks > $ticks FROM pgscale.sampler_stats", $name);
}

sub stop_process
{
    my $pid = shift;

    kill 'STOP', $pid or die "cannot stop $pid: $!";
    $stopped = $pid;
    until_true(sub { process_state($pid) eq 'T' }) or die "process $pid does not stop";
    return;
}

sub go_on
{
    kill 'CONT', $stopped;
    undef $stopped;
    return;
}
END { go_on() if $stopped; }

limited();
$db->poll_ok(q{SELECT count(*) FROM pg_stat_activity JOIN pgscale.sampler_stats USING (pid) WHERE backend_type = 'pgscale sampler'},
    'the sampler is in pg_stat_activity', 1);

# Commands that wait until every process has answered
my $tablespace = PostgreSQL::Test::Utils::tempdir();
for my $how ('on', 'off')
{
    $db->sampler($how);
    for my $command ("CREATE TABLESPACE elsewhere LOCATION '$tablespace'", 'CREATE DATABASE other STRATEGY file_copy',
        'ALTER DATABASE other SET TABLESPACE elsewhere', 'DROP DATABASE other', 'DROP TABLESPACE elsewhere')
    {
        my ($state, $text) = $db->try($command);
        is($state, '00000', ($command =~ s/ LOCATION.*//r) . ", sampler $how") or diag $text;
    }
}

# Ended by SIGTERM
$db->sampler('on');
my ($starts, $samples, $reset) = split /\|/, stats('starts, samples, stats_reset');
my $pid = stats('pid');
$db->sql("SELECT pg_terminate_backend($pid)");
$db->poll_ok("SELECT starts > $starts AND pid <> $pid FROM pgscale.sampler_stats", 'it is started again');
is(stats("starts - $starts, samples >= $samples, stats_reset = '$reset'"), '1|t|t', 'once, with what it had');
ticks_on('and ticks');
is($db->sql(q{SELECT count(*) > 0, count(*) = count(DISTINCT to_jsonb(p) - ARRAY['samples', 'wait_ms'])
    FROM pgscale_internal.wait_profile() p}), 't|t', 'and adds to the entries that it had');

# Many reloads
$pid = stats('pid');
my $postmaster = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];
for my $i (1 .. 100)
{
    kill 'HUP', $pid;
    kill 'HUP', $postmaster if $i % 10 == 0;
}
$db->set('pgscale.sampler_period', 3);
$db->poll_ok('SELECT period_ms FROM pgscale.sampler_stats', 'after many reloads the last setting holds', 3);
is(stats('pid'), $pid, 'in the same process');
$db->set('pgscale.sampler_period');

# Stopped for a while, with a session that waits. What the kernel has counted of the sampler is read before and after.
sub kernel_ms { return (split / /, slurp_file("/proc/$pid/schedstat"))[0] / 1e6; }
my @kernel_ms = kernel_ms();
$db->sql('SELECT pgscale.reset($$sampler$$)');
push @kernel_ms, kernel_ms();
$sleeper->start('SELECT pg_sleep(600)');
$db->poll_ok(q{SELECT sum(samples) > 5 FROM pgscale_internal.wait_profile() WHERE event = 'PgSleep'}, 'a session that sleeps');
# What is read of it is as of its last tick, which comes after this.
$db->sql('CREATE TABLE earlier AS SELECT clock_timestamp() AS at');
ticks_on('it ticks');
$db->sql(q{CREATE TABLE pause AS SELECT s.*, p.wait_ms AS slept_ms
    FROM pgscale.sampler_stats s, pgscale.wait_profile p WHERE p.event = 'PgSleep'});
stop_process($pid);
push @kernel_ms, kernel_ms();
$db->sql('CREATE TABLE stopped AS SELECT clock_timestamp() AS at');
$db->poll_ok(q{SELECT clock_timestamp() > at + interval '1 s' FROM stopped}, 'the sampler is stopped for a while');
go_on();
$db->poll_ok('SELECT s.ticks > p.ticks + 5 FROM pgscale.sampler_stats s, pause p', 'it goes on');
is($db->sql(q{SELECT s.pid = p.pid,
        s.observed_ms - p.observed_ms BETWEEN 990 AND 10 + 1000 * extract(epoch FROM clock_timestamp() - e.at),
        (s.missed_ticks - p.missed_ticks) * s.period_ms BETWEEN 990 - 2 * s.period_ms AND s.observed_ms - p.observed_ms,
        s.lateness_max_us / 1000 BETWEEN 980 AND s.observed_ms - p.observed_ms
    FROM pgscale.sampler_stats s, pause p, earlier e}), 't|t|t|t', 'the pause is observed time, missed ticks and the longest delay')
  or diag $db->sql('SELECT row_to_json(p) FROM pause p; SELECT clock_timestamp(), row_to_json(s) FROM pgscale.sampler_stats s');
push @kernel_ms, kernel_ms();
is(stats("cpu_ms BETWEEN $kernel_ms[2] - $kernel_ms[1] - 1 AND $kernel_ms[3] - $kernel_ms[0] + 1"), 't',
    'its time on CPU since the reset is what the kernel says') or diag "@kernel_ms ", stats('cpu_ms');
is($db->sql('SELECT count(*) FROM pgscale_internal.past_coverage()'), 1, 'it is no gap');
is($db->sql(q{SELECT p.wait_ms - slept_ms > 990 FROM pgscale.wait_profile p, pause WHERE p.event = 'PgSleep'}),
    't', 'the sample behind the pause stands for all of it');

# Stopped for long: a reset gives up, and health says why
stop_process($pid);
my ($state, $text) = $db->try('SELECT pgscale.reset($$sampler$$)');
is($state, '55000', 'a reset while the sampler is stopped');
like($text, qr/does not answer.*HINT: .*pgscale\.health/s, 'says what to do') or diag $text;
$db->poll_ok(qq{SELECT state || ' ' || (reason ~ 'process $pid, is not responding') || ' ' || (action IS NOT NULL)
    FROM pgscale.health WHERE feature = 'sampler'}, 'health sees that it is stopped', 'broken true true');
$reset = $db->sql('SELECT clock_timestamp()');
go_on();
$db->poll_ok("SELECT stats_reset > '$reset' FROM pgscale.sampler_stats", 'the reset takes place when the sampler goes on');
my $works = q{SELECT state = 'working' FROM pgscale.health WHERE feature = 'sampler'};
$db->poll_ok($works, 'health sees that it goes on');

# A reset that the sampler finds together with a tick that is due: that tick counts in the profile and in the history.
my $resetting = session($node);
$db->set("pgscale.$_", '1ms') for 'sampler_history_period', 'sampler_period';
$db->poll_ok('SELECT period_ms FROM pgscale.sampler_stats', 'a tick each millisecond', 1);
stop_process($pid);
$resetting->start('SELECT pgscale.reset($$sampler$$)');
$db->poll_ok('SELECT wait_event_type FROM pg_stat_activity WHERE pid = ' . $resetting->pid, 'a reset waits for the sampler',
    'Extension');
go_on();
$resetting->finish;
$db->poll_ok('SELECT ticks > 1 FROM pgscale.sampler_stats', 'ticks after the reset');
$db->sampler('off');
my $sleeps = $db->sql(q{SELECT sum(samples) FROM pgscale_internal.wait_profile() WHERE event = 'PgSleep'});
cmp_ok($sleeps, '>', 1, 'one that sleeps has samples');
is($db->sql(q{SELECT count(*) FROM pgscale_internal.wait_history() WHERE event = 'PgSleep'}), $sleeps,
    'the history has each of them since the reset');
cancelled($db, $sleeper);
$db->set("pgscale.$_") for qw(sampler_history_period sampler_period);
$db->sampler('on');

# A tick is one wake-up, whatever the period: the kernel counts how often the process has waited.
sub counts
{
    my ($waits) = slurp_file("/proc/$pid/status") =~ /^voluntary_ctxt_switches:\s+(\d+)/m;

    return ($waits, stats('ticks'));
}
for my $period (10, 25)
{
    $db->set('pgscale.sampler_period', $period);
    $db->poll_ok('SELECT period_ms FROM pgscale.sampler_stats', "a period of $period ms", $period);
    my ($waits, $ticks) = counts();
    $db->poll_ok("SELECT ticks >= $ticks + 30 FROM pgscale.sampler_stats", 'it ticks');
    my @now = counts();
    cmp_ok($now[0] - $waits, '<', 1.3 * ($now[1] - $ticks) + 5, 'and wakes up as often');
}

# Shutdowns: by pg_ctl's limit, which is far above what they take
sub shutdown_ok
{
    my $name = shift;
    local $ENV{PGCTLTIMEOUT} = $PostgreSQL::Test::Utils::timeout_default;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    $_->quit for $db, $sleeper, $resetting;
    ok($node->stop('fast', fail_ok => 1), $name) or BAIL_OUT('the server does not stop');
    $node->start;
    $db = session($node);
    limited();
    return;
}
$db->set('pgscale.sampler_period', 1000);
$db->poll_ok('SELECT period_ms FROM pgscale.sampler_stats', 'a period of one second', 1000);
shutdown_ok('fast shutdown with a long period');
$db->set('pgscale.sampler_period');
$db->sampler('off');
shutdown_ok('fast shutdown with the sampler off');
$db->sampler('on');

# Killed: the server restarts all of its processes, as it always does
$pid = stats('pid');
$db->quit;
kill 'KILL', $pid;
until_ok(sub { (psql_once($node, "SELECT pid <> $pid AND ticks > 0 FROM pgscale.sampler_stats"))[1] eq 't' },
    'after kill -9 of the sampler it runs again');
$db = session($node);
limited();
$db->poll_ok($works, 'and works');
$pid = stats('pid');

# It does not outlive the postmaster.
$db->quit;
kill_postmaster($node);
until_ok(sub { process_state($pid) =~ /^[ZX]?$/ }, 'the sampler ends with the postmaster') or kill 'KILL', $pid;
done_testing();
