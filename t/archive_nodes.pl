# One archive of all nodes: what standbys tell of their minutes, a conflict of replay, a node that is cut off, one with a wrong clock, a
# failover and a former primary that comes back.
# Runs on 19, too.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $conf = <<'EOC';
pgscale.debug_period = 4s
pgscale.archive_database = postgres
pgscale.fleet_timeout = 10s
compute_query_id = on
wal_log_hints = on
wal_keep_size = 256MB
EOC
my $clock = compiled('clock');
my $p = pgscale_node('p', init => [ allows_streaming => 1 ], conf => $conf);
$p->backup('backup');

sub standby
{
    my ($name, $more) = @_;
    my $standby = PostgreSQL::Test::Cluster->new($name);

    $standby->init_from_backup($p, 'backup', has_streaming => 1);
    $standby->append_conf('postgresql.conf', $more // '');
    $standby->start;
    return $standby;
}
my $a = standby('a', 'max_standby_streaming_delay = -1');
my $b;
$ENV{PGSCALE_CLOCK} = number_file();
{
    local $ENV{LD_PRELOAD} = $clock if $clock;
    $b = standby('b');
}
my ($db, $in_a, $in_b) = map { session($_) } $p, $a, $b;

sub address { my $node = shift; return sprintf 'host=%s port=%d dbname=postgres', $node->host, $node->port; }
sub name_of { return shift->sql('SELECT node FROM pgscale.node_identity()'); }
sub id_of { return shift->sql('SELECT node_id FROM pgscale_internal.node_key()'); }

### Each data directory has an identity, and each node is asked

my %id = map { $_->[0] => id_of($_->[1]) } [ p => $db ], [ a => $in_a ], [ b => $in_b ];
is(keys %{ { reverse %id } }, 3, 'copies of a data directory are others');
my ($p_name, $a_name, $b_name) = map { name_of($_) } $db, $in_a, $in_b;
$db->sql('CREATE ROLE watcher LOGIN IN ROLE pg_monitor');
$db->sql(sprintf q{SELECT pgscale.fleet_add('%s', '%s user=watcher')}, $_->name, address($_)) for $p, $a, $b;
# which the worker must not use
$db->sql(sprintf q{CREATE ROLE other; GRANT USAGE ON FOREIGN DATA WRAPPER pgscale_fleet TO other; SELECT pgscale.fleet_add('others', '%s'); ALTER SERVER others OWNER TO other},
    address($a));
$db->poll_ok(q{SELECT string_agg(concat_ws(' ', name, state, role), ', ' ORDER BY role, name) FROM pgscale.archive_nodes}, 'all of them tell',
    'p ok primary, a ok standby, b ok standby');
my $health = q{SELECT state FROM pgscale.health WHERE feature = 'archive'};
$db->poll_ok($health, 'which is well', 'working');
is($db->sql(q{SELECT count(*) FROM pgscale.archive_minutes WHERE pulled AND (origin IS NOT NULL OR timeline <> 1 OR role <> 'standby')}), 0, 'of standbys');

### What they tell is what they know

my $load = session($a);
$load->sql('SELECT pg_sleep(9)');
my ($since, $until) = split /\|/, $db->sql(<<"EOQ");
SELECT min(at), max(at + make_interval(secs => period_s)) FROM pgscale.archive_minutes WHERE node = '$a_name'
EOQ
$db->poll_ok("SELECT count(*) > 0 FROM pgscale.archive_waits WHERE node = '$a_name' AND event = 'PgSleep'", 'a statement on a standby');
$until = $db->sql("SELECT max(at + make_interval(secs => period_s)) FROM pgscale.archive_minutes WHERE node = '$a_name'");
my $slept = q{SELECT round(sum(wait_ms)::numeric) FROM pgscale.past_waits('%s', '%s', node => %s) WHERE event = 'PgSleep'};
my ($told, $known) = ($db->sql(sprintf $slept, $since, $until, "'$a_name'"), $in_a->sql(sprintf $slept, $since, $until, 'NULL'));
ok(abs($told - $known) <= 0.01 * $known && $known > 1000, 'has the time there that it has in the archive') or diag "$told $known";
is($db->sql("SELECT item FROM pgscale.top_waits('$since', '$until', top => 1, node => '$a_name') WHERE rank = 1"), 'Timeout:PgSleep', 'the top of its waits');
is($db->sql("SELECT count(*) FROM pgscale.top_waits('$since', '$until') WHERE event = 'PgSleep'"), 0, 'and none of the primary');
is($db->sql("SELECT count(*) > 0 FROM pgscale.activity('$since', '$until', node => '$a_name') WHERE event_type = 'Timeout' AND active_sessions > 0"), 't',
    'activity of a node');
is($db->sql("SELECT count(*) FROM pgscale.compare_waits('$since', '$until', '$since', '$until', node => '$a_name') WHERE difference <> 0"), 0, 'compared');
$db->poll_ok("SELECT count(*) > 0 FROM pgscale.archive_queries WHERE query LIKE 'SELECT pg_sleep(%'", 'the text of the statement');
$db->poll_ok("SELECT sum(commits) > 0 FROM pgscale.archive_minutes WHERE node = '$a_name'", 'counters of a standby');
is($in_a->sql("SELECT count(*) > 0 FROM pgscale.top_waits('$since', '$until', node => '$a_name')"), 't', 'a standby can be asked for a node, too');
my ($state, $error) = $db->try(q{SELECT * FROM pgscale.top_waits(node => 'none')});
is($state, '42704', 'one that there is not') or diag $error;
$b->append_conf('postgresql.conf', 'work_mem = 5MB');
$b->reload;
$db->poll_ok("SELECT old, new FROM pgscale.archive_changes WHERE node = '$b_name' AND setting = 'work_mem'", 'a setting of a standby', '4096|5120');

### Two names of a server

$db->sql(sprintf q{SELECT pgscale.fleet_add('z', '%s')}, address($a));
$db->poll_ok(q{SELECT error FROM pgscale.archive_nodes WHERE name = 'z' OR node = 'z'}, 'another name of a node', 'it leads to the same server as a');
$db->sql(q{SELECT pgscale.fleet_remove('z')});
$db->poll_ok(q{SELECT count(*) FROM pgscale.archive_nodes WHERE error IS NOT NULL}, 'which is removed', 0);
is($db->sql(q{SELECT count(*) FROM pgscale.archive_nodes WHERE name = 'others'}), 0, 'no node of a role that is no superuser is asked');

### A query on a standby holds up replay

$db->sql('CREATE TABLE t AS SELECT generate_series(1, 1000) i');
$in_a->poll_ok(q{SELECT to_regclass('t') IS NOT NULL}, 'a table there');
$db->poll_ok("SELECT lag_s < 1 FROM pgscale.archive_nodes WHERE node = '$a_name'", 'replay is not behind');
my $began = $db->sql('SELECT now()');
my $reader = session($a);
my $pid = $reader->pid;
$reader->start('SELECT count(*), pg_sleep(60) FROM t');
$in_a->poll_ok("SELECT wait_event FROM pg_stat_activity WHERE pid = $pid", 'it is read for long', 'PgSleep');
$db->sql('DELETE FROM t; VACUUM t');
$db->poll_ok("SELECT count(*) > 0 FROM pgscale.archive_waits WHERE node = '$a_name' AND backend_type = 'startup' AND event LIKE 'RecoveryConflict%' AND blocker = '$pid'",
    'replay waits for it');
$db->poll_ok("SELECT lag_s > 5 FROM pgscale.archive_nodes WHERE node = '$a_name'", 'and is behind');
my $report = $db->sql("SELECT pgscale.report('$began')");
like($report =~ s/\s+/ /gr, qr/It began on \Q$a_name\E at \d\d:\d\d: replay was \d+ s behind, and waited for RecoveryConflictSnapshot behind process $pid \(SELECT count\(\*\)/,
    'the report names node, query and lag') or diag $report;
like($db->sql('SELECT string_agg(now, chr(10)) FROM pgscale.now'), qr/^node \Q$a_name\E: standby, \d+ s behind/m, 'now has the worst node');
$in_a->sql("SELECT pg_cancel_backend($pid)");
$reader->finish;
$reader->quit;

### One that is cut off, and back

my $gaps = q{SELECT count(*) FROM (SELECT at, lag(at + make_interval(secs => period_s)) OVER (ORDER BY at) AS before FROM pgscale.archive_minutes
    WHERE node = '%s' AND at > '%s') m WHERE at > before + interval '%s s'};
my $doubled = q{SELECT count(*) FROM (SELECT at, lag(at + make_interval(secs => period_s)) OVER (PARTITION BY node ORDER BY at) AS before FROM pgscale.archive_minutes) m
    WHERE at < before - interval '0.001 s'};
$db->sql(q{ALTER SERVER b OPTIONS (SET port '1')});
$db->poll_ok(q{SELECT state FROM pgscale.archive_nodes WHERE name = 'b'}, 'a node cannot be reached', 'unreachable');
$db->poll_ok(q{SELECT state, reason ~ 'not those of all nodes: b: ' FROM pgscale.health WHERE feature = 'archive'}, 'health says so', 'broken|t');
$db->sql(sprintf q{SELECT pgscale.fleet_add('b2', '%s')}, address($b));
$db->poll_ok(q{SELECT error FROM pgscale.archive_nodes WHERE name = 'b2'}, 'who answers in its place may pretend to be it', 'it leads to the same server as b');
$db->sql(q{UPDATE pgscale_internal.archive_pull SET since = now() - interval '1 hour' WHERE name = 'b'});
$db->poll_ok(q{SELECT state, error FROM pgscale.archive_nodes WHERE name = 'b2'}, 'but not for ever', 'ok|');
$db->sql(q{SELECT pgscale.fleet_remove('b2')});
my $last = $db->sql("SELECT max(at) FROM pgscale.archive_minutes WHERE node = '$b_name'");
$db->poll_ok("SELECT max(at) > '$last'::timestamptz + interval '15 s' FROM pgscale.archive_minutes WHERE node = '$a_name'", 'the others go on');
$db->sql(sprintf q{ALTER SERVER b OPTIONS (SET port '%d')}, $b->port);
$db->poll_ok("SELECT max(at) > '$last'::timestamptz + interval '15 s' FROM pgscale.archive_minutes WHERE node = '$b_name'", 'it tells again');
is($db->sql(sprintf $gaps, $b_name, '-infinity', '0.001'), 0, 'and of the time between');
$db->poll_ok($health, 'and all is well', 'working');

### A sampler that is off, and a clock that is wrong

$b->append_conf('postgresql.conf', 'pgscale.sampler = off');
$b->reload;
$db->poll_ok(q{SELECT error FROM pgscale.archive_nodes WHERE name = 'b'}, 'a sampler that is off', 'its sampler has seen nothing of its latest minute');
$b->append_conf('postgresql.conf', 'pgscale.sampler = on');
$b->reload;
$db->poll_ok($health, 'and on', 'working');
SKIP:
{
    skip 'there is no compiler', 4 unless $clock;
    write_number($ENV{PGSCALE_CLOCK}, 7200 * 1_000_000);
    $db->poll_ok(q{SELECT error ~ '^its clock is 7[12]\d\d s ahead$' FROM pgscale.archive_nodes WHERE name = 'b'}, 'a clock two hours ahead');
    $last = $db->sql('SELECT now()');
    $db->poll_ok("SELECT count(*) > 0 FROM pgscale.archive_minutes WHERE node = '$b_name' AND at > '$last'", 'rows at the times of the primary');
    is($db->sql("SELECT count(*) FROM pgscale.archive_minutes WHERE at > now()"), 0, 'and none in the future');
    write_number($ENV{PGSCALE_CLOCK}, 0);
    $db->poll_ok(q{SELECT error FROM pgscale.archive_nodes WHERE name = 'b'}, 'it is set back', '');
}
# asked again for an hour, of which it has rows that begin a little later
$db->sql("UPDATE pgscale_internal.archive_minute SET at = at + interval '0.3 s' WHERE node = '$b_name'");
$db->sql('UPDATE pgscale_internal.archive_node SET known_until = NULL WHERE name IS NOT NULL');
$db->poll_ok('SELECT count(*) FROM pgscale_internal.archive_node WHERE known_until IS NULL', 'what is known comes again', 0);
$db->poll_ok($health, 'and is no error', 'working');
is($db->sql($doubled), 0, 'no time counts twice');

### The primary dies, and comes back

my $working = session($p);
$working->start('SELECT pg_sleep(600)');
my $settled = $db->sql('SELECT now()');
$db->poll_ok("SELECT count(DISTINCT node) = 3 FROM pgscale.archive_minutes WHERE at > '$settled'", 'all is well before');
$db->poll_ok("SELECT count(*) > 0 FROM pgscale.archive_waits WHERE node = '$p_name' AND event = 'PgSleep' AND at > '$settled'", 'with a statement on the primary');
# what it has of its own minutes after the last answer of the others is not theirs
$db->sql(sprintf q{ALTER SERVER %s OPTIONS (SET port '1')}, $_) for qw(a b);
$last = $db->sql("SELECT max(at) FROM pgscale.archive_minutes WHERE node = '$p_name'");
$db->poll_ok("SELECT max(at) > '$last'::timestamptz + interval '10 s' FROM pgscale.archive_minutes WHERE node = '$p_name'", 'and for some time nobody else answers');
$db->sql(sprintf q{ALTER SERVER %s OPTIONS (SET port '%d')}, $_->name, $_->port) for $a, $b;
$in_a->poll_ok(sprintf(q{SELECT count(*) FROM pg_foreign_server WHERE srvname = 'b' AND 'port=%d' = ANY (srvoptions)}, $b->port), 'which the standbys know', 1);

$_->quit for $db, $load, $in_b;
$last = $in_a->sql("SELECT max(at) FROM pgscale.archive_minutes WHERE node = '$p_name'");
$p->stop('immediate');
$a->promote;
$in_a->poll_ok(q{SELECT state, reason ~ 'p: conn' FROM pgscale.health WHERE feature = 'archive'}, 'promoted, it keeps the archive, and misses one', 'broken|t');
$in_a->poll_ok("SELECT count(*) > 0 FROM pgscale.archive_minutes WHERE node = '$a_name' AND NOT pulled", 'its own rows');
$in_a->poll_ok("SELECT count(*) > 0 FROM pgscale.archive_minutes WHERE node = '$b_name' AND at > '$last'::timestamptz + interval '12 s'", 'those of the other');
is($in_a->sql(sprintf $gaps, $b_name, $settled, '0.001'), 0, 'without a gap');
$in_a->poll_ok(sprintf($gaps, $a_name, $settled, '1.1'), 'nor has it one of itself', 0);
is($in_a->sql("SELECT count(*) FROM pgscale.archive_waits WHERE node IN ('$a_name', '$b_name') AND event = 'PgSleep' AND at > '$settled'"), 0,
    'nor what the other one did');
is($in_a->sql($doubled), 0, 'and nothing is there twice');
# without it pg_rewind of 15 does not see the new timeline
$in_a->sql('CHECKPOINT');
my @rewind = ('pg_rewind', '--source-server', $a->connstr('postgres'), '--target-pgdata', $p->data_dir);
command_ok(\@rewind, 'the former primary is rewound');
$p->append_conf('postgresql.conf', sprintf "port = %d\nunix_socket_directories = '%s'\n", $p->port, $p->host);
$p->enable_streaming($a);
$p->set_standby_mode;
$p->start;
$db = session($p);
is(id_of($db), $id{p}, 'and is who it was');
$in_a->poll_ok("SELECT count(*) > 0 FROM pgscale.archive_minutes WHERE node = '$p_name' AND pulled AND role = 'standby' AND timeline = 2", 'and tells as a standby')
  || diag $in_a->sql('SELECT * FROM pgscale.archive_nodes');
$in_a->poll_ok("SELECT pgscale.report(now() - interval '30 min', format => 'html') ~ 'primary, standby from [0-9:]{5}'", 'whose change of role is in the report');
my ($page, $other) = map { $in_a->sql("SELECT pgscale.report(now() - interval '30 min', format => 'html', node => '$_')") } $p_name, $b_name;
like($page, qr{<h1>pgscale report: \Q$p_name\E</h1>.*</b> it became a standby.*<path class="mark" d="M\d+\.5 0V10"/>.*id="waits".*>Timeout:PgSleep<.*id="load"}s,
    'a report of it alone, with its past as the primary');
unlike($page . $other, qr{id="(?:advice|buffers|health|settings)"}, 'and with nothing of the server that was asked');
unlike($other, qr{id="waits".*PgSleep.*id="queries"}s, 'nor of another node');
is($in_a->sql($doubled), 0, 'and again nothing is there twice');
done_testing();
