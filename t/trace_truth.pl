# A trace, compared with what is known of the target: a lock wait and a sleep of known length, reads that the server counts.
# How it ends, who may have one, how many there may be, and that nothing else waits for it.
#
# Where both processes have no CPU of their own, the tracer misses what it cannot see, and says so; so lengths are compared
# within its longest gap, and what is counted is repeated until it was watched.
# Runs on each major.
use strict;
use warnings;
use PgscaleSampler;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $major = server_major();
my $cpus = qx(nproc);
my ($cancelled, $full) = ('57014', '53400');
my $conf = "shared_buffers = 1MB\ncompute_query_id = on\n" . ($major >= 18 ? "io_method = sync\n" : '');
my $node = pgscale_node('main', conf => $conf);
my $db = session($node);

if ($db->sql(q{SELECT state FROM pgscale.health WHERE feature = 'trace'}) eq 'off')
{
    is(($db->try(q{SELECT pgscale.trace_waits(1)}))[0], '0A000', 'on a single CPU there is no trace');
    done_testing();
    exit;
}
like($db->sql(q{SELECT concat(enabled, ' ', state, ' ', reason) FROM pgscale.health WHERE feature = 'trace'}),
    qr/^t idle traces when asked, by (the time-stamp counter|clock_gettime: the .*)$/, 'health says by which clock');

my ($tracer, $target, $holder) = map { session($node) } 1 .. 3;
my $pid = $target->pid;

# How many traces are under way
sub traces { return $db->sql('SELECT count(*) FROM pg_locks WHERE classid = 1953653091 AND objsubid = 3') }

