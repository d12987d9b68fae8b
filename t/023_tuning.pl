# Changes of settings: crashes in the middle, several sessions and databases, privileges, restarts, a standby, hands in between,
# advice that is followed, and what has become of the evidence.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# Under load all the while, for its evidence takes a while: see the end.
my $loaded = pgscale_node('loaded', conf => <<'EOC');
wal_buffers = 32kB
checkpoint_timeout = 1h
fsync = on
EOC
my $on_loaded = session($loaded);
$on_loaded->sql('CREATE TABLE written (id int, worker int, b text) WITH (fillfactor = 30)');
$on_loaded->sql(q{INSERT INTO written SELECT i, w, repeat('x', 500) FROM generate_series(1, 60) i, generate_series(1, 4) w});
my @workers = map { session($loaded) } 1 .. 4;
for my $i (1 .. 4)
{
    # statements of their own, as the server counts what a session has done when it waits for the next one
    $workers[ $i - 1 ]{in} .= "\\o /dev/null\nUPDATE written SET b = repeat(md5(random()::text), 16) WHERE worker = $i\n\\watch 0.01\n";
    $workers[ $i - 1 ]{psql}->pump_nb while length $workers[ $i - 1 ]{in};
}
my ($loaded_change) = $on_loaded->sql(q{CALL pgscale.set('commit_siblings', '6', reload => true)}) =~ /(\d+)/;
like($on_loaded->sql("SELECT verdict || ': ' || reason FROM pgscale.verify($loaded_change) LIMIT 1"),
    qr/^cannot tell: cannot tell: (no evidence was recorded before the change|only \d+ s)/, 'of what was not recorded nothing is told');

my $node = pgscale_node('main', init => [ allows_streaming => 1 ], conf => <<'EOC');
synchronous_commit = off
checkpoint_timeout = 1h
EOC
my $db = session($node);

sub file { return slurp_file($node->data_dir . '/postgresql.auto.conf'); }

sub write_file
{
    my $text = shift;

    open my $file, '>', $node->data_dir . '/postgresql.auto.conf' or die $!;
    print $file $text;
    close $file;
    return;
}

# The value of a setting's line, as the server itself reads it; undef if there is none.
sub line
{
    my $setting = shift;
    my $lines = $db->sql("SELECT setting || '<' FROM pg_file_settings WHERE name = '$setting' AND sourcefile LIKE '%auto.conf'
        ORDER BY seqno DESC LIMIT 1");

    return $lines =~ /\A(.*)<\z/s ? $1 : undef;
}

# CALL, and the change that it was
sub change
{
    my ($session, $call) = @_;
    my ($id) = $session->sql("SET client_min_messages = warning; CALL pgscale.$call; ") =~ /(\d+)\s*\z/;

    return $id;
}

sub journal
{
    my ($columns, $change) = @_;

    return $db->sql("SELECT $columns FROM pgscale.tuning_journal WHERE change = $change");
}

# How it is refused: nothing is changed in the file, and the lock is let go.
sub refused_ok
{
    my ($session, $call, $state, $text, $name) = @_;
    my $before = file();
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my ($got, $answer) = $session->try("CALL pgscale.$call");

    is($got, $state, $name);
    like($answer, $text, "$name: in these words");
    like($answer, qr/^HINT: /m, "$name: with a hint");
    is(file(), $before, "$name: the file is as it was");
    is($db->sql(q{SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND classid = 6243}), 0, "$name: no lock is left");
    return;
}

# After a crash, of which the postmaster may not know yet: first it ends all sessions.
sub reconnect
{
    until_true(sub { !kill 0, $db->pid }) or die 'the server has not noticed';
    $db->quit;
    until_true(sub { (psql_once($node, 'SELECT 1'))[0] == 0 }) or die 'the server is not back';
    $db = session($node);
    return;
}

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
    $share->sql('BEGIN; LOCK TABLE pgscale.tuning_change IN SHARE MODE');
    $victim->start("CALL pgscale.$call");
    $db->poll_ok("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = " . $victim->pid, 'it waits for the journal', 1);
    $exclusive->start('BEGIN; LOCK TABLE pgscale.tuning_change IN ACCESS EXCLUSIVE MODE');
    $db->poll_ok("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = " . $exclusive->pid, 'the next one waits behind', 1);
    $share->sql('COMMIT');
    $exclusive->finish;
    $db->poll_ok("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = " . $victim->pid, 'it is in the middle', 1);
    return;
}

