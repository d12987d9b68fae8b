# Where shared memory lies, against what the kernel knows; and placing it where that is forbidden or cannot be. Of machines
# that have several nodes, see bench/numa.
use strict;
use warnings;
use POSIX ();
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

# get_mempolicy is a system call without a Perl function.
plan skip_all => 'this Perl has no syscall.ph' unless eval { local $SIG{__WARN__} = sub { }; require 'syscall.ph' };

my $node = pgscale_node('main', conf => <<'EOC');
shared_buffers = 400MB
huge_pages = off
bgwriter_lru_maxpages = 0
checkpoint_timeout = 1h
EOC
my $db = session($node);
my $bytes = 400 * 2**20;
my $kernel_page = POSIX::sysconf(&POSIX::_SC_PAGESIZE);
my $health = q{SELECT enabled, state, reason, action FROM pgscale.health WHERE feature = 'numa'};
my $reason = (split /\|/, $db->sql($health))[2];
my $libraries = qx(pg_config --pkglibdir) =~ s/\n//r;
my $symbols = qx(nm -D $libraries/pgscale.so) or plan skip_all => 'nm is not installed';
my $libnuma = $symbols =~ / U numa_/;
my $looks = $libnuma && -d '/sys/devices/system/node/node0' && syscall(SYS_get_mempolicy(), 0, 0, 0, 0, 0) == 0;

# Of the mapping that shared buffers lie in: what is in this process' page table, in pages, by node
sub mapped
{
    my $pid = shift;
    my ($line) = grep { m{file=/dev/zero|SYSV} } split /\n/, slurp_file("/proc/$pid/numa_maps");
    return map { /^N(\d+)=(\d+)$/ ? ($1 => $2) : () } split ' ', $line;
}

# kB of a process' memory
sub status
{
    my ($pid, $name) = @_;
    return slurp_file("/proc/$pid/status") =~ /^$name:\s+(\d+) kB/m ? $1 : undef;
}

# Starts anew, with a line more in its configuration
sub restart
{
    my $conf = shift;

    $db->quit;
    $node->stop;
    $node->append_conf('postgresql.conf', $conf) if $conf;
    $node->start;
    $db = session($node);
    return $db->poll_ok('SELECT ticks > 0 FROM pgscale.sampler_stats', 'the server and its workers work');
}

