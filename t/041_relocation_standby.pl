# Moves and standbys: none is made on a standby, one waits for a standby that is behind, and what is in the queue is done after a
# promotion. And moves to a disk that is full, or gone.
use strict;
use warnings;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

relocation_node(conf => 'wal_keep_size = 1GB');
relocation_objects();
done_ok('a job', ask(q{relocate_index('t_hash', 'fast', mode => 'rebuild')}));

### A standby

my $standby = pgscale_standby($node);
$node->wait_for_catchup($standby, 'replay');
my $there = session($standby);
is(($there->try("SELECT * FROM pgscale.$_"))[0], '25006', "on a standby: $_")
  for q{relocate_index('t_hash', 'other', mode => 'rebuild')}, q{relocate_indexes('t', 'other', mode => 'rebuild')}, q{relocate_all_indexes('pg_default', 'other', mode => 'rebuild')},
  q{relocate_table('t', 'other', 'lock')}, 'relocation_cancel(1)', 'relocation_undo(1)';
is($there->sql('CALL pgscale.relocation_wait(1)'), 'done', 'on a standby: relocation_wait tells');
is($there->sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'pgscale relocation%'}), 0, 'on a standby there is no worker');
is($there->sql(q{SELECT enabled FROM pgscale.health WHERE feature = 'relocation'}), 't', 'health answers');

# A standby may replay later, or not at all: what it has flushed costs nobody here anything.
$db->set('pgscale.relocation_max_lag', 0);
$there->sql('SELECT pg_wal_replay_pause()');
$there->poll_ok('SELECT pg_get_wal_replay_pause_state()', 'replay is paused', 'paused');
$db->sql('INSERT INTO empty VALUES (1); SELECT pg_switch_wal()');
$db->poll_ok('SELECT flush_lsn = pg_current_wal_lsn() FROM pg_stat_replication', 'a standby that has flushed all, and replays nothing', 't');
done_ok('it is not waited for', ask(q{relocate_index('t_unique', 'fast', mode => 'rebuild')}));
$there->sql('SELECT pg_wal_replay_resume()');

# One that receives nothing is.
my $receiver = $db->sql('SELECT pid FROM pg_stat_replication');
kill 'STOP', $receiver;
# more than a segment: pg_receivewal flushes whole ones
$db->sql("INSERT INTO empty VALUES ($_)"), $db->sql('SELECT pg_switch_wal()') for -1, -2, -3;
my ($behind) = ask(q{relocate_index('t_unique', 'other', mode => 'rebuild')});
job_ok($behind, q{state, sqlstate, message ~ '^standby "standby" has \\d+ MB of WAL still to receive \\(pgscale.relocation_max_lag\\)$', attempts},
    'waiting|55006|t|0', 'it waits for a standby');
$db->poll_ok(q{SELECT reason LIKE '1 of this database wait to begin, the first one because of: standby "standby" has %' FROM pgscale.health WHERE feature = 'relocation'},
    'which health says, too');
$db->set('pgscale.relocation_max_lag', -1);
done_ok('that is not looked at', $behind);
$db->set('pgscale.relocation_max_lag', 0);
($behind) = ask(q{relocate_index('t_unique', 'fast', mode => 'rebuild')});
job_ok($behind, 'state', 'waiting', 'it waits again');
kill 'CONT', $receiver;
done_ok('until the standby has caught up', $behind);

launching('off');
$db->sql('INSERT INTO empty VALUES (2)');
my ($queued) = ask(q{relocate_index('t_unique', 'other', mode => 'rebuild')});
$node->wait_for_catchup($standby, 'replay');
$db->quit;
$node->stop;
$standby->promote;
$db = $there;
done_ok('after a promotion, what the primary had in its queue', $queued);
is(place('t_unique'), 'other', 'it has moved');
$db->quit;
$standby->stop;

# Where it is not known which databases have jobs, as after a promotion, each is looked into, once: also more of them than the list
# has room for. They share the files of template1, which nothing changes.
$node->start;
$db = session($node);
$db->sql(q{SET allow_system_table_mods = on; INSERT INTO pg_database SELECT (jsonb_populate_record(d, jsonb_build_object('oid', 100000 + i, 'datname', 'd' || i))).*
    FROM pg_database d, generate_series(1, 260) i WHERE d.oid = 1});
symlink 1, $node->data_dir . '/base/' . (100000 + $_) or die $! for 1 .. 260;
$db->sql("ALTER SYSTEM SET $_") for 'pgscale.relocation_workers = 8';
$db->quit;
$node->stop;
my $list = $node->data_dir . '/pg_stat/pgscale_relocation.stat';
open my $file, '>', $list or die $!;
print $file 'unreadable';
close $file;
$node->start;
$db = session($node);
done_ok('of 263 databases, the one with a job is found', $queued);
$db->poll_ok(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'pgscale relocation%'}, 'when all were looked into, the launcher ends', 0);
is(join('|', (unpack 'L4', slurp_file($list))[2, 3]), '0|0', 'and no database has jobs');
is($db->sql('SELECT count(*) FROM pg_stat_database WHERE datid > 100000 AND xact_commit > 0'), 260, 'each was looked into');
$db->quit;
$node->stop('immediate');