sub last_change { return $db->sql('SELECT max(change) FROM pgscale.tuning_journal'); }

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
$holder->sql('BEGIN; LOCK TABLE pgscale.tuning_change IN SHARE MODE');
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
    FOR i IN 1..12 LOOP
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
is(scalar @all, 96, 'all of their changes were made');
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

# Privileges
$db->sql(<<'EOQ');
CREATE ROLE tuner LOGIN;
CREATE ROLE acting ROLE tuner;
GRANT USAGE ON SCHEMA pgscale TO tuner, acting;
GRANT ALTER SYSTEM ON PARAMETER work_mem TO tuner;
GRANT ALTER SYSTEM ON PARAMETER archive_command, ssl_passphrase_command TO tuner;
CREATE PROCEDURE wrapped() SECURITY DEFINER LANGUAGE plpgsql AS $$
DECLARE
    change bigint;
BEGIN
    CALL pgscale.set('port', '1', change => change);
END $$;
EOQ
my $tuner = session($node, user => 'tuner');
is(($tuner->try(qq{CALL pgscale.$_}))[0], '42501', "nobody may call $_")
  for q{set('work_mem', '1MB')}, 'revert(1)', q{apply('work_mem')}, 'apply_all()';
is(($tuner->try("SELECT * FROM $_"))[0], '42501', "nor read $_")
  for 'pgscale.verify(1)', 'pgscale.tuning_journal', 'pgscale.tuning_journal()', 'pgscale.tuning_change';
$db->sql('GRANT EXECUTE ON PROCEDURE pgscale.set, pgscale.revert, pgscale.apply_all TO tuner, acting');
$db->sql('GRANT EXECUTE ON FUNCTION pgscale.tuning_journal(), pgscale.verify TO tuner');
$db->sql('GRANT SELECT ON pgscale.tuning_journal TO tuner');
my $granted = change($tuner, q{set('work_mem', '3MB')});
is(journal('requested_by, acting_as', $granted), 'tuner|tuner', 'one who is granted ALTER SYSTEM on a setting may change it');
refused_ok($tuner, q{set('maintenance_work_mem', '3MB')}, '42501', qr/permission denied to set parameter/, 'and no other');
refused_ok($tuner, "revert($granted, reload => true)", '42501', qr/permission denied to reload/, 'nor reload');
is(($tuner->try('CALL wrapped()'))[0], '25001', 'nor through a procedure of somebody else');
$tuner->sql('SET ROLE acting');
refused_ok($tuner, "revert($granted)", '42501', qr/permission denied to set parameter/, 'nor as a role without that privilege');
$db->sql('GRANT ALTER SYSTEM ON PARAMETER work_mem TO acting');
my $as_role = change($tuner, "revert($granted)");
is(journal('requested_by, acting_as', $as_role), 'tuner|acting', 'both who it was and as whom are in the journal');
$tuner->sql('RESET ROLE');
isnt(($tuner->try('SELECT * FROM pgscale.tuning_change'))[0], '00000', 'the table is read by none');
$db->sql('GRANT EXECUTE ON FUNCTION pg_reload_conf() TO tuner');
change($tuner, 'revert(' . change($tuner, q{set('work_mem', '3MB', reload => true)}) . ', reload => true)');
is(file(), $before, 'the file is as it was');

# A setting that its readers may not see
$db->sql(q{ALTER SYSTEM SET ssl_passphrase_command = 'secret one'});
my $secret = change($tuner, q{set('ssl_passphrase_command', 'secret two')});
is($tuner->sql("SELECT old_value IS NULL, new_value IS NULL FROM pgscale.tuning_journal WHERE change = $secret"), 't|t',
    'values of settings that one may not read are not shown');
is(journal('old_value', $secret), 'secret one', 'but to those who may');
$db->sql("UPDATE pgscale.tuning_change SET message = 'secret two' WHERE change = $secret");
is($tuner->sql("SELECT message IS NULL FROM pgscale.tuning_journal WHERE change = $secret"), 't', 'nor errors that may quote them');
$db->sql(q{ALTER SYSTEM SET ssl_passphrase_command = 'secret three'});
unlike(join(' ', $tuner->try("CALL pgscale.revert($secret)")), qr/secret (one|three)/, 'nor in an error');
$db->sql('ALTER SYSTEM RESET ssl_passphrase_command');
is(file(), $before, 'the file is as it was');
$tuner->quit;

