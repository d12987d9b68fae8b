# Live moves at places that a planted bug could hide in: a table whose visibility map is more than half a page long, a free space map that was longer,
# a crash while an old file is made shorter and the WAL has no images of its pages, after which the server is a standby first.
use strict;
use warnings;
use PgscaleLive;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

relocation_node(conf => <<'EOC');
autovacuum = off
full_page_writes = off
max_wal_size = 4GB
restart_after_crash = off
pgscale.sweeper = off
pgscale.relocation_max_transaction_age = -1
EOC
$db->sql("CREATE EXTENSION $_") for grep { have_module($_) } qw(amcheck pg_visibility pg_freespacemap);

### The second half of a page of the visibility map: from block 16,336 on

SKIP:
{
    skip 'this server has no pg_visibility', 5 unless have_module('pg_visibility');

    # a row a page
    $db->sql(q{CREATE TABLE wide (id int, n int, filler char(500)) WITH (fillfactor = 10); ALTER TABLE wide ALTER filler SET STORAGE PLAIN;
        INSERT INTO wide SELECT i, 0, '' FROM generate_series(1, 16500) i; VACUUM (FREEZE) wide});
    cmp_ok($db->sql(q{SELECT pg_relation_size('wide') / 8192}), '>', 16400, 'a table of more pages than that');
    my ($holder, $job) = held_live('wide', 'fast');
    # nothing changes in the first half
    $db->sql(q{UPDATE wide SET n = 1 WHERE ctid IN ('(16400,1)', '(16335,1)', '(16336,1)')});
    $holder->sql('COMMIT');
    is(ended($job), 'done', 'it has moved') or diag job_text($job);
    is($db->sql(q{SELECT count(*) FROM pg_check_visible('wide')}), 0, 'no page is called visible that is not');
    is($db->sql(q{SELECT string_agg(v.all_visible::text, ' ') FROM unnest(ARRAY[3, 16335, 16336, 16400, 16399]) b, pg_visibility_map('wide', b) v}), 'true false false false true', 'those that were changed are not, others are');
    $holder->quit;
}

### A table that grows and is truncated while it moves

SKIP:
{
    skip 'this server has no pg_freespacemap', 14 unless have_module('pg_freespacemap');

    $db->sql(q{CREATE TABLE tide (id int, filler char(900)); INSERT INTO tide SELECT i, '' FROM generate_series(1, 4000) i; VACUUM tide});
    # The move copies at a rate, or waits outside its hours.
    my ($from, $to) = map { $db->sql("SELECT to_char(clock_timestamp() + interval '$_ h', 'HH24:MI')") } 3, 4;
    $db->set('log_timezone', $db->sql('SHOW timezone'));
    my $pace = sub {
        my ($rate, $hours) = @_;

        $db->sql("ALTER SYSTEM SET pgscale.relocation_hours = '$hours'");
        $db->set('pgscale.relocation_rate', $rate);
        until_true(sub { $db->sql('SHOW pgscale.relocation_rate') eq $rate && $db->sql('SHOW pgscale.relocation_hours') eq $hours }) or die 'no reload';
        return;
    };
    my $done_ok = sub {
        my ($job, $table, $sums) = @_;
        local $Test::Builder::Level = $Test::Builder::Level + 1;

        is(ended($job), 'done', "$table: done") or diag job_text($job);
        my $end = $db->sql("SELECT pg_relation_size('$table') / 8192");
        is($db->sql("SELECT count(*) FROM generate_series($end, 3 * $end) b WHERE pg_freespace('$table', b) > 0"), 0, "$table: no space is free beyond the end");
        return is($db->sql("SELECT count(*), sum(id) FROM $table"), $sums, "$table: all rows are there");
    };

    # it is truncated once all has been copied
    $pace->('2MB', '');
    my ($job) = ask(q{relocate_table('tide', 'fast')});
    job_ok($job, 'state, phase, copied_bytes > 0', 'running|copying|t', 'a copy is under way');
    # the free space of what is added is known, and copied with the map
    $db->sql(q{INSERT INTO tide SELECT i, '' FROM generate_series(4001, 9000) i; DELETE FROM tide WHERE id BETWEEN 4001 AND 8999; VACUUM tide});
    my $holder = session($node);
    $holder->sql('BEGIN; LOCK tide IN ACCESS SHARE MODE');
    $pace->('0', '');
    job_ok($job, 'state, phase', 'waiting|waiting for a gap', 'all is copied');
    $holder->sql('COMMIT');
    $db->sql('DELETE FROM tide WHERE id > 4000; VACUUM tide');
    $done_ok->($job, 'tide', '4000|8002000');

    # It grows after its last block is copied, and before the map is, and is truncated before what was added is copied. It is so small that
    # its first piece is all.
    $db->sql(q{CREATE TABLE pool (id int, filler char(900)); INSERT INTO pool SELECT i, '' FROM generate_series(1, 200) i; VACUUM pool});
    my $maps = sub { return scalar(() = glob($node->data_dir . "/pg_tblspc/*/PG_*/*/*_fsm")) };
    my $maps_before = $maps->();
    $pace->('1kB', '');
    ($job) = ask(q{relocate_table('pool', 'fast')});
    job_ok($job, q{phase, copied_bytes = pg_relation_size('pool')}, 'copying|t', 'all blocks are copied');
    $holder->sql('BEGIN; LOCK pool');
    $pace->('0', '');
    $db->poll_ok("SELECT count(*) FROM pg_locks WHERE relation = 'pool'::regclass AND NOT granted", 'the move looks for more', 1);
    $pace->('1kB', "$from-$to");
    $holder->sql('COMMIT');
    job_ok($job, q{state, message ~ 'hours'}, 'waiting|t', 'and waits before it copies the map');
    $db->sql(q{INSERT INTO pool SELECT i, '' FROM generate_series(201, 1000) i; DELETE FROM pool WHERE id BETWEEN 201 AND 999; VACUUM pool});
    $pace->('1kB', '');
    until_ok(sub { $maps->() > $maps_before }, 'which is copied');
    $pace->('1kB', "$from-$to");
    job_ok($job, q{state, message ~ 'hours'}, 'waiting|t', 'then it waits again');
    $db->sql('DELETE FROM pool WHERE id > 200; VACUUM pool');
    is($db->sql(q{SELECT pg_relation_size('pool') / 8192 < 40}), 't', 'it is truncated');
    $pace->('0', '');
    $done_ok->($job, 'pool', '200|20100');
    $holder->quit;
}

