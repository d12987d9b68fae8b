# Whatever is called may be cancelled at any moment: by statement_timeout, pg_cancel_backend or pg_terminate_backend, in plain
# autocommit, in a transaction block, and where somebody catches it. Afterwards the session is as it was: what is inserted next
# is there for others, no transaction is left open, and neither role nor setting has changed.
#
# What is called comes from the catalog. Most calls are over before any timeout, so they are made over and over until it strikes.
# A third of them, by a seed that is printed and new each day; all with PGSCALE_TEST_FULL.
use strict;
use warnings;
use POSIX ();
use PgscaleCalls;
use PgscaleTest;
use PgscaleWire;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes ();

my $bound = 2 * $PostgreSQL::Test::Utils::timeout_default;
my $children = 4;
my @timeouts = (1, 5, 20, 100);
my $long = 500;
my $seed = $ENV{PGSCALE_CANCEL_SEED} // int(time / 86400);
my $rounds = $ENV{PGSCALE_CANCEL_ROUNDS} // 1;
my $only = $ENV{PGSCALE_CANCEL_ONLY};

my $node = calls_node('main', "log_min_messages = warning\nshared_buffers = 64MB\npgscale.sampler_history_size = 20000\npgscale.sampler_history_period = 1");
my $db = wire($node);
is(calls_unknown($db), '', 'of each function of the extension it is known how to call it');
my @calls = calls_known($db);
srand $seed;
@calls = grep { $_->{name} =~ /$only/ } @calls if defined $only;
@calls = grep { rand() < 1 / 3 } @calls unless defined $only || $ENV{PGSCALE_TEST_FULL};
$db->value('CREATE TABLE kept (n bigserial PRIMARY KEY, who int)');

# The text of one, of one over and over, and of that where somebody catches the cancel. An error of another kind is what
# calls may end in, and no concern of this test.
sub once
{
    my ($call, $i) = @_;

    return ($call->{procedure} ? "CALL $call->{name}" : "SELECT count(*) FROM $call->{from}") =~ s/\bi\b/$i/gr;
}

sub often
{
    my ($call, $caught) = @_;
    my $body = $call->{procedure} ? 'CALL ' . ($call->{name} =~ s/\)\z/, $call->{result} => result)/r)
      : "PERFORM count(*) FROM $call->{from}";
    my $declare = "DECLARE i bigint := 0; result @{[ $call->{type} // 'bigint' ]}; give_up timestamptz := clock_timestamp() + '10 s';";
    my $loop = "WHILE clock_timestamp() < give_up LOOP i := i + 1; $body; END LOOP;";

    return $caught ? "DO \$\$ $declare BEGIN BEGIN $loop EXCEPTION WHEN OTHERS OR query_canceled THEN NULL; END; END \$\$"
      : "DO \$\$ $declare BEGIN $loop END \$\$";
}

my $state = calls_state();

