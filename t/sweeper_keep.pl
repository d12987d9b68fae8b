# pgscale.keep(): pages of a relation stay in shared buffers, up to its share, as pg_buffercache counts them;
# no more than that; what it refuses; and the list follows the relation, over a restart and a crash, too.
use strict;
use warnings;
use PgscaleKept;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'this server has no pg_buffercache' unless have_module('pg_buffercache');

my $node = pgscale_node('main', init => [ allows_streaming => 1 ], conf => <<"EOC");
${\ sweeper_conf()}
max_prepared_transactions = 2
synchronous_commit = off
enable_seqscan = off
enable_bitmapscan = off
pgscale.sweeper_writers = 1
pgscale.sweeper_high_watermark = 0.2
EOC
my $db = session($node);
my $pages;
my $file = $node->data_dir . '/pg_stat/pgscale_sweeper_keep.stat';

# A statement fails with that state and message.
sub refused
{
    my ($session, $text, $state, $message) = @_;
    my ($got, $answer) = $session->try($text);
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    is($got, $state, $text);
    like($answer, qr/$message/, 'it says why');
    return like($answer, qr/HINT:/, 'and what to do');
}

sub kept { my $columns = shift; return $db->sql("SELECT $columns FROM (SELECT * FROM pgscale.kept_relations ORDER BY relation) k"); }

