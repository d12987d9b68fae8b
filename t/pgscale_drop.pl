# What DROP EXTENSION drops, the ways in which it can be dropped, and the statements of doc/operations.md that keep archive and
# journal, as they stand there.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main', conf => "pgscale.debug_period = 1s\npgscale.archive_database = postgres\n");
my $db = session($node);
my ($section) = slurp_file('doc/operations.md') =~ /^### Keep archive and journal\n(.*?)^##/ms;
my ($copy, $restore, @more) = $section =~ /^```sql\n(.*?)^```$/gms;
ok(defined $restore && !@more, 'the page has statements for before and after');

$db->sql('CREATE TABLE t (i int); CREATE ROLE other SUPERUSER LOGIN');
$db->sql("SET application_name = 'shop'; SELECT count(*) FROM generate_series(1, 1000000)");
$db->sql($_) for q{CALL pgscale.set('work_mem', '8MB', true)}, q{CALL pgscale.set('maintenance_work_mem', '96MB', true)}, q{CALL pgscale.set('work_mem', '9MB', true)};
my $change = q{SELECT max(change) FROM pgscale.tuning_journal WHERE setting = '%s'};
$db->sql('CALL pgscale.revert(' . $db->sql(sprintf $change, 'maintenance_work_mem') . ', true)');
$db->poll_ok('SELECT count(*) > 3 FROM pgscale.archive_minutes', 'an archive');
# the sampler keeps the text of what runs for more than a second
$db->sql('SELECT pg_sleep(1.5)');
$db->poll_ok('SELECT count(*) > 0 FROM pgscale.archive_queries', 'with the text of a statement');
$db->set('random_page_cost' => 3);
$db->poll_ok(q{SELECT count(*) FROM pgscale.archive_changes WHERE setting = 'random_page_cost'}, 'with a change of a setting', 1);
# two more days, one of them by hours
$db->sql(q{SELECT pgscale_internal.archive_partition('archive_minute', (now() AT TIME ZONE 'UTC')::date - d),
    pgscale_internal.archive_partition('archive_query', (now() AT TIME ZONE 'UTC')::date - d) FROM generate_series(1, 2) d});
$db->sql(q{DO $$ DECLARE columns text := (SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
        WHERE attrelid = 'pgscale_internal.archive_minute'::regclass AND attnum > 1 AND NOT attisdropped);
    BEGIN
        EXECUTE format('INSERT INTO pgscale_internal.archive_minute (at, %1$s) SELECT at - make_interval(days => d), %1$s
            FROM (SELECT * FROM pgscale_internal.archive_minute ORDER BY at LIMIT 3) m, generate_series(1, 2) d', columns);
        INSERT INTO pgscale_internal.archive_query SELECT day - d, queryid, first_seen, last_seen, query
            FROM pgscale_internal.archive_query, generate_series(1, 2) d WHERE day = (now() AT TIME ZONE 'UTC')::date;
        PERFORM pgscale_internal.archive_roll_up('archive_minute_' || to_char((now() AT TIME ZONE 'UTC')::date - 2, 'YYYYMMDD'));
        -- and what another node was asked for
        CREATE TEMP TABLE asked AS SELECT * FROM pgscale_internal.archive_minute;
        UPDATE asked SET node = 'b@b:1', node_id = 7, pulled = true, standby = true, wait_ms = ARRAY(SELECT 2 * w FROM unnest(wait_ms) w);
        INSERT INTO pgscale_internal.archive_minute TABLE asked;
        INSERT INTO pgscale_internal.archive_node (node_id, node, standby, timeline, seen_at, at) SELECT 7, 'b@b:1', true, 1, now(), max(at) FROM asked;
        INSERT INTO pgscale_internal.archive_change VALUES (now(), 'work_mem', '1', '2', 7);
        INSERT INTO pgscale_internal.archive_setting VALUES ('work_mem', '2', 7);
    END $$});
$db->set('pgscale.archive_database' => '');
$db->poll_ok(q{SELECT state FROM pgscale.health WHERE feature = 'archive'}, 'the archive stands still', 'off');
$db->poll_ok(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'pgscale archive%'}, 'and nothing writes it', 0);

