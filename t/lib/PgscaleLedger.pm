# PgscaleLedger.pm: a table that is to be moved, and a ledger of its rows beside it that is not: each transaction changes a row of
# the table, and in the ledger what the row then is. So whatever happens to the table's file, a lost change of it shows.
package PgscaleLedger;

use strict;
use warnings;
use Exporter 'import';
use PgscaleRelocation;
use PgscaleTest;
use Test::More;

our @EXPORT = qw(ledger_tables ledger_load ledger_unload ledger_change ledger_wrong ledger_begin_again);

# kept and its ledger: so many rows, about 34 a page with room for their next versions; those of the first ones are in the TOAST
# table, too.
my ($rows, $toasted);

sub ledger_tables
{
    ($rows, $toasted) = @_;

    $db->sql(<<"EOQ");
CREATE TABLE load_on ();
CREATE FUNCTION words(id int, n bigint) RETURNS text LANGUAGE sql IMMUTABLE AS 'SELECT repeat(md5(id || \$\$ \$\$ || n), 70)';
CREATE TABLE kept (id int PRIMARY KEY, n bigint NOT NULL, a uuid, v text) WITH (fillfactor = 25);
ALTER TABLE kept ALTER v SET STORAGE EXTERNAL;
CREATE TABLE ledger (id int PRIMARY KEY, n bigint NOT NULL) WITH (fillfactor = 25);
CREATE PROCEDURE load(me int, sessions int) LANGUAGE plpgsql AS \$\$
DECLARE
    this int;
BEGIN
    WHILE EXISTS (SELECT FROM load_on) LOOP
        FOR i IN 1..5 LOOP
            this := sessions * floor(random() * (CASE WHEN random() < 0.02 THEN $toasted ELSE $rows END / sessions))::int + me;
            UPDATE kept SET n = n + this % 7 + 1, v = CASE WHEN id < $toasted THEN words(id, n + this % 7 + 1) END WHERE id = this;
            UPDATE ledger SET n = n + this % 7 + 1 WHERE id = this;
        END LOOP;
        COMMIT;
        PERFORM pg_sleep(0.001);
    END LOOP;
END \$\$;
EOQ
    ledger_begin_again();
    return;
}

# As if nothing had ever been changed
sub ledger_begin_again
{
    $db->sql(<<"EOQ");
BEGIN;
TRUNCATE kept, ledger;
INSERT INTO kept SELECT i, 0, '00000000-0000-0000-0000-000000000000',
    CASE WHEN i < $toasted THEN words(i, 0) END FROM generate_series(0, $rows - 1) i;
INSERT INTO ledger SELECT i, 0 FROM generate_series(0, $rows - 1) i;
COMMIT
EOQ
    $db->sql('VACUUM kept, ledger');
    return;
}

# Changes rows, each in a transaction of its own
sub ledger_change
{
    my (@ids) = @_;

    $db->sql("BEGIN; UPDATE kept SET n = n + 1, v = CASE WHEN id < $toasted THEN words(id, n + 1) END WHERE id = $_;
        UPDATE ledger SET n = n + 1 WHERE id = $_; COMMIT") for @ids;
    return;
}

# Sessions that change rows all the time, until unload: what those have said that failed.
sub ledger_load
{
    my ($sessions) = @_;
    my @loading = map { session($node) } 1 .. $sessions;

    $db->sql('INSERT INTO load_on DEFAULT VALUES');
    $loading[$_]->start("CALL load($_, $sessions)") for 0 .. $#loading;
    return @loading;
}

sub ledger_unload
{
    my (@loading) = @_;

    $db->sql('DELETE FROM load_on');
    $_->{limit}->start(2 * $PostgreSQL::Test::Utils::timeout_default) for @loading;
    my @failed;
    for my $session (@loading)
    {
        my ($state, $text) = eval { $session->finish };
        push @failed, $text // $@ if ($state // '') ne '00000';
    }
    $_->quit for @loading;
    return @failed;
}

# In which rows, in one snapshot, table and ledger differ: empty if in none. Looked up without indexes, and by one.
sub ledger_wrong
{
    my @wrong;

    for my $index ('off', 'on')
    {
        my $table = $index eq 'on' ? 'off' : 'on';
        my ($state, $text) = $db->try(<<"EOQ");
BEGIN; SET LOCAL enable_seqscan = $table; SET LOCAL enable_indexscan = $index; SET LOCAL enable_indexonlyscan = $index;
SET LOCAL enable_bitmapscan = off;
SELECT CASE WHEN count(*) > 0 THEN format('%s rows are not as in the ledger: sum %s instead of %s, first id %s: %s instead of %s',
    count(*),
    coalesce(sum(k.n), 0), sum(l.n), min(l.id), (array_agg(k.n ORDER BY l.id))[1], (array_agg(l.n ORDER BY l.id))[1]) END
  FROM (SELECT * FROM ledger ORDER BY id) l FULL JOIN (SELECT * FROM kept ORDER BY id) k USING (id)
 WHERE k.n IS DISTINCT FROM l.n OR k.id < $toasted AND k.v IS DISTINCT FROM words(k.id, l.n);
COMMIT
EOQ
        $db->sql('ROLLBACK') if $state ne '00000';
        push @wrong, $state eq '00000' ? $text : "$state $text";
    }
    return grep { $_ ne '' } @wrong;
}

1;
