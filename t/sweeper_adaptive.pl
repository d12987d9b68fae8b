# When the sweeper works: not before all buffers were used, not where it is of no use, and when sessions wait to write.
# Runs on 18, too.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes ();

my $node = pgscale_node('main', conf => <<"EOC");
shared_buffers = 8MB
max_worker_processes = 32
checkpoint_timeout = 1h
pgscale.sweeper = auto
EOC
my $db = session($node);
my @stopped;
END { kill 'CONT', @stopped if @stopped; }

sub stats { my $columns = shift; return $db->sql("SELECT $columns FROM pgscale.sweeper_stats"); }

# Waits until it has ticked for so long that it could begin to work: by two periods of 5 s, of 50 ticks each, after one that is in
# part of what was before.
sub decides_ok
{
    my $name = shift;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my $ticks = stats('ticks');

    return $db->poll_ok("SELECT ticks > $ticks + 155 FROM pgscale.sweeper_stats", $name);
}

# Waits until it has ticked more often than it would take to see that the buffers were used.
sub ticks_ok
{
    my $name = shift;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my $ticks = stats('ticks');

    return $db->poll_ok("SELECT ticks > $ticks + 25 FROM pgscale.sweeper_stats", $name);
}

# Buffers that were never used
$db->poll_ok('SELECT state, reason FROM pgscale.sweeper_stats', 'a server that has just started',
    'warming up|there are buffers that were never used');
ticks_ok('it ticks');
is(stats('state, supplied_clean + supplied_written + written'), 'warming up|0', 'and goes on to wait');
is($db->sql(q{SELECT enabled, state, reason FROM pgscale.health WHERE feature = 'sweeper'}),
    't|idle|there are buffers that were never used', 'health says so');
$db->set('pgscale.sweeper', 'on');
ticks_ok('also when it is to work all the time');
is(stats('state, supplied_clean + supplied_written + written'), 'warming up|0', 'it waits');
$db->set('pgscale.sweeper');

# Nothing to do
$db->churn_table(40000);
$db->sql('VACUUM churn');
$db->sql('CHECKPOINT');
$db->poll_ok('SELECT state, reason FROM pgscale.sweeper_stats', 'all buffers were used',
    'watching|no session waits to write a page');
my $decided = stats('state_change');
my $nothing = 'state, writers, state_change, scanned + supplied_clean + supplied_written + written';

# Nothing to write
$db->sql(<<'EOQ');
CREATE FUNCTION reads() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    n bigint := 0;
    this int;
BEGIN
    WHILE EXISTS (SELECT FROM churn_on) LOOP
        FOR i IN 1..100 LOOP
            this := floor(random() * 40000);
            PERFORM filler FROM churn WHERE id = this;
            n := n + 1;
        END LOOP;
        PERFORM pg_sleep(0.01);
    END LOOP;
    RETURN n;
END $$;

CREATE TABLE bulk (i int, filler char(1000));
CREATE PROCEDURE bulk() LANGUAGE plpgsql AS $$
BEGIN
    WHILE EXISTS (SELECT FROM churn_on) LOOP
        INSERT INTO bulk SELECT i, '' FROM generate_series(1, 10000) i;
        COMMIT;
        TRUNCATE bulk;
    END LOOP;
END $$;
EOQ
$db->sql('CHECKPOINT');
my @reading = map { session($node) } 1 .. 3;
$_->start('SELECT reads()') for @reading;
decides_ok('a load that only reads');
is(stats($nothing), "watching|0|$decided|0", 'it only watches') or diag stats('row_to_json(sweeper_stats)');
$db->churn_end(@reading);

# A session that waits to write, for as long as the test wants: it is stopped there. What looks at it must not hang if it is
# stopped elsewhere.
sub waits_to_write
{
    my $pid = shift;
    my $give_up = Time::HiRes::time() + 1;

    $db->start("SELECT wait_event FROM pg_stat_activity WHERE pid = $pid");
    while ($db->{out} !~ /^=end/m && Time::HiRes::time() < $give_up)
    {
        $db->{psql}->pump_nb;
        Time::HiRes::usleep(1000);
    }
    my $hangs = $db->{out} !~ /^=end/m;
    kill 'CONT', splice @stopped if $hangs;
    return ($db->finish)[1] eq 'DataFileWrite' && !$hangs;
}

my ($churning) = my @churning = churn($node, 1);
my $caught = until_true(sub {
    my $pid = $churning->pid;

    kill 'STOP', $pid or die "cannot stop $pid: $!";
    @stopped = $pid;
    until_true(sub { process_state($pid) eq 'T' }, 0.001) or die "process $pid does not stop";
    return 1 if waits_to_write($pid);
    kill 'CONT', splice @stopped;
    Time::HiRes::usleep(rand 3000);
    return 0;
}, 0);
ok($caught, 'a session waits to write a page');
$db->poll_ok('SELECT state FROM pgscale.sweeper_stats', 'then it works', 'working');
like(stats('reason'), qr/^\d+\.\d sessions were waiting to write a page$/, 'for that reason');
push @churning, session($node);
$churning[1]->start('CALL bulk()');
$db->sweeps_on('it supplies and writes for others, although one backend hangs in its write');
kill 'CONT', splice @stopped;
$db->churn_end(@churning);
$db->churn_right('the data is right');
$db->poll_ok('SELECT state FROM pgscale.sweeper_stats', 'when it is of no use any more, it stands down', 'watching');
my $reasons = qr/^(no buffer was needed|the disk delays no session|dirty pages have no|only [\d.]+ %|no session waits|.*of their own)/;
like(stats('reason'), $reasons, 'and says why');
$db->poll_ok('SELECT writers FROM pgscale.sweeper_stats', 'and its writers end', 0);

$node->stop;
done_testing();
