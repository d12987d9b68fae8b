# Answers are not the caller's: a session whose own settings are odd gets the answers that one without any gets, and an extension
# that was created with them is the same. A fifth of the calls, by a seed that is printed and new each day; all with
# PGSCALE_TEST_FULL.
use strict;
use warnings;
use PgscaleCalls;
use PgscaleTest;
use PgscaleWire;
use Test::More;

my $node = calls_node('main', "log_min_messages = fatal\npgscale.sampler_period = 100ms");
my $db = wire($node);

# None of them is pgscale's. German dates would be in the text of a report, too; so they are ISO's, with days first.
my %odd = (
    array_nulls => 'off', backslash_quote => 'off', bytea_output => 'escape', check_function_bodies => 'off', client_encoding => 'LATIN1',
    constraint_exclusion => 'on', cursor_tuple_fraction => '0', DateStyle => 'ISO, DMY',
    debug_parallel_query => 'on', force_parallel_mode => 'on', default_text_search_config => 'german', default_transaction_deferrable => 'on',
    default_transaction_isolation => 'serializable', escape_string_warning => 'off', extra_float_digits => '-15', from_collapse_limit => '1',
    geqo_threshold => '2', gin_fuzzy_search_limit => '1', IntervalStyle => 'iso_8601', join_collapse_limit => '1', lc_messages => 'C',
    lc_monetary => 'C', lc_numeric => 'C', lc_time => 'C', lo_compat_privileges => 'on', plan_cache_mode => 'force_generic_plan',
    'plpgsql.extra_errors' => 'all', 'plpgsql.variable_conflict' => 'use_variable', quote_all_identifiers => 'on', row_security => 'off',
    search_path => '', standard_conforming_strings => 'off', stats_fetch_consistency => 'none', synchronize_seqscans => 'off',
    timezone_abbreviations => 'India', transform_null_equals => 'on',
    work_mem => '64kB', xmlbinary => 'hex', xmloption => 'document');
my @there = map { $_->[0] } @{ $db->run(q{SELECT name FROM pg_settings UNION SELECT 'plpgsql.extra_errors' UNION SELECT 'plpgsql.variable_conflict' ORDER BY 1})->{rows} };
my @enable = grep { /^enable_/ && !/enable_(?:sort|hashagg|nestloop)$/ } @there;
my %known = map { $_ => 1 } @there;
delete @odd{ grep { !$known{$_} } keys %odd };
# PostgreSQL 19 has no other strings
delete $odd{standard_conforming_strings} if $db->value('SHOW server_version_num') >= 190000;
$odd{$_} = 'off' for @enable;
cmp_ok(scalar keys %odd, '>', 50, 'odd settings');
my @odd = map { "SET $_ = '$odd{$_}'" } sort keys %odd;
my $seed = $ENV{PGSCALE_SETTINGS_SEED} // int(time / 86400);
note "PGSCALE_SETTINGS_SEED=$seed";
srand $seed;

