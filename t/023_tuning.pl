# Changes of settings: crashes before, in and after the act, sessions that are cancelled or want the same, a hand in between; and
# several databases.
use strict;
use warnings;
use PgscaleTest;
use PgscaleTuning;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

tuning_node();

# Nothing is lost by a crash right after, whatever synchronous_commit is.
my $first = change($db, q{set('work_mem', '5MB')});
my @pids = split /\n/, $db->sql('SELECT pid FROM pg_stat_activity');
push @pids, (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];
kill_postmaster($node);
until_true(sub { !grep { process_state($_) } @pids });
$node->start;
reconnect();
is(journal('state, old_value, new_value', $first), 'applied||5MB', 'what was changed is in the journal after a crash');
change($db, "revert($first)");
is(line('work_mem'), undef, 'and can be reverted');

# An act that fails
my $before = file();
mkdir $node->data_dir . '/postgresql.auto.conf.tmp' or die $!;
refused_ok($db, q{set('work_mem', '7MB')}, '42809', qr/postgresql.auto.conf.tmp/, 'a file that cannot be written');
rmdir $node->data_dir . '/postgresql.auto.conf.tmp';
is($db->sql('SELECT state, sqlstate FROM pgscale.tuning_journal ORDER BY change DESC LIMIT 1'), 'failed|42809', 'the journal has it');
refused_ok($db, 'revert(' . $db->sql('SELECT max(change) FROM pgscale.tuning_journal') . ')', '55000', qr/was not made/,
    'nothing to revert');

# Sessions that wait in line between the journal and the act: theirs is a lock on the table, which somebody asked for after the
# journal's row was to be written, and before it was to be held.
my ($victim, $share, $exclusive);

sub hold_in_the_middle
{
    my $call = shift;

    ($victim, $share, $exclusive) = map { session($node) } 1 .. 3;
    $share->sql('BEGIN; LOCK TABLE pgscale_internal.tuning_change IN SHARE MODE');
    $victim->start("CALL pgscale.$call");
    $db->poll_ok("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = " . $victim->pid, 'it waits for the journal', 1);
    $exclusive->start('BEGIN; LOCK TABLE pgscale_internal.tuning_change IN ACCESS EXCLUSIVE MODE');
    $db->poll_ok("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = " . $exclusive->pid, 'the next one waits behind', 1);
    $share->sql('COMMIT');
    $exclusive->finish;
    $db->poll_ok("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = " . $victim->pid, 'it is in the middle', 1);
    return;
}

hold_in_the_middle(q{set('work_mem', '6MB')});
$before = file();
unlike($before, qr/work_mem/, 'killed before the act');
kill 'KILL', $victim->pid;
$_->quit for $victim, $share, $exclusive;
reconnect();
my $killed = last_change();
is(journal('state', $killed), 'begun', 'the journal has what was begun');
refused_ok($db, "revert($killed)", '55000', qr/was not made/, 'a change that never was');
is(journal('state, message', $killed), 'failed|the session ended before the change was made', 'which the next call found out');
is(file(), $before, 'the file is as it was');

hold_in_the_middle(q{set('work_mem', '6MB')});
kill 'KILL', $victim->pid;
$_->quit for $victim, $share, $exclusive;
reconnect();
$killed = last_change();
$db->sql(q{ALTER SYSTEM SET work_mem = '6MB'});    # what it would have done right before its end
change($db, "revert($killed)");
is(line('work_mem'), undef, 'one that was made right before its session was killed can be reverted');
is(file(), $before, 'and the file is as it was');

my $before_it = change($db, q{set('work_mem', '5MB')});
hold_in_the_middle(q{set('work_mem', '6MB')});
kill 'KILL', $victim->pid;
$_->quit for $victim, $share, $exclusive;
reconnect();
$killed = last_change();
is(journal('state', $before_it), 'pending reload', 'the change before one that was not made stands');
$db->sql(q{ALTER SYSTEM SET work_mem = '6MB'});    # likewise
is(journal('state', $before_it), 'superseded', 'what a session has made right before its end is not called changed by hand');
change($db, "revert($_)") for $killed, $before_it;
is(file(), $before, 'and both can be reverted');

