# LWLocks one by one: what a library of the test holds and waits for is what the profile shows, and a page whose content lock
# it holds is a hot buffer.
# Runs on each major.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $library = compiled('hold_lwlock') // plan skip_all => 'no compiler';

my $node = pgscale_node('main', preload => "pgscale,$library", conf => 'pgscale.sampler_period = 2');
my $major = server_major();
my $db = session($node);
$db->sql(<<"EOQ");
CREATE FUNCTION hold_lwlock(text, int, bool, text) RETURNS void LANGUAGE c AS '$library';
CREATE FUNCTION hold_buffer(regclass, int, bool, text) RETURNS void LANGUAGE c AS '$library';
CREATE FUNCTION advisory_partition(bigint) RETURNS int LANGUAGE c AS '$library';
CREATE TABLE t (id int PRIMARY KEY, filler text);
INSERT INTO t SELECT i, repeat('x', 100) FROM generate_series(1, 20000) i;
VACUUM (FREEZE) t;
CREATE ROLE reader LOGIN IN ROLE pg_monitor;
CREATE ROLE stranger LOGIN;
EOQ
my ($holder, @waiters) = map { session($node) } 1 .. 4;
my $file = $node->basedir . '/held';
my $none = $node->basedir . '/none';

# The first session holds something while the file is there, the others wait for it; then CODE. What asks meanwhile must not need
# the lock itself: views of shared catalogs would need the lock manager's.
sub while_held
{
    my ($hold, $wait, $waiters, $code) = @_;
    my @waiting = @waiters[ 0 .. $waiters - 1 ];

    unlink "$file.held";
    append_to_file($file, '');
    $holder->start($hold);
    until_ok(sub { -e "$file.held" }, 'it is at it');
    $_->start($wait) for @waiting;
    my $pids = join ',', map { $_->pid } @waiting;
    $db->poll_ok("SELECT count(*) FROM pgscale_internal.wait_current() WHERE pid IN ($pids) AND event_type IN ('LWLock', 'Buffer')", 'the others wait',
        $waiters);
    $code->();
    unlink $file;
    $_->finish for $holder, @waiting;
    return;
}

