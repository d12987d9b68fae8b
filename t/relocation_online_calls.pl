# Online moves in which a call of the server's functions raises an error: each function that the copy, the switch and the clean-up
# call, at its first calls and at some of the later ones, while other sessions change the table and keep a ledger; and a server
# that has hardly any shared buffer left. Whatever becomes of the job, no change is lost, job, catalogs and files say the same, and
# the log has the error.
#
# Each day has a seed of its own, which is printed, for the order of the calls; some of them are tried, and all with
# PGSCALE_TEST_FULL.
# PGSCALE_TEST_CALL='switch ReadBufferExtended 2 XX000', a regular expression, chooses from all.
use strict;
use warnings;
use Fcntl qw(SEEK_SET);
use List::Util qw(shuffle uniq);
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

### The n-th call of one of the server's functions fails in a worker that moves relations: t/lib/failing_calls.c

# those of struct calls
use constant { FUNCTIONS => 900, NAME => 64, MESSAGE => 100, HEAD => 124, PARTS => 4 };
my %part = (before => 0, copy => 1, switch => 2, 'clean-up' => 3);
my $file = $ENV{FAILING_CALLS} = PostgreSQL::Test::Utils::tempdir_short() . '/calls';
my $library = compiled('failing_calls');
my %number;

sub read_calls { open my $in, '<:raw', $file or die "$file: $!"; local $/; return scalar <$in>; }

sub write_calls
{
    my ($at, $bytes) = @_;

    open my $out, '+<:raw', $file or die "$file: $!";
    seek $out, $at, SEEK_SET;
    print $out $bytes;
    close $out or die "$file: $!";
    return;
}

