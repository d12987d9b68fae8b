# Advice that is followed, and what has become of it: on evidence that is made up, with verdicts, intervals and windows that are
# worked out here once more.
use strict;
use warnings;
use List::Util qw(max min sum0);
use PgscaleTest;
use PgscaleMadeUp;
use PgscaleTuning;
use PostgreSQL::Test::Utils;
use Test::More;

made_up();
$node = pgscale_node('main', conf => <<'EOC');
wal_buffers = 64kB
bgwriter_lru_maxpages = 50
bgwriter_delay = 300ms
bgwriter_lru_multiplier = 1
pgscale.debug_period = 1h
EOC
$db = session($node);
made_up_functions($db);
my $before = file();
sub evidence { my ($records, $at) = @_; $db->sql('DO $$ BEGIN ' . evidence_is($records, $at) . ' END $$'); return; }

### Advice that is followed

# wal_buffers would win 0.0575, backend_flush_after 0.04 with low confidence, and the background writer's 0.0401, 0.0397, 0.0393
evidence([ { of_mix(backend_buffers => 80_000, bgwriter_buffers => 200_000, checkpoint_buffers => 120_000, buffers_allocated => 301_000,
    bgwriter_stopped => 100, wal_buffers_full => 150, wal_writes => 2000, commits => 450) } ]);
my @best = (wal_buffers => '16MB', bgwriter_lru_maxpages => '1300', bgwriter_delay => '200ms', bgwriter_lru_multiplier => '2');
is($db->sql(q{SELECT string_agg(concat_ws(' ', setting, recommended, gain, confidence), ', ') FROM pgscale.advice}),
    'wal_buffers 16MB 0.0575 high, bgwriter_lru_maxpages 1300 0.0401 medium, backend_flush_after 512kB 0.04 low, '
      . 'bgwriter_delay 200ms 0.0397 medium, bgwriter_lru_multiplier 2 0.0393 medium', 'advice, greatest gain first');
my $part = $db->sql(q{SELECT pgscale_internal.report_part('advice', now() - interval '1 min', now(), NULL, NULL, 'text')});
is(join(' ', $part =~ /apply\('(\w+'.*?)$/mg), q{wal_buffers'); -- then restart the server } . join(' ', map { "$_', reload => true);" }
      qw(bgwriter_lru_maxpages backend_flush_after bgwriter_delay bgwriter_lru_multiplier)), 'statements to copy: no reload where it takes a restart');
my $told = ($db->try('CALL pgscale.apply_all()'))[1];
is(join(' ', $told =~ /NOTICE: .*would set "(\w+)" to "(\w+)"/g), "@best", 'what a dry run would set: no advice of low confidence, greatest gain first');
is(file(), $before, 'in no file');
like(($db->try('SET client_min_messages = warning; CALL pgscale.apply_all(dry_run => false)'))[1], qr/^\{1,2,3,4\}$/m, 'four changes');
is($db->sql('SELECT string_agg(setting || $$ $$ || new_value, $$ $$ ORDER BY change) FROM pgscale.tuning_journal'), "@best", 'in that order');
is(journal(q{old_value IS NULL, reason ~ '^1.5|^2 times', evidence ->> 'wal_buffers_full', outcome IS NULL}, 1), 't|t|150|t', 'with the reason and its numbers');
$db->sql('RESET client_min_messages');
is(scalar(() = ($db->try('CALL pgscale.apply_all(dry_run => false)'))[1] =~ /NOTICE: .*is already set to/g), 4, 'what is set already is no change');
my $low = change($db, q{apply('backend_flush_after')});
is(journal('setting, new_value', $low), 'backend_flush_after|512kB', 'that of low confidence is followed by its name');
change($db, "revert($_)") for $low, 4, 3, 2, 1;
is(file(), $before, 'and all is reverted');
evidence([ { s => 100, sessions => 900 } ]);
$db->sql('RESET client_min_messages');
like(($db->try('CALL pgscale.apply_all(dry_run => false)'))[1], qr/NOTICE: .*there is no advice to apply/, 'nothing to win');

### The statistics of verdicts once more: the ratio of sums, means of batches, Welch's interval

