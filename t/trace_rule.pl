# When the trigger begins a trace, and when not, by seconds that are made up, on a server whose clock goes as the test wants:
# its rule, rest and budget, and which session it traces.
use strict;
use warnings;
use PgscaleTest;
use PgscaleWire;
use Test::More;

plan skip_all => 'from 16 on pgscale does not show its features' unless shows_modules();
plan skip_all => 'a trace needs a second CPU' if qx(nproc) < 2;
my ($trigger, $monotonic) = map { compiled($_) // plan skip_all => 'no compiler' } 'trigger_made_up', 'monotonic';
my $health = q{SELECT concat(state, ': ', reason) FROM pgscale.health WHERE feature = 'trace'};

$ENV{PGSCALE_MONOTONIC} = number_file();
my $ahead = 0;
sub clock_goes { return write_number($ENV{PGSCALE_MONOTONIC}, $ahead += shift); }
$ENV{LD_PRELOAD} = $monotonic;
my $node = pgscale_node('main', preload => "pgscale,$trigger", conf => <<'EOC');
compute_query_id = on
trigger.made_up = on
EOC
delete $ENV{LD_PRELOAD};
my $db = session($node);
$db->sql("CREATE FUNCTION trigger_second(float8, float8, float8, bool, timestamptz) RETURNS void LANGUAGE c AS '$trigger'");

# A report, and later those that wait; the first one of them began first. The pile-up is between the report's start and theirs.
my $report = wire($node);
$report->send_query('SELECT pg_sleep(3600) AS report');
$db->poll_ok('SELECT state FROM pg_stat_activity WHERE pid = ' . $report->pid, 'a report runs', 'active');
my @waiting = map { wire($node) } 0 .. 2;
$waiting[0]->run('SELECT pg_advisory_lock(1)');
my $since = $db->sql('SELECT clock_timestamp()');
for my $i (1, 2)
{
    $waiting[$i]->send_query('SELECT pg_advisory_lock(1)');
    $db->poll_ok('SELECT wait_event_type FROM pg_stat_activity WHERE pid = ' . $waiting[$i]->pid, 'one waits', 'Lock');
}

# observes [ SECONDS, LOCKS, ACTIVE ], ...; options length, anew
sub observes
{
    my ($option, @parts) = (ref $_[0] eq 'HASH' ? () : {}, @_);
    my @lists = map { my $i = $_; join ',', map { ($_->[$i]) x $_->[0] } @parts } 1, 2;

    return $db->sql("SELECT count(trigger_second(l, a, ${\($option->{length} // 1)}, n = 1 AND ${\($option->{anew} // 'false')},
        timestamptz '$since' + interval '4 s'))
        FROM (SELECT * FROM unnest('{$lists[0]}'::float8[], '{$lists[1]}'::float8[]) WITH ORDINALITY u (l, a, n) ORDER BY n) s");
}

# The sampler is late where the clock has gone.
sub says
{
    my $says;

    until_true(sub { $says = $db->sql($health); $says !~ /the sampler/ });
    return $says;
}
my ($kept, $untaken) = (0, 0);

# A server that knows nothing else, and enough time after what was before
sub anew { clock_goes(61); return observes({ anew => 'true' }, [ 1, 0, 0 ], @_) }

sub silent_ok
{
    my ($name, @parts) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    anew(@parts);
    return like(says(), qr/latest pile-up was traced; $kept kept, $untaken not taken/, $name);
}

# of which figure, how many sessions, the usual number and the limit
sub traced_ok
{
    my ($name, $expected, @parts) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    anew(@parts) if @parts;
    $kept++;
    until_true(sub { says() =~ /the latest pile-up was traced; $kept kept, $untaken not taken/ })
      or die "$name: not $kept kept: " . says();
    return is($db->sql(q{SELECT concat_ws(' ', figure, sessions, usual_sessions, round(limit_sessions::numeric, 4)::float8)
        FROM pgscale_internal.trace_history() ORDER BY trace DESC LIMIT 1}), $expected, $name);
}
my $traced = 'SELECT pid FROM pgscale_internal.trace_history() ORDER BY trace DESC LIMIT 1';

