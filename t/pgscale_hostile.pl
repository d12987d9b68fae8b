# Whatever lies first in the search_path of a superuser who calls pgscale or creates it: nothing of that runs. Planted are
# functions, operators, relations and types with the names and the arguments of those in pg_catalog, and operators for pairs of
# types that it has none for, which would be chosen over those that take a conversion; in a schema before pg_catalog and, where
# the server looks there, in pg_temp. Each says so when it is used. All calls of PgscaleCalls are made, from views and with values
# that were bound before: what a caller writes is not pgscale's to guard.
use strict;
use warnings;
use PgscaleCalls;
use PgscaleTest;
use PgscaleWire;
use PostgreSQL::Test::Utils;
use Test::More;

my $bound = 2 * $PostgreSQL::Test::Utils::timeout_default;
my $node = calls_node('main', "log_min_messages = warning\nlog_min_error_statement = panic");

# What a user of the database can leave behind; pg_temp has no functions and operators. Some types cannot be used by a user's
# functions and views: those fail, and are counted below.
sub plant
{
    my ($session, $schema) = @_;
    my $each = sub {
        my $made = shift;
        $session->value("DO \$plant\$ DECLARE made text; BEGIN FOR made IN $made LOOP
            BEGIN EXECUTE made; EXCEPTION WHEN OTHERS THEN NULL; END; END LOOP; END \$plant\$");
    };

    if ($schema eq 'planted')
    {
        $session->value($_) for 'CREATE SCHEMA planted',
          q{CREATE FUNCTION planted.ran(what text) RETURNS boolean LANGUAGE plpgsql AS $$ BEGIN RAISE WARNING 'planted %', what; RETURN true; END $$};
        # one that is called also raises an error, since its body does not return
        $each->(q{SELECT format('CREATE FUNCTION planted.%I(%s) RETURNS %s LANGUAGE plpgsql AS $body$ BEGIN RAISE WARNING %L; END $body$', f.proname,
                pg_get_function_arguments(f.oid), pg_get_function_result(f.oid), 'planted function ' || replace(f.oid::regprocedure::text, '%', '%%'))
            FROM pg_proc f WHERE f.pronamespace = 'pg_catalog'::regnamespace AND f.prokind = 'f'});
        $each->(q{SELECT format('CREATE OPERATOR planted.%s (%s RIGHTARG = %s, FUNCTION = planted.%I)', o.oprname,
                CASE WHEN o.oprleft <> 0 THEN format('LEFTARG = %s,', o.oprleft::regtype) END, o.oprright::regtype, f.proname)
            FROM pg_operator o JOIN pg_proc f ON f.oid = o.oprcode WHERE o.oprnamespace = 'pg_catalog'::regnamespace});
        my $types = q{unnest('{text,name,oid,int4,int8,float8,bool,interval,timestamptz,regclass,jsonb}'::text[])};
        $each->("SELECT format('CREATE FUNCTION planted.pair(%1\$s, %2\$s) RETURNS bool LANGUAGE plpgsql AS \$body\$ BEGIN
                RAISE WARNING ''planted function pair''; RETURN NULL; END \$body\$', l, r) FROM $types l, $types r");
        $each->("SELECT format('CREATE OPERATOR planted.%s (LEFTARG = %s, RIGHTARG = %s, FUNCTION = planted.pair)', o, l, r)
            FROM $types l, $types r, unnest('{=,<>,<,>,<=,>=,+,-,*,/,||}'::text[]) o
            WHERE to_regoperator(format('pg_catalog.%s(%s,%s)', o, l, r)) IS NULL");
    }
    $each->("SELECT format('CREATE VIEW $schema.%1\$I AS SELECT c.* FROM pg_catalog.%1\$I c WHERE (SELECT planted.ran(%2\$L))', c.relname, '$schema.' || c.relname)
        FROM pg_catalog.pg_class c WHERE c.relnamespace = 'pg_catalog'::regnamespace AND c.relkind IN ('r', 'v')");
    $each->("SELECT format('CREATE DOMAIN $schema.%1\$I AS pg_catalog.%1\$I CHECK (planted.ran(%2\$L))', t.typname, '$schema.' || t.typname)
        FROM pg_catalog.pg_type t WHERE t.typnamespace = 'pg_catalog'::regnamespace AND t.typtype = 'b' AND t.typcategory <> 'A'");
    return;
}

# What each answer says of what ran
sub planted { return grep { /planted / } @{ $_[0]{notices} }, $_[0]{message}; }

my $db = wire($node);
is(calls_unknown($db), '', 'of each function of the extension it is known how to call it');
$db->value($_) for 'CREATE DATABASE other', 'ALTER FUNCTION job(bool) SET search_path = pg_catalog', 'ALTER FUNCTION change(bool) SET search_path = pg_catalog',
  'CREATE SCHEMA called';

# Each call as a statement without names that would have to be looked up
my (@calls, @no_view, %answer);
for my $call (calls_known($db))
{
    if ($call->{procedure})
    {
        my $text = $call->{name} =~ s/concat\(64 \+ i % 1000, 'kB'\)/'71kB'/r =~ s/((?:job|change)\(\w+\))/$db->value("SELECT $1") \/\/ 0/egr;
        push @calls, { name => $call->{name}, text => "CALL $text" };
        next;
    }
    my $view = 'called.v' . @calls;
    my $from = $call->{from} =~ s/ q\z//r =~ s/\bi\b/7/gr;
    my $made = $db->run("CREATE VIEW $view AS SELECT q::text AS q FROM $from q");
    # a result of type void has no text
    $made = $db->run("CREATE VIEW $view AS SELECT count(*) AS q FROM $from q") if $made->{state} ne '00000';
    push @no_view, "$call->{name}: $made->{message}" if $made->{state} ne '00000';
    push @calls, { name => $call->{name}, text => "SELECT v.q FROM $view v" };
}
is(join("\n", @no_view), '', 'each can be asked by a view');
cmp_ok(scalar @calls, '>', 200, 'calls');

sub ask
{
    my ($session, $call) = @_;

    $session->send_query($call->{text});
    my $result = $session->finish($bound);
    return $result if $result;
    $db->value('SELECT pg_cancel_backend(' . $session->pid . ')');
    return $session->finish($bound) // die "no answer: $call->{name}";
}

my $plain = wire($node);
$plain->value(q{SET statement_timeout = '5s'});
$answer{ $_->{name} } = ask($plain, $_)->{state} for @calls;

plant($db, 'planted');
my %planted = map { $_->[0] => $_->[1] } @{ $db->run(q{SELECT 'functions', count(*) FROM pg_proc WHERE pronamespace = 'planted'::regnamespace
    UNION ALL SELECT 'operators', count(*) FROM pg_operator WHERE oprnamespace = 'planted'::regnamespace
    UNION ALL SELECT 'views', count(*) FROM pg_class WHERE relnamespace = 'planted'::regnamespace
    UNION ALL SELECT 'types', count(*) FROM pg_type WHERE typnamespace = 'planted'::regnamespace AND typtype = 'd'})->{rows} };
my %least = (functions => 2000, operators => 1500, views => 120, types => 50);
cmp_ok($planted{$_}, '>', $least{$_}, "planted $_") for sort keys %least;
my $hostile = wire($node);
plant($hostile, 'pg_temp');
$hostile->value($_) for q{SET statement_timeout = '5s'}, 'SET search_path = planted, pg_catalog, public';
for ([ q{SELECT now()}, 'function now' ], [ 'SELECT 1 + 1', 'function int4pl' ],
    [ 'SELECT relname - oid FROM pg_catalog.pg_class LIMIT 1', 'function pair' ], [ 'SELECT count(*) FROM pg_class', 'pg_temp.pg_class' ], [ q{SELECT 'x'::text}, 'pg_temp.text' ])
{
    my ($statement, $expected) = @$_;
    like(join(' ', planted($hostile->run($statement))), qr/planted \Q$expected\E/, "what is planted runs in: $statement");
}

my (@ran, @failed);
for my $call (@calls)
{
    my $result = ask($hostile, $call);
    push @ran, "$call->{name}: $_" for planted($result);
    # a planted name may be in the way without running: then another class of errors is the answer
    push @failed, "$call->{name}: $result->{state} $result->{message}"
      if $result->{state} =~ /\A(?:42(?:883|725|P01|70[23]|804|846|601)|2F|XX)/ && $answer{ $call->{name} } ne $result->{state};
}
is(join("\n", @ran), '', 'no call of pgscale runs anything planted');
is(join("\n", @failed), '', 'nor does anything planted make one fail');

### CREATE EXTENSION and DROP EXTENSION, by a superuser who looks there first, in a database of somebody else

my $other = wire($node, dbname => 'other');
plant($other, 'planted');
plant($other, 'pg_temp');
for my $statement ('CREATE EXTENSION pgscale', 'DROP EXTENSION pgscale', 'CREATE EXTENSION pgscale')
{
    my $result = $other->run('SET search_path = planted, pg_catalog', $statement);
    is($result->{state}, '00000', $statement) or diag $result->{message};
    is(join("\n", planted($result)), '', "$statement: nothing planted runs");
}

# What is made has a search_path of its own, or its names are bound.
is($other->value(q{SELECT pg_catalog.string_agg(p.oid::pg_catalog.regprocedure::pg_catalog.text, ' ') FROM pg_catalog.pg_proc p
      JOIN pg_catalog.pg_language l ON l.oid OPERATOR(pg_catalog.=) p.prolang
     WHERE p.pronamespace OPERATOR(pg_catalog.=) ANY (ARRAY['pgscale'::pg_catalog.regnamespace, 'pgscale_internal'::pg_catalog.regnamespace]::pg_catalog.oid[])
       AND l.lanname OPERATOR(pg_catalog.<>) 'c' AND p.prosqlbody IS NULL AND p.prokind OPERATOR(pg_catalog.<>) 'a'
       AND ('search_path=pg_catalog, pg_temp' OPERATOR(pg_catalog.=) ANY (p.proconfig)) IS NOT TRUE}), undef,
    'each function whose body is a text has a search_path');
$_->quit for $db, $plain, $hostile, $other;
unlike(slurp_file($node->logfile), qr/WARNING: +planted (?!function (?:now|int4pl|pair)\b|pg_temp\.(?:pg_class|text))/, 'nor in any other process');
$node->stop;
done_testing();
