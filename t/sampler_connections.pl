# Connections: how many are in use, by what they do and by whom, against the server's own count; the most at a time, also of
# a row of the archive; and the same in metrics() and in a report.
use strict;
use warnings;
use IO::Socket::UNIX;
use PgscaleSampler;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main', init => [ allows_streaming => 1 ], conf => <<'EOC');
max_connections = 30
superuser_reserved_connections = 4
pgscale.archive_database = 'postgres'
pgscale.debug_period = 1s
EOC
my $db = session($node);
my $reserved = server_major() >= 16 ? 6 : 4;
$db = restarted($db, $node, 'fast', 'reserved_connections = 2') if $reserved > 4;
$db->sql('SET application_name = watcher');

my $connections = 'SELECT used, active, idle, idle_in_transaction, other, reserved, max FROM pgscale_internal.connections()';
$db->poll_ok($connections, 'one session, which asks', "1|1|0|0|0|$reserved|30");

# What does not take a connection from the others: a walsender, and parallel workers
my @idle = map { session($node) } 1 .. 3;
my @in_transaction = map { session($node) } 1 .. 2;
my $busy = session($node);
my $superuser = $db->sql('SELECT current_user');
my $walsender = session($node, user => "$superuser replication=database");
$_->sql('SET application_name = pool') for @idle;
$_->sql('SET application_name = worker; BEGIN') for @in_transaction;
$busy->sql('SET application_name = worker');
$busy->start('SELECT pg_sleep(600)');
$db->poll_ok($connections, 'sessions that are idle, idle in a transaction, and active', "7|2|3|2|0|$reserved|30");
is($db->sql(q{SELECT count(*) FILTER (WHERE backend_type = 'client backend'), count(*) FILTER (WHERE backend_type = 'walsender')
    FROM pg_stat_activity}), '7|1', 'as the server counts them, a walsender apart');
my $by_application = q{SELECT string_agg(concat_ws(' ', application_name, used, active, idle, idle_in_transaction), ', ')
    FROM pgscale_internal.connections_by_application};
is($db->sql("$by_application()"), 'pool 3 0 3 0, worker 3 1 0 2, watcher 1 1 0 0', 'by application');
is($db->sql("$by_application(1)"), 'other 4 2 0 2, pool 3 0 3 0', 'and all others as one row');

# Metrics say the same.
is($db->sql(q{SELECT string_agg(concat_ws(' ', labels ->> 'application_name', labels ->> 'state', value), ', '
        ORDER BY name, labels ->> 'application_name', labels ->> 'state')
    FROM pgscale.metrics('connections') WHERE name ~ '^pgscale_connections(_by_application)?$' AND (value > 0 OR name !~ 'by')}),
    'active 2, idle 3, idle in transaction 2, other 0, pool idle 3, watcher active 1, worker active 1, '
      . 'worker idle in transaction 2',
    'metrics by state, and by application and state');
is($db->sql(q{SELECT count(*) FROM pgscale.metrics('connections') WHERE name = 'pgscale_connections_by_application'}), 12,
    'each state of each application');

# How old the oldest transaction is, and for how long a session idles in one: between two looks by the server's own view
$in_transaction[0]->sql('SELECT 1');
my $ages = q{SELECT extract(epoch FROM clock_timestamp() - min(xact_start)),
        extract(epoch FROM clock_timestamp() - min(state_change) FILTER (WHERE state = 'idle in transaction'))
    FROM pg_stat_activity WHERE backend_type = 'client backend'};
my @least = split /\|/, $db->sql($ages);
my @found = split /\n/, $db->sql(q{SELECT value FROM pgscale.metrics('connections')
    WHERE name LIKE '%_longest_%' ORDER BY name DESC});
