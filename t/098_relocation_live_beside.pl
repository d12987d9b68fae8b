# Live moves beside what uses the table all the time: autovacuum, at its most eager, and readers on a hot standby. Each gets its turn:
# moves, autovacuum, the readers, and replay.
use strict;
use warnings;
use PgscaleLive;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my @writers;

# A table that changes, and the sums of what was changed. A session reports what it has changed when it is idle, so none of them is
# in a procedure.
sub accounts
{
    $db->sql(<<'EOQ');
CREATE TABLE ledger (writer int PRIMARY KEY, n bigint NOT NULL);
INSERT INTO ledger VALUES (0, 0), (1, 0);
CREATE TABLE accounts (id int PRIMARY KEY, n bigint NOT NULL, filler char(300)) WITH (fillfactor = 80);
INSERT INTO accounts SELECT i, 0, '' FROM generate_series(0, 5999) i;
EOQ
    @writers = map { session($node) } 0 .. 1;
    return;
}

# Each writer changes some rows, beside what meanwhile does.
sub change
{
    my $meanwhile = shift;
    my @wrong;

    $writers[$_]->start("WITH changed AS (UPDATE accounts SET n = n + 1 WHERE id = ANY (ARRAY(SELECT 2 * floor(random() * 3000)::int + $_ FROM generate_series(1, 30))) RETURNING 1)
        UPDATE ledger SET n = n + (SELECT count(*) FROM changed) WHERE writer = $_") for 0 .. $#writers;
    push @wrong, $meanwhile->() if $meanwhile;
    push @wrong, map { $_->[0] eq '00000' ? () : "@$_" } map { [ $_->finish ] } @writers;
    return @wrong;
}

my $difference = 'SELECT (SELECT sum(n) FROM accounts) - (SELECT sum(n) FROM ledger), (SELECT count(*) FROM accounts)';

# Asks for the moves of a table and of its indexes.
sub ask_both
{
    my $table = shift;
    my $to = elsewhere($table);

    return (ask("relocate_table('$table', '$to')"), ask("relocate_indexes('$table', '$to', mode => 'copy')"));
}

# Changes rows until these jobs have ended: what went wrong
sub until_ended
{
    my ($jobs, $meanwhile) = @_;
    my @wrong;

    until_true(sub { push @wrong, change($meanwhile); $db->sql('SELECT count(*) FROM pgscale.relocation_jobs WHERE finished_at IS NULL') eq '0' })
      or die 'jobs do not end: ' . $db->sql('SELECT json_agg(j) FROM pgscale.relocation_jobs j WHERE finished_at IS NULL');
    push @wrong, split /\n/, $db->sql(q{SELECT concat_ws(' ', relation, state, sqlstate, message) FROM pgscale.relocation_jobs
        WHERE (state <> 'done' OR sqlstate IS NOT NULL) AND job IN (} . join(',', @$jobs) . ')');
    return @wrong;
}

### Autovacuum

relocation_node(conf => <<'EOC');
autovacuum = on
autovacuum_naptime = 1s
autovacuum_vacuum_threshold = 20
autovacuum_vacuum_scale_factor = 0
autovacuum_analyze_threshold = 20
autovacuum_analyze_scale_factor = 0
autovacuum_vacuum_cost_delay = 0
log_autovacuum_min_duration = 0
pgscale.relocation_switch_timeout = 1h
EOC
$db->sql("CREATE EXTENSION $_") for grep { have_module($_) } qw(amcheck pg_visibility);
accounts();
sub vacuumed { my $table = shift; return $db->sql("SELECT autovacuum_count FROM pg_stat_user_tables WHERE relname = '$table'"); }
{
    my ($moves, $before, @wrong) = (0, vacuumed('accounts'));

    until_true(sub {
        push @wrong, until_ended([ ask_both('accounts') ]);
        return ++$moves >= 6 && vacuumed('accounts') >= $before + 3;
    });
    is(join("\n", @wrong), '', 'beside autovacuum each move ends, and each change');
    cmp_ok($moves, '>=', 6, 'several moves');
    cmp_ok(vacuumed('accounts'), '>=', $before + 3, 'autovacuum gets its turn');
    note "$moves moves, ", vacuumed('accounts') - $before, ' vacuums, ', $db->sql('SELECT sum(recopied_blocks), max(locked_ms), max(lock_tries), max(attempts) FROM pgscale.relocation_jobs');
}
is($db->sql($difference), '0|6000', 'each row is as the ledger says');

# One that takes long
$db->sql(<<'EOQ');
CREATE TABLE vacuumed (id int, filler char(1000)) WITH (autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1);
INSERT INTO vacuumed SELECT i, '' FROM generate_series(1, 4000) i;
DELETE FROM vacuumed WHERE id % 2 = 0;
EOQ
my ($vacuum, $rows) = ('', rows($db, 'vacuumed'));
until_ok(sub { ($vacuum = $db->sql(q{SELECT pid FROM pg_stat_activity WHERE query LIKE 'autovacuum: VACUUM%public.vacuumed%'})) ne '' }, 'autovacuum begins with a table, slowly');
my ($job) = ask(q{relocate_table('vacuumed', 'fast')});
job_ok($job, 'state, phase, message', "waiting|waiting for a gap|in use by process $vacuum", 'a move waits for autovacuum, and names it');
is(join("\n", change(sub { my ($state, $answer) = $db->try(q{SET lock_timeout = '5 s'; SELECT count(*) FROM vacuumed}); return $answer eq '2000' ? () : "$state $answer" })), '', 'others do not wait');
is($db->sql("SELECT state, lock_tries FROM pgscale.relocation_jobs WHERE job = $job"), 'waiting|0', 'the move does not queue');
is($db->sql("SELECT count(*) FROM pg_stat_activity WHERE pid = $vacuum AND query LIKE 'autovacuum: VACUUM%public.vacuumed%'"), 1, 'autovacuum is at work');
unlike(slurp_file($node->logfile), qr/canceling autovacuum task/, 'no autovacuum was cancelled because of a move');
$db->sql("SELECT pg_cancel_backend($vacuum)");
is(ended($job), 'done', 'when it has ended, the move goes on and is done');
$db->sql('ALTER TABLE vacuumed RESET (autovacuum_vacuum_cost_delay, autovacuum_vacuum_cost_limit)');
in_time_ok(sub { vacuumed('vacuumed') > 0 }, 'then autovacuum gets its turn');
is(rows($db, 'vacuumed'), $rows, 'the rows are the same');
sound_ok('beside autovacuum');
strays_ok('beside autovacuum: no file is left');
$_->quit for @writers, $db;
$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal|could not (?:open|read|truncate|remove)/, 'nothing went wrong unseen');

### Readers on a hot standby

relocation_node(name => 'primary', conf => "autovacuum = off\nwal_keep_size = 1GB\npgscale.relocation_switch_timeout = 1h");
accounts();
two_tables(2000);
my $standby = pgscale_standby($node, "max_standby_streaming_delay = 5min\nwal_receiver_status_interval = 1s");
my ($there, $reader) = map { session($standby) } 1 .. 2;
$rows = rows($db, qw(t large));
my @moving = qw(t large accounts);
my $conflicts = 'SELECT confl_lock, confl_tablespace + confl_snapshot + confl_bufferpin + confl_deadlock FROM pg_stat_database_conflicts WHERE datname = current_database()';

# All rows, in a transaction that looks twice: what is wrong
sub read_there
{
    my @wrong;

    $reader->sql('BEGIN ISOLATION LEVEL REPEATABLE READ');
    for my $look (1 .. 2)
    {
        my ($state, $answer) = $reader->try($difference);
        push @wrong, "look $look: $state $answer" if $answer ne '0|6000';
        my $found = eval { rows($reader, qw(t large)) } // $@;
        push @wrong, "look $look: $found" if $found ne $rows;
    }
    $reader->sql('COMMIT');
    return @wrong;
}

for my $feedback ('off', 'on')
{
    my ($name, $looks, @wrong) = ("hot_standby_feedback $feedback", 0);

    $there->set('hot_standby_feedback', $feedback);
    # a snapshot, so that there is something to report
    $reader->sql('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
    $db->poll_ok(q{SELECT backend_xmin IS NOT NULL FROM pg_stat_replication}, "$name: the primary knows", $feedback eq 'on' ? 't' : 'f');
    $reader->sql('COMMIT');
    for my $round (1 .. 3)
    {
        push @wrong, until_ended([ map { ask_both($_) } @moving ], sub { $looks++; return read_there() });
    }
    is(join("\n", @wrong), '', "$name: each move ends, and each reader sees all rows");
    cmp_ok($looks, '>=', 3, "$name: it looked in each round");
    $node->wait_for_catchup($standby, 'replay');
    is(rows($there, @moving, 'ledger'), rows($db, @moving, 'ledger'), "$name: the standby has the same rows");
    is($there->sql($conflicts), '0|0', "$name: no session conflicts with replay");
    strays_ok("$name: no file is left on the standby", $there);
}

# A session that has the table when the switch is replayed
$there->set('max_standby_streaming_delay', '0');
$there->poll_ok('SHOW max_standby_streaming_delay', 'replay waits for no session', '0');
my $holder = session($standby);
$holder->sql('BEGIN; SELECT count(*) FROM large');
done_ok('the table of a session on the standby', ask(q{relocate_table('large', '} . elsewhere('large') . q{')}));
$there->poll_ok($conflicts, 'the session conflicts with the lock of the switch, and with nothing else', '1|0');
$node->wait_for_catchup($standby, 'replay');
is(rows($there, @moving, 'ledger'), rows($db, @moving, 'ledger'), 'replay goes on: the standby has the same rows');
strays_ok('no file is left on the standby', $there);
strays_ok('nor on the primary');
$_->quit for $holder, $reader, $there, @writers, $db;
$standby->stop;
$node->stop;
unlike(slurp_file($_->logfile), qr/PANIC|TRAP|terminated by signal|could not (?:open|read|truncate|remove)/, 'nothing went wrong unseen: ' . $_->name) for $node, $standby;

done_testing();
