# Moves of indexes and tables from the request to the end, whatever that is: done and the same as before, cancelled, failed, put
# off, undone; and that nothing is left of those that were not made. What must not change is compared by pg_dump.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main', init => [ allows_streaming => 1 ], conf => <<'EOC');
fsync = off
max_worker_processes = 20
max_prepared_transactions = 5
checkpoint_timeout = 1h
allow_in_place_tablespaces = on
client_min_messages = warning
EOC
my $db = session($node);
$db->sql("CREATE TABLESPACE $_ LOCATION ''") for qw(fast other);

# Asks for moves; the jobs.
sub ask
{
    my ($call, $session) = @_;

    return split /\n/, ($session // $db)->sql("SELECT * FROM pgscale.$call");
}

# Waits until a job has the expected values; a test.
sub job_ok
{
    my ($job, $columns, $expected, $name, $session) = @_;
    $session //= $db;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return $session->poll_ok("SELECT $columns FROM pgscale.relocation_jobs WHERE job = $job", $name, $expected)
      || !diag $session->sql('SELECT row_to_json(j) FROM pgscale.relocation_jobs j WHERE job = ' . $job);
}

sub done_ok
{
    my ($name, @jobs) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return $db->poll_ok(sprintf('SELECT bool_and(finished_at IS NOT NULL) FROM pgscale.relocation_jobs WHERE job IN (%s)', join ',', @jobs),
        "$name: have ended")
      && is($db->sql(sprintf(q{SELECT string_agg(concat_ws(' ', relation, state, sqlstate, message), '; ') FROM pgscale.relocation_jobs
        WHERE job IN (%s) AND (state <> 'done' OR sqlstate IS NOT NULL)}, join ',', @jobs)), '', "$name: all done");
}

# Where it lies
sub place { my ($relation, $session) = @_; return ($session // $db)->sql(qq{SELECT coalesce(spcname, 'pg_default') FROM pg_class c
    LEFT JOIN pg_tablespace s ON s.oid = c.reltablespace WHERE c.oid = '$relation'::regclass}); }

# No index is invalid, and none there that was not
my $indexes;
sub clean_ok
{
    my $name = shift;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my $now = $db->sql(q{SELECT string_agg(concat_ws(' ', c.oid::regclass, i.indisvalid, i.indisready, i.indislive), '; '
        ORDER BY c.oid::regclass::text) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        WHERE c.relnamespace <> 'pg_toast'::regnamespace});

    $indexes = $now unless defined $name;
    return defined $name ? is($now, $indexes, $name) : 1;
}

