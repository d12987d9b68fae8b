# Traces that nobody asks for: a pile-up is traced once, the right session of it, and kept; and nothing waits for the process
# that traces.
#
# What is usual must be known for half a minute first. Where pgscale shows its features, a library of the test lets the
# servers know it at once. When a trace begins, and when not, is in t/trace_rule.pl.
use strict;
use warnings;
use PgscaleTest;
use PgscaleWire;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $learns = shows_modules() ? compiled('trigger_made_up') : undef;
my $node = pgscale_node('main', preload => 'pgscale' . ($learns ? ",$learns" : ''), init => [ allows_streaming => 1 ],
    conf => "compute_query_id = on\n");
my $db = session($node);

my $health = q{SELECT concat(state, ': ', reason) FROM pgscale.health WHERE feature = 'trace'};
my $one_cpu = $db->sql($health) =~ /on one only/;
like($db->sql($health), qr/^idle: traces when asked/, 'off') unless $one_cpu;
$node->append_conf('postgresql.conf', 'pgscale.trace_trigger = 2s');
$node->reload;
if ($one_cpu)
{
    until_ok(sub { $db->sql($health) =~ /^broken/ }, 'on a single CPU health says that it cannot work');
    done_testing();
    exit;
}
until_ok(sub { $db->sql($health) =~ /^starting: the trigger learns what is usual: \d+ of 33 s are known$/ },
    'switched on it learns first');

# Its copies
$db->sql('CREATE TABLE t AS SELECT 1 AS i');
my %nodes = (main => $node, standby => pgscale_standby($node, 'pgscale.trace_trigger = 1min'));
for my $name ('stopped', 'killed')
{
    $nodes{$name} = PostgreSQL::Test::Cluster->new($name);
    $nodes{$name}->init_from_backup($node, 'backup');
    $nodes{$name}->append_conf('postgresql.conf', 'pgscale.trace_trigger = 1min');
    $nodes{$name}->start;
}
my @slow = ('standby', 'stopped', 'killed');
my %db = (main => $db, map { $_ => session($nodes{$_}) } @slow);
my $worker = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'pgscale trace'};
my $workers = "SELECT count(*) FROM ($worker) w";
my $places = 'SELECT count(*) FROM pg_locks WHERE classid = 1953653091 AND objsubid = 3';
my $traces = 'SELECT count(DISTINCT trace) FROM pgscale.trace_history';

# Who works on meanwhile, and has begun long before: else there is one active session more than there are waiters, and so in
# the second in which they pile up that figure may be beyond its range and theirs not yet.
my $sleeper = wire($node);
$sleeper->send_query('SELECT pg_sleep(3600)');
my $observed = $db->sql('SELECT observed_ms FROM pgscale.sampler_stats');
$db->poll_ok("SELECT observed_ms > $observed + 2200 FROM pgscale.sampler_stats", 'the latest second is one with that');
for ($learns ? values %nodes : ())
{
    $_->append_conf('postgresql.conf', 'trigger.now = on');
    $_->reload;
}
my $watches = qr/^working: the trigger watches; no pile-up so far; 0.0 of 60 s an hour are used$/;
in_time_ok(sub { !grep { $_->sql($health) !~ $watches } values %db }, 'then it watches')
  or diag map { "$_: " . $db{$_}->sql($health) . "\n" } keys %db;
is($db->sql($worker), '', 'by no process of its own');

# The pile-ups: four sessions and their statement, and one that holds what they wait for. They are connected before, so that
# all begin at a time.
my $lock = 'SELECT pg_advisory_xact_lock(1)';
my %piles;
for my $name ('main', @slow)
{
    my ($hold, $wait) = $name eq 'main' ? ('UPDATE t SET i = 3', 'UPDATE t SET i = 2') : ($lock, $lock);
    my @sessions = map { wire($nodes{$name}) } 0 .. 4;

    $sessions[0]->run('BEGIN', $hold);
    $_->send_query($wait) for @sessions[ 1 .. 4 ];
    $piles{$name} = \@sessions;
}

