# The profile and the history over a restart: kept by a clean shutdown, with true times and a gap; nothing after a crash; and
# whatever a file says, the server starts, and what is taken from it is a profile and a history.
# Runs on each major.
use strict;
use warnings;
no warnings 'portable';
use List::Util qw(max sum0);
use PgscaleKept;
use PgscaleSampler;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main', conf => <<'EOC');
pgscale.sampler_period = 5ms
pgscale.sampler_history_period = 20ms
deadlock_timeout = 50ms
pgscale.sampler_dimensions = 'application_name'
EOC
my $folder = $node->data_dir . '/pg_stat';
my ($profile_file, $history_file) = ("$folder/pgscale_sampler.stat", "$folder/pgscale_sampler_history.stat");
my $db = session($node);
$db->sql('CREATE TABLE t (i int); INSERT INTO t VALUES (1)');

# Extensions' events and locks lose their names with their numbers, pgscale's own included.
my $event = q{CASE WHEN event_type = 'Extension' OR event ~ '^(pgscale|extension$)' THEN '' ELSE event END};
my $rows = qq{SELECT md5(string_agg(r::text, ' ' ORDER BY r::text COLLATE "C")) FROM};
my %all = (
    profile => qq{$rows (SELECT backend_type, datid, userid, queryid, event_type, $event, sum(samples),
        round(sum(wait_ms)::numeric, 3), idle
        FROM pgscale_internal.wait_profile() GROUP BY 1, 2, 3, 4, 5, 6, 9) r},
    totals => 'SELECT samples, wait_ms, evictions, stats_reset FROM pgscale.sampler_stats',
    history => qq{$rows (SELECT sampled_at, pid, backend_type, datid, userid, queryid, state, event_type, $event, blocker_pid,
        root_pid
        FROM pgscale_internal.wait_history()) r},
    # which have time is by the seconds of the timeline, which end with the server; so only of what lasts
    applications => q{SELECT DISTINCT application_name FROM pgscale.past_waits('-infinity') WHERE event_type = 'Lock'},
    'known times' => q{SELECT at, round(period_s::numeric, 6) FROM pgscale_internal.past_coverage('-infinity')});
# after a restart, by the samples
my $sampled = q{SELECT application_name, event_type, round(sum(wait_ms)::numeric, 3) FROM pgscale.past_waits('-infinity')
    WHERE event_type <> 'Extension' AND event !~ '^(pgscale|extension$)' GROUP BY 1, 2 ORDER BY 1, 2};
my $left = q{SELECT concat_ws(' ', samples, (SELECT count(*) FROM pgscale_internal.wait_profile()), (SELECT count(*)
    FROM pgscale_internal.wait_history()),
    (SELECT count(*) FROM pgscale_internal.past_coverage('-infinity'))) FROM pgscale.sampler_stats};

# Waits of several kinds and applications; a gap, so that there are two spans. The sampler is off afterwards, so that nothing moves.
my ($holder, $waiter) = map { session($node) } 1, 2;
$holder->sql(q{SET application_name = 'billing'; BEGIN; UPDATE t SET i = 2});
$waiter->sql(q{SET application_name = 'shop'});
$db->sees_waiting($waiter, 'UPDATE t SET i = 3');
$db->poll_ok('SELECT count(*) > 0 FROM pgscale.wait_history WHERE root_pid IS NOT NULL', 'one waits for a root');
$db->sampler('off');
$db->poll_ok('SELECT clock_timestamp() > max(at + make_interval(secs => period_s)) + interval $$1 s$$ FROM pgscale_internal.past_coverage()',
    'a gap');
