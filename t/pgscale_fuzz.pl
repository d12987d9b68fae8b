# Calls of all functions, procedures, aggregates and views of the extension with senseless arguments, in all contexts. Whatever they
# answer, they must not: end the server, raise an internal error (XX000) or one of an unexpected class, go on after they were
# cancelled, leave the session other than it was, or gather memory and files. t/pgscale_hostile.pl has what is planted for them.
#
#     PGSCALE_FUZZ_CALLS=100000 PGSCALE_FUZZ_SEED=7 make test REGRESS= TAP=t/pgscale_fuzz.pl
#
# What there is to call, and with which types, comes from the catalog. The same seed makes the same calls, though not the same
# moments of their timeouts. Each day has a seed of its own, which is printed, and a fifth of the calls: all of them with
# PGSCALE_TEST_FULL. PGSCALE_FUZZ_SHOW=2 notes each call before it is made.
# Runs on each major.
use strict;
use warnings;
use PgscaleCalls;
use PgscaleTest;
use PgscaleWire;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes ();

my $full = $ENV{PGSCALE_TEST_FULL};
my $calls = $ENV{PGSCALE_FUZZ_CALLS} || ($full ? 2200 : 450);
my $seed = $ENV{PGSCALE_FUZZ_SEED} // int(time / 86400);
my $bound = 2 * $PostgreSQL::Test::Utils::timeout_default;
my $slow = 5;
srand $seed;
note "PGSCALE_FUZZ_SEED=$seed PGSCALE_FUZZ_CALLS=$calls";

my $node = calls_node('main', <<'EOC');
log_min_messages = warning
log_min_error_statement = panic
pgscale.sampler_history_size = 1000
pgscale.sampler_history_period = 1
pgscale.sampler_profile_size = 500
max_prepared_transactions = 5
EOC
my $db = wire($node);
my $parallel = $db->value(q{SELECT name FROM pg_settings WHERE name IN ('debug_parallel_query', 'force_parallel_mode')});
is(calls_unknown($db), '', 'of each function of the extension it is known how to call it');

# Relations of all kinds, roles of all kinds
$db->value($_) for (
    'CREATE ROLE observer LOGIN IN ROLE pg_monitor',
    'CREATE ROLE stranger LOGIN',
    'CREATE ROLE granted LOGIN IN ROLE pg_monitor',
    'GRANT USAGE ON SCHEMA pgscale, pgscale_internal TO granted',
    'GRANT EXECUTE ON ALL ROUTINES IN SCHEMA pgscale, pgscale_internal TO granted',
    'CREATE SCHEMA "Odd ""name"" \'; --"',
    'CREATE TABLE "Odd ""name"" \'; --"."Tab,le" ("a b" int PRIMARY KEY)',
    'CREATE TABLE empty ()',
    'CREATE UNLOGGED TABLE unlogged (a int PRIMARY KEY)',
    'CREATE SEQUENCE seq',
    'CREATE VIEW v AS SELECT 1 AS a',
    'CREATE MATERIALIZED VIEW m AS SELECT 1 AS a',
    'CREATE TYPE composite AS (a int)',
    'CREATE INDEX expr ON t ((a + 1)) WHERE a > 10',
    'CREATE TABLE excl (r int4range, EXCLUDE USING gist (r WITH &&))',
    'CREATE TABLE child (c text) INHERITS (t)',
    'CREATE TABLE secret (a int PRIMARY KEY)',
    'ALTER TABLE secret OWNER TO stranger',
    'CREATE DATABASE other',
    'CREATE TABLE dropped (a int)');
