# Changes of settings: who may make them, and the files that they are made in: what others have written there, what the server does
# not take, what takes a restart; and changes, reverts and hands at random.
use strict;
use warnings;
use PgscaleTest;
use PgscaleTuning;
use PostgreSQL::Test::Cluster;
use POSIX ();
use PostgreSQL::Test::Utils;
use Test::More;

tuning_node();
my $before = file();

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

# A long value is shown in part
change($db, "set('cluster_name', '" . 'y' x 60 . "')");
$db->sql("ALTER SYSTEM SET application_name = '" . 'x' x 101 . "'");
my $long = change($db, q{set('application_name', 'short')});
$db->sql("ALTER SYSTEM SET application_name = '" . 'z' x 100 . "'");
my (undef, $shown) = $db->try("CALL pgscale.revert($long)");
like($shown, qr/DETAIL: .*"short".*"z{100}"\.$/m, 'a hundred characters are shown');
like($shown, qr/^HINT: .*"x{100}\.\.\."/m, 'and no more');
write_file($before);

# What the server needs to start
SKIP:
{
    skip 'the server has no TLS', 32 if $db->sql(q{SELECT coalesce(max(setting), '') = '' FROM pg_settings WHERE name = 'ssl_library'}) eq 't';
    my $set = q{set('ssl', 'on')};
    my ($certificate, $key) = map { $node->data_dir . "/server.$_" } qw(crt key);

    refused_ok($db, $set, '22023', qr/The server says: FATAL: .*server\.crt": No such file/, 'without a certificate');
    append_to_file($certificate, "none\n");
    refused_ok($db, $set, '22023', qr/The server says: FATAL: .*could not load server certificate/, 'a certificate that is none');
    change($db, q{set('ssl_passphrase_command', '/no/such/program')});
    change($db, 'revert(' . change($db, $set) . ')');
    change($db, 'revert(' . $db->sql(q{SELECT max(change) FROM pgscale.tuning_journal WHERE setting = 'ssl_passphrase_command'}) . ')');
    is(file(), $before, 'where a command gives the passphrase, that command is not run, and nothing is known of the files');
    SKIP:
    {
        my @openssl = (qw(openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=pgscale), '-keyout', $key, '-out', $certificate);
        skip 'there is no openssl', 13 unless eval { IPC::Run::run(\@openssl, '>', \my $out, '2>', \my $err) };
        chmod 0640, $key or die $!;
        refused_ok($db, $set, '22023', qr/The server says: FATAL: .*has group or world access/, 'a key that others may read');
        chmod 0600, $key or die $!;
        change($db, 'revert(' . change($db, $set) . ')');
        is(file(), $before, 'all is there');
        my $ssl = change($db, $set);
        refused_ok($db, q{set('ssl_ciphers', 'none such')}, '22023', qr/The server says: FATAL: .*could not set the .*cipher list/, 'no cipher');
        refused_ok($db, q{set('ssl_max_protocol_version', 'TLSv1')}, '22023', qr/The server says: FATAL: .*could not set SSL protocol version range/, 'no version of the protocol');
        change($db, "revert($ssl)");
    }
    unlink $certificate, $key;
}
my $sockets = $node->basedir;
change($db, 'revert(' . change($db, "set('unix_socket_directories', '$_')") . ')') for '@abstract', "/no/such, $sockets", '';
is(file(), $before, 'one folder is enough for a socket, and none is asked for');
refused_ok($db, q{set('unix_socket_directories', '/no/such, /proc')}, '22023', qr/no folder in which the server can make a socket/, 'none that will do');
refused_ok($db, qq{set('unix_socket_directories', '/@{[ 'x' x 100 ]}, \@@{[ 'y' x 100 ]}')}, '22023', qr/no folder in which/, 'names too long for a socket');
refused_ok($db, q{set('unix_socket_group', 'no such group')}, '22023', qr/There is no group "no such group" to own the sockets/, 'a group that there is not');

# A log file: the server makes its folder, but not the one above
my $collect = q{set('logging_collector', 'on')};
my $logs = change($db, q{set('log_directory', '/no/such')});
refused_ok($db, $collect, '22023', qr/"logging_collector" would be on, and no file can be made in folder "\/no\/such"/, 'no folder for the log');
change($db, "revert($logs)");
my $collector = change($db, $collect);
refused_ok($db, q{set('log_directory', '/no/such')}, '22023', qr/no file can be made in folder/, 'nor for one that is on');
change($db, 'revert(' . change($db, "set('log_directory', '$sockets/new')") . ')');
change($db, "revert($collector)");

# What the server itself finds: settings that do not fit each other, whatever they are
refused_ok($db, q{set('superuser_reserved_connections', '200')}, '22023', qr/The server says: .*superuser_reserved_connections/, 'connections that are reserved');
refused_ok($db, q{set('max_connections', '262143')}, '22023', qr/too many server processes|invalid value/, 'more processes than there can be');
refused_ok($db, q{set('min_wal_size', '31MB')}, '22023', qr/The server says: FATAL: .*min_wal_size.* must be at least twice .*wal_segment_size/, 'less than two segments');
change($db, 'revert(' . change($db, q{set('min_wal_size', '32MB')}) . ')');
my $point = change($db, q{set('recovery_target_name', 'here')});
refused_ok($db, q{set('recovery_target_xid', '1234')}, '22023', qr/The server says: .*multiple recovery targets specified/s, 'two ends of a recovery')
  if $db->sql('SHOW server_version_num') < 190000;
change($db, "revert($point)");
refused_ok($db, qq{set('$_->[0]', '$_->[1]')}, '22023', qr/It would take \d+ GB of shared memory/, "$_->[0] of $_->[1]")
  for [ 'shared_buffers', '7TB' ], [ 'min_dynamic_shared_memory', '100000GB' ];
my $text = change($db, q{set('track_activity_query_size', '1MB')});
refused_ok($db, q{set('max_connections', '200000')}, '22023', qr/It would take \d+ GB of shared memory/, 'texts of many statements');
change($db, "revert($text)");
is(file(), $before, 'the file is as it was');
# where the files keep it from starting already, a change that does so, too, is not refused: it may be one of several that mend that
write_file("${before}min_wal_size = 2MB\n");
like(($db->try(q{CALL pgscale.set('superuser_reserved_connections', '200')}))[1], qr/WARNING: .*would not start again, neither with nor without this change/, 'without the change, too');
write_file($before);
is(join(' ', glob $node->data_dir . '/base/pgsql_tmp/*'), '', 'nothing is left of the folders in which it was asked');

# What is kept from one start to the next
my $limit = $db->sql(q{SELECT max(name) FROM pg_settings WHERE name = 'max_active_replication_origins'}) || 'max_replication_slots';
$db->sql(q{SELECT pg_replication_origin_create(o), pg_replication_origin_advance(o, '0/1') FROM unnest('{a,b}'::text[]) o});
refused_ok($db, "set('$limit', '1')", '22023', qr/There are 2 replication origins with progress/, 'too few places for replication origins');
change($db, 'revert(' . change($db, "set('$limit', '$_')") . ')') for 0, 2;
$db->sql(q{SELECT pg_replication_origin_drop(o) FROM unnest('{a,b}'::text[]) o});

# From 18 on
SKIP:
{
    skip 'there is no io_method before 18', 24 if $db->sql(q{SELECT count(*) FROM pg_settings WHERE name = 'io_method'}) eq '0';
    my @aio = map { change($db, "set('$_->[0]', '$_->[1]')") } [ 'io_max_concurrency', 1024 ], [ 'io_max_combine_limit', '1MB' ];
    refused_ok($db, q{set('max_connections', '250000')}, '22023', qr/It would take \d+ GB of shared memory/, 'I/O of many connections');
    change($db, "revert($_)") for reverse @aio;

    skip 'this server has no io_uring', 18 if $db->sql(q{SELECT 'io_uring' = ANY (enumvals) FROM pg_settings WHERE name = 'io_method'}) ne 't';
    my $uring = q{set('io_method', 'io_uring')};
    my $parameters = "\0" x 120;
    my $queue = syscall(425, 8, $parameters);
    if ($queue >= 0)
    {
        change($db, 'revert(' . change($db, $uring) . ')');
        is(file(), $before, 'queues of io_uring where the kernel has them');
        POSIX::close($queue);
    }
    else { refused_ok($db, $uring, '22023', qr/the kernel does not set up the queues/, 'queues of io_uring where the kernel has none') }
    my $postmaster = (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];
    my ($limits) = slurp_file("/proc/$postmaster/limits") =~ /^Max open files +(\w+ +\w+)/m;
    system('prlimit', '--pid', $postmaster, '--nofile=40:' . (split ' ', $limits)[1]) == 0 or skip 'no prlimit', 5;
    my $few_files = session($node);
    system('prlimit', '--pid', $postmaster, '--nofile=' . join ':', split ' ', $limits);
    refused_ok($few_files, $uring, '22023', qr/takes more than \d+ open files, and the limit is 40\./, 'queues of io_uring, each of which is a file');
    $few_files->quit;
    skip 'before 19 logical slots take wal_level = logical', 1 if $db->sql('SHOW server_version_num') < 190000;
    $db->sql(q{SELECT pg_create_logical_replication_slot('logical', 'pgoutput')});
    change($db, 'revert(' . change($db, q{set('wal_level', 'replica')}) . ')');
    $db->sql(q{SELECT pg_drop_replication_slot('logical')});
    is(file(), $before, 'they raise it themselves');
}

# Libraries
my $libraries = qx(pg_config --pkglibdir) =~ s/\n//r;
my $own = $node->basedir . '/libraries';
mkdir $own or die $!;
mkdir "$own/folder.so" or die $!;
system('cp', "$libraries/pgscale.so", "$own/other.so") == 0 or die $!;
sub not_found
{
    my ($setting, $value, $name, $of) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    $of //= $setting;
    refused_ok($db, "set('$setting', '$value')", '58P01', qr/library "\Q$name\E" of "$of" would not be found/, "$setting: $value");
    return;
}
my @naming = ('shared_preload_libraries', 'session_preload_libraries', 'archive_library');
push @naming, 'oauth_validator_libraries' if $db->sql(q{SELECT count(*) FROM pg_settings WHERE name = 'oauth_validator_libraries'});
for my $setting (@naming)
{
    not_found($setting, 'other', 'other');
    change($db, 'revert(' . change($db, "set('$setting', '$_')") . ')') for 'pgscale', '$libdir/pgscale', '$libdir/pgscale.so', "$own/other", "$own/other.so", '';
}
not_found('shared_preload_libraries', qq{pgscale, "$own/folder.so"}, "$own/folder.so");
not_found('local_preload_libraries', 'pgscale', 'pgscale');
change($db, 'revert(' . change($db, q{set('local_preload_libraries', '$libdir/pgscale')}) . ')');
not_found('jit_provider', 'nosuch', 'nosuch');
not_found('dynamic_library_path', $own, 'pgscale', 'shared_preload_libraries');
not_found('dynamic_library_path', "lib:$own:\$libdir", 'pgscale', 'shared_preload_libraries');
my $path = change($db, qq{set('dynamic_library_path', '$own:\$libdir')});
not_found($_, 'nosuchlib', 'nosuchlib') for @naming;
change($db, 'revert(' . change($db, "set('$_', 'other')") . ')') for @naming;
my $uses = change($db, q{set('session_preload_libraries', 'other')});
refused_ok($db, "revert($path)", '58P01', qr/without the line of "dynamic_library_path", library "other" of "session_preload_libraries" would not be found/, 'nor can it be taken back while a library is there');
change($db, "revert($_)") for $uses, $path;
not_found('session_preload_libraries', 'other', 'other');
change($db, 'revert(' . change($db, q{set('session_preload_libraries', 'other', force => true)}) . ')');
is(file(), $before, 'the file is as it was');
if (slurp_file('/proc/meminfo') =~ /^HugePages_Total:\s+0$/m && slurp_file('/proc/sys/vm/nr_overcommit_hugepages') =~ /^0$/m)
{
    refused_ok($db, q{set('huge_pages', 'on')}, '22023', qr/"huge_pages" would be on: that takes \d+ pages of 2 MB, and the kernel has 0\./, 'huge pages that there are not');
    my $type = change($db, q{set('shared_memory_type', 'sysv')});
    refused_ok($db, q{set('huge_pages', 'on')}, '22023', qr/"huge_pages" would be on, which takes the "shared_memory_type" mmap/, 'huge pages of another kind of memory');
    change($db, "revert($type)");
    my $large = change($db, q{set('huge_page_size', '1GB')});
    refused_ok($db, q{set('huge_pages', 'on')}, '22023', qr/that takes \d+ pages of 1024 MB, and the kernel has 0\./, 'huge pages of another size');
    change($db, "revert($large)");
    # pgscale's own settings count, too
    my ($pages) = ($db->try(q{CALL pgscale.set('huge_pages', 'on')}))[1] =~ /takes (\d+) pages/;
    cmp_ok(abs($pages * 2 - $db->sql(q{SELECT setting FROM pg_settings WHERE name = 'shared_memory_size'})), '<=', 3, 'as many as the server takes');
}

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
