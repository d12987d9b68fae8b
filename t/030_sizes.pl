# Sizes: the server starts with pgscale at every size that its settings allow. Where no machine has the memory, the server is
# asked for the size of the memory that it would take, which computes all of them.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $kb = 1 / 8;    # shared_buffers and what follows from it are counted in blocks of 8 kB
my $mb = 1024 * $kb;
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
my @sizes = (16, 1000, 16 * $mb, 655 * $gb, 656 * $gb, 1024 * $gb, 4096 * $gb,
    $db->sql(q{SELECT max_val FROM pg_settings WHERE name = 'shared_buffers'}));

# The megabytes that a server takes, or why it does not tell.
sub takes
{
    my @options = map { ('-c', $_) } @_;
    my ($out, $err);

    return $out if IPC::Run::run([ 'postgres', '-D', $node->data_dir, @options, '-C', 'shared_memory_size' ],
        '>', \$out, '2>', \$err) && $out =~ /^\d+\n\z/;
    return "$out$err";
}
$node->stop;

# The numbers of sweepers that there may be decide how it divides what there is.
my @failed;
my %own = map { $_ => [0] } 1, 2, 16;
for my $size (@sizes)
{
    my $without = takes("shared_buffers=$size", 'shared_preload_libraries=');
    for my $workers (sort keys %own)
    {
        my $with = takes("shared_buffers=$size", "pgscale.sweeper_workers=$workers");
        push @failed, "shared_buffers $size, $workers sweepers: $with of $without"
          unless $with =~ /^\d+$/ && $with - $without >= $own{$workers}->[-1] - 1 && $with - $without < 100 * $workers + 0.006 * $size / $mb;
        push @{ $own{$workers} }, $with - $without if $with =~ /^\d+$/;
    }
}
is(join("\n", @failed), '', 'every size of shared_buffers, with one sweeper up to all: its memory is little, and grows with it');
note "megabytes that pgscale takes with $_ sweepers: @{ $own{$_} }" for sort keys %own;

# At its least each has little else beside it, at its most the most.
@failed = ();
for my $setting (@settings)
{
    my ($name, $least, $most) = @$setting;

    for my $options ([ "shared_buffers=$sizes[0]", 'pgscale.sweeper_workers=1', "$name=$least" ],
        [ "shared_buffers=$sizes[-1]", 'pgscale.sweeper_workers=16', "$name=$most" ])
    {
        my ($size) = $options->[0] =~ /(\d+)/;
        my $with = takes(@$options, 'pgscale.sampler_nested=on');
        push @failed, "@$options: $with" unless $with =~ /^\d+$/ && $with > $size / $mb;
    }
}
is(join("\n", @failed), '', 'every number at both ends, with the least and the most of the rest');

my $least = takes("shared_buffers=$sizes[0]", map { "$_->[0]=$_->[1]" } @settings);
like($least, qr/^\d+\n\z/, 'all at their least');
my $most = takes("shared_buffers=$sizes[-1]", map { "$_->[0]=$_->[2]" } @settings);
like($most, qr/^\d+\n\z/, 'all at their most');

# Starts. Everything is on, and has something to do.
sub works_ok
{
    my ($name, @conf) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    $node->append_conf('postgresql.conf', join "\n", 'pgscale.sweeper = on', 'pgscale.sweeper_mode = ' . sweeper_mode(), 'pgscale.sweeper_adaptive = off', 'pgscale.writeback = on',
        'pgscale.sampler_nested = on', 'pgscale.sampler_period = 1ms', @conf, '');
    my $started = $node->start(fail_ok => 1);
    return fail("$name: it does not start") unless $started;
    $db = session($node);

    $db->sql('INSERT INTO t SELECT i, repeat($$x$$, 500) AS filler FROM generate_series(1, 1000) i; UPDATE t SET i = -i');
    is($db->sql('SELECT count(*), sum(i) FROM t'), '1000|-500500', "$name: it starts and works");
    $db->sql('DELETE FROM t');
    is($db->sql('SELECT sum(buffers) FROM pgscale.buffer_usage'),
        $db->sql(q{SELECT setting FROM pg_settings WHERE name = 'shared_buffers'}), "$name: all buffers are counted");
    $db->poll_ok(q{SELECT bool_and(w.pid IS NOT NULL) FROM unnest(ARRAY['pgscale sampler', 'pgscale sweeper 1', 'pgscale writeback']) n
        LEFT JOIN pg_stat_activity w ON w.backend_type = n}, "$name: its workers run");
    $db->poll_ok('SELECT min(ticks) > 0 FROM pgscale.sweeper_stats', "$name: and tick");
    is($db->sql('SELECT sum(errors) FROM pgscale.sweeper_stats'), 0, "$name: without an error");
    $db->quit;
    return $node->stop;
}

works_ok('the least shared_buffers', 'shared_buffers = 128kB', 'pgscale.sweeper_workers = 16');

# Most of the machine's memory, or more where the kernel gives that; nearly none of it is ever touched, but each buffer has a
# header, so not on a very large machine.
my ($total) = slurp_file('/proc/meminfo') =~ /^MemTotal:\s+(\d+) kB/m;
my ($available) = slurp_file('/proc/meminfo') =~ /^MemAvailable:\s+(\d+) kB/m;
my $overcommit = eval { slurp_file('/proc/sys/vm/overcommit_memory') } // 2;
SKIP:
{
    my $size = int($total * ($overcommit == 1 ? 1.25 : 0.75));

    $size = 64 * 1024 * 1024 if $size > 64 * 1024 * 1024;
    skip 'the kernel does not overcommit memory: no start with untouched shared_buffers', 5 if $overcommit == 2;
    skip "there is too little memory for the headers of $size kB of buffers", 5 if $size / 8 * 200 / 1024 > $available / 2;
    $node->append_conf('postgresql.conf', "shared_buffers = ${size}kB\nhuge_pages = off");
    works_ok("$size kB of untouched shared_buffers", 'pgscale.sweeper_workers = 1');
}

done_testing();