my $dropped = $db->value(q{SELECT 'dropped'::regclass::oid});
$db->value('DROP TABLE dropped');
my $other = wire($node, dbname => 'other');
$other->value('CREATE EXTENSION pgscale');
# so that calls by known arguments find there what they find here
$other->value($_) for ('CREATE TABLE t (a int PRIMARY KEY)', 'CREATE TABLE p (a int PRIMARY KEY)',
    q{CREATE FUNCTION job(bool) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'},
    q{CREATE FUNCTION change(bool) RETURNS bigint LANGUAGE sql AS 'SELECT 1::bigint'});
# A worker that makes a partition meanwhile changes the catalog's rows of these tables, and who comes second is refused.
until_ok(sub { $db->run('GRANT SELECT ON ALL TABLES IN SCHEMA pgscale, pgscale_internal TO granted')->{state} eq '00000' }, 'all tables can be granted');

# Values by type, as text; undef is NULL. For a type that is not here there are NULL and texts.
my $tables = $db->value(q{SELECT string_agg(oid::text, ' ' ORDER BY oid) FROM pg_class
    WHERE relnamespace = 'public'::regnamespace OR relkind = 't' OR oid IN ('pg_class'::regclass, 'pg_database'::regclass,
        'pg_class_oid_index'::regclass, 'pg_stat_activity'::regclass, 'pgscale_internal.tuning_change'::regclass)});
my @texts = (
    '', ' ', 'x', 'work_mem', 'Work_Mem', 'shared_buffers', 'pgscale.sampler_period', 'pgscale.sweeper', 'pgscale.writeback',
    'search_path', 'role', 'session_authorization', 'data_directory', 'no.such', 'no_such', 'random_page_cost', 'wal_level',
    'log_line_prefix', 'synchronous_standby_names', '1MB', '4096', '-1', 'on', 'off', 'NaN', 'Infinity', '1e400',
    '99999999999999999999', 'lock', 'online', "a'b", 'a"b', "a\nb", "a\\b", '%s%n%d', '$1', ';--', "\x{e9}\x{4e2d}\x{1f600}",
    'x' x 64, 'x' x 70000, "'; DROP TABLE t; --", '{}', '(', 'pg_default', 'there', 'pg_global', 'json', 'NULL', 'default', 'true');
my %values = (
    boolean => [qw(t f)],
    smallint => [qw(0 1 -1 32767 -32768)],
    integer => [qw(0 1 -1 2 7 100 65536 2147483647 -2147483648), 1 << 30],
    bigint => [qw(0 1 -1 2 3 10 100 1000000000 9223372036854775807 -9223372036854775808), 1 << 32],
    'double precision' => [qw(0 -0 1 -1 0.5 2 10 1e308 -1e308 1e-308 4.9e-324 NaN Infinity -Infinity 1e15)],
    numeric => [qw(0 1 -1 NaN Infinity -Infinity 1e1000 1e-1000)],
    text => \@texts,
    name => [ map { substr $_, 0, 63 } @texts ],
    '"char"' => [ '', 'a', "\xff" ],
    bytea => [ '', '\x00', '\xdeadbeef', '\x' . '00' x 10000 ],
    oid => [ qw(0 1 1259 1262 4294967295 2147483648), $dropped, split / /, $tables ],
    regclass => [
        qw(0 1 4294967295 t p t_pkey p_pkey pg_class pg_class_oid_index v m seq empty unlogged excl excl_r_excl expr composite),
        qw(child secret temp temp_pkey no_such), 'pg_toast.pg_toast_1255', '"Odd ""name"" \'; --"."Tab,le"', $dropped, split / /, $tables ],
    regrole => [qw(0 stranger observer 4294967295)],
    'timestamp with time zone' => [ qw(infinity -infinity epoch now), '4714-11-24 BC', '294276-12-31', '2001-02-03' ],
    interval => [ '0', '1 ms', '1 us', '-1 s', '1 s', '10 s', '10 min', '1 hour', '1 day', '1 mon', '1 mon -30 days',
        '-1 mon 31 days', '178000000 years', '-178000000 years', '1 mon -2592000 s', '2562047788:00:54',
        '0.0000001 s', '1 year 2 mons -3 days 04:05:06.789', '596523 h', '25 days' ],
    jsonb => [ '{}', '[]', 'null', '1', '{"a":[1,{"b":null}]}', '[' x 200 . ']' x 200, '"' . 'x' x 10000 . '"' ],
    xid => [qw(0 1 3 4294967295)],
    pg_lsn => [qw(0/0 FFFFFFFF/FFFFFFFF 0/1)],
    uuid => ['00000000-0000-0000-0000-000000000000'],
    inet => ['::1']);

sub one { return $_[ int rand @_ ] }

# A backend's process, a sampler's, the postmaster and nobody's
push @{ $values{integer} }, $db->pid, $db->value(q{SELECT min(pid) FROM pg_stat_activity WHERE backend_type LIKE 'pgscale%'}),
  (split /\n/, slurp_file($node->data_dir . '/postmaster.pid'))[0];

my %attributes;    # of composite types: their attributes' types
my %elements;      # of arrays
for my $row (@{ $db->run(q{SELECT format_type(t.oid, NULL), format_type(nullif(typelem, 0), NULL),
        (SELECT string_agg(format_type(atttypid, NULL), ';' ORDER BY attnum) FROM pg_attribute WHERE attrelid = typrelid AND attnum > 0)
      FROM pg_type t WHERE t.oid IN (SELECT unnest(proargtypes) FROM pg_proc WHERE pronamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace))})->{rows} })
{
    $elements{ $row->[0] } = $row->[1] if defined $row->[1] && $row->[0] =~ /\[\]\z/;
    $attributes{ $row->[0] } = [ split /;/, $row->[2] ] if defined $row->[2];
}

