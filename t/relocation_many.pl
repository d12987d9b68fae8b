# Many jobs, and the mode that indexes have by default. What a worker reads to take a job does not depend on how many there are, and
# none of its locks is in the way of ANALYZE. INSERT ... ON CONFLICT beside moves of its index raises nothing, and a rebuild says
# that it may. A rebuild that fails names the online move, which does not call the functions of an index.
use strict;
use warnings;
use PgscaleRelocation;
use PgscaleTest;
use Test::More;

relocation_node(conf => 'synchronous_commit = off');

### The cost of a job

# Does this number of jobs, of tables that are not there, so that each fails at once. Returns blocks of the table of jobs and of its
# indexes for each. It asks no question that reads that table before they have ended.
sub blocks_per_job
{
    my ($n, $table) = @_;
    my $stats = q{FROM pg_statio_all_tables b JOIN pg_stat_all_tables t USING (relid)
        WHERE relid = 'pgscale_internal.relocation_job'::regclass};
    my $blocks = "SELECT heap_blks_read + heap_blks_hit + idx_blks_read + idx_blks_hit $stats";
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    launching('off');
    $db->sql('TRUNCATE pgscale_internal.relocation_job');
    ask("relocate_table('$table', 'fast')");
    $db->sql("INSERT INTO pgscale_internal.relocation_job (cluster, database, kind, mode, relation, heap, relation_name, heap_name,
        source, target, source_name, target_name, role, role_name, amcheck, prewarm, lock_timeout_ms, bytes)
        SELECT cluster, database, kind, mode, 4000000000 + i, 4000000000 + i, 'gone', 'gone',
        source, target, source_name, target_name, role, role_name, amcheck, prewarm, lock_timeout_ms, bytes
        FROM pgscale_internal.relocation_job, generate_series(1, $n) i");
    $db->sql('SELECT pg_stat_force_next_flush()');
    my ($before, $updates) = map { $db->sql($_) } $blocks, "SELECT n_tup_upd $stats";
    launching('on');
    $db->poll_ok("SELECT n_tup_upd >= $updates + 2 * $n $stats", "$n jobs");
    workers_gone();
    my $used = $db->sql($blocks) - $before;
    is($db->sql(q{SELECT string_agg(DISTINCT state || sqlstate, ' '), count(*) FROM pgscale.relocation_jobs
        WHERE relation = 'gone'}),
        "failed42704|$n", 'they have ended');
    return $used / $n;
}

$db->sql("CREATE TABLE $_ ()") for qw(few many);
my $few = blocks_per_job(100, 'few');
my $many = blocks_per_job(1000, 'many');
note sprintf '%.1f blocks for each of 100 jobs, %.1f for each of 1000', $few, $many;
cmp_ok($many, '<', 1.5 * $few, 'a job costs no more among many');

### The lock of ANALYZE and VACUUM

my $analyzing = session($node);
$db->sql('CREATE TABLE meanwhile ()');
$analyzing->sql('BEGIN; LOCK TABLE pgscale_internal.relocation_job IN SHARE UPDATE EXCLUSIVE MODE');
done_ok('while ANALYZE has the table of jobs', ask(q{relocate_table('meanwhile', 'fast')}));
$analyzing->sql('COMMIT');

### INSERT ... ON CONFLICT

$db->sql(<<'EOQ');
CREATE TABLE load_on ();
CREATE TABLE counted (done bigint, violations bigint);
CREATE TABLE counters (id int CONSTRAINT counters_key PRIMARY KEY, n bigint NOT NULL);
CREATE PROCEDURE load() LANGUAGE plpgsql AS $$
DECLARE
    done bigint := 0;
    violations bigint := 0;
BEGIN
    WHILE EXISTS (SELECT FROM load_on) LOOP
        BEGIN
            INSERT INTO counters VALUES (floor(random() * 20), 1) ON CONFLICT (id) DO UPDATE SET n = counters.n + 1;
            done := done + 1;
        EXCEPTION WHEN unique_violation THEN
            violations := violations + 1;
        END;
        COMMIT;
        IF random() < 0.02 THEN
            DELETE FROM counters WHERE id = floor(random() * 20);
        END IF;
        COMMIT;
    END LOOP;
    INSERT INTO counted VALUES (done, violations);