### A tablespace on a disk of its own, that is full

SKIP:
{
    my $small = PostgreSQL::Test::Cluster->new('small');
    my $folder = PostgreSQL::Test::Utils::tempdir;
    my $path = own_disk($folder, '8m');
    skip 'no disk can be mounted here', 17 unless defined $path;

    $small->init;
    $small->append_conf('postgresql.conf', "shared_preload_libraries = 'pgscale'\nfsync = off\nautovacuum = off\nmax_worker_processes = 20\n"
          . "client_min_messages = warning\npgscale.relocation_max_transaction_age = -1");
    { local $ENV{PATH} = $path; $small->start; }
    $db = session($small);
    $db->sql('CREATE EXTENSION pgscale');
    $db->sql("CREATE TABLESPACE small LOCATION '$folder'");
    $db->sql('CREATE TABLE large (id int PRIMARY KEY); INSERT INTO large SELECT generate_series(1, 400000)');
    $db->sql('CREATE TABLE t (id int, n int PRIMARY KEY); INSERT INTO t SELECT i, i FROM generate_series(1, 150000) i; '
          . 'CREATE INDEX t_wide ON t ((id::bigint), (n::bigint))');
    clean_ok();
    my ($state, $text) = $db->try(q{SELECT pgscale.relocate_index('large_pkey', 'small', mode => 'rebuild')});
    is($state, '53100', 'more than there is room for is refused');
    my $needed = $db->sql(q{SELECT ceil(1.2 * pg_table_size('large_pkey') / 1048576)});
like($text, qr/ 8 MB are free, $needed MB are needed/, 'with what is needed: a fifth more than its size');
    launching('off');
    my ($late) = ask(q{relocate_index('t_pkey', 'small', mode => 'rebuild')});
    ($state) = $db->try(q{SELECT pgscale.relocate_index('t_pkey', 'small', mode => 'rebuild')});
    is($state, '55006', 'what there is room for is not');
    ($state) = $db->try(q{SELECT pgscale.relocate_index('t_wide', 'small', mode => 'rebuild')});
    is($state, '53100', 'nor is there room for two');
    is($db->sql("SELECT pgscale.relocation_cancel($late)"), 't', 'when the first one is cancelled');
    ($late) = ask(q{relocate_index('t_wide', 'small', mode => 'rebuild')});
    ok($late, 'there is for the other one');
    $db->sql("SELECT pgscale.relocation_cancel($late)");
    ($late) = ask(q{relocate_index('t_pkey', 'small', mode => 'rebuild')});
    $db->sql('CREATE TABLE filler TABLESPACE small AS SELECT i, repeat($$x$$, 100) FROM generate_series(1, 35000) i');
    launching('on');
    job_ok($late, 'state, sqlstate, attempts', 'failed|53100|0', 'there is no room when its turn comes');

    # and while it is under way
    $db->sql('DROP TABLE filler; CHECKPOINT');
    my $holder = session($small);
    $holder->sql('BEGIN; UPDATE t SET id = 0 WHERE n = 1');
    ($late) = ask(q{relocate_index('t_pkey', 'small', mode => 'rebuild')});
    job_ok($late, 'state, phase', 'running|waiting for writers before build', 'it begins while there is room');
    $db->sql('CREATE TABLE filler TABLESPACE small AS SELECT i, repeat($$x$$, 100) FROM generate_series(1, 45000) i');
    $holder->sql('COMMIT');
    job_ok($late, q{state, sqlstate, message ~ 'No space left'}, 'failed|53100|t', 'and fails when there is none any more');
    clean_ok('nothing is left behind');
    is(place('t_pkey'), 'pg_default', 'it has not moved');
    $db->sql('DROP TABLE filler; CHECKPOINT');
    done_ok('with room again', ask(q{relocate_index('t_pkey', 'small', mode => 'rebuild')}));
    is(place('t_pkey'), 'small', 'it has moved');
    $_->quit for $db, $holder;

    # That disk is not there after a restart
    $small->stop;
    $small->start;
    $db = session($small);
    $db->sql('CREATE TABLE u (id int PRIMARY KEY)');
    ($state, $text) = $db->try(q{SELECT pgscale.relocate_index('u_pkey', 'small', mode => 'rebuild')});
    is($state, '58P01', 'a tablespace whose disk is not mounted');
    like($text, qr/HINT: .*Is its disk mounted/, 'is refused with a hint');
    $db->quit;
    $small->stop;
}

done_testing();
