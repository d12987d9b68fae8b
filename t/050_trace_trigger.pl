# Traces that nobody asks for: a pile-up is traced once, the right session of it, and kept; and nothing waits for the process that traces.
#
# What is usual must be known for half a minute first. Where pgscale shows its features, a library of the test lets the servers know it at
# once. When a trace begins, and when not, is in t/066_trace_rule.pl.
use strict;
use warnings;
use PgscaleTest;
use PgscaleWire;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $folder = PostgreSQL::Test::Utils::tempdir();
my $include = server_headers();
my $libraries = qx(pg_config --pkglibdir) =~ s/\n//r;
# from 16 on it does not
my $learns = system("{ nm -D $libraries/pgscale.so | grep -w pgscale_modules && cc -shared -fPIC -O1 -I src -I $include -o $folder/trigger_learns.so "
      . "t/lib/trigger_learns.c && chmod 755 $folder/trigger_learns.so; } >$folder/out 2>&1") == 0;

my $node = pgscale_node('main', preload => 'pgscale' . ($learns ? ",$folder/trigger_learns.so" : ''), init => [ allows_streaming => 1 ],
    conf => "compute_query_id = on\n");
my $db = session($node);

if ($db->sql(q{SELECT reason ~ 'on one only' FROM pgscale.health WHERE feature = 'trace'}) eq 't')
{
    $db->set('pgscale.trace_trigger', 'on');
    $db->poll_ok(q{SELECT state FROM pgscale.health WHERE feature = 'trace'}, 'on a single CPU health says that it cannot work', 'broken');
    done_testing();
    exit;
}
my $health = q{SELECT concat(state, ': ', reason) FROM pgscale.health WHERE feature = 'trace'};
like($db->sql($health), qr/^idle: traces when asked/, 'off');
$node->append_conf('postgresql.conf', 'pgscale.trace_trigger = on');
$node->reload;
until_ok(sub { $db->sql($health) =~ /^starting: the trigger learns what is usual: \d+ of 33 s are known$/ }, 'switched on it learns first');

# Its copies
$db->sql('CREATE TABLE t AS SELECT 1 AS i');
my %nodes = (main => $node, standby => pgscale_standby($node, 'pgscale.trace_trigger_duration = 1min'));
my %conf = (
    stopped => 'pgscale.trace_trigger_duration = 1min',
    killed => 'pgscale.trace_trigger_duration = 1min');
for my $name (sort keys %conf)
{
    $nodes{$name} = PostgreSQL::Test::Cluster->new($name);
    $nodes{$name}->init_from_backup($node, 'backup');
    $nodes{$name}->append_conf('postgresql.conf', $conf{$name});
    $nodes{$name}->start;
}
my %db = (main => $db, map { $_ => session($nodes{$_}) } grep { $_ ne 'main' } keys %nodes);
my $worker = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'pgscale trace'};
my $places = 'SELECT count(*) FROM pg_locks WHERE classid = 1953653091 AND objsubid = 3';
my $traces = 'SELECT count(DISTINCT trace) FROM pgscale.trace_history';

# Four sessions and their statement; the first one of them may hold what the others wait for. They are connected before, so that all begin
# at a time.
sub pile_up
{
    my ($name, $wait, $hold) = @_;
    my @sessions = map { wire($nodes{$name}) } 0 .. 4;

    $sessions[0]->run('BEGIN', $hold) if $hold;
    $_->send_query($wait) for @sessions[ 1 .. 4 ];
    return @sessions;
}

# While they learn: a report that takes long, who may read, and what may be set
$db->sql('CREATE ROLE stranger LOGIN; CREATE ROLE observer LOGIN IN ROLE pg_monitor');
is((session($node, user => 'stranger')->try('SELECT * FROM pgscale.trace_history'))[0], '42501', 'not everybody reads the history');
my $observer = session($node, user => 'observer');
is($observer->sql('SELECT count(*) FROM pgscale.trace_history'), 0, 'pg_monitor does');
is(($observer->try('SELECT pgscale.reset($$trace$$)'))[0], '42501', 'and may not empty it');
for my $wrong ('trigger_duration = 99', 'trigger_duration = 60001', 'trigger_budget = -1', 'trigger_budget = 3601', q{trigger = 'often'})
{
    is(($db->try("ALTER SYSTEM SET pgscale.trace_$wrong"))[0], '22023', "not $wrong");
}
is(($db->try('SET pgscale.trace_trigger = on'))[0], '55P02', 'nor by a session');

# Who works on meanwhile, and has begun long before: else there is one active session more than there are waiters, and so in
# the second in which they pile up that figure may be beyond its range and theirs not yet.
my $sleeper = wire($node);
$sleeper->send_query('SELECT pg_sleep(3600)');
my $observed = $db->sql('SELECT observed_ms FROM pgscale.sampler_stats');
$db->poll_ok("SELECT observed_ms > $observed + 2200 FROM pgscale.sampler_stats", 'the latest second is one with that');
for ($learns ? values %nodes : ())
{
    $_->append_conf('postgresql.conf', 'trigger_learns.now = on');
    $_->reload;
}

my @watching = sort keys %nodes;
in_time_ok(sub {
    return !grep { $db{$_}->sql($health) !~ /^working: the trigger watches; no pile-up so far; 0.0 of 60 s an hour are used$/ } @watching;
}, 'then it watches') or diag map { "$_: " . $db{$_}->sql($health) . "\n" } @watching;
is($db->sql($worker), '', 'by no process of its own');

