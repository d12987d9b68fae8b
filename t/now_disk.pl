# A checkpoint storm on a server whose WAL has a small disk of its own: the value that now prints, that advice has, and that set takes fit
# on that disk, under the load that goes on; and what the screen says when the cure has helped.
# Waits for long.
use strict;
use warnings;
use IPC::Run;
use PgscaleRelocation qw(own_disk);
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $disk_mb = 128;
my $node = pgscale_node('main', create => 0, init => [ allows_streaming => 1, extra => ['--wal-segsize=1'] ], conf => <<'EOC');
min_wal_size = 2MB
max_wal_size = 16MB
wal_keep_size = 0
wal_recycle = on
checkpoint_timeout = 1h
pgscale.debug_period = 1s
EOC
$node->stop;

my $path = own_disk($node->data_dir . '/pg_wal', "${disk_mb}m");
plan skip_all => 'no disk can be mounted here' unless defined $path;
{
    local $ENV{PATH} = $path;
    $node->start;
}
my $db = session($node);
$db->sql('CREATE EXTENSION pgscale');
$db->sql('CREATE TABLE load (id int PRIMARY KEY, n int, filler char(400)); INSERT INTO load SELECT i, 0 FROM generate_series(0, 19999) i');
my $script = $node->basedir . '/load.sql';
append_to_file($script, "UPDATE load SET n = n + 1 WHERE id = (random() * 19999)::int;\n" x 5 . "SELECT pg_logical_emit_message(false, 'load', repeat('x', 200000));\n");
my $load = IPC::Run::start([ 'pgbench', '-n', '-c', 3, '-R', 40, '-T', 600, '-f', $script, $node->connstr('postgres') ], '>&', \my $said);

END { $load->kill_kill if $load }

# The counts, sizes and values are this server's; the waits that make a rule fire depend on the machine's disks, and are made up.
my $storm = q{FROM pgscale_internal.now_evidence() e CROSS JOIN LATERAL pgscale_internal.now_findings(e || jsonb_build_object(
    'now', (e->'now') || '{"active": 4, "kinds": {"wal_sync": 3}}', 'usual', '{"s": 0}'::jsonb)) f WHERE f.rule = 'checkpoint_storm'};

sub storm_is
{
    my ($columns, $pattern, $name) = @_;
    my $found = '';
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    in_time_ok(sub { ($found = $db->sql("SELECT $columns $storm")) =~ $pattern }, $name) or diag $found;
    return $found;
}

### One value, which fits

my $found = storm_is('certainty, sentence', qr/^high\|\d+ checkpoints in \d+ s: max_wal_size [(]16 MB[)] is too small/, 'a storm');
my $advised;
in_time_ok(sub {
    $advised = $db->sql(q{SELECT a.recommended = pgscale_internal.tuning_max_wal_size(), a.recommended FROM pgscale.advice a WHERE a.rule = 'max_wal_size'});
    return $advised =~ /^t\|/;
}, 'advice has the same value as now') or diag $advised, $db->sql('SELECT * FROM pgscale.advice_rules()');
my $cure = storm_is('cure', qr/^CALL pgscale[.]set/, 'the cure');
my ($mb) = $cure =~ /^CALL pgscale[.]set[(]'max_wal_size', '(\d+)MB', true[)]$/ or die $cure;
cmp_ok($mb, '>', 16, 'is a larger max_wal_size');
cmp_ok($mb, '<=', $disk_mb / 2, 'which half of the disk holds');

### What does not fit is refused

is(($db->try("CALL pgscale.set('$_', '" . ($disk_mb - 20) . "MB', true)"))[0], '53100', "$_: more than the disk holds is refused")
  for qw(max_wal_size min_wal_size wal_keep_size);

### The cure, under the load

my ($change) = $db->sql($cure) =~ /(\d+)\s*\z/;
$db->poll_ok('SHOW max_wal_size', 'the cure', "${mb}MB");
unlike($db->sql("SELECT sentence $storm"), qr/by commands|16 MB/, 'what asked for the checkpoints before is not measured by the new size');
like($db->sql('SELECT now FROM pgscale.now'), qr/^CALL pgscale[.]revert\($change, true\) takes back: max_wal_size from 16MB to ${mb}MB, \d+ s ago$/m,
    'the screen has how to take it back');
