# An extension image: the library and the files of the extension lie in a folder of their own, which cannot be written to, with
# lib/ and share/extension/ below. Since 18 a server finds them there by two settings. The folder is made of what was installed,
# or of PGSCALE_IMAGE, the folder that an image was unpacked to. The server has the files in its own folders, too, and may not
# take those.
use strict;
use warnings;
use File::Copy qw(copy);
use File::Path qw(make_path);
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'extension_control_path came with PostgreSQL 18' if server_major() < 18;

my $image = PostgreSQL::Test::Utils::tempdir() . '/image';
my ($lib, $share) = $ENV{PGSCALE_IMAGE} ? map { "$ENV{PGSCALE_IMAGE}/$_" } qw(lib share) : map { qx(pg_config --$_) =~ s/\n//r } qw(pkglibdir sharedir);
make_path("$image/lib", "$image/share/extension");
copy("$lib/pgscale.so", "$image/lib/pgscale.so") or die "$lib/pgscale.so: $!";
copy($_, "$image/share/extension") or die "$_: $!" for glob "$share/extension/pgscale*";
# so that it shows which ones were read
my ($script) = grep { /pgscale--[0-9.]+\.sql$/ } glob "$image/share/extension/*";
append_to_file($script, qq{\nCOMMENT ON SCHEMA pgscale_internal IS 'of the image';\n});
append_to_file("$image/share/extension/pgscale.control", "comment = 'of the image'\n");
chmod 0444, glob("$image/lib/* $image/share/extension/*");
chmod 0555, "$image/lib", "$image/share/extension";

my $node = pgscale_node('main', conf => "extension_control_path = '$image/share:\$system'\ndynamic_library_path = '$image/lib:\$libdir'");
my $db = session($node);

is($db->sql(q{SELECT obj_description(oid, 'pg_extension') FROM pg_extension WHERE extname = 'pgscale'}), 'of the image', 'the control file is that of the image');
is($db->sql(q{SELECT obj_description('pgscale_internal'::regnamespace, 'pg_namespace')}), 'of the image', 'so is the install script');
$db->poll_ok(q{SELECT count(*) FILTER (WHERE state = 'broken'), count(*) FILTER (WHERE state = 'working' AND feature = 'sampler') FROM pgscale.health},
    'the sampler works, and nothing is broken', '0|1');

# The library of each process, by the kernel; a worker names it by its path.
my ($postmaster) = split /\n/, slurp_file($node->data_dir . '/postmaster.pid');
my ($worker) = split /\n/, $db->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type LIKE 'pgscale%'});
my %processes = (postmaster => $postmaster, backend => $db->pid, worker => $worker);
for my $name (sort keys %processes)
{
    my %mapped = map { $_ => 1 } slurp_file("/proc/$processes{$name}/maps") =~ m{(/\S*/pgscale\.so)}g;

    is_deeply([ keys %mapped ], ["$image/lib/pgscale.so"], "the library of the $name is that of the image, and no second one");
}

# The check of changes looks for libraries as the server does.
my ($state, $said) = $db->try(q{CALL pgscale.set('dynamic_library_path', '/no/such/folder')});
is($state, '58P01', 'a path on which pgscale would not be found is refused') or diag $said;
$db->quit;
$node->stop;
done_testing();
