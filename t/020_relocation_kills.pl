# What moves an index is killed, stopped or cancelled, before the new index has taken the old one's place and after; then the
# job must end by itself as it should, with nothing left and nothing changed.
#
# The job is held where it is struck by other sessions: a writer's lock keeps it before the building, a reader's after the
# swap. t/trust/kills strikes at all steps, at random.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main', conf => <<'EOC');
max_prepared_transactions = 2
wal_level = replica
max_wal_senders = 4
checkpoint_timeout = 1h
client_min_messages = warning
EOC
my $elsewhere = PostgreSQL::Test::Utils::tempdir;
my $db = session($node);
my (@holds, $place, $job);

$db->sql("CREATE TABLESPACE elsewhere LOCATION '$elsewhere'");
$db->sql(<<'EOQ');
CREATE TABLE items (id int CONSTRAINT "the key" PRIMARY KEY, name text NOT NULL);
CREATE INDEX items_name ON items (lower(name) DESC) WHERE id % 3 <> 0;
ALTER INDEX items_name ALTER COLUMN 1 SET STATISTICS 500;
COMMENT ON CONSTRAINT "the key" ON items IS 'of each';
CREATE TABLE referring (id int REFERENCES items);
INSERT INTO items SELECT i, 'item ' || i FROM generate_series(1, 5000) i;
INSERT INTO referring VALUES (1)
EOQ
$db->sql('CREATE EXTENSION amcheck') if have_module('amcheck');

# All relations, indexes and constraints, but for where they are, and the rows.
sub all_there_is
{
    return $db->sql(<<'EOQ');
SELECT c.relname, c.relkind, i.indisvalid, i.indisready, i.indislive, pg_get_indexdef(i.indexrelid),
    (SELECT max(attstattarget) FROM pg_attribute WHERE attrelid = i.indexrelid)
FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid
WHERE relnamespace IN ('public'::regnamespace, 'pg_toast'::regnamespace, 'pgscale_internal'::regnamespace) ORDER BY c.oid::regclass::text;
SELECT conname, conrelid::regclass, conindid::regclass, convalidated, pg_get_constraintdef(oid), obj_description(oid, 'pg_constraint')
FROM pg_constraint WHERE conrelid <> 0 ORDER BY 1, 2;
SELECT count(*), md5(string_agg(items::text, ',' ORDER BY id)) FROM items
EOQ
}

# The job, its worker and where it is.
sub job
{
    my $columns = shift;

    return $db->sql("SELECT $columns FROM pgscale.relocation_jobs WHERE job = $job");
}

sub phase_ok
{
    my ($phase) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return $db->poll_ok("SELECT phase FROM pgscale.relocation_jobs WHERE job = $job", "a job is at \"$phase\"", $phase);
}

