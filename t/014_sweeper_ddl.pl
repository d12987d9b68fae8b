# What wants files gone gets them gone while the sweeper works: nothing hangs, and nothing stays open.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main', conf => <<"EOC");
shared_buffers = 8MB
max_worker_processes = 32
pgscale.sweeper_mode = ${\ sweeper_mode()}
checkpoint_timeout = 1h
synchronous_commit = off
fsync = on
pgscale.sweeper = on
pgscale.sweeper_adaptive = off
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

$db->churn_table(40000);
my @churning = churn($node, 3);
$db->sweeps_on('the sweeper works');
until_ok(sub { open_files(qr{/base/\d+/\d+}) > 0 }, 'and has files open');

# so many pages that some of them are written by it
sub fill { my $table = shift; return "INSERT INTO $table SELECT i, '' FROM generate_series(1, 4000) i"; }

for my $mode (has_freelist() ? 'freelist' : (), 'window')
{
    $db->set('pgscale.sweeper_mode', $mode);
    $db->sweeps_on("mode $mode");
    for my $round (1 .. ($ENV{PGSCALE_TEST_FULL} ? 3 : 1))
    {
        try_ok('CREATE TABLE t (i int, filler char(1000))');
        try_ok('CREATE INDEX ON t (i)');
        try_ok(fill('t'), 'filled');
        try_ok('TRUNCATE t');
        try_ok(fill('t'), 'filled');
        try_ok('DELETE FROM t WHERE i > 10');
        try_ok('VACUUM t');
        try_ok('VACUUM FULL t');
        try_ok('REINDEX TABLE t');
        try_ok(fill('t'), 'filled');
        try_ok('BEGIN; ' . fill('t') . '; TRUNCATE t; ' . fill('t') . '; ROLLBACK', 'a transaction that is undone');
        is($db->sql('SELECT count(*), count(DISTINCT i) FROM t'), '4010|4000', 'the data is right');
        try_ok('DROP TABLE t');
    }
    my $tablespace = PostgreSQL::Test::Utils::tempdir();
    for my $round (1 .. ($ENV{PGSCALE_TEST_FULL} ? 2 : 1))
    {
        try_ok("CREATE TABLESPACE elsewhere LOCATION '$tablespace'");
        try_ok('CREATE TABLE t (i int, filler char(1000)) TABLESPACE elsewhere');
        try_ok(fill('t'), 'filled');
        try_ok('ALTER TABLE t SET TABLESPACE pg_default');
        try_ok(fill('t'), 'filled');
        try_ok('ALTER TABLE t SET TABLESPACE elsewhere');
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
is($db->sql('SELECT errors, writeback_calls > 0 FROM pgscale.sweeper_stats'), '0|t', 'no errors, and the kernel was asked to write such files');
$db->churn_end(@churning);
$db->churn_right('the data is right');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, 'nothing crashed');

$node->stop;
done_testing();
