# Live moves of tables and indexes of every kind, while nothing else happens: there, back, and all of a tablespace until it can be
# dropped. OIDs, rows, the visibility map and what pg_dump shows stay; the files are others, and none is left behind.
use strict;
use warnings;
use PgscaleLive;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

relocation_node(conf => "autovacuum = off");
my $visibility = have_module('pg_visibility');
my $bloom = have_module('bloom');
my $gist = have_module('btree_gist');
$db->sql("CREATE EXTENSION $_") for grep { have_module($_) } qw(amcheck pg_visibility bloom btree_gist);
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
$db->sql(q{CREATE INDEX t_bloom ON t USING bloom (n, v)}) if $bloom;
$db->sql('VACUUM ANALYZE t');
$db->sql('VACUUM (FREEZE) toasted, excluded, two_forks, parent');
$db->sql('UPDATE t SET v = v WHERE id BETWEEN 500 AND 520');    # not all of it is visible
clean_ok();

my @tables = ('t', q{"sch ""'ema"."Ta ble"}, qw(parent matview toasted empty excluded toasted_view two_forks refers));
my ($schema, $rows, $oids, $files) = (schema(), rows($db, @tables), oids(), files());
my @stored = qw(t toasted excluded two_forks leaf1 matview);
my $bits = $visibility ? map_bits($db, @stored) : '';

# Looks up the same by an index and without: the answers, each of both
my @lookups = (
    [ 'SELECT sum(id) FROM t WHERE id BETWEEN 100 AND 1900', '"the key"' ],
    [ 'SELECT sum(id) FROM t WHERE v = md5($$77$$)', 't_hash' ],
    [ 'SELECT sum(id) FROM t WHERE a @> ARRAY[3]', 't_gin' ],
    [ 'SELECT sum(id) FROM t WHERE p <@ box(point(10, 10), point(900, 900))', 't_gist' ],
    [ 'SELECT sum(id) FROM t WHERE v ^@ $$a$$', 't_spgist_text' ],
    [ 'SELECT sum(id) FROM t WHERE n BETWEEN 300 AND 1300', 't_brin' ],
    [ 'SELECT sum(id) FROM t WHERE v > $$8$$ AND n % 2 = 0', 't_partial' ],
    [ 'SELECT sum(id) FROM t WHERE n % 10 = 3', 't_expression' ],
    [ 'SELECT count(*) FROM excluded WHERE during && int4range(100, 2000)', 'excluded_during_excl' ],
    [ 'SELECT sum(length(v)) FROM toasted WHERE id > 0', 'toasted_pkey' ],
    [ 'SELECT count(*) FROM parent WHERE n > 3', 'parent_n' ]);

sub lookups
{
    my @said;

    for my $lookup (@lookups)
    {
        my ($query) = @$lookup;
        my $by = $db->sql("SET enable_seqscan = off; $query");
        my $without = $db->sql("SET enable_seqscan = on; SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off; $query");

        $db->sql('RESET enable_indexscan; RESET enable_bitmapscan; RESET enable_indexonlyscan');
        push @said, "$by=$without";
    }
    return join ' ', @said;
}

my $lookups = lookups();
unlike($lookups, qr/(?:^| )(\S+)=(?!\1(?: |$))/, 'before: what indexes find is what there is');

# All of what was moved is the same, in another place.
sub moved_ok
{
    my ($name, %moved) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my ($now_oids, $now_files) = (oids(), files());

    is_deeply($now_oids, $oids, "$name: OIDs stay");
    is(join(' ', grep { ($now_files->{$_} ne $files->{$_}) != !!$moved{$_} } sort keys %$files), '', "$name: the files of what was moved are others");
    is(rows($db, @tables), $rows, "$name: the rows are the same");
    is(map_bits($db, @stored), $bits, "$name: the visibility map is the same") if $visibility;
    is(lookups(), $lookups, "$name: indexes find the same");
    is(schema(), $schema, "$name: pg_dump shows the same");
    clean_ok("$name: all valid, none left behind");
    sound_ok($name);
    strays_ok("$name: no file is left behind");
    $files = $now_files;
    return;
}

