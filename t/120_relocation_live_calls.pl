# Live moves in which a call of the server's functions raises an error: each function that the copy, the switch and the clean-up call, at
# its first calls and at some of the later ones, while other sessions change the table and keep a ledger. Whichever it is, afterwards
# no change is lost, job, catalogs and files say the same, and the log has the error.
#
# Each day has a seed of its own, which is printed, and a third of the calls; all of them with PGSCALE_TEST_FULL.
# PGSCALE_TEST_CALL='switch ReadBufferExtended 2 XX000', a regular expression, chooses from all.
use strict;
use warnings;
use PgscaleCalled;
use PgscaleLedger;
use PgscaleLive;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($library, $why) = failing_calls_library();
plan skip_all => $why unless $library;
my $seed = $ENV{PGSCALE_TEST_SEED} // int(time / 86400);
note "PGSCALE_TEST_SEED=$seed";
srand $seed;

relocation_node(preload => "pgscale,$library", conf => <<'EOC');
autovacuum = off
pgscale.sweeper = off
log_min_messages = debug1    # for a lock that was not free
pgscale.relocation_max_transaction_age = -1
EOC
$db->sql("CREATE EXTENSION $_") for grep { have_module($_) } qw(amcheck pg_visibility);
# for which a job looks last, and which takes its time
$db->sql("ALTER TABLESPACE $_ SET (random_page_cost = 1.1)") for qw(fast other);
$db->sql('CREATE TABLE tiny (id int)');
# what cannot raise an error: it lets go of something, or only looks at memory
my $cannot = qr/^(?:(?:pfree|strlcpy|relation_close|proc_exit|before_shmem_exit|pqsignal|smgrclose|superuser_arg|wal_segment_close|quote_\w+)$
    |(?:Release|Unlock|Free|Close|Abort|pgstat_|pg_|parse_|File|GetXLog|GetWAL|GetFlush|GetSystem|GetTemp|SetTemp|GetUserId|SetUserId|BackgroundWorker)
    |.*(?:Acquire|GetProc|GetBlockNumber|Latch|Timestamp|_finish|Free|Delete|Reset|NestLevel|AtEOXact_GUC|Release|XidByVirtualXID|PopActiveSnapshot|BlockTagExtended|ForceSyncCommit|InvalidateCatalogSnapshot)$)/x;
my %errors = (XX000 => 'no unpinned buffers available', '55P03' => 'canceling statement due to lock timeout');

ledger_tables(160 * 34, 40);
my $log = 0;
my $faults = 0;
my %ends;

# The end of a job. One that waits for a while before it is tried again need not, and one whose worker has ended is found by the next.
sub end_soon
{
    my $job = shift;
    my $rounds = 0;

    until_true(sub {
        my ($ended, $waits) = split /\|/, $db->sql("SELECT finished_at IS NOT NULL, state IN ('queued', 'waiting') AND not_before > clock_timestamp()
            OR pid IS NOT NULL AND NOT EXISTS (SELECT FROM pg_stat_activity a WHERE a.pid = j.pid) FROM pgscale_internal.relocation_job j WHERE job = $job");
        # no file of the other is in the making
        return $db->sql('SELECT count(*) FROM pgscale.relocation_jobs WHERE finished_at IS NULL') eq '0' if $ended eq 't';
        if ($waits eq 't' && $rounds++ % 10 == 2)
        {
            $db->sql("UPDATE pgscale_internal.relocation_job SET not_before = clock_timestamp() WHERE job = $job AND finished_at IS NULL");
            $db->try(q{SELECT pgscale.relocate_table('tiny', '} . elsewhere('tiny') . q{')});
        }
        return 0;
    }) or die "job $job does not end: " . job_text($job) . "\n" . slurp_file($node->logfile, (-s $node->logfile) - 3000);
    return $db->sql("SELECT state FROM pgscale.relocation_jobs WHERE job = $job");
}

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
    my $said = $db->sql("SELECT coalesce(message, '') FROM pgscale.relocation_jobs WHERE job = $job");

    $ends{"$part: $end"}++;
    push @wrong, "it is $end" if $end ne 'done' && $end ne 'failed';
    push @wrong, "it is $end, and has " . ($moved ? '' : 'not ') . "moved: $said" if $moved ? $end ne 'done' && $said !~ /^it has moved/ : $end eq 'done';
    push @wrong, 'the log does not have the error' if slurp_file($node->logfile, $log) !~ /\Q$message\E/;
    push @wrong, ledger_wrong();
    push @wrong, map { "file $_ is left" } strays($db);
    # the next ones begin with what is right
    ledger_begin_again() if grep { /ledger/ } @wrong;
    $log = -s $node->logfile;
    $db->sql('VACUUM kept, ledger') if $faults % 40 == 0;
    return \@wrong;
}

my @loading = ledger_load(2);
is(end_soon(ask(q{relocate_table('kept', 'fast')})), 'done', 'with no fault it is done');
calls_clear();
is(end_soon(ask(q{relocate_table('kept', 'other')})), 'done', 'and once more');
my $counted = calls_counted();
is(join(' ', sort keys %$counted), 'before clean-up copy switch', 'each part of a move has calls');
cmp_ok($counted->{switch}{ConditionalLockRelationOid}, '>=', 3, 'the table, its TOAST table and the index of that are locked');
ok($counted->{switch}{ReadBufferWithoutRelcache}, 'blocks are copied in the switch');

# [part, function, n, sqlstate]
my @calls;
for my $part (qw(copy switch clean-up))
{
    for my $function (grep { !/$cannot/ } sort keys %{ $counted->{$part} })
    {
        my $count = $counted->{$part}{$function};
        my %n = map { $_ => 1 } grep { $_ <= $count } 1, 2, 3, $count, 1 + int rand $count;

        %n = map { $_ => 1 } 1 .. $count if $ENV{PGSCALE_TEST_FULL} && $count <= 30;
        for my $n (sort { $a <=> $b } keys %n)
        {
            push @calls, map { [ $part, $function, $n, $_ ] } $part eq 'switch' ? sort keys %errors : 'XX000';
        }
    }
}
my $all = @calls;
my $chosen = $ENV{PGSCALE_TEST_CALL};
@calls = grep { "@$_" =~ /$chosen/ } @calls if $chosen;
@calls = grep { rand() < 1 / 3 || $_->[0] eq 'switch' && $_->[2] == 1 && $_->[3] eq 'XX000' } @calls unless $ENV{PGSCALE_TEST_FULL} || $chosen;
my %wrong;
my $happened = 0;
for my $call (@calls)
{
    my $wrong = wrong_with(@$call) // next;

    $happened++;
    push @{ $wrong{ $call->[0] } }, map { "@$call: $_" } @$wrong;
}
is(join("\n", @{ $wrong{$_} // [] }), '', "an error in any call of the $_ leaves all right") for qw(copy switch clean-up);
cmp_ok($happened, '>', @calls / 2, 'most of these calls were made and failed');
note "$happened of ", scalar @calls, " calls failed, of $all that could be chosen: ", join ', ', map { "$_ $ends{$_}" } sort keys %ends;
is(join("\n", ledger_unload(@loading)), '', 'none of the sessions that changed the table has failed');
is(join("\n", ledger_wrong()), '', 'at the end the table is as in the ledger');
sound_ok('after all');
strays_ok('no file is left');
$db->quit;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, 'nothing crashed');
$node->stop;
done_testing();
