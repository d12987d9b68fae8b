# The sweeper's decisions one by one, by a session that makes them while it is off: whether to work, which pages to write
# together, and what each tick of the sweep does. Other views say whether the answers are right.
use strict;
use warnings;
use PgscaleSweeper;
use PgscaleTest;
use Test::More;

sweeper_server();

# Whether to work: state, since, rest, now, ns, waiting, supplied, consumed, written, runs, write_ns, starved
my $us = 1000;
for my $case (
    [ '0, 0, 0, 100, 1.9, 5, 0, 0, 0, 0, 0, 0', 'kept watch since 0 rest 0: no session waits to write a page' ],
    [ '0, 0, 0, 100, 2, 0.19, 0, 0, 0, 0, 0, 0', 'used watch since 0 rest 0: no session waits to write a page' ],
    [ '0, 0, 0, 100, 2, 0.2, 0, 0, 0, 0, 0, 0', 'used work since 100 rest 0: 0.2 sessions were waiting to write a page' ],
    [ '0, 90, 20, 109.9, 2, 3.3, 0, 0, 0, 0, 0, 0', 'used watch since 90 rest 20: no session waits to write a page' ],
    [ '0, 90, 20, 110, 2, 3.3, 0, 0, 0, 0, 0, 0', 'used work since 110 rest 20: 3.3 sessions were waiting to write a page' ],
    # at work: nothing yet; no demand; demand without writes
    [ '1, 50, 40, 100, 9.9, 0, 0, 0, 0, 0, 0, 0', 'kept work since 50 rest 40: no session waits to write a page' ],
    [ '1, 50, 40, 100, 11, 9, 9, 0, 0, 0, 0, 9', 'used watch since 100 rest 0: no buffer was needed for 11 s' ],
    [ '1, 50, 40, 100, 10, 0, 0, 1, 0, 0, 0, 0', 'used work since 50 rest 40: no session waits to write a page' ],
    # clean; its limit
    [ '1, 50, 0, 100, 10, 0, 1000, 900, 49, 9, 0, 0', 'used watch since 100 rest 20: only 4.9 % of the pages that leave are dirty' ],
    [ '1, 50, 0, 100, 10, 0, 1000, 900, 50, 9, 0, 0', 'used work since 50 rest 0: no session waits to write a page' ],
    [ '1, 50, 0, 100, 10, 0, 1000, 0, 50, 9, 0, 0', 'used work since 50 rest 0: no session waits to write a page' ],
    # quick; its limits
    [ "1, 50, 20, 100, 10, 0, 900, 900, 500, 99, 49 * 500 * $us, 0", 'used watch since 100 rest 40: the disk delays no session: a write takes 49 us' ],
    [ "1, 50, 20, 100, 10, 0, 900, 900, 500, 99, 50 * 500 * $us, 0", 'used work since 50 rest 20: no session waits to write a page' ],
    [ "1, 50, 20, 100, 10, 0, 900, 900, 499, 99, 49 * 499 * $us, 0", 'used work since 50 rest 20: no session waits to write a page' ],
    # no neighbours; its limits
    [ "1, 50, 700, 100, 10, 0, 900, 900, 240, 200, 99 * 240 * $us, 0",
        'used watch since 100 rest 1200: dirty pages have no dirty neighbours: 1.20 pages a run' ],
    [ "1, 50, 700, 100, 10, 0, 900, 900, 238, 199, 99 * 238 * $us, 0", 'used work since 50 rest 700: no session waits to write a page' ],
    [ "1, 50, 700, 100, 10, 0, 900, 900, 250, 200, 99 * 250 * $us, 0", 'used work since 50 rest 700: no session waits to write a page' ],
    # rings; their limits
    [ '1, 50, 5, 100, 10, 0.2, 900, 900, 240, 99, 0, 0', 'used watch since 100 rest 20: 0.2 sessions write pages of their own, as COPY and VACUUM do' ],
    [ '1, 50, 5, 100, 10, 0.19, 900, 900, 240, 99, 0, 0', 'used work since 50 rest 5: no session waits to write a page' ],
    [ '1, 50, 5, 100, 10, 0.2, 900, 900, 240, 99, 0, 1', 'used work since 50 rest 5: no session waits to write a page' ],
    # of use for a minute
    [ '1, 50, 40, 109.9, 10, 0, 900, 900, 240, 99, 0, 0', 'used work since 50 rest 40: no session waits to write a page' ],
    [ '1, 50, 40, 110, 10, 0, 900, 900, 240, 99, 0, 0', 'used work since 50 rest 0: no session waits to write a page' ])
{
    is($db->sql("SELECT step.decide($case->[0])"), $case->[1], "decides: $case->[0]");
}

