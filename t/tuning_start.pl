# Changes of settings with which the server would not start again: they are refused, by what it says itself and by what there is.
use strict;
use warnings;
use PgscaleMadeUp qw(forge);
use PgscaleTest;
use PgscaleTuning;
use POSIX ();
use PostgreSQL::Test::Utils;
use Test::More;

my $forged = PostgreSQL::Test::Utils::tempdir();
{
    # for huge pages, at the end
    local ($ENV{LD_PRELOAD}, $ENV{FORGED_FILES}) = (compiled('forged_files') // '', $forged);
    tuning_node('max_prepared_transactions = 2');
}
my $before = file();
my $major = server_major();

# refused SETTING, VALUE, PATTERN: an error that the server would not start, for this reason
sub refused
{
    my ($setting, $value, $reason) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return refused_ok($db, "set('$setting', '$value')", '22023', $reason, "$setting: " . substr $value, 0, 30);
}

# taken SETTING, VALUE...: each of them, and reverted
sub taken
{
    my ($setting, @values) = @_;
    my $file = file();
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    change($db, 'revert(' . change($db, "set('$setting', '$_')") . ')') for @values;
    return is(file(), $file, "$setting: " . join(' or ', map { substr $_, 0, 30 } @values) . ' is taken, and reverted');
}

# with SETTING, VALUE, CODE: what holds while it is set
sub with
{
    my ($setting, $value, $code) = @_;
    my $change = change($db, "set('$setting', '$value')");

    $code->();
    change($db, "revert($change)");
    return;
}

### TLS, sockets

my $data = $node->data_dir;
SKIP:
{
    skip 'the server has no TLS', 20 if $db->sql(q{SELECT coalesce(max(setting), '') = '' FROM pg_settings WHERE name = 'ssl_library'}) eq 't';
    my ($certificate, $key) = ("$data/server.crt", "$data/server.key");

    refused('ssl', 'on', qr/The server says: FATAL: .*server\.crt": No such file/);
    append_to_file($certificate, "none\n");
    refused('ssl', 'on', qr/The server says: FATAL: .*could not load server certificate/);
    # where a command gives the passphrase, that command is not run, and nothing is known of the files
    with('ssl_passphrase_command', '/no/such/program', sub { taken('ssl', 'on') });
    my @openssl = (qw(openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=pgscale),
        '-keyout', $key, '-out', $certificate);
    skip 'there is no openssl', 13 unless eval { IPC::Run::run(\@openssl, '>', \my $out, '2>', \my $err) };
    chmod 0640, $key or die $!;
    refused('ssl', 'on', qr/The server says: FATAL: .*has group or world access/);
    chmod 0600, $key or die $!;
    with('ssl', 'on', sub {
        refused('ssl_ciphers', 'none such', qr/The server says: FATAL: .*could not set the .*cipher list/);
    });
    unlink $certificate, $key;
}
my $sockets = $node->basedir;
taken('unix_socket_directories', '@abstract', "/no/such, $sockets", '');
refused('unix_socket_directories', $_, qr/no folder in which the server can make a socket/)
  for '/no/such, /proc', "/@{[ 'x' x 100 ]}, \@@{[ 'y' x 100 ]}";
refused('unix_socket_group', 'no such group', qr/There is no group "no such group" to own the sockets/);

# A log file: the server makes its folder, but not the one above
my $no_log = qr/"logging_collector" would be on, and no file can be made in folder "\/no\/such"/;
with('log_directory', '/no/such', sub { refused('logging_collector', 'on', $no_log) });
with('logging_collector', 'on', sub {
    refused('log_directory', '/no/such', qr/no file can be made in folder/);
    taken('log_directory', "$sockets/new");
});

### What the server itself finds: settings that do not fit each other, whatever they are

refused('superuser_reserved_connections', 200, qr/The server says: .*superuser_reserved_connections/);
taken('superuser_reserved_connections', $db->sql('SHOW max_connections') - 1);
with('application_name', q{it''s \\ here}, sub { refused('superuser_reserved_connections', 200, qr/The server says: .*superuser_reserved_connections/) });
refused('max_connections', 3, qr/The server says: .*superuser_reserved_connections.* must be less than .*max_connections/);
refused('max_connections', 262143, qr/too many server processes|invalid value/);
refused($_, '31MB', qr/The server says: FATAL: .*$_.* must be at least twice .*wal_segment_size/) for 'min_wal_size', 'max_wal_size';
taken('min_wal_size', '32MB');
refused('wal_level', 'minimal', qr/The server says: .*max_wal_senders.* requires .*wal_level/);
with('max_wal_senders', 0, sub {
    taken('wal_level', 'minimal');
    with('archive_mode', 'on', sub { refused('wal_level', 'minimal', qr/The server says: .*WAL archival .*wal_level.*minimal/s) });
    with('summarize_wal', 'on', sub { refused('wal_level', 'minimal', qr/WAL cannot be summarized .*wal_level/) }) if $major >= 17;
});
with('recovery_target_name', 'here', sub { refused('recovery_target_xid', 1234, qr/The server says: .*multiple recovery targets specified/s) })
  if $major < 19;
refused(@$_, qr/It would take \d+ GB of shared memory/) for [ 'shared_buffers', '7TB' ], [ 'min_dynamic_shared_memory', '100000GB' ];
with('track_activity_query_size', '1MB', sub { refused('max_connections', 200000, qr/It would take \d+ GB of shared memory/) });
# what the files have is what counts, not what the server has
with('max_connections', 80, sub {
    my $below = last_change();
    with('superuser_reserved_connections', 60, sub {
        refused_ok($db, "revert($below)", '22023', qr/would not start again/, 'a line that another one needs cannot be taken back');
    });
}) if $db->sql('SHOW max_connections') <= 60;
taken('superuser_reserved_connections', 3);
is(change($db, q{set('superuser_reserved_connections', '200', force => true)}) > 0, 1, 'force => true does not ask');
change($db, 'revert(' . last_change() . ')');
# where the files keep it from starting already, a change that does so, too, is not refused: it may be one of several that mend that
write_file("${before}min_wal_size = 2MB\n");
like(($db->try(q{CALL pgscale.set('superuser_reserved_connections', '200')}))[1],
    qr/WARNING: .*would not start again, neither with nor without this change/, 'without the change, too');
write_file($before);
# a folder that is left of a process that crashed and had the same pid
my $left = "$data/base/pgsql_tmp/pgsql_tmp" . $db->pid . '.start';
mkdir $left or die $!;
append_to_file("$left/$_", "none\n") for 'PG_VERSION', 'postmaster.pid';
refused('superuser_reserved_connections', 200, qr/The server says: .*superuser_reserved_connections/);
is(join(' ', glob "$data/base/pgsql_tmp/*"), '', 'nothing is left of the folders in which it was asked');

# Lines are not kept in memory
sub resident { return (slurp_file('/proc/' . $db->pid . '/status') =~ /^VmRSS:\s+(\d+) kB$/m)[0] }
write_file($before . join '', map { "any.setting_$_ = '" . 'x' x 10_000 . "'\n" } 1 .. 100);
$db->try(q{CALL pgscale.set('superuser_reserved_connections', '200')}) for 1 .. 2;
my $resident = resident();
$db->try(q{CALL pgscale.set('superuser_reserved_connections', '200')}) for 1 .. 10;
cmp_ok(resident() - $resident, '<', 8_000, 'a session that asks does not grow');
write_file($before);

### What is kept from one start to the next

$db->sql(q{SELECT pg_create_physical_replication_slot('kept')});
refused('max_replication_slots', 0, qr/There are 1 replication slots\./);
with('max_wal_senders', 0, sub { refused('wal_level', 'minimal', qr/There are replication slots, .* than a minimal "wal_level"/) });
taken('max_replication_slots', 1);
$db->sql(q{SELECT pg_drop_replication_slot('kept')});
$db->sql($_) for 'BEGIN', q{PREPARE TRANSACTION 'kept'};
refused('max_prepared_transactions', 0, qr/There are 1 prepared transactions\./);
taken('max_prepared_transactions', 1);
$db->sql(q{ROLLBACK PREPARED 'kept'});
my $limit = $db->sql(q{SELECT max(name) FROM pg_settings WHERE name = 'max_active_replication_origins'}) || 'max_replication_slots';
$db->sql(q{SELECT pg_replication_origin_create(o), pg_replication_origin_advance(o, '0/1') FROM unnest('{a,b}'::text[]) o});
refused($limit, 1, qr/There are 2 replication origins with progress/);
taken($limit, 0, 2);
$db->sql(q{SELECT pg_replication_origin_drop(o) FROM unnest('{a,b}'::text[]) o});

### From 18 on

SKIP:
{
    skip 'there is no io_method before 18', 15 if $major < 18;
    with('io_max_concurrency', 1024, sub {
        with('io_max_combine_limit', '1MB', sub { refused('max_connections', 250000, qr/It would take \d+ GB of shared memory/) });
    });
    skip 'this server has no io_uring', 10 if $db->sql(q{SELECT 'io_uring' = ANY (enumvals) FROM pg_settings WHERE name = 'io_method'}) ne 't';
    my $parameters = "\0" x 120;
    my $queue = syscall(425, 8, $parameters);
    if ($queue >= 0) { taken('io_method', 'io_uring'); POSIX::close($queue) }
    else { refused('io_method', 'io_uring', qr/the kernel does not set up the queues/) }
    my $postmaster = (split /\n/, slurp_file("$data/postmaster.pid"))[0];
    my ($limits) = slurp_file("/proc/$postmaster/limits") =~ /^Max open files +(\w+ +\w+)/m;
    system('prlimit', '--pid', $postmaster, '--nofile=40:' . (split ' ', $limits)[1]) == 0 or skip 'no prlimit', 5;
    my $few_files = session($node);
    system('prlimit', '--pid', $postmaster, '--nofile=' . join ':', split ' ', $limits);
    refused_ok($few_files, q{set('io_method', 'io_uring')}, '22023', qr/takes more than \d+ open files, and the limit is 40\./,
        'queues of io_uring, each of which is a file');
    $few_files->quit;
    skip 'before 19 logical slots take wal_level = logical', 1 if $major < 19;
    $db->sql(q{SELECT pg_create_logical_replication_slot('logical', 'pgoutput')});
    # they raise it themselves
    taken('wal_level', 'replica');
    $db->sql(q{SELECT pg_drop_replication_slot('logical')});
}

### Libraries

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
    return refused_ok($db, "set('$setting', '$value')", '58P01', qr/library "\Q$name\E" of "$of" would not be found/, "$setting: $value");
}
my @naming = ('shared_preload_libraries', 'session_preload_libraries', 'archive_library');
push @naming, 'oauth_validator_libraries' if $db->sql(q{SELECT count(*) FROM pg_settings WHERE name = 'oauth_validator_libraries'});
for my $setting (@naming)
{
    not_found($setting, 'other', 'other');
    taken($setting, 'pgscale', "$own/other.so");
}
taken('shared_preload_libraries', '$libdir/pgscale', '$libdir/pgscale.so', "$own/other", '');
not_found('shared_preload_libraries', qq{pgscale, "$own/folder.so"}, "$own/folder.so");
refused_ok($db, q{set('session_preload_libraries', '"')}, '22023', qr/invalid list syntax/, 'no list');
not_found('local_preload_libraries', 'pgscale', 'pgscale');
taken('local_preload_libraries', '$libdir/pgscale');
not_found('jit_provider', 'nosuch', 'nosuch');
not_found('dynamic_library_path', $_, 'pgscale', 'shared_preload_libraries') for $own, "lib:$own:\$libdir";
with('dynamic_library_path', "$own:\$libdir", sub {
    my $path = last_change();

    not_found('shared_preload_libraries', 'nosuchlib', 'nosuchlib');
    taken($_, 'other') for @naming;
    with('session_preload_libraries', 'other', sub {
        refused_ok($db, "revert($path)", '58P01',
            qr/without the line of "dynamic_library_path", library "other" of "session_preload_libraries" would not be found/,
            'nor can it be taken back while a library is there');
    });
});

### Huge pages: what the kernel has, and what the server's cgroup allows

SKIP:
{
    my ($kb) = slurp_file('/proc/meminfo') =~ /^Hugepagesize:\s+(\d+) kB$/m;

    skip 'no compiler, or no huge pages', 11 if !$kb || !compiled('forged_files');
    my $size = $kb >= 1024 ? $kb / 1024 . 'MB' : "${kb}KB";
    my $pages = "/sys/kernel/mm/hugepages/hugepages-${kb}kB/nr_hugepages";

    forge($forged, '/proc/self/cgroup' => '0::/pod/server', map { $_ => 0 } $pages, $pages =~ s/nr_/nr_overcommit_/r,
        map { "/sys/kernel/mm/hugepages/hugepages-1048576kB/nr_${_}hugepages" } '', 'overcommit_');
    my $none = qr/"huge_pages" would be on: that takes (\d+) pages of \S+ MB, and the kernel has 0\./;
    refused('huge_pages', 'on', $none);
    # pgscale's own settings count, too
    my ($takes) = ($db->try(q{CALL pgscale.set('huge_pages', 'on')}))[1] =~ $none;
    cmp_ok(abs($takes * $kb / 1024 - $db->sql(q{SELECT setting FROM pg_settings WHERE name = 'shared_memory_size'})), '<=', 1.5 * $kb / 1024,
        'as many as the server takes');
    with('shared_memory_type', 'sysv', sub { refused('huge_pages', 'on', qr/which takes the "shared_memory_type" mmap/) });
    with('huge_page_size', '1GB', sub { refused('huge_pages', 'on', qr/that takes \d+ pages of 1024 MB, and the kernel has 0\./) });
    forge($forged, $pages => 1000000);
    taken('huge_pages', 'on');
    forge($forged, "/sys/fs/cgroup/pod/hugetlb.$size.max" => $kb * 1024 * 3);
    refused('huge_pages', 'on', qr/"huge_pages" would be on: that takes \d+ pages of \S+ MB, and the server's cgroup \(hugetlb\) allows 3\./);
    refused('shared_buffers', '1GB', qr/"huge_pages" would be try: .* allows 3\./);
    taken('log_checkpoints', 'off');
    forge($forged, "/sys/fs/cgroup/pod/server/hugetlb.$size.rsvd.max" => 0);
    # where it cannot reserve any, it goes on without
    taken('shared_buffers', '1GB');
    refused('huge_pages', 'on', qr/ allows 0\./);
}
$db->quit;
$node->stop;
done_testing();
