# Which server this is; and nodes that are asked: a primary, its standby, dead ones, and those that lie or say nothing. What they
# answer, their advice included.
use strict;
use warnings;
use IO::Socket::INET;
use List::Util qw(min);
use POSIX ();
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $primary = pgscale_node('primary', init => [ allows_streaming => 1 ]);
my $db = session($primary);
my $standby = pgscale_standby($primary);
my $there = session($standby);

### Who is who

my ($primary_node, $system) = split /\|/, $db->sql('SELECT node, system_identifier FROM pgscale.node_identity()');
like($primary_node, qr/^.+@[^@]+:${\ $primary->port}$/, 'a node is cluster_name, host and port');
is($db->sql('SELECT role, lag_s FROM pgscale.node_identity()'), 'primary|', 'a primary is not behind');
my ($node, $same) = split /\|/, $there->sql('SELECT node, system_identifier FROM pgscale.node_identity()');
is($same, $system, 'a standby is of the same cluster');
isnt($node, $primary_node, 'and another node');
$there->poll_ok('SELECT role, lag_s FROM pgscale.node_identity()', 'which has replayed all', 'standby|0');
$db->sql('CREATE TABLE u ()');
$there->poll_ok(q{SELECT to_regclass('u') IS NOT NULL}, 'it follows');

### Nodes that are none: what they do is in the name of the database that they are asked for

my $listener = IO::Socket::INET->new(Listen => 20, LocalAddr => '127.0.0.1') or die $!;
my $fake = fork // die $!;
if (!$fake)
{
    setpgrp;
    open $_, '>', '/dev/null' for *STDOUT, *STDERR;
    $SIG{CHLD} = 'IGNORE';
    $SIG{TERM} = 'DEFAULT';    # PostgreSQL::Test::Cluster of 19 dies of it, which runs the test's END
    while (my $socket = $listener->accept)
    {
        next if fork;
        fake_node($socket);
        POSIX::_exit(0);
    }
    POSIX::_exit(0);
}
END { local $?; kill '-TERM', $fake if $fake; }
my $fake_port = $listener->sockport;
$listener->close;

sub message { my ($type, $body) = @_; return $type . pack('N', 4 + length $body) . $body; }
sub columns { return message('T', pack('n', scalar @_) . join '', map { "$_\0" . pack('NnNnNn', 0, 0, 25, 0xffff, 0xffffffff, 0) } @_); }
sub row { return message('D', pack('n', scalar @_) . join '', map { pack('N', length $_) . $_ } @_); }
sub get { my ($socket, $n) = @_; my $s = ''; while (length $s < $n) { sysread($socket, $s, $n - length $s, length $s) or POSIX::_exit(0); } return $s; }

sub fake_node
{
    my $socket = shift;
    my $ready = message('Z', 'I');
    my $end = message('C', "SELECT 1\0") . $ready;
    my ($mode) = get($socket, unpack('N', get($socket, 4)) - 4) =~ /\0database\0(.*?)\0/;
    local $SIG{PIPE} = 'DEFAULT';

    sleep 600 if $mode eq 'silent';
    syswrite($socket, "HTTP/1.0 400 Bad Request\r\n\r\n"), return if $mode eq 'web';
    syswrite $socket, message('R', pack 'N', 0) . $ready;
    my $asked = get($socket, unpack('x N', get($socket, 5)) - 4) =~ s/\0\z//r;
    syswrite($socket, message('E', "SERROR\0C58000\0M$asked\0\0") . $ready), return if $mode eq 'checked';
    syswrite $socket, columns('a') . row('pgscale') . $end;
    $asked = get($socket, unpack('x N', get($socket, 5)) - 4) =~ s/\0\z//r;
    my $head = columns(qw(feature enabled state reason action));
    my @row = qw(sampler t working because nothing);
    syswrite $socket, {
        few => columns('a') . row('1') . $end,
        types => $head . row('sampler', 'perhaps', @row[2 .. 4]) . $end,
        bytes => $head . row("\xff\xfe", @row[1 .. 4]) . $end,
        copy => message('H', pack 'Cn', 0, 0),
        gone => $head . row(@row),
        half => $head . substr(row(@row), 0, 10),
        flood => $head,
        error => message('E', "SERROR\0C58000\0Mbroken \xff\x07line\0\0") . $ready,
        late => $head . row(@row) . message('E', "SERROR\0C57014\0Mcanceled\0Dafter a row\0Hwait\0\0") . $ready,
        right => $head . row(@row) . $end }->{$mode} // die;
    my $flood = row(@row[0 .. 3], 'x' x 100_000);
    while ($mode eq 'flood') { syswrite $socket, $flood or last; }
    sleep 600 if $mode eq 'half';
    return;
}

