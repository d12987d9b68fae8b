# What the sweeper does to pages, and what it counts and says of it, step by step, by a session that takes them while it is off:
# which may be supplied and written, what a writer counts, the view, health, and what several sweepers judge by.
use strict;
use warnings;
use PgscaleSweeper;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

sweeper_server();
my $walwriter_pid;
END { kill 'CONT', $walwriter_pid if $walwriter_pid }

# Which buffers may be supplied
clean();
my $other = session($node);
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
$db->sql('SELECT pgscale.reset($$sweeper$$)');
queue('a', 28, 5, 1);
$db->sql('SELECT step.writer(0, true)');
$db->poll_ok('SELECT runs, written, skipped_pinned, skipped_changed FROM pgscale.sweeper_stats WHERE worker = 1',
    'the writer leaves the page that is waited for, and writes the others', '2|3|1|1');
my $left = $db->sql('TABLE dirty');
is(join(' ', grep { $left =~ /\b$_\b/ } 28 .. 32), '30', 'that one stays dirty');
is(runs(q{step.find('a', 0, 30, 64)}), 'a:30+1/0', 'it belongs to its run: so it is counted');
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
$db->sql('SELECT pgscale.reset($$sweeper$$)');
queue('a', 10, 63, 1);
$db->sql('SELECT step.writer(0, true)');
$db->poll_ok('SELECT skipped_wal FROM pgscale.sweeper_stats WHERE worker = 1', 'the writer leaves such pages', 63);
is(stats('written, runs, wal_flushes, errors, pg_current_wal_flush_lsn()'), "0|0|0|0|$flushed", 'and does not flush for 63');
queue('a', 80, 1, 1);
$db->poll_ok('SELECT skipped_wal, wal_flushes FROM pgscale.sweeper_stats WHERE worker = 1', 'but for 64', '64|1');
is($db->sql("SELECT pg_current_wal_flush_lsn() > '$flushed'"), 't', 'WAL is on disk then');
queue('a', @$_) for [ 10, 64, 1 ], [ 74, 7, 1 ];
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
$db->sql('SELECT pgscale.reset($$sweeper$$)');
queue('a', 0, 1, 1);
$db->sql('SELECT step.writer(0, false)');
$db->poll_ok('SELECT writers, runs_by_pages FROM pgscale.sweeper_stats WHERE worker = 1', 'a writer', '1|{0,0,0,0,0,0,0,0}');
until_ok(sub { $db->sql('SELECT step.queued()') eq '' && $db->sql('TABLE dirty') =~ /^0 / }, 'while the sweep does not work, it writes nothing');
is(stats('written, skipped_changed'), '0|0', 'and counts nothing');
writer_ends();
queue('a', @$_) for [ 0, 1, 1 ], [ 2, 2, 1 ], [ 5, 3, 3 ], [ 10, 4, 1 ], [ 15, 5, 2 ], [ 25, 64, 9 ], [ 100, 6, 2 ], [ 110, 15, 2 ], [ 130, 16, 2 ],
    [ 5000, 1, 1 ];
$db->sql(q{SELECT step.touch('b', 0, 200, 264, 5, true)});
queue('b', 200, 65, 1);
$db->sql('SELECT step.writer(0, true)');
$db->poll_ok('SELECT written, runs, neighbours, skipped_changed, runs_by_pages FROM pgscale.sweeper_stats WHERE worker = 1',
    'each page, each run by its length, and neighbours', '180|11|156|2|{1,2,3,1,2,0,1,1}');
