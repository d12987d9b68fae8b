# Moves of tables and indexes of every kind: rebuilt, under a lock, and online; there, back, and all of a tablespace until it can be
# dropped. Rows, what indexes find, and what pg_dump shows stay as they were; an online move keeps OIDs and the visibility map, too. No
# file and no invalid index is left behind.
# Runs on each major.
use strict;
use warnings;
use PgscaleRelocation;
use PgscaleTest;
use Test::More;

relocation_node();
my %has = map { $_ => have_module($_) ? 1 : 0 } qw(amcheck pg_visibility pg_prewarm bloom btree_gist);
$db->sql("CREATE EXTENSION $_") for grep { $has{$_} } sort keys %has;
relocation_objects();
$db->sql(<<'EOQ');
CREATE TABLE excluded (during int4range, EXCLUDE USING gist (during WITH &&));
INSERT INTO excluded SELECT int4range(i * 10, i * 10 + 5) FROM generate_series(1, 500) i;
CREATE INDEX t_spgist_text ON t USING spgist (v);
CREATE INDEX t_gin_fast ON t USING gin (a);
CREATE MATERIALIZED VIEW toasted_view AS SELECT id, v FROM toasted;
ALTER TABLE t ADD long text;
ALTER TABLE t ALTER long SET STORAGE EXTERNAL;
UPDATE t SET long = repeat(md5(id::text), 200) WHERE id % 20 = 0;
DELETE FROM toasted WHERE id > 45;
CREATE TABLE two_forks (id int) WITH (fillfactor = 10);
INSERT INTO two_forks SELECT generate_series(1, 5000);
EOQ
$db->sql('CREATE INDEX t_bloom ON t USING bloom (n, v)') if $has{bloom};
$db->sql('VACUUM ANALYZE t');
$db->sql('VACUUM (FREEZE) toasted, excluded, two_forks, parent');
$db->sql('UPDATE t SET v = v WHERE id BETWEEN 500 AND 520');    # not all of it is visible
clean_ok();

my @tables = ('t', q{"sch ""'ema"."Ta ble"}, qw(parent matview toasted empty excluded toasted_view two_forks refers));

# Files, and OIDs, of relations of the schema public and their TOAST tables
sub of_relations
{
    my $what = shift;

    return { map { split /\|/ } split /\n/, $db->sql(<<"EOQ") };
WITH public AS (SELECT oid, reltoastrelid FROM pg_class WHERE relkind IN ('r', 'm', 'p') AND relnamespace = 'public'::regnamespace)
SELECT translate(coalesce(t.oid::regclass || ' toast' || repeat(' index', (c.relkind = 'i')::int), c.oid::regclass::text),
    E'|\\n', ''),
       $what
  FROM pg_class c
  LEFT JOIN pg_index i ON i.indexrelid = c.oid
  LEFT JOIN public t ON t.reltoastrelid = coalesce(i.indrelid, c.oid)
 WHERE c.relkind IN ('r', 'm', 'i', 't') AND c.relpersistence = 'p'
   AND (c.oid IN (SELECT oid FROM public) OR i.indrelid IN (SELECT oid FROM public) OR t.oid IS NOT NULL)
EOQ
}

# How many pages of tables are all-visible and all-frozen
sub map_bits
{
    return '' unless $has{pg_visibility};
    return join ' ', map { $db->sql("SELECT all_visible, all_frozen FROM pg_visibility_map_summary('$_')") }
      qw(t toasted excluded two_forks leaf1 matview);
}

