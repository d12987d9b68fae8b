# Pages are exchanged while the sweep looks at them. What it knows of them is old or torn then; that may make a choice worse, and no
# page wrong. Step by step, over headers that are made up (t/lib/torn_steps.c); and on a server whose few buffers hold pages of
# relations that come and go, with policy adaptive and several sweepers.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $amcheck = have_module('amcheck');
my $node = pgscale_node('main', init => [ extra => ['--data-checksums'] ], conf => <<"EOC");
shared_buffers = 1MB
max_worker_processes = 32
checkpoint_timeout = 1h
synchronous_commit = off
pgscale.sweeper = on
pgscale.sweeper_adaptive = off
pgscale.sweeper_workers = 3
pgscale.sweeper_writers = 2
pgscale.sweeper_policy = adaptive
EOC
my $db = session($node);

$db->steps_ok('torn_steps');

# Each round makes a table and an index, looks at what it has put there, changes it, empties it, and drops it.
$db->sql(<<'EOQ');
CREATE TABLE rounds (session int PRIMARY KEY, n int NOT NULL);
INSERT INTO rounds SELECT i, 0 FROM generate_series(0, 7) i;
CREATE PROCEDURE expect(what text, rows bigint, total bigint) LANGUAGE plpgsql AS $proc$
DECLARE
    found text;
BEGIN
    EXECUTE format('SELECT format(%L, count(*), sum(i), count(*) FILTER (WHERE filler::text = md5(i::text))) FROM %s', '%s %s %s', what) INTO found;
    IF found <> format('%s %s %s', rows, total, rows) THEN
        RAISE EXCEPTION '% has %', what, found;
    END IF;
END $proc$;
CREATE PROCEDURE come_and_go(me int) LANGUAGE plpgsql AS $proc$
DECLARE
    t text := format('come_%s', me);
BEGIN
    WHILE EXISTS (SELECT FROM churn_on) LOOP
        EXECUTE format('CREATE TABLE %s (i int PRIMARY KEY, filler char(32), wide char(250))', t);
        COMMIT;
        EXECUTE format('INSERT INTO %s SELECT i, md5(i::text), $w$$w$ FROM generate_series(1, 600) i', t);
        COMMIT;
        CALL expect(t, 600, 180300);
        EXECUTE format('CREATE INDEX ON %s (filler)', t);
        EXECUTE format('UPDATE %s SET i = i + 10000, filler = md5((i + 10000)::text) WHERE i <= 300', t);
        COMMIT;
        SET LOCAL enable_seqscan = off;
        CALL expect(t || ' WHERE i > 0', 600, 3180300);
        CALL expect(t || ' WHERE filler > $f$$f$', 600, 3180300);
        EXECUTE format('TRUNCATE %s', t);
        EXECUTE format('INSERT INTO %s SELECT i, md5(i::text), $w$$w$ FROM generate_series(1, 100) i', t);
        COMMIT;
        CALL expect(t, 100, 5050);
        EXECUTE format('DROP TABLE %s', t);
        UPDATE rounds SET n = n + 1 WHERE session = me;
        COMMIT;
    END LOOP;
END $proc$;
EOQ
$db->churn_table(6000);

for my $mode (has_freelist() ? 'freelist' : (), 'window')
{
    $db->set('pgscale.sweeper_mode', $mode);
    $db->poll_ok('SELECT count(*), min(policy) FROM pgscale.sweeper_stats JOIN pgscale.replacement_stats USING (worker) WHERE mode = ' . "'$mode'",
        "three sweepers, $mode, adaptive", '3|adaptive');
    my @churning = churn($node, 2);
    my @coming = map { session($node) } 0 .. 2;
    $coming[$_]->start("CALL come_and_go($_)") for 0 .. 2;
    my ($consumed, $rounds) = split /\|/, $db->sql('SELECT sum(consumed), (SELECT sum(n) FROM rounds) FROM pgscale.sweeper_stats');
    $db->sweeps_on('they supply and write');
    in_time_ok(sub {
        return $db->sql("SELECT min(evictions) > 100 AND (SELECT sum(consumed) > $consumed + 2000 FROM pgscale.sweeper_stats)
            AND (SELECT sum(n) >= $rounds + 12 FROM rounds) FROM pgscale.replacement_stats") eq 't';
    }, 'relations come and go, in buffers that they supply') or diag $db->sql('SELECT json_agg(s) FROM pgscale.sweeper_stats s');
    $db->churn_end(@churning, @coming);
    $db->churn_right('what stays is right');
}
is($db->sql('SELECT sum(errors) FROM pgscale.sweeper_stats'), 0, 'the sweepers had no error');
SKIP:
{
    skip 'this server has no amcheck', 2 unless $amcheck;
    $db->sql('CREATE EXTENSION amcheck');
    is($db->sql(q{SELECT count(*) > 50, count(bt_index_check(c.oid, true)) FROM pg_class c JOIN pg_am a ON a.oid = relam AND amname = 'btree'
        WHERE relkind = 'i' AND relpersistence = 'p'}) =~ s/\|\d+//r, 't', 'each row is in each index');
    is($db->sql(q{SELECT count(*) FROM pg_class c, verify_heapam(c.oid) WHERE relkind IN ('r', 't', 'm')}), 0, 'and each page of each table is as it should be');
}
$db->quit;
$node->stop;
command_ok([ 'pg_checksums', '--check', '-D', $node->data_dir ], 'each page on disk has its checksum');
unlike(slurp_file($node->logfile), qr/ERROR|PANIC|TRAP|terminated by signal|invalid page|verification failed/, 'and no error is in the log');

done_testing();
