# What has changed when a job's turn comes: objects, rights and roles that are gone, databases and the extension dropped; and that
# nobody gets more rights by a move than he had.
use strict;
use warnings;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

relocation_node();
relocation_objects();

### What is gone when its turn comes

launching('off');
$db->sql(<<'EOQ');
CREATE ROLE leaving LOGIN;
GRANT USAGE ON SCHEMA pgscale, pgscale_internal TO leaving;
GRANT EXECUTE ON FUNCTION pgscale.relocate_index(regclass, name, boolean, boolean, text), pgscale.relocation_cancel(bigint) TO leaving;
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
my ($own) = ask(q{relocate_index('own_pkey', 'fast', mode => 'rebuild')}, $leaving);
is($leaving->sql("SELECT requested_by, state FROM pgscale.relocation_jobs WHERE job = $own"), 'leaving|queued', 'a role without superuser asks');
my ($foreign) = ask(q{relocate_index('t_hash', 'other', mode => 'rebuild')});
is(($leaving->try("SELECT pgscale.relocation_cancel($foreign)"))[0], '42501', 'it cannot cancel what others have asked for');
is(($leaving->try(q{SELECT pgscale.relocate_index('t_gin', 'fast', mode => 'rebuild')}))[0], '42501', 'nor move what others own');
is(($leaving->try(q{SELECT pgscale.relocate_index('own_n', 'other', mode => 'rebuild')}))[0], '42501', 'nor to where it may not create');
launching('on');
done_ok('its index', $own, $foreign);
is(place('own_pkey'), 'fast', 'has moved');
launching('off');
my ($no_tablespace) = ask(q{relocate_index('own_n', 'fast', mode => 'rebuild')}, $leaving);
my ($no_role) = ask(q{relocate_index('own_n2', 'fast', mode => 'rebuild')}, $leaving);
my ($no_index) = ask(q{relocate_index('dropped_n', 'fast', mode => 'rebuild')});
my ($no_table) = ask(q{relocate_table('dropped', 'fast', 'lock')});
my ($not_there) = ask(q{relocate_index('toasted_pkey', 'leaving', mode => 'rebuild')});
my ($new_name) = ask(q{relocate_index('renamed_pkey', 'fast', mode => 'rebuild')});
$db->sql('REVOKE CREATE ON TABLESPACE fast FROM leaving');
$db->sql('DROP TABLE dropped');
$db->sql('DROP TABLESPACE leaving');
# autovacuum may be at it, and hold what this waits for
for my $renaming ('INDEX renamed_pkey RENAME TO "has ""been renamed"', 'TABLE renamed RENAME TO "also, that"')
{
    until_ok(sub { ($db->try("ALTER $renaming"))[0] eq '00000' }, "ALTER $renaming");
}
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
my ($not_owner) = ask(q{relocate_index('own_n', 'fast', mode => 'rebuild')}, $leaving);
($no_role) = ask(q{relocate_index('own_n2', 'fast', mode => 'rebuild')}, $leaving);
$db->sql('ALTER TABLE own OWNER TO CURRENT_USER');
launching('on');
job_ok($_, 'state, sqlstate', 'failed|42501', 'it owns the table no more') for $not_owner, $no_role;
launching('off');
$db->sql('ALTER TABLE own OWNER TO leaving');
($no_role) = ask(q{relocate_index('own_n2', 'fast', mode => 'rebuild')}, $leaving);
$leaving->quit;
$db->sql('ALTER TABLE own OWNER TO CURRENT_USER; DROP OWNED BY leaving; DROP ROLE leaving');
launching('on');
job_ok($no_role, 'state, sqlstate, message', 'failed|42704|the requesting role was dropped', 'a role that was dropped');
$db->sql('DROP TABLE own, "also, that", renamed_pkey');

