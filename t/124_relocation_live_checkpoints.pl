# Live moves whose own WAL, and that of others, makes the server take checkpoints and remove segments all the time: none is removed before it
# was read, so the first attempt succeeds.
use strict;
use warnings;
use PgscaleLive;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

relocation_node(init => [ extra => [ '-k', '--wal-segsize=1' ], allows_streaming => 1 ], conf => <<'EOC');
autovacuum = off
pgscale.sweeper = off
max_wal_size = 128MB
min_wal_size = 2MB
wal_keep_size = 0
wal_recycle = off
pgscale.relocation_max_transaction_age = -1
EOC

sub slow
{
    my $rate = shift;

    $db->set('pgscale.relocation_rate', $rate);
    until_true(sub { $db->sql('SHOW pgscale.relocation_rate') eq $rate }) or die "the rate is not $rate";
    return;
}

### Blocks of the whole table are marked at once: the first one that reads freshly inserted rows sets their hint bits, which checksums log

my $other = session($node);
my $copied = sub { my ($job, $part) = @_; return $db->poll_ok("SELECT finished_at IS NOT NULL OR copied_bytes > $part * size_bytes FROM pgscale.relocation_jobs WHERE job = $job", "$part of it is copied"); };
$db->sql(q{CREATE TABLE fresh (id int, filler char(1000)); INSERT INTO fresh SELECT i, '' FROM generate_series(1, 90000) i});
slow('40MB');
my ($job) = ask(q{relocate_table('fresh', 'fast')});
$copied->($job, 0.8);
is($other->sql('SELECT count(*) FROM fresh'), 90000, 'all of it is read for the first time');
slow('0');
is(ended($job), 'done', 'hint bits in the whole table: done') or diag job_text($job);
my ($attempts, $again) = split /\|/, $db->sql("SELECT attempts, recopied_blocks FROM pgscale.relocation_jobs WHERE job = $job");
is($attempts, 1, 'at the first attempt') or diag job_text($job);
cmp_ok($again, '>', 2000, 'most of its blocks were copied again');
is($db->sql('SELECT count(*), sum(id) FROM fresh'), '90000|4050045000', 'with all rows');

### The same while it waits for its gap

my $holder;
slow('0');
$db->sql(q{CREATE TABLE waits (id int, filler char(1000)); INSERT INTO waits SELECT i, '' FROM generate_series(1, 90000) i});
($holder, $job) = held_live('waits', 'fast', 'BEGIN; LOCK waits IN ACCESS SHARE MODE');
is($other->sql('SELECT count(*) FROM waits'), 90000, 'all of it is read while the move waits');
$db->poll_ok("SELECT finished_at IS NOT NULL OR recopied_blocks > 0 OR attempts > 1 FROM pgscale.relocation_jobs WHERE job = $job", 'it is copied again');
$holder->sql('COMMIT');
is(ended($job), 'done', 'while it waits: done') or diag job_text($job);
is($db->sql("SELECT attempts FROM pgscale.relocation_jobs WHERE job = $job"), 1, 'at the first attempt') or diag job_text($job);
is($db->sql('SELECT count(*), sum(id) FROM waits'), '90000|4050045000', 'with all rows');
$holder->quit;

### Segments that end early, in each phase

$db->sql(q{CREATE TABLE switched (id int PRIMARY KEY, n int, filler char(500)); INSERT INTO switched SELECT i, 0, '' FROM generate_series(1, 8000) i; VACUUM switched});
slow('2MB');
($job) = ask(q{relocate_table('switched', 'fast')});
for my $n (1 .. 4)
{
    $copied->($job, $n / 5);
    $db->sql("UPDATE switched SET n = n + 1 WHERE id % 7 = $n; SELECT pg_switch_wal()");
}
slow('0');
is(ended($job), 'done', 'WAL is switched four times: done') or diag job_text($job);
is($db->sql("SELECT attempts FROM pgscale.relocation_jobs WHERE job = $job"), 1, 'at the first attempt') or diag job_text($job);
is($db->sql('SELECT count(*), sum(n) FROM switched'), $db->sql('SELECT 8000, count(*) FROM generate_series(1, 8000) i WHERE i % 7 BETWEEN 1 AND 4'), 'with all changes');
($holder, $job) = held_live('switched', 'other', 'BEGIN; LOCK switched IN ACCESS SHARE MODE');
$db->sql("UPDATE switched SET n = n + 1 WHERE id = $_; SELECT pg_switch_wal()") for 1 .. 4;
$holder->sql('COMMIT');
is(ended($job), 'done', 'and while it waits: done') or diag job_text($job);
is($db->sql("SELECT attempts FROM pgscale.relocation_jobs WHERE job = $job"), 1, 'at the first attempt') or diag job_text($job);
is($db->sql('SELECT sum(n) - (SELECT count(*) FROM generate_series(1, 8000) i WHERE i % 7 BETWEEN 1 AND 4) FROM switched'), 4, 'with all changes');
strays_ok('no file is left');
$_->quit for $holder, $other, $db;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal|could not read the WAL|has already been removed/, 'no WAL was missed');
$node->stop;
done_testing();
