# One standby, and all that is only asked of one: each feature's views and functions there, its health, what it refuses; then the
# sampler through a promotion. A standby that a feature changes, slows or kills is made in that feature's own tests.
# Runs on each major.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

# A bucket of the law takes a second, after one more.
$PostgreSQL::Test::Utils::timeout_default = 90 unless $ENV{PG_TEST_TIMEOUT_DEFAULT};

my $primary = pgscale_node('primary', init => [ allows_streaming => 1 ], conf => <<'EOC');
fsync = off
allow_in_place_tablespaces = on
pgscale.debug_period = 1s
EOC
my $on_primary = session($primary);
$on_primary->sql('CREATE TABLE t (i int)');
$on_primary->sql('CREATE TABLE pages AS SELECT i, repeat($$x$$, 1000) AS filler FROM generate_series(1, 1000) i');
$on_primary->sql('CREATE ROLE on_call LOGIN IN ROLE pg_monitor');
$on_primary->poll_ok('SELECT samples > 10 FROM pgscale.sampler_stats', 'the primary has a profile');
my $standby = pgscale_standby($primary);
my ($db, $sleeper, $reader, $busy) = map { session($standby) } 1 .. 4;
my $startup = $db->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'startup'});

sub follows_ok
{
    my $lsn = $on_primary->sql('SELECT pg_current_wal_insert_lsn()');
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    # what is inserted need not be flushed
    $on_primary->sql('SELECT pg_switch_wal()');
    return $db->poll_ok("SELECT pg_last_wal_replay_lsn() >= '$lsn'", 'the standby follows');
}

### sampler

$sleeper->start('SELECT pg_sleep(600)');
$db->poll_ok(q{SELECT count(*) FROM pgscale_internal.wait_profile() WHERE event = 'PgSleep' AND queryid IS NOT NULL AND samples > 5},
    'a profile', 1);
$db->poll_ok(q{SELECT count(*) > 0 FROM pgscale_internal.wait_profile() WHERE backend_type = 'startup' AND idle}, 'with the process that replays WAL');
$db->poll_ok(q{SELECT (SELECT count(*) > 0 FROM pgscale.wait_history), (SELECT count(*) > 0 FROM pgscale.top_waits() WHERE item = 'Timeout:PgSleep'),
    (SELECT sum(active_sessions) > 0 FROM pgscale.activity(bucket => '1 s'))}, 'a history, and a past of its own', 't|t|t');
is($db->sql('SELECT event FROM pgscale.wait_current WHERE pid = ' . $sleeper->pid), 'PgSleep', 'the wait of now');

# Replay that waits for a session of the standby: what a standby is asked about.
$db->sql('SELECT pgscale.reset($$sampler$$)');
is($db->sql('SELECT count(*) FROM pgscale_internal.wait_profile() WHERE datid = 1'), 0, 'a reset works there, too');
$on_primary->sql(q{INSERT INTO t VALUES (1)});
follows_ok();
$reader->sql('BEGIN; SELECT * FROM t');
$on_primary->sql('TRUNCATE t');
$db->poll_ok(q{SELECT sum(samples) > 5 FROM pgscale_internal.wait_profile() WHERE backend_type = 'startup' AND event_type = 'Lock'},
    'replay that waits for a lock is seen');
$reader->sql('COMMIT');

### trace, lwlocks, buffer_usage, os_cache

is($db->sql("SELECT count(*) > 0 FROM pgscale.trace_waits($startup, '10 ms')"), 't', 'trace: the startup process');
$db->poll_ok('SELECT max(looks) > 0 OR count(*) = 0 FROM pgscale_internal.lwlock_profile()', 'lwlock_profile');
is($db->sql('SELECT count(*) FROM pgscale.hot_buffers, pgscale.reset($$lwlocks$$)'), 0, 'hot_buffers: no session waits for one');
$db->sql('BEGIN; DECLARE here CURSOR FOR SELECT FROM pages; FETCH here');
is($db->sql(q{SELECT (SELECT sum(buffers) FROM pgscale.buffer_usage()) = (SELECT setting::int FROM pg_settings WHERE name = 'shared_buffers'),
    (SELECT count(*) FROM pgscale.buffer_usage(65536)),
    (SELECT buffers > 0 FROM pgscale.relation_buffers WHERE relation = 'pages'::regclass AND fork = 'main'),
    (SELECT stats_reset IS NOT NULL AND reason IS NOT NULL FROM pgscale.clock_sweep)}), 't|7|t|t', 'buffers');
$db->sql('COMMIT');
$on_primary->sql('UPDATE pages SET i = i + 1');
follows_ok();
is($db->sql(q{SELECT count(*) FROM pgscale.relation_os_cache() WHERE relation = 'pages'::regclass AND fork = 'main'
    AND buffers_bytes > 0 AND size_bytes = pg_relation_size('pages')}), 1, 'relation_os_cache');
is($db->sql(q{SELECT pgscale.os_cache_flush('pages', true) > 0, pgscale.os_cache_flush('pages'), pgscale.os_cache_evict('pages') >= 0}),
    't|0|t', 'flushes and evicts');
