# PgscaleRelocation.pm: what the tests of moves share: a server with two tablespaces and a session, relations of every kind, and what
# is asked for and expected of a job.
package PgscaleRelocation;

use strict;
use warnings;
use Exporter 'import';
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw($node $db relocation_node relocation_objects ask job_ok done_ok place clean_ok launching held workers_gone schema own_disk);

# The server that the functions below are about, and the session that asks it. A test may put others in their places.
our ($node, $db);

# Starts it. Options are those of pgscale_node, and its name; conf is added to what moves need.
sub relocation_node
{
    my (%option) = @_;
    my $conf = delete $option{conf} // '';
    my $name = delete $option{name} // 'main';

    $node = pgscale_node($name, init => [ allows_streaming => 1 ], %option, conf => <<"EOC");
fsync = off
max_worker_processes = 20
max_prepared_transactions = 5
checkpoint_timeout = 1h
allow_in_place_tablespaces = on
client_min_messages = warning
$conf
EOC
    $db = session($node);
    $db->sql("CREATE TABLESPACE $_ LOCATION ''") for qw(fast other);
    return;
}

# Relations, and indexes of every kind
sub relocation_objects
{
    my $long = 'x' x 63;

    $db->sql(<<"EOQ");
CREATE SCHEMA "sch ""'ema";
CREATE TABLE t (id int CONSTRAINT "the key" PRIMARY KEY, u int CONSTRAINT "once" UNIQUE DEFERRABLE INITIALLY DEFERRED, n int NOT NULL,
    v text, a int[], p point);
INSERT INTO t SELECT i, -i, i, md5(i::text), ARRAY[i % 10, i % 7], point(i, i) FROM generate_series(1, 2000) i;
CREATE UNIQUE INDEX t_unique ON t (n DESC NULLS LAST) WITH (fillfactor = 70);
CREATE INDEX t_partial ON t (v) WHERE n % 2 = 0;
CREATE INDEX t_expression ON t ((n % 10), lower(v) text_pattern_ops, v COLLATE "C");
CREATE INDEX t_include ON t (n) INCLUDE (v);
CREATE INDEX t_gin ON t USING gin (a) WITH (fastupdate = off);
CREATE INDEX t_gist ON t USING gist (p);
CREATE INDEX t_spgist ON t USING spgist (p);
CREATE INDEX t_brin ON t USING brin (n) WITH (pages_per_range = 2);
CREATE INDEX t_hash ON t USING hash (v);
CREATE INDEX "$long" ON t (v, n);
CREATE INDEX "new
line ""quoted"" 'too'; DROP TABLE t" ON t (n, v);
ALTER INDEX t_expression ALTER COLUMN 1 SET STATISTICS 321;
COMMENT ON INDEX t_partial IS 'a comment; with ''quotes''';
COMMENT ON INDEX "the key" IS 'of the index';
COMMENT ON CONSTRAINT "the key" ON t IS 'of the constraint';
ALTER TABLE t REPLICA IDENTITY USING INDEX t_unique;
ALTER TABLE t CLUSTER ON t_include;
EOQ
    $db->sql(<<'EOQ');
CREATE TABLE refers (id int REFERENCES t (id), n int REFERENCES t (n));
INSERT INTO refers SELECT i, i FROM generate_series(1, 20) i;
CREATE TABLE "sch ""'ema"."Ta ble" ("I d" int PRIMARY KEY);
CREATE TABLE parent (id int, n int, PRIMARY KEY (id)) PARTITION BY RANGE (id);
CREATE TABLE leaf1 PARTITION OF parent FOR VALUES FROM (0) TO (10);
CREATE TABLE sub PARTITION OF parent FOR VALUES FROM (10) TO (30) PARTITION BY RANGE (id);
CREATE TABLE leaf2 PARTITION OF sub FOR VALUES FROM (10) TO (20);
CREATE TABLE leaf3 PARTITION OF sub FOR VALUES FROM (20) TO (30);
CREATE INDEX parent_n ON parent (n);
INSERT INTO parent SELECT i, i FROM generate_series(0, 29) i;
CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY);
INSERT INTO unlogged SELECT generate_series(1, 1000);
CREATE MATERIALIZED VIEW matview AS SELECT i AS id FROM generate_series(1, 1000) i;
CREATE UNIQUE INDEX matview_id ON matview (id);
CREATE TABLE toasted (id int PRIMARY KEY, v text);
ALTER TABLE toasted ALTER v SET STORAGE EXTERNAL;
INSERT INTO toasted SELECT i, repeat('x', 5000) FROM generate_series(1, 50) i;
CREATE TABLE empty (id int PRIMARY KEY);
ANALYZE;
EOQ
    return;
}

