# Whatever is called may be cancelled at any moment: by statement_timeout, pg_cancel_backend or pg_terminate_backend, in plain
# autocommit, in a transaction block, where a handler catches it, and behind a lock. Afterwards the session is as it was: what is
# inserted next is there for others, no transaction is left open, and neither role nor setting has changed.
#
# What is called comes from the catalog. Most calls are over before any timeout, so they are made over and over until it strikes.
# A fifth of them, by a seed that is printed and new each day; all with PGSCALE_TEST_FULL.
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
my $seed = $ENV{PGSCALE_CANCEL_SEED} // int(time / 86400);
my $only = $ENV{PGSCALE_CANCEL_ONLY};

my $node = calls_node('main', <<'EOC');
log_min_messages = warning
shared_buffers = 64MB
pgscale.sampler_history_size = 20000
pgscale.sampler_history_period = 1
EOC
my $db = wire($node);
is(calls_unknown($db), '', 'of each function of the extension it is known how to call it');
srand $seed;
my @calls = grep { defined $only ? $_->{name} =~ /$only/ : $ENV{PGSCALE_TEST_FULL} || rand() < 1 / 5 } calls_known($db);
my $state = calls_state();
$db->value('CREATE TABLE kept (n bigserial PRIMARY KEY, who int)');

# The text of one, of one over and over, and of that where a handler catches the cancel. An error of another kind is what
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

    $loop = caught($loop) if $caught;
    return "DO \$\$ $declare BEGIN $loop END \$\$";
}

sub caught { return "BEGIN $_[0] EXCEPTION WHEN OTHERS OR query_canceled THEN NULL; END;" }

# A session under test, and all that is wrong with it
my (@bad, $session, $baseline, $watch, $me);
my %count = (calls => 0, cancelled => 0);

sub connect_again
{
    $session->quit if $session && !$session->closed;
    $session = wire($node);
    $baseline = $session->value($state);
    return;
}

# The answers to what was sent, of which each must come; the last one
sub answers
{
    my ($n, $what) = @_;
    my $result;

    for (1 .. $n)
    {
        $result = $session->finish($bound);
        if (!$result)
        {
            push @bad, "no answer in $bound s: $what";
            $watch->value('SELECT pg_terminate_backend(' . $session->pid . ')');
            last;
        }
        $count{calls}++;
        $count{cancelled}++ if $result->{state} eq '57014';
        push @bad, "$result->{state} $result->{message}: $what" if $result->{state} =~ /\AXX|\A08/ || $result->{closed};
        last if $result->{closed};
    }
    connect_again() if !$result || $result->{closed};
    return $result;
}

