# What the sweeper's policy remembers, over a restart of the sweeper or the server: it is kept when the sweeper ends; nothing
# after a crash; and whatever a file says, the server starts, and the reason why it is ignored is in the log and in
# replacement_stats. Which pages are kept, with which scores, and what files are ignored, is checked in t/lib/policy_steps.c.
use strict;
use warnings;
use PgscaleKept;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main', init => [ allows_streaming => 1 ], conf => <<"EOC");
${\ sweeper_conf()}
synchronous_commit = off
enable_seqscan = off
enable_bitmapscan = off
pgscale.sweeper_writers = 2
EOC
my $db = session($node);
my $buffers = 1024;

sub file_of { my $of = shift; return $of->data_dir . '/pg_stat/pgscale_sweeper.stat'; }
my $file = file_of($node);
sub content { return slurp_file($file, 0); }

# a file's numbers
sub header
{
    my %header;

    @header{qw(format catversion block_size hash buffers choice pages)} = unpack 'L5lL', shift;
    return \%header;
}

sub begin
{
    my $conf = shift;

    $node->append_conf('postgresql.conf', $conf) if $conf;
    $node->start;
    $db = session($node);
    return;
}

# Once the sweeper has begun, what it has taken from its file, and why not
sub restored
{
    $db->poll_ok('SELECT ticks > 0 FROM pgscale.sweeper_stats', 'it is at work');
    return $db->sql('SELECT restored, restore_problem FROM pgscale.replacement_stats');
}