sub value_of
{
    my $type = shift;

    return undef if rand() < 0.08;
    if (my $element = $elements{$type})
    {
        my $size = one(0, 1, 2, 3, 3, 5, 8, 8, 20, 20000);
        return '{' . join(',', map { $_ % 7 + 1 } 1 .. $size) . '}' if $size > 100;
        my @items = map { my $item = value_of($element); defined $item ? '"' . $item =~ s/(["\\])/\\$1/gr . '"' : 'NULL' } 1 .. $size;
        return '{{' . join(',', @items) . '},{' . join(',', @items) . '}}' if $size && rand() < 0.2;
        return '[5:' . (4 + $size) . ']={' . join(',', @items) . '}' if $size && rand() < 0.2;
        return '{' . join(',', @items) . '}' if rand() < 0.5;
        return '{' . join(',', map { abs $_ % 50 + 1 } 1 .. $size) . '}';
    }
    if (my $attributes = $attributes{$type})
    {
        my @items = map { my $item = value_of($_); defined $item ? '"' . $item =~ s/(["\\])/$1$1/gr . '"' : '' } @$attributes;
        return '(' . join(',', @items) . ')';
    }
    return one(@{ $values{$type} }) if $values{$type};
    return undef if rand() < 0.5;
    return one(@texts);
}

sub literal
{
    my ($value, $type) = @_;

    return 'NULL' if $type eq 'internal';
    return "NULL::$type" unless defined $value;
    return ($value =~ /\\/ ? 'E' : '') . "'" . $value =~ s/(['\\])/$1$1/gr . "'::$type";
}

# What there is to call
my @targets;
for my $row (@{ $db->run(q{SELECT p.oid::regproc, prokind, pronargdefaults,
        (SELECT string_agg(format_type(t, NULL), ';' ORDER BY n) FROM unnest(proargtypes) WITH ORDINALITY a (t, n)),
        array_to_string(proargnames[:pronargs], ';', '')
      FROM pg_proc p WHERE pronamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace) ORDER BY proname, pg_get_function_identity_arguments(oid)})->{rows} })
{
    my ($name, $kind, $defaults, $types, $names) = @$row;
    next if $name eq 'pgscale.terminate';    # it would end this test's own sessions
    push @targets, { name => $name, kind => $kind, defaults => $defaults, types => [ split /;/, $types // '' ],
        names => [ split /;/, $names // '' ] };
}
my @known = calls_known($db);
push @targets, map { { name => $_->{name}, kind => 'v', types => [] } } grep { $_->{view} } @known;
my %known;
push @{ $known{ $_->{name} =~ s/\(.*//sr } }, $_ for grep { !$_->{view} } @known;
cmp_ok(scalar @targets, '>', 70, 'functions, procedures, aggregates and views');

# The contexts that a query, or a CALL, is put into: statements that are sent one by one.
my $caught = "EXCEPTION WHEN OTHERS OR query_canceled OR assert_failure THEN RAISE NOTICE 'caught % %', SQLSTATE, SQLERRM";
my %query_in = (
    plain => sub { $_[0] },
    block => sub { ('BEGIN', $_[0], 'COMMIT') },
    failed => sub { ('BEGIN', 'SELECT 1/0', $_[0], 'ROLLBACK') },
    savepoint => sub { ('BEGIN', 'SAVEPOINT s', $_[0], 'ROLLBACK TO s', 'SELECT 1', 'COMMIT') },
    nested => sub { ('BEGIN', 'SAVEPOINT s', 'SAVEPOINT s', $_[0], 'RELEASE s', 'ROLLBACK') },
    caught => sub { "DO \$fuzz\$ BEGIN PERFORM * FROM ($_[0]) q; $caught; END \$fuzz\$" },
    cursor => sub { ('BEGIN', "DECLARE c CURSOR FOR $_[0]", 'FETCH 1 FROM c', 'CLOSE c', 'COMMIT') },
    scroll => sub {
        ('BEGIN', "DECLARE c SCROLL CURSOR FOR $_[0]", 'FETCH 2 FROM c', 'FETCH BACKWARD 1 FROM c', 'FETCH LAST FROM c', 'ROLLBACK');
    },
    hold => sub { ("DECLARE c CURSOR WITH HOLD FOR $_[0]", 'FETCH 1 FROM c', 'CLOSE ALL') },
    limit => sub { "SELECT * FROM ($_[0]) q LIMIT 1" },
    exists => sub { "SELECT 1 WHERE EXISTS ($_[0])" },
    thrice => sub { "SELECT i, q::text FROM generate_series(1, 3) i LEFT JOIN LATERAL ($_[0]) q ON i > 0" },
    parallel => sub { ('BEGIN', "SET LOCAL $parallel = on", 'SET LOCAL parallel_setup_cost = 0', $_[0], 'COMMIT') },
    readonly => sub { ('BEGIN READ ONLY', $_[0], 'COMMIT') },
    serializable => sub { ('BEGIN ISOLATION LEVEL SERIALIZABLE', $_[0], 'COMMIT') },
    loop => sub { "DO \$fuzz\$ DECLARE r record; BEGIN FOR r IN $_[0] LOOP EXIT; END LOOP; END \$fuzz\$" },
    copy => sub { "COPY ($_[0]) TO STDOUT" },
    explain => sub { "EXPLAIN (ANALYZE, VERBOSE, BUFFERS) $_[0]" },
    into => sub { ('BEGIN', "CREATE TEMP TABLE i ON COMMIT DROP AS $_[0]", 'COMMIT') },
    text => sub { "SELECT count(*), max(q::text), min(to_jsonb(q)::text) FROM ($_[0]) q" },
    role => sub { ('BEGIN', 'SET LOCAL ROLE ' . one('stranger', 'observer', 'granted'), $_[0], 'COMMIT') },
    prepared => sub { ("PREPARE s AS $_[0]", 'EXECUTE s', 'EXECUTE s', 'DEALLOCATE ALL') },
    twophase => sub { ('BEGIN', $_[0], q{PREPARE TRANSACTION 'x'}, q{ROLLBACK PREPARED 'x'}, 'ROLLBACK') },
    dry => sub { ('BEGIN', $_[0], $_[0], 'ROLLBACK') },
    short => sub { ('BEGIN', 'SET LOCAL work_mem = 64', 'SET LOCAL statement_timeout = 3', $_[0], 'COMMIT') });
my %call_in = (
    (map { $_ => $query_in{$_} } qw(plain block savepoint nested readonly serializable role failed)),
    do => sub { "DO \$fuzz\$ BEGIN $_[0]; END \$fuzz\$" },
    caught => sub { "DO \$fuzz\$ BEGIN $_[0]; $caught; END \$fuzz\$" },
    twice => sub { ($_[0], $_[0]) },
    short => sub { ('SET statement_timeout = 2', $_[0]) });

my %session = (
    superuser => wire($node), other => $other, map { $_ => wire($node, user => $_) } qw(observer granted stranger));
my $state = calls_state();
my %baseline;
for my $who (sort keys %session)
{
    $session{$who}->value('CREATE TEMP TABLE temp (a int PRIMARY KEY)');
    $baseline{$who} = $session{$who}->value($state);
}

my @bad;

# Judges one answer.
sub judge
{
    my ($result, $what) = @_;
    my @errors = $result->{state} eq '00000' ? () : [ $result->{state}, $result->{message}, $result->{hint} ];

    push @errors, map { /\A00000: caught (\w{5}) (.*)/s ? [ $1, $2, '-' ] : () } @{ $result->{notices} };
    for (@errors)
    {
        my ($code, $message, $hint) = @$_;
        push @bad, "$code $message: $what"
          if $code !~ /\A(?:0A|20|21|22|23|25|26|28|2B|2D|34|3B|3D|3F|40|42|53|54|55|57|HV|P0)/ || $code =~ /\A57P/;
        # what users pass is refused in words of ours, and not where the server's arithmetic ends; other functions of ours call
        # the rest
        push @bad, "$code $message, without a hint: $what"
          if $hint eq '' && $code =~ /\A22(?:003|008|012|015)/ && $what !~ m{SELECT 1/0|pgscale_internal\.};
    }
    return;
}

# One call of a target, in a context, by a session
sub fuzz
{
    my ($target, $number) = @_;
    my $who = one(qw(superuser superuser superuser superuser other observer granted granted stranger));
    my $session = $session{$who};
    my $count = @{ $target->{types} };
    my @values;
    my ($query, $context);

    $count -= int rand($target->{defaults} + 1) if $target->{defaults};
    @values = map { value_of($_) } @{ $target->{types} }[ 0 .. $count - 1 ];
    my $arguments = join ', ', map { literal($values[$_], $target->{types}[$_]) } 0 .. $count - 1;
    my $known = $known{ $target->{name} };
    my $call = "$target->{name}($arguments)";
    if ($known && rand() < 0.35)
    {
        my $i = int rand 100;
        $call = one(@$known)->{name} =~ s/\bi\b/$i/gr;
    }
    if ($target->{kind} eq 'p')
    {
        $context = one(sort keys %call_in);
        $query = "CALL $call";
        return ($who, $context, $query, 0, $call_in{$context}->($query));
    }
    $context = one(sort keys %query_in);
    if ($target->{kind} eq 'v') { $query = "SELECT * FROM $target->{name}" }
    elsif ($call =~ / FROM /) { $query = "SELECT $call" }
    elsif ($target->{kind} eq 'a')
    {
        my @rows = map { '(' . join(', ', map { literal(value_of($_), $_) } @{ $target->{types} }) . ')' } 1 .. one(1, 1, 2, 3, 5, 10);
        my $columns = join ', ', map { "c$_" } 1 .. $count;
        my $of = one("$target->{name}($columns)", "$target->{name}($columns)", "$target->{name}(DISTINCT $columns)",
            "$target->{name}($columns ORDER BY c1 DESC)", "$target->{name}($columns) FILTER (WHERE c1 > 1)",
            "$target->{name}($columns) OVER (ORDER BY c1 ROWS 1 PRECEDING)");
        $query = "SELECT $of FROM (VALUES " . join(', ', @rows) . ") AS x ($columns)" . one('', '', ' WHERE c1 > 2', ' GROUP BY c1');
    }
    elsif (rand() < 0.15) { $query = "SELECT $call" }
    else { $query = "SELECT * FROM $call" }
    if ($target->{kind} eq 'f' && rand() < 0.1 && !grep { $_ eq 'internal' } @{ $target->{types} })
    {
        my $n = 0;
        my $list = join ', ', map { $n++; "\$${n}::$_" } @{ $target->{types} }[ 0 .. $count - 1 ];
        return ($who, 'driver', "SELECT * FROM $target->{name}($list)", \@values);
    }
    return ($who, $context, $query, 0, $query_in{$context}->($query));
}

# Carries it out, and looks after the session.
sub carry_out
{
    my ($who, $context, $query, $parameters, @statements) = @_;
    my $session = $session{$who};
    my $text = $parameters ? "$query with (" . join(', ', map { $_ // 'NULL' } @$parameters) . ')' : join '; ', @statements;
    my $what = "as $who, $context: " . (length $text > 700 ? substr($text, 0, 700) . '...' : $text);
    my $timeout = one(30, 60, 60, 60, 150);
    my $expected = 1;

    note $what if ($ENV{PGSCALE_FUZZ_SHOW} // 0) > 1;
    $session->send_query("SET statement_timeout = $timeout");
    if ($parameters) { $session->send_prepared($query, $parameters, one(0, 1, 2)); $expected++ }
    else { $session->send_query(@statements); $expected += @statements }
    for (1 .. $expected)
    {
        my $result = $session->finish($slow + $timeout / 1000);
        if (!$result)
        {
            # A machine under load may be late by more than that. Then it is told, and has to obey.
            diag "$slow s after its timeout it still runs: $what";
            $db->value('SELECT pg_cancel_backend(' . $session->pid . ')');
            $result = $session->finish($bound);
        }
        if (!$result)
        {
            push @bad, "cannot be cancelled: $what";
            return 0;
        }
        if ($result->{closed})
        {
            push @bad, "the connection is lost ($result->{state} $result->{message}): $what";
            return 0;
        }
        judge($result, $what);
    }
    # A timeout may strike in COMMIT, too.
    push @bad, "transaction status $session->{status}: $what" if $session->{status} ne 'I' && !grep { /\ABEGIN/ } @statements;
    push @bad, "no answer to ROLLBACK: $what" if $session->{status} ne 'I' && !$session->settle('ROLLBACK', $bound);
    push @bad, "no answer afterwards: $what" unless $session->settle('SET statement_timeout = 0', $bound);
    # and in what was to clean up
    $session->run($_) for grep { /\A(?:CLOSE ALL|DEALLOCATE ALL|ROLLBACK PREPARED)/ } @statements;
    $session->send_query($state);
    my $now = $session->finish($bound) // { rows => [], message => 'no answer' };
    my $is = $now->{rows}[0] ? $now->{rows}[0][0] : $now->{message};
    if ($is ne $baseline{$who})
    {
        push @bad, "the session is \"$is\", not \"$baseline{$who}\", after $what";
        $session->quit;
        # is there a server?
        return 0 unless until_true(sub { eval { wire($node)->quit; 1 } });
        $session{$who} = $session =
          wire($node, user => $who =~ /superuser|other/ ? undef : $who, dbname => $who eq 'other' ? 'other' : undef);
        $session->value('CREATE TEMP TABLE temp (a int PRIMARY KEY)');
    }
    return 1;
}

# The ends of each type's range, for one argument at a time; the others are sensible, or left to their defaults.
my %extremes = (
    integer => [qw(0 -1 2147483647 -2147483648)],
    bigint => [qw(0 -1 9223372036854775807 -9223372036854775808)],
    'double precision' => [qw(0 -1 1e308 -1e308 4.9e-324 NaN Infinity -Infinity)],
    text => [ '', 'x' x 70000 ],
    name => [ '', 'x' x 63 ],
    'timestamp with time zone' => [ 'infinity', '-infinity', '4714-11-24 00:00:00+00 BC', '294276-12-31 23:59:59.999999+00' ],
    interval => [ '0', '-1 us', '1 us', '178000000 years', '-178000000 years', '2147483647 days', '-2147483648 days', '2562047788:00:54', '36500 days' ]);
push @{ $extremes{interval} }, qw(infinity -infinity) if $db->value('SHOW server_version_num') >= 170000;
$extremes{"$_\[]"} = [ '{}', map { qq({"$_"}) } @{ $extremes{$_} } ] for keys %extremes;
my %sensible = (
    integer => 1, bigint => 1, 'double precision' => 1, text => 'x', name => 'pg_default', 'timestamp with time zone' => 'now', interval => '1 min',
    boolean => 'f', oid => 1259, regclass => 't', 'text[]' => '{x}', 'timestamp with time zone[]' => '{now}');

# Periods end nowhere, too. A fifth of these calls, or all.
my %endless = (since => "'-infinity'", until => "'infinity'");
for my $target (grep { $_->{kind} =~ /[fp]/ } @targets)
{
    my ($types, $names) = @$target{qw(types names)};
    my $required = @$types - $target->{defaults};

    for my $n (0 .. $#$types)
    {
        for my $value (map { my $v = literal($_, $types->[$n]); ([ $v, {} ], [ $v, \%endless ]) } @{ $extremes{ $types->[$n] } // [] })
        {
            my ($extreme, $period) = @$value;
            next if !$full && rand() > 1 / 5 || %$period && !grep { $endless{$_} } @$names;
            my @arguments = map {
                my $given = $_ == $n ? $extreme : $period->{ $names->[$_] } // ($_ < $required ? literal($sensible{ $types->[$_] }, $types->[$_]) : undef);
                defined $given ? ($_ < $required ? '' : "$names->[$_] => ") . $given : ()
            } 0 .. $#$types;
            my $call = ($target->{kind} eq 'p' ? 'CALL' : 'SELECT * FROM') . " $target->{name}(" . join(', ', @arguments) . ')';
            carry_out('superuser', 'plain', $call, 0, $call);
        }
    }
}
my $made = 0;
while ($made < $calls)
{
    # each target as often as any other
    my @round = sort { $a->[0] <=> $b->[0] } map { [ rand(), $_ ] } @targets;
    for (@round)
    {
        last if $made >= $calls;
        $made++;
        last if !carry_out(fuzz($_->[1], $made));
    }
    last if grep { $_->closed } values %session;
    last if @bad > 100;
}
is(scalar @bad, 0, "$made calls leave server and sessions as they were (seed $seed)")
  or diag map { "$_\n" } @bad > 30 ? (@bad[ 0 .. 29 ], '... and ' . (@bad - 30) . ' more') : @bad;

# What a call gathers: the same ones over and over, and the memory that the session's contexts use, and its files
SKIP:
{
    skip 'the server is gone', 1 if grep { $_->closed } values %session;
    my @leaks;
    my $session = wire($node);
    my $used = q{SELECT sum(used_bytes) FROM pg_backend_memory_contexts};
    my $files = sub { my @fds = glob '/proc/' . $session->pid . '/fd/*'; scalar @fds };
    for my $call (grep { !$_->{view} && $_->{name} !~ /wait\(|plan\(|latency|relocate|FROM/ && ($full || rand() < 1 / 5) } @known)
    {
        my $text = ($call->{procedure} ? "CALL $call->{name}" : "SELECT count(*) FROM $call->{from}") =~ s/\bi\b/7/gr;
        my @rounds;
        my $since = Time::HiRes::time();
        for my $round (0 .. 3)
        {
            last if Time::HiRes::time() - $since > 3;    # a probe of disks: not worth the time
            $session->send_query(($text) x 4);
            $session->finish($bound) // die "no answer: $text" for 1 .. 4;
            push @rounds, [ $session->value($used), $files->() ];
        }
        next if @rounds < 4;
        my @grown = map { $rounds[$_][0] - $rounds[ $_ - 1 ][0] } 1 .. 3;
        # what is cached is cached once; what leaks does in each round
        push @leaks, "memory: @grown bytes in three rounds of 4: $text" if !grep { $_ < 4 * 64 } @grown;
        push @leaks, 'files: ' . join(' ', map { $_->[1] } @rounds) . ": $text"
          if !grep { $rounds[$_][1] <= $rounds[ $_ - 1 ][1] } 1 .. 3;
    }
    is(join("\n", @leaks), '', 'nothing is gathered');
    # a worker's may be there while it is at work
    my $left;
    until_true(sub {
        $left = join ' ', map { s{.*/}{}r } map { glob $node->data_dir . $_ } '/base/pgsql_tmp/*', '/*.tmp', '/pg_stat/*.tmp';
        return $left eq '';
    });
    is($left, '', 'no temporary file is left');
}

my $log = slurp_file($node->logfile);
my @internal = $log =~ /^.*(?: XX\d\d\d |PANIC|TRAP|was terminated by signal).*$/mg;
is(scalar @internal, 0, 'no internal error in any process') or diag map { "$_\n" } @internal > 20 ? @internal[ 0 .. 19 ] : @internal;

# What settings were made may keep a server from starting; without them it starts.
$db->value('ALTER SYSTEM RESET ALL');
$node->restart;
is($node->safe_psql('postgres', 'SELECT count(*) > 0 FROM pgscale.health'), 't', 'and starts again');
$node->stop;
done_testing();
