# Copies of an archive: on a standby and after its promotion, in a dump, in a database made of a template.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main', init => [ allows_streaming => 1 ], create => 0, conf => "pgscale.debug_period = 1s\n");
my $db = session($node);
my $state = q{SELECT state FROM pgscale.health WHERE feature = 'archive'};
my $overlaps = q{SELECT count(*) FROM (SELECT at, lag(at + make_interval(secs => period_s)) OVER (ORDER BY at) AS before
    FROM pgscale.archive_minutes) m WHERE at < before - interval '0.001 s'};

$db->sql('CREATE EXTENSION pgscale; CREATE DATABASE a');
my $in = session($node, dbname => 'a');
$in->sql('CREATE EXTENSION pgscale');
$db->set('pgscale.archive_database' => 'a');
$in->poll_ok('SELECT count(*) > 0 FROM pgscale.archive_minutes', 'an archive');

# A dump has the extension, and nothing of what is in it
my $dump = $node->basedir . '/dump.sql';
$node->command_ok([ 'pg_dump', '--file', $dump, 'a' ], 'pg_dump beside rounds');
unlike(slurp_file($dump), qr/archive_/, 'leaves the archive out');
$db->sql('CREATE DATABASE restored');
$node->command_ok([ 'psql', '-X', '--quiet', '-v', 'ON_ERROR_STOP=1', '-f', $dump, 'restored' ], 'and is restored');
my $restored = session($node, dbname => 'restored');
is($restored->sql(q{SELECT (SELECT count(*) FROM pgscale.archive_minutes), (SELECT count(*) FROM pg_inherits)}), '0|0', 'without rows and partitions');
$restored->quit;

# A copy by template has rows that say where they are from
$in->quit;
my ($copied, $text) = $db->try('CREATE DATABASE copy TEMPLATE a');
is($copied, '00000', 'a copy while rounds come and go') or diag $text;
my $copy = session($node, dbname => 'copy');
is($copy->sql(q{SELECT count(*) > 0, count(*) FILTER (WHERE origin = 'another database') = count(*) FROM pgscale.archive_minutes}), 't|t', 'they are of another database');
$copy->quit;

# A standby shows it and adds nothing. While it is made, rounds of the primary wait for a lock: rows end, and more than 5.5 periods are a gap.
$in = session($node, dbname => 'a');
my $before = $in->sql('SELECT count(*) FROM pgscale.archive_minutes');
$in->poll_ok("SELECT count(*) > $before FROM pgscale.archive_minutes", 'back again');
$in->sql('BEGIN; LOCK pgscale_internal.archive_minute IN EXCLUSIVE MODE');
my $ended = $in->sql('SELECT max(at + make_interval(secs => period_s)) FROM pgscale.archive_minutes');
my $standby = pgscale_standby($node);
until_true(sub { $in->sql("SELECT clock_timestamp() > '$ended'::timestamptz + interval '5.6 s'") eq 't' });
$in->sql('COMMIT');
$in->poll_ok("SELECT count(*) > 0 FROM pgscale.archive_minutes WHERE at > '$ended'", 'unlocked, it goes on');
is($in->sql("SELECT extract(epoch FROM min(at) - '$ended') > 5.5 FROM pgscale.archive_minutes WHERE at >= '$ended'"), 't', 'after a gap');
$in->quit;
my $there = session($standby, dbname => 'a');
my $rows = $there->sql('SELECT count(*) FROM pgscale.archive_minutes');
$there->poll_ok("SELECT count(*) > $rows FROM pgscale.archive_minutes", 'rows of the primary arrive');
my $on_standby = session($standby);
$on_standby->poll_ok(q{SELECT state, reason ~ 'standby' FROM pgscale.health WHERE feature = 'archive'}, 'the standby\'s own archive is idle', 'idle|t');
is($on_standby->sql(q{SELECT count(*) FROM pgscale_internal.past_archive() a WHERE a.minutes IS NOT NULL}), 0, 'and is not what happened there');
# the primary goes first, as in a failover
$db->quit;
$node->stop('immediate');
$standby->promote;
$on_standby->poll_ok($state, 'promoted, it works', 'working');
$before = $there->sql('SELECT count(*) FROM pgscale.archive_minutes');
$there->poll_ok("SELECT count(*) > $before FROM pgscale.archive_minutes", 'its rows follow');
is($there->sql($overlaps), 0, 'and no time is there twice');
cmp_ok($there->sql('SELECT count(DISTINCT node) FROM pgscale.archive_minutes'), '>=', 2, 'of two nodes');
is($there->sql('SELECT count(*) FROM pgscale.archive_minutes WHERE origin IS NOT NULL'), 0, 'of one database');
$standby->stop;
done_testing();