# One that is kept
$db->poll_ok($traces, 'a pile-up is traced', 1);
my $waiters = join ', ', map { $_->pid } @{ $piles{main} }[ 1 .. 4 ];
my $queryid = $db->queryid($piles{main}[1]);
is($db->sql(qq{SELECT figure, pid IN ($waiters), event_type, event IN ('transactionid', 'tuple'), count, fraction > 0.9,
    queryid = $queryid, datname, usename = session_user, application_name, ended_by FROM pgscale.trace_history
        ORDER BY total_ms DESC LIMIT 1}),
    'lock waits|t|Lock|t|1|t|t|postgres|t|wire|duration', 'a session that waits, and for what');
is($db->sql(q{SELECT DISTINCT sessions > 3 AND sessions < 4.5, usual_sessions < 1, limit_sessions BETWEEN 2
    AND 3, traced_ms >= 1999,
        coverage_fraction BETWEEN 0 AND 1, started_at BETWEEN pg_postmaster_start_time() AND now(),
        p50_us <= p95_us AND p95_us <= max_us AND max_us / 1000 <= total_ms + 0.001
    FROM pgscale_internal.trace_history()}), 't|t|t|t|t|t|t', 'with the figures that it was chosen by, and lengths')
  or diag $db->sql('SELECT row_to_json(h) FROM pgscale_internal.trace_history() h');
$db->poll_ok($workers, 'its process has ended', 0);
is($db->sql($places), 0, 'and given its place back');
like($db->sql($health), qr/^working: .*the latest pile-up was traced; 1 kept, 0 not taken; \d+\.\d of 60 s an hour are used$/,
    'health says so');

# Where a trace takes long
for my $name (@slow)
{
    $db{$name}->poll_ok($workers, "$name: a process traces", 1);
    $db{$name}->poll_ok($places, 'and takes a place', 1);
    like($db{$name}->sql($health),
        qr/^working: .*latest pile-up is being traced; 0 kept, 0 not taken; 60\.0 of 60 s an hour are used$/,
        'health says so');
}
is(($db{killed}->try('CREATE DATABASE victim'))[0], '00000', 'a database is created meanwhile');
is(($db{killed}->try('DROP DATABASE victim'))[0], '00000', 'and dropped');

# What is kept, and until when
is($db->sql($traces), 1, 'a pile-up that lasts is traced once');
is($db->sql("SELECT pgscale.reset('sampler'); $traces"), "\n1", 'the reset of the sampler keeps that');
is($db->sql("SELECT pgscale.reset('trace'); $traces"), "\n0", 'its own one does not');
$db->sampler('off');
is($db->sql($health), 'broken: this feature needs the sampler, which is off', 'without the sampler it cannot work');

# Nothing waits for the process that traces: not who terminates it ...
my $pid = $db{standby}->sql($worker);
$db{standby}->sql("SELECT pg_terminate_backend($pid)");
$db{standby}->poll_ok($workers, 'it is terminated', 0);
like(slurp_file($nodes{standby}->logfile), qr/\[$pid\] FATAL: .*terminating background worker "pgscale trace"/,
    'in the midst of its trace');
is($db{standby}->sql($places), 0, 'its place is free');
like($db{standby}->sql($health), qr/latest pile-up began a trace that was not kept; 0 kept, 0 not taken; 60\.0 of 60 s/,
    'what it could have taken is taken');

# ... nor a server that is shut down ...
$pid = $db{stopped}->sql($worker);
my $postmaster = $nodes{stopped}->{_pid};
kill 'INT', $postmaster;
until_ok(sub { !grep { process_state($_) !~ /^[ZX]?$/ } $pid, $postmaster }, 'a server is shut down in the midst of a trace');
$nodes{stopped}->_update_pid(0);

# ... nor one that starts anew after a crash
$pid = $db{killed}->sql($worker);
kill 'KILL', $pid;
until_ok(sub { process_state($pid) =~ /^[ZX]?$/ && (psql_once($nodes{killed}, 'SELECT 1'))[0] == 0 }, 'the process is killed');
my $anew = session($nodes{killed});
like($anew->sql($health), qr/^starting: (the trigger learns|this feature needs the sampler)/, 'all begins anew');
is($anew->sql("$traces UNION ALL $workers UNION ALL $places"), "0\n0\n0", 'and nothing is left');

# The servers first, as some sessions would not end by themselves.
$_->stop('immediate') for values %nodes;
$_->quit for $anew, $sleeper, values %db, map { @$_ } values %piles;
done_testing();
