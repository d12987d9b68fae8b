# PgscaleSampler.pm: what the tests of sampler and trace share: statements that are ended, parallel workers that nap.
package PgscaleSampler;

use strict;
use warnings;
use Exporter 'import';
use PgscaleTest;
use PostgreSQL::Test::Utils;

our @EXPORT = qw(cancelled restarted naps);

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