my $rows = q{SELECT (SELECT string_agg(md5(m::text), ' ' ORDER BY at, node_id) FROM pgscale_internal.archive_minute m), (SELECT sum(wait_ms) FROM pgscale.archive_waits),
    (SELECT count(*) FROM pgscale.archive_waits), (SELECT count(DISTINCT (at AT TIME ZONE 'UTC')::date) FROM pgscale.archive_minutes),
    (SELECT string_agg(md5(q::text), ' ' ORDER BY q::text) FROM pgscale.archive_queries q),
    (SELECT string_agg(md5(c::text), ' ' ORDER BY c::text) FROM pgscale.archive_changes c),
    (SELECT string_agg(concat_ws(' ', change, setting, old_value, new_value, state, requested_by, requested_at, applied_at, revert_of, reverted_by, node),
        ' ' ORDER BY change) FROM pgscale.tuning_journal),
    (SELECT concat_ws(' ', role, timeline, at) FROM pgscale.archive_nodes WHERE node = 'b@b:1'),
    (SELECT md5(string_agg(w::text, '' ORDER BY w::text)) FROM pgscale.top_waits('-infinity', now() - interval '1 day', node => 'b@b:1') w)};
my $before = $db->sql($rows);
like($before, qr/^\w{32} [^|]+\|[\d.]+\|[1-9]\d*\|[34]\|\w{32}[^|]*\|\w{32}[^|]*\|.*reverted[^|]*\|standby 1 \d[^|]*\|\w{32}$/s, 'there is something to keep');

### Ways to drop it

like(join(' ', $db->try('DROP SCHEMA pgscale CASCADE')), qr/^2BP01 .*extension pgscale requires it.*HINT: .*drop extension pgscale/s,
    'DROP SCHEMA does not drop it');
is($db->sql($rows), $before, 'all is still there');

### The statements of the page

$db->sql($copy =~ s/;\n\z//r);
$db->sql('DROP EXTENSION pgscale');
is($db->sql(q{SELECT count(*) FROM pg_class WHERE relname ~ '^(archive|tuning)_'}), 0, 'all is gone');
$db->sql('CREATE EXTENSION pgscale');
is($db->sql('SELECT count(*) FROM pgscale.archive_minutes'), 0, 'and does not come back by itself');
$db->sql($restore =~ s/;\n\z//r);
is($db->sql($rows), $before, 'but with these statements');
is($db->sql(q{SELECT count(*) FROM pg_class WHERE relname LIKE 'kept%' AND relnamespace <> 'pgscale'::regnamespace}), 0, 'which leave nothing behind');
is($db->sql(q{SELECT count(*) FROM pgscale.archive_minutes WHERE origin IS NOT NULL}), 0, 'the rows are of here');
$db->sql('CALL pgscale.revert(' . $db->sql(sprintf $change, 'work_mem') . ', true)');
$db->poll_ok('SHOW work_mem', 'a change from before is reverted', '8MB');
$db->sql(q{CALL pgscale.set('work_mem', '10MB', true)});
is($db->sql('SELECT count(*) = count(DISTINCT change), max(change) > 4 FROM pgscale.tuning_journal'), 't|t', 'and new ones follow');
my $minutes = $db->sql('SELECT count(*) FROM pgscale.archive_minutes');
$db->set('pgscale.archive_database' => 'postgres');
$db->poll_ok("SELECT count(*) > $minutes FROM pgscale.archive_minutes", 'the archive goes on');

# with what it needs, and with its owner
my $there = q{SELECT count(*) FROM pg_extension WHERE extname = 'pgscale'};
$db->sql('BEGIN; DROP EXTENSION plpgsql CASCADE');
is($db->sql($there), 0, 'it is dropped with what it needs');
$db->sql('ROLLBACK; SET ROLE other; DROP EXTENSION pgscale; CREATE EXTENSION pgscale; RESET ROLE; DROP OWNED BY other');
is($db->sql($there), 0, 'and with its owner');
$db->quit;
$node->stop;
done_testing();
