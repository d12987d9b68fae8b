# Live moves and room: a disk that other programs fill, at each moment at which a copy needs room there; the disk of pg_wal, which a
# slot or the archiver fills; and a table of more than one file, which changes in both files, is truncated by VACUUM to less than one, and grows again, while it moves.
use strict;
use warnings;
use PgscaleLive;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $writer;

### A full disk

# The job has failed because of the disk. The table is whole and in use, and nothing is left on the disk.
sub full_ok
{
    my ($name, $job, $message, $rows) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    is(ended($job), 'failed', "$name: the job fails") or diag job_text($job);
    like($db->sql("SELECT concat_ws(' ', sqlstate, attempts, message) FROM pgscale.relocation_jobs WHERE job = $job"), qr/^53100 1 $message$/, "$name: it says why");
    is(place('large'), 'pg_default', "$name: the table has not moved");
    is(join(' ', $writer->try('UPDATE large SET id = id WHERE id % 1000 = 0')), '00000 ', "$name: the table can be changed");
    is(rows($db, 'large'), $rows, "$name: the rows are the same");
    strays_ok("$name: no file is left");
    return;
}

SKIP:
{
    my $folder = PostgreSQL::Test::Utils::tempdir();
    my $path = own_disk($folder, '64m');
    skip 'no disk can be mounted here', 31 unless defined $path;

    {
        local $ENV{PATH} = $path;
        relocation_node(name => 'small', conf => "autovacuum = off\npgscale.relocation_max_transaction_age = -1");
    }
    $db->sql("CREATE TABLESPACE small LOCATION '$folder'");
    two_tables(20000);
    my $rows = rows($db, 'large');
    $writer = session($node);
    $writer->sql(q{SET lock_timeout = '5 s'});

    # On that disk only the server's programs see the files.
    my $run = sub { my $program = shift; return $db->sql("COPY (SELECT WHERE false) TO PROGRAM '$program'"); };
    # Another program takes all room there but so many megabytes, or gives it back.
    my $fill = sub {
        my $left = shift;
        $run->("dd if=/dev/zero of=$folder/others bs=64k 2>/dev/null || true");
        $run->("truncate -s -${left}M $folder/others") if $left;
        return;
    };
    my $free = sub { return $run->("rm $folder/others"); };
    my $no_room = qr/not enough free space in tablespace "small": \d MB are free, \d+ MB are needed .*/;
    my $copying = sub {
        $db->set('pgscale.relocation_rate', '200kB');
        $db->poll_ok('SHOW pgscale.relocation_rate', 'slow', '200kB');
        my ($job) = ask(q{relocate_table('large', 'small')});
        job_ok($job, 'state, phase, copied_bytes > 0', 'running|copying|t', 'a copy is under way');
        return $job;
    };

    my $job = $copying->();
    $fill->(8);
    full_ok('room for less than the rest of the copy', $job, $no_room, $rows);
    $free->();

    # it has looked at the room, and waits for the table's lock
    $job = $copying->();
    my $worker = $db->sql("SELECT pid FROM pgscale_internal.relocation_job WHERE job = $job");
    my $locker = session($node);
    $locker->sql('BEGIN; LOCK TABLE large');
    $db->poll_ok("SELECT count(*) FROM pg_locks WHERE pid = $worker AND NOT granted", 'a copy that is about to read its next blocks', 1);
    $fill->(0);
    $locker->sql('COMMIT');
    full_ok('no room for the next blocks', $job, qr/could not extend file .*: No space left on device/, $rows);
    $free->();

    $db->set('pgscale.relocation_rate');
    $db->poll_ok('SHOW pgscale.relocation_rate', 'at full speed', '0');
    (my $holder, $job) = held_live('large', 'small');
    $fill->(8);
    full_ok('little room after all is copied', $job, $no_room, $rows);
    $holder->quit;
    $free->();

    done_ok('with room again', ask(q{relocate_table('large', 'small')}));
    is(place('large'), 'small', 'the table has moved');
    is(rows($db, 'large'), $rows, 'with its rows');
    strays_ok('no file is left');
    $_->quit for $db, $writer, $locker;
    $node->stop;
    unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, 'nothing crashed');
}

### The disk of pg_wal