# A row's counts, and those of the whole, while nothing else is waited for.
sub shows_ok
{
    my ($tranche, $number, $mode, $waiters, $locks) = @_;
    my $of = "FROM pgscale_internal.lwlock_profile() WHERE tranche = '$tranche'";
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    $db->sql('SELECT pgscale.reset($$lwlocks$$)');
    my $queues = $locks > 1 ? 4 * $locks : 20;
    $db->poll_ok("SELECT ticks >= $queues AND looks >= 1 $of AND lock = $number", "$tranche $number $mode: looked at many times");
    my $other = $mode eq 'exclusive' ? 'shared' : 'exclusive';
    is($db->sql("SELECT waited = ticks, held_$mode = ticks, held_$other, abs(mean_waiters - $waiters) < 1e-6,
        looks_$mode = looks, looks_$other $of AND lock = $number"), 't|t|0|t|t|0',
        'each tick finds it so, with all its waiters')
      or diag $db->sql("SELECT row_to_json(p) FROM pgscale_internal.lwlock_profile() p WHERE tranche = '$tranche'");
    is($db->sql("SELECT count(*) $of AND waited > 0"), 1, 'and no other lock waited for');
    my $skew = $locks > 1 ? $locks : '';
    is($db->sql("SELECT locks, busiest_lock, skew, abs(mean_waiters - $waiters) < 1e-6, reason IS NULL
        FROM pgscale_internal.lwlock_tranches() WHERE tranche = '$tranche'"), "$locks|$number|$skew|t|t", 'its tranche says the same');
    return;
}

### Locks of the main array

for my $case ([ 'PredicateLockManager', 5, 16, 'exclusive', 3 ], [ 'TwoPhaseState', 0, 1, 'shared', 1 ],
    $major < 19 ? [ 'hold_lwlock', 7, 8, 'shared', 2 ] : ())
{
    my ($tranche, $number, $locks, $mode, $waiters) = @$case;
    my $exclusive = $mode eq 'exclusive' ? 'true' : 'false';

    while_held("SELECT hold_lwlock('$tranche', $number, $exclusive, '$file')",
        "SELECT hold_lwlock('$tranche', $number, true, '$none')", $waiters,
        sub { shows_ok($tranche, $number, $mode, $waiters, $locks) });
}
# where the server does not tell whose they are, nor where they lie
while_held("SELECT hold_lwlock('hold_lwlock', 3, true, '$file')", "SELECT hold_lwlock('hold_lwlock', 3, true, '$none')", 2, sub {
    $db->sql('SELECT pgscale.reset($$lwlocks$$)');
    $db->poll_ok(q{SELECT ticks > 3 AND locks IS NULL AND skew IS NULL AND mean_waiters = 2 AND reason ~ 'in its own memory'
        FROM pgscale.lwlock_tranches WHERE tranche = 'hold_lwlock'}, 'of a tranche in memory of its own only the waits are known');
}) if $major >= 19;
# what an advisory lock takes, beside a queue for the lock that lies behind those of its tranche
append_to_file("$file.2", '');
$waiters[2]->start("SELECT hold_lwlock('PredicateLockManager', 0, true, '$file.2')");
until_ok(sub { -e "$file.2.held" }, 'a lock of another tranche is held');
$waiters[1]->start("SELECT hold_lwlock('PredicateLockManager', 0, true, '$none')");
my $partition = $db->sql('SELECT advisory_partition(42)');
while_held("SELECT hold_lwlock('LockManager', $partition, true, '$file')", 'SELECT pg_advisory_lock(42)', 1,
    sub { shows_ok('LockManager', $partition, 'exclusive', 1, 16) });
unlink "$file.2", "$file.2.held";
$_->finish for @waiters[ 1, 2 ];

# two locks of a tranche, each with a queue: its time is shared out among them
append_to_file("$file.2", '');
$waiters[2]->start("SELECT hold_lwlock('PredicateLockManager', 6, true, '$file.2')");
until_ok(sub { -e "$file.2.held" }, 'another lock is held');
$waiters[1]->start("SELECT hold_lwlock('PredicateLockManager', 6, true, '$none')");
while_held("SELECT hold_lwlock('PredicateLockManager', 1, true, '$file')", "SELECT hold_lwlock('PredicateLockManager', 1, true, '$none')", 1, sub {
    my $pid = $waiters[1]->pid;
    $db->poll_ok("SELECT event_type FROM pgscale_internal.wait_current() WHERE pid = $pid", 'each is waited for', 'LWLock');
    $db->sql('SELECT pgscale.reset($$lwlocks$$)');
    $db->poll_ok(q{SELECT ticks >= 32 FROM pgscale_internal.lwlock_tranches() WHERE tranche = 'PredicateLockManager'}, 'for some time');
    is($db->sql(q{SELECT lock, waited = ticks, round(mean_waiters::numeric, 6) FROM pgscale_internal.lwlock_profile()
        WHERE tranche = 'PredicateLockManager' AND waited > 0 ORDER BY 1}), "1|t|1.000000\n6|t|1.000000", 'half of the time each');
    is($db->sql(q{SELECT busiest_lock, skew, round(mean_waiters::numeric, 6) FROM pgscale_internal.lwlock_tranches() WHERE tranche = 'PredicateLockManager'}),
        '1|8|2.000000', 'the skew is that of two in sixteen');
});
unlink "$file.2";
$_->finish for @waiters[ 1, 2 ];

# the time is that of the wait profile, as long as both count the same ticks
$db->sampler('off');
$db->sql('SELECT pgscale.reset($$lwlocks$$)');
$db->sql('SELECT pgscale.reset($$sampler$$)');
$db->sampler('on');
while_held("SELECT hold_lwlock('PredicateLockManager', 1, true, '$file')", "SELECT hold_lwlock('PredicateLockManager', 1, true, '$none')", 2,
    sub { $db->poll_ok(q{SELECT wait_ms > 100 FROM pgscale_internal.lwlock_tranches() WHERE tranche = 'PredicateLockManager'}, 'time passes') });
$db->sampler('off');
is($db->sql(q{SELECT count(*) > 0, bool_and(abs(t.wait_ms - p.wait_ms) < 1e-3) FROM pgscale_internal.lwlock_tranches() t
    JOIN (SELECT event, sum(wait_ms) FROM pgscale_internal.wait_profile() WHERE event_type = 'LWLock' GROUP BY 1) p (event, wait_ms)
      ON p.event = t.tranche}), 't|t', 'wait_ms is that of the wait profile');
# a queue may be gone at the look
is($db->sql(q{SELECT bool_and(locks > 0 AND locks <= all_of_it + 1e-6) FROM (SELECT sum(p.wait_ms), max(t.wait_ms)
    FROM pgscale_internal.lwlock_profile() p JOIN pgscale_internal.lwlock_tranches() t USING (tranche_id) WHERE p.tranche = 'PredicateLockManager'
   GROUP BY tranche_id) s (locks, all_of_it)}), 't', 'and the locks have no more than their tranche');
$db->sampler('on');

### Hot buffers

my $hot = "SELECT relation, fork, block, page_kind, held, holders, all_waiters, datname FROM pgscale.hot_buffers";
my $quiet = 'SELECT count(*) FROM pgscale.hot_buffers';
is($db->sql($quiet), 0, 'no hot buffer');
append_to_file($file, '');
$holder->start("SELECT hold_buffer('t', 7, true, '$file')");
$waiters[0]->start("SELECT hold_buffer('t', 8, false, '$file')");
$db->poll_ok('SELECT count(*) FROM pgscale_internal.wait_current() WHERE state = $$active$$ AND pid IN (' . $holder->pid . ', ' . $waiters[0]->pid . ')',
    'pages are held', 2);
is($db->sql($quiet), 0, 'nor is one that nobody waits for');
unlink $file;
$_->finish for $holder, $waiters[0];
while_held("SELECT hold_buffer('t', 7, true, '$file')", "SELECT count(*) FROM t WHERE ctid = '(7,1)'", 3, sub {
    is($db->sql($hot), 't|main|7||exclusive|1|3|postgres', 'a page of a table, held exclusive');
    is($db->sql('SELECT bufferid BETWEEN 1 AND 2048, relfilenode = pg_relation_filenode($$t$$), datid > 0 FROM pgscale_internal.hot_buffers()'),
        't|t|t', 'and where it is');
    # from 19 on it is no LWLock
    $db->poll_ok(q{SELECT ticks > 3 AND locks IS NULL AND reason ~ 'hot_buffers' FROM pgscale.lwlock_tranches
        WHERE tranche = 'BufferContent'}, 'the tranche leads there') if $major < 19;
});
# each of their events is of the kind that contention and advice know them by
is($db->sql(q{SELECT event_type, event FROM pgscale.wait_meanings WHERE kind IN ('buffer_content', 'buffer_pin') ORDER BY kind}),
    $major >= 19 ? "Buffer|BufferShared, BufferShareExclusive, BufferExclusive\nBuffer|BufferCleanup" : "LWLock|BufferContent\nBufferPin|BufferPin",
    'what waits for buffers are called, and mean');

# from 19 on a process that writes a page waits for a lock of its own kind
if ($major >= 19)
{
    $db->sql(q{UPDATE t SET filler = 'x' WHERE ctid = '(7,1)'});
    unlink "$file.held";
    append_to_file($file, '');
    $holder->start("SELECT hold_buffer('t', 7, true, '$file')");
    until_ok(sub { -e "$file.held" }, 'a dirty page is held');
    $waiters[0]->start('CHECKPOINT');
    $db->poll_ok(q{SELECT event_type, event FROM pgscale_internal.wait_current() WHERE backend_type = 'checkpointer'}, 'which the checkpointer is to write',
        'Buffer|BufferShareExclusive');
    is($db->sql($hot), 't|main|7||exclusive|1|1|postgres', 'it is hot');
    unlink $file;
    $_->finish for $holder, $waiters[0];
}
# Which of the index is what kind of page: the metapage, the first leaf, the root. Whoever waits has to want it exclusive.
for my $case ([ 0, 'meta' ], [ 1, 'leaf' ], [ 3, 'root' ])
{
    my ($block, $kind) = @$case;

    while_held("SELECT hold_buffer('t_pkey', $block, false, '$file')", "SELECT hold_buffer('t_pkey', $block, true, '$none')", 1,
        sub { is($db->sql($hot), "t_pkey|main|$block|$kind|shared|1|1|postgres", "the $kind page, held shared") });
}
$db->sql('CREATE DATABASE other');
my $other = session($node, dbname => 'other');
$other->sql('CREATE EXTENSION pgscale');
while_held("SELECT hold_buffer('t', 0, true, '$file')", "SELECT hold_buffer('t', 0, true, '$none')", 1, sub {
    is($other->sql($hot), '|main|0||exclusive|1|1|postgres', 'seen from another database it has no name');
    my $reader = session($node, user => 'reader');
    is($reader->sql($hot), 't|main|0||exclusive|1|1|postgres', 'pg_monitor reads it without a privilege on the table');
    is($reader->sql('SELECT count(*) > 0 FROM pgscale.lwlock_profile'), 't', 'and the profile');
    is(($reader->try('SELECT pgscale.reset($$lwlocks$$)'))[0], '42501', 'but resets nothing');
    $reader->quit;
});
$other->quit;
is($db->sql($quiet), 0, 'they are gone when nobody waits');
my $stranger = session($node, user => 'stranger');
is(($stranger->try("SELECT * FROM pgscale.$_"))[0], '42501', "others may not read $_") for qw(lwlock_profile lwlock_tranches hot_buffers);
$stranger->quit;

### Switched off

my $health = q{SELECT enabled, state, reason FROM pgscale.health WHERE feature = 'lwlocks'};
$db->sampler('off');
$db->poll_ok($health, 'it takes the sampler', 'f|off|this feature needs the sampler, which is off');
$db->sampler('on');
$db->poll_ok($health, 'on again', 't|working|reads the locks of a tranche while processes wait for it');

### Locks of another layout

SKIP:
{
    skip 'from 16 on pgscale does not show what it believes', 4 unless shows_modules();
    $_->quit for $db, $holder, @waiters;
    {
        local $ENV{WRONG_LAYOUT} = 1;
        $node->restart;
    }
    $db = session($node);
    $db->poll_ok($health, 'another layout is noticed', "t|broken|pgscale does not know the layout of this server's LWLocks");
    is(($db->try($quiet))[0], '0A000', 'hot_buffers refuses');
    $db->poll_ok('SELECT ticks > 20 FROM pgscale.sampler_stats', 'the sampler samples');
    is($db->sql('SELECT count(*) FROM pgscale.lwlock_profile'), 0, 'and the profile is empty');
}
done_testing();