sub series
{
    my ($of, $per) = @_;
    my $n = @$of;
    my %series = (mean => sum0(@$of) / sum0(@$per), n => $n);
    my @residuals = map { ($of->[$_] - $series{mean} * $per->[$_]) * $n / sum0(@$per) } 0 .. $n - 1;
    my $length = int sqrt $n;
    my $batches = int($n / $length);
    my @means = map { my $end = $n - $length * ($batches - 1 - $_); sum0(@residuals[ $end - $length .. $end - 1 ]) / $length } 0 .. $batches - 1;
    my $mean = sum0(@means) / $batches;
    my $squares = sum0(map { ($_ - $mean)**2 } @means);
    my $r = $squares ? sum0(map { ($means[$_] - $mean) * ($means[ $_ - 1 ] - $mean) } 1 .. $batches - 1) / $squares : 0;
    $r = min(max($r, 0), 0.8);
    my $independent = $batches * (1 - $r) / (1 + $r);

    return { %series, variance => $squares / ($batches - 1) / $independent, df => max($independent - 1, 1), r => $r };
}

# Student's t by its integral: with u = sqrt(df) * tan(a), the density is cos(a)^(df - 1)
sub student_95
{
    my $df = shift;
    my $steps = 20_000;
    my $step = 2 * atan2(1, 1) / $steps;
    my @area = (0);

    push @area, $area[-1] + cos(($_ - 0.5) * $step)**($df - 1) for 1 .. $steps;
    my ($low) = grep { $area[$_] >= 0.95 * $area[-1] } 0 .. $steps;
    my $angle = $step * ($low - ($area[$low] - 0.95 * $area[-1]) / ($area[$low] - $area[ $low - 1 ]));
    return sqrt($df) * sin($angle) / cos($angle);
}

sub half_width
{
    my ($one, $other) = @_;
    my $sum = $one->{variance} + $other->{variance};

    return student_95($sum**2 / ($one->{variance}**2 / $one->{df} + $other->{variance}**2 / $other->{df})) * sqrt $sum;
}

### Verdicts

# What a metric is made of: what of a record makes the dividend and the divisor, in the metric's unit. Values are unequal, and
# depend on each other.
my %metrics = (
    "sessions' time per transaction" => { setting => 'commit_siblings', worse => 'rises', record => sub { { s => 5, sessions => $_[0] / 1000, commits => $_[1] - 1, rollbacks => 1 } } },
    'transactions' => { setting => 'commit_siblings', worse => 'falls', seconds => 1, # with as much of the sessions' time as tells nothing
        record => sub { { s => $_[1], sessions => $_[0] * (1 + 0.9 * sin(977 * $_[0])) / 1e4, commits => $_[0] - 2, rollbacks => 2 } } },
    'WAL per transaction' => { setting => 'max_wal_size', worse => 'rises', record => sub { { s => 5, sessions => 1, wal_bytes => $_[0], commits => $_[1] - 1, rollbacks => 1 } } },
    'share of waiting for WAL' => { setting => 'wal_buffers', worse => 'rises', seconds => 100, record => sub { { s => 5, sessions => $_[1], WAL_SYNC => $_[0] / 2, WAL_INIT => $_[0] / 2 } } },
    'pages that sessions write themselves' => { setting => 'bgwriter_lru_maxpages', worse => 'rises', seconds => 100,
        record => sub { { s => 5, sessions => 1, backend_buffers => 1000 * $_[0], bgwriter_buffers => 400 * ($_[1] - $_[0]), checkpoint_buffers => 600 * ($_[1] - $_[0]) } } },
    'pages not in shared buffers' => { setting => 'shared_buffers', worse => 'rises', seconds => 100, record => sub { { s => 5, sessions => 1, blocks_read => 1000 * $_[0], blocks_hit => 1000 * ($_[1] - $_[0]) } } },
    "time in checkpoints' syncs" => { setting => 'checkpoint_flush_after', worse => 'rises', seconds => 50, record => sub { { s => $_[1], sessions => 1, sync_s => $_[0] } } });
my %value = (commit_siblings => 6, max_wal_size => '2GB', wal_buffers => '1MB', bgwriter_lru_maxpages => 77, shared_buffers => '17MB', checkpoint_flush_after => '64kB');

