# Moves that are cancelled, ended, killed, or caught by a shutdown or a crash of the server, each kind in each of its phases: each
# job ends by itself as it should, no row is lost, and no file and no index is left.
#
# Other sessions hold the moves where they are struck, and t/lib/held_truncate.c the removal of an old file. t/trust/run moves
# strikes at any step, at random.
use strict;
use warnings;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $library = compiled('held_truncate');
my $hold = $ENV{HELD_TRUNCATE} = PostgreSQL::Test::Utils::tempdir() . '/hold';
{
    local $ENV{LD_PRELOAD} = $library // $ENV{LD_PRELOAD} // '';
    relocation_node(conf => "pgscale.relocation_workers = 3\npgscale.relocation_switch_timeout = 1h\nfull_page_writes = off");
}
extensions();
two_tables(12000);
$db->sql(<<'EOQ');
CREATE TABLE items (id int CONSTRAINT "the key" PRIMARY KEY, name text NOT NULL);
CREATE INDEX items_name ON items (lower(name) DESC) WHERE id % 3 <> 0;
ALTER INDEX items_name ALTER COLUMN 1 SET STATISTICS 500;
COMMENT ON CONSTRAINT "the key" ON items IS 'of each';
CREATE TABLE referring (id int REFERENCES items);
INSERT INTO items SELECT i, 'item ' || i FROM generate_series(1, 5000) i;
INSERT INTO referring VALUES (1);
CREATE TABLE locked AS SELECT * FROM items
EOQ
my @tables = qw(t items locked large);
my ($schema, $rows) = (schema(), rows($db, @tables));
clean_ok();

sub same_ok
{
    my $name = shift;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    is(rows($db, @tables), $rows, "$name: all rows are there");
    clean_ok("$name: all indexes are valid, none is left");
    strays_ok($name);
    return;
}

### How moves are struck

sub crash { my ($strike) = @_; $strike->(); $db = $db->reconnect($node); return; }

sub kill_worker { my $worker = shift; return crash(sub { kill 'KILL', $worker or die "no worker $worker" }); }

# All processes are killed, and the server is a standby first: that looks for pages that the WAL names and files do not have.
sub kill_all
{
    my $log = -s $node->logfile;
    my @pids = (slurp_file($node->data_dir . '/postmaster.pid') =~ /^(\d+)/, split /\n/,
        $db->sql('SELECT pid FROM pg_stat_activity'));

    kill_postmaster($node);
    unlink $hold;
    until_true(sub { !grep { process_state($_) } @pids });
    $node->set_standby_mode;
    $node->start;
    unlike(slurp_file($node->logfile, $log), qr/invalid page|does not exist/, 'a standby misses no page');
    $node->promote;
    $db = $db->reconnect($node);
    return;
}

my %ways = (
    relocation_cancel => sub { $db->sql("SELECT pgscale.relocation_cancel($_->{job})") for @_ },
    pg_cancel_backend => sub { $db->sql("SELECT pg_cancel_backend($_->{worker})") for @_ },
    pg_terminate_backend => sub { $db->sql("SELECT pg_terminate_backend($_->{worker})") for @_ },
    'kill -9 of a worker' => sub { kill_worker($_[-1]{worker}) },
    'kill -9 of the postmaster' => \&kill_all,
    'a fast shutdown' => sub { unlink $hold; crash(sub { $node->stop('fast'); $node->start }) });

### Where they are struck

my $writer = 'BEGIN; LOCK TABLE items IN ROW EXCLUSIVE MODE';