# The pile-ups
my $lock = 'pg_advisory_xact_lock(1)';
my %piles = (
    main => [ pile_up('main', 'UPDATE t SET i = 2', 'UPDATE t SET i = 3') ],
    map { $_ => [ pile_up($_, "SELECT $lock", "SELECT $lock") ] } qw(standby stopped killed));

# Those that are kept
$db->poll_ok($traces, 'a pile-up is traced', 1);
my $waiters = join ', ', map { $_->pid } @{ $piles{main} }[ 1 .. 4 ];
my $queryid = $db->queryid($piles{main}[1]);
is($db->sql(qq{SELECT figure, pid IN ($waiters), event_type, event IN ('transactionid', 'tuple'), count, fraction > 0.9, queryid = $queryid, datname,
    usename = session_user, application_name, ended_by FROM pgscale.trace_history ORDER BY total_ms DESC LIMIT 1}),
    'lock waits|t|Lock|t|1|t|t|postgres|t|wire|duration', 'a session that waits, and for what');
is($db->sql(q{SELECT DISTINCT sessions > 3 AND sessions < 4.5, usual_sessions < 1, limit_sessions BETWEEN 2 AND 3,
    traced_ms BETWEEN 1999 AND 20000, coverage_fraction BETWEEN 0 AND 1, started_at BETWEEN now() - interval '1 min' AND now()
    FROM pgscale_internal.trace_history()}), 't|t|t|t|t|t', 'with the figures that it was chosen by')
  or diag $db->sql('SELECT row_to_json(h) FROM pgscale_internal.trace_history() h');
is($db->sql('SELECT count(*) FROM pgscale_internal.trace_history() WHERE NOT (p50_us <= p95_us AND p95_us <= max_us AND max_us / 1000 <= total_ms + 0.001)'), 0,
    'and lengths');
$db->poll_ok("SELECT count(*) FROM ($worker) w", 'its process has ended', 0);
is($db->sql($places), 0, 'and given its place back');
like($db->sql($health), qr/^working: .*the latest pile-up was traced; 1 kept, 0 not taken; \d+\.\d of 60 s an hour are used$/, 'health says so');

# Where a trace takes long
for my $name (qw(standby stopped killed))
{
    $db{$name}->poll_ok("SELECT count(*) FROM ($worker) w", "$name: a process traces", 1);
    $db{$name}->poll_ok($places, 'and takes a place', 1);
    like($db{$name}->sql($health), qr/^working: .*the latest pile-up is being traced; 0 kept, 0 not taken; 60\.0 of 60 s an hour are used$/, 'health says so');
}
is(($db{killed}->try('CREATE DATABASE victim'))[0], '00000', 'a database is created meanwhile');
is(($db{killed}->try('DROP DATABASE victim'))[0], '00000', 'and dropped');

# What is kept, and until when
is($db->sql($traces), 1, 'a pile-up that lasts is traced once');
is($db->sql("SELECT pgscale.reset('sampler'); $traces"), "\n1", 'the reset of the sampler keeps that');
is($db->sql("SELECT pgscale.reset('trace'); $traces"), "\n0", 'its own one does not');
$db->sampler('off');
is($db->sql($health), 'broken: this feature needs the sampler, which is off', 'without the sampler it cannot work');

# Nobody waits for the process that traces: not who terminates it...
my $pid = $db{standby}->sql($worker);
$db{standby}->sql("SELECT pg_terminate_backend($pid)");
$db{standby}->poll_ok("SELECT count(*) FROM ($worker) w", 'it is terminated', 0);
like(slurp_file($nodes{standby}->logfile), qr/\[$pid\] FATAL: .*terminating background worker "pgscale trace"/, 'in the midst of its trace');
is($db{standby}->sql($places), 0, 'its place is free');
like($db{standby}->sql($health), qr/latest pile-up began a trace that was not kept; 0 kept, 0 not taken; 60\.0 of 60 s/, 'what it could have taken is taken');

# ... no server that is shut down ...
$pid = $db{stopped}->sql($worker);
my $postmaster = $nodes{stopped}->{_pid};
kill 'INT', $postmaster;
until_ok(sub { process_state($pid) =~ /^[ZX]?$/ && process_state($postmaster) =~ /^[ZX]?$/ }, 'a server is shut down in the midst of a trace');
$nodes{stopped}->_update_pid(0);

# ... nor one that starts anew after a crash
$pid = $db{killed}->sql($worker);
kill 'KILL', $pid;
until_ok(sub { process_state($pid) =~ /^[ZX]?$/ && (psql_once($nodes{killed}, 'SELECT 1'))[0] == 0 }, 'the process is killed');
my $anew = session($nodes{killed});
like($anew->sql($health), qr/^starting: (the trigger learns|this feature needs the sampler)/, 'all begins anew');
is($anew->sql("$traces UNION ALL SELECT count(*) FROM ($worker) w UNION ALL $places"), "0\n0\n0", 'and nothing is left');

# The servers first, as some sessions would not end by themselves.
$nodes{$_}->stop('immediate') for grep { $_ ne 'stopped' } sort keys %nodes;
$_->quit for $anew, $observer, $sleeper, values %db, map { @$_ } values %piles;
done_testing();