# How many writers: now, pressed, running, most, slots, after so many seconds
for my $case (
    [ '4, 0.1, 16, 16, 99, 1', '6' ], [ '6, 0.1, 16, 16, 99, 1', '9' ], [ '9, 0.1, 16, 16, 99, 1', '13' ], [ '4, 1, 16, 16, 99, 9', '16' ],
    [ '4, 0.09, 16, 16, 99, 9', '4' ], [ '4, 1, 3, 16, 99, 9', '4' ], [ '4, 1, 16, 5, 99, 9', '5' ], [ '4, 1, 16, 16, 1, 1', '5' ],
    [ '16, 1, 16, 16, -3, 1', '13' ], [ '16, 1, 16, 16, -3, 9', '13' ], [ '16, 0, 16, 16, -3, 1', '13' ], [ '16, 1, 16, 16, -13, 1', '4' ],
    [ '9, 0, 7, 16, 0, 1', '7' ], [ '9, 1, 7, 16, -1, 10', '6, few slots' ], [ '9, 1, 7, 16, 1, 1', '8' ], [ '9, 1, 7, 16, 2, 9', '9' ],
    [ '4, 1, 16, 16, 0, 9', '4' ], [ '4, 1, 16, 16, -1, 10', '4, few slots' ], [ '16, 1, 16, 16, 0, 10', '16' ],
    [ '16, 0, 16, 16, 99, 29', '16' ], [ '16, 0, 16, 16, 99, 30', '15' ], [ '16, 0, 16, 16, 99, 60', '14' ], [ '4, 0, 16, 16, 99, 60', '4' ])
{
    is($db->sql("SELECT step.crew($case->[0])"), $case->[1], "writers: $case->[0]");
}

# Which pages go together: victim, limit, run
clean();
dirty(5, [ 0, 1 ], [ 10, 12 ], [20], [ 40, 49 ], [ 60, 61 ], [ 63, 64 ], [159]);
$db->sql(q{SELECT step.touch('b', 0, 0, 1, 5, true), step.touch('a', 2, 0, 0, 5, true), step.touch('a', 1, 0, 0, 5, true)});
my %at = (a => [ 'a', 0 ], fsm => [ 'a', 1 ], vm => [ 'a', 2 ], b => [ 'b', 0 ]);
for my $case (
    [ 'a11', 64, 'a:10+3/0' ], [ 'a10', 64, 'a:10+3/0' ], [ 'a12', 64, 'a:10+3/0' ], [ 'a20', 64, 'a:20+1/0' ],
    [ 'a11', 1, 'a:11+1/0', 'alone if that is the limit' ], [ 'a11', 2, 'a:10+2/0', 'first those before it' ], [ 'a11', 3, 'a:10+3/0' ],
    [ 'a40', 4, 'a:40+4/0' ], [ 'a47', 4, 'a:44+4/0' ], [ 'a45', 10, 'a:40+10/0' ], [ 'a45', 9, 'a:40+9/0' ],
    [ 'a0', 64, 'a:0+2/0', 'from the first page on' ], [ 'a1', 64, 'a:0+2/0' ],
    [ 'a159', 64, 'a:159+1/0', 'up to the last' ],
    [ 'a62', 64, '', 'a clean page' ], [ 'a61', 64, 'a:60+2/0', 'none over a clean page' ], [ 'a63', 64, 'a:63+2/0' ],
    [ 'a5000', 64, '', 'a page that is not in memory' ],
    [ 'b1', 64, 'b:0+2/0', 'each fork of each relation for itself' ], [ 'vm0', 64, 'a.2:0+1/0' ], [ 'fsm0', 64, 'a.1:0+1/0' ])
{
    my ($victim, $limit, $expected, $why) = @$case;
    my ($file, $block) = $victim =~ /^([a-z]+)(\d+)$/;

    is(runs(sprintf q{step.find('%s', %d, %d, %d)}, @{ $at{$file} }, $block, $limit), $expected,
        "finds the run: $victim, at most $limit" . ($why ? ": $why" : ''));
}

