# Kernel writeback from the moment it is switched on to its end: what it sees, requests and says, when it stands down, and that no
# session waits for it. The kernel's own numbers come from outside the server. Runs of decisions are in t/writeback_limits.pl.
# Runs on 18, too.
use strict;
use warnings;
use List::Util qw(sum0);
use POSIX ();
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes ();

my $cap = 1024 * 1024;
my $page = POSIX::sysconf(&POSIX::_SC_PAGESIZE);
my $node = pgscale_node('main', init => [ allows_streaming => 1 ], conf => <<'EOC');
shared_buffers = 8MB
max_worker_processes = 16
checkpoint_timeout = 1h
max_wal_size = 2GB
fsync = on
synchronous_commit = off
bgwriter_lru_maxpages = 0
checkpoint_flush_after = 0
bgwriter_flush_after = 0
backend_flush_after = 0
max_parallel_maintenance_workers = 0
pgscale.writeback_cap = 1MB
EOC
my $db = session($node);
$db->sql("SET statement_timeout = '${PostgreSQL::Test::Utils::timeout_default}s'");
my $health = q{SELECT enabled, state, reason, action FROM pgscale.health WHERE feature = 'writeback'};
my $at_work = q{SELECT enabled, state IN ('idle', 'working') FROM pgscale.health WHERE feature = 'writeback'};
my $stopped;    # a process that is stopped now

END { kill 'CONT', $stopped if $stopped }

sub seen { my $columns = shift; return $db->sql("SELECT $columns FROM pgscale.writeback_stats"); }
sub worker_pid { return $db->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'pgscale writeback'}); }