hold_in_the_middle(q{set('work_mem', '6MB')});
kill 'KILL', $victim->pid;
$_->quit for $victim, $share, $exclusive;
reconnect();
$killed = last_change();
$db->sql(q{ALTER SYSTEM SET work_mem = '1MB'});
refused_ok($db, "revert($killed)", '55000', qr/changed by hand since/, 'one of which is not known whether it was made');
like(journal('state, message', $killed), qr/^changed by hand.*is not known$/, 'says so');
$db->sql(q{ALTER SYSTEM SET work_mem = '6MB'});
change($db, "revert($killed)");
is(file(), $before, 'and can be reverted once the line is what it would have made');

# Cancelled there
hold_in_the_middle(q{set('work_mem', '6MB')});
$db->sql('SELECT pg_cancel_backend(' . $victim->pid . ')');
is(($victim->finish)[0], '57014', 'what waits in the middle can be cancelled');
$exclusive->sql('ROLLBACK');
is(file(), $before, 'and has done nothing');
$killed = last_change();
is(change($victim, q{set('work_mem', '6MB')}), $killed + 1, 'the next one can go on');
is(journal('state', $killed), 'failed', 'knowing that the former was not made');
change($victim, 'revert(' . ($killed + 1) . ')');
$_->quit for $victim, $share, $exclusive;

# A hand there: what the journal has as the old line is the old line no more.
hold_in_the_middle(q{set('work_mem', '6MB')});
$db->sql(q{ALTER SYSTEM SET work_mem = '1MB'});
my $by_hand = file();
$exclusive->sql('ROLLBACK');
my ($race, $words) = $victim->finish;
is($race, '55000', 'a line that was changed by hand meanwhile is not changed');
like($words, qr/changed by hand meanwhile: .* had no line and has "1MB".*^HINT: /ms, 'in these words');
is(file(), $by_hand, 'and the hand has its way');
is(journal('state', last_change()), 'failed', 'the journal has it');
$db->sql('ALTER SYSTEM RESET work_mem');
$_->quit for $victim, $share, $exclusive;

# The lock on changes: waiting for it ends as any wait.
my ($holder, $waiter) = map { session($node) } 1 .. 2;
$holder->sql('BEGIN; LOCK TABLE pgscale_internal.tuning_change IN SHARE MODE');
$victim = session($node);
$victim->start(q{CALL pgscale.set('work_mem', '6MB')});
$db->poll_ok("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = " . $victim->pid, 'one holds the lock on changes', 1);
$waiter->sql(q{SET statement_timeout = '200ms'});
is(($waiter->try(q{CALL pgscale.set('work_mem', '7MB')}))[0], '57014', 'another one waits no longer than statement_timeout');
$waiter->sql(q{RESET statement_timeout; SET lock_timeout = '200ms'});
is(($waiter->try(q{CALL pgscale.set('work_mem', '7MB')}))[0], '55P03', 'nor than lock_timeout');
$waiter->sql('RESET lock_timeout');
$waiter->start(q{CALL pgscale.set('work_mem', '8MB')});
$db->poll_ok("SELECT count(*) FROM pg_locks WHERE NOT granted AND locktype = 'object' AND pid = " . $waiter->pid, 'and waits', 1);
$holder->sql('COMMIT');
my ($one) = ($victim->finish)[1] =~ /(\d+)\s*\z/;
my ($two) = ($waiter->finish)[1] =~ /(\d+)\s*\z/;
is(journal('old_value', $two), '6MB', 'until the first is done');
refused_ok($db, "revert($one)", '55000', qr/changed again since, by change $two/, 'the first is superseded');
change($db, "revert($two)");
change($db, "revert($one)");
is(file(), $before, 'both can be reverted');
$_->quit for $holder, $waiter, $victim;

