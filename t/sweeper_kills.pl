# The sweeper's processes are ended and killed, the postmaster is held up, and there is no room for them.
# Runs on 18, too.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use List::Util 'max';
use Test::More;

my $node = pgscale_node('main', conf => <<"EOC");
${\ sweeper_conf()}
pgscale.sweeper_writers = 3
log_min_messages = debug1
EOC
my $db = session($node);

# the processes whose backend_type is like that
sub pids { my $like = shift; return split /\n/, $db->sql("SELECT pid FROM pg_stat_activity WHERE backend_type LIKE '$like'"); }

$db->churn_table(40000);
$db->sql('CHECKPOINT');    # recovery is of the load alone
my @churning = churn($node, 4);
$db->sweeps_on('the sweeper works') or BAIL_OUT('it does not work');
$db->poll_ok('SELECT writers FROM pgscale.sweeper_stats', 'with its writers', 3);

# Ended
my ($sweeper) = pids('pgscale sweeper');
my $written = $db->sql('SELECT written FROM pgscale.sweeper_stats');
is($db->sql("SELECT pg_terminate_backend($sweeper)"), 't', 'pg_terminate_backend of the sweeper');
$db->poll_ok("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pgscale sweeper' AND pid <> $sweeper",
    'it is started again', 1);
$db->sweeps_on('and works');
is($db->sql("SELECT written > $written FROM pgscale.sweeper_stats"), 't', 'with the counts that it had');
my ($writer) = pids('pgscale sweeper writer');
is($db->sql("SELECT pg_terminate_backend($writer)"), 't', 'pg_terminate_backend of a writer');
$db->poll_ok("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pgscale sweeper writer' AND pid <> $writer",
    'another one takes its place', 3);

# all writers, again and again, also those that have just begun; then all processes
for my $like ('pgscale sweeper writer', 'pgscale sweeper%')
{
    my $before = $db->sql('SELECT written FROM pgscale.sweeper_stats');
    for (1 .. 3)
    {
        my @ended;
        until_true(sub { pids('pgscale sweeper writer') > 0 && (@ended = pids($like)) > 0 }) or BAIL_OUT("there is no '$like'");
        $db->sql("SELECT pg_terminate_backend($_)") for @ended;
    }
    $db->sweeps_on("'$like' ended three times: it goes on") or BAIL_OUT('it does not go on');
    is($db->sql("SELECT written > $before, errors FROM pgscale.sweeper_stats"), 't|0', 'with the counts that it had');
}
$db->poll_ok('SELECT writers FROM pgscale.sweeper_stats', 'and all writers are there', 3);
$db->churn_end(@churning);
$db->churn_right('the data is right');

# Killed: the server restarts all of its processes, as it always does; the second time while the sweeper keeps the usage counts
for my $like ('pgscale sweeper writer', 'pgscale sweeper')
{
    @churning = churn($node, 4);
    $db->sweeps_on('a load again');
    my $pid;
    until_true(sub { ($pid) = pids($like) }) or BAIL_OUT("there is no $like");
    my $started = $db->sql('SELECT stats_reset FROM pgscale.sweeper_stats');
    my $log = -s $node->logfile;
    kill 'KILL', $pid;
    until_ok(sub { substr(slurp_file($node->logfile), $log) =~ /all server processes terminated; reinitializing/ },
        "after kill -9 of a $like the server restarts its processes");
    $_->quit for @churning;
    $db = $db->reconnect($node);
    $db->churn_right('the data is right');
    is($db->sql("SELECT stats_reset > '$started' FROM pgscale.sweeper_stats"), 't', 'the counts begin anew');
    @churning = churn($node, 4);
    $db->sweeps_on('the sweeper works again');
    $db->churn_end(@churning);
}
$db->churn_right('the data is right');

# The writers have places, each for one. While the postmaster is stopped, all of them end and are wanted again and again; then none
# is taken twice. And the server stops soon after that.
@churning = churn($node, 4);
$db->poll_ok('SELECT writers FROM pgscale.sweeper_stats', 'three writers', 3);
my ($postmaster) = split /\n/, slurp_file($node->data_dir . '/postmaster.pid');
my $log = -s $node->logfile;
kill 'STOP', $postmaster;
$db->sql("SELECT pg_terminate_backend($_)") for $db->sweeper_pids('pgscale sweeper writer');
$db->poll_ok('SELECT writers FROM pgscale.sweeper_stats', 'they end while the postmaster is stopped', 0);
my $ticks = $db->sql('SELECT ticks FROM pgscale.sweeper_stats');
$db->poll_ok("SELECT ticks >= $ticks + 600 FROM pgscale.sweeper_stats", 'and are wanted for seconds');
kill 'CONT', $postmaster;
my $most = 0;
until_ok(sub { my $n = $db->sweeper_pids('pgscale sweeper writer'); $most = $n if $n > $most; $n >= 3 }, 'writers again');
$db->sweeps_on('and they write');
is(max($most, scalar $db->sweeper_pids('pgscale sweeper writer')), 3, 'one for each place');
my $asked = () = slurp_file($node->logfile, $log) =~ /\bregistering background worker "pgscale sweeper writer/g;
is($asked, 3, 'because it was asked for one for each');
is($db->sql('SELECT errors FROM pgscale.sweeper_stats'), 0, 'without an error');
$ENV{PGCTLTIMEOUT} = $PostgreSQL::Test::Utils::timeout_default;
$db->quit;
ok($node->stop('fast', fail_ok => 1), 'fast shutdown soon after') or BAIL_OUT('the server does not stop');
$_->quit for @churning;

