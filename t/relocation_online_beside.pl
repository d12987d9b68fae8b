# Online moves beside autovacuum at its most eager, while sessions change the table: moves and autovacuum get their turns, and each
# row is as a ledger says. A move waits for an autovacuum that takes long, and does not cancel it.
use strict;
use warnings;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

relocation_node(conf => <<'EOC');
autovacuum = on
autovacuum_naptime = 1s
autovacuum_vacuum_threshold = 20
autovacuum_vacuum_scale_factor = 0
autovacuum_analyze_threshold = 20
autovacuum_analyze_scale_factor = 0
autovacuum_vacuum_cost_delay = 0
pgscale.relocation_switch_timeout = 1h
EOC
extensions();
# A session reports what it has changed when it is idle, so none of them is in a procedure.
$db->sql(<<'EOQ');
CREATE TABLE ledger (writer int PRIMARY KEY, n bigint NOT NULL) WITH (autovacuum_enabled = off);
INSERT INTO ledger VALUES (0, 0), (1, 0);
CREATE TABLE accounts (id int PRIMARY KEY, n bigint NOT NULL, filler char(300)) WITH (fillfactor = 80);
INSERT INTO accounts SELECT i, 0, '' FROM generate_series(0, 2999) i;
EOQ
my @writers = map { session($node) } 0 .. 1;
my $difference = 'SELECT (SELECT sum(n) FROM accounts) - (SELECT sum(n) FROM ledger), (SELECT count(*) FROM accounts)';

# Each writer changes some rows: what went wrong
sub change
{
    $writers[$_]->start("WITH changed AS (UPDATE accounts SET n = n + 1 WHERE id = ANY
        (ARRAY(SELECT 2 * floor(random() * 1500)::int + $_ FROM generate_series(1, 30))) RETURNING 1)
        UPDATE ledger SET n = n + (SELECT count(*) FROM changed) WHERE writer = $_") for 0 .. $#writers;
    return map { $_->[0] eq '00000' ? () : "@$_" } map { [ $_->finish ] } @writers;
}

sub vacuumed { my $table = shift; return $db->sql("SELECT autovacuum_count FROM pg_stat_user_tables WHERE relname = '$table'"); }
my $before = vacuumed('accounts');
my (@wrong, @jobs);
in_time_ok(sub {
    my $to = elsewhere('accounts');
    my @both = (ask("relocate_table('accounts', '$to')"), ask("relocate_indexes('accounts', '$to', mode => 'online')"));

    until_true(sub { push @wrong, change(); return !grep { of_job($_, 'finished_at IS NULL') eq 't' } @both })
        or die 'jobs do not end';
    push @jobs, @both;
    return @jobs >= 8 && vacuumed('accounts') >= $before + 2;
}, 'autovacuum gets its turn, and so do moves');
done_ok('each move', @jobs);
is(join("\n", @wrong), '', 'each change');
is($db->sql($difference), '0|3000', 'each row is as the ledger says');

### An autovacuum that takes long

$db->sql(<<'EOQ');
CREATE TABLE vacuumed (id int, filler char(1000)) WITH (autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1);
INSERT INTO vacuumed SELECT i, '' FROM generate_series(1, 4000) i;
DELETE FROM vacuumed WHERE id % 2 = 0;
EOQ
my ($vacuum, $rows) = ('', rows($db, 'vacuumed'));
my $at_work = q{FROM pg_stat_activity WHERE query LIKE 'autovacuum: VACUUM%public.vacuumed%'};
in_time_ok(sub { ($vacuum = $db->sql("SELECT pid $at_work")) ne '' }, 'autovacuum begins with a table, slowly');
my ($job) = ask(q{relocate_table('vacuumed', 'fast')});
job_ok($job, 'state, phase, message', "waiting|waiting for a gap|in use by process $vacuum",
    'a move waits for autovacuum, and names it');
my ($state, $count) = $db->try(q{SET lock_timeout = '20 s'; SELECT count(*) FROM vacuumed});
is("$state $count", '00000 2000', 'others do not wait');
is(of_job($job, 'state, lock_tries'), 'waiting|0', 'the move does not queue');
is($db->sql("SELECT pid $at_work"), $vacuum, 'autovacuum is at work');
unlike(slurp_file($node->logfile), qr/canceling autovacuum task/, 'none was cancelled because of a move');
$db->sql("SELECT pg_cancel_backend($vacuum)");
ended_ok($job, 'done', 'when it has ended, the move goes on and is done');
$db->sql('ALTER TABLE vacuumed RESET (autovacuum_vacuum_cost_delay, autovacuum_vacuum_cost_limit)');
in_time_ok(sub { vacuumed('vacuumed') > 0 }, 'then autovacuum gets its turn');
is(rows($db, 'vacuumed'), $rows, 'the rows are the same');
sound_ok('beside autovacuum');
strays_ok('beside autovacuum');

$_->quit for @writers;
stop_ok('could not (?:open|read|truncate|remove)');
done_testing();