# Where ALTER SYSTEM is not allowed
SKIP:
{
    skip 'there is no allow_alter_system before 17', 5
      if $db->sql(q{SELECT count(*) FROM pg_settings WHERE name = 'allow_alter_system'}) eq '0';
    $node->append_conf('postgresql.conf', 'allow_alter_system = off');
    $node->reload;
    $db->poll_ok('SHOW allow_alter_system', 'ALTER SYSTEM is off', 'off');
    refused_ok($db, q{set('work_mem', '3MB')}, '0A000', qr/ALTER SYSTEM is not allowed/, 'ALTER SYSTEM that is off');
    $node->append_conf('postgresql.conf', 'allow_alter_system = on');
    $node->reload;
    $db->poll_ok('SHOW allow_alter_system', 'ALTER SYSTEM is on', 'on');
}

# Files that the server does not take: a reload does nothing, and pg_reload_conf() does not know
$node->append_conf('postgresql.conf', 'this = is = nothing');
like(($db->try(q{CALL pgscale.set('work_mem', '7MB', reload => true)}))[1], qr/WARNING: .*does not take "work_mem" from its files/,
    'a reload that will come to nothing is told');
is(journal('state, effective_at IS NULL', last_change()), 'pending reload|t', 'and the journal does not claim that it had an effect');
is($db->sql('SHOW work_mem'), '4MB', 'as it had none');
change($db, 'revert(' . last_change() . ')');
my $conf = slurp_file($node->data_dir . '/postgresql.conf');
$conf =~ s/^this = is = nothing\n//m;
open my $rewritten, '>', $node->data_dir . '/postgresql.conf' or die $!;
print $rewritten $conf;
close $rewritten;