my @false;
my $written = $db->sql('SELECT pg_current_wal_insert_lsn()');
in_time_ok(sub {
    push @false, grep { /by commands/ } $db->sql("SELECT sentence $storm");
    return $db->sql("SELECT pg_current_wal_insert_lsn() - '$written' > 2 * 1048576 * $disk_mb") eq 't';
}, 'WAL of twice the disk');
is("@false", '', 'no command is blamed meanwhile');
is($db->sql('SELECT count(*) > 0 FROM load'), 't', 'the server goes on');

$load->kill_kill;
undef $load;

### When the load has ended, so has the storm

my $over;
in_time_ok(sub {
    ($over, my $found) = split /\|/, $db->sql("SELECT (pgscale_internal.now_counts()->'minute'->>'checkpoints_requested')::int, (SELECT count(*) $storm)");
    return $found eq '0';
}, 'no storm');
cmp_ok($over, '>=', 2, 'although the minute has its checkpoints');

### A disk without room for more

$db->sql("SET client_min_messages = error; CALL pgscale.revert($change, true)");
$db->poll_ok('SHOW max_wal_size', 'the cure is taken back', '16MB');
$db->sql('CHECKPOINT');
$db->poll_ok('SELECT pgscale_internal.tuning_max_wal_size() IS NOT NULL', 'there is room again');
$db->sql('SELECT pg_create_physical_replication_slot($$keeps$$, true)');
until_ok(sub {
    $db->sql("SELECT pg_logical_emit_message(false, 'kept', repeat('x', 4194304))");
    return $db->sql("SELECT sum(size) > 0.75 * 1048576 * $disk_mb FROM pg_ls_waldir()") eq 't';
}, 'a slot keeps WAL');
is($db->sql('SELECT pgscale_internal.tuning_max_wal_size() IS NULL'), 't', 'which is no room');

### And a disk that is nearly full

until_ok(sub {
    $db->sql("SELECT pg_logical_emit_message(false, 'kept', repeat('x', 4194304))");
    return $db->sql("SELECT sum(size) > 0.91 * 1048576 * $disk_mb FROM pg_ls_waldir()") eq 't';
}, 'it keeps more');
$db->sql('CREATE ROLE monitor LOGIN IN ROLE pg_monitor');
my $monitor = session($node, user => 'monitor');
like($monitor->sql(q{SELECT rule, certainty, sentence FROM pgscale.diagnosis() WHERE rule = 'full_disk'}),
    qr/^full_disk[|]high[|]The disk of pg_wal has \d+ MB free of $disk_mb MB: slot keeps, which no process reads, keeps \d+ MB of WAL$/, 'the slot is named');
my $look = $monitor->sql(q{SELECT cure FROM pgscale.diagnosis() WHERE rule = 'full_disk'});
is($look, q{SELECT * FROM pg_replication_slots WHERE slot_name = 'keeps'}, 'with what shows it, while there is time');
is($monitor->sql($look =~ s/[*]/count(*)/r), 1, 'which finds it');
$monitor->quit;
$db->sql(q{SELECT pg_drop_replication_slot('keeps')});
$db->sql('CHECKPOINT');
$db->poll_ok(q{SELECT count(*) FROM pgscale.diagnosis() WHERE rule = 'full_disk'}, 'which helps', 0);

### WAL of a statement that has not ended yet

my $recent = q{(pgscale_internal.now_counts()->'recent'->>'wal_bytes')::bigint};
in_time_ok(sub { $db->sql("SELECT $recent < 524288") eq 't' }, 'no WAL');
my $bulk = session($node);
$bulk->start(q{DO $$BEGIN LOOP UPDATE load SET n = n + 1 WHERE id = (random() * 19999)::int;
    PERFORM pg_logical_emit_message(false, 'bulk', repeat('x', 100000)), pg_sleep(0.01); END LOOP; END$$});
in_time_ok(sub { $db->sql("SELECT $recent > 1048576") eq 't' }, 'is counted while it lasts');
$db->sql('SELECT pg_cancel_backend(' . $bulk->pid . ')');
$bulk->finish;
$bulk->quit;

$db->quit;
$node->stop;
done_testing();
