# Kernel writeback on a disk that makes it wait: commands that need an answer of its process get one. And its decisions, one by one.
# Runs on each major.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $gate = PostgreSQL::Test::Utils::tempdir();
my $library = compiled('gated_flush') // plan skip_all => 'no compiler';

sub touch { my $name = shift; open my $file, '>', "$gate/$name" or die $!; close $file; return; }
END { unlink "$gate/gate" if $gate }

local $ENV{GATE_DIR} = $gate;
local $ENV{LD_PRELOAD} = $library;
my $node = pgscale_node('main', conf => <<'EOC');
shared_buffers = 8MB
checkpoint_timeout = 1h
fsync = on
synchronous_commit = off
bgwriter_lru_maxpages = 0
checkpoint_flush_after = 0
pgscale.writeback = on
pgscale.writeback_cap = 1GB
EOC
delete $ENV{LD_PRELOAD};
my $db = session($node);
my $other = session($node);
$db->sql('CREATE DATABASE gone');
$db->poll_ok(q{SELECT state <> 'off' FROM pgscale.writeback_stats}, 'it is on');

# Much of one file, which has left the buffers, waits in the kernel, and nothing is requested. Then the cap shrinks, and the first
# request hangs.
$db->sql('CREATE TABLE t (filler char(1000))');
$db->sql('CHECKPOINT');
touch('gate');
$db->sql(q{INSERT INTO t SELECT '' FROM generate_series(1, 60000)});
$db->poll_ok('SELECT cluster_dirty_bytes > 40000000 FROM pgscale.writeback_stats', 'much waits in the kernel');
$db->set('pgscale.writeback_cap', '64kB');
until_ok(sub { -e "$gate/waits" }, 'a request hangs');

# DROP DATABASE needs an answer of every process. It comes when that one request is done, and before any other.
$other->start('DROP DATABASE gone');
$db->poll_ok(q{SELECT wait_event FROM pg_stat_activity WHERE pid = } . $other->pid, 'DROP DATABASE waits for the processes',
    'ProcSignalBarrier');

# It has made a checkpoint, so the kernel has nothing left to write; now it has again, of the same pages.
$db->sql(q{UPDATE t SET filler = 'x'});
touch('go');
until_ok(sub { $db->sql(q{SELECT state <> 'active' FROM pg_stat_activity WHERE pid = } . $other->pid) eq 't' },
    'when one request is done, it goes on');
unlink "$gate/gate";
is(($other->finish)[0], '00000', 'the database is dropped');
$db->poll_ok('SELECT (cluster_dirty_bytes = 0 OR requests > 2) AND errors = 0 FROM pgscale.writeback_stats',
    'and the worker goes on, without errors');

$db->steps_ok('writeback_steps');

# What that and others rest on: the kernel's files, intervals, the clock sweep's thresholds, the nodes of pages
$db->steps_ok('memory_steps');
$db->quit;
$other->quit;
$node->stop;

done_testing();
