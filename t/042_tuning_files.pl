# Changes of settings: who may make them, and the files that they are made in: what others have written there, what the server does
# not take, what takes a restart; and changes, reverts and hands at random.
use strict;
use warnings;
use PgscaleTest;
use PgscaleTuning;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

tuning_node();
my $before = file();

# Privileges
$db->sql(<<'EOQ');
CREATE ROLE tuner LOGIN;
CREATE ROLE acting ROLE tuner;
GRANT USAGE ON SCHEMA pgscale, pgscale_internal TO tuner, acting;
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
  for 'pgscale.verify(1)', 'pgscale.tuning_journal', 'pgscale_internal.tuning_journal()', 'pgscale_internal.tuning_change';
$db->sql('GRANT EXECUTE ON PROCEDURE pgscale.set, pgscale.revert, pgscale.apply_all TO tuner, acting');
$db->sql('GRANT EXECUTE ON FUNCTION pgscale_internal.tuning_journal(), pgscale.verify TO tuner');
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
isnt(($tuner->try('SELECT * FROM pgscale_internal.tuning_change'))[0], '00000', 'the table is read by none');
$db->sql('GRANT EXECUTE ON FUNCTION pg_reload_conf() TO tuner');
change($tuner, 'revert(' . change($tuner, q{set('work_mem', '3MB', reload => true)}) . ', reload => true)');
is(file(), $before, 'the file is as it was');

# A setting that its readers may not see
$db->sql(q{ALTER SYSTEM SET ssl_passphrase_command = 'secret one'});
my $secret = change($tuner, q{set('ssl_passphrase_command', 'secret two')});
is($tuner->sql("SELECT old_value IS NULL, new_value IS NULL FROM pgscale.tuning_journal WHERE change = $secret"), 't|t',
    'values of settings that one may not read are not shown');
is(journal('old_value', $secret), 'secret one', 'but to those who may');
$db->sql("UPDATE pgscale_internal.tuning_change SET message = 'secret two' WHERE change = $secret");
is($tuner->sql("SELECT message IS NULL FROM pgscale.tuning_journal WHERE change = $secret"), 't', 'nor errors that may quote them');
$db->sql(q{ALTER SYSTEM SET ssl_passphrase_command = 'secret three'});
unlike(join(' ', $tuner->try("CALL pgscale.revert($secret)")), qr/secret (one|three)/, 'nor in an error');
$db->sql('ALTER SYSTEM RESET ssl_passphrase_command');

# What seems to be a secret, by the setting or by the value: for superusers only, although pg_settings shows it to pg_monitor
$db->sql('CREATE ROLE observer LOGIN IN ROLE pg_monitor');
my $observer = session($node, user => 'observer');
for my $hidden ([ 'primary_conninfo', 'host=a password=s3cret' ], [ 'archive_command', 's3cret %p' ], [ 'application_name', 'password=s3cret' ])
{
    my ($name, $value) = @$hidden;
    my $change = change($db, "set('$name', '$value')");

    is($observer->sql("SELECT old_value, old_in_force ~ '^(|.hidden.)\$', new_value FROM pgscale.tuning_journal WHERE change = $change"), '|t|(hidden)',
        "$name: hidden from pg_monitor");
    unlike($observer->sql('SELECT j FROM pgscale.tuning_journal j'), qr/s3cret/, "$name: in all of its row");
    unlike($observer->sql('SELECT now FROM pgscale.now'), qr/s3cret/, "$name: and on the screen");
    is(journal('new_value', $change), $value, "$name: not from superusers");
    change($db, "revert($change)");
}
$observer->quit;
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

# A file that a setting would name: one that is not there, and one that the server may not read
my $named = $node->basedir . '/named';
refused_ok($db, "set('hba_file', '$named')", '58P01', qr/No such file or directory\n.*HINT:  Put the file in its place first/s, 'a file that is not there');
append_to_file($named, '');
refused_ok($db, "set('hba_file', '$named/below')", '42809', qr/Not a directory\n.*HINT:  Put the file in its place first/s, 'nor a folder');
chmod 0, $named or die $!;
refused_ok($db, "set('hba_file', '$named')", '42501', qr/Permission denied\n.*HINT:  The operating system user .* must be able to read/s,
    'a file that cannot be read');

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