SKIP:
{
    relocation_node(
        name => 'wal',
        init => [ allows_streaming => 1, extra => ['--wal-segsize=1'] ],
        conf => "pgscale.relocation_max_transaction_age = -1\nautovacuum = off\nmax_wal_size = 16MB\nmin_wal_size = 2MB\nwal_keep_size = 0\n"
          . "archive_mode = on\narchive_command = 'true'\nmax_slot_wal_keep_size = -1"
    );
    two_tables(80000);
    my $rows = rows($db, 'large');
    $db->quit;
    $node->stop;
    my $disk_mb = 160;
    my $path = own_disk($node->data_dir . '/pg_wal', "${disk_mb}m");
    skip 'no disk can be mounted here', 23 unless defined $path;
    {
        local $ENV{PATH} = $path;
        $node->start;
    }
    $db = session($node);

    my $used = q{SELECT (sum(size) / 1048576)::int FROM pg_ls_waldir()};
    # Others write WAL until there are only so many megabytes left.
    my $fill = sub {
        my ($left, $name) = @_;
        local $Test::Builder::Level = $Test::Builder::Level + 1;

        return until_ok(sub {
            $db->sql("SELECT pg_logical_emit_message(false, 'others', repeat('x', 4194304))");
            $db->sql('CHECKPOINT');
            return $db->sql($used) > $disk_mb - $left;
        }, $name);
    };
    # A move begins while there is room; then pg_wal grows, as one keeps its WAL, until that one lets it go.
    my $waits_ok = sub {
        my ($name, $keep, $who, $let_go) = @_;
        local $Test::Builder::Level = $Test::Builder::Level + 1;

        $db->set('pgscale.relocation_rate', '200kB');
        $db->poll_ok('SHOW pgscale.relocation_rate', "$name: slow", '200kB');
        $keep->();
        my ($job) = ask("relocate_table('large', '" . elsewhere('large') . "')");
        job_ok($job, 'state, phase, copied_bytes > 0', 'running|copying|t', "$name: a copy is under way");
        $fill->(60, "$name: the table is larger than the room");
        job_ok($job, q{state, regexp_replace(message, '\d+', 'N', 'g')}, "waiting|only N MB are free on the disk of pg_wal: $who", "$name: the move waits for it");
        my $copied = $db->sql("SELECT copied_bytes FROM pgscale.relocation_jobs WHERE job = $job");
        $db->set('pgscale.relocation_rate');
        $db->poll_ok('SHOW pgscale.relocation_rate', "$name: at full speed", '0');
        $fill->(10, "$name: hardly any room");
        job_ok($job, "state, copied_bytes = $copied", 'waiting|t', "$name: it has still to wait");
        $let_go->();
        is(ended($job), 'done', "$name: it goes on by itself") or diag job_text($job);
        is($db->sql("SELECT attempts FROM pgscale.relocation_jobs WHERE job = $job"), 1, "$name: at the first attempt");
        return is(rows($db, 'large'), $rows, "$name: the rows are the same");
    };

    $waits_ok->('a slot', sub { $db->sql(q{SELECT pg_create_physical_replication_slot('forgotten', true)}) },
        'replication slot "forgotten" keeps N MB of WAL', sub { $db->sql(q{SELECT pg_drop_replication_slot('forgotten')}) });
    $db->poll_ok(q{SELECT count(*) FROM pg_ls_archive_statusdir() WHERE name LIKE '%.ready'}, 'all WAL is archived', 0);
    $db->sql('CHECKPOINT');
    $waits_ok->('the archiver', sub { $db->set('archive_command', 'false') }, 'the archiver has N MB of WAL still to archive', sub { $db->set('archive_command') });
    strays_ok('no file is left');
    $db->quit;
    $node->stop;
    unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, 'nothing crashed');
}

### A table of two files

# Rows by their places
sub places { return $db->sql(q{SELECT count(*), sum(n), md5(string_agg(concat_ws(' ', ctid, id, n, filler), '|' ORDER BY ctid)) FROM long}); }

# Waits until more rows of both files have changed.
sub both_change_ok
{
    my ($first, $name) = @_;
    my $sums = sub { return split /\|/, $db->sql("SELECT (SELECT sum(n) FROM long WHERE id <= 200), (SELECT sum(n) FROM long WHERE ctid >= '($first,0)')") };
    my @before = $sums->();
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return until_ok(sub { my @now = $sums->(); return $now[0] > $before[0] && $now[1] > $before[1] }, $name);
}

