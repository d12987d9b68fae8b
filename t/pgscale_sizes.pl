# Sizes: the server starts with pgscale at every size that its settings allow. Where no machine has the memory, the server is
# asked for the size of the memory that it would take, which computes all of them.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $mb = 128;    # shared_buffers and what follows from it are counted in blocks of 8 kB
my $gb = 1024 * $mb;
my $node = pgscale_node('main', conf => "max_connections = 20\nmax_worker_processes = 40\nfsync = on");
my $db = session($node);
$db->sql('CREATE TABLE t (i int, filler text)');

# What of pgscale's is a number, with both ends; and the server's own that sizes follow from. max_connections shares its limit
# with other kinds of processes.
my @settings = map { [ split /\|/ ] } split /\n/, $db->sql(q{SELECT name, min_val, max_val FROM pg_settings
    WHERE name LIKE 'pgscale.%' AND vartype IN ('integer', 'real') ORDER BY 1});
cmp_ok(scalar @settings, '>', 10, 'pgscale has numbers to set');
push @settings, [ 'max_connections', 10, $db->sql(q{SELECT max_val::int - 200 FROM pg_settings WHERE name = 'max_connections'}) ],
  [ 'max_prepared_transactions', 0, 100000 ];
my @sizes = (16, 1000, 655 * $gb, 656 * $gb, 4096 * $gb, $db->sql(q{SELECT max_val FROM pg_settings WHERE name = 'shared_buffers'}));
$node->stop;

# The megabytes that a server takes, or why it does not tell
sub takes
{
    my ($out, $err);

    return $out if IPC::Run::run([ 'postgres', '-D', $node->data_dir, (map { ('-c', $_) } @_), '-C', 'shared_memory_size' ],
        '>', \$out, '2>', \$err) && $out =~ /^\d+\n\z/;
    return "$out$err";
}

# Nothing of it grows with the buffers.
my @failed;
for my $size (@sizes)
{
    my $without = takes("shared_buffers=$size", 'shared_preload_libraries=');
    my $with = takes("shared_buffers=$size");
    my $own = $with =~ /^\d+$/ ? $with - $without : -2;

    push @failed, "shared_buffers $size: $with of $without" unless $own >= 0 && $own <= 6;
}
is(join("\n", @failed), '', 'at every size of shared_buffers it takes 5 MB, by whole megabytes at most 6');

# At its least each has little else beside it, at its most the most; and all of them together.
@failed = ();
for my $end (1, 2)
{
    my $size = $sizes[$end == 1 ? 0 : -1];

    for my $options ((map { ["$_->[0]=$_->[$end]"] } @settings), [ map { "$_->[0]=$_->[$end]" } @settings ])
    {
        my $with = takes("shared_buffers=$size", 'pgscale.sampler_nested=on', @$options);
        push @failed, "@$options: $with" unless $with =~ /^\d+$/ && $with > $size / $mb;
    }
}
is(join("\n", @failed), '', 'every number at both ends, with the least and the most of the rest');

# Starts. Everything is on, and has something to do.
sub works_ok
{
    my ($name, @conf) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    $node->append_conf('postgresql.conf', join "\n", 'pgscale.sweeper = on',
        'pgscale.writeback = on', 'pgscale.sampler_nested = on', 'pgscale.sampler_period = 1ms', @conf, '');
    $node->start(fail_ok => 1) or return fail("$name: it does not start");
    $db = session($node);
    $db->sql('INSERT INTO t SELECT i, repeat($$x$$, 500) AS filler FROM generate_series(1, 1000) i; UPDATE t SET i = -i');
    is($db->sql('SELECT count(*), sum(i) FROM t'), '1000|-500500', "$name: it starts and works");
    $db->sql('DELETE FROM t');
    is($db->sql('SELECT sum(buffers) FROM pgscale.buffer_usage()'),
        $db->sql(q{SELECT setting FROM pg_settings WHERE name = 'shared_buffers'}), "$name: all buffers are counted");
    $db->poll_ok(q{SELECT (SELECT count(*) = 2 FROM pg_stat_activity WHERE backend_type IN ('pgscale sampler', 'pgscale writeback')),
        ticks > 0, errors FROM pgscale.sweeper_stats}, "$name: its workers run, without an error", 't|t|0');
    $db->quit;
    return $node->stop;
}

works_ok('the least shared_buffers', 'shared_buffers = 128kB');

# Most of the machine's memory, or more where the kernel gives that; nearly none of it is ever touched, but each buffer has a
# header, so not on a very large machine.
my ($total, $available) = map { slurp_file('/proc/meminfo') =~ /^$_:\s+(\d+) kB/m } 'MemTotal', 'MemAvailable';
my $overcommit = eval { slurp_file('/proc/sys/vm/overcommit_memory') } // 2;
SKIP:
{
    my $size = int($total * ($overcommit == 1 ? 1.25 : 0.75));

    $size = 64 * 1024 * 1024 if $size > 64 * 1024 * 1024;
    skip 'the kernel does not overcommit memory: no start with untouched shared_buffers', 3 if $overcommit == 2;
    skip "there is too little memory for the headers of $size kB of buffers", 3 if $size / 8 * 200 / 1024 > $available / 2;
    $node->append_conf('postgresql.conf', "shared_buffers = ${size}kB\nhuge_pages = off");
    works_ok("$size kB of untouched shared_buffers");
}

done_testing();
