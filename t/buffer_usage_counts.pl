# What shared buffers hold, compared with what is known of them: under load, and without preload.
# Runs on each major.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $conf = <<'EOC';
shared_buffers = 8MB
allow_in_place_tablespaces = on
checkpoint_timeout = 1h
bgwriter_delay = 10ms
max_parallel_workers_per_gather = 0
enable_seqscan = off
EOC
my $node = pgscale_node('main', conf => $conf, init => [ allows_streaming => 1 ]);
my $db = session($node);
my $buffers = 1024;

# One row a page, so that any number of pages can be read; not by a sequential scan, which has buffers of its own.
# INSERT adds no more pages than it needs, which CREATE TABLE AS may.
$db->sql('CREATE TABLE pages (i int, filler text) WITH (fillfactor = 10)');
$db->sql(q{INSERT INTO pages SELECT i, repeat('x', 1000) FROM generate_series(0, 2999) i});
$db->sql('VACUUM (FREEZE) pages');
is($db->sql('SELECT pg_relation_size($$pages$$) / 8192'), 3000, 'a table of 3000 pages');

sub pages_of
{
    my ($session, $from, $to, $times) = @_;

    $session->sql("SELECT count(*) FROM pages WHERE ctid >= '($from,0)' AND ctid < '($to,0)'") for 1 .. $times // 1;
    return;
}

sub sweep_diag { return diag $db->sql('SELECT row_to_json(c) FROM pgscale.clock_sweep c'); }