# The same looked up by an index and without: the answers
sub lookups
{
    my @said;

    for my $query (
        'sum(id) FROM t WHERE id BETWEEN 100 AND 1900',
        'sum(id) FROM t WHERE v = md5($$77$$)',
        'sum(id) FROM t WHERE a @> ARRAY[3]',
        'sum(id) FROM t WHERE p <@ box(point(10, 10), point(900, 900))',
        'sum(id) FROM t WHERE v ^@ $$a$$',
        'sum(id) FROM t WHERE n BETWEEN 300 AND 1300',
        'sum(id) FROM t WHERE v > $$8$$ AND n % 2 = 0',
        'sum(id) FROM t WHERE n % 10 = 3',
        'count(*) FROM excluded WHERE during && int4range(100, 2000)',
        'sum(length(v)) FROM toasted WHERE id > 0',
        'count(*) FROM parent WHERE n > 3')
    {
        my ($by, $without) = map { my ($table, $index) = @$_; $db->sql(<<"EOQ") } [ 'off', 'on' ], [ 'on', 'off' ];
BEGIN; SET LOCAL enable_seqscan = $table; SET LOCAL enable_indexscan = $index; SET LOCAL enable_bitmapscan = $index;
SET LOCAL enable_indexonlyscan = $index; SELECT $query; COMMIT
EOQ
        push @said, "$by=$without";
    }
    return join ' ', @said;
}

my $file = 'pg_relation_filenode(c.oid)';
my ($schema, $rows, $bits, $lookups, $oids, $files) = (schema(), rows($db, @tables), map_bits(), lookups());
like($schema, qr/SET STATISTICS 321.*CLUSTER ON t_include.*REPLICA IDENTITY USING INDEX t_unique/s, 'pg_dump shows what there is');
unlike($lookups, qr/(?:^| )(\S+)=(?!\1(?: |$))/, 'what indexes find is what there is');

sub same_ok
{
    my $name = shift;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    is(rows($db, @tables), $rows, "$name: the rows are the same");
    is(lookups(), $lookups, "$name: indexes find the same");
    is(schema(), $schema, "$name: pg_dump shows the same");
    clean_ok("$name: all valid, none left behind");
    sound_ok($name);
    strays_ok($name);
    return;
}

# After online moves of these
sub moved_ok
{
    my ($name, %moved) = @_;
    my ($now_oids, $now_files) = map { of_relations($_) } 'c.oid', $file;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    same_ok($name);
    is_deeply($now_oids, $oids, "$name: OIDs stay");
    is(join(' ', grep { ($now_files->{$_} ne $files->{$_}) != !!$moved{$_} } sort keys %$files), '',
        "$name: the files of what was moved are others");
    is(map_bits(), $bits, "$name: the visibility map is the same");
    $files = $now_files;
    return;
}

