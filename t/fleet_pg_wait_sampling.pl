# The views of pg_wait_sampling, made of pgscale's: what they show, who may read them, and what somebody has put in their place.
use strict;
use warnings;
use IPC::Run;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main');
my $db = session($node);
my $script = (qx(pg_config --sharedir) =~ s/\n//r) . '/extension/pgscale_pg_wait_sampling--1.0.sql';
my $objects = q{SELECT count(*) FROM pg_depend d WHERE d.refclassid = 'pg_namespace'::regclass AND d.refobjid = 'public'::regnamespace};

sub run_script
{
    my (@option) = @_;
    my $done = IPC::Run::run([ 'psql', '-Xq', @option, '-d', $node->connstr('postgres'), '-f', $script ], '>&', \my $said);

    return $done ? '' : $said;
}

### What is in the way

$db->sql('CREATE ROLE mallory; GRANT CREATE ON SCHEMA public TO mallory; CREATE TABLE called (); GRANT INSERT ON called TO mallory');
$db->sql(<<'EOQ');
SET ROLE mallory;
CREATE FUNCTION public.pg_wait_sampling_get_profile(i int DEFAULT 1) RETURNS SETOF int LANGUAGE sql AS 'INSERT INTO public.called DEFAULT VALUES; SELECT 1';
CREATE FUNCTION public.sum(bigint) RETURNS bigint LANGUAGE sql AS 'INSERT INTO public.called DEFAULT VALUES; SELECT 1::bigint';
CREATE FUNCTION public.set_config(text, text, bool) RETURNS text LANGUAGE sql AS 'INSERT INTO public.called DEFAULT VALUES; SELECT $1';
CREATE FUNCTION public.same(name, text) RETURNS bool LANGUAGE plpgsql AS $$ BEGIN INSERT INTO public.called DEFAULT VALUES; RETURN true; END $$;
CREATE OPERATOR public.= (LEFTARG = name, RIGHTARG = text, FUNCTION = public.same);
RESET ROLE;
ALTER ROLE CURRENT_USER SET search_path = public, pg_catalog;
EOQ
my $before = $db->sql($objects);
like(run_script(), qr/there is an object "pg_wait_sampling_get_profile" in schema "public" already/, 'a name that is taken');
is($db->sql($objects), $before, 'nothing is made');
$db->sql('DROP FUNCTION public.pg_wait_sampling_get_profile(int); CREATE DATABASE bare');
ok(!IPC::Run::run([ 'psql', '-Xq', '-d', $node->connstr('bare'), '-f', $script ], '>&', \my $said), 'without pgscale');
like($said, qr/the extension pgscale is not installed/, 'it says so');

### What it shows

is(run_script(), '', 'it runs beside what else is planted') or die;
my $sleeper = session($node);
$sleeper->start('SELECT pg_sleep(600)');
$db->poll_ok(q{SELECT count > 5 AND queryid <> 0 AND pid = 0 FROM public.pg_wait_sampling_profile WHERE event = 'PgSleep'}, 'a profile');
is($db->sql(q{SELECT pid, event_type, event, queryid <> 0 FROM public.pg_wait_sampling_current WHERE event = 'PgSleep'}), $sleeper->pid . '|Timeout|PgSleep|t',
    'what is waited for now');
$db->poll_ok('SELECT count(*) > 0 FROM public.pg_wait_sampling_history WHERE pid = ' . $sleeper->pid . q{ AND event = 'PgSleep' AND ts <= now()}, 'a history');
is($db->sql('SELECT event FROM public.pg_wait_sampling_get_current(' . $sleeper->pid . ')'), 'PgSleep', 'functions have the same');
is($db->sql(q{SELECT count(*) > 0 FROM public.pg_wait_sampling_get_profile() WHERE event = 'PgSleep'}), 't', 'for all');
is($db->sql(q{SELECT string_agg(format('%s %s', attname, format_type(atttypid, NULL)), ', ' ORDER BY attnum) FROM pg_attribute
    WHERE attrelid = 'public.pg_wait_sampling_profile'::regclass AND attnum > 0}), 'pid integer, event_type text, event text, queryid bigint, count bigint', 'its columns');

# All of it, when nothing moves any more; of the CPU, too, which has no name there
$db->sql('SELECT count(*) FROM generate_series(1, 100000)');
$db->poll_ok(q{SELECT count(*) > 0 FROM public.pg_wait_sampling_profile WHERE event_type IS NULL AND event IS NULL AND count > 0}, 'the CPU has no name');
$db->sampler('off');
my %same = (
    profile => q{SELECT 0, CASE WHEN event_type <> 'CPU' THEN event_type END, CASE WHEN event_type <> 'CPU' THEN event END, coalesce(queryid, 0), pg_catalog.sum(samples)
        FROM pgscale_internal.wait_profile() GROUP BY 2, 3, 4},
    history => q{SELECT pid, sampled_at, CASE WHEN event_type <> 'CPU' THEN event_type END, CASE WHEN event_type <> 'CPU' THEN event END, coalesce(queryid, 0)
        FROM pgscale_internal.wait_history()});
for my $of (sort keys %same)
{
    for my $from ("pg_wait_sampling_$of", "pg_wait_sampling_get_$of()")
    {
        is($db->sql("SELECT (SELECT count(*) > 0 FROM public.$from), (SELECT count(*) FROM
            ((TABLE public.pg_wait_sampling_$of EXCEPT ALL $same{$of}) UNION ALL ($same{$of} EXCEPT ALL SELECT * FROM public.$from)) d)"), 't|0', "$from is pgscale's");
    }
}
$db->sql('SELECT public.pg_wait_sampling_reset_profile()');
is($db->sql('SELECT count(*) FROM public.pg_wait_sampling_profile'), 0, 'a reset empties it');
$db->sampler('on');
is($db->sql('SELECT count(*) FROM called'), 0, 'nothing planted was called');
like(run_script(), qr/already/, 'it is not made twice');
$db->sql('CREATE SCHEMA "Other one"');
is(run_script('-v', 'schema=Other one'), '', 'but in another schema');
is($db->sql('SELECT count(*) > 0 FROM "Other one".pg_wait_sampling_profile'), 't', 'where it shows the same');

### Who may read it

$db->sql('CREATE ROLE stranger LOGIN; CREATE ROLE observer LOGIN IN ROLE pg_monitor');
my ($stranger, $observer) = map { session($node, user => $_) } qw(stranger observer);
for my $object (qw(pg_wait_sampling_profile pg_wait_sampling_history pg_wait_sampling_current pg_wait_sampling_get_profile()))
{
    is(($stranger->try("SELECT * FROM public.$object"))[0], '42501', "not everybody: $object");
    is(($observer->try("SELECT * FROM public.$object"))[0], '00000', "pg_monitor: $object");
}
is(($observer->try('SELECT public.pg_wait_sampling_reset_profile()'))[0], '42501', 'who may read may not reset');

$_->quit for $stranger, $observer, $db;
$node->stop;
done_testing();
