# The sweeper's parts one by one, by a session that calls them while the sweeper is off: what may leave, what may be written, how
# runs are found, when it works, and what is counted and said of it. Other views say whether the answers are right.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'this server has no pg_buffercache' unless have_module('pg_buffercache');
my $node = pgscale_node('main', conf => <<'EOC');
shared_buffers = 1000    # of 1024 on, a tick may end early
max_worker_processes = 20
max_prepared_transactions = 2
checkpoint_timeout = 1h
bgwriter_lru_maxpages = 0
wal_buffers = 1MB
wal_writer_delay = 10s
full_page_writes = off
wal_log_hints = off
synchronous_commit = off
pgscale.sampler = off
pgscale.sweeper_writeback_pages = 4
pgscale.sweeper_workers = 2
EOC
my $db = session($node);
sweeper_steps($db) or do { $db->quit; $node->stop('immediate'); plan skip_all => 'the sweeper cannot be called from a session here' };

# 160 pages of one row each; the others are of a relation apart, one of them without WAL
$db->sql(<<'EOQ');
CREATE EXTENSION pg_buffercache;
CREATE TABLE a (i int, n int, filler char(500)) WITH (fillfactor = 10);
CREATE TABLE b (i int, n int, filler char(500)) WITH (fillfactor = 10);
CREATE UNLOGGED TABLE u (i int, n int, filler char(500)) WITH (fillfactor = 10);
INSERT INTO a SELECT i, 0, '' FROM generate_series(0, 159) i;
INSERT INTO b SELECT i, 0, '' FROM generate_series(0, 499) i;
INSERT INTO u SELECT i, 0, '' FROM generate_series(0, 9) i;
VACUUM FREEZE a, b, u;
CREATE VIEW dirty AS SELECT coalesce(string_agg(relblocknumber::text, ' ' ORDER BY relblocknumber), '') AS pages
    FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('a') AND relforknumber = 0 AND isdirty;
CREATE VIEW usage AS SELECT relblocknumber AS block, usagecount AS n, bufferid - 1 AS buf
    FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('a') AND relforknumber = 0;
EOQ
$db->quit;
$node->restart;
$db = session($node);
is($db->sql('SELECT max(i) = 159 AND bool_and(ctid::text = format($$(%s,1)$$, i)) FROM a'), 't', 'a row a page');

my $walwriter_pid;
END { kill 'CONT', $walwriter_pid if $walwriter_pid }

# of the first of two sweepers, which does all of it; the second one says if two share the work
sub stats { my $columns = shift; return $db->sql("SELECT $columns FROM pgscale.sweeper_stats WHERE worker = 1"); }

# Cleans all pages; those of table a then are in memory, with that usage count.
sub clean
{
    my $usage = shift // 5;

    $db->sql('CHECKPOINT');
    $db->sql("SELECT step.touch('a', 0, 0, 159, $usage, false)");
    return;
}

# Makes pages of table a dirty, and sets their usage counts.
sub dirty
{
    my ($usage, @ranges) = @_;

    $db->sql(sprintf "SELECT step.touch('a', 0, %d, %d, %d, true)", $_->[0], $_->[-1], $usage) for @ranges;
    return;
}

# Has a run written; ends the writers.
sub queue { my ($table, $block, $pages, $victims) = @_; $db->sql("SELECT step.queue('$table', 0, $block, $pages, $victims)"); return; }

sub writer_ends
{
    $db->sql("SELECT pg_terminate_backend($_)") for $db->sweeper_pids('writer');
    $db->poll_ok('SELECT writers FROM pgscale.sweeper_stats WHERE worker = 1', 'the writer ends', 0);
    return;
}

# runs by relation and fork, in plain words
sub runs
{
    my $said = $db->sql("SELECT $_[0]");
    my %name = map { $db->sql("SELECT pg_relation_filenode('$_')") => $_ } qw(a b u);

    return $said =~ s/(\d+)\.(\d):/$name{$1} . ($2 ? ".$2:" : ':')/ger;
}

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
    [ "1, 50, 20, 100, 10, 0, 900, 900, 500, 99, 49 * 500 * $us, 0", 'used watch since 100 rest 40: the disk holds nobody up: a write takes 49 us' ],
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

