# What evidence says of waits and of WAL: on evidence that is made up, with figures that are worked out beside each; how this
# session writes evidence down; for which rules a change of a setting makes it void; and that each wait event of this major has a
# kind.
# Runs on 18, too.
use strict;
use warnings;
use PgscaleTest;
use PgscaleMadeUp;
use PostgreSQL::Test::Utils;
use Test::More;

made_up();
my $node = pgscale_node('main', conf => 'pgscale.debug_period = 1h');
my $db = session($node);
made_up_functions($db);

### Contention: a hundredth of the time that sessions were busy or more, the greatest share first; and what the server counts of it

# Items as top_waits() has them: kind, event and seconds of a session. Each figure has a factor of its own.
my $items = $db->sql(q{SELECT pg_get_function_arguments('pgscale_internal.past_items'::regproc)});
sub items_are
{
    my $query = shift;

    $db->sql(<<"EOQ");
CREATE OR REPLACE FUNCTION pgscale_internal.past_items($items) RETURNS SETOF record LANGUAGE sql AS \$\$
    SELECT 1, NULL::text, kind, event_type, event, s / 100, 0::float8, s / 2000, 1000 * s, NULL::bigint
      FROM ($query) v (kind, event_type, event, s) \$\$
EOQ
    return;
}
items_are(q{VALUES ('named', 'CPU', 'Queued', 100::float8), ('named', 'Lock', 'tuple', 260), ('named', 'CPU', 'Running', 200),
    ('named', 'Timeout', 'PgSleep', 700), ('named', 'Client', 'IdleInTransaction', 900), ('named', 'IO', 'DataFileRead', 270),
    ('named', 'Client', 'ClientWrite', 130), ('named', 'IPC', 'of no kind', 20), ('named', 'IO', 'SlruRead', 9.9), ('named', 'IO', 'BufFileRead', 10)});
is($db->sql(q{SELECT string_agg(concat_ws(' ', pgscale.wait_kind(event_type, split_part(event, ', ', 1)), fraction, active_sessions), ', ')
    FROM pgscale.contention()}),
    'cpu 0.15 3, data_read 0.135 2.7, lock_tuple 0.13 2.6, client 0.065 1.3, other_ipc 0.01 0.2, temp_file 0.005 0.1', 'contention')
  or diag $db->sql('SELECT * FROM pgscale.contention()');

sub evidence { my ($records, $at) = @_; $db->sql('DO $$ BEGIN ' . evidence_is($records, $at) . ' END $$'); return; }
evidence([ { s => 60, sessions => 600, CPU => 200, LOCK_TUPLE => 10, DATA_READ => 270 },
    { s => 40, sessions => 400, LOCK_TUPLE => 250, TEMP_FILE => 10, SLRU_IO => 9.9, CPU => 100, OTHER_IPC => 20 } ]);
is($db->sql(q{SELECT string_agg(concat_ws(' ', kind, round(fraction::numeric, 4), round(waiting_sessions::numeric, 2)), ', ' ORDER BY fraction DESC)
    FROM pgscale_internal.tuning_waits() WHERE fraction > 0.01}),
    'cpu 0.3000 3.00, data_read 0.2700 2.70, lock_tuple 0.2600 2.60, client 0.1301 1.30, other_ipc 0.0200 0.20', 'of two records');

