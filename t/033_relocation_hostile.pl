# Moves among people who wish each other no good: names that were planted where the library looks, what messages tell to whom,
# copies of databases, and what must not be held up by a move.
use strict;
use warnings;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

relocation_node(conf => "pgscale.relocation_max_transaction_age = -1\nlog_line_prefix = '%b '");
$db->sql(<<'EOQ');
CREATE ROLE mallory LOGIN;
GRANT CREATE ON SCHEMA public TO mallory;
CREATE TABLE t (id int PRIMARY KEY, n int);
INSERT INTO t SELECT i, i FROM generate_series(1, 1000) i;
CREATE INDEX t_n ON t (n);
EOQ

sub elsewhere { my $index = shift; return $db->sql("SELECT CASE spcname WHEN 'fast' THEN 'other' ELSE 'fast' END FROM pg_class c
    LEFT JOIN pg_tablespace s ON s.oid = c.reltablespace WHERE c.oid = '$index'::regclass"); }

### Planted names

# What mallory plants makes him a superuser when one runs it.
my $spring = q{LANGUAGE plpgsql AS $$BEGIN EXECUTE 'ALTER ROLE mallory SUPERUSER'; RETURN %s; END$$};
sub unharmed
{
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    is($db->sql(q{SELECT rolsuper FROM pg_roles WHERE rolname = 'mallory'}), 'f', 'nothing that was planted has run as a superuser');
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
$careless->try(q{SELECT pgscale.relocate_all_indexes('pg_default', 'fast', mode => 'rebuild')});
$careless->quit;
unharmed();
$mallory->sql('DROP FUNCTION public.same CASCADE');
$db->sql('SELECT pgscale.relocation_cancel(job) FROM pgscale.relocation_jobs WHERE finished_at IS NULL');
launching('on');

# a function of the name of what a worker calls, and that itself when a superuser has given it away
my $obstacle = 'relocation_obstacle(relation oid, live boolean, max_age_s integer) RETURNS text ' . sprintf($spring, 'NULL');
$mallory->sql("CREATE FUNCTION public.$obstacle");
my ($move) = ask("relocate_index('t_n', '" . elsewhere('t_n') . "', mode => 'rebuild')");
job_ok($move, 'state, sqlstate', 'done|', 'a move takes what belongs to the extension');
my $superuser = $db->sql('SELECT quote_ident(current_user)');
my $definition = $db->sql(q{SELECT pg_get_functiondef('pgscale_internal.relocation_obstacle'::regproc)});
$db->sql('GRANT USAGE, CREATE ON SCHEMA pgscale_internal TO mallory; ALTER FUNCTION pgscale_internal.relocation_obstacle OWNER TO mallory');
$mallory->sql("CREATE OR REPLACE FUNCTION pgscale_internal.$obstacle");
($move) = ask("relocate_index('t_n', '" . elsewhere('t_n') . "', mode => 'rebuild')");
job_ok($move, 'state, sqlstate', 'failed|42883', 'and nothing that is no superuser\'s');
unharmed();
$db->sql("ALTER FUNCTION pgscale_internal.relocation_obstacle OWNER TO $superuser; REVOKE ALL ON SCHEMA pgscale_internal FROM mallory");
$db->sql($definition);
$mallory->sql('DROP FUNCTION public.relocation_obstacle');

SKIP:
{
    skip 'this server has no amcheck', 21 unless have_module('amcheck');

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
    my $notice = sub { my ($index, $why, $hint) = @_; return (qq{"$index" will be moved, but its contents will not be verified: $why}, $hint) };

    # as after pg_upgrade from a server that had it: it lacks what looks up every row
    $db->sql(q{CREATE SCHEMA checks; GRANT USAGE, CREATE ON SCHEMA checks TO mallory});
    $db->sql(q{CREATE EXTENSION amcheck SCHEMA checks VERSION '1.0'});
    $mallory->sql('CREATE FUNCTION checks.bt_index_check(regclass, boolean) RETURNS void ' . sprintf($spring, ''));
    my ($job) = $told->("relocate_index('t_n', '" . elsewhere('t_n') . "', amcheck => true, mode => 'rebuild')", 'amcheck of an old version is not used, which is said',
        $notice->('t_n', sprintf($too_old, 'btree'), 'ALTER EXTENSION amcheck UPDATE.'));
    job_ok($job, 'state, sqlstate, message', 'done||its contents were not verified: ' . sprintf($too_old, 'btree'), 'also when it has moved');
    unharmed();

    # it gets old while the job is in the queue, or goes
    $db->sql('DROP EXTENSION amcheck; DROP FUNCTION checks.bt_index_check(regclass, boolean); CREATE EXTENSION amcheck SCHEMA checks');
    launching('off');
    ($job) = $told->("relocate_index('t_n', '" . elsewhere('t_n') . "', amcheck => true, mode => 'rebuild')", 'the right one can check it');
    $db->sql(q{DROP EXTENSION amcheck; CREATE EXTENSION amcheck SCHEMA checks VERSION '1.0'});
    $mallory->sql('CREATE FUNCTION checks.bt_index_check(regclass, boolean) RETURNS void ' . sprintf($spring, ''));
    launching('on');
    job_ok($job, 'state, sqlstate, message', 'done||its contents were not verified: ' . sprintf($too_old, 'btree'), 'nor is it called when it has become old');
    unharmed();
    $db->sql('DROP EXTENSION amcheck; DROP SCHEMA checks CASCADE; CREATE EXTENSION amcheck');
    launching('off');
    ($job) = ask("relocate_index('t_n', '" . elsewhere('t_n') . "', amcheck => true, mode => 'rebuild')");
    $db->sql('DROP EXTENSION amcheck');
    launching('on');
    job_ok($job, 'state, sqlstate, message', 'done||its contents were not verified: the extension "amcheck" is not installed here', 'nor when it is gone');
    is(($db->try("SELECT pgscale.relocate_index('t_n', '" . elsewhere('t_n') . "', amcheck => true, mode => 'rebuild')"))[0], '55000', 'and then cannot be asked for');
    $db->sql('CREATE EXTENSION amcheck');
    ($job) = ask("relocate_index('t_n', '" . elsewhere('t_n') . "', amcheck => true, prewarm => false, mode => 'rebuild')");
    job_ok($job, 'state, sqlstate, message', 'done||', 'the right one is called');

    # several indexes, of which it can check some: a GIN index from 18 on, by its 1.5; and no hash index
    $db->sql('CREATE TABLE lists (n int, list int[]); INSERT INTO lists SELECT i, ARRAY[i, i + 1] FROM generate_series(1, 1000) i;
        CREATE INDEX lists_btree ON lists (n); CREATE INDEX lists_gin ON lists USING gin (list); CREATE INDEX lists_hash ON lists USING hash (n)');
    my $checks_gin = server_major() >= 18;
    my $checks = $checks_gin ? 'It checks btree and gin indexes.' : 'It checks btree indexes.';
    my @not_hash = $notice->('lists_hash', sprintf($checks_not, 'hash'), $checks);
    my @not_gin = $notice->('lists_gin', sprintf($checks_not, 'gin'), $checks);
    my $ends = sub {
        my ($name, $of_gin, @jobs) = @_;

        is(scalar @jobs, 3, "$name: three jobs");
        done_ok($name, @jobs);
        is($db->sql('SELECT relation, message FROM pgscale.relocation_jobs WHERE job IN (' . join(',', @jobs) . ') ORDER BY relation'),
            join("\n", 'public.lists_btree|', 'public.lists_gin|' . ($of_gin && "its contents were not verified: $of_gin"),
                'public.lists_hash|its contents were not verified: ' . sprintf $checks_not, 'hash'), "$name: each says what was not verified");
        return;
    };
    $ends->('the latest version', $checks_gin ? '' : sprintf($checks_not, 'gin'),
        $told->(q{relocate_indexes('lists', 'fast', amcheck => true, mode => 'rebuild')}, 'which cannot be checked is said', $checks_gin ? () : @not_gin, @not_hash));
    $db->sql(q{DROP EXTENSION amcheck; CREATE EXTENSION amcheck VERSION '1.3'});
    @not_gin = $notice->('lists_gin', sprintf($too_old, 'gin'), 'ALTER EXTENSION amcheck UPDATE.') if $checks_gin;
    $ends->('an old version', sprintf($checks_gin ? $too_old : $checks_not, 'gin'),
        $told->(q{relocate_indexes('lists', 'other', amcheck => true, mode => 'rebuild')}, 'which of them an old version cannot check is said', @not_gin, @not_hash));

    # a check that finds something: an index whose function says it is immutable, and is not
    $db->sql(q{DROP EXTENSION amcheck; CREATE EXTENSION amcheck;
        CREATE FUNCTION lies(int) RETURNS float8 IMMUTABLE LANGUAGE plpgsql AS 'BEGIN RETURN random(); END';
        CREATE INDEX lists_lies ON lists (lies(n))});
    ($job) = $told->(q{relocate_index('lists_lies', 'fast', amcheck => true, mode => 'rebuild')}, 'an index that can be checked');
    job_ok($job, q{state, sqlstate, message ~ '^it has moved, but its verification failed: heap tuple .* lacks matching index tuple'}, 'failed|XX001|t',
        'and is not in order');
}
$mallory->quit;

# Temporal keys, from 18 on
SKIP:
{
    skip 'there are no keys WITHOUT OVERLAPS before 18', 3 if $db->sql('SHOW server_version_num') < 180000;
    $db->sql('CREATE TABLE temporal (id int4range, during daterange, PRIMARY KEY (id, during WITHOUT OVERLAPS), UNIQUE (during, id WITHOUT OVERLAPS), EXCLUDE USING gist (during WITH &&))');
    like(($db->try("SELECT pgscale.relocate_index('$_', 'fast', mode => 'rebuild')"))[1], qr/0A000: index "$_" belongs to a key WITHOUT OVERLAPS, which cannot be built concurrently/, "$_ is refused")
      for 'temporal_pkey', 'temporal_during_id_key';
    like(($db->try(q{SELECT pgscale.relocate_index('temporal_during_excl', 'fast', mode => 'rebuild')}))[1], qr/belongs to an exclusion constraint/, 'and an exclusion constraint as what it is');
}

### What is told to whom

# An index' function that reads a value aloud when it fails: of a table that mallory may not read, but see the jobs of.
$db->sql(<<'EOQ');
CREATE ROLE watching LOGIN IN ROLE pg_monitor;
CREATE ROLE owning LOGIN;
GRANT CREATE ON SCHEMA public TO owning;
GRANT CREATE ON TABLESPACE fast TO owning;
GRANT USAGE ON SCHEMA pgscale, pgscale_internal TO owning;
GRANT EXECUTE ON FUNCTION pgscale.relocate_index(regclass, name, boolean, boolean, text) TO owning;
GRANT SELECT ON pgscale.relocation_jobs TO owning;
SET ROLE owning;
CREATE TABLE fail ();
CREATE FUNCTION loud(text) RETURNS int LANGUAGE plpgsql IMMUTABLE AS $$BEGIN
    IF to_regclass('public.fail') IS NOT NULL AND EXISTS (SELECT FROM pg_attribute WHERE attrelid = 'public.fail'::regclass AND attname = 'now')
    THEN RETURN ('secret ' || $1)::int; END IF;
    RETURN 1;
END$$;
CREATE TABLE cards (number text);
INSERT INTO cards VALUES ('4111-1111');
CREATE INDEX cards_loud ON cards (public.loud(number));
ALTER TABLE fail ADD now int;
RESET ROLE;
EOQ
my $owning = session($node, user => 'owning');
my ($loud) = ask(q{relocate_index('cards_loud', 'fast', mode => 'rebuild')}, $owning);
job_ok($loud, 'state, sqlstate', 'failed|22P02', 'a move that fails over a value');
my $watching = session($node, user => 'watching');
my $message = "SELECT message FROM pgscale.relocation_jobs WHERE job = $loud";
unlike($watching->sql($message), qr/4111/, 'pg_monitor does not see the value');
like($watching->sql($message), qr/^an error whose text may contain values of rows/, 'and sees why');
like($owning->sql($message), qr/invalid input syntax for type integer: "secret 4111-1111"/, 'who has asked for it sees it');
$db->sql('GRANT SELECT ON cards TO watching');
like($watching->sql($message), qr/4111/, 'and who may read the table');
$db->sql('ALTER TABLE cards ENABLE ROW LEVEL SECURITY');
unlike($watching->sql($message), qr/4111/, 'but not who may read some of its rows');
$_->quit for $owning, $watching;

### The last word of a job

# While somebody has locked the table of jobs, the worker that has moved an index can be ended; and nothing is lost.
my $holder = session($node);
$holder->sql('BEGIN; UPDATE t SET n = n WHERE id = 1');
my ($job) = ask("relocate_index('t_n', '" . elsewhere('t_n') . "', mode => 'rebuild')");
job_ok($job, 'state, phase', 'running|waiting for writers before build', 'a move is under way');
my $worker = $db->sql("SELECT pid FROM pgscale_internal.relocation_job WHERE job = $job");
my $locker = session($node);
$locker->sql('BEGIN; LOCK TABLE pgscale_internal.relocation_job IN SHARE MODE');
$holder->sql('COMMIT');
$db->poll_ok("SELECT count(*) FROM pg_locks WHERE pid = $worker AND relation = 'pgscale_internal.relocation_job'::regclass AND NOT granted",
    'its worker waits for the table of jobs', 1);
$db->sql("SELECT pg_terminate_backend($worker)");
$db->poll_ok("SELECT count(*) FROM pg_stat_activity WHERE pid = $worker", 'and ends when it is told to', 0);
$locker->sql('COMMIT');
job_ok($job, 'state', 'done', 'another one says the last word');
$_->quit for $holder, $locker;
is($db->sql(q{SELECT count(*), bool_and(indisvalid) FROM pg_index WHERE indrelid = 't'::regclass}), '2|t', 'nothing is left behind');

### Copies of a database, and who wants one for himself

$db->sql('CREATE DATABASE origin');
my $there = session($node, dbname => 'origin');
$there->sql('CREATE EXTENSION pgscale; CREATE TABLE t (id int PRIMARY KEY); INSERT INTO t SELECT generate_series(1, 100); '
      . 'CREATE INDEX t_id ON t (id)');
launching('off');
my ($copied) = ask(q{relocate_index('t_pkey', 'fast', mode => 'rebuild')}, $there);
$there->quit;
$db->sql('CREATE DATABASE copy TEMPLATE origin');
launching('on');
$there = session($node, dbname => 'origin');
job_ok($copied, 'state', 'done', 'in the origin a job is done', $there);
$there->quit;
$there = session($node, dbname => 'copy');
is($there->sql('SELECT state FROM pgscale.relocation_jobs'), 'copied', 'in a copy of the database it says that it is one');
my ($own) = ask(q{relocate_index('t_id', 'fast', mode => 'rebuild')}, $there);
job_ok($own, 'state', 'done', 'a job of the copy is done', $there);
job_ok($copied, 'state, sqlstate, message', 'cancelled|57014|it was asked for in another database, of which this is a copy',
    'the copied one is not', $there);
is($there->sql(q{SELECT reltablespace FROM pg_class WHERE relname = 't_pkey'}), 0, 'nothing has moved by it');
($own) = ask(q{relocate_index('t_pkey', 'fast', mode => 'rebuild')}, $there);
job_ok($own, 'state', 'done', 'and it is in nobody\'s way', $there);
$there->quit;

# A move that stays under way: of an index whose function sleeps in a worker.
sub at_work
{
    my $name = shift;
    my $session = session($node, dbname => $name);

    # in the second one of four blocks
    $session->sql('CREATE TABLE large (id int, filler char(1000))');
    $session->sql(q{CREATE FUNCTION slow(int) RETURNS int LANGUAGE plpgsql IMMUTABLE AS
        $$BEGIN IF $1 = 10 AND current_setting('application_name') = '' THEN PERFORM pg_sleep(60); END IF; RETURN $1; END$$});
    $session->sql(q{INSERT INTO large SELECT i, '' FROM generate_series(1, 28) i; SET application_name = here; CREATE INDEX large_slow ON large (slow(id))});
    my ($id) = ask(q{relocate_index('large_slow', 'fast', mode => 'rebuild')}, $session);
    job_ok($id, 'state, phase, done_fraction', 'running|building index: scanning table|0.25', "a worker is at a move in $name", $session);
    $session->quit;
    return $id;
}
my $slow = at_work('origin');
my $log = -s $node->logfile;
is(($db->try('ALTER DATABASE origin RENAME TO renamed'))[0], '00000', 'a database with a move under way can be renamed');
like(substr(slurp_file($node->logfile), $log), qr/relocation job $slow: the worker has disconnected for/, 'for which its worker makes way');
$there = session($node, dbname => 'renamed');
job_ok($slow, 'state', 'running', 'which then goes on', $there);
is($there->sql("SELECT crashes FROM pgscale_internal.relocation_job WHERE job = $slow"), 0, 'as nothing has crashed');
$there->quit;
is(($db->try('CREATE DATABASE again TEMPLATE renamed'))[0], '00000', 'copied');
$there = session($node, dbname => 'again');
is($there->sql(q{SELECT count(*) FROM pg_index WHERE NOT indisvalid}), 0, 'without what the move had begun');
is($there->sql("SELECT state FROM pgscale.relocation_jobs WHERE job = $slow"), 'copied', 'but with its row');
$there->quit;
$there = session($node, dbname => 'renamed');
job_ok($slow, 'state', 'running', 'the move goes on once more', $there);
$there->quit;
is(($db->try("DROP DATABASE $_"))[0], '00000', "$_ can be dropped") for qw(renamed again copy);

### After a start

# Only those databases are woken that have jobs; the one that has was made last, so a look into each would come to it last.
$db->sql("CREATE DATABASE $_") for qw(idle busy);
$there = session($node, dbname => 'idle');
$there->sql('CREATE EXTENSION pgscale');
$there->quit;
# at its end it tells the last of what it did
$db->poll_ok(q{SELECT count(*) FROM pg_stat_activity WHERE datname = 'idle'}, 'nobody is in a database', 0);
$there = session($node, dbname => 'busy');
$there->sql('CREATE EXTENSION pgscale; CREATE TABLE t (id int PRIMARY KEY)');
# workers are not bound to these settings, and log nothing because of them
$there->sql("ALTER DATABASE busy SET $_") for 'default_transaction_read_only = on', 'debug_print_parse = on', 'debug_print_rewritten = on',
  'debug_print_plan = on', 'log_planner_stats = on', 'log_executor_stats = on', 'trace_sort = on';
for my $how ('a restart', 'a crash')
{
    launching('off');
    $there->sql('SET default_transaction_read_only = off');
    my ($id) = ask("relocate_table('t', '" . ($how eq 'a crash' ? 'other' : 'fast') . "', 'lock')", $there);
    $there->quit;
    $db->sql('ALTER SYSTEM SET pgscale.relocation_workers = 1');    # without a reload
    my $idle = q{SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = 'idle'};
    my $before = $db->sql($idle);
    $db->quit;
    $node->stop($how eq 'a crash' ? 'immediate' : 'fast');
    $node->start;
    $db = session($node);
    $there = session($node, dbname => 'busy');
    job_ok($id, 'state', 'done', "after $how a job is done", $there);
    is($db->sql($idle), $how eq 'a crash' ? 0 : $before, 'and no other database was looked into');
}
$there->poll_ok(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pgscale relocation worker'}, 'the worker has ended', 0);
$there->quit;

# A base backup may have the list of these databases from before there was a job, and the job: in the copy it is done all the same.
my $list = $node->data_dir . '/pg_stat/pgscale_relocation.stat';
until_ok(sub { (unpack 'L4', slurp_file($list))[3] == 0 }, 'no database has jobs');
my $empty = slurp_file($list);
launching('off');
$db->sql(q{SELECT pg_backup_start('copy', true)});
($copied) = ask("relocate_index('t_n', '" . elsewhere('t_n') . "', mode => 'rebuild')");
mkdir $node->backup_dir;
my $backup = $node->backup_dir . '/copy';
PostgreSQL::Test::RecursiveCopy::copypath($node->data_dir, $backup, filterfn => sub { shift !~ /^(?:postmaster[.].*|pg_wal)$/ });
my $label = $db->sql('SELECT labelfile FROM pg_backup_stop(false)');
PostgreSQL::Test::RecursiveCopy::copypath($node->data_dir . '/pg_wal', "$backup/pg_wal");
for ([ 'backup_label', "$label\n" ], [ 'pg_stat/pgscale_relocation.stat', $empty ])
{
    open my $file, '>:raw', "$backup/$_->[0]" or die $!;
    print $file $_->[1];
    close $file or die $!;
}
my $copy = PostgreSQL::Test::Cluster->new('copy');
$copy->init_from_backup($node, 'copy');
$copy->append_conf('postgresql.auto.conf', 'pgscale.relocation_workers = 1');
$copy->start;
$there = session($copy);
job_ok($copied, 'state', 'done', 'in a copy of the server the job is done', $there);
$there->quit;
$copy->stop;
launching('on');
job_ok($copied, 'state', 'done', 'and in the origin');

my ($noise) = slurp_file($node->logfile) =~ m{^(pgscale relocation worker LOG:  (?!pgscale relocation job).*)}m;
is($noise, undef, 'workers log only the end of jobs');
$db->quit;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, 'nothing crashed');
$node->stop;
done_testing();