# No room for all writers, which leave the last slot; other workers come and go
my $health = q{SELECT enabled, state, reason, action FROM pgscale.health WHERE feature = 'sweeper'};
# of which the sampler, the sweeper and logical replication's launcher have three
$node->append_conf('postgresql.conf', 'max_worker_processes = 6');
$node->start;
$db = session($node);
@churning = churn($node, 4);
$db->sweeps_on('with two writers instead of three it works');
$db->poll_ok($health, 'health says that there is no room for the third',
    't|working|the server has no slot for all its writers; max_worker_processes is 6|raise max_worker_processes and restart');
is($db->sql('SELECT writers FROM pgscale.sweeper_stats'), 2, 'two writers');
$db->set('pgscale.sweeper_writers', 2);
$db->poll_ok($health, 'two are wanted, and that is right', 't|working|pgscale.sweeper is on, not auto|');
$db->sweeps_on('it goes on');
$db->churn_end(@churning);

# No room for any writer, until there is
$node->append_conf('postgresql.conf', 'max_worker_processes = 4');
$db->set('pgscale.sweeper', 'off');
$db->quit;
$node->restart;
$db = session($node);
my $other = session($node);
$other->sql('SET min_parallel_table_scan_size = 0; SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0;
    SET max_parallel_workers_per_gather = 1');
$other->sql(q{CREATE FUNCTION nap(bigint) RETURNS boolean LANGUAGE plpgsql PARALLEL SAFE AS
    'BEGIN PERFORM pg_sleep(600); RETURN true; END'});
$other->start('SELECT count(*) FROM churn WHERE nap(n)');
$db->poll_ok(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker'},
    'another worker has all slots but one', 1);
@churning = churn($node, 4);
$db->set('pgscale.sweeper', 'on');
$db->poll_ok($health, 'health says that there is no room',
    't|broken|the server has no slot for all its writers; max_worker_processes is 4|raise max_worker_processes and restart');
my $n = $db->sql('SELECT sum(n) FROM churned');
$db->poll_ok("SELECT sum(n) > $n + 5000 FROM churned", 'backends do without');
$db->sql('SELECT pg_cancel_backend(' . $other->pid . ')');
$other->finish;
$db->set('pgscale.sweeper_writers', 1);
$db->sweeps_on('when there is room, it works');
$db->poll_ok($health, 'and health says so', 't|working|pgscale.sweeper is on, not auto|');
$db->churn_end(@churning);

# No room for the sweeper
$db->set('pgscale.sweeper_writers');
$node->append_conf('postgresql.conf', "max_worker_processes = 2");
$_->quit for $db, $other;
$node->restart;
$db = session($node);
$db->poll_ok(q{SELECT enabled AND state = 'broken' AND reason ~ 'no slot for its background worker; max_worker_processes is 2'
    AND action ~ 'max_worker_processes' FROM pgscale.health WHERE feature = 'sweeper'},
    'no room for the sweeper: health names max_worker_processes');
@churning = churn($node, 4);
$n = $db->sql('SELECT sum(n) FROM churned');
$db->poll_ok("SELECT sum(n) > $n + 5000 FROM churned", 'and the server works');
is($db->sql('SELECT count(*) FROM pgscale.sweeper_stats'), 1, 'the view answers');
$db->churn_end(@churning);
$db->churn_right('the data is right');

# None of its processes outlives the postmaster.
$node->append_conf('postgresql.conf', "max_worker_processes = 20");
$db->quit;
$node->restart;
$db = session($node);
@churning = churn($node, 4);
$db->sweeps_on('the sweeper works');
my @pids = $db->sweeper_pids;
cmp_ok(scalar @pids, '>=', 2, 'in several processes');
kill_postmaster($node);
until_ok(sub { !grep { process_state($_) =~ /^[^Z]$/ } @pids }, 'all end with the postmaster') or kill 'KILL', @pids;
# A session in the middle of a statement does not notice.
kill 'TERM', map { $_->pid } @churning;
$_->quit for $db, @churning;

done_testing();
