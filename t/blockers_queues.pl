# Who waits for whom: queues of known shapes, of each kind of lock, compared with pg_blocking_pids(); whom the history names; what
# roles see; a standby.
# Runs on each major.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use IPC::Run;
use Test::More;

my $node = pgscale_node('main', init => [ allows_streaming => 1 ], conf => <<'EOC');
max_prepared_transactions = 50
deadlock_timeout = 10min
max_connections = 80
pgscale.sampler_history_period = 1
max_worker_processes = 16
EOC
my $db = session($node);
$db->sql('CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 10) i');
$db->sql('CREATE TABLE other (id int)');

# Sessions by names; a statement is run, or started and waited for until it waits for a lock
my %session;
sub of { my $name = shift; return $session{$name} //= session($node); }
sub runs { my ($name, $sql) = @_; return of($name)->sql($sql); }
sub waits { my ($name, $sql) = @_; return $db->sees_waiting(of($name), $sql); }

# Each of those named updates its own row: a the first, b the second
sub hold_rows { runs($_, 'BEGIN; UPDATE t SET v = 1 WHERE id = ' . (ord($_) - ord('a') + 1)) for @_; return; }

# Ends all transactions, whatever state they are in
sub all_end { $db->ends_waiting(values %session); %session = (); return; }

# Rows, with names in place of pids
sub named
{
    my $text = shift;

    $text =~ s/\b$session{$_}{pid}\b/$_/g for keys %session;
    return $text;
}

# Columns of the function, with the first column of the view beside
sub forest
{
    my $columns = shift // 'process, waiters, waits_for, mode, state, root_pid, blocked_by';

    return named($db->sql(qq{SELECT $columns FROM pgscale_internal.blockers() b CROSS JOIN LATERAL (SELECT
        repeat('  ', depth) || coalesce(pid::text, gid) || CASE WHEN cycle THEN ' (cycle)' ELSE '' END AS process) p}));
}

# The waits are those expected, and those of the server's own function
sub forest_ok
{
    my ($name, $expected, $columns) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    is(forest($columns), $expected =~ s/\n\z//r, $name);
    return is($db->sql(q{SELECT string_agg(b.pid::text, ' ') FROM pgscale.blockers b
        WHERE (SELECT array_agg(DISTINCT p ORDER BY p) FROM unnest(b.blocked_by) p)
              IS DISTINCT FROM (SELECT array_agg(DISTINCT p ORDER BY p) FROM unnest(pg_blocking_pids(b.pid)) p)
          AND b.pid IS NOT NULL}), '', "$name: as pg_blocking_pids has it");
}

forest_ok('nothing waits', '');

# A row: its holder idles, the first one waits for that transaction, the others for the row
runs('a', 'BEGIN; UPDATE t SET v = 1 WHERE id = 1');
waits($_, 'UPDATE t SET v = 2 WHERE id = 1') for qw(b c d);
forest_ok('a queue for a row', <<'EOR');
a|3|||idle in transaction|a|{}
  b|2|row (0,1) of t|ShareLock|active|a|{a}
    c|1|tuple (0,1) of t|ExclusiveLock|active|a|{b}
    d|0|tuple (0,1) of t|ExclusiveLock|active|a|{b,c}
EOR
is(forest('process, depth, pid, waiting_pid, root_state, left(query, 16), left(root_query, 16), transaction_ms >= 0,
    root_transaction_ms >= waited_ms, waited_ms BETWEEN floor(1000 * extract(epoch FROM now() - wait_start))
    AND ceil(1000 * extract(epoch FROM clock_timestamp() - wait_start)), application_name, usename = current_user, datname, cycle, locktype, relation'),
    <<'EOR' =~ s/\n\z//r, 'and what is known of them');
a|0|a||idle in transaction|UPDATE t SET v =|UPDATE t SET v =|t|||blockers_queues.pl|t|postgres|f||
  b|1|b|b|idle in transaction|UPDATE t SET v =|UPDATE t SET v =|t|t|t|blockers_queues.pl|t|postgres|f|transactionid|t
    c|2|c|c|idle in transaction|UPDATE t SET v =|UPDATE t SET v =|t|t|t|blockers_queues.pl|t|postgres|f|tuple|t
    d|2|d|d|idle in transaction|UPDATE t SET v =|UPDATE t SET v =|t|t|t|blockers_queues.pl|t|postgres|f|tuple|t
EOR
all_end();

# Waiters with many other locks, of which those of relations do not fit into the fast path; and what others do to the fast path
# meanwhile comes behind the row
$db->sql(q{CREATE TABLE parted (i int) PARTITION BY RANGE (i);
    DO 'BEGIN FOR i IN 1..150 LOOP EXECUTE format($$CREATE TABLE part_%s PARTITION OF parted FOR VALUES FROM (%s) TO (%s)$$, i, i, i + 1);
        END LOOP; END'});
runs('a', 'BEGIN; UPDATE t SET v = 1');
for my $i (1 .. 8)
{
    runs("w$i", 'BEGIN; SELECT FROM parted');
    waits("w$i", "UPDATE t SET v = 2 WHERE id = $i");
}
$session{dropper} = session($node);
$session{dropper}->start('DROP TABLE parted');
until_true(sub { $db->sql(q{SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'}) eq '1' });
is($db->sql(q{SELECT count(*), count(awaited_row), count(DISTINCT awaited_row) FROM pgscale_internal.lock_waits()
    WHERE locktype = 'transactionid'}), '8|8|8', 'the rows of those with more than a hundred other locks');
all_end();

# A chain: each holds what the next one waits for
hold_rows(qw(a b c d));
waits($_, 'UPDATE t SET v = 2 WHERE id = ' . (ord($_) - ord('a'))) for qw(b c d);
forest_ok('a chain', "a|3|0|a|{}\n  b|2|1|a|{a}\n    c|1|2|a|{b}\n      d|0|3|a|{c}", 'process, waiters, depth, root_pid, blocked_by');
all_end();

# A process that waits ahead in the queue is in the way, too; of two holders both are roots
runs('a', 'BEGIN; SELECT FROM t');
runs('b', 'BEGIN; LOCK t IN ACCESS SHARE MODE');
waits('c', 'BEGIN; LOCK t');
waits($_, 'SELECT FROM t') for qw(d e);
my $first = $db->sql('SELECT pid FROM pgscale.blockers LIMIT 1') eq of('a')->pid ? 'a' : 'b';
my $second = $first eq 'a' ? 'b' : 'a';
forest_ok('behind one that waits', <<"EOR");
$first|3|||idle in transaction|$first|{}
  c|2|relation t|AccessExclusiveLock|active|$first|{$first,$second}
    d|0|relation t|AccessShareLock|active|$first|{c}
    e|0|relation t|AccessShareLock|active|$first|{c}
$second|3|||idle in transaction|$second|{}
EOR
all_end();

# A prepared transaction
runs('a', q{BEGIN; UPDATE t SET v = 1 WHERE id = 2; PREPARE TRANSACTION 'two-phase'});
waits('b', 'BEGIN; DELETE FROM t WHERE id = 2');
forest_ok('a prepared transaction', <<'EOR', 'process, pid, gid, state, transaction_ms > 0, root_pid, root_gid, root_state, blocked_by');
two-phase||two-phase|prepared|t||two-phase|prepared|{}
  b|b||active|t||two-phase|prepared|{0}
EOR
$db->sql(q{ROLLBACK PREPARED 'two-phase'});
all_end();

# Other kinds of lock
runs('x', 'CREATE SCHEMA s');
runs('a', 'SELECT pg_advisory_lock(4294967301), pg_advisory_lock(-3); BEGIN; SELECT pg_advisory_xact_lock(-1, 2);
    INSERT INTO t VALUES (77); DROP SCHEMA s');
waits('b', 'SELECT pg_advisory_lock(4294967301)');
waits('c', 'SELECT pg_advisory_xact_lock_shared(-1, 2)');
waits('d', 'CREATE TABLE s.t ()');
waits('e', 'CREATE INDEX CONCURRENTLY t_v ON t (v)');
waits('f', 'SELECT pg_advisory_lock(-3)');
waits('g', 'DELETE FROM pg_namespace WHERE nspname = $$s$$');
is($db->sql(q{SELECT regexp_replace(waits_for, '\d+/\d+|(?<=object )\d+|(?<=\(\d+,)\d+', 'N', 'g'), mode
    FROM pgscale.blockers WHERE depth > 0 ORDER BY wait_start}), <<'EOR' =~ s/\n\z//r, 'advisory locks, an object, a virtual transaction');
advisory 4294967301|ExclusiveLock
advisory -1, 2|ShareLock
object N of pg_namespace|AccessShareLock
virtualxid N|ShareLock
advisory -3|ExclusiveLock
row (0,N) of pg_namespace|ShareLock
EOR
all_end();

# A row that is being inserted and may be taken back
$db->sql(q{CREATE FUNCTION held(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(9);
    RETURN $1; END $$; CREATE TABLE spec (id int UNIQUE); CREATE INDEX ON spec (held(id))});
runs('a', 'SELECT pg_advisory_lock(9)');
waits($_, 'INSERT INTO spec VALUES (1) ON CONFLICT (id) DO NOTHING') for qw(b c);
forest_ok('a speculative insertion', "a||{}\n  b|advisory 9|{a}\n    c|spectoken N, token 1|{b}",
    q{process, regexp_replace(waits_for, '\d{2,}', 'N'), blocked_by});
all_end();

# A lock group whose leader has left stands under a process that is there
SKIP:
{
    my $library = compiled('lock_group') or skip 'no compiler', 4;
    $db->sql("CREATE FUNCTION lock_group(int) RETURNS bool LANGUAGE c AS '$library'");
    my $leads = of('a')->pid;
    is(runs($_, "SELECT lock_group($leads)"), 't', 'a lock group') for qw(a b);
    (delete $session{a})->quit;
    $db->poll_ok("SELECT count(*) FROM pg_stat_activity WHERE pid = $leads", 'its leader leaves', 0);
    runs('b', 'BEGIN; LOCK other');
    waits('c', 'SELECT FROM other');
    is(forest('process, waiters, root_pid, blocked_by'), "b|1|b|{}\n  c|0|b|{b}", 'it stands under a member');
    all_end();
}

# A parallel query, of which one worker waits, while the leader is in another one's way: it counts as its leader
$db->sql(q{CREATE TABLE large AS SELECT i FROM generate_series(1, 10000) i; ANALYZE large;
    CREATE FUNCTION reads(int) RETURNS bool STABLE PARALLEL SAFE LANGUAGE plpgsql AS $$ BEGIN RETURN EXISTS (SELECT FROM other); END $$});
runs('a', 'BEGIN; LOCK other');
runs('b', "SET $_") for 'parallel_setup_cost = 0', 'parallel_tuple_cost = 0', 'min_parallel_table_scan_size = 0',
  'parallel_leader_participation = off', 'max_parallel_workers_per_gather = 2';
of('b')->start('SELECT count(*) FROM large WHERE reads(i)');
$db->poll_ok(q{SELECT count(*) > 0 FROM pg_locks l JOIN pg_stat_activity s USING (pid) WHERE NOT granted AND leader_pid IS NOT NULL},
    'a parallel worker waits');
waits('c', 'BEGIN; LOCK large');
my $leader = '(SELECT leader_pid FROM pg_stat_activity s WHERE s.pid = waiting_pid)';
forest_ok('a parallel query', <<'EOR', "process, waiters, waits_for, pid, waiting_pid = pid, $leader, blocked_by");
a|2||a|||{}
  b|1|relation other|b|f|b|{a}
    c|0|relation large|c|t||{b}
EOR
all_end();

# Deadlocks that the server has not found yet: of rows, with one that waits behind; and one that also waits for a root
hold_rows(qw(a b));
waits('a', 'UPDATE t SET v = 2 WHERE id = 2');
waits($_, 'UPDATE t SET v = 2 WHERE id = 1') for qw(b c);
my $columns = 'process, waiters, cycle, root_pid, blocked_by';
forest_ok('a cycle', "a (cycle)|2|t|a|{b}\n  b (cycle)|2|t|a|{a}\n    c|0|f|a|{b}", $columns);
all_end();
runs($_, 'BEGIN; LOCK other IN SHARE MODE') for qw(a c);
runs('b', 'BEGIN; LOCK t');
waits('a', 'SELECT FROM t');
waits('b', 'LOCK other');
forest_ok('a cycle beside a root', "c|2|f|c|{}\na (cycle)|1|t|a|{b}\n  b (cycle)|1|t|a|{a,c}", $columns);
all_end();

# What roles see of others
$db->sql($_) for 'CREATE ROLE monitoring LOGIN IN ROLE pg_monitor', 'CREATE ROLE granted LOGIN', 'CREATE ROLE stranger LOGIN',
  'GRANT USAGE ON SCHEMA pgscale, pgscale_internal TO granted', 'GRANT SELECT ON pgscale.blockers TO granted',
  'GRANT EXECUTE ON FUNCTION pgscale_internal.blockers(), pgscale_internal.lock_waits() TO granted';
runs('a', 'BEGIN; LOCK other');
waits('b', 'SELECT FROM other');
my $seen = 'SELECT process, activity, application_name, query FROM pgscale.blockers';
is(named(session($node, user => 'monitoring')->sql($seen)), <<"EOR" =~ s/\n\z//r, 'pg_monitor');
a|idle in transaction|blockers_queues.pl|LOCK other ;
  b|waits for relation other|blockers_queues.pl|SELECT FROM other ;
EOR
is(named(session($node, user => 'granted')->sql($seen)), <<"EOR" =~ s/\n\z//r, 'a role without pg_read_all_stats');
a||blockers_queues.pl|<insufficient privilege>
  b|waits for relation other|blockers_queues.pl|<insufficient privilege>
EOR
is((session($node, user => 'stranger')->try('SELECT * FROM pgscale.blockers'))[0], '42501', 'a stranger');
all_end();

### The history: those that wait for long carry the process in their way; a session that is idle in a transaction is in it itself

my $looks = 'SELECT blocker_looks FROM pgscale.sampler_stats';
sub looks_stay
{
    my $name = shift;
    my ($before, $ticks) = split /\|/, $db->sql('SELECT blocker_looks, ticks FROM pgscale.sampler_stats');

    $db->poll_ok("SELECT ticks > $ticks + 150 FROM pgscale.sampler_stats", "$name: the sampler goes on");
    return is($db->sql($looks), $before, "$name: the sampler does not look");
}
sub of_history
{
    my ($name, $pid) = @_;

    return named($db->sql("SELECT DISTINCT blocker_pid, root_pid FROM pgscale.wait_history
        WHERE event_type = 'Lock' AND root_pid IS NOT NULL AND pid = " . of($name)->pid));
}

# the server's, which is the sampler's; the sessions have another, by which their cycles stay
$db->sql(q{ALTER DATABASE postgres SET deadlock_timeout = '10min'});
$db->set('deadlock_timeout', '300ms');
$db->poll_ok('SHOW deadlock_timeout', 'a threshold', '300ms');
$db->sql('SELECT pgscale.reset($$sampler$$)');
looks_stay('nothing waits');
runs('a', q{SET application_name = 'billing'; BEGIN; UPDATE t SET v = 1 WHERE id = 5});
waits($_, 'BEGIN; UPDATE t SET v = 2 WHERE id = 5') for qw(b c d);
my ($before, $began) = split /\|/, $db->sql('SELECT blocker_looks, extract(epoch FROM clock_timestamp()) FROM pgscale.sampler_stats');
$db->poll_ok("SELECT blocker_looks >= $before + 3 FROM pgscale.sampler_stats", 'it is looked for');
is($db->sql("SELECT blocker_looks - $before - 1 <= extract(epoch FROM clock_timestamp()) - $began FROM pgscale.sampler_stats"), 't',
    'once a second at most');
is(of_history('b'), 'a|a', 'the first one waits for the transaction');
is(of_history($_), 'b|a', "$_ waits for the first one") for qw(c d);
is($db->sql(q{SELECT count(*) > 0, count(blocker_pid), count(root_pid) FROM pgscale.wait_history WHERE event_type = 'Lock'
    AND sampled_at < (SELECT min(wait_start) + interval '290 ms' FROM pgscale.blockers)}), 't|0|0', 'no sample before the threshold');
is($db->sql(q{SELECT count(*) FROM pgscale.wait_history WHERE (blocker_pid IS NULL) <> (root_pid IS NULL)
    OR event_type <> 'Lock' AND blocker_pid IS NOT NULL}), 0, 'both or none, and for locks only');

# What the page says of it: afterwards, when all have gone
my ($who) = slurp_file('doc/locks.md') =~ /Which session was it at 03:10.*?```sql\n(.*?);\n```/s;
my $pid = of('a')->pid;
all_end();
is($db->sql("SELECT root_pid, root_state, root_usename = current_user, waiting, since <= until
    FROM ($who) w WHERE root_pid = $pid AND root_state = 'idle in transaction'"), "$pid|idle in transaction|t|3|t",
    'the page shows what held it, and in which state');

# More holders than the sampler has room for, and than the function makes room for at first: those whose holders are not known
# have no root, least of all one that waits
my ($many, $tables) = (48, 22);
$db->sql("DO 'BEGIN FOR i IN 0..$tables - 1 LOOP EXECUTE format(\$\$CREATE TABLE held_%s ()\$\$, i); END LOOP; END'");
$db->sql('BEGIN; LOCK ' . join(', ', map { "held_$_" } 0 .. $tables - 1) . " IN ACCESS SHARE MODE; PREPARE TRANSACTION '$_'") for 1 .. $many;
my $pools = "FROM pg_stat_activity WHERE application_name = 'pool' AND wait_event_type = 'Lock'";
my @pools;
for my $statement ('LOCK held_', 'SELECT FROM held_')
{
    my $script = PostgreSQL::Test::Utils::tempdir() . '/wait.sql';
    local $ENV{PGAPPNAME} = 'pool';

    append_to_file($script, "BEGIN;\n$statement:client_id;\n");
    push @pools, IPC::Run::start([ 'pgbench', '-n', '-c', $tables, '-t', 1, '-f', $script, $node->connstr('postgres') ], '>&', \my $said);
    $db->poll_ok("SELECT count(*) $pools", "$tables wait: $statement", $tables * @pools);
}
($before) = $db->sql($looks);
$db->poll_ok("SELECT blocker_looks >= $before + 2 FROM pgscale.sampler_stats", 'many holders');
is($db->sql('SELECT count(*), max(cardinality(blocked_by)) FROM pgscale.blockers WHERE depth > 0'), 2 * $tables . "|$many",
    'the function has all of them');
is($db->sql(qq{SELECT count(*) FILTER (WHERE root_pid IS NOT NULL) > 0, count(*) FILTER (WHERE root_pid IN (SELECT pid $pools))
    FROM pgscale.wait_history WHERE pid IN (SELECT pid $pools)}), 't|0', 'no root waits itself');
$db->sql("SELECT count(pg_terminate_backend(pid)) $pools");
$_->finish for @pools;
$db->sql("ROLLBACK PREPARED '$_'") for 1 .. $many;

runs('a', q{BEGIN; UPDATE t SET v = 1 WHERE id = 6; PREPARE TRANSACTION 'p'});
waits('b', 'BEGIN; UPDATE t SET v = 1 WHERE id = 6');
until_ok(sub { of_history('b') eq '0|0' }, 'a prepared transaction has no process');
$db->sql(q{ROLLBACK PREPARED 'p'});
all_end();

hold_rows(qw(a b));
waits('a', 'UPDATE t SET v = 2 WHERE id = 2');
waits('b', 'UPDATE t SET v = 2 WHERE id = 1');
$db->poll_ok("SELECT count(DISTINCT pid) FROM pgscale.wait_history WHERE root_pid = $session{a}{pid}", 'a cycle, in which all wait', 2);
is(of_history('a'), 'b|a', 'the longest one is called the root');
all_end();

### Recovery that is in the way of sessions, and waits itself

my $standby = pgscale_standby($node, "max_standby_streaming_delay = -1\nhot_standby_feedback = off\n");
my $primary = $db;
$db = session($standby);
my $startup = $db->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'startup'});
sub catch_up
{
    my $lsn = $primary->sql('SELECT pg_current_wal_insert_lsn()');

    return until_ok(sub { $db->sql("SELECT pg_last_wal_replay_lsn() >= '$lsn'") eq 't' }, 'the standby follows');
}
my $locker = session($node);
$locker->sql('BEGIN; LOCK t');
$primary->sql('INSERT INTO other VALUES (1)');
catch_up();
$session{startup} = { pid => $startup };
$session{a} = session($standby);
waits('a', 'SELECT FROM t');
forest_ok('recovery holds what the primary locked',
    "startup|1|||startup|startup|{}\n  a|0|relation t|AccessShareLock|active|startup|{startup}");
$locker->sql('ROLLBACK');
$primary->sql('INSERT INTO other VALUES (1)');
of('a')->finish;
runs('a', 'BEGIN; SELECT FROM t');
$primary->sql('TRUNCATE t');
$db->poll_ok('SELECT count(*) > 1 FROM pgscale.blockers', 'recovery waits');
is(forest(), "a|1|||idle in transaction|a|{}\n  startup|0|relation t|AccessExclusiveLock|startup|a|{a}", 'for a session');
is($db->sql('SELECT waited_ms >= 0 FROM pgscale.blockers WHERE depth = 1'), 't', 'and since when');
runs('a', 'COMMIT');
catch_up();

# Recovery waits for a page that a cursor has pinned
my $event = server_major() >= 19 ? 'BufferCleanup' : 'BufferPin';
my $replay = 'SELECT waits_for, state, blocked_by FROM pgscale.blockers';
sub replay_waits
{
    $primary->sql('BEGIN; INSERT INTO t SELECT i, 0 FROM generate_series(1, 10) i; ROLLBACK');
    catch_up();
    runs('a', 'BEGIN; DECLARE c CURSOR FOR SELECT * FROM t; FETCH c');
    $primary->sql('VACUUM t');
    return $db->poll_ok($replay, 'which session has pinned a buffer is not known', "$event|startup|{}");
}
$primary->sql('INSERT INTO t VALUES (11, 0)');
replay_waits();

# now calls that a conflict if replay still waits after a moment; then it goes on while the session that looks is stopped in that
# moment, which is tried until it is met
my $looker = session($standby);
my $pin = q{SELECT pgscale_internal.now_processes()->>'conflict'};
sub looker_in { return slurp_file('/proc/' . $looker->pid . '/wchan') }
is($looker->sql($pin), 'pin', 'replay that still waits for a page after a moment: a conflict');
runs('a', 'COMMIT');
SKIP:
{
    skip 'this kernel does not tell where a process sleeps', 1 unless until_true(sub { looker_in() ne '0' });
    in_time_ok(sub {
        my ($asleep, $end) = (0, time + 3);

        replay_waits();
        $looker->start($pin);
        $asleep = looker_in() =~ /nanosleep|select|^poll_schedule/ until $asleep || time > $end;
        kill 'STOP', $looker->pid;
        runs('a', 'COMMIT');
        catch_up();
        kill 'CONT', $looker->pid;
        return ($looker->finish)[1] eq '' && $asleep;
    }, 'one that goes on: none');
}
$standby->stop;

done_testing();
