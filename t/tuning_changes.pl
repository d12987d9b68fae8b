# Changes of settings when something fails or comes in between: each call about postgresql.auto.conf fails, or its session is
# killed there; memory is refused; a cancel or SIGTERM; another session, another database, a hand with ALTER SYSTEM. Whatever it
# is: the journal then says what is true of the file, all of it can be reverted, and the session is as it was.
use strict;
use warnings;
use PgscaleTest;
use PgscaleTuning;
use PostgreSQL::Test::Utils;
use Test::More;

my %kinds = (open => 1, write => 2, sync => 4, rename => 8, memory => 16);
my ($FILES, $ALL) = (15, 31);
my ($EIO, $ENOMEM, $ENOSPC, $SIGINT, $SIGKILL, $SIGTERM) = (5, 12, 28, -2, -9, -15);
my $library = compiled('faults') // plan skip_all => 'no compiler';
my $orders = $ENV{PGSCALE_FAULTS} = PostgreSQL::Test::Utils::tempdir() . '/orders';

# How often it has happened, and how many calls were still to come before it would
sub orders_done { return (unpack 'l6', slurp_file($orders))[ 4, 2 ]; }

order();
{
    local $ENV{LD_PRELOAD} = $library;
    # Without its sampler there is advice at once: to switch it on.
    tuning_node("fsync = on\npgscale.sampler = off");
}
$db->sql('CREATE TABLE committed (n int); SET client_min_messages = warning');
my $session = session($node);
my $rows = 0;

# The value of the line that a setting has, of which none here needs quotes; '-' if it has none
sub plain_line
{
    my $setting = shift;

    return file() =~ /^\Q$setting\E = '(.*)'$/m ? $1 : '-';
}

