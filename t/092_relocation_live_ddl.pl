# DDL beside a live move: it gets its lock between two pieces of the copy, and the job goes on, starts again, or fails, as the header of
# live_move.c says. Nothing is left behind, whatever it was. And what the copy holds back meanwhile: neither VACUUM nor anyone.
use strict;
use warnings;
use PgscaleLive;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

relocation_node(conf => "autovacuum = off\npgscale.relocation_max_transaction_age = -1");
$db->sql("CREATE EXTENSION $_") for grep { have_module($_) } qw(amcheck pg_visibility);
$db->sql('CREATE ROLE someone');
my $ddl = session($node);
$ddl->sql(q{SET lock_timeout = '10 s'});

sub table
{
    my ($dbh) = @_;

    ($dbh // $db)->sql(<<'EOQ');
DROP TABLE IF EXISTS t;
CREATE TABLE t (id int PRIMARY KEY, n int, v text);
ALTER TABLE t ALTER v SET STORAGE EXTERNAL;
INSERT INTO t SELECT i, i, repeat(md5(i::text), 70) FROM generate_series(1, 700) i;
CREATE INDEX t_n ON t (n);
EOQ
    return;
}

# A copy that takes long: it is past its beginning, and far from its end.
sub slow_copy
{
    my ($call, $session) = @_;
    $session //= $db;
    $db->set('pgscale.relocation_rate', '200kB');
    $db->poll_ok('SHOW pgscale.relocation_rate', 'slow', '200kB');
    my ($job) = ask($call, $session);
    job_ok($job, 'state, phase, copied_bytes > 0', 'running|copying|t', 'a copy is under way', $session);
    return $job;
}

sub full_speed { $db->set('pgscale.relocation_rate'); return; }

my @cases = (
    [ 'ALTER TABLE t ADD COLUMN w int', 'done|1|' ],
    [ 'ALTER TABLE t ADD COLUMN w float8 DEFAULT random()', 'done|2|' ],
    [ 'ALTER TABLE t ALTER n TYPE bigint', 'done|2|' ],
    [ 'ALTER TABLE t RENAME TO renamed; ALTER TABLE renamed RENAME TO t', 'done|1|' ],
    [ 'CREATE INDEX t_v ON t (md5(v))', 'done|1|' ],
    [ 'CREATE INDEX CONCURRENTLY t_v ON t (md5(v))', 'done|1|' ],
    [ 'DROP INDEX t_n', 'done|1|' ],
    [ 'REINDEX INDEX CONCURRENTLY t_n', 'done|1|' ],
    [ 'REINDEX TABLE CONCURRENTLY t', 'done|2|' ],     # also the index of the TOAST table
    [ 'REINDEX TABLE t', 'done|2|' ],
    [ 'VACUUM FULL t', 'done|2|' ],
    [ 'CLUSTER t USING t_pkey', 'done|2|' ],
    [ 'TRUNCATE t', 'done|2|' ],
    [ 'VACUUM (FREEZE) t', 'done|1|' ],
    [ 'DELETE FROM t WHERE id > 10; VACUUM t', 'done|1|' ],
    [ 'ALTER TABLE t SET TABLESPACE other', 'done|2|' ],
    [ 'ALTER TABLE t SET TABLESPACE fast', 'done|1|' ],
    [ 'ALTER TABLE t SET UNLOGGED', 'failed|1|0A000' ],
    [ 'DROP TABLE t', 'failed|1|42704' ]);
for my $case (@cases)
{
    my ($statement, $expected) = @$case;

    table();
    my $job = slow_copy(q{relocate_table('t', 'fast')});
    my ($state, $text) = $ddl->try($statement);
    is($state, '00000', "beside it: $statement") or diag $text;
    my $rows = $statement =~ /DROP TABLE/ ? '' : rows($db, 't');
    full_speed();
    ended($job);
    is($db->sql("SELECT state, attempts, coalesce(sqlstate, '') FROM pgscale.relocation_jobs WHERE job = $job"), $expected, 'the job ends as it should') or diag job_text($job);
    is(place('t'), $expected =~ /done/ ? 'fast' : 'pg_default', 'it has moved, or not') if $rows;
    is(rows($db, 't'), $rows, 'with its rows') if $rows;
    strays_ok('no file is left behind');
}

# VACUUM truncates what was copied, and then there are blocks of zeros, as bulk extension and crashes leave them: no row is back.
$db->sql(<<'EOQ');
CREATE TABLE cut (id int, filler char(1000), v text);
ALTER TABLE cut ALTER v SET STORAGE EXTERNAL;
INSERT INTO cut SELECT i, '', repeat(md5(i::text), 70) FROM generate_series(1, 700) i;
EOQ
{
    my $job = slow_copy(q{relocate_table('cut', 'fast')});
    job_ok($job, q{phase, copied_bytes > pg_relation_size('cut')}, 'copying|t', 'all of it is copied, and not yet its TOAST table');
    my $size = $db->sql(q{SELECT pg_relation_size('cut')});
    $ddl->sql('DELETE FROM cut WHERE id > 100; VACUUM cut; CHECKPOINT');
    my $now = $db->sql(q{SELECT pg_relation_size('cut')});
    cmp_ok($now, '<', $size, 'VACUUM truncates it');
    my $holder = session($node);
    $holder->sql('BEGIN; LOCK TABLE cut IN ACCESS SHARE MODE');
    full_speed();
    job_ok($job, 'phase', 'waiting for a gap', 'what has changed is copied, while it is short');
    truncate $node->data_dir . '/' . $db->sql(q{SELECT pg_relation_filepath('cut')}), $size or die $!;
    is($db->sql(q{SELECT pg_relation_size('cut')}), $size, 'it has grown again');
    my $left = rows($db, 'cut');
    $holder->quit;
    is(ended($job), 'done', 'it is moved');
    is(rows($db, 'cut'), $left, 'with the rows that it has');
    is($db->sql('SELECT count(*) FROM cut'), 100, 'and no other ones');
    strays_ok('no file is left behind');
    $db->sql('DROP TABLE cut');
}

# An index
for my $case ([ 'DROP INDEX t_n', 'failed|1|42704' ], [ 'REINDEX INDEX t_n', 'done|2|' ], [ 'REINDEX INDEX CONCURRENTLY t_n', 'failed|1|42704' ],
    [ 'DROP TABLE t', 'failed|1|42704' ], [ 'VACUUM FULL t', 'done|2|' ], [ 'ALTER INDEX t_n RENAME TO t_m; ALTER INDEX t_m RENAME TO t_n', 'done|1|' ])
{
    my ($statement, $expected) = @$case;

    table();
    $db->sql('INSERT INTO t SELECT i, i FROM generate_series(1000, 60000) i');
    my $job = slow_copy(q{relocate_index('t_n', 'fast', mode => 'copy')});
    my ($state, $text) = $ddl->try($statement);
    is($state, '00000', "beside the copy of an index: $statement") or diag $text;
    full_speed();
    ended($job);
    is($db->sql("SELECT state, attempts, coalesce(sqlstate, '') FROM pgscale.relocation_jobs WHERE job = $job"), $expected, 'the job ends as it should') or diag job_text($job);
    strays_ok('no file is left behind');
}

# Nothing is held back: no snapshot and no transaction ID outlasts a moment, nor does a lock of a table.
table();
{
    my $job = slow_copy(q{relocate_table('t', 'fast')});
    my $worker = $db->sql("SELECT pid FROM pgscale_internal.relocation_job WHERE job = $job");
    my ($before, $old, $xids, $locks) = ($db->sql('SELECT pg_current_xact_id()'), 0, 0, 0);
    for (1 .. 150)
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
    }
    is(job_phase($job), 'copying', 'it was copied all the time');
    is("$old $xids $locks", '0 0 0', 'a copy holds no snapshot, no transaction ID, and no lock that readers or writers would wait for');
    $db->sql('CREATE TABLE dead (id int); INSERT INTO dead SELECT generate_series(1, 100); DELETE FROM dead');
    like($db->sql('VACUUM (VERBOSE) dead'), qr/100 removed|removed 100/, 'VACUUM removes what has died meanwhile');
    full_speed();
    is(ended($job), 'done', 'it is done');
}
sub job_phase { my $job = shift; return $db->sql("SELECT phase FROM pgscale.relocation_jobs WHERE job = $job"); }

