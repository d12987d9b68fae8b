# For whom the waits for locks were: roots of known deeds, compared with the waiters' own clocks; when they have gone; more of them
# than there is room for; what roles see.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use IPC::Run;
use Test::More;

my $node = pgscale_node('main', conf => <<'EOC');
max_prepared_transactions = 700
max_connections = 100
listen_addresses = '127.0.0.1'
deadlock_timeout = 1d
EOC
my $db = session($node);
$db->sql('CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 1000) i');

my %session;
sub of { my $name = shift; return $session{$name} //= session($node); }

sub waits { my ($name, $sql) = @_; return $db->sees_waiting(of($name), $sql); }

sub all_end { $db->ends_waiting(values %session); %session = (); return; }

# Until a wait of the root's has been found, and time has passed since then.
sub seen_ok
{
    my ($where, $ms, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return $db->poll_ok("SELECT count(*) > 0 FROM pgscale_internal.blocker_profile() WHERE $where AND waited_ms > $ms", $name);
}

# Nobody looks: all that is waited is in a row of its own
is($db->sql('SELECT count(*) FROM pgscale_internal.blocker_profile()'), 0, 'nobody has waited');
of('a')->sql('SET application_name = billing; BEGIN; UPDATE t SET v = 1 WHERE id = 1');
of('d')->sql('SET application_name = report; BEGIN; UPDATE t SET v = 1 WHERE id = 2');
of('d')->start('SELECT pg_sleep(1000)');
waits($_, 'UPDATE t SET v = 2 WHERE id = 1') for qw(b c);
waits('e', 'UPDATE t SET v = 2 WHERE id = 2');
seen_ok(q{root_state = 'not looked up'}, 2000, 'time passes');
is($db->sql(q{SELECT root, fraction, idle_fraction, max_waiters FROM pgscale.blocker_profile}), 'not looked up|1||', 'of which nobody knows whose it is');

# What a look finds, it finds for the whole of the wait
my $truth = q{SELECT sum(extract(epoch FROM clock_timestamp() - waitstart) * 1000) FROM pg_locks WHERE NOT granted AND pid };
my %pid = map { $_ => of($_)->pid } qw(a b c d e);
$db->set('deadlock_timeout', '100ms');
seen_ok("root_pid = $pid{a}", 3000, 'a root that idles');
seen_ok("root_pid = $pid{d}", 1500, 'and one that works');
for ([ 'a', @pid{qw(b c)} ], [ 'd', $pid{e} ])
{
    my ($root, @waiters) = @$_;
    my $waiting = "$truth IN (" . join(',', @waiters) . ')';
    my $before = $db->sql($waiting);
    # A tick that begins later counts up to that moment. The first one of a wait may count from the tick before it.
    my ($ticks, $gap) = split /\|/, $db->sql('SELECT ticks, period_ms + lateness_max_us / 1000 FROM pgscale.sampler_stats');
    $db->poll_ok("SELECT ticks > $ticks + 1 FROM pgscale.sampler_stats", 'the sampler goes on');
    my $waited = $db->sql("SELECT waited_ms FROM pgscale_internal.blocker_profile() WHERE root_pid = $pid{$root}");

    cmp_ok($waited, '>=', 0.99 * $before, "$root: no less than its waiters have waited");
    cmp_ok($waited, '<=', $db->sql($waiting) + @waiters * $gap, "$root: and no more");
}
my $rows = q{SELECT root_pid, root_state, application_name, client_addr, userid::regrole = current_user::regrole, datid = (SELECT oid FROM
    pg_database WHERE datname = current_database()), max_waiters, event = ANY(array['transactionid', 'tuple']), queryid IS NOT NULL,
    backend_start IS NOT NULL, prepared_xid, first_seen < last_seen FROM pgscale_internal.blocker_profile() WHERE root_pid IS NOT NULL ORDER BY waited_ms DESC};
my $known = "$pid{a}|idle in transaction|billing||t|t|2|t|t|t||t\n$pid{d}|active|report||t|t|1|t|t|t||t";
is($db->sql($rows), $known, 'who they are');
is($db->sql(q{SELECT round(idle_fraction::numeric, 1) FROM pgscale.blocker_profile WHERE application_name IN ('billing', 'report')
    ORDER BY application_name}), "1.0\n0.0", 'what they did meanwhile');
is($db->sql(q{SELECT round(sum(fraction)::numeric, 2) FROM pgscale.blocker_profile}), '1.00', 'fractions are of the whole');

# A root's state is that of each moment
$db->sql('CREATE TABLE go ()');
of('f')->sql('SET application_name = turns; BEGIN; UPDATE t SET v = 1 WHERE id = 3');
of('f')->start(q{DO 'BEGIN WHILE NOT EXISTS (SELECT FROM go) LOOP PERFORM pg_sleep(0.01); END LOOP; END'});
waits('g', 'UPDATE t SET v = 2 WHERE id = 3');
seen_ok(q{application_name = 'turns' AND root_state = 'active' AND idle_in_transaction_ms = 0}, 1000, 'it works');
$db->sql('INSERT INTO go DEFAULT VALUES');
of('f')->finish;
seen_ok(q{application_name = 'turns' AND root_state = 'idle in transaction' AND idle_in_transaction_ms > 100
    AND idle_in_transaction_ms < waited_ms - 900}, 0, 'and then idles');

# When all have gone, what is known of them stays
all_end();
$db->sampler('off');
is($db->sql($rows =~ s/WHERE root_pid/WHERE application_name <> 'turns' AND root_pid/r), $known, 'who they were');
is($db->sql(q{SELECT bool_and(p.stats_reset = greatest(s.stats_reset, pg_postmaster_start_time())) FROM pgscale.blocker_profile p, pgscale.sampler_stats s}), 't',
    'since when');
$db->sampler('on');

# A connection of a pooler: what others waited for is its application's of that time
$pid{p} = of('p')->pid;
my $of_pooler = "SELECT application_name, waited_ms FROM pgscale_internal.blocker_profile() WHERE root_pid = $pid{p} ORDER BY application_name";
of('p')->sql('SET application_name = nightly_report; BEGIN; UPDATE t SET v = 1 WHERE id = 4');
waits('q', 'UPDATE t SET v = 2 WHERE id = 4');
seen_ok(q{application_name = 'nightly_report'}, 1500, 'an application of a pooler');
of('p')->sql('COMMIT');
of('q')->finish;
my $nightly = $db->sql($of_pooler);
like($nightly, qr/^nightly_report\|[\d.]+$/, 'is one row');
of('p')->sql('SET application_name = web; BEGIN; UPDATE t SET v = 1 WHERE id = 4');
waits('q', 'UPDATE t SET v = 2 WHERE id = 4');
my $web = $db->sql('SELECT clock_timestamp()');
seen_ok(q{application_name = 'web'}, 500, 'its next application');
$db->poll_ok("SELECT count(*) > 3 FROM pgscale.wait_history WHERE root_pid = $pid{p} AND root_application_name = 'web'", 'has samples');
of('p')->sql('COMMIT');
of('q')->finish;
like($db->sql($of_pooler), qr/^\Q$nightly\E\nweb\|[\d.]+$/, 'and a row of its own, which takes nothing from the first');
is($db->sql("SELECT root_application_name, min(sampled_at) > '$web', max(sampled_at) > '$web' FROM pgscale.wait_history
    WHERE root_pid = $pid{p} GROUP BY 1 ORDER BY 1"), "nightly_report|f|f\nweb|t|t", 'the history has the application of each moment');

# A reset forgets what was before, not who waits
of('a')->sql('SET application_name = again; BEGIN; UPDATE t SET v = 1 WHERE id = 1');
waits('b', 'UPDATE t SET v = 2 WHERE id = 1');
seen_ok(q{application_name = 'again'}, 1000, 'a root');
my ($before, $began) = split /\|/, $db->sql('SELECT pgscale.reset($$sampler$$), extract(epoch FROM clock_timestamp()) * 1000');
is($db->sql(q{SELECT count(*) FROM pgscale_internal.blocker_profile() WHERE application_name <> 'again'}), 0, 'a reset empties it');
seen_ok(q{application_name = 'again'}, 500, 'who waits on is found again');
is($db->sql(qq{SELECT sum(waited_ms) < 1.1 * (extract(epoch FROM clock_timestamp()) * 1000 - $began) + 300 FROM pgscale_internal.blocker_profile()}), 't',
    'from then on');

# Another sampler finds the same root in its row
my $sampler = $db->sql('SELECT pid FROM pgscale.sampler_stats');
my $waited = $db->sql(q{SELECT waited_ms FROM pgscale_internal.blocker_profile() WHERE application_name = 'again'});
kill 'TERM', $sampler;
$db->poll_ok("SELECT pid <> $sampler FROM pgscale.sampler_stats", 'another sampler');
seen_ok(q{application_name = 'again'}, $waited + 500, 'goes on');
is($db->sql(q{SELECT count(*) FROM pgscale_internal.blocker_profile() WHERE application_name = 'again'}), 1, 'in the same row');
all_end();

# A prepared transaction; a client with an address
of('a')->sql(q{BEGIN; UPDATE t SET v = 1 WHERE id = 6; PREPARE TRANSACTION 'p'});
waits('b', 'BEGIN; UPDATE t SET v = 1 WHERE id = 6');
seen_ok(q{root_state = 'prepared'}, 100, 'a prepared transaction');
is($db->sql(q{SELECT root_pid, prepared_xid = transaction, backend_start, application_name, userid::regrole::name = owner,
    idle_in_transaction_ms, max_waiters FROM pgscale_internal.blocker_profile() b, pg_prepared_xacts WHERE root_state = 'prepared'}), '0|t|||t||1', 'has no process');
is($db->sql(q{SELECT root ~ '^prepared \d+$', application_name, datname, idle_fraction FROM pgscale.blocker_profile WHERE root ~ 'prepared'}),
    't||postgres|', 'and a name');
$db->sql(q{ROLLBACK PREPARED 'p'});
all_end();
$session{a} = session($node, host => '127.0.0.1');
of('a')->sql('SET application_name = remote; BEGIN; UPDATE t SET v = 1 WHERE id = 1');
waits('b', 'UPDATE t SET v = 2 WHERE id = 1');
seen_ok(q{application_name = 'remote' AND client_addr = '127.0.0.1'}, 0, 'a client by TCP has its address');

# What roles see of others
$db->sql(q{CREATE ROLE monitoring LOGIN IN ROLE pg_monitor; CREATE ROLE reader LOGIN; CREATE ROLE stranger LOGIN;
    GRANT USAGE ON SCHEMA pgscale, pgscale_internal TO reader, stranger; GRANT SELECT ON pgscale.blocker_profile TO reader;
    GRANT EXECUTE ON FUNCTION pgscale_internal.blocker_profile(), pgscale_internal.sampler_stats(), pgscale_internal.wait_history(timestamptz, timestamptz) TO reader; GRANT ALL ON t TO reader});
$session{c} = session($node, user => 'reader');
of('c')->sql('SET application_name = own; BEGIN; UPDATE t SET v = 1 WHERE id = 2');
waits('d', 'UPDATE t SET v = 2 WHERE id = 2');
seen_ok(q{application_name = 'own'}, 0, 'a root of the reader');
my $named = 'SELECT application_name FROM pgscale.blocker_profile WHERE application_name IS NOT NULL ORDER BY 1';
is(session($node, user => 'monitoring')->sql($named), "again\nown\nremote", 'pg_monitor');
is(session($node, user => 'reader')->sql($named), 'own', 'one without pg_read_all_stats');
session($node, user => 'reader')->poll_ok(q{SELECT string_agg(DISTINCT root_application_name, ' ') FROM pgscale_internal.wait_history()},
    'nor has the history the others', 'own');
is(session($node, user => 'reader')->sql('SELECT count(client_addr) FROM pgscale_internal.blocker_profile()'), 0, 'nor addresses');
is((session($node, user => 'stranger')->try("SELECT * FROM $_"))[0], '42501', "a stranger: $_")
  for 'pgscale.blocker_profile', 'pgscale_internal.blocker_profile()';
all_end();

# More roots than there is room for: waiters that go from one prepared transaction to the next when they have been seen
$db->sql('SELECT pgscale.reset($$sampler$$)');
of('a')->sql('SET application_name = main; BEGIN; UPDATE t SET v = 1 WHERE id = 1000');
waits('b', 'UPDATE t SET v = 1 WHERE id = 1000');
$db->sql(join ';', map { "BEGIN; UPDATE t SET v = 1 WHERE id = $_; PREPARE TRANSACTION '$_'" } 1 .. 600);
my $script = PostgreSQL::Test::Utils::tempdir() . '/wait.sql';
append_to_file($script, q{SET lock_timeout = '1200ms';
DO 'BEGIN FOR i IN :client_id * 7 + 1 .. :client_id * 7 + 7 LOOP
    BEGIN UPDATE t SET v = 2 WHERE id = i; EXCEPTION WHEN lock_not_available THEN END; END LOOP; END';
});
my $waiters = IPC::Run::start([ 'pgbench', '-n', '-c', 85, '-T', 600, '-f', $script, $node->connstr('postgres') ], '>&', \my $said);
seen_ok(q{root_state = 'other'}, 0, 'roots are folded');
$db->sampler('off');
is($db->sql('SELECT count(*) FROM pgscale_internal.blocker_profile() WHERE root_pid IS NOT NULL'), 500, 'within its bounds');
is($db->sql(q{SELECT application_name FROM pgscale_internal.blocker_profile() WHERE root_pid IS NOT NULL ORDER BY waited_ms DESC LIMIT 1}), 'main',
    'the largest stays');
is($db->sql(q{SELECT max_waiters >= 1, first_seen <= last_seen FROM pgscale_internal.blocker_profile() WHERE root_state = 'other'}), 't|t',
    'a row of what was folded');
cmp_ok($db->sql(q{SELECT abs((SELECT sum(waited_ms) FROM pgscale_internal.blocker_profile()) /
    (SELECT sum(wait_ms) FROM pgscale_internal.wait_profile() WHERE event_type = 'Lock') - 1)}), '<', 0.1, 'and sums are whole');
$db->sampler('on');
$waiters->signal('TERM');
$waiters->finish;
$db->sql(join ';', map { "ROLLBACK PREPARED '$_'" } 1 .. 600);
all_end();

done_testing();
