# The sweeper's decisions: each part of it over pages, buffers and times that are made up (t/lib/*_steps.c). And what it shows
# and judges by, of counts that a test has put there (t/lib/sweeper_parts.c): the view, health, and the sweeper itself.
# Runs on each major.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main', conf => <<'EOC');
shared_buffers = 8MB
max_worker_processes = 20
checkpoint_timeout = 1h
bgwriter_lru_maxpages = 0
EOC
my $db = session($node);

$db->sql('CREATE TABLE written AS SELECT 1 AS i');
$db->steps_ok($_) for qw(controller_steps policy_steps sweep_steps write_steps);

my $library = compiled('sweeper_parts');
SKIP:
{
    skip 'sweeper_parts cannot be compiled here', 1 unless $library;
    my %parts = (
        set_counts => 'bigint',
        add_counts => 'bigint, bigint, bigint, bigint, bigint, bigint',
        set_state => 'int, int, float8, int, float8, int, bool, bool, int',
        set_few_slots => 'int, float8',
        set_warm => '',
        wait_to_write => '');
    $db->sql("CREATE FUNCTION $_($parts{$_}) RETURNS void LANGUAGE C AS '$library'") for sort keys %parts;
    shown();
}

sub stats { my $columns = shift; return $db->sql("SELECT $columns FROM pgscale.sweeper_stats"); }

