# A live move in a server whose shared buffers others have pinned almost all: at its switch it gets none to write the last blocks into.
# Whatever becomes of the job, no change is lost. (Such an error was once taken for a collision with another session in pg_class.)
use strict;
use warnings;
use PgscaleLedger;
use PgscaleLive;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

relocation_node(conf => <<'EOC');
autovacuum = off
shared_buffers = 8MB
bgwriter_lru_maxpages = 0
pgscale.sweeper = off
pgscale.relocation_max_transaction_age = -1
EOC
$db->sql("CREATE EXTENSION $_") for grep { have_module($_) } qw(amcheck pg_visibility);
ledger_tables(200 * 34, 0);
# a row a page
$db->sql(q{CREATE TABLE pinned (n int, filler char(1000)) WITH (fillfactor = 10); INSERT INTO pinned SELECT i, '' FROM generate_series(1, 1100) i; CHECKPOINT});
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
        EXIT WHEN job IS NULL OR EXISTS (SELECT FROM pgscale.relocation_jobs j WHERE j.job = pin.job AND (lock_tries > 0 AND phase <> 'switching' OR finished_at IS NOT NULL));
        PERFORM pg_sleep(0.002);
    END LOOP;
END $$;
EOQ

my ($most, $more) = (session($node), session($node));
my %ends;
for my $round (1 .. 6)
{
    # 24 buffers are left, which is enough for the 16 blocks that are written at a time in such a server
    my ($holder, $job) = held_live('kept', elsewhere('kept'));
    $most->sql('BEGIN; CALL pin(0, 999, NULL)');
    # once these have been copied again it does not do so for a while, and takes the few that follow into its switch
    ledger_change(map { 34 * $_ } 0 .. 79);
    my $copied = $db->sql("SELECT recopied_blocks FROM pgscale.relocation_jobs WHERE job = $job");
    until_true(sub { $db->sql("SELECT recopied_blocks > $copied OR finished_at IS NOT NULL FROM pgscale.relocation_jobs WHERE job = $job") eq 't' });
    # from now on too few are left, until it has tried
    $more->start("CALL pin(1000, 1011, $job)");
    my $rows = "id < 34 * 40 AND id % 34 = $round";
    $holder->sql("UPDATE kept SET n = n + 1 WHERE $rows; UPDATE ledger SET n = n + 1 WHERE $rows; COMMIT");
    my ($state, $text) = $more->finish;
    $most->sql('COMMIT');
    my $end = ended($job);
    $ends{ $end . ' ' . $db->sql("SELECT concat_ws(' ', 'tries', lock_tries, sqlstate, message) FROM pgscale.relocation_jobs WHERE job = $job") }++;
    is(join("\n", ledger_wrong()), '', "round $round: the table is as in the ledger");
    ok($end eq 'done' || $end eq 'failed', "round $round: the job has ended: $end") or diag job_text($job);
    $holder->quit;
}
note "$ends{$_} times: $_" for sort keys %ends;
sound_ok('after all');
strays_ok('no file is left');
my $happened = () = slurp_file($node->logfile) =~ /no unpinned buffers available/g;
note "the log has it $happened times";
$_->quit for $most, $more, $db;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, 'nothing crashed');
$node->stop;
done_testing();