# A rebuild before the new index has taken the old one's place, an online copy, and a move that waits for its lock
sub begun
{
    my $index = shift;
    my $from = place($index);
    my ($holder, $rebuild, $builder) = held($writer, 'waiting for writers before build', $index);
    my ($copy, $copier) = copying("relocate_table('t', '" . elsewhere('t') . "')");
    my $reader = session($node);

    $reader->sql('BEGIN; SELECT count(*) FROM locked');
    # it says how long it will block
    my ($lock) = grep { /^\d+$/ } ask("relocate_table('locked', '" . elsewhere('locked') . "', 'lock', '1 day')");
    $db->poll_ok(q{SELECT count(*) FROM pg_locks WHERE relation = 'locked'::regclass AND NOT granted}, 'a move waits for a lock',
        1);
    return (
        { of => $index, from => $from, job => $rebuild, worker => $builder, holder => $holder },
        { of => 'locked', lock => 1, at_once => 1, job => $lock, worker => of_worker($lock), holder => $reader },
        { of => 't', at_once => 1, job => $copy, worker => $copier });
}

# A rebuild after that, with the old index still there, dead; an online move that waits for its gap
sub almost_done
{
    my $index = shift;
    my $lock = 'BEGIN; LOCK TABLE items IN ACCESS SHARE MODE';
    my ($first, $rebuild, $builder) = held($lock, 'waiting for readers before marking dead', $index);
    my $reader = session($node);

    $reader->sql($lock);
    $first->quit;
    job_ok($rebuild, 'phase', 'waiting for readers before dropping', 'the old index is still there');
    my ($holder, $move, $worker) = held_online('t', elsewhere('t'));
    return (
        { of => $index, too_late => 1, job => $rebuild, worker => $builder, holder => $reader },
        { of => 't', at_once => 1, job => $move, worker => $worker, holder => $holder });
}

# An online move that has switched, and removes its old file, whose pages the WAL names without images
sub clearing
{
    my $path = $node->data_dir . '/' . $db->sql(q{SELECT pg_relation_filepath('large')});

    $db->sql('CHECKPOINT; UPDATE large SET id = id WHERE id % 37 = 0');
    my $size = -s $path;
    append_to_file($hold, '');
    my ($job) = ask("relocate_table('large', '" . elsewhere('large') . "')");
    until_true(sub { -s $path < $size }) or die 'the old file is not made shorter';
    return { of => 'large', too_late => 1, job => $job, worker => of_worker($job) };
}

sub of_worker { return $db->sql('SELECT pid FROM pgscale_internal.relocation_job WHERE job = ' . shift); }

for my $way (sort keys %ways)
{
    my $cancels = $way =~ /cancel/;

SKIP:
    for my $phase (
        [ 'moves that have begun' => \&begun ],
        [ 'moves that are almost done' => \&almost_done ],
        [ 'a move that clears up' => \&clearing ])
    {
        my ($name, $begin) = ("$way: $phase->[0]", $phase->[1]);
        skip 'held_truncate.c cannot be compiled', 5 if $begin == \&clearing && !$library;
        my $index = $way =~ /worker|fast/ ? '"the key"' : 'items_name';
        my %from = map { $_ => place($_) } $index, qw(locked t large);
        my @moves = $begin->($index);

        $ways{$way}->(@moves);
        unlink $hold;
        # while it would still have to wait, or have much to copy
        ended_ok($_->{job}, 'cancelled', "$name: $_->{of} at once") for grep { $cancels && $_->{at_once} } @moves;
        $_->{holder} && $_->{holder}->quit for @moves;
        reloaded('pgscale.relocation_rate');
        for my $move (@moves)
        {
            my $done = !$cancels || $move->{too_late};

            ended_ok($move->{job}, $done ? 'done' : 'cancelled', "$name: $move->{of}");
            is(place($move->{of}) ne $from{ $move->{of} }, !!$done, "$name: it has moved or not");
            # Not of a move that waits for its lock. An attempt is counted by a commit that does not wait for the disk: a crash may
            # take it back, which does no harm, because crashes are counted apart. In a shutdown the lock may be free first.
            cmp_ok(of_job($move->{job}, 'attempts'), '>', 1, "$name: it was tried again")
              if $done && !$move->{too_late} && !$move->{lock};
        }
        same_ok($name);
    }
}
is(schema(), $schema, 'all is what it was');

