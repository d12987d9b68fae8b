# PgscaleTest.pm: what pgscale's TAP tests share: a server with the library, and sessions that stay open.
#
# PostgreSQL::Test::Cluster may be that of another major than the server. Its background psql differs from one to the next,
# so sessions are made here, of IPC::Run alone. Nothing sleeps for a guessed time: what takes time is polled for, with
# $PostgreSQL::Test::Utils::timeout_default as the bound.
package PgscaleTest;

use strict;
use warnings;
use Carp;
use Config;
use Exporter 'import';
use Fcntl ();
use IPC::Run;
use List::Util qw(max min);
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes ();

our @EXPORT = qw(pgscale_node pgscale_standby server_major sweeper_conf have_module shows_modules
  kill_postmaster refuse_cachestat refuse_call refuse_direct_io process_state compiled number_file write_number order session
  churn until_true until_ok in_time_ok psql_once steps_ok);

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

# A standby of that node as it is now, started, with more settings if need be.
sub pgscale_standby
{
    my ($primary, $conf) = @_;
    my $standby = PostgreSQL::Test::Cluster->new('standby');

    $primary->backup('backup');
    $standby->init_from_backup($primary, 'backup', has_streaming => 1);
    $standby->append_conf('postgresql.conf', $conf) if $conf;
    $standby->start;
    return $standby;
}

# The server's major version.
sub server_major
{
    my ($major) = qx(pg_config --version) =~ /(\d+)/;

    return $major;
}

# Settings with which nobody but a sweeper that is made to work writes pages
sub sweeper_conf
{
    return "shared_buffers = 8MB\nmax_worker_processes = 32\ncheckpoint_timeout = 1h\nbgwriter_lru_maxpages = 0\npgscale.sweeper = on";
}

# Does this server have a module of contrib?
sub have_module
{
    my $name = shift;
    my $dir = qx(pg_config --pkglibdir);
    chomp $dir;
    return -e "$dir/$name.so";
}