# In a process of its own: each failure is a line of what it returns.
sub child
{
    my ($me, @mine) = @_;
    my @bad;
    my ($session, $baseline);
    my $watch = wire($node);
    my %count = (calls => 0, cancelled => 0);
    srand $seed * 1000 + $me;
    my $connect = sub { $session = wire($node); $baseline = $session->value($state) };

    my $result = sub {
        my ($what) = @_;
        my $result = $session->finish($bound);
        if (!$result)
        {
            push @bad, "no answer in $bound s: $what";
            $watch->value('SELECT pg_terminate_backend(' . $session->pid . ')');
            $session->finish(10);
            return;
        }
        $count{calls}++;
        $count{cancelled}++ if $result->{state} eq '57014';
        push @bad, "$result->{state} $result->{message}: $what" if $result->{state} =~ /\AXX|\A08/ || $result->{closed};
        return $result;
    };
    # What the test itself wants to have said is not to be cancelled.
    my $unlimited = sub { $session->settle('SET statement_timeout = 0', $bound) or push @bad, "no answer to SET after $_[0]" };
    # the session is as good as new
    my $check = sub {
        my ($what) = @_;
        if ($session->closed) { $connect->(); return }
        push @bad, "transaction status $session->{status}: $what" if $session->{status} ne 'I';
        $unlimited->($what);
        $session->send_query("INSERT INTO kept (who) VALUES ($me) RETURNING n");
        my $row = $result->("insert after $what") or return $connect->();
        my $n = $row->{rows}[0] ? $row->{rows}[0][0] : -1;
        my $seen = $watch->run("SELECT (SELECT count(*) FROM kept WHERE n = $n),
            (SELECT concat(state, backend_xid, backend_xmin, xact_start) FROM pg_stat_activity WHERE pid = " . $session->pid . ')');
        # it is idle a moment after it has answered
        until_true(sub {
            return 1 if $seen->{rows}[0][0] eq '1' && $seen->{rows}[0][1] eq 'idle';
            $seen = $watch->run("SELECT (SELECT count(*) FROM kept WHERE n = $n),
                (SELECT concat(state, backend_xid, backend_xmin, xact_start) FROM pg_stat_activity WHERE pid = " . $session->pid . ')');
            return 0;
        });
        push @bad, "row $n lost ($row->{state} $row->{message}) after $what" if $seen->{rows}[0][0] ne '1';
        push @bad, "session is \"$seen->{rows}[0][1]\" after $what" if $seen->{rows}[0][1] ne 'idle';
        if (@bad && $bad[-1] =~ /\Q$what\E/) { $session->quit; $connect->(); return }
        $session->send_query($state);
        my $now = $result->("state after $what");
        push @bad, "session state \"$now->{rows}[0][0]\", not \"$baseline\" after $what"
          if $now && $now->{rows}[0] && $now->{rows}[0][0] ne $baseline;
        return;
    };
    my $timed = sub {
        my ($call, $ms, $form, @before) = @_;
        @before = (@before, 'SET statement_timeout = ' . $ms);
        my $text = $form eq 'once' ? once($call, $ms) : often($call, $form eq 'caught');
        my $what = "$form, $ms ms: " . once($call, 1);
        $session->send_query(@before, $text);
        for (0 .. @before)
        {
            next if $result->($what);
            $connect->();
            last;
        }
        return $what;
    };

    $connect->();
    for my $round (1 .. $rounds)
    {
        for my $call (@mine)
        {
            my $waits = $call->{name} =~ /_wait\(|plan\(|latency|findings|verify/;
            for my $ms ($call->{view} ? (5, 20) : (@timeouts, $waits ? $long : ()))
            {
                $check->($timed->($call, $ms, 'caught'));
                $check->($timed->($call, $ms, 'often')) if $ms <= 20;
            }
            # in a transaction block: what was before it is there, and what comes after
            my $what = $timed->($call, 10, 'often', 'BEGIN', "INSERT INTO kept (who) VALUES (-$me)", 'SAVEPOINT s');
            $session->settle('ROLLBACK TO s', $bound);
            $session->settle('SET LOCAL statement_timeout = 0', $bound);
            $session->send_query( "INSERT INTO kept (who) VALUES (-$me)", 'COMMIT');
            my $last;
            $last = $result->($what) // last for 1 .. 2;
            push @bad, "COMMIT said \"$last->{tags}[0]\" after $what in a block" if $last && ($last->{tags}[0] // '') ne 'COMMIT';
            $check->($what);
            next if $call->{view};

            # by somebody else, at any moment
            for my $cancel (1 .. 4)
            {
                my $text = $cancel < 4 ? once($call, $cancel) : often($call, 0);
                $session->send_query($text);
                Time::HiRes::usleep(int rand($cancel < 4 ? 4_000 : 30_000));
                $watch->value('SELECT pg_cancel_backend(' . $session->pid . ')');
                if (!$result->("cancelled: $text")) { $connect->(); next }
                $check->("cancelled: $text");
            }
            $session->send_query(often($call, 1));
            Time::HiRes::usleep(int rand 20_000);
            $watch->value('SELECT pg_terminate_backend(' . $session->pid . ')');
            my $ended = $session->finish($bound);
            if (!$ended) { push @bad, "not terminated in $bound s: $call->{name}" }
            elsif (!$ended->{closed}) { $ended = $session->finish($bound); }
            push @bad, "terminated, it said $ended->{state} $ended->{message}: $call->{name}"
              if $ended && $ended->{state} !~ /\A(57P01|08006)\z/;
            $connect->();
        }
    }
    return ("calls $count{calls}", "cancelled $count{cancelled}", @bad);
}

# Deals the calls out to processes, and collects what they found.
sub in_children
{
    my ($code, @work) = @_;
    my (@pipes, %count, @bad);

    for my $me (1 .. $children)
    {
        pipe my $read, my $write or die $!;
        my $pid = fork // die $!;
        if (!$pid)
        {
            my @said = eval { $code->($me, @work[ grep { $_ % $children == $me - 1 } 0 .. $#work ]) };
            @said = ("calls 0", "died: $@") if $@;
            print $write map { s/\s*\n\s*/ /gr . "\n" } @said;
            close $write;
            POSIX::_exit(0);
        }
        close $write;
        push @pipes, [ $read, $pid ];
    }
    for (@pipes)
    {
        my ($read, $pid) = @$_;
        while (my $line = <$read>)
        {
            if ($line =~ /\A(calls|cancelled) (\d+)$/) { $count{$1} += $2 }
            else { push @bad, $line }
        }
        waitpid $pid, 0;
    }
    return (\%count, @bad);
}

my $began = Time::HiRes::time();
my ($count, @bad) = in_children(\&child, @calls);
is(scalar @bad, 0, "a session is as it was after each cancel (seed $seed)")
  or diag @bad > 40 ? (@bad[ 0 .. 39 ], '... of ' . @bad . "\n") : @bad;
cmp_ok($count->{cancelled}, '>=', 2 * @calls, 'cancels struck') if !defined $only;
note sprintf '%d statements, %d cancelled, in %.1f s', $count->{calls}, $count->{cancelled}, Time::HiRes::time() - $began;
$began = Time::HiRes::time();

# Where a call waits for a lock, it waits there until it is cancelled: no race, and each place is met.
$db->value('SELECT pgscale.relocation_cancel(job) FROM pgscale.relocation_jobs WHERE finished_at IS NULL');
until_ok(sub { $db->value('SELECT count(*) FROM pgscale.relocation_jobs WHERE finished_at IS NULL') eq '0' }, 'all jobs end');
my $locker = wire($node);
$locker->value('BEGIN');
$locker->value("LOCK TABLE $_ IN ACCESS EXCLUSIVE MODE") for qw(t p pgscale_internal.relocation_job pgscale_internal.tuning_change);
($count, @bad) = in_children(sub {
    my ($me, @mine) = @_;
    my @bad;
    my $cancelled = 0;
    my $session = wire($node);
    my $watch = wire($node);
    my $baseline = $session->value($state);
    for my $call (@mine)
    {
        for my $form (0 .. 1)
        {
            my $what = 'behind a lock: ' . once($call, 1);
            my $text = once($call, 1);
            $text = 'DO $$ BEGIN BEGIN ' . ($text =~ s/\ASELECT/PERFORM/r)
              . '; EXCEPTION WHEN OTHERS OR query_canceled THEN NULL; END; END $$' if $form;
            $session->send_query('SET statement_timeout = 20', $text);
            my $answer;
            $answer = $session->finish($bound) // { state => 'none', status => '' } for 1 .. 2;
            $cancelled++ if $answer->{state} eq '57014';
            push @bad, "$answer->{state} $answer->{message}: $what" if $answer->{state} =~ /\AXX|none|\A08/;
            push @bad, "transaction status $answer->{status}: $what" if $answer->{status} ne 'I';
            $session->settle('SET statement_timeout = 0', $bound);
            my $n = $session->value("INSERT INTO kept (who) VALUES ($me) RETURNING n") // -1;
            push @bad, "row lost: $what" if $watch->value("SELECT count(*) FROM kept WHERE n = $n") ne '1';
            my $now = $session->value($state);
            push @bad, "session state $now, not $baseline: $what" if $now ne $baseline;
            if (@bad && $bad[-1] =~ /\Q$what\E/) { $session->quit; $session = wire($node); }
        }
    }
    return ("calls " . 2 * @mine, "cancelled $cancelled", @bad);
}, @calls);
is(scalar @bad, 0, 'nor does a cancel behind a lock change a session') or diag @bad;
note sprintf '%d statements, %d cancelled, in %.1f s', $count->{calls}, $count->{cancelled}, Time::HiRes::time() - $began;
$locker->value('ROLLBACK');

# The rows of tables that were in the middle tell the truth: the next change settles what was begun.
my $id = $db->run(q{CALL pgscale.set('work_mem', '5MB')});
is($id->{state}, '00000', 'settings can be changed') or diag $id->{message};
is($db->value(q{SELECT count(*) FROM pgscale_internal.tuning_change WHERE state = 'begun'}), 0, 'no change is left half made');
is($db->value(q{SELECT count(*) FROM pg_locks WHERE NOT granted OR classid = 6243}), 0, 'no lock is left');
is($db->value(q{SELECT (SELECT setting FROM pg_file_settings WHERE name = 'work_mem' ORDER BY seqno DESC LIMIT 1)
        = (SELECT new_value FROM pgscale_internal.tuning_change WHERE setting = 'work_mem' AND state = 'applied' ORDER BY change DESC LIMIT 1)}), 't',
    'the file is as the journal says');
is($db->value(q{SELECT count(*) FROM pg_prepared_xacts}), 0, 'no prepared transaction');
my $log = slurp_file($node->logfile);
is(join("\n", $log =~ /^.*(?: XX\d\d\d |PANIC|TRAP|was terminated by signal).*$/mg), '', 'no internal error in the log');

$node->stop;
done_testing();
