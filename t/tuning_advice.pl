# Advice from the evidence of a server that is set badly and under load: it adds up to what the server has counted; followed,
# verified and reverted by doc/tuning.md's "Tuning in four statements", word by word; scans need no larger cache; and what is said
# when there is no evidence: a reset of the statistics, a restart, a sampler that is off. What rules make of evidence is in
# t/tuning_rules.pl.
# Runs on 18, too.
use strict;
use warnings;
use JSON::PP ();
use IPC::Run;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my ($text) = slurp_file('doc/tuning.md') =~ /^## Tuning in four statements\n.*?^```sql\n(.*?)^```/ms;
my ($advice, $apply, $verify, $revert) = my @statements = map { s/--.*//gr =~ s/\A\s+|\s+\z//gr } $text =~ /[^;]+;/g;
is(scalar @statements, 4, 'four statements');
my ($setting) = $apply =~ /apply\('(\w+)'/;

my $node = pgscale_node('main', create => 0, init => [ extra => ['--wal-segsize=1'] ], conf => <<'EOC');
shared_buffers = 64MB
min_wal_size = 2MB
max_wal_size = 4MB
checkpoint_timeout = 1h
synchronous_commit = off
wal_keep_size = 0
wal_compression = off
pgscale.debug_period = 1s
EOC
my $major = server_major();
my $db = session($node);
# a past that pgscale has not seen
$db->sql('DO $$BEGIN FOR i IN 1..100000 LOOP COMMIT; END LOOP; END$$');
$db->quit;
$node->restart;
$db = session($node);
# before anything else: the sampler has begun
my ($commits, $lsn) = split /\|/,
  $db->sql('SELECT xact_commit, pg_current_wal_lsn() FROM pg_stat_database WHERE datname = current_database()');
$db->sql('CREATE EXTENSION pgscale');

# $columns of what a rule finds, in evidence of so long
sub finds
{
    my ($rule, $columns, $duration) = @_;
    $duration //= '10 minutes';

    return $db->sql("SELECT $columns FROM pgscale.advice_rules('$duration') WHERE rule = '$rule'");
}

my $load;
sub start_load
{
    my ($script, @options) = @_;
    my $file = $node->basedir . '/load.sql';

    unlink $file;
    append_to_file($file, $script);
    $load = IPC::Run::start([ 'pgbench', '-n', @options, '-T', 3600, '-f', $file, $node->connstr('postgres') ], '>&', \my $said);
    return;
}
sub stop_load { $load->kill_kill if $load; undef $load; return }
END { stop_load() }

### A load that changes many pages, with a checkpoint every few megabytes of WAL

$db->poll_ok(q{SELECT until IS NOT NULL FROM pgscale.wal_efficiency()}, 'records evidence');
$db->sql(q{CREATE TABLE load (id int PRIMARY KEY, n int, filler char(400));
    INSERT INTO load SELECT i, 0 FROM generate_series(0, 19999) i});
start_load("\\set id random(0, 19999)\nUPDATE load SET n = n + 1 WHERE id = :id;\n" x 5, '-c', 3, '-R', 800);

# The WAL's end at moments: evidence is of some of them.
my @wal;
my $evidence;
sub wal_now
{
    push @wal, [ split /\|/, $db->sql('SELECT extract(epoch FROM clock_timestamp()), pg_current_wal_insert_lsn() - $$0/0$$') ];
    return;
}
in_time_ok(sub {
    wal_now();
    my ($verdict, $numbers) = split /\|/, finds('max_wal_size', 'verdict, evidence'), 2;
    $evidence = JSON::PP::decode_json($numbers || '{}');
    return $verdict eq 'advises' && $evidence->{checkpoints_requested} >= 2 && $evidence->{page_image_fraction} > 0.3;
}, 'WAL that starts checkpoints is found, with the numbers: checkpoints and page images')
  or diag $db->sql('SELECT * FROM pgscale.advice_rules()');
is($db->sql(q{SELECT setting, object, current, needs, gain > 0.02 AND gain <= 1, pg_size_bytes(recommended) >= 8 * 1024 * 1024, since < until,
    until <= clock_timestamp() FROM pgscale.advice WHERE rule = 'max_wal_size'}), 'max_wal_size||4MB|reload|t|t|t|t', 'what to set');

# What it adds up to is what the server has counted: sessions tell what they have written a second or two later, idle ones ten.
my ($wal_bytes, $since, $until, @rest);
in_time_ok(sub {
    wal_now();
    ($wal_bytes, $since, $until, @rest) = split /\|/, $db->sql(q{SELECT wal_bytes, extract(epoch FROM since), extract(epoch FROM until),
        commits > 100, rewritten_fraction BETWEEN 0 AND 1, page_image_fraction > 0.3,
        written_exact = (pgscale_internal.major() >= 18), page_image_exact = (pgscale_internal.major() >= 19)
        FROM pgscale.wal_efficiency()});
    my @within = map { $_->[1] } grep { $_->[0] > $since + 2 && $_->[0] < $until - 2 } @wal;
    return @within >= 2 && $wal_bytes >= 0.6 * ($within[-1] - $within[0]);
}, 'wal_efficiency: the WAL of its time') or diag $db->sql('SELECT row_to_json(w) FROM pgscale.wal_efficiency() w');
cmp_ok($wal_bytes, '<=', 1.05 * ($wal[-1][1] - $db->sql("SELECT '$lsn'::pg_lsn - '0/0'")), 'and no more than there was');
is("@rest", 't t t t t', 'and what it was') or diag $db->sql('SELECT row_to_json(w) FROM pgscale.wal_efficiency() w');
cmp_ok($db->sql('SELECT commits FROM pgscale.wal_efficiency()'), '<=',
    $db->sql('SELECT xact_commit FROM pg_stat_database WHERE datname = current_database()') - $commits + 1000, 'no more commits than there were');
SKIP:
{
    skip 'the bytes of page images are not counted', 1 if $major < 19;
    $db->poll_ok(q{SELECT abs(e.page_image_fraction - w.wal_fpi_bytes::float8 / w.wal_bytes) < 0.05 FROM pgscale.wal_efficiency() e, pg_stat_wal w},
        'page images are those that the server has counted');
}

### The four statements

my $file = $node->data_dir . '/postgresql.auto.conf';
my ($before, $value) = (slurp_file($file), $db->sql("SHOW $setting"));
# What it rests on is also what comes before the change: verify wants twelve records of both, which on a slow machine take longer.
in_time_ok(sub { $db->sql("SELECT until - since >= '14 s' FROM pgscale.advice WHERE setting = '$setting'") eq 't' }, 'evidence');
my ($answer) = grep { /^\Q$setting\E\|/ } split /\n/, $db->sql($advice);
like($answer, qr/^\Q$setting\E\|\Q$value\E\|[0-9]+[MG]B\|.+/, 'what it is, what it should be, and why');
is($db->sql($apply), 1, 'applied as the first change');
isnt(slurp_file($file), $before, 'it is in the file');
$db->poll_ok("SELECT pg_size_bytes(current_setting('$setting')) = pg_size_bytes(new_value) FROM pgscale.tuning_journal",
    'the server has read it');
in_time_ok(sub { $answer = $db->sql($verify);
    $answer =~ /\A([^|]+\|[\d.e+-]+\|[\d.e+-]+\|[\d.e+-]+\|[\d.e+-]+\|[\d.e+-]+\|(better|worse|cannot tell)\|.+\n?)+\z/ },
    'it is known how it went: a verdict for each metric, with numbers') or diag $answer;
unlike($answer, qr/cannot tell yet/, 'which is not to wait');
$db->sql($revert);
is(slurp_file($file), $before, 'and the file is as it was, byte by byte');
$db->poll_ok("SHOW $setting", 'and so is the server', $value);

### Waits that are known: sessions that want the same row; and locks without a fast-path slot

my $holder = session($node);
$holder->sql('BEGIN; UPDATE load SET n = n WHERE id = 0');
my $waiter = session($node);
$waiter->sql(q{SET deadlock_timeout = '1ms'});
$waiter->start('UPDATE load SET n = n WHERE id = 0');
in_time_ok(sub { $db->sql(q{SELECT count(*) FROM pgscale.contention('8 seconds') WHERE event = 'transactionid' AND active_sessions >= 0.5
    AND meaning ~ 'row' AND now_possible IS NOT NULL AND cured_in IS NULL}) eq 1 }, 'contention: a row that is locked')
  or diag $db->sql('SELECT row_to_json(c) FROM pgscale.contention() c');
$holder->sql('COMMIT');
$waiter->finish;
$waiter->quit;
is($db->sql(q{SELECT string_agg(c.event_type || ':' || c.event, ' ') FROM pgscale.contention() c WHERE c.event NOT IN ('others', 'CPU')
    AND NOT EXISTS (SELECT FROM pgscale.wait_profile p WHERE p.event_type = c.event_type AND p.event = ANY (string_to_array(c.event, ', ')))}),
    '', 'each event is in wait_profile by the name that it has there') or diag $db->sql('SELECT DISTINCT event_type, event FROM pgscale.wait_profile');
SKIP:
{
    skip 'the lock manager does not count', 2 if $major < 19;
    $db->poll_ok(q{SELECT (evidence ->> 'long_waits')::int BETWEEN 1 AND l.waits AND (evidence ->> 'long_wait_ms')::float8 BETWEEN 1000 AND l.wait_time
        FROM pgscale_internal.tuning_waits() w, pg_stat_lock l WHERE w.kind = 'lock_transaction' AND l.locktype = 'transactionid'},
        'long waits, as the server has counted them');
    $holder->sql('DO $$BEGIN FOR i IN 1..300 LOOP EXECUTE format($t$CREATE TABLE many_%s ()$t$, i); END LOOP; END$$');
    $holder->sql('DO $$BEGIN FOR i IN 1..300 LOOP EXECUTE format($t$LOCK many_%s IN ACCESS SHARE MODE$t$, i); END LOOP; END$$');
    $db->poll_ok(q{SELECT (evidence ->> 'fast_path_exceeded_per_s')::float8 * extract(epoch FROM until - since) BETWEEN 1 AND 1.1 * l.fastpath_exceeded
        FROM pgscale_internal.tuning_waits() w, pg_stat_lock l WHERE w.kind = 'lock_manager' AND l.locktype = 'relation'},
        'locks that found no fast-path slot');
}
$holder->quit;

### Counters that go back

$db->sql(q{SELECT pg_stat_reset_shared('wal'), pg_stat_reset_shared('bgwriter'), pg_stat_reset()});
my $after = $db->sql('SELECT clock_timestamp()');
# A session tells its commits once a second, so that a second of evidence may be without any.
in_time_ok(sub { $db->sql("SELECT until > '$after'::timestamptz + '2 s' AND wal_bytes > 0 FROM pgscale.wal_efficiency()") eq 't' },
    'evidence goes on after a reset');
is($db->sql(q{SELECT wal_bytes BETWEEN 0 AND 1e12 AND commits > 0 AND segment_switches_per_s >= 0 AND buffers_full_per_s >= 0
    AND flush_fraction BETWEEN 0 AND 1 FROM pgscale.wal_efficiency()}), 't', 'and has no negative differences')
  or diag $db->sql(q{SELECT to_jsonb(e) FROM pgscale.wal_efficiency() e});
stop_load();

### Sequential scans through their ring: a larger cache would win nothing. Parallel workers make them; or one process, of whose io
### worker more would be better

$db->sql(q{CREATE UNLOGGED TABLE scanned AS SELECT 0 AS i LIMIT 0; INSERT INTO scanned SELECT i FROM generate_series(1, 3000000) i});
my $io_workers = $major > 18 ? 'io_max_workers' : 'io_workers';
if ($major >= 18)
{
    $db->set('io_min_workers' => 1) if $major > 18;
    $db->set($io_workers => 1);
}
for my $workers (2, $major >= 18 ? 0 : ())
{
    $db->sql("ALTER TABLE scanned SET (parallel_workers = $workers)");
    local $ENV{PGOPTIONS} = '-c parallel_setup_cost=0 -c parallel_leader_participation=off';
    # not all the time: what there is of a CPU is for the other tests
    start_load("SELECT count(*) FROM scanned;\n", '-R', 2);
    my $read = $db->sql('SELECT blks_read FROM pg_stat_database WHERE datname = current_database()');
    $db->poll_ok("SELECT blks_read > $read + 50000 FROM pg_stat_database WHERE datname = current_database()", 'scans, which read');
    my $began = $db->sql('SELECT clock_timestamp()');
    in_time_ok(sub { finds('shared_buffers', "since >= '$began', verdict, reason", '8 seconds') =~ /^t\|satisfied\|[01]\.\d\d % of the requested pages were not/ },
        "with $workers workers: no larger shared_buffers for these") or diag finds('shared_buffers', 'verdict, reason, evidence', '8 seconds');
    if ($workers == 0)
    {
        my $worker = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'io worker'};
        my $stopped;
        until_ok(sub {
            $stopped = $db->sql("$worker LIMIT 1") or return 0;
            kill 'STOP', $stopped;
            return 1 if $db->sql("$worker AND wait_event IS DISTINCT FROM 'IoWorkerMain'") eq $stopped;
            kill 'CONT', $stopped;
            return 0;
        }, 'the io worker is stopped as it reads', 0.002);
        $began = $db->sql('SELECT clock_timestamp()');
        in_time_ok(sub { finds('io_workers', "since >= '$began', setting, recommended, needs, gain > 0.1", '8 seconds') eq "t|$io_workers|2|reload|t" },
            'and the session waits: two would be better') or diag finds('io_workers', 'verdict, reason, evidence', '8 seconds');
        kill 'CONT', $stopped;
    }
    stop_load();
}

### Off, and after a restart

my $health = q{SELECT enabled, state, reason FROM pgscale.health WHERE feature = 'tuning'};
$db->sampler('off');
in_time_ok(sub { $db->sql($health) eq 'f|off|this feature needs the sampler, which is off' }, 'without the sampler: health');
is(finds('pgscale.sampler', 'verdict, setting, recommended'), 'advises|pgscale.sampler|on', 'and the advice to switch it on');
# while nothing moves
is($db->sql(q{SELECT count(*) > 1, bool_and(c.active_sessions = pgscale_internal.three_digits(t.active_sessions) AND c.fraction = pgscale_internal.three_digits(t.fraction)),
        bool_and(c.since = k.since AND c.until = k.until)
    FROM (SELECT pgscale.wait_kind(event_type, split_part(event, ', ', 1)) AS kind, * FROM pgscale.contention('1 day')) c
    JOIN (SELECT pgscale.wait_kind(event_type, event) AS kind, sum(active_sessions) AS active_sessions, sum(fraction) AS fraction
            FROM pgscale_internal.past_items('-infinity', NULL, 'event', 1000) WHERE event <> 'IdleInTransaction' GROUP BY 1) t USING (kind),
         (SELECT min(at) AS since, max(at + make_interval(secs => period_s)) AS until FROM pgscale_internal.past_coverage('-infinity')) k}), 't|t|t',
    'contention is what top_waits is')
  or diag $db->sql(q{SELECT * FROM pgscale.contention('1 day'); SELECT * FROM pgscale.top_waits('-infinity', top => 1000)});
$db->sampler('on');
$db->poll_ok($health, 'on again', 't|working|records evidence, but of another length: pgscale.debug_period is for tests');
$db->quit;
$node->append_conf('postgresql.conf', 'pgscale.debug_period = 0');
$node->restart;
$db = session($node);
$db->poll_ok($health, 'after a restart it begins anew', 't|working|records evidence');
like(finds('wal_buffers', 'verdict, reason'), qr/^silent\|\d+ s of evidence.*: 30 s are needed/,
    'without what was before; at the start a rule is silent, and says for how long');
is($db->sql('SELECT count(*) FROM pgscale.advice WHERE rule <> $$pgscale.sampler$$'), 0, 'and there is no advice');

$db->quit;
$node->stop;
done_testing();
