# Live moves and the WAL that they read: at each wal_level, beside a logical slot, with segments that are removed before they are read;
# and what has become impossible while a job was queued.
use strict;
use warnings;
use PgscaleLive;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my @tables = qw(t sparse);
my $objects = <<'EOQ';
CREATE TABLE t (id int PRIMARY KEY, n int, v text);
ALTER TABLE t ALTER v SET STORAGE EXTERNAL;
INSERT INTO t SELECT i, i, repeat(md5(i::text), 70) FROM generate_series(1, 500) i;
CREATE TABLE sparse (id int, n int);
INSERT INTO sparse SELECT i, i FROM generate_series(1, 20000) i;
DELETE FROM sparse WHERE id % 3 = 0;
EOQ

sub slow
{
    my $rate = shift() ? '200kB' : '0';

    $db->set('pgscale.relocation_rate', $rate);
    until_true(sub { $db->sql('SHOW pgscale.relocation_rate') eq $rate }) or die "the rate is not $rate";
    return;
}

sub copying
{
    my ($table, $to) = @_;

    slow(1);
    my ($job) = ask("relocate_table('$table', '$to')");
    job_ok($job, 'state, phase, copied_bytes > 0', 'running|copying|t', 'a copy is under way');
    return $job;
}

### wal_level = minimal: what a transaction writes into a file that it has made is in no WAL

relocation_node(name => 'minimal', init => [], conf => "autovacuum = off\nwal_level = minimal\nmax_wal_senders = 0\nfull_page_writes = off");
$db->sql($objects);
$db->sql('BEGIN; CREATE TABLE skipped (id int PRIMARY KEY, n int); INSERT INTO skipped SELECT i, i FROM generate_series(1, 5000) i; COMMIT');
my $job = copying('t', 'fast');
$db->sql('BEGIN; TRUNCATE skipped; INSERT INTO skipped SELECT i, -i FROM generate_series(1, 5000) i; COMMIT');
$db->sql('UPDATE t SET n = n + 1, v = v || 1 WHERE id % 7 = 0');
slow(0);
done_ok('wal_level minimal', $job, map { ask("relocate_table('$_', 'fast')") } qw(sparse skipped));
done_ok('indexes', map { ask("relocate_indexes('$_', 'fast', mode => 'copy')") } qw(t skipped));
my $rows = rows($db, @tables, 'skipped');
$db->quit;
$node->stop('immediate');
$node->start;
$db = session($node);
is(rows($db, @tables, 'skipped'), $rows, 'after a crash the rows are the same');
is($db->sql('SET enable_seqscan = off; SELECT count(*), sum(n) FROM skipped WHERE id > 0'), '5000|-12502500', 'indexes find them');
strays_ok('no file is left');
$db->quit;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, 'nothing crashed by itself');
$node->stop;

### WAL that is gone

relocation_node(name => 'little', init => [ extra => ['--wal-segsize=1'] ], conf => "autovacuum = off\nwal_level = replica\nmax_wal_size = 2MB\nmin_wal_size = 2MB\nwal_keep_size = 0\nwal_recycle = off");
$db->sql($objects);
$job = copying('t', 'fast');
my $worker = $db->sql("SELECT pid FROM pgscale_internal.relocation_job WHERE job = $job");
$rows = rows($db, @tables);
my $first = $db->sql('SELECT pg_walfile_name(pg_current_wal_lsn())');
kill 'STOP', $worker;
until_ok(sub { process_state($worker) eq 'T' }, 'the worker is stopped');
$db->sql('CREATE TABLE filler AS SELECT i, repeat($$x$$, 500) FROM generate_series(1, 10000) i; DROP TABLE filler; CHECKPOINT; SELECT pg_switch_wal(); CHECKPOINT');
ok(!-e $node->data_dir . "/pg_wal/$first", 'what it has still to read is gone');
kill 'CONT', $worker;
slow(0);
is(ended($job), 'done', 'the job is done all the same');
is($db->sql("SELECT attempts FROM pgscale.relocation_jobs WHERE job = $job"), 2, 'at the second attempt');
is(rows($db, @tables), $rows, 'the rows are the same');
strays_ok('no file is left');
like(slurp_file($node->logfile), qr/relocation job $job: (?:could not read the WAL|the server has recycled WAL that the move had not read yet)/, 'the log has the reason');

