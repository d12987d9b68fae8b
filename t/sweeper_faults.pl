# The disk refuses what the sweeper writes. It counts and logs its errors, about one a second of each writer; sessions work on,
# nothing is lost, and it goes on by itself when the disk does. After a failed sync the server starts again, as it always does.
# Runs on 18, too.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my ($ENOSPC, $EIO) = (28, 5);
my ($WRITERS, $SWEEPER, $WRITE, $SYNC, $CREATE) = (-3, -4, 2, 4, 32);
my $library = compiled('faults') // plan skip_all => 'no compiler';
$ENV{PGSCALE_FAULTS} = PostgreSQL::Test::Utils::tempdir() . '/orders';
order();
my $node;
{
    local $ENV{LD_PRELOAD} = $library;
    # few buffers: a page that was taken for written, and was not, is soon read again as it was
    $node = pgscale_node('main', init => [ extra => ['-k'] ], conf => <<"EOC");
${\ sweeper_conf()}
fsync = on
pgscale.sweeper_writers = 2
EOC
}
my $db = session($node);

$db->churn_table(40000);
my @churning = churn($node, 4);
$db->sweeps_on('the sweeper works') or BAIL_OUT('it does not work');
my @sweeper = $db->sweeper_pids('pgscale sweeper');

for my $fault ([ 'a full disk', $ENOSPC ], [ 'EIO', $EIO ])
{
    my ($name, $error) = @$fault;
    my $log = -s $node->logfile;

    $db->sweeps_on('it works');
    my ($errors, $since) = split /\|/, $db->sql('SELECT errors, clock_timestamp() FROM pgscale.sweeper_stats');
    order(pid => $WRITERS, kinds => $WRITE, error => $error, always => 1, word => '/base/');
    $db->poll_ok("SELECT errors >= $errors + 5 FROM pgscale.sweeper_stats", "$name: its errors are counted");

    # What it failed to write is neither lost nor locked, nor pinned, for which this vacuum would wait.
    my $n = $db->sql('SELECT sum(n) FROM churned');
    $db->poll_ok("SELECT sum(n) > $n + 2000 FROM churned", "$name: sessions work on");
    is(($db->try($_))[0], '00000', "$name: $_") for 'VACUUM (FREEZE) churn', 'CHECKPOINT';
    $db->churn_right("$name: the data is right meanwhile");

    my ($more, $seconds) = split /\|/, $db->sql("SELECT errors - $errors, extract(epoch FROM clock_timestamp() - '$since')
        FROM pgscale.sweeper_stats");
    cmp_ok($more, '<=', 2 * (1 + $seconds), "$name: no more than one error a second of each of two writers");
    order();
    my ($counted, $logged);
    until_true(sub {
        $logged = () = slurp_file($node->logfile, $log) =~ /ERROR:  could not write blocks? \d+/g;
        $counted = $db->sql("SELECT errors - $errors FROM pgscale.sweeper_stats");
        return $counted == $logged;
    });
    is($logged, $counted, "$name: each is in the log");
    $db->sweeps_on("$name is over: the sweeper goes on");
    is(join(' ', $db->sweeper_pids('pgscale sweeper')), "@sweeper", 'in the same process');
    unlike(slurp_file($node->logfile, $log), qr/PANIC|FATAL|exited with|terminated by/, "$name: no process has ended");
}
$db->churn_end(@churning);
$db->churn_right('the data is right');

# A failed sync: after that, nobody knows what is on the disk, but the WAL does.
@churning = churn($node, 4);
$db->sweeps_on('it writes');
my $log = -s $node->logfile;
order(pid => $db->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'}), kinds => $SYNC, error => $EIO,
    always => 1, word => '/base/');
eval { $db->try('CHECKPOINT') };
until_ok(sub { slurp_file($node->logfile, $log) =~ /PANIC:  could not fsync file "base.*all server processes terminated/s },
    'EIO of a sync: the server starts again');
order();
$_->quit for @churning;
$db = $db->reconnect($node);
$db->churn_right('with all data');
@churning = churn($node, 4);
$db->sweeps_on('the sweeper works again');
$db->churn_end(@churning);
$db->churn_right('the data is right');

# No dynamic shared memory for it, as in a container with a small /dev/shm
$log = -s $node->logfile;
order(pid => $SWEEPER, kinds => $CREATE, error => $ENOSPC, always => 1, word => 'pg_dynshmem/');
$db->sql(q{SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'pgscale sweeper'});
$db->poll_ok(q{SELECT state, reason ~ '^the server could not give it its \d+ MB of dynamic shared memory$', action LIKE '%/dev/shm%'
    FROM pgscale.health WHERE feature = 'sweeper'}, 'without memory it is broken, and says why', 'broken|t|t');
is($db->sql('SELECT state, reason FROM pgscale.sweeper_stats'), 'off|the server could not give it its dynamic shared memory',
    'it is not at work, although it was when it ended');
is($db->sql('SELECT bool_and(mean_score IS NULL) FROM pgscale.relation_buffers'), 't', 'nothing of a page is known');
my $lines = () = slurp_file($node->logfile, $log) =~ /ERROR:  could not open shared memory segment/g;
is($lines, 1, 'the log has the reason, once a minute');
order();
$db->set('pgscale.sweeper', 'off');
$db->poll_ok(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pgscale sweeper'}, 'off, it ends at once', 0);
$db->set('pgscale.sweeper', 'on');
@churning = churn($node, 4);
$db->sweeps_on('with memory it works');
$db->churn_end(@churning);
$db->poll_ok('SELECT bool_or(mean_score >= 0) FROM pgscale.relation_buffers', 'and sessions see what it knows');
$db->quit;
$node->stop;

done_testing();