$db->sampler('on');
$db->poll_ok('SELECT count(*) > 1 FROM pgscale_internal.past_coverage()', 'two times');
$holder->sql('COMMIT');
$waiter->finish;
$waiter->start('SELECT pg_sleep(600)');
$db->poll_ok(q{SELECT count(*) > 0 FROM pgscale.wait_history WHERE event = 'PgSleep'}, 'one sleeps');
cancelled($db, $waiter);
$_->quit for $holder, $waiter;
$db->sampler('off');
my %was = map { $_ => $db->sql($all{$_}) } keys %all;
is($was{applications}, 'shop', 'there is a wait of an application');
ok(!-e $profile_file && !-e $history_file, 'no file while the server runs');
my $time;
for my $mode ('fast', 'smart')
{
    $db = restarted($db, $node, $mode);
    ok(!-e $profile_file && !-e $history_file, "$mode shutdown: no file after the start");
    is($db->sql($all{$_}), $was{$_}, "it keeps: $_") for sort keys %all;
    $time //= $db->sql($sampled);
    like($time, qr/^shop\|Lock\|[1-9]/m, 'time of an application');
    is($db->sql($sampled), $time, 'and keeps the time that each sample stands for');
}

# What comes then is added, and begins a time of its own. On a machine that is busy for seconds there are more of them.
my $spans = split /\n/, $was{'known times'};
my ($samples) = $was{totals} =~ /^(\d+)/;
$db->sampler('on');
$db->poll_ok("SELECT count(*) > $spans FROM pgscale_internal.past_coverage('-infinity')", 'the time without a server is a gap');
is($db->sql("$all{'known times'} LIMIT $spans"), $was{'known times'}, 'after what was known');
$db->poll_ok("SELECT samples > $samples FROM pgscale.sampler_stats", 'and the profile goes on with what it had');
$db->sampler('off');
$db = restarted($db, $node, 'immediate');
is($db->sql($left), '0 0 0 0', 'an immediate shutdown forgets all');

# A sampler that is stopped or ended in the middle of a change: readers give up, and the postmaster neither waits for it nor
# fails. Only a library that comes between can leave a change.
SKIP:
{
    my $library = shows_modules() ? compiled('unfinished_change') : undef;
    skip 'the library that leaves a change cannot be made here', 4 unless $library;
    $db->sql("CREATE FUNCTION begin_change() RETURNS void LANGUAGE C AS '$library'; SELECT begin_change()");
    is(($db->try("SELECT samples FROM pgscale.$_"))[0], '55P03', "$_ while a change is under way: it gives up")
      for 'sampler_stats', 'wait_profile';
    my $from = -s $node->logfile;
    $db = restarted($db, $node);
    my $log = substr slurp_file($node->logfile), $from;
    like($log, qr/LOG:  the wait profile is not kept over the restart/, 'a change that nobody ends: it is not kept');
    # a session that is not gone yet is ended, and its lines have a name
    unlike($log, qr/\] (?:ERROR|FATAL|PANIC):/, 'and the postmaster ends without an error');
}
my $catversion = $db->sql('SELECT catalog_version_no FROM pg_control_system()');
$db->quit;
$node->stop;

### Files that a test has made, each with a checksum that is right

# Microseconds since 2000, ten minutes ago
my $began = 1e6 * (int(time - 946684800) - 600);
my $lock = 0x03000000;
my $worker = 0x40;
my %entry = (queryid => 7, datid => 5, userid => 10, event => $lock, kind => $worker, samples => 3, ns => 9e6);
my @types = (catversion => $catversion, types => ['forged worker']);
sub profile { return profile_file(@types, entries => [ { %entry, @_ } ], evictions => 4); }

sub history
{
    my ($n, %different) = @_;
    my @samples = map { { at => $began + 1e6 * $_, pid => $_, event => $lock, kind => $worker, us => 1e6, name => 1,
        state => 2, %different } } 1 .. $n;

    return history_file(@types, names => ['shop'], spans => [ [ $began, $began + 1e6 * $n, 0 ] ], samples => \@samples);
}

