# Moves of indexes of every kind and of tables, there and back: afterwards all is the same as before, but in its new place. What must
# not change is compared by pg_dump.
use strict;
use warnings;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

relocation_node();

### Every kind of index is what it was

my $amcheck = have_module('amcheck');
my $prewarm = have_module('pg_prewarm');
$db->sql('CREATE EXTENSION amcheck') if $amcheck;
$db->sql('CREATE EXTENSION pg_prewarm') if $prewarm;
my $options = sprintf 'amcheck => %s, prewarm => %s', map { $_ ? 'true' : 'false' } $amcheck, $prewarm;
relocation_objects();
clean_ok();
my $schema = schema();
like($schema, qr/SET STATISTICS 321.*CLUSTER ON t_include.*REPLICA IDENTITY USING INDEX t_unique/s, 'pg_dump shows what there is');
my @tables = ('t', q{"sch ""'ema"."Ta ble"}, qw(parent unlogged matview toasted empty));
my @jobs = map { my $table = $_ =~ s/'/''/gr; ask("relocate_indexes('$table', 'fast', $options, mode => 'rebuild')") } @tables;
is(scalar @jobs, 13 + 1 + 6 + 1 + 1 + 1 + 1, 'a job for each index');
done_ok('every kind of index', @jobs);
is(schema(), $schema, 'they are what they were');
clean_ok('all valid, none left behind');
my $elsewhere = q{SELECT string_agg(c.oid::regclass::text, ', ') FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
    WHERE c.oid >= 16384 AND c.relkind = 'i' AND c.relnamespace NOT IN ('pgscale_internal'::regnamespace, 'pg_toast'::regnamespace)
    AND c.reltablespace IS DISTINCT FROM (SELECT oid FROM pg_tablespace WHERE spcname = 'fast')};
is($db->sql($elsewhere), '', 'they are where they should be');
is($db->sql(q{SELECT count(*) FROM pg_stats WHERE tablename = 't_expression'}), 2, 'the statistics of expressions are kept');
is($db->sql(q{SELECT string_agg(relation, ' ') FROM pgscale.relocation_jobs WHERE size_after_bytes IS DISTINCT FROM pg_table_size(relation::regclass)}), '',
    'they are as large as their jobs say');
my $usage = q{SELECT b.mean_usage FROM pgscale.relation_buffers b JOIN pg_class c ON c.oid = b.relation WHERE relname = 't_gist' AND fork = 'main'};
my $prewarmed = $db->sql($usage);
is($db->sql('SELECT bool_and(size_bytes > 0 AND attempts = 1 AND finished_at >= started_at AND started_at >= requested_at
    AND phase IS NULL AND done_fraction IS NULL AND wait_until IS NULL) FROM pgscale.relocation_jobs'), 't', 'what their jobs say');
is(($db->try('INSERT INTO t SELECT * FROM t LIMIT 1'))[0], '23505', 'keys are unique');
is(($db->try('DELETE FROM t WHERE id = 1'))[0], '23503', 'and referenced');
is(($db->try('BEGIN; UPDATE t SET u = -2 WHERE id = 1; UPDATE t SET u = -1 WHERE id = 2; COMMIT'))[0], '00000', 'deferred as before');
SKIP:
{
    skip 'this server has no amcheck', 1 unless $amcheck;

    is(($db->try(q{SELECT bt_index_check(i.indexrelid, true) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        JOIN pg_am a ON a.oid = c.relam WHERE amname = 'btree' AND relkind = 'i' AND c.oid >= 16384 AND relpersistence <> 't'}))[0],
        '00000', 'they are sound');
}

# Back
my @moved = @jobs;
@jobs = map { $db->sql("SELECT pgscale.relocation_undo($_)") } @jobs;
done_ok('undone', @jobs);
# both have been read once, by REINDEX; the first one once more
cmp_ok($prewarmed, '>', $db->sql($usage), 'what was to be prewarmed was') if $prewarm;
is(schema(), $schema, 'they are what they were');
clean_ok('all valid, none left behind');
is($db->sql('SELECT count(*) FROM pg_class WHERE reltablespace > 16383'), 0, 'and where they were');
is($db->sql('SELECT string_agg(concat(u.undo_of), $$ $$ ORDER BY u.job), bool_and(u.relation = j.relation)
    FROM pgscale.relocation_jobs u JOIN pgscale.relocation_jobs j ON j.job = u.undo_of'), "@moved|t", 'jobs tell what they undo');

# Tables
my @before = split /\n/, $db->sql('SELECT sum(length(v)) FROM toasted UNION ALL SELECT count(*) FROM parent');
@jobs = map { ask("relocate_table('$_', 'fast', 'lock')") } qw(t parent unlogged matview toasted empty);
is(scalar @jobs, 1 + 3 + 1 + 1 + 1 + 1, 'a job for each table');
done_ok('tables', @jobs);
is(join(' ', map { place($_) } qw(t leaf1 leaf2 leaf3 unlogged matview toasted empty t_unique)), 'fast ' x 8 . 'pg_default', 'they have moved');
is($db->sql(q{SELECT count(*) FROM pg_class WHERE oid = (SELECT reltoastrelid FROM pg_class WHERE oid = 'toasted'::regclass)
    AND reltablespace = (SELECT oid FROM pg_tablespace WHERE spcname = 'fast')}), 1, 'with what is stored aside');
is($db->sql('SELECT sum(length(v)) FROM toasted UNION ALL SELECT count(*) FROM parent'), join("\n", @before), 'nothing is missing');
is(schema(), $schema, 'they are what they were');
done_ok('undone', map { $db->sql("SELECT pgscale.relocation_undo($_)") } @jobs);
is($db->sql('SELECT count(*) FROM pg_class WHERE reltablespace > 16383'), 0, 'and where they were');
my ($state, $text) = $db->try("SELECT pgscale.relocation_undo($jobs[0])");
is($state, '55000', 'there is nothing to undo twice');
like($text, qr/relocation job $jobs[0] is done, and there is nothing to undo\nHINT:  Only what a job has moved/, 'which is said');
@jobs = ask(q{relocate_index('t_gin', 'fast', mode => 'rebuild')});
done_ok('once more', @jobs);
$db->sql('DROP INDEX t_gin; CREATE INDEX t_gin ON t USING gin (a) WITH (fastupdate = off)');
is(($db->try("SELECT pgscale.relocation_undo($jobs[0])"))[0], '42704', 'nor is what has been built anew');
workers_gone();

$db->quit;
$node->stop;
done_testing();
