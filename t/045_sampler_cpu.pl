# Where a session's time is: all of it is in the profile, what it ran and queued for a CPU is what the kernel counted, and a
# transaction that idles is told from a session that does.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main', conf => "pgscale.sampler_period = 5\npgscale.sampler_history_period = 5");
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
        WHILE clock_timestamp() < began + interval $$1.5 s$$ LOOP END LOOP; END'} ],
    talker => [ $talker, join("\n;", ('SELECT 1') x 20_000) ]);
for my $role (sort keys %loads)
{
    my ($session, $statements) = @{ $loads{$role} };
    my ($ran, $queued, $state, $text);

    until_ok(sub {
        $db->sql('SELECT pgscale.sampler_reset()');
        # the kernel's counts are read at the end of the first tick, which is not split
        until_true(sub { $db->sql('SELECT ticks > 1 FROM pgscale.sampler_stats') eq 't' });
        my @before = kernel_counts($session);
        ($state, $text) = $session->try($statements);
        my @after = kernel_counts($session);
        ($ran, $queued) = map { $after[$_] - $before[$_] } 0, 1;
        # what was sampled last is split a second later
        return until_true(sub { agrees($role, '^CPU:Running', $ran) && agrees($role, '^CPU:Queued', $queued) });
    }, "$role: it ran and queued for as long as the kernel says")
      or diag("kernel: $ran, $queued; ", $db->sql("SELECT event_type, event, wait_ms FROM pgscale.wait_profile()
        WHERE userid = '$role'::regrole"));
    is($state, '00000', 'its statements succeed') or diag $text;
    $db->poll_ok("SELECT ms('$role', '^CPU:CPU')", 'and nothing is left that is not split', 0);
}
is($db->sql(q{SELECT count(*) > 0 FROM pgscale.wait_history WHERE usename = 'talker' AND event = 'CPU' AND state = 'idle'}), 't',
    'between two statements a session is on CPU as well');
is($db->sql('SELECT cpu_readings > 0 FROM pgscale.sampler_stats'), 't', 'sampler_stats tells of the readings');

### All of the time

$db->sql('SELECT pgscale.sampler_reset()');
$talker->sql(join "\n;", ('SELECT 1') x 5_000);
until_ok(sub { $db->sql(q{SELECT observed_ms > 2000 AND abs(ms('talker', '') / observed_ms - 1) < 0.01
    AND abs(ms('burner', '') / observed_ms - 1) < 0.01 FROM pgscale.sampler_stats()}) eq 't' },
    'the rows of a session add up to the clock')
  or diag $db->sql(q{SELECT ms('talker', ''), ms('burner', ''), observed_ms FROM pgscale.sampler_stats()});

### Idle in a transaction

$db->sql('SELECT pgscale.sampler_reset()');
$idler->sql('BEGIN');
$idler->sql('SELECT 1');
$db->poll_ok(q{SELECT count(*) FROM pgscale.wait_profile WHERE event_type = 'Client' AND event = 'IdleInTransaction'
    AND usename = 'idler' AND wait_ms > 15 AND queryid IS NULL}, 'a transaction that idles has a row of its own', 1);
is($db->sql('SELECT event FROM pgscale.wait_current WHERE pid = ' . $idler->pid), 'IdleInTransaction', 'wait_current shows it');
is($db->sql(q{SELECT bool_or(event = 'IdleInTransaction'), bool_or(event = 'ClientRead') FROM pgscale.wait_history
    WHERE usename = 'idler' AND state = 'idle in transaction'}), 't|f', 'the history has it');
$db->poll_ok(q{SELECT sum(active_sessions) > 0 FROM pgscale.wait_timeline() WHERE event_type = 'Client'}, 'and so has the timeline');
$idler->try('SELECT 1/0');
$db->sql('SELECT pgscale.sampler_reset()');
$db->poll_ok(q{SELECT count(*) > 0 FROM pgscale.wait_history WHERE usename = 'idler' AND state = 'idle in transaction (aborted)'
    AND event = 'IdleInTransaction'}, 'one that failed counts, too');
$idler->sql('ROLLBACK');
$db->sql('SELECT pgscale.sampler_reset()');
$db->poll_ok(q{SELECT ms('idler', '^Client:ClientRead') > 50, ms('idler', 'IdleInTransaction') = 0}, 'after its end the session idles', 't|t');

### Over a restart, and where the kernel's counts cannot be read

$burner->sql($loads{burner}[1]);
$db->poll_ok(q{SELECT ms('burner', '^CPU:Running') > 0}, 'there is something to keep');
$_->quit for $burner, $talker, $idler;
my $library = PostgreSQL::Test::Utils::tempdir() . '/no_schedstat.so';
my $compiled = system("cc -shared -fPIC -o $library t/lib/no_schedstat.c -ldl >$library.out 2>&1") == 0;
chmod 0755, $library;
$db->quit;
$node->stop;
{
    local $ENV{LD_PRELOAD} = $compiled ? $library : $ENV{LD_PRELOAD} // '';
    $node->start;
}
$db = session($node);
is($db->sql(q{SELECT ms('burner', '^CPU:Running') > 0}), 't', 'what was split is kept over a restart');
SKIP:
{
    skip 'no compiler: ' . slurp_file("$library.out"), 3 unless $compiled;
    $db->sql('SELECT pgscale.sampler_reset()');
    $burner = session($node, user => 'burner');
    $burner->start(q{DO 'BEGIN LOOP END LOOP; END'});
    $db->poll_ok(q{SELECT ms('burner', '^CPU:CPU') > 1500}, 'counts that cannot be read: time on CPU has one row');
    is($db->sql(q{SELECT ms('burner', '^CPU:(Running|Queued|Blocked)')}), 0, 'which is not split');
    $db->poll_ok(q{SELECT state FROM pgscale.health WHERE feature = 'sampler' AND reason ~ 'is not split'}, 'and health says so', 'working');
    $db->sql('SELECT pg_cancel_backend(' . $burner->pid . ')');
    $burner->finish;
    $burner->quit;
}
$db->quit;
$node->stop;
done_testing();
