# The archive: what its rows have is what the profile has grown by, whatever becomes of that; the longest waits and the rest; whose way
# was blocked; counters, settings and texts; hours; partitions.
use strict;
use warnings;
use PgscaleTest;
use Test::More;

my $node = pgscale_node('main', conf => <<'EOC');
pgscale.archive_period = 1
pgscale.sampler_profile_size = 100
pgscale.sampler_blocker_threshold = 100ms
compute_query_id = on
EOC
my $db = session($node);
my $health = q{SELECT state FROM pgscale.health WHERE feature = 'archive'};

is($db->sql($health), 'off', 'off by default');
$db->set('pgscale.archive_database' => 'postgres');
$db->poll_ok($health, 'on, it works', 'working');

# Rows follow each other without a gap
$db->poll_ok('SELECT count(*) > 2 FROM pgscale.archive_minutes', 'rows');
is($db->sql(q{SELECT count(*) FROM (SELECT at, lag(at + make_interval(secs => period_s)) OVER (ORDER BY at) AS before
    FROM pgscale.archive_minutes) m WHERE abs(extract(epoch FROM at - before)) > 0.0001}), 0, 'which follow each other');
is($db->sql(q{SELECT count(*) FROM pgscale.archive_minutes WHERE period_s <= 0 OR rounds <> 1 OR node IS NULL OR origin IS NOT NULL
    OR observed_ms <= 0}), 0, 'of here');

# What was waited since the reset is in both. Rows are written while this looks, so it is not to the last sample.
my $archive = q{(SELECT sum(wait_ms) FROM pgscale.archive_waits WHERE at >= (SELECT max(at) FROM pgscale.archive_minutes WHERE observed_ms IS NULL))};
my $profile = q{(SELECT sum(wait_ms) FROM pgscale.wait_profile() WHERE NOT idle)};

sub reset_profile
{
    my $resets = 'SELECT count(*) FROM pgscale.archive_minutes WHERE observed_ms IS NULL';
    my $before = $db->sql($resets);

    $db->sql('SELECT pgscale.sampler_reset()');
    return $db->poll_ok($resets, 'a reset is seen', $before + 1);
}

sub same_ok
{
    my $name = shift;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return $db->poll_ok("SELECT $profile > 1 AND $archive - $profile BETWEEN -30 AND 1", $name) || diag $db->sql("SELECT $archive, $profile");
}
reset_profile();
my $sleeper = session($node);
$sleeper->sql('SET application_name = sleeper; SELECT pg_sleep(1.5)');
same_ok('what was slept');
is($db->sql(q{SELECT DISTINCT backend_type, datname, datid = (SELECT oid FROM pg_database WHERE datname = current_database()),
    usename = current_user, event_type, blocker FROM pgscale.archive_waits WHERE event = 'PgSleep'}), 'client backend|postgres|t|t|Timeout|',
    'whose it was');
$db->poll_ok(q{SELECT count(*) FROM pgscale.archive_queries WHERE query ~ 'pg_sleep'}, 'with its text', 1);
is($db->sql(q{SELECT max(active_sessions) > 0.1, max(active_sessions) < 2 FROM pgscale.archive_minutes}), 't|t', 'in active sessions');

# More queries than the profile has room for: what it folds is not archived twice
$sleeper->sql('SELECT pg_sleep(0.012)' . ', 1' x $_) for 1 .. 150;
cmp_ok($db->sql('SELECT evictions FROM pgscale.sampler_stats'), '>', 10, 'entries were folded');
same_ok('sums are whole');
$sleeper->sql('SELECT pg_sleep(0.1)');
same_ok('and stay so');

