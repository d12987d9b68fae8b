# The sampler among what is not well disposed: observers that fail, cancels, and more of what it keeps than it has room for.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

# What each observer is told, from a library that comes between; and a worker of its own, whose round fails.
my $library = PostgreSQL::Test::Utils::tempdir() . '/failing_observer.so';
my $include = server_headers();
my $libraries = qx(pg_config --pkglibdir);
chomp $libraries;
# From 16 on a library shows nothing but what the server calls, so nothing can come between.
# before 16 the name of a worker's library has at most 95 characters
my $round = PostgreSQL::Test::Utils::tempdir_short() . '/failing_round.so';
my $compile = "cc -shared -fPIC -O1 -I $include -I src -o";
my $compiled = system("{ nm -D $libraries/pgscale.so | grep -w pgscale_modules && $compile $library t/lib/failing_observer.c &&"
      . " $compile $round -DFAILING_ROUND='\"$round\"' t/lib/failing_round.c; } >$library.out 2>&1") == 0;

# The smallest profile, so that entries are evicted and made anew within one tick.
my $node = pgscale_node('main', preload => $compiled ? "pgscale,$library,$round" : 'pgscale', conf => <<'EOC');
pgscale.sampler_profile_size = 100
pgscale.sampler_dimensions = 'client_addr'
max_worker_processes = 20
EOC
my $db = session($node);

# One observer that fails is nothing to the others.
sub told
{
    my ($observer, $from) = @_;
    my $log = substr(slurp_file($node->logfile), $from);

    my @told = $log =~ /observer $observer is told of (\d+) ms/g;
    return @told;
}

SKIP:
{
    skip 'the library that comes between cannot be compiled here: ' . slurp_file("$library.out"), 13 unless $compiled;

    my $log = -s $node->logfile;
    until_ok(sub { told('tuning', $log) > 0 && told('scalability', $log) > 0 }, 'observers are told');
    $db->set('failing_observer.name', 'tuning');
    until_ok(sub { substr(slurp_file($node->logfile), $log) =~ /ERROR:  observer tuning fails/ }, 'one fails');
    $log = -s $node->logfile;
    until_ok(sub { told('scalability', $log) >= 4 }, 'and the others are told all the same');
    $db->set('failing_observer.name');
    $log = -s $node->logfile;
    until_ok(sub { told('tuning', $log) >= 2 }, 'when it does not fail any more, it is told again');
    is(join(' ', grep { $_ > 30_000 } told('(?:tuning|scalability)', 0)), '', 'and of no more than it was there for');

    # What they are told: of a session that sleeps, all of the time; of those that idle, in a transaction or not, nothing
    my ($sleeper, $idler) = (session($node), session($node));
    $idler->sql('BEGIN; SELECT 1');
    $sleeper->start('SELECT pg_sleep(600)');
    $db->poll_ok('SELECT count(*) FROM pgscale.wait_current WHERE event = $$PgSleep$$', 'a session sleeps', 1);
    $log = -s $node->logfile;
    until_ok(sub { told('scalability', $log) >= 3 }, 'they are told of it');
    my $tells = qr/observer scalability is told of (\d+) ms, (\w[\w ]*), ([\d.]+) active, (\d+) ms of sleep, (\d+) ms of other waits, (\d+) databases/;
    my @lines = map { [ /$tells/ ] } grep { /$tells/ } split /\n/, substr slurp_file($node->logfile), $log;
    # the first may have begun before it slept
    my @sleep = map { $lines[$_][3] - $lines[ $_ - 1 ][3] - $lines[$_][0] } 1 .. 2;
    is((grep { abs($_) > 2 } @sleep) + 0, 0, 'all of the time of one that sleeps') or diag "beside it: @sleep";
    ok($lines[2][2] >= 0.999 && $lines[2][2] < 1.9, 'which is active all the time, and one that idles in a transaction is not') or diag $lines[2][2];
    cmp_ok($lines[2][4] - $lines[0][4], '<', $lines[2][0], 'nor does it wait') or diag explain \@lines;
    is($lines[2][1], 'going on', 'nothing was missed') or diag explain \@lines;
    my ($again) = substr(slurp_file($node->logfile), 0) =~ /.*observer tuning fails.*?observer tuning is told of \d+ ms, (\w[\w ]*),/s;
    is($again, 'anew', 'but by the one that failed');
    $db->sql('SELECT pg_cancel_backend(' . $sleeper->pid . ')');
    $sleeper->finish;
    $_->quit for $sleeper, $idler;

    # An error within a transaction, as of one that serves the invalidation queue, takes that with it.
    until_ok(sub { slurp_file($node->logfile) =~ /LOG:  after it: / }, 'a worker goes on after a round that failed in its transaction');
    until_ok(sub { slurp_file($node->logfile) =~ /LOG:  after it: no transaction, identifier 0\n/ }, 'of which nothing is left');
    until_ok(sub { slurp_file($node->logfile) =~ /LOG:  the next one has its transaction\n/ }, 'and can have another one');
}

