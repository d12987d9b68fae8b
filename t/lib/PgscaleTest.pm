# PgscaleTest.pm: what pgscale's TAP tests share: a server with the library, and sessions that stay open.
#
# PostgreSQL::Test::Cluster may be that of another major than the server. Its background psql differs from one to the next,
# so sessions are made here, of IPC::Run alone. Nothing sleeps for a guessed time: what takes time is polled for, with
# $PostgreSQL::Test::Utils::timeout_default as the bound.
package PgscaleTest;

use strict;
use warnings;
use Carp;
use Exporter 'import';
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes ();

our @EXPORT = qw(pgscale_node have_module kill_postmaster process_state session until_true until_ok);

$PostgreSQL::Test::Utils::timeout_default = 30 unless $ENV{PG_TEST_TIMEOUT_DEFAULT};

# A started server. Options: preload (the libraries; 'pgscale'), conf (lines of postgresql.conf), init (arguments of init),
# create (the extension; 1).
sub pgscale_node
{
    my ($name, %option) = @_;
    my $preload = $option{preload} // 'pgscale';
    my $node = PostgreSQL::Test::Cluster->new($name);

    $node->init(@{ $option{init} // [] });
    $node->append_conf('postgresql.conf', <<"EOC");
shared_preload_libraries = '$preload'
shared_buffers = 16MB
max_connections = 50
dynamic_shared_memory_type = mmap
autovacuum = off
restart_after_crash = on
log_statement = none
EOC
    $node->append_conf('postgresql.conf', $option{conf}) if defined $option{conf};
    $node->start;
    $node->safe_psql('postgres', 'CREATE EXTENSION pgscale') if $option{create} // 1;
    return $node;
}

# Does this server have a module of contrib?
sub have_module
{
    my $name = shift;
    my $dir = qx(pg_config --pkglibdir);
    chomp $dir;
    return -e "$dir/$name.so";
}

# Kills it as the kernel would, and removes the one thing outside its folder that it had no time for.
sub kill_postmaster
{
    my $node = shift;
    my (undef, $shmid) = split ' ', (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[6];

    $node->kill9;
    shmctl $shmid, 0, 0 or diag "shared memory segment $shmid: $!";    # IPC_RMID: when nobody is attached any more
    return;
}

# The letter that the kernel has for a process' state; empty if there is none.
sub process_state
{
    my $pid = shift;
    my $stat = eval { slurp_file("/proc/$pid/stat") } // '';

    return $stat =~ /\) (\w)/ ? $1 : '';
}

# until_true CODE: calls it until it answers true; false if it never did
sub until_true
{
    my $code = shift;
    my $give_up = Time::HiRes::time() + $PostgreSQL::Test::Utils::timeout_default;

    do
    {
        return 1 if $code->();
        Time::HiRes::usleep(20_000);
    } while (Time::HiRes::time() < $give_up);
    return 0;
}

sub until_ok
{
    my ($code, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return ok(until_true($code), $name);
}

# session NODE, user => ROLE, dbname => DATABASE: a psql that is connected until quit
sub session
{
    my ($node, %option) = @_;
    my $connstr = $node->connstr($option{dbname} // 'postgres');
    $connstr .= " user=$option{user}" if $option{user};
    my $self = bless { in => '', out => '', number => 0, name => $option{user} // 'session' }, __PACKAGE__;

    $self->{limit} = IPC::Run::timeout(2 * $PostgreSQL::Test::Utils::timeout_default);
    $self->{psql} = IPC::Run::start(
        [ 'psql', '-XAtq', '-v', 'VERBOSITY=verbose', '-d', $connstr, '-f', '-' ],
        '<', \$self->{in}, '>&', \$self->{out}, $self->{limit});
    $self->{pid} = $self->sql('SELECT pg_backend_pid()');
    return $self;
}

sub pid { return shift->{pid}; }

# The text is one or several statements without a last semicolon. start sends it, finish waits for its end and returns
# the last one's SQLSTATE and what psql wrote, errors included.
sub start
{
    my ($self, $text) = @_;

    $self->{number}++;
    $self->{limit}->start(2 * $PostgreSQL::Test::Utils::timeout_default);
    $self->{in} .= "$text\n;\n\\echo =end $self->{number} :SQLSTATE\n";
    $self->{psql}->pump_nb while length $self->{in};
    return;
}

sub finish
{
    my $self = shift;
    my $end = qr/\A(.*?)^=end $self->{number} (\w+)\n(.*)\z/ms;

    while (1)
    {
        if (my ($text, $state, $rest) = $self->{out} =~ $end)
        {
            $self->{out} = $rest;
            chomp $text;
            return ($state, $text);
        }
        $self->{psql}->pumpable or croak "$self->{name} lost its connection: $self->{out}";
        eval { $self->{psql}->pump; 1 } or croak "$self->{name}: no answer: $@ $self->{out}";
    }
}

sub try
{
    my ($self, $text) = @_;

    $self->start($text);
    return $self->finish;
}

# The answer of what must not fail.
sub sql
{
    my ($self, $text) = @_;
    my ($state, $answer) = $self->try($text);

    $state eq '00000' or croak "$text: $answer";
    return $answer;
}

# The query identifier of the statement that this session runs or ran last.
sub queryid
{
    my ($self, $other) = @_;

    return $self->sql("SELECT query_id FROM pg_stat_activity WHERE pid = " . $other->pid);
}

# Asks until the answer is the expected one; a test.
sub poll_ok
{
    my ($self, $query, $name, $expected) = @_;
    my $answer;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    $expected //= 't';
    until_true(sub { $answer = $self->sql($query); $answer eq $expected });
    return is($answer, $expected, $name);
}

# Switches the sampler and waits until it has obeyed, so that nothing moves any more, or everything does.
sub sampler
{
    my ($self, $on) = @_;

    $self->sql("ALTER SYSTEM SET pgscale.sampler = $on");
    $self->sql('SELECT pg_reload_conf()');
    until_true(sub { $self->sql('SELECT period_ms IS NOT NULL FROM pgscale.sampler_stats') eq ($on eq 'on' ? 't' : 'f') })
      or croak "the sampler is not $on";
    return;
}

sub quit
{
    my $self = shift;

    $self->{in} .= "\\q\n";
    eval { $self->{psql}->finish };
    return;
}

1;