# Which pages go together: victims, limit, runs
clean();
dirty(5, [ 0, 1 ], [ 10, 12 ], [20], [ 40, 49 ], [ 60, 61 ], [ 63, 64 ], [159]);
$db->sql(q{SELECT step.touch('b', 0, 0, 1, 5, true), step.touch('a', 2, 0, 0, 5, true), step.touch('a', 1, 0, 0, 5, true)});
my %at = (a => 0, fsm => 1, vm => 2, b => 0);
for my $case (
    [ 'a11', 64, 'a:10+3/1' ], [ 'a10', 64, 'a:10+3/1' ], [ 'a12', 64, 'a:10+3/1' ], [ 'a20', 64, 'a:20+1/1' ],
    [ 'a12 a10 a11', 64, 'a:10+3/3', 'victims in one run' ],
    [ 'a11', 1, 'a:11+1/1', 'alone if that is the limit' ], [ 'a11', 2, 'a:10+2/1', 'first those before it' ], [ 'a11', 3, 'a:10+3/1' ],
    [ 'a40', 4, 'a:40+4/1' ], [ 'a47', 4, 'a:44+4/1' ], [ 'a45', 10, 'a:40+10/1' ], [ 'a45', 9, 'a:40+9/1' ],
    [ 'a45 a41', 4, 'a:40+4/1 a:44+4/1', 'side by side' ],
    [ 'a41 a43 a44', 4, 'a:40+4/2 a:44+4/1' ],
    [ 'a0', 64, 'a:0+2/1', 'from the first page on' ], [ 'a1', 64, 'a:0+2/1' ],
    [ 'a159', 64, 'a:159+1/1', 'up to the last' ],
    [ 'a62', 64, '', 'a clean page' ], [ 'a61 a63', 64, 'a:60+2/1 a:63+2/1', 'none over a clean page' ],
    [ 'a5000', 64, '', 'a page that is not in memory' ],
    [ 'b1 vm0 a20 fsm0 a1 b0', 64, 'a:0+2/1 a:20+1/1 a.1:0+1/1 a.2:0+1/1 b:0+2/2', 'each fork of each relation for itself' ])
{
    my ($victims, $limit, $expected, $why) = @$case;
    my @victims = map { [/^([a-z]+)(\d+)$/] } split ' ', $victims;
    my $list = sub { join ',', @_ };

    is(runs(sprintf 'step.find(ARRAY[%s]::regclass[], ARRAY[%s], ARRAY[%s], %d)', join(',', map { $_->[0] eq 'b' ? q{'b'} : q{'a'} } @victims),
            join(',', map { $at{ $_->[0] } } @victims), join(',', map { $_->[1] } @victims), $limit),
        $expected, "finds runs: $victims, at most $limit" . ($why ? ": $why" : ''));
}
for my $case ([ 0, '' ], [ 1, '500+6' ], [ 6, '500+6' ], [ 7, '200+5 500+6' ], [ 11, '200+5 500+6' ], [ 12, '200+5 400+4 500+6' ],
    [ 99, '100+1 200+5 300+3 400+4 500+6' ])
{
    my ($pages, $expected) = @$case;
    my $said = $db->sql("SELECT step.choose('{1,5,3,4,6}', $pages)") =~ s{0\.0:|/0}{}gr;

    is($said, $expected, "chooses the longest for $pages pages, in their order");
}

# The sweep, tick by tick, over the buffers of 64 pages of table a: those from block 0 on, whose usage counts are 0 (ten pages, one
# of them pinned), 1 (ten) and 3.
clean();
my ($first, $last, $apart) = split /\|/, $db->sql('SELECT min(buf), max(buf), count(*) FILTER (WHERE buf - block <> first) FROM
    (SELECT *, min(buf) OVER () AS first FROM usage) u');
is("$apart " . ($last - $first), '0 159', 'table a lies in buffers side by side');
my $other = session($node);
$other->sql(q{BEGIN; DECLARE c CURSOR FOR SELECT * FROM a WHERE ctid = '(5,1)'; FETCH c});

# All of the catalogs that are asked later are in memory, so that none of their pages takes what the sweep has made ready.
$db->sql(q{SELECT step.touch(oid, 0, 0, pg_relation_size(oid)::int / 8192 - 1, -1, false) FROM pg_class
    WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'i') AND pg_relation_size(oid) > 0
    AND relname !~ '^pg_(depend|description|shdescription|collation|ts_|conversion|largeobject|init_privs|statistic)'});