### What comes while a cancelled rebuild cleans up, for which it waits for the same writer, does not undo what was wanted before

my $waiting = q{SELECT count(*) FROM pg_stat_activity a JOIN pg_locks l USING (pid)
    WHERE backend_type = 'pgscale relocation worker' AND NOT granted
    AND NOT EXISTS (SELECT FROM pg_stat_progress_create_index p WHERE p.pid = a.pid)};
for my $case ([ pg_cancel_backend => 'cancelled' ], [ pg_terminate_backend => 'cancelled' ], [ 'kill -9 of a worker' => 'done' ])
{
    # after a crash nothing says any more that it was cancelled
    my ($way, $expected) = @$case;
    my ($holder, $job, $worker) = held($writer, 'waiting for writers before build', 'items_name');

    $db->sql("SELECT pg_cancel_backend($worker)");
    $db->poll_ok($waiting, 'a worker that was cancelled cleans up', 1);
    $ways{$way}->({ job => $job, worker => $worker });
    $holder->quit;
    ended_ok($job, $expected, "$way while it cleans up");
    same_ok("$way while it cleans up");
}

### A prepared transaction outlasts a shutdown, which does not wait for it

my ($holder, $job) = held("$writer; PREPARE TRANSACTION 'held'", 'waiting for writers before build', 'items_name');
$ways{'a fast shutdown'}->();
job_ok($job, 'state', 'running', 'after a shutdown it goes on');
$db->sql(q{COMMIT PREPARED 'held'});
ended_ok($job, 'done', 'and is done without the prepared transaction');

### The second crash is the last one

($holder, $job, my $worker) = held("$writer; PREPARE TRANSACTION 'held'", 'waiting for writers before build', 'items_name');
my ($copy) = copying("relocate_table('t', '" . elsewhere('t') . "')");
my %from = map { $_ => place($_) } qw(items_name t);
kill_worker($worker);
$db->poll_ok($waiting, 'another worker cleans up after the rebuild', 1);
job_ok($copy, 'state, phase, copied_bytes > 0, attempts', 'running|copying|t|2', 'after a crash a copy begins again');
kill_worker(of_worker($copy));
$db->sql(q{COMMIT PREPARED 'held'});
ended_ok($_, '57P02|t|lost', 'two crashes', q{sqlstate, message ~ '^2 attempts ended in a crash', state}) for $job, $copy;
is(join(' ', map { place($_) } qw(items_name t)), "$from{items_name} $from{t}", 'they have not moved');
reloaded('pgscale.relocation_rate');
same_ok('two crashes');

### A crash may take back that a job has ended, where commits are not on disk at once; then it must not be forgotten

reloaded('synchronous_commit', 'off');
my $walwriter = $db->sql("SELECT pid FROM pg_stat_activity WHERE backend_type = 'walwriter'");
my $list = $node->data_dir . '/pg_stat/pgscale_relocation.stat';
kill 'STOP', $walwriter;
($job) = ask(rebuild('items_name'));
ended_ok($job, 'done', 'a job whose end is not on disk');
until_ok(sub { (unpack 'L4', slurp_file($list))[3] == 0 }, 'its database has no open jobs any more');
crash(sub { kill 'KILL', $walwriter });
ended_ok($job, 'done', 'a crash after it');
same_ok('commits that are not waited for');
reloaded('synchronous_commit');

### A synchronous standby that is not there keeps neither a rebuild from its end nor the server from its own

reloaded('synchronous_standby_names', 'nobody');
$db->sql('SET synchronous_commit = local');
($holder, $job) = held($writer, 'waiting for writers before build', 'items_name');
$ways{'a fast shutdown'}->();
$db->sql('SET synchronous_commit = local');
ended_ok($job, 'done', 'a fast shutdown without the standby');
reloaded('synchronous_standby_names');

same_ok('at the end');
is(schema(), $schema, 'all is what it was');
sound_ok('at the end');
stop_ok();
done_testing();
