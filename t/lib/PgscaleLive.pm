# PgscaleLive.pm: what the tests of live moves share: what must be true of data and files before, during and after a move.
package PgscaleLive;

use strict;
use warnings;
use Exporter 'import';
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(two_tables elsewhere strays strays_ok rows files oids map_bits sound_ok ended held_live job_text);

# Files of the database, in any tablespace, that belong to no relation that the session sees. The server lists them, because others
# need not see the disk of a tablespace. On a standby no relation may be in the making.
sub strays
{
    my $session = shift;
    my $database = $session->sql('SELECT oid FROM pg_database WHERE datname = current_database()');
    my @strays;

    # until then the first file of a relation that is gone stays, empty
    $session->sql('CHECKPOINT');
    my %known = map { m{([^/]+/\d+)$} ? ($1 => 1) : () } map { place_of($_) }
      split /\n/, $session->sql(q{SELECT pg_relation_filepath(oid) FROM pg_class WHERE relkind IN ('r', 'i', 't', 'm', 'S')});
    for my $path (split /\n/, $session->sql(<<"EOQ"))
SELECT 'base/$database/' || file FROM pg_ls_dir('base/$database', true, false) file
UNION ALL
SELECT concat_ws('/', 'pg_tblspc', space, version, '$database', file)
  FROM pg_ls_dir('pg_tblspc') space,
       LATERAL (SELECT version FROM pg_ls_dir('pg_tblspc/' || space) version WHERE version LIKE 'PG\\_%' OFFSET 0) v,
       LATERAL pg_ls_dir(concat_ws('/', 'pg_tblspc', space, version, '$database'), true, false) file
EOQ
    {
        next if $path !~ m{/(\d+)(?:_(?:fsm|vm|init))?(?:\.\d+)?$};
        my $file = $1;
        my ($space) = $path =~ m{pg_tblspc/(\d+)/};
        push @strays, $path unless $known{ ($space // 'base') . "/$file" };
    }
    return @strays;
}

# A path that the server knows as tablespace/file
sub place_of
{
    my $path = shift;

    return $path =~ m{^pg_tblspc/(\d+)/.*/(\d+)$} ? "$1/$2" : $path =~ m{/(\d+)$} ? "base/$1" : $path;
}

sub strays_ok
{
    my ($name, $session) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return is(join(' ', strays($session // $db)), '', $name);
}

# All rows of these tables
sub rows
{
    my ($session, @tables) = @_;

    return join ' ', map { $session->sql("SELECT count(*), md5(coalesce(string_agg(r::text, '|' ORDER BY r::text), '')) FROM $_ r") } @tables;
}

# Files, and OIDs, of relations of the schema public and their TOAST tables, those that are stored
sub files { return list('pg_relation_filenode(c.oid)'); }
sub oids { return list('c.oid'); }

sub list
{
    my $what = shift;

    return { map { split /\|/ } split /\n/, $db->sql(<<"EOQ") };
WITH public AS (SELECT oid, reltoastrelid FROM pg_class WHERE relkind IN ('r', 'm', 'p') AND relnamespace = 'public'::regnamespace)
SELECT translate(coalesce(t.oid::regclass || ' toast' || repeat(' index', (c.relkind = 'i')::int), c.oid::regclass::text), E'|\\n', ''), $what
  FROM pg_class c
  LEFT JOIN pg_index i ON i.indexrelid = c.oid
  LEFT JOIN public t ON t.reltoastrelid = coalesce(i.indrelid, c.oid)
 WHERE c.relkind IN ('r', 'm', 'i', 't') AND c.relpersistence = 'p' AND (c.oid IN (SELECT oid FROM public) OR i.indrelid IN (SELECT oid FROM public) OR t.oid IS NOT NULL)
EOQ
}

# How many pages of each table are all-visible and all-frozen
sub map_bits
{
    my ($session, @tables) = @_;

    return join ' ', map { $session->sql("SELECT all_visible, all_frozen FROM pg_visibility_map_summary('$_')") } @tables;
}

# No page is called visible or frozen that is not, and each B-tree has all rows.
sub sound_ok
{
    my ($name, $session) = @_;
    $session //= $db;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

  SKIP:
    {
        skip 'this server has no pg_visibility', 1 unless have_module('pg_visibility');
        is($session->sql(q{SELECT string_agg(c.oid::regclass::text, ' ') FROM pg_class c WHERE relkind IN ('r', 'm', 't') AND relnamespace IN ('public'::regnamespace, 'pg_toast'::regnamespace)
            AND oid >= 16384 AND (EXISTS (SELECT FROM pg_check_visible(c.oid)) OR EXISTS (SELECT FROM pg_check_frozen(c.oid)))}), '', "$name: visible is what is called visible");
    }
  SKIP:
    {
        skip 'this server has no amcheck', 1 unless have_module('amcheck');
        is(($session->try(q{SELECT bt_index_check(i.indexrelid, true) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
            WHERE amname = 'btree' AND c.relkind = 'i' AND c.oid >= 16384 AND c.relpersistence = 'p' AND i.indisvalid}))[0], '00000', "$name: each B-tree has all rows");
    }
    return;
}

sub job_text { my ($job, $session) = @_; return ($session // $db)->sql("SELECT row_to_json(j) FROM pgscale.relocation_jobs j WHERE job = $job"); }

# Waits for the end of a job: its state
sub ended
{
    my ($job, $session) = @_;
    $session //= $db;
    my $state;

    until_true(sub { ($state = $session->sql("SELECT state FROM pgscale.relocation_jobs WHERE job = $job AND finished_at IS NOT NULL")) ne '' })
      or die "job $job does not end: " . job_text($job, $session);
    return $state;
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

# The one of the two other tablespaces that a table is not in
sub elsewhere { my $table = shift; return place($table) eq 'fast' ? 'other' : 'fast'; }

# Starts the live move of a table that another session holds by reading it: the session, the job and its worker, once all is copied.
sub held_live
{
    my ($table, $tablespace, $hold) = @_;
    my $holder = session($node);
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    $holder->sql($hold // "BEGIN; SELECT count(*) FROM $table");
    my ($job) = ask("relocate_table('$table', '$tablespace')");
    job_ok($job, 'state, phase', 'waiting|waiting for a gap', 'a job that waits for a gap');
    return ($holder, $job, $db->sql("SELECT pid FROM pgscale_internal.relocation_job WHERE job = $job"));
}

1;
