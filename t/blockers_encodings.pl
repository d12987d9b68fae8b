# Databases of other encodings: their sessions' statements and names, and identifiers of prepared transactions, are bytes that are
# no text here. Each view and function that shows them works, and what it shows is text.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $statements = have_module('pg_stat_statements');
my $node = pgscale_node('main', preload => 'pgscale' . ($statements ? ', pg_stat_statements' : ''), create => 0, conf => <<'EOC');
max_prepared_transactions = 5
pgscale.sampler_period = 2
pgscale.sampler_history_period = 1
deadlock_timeout = 10ms
pgscale.sampler_dimensions = application_name
pgscale.debug_period = 1s
EOC
my $postgres = session($node);
my %encoding = (unicode => 'UTF8', ascii => 'SQL_ASCII', latin => 'LATIN1');
$postgres->sql("CREATE DATABASE $_ TEMPLATE template0 ENCODING '$encoding{$_}' LC_COLLATE 'C' LC_CTYPE 'C'") for sort keys %encoding;

# A role and a database with names that only LATIN1 has
my ($role, $database) = ("jos\xe9", "b\xfccher");
my $namer = session($node, dbname => 'ascii');
$namer->sql(qq{CREATE ROLE "$role" LOGIN SUPERUSER; CREATE ROLE "tab\there" LOGIN SUPERUSER; ALTER DATABASE latin RENAME TO "$database"});
$namer->quit;
my %db = map { $_ => session($node, dbname => $_ eq 'latin' ? $database : $_) } keys %encoding;
for my $name (sort keys %db)
{
    $db{$name}->sql('CREATE EXTENSION pgscale');
    $db{$name}->sql('CREATE EXTENSION pg_stat_statements') if $statements;
}
my $db = $db{unicode};
$postgres->set('pgscale.archive_database' => 'unicode');

# In each of them one waits for a row, and one for a prepared transaction
my %word = (latin => "Jos\xe9", ascii => "Josx\xff\xe9\xe9", unicode => "\xe2\x82\xac");
my @sessions = session($node, user => "'tab\there'");
$sessions[0]->sql('BEGIN');
for my $name (sort keys %word)
{
    my ($holder, $waiter, $other) = map { session($node, dbname => $name eq 'latin' ? $database : $name, user => $role) } 1 .. 3;

    $holder->sql('CREATE TABLE y (id int PRIMARY KEY, n text); INSERT INTO y SELECT i FROM generate_series(1, 9) i');
    $holder->sql("BEGIN; UPDATE y SET n = 'x' WHERE id = 2; PREPARE TRANSACTION 'of $word{$name}'");
    $holder->sql("BEGIN; UPDATE y SET n = '$word{$name}' WHERE id = 1");
    $db->sees_waiting($waiter, "UPDATE y SET n = '$word{$name}' WHERE id = 1");
    $db->sees_waiting($other, "UPDATE y SET n = '$word{$name}' WHERE id = 2");
    push @sessions, $holder, $waiter, $other;
}
$db->poll_ok(q{SELECT count(DISTINCT datname) FROM pgscale.blockers WHERE depth > 0}, 'all wait', 3);
$db->poll_ok(q{SELECT count(DISTINCT datid) FROM pgscale_internal.wait_history() WHERE root_pid > 0}, 'and are seen to', 3);
$db->poll_ok(q{SELECT count(DISTINCT datid) FROM pgscale.archive_waits WHERE event_type = 'Lock'}, 'and archived', 3);

# What is asked: all views, the functions without arguments that return rows or texts, and others that have foreign texts
my $valid = 'count(convert_from(textsend(q::text), $$UTF8$$))';
my $pid = $sessions[-1]->pid;
my @calls = split /\n/, $db->sql(q{
    SELECT format('%s q', c.oid::regclass) FROM pg_class c WHERE c.relnamespace = 'pgscale'::regnamespace AND c.relkind = 'v'
    UNION ALL
    SELECT format('%s() q', p.oid::regproc) FROM pg_proc p
     WHERE p.pronamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace) AND p.prokind = 'f' AND p.pronargs = p.pronargdefaults AND p.prorettype NOT IN ('void'::regtype, 'trigger'::regtype)
       AND p.proname NOT IN ('tablespace_latency', 'archive_counter_deltas')
     ORDER BY 1});
push @calls, q{pgscale_internal.past_queries(ARRAY(SELECT query_id FROM pg_stat_activity)) q}, map { "pgscale.$_ q" } "trace_waits($pid, '10 ms', 10)", "trace_waits($pid, '10 ms', 10, '10 ms')", "report(NULL, NULL, 'html')",
  q{compare_waits(now() - interval '1 min', NULL, now() - interval '1 min', NULL, 'query')},
  (map { "top_waits('-infinity', NULL, '$_')" } qw(event query database user application blocker)), q{report(now() - interval '1 min', now(), 'text', now() - interval '1 min', now())};