SKIP:
{
    is(($db->try('SELECT * FROM pgscale.numa_nodes'))[0], $looks ? '00000' : '0A000', "nodes: $reason");
    like(join(' ', $db->try('SELECT * FROM pgscale.numa_buffers()')), qr/^0A000 .*HINT: .*libnuma/s, 'built without libnuma: numa_buffers')
      if !$libnuma;
    skip $reason, 1 if !$looks;

    # Looking brings nothing in. The first calls of a function do: they read catalogs.
    my $looker = session($node);
    my $in = 'SELECT sum(bytes) FILTER (WHERE node IS NULL), sum(bytes), bool_or(sampled) FROM pgscale.numa_buffers';
    $looker->sql("$in($_)") for qw(true false);
    my ($untouched) = split /\|/, $looker->sql("$in(true)");
    cmp_ok($untouched, '>', 0.9 * $bytes, 'nearly nothing of shared buffers has been touched');
    # other processes of the server may touch some at any time
    until_ok(sub { my $last = $untouched; ($untouched) = split /\|/, $looker->sql("$in(true)"); $untouched == $last }, 'and looking touches none');
    is($looker->sql("$in(true)") =~ s/^\d+//r, "|$bytes|f", 'of which it sees each');
    is($looker->sql("$in(false)") =~ s/^\d+//r, "|$bytes|t", 'the rows of a sample are all of it, too');

    # A sample, whose interval holds the truth; at 95 % it may be missed
    my $hits = grep { $looker->sql("SELECT $untouched BETWEEN fraction_low * $bytes AND fraction_high * $bytes
        FROM pgscale.numa_buffers() WHERE node IS NULL AND sampled") eq 't' } 1 .. 13;
    cmp_ok($hits, '>=', 8, 'the interval of a sample holds what is true');

    # What comes into memory, comes to a node; the kernel agrees. A session has in its page table what it has filled.
    my $filler = session($node);
    my $fills = q{INSERT INTO filler SELECT i, repeat('x', 7900) FROM generate_series(1, 10000) i};
    $filler->sql('CREATE TABLE filler (i int, filler text); ALTER TABLE filler ALTER filler SET STORAGE PLAIN');
    my ($shared, $tables) = map { status($looker->pid, $_) } qw(RssShmem VmPTE);
    $filler->sql($fills);
    my %after = mapped($filler->pid);
    my ($now) = split /\|/, $looker->sql("$in(true)");
    cmp_ok(status($looker->pid, 'RssShmem') - $shared, '<', 8192, 'the session that looks does not have it in its memory');
    cmp_ok(status($looker->pid, 'VmPTE') - $tables, '<', 64, 'nor in its page table');
    cmp_ok(abs($untouched - $now - 10000 * 8192), '<', 100 * 8192, 'what was filled has left the row of what is not in memory');
    my %buffers = map { split /\|/ } split /\n/, $looker->sql('SELECT node, pages FROM pgscale.numa_buffers(true) WHERE node >= 0');
    my ($difference) = sort { $b <=> $a } map { abs($buffers{$_} - ($after{$_} // 0)) } keys %buffers;
    # which knows of buffers' headers and all else in the same mapping as well
    cmp_ok($difference * $kernel_page, '<', 0.25 * 10000 * 8192, 'it lies where /proc/PID/numa_maps says') or diag explain [ \%after, \%buffers ];
    is($looker->sql(qq{SELECT sum(bytes), bool_and(abs(fraction - bytes::float8 / $bytes) < 1e-3) FROM pgscale.numa_buffers()}),
        "$bytes|t", 'fractions are of all shared buffers');

    # Asked to interleave, whatever nodes this machine has
    $_->quit for $looker, $filler;
    restart('pgscale.numa_interleave = on');
    like($db->sql($health), qr/^t\|(idle\|.*there is nothing to place|working\|.*is interleaved)\|/, 'asked to interleave, health does not complain');

    # Several nodes, as far as libnuma can be made to say so
    if (my $library = compiled('two_nodes'))
    {
        local $ENV{LD_PRELOAD} = $library;
        restart();
        is($db->sql('SELECT * FROM pgscale.numa_nodes'),
            "0|5|0-3,8|1000000|1000|{10,25}\n2|0||3000000|3000|{27,10}", 'two nodes, the second without CPUs');
        is($db->sql(qq{SELECT count(*), sum(bytes), max(fraction) FILTER (WHERE node IS NOT NULL) < 0.1 FROM pgscale.numa_buffers()}),
            "3|$bytes|t", 'three rows');
        $db->sql($fills);
        is($db->sql('SELECT abs(a.bytes / b.bytes::float8 - 2) < 0.01, a.fraction > 0.13, a.sampled FROM pgscale.numa_buffers(true) a,
            pgscale.numa_buffers(true) b WHERE (a.node, b.node) = (0, 2)'), 't|t|f', 'two thirds of the memory on the first');
        is($db->sql('SELECT max(fraction) FILTER (WHERE node = 0) / max(fraction) FILTER (WHERE node = 2) BETWEEN 1.4 AND 2.8,
            bool_and(sampled), bool_and(fraction_low < fraction AND fraction < fraction_high),
            -- at its ends the fraction seen is off by 1.96 standard deviations of a sample of 4096; they are rounded to 0.0001
            bool_and(abs(seen - fraction_low - 1.96 * sqrt(fraction_low * (1 - fraction_low) / 4096)) < 0.00006
                AND abs(fraction_high - seen - 1.96 * sqrt(fraction_high * (1 - fraction_high) / 4096)) < 0.00006)
            FROM (SELECT *, round(fraction * 4096) / 4096 AS seen FROM pgscale.numa_buffers()) f WHERE node IS NOT NULL'), 't|t|t|t', 'two thirds of the sample, too');
        is($db->sql($health), 't|working|2 nodes; shared memory is interleaved|', 'interleaved over both');
        like(slurp_file($node->logfile), qr/pgscale interleaves \d+ MB of shared memory over 2 NUMA nodes/, 'interleaving is in the log');
        restart('pgscale.numa_interleave = off');
        is($db->sql($health), 't|idle|2 nodes; shared memory is where it was first touched|', 'only if asked for');
        local $ENV{MBIND} = 1;
        restart('pgscale.numa_interleave = on');
        is($db->sql(q{SELECT state, reason, action ~ 'mbind' FROM pgscale.health WHERE feature = 'numa'}),
            'broken|shared memory could not be interleaved: Operation not permitted|t', 'mbind is forbidden: the server starts, and health says so');
        like(slurp_file($node->logfile), qr/WARNING:  pgscale could not interleave shared memory: Operation not permitted/, 'and so does the log');
        kill 'KILL', $db->pid;
        until_ok(sub { eval { $db = session($node); $db->sql('SELECT ticks > 0 FROM pgscale.sampler_stats') eq 't' } }, 'it works again after a crash');
    }

    # Forbidden, one call after another
    for my $call (qw(get_mempolicy move_pages))
    {
        my $path = refuse_call($node, $call);
        skip 'no filter of system calls can be set up here', 1 unless $path;
        local $ENV{PATH} = $path;
        restart();
        like($db->sql($health), qr/^t\|broken\|the kernel forbids/, "$call is forbidden: health says so");
        like(join(' ', $db->try('SELECT count(*) FROM pgscale.numa_buffers(true)')), qr/^0A000 .*HINT: .*$call/s, 'numa_buffers, and what to allow');
        is(($db->try('SELECT * FROM pgscale.numa_nodes'))[0], '0A000', 'numa_nodes, too');
    }
}
$db->quit;
$node->stop('immediate');
done_testing();