# Is the relation's present file the one that is kept?
sub follows
{
    my ($relation, $name, $session) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return ($session // $db)->poll_ok("SELECT relfilenode = pg_relation_filenode(relation_oid), relation = '$relation' FROM pgscale.kept_relations
        WHERE relation_oid = '$relation'::regclass", $name, 't|t');
}

sub in_buffers { my $relation = shift; return $db->sql("SELECT count(*) FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('$relation')"); }

# All pages of a relation are read once, and then those of a table of four times the buffers, until the sweeper has passed and
# replaced as many buffers as there are three times. How many of its pages are there then?
sub stays
{
    my $relation = shift;

    $db->sql("SELECT count(filler) FROM $relation WHERE i > 0");
    $db->sql('CALL go_round(3)');
    return in_buffers($relation);
}

# Does it come to that? On a busy machine the sweeper falls behind for a moment, and then the server's own hand takes pages.
sub comes_to
{
    my ($asks, $name) = @_;
    my $got;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    for (1 .. 8)
    {
        ($got, my $right) = $asks->();
        return pass("$name: $got") if $right;
    }
    return fail("$name: $got");
}

sub most_stay { return comes_to(sub { my $n = stays('hot'); ($n, $n >= $pages * 0.8) }, shift); }
sub most_leave { return comes_to(sub { my $n = stays('hot'); ($n, $n <= $pages / 2) }, shift); }

sub begin
{
    $node->start;
    $db = session($node);
    return;
}

$db->sql(<<'EOQ');
CREATE EXTENSION pg_buffercache;
CREATE TABLE large (i int PRIMARY KEY, filler char(1000));
INSERT INTO large SELECT i, '' FROM generate_series(1, 30000) i;
CREATE TABLE hot (i int PRIMARY KEY, filler char(1000));
INSERT INTO hot SELECT i, '' FROM generate_series(1, 350) i;
CREATE TABLE warm (i int PRIMARY KEY, filler char(1000));
INSERT INTO warm SELECT i, '' FROM generate_series(1, 2100) i;
VACUUM large, hot, warm;
CREATE PROCEDURE go_round(laps int) LANGUAGE plpgsql AS $$
DECLARE
    more int := laps * (SELECT setting::int FROM pg_settings WHERE name = 'shared_buffers');
    passed bigint := (SELECT scanned + more FROM pgscale.sweeper_stats);
    replaced bigint := (SELECT consumed + more FROM pgscale.sweeper_stats);
    at int := 0;
BEGIN
    WHILE EXISTS (SELECT FROM pgscale.sweeper_stats WHERE scanned < passed OR consumed < replaced) LOOP
        PERFORM count(filler) FROM large WHERE i BETWEEN at AND at + 60;
        at := (at + 61) % 30000;
        PERFORM pg_sleep(0.004);
    END LOOP;
END $$;
CHECKPOINT;
EOQ
$pages = $db->sql(q{SELECT pg_relation_size('hot') / 8192});
$db->poll_ok(q{SELECT count(*) FILTER (WHERE state = 'working') FROM pgscale.sweeper_stats}, 'it works', 1);

### What it refuses

$db->sql(<<'EOQ');
CREATE TABLE parted (i int PRIMARY KEY) PARTITION BY LIST (i);
CREATE SEQUENCE numbers;
CREATE TEMP TABLE passing (i int);
CREATE ROLE one LOGIN;
CREATE ROLE two LOGIN;
CREATE TABLE ones (i int);
ALTER TABLE ones OWNER TO one;
EOQ
for my $case ([ q{'parted'}, '42809', 'it is partitioned' ], [ q{'parted_pkey'}, '42809', 'it is partitioned' ],
    [ q{'numbers'}, '42809', 'not a table, index' ], [ q{'passing'}, '42809', 'it is temporary' ],
    [ q{'pg_class'}, '42809', 'it is a system catalog' ], [ q{'pg_database_oid_index'}, '42809', 'it is a system catalog' ],
    [ '1', '42P01', 'relation with OID 1 does not exist' ], [ q{'hot', 0.0005}, '22023', 'is not a single buffer' ],
    map { [ "'hot', $_", '22023', 'cannot keep a fraction of' ] } q{'NaN'}, -0.1, 0.51)
{
    refused($db, "SELECT pgscale.keep($case->[0])", @$case[ 1, 2 ]);
}
is(kept('count(*)'), '0', 'nothing is kept of all that');
ok(!-e $file, 'nor written');
is($db->sql(q{SELECT pgscale.keep('hot', 0.3), pgscale.keep('warm', 0.2)}), '307|204', 'half of the buffers, rounded down');
refused($db, "SELECT pgscale.keep('hot_pkey', 0.01)", '53400', 'cannot keep a fraction of 0.01 of shared_buffers beside the 0.5');
is($db->sql(q{SELECT pgscale.keep('hot', 0.2), pgscale.keep('hot_pkey', 0.1)}), '204|102',
    'another fraction leaves room for others');
is(kept(q{string_agg(relation || ' ' || fraction, ', ' ORDER BY relation)}), 'hot 0.2, hot_pkey 0.1, warm 0.2', 'three are kept');
is($db->sql(q{SELECT pgscale.keep('hot', 0), pgscale.keep('hot_pkey', NULL), pgscale.keep('warm', 0), pgscale.keep('warm', 0)}),
    '0|0|0|0', 'taken back');
is(kept('count(*)'), '0', 'nothing is kept');

$db->sql(q{DO $$ BEGIN FOR i IN 1..65 LOOP EXECUTE format('CREATE TABLE many%s (i int)', i); END LOOP; END $$});
$db->sql(q{SELECT pgscale.keep(format('many%s', i)::regclass, 0.005) FROM generate_series(1, 64) i});
refused($db, "SELECT pgscale.keep('many65', 0.005)", '53400', 'cannot keep more than 64 relations');
is($db->sql(q{SELECT pgscale.keep('many65', 0)}), '0', 'what is not kept can be taken back nevertheless');
$db->sql('DROP TABLE many64; CREATE TABLE many64 (i int)');
is($db->sql(q{SELECT pgscale.keep('many64', 0.005)}), '5', 'what was dropped just now takes no room');
$db->sql(q{BEGIN; CREATE TABLE changed (); DROP TABLE many1});
refused($db, "SELECT pgscale.keep('many65', 0.005)", '53400', 'cannot keep more than 64 relations');
$db->sql('ROLLBACK');
$db->sql(q{DO $$ BEGIN FOR i IN 1..65 LOOP EXECUTE format('DROP TABLE many%s', i); END LOOP; END $$});
$db->poll_ok('SELECT count(*) FROM pgscale.kept_relations', 'what is dropped is kept no more', 0);

### Privileges

my ($one, $two) = map { session($node, user => $_) } qw(one two);
is(($one->try(q{SELECT pgscale.keep('ones')}))[0], '42501', 'an owner may not, without EXECUTE');
$db->sql('GRANT USAGE ON SCHEMA pgscale TO one, two; GRANT EXECUTE ON FUNCTION pgscale.keep TO one, two');
is($one->sql(q{SELECT pgscale.keep('ones')}), '51', 'an owner may, with it');
refused($two, q{SELECT pgscale.keep('ones', 0)}, '42501', 'must be owner of relation "ones"');
is(($two->try('SELECT * FROM pgscale.kept_relations'))[0], '42501', 'what is kept is not for all to see');
$db->sql('GRANT pg_monitor TO two');
is($two->sql('SELECT datname, relation, fraction FROM pgscale.kept_relations'), 'postgres|ones|0.05', 'but for pg_monitor');
is($one->sql(q{SELECT pgscale.keep('ones', NULL)}), '0', 'an owner takes it back');
$_->quit for $one, $two;

### What it does

most_leave('most pages that are read once leave');
$db->sql(q{SELECT pgscale.keep('hot', 0.1)});
most_stay('and stay while they are kept');
comes_to(
    sub {
        $db->sql('CALL go_round(2)');
        my ($held, $counted) = split /\|/,
            $db->sql(q{SELECT buffers_held, (SELECT count(*) FROM pg_buffercache WHERE relfilenode = k.relfilenode)
            FROM pgscale.kept_relations k});
        return ("$held, $counted", abs(($held || -100) - $counted) <= 3);
    },
    'as many are held as pg_buffercache counts');
is(kept(q{buffers_allowed, stayed > 0, state}), '102|t|in force',
    'of 102 that may be, and those that would have left are counted');
$db->sql(q{SELECT pgscale.keep('hot', 0)});

$db->sql(q{SELECT pgscale.keep('ones', 0.05)});
is(kept('stayed'), '0', 'in the place that another one had, pages are counted anew');
$db->sql(q{SELECT pgscale.keep('ones', 0)});

# More pages than its fraction: the sweep goes on.
$db->sql(q{SELECT pgscale.keep('hot', 0.1), pgscale.keep('warm', 0.4)});
comes_to(sub { my $n = stays('warm'); ($n, $n >= 100 && $n <= 1024 * 0.4 + 60) },
    'of a larger one some of the pages stay, but no more than its fraction');
$db->sql(q{SELECT pgscale.keep('warm', 0), pgscale.keep('hot', 0)});
most_leave('taken back, they leave again');
$db->sql(q{SELECT pgscale.keep('hot', 0.1)});
stays('hot');
my ($stayed, $now) = split /\|/, kept('stayed, clock_timestamp()');
$db->sql(q{SELECT pgscale.reset('sweeper')});
is(kept("stayed < $stayed, stats_reset >= '$now'"), 't|t', 'until the reset');

### It follows the relation

follows('hot', 'its file is known');
for my $command ('VACUUM FULL hot', 'TRUNCATE hot', 'ALTER TABLE hot ALTER i TYPE bigint', 'ALTER TABLE hot SET UNLOGGED',
    'ALTER TABLE hot SET LOGGED', 'BEGIN; TRUNCATE hot; VALUES (1); COMMIT', 'BEGIN; TRUNCATE hot; SAVEPOINT a; TRUNCATE hot; ROLLBACK TO a; COMMIT')
{
    my $before = kept('relfilenode');

    $db->sql($command);
    follows('hot', $command);
    isnt(kept('relfilenode'), $before, 'which is another file');
}
mkdir $node->basedir . '/there' or die $!;
$db->sql(sprintf q{CREATE TABLESPACE there LOCATION '%s'}, $node->basedir . '/there');
$db->sql('ALTER TABLE hot SET TABLESPACE there');
follows('hot', 'another tablespace');
$db->sql(q{SELECT pgscale.relocate_table('hot', 'pg_default')});
$db->poll_ok(q{SELECT count(*) FROM pgscale.relocation_jobs WHERE state NOT IN ('done', 'failed')}, 'an online move ends', 0);
is($db->sql(q{SELECT reltablespace FROM pg_class WHERE relname = 'hot'}), '0', 'and has moved it');
follows('hot', 'the list goes with it');

$db->sql(q{SELECT pgscale.keep('hot', 0), pgscale.keep('hot_pkey', 0.1)});
for my $command ('REINDEX INDEX hot_pkey', 'REINDEX TABLE CONCURRENTLY hot')
{
    my $before = kept('relfilenode');

    $db->sql($command);
    follows('hot_pkey', $command);
    isnt(kept('relfilenode'), $before, 'which is another file');
}
# One that has taken over its file with its pages is found, too, and its old name may be another one's.
$db->sql(q{CREATE TABLE named (a varchar(10), b int); INSERT INTO named VALUES ('', 1); CREATE INDEX named_a ON named (a)});
$db->sql(q{SELECT pgscale.keep('hot_pkey', 0), pgscale.keep('named_a', 0.1)});
$db->sql('ALTER TABLE named ALTER a TYPE varchar(20)');
in_time_ok(sub { kept('relation') eq 'named_a' }, 'an index that another one was made of, without a look at its file');
$db->sql('ALTER INDEX named_a RENAME TO named_old; CREATE INDEX named_a ON named (b)');
$db->sql(q{SELECT pgscale.keep('named_a', 0.05)});
is(kept('relation, fraction'), "named_a|0.05\nnamed_old|0.1", 'a name that was given to another index');
$db->sql(q{SELECT pgscale.keep('named_a', 0), pgscale.keep('named_old', 0)});

# A TOAST table that an ALTER TABLE makes anew
$db->sql('CREATE TABLE toasted (a int, b text)');
my $toast = $db->sql(q{SELECT reltoastrelid::regclass FROM pg_class WHERE relname = 'toasted'});
$db->sql("SELECT pgscale.keep('$toast', 0.1)");
$db->sql('ALTER TABLE toasted ALTER a TYPE bigint');
follows($toast, 'a TOAST table of a table that is rewritten');
$db->sql('VACUUM FULL toasted');
follows($toast, 'and vacuumed');
$db->sql('DROP TABLE toasted');
$db->poll_ok('SELECT count(*) FROM pgscale.kept_relations', 'dropped with its table', 0);

### Not a part of a transaction

$db->sql('BEGIN; CREATE TABLE brief (i int)');
refused($db, q{SELECT pgscale.keep('brief', 0.1)}, '55000', 'this transaction has created it');
$db->sql('ROLLBACK');
is(kept('count(*)'), '0', 'a table that was never committed is not kept');
$db->sql(q{BEGIN; TRUNCATE hot; SELECT pgscale.keep('hot', 0.1); ROLLBACK});
follows('hot', 'what a rollback left is found');
$db->sql(q{INSERT INTO hot VALUES (1000, ''); BEGIN; TRUNCATE hot; PREPARE TRANSACTION 'later'; COMMIT PREPARED 'later'});
follows('hot', 'and what a prepared transaction made');
$db->sql(q{BEGIN; SELECT pgscale.keep('hot', 0.1); ROLLBACK});
is(kept('relation'), 'hot', 'a rollback does not take it back');
{
    my $content = slurp_file($file);

    chmod 0500, $node->data_dir . '/pg_stat' or die $!;
    refused($db, q{SELECT pgscale.keep('hot', 0.2)}, '42501', 'could not write file');
    chmod 0700, $node->data_dir . '/pg_stat' or die $!;
    is(kept('fraction'), '0.1', 'what cannot be written is not in force');
    is(slurp_file($file), $content, 'and the file is as it was');
    unlike(slurp_file($node->logfile), qr/could not fsync/, 'of others the folder was synced, too');
}

### Other databases

$db->sql('CREATE DATABASE other');
my $other = session($node, dbname => 'other');
$other->sql(q{CREATE EXTENSION pgscale; CREATE TABLE theirs (i int); INSERT INTO theirs VALUES (1); SELECT pgscale.keep('theirs', 0.2)});
is(kept('datname, relation, state'), "postgres|hot|no effect: it has no pages, or its file is being looked for\nother|theirs|in force",
    'of each database; one has no pages');
# nobody is let in for a while
my $log = -s $node->logfile;
$db->sql('ALTER DATABASE other ALLOW_CONNECTIONS false');
$other->sql('VACUUM FULL theirs');
until_ok(sub { kept('state') =~ /\nno effect: it has no pages, or its file is being looked for$/ }, 'which is said where it is not found');
sleep 2;
$db->sql('ALTER DATABASE other ALLOW_CONNECTIONS true');
in_time_ok(sub { kept('state') =~ /in force$/ }, 'and it is found later');
# a worker that waits for a lock ends
$other->sql('VACUUM FULL theirs; BEGIN; LOCK pg_class');
until_ok(sub { slurp_file($node->logfile, $log) =~ /ERROR: .*canceling statement due to lock timeout/ }, 'a worker fails');
# another file of one that had none of its pages for long is found at once, and in the meantime
$db->sql(q{INSERT INTO hot VALUES (1000, '')});
$db->poll_ok(q{SELECT state FROM pgscale.kept_relations WHERE relation = 'hot'}, 'pages again', 'in force');
sleep 2;
$db->sql('VACUUM FULL hot');
{
    local $PostgreSQL::Test::Utils::timeout_default = 8;
    follows('hot', 'and another file is found as soon as of others');
}
$other->sql('ROLLBACK');
in_time_ok(sub { kept('state') =~ /in force$/ }, 'another one finds the file');
unlike(slurp_file($node->logfile, $log), qr/FATAL/, 'none was refused');
$other->quit;

# A copy of a database has the same OIDs.
$db->sql('CREATE DATABASE again TEMPLATE other');
my $again = session($node, dbname => 'again');
$again->sql(q{SELECT pgscale.keep('theirs', 0.1)});
is(kept(q{string_agg(datname || ' ' || fraction, ', ' ORDER BY datname) FILTER (WHERE relation = 'theirs')}),
    'again 0.1, other 0.2',
    'relations of one OID in two databases are two');
$again->sql(q{SELECT pgscale.keep('theirs', 0)});
is(kept('datname, relation, fraction'), "postgres|hot|0.1\nother|theirs|0.2", 'and each is forgotten by itself');
$again->quit;
$db->sql('DROP DATABASE again');

### A restart and a crash

$db->quit;
$node->restart;
$db = session($node);
is(kept('relation, fraction'), "hot|0.1\ntheirs|0.2", 'after a restart they are kept');
$db->poll_ok('SELECT count(relfilenode) FROM pgscale.kept_relations', 'and their files found, of each database', 2);
$db->sql(q{INSERT INTO hot SELECT i, '' FROM generate_series(1, 350) i; VACUUM hot});
$db->sql(q{SELECT count(filler) FROM large WHERE i > 0});
$db->sql(q{SELECT count(filler) FROM large WHERE i > 0});
$db->poll_ok(q{SELECT count(*) FILTER (WHERE state = 'working') FROM pgscale.sweeper_stats}, 'it is at work', 1);
most_stay('it is in force');
$db->sql(q{SELECT pgscale.keep('warm', 0.1)});
my @pids = ($db->sql('SELECT pid FROM pg_stat_activity') =~ /\d+/g, slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/);
kill_postmaster($node);
until_true(sub { !grep { process_state($_) } @pids });
begin();
is(kept('relation, fraction'), "hot|0.1\ntheirs|0.2\nwarm|0.1", 'after a crash nothing is lost');
follows('warm', 'and the file is known');

# Its database in another tablespace, where it lies in the same file number
$db->sql('ALTER DATABASE other SET TABLESPACE there');
$db->poll_ok(q{SELECT state IN ('in force', 'no effect: the sweeper is warming up') AND relfilenode IS NOT NULL FROM pgscale.kept_relations WHERE relation = 'theirs'},
    'a database that moved');
$log = -s $node->logfile;
$db->sql('DROP DATABASE other');
is($db->sql(q{SELECT datname ~ '^\d+$', state FROM pgscale.kept_relations WHERE relation = 'theirs'}),
    't|its database was dropped', 'a database that was dropped');
$db->sql('VACUUM FULL warm');
follows('warm', 'others are followed as before');
unlike(slurp_file($node->logfile, $log), qr/FATAL/, 'and nobody connects to it');
$db->sql(q{SELECT pgscale.keep('warm', 0)});
is(kept('relation'), 'hot', 'the next call forgets it');
$db->sql('DROP TABLESPACE there');

### A standby has a list of its own, at first that of the backup

my $standby = pgscale_standby($node);
my $there = session($standby);
is($there->sql('SELECT relation, fraction FROM pgscale.kept_relations'), 'hot|0.1', 'on a standby, the list of the backup');
$there->sql(q{SELECT pgscale.keep('warm', 0.2)});
is($there->sql('SELECT count(*) FROM pgscale.kept_relations'), '2', 'to which it may add');
is(kept('count(*)'), '1', 'for itself');
$db->sql('VACUUM FULL warm');
$node->wait_for_catchup($standby, 'replay', $node->lsn('flush'));
follows('warm', 'it follows what is replayed', $there);
$db->sql('DROP TABLE warm');
$node->wait_for_catchup($standby, 'replay', $node->lsn('flush'));
$there->poll_ok('SELECT count(*) FROM pgscale.kept_relations', 'and a DROP', 1);
$there->quit;
$standby->stop;

### Files that are not right

$db->quit;
$node->stop;
my $good = slurp_file($file);
my %bad = (
    'its size is wrong' => with_checksum(substr $good, 0, -5),
    'its checksum is wrong' => substr($good, 0, 50) . 'x' . substr($good, 51),
    'it is of another cluster' => with_checksum(pack('LL', unpack 'LL', $good) . 'xxxxxxxx' . substr $good, 16, -4),
    'it keeps more than can be kept' => with_checksum(substr($good, 0, 32) . pack('d', 0.6) . substr $good, 40, -4),
);
is(with_checksum(substr $good, 0, -4), $good, 'a file ends with its checksum');
my $health = q{SELECT reason, action FROM pgscale.health WHERE feature = 'sweeper'};
for my $problem (sort keys %bad)
{
    my $log = -s $node->logfile;

    write_bytes($file, $bad{$problem});
    begin();
    is(kept('count(*)'), '0', 'nothing is kept by a file that is not right');
    like($db->sql($health), qr/; no relation is kept, because \S+keep\.stat was damaged or of another server\|.*call pgscale\.keep/,
        'as health says');
    $db->quit;
    $node->stop('immediate');
    like(substr(slurp_file($node->logfile), $log), qr/ignoring file "[^"]*keep.stat": $problem/, $problem);
}
unlink $file;
mkdir $file or die $!;
$log = -s $node->logfile;
begin();
like(substr(slurp_file($node->logfile), $log), qr/ignoring file "[^"]*keep.stat": it is not a regular file/, 'nor by a folder');
like($db->sql($health), qr/; no relation is kept, because \S+keep\.stat is not a file\|.*remove it, and call pgscale\.keep/,
    'health says so');
refused($db, q{SELECT pgscale.keep('hot', 0.1)}, '42809', 'could not write file');
rmdir $file or die $!;
$db->sql(q{SELECT pgscale.keep('hot', 0.1)});
unlike($db->sql($health), qr/keep/, 'when it is gone and the list is written, there is nothing to say');
$db->quit;
$node->stop;

done_testing;
