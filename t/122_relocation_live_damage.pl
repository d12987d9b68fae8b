# Live moves of tables with a damaged page on the disk that shared buffers hold otherwise, because a session has read it with
# zero_damaged_pages or ignore_checksum_failure: a copy would make it valid, and the old file, from which the rows could be
# restored, would be gone. The move refuses, as ALTER TABLE SET TABLESPACE does. Pages that are zeros on the disk are no damage.
use strict;
use warnings;
use PgscaleLive;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $page = 8192;

relocation_node(init => [ extra => ['-k'] ], conf => "autovacuum = off\nbgwriter_lru_maxpages = 0\npgscale.sweeper = off\nfull_page_writes = on");
$db->sql(<<'EOQ');
CREATE TABLE t (id int PRIMARY KEY, filler char(500));
INSERT INTO t SELECT i, i FROM generate_series(1, 2000) i;
VACUUM (FREEZE) t;
CREATE TABLE zeros (id int, filler char(500));
INSERT INTO zeros SELECT i, i FROM generate_series(1, 500) i;
VACUUM (FREEZE) zeros;
CHECKPOINT
EOQ

# What is done to a file while the server is down: write($path, $offset, $bytes)
sub stopped
{
    my $do = shift;

    $db->quit;
    $node->stop;
    $do->();
    $node->start;
    $db = session($node);
    return;
}

sub overwrite
{
    my ($path, $at, $bytes) = @_;

    open my $file, '+<:raw', $path or die "$path: $!";
    seek $file, $at, 0;
    read $file, my $was, length $bytes;
    seek $file, $at, 0;
    print $file $bytes;
    close $file or die "$path: $!";
    return $was;
}

sub path { my $relation = shift; return $node->data_dir . '/' . $db->sql("SELECT pg_relation_filepath('$relation')"); }

# [relation, setting, what reads it, offset within its page 3, bytes there, what that session sees instead of 2000 rows]
my $by_index = 'SET enable_seqscan = off; SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = on;';
for my $case ([ 't', 'zero_damaged_pages', 'SELECT count(filler) FROM t', 5000, 'damage', qr/^19\d\d$/ ],
    [ 't', 'ignore_checksum_failure', 'SELECT count(filler) FROM t', 8, "\x01\x02", qr/^2000$/ ],
    [ 't_pkey', 'ignore_checksum_failure', "$by_index SELECT count(*) FROM t", 8, "\x01\x02", qr/^2000$/ ])
{
    my ($relation, $setting, $read, $at, $bytes, $seen) = @$case;
    my $name = "$relation, $setting";
    my $path = path($relation);
    my $was;

    stopped(sub { $was = overwrite($path, 3 * $page + $at, $bytes) });
    my $reader = session($node);
    my (undef, $text) = $reader->try("SET client_min_messages = error; SET $setting = on; $read");
    like($text, $seen, "$name: a session reads the damaged page");
    my $before = path($relation);
    my ($job) = ask($relation eq 't' ? q{relocate_table('t', 'fast')} : q{relocate_index('t_pkey', 'fast', mode => 'copy')});
    is(ended($job), 'failed', "$name: the move refuses") or diag job_text($job);
    is($db->sql("SELECT sqlstate, attempts FROM pgscale.relocation_jobs WHERE job = $job"), 'XX001|1', "$name: and says that data is corrupted");
    is(path($relation), $before, "$name: it has its file as before") || next;    # what follows changes that
    strays_ok("$name: no other file is left");
    is($db->sql("SELECT pg_relation_size('$relation')"), -s $path, "$name: its file has not changed its length");
    $reader->quit;

    # from which the page can still be restored
    stopped(sub { overwrite($path, 3 * $page + $at, $was) });
    is($db->sql($read), '2000', "$name: with its bytes as they were all rows are there");
    ($job) = ask($relation eq 't' ? q{relocate_table('t', 'fast')} : q{relocate_index('t_pkey', 'fast', mode => 'copy')});
    is(ended($job), 'done', "$name: and it moves") or diag job_text($job);
    done_ok("$name: back", $db->sql("SELECT pgscale.relocation_undo($job)"));
}

# As after a crash: the file has grown, and the pages were never written
my $path = path('zeros');
stopped(sub { open my $file, '>>:raw', $path or die "$path: $!"; print $file "\0" x (2 * $page); close $file or die $! });
is($db->sql('SELECT count(*) FROM zeros'), 500, 'pages of zeros are read as empty');
my $size = -s $path;
my ($job) = ask(q{relocate_table('zeros', 'fast')});
is(ended($job), 'done', 'pages of zeros move') or diag job_text($job);
is($db->sql('SELECT count(*), max(pg_relation_size($$zeros$$)) FROM zeros'), "500|$size", 'with the rows');
$db->quit;
$node->stop;
done_testing();
