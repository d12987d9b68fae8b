# The sampler on a hot standby, and through its promotion.
use strict;
use warnings;
use PgscaleTest;
use Test::More;

my $primary = pgscale_node('primary', init => [ allows_streaming => 1 ]);
my $on_primary = session($primary);
$on_primary->sql('CREATE TABLE t (i int)');
$on_primary->poll_ok('SELECT samples > 10 FROM pgscale.sampler_stats', 'the primary has a profile');
my $standby = pgscale_standby($primary);
my $db = session($standby);
my $sleeper = session($standby);

is($db->sql('SELECT pg_is_in_recovery()'), 't', 'a standby');
$db->poll_ok('SELECT ticks > 10 FROM pgscale.sampler_stats', 'its sampler ticks');
$db->poll_ok(q{SELECT state = 'working' FROM pgscale.health WHERE feature = 'sampler'}, 'and health says that it works');

$sleeper->start('SELECT pg_sleep(600)');
$db->poll_ok(q{SELECT count(*) FROM pgscale.wait_profile() WHERE event = 'PgSleep' AND queryid IS NOT NULL AND samples > 5},
    'it has a profile', 1);
$db->poll_ok(q{SELECT count(*) > 0 FROM pgscale.wait_profile() WHERE backend_type = 'startup' AND idle},
    'with the process that replays WAL');
$db->poll_ok(q{SELECT count(*) > 0 FROM pgscale.wait_history}, 'a history');
$db->poll_ok(q{SELECT count(*) > 0 FROM pgscale.top_waits() WHERE item = 'Timeout:PgSleep'}, 'and a past of its own');
is($db->sql(q{SELECT count(*) > 0 FROM pgscale.wait_timeline()}), 't', 'a timeline');
is($db->sql('SELECT event FROM pgscale.wait_current(' . $sleeper->pid . ')'), 'PgSleep', 'and what is waited for now');

# Replay that waits for a session of the standby: what a standby is asked about.
$db->sql('SELECT pgscale.sampler_reset()');
is($db->sql('SELECT count(*) FROM pgscale.wait_profile() WHERE datid = 1'), 0, 'a reset works there, too');
my $reader = session($standby);
$on_primary->sql(q{INSERT INTO t VALUES (1)});
until_ok(sub { $reader->sql('SELECT count(*) FROM t') eq '1' }, 'the standby follows');
$reader->sql('BEGIN; SELECT * FROM t');
$on_primary->sql('TRUNCATE t');
$db->poll_ok(q{SELECT sum(samples) > 5 FROM pgscale.wait_profile() WHERE backend_type = 'startup' AND event_type = 'Lock'},
    'replay that waits for a lock is seen');
$reader->quit;

# Promotion
my ($pid, $starts) = split /\|/, $db->sql('SELECT pid, starts FROM pgscale.sampler_stats');
my $samples = $db->sql('SELECT samples FROM pgscale.sampler_stats');
$primary->stop;
$standby->promote;
$db->poll_ok('SELECT NOT pg_is_in_recovery()', 'promoted');
my $ticks = $db->sql('SELECT ticks FROM pgscale.sampler_stats');
$db->poll_ok("SELECT ticks > $ticks FROM pgscale.sampler_stats", 'the sampler goes on');
is($db->sql('SELECT pid, starts FROM pgscale.sampler_stats'), "$pid|$starts", 'in the same process');
is($db->sql("SELECT samples > $samples FROM pgscale.sampler_stats"), 't', 'with what it had');
$db->poll_ok(q{SELECT state = 'working' FROM pgscale.health WHERE feature = 'sampler'}, 'and health says that it works');

$standby->stop;
done_testing();
