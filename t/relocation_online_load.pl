# Online moves back and forth under a load that keeps a ledger: updates within a page and across pages, of values stored aside, a
# table that grows and is truncated by VACUUM, freezing. Each row is checked against the ledger, also by each index, while the
# moves go on, also by readers of a hot standby, and afterwards; so are checksums.
use strict;
use warnings;
use PgscaleRelocation;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $sessions = 3;

sub create
{
    extensions();
    $db->sql(<<"EOQ");
CREATE TABLE load_on ();
CREATE TABLE ledger (session int PRIMARY KEY, n bigint NOT NULL DEFAULT 0, versions bigint NOT NULL DEFAULT 0,
    first bigint NOT NULL DEFAULT 1, last bigint NOT NULL DEFAULT 0);
INSERT INTO ledger SELECT generate_series(0, $sessions - 1);
CREATE TABLE accounts (id int PRIMARY KEY, n bigint NOT NULL, changed int NOT NULL, filler char(200)) WITH (fillfactor = 80);
INSERT INTO accounts SELECT i, 0, i % 100, '' FROM generate_series(0, 8999) i;
CREATE INDEX accounts_changed ON accounts (changed);
CREATE INDEX accounts_hash ON accounts USING hash (id);
CREATE INDEX accounts_gin ON accounts USING gin ((ARRAY[changed, id % 50]));
CREATE INDEX accounts_gist ON accounts USING gist (point(id, 0));
CREATE INDEX accounts_spgist ON accounts USING spgist (point(0, id));
CREATE INDEX accounts_brin ON accounts USING brin (id) WITH (pages_per_range = 4);
CREATE TABLE papers (id int PRIMARY KEY, version int NOT NULL, v text);
ALTER TABLE papers ALTER v SET STORAGE EXTERNAL;
CREATE FUNCTION words(id int, version int) RETURNS text LANGUAGE sql IMMUTABLE AS
    'SELECT repeat(md5(id || \$\$ \$\$ || version), 150)';
INSERT INTO papers SELECT i, 0, words(i, 0) FROM generate_series(0, 599) i;
CREATE TABLE tide (id bigint PRIMARY KEY, filler char(300));
CREATE TABLE fresh (session int, id serial);
EOQ
    # its locks are a few milliseconds old when they are let go of
    $db->sql(<<"EOQ");
CREATE PROCEDURE load(me int) LANGUAGE plpgsql AS \$\$
DECLARE
    this int;
    round int := 0;
BEGIN
    WHILE EXISTS (SELECT FROM load_on) LOOP
        PERFORM pg_sleep(0.01);
        COMMIT;
        round := round + 1;
        FOR i IN 1..4 LOOP
            this := $sessions * floor(random() * 3000)::int + me;
            UPDATE accounts SET n = n + 1, changed = CASE WHEN i < 4 THEN changed ELSE (changed + 1) % 100 END WHERE id = this;
        END LOOP;
        UPDATE ledger SET n = n + 4 WHERE session = me;
        COMMIT;
        IF round % 3 = 0 THEN
            this := $sessions * floor(random() * 200)::int + me;
            UPDATE papers SET version = version + 1, v = words(id, version + 1) WHERE id = this;
            UPDATE ledger SET versions = versions + 1 WHERE session = me;
            COMMIT;
        END IF;
        IF me = 0 AND round % 2 = 0 THEN
            IF (SELECT last - first > 2000 FROM ledger WHERE session = 0) THEN
                DELETE FROM tide;
                UPDATE ledger SET first = last + 1 WHERE session = 0;
            ELSE
                INSERT INTO tide SELECT last + i, '' FROM ledger, generate_series(1, 100) i WHERE session = 0;
                UPDATE ledger SET last = last + 100 WHERE session = 0;
            END IF;
            COMMIT;
        END IF;
    END LOOP;
END \$\$;
EOQ
    return;
}