# Has jobs started, or not: returns when the launcher knows, and no worker may take one that does not know yet.
sub launching
{
    my $on = shift;

    $db->set('pgscale.relocation', $on);
    until_true(sub { $db->sql("SELECT enabled = '$on' AND (enabled OR NOT EXISTS (SELECT FROM pg_stat_activity
        WHERE backend_type = 'pgscale relocation worker')) FROM pgscale.health WHERE feature = 'relocation'") eq 't' })
      or die "pgscale.relocation is not $on";
    return;
}

# Starts a job whose REINDEX cannot get past a phase, because of what a session of its own does in a transaction.
sub held
{
    my ($in_transaction, $phase, $index) = @_;
    my $holder = session($node);
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    $holder->sql($in_transaction);
    my ($job) = ask("relocate_index('$index', '" . (place($index) eq 'fast' ? 'other' : 'fast') . "')");
    job_ok($job, 'state, phase', "running|$phase", "a job that is $phase");
    my $worker = $db->sql("SELECT pid FROM pgscale.relocation_job WHERE job = $job");
    return ($holder, $job, $worker);
}

sub workers_gone { return $db->poll_ok(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pgscale relocation worker'},
    'no worker is left', 0); }

# What is there, but where it lies
sub schema
{
    my ($text) = run_command([ 'pg_dump', '-s', '--no-tablespaces', '-d', $node->connstr('postgres') ]);

    return $text =~ s/^\\(un)?restrict .*\n//mgr;
}

### Every kind of index is what it was

my $amcheck = have_module('amcheck');
my $prewarm = have_module('pg_prewarm');
$db->sql('CREATE EXTENSION amcheck') if $amcheck;
$db->sql('CREATE EXTENSION pg_prewarm') if $prewarm;
my $options = sprintf 'amcheck => %s, prewarm => %s', map { $_ ? 'true' : 'false' } $amcheck, $prewarm;
my $long = 'x' x 63;
$db->sql(<<"EOQ");
CREATE SCHEMA "sch ""'ema";
CREATE TABLE t (id int CONSTRAINT "the key" PRIMARY KEY, u int CONSTRAINT "once" UNIQUE DEFERRABLE INITIALLY DEFERRED, n int NOT NULL,
    v text, a int[], p point);
INSERT INTO t SELECT i, -i, i, md5(i::text), ARRAY[i % 10, i % 7], point(i, i) FROM generate_series(1, 2000) i;
CREATE UNIQUE INDEX t_unique ON t (n DESC NULLS LAST) WITH (fillfactor = 70);
CREATE INDEX t_partial ON t (v) WHERE n % 2 = 0;
CREATE INDEX t_expression ON t ((n % 10), lower(v) text_pattern_ops, v COLLATE "C");
CREATE INDEX t_include ON t (n) INCLUDE (v);
CREATE INDEX t_gin ON t USING gin (a) WITH (fastupdate = off);
CREATE INDEX t_gist ON t USING gist (p);
CREATE INDEX t_spgist ON t USING spgist (p);
CREATE INDEX t_brin ON t USING brin (n) WITH (pages_per_range = 2);
CREATE INDEX t_hash ON t USING hash (v);
CREATE INDEX "$long" ON t (v, n);
CREATE INDEX "new
line ""quoted"" 'too'; DROP TABLE t" ON t (n, v);
ALTER INDEX t_expression ALTER COLUMN 1 SET STATISTICS 321;
COMMENT ON INDEX t_partial IS 'a comment; with ''quotes''';
COMMENT ON INDEX "the key" IS 'of the index';
COMMENT ON CONSTRAINT "the key" ON t IS 'of the constraint';
ALTER TABLE t REPLICA IDENTITY USING INDEX t_unique;
ALTER TABLE t CLUSTER ON t_include;
EOQ
$db->sql(<<'EOQ');
CREATE TABLE refers (id int REFERENCES t (id), n int REFERENCES t (n));
INSERT INTO refers SELECT i, i FROM generate_series(1, 20) i;
CREATE TABLE "sch ""'ema"."Ta ble" ("I d" int PRIMARY KEY);
CREATE TABLE parent (id int, n int, PRIMARY KEY (id)) PARTITION BY RANGE (id);
CREATE TABLE leaf1 PARTITION OF parent FOR VALUES FROM (0) TO (10);
CREATE TABLE sub PARTITION OF parent FOR VALUES FROM (10) TO (30) PARTITION BY RANGE (id);
CREATE TABLE leaf2 PARTITION OF sub FOR VALUES FROM (10) TO (20);
CREATE TABLE leaf3 PARTITION OF sub FOR VALUES FROM (20) TO (30);
CREATE INDEX parent_n ON parent (n);
INSERT INTO parent SELECT i, i FROM generate_series(0, 29) i;
CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY);
INSERT INTO unlogged SELECT generate_series(1, 1000);
CREATE MATERIALIZED VIEW matview AS SELECT i AS id FROM generate_series(1, 1000) i;
CREATE UNIQUE INDEX matview_id ON matview (id);
CREATE TABLE toasted (id int PRIMARY KEY, v text);
ALTER TABLE toasted ALTER v SET STORAGE EXTERNAL;
INSERT INTO toasted SELECT i, repeat('x', 5000) FROM generate_series(1, 50) i;
CREATE TABLE empty (id int PRIMARY KEY);
ANALYZE;
EOQ
clean_ok();
my $schema = schema();
like($schema, qr/SET STATISTICS 321.*CLUSTER ON t_include.*REPLICA IDENTITY USING INDEX t_unique/s, 'pg_dump shows what there is');
my @tables = ('t', q{"sch ""'ema"."Ta ble"}, qw(parent unlogged matview toasted empty));
my @jobs = map { my $table = $_ =~ s/'/''/gr; ask("relocate_indexes('$table', 'fast', $options)") } @tables;
is(scalar @jobs, 13 + 1 + 6 + 1 + 1 + 1 + 1, 'a job for each index');
done_ok('every kind of index', @jobs);
is(schema(), $schema, 'they are what they were');
clean_ok('all valid, none left behind');
my $elsewhere = q{SELECT string_agg(c.oid::regclass::text, ', ') FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE c.oid >= 16384 AND c.relkind = 'i' AND c.relnamespace NOT IN ('pgscale'::regnamespace, 'pg_toast'::regnamespace)
    AND c.reltablespace IS DISTINCT FROM (SELECT oid FROM pg_tablespace WHERE spcname = 'fast')};
is($db->sql($elsewhere), '', 'they are where they should be');
is($db->sql(q{SELECT count(*) FROM pg_index WHERE indrelid = 'parent'::regclass AND indisvalid}), 2, 'a partitioned index is valid');
is($db->sql(q{SELECT string_agg(inhrelid::regclass::text, ' ' ORDER BY inhrelid::regclass::text) FROM pg_inherits
    WHERE inhparent = 'sub_n_idx'::regclass}), 'leaf2_n_idx leaf3_n_idx', 'with its leaves');
is($db->sql(q{SELECT count(*) FROM pg_stats WHERE tablename = 't_expression'}), 2, 'the statistics of expressions are kept');
is($db->sql('SELECT bool_and(size_bytes > 0 AND size_after_bytes > 0 AND attempts = 1 AND finished_at >= started_at AND started_at >= requested_at
    AND phase IS NULL AND done_fraction IS NULL AND wait_until IS NULL) FROM pgscale.relocation_jobs'), 't', 'what their jobs say');
is(($db->try('INSERT INTO t SELECT * FROM t LIMIT 1'))[0], '23505', 'keys are unique');
is(($db->try('DELETE FROM t WHERE id = 1'))[0], '23503', 'and referenced');
is(($db->try('BEGIN; UPDATE t SET u = -2 WHERE id = 1; UPDATE t SET u = -1 WHERE id = 2; COMMIT'))[0], '00000', 'deferred as before');
SKIP:
{
    skip 'this server has no amcheck', 1 unless $amcheck;

    is(($db->try(q{SELECT bt_index_check(i.indexrelid, true) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        JOIN pg_am a ON a.oid = c.relam WHERE amname = 'btree' AND relkind = 'i' AND c.oid >= 16384 AND relpersistence <> 't'}))[0],
        '00000', 'they are sound');
}

# Back
@jobs = map { $db->sql("SELECT pgscale.relocation_undo($_)") } @jobs;
done_ok('undone', @jobs);
is(schema(), $schema, 'they are what they were');
clean_ok('all valid, none left behind');
is($db->sql('SELECT count(*) FROM pg_class WHERE reltablespace > 16383'), 0, 'and where they were');
is($db->sql('SELECT count(DISTINCT undo_of) FROM pgscale.relocation_jobs'), scalar @jobs, 'jobs tell what they undo');

# Tables
my @before = split /\n/, $db->sql('SELECT sum(length(v)) FROM toasted UNION ALL SELECT count(*) FROM parent');
@jobs = map { ask("relocate_table('$_', 'fast', 'lock')") } qw(t parent unlogged matview toasted empty);
is(scalar @jobs, 1 + 3 + 1 + 1 + 1 + 1, 'a job for each table');
done_ok('tables', @jobs);
is(join(' ', map { place($_) } qw(t leaf1 leaf2 leaf3 unlogged matview toasted empty t_unique)), 'fast ' x 8 . 'pg_default', 'they have moved');
is($db->sql(q{SELECT count(*) FROM pg_class WHERE oid = (SELECT reltoastrelid FROM pg_class WHERE oid = 'toasted'::regclass)
    AND reltablespace = (SELECT oid FROM pg_tablespace WHERE spcname = 'fast')}), 1, 'with what is stored aside');
is($db->sql('SELECT sum(length(v)) FROM toasted UNION ALL SELECT count(*) FROM parent'), join("\n", @before), 'nothing is missing');
is(schema(), $schema, 'they are what they were');
done_ok('undone', map { $db->sql("SELECT pgscale.relocation_undo($_)") } @jobs);
is($db->sql('SELECT count(*) FROM pg_class WHERE reltablespace > 16383'), 0, 'and where they were');
is(($db->try("SELECT pgscale.relocation_undo($jobs[0])"))[0], '55000', 'there is nothing to undo twice');
@jobs = ask(q{relocate_index('t_gin', 'fast')});
done_ok('once more', @jobs);
$db->sql('DROP INDEX t_gin; CREATE INDEX t_gin ON t USING gin (a) WITH (fastupdate = off)');
is(($db->try("SELECT pgscale.relocation_undo($jobs[0])"))[0], '42704', 'nor is what has been built anew');
workers_gone();

### Ended in the midst of it

$db->set('pgscale.relocation_max_transaction_age', -1);
my $writer = q{BEGIN; UPDATE t SET v = v WHERE id = 1};
my $snapshot = q{BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1 FROM empty};
my $reader = q{BEGIN; SELECT count(*) FROM t};
for my $hold ([ $writer, 'waiting for writers before build' ], [ $snapshot, 'waiting for old snapshots' ])
{
    my ($holder, $job, $worker) = held(@$hold, 't_partial');

    is($db->sql("SELECT pgscale.relocation_cancel($job)"), 't', 'relocation_cancel');
    $holder->sql('ROLLBACK') if $hold->[0] eq $writer;    # to drop an index waits for writers, too
    job_ok($job, 'state, sqlstate, finished_at > started_at', 'cancelled|57014|t', 'ends it');
    clean_ok('and leaves nothing behind');
    is(place('t_partial'), 'pg_default', 'it has not moved');
    is($db->sql("SELECT pgscale.relocation_cancel($job)"), 'f', 'it cannot be ended again');
    $holder->quit;
}
{
    my ($holder, $job, $worker) = held($snapshot, 'waiting for old snapshots', 't_partial');

    is($db->sql("SELECT pg_cancel_backend($worker)"), 't', 'pg_cancel_backend of the worker');
    job_ok($job, 'state, sqlstate', 'cancelled|57014', 'ends the job');
    clean_ok('and leaves nothing behind');
    $holder->quit;
}
{
    my ($holder, $job, $worker) = held($snapshot, 'waiting for old snapshots', 't_partial');

    is($db->sql("SELECT pg_terminate_backend($worker)"), 't', 'pg_terminate_backend of the worker');
    job_ok($job, q{state, phase, attempts}, 'running|waiting for old snapshots|2', 'another worker tries again');
    isnt($db->sql("SELECT pid FROM pgscale.relocation_job WHERE job = $job"), $worker, 'in another process');
    $holder->quit;
    done_ok('when nothing is in its way', $job);
    clean_ok('and leaves nothing behind');
    is(place('t_partial'), 'fast', 'it has moved');
}
{
    my ($holder, $job, $worker) = held($reader, 'waiting for readers before marking dead', 't_partial');

    is($db->sql("SELECT pgscale.relocation_cancel($job)"), 't', 'relocation_cancel after the swap');
    $holder->quit;
    done_ok('comes too late', $job);
    clean_ok('and leaves nothing behind');
    is(place('t_partial'), 'other', 'it has moved');
    is($db->sql("SELECT pgscale.relocation_cancel($job)"), 'f', 'it cannot be ended any more');
}
{
    my ($holder, $job, $worker) = held($reader, 'waiting for readers before marking dead', 't_partial');

    is($db->sql("SELECT pg_terminate_backend($worker)"), 't', 'pg_terminate_backend after the swap');
    $db->poll_ok("SELECT count(*) FROM pg_stat_activity WHERE pid = $worker", 'the worker ends', 0);
    $holder->quit;
    done_ok('it has moved', $job);
    clean_ok('and leaves nothing behind');
}
is(schema(), $schema, 'all is what it was');

# The server is shut down, while a prepared transaction holds the move up for ever
{
    my ($holder, $job, $worker) = held("$writer; PREPARE TRANSACTION 'prepared'", 'waiting for writers before build', 't_partial');
    $_->quit for $db, $holder;
    $node->stop('fast');
    $node->start;
    $db = session($node);
    job_ok($job, 'state', 'running', 'after a restart it goes on');
    $db->sql(q{ROLLBACK PREPARED 'prepared'});
    done_ok('and is done', $job);
    clean_ok('nothing is left behind');
}

### Put off

$db->set('pgscale.relocation_max_transaction_age', 0);
{
    my $holder = session($node);
    $holder->sql($snapshot);
    my ($job) = ask(q{relocate_index('t_unique', 'fast')});
    job_ok($job, q{state, sqlstate, message ~ ('^the transaction of process } . $holder->pid . q{ has been open for \d'), attempts, wait_until > requested_at},
        'waiting|55006|t|0|t', 'it waits for an old transaction');
    my ($waiting) = ask(q{relocate_index('t_hash', 'fast')});
    job_ok($waiting, 'state', 'waiting', 'so does another one');
    is($db->sql("SELECT pgscale.relocation_cancel($waiting)"), 't', 'that is cancelled');
    job_ok($waiting, 'state, finished_at IS NOT NULL, wait_until', 'cancelled|t|', 'at once');
    $holder->quit;
    done_ok('when that has ended', $job);

    $holder = session($node);
    $holder->sql("$writer; PREPARE TRANSACTION 'it''s prepared'");
    ($job) = ask(q{relocate_index('t_unique', 'other')});
    job_ok($job, q{state, message ~ $$^the prepared transaction 'it''s prepared' has been open for \d$$}, 'waiting|t', 'it waits for a prepared one');
    $db->sql(q{ROLLBACK PREPARED 'it''s prepared'});
    done_ok('when that has ended', $job);
    $holder->quit;

    # one that reads another table in another database, or nothing at all, does not count
    $db->sql('CREATE DATABASE another');
    $holder = session($node, dbname => 'another');
    $holder->sql($snapshot =~ s/empty/pg_class/r);
    done_ok('a transaction of another database is none', ask(q{relocate_index('t_unique', 'fast')}));
    $holder->quit;
}
$db->set('pgscale.relocation_max_transaction_age');

# Switched off
launching('off');
$db->poll_ok(q{SELECT enabled, state, action ~ 'pgscale.relocation to on' FROM pgscale.health WHERE feature = 'relocation'}, 'switched off', 'f|off|t');
my ($queued) = ask(q{relocate_index('t_unique', 'other')});
is($db->sql("SELECT state, attempts, started_at FROM pgscale.relocation_jobs WHERE job = $queued"), 'queued|0|', 'jobs are queued');
$db->sql("CALL pgscale.relocation_wait($queued, '300 ms')");
is($db->sql("CALL pgscale.relocation_wait($queued, '1 ms')"), 'queued', 'and stay so');
launching('on');
is($db->sql("CALL pgscale.relocation_wait($queued)"), 'done', 'switched on, they are started; relocation_wait waits');
$db->poll_ok(q{SELECT enabled, state FROM pgscale.health WHERE feature = 'relocation'}, 'health says that it works', 't|idle');

# A request that is rolled back
$db->sql('BEGIN');
ask(q{relocate_index('t_unique', 'fast')});
$db->sql('ROLLBACK');
$db->sql('BEGIN');
my ($kept) = ask(q{relocate_index('t_hash', 'fast')});
$db->sql('SAVEPOINT here');
my ($gone) = ask(q{relocate_index('t_unique', 'fast')});
$db->sql('ROLLBACK TO here; COMMIT');
done_ok('of a transaction what was kept', $kept);
is($db->sql("SELECT count(*) FROM pgscale.relocation_jobs WHERE job = $gone"), 0, 'and nothing else');
is(place('t_unique'), 'other', 'is done');

### Two at a time, of different tables

$db->set('pgscale.relocation_workers', 2);
$db->set('pgscale.relocation_max_transaction_age', -1);
{
    my $holder = session($node);
    $holder->sql("$writer; INSERT INTO unlogged VALUES (-1)");
    my @of_t = map { ask("relocate_index('$_', 'pg_default')") } qw(t_unique t_hash t_partial);
    my ($of_other) = ask(q{relocate_index('unlogged_pkey', 'fast')});
    job_ok($of_other, 'state', 'running', 'two workers: a job of another table runs');
    job_ok($of_t[0], 'state', 'running', 'at the same time');
    is($db->sql("SELECT string_agg(DISTINCT state, ' ') FROM pgscale.relocation_jobs WHERE job IN ($of_t[1], $of_t[2])"), 'queued', 'one of the same table does not');
    is($db->sql("SELECT pgscale.relocation_cancel($of_t[1])"), 't', 'a queued one is cancelled');
    job_ok($of_t[1], 'state, started_at', 'cancelled|', 'and never starts');
    $holder->quit;
    done_ok('the others', $of_other, @of_t[0, 2]);
    is($db->sql("SELECT max(started_at) >= min(finished_at) FROM pgscale.relocation_jobs WHERE job IN ($of_t[0], $of_t[2])"), 't',
        'one after the other');
}
$db->set('pgscale.relocation_max_transaction_age');
$db->set('pgscale.relocation_workers');

### A table whose lock is not to be had

$db->set('pgscale.relocation_attempts', 2);
{
    my $holder = session($node);
    my $other = session($node);
    $holder->sql('BEGIN; SELECT count(*) FROM toasted');
    my ($job) = ask(q{relocate_table('toasted', 'fast', 'lock', '200 ms')});
    job_ok($job, q{state, sqlstate, attempts, wait_until > clock_timestamp() - interval '1 min'}, 'waiting|55P03|1|t', 'no lock: it is tried again');
    $other->sql('SELECT count(*) FROM toasted');
    job_ok($job, 'state, sqlstate, attempts, finished_at - started_at > interval $$1 s$$', 'failed|55P03|2|t', 'later, and not for ever');
    is($other->sql('SELECT count(*) FROM toasted'), 50, 'nobody waits for it any more');
    is(place('toasted'), 'pg_default', 'it has not moved');

    # within the timeout
    ($job) = ask(q{relocate_table('toasted', 'fast', 'lock', '1 hour')});
    $db->poll_ok(q{SELECT count(*) FROM pg_locks WHERE relation = 'toasted'::regclass AND mode = 'AccessExclusiveLock' AND NOT granted},
        'one that has time waits', 1);
    is($db->sql("SELECT pgscale.relocation_cancel($job)"), 't', 'it is cancelled');
    job_ok($job, 'state', 'cancelled', 'and ends');
    ($job) = ask(q{relocate_table('toasted', 'fast', 'lock', '1 hour')});
    $db->poll_ok(q{SELECT count(*) FROM pg_locks WHERE relation = 'toasted'::regclass AND mode = 'AccessExclusiveLock' AND NOT granted},
        'one that has time waits', 1);
    $holder->sql('COMMIT');
    done_ok('and gets its lock', $job);
    $_->quit for $holder, $other;
}
$db->set('pgscale.relocation_attempts');

### What is gone when its turn comes

launching('off');
$db->sql(<<'EOQ');
CREATE ROLE leaving LOGIN;
GRANT USAGE ON SCHEMA pgscale TO leaving;
GRANT EXECUTE ON FUNCTION pgscale.relocate_index(regclass, name, boolean, boolean), pgscale.relocation_cancel(bigint) TO leaving;
GRANT SELECT ON pgscale.relocation_jobs TO leaving;
GRANT CREATE ON TABLESPACE fast TO leaving;
CREATE TABLESPACE leaving LOCATION '';
CREATE TABLE own (id int PRIMARY KEY, n int);
CREATE INDEX own_n ON own (n);
CREATE INDEX own_n2 ON own (n);
CREATE TABLE dropped (id int PRIMARY KEY, n int);
CREATE INDEX dropped_n ON dropped (n);
CREATE TABLE renamed (id int PRIMARY KEY);
GRANT CREATE ON SCHEMA public TO leaving;
ALTER TABLE own OWNER TO leaving;
EOQ
my $leaving = session($node, user => 'leaving');
my ($own) = ask(q{relocate_index('own_pkey', 'fast')}, $leaving);
is($leaving->sql("SELECT requested_by, state FROM pgscale.relocation_jobs WHERE job = $own"), 'leaving|queued', 'a role without superuser asks');
my ($foreign) = ask(q{relocate_index('t_hash', 'other')});
is(($leaving->try("SELECT pgscale.relocation_cancel($foreign)"))[0], '42501', 'it cannot cancel what others have asked for');
is(($leaving->try(q{SELECT pgscale.relocate_index('t_gin', 'fast')}))[0], '42501', 'nor move what others own');
is(($leaving->try(q{SELECT pgscale.relocate_index('own_n', 'other')}))[0], '42501', 'nor to where it may not create');
launching('on');
done_ok('its index', $own, $foreign);
is(place('own_pkey'), 'fast', 'has moved');
launching('off');
my ($no_tablespace) = ask(q{relocate_index('own_n', 'fast')}, $leaving);
my ($no_role) = ask(q{relocate_index('own_n2', 'fast')}, $leaving);
my ($no_index) = ask(q{relocate_index('dropped_n', 'fast')});
my ($no_table) = ask(q{relocate_table('dropped', 'fast', 'lock')});
my ($not_there) = ask(q{relocate_index('toasted_pkey', 'leaving')});
my ($new_name) = ask(q{relocate_index('renamed_pkey', 'fast')});
$db->sql('REVOKE CREATE ON TABLESPACE fast FROM leaving');
$db->sql('DROP TABLE dropped');
$db->sql('DROP TABLESPACE leaving');
$db->sql('ALTER INDEX renamed_pkey RENAME TO "has ""been renamed"; ALTER TABLE renamed RENAME TO "also, that"');
$db->sql('CREATE TABLE renamed_pkey ()');
launching('on');
job_ok($no_tablespace, 'state, sqlstate, attempts', 'failed|42501|0', 'it has lost the right to create there');
job_ok($no_index, 'state, sqlstate, message', 'failed|42704|the index was dropped', 'an index that was dropped');
job_ok($no_table, 'state, sqlstate, message', 'failed|42704|the table was dropped', 'a table that was dropped');
job_ok($not_there, 'state, sqlstate, message', 'failed|42704|the tablespace was dropped', 'a tablespace that was dropped');
done_ok('an index that was renamed', $new_name);
is(place('"has ""been renamed"'), 'fast', 'it has moved');
job_ok($no_role, 'state, sqlstate', 'failed|42501', 'no role');
launching('off');
$db->sql('GRANT CREATE ON TABLESPACE fast TO leaving');
my ($not_owner) = ask(q{relocate_index('own_n', 'fast')}, $leaving);
($no_role) = ask(q{relocate_index('own_n2', 'fast')}, $leaving);
$db->sql('ALTER TABLE own OWNER TO CURRENT_USER');
launching('on');
job_ok($_, 'state, sqlstate', 'failed|42501', 'it owns the table no more') for $not_owner, $no_role;
launching('off');
$db->sql('ALTER TABLE own OWNER TO leaving');
($no_role) = ask(q{relocate_index('own_n2', 'fast')}, $leaving);
$leaving->quit;
$db->sql('ALTER TABLE own OWNER TO CURRENT_USER; DROP OWNED BY leaving; DROP ROLE leaving');
launching('on');
job_ok($no_role, 'state, sqlstate, message', 'failed|42704|the role that asked for it was dropped', 'a role that was dropped');
$db->sql('DROP TABLE own, "also, that", renamed_pkey');

# pg_monitor reads the view, not the table
$db->sql('CREATE ROLE watching LOGIN IN ROLE pg_monitor');
my $watching = session($node, user => 'watching');
is(($watching->try($_))[0], '42501', "pg_monitor may not: $_")
  for 'SELECT FROM pgscale.relocation_job', 'UPDATE pgscale.relocation_job SET state = state', 'DELETE FROM pgscale.relocation_job',
  q{SELECT pgscale.relocation_cancel(1)};
is($watching->sql('SELECT count(*) > 50 FROM pgscale.relocation_jobs'), 't', 'it may read pgscale.relocation_jobs');
$watching->quit;

# Databases and the extension
for my $database (qw(plain forced))
{
    $db->sql("CREATE DATABASE $database");
    my $there = session($node, dbname => $database);
    $there->sql('CREATE EXTENSION pgscale; CREATE TABLE t (id int PRIMARY KEY)');
    launching('off') if $database eq 'plain';
    $there->sql('BEGIN; INSERT INTO t VALUES (1)') if $database eq 'forced';
    my $asking = session($node, dbname => $database);
    my ($job) = ask(q{relocate_index('t_pkey', 'fast')}, $asking);
    if ($database eq 'plain')
    {
        $_->quit for $there, $asking;
        is(($db->try("DROP DATABASE $database"))[0], '00000', 'a database with a queued job can be dropped');
        launching('on');
    }
    else
    {
        job_ok($job, 'state', 'running', 'a job in another database', $asking);
        is(($db->try("DROP DATABASE $database"))[0], '55006', 'a database with a running job cannot be dropped');
        is(($db->try("DROP DATABASE $database WITH (FORCE)"))[0], '00000', 'but by force');
    }
}
$db->sql('CREATE DATABASE without');
{
    my $there = session($node, dbname => 'without');
    $there->sql('CREATE EXTENSION pgscale; CREATE TABLE t (id int PRIMARY KEY)');
    my $holder = session($node, dbname => 'without');
    $holder->sql('BEGIN; INSERT INTO t VALUES (1)');
    my ($job) = ask(q{relocate_index('t_pkey', 'fast')}, $there);
    job_ok($job, 'state, phase', 'running|waiting for writers before build', 'a job', $there);
    $there->sql(q{SET statement_timeout = '20 s'});
    is(($there->try('DROP EXTENSION pgscale'))[0], '00000', 'the extension is dropped meanwhile');
    $holder->sql('COMMIT');
    $there->poll_ok(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pgscale relocation worker'}, 'the worker ends', 0);
    is($there->sql(q{SELECT count(*), bool_and(indisvalid) FROM pg_index WHERE indrelid = 't'::regclass}), '1|t', 'nothing is left behind');
    is($there->sql('CREATE EXTENSION pgscale; SELECT count(*) FROM pgscale.relocation_jobs'), 0, 'a new one has no jobs');
    my ($again) = ask(q{relocate_table('t', 'fast', 'lock')}, $there);
    job_ok($again, 'state', 'done', 'and works', $there);
    $there->sql('DROP EXTENSION pgscale');
    $_->quit for $holder, $there;
}

# A table of that name that is not the extension's, whose triggers are somebody's
$db->sql('CREATE ROLE trapper LOGIN; GRANT CREATE ON DATABASE without TO trapper');
{
    my $trapper = session($node, dbname => 'without', user => 'trapper');
    $trapper->sql(<<'EOQ');
CREATE SCHEMA pgscale;
CREATE TABLE pgscale.relocation_job (job bigint, kind text DEFAULT 'index', relation oid DEFAULT 1, heap oid DEFAULT 1, relation_name text,
    heap_name text, source oid, target oid, source_name name, target_name name, role oid DEFAULT 10, role_name name, amcheck boolean,
    prewarm boolean, lock_timeout_ms integer DEFAULT 1, block_ms_predicted double precision, bytes bigint DEFAULT 1, bytes_after bigint,
    undo_of bigint, requested_at timestamptz DEFAULT now(), started_at timestamptz, finished_at timestamptz,
    not_before timestamptz DEFAULT now(), state text DEFAULT 'queued', cancel boolean DEFAULT false, attempts integer DEFAULT 0,
    crashes integer DEFAULT 0, pid integer, new_index oid, before text, sqlstate text, message text);
CREATE TABLE pgscale.sprung (by name);
GRANT INSERT ON pgscale.sprung TO PUBLIC;
CREATE FUNCTION pgscale.spring() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN INSERT INTO pgscale.sprung VALUES (current_user); RETURN new; END';
CREATE TRIGGER spring BEFORE UPDATE ON pgscale.relocation_job FOR EACH ROW EXECUTE FUNCTION pgscale.spring();
INSERT INTO pgscale.relocation_job (job) VALUES (1);
EOQ
    $trapper->quit;
    # the second time it belongs to a superuser, as after a restore that was made by one
    for my $owner ('an ordinary user', 'a superuser')
    {
        my $there = session($node, dbname => 'without');
        $there->sql('REASSIGN OWNED BY trapper TO CURRENT_USER') if $owner eq 'a superuser';
        $_->quit for $there, $db;
        $node->restart;
        $db = session($node);
        my ($job) = ask(q{relocate_index('matview_id', '} . (place('matview_id') eq 'fast' ? 'other' : 'fast') . q{')});
        done_ok('after a restart, which has every database looked into', $job);
        workers_gone();
        $there = session($node, dbname => 'without');
        is($there->sql('SELECT count(*), (SELECT state FROM pgscale.relocation_job) FROM pgscale.sprung'), '0|queued',
            "a table of $owner that only has the name is left alone");
        $there->quit;
    }
}
$db->sql('DROP DATABASE without');

# What an index' functions do, or the settings of its database, is not done as a superuser
$db->sql(<<'EOQ');
CREATE ROLE owning LOGIN;
CREATE SCHEMA owning AUTHORIZATION owning;
SET ROLE owning;
CREATE FUNCTION owning.spring(a bigint, b bigint) RETURNS boolean LANGUAGE plpgsql AS
$$BEGIN EXECUTE 'ALTER ROLE owning SUPERUSER'; RETURN a OPERATOR(pg_catalog.=) b; END$$;
CREATE TABLE owning.t (id int);
INSERT INTO owning.t VALUES (1);
CREATE FUNCTION owning.set() RETURNS int LANGUAGE plpgsql AS
$$BEGIN
    PERFORM pg_catalog.set_config('search_path', 'owning, pg_catalog', false);
    EXECUTE 'CREATE TABLE owning.' || pg_catalog.quote_ident('made by ' || pg_catalog.pg_backend_pid()) || ' ()';
    RETURN 1;
EXCEPTION WHEN duplicate_table THEN RETURN 1;
END$$;
CREATE FUNCTION owning.f(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN PERFORM owning.set(); RETURN $1; END';
CREATE INDEX trap ON owning.t (owning.f(id));
CREATE OPERATOR owning.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = owning.spring);
RESET ROLE;
RESET search_path;
EOQ
$db->sql('ALTER DATABASE postgres SET search_path = owning, pg_catalog');
my ($trap) = ask(q{relocate_index('owning.trap', 'fast')});
job_ok($trap, 'finished_at IS NOT NULL', 't', 'an index with functions that do what they should not');
is($db->sql(q{SELECT rolsuper FROM pg_roles WHERE rolname = 'owning'}), 'f', 'has no more rights than before');
is($db->sql(q{SELECT count(*) FROM pg_index WHERE indrelid = 'owning.t'::regclass}), 1, 'and nothing is left behind');
$db->sql('ALTER DATABASE postgres RESET search_path');
$db->sql('DROP SCHEMA owning CASCADE; DROP ROLE owning, trapper');

### A standby

$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby, 'replay');
my $there = session($standby);
is(($there->try("SELECT * FROM pgscale.$_"))[0], '25006', "on a standby: $_")
  for q{relocate_index('t_hash', 'other')}, q{relocate_indexes('t', 'other')}, q{relocate_all_indexes('pg_default', 'other')},
  q{relocate_table('t', 'other', 'lock')}, 'relocation_cancel(1)', 'relocation_undo(1)';
is($there->sql('CALL pgscale.relocation_wait(1)'), 'done', 'on a standby: relocation_wait tells');
is($there->sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'pgscale relocation%'}), 1, 'on a standby there is no worker');
is($there->sql(q{SELECT enabled FROM pgscale.health WHERE feature = 'relocation'}), 't', 'health answers');

