# The profile over a restart: kept by a clean shutdown, and never worth a server that does not start.
use strict;
use warnings;
no warnings 'portable';
use PgscaleKept;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

# The sampler is off but for the first part, so that what is compared does not move.
my $node = pgscale_node('main', conf => 'pgscale.sampler_period = 1');
my $file = $node->data_dir . '/pg_stat/pgscale_sampler.stat';
my $db = session($node);

# Extensions' events and locks lose their names with their numbers, pgscale's own included.
my $all = q{SELECT md5(string_agg(p::text, ' ' ORDER BY p::text COLLATE "C")) FROM
    (SELECT backend_type, datid, userid, queryid, event_type,
            CASE WHEN event_type = 'Extension' OR event ~ '^(pgscale|extension$)' THEN '' ELSE event END,
            sum(samples), round(sum(wait_ms)::numeric, 3), idle FROM pgscale.wait_profile()
      GROUP BY 1, 2, 3, 4, 5, 6, 9) p};
my $totals = 'SELECT samples, wait_ms, evictions, stats_reset FROM pgscale.sampler_stats';
my $reconcile = 'SELECT (SELECT sum(samples) FROM pgscale.wait_profile()) = samples FROM pgscale.sampler_stats';

sub content { return slurp_file($file, 0); }

sub restart
{
    my $mode = shift // 'fast';

    $db->quit;
    $node->stop($mode);
    $node->start;
    $db = session($node);
    return;
}

# More entries than a smaller profile has room for below, and one that is known. Which statements are seen is up to the machine.
until_true(sub {
    $db->sql(q{SELECT format('SELECT pg_sleep(0.004)%s', repeat(', 1', i)) FROM generate_series(1, 150) i
\gexec
SELECT 1});
    return $db->sql(q{SELECT count(*) > 110 FROM pgscale.wait_profile WHERE event = 'PgSleep'}) eq 't';
});
$db->sampler('off');
my $profile = $db->sql($all);
my $sums = $db->sql($totals);
my $sleep = $db->sql(q{SELECT sum(samples) FROM pgscale.wait_profile() WHERE event = 'PgSleep'});
cmp_ok($sleep, '>', 100, 'the profile has entries');
ok(!-e $file, 'no file while the server runs');

restart('smart');
ok(!-e $file, 'no file after the start');
is($db->sql($all), $profile, 'a restart keeps the profile');
is($db->sql($totals), $sums, 'and its totals');

# A file that cannot be used is left out. First, that this way of putting a file in place works.
$db->quit;
$node->stop;
ok(-e $file, 'a file after the shutdown');
my $good = content();
# its header begins with six numbers, of which four are of interest, then come the totals
my ($format, $catversion, $entry_size, $nentries) = unpack 'L4', $good;
cmp_ok($nentries * $entry_size, '<', length $good, 'its header is understood here');

sub changed
{
    my ($at, $with) = @_;
    my $bytes = $good;

    substr($bytes, $at, length $with) = $with;
    return $bytes;
}

sub flipped
{
    my $at = shift;

    return changed($at, chr(ord(substr($good, $at, 1)) ^ 1));
}

my $body = substr $good, 0, -4;
is(with_checksum($body), $good, 'so is its checksum');
# six numbers; samples, ns, evictions, used and others, reset_at; types; entries of queryid, datid, userid, event, kind, unused,
# dimension, plan_id, samples, ns, born
my $ntypes = unpack 'x16 L', $good;
my $totals_at = 24;
my $types = $totals_at + 40;
my $entries_at = $types + 96 * $ntypes;
is(length $body, $entries_at + $nentries * $entry_size, 'so is its form');
my ($samples, $ns) = unpack 'QQ', substr $body, $totals_at, 16;

# in the first entry, and the totals with it
sub in_entry
{
    my ($at, $with) = @_;
    my $bytes = $body;

    substr($bytes, $entries_at + $at, length $with) = $with;
    return $bytes;
}

