# What pgscale does when it was not preloaded, when its worker could not be started, is switched off, or the server is in
# single-user mode; and that the processes which the sampler sees are those of pg_stat_activity. Nothing is broken at any moment
# in between.
# Runs on each major.
# Waits for long.
use strict;
use warnings;
use PgscaleCalls;
use PgscaleTest;
use PgscaleWire;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $node = pgscale_node('main', preload => '', create => 0);
my $db = session($node);

### Not preloaded

$db->sql('CREATE EXTENSION pgscale');
is($db->sql('SELECT count(*) FROM pgscale.wait_current WHERE queryid IS NULL AND pid = ' . $db->pid), 1, 'wait_current needs no preload');
is($db->sql("SELECT event FROM pgscale.wait_meanings WHERE kind = pgscale.wait_kind('Lock', 'tuple')"), 'tuple', 'nor what waits mean');
is($db->sql(q{SELECT c.used >= 1, c.active >= 1, c.max = current_setting('max_connections')::int, c.peak IS NULL, c.peak_since IS NULL
    FROM pgscale_internal.connections() c}), 't|t|t|t|t', 'nor connections, except for the peak');

# where a database has not what new ones have
$db->sql('CREATE DATABASE bare');
my $bare = session($node, dbname => 'bare');
$bare->sql('DROP EXTENSION plpgsql');
like(join(' ', $bare->try('CREATE EXTENSION pgscale')), qr/^42704 .*"plpgsql" is not installed.*HINT: .*CASCADE/s, 'it says what it takes');
is(($bare->try('CREATE EXTENSION pgscale CASCADE; SELECT * FROM pgscale.health'))[0], '00000', 'and gets it');
$bare->quit;

