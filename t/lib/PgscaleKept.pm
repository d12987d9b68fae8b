# PgscaleKept.pm: the files in which the sampler's data outlives a restart, as a test writes them: with true checksums, so that
# a test may say to the nanosecond what a server has sampled.
package PgscaleKept;

use strict;
use warnings;
use Exporter 'import';
use IPC::Run;
use PostgreSQL::Test::Utils;

our @EXPORT = qw(with_checksum write_bytes alone profile_file history_file);

my @crc_table = map { my $c = $_; $c = $c & 1 ? 0x82F63B78 ^ ($c >> 1) : $c >> 1 for 1 .. 8; $c } 0 .. 255;

# The bytes, with the CRC-32C that ends such a file.
sub with_checksum
{
    my $bytes = shift;
    my $crc = 0xFFFFFFFF;

    $crc = $crc_table[ ($crc ^ $_) & 0xFF ] ^ ($crc >> 8) for unpack 'C*', $bytes;
    return $bytes . pack 'L', $crc ^ 0xFFFFFFFF;
}

sub write_bytes
{
    my ($file, $bytes) = @_;

    open my $handle, '>:raw', $file or die "$file: $!";
    print $handle $bytes;
    close $handle or die "$file: $!";
    return;
}

# A stopped node's answer to a query that returns one text, and what it logged. The server runs as a single process: it reads the
# files as any server does, and is there in a quarter of the time.
sub alone
{
    my ($node, $query) = @_;
    my ($out, $log) = ('', '');

    IPC::Run::run([ 'postgres', '--single', '-D', $node->data_dir, '-j', 'postgres' ],
        '<', \"SELECT ($query)::text AS answer;\n\n", '>', \$out, '2>', \$log,
        IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default)) or die "no answer: $out $log";
    return ($out =~ /answer = "(.*?)"\t/s ? $1 : '', $log);
}

# What both files are of: the catalog version, and types of background workers, whose kinds are 0x40 and on.
sub _types { return join '', map { pack 'a96', $_ } @_; }

# profile_file catversion => N, types => [NAME...], entries => [{ queryid, datid, userid, event, kind, dimension, plan_id, samples,
# ns }...], evictions => N, reset_at => MICROSECONDS since 2000
sub profile_file
{
    my %o = @_;
    my ($samples, $ns) = (0, 0);
    my $entries = '';

    for my $e (@{ $o{entries} })
    {
        $entries .= pack 'qLLLCCSqQQQ', map { $_ // 0 } @$e{qw(queryid datid userid event kind)}, 0, @$e{qw(dimension plan_id samples ns)}, 0;
        $samples += $e->{samples};
        $ns += $e->{ns};
    }
    return with_checksum(pack('L6QQQllq', 0x70677334, $o{catversion}, 56, scalar @{ $o{entries} }, scalar @{ $o{types} // [] }, 0,
            $samples, $ns, $o{evictions} // 0, 0, 0, $o{reset_at} // 0) . _types(@{ $o{types} // [] }) . $entries);
}

# history_file catversion => N, types => [NAME...], names => [APPLICATION...], spans => [[BEGIN, END, FIRST]...], samples => [{ at, queryid,
# pid, datid, userid, event, blocker, root, us, name, kind, state }...]; times are microseconds since 2000, applications are from 1
sub history_file
{
    my %o = @_;
    my $n = @{ $o{samples} };
    my $samples = join '', map {
        pack 'qqlLLLllLSCCx8', (map { $_ // 0 } @$_{qw(at queryid pid datid userid event)}), $_->{blocker} // -1, $_->{root} // -1,
          (map { $_ // 0 } @$_{qw(us name kind state)})
    } @{ $o{samples} };
    my $spans = join '', map { pack 'qqQ', @$_ } @{ $o{spans} };

    return with_checksum(pack('L6', 0x70677369, $o{catversion}, 56, $n, scalar @{ $o{types} // [] }, scalar @{ $o{names} // [] })
          . pack('Qlx4', $n, scalar @{ $o{spans} }) . $spans . "\0" x (24 * 256 - length $spans)
          . _types(@{ $o{types} // [] }) . join('', map { pack 'a64', $_ } @{ $o{names} // [] }) . $samples);
}

1;
