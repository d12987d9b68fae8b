# Who may read what, and who may act. New views and functions are covered as they come: the catalog is asked for them. What
# is granted to whom is in expected/privileges.out; here is whether what is granted is enough, and that nothing acts that is
# not.
use strict;
use warnings;
use PgscaleTest;
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

-- what an object's use ends with, for each of these
CREATE FUNCTION public.outcomes(statements text[]) RETURNS TABLE (statement text, state text) LANGUAGE plpgsql AS $$
BEGIN
    FOREACH statement IN ARRAY statements LOOP
        BEGIN
            EXECUTE statement;
            state := '00000';
        EXCEPTION WHEN OTHERS THEN
            state := SQLSTATE;
        END;
        RETURN NEXT;
    END LOOP;
END $$;
-- all objects and how they are used. A function is called by all of its signature: whether one may call it is decided before the
-- arguments are looked at. Where one of a strict function is null, it is never called, nor is its privilege asked for. Parts of an
-- aggregate are called by it alone.
CREATE TABLE public.object AS
SELECT oid::regclass::text AS name, true AS is_view, format('SELECT count(*) FROM %s', oid::regclass) AS use
  FROM pg_class
 WHERE relnamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace) AND relkind IN ('v', 'r', 'm', 'p', 'f')
UNION ALL
SELECT oid::regprocedure::text, false,
       format('SELECT * FROM %s(%s)', oid::regproc,
              (SELECT string_agg(format('%s::%s', coalesce(CASE WHEN proname ~ '^trace_'
                  AND t = 'interval'::regtype THEN '''1 s''' END,
                          '{"oid": "1", "regclass": "''pg_class''", "boolean": "false", "integer": "1", "bigint": "0",
                            "bigint[]": "''{1}''", "name": "''pg_default''", "text": "''lock''", "double precision": "1",
                            "double precision[]": "''{1}''", "jsonb": "''{}''", "pgscale.usl": "''(,,,,,,,,,,,,,)''"}'::jsonb
                          ->> format_type(t, NULL), 'NULL'), format_type(t, NULL)), ', ' ORDER BY n)
                 FROM unnest(proargtypes) WITH ORDINALITY a (t, n)))
  FROM pg_proc
 WHERE pronamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace) AND prokind = 'f'
   AND 'internal'::regtype <> ALL (proargtypes::oid[]) AND prorettype <> 'trigger'::regtype
   AND (prorettype <> 'record'::regtype OR proargmodes IS NOT NULL);
GRANT SELECT ON public.object TO PUBLIC;
EOQ