### A crash while the old file is made shorter

$db->sql(q{CREATE TABLE large (id int, n int, filler char(1000)); INSERT INTO large SELECT i, 0, '' FROM generate_series(1, 100000) i; VACUUM large});
my $caught = 0;
for my $try (1 .. 5)
{
    my $from = place('large');
    my $path = $node->data_dir . '/' . $db->sql(q{SELECT pg_relation_filepath('large')});
    my $size = -s $path;

    # records of pages of the old file, which have no image and are to be replayed
    $db->sql('CHECKPOINT; UPDATE large SET n = n + 1 WHERE id % 37 = 0');
    my ($job) = ask("relocate_table('large', '" . elsewhere('large') . "')");
    my $worker;
    until_true(sub { $worker = $db->sql("SELECT pid FROM pgscale_internal.relocation_job WHERE job = $job"); return $worker ne '' }) or die 'no worker';
    until_true(sub { (-s $path // 0) < $size }) or die 'it does not become shorter';
    kill 'STOP', $worker;
    my $left = -s $path // 0;
    $caught++ if $left > 0;
    my $log = -s $node->logfile;
    kill 'KILL', $worker or die "no worker $worker";
    $db->quit;
    $node->stop('immediate', fail_ok => 1);
    # A standby looks for pages that the WAL names and the files do not have; crash recovery does not.
    $node->set_standby_mode;
    $node->start(fail_ok => 1);
    unlike(slurp_file($node->logfile, $log), qr/PANIC|invalid page/, "crash $try, with $left bytes of the old file: a standby misses no page");
    $node->promote;
    $db = session($node);
    $db->poll_ok('SELECT pg_is_in_recovery()', "crash $try: it is a server again", 'f');
    is(ended($job), 'done', "crash $try: the job is done") or diag job_text($job);
    isnt(place('large'), $from, "crash $try: it has moved");
    is($db->sql('SELECT count(*), sum(n) FROM large'), "100000|" . $try * int(100000 / 37), "crash $try: all changes are there");
    strays_ok("crash $try: no file is left");
    last if $caught;
}
ok($caught, 'a crash came while the file was made shorter');

sound_ok('after all');
$db->quit;
$node->stop;
done_testing();