# The standing set: of pages that may leave, those in the longest runs, while writes are short
$db->sql('SELECT step.order(true)');
clean();
dirty(1, [5], [ 10, 14 ], [ 20, 22 ], [ 30, 33 ], [ 50, 55 ]);
sub chosen
{
    my ($blocks, $pages, %option) = @_;

    return runs(sprintf q{step.choose('a', ARRAY[%s], %d, %d, %d, %d)}, join(',', @$blocks), $pages, $option{usage} // 1,
        $option{limit} // 64, $option{room} // 100);
}
my @candidates = (5, 11, 21, 30, 54);
for my $case ([ 0, '' ], [ 1, 'a:50+6/1' ], [ 6, 'a:50+6/1' ], [ 7, 'a:10+5/1 a:50+6/1' ], [ 12, 'a:10+5/1 a:30+4/1 a:50+6/1' ],
    [ 99, 'a:5+1/1 a:10+5/1 a:20+3/1 a:30+4/1 a:50+6/1' ])
{
    is(chosen(\@candidates, $case->[0]), $case->[1], "chooses the longest for $case->[0] pages, in their order");
}
is(chosen([ 50, 51, 10 ], 1), 'a:50+6/2', 'all victims of a run count as such');
is(chosen([ 10, 50, 10, 50 ], 99), 'a:10+5/1 a:50+6/1', 'a page is there once');
is(chosen([ 5, 21, 54 ], 99, room => 2), 'a:5+1/1 a:20+3/1', 'no more than there is room for');
is(chosen([ 50, 55 ], 99, limit => 4), 'a:50+4/1 a:54+2/1', 'pages of one run do not go twice');
is(chosen([ 10, 6, 5000 ], 99), 'a:10+5/1', 'no page that is clean or not in memory');

is(chosen(\@candidates, 6), 'a:50+6/1', 'the others stay');
is(runs('step.again(99, 1, 64)'), 'a:5+1/1 a:10+5/1 a:20+3/1 a:30+4/1', 'and are chosen later');
is(runs('step.again(99, 1, 64)'), '', 'none is chosen twice');
chosen(\@candidates, 0);
dirty(2, [21]);
is(runs('step.again(99, 1, 64)'), 'a:5+1/1 a:10+5/1 a:30+4/1 a:50+6/1', 'one that was used again is dropped');
chosen(\@candidates, 0);
dirty(1, [ 34, 39 ]);
is(runs('step.again(1, 1, 64)'), 'a:50+6/1', 'a run that has grown is not known of');
# what was added in this turn is looked at in the next one
$db->sql('SELECT step.refresh(100, 1, 64), step.refresh(100, 1, 64)');
is(runs('step.again(1, 1, 64)'), 'a:30+10/1', 'until it is looked at again');
clean();
dirty(1, [ 30, 33 ], [ 50, 55 ]);
chosen([ 50, 51, 30 ], 0);
is($db->sql(q{SELECT string_agg(step.write('a', 0, i, i, 0), ' ') FROM generate_series(52, 55) i}), 'written written written written', 'a run becomes shorter');
is(runs('step.again(1, 1, 64)'), 'a:30+4/1', 'with all its candidates it waits until it is the longest');
is(runs('step.again(1, 1, 64)'), 'a:50+2/2', 'and then is chosen');
clean();
dirty(1, [5], [ 10, 14 ], [ 30, 33 ]);
chosen([30], 0, room => 3);
$db->sql("SELECT step.plant('a', 5, 5000), step.forget('a', 5), step.plant('a', 5, 5), step.plant('a', 10, 10)");
is(runs('step.again(99, 1, 64)'), 'a:10+5/1 a:30+4/1', 'a buffer has one entry, also if it holds another page by now');
$db->sql("SELECT step.plant('a', 5, 5)");
is(runs('step.again(99, 1, 64)'), 'a:5+1/1', 'which it has when the old entry is gone');

# What a page costs that is put there, in pages looked up: with its run, and the two pages that end it. A run that was looked at in
# this turn is not looked at again, also one that goes on behind its limit, whatever the order.
clean();
dirty(1, [5], [ 10, 14 ], [ 40, 59 ]);
sub looks { my ($limit, @blocks) = @_; return $db->sql(sprintf q{SELECT step.looks('a', ARRAY[%s], %d)}, join(',', @blocks), $limit); }
is(looks(64, 5, 12, 10, 14, 5, 6), '3 7 0 0 0 2', 'a run costs its length, once');
is(looks(8, 40 .. 59), join(' ', 10, (0) x 7, 10, (0) x 7, 6, (0) x 3), 'a long one costs no more, block by block');
is(looks(8, reverse 40 .. 59), join(' ', 10, (0) x 7, 10, (0) x 7, 6, (0) x 3), 'or backwards');

# While they are not, the oldest, and no run is looked at before it is written.
$db->sql('SELECT step.order(false)');
dirty(1, [ 20, 22 ]);
for my $case ([ 0, '' ], [ 1, 'a:5+1/1' ], [ 2, 'a:5+1/1 a:10+5/1' ], [ 7, 'a:5+1/1 a:10+5/1 a:20+3/1' ],
    [ 99, 'a:5+1/1 a:10+5/1 a:20+3/1 a:40+20/1' ])
{
    is(chosen([ 5, 11, 21, 54 ], $case->[0]), $case->[1], "chooses the oldest for $case->[0] pages, in the order of the file");
}
chosen([ 54, 5 ], 0);
is(runs('step.again(1, 1, 64)'), 'a:40+20/1', 'whatever their order in the file is');
is(looks(8, 40 .. 45), '0 0 0 0 0 0', 'a page costs nothing when it is put there');

# The sweep, tick by tick, over the buffers of 64 pages of table a: those from block 0 on, whose usage counts are 0 (ten pages, one
# of them pinned), 1 (ten) and 3.
clean();
my ($first, $last, $apart) = split /\|/, $db->sql('SELECT min(buf), max(buf), count(*) FILTER (WHERE buf - block <> first) FROM
    (SELECT *, min(buf) OVER () AS first FROM usage) u');
is("$apart " . ($last - $first), '0 159', 'table a lies in buffers side by side');
my $other = session($node);
$other->sql(q{BEGIN; DECLARE c CURSOR FOR SELECT * FROM a WHERE ctid = '(5,1)'; FETCH c});

my @sweeps = map { session($node) } 1 .. 4;
$_->sql('SELECT step.tick(), step.rest(), step.queued() WHERE false') for @sweeps;
$db->sql('SELECT step.writer(0, true)');
$db->poll_ok('SELECT writers FROM pgscale.sweeper_stats WHERE worker = 1', 'a writer starts', 1);
writer_ends();
runs('step.queued()');
my $sweep = shift @sweeps;
sub tick_ok
{
    my ($demand, $columns, $expected, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return is($sweep->sql('SELECT step.tick()') . ' ' . stats($columns), "$demand $expected", "a tick: $name");
}
sub share { my ($from, $low, $high) = @_; $db->sql("SELECT step.share($first + $from, 64, $low, $high, 100, false), pgscale.reset('sweeper')"); return; }
$db->sql("SELECT step.touch('a', 0, 0, 9, 0, false), step.touch('a', 0, 10, 19, 1, false), step.touch('a', 0, 20, 63, 3, false)");
my $clean = 'scanned, decremented, supplied_clean, ready';
share(0, 8, 12);
tick_ok('f', $clean, '64|54|9|0', 'once around, unused ones are supplied, and counts taken down');
is(join(' ', map { usage($_) } 5, 9, 10, 19, 20, 63, 64), '0 0 0 0 2 2 5', 'each by one, in its share');
tick_ok('f', $clean, '77|54|12|9', 'it goes on up to the high watermark, past what is ready or pinned');
tick_ok('f', $clean, '77|54|12|12', 'there it stops');
$db->sql("SELECT step.touch('b', 0, 100, 102, 1, false)");
tick_ok('t', "consumed, reused, $clean", '3|0|77|54|12|9', 'three are taken, and above the low watermark that will do');
$db->sql("SELECT step.touch('a', 0, 9, 9, 1, false), step.touch('b', 0, 103, 103, 1, false)");
is($db->sql('SELECT count(*) FROM usage WHERE block = 9'), 1, 'a page that was used is not taken');
tick_ok('t', "consumed, reused, $clean", '4|1|82|54|17|7', 'one more is taken, one was used again: below the low watermark, it refills');
tick_ok('f', "consumed, reused, $clean", '4|1|82|54|17|12', 'up to the high one');
$db->sql("SELECT step.touch('a', 0, 17, 17, 2, false)");
tick_ok('f', $clean, '82|54|17|11', 'one that is used is not ready');
is(stats('queued, starved, supplied_written, errors'), '0|0|0|0', 'no dirty page was there, and always something to take');
$other->sql('ROLLBACK');

# Dirty ones, from block 64 on, by a sweep of its own
$sweep->quit;
$sweep = shift @sweeps;
$other->sql(qq{BEGIN; DECLARE c$_ CURSOR FOR SELECT * FROM a WHERE ctid = '($_,1)'; FETCH c$_}) for 95, 135;
$db->sql('CHECKPOINT');
dirty(@$_) for [ 1, [ 70, 73 ], [91], [95] ], [ 0, [80] ], [ 2, [74], [90] ], [ 3, [75] ], [ 5, [100] ];
share(64, 20, 24);
tick_ok('f', "queued, $clean", '1|64|62|0|11', 'a dirty one that nobody used is a victim');
is(join(' ', map { usage($_) } 70, 80, 74, 75, 90, 91, 95, 100, 127), '1 1 1 2 1 1 1 4 4', 'others are counted down, but dirty ones not below one');
is(runs('step.queued()'), 'a:80+1/1', 'and it goes to the writers');
tick_ok('f', 'queued, scanned', '6|128', 'the next time around, so are those that had one; none that is pinned');
is(runs('step.queued()'), 'a:70+6/4 a:90+2/1', 'with their neighbours');
queue('a', @$_) for [ 70, 6, 4 ], [ 80, 1, 1 ], [ 90, 2, 1 ];
dirty(3, [75]);
$db->sql('SELECT step.writer(0, true)');
$db->poll_ok('SELECT written, runs, neighbours FROM pgscale.sweeper_stats WHERE worker = 1', 'a writer writes them', '9|3|3');
is(usage(75), 3, 'one was used again');
tick_ok('f', 'queued, supplied_clean, supplied_written, ready', '6|0|8|19', 'the others are supplied');
is($db->sql('SELECT string_agg(block::text, $$ $$ ORDER BY block) FROM usage WHERE n = 0 AND block > 63'), '70 71 72 73 74 80 90 91', 'by their usage counts');
is($db->sql('TABLE dirty'), '95 100', 'and clean');
writer_ends();
dirty(0, [ 101, 102 ], [ 104, 105 ], [ 107, 109 ], [ 111, 112 ], [120]);
dirty(0, [20]);
tick_ok('f', 'queued, supplied_clean', '16|0', 'all that are found become candidates');
is(runs('step.queued()'), 'a:100+3/2 a:104+2/2', 'and the oldest written, as many as needed');
tick_ok('f', 'queued', '16', 'the next time no other is found');
is(runs('step.queued()'), 'a:107+3/3 a:111+2/2', 'but the next ones are written');
my $gathered = 16;
$db->sql("SELECT step.touch('a', 0, $_->[0], $_->[-1], 5, false)")
  for [ 64, 69 ], [ 75, 79 ], [ 81, 89 ], [ 92, 99 ], [103], [106], [110], [ 113, 119 ], [ 121, 127 ];

# What waits for writers, or is with one, will be ready.
queue('a', 101, 2, 2);
$db->sql('SELECT step.writing(3)');
my $scanned = stats('scanned');
tick_ok('f', 'scanned, queued, ready', "$scanned|$gathered|19", 'with what writers have there will be enough');
share(64, 20, 24);
$db->sql('SELECT step.writing(0)');
tick_ok('f', 'scanned, ready', '0|19', 'and above the low watermark it goes on to be');
share(64, 22, 24);
tick_ok('f', 'scanned > 0, ready', 't|19', 'below it, not');
$sweep->sql('SELECT step.queued()');

# While the stock lasts, dirty pages are kept from bgwriter.
dirty(0, [101], [120], [20]);
share(64, 20, 22);
$db->sql('SELECT step.writing(3)');
tick_ok('f', 'ready', '19', 'too little is ready');
is(join(' ', map { usage($_) } 101, 120, 20), '0 0 0', 'no page is kept from bgwriter');
$db->sql('SELECT step.writing(0)');
$sweep->sql('SELECT step.queued()');
share(64, 19, 19);
tick_ok('f', 'ready', '19', 'enough is ready');
is(join(' ', map { usage($_) } 101, 120, 20), '1 1 0', 'then those of its share are');

# While it rests it goes on to count what is taken, and wants nothing written.
$db->sql("SELECT step.touch('b', 0, 104, 104, 1, false)");
$sweep->sql('SELECT step.rest()');
is(stats('consumed, reused, ready, supplied_clean, queued'), '1|0|18|0|0', 'it rests');
is($sweep->sql('SELECT step.queued()'), '', 'and has nothing written');

# A backend that reads this page of table b drops all that is on the list, as it seems to be used.
sub list_is_dropped { my $block = shift; $db->sql("SELECT step.set_usage(0, 999, 5), step.touch('b', 0, $block, $block, 1, false)"); return; }

# A writer writes a run of table a. How many of its pages leave?
sub run_leaves
{
    my ($run, $leave, $name) = @_;

    queue('a', @$run);
    $db->sql('SELECT step.writer(0, true)');
    $db->poll_ok('SELECT written FROM pgscale.sweeper_stats WHERE worker = 1', 'a writer does that', $run->[1]);
    $sweep->sql('SELECT step.tick()');
    is(stats('supplied_written'), $leave, $name);
    writer_ends();
    return;
}

# Where most victims are clean, few dirty ones wait: 16 at least, which is less than a quarter of these buffers. What waits takes room
# from pages that were used later. No neighbour leaves that was used, even if ticks find nothing ready.
$sweep->quit;
$sweep = shift @sweeps;
list_is_dropped(200);
clean(0);
$db->sql("SELECT step.share($first + 64, 96, 0, 0, 200, false), pgscale.reset('sweeper')");
$sweep->sql('SELECT step.tick()') for 1 .. 5;
is(stats('starved, queued'), '5|0', 'ticks find nothing ready');
$db->sql("SELECT step.share($first + 64, 96, 140, 150, 200, false), pgscale.reset('sweeper')");
$sweep->sql('SELECT step.tick()') for 1 .. 6;
is(stats('queued, supplied_clean > 75'), '0|t', 'where all victims are clean, none is dirty');
dirty(1, [ 140, 159 ]);
dirty(4, [139]);
$sweep->sql('SELECT step.tick()') for 1 .. 2;
is(stats('queued'), 16, 'few dirty pages wait among many clean ones');
is(runs('step.queued()'), 'a:139+21/16', 'their neighbours are written, too');
run_leaves([ 139, 21, 16 ], 20, 'one that was used stays');

# Where ticks find nothing ready and victims are dirty, writes are short, after the third such tick: then the longest run is written
# first, as soon as it is known, and neighbours that were used twice leave. Before that it is the oldest, those in the first buffers.
$sweep->quit;
$sweep = shift @sweeps;
list_is_dropped(201);
clean();
$db->sql('SELECT step.set_usage(0, 999, 5)');
dirty(0, (map { [$_] } 0, 2, 4, 6), [ 100, 105 ]);
dirty(2, [106]);
$db->sql("SELECT step.share($first, 160, 1, 1, 200, false), pgscale.reset('sweeper')");
for my $expected ('a:0+1/1', 'a:2+1/1', 'a:4+1/1', 'a:100+7/6', 'a:6+1/1')
{
    $sweep->sql('SELECT step.tick()');
    is(runs('step.queued()'), $expected, "a tick that finds nothing ready: has $expected written");
}
is(stats('starved, ready'), '5|0', 'each of them did');
run_leaves([ 100, 7, 6 ], 7, 'all leave, also the neighbour that was used');

# While they are, the sweep also looks for candidates between batches, but only where buffers are taken: it may pass more than a lap then.
dirty(0, [ 20, 80 ]);
$db->sql("SELECT pgscale.reset('sweeper')");
run_leaves([ 20, 61, 61 ], 61, 'much is ready');
dirty(0, [ 120, 125 ]);
$db->sql("SELECT step.share($first, 160, 0, 1, 200, false), pgscale.reset('sweeper'), step.touch('b', 0, 700, 760, 1, false)");
$sweep->sql('SELECT step.tick()');
is(stats('consumed, ready > 1, queued > 0'), '61|t|t', 'while buffers are taken and writes are short, it looks for candidates although enough is ready');
my $passed = stats('scanned');
$sweep->sql('SELECT step.tick()');
is(stats('scanned'), $passed, 'while no buffer is taken, it does not');

# After a rest the oldest is first again.
$sweep->sql('SELECT step.rest(), step.queued()');
list_is_dropped(202);
clean();
$db->sql("SELECT step.set_usage(0, 999, 5), step.share($first, 160, 1, 1, 200, false)");
dirty(0, [0], [ 100, 105 ]);
$sweep->sql('SELECT step.tick()');
is(runs('step.queued()'), 'a:0+1/1', 'after a rest the oldest is written first again');

# It refills before what is ready is gone: when as much is left as was taken lately within two ticks.
clean(0);
$db->sql("SELECT step.share($first, 160, 120, 121, 200, false)");
until_ok(sub { $sweep->sql('SELECT step.tick()'); return stats('ready') == 121 }, 'much is ready');
$db->sql("SELECT step.share($first, 160, 0, 121, 200, false), pgscale.reset('sweeper'), step.touch('b', 0, 799, 799, 1, false)");
$sweep->sql('SELECT step.tick()');
is(stats('consumed, scanned'), '1|0', 'while writes are not short and enough is ready, the sweep looks for nothing');
$db->sql("SELECT step.touch('b', 0, 800, 919, 1, false)");
until_ok(sub { $sweep->sql('SELECT step.tick()'); return stats('scanned > 0') eq 't' }, 'it is refilled although the low watermark is zero');
is(stats('consumed'), 121, 'as all of it was taken');

$sweep->quit;
$_->quit for $db, $other;
$node->stop('immediate');
done_testing();
