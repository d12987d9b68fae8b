# Changes of settings when the system fails, or when somebody cancels: each of the calls that open, write, sync or rename
# postgresql.auto.conf fails in turn, memory is refused, a cancel or SIGTERM comes at it. Whatever it is, the journal then says what is true of
# the file, all of it can be reverted, and the session is as it was.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my %kinds = (open => 1, write => 2, sync => 4, rename => 8, memory => 16);
my ($EIO, $ENOMEM, $ENOSPC, $SIGINT, $SIGTERM) = (5, 12, 28, -2, -15);

my $library = PostgreSQL::Test::Utils::tempdir() . '/faults.so';
system("cc -shared -fPIC -o $library t/lib/faults.c -ldl >$library.out 2>&1") == 0
  or plan skip_all => 'no compiler: ' . slurp_file("$library.out");
chmod 0755, $library or die $!;
my $orders = PostgreSQL::Test::Utils::tempdir() . '/orders';

sub order
{
    my (%order) = @_;

    my $file;

    open($file, '+<', $orders) or open($file, '>', $orders) or die $!;
    print $file pack 'l6 Z64 Z1024', $order{pid} // 0, $order{kinds} // 0, $order{n} // 0, $order{error} // 0, 0, $order{always} // 0,
      $order{word} // 'postgresql.auto.conf', $order{folder} // '/';
    close $file;
    return;
}

# How often it has happened, and how many calls were yet to come before it would
sub orders_done { return (unpack 'l6', slurp_file($orders))[ 4, 2 ]; }

order();
$ENV{PGSCALE_FAULTS} = $orders;
my $node;
{
    local $ENV{LD_PRELOAD} = $library;
    # Without its sampler there is advice at once: to switch it on.
    $node = pgscale_node('main', conf => <<'EOC');
fsync = on
pgscale.sampler = off
checkpoint_timeout = 1h
EOC
}
my $folder = $node->data_dir;
my $watcher = session($node);
$watcher->sql('CREATE TABLE committed (n int)');
my $db = session($node);
my $rows = 0;

sub file { return slurp_file("$folder/postgresql.auto.conf"); }

# The value of the line that a setting has, of which none here needs quotes; '-' if it has none
sub line
{
    my $setting = shift;

    return file() =~ /^\Q$setting\E = '(.*)'$/m ? $1 : '-';
}

