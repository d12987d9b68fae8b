# What is wrong now, on servers with known faults: the first line names the cause and never a victim; roles, a standby, and what is
# known without preload. The rules' thresholds are in sql/now.sql.
use strict;
use warnings;
use IPC::Run;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

my $node = pgscale_node('main', init => [ allows_streaming => 1 ], conf => <<'EOC');
max_connections = 60
deadlock_timeout = 10min
max_worker_processes = 16
EOC
my $db = session($node);
$db->sql('CREATE ROLE monitor LOGIN IN ROLE pg_monitor');
$db->sql('CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 10) i');
my $monitor = session($node, user => 'monitor');
my $first = 'SELECT now FROM pgscale.now LIMIT 1';

# The first finding has this rule, this pid, this in its sentence, and this certainty and cure if they are given; and so has the screen
sub cause_ok
{
    my ($session, $rule, $pid, $sentence, $name, %has) = @_;
    my ($certainty, $cure) = map { quotemeta($has{$_} // '') } qw(certainty cure);
    my $expected = qr/^\Q$rule|$pid|\E$certainty\w*[|].*$sentence.*[|]$cure/;
    my ($found, $screen) = ('', '');
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    until_true(sub {
        $found = $session->sql(q{SELECT concat_ws('|', rule, pid, certainty, sentence, cure) FROM pgscale.diagnosis() WHERE rank = 1});
        return $found =~ $expected;
    });
    like($found, $expected, $name);
    until_true(sub { ($screen = $session->sql('SELECT now FROM pgscale.now LIMIT 2')) =~ $sentence });
    like($screen, qr/$sentence[^\n]* \[\Q$rule\E\]\n  /, "$name: the screen");
    return;
}

# No finding names one of these
sub unnamed_ok
{
    my ($name, @victims) = @_;
    my $pids = join ', ', map { $_->pid } @victims;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return is($db->sql(qq{SELECT string_agg(sentence, ' ') FROM pgscale.diagnosis()
        WHERE pid IN ($pids) OR concat(sentence, cure) ~ '\\y(} . (join '|', map { $_->pid } @victims) . qq{)\\y'}), '', $name);
}

### Nothing

like($monitor->sql($first), qr/^Nothing unusual[.] \d sessions? (is|are) active[.]$/, 'nothing, as pg_monitor');
$db->poll_ok(q{SELECT pgscale_internal.now_counts()->'recent'->>'s' IS NOT NULL}, 'the sampler has seen some seconds');
is($db->sql('SELECT count(*) FROM pgscale.diagnosis()'), 0, 'and then there is nothing, too');

### A blocker that is idle in its transaction, and a chain behind it

my ($holder, @victims) = map { session($node) } 0 .. 3;
$holder->sql(q{SET application_name = 'nightly_report'; BEGIN; UPDATE t SET v = 1 WHERE id = 1});
$victims[0]->sql('BEGIN; UPDATE t SET v = 1 WHERE id = 2');
$db->sees_waiting($victims[0], 'UPDATE t SET v = 2 WHERE id = 1');
$db->sees_waiting($victims[1], 'UPDATE t SET v = 2 WHERE id = 2');
$db->sees_waiting($victims[2], 'UPDATE t SET v = 2 WHERE id = 1');
cause_ok($monitor, 'blocker', $holder->pid, '3 sessions wait for rows held by pid ' . $holder->pid . ', nightly_report, idle in transaction for \d+ s',
    'a blocker that idles', certainty => 'high', cure => 'SELECT pgscale.terminate(' . $holder->pid . ')');
unnamed_ok('a victim is not named', @victims);
is($db->sql(q{SELECT count(*) FROM jsonb_array_elements(pgscale_internal.now_evidence()->'computing') c WHERE c->>'event_type' = 'Lock'}), 0,
    'who waits for a lock does not compute');
$db->poll_ok(q{SELECT value FROM pgscale.metrics('now') WHERE labels = '{"rule": "blocker", "certainty": "high"}'}, 'a metric says so', 1);
until_ok(sub { $db->sql(q{SELECT pgscale.report(now() - interval '1 min')}) =~ /Now: 3 sessions wait for rows held/ }, 'a report says so');
# who may not see others' texts
$db->sql('CREATE ROLE granted LOGIN');
$db->sql('GRANT USAGE ON SCHEMA pgscale, pgscale_internal TO granted');
$db->sql('GRANT SELECT ON ALL TABLES IN SCHEMA pgscale TO granted');
$db->sql('GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA pgscale, pgscale_internal TO granted');
my $granted = session($node, user => 'granted');
unlike($granted->sql('SELECT string_agg(now, $$ $$) FROM pgscale.now'), qr/UPDATE t/, 'texts of others are hidden');
cause_ok($granted, 'blocker', $holder->pid, '3 sessions wait for rows held by pid ' . $holder->pid . ', nightly_report, whose state is not known',
    'the blocker is not, and its transaction is known to be old', certainty => 'medium');
is($granted->sql(q{SELECT r->>'transaction_s' IS NULL, r->>'transaction_least_s' FROM jsonb_array_elements(pgscale_internal.now_root_sessions(true, false)) r}), 't|2',
    'but not how old');
$granted->quit;
$db->ends_waiting($holder, @victims);

### A blocker whose state and age are not known, and one that has begun another transaction

my ($hidden, @behind_it) = map { session($node) } 0 .. 2;
$hidden->sql(q{SET track_activities = off; BEGIN; UPDATE t SET v = 1 WHERE id = 4});
$db->sees_waiting($_, 'UPDATE t SET v = 2 WHERE id = 4') for @behind_it;
cause_ok($monitor, 'blocker', $hidden->pid, '2 sessions wait for rows held by pid ' . $hidden->pid . ', now_causes.pl, whose state is not known',
    'a blocker without track_activities, whose age is not known', certainty => 'low');
$db->ends_waiting($hidden, @behind_it);

my ($pooled, $delayed) = map { session($node) } 0 .. 1;
$pooled->sql('BEGIN; UPDATE t SET v = 1 WHERE id = 5');
$monitor->sql('BEGIN; SELECT count(*) FROM pgscale.now');
$pooled->sql('COMMIT; BEGIN; UPDATE t SET v = 1 WHERE id = 5');
$db->sees_waiting($delayed, 'UPDATE t SET v = 2 WHERE id = 5');
is($monitor->sql(q{SELECT bool_and((r->>'transaction_s')::float8 < extract(epoch FROM clock_timestamp() - now()))
    FROM jsonb_array_elements(pgscale_internal.now_root_sessions(true, false)) r}), 't', 'in a transaction block a new transaction is not as old as the one before');
$monitor->sql('COMMIT');
$db->ends_waiting($pooled, $delayed);

### A statement that takes a CPU; what it gets of the machine's depends on the load of the machine, and is made up

my $runaway = session($node);
$runaway->sql(q{SET application_name = 'psql'; SET max_parallel_workers_per_gather = 0});
$runaway->start('SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b');
my $its = "jsonb_array_elements(pgscale_internal.now_evidence()->'computing') c";
$db->poll_ok("SELECT (c->>'age_s')::float8 > 5, (c->>'cpus')::float8 > 0, c->>'query' ~ '^SELECT count' FROM $its WHERE c->>'pid' = '"
      . $runaway->pid . q{'}, 'a statement that computes', 't|t|t');
$db->poll_ok(qq{SELECT f.rule FROM $its, LATERAL pgscale_internal.now_findings(jsonb_build_object('cpus', 2, 'long_computing', 1,
    'now', '{"s": 6, "active": 8, "kinds": {"cpu": 1.5}}'::jsonb, 'usual', '{"s": 0}'::jsonb,
    'computing', jsonb_build_array((c || '{"cpus": 1, "running": true}') - '{ran_s,cpu_s}'::text[]))) f
    WHERE f.pid = } . $runaway->pid, 'and is named', 'cpu_runaway');
my $second = session($node);
$second->start('SELECT count(*) FROM generate_series(1, 1000000) a, generate_series(1, 1000000) b');
$db->poll_ok("SELECT count(*) FROM $its WHERE (c->>'cpus')::float8 > 0 AND c->>'pid' IN ('" . $runaway->pid . q{', '} . $second->pid . q{')},
    'each of two is watched', 2);
for my $computing ($runaway, $second)
{
    $db->sql('SELECT pg_cancel_backend(' . $computing->pid . ')');
    $computing->finish;
    $computing->quit;
}

my $commented = session($node);
$commented->start(qq{/* of the\nnight */ DO 'BEGIN PERFORM pg_sleep(600); END'});
$db->poll_ok(q{SELECT c->>'command', c->>'query' ~ '^/' FROM jsonb_array_elements(pgscale_internal.now_sessions(jsonb_build_array(jsonb_build_object('pid', } . $commented->pid . q{)))) c}, 'a command behind a comment', 'DO|t');
$db->sql('SELECT pg_cancel_backend(' . $commented->pid . ')');
$commented->finish;
$commented->quit;

### Connections

{
    my $script = PostgreSQL::Test::Utils::tempdir() . '/idle.sql';
    append_to_file($script, "SELECT 1;\n\\sleep 600 s\n");
    local $ENV{PGAPPNAME} = 'web';
    my $clients = IPC::Run::start([ 'pgbench', '-n', '-c', 50, '-t', 1, '-f', $script, $node->connstr('postgres') ], '>&', \my $said);
    $db->poll_ok(q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'web' AND state = 'idle'}, 'many connect', 50);
    my $found = $monitor->sql(q{SELECT concat_ws('|', rule, certainty, sentence) FROM pgscale.diagnosis() WHERE rank = 1});
    like($found, qr/^connection_storm\|(high|medium|low)\|5\d of 57 connections are used .*, \d+ began in the last 10 s, 50 by web$/, 'a storm of connections');
    my $began = q{SELECT pgscale_internal.now_evidence()->>'new'};
    in_time_ok(sub { my $new = session($node); my $n = $monitor->sql($began); $new->quit; $n > 0 }, 'some of them new');
    my $cure = $monitor->sql(q{SELECT cure FROM pgscale_internal.now_findings(pgscale_internal.now_evidence() || '{"new": 20}') WHERE rule = 'connection_storm'});
    like($cure, qr/^SELECT pgscale[.]terminate\(pid, idle => true\)\nFROM .*\nWHERE application_name = 'web'\n/, 'its cure');
    $cure =~ s/pgscale[.]terminate//;
    $cure =~ s/'10 s'/'0 s'/;
    is($db->sql($cure =~ s/^SELECT [(][^)]*[)]/SELECT count(*)/r), 20, 'of sessions that idle, some at a time');
    $cure =~ s/'0 s'/'1 h'/;
    is($db->sql($cure =~ s/^SELECT [(][^)]*[)]/SELECT count(*)/r), 0, 'but not of those that have just begun to');
    $monitor->poll_ok(q{SELECT pgscale_internal.now_evidence()->>'used' = used::text FROM pgscale_internal.connections()}, 'as many as connections() has');
    $clients->kill_kill;
}
$db->poll_ok(q{SELECT count(*) < 20 FROM pg_stat_activity WHERE backend_type = 'client backend'}, 'they are gone');
until_ok(sub { $monitor->sql($first) =~ /^Nothing unusual/ }, 'and nothing is unusual');

### What is usual: this hour of yesterday, if the archive has it

$db->sql(q{SELECT pgscale_internal.archive_partition('archive_minute', (now() - interval '25 h')::date);
    INSERT INTO pgscale_internal.archive_minute
    SELECT m.*
      FROM pg_control_system() c, pg_database d, pgscale.node_identity() n, jsonb_populate_record(NULL::pgscale_internal.archive_minute,
           '{"node_id": 0, "timeline": 1, "standby": false, "pulled": false}' || (SELECT jsonb_object_agg(a.name, 0) FROM pgscale_internal.archive_counter a WHERE a.source <> 'sampler') || jsonb_build_object(
           'at', now() - interval '25 h', 'period_s', 3600, 'observed_ms', 3600000, 'rounds', 60, 'node', n.node, 'cluster', c.system_identifier,
           'database', d.oid, 'backend_types', '{client backend}'::text[], 'datids', '{7}'::oid[], 'datnames', '{shop}'::text[],
           'usenames', '{ann}'::text[], 'application_names', '{web}'::text[], 'queryids', '{1}'::bigint[], 'event_types', '{IO}'::text[],
           'events', '{DataFileRead}'::text[], 'blockers', '{NULL}'::text[], 'wait_ms', '{7200000}'::real[])) m
     WHERE d.datname = current_database()});
until_ok(sub { $monitor->sql('SELECT string_agg(now, chr(10)) FROM pgscale.now') =~ /; usual: this hour of yesterday\n  active sessions +[\d.]+ +2\.0 / }, 'yesterday');
{
    my $locker = session($node);
    $locker->sql('BEGIN; LOCK pgscale_internal.archive_minute');
    until_ok(sub { $monitor->sql('SELECT string_agg(now, chr(10)) FROM pgscale.now') =~ /now: this moment; usual: not known$/m },
        'a screen waits for no lock on the archive');
    $locker->sql('ROLLBACK');
    $locker->quit;
}

### Cancelled at any moment, a clock, and a transaction block

for my $ms (1, 5, 12, 20)
{
    my ($state) = $monitor->try("SET statement_timeout = $ms; SELECT count(*) FROM pgscale.now");
    like($state, qr/^(00000|57014)$/, "within $ms ms");
    $monitor->sql('SET statement_timeout = 0');
}
is($monitor->sql('SELECT count(*) > 8 FROM pgscale.now'), 't', 'the session goes on');

### A checkpoint that takes its time

my $backup = session($node);
$db->sql('CREATE TABLE dirty AS SELECT i FROM generate_series(1, 10000) i');
$backup->start(q{SELECT pg_backup_start('slow', false)});
$monitor->poll_ok(q{SELECT p->>'checkpoint' FROM pgscale_internal.now_processes() p WHERE p->>'checkpointer_event' = 'CheckpointWriteDelay'},
    'a checkpoint that sleeps between two writes is under way', 'true');
$db->sql('SELECT pg_terminate_backend(' . $backup->pid . ')');
$db->sql('CHECKPOINT');

### The sampler is off

$db->sampler('off');
$db->poll_ok(q{SELECT now ~ '^missing: waits of the last seconds, and what is usual: ' FROM (SELECT now FROM pgscale.now) n ORDER BY 1 DESC LIMIT 1},
    'without the sampler it says what is missing');
$db->sampler('on');
$db->poll_ok(q{SELECT pgscale_internal.now_counts() IS NOT NULL}, 'and is whole again');

### A standby

my $standby = pgscale_standby($node, "max_standby_streaming_delay = -1\nhot_standby_feedback = off\n");
my $there = session($standby);
until_ok(sub { $there->sql($first) =~ /^Nothing unusual/ }, 'a standby');
$db->set('synchronous_standby_names', 'any 2 (*)');
my @committers = (session($node), session($node));
$_->start('CREATE TABLE is_' . $_->pid . ' ()') for @committers;
$monitor->poll_ok(q{SELECT sentence, cure FROM pgscale.diagnosis() WHERE rule = 'replication_wait'}, 'two are asked for',
    q{2 sessions wait for 2 synchronous standbys, and only 1 is connected|CALL pgscale.set('synchronous_standby_names', 'any 1 (*)', true)});
$db->set('synchronous_standby_names');
$_->finish for @committers;
$_->quit for @committers;
my ($innocent, $old) = (session($standby), session($standby));
$innocent->sql('BEGIN; SELECT count(*) FROM t');
$old->sql(q{SET application_name = 'old_report'; BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t});
$db->sql('DELETE FROM t; VACUUM t');
cause_ok($there, 'recovery_conflict', $old->pid, 'Replay waits for an old snapshot, the oldest is that of pid ' . $old->pid . ', old_report',
    'a conflict of replay with a snapshot', cure => 'SELECT pgscale.terminate(' . $old->pid . ')');
is($there->sql('SELECT count(*) = count(now) FROM pgscale.now'), 't', 'no line is null');
$_->sql('COMMIT') for $old, $innocent;

# a page that is pinned, by what removes rows that no snapshot sees
$db->sql('CREATE TABLE pinned AS SELECT i FROM generate_series(1, 20) i');
$db->sql('BEGIN; INSERT INTO pinned VALUES (0); ROLLBACK');
$db->sql('CREATE TABLE is_there ()');
$there->poll_ok(q{SELECT to_regclass('is_there') IS NOT NULL}, 'replay goes on');
$old->sql('BEGIN; DECLARE c CURSOR FOR SELECT i FROM pinned; FETCH c');
$db->sql('VACUUM FREEZE pinned');
cause_ok($there, 'recovery_conflict', $old->pid, 'Replay waits for a page that a scan or a cursor of pid ' . $old->pid . ', old_report has pinned',
    'a conflict of replay with a pin', cure => 'SELECT pgscale.terminate(' . $old->pid . ')');
$old->sql('COMMIT');

# a lock
$old->sql('BEGIN; SELECT count(*) FROM t');
$db->sql('BEGIN; LOCK t; COMMIT');
$db->sql('CREATE TABLE is_flushed_too ()');
cause_ok($there, 'recovery_conflict', $old->pid, 'Replay waits for a lock held by pid ' . $old->pid . ', old_report', 'a conflict of replay with a lock');
$old->sql('COMMIT');
$there->poll_ok(q{SELECT to_regclass('is_flushed_too') IS NOT NULL AND NOT EXISTS (SELECT FROM pgscale.diagnosis())}, 'and none');

my $locker = session($node);
$locker->sql('BEGIN; LOCK t');
$db->sql('CREATE TABLE is_flushed ()');
$there->poll_ok(q{SELECT count(*) FROM pg_locks WHERE mode = 'AccessExclusiveLock' AND relation = 't'::regclass AND granted}, 'replay holds a lock', 1);
my @readers = (session($standby), session($standby));
$there->sees_waiting($_, 'SELECT FROM t') for @readers;
$there->poll_ok(q{SELECT sentence ~ '^2 sessions wait for a lock on public.t held by pid \d+, which replays WAL of the primary$'
    FROM pgscale.diagnosis() WHERE rank = 1}, 'sessions that wait for replay');
$locker->sql('COMMIT');
$_->finish for @readers;
$standby->stop;

### Without preload

my $bare = pgscale_node('bare', preload => '', conf => 'deadlock_timeout = 10min');
my $on_bare = session($bare);
my ($root, $one, $two) = map { session($bare) } 1 .. 3;
$on_bare->sql(qq{CREATE TABLE "t\nu" (id int)});
like($on_bare->sql($first), qr/^Nothing unusual/, 'without preload');
like($on_bare->sql('SELECT string_agg(now, chr(10)) FROM pgscale.now'), qr/^missing: .*not loaded/m, 'it says what is missing');
$root->sql(qq{BEGIN; LOCK "t\nu"});
$on_bare->sees_waiting($one, qq{SELECT FROM "t\nu"});
$on_bare->sees_waiting($two, qq{SELECT FROM "t\nu"});
cause_ok($on_bare, 'blocker', $root->pid, '2 sessions wait for a lock on public."t u" held by pid ' . $root->pid . ', now_causes.pl, idle in transaction', 'a blocker');
like($on_bare->sql('SELECT string_agg(now, chr(10)) FROM pgscale.now'),
    qr/^load .* now: this moment; usual: not known\n  active sessions +2\.0\n(?:  on a CPU .*\n)?(?:  queued .*\n)?  waiting: Lock +2\.0$/m, 'the load');
$on_bare->ends_waiting($root, $one, $two);

# signals do not end the time in which CPUs are watched
my $burner = session($bare);
$burner->start('SELECT count(*) FROM pg_class a, pg_class b, pg_class c, pg_class d');
$on_bare->poll_ok(q{SELECT jsonb_array_length(pgscale_internal.now_processes()->'computing')}, 'a statement computes', 1);
$on_bare->start(q{SELECT count(*), count(*) FILTER (WHERE p->'computing'->0 ? 'cpus'), bool_and((p->>'look_s')::float8 >= 0.015)
    FROM (SELECT pgscale_internal.now_processes() p FROM generate_series(1, 20) OFFSET 0) looks});
for (1 .. 500) { kill USR1 => $on_bare->pid; usleep(1000); }
is(($on_bare->finish)[1], '20|20|t', 'and its CPU time is known while signals arrive');
$on_bare->sql('SELECT pg_cancel_backend(' . $burner->pid . ')');
$burner->finish;

done_testing();