# A test: until the statistics are so; on failure they are shown
sub seen_ok
{
    my ($code, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return until_ok(ref $code ? $code : sub { seen($code) eq 't' }, $name) || !diag seen('row_to_json(writeback_stats)');
}

# A test: more is seen to be written, and requested, from now on
sub goes_on
{
    my ($name, $session) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    $session //= $db;
    my ($written, $requests) = split /\|/, $session->sql('SELECT written_bytes, requests FROM pgscale.writeback_stats');

    return $session->poll_ok("SELECT written_bytes > $written + 2000000 AND requests > $requests + 10 FROM pgscale.writeback_stats",
        $name);
}

sub file_of { my $relation = shift; return $node->data_dir . '/' . $db->sql("SELECT pg_relation_filepath('$relation')"); }

# Bytes that the kernel has dirty of that part of a file, of 0 bytes to its end; undef if it does not report that
my $CACHESTAT = 451;
sub dirty_part
{
    my ($file, $offset, $bytes) = @_;
    my ($range, $stat) = (pack('QQ', $offset, $bytes), "\0" x 40);

    open my $fh, '<:raw', $file or return 0;
    return syscall($CACHESTAT, fileno $fh, $range, $stat, 0) == 0 ? (unpack 'Q5', $stat)[1] * 4096 : undef;
}

sub kernel_dirty { return sum0(map { dirty_part($_, 0, 0) } @_) }

# A file as a relation has it, which no buffer knows
sub write_file
{
    my ($path, $mb) = @_;

    open my $fh, '>:raw', $path or die "$path: $!";
    print $fh 'x' x 8192 for 1 .. $mb * 128;
    close $fh or die $!;
    return $path;
}

# more pages than there are buffers
sub fill { my $table = shift; return "INSERT INTO $table SELECT i, '' FROM generate_series(1, 4000) i"; }
sub rounds { my $n = seen('rounds') + shift; return until_true(sub { seen("rounds >= $n") eq 't' }); }

# Off by default: nothing happens under load.
my $zeros = 'written_bytes + found_bytes + unseen_bytes + requests + requested_bytes + taken_bytes + request_ms + backed_off
    + rounds + errors';
$db->churn_table(40000);
is(seen("state, reason, $zeros, peak_dirty_bytes"), 'off|it is switched off|0|0', 'it is off by default, and does nothing');
is($db->sql($health), 'f|off|it is switched off|set pgscale.writeback to auto and reload', 'health says so');
is(worker_pid(), '', 'it has no process');
my $cachestat_works = defined dirty_part($node->data_dir . '/PG_VERSION', 0, 0);

# On
$db->sql('CHECKPOINT');
$db->set('pgscale.writeback', 'on');
$db->poll_ok(q{SELECT state IN ('watching', 'capping'), cap_bytes FROM pgscale.writeback_stats}, 'switched on, it works', "t|$cap");
my $pid = worker_pid();
my @churning = churn($node, 3);
goes_on('it sees what backends write, and requests it');
$db->poll_ok('SELECT state FROM pgscale.writeback_stats', 'it says so', 'capping');
like(seen('reason'), qr/^(keeps the data|over the cap|asks for less)/, 'and how');
$db->poll_ok($at_work, 'so does health', 't|t');
seen_ok('redirty_fraction BETWEEN 0 AND 1 AND window_bytes > 0 AND disk_bytes_per_s > 0', 'rates and shares are measured');
$db->churn_end(@churning);
seen_ok("cluster_dirty_bytes <= $cap", 'at the end of the load it is under the cap');

# The server's rate is that at which a file grows that is larger than the buffers, and that alone is written.
$db->sql('CREATE UNLOGGED TABLE grown (i int, filler char(1000))');
my $grown = file_of('grown');
my $grower = session($node);
$grower->start(q{INSERT INTO grown SELECT i, '' FROM generate_series(1, 10000000) i
    WHERE CASE WHEN i % 70 = 0 THEN pg_sleep(0.005) IS NOT NULL ELSE true END});
seen_ok(sub {
    my ($began, $old) = (Time::HiRes::time(), -s $grown);
    rounds(30);
    my $rate = ((-s $grown) - $old) / (Time::HiRes::time() - $began);
    return $rate > 0 && seen("server_bytes_per_s BETWEEN $rate / 3 AND $rate * 3") eq 't';
}, 'the rate of the server is that of its writes');
$db->sql('SELECT pg_cancel_backend(' . $grower->pid . ')');
is(($grower->finish)[0], '57014', 'they end');
$grower->quit;
$db->sql('DROP TABLE grown');

# Of the whole machine, as the kernel tells others
seen_ok(sub {
    my $vmstat = slurp_file('/proc/vmstat');
    my @told = map { $vmstat =~ /^nr_dirty$_ (\d+)$/m ? $1 * $page : '' } '_background_threshold', '_threshold';
    return seen('background_threshold_bytes, threshold_bytes') eq join '|', @told;
}, 'thresholds are the kernel\'s');

# A copied table goes through a few buffers only.
my $before = seen('requested_bytes');
$db->sql('CREATE TABLE copied AS SELECT i, repeat($$x$$, 1000) FROM generate_series(1, 30000) i');
my $size = $db->sql(q{SELECT pg_relation_size('copied')});
seen_ok("requested_bytes > $before AND cluster_dirty_bytes <= $cap", 'it sees that a table is copied, and requests it');
is(seen("requested_bytes <= written_bytes + found_bytes, requested_bytes > taken_bytes, request_ms > 0, cpu_ms > 0, errors,
    unseen_bytes, peak_dirty_bytes >= cluster_dirty_bytes, skipped_bytes"), 't|t|t|t|0|0|t|0', 'its counts fit together')
  or diag seen('row_to_json(writeback_stats)');

# Files that no buffer knows
SKIP:
{
    skip 'the kernel does not tell what is dirty', 4 unless $cachestat_works;
    my ($file, $stretch) = (file_of('copied'), 16 * 1024 * 1024);
    {
        # By itself the kernel would not before 30 s. Of each stretch the worker may miss up to half of the pages, which are dirtied
        # and written between two rounds. A file that the buffers show in one search is searched again when it has changed.
        local $PostgreSQL::Test::Utils::timeout_default = 20;
        seen_ok(sub {
            utime undef, undef, $file or die $!;
            return !grep { dirty_part($file, $_ * $stretch, $stretch) > $stretch / 2 } 0 .. $size / $stretch - 1;
        }, 'the kernel has begun with what was copied: at most half of each stretch is dirty');
    }

    my $tablespace = PostgreSQL::Test::Utils::tempdir();
    $db->sql("CREATE TABLESPACE elsewhere LOCATION '$tablespace'");
    $db->sql('CREATE TABLE there (i int) TABLESPACE elsewhere');
    my @places = map { file_of($_) =~ s/\d+$//r } 'copied', 'there';
    my ($found, $asked) = split /\|/, seen('found_bytes, requested_bytes');
    my (@files, @others);
    for my $place (@places)
    {
        # left alone: of a temporary relation, and of none
        push @others, write_file("${place}t3_99999999", 20), write_file("${place}x99999999", 20);
        push @files, write_file("$place$_", 3) for '99999999', '99999998_fsm', '99999997.1';
    }
    my $mb = 1024 * 1024;
    seen_ok("found_bytes >= $found + 18 * $mb AND requested_bytes >= $asked + 17 * $mb",
        'files are found by themselves, and requested');
    is(seen("found_bytes < $found + 38 * $mb"), 't', 'but not those that are no relation\'s, or a temporary one\'s');
    until_ok(sub { kernel_dirty(@files) <= $cap }, 'the kernel has begun with them');
    unlink @files, @others;
    $db->sql($_) for 'DROP TABLE there', 'DROP TABLESPACE elsewhere';
}

# Commands that want files gone get them gone.
sub open_files { return map { readlink($_) // '' } glob "/proc/$pid/fd/*"; }
my $open = () = open_files();
my $tablespace = PostgreSQL::Test::Utils::tempdir();
@churning = churn($node, 2);
for my $command (
    'CREATE TABLE t (i int, filler char(1000))', fill('t'), 'CREATE INDEX ON t (i)', 'TRUNCATE t', fill('t'),
    'DELETE FROM t WHERE i > 10', 'VACUUM t', fill('t'), 'VACUUM FULL t',
    'BEGIN; ' . fill('t') . '; TRUNCATE t; ' . fill('t') . '; ROLLBACK', 'DROP TABLE t',
    "CREATE TABLESPACE elsewhere LOCATION '$tablespace'", 'CREATE DATABASE other STRATEGY file_copy TABLESPACE elsewhere',
    'ALTER DATABASE other SET TABLESPACE pg_default', 'DROP DATABASE other', 'DROP TABLESPACE elsewhere', 'CHECKPOINT')
{
    my ($state, $text) = $db->try($command);
    is($state, '00000', $command =~ s/ LOCATION.*//r) or diag $text;
}
goes_on('it goes on');
$db->churn_end(@churning);
$db->sql('CHECKPOINT');
until_ok(sub { !grep { / \(deleted\)$/ } open_files() }, 'it has no deleted file open') or diag join "\n", open_files();
until_ok(sub { $open + 1 >= (() = open_files()) }, 'nor more files than before') or diag join "\n", open_files();
is(seen('errors') . '|' . worker_pid(), "0|$pid", 'it is the same process, without an error');

# Reset; it goes on meanwhile, and may find something.
my $now = $db->sql('SELECT clock_timestamp()');
seen_ok(sub {
    $db->sql('SELECT pgscale.reset($$writeback$$)');
    return seen("written_bytes + found_bytes + requests + errors < 1000 AND peak_dirty_bytes <= $cap") eq 't';
}, 'reset: there are no counts, nor is there a peak');
is(seen("stats_reset >= '$now', cap_bytes"), "t|$cap", 'and the rest stays');

# It stands down where pages are written again and again, and lets the kernel do it.
$db->sql('CREATE TABLE hot (i int, filler char(1000)) WITH (fillfactor = 15)');
$db->sql(q{INSERT INTO hot SELECT i, '' FROM generate_series(1, 400) i});
$db->sql('VACUUM hot');
# slow enough for each write to be seen
sub rewrite { $db->sql('UPDATE hot SET i = i + 1'), rounds(3), $db->sql('CHECKPOINT'), rounds(3); return; }
for ([ off => 't' ], [ on => 'f' ])    # so that nothing is remembered
{
    $db->set('pgscale.writeback', $_->[0]);
    $db->poll_ok(q{SELECT state = 'off' FROM pgscale.writeback_stats}, "switched $_->[0]", $_->[1]);
}
seen_ok(sub { rewrite(); seen('redirty_fraction > 0.8') eq 't' }, 'pages are written again and again');
$db->set('pgscale.writeback', 'auto');
$db->set(backend_flush_after => '512kB');

# A test, while pages are written again and again: what was seen of that fades.
sub hot_ok
{
    my ($query, $expected, $name) = @_;
    my $answer;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    until_true(sub { rewrite(); ($answer = $db->sql($query)) eq $expected });
    return is($answer, $expected, $name);
}
hot_ok(q{SELECT state, reason ~ '^\d+ % of the writes hit a page again within 30 s, and the kernel saves these by waiting$'
    FROM pgscale.writeback_stats}, 'standing down|t', 'it stands down, and says why');
hot_ok('SELECT skipped_bytes > 0 FROM pgscale.writeback_stats', 't', 'it skips these pages');
hot_ok($health =~ s/reason/reason ~ 'hit a page again'/r,
    't|standing down|t|raise shared_buffers, so that pages which change often stay in them; '
      . 'set backend_flush_after to 0 and reload: it makes the kernel write pages at once that are written again soon',
    'so does health, which names what would have the kernel write at once, too');
hot_ok(q{SET backend_flush_after = 0;
    SELECT action ~ 'set backend_flush_after to 0' FROM pgscale.health WHERE feature = 'writeback'}, 't',
    'whatever the asking session has set it to');
$db->sql('RESET backend_flush_after');
$db->set('backend_flush_after');
hot_ok(q{SELECT string_agg(rule, ' ' ORDER BY rule) FROM pgscale.advice_rules()
    WHERE verdict = 'silent' AND reason ~ '^pgscale.writeback is on and claims'},
    'backend_flush_after checkpoint_flush_after vm.dirty_background_bytes', 'and no rule advises that');
my ($requests, $written) = split /\|/, seen('requests, written_bytes');
seen_ok(sub { rewrite(); seen("written_bytes > $written + 2000000") eq 't' }, 'the load goes on');
is(seen('requests, state'), "$requests|standing down", 'and it requests nothing');
$db->set('pgscale.writeback', 'on');
seen_ok(sub { $db->sql(fill('copied')); seen("requests > $requests AND skipped_bytes = 0") eq 't' },
    'told to, it requests again, and skips nothing');

# Below half the cap pages wait, until they are on disk without a request, as after a checkpoint, or are dropped before they are
# written.
SKIP:
{
    skip 'the kernel does not tell what is dirty', 2 unless $cachestat_works;

    $db->set('pgscale.writeback_cap', '256MB');
    $db->poll_ok('SELECT cap_bytes >> 20 FROM pgscale.writeback_stats', 'a large cap', 256);
    my $taken = seen('taken_bytes');
    $db->sql($_) for fill('copied'), fill('copied'), 'CHECKPOINT';
    seen_ok("cluster_dirty_bytes = 0 AND taken_bytes > $taken + 4000000", 'pages that a checkpoint has had written do not wait');
    $db->set('pgscale.writeback_cap', '1MB');
}
rounds(3);
$written = seen('written_bytes');
$db->sql('CREATE TABLE dropped (filler char(1000))');
$db->sql(q{INSERT INTO dropped SELECT '' FROM generate_series(1, 1000)});
rounds(3);
$db->sql('DROP TABLE dropped');
rounds(3);
is(seen("written_bytes < $written + 70 * 8192"), 't', 'dropped pages were not written') or diag seen("written_bytes - $written");

# Without fsync no checkpoint waits for a disk.
$db->set('fsync', 'off');
$db->poll_ok('SELECT state, reason FROM pgscale.writeback_stats', 'without fsync it stands down',
    'standing down|fsync is off: no checkpoint waits for the disk');
is($db->sql($health), 't|standing down|fsync is off: no checkpoint waits for the disk|', 'health says so');
$requests = seen('requests');
$db->set('fsync');
seen_ok(sub { $db->sql(fill('copied')); seen("state <> 'standing down' AND requests > $requests") eq 't' },
    'with fsync it goes on');

# Ended, and stopped
@churning = churn($node, 2);
goes_on('under load');
$written = seen('written_bytes');
$pid = worker_pid();
is($db->sql("SELECT pg_terminate_backend($pid)"), 't', 'pg_terminate_backend');
until_ok(sub { (worker_pid() || $pid) != $pid }, 'it is started again');
goes_on('and works');
is(seen("written_bytes > $written, errors"), 't|0', 'with the counts that it had');
$pid = worker_pid();
kill 'STOP', $pid or die $!;
$stopped = $pid;
$db->poll_ok(qq{SELECT enabled, state, reason, action ~ 'stopped' FROM pgscale.health WHERE feature = 'writeback'},
    'stopped: health says so', "t|broken|its background worker, process $pid, is not responding|t");
kill 'CONT', $pid;
undef $stopped;
$db->poll_ok($at_work, 'continued: health says that, too', 't|t');

# Off, while the load goes on
sub context_bytes
{
    my $what = shift;
    my $log = -s $node->logfile;
    my $bytes;

    $db->sql("SELECT pg_log_backend_memory_contexts($pid)");
    until_true(sub { substr(slurp_file($node->logfile), $log) =~ /Grand total/ }) or return -1;
    my $text = substr(slurp_file($node->logfile), $log);
    $bytes += $1 while $text =~ /; pgscale $what: (\d+) total/g;
    return $bytes // 0;
}
my $memory = context_bytes('writeback watch');
cmp_ok($memory, '>', 8_000_000, 'while on it has memory');
$db->set('pgscale.writeback', 'off');
$db->poll_ok('SELECT state, reason FROM pgscale.writeback_stats', 'switched off, it stops', 'off|it is switched off');
my $counts = 'requests, requested_bytes, written_bytes, found_bytes, rounds';
$before = seen($counts);
my $n = $db->sql('SELECT sum(n) FROM churned');
$db->poll_ok("SELECT sum(n) > $n + 1000 FROM churned", 'the load goes on');
is(seen($counts), $before, 'and it does nothing more');
until_ok(sub { worker_pid() eq '' }, 'its process has ended, and its memory is free');
$db->sql('SELECT pgscale.reset($$writeback$$)');
is(seen("$zeros, peak_dirty_bytes"), '0|0', 'a reset while it is off') or diag seen('row_to_json(writeback_stats)');
$db->set('pgscale.writeback', 'on');
goes_on('on again');
$pid = worker_pid();
is(context_bytes('writeback watch'), $memory, 'its memory is the same however many files it has seen');
$db->churn_end(@churning);
$db->churn_right('the data is right');

# On a standby
my $standby = pgscale_standby($node);
my $there = session($standby);
@churning = churn($node, 2);
goes_on('on a standby it sees and requests what replay writes', $there);
$there->poll_ok($at_work, 'health says so', 't|t');
$node->stop('immediate');
$_->quit for $db, @churning;
$standby->promote;
$there->poll_ok('SELECT NOT pg_is_in_recovery()', 'promoted');
$there->churn_right('the data is right');
is($there->sql('SELECT errors FROM pgscale.writeback_stats'), 0, 'no errors');
$there->quit;
$standby->stop;

# After a crash; where the kernel refuses to report what is dirty; and where it refuses sync_file_range
for my $call (undef, [ POSIX::EPERM, 'error ' . POSIX::EPERM ], [ POSIX::ENOSYS, 'error ' . POSIX::ENOSYS ])
{
  SKIP:
    {
        my $path = $call ? refuse_call($node, 'sync_file_range') : refuse_cachestat($node);
        skip 'no filter of system calls can be set up here', 4 unless defined $path;

        {
            local ($ENV{PATH}, $ENV{REFUSE_WITH}) = ($path, $call ? $call->[0] : POSIX::EPERM);
            $node->start;
        }
        $db = session($node);
        if (!$call)
        {
            $db->churn_right('after a crash the data is right');
            @churning = churn($node, 2);
            goes_on('without cachestat it sees and requests');
            $db->churn_end(@churning);
            $db->poll_ok("SELECT cluster_dirty_bytes <= $cap, errors FROM pgscale.writeback_stats", 'and keeps to the cap', 't|0');
        }
        else
        {
            $db->poll_ok($health, "$call->[1] of sync_file_range: health says so",
                't|broken|the kernel or the container does not let it call sync_file_range, which begins writing|'
                  . q{allow the system call sync_file_range, as in the container's seccomp profile, and restart});
            seen_ok(sub { $db->sql(fill('copied')); seen("cluster_dirty_bytes > $cap") eq 't' }, "$call->[1]: it sees what waits");
            is(seen('requests, requested_bytes, errors'), '0|0|0', "$call->[1]: nothing counts as requested");
            is(join(' ', map { ($db->try("SELECT pgscale.os_cache_flush('churn'$_)"))[0] } '', ', true'), '0A000 00000',
                "$call->[1]: os_cache_flush refuses, unless it waits");
        }
        $db->quit;
        $node->stop;
    }
}

unlike(slurp_file($_->logfile), qr/PANIC|TRAP|terminated by signal/, $_->name . ': nothing crashed') for $node, $standby;

done_testing();
