# Advice of other nodes; and the command that applies it where Patroni manages the settings.
use strict;
use warnings;
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
$db->sql("SELECT pgscale.fleet_add('node', 'host=" . $node->host . ' port=' . $node->port . "')");
$db->sql(q{SELECT pgscale.fleet_add('dead', 'host=/nowhere')});
$db->sql(q{SET pgscale.fleet_timeout = '1min'});
# a page a row, and long ones: nearly all of the WAL is images of pages, which each checkpoint causes anew, since a record has only
# what differs between two versions of a row
$there->sql(q{CREATE TABLE t (i int, filler char(1900)) WITH (fillfactor = 30); INSERT INTO t SELECT i, '' FROM generate_series(1, 1000) i});
# Statements that end: a session counts its WAL in pg_stat_wal when it becomes idle.
my $script = $node->basedir . '/update.sql';
append_to_file($script, "UPDATE t SET i = i + 1;\n");
my $load = IPC::Run::start([ 'pgbench', '-n', '-c', 1, '-R', 40, '-T', 3600, '-f', $script, $node->connstr('postgres') ], '>&', \my $said);
END { $load->kill_kill if $load }

my $advice = q{SELECT node, setting, "current", patroni_command FROM pgscale.fleet_advice WHERE setting = 'max_wal_size'};
my $answer;
in_time_ok(sub { ($answer = $db->sql($advice)) ne '' }, 'advice of a node') or diag $there->sql('SELECT * FROM pgscale.advice_rules');
is($answer, 'node|max_wal_size|4MB|', 'says which one it is about');
is($db->sql(q{SELECT node, error IS NOT NULL FROM pgscale.fleet_advice WHERE rule IS NULL}), 'dead|t', 'beside one that does not answer');

### Patroni: its file, and cluster_name on the command line, as the tests' servers have it

is($there->sql('SELECT pgscale_internal.node_manager()'), '', 'nobody manages it');
my $patroni = $node->data_dir . '/patroni.dynamic.json';
append_to_file($patroni, '{}');
is($there->sql('SELECT pgscale_internal.node_manager()'), 'patroni', 'Patroni does');
is($db->sql(q{SELECT node, manager FROM pgscale.fleet WHERE manager IS NOT NULL}), 'node|patroni', 'which the fleet knows');
in_time_ok(sub { ($answer = $db->sql($advice)) ne '' }, 'advice again') or diag $there->sql('SELECT * FROM pgscale.advice_rules');
like($answer, qr/^node\|max_wal_size\|4MB\|patronictl edit-config --pg 'max_wal_size=\d+\w+' 'node'$/, 'with the command that takes it');

$load->kill_kill;
$_->quit for $db, $there;
$_->stop for $asking, $node;
done_testing();