# The quality of a trace that a table has
sub quality
{
    my $table = shift;
    return split /\|/, $tracer->sql("SELECT ended_by, coverage_fraction, longest_gap_us, sum(duration_us) / 1000 FROM $table
        GROUP BY 1, 2, 3");
}

sub now { return $db->sql('SELECT extract(epoch FROM clock_timestamp()) * 1e6') }

# Waits until a trace under way has looked at its target as it is now: it has a place before it looks, and may be off its
# CPU. All it does then is to look; so what counts is its CPU time, which the kernel updates at each of its ticks only.
sub cpu_ticks { my @stat = split ' ', slurp_file("/proc/$_[0]/stat") =~ s/.*\) //sr; return $stat[11] + $stat[12] }

sub has_looked
{
    my $of = $tracer->pid;
    my $before = cpu_ticks($of);

    until_true(sub { cpu_ticks($of) >= $before + 3 }) or die "process $of does not trace";
    return;
}

sub begin
{
    my ($session, $text) = @_;

    $session->start($text);
    until_true(sub { traces() > 0 }) or die 'there is no trace';
    return;
}

# for a trace that lasts until it is ended, and must not miss what follows
sub begin_looking
{
    begin($tracer, @_);
    has_looked();
    return;
}

sub waits_ok
{
    my ($session, $what, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return $db->poll_ok("SELECT $what FROM pg_stat_activity WHERE pid = " . $session->pid, $name,
        $what eq 'wait_event' ? 'PgSleep' : 'Lock');
}

# The tracer is off its CPU while this runs.
sub while_stopped
{
    my $code = shift;

    has_looked();
    kill 'STOP', $tracer->pid;
    until_true(sub { process_state($tracer->pid) eq 'T' }) or die 'the tracer does not stop';
    $code->();
    kill 'CONT', $tracer->pid;
    return;
}

# A lock wait: it begins between two looks at the clock, and ends between two others. The trace ends with the target.
$db->sql('CREATE TABLE t (i int)');
$holder->sql('BEGIN; LOCK TABLE t');
begin_looking("CREATE TEMP TABLE waits AS SELECT * FROM pgscale.trace_waits($pid, '1 h')");
my @clock = now();
$target->start('SELECT count(*) FROM t');
waits_ok($target, 'wait_event_type', 'the target waits');
my $queryid = $db->queryid($target);
push @clock, now();
$db->poll_ok("SELECT clock_timestamp() > to_timestamp($clock[1] / 1e6) + interval '300 ms'", 'for some time');
push @clock, now();
$holder->sql('COMMIT');
$target->finish;
push @clock, now();
$target->quit;
$tracer->finish;
my ($ended, $coverage, $gap) = quality('waits');
is($ended, 'process ended', 'the trace ends with its target');
ok($coverage > 0 && $coverage <= 1, 'with a coverage') or diag $coverage;
is($tracer->sql(q{SELECT count(*), min(event), min(queryid) FROM waits WHERE event_type = 'Lock'}), "1|relation|$queryid",
    'one wait for a lock');
my $waited = $tracer->sql(q{SELECT duration_us FROM waits WHERE event_type = 'Lock'});
cmp_ok($waited, '>=', $clock[2] - $clock[1] - 2 * $gap, 'that lasted no shorter');
cmp_ok($waited, '<=', $clock[3] - $clock[0] + 2 * $gap, 'and no longer');
is($tracer->sql(qq{SELECT abs(extract(epoch FROM started_at) * 1e6 - $clock[0]) < $clock[1] - $clock[0] + 2 * $gap + 1000 FROM waits
    WHERE event_type = 'Lock'}), 't', 'at that time');
is($tracer->sql(q{SELECT count(*) FILTER (WHERE abs(extract(epoch FROM started_at - before - before_us * interval '1 us')) > 3e-6),
        count(*) FILTER (WHERE seq <> n OR same), count(*) FILTER (WHERE event = 'ClientRead' AND queryid IS NOT NULL)
    FROM (SELECT *, lag(started_at) OVER w AS before, lag(duration_us) OVER w AS before_us,
                 row_number() OVER (ORDER BY started_at, seq) AS n, event_type = lag(event_type) OVER w
                     AND event = lag(event) OVER w AS same
                     FROM waits WINDOW w AS (ORDER BY seq)) w}), '0|0|0',
    'the rows are all of the time, in order, each one other than the one before, and without a query while the session idles');
is($tracer->sql(q{SELECT bool_or(spans_gap) FROM waits}), $gap > 0 ? 't' : 'f', 'what was not watched is marked');

# A gap that is known: the tracer is off its CPU while the wait ends. What was before it and what is after it are marked.
$target = session($node);
$pid = $target->pid;
$holder->sql('BEGIN; LOCK TABLE t');
begin($tracer, "CREATE TEMP TABLE around AS SELECT * FROM pgscale.trace_waits($pid, '1 h')");
$target->start('SELECT count(*) FROM t');
waits_ok($target, 'wait_event_type', 'the target waits');
while_stopped(sub {
    @clock = now();
    $holder->sql('COMMIT');
    $target->finish;
    $db->poll_ok("SELECT clock_timestamp() > to_timestamp($clock[0] / 1e6) + interval '100 ms'", 'for some time');
    push @clock, now();
});
has_looked();
$target->quit;
$tracer->finish;
is($tracer->sql(q{SELECT event_type, spans_gap, next, next_spans_gap FROM (SELECT event_type, spans_gap, lead(event) OVER w AS next,
    lead(spans_gap) OVER w AS next_spans_gap FROM around WINDOW w AS (ORDER BY seq)) w
        WHERE event_type = 'Lock'}), 'Lock|t|ClientRead|t',
    'both are marked');
($ended, $coverage, $gap, my $traced) = quality('around');
cmp_ok($gap, '>=', $clock[1] - $clock[0], 'the longest gap is at least that long');
cmp_ok((1 - $coverage) * $traced * 1000, '>=', $gap - 0.01, 'the coverage is without it');

# A statement from its start to its end
$target = session($node);
$pid = $target->pid;
my $whole;
in_time_ok(sub {
    begin($tracer, "CREATE TEMP TABLE statement AS SELECT * FROM pgscale.trace_waits($pid, '1 min', statement_within => '1 s')");
    $clock[0] = now();
    $target->sql('SELECT pg_sleep(0.2)');
    $clock[1] = now();
    $tracer->finish;
    ($ended, $coverage, $gap, $traced) = quality('statement');
    $whole = $tracer->sql('SELECT json_object_agg(event, us) FROM (SELECT event, sum(duration_us) AS us FROM statement
        GROUP BY 1) s');
    $waited = $tracer->sql(q{SELECT sum(duration_us) FROM statement WHERE event = 'PgSleep' AND queryid IS NOT NULL}) || 0;
    my $cpu = $tracer->sql(q{SELECT count(DISTINCT queryid) FROM statement WHERE event_type = 'CPU'});
    $tracer->sql('DROP TABLE statement');
    return ($ended // '') eq 'statement ended' && $waited > 0 && $cpu == 1;
}, 'a statement is traced to its end') or diag $whole;
cmp_ok($waited, '>=', 200_000 - 2 * $gap, 'it slept as long as it was told') or diag $whole;
cmp_ok($traced * 1000, '<=', $clock[1] - $clock[0] + 2 * $gap, 'and took no longer than it was under way') or diag $whole;
unlike($whole, qr/ClientRead/, 'waiting for the next one is no part of it');
my ($state, $text) = $tracer->try("SELECT * FROM pgscale.trace_waits($pid, '1 min', statement_within => '10 ms')");
like("$state $text", qr/^00000 .*NOTICE: .*process $pid began no statement in time.*HINT: /s,
    'where none begins, a notice says so');
$target->start('SELECT pg_sleep(60)');
waits_ok($target, 'wait_event', 'a statement is under way');
like($tracer->sql("SELECT count(*) FROM pgscale.trace_summary($pid, '1 min', '10 ms')"), qr/NOTICE.*\n0$/s,
    'which is not the next one');
is($tracer->sql("SELECT event FROM pgscale.trace_waits($pid, '10 ms')"), 'PgSleep', 'but trace_waits shows that');
begin($tracer, "SELECT DISTINCT ended_by FROM pgscale.trace_waits($pid, '1 min', statement_within => '1 min')");
cancelled($db, $target);
until_true(sub {
    $target->sql('SELECT pg_sleep(0.1)');
    return $db->sql('SELECT state FROM pg_stat_activity WHERE pid = ' . $tracer->pid) eq 'idle';
});
is(join('|', $tracer->finish), '00000|statement ended', 'when it has ended, the next one is traced');

# Reads of what the kernel has, which are the shortest waits that there are. A statement of milliseconds is watched as a
# whole sooner or later, on a busy machine, too.
$db->sql(q{CREATE TABLE pages AS SELECT i, repeat('x', 1000) AS filler FROM generate_series(1, 2000) i; VACUUM pages});
$target->sql('SET io_combine_limit = 1') if $major >= 17;
my ($read, $seen) = (0, 0);
in_time_ok(sub {
    begin($tracer, qq{SELECT coalesce(sum(count), 0), min(coverage_fraction), bool_and(mean_us BETWEEN min_us AND max_us
        AND p50_us BETWEEN min_us AND p95_us AND p99_us BETWEEN p95_us AND max_us
            AND abs(count * mean_us / 1000 - total_ms) < 0.001)
        FROM pgscale.trace_summary($pid, '1 min', '1 s') WHERE event = 'DataFileRead'});
    ($read) = $target->sql('EXPLAIN (ANALYZE, BUFFERS, TIMING OFF) SELECT count(*) FROM pages') =~ /read=(\d+)/;
    ($seen, $coverage, my $sane) = split /\|/, ($tracer->finish)[1];
    return $coverage && $coverage >= 0.9 && $sane eq 't' && $seen >= 0.9 * $read;
}, 'nearly all reads are seen of a statement that was watched') or diag "$seen of $read, coverage $coverage";
cmp_ok($read, '>', 100, 'which were many');
# two more for what the catalogs had to be read for
cmp_ok($seen, '<=', $read + 20, 'and none was seen twice');

# The limit of events
$target->start(q{DO $$ BEGIN FOR i IN 1..100000 LOOP PERFORM count(*) FROM pages; END LOOP; END $$});
is($tracer->sql("SELECT count(*), max(seq), max(ended_by) FROM pgscale.trace_waits($pid, '1 h', 10)"), '10|10|max_events',
    'as many events as are asked for');
cancelled($db, $target);

# Others do not wait for a trace, nor it for them.
$db->sql('CREATE DATABASE victim');
my $inside = session($node, dbname => 'victim');
$inside->sql('CREATE EXTENSION pgscale');
begin($inside, "SELECT count(*) FROM pgscale.trace_summary($pid, '1 h')");
is(($db->try('DROP DATABASE victim WITH (FORCE)'))[0], '00000', 'the database that a trace runs in is dropped by force');
eval { $inside->finish };
until_ok(sub { traces() == 0 }, 'whose place is free then');

# A timeout, in a block that catches it
$tracer->sql('BEGIN; SAVEPOINT s');
for my $what (q{'1 h'}, q{'1 h', statement_within => '1 h'})
{
    is(($tracer->try("SET LOCAL statement_timeout = 50; SELECT * FROM pgscale.trace_waits($pid, $what)"))[0], $cancelled,
        "a timeout ends a trace, $what, of a session that stays silent");
    $tracer->sql('ROLLBACK TO s');
}
is(traces(), 0, 'then its place is free at once');
is($tracer->sql("SELECT count(*) > 0 FROM pgscale.trace_waits($pid, '10 ms')"), 't', 'for the same transaction');
$tracer->sql('ROLLBACK');

# As many as there are places
my $places = $cpus < 8 ? 1 : $cpus < 32 ? int($cpus / 4) : 8;
my @tracers = map { session($node) } 1 .. $places;
for my $i (0 .. $#tracers)
{
    $tracers[$i]->start("SELECT * FROM pgscale.trace_summary($pid, '1 h')");
    until_ok(sub { traces() == $i + 1 }, 'trace ' . ($i + 1) . ' is under way');
}
($state, $text) = $tracer->try("SELECT * FROM pgscale.trace_summary($pid, '10 ms')");
is($state, $full, 'there are not more than a quarter of the CPUs');
like($text, qr/too many traces.*DETAIL: .*there may be $places at a time.*HINT: .*pg_locks/s, 'which is said');
is($db->sql('SELECT count(*) FROM pg_locks WHERE classid = 1953653091 AND pid = ' . $tracers[0]->pid), 1,
    'who traces is in pg_locks');
$db->sql('SELECT pg_terminate_backend(' . $tracers[0]->pid . ')');
eval { $tracers[0]->finish };
until_ok(sub { ($tracer->try("SELECT * FROM pgscale.trace_summary($pid, '10 ms')"))[0] eq '00000' },
    'one that was terminated gives its place back');
cancelled($db, @tracers[ 1 .. $#tracers ]);
$_->quit for @tracers;

# Whom a role may trace
my $checkpointer = $db->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer'});
$db->sql(q{CREATE ROLE granted LOGIN; GRANT USAGE ON SCHEMA pgscale, pgscale_internal TO granted;
    GRANT EXECUTE ON FUNCTION pgscale.trace_waits(integer, interval, integer, interval) TO granted});
my ($granted, $own) = map { session($node, user => 'granted') } 1, 2;
sub trace_call { my ($of, $more) = (@_, ''); return "SELECT count(*) > 0 FROM pgscale.trace_waits($of, '10 ms'$more)" }
sub statement_call { return trace_call(shift, q{, statement_within => '10 ms'}) }
is($granted->sql(trace_call($own->pid)), 't', 'a role may trace its own sessions where that is granted');
for my $of ($pid, $checkpointer)
{
    ($state, $text) = $granted->try(trace_call($of));
    like("$state $text", qr/^42501 .*permission denied to trace process $of.*HINT: .*pg_read_all_stats/s, "but not process $of");
}
is(($granted->try(statement_call($pid)))[0], '42501', 'nor its statements');
$db->sql('GRANT pg_read_all_stats TO granted');
is($granted->sql(trace_call($pid)), 't', 'one who may see all sessions');
is($granted->sql(trace_call($checkpointer)), 't', 'and other processes');
is(($granted->try(statement_call($checkpointer)))[0], '42809', 'which have no statements');
$db->poll_ok("SELECT wait_event FROM pg_stat_activity WHERE pid = $checkpointer", 'the checkpointer waits', 'CheckpointerMain');
until_ok(sub {
    $tracer->start(qq{SELECT count(DISTINCT event_type) > 1 AND bool_or(event = 'CheckpointerMain')
        FROM pgscale.trace_waits($checkpointer, '200 ms')});
    $db->sql('CHECKPOINT');
    return ($tracer->finish)[1] eq 't';
}, 'and works while it is traced');
$own->quit;
$own = session($node);
$own->sql('SET track_activities = off');
is(($tracer->try(statement_call($own->pid)))[0], '55000', 'a session that does not tell its state has no statements either');

# A statement that ends, and another one that begins, while the tracer is off its CPU
my $one = session($node);
$holder->sql('BEGIN; SELECT pg_advisory_xact_lock(7)');
begin_looking('SELECT max(ended_by) FROM pgscale.trace_waits(' . $one->pid . q{, '1 h', statement_within => '1 h')});
$one->start('SELECT pg_advisory_xact_lock(7)');
waits_ok($one, 'wait_event_type', 'a statement waits');
while_stopped(sub {
    $holder->sql('COMMIT');
    $one->finish;
    $holder->sql('BEGIN; SELECT pg_advisory_xact_lock(7)');
    $one->start('SELECT 1, pg_advisory_xact_lock(7)');
    waits_ok($one, 'wait_event_type', 'and the next one');
});
is(join('|', $tracer->finish), '00000|statement ended',
    'a trace of one statement does not go on with the next one, though it has not seen the end');
$holder->sql('COMMIT');
$one->finish;
$one->quit;

# A target that is stopped in the middle of a change of its status
SKIP:
{
    my ($library, $file) = (compiled('hold_status'), $node->basedir . '/held');
    skip 'no compiler', 4 unless $library;
    $db->sql("CREATE FUNCTION hold_status(text) RETURNS bool LANGUAGE c AS '$library'");
    my $stopped = session($node);
    for my $what (q{'1 h'}, q{'1 h', statement_within => '1 h'})
    {
        begin_looking('SELECT count(*) FROM pgscale.trace_waits(' . $stopped->pid . ", $what)");
        $stopped->start("SELECT hold_status('$file')");
        until_true(sub { -e $file }) or die 'the target does not stop';
        $db->sql('SELECT pg_cancel_backend(' . $tracer->pid . ')');
        is(($tracer->finish)[0], $cancelled, "a trace, $what, of a process that is stopped in the midst of its status: cancelled");
        unlink $file;
        is(join('|', $stopped->finish), '00000|t', 'before that goes on');
    }
}

# The server is shut down.
begin($tracer, "SELECT count(*) FROM pgscale.trace_summary($checkpointer, '1 h')");
ok(eval { $node->stop('fast'); 1 }, 'a server stops while a trace runs');
done_testing();
