# The history over a restart: kept by a clean shutdown, with true times and a gap; nothing after a crash; and whatever a file
# says, what is taken from it is a history.
use strict;
use warnings;
no warnings 'portable';
use List::Util qw(sum0);
use PgscaleKept;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main', conf => <<'EOC');
pgscale.sampler_period = 5ms
pgscale.sampler_history_period = 20ms
deadlock_timeout = 50ms
pgscale.sampler_dimensions = 'application_name, client_addr'
EOC
my $file = $node->data_dir . '/pg_stat/pgscale_sampler_history.stat';
my $db = session($node);
$db->sql('CREATE TABLE t (i int); INSERT INTO t VALUES (1)');

# Extensions' events and locks lose their names with their numbers, pgscale's own included.
my $all = q{SELECT count(*), md5(string_agg(p::text, ' ' ORDER BY n)) FROM
    (SELECT n, sampled_at, pid, backend_type, datid, userid, queryid, state, event_type, blocker_pid, root_pid,
            CASE WHEN event_type = 'Extension' OR event ~ '^(pgscale|extension$)' THEN '' ELSE event END
       FROM pgscale.wait_history() WITH ORDINALITY h (sampled_at, pid, backend_type, datid, userid, queryid, state, event_type,
            event, blocker_pid, root_pid, root_application_name, n)) p};
# how much time each has is by the seconds of the timeline, which end with the server
my $sums = q{SELECT DISTINCT application_name, event_type FROM pgscale.past_waits('-infinity') WHERE application_name IS NOT NULL ORDER BY 1, 2};
# without one, as after a restart, it is that of the samples
my $sampled = q{SELECT application_name, event_type, round(sum(wait_ms)::numeric, 3) FROM pgscale.past_waits('-infinity')
    WHERE event_type <> 'Extension' AND event !~ '^(pgscale|extension$)' GROUP BY 1, 2 ORDER BY 1, 2};
my $times = q{SELECT at, round(period_s::numeric, 6) FROM pgscale.past_coverage('-infinity')};
my $nothing = q{SELECT (SELECT count(*) FROM pgscale.wait_history()), (SELECT count(*) FROM pgscale.past_coverage('-infinity')),
    (SELECT count(*) FROM pgscale.top_waits('-infinity'))};

# Has a session sleep until the history has more than so many samples of it.
sub sleeps
{
    my ($session, $samples, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    $session->start('SELECT pg_sleep(600)');
    $db->poll_ok("SELECT count(*) > $samples FROM pgscale.wait_history WHERE event = 'PgSleep' AND pid = " . $session->pid, $name);
    $db->sql('SELECT pg_cancel_backend(' . $session->pid . ')');
    $session->finish;
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

# Waits of several kinds and applications; a gap, so that there are two spans. The sampler is off afterwards.
my ($holder, $waiter) = (session($node), session($node));
$holder->sql(q{SET application_name = 'billing'; BEGIN; UPDATE t SET i = 2});
$waiter->sql(q{SET application_name = 'shop'});
$db->sees_waiting($waiter, 'UPDATE t SET i = 3');
$db->poll_ok('SELECT count(*) > 0 FROM pgscale.wait_history WHERE root_pid IS NOT NULL', 'one waits for a root');
$db->sampler('off');
$db->poll_ok('SELECT clock_timestamp() > max(at + make_interval(secs => period_s)) + interval $$1 s$$ FROM pgscale.past_coverage()', 'a gap');
$db->sampler('on');
$db->poll_ok('SELECT count(*) > 1 FROM pgscale.past_coverage()', 'two times');
$holder->sql('COMMIT');
$waiter->finish;
sleeps($waiter, 0, 'and one that sleeps');
$_->quit for $holder, $waiter;
$db->sampler('off');
my ($history, $waits, $known) = map { $db->sql($_) } $all, $sums, $times;
like($waits, qr/^shop\|Lock$/m, 'there is a wait of an application');
ok(!-e $file, 'no file while the server runs');

restart();
ok(!-e $file, 'no file after the start');
is($db->sql($all), $history, 'a fast restart keeps each sample');
is($db->sql($sums), $waits, 'with its application');
is($db->sql($times), $known, 'and what is known');
my $time = $db->sql($sampled);
like($time, qr/^shop\|Lock\|[1-9]/m, 'and time');
restart('smart');
is($db->sql($all), $history, 'so does a smart one');
is($db->sql($sampled), $time, 'and the time that each sample stands for');

# What comes then begins a time of its own. On a machine that is busy for seconds there are more of them.
my $spans = split /\n/, $known;
$db->sampler('on');
$db->poll_ok("SELECT count(*) > $spans FROM pgscale.past_coverage('-infinity')", 'the time without a server is a gap');
is($db->sql("$times LIMIT $spans"), $known, 'after what was known');
$db->poll_ok(q{SELECT count(*) > 5 FROM pgscale.activity(now() - interval '1 min', NULL, '1 s') WHERE covered_fraction > 0}, 'in what activity shows, too');

# A sampler that is switched off just then has not lost anything.
$db->sampler('off');
($history, $waits, $known) = map { $db->sql($_) } $all, $sums, $times;

# Another size: the newest samples; none; and as before
sub with
{
    $node->append_conf('postgresql.conf', shift);
    return restart();
}
my $some = $db->sql('SELECT count(*) FROM pgscale.wait_history()');
my $less = int($some / 2);
my $newest = "SELECT md5(string_agg(sampled_at || ' ' || pid, ' ' ORDER BY n)) FROM (SELECT * FROM (SELECT n, sampled_at, pid
    FROM pgscale.wait_history() WITH ORDINALITY h (sampled_at, pid, a, b, c, d, e, f, g, i, j, k, n) ORDER BY n DESC LIMIT $less) l) m";
