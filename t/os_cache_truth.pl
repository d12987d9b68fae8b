# What the kernel has of relations, compared with what was read from outside and with what the kernel tells others of the same
# files; with cachestat and without.
# Runs on 18, too.
use strict;
use warnings;
use POSIX ();
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

# posix_fadvise is a system call without a Perl function.
plan skip_all => 'this Perl has no syscall.ph' unless eval { local $SIG{__WARN__} = sub { }; require 'syscall.ph' };
my $FADV_RANDOM = 1;
my ($EPERM, $ENOSYS) = (1, 38);

my $node = pgscale_node('main', init => [ allows_streaming => 1 ], conf => <<'EOC');
fsync = on
checkpoint_timeout = 1h
max_wal_size = 1GB
bgwriter_lru_maxpages = 0
max_parallel_workers_per_gather = 0
EOC
my $db = session($node);
my $block = $db->sql('SHOW block_size');

sub file_of { my $relation = shift; return $node->data_dir . '/' . $db->sql("SELECT pg_relation_filepath('$relation')"); }

# Reads blocks of a file into the kernel's cache, and no others.
sub read_blocks
{
    my ($file, @blocks) = @_;

    open my $fh, '<:raw', $file or die "$file: $!";
    syscall(SYS_fadvise64(), fileno $fh, 0, 0, $FADV_RANDOM) == 0 or die "fadvise: $!";
    for my $number (@blocks)
    {
        sysseek $fh, $number * $block, 0 or die $!;
        sysread($fh, my $page, $block) == $block or die "$file has no block $number";
    }
    close $fh;
    return;
}

# What is known of a fork, in blocks
sub blocks
{
    my ($relation, $columns) = @_;

    return $db->sql('SELECT ' . join(', ', map { "${_}_bytes / $block" } split /, /, $columns)
          . " FROM pgscale.relation_os_cache('$relation') WHERE fork = 'main'");
}

# Reads blocks into shared buffers, and no others; the last one first.
sub buffer_blocks
{
    my ($relation, @blocks) = @_;

    $db->sql(join ';', map { "SELECT count(*) FROM $relation WHERE ctid = '($_,1)'" } reverse @blocks);
    return;
}

$db->sql('CREATE TABLE t AS SELECT i, repeat($$x$$, 1000) AS filler FROM generate_series(1, 4000) i');
my $n = $db->sql("SELECT pg_relation_size('t') / $block");
$db->sql('CHECKPOINT');
my $file = file_of('t');

# What the kernel has of files, of all forks and segments, as it tells others: cached, dirty and being written
sub told
{
    my ($cached, $dirty, $writeback) = (0, 0, 0);
    for my $name (@_)
    {
        my ($range, $stat) = (pack('QQ', 0, 0), "\0" x 40);
        open my $fh, '<:raw', $name or die "$name: $!";
        syscall(451, fileno $fh, $range, $stat, 0) == 0 or die "cachestat: $!";
        my @pages = unpack 'Q3', $stat;
        $cached += 4096 * $pages[0], $dirty += 4096 * $pages[1], $writeback += 4096 * $pages[2];
    }
    return ($cached, $dirty, $writeback);
}

my $cachestat = defined eval { (told($file))[0] };
# A file system in memory keeps its pages.
my $can_evict = qx(stat -f -c %T '$file') !~ /^(tmpfs|ramfs|zfs)$/;

# A relation of two segments for next to nothing: all zeros, and the first one is a hole
$db->sql('CREATE TABLE large (x int)');
my $segment = $db->sql('SELECT setting::bigint FROM pg_settings WHERE name = $$segment_size$$');
my $large = file_of('large');
truncate_file($large, $segment);
truncate_file("$large.1", 10);

sub truncate_file
{
    my ($name, $blocks) = @_;

    open my $fh, '>>', $name or die "$name: $!";
    truncate $fh, $blocks * $block or die "$name: $!";
    close $fh;
    return;
}

# Does something until what is then known is as expected: the kernel may drop a page at any time, and keep one that is in use.
sub known_ok
{
    my ($act, $relation, $columns, $expected, $name) = @_;
    my $is;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    until_true(sub { $act->(); $is = blocks($relation, $columns); $is eq $expected });
    return is($is, $expected, $name);
}

