# When the trigger begins a trace, and when not, by seconds that are made up, on a server whose clock goes as the test wants: its rule,
# rest and budget, and which session it traces.
use strict;
use warnings;
use PgscaleTest;
use PgscaleWire;
use PostgreSQL::Test::Utils;
use Test::More;

my $folder = PostgreSQL::Test::Utils::tempdir();
my $include = server_headers();
my $libraries = qx(pg_config --pkglibdir) =~ s/\n//r;
plan skip_all => 'from 16 on pgscale does not show its features' if system("nm -D $libraries/pgscale.so | grep -qw pgscale_modules");
plan skip_all => 'a trace needs a second CPU' if qx(nproc) < 2;
for my $library (qw(trigger_learns trigger_seconds monotonic))
{
    system("cc -shared -fPIC -O1 -I src -I $include -o $folder/$library.so t/lib/$library.c >$folder/$library.out 2>&1") == 0
      or plan skip_all => 'no compiler: ' . slurp_file("$folder/$library.out");
    chmod 0755, "$folder/$library.so" or die $!;
}
my $health = q{SELECT concat(state, ': ', reason) FROM pgscale.health WHERE feature = 'trace'};

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
my $made_up;
{
    local $ENV{LD_PRELOAD} = "$folder/monotonic.so";
    $made_up = pgscale_node('made_up', preload => "pgscale,$folder/trigger_learns.so", conf => <<'EOC');
compute_query_id = on
pgscale.trace_trigger_duration = 100
pgscale.trace_trigger_budget = 1h
trigger_learns.made_up = on
EOC
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
    return is($made->sql(q{SELECT concat_ws(' ', figure, sessions, usual_sessions, round(limit_sessions::numeric, 4)::float8) FROM pgscale_internal.trace_history()
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
is($made->sql(q{SELECT pid FROM pgscale_internal.trace_history() LIMIT 1}), $waiting[1]->pid, 'the session that waits for longest');
clock_goes(-1);
silent_ok('a minute of rest', sub { observes([ 30, 0, 0 ], [ 120, 0, 1 ], [ 3, 9, 9 ]) });
traced_ok('of both figures it is lock waits', 'lock waits 4 0 2', sub { anew([ 33, 0, 0 ], [ 3, 4, 30 ]) });
traced_ok('which may be as they were', 'active sessions 9 1 3', sub { anew([ 33, 2, 1 ], [ 3, 2, 9 ]) });
is($made->sql(q{SELECT pid FROM pgscale_internal.trace_history() ORDER BY trace DESC LIMIT 1}), $waiting[1]->pid,
    'then it is a session that began since, and not the report')
  or diag 'the report is ' . $long->pid . ', those that wait are ' . join(', ', map { $_->pid } @waiting) . "; since $since, "
  . $made->sql('SELECT string_agg(format($$%s %s$$, pid, query_start), $$, $$) FROM pg_stat_activity WHERE query ~ $$advisory|report$$');
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
like(says(), qr/^working: the trigger watches; the latest pile-up was not traced, because the hour's budget is used up; $kept kept, $untaken not taken; $spent[1] of 3 s an hour/,
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
done_testing();
