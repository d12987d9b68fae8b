# The machine's clock is set, forth, back, and to what it shows where it never was: pgscale.health says what is so, rates stay
# rates, the timeline goes on, and nothing waits for the time that the clock showed before.
# Waits for long.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes ();

my $library = compiled('clock') // plan skip_all => 'no compiler';
$ENV{PGSCALE_CLOCK} = number_file();

# Sets the server's clock so many seconds before or after the machine's.
sub set_clock { my $seconds = shift; return write_number($ENV{PGSCALE_CLOCK}, $seconds * 1_000_000); }
sub monotonic { return Time::HiRes::clock_gettime(Time::HiRes::CLOCK_MONOTONIC()); }
my $HOURS = 2 * 3600;

my $node;
{
    local $ENV{LD_PRELOAD} = $library;
    $node = pgscale_node('main', conf => <<'EOC');
checkpoint_timeout = 1d
allow_in_place_tablespaces = on
EOC
}
my $db = session($node);
my $before = time;
set_clock($HOURS);
is($db->sql("SELECT extract(epoch FROM clock_timestamp()) >= $before + $HOURS"), 't', 'the clock can be set') or BAIL_OUT('it cannot');
set_clock(0);

### Rates

my $begin = monotonic();
$db->sql('SELECT pgscale.reset($$buffer_usage$$)');
$db->sql(q{CREATE TABLE t (id int, filler char(900)); INSERT INTO t SELECT i, '' FROM generate_series(1, 20000) i});
for my $clock ($HOURS, -$HOURS)
{
    set_clock($clock);
    my ($rate, $seconds) = split /\|/, $db->sql('SELECT pass_s, pass_s * ticks / buffers FROM pgscale_internal.clock_sweep()');
    my $since = monotonic() - $begin;

    ok($rate > 0 && $seconds <= $since, "the clock set by $clock seconds: a pass of the sweep takes its time, and no more than has passed")
      or diag "$rate $seconds $since";
    set_clock(0);
}

### Health

$db->set($_->[0] => $_->[1]) for [ 'pgscale.sweeper', 'auto' ], [ 'pgscale.writeback', 'auto' ], [ fsync => 'on' ];
$db->poll_ok(q{SELECT bool_and(enabled AND state NOT IN ('starting', 'broken')) FROM pgscale.health
    WHERE feature IN ('relocation', 'sampler', 'sweeper', 'writeback')}, 'all are well');
my $unwell = q{SELECT coalesce(string_agg(feature || ': ' || reason, '; '), '') FROM pgscale.health WHERE state IN ('broken', 'starting')};
my @complaints;
for (1 .. 5)
{
    # at once, before they have all ticked again; on a busy machine one may be late in earnest
    set_clock($HOURS);
    push @complaints, $db->sql($unwell);
    set_clock(0);
    until_true(sub { $db->sql($unwell) eq '' });
}
is((sort @complaints)[0], '', 'they are while the clock is set forth');

# A feature that is not responding is broken, though it ticked last at a time that is still to come.
my $broken = q{SELECT string_agg(feature || (reason ~ 'is not responding$'), ' ' ORDER BY feature) FROM pgscale.health
    WHERE feature IN ('sampler', 'sweeper', 'writeback') AND state = 'broken'};
my @stopped = split /\n/, $db->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type IN ('pgscale sampler', 'pgscale sweeper', 'pgscale writeback')});
kill 'STOP', @stopped;
set_clock(-$HOURS);
$db->poll_ok($broken, 'the clock set back: what is stopped is broken', 'samplertrue sweepertrue writebacktrue');
kill 'CONT', @stopped;
set_clock(0);
$db->poll_ok($broken, 'until it goes on', '');

### The timeline and the history