is(stats('writeback_calls'), 3, 'the kernel is asked for runs of 16 pages and more');
is(stats('skipped_pinned, skipped_locked, skipped_wal, wal_flushes, errors'), '0|0|0|0|0', 'and nothing else');
is($db->sql('TABLE dirty'), join(' ', 1, 4, 8, 9, 14, 20 .. 24, 89 .. 99, 106 .. 109, 125 .. 129, 146 .. 159), 'they are clean, and others are not');
$other->start(q{SELECT step.wait('a', 91, true)});
my $holder = $other->pid;
$db->poll_ok("SELECT wait_event FROM pg_stat_activity WHERE pid = $holder", 'a page is locked', 'DataFileWrite');
queue('a', 90, 3, 1);
$db->poll_ok('SELECT skipped_locked, runs, written FROM pgscale.sweeper_stats WHERE worker = 1', 'a locked page is left out', '1|13|182');
$db->sql("SELECT pg_cancel_backend($holder)");
is(($other->finish)[0], '57014', 'it is locked no more');
is($db->sql('SELECT write_ms > 0, writer_cpu_ms > 0, writeback_ms > 0 FROM pgscale_internal.sweeper_stats() WHERE worker = 1'), 't|t|t', 'it takes time');
writer_ends();

# The view has each count where it says, less those at the reset.
$db->sql('SELECT step.counts(1000000), pgscale.reset($$sweeper$$), step.counts(3000077)');
my $each = 2000077;
my @scan = qw(ticks scanned decremented supplied_clean supplied_written consumed reused queued starved);
my @write = qw(written neighbours skipped_pinned skipped_locked skipped_wal skipped_changed);
my %expected = ((map { $scan[$_] => $each * ($_ + 1) } 0 .. $#scan), (map { $write[$_] => 2 * $each * (109 + $_) } 0 .. $#write),
    runs => 200 * $each, write_ms => 230 * $each / 1e6, writeback_calls => 232 * $each, writeback_ms => 234 * $each / 1e6,
    wal_flushes => 236 * $each, errors => (10 + 238) * $each, cpu_ms => 11 * $each / 1e6, writer_cpu_ms => 240 * $each / 1e6,
    runs_by_pages => '{' . join(',', map { 2 * $each * $_ } 101 .. 108) . '}');
for my $of ('pgscale_internal.sweeper_stats()', 'pgscale.sweeper_stats')
{
    my @columns = sort keys %expected;

    # the view rounds
    $expected{$_} = int($expected{$_} * 10 + 0.5) / 10 for $of =~ /internal/ ? () : grep { /_ms$/ } @columns;
    is($db->sql('SELECT ' . join(', ', @columns) . " FROM $of WHERE worker = 1"), join('|', map { $expected{$_} } @columns), "each count, $of");
}

# What health says: state, reason and its number, why and when it stood down, no slots, stuck, seconds since the last tick
my $health = q{SELECT state, reason, coalesce(action, '') FROM pgscale.health WHERE feature = 'sweeper'};
my $retire = 'if this lasts, set pgscale.sweeper to off, reset bgwriter_lru_maxpages and reload: otherwise no process writes ahead of the sessions';
for my $case (
    [ '3, 3, 2.5, 0, 0, -1, false, false, 1', 'working|2.5 sessions were waiting to write a page|' ],
    [ '3, 4, 0, 0, 0, -1, false, true, 1',
        'broken|its writers have written none of the waiting pages for two seconds|check whether the disk hangs, and see the server log' ],
    [ '2, 2, 0, 0, 0, -1, true, true, 1', 'idle|no session waits to write a page|' ],
    [ '2, 5, 30, 0, 0, -1, false, false, 1', 'idle|no buffer was needed for 30 s|' ],
    [ '1, 1, 0, 0, 0, -1, false, false, 1', 'idle|there are buffers that were never used|' ],
    [ '2, 6, 0.031, 0, 0, -1, false, false, 1', "standing down|only 3.1 % of the pages that leave are dirty|$retire" ],
    [ '2, 7, 12, 0, 0, -1, false, false, 1', "standing down|the disk delays no session: a write takes 12 us|$retire" ],
    [ '2, 8, 1.1, 0, 0, -1, false, false, 1', "standing down|dirty pages have no dirty neighbours: 1.10 pages a run|$retire" ],
    [ '2, 9, 1.4, 0, 0, -1, false, false, 1', "standing down|1.4 sessions write pages of their own, as COPY and VACUUM do|$retire" ],
    [ '0, 0, 0, 7, 12, 3, false, false, 1', 'off|it is switched off; when it was on, it stood down: the disk delays no session: a write takes 12 us|' ],
    [ '0, 0, 0, 6, 0.02, 86300, false, false, 1', 'off|it is switched off; when it was on, it stood down: only 2.0 % of the pages that leave are dirty|' ],
    [ '0, 0, 0, 7, 12, 86401, false, false, 1', 'off|it is switched off|set pgscale.sweeper to on and reload' ],
    [ '0, 0, 0, 7, 12, -1, false, false, 1', 'off|it is switched off|set pgscale.sweeper to on and reload' ])
{
    $db->sql("SELECT step.state($case->[0])");
    is($db->sql($health), $case->[1], "health: $case->[0]");
}
$db->sql('SELECT step.state(3, 4, 0, 0, 0, -1, false, false, 1), step.few_slots(6, 0.25)');
is($db->sql($health), 'working|its 6 writers did not keep up in 25 % of the last second, and the server has no slot for more; '
      . 'max_worker_processes is 20|raise max_worker_processes and restart', 'health: more writers are needed than there are slots');
is($db->sql(q{SELECT verdict, reason ~ 'sweeper is short of workers' FROM pgscale.advice_rules WHERE rule = 'max_worker_processes'}), 'advises|t',
    'which is advice');
$db->sql('SELECT step.few_slots(0, 0)');
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
$db->sql("SELECT step.add(12000000, 9, 27, 654000000, 600000000, 6000000 - $write_ns), step.warm()");
$other->start('SELECT step.wait(NULL, 0, false)');
$db->poll_ok("SELECT wait_event FROM pg_stat_activity WHERE pid = $holder", 'a session waits to write a page', 'DataFileWrite');
my $now = $db->sql('SELECT clock_timestamp()');
$db->set('pgscale.sweeper', 'on');
my $states = 'SELECT DISTINCT state, reason FROM pgscale.sweeper_stats';
$db->poll_ok($states, 'then they work', 'working|1.0 sessions were waiting to write a page');
is($db->sql("SELECT bool_and(state_change BETWEEN '$now' AND clock_timestamp()) FROM pgscale.sweeper_stats"), 't', 'from then on');
$db->sql("SELECT step.add(10000, 9000, 0, 6000, 3000, $write_ns)");
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
pgscale.sweeper_high_watermark = 0.25
pgscale.sweeper_adaptive = off
EOC
$node->restart;
$db = session($node);
is(stats('buffers, low_watermark, high_watermark'), '131072||', 'a large cache, and no watermarks in force');
$db->sql('SELECT step.warm()');
$db->set('pgscale.sweeper', 'on');
$db->poll_ok('SELECT state, low_watermark, high_watermark FROM pgscale.sweeper_stats', 'without demand they are no more than lasts', 'working|6553|16384');
my $high;
until_ok(sub {
    $db->sql('SELECT step.add(0, 3000, 0, 0, 0, 0)');
    return until_true(sub { ($high = stats('high_watermark')) > 20500 });
}, 'with demand they grow');
cmp_ok($high, '<', 32700, 'to ten times what is taken in a second');
$db->poll_ok("SELECT high_watermark < $high AND high_watermark >= 16384 FROM pgscale.sweeper_stats", 'slowly they fall again');
$db->sql('SELECT step.add(0, 0, 1, 0, 0, 0)');
$db->poll_ok('SELECT low_watermark, high_watermark FROM pgscale.sweeper_stats', 'if there was too little, twice as much, up to the settings', '13107|32768');

$db->quit;
$node->stop('immediate');
done_testing();
