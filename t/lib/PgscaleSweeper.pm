# PgscaleSweeper.pm: a server whose sweeper is off, and whose parts a session calls one by one: see sweeper_steps.c.
package PgscaleSweeper;

use strict;
use warnings;
use Exporter 'import';
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw($node $db sweeper_server stats clean dirty usage queue writer_ends runs);
our ($node, $db);

# Makes functions, in the schema step, that call the sweeper's parts one by one: see sweeper_steps.c. False where that cannot be:
# without a compiler, or from 16 on, where a library shows nothing but what the server calls.
sub sweeper_steps
{
    my $library = PostgreSQL::Test::Utils::tempdir() . '/sweeper_steps.so';
    my ($include, $libraries) = (server_headers(), qx(pg_config --pkglibdir) =~ s/\n//r);

    system("nm -D $libraries/pgscale.so | grep -qw pgscale_sweeper_share && cc --version >/dev/null 2>&1 && [ -r $include/postgres.h ]") == 0 or return 0;
    system("cc -shared -fPIC -O1 -I $include -I src -o $library t/lib/sweeper_steps.c") == 0 or die 'sweeper_steps.c cannot be compiled';
    chmod 0755, $library or die $!;
    my %steps = (
        'decide' => 'int, float8, float8, float8, float8, float8, bigint, bigint, bigint, bigint, bigint, bigint) RETURNS text',
        'crew' => 'int, float8, int, int, int, int) RETURNS text',
        'find' => 'regclass, int, int, int) RETURNS text',
        'order' => 'boolean) RETURNS void',
        'choose' => 'regclass, int[], int, int, int, int) RETURNS text',
        'looks' => 'regclass, int[], int) RETURNS text',
        'plant' => 'regclass, int, int) RETURNS void',
        'forget' => 'regclass, int) RETURNS void',
        'again' => 'int, int, int) RETURNS text',
        'refresh' => 'int, int, int) RETURNS void',
        'touch' => 'regclass, int, int, int, int, bool) RETURNS void',
        'set_usage' => 'int, int, int) RETURNS void',
        'supply' => 'regclass, int, int, int, int) RETURNS bool',
        'write' => 'regclass, int, int, int, int) RETURNS text',
        'lsn' => 'regclass, int, bigint) RETURNS bigint',
        'share' => 'int, int, int, int, int, bool) RETURNS void',
        'tick' => ') RETURNS bool',
        'rest' => ') RETURNS void',
        'queue' => 'regclass, int, int, int, int) RETURNS bool',
        'queued' => ') RETURNS text',
        'writer' => 'int, bool) RETURNS bool',
        'counts' => 'bigint) RETURNS void',
        'state' => 'int, int, float8, int, float8, int, bool, bool, int) RETURNS void',
        'few_slots' => 'int, float8) RETURNS void',
        'wait' => 'regclass, int, bool) RETURNS void',
        'warm' => ') RETURNS void',
        'writing' => 'int) RETURNS void',
        'add' => 'bigint, bigint, bigint, bigint, bigint, bigint) RETURNS void');
    $db->sql(join ';', 'CREATE SCHEMA step', map { "CREATE FUNCTION step.$_($steps{$_} LANGUAGE C AS '$library', 'step_$_'" } sort keys %steps);
    return 1;
}

# Starts it; all tests are skipped where that cannot be.
sub sweeper_server
{
    plan skip_all => 'this server has no pg_buffercache' unless have_module('pg_buffercache');
    $node = pgscale_node('main', conf => <<'EOC');
shared_buffers = 1000    # of 1024 on, a tick may end early
max_worker_processes = 20
max_prepared_transactions = 2
checkpoint_timeout = 1h
bgwriter_lru_maxpages = 0
wal_buffers = 1MB
wal_writer_delay = 10s
full_page_writes = off
wal_log_hints = off
synchronous_commit = off
pgscale.sampler = off
pgscale.sweeper_workers = 2
EOC
    $db = session($node);
    sweeper_steps() or do { $db->quit; $node->stop('immediate'); plan skip_all => 'the sweeper cannot be called from a session here' };

    # 160 pages of one row each; the others are of a relation apart, more than there are buffers, and one of them without WAL
    $db->sql(<<'EOQ');
CREATE EXTENSION pg_buffercache;
CREATE TABLE a (i int, n int, filler char(500)) WITH (fillfactor = 10);
CREATE TABLE b (i int, n int, filler char(500)) WITH (fillfactor = 10);
CREATE UNLOGGED TABLE u (i int, n int, filler char(500)) WITH (fillfactor = 10);
INSERT INTO a SELECT i, 0, '' FROM generate_series(0, 159) i;
INSERT INTO b SELECT i, 0, '' FROM generate_series(0, 1499) i;
INSERT INTO u SELECT i, 0, '' FROM generate_series(0, 9) i;
VACUUM FREEZE a, b, u;
CREATE VIEW dirty AS SELECT coalesce(string_agg(relblocknumber::text, ' ' ORDER BY relblocknumber), '') AS pages
    FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('a') AND relforknumber = 0 AND isdirty;
CREATE VIEW usage AS SELECT relblocknumber AS block, usagecount AS n, bufferid - 1 AS buf
    FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('a') AND relforknumber = 0;
EOQ
    $db->quit;
    $node->restart;
    $db = session($node);
    is($db->sql('SELECT max(i) = 159 AND bool_and(ctid::text = format($$(%s,1)$$, i)) FROM a'), 't', 'a row a page');

    # All of the catalogs that are asked later are in memory, so that none of their pages takes what the sweep has made ready.
    $db->sql(q{SELECT step.touch(oid, 0, 0, pg_relation_size(oid)::int / 8192 - 1, -1, false) FROM pg_class
        WHERE relnamespace = 'pg_catalog'::regnamespace AND relkind IN ('r', 'i') AND pg_relation_size(oid) > 0
        AND relname !~ '^pg_(depend|description|shdescription|collation|ts_|conversion|largeobject|init_privs|statistic)'});
    return;
}

# of the first of two sweepers, which does all of it; the second one says if two share the work
sub stats { my $columns = shift; return $db->sql("SELECT $columns FROM pgscale.sweeper_stats WHERE worker = 1"); }

# Cleans all pages; those of table a then are in memory, with that usage count.
sub clean
{
    my $usage = shift // 5;

    $db->sql('CHECKPOINT');
    $db->sql("SELECT step.touch('a', 0, 0, 159, $usage, false)");
    return;
}

# Makes pages of table a dirty, and sets their usage counts.
sub dirty
{
    my ($usage, @ranges) = @_;

    $db->sql(sprintf "SELECT step.touch('a', 0, %d, %d, %d, true)", $_->[0], $_->[-1], $usage) for @ranges;
    return;
}

# Has a run written; ends the writers.
sub queue { my ($table, $block, $pages, $victims) = @_; $db->sql("SELECT step.queue('$table', 0, $block, $pages, $victims)"); return; }

sub writer_ends
{
    $db->sql("SELECT pg_terminate_backend($_)") for $db->sweeper_pids('writer');
    $db->poll_ok('SELECT writers FROM pgscale.sweeper_stats WHERE worker = 1', 'the writer ends', 0);
    return;
}

# runs by relation and fork, in plain words
sub runs
{
    my $said = $db->sql("SELECT $_[0]");
    my %name = map { $db->sql("SELECT pg_relation_filenode('$_')") => $_ } qw(a b u);

    return $said =~ s/(\d+)\.(\d):/$name{$1} . ($2 ? ".$2:" : ':')/ger;
}

# how often a page of table a was used
sub usage { my $block = shift; return $db->sql("SELECT n FROM usage WHERE block = $block"); }

1;
