# Live moves and copies of the server: standbys that are promoted in the midst of a move, a synchronous standby that is gone, base
# backups that are taken during a move, and recovery to a point before and after the switch. Everywhere the rows are the same, the
# job goes on, and no file is left, on a standby's standby neither.
use strict;
use warnings;
use PgscaleLive;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

relocation_node(init => [ allows_streaming => 1, has_archiving => 1 ],
    conf => "pgscale.relocation_max_transaction_age = -1\nwal_keep_size = 1GB\npgscale.relocation_max_lag = -1\nwal_receiver_status_interval = 1s");
my $main = $node;
my @tables = qw(t large);
two_tables(30000);
my $rows = rows($db, @tables);

# A copy of that server as it is now, not started
sub copy_of
{
    my ($origin, $name, %option) = @_;
    my $copy = PostgreSQL::Test::Cluster->new($name);

    $origin->backup("for_$name");
    $copy->init_from_backup($origin, "for_$name", %option);
    return $copy;
}

sub slow
{
    my $rate = shift() ? '200kB' : '0';

    $db->set('pgscale.relocation_rate', $rate);
    until_true(sub { $db->sql('SHOW pgscale.relocation_rate') eq $rate }) or die "the rate is not $rate";
    return;
}

sub copying
{
    slow(1);
    my ($job) = ask("relocate_table('t', '" . elsewhere('t') . "')");
    job_ok($job, 'state, phase, copied_bytes > 0', 'running|copying|t', 'a copy is under way');
    return $job;
}

# What becomes of it on another server
sub goes_on_ok
{
    my ($name, $on, $job, @options) = @_;
    my $session = session($on);
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    is(rows($session, @tables), $rows, "$name: the rows are the same");
    $session->set('pgscale.relocation_rate', 0);
    $session->set('pgscale.relocation_workers', 1);
    is(ended($job, $session), 'done', "$name: the job goes on and is done") or diag job_text($job, $session);
    is(rows($session, @tables), $rows, "$name: the rows still are the same");
    strays_ok("$name: no file is left", $session);
    return $session;
}

### A standby and its own one; the first is promoted in the midst of copying, then of dropping

my $one = copy_of($node, 'one', has_streaming => 1);
$one->start;
my $two = copy_of($one, 'two', has_streaming => 1);
$two->start;

my $job = copying();
$node->wait_for_catchup($one, 'replay');
my $copied = $db->sql("SELECT copied_bytes FROM pgscale.relocation_jobs WHERE job = $job");
cmp_ok($copied, '>', 0, 'a part has been copied');
$db->quit;
$node->stop('immediate');
$one->promote;
{
    my $session = goes_on_ok('promoted while it was copied', $one, $job);
    is($session->sql("SELECT attempts, sqlstate IS NULL FROM pgscale.relocation_jobs WHERE job = $job"), '2|t', 'at the second attempt');
    $one->wait_for_catchup($two, 'replay', $one->lsn('insert'));
    my $there = session($two);
    is(rows($there, @tables), $rows, 'its standby has the same rows');
    strays_ok('and no file is left there', $there);
    $_->quit for $session, $there;
}

($node, $db) = ($one, session($one));
my $from = place('large');
($job) = ask("relocate_table('large', '" . elsewhere('large') . "')");
until_true(sub { place('large') ne $from }) or die 'it does not switch';
$db->quit;
$node->stop('immediate');
$two->promote;
$db = session($two);
is(place('large') ne $from || $db->sql("SELECT state FROM pgscale.relocation_jobs WHERE job = $job") ne 'done', 1, 'of the switch it has all or nothing');
$db->quit;
goes_on_ok('promoted right after the switch', $two, $job)->quit;

### A synchronous standby that is gone