# Asks for moves; the jobs.
sub ask
{
    my ($call, $session) = @_;

    return split /\n/, ($session // $db)->sql("SELECT * FROM pgscale.$call");
}

# Waits until a job has the expected values; a test.
sub job_ok
{
    my ($job, $columns, $expected, $name, $session) = @_;
    $session //= $db;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return $session->poll_ok("SELECT $columns FROM pgscale.relocation_jobs WHERE job = $job", $name, $expected)
      || !diag $session->sql('SELECT row_to_json(j) FROM pgscale.relocation_jobs j WHERE job = ' . $job);
}

sub done_ok
{
    my ($name, @jobs) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return $db->poll_ok(sprintf('SELECT bool_and(finished_at IS NOT NULL) FROM pgscale.relocation_jobs WHERE job IN (%s)', join ',', @jobs),
        "$name: have ended")
      && is($db->sql(sprintf(q{SELECT string_agg(concat_ws(' ', relation, state, sqlstate, message), '; ') FROM pgscale.relocation_jobs
        WHERE job IN (%s) AND (state <> 'done' OR sqlstate IS NOT NULL)}, join ',', @jobs)), '', "$name: all done");
}

# Where it lies
sub place { my ($relation, $session) = @_; return ($session // $db)->sql(qq{SELECT coalesce(spcname, 'pg_default') FROM pg_class c
    LEFT JOIN pg_tablespace s ON s.oid = c.reltablespace WHERE c.oid = '$relation'::regclass}); }

# No index is invalid, and none there that was not
my $indexes;

sub clean_ok
{
    my $name = shift;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my $now = $db->sql(q{SELECT string_agg(concat_ws(' ', c.oid::regclass, i.indisvalid, i.indisready, i.indislive), '; '
        ORDER BY c.oid::regclass::text) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
        WHERE c.relnamespace <> 'pg_toast'::regnamespace});

    $indexes = $now unless defined $name;
    return defined $name ? is($now, $indexes, $name) : 1;
}

# Has jobs started, or not: returns when the launcher knows, and no worker may take one that does not know yet.
sub launching
{
    my $on = shift;

    $db->set('pgscale.relocation_workers', $on eq 'on' ? 1 : 0);
    until_true(sub { $db->sql("SELECT enabled = '$on' AND (enabled OR NOT EXISTS (SELECT FROM pg_stat_activity
        WHERE backend_type = 'pgscale relocation worker')) FROM pgscale.health WHERE feature = 'relocation'") eq 't' })
      or die "relocation is not $on";
    return;
}

# Starts a job whose REINDEX cannot get past a phase, because of what a session of its own does in a transaction.
sub held
{
    my ($in_transaction, $phase, $index) = @_;
    my $holder = session($node);
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    $holder->sql($in_transaction);
    my ($job) = ask("relocate_index('$index', '" . (place($index) eq 'fast' ? 'other' : 'fast') . "', mode => 'rebuild')");
    job_ok($job, 'state, phase', "running|$phase", "a job that is $phase");
    my $worker = $db->sql("SELECT pid FROM pgscale_internal.relocation_job WHERE job = $job");
    return ($holder, $job, $worker);
}

sub workers_gone { return $db->poll_ok(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pgscale relocation worker'},
    'no worker is left', 0); }

# What is there, but where it lies
sub schema
{
    my ($text) = run_command([ 'pg_dump', '-s', '--no-tablespaces', '-d', $node->connstr('postgres') ]);

    return $text =~ s/^\\(un)?restrict .*\n//mgr;
}

# A PATH with a pg_ctl that first mounts a disk of that size there, with what the folder has, in a namespace of the server alone. The
# kernel takes the disk away with the server, however that ends. undef if that is not possible here
sub own_disk
{
    my ($folder, $size) = @_;
    my $bin = PostgreSQL::Test::Utils::tempdir();
    my $pg_ctl = do { my $dir = qx(pg_config --bindir); chomp $dir; "$dir/pg_ctl" };

    open my $wrapper, '>', "$bin/pg_ctl" or die $!;
    print $wrapper <<"EOW";
#!/bin/sh
export FOLDER='$folder' PG_CTL="\${REAL_PG_CTL:-$pg_ctl}"
exec unshare --user --map-current-user --keep-caps --mount sh -c 'rm -rf "\$FOLDER.start" && cp -a "\$FOLDER" "\$FOLDER.start" && mount -t tmpfs -o size=$size,mode=700 none "\$FOLDER" &&
    cp -a "\$FOLDER.start/." "\$FOLDER" && rm -rf "\$FOLDER.start" && exec "\$PG_CTL" "\$@"' sh "\$@"
EOW
    close $wrapper;
    chmod 0755, "$bin/pg_ctl" or die $!;
    local $ENV{REAL_PG_CTL} = '/bin/true';
    return system("$bin/pg_ctl 2>/dev/null") == 0 ? "$bin:$ENV{PATH}" : undef;
}

1;
