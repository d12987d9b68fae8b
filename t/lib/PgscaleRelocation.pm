# PgscaleRelocation.pm: what the tests of moves share: a server with two tablespaces and a session, relations of every kind, what is
# asked for and expected of a job, and what must be true of rows and files before, during and after a move.
package PgscaleRelocation;

use strict;
use warnings;
use Exporter 'import';
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw($node $db relocation_node relocation_objects two_tables extensions own_disk stopped stop_ok ask rebuild copying
  held held_online of_job job_text job_ok ended ended_ok done_ok in_order_ok place elsewhere launching reloaded workers_gone schema
  clean_ok sound_ok strays strays_ok rows);

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
pgscale.relocation_max_transaction_age = -1
pgscale.sweeper = off
$conf
EOC
    $db = session($node);
    $db->sql("CREATE TABLESPACE $_ LOCATION ''") for qw(fast other);
    return;
}

# Does something while the server is stopped.
sub stopped
{
    my ($do, $how) = @_;

    $db->quit;
    $node->stop($how // 'fast');
    $do->() if $do;
    $node->start;
    $db = session($node);
    return;
}

# Stops it at the end of a test: nothing has crashed, nor does the log have anything else that a test may name.
sub stop_ok
{
    my ($also) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    $db->quit;
    $node->stop;
    # what the server warns of where a worker leaves something behind at the end of a transaction
    my $left = 'WARNING: .*(?:SPI stack| leak|was not closed|still active)';
    my $wrong = "PANIC|TRAP|terminated by signal (?!9:)|$left" . ($also ? "|$also" : '');
    return unlike(slurp_file($node->logfile), qr/$wrong/, 'nothing went wrong unseen');
}

# Creates the extensions that are here, of those that show whether a relation is sound.
sub extensions { $db->sql("CREATE EXTENSION $_") for grep { have_module($_) } qw(amcheck pg_visibility); return; }

# Relations, and indexes of every kind
sub relocation_objects
{
    my $long = 'x' x 63;

    $db->sql(<<"EOQ");
CREATE SCHEMA "sch ""'ema";
CREATE TABLE t (id int CONSTRAINT "the key" PRIMARY KEY, u int CONSTRAINT "once" UNIQUE DEFERRABLE INITIALLY DEFERRED,
    n int NOT NULL,
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

# A table with values in its TOAST table, and one of that many rows, each of a kB
sub two_tables
{
    my ($large) = @_;

    $db->sql(<<"EOQ");
CREATE TABLE t (id int PRIMARY KEY, n int, v text);
ALTER TABLE t ALTER v SET STORAGE EXTERNAL;
INSERT INTO t SELECT i, i, repeat(md5(i::text), 70) FROM generate_series(1, 500) i;
CREATE TABLE large (id int, filler char(1000));
INSERT INTO large SELECT i, '' FROM generate_series(1, $large) i;
EOQ
    return;
}

# Asks for moves; the jobs.
sub ask
{
    my ($call, $session) = @_;

    return split /\n/, ($session // $db)->sql("SELECT * FROM pgscale.$call");
}

# What asks for a rebuild of an index, elsewhere by default
sub rebuild
{
    my ($index, $to, $options) = @_;

    return "relocate_indexes('$index', '" . ($to // elsewhere($index)) . "', mode => 'rebuild'" . ($options // '') . ')';
}

sub of_job
{
    my ($job, $columns, $session) = @_;

    return ($session // $db)->sql("SELECT $columns FROM pgscale.relocation_jobs WHERE job = $job");
}

sub job_text { my ($job, $session) = @_; return of_job($job, 'row_to_json(relocation_jobs)', $session); }

# Waits until a job has the expected values; a test.
sub job_ok
{
    my ($job, $columns, $expected, $name, $session) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return ($session // $db)->poll_ok("SELECT $columns FROM pgscale.relocation_jobs WHERE job = $job", $name, $expected)
      || !diag job_text($job, $session);
}

# Waits for the end of a job: its state
sub ended
{
    my ($job, $session) = @_;
    my $state;

    until_true(sub { ($state = of_job($job, q{CASE WHEN finished_at IS NOT NULL THEN state ELSE '' END}, $session)) ne '' })
      or die "job $job does not end: " . job_text($job, $session);
    return $state;
}

# It ends with these values, of which the first is its state by default.
sub ended_ok
{
    my ($job, $expected, $name, $columns, $session) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    ended($job, $session);
    return is(of_job($job, $columns // 'state', $session), $expected, $name) || !diag job_text($job, $session);
}

sub done_ok
{
    my ($name, @jobs) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    ended($_) for @jobs;
    return is($db->sql(sprintf(q{SELECT string_agg(concat_ws(' ', relation, state, sqlstate, message), '; ')
        FROM pgscale.relocation_jobs
        WHERE job IN (%s) AND (state <> 'done' OR sqlstate IS NOT NULL)}, join ',', @jobs)), '', "$name: done");
}

# The first job has ended before the other one starts.
sub in_order_ok
{
    my ($first, $then, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return is(of_job($first, "finished_at <= (SELECT started_at FROM pgscale.relocation_jobs WHERE job = $then)"), 't', $name);
}

# Where it lies, and the one of the two other tablespaces that it is not in
sub place { my ($relation, $session) = @_; return ($session // $db)->sql(qq{SELECT coalesce(spcname, 'pg_default') FROM pg_class c
    LEFT JOIN pg_tablespace s ON s.oid = c.reltablespace WHERE c.oid = '$relation'::regclass}); }
sub elsewhere { return place(shift) eq 'fast' ? 'other' : 'fast'; }

# Changes a setting, or sets it back to its default, and waits until the session has it.
sub reloaded
{
    my ($setting, $value) = @_;
    my $shown = defined $value ? "current_setting(name) = '$value'" : q{sourcefile NOT LIKE '%auto.conf' IS NOT FALSE};

    $db->set($setting, $value);
    until_true(sub { $db->sql("SELECT $shown FROM pg_settings WHERE name = '$setting'") eq 't' })
      or die "$setting is not " . ($value // 'its default');
    return;
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

sub _worker { return $db->sql('SELECT pid FROM pgscale_internal.relocation_job WHERE job = ' . shift); }

# Starts a rebuild that cannot get past a phase, because of what a session of its own does in a transaction: that session, the job,
# and its worker
sub held
{
    my ($in_transaction, $phase, $index) = @_;
    my $holder = session($node);
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    $holder->sql($in_transaction);
    my ($job) = ask(rebuild($index));
    job_ok($job, 'state, phase', "running|$phase", "a job that is $phase");
    return ($holder, $job, _worker($job));
}

# The same of the online move of a table that the session reads, once all is copied; or of another call, by a session
sub held_online
{
    my ($table, $call, $hold, $session) = @_;
    my $holder = session($node);
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    $holder->sql($hold // "BEGIN; SELECT count(*) FROM $table");
    my ($job) = ask($call =~ /[(]/ ? $call : "relocate_table('$table', '$call')", $session);
    job_ok($job, 'state, phase', 'waiting|waiting for a gap', 'a job that waits for a gap', $session);
    return ($holder, $job, _worker($job));
}

# Starts a copy that is past its beginning, and far from its end until pgscale.relocation_rate is higher: the job and its worker
sub copying
{
    my ($call, $session) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    reloaded('pgscale.relocation_rate', '200kB');
    my ($job) = ask($call, $session);
    job_ok($job, 'state, phase, copied_bytes > 0', 'running|copying|t', 'a copy is under way', $session);
    return ($job, _worker($job)) unless $session;
    return $job;
}

sub workers_gone { return $db->poll_ok(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pgscale relocation worker'},
    'no worker is left', 0); }

# What is there, but where it lies
sub schema
{
    my ($text) = run_command([ 'pg_dump', '-s', '--no-tablespaces', '-d', $node->connstr('postgres') ]);

    return $text =~ s/^\\(un)?restrict .*\n//mgr;
}

# No index is invalid, and none there that was not when it was called without a name
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

# Files of the database, in any tablespace, that belong to no relation that the session sees. The server lists them, because others
# need not see the disk of a tablespace. On a standby no relation may be in the making.
sub strays
{
    my $session = shift;

    # until then the first file of a relation that is gone stays, empty
    $session->sql('CHECKPOINT');
    return split /\n/, $session->sql(<<'EOQ');
WITH d AS (SELECT * FROM pg_database WHERE datname = current_database()), files AS (
    SELECT 1663::oid AS space, file, format('base/%s/%s', d.oid, file) AS path FROM d, pg_ls_dir('base/' || d.oid, true, false) file
    UNION ALL
    SELECT space::oid, file, format('pg_tblspc/%s/%s/%s/%s', space, version, d.oid, file)
      FROM d, pg_ls_dir('pg_tblspc') space,
           LATERAL (SELECT version FROM pg_ls_dir('pg_tblspc/' || space) version WHERE version LIKE 'PG\_%' OFFSET 0) v,
           LATERAL pg_ls_dir(format('pg_tblspc/%s/%s/%s', space, version, d.oid), true, false) file)
SELECT path FROM (SELECT * FROM files WHERE file ~ '^\d+(_(fsm|vm|init))?(\.\d+)?$' OFFSET 0) f
 WHERE (space, substring(file, '^\d+')::oid) NOT IN
       (SELECT coalesce(nullif(reltablespace, 0), dattablespace), pg_relation_filenode(c.oid) FROM pg_class c, d
         WHERE pg_relation_filenode(c.oid) IS NOT NULL)
EOQ
}

sub strays_ok
{
    my ($name, $session) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return is(join(' ', strays($session // $db)), '', "$name: no file is left");
}

# All rows of these tables
sub rows
{
    my ($session, @tables) = @_;
    my $all = q{count(*), md5(coalesce(string_agg(r::text, '|' ORDER BY r::text), ''))};

    return join ' ', map { $session->sql("SELECT $all FROM $_ r") } @tables;
}

# No page is called visible or frozen that is not, and each B-tree has all rows.
sub sound_ok
{
    my ($name, $session) = @_;
    $session //= $db;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    is($session->sql(<<'EOQ'), '', "$name: visible is what is called visible") if have_module('pg_visibility');
SELECT string_agg(c.oid::regclass::text, ' ') FROM pg_class c WHERE relkind IN ('r', 'm', 't') AND oid >= 16384
   AND relnamespace IN ('public'::regnamespace, 'pg_toast'::regnamespace)
   AND (EXISTS (SELECT FROM pg_check_visible(c.oid)) OR EXISTS (SELECT FROM pg_check_frozen(c.oid)))
EOQ
    is(($session->try(<<'EOQ'))[0], '00000', "$name: each B-tree has all rows") if have_module('amcheck');
SELECT bt_index_check(i.indexrelid, true) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
 WHERE amname = 'btree' AND c.relkind = 'i' AND c.oid >= 16384 AND c.relpersistence = 'p' AND i.indisvalid
EOQ
    return;
}

# A PATH with a pg_ctl that first mounts a disk of that size there, with what the folder has, in a namespace of the server alone.
# The kernel takes the disk away with the server, however that ends. undef if that is not possible here
sub own_disk
{
    my ($folder, $size) = @_;
    my $bin = PostgreSQL::Test::Utils::tempdir();
    my $pg_ctl = qx(pg_config --bindir) =~ s{\n}{/pg_ctl}r;

    open my $wrapper, '>', "$bin/pg_ctl" or die $!;
    print $wrapper <<"EOW";
#!/bin/sh
export FOLDER='$folder' PG_CTL="\${REAL_PG_CTL:-$pg_ctl}"
exec unshare --user --map-current-user --keep-caps --mount sh -c 'rm -rf "\$FOLDER.start" && cp -a "\$FOLDER" "\$FOLDER.start" &&
    mount -t tmpfs -o size=$size,mode=700 none "\$FOLDER" && cp -a "\$FOLDER.start/." "\$FOLDER" && rm -rf "\$FOLDER.start" &&
    exec "\$PG_CTL" "\$@"' sh "\$@"
EOW
    close $wrapper;
    chmod 0755, "$bin/pg_ctl" or die $!;
    local $ENV{REAL_PG_CTL} = '/bin/true';
    return system("$bin/pg_ctl 2>/dev/null") == 0 ? "$bin:$ENV{PATH}" : undef;
}

1;