my $half = $db->sql($newest);
with("pgscale.sampler_history_size = $less");
is($db->sql('SELECT count(*) FROM pgscale.wait_history()'), $less, 'a smaller history has as many as it can');
is($db->sql($newest), $half, 'which are the newest');
is($db->sql(q{SELECT min(c.at) >= min(h.sampled_at), count(*) > 0 FROM pgscale.past_coverage('-infinity') c, pgscale.wait_history() h}), 't|t',
    'and nothing is known of the time before');
is($db->sql(q{SELECT count(*) > 0 FROM pgscale.past_waits('-infinity')}), 't', 'and is added up as far as it goes');
with('pgscale.sampler_history_size = 0');
is($db->sql($nothing), '0|0|0', 'without any there is nothing');
$db->sampler('on');
$db->poll_ok('SELECT ticks > 20 FROM pgscale.sampler_stats', 'the sampler works');
is($db->sql($nothing), '0|0|0', 'and still nothing');
$db->sampler('off');
with('pgscale.sampler_history_size = 50000');
is($db->sql($nothing), '0|0|0', 'nor has it come back');

# Neither after a crash
$db->sampler('on');
$db->poll_ok(q{SELECT count(*) > 0 FROM pgscale.past_coverage()}, 'looks');
$db->sampler('off');
restart('immediate');
is($db->sql($nothing), '0|0|0', 'an immediate shutdown forgets all');

# The file of another's making: each is one that the server wrote but for a field, and has a checksum that is right.
$db->sampler('on');
my $sleeper = session($node);
$sleeper->sql(q{SET application_name = 'mine'});
sleeps($sleeper, 2, 'samples');
$sleeper->quit;
$db->sampler('off');
$db->quit;
$node->stop;
my $body = substr slurp_file($file, 0), 0, -4;
# six numbers; end and number of the spans, and 256 of them; types; applications; samples
my ($format, $catversion, $size, $nsamples, $ntypes, $nnames) = unpack 'L6', $body;
my $first_span = 24 + 16;
my $types = $first_span + 256 * 24;
my $names = $types + 96 * $ntypes;
my $samples = $names + 64 * $nnames;
is(length $body, $samples + $nsamples * $size, 'its form is understood here');
cmp_ok($nnames, '>', 0, 'it has applications');

sub at
{
    my ($at, $with) = @_;
    my $bytes = $body;

    substr($bytes, $at, length $with) = $with;
    return $bytes;
}
sub in_sample { return at($samples + $_[0], $_[1]); }
my $far = 0x7FFFFFFFFFFFFFFF;
my %forged = (
    'another format' => [ at(0, pack 'L', $format + 1), qr/format/ ],
    'another major version' => [ at(4, pack 'L', $catversion + 1), qr/another major version/ ],
    'another size of samples' => [ at(8, pack 'L', 48), qr/format/ ],
    'more samples than there can be' => [ at(12, pack 'L', 0x7FFFFFFF), qr/size is wrong/ ],
    'more samples than there are' => [ at(12, pack 'L', $nsamples + 1), qr/size is wrong/ ],
    'more types than there can be' => [ at(16, pack 'L', 129), qr/size is wrong/ ],
    'more applications than there can be' => [ at(20, pack 'L', 0xFFFFFFFF), qr/size is wrong/ ],
    'a type without an end' => [ at($types, 'x' x 96), qr/type of process without a name/ ],
    'an application without an end' => [ at($names, 'x' x 64), qr/application without an end/ ],
    'more spans than there can be' => [ at(32, pack 'l', 257), qr/times that cannot be/ ],
    'less than no span' => [ at(32, pack 'l', -1), qr/times that cannot be/ ],
    'spans of other samples' => [ at(24, pack 'Q', $nsamples + 1), qr/times that cannot be/ ],
    'a span that ends before it begins' => [ at($first_span, pack 'qq', 5, 4), qr/times that cannot be/ ],
    'a span without an end' => [ at($first_span + 8, pack 'q', $far), qr/times that cannot be/ ],
    'a span without samples' => [ at($first_span + 16, pack 'Q', $nsamples + 1), qr/times that cannot be/ ],
    'a sample of no time' => [ in_sample(0, pack 'q', $far), qr/sample that cannot be/ ],
    'a sample before all time' => [ in_sample(0, pack 'q', -$far - 1), qr/sample that cannot be/ ],
    'a sample of nobody' => [ in_sample(16, pack 'l', 0), qr/sample that cannot be/ ],
    'an event that there is not' => [ in_sample(28, pack 'L', 0x0A00FFFF), qr/sample that cannot be/ ],
    'a blocker without a root' => [ in_sample(32, pack 'll', 5, -1), qr/sample that cannot be/ ],
    'a blocker that cannot be' => [ in_sample(32, pack 'll', -2, -2), qr/sample that cannot be/ ],
    'a sample that stands for nothing' => [ in_sample(40, pack 'L', 0), qr/sample that cannot be/ ],
    'a sample that stands for an hour' => [ in_sample(40, pack 'L', 3_600_000_000), qr/sample that cannot be/ ],
    'an application that there is not' => [ in_sample(44, pack 'S', $nnames + 1), qr/sample that cannot be/ ],
    'a kind that there is not' => [ in_sample(46, pack 'C', 0x3F), qr/sample that cannot be/ ],
    'a type that there is not' => [ in_sample(46, pack 'C', 0x40 + $ntypes), qr/sample that cannot be/ ],
    'what was evicted' => [ in_sample(46, pack 'C', 0xFF), qr/sample that cannot be/ ],
    'a state that there is not' => [ in_sample(47, pack 'C', 99), qr/sample that cannot be/ ]);