sub end
{
    $db->quit;
    $node->stop(shift // 'fast');
    return;
}

# Reads all of a table that is four times as large as the buffers, through an index, until what the sweeper has supplied was taken
# that often.
sub sweeps
{
    my $more = shift // 2000;
    my $session = shift // $db;
    my $before = $session->sql('SELECT consumed FROM pgscale.sweeper_stats');
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return until_ok(
        sub {
            $session->sql('SELECT count(filler) FROM large WHERE i > 0');
            return $session->sql("SELECT consumed >= $before + $more FROM pgscale.sweeper_stats") eq 't';
        },
        'pages come and go') || !diag $session->sql('SELECT row_to_json(s) FROM pgscale.sweeper_stats s');
}

### A clean shutdown, and the next start

$db->sql(q{CREATE TABLE large (i int PRIMARY KEY, filler char(1000))});
$db->sql(q{INSERT INTO large SELECT i, '' FROM generate_series(1, 30000) i});
is(restored(), '0|', 'at first there is nothing to restore');
sweeps();
ok(!-e $file, 'no file while the server runs');
end();
ok(-e $file, 'a file after a fast shutdown');
my $good = content();
my $header = header($good);
is(join(' ', @$header{qw(block_size buffers)}), "8192 $buffers", 'of this server');
like($header->{choice}, qr/^[0-4]$/, 'and its choice');
is($header->{pages}, $buffers, 'with as many pages as there are buffers');
is(length $good, 28 + 8 * $header->{pages} + 4, 'of eight bytes each');
is(with_checksum(substr $good, 0, -4), $good, 'and a checksum');
is(scalar grep({ m{sweeper[^/]*tmp$} } glob $node->data_dir . '/pg_stat/*'), 0, 'and no other file');
my $log = -s $node->logfile;
begin();
is(restored(), "$buffers|", 'the next start restores all of them');
ok(!-e $file, 'and removes the file');
unlike(substr(slurp_file($node->logfile), $log), qr/ignoring|pgscale_sweeper/, 'without a word in the log');

# Before anything has come or gone, what was restored is kept, except where many pages share a place.
end('smart');
my $again = header(content())->{pages};
cmp_ok($again, '>', 0.9 * $buffers, 'a smart shutdown keeps it, too');
begin();
is(restored(), "$again|", 'and it is restored');

### None

end('immediate');
ok(!-e $file, 'an immediate shutdown leaves none');
begin();
is(restored(), '0|', 'and nothing is restored after it');
sweeps();
my ($pid) = $db->sweeper_pids('pgscale sweeper');
kill 'KILL', $pid;
$db->quit;
until_ok(sub { (psql_once($node,
    "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pgscale sweeper' AND pid <> $pid"))[1] eq '1' },
    'a sweeper is killed, and the server starts anew');
$db = session($node);
is(restored(), '0|', 'without a history');
sweeps();
end();
is(header(content())->{pages}, $buffers, 'and keeps what it has learned since');

# Off when it starts: the file is old when it is on again.
begin('pgscale.sweeper = off');
ok(!-e $file, 'a start with the sweeper off removes the file');
end();
ok(!-e $file, 'and there is nothing to write');
write_bytes($file, $good);
begin('pgscale.sweeper = on');
is(restored(), "$buffers|", 'on again, one that was put back is read');
sweeps();
$db->poll_ok('SELECT evictions > 0 FROM pgscale.replacement_stats', 'it counts');
my $counted = $db->sql('SELECT evictions FROM pgscale.replacement_stats');
$db->set('pgscale.sweeper', 'off');
until_ok(sub { -e $file }, 'switched off, it keeps what it knows');
is($db->sql("SELECT evictions >= $counted FROM pgscale.replacement_stats"), 't', 'its counts stay');
$db->set('pgscale.sweeper', 'on');
$db->poll_ok('SELECT restored FROM pgscale.replacement_stats', 'switched on, it goes on with that', header($good)->{pages});
until_ok(sub { !-e $file }, 'and the file is gone');
sweeps();
is($db->sql("SELECT evictions > $counted FROM pgscale.replacement_stats"), 't', 'and counts on');
$db->set('pgscale.sweeper', 'off');
until_ok(sub { -e $file }, 'off again');
end();
ok(-e $file, 'the file stays over a shutdown');
$node->start;
$node->safe_psql('postgres', 'ALTER SYSTEM RESET pgscale.sweeper');
$node->stop;

### A file of another's making

my $flipped = $good;
substr($flipped, 2000, 1) ^= "\1";
write_bytes($file, $flipped);
my $from = -s $node->logfile;
begin();
is(restored(), '0|its checksum is wrong', 'a flipped bit: nothing is restored, and replacement_stats says why');
my @lines = grep { /pgscale_sweeper/ } split /\n/, slurp_file($node->logfile, $from);
is(scalar @lines, 1, 'there is one line in the log');
like($lines[0], qr/LOG:  ignoring file "pg_stat\/pgscale_sweeper.stat": its checksum is wrong$/, 'which says it, too');
ok(!-e $file, 'and the file is gone');
end('immediate');
mkdir $file or die $!;
begin();
is(restored(), '0|it is not a regular file', 'a folder in its place: the server starts');
end();
rmdir $file or die "$file: $!";

### A standby

begin();
my $standby = pgscale_standby($node);
ok(!-e file_of($standby), 'a base backup has no such file');
my $on_standby = session($standby);
$on_standby->poll_ok('SELECT ticks > 0 FROM pgscale.sweeper_stats', 'the sweeper of a standby');
is($on_standby->sql('SELECT restored, restore_problem FROM pgscale.replacement_stats'), '0|', 'begins without a history');
sweeps(2000, $on_standby);
$on_standby->quit;
$standby->stop;
ok(-e file_of($standby), 'it keeps its own');
$standby->start;
$on_standby = session($standby);
$on_standby->poll_ok('SELECT restored > 0 FROM pgscale.replacement_stats', 'and restores');
my $evictions = $on_standby->sql('SELECT evictions FROM pgscale.replacement_stats');
my $restored = $on_standby->sql('SELECT restored FROM pgscale.replacement_stats');
$standby->promote;
$on_standby->poll_ok('SELECT NOT pg_is_in_recovery()', 'promoted');
is($on_standby->sql("SELECT restored, evictions >= $evictions FROM pgscale.replacement_stats"), "$restored|t",
    'it goes on with that');
$on_standby->quit;
$standby->stop;
end();

# No room for the file: the server ends as ever.
unlink $file;
mkdir "$file.tmp" or die $!;
$from = -s $node->logfile;
begin();
sweeps();
end();
ok(!-e $file, 'a file that cannot be written is not there');
like(substr(slurp_file($node->logfile), $from), qr/LOG:  could not write file "pg_stat\/pgscale_sweeper.stat"/,
    'the log says so');
unlike(slurp_file($node->logfile), qr/PANIC|TRAP/, 'and nothing has failed on the way');

done_testing();
