# The slots of the server's background workers: pgscale has one by default, and one more for each feature that is on or has
# something to do, also when that changes while the server runs.
use strict;
use warnings;
use PgscaleSampler;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main', conf => "allow_in_place_tablespaces = on");
my $db = session($node);

# pgscale's background workers, without those that are there for a moment
my $workers = q{SELECT string_agg(substr(backend_type, 9), ', ' ORDER BY backend_type COLLATE "C") FROM pg_stat_activity
    WHERE backend_type LIKE 'pgscale %' AND backend_type !~ ' (round|writer \d+|worker)$'};
sub workers_ok
{
    my ($name, @expected) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return $db->poll_ok($workers, $name, join ', ', sort @expected, 'sampler');
}
sub pid_of { return $db->sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'pgscale $_[0]'"); }

# Defaults: all of what a parallel query plans is launched.
workers_ok('by default there is one');
$db->sql(q{CREATE TABLE many (i int) WITH (parallel_workers = 6); INSERT INTO many SELECT generate_series(1, 20000);
    SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
    SET max_parallel_workers_per_gather = 6});
my $launched = q{EXPLAIN (ANALYZE, COSTS off, TIMING off, SUMMARY off) SELECT count(*) FROM many};
is(join(' ', $db->sql($launched) =~ /Workers (?:Planned|Launched): (\d+)/g), '6 6',
    'six of eight slots are left to parallel workers');
is($db->sql(q{SELECT string_agg(feature, ' ' ORDER BY feature) FROM pgscale.health WHERE state = 'broken'}), '',
    'nothing is broken for want of one');
my $rule = q{SELECT verdict, reason FROM pgscale.advice_rules() WHERE rule = 'max_worker_processes'};
is($db->sql($rule), q{silent|pgscale's workers have their slots, but other background workers leave 6 of the 8 to parallel }
      . 'workers, of which max_parallel_workers allows 8', 'fewer than max_parallel_workers: that is no satisfaction');
$db->sql('RESET max_parallel_workers_per_gather');

# On and off by a reload, alone and together
my %features = (sweeper => [ 'pgscale.sweeper', 'auto' ], writeback => [ 'pgscale.writeback', 'auto' ],
    archive => [ 'pgscale.archive_database', 'postgres' ]);
for my $worker (sort keys %features)
{
    my ($setting, $on) = @{ $features{$worker} };

    $db->set($setting, $on);
    workers_ok("$setting: one more", $worker);
    $db->set($setting);
    workers_ok('off again: one less');
}
unlike($db->sql(q{SELECT string_agg(reason, '; ') FROM pgscale.health WHERE NOT enabled}), qr/worker/,
    'and health says that they are off');
$db->set(@$_) for values %features;
workers_ok('all of them', keys %features);

# The sampler switched off, and its process ended, is nothing to the others; which are started again when they end.
my %pids = map { $_ => pid_of($_) } 'sampler', keys %features;
$db->sampler('off');
$db->sql("SELECT pg_terminate_backend($pids{sampler})");
$db->poll_ok("SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pgscale sampler'
    AND pid <> $pids{sampler}", 'another sampler', 1);
is(join(' ', map { pid_of($_) } sort keys %features), join(' ', @pids{ sort keys %features }),
    'the others go on, and there is none twice');
$db->sql('SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid IN (' . join(', ', @pids{ keys %features }) . ')');
$db->poll_ok('SELECT count(*) FROM pg_stat_activity WHERE pid IN (' . join(', ', values %pids) . ')', 'all are ended', 0);
workers_ok('each is started again, once', keys %features);
$db->sampler('on');

# After a crash of the server
kill 'KILL', pid_of('writeback');
$db->quit;
my $connected;
until_true(sub { ($connected) = psql_once($node, 'SELECT 1'); $connected == 0 });
$db = session($node);
workers_ok('after a crash of the server all are there again', keys %features);
$db->set($features{$_}[0]) for keys %features;
workers_ok('and go');

# Relocation: as long as there is a job
$db->sql(q{CREATE TABLESPACE elsewhere LOCATION ''; CREATE TABLE t (i int PRIMARY KEY)});
$db->sql('SET client_min_messages = warning');
my $blocker = session($node);
$blocker->sql('BEGIN; LOCK t');
my $job = $db->sql(q{SELECT pgscale.relocate_indexes('t_pkey', 'elsewhere', mode => 'rebuild')});
workers_ok('a job: the launcher', 'relocation');
$blocker->sql('COMMIT');
$db->poll_ok("SELECT state FROM pgscale.relocation_jobs WHERE job = $job", 'which has it done', 'done');
workers_ok('and goes');
my $relocation = q{SELECT state FROM pgscale.health WHERE feature = 'relocation'};
is($db->sql($relocation), 'idle', 'health knows that it need not be there');
$db->set('pgscale.relocation_workers', 0);
$db->poll_ok($relocation, 'relocation off', 'off');
$job = $db->sql(q{SELECT pgscale.relocate_indexes('t_pkey', 'pg_default', mode => 'rebuild')});
$db = restarted($db, $node);
$db->poll_ok(q{SELECT state FROM pgscale.health WHERE feature = 'sampler'}, 'after a restart', 'working');
workers_ok('a job that may not start: no launcher');
$db->set('pgscale.relocation_workers');
$db->poll_ok("SELECT state FROM pgscale.relocation_jobs WHERE job = $job", 'switched on, a job of before the restart is done',
    'done');
workers_ok('and the launcher goes');
$db->sql(q{BEGIN; SELECT pgscale.relocate_indexes('t_pkey', 'elsewhere', mode => 'rebuild'); ROLLBACK});
workers_ok('nor is it there for a job that was taken back');

# No free slot: said, and tried again
$db->sql(q{CREATE FUNCTION hold(int) RETURNS int LANGUAGE plpgsql PARALLEL SAFE AS 'BEGIN PERFORM pg_sleep(600); RETURN 1; END'});
my $hog = session($node);
$hog->sql('SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;
    SET max_parallel_workers_per_gather = 8');
$hog->start('SELECT sum(hold(i)) FROM many');
$db->poll_ok(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'parallel worker'}, 'a query has all slots', 6);
my $health = q{SELECT state, reason, action FROM pgscale.health WHERE feature = 'writeback'};
my $log = -s $node->logfile;
$db->set('pgscale.writeback', 'on');
$db->poll_ok($health, 'no slot for a worker: health says so',
    'broken|the server has no slot for its background worker; max_worker_processes is 8|raise max_worker_processes and restart');
is($db->sql($rule), 'advises|writeback is short of workers: the server has no slot for its background worker; '
      . 'max_worker_processes is 8 (pgscale.health)', 'and the rule');
cancelled($db, $hog);
workers_ok('as soon as there is a slot, it is there', 'writeback');
my $said = () = substr(slurp_file($node->logfile), $log) =~ /LOG:  the server has no slot for background worker "pgscale write/g;
is($said, 1, 'and the log has it once');
$_->quit for $db, $hog, $blocker;
$node->stop;

done_testing();