# A job that was possible when it was asked for
$db->sql('CREATE ROLE mover; GRANT CREATE ON SCHEMA public TO mover; GRANT CREATE ON TABLESPACE fast, other TO mover; GRANT USAGE ON SCHEMA pgscale, pgscale_internal TO mover;
    GRANT EXECUTE ON FUNCTION pgscale.relocate_table(regclass, name, text, interval, boolean) TO mover; ALTER TABLE sparse OWNER TO mover');
launching('off');
$db->sql('SET ROLE mover');
($job) = ask(q{relocate_table('sparse', 'fast')});
is(($db->try(q{SELECT pgscale.relocate_table('t', 'other')}))[0], '42501', 'a table of another role is refused');
$db->sql('RESET ROLE; ALTER TABLE sparse OWNER TO CURRENT_USER');
launching('on');
is(ended($job), 'failed', 'the table belongs to another role by now');
is($db->sql("SELECT sqlstate, message FROM pgscale.relocation_jobs WHERE job = $job"), '42501|must be owner of table "sparse"', 'which is said');
is(place('sparse'), 'pg_default', 'it has not moved');
my ($folder) = glob($node->data_dir . '/pg_tblspc/' . $db->sql(q{SELECT oid FROM pg_tablespace WHERE spcname = 'other'}) . '/PG_*');
rename $folder, "$folder.away" or die $!;
my ($state, $text) = $db->try(q{SELECT pgscale.relocate_table('t', 'other')});
is($state, '58P01', 'a tablespace whose folder is missing is refused');
like($text, qr/HINT: .*Is its disk mounted/, 'with a hint');
rename "$folder.away", $folder or die $!;
$db->quit;
$node->stop;

### A logical slot

SKIP:
{
    skip 'this server has no test_decoding', 5 unless have_module('test_decoding');

    relocation_node(name => 'logical', init => [ allows_streaming => 'logical' ], conf => 'autovacuum = off');
    $db->sql($objects);
    $db->sql(q{SELECT pg_create_logical_replication_slot('s', 'test_decoding')});
    my $n = 1000;
    my $write = sub { $db->sql("INSERT INTO t VALUES ($_, 0, repeat('y', 3000)); UPDATE t SET n = n + 1 WHERE id = $_; DELETE FROM t WHERE id = $_") for $n .. $n + 9; $n += 10; };
    my @jobs;
    for my $to ('fast', 'other', 'fast')
    {
        $write->();
        push @jobs, copying('t', $to);
        $write->();
        slow(0);
        done_ok("to $to", $jobs[-1]);
        push @jobs, ask("relocate_indexes('t', '$to', mode => 'copy')");
        $write->();
        done_ok('its indexes', $jobs[-1]);
    }
    is($db->sql(q{SELECT count(*), count(DISTINCT substring(data FROM 'id\[integer\]:(\d+)')), string_agg(DISTINCT kind, ' '), max(count)
        FROM (SELECT data, substring(data FROM ': ([A-Z]+):') AS kind, count(*) OVER (PARTITION BY substring(data FROM ': ([A-Z]+):'), substring(data FROM 'id\[integer\]:(\d+)'))
                FROM pg_logical_slot_get_changes('s', NULL, NULL) WHERE data LIKE 'table public.t:%') c}),
        3 * ($n - 1000) . '|' . ($n - 1000) . '|DELETE INSERT UPDATE|1', 'a logical slot has each change once');
    strays_ok('no file is left');
    $db->quit;
    $node->stop;
}

done_testing();