sub at
{
    my ($at, $with) = @_;
    my $bytes = $body;

    substr($bytes, $at, length $with) = $with;
    return $bytes;
}
my ($first_samples, $first_ns) = unpack 'QQ', substr $body, $entries_at + 32, 16;
my $max = 0x7FFFFFFFFFFFFFFF;
my %forged = (
    'a kind that there is not' => [ in_entry(20, pack 'C', 0x3F), qr/entry that cannot be/ ],
    'a type that there is not' => [ in_entry(20, pack 'C', 0x40 + $ntypes), qr/entry that cannot be/ ],
    'bytes that are never used' => [ in_entry(21, pack 'C', 1), qr/entry that cannot be/ ],
    'a class of events that there is not' => [ in_entry(16, pack 'L', 0x02000001), qr/entry that cannot be/ ],
    'an event that there is not' => [ in_entry(16, pack 'L', 0x0A00FFFF), qr/entry that cannot be/ ],
    'a lock that there is not' => [ in_entry(16, pack 'L', 0x030000FF), qr/entry that cannot be/ ],
    'a query of what was evicted' => [ in_entry(0, pack 'qLLLC', 1, 1, 1, 0, 0xFF), qr/entry that cannot be/ ],
    'a plan of what was evicted' => [ in_entry(0, pack 'qLLLCCSq', 0, 0, 0, 0, 0xFF, 0, 0, 1), qr/entry that cannot be/ ],
    'no samples and no time' => [ in_entry(32, pack 'QQ', 0, 0), qr/counts that cannot be/ ],
    'samples below zero' => [ in_entry(32, pack 'q', -1), qr/counts that cannot be/ ],
    'samples beyond any sum' => [ in_entry(32, pack 'Q', $max), qr/counts that cannot be/ ],
    'time beyond any sum' => [ in_entry(40, pack 'Q', $max), qr/counts that cannot be/ ],
    'one sample too many' => [ in_entry(32, pack 'Q', $first_samples + 1), qr/totals are not/ ],
    'totals of others' => [ at($totals_at, pack 'QQ', $samples + 1, $ns), qr/totals are not/ ],
    'time of others' => [ at($totals_at, pack 'QQ', $samples, $ns - 1), qr/totals are not/ ],
    'evictions below zero' => [ at($totals_at + 16, pack 'q', -1), qr/totals cannot be/ ],
    'a reset that never was' => [ at($totals_at + 32, pack 'q', $max), qr/totals cannot be/ ],
    'a type without an end' => [ at($types, 'x' x 96), qr/type of process without a name/ ],
    'a type without a name' => [ at($types, "\0"), qr/type of process without a name/ ],
    'more entries than there can be' => [ at(12, pack 'L', 0x7FFFFFFF), qr/size is wrong/ ],
    'more types than there can be' => [ at(16, pack 'L', 129), qr/size is wrong/ ]);


my @files = map { [ $_, with_checksum($forged{$_}[0]), $forged{$_}[1] ] } sort keys %forged;
push @files,
    [ 'a flipped bit in an entry' => flipped(int(length($good) / 2)), qr/checksum/ ],
    [ 'a flipped bit in the totals' => flipped(6 * 4), qr/checksum/ ],
    [ 'a flipped bit in the checksum' => flipped(length($good) - 1), qr/checksum/ ],
    [ 'another format' => changed(0, pack('L', $format + 1)), qr/format/ ],
    [ 'another catalog version' => changed(4, pack('L', $catversion + 1)), qr/another major version/ ],
    [ 'another size of entries' => changed(8, pack('L', $entry_size + 8)), qr/format/ ],
    [ 'too many entries' => changed(12, pack('L', 0xFFFFFFFF)), qr/size/ ],
    [ 'a truncated file' => substr($good, 0, length($good) / 2), qr/size/ ],
    [ 'a truncated header' => substr($good, 0, 10), qr/short/ ],
    [ 'an empty file' => '', qr/short/ ],
    [ 'garbage at the end' => "$good\0", qr/size/ ],
    [ 'random bytes' => join('', map { chr(($_ * 7919 + $_ * $_ * 104729) % 251) } 1 .. 10000), qr/format/ ];
# the file is gone while a server runs; what there is afterwards is its own
my $state = q{SELECT concat_ws('|', s.samples, s.wait_ms, s.evictions, (SELECT count(*) FROM pgscale.wait_profile()),
    (pg_stat_file('pg_stat/pgscale_sampler.stat', true)).size) FROM pgscale.sampler_stats s};
for (@files)
{
    my ($name, $bytes, $problem) = @$_;

    write_bytes($file, $bytes);
    my ($left, $log) = alone($node, $state);
    like($log, qr/LOG:  ignoring file "pg_stat\/pgscale_sampler.stat": .*$problem/, "$name: ignored, and the log says why");
    is($left, '0|0|0|0', "$name: the profile is empty, and the file is gone");
}
write_bytes($file, $good);
my ($left, $log) = alone($node, $all =~ s/^SELECT (md5\(.*?\)\)) FROM/SELECT $1 FROM/sr);
unlike($log, qr/pgscale_sampler/, 'the good one: nothing in the log');
is($left, $profile, 'the profile is back');

