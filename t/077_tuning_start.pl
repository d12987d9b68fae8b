# Changes of settings with which the server would not start again: they are refused, by what it says itself and by what there is.
use strict;
use warnings;
use PgscaleTest;
use PgscaleTuning;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

tuning_node();
my $before = file();

sub write_text
{
    my $path = shift;

    open my $file, '>', $path or die $!;
    print $file "none\n";
    close $file;
    return;
}

# TLS, sockets
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
# a folder that is left of a process that crashed and had the same pid
my $left = $node->data_dir . '/base/pgsql_tmp/pgsql_tmp' . $db->pid . '.start';
mkdir $left or die $!;
write_text("$left/PG_VERSION");
write_text("$left/postmaster.pid");
refused_ok($db, q{set('superuser_reserved_connections', '200')}, '22023', qr/The server says: .*superuser_reserved_connections/, 'a folder that was left is removed');
is(join(' ', glob $node->data_dir . '/base/pgsql_tmp/*'), '', 'nothing is left of the folders in which it was asked');

# Lines are not kept in memory
sub resident { return (slurp_file('/proc/' . $db->pid . '/status') =~ /^VmRSS:\s+(\d+) kB$/m)[0] }
write_file($before . join '', map { "any.setting_$_ = '" . 'x' x 10_000 . "'\n" } 1 .. 100);
$db->try(q{CALL pgscale.set('superuser_reserved_connections', '200')}) for 1 .. 3;
my $resident = resident();
$db->try(q{CALL pgscale.set('superuser_reserved_connections', '200')}) for 1 .. 20;
cmp_ok(resident() - $resident, '<', 20_000, 'a session that asks does not grow');
write_file($before);

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

# Huge pages that the kernel has, and the server's cgroup does not allow
$db->quit;
$node->stop;
SKIP:
{
    my $forged = PostgreSQL::Test::Utils::tempdir();
    my $library = "$forged/forged_files.so";
    my ($kb) = slurp_file('/proc/meminfo') =~ /^Hugepagesize:\s+(\d+) kB$/m;

    skip 'no compiler, or no huge pages', 11 if !$kb || system("cc -shared -fPIC -o $library t/lib/forged_files.c -ldl >$library.out 2>&1") != 0;
    chmod 0755, $library or die $!;
    my $size = $kb >= 1024 ? $kb / 1024 . 'MB' : "${kb}KB";
    my $forge = sub {
        my ($path, $text) = @_;

        system('mkdir', '-p', "$forged$path" =~ s{/[^/]*$}{}r) == 0 or die $!;
        open my $out, '>', "$forged$path" or die $!;
        print $out $text;
        close $out;
        return;
    };
    $forge->('/proc/self/cgroup', "0::/pod/server\n");
    $forge->("/sys/kernel/mm/hugepages/hugepages-${kb}kB/nr_hugepages", "1000000\n");
    {
        local ($ENV{LD_PRELOAD}, $ENV{FORGED_FILES}) = ($library, $forged);
        $node->start;
    }
    $db = session($node);
    change($db, 'revert(' . change($db, q{set('huge_pages', 'on')}) . ')');
    $forge->("/sys/fs/cgroup/pod/hugetlb.$size.max", $kb * 1024 * 3 . "\n");
    refused_ok($db, q{set('huge_pages', 'on')}, '22023',
        qr/"huge_pages" would be on: that takes \d+ pages of \S+ MB, and the server's cgroup \(hugetlb\) allows 3\./, 'more than a limit of its cgroup');
    refused_ok($db, q{set('shared_buffers', '1GB')}, '22023', qr/"huge_pages" would be try: .* allows 3\./, 'also where it tries to get them');
    change($db, 'revert(' . change($db, q{set('log_checkpoints', 'off')}) . ')');
    $forge->("/sys/fs/cgroup/pod/server/hugetlb.$size.rsvd.max", "0\n");
    change($db, 'revert(' . change($db, q{set('shared_buffers', '1GB')}) . ')');
    refused_ok($db, q{set('huge_pages', 'on')}, '22023', qr/ allows 0\./, 'but where it cannot reserve any, it goes on without');
    $db->quit;
    $node->stop;
}
done_testing();