$db->set('pgscale.relocation_max_lag', 0);
$there->sql('SELECT pg_wal_replay_pause()');
$there->poll_ok('SELECT pg_get_wal_replay_pause_state()', 'replay is paused', 'paused');
$db->sql('INSERT INTO empty VALUES (1)');
my ($behind) = ask(q{relocate_index('t_unique', 'fast')});
job_ok($behind, q{state, sqlstate, message ~ '^standby .* is .* behind$', attempts}, 'waiting|55006|t|0', 'it waits for a standby');
$db->set('pgscale.relocation_max_lag', -1);
done_ok('that is not looked at', $behind);
$db->set('pgscale.relocation_max_lag', 0);
($behind) = ask(q{relocate_index('t_unique', 'other')});
job_ok($behind, 'state', 'waiting', 'it waits again');
$there->sql('SELECT pg_wal_replay_resume()');
done_ok('until the standby has caught up', $behind);

launching('off');
$db->sql('INSERT INTO empty VALUES (2)');
($queued) = ask(q{relocate_index('t_unique', 'fast')});
$node->wait_for_catchup($standby, 'replay');
$db->quit;
$node->stop;
$standby->promote;
$db = $there;
done_ok('after a promotion, what the primary had in its queue', $queued);
is(place('t_unique'), 'fast', 'it has moved');
$db->quit;
$standby->stop;

