# What pgscale does when it was not preloaded, and when its worker could not be started or is switched off.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $node = pgscale_node('main', preload => '', create => 0);
my $db = session($node);

# not preloaded

$db->sql('CREATE EXTENSION pgscale');
is($db->sql("SELECT count(*) FROM pgscale.wait_current WHERE pid = " . $db->pid . " AND queryid IS NULL"),
    1, 'wait_current needs no preload');
is($db->sql("SELECT event FROM pgscale.wait_meanings WHERE kind = pgscale.wait_kind('Lock', 'tuple')"), 'tuple', 'nor what waits mean');

is($db->sql(q{SELECT c.used >= 1, c.active >= 1, c.max = current_setting('max_connections')::int, c.peak IS NULL, c.peak_since IS NULL
    FROM pgscale_internal.connections() c}), 't|t|t|t|t', 'nor connections, except for the peak');

# where somebody has dropped what new databases have
$db->sql('CREATE DATABASE bare');
my $bare = session($node, dbname => 'bare');
$bare->sql('DROP EXTENSION plpgsql');
like(join(' ', $bare->try('CREATE EXTENSION pgscale')), qr/^42704 .*"plpgsql" is not installed.*HINT: .*CASCADE/s, 'it says what it takes');
is(($bare->try('CREATE EXTENSION pgscale CASCADE; SELECT * FROM pgscale.health'))[0], '00000', 'and gets it');
$bare->quit;

my @needing = split /\n/, $db->sql(<<'EOQ');
SELECT format('%s(%s)', oid::regproc, CASE
           WHEN proname = 'keep' THEN '''pg_class'''
           WHEN proname = 'compare_waits' THEN 'NULL, NULL, NULL, NULL'
           WHEN proname = 'past_items' THEN 'NULL, NULL, ''event'', 1'
           WHEN proname = 'past_differences' THEN 'NULL, NULL, NULL, NULL, ''event'', 1'
           WHEN proname IN ('relocate_index', 'relocate_indexes') THEN '''pg_class'', ''pg_default'''
           WHEN proname IN ('relocate_all_indexes', 'relocate_tablespace') THEN '''pg_default'', ''pg_default'''
           WHEN proname = 'relocate_table' THEN '''pg_class'', ''pg_default'''
           WHEN proname IN ('relocation_cancel', 'relocation_undo', 'verify') THEN '1' END)
  FROM pg_proc
 WHERE pronamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace) AND prokind = 'f'
   AND proname NOT IN ('connections', 'connections_ages', 'connections_by_application', 'health', 'wait_current', 'query_waits', 'blockers', 'lock_waits', 'diagnosis', 'buffer_usage', 'buffer_usage_sample',
                       'relation_buffers', 'clock_sweep', 'hot_buffers', 'relation_os_cache', 'os_cache_flush', 'os_cache_evict', 'writeback_stats',
                       'tablespace_latency', 'relocation_bytes', 'relocation_database_bytes', 'relocation_staying', 'relocation_obstacle',
                       'relocation_describe_index', 'relocation_progress', 'relocation_copyable', 'node_identity', 'node_manager', 'node_state', 'numa_nodes', 'numa_buffers', 'query_waits_statements', 'query_waits_text_fits', 'short_locks', 'tuning_journal', 'row_origin',
                       'wait_kind', 'wait_kinds', 'past_archive', 'past_keep', 'past_queries', 'session_queries', 'statement_command', 'statement_texts', 'unidentified_statement', 'cancel', 'terminate', 'clean_line', 'clean_statement', 'clean_text', 'is_secret', 'foreign_name', 'foreign_text', 'major', 'setting_text', 'three_digits',
                       'discard_replicated', 'keep_local', 'published', 'require_library')
   AND proname !~ '^(archive_|fleet|metrics_|now_|usl_|report|relocation_(plan|window|btree_bytes|copy_or_rebuild|costs|effort|fit|write_rate)|trace_(waits|summary))'
 ORDER BY 1
EOQ
cmp_ok(scalar @needing, '>=', 5, 'functions that need shared memory');
for my $call (@needing)
{
    my ($state, $text) = $db->try("SELECT * FROM $call");
    is($state, '55000', "$call without preload: object_not_in_prerequisite_state");
    like($text, qr/HINT: .*pgscale.*shared_preload_libraries/, "$call says what to do");
}
is($db->sql(q{SELECT feature, enabled, state, reason ~ 'not loaded', action ~ 'shared_preload_libraries'
    FROM pgscale.health WHERE feature NOT IN ('numa', 'os_cache', 'trace', 'version') ORDER BY 1}),
    join("\n", 'archive|f|off|t|t', 'buffer_usage|t|idle|t|t', map { /sweeper|writeback/ ? "$_|f|off|t|t" : "$_|t|broken|t|t" }
          qw(lwlocks query_waits relocation sampler scalability sweeper tuning writeback)), 'health says that it is not loaded');