sub changed
{
    my ($bytes, $at, $with) = @_;

    substr($bytes, $at, length $with) = $with;
    return with_checksum(substr $bytes, 0, -4);
}
sub flipped { my $bytes = shift; return substr($bytes, 0, -1) . chr(1 ^ ord substr $bytes, -1); }
sub in_profile { return changed(profile(), @_); }
sub in_history { return changed(history(2), @_); }
# six numbers; samples, time, evictions, used and others, reset; types; entries: and six numbers; end and number of the
# spans, and 256 of them; types; applications; samples
my ($totals, $types, $entries) = (24, 64, 160);
my ($first_span, $names, $first_sample) = (40, 6280, 6344);
my $far = 0x7FFFFFFFFFFFFFFF;
my @evicted = (kind => 0xFF, datid => 0, userid => 0, queryid => 0);
my @profiles = (
    [ 'a type that there is not', profile(kind => 0x41), qr/entry that cannot be/ ],
    [ 'bytes that are never used', in_profile($entries + 21, "\1"), qr/entry that cannot be/ ],
    [ 'a class of events that there is not', profile(event => 0x02000001), qr/entry that cannot be/ ],
    [ 'an event that there is not', profile(event => 0x0A00FFFF), qr/entry that cannot be/ ],
    [ 'a lock that there is not', profile(event => 0x030000FF), qr/entry that cannot be/ ],
    [ 'a query of what was evicted', profile(@evicted, queryid => 7), qr/entry that cannot be/ ],
    [ 'a plan of what was evicted', profile(@evicted, plan_id => 1), qr/entry that cannot be/ ],
    [ 'no samples and no time', profile(samples => 0, ns => 0), qr/counts that cannot be/ ],
    [ 'samples beyond any sum', profile(samples => $far + 1), qr/counts that cannot be/ ],
    [ 'time beyond any sum', profile(ns => $far + 1), qr/counts that cannot be/ ],
    [ 'samples of others', in_profile($totals, pack 'Q', 4), qr/totals are not/ ],
    [ 'time of others', in_profile($totals + 8, pack 'Q', 9e6 - 1), qr/totals are not/ ],
    [ 'evictions below zero', in_profile($totals + 16, pack 'q', -1), qr/totals cannot be/ ],
    [ 'a reset that never was', in_profile($totals + 32, pack 'q', $far), qr/totals cannot be/ ],
    [ 'a type without an end', in_profile($types, 'x' x 96), qr/type of process without a name/ ],
    [ 'a type without a name', in_profile($types, "\0"), qr/type of process without a name/ ],
    [ 'more entries than there can be', in_profile(12, pack 'L', 0x7FFFFFFF), qr/size is wrong/ ],
    [ 'more types than there can be', in_profile(16, pack 'L', 129), qr/size is wrong/ ],
    [ 'another format', in_profile(0, pack 'L', 1), qr/format/ ],
    [ 'another catalog version', in_profile(4, pack 'L', $catversion + 1), qr/another major version/ ],
    [ 'another size of entries', in_profile(8, pack 'L', 64), qr/format/ ],
    [ 'a flipped bit', flipped(profile()), qr/checksum/ ],
    [ 'a truncated file', substr(profile(), 0, -20), qr/checksum/ ],
    [ 'an entry less', with_checksum(substr profile(), 0, -60), qr/size is wrong/ ],
    [ 'more at the end', with_checksum(substr(profile(), 0, -4) . "\0"), qr/size is wrong/ ],
    [ 'a truncated header', with_checksum(substr profile(), 0, 10), qr/size is wrong/ ]);