my @sweeps = map { session($node) } 1 .. 3;
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
sub usage { my $block = shift; return $db->sql("SELECT n FROM usage WHERE block = $block"); }
sub share { my ($from, $low, $high) = @_; $db->sql("SELECT step.share($first + $from, 64, $low, $high, 100, false), pgscale.sweeper_reset()"); return; }
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
$db->sql("CHECKPOINT");
dirty(@$_) for [ 1, [ 70, 73 ], [91] ], [ 0, [80] ], [ 2, [74], [90] ], [ 3, [75] ], [ 5, [100] ];
share(64, 20, 24);
tick_ok('f', "queued, $clean", '6|64|58|0|11', 'dirty ones used once at most are gathered');
is(join(' ', map { usage($_) } 70, 80, 74, 75, 90, 91, 100, 127), '1 0 1 2 1 1 4 4', 'the others are counted down');
is(runs('step.queued()'), 'a:70+6/4 a:80+1/1 a:90+2/1', 'and go to the writers with their neighbours');
queue('a', @$_) for [ 70, 6, 4 ], [ 80, 1, 1 ], [ 90, 2, 1 ];
dirty(3, [75]);
$db->sql('SELECT step.writer(0, true)');
$db->poll_ok('SELECT written, runs, neighbours FROM pgscale.sweeper_stats WHERE worker = 1', 'a writer writes them', '9|3|3');
is(usage(75), 3, 'one was used again');
tick_ok('f', 'queued, supplied_clean, supplied_written, ready', '6|0|8|19', 'the others are supplied');
is($db->sql('SELECT string_agg(block::text, $$ $$ ORDER BY block) FROM usage WHERE n = 0 AND block > 63'), '70 71 72 73 74 80 90 91', 'by their usage counts');
is($db->sql('TABLE dirty'), '100', 'and clean');
writer_ends();
dirty(0, [ 101, 102 ], [ 104, 105 ], [ 107, 109 ], [ 111, 112 ], [120]);
dirty(0, [20]);
tick_ok('f', 'queued, supplied_clean', '16|0', 'where dirty pages have dirty neighbours, twice as many are gathered as needed');
like(runs('step.queued()'), qr{^(a:104\+2/2 a:107\+3/3|a:107\+3/3 a:111\+2/2|a:100\+3/2 a:107\+3/3)$}, 'and the longest written, as many as needed');

# After a tick that found nothing ready, a quarter more is gathered.
dirty(0, [ 113, 118 ]);
$db->sql("SELECT step.touch('a', 0, $_->[0], $_->[-1], 5, false)")
  for [ 64, 69 ], [ 75, 79 ], [ 81, 89 ], [ 92, 99 ], [103], [106], [110], [ 119, 119 ], [ 121, 127 ];
$db->sql('SELECT step.add(0, 0, 0, 1, 0, 0, 0)');
my $gathered = 16;
for my $more (10, 12)
{
    $gathered += $more;
    tick_ok('f', 'queued, supplied_clean, ready', "$gathered|0|19", "$more are gathered");
    $db->sql('SELECT step.queued()');
}

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
tick_ok('f', 'ready', '19', 'too little is ready');
is(join(' ', map { usage($_) } 101, 120, 20), '0 0 0', 'no page is kept from bgwriter');
$sweep->sql('SELECT step.queued()');
share(64, 19, 19);
tick_ok('f', 'ready', '19', 'enough is ready');
is(join(' ', map { usage($_) } 101, 120, 20), '1 1 0', 'then those of its share are');
$sweep->sql('SELECT step.rest()');
is($sweep->sql('SELECT step.queued()'), '', 'it wants nothing written');