# A cancel does nothing to what is no user's statement.
my $workers = q{SELECT string_agg(format('%s %s', pid, backend_type), ', ' ORDER BY pid) FROM pg_stat_activity
    WHERE backend_type LIKE 'pgscale %' AND backend_type NOT LIKE 'pgscale relocation worker%'};
my $all = q{'sampler', 'sweeper 1', 'writeback'};
$db->set('pgscale.sweeper_mode', sweeper_mode());
$db->set("pgscale.$_", 'on') for 'sweeper', 'writeback';
$db->poll_ok("SELECT count(*) FROM pg_stat_activity WHERE backend_type = ANY (SELECT 'pgscale ' || w FROM unnest(ARRAY[$all]) w)",
    'workers', 3);
my $before = $db->sql($workers);
my $log = -s $node->logfile;
for (1 .. 2)
{
    $db->sql(q{SELECT pg_cancel_backend(pid) FROM pg_stat_activity WHERE backend_type LIKE 'pgscale %'});
    my $ticks = $db->sql('SELECT ticks FROM pgscale.sampler_stats');
    $db->poll_ok("SELECT ticks > $ticks + 1 FROM pgscale.sampler_stats", 'the sampler goes on after a cancel');
}
is($db->sql($workers), $before, 'a cancel ends no worker');
unlike(substr(slurp_file($node->logfile), $log), qr/canceling|background worker "pgscale/, 'nor does any of them fail');

# Processes are called what the server calls them.
$db->poll_ok(q{SELECT string_agg(format('%s: %s, %s', pid, c.backend_type, a.backend_type), '; ')
    FROM pgscale.wait_current c JOIN pg_stat_activity a USING (pid) WHERE c.backend_type IS DISTINCT FROM a.backend_type},
    'wait_current calls all processes as pg_stat_activity does', '');
$db->poll_ok(q{SELECT count(DISTINCT backend_type) FROM pgscale.wait_profile()
    WHERE backend_type IN ('pgscale writeback', 'pgscale sweeper 1', 'logical replication launcher')},
    'so does the profile', 3);
# By the client's address alone: what differs in its application is one row.
$db->sql("SET application_name = '$_'; SELECT pg_sleep(0.05)") for 'one', 'two';
is($db->sql(q{SELECT count(*) - count(DISTINCT (backend_type, datid, userid, queryid, event_type, event)), count(application_name)
    FROM pgscale.wait_profile()}), '0|0', 'applications are not told apart where they are not asked for');
$db->sql('RESET application_name');
# Where the server's list is busy, a worker is just that until the next tick.
is($db->sql(q{SELECT count(*) > 0, bool_and(idle) FROM pgscale.wait_profile()
    WHERE backend_type IN ('pgscale writeback', 'pgscale sweeper 1') AND event_type IN ('Extension', 'Activity')}), 't|t',
    'and knows when they idle');

# A session that is stopped in the midst of a change of its status is read a hundred times in vain at each tick, and counted on.
SKIP:
{
    my ($hold, $held_file) = (PostgreSQL::Test::Utils::tempdir() . '/hold_status.so', PostgreSQL::Test::Utils::tempdir() . '/held');
    skip 'no compiler', 3 if system("cc -shared -fPIC -O1 -I $include -o $hold t/lib/hold_status.c >$hold.out 2>&1");
    chmod 0755, $hold;
    $db->sql("CREATE FUNCTION hold_status(text) RETURNS bool LANGUAGE c AS '$hold'");
    my $held = session($node);
    my $counts = q{SELECT ticks, torn_reads, (SELECT sum(samples) FROM pgscale.wait_profile() WHERE event_type = 'CPU') FROM pgscale_internal.sampler_stats()};
    # it is seen at work before: what it was when it was read last is what it counts as
    $held->start("SELECT pg_sleep(0.5), hold_status('$held_file')");
    until_true(sub { -e $held_file }) or die 'it is not held';
    my @from = split /\|/, $db->sql($counts);
    $db->poll_ok("SELECT ticks > $from[0] + 30 FROM pgscale.sampler_stats", 'ticks go on beside a session that is held');
    my @to = split /\|/, $db->sql($counts);
    unlink $held_file;
    $held->finish;
    my ($ticks, $torn, $samples) = map { $to[$_] - $from[$_] } 0 .. 2;
    cmp_ok(abs($torn / $ticks - 100), '<', 10, 'and each tick tries to read it a hundred times') or diag "$torn, $ticks";
    cmp_ok($samples, '>', 0.6 * $ticks, 'and counts it as what it was');
    $held->quit;
}

# Statements that wait in parse analysis, while others have the entries evicted all the time, some within one tick
$db->set('pgscale.sampler_period', 1);
$db->sql('CREATE TABLE locked (i int)');
my @crowd = map { session($node) } 1 .. 12;
my $holder = session($node);
my $many = q{SELECT format('SELECT pg_sleep(0.001)%s', repeat(', 1', i)) FROM generate_series(1, 150) i
\gexec
SELECT 1};
for (my $round = 1; $round <= 3 || ($round < 30 && $db->sql('SELECT evictions > 100 FROM pgscale.sampler_stats') ne 't'); $round++)
{
    $holder->sql('BEGIN; LOCK TABLE locked');
    $crowd[$_]->start($_ % 2 ? $many : "SELECT i$round$_ FROM (SELECT i AS i$round$_ FROM locked) l") for 0 .. $#crowd;
    my $waiting = q{SELECT count(*) = 6 FROM pgscale.wait_current WHERE event_type = 'Lock' AND event = 'relation'};
    until_true(sub { $db->sql($waiting) eq 't' }) or die 'no locks';
    $crowd[$_]->finish for grep { $_ % 2 } 0 .. $#crowd;
    $holder->sql('ROLLBACK');
    $crowd[$_]->finish for grep { $_ % 2 == 0 } 0 .. $#crowd;
}
$_->quit for @crowd, $holder;
$db->sampler('off');
is($db->sql('SELECT evictions > 100, samples = (SELECT sum(samples) FROM pgscale.wait_profile()),
    (SELECT count(*) FROM pgscale.wait_profile() p WHERE p.samples NOT BETWEEN 0 AND s.samples OR p.wait_ms NOT BETWEEN 0 AND s.wait_ms)
    FROM pgscale_internal.sampler_stats() s'), 't|t|0', 'a full profile adds up, and no entry is more than all of it');

$db->set('pgscale.sampler', 'off');
$db->quit;
$node->stop;

# Many more slots than sessions: what is there is seen all the same, also what comes later.
$node->append_conf('postgresql.conf', <<'EOC');
max_connections = 30000
max_locks_per_transaction = 10
max_pred_locks_per_transaction = 10
EOC
$db = undef;
$node->start;
$db = session($node);
$db->sampler('on');
for my $round (1 .. 2)
{
    my $sleeper = session($node);
    $sleeper->start('SELECT pg_sleep(600)');
    $db->poll_ok('SELECT count(DISTINCT pid) FROM pgscale.wait_history WHERE event = $$PgSleep$$ AND pid = ' . $sleeper->pid,
        "of 30,000 slots: session $round is seen", 1);
    $db->sql('SELECT pg_cancel_backend(' . $sleeper->pid . ')');
    $sleeper->finish;
    $sleeper->quit;
}
# one that has just quit may be in only one of them
$db->poll_ok(q{SELECT count(*) FROM pg_stat_activity a WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'
    AND NOT EXISTS (SELECT FROM pgscale.wait_current c WHERE c.pid = a.pid)}, 'and wait_current has all', 0);
$db->quit;
$node->stop;

done_testing();
