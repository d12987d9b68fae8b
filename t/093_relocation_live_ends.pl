# Live moves that find no moment for their switch, and such as are cancelled, ended, killed or caught by a shutdown in each of their
# phases: who holds them up is named, nobody queues behind them, the job ends as it should, and no file is left.
use strict;
use warnings;
use PgscaleLive;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

relocation_node(conf => "autovacuum = off\npgscale.relocation_max_transaction_age = -1\npgscale.relocation_switch_timeout = 1h");
my @tables = qw(t large);
two_tables(20000);
my $rows = rows($db, @tables);
my $other = session($node);
$other->sql(q{SET statement_timeout = '10 s'; SET lock_timeout = '5 s'});

### A reader that never leaves

{
    my ($holder, $job) = held_live('t', 'fast');
    my $pid = $holder->pid;

    is($db->sql("SELECT message FROM pgscale.relocation_jobs WHERE job = $job AND finished_at IS NULL"), "in use by process $pid", 'it says whom it waits for');
    is(join(' ', $other->try($_)), '00000 ' . (/count/ ? 500 : ''), "who comes meanwhile waits for nothing: $_")
      for 'SELECT count(*) FROM t', 'UPDATE t SET n = n + 1 WHERE id = 1', 'UPDATE t SET n = n - 1 WHERE id = 1';
    is($db->sql(q{SELECT count(*) FROM pg_locks WHERE relation = 't'::regclass AND NOT granted}), 0, 'nobody queues');
    $db->set('pgscale.relocation_switch_timeout', '2s');
    is(ended($job), 'failed', 'after its time, which was made shorter meanwhile, the job has failed');
    is($db->sql("SELECT sqlstate, message, attempts, lock_tries FROM pgscale.relocation_jobs WHERE job = $job"),
        "55006|the relation could not be switched within 2 s: in use by process $pid|1|0", 'and says why; it has never queued');
    is(place('t'), 'pg_default', 'it has not moved');
    strays_ok('a reader that never leaves: no file is left');
    $holder->sql('COMMIT');

    $db->set('pgscale.relocation_switch_timeout', '1h');
    $db->poll_ok('SHOW pgscale.relocation_switch_timeout', 'a long time', '1h');
    $holder->quit;
}
{
    # one that reads the TOAST table only
    my $toast = $db->sql(q{SELECT reltoastrelid::regclass FROM pg_class WHERE oid = 't'::regclass});
    my ($holder, $job) = held_live('t', 'fast', "BEGIN; SELECT count(*) FROM $toast");
    is($db->sql("SELECT message FROM pgscale.relocation_jobs WHERE job = $job"), 'in use by process ' . $holder->pid, 'who uses the TOAST table is named, too');
    $holder->quit;
    is(ended($job), 'done', 'without that it is done');
    is(place('t'), 'fast', 'it has moved');
}

# A GRANT has changed the row in pg_class; before 18 it has not locked the table
{
    $db->sql('CREATE TABLE granted AS SELECT FROM generate_series(1, 500)');
    my ($holder, $job) = held_live('granted', 'fast', 'BEGIN; GRANT SELECT ON granted TO PUBLIC');
    job_ok($job, 'lock_tries > 1 OR message IS NOT NULL', 't', 'the switch does not wait for a GRANT');
    is(join(' ', $other->try('SELECT count(*) FROM granted')), '00000 500', 'nor do others for the switch');
    $holder->sql('COMMIT');
    is(ended($job), 'done', 'after the GRANT it is done');
    $holder->quit;
    $db->sql('DROP TABLE granted');
}

# A prepared transaction, and two users
{
    my ($holder, $job) = held_live('t', 'other', q{BEGIN; UPDATE t SET n = n WHERE id = 2; PREPARE TRANSACTION 'p'});
    is($db->sql("SELECT message FROM pgscale.relocation_jobs WHERE job = $job"), 'in use by a prepared transaction', 'a prepared transaction is named as such');
    $holder->sql('BEGIN; SELECT FROM t');
    job_ok($job, q{message IN ('in use by a prepared transaction, process } . $holder->pid . q{', 'in use by process } . $holder->pid . q{, a prepared transaction')}, 't', 'both are named');
    is(($db->try(q{SELECT pgscale.relocate_table('t', 'other')}))[0], '55006', 'a second job of the table is refused');
    like(($db->try(q{SELECT pgscale.relocate_table('t', 'fast', 'lock')}))[1], qr/"t" already is/, 'whatever its mode and place');
    $holder->sql('COMMIT');
    $db->sql(q{COMMIT PREPARED 'p'});
    is(ended($job), 'done', 'when they have ended it is done');
    is($db->sql("SELECT attempts FROM pgscale.relocation_jobs WHERE job = $job"), 1, 'at the first attempt');
    $holder->quit;
}

### Ended in each phase

sub slow
{
    my $on = shift;
    my $rate = $on ? '200kB' : '0';

    $db->set('pgscale.relocation_rate', $rate);
    return $db->poll_ok('SHOW pgscale.relocation_rate', 'the rate', $rate);
}

