# PgscaleWire.pm: connections that speak the server's protocol themselves, for tests that make thousands of calls.
#
# psql would do, but for three things: a call takes a millisecond here instead of ten; ReadyForQuery tells after each one what
# the session thinks its transaction is; and several connections can be at work at once.
package PgscaleWire;

use strict;
use warnings;
use Carp;
use Exporter 'import';
use IO::Select;
use IO::Socket::UNIX;
use Time::HiRes ();

our @EXPORT = qw(wire);

# wire NODE, user => ROLE, dbname => DATABASE, options => '-c x=y': a connection; croaks if it is refused
sub wire
{
    my ($node, %option) = @_;
    my $socket = IO::Socket::UNIX->new(Peer => $node->host . '/.s.PGSQL.' . $node->port) or croak "connect: $!";
    my $self = bless { socket => $socket, in => '', waiting => 0, results => [], result => _empty(), status => '' }, __PACKAGE__;
    my %parameters = (
        user => $option{user} // scalar getpwuid $>,
        database => $option{dbname} // 'postgres',
        application_name => 'wire',
        client_encoding => 'UTF8');
    $parameters{options} = $option{options} if $option{options};
    my $text = pack('N', 196608) . join('', map { "$_\0$parameters{$_}\0" } sort keys %parameters) . "\0";

    $self->{waiting} = 1;
    $self->_write(pack('N', 4 + length $text) . $text);
    my $result = $self->finish(60);
    croak "connect: $result->{message}" if !$result || $result->{closed};
    return $self;
}

sub _empty { return { state => '00000', message => '', hint => '', where => '', rows => [], notices => [], tags => [] } }

sub pid { return shift->{pid} }
sub closed { return shift->{closed} }
sub waiting { return shift->{waiting} }

sub _write
{
    my ($self, $bytes) = @_;
    local $SIG{PIPE} = 'IGNORE';

    while (length $bytes && !$self->{closed})
    {
        my $n = syswrite $self->{socket}, $bytes;
        last unless defined $n;    # the server has gone: reading tells
        substr $bytes, 0, $n, '';
    }
    return;
}

sub _message { my ($type, $body) = @_; return $type . pack('N', 4 + length $body) . $body; }

# Sends each text by itself, as psql would; each has a result. Does not wait.
sub send_query
{
    my ($self, @texts) = @_;

    for my $text (@texts)
    {
        utf8::encode(my $bytes = $text);
        $self->{waiting}++;
        $self->_write(_message('Q', "$bytes\0"));
    }
    return;
}

