# What has changed when a job's turn comes, or while it copies: objects, rights and roles that are gone, databases that are
# dropped, renamed or copied, the extension that is dropped, a server that has started. A job fails and says why, or goes on, and
# nothing is left behind.
# Runs on each major.
use strict;
use warnings;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

relocation_node(conf => "log_line_prefix = '%b '");

### What is gone when its turn comes

launching('off');
$db->sql(<<'EOQ');
CREATE ROLE mover LOGIN;
CREATE ROLE another;
GRANT USAGE ON SCHEMA pgscale, pgscale_internal TO mover;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA pgscale TO mover;
GRANT SELECT ON pgscale.relocation_jobs TO mover;
GRANT CREATE ON TABLESPACE fast TO mover;
GRANT CREATE ON SCHEMA public TO mover, another;
CREATE TABLESPACE leaving LOCATION '';
CREATE TABLE t (id int PRIMARY KEY, v text);
ALTER TABLE t ALTER v SET STORAGE EXTERNAL;
INSERT INTO t SELECT i, repeat(md5(i::text), 70) FROM generate_series(1, 500) i;
CREATE TABLE own (id int PRIMARY KEY, n int);
CREATE INDEX own_n ON own (n);
CREATE INDEX own_n2 ON own (n);
CREATE TABLE dropped (id int PRIMARY KEY, n int);
CREATE INDEX dropped_n ON dropped (n);
CREATE TABLE renamed (id int PRIMARY KEY);
ALTER TABLE own OWNER TO mover;
EOQ
my $rows = rows($db, 't');
my $mover = session($node, user => 'mover');
my ($own) = ask(rebuild('own_pkey', 'fast'), $mover);
is(of_job($own, 'requested_by, state', $mover), 'mover|queued', 'a role without superuser asks');
my ($foreign) = ask(rebuild('t_pkey', 'other'));
is(($mover->try("SELECT pgscale.$_"))[0], '42501', "it may not: $_")
  for "relocation_cancel($foreign)", rebuild('t_pkey', 'fast'), rebuild('own_n', 'other'), q{relocate_table('t', 'fast')};
launching('on');
done_ok('its index', $own, $foreign);
is(place('own_pkey'), 'fast', 'has moved');
launching('off');
my ($no_tablespace) = ask(rebuild('own_n', 'fast'), $mover);
my ($no_index) = ask(rebuild('dropped_n', 'fast'));
my ($no_table) = ask(q{relocate_table('dropped', 'fast', 'lock')});
my ($not_there) = ask(rebuild('t_pkey', 'leaving'));
my ($new_name) = ask(rebuild('renamed_pkey', 'fast'));
$db->sql($_) for 'REVOKE CREATE ON TABLESPACE fast FROM mover', 'DROP TABLE dropped', 'DROP TABLESPACE leaving',
  'ALTER INDEX renamed_pkey RENAME TO "has ""been renamed"', 'ALTER TABLE renamed RENAME TO "also, that"',
      'CREATE TABLE renamed_pkey ()';
launching('on');
ended_ok($no_tablespace, 'failed|42501|0', 'it has lost the right to create there', 'state, sqlstate, attempts');
ended_ok($no_index, 'failed|42704|the index was dropped', 'an index that was dropped', 'state, sqlstate, message');
ended_ok($no_table, 'failed|42704|the table was dropped', 'a table that was dropped', 'state, sqlstate, message');
ended_ok($not_there, 'failed|42704|the tablespace was dropped', 'a tablespace that was dropped', 'state, sqlstate, message');
done_ok('an index that was renamed', $new_name);
is(place('"has ""been renamed"'), 'fast', 'it has moved');
launching('off');
$db->sql('GRANT CREATE ON TABLESPACE fast TO mover');
my @not_owner = (ask(rebuild('own_n', 'fast'), $mover), ask(q{relocate_table('own', 'fast')}, $mover));
$db->sql('ALTER TABLE own OWNER TO CURRENT_USER');
launching('on');
ended_ok($_, 'failed|42501|t', 'it owns the table no more', q{state, sqlstate, message ~ '^must be owner of (table|index) "own'})
    for @not_owner;

### Rights that are lost while an online move copies: it does not switch, and says which right is missing. With the right it does.

$db->sql('ALTER TABLE t OWNER TO mover');
$db->sql('ALTER INDEX t_pkey SET TABLESPACE pg_default');
my $table = q{relocate_table('t', 'fast')};
my @tablespace = ('REVOKE CREATE ON TABLESPACE fast FROM mover', 'GRANT CREATE ON TABLESPACE fast TO mover',
    'permission denied for tablespace');