SKIP:
{
    my ($room_kb) = (split /\n/, qx(df -Pk .))[-1] =~ /^\S+ +\d+ +\d+ +(\d+)/;
    skip 'there are less than 4 GB of room here', 17 unless $room_kb > 4 * 1024 * 1024;
    local $PostgreSQL::Test::Utils::timeout_default = 4 * $PostgreSQL::Test::Utils::timeout_default;

    relocation_node(name => 'segments', conf => "autovacuum = off\nshared_buffers = 32MB\nmax_wal_size = 2GB");
    my $first = $db->sql(q{SELECT setting FROM pg_settings WHERE name = 'segment_size'});    # block of the second file
    my ($before, $last) = ($first - 500, $first + 2000);
    skip 'files of relations are larger than 1 GB here', 17 if $first > 131072;

    # a row in a block
    $db->sql(<<"EOQ");
CREATE TABLE long (id int PRIMARY KEY, n int NOT NULL DEFAULT 0, v text, filler char(400)) WITH (fillfactor = 10);
INSERT INTO long (id, filler) SELECT i, '' FROM generate_series(1, $last) i;
CREATE TABLE changes (who int PRIMARY KEY, n bigint NOT NULL);
INSERT INTO changes VALUES (0, 0), (1, 0);
CREATE TABLE change_on ();
INSERT INTO change_on DEFAULT VALUES;
CREATE PROCEDURE change() LANGUAGE plpgsql AS \$\$
DECLARE
    near int;
    far int;
    changed int;
BEGIN
    WHILE EXISTS (SELECT FROM change_on) LOOP
        near := 1 + floor(random() * 200);
        far := $first + 1 + floor(random() * 1900);
        UPDATE long SET n = n + 1 WHERE id IN (near, far);
        GET DIAGNOSTICS changed = ROW_COUNT;
        UPDATE changes SET n = n + changed WHERE who = 1;
        COMMIT;
        PERFORM pg_sleep(0.002);
    END LOOP;
END \$\$;
EOQ
    $db->sql('VACUUM ANALYZE long');
    is($db->sql(q{SELECT pg_relation_size('long') / current_setting('block_size')::int}), $last, 'a table of two files');
    my $changer = session($node);
    $changer->start('CALL change()');
    both_change_ok($first, 'which changes in both');

    # The lock of its TOAST table keeps the switch waiting, and not VACUUM.
    my $toast = $db->sql(q{SELECT reltoastrelid::regclass FROM pg_class WHERE oid = 'long'::regclass});
    my ($holder, $job) = held_live('long', 'fast', "BEGIN; SELECT count(*) FROM $toast");
    $changer->{limit}->start(2 * $PostgreSQL::Test::Utils::timeout_default);
    both_change_ok($first, 'both change when all is copied');
    $db->sql("WITH gone AS (DELETE FROM long WHERE ctid >= '($before,0)' RETURNING n) UPDATE changes SET n = n - (SELECT sum(n) FROM gone) WHERE who = 0");
    until_ok(sub { $db->sql('VACUUM (INDEX_CLEANUP on, PROCESS_TOAST false) long'); return $db->sql(q{SELECT pg_relation_size('long') / current_setting('block_size')::int}) == $before },
        'VACUUM truncates it to less than one file');
    job_ok($job, "phase, copied_bytes / current_setting('block_size')::int <= $before + 20", 'waiting for a gap|t', 'and the copy, too');
    $db->sql("INSERT INTO long (id, filler) SELECT i, '' FROM generate_series($before + 1, $last) i");
    job_ok($job, "copied_bytes / current_setting('block_size')::int >= $last", 't', 'it has two files again, and so has the copy');
    both_change_ok($first, 'both change again');
    $db->sql('DELETE FROM change_on');
    is(($changer->finish)[0], '00000', 'no change has failed');
    $db->sql("UPDATE long SET n = n + 1 WHERE id IN (1, $first, $first + 1, $last); UPDATE changes SET n = n + 4 WHERE who = 0");
    my $places = places();
    $holder->quit;
    is(ended($job), 'done', 'the table moves') or diag job_text($job);
    is($db->sql("SELECT attempts, recopied_blocks > 0 FROM pgscale.relocation_jobs WHERE job = $job"), '1|t', 'at the first attempt');
    is(place('long'), 'fast', 'it has moved');
    is(places(), $places, 'each row is in its place');
    is($db->sql('SELECT (SELECT sum(n) FROM long) - (SELECT sum(n) FROM changes)'), 0, 'all changes are there');
    is($db->sql('SET enable_seqscan = off; SELECT count(*), sum(n) FROM long WHERE id > 0'), join('|', (split /\|/, $places)[ 0, 1 ]), 'the index finds them');
    strays_ok('no file is left');
    $_->quit for $changer, $db;
    $node->stop;
    unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, 'nothing crashed');
}

done_testing();
