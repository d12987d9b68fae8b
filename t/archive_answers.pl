# A node of the archive that answers what it wants, beside a good one: garbage in each column, alone and by chance in several. No answer
# ends a round, changes rows of others, or breaks what reads or rolls up the archive; which node it is can be seen.
# Runs on 19, too.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $seed = $ENV{PGSCALE_FUZZ_SEED} // int(time / 86400);
my $conf = "pgscale.debug_period = 1s\npgscale.fleet_timeout = 10s\n";
my ($node, $other) = map { pgscale_node($_, conf => $conf) } qw(main other);
my ($db, $there) = map { session($_) } $node, $other;
my $wrong = 'its answer is not one of pgscale';

srand $seed;
note "PGSCALE_FUZZ_SEED=$seed";
$db->sql('CREATE DATABASE fake');
my $fake = session($node, dbname => 'fake');
my @columns = split / /, $fake->sql(q{CREATE EXTENSION pgscale; SELECT string_agg(n, ' ') FROM pg_proc, unnest(proargnames[4:]) n WHERE proname = 'node_minutes'});
$fake->sql('CREATE TABLE answer (' . join(', ', map { "$_ text" } @columns) . <<'EOQ');
); ALTER EXTENSION pgscale DROP FUNCTION pgscale_internal.node_minutes; DROP FUNCTION pgscale_internal.node_minutes;
CREATE FUNCTION pgscale_internal.node_minutes(float8, jsonb, integer) RETURNS SETOF public.answer LANGUAGE sql AS 'SELECT * FROM public.answer'
EOQ
my ($own_id, $own_name) = split /\|/, $db->sql('SELECT k.node_id, i.node FROM pgscale_internal.node_key() k, pgscale.node_identity() i');
my ($other_id, $other_name) = split /\|/, $there->sql('SELECT k.node_id, i.node FROM pgscale_internal.node_key() k, pgscale.node_identity() i');
$db->set('pgscale.archive_database' => 'postgres');
$db->sql(sprintf q{SELECT pgscale.fleet_add('%s', 'host=%s port=%d dbname=%s')}, @$_)
  for [ 'bad', $node->host, $node->port, 'fake' ], [ 'good', $other->host, $other->port, 'postgres' ];
$db->poll_ok("SELECT count(*) > 2 AND bool_or(pulled) AND bool_or(NOT pulled) FROM pgscale.archive_minutes", 'an archive of two nodes');
$db->set('pgscale.archive_database' => '');
$db->poll_ok(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ 'archive'}, 'from now on this session makes the rounds', 0);

### An answer: an expression for each column, of which g is the number of the row; and the garbage that takes its place

my %right = (
    node => q{'bad@host:1'}, node_id => '-42', cluster => '666', timeline => '666', standby => 'true', clock => 'clock_timestamp()',
    at => q{date_bin('1 s', clock_timestamp(), '2000-01-01 00:00+00') - g * interval '1 s'}, period_s => '1', observed_ms => '1000',
    active_session_ms => '10', idle_in_transaction_session_ms => '0', (map { $_ => q{'{a,b}'} } grep { /(?:types|names|events|blockers)$/ } @columns),
    datids => q{'{1,2}'}, queryids => q{'{1,2}'}, wait_ms => q{'{10,20}'}, counters => q{'{"commits": [1, "m"]}'}, settings => q{'{"work_mem": "1"}'}, queries => q{'{"1": "x"}'});
my $long = q{repeat('x', 1000000)};
my @time = map { "'$_'" } 'infinity', '-infinity', '294276-12-31 23:59:59+00', '4713-01-01 00:00:00+00 BC', 'x';
my @figure = map { "'$_'" } qw(NaN Infinity -1 1e308 1e999 x);
my @jsonb = (q{repeat('[', 5000) || repeat(']', 5000)}, q!repeat('{"a":', 100000)!, map { "'$_'" } '[]', '1', '"x"', 'null', 'x');
my @array = ('NULL', map { "'$_'" } qw({} {1} {1,2,3} {{1,2},{3,4}} x));
my $keys = q{(SELECT jsonb_object_agg('k' || i, i) FROM generate_series(1, %d) i)};
my %garbled = (
    node => [ 'NULL', q{''}, $long ], node_id => [ 'NULL', 0, q{'x'}, '99999999999999999999' ], cluster => [ 'NULL', q{'x'} ], timeline => [ 'NULL', '3e9' ],
    standby => [ 'NULL', q{'maybe'} ], clock => [ 'NULL', @time, q{clock_timestamp() - interval '2 h'} ],
    at => [ @time, map { "clock_timestamp() + interval '$_'" } '1 day', '-3 h', '-26 y' ], period_s => [ 'NULL', 0, '1e-300', '1e300', @figure ],
    (map { $_ => \@figure } qw(observed_ms active_session_ms idle_in_transaction_session_ms)),
    (map { $_ => \@array } grep { /(?:types|datids|names|queryids|events|blockers)$/ } @columns),
    wait_ms => [ @array, q{(SELECT array_agg(i) FROM generate_series(1, 100000) i)}, map { "'{$_,1}'" } qw(NaN Infinity -1 3e38 1e300 NULL) ],
    counters => [ q{'x'}, sprintf $keys, 50000 ], settings => [ @jsonb, sprintf($keys, 200000), "jsonb_build_object('a', repeat('x', 2000000))" ],
    queries => [ @jsonb, q{'{"x": "y"}'}, q{'{"99999999999999999999": "y"}'} ]);