# Files that an editor was at
write_file("$before\nwork_mem = 3MB  # by hand\nWORK_MEM '4MB'\nwork_mem 5MB # last\n");
my $edited = change($db, q{set('work_mem', '6MB')});
is(journal('old_value', $edited), '5MB', 'of several lines the last one counts');
change($db, "revert($edited)");
is(line('work_mem'), '5MB', 'and is put back');
write_file($before . q{cluster_name = 'a\nb'} . "\n");
refused_ok($db, q{set('work_mem', '6MB')}, 'F0000', qr/has a newline/, 'a line that ALTER SYSTEM would break');
my $included = $node->basedir . '/included.conf';
append_to_file($included, "work_mem = 3MB\n");
write_file("${before}include '$included'\n");
refused_ok($db, q{set('work_mem', '6MB')}, 'F0000', qr/includes file/, 'a file that includes another, which ALTER SYSTEM would copy');
write_file("$before\nthis = is = nothing\n");
refused_ok($db, q{set('work_mem', '6MB')}, 'F0000', qr/could not parse/, 'a file that cannot be read');
like($db->sql('SELECT DISTINCT state FROM pgscale.tuning_journal'), qr/reverted/, 'the journal can be read all the same');
write_file(qq{${before}work_mem = '\xe9'\n});
refused_ok($db, q{set('work_mem', '6MB')}, '22021', qr/not valid in this database's encoding/, 'a line that is no text');
write_file($before . "work_mem = 'much'\n");
my ($state, $answer) = $db->try(q{CALL pgscale.set('work_mem', '6MB')});
like($answer, qr/WARNING: .*work_mem.* had, "much", is not one that ALTER SYSTEM could put back/, 'a line that is not valid is told');
refused_ok($db, 'revert(' . last_change() . ')', '22023', qr/invalid value/, 'and cannot be put back');
write_file($before);

# What takes a restart
my $restart = change($db, q{set('max_connections', '51', reload => true)});
$db->poll_ok("SELECT state FROM pgscale.tuning_journal WHERE change = $restart", 'a change that waits for a restart',
    'pending restart');
is(journal('effective_at', $restart), '', 'is not in effect');
like($db->sql("SELECT reason FROM pgscale.verify($restart) LIMIT 1"), qr/takes effect when the server is started next/, 'says verify, too');
my $name = change($db, q{set('cluster_name', 'mine')});
$node->restart;
reconnect();
is(journal('state, effective_at >= applied_at', $restart), 'applied|t', 'after it, it is');
is(journal('state', $name), 'overridden', 'what the command line has set is told to be overridden');
change($db, "revert($_)") for $name, $restart;
is(file(), $before, 'the file is as it was');
$node->restart;
reconnect();

# The journal is of this server: a dump, which the database's owner may make, leaves it out; and where pg_upgrade has taken it
# along, the server is another one.
$db->sql('CREATE ROLE owning LOGIN; CREATE DATABASE owned OWNER owning');
my $owned = session($node, dbname => 'owned');
$owned->sql('CREATE EXTENSION pgscale');
my $of_owned = change($owned, q{set('work_mem', '7MB')});
$node->command_ok([ 'pg_dump', '-U', 'owning', '-f', $node->basedir . '/dump.sql', 'owned' ], 'the owner of a database dumps it');
unlike(slurp_file($node->basedir . '/dump.sql'), qr/tuning_change/, 'without the journal');
$owned->sql('UPDATE pgscale.tuning_change SET cluster = cluster + 1');
is($owned->sql("SELECT setting, new_value, state FROM pgscale.tuning_journal WHERE change = $of_owned"),
    'work_mem|7MB|of another server', 'what was changed on another server');
like(($owned->try("CALL pgscale.revert($of_owned, force => true)"))[1], qr/ERROR: .*another server/, 'cannot be reverted here');
$owned->sql('UPDATE pgscale.tuning_change SET cluster = cluster - 1');
my $as_changed = file();
$owned->quit;
until_true(sub { $db->sql(q{SELECT count(*) FROM pg_stat_activity WHERE datname = 'owned'}) eq '0' });
$db->sql('CREATE DATABASE copied TEMPLATE owned');
my $copied = session($node, dbname => 'copied');
is($copied->sql("SELECT setting, new_value, state FROM pgscale.tuning_journal WHERE change = $of_owned"),
    'work_mem|7MB|of another database', 'what was changed in the database of which this one is a copy');
refused_ok($copied, "revert($of_owned, force => true)", '55000', qr/is of another database/, 'is not reverted in the copy');
like(($copied->try("SELECT * FROM pgscale.verify($of_owned)"))[1], qr/ERROR: .*is of another database/, 'nor verified');
change($copied, 'revert(' . change($copied, q{set('work_mem', '8MB')}) . ')');
is(file(), $as_changed, 'the copy has a journal of its own');
$copied->quit;
$owned = session($node, dbname => 'owned');
change($owned, "revert($of_owned)");
is(file(), $before, 'and it is reverted where it was made');
$owned->quit;
$db->sql('DROP DATABASE owned');
$db->sql('DROP DATABASE copied');
$db->sql('DROP ROLE owning');

# A standby
$node->backup('backup');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'backup', has_streaming => 1);
$standby->start;
my $on_standby = session($standby);
until_ok(sub { $on_standby->sql('SELECT count(*) FROM pgscale.tuning_journal') eq $db->sql('SELECT count(*) FROM pgscale.tuning_journal') },
    'a standby has the journal');
for my $call (q{set('work_mem', '1MB')}, 'revert(1)', q{apply('work_mem')}, 'apply_all()')
{
    ($state, $answer) = $on_standby->try("CALL pgscale.$call");
    is($state, '25006', "no $call on a standby");
    like($answer, qr/on a standby.*^HINT: /ms, 'with a hint');
}
like(($db->try(q{CALL pgscale.set('max_connections', '60')}))[1], qr/NOTICE: .*a standby on which "max_connections" is less than 60/,
    'what standbys must follow is told');
change($db, 'revert(' . last_change() . ')');

# Once it is promoted, it has the primary's journal, and a postgresql.auto.conf of its own.
my @of_primary = map { change($db, "set('work_mem', '${_}MB')") } 6 .. 8;
until_ok(sub { $on_standby->sql('SELECT max(change) FROM pgscale.tuning_journal') eq $of_primary[2] }, 'changes of the primary');
is($on_standby->sql("SELECT state FROM pgscale.tuning_journal WHERE change = $of_primary[2]"), 'not on this node', 'are not on a standby');
$standby->promote;
is($on_standby->sql("SELECT state, node FROM pgscale.tuning_journal WHERE change = $of_primary[2]"),
    'not on this node|' . qx(uname -n | tr -d '\n') . ':' . $node->data_dir, 'nor on a promoted node, which tells where they are');