# The truth, however the kernel is asked
sub truth_ok
{
    my ($how, $dirty_known) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my $shared = [ 0 .. 9, 57, 100 .. 149, $n - 1 ];
    my $kernel = [ 5 .. 20, 57, 90 .. 109, 140 .. 160, $n - 2 ];
    my $both = 5 + 1 + 10 + 10;

    buffer_blocks('t', @$shared);
    is(blocks('t', 'size, buffers'), "$n|" . @$shared, "$how: size, and what is in shared buffers");
    if ($can_evict)
    {
        my $evicted = sub { read_blocks($file, @$kernel); $db->sql("SELECT pgscale.os_cache_evict('t') / $block") };
        until_ok(sub { $evicted->(); $evicted->() == @$kernel }, "$how: os_cache_evict returns what there was");
        known_ok(sub { $db->sql("SELECT pgscale.os_cache_evict('t')") }, 't', 'buffers, os_cache, both', @$shared . '|0|0',
            "$how: and nothing is left of it");
        known_ok(sub { read_blocks($file, @$kernel) }, 't', 'buffers, os_cache, both',
            join('|', scalar @$shared, scalar @$kernel, $both), "$how: what was read from outside, and what is in both");
    }
    known_ok(sub { read_blocks($file, 0 .. $n - 1) }, 't', 'buffers, os_cache, both', @$shared . "|$n|" . @$shared,
        "$how: all of it in the kernel's cache");

    # Two segments, with a run of blocks in shared buffers across the boundary
    $db->sql("SELECT pgscale.os_cache_evict('large')");
    buffer_blocks('large', $segment - 2 .. $segment + 1, $segment + 9);
    is(blocks('large', 'size, buffers, both'), $segment + 10 . '|5|5', "$how: two segments");
    if ($can_evict)
    {
        known_ok(sub { $db->sql(q{SELECT pgscale.os_cache_evict('large')}) }, 'large', 'buffers, os_cache, both', '5|0|0',
            "$how: evicted from both");
        known_ok(sub { read_blocks("$large.1", 1, 2, 9) }, 'large', 'buffers, os_cache, both', '5|3|2',
            "$how: only the second one");
    }
    is($db->sql(q{SELECT count(*) FROM pgscale.relation_os_cache()
        WHERE (dirty_bytes IS NOT NULL OR writeback_bytes IS NOT NULL) IS DISTINCT FROM } . ($dirty_known ? 'true' : 'false')), 0,
        "$how: what is dirty is " . ($dirty_known ? 'known' : 'unknown'));
    is($db->sql(q{SELECT bool_and(both_bytes <= least(buffers_bytes, os_cache_bytes) AND greatest(buffers_bytes, os_cache_bytes,
        dirty_bytes, writeback_bytes) <= size_bytes) FROM pgscale.relation_os_cache()}), 't', "$how: the columns fit together");
    return;
}

# The server starts anew, so that shared buffers are empty.
sub restart
{
    my $start = shift;

    $db->quit;
    $node->stop;
    $start->();
    $db = session($node);
    return;
}

my $health = q{SELECT enabled, state, reason, action FROM pgscale.health WHERE feature = 'os_cache'};
restart(sub { $node->start });
is($db->sql($health), 't|idle|asks the kernel by cachestat|', 'health says how it asks') if $cachestat;
like($db->sql($health), qr/^t\|idle\|asks the kernel by mincore.*dirty: \w.*\|run Linux/, 'health says how it asks') if !$cachestat;
truth_ok('as it is here', $cachestat);

# Without cachestat: a filter, set up before the server starts, refuses it.
SKIP:
{
    my $path = refuse_cachestat($node);
    skip 'no filter of system calls can be set up here', 1 unless defined $path;
    for my $refusal ([ $EPERM, qr/cachestat is forbidden here/ ], [ $ENOSYS, qr/has no cachestat \(Linux 6\.5 has it\)/ ])
    {
        my ($errno, $why) = @$refusal;
        local $ENV{REFUSE_WITH} = $errno;

        restart(sub { local $ENV{PATH} = $path; $node->start });
        like($db->sql($health),
            qr/^t\|idle\|asks the kernel by mincore, which does not report dirty pages: .*$why.*\|run Linux 6\.5/,
            "error $errno: health says so");
        next if $errno == $ENOSYS;    # what follows is the same
        truth_ok("error $errno", 0);
        is($db->sql(q{SELECT pgscale.os_cache_flush('t', true)}), 0, "error $errno: flushing works");
    }
}
$db->sql('VACUUM t');
restart(sub { $node->start });

