# The sweeper from its being switched on to its end: what it does, counts and says, and what it obeys.
# Runs on each major.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main', conf => <<"EOC");
shared_buffers = 8MB
max_worker_processes = 32
checkpoint_timeout = 1h
fsync = on
synchronous_commit = off
EOC
my $db = session($node);
my $rows = 40000;

sub stats { my $columns = shift; return $db->sql("SELECT $columns FROM pgscale.sweeper_stats"); }

# Waits until the load has done that much more.
sub load_goes_on
{
    my $name = shift;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my $n = $db->sql('SELECT sum(n) FROM churned');

    return $db->poll_ok("SELECT sum(n) > $n + 5000 FROM churned", $name);
}

# Pages that backends wrote, by the server's own counts. On 15 those of background workers are among them.
my $by_backends = $db->sql('SHOW server_version_num') >= 160000
  ? q{SELECT sum(writes) FROM pg_stat_io WHERE object = 'relation' AND backend_type IN ('client backend', 'startup')}
  : 'SELECT buffers_backend - (SELECT written FROM pgscale.sweeper_stats) FROM pg_stat_bgwriter';

# Until a session has written so much that the condition holds. From 16 on, sessions report what they wrote when they are idle,
# which those of the load never are. So this one reads a table that is larger than the buffers, for which it must write, too.
sub written_until
{
    my $condition = shift;

    return until_true(sub { $db->sql('SELECT sum(n) FROM churn'); return $db->sql("SELECT $condition") eq 't' });
}

# Off by default: nothing happens, whatever the load.
$db->churn_table($rows);
my (undef, $written_before) = split /\|/, $db->sql("SELECT pgscale.reset('sweeper'), ($by_backends)");
my @churning = churn($node, 4);
load_goes_on('a load, and no sweeper');
is(stats(q{writers, state, reason, scanned, supplied_clean, supplied_written, written, starved}),
    '0|off|it is switched off|0|0|0|0|0', 'it is off by default, and does nothing');
written_until('backend_writes > 500 FROM pgscale.sweeper_stats');
$db->poll_ok("SELECT backend_writes > 500, backend_writes - (($by_backends) - $written_before) FROM pgscale.sweeper_stats",
    'backends write for themselves, as many pages as the server says', 't|0');
# A reset of the server's statistics may take what was written in the second before, and no more.
my $counted = stats('backend_writes');
$db->sql(q{SELECT pg_stat_reset_shared(CASE WHEN current_setting('server_version_num')::int >= 160000 THEN 'io' ELSE 'bgwriter' END)});
my $agree = "b BETWEEN $counted + w AND $counted + w + 5000 FROM (SELECT ($by_backends) AS w, backend_writes AS b, written FROM pgscale.sweeper_stats) s";
written_until("($by_backends) > 0");
$db->poll_ok("SELECT w > 0, $agree", 'and when the server begins to count anew, what it had counted stays', 't|t')
  or diag "before: $counted; ", stats("backend_writes, ($by_backends)");
is($db->sql(q{SELECT enabled, state, reason, action FROM pgscale.health WHERE feature = 'sweeper'}),
    'f|off|it is switched off|set pgscale.sweeper to auto and reload', 'and health says so');
is(join(' ', $db->sweeper_pids), '', 'it has no process');

# On
$db->set('pgscale.sweeper', 'on');
$db->poll_ok('SELECT state, reason FROM pgscale.sweeper_stats', 'switched on, it works',
    'working|pgscale.sweeper is on, not auto');
$db->sweeps_on('it supplies and writes');
$db->poll_ok('SELECT neighbours > 0 FROM pgscale.sweeper_stats', 'it writes neighbours')
  or diag stats('*');
$db->poll_ok('SELECT consumed > 1000 AND reused > 0 FROM pgscale.sweeper_stats', 'what it supplies is taken, used or not')
  or diag stats('*');
is($db->sql(q{SELECT enabled, state, reason, action FROM pgscale.health WHERE feature = 'sweeper'}),
    't|working|pgscale.sweeper is on, not auto|', 'health says that it works');