my $empty = q{SELECT (SELECT count(*) FROM pgscale.wait_history()) || ' ' || (SELECT count(*) FROM pgscale.past_coverage('-infinity'))};
my @files = map { [ $_, with_checksum($forged{$_}[0]), $forged{$_}[1] ] } sort keys %forged;
push @files,
  [ 'a flipped bit', at($samples + 8, chr(ord(substr $body, $samples + 8, 1) ^ 1)) . substr(with_checksum($body), -4), qr/checksum/ ],
  [ 'a truncated file', substr($body, 0, -20), qr/size/ ], [ 'a truncated header', substr($body, 0, 10), qr/short/ ],
  [ 'an empty file', '', qr/short/ ];
for (@files)
{
    my ($name, $bytes, $problem) = @$_;

    write_bytes($file, $bytes);
    my ($left, $logged) = alone($node, $empty);
    like($logged, qr/LOG:  ignoring file "pg_stat\/pgscale_sampler_history.stat": .*$problem/, "$name: ignored, and the log says why");
    is($left, '0 0', "$name: the history is empty");
    ok(!-e $file, "$name: and the file is gone");
}

# What may be though no server wrote it: samples to come, no text for a name, one span after the other in the wrong order
my $bytes = at($names, "\xff\xfe\0");
substr($bytes, $samples, 8) = pack 'q', 2e17;
my $logged = -s $node->logfile;
write_bytes($file, with_checksum($bytes));
$node->start;
$db = session($node);
unlike(substr(slurp_file($node->logfile), $logged), qr/ignoring/, 'a history from a clock that was ahead is taken');
is($db->sql(q{SELECT count(*) > 0, bool_and(application_name !~ '[^ -~]') IS NOT FALSE FROM pgscale.past_waits('-infinity', 'infinity')}), 't|t', 'and can be read');
is($db->sql(q{SELECT count(*) FROM pgscale.wait_history(now() + interval '1 day')}), 1, 'with what lies in the future');
is($db->sql(q{SELECT count(*) FROM pgscale.activity('-infinity', 'infinity') WHERE event_type IS NOT NULL} ) > 0 ? 1 : 0, 1, 'that activity leaves out');
$db->quit;
$node->stop;

# As many spans as there can be: each further one takes the place of the oldest.
my $began = 1e6 * (int(time - 946684800) - 600);
my $later = q{timestamptz '2000-01-01 00:00:00+00' + interval '1 s' * } . ($began / 1e6 + 550);
write_bytes($file, history_file(catversion => $catversion, samples => [], spans => [ map { [ $began + 2e6 * $_, $began + 2e6 * $_ + 1e6 + $_, 0 ] } 0 .. 255 ]));
$node->start;
$db = session($node);
my $ends = q{SELECT count(*), round(1e6 * extract(epoch FROM min(at) - '2000-01-01 00:00:00+00')), round(sum(period_s)::numeric, 6) FROM pgscale.past_coverage('-infinity')};
is($db->sql($ends), "256|$began|256.032640", 'each span is there');
$db->sampler('on');
$db->poll_ok("SELECT count(*) > 0 FROM pgscale.past_coverage($later)", 'one more');
$db->sampler('off');
my $more = $db->sql("SELECT count(*) FROM pgscale.past_coverage($later)");
is($db->sql("$ends WHERE at < $later"), join('|', 256 - $more, $began + 2e6 * $more, sprintf '%.6f', sum0(map { 1 + $_ / 1e6 } $more .. 255)),
    'and the oldest is gone');
$db->quit;
$node->stop;

done_testing();