# Files that somebody else manages: a link, which ALTER SYSTEM would replace
{
    my $auto = $node->data_dir . '/postgresql.auto.conf';
    my $target = $node->basedir . '/managed.conf';

    rename $auto, $target or die $!;
    symlink $target, $auto or die $!;
    refused_ok($db, q{set('work_mem', '6MB')}, '55000', qr/is a symbolic link/, 'a link in place of the file');
    ok(-l $auto, 'it still is one');
    unlink $auto or die $!;
    rename $target, $auto or die $!;
}

# Under Patroni
{
    my $patroni = $node->data_dir . '/patroni.dynamic.json';

    append_to_file($patroni, '{}');
    refused_ok($db, q{set('synchronous_standby_names', '')}, '55000', qr/Patroni manages "synchronous_standby_names"/, 'what Patroni fails over by');
    like(join(' ', $db->try(q{SET client_min_messages = notice; CALL pgscale.set('work_mem', '6MB')})), qr/NOTICE: .*Patroni manages the settings.*\nHINT: .*edit-config/,
        'another setting is changed, on this node');
    unlink $patroni or die $!;
    change($db, 'revert(' . last_change() . ')');
}

# What was in force before, whatever file had set it
$node->append_conf('postgresql.conf', 'max_wal_size = 64MB');
$node->reload;
$db->poll_ok('SHOW max_wal_size', 'a value of postgresql.conf', '64MB');
my $from_file = change($db, q{set('max_wal_size', '80MB', reload => true)});
is(journal('old_value IS NULL, old_in_force, new_value', $from_file), 't|64MB|80MB', 'is in the journal as what was in force');
like($db->sql('SELECT now FROM pgscale.now'), qr/^CALL pgscale[.]revert\($from_file, true\) takes back: max_wal_size from 64MB to 80MB, \d+ s ago$/m,
    'the screen has how to take it back');
$db->sql("SET client_min_messages = warning; CALL pgscale.revert($from_file, true)");
$db->poll_ok('SHOW max_wal_size', 'taken back', '64MB');
unlike($db->sql('SELECT now FROM pgscale.now'), qr/takes back: max_wal_size/, 'and no longer on the screen');

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

# A long value is shown in part
change($db, "set('cluster_name', '" . 'y' x 60 . "')");
$db->sql("ALTER SYSTEM SET application_name = '" . 'x' x 101 . "'");
my $long = change($db, q{set('application_name', 'short')});
$db->sql("ALTER SYSTEM SET application_name = '" . 'z' x 100 . "'");
my (undef, $shown) = $db->try("CALL pgscale.revert($long)");
like($shown, qr/DETAIL: .*"short".*"z{100}" now\.$/m, 'a hundred characters are shown');
like($shown, qr/^HINT: .*"x{100}\.\.\."/m, 'and no more');
write_file($before);

# What takes a restart
my $restart = change($db, q{set('max_connections', '51', reload => true)});
$db->poll_ok("SELECT state FROM pgscale.tuning_journal WHERE change = $restart", 'a change that waits for a restart',
    'pending restart');
is(journal('effective_at', $restart), '', 'is not in effect');
like($db->sql("SELECT reason FROM pgscale.verify($restart) LIMIT 1"), qr/takes effect at the next restart/, 'says verify, too');
my $name = change($db, q{set('cluster_name', 'mine')});
$node->restart;
reconnect();
is(journal('state, effective_at >= applied_at', $restart), 'applied|t', 'after it, it is');
is(journal('state', $name), 'overridden', 'what the command line has set is told to be overridden');
change($db, "revert($_)") for $name, $restart;
is(file(), $before, 'the file is as it was');
$node->restart;
reconnect();

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
for my $step (1 .. ($ENV{PGSCALE_TEST_FULL} ? 150 : 50))
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

$db->quit;
$node->stop;
done_testing();
