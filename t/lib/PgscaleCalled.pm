# PgscaleCalled.pm: makes the n-th call of one of the server's functions fail in a worker that moves relations: failing_calls.c.
package PgscaleCalled;

use strict;
use warnings;
use Exporter 'import';
use Fcntl qw(SEEK_SET);
use PgscaleTest;
use PostgreSQL::Test::Utils;

our @EXPORT = qw(failing_calls_library calls_fail calls_fail_no_more calls_clear calls_failed calls_counted);

# those of struct calls
use constant { FUNCTIONS => 900, NAME => 64, MESSAGE => 100, HEAD => 124, PARTS => 4 };
my %part = (before => 0, copy => 1, switch => 2, 'clean-up' => 3);
my $file;
my %number;

# The library, to be preloaded after pgscale; undef where it cannot be compiled. Sets the environment of servers that
# start.
sub failing_calls_library
{
    $ENV{FAILING_CALLS} = $file = PostgreSQL::Test::Utils::tempdir_short() . '/calls';
    return compiled('failing_calls');
}

sub _read { open my $in, '<:raw', $file or die "$file: $!"; local $/; return scalar <$in>; }

sub _write
{
    my ($at, $bytes) = @_;

    open my $out, '+<:raw', $file or die "$file: $!";
    seek $out, $at, SEEK_SET;
    print $out $bytes;
    close $out or die "$file: $!";
    return;
}

# From now on: the n-th call (from 1) of that function in that part of a move fails, once. All are counted anew.
sub calls_fail
{
    my ($part, $function, $n, $sqlstate, $message) = @_;

    calls_fail_no_more();
    calls_clear();
    %number or calls_counted();
    my $code = 0;
    $code += (ord(substr $sqlstate, $_, 1) - ord '0' & 0x3f) << 6 * $_ for 0 .. 4;
    _write(24, pack 'Z' . MESSAGE, $message);
    _write(8, pack 'l3', $n - 1, $code, 0);
    _write(0, pack 'l2', $part{$part}, $number{$function} // die "no function $function");
    return;
}

sub calls_clear { _write(HEAD + FUNCTIONS * NAME, "\0" x (FUNCTIONS * PARTS * 4)); return; }
sub calls_fail_no_more { _write(4, pack 'l', -1); return; }
sub calls_failed { return (unpack 'l5', _read())[4]; }

# How often each function was called in each part: {part}{function}
sub calls_counted
{
    my $all = _read();
    my $n = (unpack 'l6', $all)[5];
    my %counted;

    for my $i (0 .. $n - 1)
    {
        my $name = unpack 'Z*', substr $all, HEAD + $i * NAME, NAME;
        my @counts = unpack 'l4', substr $all, HEAD + FUNCTIONS * NAME + $i * PARTS * 4, PARTS * 4;

        $number{$name} = $i;
        $counted{$_}{$name} = $counts[ $part{$_} ] for grep { $counts[ $part{$_} ] } keys %part;
    }
    return \%counted;
}

1;