# So many values of the dividend, about this large, and of the divisor
sub values_of
{
    my ($n, $about, $per, $phase) = @_;
    my @of = map { int($about * (1 + 0.05 * sin($_ + $phase) + 0.02 * cos(2.7 * $_ * $_) + 0.03 * sin($_ / 9))) } 1 .. $n;

    return (\@of, [ map { $per + $_ % 3 } 1 .. $n ]);
}

sub records_of { my ($metric, $of, $per) = @_; return [ map { $metrics{$metric}{record}->($of->[$_], $per->[$_]) } 0 .. $#$of ]; }

# Makes the change with the first evidence there, then that since it took effect
sub changed
{
    my ($setting, $first, $then) = @_;
    my $id;

    evidence($first);
    $id = change($db, "set('$setting', '$value{$setting}')");
    # as if it was so
    $db->sql("UPDATE pgscale_internal.tuning_change SET effective_at = clock_timestamp() WHERE change = $id");
    # the first of what follows lies as many times ten microseconds back as there are records
    until_true(sub { $db->sql("SELECT clock_timestamp() > effective_at + interval '10 ms' FROM pgscale_internal.tuning_change WHERE change = $id") eq 't' });
    evidence($then) if $then;
    return $id;
}

sub verified
{
    my ($id, $metric, $columns, $duration) = @_;
    my $name = $metric =~ s/'/''/gr;

    return $db->sql("SELECT $columns FROM pgscale.verify($id" . ($duration ? ", '$duration'" : '') . ") WHERE metric = '$name'");
}

for my $metric (sort keys %metrics)
{
    my ($setting, $worse, $seconds) = @{ $metrics{$metric} }{qw(setting worse seconds)};
    my $about = 10_000;
    my $per = 9 * ($seconds // 1);

    # those in seconds are made of seconds
    $about = $seconds == 50 ? 20 : 200 if $seconds && $seconds > 1;
    my ($of_first, $per_first) = values_of(40, $about, $per, 0);
    for my $way ('rises', 'falls')
    {
        my $factor = $way eq 'rises' ? 1.6 : 0.6;
        my ($of_then, $per_then) = values_of(40, $about * $factor, $per, 1);
        my $id = changed($setting, records_of($metric, $of_first, $per_first), records_of($metric, $of_then, $per_then));
        for my $n ($way eq 'rises' ? 20 : (), 40)
        {
            my ($first, $then) = map { series([ @{ $_->[0] }[ -$n .. -1 ] ], [ @{ $_->[1] }[ -$n .. -1 ] ]) } [ $of_first, $per_first ], [ $of_then, $per_then ];
            my $half = half_width($first, $then);
            my ($verdict, $decides, @got) = split /\|/, verified($id, $metric, q{verdict, decides, samples_before, samples_after, before, after, difference,
                difference_low, difference_high}, $n == 20 ? '100 s' : undef);
            my @expected = ($n, $n, $first->{mean}, $then->{mean}, map { $_ / $first->{mean} - 1 } $then->{mean}, $then->{mean} - $half, $then->{mean} + $half);
            $expected[5] = max($expected[5], -1);
            is($verdict, $way eq $worse ? 'worse' : 'better', "$setting: '$metric' that $way, of $n records");
            is($decides, 't', 'which decides');
            is(join(' ', grep { abs($got[$_] - $expected[$_]) > 6e-3 * abs $expected[$_] } 0 .. $#expected), '', 'by how much, and how sure')
              or diag "got @got\nexpected @expected";
            is($db->sql("SELECT outcome ->> 'verdict', outcome ->> 'metric', pgscale_internal.three_digits((outcome ->> 'difference')::float8) = $got[4],
                outcome ->> 'duration_s' FROM pgscale.tuning_journal WHERE change = $id"), "$verdict|$metric|t|" . 5 * $n, 'the journal has it');
        }
        change($db, "revert($id)");
    }
}

# Right at both ends of the interval, which does not depend on the difference where the divisor is the same in all records
sub shifted
{
    my ($n_first, $n_then, $times, $window) = @_;
    my ($of_first) = values_of($n_first, 1e7, 5, 0);
    my ($of_then) = values_of($n_then, 1e7, 5, 2);
    my $per = [ (5) x max($n_first, $n_then) ];
    my $n = $window // min($n_first, $n_then);
    my ($first, $then) = map { series([ @$_[ -$n .. -1 ] ], [ @$per[ 0 .. $n - 1 ] ]) } $of_first, $of_then;
    my $shift = 5 * ($first->{mean} - $then->{mean} + $times * half_width($first, $then));

    return (records_of('transactions', $of_first, $per), records_of('transactions', [ map { int($_ + $shift) } @$of_then ], $per));
}
for my $case ([ 1.01, 'better' ], [ 0.99, 'cannot tell' ], [ -0.99, 'cannot tell' ], [ -1.01, 'worse' ])
{
    my ($times, $verdict) = @$case;
    # only the last 40 of the 47 before are compared with the 40 since
    my $id = changed('commit_siblings', shifted(47, 40, $times));

    is(verified($id, 'transactions', q{verdict, decides, samples_before, samples_after, difference_low < 0, difference_high > 0}),
        "$verdict|" . ($verdict eq 'cannot tell' ? 'f' : 't') . '|40|40|' . ($times == 1.01 ? 'f|t' : $times == -1.01 ? 't|f' : 't|t'),
        "a difference of $times times half the interval");
    like(verified($id, 'transactions', 'reason'), $verdict eq 'cannot tell'
        # 1.02 * 200 s, in minutes: 240
        ? qr/^\S+ 1\/s, \S+ before, over 200 s each; the interval of the difference contains zero: it would take about 240 s of each, and 235 s were recorded with the value before/
        : qr/^\S+ 1\/s, \S+ before, over 200 s each$/, 'in words');
    change($db, "revert($id)");
}

# How much longer, of windows of 100 s each: 1.02 * 100 s, in minutes: 120
for my $case ([ 200, 60, 'a duration of about 120 s would be enough' ], [ 200, 22, 'about 10 s more would be enough, if it goes on like this' ],
    [ 22, 60, 'it would take about 120 s of each, and 110 s were recorded with the value before: waiting does not help' ])
{
    my ($n_first, $n_then, $text) = @$case;
    my $id = changed('commit_siblings', shifted($n_first, $n_then, 0.99, 20));

    like(verified($id, 'transactions', 'reason', '100 s'), qr/over 100 s each; .* contains zero: \Q$text\E$/, "$n_first records before, $n_then since: $text");
    change($db, "revert($id)");
}
my $hopeless = changed('commit_siblings', shifted(40, 40, 0.2));
like(verified($hopeless, 'transactions', 'reason'), qr/: a difference this small would take more than the 3600 s of evidence that are kept$/, 'a small difference');
change($db, "revert($hopeless)");

# The first metric that can tell decides: sessions' time is the second of these
{
    my ($of, $per) = values_of(40, 200, 900, 0);
    my @first = map { { %$_, commits => 7 } } @{ records_of('pages that sessions write themselves', $of, $per) };
    my $id = changed('bgwriter_lru_maxpages', \@first, [ map { { %$_, sessions => 2 } } @first ]);

    is($db->sql("SELECT string_agg(concat_ws(' ', metric, verdict, decides), ', ') FROM pgscale.verify($id)"),
        "pages that sessions write themselves cannot tell f, sessions' time per transaction worse t", 'the first that can tell decides');
    is(journal(q{outcome ->> 'metric', round((outcome ->> 'after')::numeric, 3)}, $id), "sessions' time per transaction|285.714", 'and is what the journal has')
      or diag journal('outcome', $id);
    change($db, "revert($id)");
    # of two that can tell, too, though the second is of another mind
    $id = changed('commit_siblings', [ map { { s => 5, sessions => 3, commits => 900 + $_ % 7 } } 1 .. 40 ], [ map { { s => 5, sessions => 2, commits => 800 + $_ % 7 } } 1 .. 40 ]);
    is($db->sql("SELECT string_agg(concat_ws(' ', metric, verdict, decides), ', ') FROM pgscale.verify($id)"),
        "sessions' time per transaction better t, transactions worse f", 'the first of two that can tell');
    is(journal(q{outcome ->> 'verdict'}, $id), 'better', 'and is what the journal has');
    change($db, "revert($id)");
    # a figure that is not known of all records: of 11 of 20, and of 12
    for my $case ([ 20, 11, '5 s more in which it is known would be enough' ], [ 11, 20, 'waiting does not help' ])
    {
        my ($known_first, $known_then, $text) = @$case;
        my $with = sub { my $known = shift; return [ map { { %{ $first[$_] }, $_ < 20 - $known ? (backend_buffers => -1) : () } } 0 .. 19 ] };

        $id = changed('bgwriter_lru_maxpages', $with->($known_first), $with->($known_then));
        is(verified($id, 'pages that sessions write themselves', 'verdict, reason, num_nulls(before, after, difference, difference_low)'),
            "cannot tell|cannot tell: pages that sessions write themselves is known of $known_first records before and $known_then after, of at least 12; $text|2",
            "known of $known_first and $known_then records");
        change($db, "revert($id)");
    }
}

# By which metrics a setting is judged: those of its own rule, those of the first that it matters to, or of anything
my ($time, $syncs) = ("sessions' time per transaction", "time in checkpoints' syncs");
for my $case ([ 'bgwriter_delay', '250ms', 'pages that sessions write themselves' ], [ 'work_mem', '7MB', "$time, transactions" ],
    [ 'bgwriter_flush_after', '64kB', "$time, $syncs" ], [ 'checkpoint_timeout', '9min', "$time, WAL per transaction" ],
    [ 'checkpoint_completion_target', '0.8', "$time, $syncs" ], [ 'wal_compression', 'on', "$time, WAL per transaction" ],
    [ 'pgscale.sweeper', 'auto', "$time, transactions" ], [ 'min_wal_size', '99MB', "$time, transactions" ])
{
    my ($setting, $value, $metrics) = @$case;
    my $id = change($db, "set('$setting', '$value')");

    like($db->sql("SELECT string_agg(metric, ', ') FROM pgscale.verify($id)"), qr/^\Q$metrics\E/, "$setting is judged by $metrics");
    change($db, "revert($id)");
}

### Windows

my ($some) = shifted(40, 40, 0);
sub few { my $n = shift; return [ @$some[ 0 .. $n - 1 ] ]; }
my $id;
for my $case ([ 0, 20, 'cannot tell: no evidence was recorded before the change; waiting does not help' ],
    [ 11, 20, 'cannot tell: only 55 s were recorded with the value before, of 60 s; waiting does not help' ],
    [ 12, 11, 'cannot tell yet: wait 10 s more' ])
{
    my ($first, $then, $reason) = @$case;

    change($db, "revert($id)") if $id;
    $id = changed('commit_siblings', few($first), few($then));
    is(verified($id, 'transactions', 'reason'), $reason, "$first records before, $then since");
    is(journal(q{outcome ->> 'verdict', jsonb_typeof(outcome -> 'before'), jsonb_typeof(outcome -> 'duration_s')}, $id),
        'cannot tell|null|number', 'the journal has null') if !$first;
}
evidence(few(12));
like(verified($id, 'transactions', 'reason'), qr/ over 60 s each/, 'just enough of both');
like(verified($id, 'transactions', 'reason', '65 s'), qr/^cannot tell: only 60 s were recorded with the value before, of 65 s;/, 'less than is asked for');
is(($db->try("SELECT * FROM pgscale.verify($id, '$_->[0]')"))[0], $_->[1], "a duration of $_->[0]")
  for [ '59.9 s', '22023' ], [ '60 s', '00000' ], [ '1 hour', '00000' ], [ '3600.1 s', '22023' ];
# one other change took place meanwhile, and one a while before
my $other = change($db, q{set('work_mem', '7MB')});
my ($earlier) = change($db, q{set('commit_delay', '7')});
$db->sql("UPDATE pgscale_internal.tuning_change SET applied_at = now() - interval '1 day', effective_at = now() - interval '1 day' WHERE change = $earlier");
evidence(few(12));
like(verified($id, 'transactions', 'reason'), qr/; 1 other changes of settings took place meanwhile$/, 'another change is named');
# the next change of the setting ends it, ten seconds ago
my $next = change($db, q{set('commit_siblings', '8')});
$db->sql("UPDATE pgscale_internal.tuning_change SET effective_at = now() - interval '20 s' WHERE change = $id");
$db->sql("UPDATE pgscale_internal.tuning_change SET applied_at = now() - interval '10 s' WHERE change = $next");
my $ended = "(SELECT applied_at FROM pgscale_internal.tuning_change WHERE change = $next)";
my $began = "(SELECT effective_at FROM pgscale_internal.tuning_change WHERE change = $id)";
# records end 10 us apart: of 30, 18 after that change, or 19; and from when it took effect, but no earlier
for my $case ([ 30, "$ended + interval '180 us'", 12 ], [ 30, "$ended + interval '190 us'" ],
    [ 12, "$began + interval '120 us'", 12 ], [ 12, "$began + interval '110 us'" ])
{
    my ($n, $at, $in_effect) = @$case;

    evidence(few($n), $at);
    $in_effect ? is(verified($id, 'transactions', 'samples_before, samples_after'), "12|$in_effect", 'the records while it was in effect')
      : like(verified($id, 'transactions', 'reason'), qr/^cannot tell: it was in effect for 55 s, of 60 s; waiting does not help$/, 'and no others');
}
change($db, "revert($_)") for $next, $earlier, $other, $id;
is(file(), $before, 'the file is as it was');

# A setting that no rule is about: a reload that changed another one leaves its evidence; one that changed it does not
sub reload
{
    my $loaded = $db->sql('SELECT pg_conf_load_time()');

    $node->reload;
    until_true(sub { $db->sql('SELECT pg_conf_load_time()') ne $loaded });
    return;
}
my $samples_before = sub {
    my $changed = change($db, q{set('work_mem', '6MB')});

    $db->sql("UPDATE pgscale_internal.tuning_change SET effective_at = clock_timestamp() WHERE change = $changed");
    my $reason = verified($changed, 'transactions', 'reason');
    my $n = $db->sql("SELECT coalesce(cardinality(metric_ends), -1) FROM pgscale_internal.tuning_change WHERE change = $changed");
    change($db, "revert($changed)");
    return "$n $reason";
};
evidence(few(20));
$db->sql('ALTER SYSTEM SET deadlock_timeout = 1234');
reload();
like($samples_before->(), qr/^20 cannot tell yet: wait/, 'evidence of before a reload that changed another setting');
$db->sql(q{ALTER SYSTEM SET work_mem = '5MB'});
reload();
until_ok(sub { $samples_before->() =~ /^0 cannot tell: the value before was in effect for less than a record of evidence; waiting does not help$/ },
    'none of it is of a value that the setting got since');
# A line that was changed by hand since ends it, too
$id = changed('commit_siblings', few(20), few(20));
like(verified($id, 'transactions', 'reason'), qr/ over 100 s each/, 'evidence since a change');
$db->sql('ALTER SYSTEM SET commit_siblings = 9');
reload();
until_ok(sub {
    evidence(few(20));
    return verified($id, 'transactions', 'reason') =~ /^cannot tell: it was in effect for \d s, of 60 s; waiting does not help$/;
}, 'none of it is of a value that was set by hand');
$db->sql("ALTER SYSTEM RESET $_") for qw(deadlock_timeout work_mem commit_siblings);

# More settings than have a place: any reload may have changed one that has none
evidence(few(20));
$node->append_conf('postgresql.conf', join "\n", map { "many.setting_$_ = 1" } 1 .. 1100);
reload();
until_ok(sub {
    my $changed = change($db, q{set('many.setting_999', '2')});
    my $n = $db->sql("SELECT coalesce(cardinality(metric_ends), -1) FROM pgscale_internal.tuning_change WHERE change = $changed");
    change($db, "revert($changed)");
    return $n eq '0';
}, 'evidence of before a reload is not of the value that such a setting has');

# Not in effect yet
evidence(few(20));
for my $case ([ 'commit_siblings', 6, 'transactions', 'reload' ], [ 'wal_buffers', '1MB', 'share of waiting for WAL', 'restart' ])
{
    my ($setting, $value, $metric, $what) = @$case;

    $id = change($db, "set('$setting', '$value')");
    is(verified($id, $metric, 'reason'), "cannot tell yet: it takes effect at the next $what", "before a $what");
    change($db, "revert($id)");
}

$db->quit;
$node->stop('immediate');
done_testing();