observes([ 50, 0, 0 ], [ 3, 9, 9 ]);
like(says(), qr/^idle: /, 'switched off it watches nothing');
# seconds without a unit are milliseconds
like(($db->try("ALTER SYSTEM SET pgscale.trace_trigger = $_"))[1], qr/A trace takes 100 ms or more; 0 is off/, "no trace of $_ ms") for 2, 99;
$db->set('pgscale.trace_trigger', 100);
my $learns = 'starting: the trigger learns what is usual: ';
$db->poll_ok($health, 'switched on it has learnt nothing', "${learns}0 of 33 s are known");
observes([ 1, 9, 9 ], [ 29, 0, 1 ], [ 3, 9, 9 ]);
is(says(), "${learns}32 of 33 s are known", 'less than 30 seconds are no rule');
my $quiet = 'working: the trigger watches; no pile-up so far; 0.0 of 60 s an hour are used';
anew([ 30, 0, 0 ], [ 2, 9, 9 ]);
is(says(), "${learns}32 of 33 s are known", 'two seconds of three');
observes([ 1, 2, 2 ]);
is(says(), $quiet, 'and one that is not beyond two sessions more than usual');
anew([ 30, 0, 0 ], [ 2, 9, 9 ], [ 1, 1, 1 ], [ 2, 9, 9 ]);
is(says(), $quiet, 'three, but not one after the other');
traced_ok('three of which each is beyond', 'lock waits 13 0 2', [ 30, 0, 0 ], [ 1, 9, 0 ], [ 1, 12, 0 ], [ 1, 18, 0 ]);
is($db->sql($traced), $waiting[1]->pid, 'the session that waits for longest');
clock_goes(-1);
observes([ 30, 0, 0 ], [ 120, 0, 1 ], [ 3, 9, 9 ]);
like(says(), qr/; $kept kept, 0 not taken/, 'a minute of rest');
traced_ok('of both figures it is lock waits', 'lock waits 4 0 2', [ 33, 0, 0 ], [ 3, 4, 30 ]);
traced_ok('which may be as they were', 'active sessions 9 1 3', [ 33, 2, 1 ], [ 3, 2, 9 ]);
is($db->sql($traced), $waiting[1]->pid, 'then it is a session that began since, and not the report')
  or diag 'the report is ' . $report->pid . ', those that wait are ' . join(', ', map { $_->pid } @waiting) . "; since $since, "
  . $db->sql('SELECT string_agg(format($$%s %s$$, pid, query_start), $$, $$) FROM pg_stat_activity
      WHERE query ~ $$advisory|report$$');
traced_ok('two peaks in thirty seconds are forgiven, unless there are more', 'lock waits 9 1 3',
    [ 29, 1, 0 ], [ 1, 7, 0 ], [ 1, 8, 0 ], [ 1, 9, 0 ], [ 1, 10, 0 ]);
silent_ok('two in thirty seconds are usual', [ 28, 1, 0 ], [ 2, 7, 0 ], [ 1, 8, 0 ], [ 1, 9, 0 ], [ 1, 10, 0 ]);
traced_ok('two in forty are not', 'lock waits 9 1 3',
    [ 37, 1, 0 ], [ 2, 7, 0 ], [ 1, 0, 0 ], [ 1, 8, 0 ], [ 1, 9, 0 ], [ 1, 10, 0 ]);
traced_ok('the median, and four deviations', 'lock waits 17 3 16.8608', [ 10, 5, 0 ], [ 10, 1, 0 ], [ 10, 3, 0 ], [ 3, 17, 0 ]);
silent_ok('which are less', [ 10, 5, 0 ], [ 10, 1, 0 ], [ 10, 3, 0 ], [ 3, 16.8, 0 ]);
traced_ok('of two halves the lower one', 'lock waits 30 1 7', [ 15, 5, 0 ], [ 15, 1, 0 ], [ 3, 30, 0 ]);
traced_ok('what is more than two minutes ago is not usual', 'lock waits 4 0 2', [ 100, 8, 8 ], [ 117, 0, 0 ], [ 3, 4, 1 ]);
silent_ok('what is less long ago is', [ 60, 8, 8 ], [ 56, 0, 0 ], [ 3, 4, 1 ]);
anew();
observes({ length => 2 }, [ 30, 1, 1 ], [ 3, 6, 1 ]);
traced_ok('of two seconds they are sessions, too', 'lock waits 6 1 3');
my @pile_up = ([ 33, 0, 0 ], [ 3, 9, 0 ]);
traced_ok('a pile-up', 'lock waits 9 0 2', @pile_up);
observes([ 57, 9, 0 ]);
clock_goes(61);
observes([ 3, 9, 0 ]);
like(says(), qr/; $kept kept, 0 not taken/, 'that lasts is told once');
anew([ 50, 0, 0 ]);
observes([ 1, -1, 0 ], [ 29, 0, 0 ], [ 3, 9, 9 ]);
is(says(), "${learns}32 of 33 s are known", 'after a reset of the profile it learns anew');

# The budget, of which all the time is used that was traced within an hour
clock_goes(3600);
$db->set('pgscale.trace_trigger', '1200ms');
$db->poll_ok('SHOW pgscale.trace_trigger', 'a duration', '1200ms');
my @spent;
for my $round (1, 2)
{
    traced_ok("trace $round of the hour", 'lock waits 9 0 2', @pile_up);
    push @spent, says() =~ /; (\d+\.\d) of 60 s an hour are used$/;
    cmp_ok($spent[-1], '>=', $round * 1.2, 'its time is used');
}
$db->set('pgscale.trace_trigger', '58s');
$db->poll_ok('SHOW pgscale.trace_trigger', 'a longer one', '58s');
$untaken++;
anew(@pile_up);
like(says(), qr/because the hour's budget is used up; $kept kept, $untaken not taken; $spent[1] of 60 s an hour/,
    'a third one would be too much');
clock_goes(3600 - 3 * 61 - 30);
observes([ 1, 0, 0 ]);
like(says(), qr/; $spent[1] of 60 s/, 'within an hour');
clock_goes(3 * 61 + 30);
observes([ 1, 0, 0 ]);
like(says(), qr/; 0.0 of 60 s/, 'then it is forgotten');
$db->set('pgscale.trace_trigger', '1200ms');
$db->poll_ok('SHOW pgscale.trace_trigger', 'a short one again', '1200ms');
traced_ok('and another one may be traced', 'lock waits 9 0 2', @pile_up);
clock_goes(3601);
$db->sql('SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE wait_event_type = $$Lock$$');
$db->poll_ok('SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = $$Lock$$', 'nobody waits any more', 0);
$untaken++;
anew(@pile_up);
until_ok(sub { says() =~ /the latest pile-up found no session to trace; $kept kept, $untaken not taken; 0.0 of 60 s/ },
    'without a session there is no trace');
$db->quit;
$node->stop('immediate');
$_->quit for $report, @waiting;
done_testing();