is($db->sql('SELECT count(*), sum(i) FROM pages'), '1000|' . (1000 * 1001 / 2 + 1000), 'it is all there');
my $os_cache = q{SELECT state, reason FROM pgscale.health WHERE feature = 'os_cache'};
is($db->sql($os_cache), $on_primary->sql($os_cache), 'health: as on the primary');

### relocation: disks and plans, in a tablespace that lies within each server's own folder

$on_primary->sql(q{CREATE TABLESPACE within LOCATION ''});
follows_ok();
like($db->sql("SELECT read_ms > 0 AND max_ms >= read_ms, reason FROM pgscale.tablespace_latency('$_')"),
    qr/^t\||^\|its file system does not do direct I\/O/, "tablespace_latency: $_") for 'within', 'pg_default';
is(($db->try(q{SELECT pgscale.relocation_plan('within', 1, '1 ms')}))[0], '00000', 'a plan for what the standby reads');
is($db->sql(q{SELECT count(*) FROM pg_tablespace t, pg_ls_tmpdir(t.oid) WHERE spcname = 'within'}), 0, 'nothing is left');

### tuning, scalability, metrics

in_time_ok(sub { $db->sql(q{SELECT since IS NOT NULL AND num_nulls(rewritten_fraction, segment_switches_per_s) = 2
    AND num_nulls(flushes_per_commit, commits_per_flush, flush_ms) = 3 AND reason ~ '^fsync is off' FROM pgscale.wal_efficiency()}) eq 't' },
    'evidence of its own, without WAL of its own; flushes that are not made are not counted as none');
is($db->sql('SELECT count(*) FILTER (WHERE verdict = $$advises$$), count(*) > 20 FROM pgscale.advice_rules()'), '0|t', 'and no advice');
$busy->start(q{DO $$BEGIN WHILE true LOOP PERFORM pg_sleep(0.005); COMMIT; END LOOP; END$$});
in_time_ok(sub { $db->sql('SELECT throughput > 0 FROM pgscale.scalability') eq 't' }, 'its transactions are measured');
$db->poll_ok(q{SELECT concat_ws('|', enabled, state) FROM pgscale.health WHERE feature = '} . $_->[0] . q{'}, "health: $_->[0]", $_->[1])
  for [ 'sampler', 't|working' ], [ 'lwlocks', 't|working' ], [ 'tuning', 't|working' ], [ 'buffer_usage', 't|idle' ];
my $role = q{SELECT labels ->> 'role' FROM pgscale.metrics('fleet') WHERE name = 'pgscale_node_info'};
$db->poll_ok($role, 'metrics', 'standby');
cmp_ok($db->sql('SELECT count(*) FROM pgscale.metrics()'), '>', 100, 'of all features');
$db->poll_ok(q{SELECT count(*) FROM pgscale.metrics('fleet') WHERE name = 'pgscale_node_lag_seconds'}, 'and its lag', 1);

### The runbook: the tables of doc/now.md

$db->sql(q{SELECT pg_create_physical_replication_slot('downstream', true)});
my @rows = slurp_file('doc/now.md') =~ /^\| [^|]+ \| `([^`|]+)`(?: \| [^|]+){1,2} \|$/gm;
cmp_ok(scalar @rows, '>', 30, 'statements of the runbook');
my @failed;
for my $row (@rows)
{
    my ($status, undef, $said) = $standby->psql('postgres', $row, extra_params => [ '-U', 'on_call' ]);
    push @failed, "$row\n$said" if $status != 0 || $said =~ /ERROR/;
}
is(join("\n", @failed), '', 'run on a standby');
$db->sql(q{SELECT pg_drop_replication_slot('downstream')});

### Promotion

my ($pid, $starts, $samples, $ticks) = split /\|/, $db->sql('SELECT pid, starts, samples, ticks FROM pgscale.sampler_stats');
$busy->quit if $db->sql('SELECT pg_terminate_backend(' . $busy->pid . ')') eq 't';
$db->poll_ok(q{SELECT pgscale_internal.now_counts() IS NOT NULL AND (SELECT since IS NOT NULL FROM pgscale.wal_efficiency('1 h'))},
    'evidence of the standby');
$primary->stop;
my $before = $db->sql('SELECT clock_timestamp()');
$standby->promote;
$db->poll_ok("SELECT NOT pg_is_in_recovery() AND ticks > $ticks FROM pgscale.sampler_stats", 'promoted, the sampler goes on');
is($db->sql("SELECT pid, starts, samples > $samples FROM pgscale.sampler_stats"), "$pid|$starts|t", 'in the same process, with what it had');
$db->poll_ok($role, 'metrics', 'primary');
$db->poll_ok("SELECT (pgscale_internal.now_counts()->'minute'->>'s')::float8 < extract(epoch FROM clock_timestamp() - '$before'::timestamptz)",
    'what is usual of a standby is not of the primary that it has become');
$db->poll_ok("SELECT since > '$before' FROM pgscale.wal_efficiency('1 h')", 'nor evidence');

$standby->stop;
done_testing();
