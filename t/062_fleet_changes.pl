# Settings of other nodes: what is advised there, applied there and taken back; and where Patroni sets them.
use strict;
use warnings;
use IPC::Run;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

# One asks, one is asked; the latter needs a larger max_wal_size.
my $asking = pgscale_node('asking');
my $node = pgscale_node('node', init => [ extra => ['--wal-segsize=1'] ], conf => <<'EOC');
min_wal_size = 2MB
max_wal_size = 4MB
wal_compression = off
synchronous_commit = off
pgscale.sampler_debug_period = 1s
EOC
my ($db, $there) = (session($asking), session($node));
my $file = $node->data_dir . '/postgresql.auto.conf';
my $before = slurp_file($file);
$db->sql("SELECT pgscale.fleet_add('node', 'host=" . $node->host . ' port=' . $node->port . "')");
$db->sql(q{SELECT pgscale.fleet_add('dead', 'host=/nowhere')});
$db->sql(q{SET pgscale.fleet_timeout = '1min'});
$there->sql('CREATE TABLE t (i int, s text)');
my $load = session($node);
$load->start(q{DO $$ BEGIN LOOP INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 1000) i; TRUNCATE t; COMMIT; PERFORM pg_sleep(0.05); END LOOP; END $$});

my $advice = q{SELECT node, setting, "current", patroni_command FROM pgscale.fleet_advice WHERE setting = 'max_wal_size'};
my $answer;
in_time_ok(sub { ($answer = $db->sql($advice)) ne '' }, 'advice of a node') or diag $there->sql('SELECT * FROM pgscale.advice_rules');
is($answer, 'node|max_wal_size|4MB|', 'says which one it is about');
is($db->sql(q{SELECT node, error IS NOT NULL FROM pgscale.fleet_advice WHERE rule IS NULL}), 'dead|t', 'beside one that does not answer');

### Applied there, and taken back

my ($state, $text) = $db->try(q{SELECT pgscale.fleet_apply('node', 'port')});
is($state, 'HV000', 'what nobody advised');
like($text, qr/node "node": there is no advice/, 'is refused there');
is(($db->try(q{SELECT pgscale.fleet_apply('dead', 'max_wal_size')}))[0], 'HV000', 'where nobody answers');
is(($db->try(q{SELECT pgscale.fleet_apply('none', 'max_wal_size')}))[0], '42704', 'where nobody is');
is(slurp_file($file), $before, 'nothing has changed');
my $change = $db->sql(q{SELECT pgscale.fleet_apply('node', 'max_wal_size', true)});
is($there->sql("SELECT setting, requested_by = current_user FROM pgscale.tuning_journal WHERE change = $change"), 'max_wal_size|t', 'it is in the journal of the node');
is($db->sql('SELECT count(*) FROM pgscale.tuning_journal'), 0, 'and in no other');
$there->poll_ok(q{SELECT pg_size_bytes(current_setting('max_wal_size')) > pg_size_bytes('4MB')}, 'the node has read it');
cmp_ok($db->sql("SELECT pgscale.fleet_revert('node', $change, true)"), '>', $change, 'taken back');
is(slurp_file($file), $before, 'byte by byte');
$there->poll_ok('SHOW max_wal_size', 'and read', '4MB');

### Patroni: its file, and cluster_name on the command line, as the tests' servers have it

is($there->sql('SELECT pgscale.node_manager()'), '', 'nobody manages it');
my $patroni = $node->data_dir . '/patroni.dynamic.json';
append_to_file($patroni, '{}');
is($there->sql('SELECT pgscale.node_manager()'), 'patroni', 'Patroni does');
is($db->sql(q{SELECT node, manager FROM pgscale.fleet WHERE manager IS NOT NULL}), 'node|patroni', 'which the fleet knows');
in_time_ok(sub { ($answer = $db->sql($advice)) ne '' }, 'advice again');
my $recommended = $db->sql(q{SELECT recommended FROM pgscale.fleet_advice WHERE setting = 'max_wal_size'});
like($answer, qr/^node\|max_wal_size\|4MB\|patronictl edit-config --pg 'max_wal_size=\d+\w+' 'node'$/, 'with the command that takes it');
is(($db->try(q{SELECT pgscale.fleet_apply('node', 'max_wal_size')}))[0], '55000', 'it is not applied past Patroni');
is(slurp_file($file), $before, 'the file is as it was');
unlink $patroni;

$there->sql('SELECT pg_terminate_backend(' . $load->pid . ')');
$_->quit for $db, $there;
$_->stop for $asking, $node;
done_testing();
