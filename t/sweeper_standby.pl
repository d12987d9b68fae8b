# The sweeper on a hot standby, where it is replay that needs buffers, and through its promotion.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = pgscale_node('primary', init => [ allows_streaming => 1 ], conf => <<"EOC");
shared_buffers = 8MB
max_worker_processes = 20
checkpoint_timeout = 1h
synchronous_commit = off
full_page_writes = on
EOC
my $on_primary = session($primary);
$on_primary->churn_table(40000);
my $standby = pgscale_standby($primary, "pgscale.sweeper = on\nrecovery_prefetch = off");
my $db = session($standby);

sub caught_up_ok
{
    my $name = shift;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my $lsn = $on_primary->sql('SELECT pg_current_wal_insert_lsn()');

    # what is inserted need not be flushed
    $on_primary->sql(q{SELECT pg_switch_wal()});
    return $db->poll_ok("SELECT pg_last_wal_replay_lsn() >= '$lsn'", $name);
}

$db->poll_ok(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pgscale sweeper'}, 'the sweeper is there', 1);

my @churning = churn($primary, 4);
$db->poll_ok('SELECT state FROM pgscale.sweeper_stats', 'while WAL is replayed, it works', 'working');
$db->sweeps_on('and supplies and writes');
my $consumed = $db->sql('SELECT consumed FROM pgscale.sweeper_stats');
$db->poll_ok("SELECT consumed > $consumed + 100 FROM pgscale.sweeper_stats", 'replay takes what it supplies');
$on_primary->churn_end(@churning);
caught_up_ok('the standby has caught up');
$db->churn_right('the data is right');
$on_primary->churn_right('as on the primary');

# A restartpoint, and a restart, from where pages were written ahead of it
@churning = churn($primary, 4);
$db->sweeps_on('under load');
$on_primary->sql('CHECKPOINT');
$db->sql('CHECKPOINT');
$db->sweeps_on('after a restartpoint');
$db->quit;
$standby->stop('immediate');
$standby->start;
$db = session($standby);
$db->sweeps_on('after a crash of the standby');
$on_primary->churn_end(@churning);
caught_up_ok('it catches up');
$db->churn_right('the data is right');

# Promotion under load
@churning = churn($primary, 4);
$db->sweeps_on('under load');
$primary->stop('immediate');
$_->quit for $on_primary, @churning;
$standby->promote;
$db->poll_ok('SELECT NOT pg_is_in_recovery()', 'promoted');
$db->churn_right('the data is right');
@churning = churn($standby, 4);
$db->sweeps_on('now under a load of its own it goes on');
$db->churn_end(@churning);
$db->churn_right('the data is right');
is($db->sql('SELECT errors FROM pgscale.sweeper_stats'), 0, 'without errors');
unlike(slurp_file($standby->logfile), qr/PANIC|TRAP|terminated by signal/, 'nothing crashed');

$standby->stop;
done_testing();
