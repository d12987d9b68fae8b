# Supply through the usage counts, tick by tick, by a session that does the ticks while the sweeper is off. The server's hand is led
# from buffer to buffer: it takes the first one at zero, and one from each count that it passes.
use strict;
use warnings;
use PgscaleSweeper;
use PgscaleTest;
use Test::More;

sweeper_server();

my $other = session($node);
my $sweep = session($node);
$sweep->sql('SELECT step.tick(), step.rest(), step.queued() WHERE false');
my ($first, $last, $apart) = split /\|/, $db->sql('SELECT min(buf), max(buf), count(*) FILTER (WHERE buf - block <> first) FROM
    (SELECT *, min(buf) OVER () AS first FROM usage) u');
is("$apart " . ($last - $first), '0 159', 'table a lies in buffers side by side');

# Reads so many pages that are not in memory; when no buffer is free, the hand is all that finds one.
my $read = 0;
sub miss
{
    my $times = shift;

    for (1 .. $times)
    {
        $db->sql("SELECT step.touch('b', 0, $read, $read, -1, false)");
        $read = ($read + 1) % 1500;
    }
    return;
}
# All that is asked for later is in memory, and often used; what is free is filled with pages that are not.
$other->sql(q{BEGIN; DECLARE c CURSOR FOR SELECT * FROM a WHERE ctid = '(45,1)'; FETCH c; ROLLBACK});
$db->sql("SELECT step.touch('a', 0, 0, 159, 5, false)");
clean();
dirty(5, [0]);
$sweep->sql('SELECT step.tick(), step.queued(), step.rest() WHERE false');
stats('ready, supplied_clean, consumed, reused, starved, scanned');
usage(0);
$db->sql('SELECT hand FROM pgscale.clock_sweep');
my $free = q{SELECT count(*) FROM pg_buffercache WHERE relfilenode IS NULL};
$db->sql($free);
miss($db->sql($free));

# Leads the hand to a buffer: all counts are high, but for the one before.
sub hand_to
{
    my $buf = shift;

    for my $attempt (1 .. 9)
    {
        $db->sql('SELECT step.set_usage(0, 999, 5)');
        $db->sql("SELECT step.set_usage($buf - 1, $buf - 1, 0)");
        miss(1);
        return if $db->sql('SELECT hand FROM pgscale.clock_sweep') == $buf;
    }
    die "the hand does not come to $buf";
}
sub tick_ok
{
    my ($demand, $columns, $expected, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return is($sweep->sql('SELECT step.tick()') . ' ' . stats($columns), "$demand $expected", "a tick: $name");
}
sub counts { return join ' ', map { usage($_) } @_; }

# Its share are the 100 pages from block 10 on, where the hand is.
sub share { my ($low, $high) = @_; $db->sql("SELECT step.share($first + 10, 100, $low, $high, 100, true), pgscale.reset('sweeper')"); return; }
hand_to($first + 10);
$other->sql(q{BEGIN; DECLARE c CURSOR FOR SELECT * FROM a WHERE ctid = '(45,1)'; FETCH c});
$db->sql("SELECT step.touch('a', 0, 35, 109, 3, false), step.touch('a', 0, 10, 19, 0, false), step.touch('a', 0, 25, 34, 1, false)");
$db->sql("SELECT step.touch('a', 0, 20, 24, 0, true)");
share(0, 10);
tick_ok('f', 'ready, supplied_clean, scanned', '10|10|0', 'when it begins, what is clean and unused is on offer');
is(counts(10, 19, 20, 24, 25, 35, 109, 120), '0 0 1 1 1 3 3 5', 'dirty pages are not, and others stay as they are');
tick_ok('f', 'ready, supplied_clean, consumed, reused', '10|10|0|0', 'nothing happens');

# The hand passes all of them: it takes what is on offer, but for what was used.
$db->sql("SELECT step.touch('a', 0, 15, 15, -1, false), step.set_usage($first + 200, $first + 200, 0)");
$db->sql("SELECT step.touch('a', 0, 30, 30, -1, false)") for 1 .. 2;
$db->sql("SELECT step.touch('a', 0, 50, 50, -1, false)") for 1 .. 4;
miss(10);
is($db->sql('SELECT hand FROM pgscale.clock_sweep'), ($first + 201) % 1000, 'the hand has come past them');
is(counts(15, 20, 25, 30, 40, 45, 50), '0 0 0 2 2 3 4', 'and has taken counts down, but not that of a page that is pinned');
# what was taken would be refilled
share(0, 0);
tick_ok('t', 'ready, consumed, reused', '0|9|1', 'nine were taken, one was used');
is(counts(15, 20, 25, 30, 40, 45, 50), '1 1 1 3 3 3 3', 'the hand finds all others used, three times at most');

# Where it leaves, the server has the real counts: with the uses, and without what its hand took.
$other->sql('ROLLBACK');
$sweep->sql('SELECT step.rest()');
is(counts(15, 20, 25, 30, 40, 45, 50), '1 0 1 3 3 3 5', 'when it rests, counts say how often pages were used');
is(stats('ready'), 0, 'and nothing is ready');

# It puts no more on offer than is wanted: what is unused beyond that is a victim of the sweep.
$db->sql("SELECT step.touch('a', 0, 100, 109, 0, false)");
share(0, 4);
tick_ok('f', 'ready, supplied_clean', '4|4', 'when it begins again, as much is on offer as is wanted');
is(counts(100, 103, 104, 109), '0 0 1 1', 'and the hand passes the others');
$sweep->sql('SELECT step.rest()');

# The guard: with nothing on offer ahead, what was used least is yielded.
sub begin_guard
{
    # all of a comes back in the place of others
    $db->sql('SELECT step.set_usage(0, 999, 1)');
    clean();
    hand_to($first + 10);
    $db->sql("SELECT step.set_usage($first + 10, $first + 109, 3)");
    return;
}
begin_guard();
$db->sql("SELECT step.touch('a', 0, 60, 60, 1, false), step.touch('a', 0, 61, 61, 0, true)");
share(0, 0);
tick_ok('t', 'supplied_clean, starved', '1|1', 'nothing was on offer');
is(counts(60, 61, 62), '0 1 3', 'a clean page is yielded before a dirty one that was used once less');
$sweep->sql('SELECT step.rest()');

begin_guard();
dirty(3, [ 20, 79 ], [ 81, 109 ]);
dirty(1, [62]);
dirty(0, [61]);
$db->sql("SELECT step.touch('a', 0, 80, 80, 2, false)");
share(0, 0);
tick_ok('t', 'ready, supplied_clean', '0|0', 'no clean page was used as little');
is(counts(60, 61, 62, 80), '3 0 1 2', 'then a dirty one is yielded');
tick_ok('t', 'ready, supplied_clean', '0|0', 'as long as nothing is on offer');
is(counts(60, 61, 62, 80), '3 0 1 2', 'one is enough');
share(1, 1);
until_ok(sub { $sweep->sql('SELECT step.tick(), step.queued()'); stats('ready') == 1 }, 'a clean page is put on offer');
is(counts(61, 80), '1 0', 'and the dirty one is taken back');
$sweep->sql('SELECT step.rest()');

# What the writers have cleaned is put on offer, unless it is dirty again.
begin_guard();
dirty(0, [ 70, 71 ]);
share(0, 0);
queue('a', 70, 2, 2);
$db->sql('SELECT step.writer(0, true)');
$db->poll_ok('SELECT written FROM pgscale.sweeper_stats WHERE worker = 1', 'a writer writes two pages', 2);
dirty(0, [71]);
$sweep->sql('SELECT step.tick()');
is(stats('supplied_written'), 1, 'one was made dirty meanwhile, and is not supplied');
is(counts(70), '0', 'the other is on offer');
writer_ends();
$sweep->sql('SELECT step.rest()');

$_->quit for $db, $other, $sweep;
$node->stop('immediate');
done_testing();