@calls = grep { !/query_waits/ } @calls unless $statements;
cmp_ok(scalar @calls, '>', 80, 'much is asked');
for my $name (sort keys %db)
{
    my $check = $name eq 'latin' ? $valid =~ s/UTF8/LATIN1/r : $valid;
    my @failed = map { my ($state, $said) = $db{$name}->try("SELECT $check FROM $_"); $state eq '00000' ? () : "$_: $said" } @calls;

    is(join("\n", @failed), '', "$name: all that is asked answers with text");
}

# It is the text that they wrote, as far as this database has its characters
my $character = "\xef\xbf\xbd";
my %shown = (
    unicode => { latin => "Jos\xc3\xa9", ascii => "Josx$character$character$character", unicode => "\xe2\x82\xac", role => "jos$character", database => "b${character}cher" },
    latin => { latin => "Jos\xe9", ascii => 'Josx???', unicode => '?', role => "jos\xe9", database => "b\xfccher" });
$shown{ascii} = $shown{unicode};
for my $name (sort keys %db)
{
    my %as = %{ $shown{$name} };
    my %in = (latin => $as{database}, ascii => 'ascii', unicode => 'unicode');
    my @rows = map { ("$in{$_}|$as{role}|UPDATE y SET n = '$as{$_}' WHERE id = 1|", "$in{$_}|$as{role}|UPDATE y SET n = '$as{$_}' WHERE id = 2|of $as{$_}") } keys %in;

    is(join("\n", sort split /\n/, $db{$name}->sql(q{SELECT datname, usename, rtrim(full_query, E'\n;'), root_gid FROM pgscale.blockers WHERE depth > 0})),
        join("\n", sort @rows), "$name: blockers");
}

# A table of another database has no name here, but that database has
my $locker = session($node, dbname => $database, user => $role);
$db->sees_waiting($locker, 'BEGIN; LOCK TABLE y');
like($db->sql('SELECT waits_for FROM pgscale.blockers WHERE pid = ' . $locker->pid), qr/^relation \d+ of database $shown{unicode}{database}$/, 'a lock in another database');

# The archive and memory call them the same
is($db->sql(q{SELECT string_agg(item, ',' ORDER BY item) FROM pgscale.top_waits('-infinity', NULL, 'user') WHERE item ~ '^(jos|tab)'}), "jos$character,tab\there", 'a user is one item');

# Where pg_stat_statements does not answer for a text that cannot be converted, counts stay, and the texts of what sessions run
SKIP: {
    skip 'no pg_stat_statements', 3 unless $statements;

    is(($db->try('SELECT * FROM pg_stat_statements'))[0], '22021', 'pg_stat_statements has no answer');
    # the archive may know it with the constants taken out; from PostgreSQL 18 on, the three databases' statements have one identifier
    my $text = $db->sql('SHOW server_version_num') < 180000 ? qr/(?:'Jos\xe9' WHERE id = 1|\$1 WHERE id = \$2)/ : qr/\S+ WHERE id = \S+/;
    like($db{latin}->sql(q{SELECT string_agg(DISTINCT rtrim(full_query, E'\n;'), ' and ') FROM pgscale.query_waits WHERE event = 'transactionid'}),
        qr/\bUPDATE y SET n = $text\b/, 'query_waits has the text of a statement that runs, also where there is no archive');
    $db->sql('SELECT pg_sleep(0.1)') for 1 .. 2;
    is($db->sql(q{SELECT calls >= 2, total_time_ms > 100 FROM pgscale.query_waits WHERE event = 'PgSleep' ORDER BY calls DESC LIMIT 1}), 't|t', 'and counts');
}

# Bytes that are no text, in a page and in a text; and a character of another encoding
my $html = q{SELECT pgscale_internal.report_paragraph('html', %s, '')};
like($db{ascii}->sql(sprintf $html, q{E'a\351b \303\251 \377\300\200\355\240\200'}), qr{^<p>a&#65533;b &#233; (&#65533;){6}</p>$}, 'bytes in a page');
like($db{ascii}->sql(q{SELECT pgscale_internal.report_paragraph('text', pgscale_internal.clean_text(E'a\351b \303\251'), '')}), qr/^ *a\?b \?$/m, 'in a text');
is($db{ascii}->sql(q{SELECT length(pgscale_internal.report_table('html', '{q}', '{query}', array[[repeat(E'\351', 1000000)]])) < 20000}), 't', 'a megabyte of them');
like($db{latin}->sql(sprintf $html, q{convert_from('\xe9', 'LATIN1')}), qr{^<p>&#233;</p>$}, 'a character in a page');

# A node of a fleet answers with text, too
my ($host, $port) = ($node->host, $node->port);
$db->sql("SELECT pgscale.fleet_add('ascii', 'host=$host port=$port dbname=ascii')");
is($db->sql("SELECT count(*) > 1, count(error), count(*) FILTER (WHERE item = '$_->[1]') FROM pgscale.fleet_waits('-infinity', NULL, '$_->[0]')"), 't|0|1', "a fleet: $_->[0]")
  for [ user => "jos$character" ], [ database => "b${character}cher" ];
done_testing();