# Those that can be asked again and again, and name no relation as regclass does; of a report its parts. A node's state is that of
# the fleet's session. No worker is at work.
$db->value($_) for 'ALTER SYSTEM SET pgscale.sampler = off', 'ALTER SYSTEM SET pgscale.sweeper = off', 'ALTER SYSTEM SET pgscale.writeback = off', 'SELECT pg_reload_conf()';
until_ok(sub { $db->value(q{SELECT count(*) FROM pgscale.relocation_jobs WHERE finished_at IS NULL}) == 0 }, 'no job is open');
until_ok(sub { $db->value('SELECT period_ms IS NULL OR period_ms = 0 FROM pgscale_internal.sampler_stats()') eq 't' }, 'the sampler is off');
my $not = qr/\breset\(|part_settings|archive_|keep_local|keep\(|kept_relations|relocat|_latency|fleet_|os_cache_|numa_buffers|node_state|node_minutes
    |trace_(?:waits|summary)|usl_fit\(n|change\(|report(?:_diff)?\(/x;
my @calls = grep { !$_->{procedure} && $_->{name} !~ $not } calls_known($db);
cmp_ok(scalar @calls, '>', 90, 'functions and views');
@calls = grep { rand() < 1 / 5 } @calls unless $ENV{PGSCALE_TEST_FULL};

# Executed with these settings, and shown without: the rows of a cursor are kept.
sub answer
{
    my ($call, @settings) = @_;
    my $from = $call->{from} =~ s/\bi\b/7/gr =~ s/'(t|p)'/'public.$1'/r;
    my $result = $db->run(@settings, "DECLARE c CURSOR WITH HOLD FOR SELECT * FROM $from");

    $db->run('RESET ALL');
    return "$result->{state} $result->{message}" if $result->{state} ne '00000';
    $result = $db->run('FETCH ALL FROM c');
    $db->run('CLOSE c');
    # the last digits of a sum are of the order in which it is made, which is up to the plan
    return join "\n", sort map { join '|', map { ($_ // 'NULL') =~ s/(\d\.\d{12})\d+/$1/gr } @$_ } @{ $result->{rows} };
}

# Of an answer that changes by itself all but the figures is compared.
sub shape { return $_[0] =~ s/[0-9][0-9.,:e+]*/N/gr; }

my ($compared, @bad) = (0);
for my $call (@calls)
{
    my $before = answer($call);
    my ($with, $after, $same);
    for my $try (1 .. 5)
    {
        ($with, $after) = (answer($call, @odd, 'SET default_transaction_read_only = on'), answer($call));
        my ($old, $new) = (shape($before), shape($after));
        $same = $before eq $after ? $with eq $after : $old eq $new ? shape($with) eq $new : $with !~ /^[0-9A-Z]{5} [a-z]/;
        $compared++ if $try == 1 && $old eq $new;
        $before = $after;
        last if $same;
    }
    next if $same;
    my @by = grep { answer($call, $_) ne $after } @odd, 'SET default_transaction_read_only = on';
    push @bad, "$call->{from}, by @by: $with\n  and not: $after";
}
is(scalar @bad, 0, 'each answers as without them') or diag map { substr($_, 0, 2000) . "\n" } @bad;
cmp_ok($compared, '>', @calls / 2, 'more than half of which are comparable');

# An extension that a session with such settings, or a database with them, creates
my $definitions = q{SELECT string_agg(d, E'\n' ORDER BY d) FROM (
    SELECT pg_get_functiondef(p.oid) FROM pg_proc p WHERE p.pronamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace) AND p.prokind <> 'a'
    UNION ALL SELECT concat(c.relname, pg_get_viewdef(c.oid)) FROM pg_class c WHERE c.relnamespace = 'pgscale'::regnamespace AND c.relkind = 'v'
    UNION ALL SELECT concat(adrelid::regclass, pg_get_expr(adbin, adrelid)) FROM pg_attrdef JOIN pg_class c ON c.oid = adrelid WHERE c.relnamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace)
    UNION ALL SELECT concat(conrelid::regclass, pg_get_constraintdef(oid)) FROM pg_constraint WHERE connamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace)
    UNION ALL SELECT concat(d.objoid::regclass, d.objsubid, d.description) FROM pg_description d JOIN pg_class c ON c.oid = d.objoid WHERE c.relnamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace)
    ) d (d)};
my $expected = $db->value($definitions);
$db->value('CREATE DATABASE odd');
$db->value('ALTER DATABASE odd ' . $_) for grep { !/client_encoding/ } @odd;
my $odd = wire($node, dbname => 'odd');
is($odd->value('SHOW array_nulls'), 'off', 'a database with odd settings');
$odd->value('CREATE EXTENSION pgscale');
$odd->value('ALTER DATABASE odd RESET ALL');
$odd->quit;
$odd = wire($node, dbname => 'odd');
is($odd->value($definitions) eq $expected, 1, 'has the same extension')
  or diag map { "$_\n" } grep { index($expected, $_) < 0 } split /\n/, $odd->value($definitions);
$odd->quit;
$db->quit;
$node->stop;
done_testing();
