# The sampler as one of the server's processes: it is ended, killed, stopped, reconfigured, and must neither be lost nor hold
# up anything.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes ();

my $node = pgscale_node('main', conf => 'pgscale.sampler_history_period = 100ms');
my $db = session($node);
my $sleeper = session($node);
my $stopped;    # a process that is stopped now

# what hangs fails
sub limited { $db->sql("SET statement_timeout = '${PostgreSQL::Test::Utils::timeout_default}s'"); return; }
sub sampler_pid { return $db->sql('SELECT pid FROM pgscale.sampler_stats'); }

sub ticks_on
{
    my $name = shift;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my $ticks = $db->sql('SELECT ticks FROM pgscale.sampler_stats');

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
$db->poll_ok(q{SELECT count(*) FROM pg_stat_activity JOIN pgscale.sampler_stats USING (pid)
    WHERE backend_type = 'pgscale sampler'},
    'the sampler is in pg_stat_activity', 1);

# Commands that wait until every process has answered
my $tablespace = PostgreSQL::Test::Utils::tempdir();
for my $how ('on', 'off')
{
    $db->sampler($how);
    for my $command ("CREATE TABLESPACE elsewhere LOCATION '$tablespace'", 'CREATE DATABASE other STRATEGY wal_log',
        'CREATE DATABASE copied TEMPLATE other STRATEGY file_copy', 'ALTER DATABASE other SET TABLESPACE elsewhere',
        'DROP DATABASE other', 'DROP DATABASE copied', 'DROP TABLESPACE elsewhere')
    {
        my ($state, $text) = $db->try($command);
        is($state, '00000', ($command =~ s/ LOCATION.*//r) . ", sampler $how") or diag $text;
    }
}
$db->sampler('on');

# Many reloads
my $pid = sampler_pid();
my $postmaster = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];
for my $i (1 .. ($ENV{PGSCALE_TEST_FULL} ? 500 : 160))
{
    kill 'HUP', $pid;
    kill 'HUP', $postmaster if $i % 10 == 0;
}
$db->sql('ALTER SYSTEM SET pgscale.sampler_period = 3');
$db->sql('SELECT pg_reload_conf()') for 1 .. 20;
$db->poll_ok('SELECT period_ms FROM pgscale.sampler_stats', 'after many reloads the last setting holds', 3);
is(sampler_pid(), $pid, 'in the same process');
ticks_on('which ticks');

# Ended by SIGTERM
my ($starts, $samples, $reset) = split /\|/, $db->sql('SELECT starts, samples, stats_reset FROM pgscale.sampler_stats');
is($db->sql("SELECT pg_terminate_backend($pid)"), 't', 'pg_terminate_backend of the sampler');
$db->poll_ok("SELECT starts > $starts AND pid <> $pid FROM pgscale.sampler_stats", 'it is started again');
is($db->sql("SELECT starts - $starts, samples >= $samples, stats_reset = '$reset' FROM pgscale.sampler_stats"), '1|t|t', 'once, with what it had');
ticks_on('and ticks');
is($db->sql(q{SELECT count(*) > 0, count(*) = count(DISTINCT to_jsonb(p) - ARRAY['samples', 'wait_ms'])
    FROM pgscale.wait_profile() p}), 't|t', 'and adds to the entries that it had');

# Also while it does nothing
$db->sampler('off');
$pid = sampler_pid();
$db->sql("SELECT pg_terminate_backend($pid)");
$db->poll_ok("SELECT pid <> $pid FROM pgscale.sampler_stats", 'a sampler that is off is started again, too');
$db->sampler('on');
ticks_on('and can be switched on');

# Stopped for a while, with a session that waits. What the kernel has counted of the sampler is read before and after.
sub kernel_ms { return (split / /, slurp_file('/proc/' . sampler_pid() . '/schedstat'))[0] / 1e6; }
my @kernel_ms = kernel_ms();
$db->sql('SELECT pgscale.reset($$sampler$$)');
push @kernel_ms, kernel_ms();
$sleeper->start('SELECT pg_sleep(600)');
$db->poll_ok(q{SELECT sum(samples) > 5 FROM pgscale.wait_profile() WHERE event = 'PgSleep'}, 'a session that sleeps');
$pid = sampler_pid();
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
is( $db->sql(q{
    SELECT s.pid = p.pid,
           s.observed_ms - p.observed_ms BETWEEN 990 AND 10 + 1000 * extract(epoch FROM clock_timestamp() - e.at),
           (s.missed_ticks - p.missed_ticks) * s.period_ms BETWEEN 990 - 2 * s.period_ms AND s.observed_ms - p.observed_ms
      FROM pgscale.sampler_stats s, pause p, earlier e}), 't|t|t', 'the pause is observed time and missed ticks')
  or diag $db->sql('SELECT row_to_json(p) FROM pause p; SELECT clock_timestamp(), at, row_to_json(s) FROM pgscale.sampler_stats s, earlier');
push @kernel_ms, kernel_ms();
is($db->sql("SELECT cpu_ms BETWEEN $kernel_ms[2] - $kernel_ms[1] - 1 AND $kernel_ms[3] - $kernel_ms[0] + 1 FROM pgscale.sampler_stats"), 't',
    'its time on CPU since the reset is what the kernel says') or diag "@kernel_ms ", $db->sql('SELECT cpu_ms FROM pgscale.sampler_stats');
is($db->sql('SELECT count(*) FROM pgscale.past_coverage()'), 1, 'it is no gap');
is($db->sql('SELECT s.lateness_max_us / 1000 BETWEEN 980 AND s.observed_ms - p.observed_ms FROM pgscale.sampler_stats s, pause p'), 't', 'nor was any tick later');
is($db->sql(q{SELECT p.wait_ms - slept_ms > 990 FROM pgscale.wait_profile p, pause WHERE p.event = 'PgSleep'}),
    't', 'the sample behind the pause stands for all of it');

# Stopped for long: readers answer, a reset gives up, and health tells why
stop_process($pid);
for my $view ('wait_profile', 'wait_history', 'activity()', 'wait_current', 'sampler_stats')
{
    my ($state, $text) = $db->try("SELECT * FROM pgscale.$view");
    like($state, qr/^(00000|55P03)$/, "$view while the sampler is stopped") or diag $text;
}
my ($state, $text) = $db->try('SELECT pgscale.reset($$sampler$$)');
is($state, '55000', 'a reset while the sampler is stopped');
like($text, qr/does not answer.*HINT: .*pgscale\.health/s, 'says what to do') or diag $text;
$db->poll_ok(qq{SELECT state || ' ' || (reason ~ 'process $pid, is not responding') || ' ' || (action IS NOT NULL)
    FROM pgscale.health WHERE feature = 'sampler'}, 'health sees that it is stopped', 'broken true true');
$reset = $db->sql('SELECT clock_timestamp()');
go_on();
$db->poll_ok("SELECT stats_reset > '$reset' FROM pgscale.sampler_stats", 'the reset takes place when the sampler goes on');
$db->poll_ok(q{SELECT state = 'working' FROM pgscale.health WHERE feature = 'sampler'}, 'health sees that it goes on');
$db->sql('SELECT pgscale.reset($$sampler$$)');
$db->sql('SELECT pg_cancel_backend(' . $sleeper->pid . ')');
$sleeper->finish;

# A reset that the sampler finds together with a tick that is due: that tick counts in the profile and in the history.
my $steady = session($node);
$steady->start('SELECT pg_sleep(600)');
$db->set('pgscale.sampler_history_period', '1ms');
$db->set('pgscale.sampler_period', '1ms');
$db->poll_ok('SELECT period_ms FROM pgscale.sampler_stats', 'a tick each millisecond', 1);
stop_process($pid);
$sleeper->start('SELECT pgscale.reset($$sampler$$)');
$db->poll_ok(q{SELECT wait_event_type FROM pg_stat_activity WHERE pid = } . $sleeper->pid, 'a reset waits for the sampler', 'Extension');
go_on();
$sleeper->finish;
$db->poll_ok('SELECT ticks > 1 FROM pgscale.sampler_stats', 'ticks after the reset');
$db->sampler('off');
my $sleeps = $db->sql(q{SELECT sum(samples) FROM pgscale.wait_profile() WHERE event = 'PgSleep'});
cmp_ok($sleeps, '>', 1, 'one that sleeps has samples');
is($db->sql(q{SELECT count(*) FROM pgscale.wait_history() WHERE event = 'PgSleep'}), $sleeps, 'the history has each of them since the reset');
$db->sql('SELECT pg_cancel_backend(' . $steady->pid . ')');
$steady->finish;
$steady->quit;
$db->set("pgscale.$_") for qw(sampler_history_period sampler_period);
$db->sampler('on');

# Shutdowns: by pg_ctl's limit, which is far above what they take
sub shutdown_ok
{
    my $name = shift;
    local $ENV{PGCTLTIMEOUT} = $PostgreSQL::Test::Utils::timeout_default;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    $_->quit for $db, $sleeper;
    ok($node->stop('fast', fail_ok => 1), $name) or BAIL_OUT('the server does not stop');
    $node->start;
    ($db, $sleeper) = (session($node), session($node));
    limited();
    return;
}
# A tick is one wake-up, whatever the period: the kernel counts how often the process has waited.
sub counts
{
    my ($waits) = slurp_file('/proc/' . sampler_pid() . '/status') =~ /^voluntary_ctxt_switches:\s+(\d+)/m;

    return ($waits, $db->sql('SELECT ticks FROM pgscale.sampler_stats'));
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

$db->sql('ALTER SYSTEM SET pgscale.sampler_period = 1000');
$db->sql('SELECT pg_reload_conf()');
$db->poll_ok('SELECT period_ms FROM pgscale.sampler_stats', 'a period of one second', 1000);
shutdown_ok('fast shutdown with a long period');
$db->sampler('off');
shutdown_ok('fast shutdown with the sampler off');
$db->sampler('on');

# Killed: the server restarts all of its processes, as it always does
$db->sql('ALTER SYSTEM RESET pgscale.sampler_period');
$pid = sampler_pid();
$_->quit for $db, $sleeper;
kill 'KILL', $pid;
until_ok(sub { (psql_once($node, "SELECT pid <> $pid AND ticks > 0 FROM pgscale.sampler_stats"))[1] eq 't' },
    'after kill -9 of the sampler it runs again');
$db = session($node);
limited();
$db->poll_ok(q{SELECT state = 'working' FROM pgscale.health WHERE feature = 'sampler'}, 'and works');
$db->quit;

# Stopped within a tick: many slots make ticks long, so that trying helps.
$node->append_conf('postgresql.conf', <<'EOC');
max_connections = 4000
max_locks_per_transaction = 10
max_pred_locks_per_transaction = 10
pgscale.sampler_period = 1
EOC
$node->restart;
$db = session($node);
limited();
$db->poll_ok('SELECT ticks > 10 FROM pgscale.sampler_stats', 'many slots');
$pid = sampler_pid();
my $tries = 0;
for (1 .. ($ENV{PGSCALE_TEST_FULL} ? 500 : 160))
{
    $tries++;
    stop_process($pid);
    ($state) = $db->try('SELECT samples FROM pgscale.sampler_stats');
    last if $state ne '00000';
    go_on();
    # it has a tick to catch up with; any moment of that
    Time::HiRes::usleep(rand 400);
}
SKIP:
{
    skip "in $tries attempts the sampler was never stopped within a tick", 5 unless $stopped;
    note "stopped within a tick at attempt $tries";
    is($state, '55P03', 'sampler_stats gives up on a sampler that is stopped within a tick');
    for my $call ('wait_profile()', 'wait_history()', 'activity()', 'wait_current()')
    {
        ($state, $text) = $db->try("SELECT count(*) FROM pgscale.$call");
        like($state, qr/^(00000|55P03)$/, "$call while the sampler is stopped within a tick") or diag $text;
    }
    go_on();
}
ticks_on('it goes on');

# It does not outlive the postmaster.
$pid = sampler_pid();
$db->quit;
kill_postmaster($node);
until_ok(sub { process_state($pid) =~ /^[ZX]?$/ }, 'the sampler ends with the postmaster') or kill 'KILL', $pid;

done_testing();
