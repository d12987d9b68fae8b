# Online moves and the WAL that they read: at wal_level minimal, where some changes are in no WAL; beside checkpoints that remove
# segments all the time, none before it was read; and where segments are gone all the same.
use strict;
use warnings;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

### wal_level = minimal: what a transaction writes into a file that it has made is in no WAL

relocation_node(name => 'minimal', init => [], conf => "wal_level = minimal\nmax_wal_senders = 0\nfull_page_writes = off");
two_tables(2000);
my @tables = qw(t large skipped);
$db->sql('DELETE FROM large WHERE id % 3 = 0');
$db->sql('BEGIN; CREATE TABLE skipped (id int PRIMARY KEY, n int); INSERT INTO skipped SELECT i, i
    FROM generate_series(1, 5000) i; COMMIT');
my ($job) = copying(q{relocate_table('t', 'fast')});
$db->sql('BEGIN; TRUNCATE skipped; INSERT INTO skipped SELECT i, -i FROM generate_series(1, 5000) i; COMMIT');
$db->sql('UPDATE t SET n = n + 1, v = v || 1 WHERE id % 7 = 0');
reloaded('pgscale.relocation_rate');
done_ok('wal_level minimal', $job, map { ask("relocate_table('$_', 'fast')") } qw(large skipped));
done_ok('indexes', map { ask("relocate_indexes('$_', 'fast', mode => 'online')") } qw(t skipped));
my $rows = rows($db, @tables);
stopped(undef, 'immediate');
is(rows($db, @tables), $rows, 'after a crash the rows are the same');
is($db->sql('SET enable_seqscan = off; SELECT count(*), sum(n) FROM skipped WHERE id > 0'), '5000|-12502500', 'indexes find them');
strays_ok('wal_level minimal');
stop_ok();

### Checkpoints that remove segments: the first attempt succeeds

relocation_node(name => 'little', init => [ extra => [ '-k', '--wal-segsize=1' ], allows_streaming => 1 ],
    conf => "max_wal_size = 64MB\nmin_wal_size = 2MB\nwal_keep_size = 0\nwal_recycle = off");
my $other = session($node);
my $first = 'state, attempts';

sub copied
{
    my ($job, $part) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return job_ok($job, "finished_at IS NOT NULL OR copied_bytes > $part * size_bytes", 't', "$part of it is copied");
}

# Blocks of the whole table are marked at once: the first one that reads freshly inserted rows sets their hint bits, which
# checksums log; while it is copied, and while the move waits for its gap
my $sums = 'SELECT count(*), sum(id) FROM ';
for my $table ('copied', 'waits')
{
    my $holder;

    $db->sql("CREATE TABLE $table (id int, filler char(1000)); INSERT INTO $table SELECT i, '' FROM generate_series(1, 30000) i");
    if ($table eq 'copied')
    {
        # the WAL of it is not the table's own
        reloaded('pgscale.relocation_rate', '20MB');
        ($job) = ask(q{relocate_table('copied', 'fast')});
        copied($job, 0.8);
    }
    else
    {
        ($holder, $job) = held_online($table, 'fast', "BEGIN; LOCK $table IN ACCESS SHARE MODE");
    }
    is($other->sql("SELECT count(*) FROM $table"), 30000, "$table: all of it is read for the first time");
    reloaded('pgscale.relocation_rate');
    job_ok($job, 'finished_at IS NOT NULL OR recopied_blocks > 0 OR attempts > 1', 't', 'it is copied again') if $holder;
    $holder->quit if $holder;
    ended_ok($job, 'done|1|t', "$table: done, at the first attempt; most of its blocks were copied again",
        "$first, recopied_blocks > 700");
    is($db->sql($sums . $table), '30000|450015000', 'with all rows');
}

# Segments that end early, in each phase
$db->sql(q{CREATE TABLE switched (id int PRIMARY KEY, n int, filler char(500)); INSERT INTO switched SELECT i, 0, ''
    FROM generate_series(1, 8000) i;
    VACUUM switched});
reloaded('pgscale.relocation_rate', '2MB');
($job) = ask(q{relocate_table('switched', 'fast')});
for my $n (1 .. 4)
{
    copied($job, $n / 5);
    $db->sql("UPDATE switched SET n = n + 1 WHERE id % 7 = $n; SELECT pg_switch_wal()");
}
reloaded('pgscale.relocation_rate');
ended_ok($job, 'done|1', 'WAL is switched four times', $first);
my $changed = $db->sql('SELECT count(*) FROM switched WHERE id % 7 BETWEEN 1 AND 4');
is($db->sql('SELECT sum(n) FROM switched'), $changed, 'with all changes');
(my $holder, $job) = held_online('switched', 'other', 'BEGIN; LOCK switched IN ACCESS SHARE MODE');
$db->sql("UPDATE switched SET n = n + 1 WHERE id = $_; SELECT pg_switch_wal()") for 1 .. 4;
$holder->quit;
ended_ok($job, 'done|1', 'and while it waits', $first);
is($db->sql('SELECT sum(n) FROM switched'), $changed + 4, 'with all changes');
unlike(slurp_file($node->logfile), qr/could not read the WAL|has already been removed/, 'no WAL was missed');

### WAL that is gone all the same

two_tables(10);
($job, my $worker) = copying(q{relocate_table('t', 'fast')});
$rows = rows($db, 't');
my $segment = $db->sql('SELECT pg_walfile_name(pg_current_wal_lsn())');
kill 'STOP', $worker;
until_ok(sub { process_state($worker) eq 'T' }, 'the worker is stopped');
$db->sql('CREATE TABLE filler AS SELECT i, repeat($$x$$, 500) FROM generate_series(1, 10000) i; DROP TABLE filler; CHECKPOINT;
    SELECT pg_switch_wal(); CHECKPOINT');
ok(!-e $node->data_dir . "/pg_wal/$segment", 'what it has still to read is gone');
kill 'CONT', $worker;
reloaded('pgscale.relocation_rate');
ended_ok($job, 'done|2', 'the job is done all the same, at the second attempt', $first);
is(rows($db, 't'), $rows, 'the rows are the same');
like(slurp_file($node->logfile),
    qr/relocation job $job: (?:could not read the WAL|the server has recycled WAL that the move had not read yet)/,
    'the log has the reason');
strays_ok('at the end');
$other->quit;
stop_ok();
done_testing();
