# The profile by application and by the client's address: who waited for what, how many are told apart, who may see it.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main', conf => <<'EOC');
pgscale.sampler_dimensions = 'application_name, client_addr'
pgscale.sampler_period = 1
listen_addresses = '127.0.0.1'
EOC
my $db = session($node);
$db->sql(q{CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA pgscale, pgscale_internal TO reader;
    GRANT EXECUTE ON FUNCTION pgscale.wait_profile() TO reader});

# Applications that sleep, again and again until the sampler, which may have no CPU just then, has seen enough of it
my $sleep = q{SELECT coalesce(sum(wait_ms), 0) > 100 FROM pgscale.wait_profile() WHERE event = 'PgSleep'};
sub seen_ok
{
    my ($sleeps, $where, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return until_ok(sub { $sleeps->(); $db->sql("$sleep AND $where") eq 't' }, $name);
}
my ($one, $two) = (session($node), session($node));
my ($one_sleeps, $two_sleeps) = map { my $session = $_; sub { $session->sql('SELECT pg_sleep(0.3)') } } $one, $two;
$one->sql('SET application_name = one');
$two->sql(q{SET application_name = 'number two'});
seen_ok($one_sleeps, q{application_name = 'one' AND client_addr IS NULL}, 'time of an application, by a Unix socket');
seen_ok($two_sleeps, q{application_name = 'number two'}, 'and of another one');
$one->sql('SET application_name = three');
seen_ok($one_sleeps, q{application_name = 'three'}, 'a session may change its name');
seen_ok(sub { $node->run_log([ 'psql', '-XAtq', '-h', '127.0.0.1', '-p', $node->port, '-d', 'dbname=postgres application_name=remote',
    '-c', 'SELECT pg_sleep(0.3)' ]) }, q{application_name = 'remote' AND client_addr = '127.0.0.1'}, 'a client by TCP has its address');
is($db->sql(q{SELECT count(*) FROM pgscale.wait_profile() WHERE backend_type = 'checkpointer'
    AND (application_name IS NOT NULL OR client_addr IS NOT NULL)}), 0, 'server processes have neither');

# Parallel workers count for their leader's
$one->sql(q{SET application_name = parallel; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
    SET min_parallel_table_scan_size = 0; SET max_parallel_workers_per_gather = 2});
$db->sql(q{CREATE FUNCTION nap(int) RETURNS boolean LANGUAGE plpgsql PARALLEL SAFE AS 'BEGIN PERFORM pg_sleep(0.02); RETURN true; END';
    CREATE TABLE few (i int, filler text); ALTER TABLE few ALTER filler SET STORAGE PLAIN, SET (parallel_workers = 2);
    INSERT INTO few SELECT i, repeat('x', 2000) FROM generate_series(1, 60) i});
until_ok(sub {
    $one->sql('SELECT count(*) FROM few WHERE nap(i)');
    return $db->sql(q{SELECT count(*) > 0 FROM pgscale.wait_profile() WHERE backend_type = 'parallel worker' AND event = 'PgSleep'
        AND application_name = 'parallel'}) eq 't';
}, 'parallel workers count for the application of their leader');

is($db->sql(q{SELECT count(*) - count(DISTINCT (backend_type, event_type, event, coalesce(datname, ''), coalesce(usename, ''), coalesce(queryid, 0)))
    FROM pgscale.wait_profile}), 0, 'the view, which does not tell them apart, adds them up');

# Who may see it
my $reader = session($node, user => 'reader');
is($reader->sql(q{SELECT count(*) FROM pgscale.wait_profile() WHERE userid <> 'reader'::regrole AND application_name IS NOT NULL}), 0,
    'without pg_read_all_stats nobody sees the applications of others');
$reader->sql('SELECT pg_sleep(0.1)');
until_ok(sub { $reader->sql('SELECT pg_sleep(0.01)');
    $reader->sql(q{SELECT count(*) > 0 FROM pgscale.wait_profile() WHERE userid = 'reader'::regrole AND application_name IS NOT NULL}) eq 't' },
    'but his own');

# More of them than there is room for
$db->sampler('off');
$db->sampler('on');
my $totals = q{SELECT (SELECT sum(samples) FROM pgscale.wait_profile()) = samples FROM pgscale.sampler_stats};
until_ok(sub {
    $one->sql(q{DO 'BEGIN FOR i IN 1..500 LOOP PERFORM set_config($$application_name$$, $$n$$ || (random() * 1e9)::int, false);
        PERFORM pg_sleep(0.002); END LOOP; END'});
    return $db->sql(q{SELECT count(*) > 0 FROM pgscale.wait_profile() WHERE application_name = 'other'}) eq 't';
}, 'what there is no room for has one name');
$db->sampler('off');
is($db->sql($totals), 't', 'and sums are whole');
is($db->sql(q{SELECT count(DISTINCT (application_name, client_addr)) <= 1000 FROM pgscale.wait_profile() WHERE application_name IS NOT NULL}),
    't', 'within its bounds');
$db->sampler('on');
$db->sql('SELECT pgscale.reset($$sampler$$)');
seen_ok($two_sleeps, q{application_name = 'number two'}, 'after a reset there is room again');

# Who reads it while a reset gives the numbers away is not shown anybody under the name of another: a reader that is stopped anywhere,
# and two roles, whose sessions change their names all the time
$db->sql('CREATE ROLE one LOGIN; CREATE ROLE two LOGIN');
my @renaming = map { my $role = $_; map { session($node, user => $role) } 1 .. 4 } 'one', 'two';
$_->start(q{DO 'BEGIN LOOP PERFORM set_config($$application_name$$, current_user || (random() * 1e9)::int, false); PERFORM pg_sleep(0.001); END LOOP; END'})
  for @renaming;
$db->sql('CREATE TABLE go_on (); INSERT INTO go_on DEFAULT VALUES');
$two->start(q{DO 'DECLARE found int; wrong int := 0; BEGIN WHILE EXISTS (SELECT FROM go_on) LOOP
        SELECT count(*) INTO found FROM pgscale.wait_profile() p JOIN pg_roles r ON r.oid = p.userid
         WHERE rolname IN ($$one$$, $$two$$) AND application_name ~ (CASE rolname WHEN $$one$$ THEN $$^two[0-9]$$ ELSE $$^one[0-9]$$ END);
        wrong := wrong + found; END LOOP; PERFORM set_config($$my.wrong$$, wrong::text, false); END';
    SELECT current_setting('my.wrong')});
for my $round (1 .. ($ENV{PGSCALE_TEST_FULL} ? 20 : 7))
{
    until_true(sub { $db->sql('SELECT count(DISTINCT application_name) > 200 FROM pgscale.wait_profile()') eq 't' }) or die 'no names';
    kill 'STOP', $two->pid;
    $db->sql('SELECT pgscale.reset($$sampler$$)');
    until_true(sub { $db->sql('SELECT count(DISTINCT application_name) > 50 FROM pgscale.wait_profile()') eq 't' }) or die 'no new names';
    kill 'CONT', $two->pid;
}
$db->sql('DELETE FROM go_on');
is(join('|', $two->finish), '00000|0', 'no name of another after a reset');
$db->sql('SELECT pg_terminate_backend(' . $_->pid . ')') for @renaming;
$one_sleeps->();

# Over a restart, and without
$_->quit for $db, $one, $two, $reader;
$node->append_conf('postgresql.conf', "pgscale.sampler_dimensions = ''");
$node->restart;
$db = session($node);
is($db->sql("$sleep AND application_name IS NULL"), 't', 'the profile is kept without them');
is($db->sql(q{SELECT count(*) FROM pgscale.wait_profile() WHERE application_name IS NOT NULL OR client_addr IS NOT NULL}), 0,
    'and has none if none is asked for');

# A reload is enough. It counts for sessions whose status does not change, too, and what was counted before keeps what it had.
my $seen = sub { my ($application, $address) = @_;
    return "SELECT count(*) > 0 FROM pgscale.wait_profile() WHERE event = 'PgSleep' AND application_name $application AND client_addr $address" };
$db->sql('SELECT pgscale.reset($$sampler$$)');
($one, $two) = map { session($node) } 1, 2;
$one->start('SET application_name = early; SELECT pg_sleep(600)');
$db->poll_ok($seen->('IS NULL', 'IS NULL'), 'without dimensions');
is($db->sql($seen->('IS NOT NULL', 'IS NULL')), 'f', 'there is no application');
$db->set('pgscale.sampler_dimensions' => 'application_name');
$db->poll_ok($seen->(q{= 'early'}, 'IS NULL'), 'after a reload a statement that runs on counts for its application');
my $remote = session($node, host => '127.0.0.1');
$remote->sql('SET application_name = remote');
my $sleep_remote = sub { $remote->sql('SELECT pg_sleep(0.1)') };
until_ok(sub { $sleep_remote->(); $db->sql($seen->(q{= 'remote'}, 'IS NULL')) eq 't' }, 'a client by TCP has no address');
is($db->sql($seen->('IS NOT NULL', 'IS NOT NULL')), 'f', 'where none is asked for');
$db->set('pgscale.sampler_dimensions' => 'application_name, client_addr');
until_ok(sub { $sleep_remote->(); $db->sql($seen->(q{= 'remote'}, q{= '127.0.0.1'})) eq 't' }, 'and one where it is');
is($db->sql($seen->(q{= 'remote'}, 'IS NULL')), 't', 'what was counted before is as it was');
$db->set('pgscale.sampler_dimensions' => 'client_addr');
until_ok(sub { $sleep_remote->(); $db->sql($seen->('IS NULL', q{= '127.0.0.1'})) eq 't' }, 'an address alone');
$db->set('pgscale.sampler_dimensions');
$remote->quit;
$db->sql('SELECT pg_terminate_backend(' . $_->pid . ')') for $one;
$two->quit;
my ($state, $text) = $db->try(q{ALTER SYSTEM SET pgscale.sampler_dimensions = 'queryid'});
is($state, '22023', 'no other one is known');
like($text, qr/list of application_name, client_addr and plan_id/, 'which is said');

# The plan, where the server has identifiers of plans and a module gives them; elsewhere it is asked for in vain, and health says so
$db->quit;
$node->append_conf('postgresql.conf', "pgscale.sampler_dimensions = 'plan_id, application_name'");
$node->restart;
$db = session($node);
my $plans = $db->sql(q{SELECT current_setting('server_version_num')::int >= 180000}) eq 't';
my ($library, $include) = (PostgreSQL::Test::Utils::tempdir() . '/plan_ids.so', server_headers());
$db->poll_ok(q{SELECT reason || ', ' || coalesce(action, 'nothing') FROM pgscale.health WHERE feature = 'sampler' AND state = 'working'}, 'health',
    $plans ? 'samples every 1 ms, nothing' : 'samples every 1 ms; plan_id is always NULL, because this server has no plan identifiers, '
      . 'use PostgreSQL 18 or later, or take plan_id out of pgscale.sampler_dimensions');
$one = session($node);
$one->sql('SET application_name = planned');
seen_ok($one_sleeps = sub { $one->sql('SELECT pg_sleep(0.3)') }, q{application_name = 'planned' AND plan_id IS NULL}, 'a statement without an identifier');
my $planned = q{SELECT count(*) FILTER (WHERE event = 'PgSleep'), count(*) - count(DISTINCT (backend_type, datid, userid, queryid, event_type, event, application_name)),
    count(client_addr) FROM pgscale.wait_profile() WHERE application_name = 'planned' AND queryid IS NOT NULL};
my $samples = $db->sql(q{SELECT sum(samples) FROM pgscale.wait_profile() WHERE event = 'PgSleep' AND application_name = 'planned'});
until_ok(sub {
    $node->run_log([ 'psql', '-XAtq', '-h', '127.0.0.1', '-p', $node->port, '-d', 'dbname=postgres application_name=planned', '-c', 'SELECT pg_sleep(0.3)' ]);
    return $db->sql("SELECT sum(samples) > $samples FROM pgscale.wait_profile() WHERE event = 'PgSleep' AND application_name = 'planned'") eq 't';
}, 'and one of a client by TCP');
is($db->sql($planned), '1|0|0', 'which is one row with it where addresses are not asked for');

SKIP:
{
    skip 'this server has no plan identifiers, or the module cannot be compiled', 8
      if !$plans || system("cc -shared -fPIC -O1 -I $include -o $library t/lib/plan_ids.c >$library.out 2>&1") != 0;
    chmod 0755, $library or die $!;
    $_->quit for $db, $one;
    $node->append_conf('postgresql.conf', "shared_preload_libraries = 'pgscale,$library'");
    $node->restart;
    ($db, $one, $two) = map { session($node) } 1 .. 3;
    $db->sql('SELECT pgscale.reset($$sampler$$)');
    my $of_plan = sub { "plan_id = @{[ -10000000000 * shift ]} AND queryid = " . $db->queryid($one) . " AND application_name = 'planned'" };

    $one->sql('SET application_name = planned');
    for my $plan (3, 7)
    {
        $one->sql("SET plan_ids.number = $plan; SELECT pg_sleep(0.3)");
        seen_ok($one_sleeps, $of_plan->($plan), "time of plan $plan of the query");
    }
    is($db->sql('SELECT count(DISTINCT plan_id), count(DISTINCT queryid) FROM pgscale.wait_profile() WHERE event = $$PgSleep$$ AND queryid IS NOT NULL'),
        '2|1', 'two plans of one query');
    is($db->sql(q{SELECT count(*) FROM pgscale.wait_profile() WHERE plan_id IS NOT NULL AND (queryid IS NULL OR idle OR event = 'IdleInTransaction')}),
        0, 'of no time but that of statements');
    $two->sql('SELECT pg_sleep(0.3)');
    is($db->sql(q{SELECT count(*) FROM pgscale.wait_profile() WHERE plan_id IS NOT NULL AND application_name <> 'planned'}), 0,
        'none of a session to which none was given');
    is($db->sql(q{SELECT count(*) - count(DISTINCT (backend_type, event_type, event, coalesce(datname, ''), coalesce(usename, ''), coalesce(queryid, 0)))
        FROM pgscale.wait_profile}), 0, 'the view adds them up');

    # Over a restart, and without
    $_->quit for $db, $one, $two;
    $node->restart;
    $db = session($node);
    is($db->sql('SELECT count(DISTINCT plan_id) FROM pgscale.wait_profile()'), 2, 'they are kept over a restart');
    $db->quit;
    $node->append_conf('postgresql.conf', "pgscale.sampler_dimensions = ''");
    $node->restart;
    $db = session($node);
    is($db->sql(qq{SELECT count(plan_id), ($sleep) FROM pgscale.wait_profile()}), '0|t', 'but not if nobody asks for them any more');
}
$_->quit for $db, $one;
$node->stop;
done_testing();