for my $case (
    [ 'the ownership', $table, 'ALTER TABLE t OWNER TO another', 'ALTER TABLE t OWNER TO mover', 'must be owner of table' ],
    [ 'CREATE on the tablespace', $table, @tablespace ],
    [ 'CREATE on the tablespace, of an index', q{relocate_indexes('t_pkey', 'fast', mode => 'online')}, @tablespace ])
{
    my ($name, $call, $lose, $regain, $message) = @$case;
    my ($holder, $job) = held_online('t', $call, undef, $mover);
    my $loser = session($node);

    # ALTER waits for the reader, REVOKE does not
    $lose =~ /OWNER/ ? $db->sees_waiting($loser, $lose) : $loser->sql($lose);
    $holder->quit;
    is(($loser->finish)[0], '00000', "$name is lost") if $lose =~ /OWNER/;
    ended_ok($job, 'failed|42501|1|t', "$name is lost: the job fails, and says so",
        "state, sqlstate, attempts, message ~ '^$message'");
    is(join(' ', map { place($_) } qw(t t_pkey)), 'pg_default pg_default', "$name: nothing has moved");
    is(rows($db, 't'), $rows, "$name: the rows are the same");
    strays_ok($name);
    $db->sql($regain);
    ($holder, $job) = held_online('t', $call, undef, $mover);
    $holder->quit;
    ended_ok($job, 'done', "$name: with it the relation moves");
    done_ok("$name: back", $db->sql("SELECT pgscale.relocation_undo($job)"));
    $loser->quit;
}

# A role that is dropped while one of its jobs copies and one is queued; its tables belong to another one by then
$db->sql('ALTER TABLE own OWNER TO mover');
{
    my ($holder, $job) = held_online('t', $table, undef, $mover);
    my ($no_role) = ask(rebuild('own_n2', 'fast'), $mover);
    my $dropper = session($node);

    $mover->quit;
    $db->sees_waiting($dropper, 'BEGIN; REASSIGN OWNED BY mover TO another; DROP OWNED BY mover; DROP ROLE mover; COMMIT');
    $holder->quit;
    is(($dropper->finish)[0], '00000', 'the role is dropped');
    ended_ok($job, 'failed|t', 'the job of a role that was dropped meanwhile', q{state, sqlstate ~ '^42(501|704)'});
    is(place('t'), 'pg_default', 'its table has not moved');
    strays_ok('a role that was dropped');
    $dropper->quit;
    ended_ok($no_role, 'failed|42704|the requesting role was dropped', 'a queued job of it', 'state, sqlstate, message');
}
$db->sql('DROP TABLE own, "also, that", renamed_pkey');

### Databases that are dropped

# A database with the extension and a table that is not empty: a session there
sub database
{
    my ($name) = @_;

    $db->sql("CREATE DATABASE $name");
    my $there = session($node, dbname => $name);
    $there->sql('CREATE EXTENSION pgscale; CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t VALUES (1)');
    return $there;
}

my $there = database('plain');
launching('off');
ask(rebuild('t_pkey', 'fast'), $there);
$there->quit;
is(($db->try('DROP DATABASE plain'))[0], '00000', 'a database with a queued job can be dropped');
launching('on');
$there = database('forced');
my $holder = session($node, dbname => 'forced');
$holder->sql('BEGIN; INSERT INTO t VALUES (2)');
my ($job) = ask(rebuild('t_pkey', 'fast'), $there);
job_ok($job, 'state, phase', 'running|waiting for writers before build', 'a job', $there);
is(($db->try('DROP DATABASE forced'))[0], '55006', 'a database with a running job cannot be dropped');
is(($db->try('DROP DATABASE forced WITH (FORCE)'))[0], '00000', 'but by force');
$_->quit for $holder, $there;

### Copies of a database, and who wants one for itself

$there = database('origin');
$there->sql('CREATE INDEX t_id ON t (id)');
launching('off');
my ($copied) = ask(rebuild('t_pkey', 'fast'), $there);
$there->quit;
$db->sql('CREATE DATABASE copy TEMPLATE origin');
launching('on');
$there = session($node, dbname => 'origin');
ended_ok($copied, 'done', 'in the origin a job is done', 'state', $there);
$there->quit;
$there = session($node, dbname => 'copy');
is($there->sql('SELECT state FROM pgscale.relocation_jobs'), 'foreign', 'in a copy of the database it says that it is one');
ended_ok(ask(rebuild('t_id', 'fast'), $there), 'done', 'a job of the copy is done', 'state', $there);
job_ok($copied, 'state, sqlstate, message', 'cancelled|57014|it was asked for in another database, of which this is a copy',
    'the copied one is not', $there);