# What pg_monitor sees of it
$db->sql('CREATE ROLE watching LOGIN IN ROLE pg_monitor');
my $watching = session($node, user => 'watching');
is($watching->sql("SELECT state, message FROM pgscale.relocation_jobs WHERE job = $not_there"), 'failed|the tablespace was dropped',
    'it may read pgscale.relocation_jobs, and what tells of no rows');
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
    my ($job) = ask(q{relocate_index('t_pkey', 'fast', mode => 'rebuild')}, $asking);
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
    my ($job) = ask(q{relocate_index('t_pkey', 'fast', mode => 'rebuild')}, $there);
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
CREATE SCHEMA pgscale_internal;
CREATE TABLE pgscale_internal.relocation_job (job bigint, cluster bigint, database oid, detail text, kind text DEFAULT 'index', relation oid DEFAULT 1, heap oid DEFAULT 1, relation_name text,
    heap_name text, source oid, target oid, source_name name, target_name name, role oid DEFAULT 10, role_name name, amcheck boolean,
    prewarm boolean, lock_timeout_ms integer DEFAULT 1, block_ms_predicted double precision, bytes bigint DEFAULT 1, bytes_after bigint,
    undo_of bigint, requested_at timestamptz DEFAULT now(), started_at timestamptz, finished_at timestamptz,
    not_before timestamptz DEFAULT now(), state text DEFAULT 'queued', cancel boolean DEFAULT false, attempts integer DEFAULT 0,
    crashes integer DEFAULT 0, pid integer, new_index oid, before text, sqlstate text, message text);
CREATE TABLE pgscale_internal.sprung (by name);
GRANT INSERT ON pgscale_internal.sprung TO PUBLIC;
CREATE FUNCTION pgscale_internal.spring() RETURNS trigger LANGUAGE plpgsql AS
    'BEGIN INSERT INTO pgscale_internal.sprung VALUES (current_user); RETURN new; END';
CREATE TRIGGER spring BEFORE UPDATE ON pgscale_internal.relocation_job FOR EACH ROW EXECUTE FUNCTION pgscale_internal.spring();
INSERT INTO pgscale_internal.relocation_job (job, cluster, database) SELECT 1, system_identifier, (SELECT oid FROM pg_database WHERE datname = current_database())
    FROM pg_control_system();
EOQ
    $trapper->quit;
    # the second time it belongs to a superuser, as after a restore that was made by one
    for my $owner ('an ordinary user', 'a superuser')
    {
        my $there = session($node, dbname => 'without');
        $there->sql('REASSIGN OWNED BY trapper TO CURRENT_USER') if $owner eq 'a superuser';
        $_->quit for $there, $db;
        $node->stop;
        append_to_file($node->data_dir . '/pg_stat/pgscale_relocation.stat', 'x');
        truncate $node->data_dir . '/pg_stat/pgscale_relocation.stat', 10 or die $!;
        $node->start;
        $db = session($node);
        my ($job) = ask(q{relocate_index('matview_id', '} . (place('matview_id') eq 'fast' ? 'other' : 'fast') . q{', mode => 'rebuild')});
        done_ok('after a start with a damaged list of databases, which has each of them looked into', $job);
        workers_gone();
        $there = session($node, dbname => 'without');
        is($there->sql('SELECT count(*), (SELECT state FROM pgscale_internal.relocation_job) FROM pgscale_internal.sprung'), '0|queued',
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
my ($trap) = ask(q{relocate_index('owning.trap', 'fast', mode => 'rebuild')});
job_ok($trap, 'state, finished_at IS NOT NULL', 'done|t', 'an index with functions that do what they should not');
is($db->sql(q{SELECT rolsuper FROM pg_roles WHERE rolname = 'owning'}), 'f', 'has no more rights than before');
is($db->sql(q{SELECT count(*) FROM pg_index WHERE indrelid = 'owning.t'::regclass}), 1, 'and nothing is left behind');
$db->sql('ALTER DATABASE postgres RESET search_path');
$db->sql('DROP SCHEMA owning CASCADE; DROP ROLE owning, trapper');

$db->quit;
$node->stop;
done_testing();