# What the server counts, from 19 on
my ($waits, $us) = map { "lock_${_}[PGSCALE_LOCK_TUPLE]" } qw(waits wait_us);
my %first = (s => 60, sessions => 600, LOCK_TUPLE => 60, $waits => 3, $us => 7_000_000, fast_path_exceeded => 150);
my $rate = 'cpu, lock_manager {"fast_path_exceeded_per_s": 2.5}, lock_tuple';
for my $case ([ 'no counts', [ { s => 100, sessions => 1000, LOCK_TUPLE => 60 } ], 'cpu, lock_manager, lock_tuple' ],
    [ 'of two records', [ \%first, { s => 40, sessions => 400, $waits => 1, $us => 1_010_000, fast_path_exceeded => 100 } ],
        "$rate {\"long_waits\": 4, \"long_wait_ms\": 2002.5}" ],
    [ 'no long waits', [ { %first, $waits => 0, $us => 0 } ], "$rate {\"long_waits\": 0, \"long_wait_ms\": null}" ],
    [ 'not of all of the window', [ \%first, { s => 1, sessions => 1 } ], 'cpu, lock_manager, lock_tuple' ])
{
    my ($name, $records, $expected) = @$case;
    evidence($records);
    is($db->sql(q{SELECT string_agg(concat_ws(' ', kind, evidence), ', ' ORDER BY kind) FROM pgscale_internal.tuning_waits()
        WHERE kind IN ('lock_manager', 'lock_tuple', 'cpu')}), $expected, "counts: $name");
}
evidence([ \%first ]);
is($db->sql('SELECT evidence FROM pgscale.contention() WHERE evidence IS NOT NULL') =~ s/: 2333.3\d*/: 2333.3/r, '{"long_waits": 3, "long_wait_ms": 2333.3}',
    'beside the share of the waits');

# Windows
evidence([ { s => 60, sessions => 600, LOCK_TUPLE => 60 } ], q{clock_timestamp() - interval '6 minutes'});
is($db->sql(q{SELECT (SELECT commits FROM pgscale.wal_efficiency('5 minutes')), (SELECT commits FROM pgscale.wal_efficiency('7 minutes'))}),
    '|0', 'evidence of the window');
is($db->sql(q{SELECT count(*) FROM pgscale.wal_efficiency('7 minutes'), clock_timestamp() n
    WHERE n - until BETWEEN '6 minutes' AND '6 minutes 20 s' AND until - since BETWEEN '0' AND '1 ms'}), 1, 'and when that was');
items_are(q{SELECT 'named', 'Lock', 'tuple', extract(epoch FROM clock_timestamp() - $1)::float8});
is($db->sql(q{SELECT string_agg(round(active_sessions)::text, ' ' ORDER BY active_sessions)
    FROM (SELECT * FROM pgscale.contention('5 minutes') UNION ALL SELECT * FROM pgscale.contention()) c}), '3 6', 'contention of the window');
items_are(q{VALUES ('other', NULL, NULL, 30::float8), ('named', 'Lock', 'tuple', 20)});
is($db->sql('SELECT string_agg(event, $$ $$) FROM pgscale.contention()'), 'others tuple', 'what the archive has as one row');

### The WAL's efficiency

my %wal = of_mix(commits => 450, wal_syncs => 300, wal_writes => 2000, wal_bytes => 819_200_000, wal_pages => 40_000, wal_buffers_full => 150,
    wal_sync_us => 600_000, wal_written_bytes => -1, wal_position => 838_860_800);
my $all = q{commits, commits_per_flush, flush_ms, flush_fraction, page_image_fraction, rewritten_fraction, wal_bytes, written_bytes,
    written_exact, flushes_per_commit, flush_measured, segment_switches_per_s, buffers_full_per_s};