# What may be though no server wrote it: a reset that is still to come, a name that is no text
my $bytes = at($totals_at + 32, pack 'q', 0x7FFFFFFFFFFFF);
substr($bytes, $types, 3) = "\xff\xfe\0";
write_bytes($file, with_checksum($bytes));
($left, $log) = alone($node, q{SELECT concat_ws('|', stats_reset <= clock_timestamp(), samples,
    (SELECT count(*) FROM pgscale.wait_profile() WHERE backend_type ~ '[^ -~]')) FROM pgscale.sampler_stats});
unlike($log, qr/ignoring/, 'a profile from a clock that was ahead is taken');
is($left, "t|$samples|0", 'and has begun by now, without a name that is no text');

# A folder in its place, which can be neither read nor replaced, and a pipe, which never ends
for my $make (sub { mkdir $file }, sub { require POSIX; POSIX::mkfifo($file, 0600) })
{
    unlink $file;
    $make->() or die "$file: $!";
    ($left) = alone($node, $state =~ s/,[^,]*pg_stat_file.*?size//sr);
    is($left, '0|0|0|0', 'no file, but a ' . (-d $file ? 'folder' : 'pipe') . ': the server starts, and ends');
    rmdir $file if -d $file;
}

# A smaller profile: what has no room is evicted, not lost.
write_bytes($file, $good);
$node->append_conf('postgresql.conf', 'pgscale.sampler_profile_size = 100');
$node->start;
$db = session($node);
is($db->sql(q{SELECT entries <= 100, evictions > 0,
    (SELECT sum(samples) FROM pgscale.wait_profile() WHERE event = 'PgSleep') FROM pgscale.sampler_stats}), "t|t|$sleep",
    'a smaller profile: entries are evicted');
is($db->sql($reconcile), 't', 'it adds up');
is($db->sql('SELECT samples, stats_reset FROM pgscale.sampler_stats'), join('|', (split /\|/, $sums)[ 0, 3 ]),
    'to the same totals');
my $evictions = $db->sql('SELECT evictions FROM pgscale.sampler_stats');
restart();
is($db->sql('SELECT evictions FROM pgscale.sampler_stats'), $evictions, 'evictions are kept, too');
is($db->sql($reconcile), 't', 'and rows of evicted entries');

# After a crash it starts empty, and a file that a crash left behind would be too old.
restart('immediate');
is($db->sql('SELECT samples, (SELECT count(*) FROM pgscale.wait_profile()) FROM pgscale.sampler_stats'), '0|0',
    'after a crash the profile is empty');

# A sampler that ended in the middle of a change: the postmaster neither waits for it nor fails. Only a library that comes between
# can leave a change, and from 16 on a library shows nothing but what the server calls.
SKIP:
{
    my $library = PostgreSQL::Test::Utils::tempdir() . '/unfinished_change.so';
    my ($include, $libraries) = (server_headers(), qx(pg_config --pkglibdir) =~ s/\n//r);

    skip 'the library that leaves a change cannot be compiled here', 3
      if system("{ nm -D $libraries/pgscale.so | grep -w pgscale_sampler_profile_begin &&"
          . " cc -shared -fPIC -O1 -I $include -I src -o $library t/lib/unfinished_change.c; } >$library.out 2>&1") != 0;
    chmod 0755, $library or die $!;
    my $from = -s $node->logfile;
    $db->sql("CREATE FUNCTION begin_change() RETURNS void LANGUAGE C AS '$library'; SELECT begin_change()");
    restart();
    my $log = substr slurp_file($node->logfile), $from;
    like($log, qr/LOG:  the wait profile is not kept over the restart/, 'a change that nobody ends: it is not kept');
    unlike($log, qr/FATAL|ERROR/, 'and the postmaster ends without an error');
    is($db->sql('SELECT samples FROM pgscale.sampler_stats'), 0, 'the profile starts empty');
}

# With the sampler on, it adds to what it had.
$db->sampler('on');
$db->poll_ok('SELECT samples > 100 FROM pgscale.sampler_stats', 'samples');
my $before = $db->sql('SELECT samples FROM pgscale.sampler_stats');
restart();
$db->poll_ok("SELECT samples > $before FROM pgscale.sampler_stats", 'the sampler goes on with what it had');
$db->poll_ok('SELECT ticks > 0 FROM pgscale.sampler_stats', 'it ticks');

$node->stop;
done_testing();