($node, $db) = ($two, session($two));
$db->sql('CREATE TABLE others (id int)');
$db->set('synchronous_standby_names', 'gone');
$db->poll_ok('SHOW synchronous_standby_names', 'commits are to wait for a standby that is not there', 'gone');
$db->sql('SET synchronous_commit = local');
($job) = ask("relocate_table('t', '" . elsewhere('t') . "')");
my $writer = session($node);
$writer->start('INSERT INTO others VALUES (1)');
job_ok($job, 'state, message', 'waiting|only 0 of 1 synchronous standbys stream WAL (synchronous_standby_names)', 'the job waits for it');
$db->poll_ok('SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $writer->pid, 'and commits of others wait as before', 'SyncRep');
is($db->sql('SELECT count(*) FROM t'), 500, 'the table is in use');
$db->set('synchronous_standby_names', undef);
is(($writer->finish)[0], '00000', 'until nobody wants a standby');
is(ended($job), 'done', 'and so does the job');
$_->quit for $writer, $db;
$node->stop;

### A base backup that is taken during a move, and points in time before and after the switch

$node = $main;
$node->start;
$db = session($node);
is(ended($db->sql('SELECT max(job) FROM pgscale.relocation_jobs')), 'done', 'the job of the old primary is done after its crash, too');
strays_ok('no file is left there');
launching('on');

SKIP:
{
    skip 'there are no incremental backups before 17', 6 if server_major() < 17;

    my $backups = $node->backup_dir;
    $db->set('summarize_wal', 'on');
    $db->poll_ok('SELECT summarizer_pid IS NOT NULL FROM pg_get_wal_summarizer_state()', 'the WAL is summarized');
    $node->backup('full');
    done_ok('a move between two backups', ask("relocate_table('t', '" . elsewhere('t') . "')"));
    command_ok([ 'pg_basebackup', '-D', "$backups/incremental", '--no-sync', '-c', 'fast', '-h', $node->host, '-p', $node->port, '-i', "$backups/full/backup_manifest" ],
        'an incremental backup after a move');
    command_ok([ 'pg_combinebackup', "$backups/full", "$backups/incremental", '-o', "$backups/combined" ], 'is combined with the one before');
    my $combined = PostgreSQL::Test::Cluster->new('combined');
    $combined->init_from_backup($node, 'combined', has_streaming => 0);
    $combined->append_conf('postgresql.conf', 'archive_mode = off');
    $combined->start;
    my $session = session($combined);
    is(rows($session, @tables), $rows, 'and has the same rows');
    $session->quit;
    $combined->stop;
}

$job = copying();
my $held = session($node);
$held->sql('BEGIN; SELECT FROM t');
$node->backup('during');
like($db->sql("SELECT state FROM pgscale.relocation_jobs WHERE job = $job"), qr/^(running|waiting)$/, 'a backup began during the copy and ended before the switch');
SKIP:
{
    my $bin = qx(pg_config --bindir) =~ s/\n//r;
    skip 'there is no pg_verifybackup', 1 unless -x "$bin/pg_verifybackup";
    command_ok([ 'pg_verifybackup', '--exit-on-error', $node->backup_dir . '/during' ], 'the backup is complete');
}
slow(0);
job_ok($job, 'phase', 'waiting for a gap', 'all is copied');
$db->sql(q{SELECT pg_create_restore_point('before')});
$held->quit;
is(ended($job), 'done', 'the job is done');
my $place = place('t');
$db->sql(q{SELECT pg_create_restore_point('after')});
$db->sql('DELETE FROM t');
$db->sql('SELECT pg_switch_wal()');

my $copy = PostgreSQL::Test::Cluster->new('copy');
$copy->init_from_backup($node, 'during', has_streaming => 0);
$copy->append_conf('postgresql.conf', "archive_mode = off\npgscale.relocation_workers = 0");
$copy->start;
goes_on_ok('from the backup alone', $copy, $job)->quit;
$copy->stop;

for my $point ('before', 'after')
{
    my $restored = PostgreSQL::Test::Cluster->new($point);
    $restored->init_from_backup($node, 'during', has_restoring => 1, standby => 0);
    $restored->append_conf('postgresql.conf',
        "recovery_target_name = '$point'\nrecovery_target_action = promote\nrecovery_target_timeline = current\narchive_mode = off\npgscale.relocation_workers = 0");
    $restored->start;
    my $session = session($restored);
    $session->poll_ok('SELECT pg_is_in_recovery()', "restored to a point $point the switch", 'f');
    is(place('t', $session) eq $place, $point eq 'after', 'it is in its place');
    $session->quit;
    goes_on_ok("restored to a point $point the switch", $restored, $job)->quit;
    $restored->stop;
}

$db->quit;
$node->stop;
unlike(slurp_file($_->logfile), qr/PANIC|TRAP|terminated by signal/, 'nothing crashed: ' . $_->name) for $main, $one, $two;
done_testing();
