# Who waits for whom: queues of known shapes, of each kind of lock, compared with pg_blocking_pids(); what roles see; a standby.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main', init => [ allows_streaming => 1 ], conf => <<'EOC');
max_prepared_transactions = 5
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

# Ends all transactions, whatever state they are in
sub all_end { $db->ends_waiting(values %session); %session = (); return; }

# Rows, with names in place of pids
sub named
{
    my $text = shift;

    $text =~ s/\b$session{$_}{pid}\b/$_/g for keys %session;
    return $text;
}
sub forest { return of_all('process, waiters, waits_for, mode, state, root_pid, blocked_by'); }
# of the function, with the first column of the view beside
sub of_all { my $columns = shift; return named($db->sql(qq{SELECT $columns FROM pgscale.blockers() b CROSS JOIN LATERAL (SELECT
    repeat('  ', depth) || coalesce(pid::text, gid) || CASE WHEN cycle THEN ' (cycle)' ELSE '' END AS process) p})); }

sub as_pg_ok
{
    my $name = shift;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return is($db->sql(q{SELECT string_agg(b.pid::text, ' ') FROM pgscale.blockers() b
        WHERE (SELECT array_agg(DISTINCT p ORDER BY p) FROM unnest(b.blocked_by) p)
              IS DISTINCT FROM (SELECT array_agg(DISTINCT p ORDER BY p) FROM unnest(pg_blocking_pids(b.pid)) p)
          AND b.pid IS NOT NULL}), '', "$name: as pg_blocking_pids has it");
}

is(forest(), '', 'nobody waits');