# Ahead of the server's hand, which stands at the first buffer, it looks at every second piece of 256
$sweep->quit;
$sweep = shift @sweeps;
dirty(0, [ 101, 102 ], [ 104, 105 ]);
dirty(2, [103]);
$sweep->sql(q{SELECT step.touch('a', 0, 130, 139, 0, false)});
$db->sql('SELECT step.share(0, 1000, 8, 999, 100, true), pgscale.sweeper_reset()');
my $seen = q{SELECT count(*) FILTER (WHERE isdirty), count(*) FILTER (WHERE NOT isdirty) FROM pg_buffercache WHERE usagecount = 0 AND
    relfilenode IS NOT NULL AND pinning_backends = 0 AND (bufferid - 1) / 256 % 2 = 0};
stats('ready');
$sweep->sql($seen) for 1 .. 2;
my ($dirty, $unused) = split /\|/, $sweep->sql($seen);
tick_ok('f', 'scanned, queued, ready, supplied_clean, decremented', "512|$dirty|$unused|0|0", 'ahead, what is unused is counted or gathered');
like(runs('step.queued()'), qr{a:100\+6/4}, 'and written together with others');
$sweep->sql('SELECT step.tick()') for 1 .. 24;
is(stats('scanned'), 512, 'it does not look again soon');
tick_ok('f', 'scanned', 1024, 'but after 25 ticks');
$sweep->quit;
$db->sql('SELECT step.queued()');

