# Who may read what, and who may act. New views and functions are covered as they come: the catalog is asked for them.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $statements = have_module('pg_stat_statements');
my $node = pgscale_node('main', preload => 'pgscale' . ($statements ? ', pg_stat_statements' : ''));
my $db = session($node);

$db->sql('CREATE EXTENSION pg_stat_statements') if $statements;
$db->sql(<<'EOQ');
CREATE ROLE stranger LOGIN;
CREATE ROLE observer LOGIN IN ROLE pg_monitor;
CREATE ROLE granted LOGIN;
GRANT USAGE ON SCHEMA pgscale, pgscale_internal TO granted;
EOQ

# Every function as a call of all its signature: whether one may call it is decided before the arguments are looked at. Where
# one of a strict function is null, it is never called, nor is its privilege asked for. Parts of an aggregate are called by it alone.
my @views = split /\n/, $db->sql(q{SELECT oid::regclass FROM pg_class
    WHERE relnamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace) AND relkind IN ('v', 'r', 'm', 'p', 'f') ORDER BY 1});
my %acting = map { $_ => 1 } (
    'pgscale.cancel(integer,boolean)', 'pgscale.terminate(integer,boolean,boolean)', 'pgscale.reset(text)', 'pgscale.os_cache_flush(regclass,boolean)', 'pgscale.os_cache_evict(regclass)',
    'pgscale.relocate_all_indexes(name,name,boolean,boolean,text)', 'pgscale.relocate_index(regclass,name,boolean,boolean,text)',
    'pgscale.relocate_indexes(regclass,name,boolean,boolean,text)', 'pgscale.relocate_table(regclass,name,text,interval,boolean)',
    'pgscale.relocate_tablespace(name,name)', 'pgscale.relocation_cancel(bigint)', 'pgscale.relocation_undo(bigint)',
    'pgscale.relocation_plan(name,bigint,interval)', 'pgscale.tablespace_latency(name)',
    'pgscale_internal.relocation_write_rate(oid)',
    'pgscale_internal.relocation_costs(oid,double precision,double precision,double precision,oid[],double precision[],boolean[])',
    'pgscale_internal.relocation_obstacle(oid,boolean,integer)', 'pgscale_internal.relocation_describe_index(oid)',
    'pgscale.trace_summary(integer,interval,interval)', 'pgscale.trace_waits(integer,interval,integer,interval)',
    'pgscale.keep(regclass,double precision)', 'pgscale.fleet_add(text,text)', 'pgscale.fleet_remove(text)', 'pgscale_internal.fleet_validate(text[],oid)',
    'pgscale.verify(bigint,interval)');
# What only the library calls, as a superuser: no role is granted a part of it
my %inner = map { $_ => 1 } grep { /archive_|keep_local|published|require_library/ } split /\n/, $db->sql(q{SELECT oid::regprocedure FROM pg_proc
    WHERE pronamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace)});
$acting{$_} = 1 for keys %inner;
# What only its owner may read
my %hidden = map { $_ => 1 } (
    'pgscale_internal.archive_change', 'pgscale_internal.archive_counter', 'pgscale_internal.archive_query', 'pgscale_internal.archive_setting',
    'pgscale_internal.relocation_job', 'pgscale_internal.tuning_change');
# What this machine may not have
my $numa = $db->sql(q{SELECT state IN ('idle', 'working') FROM pgscale.health WHERE feature = 'numa'}) eq 't';
my %call = map { split /\|/ } split /\n/, $db->sql(q{
    SELECT oid::regprocedure, format('SELECT * FROM %s(%s)', oid::regproc,
           (SELECT string_agg(format('%s::%s', coalesce(CASE WHEN proname ~ '^trace_' AND t = 'interval'::regtype THEN '''1 s''' END, '{"oid": "1", "regclass": "''pg_class''", "boolean": "false", "integer": "1", "bigint": "0", "bigint[]": "''{1}''", "name": "''pg_default''", "text": "''lock''", "double precision": "1",
                        "double precision[]": "''{1}''", "jsonb": "''{}''", "pgscale.usl": "''(,,,,,,,,,,,,,)''"}'::jsonb
                       ->> format_type(t, NULL), 'NULL'), format_type(t, NULL)), ', ' ORDER BY n)
              FROM unnest(proargtypes) WITH ORDINALITY a (t, n)))
      FROM pg_proc WHERE pronamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace) AND prokind = 'f'
       AND 'internal'::regtype <> ALL (proargtypes::oid[]) AND prorettype <> 'trigger'::regtype
       AND (prorettype <> 'record'::regtype OR proargmodes IS NOT NULL)});
is($db->sql(q{SELECT string_agg(oid::regclass::text, ' ') FROM pg_class WHERE relnamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace)
    AND relkind <> 'i' AND has_table_privilege('granted', oid, 'SELECT, INSERT, UPDATE, DELETE, TRUNCATE')}), '',
    'nothing is granted to everybody');