# Sessions of two databases at the same settings
$node->safe_psql('postgres', 'CREATE DATABASE other');
$node->safe_psql('other', 'CREATE EXTENSION pgscale');
my $there = session($node, dbname => 'other');
my @changers = map { session($node, dbname => $_) } qw(postgres other postgres other);
for my $i (0 .. $#changers)
{
    my $own = $i % 2 ? 'commit_siblings' : 'commit_delay';
    $changers[$i]->start(<<"EOQ");
SET client_min_messages = warning;
DO \$\$
DECLARE
    change bigint;
BEGIN
    FOR i IN 1..6 LOOP
        CALL pgscale.set('work_mem', (1000 * ($i + 1) + i) || 'kB', change => change);
        CALL pgscale.set('$own', (100 * ($i + 1) + i)::text, change => change);
    END LOOP;
END \$\$
EOQ
}
is(join(' ', map { ($_->finish)[0] } @changers), '00000 00000 00000 00000', 'four sessions of two databases change settings');
$_->quit for @changers;
my @all = map { [ split /\|/ ] } map {
    my ($session, $name) = @$_;
    split /\n/, $session->sql("SELECT '$name', change, setting, coalesce(old_value, '-'), new_value, applied_at FROM pgscale.tuning_journal
        WHERE state IN ('applied', 'pending reload', 'superseded', 'changed by hand') AND revert_of IS NULL")
} ([ $db, 'postgres' ], [ $there, 'other' ]);
@all = sort { $a->[5] cmp $b->[5] } @all;
is(scalar @all, 48, 'all of their changes were made');
my (%at, @broken);
for my $change (@all)
{
    push @broken, "@$change" if ($at{ $change->[2] } // '-') ne $change->[3];
    $at{ $change->[2] } = $change->[4];
}
is("@broken", '', 'each saw what the one before had left');
is(line($_), $at{$_}, "and the last one's $_ is in the file") for sort keys %at;

my ($mine) = grep { $_->[0] eq 'postgres' && $_->[2] eq 'work_mem' } reverse @all;
my ($theirs) = grep { $_->[0] eq 'other' && $_->[2] eq 'work_mem' } reverse @all;
my ($latest, $earlier) = $mine->[5] gt $theirs->[5] ? ($mine, $theirs) : ($theirs, $mine);
refused_ok($earlier->[0] eq 'other' ? $there : $db, "revert($earlier->[1])", '55000', qr/changed by hand since/,
    'what another database has changed since is not overwritten');
change($_->[0] eq 'other' ? $there : $db, "revert($_->[1])") for reverse @all;
is(file(), $before, 'all of them reverted, the file is as it was');
$there->quit;

# Killed at random
my $before_kills = last_change();
my @wrong;
for my $round (1 .. ($ENV{PGSCALE_TEST_FULL} ? 5 : 2))
{
    my $killed_one = session($node);
    my $was = line('work_mem');

    $killed_one->start(<<'EOQ');
SET client_min_messages = warning;
DO $$
DECLARE
    change bigint;
BEGIN
    FOR i IN 1..1000 LOOP
        CALL pgscale.set('work_mem', (1000 + i) || 'kB', change => change);
    END LOOP;
END $$
EOQ
    until_true(sub { ($db->sql('SELECT count(*) FROM pgscale.tuning_journal') // 0) > 0 && (line('work_mem') // '') ne ($was // '') });
    Time::HiRes::usleep(int rand 20_000);
    kill 'KILL', $killed_one->pid;
    $killed_one->quit;
    reconnect();
    change($db, q{set('commit_siblings', '4')});    # finds out
    is($db->sql(q{SELECT count(*) FROM pgscale.tuning_journal WHERE state = 'begun'}), 0, "round $round: nothing is left as begun");
    is($db->sql(q{SELECT new_value FROM pgscale.tuning_journal WHERE setting = 'work_mem' AND state <> 'failed' ORDER BY change DESC LIMIT 1}),
        line('work_mem'), 'and the last change is in the file');
    is($db->sql(q{SELECT count(*) FROM (SELECT old_value, lag(new_value) OVER (ORDER BY change) AS before FROM pgscale.tuning_journal
        WHERE setting = 'work_mem' AND state IN ('applied', 'pending reload', 'superseded') AND revert_of IS NULL AND change > } . "$before_kills) c WHERE old_value <> before"),
        0, 'none was lost');
}
$db->sql('SET client_min_messages = warning');
for my $id (split /\n/, $db->sql(q{SELECT change FROM pgscale.tuning_journal WHERE revert_of IS NULL AND state NOT IN ('failed', 'reverted')
    AND change > } . "$before_kills ORDER BY change DESC"))
{
    my ($got, $text) = $db->try("CALL pgscale.revert($id)");
    push @wrong, $text if $got ne '00000';
}
is("@wrong", '', 'all can be reverted');
is(file(), $before, 'and the file is as it was');
$db->quit;
$node->stop;
done_testing();