# Which buffers may be supplied
clean();
sub supply { my ($block, $most, $as) = @_; return $db->sql("SELECT step.supply('a', 0, $block, " . ($as // $block) . ", $most)"); }
$db->sql("SELECT step.touch('a', 0, $_, $_, $_, false)") for 0 .. 3;
$other->sql(q{BEGIN; DECLARE c CURSOR FOR SELECT * FROM a WHERE ctid = '(4,1)'; FETCH c});
$db->sql("SELECT step.touch('a', 0, 4, 4, 0, false)");
is(supply(4, 5), 'f', 'supplies none that is pinned');
$other->sql('ROLLBACK');
is(supply(3, 2), 'f', 'none that was used more often');
is(usage(3), 3, 'and leaves its count');
is(supply(0, 0, 1), 'f', 'none that holds another page');
dirty(0, [5]);
is(supply(5, 5), 'f', 'none that is dirty');
is(supply(2, 2), 't', 'one that was used no more often');
is(usage(2), 0, 'whose count is 0 from now on');
is(supply(2, 2), 'f', 'none that is ready already');
is(supply(1, 1), 't', 'another one');
my %buf = map { split /\|/ } split /\n/, $db->sql('SELECT block, buf FROM usage');
$db->sql("SELECT step.touch('a', 0, 2, 2, 1, false), step.touch('b', 0, 400, 400, -1, false), step.touch('b', 0, 401, 401, -1, false)");
is($db->sql("SELECT count(*) FROM usage WHERE block = 1"), 0, 'what was supplied last is taken first');
is($db->sql("SELECT bufferid - 1 FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('b') AND relblocknumber = 400"), $buf{1},
    'for the next page');
is(usage(2), 1, 'and what was used again stays');

# Which pages may be written
sub writes
{
    my ($table, $block, %option) = @_;

    return $db->sql("SELECT step.write('$table', 0, $block, " . ($option{as} // $block) . ', ' . ($option{locked} // 0) . ')');
}
clean();
dirty(3, [ 7, 9 ]);
is(writes('a', 6), 'changed', 'writes no page that is clean');
is(writes('a', 8, as => 9), 'changed', 'none of another page');
is(writes('a', 8, locked => 2), 'locked', 'none that is locked');
is($db->sql('TABLE dirty'), '7 8 9', 'and all are dirty');
is(writes('a', 8), 'written', 'a dirty one');
is($db->sql('TABLE dirty'), '7 9', 'and only that is clean');
is(usage(8), 3, 'a write is no use');
is(writes('a', 7, locked => 1), 'written', 'one that others read');

# A page that a process wants for itself alone
$db->sql('UPDATE a SET n = n + 1 WHERE i = 30');
clean();
$other->sql(q{BEGIN; DECLARE c CURSOR FOR SELECT * FROM a WHERE ctid = '(30,2)'; FETCH c});
dirty(5, [ 28, 32 ]);
my $vacuum = session($node);
my $vacuuming = $vacuum->pid;
$vacuum->start('VACUUM (FREEZE) a');
$db->poll_ok("SELECT wait_event FROM pg_stat_activity WHERE pid = $vacuuming", 'VACUUM FREEZE waits for a page', 'BufferPin');
is(writes('a', 30), 'pinned', 'it is not written');
is(writes('a', 29), 'written', 'the one before is');
is($db->sql(q{SELECT count(*) FROM usage u JOIN pg_buffercache p ON p.bufferid = u.buf + 1 WHERE block = 30 AND isdirty}), 1, 'it stays dirty');

# The writer comes upon it, and goes on behind it.
$db->sql('SELECT pgscale.sweeper_reset()');
queue('a', 28, 5, 1);
$db->sql('SELECT step.writer(0, true)');
$db->poll_ok('SELECT runs, written, skipped_pinned, skipped_changed FROM pgscale.sweeper_stats WHERE worker = 1',
    'the writer leaves the page that is waited for, and writes the others', '2|3|1|1');
my $left = $db->sql('TABLE dirty');
is(join(' ', grep { $left =~ /\b$_\b/ } 28 .. 32), '30', 'that one stays dirty');
is(runs(q{step.find('{a}', '{0}', '{30}', 64)}), 'a:30+1/1', 'it belongs to its run: so it is counted');
$other->sql('COMMIT');
is(($vacuum->finish)[0], '00000', 'VACUUM ends');
$vacuum->quit;
writer_ends();

# Pages whose WAL is not on disk, and those beyond it. Nothing may flush WAL meanwhile but what the test is about.
clean();
$other->sql('BEGIN; SET LOCAL synchronous_commit = on; UPDATE b SET n = n + 1 WHERE ctid = $$(0,1)$$; COMMIT');
my $walwriter = q{FROM pg_stat_activity WHERE backend_type = 'walwriter'};
$walwriter_pid = $db->sql("SELECT pid $walwriter");
until_ok(sub {
    kill 'STOP', $walwriter_pid;
    return 1 if until_true(sub { process_state($walwriter_pid) eq 'T' }) && $db->sql("SELECT wait_event $walwriter") eq 'WalWriterMain';
    kill 'CONT', $walwriter_pid;
    return 0;
}, 'the WAL writer is stopped');
$other->sql('BEGIN; UPDATE a SET n = n + 1');
my $flushed = $db->sql('SELECT pg_current_wal_flush_lsn()');
is(writes('a', 50), 'needs WAL', 'a page whose WAL is not on disk is not written');
dirty(5, [51]);
is(writes('a', 51), 'needs WAL', 'nor one more');
is($db->sql('SELECT cardinality(string_to_array(pages, $$ $$)), pg_current_wal_flush_lsn() FROM dirty'), "160|$flushed",
    'nor is its WAL flushed for it');
$db->sql('SELECT pgscale.sweeper_reset()');
queue('a', 10, 63, 1);
$db->sql('SELECT step.writer(0, true)');
$db->poll_ok('SELECT skipped_wal FROM pgscale.sweeper_stats WHERE worker = 1', 'the writer leaves such pages', 63);
is(stats('written, runs, wal_flushes, errors, pg_current_wal_flush_lsn()'), "0|0|0|0|$flushed", 'and does not flush for 63');
queue('a', 80, 1, 1);
$db->poll_ok('SELECT skipped_wal, wal_flushes FROM pgscale.sweeper_stats WHERE worker = 1', 'but for 64', '64|1');
is($db->sql("SELECT pg_current_wal_flush_lsn() > '$flushed'"), 't', 'WAL is on disk then');
queue('a', 10, 71, 1);
$db->poll_ok('SELECT written, wal_flushes, skipped_wal FROM pgscale.sweeper_stats WHERE worker = 1', 'and they are written', '71|1|64');
is($db->sql('SELECT pages FROM dirty'), join(' ', 0 .. 9, 81 .. 159), 'these and no others');
is(writes('a', 90), 'written', 'others with WAL that far, too');
kill 'CONT', $walwriter_pid;
$other->sql('ROLLBACK');
writer_ends();
my $had = $db->sql(q{SELECT step.lsn('a', 70, x'7fffffff00000000'::bigint)});
is(writes('a', 70), 'beyond WAL', 'a page from beyond the end of WAL is not written');
$db->sql("SELECT step.lsn('a', 70, $had)");
$db->sql(q{SELECT step.lsn('u', 3, x'7fffffff00000000'::bigint)});
is(writes('u', 3), 'written', 'unless it is not logged, where that is no position');

# What a writer counts
clean();
dirty(5, [ 0, 102 ], [ 104, 159 ]);
$db->sql('SELECT pgscale.sweeper_reset()');
queue('a', 0, 1, 1);
$db->sql('SELECT step.writer(0, false)');
$db->poll_ok('SELECT writers, runs_by_pages FROM pgscale.sweeper_stats WHERE worker = 1', 'a writer', '1|{0,0,0,0,0,0,0,0}');
until_ok(sub { $db->sql('SELECT step.queued()') eq '' && $db->sql('TABLE dirty') =~ /^0 / }, 'while the sweep does not work, it writes nothing');
is(stats('written, skipped_changed'), '0|0', 'and counts nothing');
writer_ends();
queue('a', @$_) for [ 0, 1, 1 ], [ 2, 2, 1 ], [ 5, 3, 3 ], [ 10, 4, 1 ], [ 15, 5, 2 ], [ 25, 64, 9 ], [ 100, 6, 2 ], [ 5000, 1, 1 ];
$db->sql(q{SELECT step.touch('b', 0, 200, 264, 5, true)});
queue('b', 200, 65, 1);
$db->sql('SELECT step.writer(0, true)');
$db->poll_ok('SELECT written, runs, neighbours, skipped_changed, runs_by_pages FROM pgscale.sweeper_stats WHERE worker = 1',
    'each page, each run by its length, and neighbours', '149|9|129|2|{1,2,3,1,0,0,1,1}');
is(stats('writeback_calls'), 4, 'the kernel is asked for runs of four pages and more');
is(stats('skipped_pinned, skipped_locked, skipped_wal, wal_flushes, errors'), '0|0|0|0|0', 'and nothing else');
is($db->sql('TABLE dirty'), join(' ', 1, 4, 8, 9, 14, 20 .. 24, 89 .. 99, 106 .. 159), 'they are clean, and others are not');
$other->start(q{SELECT step.wait('a', 91, true)});
my $holder = $other->pid;
$db->poll_ok("SELECT wait_event FROM pg_stat_activity WHERE pid = $holder", 'a page is locked', 'DataFileWrite');
queue('a', 90, 3, 1);
$db->poll_ok('SELECT skipped_locked, runs, written FROM pgscale.sweeper_stats WHERE worker = 1', 'a locked page is left out', '1|11|151');
$db->sql("SELECT pg_cancel_backend($holder)");
is(($other->finish)[0], '57014', 'it is locked no more');
is($db->sql('SELECT write_ms > 0, writer_cpu_ms > 0, writeback_ms > 0 FROM pgscale.sweeper_stats() WHERE worker = 1'), 't|t|t', 'it takes time');
writer_ends();

# The view has each count where it says, less those at the reset.
$db->sql('SELECT step.counts(1000000), pgscale.sweeper_reset(), step.counts(3000077)');
my $each = 2000077;
my @scan = qw(ticks scanned decremented supplied_clean supplied_written consumed reused queued starved);
my @write = qw(written neighbours skipped_pinned skipped_locked skipped_wal skipped_changed);
my %expected = ((map { $scan[$_] => $each * ($_ + 1) } 0 .. $#scan), (map { $write[$_] => 2 * $each * (109 + $_) } 0 .. $#write),
    runs => 200 * $each, write_ms => 230 * $each / 1e6, writeback_calls => 232 * $each, writeback_ms => 234 * $each / 1e6,
    wal_flushes => 236 * $each, errors => (10 + 238) * $each, cpu_ms => 11 * $each / 1e6, writer_cpu_ms => 240 * $each / 1e6,
    runs_by_pages => '{' . join(',', map { 2 * $each * $_ } 101 .. 108) . '}');
for my $of ('()', '')
{
    my @columns = sort keys %expected;

    # the view rounds
    $expected{$_} = int($expected{$_} * 10 + 0.5) / 10 for $of ? () : grep { /_ms$/ } @columns;
    is($db->sql('SELECT ' . join(', ', @columns) . " FROM pgscale.sweeper_stats$of WHERE worker = 1"), join('|', map { $expected{$_} } @columns), "each count, sweeper_stats$of");
}

# What health says: state, reason and its number, why and when it stood down, no slots, stuck, seconds since the last tick
my $health = q{SELECT state, reason, coalesce(action, '') FROM pgscale.health WHERE feature = 'sweeper'};
my $retire = 'if this lasts, set pgscale.sweeper to off, reset bgwriter_lru_maxpages and reload: else nobody writes ahead of the sessions';
for my $case (
    [ '3, 3, 2.5, 0, 0, -1, false, false, 1', 'working|2.5 sessions were waiting to write a page|' ],
    [ '3, 4, 0, 0, 0, -1, false, true, 1',
        'broken|its writers have written nothing for two seconds of what waits for them|check whether the disk hangs, and see the server log' ],
    [ '2, 2, 0, 0, 0, -1, true, true, 1', 'idle|no session waits to write a page|' ],
    [ '2, 5, 30, 0, 0, -1, false, false, 1', 'idle|no buffer was needed for 30 s|' ],
    [ '1, 1, 0, 0, 0, -1, false, false, 1', 'idle|there are buffers that were never used|' ],
    [ '2, 6, 0.031, 0, 0, -1, false, false, 1', "standing down|only 3.1 % of the pages that leave are dirty|$retire" ],
    [ '2, 7, 12, 0, 0, -1, false, false, 1', "standing down|the disk holds nobody up: a write takes 12 us|$retire" ],
    [ '2, 8, 1.1, 0, 0, -1, false, false, 1', "standing down|dirty pages have no dirty neighbours: 1.10 pages a run|$retire" ],
    [ '2, 9, 1.4, 0, 0, -1, false, false, 1', "standing down|1.4 sessions write pages of their own, as COPY and VACUUM do|$retire" ],
    [ '0, 0, 0, 7, 12, 3, false, false, 1', 'off|it is switched off; when it was on, it stood down: the disk holds nobody up: a write takes 12 us|' ],
    [ '0, 0, 0, 6, 0.02, 86300, false, false, 1', 'off|it is switched off; when it was on, it stood down: only 2.0 % of the pages that leave are dirty|' ],
    [ '0, 0, 0, 7, 12, 86401, false, false, 1', 'off|it is switched off|set pgscale.sweeper to on and reload' ],
    [ '0, 0, 0, 7, 12, -1, false, false, 1', 'off|it is switched off|set pgscale.sweeper to on and reload' ])
{
    $db->sql("SELECT step.state($case->[0])");
    is($db->sql($health), $case->[1], "health: $case->[0]");
}
$db->set('bgwriter_lru_maxpages', 100);
$db->poll_ok('SHOW bgwriter_lru_maxpages', 'a background writer that may write', 100);
$db->poll_ok('SELECT step.state(3, 4, 0, 0, 0, -1, false, false, 1), state, action ~ $$^set bgwriter_lru_maxpages to 0$$ FROM pgscale.health
    WHERE feature = $$sweeper$$', 'is in the way of one that works', '|working|t');
for my $state ('2, 5, 30', '2, 6, 0.03')
{
    $db->poll_ok("SELECT step.state($state, 0, 0, -1, false, false, 1), state IN ('idle', 'standing down'), action
        FROM pgscale.health WHERE feature = 'sweeper'", "but not of one that does not: $state", '|t|');
}
$db->set('bgwriter_lru_maxpages', 0);
$db->poll_ok('SHOW bgwriter_lru_maxpages', 'none', 0);
$db->sql('SELECT step.state(3, 4, 0, 0, 0, -1, false, false, 30)');
like($db->sql($health), qr/^broken\|/, 'no tick for too long');

# The queue has room for 4,096 runs, and keeps their order.
$db->sql('SELECT step.queued()');
is($db->sql(q{SELECT count(*) FILTER (WHERE step.queue('a', 0, i, 1, 1)) FROM generate_series(1, 4100) i}), 4096, 'the queue is full at some time');
my @queue = split / /, runs('step.queued()');
is("@queue[0, 1, -1] " . @queue, 'a:1+1/1 a:2+1/1 a:4096+1/1 4096', 'all of it comes back, in order');

# The first sweeper judges by what was counted since it last did, of all, and the second one does the same. What counted before
# would mislead it, whichever count is taken for new: it would be clean, quick, without neighbours, or not enough.
$db->sql('SELECT step.counts(0), step.share(0, 500, 10, 25, 100, false), step.state(0, 0, 0, 0, 0, -1, false, false, 0)');
my $write_ns = 6000 * 80 * 1000;
$db->sql("SELECT step.add(12000000, 9, 9, 27, 654000000, 600000000, 6000000 - $write_ns), step.warm()");
$other->start('SELECT step.wait(NULL, 0, false)');
$db->poll_ok("SELECT wait_event FROM pg_stat_activity WHERE pid = $holder", 'a session waits to write a page', 'DataFileWrite');
my $now = $db->sql('SELECT clock_timestamp()');
$db->set('pgscale.sweeper', 'on');
my $states = 'SELECT DISTINCT state, reason FROM pgscale.sweeper_stats';
$db->poll_ok($states, 'then they work', 'working|1.0 sessions were waiting to write a page');
is($db->sql("SELECT bool_and(state_change BETWEEN '$now' AND clock_timestamp()) FROM pgscale.sweeper_stats"), 't', 'from then on');
$db->sql("SELECT step.add(10000, 0, 9000, 0, 6000, 3000, $write_ns)");
in_time_ok(sub { $db->sql($states) eq 'watching|1.0 sessions write pages of their own, as COPY and VACUUM do' }, 'and stand down if they do not help')
  or diag $db->sql('SELECT string_agg(row_to_json(s)::text, $$ $$) FROM pgscale.sweeper_stats s');
$db->sql("SELECT pg_cancel_backend($holder)");
$other->finish;
$db->set('pgscale.sweeper', 'off');
$db->poll_ok("SELECT reason FROM pgscale.health WHERE feature = 'sweeper'", 'which health remembers when it is off',
    'it is switched off; when it was on, it stood down: 1.0 sessions write pages of their own, as COPY and VACUUM do');
$db->set('pgscale.sweeper_adaptive', 'off');
$db->set('pgscale.sweeper', 'on');
$db->poll_ok($states, 'it works', 'working|pgscale.sweeper_adaptive is off');
$db->set('pgscale.sweeper', 'off');
$db->poll_ok("SELECT reason FROM pgscale.health WHERE feature = 'sweeper'", 'then health forgets', 'it is switched off');

# A large cache: what is ready is to last ten seconds, but is 16,384 buffers at least
$_->quit for $other, $db;
$node->append_conf('postgresql.conf', <<'EOC');
shared_buffers = 1GB
pgscale.sweeper_workers = 1
pgscale.sweeper_low_watermark = 0.125
pgscale.sweeper_high_watermark = 0.25
pgscale.sweeper_adaptive = off
EOC
$node->restart;
$db = session($node);
$db->poll_ok('SELECT buffers, low_watermark, high_watermark FROM pgscale.sweeper_stats', 'watermarks in a large cache', '131072|8192|16384');
$db->sql('SELECT step.warm()');
$db->set('pgscale.sweeper', 'on');
$db->poll_ok('SELECT state, low_watermark, high_watermark FROM pgscale.sweeper_stats', 'without demand they stay', 'working|8192|16384');
my $high;
until_ok(sub {
    $db->sql('SELECT step.add(0, 2000, 1000, 0, 0, 0, 0)');
    return until_true(sub { ($high = stats('high_watermark')) > 20500 });
}, 'with demand they grow');
cmp_ok($high, '<', 32700, 'to ten times what is taken in a second');
$db->poll_ok("SELECT high_watermark < $high AND high_watermark >= 16384 FROM pgscale.sweeper_stats", 'slowly they fall again');
$db->sql('SELECT step.add(0, 0, 0, 1, 0, 0, 0)');
$db->poll_ok('SELECT low_watermark, high_watermark FROM pgscale.sweeper_stats', 'if there was too little, twice as much, up to the settings', '16384|32768');

$db->quit;
$node->stop('immediate');
done_testing();