# A row: its holder idles, the first one waits for that transaction, the others for the row
runs('a', 'BEGIN; UPDATE t SET v = 1 WHERE id = 1');
waits('b', 'UPDATE t SET v = 2 WHERE id = 1');
waits('c', 'UPDATE t SET v = 3 WHERE id = 1');
waits('d', 'UPDATE t SET v = 4 WHERE id = 1');
is(forest(), <<"EOR" =~ s/\n\z//r, 'a queue for a row');
a|3|||idle in transaction|a|{}
  b|2|row (0,1) of t|ShareLock|active|a|{a}
    c|1|tuple (0,1) of t|ExclusiveLock|active|a|{b}
    d|0|tuple (0,1) of t|ExclusiveLock|active|a|{b,c}
EOR
as_pg_ok('a queue for a row');
is(of_all('process, depth, pid, waiting_pid, root_state, left(query, 16), left(root_query, 16), transaction_ms >= 0,
    root_transaction_ms >= waited_ms, wait_start <= now(), application_name, usename = current_user, datname, cycle, locktype, relation'), <<'EOR' =~ s/\n\z//r, 'and what is known of them');
a|0|a||idle in transaction|UPDATE t SET v =|UPDATE t SET v =|t|||047_blockers.pl|t|postgres|f||
  b|1|b|b|idle in transaction|UPDATE t SET v =|UPDATE t SET v =|t|t|t|047_blockers.pl|t|postgres|f|transactionid|t
    c|2|c|c|idle in transaction|UPDATE t SET v =|UPDATE t SET v =|t|t|t|047_blockers.pl|t|postgres|f|tuple|t
    d|2|d|d|idle in transaction|UPDATE t SET v =|UPDATE t SET v =|t|t|t|047_blockers.pl|t|postgres|f|tuple|t
EOR
all_end();

# One that has many other locks, of which relations' do not fit into the fast path
$db->sql(q{CREATE TABLE parted (i int) PARTITION BY RANGE (i);
    DO 'BEGIN FOR i IN 1..150 LOOP EXECUTE format($$CREATE TABLE part_%s PARTITION OF parted FOR VALUES FROM (%s) TO (%s)$$, i, i, i + 1);
        END LOOP; END'});
runs('a', 'BEGIN; UPDATE t SET v = 1');
for my $i (1 .. 8)
{
    runs("w$i", 'BEGIN; SELECT FROM parted');
    waits("w$i", "UPDATE t SET v = 2 WHERE id = $i");
}
# what others do to the fast path meanwhile comes behind the row
$session{dropper} = session($node);
$session{dropper}->start('DROP TABLE parted');
until_true(sub { $db->sql(q{SELECT count(*) FROM pg_locks WHERE NOT granted AND mode = 'AccessExclusiveLock'}) eq '1' });
is($db->sql(q{SELECT count(*), count(awaited_row), count(DISTINCT awaited_row) FROM pgscale_internal.lock_waits() WHERE locktype = 'transactionid'}), '8|8|8',
    'the rows of those with more than a hundred other locks');
as_pg_ok('many locks');
all_end();

# A chain: each holds what the next one waits for
runs($_, "BEGIN; UPDATE t SET v = 1 WHERE id = " . (ord($_) - ord('a') + 1)) for qw(a b c d);
waits('b', 'UPDATE t SET v = 2 WHERE id = 1');
waits('c', 'UPDATE t SET v = 2 WHERE id = 2');
waits('d', 'UPDATE t SET v = 2 WHERE id = 3');
is(of_all('process, waiters, depth, root_pid, blocked_by'),
    "a|3|0|a|{}\n  b|2|1|a|{a}\n    c|1|2|a|{b}\n      d|0|3|a|{c}", 'a chain');
all_end();

# Who waits ahead in the queue is in the way, too; of two holders both are roots
runs('a', 'BEGIN; SELECT FROM t');
runs('b', 'BEGIN; LOCK t IN ACCESS SHARE MODE');
waits('c', 'BEGIN; LOCK t');
waits('d', 'SELECT FROM t');
waits('e', 'SELECT FROM t');
my $first = $db->sql('SELECT pid FROM pgscale.blockers() LIMIT 1') eq of('a')->pid ? 'a' : 'b';
my $second = $first eq 'a' ? 'b' : 'a';
is(forest(), <<"EOR" =~ s/\n\z//r, 'behind one who waits');
$first|3|||idle in transaction|$first|{}
  c|2|relation t|AccessExclusiveLock|active|$first|{$first,$second}
    d|0|relation t|AccessShareLock|active|$first|{c}
    e|0|relation t|AccessShareLock|active|$first|{c}
$second|3|||idle in transaction|$second|{}
EOR
as_pg_ok('behind one who waits');
all_end();

# A prepared transaction
runs('a', q{BEGIN; UPDATE t SET v = 1 WHERE id = 2; PREPARE TRANSACTION 'a two-phase commit of somebody'});
waits('b', 'BEGIN; DELETE FROM t WHERE id = 2');
is(of_all('process, pid, gid, state, usename = current_user, datname, transaction_ms > 0, root_pid, root_gid, root_state, blocked_by'), <<'EOR' =~ s/\n\z//r, 'a prepared transaction');
a two-phase commit of somebody||a two-phase commit of somebody|prepared|t|postgres|t||a two-phase commit of somebody|prepared|{}
  b|b||active|t|postgres|t||a two-phase commit of somebody|prepared|{0}
EOR
as_pg_ok('a prepared transaction');
$db->sql(q{ROLLBACK PREPARED 'a two-phase commit of somebody'});
all_end();


# Other kinds of lock
runs('x', 'CREATE SCHEMA s');
runs('a', 'SELECT pg_advisory_lock(4294967301), pg_advisory_lock(-3); BEGIN; SELECT pg_advisory_xact_lock(-1, 2); INSERT INTO t VALUES (77); DROP SCHEMA s');
waits('b', 'SELECT pg_advisory_lock(4294967301)');
waits('c', 'SELECT pg_advisory_xact_lock_shared(-1, 2)');
waits('d', 'CREATE TABLE s.t ()');
waits('e', 'CREATE INDEX CONCURRENTLY t_v ON t (v)');
waits('f', 'SELECT pg_advisory_lock(-3)');
waits('g', 'DELETE FROM pg_namespace WHERE nspname = $$s$$');
is(named($db->sql(q{SELECT regexp_replace(waits_for, '\d+/\d+|(?<=object )\d+|(?<=\(\d+,)\d+', 'N', 'g'), mode
    FROM pgscale.blockers() WHERE depth > 0 ORDER BY wait_start})), <<'EOR' =~ s/\n\z//r, 'advisory locks, an object, a virtual transaction');
advisory 4294967301|ExclusiveLock
advisory -1, 2|ShareLock
object N of pg_namespace|AccessShareLock
virtualxid N|ShareLock
advisory -3|ExclusiveLock
row (0,N) of pg_namespace|ShareLock
EOR
as_pg_ok('other kinds of lock');
all_end();

# A row that is being inserted and may be taken back
$db->sql(q{CREATE FUNCTION held(int) RETURNS int IMMUTABLE LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_advisory_xact_lock_shared(9); RETURN $1; END $$;
    CREATE TABLE spec (id int UNIQUE);
    CREATE INDEX ON spec (held(id))});
runs('a', 'SELECT pg_advisory_lock(9)');
waits($_, 'INSERT INTO spec VALUES (1) ON CONFLICT (id) DO NOTHING') for qw(b c);
is(of_all(q{process, regexp_replace(waits_for, ' \d+', ' N')}),
    "a|\n  b|advisory N\n    c|spectoken N, token 1", 'a speculative insertion');
as_pg_ok('a speculative insertion');
all_end();

# A parallel query, of which one worker waits, while the leader is in somebody's way
$db->sql(q{CREATE TABLE large AS SELECT i FROM generate_series(1, 10000) i; ANALYZE large;
    CREATE FUNCTION reads(int) RETURNS bool STABLE PARALLEL SAFE LANGUAGE plpgsql AS $$ BEGIN RETURN EXISTS (SELECT FROM other); END $$});
runs('a', 'BEGIN; LOCK other');
runs('b', "SET $_") for 'parallel_setup_cost = 0', 'parallel_tuple_cost = 0', 'min_parallel_table_scan_size = 0', 'parallel_leader_participation = off',
  'max_parallel_workers_per_gather = 2';
of('b')->start('SELECT count(*) FROM large WHERE reads(i)');
$db->poll_ok(q{SELECT count(*) > 0 FROM pg_locks l JOIN pg_stat_activity s USING (pid) WHERE NOT granted AND leader_pid IS NOT NULL}, 'a parallel worker waits');
waits('c', 'BEGIN; LOCK large');
is(of_all('process, waiters, waits_for, pid, waiting_pid = pid, (SELECT leader_pid FROM pg_stat_activity s WHERE s.pid = waiting_pid), blocked_by'),
    <<'EOR' =~ s/\n\z//r, 'counts as its leader');
a|2||a|||{}
  b|1|relation other|b|f|b|{a}
    c|0|relation large|c|t||{b}
EOR
as_pg_ok('a parallel query');
all_end();

# A lock group whose leader has left stands under a process that is there
SKIP: {
    my $library = PostgreSQL::Test::Utils::tempdir() . '/lock_group.so';
    my $include = server_headers();

    system("cc -shared -fPIC -O1 -I $include -o $library t/lib/lock_group.c >$library.out 2>&1") == 0 or skip 'no compiler', 2;
    chmod 0755, $library;
    $db->sql("CREATE FUNCTION lead_lock_group() RETURNS void LANGUAGE C AS '$library';
        CREATE FUNCTION join_lock_group(int) RETURNS bool LANGUAGE C AS '$library'");
    runs('a', 'SELECT lead_lock_group()');
    is(runs('b', 'SELECT join_lock_group(' . of('a')->pid . ')'), 't', 'a lock group');
    my $leader = of('a')->pid;
    (delete $session{a})->quit;
    $db->poll_ok("SELECT count(*) FROM pg_stat_activity WHERE pid = $leader", 'its leader leaves', 0);
    runs('b', 'BEGIN; LOCK other');
    waits('c', 'SELECT FROM other');
    is(of_all('process, waiters, state, root_pid, blocked_by'), "b|1|idle in transaction|b|{}\n  c|0|active|b|{b}", 'and stands under a member');
    all_end();
}

# Deadlocks that nobody has found yet: of rows, with one who waits behind; and one that also waits for a root
runs($_, "BEGIN; UPDATE t SET v = 1 WHERE id = " . (ord($_) - ord('a') + 1)) for qw(a b);
waits('a', 'UPDATE t SET v = 2 WHERE id = 2');
waits('b', 'UPDATE t SET v = 2 WHERE id = 1');
waits('c', 'UPDATE t SET v = 2 WHERE id = 1');
is(of_all('process, waiters, cycle, root_pid, blocked_by'), <<'EOR' =~ s/\n\z//r, 'a cycle');
a (cycle)|2|t|a|{b}
  b (cycle)|2|t|a|{a}
    c|0|f|a|{b}
EOR
as_pg_ok('a cycle');
all_end();
runs($_, 'BEGIN; LOCK other IN SHARE MODE') for qw(a c);
runs('b', 'BEGIN; LOCK t');
waits('a', 'SELECT FROM t');
waits('b', 'LOCK other');
is(of_all('process, waiters, cycle, root_pid, blocked_by'), <<'EOR' =~ s/\n\z//r, 'a cycle beside a root');
c|2|f|c|{}
a (cycle)|1|t|a|{b}
  b (cycle)|1|t|a|{a,c}
EOR
as_pg_ok('a cycle beside a root');
all_end();

# More holders, and more waiters, than are expected at first
runs("h$_", 'BEGIN; LOCK other IN SHARE MODE') for 1 .. 20;
waits('w', 'INSERT INTO other VALUES (1)');
is($db->sql('SELECT count(*), count(*) FILTER (WHERE waiters = 1), max(cardinality(blocked_by)) FROM pgscale.blockers()'), '21|20|20', 'twenty roots');
as_pg_ok('twenty roots');
all_end();

# What roles see of others
$db->sql('CREATE ROLE monitoring LOGIN IN ROLE pg_monitor; CREATE ROLE granted LOGIN; CREATE ROLE stranger LOGIN; GRANT USAGE ON SCHEMA pgscale, pgscale_internal TO granted');
$db->sql('GRANT SELECT ON pgscale.blockers TO granted; GRANT EXECUTE ON FUNCTION pgscale.blockers(), pgscale_internal.lock_waits() TO granted');
runs('a', 'BEGIN; LOCK other');
waits('b', 'SELECT FROM other');
my $seen = 'SELECT process, activity, application_name, query FROM pgscale.blockers';
is(named(session($node, user => 'monitoring')->sql($seen)), <<"EOR" =~ s/\n\z//r, 'pg_monitor');
a|idle in transaction|047_blockers.pl|LOCK other ;
  b|waits for relation other|047_blockers.pl|SELECT FROM other ;
EOR
is(named(session($node, user => 'granted')->sql($seen)), <<"EOR" =~ s/\n\z//r, 'one without pg_read_all_stats');
a||047_blockers.pl|<insufficient privilege>
  b|waits for relation other|047_blockers.pl|<insufficient privilege>
EOR
is((session($node, user => 'stranger')->try('SELECT * FROM pgscale.blockers'))[0], '42501', 'a stranger');
all_end();

# The history. Those who wait for long carry who is in their way; who is idle in a transaction is in it himself.
my $looks = 'SELECT blocker_looks FROM pgscale.sampler_stats';
sub looks_stay
{
    my $name = shift;
    my ($before, $ticks) = split /\|/, $db->sql('SELECT blocker_looks, ticks FROM pgscale.sampler_stats');

    $db->poll_ok("SELECT ticks > $ticks + 200 FROM pgscale.sampler_stats", "$name: two seconds");
    return is($db->sql($looks), $before, "$name: nobody looks");
}
sub of_history
{
    my ($name, $columns) = @_;

    return named($db->sql("SELECT DISTINCT $columns FROM pgscale.wait_history WHERE event_type = 'Lock' AND root_pid IS NOT NULL AND pid = "
          . of($name)->pid));
}

# the server's, which is the sampler's; the sessions have another, by which their cycles stay
$db->sql(q{ALTER DATABASE postgres SET deadlock_timeout = '10min'});
$db->set('deadlock_timeout', '300ms');
$db->poll_ok('SHOW deadlock_timeout', 'a threshold', '300ms');
$db->sql('SELECT pgscale.reset($$sampler$$)');
looks_stay('nobody waits');
runs('a', q{SET application_name = 'billing'; BEGIN; UPDATE t SET v = 1 WHERE id = 5});
runs('b', 'SET lock_timeout = 0');
waits($_, 'BEGIN; UPDATE t SET v = 2 WHERE id = 5') for qw(b c d);
my ($before, $began) = split /\|/, $db->sql("SELECT blocker_looks, extract(epoch FROM clock_timestamp()) FROM pgscale.sampler_stats");
$db->poll_ok("SELECT blocker_looks >= $before + 3 FROM pgscale.sampler_stats", 'it is looked for');
is($db->sql("SELECT blocker_looks - $before - 1 <= extract(epoch FROM clock_timestamp()) - $began FROM pgscale.sampler_stats"), 't', 'once a second at most');
is(of_history('b', 'blocker_pid, root_pid'), 'a|a', 'who waits for the transaction');
is(of_history($_, 'blocker_pid, root_pid'), 'b|a', "$_ waits for who is first") for qw(c d);
is($db->sql(q{SELECT count(*) > 0, count(blocker_pid), count(root_pid) FROM pgscale.wait_history WHERE event_type = 'Lock'
    AND sampled_at < (SELECT min(wait_start) + interval '290 ms' FROM pgscale.blockers())}), 't|0|0', 'no sample before the threshold');
is($db->sql(q{SELECT count(*) FROM pgscale.wait_history WHERE (blocker_pid IS NULL) <> (root_pid IS NULL)
    OR event_type <> 'Lock' AND blocker_pid IS NOT NULL}), 0, 'both or none, and for locks only');

# What the page says of it: afterwards, when all have gone
my ($who) = slurp_file('doc/blockers.md') =~ /Who was it at 03:10.*?```sql\n(.*?);\n```/s;
my %pid = map { $_ => of($_)->pid } qw(a b c d);
all_end();
is($db->sql("SELECT root_pid, root_state, root_usename = current_user, waiting, since <= until
    FROM ($who) w WHERE root_pid = $pid{a} AND root_state = 'idle in transaction'"), "$pid{a}|idle in transaction|t|3|t",
    'who held it, and what he did meanwhile');

# More holders than the sampler has room for: whose are not known have no root, least of all one that waits
my $many = 24;
$db->sql("DO 'BEGIN FOR i IN 1..$many LOOP EXECUTE format(\$\$CREATE TABLE held_%s ()\$\$, i); END LOOP; END'");
runs("h$_", 'BEGIN; LOCK ' . join(', ', map { "held_$_" } 1 .. $many) . ' IN ACCESS SHARE MODE') for 1 .. $many;
waits("w$_", "BEGIN; LOCK held_$_") for 1 .. $many;
waits("r$_", "SELECT FROM held_$_") for 1 .. $many;
($before) = $db->sql($looks);
$db->poll_ok("SELECT blocker_looks >= $before + 2 FROM pgscale.sampler_stats", 'many holders');
my $waiting = join ',', map { of("w$_")->pid, of("r$_")->pid } 1 .. $many;
is($db->sql(qq{SELECT count(*) FILTER (WHERE root_pid IS NOT NULL) > 0, count(*) FILTER (WHERE root_pid IN ($waiting))
    FROM pgscale.wait_history WHERE pid IN ($waiting)}), 't|0', 'no root waits itself');
all_end();

runs('a', q{BEGIN; UPDATE t SET v = 1 WHERE id = 6; PREPARE TRANSACTION 'p'});
waits('b', 'BEGIN; UPDATE t SET v = 1 WHERE id = 6');
$db->poll_ok('SELECT count(*) > 0 FROM pgscale.wait_history WHERE root_pid IS NOT NULL AND pid = ' . of('b')->pid, 'a prepared transaction');
is(of_history('b', 'blocker_pid, root_pid'), '0|0', 'has no process');
$db->sql(q{ROLLBACK PREPARED 'p'});
all_end();

runs($_, "BEGIN; UPDATE t SET v = 1 WHERE id = " . (ord($_) - ord('a') + 7)) for qw(a b);
waits('a', 'UPDATE t SET v = 2 WHERE id = 8');
waits('b', 'UPDATE t SET v = 2 WHERE id = 7');
$db->poll_ok("SELECT count(DISTINCT pid) FROM pgscale.wait_history WHERE root_pid = $session{a}{pid}", 'a cycle, in which all wait', 2);
is(of_history('a', 'blocker_pid, root_pid'), 'b|a', 'the longest one is called the root');
$db->set('deadlock_timeout', '10min');
$db->poll_ok('SHOW deadlock_timeout', 'a threshold that no wait reaches', '10min');
my $ticks = $db->sql('SELECT ticks FROM pgscale.sampler_stats');
$db->poll_ok("SELECT ticks > $ticks + 20 FROM pgscale.sampler_stats", 'and the sampler knows');
looks_stay('shorter waits');
all_end();

# Recovery that is in somebody's way, and waits itself
my $standby = pgscale_standby($node, "max_standby_streaming_delay = -1\nhot_standby_feedback = off\n");
my $primary = $db;
$db = session($standby);
my $startup = $db->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'startup'});
sub catch_up { my $lsn = $primary->sql('SELECT pg_current_wal_insert_lsn()');
    return until_ok(sub { $db->sql("SELECT pg_last_wal_replay_lsn() >= '$lsn'") eq 't' }, 'the standby follows'); }

my $locker = session($node);
$locker->sql('BEGIN; LOCK t');
$primary->sql('INSERT INTO other VALUES (1)');
catch_up();
$session{a} = session($standby);
waits('a', 'SELECT FROM t');
is(forest() =~ s/\b$startup\b/startup/gr, "startup|1|||startup|startup|{}\n  a|0|relation t|AccessShareLock|active|startup|{startup}",
    'recovery holds what the primary locked');
as_pg_ok('on a standby');
$locker->sql('ROLLBACK');
$primary->sql('INSERT INTO other VALUES (1)');
of('a')->finish;
runs('a', 'BEGIN; SELECT FROM t');
$primary->sql('TRUNCATE t');
$db->poll_ok('SELECT count(*) > 1 FROM pgscale.blockers', 'recovery waits');
is(forest() =~ s/\b$startup\b/startup/gr, "a|1|||idle in transaction|a|{}\n  startup|0|relation t|AccessExclusiveLock|startup|a|{a}",
    'for a session');
is($db->sql('SELECT waited_ms >= 0 FROM pgscale.blockers() WHERE depth = 1'), 't', 'and since when');
runs('a', 'COMMIT');
catch_up();

$primary->sql('BEGIN; INSERT INTO t SELECT i, 0 FROM generate_series(1, 10) i; ROLLBACK; INSERT INTO t VALUES (11, 0)');
catch_up();
runs('a', 'BEGIN; DECLARE c CURSOR FOR SELECT * FROM t; FETCH c');
$primary->sql('VACUUM t');
my $event = server_major() >= 19 ? 'BufferCleanup' : 'BufferPin';
$db->poll_ok('SELECT waits_for, state, blocked_by FROM pgscale.blockers()', 'who has pinned a buffer is not known', "$event|startup|{}");
runs('a', 'COMMIT');
catch_up();
$standby->stop;

done_testing();
