# The folder of the target goes away while a live move copies into it, and comes back later. Meanwhile the server can write checkpoints,
# the table is in use, and the server stops as always; the job keeps the names of its files, and says so. Afterwards nothing is left.
use strict;
use warnings;
use PgscaleLive;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

relocation_node(conf => <<'EOC');
autovacuum = off
fsync = on
bgwriter_lru_maxpages = 0
pgscale.sweeper = off
pgscale.relocation_max_transaction_age = -1
EOC
my $disk = PostgreSQL::Test::Utils::tempdir();
$db->sql("CREATE TABLESPACE disk LOCATION '$disk'");
two_tables(20000);
my $rows = rows($db, 't', 'large');
my $other = session($node);
my $oid = $db->sql(q{SELECT oid FROM pg_tablespace WHERE spcname = 'disk'});

sub slow
{
    my $rate = shift;

    $db->set('pgscale.relocation_rate', $rate);
    return $db->poll_ok('SHOW pgscale.relocation_rate', "at most $rate a second", $rate);
}

# How the folder goes away, and comes back
my ($folder) = glob "$disk/PG_*";
my $link = $node->data_dir . "/pg_tblspc/$oid";
my $elsewhere = PostgreSQL::Test::Utils::tempdir();
my %ways = (
    'the folder is renamed' => [ sub { rename $folder, "$disk/away" or die $! }, sub { rename "$disk/away", $folder or die $! } ],
    'the symbolic link points elsewhere' => [
        sub { unlink $link or die $!; symlink $elsewhere, $link or die $! },
        sub { unlink $link or die $!; symlink $disk, $link or die $! } ]);

for my $way (sort keys %ways)
{
    my ($away, $back) = @{ $ways{$way} };

    slow('1MB');
    my ($job) = ask(q{relocate_table('large', 'disk')});
    job_ok($job, 'state, phase, copied_bytes > 4000000', 'running|copying|t', "$way: a copy is under way");
    $away->();
    # without this the job would notice only when a page is written
    slow('0');
    $db->poll_ok("SELECT state <> 'running' FROM pgscale.relocation_jobs WHERE job = $job", "$way: it gives up");
    like($db->sql("SELECT concat_ws(' ', sqlstate, message) FROM pgscale.relocation_jobs WHERE job = $job"), qr/^58P01 .*(?:folder|No such file)/, "$way: and says why") or diag job_text($job);
    is(($other->try('CHECKPOINT'))[0], '00000', "$way: a checkpoint is written");
    # whatever buffers it needs
    is(rows($other, 't', 'large'), $rows, "$way: the tables can be read");
    is(($other->try('UPDATE large SET filler = filler'))[0], '00000', "$way: and changed");
    is(($other->try('CHECKPOINT'))[0], '00000', "$way: and another checkpoint is");
    is(place('large'), 'pg_default', "$way: the table has not moved");
    # what it keeps to remove, unless it has found that there is nothing
    my $left = () = map { glob "$_/*/[0-9]*" } grep { -d } "$disk/away", $folder;
    cmp_ok($left, '>', 0, "$way: files are left on the disk that is away");
    is($db->sql("SELECT finished_at IS NULL AND files IS NOT NULL FROM pgscale_internal.relocation_job WHERE job = $job"), 't', "$way: the job knows them") or diag job_text($job);

    $_->quit for $db, $other;
    my $log = -s $node->logfile;
    $node->stop('fast');
    unlike(slurp_file($node->logfile, $log), qr/FATAL|PANIC|ERROR/, "$way: a fast shutdown is clean");
    $node->start;
    ($db, $other) = (session($node), session($node));
    is($db->sql("SELECT finished_at IS NULL AND files IS NOT NULL FROM pgscale_internal.relocation_job WHERE job = $job"), 't', "$way: after a start the job knows them") or diag job_text($job);

    $back->();
    my $end = ended_soon($job);
    # tried again, or not
    ok($end eq 'failed' || $end eq 'done', "$way: with the folder the job ends: $end") or diag job_text($job);
    is(rows($db, 't', 'large'), $rows, "$way: the rows are the same");
    strays_ok("$way: no file is left");
    my %known = map { $_ => 1 } split /\n/, $db->sql('SELECT pg_relation_filenode(oid) FROM pg_class WHERE reltablespace = ' . $oid);
    is(join(' ', grep { !m{/(\d+)[^/]*$} || !$known{$1} } glob "$folder/*/*"), '', "$way: none on the disk");
    done_ok("$way: a move", ask(q{relocate_table('large', 'disk')})) if $end eq 'failed';
    done_ok("$way: and back", ask(q{relocate_table('large', 'pg_default')}));
    # the server itself forgets the first file of what is gone, which is empty, if it does not find it then
    $db->sql('CHECKPOINT');
}

# It is tried again after a while, for which a test need not wait.
sub ended_soon
{
    my $job = shift;
    my $state;

    until_true(sub {
        $db->sql("UPDATE pgscale_internal.relocation_job SET not_before = clock_timestamp() WHERE job = $job AND state IN ('queued', 'waiting') AND not_before > clock_timestamp()");
        return ($state = $db->sql("SELECT state FROM pgscale.relocation_jobs WHERE job = $job AND finished_at IS NOT NULL")) ne '';
    }) or die "job $job does not end: " . job_text($job);
    return $state;
}

$_->quit for $db, $other;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, 'nothing crashed');
$node->stop;
done_testing();
