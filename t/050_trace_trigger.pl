# Traces that nobody asks for: a pile-up is traced once, the right session of it, and kept; its rule, budget and rest; and nothing waits
# for the process that traces.
#
# What is usual must be known for half a minute first. A library of the test lets the servers know it at once; another one lets a server
# observe seconds that are made up.
use strict;
use warnings;
use PgscaleTest;
use PgscaleWire;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $folder = PostgreSQL::Test::Utils::tempdir();
my $include = server_headers();
for my $library (qw(trigger_learns trigger_seconds monotonic))
{
    system("cc -shared -fPIC -O1 -I src -I $include -o $folder/$library.so t/lib/$library.c >$folder/$library.out 2>&1") == 0
      or plan skip_all => 'no compiler: ' . slurp_file("$folder/$library.out");
    chmod 0755, "$folder/$library.so" or die $!;
}

my $node = pgscale_node('main', preload => "pgscale,$folder/trigger_learns.so", init => [ allows_streaming => 1 ],
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
like($db->sql($health), qr/^idle: traces when asked to/, 'off');
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

### The rule, by seconds that are made up, on a server whose clock goes as the test wants

$ENV{PGSCALE_MONOTONIC} = "$folder/ahead";
my $ahead = 0;
sub clock_goes
{
    $ahead += shift;
    open my $file, (-e $ENV{PGSCALE_MONOTONIC} ? '+<' : '>'), $ENV{PGSCALE_MONOTONIC} or die $!;
    syswrite $file, pack 'q', $ahead;
    close $file;
    return;
}
clock_goes(0);
my $made_up = PostgreSQL::Test::Cluster->new('made_up');
$made_up->init_from_backup($node, 'backup');
$made_up->append_conf('postgresql.conf', "pgscale.trace_trigger_duration = 100\npgscale.trace_trigger_budget = 1h\npgscale.trace_trigger = off
trigger_learns.made_up = on\n");
{
    local $ENV{LD_PRELOAD} = "$folder/monotonic.so";
    $made_up->start;
}
my $made = session($made_up);
$made->sql("CREATE FUNCTION trigger_seconds(float8[], float8[], float8, bool, timestamptz) RETURNS void LANGUAGE c AS '$folder/trigger_seconds.so'");
# A report, and later those that wait; the first one of them began first.
my @waiting = map { wire($made_up) } 0 .. 2;
my $long = wire($made_up);
$long->send_query('SELECT pg_sleep(3600) AS report');
$waiting[0]->run('SELECT pg_advisory_lock(1)');
my $since = $made->sql('SELECT clock_timestamp()');
for my $i (1, 2)
{
    $waiting[$i]->send_query('SELECT pg_advisory_lock(1)');
    $made->poll_ok('SELECT wait_event_type FROM pg_stat_activity WHERE pid = ' . $waiting[$i]->pid, 'one waits', 'Lock');
}

# observes [ SECONDS, LOCKS, ACTIVE ], ...; options length, anew
sub observes
{
    my ($option, @parts) = (ref $_[0] eq 'HASH' ? () : {}, @_);
    my @lists = map { my $i = $_; join ',', map { ($_->[$i]) x $_->[0] } @parts } 1, 2;

    return $made->sql("SELECT trigger_seconds('{$lists[0]}', '{$lists[1]}', ${\($option->{length} // 1)}, ${\($option->{anew} // 'false')},
        timestamptz '$since' + interval '4 s')");
}
# The sampler is late where the clock has gone.
sub says
{
    my $says;

    until_true(sub { $says = $made->sql($health); $says !~ /the sampler/ });
    return $says;
}
my ($kept, $untaken) = (0, 0);

# A server that knows nothing else, and enough time after what was before
sub anew { clock_goes(61); return observes({ anew => 'true' }, [ 1, 0, 0 ], @_) }
sub silent_ok
{
    my ($name, $code) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    $code->();
    return like(says(), qr/latest pile-up was traced; $kept kept, $untaken not taken/, $name);
}
sub traced_ok
{
    my ($name, $expected, $code) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    $code->();
    $kept++;
    until_true(sub { says() =~ /the latest pile-up was traced; $kept kept, $untaken not taken/ }) or die "$name: not $kept kept: " . says();
    return is($made->sql(q{SELECT concat_ws(' ', figure, sessions, usual_sessions, round(limit_sessions::numeric, 4)::float8) FROM pgscale.trace_history()
        ORDER BY trace DESC LIMIT 1}), $expected, $name);
}

observes([ 50, 0, 0 ], [ 3, 9, 9 ]);
like(says(), qr/^idle: /, 'switched off it watches nothing');
$made->set('pgscale.trace_trigger', 'on');
$made->poll_ok($health, 'switched on it has learnt nothing', 'starting: the trigger learns what is usual: 0 of 33 s are known');
observes([ 1, 9, 9 ], [ 29, 0, 1 ], [ 3, 9, 9 ]);
is(says(), 'starting: the trigger learns what is usual: 32 of 33 s are known', 'less than 30 seconds are no rule');
my $quiet = 'working: the trigger watches; no pile-up so far; 0.0 of 3600 s an hour are used';
anew([ 30, 0, 0 ], [ 2, 9, 9 ]);
is(says(), 'starting: the trigger learns what is usual: 32 of 33 s are known', 'two seconds of three');
observes([ 1, 2, 2 ]);
is(says(), $quiet, 'and one that is not beyond two sessions more than usual');
anew([ 30, 0, 0 ], [ 2, 9, 9 ], [ 1, 1, 1 ], [ 2, 9, 9 ]);
is(says(), $quiet, 'three, but not one after the other');
traced_ok('three of which each is beyond', 'lock waits 13 0 2', sub { anew([ 30, 0, 0 ], [ 1, 9, 0 ], [ 1, 12, 0 ], [ 1, 18, 0 ]) });
is($made->sql(q{SELECT pid FROM pgscale.trace_history() LIMIT 1}), $waiting[1]->pid, 'the session that waits for longest');
clock_goes(-1);
silent_ok('a minute of rest', sub { observes([ 30, 0, 0 ], [ 120, 0, 1 ], [ 3, 9, 9 ]) });
traced_ok('of both figures it is lock waits', 'lock waits 4 0 2', sub { anew([ 33, 0, 0 ], [ 3, 4, 30 ]) });
traced_ok('which may be as they were', 'active sessions 9 1 3', sub { anew([ 33, 2, 1 ], [ 3, 2, 9 ]) });
is($made->sql(q{SELECT pid FROM pgscale.trace_history() ORDER BY trace DESC LIMIT 1}), $waiting[1]->pid,
    'then it is a session that began since, and not the report');
traced_ok('two peaks in thirty seconds are forgiven, unless there are more', 'lock waits 9 1 3', sub { anew([ 29, 1, 0 ], [ 1, 7, 0 ], [ 1, 8, 0 ], [ 1, 9, 0 ], [ 1, 10, 0 ]) });
silent_ok('two in thirty seconds are usual', sub { anew([ 28, 1, 0 ], [ 2, 7, 0 ], [ 1, 8, 0 ], [ 1, 9, 0 ], [ 1, 10, 0 ]) });
traced_ok('two in forty are not', 'lock waits 9 1 3', sub { anew([ 37, 1, 0 ], [ 2, 7, 0 ], [ 1, 0, 0 ], [ 1, 8, 0 ], [ 1, 9, 0 ], [ 1, 10, 0 ]) });
traced_ok('the median, and four deviations', 'lock waits 17 3 16.8608', sub { anew([ 10, 5, 0 ], [ 10, 1, 0 ], [ 10, 3, 0 ], [ 3, 17, 0 ]) });
silent_ok('which are less', sub { anew([ 10, 5, 0 ], [ 10, 1, 0 ], [ 10, 3, 0 ], [ 3, 16.8, 0 ]) });
traced_ok('of two halves the lower one', 'lock waits 30 1 7', sub { anew([ 15, 5, 0 ], [ 15, 1, 0 ], [ 3, 30, 0 ]) });
traced_ok('what is more than two minutes ago is not usual', 'lock waits 4 0 2', sub { anew([ 100, 8, 8 ], [ 117, 0, 0 ], [ 3, 4, 1 ]) });
silent_ok('what is less long ago is', sub { anew([ 60, 8, 8 ], [ 56, 0, 0 ], [ 3, 4, 1 ]) });
traced_ok('of two seconds they are sessions, too', 'lock waits 6 1 3', sub { anew(); observes({ length => 2 }, [ 30, 1, 1 ], [ 3, 6, 1 ]) });
traced_ok('a pile-up', 'lock waits 9 0 2', sub { anew([ 33, 0, 0 ], [ 3, 9, 0 ]) });
observes([ 57, 9, 0 ]);
clock_goes(61);
silent_ok('that lasts is told once', sub { observes([ 3, 9, 0 ]) });
anew([ 50, 0, 0 ]);
observes([ 1, -1, 0 ], [ 29, 0, 0 ], [ 3, 9, 9 ]);
is(says(), 'starting: the trigger learns what is usual: 32 of 33 s are known', 'after a reset of the profile it learns anew');

# The budget, of which all the time is used that was traced within an hour
clock_goes(3600);
$made->set('pgscale.trace_trigger_budget', '3s');
$made->set('pgscale.trace_trigger_duration', '1200ms');
$made->poll_ok('SHOW pgscale.trace_trigger_duration', 'a duration', '1200ms');
my @spent;
for my $round (1, 2)
{
    traced_ok("trace $round of the hour", 'lock waits 9 0 2', sub { anew([ 33, 0, 0 ], [ 3, 9, 0 ]) });
    push @spent, says() =~ /; (\d+\.\d) of 3 s an hour are used$/;
    cmp_ok($spent[-1], '>=', $round * 1.2, 'its time is used');
}
$untaken++;
anew([ 33, 0, 0 ], [ 3, 9, 0 ]);
like(says(), qr/^working: the trigger watches; the latest pile-up was not traced, since the hour's budget is used up; $kept kept, $untaken not taken; $spent[1] of 3 s an hour/,
    'a third one would be too much');
clock_goes(3600 - 3 * 61 - 30);
observes([ 1, 0, 0 ]);
like(says(), qr/; $spent[1] of 3 s/, 'within an hour');
clock_goes(3 * 61 + 30);
observes([ 1, 0, 0 ]);
like(says(), qr/; 0.0 of 3 s/, 'then it is forgotten');
traced_ok('and another one may be traced', 'lock waits 9 0 2', sub { anew([ 33, 0, 0 ], [ 3, 9, 0 ]) });
$made->set('pgscale.trace_trigger_duration', '3001ms');
$made->poll_ok($health, 'a budget for none', "broken: the trigger's budget of an hour is shorter than one trace; 1 not taken");
$made->set('pgscale.trace_trigger_duration', '3s');
$made->poll_ok($health =~ s/concat.*reason\)/state/r, 'and for one', 'working');
clock_goes(3601);
$made->sql('SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event_type = $$Lock$$');
$made->poll_ok('SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = $$Lock$$', 'nobody waits any more', 0);
$untaken++;
anew([ 33, 0, 0 ], [ 3, 9, 0 ]);
until_ok(sub { says() =~ /the latest pile-up found no session to trace; $kept kept, $untaken not taken; 0.0 of 3 s/ }, 'without a session there is no trace');
$made->quit;
$made_up->stop('immediate');
$_->quit for $long, @waiting;

### Servers. While they learn: a report that takes long, who may read, and what may be set
$db->sql('CREATE ROLE stranger LOGIN; CREATE ROLE observer LOGIN IN ROLE pg_monitor');
is((session($node, user => 'stranger')->try('SELECT * FROM pgscale.trace_history'))[0], '42501', 'not everybody reads the history');
my $observer = session($node, user => 'observer');
is($observer->sql('SELECT count(*) FROM pgscale.trace_history'), 0, 'pg_monitor does');
is(($observer->try('SELECT pgscale.trace_history_reset()'))[0], '42501', 'and may not empty it');
for my $wrong ('trigger_duration = 99', 'trigger_duration = 60001', 'trigger_budget = -1', 'trigger_budget = 3601', q{trigger = 'often'})
{
    is(($db->try("ALTER SYSTEM SET pgscale.trace_$wrong"))[0], '22023', "not $wrong");
}
is(($db->try('SET pgscale.trace_trigger = on'))[0], '55P02', 'nor by a session');

# Who works on meanwhile, and has begun long before: else there is one active session more than there are waiters, and so in
# the second in which they pile up that figure may be beyond its range and theirs not yet.
my $sleeper = wire($node);
$sleeper->send_query('SELECT pg_sleep(3600)');
for (values %nodes)
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
    FROM pgscale.trace_history()}), 't|t|t|t|t|t', 'with the figures that it was chosen by')
  or diag $db->sql('SELECT row_to_json(h) FROM pgscale.trace_history() h');
is($db->sql('SELECT count(*) FROM pgscale.trace_history() WHERE NOT (p50_us <= p95_us AND p95_us <= max_us AND max_us / 1000 <= total_ms + 0.001)'), 0,
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
is($db->sql("SELECT pgscale.sampler_reset(); $traces"), "\n1", 'the reset of the sampler keeps that');
is($db->sql("SELECT pgscale.trace_history_reset(); $traces"), "\n0", 'its own one does not');
$db->sampler('off');
is($db->sql($health), 'broken: the sampler, which it lives on, is switched off', 'without the sampler it cannot work');

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
like($anew->sql($health), qr/^starting: the (trigger learns|sampler, which it lives on)/, 'all begins anew');
is($anew->sql("$traces UNION ALL SELECT count(*) FROM ($worker) w UNION ALL $places"), "0\n0\n0", 'and nothing is left');

# The servers first, as some sessions would not end by themselves.
$nodes{$_}->stop('immediate') for grep { $_ ne 'stopped' } sort keys %nodes;
$_->quit for $anew, $observer, $sleeper, values %db, map { @$_ } values %piles;
done_testing();
