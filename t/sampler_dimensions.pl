# The profile by application, by the client's address and by plan: who waited for what, how many are told apart, who may see it.
# Runs on 18, too.
use strict;
use warnings;
use PgscaleSampler;
use PgscaleTest;
use Test::More;

my $node = pgscale_node('main', conf => <<'EOC');
pgscale.sampler_dimensions = 'application_name, client_addr'
pgscale.sampler_period = 1
listen_addresses = '127.0.0.1'
EOC
my $db = session($node);
$db->sql(q{CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA pgscale, pgscale_internal TO reader;
    GRANT EXECUTE ON FUNCTION pgscale_internal.wait_profile() TO reader});
my ($one, $two) = map { session($node) } 1, 2;
my $remote = session($node, host => '127.0.0.1');
naps($db, $one);

# Time of those that sleep, where that is so
sub slept { return "SELECT coalesce(sum(wait_ms), 0) > 50 FROM pgscale_internal.wait_profile() WHERE event = 'PgSleep' AND $_[0]"; }

# A session sleeps, again and again until the sampler, which may have no CPU just then, has seen enough of it.
sub seen_ok
{
    my ($session, $where, $name, $statement) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return in_time_ok(sub { $session->sql($statement // 'SELECT pg_sleep(0.2)'); $db->sql(slept($where)) eq 't' }, $name);
}
$one->sql('SET application_name = one');
seen_ok($one, q{application_name = 'one' AND client_addr IS NULL}, 'time of an application, by a Unix socket');
$one->sql(q{SET application_name = 'number three'});
seen_ok($one, q{application_name = 'number three'}, 'a session may change its name');
$remote->sql('SET application_name = remote');
seen_ok($remote, q{application_name = 'remote' AND client_addr = '127.0.0.1'}, 'a client by TCP has its address');
is($db->sql(q{SELECT count(*) FROM pgscale_internal.wait_profile() WHERE backend_type = 'checkpointer'
    AND (application_name IS NOT NULL OR client_addr IS NOT NULL)}), 0, 'server processes have neither');
seen_ok($one, q{application_name = 'number three' AND backend_type = 'parallel worker'},
    'parallel workers count for the application of their leader', 'SELECT count(*) FROM lines WHERE nap(i)');
my $twice = q{SELECT count(*) - count(DISTINCT (backend_type, event_type, event, coalesce(datname, ''), coalesce(usename, ''),
    coalesce(queryid, 0), application_name, client_addr, plan_id)) FROM pgscale.wait_profile};
is($db->sql($twice), 0, 'the view tells them apart');

# Who may see it
my $reader = session($node, user => 'reader');
is($reader->sql(q{SELECT count(*) FROM pgscale_internal.wait_profile() WHERE userid <> 'reader'::regrole
    AND application_name IS NOT NULL}), 0,
    'without pg_read_all_stats nobody sees the applications of others');
until_ok(sub { $reader->sql('SELECT pg_sleep(0.1)');
    $reader->sql(q{SELECT count(*) > 0 FROM pgscale_internal.wait_profile() WHERE userid = 'reader'::regrole
        AND application_name IS NOT NULL}) eq 't' },
    'but its own');

# More of them than there is room for
in_time_ok(sub {
    $one->sql(q{DO 'BEGIN FOR i IN 1..500 LOOP PERFORM set_config($$application_name$$, $$n$$ || (random() * 1e9)::int, false);
        PERFORM pg_sleep(0.002); END LOOP; END'});
    return $db->sql(q{SELECT count(*) > 0 FROM pgscale_internal.wait_profile() WHERE application_name = 'other'}) eq 't';
}, 'what there is no room for has one name');
$db->sampler('off');
is($db->sql('SELECT count(*) FROM (SELECT wait_ms - lag(wait_ms) OVER () AS more FROM pgscale.wait_profile) w WHERE more > 0'), 0, 'the longest first');
is($db->sql('SELECT (SELECT sum(samples) FROM pgscale_internal.wait_profile()) = samples FROM pgscale.sampler_stats'), 't',
    'and sums are whole');
is($db->sql(q{SELECT count(DISTINCT (application_name, client_addr)) <= 1000 FROM pgscale_internal.wait_profile()
    WHERE application_name IS NOT NULL}),
    't', 'within its bounds');
$db->sampler('on');
$db->sql('SELECT pgscale.reset($$sampler$$)');
seen_ok($remote, q{application_name = 'remote'}, 'after a reset there is room again');

# Who reads it while a reset gives the numbers away is not shown anybody under the name of another: a reader that is stopped
# anywhere, and two roles, whose sessions change their names all the time
$db->sql('CREATE ROLE one LOGIN; CREATE ROLE two LOGIN; CREATE TABLE go_on (); INSERT INTO go_on DEFAULT VALUES');
my @renaming = map { session($node, user => $_) } ('one') x 4, ('two') x 4;
$_->start(q{DO 'BEGIN LOOP PERFORM set_config($$application_name$$, current_user || (random() * 1e9)::int, false);
    PERFORM pg_sleep(0.001); END LOOP; END'}) for @renaming;
$two->start(q{DO 'DECLARE found int; wrong int := 0; BEGIN WHILE EXISTS (SELECT FROM go_on) LOOP
        SELECT count(*) INTO found FROM pgscale_internal.wait_profile() p JOIN pg_roles r ON r.oid = p.userid
         WHERE rolname = $$one$$ AND application_name ~ $$^two[0-9]$$ OR rolname = $$two$$ AND application_name ~ $$^one[0-9]$$;
        wrong := wrong + found; END LOOP; PERFORM set_config($$my.wrong$$, wrong::text, false); END';
    SELECT current_setting('my.wrong')});
my $names = sub { my $n = shift; until_true(sub { $db->sql('SELECT count(DISTINCT application_name)
    FROM pgscale_internal.wait_profile()') > $n }) or die 'no names' };
for (1 .. ($ENV{PGSCALE_TEST_FULL} ? 20 : 5))
{
    $names->(200);
    kill 'STOP', $two->pid;
    $db->sql('SELECT pgscale.reset($$sampler$$)');
    $names->(50);
    kill 'CONT', $two->pid;
}
$db->sql('DELETE FROM go_on');
is(join('|', $two->finish), '00000|0', 'no name of another after a reset');
$db->sql('SELECT pg_terminate_backend(' . $_->pid . ')') for @renaming;

# Over a restart, and without
$one->sql('SELECT pg_sleep(0.3)');
$_->quit for $one, $two, $reader, $remote;
$db = restarted($db, $node, 'fast', "pgscale.sampler_dimensions = ''");
is($db->sql(slept('application_name IS NULL')), 't', 'the profile is kept without them');
is($db->sql(q{SELECT count(*) FROM pgscale_internal.wait_profile() WHERE application_name IS NOT NULL OR client_addr IS NOT NULL}), 0,
    'and has none if none is asked for');

# A reload is enough. It counts for sessions whose status does not change, too, and what was counted before keeps what it had.
$db->sql('SELECT pgscale.reset($$sampler$$)');
$one = session($node);
$remote = session($node, host => '127.0.0.1');
$remote->sql('SET application_name = remote');
$one->start('SET application_name = early; SELECT pg_sleep(600)');
$db->poll_ok(slept('application_name IS NULL AND client_addr IS NULL'), 'without dimensions');
$db->set('pgscale.sampler_dimensions' => 'application_name');
$db->poll_ok(slept(q{application_name = 'early' AND client_addr IS NULL}),
    'after a reload a statement that runs on counts for its application');
seen_ok($remote, q{application_name = 'remote' AND client_addr IS NULL}, 'a client by TCP has no address where none is asked for');
$db->set('pgscale.sampler_dimensions' => 'application_name, client_addr');
seen_ok($remote, q{application_name = 'remote' AND client_addr = '127.0.0.1'}, 'and one where it is');
is($db->sql(slept(q{application_name = 'remote' AND client_addr IS NULL})), 't', 'what was counted before is as it was');
$db->set('pgscale.sampler_dimensions' => 'client_addr');
seen_ok($remote, q{application_name IS NULL AND client_addr = '127.0.0.1'}, 'an address alone');
$db->set('pgscale.sampler_dimensions');
cancelled($db, $one);
my ($state, $text) = $db->try(q{ALTER SYSTEM SET pgscale.sampler_dimensions = 'queryid'});
like("$state $text", qr/^22023 .*list of application_name, client_addr and plan_id/s, 'no other one is known, which is said');
$_->quit for $one, $remote;

# The plan, where the server has identifiers of plans and a module gives them; elsewhere it is asked for in vain, and health says so
my $plans = server_major() >= 18;
my $library = $plans ? compiled('plan_ids') : undef;
$db = restarted($db, $node, 'fast', "pgscale.sampler_dimensions = 'plan_id, application_name'\n"
      . ($library ? "shared_preload_libraries = 'pgscale,$library'" : ''));
$db->poll_ok(q{SELECT reason || ', ' || coalesce(action, 'nothing') FROM pgscale.health WHERE feature = 'sampler'
    AND state = 'working'},
    'health', $plans ? 'samples every 1 ms, nothing' : 'samples every 1 ms; plan_id is always NULL, because this server has '
      . 'no plan identifiers, use PostgreSQL 18 or later, or take plan_id out of pgscale.sampler_dimensions');
$db->sql('SELECT pgscale.reset($$sampler$$)');
$one = session($node);
$remote = session($node, host => '127.0.0.1');
$_->sql('SET application_name = planned') for $one, $remote;
seen_ok($one, q{application_name = 'planned' AND plan_id IS NULL}, 'a statement without an identifier');
my $samples = q{SELECT sum(samples) FROM pgscale_internal.wait_profile() WHERE event = 'PgSleep' AND application_name = 'planned'};
my $before = $db->sql($samples);
until_ok(sub { $remote->sql('SELECT pg_sleep(0.2)'); $db->sql($samples) > $before }, 'and one of a client by TCP');
is($db->sql(q{SELECT count(*) FILTER (WHERE event = 'PgSleep'), count(client_addr) FROM pgscale_internal.wait_profile()
    WHERE application_name = 'planned' AND queryid IS NOT NULL}), '1|0',
        'which is one row with it where addresses are not asked for');

SKIP:
{
    skip 'this server has no plan identifiers, or the module cannot be compiled', 8 unless $library;
    for my $plan (3, 7)
    {
        $one->sql("SET plan_ids.number = $plan; SELECT pg_sleep(0.2)");
        seen_ok($one, "plan_id = @{[ -10000000000 * $plan ]} AND application_name = 'planned' AND queryid = " . $db->queryid($one),
            "time of plan $plan of the query");
    }
    is($db->sql('SELECT count(DISTINCT plan_id), count(DISTINCT queryid) FROM pgscale_internal.wait_profile() WHERE event = $$PgSleep$$
        AND plan_id < 0'),
        '2|1', 'two plans of one query');
    is($db->sql(q{SELECT count(*) FROM pgscale_internal.wait_profile() WHERE plan_id IS NOT NULL AND (queryid IS NULL OR idle
        OR event = 'IdleInTransaction' OR application_name <> 'planned')}), 0,
            'of no time but that of statements, and of no other session');
    is($db->sql($twice), 0, 'the view tells them apart, too');

    # Over a restart, and without
    $_->quit for $one, $remote;
    $db = restarted($db, $node);
    is($db->sql('SELECT count(DISTINCT plan_id) FROM pgscale_internal.wait_profile()'), 2, 'they are kept over a restart');
    $db = restarted($db, $node, 'fast', "pgscale.sampler_dimensions = ''");
    is($db->sql('SELECT count(plan_id) FROM pgscale_internal.wait_profile()'), 0, 'but not if nobody asks for them any more');
    is($db->sql(slept('true')), 't', 'only their time');
}
$node->stop;
done_testing();