# Shared buffers, side by side with pg_buffercache; they are nearly empty, so that nothing leaves them meanwhile
SKIP:
{
    skip 'this server has no pg_buffercache', 1 unless have_module('pg_buffercache');

    $db->sql('CREATE EXTENSION pg_buffercache');
    # which reads the table, and leaves its other forks where they are: on disk; from 17 on an index is written past the buffers
    $db->sql('CREATE INDEX t_i ON t (i)');
    buffer_blocks('large', 3 .. 5, $segment + 3);
    my $theirs = 'SELECT c.oid::regclass AS relation, b.relforknumber AS fork, count(*) AS n FROM pg_buffercache b
        JOIN pg_class c ON b.relfilenode = pg_relation_filenode(c.oid)
         AND b.reldatabase = (SELECT oid FROM pg_database WHERE datname = current_database()) WHERE c.oid > 16383 GROUP BY 1, 2';
    my $ours = "SELECT relation, array_position('{main,fsm,vm,init}', fork) - 1 AS fork, buffers_bytes / $block AS n
        FROM pgscale.relation_os_cache() WHERE buffers_bytes > 0 AND relation > 16383";
    is($db->sql("SELECT count(*) > 1, string_agg(concat(o, t), ', ') FILTER (WHERE o.n IS DISTINCT FROM t.n)
        FROM ($ours) o FULL JOIN ($theirs) t USING (relation, fork)"), 't|', 'as pg_buffercache sees them');
}

# What is dirty
SKIP:
{
    skip 'the kernel does not tell what is dirty here', 1 unless $cachestat && $can_evict;

    for ([ $large, 100, 20 ], [ "$large.1", 2, 5 ])
    {
        my ($name, $at, $blocks) = @$_;
        open my $fh, '+<:raw', $name or die "$name: $!";
        sysseek $fh, $at * $block, 0 or die $!;
        syswrite($fh, "\0" x $block) == $block or die $! for 1 .. $blocks;
        close $fh;
    }
    my $sums = 'sum(os_cache_bytes), sum(dirty_bytes), sum(writeback_bytes)';
    until_ok(sub {
        my @others = told($large, "$large.1");
        my $ours = $db->sql("SELECT $sums FROM pgscale.relation_os_cache('large')");
        return join('|', @others) eq $ours && $others[1] >= 25 * $block;
    }, 'two segments are as the kernel tells others, and dirty') if POSIX::sysconf(POSIX::_SC_PAGESIZE()) == 4096;

    $db->sql('CREATE TABLE w AS SELECT i, repeat($$x$$, 1000) AS filler FROM generate_series(1, 8000) i');
    $db->sql('CREATE INDEX w_i ON w (i)');
    $db->sql('VACUUM w');
    # another one, which is left alone
    $db->sql('CREATE TABLE w2 AS SELECT i FROM generate_series(1, 3000) i');
    my $left = q{SELECT sum(dirty) FROM pgscale.relation_buffers WHERE relation = 'w2'::regclass};
    my $left_dirty = $db->sql($left);
    my $dirty = q{SELECT sum(dirty_bytes), sum(writeback_bytes), count(*) FROM pgscale.relation_os_cache('w')};
    cmp_ok($db->sql(q{SELECT pgscale.os_cache_flush('w', true)}), '>', 0, 'os_cache_flush and wait');
    is($db->sql($dirty), '0|0|3', 'the kernel owes the disk nothing of all forks');
    is($db->sql($left), $left_dirty, 'another relation is still dirty');
    cmp_ok($left_dirty, '>', 10, 'which it was');

    # Evicting takes all forks, and no other relation.
    my $cached = q{SELECT count(*), sum(os_cache_bytes) FROM pgscale.relation_os_cache('w') WHERE fork IN ('fsm', 'vm')};
    cmp_ok($db->sql($cached), 'ne', '2|0', 'the other forks are in the kernel\'s cache');
    read_blocks($file, 3 .. 12);
    until_ok(sub { $db->sql(q{SELECT pgscale.os_cache_evict('w')}); $db->sql($cached) eq '2|0' }, 'evicted, they are not');
    cmp_ok($db->sql(q{SELECT sum(os_cache_bytes) FROM pgscale.relation_os_cache('t')}), '>=', 10 * $block,
        'but another relation is');

    $db->sql('UPDATE w SET i = i + 1');
    cmp_ok($db->sql(q{SELECT pgscale.os_cache_flush('w')}), '>', 4_000_000, 'os_cache_flush');
    {
        # by itself the kernel would not before 30 s
        local $PostgreSQL::Test::Utils::timeout_default = 20;
        until_ok(sub { (split /\|/, $db->sql($dirty))[0] == 0 }, 'the kernel has begun with all of it') or diag $db->sql($dirty);
    }

    # os_cache_evict loses nothing that is dirty in the kernel's cache.
    my $sum = $db->sql('SELECT sum(i) FROM w');
    $db->sql('UPDATE w SET i = i + 1');
    $db->sql(q{SELECT pgscale.os_cache_flush('w'), pgscale.os_cache_evict('w')});
    $node->stop('immediate');
    $db->quit;
    $node->start;
    $db = session($node);
    is($db->sql('SELECT sum(i) FROM w'), $sum + 8000, 'nothing is lost');
}

# A session with the strongest lock holds up no session that looks.
my $other = session($node);
$other->sql('BEGIN; LOCK TABLE t IN ACCESS EXCLUSIVE MODE');
$db->sql(q{SET lock_timeout = '100ms'});
is($db->sql(q{SELECT (SELECT count(*) FROM pgscale.relation_os_cache() WHERE relation = 't'::regclass AND fork = 'main'),
    (SELECT count(*) FROM pgscale.relation_os_cache('t') WHERE fork = 'main'), pgscale.os_cache_evict('t') >= 0}), '1|1|t',
    'relation_os_cache and os_cache_evict are not held up by a lock');
is(($db->try(q{SELECT pgscale.os_cache_flush('t')}))[0], '55P03', 'os_cache_flush waits as a reader does');
$other->sql('ROLLBACK');
$db->sql('RESET lock_timeout');

# Temporary relations: one's own, and others'. A file's number may be that of a permanent one, too.
$other->sql('CREATE TEMP TABLE temporary (x int)');
$other->sql('INSERT INTO temporary VALUES (1)');
my $oid = $other->sql(q{SELECT 'temporary'::regclass::oid});
for my $call ("relation_os_cache($oid)", "os_cache_flush($oid)", "os_cache_evict($oid)")
{
    my ($state, $text) = $db->try("SELECT pgscale.$call");
    is($state, '0A000', "$call for another session's temporary relation");
    like($text, qr/ERROR: .*relation "temporary" is a temporary one of another session.*HINT: /s, 'says so');
}
is($db->sql("SELECT count(*) FROM pgscale.relation_os_cache() WHERE relation = $oid"), 0, 'all others leave it out');
is($other->sql("SELECT count(*) FROM pgscale.relation_os_cache() WHERE relation = $oid"), 1, 'and shows it to its own session');
is($other->sql("SELECT pgscale.os_cache_flush($oid) / $block, pgscale.os_cache_evict($oid) >= 0"), '1|t', 'which may act on it');

# One to whom it was granted acts on what he may not read.
$db->sql(q{CREATE ROLE granted LOGIN; GRANT USAGE ON SCHEMA pgscale, pgscale_internal TO granted;
    GRANT EXECUTE ON FUNCTION pgscale.os_cache_flush(regclass, boolean), pgscale.os_cache_evict(regclass) TO granted});
my $granted = session($node, user => 'granted');
is(($granted->try('SELECT * FROM t'))[0], '42501', 'a role that may not read a table');
is($granted->sql(q{SELECT pgscale.os_cache_flush('t') >= 0, pgscale.os_cache_evict('t') >= 0}), 't|t',
    'may flush it where that is granted');
$granted->quit;

# Its number is that of a permanent one now: of whose buffers none are its own.
$other->sql('BEGIN; SET LOCAL allow_system_table_mods = on');
my $temporary = $node->data_dir . '/' . $other->sql(q{SELECT pg_relation_filepath('temporary')});
$other->sql(q{UPDATE pg_class SET relfilenode = pg_relation_filenode('t') WHERE oid = 'temporary'::regclass});
my $impostor = $node->data_dir . '/' . $other->sql(q{SELECT pg_relation_filepath('temporary')});
link $temporary, $impostor or die "$impostor: $!";
buffer_blocks('t', 0 .. 9);
is($other->sql("SELECT size_bytes / $block, buffers_bytes, both_bytes FROM pgscale.relation_os_cache('temporary')
    WHERE fork = 'main'"), '1|0|0', 'a temporary relation with the number of a permanent one');
unlink $impostor;
$other->sql('ROLLBACK');

# A segment beyond one that is not full waits for its removal.
open my $leftover, '>', "$file.1" or die $!;
print $leftover 'x' x (3 * $block);
close $leftover;
is((split /\|/, blocks('t', 'size, buffers'))[0], $n, 'what is left of a truncated relation does not count');
unlink "$file.1";

# A relation whose files are gone already: as if it were dropped between a look at the catalog and one at the file
$db->sql('CREATE TABLE gone AS SELECT 1 AS x');
$db->sql('CHECKPOINT');
my $gone = file_of('gone');
rename $gone, "$gone.away" or die $!;
is($db->sql(q{SELECT count(*) FILTER (WHERE relation = 'gone'::regclass), count(*) > 100 FROM pgscale.relation_os_cache()}),
    '0|t', 'a relation without files is left out');
is($db->sql(q{SELECT pgscale.os_cache_evict('gone')}), 0, 'and os_cache_evict finds nothing');
rename "$gone.away", $gone or die $!;
$db->sql('DROP TABLE gone');

# Relations come and go while another session looks.
my $rounds = $ENV{PGSCALE_TEST_FULL} ? 50 : 10;
$db->sql(<<"EOQ");
CREATE TABLE rounds (n int);
CREATE PROCEDURE come_and_go() LANGUAGE plpgsql AS \$\$
DECLARE
    statement text;
BEGIN
    FOR i IN 1..$rounds LOOP
        FOREACH statement IN ARRAY ARRAY['CREATE TABLE fleeting AS SELECT x FROM generate_series(1, 5000) x',
            'CREATE INDEX fleeting_x ON fleeting (x)', 'TRUNCATE fleeting',
            'INSERT INTO fleeting SELECT x FROM generate_series(1, 5000) x', 'DROP TABLE fleeting']
        LOOP
            EXECUTE statement;
            COMMIT;
        END LOOP;
        IF i % 5 = 0 THEN
            CHECKPOINT;    -- removes the files
        END IF;
        UPDATE rounds SET n = n + 1;
    END LOOP;
END \$\$;
INSERT INTO rounds VALUES (0);
EOQ
$other->start('CALL come_and_go()');
my ($looks, $failed, $wrong) = (0, 0, 0);
do
{
    my ($state, $text) = $db->try(q{SELECT count(*) FROM pgscale.relation_os_cache()
        WHERE both_bytes > os_cache_bytes OR both_bytes > buffers_bytes OR greatest(buffers_bytes, os_cache_bytes) > size_bytes});
    $failed++ || diag $text if $state ne '00000';
    $wrong += $text if $state eq '00000';
    $looks++;
} while ($looks < 2000 && $db->sql('SELECT n FROM rounds') < $rounds);
is(($other->finish)[0], '00000', 'relations were made, truncated and dropped');
is("$failed|$wrong", '0|0', "$looks looks meanwhile failed nowhere and made sense");
$other->quit;

# Another database: what is not seen from here has a row, and is seen there.
$db->sql('CREATE DATABASE shop');
my $columns = 'relation, fork, size_bytes, os_cache_bytes, both_bytes, dirty_bytes, writeback_bytes';
my $shop = session($node, dbname => 'shop');
$shop->sql('CREATE EXTENSION pgscale; CREATE TABLE goods AS SELECT i, repeat($$x$$, 200) FROM generate_series(1, 5000) i');
is($db->sql(qq{SELECT count(*), bool_and(num_nonnulls($columns) = 0), sum(buffers_bytes) > 1000000
    FROM pgscale.relation_os_cache() WHERE datname = 'shop'}), '1|t|t',
    'another database is one row, with what it has in shared buffers');
is($shop->sql(q{SELECT relation::text, datname FROM pgscale.relation_os_cache()
    WHERE relation = 'goods'::regclass AND fork = 'main'}), 'goods|shop', 'there it has its relations');
$shop->quit;

unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, 'nothing crashed');
$node->stop;
done_testing();
