# What else lives in shared buffers, beside the sweeper at work: autoprewarm, the background writer, buffers of their own
# (VACUUM, COPY, scans), pins and those who wait for them, databases that go, a sweeper that is switched off. And fewer
# buffers than its policy needs.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'this server has no pg_buffercache' unless have_module('pg_buffercache');
my $prewarm = have_module('pg_prewarm');
my $node = pgscale_node('main', preload => 'pgscale' . ($prewarm ? ', pg_prewarm' : ''), conf => <<'EOC');
shared_buffers = 8MB
max_worker_processes = 40
checkpoint_timeout = 1h
synchronous_commit = off
bgwriter_delay = 10ms
bgwriter_lru_maxpages = 200
pgscale.sweeper = on
pgscale.sweeper_writers = 2
EOC
my $db = session($node);

# Until that many more pages have left, and sessions have taken buffers that the sweeper had made ready.
sub pages_leave
{
    my ($n, $name) = @_;
    my ($left, $consumed) = split /\|/,
        $db->sql('SELECT evictions, consumed FROM pgscale.replacement_stats, pgscale.sweeper_stats');
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return $db->poll_ok("SELECT evictions >= $left + $n AND consumed > $consumed FROM pgscale.replacement_stats, pgscale.sweeper_stats",
        $name) || !diag $db->sql('SELECT row_to_json(s) FROM pgscale.sweeper_stats s');
}

$db->sql('CREATE EXTENSION pg_buffercache');
$db->churn_table(20000);
$db->sql('CREATE TABLE pinned (i int, filler char(1000)); INSERT INTO pinned SELECT i, $$$$ FROM generate_series(1, 50) i');
$db->sql('CREATE TABLE copied (i int, filler char(400)); INSERT INTO copied SELECT i, i FROM generate_series(1, 12000) i');
my $dir = PostgreSQL::Test::Utils::tempdir();

my @churning = churn($node, 3);
$db->sweeps_on('beside a background writer that writes, it supplies and writes');

# A pin, and VACUUM that waits until it is the only one
my $holder = session($node);
my $vacuum = session($node);
# While an older snapshot may need what was updated, VACUUM leaves it, and has no need to wait.
my $updated = $db->sql('UPDATE pinned SET filler = filler WHERE i <= 50 RETURNING txid_current()') =~ s/\n.*//sr;
$db->poll_ok("SELECT count(*) FROM pg_stat_activity WHERE backend_xmin::text::bigint <= $updated",
    'no snapshot is older than an update', 0);
$holder->sql('BEGIN; DECLARE c CURSOR FOR SELECT * FROM pinned; FETCH c');
$vacuum->start('VACUUM (FREEZE) pinned');
# the event has another name from 19 on
my $waits = 'SELECT wait_event IN ($$BufferPin$$, $$BufferCleanup$$) FROM pg_stat_activity WHERE pid = ' . $vacuum->pid;
$db->poll_ok($waits, 'VACUUM waits for a pin');
pages_leave(2000, 'the sweep passes the page many times');
is($db->sql($waits), 't', 'and VACUUM waits as long as the pin is there');
is($db->sql(q{SELECT count(*) > 0 FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('pinned') AND relforknumber = 0
    AND pinning_backends > 0}), 't', 'the page that is pinned has not left');
$holder->sql('ROLLBACK');
is(($vacuum->finish)[0], '00000', 'then it goes on');
is($db->sql('SELECT count(*), count(DISTINCT i) FROM pinned'), '50|50', 'and the rows are there');
$_->quit for $holder, $vacuum;

# Buffers of their own: scans, COPY and VACUUM of tables larger than shared buffers or a quarter of them
my $rings = session($node);
for my $round (1 .. 2)
{
    is($rings->sql('SELECT count(*), sum(i) FROM copied'), '12000|72006000', 'a scan of a large table is right');
    $rings->sql("COPY copied TO '$dir/copied'");
    $rings->sql("BEGIN; TRUNCATE copied; COPY copied FROM '$dir/copied'; COMMIT");
    $rings->sql('DELETE FROM copied WHERE i % 2 = 0; VACUUM (FREEZE) copied');
    is($rings->sql('SELECT count(*), sum(i) FROM copied'), '6000|36000000', 'what COPY and VACUUM leave is right');
    $rings->sql('INSERT INTO copied SELECT i, i FROM generate_series(2, 12000, 2) i');
}
$rings->sql('VACUUM (FREEZE) churn');
$rings->quit;
pages_leave(500, 'it goes on');

