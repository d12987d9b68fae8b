# Trouble with locks, and loads that only look like it, on a real server: the first line names what is in the way, neither a
# victim nor a session whose turn it just is, and its cure works where it is printed.
# Waits for long.
use strict;
use warnings;
use IO::Socket::UNIX;
use IPC::Run;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main', init => [ allows_streaming => 1 ], conf => <<'EOC');
max_connections = 80
deadlock_timeout = 10min
wal_level = logical
max_worker_processes = 16
EOC
my $db = session($node);
$db->sql('CREATE ROLE monitor LOGIN IN ROLE pg_monitor');
$db->sql('CREATE TABLE t (id int PRIMARY KEY, v int); INSERT INTO t SELECT i, 0 FROM generate_series(1, 1000) i');
$db->sql('CREATE TABLE other (i int)');
my $monitor = session($node, user => 'monitor');
$db->poll_ok(q{SELECT (pgscale_internal.now_evidence()->>'watched_s')::float8 >= 2}, 'the sampler has seen some seconds');

# The first finding
sub finds_ok
{
    my ($expected, $name, $session) = @_;
    my $found = '';
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    until_true(sub {
        $found = ($session // $monitor)->sql(q{SELECT concat_ws('|', rule, certainty, pid, sentence, cure) FROM pgscale.diagnosis() WHERE rank = 1});
        return $found =~ $expected;
    });
    return like($found, $expected, $name);
}

# A load of short transactions, each of these lines; it goes on until it is ended
sub load
{
    my ($clients, @lines) = @_;
    my $script = PostgreSQL::Test::Utils::tempdir() . '/load.sql';

    unlink $script;
    append_to_file($script, join("\n", @lines) . "\n");
    return IPC::Run::start([ 'pgbench', '-n', '-c', $clients, '-j', 1, '-T', 600, '-f', $script, $node->connstr('postgres') ], '>&', \my $output);
}

sub ends { $_->signal('INT'), eval { $_->finish } for @_; return; }

# Of as many looks as show so many sessions at their turn, none has a finding that is certain
sub healthy_ok
{
    my ($name, $turns) = @_;
    my (%seen, $found);
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    until_true(sub {
        my ($certain, $roots) = split /\|/, $monitor->sql(q{SELECT (SELECT string_agg(concat(f.rule, ': ', f.sentence), '; ')
               FROM pgscale_internal.now_findings(e.seen) f WHERE f.certainty = 'high'),
            (SELECT string_agg(r->>'pid', ' ') FROM jsonb_array_elements(e.seen->'roots') r) FROM pgscale_internal.now_evidence() e(seen)}), -1;

        $found ||= $certain;
        $seen{$_}++ for split ' ', $roots // '';
        return $found || keys %seen >= $turns;
    });
    return is($found || (keys %seen >= $turns ? '' : keys(%seen) . ' turns'), '', $name);
}

# Nothing waits for a lock any more
sub calm
{
    $db->poll_ok(q{SELECT count(*) FROM pg_locks WHERE NOT granted}, 'calm again', 0);
    return;
}

my $waited = q{SELECT count(*) FROM pg_locks WHERE NOT granted AND waitstart < clock_timestamp() - interval '2 s'};

### An elected leader at work, whose followers wait on purpose

{
    my ($leader, @followers) = map { session($node) } 0 .. 4;
    $leader->sql('SELECT pg_advisory_lock(77)');
    $db->sees_waiting($_, 'SELECT pg_advisory_lock(77)') for @followers;
    until_ok(sub { $db->sql(q{SELECT count(*) FROM pg_locks WHERE NOT granted AND waitstart < clock_timestamp() - interval '6 s'}) eq '4' }, 'followers');
    $leader->start('SELECT pg_sleep(600)');
    $monitor->poll_ok(q{SELECT r->>'state', r->>'transaction_s' > '2' FROM jsonb_array_elements(pgscale_internal.now_evidence()->'roots') r}, 'a leader at work', 'active|t');
    is($monitor->sql(q{SELECT count(*) FROM pgscale.diagnosis() WHERE certainty > 'low' OR rule = 'blocker'}), 0, 'is no blocker');
    $db->sql('SELECT pg_cancel_backend(' . $leader->pid . ')');
    $leader->finish;
    # which may as well be a lock that was forgotten
    finds_ok(qr/^advisory_lock\|low\|@{[ $leader->pid ]}\|4 sessions wait for an advisory lock that pid \d+, .* keeps outside of transactions: forgotten, or on purpose\|SELECT pid, /,
        'one that idles');
    $db->ends_waiting($leader, @followers);
}

### Turns: at an advisory lock within a statement, at a table between two

{
    my $turns = load(28, 'BEGIN;', 'SELECT pg_advisory_xact_lock(9);', 'SELECT pg_sleep(0.1);', 'COMMIT;');
    until_ok(sub { $db->sql($waited) >= 2 }, 'a queue at an advisory lock, in turns');
    healthy_ok('is no blocker', 10);
    ends($turns);
    calm();
    $turns = load(28, 'BEGIN;', 'LOCK t;', '\sleep 100 ms', 'COMMIT;');
    until_ok(sub { $db->sql($waited) >= 2 }, 'a queue at a table, in turns');
    healthy_ok('is no blocker', 10);
    finds_ok(qr/^hot_lock\|medium\|\d+ sessions wait for a lock on public.t that short transactions take one after another\|/, 'but a queue');
    ends($turns);
    calm();
}

# at a row, each for longer than two seconds, because the application calls another one
{
    my $turns = load(6, 'BEGIN;', 'UPDATE t SET v = v + 1 WHERE id = 3;', '\sleep 2500 ms', 'COMMIT;');
    $monitor->poll_ok(q{SELECT count(*) FROM jsonb_array_elements(pgscale_internal.now_evidence()->'roots') r WHERE (r->>'waited_ago_s')::float8 > 0},
        'a queue at a row, in long turns', 1);
    healthy_ok('is no blocker', 4);
    finds_ok(qr/^hot_row\|medium\|\d sessions wait for rows (?:of public.t )?that short transactions change one after another\|/, 'but a hot row');
    ends($turns);
    calm();
}

### Victims that give up early, and try again

for my $lock ([ 2, 'UPDATE t SET v = 1 WHERE id = 1', 'rows' ], [ 8, 'LOCK t', 'a lock on public.t' ])
{
    my ($clients, $statement, $on) = @$lock;
    my ($holder, @impatient) = map { session($node) } 0 .. $clients;

    $holder->sql("BEGIN; $statement");
    $_->start(qq{DO \$\$ BEGIN LOOP BEGIN PERFORM set_config('lock_timeout', '300ms', true); UPDATE t SET v = 2 WHERE id = 1;
        EXCEPTION WHEN lock_not_available THEN NULL; END; PERFORM pg_sleep(0.05); END LOOP; END \$\$}) for @impatient;
    finds_ok(qr/^blocker\|high\|@{[ $holder->pid ]}\|\d sessions? waits? for $on held by pid .*, idle in transaction for \d+ s\|SELECT pgscale.terminate/,
        "$clients that give up early, for $on");
    $db->ends_waiting($holder, @impatient);
}

### COPY from a client that has gone to lunch

{
    my $copying = session($node);
    my @behind = map { session($node) } 0 .. 1;
    $db->sql('CREATE TABLE loaded (id int)');
    $copying->start("BEGIN; TRUNCATE loaded;\nCOPY loaded FROM STDIN;\n1\n");
    $copying->{in} =~ s/\n;\n\\echo.*//s;    # no end of the data
    until_true(sub { $copying->{psql}->pump_nb; $db->sql(q{SELECT wait_event FROM pg_stat_activity WHERE pid = } . $copying->pid) eq 'ClientRead'
        && $db->sql('SELECT state FROM pg_stat_activity WHERE pid = ' . $copying->pid) eq 'active' });
    $db->poll_ok('SELECT state, wait_event FROM pg_stat_activity WHERE pid = ' . $copying->pid, 'COPY waits for its client', 'active|ClientRead');
    $db->sees_waiting($_, 'SELECT count(*) FROM loaded') for @behind;
    finds_ok(qr/^blocker\|high\|@{[ $copying->pid ]}\|2 sessions wait for a lock on public.loaded held by pid .*, active for \d+ s, which waits for its client: COPY .*\|SELECT pgscale.terminate\(@{[ $copying->pid ]}\)$/,
        'is to be terminated');
    like($db->sql('SELECT what FROM pgscale.cancel(' . $copying->pid . ')'),
        qr/^asked process .* to end its statement, which it has not done within 2 s: it waits for its client, which only pgscale.terminate\(\d+\) ends; 2 transactions waited for it$/,
        'because a cancellation does not reach it');
    is($db->sql('SELECT done FROM pgscale.terminate(' . $copying->pid . ')'), 't', 'as is done');
    is(($_->finish)[0], '00000', 'the others go on') for @behind;
}

### Several that are in the way of one

{
    my ($alter, @others) = map { session($node) } 0 .. 9;
    my (@readers) = splice @others, 0, 7;
    $_->sql('BEGIN; SELECT count(*) FROM t') for @readers;
    $db->sees_waiting($alter, 'ALTER TABLE t ADD COLUMN w int');
    $db->sees_waiting($_, 'SELECT count(*) FROM t') for @others;
    finds_ok(qr/^blocker\|high\|@{[ $alter->pid ]}\|2 sessions wait behind pid @{[ $alter->pid ]}, .*: ALTER TABLE t ADD .*, which waits for 7 transactions\|SELECT pg_cancel_backend\(@{[ $alter->pid ]}\)$/,
        'ALTER TABLE behind seven readers');
    $db->sql($db->sql('SELECT cure FROM pgscale.diagnosis() WHERE rank = 1'));
    is(($_->finish)[0], '00000', 'its cure lets the others go on') for @others;
    is(($alter->finish)[0], '57014', 'and cancels the one');
    $db->ends_waiting($alter, @readers, @others);
}

### Commands that wait for a long reader, and nothing else does

{
    my ($dump, $index) = (session($node), session($node));
    $dump->sql(q{SET application_name = 'pg_dump'; BEGIN ISOLATION LEVEL REPEATABLE READ; INSERT INTO t VALUES (-1, 0)});
    $dump->start('SELECT pg_sleep(600)');
    $db->sees_waiting($index, 'CREATE INDEX CONCURRENTLY ON other (i)');
    finds_ok(qr/^blocker\|low\|@{[ $dump->pid ]}\|pid @{[ $index->pid ]}, .*: CREATE INDEX .* waits until pid @{[ $dump->pid ]}, pg_dump ends its transaction; no other session waits\|SELECT process, waiters, activity, query FROM pgscale.blockers$/,
        'an index behind a long reader');
    $db->ends_waiting($index, $dump);
}

# VACUUM that waits for a page that a cursor has pinned, and what waits for its table
{
    my ($cursor, $vacuum, @others) = map { session($node) } 0 .. 3;
    $db->sql('CREATE TABLE pinned AS SELECT i FROM generate_series(1, 20) i; DELETE FROM pinned WHERE i = 5');
    $cursor->sql('BEGIN; DECLARE c CURSOR FOR SELECT i FROM pinned; FETCH c');
    $vacuum->start('VACUUM (FREEZE) pinned');
    $db->poll_ok('SELECT count(*) FROM pg_stat_activity WHERE wait_event IN ($$BufferPin$$, $$BufferCleanup$$) AND pid = ' . $vacuum->pid, 'VACUUM waits for a pin', 1);
    $db->sees_waiting($_, 'ALTER TABLE pinned ADD COLUMN w int') for @others;
    finds_ok(qr/^blocker\|high\|@{[ $cursor->pid ]}\|2 sessions wait for VACUUM, pid @{[ $vacuum->pid ]}, which waits for a page pinned by pid @{[ $cursor->pid ]}, .*\|SELECT pgscale.terminate/,
        'a cursor in the way of VACUUM');
    $db->ends_waiting($cursor, $vacuum, @others);
}

### Connections that are all in use by clients that do not authenticate

{
    $db->sql('CREATE ROLE silent LOGIN PASSWORD $$x$$');
    my $hba = slurp_file($node->data_dir . '/pg_hba.conf');
    unlink $node->data_dir . '/pg_hba.conf';
    append_to_file($node->data_dir . '/pg_hba.conf', "local all silent scram-sha-256\n$hba");
    $node->reload;
    $db->poll_ok(q{SELECT count(*) FROM pg_hba_file_rules WHERE user_name = '{silent}'}, 'a password is asked for', 1);
    my $startup = pack('N', 196608) . "user\0silent\0database\0postgres\0\0";
    my @silent = map {
        my $socket = IO::Socket::UNIX->new(Peer => $node->host . '/.s.PGSQL.' . $node->port) or die "no socket: $!";
        syswrite $socket, pack('N', 4 + length $startup) . $startup;
        $socket;
    } 1 .. 70;
    finds_ok(qr/^connection_storm\|\w+\|7\d of 77 connections are used \((69|70) not authenticated yet\), .*\|SHOW authentication_timeout$/,
        'clients that do not authenticate');
    close $_ for @silent;
    $db->poll_ok(q{SELECT (pgscale_internal.now_processes()->>'starting')::int < 5}, 'they are gone');
}

### A synchronous standby that is gone, and sessions that wait for the rows of the one that commits

{
    my $standby = pgscale_standby($node, "max_standby_streaming_delay = -1\nhot_standby_feedback = off\n");
    my @tellers = map { session($node) } 0 .. 3;
    my $row = sub { $_[0]->start("BEGIN; UPDATE t SET v = v + 1 WHERE id = 2;\nCOMMIT") };

    $db->set('synchronous_standby_names', 'standby');
    $monitor->poll_ok(q{SELECT pgscale_internal.now_evidence()->>'sync_standbys'}, 'a synchronous standby', 1);

    # its replay is held up by a query there
    my $reader = session($standby);
    $reader->sql('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT count(*) FROM t');
    $db->sql('DELETE FROM t WHERE id = 7; VACUUM t');
    $db->set('synchronous_commit', 'remote_apply');
    $db->poll_ok('SHOW synchronous_commit', 'remote_apply', 'remote_apply');
    $row->($_) for @tellers;
    finds_ok(qr/^replication_wait\|high\|\d sessions? waits? for a synchronous standby, which has the WAL but has not replayed it \(remote_apply\)\|CALL pgscale.set\('synchronous_commit', 'on', true\)$/,
        'a standby that does not replay');
    finds_ok(qr/^recovery_conflict\|medium\|@{[ $reader->pid ]}\|/, 'where the query is named', session($standby));
    $reader->sql('COMMIT');
    is(($_->finish)[0], '00000', 'they go on') for @tellers;
    $db->set('synchronous_commit');

    $standby->stop;
    $row->($_) for @tellers;
    $db->poll_ok(q{SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'SyncRep'}, 'one waits for the standby', 1);
    finds_ok(qr/^replication_wait\|high\|4 sessions wait for a synchronous standby, and none is connected\|CALL pgscale.set\('synchronous_standby_names', '', true\)$/,
        'and the others behind it are its victims, too');
    is($monitor->sql(q{SELECT string_agg(concat_ws('|', rule, certainty, sentence, evidence), '; ') FROM pgscale.diagnosis() WHERE cure ~ 'cancel|terminate' OR rule IN ('blocker', 'hot_row')}), '', 'no session is blamed');
    my $committing = $db->sql(q{SELECT pid FROM pg_stat_activity WHERE wait_event = 'SyncRep'});
    for my $call ("cancel($committing)", "terminate($committing)")
    {
        my ($verb) = $call =~ /(\w+)/;
        like($db->sql("SELECT what FROM pgscale.$call"), qr/^nothing was done: process $committing .* waits until a synchronous standby has its commit; .*: SELECT pg_${verb}_backend\($committing\)$/,
            "$call is refused");
    }
    my ($behind) = grep { $_->pid != $committing } @tellers;
    like($db->sql('SELECT what FROM pgscale.cancel(' . $behind->pid . ', true)'), qr/^nothing was done: process $committing .* waits until a synchronous standby/, 'also as a root');
    is($db->sql("SELECT wait_event FROM pg_stat_activity WHERE pid = $committing"), 'SyncRep', 'so it still waits');
    $db->set('synchronous_standby_names');
    is(($_->finish)[0], '00000', 'the cure lets them go on') for @tellers;

}

done_testing();