my $writers = q{SELECT writers, (SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pgscale sweeper writer')
    FROM pgscale.sweeper_stats};
for my $wanted (1, 3)
{
    $db->set('pgscale.sweeper_writers', $wanted);
    $db->poll_ok($writers, "$wanted writers", "$wanted|$wanted");
}
$db->set('pgscale.sweeper_writers');
is(stats('low_watermark, high_watermark'), '20|51', 'watermarks are fractions of the 1024 buffers');
$db->set('pgscale.sweeper_high_watermark', '0.2');
$db->poll_ok('SELECT low_watermark, high_watermark FROM pgscale.sweeper_stats', 'watermarks follow the setting', '81|204');
$db->poll_ok('SELECT ready BETWEEN 60 AND 260 FROM pgscale.sweeper_stats', 'and the stock does');
$db->poll_ok("SELECT written > 10000 AND $agree", q{the sweeper's pages are none of what backends wrote})
  or diag "before: $counted; ", stats("written, backend_writes, ($by_backends)");
$db->set('pgscale.sweeper_high_watermark', '0.0001');
$db->poll_ok('SELECT low_watermark, high_watermark FROM pgscale.sweeper_stats', 'the least are still apart', '1|2');
$db->sweeps_on('and it goes on');
$db->set('pgscale.sweeper_high_watermark');
$db->poll_ok('SELECT low_watermark, high_watermark FROM pgscale.sweeper_stats', 'the defaults again', '20|51');

# Off, while the load goes on
$db->set('pgscale.sweeper', 'off');
$db->poll_ok('SELECT state, reason FROM pgscale.sweeper_stats', 'switched off, it stops', 'off|it is switched off');
# a run that was begun is written to its end
$db->poll_ok($writers, 'its writers end', '0|0');
until_ok(sub { $db->sweeper_pids == 0 }, 'and the sweeper');
my $counts = 'scanned, supplied_clean, supplied_written, written, runs, starved, ready >= 0';
my $before = stats($counts);
load_goes_on('the load goes on');
is(stats($counts), $before, 'and it does nothing more');
$db->churn_end(@churning);
$db->churn_right('the data is right');

# What was counted fits together.
is(stats(q{
    consumed + reused <= supplied_clean + supplied_written AND consumed > 0, supplied_written <= written,
    queued + decremented + supplied_clean <= scanned,
    (SELECT sum(c) FROM unnest(runs_by_pages) c) = runs AND array_length(runs_by_pages, 1) = 8,
    written >= (SELECT sum(c * p) FROM unnest(runs_by_pages, ARRAY[1, 2, 3, 5, 9, 17, 33, 65]) r (c, p)),
    runs_by_pages[8] > 0 OR written <= (SELECT sum(c * p) FROM unnest(runs_by_pages[1:7], ARRAY[1, 2, 4, 8, 16, 32, 64]) r (c, p)),
    neighbours BETWEEN 0 AND written - 1, runs BETWEEN 1 AND written,
    writeback_calls <= (SELECT sum(c) FROM unnest(runs_by_pages[5:8]) c), least(write_ms, cpu_ms, writer_cpu_ms) > 0,
    errors}),
    't|t|t|t|t|t|t|t|t|t|0', 'its counts fit together') or diag stats('row_to_json(sweeper_stats)');

# Reset
my $zeros = q{ticks + scanned + decremented + supplied_clean + supplied_written + consumed + reused + queued + starved + runs +
    (SELECT sum(c) FROM unnest(runs_by_pages) c) + written + neighbours + skipped_pinned + skipped_locked + skipped_wal +
    skipped_changed + write_ms + writeback_calls + writeback_ms + wal_flushes + errors + writer_cpu_ms};
isnt(stats($zeros), '0', 'there are counts');
my $now = $db->sql('SELECT clock_timestamp()');
$db->sql('SELECT pgscale.reset($$sweeper$$)');
is(stats($zeros), '0', 'reset: there are none');
is(stats("stats_reset >= '$now', cpu_ms >= 0, state"), 't|t|off', 'and the rest stays');

# How long runs get: pages that were filled one after the other are dirty side by side
$db->set('pgscale.sweeper', 'on');
$db->poll_ok('SELECT state FROM pgscale.sweeper_stats', 'on again', 'working');
$db->sql('CREATE TABLE bulk (filler char(4000))');
sub bulk { $db->sql(q{INSERT INTO bulk SELECT '' FROM generate_series(1, 5000)}); return; }
until_ok(sub { bulk(); stats('runs_by_pages[7] > 0 AND writeback_calls > 0') eq 't' },
    'runs of more than 32 pages, and the kernel is to begin with them');
is(stats('runs_by_pages[8]'), 0, 'none of more than 64');
$db->poll_ok(q{SELECT writeback_ms > 0, writeback_calls BETWEEN (SELECT sum(c) FROM unnest(runs_by_pages[6:8]) c)
    AND (SELECT sum(c) FROM unnest(runs_by_pages[5:8]) c) FROM pgscale.sweeper_stats},
        'it is asked for those of 16 pages and more', 't|t')
  or diag stats('row_to_json(sweeper_stats)');
$db->sql('DROP TABLE bulk');

# Restarts: the settings stay, counts begin anew. Values that cannot be, and settings that are gone, in the file, keep the server
# neither from starting nor from taking other settings over.
$db->quit;
my $log = -s $node->logfile;
my %wrong = (
    'pgscale.sweeper_writers' => 17,
    'pgscale.sweeper_high_watermark' => "'NaN'", 'pgscale.sweeper_low_watermark' => '0.02');
$node->append_conf('postgresql.conf', join "\n", map { "$_ = $wrong{$_}" } sort keys %wrong);
$now = $node->safe_psql('postgres', 'SELECT clock_timestamp()');
$node->stop;
ok($node->start(fail_ok => 1), 'the server starts with values that cannot be');
$db = session($node);
like(slurp_file($node->logfile, $log), qr/^(?=.*WARNING)(?=.*$_)/m, "start: $_ = $wrong{$_} is refused") for sort keys %wrong;
is($db->sql(q{SELECT string_agg(setting, ' ' ORDER BY name COLLATE "C") FROM pg_settings
    WHERE name IN ('pgscale.sweeper_high_watermark', 'pgscale.sweeper_writers')}),
    $db->sql(q{SELECT string_agg(boot_val, ' ' ORDER BY name COLLATE "C") FROM pg_settings
    WHERE name IN ('pgscale.sweeper_high_watermark', 'pgscale.sweeper_writers')}),
    'and has the defaults instead');
is(stats("stats_reset > '$now', count(*) OVER ()"), 't|1', 'the counts begin anew');
$db->set('pgscale.sweeper_high_watermark', '0.1');
$db->poll_ok('SHOW pgscale.sweeper_high_watermark', 'a reload takes others over', '0.1');
@churning = churn($node, 4);
$db->sweeps_on('after the restart it works');

# Shutdowns: by pg_ctl's limit, which is far above what they take
sub gone_ok
{
    my ($name, @pids) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    cmp_ok(scalar @pids, '>=', 2, "$name: there were processes");
    return until_ok(sub { !grep { process_state($_) =~ /^[^Z]$/ } @pids }, "$name: and none is left");
}
$ENV{PGCTLTIMEOUT} = $PostgreSQL::Test::Utils::timeout_default;
my @pids = $db->sweeper_pids;
ok($node->stop('fast', fail_ok => 1), 'fast shutdown under load') or BAIL_OUT('the server does not stop');
gone_ok('fast shutdown', @pids);
$_->quit for $db, @churning;

$node->start;
$db = session($node);
$db->churn_right('after a fast shutdown under load the data is right');
@churning = churn($node, 4);
$db->sweeps_on('it works again');
@pids = $db->sweeper_pids;
$db->churn_end(@churning);
$db->quit;
ok($node->stop('smart', fail_ok => 1), 'smart shutdown') or BAIL_OUT('the server does not stop');
gone_ok('smart shutdown', @pids);

# Where data goes past the kernel's cache, there is nothing for it to write back, and the server must not be asked to.
SKIP:
{
    IPC::Run::run([ 'postgres', '-D', $node->data_dir, '-C', 'debug_io_direct' ], '>', \my $setting, '2>', \my $none)
      or skip 'this server knows no direct I/O', 2;
    $node->append_conf('postgresql.conf', "debug_io_direct = data\npgscale.sweeper_high_watermark = 0.05");
    skip 'this file system knows no direct I/O', 2 unless $node->start(fail_ok => 1);
    $db = session($node);
    $db->sql('CREATE TABLE bulk (filler char(4000))');
    until_ok(sub { bulk(); return stats('runs_by_pages[7] > 0') eq 't' }, 'with direct I/O, there are long runs, too');
    is(stats('writeback_calls'), 0, 'and no writeback is asked for');
    $db->quit;
    $node->stop('immediate');
}

done_testing();
