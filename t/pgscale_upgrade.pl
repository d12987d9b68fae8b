# From this version to the next one, and back, on a server with all of pgscale in it and a week of archive: new library with the old
# script, then both new; the other order is refused; nothing is lost, and an updated database has the objects of a new one.
#
# It changes what is installed, so it is no part of make test: .ci/release/checks/upgrade builds the next version and names its
# folder in PGSCALE_NEXT (pgscale.so, pgscale.control and the scripts).
use strict;
use warnings;
use File::Copy qw(copy);
use PgscaleCalls;
use PgscaleKept qw(with_checksum write_bytes);
use PgscaleTest;
use PgscaleWire;
use PostgreSQL::Test::Utils;
use Test::More;

my $next = $ENV{PGSCALE_NEXT} // plan skip_all => '.ci/release/checks/upgrade runs it';
my ($libraries, $scripts) = map { qx(pg_config --$_) =~ s/\n//r } qw(pkglibdir sharedir);
$scripts .= '/extension';
my $old = PostgreSQL::Test::Utils::tempdir();
my ($old_version, $new_version) = map { slurp_file("$_/pgscale.control") =~ /^default_version = '(.*)'/m } $scripts, $next;
my $bound = 2 * $PostgreSQL::Test::Utils::timeout_default;

# A new file takes the place of the one that a server may have loaded, as install(1) does it.
sub put
{
    my ($from, $to) = @_;

    copy($from, "$to.new") && chmod(0755, "$to.new") && rename("$to.new", $to) or die "$to: $!";
    return;
}

sub install
{
    my $from = shift;

    put("$from/pgscale.so", "$libraries/pgscale.so");
    put($_, $scripts . s{.*/}{/}r) for glob "$from/pgscale.control $from/pgscale--*.sql";
    return;
}

put("$libraries/pgscale.so", "$old/pgscale.so");
put($_, $old . s{.*/}{/}r) for "$scripts/pgscale.control", glob "$scripts/pgscale--*.sql";

my $node = calls_node('main', <<'EOC');
log_min_error_statement = panic
max_worker_processes = 32
compute_query_id = on
pgscale.debug_period = 1s
EOC
my $db = session($node);

sub restart
{
    my $before = shift;

    $_->quit for $db;
    $node->stop;
    $before->() if $before;
    my $log = -s $node->logfile;
    $node->start;
    $db = session($node);
    return substr slurp_file($node->logfile), $log;
}

my $version = q{SELECT state, reason, action FROM pgscale.health WHERE feature = 'version'};
my $broken = q{SELECT coalesce(string_agg(feature || ': ' || reason, '; '), '') FROM pgscale.health WHERE state = 'broken'};
my $extension = q{SELECT extversion FROM pg_extension WHERE extname = 'pgscale'};

### What must be the same

# What the extension has in this database, without OIDs
my $objects = <<'EOQ';
WITH member AS (
    SELECT d.classid, d.objid FROM pg_depend d JOIN pg_extension e ON d.refclassid = 'pg_extension'::regclass AND d.refobjid = e.oid
     WHERE e.extname = 'pgscale' AND d.deptype = 'e'),
lines (line) AS (
    SELECT concat_ws(' | ', pg_describe_object(m.classid, m.objid, 0), obj_description(m.objid, m.classid::regclass::name)) FROM member m
    UNION ALL
    SELECT concat_ws(' | ', e.extname, e.extversion, e.extrelocatable, e.extnamespace::regnamespace, e.extconfig::regclass[], e.extcondition)
      FROM pg_extension e WHERE e.extname = 'pgscale'
    UNION ALL
    SELECT concat_ws(' | ', n.nspname, n.nspowner::regrole, (SELECT string_agg(a::text, ' ' ORDER BY a::text) FROM unnest(n.nspacl) a))
      FROM pg_namespace n JOIN member m ON m.classid = 'pg_namespace'::regclass AND m.objid = n.oid
    UNION ALL
    SELECT concat_ws(' | ', p.oid::regprocedure, p.proowner::regrole, p.procost, p.prorows,
                     CASE WHEN p.prokind = 'a' THEN (SELECT concat_ws(' ', g.aggtransfn::regprocedure, g.aggfinalfn::regprocedure, g.aggtranstype::regtype, g.agginitval)
                                                       FROM pg_aggregate g WHERE g.aggfnoid = p.oid)
                          ELSE pg_get_functiondef(p.oid) END, p.probin, p.prosrc,
                     (SELECT string_agg(a::text, ' ' ORDER BY a::text) FROM unnest(p.proacl) a))
      FROM pg_proc p JOIN member m ON m.classid = 'pg_proc'::regclass AND m.objid = p.oid
    UNION ALL
    SELECT concat_ws(' | ', c.oid::regclass, c.relkind, c.relowner::regrole, c.reloptions, c.relpersistence, c.relrewrite = c.oid, c.relreplident,
                     CASE WHEN c.relkind = 'v' THEN pg_get_viewdef(c.oid) END, pg_get_partkeydef(c.oid),
                     (SELECT string_agg(a::text, ' ' ORDER BY a::text) FROM unnest(c.relacl) a),
                     (SELECT string_agg(concat_ws(' ', a.attname, format_type(a.atttypid, a.atttypmod), a.attnotnull, a.attidentity, a.attgenerated, a.attacl,
                                                  a.attstorage, a.attcompression, pg_get_expr(f.adbin, f.adrelid), col_description(c.oid, a.attnum)), ', ' ORDER BY a.attnum)
                        FROM pg_attribute a LEFT JOIN pg_attrdef f ON f.adrelid = a.attrelid AND f.adnum = a.attnum WHERE a.attrelid = c.oid AND a.attnum > 0),
                     (SELECT string_agg(pg_get_indexdef(i.indexrelid), ', ' ORDER BY i.indexrelid::regclass::text) FROM pg_index i WHERE i.indrelid = c.oid),
                     (SELECT string_agg(k.conname || ' ' || pg_get_constraintdef(k.oid), ', ' ORDER BY k.conname) FROM pg_constraint k WHERE k.conrelid = c.oid),
                     (SELECT string_agg(concat_ws(' ', pg_get_triggerdef(t.oid), t.tgenabled), ', ' ORDER BY t.tgname) FROM pg_trigger t WHERE t.tgrelid = c.oid AND NOT t.tgisinternal))
      FROM pg_class c JOIN member m ON m.classid = 'pg_class'::regclass AND m.objid = c.oid
    UNION ALL
    SELECT concat_ws(' | ', w.fdwname, w.fdwowner::regrole, w.fdwhandler::regproc, w.fdwvalidator::regproc, w.fdwoptions,
                     (SELECT string_agg(a::text, ' ' ORDER BY a::text) FROM unnest(w.fdwacl) a))
      FROM pg_foreign_data_wrapper w JOIN member m ON m.classid = 'pg_foreign_data_wrapper'::regclass AND m.objid = w.oid)
SELECT string_agg(replace(line, E'\n', ' '), E'\n' ORDER BY line COLLATE "C") FROM lines
EOQ

# The beginnings of lines that only one of them has
sub differ
{
    my ($one, $other) = @_;
    my %in_one = map { $_ => 1 } split /\n/, $one;
    my %in_other = map { $_ => 1 } split /\n/, $other;

    return join "\n", map { substr $_, 0, 200 } sort grep { !($in_one{$_} && $in_other{$_}) } keys %{ { %in_one, %in_other } };
}

# Rows of before that moment, and what functions make of them
my $end;

sub kept
{
    # the calls of all functions have queued some
    $db->poll_ok('SELECT count(*) FROM pgscale.relocation_jobs WHERE finished_at IS NULL', 'no job is open', 0);
    return map { [ $_->[0] => $db->sql($_->[1] =~ s/END/'$end'/gr) ] } (
        [ 'rows of the archive' => q{SELECT count(*), sum(period_s), md5(string_agg(md5(m::text), '' ORDER BY at, node_id)) FROM pgscale_internal.archive_minute m WHERE at < END} ],
        [ 'days' => q{SELECT string_agg(inhrelid::regclass::text, ' ' ORDER BY inhrelid::regclass::text) FROM pg_inherits
            WHERE inhparent IN ('pgscale_internal.archive_minute'::regclass, 'pgscale_internal.archive_query'::regclass)} ],
        [ 'waits' => q{SELECT count(*), round(sum(wait_ms)) FROM pgscale.archive_waits WHERE at < END} ],
        [ 'texts' => q{SELECT count(*), md5(string_agg(queryid || query, '' ORDER BY queryid)) FROM pgscale.archive_queries WHERE first_seen < END} ],
        [ 'settings that changed' => q{SELECT count(*), md5(string_agg(c::text, '' ORDER BY c::text)) FROM pgscale.archive_changes c WHERE at < END} ],
        [ 'top_waits' => q{SELECT md5(string_agg(w::text, '' ORDER BY w::text)) FROM pgscale.top_waits(END::timestamptz - interval '7 days', END::timestamptz - interval '1 day') w} ],
        [ 'another node' => q{SELECT concat_ws(' ', role, timeline, at) FROM pgscale.archive_nodes WHERE node = 'b@b:1'} ],
        [ 'its top_waits' => q{SELECT md5(string_agg(w::text, '' ORDER BY w::text)) FROM pgscale.top_waits(END::timestamptz - interval '7 days', END::timestamptz - interval '1 day',
            node => 'b@b:1') w} ],
        [ 'journal' => q{SELECT string_agg(concat_ws(' ', change, setting, old_value, new_value, state, applied_at), ' ' ORDER BY change) FROM pgscale.tuning_journal} ],
        [ 'jobs' => q{SELECT string_agg(concat_ws(' ', job, relation, target, state, finished_at), ' ' ORDER BY job) FROM pgscale.relocation_jobs} ]);
}

sub same
{
    my ($name, @before) = @_;
    my @after = kept();
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    is($after[$_][1], $before[$_][1], "$name: $before[$_][0]") for 0 .. $#before;
    return;
}

# Extensions' events and locks lose their names with their numbers.
my $memory = q{SELECT (SELECT md5(string_agg(p::text, ' ' ORDER BY p::text COLLATE "C")) FROM
        (SELECT backend_type, datid, userid, queryid, event_type, CASE WHEN event_type = 'Extension' OR event ~ '^(pgscale|extension$)' THEN '' ELSE event END,
                sum(samples), round(sum(wait_ms)::numeric, 3), idle FROM pgscale_internal.wait_profile() GROUP BY 1, 2, 3, 4, 5, 6, 9) p),
    (SELECT concat_ws(' ', samples, wait_ms, evictions, stats_reset) FROM pgscale.sampler_stats),
    (SELECT md5(string_agg(concat_ws(' ', sampled_at, pid, backend_type, datid, userid, queryid, state, event_type), ' ' ORDER BY sampled_at, pid)) FROM pgscale_internal.wait_history())};

### What each function and view answers

sub answers
{
    my $wire = wire($node);
    my %answers;

    $wire->value(q{SET statement_timeout = '3s'});
    for my $call (calls_known($wire))
    {
        $wire->send_query(($call->{procedure} ? "CALL $call->{name}" : "SELECT count(*), max(q::text) FROM " . $call->{from} =~ s/ q\z//r . ' q') =~ s/\bi\b/7/gr);
        my $result = $wire->finish($bound) // die "no answer: $call->{name}";
        $answers{ $call->{name} } = "$result->{state} $result->{message}";
        last if $result->{closed};
    }
    $wire->quit unless $wire->closed;
    return %answers;
}

# Errors of a class in which nothing may fail that did not fail before: what is missing, of another type, or cannot happen.
sub answers_as
{
    my ($name, %before) = @_;
    my %after = answers();
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    is(join("\n", map { "$_: $after{$_}" } grep { $after{$_} =~ /^(?:42(?:883|725|P01|70[23]|804|846|601)|XX|08|57P)/ && substr($after{$_}, 0, 5) ne substr($before{$_} // '', 0, 5) } sort keys %after),
        '', $name);
    return is(join(' ', sort keys %after), join(' ', sort keys %before), "$name: all of them");
}

my %before = answers();
cmp_ok(scalar keys %before, '>', 200, 'calls');
cmp_ok((grep { /^00000/ } values %before) / keys %before, '>', 0.8, 'most of which have an answer');

### A week of archive: rows that the worker writes, with a load, and copies of them for each minute of eight days, of which it
### makes one hours

$db->sql(q{DELETE FROM pgscale_internal.archive_minute});
my @load = map { session($node) } 1 .. 3;
$load[0]->sql('BEGIN; LOCK TABLE t');
$load[1]->start('SELECT pg_sleep(600)');
$load[2]->start('SELECT count(*) FROM t');
$db->set('pgscale.archive_database' => 'postgres');
$db->poll_ok(q{SELECT count(*) > 5 FROM pgscale.archive_minutes}, 'an archive');
$db->sql($_) for q{SELECT pgscale_internal.archive_partition('archive_minute', (now() AT TIME ZONE 'UTC')::date - d),
    pgscale_internal.archive_partition('archive_query', (now() AT TIME ZONE 'UTC')::date - d) FROM generate_series(1, 8) d},
  q{DO $$ DECLARE columns text := (SELECT string_agg(quote_ident(attname), ', ' ORDER BY attnum) FROM pg_attribute
        WHERE attrelid = 'pgscale_internal.archive_minute'::regclass AND attnum > 0 AND NOT attisdropped AND attname NOT IN ('at', 'period_s'));
    BEGIN
        EXECUTE format('INSERT INTO pgscale_internal.archive_minute (at, period_s, %1$s) SELECT date_trunc(''day'', now(), ''UTC'') - make_interval(mins => i), 60, %1$s
            FROM generate_series(1, 8 * 1440) i JOIN (SELECT row_number() OVER (ORDER BY at) - 1 AS n, * FROM (SELECT * FROM pgscale_internal.archive_minute
                ORDER BY at DESC LIMIT 5) m) k ON k.n = mod(i, 5)', columns);
        -- another node's, of three days
        CREATE TEMP TABLE asked AS SELECT * FROM pgscale_internal.archive_minute WHERE at BETWEEN now() - interval '4 days' AND now() - interval '1 day';
        UPDATE asked SET node = 'b@b:1', node_id = 7, pulled = true, standby = true, wait_ms = ARRAY(SELECT 2 * w FROM unnest(wait_ms) w);
        INSERT INTO pgscale_internal.archive_minute TABLE asked;
        INSERT INTO pgscale_internal.archive_node (node_id, node, standby, timeline, seen_at, at) SELECT 7, 'b@b:1', true, 1, now(), max(at) FROM asked;
        INSERT INTO pgscale_internal.archive_change VALUES (now() - interval '1 day', 'work_mem', '1', '2', 7);
        INSERT INTO pgscale_internal.archive_query SELECT day - d, queryid, first_seen - make_interval(days => d), last_seen - make_interval(days => d), query
            FROM pgscale_internal.archive_query, generate_series(1, 8) d WHERE day = (now() AT TIME ZONE 'UTC')::date;
    END $$};
$db->poll_ok(q{SELECT count(*) FROM pg_class WHERE relname LIKE 'archive_hour_%' AND relkind = 'r'}, 'the oldest day becomes hours', 1);
$db->poll_ok(q{SELECT count(*) > 0 FROM pgscale.archive_changes}, 'and changes of settings are there');
$_->quit for map { $db->sql('SELECT pg_terminate_backend(' . $_->pid . ')'); $_ } @load;
# later rows begin here
$end = $db->sql('SELECT max(at + make_interval(secs => period_s)) FROM pgscale.archive_minutes');
my @kept = kept();
like($kept[0][1], qr/^1\d{4}\|/, 'more than 10,000 rows');
unlike($_->[1], qr/^(?:0?\||$)/, "there is something to keep: $_->[0]") for @kept;

### The next version is installed, and the server not restarted

$db->sql('CREATE DATABASE ' . $_) for qw(updated fresh);
my $updated = session($node, dbname => 'updated');
$updated->sql('CREATE EXTENSION pgscale');
is($db->sql($version), "working|library and extension have version $old_version|", "$old_version: library and extension");
my $of_old = $updated->sql($objects);
install($next);
my $too_early = qr/^55000 .*version \Q$new_version\E of the extension "pgscale" needs a library of that version, not \Q$old_version\E\n.*HINT: .*restart the server/s;
like(join(' ', $updated->try('ALTER EXTENSION pgscale UPDATE')), $too_early, 'it refuses the new script');
is(differ($updated->sql($objects), $of_old), '', 'which has changed nothing');
my $fresh = session($node, dbname => 'fresh');
like(join(' ', $fresh->try('CREATE EXTENSION pgscale')), $too_early, 'in a new database, too');
is($fresh->sql(q{SELECT count(*) FROM pg_namespace WHERE nspname LIKE 'pgscale%'}), 0, 'and nothing is left');
is($fresh->sql("CREATE EXTENSION pgscale VERSION '$old_version'"), '', 'the old one can be created meanwhile');
$fresh->sql('DROP EXTENSION pgscale');
is($db->sql($version), "working|library and extension have version $old_version|", 'both are still of the old one');

### New library, old script

$db->sampler('off');
my $in_memory = $db->sql($memory);
$_->quit for $updated, $fresh;
my $log = restart();
like($log, qr/LOG: .*pgscale \Q$new_version\E is loaded/, 'restarted, it has the new library');
unlike($log, qr/ignoring/, 'which takes the files of the old one');
is($db->sql($memory), $in_memory, 'profile and history are as before');
same('new library, old script', @kept);
is($db->sql($version), "working|the library has version $new_version, the extension in this database $old_version|run ALTER EXTENSION pgscale UPDATE in this database",
    'health asks for the new script');
$db->sampler('on');
$db->poll_ok($broken, 'nothing is broken', '');
$db->poll_ok("SELECT count(*) > 2 FROM pgscale.archive_minutes WHERE at > '$end'", 'the archive goes on');
answers_as('new library, old script: all calls work', %before);

### Both new

@kept = kept();
is($db->sql('ALTER EXTENSION pgscale UPDATE'), '', 'now the new script is taken');
same('updated', @kept);
is($db->sql($version), "working|library and extension have version $new_version|", 'health is content');
$db->poll_ok($broken, 'nothing is broken', '');
answers_as('updated: all calls work', %before);
($updated, $fresh) = map { session($node, dbname => $_) } qw(updated fresh);
$updated->sql('ALTER EXTENSION pgscale UPDATE');
$fresh->sql('CREATE EXTENSION pgscale');
is($updated->sql($extension), $new_version, 'another database');
my $of_new = $fresh->sql($objects);
is(differ($updated->sql($objects), $of_new), '', 'an updated database has the objects of a new one');
cmp_ok(length $of_new, '>', 100_000, 'all of them');
for ('COMMENT ON FUNCTION pgscale.reset(text) IS $$x$$', 'GRANT SELECT ON pgscale.health TO PUBLIC', 'ALTER FUNCTION pgscale.reset(text) STRICT',
    'ALTER TABLE pgscale_internal.archive_change ALTER COLUMN old SET DEFAULT 1', 'CREATE OR REPLACE VIEW pgscale.health AS SELECT * FROM pgscale_internal.health() WHERE true')
{
    $updated->sql("BEGIN; $_");
    isnt(differ($updated->sql($objects), $of_new), '', "the comparison sees: $_");
    $updated->sql('ROLLBACK');
}

### Back

like(join(' ', $updated->try("ALTER EXTENSION pgscale UPDATE TO '$old_version'")),
    qr/^22023 .*"pgscale" has no update path from version "\Q$new_version\E" to version "\Q$old_version\E"/s, 'there is no way back by a script');
$db->sampler('off');
$_->quit for $updated, $fresh;
@kept = kept();
my @files = map { $node->data_dir . "/pg_stat/pgscale_$_.stat" } qw(sampler sampler_history);
$log = restart(sub {
    # as if the new version kept other things there
    for my $file (@files)
    {
        my ($format, $rest) = unpack 'L a*', substr slurp_file($file), 0, -4;

        write_bytes($file, with_checksum(pack 'L a*', $format + 1, $rest));
    }
    install($old);
});
like($log, qr/ignoring file ".*\Q$_\E": its format is not this version's/, "the old library ignores $_ in a later format") for map { s{.*/}{}r } @files;
is($db->sql(q{SELECT (SELECT count(*) FROM pgscale_internal.wait_profile()), (SELECT count(*) FROM pgscale_internal.wait_history())}), '0|0', 'and begins anew');
is($db->sql($version), "broken|the library has version $old_version, the extension in this database the later $new_version|install the library of version $new_version and restart",
    'health says that the library is too old');
same('old library, new script', @kept);
$fresh = session($node, dbname => 'fresh');
is($fresh->sql('DROP EXTENSION pgscale; CREATE EXTENSION pgscale'), '', 'the old version can be created again');
is($fresh->sql($extension), $old_version, 'which it is');
$fresh->quit;
$log = restart(sub { install($next) });
is($db->sql($version), "working|library and extension have version $new_version|", 'and forth');
same('with the new library again', @kept);
$db->quit;
$node->stop;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP|terminated by signal| XX000 /, 'nothing crashed');
done_testing();
