# What wants files gone gets them gone while the sweeper works: nothing hangs, and nothing stays open. And pages are exchanged while
# the sweep looks at few buffers: what it knows is old or torn then, which may make a choice worse, and no page wrong.
# Runs on each major.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $amcheck = have_module('amcheck');
my $node = pgscale_node('main', init => [ extra => ['--data-checksums'] ], conf => <<"EOC");
${\ sweeper_conf()}
shared_buffers = 1MB
bgwriter_lru_maxpages = 100
synchronous_commit = off
fsync = on
pgscale.sweeper_writers = 2
EOC
my $db = session($node);
$db->sql("SET statement_timeout = '${PostgreSQL::Test::Utils::timeout_default}s'");

sub try_ok
{
    my ($command, $name) = @_;
    my ($state, $text) = $db->try($command);
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return is($state, '00000', $name // ($command =~ s/ LOCATION.*//r)) || !diag $text;
}

# what the sweeper's processes have open
sub open_files
{
    my $pattern = shift;

    return grep { $_ =~ $pattern } map { readlink($_) // '' } map { glob "/proc/$_/fd/*" } $db->sweeper_pids;
}

$db->churn_table(6000);
my @churning = churn($node, 3);
$db->sweeps_on('the sweeper works');
until_ok(sub { open_files(qr{/base/\d+/\d+}) > 0 }, 'and has files open');

# so many pages that some of them are written by it
sub fill { my $table = shift; return "INSERT INTO $table SELECT i, '' FROM generate_series(1, 4000) i"; }

for my $round (1 .. ($ENV{PGSCALE_TEST_FULL} ? 3 : 1))
{
    try_ok($_)
      for 'CREATE TABLE t (i int, filler char(1000))', 'CREATE INDEX ON t (i)', fill('t'), 'TRUNCATE t', fill('t'),
      'DELETE FROM t WHERE i > 10', 'VACUUM t', 'VACUUM FULL t', 'REINDEX TABLE t', fill('t'),
      'BEGIN; ' . fill('t') . '; TRUNCATE t; ' . fill('t') . '; ROLLBACK';
    is($db->sql('SELECT count(*), count(DISTINCT i) FROM t'), '4010|4000', 'the data is right');
    try_ok('DROP TABLE t');
}
my $tablespace = PostgreSQL::Test::Utils::tempdir();
for my $round (1 .. ($ENV{PGSCALE_TEST_FULL} ? 2 : 1))
{
    try_ok($_)
      for "CREATE TABLESPACE elsewhere LOCATION '$tablespace'",
      'CREATE TABLE t (i int, filler char(1000)) TABLESPACE elsewhere', fill('t'),
      'ALTER TABLE t SET TABLESPACE pg_default', fill('t'), 'ALTER TABLE t SET TABLESPACE elsewhere';
    is($db->sql('SELECT count(*) FROM t'), 8000, 'the data is right');
    try_ok('DROP TABLE t');
    try_ok('DROP TABLESPACE elsewhere');

    try_ok("CREATE TABLESPACE elsewhere LOCATION '$tablespace'");
    for my $strategy ('wal_log', 'file_copy')
    {
        try_ok("CREATE DATABASE other STRATEGY $strategy");
        my $there = session($node, dbname => 'other');
        $there->sql('CREATE TABLE t (i int, filler char(1000))');
        $there->sql(fill('t'));
        $db->sweeps_on('another database');
        $there->sql(fill('t'));
        is($there->sql('SELECT count(*) FROM t'), 8000, 'the data is right');
        $there->quit if $strategy eq 'wal_log';
        try_ok('ALTER DATABASE other SET TABLESPACE elsewhere') if $strategy eq 'wal_log';
        try_ok('DROP DATABASE other (FORCE)');
        $there->quit if $strategy eq 'file_copy';
    }
    try_ok('DROP TABLESPACE elsewhere');
}

# A file that is dropped without a request to all processes goes with the next checkpoint; the load has others open meanwhile.
try_ok('CREATE TABLE t (i int, filler char(1000))');
my $path = $db->sql(q{SELECT pg_relation_filepath('t')});
until_ok(sub { $db->sql(fill('t')); open_files(qr{/\Q$path\E$}) > 0 }, 'a file that the sweeper has open');
try_ok('DROP TABLE t');
try_ok('CHECKPOINT');
until_ok(sub { !open_files(qr/ \(deleted\)$/) }, 'after a checkpoint no deleted file is open')
  or diag join "\n", open_files(qr/ \(deleted\)$/);
is($db->sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'pgscale sweeper writer%'}) > 0, 1,
    'while there are writers');