# What is wrong, in one snapshot, looked up without indexes or by them
sub wrong
{
    my ($session, $by) = @_;

    my ($table, $index, $others) = $by ? ('off', 'on', $by) : ('on', 'off', 'off');
    $session->sql("BEGIN; SET LOCAL enable_seqscan = $table; SET LOCAL enable_indexscan = $index;
        SET LOCAL enable_bitmapscan = $others; SET LOCAL enable_indexonlyscan = $others");
    my (undef, $wrong) = $session->try(<<'EOQ');
WITH l AS (SELECT sum(n) AS n, sum(versions) AS versions, max(first) AS first, max(last) AS last FROM ledger),
     a AS (SELECT count(*), sum(n) AS n FROM accounts WHERE id >= 0),
     c AS (SELECT count(*), sum(n) AS n FROM accounts WHERE changed >= 0),
     p AS (SELECT count(*), sum(version) AS versions, count(*) FILTER (WHERE v IS DISTINCT FROM words(id, version)) AS bad
             FROM papers WHERE id >= 0),
     t AS (SELECT count(*), coalesce(min(id), 0) AS first, coalesce(max(id), 0) AS last FROM tide WHERE id >= 0)
SELECT concat_ws('; ', CASE WHEN a.count <> 9000 OR a.n <> l.n THEN format('accounts: %s rows, %s for %s', a.count, a.n, l.n) END,
       CASE WHEN c.count <> 9000 OR c.n <> l.n THEN format('accounts by changed: %s rows, %s for %s', c.count, c.n, l.n) END,
       CASE WHEN p.count <> 600 OR p.versions <> l.versions OR p.bad > 0 THEN format('papers: %s rows, %s for %s, %s bad',
           p.count, p.versions, l.versions, p.bad) END,
       CASE WHEN t.count <> l.last - l.first + 1 OR t.count > 0 AND (t.first <> l.first OR t.last <> l.last)
            THEN format('tide: %s from %s to %s for %s to %s', t.count, t.first, t.last, l.first, l.last) END)
  FROM l, a, c, p, t
EOQ
    $session->sql('ROLLBACK');
    return $wrong;    # or an error, which is wrong, too
}

# Those of other kinds, whole: each finds the same rows as a scan of the table. With no load.
sub wrong_by_kind
{
    my $session = shift;
    my $lookups = q{SELECT count(*), sum(n) FROM accounts WHERE point(id, 0) <@ box(point(-1, -1), point(9000, 1));
        SELECT count(*), sum(n) FROM accounts WHERE point(0, id) <@ box(point(-1, -1), point(1, 9000));
        SELECT count(*), sum(n) FROM accounts WHERE id BETWEEN 3000 AND 6000;
        SELECT count(*), sum(n) FROM accounts WHERE ARRAY[changed, id % 50] @> ARRAY[77];
        SELECT count(*), sum(n) FROM accounts a, generate_series(0, 8999, 7) i WHERE a.id = i};
    my (undef, $by) = $session->try("SET enable_seqscan = off; SET enable_indexscan = off; SET enable_hashjoin = off;
        SET enable_mergejoin = off; $lookups");
    my (undef, $without) = $session->try("SET enable_seqscan = on; SET enable_bitmapscan = off; RESET enable_hashjoin; $lookups");

    $session->sql('RESET ALL');
    return $by eq $without ? '' : "$by for $without";
}

# Moves all there is to one place after the other, under load.
sub moves
{
    my ($rounds, $there) = @_;
    my @loading = map { session($node) } 1 .. $sessions;
    my $vacuum = session($node);
    my (@wrong, @jobs);

    $db->sql('INSERT INTO load_on DEFAULT VALUES');
    $loading[$_]->start("CALL load($_)") for 0 .. $#loading;
    for my $round (1 .. $rounds)
    {
        my $to = elsewhere('tide');

        push @jobs, (map { ask("relocate_table('$_', '$to')") } qw(tide accounts papers)),
          map { ask("relocate_indexes('$_', '$to', mode => 'online')") } qw(tide accounts papers);
        my $freeze = $round % 3 ? '' : '(FREEZE)';
        $vacuum->start("VACUUM tide; VACUUM $freeze papers; VACUUM tide; VACUUM $freeze accounts; VACUUM tide");
        # meanwhile each reader of the standby sees all rows
        until_true(sub {
            push @wrong, map { wrong($there, $_) } '', 'on' if $there;
            return $db->sql('SELECT count(*) FROM pgscale.relocation_jobs WHERE finished_at IS NULL') eq '0';
        }) or die 'jobs do not end: ' . $db->sql('SELECT json_agg(j) FROM pgscale.relocation_jobs j WHERE finished_at IS NULL');
        $vacuum->{limit}->start(2 * $PostgreSQL::Test::Utils::timeout_default);
        my ($state, $text) = $vacuum->finish;
        push @wrong, "VACUUM: $text" if $state ne '00000';
        push @wrong, wrong($db, $round % 3 ? 'on' : '');
    }
    $db->sql('DELETE FROM load_on');
    $_->{limit}->start(2 * $PostgreSQL::Test::Utils::timeout_default) for @loading;
    push @wrong, map { $_->[0] eq '00000' ? () : "@$_" } map { [ $_->finish ] } @loading;
    $_->quit for @loading, $vacuum;
    done_ok('the moves', @jobs);
    is(join("\n", grep { $_ ne '' } @wrong), '', 'under load nothing failed, and no row was wrong');
    cmp_ok($db->sql('SELECT sum(recopied_blocks) FROM pgscale.relocation_jobs'), '>', 0, 'blocks changed while they were copied');
    return;
}

sub right_ok
{
    my ($session, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    is(join("\n", grep { $_ ne '' } wrong($session), wrong($session, 'on'), wrong($session, 'off'), wrong_by_kind($session)), '',
        "$name: each row is as the ledger says");
    return;
}

# Hint bits of a block are in the WAL only where it has a checksum.
my @off = server_major() >= 18 ? (extra => ['--no-data-checksums']) : ();
relocation_node(init => [ allows_streaming => 1, @off ],
    conf => "pgscale.relocation_workers = 2\nwal_keep_size = 1GB\npgscale.relocation_max_lag = -1");
create();
my @all = qw(accounts papers tide ledger);
for my $checksums ('off', 'on')
{
    my $name = "checksums $checksums";
    my ($standby, $there);

    if ($checksums eq 'on')
    {
        stopped(sub { command_ok([ 'pg_checksums', '--enable', '--no-sync', '-D', $node->data_dir ],
            'files have checksums from now on') });
        $standby = pgscale_standby($node,
            "max_standby_streaming_delay = 10min\nhot_standby_feedback = on\nwal_receiver_status_interval = 1s");
        $there = session($standby);
        $node->wait_for_catchup($standby, 'replay');
    }
    moves(3, $there);
    right_ok($db, $name);
    sound_ok($name);
    strays_ok($name);
    my $rows = rows($db, @all);
    standby_ok($standby, $there, $rows) if $standby;
    # what was only in buffers is read from the files now
    stopped(sub {
        command_ok([ 'pg_checksums', '--check', '-D', $_->data_dir ], 'the checksums of all files are right: ' . $_->name)
          for $standby ? ($node, $standby) : ();
    });
    is(rows($db, @all), $rows, "$name: after a restart the rows are the same");
    right_ok($db, "$name: after a restart");
}

# A standby with that session, of which none has been in the way of replay yet
sub standby_ok
{
    my ($standby, $there, $rows) = @_;
    my $conflicts = 'SELECT confl_lock, confl_tablespace + confl_snapshot + confl_bufferpin + confl_deadlock
        FROM pg_stat_database_conflicts WHERE datname = current_database()';

    $node->wait_for_catchup($standby, 'replay');
    is(rows($there, @all), $rows, 'the standby has the same rows');
    right_ok($there, 'standby');
    strays_ok('standby', $there);
    is($there->sql($conflicts), '0|0', 'no session conflicts with replay');

    # one that has the table when the switch is replayed
    my $holder = session($standby);
    $there->set('max_standby_streaming_delay', '0');
    $there->poll_ok('SHOW max_standby_streaming_delay', 'replay waits for no session', '0');
    $holder->sql('BEGIN; SELECT count(*) FROM papers');
    done_ok('the table of a session on the standby', ask(q{relocate_table('papers', '} . elsewhere('papers') . q{')}));
    $there->poll_ok($conflicts, 'it conflicts with the lock of the switch, and with nothing else', '1|0');
    $node->wait_for_catchup($standby, 'replay');
    is(rows($there, @all), $rows, 'replay goes on: the standby has the same rows');
    strays_ok('standby', $there);
    $_->quit for $holder, $there;
    $standby->stop;
    return;
}
stop_ok('could not (?:read|truncate|remove)');
done_testing();