# A database goes, under load of its own
$db->sql('CREATE DATABASE other');
my $there = session($node, dbname => 'other');
$there->sql('CREATE TABLE t AS SELECT i, repeat($$x$$, 500) AS filler FROM generate_series(1, 8000) i; CREATE INDEX ON t (i)');
$there->start('DO $$ BEGIN LOOP UPDATE t SET i = i WHERE i % 10 = 0; PERFORM count(*) FROM t; END LOOP; END $$');
pages_leave(500, 'its pages come and go');
is(($db->try('DROP DATABASE other (FORCE)'))[0], '00000', 'a database is dropped under its load');
$there->quit;
is($db->sql(q{SELECT count(*) FROM pg_buffercache WHERE reldatabase NOT IN (SELECT oid FROM pg_database) AND reldatabase <> 0}), 0,
    'none of its pages is left');

# Off, under load: back to the server's own sweep. Then the hand moves, and a page that is used all the time has the highest
# count.
my $reader = session($node);
$reader->start('DO $$ BEGIN WHILE EXISTS (SELECT FROM churn_on) LOOP PERFORM sum(i) FROM pinned; PERFORM pg_sleep(0.001); END LOOP; END $$');
$db->set('pgscale.sweeper', 'off');
until_ok(sub { $db->sweeper_pids == 0 }, 'switched off under load, its processes end');
my $ticks = $db->sql('SELECT ticks FROM pgscale.clock_sweep');
my $counts = $db->sql('SELECT scanned, written, evictions FROM pgscale.sweeper_stats, pgscale.replacement_stats');
$db->poll_ok("SELECT ticks >= $ticks + buffers FROM pgscale.clock_sweep", q{the server's hand goes round});
$db->poll_ok(q{SELECT min(usagecount) >= 4 FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('pinned') AND relforknumber = 0},
    'after a lap, counts are those of the uses')
  or diag $db->sql(q{SELECT string_agg(concat_ws(' ', pid, state, wait_event, query), E'\n') FROM pg_stat_activity WHERE query ~ 'pinned'}),
  $db->sql('SELECT count(*) FROM churn_on');
is($db->sql('SELECT scanned, written, evictions FROM pgscale.sweeper_stats, pgscale.replacement_stats'),
    $counts, 'it does nothing more');
$db->churn_end(@churning, $reader);
$db->churn_right('the data is right');
$db->set('pgscale.sweeper', 'on');
$db->poll_ok('SELECT state FROM pgscale.sweeper_stats', 'on again', 'working');
is($db->sql('SELECT errors FROM pgscale.sweeper_stats'), 0, 'without an error');

# autoprewarm stops where no buffer is free. So the sweeper waits for it, though it has a history to go on with.
SKIP:
{
    skip 'this server has no pg_prewarm', 8 unless $prewarm;
    # not all buffers have a page, or others than autoprewarm would take the last ones at the start
    $db->sql('CREATE EXTENSION pg_prewarm');
    $db->sql('SELECT pg_prewarm($$copied$$); DROP TABLE copied; SELECT pg_prewarm($$churn$$, last_block => 300)');
    until_ok(sub { ($db->try('SELECT autoprewarm_dump_now()'))[0] eq '00000' }, 'autoprewarm dumps');
    $db->quit;
    my $log = -s $node->logfile;
    $node->restart;
    my $loaded = qr/autoprewarm successfully prewarmed (\d+) of (\d+)/;
    until_ok(sub { substr(slurp_file($node->logfile), $log) =~ $loaded }, 'at the next start it loads');
    my ($pages, $of) = substr(slurp_file($node->logfile), $log) =~ $loaded;
    is($pages // 'none', $of // 'some', 'all of it');
    cmp_ok($pages // 0, '>', 300, 'which is much');
    $db = session($node);
    $db->poll_ok('SELECT restored > 0 FROM pgscale.replacement_stats', 'the sweeper has its history');
    $db->poll_ok('SELECT state, supplied_clean + supplied_written + written FROM pgscale.sweeper_stats',
        'and waits as long as buffers are free',
        'warming up|0');
    my @churning = churn($node, 2);
    pages_leave(500, 'and works under load');
    $db->churn_end(@churning);
    $db->churn_right('the data is right');
}

# 32 buffers
$node->append_conf('postgresql.conf',
    "shared_buffers = 256kB\nmax_connections = 10");
$db->quit;
$node->restart;
$db = session($node);
@churning = churn($node, 1);
my $n = $db->sql('SELECT sum(n) FROM churned');
$db->poll_ok("SELECT sum(n) > $n + 500 FROM churned", 'sessions find few buffers');
$db->churn_end(@churning);
is($db->sql('SELECT errors FROM pgscale.sweeper_stats'), 0, 'without an error');
$db->churn_right('the data is right');
$db->quit;
$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, 'nothing crashed');

done_testing();
