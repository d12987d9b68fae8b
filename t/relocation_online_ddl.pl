# DDL beside an online move: it gets its lock between two pieces of the copy, and the job goes on, starts again, or fails, as the
# header of online_move.c says. Nothing is left behind, whatever it was. And what the copy holds back meanwhile: neither VACUUM nor
# anyone.
use strict;
use warnings;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

relocation_node();
extensions();
my $ddl = session($node);
$ddl->sql(q{SET lock_timeout = '20 s'});

sub table
{
    return ($_[0] // $db)->sql(<<'EOQ');
DROP TABLE IF EXISTS t;
CREATE TABLE t (id int PRIMARY KEY, n int, v text);
ALTER TABLE t ALTER v SET STORAGE EXTERNAL;
INSERT INTO t SELECT i, i, repeat(md5(i::text), 70) FROM generate_series(1, 700) i;
CREATE INDEX t_n ON t (n);
EOQ
}

# Beside a copy of the table, or of its index, this ends without an error, and the job in that way.
for my $case (
    [ table => 'ALTER TABLE t ADD COLUMN w int', 'done|1|' ],
    [ table => 'ALTER TABLE t ADD COLUMN w float8 DEFAULT random()', 'done|2|' ],
    [ table => 'ALTER TABLE t RENAME TO renamed; ALTER TABLE renamed RENAME TO t', 'done|1|' ],
    [ table => 'CREATE INDEX CONCURRENTLY t_v ON t (md5(v))', 'done|1|' ],
    [ table => 'DROP INDEX t_n', 'done|1|' ],
    [ table => 'REINDEX INDEX CONCURRENTLY t_n', 'done|1|' ],
    [ table => 'REINDEX TABLE CONCURRENTLY t', 'done|2|' ],     # also the index of the TOAST table
    [ table => 'VACUUM FULL t', 'done|2|' ],
    [ table => 'CLUSTER t USING t_pkey', 'done|2|' ],
    [ table => 'TRUNCATE t', 'done|2|' ],
    [ table => 'VACUUM (FREEZE) t', 'done|1|' ],
    [ table => 'DELETE FROM t WHERE id > 10; VACUUM t', 'done|1|' ],
    [ table => 'ALTER TABLE t SET TABLESPACE other', 'done|2|' ],
    [ table => 'ALTER TABLE t SET TABLESPACE fast', 'done|1|' ],
    [ table => 'ALTER TABLE t SET UNLOGGED', 'failed|1|0A000' ],
    [ table => 'DROP TABLE t', 'failed|1|42704' ],
    [ index => 'DROP INDEX t_n', 'failed|1|42704' ],
    [ index => 'REINDEX INDEX t_n', 'done|2|' ],
    [ index => 'REINDEX INDEX CONCURRENTLY t_n', 'failed|1|42704' ],
    [ index => 'DROP TABLE t', 'failed|1|42704' ],
    [ index => 'VACUUM FULL t', 'done|2|' ],
    [ index => 'ALTER INDEX t_n RENAME TO t_m; ALTER INDEX t_m RENAME TO t_n', 'done|1|' ])
{
    my ($kind, $statement, $expected) = @$case;
    my $name = "$kind: $statement";

    table();
    $db->sql('INSERT INTO t SELECT i, i FROM generate_series(1000, 40000) i') if $kind eq 'index';
    my ($job) = copying($kind eq 'table' ? q{relocate_table('t', 'fast')} : q{relocate_indexes('t_n', 'fast', mode => 'online')});
    my ($state, $text) = $ddl->try($statement);
    is($state, '00000', "beside a copy: $name") or diag $text;
    my $rows = $statement =~ /DROP TABLE/ ? '' : rows($db, 't');
    reloaded('pgscale.relocation_rate');
    ended_ok($job, $expected, "$name: the job ends as it should", q{state, attempts, coalesce(sqlstate, '')});
    is(place('t'), $expected =~ /done/ ? 'fast' : 'pg_default', "$name: it has moved, or not") if $rows && $kind eq 'table';
    is(rows($db, 't'), $rows, "$name: the rows are there") if $rows;
    strays_ok($name);
}

# VACUUM truncates what was copied, and then there are blocks of zeros, as bulk extension and crashes leave them: no row is back.
$db->sql(<<'EOQ');
CREATE TABLE cut (id int, filler char(1000), v text);
ALTER TABLE cut ALTER v SET STORAGE EXTERNAL;
INSERT INTO cut SELECT i, '', repeat(md5(i::text), 70) FROM generate_series(1, 700) i;
EOQ
{
    my ($job) = copying(q{relocate_table('cut', 'fast')});
    job_ok($job, q{phase, copied_bytes > pg_relation_size('cut')}, 'copying|t', 'all of it is copied, and not yet its TOAST table');
    my $size = $db->sql(q{SELECT pg_relation_size('cut')});
    $ddl->sql('DELETE FROM cut WHERE id > 100; VACUUM cut; CHECKPOINT');
    cmp_ok($db->sql(q{SELECT pg_relation_size('cut')}), '<', $size, 'VACUUM truncates it');
    my $holder = session($node);
    $holder->sql('BEGIN; LOCK TABLE cut IN ACCESS SHARE MODE');
    reloaded('pgscale.relocation_rate');
    job_ok($job, 'phase', 'waiting for a gap', 'what has changed is copied, while it is short');
    truncate $node->data_dir . '/' . $db->sql(q{SELECT pg_relation_filepath('cut')}), $size or die $!;
    is($db->sql(q{SELECT pg_relation_size('cut')}), $size, 'it has grown again');
    my $left = rows($db, 'cut');
    $holder->quit;
    ended_ok($job, 'done', 'it is moved');
    is(rows($db, 'cut'), $left, 'with the rows that it has');
    is($db->sql('SELECT count(*) FROM cut'), 100, 'and no other ones');
    strays_ok('zeros');
    $db->sql('DROP TABLE cut');
}

# Nothing is held back: no snapshot and no transaction ID outlasts a moment, nor does a lock of a table.
table();
{
    my ($job, $worker) = copying(q{relocate_table('t', 'fast')});
    my ($before, $old, $xids, $locks) = ($db->sql('SELECT pg_current_xact_id()'), 0, 0, 0);
    for (1 .. 100)
    {
        my ($now, $is_old, $xid, $exclusive) = split /\|/, $db->sql(<<"EOQ");
SELECT pg_current_xact_id(), coalesce(age(backend_xmin) > age(xid '$before'), false), backend_xid IS NOT NULL,
       (SELECT count(*) FROM pg_locks WHERE pid = $worker AND granted AND mode NOT IN ('AccessShareLock', 'ExclusiveLock'))
  FROM pg_stat_activity WHERE pid = $worker
EOQ
        $old++ if $is_old eq 't';
        $xids++ if $xid eq 't';
        $locks += $exclusive;
        $before = $now;
        last if of_job($job, 'phase') ne 'copying';
    }
    is("$old $xids $locks", '0 0 0',
        'a copy holds no snapshot, no transaction ID, and no lock that readers or writers would wait for');
    $db->sql('CREATE TABLE dead (id int); INSERT INTO dead SELECT generate_series(1, 100); DELETE FROM dead');
    like($db->sql('VACUUM (VERBOSE) dead'), qr/100 removed|removed 100/, 'VACUUM removes what has died meanwhile');
    reloaded('pgscale.relocation_rate');
    ended_ok($job, 'done', 'it is done');
}

# The extension goes, and with it the job's row; the database does; and the tablespace is to be let go of.
table();
copying(q{relocate_table('t', 'fast')});
is(($ddl->try('DROP EXTENSION pgscale'))[0], '00000', 'beside it: DROP EXTENSION');
reloaded('pgscale.relocation_rate');
workers_gone();
is(place('t'), 'pg_default', 'the table has not moved');
strays_ok('DROP EXTENSION');
$db->sql('CREATE EXTENSION pgscale; CREATE DATABASE going');
my $there = session($node, dbname => 'going');
$there->sql('CREATE EXTENSION pgscale');
table($there);
copying(q{relocate_table('t', 'fast')}, $there);
$there->quit;
is(($ddl->try('DROP DATABASE going'))[0], '00000', 'beside it: DROP DATABASE');
reloaded('pgscale.relocation_rate');
workers_gone();
is(join(' ', grep { !m{/(?:PG_VERSION)$} } glob($node->data_dir . '/pg_tblspc/*/PG_*/*/*')), '',
    'no file is left in the tablespaces');
table();
my ($job) = copying(q{relocate_table('t', 'fast')});
is(($ddl->try('DROP TABLESPACE fast'))[0], '55000', 'beside it: DROP TABLESPACE is refused');
is($db->sql("SELECT pgscale.relocation_cancel($job)"), 't', 'cancelled');
ended_ok($job, 'cancelled', 'it ends');
is(($ddl->try('DROP TABLESPACE fast'))[0], '00000', 'then it can be dropped');

$ddl->quit;
stop_ok();
done_testing();