# As a driver would: one statement with parameters, of whose result no more than so many rows are fetched (0: all).
sub send_prepared
{
    my ($self, $text, $parameters, $rows) = @_;
    my $bind = "\0\0" . pack('n n', 0, scalar @$parameters);

    for my $parameter (@$parameters)
    {
        utf8::encode(my $bytes = $parameter // '');
        $bind .= defined $parameter ? pack('N', length $bytes) . $bytes : pack('N', 0xffffffff);
    }
    utf8::encode(my $bytes = $text);
    $self->{waiting}++;
    $self->_write(_message('P', "\0$bytes\0\0\0")
          . _message('B', $bind . pack('n', 0))
          . _message('E', "\0" . pack('N', $rows // 0))
          . _message('S', ''));
    return;
}

# Reads what has come; true if a result is complete.
sub read_some
{
    my $self = shift;
    my $n = sysread $self->{socket}, $self->{in}, 65536, length $self->{in};

    if (!$n)
    {
        $self->{closed} = $self->{result}{closed} = 1;
        $self->{result}{state} = '08006' if $self->{result}{state} eq '00000';
        push @{ $self->{results} }, $self->{result};
        $self->{waiting} = 0;
        return 1;
    }
    while (length $self->{in} >= 5)
    {
        my ($type, $length) = unpack 'a N', $self->{in};
        last if length $self->{in} < 1 + $length;
        my $body = substr $self->{in}, 5, $length - 4;
        substr $self->{in}, 0, 1 + $length, '';
        $self->_take($type, $body);
    }
    return scalar @{ $self->{results} };
}

sub _take
{
    my ($self, $type, $body) = @_;
    my $result = $self->{result};

    if ($type eq 'D')
    {
        my $columns = unpack 'n', $body;
        my ($at, @row) = (2);
        for (1 .. $columns)
        {
            my $length = unpack 'N', substr $body, $at, 4;
            push @row, $length == 0xffffffff ? undef : substr $body, $at + 4, $length;
            $at += 4 + ($length == 0xffffffff ? 0 : $length);
        }
        push @{ $result->{rows} }, \@row if @{ $result->{rows} } < 1000;
    }
    elsif ($type eq 'E' || $type eq 'N')
    {
        my %field = map { /\A(.)(.*)\z/s ? ($1, $2) : () } split /\0/, $body;
        if ($type eq 'N') { push @{ $result->{notices} }, "$field{C}: $field{M}" }
        else
        {
            @$result{qw(state message hint where)} = ($field{C}, $field{M}, $field{H} // '', $field{W} // '');
        }
    }
    elsif ($type eq 'C') { push @{ $result->{tags} }, $body =~ s/\0\z//r }
    elsif ($type eq 's') { push @{ $result->{tags} }, 'suspended' }
    elsif ($type eq 'K') { $self->{pid} = unpack 'N', $body }
    elsif ($type eq 'Z')
    {
        $result->{status} = $self->{status} = $body;
        push @{ $self->{results} }, $result;
        $self->{result} = _empty();
        $self->{waiting}--;
    }
    return;
}

# The next result, or undef if there is none within so many seconds.
sub finish
{
    my ($self, $seconds) = @_;
    my $give_up = Time::HiRes::time() + $seconds;
    my $select = IO::Select->new($self->{socket});

    while (!@{ $self->{results} })
    {
        my $left = $give_up - Time::HiRes::time();
        return if $left <= 0;
        $self->read_some if $select->can_read($left);
    }
    return shift @{ $self->{results} };
}

# All of them one after the other; the last one's result. A machine under load may take its time.
sub run
{
    my ($self, @texts) = @_;
    my $result;

    $self->send_query(@texts);
    for my $text (@texts)
    {
        $result = $self->finish(180) or croak "no answer: $text";
        croak "$text: the connection was lost: $result->{message}" if $result->{closed};
    }
    return $result;
}

# A statement that must be carried out although a timeout or cancel that was meant for the one before it may still come. The server
# raises that when it looks the next time: during this statement, or before it, with an answer of its own. So that answers and
# questions go together again, each try ends in a mark. False if there is no answer, or never the right one.
sub settle
{
    my ($self, $text, $seconds) = @_;
    my ($verb) = $text =~ /(\w+)/;
    my $done;

    for my $try (1 .. 20)
    {
        my $found;
        $self->send_query($text, "SELECT 'mark', $try");
        for (my $left = 2; $left > 0; $left--)
        {
            my $result = $self->finish($seconds) or return 0;
            return 0 if $result->{closed};
            $done = 1 if ($result->{tags}[0] // '') eq $verb;
            my $row = $result->{rows}[0] // [];
            next unless @$row == 2 && $row->[0] eq 'mark';
            $found = $row->[1] == $try;
            $left = 1 + 2 * ($try - $row->[1]);
        }
        return 1 if $done && $found;
    }
    return 0;
}

# One value of what must not fail.
sub value
{
    my ($self, $text) = @_;
    my $result = $self->run($text);

    croak "$text: $result->{state} $result->{message}" if $result->{state} ne '00000';
    return $result->{rows}[0] ? $result->{rows}[0][0] : undef;
}

sub quit
{
    my $self = shift;

    $self->_write(_message('X', '')) unless $self->{closed};
    close $self->{socket};
    $self->{closed} = 1;
    return;
}

1;
