# Advice that is followed, and what has become of it: verdicts on evidence that is made up, and on what there is.
use strict;
use warnings;
use PgscaleTest;
use PgscaleTuning;
use PostgreSQL::Test::Utils;
use Test::More;

# Under load all the while. At first nothing is recorded.
my $loaded = pgscale_node('loaded', conf => <<'EOC');
wal_buffers = 32kB
checkpoint_timeout = 1h
fsync = on
pgscale.tuning = off
pgscale.tuning_debug_period = 1s
EOC
my $on_loaded = session($loaded);
$on_loaded->sql('CREATE TABLE written (id int, worker int, b text) WITH (fillfactor = 30)');
$on_loaded->sql(q{INSERT INTO written SELECT i, w, repeat('x', 500) FROM generate_series(1, 60) i, generate_series(1, 4) w});
my @workers = map { session($loaded) } 1 .. 4;
for my $i (1 .. 4)
{
    # statements of their own, as the server counts what a session has done when it waits for the next one
    $workers[ $i - 1 ]{in} .= "\\o /dev/null\nUPDATE written SET b = repeat(md5(random()::text), 16) WHERE worker = $i\n\\watch 0.01\n";
    $workers[ $i - 1 ]{psql}->pump_nb while length $workers[ $i - 1 ]{in};
}
my ($loaded_change) = $on_loaded->sql(q{CALL pgscale.set('commit_siblings', '6', reload => true)}) =~ /(\d+)/;
like($on_loaded->sql("SELECT verdict || ': ' || reason FROM pgscale.verify($loaded_change) LIMIT 1"),
    qr/^cannot tell: cannot tell: no evidence was recorded before the change/, 'of what was not recorded nothing is told');
is($on_loaded->sql("SELECT outcome ->> 'verdict', jsonb_typeof(outcome -> 'before'), jsonb_typeof(outcome -> 'difference_high'),
    jsonb_typeof(outcome -> 'duration_s') FROM pgscale.tuning_journal WHERE change = $loaded_change"), 'cannot tell|null|null|number',
    'the journal has it, with null for what is unknown');
$on_loaded->set('pgscale.tuning', 'on');

# Evidence of six seconds or more advises more WAL buffers. To compare, what was before the change is made up.
my $advised;
in_time_ok(sub {
    $advised = $on_loaded->sql(q{SELECT setting FROM pgscale.advice WHERE setting IS NOT NULL AND confidence <> 'low' LIMIT 1});
}, 'there is advice') or diag $on_loaded->sql('SELECT * FROM pgscale.advice_rules');
my ($got, $told) = $on_loaded->try('CALL pgscale.apply_all()');
is($got, '00000', 'a dry run');
like($told, qr/NOTICE: .*would set "$advised" to/, 'tells what would be set');
is($on_loaded->sql('SELECT count(*) FROM pgscale.tuning_journal'), 1, 'and sets nothing');
my $applied = change($on_loaded, "apply('$advised')");
is($on_loaded->sql("SELECT setting, old_value IS NULL, new_value <> '', reason IS NOT NULL,
    (SELECT bool_and(jsonb_typeof(value) IN ('number', 'null')) FROM jsonb_each(evidence)), outcome IS NULL
    FROM pgscale.tuning_journal WHERE change = $applied"), "$advised|t|t|t|t|t", 'advice is followed, and why is written down');
$on_loaded->sql('RESET client_min_messages');
($got, $told) = $on_loaded->try('CALL pgscale.apply_all(dry_run => false)');
is($got, '00000', 'what is set already is no error');
like($told, qr/NOTICE: .*"$advised" already is set/, 'but told');
is(($on_loaded->try(q{CALL pgscale.apply('port')}))[0], 'P0002', 'without advice there is nothing to apply');
like($on_loaded->sql("SELECT array_length(metrics, 1) || ' ' || (array_length(metric_values, 3) = array_length(metric_ends, 1))
    FROM pgscale.tuning_change WHERE change = $applied"), qr/^[1-9] true/, 'what it is judged by is kept with the change');

my $own = change($on_loaded, q{set('bgwriter_lru_maxpages', '101')});
is($on_loaded->sql("SELECT metrics[1] FROM pgscale.tuning_change WHERE change = $own"), 'pages that sessions write themselves',
    "a setting is judged by its own rule's metrics, not by those of another that it matters to");

for my $case (
    [ 'worse', 'transactions', '1e9 + i % 7' ],
    [ 'better', "sessions'' time per transaction", '1e6 + i % 7' ],
    # one record of which all depends: whatever the windows are, the interval is wider than the difference
    [ 'cannot tell', "sessions'' time per transaction", 'CASE WHEN i = 39 THEN 1e12 ELSE 1e-9 END' ])
{
    my ($verdict, $metric, $value) = @$case;

    $on_loaded->sql(<<"EOQ");
UPDATE pgscale.tuning_change
   SET metrics = ARRAY['$metric'],
       metric_ends = ARRAY(SELECT applied_at - make_interval(secs => i) FROM generate_series(39, 0, -1) i),
       metric_values = ARRAY[ARRAY[ARRAY(SELECT $value FROM generate_series(0, 39) i), array_fill(1.0, '{40}')]]
 WHERE change = $loaded_change
EOQ
    my $last = '';
    my $expected =
      $verdict eq 'cannot tell' ? qr/^cannot tell false .*zero in it: .*(more would tell|waiting does not help|that are kept)/ : qr/^$verdict true/;
    # once there is enough to tell: sessions tell what they have done once a second, on a slow machine later
    in_time_ok(sub { $last = $on_loaded->sql("SELECT verdict || ' ' || decides || ' ' || reason FROM pgscale.verify($loaded_change)
        WHERE metric = '$metric'"); $last =~ $expected }, "to make it $verdict") or diag $last;
    is($on_loaded->sql("SELECT outcome ->> 'verdict' FROM pgscale.tuning_journal WHERE change = $loaded_change"), $verdict,
        'the journal has it');
}
my $windows;
in_time_ok(sub { $windows = $on_loaded->sql("SELECT difference_low < difference, difference < difference_high, samples_before >= 12, samples_after >= 12,
    samples_before = samples_after FROM pgscale.verify($loaded_change) WHERE metric LIKE 'sessions%'"); $windows eq 't|t|t|t|t' },
    'with an interval, of equal windows') or diag $windows;
is(($on_loaded->try("SELECT * FROM pgscale.verify($loaded_change, '10 minutes')"))[0], '00000', 'a window that is not over');
# the machine may be so slow that it is over by now
$on_loaded->sql("UPDATE pgscale.tuning_change SET applied_at = now(), effective_at = now(),
    metric_ends = ARRAY(SELECT now() - make_interval(secs => i) FROM generate_series(199, 0, -1) i),
    metric_values = ARRAY[ARRAY[array_fill(1.0, '{200}'), array_fill(1.0, '{200}')]] WHERE change = $loaded_change");
like($on_loaded->sql("SELECT reason FROM pgscale.verify($loaded_change, '3 minutes') LIMIT 1"), qr/cannot tell yet: wait \d+ s more/,
    'is waited for');
$loaded->stop;
$_->quit for @workers;
done_testing();

