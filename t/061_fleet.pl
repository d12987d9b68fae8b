# Which server this is: on a primary, its standby, and through a promotion.
use strict;
use warnings;
use PgscaleTest;
use Test::More;

my $primary = pgscale_node('primary', init => [ allows_streaming => 1 ]);
my $on_primary = session($primary);
my $standby = pgscale_standby($primary);
my $db = session($standby);

### Who is who

my ($primary_node, $system) = split /\|/, $on_primary->sql('SELECT node, system_identifier FROM pgscale.node_identity()');
like($primary_node, qr/^.+@[^@]+:${\ $primary->port}$/, 'a node is cluster_name, host and port');
is($on_primary->sql('SELECT role, lag_s FROM pgscale.node_identity()'), 'primary|', 'a primary is not behind');
my ($node, $same) = split /\|/, $db->sql('SELECT node, system_identifier FROM pgscale.node_identity()');
is($same, $system, 'a standby is of the same cluster');
isnt($node, $primary_node, 'and another node');
$db->poll_ok('SELECT role, lag_s FROM pgscale.node_identity()', 'which has replayed all', 'standby|0');

$on_primary->sql('CREATE TABLE u ()');
$db->poll_ok(q{SELECT to_regclass('u') IS NOT NULL}, 'it follows');

# Nothing is replayed for as long as the test wants, though it is received
$db->sql('SELECT pg_wal_replay_pause()');
$db->poll_ok('SELECT pg_get_wal_replay_pause_state()', 'replay pauses', 'paused');
$on_primary->sql('CREATE TABLE t ()');
$db->poll_ok('SELECT lag_s > 0 FROM pgscale.node_identity()', 'it is behind');
$db->poll_ok(q{SELECT lag_s > 0.2 FROM pgscale.node_identity()}, 'more and more so');
$db->sql('SELECT pg_wal_replay_resume()');
$db->poll_ok('SELECT lag_s FROM pgscale.node_identity()', 'until it has caught up', '0');

# Promotion
$_->quit for $on_primary;
$primary->stop;
$db->poll_ok('SELECT lag_s > 0 FROM pgscale.node_identity()', 'without a primary nobody knows: the most that it can be');
$standby->promote;
$db->poll_ok('SELECT role, lag_s FROM pgscale.node_identity()', 'promoted', 'primary|');
is($db->sql('SELECT node FROM pgscale.node_identity()'), $node, 'it is still the same node');

$db->quit;
$standby->stop;
done_testing();