END $$;
INSERT INTO load_on DEFAULT VALUES;
EOQ
my @loading = map { session($node) } 1 .. 3;
$_->start('CALL load()') for @loading;
done_ok('beside the load', ask("relocate_indexes('counters_key', '$_')")) for qw(fast other fast other);
$db->sql('DELETE FROM load_on');
is(($_->finish)[0], '00000', 'the load has ended') for @loading;
is($db->sql('SELECT sum(violations), bool_and(done > 0) FROM counted'), '0|t', 'an online move causes no unique violation');
is($db->sql(q{SELECT DISTINCT mode FROM pgscale.relocation_jobs WHERE kind = 'index'}), 'online', 'indexes move online by default');

$db->sql(q{CREATE INDEX counters_n ON counters (n); SET client_min_messages = notice});
my $warned = qr/NOTICE:  00000: while 1 unique index is rebuilt, INSERT ... ON CONFLICT may raise .*HINT:  mode => 'online'/s;
like(($db->try(q{SELECT pgscale.relocate_indexes('counters_key', 'fast', mode => 'rebuild')}))[1], $warned,
    'a rebuild says that it may');
done_ok('a rebuild', my $rebuilt = $db->sql('SELECT max(job) FROM pgscale.relocation_jobs'));
like(($db->try("SELECT pgscale.relocation_undo($rebuilt)"))[1], $warned, 'so does its undo');
for my $quiet (q{relocate_indexes('counters_n', 'fast', mode => 'rebuild')}, q{relocate_indexes('counters_n', 'fast')})
{
    done_ok('all before', $db->sql('SELECT max(job) FROM pgscale.relocation_jobs'));
    $db->sql('ALTER INDEX counters_n SET TABLESPACE pg_default');
    unlike(($db->try("SELECT pgscale.$quiet"))[1], qr/ON CONFLICT/, "$quiet does not");
}
done_ok('all', $db->sql('SELECT max(job) FROM pgscale.relocation_jobs'));
$db->sql('SET client_min_messages = warning');

### A rebuild that fails

$db->sql(<<'EOQ');
CREATE FUNCTION plain(int) RETURNS int LANGUAGE sql IMMUTABLE AS 'SELECT $1';
CREATE FUNCTION careless(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN RETURN plain($1); END';
CREATE FUNCTION failing(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$BEGIN
    IF current_setting('test.fails', true) = 'on' THEN
        RAISE 'it fails';
    END IF;
    RETURN $1;
END$$;
CREATE TABLE computed (id int);
CREATE INDEX computed_failing ON computed (failing(id));
CREATE INDEX computed_careless ON computed (careless(id));
-- a session inserts with its own search_path
INSERT INTO computed SELECT generate_series(1, 100);
ALTER DATABASE postgres SET test.fails = 'on';
EOQ
workers_gone();
# from 17 on, an index is built with a safe search_path
for my $index ('computed_failing', server_major() >= 17 ? 'computed_careless' : ())
{
    my ($job) = ask("relocate_indexes('$index', 'fast', mode => 'rebuild')");
    ended_ok($job, 'failed|t', "$index: the rebuild fails, and says what does not", q{state, message LIKE '%mode => ''online''%'});
    done_ok("$index: the online move", ask("relocate_indexes('$index', 'fast')"));
}

### A job that its worker ends while another one looks for rows of workers that are gone

$db->sql('ALTER DATABASE postgres RESET test.fails; CREATE TABLE ending (id int); CREATE TABLE next_one (id int)');
workers_gone();
launching('off');
my ($ending) = ask(q{relocate_table('ending', 'fast')});
$db->sql("UPDATE pgscale_internal.relocation_job SET state = 'running', pid = 1 WHERE job = $ending");
my $ends = session($node);
$ends->sql("BEGIN; UPDATE pgscale_internal.relocation_job SET state = 'done', finished_at = now(), pid = NULL WHERE job = $ending");
my ($next) = ask(q{relocate_table('next_one', 'fast')});
launching('on');
$db->poll_ok(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pgscale relocation worker'
    AND wait_event_type = 'Lock'}, 'a worker meets its row', 1);
$ends->sql('COMMIT');
done_ok('the next job', $next);
is($db->sql("SELECT state, crashes FROM pgscale_internal.relocation_job WHERE job = $ending"), 'done|0',
    'a job that has ended is not put back');
$ends->quit;

stop_ok();
done_testing();