my $IN_1997 = -time + 28 * 365 * 86400;
my $recent = q{BETWEEN clock_timestamp() - interval '10 s' AND clock_timestamp()};
for my $clock ($HOURS, -60, -$HOURS, $IN_1997, 0)
{
    # a checkpointer that has seen today would wait for longer than it can
    if ($clock == $IN_1997)
    {
        $db->quit;
        $node->stop;
        set_clock($clock);
        local $ENV{LD_PRELOAD} = $library;
        $node->start;
        $db = session($node);
    }
    set_clock($clock);
    $db->poll_ok("SELECT (SELECT max(at) $recent FROM pgscale.activity(bucket => '1 s') WHERE coverage_fraction > 0),
        (SELECT max(at + make_interval(secs => period_s)) $recent FROM pgscale_internal.past_coverage('-infinity'))",
        "the clock set by $clock seconds: activity and history are those of now", 't|t');
    is($db->sql(q{SELECT (SELECT count(*) FROM pgscale.activity(bucket => '1 s') WHERE active_sessions NOT BETWEEN 0 AND 50)
        + (SELECT count(*) FROM pgscale.past_waits('-infinity', 'infinity') WHERE at > clock_timestamp())}), '0', 'sensible, and without a future');
}

### Evidence

# What is known of a setting is known from when it was changed on, which cannot be later than now.
my $found = q{SELECT coalesce(string_agg(reason, E'\\n'), '') FROM pgscale.advice_rules() WHERE reason ~ 'since max_wal_size got its value'};
set_clock($HOURS);
$db->sql(q{CALL pgscale.set('max_wal_size', '2GB', reload => true)});
until_ok(sub { $db->sql($found) ne '' }, 'a setting has changed');
set_clock(0);
unlike($db->sql($found), qr/, -/, 'the clock set back: that was not later than now');

### Jobs

sub jobs_wait
{
    $db->set('pgscale.relocation_workers', 0);
    $db->poll_ok(q{SELECT state FROM pgscale.health WHERE feature = 'relocation'}, 'no job begins', 'off');
    return;
}
jobs_wait();
$db->sql(q{CREATE TABLESPACE other LOCATION ''});
$db->sql('CREATE INDEX t_id ON t (id)');
set_clock($HOURS);
my $job = $db->sql(q{SELECT pgscale.relocate_indexes('t_id', 'other', mode => 'rebuild')});
my $waiting = session($node);
$waiting->start("CALL pgscale.relocation_wait($job, '2 s')");
$db->poll_ok('SELECT wait_event FROM pg_stat_activity WHERE pid = ' . $waiting->pid, 'a session waits for it', 'Extension');
set_clock(0);
is(join('|', $waiting->finish), '00000|queued', 'the clock set back: waiting for a job lasts as long as was asked for');
$db->set('pgscale.relocation_workers', 1);
$db->poll_ok("SELECT state FROM pgscale.relocation_jobs WHERE job = $job", 'a job that is later than any can be is begun', 'done');

# While a session is about to cancel such a job, it is looked at once a second.
jobs_wait();
set_clock($HOURS);
$job = $db->sql(q{SELECT pgscale.relocate_indexes('t_id', 'pg_default', mode => 'rebuild')});
set_clock(0);
my $cancelling = session($node);
$cancelling->sql("BEGIN; SELECT pgscale.relocation_cancel($job)");
$db->set('log_min_messages', 'debug1');
$begin = monotonic();
my $log = -s $node->logfile;
$db->set('pgscale.relocation_workers', 1);
my $starts;
until_ok(sub { $starts = () = substr(slurp_file($node->logfile), $log) =~ /starting background worker process "pgscale relocation worker"/g; $starts >= 3 },
    'a job that is about to be cancelled is looked at');
cmp_ok($starts, '<=', 2 + monotonic() - $begin, 'and not without a pause');
$cancelling->sql('COMMIT');
$db->poll_ok("SELECT state FROM pgscale.relocation_jobs WHERE job = $job", 'until it is cancelled', 'cancelled');

$_->quit for $cancelling, $waiting, $db;
$node->stop('immediate');
done_testing();
