# Online moves and the forms of files: a visibility map of more than half a page, a free space map that was longer, a table of more
# than one file, which changes in both, is truncated by VACUUM to less than one, and grows again, while it moves.
use strict;
use warnings;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

relocation_node(conf => "shared_buffers = 32MB\nmax_wal_size = 4GB\npgscale.relocation_switch_timeout = 1h");
extensions();
$db->sql('CREATE EXTENSION pg_freespacemap') if have_module('pg_freespacemap');

### The second half of a page of the visibility map: from block 16,336 on

SKIP:
{
    skip 'pg_visibility is not installed', 5 unless have_module('pg_visibility');
    # a row a page
    $db->sql(q{CREATE TABLE wide (id int, n int, filler char(500)) WITH (fillfactor = 10); ALTER TABLE wide
        ALTER filler SET STORAGE PLAIN;
        INSERT INTO wide SELECT i, 0, '' FROM generate_series(1, 16500) i; VACUUM (FREEZE) wide});
    cmp_ok($db->sql(q{SELECT pg_relation_size('wide') / 8192}), '>', 16400, 'a table of more pages than that');
    my ($holder, $job) = held_online('wide', 'fast');
    # nothing changes in the first half
    $db->sql(q{UPDATE wide SET n = 1 WHERE ctid IN ('(16400,1)', '(16335,1)', '(16336,1)')});
    $holder->quit;
    ended_ok($job, 'done', 'it has moved');
    is($db->sql(q{SELECT count(*) FROM pg_check_visible('wide')}), 0, 'no page is called visible that is not');
    is($db->sql(q{SELECT string_agg(v.all_visible::text, ' ') FROM unnest(ARRAY[3, 16335, 16336, 16400, 16399]) b,
        pg_visibility_map('wide', b) v}),
        'true false false false true', 'those that were changed are not, others are');
    $db->sql('DROP TABLE wide');
}

### A table that grows and is truncated while it moves

SKIP:
{
    skip 'pg_freespacemap is not installed', 14 unless have_module('pg_freespacemap');
    $db->sql(q{CREATE TABLE tide (id int, filler char(900)); INSERT INTO tide SELECT i, '' FROM generate_series(1, 1000) i;
        VACUUM tide});
    # The move copies at a rate, or waits outside its hours.
    my ($from, $to) = map { $db->sql("SELECT to_char(clock_timestamp() + interval '$_ h', 'HH24:MI')") } 3, 4;
    reloaded('log_timezone', $db->sql('SHOW timezone'));
    my $pace = sub {
        my ($rate, $hours) = @_;

        $db->sql("ALTER SYSTEM SET pgscale.relocation_hours = '$hours'");
        return reloaded('pgscale.relocation_rate', $rate);
    };
    my $done_ok = sub {
        my ($job, $table, $sums) = @_;
        local $Test::Builder::Level = $Test::Builder::Level + 1;

        ended_ok($job, 'done', "$table: done");
        my $end = $db->sql("SELECT pg_relation_size('$table') / 8192");
        is($db->sql("SELECT count(*) FROM generate_series($end, 3 * $end) b WHERE pg_freespace('$table', b) > 0"), 0,
            "$table: no space is free beyond the end");
        return is($db->sql("SELECT count(*), sum(id) FROM $table"), $sums, "$table: all rows are there");
    };

    # It is truncated once all has been copied. The free space of what is added is known, and copied with the map.
    my ($job) = copying(q{relocate_table('tide', 'fast')});
    $db->sql(q{INSERT INTO tide SELECT i, '' FROM generate_series(1001, 3000) i; DELETE FROM tide WHERE id BETWEEN 1001 AND 2999;
        VACUUM tide});
    my $holder = session($node);
    $holder->sql('BEGIN; LOCK tide IN ACCESS SHARE MODE');
    $pace->('0', '');
    job_ok($job, 'state, phase', 'waiting|waiting for a gap', 'all is copied');
    $holder->sql('COMMIT');
    $db->sql('DELETE FROM tide WHERE id > 1000; VACUUM tide');
    $done_ok->($job, 'tide', '1000|500500');

    # It grows after its last block is copied, and before the map is, and is truncated before what was added is copied. It is so
    # small that its first piece is all.
    $db->sql(q{CREATE TABLE pool (id int, filler char(900)); INSERT INTO pool SELECT i, '' FROM generate_series(1, 200) i;
        VACUUM pool});
    my $maps = sub { return scalar(() = glob($node->data_dir . "/pg_tblspc/*/PG_*/*/*_fsm")) };
    my $maps_before = $maps->();
    $pace->('1kB', '');
    ($job) = ask(q{relocate_table('pool', 'fast')});
    job_ok($job, q{phase, copied_bytes = pg_relation_size('pool')}, 'copying|t', 'all blocks are copied');
    $holder->sql('BEGIN; LOCK pool');
    $pace->('0', '');
    $db->poll_ok("SELECT count(*) FROM pg_locks WHERE relation = 'pool'::regclass AND NOT granted", 'the move looks for more', 1);
    $pace->('1kB', "$from-$to");
    $holder->sql('COMMIT');
    job_ok($job, q{state, message ~ 'hours'}, 'waiting|t', 'and waits before it copies the map');
    $db->sql(q{INSERT INTO pool SELECT i, '' FROM generate_series(201, 1000) i; DELETE FROM pool WHERE id BETWEEN 201 AND 999;
        VACUUM pool});
    $pace->('1kB', '');
    until_ok(sub { $maps->() > $maps_before }, 'which is copied');
    $pace->('1kB', "$from-$to");
    job_ok($job, q{state, message ~ 'hours'}, 'waiting|t', 'then it waits again');
    $db->sql('DELETE FROM pool WHERE id > 200; VACUUM pool');
    is($db->sql(q{SELECT pg_relation_size('pool') / 8192 < 40}), 't', 'it is truncated');
    $pace->('0', '');
    $done_ok->($job, 'pool', '200|20100');
    $holder->quit;
}