is($db->sql(q{SET pgscale.sweeper = on; SELECT state FROM pgscale.health WHERE feature = 'sweeper'}), 'broken', 'what is asked for is broken');
$db->sql('CREATE EXTENSION pg_stat_statements') if have_module('pg_stat_statements');
my ($state, $text) = $db->try('SELECT * FROM pgscale.query_waits');
is($state, '55000', 'query_waits without preload, pg_stat_statements created or not');
like($text, qr/ERROR: +55000: pg_stat_statements is not loaded.*\nHINT: .*shared_preload_libraries.*\nCONTEXT: +PL\/pgSQL function .*\nLOCATION: .*\z/,
    'says what to do, in few lines');
$db->sql('DROP EXTENSION IF EXISTS pg_stat_statements');
is($db->sql(q{SELECT num_nulls(state, reason, state_change, cluster_dirty_bytes, cap_bytes, peak_dirty_bytes, skipped_bytes,
    redirty_fraction, server_bytes_per_s, disk_bytes_per_s, window_bytes, written_bytes, found_bytes, unseen_bytes, requests,
    requested_bytes, taken_bytes, request_ms, backed_off, rounds, errors, cpu_ms, stats_reset), dirty_bytes >= 0
    FROM pgscale.writeback_stats}), '23|t', 'writeback_stats without preload: what the kernel tells, and nothing else');

# no room for the worker: the only place is the logical replication launcher's

$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pgscale'\nmax_worker_processes = 1");
$node->restart;
$db = session($node);
is($db->sql(q{SELECT enabled, state, reason, action FROM pgscale.health WHERE feature = 'sampler'}),
    't|broken|the server has no slot for its background worker; max_worker_processes is 1|raise max_worker_processes and restart',
    'no worker: the first look at health names max_worker_processes');
is($db->sql('SELECT pid IS NULL, starts, ticks, samples FROM pgscale.sampler_stats'), 't|0|0|0',
    'no worker: nothing was sampled');
is($db->sql('SELECT count(*) FROM pgscale.wait_profile()'), 0, 'no worker: an empty profile');

# switched off and on

$node->append_conf('postgresql.conf', "max_worker_processes = 12\ncompute_query_id = on");
$node->restart;
$db = session($node);
$db->poll_ok('SELECT ticks > 10 FROM pgscale.sampler_stats', 'the sampler ticks');
is($db->sql(q{SELECT string_agg(concat_ws(' ', module_name, version, file_name), ', ') FROM pg_get_loaded_modules() WHERE file_name ~ 'pgscale'}),
    $db->sql(q{SELECT concat_ws(' ', extname, extversion, 'pgscale.so') FROM pg_extension WHERE extname = 'pgscale'}),
    'the library has the name and the version of the extension') if $db->sql('SHOW server_version_num') >= 180000;
$db->poll_ok(q{SELECT state = 'working' FROM pgscale.health WHERE feature = 'sampler'}, 'health says that it works');

$db->sampler('off');
my $ticks = $db->sql('SELECT ticks FROM pgscale.sampler_stats');
is($db->sql(q{SELECT enabled, state, reason ~ 'switched off', action ~ 'pgscale.sampler to on' FROM pgscale.health
    WHERE feature = 'sampler'}), 'f|off|t|t', 'switched off: health says so');
my ($pid, $observed) = split /\|/, $db->sql('SELECT pid, observed_ms FROM pgscale.sampler_stats');