# The job, its worker and who holds it
sub copying
{
    my ($job) = ask("relocate_table('t', '" . elsewhere('t') . "')");
    job_ok($job, 'state, phase, copied_bytes > 0', 'running|copying|t', 'a copy is under way');
    return ($job, $db->sql("SELECT pid FROM pgscale_internal.relocation_job WHERE job = $job"));
}

sub waiting
{
    my ($holder, $job, $worker) = held_live('t', elsewhere('t'));
    return ($job, $worker, $holder);
}

# It has just switched, and has old files of many megabytes to remove.
sub dropping
{
    my $from = place('large');
    my ($job) = ask("relocate_table('large', '" . elsewhere('large') . "')");
    my $worker = '';

    until_true(sub { $worker ||= $db->sql("SELECT pid FROM pgscale_internal.relocation_job WHERE job = $job"); return place('large') ne $from })
      or die 'it does not switch';
    return ($job, $worker);
}

sub reconnect
{
    my $log = shift;

    until_true(sub { substr(slurp_file($node->logfile), $log) =~ /database system is ready to accept connections/ });
    until_true(sub { system('pg_isready', '-q', '-h', $node->host, '-p', $node->port) == 0 });
    $_->quit for $db, $other;
    $db = session($node);
    $other = session($node);
    return;
}

sub crash { my ($how) = @_; my $log = -s $node->logfile; $how->(); return reconnect($log); }

my %ways = (
    relocation_cancel => sub { my ($job) = @_; $db->sql("SELECT pgscale.relocation_cancel($job)") },
    pg_cancel_backend => sub { my ($job, $worker) = @_; $db->sql("SELECT pg_cancel_backend($worker)") },
    pg_terminate_backend => sub { my ($job, $worker) = @_; $db->sql("SELECT pg_terminate_backend($worker)") },
    'kill -9 of the worker' => sub { my ($job, $worker) = @_; crash(sub { kill 'KILL', $worker or die "no worker $worker" }) },
    'a fast shutdown' => sub { crash(sub { $node->stop('fast'); $node->start }) },
    'an immediate shutdown' => sub { crash(sub { $node->stop('immediate'); $node->start }) });
for my $way (sort keys %ways)
{
    my $cancelled = $way =~ /cancel/;

    for my $phase ([ copying => \&copying ], [ waiting => \&waiting ], [ dropping => \&dropping ])
    {
        my ($name, $begin) = ("$way while $phase->[0]", $phase->[1]);
        my $is_dropping = $phase->[0] eq 'dropping';
        my $table = $is_dropping ? 'large' : 't';
        my $expected = $is_dropping || !$cancelled ? 'done' : 'cancelled';

        slow(1) if $phase->[0] eq 'copying';
        my $from = place($table);
        my ($job, $worker, $holder) = $begin->();
        $ways{$way}->($job, $worker) if !$is_dropping || $worker;
        # a cancelled job ends while it would still be copying or waiting
        my $ended = $expected eq 'cancelled' ? ended($job) : '';
        slow(0) if $phase->[0] eq 'copying';
        $holder->quit if $holder;
        is(ended($job), $expected, "$name: $expected") or diag job_text($job);
        is(place($table) ne $from, $expected eq 'done', "$name: so it has moved or not");
        strays_ok("$name: no file is left");
    }
}
is(rows($db, @tables), $rows, 'all rows are there');

# The second crash is the last one, and leaves nothing either.
slow(1);
{
    my $from = place('t');
    my ($job, $worker) = copying();
    crash(sub { kill 'KILL', $worker });
    job_ok($job, 'state, phase, copied_bytes > 0, attempts', 'running|copying|t|2', 'after a crash the copy begins again');
    $worker = $db->sql("SELECT pid FROM pgscale_internal.relocation_job WHERE job = $job");
    crash(sub { kill 'KILL', $worker });
    is(ended($job), 'lost', 'after a second one it does not');
    is(place('t'), $from, 'it has not moved');
    strays_ok('two crashes: no file is left');
}

# A worker that is stopped in the midst of it holds nobody up.
slow(1);
{
    my ($job, $worker) = copying();
    kill 'STOP', $worker;
    until_ok(sub { process_state($worker) eq 'T' }, 'a worker is stopped');
    $other->sql(q{SET lock_timeout = '5 s'});
    is(($other->try($_))[0], '00000', "beside it: $_") for 'SELECT count(*) FROM t', 'UPDATE t SET n = n WHERE id = 3';
    kill 'CONT', $worker;
    slow(0);
    is(ended($job), 'done', 'it goes on and is done');
}

is($db->sql(q{SELECT count(*) FROM pg_prepared_xacts}), 0, 'no prepared transaction');
is(rows($db, @tables), $rows, 'all rows are there');
strays_ok('no file is left');
$_->quit for $db, $other;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal (?!9)/, 'nothing crashed by itself');
$node->stop;
done_testing();