sub efficient
{
    my ($name, $columns, $expected, $evidence, $session) = @_;
    my %restore = map { $_ => $db->sql("SELECT current_setting('$_')") } keys %{ $session // {} };
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    $db->sql('DO $$ BEGIN ' . settings_are(%{ $session // {} }) . evidence_is([ { %wal, %{ $evidence // {} } } ]) . ' END $$');
    my $found = $db->sql("SELECT $columns FROM pgscale.wal_efficiency()");
    $db->sql('DO $$ BEGIN ' . settings_are(%restore) . ' END $$') if %restore;
    return ref $expected ? like($found, $expected, "wal_efficiency: $name") : is($found, $expected, "wal_efficiency: $name");
}
# 838,860,800 and 300 blocks: 841,318,400, of which 0.0029 had been written before
efficient('an estimate', $all, '450|1.5|2|0.2|0.4|0.00292|819200000|841318400|f|0.667|t|0.5|1.5');
efficient('that is counted', $all, '450|1.5|300|0.2|0.4|0.161|819200000|1000000000|t|0.667|f|0.5|1.5', { wal_written_bytes => 1e9, wal_sync_us => 0 });
efficient('nothing written again', 'rewritten_fraction', '0', { wal_written_bytes => 1e6 });
efficient('no position', 'written_bytes, rewritten_fraction, segment_switches_per_s', '||', { wal_position => -1 });
efficient('no commits, flushes or WAL', 'commits, commits_per_flush, flushes_per_commit, flush_ms, page_image_fraction', '0||||',
    { commits => 0, wal_syncs => 0, wal_bytes => 0 });
my %open_sync = (fsync => 'on', wal_sync_method => 'open_sync');
efficient('flushes that are not counted: a block for each write', 'written_bytes, commits_per_flush, flushes_per_commit', '855244800||',
    { wal_syncs => 0 }, \%open_sync);
efficient('images by their bytes', 'page_image_fraction, page_image_exact', '0.35|t', { wal_page_bytes => 286_720_000 });
# the reason, one before the other
my %cheap = (WAL_SYNC => 89, wal_buffers_full => 0, wal_pages => 29_999);
for my $case ([ 'wal_sync_method flushes WAL as it is written', { wal_syncs => 0 }, \%open_sync ],
    [ 'fsync is off', { wal_syncs => 0 }, { fsync => 'off' } ],
    [ 'hardly any WAL was flushed', { wal_syncs => 0 }, { fsync => 'on', wal_sync_method => 'fdatasync' } ],
    [ 'there is too little evidence', { s => 9.9 } ], [ 'commits wait', { s => 10 } ],
    [ 'hardly any WAL was flushed', { wal_syncs => 9 } ],
    [ 'commits wait for 20 % of the sessions\' time; 45.0 of them share a flush of 60.00 ms', { wal_syncs => 10 } ],
    [ 'commits wait for 20 % of the sessions\' time, and hardly two of them share a flush, which takes 2.00 ms', { commits => 449 } ],
    [ 'WAL buffers were full 2 times a second: sessions wrote WAL to free them', { WAL_SYNC => 89, wal_buffers_full => 200 } ],
    [ 'up to 30 % of WAL are images', { %cheap, wal_pages => 30_000 } ], [ '35 % of WAL are images', { %cheap, wal_page_bytes => 286_720_000 } ],
    [ '30 % of the written WAL was written before, because small commits end within a block', { %cheap, wal_written_bytes => 1.2e9 } ],
    [ 'WAL costs little: commits wait for 20 % of the sessions\' time', { %cheap, wal_written_bytes => 1.19e9 } ])
{
    my ($reason, $evidence, $session) = @$case;
    efficient('why', 'reason', qr/^\Q$reason\E/, $evidence, $session);
}
# what is usual: all evidence before the window, if it is a minute or more. A record that lies in both is in neither
for my $case ([ 60, '2|0.2|4|0.05' ], [ 59, '2|0.2||' ])
{
    my ($seconds, $expected) = @$case;
    my %before = (%wal, s => $seconds, wal_sync_us => 1_200_000, WAL_SYNC => 45, WAL_WRITE => 0, WAL_WRITE_LOCK => 5);

    evidence([ \%before, { %wal, wal_sync_us => 9e9 }, \%wal ], q{clock_timestamp() - (ARRAY[11, 9, 0])[i] * interval '1 minute'});
    is($db->sql('SELECT flush_ms, flush_fraction, usual_flush_ms, usual_flush_fraction FROM pgscale.wal_efficiency()'), $expected,
        "what is usual, of $seconds s");
}

### Evidence, as this session writes it down

SKIP:
{
    skip 'pgscale does not show its features', 16 unless shows_modules();
    my ($cpu, $extend, $tuple, $sleep, $commits) = (0, 0x03000001, 0x03000004, 0x09000002, 5000);
    my %ns = ($cpu => 100e9, $extend => 50e9, $tuple => 10e9, $sleep => 1e9);
    my $began = $db->sql(q{SELECT clock_timestamp() - interval '100 s'});
    my $second = 0;
    # So many seconds later by the clock and as observed, of so many sessions and commits; with more of these waits, in seconds
    my $observe = sub {
        my ($clock, $s, $ended, $more, $anew) = @_;

        $second += $clock;
        $commits += $ended;
        $ns{$_} += 1e9 * $more->{$_} for keys %$more;
        my $ns = join ', ', map { "$_, " . int $ns{$_} } sort keys %ns;
        $db->sql("DO \$\$ BEGIN PERFORM made_up_transactions(1, $commits, 9);
            PERFORM made_up_observation('tuning', '$began'::timestamptz + $second * interval '1 s', @{[ int($s * 1e9) ]}, 2.5,
                @{[ $anew ? 'true' : 'false' ]}, ARRAY[1]::oid[], ARRAY[$ns]::bigint[]); END \$\$");
    };
    my $seen = q{SELECT (SELECT string_agg(concat_ws(' ', kind, round(fraction::numeric, 4), round(waiting_sessions::numeric, 3)), ', ' ORDER BY kind)
        FROM pgscale_internal.tuning_waits() WHERE fraction > 0), commits, extract(epoch FROM until - since)::int FROM pgscale.wal_efficiency()};

    evidence([]);
    $observe->(0, 1, 0, {}, 1);
    $observe->(4.9, 4.9, 40, { $cpu => 1 });
    is($db->sql($seen), '||', 'a record that is not full');
    $observe->(0.1, 0.1, 30, { $cpu => 1, $tuple => 3, $extend => 1, $sleep => 4 });
    is($db->sql($seen), 'cpu 0.3333 0.400, lock_extend 0.1667 0.200, lock_tuple 0.5000 0.600|70|5', 'one that is: the differences, pg_sleep() left out');
    $observe->(5, 5, 7, { $cpu => 6 });
    is($db->sql($seen), 'cpu 0.6667 0.800, lock_extend 0.0833 0.100, lock_tuple 0.2500 0.300|77|10', 'and the next one begins there');
    for my $case ([ 'a gap of more than two seconds: none', 77, 7.1, 5, 100, { $cpu => 5 } ], [ 'of less', 78, 6.9, 5, 1, { $cpu => 5 } ],
        [ 'a clock that is set back: none', 78, 2.9, 5, 100, { $cpu => 5 } ], [ 'waits that were reset: none', 78, 5, 5, 100, { $cpu => 5, $tuple => -1 } ],
        [ 'commits that were reset: none', 78, 5, 5, -1, { $cpu => 5 } ], [ 'and then again', 80, 5, 5, 2, { $cpu => 5 } ])
    {
        my ($name, $expected, @observed) = @$case;
        $observe->(@observed);
        is($db->sql("SELECT commits FROM ($seen) s"), $expected, $name);
    }
    $observe->(3, 3, 100, {}, 1);
    $observe->(4, 4, 100, {});
    $observe->(1, 1, 3, {});
    is($db->sql("SELECT commits FROM ($seen) s"), 183, 'what was not observed is not in it');
    evidence([ map { { s => 5, commits => 1 } } 1 .. 719 ]);
    is($db->sql('SELECT commits FROM pgscale.wal_efficiency()'), 719, 'all of 719 records');

    # The periods of now, by this session's clock. What is counted on beyond where it was reset is not taken for the whole
    $db->sampler('off');
    $observe->(1, 1, 0, {}, 1);
    $observe->(20, 20, @$_) for [ 1000, {} ], [ -3000, {} ], [ 2500, {} ];
    my $then = $db->sql('SELECT clock_timestamp()');
    $db->poll_ok("SELECT clock_timestamp() > '$then'::timestamptz + interval '5 s'", 'some seconds later', 't');
    $observe->(2, 2, 0, {});
    is($db->sql(q{SELECT c->'minute'->>'commits', (c->'minute'->>'s')::float8 > 60 FROM pgscale_internal.now_counts() c}), '3500|t',
        'commits of before a reset and after it');
    is($db->sql(q{SELECT c->'recent'->>'commits' FROM pgscale_internal.now_counts() c}), 0, 'of the last seconds');
    $observe->(2, 2, -1, {});
    is($db->sql(q{SELECT c->'recent'->>'commits' FROM pgscale_internal.now_counts() c}), '', 'in which they were reset');
    $db->sampler('on');
}

### Evidence of before a change of a setting: which rules it is void for

# Of each rule, the settings that it is about
my %about = (
    max_wal_size => [qw(max_wal_size checkpoint_timeout checkpoint_completion_target)],
    checkpoint_timeout => [qw(checkpoint_timeout max_wal_size)],
    wal_compression => [qw(wal_compression checkpoint_timeout max_wal_size)],
    full_page_images => [qw(checkpoint_timeout max_wal_size full_page_writes)],
    wal_segment_size => [qw(min_wal_size max_wal_size wal_recycle)],
    checkpoint_completion_target => ['checkpoint_completion_target'],
    bgwriter_lru_maxpages => [qw(bgwriter_lru_maxpages bgwriter_delay bgwriter_lru_multiplier)],
    'pgscale.sweeper' => [qw(bgwriter_lru_maxpages bgwriter_delay)],
    backend_flush_after => [qw(backend_flush_after bgwriter_lru_maxpages)],
    (map { $_ => [qw(commit_delay commit_siblings)] } qw(commit_delay commit_siblings)),
    (map { $_ => [qw(checkpoint_flush_after bgwriter_flush_after)] } qw(checkpoint_flush_after vm.dirty_background_bytes pgscale.writeback)));
for my $round (
    { max_wal_size => '3GB', commit_delay => 3, bgwriter_lru_maxpages => 200, checkpoint_flush_after => '128kB', backend_flush_after => '64kB', wal_compression => 'on' },
    { checkpoint_timeout => '7min', commit_siblings => 9, bgwriter_delay => '100ms', bgwriter_flush_after => '256kB', min_wal_size => '96MB' },
    { checkpoint_completion_target => '0.8', bgwriter_lru_multiplier => 3, wal_recycle => 'off', full_page_writes => 'off' })
{
    my @expected;

    $db->sql("ALTER SYSTEM SET $_ = '$round->{$_}'") for keys %$round;
    for my $name (sort keys %about)
    {
        my ($first) = grep { exists $round->{$_} } @{ $about{$name} };
        push @expected, "$name:$first" if $first;
    }
    evidence([ { s => 3000, sessions => 9000 } ], q{clock_timestamp() - interval '1 ms'});
    $db->sql('SELECT pg_reload_conf()');
    $db->poll_ok(q{SELECT string_agg(rule || ':' || (regexp_match(reason, '^0 s of evidence since (\S+) got its value, \d+ s ago: [35]0 s are needed$'))[1],
        ' ' ORDER BY rule COLLATE "C") FROM pgscale.advice_rules()}, 'evidence is void only for rules about ' . join(', ', sort keys %$round), "@expected");
}

### Each wait event of this major has a kind of its own in src/base/wait_kinds.c: none is only what its class is

my $library = compiled('wait_events');
$db->sql("CREATE FUNCTION wait_event_of(int, int) RETURNS text STRICT LANGUAGE c AS '$library'");
my @events = split /\n/, $db->sql(q{SELECT DISTINCT e FROM generate_series(1, 15) c, generate_series(0, 300) n, wait_event_of(c, n) e
    WHERE e IS NOT NULL ORDER BY 1});
cmp_ok(scalar(@events), '>', 200, 'the events of this server are found');
# and where the server lists them itself, none is overlooked
push @events, split /\n/, $db->sql(q{SELECT type || ' ' || name FROM pg_wait_events
    WHERE type NOT IN ('Extension', 'InjectionPoint') AND name !~ '^pgscale' ORDER BY 1}) if $db->sql(q{SELECT to_regclass('pg_catalog.pg_wait_events') IS NULL}) eq 'f';
my ($table) = slurp_file('src/base/wait_kinds.c') =~ /^static const WaitNames wait_names\[\] = \{(.*?)^\};/ms;
# that one is no wait, and has no kind on purpose
my %known = ('timeout pgsleep' => 1);
while ($table =~ /, "(\w+)", \{([^}]*)\}/g) { my $type = $1; $known{ lc "$type $_" } = 1 for $2 =~ /"(\w+)"/g }
is(join("\n", grep { !$known{ lc $_ } } @events), '', 'and each has a kind');
$db->quit;
$node->stop('immediate');
done_testing();
