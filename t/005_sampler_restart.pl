# The profile over a restart: kept by a clean shutdown, and never worth a server that does not start.
use strict;
use warnings;
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

sub write_file
{
    my $bytes = shift;

    open my $handle, '>:raw', $file or die "$file: $!";
    print $handle $bytes;
    close $handle or die "$file: $!";
    return;
}

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

restart();
ok(!-e $file, 'no file after the start');
is($db->sql($all), $profile, 'a fast restart keeps the profile');
is($db->sql($totals), $sums, 'and its totals');

restart('smart');
is($db->sql($all), $profile, 'so does a smart one');

# A file that cannot be used is left out. First, that this way of putting a file in place works.
$db->quit;
$node->stop;
ok(-e $file, 'a file after the shutdown');
my $good = content();
# its header begins with six numbers, of which four are of interest, then come the totals
my ($format, $catversion, $entry_size, $entries) = unpack 'L4', $good;
cmp_ok($entries * $entry_size, '<', length $good, 'its header is understood here');

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

for (
    [ 'the good one' => $good, undef ],
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
    [ 'random bytes' => join('', map { chr(($_ * 7919 + $_ * $_ * 104729) % 251) } 1 .. 10000), qr/format/ ])
{
    my ($name, $bytes, $problem) = @$_;
    write_file($bytes);
    my $logged = -s $node->logfile;

    $node->start;
    $db = session($node);
    my $log = slurp_file($node->logfile, $logged);
    if ($problem)
    {
        like($log, qr/LOG:  ignoring file "pg_stat\/pgscale_sampler.stat": .*$problem/,
            "$name: ignored, and the log says why");
        is($db->sql($totals =~ s/, stats_reset//r), '0|0|0', "$name: the profile is empty");
    }
    else
    {
        unlike($log, qr/pgscale_sampler/, "$name: nothing in the log");
        is($db->sql($all), $profile, "$name: the profile is back");
    }
    ok(!-e $file, "$name: the file is gone");
    $db->quit;
    $node->stop;
}

# A folder in its place, which can be neither read nor replaced
unlink $file;
mkdir $file;
$node->start;
$db = session($node);
is($db->sql('SELECT samples FROM pgscale.sampler_stats'), 0, 'a folder instead of the file: the server starts');
$db->quit;
$node->stop;
ok(-d $file, 'and stops');
rmdir $file;

# A smaller profile: what has no room is evicted, not lost.
write_file($good);
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

# It is not kept when it is not to be.
$db->sampler('on');
$db->poll_ok('SELECT samples > 10 FROM pgscale.sampler_stats', 'it goes on');
$db->sampler('off');
$db->sql('ALTER SYSTEM SET pgscale.sampler_save = off');
$db->sql('SELECT pg_reload_conf()');
$db->poll_ok('SHOW pgscale.sampler_save', 'sampler_save is off', 'off');
restart();
is($db->sql('SELECT samples FROM pgscale.sampler_stats'), 0, 'sampler_save = off: the profile is not kept');
ok(!-e $file, 'nor a file');

# With the sampler on, it adds to what it had.
$db->sql('ALTER SYSTEM RESET pgscale.sampler_save');
$db->sampler('on');
$db->poll_ok('SELECT samples > 100 FROM pgscale.sampler_stats', 'samples');
my $before = $db->sql('SELECT samples FROM pgscale.sampler_stats');
restart();
$db->poll_ok("SELECT samples > $before FROM pgscale.sampler_stats", 'the sampler goes on with what it had');
$db->poll_ok('SELECT ticks > 0 FROM pgscale.sampler_stats', 'it ticks');

$node->stop;
done_testing();