push @{ $garbled{events} }, "array_fill($long, ARRAY[2])";
# what is only odd, or not wrong, and what is said of it
my %odd = (
    node => [ (map { [ "'$_'" => '' ] } $other_name, $own_name), [ q{E'a\nb<b>'} => '' ] ],
    node_id => [ [ $own_id => '' ], [ $other_id => 'it leads to the same server as good' ], [ '-g' => '' ] ],
    at => [ [ 'NULL' => '' ], [ q{clock_timestamp() - g * interval '0.1 s'} => '' ] ], period_s => [ [ '3600' => '' ] ],
    observed_ms => [ [ 'NULL' => '' ], [ 0 => 'its sampler has seen nothing of its latest minute' ] ], (map { $_ => [ [ q{'{NULL,NULL}'} => '' ] ] } qw(events queryids)),
    counters => [ map { [ "'$_'" => '' ] } '{"commits": ["NaN", 1], "rollbacks": [1e400]}', '[]', 'null' ], queries => [ [ "jsonb_build_object('1', $long)" => '' ] ],
    settings => [ (map { [ $_ => '' ] } 'NULL', sprintf $keys, 5000), map { [ "'{$_}'" => '' ] } '"server_version_num": "x"', '"server_version_num": 1e99, "a": [1]' ]);

my $rows_of = q{SELECT count(*), md5(string_agg(m::text, '' ORDER BY at)) FROM pgscale_internal.archive_minute m WHERE };
my @theirs = ($rows_of . "node_id = $own_id", $rows_of . "node_id = $other_id AND at <= '" . $db->sql('SELECT max(at) FROM pgscale_internal.archive_minute WHERE pulled') . "'");
my @before = map { $db->sql($_) } @theirs;
my $harmed = "SELECT count(*) FROM pgscale_internal.archive_minute WHERE 666 IN (timeline, cluster) AND node_id IN ($own_id, $other_id)";
my $good = q{SELECT concat_ws(' ', state, error) FROM pgscale_internal.archive_pull WHERE name = 'good'};
my $bad = q{SELECT concat(state, ': ', error) FROM pgscale.archive_nodes WHERE name = 'bad'};
my $reads = q{BEGIN; SELECT count(*), max(m::text) FROM pgscale.archive_minutes m; SELECT max(w::text) FROM pgscale.archive_waits w; SELECT max(c::text) FROM pgscale.archive_changes c;
    SELECT max(w::text) FROM pgscale.archive_nodes n, pgscale.top_waits('-infinity', node => n.node) w WHERE n.at IS NOT NULL;
    SELECT max(a::text) FROM pgscale.archive_nodes n, pgscale.activity(now() - interval '1 h', node => n.node) a WHERE n.at IS NOT NULL; SELECT max(n::text) FROM pgscale.now n;
    SELECT pgscale_internal.archive_roll_up(relname) FROM pg_class WHERE relname ~ '^archive_minute_[0-9]+$';
    SELECT max(m::text) FROM pgscale.archive_minutes m; SELECT max(w::text) FROM pgscale.archive_waits w; ROLLBACK; SELECT 'read'};

