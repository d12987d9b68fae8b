# PgscaleSampler.pm: what the tests of sampler and trace share: libraries made of t/lib, clocks that are set, statements that
# are ended.
package PgscaleSampler;

use strict;
use warnings;
use Exporter 'import';
use PgscaleTest;
use PostgreSQL::Test::Utils;

our @EXPORT = qw(library shows_modules number_file write_number cancelled restarted naps);

# The library made of t/lib/NAME.c, with more flags of the compiler; undef where it cannot be made. The name of a background
# worker's library has at most 95 characters before 16.
sub library
{
    my ($name, $flags) = (@_, '');
    my $library = PostgreSQL::Test::Utils::tempdir_short() . "/$name.so";
    my $include = server_headers();

    $flags =~ s/LIBRARY/$library/;
    return if system("cc -shared -fPIC -O1 -I $include -I src $flags -o $library t/lib/$name.c -ldl >$library.out 2>&1");
    chmod 0755, $library or die $!;
    return $library;
}

# Does pgscale's library show its functions to another one? From 16 on it shows only what the server calls.
sub shows_modules
{
    my $dir = qx(pg_config --pkglibdir) =~ s/\n//r;

    return qx(nm -D $dir/pgscale.so) =~ / pgscale_modules$/m;
}

# A file of one number of eight bytes, which t/lib/clock.c and t/lib/monotonic.c map
sub number_file
{
    my $file = PostgreSQL::Test::Utils::tempdir() . '/number';

    append_to_file($file, pack 'q', 0);
    return $file;
}

sub write_number
{
    my ($file, $number) = @_;

    open my $handle, '+<', $file or die "$file: $!";
    syswrite $handle, pack 'q', $number or die $!;
    close $handle or die $!;
    return;
}

# Cancels what sessions run, and waits for its end.
sub cancelled
{
    my ($db, @sessions) = @_;

    $db->sql('SELECT pg_cancel_backend(' . $_->pid . ')') for @sessions;
    $_->finish for @sessions;
    return;
}

# Ends the session and the server, with more settings if need be, and starts both: the new session.
sub restarted
{
    my ($db, $node, $mode, $conf) = @_;

    $db->quit;
    $node->stop($mode // 'fast');
    $node->append_conf('postgresql.conf', $conf) if $conf;
    $node->start;
    return session($node);
}

# A table and a function for a session's parallel workers: SELECT count(*) FROM lines WHERE nap(i) sleeps in each row.
sub naps
{
    my ($db, $session) = @_;

    $db->sql(<<'EOQ');
CREATE FUNCTION nap(int) RETURNS boolean LANGUAGE plpgsql PARALLEL SAFE IMMUTABLE AS
    'BEGIN PERFORM pg_sleep(0.02); RETURN true; END';
CREATE TABLE lines (i int, filler text) WITH (parallel_workers = 2);
ALTER TABLE lines ALTER filler SET STORAGE PLAIN;
INSERT INTO lines SELECT i, repeat('x', 2000) FROM generate_series(1, 60) i;
EOQ
    $session->sql('SET parallel_setup_cost = 0; SET parallel_tuple_cost = 0; SET min_parallel_table_scan_size = 0;'
          . 'SET max_parallel_workers_per_gather = 2');
    return;
}

1;