is($there->sql(q{SELECT reltablespace FROM pg_class WHERE relname = 't_pkey'}), 0, 'nothing has moved by it');
$there->quit;

# A move that stays under way: of an index whose function sleeps in a worker, in the second one of four blocks.
$there = session($node, dbname => 'origin');
$there->sql('CREATE TABLE large (id int, filler char(1000))');
$there->sql(q{CREATE FUNCTION slow(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
    $$BEGIN IF $1 = 10 AND current_setting('application_name') = '' THEN PERFORM pg_sleep(600); END IF; RETURN $1; END$$;
    INSERT INTO large SELECT i, '' FROM generate_series(1, 28) i;
    SET application_name = here; CREATE INDEX large_slow ON large (slow(id))});
my ($slow) = ask(rebuild('large_slow', 'fast'), $there);
job_ok($slow, 'state, phase, done_fraction', 'running|building index: scanning table|0.25', 'a worker is at a move', $there);
$there->quit;
my $log = -s $node->logfile;
is(($db->try('ALTER DATABASE origin RENAME TO renamed'))[0], '00000', 'a database with a move under way can be renamed');
like(slurp_file($node->logfile, $log), qr/relocation job $slow: the worker has disconnected for/, 'for which its worker makes way');
$there = session($node, dbname => 'renamed');
job_ok($slow, 'state', 'running', 'which then goes on', $there);
is($there->sql("SELECT crashes FROM pgscale_internal.relocation_job WHERE job = $slow"), 0, 'as nothing has crashed');
$there->quit;
is(($db->try('CREATE DATABASE again TEMPLATE renamed'))[0], '00000', 'or copied');
$there = session($node, dbname => 'again');
is($there->sql(q{SELECT count(*) FROM pg_index WHERE NOT indisvalid}), 0, 'without what the move had begun');
$there->quit;
is(($db->try("DROP DATABASE $_"))[0], '00000', "$_ can be dropped") for qw(renamed again copy);

### After a start

# Only those databases are woken that have jobs; the one that has was made last, so a look into each would come to it last.
database('idle')->quit;
# at its end it tells the last of what it did
$db->poll_ok(q{SELECT count(*) FROM pg_stat_activity WHERE datname = 'idle'}, 'nobody is in a database', 0);
$there = database('busy');
# workers are not bound to these settings, and log nothing because of them
$there->sql("ALTER DATABASE busy SET $_ = on") for qw(default_transaction_read_only debug_print_parse debug_print_rewritten
  debug_print_plan log_planner_stats log_executor_stats trace_sort);
my $idle = q{SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'idle'};
for my $how ([ 'a restart', 'fast', 'fast' ], [ 'a crash', 'immediate', 'other' ])
{
    my ($name, $mode, $to) = @$how;

    launching('off');
    $there->sql('SET default_transaction_read_only = off');
    my ($id) = ask("relocate_table('t', '$to', 'lock')", $there);
    $there->quit;
    $db->sql('ALTER SYSTEM SET pgscale.relocation_workers = 1');    # without a reload
    my $before = $db->sql($idle);
    stopped(undef, $mode);
    $there = session($node, dbname => 'busy');
    ended_ok($id, 'done', "after $name a job is done", 'state', $there);
    is($db->sql($idle), $mode eq 'fast' ? $before : 0, 'and no other database was looked into');
}
$there->quit;
workers_gone();

# A base backup may have the list of these databases from before there was a job, and the job: in the copy it is done all the same.
my $list = $node->data_dir . '/pg_stat/pgscale_relocation.stat';
until_ok(sub { (unpack 'L4', slurp_file($list))[3] == 0 }, 'no database has jobs');
my $empty = slurp_file($list);
launching('off');
($copied) = ask(rebuild('t_pkey', 'fast'));
$node->backup('copy');
open my $file, '>:raw', $node->backup_dir . '/copy/pg_stat/pgscale_relocation.stat' or die $!;
print $file $empty;
close $file or die $!;
my $copy = PostgreSQL::Test::Cluster->new('copy');
$copy->init_from_backup($node, 'copy');
$copy->append_conf('postgresql.auto.conf', 'pgscale.relocation_workers = 1');
$copy->start;
$there = session($copy);
ended_ok($copied, 'done', 'in a copy of the server the job is done', 'state', $there);
$there->quit;
$copy->stop;
launching('on');
done_ok('in the origin', $copied);

# from 19 on the server says by itself who waited long for a lock
my ($noise) = slurp_file($node->logfile) =~ m{^(pgscale relocation worker LOG:  (?!pgscale relocation job|process \d+ (?:still waiting|acquired)).*)}m;
is($noise, undef, 'workers log only the end of jobs');
stop_ok();
done_testing();