# so long that it would tick many times
$db->sql('SELECT pg_sleep(0.5)');
is($db->sql('SELECT ticks FROM pgscale.sampler_stats'), $ticks, 'switched off: no ticks');
$db->sql('CREATE TABLE switched_on AS SELECT clock_timestamp() AS at');
$db->sampler('on');
$db->poll_ok("SELECT ticks > $ticks FROM pgscale.sampler_stats", 'switched on: it ticks again');
is($db->sql("SELECT pid, observed_ms - $observed < 100 + 1000 * extract(epoch FROM clock_timestamp() - at)
    FROM pgscale.sampler_stats, switched_on"), "$pid|t", 'the same process, and time while it was off is not counted');

# a period set by reload

$db->sql('ALTER SYSTEM SET pgscale.sampler_period = 7');
$db->sql('SELECT pg_reload_conf()');
$db->poll_ok('SELECT period_ms FROM pgscale.sampler_stats', 'the period follows the setting', 7);

# Its ticks keep a schedule: counted or missed, there is one for each period that has passed, also while the process was stopped. A
# late one may be missing at the moment, so the next time will do. A timer that drifts loses half a period at each stop, on average;
# one that counts a tick twice is ahead.
$db->set('pgscale.sampler_period', 1);
$db->poll_ok('SELECT period_ms FROM pgscale.sampler_stats', 'a tick each millisecond', 1);
my $schedule = q{SELECT ticks + missed_ticks, observed_ms, extract(epoch FROM clock_timestamp()) * 1000 FROM pgscale.sampler_stats};
my @passed;
until_ok(sub {
    my @from = split /\|/, $db->sql($schedule);
    for (1 .. 100) { for my $signal (qw(STOP CONT)) { kill $signal, $pid; usleep(2500); } }
    @passed = split /\|/, $db->sql($schedule);
    $passed[$_] -= $from[$_] for 0 .. 2;
    return abs($passed[0] - $passed[1]) <= 10 && abs($passed[0] - $passed[2]) <= 10;
}, 'it ticks when it should') or diag "@passed";

### Processes

# each as pg_stat_activity has it
$db->sql(q{CREATE TABLE many (i int) WITH (parallel_workers = 2); INSERT INTO many SELECT generate_series(1, 5000);
    CREATE FUNCTION hold(int) RETURNS int LANGUAGE plpgsql PARALLEL SAFE AS 'BEGIN PERFORM pg_sleep(600); RETURN 1; END'});
my %session = map { $_ => session($node) } qw(idle open aborted busy parallel pausing);
$session{open}->sql('BEGIN; SELECT 1');
$session{aborted}->sql('BEGIN');
$session{aborted}->try('SELECT 1 / 0');
$session{busy}->start('SELECT pg_sleep(600)');
$session{parallel}->sql("SET $_") for 'parallel_setup_cost = 0', 'parallel_tuple_cost = 0', 'min_parallel_table_scan_size = 0';
$session{parallel}->start('SELECT sum(hold(i)) FROM many');
$session{pausing}->start('SELECT * FROM pgscale_internal.relocation_window(600000)');
$db->poll_ok(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker' AND wait_event = 'PgSleep'}, 'parallel workers', 2);
$db->poll_ok(q{SELECT coalesce(string_agg(concat_ws(' ', a, w), '; '), '') FROM pg_stat_activity a FULL JOIN pgscale.wait_current w USING (pid)
    WHERE pid IS DISTINCT FROM pg_backend_pid() AND
        (a.backend_type, a.state, a.datname, a.usename, a.leader_pid, CASE a.state WHEN 'active' THEN a.query_id END,
         CASE WHEN a.state LIKE 'idle in%' THEN 'IdleInTransaction' ELSE a.wait_event END)
        IS DISTINCT FROM (w.backend_type, w.state, w.datname, w.usename, w.leader_pid, w.queryid, w.event)}, 'each process is what pg_stat_activity says', '');
is($db->sql(q{SELECT DISTINCT queryid FROM pgscale.wait_current WHERE leader_pid = } . $session{parallel}->pid), $db->queryid($session{parallel}),
    'parallel workers count for the statement of their leader');
$db->set('pgscale.writeback', 'on');
$db->sql('SELECT pgscale.reset($$sampler$$)');
$db->poll_ok(q{SELECT string_agg(DISTINCT concat_ws(' ', backend_type, regexp_replace(event, '^Pgscale.*', 'Extension'), idle), ', ')
      FROM pgscale.wait_profile() WHERE event ~ '^(ClientRead|IdleInTransaction|CheckpointerMain|PgSleep|Extension|Pgscale.*)$'
       AND backend_type IN ('checkpointer', 'client backend', 'parallel worker', 'pgscale writeback')},
    'idle is who waits for its client or in its main loop', join ', ', 'checkpointer CheckpointerMain t', 'client backend ClientRead t',
    'client backend Extension f', 'client backend IdleInTransaction f', 'client backend PgSleep f', 'parallel worker PgSleep f',
    'pgscale writeback Extension t');
$db->sql('SELECT pg_terminate_backend(' . $_->pid . ')') for values %session;

# Switched off it waits for nothing but its latch, and still does not outlive the postmaster.
$db->sampler('off');
$db->quit;
kill_postmaster($node);
until_ok(sub { process_state($pid) =~ /^[ZX]?$/ }, 'switched off, the sampler ends with the postmaster')
  or kill 'KILL', $pid;

### Another file than the one that the server finds by its name

my ($folder, $installed) = (PostgreSQL::Test::Utils::tempdir_short(), qx(pg_config --pkglibdir) =~ s/\n//r);
system("cp '$installed/pgscale.so' '$folder/other.so'") == 0 or die 'the library cannot be copied';
my $other = pgscale_node('other', preload => "$folder/other", create => 0, conf => 'pgscale.writeback = on');
my $there = session($other);
$there->poll_ok(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type IN ('pgscale sampler', 'pgscale writeback')}, 'its workers run', 2);
unlike(slurp_file($other->logfile), qr/terminated by signal|reinitializing/, 'and none has crashed');
# before 16 it cannot even be loaded
my ($refused) = $there->try('CREATE EXTENSION pgscale');
($refused) = $there->try('SELECT * FROM pgscale.wait_history') if $refused eq '00000';
is($refused, '55000', 'SQL finds the one that is not set up, which says so');
$there->quit;
$other->stop;

done_testing();
