# The sweeper's writers have places, each for one: whatever holds up the postmaster, none is ever taken twice. And what is
# queued counts only while writers get on with it.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main', conf => <<"EOC");
shared_buffers = 8MB
max_worker_processes = 40
pgscale.sweeper_mode = ${\ sweeper_mode()}
checkpoint_timeout = 1h
bgwriter_lru_maxpages = 0
fsync = on
synchronous_commit = off
log_min_messages = debug1
pgscale.sweeper = on
pgscale.sweeper_adaptive = off
pgscale.sweeper_writers = 2
pgscale.sampler = off
EOC
my $db = session($node);
my ($postmaster) = split /\n/, slurp_file($node->data_dir . '/postmaster.pid');

# Waits until the sweeper has ticked so often; a tick is due every 4 ms while it works.
sub ticks_ok
{
    my ($ticks, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my $before = $db->sql('SELECT ticks FROM pgscale.sweeper_stats');

    return $db->poll_ok("SELECT ticks >= $before + $ticks FROM pgscale.sweeper_stats", $name);
}

# The postmaster is stopped, all writers end, and are wanted.
sub hold_up_ok
{
    my ($name, $ticks) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    $db->poll_ok('SELECT writers FROM pgscale.sweeper_stats', "$name: two writers", 2);
    kill 'STOP', $postmaster;
    $db->sql("SELECT pg_terminate_backend($_)") for $db->sweeper_pids('writer');
    $db->poll_ok('SELECT writers FROM pgscale.sweeper_stats', "$name: they end while the postmaster is stopped", 0);
    ticks_ok($ticks, "$name: and are wanted for seconds");
    return;
}

$db->churn_table(40000);
my @churning = churn($node, 4);
$db->sweeps_on('the sweeper works') or BAIL_OUT('it does not work');
hold_up_ok('held up', 600);
my $log = -s $node->logfile;
kill 'CONT', $postmaster;
my $most = 0;
until_ok(sub { my $n = $db->sweeper_pids('writer'); $most = $n if $n > $most; $n >= 2 }, 'writers again');
$db->sweeps_on('and they write');
my $n = $db->sweeper_pids('writer');
$most = $n if $n > $most;
is($most, 2, 'one for each place');
my $asked = () = substr(slurp_file($node->logfile), $log) =~ /\bregistering background worker "pgscale sweeper writer/g;
is($asked, 2, 'since it was asked for one for each');
ticks_ok(100, 'it goes on');
is($db->sql('SELECT writers, errors FROM pgscale.sweeper_stats'), '2|0', 'with them, and without an error');

# A ring that says what cannot be is given up, and counted; a look at all that seems to be in it would take hours. Only a library
# that comes between can have it say so, and from 16 on a library shows nothing but what the server calls.
SKIP:
{
    my $library = PostgreSQL::Test::Utils::tempdir() . '/broken_rings.so';
    my ($include, $libraries) = (server_headers(), qx(pg_config --pkglibdir) =~ s/\n//r);

    skip 'the library that breaks rings cannot be compiled here', 5
      if system("{ nm -D $libraries/pgscale.so | grep -w pgscale_sweeper_share &&"
          . " cc -shared -fPIC -O1 -I $include -I src -o $library t/lib/broken_rings.c; } >$library.out 2>&1") != 0;
    chmod 0755, $library or die $!;
    $db->sql("CREATE FUNCTION break_rings(runs bool, written bool) RETURNS void LANGUAGE C AS '$library'");
    for my $which ('true, false', 'false, true')
    {
        my $errors = $db->sql('SELECT errors FROM pgscale.sweeper_stats');
        # whose ring it is may be writing to it, and so not see
        until_ok(sub { $db->sql("SELECT break_rings($which)"); $db->sql('SELECT errors FROM pgscale.sweeper_stats') > $errors },
            "a ring that says what cannot be ($which) is given up");
        $db->sweeps_on('and it goes on');
    }
    is($db->sql('SELECT writers FROM pgscale.sweeper_stats'), 2, 'with its writers');
}

# A database is dropped, and the server stopped, just after that.
$db->sql('CREATE DATABASE passing');
hold_up_ok('once more', 280);
kill 'CONT', $postmaster;
until_ok(sub { $db->sweeper_pids('writer') >= 2 }, 'writers again');
is(($db->try('DROP DATABASE passing'))[0], '00000', 'DROP DATABASE soon after');
$db->churn_end(@churning);
$db->churn_right('the data is right');
@churning = churn($node, 4);
$db->sweeps_on('a load again');
hold_up_ok('and again', 280);
kill 'CONT', $postmaster;
until_ok(sub { $db->sweeper_pids('writer') >= 2 }, 'writers again');
$ENV{PGCTLTIMEOUT} = $PostgreSQL::Test::Utils::timeout_default;
ok($node->stop('fast', fail_ok => 1), 'fast shutdown soon after') or BAIL_OUT('the server does not stop');
$_->quit for $db, @churning;

# No writer can start: clean buffers are supplied nevertheless, though the queue is full of dirty pages.
$node->append_conf('postgresql.conf', "max_worker_processes = 3\npgscale.sampler = on\n");
$node->start;
$db = session($node);
$db->sql('UPDATE churn SET n = n WHERE id < 8000');
$db->poll_ok('SELECT state, writers FROM pgscale.sweeper_stats', 'no room for a writer', 'working|0');
$db->poll_ok('SELECT queued > 0 FROM pgscale.sweeper_stats', 'dirty pages wait for one');
my $supplied = 'SELECT supplied_clean FROM pgscale.sweeper_stats';
my $before = $db->sql($supplied);
until_ok(sub { $db->sql('SELECT sum(n) FROM churn'); $db->sql($supplied) > $before + 1000 }, 'clean ones are supplied nevertheless')
  or diag $db->sql('SELECT row_to_json(s) FROM pgscale.sweeper_stats s');
$db->quit;

# Pages that bear positions which WAL has not come to, as damaged ones may, hold up nothing. Reading their rows makes them
# dirty again, where that is not logged itself.
my $help = qx(initdb --help);
my $damaged = pgscale_node('damaged', init => $help =~ /--no-data-checksums/ ? [ extra => ['--no-data-checksums'] ] : [], conf => <<"EOC");
shared_buffers = 8MB
max_worker_processes = 20
pgscale.sweeper_mode = ${\ sweeper_mode()}
checkpoint_timeout = 1h
bgwriter_lru_maxpages = 0
fsync = off
pgscale.sweeper = on
pgscale.sweeper_adaptive = off
pgscale.sweeper_writers = 1
EOC
$node->stop('fast');
$db = session($damaged);
$db->sql('CREATE TABLE bad (filler) WITH (autovacuum_enabled = off) AS SELECT repeat($$x$$, 2000) FROM generate_series(1, 900);
    CREATE TABLE good AS SELECT i, repeat($$y$$, 2000) AS filler FROM generate_series(1, 8000) i;
    VACUUM good');
my $file = $damaged->data_dir . '/' . $db->sql(q{SELECT pg_relation_filepath('bad')});
$db->quit;
$damaged->stop;
open my $pages, '+<', $file or die $!;
binmode $pages;
for (my $at = 0; $at < -s $file; $at += 8192)
{
    seek $pages, $at, 0;
    print $pages pack 'LL', 0x7fffffff, 0;
}
close $pages;
$damaged->start;
$db = session($damaged);
$db->sql('SELECT count(*) FROM good WHERE i < 0');

# A session that must make room for itself may find such a page, and fail.
sub ask
{
    my $query = shift;
    my $answer;

    until_true(sub { (my $state, $answer) = $db->try($query); $state eq '00000' });
    return $answer;
}

sub until_more_ok
{
    my ($column, $more, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my $wanted = ask("SELECT $column + $more FROM pgscale.sweeper_stats");

    return until_ok(sub {
        $db->try('UPDATE good SET i = i WHERE i % 50 = ' . int rand 50);
        $db->try('SELECT count(*) FROM good WHERE i < 0');
        return ask("SELECT $column >= $wanted FROM pgscale.sweeper_stats") eq 't';
    }, $name) || !diag ask('SELECT row_to_json(s) FROM pgscale.sweeper_stats s');
}

is(ask('SELECT count(*) FROM bad'), 900, 'a table of damaged pages is read');
until_more_ok('skipped_wal', 200, 'the sweeper comes upon its pages');
until_more_ok('written', 500, 'and writes the others');
is(ask('SELECT errors FROM pgscale.sweeper_stats'), 0, 'without an error');
$db->quit;
$damaged->stop('immediate');

# Where data goes past the kernel's cache, there is nothing for it to write back, and the server must not be asked to.
SKIP:
{
    IPC::Run::run([ 'postgres', '-D', $node->data_dir, '-C', 'debug_io_direct' ], '>', \my $setting, '2>', \my $none)
      or skip 'this server knows no direct I/O', 4;
    $node->append_conf('postgresql.conf', "debug_io_direct = data\nmax_worker_processes = 20\n");
    skip 'this file system knows no direct I/O', 4 unless $node->start(fail_ok => 1);
    $db = session($node);
    @churning = churn($node, 2);
    $db->sweeps_on('with direct I/O the sweeper writes');
    $db->sql('CREATE TABLE bulk (filler char(4000))');
    until_ok(sub {
        $db->sql(q{INSERT INTO bulk SELECT '' FROM generate_series(1, 5000)});
        return $db->sql('SELECT runs_by_pages[7] > 0 FROM pgscale.sweeper_stats') eq 't';
    }, 'long runs, too');
    is($db->sql('SELECT writeback_calls FROM pgscale.sweeper_stats'), 0, 'and does not ask for writeback');
    $db->churn_end(@churning);
    $db->quit;
    $node->stop('immediate');
}

done_testing();