my @histories = (
    [ 'another format', in_history(0, pack 'L', 1), qr/format/ ],
    [ 'another major version', in_history(4, pack 'L', $catversion + 1), qr/another major version/ ],
    [ 'another size of samples', in_history(8, pack 'L', 48), qr/format/ ],
    [ 'more samples than there can be', in_history(12, pack 'L', 0x7FFFFFFF), qr/size is wrong/ ],
    [ 'more samples than there are', in_history(12, pack 'L', 3), qr/size is wrong/ ],
    [ 'more types than there can be', in_history(16, pack 'L', 129), qr/size is wrong/ ],
    [ 'more applications than there can be', in_history(20, pack 'L', 0xFFFFFFFF), qr/size is wrong/ ],
    [ 'an application without an end', in_history($names, 'x' x 64), qr/application without an end/ ],
    [ 'more spans than there can be', in_history(32, pack 'l', 257), qr/times that cannot be/ ],
    [ 'less than no span', in_history(32, pack 'l', -1), qr/times that cannot be/ ],
    [ 'spans of other samples', in_history(24, pack 'Q', 3), qr/times that cannot be/ ],
    [ 'a span that ends before it begins', in_history($first_span, pack 'qq', 5, 4), qr/times that cannot be/ ],
    [ 'a span without an end', in_history($first_span + 8, pack 'q', $far), qr/times that cannot be/ ],
    [ 'a span without samples', in_history($first_span + 16, pack 'Q', 3), qr/times that cannot be/ ],
    [ 'a sample of no time', history(2, at => $far), qr/sample that cannot be/ ],
    [ 'a sample of nobody', history(2, pid => 0), qr/sample that cannot be/ ],
    [ 'an event that there is not', history(2, event => 0x0A00FFFF), qr/sample that cannot be/ ],
    [ 'a blocker without a root', history(2, blocker => 5), qr/sample that cannot be/ ],
    [ 'a blocker that cannot be', history(2, blocker => -2, root => -2), qr/sample that cannot be/ ],
    [ 'a sample that stands for nothing', history(2, us => 0), qr/sample that cannot be/ ],
    [ 'a sample that stands for an hour', history(2, us => 3_600_000_000), qr/sample that cannot be/ ],
    [ 'an application that there is not', history(2, name => 2), qr/sample that cannot be/ ],
    [ 'a type that there is not', history(2, kind => 0x41), qr/sample that cannot be/ ],
    [ 'what was evicted', history(2, kind => 0xFF), qr/sample that cannot be/ ],
    [ 'a state that there is not', history(2, state => 99), qr/sample that cannot be/ ],
    [ 'a flipped bit', flipped(history(2)), qr/checksum/ ],
    [ 'an empty file', '', qr/checksum/ ]);
# the files are gone while a server runs
my $answer = $left =~ s/, samples/, (pg_stat_file('pg_stat\/pgscale_sampler.stat', true)).size,
    (pg_stat_file('pg_stat\/pgscale_sampler_history.stat', true)).size, samples/r;