sub add
{
    my ($name, $conninfo, $session) = @_;

    ($session // $db)->sql("SELECT pgscale.fleet_add('$name', '$conninfo')");
    return;
}
sub address { my $of = shift; return 'host=' . $of->host . ' port=' . $of->port . ' dbname=postgres'; }
my $at_fake = "host=127.0.0.1 port=$fake_port sslmode=disable gssencmode=disable dbname=";

### A fleet: all are asked, and who does not answer is a row

is($db->sql('SELECT count(*) FROM pgscale.fleet'), 0, 'no nodes');
add('first', address($primary));
add('second', address($standby));
add('first again', address($primary));
add('elsewhere', address($primary) =~ s/dbname=postgres/dbname=template1/r);
add('no base', address($primary) =~ s/dbname=postgres/dbname=none/r);
add('dead', 'host=/nowhere');
add('silent', "$at_fake silent connect_timeout=1");
add($_, $at_fake . $_) for qw(web few types bytes copy gone flood error checked late right);
# A silent node costs its own time-out, and not that of all nodes: that is longer than the statement's.
my $longest = min(500, 1.5 * $PostgreSQL::Test::Utils::timeout_default);
$db->sql("SET pgscale.fleet_timeout = '10min'; SET statement_timeout = '${longest}s'");
$standby->append_conf('postgresql.conf', 'work_mem = 7MB');
$standby->reload;
$there->poll_ok('SHOW work_mem', 'a standby with a setting of its own', '7MB');
is($db->sql(q{SELECT node, state, role, lag_s IS NOT NULL, version = current_setting('server_version'), same_as, error IS NOT NULL
      FROM pgscale.fleet WHERE node IN ('first', 'second', 'first again', 'elsewhere', 'dead', 'silent', 'no base')}), <<'EOT' =~ s/\n\z//r, 'the fleet');
dead|unreachable||f|||t
elsewhere|failed||f|||t
first|ok|primary|f|t|first again|f
first again|ok|primary|f|t|first|f
no base|unreachable||f|||t
second|ok|standby|t|t||f
silent|no answer||f|||t
EOT
is($db->sql(q{SELECT error FROM pgscale.fleet WHERE node = 'silent'}), 'it did not accept the connection in time', 'which says why');
is($db->sql(q{SELECT string_agg(concat(node, ': ', differing_settings), '; ') FROM pgscale.fleet WHERE differing_settings ~ 'work_mem'}),
    'second: work_mem=7MB', 'and which node has another setting than most');

$db->sql('CREATE TABLE health AS SELECT * FROM pgscale_internal.fleet_health()');
is($db->sql(q{SELECT node, min(state), min(CASE WHEN node NOT IN ('gone', 'web') THEN reason END) FROM health WHERE feature IS NULL
      AND node NOT IN ('dead', 'silent', 'no base', 'elsewhere', 'checked') GROUP BY 1 ORDER BY 1}),
    <<'EOT' =~ s/\n\z//r, 'nodes that lie');
bytes|garbled|its answer is not a text in the encoding of this database
copy|garbled|its answer is not that of a server to a query
error|failed|broken � line
few|garbled|its answer has other columns than were asked for
flood|garbled|its answer is longer than 16 MB
gone|failed|
late|no answer|canceled; after a row; wait
types|garbled|invalid input syntax for type boolean: "perhaps"
web|unreachable|
EOT
# They are asked within a transaction that can write nothing, and of their answer's error so much is shown.
like($db->sql(q{SELECT reason FROM health WHERE node = 'checked'}),
    qr/^(?=.{500,503}$)BEGIN TRANSACTION READ ONLY; SET LOCAL search_path = pg_catalog, pg_temp; SET LOCAL statement_timeout = 600000; SET LOCAL DateStyle = 'ISO'; SET LOCAL extra_float_digits = 1; SELECT 'pgscale' FROM pg_catalog/,
    'what they are asked first');
is($db->sql(q{SELECT node, count(*) > 5 FROM health WHERE feature IS NOT NULL AND node <> 'right' GROUP BY 1 ORDER BY 1}),
    "first|t\nfirst again|t\nsecond|t", 'while the others are asked all the same');
is($db->sql(q{SELECT feature, enabled, state, reason, action FROM health WHERE node = 'right'}), 'sampler|t|working|because|nothing',
    'one that does it right can be believed');
is($db->sql("SELECT count(*) FROM $_ WHERE error IS NOT NULL AND node IN ('dead', 'silent')"), 2, "so it is with $_")
  for 'pgscale.fleet_advice', 'pgscale.fleet_waits()';
$there->poll_ok(q{SELECT count(*) FROM pg_foreign_server WHERE srvname = 'right'}, 'a standby has the same nodes', 1);
is($there->sql(q{SELECT role FROM pgscale.fleet WHERE node = 'first'}), 'primary', 'and asks them, too');

### Advice, which is made up; and the command that applies it where Patroni manages the settings: its file is there, and cluster_name is on
### the command line, as the tests' servers have it

my %made_up = (rule => q{'r'}, setting => q{'max_wal_size'}, current => q{'4MB'}, recommended => q{'1GB'});
my @columns = map { [ split / /, $_, 2 ] } split /\n/, $db->sql(q{SELECT concat(attname, ' ', format_type(atttypid, atttypmod)) FROM pg_attribute
    WHERE attrelid = 'pgscale.advice'::regclass AND attnum > 0 ORDER BY attnum});
$db->sql('CREATE OR REPLACE VIEW pgscale.advice AS SELECT ' . join ', ', map { ($made_up{ $_->[0] } // 'NULL') . "::$_->[1] AS \"$_->[0]\"" } @columns);
my $advice = q{SELECT setting, "current", patroni_command FROM pgscale.fleet_advice WHERE node = 'first'};
is($db->sql($advice), 'max_wal_size|4MB|', 'advice of a node');
is($db->sql(q{SELECT count(manager) FROM pgscale.fleet}), 0, 'which nothing manages');
append_to_file($primary->data_dir . '/patroni.dynamic.json', '{}');
is($db->sql(q{SELECT node, manager FROM pgscale.fleet WHERE node = 'first'}), 'first|patroni', 'or Patroni does, which the fleet knows');
is($db->sql($advice), q{max_wal_size|4MB|patronictl edit-config --pg 'max_wal_size=1GB' 'primary'}, 'and has the command for it');

### Rights and wrongs

is(($db->try("SELECT pgscale.fleet_add('bad', '$_->[0]')"))[0], $_->[1], "refused: $_->[2]")
  for [ 'host=x password=secret', '22023', 'a password' ], [ 'postgresql://u:secret@x/d', '22023', 'a password in a URI' ],
  [ 'host=x options=-csearch_path=x', '22023', 'options' ], [ 'host=a,b', '22023', 'two hosts' ], [ 'port=1', '22023', 'no host' ],
  [ 'host', '42601', 'what cannot be read' ];
my ($state, $text) = $db->try(q{SELECT pgscale.fleet_add('bad', 'host=x passwort=secret')});
is($state, '42601', 'refused: a misspelt word');
unlike($text =~ s/LINE.*//sr, qr/secret/, 'of which nothing is shown');
is(($db->try(q{SELECT pgscale.fleet_add('dead', 'host=x')}))[0], '42710', 'refused: a name that is there');
is(($db->try(q{SELECT pgscale.fleet_remove('none')}))[0], '42704', 'refused: one that is not there');
is(($db->try(q{CREATE SERVER s FOREIGN DATA WRAPPER pgscale_fleet OPTIONS (password 'x')}))[0], 'HV00D', 'a server has no password');
is($db->sql(q{SELECT count(*) FROM pg_foreign_server WHERE srvoptions::text ~ 'password|user'}), 0, 'what all can read has neither');

$db->sql('CREATE ROLE observer LOGIN IN ROLE pg_monitor; CREATE ROLE other LOGIN IN ROLE pg_monitor');
my $observer = session($primary, user => 'observer');
like($observer->sql(q{SELECT error FROM pgscale.fleet WHERE node = 'first'}), qr/no user mapping/, 'a user mapping is needed');
$observer->sql(q{CREATE USER MAPPING FOR observer SERVER first OPTIONS (user 'observer')});
like($observer->sql(q{SELECT error FROM pgscale.fleet WHERE node = 'first'}), qr/password is required/, 'with a password');
$observer->sql(q{ALTER USER MAPPING FOR observer SERVER first OPTIONS (ADD password 'x')});
like($observer->sql(q{SELECT error FROM pgscale.fleet WHERE node = 'first'}), qr/did not ask for the password/, 'that is asked for');
is(($observer->try(q{ALTER USER MAPPING FOR observer SERVER first OPTIONS (ADD password_required 'false')}))[0], '42501', 'unless a superuser');
$db->sql(q{ALTER USER MAPPING FOR observer SERVER first OPTIONS (ADD password_required 'false')});
is($observer->sql(q{SELECT role FROM pgscale.fleet WHERE node = 'first'}), 'primary', 'says otherwise');
is(($observer->try(q{ALTER USER MAPPING FOR observer SERVER first OPTIONS (SET user 'postgres')}))[0], '42501', 'who then is the one to change it');
is(($observer->try(q{SELECT pgscale.fleet_add('x', 'host=x')}))[0], '42501', 'who may look may not add');
is($observer->sql('SELECT count(*) FROM pg_user_mappings WHERE umoptions IS NOT NULL'), 1, 'and sees no options but its own');

# Where the schema is not the extension's, nothing in it is called, and operators in other schemas are not, either.
$db->sql('CREATE DATABASE planted');
my $planted = session($primary, dbname => 'planted');
$planted->sql(<<'EOQ');
CREATE TABLE called (); CREATE SCHEMA pgscale; CREATE SCHEMA pgscale_internal;
CREATE FUNCTION pgscale_internal.health(OUT feature text, OUT enabled bool, OUT state text, OUT reason text, OUT action text) LANGUAGE sql
  AS 'INSERT INTO public.called DEFAULT VALUES; SELECT NULL::text, NULL::bool, NULL::text, NULL::text, NULL::text';
CREATE FUNCTION public.equals(name, text) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'planted'; END $$;
CREATE OPERATOR public.= (LEFTARG = name, RIGHTARG = text, FUNCTION = public.equals);
CREATE FUNCTION public.count() RETURNS bigint LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'planted'; END $$;
ALTER DATABASE planted SET search_path = public, pg_catalog;
EOQ
add('planted', address($primary) =~ s/dbname=postgres/dbname=planted/r);
is($db->sql(q{SELECT state, reason FROM pgscale.fleet_health WHERE node = 'planted'}),
    'failed|that database of the node has no extension pgscale, or one of an older version', 'what somebody has planted');
is($planted->sql('SELECT count(*) FROM called'), 0, 'is not called');
$planted->sql('DROP SCHEMA pgscale, pgscale_internal CASCADE; CREATE EXTENSION pgscale');
is($db->sql(q{SELECT count(*) > 5, string_agg(reason, '') ~ 'planted' FROM pgscale.fleet_health WHERE node = 'planted'}), 't|f',
    'nor what stands in the way of names');
$planted->quit;

### Time

my @others = split /\n/, $db->sql(q{SELECT srvname FROM pg_foreign_server WHERE srvname NOT IN ('first', 'silent')});
$db->sql("SELECT pgscale.fleet_remove('$_')") for @others;
is($db->sql('SELECT string_agg(node, $$ $$) FROM pgscale.fleet_health WHERE feature IS NULL'), 'silent', 'nodes can be removed');
add('half', "$at_fake half");
$db->sql(q{SET pgscale.fleet_timeout = 300});
for my $change (q{SET connect_timeout '600'}, 'DROP connect_timeout')
{
    $db->sql("ALTER SERVER silent OPTIONS ($change)");
    is($db->sql(q{SELECT node, state, reason FROM pgscale.fleet_health WHERE node <> 'first' ORDER BY 1}),
        "half|no answer|it did not answer within 300 ms\nsilent|no answer|it did not accept the connection in time", "half an answer is none; $change");
}

# A cancel and the end of the session, while a node says nothing
$db->sql(q{SET pgscale.fleet_timeout = '10min'; RESET statement_timeout});
$db->sql(q{CREATE TABLE done (i int)});
for my $timeout (1, 20, 500)
{
    is(($db->try("SET statement_timeout = $timeout; SELECT count(*) FROM pgscale.fleet"))[0], '57014', "canceled after $timeout ms");
    $db->sql('RESET statement_timeout; INSERT INTO done VALUES (1)');
}
$db->sql(q{SET statement_timeout = 300});
$db->sql(q{DO $$ BEGIN PERFORM count(*) FROM pgscale.fleet_health; EXCEPTION WHEN query_canceled THEN INSERT INTO done VALUES (2); END $$});
$db->sql('RESET statement_timeout');
my $victim = session($primary);
$victim->sql(q{SET pgscale.fleet_timeout = '10min'});
$victim->start('SELECT count(*) FROM pgscale.fleet');
my $pid = $victim->pid;
$db->poll_ok("SELECT wait_event_type FROM pg_stat_activity WHERE pid = $pid", 'it waits', 'Extension');
$db->sql("SELECT pg_terminate_backend($pid)");
$db->poll_ok("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid", 'terminated', 0);
$db->poll_ok(q{SELECT count(*) FROM pg_stat_activity WHERE application_name = 'pgscale fleet'}, 'no connection is left open', 0);
$observer->quit;
is(session($primary)->sql('SELECT count(*) FROM done'), 4, 'and what came after the cancels is there');
unlike(slurp_file($primary->logfile), qr/TRAP|terminated by signal/, 'nothing has crashed');

### Promotion

$db->quit;
$primary->stop;
$there->poll_ok('SELECT lag_s > 0 FROM pgscale.node_identity()', 'without a primary nobody knows: the most that it can be');
$standby->promote;
$there->poll_ok('SELECT role, lag_s FROM pgscale.node_identity()', 'promoted', 'primary|');
is($there->sql('SELECT node FROM pgscale.node_identity()'), $node, 'it is still the same node');
is($there->sql(q{SET pgscale.fleet_timeout = 300; SELECT state FROM pgscale.fleet WHERE node = 'first'}), 'unreachable', 'which asks the others');

$there->quit;
$standby->stop;
done_testing();
