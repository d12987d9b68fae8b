# The sampler among what is not well disposed: observers that fail, cancels, a session that is stopped within a change of its
# status, and more of what it keeps than it has room for: the profile's rows add up to its totals, whatever was evicted and
# moved.
use strict;
use warnings;
use PgscaleSampler;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

# What each observer is told, from a library that comes between; and a worker of its own, whose round fails.
my $failing = shows_modules() ? compiled('failing', q{-DFAILING='"LIBRARY"'}) : undef;

# The smallest profile, so that entries are evicted and made anew within one tick.
my $node = pgscale_node('main', preload => $failing ? "pgscale,$failing" : 'pgscale', conf => <<'EOC');
pgscale.sampler_profile_size = 100
pgscale.sampler_dimensions = 'client_addr'
max_worker_processes = 20
EOC
my $db = session($node);
my $log = 0;
sub logged { return substr slurp_file($node->logfile), $log; }

SKIP:
{
    skip 'the library that comes between cannot be made here', 13 unless $failing;

    # each line that an observer wrote: milliseconds, anew or going on, active sessions, milliseconds of sleep and of other waits
    my $told = sub {
        my $observer = shift;
        my $told = qr/observer $observer is told of (\d+) ms, (\w[\w ]*), ([\d.]+) active, (\d+) ms of sleep, (\d+) ms/;
        return map { /$told/ ? [ $1, $2, $3, $4, $5 ] : () }
          split /\n/, logged();
    };
    until_ok(sub { $told->('tuning') > 0 && $told->('scalability') > 0 }, 'observers are told');
    $db->set('failing_observer.name', 'tuning');
    until_ok(sub { logged() =~ /ERROR:  observer tuning fails/ }, 'one fails');
    $log = -s $node->logfile;
    until_ok(sub { $told->('scalability') >= 3 }, 'and the other is told all the same');
    $db->set('failing_observer.name');
    until_ok(sub { logged() =~ /observer tuning fails(?!.*observer tuning fails).*observer tuning is told of \d+ ms, anew,/s },
        'when it does not fail any more, it is told again, and that it has missed something');

    # What they are told: of a session that sleeps, all of the time; of those that idle, in a transaction or not, nothing
    my ($sleeper, $idler) = map { session($node) } 1, 2;
    $idler->sql('BEGIN; SELECT 1');
    $sleeper->start('SELECT pg_sleep(600)');
    $db->poll_ok('SELECT count(*) FROM pgscale.wait_current WHERE event = $$PgSleep$$', 'a session sleeps', 1);
    $log = -s $node->logfile;
    until_ok(sub { $told->('scalability') >= 3 }, 'they are told of it');
    my @lines = $told->('scalability');
    # the first may have begun before it slept
    my @sleep = map { $lines[$_][3] - $lines[ $_ - 1 ][3] - $lines[$_][0] } 1, 2;
    is((grep { abs($_) > 2 } @sleep) + 0, 0, 'all of the time of one that sleeps') or diag "beside it: @sleep";
    ok($lines[2][2] >= 0.999 && $lines[2][2] < 1.9, 'which is active all the time, and one that idles in a transaction is not')
      or diag $lines[2][2];
    cmp_ok($lines[2][4] - $lines[0][4], '<', $lines[2][0], 'nor does it wait') or diag explain \@lines;
    is($lines[2][1], 'going on', 'nothing was missed');
    cancelled($db, $sleeper);
    $_->quit for $sleeper, $idler;

    # An error within a transaction, as of one that serves the invalidation queue, takes that with it.
    $log = 0;
    until_ok(sub { logged() =~ /LOG:  after it: / }, 'a worker goes on after a round that failed in its transaction');
    like(logged(), qr/LOG:  after it: no transaction, identifier 0\n/, 'of which nothing is left');
    until_ok(sub { logged() =~ /LOG:  the next one has its transaction\n/ }, 'and can have another one');
}

# A cancel does nothing to what is no user's statement.
my $workers = q{SELECT string_agg(format('%s %s', pid, backend_type), ', ' ORDER BY pid) FROM pg_stat_activity
    WHERE backend_type IN ('pgscale sampler', 'pgscale sweeper', 'pgscale writeback')};