# All calls: what needs shared memory says what to do.
my $wire = wire($node);
my (%needs, @wrong);
$wire->value($_) for 'CREATE TABLE t (a int PRIMARY KEY)', 'CREATE TABLE p (b int PRIMARY KEY)', q{SET statement_timeout = '5s'};
for my $call (calls_known($wire))
{
    my $text = ($call->{procedure} ? "CALL $call->{name}" : "SELECT * FROM $call->{from}") =~ s/\b(?:job|change)\(\w+\)/1/gr =~ s/\bi\b/7/gr;
    my $result = $wire->run($text);

    $needs{ $call->{name} =~ s/\(.*//sr } = 1
      if $result->{state} eq '55000' && $result->{message} eq 'pgscale is not loaded into the server';
    push @wrong, "$result->{state} $result->{message}: $text"
      if $result->{state} =~ /^(?:XX|08|57P)/ || $result->{state} eq '55000' && "$result->{hint}$result->{message}" !~ /shared_preload_libraries|pg_stat_statements|only the archive's worker/;
}
is(join("\n", @wrong), '', 'without preload each call answers, or says what to do');
my @need = qw(activity advice advice_rules apply apply_all blocker_profile compare_waits contention keep kept_relations lwlock_profile
  lwlock_tranches metrics past_waits relocate_indexes relocate_table relocate_tablespace
  relocation_cancel relocation_undo replacement_stats reset sampler_stats scalability sweeper_stats top_waits
  trace_history verify wait_history wait_profile wal_efficiency);
is(join(' ', sort map { /^pgscale\.(\w+)/ } keys %needs), "@need", 'these need the library, and no others do');
$wire->quit;
is($db->sql(q{SELECT feature, enabled, state, reason ~ 'not loaded', action ~ 'shared_preload_libraries'
    FROM pgscale.health WHERE feature NOT IN ('numa', 'os_cache', 'trace', 'version') ORDER BY 1}),
    join("\n", 'archive|f|off|t|t', 'buffer_usage|t|idle|t|t', map { /sweeper|writeback/ ? "$_|f|off|t|t" : "$_|t|broken|t|t" }
          qw(lwlocks query_waits relocation sampler scalability sweeper tuning writeback)), 'health says that it is not loaded');
# numa is off where the machine does not let it look
is($db->sql(q{SELECT state = 'off' OR state = 'idle' AND reason ~ 'not loaded' AND action ~ 'shared_preload_libraries',
    state = 'off' OR (SELECT sum(bytes) FROM pgscale.numa_buffers()) = pg_size_bytes(current_setting('shared_buffers'))
    FROM pgscale.health WHERE feature = 'numa'}), 't|t', 'numa places nothing, and numa_buffers works');
is($db->sql(q{SET pgscale.sweeper = on; SELECT state FROM pgscale.health WHERE feature = 'sweeper'}), 'broken', 'what is asked for is broken');
$db->sql('CREATE EXTENSION pg_stat_statements') if have_module('pg_stat_statements');
like(($db->try('SELECT * FROM pgscale.query_waits'))[1],
    qr/ERROR: +55000: pg_stat_statements is not loaded.*\nHINT: .*shared_preload_libraries.*\nCONTEXT: +PL\/pgSQL function .*\nLOCATION: .*\z/,
    'query_waits says what to do, in few lines');
like($db->sql('SELECT to_jsonb(s) FROM pgscale.writeback_stats s'), qr/^\{"state": null.*"dirty_bytes": \d+/, 'writeback_stats has what the kernel tells');

### No room for the worker: the only place is the logical replication launcher's

$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pgscale'\nmax_worker_processes = 1");
$node->restart;
$db = session($node);
is($db->sql(q{SELECT enabled, state, reason, action FROM pgscale.health WHERE feature = 'sampler'}),
    't|broken|the server has no slot for its background worker; max_worker_processes is 1|raise max_worker_processes and restart',
    'the first look at health names max_worker_processes');
is($db->sql('SELECT pid IS NULL, starts, ticks, samples, (SELECT count(*) FROM pgscale_internal.wait_profile()) FROM pgscale.sampler_stats'), 't|0|0|0|0',
    'nothing was sampled');

### Starts, restarts of workers, and switches: nothing is broken, at no moment

my $broken = q{SELECT string_agg(feature || ': ' || reason, '; ') FROM pgscale.health WHERE state = 'broken'};
sub not_broken
{
    my ($until, $name) = @_;
    my @seen;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    until_true(sub { push @seen, $db->sql($broken); $db->sql($until) eq 't' }) or push @seen, "never: $until";
    return is(join('', @seen), '', $name);
}
# In single-user mode no worker runs, and it says so.
sub single_user
{
    my $out = '';

    IPC::Run::run([ 'postgres', '--single', '-j', '-D', $node->data_dir, 'postgres' ], '<',
        \"SELECT feature, state, reason FROM pgscale.health WHERE feature IN ('sampler', 'relocation');\n\n", '>&', \$out,
        IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
    is(scalar(() = $out =~ /state = "broken"[^\n]*\n[^\n]*reason = "the server is in single-user mode, in which no background worker runs"/g), 2,
        'single-user mode') or diag $out;
    return;
}
$node->append_conf('postgresql.conf', "max_worker_processes = 12\ncompute_query_id = on\npgscale.writeback = on\nfsync = on");
for my $how ('fast', 'immediate')
{
    $db->quit;
    $node->stop($how);
    single_user() if $how eq 'fast';
    $node->start;
    $db = session($node);
    not_broken(q{SELECT bool_and(state IN ('off', 'idle', 'working')) FROM pgscale.health}, "nothing is broken after a $how stop and a start");
}
for my $type ('pgscale sampler', 'pgscale writeback')
{
    my $pid = $db->sql("SELECT pid FROM pg_stat_activity WHERE backend_type = '$type'");

    $db->sql("SELECT pg_terminate_backend($pid)");
    not_broken("SELECT count(*) = 1 FROM pg_stat_activity WHERE backend_type = '$type' AND pid <> $pid", "nor while $type is started again");
}
is($db->sql(q{SELECT string_agg(concat_ws(' ', module_name, version, file_name), ', ') FROM pg_get_loaded_modules() WHERE file_name ~ 'pgscale'}),
    $db->sql(q{SELECT concat_ws(' ', extname, extversion, 'pgscale.so') FROM pg_extension WHERE extname = 'pgscale'}),
    'the library has the name and the version of the extension') if server_major() >= 18;
$db->poll_ok('SELECT ticks > 10 FROM pgscale.sampler_stats', 'the sampler ticks');
$db->sampler('off');
my ($ticks, $pid, $observed) = split /\|/, $db->sql('SELECT ticks, pid, observed_ms FROM pgscale.sampler_stats');
# a sampler that has just started again has not switched them off yet
$db->poll_ok(q{SELECT string_agg(feature, ' ' ORDER BY feature), coalesce(bool_or(state <> 'off'), true) FROM pgscale.health
    WHERE reason = 'this feature needs the sampler, which is off'}, 'without the sampler, what lives on it is off', 'lwlocks scalability tuning|f');
# so long that it would tick many times
$db->sql('SELECT pg_sleep(0.5)');
is($db->sql('SELECT ticks FROM pgscale.sampler_stats'), $ticks, 'switched off: no ticks');
$db->sql('CREATE TABLE switched_on AS SELECT clock_timestamp() AS at');
$db->sampler('on');
not_broken("SELECT ticks > $ticks FROM pgscale.sampler_stats", 'switched on: it ticks again');
is($db->sql("SELECT pid, observed_ms - $observed < 100 + 1000 * extract(epoch FROM clock_timestamp() - at)
    FROM pgscale.sampler_stats, switched_on"), "$pid|t", 'the same process, and time while it was off is not counted');

# Its ticks keep a schedule: counted or missed, there is one for each period that has passed, also while the process was stopped. A
# late one may be missing at the moment, so the next time will do. A timer that drifts loses half a period at each stop, on average;
# one that counts a tick twice is ahead.
$db->set('pgscale.sampler_period', 1);
$db->poll_ok('SELECT period_ms FROM pgscale.sampler_stats', 'a tick each millisecond', 1);
my $schedule = q{SELECT ticks + missed_ticks, observed_ms, extract(epoch FROM clock_timestamp()) * 1000 FROM pgscale.sampler_stats};
my @passed;
until_ok(sub {
    my @from = split /\|/, $db->sql($schedule);
    for (1 .. 50) { for my $signal (qw(STOP CONT)) { kill $signal, $pid; usleep(2500); } }
    @passed = split /\|/, $db->sql($schedule);
    $passed[$_] -= $from[$_] for 0 .. 2;
    return abs($passed[0] - $passed[1]) <= 10 && abs($passed[0] - $passed[2]) <= 10;
}, 'it ticks when it should') or diag "@passed";
$db->set('pgscale.sampler_period', undef);

### Processes, each as pg_stat_activity has it

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
$db->sql('SELECT pgscale.reset($$sampler$$)');
$db->poll_ok(q{SELECT string_agg(DISTINCT concat_ws(' ', backend_type, regexp_replace(event, '^Pgscale.*', 'Extension'), idle), ', ')
      FROM pgscale_internal.wait_profile() WHERE event ~ '^(ClientRead|IdleInTransaction|CheckpointerMain|PgSleep|Extension|Pgscale.*)$'
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