is($db->sql('SELECT errors, writeback_calls > 0 FROM pgscale.sweeper_stats'), '0|t',
    'no errors, and the kernel was asked to write such files');
$db->churn_end(@churning);
$db->churn_right('the data is right');

# Each round makes a table and an index, looks at what it has put there, changes it, empties it, and drops it.
$db->sql(<<'EOQ');
CREATE TABLE rounds (session int PRIMARY KEY, n int NOT NULL);
INSERT INTO rounds SELECT i, 0 FROM generate_series(0, 7) i;
CREATE PROCEDURE expect(what text, rows bigint, total bigint) LANGUAGE plpgsql AS $proc$
DECLARE
    found text;
BEGIN
    EXECUTE format('SELECT format(%L, count(*), sum(i), count(*) FILTER (WHERE filler::text = md5(i::text))) FROM %s', '%s %s %s',
        what) INTO found;
    IF found <> format('%s %s %s', rows, total, rows) THEN
        RAISE EXCEPTION '% has %', what, found;
    END IF;
END $proc$;
CREATE PROCEDURE come_and_go(me int) LANGUAGE plpgsql AS $proc$
DECLARE
    t text := format('come_%s', me);
BEGIN
    WHILE EXISTS (SELECT FROM churn_on) LOOP
        EXECUTE format('CREATE TABLE %s (i int PRIMARY KEY, filler char(32), wide char(250))', t);
        COMMIT;
        EXECUTE format('INSERT INTO %s SELECT i, md5(i::text), $w$$w$ FROM generate_series(1, 600) i', t);
        COMMIT;
        CALL expect(t, 600, 180300);
        EXECUTE format('CREATE INDEX ON %s (filler)', t);
        EXECUTE format('UPDATE %s SET i = i + 10000, filler = md5((i + 10000)::text) WHERE i <= 300', t);
        COMMIT;
        SET LOCAL enable_seqscan = off;
        CALL expect(t || ' WHERE i > 0', 600, 3180300);
        CALL expect(t || ' WHERE filler > $f$$f$', 600, 3180300);
        EXECUTE format('TRUNCATE %s', t);
        EXECUTE format('INSERT INTO %s SELECT i, md5(i::text), $w$$w$ FROM generate_series(1, 100) i', t);
        COMMIT;
        CALL expect(t, 100, 5050);
        EXECUTE format('DROP TABLE %s', t);
        UPDATE rounds SET n = n + 1 WHERE session = me;
        COMMIT;
    END LOOP;
END $proc$;
EOQ
@churning = churn($node, 2);
my @coming = map { session($node) } 0 .. 2;
$coming[$_]->start("CALL come_and_go($_)") for 0 .. 2;
my ($consumed, $rounds) = split /\|/, $db->sql('SELECT consumed, (SELECT sum(n) FROM rounds) FROM pgscale.sweeper_stats');
$db->sweeps_on('it supplies and writes');
in_time_ok(sub {
    return $db->sql("SELECT evictions > 100 AND (SELECT consumed > $consumed + 2000 FROM pgscale.sweeper_stats)
        AND (SELECT sum(n) >= $rounds + 6 FROM rounds) FROM pgscale.replacement_stats") eq 't';
}, 'relations come and go, in buffers that it supplies') or diag $db->sql('SELECT row_to_json(s) FROM pgscale.sweeper_stats s');
$db->churn_end(@churning, @coming);
$db->churn_right('what stays is right');
is($db->sql('SELECT errors FROM pgscale.sweeper_stats'), 0, 'the sweeper had no error');
SKIP:
{
    skip 'this server has no amcheck', 2 unless $amcheck;
    $db->sql('CREATE EXTENSION amcheck');
    is($db->sql(q{SELECT count(*) > 50, count(bt_index_check(c.oid, true)) FROM pg_class c JOIN pg_am a ON a.oid = relam AND amname = 'btree'
        WHERE relkind = 'i' AND relpersistence = 'p'}) =~ s/\|\d+//r, 't', 'each row is in each index');
    is($db->sql(q{SELECT count(*) FROM pg_class c, verify_heapam(c.oid) WHERE relkind IN ('r', 't', 'm')}), 0,
        'and each page of each table is as it should be');
}
$db->quit;
$node->stop;
command_ok([ 'pg_checksums', '--check', '-D', $node->data_dir ], 'each page on disk has its checksum');
unlike(slurp_file($node->logfile), qr/ERROR|PANIC|TRAP|terminated by signal|invalid page|verification failed/,
    'and no error is in the log');

done_testing();