my @most = split /\|/, $db->sql($ages);
for my $i (0, 1)
{
    cmp_ok($found[$i], '>=', $least[$i], qw(transaction idle)[$i] . ': not shorter than before');
    cmp_ok($found[$i], '<=', $most[$i], 'not longer than after');
}
cmp_ok($found[0], '>', $found[1], 'the transaction is older than its last statement');
like($db->sql('SELECT pgscale.report()'),
    qr/^  7 of 30 connections are in use, $reserved of the 30 are reserved; at most [7-9] were in use at a time since 20/m,
        'a report');

# A client that does not answer when it is asked for its password has a slot, and no session yet.
my $stranger = $db->sql(q{SET password_encryption = 'scram-sha-256'; CREATE ROLE stranger LOGIN PASSWORD 'x'; SELECT 'stranger'});
my $hba = $node->data_dir . '/pg_hba.conf';
my $rules = slurp_file($hba);
open my $file, '>', $hba or die $!;
print $file "local all stranger scram-sha-256\n$rules";
close $file or die $!;
$db->sql('SELECT pg_reload_conf()');
my $text = pack('N', 196608) . "user\0$stranger\0database\0postgres\0\0";
my $socket;
until_ok(sub {
    $socket = IO::Socket::UNIX->new(Peer => $node->host . '/.s.PGSQL.' . $node->port) or die $!;
    syswrite $socket, pack('N', 4 + length $text) . $text;
    sysread $socket, my $asked, 1;
    return $asked eq 'R';
}, 'a client is asked for its password');
$db->poll_ok('SELECT used, other FROM pgscale_internal.connections()', 'and takes a connection', '8|1');
close $socket;
$db->poll_ok('SELECT used, other FROM pgscale_internal.connections()', 'until it leaves', '7|0');

# The peak: since the reset, of a time, and of a row of the archive
$db->poll_ok('SELECT count(*) > 0 FROM pgscale.archive_minutes', 'the archive has begun');
my $before = $db->sql('SELECT clock_timestamp()');
my @more = map { session($node) } 1 .. 8;
$db->poll_ok(q{SELECT pgscale_internal.connections_peak(now() - interval '1 hour')}, 'eight more at a tick', 15);
$_->quit for @more;
$db->poll_ok('SELECT used FROM pgscale_internal.connections()', 'and gone', 7);
is($db->sql("SELECT peak, pgscale_internal.connections_peak('$before'), peak_since BETWEEN pg_postmaster_start_time() AND now()
    FROM pgscale_internal.connections()"), '15|15|t',
        'the peak stays, also that of the time, and is since the start of the server');
$db->poll_ok(qq{SELECT max(connections_peak) FROM pgscale.archive_minutes WHERE at + period_s * interval '1 s' >= '$before'},
    'a row of the archive has it', 15);
$db->poll_ok('SELECT connections_peak BETWEEN 7 AND 8 FROM pgscale.archive_minutes ORDER BY at DESC LIMIT 1',
    'and later rows do not');
like($db->sql(q{SELECT pgscale.report()}), qr/ At most 15 connections were in use at a time\./, 'a report, too');
is($db->sql(q{SELECT pgscale_internal.connections_peak(now() + interval '1 hour') IS NULL,
    pgscale_internal.connections_peak('infinity') IS NULL, pgscale_internal.connections_peak('-infinity')}), 't|t|15',
    'nothing is known of the future');
$db->sql('SELECT pgscale.reset($$sampler$$)');
$db->poll_ok('SELECT peak, peak_since > pg_postmaster_start_time() FROM pgscale_internal.connections()', 'a reset begins anew',
    '7|t');

# While the sampler is off, the peak is unknown and the rest is not.
$db->sampler('off');
$db->poll_ok('SELECT connections_peak IS NULL AND sessions = 7 FROM pgscale.archive_minutes ORDER BY at DESC LIMIT 1',
    'without the sampler no peak');
is($db->sql('SELECT used, peak FROM pgscale_internal.connections()'), '7|7', 'but how many there are');
$node->stop('immediate');
done_testing();