sub of_indexes { return map { $_ => 1 } grep { is_index($_) } keys %$files; }
sub of_tables { return map { $_ => 1 } grep { !is_index($_) } keys %$files; }
my %index = map { $_ => 1 } split /\n/, $db->sql(q{SELECT translate(oid::regclass::text, E'\n', '') FROM pg_class WHERE relkind = 'i'});
sub is_index { return $index{ $_[0] }; }

### There

my @jobs = map { my $table = $_ =~ s/'/''/gr; ask("relocate_table('$table', 'fast')") } @tables;
is(scalar @jobs, 9 + 1 + 1 + 3, 'a job for each table, each partition, and each that is partitioned');
done_ok('tables', @jobs);
moved_ok('tables', of_tables());
is(join(' ', map { place($_) } qw(t leaf1 leaf3 parent sub matview toasted empty excluded two_forks t_unique toasted_pkey)), 'fast ' x 10 . 'pg_default pg_default', 'tables are there, and not their indexes');
is($db->sql(q{SELECT string_agg(DISTINCT reltablespace::text, ' ') = (SELECT oid::text FROM pg_tablespace WHERE spcname = 'fast') FROM pg_class
    WHERE oid IN (SELECT reltoastrelid FROM pg_class WHERE relname IN ('t', 'toasted', 'toasted_view'))
       OR oid IN (SELECT indexrelid FROM pg_index WHERE indrelid IN (SELECT reltoastrelid FROM pg_class WHERE relname IN ('t', 'toasted', 'toasted_view')))}),
    't', 'with what is stored aside, and its index');
my @said = split /\|/, $db->sql(q{SELECT sum(copied_bytes) >= sum(size_bytes) FILTER (WHERE attempts = 1), bool_and(copied_bytes >= 0 AND recopied_blocks >= 0 AND wal_read_bytes >= 0
    AND lock_tries >= 1 AND locked_ms > 0), bool_and(size_after_bytes = pg_table_size(relation::regclass)), bool_and(phase IS NULL AND done_fraction IS NULL AND left_s IS NULL),
    string_agg(DISTINCT mode, ' ') FROM pgscale.relocation_jobs});
is("@said[1 .. 4]", 't t t online', 'what their jobs say');

my @indexes = map { my $table = $_ =~ s/'/''/gr; ask("relocate_indexes('$table', 'fast', mode => 'copy')") } @tables;
is(scalar @indexes, 15 + $bloom + 1 + 10 + 1 + 1 + 1 + 1, 'a job for each index, and for each that is partitioned');
done_ok('indexes', @indexes);
moved_ok('indexes', of_indexes());
is($db->sql(q{SELECT count(*) FROM pg_class c JOIN pg_index i ON i.indexrelid = c.oid WHERE relnamespace = 'public'::regnamespace AND relpersistence = 'p'
    AND reltablespace IS DISTINCT FROM (SELECT oid FROM pg_tablespace WHERE spcname = 'fast')}), 0, 'indexes are there');

# What is made below a partitioned table from now on
$db->sql('CREATE TABLE leaf4 PARTITION OF sub DEFAULT; CREATE TABLE leaf5 PARTITION OF parent FOR VALUES FROM (30) TO (40)');
is($db->sql(q{SELECT string_agg(DISTINCT spcname, ' ') FROM pg_class c JOIN pg_tablespace s ON s.oid = c.reltablespace
    WHERE relname ~ '^leaf[45]'}), 'fast', 'new partitions and their indexes are made there');
is($db->sql(q{SELECT count(*) FROM pg_class WHERE relname ~ '^leaf[45]' AND reltablespace = 0}), 0, 'all of them');
$db->sql('DROP TABLE leaf4, leaf5');

# The constraints are in force.
is(($db->try('INSERT INTO t SELECT * FROM t LIMIT 1'))[0], '23505', 'keys are unique');
is(($db->try('DELETE FROM t WHERE id = 1'))[0], '23503', 'and referenced');
is(($db->try('INSERT INTO excluded VALUES (int4range(12, 13))'))[0], '23P01', 'what is excluded is');
is(($db->try('INSERT INTO excluded VALUES (int4range(16, 17))'))[0], '00000', 'and what is not is not');
$db->sql('DELETE FROM excluded WHERE during = int4range(16, 17); VACUUM (FREEZE) excluded');
$db->sql('REFRESH MATERIALIZED VIEW toasted_view');
is(place('toasted_view'), 'fast', 'it is refreshed where it is');
($rows, $oids, $files, $bits) = (rows($db, @tables), oids(), files(), $visibility ? map_bits($db, @stored) : '');    # with a new TOAST table

### Back

@jobs = map { $db->sql("SELECT pgscale.relocation_undo($_)") } @jobs, @indexes;
done_ok('undone', @jobs);
moved_ok('back', map { $_ => 1 } keys %$files);
is($db->sql('SELECT count(*) FROM pg_class WHERE reltablespace > 16383'), 0, 'all is where it was');
is(($db->try("SELECT pgscale.relocation_undo($jobs[0])"))[0], '00000', 'an undo can be undone');
done_ok('it', $db->sql('SELECT max(job) FROM pgscale.relocation_jobs'));

### A tablespace, until it can be dropped

$files = files();
is(($db->try('DROP TABLESPACE fast'))[0], '55000', 'a tablespace with a table cannot be dropped');
$db->sql('ALTER TABLE unlogged SET LOGGED');
done_ok('all of the default one', ask(q{relocate_tablespace('pg_default', 'fast')}));
is($db->sql(q{SELECT string_agg(c.oid::regclass::text, ' ') FROM pg_class c WHERE reltablespace = 0 AND relkind IN ('r', 'i', 'm', 'p', 'I') AND relnamespace IN
    (SELECT oid FROM pg_namespace WHERE nspname = 'public' OR nspname LIKE 'sch%')}), '', 'is there');
done_ok('and all of that one', ask(q{relocate_tablespace('fast', 'other')}));
is($db->sql(q{SELECT count(*) FROM pg_class WHERE reltablespace = (SELECT oid FROM pg_tablespace WHERE spcname = 'fast')}), 0, 'no relation is there any more');
is(rows($db, @tables), $rows, 'the rows are the same');
is(lookups(), $lookups, 'indexes find the same');
sound_ok('moved on');
strays_ok('no file is left behind');
is(join(' ', ($db->try('DROP TABLESPACE fast'))), '00000 ', 'it can be dropped');

# A database whose own tablespace is not the default one
$db->sql('CREATE DATABASE elsewhere TABLESPACE other');
my $there = session($node, dbname => 'elsewhere');
$there->sql(q{CREATE EXTENSION pgscale; CREATE TABLE t (id int PRIMARY KEY, v text); INSERT INTO t SELECT i, repeat('x', 3000) FROM generate_series(1, 100) i});
for my $to ('pg_default', 'other')
{
    my ($job) = ask("relocate_table('t', '$to')", $there);
    is(ended($job, $there), 'done', "from the database's own tablespace or to it: $to");
    is($there->sql(q{SELECT reltablespace FROM pg_class WHERE relname = 't'}), $to eq 'other' ? 0 : 1663, 'it is there');
    is($there->sql('SELECT count(*), sum(length(v)) FROM t'), '100|300000', 'with its rows');
}
$_->quit for $there, $db;

unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal|could not (?:read|truncate|remove)/, 'nothing went wrong unseen');
$node->stop;
done_testing();
