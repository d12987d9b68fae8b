# Changes of settings: who may make them, and the files that they are made in: what others have written there, what the server
# does not take, what takes a restart; whose they are, of servers, databases, primaries and standbys; changes, reverts and hands
# at random.
# Runs on each major.
use strict;
use warnings;
use PgscaleTest;
use PgscaleTuning;
use PostgreSQL::Test::Utils;
use Test::More;

tuning_node();
my $before = file();

### Privileges

$db->sql(<<'EOQ');
CREATE ROLE tuner LOGIN;
CREATE ROLE acting ROLE tuner;
CREATE ROLE observer LOGIN IN ROLE pg_monitor;
GRANT USAGE ON SCHEMA pgscale, pgscale_internal TO tuner, acting;
GRANT ALTER SYSTEM ON PARAMETER work_mem, ssl_passphrase_command TO tuner;
CREATE PROCEDURE wrapped() SECURITY DEFINER LANGUAGE plpgsql AS $$
DECLARE
    change bigint;
BEGIN
    CALL pgscale.set('port', '1', change => change);
END $$;
GRANT EXECUTE ON PROCEDURE pgscale.set, pgscale.revert TO tuner, acting;
GRANT EXECUTE ON FUNCTION pgscale_internal.tuning_journal() TO tuner;
GRANT SELECT ON pgscale.tuning_journal TO tuner;
EOQ
my $tuner = session($node, user => 'tuner');
my $granted = change($tuner, q{set('work_mem', '3MB')});
is(journal('requested_by, acting_as', $granted), 'tuner|tuner', 'one who is granted ALTER SYSTEM on a setting may change it');
refused_ok($tuner, q{set('maintenance_work_mem', '3MB')}, '42501', qr/permission denied to set parameter/, 'and no other');
refused_ok($tuner, "revert($granted, reload => true)", '42501', qr/permission denied to reload/, 'nor reload');
is(($tuner->try('CALL wrapped()'))[0], '25001', 'nor through a procedure of another role');
$tuner->sql('SET ROLE acting');
refused_ok($tuner, "revert($granted)", '42501', qr/permission denied to set parameter/, 'nor as a role without that privilege');
$db->sql('GRANT ALTER SYSTEM ON PARAMETER work_mem TO acting');
my $as_role = change($tuner, "revert($granted)");
is(journal('requested_by, acting_as', $as_role), 'tuner|acting', 'both the session user and the role are in the journal');
$tuner->sql('RESET ROLE');

# A setting that its readers may not see
$db->sql(q{ALTER SYSTEM SET ssl_passphrase_command = 'secret one'});
my $secret = change($tuner, q{set('ssl_passphrase_command', 'secret two')});
is(journal('old_value', $secret), 'secret one', 'values are shown to those who may read the setting');
$db->sql("UPDATE pgscale_internal.tuning_change SET message = 'secret two' WHERE change = $secret");
is($tuner->sql("SELECT num_nulls(old_value, new_value, message) FROM pgscale.tuning_journal WHERE change = $secret"), 3,
    'to others neither they nor errors that may quote them');
$db->sql(q{ALTER SYSTEM SET ssl_passphrase_command = 'secret three'});
unlike(join(' ', $tuner->try("CALL pgscale.revert($secret)")), qr/secret (one|three)/, 'nor in an error');
$db->sql('ALTER SYSTEM RESET ssl_passphrase_command');
$tuner->quit;

# What seems to be a secret, by the setting or by the value: for superusers only, although pg_settings shows it to pg_monitor
my $observer = session($node, user => 'observer');
for my $hidden ([ 'primary_conninfo', 'host=a password=s3cret' ], [ 'archive_command', 's3cret %p' ], [ 'application_name', 'password=s3cret' ])
{
    my ($name, $value) = @$hidden;
    my $change = change($db, "set('$name', '$value')");

    is($observer->sql("SELECT old_value, old_in_force ~ '^(|.hidden.)\$', new_value FROM pgscale.tuning_journal WHERE change = $change"),
        '|t|(hidden)', "$name: hidden from pg_monitor");
    unlike($observer->sql("SELECT j FROM pgscale.tuning_journal j; SELECT now FROM pgscale.now"), qr/s3cret/, "$name: in all of its row, and on the screen");
    is(journal('new_value', $change), $value, "$name: not from superusers");
    change($db, "revert($change)");
}
$observer->quit;
is(file(), $before, 'the file is as it was');

### What the server or another program says

