# Moves when the system fails: each of the calls that open, write or sync the new file fails in turn, a tablespace is read-only,
# its disk goes away, a page is damaged, the server has no place for a worker. Whatever it is, the job, the catalogs and the files
# then say the same, no row is lost, nothing is left behind, and the move can be made once more.
# Waits for long.
use strict;
use warnings;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my %kinds = (open => 1, write => 2, sync => 4);
my %errors = (EIO => 5, ENOSPC => 28, SIGSTOP => -19);
my $library = compiled('faults');
my $orders = $ENV{PGSCALE_FAULTS} = PostgreSQL::Test::Utils::tempdir() . '/orders';

# The call of a kind about a file of a tablespace, after n others, in a worker that moves relations: fails, or stops that
sub order_call
{
    my ($kind, $n, $error) = @_;

    order(pid => -1, kinds => $kinds{$kind}, left => $n, error => $errors{$error}, word => '/PG_');
    return;
}

order();
{
    local $ENV{LD_PRELOAD} = $library // $ENV{LD_PRELOAD} // '';
    relocation_node(init => [ extra => ['-k'] ], conf => "fsync = on\nmax_worker_processes = 16\nbgwriter_lru_maxpages = 0");
}
two_tables(20000);
my $rows = rows($db, 't', 'large');
$db->sql('CREATE TABLE f (id int PRIMARY KEY, n int) TABLESPACE fast; INSERT INTO f SELECT i, i % 10
    FROM generate_series(1, 2000) i');
$db->sql('CREATE INDEX f_n ON f (n) TABLESPACE fast; CHECKPOINT');

# After a failed sync the server crashes on purpose, and starts again.
sub steady
{
    my $code = shift;
    my @answer;

    until_true(sub { eval { @answer = $code->(); 1 } or do { $db->quit; eval { $db = session($node) }; 0 } }) or die $@;
    return wantarray ? @answer : $answer[0];
}

sub ask_for
{
    my ($relation, $to) = @_;

    return (ask($relation eq 'f' ? "relocate_table('f', '$to', 'lock')" : rebuild($relation, $to)))[0];
}

# All that must be true of a job that has ended
sub wrong
{
    my ($relation, $was, $to, $job) = @_;
    my @wrong;
    my $state = ended($job);
    my $is = place($relation);

    push @wrong, "the job is $state, and it is in $is" if ($is eq $to) != ($state eq 'done') || ($is ne $to && $is ne $was);
    push @wrong, 'no sqlstate, or no message' if $state eq 'failed' && of_job($job, 'num_nulls(sqlstate, message)') ne '0';
    push @wrong, 'an index is left or is lost' if $db->sql(q{SELECT count(*), bool_and(indisvalid AND indisready AND indislive)
        FROM pg_index WHERE indrelid = 'f'::regclass}) ne '2|t';
    push @wrong, 'rows are lost' if $db->sql('SELECT count(*) FROM f WHERE n = 3') ne '200'
      || $db->sql('SELECT count(*), sum(id) FROM f') ne '2000|2001000';
    push @wrong, map { "a file is left: $_" } strays($db);
    return @wrong;
}

SKIP:
for my $case ([ qw(f_n open EIO) ], [ qw(f_n write ENOSPC) ], [ qw(f open EIO) ], [ qw(f write ENOSPC) ], [ qw(f_n sync EIO) ])
{
    skip 'faults.c cannot be compiled', 12 unless $library;
    my ($relation, $kind, $error) = @$case;
    my (@wrong, %ends);

    # each failed sync ends in a crash, and none is like the first two
    for (my $n = 0; $kind ne 'sync' || $n <= ($ENV{PGSCALE_TEST_FULL} ? 4 : 1); $n = $n < 2 ? $n + 1 : 2 * $n)
    {
        my ($was, $to) = steady(sub { (place($relation), elsewhere($relation)) });

        order_call($kind eq 'sync' ? ('write', 0, 'SIGSTOP') : ($kind, $n, $error));
        my $job = ask_for($relation, $to);
        if ($kind eq 'sync')
        {
            my $worker;

            # From 17 on the checkpointer syncs an index that was built, unless a checkpoint has begun meanwhile.
            until_ok(sub { $worker = $db->sql("SELECT pid FROM pgscale_internal.relocation_job WHERE job = $job");
                $worker && process_state($worker) eq 'T' }, 'an index is written');
            $db->sql('CHECKPOINT');
            order_call($kind, $n, $error);
            kill CONT => $worker;
        }
        my $end = steady(sub { ended($job) });
        my $hit = (unpack 'l6', slurp_file($orders))[4];
        order();
        last unless $hit;
        $ends{$end}++;
        push @wrong, map { "call $n: $_" } steady(sub { wrong($relation, $was, $to, $job) });
        next if $end ne 'failed';
        push @wrong, map { "call $n, once more: $_" } wrong($relation, $was, $to, ask_for($relation, $to));
        push @wrong, "call $n: not moved" if place($relation) ne $to;
    }
    is(join("\n", @wrong), '', "$relation: $kind fails with $error");
    cmp_ok(scalar keys %ends, '>', 0, 'it does: ' . join ' ', map { "$_ $ends{$_}" } sort keys %ends);
}

### A tablespace that cannot be written to

my ($was, $to) = (place('f_n'), elsewhere('f_n'));
my $folder = $node->data_dir . '/pg_tblspc/' . $db->sql("SELECT oid FROM pg_tablespace WHERE spcname = '$to'");
$db->sql('CHECKPOINT');    # nothing of before is yet to be removed there
my @database = glob "$folder/PG_*/[0-9]*";
chmod 0555, @database or die $!;
my $job = ask_for('f_n', $to);
ended_ok($job, 'failed|42501|t', 'a read-only tablespace', q{state, sqlstate, message ~ 'ermission denied'});
is(join("\n", wrong('f_n', $was, $to, $job)), '', 'leaves all as it was');
chmod 0700, @database or die $!;
done_ok('writable again', ask_for('f_n', $to));

### A job that could be forgotten by a crash is none

$db->sql('CREATE DATABASE fresh');
my $fresh = session($node, dbname => 'fresh');
$fresh->sql('CREATE EXTENSION pgscale; CREATE TABLE f (id int PRIMARY KEY)');
chmod 0555, $node->data_dir . '/pg_stat' or die $!;
my ($state, $text) = $fresh->try(q{SELECT pgscale.relocate_indexes('f_pkey', 'fast', mode => 'rebuild')});
like("$state $text", qr/^58030 .*HINT:  The server log shows why "pg_stat/s, 'what cannot be written down is refused');
chmod 0700, $node->data_dir . '/pg_stat' or die $!;
is($fresh->sql('SELECT count(*) FROM pgscale.relocation_jobs'), 0, 'and is no job');
ended_ok(ask(q{relocate_indexes('f_pkey', 'fast', mode => 'rebuild')}, $fresh), 'done', 'later it is', 'state', $fresh);
$fresh->quit;

### A disk that goes away while an online move copies to it, and comes back later

my $disk = PostgreSQL::Test::Utils::tempdir();
$db->sql("CREATE TABLESPACE disk LOCATION '$disk'");
my $oid = $db->sql(q{SELECT oid FROM pg_tablespace WHERE spcname = 'disk'});
my ($other_disk, $link) = (PostgreSQL::Test::Utils::tempdir(), $node->data_dir . "/pg_tblspc/$oid");
($folder) = glob "$disk/PG_*";

sub to_link { my $where = shift; unlink $link or die $!; symlink $where, $link or die $!; return; }

for my $way (
    [ 'the folder is renamed', sub { rename $folder, "$disk/away" or die $! }, sub { rename "$disk/away", $folder or die $! } ],
    [ 'the symbolic link points elsewhere', sub { to_link($other_disk) }, sub { to_link($disk) } ])
{
    my ($name, $away, $back) = @$way;
    my $knows = 'SELECT finished_at IS NULL AND files IS NOT NULL FROM pgscale_internal.relocation_job WHERE job = ';
    my $other = session($node);

    reloaded('pgscale.relocation_rate', '1MB');
    ($job) = ask(q{relocate_table('large', 'disk')});
    job_ok($job, 'state, phase, copied_bytes > 4000000', 'running|copying|t', "$name: a copy is under way");
    $away->();
    # at that rate the job would notice only when a page is written
    reloaded('pgscale.relocation_rate');
    job_ok($job, q{state <> 'running', sqlstate, message ~ 'folder|No such file'}, 't|58P01|t', "$name: it gives up, and says why");
    is(($other->try('CHECKPOINT'))[0], '00000', "$name: a checkpoint is written");
    # whatever buffers it needs
    is(rows($other, 't', 'large'), $rows, "$name: the tables can be read");
    is(($other->try('UPDATE large SET filler = filler'))[0], '00000', "$name: and changed");
    is(($other->try('CHECKPOINT'))[0], '00000', "$name: and another checkpoint is");
    is(place('large'), 'pg_default', "$name: the table has not moved");
    # what it keeps to remove, unless it has found that there is nothing
    my $left = () = map { glob "$_/*/[0-9]*" } grep { -d } "$disk/away", $folder;
    cmp_ok($left, '>', 0, "$name: files are left on the disk that is away");
    is($db->sql($knows . $job), 't', "$name: the job knows them") or diag job_text($job);
    $other->quit;
    my $log = -s $node->logfile;
    # a session of before may be about to end
    stopped(sub { unlike(slurp_file($node->logfile, $log), qr/FATAL:  (?!terminating connection)|PANIC|ERROR/, "$name: a fast shutdown is clean") });
    is($db->sql($knows . $job), 't', "$name: after a start the job knows them") or diag job_text($job);

    $back->();
    # it is tried again after a while, for which a test need not wait
    until_true(sub {
        $db->sql("UPDATE pgscale_internal.relocation_job SET not_before = clock_timestamp() WHERE job = $job
            AND state IN ('queued', 'waiting') AND not_before > clock_timestamp()");
        return of_job($job, 'finished_at IS NOT NULL') eq 't';
    }) or die 'it does not end: ' . job_text($job);
    like(of_job($job, 'state'), qr/^(failed|done)$/, "$name: with the folder the job ends, tried again or not");
    is(rows($db, 't', 'large'), $rows, "$name: the rows are the same");
    strays_ok($name);
    done_ok("$name: a move", ask(q{relocate_table('large', 'disk')})) if place('large') eq 'pg_default';
    done_ok("$name: and back", ask(q{relocate_table('large', 'pg_default')}));
    # the server itself forgets the first file of what is gone, which is empty, if it does not find it then
    $db->sql('CHECKPOINT');
}

### A damaged page that shared buffers hold otherwise, because a session has read it with zero_damaged_pages or
### ignore_checksum_failure. A copy would make it valid, and the old file, from which the rows could be restored, would be gone:
### the move refuses.

my $page = 8192;
$db->sql(<<'EOQ');
CREATE TABLE damaged (id int PRIMARY KEY, filler char(500));
INSERT INTO damaged SELECT i, i FROM generate_series(1, 2000) i;
CREATE TABLE zeros (id int, filler char(500));
INSERT INTO zeros SELECT i, i FROM generate_series(1, 500) i;
VACUUM (FREEZE) damaged, zeros;
CHECKPOINT
EOQ

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

my %move = (damaged => q{relocate_table('damaged', 'fast')},
    damaged_pkey => q{relocate_indexes('damaged_pkey', 'fast', mode => 'online')});
my $by_index = 'SET enable_seqscan = off; SET enable_indexscan = off; SET enable_bitmapscan = off; SELECT count(*) FROM damaged';

# [relation, setting, what reads it, offset within its page 3, bytes there, what that session sees]
for my $case ([ 'damaged', 'zero_damaged_pages', 'SELECT count(filler) FROM damaged', 5000, 'damage', qr/^19\d\d$/ ],
    [ 'damaged', 'ignore_checksum_failure', 'SELECT count(filler) FROM damaged', 8, "\x01\x02", qr/^2000$/ ],
    [ 'damaged_pkey', 'ignore_checksum_failure', $by_index, 8, "\x01\x02", qr/^2000$/ ])
{
    my ($relation, $setting, $read, $at, $bytes, $seen) = @$case;
    my $name = "$relation, $setting";
    my $path = path($relation);
    my $before;

    stopped(sub { $before = overwrite($path, 3 * $page + $at, $bytes) });
    my $reader = session($node);
    like(($reader->try("SET client_min_messages = error; SET $setting = on; $read"))[1], $seen,
        "$name: a session reads the damaged page");
    ($job) = ask($move{$relation});
    ended_ok($job, 'failed|XX001|1', "$name: the move refuses, and says that data is corrupted", 'state, sqlstate, attempts');
    is(path($relation), $path, "$name: it has its file as before") || next;    # what follows changes that
    strays_ok($name);
    is($db->sql("SELECT pg_relation_size('$relation')"), -s $path, "$name: its file has not changed its length");
    $reader->quit;

    # from which the page can still be restored
    stopped(sub { overwrite($path, 3 * $page + $at, $before) });
    is($db->sql($read), '2000', "$name: with its bytes as they were all rows are there");
    $db->sql('RESET ALL');
    ($job) = ask($move{$relation});
    done_ok("$name: then it moves", $job);
    done_ok("$name: back", $db->sql("SELECT pgscale.relocation_undo($job)"));
}

# Pages of zeros are no damage: after a crash the file has grown, and they were never written.
my $path = path('zeros');
stopped(sub { append_to_file($path, "\0" x (2 * $page)) });
is($db->sql('SELECT count(*) FROM zeros'), 500, 'pages of zeros are read as empty');
done_ok('pages of zeros', ask(q{relocate_table('zeros', 'fast')}));
is($db->sql('SELECT count(*) FROM zeros'), 500, 'with the rows');

### No place for a worker

# a parallel query has all that there are but one, which the launcher takes
$db->sql(q{CREATE FUNCTION hold(int) RETURNS int LANGUAGE plpgsql PARALLEL SAFE AS 'BEGIN PERFORM pg_sleep(600); RETURN 1; END';
    CREATE TABLE many (i int) WITH (parallel_workers = 16); INSERT INTO many SELECT generate_series(1, 10000)});
my $hog = session($node);
$hog->sql("SET $_") for 'max_parallel_workers_per_gather = 16', 'max_parallel_workers = 13', 'parallel_setup_cost = 0',
  'parallel_tuple_cost = 0', 'min_parallel_table_scan_size = 0';
$hog->start('SELECT sum(hold(i)) FROM many');
$db->poll_ok(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'pgscale%'
    AND backend_type <> 'pgscale relocation worker'
    OR backend_type IN ('logical replication launcher', 'parallel worker')}, 'a query has all slots but one', 15);
my $health = q{SELECT state, reason, action FROM pgscale.health WHERE feature = 'relocation'};
$job = ask_for('f_n', elsewhere('f_n'));
$db->poll_ok($health, 'no place for a worker: health says so',
    'broken|jobs are queued, but the server has no slot for another background worker|raise max_worker_processes and restart');
is(of_job($job, 'state, attempts'), 'queued|0', 'the job waits');
is($db->sql("SELECT pgscale.relocation_cancel($job)"), 't', 'and can be cancelled');
$job = ask_for('f_n', elsewhere('f_n'));
$db->sql('SELECT pg_cancel_backend(' . $hog->pid . ')');
is(($hog->finish)[0], '57014', 'the query ends');
done_ok('with a place', $job);
$db->poll_ok($health, 'and health knows', 'idle|ready; nothing is under way|');
$hog->quit;

$db->quit;
$node->stop;
done_testing();