### A table of two files

SKIP:
{
    my ($room_kb) = (split /\n/, qx(df -Pk .))[-1] =~ /^\S+ +\d+ +\d+ +(\d+)/;
    skip 'there are less than 4 GB of room here', 17 unless $room_kb > 4 * 1024 * 1024;
    my $first = $db->sql(q{SELECT setting FROM pg_settings WHERE name = 'segment_size'});    # block of the second file
    skip 'files of relations are larger than 1 GB here', 17 if $first > 131072;
    local $PostgreSQL::Test::Utils::timeout_default = 4 * $PostgreSQL::Test::Utils::timeout_default;
    my ($before, $last) = ($first - 500, $first + 1000);
    my $size = q{SELECT pg_relation_size('long') / 8192};

    # a row in a block
    $db->sql(<<"EOQ");
CREATE TABLE long (id int PRIMARY KEY, n int NOT NULL DEFAULT 0, v text, filler char(400)) WITH (fillfactor = 10);
INSERT INTO long (id, filler) SELECT i, '' FROM generate_series(1, $last) i;
CREATE TABLE changes AS SELECT 0::bigint AS n;
CREATE PROCEDURE change(rounds int) LANGUAGE plpgsql AS \$\$
DECLARE
    near int;
    far int;
BEGIN
    FOR i IN 1..rounds LOOP
        near := 1 + floor(random() * 200);
        far := $first + 1 + floor(random() * 900);
        UPDATE long SET n = n + 1 WHERE id IN (near, far);
        UPDATE changes SET n = n + 2;
        COMMIT;
    END LOOP;
END \$\$;
EOQ
    $db->sql('VACUUM ANALYZE long');
    is($db->sql($size), $last, 'a table of two files');

    # The lock of its TOAST table keeps the switch waiting, and not VACUUM.
    my $toast = $db->sql(q{SELECT reltoastrelid::regclass FROM pg_class WHERE oid = 'long'::regclass});
    my ($holder, $job) = held_online('long', 'fast', "BEGIN; SELECT count(*) FROM $toast");
    $db->sql('CALL change(100)');
    $db->sql("WITH gone AS (DELETE FROM long WHERE ctid >= '($before,0)' RETURNING n)
        UPDATE changes SET n = n - (SELECT sum(n) FROM gone)");
    until_ok(sub { $db->sql('VACUUM (INDEX_CLEANUP on, PROCESS_TOAST false) long'); $db->sql($size) == $before },
        'VACUUM truncates it to less than one file');
    job_ok($job, "phase, copied_bytes / 8192 <= $before + 20", 'waiting for a gap|t', 'and the copy, too');
    $db->sql("INSERT INTO long (id, filler) SELECT i, '' FROM generate_series($before + 1, $last) i");
    job_ok($job, "copied_bytes / 8192 >= $last", 't', 'it has two files again, and so has the copy');
    $db->sql('CALL change(100)');
    # rows by their places
    my $places = q{SELECT count(*), sum(n), md5(string_agg(concat_ws(' ', ctid, id, n, filler), '|' ORDER BY ctid)) FROM long};
    my $there = $db->sql($places);
    $holder->quit;
    ended_ok($job, 'done|1|t', 'the table moves, at the first attempt', 'state, attempts, recopied_blocks > 0');
    is(place('long'), 'fast', 'it has moved');
    is($db->sql($places), $there, 'each row is in its place');
    is($db->sql('SELECT (SELECT sum(n) FROM long) - (SELECT sum(n) FROM changes)'), 0, 'all changes are there');
    is($db->sql('SET enable_seqscan = off; SELECT count(*), sum(n) FROM long WHERE id > 0'),
        join('|', (split /\|/, $there)[ 0, 1 ]), 'the index finds them');
}

sound_ok('at the end');
strays_ok('at the end');
stop_ok();
done_testing();