sub answers
{
    my ($rows, %garbage) = @_;

    $fake->sql('TRUNCATE answer; INSERT INTO answer SELECT ' . join(', ', map { $garbage{$_} // $right{$_} } @columns) . " FROM generate_series(1, $rows) g");
    return;
}

# What an answer may not do, in a round of it
sub harmless
{
    my $sent = join ' ', @_;
    my ($state, $text);

    answers(@_);
    $db->sql("DELETE FROM pgscale_internal.archive_minute WHERE 666 IN (timeline, cluster) OR node_id NOT IN ($own_id, $other_id)");
    ($state, $text) = $db->try('SELECT pgscale_internal.archive_pull(1)');
    $state eq '00000' or return "$sent: the round ends: $text";
    $db->sql($theirs[$_]) eq $before[$_] or return "$sent: rows of others" for 0 .. 1;
    $db->sql($harmed) eq '0' or return "$sent: is taken for another";
    ($text = $db->sql($good)) eq 'ok' or return "$sent: the good one: $text";
    $text = $db->sql(q{SELECT (SELECT count(*) <= 61 AND coalesce(max(pg_column_size(m)), 0) < 250000 FROM pgscale_internal.archive_minute m WHERE 666 IN (timeline, cluster))
        AND (SELECT count(*) <= 2000 FROM pgscale_internal.archive_setting WHERE node_id = -42) AND (SELECT max(length(error)) < 1000 FROM pgscale_internal.archive_pull)
        AND (SELECT max(length(query)) <= 2000 FROM pgscale_internal.archive_query)});
    $text ne 'f' or return "$sent: too much";
    ($state, $text) = $db->try($reads);
    return $text =~ /read$/ ? '' : "$sent: not read: $text";
}

### Each alone

is(harmless(3), '', 'a right answer');
is($db->sql('SELECT count(*) >= 3 FROM pgscale_internal.archive_minute WHERE node_id = -42'), 't', 'is taken');
for my $column (@columns)
{
    for ((map { [ $_ => undef ] } @{ $garbled{$column} }), @{ $odd{$column} // [] })
    {
        my ($garbage, $expected) = @$_;
        my $harm = harmless(3, $column, $garbage);
        my $said = $db->sql($bad);

        ok($harm eq '' && (defined $expected ? $said eq "ok: $expected" : $said =~ /^garbled: ./), "$column: " . substr $garbage, 0, 60) || diag substr "$harm $said", 0, 1000;
    }
}
is(harmless($_), '', "$_ rows") for 0, 62, 20000;
like($db->sql($bad), qr/^garbled: $wrong/, 'which are too many');
is(harmless(20000, at => 'NULL'), '', 'rows without a time');
is($db->sql(q{SELECT pgscale_internal.archive_node_growth('{"commits": [0, 1]}', '{"commits": [1e18, 1]}', 1) ->> 'commits'}), '', 'an increase that no server has');

### Several, by chance

my $rounds = $ENV{PGSCALE_TEST_FULL} ? 1000 : 20;
my @harms;
for (1 .. $rounds)
{
    my %garbage;

    for my $column (map { $columns[ rand @columns ] } 0 .. rand 3)
    {
        my @all = (@{ $garbled{$column} }, map { $_->[0] } @{ $odd{$column} // [] });

        # in all rows, or in one
        $garbage{$column} = rand() < 0.5 ? $all[ rand @all ] : "CASE WHEN g = 2 THEN ($all[ rand @all ])::text ELSE ($right{$column})::text END";
    }
    push @harms, grep { $_ } harmless((1, 3, 60, 61)[ rand 4 ], %garbage);
    last if @harms;
}
is("@harms", '', "$rounds answers by chance") or diag "PGSCALE_FUZZ_SEED=$seed";
$db->poll_ok("DO 'BEGIN PERFORM pgscale_internal.archive_pull(1); END'; SELECT max(at) > '" . $db->sql('SELECT now()') . "' FROM pgscale_internal.archive_minute WHERE node_id = $other_id",
    'the good one is read all the time');

### By the archive's worker

$db->set('pgscale.archive_database' => 'postgres');
my $health = q{SELECT state, reason ~ 'bad: ' FROM pgscale.health WHERE feature = 'archive'};
for ([ at => $time[2] ], [ wait_ms => q{'{1}'} ], [ settings => $jsonb[0] ])
{
    answers(3, @$_);
    $db->poll_ok($health, "$_->[0]: health names it", 'broken|t');
    answers(3);
    $db->poll_ok($health, 'and is well again', 'working|f');
}
$fake->sql('ALTER TABLE answer DROP COLUMN queries');
$db->poll_ok(q{SELECT state, error ~ '"queries" does not exist' FROM pgscale.archive_nodes WHERE name = 'bad'}, 'a column too few', 'failed|t');
unlike(slurp_file($_->logfile), qr/PANIC|TRAP|terminated by signal| XX000 /, 'nothing crashed') for $node, $other;
done_testing();