# From now on: the n-th call (from 1) of that function in that part of a move fails, once. All are counted anew.
sub calls_fail
{
    my ($part, $function, $n, $sqlstate, $message) = @_;

    calls_fail_no_more();
    calls_clear();
    %number or calls_counted();
    my $code = 0;
    $code += (ord(substr $sqlstate, $_, 1) - ord '0' & 0x3f) << 6 * $_ for 0 .. 4;
    write_calls(24, pack 'Z' . MESSAGE, $message);
    write_calls(8, pack 'l3', $n - 1, $code, 0);
    write_calls(0, pack 'l2', $part{$part}, $number{$function} // die "no function $function");
    return;
}

sub calls_clear { write_calls(HEAD + FUNCTIONS * NAME, "\0" x (FUNCTIONS * PARTS * 4)); return; }
sub calls_fail_no_more { write_calls(4, pack 'l', -1); return; }
sub calls_failed { return (unpack 'l5', read_calls())[4]; }

# How often each function was called in each part: {part}{function}
sub calls_counted
{
    my $all = read_calls();
    my $n = (unpack 'l6', $all)[5];
    my %counted;

    for my $i (0 .. $n - 1)
    {
        my $name = unpack 'Z*', substr $all, HEAD + $i * NAME, NAME;
        my @counts = unpack 'l4', substr $all, HEAD + FUNCTIONS * NAME + $i * PARTS * 4, PARTS * 4;

        $number{$name} = $i;
        $counted{$_}{$name} = $counts[ $part{$_} ] for grep { $counts[ $part{$_} ] } keys %part;
    }
    return \%counted;
}

### A table that is to be moved, and a ledger of its rows beside it that is not: each transaction changes a row of the table, and in
### the ledger what the row then is. So whatever happens to the table's file, a lost change of it shows.

# kept and its ledger: $rows rows, about 34 a page with room for their next versions; $toasted have values in the TOAST table.
my ($rows, $toasted) = (200 * 34, 40);

# As if nothing had ever been changed
sub ledger_begin_again
{
    $db->sql(<<"EOQ");
BEGIN;
TRUNCATE kept, ledger;
INSERT INTO kept SELECT i, 0, '00000000-0000-0000-0000-000000000000',
    CASE WHEN i < $toasted THEN words(i, 0) END FROM generate_series(0, $rows - 1) i;
INSERT INTO ledger SELECT i, 0 FROM generate_series(0, $rows - 1) i;
COMMIT
EOQ
    $db->sql('VACUUM kept, ledger');
    return;
}

# Changes rows, each in a transaction of its own
sub ledger_change
{
    my (@ids) = @_;

    $db->sql("BEGIN; UPDATE kept SET n = n + 1, v = CASE WHEN id < $toasted THEN words(id, n + 1) END WHERE id = $_;
        UPDATE ledger SET n = n + 1 WHERE id = $_; COMMIT") for @ids;
    return;
}

# Sessions that change rows all the time, until unload: what those have said that failed.
sub ledger_load
{
    my ($sessions) = @_;
    my @loading = map { session($node) } 1 .. $sessions;

    $db->sql('INSERT INTO load_on DEFAULT VALUES');
    $loading[$_]->start("CALL load($_, $sessions)") for 0 .. $#loading;
    return @loading;
}

sub ledger_unload
{
    my (@loading) = @_;

    $db->sql('DELETE FROM load_on');
    $_->{limit}->start(2 * $PostgreSQL::Test::Utils::timeout_default) for @loading;
    my @failed;
    for my $session (@loading)
    {
        my ($state, $text) = eval { $session->finish };
        push @failed, $text // $@ if ($state // '') ne '00000';
    }
    $_->quit for @loading;
    return @failed;
}

# In which rows, in one snapshot, table and ledger differ: empty if in none. Looked up without indexes, and by one.
sub ledger_wrong
{
    my @wrong;

    for my $index ('off', 'on')
    {
        my $table = $index eq 'on' ? 'off' : 'on';
        my ($state, $text) = $db->try(<<"EOQ");
BEGIN; SET LOCAL enable_seqscan = $table; SET LOCAL enable_indexscan = $index; SET LOCAL enable_indexonlyscan = $index;
SET LOCAL enable_bitmapscan = off;
SELECT CASE WHEN count(*) > 0 THEN format('%s rows are not as in the ledger: sum %s instead of %s, first id %s: %s instead of %s',
    count(*),
    coalesce(sum(k.n), 0), sum(l.n), min(l.id), (array_agg(k.n ORDER BY l.id))[1], (array_agg(l.n ORDER BY l.id))[1]) END
  FROM (SELECT * FROM ledger ORDER BY id) l FULL JOIN (SELECT * FROM kept ORDER BY id) k USING (id)
 WHERE k.n IS DISTINCT FROM l.n OR k.id < $toasted AND k.v IS DISTINCT FROM words(k.id, l.n);
COMMIT
EOQ
        $db->sql('ROLLBACK') if $state ne '00000';
        push @wrong, $state eq '00000' ? $text : "$state $text";
    }
    return grep { $_ ne '' } @wrong;
}

### The server

my $seed = $ENV{PGSCALE_TEST_SEED} // int(time / 86400);
note "PGSCALE_TEST_SEED=$seed";
srand $seed;

relocation_node(preload => join(',', 'pgscale', $library // ()), conf => <<'EOC');
shared_buffers = 8MB
bgwriter_lru_maxpages = 0
log_min_messages = debug1    # for a lock that was not free
EOC
extensions();
# for which a job looks last, and which takes its time
$db->sql("ALTER TABLESPACE $_ SET (random_page_cost = 1.1)") for qw(fast other);
$db->sql('CREATE TABLE tiny (id int)');
$db->sql(<<"EOQ");
CREATE TABLE load_on ();
CREATE FUNCTION words(id int, n bigint) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT repeat(md5(id || \$\$ \$\$ || n), 70)';
CREATE TABLE kept (id int PRIMARY KEY, n bigint NOT NULL, a uuid, v text) WITH (fillfactor = 25);
ALTER TABLE kept ALTER v SET STORAGE EXTERNAL;
CREATE TABLE ledger (id int PRIMARY KEY, n bigint NOT NULL) WITH (fillfactor = 25);
CREATE PROCEDURE load(me int, sessions int) LANGUAGE plpgsql AS \$\$
DECLARE
    this int;
BEGIN
    WHILE EXISTS (SELECT FROM load_on) LOOP
        FOR i IN 1..5 LOOP
            this := sessions * floor(random() * (CASE WHEN random() < 0.02 THEN $toasted ELSE $rows END / sessions))::int + me;
            UPDATE kept SET n = n + this % 7 + 1, v = CASE WHEN id < $toasted THEN words(id, n + this % 7 + 1) END WHERE id = this;
            UPDATE ledger SET n = n + this % 7 + 1 WHERE id = this;
        END LOOP;
        COMMIT;
        PERFORM pg_sleep(0.001);
    END LOOP;
END \$\$;
EOQ
ledger_begin_again();

# The end of a job. One that waits for a while before it is tried again need not, and one whose worker has ended is found by the
# next.
sub end_soon
{
    my $job = shift;
    my $rounds = 0;

    until_true(sub {
        my ($ended, $waits) = split /\|/, $db->sql("SELECT finished_at IS NOT NULL, state IN ('queued', 'waiting')
            AND not_before > clock_timestamp()
            OR pid IS NOT NULL AND NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = j.pid)
                FROM pgscale_internal.relocation_job j WHERE job = $job");
        # no file of the other is in the making
        return $db->sql('SELECT count(*) FROM pgscale.relocation_jobs WHERE finished_at IS NULL') eq '0' if $ended eq 't';
        if ($waits eq 't' && $rounds++ % 10 == 2)
        {
            $db->sql("UPDATE pgscale_internal.relocation_job SET not_before = clock_timestamp() WHERE job = $job
                AND finished_at IS NULL");
            $db->try(q{SELECT pgscale.relocate_table('tiny', '} . elsewhere('tiny') . q{')});
        }
        return 0;
    }) or die "job $job does not end: " . job_text($job) . "\n" . slurp_file($node->logfile, (-s $node->logfile) - 3000);
    return of_job($job, 'state');
}

my %errors = (XX000 => 'no unpinned buffers available', '55P03' => 'canceling statement due to lock timeout');
my $log = 0;
my $faults = 0;

# A move in which a call fails. What is wrong afterwards; undef if there was no such call.
sub wrong_with
{
    my ($part, $function, $n, $sqlstate) = @_;
    my @wrong;
    my $message = sprintf 'fault %d in %s, %s %d: %s', ++$faults, $part, $function, $n, $errors{$sqlstate};
    my $from = place('kept');

    calls_fail($part, $function, $n, $sqlstate, $message);
    my ($job) = ask("relocate_table('kept', '" . elsewhere('kept') . "')");
    my $end = end_soon($job);
    my $happened = calls_failed();
    calls_fail_no_more();
    return unless $happened;
    my $moved = place('kept') ne $from;
    my $said = of_job($job, q{coalesce(message, '')});

    push @wrong, "it is $end" if $end ne 'done' && $end ne 'failed';
    push @wrong, "it is $end, and has " . ($moved ? '' : 'not ') . "moved: $said"
      if $moved ? $end ne 'done' && $said !~ /^it has moved/ : $end eq 'done';
    push @wrong, 'the log does not have the error' if slurp_file($node->logfile, $log) !~ /\Q$message\E/;
    push @wrong, ledger_wrong();
    push @wrong, map { "file $_ is left" } strays($db);
    # the next ones begin with what is right
    ledger_begin_again() if grep { /ledger/ } @wrong;
    $log = -s $node->logfile;
    $db->sql('VACUUM kept, ledger') if $faults % 40 == 0;
    return \@wrong;
}

# [part, function, n, sqlstate] of the calls that a move makes. Some cannot raise an error: they let go of something, or only look
# at memory.
my $cannot = qr/^(?:(?:pfree|strlcpy|relation_close|proc_exit|before_shmem_exit|pqsignal|smgrclose|superuser_arg|wal_segment_close)$
    |(?:Release|Unlock|Free|Close|Abort|pgstat_|pg_|parse_|File|GetXLog|GetWAL|GetFlush|GetSystem|GetTemp|SetTemp|GetUserId
        |SetUserId|BackgroundWorker|quote_)
    |.*(?:Acquire|GetProc|GetBlockNumber|Latch|Timestamp|_finish|Free|Delete|Reset|NestLevel|AtEOXact_GUC|Release
        |XidByVirtualXID|PopActiveSnapshot|BlockTagExtended|ForceSyncCommit|InvalidateCatalogSnapshot)$)/x;

sub calls_to_fail
{
    my $counted = shift;
    my @calls;

    for my $part (qw(copy switch clean-up))
    {
        for my $function (grep { !/$cannot/ } sort keys %{ $counted->{$part} })
        {
            my $count = $counted->{$part}{$function};
            my @n = $ENV{PGSCALE_TEST_FULL} && $count <= 30 ? 1 .. $count : grep { $_ <= $count } 1, 2, 3, $count,
                1 + int rand $count;
            my %n = map { $_ => 1 } @n;

            for my $n (sort { $a <=> $b } keys %n)
            {
                push @calls, map { [ $part, $function, $n, $_ ] } $part eq 'switch' ? sort keys %errors : 'XX000';
            }
        }
    }
    my $chosen = $ENV{PGSCALE_TEST_CALL};
    return grep { "@$_" =~ /$chosen/ } @calls if $chosen;
    my %seen;
    # one of each part
    my @first = grep { !$seen{ $_->[0] }++ || $_->[0] eq 'switch' && $_->[2] == 1 && $_->[3] eq 'XX000' } @calls;
    my %first = map { $_ => 1 } @first;
    return @first, shuffle(grep { !$first{$_} } @calls);
}

SKIP:
{
    skip 'failing_calls cannot be compiled here', 12 unless $library;
    my @loading = ledger_load(2);
    is(end_soon(ask(q{relocate_table('kept', 'fast')})), 'done', 'with no fault it is done');
    calls_clear();
    is(end_soon(ask(q{relocate_table('kept', 'other')})), 'done', 'and once more');
    my $counted = calls_counted();
    is(join(' ', sort keys %$counted), 'before clean-up copy switch', 'each part of a move has calls');
    cmp_ok($counted->{switch}{ConditionalLockRelationOid}, '>=', 3, 'the table, its TOAST table and the index of that are locked');
    ok($counted->{switch}{ReadBufferWithoutRelcache}, 'blocks are copied in the switch');
    my @calls = calls_to_fail($counted);
    my @parts = sort { $a cmp $b } uniq(map { $_->[0] } @calls);
    my ($tried, $happened) = (0, 0);
    my (%happened, %wrong);

    for my $call (@calls)
    {
        last if $tried >= 80 && keys %happened == @parts && !$ENV{PGSCALE_TEST_FULL};
        $tried++;
        my $wrong = wrong_with(@$call) // next;

        $happened++;
        $happened{ $call->[0] }++;
        push @{ $wrong{ $call->[0] } }, map { "@$call: $_" } @$wrong;
    }
    is(join("\n", @{ $wrong{$_} // [] }), '', "an error in any call of the $_ leaves all right") for qw(copy switch clean-up);
    is(join(' ', sort keys %happened), "@parts", 'calls of each part have failed');
    cmp_ok($happened, '>', $tried / 2, 'most of these calls were made and failed');
    note "$happened of $tried calls failed, of ", scalar @calls;
    is(join("\n", ledger_unload(@loading)), '', 'none of the sessions that changed the table has failed');
    is(join("\n", ledger_wrong()), '', 'at the end the table is as in the ledger');
}

### Others have pinned almost all shared buffers: at its switch a move gets none to write the last blocks into. (Such an error was
### once taken for a collision with another session in pg_class.)

# a row a page
$db->sql(q{CREATE TABLE pinned (n int, filler char(1000)) WITH (fillfactor = 10);
    INSERT INTO pinned SELECT i, '' FROM generate_series(1, 1100) i; CHECKPOINT});
$db->sql(<<'EOQ');
CREATE PROCEDURE pin(first int, last int, job bigint) LANGUAGE plpgsql AS $$
DECLARE
    this refcursor;
    found record;
BEGIN
    FOR i IN first..last LOOP
        this := 'pin ' || i;
        OPEN this FOR EXECUTE format('SELECT n FROM pinned WHERE ctid = %L', format('(%s,1)', i));
        FETCH this INTO found;
    END LOOP;
    FOR i IN 1..2000 LOOP
        EXIT WHEN job IS NULL OR EXISTS (SELECT FROM pgscale.relocation_jobs j
            WHERE j.job = pin.job AND (lock_tries > 0 AND phase <> 'switching' OR finished_at IS NOT NULL));
        PERFORM pg_sleep(0.002);
    END LOOP;
END $$;
EOQ
my ($most, $more) = (session($node), session($node));
for my $round (1 .. 4)
{
    # 24 buffers are left, which is enough for the 16 blocks that are written at a time in such a server
    my ($holder, $job) = held_online('kept', elsewhere('kept'));
    $most->sql('BEGIN; CALL pin(0, 999, NULL)');
    # once these have been copied again it does not do so for a while, and takes the few that follow into its switch
    my $copied = of_job($job, 'recopied_blocks');
    ledger_change(map { 34 * $_ } 0 .. 79);
    job_ok($job, "recopied_blocks > $copied OR finished_at IS NOT NULL", 't', 'what has changed is copied again');
    # from now on too few are left, until it has tried
    $more->start("CALL pin(1000, 1011, $job)");
    my $some = "id BETWEEN 40 AND 34 * 40 AND id % 34 = $round";
    $holder->sql("UPDATE kept SET n = n + 1 WHERE $some; UPDATE ledger SET n = n + 1 WHERE $some; COMMIT");
    $more->finish;
    $most->sql('COMMIT');
    like(ended($job), qr/^(done|failed)$/, "round $round: the job ends");
    is(join("\n", ledger_wrong()), '', "round $round: the table is as in the ledger");
    $holder->quit;
}
sound_ok('at the end');
strays_ok('at the end');
$_->quit for $most, $more;
stop_ok();
done_testing();
