# Live moves at places that a planted bug could hide in: a table whose visibility map is more than half a page long, a free space map that was longer,
# a crash while an old file is made shorter and the WAL has no images of its pages.
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
    $db->sql(q{UPDATE wide SET n = 1 WHERE ctid IN ('(16400,1)', '(16335,1)', '(16336,1)', '(3,1)')});
    $holder->sql('COMMIT');
    is(ended($job), 'done', 'it has moved') or diag job_text($job);
    is($db->sql(q{SELECT count(*) FROM pg_check_visible('wide')}), 0, 'no page is called visible that is not');
    is($db->sql(q{SELECT string_agg(v.all_visible::text, ' ') FROM unnest(ARRAY[3, 16335, 16336, 16400, 16399]) b, pg_visibility_map('wide', b) v}), 'false false false false true', 'those that were changed are not, others are');
    $holder->quit;
}

### A table that grows and is truncated while it moves

SKIP:
{
    skip 'this server has no pg_freespacemap', 6 unless have_module('pg_freespacemap');

    $db->sql(q{CREATE TABLE tide (id int, filler char(900)); INSERT INTO tide SELECT i, '' FROM generate_series(1, 4000) i; VACUUM tide});
    for my $round (1 .. 2)
    {
        $db->set('pgscale.relocation_rate', '2MB');
        $db->poll_ok('SHOW pgscale.relocation_rate', 'slow', '2MB');
        my ($job) = ask("relocate_table('tide', '" . elsewhere('tide') . "')");
        job_ok($job, 'state, phase, copied_bytes > 0', 'running|copying|t', 'a copy is under way');
        # the free space of what is added is known, and copied with the map
        $db->sql(q{INSERT INTO tide SELECT i, '' FROM generate_series(4001, 9000) i; DELETE FROM tide WHERE id BETWEEN 4001 AND 8999; VACUUM tide});
        my $holder = session($node);
        $holder->sql('BEGIN; LOCK tide IN ACCESS SHARE MODE') if $round == 1;
        $db->set('pgscale.relocation_rate', '0');
        # in the first round it is truncated once all has been copied
        if ($round == 1)
        {
            job_ok($job, 'state, phase', 'waiting|waiting for a gap', 'all is copied');
            $holder->sql('COMMIT');
        }
        $db->sql('DELETE FROM tide WHERE id > 4000; VACUUM tide');
        is(ended($job), 'done', "round $round: done") or diag job_text($job);
        my $end = $db->sql(q{SELECT pg_relation_size('tide') / 8192});
        is($db->sql("SELECT count(*) FROM generate_series($end, 3 * $end) b WHERE pg_freespace('tide', b) > 0"), 0, "round $round: no space is free beyond the end");
        is($db->sql('SELECT count(*), sum(id) FROM tide'), '4000|8002000', "round $round: all rows are there");
        $holder->quit;
    }
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
    until_true(sub { slurp_file($node->logfile, $log) =~ /database system is ready to accept connections|PANIC/ });
    unlike(slurp_file($node->logfile, $log), qr/PANIC|invalid page/, "crash $try, with $left bytes of the old file: the server recovers");
    until_true(sub { system('pg_isready', '-q', '-h', $node->host, '-p', $node->port) == 0 });
    $db = session($node);
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