# A role without grants, and one that may use the schema but nothing in it
my %session = map { $_ => session($node, user => $_) } 'stranger', 'granted', 'observer';
for my $role ('stranger', 'granted')
{
    my $session = $session{$role};
    for my $view (@views)
    {
        is(($session->try("SELECT * FROM $view"))[0], '42501', "$role may not read $view");
    }
    for my $function (sort keys %call)
    {
        # these show nothing, and are for whoever may use the schema
        next if $role eq 'granted' && $function =~ /clean_line|clean_statement|foreign_|past_keep|relocation_(?:plan_check|progress|btree_bytes|copy_or_rebuild|copyable|bytes|database_bytes|staying)|past_archive|past_queries|query_waits_text_fits|session_queries|short_locks|statement_texts|three_digits|unidentified_statement|usl_throughput|\.major\(/;
        is(($session->try($call{$function}))[0], '42501', "$role may not call $function");
    }
}

# pg_monitor reads all and acts on nothing.
my $observer = $session{observer};
for my $view (@views)
{
    my ($state, $text) = $observer->try("SELECT count(*) FROM $view");
    my $expected =
        $hidden{$view} ? '42501'
      : $view eq 'pgscale.query_waits' && !$statements ? '55000'
      : $view =~ /numa/ && !$numa ? '0A000'
      : '00000';
    is($state, $expected, 'pg_monitor may' . ($hidden{$view} ? ' not' : '') . " read $view") or diag $text;
}
for my $function (sort keys %call)
{
    my ($state, $text) = $observer->try($call{$function});
    if ($acting{$function})
    {
        is($state, '42501', "pg_monitor may not call $function");
    }
    else
    {
        isnt($state, '42501', "pg_monitor may call $function") or diag $text;
    }
}
for my $function (grep { !$inner{$_} } sort keys %acting)
{
    ok($call{$function}, "$function is there");
    $db->sql("GRANT EXECUTE ON FUNCTION $function TO observer, granted");
    for my $role ('observer', 'granted')
    {
        # it takes pg_monitor, too
        next if $role eq 'granted' && $function =~ /relocation_costs/;
        my ($state, $text) = $session{$role}->try($call{$function});
        isnt($state, '42501', "$role may call $function when granted") or diag $text;
    }
}

# One who was granted just what it takes to read query_waits. The text of queries is another matter.
SKIP:
{
    skip 'this server has no pg_stat_statements', 13 unless $statements;

    $db->sql('GRANT SELECT ON pgscale.query_waits TO granted');
    $db->sql('GRANT EXECUTE ON FUNCTION pgscale.wait_profile(), pgscale.query_waits(), pgscale_internal.query_waits_statements(boolean), pgscale_internal.sampler_stats() TO granted');
    my $granted = $session{granted};
    # again where the sampler had no CPU meanwhile
    my $seen = q{SELECT count(*) FROM pgscale.query_waits() WHERE calls = 1 AND total_time_ms >= 200 AND wait_ms > 100
        AND fraction > 0.5 AND query ~ 'secret|own'};
    until_true(sub {
        $db->sql('SELECT pg_stat_statements_reset()');
        $db->sql('SELECT pgscale.reset($$sampler$$)');
        $db->sql('SELECT pg_sleep(0.2) AS secret');
        $granted->sql('SELECT pg_sleep(0.2) AS own, 1');
        return $db->sql($seen) >= 2;
    });
    my $texts = q{SELECT string_agg(shown, '; ' ORDER BY shown COLLATE "C") FROM
        (SELECT coalesce(nullif(query, '<insufficient privilege>'), 'HIDDEN')
           FROM pgscale.query_waits() WHERE event = 'PgSleep') q (shown)};
    is($db->sql('SELECT bool_and(q.stats_reset = s.stats_reset) FROM pgscale.query_waits q, pgscale.sampler_stats s'), 't', 'since when');
    is($db->sql($texts), 'SELECT pg_sleep($1) AS own, $2; SELECT pg_sleep($1) AS secret', 'a superuser sees all texts');
    is($observer->sql($texts), $db->sql($texts), 'so does a member of pg_monitor, which pg_read_all_stats is in');
    is($granted->sql($texts), 'HIDDEN; SELECT pg_sleep($1) AS own, $2', 'another role sees its own');
    is($granted->sql(q{SELECT count(*) FROM pgscale.query_waits WHERE query LIKE '%secre%'}), 0, 'and no other');
    unlike($granted->sql('SELECT string_agg(w::text, $$ $$) FROM pgscale.query_waits w'), qr/secre/, 'in no column');
    is($db->sql(q{SELECT DISTINCT query FROM pgscale.query_waits WHERE query LIKE '%secre%'}), 'SELECT pg_sleep($1) AS secre',
        'the view shows the beginning of a text');
    is($db->sql(q{SELECT count(*) > 0 FROM pgscale.query_waits() WHERE calls = 1 AND total_time_ms >= 200 AND wait_ms > 100
        AND fraction > 0.5 AND query LIKE '%secret%'}), 't', 'with what pg_stat_statements knows of it');

    # of an old version: the view cannot use it, and says so as health does
    my $health = q{SELECT state, reason, action FROM pgscale.health WHERE feature = 'query_waits'};
    is($db->sql($health), 'working|waits are attributed to queries|', 'health says that it works');
    $db->sql(q{DROP EXTENSION pg_stat_statements; CREATE EXTENSION pg_stat_statements VERSION '1.4'});
    my ($state, $text) = $db->try('SELECT * FROM pgscale.query_waits');
    is($state, '55000', 'pg_stat_statements of an old version');
    like($text, qr/HINT: .*run ALTER EXTENSION pg_stat_statements UPDATE/, 'gets a hint');
    is($db->sql($health), 'off|pg_stat_statements is of an old version in this database|run ALTER EXTENSION pg_stat_statements UPDATE',
        'that health has, too');
    # again where the history has no sample of it
    until_ok(sub {
        $db->sql('SELECT pg_sleep(0.2) AS secret');
        return $db->sql(q{SELECT count(*) > 0 FROM pgscale.top_waits(by => 'query', top => 100) WHERE query LIKE '%secret%'}) eq 't';
    }, 'its texts are of use to top_waits');
}

$node->stop;
done_testing();
