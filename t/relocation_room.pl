# Moves and room: a disk of a tablespace that others fill, or that is gone, at each moment at which a move needs room there; and
# the disk of pg_wal, which a slot or the archiver fills. A move that has no room is refused, waits, or fails, and leaves nothing.
use strict;
use warnings;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

### The disk of a tablespace

my $writer;

# The job has failed because of the disk. The table is whole and in use, and nothing is left on the disk.
sub full_ok
{
    my ($name, $job, $message, $rows) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    ended_ok($job, 'failed|53100|1', "$name: the job fails", 'state, sqlstate, attempts');
    like(of_job($job, 'message'), qr/^$message$/, "$name: it says why");
    is(place('large'), 'pg_default', "$name: the table has not moved");
    is(($writer->try('UPDATE large SET id = id WHERE id % 1000 = 0'))[0], '00000', "$name: the table can be changed");
    is(rows($db, 'large'), $rows, "$name: the rows are the same");
    strays_ok($name);
    return;
}

SKIP:
{
    my $folder = PostgreSQL::Test::Utils::tempdir();
    my $path = own_disk($folder, '64m');
    skip 'no disk can be mounted here', 41 unless defined $path;

    { local $ENV{PATH} = $path; relocation_node(name => 'small'); }
    $db->sql("CREATE TABLESPACE small LOCATION '$folder'");
    is($db->sql(q{SELECT reads, reason FROM pgscale.tablespace_latency('small')}),
        '0|less than 256 MB are free, too little for a file of 64 MB', 'a probe does not fill it');
    two_tables(20000);
    my $rows = rows($db, 'large');
    $writer = session($node);
    $writer->sql(q{SET lock_timeout = '20 s'});

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

    # Online
    my $no_room = qr/not enough free space in tablespace "small": \d MB are free, \d+ MB are needed .*/;
    my ($job) = copying(q{relocate_table('large', 'small')});
    $fill->(8);
    full_ok('room for less than the rest of the copy', $job, $no_room, $rows);
    $free->();

    # it has looked at the room, and waits for the table's lock
    ($job, my $worker) = copying(q{relocate_table('large', 'small')});
    my $locker = session($node);
    $locker->sql('BEGIN; LOCK TABLE large');
    $db->poll_ok("SELECT count(*) FROM pg_locks WHERE pid = $worker AND NOT granted", 'a copy is about to read its next blocks', 1);
    $fill->(0);
    $locker->quit;
    full_ok('no room for the next blocks', $job, qr/could not extend file .*: No space left on device/, $rows);
    $free->();

    reloaded('pgscale.relocation_rate');
    (my $holder, $job) = held_online('large', 'small');
    $fill->(8);
    full_ok('little room after all is copied', $job, $no_room, $rows);
    $holder->quit;
    $free->();
    done_ok('with room again', ask(q{relocate_table('large', 'small')}));
    is(place('large'), 'small', 'the table has moved');
    is(rows($db, 'large'), $rows, 'with its rows');
    done_ok('back', ask(q{relocate_table('large', 'pg_default')}));

    # Rebuilt: refused by what is needed, together with what is queued
    $db->sql('CREATE TABLE keys (id int PRIMARY KEY); INSERT INTO keys SELECT generate_series(1, 400000)');
    $db->sql('CREATE TABLE n (id int, n int PRIMARY KEY); INSERT INTO n SELECT i, i FROM generate_series(1, 150000) i; '
          . 'CREATE INDEX n_wide ON n ((id::bigint), (n::bigint)); CHECKPOINT');
    clean_ok();
    my $rebuild = "pgscale.relocate_indexes('%s', 'small', mode => 'rebuild')";
    $fill->(8);
    my $needed = $db->sql(q{SELECT ceil(1.2 * pg_table_size('keys_pkey') / 1048576)});
    like(join(' ', $db->try('SELECT ' . sprintf $rebuild, 'keys_pkey')), qr/^53100 .* [78] MB are free, $needed MB are needed/,
        'more than there is room for is refused, with what is needed: a fifth more than its size');
    launching('off');
    my $late = $db->sql('SELECT ' . sprintf $rebuild, 'n_pkey');
    is(($db->try('SELECT ' . sprintf $rebuild, 'n_wide'))[0], '53100', 'nor is there room for two');
    $db->sql("SELECT pgscale.relocation_cancel($late)");
    $late = $db->sql('SELECT ' . sprintf $rebuild, 'n_wide');
    ok($late, 'when the first one is cancelled, there is for the other one');
    $db->sql("SELECT pgscale.relocation_cancel($late)");
    $late = $db->sql('SELECT ' . sprintf $rebuild, 'n_pkey');
    $free->();
    $fill->(1);
    launching('on');
    ended_ok($late, 'failed|53100|0', 'there is no room when its turn comes', 'state, sqlstate, attempts');
    $free->();
    $holder = session($node);
    $holder->sql('BEGIN; UPDATE n SET id = 0 WHERE n = 1');
    $late = $db->sql('SELECT ' . sprintf $rebuild, 'n_pkey');
    job_ok($late, 'phase', 'waiting for writers before build', 'it begins while there is room');
    $fill->(0);
    $holder->quit;
    ended_ok($late, 'failed|53100|t', 'and fails when there is none any more', q{state, sqlstate, message ~ 'No space left'});
    clean_ok('nothing is left behind');
    is(place('n_pkey'), 'pg_default', 'it has not moved');
    $free->();
    done_ok('with room again', $db->sql('SELECT ' . sprintf $rebuild, 'n_pkey'));

    # That disk is not there after a restart.
    $_->quit for $writer;
    stopped();
    like(join(' ', $db->try('SELECT ' . sprintf $rebuild, 'keys_pkey')), qr/^58P01 .*HINT: .*Is its disk mounted/s,
        'a disk that is not mounted: refused');
    stop_ok();
}