for my $i (-1 .. max($#profiles, $#histories))
{
    my ($profile, $history) = $i < 0 ? () : ($profiles[$i], $histories[$i]);

    write_bytes($profile_file, $profile ? $profile->[1] : profile());
    write_bytes($history_file, $history ? $history->[1] : history(2));
    my ($found, $log) = alone($node, $answer);
    is($found, ($profile ? '0 0 ' : '3 1 ') . ($history ? '0 0' : '2 1'), 'what is taken, and no file is left');
    like($log, qr/LOG:  ignoring file "pg_stat\/pgscale_sampler.stat": .*$profile->[2]/,
        "the profile with $profile->[0] is not") if $profile;
    like($log, qr/LOG:  ignoring file "pg_stat\/pgscale_sampler_history.stat": .*$history->[2]/,
        "the history with $history->[0] is not")
      if $history;
}

# What may be though no server wrote it: a reset and samples to come, and names that are no text
write_bytes($profile_file, changed(in_profile($totals + 32, pack 'q', 0x7FFFFFFFFFFFF), $types, "\xff\xfe\0"));
write_bytes($history_file, changed(in_history($first_sample, pack 'q', 2e17), $names, "\xff\xfe\0"));
my ($found, $log) = alone($node, q{SELECT concat_ws(' ', stats_reset <= clock_timestamp(), samples,
    (SELECT count(*) FROM pgscale_internal.wait_profile() WHERE backend_type ~ '[^ -~]'),
    (SELECT count(*) FROM pgscale.past_waits('-infinity', 'infinity') WHERE application_name ~ '[^ -~]'),
    (SELECT count(*) FROM pgscale_internal.wait_history(now() + interval '1 day')),
    (SELECT count(*) > 0 FROM pgscale.activity('-infinity', 'infinity') WHERE event_type IS NOT NULL)) FROM pgscale.sampler_stats});
unlike($log, qr/ignoring/, 'files from a clock that was ahead are taken');
is($found, 't 3 0 0 1 t', 'and the profile has begun by now, the history can be read, and no name is no text');

# A folder in its place, which can be neither read nor replaced, and a pipe, which never ends
for my $make (sub { mkdir $profile_file }, sub { require POSIX; POSIX::mkfifo($profile_file, 0600) })
{
    unlink $profile_file;
    $make->() or die "$profile_file: $!";
    ($found) = alone($node, $left);
    like($found, qr/^0 0 /, 'no file, but a ' . (-d $profile_file ? 'folder' : 'pipe') . ': the server starts, and ends');
    rmdir $profile_file if -d $profile_file;
}
# Far more than a server writes, as a damaged file system may say: it is not read
write_bytes($profile_file, profile());
truncate $profile_file, 2**36 or die "$profile_file: $!";
($found, $log) = alone($node, $left);
like($log, qr/LOG:  ignoring file "pg_stat\/pgscale_sampler.stat": its size is wrong/, 'nor is one of 64 GB read');
unlink $profile_file;

# A history of another size: the newest samples; none; and as before. Of the oldest look that is left, some may be gone.
write_bytes($history_file, history(60));
$node->append_conf('postgresql.conf', "pgscale.sampler = off\npgscale.sampler_history_size = 30");
$node->start;
$db = session($node);
is($db->sql('SELECT string_agg(pid::text, $$ $$) FROM pgscale_internal.wait_history()'), join(' ', 31 .. 60),
    'a smaller history has the newest samples');
is($db->sql(q{SELECT round(sum(period_s)) FROM pgscale_internal.past_coverage('-infinity')}), 29, 'and nothing is known of the time before');
is($db->sql(q{SELECT round(sum(wait_ms)) FROM pgscale.past_waits('-infinity')}), 29_000, 'and is added up as far as it goes');
$db = restarted($db, $node, 'fast', 'pgscale.sampler_history_size = 0');
is($db->sql($left), '0 0 0 0', 'without any there is nothing');
$db = restarted($db, $node, 'fast', 'pgscale.sampler_history_size = 50000');
is($db->sql($left), '0 0 0 0', 'nor has it come back');
$db->quit;
$node->stop;

# As many spans as there can be: each further one takes the place of the oldest.
my $later = q{timestamptz '2000-01-01 00:00:00+00' + interval '1 s' * } . ($began / 1e6 + 550);
write_bytes($history_file, history_file(catversion => $catversion, samples => [],
    spans => [ map { [ $began + 2e6 * $_, $began + 2e6 * $_ + 1e6 + $_, 0 ] } 0 .. 255 ]));
$node->start;
$db = session($node);
my $ends = q{SELECT count(*), round(1e6 * extract(epoch FROM min(at) - '2000-01-01 00:00:00+00')), round(sum(period_s)::numeric, 6)
    FROM pgscale_internal.past_coverage('-infinity')};
is($db->sql($ends), "256|$began|256.032640", 'each span is there');
$db->sampler('on');
$db->poll_ok("SELECT count(*) > 0 FROM pgscale_internal.past_coverage($later)", 'one more');
$db->sampler('off');
my $more = $db->sql("SELECT count(*) FROM pgscale_internal.past_coverage($later)");
my $seconds = sprintf '%.6f', sum0(map { 1 + $_ / 1e6 } $more .. 255);
is($db->sql("$ends WHERE at < $later"), join('|', 256 - $more, $began + 2e6 * $more, $seconds), 'and the oldest is gone');
$db->quit;
$node->stop;
done_testing();