# Fewer than there are
$db->set('pgscale.archive_top' => 2);
my $since = $db->sql('SELECT clock_timestamp()');
my $most = "SELECT count(*) FROM pgscale.archive_waits WHERE at > '$since' GROUP BY at ORDER BY 1 DESC LIMIT 1";
$sleeper->sql('SELECT pg_sleep(0.05)' . ', 2' x $_) for 1 .. 50;
$db->poll_ok("SELECT count(*) > 0 FROM pgscale.archive_waits WHERE at > '$since' AND event = 'other' AND backend_type = 'other'", 'the rest is a row');
is($db->sql($most), 3, 'beside the longest');
$db->set('pgscale.archive_top' => 200);
$db->poll_ok("SELECT count(*) > 1 FROM pgscale.archive_minutes WHERE at > clock_timestamp() - interval '10 s'
    AND at > (SELECT max(at) FROM pgscale.archive_waits WHERE event = 'other')", 'all are told apart again');

# A reset in the middle
reset_profile();
$sleeper->sql('SELECT pg_sleep(0.5)');
same_ok('after a reset');
is($db->sql('SELECT count(*) FROM pgscale.archive_waits WHERE wait_ms <= 0'), 0, 'nothing is negative');
$db->sql(q{SELECT pg_stat_reset_shared('wal'), pg_stat_reset_shared('bgwriter')});
$db->poll_ok('SELECT count(*) > 0 FROM pgscale.archive_minutes WHERE wal_bytes IS NULL AND buffers_allocated IS NULL', 'so are counters');
is($db->sql('SELECT count(*) FROM pgscale.archive_minute, unnest(counters) c WHERE c < 0'), 0, 'no counter is negative');

# Each counter is what its name says
my $columns = $db->sql(q{SELECT count(*) FROM pg_attribute WHERE attrelid = 'pgscale.archive_minutes'::regclass AND attnum > 0});
is($db->sql('SELECT DISTINCT cardinality(counters) FROM pgscale.archive_minute'), $columns - 6, 'all counters have a column');
my $sums = 'sum(commits), sum(rows_inserted), sum(temp_files), sum(checkpoints_requested)';
my @before = split /\|/, $db->sql("SELECT $sums FROM pgscale.archive_minutes");
my $worker = session($node);
$worker->sql(q{CREATE TABLE t AS SELECT 1 AS i; SET work_mem = '64kB'});
$worker->sql('INSERT INTO t SELECT i FROM generate_series(1, 5000) i; SELECT count(*) FROM (SELECT i FROM generate_series(1, 100000) i ORDER BY -i) s; CHECKPOINT');
$worker->quit;
$db->poll_ok("SELECT sum(commits) >= $before[0] + 3 AND sum(rows_inserted) >= $before[1] + 5000 AND sum(temp_files) >= $before[2] + 1
    AND sum(checkpoints_requested) >= coalesce($before[3], 0) + 1 FROM pgscale.archive_minutes", 'counters grow by what was done');

# Who was in the way
my $root = session($node);
$root->sql('SET application_name = nightly; BEGIN; LOCK t');
my $pid = $root->pid;
$sleeper->start('SELECT count(*) FROM t');
$db->poll_ok("SELECT count(*) > 0 FROM pgscale.archive_waits WHERE event_type = 'Lock' AND blocker = '$pid nightly' AND wait_ms > 300", 'the root has a name');
$root->sql('COMMIT');
$sleeper->finish;
$root->quit;

# Settings, and what may be a secret
$db->set('work_mem' => '5MB');
$db->poll_ok(q{SELECT setting, old, new FROM pgscale.archive_changes WHERE setting = 'work_mem'}, 'a setting', 'work_mem|4096|5120');
$db->set('primary_conninfo' => 'password=tell_nobody');
$db->set('archive_cleanup_command' => 'tell_nobody');
$db->poll_ok(q{SELECT setting, old, new FROM pgscale.archive_changes WHERE setting IN ('primary_conninfo', 'archive_cleanup_command') ORDER BY 1},
    'those that are hidden', "archive_cleanup_command|(hidden)|(hidden)\nprimary_conninfo|(hidden)|(hidden)");
is($db->sql(q{SELECT (SELECT count(*) FROM pgscale.archive_setting s WHERE s::text ~ 'tell_nobody') +
    (SELECT count(*) FROM pgscale.archive_change s WHERE s::text ~ 'tell_nobody')}), 0, 'are nowhere');

# Only days that are asked for are locked
my $locks = q{SELECT count(*) FROM pg_locks l JOIN pg_inherits i ON i.inhrelid = l.relation WHERE l.pid = pg_backend_pid()
    AND inhparent = 'pgscale.archive_minute'::regclass};
my $day = $db->sql(q{SELECT (at AT TIME ZONE 'UTC')::date FROM pgscale.archive_minutes ORDER BY at LIMIT 1});
is($db->sql("BEGIN; SELECT count(*) > 0 FROM pgscale.archive_waits WHERE at >= '$day 00:00+00' AND at < '$day 24:00+00'; $locks; COMMIT"), "t\n1",
    'a reader locks one partition');

# Minutes become hours, and go
my $old = q{((clock_timestamp() AT TIME ZONE 'UTC')::date - 10)};
my $oldest = q{((clock_timestamp() AT TIME ZONE 'UTC')::date - 40)};
$db->sql("SELECT pgscale.archive_partition('archive_minute', $_), pgscale.archive_partition('archive_query', $_) FROM (SELECT 1) x") for $oldest;
$db->set('pgscale.archive_detail' => 20);
my $copy = <<'EOQ';
BEGIN;
SELECT pgscale.archive_partition('archive_minute', DAY);
INSERT INTO pgscale.archive_minute
SELECT (DAY + time '00:00') AT TIME ZONE 'UTC' + i * interval '1 min', 60, 1, 2, 'n', cluster, database,
       array_fill(1::float8, ARRAY[53]), '{client backend,client backend}', '{1,1}', '{d,d}', '{u,u}', '{a,a}', ARRAY[i % 5, NULL]::bigint[],
       '{IO,CPU}', '{DataFileRead,CPU}', '{NULL,NULL}', ARRAY[60000, 60000]::real[]
  FROM (SELECT * FROM pgscale.archive_minute LIMIT 1) m, generate_series(0, 179) i WHERE i NOT BETWEEN 70 AND 79;
COMMIT;
EOQ
$db->sql($copy =~ s/DAY/$old/gr);
my $of_day = "FROM pgscale.archive_minutes WHERE at < clock_timestamp() - interval '5 days'";
is($db->sql("SELECT count(*), sum(commits), sum(period_s) $of_day"), '170|170|10200', 'a day of minutes');
$db->set('pgscale.archive_top' => 3);
$db->set('pgscale.archive_detail' => 7);
$db->poll_ok("SELECT count(*), sum(commits), sum(period_s), sum(rounds), max(sessions) $of_day", 'becomes hours, with their gap', '4|170|10200|170|1');
is($db->sql("SELECT string_agg(concat(extract(minute FROM at), '+', period_s / 60), ' ' ORDER BY at) $of_day"), '0+60 0+10 20+40 0+60', 'which stays');
is($db->sql(q{SELECT sum(wait_ms) / 60000, count(*), count(*) FILTER (WHERE event = 'other') FROM pgscale.archive_waits
    WHERE at < clock_timestamp() - interval '5 days'}), '340|16|4', 'with all of their waits') or diag $db->sql(q{SELECT * FROM pgscale.archive_waits
    WHERE at < clock_timestamp() - interval '5 days'});
my $partitions = q{SELECT count(*) FROM pg_inherits WHERE inhparent IN ('pgscale.archive_minute'::regclass, 'pgscale.archive_query'::regclass)};
$db->poll_ok($partitions, 'what is too old is dropped', 5);
is($db->sql(q{SELECT count(*) FROM pg_inherits WHERE inhparent = 'pgscale.archive_minute'::regclass AND NOT EXISTS (SELECT FROM pg_depend d
    JOIN pg_extension e ON d.refobjid = e.oid WHERE d.objid = inhrelid AND extname = 'pgscale' AND deptype = 'e')}), 0, 'partitions are the extension\'s');

is($db->sql($health), 'working', 'it has worked all the time');
$db->set('pgscale.archive_database' => '');
$db->poll_ok($health, 'off', 'off');
$db->sql('DROP EXTENSION pgscale');
is($db->sql(q{SELECT count(*) FROM pg_class WHERE relname ~ '^archive_'}), 0, 'nothing of it stays');
done_testing();