### The disk of pg_wal

SKIP:
{
    relocation_node(
        name => 'wal',
        init => [ allows_streaming => 1, extra => ['--wal-segsize=1'] ],
        conf => "max_wal_size = 16MB\nmin_wal_size = 2MB\nwal_keep_size = 0\narchive_mode = on\narchive_command = 'true'\n"
          . 'max_slot_wal_keep_size = -1');
    two_tables(35000);
    my $rows = rows($db, 'large');
    $db->quit;
    $node->stop;
    my $disk_mb = 120;
    my $path = own_disk($node->data_dir . '/pg_wal', "${disk_mb}m");
    skip 'no disk can be mounted here', 23 unless defined $path;
    { local $ENV{PATH} = $path; $node->start; }
    $db = session($node);

    # Others write WAL until there are only so many megabytes left.
    my $fill = sub {
        my ($left, $name) = @_;
        local $Test::Builder::Level = $Test::Builder::Level + 1;

        return until_ok(sub {
            $db->sql("SELECT pg_logical_emit_message(false, 'others', repeat('x', 4194304))");
            $db->sql('CHECKPOINT');
            return $db->sql(q{SELECT (sum(size) / 1048576)::int FROM pg_ls_waldir()}) > $disk_mb - $left;
        }, $name);
    };
    # A move begins while there is room; then pg_wal grows, as one keeps its WAL, until that one lets it go.
    my $waits_ok = sub {
        my ($name, $keep, $who, $let_go) = @_;
        local $Test::Builder::Level = $Test::Builder::Level + 1;

        $keep->();
        my ($job) = copying("relocate_table('large', '" . elsewhere('large') . "')");
        $fill->(40, "$name: what is left of the table is more than the room");
        job_ok($job, q{state, regexp_replace(message, '\d+', 'N', 'g')}, "waiting|only N MB are free on the disk of pg_wal: $who",
            "$name: the move waits for it");
        my $copied = of_job($job, 'copied_bytes');
        reloaded('pgscale.relocation_rate');
        $fill->(10, "$name: hardly any room");
        job_ok($job, "state, copied_bytes = $copied", 'waiting|t', "$name: it has still to wait");
        $let_go->();
        ended_ok($job, 'done|1', "$name: it goes on by itself, at the first attempt", 'state, attempts');
        return is(rows($db, 'large'), $rows, "$name: the rows are the same");
    };

    $waits_ok->('a slot', sub { $db->sql(q{SELECT pg_create_physical_replication_slot('forgotten', true)}) },
        'replication slot "forgotten" keeps N MB of WAL', sub { $db->sql(q{SELECT pg_drop_replication_slot('forgotten')}) });
    $db->poll_ok(q{SELECT count(*) FROM pg_ls_archive_statusdir() WHERE name LIKE '%.ready'}, 'all WAL is archived', 0);
    $db->sql('CHECKPOINT');
    $waits_ok->('the archiver', sub { $db->set('archive_command', 'false') }, 'the archiver has N MB of WAL still to archive',
        sub { $db->set('archive_command') });
    strays_ok('at the end');
    stop_ok();
}

done_testing();
