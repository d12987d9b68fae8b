# The requesting role loses a right while its live move copies: the switch does not happen, the job fails and says which right is missing, and
# nothing is left. With the right it goes on.
use strict;
use warnings;
use PgscaleLive;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

relocation_node(conf => "autovacuum = off\npgscale.sweeper = off\npgscale.relocation_max_transaction_age = -1");
$db->sql(<<'EOQ');
CREATE ROLE mover;
CREATE ROLE another;
GRANT CREATE ON SCHEMA public TO mover, another;
GRANT CREATE ON TABLESPACE fast, other TO mover;
GRANT USAGE ON SCHEMA pgscale, pgscale_internal TO mover;
GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA pgscale TO mover;
CREATE TABLE t (id int PRIMARY KEY, v text);
ALTER TABLE t ALTER v SET STORAGE EXTERNAL;
INSERT INTO t SELECT i, repeat(md5(i::text), 70) FROM generate_series(1, 500) i;
ALTER TABLE t OWNER TO mover;
EOQ
my $rows = rows($db, 't');

# As the role: the job, which waits for a gap; and who holds it up
sub waiting
{
    my ($call, $hold) = @_;
    my $holder = session($node);
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    $holder->sql('BEGIN; SELECT count(*) FROM t WHERE id > 0');
    $db->sql('SET ROLE mover');
    my ($job) = ask($call);
    $db->sql('RESET ROLE');
    job_ok($job, 'state, phase', 'waiting|waiting for a gap', 'a job that waits for a gap');
    return ($holder, $job);
}

my $table = q{relocate_table('t', 'fast')};
my $index = q{relocate_index('t_pkey', 'fast', mode => 'copy')};
for my $case (
    [ 'the ownership', $table, 'ALTER TABLE t OWNER TO another', 'ALTER TABLE t OWNER TO mover', 'must be owner of table "?t"?' ],
    [ 'CREATE on the tablespace', $table, 'REVOKE CREATE ON TABLESPACE fast FROM mover', 'GRANT CREATE ON TABLESPACE fast TO mover', 'permission denied for tablespace "?fast"?' ],
    [ 'CREATE on the tablespace, of an index', $index, 'REVOKE CREATE ON TABLESPACE fast FROM mover', 'GRANT CREATE ON TABLESPACE fast TO mover', 'permission denied for tablespace "?fast"?' ])
{
    my ($name, $call, $lose, $regain, $message) = @$case;

    # what takes a lock on the table waits for whoever reads it, and the move waits for it: so the right is lost in a catalog only, or
    # by a lock that is let go of with the reader's
    my ($holder, $job) = waiting($call);
    my $loser = session($node);
    $loser->start($lose);
    $db->poll_ok('SELECT count(*) FROM pg_locks WHERE NOT granted', "$name: whoever takes it waits for the reader", 1) if $lose =~ /OWNER/;
    ($loser->finish)[0] eq '00000' or die 'it cannot be taken' if $lose !~ /OWNER/;
    $holder->sql('COMMIT');
    is(($loser->finish)[0], '00000', "$name is lost") if $lose =~ /OWNER/;
    is(ended($job), 'failed', "$name is lost: the job fails") or diag job_text($job);
    like($db->sql("SELECT concat_ws(' ', sqlstate, attempts, message) FROM pgscale.relocation_jobs WHERE job = $job"), qr/^42501 1 $message/, "$name: it says so, at once");
    is(join(' ', map { place($_) } qw(t t_pkey)), 'pg_default pg_default', "$name: nothing has moved");
    is(rows($db, 't'), $rows, "$name: the rows are the same");
    strays_ok("$name: no file is left");
    $db->sql($regain);
    ($holder, $job) = waiting($call);
    $holder->sql('COMMIT');
    is(ended($job), 'done', "$name: with it the relation moves") or diag job_text($job);
    done_ok("$name: back", $db->sql("SELECT pgscale.relocation_undo($job)"));
    $_->quit for $holder, $loser;
}

# A role that is dropped meanwhile; its table belongs to another one by then
{
    my ($holder, $job) = waiting($table);
    my $dropper = session($node);
    $dropper->start('REASSIGN OWNED BY mover TO another; DROP OWNED BY mover; DROP ROLE mover');
    $db->poll_ok('SELECT count(*) FROM pg_locks WHERE NOT granted', 'whoever drops the role waits for the reader', 1);
    $holder->sql('COMMIT');
    is(($dropper->finish)[0], '00000', 'the role is dropped');
    is(ended($job), 'failed', 'the job of a role that was dropped fails') or diag job_text($job);
    like($db->sql("SELECT concat_ws(' ', sqlstate, message) FROM pgscale.relocation_jobs WHERE job = $job"), qr/^42(?:501|704) /, 'and says so');
    is(place('t'), 'pg_default', 'its table has not moved');
    strays_ok('no file is left');
    $_->quit for $holder, $dropper;
}

$db->quit;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal/, 'nothing crashed');
$node->stop;
done_testing();