# How the call ends when the n-th of these kinds is hit: its SQLSTATE, its answer, whether it was, and how many there were if not
sub hit
{
    my ($call, %order) = @_;
    my ($state, $answer) = ('57P01', 'the connection is lost');

    order(pid => $db->pid, folder => $folder, %order);
    eval { ($state, $answer) = $db->try("CALL pgscale.$call"); 1 } or do { $db->quit; $db = undef };
    my ($hits, $left) = orders_done();
    order();
    # What is told to end at the very end of a call ends after its answer.
    if ($db && $hits && ($order{error} // 0) == $SIGTERM)
    {
        $db->quit;
        $db = undef;
    }
    $db //= session($node);
    return ($state, $answer, $hits, $order{n} - $left);
}

# All that must be true then, of what a call may have done to the setting, whose line was this
sub wrong
{
    my ($setting, $was, $last, $answer) = @_;
    my $is = line($setting);
    my @wrong;
    my $row = sub {
        return $watcher->sql("SELECT count(*) || ' ' || coalesce(max(split_part(state, ' ', 1) || ' ' || coalesce(old_value, '-') || ' '
            || coalesce(new_value, '-')), '') FROM pgscale.tuning_journal WHERE change > $last AND setting = '$setting'");
    };
    my $before = $row->();

    # the session first, with no statement before: it works, and keeps what it is told to
    $rows++;
    my ($state, $text) = $db->try("INSERT INTO committed VALUES ($rows)");
    push @wrong, "insert: $text" if $state ne '00000';
    push @wrong, 'what was committed is lost' if $watcher->sql('SELECT count(*) FROM committed') ne $rows;
    push @wrong, 'the session has changed'
      if $db->sql(q{SELECT current_user = session_user, current_setting('search_path'), current_setting('is_superuser'),
        current_setting('transaction_isolation')}) ne 't|"$user", public|on|read committed';
    push @wrong, 'it holds something: ' . $_
      for split /\n/, $watcher->sql('SELECT backend_xmin, backend_xid, state FROM pg_stat_activity WHERE pid = ' . $db->pid
        . q{ AND (backend_xmin IS NOT NULL OR backend_xid IS NOT NULL OR state <> 'idle')});
    push @wrong, 'it holds a lock' if $watcher->sql('SELECT count(*) FROM pg_locks WHERE pid = ' . $db->pid) ne '0';
    push @wrong, 'a file is left' if -e "$folder/postgresql.auto.conf.tmp";

    # the next change finds out what is not known
    $watcher->sql(q{SET client_min_messages = error; CALL pgscale.set('commit_siblings', '5', change => 0)});
    my $after = $row->();
    my $expected = $is eq $was ? qr/^(0 |1 failed .*)$/ : qr/^1 (applied|pending|overridden) \Q$was\E \Q$is\E$/;
    push @wrong, "$was became $is, and the journal has $before, then $after" if $after !~ $expected;
    # what it says at once must not be wrong either
    push @wrong, "$was became $is, and the journal had $before" if $before !~ $expected && $before !~ /^1 begun /;
    push @wrong, "it said: $answer" if $is ne $was && $answer =~ /Nothing was changed/;
    push @wrong, "it said: $answer" if $answer =~ /changed by hand/;
    return @wrong;
}

sub last_change { return $watcher->sql('SELECT coalesce(max(change), 0) FROM pgscale.tuning_journal'); }

# Takes back all that stands since; the file must then be what it was.
sub back
{
    my ($original, $last) = @_;
    my @wrong;

    for my $change (split /\n/, $watcher->sql(qq{SELECT change FROM pgscale.tuning_journal WHERE change > $last AND revert_of IS NULL
        AND state NOT IN ('failed', 'reverted') ORDER BY change DESC}))
    {
        my ($state, $text) = $watcher->try("CALL pgscale.revert($change)");
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
        $watcher->sql(q{CALL pgscale.set('work_mem', '88kB', change => 0)});
        return ('work_mem', 'revert(' . last_change() . ')');
    },
    apply_all => sub { return ('pgscale.sampler', 'apply_all(dry_run => false)') });

$watcher->sql('SET client_min_messages = warning');
my ($changed_although, $told, $unread) = (0, '', '');
for my $case (
    [ 'open', $EIO ], [ 'write', $ENOSPC ], [ 'sync', $EIO ], [ 'rename', $EIO ],
    # from the n-th file call on, all of them: what was done cannot even be read again
    [ 'open', $EIO, 1 ])
{
    my ($kind, $error, $always) = @$case;

    for my $name ($always ? 'set' : sort keys %calls)
    {
        my @wrong;
        my $n = 0;

        for (;; $n++)
        {
            my ($original, $before) = (file(), last_change());
            my ($setting, $call) = $calls{$name}->();
            my ($was, $last) = (line($setting), last_change());
            my ($state, $answer, $hits) = hit($call, kinds => $kinds{$kind}, n => $n, error => $error, always => $always);

            push @wrong, map { "$n: $_" } wrong($setting, $was, $last, $answer);
            $unread .= $answer if $state eq '00000' && $hits;
            if ($state ne '00000' && line($setting) ne $was)
            {
                $changed_although++;
                $told = $answer if $answer =~ /has the new line/;
            }
            push @wrong, map { "$n, back: $_" } back($original, $before);
            push @wrong, "$n: $state: $answer" if !$hits && $state ne '00000';
            last if !$hits || @wrong || $n > 100;
        }
        is("@wrong", '', "$name, if each $kind of $n fails" . ($always ? ' and all that follow' : ''));
        $n > 0 or fail('there were such calls');
    }
}
cmp_ok($changed_although, '>', 0, 'some changed the file all the same');
like($told, qr/^DETAIL: .*has the new line all the same.*^HINT: /ms, 'and said so');
like($unread, qr/WARNING: .*cannot be read now: whether it has the line is not known$/m, 'one could not be read again, which is told');

# Whether the server would start it is asked itself, as a process of its own: waiting for that one ends as any wait, and leaves neither
# the process nor the folder that was made for it.
sub asked { return grep { (eval { slurp_file("/proc/$_/cmdline") } // '') =~ /\Q$folder\E.*shared_memory_size|shared_memory_size.*\Q$folder\E/s } map { m{(\d+)$} } glob '/proc/[0-9]*' }
sub folders { return glob "$folder/base/pgsql_tmp/*" }
for my $case ([ 'a cancel', '57014', 'pg_cancel_backend' ], [ 'SIGTERM', '57P01', 'pg_terminate_backend' ])
{
    my ($what, $expected, $function) = @$case;
    my ($original, $last, $pid) = (file(), last_change(), $db->pid);

    order(pid => -2);
    $db->start(q{CALL pgscale.set('max_connections', '50')});
    until_ok(sub { my @asked = asked(); @asked == 1 && process_state($asked[0]) eq 'T' }, "$what: a server that is asked stops");
    is(scalar(my @folders = folders()), 1, 'it has a folder');
    $watcher->sql("SELECT $function($pid)");
    my ($state, $answer) = eval { $db->finish };
    is($state // '57P01', $expected, 'the session that waits for it ends that');
    unlike($answer // '', qr/has not answered/, 'at once');
    until_true(sub { $watcher->sql("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid") eq '0' }) if $expected eq '57P01';
    is(join(' ', asked()), '', 'and the process');
    is(join(' ', folders()), '', 'and the folder');
    order();
    if ($expected eq '57P01') { $db->quit; $db = session($node) }
    is(file() eq $original && last_change() == $last, 1, 'nothing was changed');
    is($db->sql('SELECT 1'), '1', 'a session goes on');
}
# On a full disk nothing can be made for it, which is said with what helps.
for my $file (qw(PG_VERSION global/pg_control postgresql.auto.conf))
{
    my ($original, $last) = (file(), last_change());
    my ($state, $answer) = hit(q{set('max_connections', '50')}, kinds => $kinds{open}, n => 0, error => $ENOSPC, word => ".start/$file");

    is($state, '53100', "there is no space for $file of the server that is asked");
    like($answer, qr/No space left on device\nHINT:  Free space .*; force => true does not ask/, 'which is said, and what helps');
    is(file() eq $original && last_change() == $last && !folders(), 1, 'nothing was changed, nothing is left');
}
# One that ends by a signal has said nothing, whether it is asked with the change or without.
for my $value (50, 3)
{
    my ($original, $last) = (file(), last_change());
    my @asked;

    order(pid => -2);
    $db->start("CALL pgscale.set('max_connections', '$value')");
    until_ok(sub { @asked = asked(); @asked == 1 && process_state($asked[0]) eq 'T' }, "$value: a server that is asked stops");
    like(slurp_file("/proc/$asked[0]/cmdline"), qr/\0-c\0ssl_passphrase_command=\0/, 'whatever the files get meanwhile, it runs no command');
    if ($value == 3)
    {
        my $first = $asked[0];

        kill 'CONT', $first;
        until_ok(sub { @asked = asked(); @asked == 1 && $asked[0] != $first && process_state($asked[0]) eq 'T' }, 'it refuses, and is asked without the change');
    }
    kill 'KILL', $asked[0];
    my ($state, $answer) = $db->finish;
    is($state, '00000', 'the change is made');
    like($answer, qr/WARNING: .*whether the server would start again is not known\nDETAIL: .* was terminated by signal 9$/m, 'with a warning');
    order();
    is(join(' ', asked(), folders(), back($original, $last)), '', 'nothing is left');
}
order(pid => -2);
until_true(sub { ($db->try(q{SET statement_timeout = '100ms'; CALL pgscale.set('max_connections', '50')}))[0] eq '57014' });
is(join(' ', asked(), folders()), '', 'a timeout leaves nothing either');
$db->sql('RESET statement_timeout');
if ($ENV{PGSCALE_TEST_FULL})
{
    my ($original, $last) = (file(), last_change());
    my ($state, $answer) = $db->try(q{CALL pgscale.set('max_connections', '50')});

    is($state, '00000', 'one that does not answer is given up');
    like($answer, qr/WARNING: .*whether the server would start again is not known\nDETAIL: .* has not answered within 10 s/, 'which is told');
    is(join(' ', asked(), folders(), back($original, $last)), '', 'and leaves nothing');
}
order();

# Memory that is refused, and signals, at moments all over a call: how many there are is counted first.
my $times = ($ENV{PGSCALE_TEST_TIMES} // 1) * ($ENV{PGSCALE_TEST_FULL} ? 3 : 1);
my @moments = ([ 'refused memory', $ENOMEM, 8 * $times ], [ 'a cancel', $SIGINT, 4 * $times ], [ 'SIGTERM', $SIGTERM, 2 * $times ]);
my $seed = $ENV{PGSCALE_TEST_SEED} // time;
note "PGSCALE_TEST_SEED=$seed";
srand $seed;
for my $case (@moments)
{
    my ($what, $error, $moments) = @$case;
    my ($kinds, $failed) = (0, 0);
    $kinds |= $_ for values %kinds;

    for my $name (qw(set revert apply_all))
    {
        my (@wrong, $count);

        for my $moment (0 .. $moments)
        {
            my ($original, $before) = (file(), last_change());
            my ($setting, $call) = $calls{$name}->();
            my ($was, $last) = (line($setting), last_change());
            # one in each part of it
            my $n = $moment ? int(($moment - rand 1) / $moments * $count) : 1_000_000;
            my ($state, $answer, $hits, $counted) = hit($call, kinds => $kinds, n => $n, error => $error);

            $count = $counted unless $moment;
            $failed++ if $state ne '00000';
            push @wrong, map { "$n of $count ($state): $_" } wrong($setting, $was, $last, $answer), back($original, $before);
            last if @wrong;
        }
        is("@wrong", '', "$what at any moment of $name");
    }
    cmp_ok($failed, '>', 0, "$what ends some of them");
}
done_testing();