($state, $answer) = $on_standby->try("CALL pgscale.revert($of_primary[2])");
is($state, '55000', 'what is not there is not reverted');
like($answer, qr/made on another node, .*HINT: .*To make the change here: CALL pgscale.set\('work_mem', '8MB'\)/s, 'and how to make it is told');
like($on_standby->sql("SELECT reason FROM pgscale.verify($of_primary[2]) LIMIT 1"), qr/^cannot tell/, 'nor verified');
my $again = change($on_standby, q{set('work_mem', '8MB')});
like($on_standby->sql("SELECT state FROM pgscale.tuning_journal WHERE change = $again"), qr/^(applied|pending)/, 'it can be made there');
change($on_standby, "revert($again)");
is(($on_standby->try("CALL pgscale.revert($of_primary[0])"))[0], '55000', 'one below others');
like(($on_standby->try("CALL pgscale.revert($of_primary[0], force => true)"))[1], qr/^\d+\z/m, 'is reverted with them by force');
is($on_standby->sql("SELECT string_agg(DISTINCT state, ' ') FROM pgscale.tuning_journal WHERE change IN (" . join(',', @of_primary) . ')'),
    'reverted', 'and none is left');
$on_standby->quit;
$standby->stop;
change($db, "revert($_)") for reverse @of_primary;
is(file(), $before, 'where they were made they are reverted one by one');