sub worker { return $db->sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'pgscale relocation worker'"); }

# An open transaction with this lock; with a name it is prepared.
sub hold
{
    my ($mode, $name) = @_;
    my $hold = session($node);

    $hold->sql("BEGIN; LOCK TABLE items IN $mode MODE");
    $hold->sql("PREPARE TRANSACTION '$name'") if $name;
    push @holds, $hold;
    return;
}

# Their ends; those of a server that died know it.
sub let_go
{
    (shift @holds)->quit while @holds > (shift // 0);
    $db->sql("COMMIT PREPARED '$_'") for split /\n/, $db->sql('SELECT gid FROM pg_prepared_xacts');
    return;
}

# Moves an index to where it is not.
sub request
{
    my $index = shift;

    $place = $db->sql("SELECT CASE reltablespace WHEN 0 THEN 'elsewhere' ELSE 'pg_default' END FROM pg_class
        WHERE oid = '$index'::regclass");
    $job = $db->sql("SELECT pgscale.relocate_index('$index', '$place', amcheck => " . (have_module('amcheck') ? 1 : 0) . q{::bool, mode => 'rebuild')});
    return;
}

sub is_there
{
    my $index = shift;

    return $db->sql("SELECT (reltablespace <> 0) = ('$place' = 'elsewhere') FROM pg_class WHERE oid = '$index'::regclass") eq 't';
}

# Not moved yet: new index made, not built
sub before_swap
{
    hold('ROW EXCLUSIVE', @_);
    request('items_name');
    return phase_ok('waiting for writers before build');
}

# Moved; the old index is still there, dead
sub after_swap
{
    hold('ACCESS SHARE');
    request('items_name');
    phase_ok('waiting for readers before marking dead');
    hold('ACCESS SHARE');
    (shift @holds)->quit;
    return phase_ok('waiting for readers before dropping');
}

sub reconnect
{
    my $log = shift;

    until_true(sub { substr(slurp_file($node->logfile), $log) =~ /database system is ready to accept connections/ });
    until_true(sub { system('pg_isready', '-q', '-h', $node->host, '-p', $node->port) == 0 });
    $_->quit for $db, splice @holds;
    $db = session($node);
    return;
}

sub kill_worker
{
    my $log = -s $node->logfile;

    kill 'KILL', worker();
    return reconnect($log);
}

sub stop
{
    my $how = shift;
    my $log = -s $node->logfile;

    if ($how eq 'kill')
    {
        my @pids = ($db->sql('SELECT pid FROM pg_stat_activity') =~ /\d+/g, slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/);

        kill_postmaster($node);
        until_true(sub { !grep { process_state($_) } @pids });
    }
    else
    {
        $node->stop($how);
    }
    $node->start;
    return reconnect($log);
}

# The job ends like that, and all is as it was; if it has not moved, it can be moved now.
sub ends_ok
{
    my ($state, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    let_go();
    $db->poll_ok("SELECT state FROM pgscale.relocation_jobs WHERE job = $job AND finished_at IS NOT NULL", "$name: $state", $state);
    is($db->sql('SELECT count(*) FROM pgscale_internal.relocation_job WHERE finished_at IS NULL'), 0, 'no job is stuck');
    return;
}

my $before = all_there_is();

sub nothing_changed
{
    my $index = shift;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    is(all_there_is(), $before, 'nothing is left or changed');
    $db->sql("SELECT bt_index_check(indexrelid, true) FROM pg_index WHERE indrelid = 'items'::regclass") if have_module('amcheck');
    return if is_there($index);
    request($index);
    ends_ok('done', 'requested again');
    is(all_there_is(), $before, 'and nothing is left or changed');
    ok(is_there($index), 'but its place');
    return;
}

# t/039 has what ends the worker alone
my @ways = (
    [ 'kill -9 of the worker', \&kill_worker ],
    [ 'kill -9 of the postmaster', sub { stop('kill') } ],
    [ 'fast shutdown', sub { stop('fast') } ]);

sub terminate { return $db->sql('SELECT pg_terminate_backend(' . worker() . ')'); }
sub cancel { return $db->sql('SELECT pg_cancel_backend(' . worker() . ')'); }

for my $way (@ways)
{
    my ($name, $strike) = @$way;

    before_swap();
    $strike->();
    ends_ok('done', "$name before the swap");
    nothing_changed('items_name');

    after_swap();
    is($db->sql('SELECT count(*) FROM pg_index WHERE NOT indisvalid'), 1, 'the old index is still there');
    $strike->();
    ends_ok('done', "$name after the swap");
    ok(is_there('items_name'), 'it has moved');
    nothing_changed('items_name');
}

# The clean-up waits for the same writer: what comes then must not undo what was wanted before.
my $waiting = q{SELECT count(*) FROM pg_stat_activity a JOIN pg_locks l USING (pid)
    WHERE backend_type = 'pgscale relocation worker' AND NOT granted
    AND NOT EXISTS (SELECT FROM pg_stat_progress_create_index p WHERE p.pid = a.pid)};
for my $again ([ 'pg_cancel_backend', \&cancel ], [ 'pg_terminate_backend', \&terminate ])
{
    before_swap();
    cancel();
    $db->poll_ok($waiting, 'the worker that was cancelled cleans up', 1);
    $again->[1]->();
    ends_ok('cancelled', "$again->[0] while it does");
    nothing_changed('items_name');
}
before_swap();
cancel();
$db->poll_ok($waiting, 'the worker that was cancelled cleans up', 1);
kill_worker();
ends_ok('done', 'kill -9 while it does: nobody knows any more that it was cancelled');
nothing_changed('items_name');

# A prepared transaction outlasts a shutdown, which must not wait for it.
before_swap('prepared');
stop('fast');
let_go();
ends_ok('done', 'fast shutdown while a prepared transaction holds it up');
nothing_changed('items_name');

# The second crash is the last one.
before_swap('prepared');
kill_worker();
$db->poll_ok($waiting, 'another worker cleans up', 1);
kill_worker();
ends_ok('lost', 'two crashes');
is(job("sqlstate, message ~ '^2 attempts ended in a crash'"), '57P02|t', 'and says so');
nothing_changed('items_name');

# A crash may take back that it has ended, where a commit is not on disk at once; then it must not be forgotten.
sub open_databases { return (unpack 'L4', slurp_file($node->data_dir . '/pg_stat/pgscale_relocation.stat'))[3]; }
$db->set('synchronous_commit', 'off');
$db->poll_ok('SHOW synchronous_commit', 'commits are not waited for', 'off');
{
    my $log = -s $node->logfile;
    my $walwriter = $db->sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'");

    kill 'STOP', $walwriter;
    request('items_name');
    ends_ok('done', 'a job whose end is not on disk');
    until_ok(sub { open_databases() == 0 }, 'its database has no open jobs any more');
    kill 'KILL', $walwriter;
    reconnect($log);
}
ends_ok('done', 'a crash after it');
nothing_changed('items_name');
$db->set('synchronous_commit', 'on');

# A constraint's index: the constraint goes to the new one
hold('ROW EXCLUSIVE');
request('"the key"');
phase_ok('waiting for writers before build');
kill_worker();
ends_ok('done', 'kill -9 of the worker that moves a primary key');
nothing_changed('"the key"');

# A synchronous standby that is not there keeps neither the job from its end nor the server from its own.
$db->set('synchronous_standby_names', 'nobody');
$db->poll_ok('SHOW synchronous_standby_names', 'commits are to wait for a standby that is not there', 'nobody');
$db->sql('SET synchronous_commit = local');
request('items_name');
ends_ok('done', 'no standby');
before_swap();
stop('fast');
$db->sql('SET synchronous_commit = local');
ends_ok('done', 'fast shutdown without the standby');
nothing_changed('items_name');
$db->set('synchronous_standby_names', undef);
$db->poll_ok('SHOW synchronous_standby_names', 'commits wait for nobody', '');

# A table moves as a whole or not at all.
for my $way (@ways[0, 2], [ 'pg_cancel_backend', \&cancel, 'cancelled' ])
{
    my ($name, $strike, $unmoved) = @$way;

    hold('ACCESS SHARE');
    $place = $db->sql("SELECT CASE reltablespace WHEN 0 THEN 'elsewhere' ELSE 'pg_default' END FROM pg_class
        WHERE oid = 'items'::regclass");
    # it says how long it will block
    ($job) = $db->sql("SELECT pgscale.relocate_table('items', '$place', 'lock', '1 day')") =~ /^(\d+)$/m;
    $db->poll_ok($waiting, 'the move of a table waits for its lock', 1);
    $strike->();
    ends_ok($unmoved // 'done', "$name while it does");
    is(is_there('items'), !$unmoved, 'so it has moved, or not');
    is(all_there_is(), $before, 'and nothing is left or changed');
}

done_testing();