$db->set("pgscale.$_", 'on') for 'sweeper', 'writeback';
until_ok(sub { $db->sql($workers) =~ /.*,.*,/ }, 'workers');
my $before = $db->sql($workers);
$log = -s $node->logfile;
$db->sql(q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'pgscale %'});
my $ticks = $db->sql('SELECT ticks FROM pgscale.sampler_stats');
$db->poll_ok("SELECT ticks > $ticks + 1 FROM pgscale.sampler_stats", 'the sampler goes on after a cancel');
is($db->sql($workers), $before, 'a cancel ends no worker');
unlike(logged(), qr/canceling|background worker "pgscale/, 'nor does any of them fail');

# Processes are called what the server calls them.
$db->poll_ok(q{SELECT string_agg(format('%s: %s, %s', pid, c.backend_type, a.backend_type), '; ')
    FROM pgscale.wait_current c JOIN pg_stat_activity a USING (pid) WHERE c.backend_type IS DISTINCT FROM a.backend_type},
    'wait_current calls all processes as pg_stat_activity does', '');
$db->poll_ok(q{SELECT string_agg(DISTINCT backend_type, ', ' ORDER BY backend_type) FROM pgscale_internal.wait_profile()
    WHERE backend_type IN ('pgscale writeback', 'pgscale sweeper', 'logical replication launcher') AND idle
      AND event_type IN ('Extension', 'Activity')},
    'so does the profile, which knows when they idle', 'logical replication launcher, pgscale sweeper, pgscale writeback');
# By the client's address alone: what differs in its application is one row.
$db->sql("SET application_name = '$_'; SELECT pg_sleep(0.05)") for 'one', 'two';
is($db->sql(q{SELECT count(*) - count(DISTINCT (backend_type, datid, userid, queryid, event_type, event)), count(application_name)
    FROM pgscale_internal.wait_profile()}), '0|0', 'applications are not told apart where they are not asked for');
$db->set("pgscale.$_", 'off') for 'sweeper', 'writeback';

# A session that is stopped in the midst of a change of its status is read a hundred times in vain at each tick, and counted on.
SKIP:
{
    my ($hold, $file) = (compiled('hold_status'), PostgreSQL::Test::Utils::tempdir() . '/held');
    skip 'no compiler', 3 unless $hold;
    $db->sql("CREATE FUNCTION hold_status(text) RETURNS bool LANGUAGE c AS '$hold'");
    my $held = session($node);
    my $counts = q{SELECT ticks, torn_reads, (SELECT sum(samples) FROM pgscale_internal.wait_profile() WHERE event_type = 'CPU')
        FROM pgscale_internal.sampler_stats()};
    # it is seen at work before: what it was when it was read last is what it counts as
    $held->start("SELECT pg_sleep(0.5), hold_status('$file')");
    until_true(sub { -e $file }) or die 'it is not held';
    my @from = split /\|/, $db->sql($counts);
    $db->poll_ok("SELECT ticks > $from[0] + 30 FROM pgscale.sampler_stats", 'ticks go on beside a session that is held');
    my @to = split /\|/, $db->sql($counts);
    unlink $file;
    $held->finish;
    my ($more_ticks, $torn, $samples) = map { $to[$_] - $from[$_] } 0 .. 2;
    cmp_ok(abs($torn / $more_ticks - 100), '<', 10, 'and each tick tries to read it a hundred times') or diag "$torn, $more_ticks";
    cmp_ok($samples, '>', 0.6 * $more_ticks, 'and counts it as what it was');
    $held->quit;
}

### A profile that is too small

my $totals = 'FROM pgscale_internal.wait_profile() p, pgscale_internal.sampler_stats() s';
sub adds_up
{
    my $name = shift;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return is($db->sql("SELECT sum(p.samples) = max(s.samples), abs(sum(p.wait_ms) / max(s.wait_ms) - 1) < 1e-6, max(s.samples) > 0,
        count(*) FILTER (WHERE p.samples NOT BETWEEN 0 AND s.samples OR p.wait_ms NOT BETWEEN 0 AND s.wait_ms) $totals"),
        't|t|t|0', "$name: it adds up, and no entry is more than all of it");
}

# Statements that wait in parse analysis, while others have the entries evicted all the time, some within one tick. How many
# are seen is up to the machine, so there are as many rounds as it takes.
$db->set('pgscale.sampler_period', 1);
$db->sql('CREATE TABLE locked (i int)');
$db->sql('CREATE ROLE parser LOGIN; GRANT SELECT ON locked TO parser');
my @crowd = map { session($node, $_ % 2 ? () : (user => 'parser')) } 0 .. 11;
my $holder = session($node);
sub many { return "SELECT format('SELECT pg_sleep(0.001)%s', repeat(', 1', i))
    FROM generate_series(1, $_[0]) i\n\\gexec\nSELECT 1"; }
my $round = 0;
in_time_ok(sub {
    $round++;
    $holder->sql('BEGIN; LOCK TABLE locked');
    $crowd[$_]->start($_ % 2 ? many(150) : "SELECT i$round$_ FROM (SELECT i AS i$round$_ FROM locked) l") for 0 .. $#crowd;
    my $waiting = q{SELECT count(*) = 6 FROM pgscale.wait_current WHERE event_type = 'Lock' AND event = 'relation'};
    until_true(sub { $db->sql($waiting) eq 't' }) or die 'no locks';
    # what was parked is gone then, and is not taken from whatever lies in its place later
    $db->sql('SELECT pgscale.reset($$sampler$$)') if $round % 2;
    $crowd[$_]->finish for grep { $_ % 2 } 0 .. $#crowd;
    $holder->sql('ROLLBACK');
    $crowd[$_]->finish for grep { $_ % 2 == 0 } 0 .. $#crowd;
    return $round > 2 && $db->sql(q{SELECT evictions > 100 AND (SELECT sum(samples) > 100 FROM pgscale_internal.wait_profile()
        WHERE event = 'PgSleep' AND backend_type = 'other') FROM pgscale.sampler_stats}) eq 't';
}, 'entries are evicted, and what sleeps is among them');
$db->sampler('off');
adds_up('a profile that is too small');
is($db->sql(q{SELECT count(*) FROM pgscale_internal.wait_profile() WHERE userid = 'parser'::regrole AND event = 'PgSleep'}), 0,
    'and no statement has the waits of others');
is($db->sql(q{SELECT entries <= 100, (SELECT count(*) <= 100 FROM pgscale_internal.wait_profile() WHERE backend_type <> 'other')
    FROM pgscale.sampler_stats}), 't|t', 'it keeps to its size');
is($db->sql(q{SELECT bool_and(datid IS NULL AND userid IS NULL AND queryid IS NULL), bool_and(event IS NOT NULL),
    count(*) = count(DISTINCT (event_type, event)) FROM pgscale_internal.wait_profile() WHERE backend_type = 'other'}),
    't|t|t', 'one row an event has what was evicted, and no more than the event');

# A reset leaves nothing, and what follows adds up again.
$db->sql('SELECT pgscale.reset($$sampler$$)');
is($db->sql('SELECT ticks, samples, wait_ms, entries, evictions, (SELECT count(*) FROM pgscale_internal.wait_profile()),
    (SELECT count(*) FROM pgscale.wait_history), (SELECT count(*) FROM pgscale.activity($$-infinity$$))
    FROM pgscale.sampler_stats'), '0|0|0|0|0|0|0|0', 'a reset empties all');
$db->sampler('on');
$db->poll_ok('SELECT samples > 500 FROM pgscale.sampler_stats', 'samples');
$db->sampler('off');
adds_up('after a reset');
is($db->sql(q{SELECT count(*), min(p.samples) > max(ticks) / 2, max(p.samples) <= max(ticks) FROM pgscale_internal.sampler_stats(),
    (SELECT sum(samples) AS samples FROM pgscale_internal.wait_profile()
      WHERE backend_type IN ('checkpointer', 'background writer', 'walwriter') GROUP BY backend_type) p}), '3|t|t',
    'each process that idles has its own samples');
is($db->sql(qq{SELECT sum(p.samples) > 10 * max(ticks) $totals WHERE backend_type = 'client backend'
    AND event = 'ClientRead'}), 't',
    'and so have many sessions');

# What is parked may be evicted while the statement still waits: here its time on CPU in parse analysis, which makes a small
# entry among large ones. It is not taken from whatever lies in its place later.
$db->sampler('on');
my $parser = session($node, user => 'parser');
my $parked = q{SELECT string_agg(DISTINCT event, ' ' ORDER BY event) FROM pgscale_internal.wait_profile()
    WHERE userid = 'parser'::regrole AND event IN ('CPU', 'relation') AND queryid IS NULL AND samples > 0};
$holder->sql('BEGIN; LOCK TABLE locked');
# once more where the sampler had no CPU while the statement had it
in_time_ok(sub {
    $db->sql('SELECT pgscale.reset($$sampler$$)');
    $parser->start('SELECT 1 WHERE 1 IN (' . join(', ', 1 .. 20000) . ') UNION ALL SELECT i FROM locked');
    until_true(sub { $db->sql($parked) =~ /relation/ });
    return 1 if $db->sql($parked) eq 'CPU relation';
    cancelled($db, $parser);
    return 0;
}, 'a statement that was on CPU and then waits, in parse analysis');
# A statement that queues for CPU is on CPU for long, so how long the others sleep follows from that: eight sessions make
# twice as much.
my $sleep = $db->sql(q{SELECT greatest(0.01, max(wait_ms) / 4000) FROM pgscale_internal.wait_profile()
    WHERE userid = 'parser'::regrole AND event = 'CPU' AND queryid IS NULL});
in_time_ok(sub {
    $crowd[$_]->start(many(150) =~ s/0\.001/$sleep/r) for 0 .. 7;
    $crowd[$_]->finish for 0 .. 7;
    return $db->sql($parked) eq 'relation';
}, 'its time on CPU is evicted by others');
$holder->sql('ROLLBACK');
$parser->finish;
my $parsed = $db->queryid($parser);
$db->poll_ok("SELECT count(*) FROM pgscale.wait_profile WHERE queryid = $parsed AND event = 'relation'", 'its wait is moved', 1);
$db->sampler('off');
is($db->sql("SELECT count(*) FROM pgscale_internal.wait_profile() WHERE queryid = $parsed AND userid IS DISTINCT FROM 'parser'::regrole"), 0,
    'and nothing that was not its own');

# Of two that wait so, the one that goes on first takes its own waits, once, and leaves those of the other.
$db->sql('CREATE TABLE for_longer (); GRANT SELECT ON locked, for_longer TO parser');
$db->sampler('on');
my $longer = session($node, user => 'parser');
my $waits = q{SELECT coalesce(sum(samples), 0) FROM pgscale_internal.wait_profile() WHERE event = 'relation' AND queryid };
$holder->sql('BEGIN; LOCK TABLE for_longer; SAVEPOINT s; LOCK TABLE locked');
$db->sql('SELECT pgscale.reset($$sampler$$)');
$longer->start('SELECT count(*) FROM for_longer');
$db->poll_ok("SELECT ($waits IS NULL) > 0", 'one waits in parse analysis');
$parser->start('SELECT count(*), pg_sleep(0.05) FROM locked');
my $seen = $db->sql("$waits IS NULL");
$db->poll_ok("SELECT ($waits IS NULL) > 4 * $seen + 600", 'and another one');
$holder->sql('ROLLBACK TO s');
$parser->finish;
$parsed = $db->queryid($parser);
$db->poll_ok("SELECT ($waits = $parsed) > 0", 'which goes on');
$holder->sql('ROLLBACK');
$longer->finish;
my $longest = $db->queryid($longer);
$db->poll_ok("SELECT ($waits = $longest) > 0", 'before the first one');
$db->sampler('off');
is($db->sql("SELECT ($waits = $longest) >= ($waits = $parsed)"), 't', 'each has its own waits');
adds_up('after that');

$node->stop;
done_testing();