# The extension goes, and with it the job's row.
table();
slow_copy(q{relocate_table('t', 'fast')});
is(($ddl->try('DROP EXTENSION pgscale'))[0], '00000', 'beside it: DROP EXTENSION');
full_speed();
workers_gone();
is(place('t'), 'pg_default', 'the table has not moved');
strays_ok('no file is left behind');
$db->sql('CREATE EXTENSION pgscale');

# The database goes.
$db->sql('CREATE DATABASE going');
my $there = session($node, dbname => 'going');
$there->sql('CREATE EXTENSION pgscale');
table($there);
slow_copy(q{relocate_table('t', 'fast')}, $there);
$there->quit;
is(($ddl->try('DROP DATABASE going'))[0], '00000', 'beside it: DROP DATABASE');
full_speed();
workers_gone();
is(join(' ', grep { !m{/(?:PG_VERSION)$} } glob($node->data_dir . '/pg_tblspc/*/PG_*/*/*')), '', 'no file is left in the tablespaces');

# The disk is to be let go of: the tablespace cannot be dropped while something is copied to it, and can afterwards.
table();
{
    my $job = slow_copy(q{relocate_table('t', 'fast')});
    is(($ddl->try('DROP TABLESPACE fast'))[0], '55000', 'beside it: DROP TABLESPACE is refused');
    is($db->sql("SELECT pgscale.relocation_cancel($job)"), 't', 'cancelled');
    is(ended($job), 'cancelled', 'it ends');
    full_speed();
    is(($ddl->try('DROP TABLESPACE fast'))[0], '00000', 'then it can be dropped');
}

$_->quit for $ddl, $db;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, 'nothing crashed');
$node->stop;
done_testing();