# How the call ends when the n-th of these kinds is hit: its SQLSTATE, its answer, whether it was, and how many there were if not
sub hit
{
    my ($call, %order) = @_;
    my ($state, $answer) = ('57P01', 'the connection is lost');

    order(pid => $session->pid, word => 'postgresql.auto.conf', folder => $node->data_dir, %order);
    eval { ($state, $answer) = $session->try("CALL pgscale.$call"); 1 } or do { $session->quit; undef $session };
    my ($hits, $left) = orders_done();
    order();
    if ($hits && ($order{error} // 0) == $SIGKILL)
    {
        $session->quit if $session;
        undef $session;
        $db = $db->reconnect($node);
        $db->sql('SET client_min_messages = warning');
        # another session's may be lost with it, for synchronous_commit is off
        $rows = $db->sql('SELECT count(*) FROM committed');
    }
    # What is told to end at the very end of a call ends after its answer.
    if ($session && $hits && ($order{error} // 0) == $SIGTERM)
    {
        $session->quit;
        undef $session;
    }
    $session //= session($node);
    return ($state, $answer, $hits, $order{left} - $left);
}

# All that must be true then, of what a call may have done to the setting, whose line was this
sub wrong
{
    my ($setting, $was, $last, $answer) = @_;
    my $is = plain_line($setting);
    my @wrong;
    my $row = sub {
        return $db->sql("SELECT count(*) || ' ' || coalesce(max(split_part(state, ' ', 1) || ' ' || coalesce(old_value, '-') || ' '
            || coalesce(new_value, '-')), '') FROM pgscale.tuning_journal WHERE change > $last AND setting = '$setting'");
    };
    my $before = $row->();

    # the session first, with no statement before: it works, and keeps what it is told to
    $rows++;
    my ($state, $text) = $session->try("INSERT INTO committed VALUES ($rows)");
    push @wrong, "insert: $text" if $state ne '00000';
    push @wrong, 'what was committed is lost' if $db->sql('SELECT count(*) FROM committed') ne $rows;
    push @wrong, 'the session has changed'
      if $session->sql(q{SELECT current_user = session_user, current_setting('search_path'), current_setting('is_superuser'),
        current_setting('transaction_isolation')}) ne 't|"$user", public|on|read committed';
    push @wrong, 'it holds something: ' . $_
      for split /\n/, $db->sql('SELECT backend_xmin, backend_xid, state FROM pg_stat_activity WHERE pid = ' . $session->pid
        . q{ AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL OR state <> 'idle')});
    push @wrong, 'it holds a lock' if $db->sql('SELECT count(*) FROM pg_locks WHERE pid = ' . $session->pid) ne '0';

    # the next change finds out what is not known
    $db->sql(q{SET client_min_messages = error; CALL pgscale.set('commit_siblings', '5', change => 0)});
    my $after = $row->();
    my $expected = $is eq $was ? qr/^(0 |1 failed .*)$/ : qr/^1 (applied|pending|overridden) \Q$was\E \Q$is\E$/;
    push @wrong, 'a file is left' if -e $node->data_dir . '/postgresql.auto.conf.tmp';
    push @wrong, "$was became $is, and the journal has $before, then $after" if $after !~ $expected;
    # what it says at once must not be wrong either
    push @wrong, "$was became $is, and the journal had $before" if $before !~ $expected && $before !~ /^1 begun /;
    push @wrong, "it said: $answer" if $is ne $was && $answer =~ /Nothing was changed/ || $answer =~ /changed by hand/;
    return @wrong;
}

# Takes back all that stands since; the file must then be what it was.
sub back
{
    my ($original, $last) = @_;
    my @wrong;

    for my $change (split /\n/, $db->sql(qq{SELECT change FROM pgscale.tuning_journal WHERE change > $last AND revert_of IS NULL
        AND state NOT IN ('failed', 'reverted') ORDER BY change DESC}))
    {
        my ($state, $text) = $db->try("CALL pgscale.revert($change)");
        push @wrong, "revert($change): $text" if $state ne '00000';
    }
    push @wrong, "the file is:\n" . file() if file() ne $original;
    return @wrong;
}

# Each case: a call, its setting, and what is done first
my $n_value = 0;
my %calls = (
    set => sub { my $value = 1000 + $n_value++; return ('work_mem', "set('work_mem', '${value}kB', reload => true)") },
    revert => sub {
        $db->sql(q{CALL pgscale.set('work_mem', '88kB', change => 0)});
        return ('work_mem', 'revert(' . last_change() . ')');
    },
    apply_all => sub { return ('pgscale.sampler', 'apply_all(dry_run => false)') });

# Makes the call with such orders: what is wrong then, its SQLSTATE, its answer, whether it was hit and how many calls there were;
# and whether it has changed the file.
sub meets
{
    my ($name, %order) = @_;
    my ($original, $before) = (file(), last_change() || 0);
    my ($setting, $call) = $calls{$name}->();
    my ($was, $last) = (plain_line($setting), last_change() || 0);
    my ($state, $answer, $hits, $counted) = hit($call, %order);
    my $changed = plain_line($setting) ne $was;
    my @wrong = (wrong($setting, $was, $last, $answer), back($original, $before));

    return ([ map { "$order{left} ($state): $_" } @wrong ], $state, $answer, $hits, $counted, $changed);
}

### Each call about the file fails, and from one on all of them, so that what was done cannot even be read again

my ($told, $unread) = ('', '');
for my $case ((map { [ $_, 0 ] } sort keys %calls), [ 'set', 1 ])
{
    my ($name, $always) = @$case;
    my ($n, $wrong, $state, $answer, $hits, $changed);

    for ($n = 0; $n < 100; $n++)
    {
        ($wrong, $state, $answer, $hits, undef, $changed) =
          meets($name, kinds => $FILES, left => $n, error => $EIO, always => $always);
        last if !$hits || @$wrong;
        $unread .= $answer if $state eq '00000';
        $told .= $answer if $state ne '00000' && $changed;
    }
    is("@$wrong $state", ' 00000', "$name, if a call about the file fails" . ($always ? ' and all that follow' : ''));
    cmp_ok($n, '>', 5, 'there are such calls');
}
like($told, qr/^DETAIL: .*has the new line all the same.*^HINT: /ms, 'some changed the file all the same, and said so');
like($unread, qr/WARNING: .*cannot be read now, so it is unknown whether it has the line$/m, 'one could not be read again, which is told');

### Killed before the act, within, and after it

for (my $n = 0;; $n++)
{
    my ($wrong, undef, undef, $hits) = meets('set', kinds => $kinds{sync} | $kinds{rename}, left => $n, error => $SIGKILL);

    last if !$hits && $n;
    is("@$wrong", '', "killed at call $n");
}
# What stands there by hand meanwhile: another line than the one that it would have made, and that line
{
    my $before = file();
    my $below = change($db, q{set('work_mem', '5MB')});
    hit(q{set('work_mem', '6MB')}, kinds => $kinds{rename}, left => 0, error => $SIGKILL);
    my $killed = last_change();
    is(journal('state', $killed) . journal('state', $below), 'begunpending reload', 'the journal has what was begun, and the change before it stands');
    $db->sql(q{ALTER SYSTEM SET work_mem = '1MB'});
    refused_ok($db, "revert($killed)", '55000', qr/changed by hand since/, 'one of which is not known whether it was made');
    like(journal('state, message', $killed), qr/^changed by hand.*it is unknown whether/, 'says so');
    $db->sql(q{ALTER SYSTEM SET work_mem = '6MB'});
    is(journal('state', $below), 'superseded', 'what a session has made right before its end is not called changed by hand');
    change($db, "revert($_)") for $killed, $below;
    is(file(), $before, 'and both can be reverted');
}
# Nothing is lost by a crash right after, whatever synchronous_commit is.
{
    my $before = file();
    my (undef, $change) = map { change($db, "set('work_mem', '${_}MB')") } 4, 5;
    $_->quit for $session, $db;
    $node->stop('immediate');
    {
        local $ENV{LD_PRELOAD} = $library;
        $node->start;
    }
    ($db, $session) = map { session($node) } 1 .. 2;
    $db->sql('SET client_min_messages = warning');
    is(journal('old_value, new_value', $change), '4MB|5MB', 'what was changed is in the journal after a crash');
    is(join(' ', back($before, $change - 2)), '', 'and can be reverted');
}

### Memory that is refused, and signals, at moments all over a call: how many there are is counted first

my $times = $ENV{PGSCALE_TEST_FULL} ? 3 : 1;
my $seed = $ENV{PGSCALE_TEST_SEED} // time;
note "PGSCALE_TEST_SEED=$seed";
srand $seed;
for my $case ([ 'refused memory', $ENOMEM, 8 * $times ], [ 'a cancel', $SIGINT, 4 * $times ], [ 'SIGTERM', $SIGTERM, 2 * $times ])
{
    my ($what, $error, $moments) = @$case;
    my $failed = 0;

    # once more if all were harmless
    for my $name ((sort keys %calls) x 4)
    {
        my ($wrong, $state, $count);

        last if $failed && $name eq (sort keys %calls)[0];
        for my $moment (0 .. $moments)
        {
            # one in each part of it
            my $n = $moment ? int(($moment - rand 1) / $moments * $count) : 1_000_000;
            ($wrong, $state, undef, undef, my $counted) = meets($name, kinds => $ALL, left => $n, error => $error);

            $count = $counted unless $moment;
            $failed++ if $state ne '00000';
            last if @$wrong;
        }
        is("@$wrong", '', "$what at any moment of $name");
    }
    cmp_ok($failed, '>', 0, "$what ends some of them");
}

### Whether the server would start is asked a server, as a process of its own: waiting for it ends as any wait and leaves nothing

my $folder = $node->data_dir;
sub asked
{
    my $command = qr/\Q$folder\E.*shared_memory_size|shared_memory_size.*\Q$folder\E/s;

    return grep { (eval { slurp_file("/proc/$_/cmdline") } // '') =~ $command } map { m{(\d+)$} } glob '/proc/[0-9]*';
}
sub left { return join ' ', asked(), glob "$folder/base/pgsql_tmp/*" }

# Starts a change; the server that is asked has stopped then.
sub stopped
{
    my $value = shift;
    my @asked;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    order(pid => -2);
    $session->start("CALL pgscale.set('max_connections', '$value')");
    until_ok(sub { @asked = asked(); @asked == 1 && process_state($asked[0]) eq 'T' }, 'a server that is asked stops');
    return $asked[0];
}
my ($original, $last) = (file(), last_change());
for my $case ([ 'a cancel', '57014', 'pg_cancel_backend' ], [ 'SIGTERM', '57P01', 'pg_terminate_backend' ])
{
    my ($what, $expected, $function) = @$case;
    my $pid = $session->pid;

    stopped(50);
    $db->sql("SELECT $function($pid)");
    my ($state) = eval { $session->finish };
    is($state // '57P01', $expected, "$what ends the session that waits");
    until_ok(sub { left() eq '' }, 'and the process, and its folder');
    order();
    if ($expected eq '57P01') { $session->quit; $session = session($node) }
}
# on a full disk nothing can be made for it, which is said with what helps
for my $file (qw(PG_VERSION global/pg_control postgresql.auto.conf))
{
    my ($state, $answer) =
      hit(q{set('max_connections', '50')}, kinds => $kinds{open}, left => 0, error => $ENOSPC, word => ".start/$file");

    like("$state $answer", qr/^53100 .*No space left on device\nHINT:  Free space .*; force => true skips the check/s, "no space for $file");
    is(left(), '', 'nothing is left');
}
is(file() eq $original && last_change() == $last, 1, 'nothing was changed');
# one that ends by a signal has said nothing, whether it is asked with the change or, once it has refused that, without
for my $value (50, 3)
{
    my $asked = stopped($value);

    like(slurp_file("/proc/$asked/cmdline"), qr/\0-c\0ssl_passphrase_command=\0/, 'whatever the files get meanwhile, it runs no command');
    if ($value == 3)
    {
        kill 'CONT', $asked;
        my $first = $asked;
        until_ok(sub { ($asked) = grep { $_ != $first } asked(); $asked && process_state($asked) eq 'T' }, 'it is asked without the change');
    }
    kill 'KILL', $asked;
    my ($state, $answer) = $session->finish;
    like("$state $answer", qr/^00000 .*WARNING: .*it is unknown whether the server would start again\nDETAIL: .* was terminated by signal 9$/ms,
        'the change is made, with a warning');
    order();
    is(join(' ', left(), back($original, $last)), '', 'nothing is left');
}
$session->quit;

### Other sessions

# A hand between the journal's row and the act. The session is held there by a lock that was asked for in between. Waiting for a lock
# ends by a cancel: t/pgscale_cancel.pl.
$db->sql('RESET client_min_messages');
my ($holder, $first, $hand) = map { session($node) } 1 .. 3;
my $waits = sub { $db->poll_ok("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = " . $_[0]->pid, $_[1], 1) };
my $journal = 'LOCK TABLE pgscale_internal.tuning_change IN';
$holder->sql("BEGIN; $journal SHARE MODE");
$first->start(q{CALL pgscale.set('work_mem', '6MB')});
$waits->($first, 'a session waits for the journal');
$hand->start("BEGIN; $journal ACCESS EXCLUSIVE MODE");
$waits->($hand, 'the next one waits behind');
$holder->sql('COMMIT');
$hand->finish;
$waits->($first, 'it is in the middle');
$db->sql(q{ALTER SYSTEM SET work_mem = '1MB'});
my $by_hand = file();
$hand->sql('ROLLBACK');
like(join(' ', $first->finish), qr/^55000 .*changed by hand meanwhile: .* had no line and has "1MB".*^HINT: /ms,
    'a line that was changed by hand meanwhile is not changed');
is(file() eq $by_hand && journal('state', last_change()), 'failed', 'the hand has its way, and the journal has it');
$db->sql('ALTER SYSTEM RESET work_mem');
$_->quit for $holder, $first, $hand;

# Of two databases at the same settings
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION pgscale');
my %at = map { $_ => session($node, dbname => $_) } qw(postgres other);
my $earlier_ones = last_change();
my @changers = map { session($node, dbname => $_) } qw(postgres other postgres other);
for my $i (0 .. $#changers)
{
    $changers[$i]->start(<<"EOQ");
SET client_min_messages = warning;
DO \$\$
DECLARE
    change bigint;
BEGIN
    FOR i IN 1..6 LOOP
        CALL pgscale.set('work_mem', (1000 * ($i + 1) + i) || 'kB', change => change);
        CALL pgscale.set('@{[ $i % 2 ? 'commit_siblings' : 'commit_delay' ]}', (100 * ($i + 1) + i)::text, change => change);
    END LOOP;
END \$\$
EOQ
}
is(join(' ', map { ($_->finish)[0] } @changers), '00000 00000 00000 00000', 'four sessions of two databases change settings');
my @all = sort { $a->[5] cmp $b->[5] } map { my $name = $_; map { [ $name, split /\|/ ] } split /\n/, $at{$name}->sql(
    q{SELECT change, setting, coalesce(old_value, '-'), new_value, applied_at FROM pgscale.tuning_journal
        WHERE state IN ('applied', 'pending reload', 'superseded', 'changed by hand') AND change > } . ($name eq 'postgres' ? $earlier_ones : 0)) } keys %at;
is(scalar @all, 48, 'all of their changes were made');
my (%is, @broken);
for my $made (@all)
{
    my (undef, undef, $setting, $old, $new) = @$made;

    push @broken, "@$made" if ($is{$setting} // '-') ne $old;
    $is{$setting} = $new;
}
is("@broken", '', 'each saw what the one before had left');
is(plain_line($_), $is{$_}, "and the last one's $_ is in the file") for sort keys %is;
my ($latest, @others) = grep { $_->[2] eq 'work_mem' } reverse @all;
my ($earlier) = grep { $_->[0] ne $latest->[0] } @others;
refused_ok($at{ $earlier->[0] }, "revert($earlier->[1])", '55000', qr/changed by hand since/, 'what another database has changed since stays');
change($at{ $_->[0] }, "revert($_->[1])") for reverse @all;
is(file(), $original, 'all of them reverted, the file is as it was');
$_->quit for $db, values %at, @changers;
$node->stop;
done_testing();