sub requests { my ($call, @of) = @_; return map { ask(sprintf $call, s/'/''/gr) } @of; }
my $moved = 'SELECT count(*) FROM pg_class WHERE reltablespace > 16383';

### Indexes, rebuilt

my $options = sprintf "amcheck => %s, prewarm => %s, mode => 'rebuild'", map { $has{$_} ? 'true' : 'false' } qw(amcheck pg_prewarm);
my @jobs = requests("relocate_indexes('%s', 'fast', $options)", @tables[ 0 .. 5 ], 'unlogged');
is(scalar @jobs, 15 + $has{bloom} + 1 + 6 + 1 + 1 + 1 + 1, 'a job for each index');
done_ok('every kind of index', @jobs);
same_ok('rebuilt');
is($db->sql(q{SELECT string_agg(relation, ' ') FROM pgscale.relocation_jobs
    WHERE size_after_bytes IS DISTINCT FROM pg_table_size(relation::regclass) OR target <> 'fast'}), '',
        'they are as large as their jobs say');
is($db->sql($moved), @jobs, 'they are there');
is($db->sql(q{SELECT count(*) FROM pg_stats WHERE tablename = 't_expression'}), 2, 'the statistics of expressions are kept');
my $usage = q{SELECT mean_usage FROM pgscale.relation_buffers WHERE relation = 't_gist'::regclass AND fork = 'main'};
my $prewarmed = $db->sql($usage);
is($db->sql('SELECT bool_and(size_bytes > 0 AND attempts = 1 AND finished_at >= started_at AND started_at >= requested_at
    AND phase IS NULL AND done_fraction IS NULL AND wait_until IS NULL) FROM pgscale.relocation_jobs'), 't', 'what their jobs say');
my @undone = map { $db->sql("SELECT pgscale.relocation_undo($_)") } @jobs;
done_ok('undone', @undone);
# both have been read once, by REINDEX; the first one once more
cmp_ok($prewarmed, '>', $db->sql($usage), 'what was to be prewarmed was') if $has{pg_prewarm};
is($db->sql($moved), 0, 'they are where they were');
is($db->sql('SELECT string_agg(concat(u.undo_of), $$ $$ ORDER BY u.job), bool_and(u.relation = j.relation)
    FROM pgscale.relocation_jobs u JOIN pgscale.relocation_jobs j ON j.job = u.undo_of'), "@jobs|t", 'jobs tell what they undo');

### Tables, under a lock

@jobs = requests("relocate_table('%s', 'fast', 'lock')", qw(t parent unlogged matview toasted empty));
is(scalar @jobs, 1 + 3 + 1 + 1 + 1 + 1, 'a job for each table');
done_ok('tables', @jobs);
is(join(' ', map { place($_) } qw(t leaf1 leaf2 leaf3 unlogged matview toasted empty t_unique)), 'fast ' x 8 . 'pg_default',
    'they have moved');
my $toast_is_there = q{SELECT bool_and(reltablespace = (SELECT oid FROM pg_tablespace WHERE spcname = 'fast')) FROM pg_class
    WHERE oid IN (SELECT unnest(ARRAY[reltoastrelid, indexrelid]) FROM pg_class JOIN pg_index ON indrelid = reltoastrelid
        WHERE relname IN ('t', 'toasted'))};
is($db->sql($toast_is_there), 't', 'with what is stored aside, and its index');
same_ok('tables');
done_ok('undone', map { $db->sql("SELECT pgscale.relocation_undo($_)") } @jobs);
is($db->sql($moved), 0, 'they are where they were');
my ($state, $text) = $db->try("SELECT pgscale.relocation_undo($jobs[0])");
like("$state $text", qr/^55000 .*relocation job $jobs[0] is done, and there is nothing to undo\nHINT:  Only a relation that the job has moved/s,
    'nothing is undone twice');
@jobs = ask(q{relocate_indexes('t_gin', 'fast', mode => 'rebuild')});
done_ok('once more', @jobs);
$db->sql('DROP INDEX t_gin; CREATE INDEX t_gin ON t USING gin (a) WITH (fastupdate = off)');
is(($db->try("SELECT pgscale.relocation_undo($jobs[0])"))[0], '42704', 'nor is what has been built anew');
clean_ok();

### Online

($schema, $oids, $files, $bits) = (schema(), of_relations('c.oid'), of_relations($file), map_bits());
my $first = $db->sql('SELECT max(job) + 1 FROM pgscale.relocation_jobs');
my %index = map { $_ => 1 } split /\n/,
    $db->sql(q{SELECT translate(oid::regclass::text, E'\n', '') FROM pg_class WHERE relkind = 'i'});
@jobs = requests("relocate_table('%s', 'fast')", @tables);
is(scalar @jobs, 9 + 1 + 1 + 3, 'a job for each table, each partition, and each that is partitioned');
done_ok('online: tables', @jobs);
moved_ok('online: tables', map { $_ => 1 } grep { !$index{$_} } keys %$files);
is(join(' ', map { place($_) } qw(t leaf1 leaf3 parent sub matview toasted empty excluded two_forks t_unique toasted_pkey)),
    'fast ' x 10 . 'pg_default pg_default', 'tables are there, and not their indexes');
is($db->sql($toast_is_there), 't', 'with what is stored aside, and its index');
is($db->sql(<<"EOQ"), 't|t|t|online', 'what their jobs say');
SELECT bool_and(copied_bytes >= 0 AND recopied_blocks >= 0 AND wal_read_bytes >= 0 AND lock_tries >= 1 AND locked_ms > 0),
       bool_and(size_after_bytes = pg_table_size(relation::regclass)),
       bool_and(phase IS NULL AND done_fraction IS NULL AND left_s IS NULL), string_agg(DISTINCT mode, ' ')
  FROM pgscale.relocation_jobs WHERE job >= $first
EOQ
my @indexes = requests("relocate_indexes('%s', 'fast', mode => 'online')", @tables);
is(scalar @indexes, 15 + $has{bloom} + 1 + 10 + 1 + 1 + 1 + 1, 'a job for each index, and for each that is partitioned');
done_ok('online: indexes', @indexes);
moved_ok('online: indexes', map { $_ => 1 } grep { $index{$_} } keys %$files);

# What is made below a partitioned table from now on
$db->sql('CREATE TABLE leaf4 PARTITION OF sub DEFAULT; CREATE TABLE leaf5 PARTITION OF parent FOR VALUES FROM (30) TO (40)');
is($db->sql(q{SELECT string_agg(DISTINCT coalesce(spcname, 'pg_default'), ' ') FROM pg_class c LEFT JOIN pg_tablespace s
    ON s.oid = c.reltablespace WHERE relname ~ '^leaf[45]'}), 'fast', 'new partitions and their indexes are made there');
$db->sql('DROP TABLE leaf4, leaf5');

# The constraints are in force.
for my $case (
    [ 'INSERT INTO t SELECT * FROM t LIMIT 1', '23505', 'keys are unique' ],
    [ 'DELETE FROM t WHERE id = 1', '23503', 'and referenced' ],
    [ 'INSERT INTO excluded VALUES (int4range(12, 13))', '23P01', 'what is excluded is' ],
    [ 'BEGIN; INSERT INTO excluded VALUES (int4range(16, 17)); ROLLBACK', '00000', 'and what is not is not' ],
    [ 'BEGIN; UPDATE t SET u = -2 WHERE id = 1; UPDATE t SET u = -1 WHERE id = 2; SET CONSTRAINTS ALL IMMEDIATE; ROLLBACK', '00000',
        'deferred as before' ])
{
    is(($db->try($case->[0]))[0], $case->[1], $case->[2]);
    $db->try('ROLLBACK');
}
$db->sql('VACUUM (FREEZE) excluded; REFRESH MATERIALIZED VIEW toasted_view');
is(place('toasted_view'), 'fast', 'it is refreshed where it is');
($rows, $oids, $files, $bits) = (rows($db, @tables), of_relations('c.oid'), of_relations($file), map_bits());

@jobs = map { $db->sql("SELECT pgscale.relocation_undo($_)") } @jobs, @indexes;
done_ok('undone', @jobs);
moved_ok('back', map { $_ => 1 } keys %$files);
is($db->sql($moved), 0, 'all is where it was');
done_ok('an undo that is undone', $db->sql("SELECT pgscale.relocation_undo($jobs[0])"));

### A tablespace, until it can be dropped

is(($db->try('DROP TABLESPACE fast'))[0], '55000', 'a tablespace with a table cannot be dropped');
$db->sql('ALTER TABLE unlogged SET LOGGED');
$schema = schema();
done_ok('all of the default one', ask(q{relocate_tablespace('pg_default', 'fast')}));
is($db->sql(q{SELECT string_agg(c.oid::regclass::text, ' ') FROM pg_class c WHERE reltablespace = 0
    AND relkind IN ('r', 'i', 'm', 'p', 'I')
    AND relnamespace IN (SELECT oid FROM pg_namespace WHERE nspname = 'public' OR nspname LIKE 'sch%')}), '', 'is there');
done_ok('and all of that one', ask(q{relocate_tablespace('fast', 'other')}));
same_ok('moved on');
is(join(' ', ($db->try('DROP TABLESPACE fast'))), '00000 ', 'it can be dropped');

# A database whose own tablespace is not the default one
$db->sql('CREATE DATABASE elsewhere TABLESPACE other');
my $there = session($node, dbname => 'elsewhere');
$there->sql(q{CREATE EXTENSION pgscale; CREATE TABLE t (id int PRIMARY KEY, v text);
    INSERT INTO t SELECT i, repeat('x', 3000) FROM generate_series(1, 100) i});
for my $to ('pg_default', 'other')
{
    my ($job) = ask("relocate_table('t', '$to')", $there);
    ended_ok($job, 'done', "from the database's own tablespace or to it: $to", 'state', $there);
    is($there->sql(q{SELECT reltablespace FROM pg_class WHERE relname = 't'}), $to eq 'other' ? 0 : 1663, 'it is there');
    is($there->sql('SELECT count(*), sum(length(v)) FROM t'), '100|300000', 'with its rows');
}
$there->quit;
stop_ok('could not (?:read|truncate|remove)');
done_testing();