# At random: changes, reverts, and hands in between. Here is a model of what must happen: of each setting a stack of changes that
# stand, of which the last can be reverted, if the line still is what it made it.
my $seed = $ENV{PGSCALE_TEST_SEED} // time;
note "PGSCALE_TEST_SEED=$seed";
srand $seed;
my %values = (
    work_mem => [ '1MB', '2 MB', '3000kB' ],
    search_path => [ q{"$user", public}, 'Public, "a b"', q{"it's"}, '' ],
    application_name => [ q{it's}, q{\\'"}, '', ' # ', "\t" ],
    commit_delay => [ 1, 2, '0x10' ]);
my (%line, %stack, %original, @wrong);
my $quoted = sub { my $v = shift; return 'NULL' unless defined $v; $v =~ s/'/''/g; return "'$v'"; };
my $escaped = sub { my $v = shift; $v =~ s/([\\'])/$1$1/g; return $v; };

$line{$_} = undef for keys %values;
for my $step (1 .. 150)
{
    my $setting = (sort keys %values)[ rand keys %values ];
    my $value = (@{ $values{$setting} }, undef)[ rand @{ $values{$setting} } + 1 ];
    my $stack = $stack{$setting} //= [];
    my $what = rand;

    if ($what < 0.45)
    {
        my $id = change($db, "set('$setting', " . $quoted->($value) . ')');
        push @$stack, [ $id, $line{$setting}, $value ];
        $line{$setting} = $value;
    }
    elsif ($what < 0.6)
    {
        # a hand with an editor
        my $text = join '', grep { !/^$setting /i } map { "$_\n" } split /\n/, file();
        $text .= "$setting = '" . $escaped->($value) . "'\n" if defined $value;
        write_file($text);
        $line{$setting} = $value;
    }
    elsif (@$stack)
    {
        my $i = rand() < 0.7 ? $#$stack : int rand @$stack;
        my ($id, $old, $new) = @{ $stack->[$i] };
        my $right = $i == $#$stack && ($new // "\0") eq ($line{$setting} // "\0");
        my $was = file();
        my ($got) = $db->try("SET client_min_messages = warning; CALL pgscale.revert($id)");

        push @wrong, "step $step: revert of $id: $got" if $got ne ($right ? '00000' : '55000') || (!$right && file() ne $was);
        next unless $right;
        pop @$stack;
        $line{$setting} = $old;
    }
    push @wrong, "step $step: $setting" if (line($setting) // "\0") ne ($line{$setting} // "\0");
}
is("@wrong", '', 'changes, reverts and hands at random do what they should');
for my $setting (sort keys %values)
{
    my $stack = $stack{$setting} // [];
    my $expected = @$stack ? $stack->[0][1] : $line{$setting};

    change($db, "revert($_->[0], force => true)") for reverse @$stack;
    is(line($setting), $expected, "all reverted, $setting is what it was before the first of them");
}
write_file($before);

# Killed at random
my $before_kills = last_change();
@wrong = ();
for my $round (1 .. 5)
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
$node->stop;

# Evidence of more than half a minute advises more WAL buffers. To compare, what was before the change is made up.
$PostgreSQL::Test::Utils::timeout_default = 120;
my $advised;
until_ok(sub {
    $advised = $on_loaded->sql(q{SELECT setting FROM pgscale.advice WHERE setting IS NOT NULL AND confidence <> 'low' LIMIT 1});
}, 'there is advice') or diag $on_loaded->sql('SELECT * FROM pgscale.advice_rules');
my ($got, $told) = $on_loaded->try('CALL pgscale.apply_all()');
is($got, '00000', 'a dry run');
like($told, qr/NOTICE: .*would set "$advised" to/, 'tells what would be set');
is($on_loaded->sql('SELECT count(*) FROM pgscale.tuning_journal'), 1, 'and sets nothing');
my $applied = change($on_loaded, "apply('$advised')");
is($on_loaded->sql("SELECT setting, old_value IS NULL, new_value <> '', reason IS NOT NULL, evidence IS NOT NULL, outcome IS NULL
    FROM pgscale.tuning_journal WHERE change = $applied"), "$advised|t|t|t|t|t", 'advice is followed, and why is written down');
$on_loaded->sql('RESET client_min_messages');
($got, $told) = $on_loaded->try('CALL pgscale.apply_all(dry_run => false)');
is($got, '00000', 'what is set already is no error');
like($told, qr/NOTICE: .*"$advised" already is set/, 'but told');
is(($on_loaded->try(q{CALL pgscale.apply('port')}))[0], 'P0002', 'without advice there is nothing to apply');
like($on_loaded->sql("SELECT array_length(metrics, 1) || ' ' || (array_length(metric_values, 3) = array_length(metric_ends, 1))
    FROM pgscale.tuning_change WHERE change = $applied"), qr/^[1-9] true/, 'what it is judged by is kept with the change');

for my $case (
    [ 'worse', 'transactions', '1e9 + i % 7' ],
    [ 'better', "sessions'' time per transaction", '1e6 + i % 7' ],
    # one record of which all depends: whatever the windows are, the interval is wider than the difference
    [ 'cannot tell', "sessions'' time per transaction", 'CASE WHEN i = 39 THEN 1e12 ELSE 1e-9 END' ])
{
    my ($verdict, $metric, $value) = @$case;

    $on_loaded->sql(<<"EOQ");
UPDATE pgscale.tuning_change
   SET metrics = ARRAY['$metric'],
       metric_ends = ARRAY(SELECT applied_at - make_interval(secs => 5 * i) FROM generate_series(39, 0, -1) i),
       metric_values = ARRAY[ARRAY[ARRAY(SELECT $value FROM generate_series(0, 39) i), array_fill(1.0, '{40}')]]
 WHERE change = $loaded_change
EOQ
    my $last = '';
    until_true(sub { $last = $on_loaded->sql("SELECT verdict || ' ' || decides || ' ' || reason FROM pgscale.verify($loaded_change)
        WHERE metric = '$metric'"); $last !~ /tell yet/ });
    like($last, $verdict eq 'cannot tell' ? qr/^cannot tell false .*zero in it: .*(more would tell|waiting does not help|that are kept)/ : qr/^$verdict true/, "to make it $verdict");
    is($on_loaded->sql("SELECT outcome ->> 'verdict' FROM pgscale.tuning_journal WHERE change = $loaded_change"), $verdict,
        'the journal has it');
}
is($on_loaded->sql("SELECT difference_low < difference, difference < difference_high, samples_before >= 12, samples_after >= 12, samples_before = samples_after
    FROM pgscale.verify($loaded_change) WHERE metric LIKE 'sessions%'"), 't|t|t|t|t', 'with an interval, of equal windows');
is(($on_loaded->try("SELECT * FROM pgscale.verify($loaded_change, '10 minutes')"))[0], '00000', 'a window that is not over');
# the machine may be so slow that it is over by now
$on_loaded->sql("UPDATE pgscale.tuning_change SET applied_at = now(), effective_at = now(),
    metric_ends = ARRAY(SELECT now() - make_interval(secs => 5 * i) FROM generate_series(39, 0, -1) i) WHERE change = $loaded_change");
like($on_loaded->sql("SELECT reason FROM pgscale.verify($loaded_change, '3 minutes') LIMIT 1"), qr/cannot tell yet: wait \d+ s more/,
    'is waited for');
$loaded->stop;
$_->quit for @workers;
done_testing();
