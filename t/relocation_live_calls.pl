# Live moves in which a call of the server's functions raises an error: each function that the copy, the switch and the clean-up
# call, at its first calls and at some of the later ones, while other sessions change the table and keep a ledger; and a server
# that has hardly any shared buffer left. Whatever becomes of the job, no change is lost, job, catalogs and files say the same, and
# the log has the error.
#
# Each day has a seed of its own, which is printed, for the order of the calls; it ends after some time, and with PGSCALE_TEST_FULL
# after all of them.
# PGSCALE_TEST_CALL='switch ReadBufferExtended 2 XX000', a regular expression, chooses from all.
use strict;
use warnings;
use List::Util qw(shuffle);
use PgscaleCalled;
use PgscaleLedger;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $library = failing_calls_library();
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
ledger_tables(200 * 34, 40);

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
    my @first = grep { $_->[0] eq 'switch' && $_->[2] == 1 && $_->[3] eq 'XX000' } @calls;
    my %first = map { $_ => 1 } @first;
    return @first, shuffle(grep { !$first{$_} } @calls);
}

SKIP:
{
    skip 'failing_calls cannot be compiled here', 8 unless $library;
    my @loading = ledger_load(2);
    is(end_soon(ask(q{relocate_table('kept', 'fast')})), 'done', 'with no fault it is done');
    calls_clear();
    is(end_soon(ask(q{relocate_table('kept', 'other')})), 'done', 'and once more');
    my $counted = calls_counted();
    is(join(' ', sort keys %$counted), 'before clean-up copy switch', 'each part of a move has calls');
    cmp_ok($counted->{switch}{ConditionalLockRelationOid}, '>=', 3, 'the table, its TOAST table and the index of that are locked');
    ok($counted->{switch}{ReadBufferWithoutRelcache}, 'blocks are copied in the switch');
    my @calls = calls_to_fail($counted);
    my ($tried, $happened) = (0, 0);
    my $until = time + 40;
    my %wrong;

    for my $call (@calls)
    {
        last if time > $until && !$ENV{PGSCALE_TEST_FULL};
        $tried++;
        my $wrong = wrong_with(@$call) // next;

        $happened++;
        push @{ $wrong{ $call->[0] } }, map { "@$call: $_" } @$wrong;
    }
    is(join("\n", @{ $wrong{$_} // [] }), '', "an error in any call of the $_ leaves all right") for qw(copy switch clean-up);
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
    my ($holder, $job) = held_live('kept', elsewhere('kept'));
    $most->sql('BEGIN; CALL pin(0, 999, NULL)');
    # once these have been copied again it does not do so for a while, and takes the few that follow into its switch
    my $copied = of_job($job, 'recopied_blocks');
    ledger_change(map { 34 * $_ } 0 .. 79);
    job_ok($job, "recopied_blocks > $copied OR finished_at IS NOT NULL", 't', 'what has changed is copied again');
    # from now on too few are left, until it has tried
    $more->start("CALL pin(1000, 1011, $job)");
    my $rows = "id BETWEEN 40 AND 34 * 40 AND id % 34 = $round";
    $holder->sql("UPDATE kept SET n = n + 1 WHERE $rows; UPDATE ledger SET n = n + 1 WHERE $rows; COMMIT");
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