SKIP:
{
    skip 'there is no allow_alter_system before 17', 5
      if $db->sql(q{SELECT count(*) FROM pg_settings WHERE name = 'allow_alter_system'}) eq '0';
    for my $allow ('off', 'on')
    {
        $node->append_conf('postgresql.conf', "allow_alter_system = $allow");
        $node->reload;
        $db->poll_ok('SHOW allow_alter_system', "ALTER SYSTEM is $allow", $allow);
        refused_ok($db, q{set('work_mem', '3MB')}, '0A000', qr/ALTER SYSTEM is not allowed/, 'ALTER SYSTEM that is off') if $allow eq 'off';
    }
}

# A file that a setting would name
my $named = $node->basedir . '/named';
my $first = 'Create the file first';
refused_ok($db, "set('hba_file', '$named')", '58P01', qr/No such file or directory\n.*HINT:  $first/s, 'a file that is not there');
append_to_file($named, '');
refused_ok($db, "set('hba_file', '$named/below')", '42809', qr/Not a directory\n.*HINT:  $first/s, 'nor a folder');
chmod 0, $named or die $!;
refused_ok($db, "set('hba_file', '$named')", '42501', qr/Permission denied\n.*HINT:  The operating system user .* must be able to read/s,
    'a file that cannot be read');

# A reload that does nothing, because the server does not take its files
my $conf = slurp_file($node->data_dir . '/postgresql.conf');
$node->append_conf('postgresql.conf', 'this = is = nothing');
like(($db->try(q{CALL pgscale.set('work_mem', '7MB', reload => true)}))[1], qr/WARNING: .*does not take "work_mem" from its files/,
    'a reload that will come to nothing is told');
is(journal('state, effective_at IS NULL', last_change()), 'pending reload|t', 'and the journal does not claim that it had an effect');
change($db, 'revert(' . last_change() . ')');
unlink $node->data_dir . '/postgresql.conf';
$node->append_conf('postgresql.conf', $conf);

# Files that another program manages: a link, which ALTER SYSTEM would replace; and Patroni's
{
    my $auto = $node->data_dir . '/postgresql.auto.conf';
    my $target = $node->basedir . '/managed.conf';
    my $patroni = $node->data_dir . '/patroni.dynamic.json';

    rename $auto, $target or die $!;
    symlink $target, $auto or die $!;
    refused_ok($db, q{set('work_mem', '6MB')}, '55000', qr/is a symbolic link/, 'a link in place of the file');
    ok(-l $auto, 'it still is one');
    rename $target, $auto or die $!;
    append_to_file($patroni, '{}');
    refused_ok($db, q{set('synchronous_standby_names', '')}, '55000', qr/Patroni manages "synchronous_standby_names"/, 'what Patroni fails over by');
    like(join(' ', $db->try(q{SET client_min_messages = notice; CALL pgscale.set('work_mem', '6MB')})),
        qr/NOTICE: .*Patroni manages the settings.*\nHINT: .*edit-config/, 'another setting is changed, on this node');
    unlink $patroni or die $!;
    change($db, 'revert(' . last_change() . ')');
}

# What was in force before, whatever file had set it
$node->append_conf('postgresql.conf', 'max_wal_size = 64MB');
$node->reload;
$db->poll_ok('SHOW max_wal_size', 'a value of postgresql.conf', '64MB');
my $from_file = change($db, q{set('max_wal_size', '80MB', reload => true)});
is(journal('old_value IS NULL, old_in_force, new_value', $from_file), 't|64MB|80MB', 'is in the journal as what was in force');
my $takes_back = 'SELECT now FROM pgscale.now';
like($db->sql($takes_back), qr/^CALL pgscale[.]revert\($from_file, true\) takes back: max_wal_size from 64MB to 80MB, \d+ s ago$/m,
    'the screen has how to take it back');
change($db, "revert($from_file, true)");
$db->poll_ok('SHOW max_wal_size', 'taken back', '64MB');
unlike($db->sql($takes_back), qr/takes back: max_wal_size/, 'and no longer on the screen');

### Files that an editor was at