# Does pgscale's library show its functions to another one? From 16 on it shows only what the server calls.
sub shows_modules
{
    my $dir = qx(pg_config --pkglibdir) =~ s/\n//r;

    return qx(nm -D $dir/pgscale.so) =~ / pgscale_modules$/m;
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

# A PATH with which a server starts that the kernel answers some system calls of with an error: a pg_ctl that sets up a filter
# first, whose instructions are a list in Perl, of four numbers each. undef if no filter can be set up here.
sub _filtered
{
    my ($node, $instructions) = @_;
    my $bin = $node->basedir . '/filtered';
    my $pg_ctl = do { my $dir = qx(pg_config --bindir); chomp $dir; "$dir/pg_ctl" };

    return unless eval { local $SIG{__WARN__} = sub { }; require 'syscall.ph' };
    mkdir $bin;
    open my $wrapper, '>', "$bin/pg_ctl" or die $!;
    print $wrapper <<"EOW";
#!$Config{perlpath}
require 'syscall.ph';
my \@filter = ($instructions);
my \$filter = pack '(SCCL)*', \@filter;
my \$program = pack 'S x![J] P', \@filter / 4, \$filter;
syscall(SYS_prctl(), 38, 1, 0, 0, 0) == 0 or die "PR_SET_NO_NEW_PRIVS: \$!";
syscall(SYS_prctl(), 22, 2, \$program, 0, 0) == 0 or die "PR_SET_SECCOMP: \$!";
exec \$ENV{REAL_PG_CTL} || '$pg_ctl', \@ARGV;
EOW
    close $wrapper;
    chmod 0755, "$bin/pg_ctl" or die $!;
    local $ENV{REAL_PG_CTL} = '/bin/true';
    return system("$bin/pg_ctl") == 0 ? "$bin:$ENV{PATH}" : undef;
}

# One that may not call cachestat, as in many a container: it fails with REFUSE_WITH of the environment, or EPERM.
sub refuse_cachestat
{
    my $node = shift;

    return _filtered($node, <<'EOF');
0x20, 0, 0, 0,           # load the system call's number
0x15, 0, 1, 451,         # unless it is this one, go on with the last
0x06, 0, 0, 0x00050000 | ($ENV{REFUSE_WITH} // 1),    # SECCOMP_RET_ERRNO
0x06, 0, 0, 0x7fff0000
EOF
}

# One that may not call what is named, as in many a container: it fails with REFUSE_WITH of the environment, or EPERM.
sub refuse_call
{
    my ($node, $name) = @_;

    return _filtered($node, <<"EOF");
0x20, 0, 0, 0,
0x15, 0, 1, SYS_$name(),
0x06, 0, 0, 0x00050000 | (\$ENV{REFUSE_WITH} // 1),
0x06, 0, 0, 0x7fff0000
EOF
}

# One whose file systems know no direct I/O: openat with that flag fails with EINVAL.
sub refuse_direct_io
{
    my $node = shift;

    return _filtered($node, sprintf <<'EOF', Fcntl::O_DIRECT());
0x20, 0, 0, 0,
0x15, 0, 3, SYS_openat(),
0x20, 0, 0, 32,          # load its flags
0x45, 0, 1, %d,          # unless this one is set, go on with the last
0x06, 0, 0, 0x00050000 | 22,
0x06, 0, 0, 0x7fff0000
EOF
}

# The folder of the server's headers, for what a test compiles; it may be that there are none.
sub server_headers { return $ENV{PGSCALE_SERVER_HEADERS} // qx(pg_config --includedir-server) =~ s/\n//r; }

# The library of t/lib/NAME.c, with more flags of the compiler; undef where there is no compiler, no header, or another processor. The
# name of a background worker's library has at most 95 characters before 16.
sub compiled
{
    my ($name, $flags) = (@_, '');
    my $dir = PostgreSQL::Test::Utils::tempdir_short();
    my $library = "$dir/$name.so";

    $flags =~ s/LIBRARY/$library/;
    my $said = qx(cc -shared -fPIC -O1 -w -D_GNU_SOURCE -Wl,-Bsymbolic -I ${\ server_headers()} -I src $flags -o $library t/lib/$name.c -ldl 2>&1);
    if ($? != 0)
    {
        $said =~ /\bcc: (?:command )?not found|\b\w+\.h(?:: No such file|' file not found)|#error/ or die "$name cannot be compiled: $said";
        note $said;
        return undef;
    }
    chmod 0755, $dir, $library;
    return $library;
}

# A file of one number of eight bytes, which t/lib/clock.c and t/lib/monotonic.c map
sub number_file
{
    my $file = PostgreSQL::Test::Utils::tempdir() . '/number';

    append_to_file($file, pack 'q', 0);
    return $file;
}

sub write_number
{
    my ($file, $number) = @_;

    open my $handle, '+<', $file or die "$file: $!";
    syswrite $handle, pack 'q', $number or die $!;
    close $handle or die $!;
    return;
}

# What t/lib/faults.c does next, by the fields of its struct orders, in the file that PGSCALE_FAULTS names. No arguments: nothing.
sub order
{
    my (%order) = @_;

    append_to_file($ENV{PGSCALE_FAULTS}, '');
    open my $file, '+<', $ENV{PGSCALE_FAULTS} or die $!;
    print $file pack 'l6 Z64 Z1024', (map { $order{$_} // 0 } qw(pid kinds left error hits always)), $order{word} // '/none',
      $order{folder} // '/none';
    close $file;
    return;
}

# The letter that the kernel has for a process' state; empty if there is none.
sub process_state
{
    my $pid = shift;
    my $stat = eval { slurp_file("/proc/$pid/stat") } // '';

    return $stat =~ /\) (\w)/ ? $1 : '';
}

# until_true CODE: calls it until it answers true; false if it never did. A question that takes a CPU's time is not asked all the
# time, nor one that is asked for long; of what is there for a moment only it is: until_true CODE, SECONDS between two.
sub until_true
{
    my ($code, $pause) = @_;
    my $since = Time::HiRes::time();
    my $now = $since;

    do
    {
        my $before = $now;

        return 1 if $code->();
        $now = Time::HiRes::time();
        Time::HiRes::sleep($pause // min(0.3, max(0.02, 2 * ($now - $before), ($now - $since) / 20)));
        $now = Time::HiRes::time();
    } while ($now < $since + $PostgreSQL::Test::Utils::timeout_default);
    return 0;
}

sub until_ok
{
    my ($code, $name, $pause) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return ok(until_true($code, $pause), $name);
}

# The same for what takes its time, as evidence does: it is polled for four times as long.
sub in_time_ok
{
    my ($code, $name) = @_;
    local $PostgreSQL::Test::Utils::timeout_default = 4 * $PostgreSQL::Test::Utils::timeout_default;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return until_ok($code, $name);
}

# Status, output and error of psql on a server that may be about to end or to start. Where psql has ended before it was told the
# statement, the pipe to it is broken, which is no reason to die.
sub psql_once
{
    my ($node, $statement) = @_;
    my @said = eval { $node->psql('postgres', $statement) };

    return @said ? @said : (2, '', $@);
}

# session NODE, user => ROLE, dbname => DATABASE, host => ADDRESS: a psql that is connected until quit
sub session
{
    my ($node, %option) = @_;
    my $connstr = $node->connstr($option{dbname} // 'postgres');
    $connstr .= " user=$option{user}" if $option{user};
    $connstr .= " host=$option{host}" if $option{host};
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
# the last one's SQLSTATE, empty if the connection was lost, and what psql wrote, errors included.
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
    my $end = qr/\A(.*?)^=end $self->{number} (\w*)\n(.*)\z/ms;

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

# Another session instead of one that a crash ends, of which the postmaster may not know yet: first it ends all sessions.
sub reconnect
{
    my ($self, $node) = @_;

    until_true(sub { process_state($self->pid) =~ /^[ZX]?$/ }) or croak 'the server has not noticed';
    $self->quit;
    until_true(sub { (psql_once($node, 'SELECT 1'))[0] == 0 }) or croak 'the server is not back';
    return session($node);
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

# Changes a setting, or sets it back to its default, by a reload.
sub set
{
    my ($self, $setting, $value) = @_;

    $self->sql(defined $value ? "ALTER SYSTEM SET $setting = '$value'" : "ALTER SYSTEM RESET $setting");
    $self->sql('SELECT pg_reload_conf()');
    return;
}

# Another session starts a statement, and is seen to wait for a lock.
sub sees_waiting
{
    my ($self, $waiter, $text) = @_;
    my $pid = $waiter->pid;

    $waiter->start($text);
    until_true(sub { $self->sql("SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = $pid AND waitstart IS NOT NULL") eq '1' })
      or die "does not wait for a lock: $text";
    return;
}

# Ends others, whatever state they are in, and with them all waits for locks.
sub ends_waiting
{
    my ($self, @sessions) = @_;

    $self->sql('SELECT pg_terminate_backend(' . $_->pid . ')') for @sessions;
    until_true(sub { $self->sql('SELECT count(*) FROM pg_locks WHERE NOT granted') eq '0' }) or die 'some still wait';
    return;
}

# A load for which buffers must be found all the time: sessions that add one to random rows of a table, which is to be much
# larger than shared_buffers, and keep count of it in the same transactions. So there is a truth that holds in every
# snapshot, on a standby and after a crash, too: churn_right. They pause between two transactions, for the tests beside this one.
sub churn_table
{
    my ($self, $rows) = @_;

    $self->sql(<<"EOQ");
CREATE TABLE churn_on ();
INSERT INTO churn_on DEFAULT VALUES;
CREATE TABLE churned (session int PRIMARY KEY, n bigint NOT NULL);
INSERT INTO churned SELECT i, 0 FROM generate_series(0, 7) i;
CREATE TABLE churn (id int PRIMARY KEY, n bigint NOT NULL, filler char(400)) WITH (fillfactor = 70);
INSERT INTO churn SELECT i, 0, i FROM generate_series(0, $rows - 1) i;
CREATE PROCEDURE churn(me int, sessions int) LANGUAGE plpgsql AS \$\$
DECLARE
    this int;
BEGIN
    WHILE EXISTS (SELECT FROM churn_on) LOOP
        FOR i IN 1..20 LOOP
            this := sessions * floor(random() * ($rows / sessions))::int + me;
            UPDATE churn SET n = n + 1 WHERE id = this;
        END LOOP;
        UPDATE churned SET n = n + 20 WHERE session = me;
        COMMIT;
        PERFORM pg_sleep(0.01);
    END LOOP;
END \$\$;
EOQ
    return;
}

# churn NODE, SESSIONS, option => VALUE: the sessions, at work; options are those of session
sub churn
{
    my ($node, $sessions, %option) = @_;
    my @churning = map { session($node, %option) } 1 .. $sessions;

    $churning[$_]->start("CALL churn($_, $sessions)") for 0 .. $#churning;
    return @churning;
}

# Ends it; none of the sessions may have failed.
sub churn_end
{
    my ($self, @churning) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    $self->sql('DELETE FROM churn_on');
    $_->{limit}->start(2 * $PostgreSQL::Test::Utils::timeout_default) for @churning;
    my @failed = grep { $_->[0] ne '00000' } map { [ $_->finish ] } @churning;
    is(scalar @failed, 0, 'none of the sessions under load failed') or diag map { "@$_" } @failed;
    $_->quit for @churning;
    $self->sql('INSERT INTO churn_on DEFAULT VALUES');
    return;
}

sub churn_right
{
    my ($self, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return is($self->sql('SELECT (SELECT sum(n) FROM churn) - (SELECT sum(n) FROM churned), (SELECT sum(n) > 0 FROM churn)'),
        '0|t', $name);
}

# The processes of the sweeper and its writers, or those of that name.
sub sweeper_pids
{
    my ($self, $name) = @_;

    return split /\n/, $self->sql("SELECT pid FROM pg_stat_activity WHERE backend_type LIKE '" . ($name // 'pgscale sweeper%') . "' ORDER BY pid");
}

# Waits until something was supplied and written from now on; a test.
sub sweeps_on
{
    my ($self, $name) = @_;
    my ($supplied, $written) = split /\|/, $self->sql('SELECT supplied_clean + supplied_written, written FROM pgscale.sweeper_stats');
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return $self->poll_ok("SELECT supplied_clean + supplied_written > $supplied + 100 AND written > $written + 100
        FROM pgscale.sweeper_stats", $name)
      || !diag $self->sql('SELECT row_to_json(s) FROM pgscale.sweeper_stats s');
}

sub quit
{
    my $self = shift;

    $self->{in} .= "\\q\n";
    eval { $self->{psql}->finish };
    return;
}

# Runs the checks of t/lib/NAME.c, which includes sources of pgscale and makes up what they ask: a test for each line of its answer.
sub steps_ok
{
    my ($self, $name) = @_;
    my $folder = PostgreSQL::Test::Utils::tempdir();
    local $Test::Builder::Level = $Test::Builder::Level + 1;

  SKIP:
    {
        my $library = compiled($name) // skip "$name cannot be compiled here", 1;
        $self->sql("CREATE FUNCTION $name(folder text) RETURNS text AS '$library' LANGUAGE C");
        ok($_ =~ /^ok/, $_ =~ s/^(not )?ok //r) for split /\n/, $self->sql("SELECT $name('$folder')");
    }
    return;
}

1;