# What acts, and what only its owner may read; and what only the library calls, as a superuser: no role is granted a part of that
my $acting = qr/^pgscale\.(?:cancel|terminate|reset|os_cache_flush|os_cache_evict|relocate_\w+|relocation_(?:cancel|undo|plan)
    |tablespace_latency|trace_summary|trace_waits|keep|fleet_add|fleet_remove|verify)\(
    |^pgscale_internal\.(?:relocation_(?:write_rate|costs|obstacle|describe_index)|fleet_validate)\(/x;
my $hidden = qr/^pgscale_internal\.(?:archive_(?:change|pull|query|setting)|relocation_job|tuning_change)$/;
# but for what a node answers with
my $inner = qr/archive_(?!(?:counters|io|longest|node_ids|settings_now|sources)\()\w*\(|keep_local|published|require_library/;
# What this machine may not have
my $numa = $db->sql(q{SELECT state IN ('idle', 'working') FROM pgscale.health WHERE feature = 'numa'}) eq 't';

# The outcome of each object's use by a role: [name, is it a view?, SQLSTATE]
sub outcomes
{
    my ($session, $objects) = @_;

    return map { [ split /\|/ ] } split /\n/, $session->sql("SET client_min_messages = error;
        SELECT name, is_view, state FROM public.object
            JOIN public.outcomes((SELECT array_agg(use) FROM public.object WHERE $objects)) ON statement = use");
}
my %session = map { $_ => session($node, user => $_) } 'stranger', 'granted', 'observer';

is(join(' ', map { $_->[0] } grep { $_->[2] ne '42501' } outcomes($session{stranger}, 'true')), '',
    'a role without grants reaches nothing');
my @granted = outcomes($session{granted}, 'is_view');
is(join(' ', map { $_->[0] } grep { $_->[2] ne '42501' } @granted), '', 'one that may use the schema reads no view');
@granted = map { $_->[0] } grep { $_->[2] ne '42501' } outcomes($session{granted}, "NOT is_view");
is(join(' ', grep { /$acting|$inner/ && !/past_archive/ } @granted), '', 'and calls nothing that acts');

# pg_monitor reads all and acts on nothing.
my (@views, @functions);
push @{ $_->[1] eq 't' ? \@views : \@functions }, $_ for outcomes($session{observer}, 'true');
cmp_ok(scalar @views, '>', 30, 'views');
cmp_ok(scalar @functions, '>', 100, 'functions');
is(join(' ', map { "$_->[0]:$_->[2]" } grep {
        $_->[2] ne ($_->[0] =~ $hidden ? '42501'
            : $_->[0] eq 'pgscale.query_waits' && !$statements ? '55000'
            : $_->[0] =~ /numa/ && !$numa ? '0A000' : '00000') } @views), '',
    'pg_monitor reads all views, but for those of the owner');
is(join(' ', map { $_->[0] } grep {
        ($_->[2] eq '42501') != (($_->[0] =~ $acting || $_->[0] =~ $inner && $_->[0] !~ /past_archive/) ? 1 : 0) } @functions), '',
    'and calls all functions that do not act');

# What acts may be granted, and nothing more is needed.
my @acting = grep { /$acting/ } map { $_->[0] } @functions;
cmp_ok(scalar @acting, '>', 20, 'functions that act');
$db->sql("GRANT EXECUTE ON FUNCTION $_ TO observer, granted") for @acting;
my $act = 'name IN (' . join(', ', map { "'$_'" } @acting) . ')';
for my $role ('observer', 'granted')
{
    # costs take pg_monitor, too
    is(join(' ', map { $_->[0] } grep { $_->[2] eq '42501' && ($role eq 'observer' || $_->[0] !~ /relocation_costs/) }
            outcomes($session{$role}, $act)), '', "$role may call when granted what acts");
}

# One who was granted just what it takes to read query_waits. The text of queries is another matter.
SKIP:
{
    skip 'this server has no pg_stat_statements', 11 unless $statements;

    $db->sql('GRANT SELECT ON pgscale.query_waits TO granted;
        GRANT EXECUTE ON FUNCTION pgscale_internal.wait_profile(), pgscale_internal.query_waits(),
            pgscale_internal.query_waits_statements(boolean), pgscale_internal.sampler_stats() TO granted');
    my ($granted, $observer) = @session{ 'granted', 'observer' };
    # again where the sampler had no CPU meanwhile
    in_time_ok(sub {
        $db->sql('SELECT pg_stat_statements_reset(); SELECT pgscale.reset($$sampler$$)');
        $db->sql('SELECT pg_sleep(0.2) AS secret');
        $granted->sql('SELECT pg_sleep(0.2) AS own, 1');
        return $db->sql(q{SELECT count(*) FROM pgscale.query_waits WHERE calls = 1 AND total_time_ms >= 200 AND wait_ms > 100
            AND fraction > 0.5 AND full_query ~ 'secret|own'}) >= 2;
    }, 'query_waits has what pg_stat_statements knows of a query');
    my $texts = q{SELECT string_agg(shown, '; ' ORDER BY shown COLLATE "C") FROM
        (SELECT coalesce(nullif(full_query, '<insufficient privilege>'), 'HIDDEN')
           FROM pgscale.query_waits WHERE event = 'PgSleep') q (shown)};
    is($db->sql('SELECT bool_and(q.stats_reset = s.stats_reset) FROM pgscale.query_waits q, pgscale.sampler_stats s'), 't',
        'since when');
    is($db->sql($texts), 'SELECT pg_sleep($1) AS own, $2; SELECT pg_sleep($1) AS secret', 'a superuser sees all texts');
    is($observer->sql($texts), $db->sql($texts), 'so does a member of pg_monitor, which pg_read_all_stats is in');
    is($granted->sql($texts), 'HIDDEN; SELECT pg_sleep($1) AS own, $2', 'another role sees its own');
    unlike($granted->sql('SELECT string_agg(w::text, $$ $$) FROM pgscale.query_waits w'), qr/secre/,
        'and no other, in no column of the view');
    is($db->sql(q{SELECT DISTINCT query FROM pgscale.query_waits WHERE query LIKE '%secre%'}), 'SELECT pg_sleep($1) AS secre',
        'the view shows the beginning of a text');

    # of an old version: the view cannot use it, and says so as health does
    my $health = q{SELECT state, reason, action FROM pgscale.health WHERE feature = 'query_waits'};
    is($db->sql($health), 'working|waits are attributed to queries|', 'health says that it works');
    $db->sql(q{DROP EXTENSION pg_stat_statements; CREATE EXTENSION pg_stat_statements VERSION '1.4'});
    my ($state, $text) = $db->try('SELECT * FROM pgscale.query_waits');
    like("$state $text", qr/^55000 .*HINT: .*run ALTER EXTENSION pg_stat_statements UPDATE/s,
        'pg_stat_statements of an old version gets a hint');
    is($db->sql($health),
        'off|pg_stat_statements is of an old version in this database|run ALTER EXTENSION pg_stat_statements UPDATE',
            'that health has, too');
    # again where the history has no sample of it
    in_time_ok(sub {
        $db->sql('SELECT pg_sleep(0.2) AS secret');
        return $db->sql(q{SELECT count(*) > 0 FROM pgscale.top_waits(by => 'query', top => 100)
            WHERE query LIKE '%secret%'}) eq 't';
    }, 'its texts are of use to top_waits');
}

$node->stop;
done_testing();