sub reason_ok
{
    my ($pattern, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return $db->poll_ok("SELECT reason ~ '$pattern' FROM pgscale.clock_sweep", $name) || sweep_diag();
}

# The clock sweep after a start. Whoever asks first sets the base.
$db->quit;
$node->restart;
$db = session($node);
is($db->sql(q{SELECT ticks, allocations, ticks_per_allocation IS NULL, pass_s IS NULL, reason ~ 'ask again'
    FROM pgscale.clock_sweep}), '0|0|t|t|t', 'the first one to ask gets no rates, and is told to ask again');
reason_ok('^nothing has to leave yet: [0-9.]+ % of the buffers hold no page', 'there are free buffers');

# Counts, compared with the server's own, while another session looks all the time
my $looker = session($node);
my $hand = 'passes * buffers + hand';
my $counts = "SELECT $hand, pg_stat_get_buf_alloc() FROM pgscale.clock_sweep";
$db->sql("SELECT pgscale.reset('buffer_usage'); $counts");    # this time it may read catalogs
# At most all buffers hold a page that is read, so at least the others have to be brought in.
my $least = 3000 - $buffers;
my ($hand_before, $allocated) = split /\|/, $db->sql($counts);
$db->sql('SELECT pgscale.reset($$buffer_usage$$)');
my ($hand_after) = split /\|/, $db->sql($counts);
for my $chunk (0 .. 29)
{
    pages_of($db, 100 * $chunk, 100 * $chunk + 100);
    $looker->sql('SELECT reason FROM pgscale.clock_sweep');
}
$db->poll_ok("SELECT pg_stat_get_buf_alloc() >= $allocated + $least", 'bgwriter still counts all allocations');
is($db->sql("SELECT ticks BETWEEN $hand - $hand_after AND $hand - $hand_before AND ticks >= $least FROM pgscale.clock_sweep"), 't',
    'ticks are how far the hand has come');
$db->poll_ok("SELECT allocations >= $least FROM pgscale.clock_sweep", 'allocations are counted');
is($db->sql(q{SELECT ticks_per_allocation = ticks::float8 / allocations, pass_s > 0, unused_fraction,
        abs(expected_search - (buffers + 1) / (zero_fraction * buffers + 1)) < 0.01 * expected_search
    FROM pgscale_internal.clock_sweep()}), 't|t|0|t',
    'rates are of them, and the search is as long as the number of unused ones says')
  or sweep_diag();

# What it finds
until_ok(sub {
    pages_of($db, 0, 3000);
    $db->sql(q{SELECT reason ~ '^replacement is in order of arrival: [0-9.]+ %' FROM pgscale.clock_sweep}) eq 't';
}, 'pages used once: in order of arrival') or sweep_diag();
my $reason = 'SELECT reason, max_fraction > 0.7 FROM pgscale.clock_sweep';
for (my $warm = 300; $warm < 700 && $db->sql($reason) !~ /^replacement is choosing: /; $warm += 50)
{
    pages_of($db, 0, $warm, 7);
    pages_of($db, 1000, 1200);
}
reason_ok('^replacement is choosing: ', 'some used often, some once: choosing');
for (my $hot = 700; $hot < 1024 && $db->sql($reason) !~ /close to random.*\|t/; $hot += 3)
{
    pages_of($db, 0, $hot, 7);
}
reason_ok('^replacement is close to random, and expensive: [0-9.]+ % .* costs about [0-9]{3,} ticks', 'all used often: random');
# A search takes all counts down, so they are filled up again before each look.
until_ok(sub {
    pages_of($db, 0, 900, 7);
    return $db->sql(q{SELECT max_fraction > 0.7 AND bool_and(abs(u.fraction - v.fraction) < 0.02)
        FROM pgscale_internal.clock_sweep(),
             LATERAL (VALUES (0, zero_fraction), (5, max_fraction), (NULL, unused_fraction)) v (usage_count, fraction)
        JOIN pgscale_internal.buffer_usage() u ON u.usage_count IS NOT DISTINCT FROM v.usage_count GROUP BY max_fraction}) eq 't';
}, 'most are at the maximum, and shares are those of the counts') or sweep_diag();
# Whoever looks a catalog up just then needs a buffer for it.
until_ok(sub {
    $db->sql('SELECT pgscale.reset($$buffer_usage$$)');
    $db->sql(q{SELECT reason ~ '^nothing had to leave' FROM pgscale.clock_sweep}) eq 't';
}, 'no allocation since: nothing had to leave') or sweep_diag();

# A reset of the server's statistics sets a new base; one who has older statistics in a transaction does not.
my ($since) = $db->sql('SELECT stats_reset FROM pgscale.clock_sweep');
pages_of($db, 2000, 2500);
$db->poll_ok('SELECT allocations > 0 FROM pgscale.clock_sweep', 'allocations');
$looker->sql('BEGIN; SELECT pg_stat_get_buf_alloc()');
$db->sql(q{SELECT pg_stat_reset_shared('bgwriter')});
is($db->sql(qq{SELECT stats_reset > '$since', ticks, allocations, reason ~ 'ask again' FROM pgscale.clock_sweep}), 't|0|0|t',
    'the statistics were reset: counting begins anew');
$since = $db->sql('SELECT stats_reset FROM pgscale.clock_sweep');
is($looker->sql(qq{SELECT stats_reset = '$since', allocations FROM pgscale.clock_sweep}), 't|0',
    'not for a transaction that does not know of it');
is($db->sql(qq{SELECT stats_reset = '$since' FROM pgscale.clock_sweep}), 't', 'which changes nothing');
$looker->sql('SELECT pgscale.reset($$buffer_usage$$); COMMIT');
is($db->sql(qq{SELECT stats_reset > '$since', ticks >= 0, allocations >= 0 FROM pgscale.clock_sweep}), 't|t|t', 'a reset does');

# Relations: of other databases and tablespaces, dropped, locked, or with a number that a temporary one has, too
$db->sql(q{CREATE TABLESPACE elsewhere LOCATION ''});
$db->sql('CREATE DATABASE other');
my $other = session($node, dbname => 'other');
$other->sql('CREATE TABLE theirs (i int); INSERT INTO theirs SELECT generate_series(1, 1000)');
my ($oid, $theirs) =
  split /\|/, $other->sql(q{SELECT oid, pg_relation_filenode('theirs') FROM pg_database WHERE datname = 'other'});
my $row = qq{SELECT relation, fork, buffers, cached_fraction FROM pgscale.relation_buffers
    WHERE datid = $oid AND relfilenode = $theirs AND fork = 'main'};
is($db->sql($row), '|main|5|1', q{another database's relation is a number});
$other->sql('CREATE EXTENSION pgscale');
is($other->sql($row), 'theirs|main|5|1', 'and has a name there');
is($db->sql(qq{SELECT count(*) > 0, count(relation) FROM pgscale.relation_buffers WHERE datid = $oid}), 't|0',
    'none of them is taken for one of this database');
is($db->sql(q{SELECT count(*) FROM pgscale.relation_buffers r WHERE relation IS NOT NULL AND fork = 'main'
    AND pg_relation_filepath(relation) <> CASE WHEN datid = 0 THEN 'global/' || relfilenode
    WHEN reltablespace = 1663 THEN format('base/%s/%s', datid, relfilenode) END}), 0, 'files are those of their relations');
$other->quit;

$db->sql('CREATE TABLE away (i int) TABLESPACE elsewhere; INSERT INTO away SELECT generate_series(1, 1000)');
is($db->sql(q{SELECT relation, t.spcname, buffers, cached_fraction FROM pgscale.relation_buffers
    JOIN pg_tablespace t ON t.oid = reltablespace WHERE relation = 'away'::regclass AND fork = 'main'}), 'away|elsewhere|5|1',
    'a relation in another tablespace');
is($db->sql(q{BEGIN; SET LOCAL allow_system_table_mods = on; CREATE TEMP TABLE impostor (i int);
    UPDATE pg_class SET relfilenode = pg_relation_filenode('away'),
        reltablespace = (SELECT oid FROM pg_tablespace WHERE spcname = 'elsewhere') WHERE relname = 'impostor';
    SELECT relation FROM pgscale.relation_buffers WHERE relfilenode = pg_relation_filenode('away') AND fork = 'main'}), 'away',
    'not taken for a temporary one of that number');
$db->sql('ROLLBACK');

# Of more than one segment: made of holes, whose pages are valid, and empty
$db->sql('CREATE TABLE holes (i int)');
my $file = $node->data_dir . '/' . $db->sql(q{SELECT pg_relation_filepath('holes')});
truncate $file, 2**30 or die "$file: $!";
open my $second, '>', "$file.1" or die "$file.1: $!";
truncate $second, 8192 * 10;
close $second;
$db->sql(qq{SELECT FROM holes WHERE ctid = '($_,1)'}) for 5, 131072 + 5;
is($db->sql(q{SELECT buffers, abs(cached_fraction * (131072 + 10) - 2) < 1e-9 FROM pgscale_internal.relation_buffers()
    WHERE relation = 'holes'::regclass}), '2|t', 'a table of two segments');
$db->sql('DROP TABLE holes');

# A page that cannot be read is none, though its buffer knows which one it was to be.
$db->sql('CREATE TABLE broken (i int)');
$file = $node->data_dir . '/' . $db->sql(q{SELECT pg_relation_filepath('broken')});
open my $broken, '>', $file or die "$file: $!";
print $broken 'x' x 8192;
close $broken;
is(($db->try('SELECT FROM broken WHERE ctid = $$(0,1)$$'))[0], 'XX001', 'a page that cannot be read');
is($db->sql(q{SELECT count(*) FROM pgscale.relation_buffers WHERE relation = 'broken'::regclass}), 0, 'is not in shared buffers');

my $of_away = q{SELECT relation, buffers FROM pgscale.relation_buffers WHERE relation = 'away'::regclass AND fork = 'main'};
my $locker = session($node);
# the cursor keeps a page of it
$locker->sql('BEGIN; DECLARE here CURSOR FOR SELECT FROM pages; FETCH here');
$locker->sql('LOCK TABLE pages IN ACCESS EXCLUSIVE MODE; TRUNCATE away');
$db->sql(q{SET lock_timeout = '1s'});
is(($db->try('SELECT FROM pages LIMIT 1'))[0], '55P03', 'tables that are locked');
is(join('|', $db->try("SELECT relation, buffers > 0 FROM pgscale.relation_buffers WHERE relation = 'pages'::regclass
    AND fork = 'main'")), '00000|pages|t', 'keep no session from looking');
is($db->sql($of_away), 'away|5', 'one truncated by a transaction that has not ended is there');
$locker->sql('COMMIT');
is($db->sql($of_away), '', 'and then it is gone');
$locker->quit;

# Pins, and all of it against pg_buffercache
my $pinned = 'SELECT sum(pinned) FROM pgscale.buffer_usage()';
$db->poll_ok($pinned, 'no buffer is pinned', 0);
$looker->sql('BEGIN; DECLARE c CURSOR FOR SELECT FROM pages; FETCH c');
cmp_ok($db->sql($pinned), '>', 0, 'a cursor pins a buffer');
SKIP:
{
    skip 'this server has no pg_buffercache', 3 unless have_module('pg_buffercache');

    $db->sql('CREATE EXTENSION pg_buffercache');
    $db->sql('UPDATE pages SET i = i WHERE i < 20');
    $db->poll_ok(q{SELECT count(*) FROM pgscale.buffer_usage() u FULL JOIN (
        SELECT usagecount, count(*) AS buffers, count(*) FILTER (WHERE isdirty) AS dirty,
               count(*) FILTER (WHERE pinning_backends > 0) AS pinned
          FROM pg_buffercache GROUP BY 1) b ON coalesce(u.usage_count, -1) = coalesce(b.usagecount, -1)
        WHERE (u.buffers, u.dirty, u.pinned)
          IS DISTINCT FROM (coalesce(b.buffers, 0), coalesce(b.dirty, 0), coalesce(b.pinned, 0))},
        'buffer_usage agrees with pg_buffercache', 0);
    $db->poll_ok(q{SELECT count(*) FROM pgscale_internal.relation_buffers() r FULL JOIN (
        SELECT reldatabase, reltablespace, relfilenode, relforknumber, count(*) AS buffers,
               count(*) FILTER (WHERE isdirty) AS dirty, avg(usagecount) AS mean_usage
          FROM pg_buffercache WHERE relfilenode IS NOT NULL GROUP BY 1, 2, 3, 4) b
          ON r.datid = b.reldatabase AND r.relfilenode = b.relfilenode AND r.reltablespace = b.reltablespace
         AND r.fork = (ARRAY['main', 'fsm', 'vm', 'init'])[relforknumber + 1]
        WHERE (r.buffers, r.dirty) IS DISTINCT FROM (b.buffers, b.dirty) OR abs(r.mean_usage - b.mean_usage) > 1e-9},
        'relation_buffers does', 0);
    # The page that the cursor is on is one of those, and bgwriter does not write what is pinned.
    is($db->sql(q{SELECT sum(dirty) > 0, count(DISTINCT fork) >= 3 FROM pgscale.relation_buffers}), 't|t', 'in what was there');
}
$looker->sql('COMMIT');
$db->sql('DROP TABLE broken');

# A sample's interval holds the truth 19 times of 20: of 200 times, less than 176 would be one chance in 100,000.
pages_of($db, 0, 100, 2);
pages_of($db, 100, 300, 4);
pages_of($db, 1000, 1300);
is($db->sql(q{
    WITH truth AS MATERIALIZED (SELECT usage_count, fraction FROM pgscale_internal.buffer_usage()),
         sample AS MATERIALIZED (SELECT s.* FROM generate_series(1, 200) i, LATERAL pgscale_internal.buffer_usage_sample(2000 + 0 * i) s)
    SELECT count(*) FILTER (WHERE held < 176), count(*) >= 2, bool_or(held < 200), bool_and(abs(mean - fraction) < 0.01)
      FROM (SELECT t.usage_count, t.fraction, count(*) FILTER (WHERE t.fraction BETWEEN s.fraction_low AND s.fraction_high) AS held,
                   avg(s.fraction) AS mean
              FROM truth t JOIN sample s ON t.usage_count = s.usage_count WHERE t.fraction > 0.02 GROUP BY 1, 2) c}),
    '0|t|t|t', q{a sample's intervals hold the truth, and no more often than they ought to});

# Under load, with relations that come and go
$db->churn_table(20000);
my @churning = churn($node, 3);
$looker->sql(<<'EOQ');
CREATE TABLE come_on AS SELECT;
CREATE PROCEDURE come_and_go() LANGUAGE plpgsql AS $$
BEGIN
    WHILE EXISTS (SELECT FROM come_on) LOOP
        CREATE TABLE gone AS SELECT i FROM generate_series(1, 2000) i;
        COMMIT;
        DROP TABLE gone;
        COMMIT;
    END LOOP;
END $$
EOQ
$looker->start('CALL come_and_go()');
# Those of dropped relations are taken first from a freelist, and else when the hand comes by.
my $most = server_major() < 19 ? 0.9 : 0.6;
my %wrong = (
    'all buffers, whatever happens' => "SELECT sum(buffers) = $buffers FROM pgscale.buffer_usage()",
    'no more of relations than there are, and most of them' =>
      "SELECT sum(buffers) BETWEEN $most * $buffers AND 1.01 * $buffers FROM pgscale.relation_buffers",
    'no page of a relation that never was' => q{SELECT NOT EXISTS (SELECT FROM pgscale.relation_buffers r
        WHERE NOT EXISTS (SELECT FROM pg_database d WHERE r.datid IN (d.oid, 0))
           OR NOT EXISTS (SELECT FROM pg_tablespace t WHERE r.reltablespace = t.oid)
           OR r.cached_fraction NOT BETWEEN 0 AND 1 OR r.mean_usage NOT BETWEEN 0 AND 5 OR r.dirty > r.buffers)},
    'a reason' => 'SELECT length(reason) > 20 AND ticks >= 0 FROM pgscale.clock_sweep');
my %failed;
for my $round (1 .. ($ENV{PGSCALE_TEST_FULL} ? 300 : 30))
{
    for my $name (keys %wrong)
    {
        my ($state, $text) = $db->try($wrong{$name});
        $failed{$name} //= "$state: $text" if $state ne '00000' || $text ne 't';
    }
}
is($failed{$_}, undef, "under load: $_") for sort keys %wrong;
$db->churn_end(@churning);
$db->sql('DELETE FROM come_on');
is(($looker->finish)[0], '00000', 'nor did it hold up the others');

# Without preload
$_->quit for $db, $looker;
$node->append_conf('postgresql.conf', q{shared_preload_libraries = ''});
$node->restart;
$db = session($node);
pages_of($db, 0, 500);
is($db->sql('SELECT sum(buffers) FROM pgscale.buffer_usage()'), $buffers, 'without preload: buffer_usage');
is($db->sql('SELECT count(*) FROM pgscale.buffer_usage(100)'), 7, 'a sample of it');
is($db->sql("SELECT buffers FROM pgscale.relation_buffers WHERE relation = 'pages'::regclass AND fork = 'main'"), 500,
    'relation_buffers');
is($db->sql(q{SELECT buffers, stats_reset, ticks, allocations, ticks_per_allocation, pass_s,
    unused_fraction > 0 AND expected_search >= 1, reason ~ '^nothing has to leave yet' FROM pgscale.clock_sweep}),
    "$buffers||||||t|t", 'clock_sweep, without rates');
pages_of($db, 0, 3000);
is($db->sql(q{SELECT passes > 0 AND hand BETWEEN 0 AND buffers - 1, reason ~ '^replacement is in order of arrival'
    FROM pgscale.clock_sweep}), 't|t', 'but with a reason');
is($db->sql(q{SELECT enabled, state, reason, action FROM pgscale.health WHERE feature = 'buffer_usage'}),
    't|idle|pgscale is not loaded into the server: clock_sweep has no rates; all else works'
      . '|add pgscale to shared_preload_libraries and restart', 'health says what is missing');
$db->quit;
$node->stop;

done_testing();