# The session is as good as new. What the test itself wants to have said is not to be cancelled.
sub check
{
    my $what = shift;
    my $bad = @bad;
    my $look = '(SELECT concat(state, backend_xid, backend_xmin, xact_start) FROM pg_stat_activity WHERE pid = ' . $session->pid . ')';

    push @bad, "transaction status $session->{status}: $what" if $session->{status} ne 'I';
    $session->settle('SET statement_timeout = 0', $bound) or push @bad, "no answer to SET after $what";
    my $inserted = $session->closed ? undef : $session->run("INSERT INTO kept (who) VALUES ($me) RETURNING n");
    my $n = $inserted && $inserted->{rows}[0] ? $inserted->{rows}[0][0] : -1;
    push @bad, "row $n lost after $what" if $watch->value("SELECT count(*) FROM kept WHERE n = $n") ne '1';
    # it is idle a moment after it has answered
    push @bad, "session is not idle after $what" unless until_true(sub { ($watch->value("SELECT $look") // '') eq 'idle' });
    my $now = $session->closed ? 'closed' : $session->value($state);
    push @bad, "session state \"$now\", not \"$baseline\" after $what" if $now ne $baseline;
    connect_again() if @bad > $bad;
    return;
}

# With a timeout; what is sent before does not end by it.
sub timed
{
    my ($call, $ms, $form, @before) = @_;
    my $what = "$form, $ms ms: " . once($call, 1);

    $session->send_query(@before, "SET statement_timeout = $ms", often($call, $form eq 'caught'));
    answers(2 + @before, $what);
    return $what;
}

# By another session, at any moment
sub cancelled
{
    my ($call, $function, $us, $text) = @_;

    $session->send_query($text);
    Time::HiRes::usleep(int rand $us);
    $watch->value("SELECT $function(" . $session->pid . ')');
    return "$function: $text";
}

sub one_call
{
    my $call = shift;
    my $waits = $call->{name} =~ /_wait\(|plan\(|latency|findings|verify/;

    for my $ms ($call->{view} ? (5, 20) : (1, 5, 20, 100, $waits ? 500 : ()))
    {
        check(timed($call, $ms, 'caught'));
        check(timed($call, $ms, 'often')) if $ms <= 20;
    }
    # in a transaction block: what was before it is there, and what comes after
    my $what = timed($call, 10, 'often', 'BEGIN', "INSERT INTO kept (who) VALUES (-$me)", 'SAVEPOINT s');
    $session->settle($_, $bound) for 'ROLLBACK TO s', 'SET LOCAL statement_timeout = 0';
    $session->send_query("INSERT INTO kept (who) VALUES (-$me)", 'COMMIT');
    my $last = answers(2, $what);
    push @bad, "COMMIT said \"$last->{tags}[0]\" after $what in a block" if $last && ($last->{tags}[0] // '') ne 'COMMIT';
    check($what);
    return if $call->{view};

    for my $try (1 .. 3)
    {
        $what = cancelled($call, 'pg_cancel_backend', $try < 3 ? 4_000 : 30_000, $try < 3 ? once($call, $try) : often($call, 0));
        answers(1, $what);
        check($what);
    }
    $what = cancelled($call, 'pg_terminate_backend', 20_000, often($call, 1));
    my $ended = $session->finish($bound);
    $ended = $session->finish($bound) if $ended && !$ended->{closed};
    push @bad, "not terminated in $bound s: $what" if !$ended;
    push @bad, "terminated, it said $ended->{state} $ended->{message}: $what" if $ended && $ended->{state} !~ /\A(57P01|08006)\z/;
    connect_again();
    return;
}

# Behind a lock, where it waits until it is cancelled: no race, and each place is met.
sub behind_lock
{
    my $call = shift;
    my $text = once($call, 1);

    for my $form ($text, 'DO $$ BEGIN ' . caught(($text =~ s/\ASELECT/PERFORM/r) . ';') . ' END $$')
    {
        $session->send_query('SET statement_timeout = 20', $form);
        answers(2, "behind a lock: $form");
        check("behind a lock: $form");
    }
    return;
}

# Deals the calls out to processes, and collects what they found.
sub in_children
{
    my ($code, $name, $least) = @_;
    my (@pipes, %all, @found);

    for my $child (1 .. $children)
    {
        pipe my $read, my $write or die $!;
        my $pid = fork // die $!;
        if (!$pid)
        {
            $me = $child;
            srand $seed * 1000 + $me;
            eval {
                $watch = wire($node);
                connect_again();
                $code->($_) for @calls[ grep { $_ % $children == $me - 1 } 0 .. $#calls ];
                1;
            } or push @bad, "died: $@";
            print $write map { s/\s*\n\s*/ /gr . "\n" } (map { "$_ $count{$_}" } keys %count), @bad;
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
            if ($line =~ /\A(calls|cancelled) (\d+)$/) { $all{$1} += $2 }
            else { push @found, $line }
        }
        waitpid $pid, 0;
    }
    is(scalar @found, 0, "$name (seed $seed)") or diag @found > 40 ? (@found[ 0 .. 39 ], '... of ' . @found . "\n") : @found;
    cmp_ok($all{cancelled}, '>=', defined $only ? 0 : $least, "cancels struck: $all{cancelled} of $all{calls}");
    return;
}

in_children(\&one_call, 'a session is as it was after each cancel', 2 * @calls);
$db->value('SELECT pgscale.relocation_cancel(job) FROM pgscale.relocation_jobs WHERE finished_at IS NULL');
until_ok(sub { $db->value('SELECT count(*) FROM pgscale.relocation_jobs WHERE finished_at IS NULL') eq '0' }, 'all jobs end');
my $locker = wire($node);
$locker->value('BEGIN');
$locker->value("LOCK TABLE $_ IN ACCESS EXCLUSIVE MODE") for qw(t p pgscale_internal.relocation_job pgscale_internal.tuning_change);
in_children(\&behind_lock, 'and after a cancel behind a lock', 1);
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
is(join("\n", slurp_file($node->logfile) =~ /^.*(?: XX\d\d\d |PANIC|TRAP|was terminated by signal).*$/mg), '', 'no internal error in the log');

$node->stop;
done_testing();
