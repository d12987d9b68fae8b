# Moves among people who wish each other no good: names that were planted where the library looks, functions of indexes that do
# what they should not, what messages tell to whom, and a locked table of jobs. No role gets more rights by a move than it had.
# Runs on each major.
use strict;
use warnings;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

relocation_node();
$db->sql(<<'EOQ');
CREATE ROLE mallory LOGIN;
GRANT CREATE ON SCHEMA public TO mallory;
GRANT CREATE ON DATABASE postgres TO mallory;
CREATE TABLE t (id int PRIMARY KEY, n int);
INSERT INTO t SELECT i, i FROM generate_series(1, 1000) i;
CREATE INDEX t_n ON t (n);
EOQ

### Planted names

# What mallory plants makes mallory a superuser when one runs it.
my $spring = q{LANGUAGE plpgsql AS $$BEGIN EXECUTE 'ALTER ROLE mallory SUPERUSER'; RETURN %s; END$$};
sub unharmed
{
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    is($db->sql(q{SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'}), 'f',
        'nothing that was planted has run as a superuser');
    $db->sql('ALTER ROLE mallory NOSUPERUSER');
    return;
}
my $mallory = session($node, user => 'mallory');

# an operator in a schema that the caller looks into before the server's own
$mallory->sql('CREATE FUNCTION public.same("char", "char") RETURNS boolean ' . sprintf($spring, '$1 OPERATOR(pg_catalog.=) $2'));
$mallory->sql('CREATE OPERATOR public.= (LEFTARG = "char", RIGHTARG = "char", FUNCTION = public.same)');
launching('off');
my $careless = session($node);
$careless->sql('SET search_path = public, pg_catalog');
$careless->try(q{SELECT pgscale.relocate_tablespace('pg_default', 'fast', 'indexes', mode => 'rebuild')});
$careless->quit;
unharmed();
$mallory->sql('DROP FUNCTION public.same CASCADE');
$db->sql('SELECT pgscale.relocation_cancel(job) FROM pgscale.relocation_jobs WHERE finished_at IS NULL');
launching('on');

# a function of the name of what a worker calls, and that itself when a superuser has given it away
my $obstacle = 'relocation_obstacle(relation oid, online boolean, max_age_s integer) RETURNS text ' . sprintf($spring, 'NULL');
$mallory->sql("CREATE FUNCTION public.$obstacle");
done_ok('a move takes what belongs to the extension', ask(rebuild('t_n')));
my $superuser = $db->sql('SELECT quote_ident(current_user)');
my $definition = $db->sql(q{SELECT pg_get_functiondef('pgscale_internal.relocation_obstacle'::regproc)});
$db->sql('GRANT USAGE, CREATE ON SCHEMA pgscale_internal TO mallory;
    ALTER FUNCTION pgscale_internal.relocation_obstacle OWNER TO mallory');
$mallory->sql("CREATE OR REPLACE FUNCTION pgscale_internal.$obstacle");
ended_ok(ask(rebuild('t_n')), 'failed|42883', q{and nothing that is no superuser's}, 'state, sqlstate');
unharmed();
$db->sql("ALTER FUNCTION pgscale_internal.relocation_obstacle OWNER TO $superuser; REVOKE ALL ON SCHEMA pgscale_internal
    FROM mallory");
$db->sql($definition);

# what an index' functions do, or the settings of its database, is not done as a superuser; nor is what they make taken for the new
# index
$mallory->sql(<<'EOQ');
CREATE SCHEMA trap;
CREATE FUNCTION trap.spring(a bigint, b bigint) RETURNS boolean LANGUAGE plpgsql AS
$$BEGIN EXECUTE 'ALTER ROLE mallory SUPERUSER'; RETURN a OPERATOR(pg_catalog.=) b; END$$;
CREATE TABLE trap.t (id int);
INSERT INTO trap.t VALUES (1);
CREATE FUNCTION trap.set() RETURNS int LANGUAGE plpgsql AS
$$BEGIN
    PERFORM pg_catalog.set_config('search_path', 'trap, pg_catalog', false);
    EXECUTE 'CREATE TABLE trap.' || pg_catalog.quote_ident('made by ' || pg_catalog.pg_backend_pid()) || ' ()';
    RETURN 1;
EXCEPTION WHEN duplicate_table THEN RETURN 1;
END$$;
CREATE FUNCTION trap.f(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS 'BEGIN PERFORM trap.set(); RETURN $1; END';
CREATE INDEX trap ON trap.t (trap.f(id));
CREATE OPERATOR trap.= (LEFTARG = bigint, RIGHTARG = bigint, FUNCTION = trap.spring);
EOQ
$db->sql('ALTER DATABASE postgres SET search_path = trap, pg_catalog');
ended_ok(ask(rebuild('trap.trap')), 'done', 'an index with functions that do what they should not');
unharmed();
is($db->sql(q{SELECT count(*) FROM pg_index WHERE indrelid = 'trap.t'::regclass}), 1, 'nothing is left behind');
$db->sql('ALTER DATABASE postgres RESET search_path; DROP SCHEMA trap CASCADE');

# A table that is locked for its move is moved by its requester.
$db->sql(<<'EOQ');
CREATE TABLE mover (name name);
GRANT INSERT ON mover TO mallory;
CREATE FUNCTION note_mover() RETURNS event_trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.mover VALUES (current_user); END';
CREATE EVENT TRIGGER note_mover ON ddl_command_start WHEN TAG IN ('ALTER TABLE') EXECUTE FUNCTION note_mover();
GRANT USAGE ON SCHEMA pgscale TO mallory;
GRANT EXECUTE ON FUNCTION pgscale.relocate_table TO mallory;
GRANT CREATE ON TABLESPACE fast TO mallory;
EOQ
$mallory->sql('CREATE TABLE hers (id int)');
done_ok('a table that is locked', ask(q{relocate_table('hers', 'fast', mode => 'lock')}, $mallory));
is($db->sql('SELECT name FROM mover'), 'mallory', 'by its requester');
$db->sql('DROP EVENT TRIGGER note_mover; DROP TABLE hers, mover; REVOKE CREATE ON TABLESPACE fast FROM mallory;
    REVOKE EXECUTE ON FUNCTION pgscale.relocate_table FROM mallory; REVOKE USAGE ON SCHEMA pgscale FROM mallory');

# A table of jobs that is not the extension's, whose triggers are mallory's; then it belongs to a superuser, as after a restore by
# one
$db->sql('CREATE DATABASE without; GRANT CREATE ON DATABASE without TO mallory');
my $columns = $db->sql(q{SELECT string_agg(concat_ws(' ', attname, format_type(atttypid, atttypmod)), ', ' ORDER BY attnum)
    FROM pg_attribute
    WHERE attrelid = 'pgscale_internal.relocation_job'::regclass AND attnum > 0 AND NOT attisdropped});
my $trapper = session($node, dbname => 'without', user => 'mallory');
$trapper->sql(<<"EOQ");
CREATE SCHEMA pgscale_internal;
CREATE TABLE pgscale_internal.relocation_job ($columns);
CREATE FUNCTION pgscale_internal.spring() RETURNS trigger @{[ sprintf $spring, 'new' ]};
CREATE TRIGGER spring BEFORE UPDATE ON pgscale_internal.relocation_job FOR EACH ROW EXECUTE FUNCTION pgscale_internal.spring();
INSERT INTO pgscale_internal.relocation_job (job, cluster, database, kind, mode, relation, heap, role, requested_at, not_before,
    state, cancel,
    attempts, crashes, lock_timeout_ms, bytes) SELECT 1, system_identifier,
        (SELECT oid FROM pg_database WHERE datname = current_database()),
    'index', 'rebuild', 1, 1, 10, now(), now(), 'queued', false, 0, 0, 1, 1 FROM pg_control_system();
EOQ
$_->quit for $trapper, $mallory;
my $list = $node->data_dir . '/pg_stat/pgscale_relocation.stat';
for my $owner ('an ordinary user', 'a superuser')
{
    my $there = session($node, dbname => 'without');
    $there->sql('REASSIGN OWNED BY mallory TO CURRENT_USER') if $owner eq 'a superuser';
    $there->quit;
    # a damaged list of databases has each of them looked into
    stopped(sub { append_to_file($list, 'x'); truncate $list, 10 or die $! });
    done_ok('after a start with a damaged list', ask(rebuild('t_n')));
    workers_gone();
    unharmed();
    $there = session($node, dbname => 'without');
    is($there->sql('SELECT state FROM pgscale_internal.relocation_job'), 'queued',
        "a table of $owner that only has the name is left alone");
    $there->quit;
}
$db->sql('DROP DATABASE without');
$mallory = session($node, user => 'mallory');

### amcheck that is old, planted, or gone

SKIP:
{
    skip 'this server has no amcheck', 20 unless have_module('amcheck');

    # no suggestion follows what a job says
    $db->sql("ALTER TABLESPACE $_ SET (random_page_cost = 1)") for qw(fast other);
    # what is asked for with notices: these words, and the jobs
    my $told = sub {
        my ($call, $name, @words) = @_;
        my $text = $db->sql("SET client_min_messages = notice; SELECT * FROM pgscale.$call; RESET client_min_messages");

        is(join("\n", $text =~ /(?:NOTICE:  00000|HINT): +(.*)/g), join("\n", @words), $name);
        return $text =~ /^(\d+)$/mg;
    };
    my $too_old = 'the extension "amcheck" that is installed here is too old to check %s indexes';
    my $checks_not = 'the extension "amcheck" does not check %s indexes';
    my $notice = sub {
        my ($index, $why, $hint) = @_;
        return (qq{"$index" will be moved, but its contents will not be verified: $why}, $hint);
    };
    my $unverified = 'done||its contents were not verified: ';
    my $says = 'state, sqlstate, message';
    my $plant = sub { $mallory->sql('CREATE FUNCTION checks.bt_index_check(regclass, boolean) RETURNS void '
        . sprintf($spring, '')) };
    my $checked = sub { return rebuild('t_n', undef, ', amcheck => true') };

    # as after pg_upgrade from a server that had it: it lacks what looks up every row
    $db->sql(q{CREATE SCHEMA checks; GRANT USAGE, CREATE ON SCHEMA checks TO mallory;
        CREATE EXTENSION amcheck SCHEMA checks VERSION '1.0'});
    $plant->();
    my ($job) = $told->($checked->(), 'amcheck of an old version is not used, which is said',
        $notice->('t_n', sprintf($too_old, 'btree'), 'ALTER EXTENSION amcheck UPDATE.'));
    ended_ok($job, $unverified . sprintf($too_old, 'btree'), 'also when it has moved', $says);

    # it gets old while the job is in the queue, or goes
    $db->sql('DROP EXTENSION amcheck; DROP FUNCTION checks.bt_index_check(regclass, boolean);
        CREATE EXTENSION amcheck SCHEMA checks');
    launching('off');
    ($job) = $told->($checked->(), 'the right one can check it');
    $db->sql(q{DROP EXTENSION amcheck; CREATE EXTENSION amcheck SCHEMA checks VERSION '1.0'});
    $plant->();
    launching('on');
    ended_ok($job, $unverified . sprintf($too_old, 'btree'), 'nor is it called when it has become old', $says);
    unharmed();
    $db->sql('DROP EXTENSION amcheck; DROP SCHEMA checks CASCADE; CREATE EXTENSION amcheck');
    launching('off');
    ($job) = ask($checked->());
    $db->sql('DROP EXTENSION amcheck');
    launching('on');
    ended_ok($job, $unverified . 'the extension "amcheck" is not installed here', 'nor when it is gone', $says);
    is(($db->try('SELECT pgscale.' . $checked->()))[0], '55000', 'and then cannot be asked for');
    $db->sql('CREATE EXTENSION amcheck');
    ended_ok(ask($checked->()), 'done||', 'the right one is called', $says);

    # several indexes, of which it can check some: a GIN index from 18 on, by its 1.5; and no hash index
    $db->sql('CREATE TABLE lists (n int, list int[]); INSERT INTO lists SELECT i, ARRAY[i, i + 1] FROM generate_series(1, 1000) i;
        CREATE INDEX lists_btree ON lists (n); CREATE INDEX lists_gin ON lists USING gin (list);
            CREATE INDEX lists_hash ON lists USING hash (n)');
    my $checks_gin = server_major() >= 18;
    my $all = $checks_gin ? 'It checks btree and gin indexes.' : 'It checks btree indexes.';
    for my $version (undef, '1.3')
    {
        my $name = $version ? 'an old version' : 'the latest version';
        $db->sql("DROP EXTENSION amcheck; CREATE EXTENSION amcheck VERSION '$version'") if $version;
        my $gin = !$checks_gin ? sprintf($checks_not, 'gin') : $version ? sprintf($too_old, 'gin') : '';
        my @jobs = $told->("relocate_indexes('lists', '@{[ elsewhere('lists_gin') ]}', amcheck => true, mode => 'rebuild')", $name,
            $gin ? $notice->('lists_gin', $gin, $gin =~ /too old/ ? 'ALTER EXTENSION amcheck UPDATE.' : $all) : (),
            $notice->('lists_hash', sprintf($checks_not, 'hash'), $all));
        done_ok($name, @jobs);
        is($db->sql('SELECT relation, message FROM pgscale.relocation_jobs WHERE job IN (' . join(',', @jobs)
            . ') ORDER BY relation'),
            join("\n", 'public.lists_btree|', 'public.lists_gin|' . ($gin && "its contents were not verified: $gin"),
                'public.lists_hash|its contents were not verified: ' . sprintf $checks_not, 'hash'),
                    "$name: each says what was not verified");
    }

    # a check that finds something: an index whose function says it is immutable, and is not
    $db->sql(q{DROP EXTENSION amcheck; CREATE EXTENSION amcheck;
        CREATE FUNCTION lies(int) RETURNS float8 IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN random(); END';
        CREATE INDEX lists_lies ON lists (lies(n))});
    ended_ok(ask(rebuild('lists_lies', undef, ', amcheck => true')), 'failed|XX001|t', 'an index that is not in order',
        q{state, sqlstate, message ~ '^it has moved, but its verification failed: heap tuple .* lacks matching index tuple'});
}
$mallory->quit;

# Temporal keys, from 18 on
if (server_major() >= 18)
{
    $db->sql('CREATE TABLE temporal (id int4range, during daterange, PRIMARY KEY (id, during WITHOUT OVERLAPS),
        EXCLUDE USING gist (during WITH &&))');
    like(($db->try('SELECT pgscale.' . rebuild('temporal_pkey')))[1],
        qr/0A000: index "temporal_pkey" belongs to a key WITHOUT OVERLAPS, which cannot be built concurrently/,
            'a temporal key is refused');
    like(($db->try('SELECT pgscale.' . rebuild('temporal_during_excl')))[1], qr/belongs to an exclusion constraint/,
        'an exclusion constraint as such');
}

### What is told to whom

# An index' function that reads a value aloud when it fails: of a table that mallory may not read, but see the jobs of.
$db->sql(<<'EOQ');
CREATE ROLE watching LOGIN IN ROLE pg_monitor;
CREATE ROLE owning LOGIN;
GRANT CREATE ON SCHEMA public TO owning;
GRANT CREATE ON TABLESPACE fast TO owning;
GRANT USAGE ON SCHEMA pgscale, pgscale_internal TO owning;
GRANT EXECUTE ON FUNCTION pgscale.relocate_indexes(regclass, name, boolean, boolean, text) TO owning;
GRANT SELECT ON pgscale.relocation_jobs TO owning;
SET ROLE owning;
CREATE TABLE fail ();
CREATE FUNCTION loud(text) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$BEGIN
    IF EXISTS (SELECT FROM pg_attribute WHERE attrelid = to_regclass('public.fail') AND attname = 'now')
    THEN RETURN ('secret ' || $1)::int; END IF;
    RETURN 1;
END$$;
CREATE TABLE cards (number text);
INSERT INTO cards VALUES ('4111-1111');
CREATE INDEX cards_loud ON cards (public.loud(number));
ALTER TABLE fail ADD now int;
RESET ROLE;
EOQ
my ($owning, $watching) = map { session($node, user => $_) } qw(owning watching);
my ($loud) = ask(rebuild('cards_loud'), $owning);
ended_ok($loud, 'failed|22P02', 'a move that fails over a value', 'state, sqlstate');
sub message { return of_job($loud, 'message', shift); }
like(message($watching), qr/^an error whose text may contain values of rows(?!.*4111)/, 'pg_monitor sees why, and not the value');
like(message($owning), qr/invalid input syntax for type integer: "secret 4111-1111"/, 'who has asked for it sees it');
$db->sql('GRANT SELECT ON cards TO watching');
like(message($watching), qr/4111/, 'and who may read the table');
$db->sql('ALTER TABLE cards ENABLE ROW LEVEL SECURITY');
unlike(message($watching), qr/4111/, 'but not who may read some of its rows');
$_->quit for $owning, $watching;

### While the table of jobs is locked, the worker that has moved an index can be ended; and nothing is lost

my ($holder, $job, $worker) = held('BEGIN; UPDATE t SET n = n WHERE id = 1', 'waiting for writers before build', 't_n');
my $locker = session($node);
$locker->sql('BEGIN; LOCK TABLE pgscale_internal.relocation_job IN SHARE MODE');
$holder->sql('COMMIT');
$db->poll_ok("SELECT count(*) FROM pg_locks WHERE pid = $worker AND relation = 'pgscale_internal.relocation_job'::regclass
    AND NOT granted",
    'its worker waits for the table of jobs', 1);
$db->sql("SELECT pg_terminate_backend($worker)");
$db->poll_ok("SELECT count(*) FROM pg_stat_activity WHERE pid = $worker", 'and ends when it is told to', 0);
$locker->sql('COMMIT');
ended_ok($job, 'done', 'another one says the last word');
$_->quit for $holder, $locker;
is($db->sql(q{SELECT count(*), bool_and(indisvalid) FROM pg_index WHERE indrelid = 't'::regclass}), '2|t',
    'nothing is left behind');

stop_ok();
done_testing();