write_file("$before\nwork_mem = 3MB  # by hand\nWORK_MEM '4MB'\nwork_mem 5MB # last\n");
my $edited = change($db, q{set('work_mem', '6MB')});
is(journal('old_value', $edited), '5MB', 'of several lines the last one counts');
change($db, "revert($edited)");
is(line('work_mem'), '5MB', 'and is put back');
my $included = $node->basedir . '/included.conf';
append_to_file($included, "work_mem = 3MB\n");
for my $case ([ q{cluster_name = 'a\nb'}, 'F0000', qr/has a newline/, 'a line that ALTER SYSTEM would break' ],
    [ "include '$included'", 'F0000', qr/includes file/, 'a file that includes another, which ALTER SYSTEM would copy' ],
    [ 'this = is = nothing', 'F0000', qr/could not parse/, 'a file that cannot be read' ],
    [ "work_mem = '\xe9'", '22021', qr/not valid in this database's encoding/, 'a line that is no text' ])
{
    my ($text, @refused) = @$case;

    write_file("$before$text\n");
    refused_ok($db, q{set('work_mem', '6MB')}, @refused);
    like($db->sql('SELECT DISTINCT state FROM pgscale.tuning_journal'), qr/reverted/, 'the journal can be read all the same');
}
write_file($before . "work_mem = 'much'\n");
like(($db->try(q{CALL pgscale.set('work_mem', '6MB')}))[1], qr/WARNING: .*work_mem.* had, "much", is not one that ALTER SYSTEM could put back/,
    'a line that is not valid is told');
refused_ok($db, 'revert(' . last_change() . ')', '22023', qr/invalid value/, 'and cannot be put back');
write_file($before);
# a long value is shown in part
$db->sql("ALTER SYSTEM SET application_name = '" . 'x' x 101 . "'");
my $long = change($db, q{set('application_name', 'short')});
$db->sql("ALTER SYSTEM SET application_name = '" . 'z' x 100 . "'");
like(($db->try("CALL pgscale.revert($long)"))[1], qr/DETAIL: .*"short".*"z{100}" now\.\nHINT: .*"x{100}\.\.\."/, 'a hundred characters are shown');
write_file($before);

### What takes a restart

my $restart = change($db, q{set('max_connections', '51', reload => true)});
$db->poll_ok("SELECT state FROM pgscale.tuning_journal WHERE change = $restart", 'a change that waits for a restart', 'pending restart');
like($db->sql("SELECT reason FROM pgscale.verify($restart) LIMIT 1"), qr/takes effect at the next restart/, 'says verify, too');
my $name = change($db, q{set('cluster_name', 'mine')});
$node->restart;
$db = $db->reconnect($node);
is(journal('state, effective_at >= applied_at', $restart), 'applied|t', 'after it, it is in effect');
is(journal('state', $name), 'overridden', 'what the command line has set is told to be overridden');
change($db, "revert($_)") for $name, $restart;
is(file(), $before, 'the file is as it was');
$node->restart;
$db = $db->reconnect($node);

### At random: changes, reverts, and hands in between

# A model of what must happen: of each setting a stack of changes that stand, of which the last can be reverted, if the line still
# is what it made it.
my $seed = $ENV{PGSCALE_TEST_SEED} // time;
note "PGSCALE_TEST_SEED=$seed";
srand $seed;
my %values = (
    work_mem => [ '1MB', '2 MB', '3000kB' ],
    search_path => [ q{"$user", public}, 'Public, "a b"', q{"it's"}, '' ],
    application_name => [ q{it's}, q{\\'"}, '', ' # ', "\t" ],
    commit_delay => [ 1, 2, '0x10' ]);
my (%line, %stack, @wrong);
my $quoted = sub { my $v = shift; return 'NULL' unless defined $v; $v =~ s/'/''/g; return "'$v'"; };

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
        $text .= "$setting = '" . $value =~ s/([\\'])/$1$1/gr . "'\n" if defined $value;
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

### Other databases and servers

# The journal is of this server: a dump, which the database's owner may make, leaves it out; and where pg_upgrade has taken it
# along, the server is another one.
$db->sql('CREATE ROLE owning LOGIN; CREATE DATABASE owned OWNER owning');
my $owned = session($node, dbname => 'owned');
$owned->sql('CREATE EXTENSION pgscale');
my $of_owned = change($owned, q{set('work_mem', '7MB')});
my $its_state = "SELECT setting, new_value, state FROM pgscale.tuning_journal WHERE change = $of_owned";
$node->command_ok([ 'pg_dump', '-U', 'owning', '-f', $node->basedir . '/dump.sql', 'owned' ], 'the owner of a database dumps it');
unlike(slurp_file($node->basedir . '/dump.sql'), qr/tuning_change/, 'without the journal');
$owned->sql('UPDATE pgscale_internal.tuning_change SET cluster = cluster + 1');
is($owned->sql($its_state), 'work_mem|7MB|of another server', 'what was changed on another server');
refused_ok($owned, "revert($of_owned, force => true)", '55000', qr/another server/, 'cannot be reverted here');
$owned->sql('UPDATE pgscale_internal.tuning_change SET cluster = cluster - 1');
$owned->quit;
until_true(sub { $db->sql(q{SELECT count(*) FROM pg_stat_activity WHERE datname = 'owned'}) eq '0' });
$db->sql('CREATE DATABASE copied TEMPLATE owned');
my $copied = session($node, dbname => 'copied');
is($copied->sql($its_state), 'work_mem|7MB|of another database', 'what was changed in the database of which this one is a copy');
refused_ok($copied, "revert($of_owned, force => true)", '55000', qr/is of another database/, 'is not reverted in the copy');
like(($copied->try("SELECT * FROM pgscale.verify($of_owned)"))[1], qr/ERROR: .*is of another database/, 'nor verified');
$copied->quit;
$owned = session($node, dbname => 'owned');
change($owned, "revert($of_owned)");
is(file(), $before, 'and it is reverted where it was made');
$owned->quit;

### A standby, and after its promotion

my $standby = pgscale_standby($node);
my $on_standby = session($standby);
my $there = sub { my ($columns, $change) = @_; $on_standby->sql("SELECT $columns FROM pgscale.tuning_journal WHERE change = $change") };
for my $call (q{set('work_mem', '1MB')}, 'revert(1)', q{apply('work_mem')}, 'apply_all()')
{
    like(join(' ', $on_standby->try("CALL pgscale.$call")), qr/^25006 .*on a standby.*^HINT: /ms, "no $call on a standby");
}
$db->sql('RESET client_min_messages');
like(($db->try(q{CALL pgscale.set('max_connections', '60')}))[1], qr/NOTICE: .*a standby on which "max_connections" is less than 60/,
    'what standbys must follow is told');
change($db, 'revert(' . last_change() . ')');
# it has the primary's journal, and once it is promoted a postgresql.auto.conf of its own
my $lost = change($db, q{set('statement_timeout', '1min')});
my @of_primary = map { change($db, "set('work_mem', '${_}MB')") } 6 .. 8;
until_ok(sub { $there->('state', $of_primary[2]) eq 'not on this node' }, 'changes of the primary are not on a standby');
$standby->promote;
my $where = qx(uname -n | tr -d '\n') . ':' . $node->data_dir;
is($there->('state, node', $of_primary[2]), "not on this node|$where",
    'nor on a promoted node, which tells where they are');
like(join(' ', $on_standby->try("CALL pgscale.revert($of_primary[2])")),
    qr/^55000 .*made on another node, .*HINT: .*To make the change here: CALL pgscale.set\('work_mem', '8MB'\)/s, 'what is not there is not reverted');
like($on_standby->sql("SELECT reason FROM pgscale.verify($of_primary[2]) LIMIT 1"), qr/^cannot tell/, 'nor verified');
# as one whose session was at it at the promotion
$on_standby->sql("UPDATE pgscale_internal.tuning_change SET state = 'begun' WHERE change = $lost");
my $again = change($on_standby, q{set('work_mem', '8MB')});
like($there->('state', $again), qr/^(applied|pending)/, 'it can be made there');
is($there->('state, message', $lost), 'failed|the session ended before it was known whether the change was made on '
      . "$where; this node does not have it", 'and the journal says of one that was not finished what is known');
change($on_standby, "revert($again)");
is(($on_standby->try("CALL pgscale.revert($of_primary[0])"))[0], '55000', 'one below others');
like(($on_standby->try("CALL pgscale.revert($of_primary[0], force => true)"))[1], qr/^\d+\z/m, 'is reverted with them by force');
is($on_standby->sql("SELECT string_agg(DISTINCT state, ' ') FROM pgscale.tuning_journal WHERE change IN (" . join(',', @of_primary) . ')'),
    'reverted', 'and none is left');
$on_standby->quit;
$standby->stop;
change($db, "revert($_)") for reverse $lost, @of_primary;
is(file(), $before, 'where they were made they are reverted one by one');

# The file is this server's: what is done to it waits for no standby, which may not be there.
$db->set('synchronous_standby_names', 'nobody');
$db->poll_ok('SHOW synchronous_standby_names', 'commits are to wait for a standby that is not there', 'nobody');
$db->sql(q{SET synchronous_commit = on; SET client_min_messages = warning});
is(join('|', $db->try(q{CALL pgscale.set('work_mem', '9MB')})), '00000|' . last_change(), 'a change waits for none');
is(join('|', $db->try('CALL pgscale.revert(' . last_change() . ')')), '00000|' . last_change(), 'nor does its reverting');
$db->set('synchronous_standby_names', undef);

$db->quit;
$node->stop;
done_testing();