### A tablespace on a disk of its own, that is full

# A PATH with a pg_ctl that first mounts that disk, in a namespace of the server alone; undef if that is not possible here
sub own_disk
{
    my ($folder, $bin) = @_;
    my $pg_ctl = do { my $dir = qx(pg_config --bindir); chomp $dir; "$dir/pg_ctl" };

    mkdir $bin;
    open my $wrapper, '>', "$bin/pg_ctl" or die $!;
    print $wrapper <<"EOW";
#!/bin/sh
export FOLDER='$folder' PG_CTL="\${REAL_PG_CTL:-$pg_ctl}"
exec unshare --user --map-current-user --keep-caps --mount sh -c 'mount -t tmpfs -o size=8m none "\$FOLDER" && exec "\$PG_CTL" "\$@"' sh "\$@"
EOW
    close $wrapper;
    chmod 0755, "$bin/pg_ctl" or die $!;
    local $ENV{REAL_PG_CTL} = '/bin/true';
    return system("$bin/pg_ctl 2>/dev/null") == 0 ? "$bin:$ENV{PATH}" : undef;
}

SKIP:
{
    my $small = PostgreSQL::Test::Cluster->new('small');
    my $folder = PostgreSQL::Test::Utils::tempdir;
    my $path = own_disk($folder, $small->basedir . '/mounting');
    skip 'no disk can be mounted here', 14 unless defined $path;

    $small->init;
    $small->append_conf('postgresql.conf', "shared_preload_libraries = 'pgscale'\nfsync = off\nautovacuum = off\nmax_worker_processes = 20\n"
          . "client_min_messages = warning\npgscale.relocation_max_transaction_age = -1");
    { local $ENV{PATH} = $path; $small->start; }
    $db = session($small);
    $db->sql('CREATE EXTENSION pgscale');
    $db->sql("CREATE TABLESPACE small LOCATION '$folder'");
    $db->sql('CREATE TABLE large (id int PRIMARY KEY); INSERT INTO large SELECT generate_series(1, 400000)');
    $db->sql('CREATE TABLE t (id int, n int PRIMARY KEY); INSERT INTO t SELECT i, i FROM generate_series(1, 150000) i');
    clean_ok();
    my ($state, $text) = $db->try(q{SELECT pgscale.relocate_index('large_pkey', 'small')});
    is($state, '53100', 'more than there is room for is refused');
    like($text, qr/ 8 MB are free, \d+ MB are needed/, 'with what is needed');
    launching('off');
    my ($late) = ask(q{relocate_index('t_pkey', 'small')});
    ($state) = $db->try(q{SELECT pgscale.relocate_index('t_pkey', 'small')});
    is($state, '55006', 'what there is room for is not');
    $db->sql('CREATE TABLE filler TABLESPACE small AS SELECT i, repeat($$x$$, 100) FROM generate_series(1, 35000) i');
    launching('on');
    job_ok($late, 'state, sqlstate, attempts', 'failed|53100|0', 'there is no room when its turn comes');

    # and while it is under way
    $db->sql('DROP TABLE filler; CHECKPOINT');
    my $holder = session($small);
    $holder->sql('BEGIN; UPDATE t SET id = 0 WHERE n = 1');
    ($late) = ask(q{relocate_index('t_pkey', 'small')});
    job_ok($late, 'state, phase', 'running|waiting for writers before build', 'it begins while there is room');
    $db->sql('CREATE TABLE filler TABLESPACE small AS SELECT i, repeat($$x$$, 100) FROM generate_series(1, 45000) i');
    $holder->sql('COMMIT');
    job_ok($late, q{state, sqlstate, message ~ 'No space left'}, 'failed|53100|t', 'and fails when there is none any more');
    clean_ok('nothing is left behind');
    is(place('t_pkey'), 'pg_default', 'it has not moved');
    $db->sql('DROP TABLE filler; CHECKPOINT');
    done_ok('with room again', ask(q{relocate_index('t_pkey', 'small')}));
    is(place('t_pkey'), 'small', 'it has moved');
    $_->quit for $db, $holder;

    # That disk is not there after a restart
    $small->stop;
    $small->start;
    $db = session($small);
    $db->sql('CREATE TABLE u (id int PRIMARY KEY)');
    ($state, $text) = $db->try(q{SELECT pgscale.relocate_index('u_pkey', 'small')});
    is($state, '58P01', 'a tablespace whose disk is not mounted');
    like($text, qr/HINT: .*Is its disk mounted/, 'is refused with a hint');
    $db->quit;
    $small->stop;
}

done_testing();