sub shown
{
    # The view has each count where it says, less those at the reset.
    $db->sql('SELECT set_counts(1000000), pgscale.reset($$sweeper$$), set_counts(3000077)');
    my $each = 2000077;
    my @scan = qw(ticks scanned decremented supplied_clean supplied_written consumed reused queued starved);
    my @write = qw(written neighbours skipped_pinned skipped_locked skipped_wal skipped_changed);
    my %expected = ((map { $scan[$_] => $each * ($_ + 1) } 0 .. $#scan),
        (map { $write[$_] => 2 * $each * (109 + $_) } 0 .. $#write),
        runs => 200 * $each, write_ms => 230 * $each / 1e6, writeback_calls => 232 * $each, writeback_ms => 234 * $each / 1e6,
        wal_flushes => 236 * $each, errors => (10 + 238) * $each, cpu_ms => 11 * $each / 1e6, writer_cpu_ms => 240 * $each / 1e6,
        runs_by_pages => '{' . join(',', map { 2 * $each * $_ } 101 .. 108) . '}');
    my @columns = sort keys %expected;
    # the view rounds
    $expected{$_} = int($expected{$_} * 10 + 0.5) / 10 for grep { /_ms$/ } @columns;
    is(stats(join ', ', @columns), join('|', map { $expected{$_} } @columns), 'the view has each count where it says');

    # What health says: state, reason and its number, why and when it stood down, no slots, stuck, seconds since the last tick
    my $health = q{SELECT state, reason, coalesce(action, '') FROM pgscale.health WHERE feature = 'sweeper'};
    my $was = 'off|it is switched off; when it was on, it stood down:';
    for my $case (
        [ '3, 3, 2.5, 0, 0, -1, false, false, 1', 'working|2.5 sessions were waiting to write a page|' ],
        [ '3, 4, 0, 0, 0, -1, false, true, 1',
            'broken|its writers have written none of the waiting pages for two seconds|check whether the disk hangs, and see the server log' ],
        [ '2, 2, 0, 0, 0, -1, true, true, 1', 'idle|no session waits to write a page|' ],
        [ '2, 5, 30, 0, 0, -1, false, false, 1', 'idle|no buffer was needed for 30 s|' ],
        [ '1, 1, 0, 0, 0, -1, false, false, 1', 'idle|there are buffers that were never used|' ],
        [ '2, 6, 0.031, 0, 0, -1, false, false, 1', "standing down|only 3.1 % of the pages that leave are dirty|" ],
        [ '2, 7, 12, 0, 0, -1, false, false, 1', "standing down|the disk delays no session: a write takes 12 us|" ],
        [ '2, 8, 1.1, 0, 0, -1, false, false, 1', "standing down|dirty pages have no dirty neighbours: 1.10 pages a run|" ],
        [ '2, 9, 1.4, 0, 0, -1, false, false, 1',
            "standing down|1.4 sessions write pages of their own, as COPY and VACUUM do|" ],
        [ '0, 0, 0, 7, 12, 3, false, false, 1', "$was the disk delays no session: a write takes 12 us|" ],
        [ '0, 0, 0, 6, 0.02, 86300, false, false, 1', "$was only 2.0 % of the pages that leave are dirty|" ],
        [ '0, 0, 0, 7, 12, 86401, false, false, 1', 'off|it is switched off|set pgscale.sweeper to auto and reload' ],
        [ '0, 0, 0, 7, 12, -1, false, false, 1', 'off|it is switched off|set pgscale.sweeper to auto and reload' ])
    {
        $db->sql("SELECT set_state($case->[0])");
        is($db->sql($health), $case->[1], "health: $case->[0]");
    }
    $db->sql('SELECT set_state(3, 4, 0, 0, 0, -1, false, false, 30)');
    like($db->sql($health), qr/^broken\|/, 'no tick for too long');
    $db->sql('SELECT set_state(3, 4, 0, 0, 0, -1, false, false, 1), set_few_slots(6, 0.25)');
    is($db->sql($health), 'working|its 6 writers did not keep up in 25 % of the last second, and the server has no slot for more; '
          . 'max_worker_processes is 20|raise max_worker_processes and restart',
              'health: more writers are needed than there are slots');
    is($db->sql(q{SELECT verdict, reason ~ 'sweeper is short of workers' FROM pgscale.advice_rules() WHERE rule = 'max_worker_processes'}), 'advises|t',
        'which is advice');
    $db->sql('SELECT set_few_slots(0, 0)');

    # The sweeper judges by what was counted since it last did. What counted before would mislead it, whichever count is taken for
    # new: it would be clean, quick, without neighbours, or not enough. The
    # ticks of a cache that has just been filled find nothing ready, which counts, so it is the disk that is quick.
    my $other = session($node);
    my ($written, $us, $why) = (600000, 40, 'the disk delays no session: a write takes 40 us');
    my $write_ns = $written * $us * 1000;
    $db->sql('SELECT set_counts(0), set_state(0, 0, 0, 0, 0, -1, false, false, 0)');
    $db->sql("SELECT add_counts(12000000, 9, 27, 654000000, 600000000, 6000000 - $write_ns), set_warm()");
    $other->start('SELECT wait_to_write()');
    $db->poll_ok('SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $other->pid, 'a session waits to write a page',
        'DataFileWrite');
    my $now = $db->sql('SELECT clock_timestamp()');
    $db->set('pgscale.sweeper', 'auto');
    my $states = 'SELECT state, reason FROM pgscale.sweeper_stats';
    $db->poll_ok($states, 'then it works', 'working|1.0 sessions were waiting to write a page');
    is($db->sql("SELECT state_change BETWEEN '$now' AND clock_timestamp() FROM pgscale.sweeper_stats"), 't',
        'from then on');
    $db->sql("SELECT add_counts(2 * $written, $written, 0, $written, $written / 2, $write_ns)");
    in_time_ok(sub { $db->sql($states) eq "watching|$why" },
        'and stands down if it does not help')
      or diag $db->sql('SELECT row_to_json(s) FROM pgscale.sweeper_stats s');
    $db->sql('SELECT pg_cancel_backend(' . $other->pid . ')');
    $other->finish;
    $other->quit;
    $db->set('pgscale.sweeper', 'off');
    $db->poll_ok("SELECT reason FROM pgscale.health WHERE feature = 'sweeper'", 'which health remembers when it is off',
        "it is switched off; when it was on, it stood down: $why");
    $db->set('pgscale.sweeper', 'on');
    $db->poll_ok($states, 'it works', 'working|pgscale.sweeper is on, not auto');
    $db->set('pgscale.sweeper', 'off');
    $db->poll_ok("SELECT reason FROM pgscale.health WHERE feature = 'sweeper'", 'then health forgets', 'it is switched off');

    # A large cache: what is ready is to last ten seconds, but is 16,384 buffers at least. It may begin with twice as many,
    # because the first ticks find nothing ready.
    $db->quit;
    $node->append_conf('postgresql.conf',
        "shared_buffers = 1GB\npgscale.sweeper_high_watermark = 0.25");
    $node->restart;
    $db = session($node);
    is(stats('low_watermark, high_watermark'), '|', 'a large cache, and no watermarks in force');
    $db->sql('SELECT set_warm()');
    $db->set('pgscale.sweeper', 'on');
    $db->poll_ok('SELECT state, low_watermark, high_watermark FROM pgscale.sweeper_stats',
        'without demand they come to no more than lasts', 'working|6553|16384');
    # what counts is how much is taken in a second, however long that lasts here
    my ($high, $taken) = (0, 2500);
    until_ok(sub {
        my $then = stats('ticks');

        $db->sql("SELECT add_counts(0, $taken, 0, 0, 0, 0)");
        $taken *= 2;
        until_true(sub { ($high, my $ticks) = split /\|/, stats('high_watermark, ticks'); $high > 20500 || $ticks > $then + 300 });
        return $high > 20500;
    }, 'with demand they grow');
    $db->poll_ok("SELECT high_watermark < $high AND high_watermark >= 16384 FROM pgscale.sweeper_stats", 'slowly they fall again');
    $db->sql('SELECT add_counts(0, 0, 1, 0, 0, 0)');
    $db->poll_ok('SELECT low_watermark, high_watermark FROM pgscale.sweeper_stats',
        'if there was too little, twice as much, up to the settings', '13107|32768');
    return;
}

$db->quit;
$node->stop('immediate');
done_testing();
