# Moves and copies of the server: none is made on a standby; one waits for a standby that is behind; a standby that is promoted in
# the midst of a move, a base backup taken during one, and recovery to a point before and after the switch go on with it.
# Everywhere the rows are the same, and no file is left, on a standby's standby neither.
use strict;
use warnings;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

relocation_node(init => [ allows_streaming => 1, has_archiving => 1 ],
    conf => "wal_keep_size = 1GB\npgscale.relocation_max_lag = -1\nwal_receiver_status_interval = 1s");
my $main = $node;
my @tables = qw(t large);
two_tables(8000);
$db->sql('CREATE TABLE empty (id int)');
my $rows = rows($db, @tables);

# A copy of that server as it is now
sub copy_of
{
    my ($origin, $name, %option) = @_;
    my $copy = PostgreSQL::Test::Cluster->new($name);

    $origin->backup("for_$name");
    $copy->init_from_backup($origin, "for_$name", %option);
    # a sender that stands still is the same one all the time
    $copy->append_conf('postgresql.conf', 'wal_receiver_timeout = 0');
    $copy->start;
    return $copy;
}

# What becomes of a job on another server
sub goes_on_ok
{
    my ($name, $on, $job) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    ($node, $db) = ($on, session($on));
    is(rows($db, @tables), $rows, "$name: the rows are the same");
    $db->set('pgscale.relocation_rate', 0);
    $db->set('pgscale.relocation_workers', 1);
    ended_ok($job, 'done', "$name: the job goes on and is done");
    is(rows($db, @tables), $rows, "$name: the rows still are the same");
    strays_ok($name);
    return;
}

### A standby

my $one = copy_of($node, 'one', has_streaming => 1);
my $two = copy_of($one, 'two', has_streaming => 1);
my $there = session($one);
my $rebuild = q{relocate_indexes('t_pkey', '%s', mode => 'rebuild')};
is(($there->try("SELECT * FROM pgscale.$_"))[0], '25006', "on a standby: $_")
  for sprintf($rebuild, 'other'), q{relocate_table('t', 'other', 'lock')}, q{relocate_tablespace('pg_default', 'other', 'indexes')},
  'relocation_cancel(1)', 'relocation_undo(1)';
my ($first) = ask(sprintf $rebuild, 'fast');
done_ok('a job', $first);
$node->wait_for_catchup($one, 'replay');
is($there->sql("CALL pgscale.relocation_wait($first)"), 'done', 'on a standby: relocation_wait tells');
is($there->sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'pgscale relocation%'}), 0,
    'on a standby there is no worker');
is($there->sql(q{SELECT enabled FROM pgscale.health WHERE feature = 'relocation'}), 't', 'health answers');

# A standby may replay later, or not at all: what it has flushed costs nobody here anything.
$db->set('pgscale.relocation_max_lag', 0);
$there->sql('SELECT pg_wal_replay_pause()');
$there->poll_ok('SELECT pg_get_wal_replay_pause_state()', 'replay is paused', 'paused');
$db->sql('INSERT INTO empty VALUES (1); SELECT pg_switch_wal()');
$db->poll_ok('SELECT flush_lsn = pg_current_wal_lsn() FROM pg_stat_replication', 'a standby has flushed all, and replays nothing');
done_ok('it is not waited for', ask(sprintf $rebuild, 'other'));
$there->sql('SELECT pg_wal_replay_resume()');

# One that receives nothing is.
my $receiver = $db->sql('SELECT pid FROM pg_stat_replication');
kill 'STOP', $receiver;
# more than a segment: pg_receivewal flushes whole ones
$db->sql("INSERT INTO empty VALUES ($_)"), $db->sql('SELECT pg_switch_wal()') for -1, -2, -3;
$db->set('pgscale.relocation_max_lag', 256);
done_ok('megabytes below the limit', ask(sprintf $rebuild, 'fast'));
$db->set('pgscale.relocation_max_lag', 0);
my ($behind) = ask(sprintf $rebuild, 'other');
job_ok($behind, q{state, sqlstate, message ~ '^standby "one" has \d+ MB of WAL to receive [(]pgscale', attempts},
    'waiting|55006|t|0', 'it waits for a standby');
$db->poll_ok(q{SELECT reason LIKE '1 of this database wait to begin, the first one because of: standby "one" has %'
    FROM pgscale.health
    WHERE feature = 'relocation'}, 'which health says, too');
kill 'CONT', $receiver;
done_ok('until the standby has caught up', $behind);
$db->set('pgscale.relocation_max_lag', -1);

### It is promoted in the midst of copying, its own one in the midst of removing a file

my ($job) = copying(q{relocate_table('t', 'fast')});
$node->wait_for_catchup($one, 'replay');
$_->quit for $db, $there;
$node->stop('immediate');
$one->promote;
goes_on_ok('promoted while it was copied', $one, $job);
is(of_job($job, 'attempts, sqlstate IS NULL'), '2|t', 'at the second attempt');
$one->wait_for_catchup($two, 'replay', $one->lsn('insert'));
$there = session($two);
is(rows($there, @tables), $rows, 'its standby has the same rows');
strays_ok('its standby', $there);
$there->quit;
my $from = place('large');
($job) = ask("relocate_table('large', '" . elsewhere('large') . "')");
until_true(sub { place('large') ne $from }) or die 'it does not switch';
$db->quit;
$node->stop('immediate');
$two->promote;
($node, $db) = ($two, session($two));
ok(place('large') ne $from || of_job($job, 'state') ne 'done', 'of the switch it has all or nothing');
$db->quit;
goes_on_ok('promoted right after the switch', $two, $job);
$db->quit;
$two->stop;

