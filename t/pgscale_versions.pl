# Versions of library and extension that differ, and CREATE EXTENSION where it cannot succeed. t/pgscale_upgrade.pl makes a real
# upgrade.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my ($version) = slurp_file('pgscale.control') =~ /^default_version = '(.*)'/m;
my $node = pgscale_node('main', init => [ allows_streaming => 1 ], create => 0);
my $db = session($node);
my $row = q{SELECT enabled, state, reason, action FROM pgscale.health WHERE feature = 'version'};
my $equal = "t|working|library and extension have version $version|";

like(slurp_file($node->logfile), qr/LOG: +pgscale \Q$version\E is loaded\n.*HINT: +.*CREATE EXTENSION pgscale/,
    'the log says that it is loaded, and how to see it');

### CREATE EXTENSION

my $left = q{SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'pgscale%'};
$db->sql('CREATE ROLE owner LOGIN; CREATE DATABASE owned OWNER owner');
my ($owned, $super) = (session($node, dbname => 'owned', user => 'owner'), session($node, dbname => 'owned'));
like(join(' ', $super->try(q{CREATE EXTENSION pgscale VERSION '0.9'})),
    qr/^22023 .*"pgscale" has no installation script nor update path for version "0\.9"/s, 'a version that is not there');
like(join(' ', $super->try('CREATE EXTENSION pgscale SCHEMA public')), qr/^0A000 .*"pgscale" must be installed in schema "pg_catalog"/s, 'another schema');
like(join(' ', $owned->try('CREATE EXTENSION pgscale')), qr/^42501 .*HINT: +Must be superuser/s, 'the owner of the database');
$owned->sql('CREATE SCHEMA pgscale_internal');
like(join(' ', $super->try('CREATE EXTENSION pgscale')), qr/^42P06 .*"pgscale_internal" already exists/s,
    'where a schema of that name is, nothing is created in it');
$owned->sql('DROP SCHEMA pgscale_internal');
is($super->sql($left), 0, 'and nothing is left');
is($_->sql('CREATE EXTENSION pgscale'), '', 'not even a warning, in the first database and in the second') for $super, $db;
$_->poll_ok('SELECT ticks > 0 FROM pgscale.sampler_stats', 'both see the server') for $super, $db;
$_->quit for $owned, $super;

### Versions that differ

# as it is with each of them, in a transaction that is rolled back
sub with_extension
{
    my ($session, $extension, $query) = @_;
    $session->sql("BEGIN; UPDATE pg_extension SET extversion = '$extension' WHERE extname = 'pgscale'");
    my ($state, $text) = $session->try($query);
    $session->sql('ROLLBACK');
    return $state eq '00000' ? $text : "$state $text";
}

my $check = 'SELECT pgscale_internal.require_library()';
is($db->sql($row), $equal, 'health: they are equal');
is(with_extension($db, "$version.0", $row), $equal, 'a zero at the end is nothing');
for my $older ('0.9', '0.99', '0.10.5')
{
    is(with_extension($db, $older, $row), "t|working|the library has version $version, the extension in this database $older"
          . '|run ALTER EXTENSION pgscale UPDATE in this database', "the extension is of $older: it works, and health says what to do");
    is(with_extension($db, $older, $check), '', 'its scripts are content');
}
for my $newer ("$version.1", $version =~ s/(\d+)$/$1 + 1/er, '010', $version =~ s/(\d+)$/$1 + 10/er, '99')
{
    is(with_extension($db, $newer, $row), "t|broken|the library has version $version, the extension in this database the later $newer"
          . "|install the library of version $newer and restart", "the extension is of $newer: broken");
    like(with_extension($db, $newer, $check),
        qr/^55000 .*version \Q$newer\E of the extension "pgscale" needs .*, not \Q$version\E\n.*HINT: .*loaded at its start.*\Q$newer\E and restart/s,
        'and its scripts are refused');
}
is($db->sql("SET ROLE pg_monitor; $row"), $equal, 'for pg_monitor');
like(join(' ', $db->try($check)), qr/^42501 /, 'which has no use for the check');
$db->sql('RESET ROLE');

# A standby cannot update it.
my $standby = pgscale_standby($node);
my $there = session($standby);
$db->sql(q{UPDATE pg_extension SET extversion = '0.9' WHERE extname = 'pgscale'});
$there->poll_ok(q{SELECT action FROM pgscale.health WHERE feature = 'version'}, 'on a standby, health says where',
    'on the primary, run ALTER EXTENSION pgscale UPDATE in this database');
$_->quit for $there, $db;
$standby->stop;

### Without preload

$node->append_conf('postgresql.conf', q{shared_preload_libraries = ''});
$node->restart;
$db = session($node);
$db->sql('DROP EXTENSION pgscale');
like(join(' ', $db->try('CREATE EXTENSION pgscale')),
    qr/^00000 .*WARNING: +55000: pgscale is not loaded into the server.*\n.*HINT: +Add "pgscale" to shared_preload_libraries and restart/,
    'without preload it can be created, with a warning that says what to do');
is($db->sql($row), $equal, 'health: they are equal');
like(with_extension($db, '99', $check), qr/55000.*HINT: +Install the library of version 99 and connect again/s, 'a script of a later version is refused');
$db->quit;
$node->stop;
done_testing();