### After a crash, or a promotion, it is not known which databases have jobs: each is looked into, once

# also more of them than the list has room for; they share the files of template1, which nothing changes
($node) = $main;
$node->start;
$db = session($node);
done_ok('the job of the old primary', $db->sql('SELECT max(job) FROM pgscale.relocation_jobs'));
strays_ok('the old primary');
reloaded('pgscale.relocation_rate');
launching('off');
my ($queued) = ask(sprintf $rebuild, 'fast');
$db->sql(q{SET allow_system_table_mods = on;
    INSERT INTO pg_database SELECT (jsonb_populate_record(d, jsonb_build_object('oid', 100000 + i, 'datname', 'd' || i))).*
    FROM pg_database d, generate_series(1, 260) i WHERE d.oid = 1});
my @folders = map { $node->data_dir . '/base/' . (100000 + $_) } 1 .. 260;
symlink 1, $_ or die $! for @folders;
my $list = $node->data_dir . '/pg_stat/pgscale_relocation.stat';
$db->sql('ALTER SYSTEM SET pgscale.relocation_workers = 8');
stopped(sub { unlink $list; append_to_file($list, 'unreadable') });
done_ok('of 263 databases, the one with a job is found', $queued);
$db->poll_ok(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'pgscale relocation%'}, 'then the launcher ends', 0);
is(join('|', (unpack 'L4', slurp_file($list))[2, 3]), '0|0', 'no database has jobs');
is($db->sql('SELECT count(*) FROM pg_stat_database WHERE datid > 100000 AND xact_commit > 0'), 260, 'each was looked into');
$db->sql('SET allow_system_table_mods = on; DELETE FROM pg_database WHERE oid > 100000');
unlink @folders;

### A base backup that is taken during a move, and points in time before and after the switch

launching('on');
SKIP:
{
    skip 'there are no incremental backups before 17', 6 if server_major() < 17;

    my $backups = $node->backup_dir;
    my @from = ('-h', $node->host, '-p', $node->port);
    reloaded('summarize_wal', 'on');
    $db->poll_ok('SELECT summarizer_pid IS NOT NULL FROM pg_get_wal_summarizer_state()', 'the WAL is summarized');
    $node->backup('full');
    done_ok('a move between two backups', ask("relocate_table('t', '" . elsewhere('t') . "')"));
    command_ok([ 'pg_basebackup', '-D', "$backups/incremental", '--no-sync', '-c', 'fast', @from, '-i',
        "$backups/full/backup_manifest" ],
        'an incremental backup after a move');
    command_ok([ 'pg_combinebackup', "$backups/full", "$backups/incremental", '-o', "$backups/combined" ],
        'is combined with the one before');
    my $combined = PostgreSQL::Test::Cluster->new('combined');
    $combined->init_from_backup($node, 'combined', has_streaming => 0);
    $combined->append_conf('postgresql.conf', 'archive_mode = off');
    $combined->start;
    my $session = session($combined);
    is(rows($session, @tables), $rows, 'and has the same rows');
    $session->quit;
    $combined->stop;
}

($job) = copying("relocate_table('t', '" . elsewhere('t') . "')");
my $held = session($node);
$held->sql('BEGIN; SELECT FROM t');
$node->backup('during');
is(of_job($job, 'finished_at IS NULL'), 't', 'a backup began during the copy and ended before the switch');
my $verify = qx(pg_config --bindir) =~ s{\n}{/pg_verifybackup}r;
command_ok([ $verify, '--exit-on-error', $node->backup_dir . '/during' ], 'the backup is complete') if -x $verify;
reloaded('pgscale.relocation_rate');
job_ok($job, 'phase', 'waiting for a gap', 'all is copied');
$db->sql(q{SELECT pg_create_restore_point('before')});
$held->quit;
ended_ok($job, 'done', 'the job is done');
my $place = place('t');
$db->sql(q{SELECT pg_create_restore_point('after'); DELETE FROM t; SELECT pg_switch_wal()});
my $origin = $node;
$db->quit;
for my $point ('the backup alone', 'before', 'after')
{
    my $restored = PostgreSQL::Test::Cluster->new($point =~ s/ /_/gr);
    my $alone = $point =~ /alone/;

    $restored->init_from_backup($origin, 'during', $alone ? (has_streaming => 0) : (has_restoring => 1, standby => 0));
    $restored->append_conf('postgresql.conf', "archive_mode = off\npgscale.relocation_workers = 0");
    $restored->append_conf('postgresql.conf',
        "recovery_target_name = '$point'\nrecovery_target_action = promote\nrecovery_target_timeline = current")
      unless $alone;
    $restored->start;
    my $session = session($restored);
    $session->poll_ok('SELECT pg_is_in_recovery()', "restored from $point", 'f');
    is(place('t', $session) eq $place, $point eq 'after', 'it is in its place') unless $alone;
    $session->quit;
    goes_on_ok("restored: $point", $restored, $job);
    $db->quit;
    $restored->stop;
}
$origin->stop;
unlike(slurp_file($_->logfile), qr/PANIC|TRAP|terminated by signal/, 'nothing crashed: ' . $_->name) for $main, $one, $two;
done_testing();
