# Texts of statements that pg_stat_statements does not have: of sessions that run one, and those that the sampler keeps. Who
# sees them, what they show of secrets, what is said of statements without an identifier, and how many are kept.
use strict;
use warnings;
use PgscaleSampler;
use PgscaleTest;
use PgscaleWire;
use Test::More;

my $statements = have_module('pg_stat_statements');
my $node = pgscale_node('main', preload => 'pgscale' . ($statements ? ', pg_stat_statements' : ''), conf => <<'EOC');
compute_query_id = on
max_connections = 120
pgscale.sampler_history_period = 100ms
pgscale.sampler_dimensions = 'application_name'
pgscale.debug_period = 1s
EOC
my $db = session($node);
$db->sql('CREATE ROLE app LOGIN; CREATE ROLE stranger LOGIN; CREATE ROLE observer LOGIN IN ROLE pg_monitor;
    GRANT USAGE ON SCHEMA pgscale, pgscale_internal TO app, stranger;
    GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA pgscale, pgscale_internal TO app, stranger');
my ($observer, $stranger) = map { session($node, user => $_) } 'observer', 'stranger';
my $texts = 'pgscale_internal.statement_texts()';

# How many texts are kept of a statement with this name
sub kept { my ($name, $more) = @_; return "SELECT count(*) FROM $texts WHERE query ~ '^SELECT pg_sleep.* AS $name'" . ($more ? "
    AND $more" : ''); }

# A session runs a statement; returns its identifier
sub runs
{
    my ($session, $text, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    $session->start($text);
    $db->poll_ok('SELECT count(*) FROM pgscale.wait_current WHERE pid = ' . $session->pid . q{ AND event = 'PgSleep'}, $name, 1);
    return $db->sql('SELECT query_id FROM pg_stat_activity WHERE state = $$active$$ AND pid = ' . $session->pid);
}

# Ends the sessions whose statements match
sub ended { return $db->sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE query ~ '$_[0]'
    AND pid <> pg_backend_pid()"); }
sub report { return $db->sql('SELECT pgscale.report()') =~ s/\s+/ /gr; }

# The archive keeps the texts of these queries, on that day
sub archives { return $db->sql("SELECT pgscale_internal.archive_texts('{$_[0]}', '2020-03-0$_[1] 12:00+00')"); }
$db->sql("SELECT pgscale_internal.archive_partition('archive_query', '2020-03-0$_')") for 1 .. 5;

# A runaway statement, cancelled by its user's impatience; then the session is gone, too
my $app = session($node, user => 'app');
my $another = session($node);
my $queryid = runs($app, 'SELECT pg_sleep(600) AS runaway', 'a runaway statement');
my $text = q{SELECT count(*) FROM pgscale.top_waits(by => 'query') WHERE queryid = } . $queryid . q{
    AND query ~ 'pg_sleep\(600\) AS runaway'};
$db->poll_ok($text, 'top_waits has its text while it runs', 1);
$db->poll_ok(kept('runaway'), 'it is kept', 1);
is($db->sql(qq{SELECT count(*) FROM $texts WHERE userid = 'app'::regrole AND longest_ms >= 1000 AND first_seen <= last_seen
    AND queryid IS NOT NULL AND datid = (SELECT oid FROM pg_database WHERE datname = current_database())}), 1,
    'with whose it is, and how long it ran');
archives($queryid, 1);
$db->poll_ok(kept('runaway', 'longest_ms > 2000'), 'its times go on', 1);
cancelled($db, $app);
$app->quit;
is($db->sql($text), 1, 'top_waits has its text when nobody runs it');
is($observer->sql($text), 1, 'for pg_monitor, too');
is(session($node, user => 'app')->sql($text), 1, 'and for its own role');
is($stranger->sql("$text UNION ALL SELECT count(*) FROM $texts"), "0\n0", 'and no other, which sees no text at all');
like(report(), qr/Top queries\b.*SELECT pg_sleep\(600\) AS runaway .*Applications/s, 'a report names it');
archives($queryid, 2);
is($db->sql(q{SELECT string_agg(day::text, ' ' ORDER BY day) FROM pgscale_internal.archive_query WHERE query ~ 'runaway'}),
    '2020-03-01 2020-03-02', 'the archive keeps it, while it runs and afterwards');
$db->sql('DELETE FROM pgscale_internal.archive_query');

SKIP:
{
    skip 'this server has no pg_stat_statements', 10 unless $statements;

    # wherever it is installed
    $db->sql('CREATE SCHEMA elsewhere; CREATE EXTENSION pg_stat_statements SCHEMA elsewhere; SET search_path = public, elsewhere');
    is($db->sql($text), 1, 'beside pg_stat_statements, which does not know it');
    is($db->sql(qq{SELECT DISTINCT calls IS NULL, full_query ~ 'AS runaway' FROM pgscale.query_waits WHERE queryid = $queryid}), 't|t',
        'query_waits has it');
    archives($queryid, 2);
    is($db->sql(q{SELECT count(*) FROM pgscale_internal.archive_query WHERE query ~ 'runaway'}), 1, 'and the archive');

    # Texts that take more memory than a hash table may are not read; those that the archive has are known
    my $fill = sub { my $from = shift; $db->sql('SELECT ' . join ', ', map { "1 AS c$_" . 'x' x 58 } $from .. $from + 999) };
    $fill->(1);
    $db->sql(q{SET work_mem = '64kB'; SET hash_mem_multiplier = 1});
    my $wanted = $db->sql(q{SELECT queryid FROM pg_stat_statements WHERE query ~ 'c1x'});
    my $query = qq{SELECT count(*) FROM pgscale_internal.past_queries('{$wanted}')};
    cmp_ok($db->sql(q{SELECT size FROM pg_stat_file('pg_stat_tmp/pgss_query_texts.stat')}), '>', 64 * 1024,
        'a file of texts that is larger than work_mem');
    my ($state, $said) = $db->try($query);
    like($said, qr/NOTICE: .*texts of queries are missing.*\n(?:.*\n)*.*HINT: .*work_mem(?:.*\n)*0$/,
        'it is not read, and a notice says so');
    $db->sql('SET client_min_messages = warning');
    is($db->sql(q{SELECT count(*) > 0 FROM pgscale.query_waits WHERE calls > 0}), 't', 'counts are there');
    # what a session shows has its constants
    archives("$queryid,$wanted", 3);
    is($db->sql(q{SELECT count(*) FROM pgscale_internal.archive_query WHERE day = '2020-03-03'}), 0,
        'the archive keeps no text of a session instead');
    $db->sql('RESET work_mem');
    archives($wanted, 2);
    is($db->sql($query), 1, 'with more memory it is read');
    $db->sql(q{SELECT pg_stat_statements_reset(); SET work_mem = '64kB'});
    $fill->(2000);
    is($db->sql($query), 1, 'and once the archive has it, it is known');
    $db->sql('RESET work_mem; RESET hash_mem_multiplier; RESET client_min_messages; DELETE FROM pgscale_internal.archive_query');
}

# A secret
$app = session($node, user => 'app');
$queryid = runs($app, q{SELECT pg_sleep(600) AS kept, 'hunter2' AS password}, 'a statement with a password');
$db->poll_ok(kept('kept'), 'is kept', 1);
my $everywhere = qq{SELECT concat((SELECT string_agg(t::text, ' ') FROM pgscale.top_waits(by => 'query') t), pgscale.report(),
    (SELECT string_agg(q::text, ' ') FROM pgscale_internal.past_queries('{$queryid}') q), (SELECT string_agg(s::text, ' ')
        FROM $texts s))};
my $shown = $db->sql($everywhere);
like($shown, qr/\(hidden\) AS password/, 'it is shown without its constants');
unlike($shown, qr/hunter2/, 'nowhere with them');
cancelled($db, $app);
unlike($db->sql($everywhere), qr/hunter2/, 'nor afterwards');

# Texts of pg_stat_statements, which keeps the constants of utility statements, go through the same cleaner, wherever they are shown
SKIP:
{
    skip 'this server has no pg_stat_statements', 5 unless $statements;

    $db->sql($_) for q{ALTER ROLE app ENCRYPTED PASSWORD 'hunter3'}, q{DO 'BEGIN PERFORM $x$PGPASSWORD=hunter3$x$; END'},
      'CREATE TABLE copied (a text)', q{COPY copied FROM PROGRAM 'echo -u a:hunter3'},
      q{SET application_name = 'x' /* passwd: hunter3 */}, q{ALTER SYSTEM SET archive_command = 'echo hunter3'},
      'ALTER SYSTEM RESET archive_command';
    my $ids = $db->sql(q{SELECT array_to_string(array_agg(queryid), ',') FROM pg_stat_statements
        WHERE query ~ 'hunter3' AND query !~ 'pg_stat_statements'});
    # from 18 on the one of SET has no constant
    my $n = 1 + ($ids =~ tr/,//);
    cmp_ok($n, '>=', 3, 'pg_stat_statements has them');
    # one text as an archive has it of a version that did not know all signs
    $db->sql(q{INSERT INTO pgscale_internal.archive_query SELECT '2020-03-04', 1, now(), now(), query FROM pg_stat_statements
        WHERE query ~ 'PROGRAM .echo'});
    archives($ids, 5);
    $shown = $db->sql(qq{SELECT concat((SELECT string_agg(q::text, ' ') FROM pgscale_internal.past_queries('{1,$ids}') q),
        (SELECT string_agg(q::text, ' ') FROM pgscale.archive_queries q),
        (SELECT string_agg(q::text, ' ') FROM pgscale_internal.archive_query q WHERE day = '2020-03-05'))});
    cmp_ok(scalar(() = $shown =~ /\(hidden\)/g), '>=', 3 * $n, 'each is shown without its constants, now and from the archive')
      or diag $shown;
    unlike($shown, qr/hunter3/, 'and not with them');
    $db->sql(q{UPDATE pgscale_internal.archive_query SET query = 'as the archive has it'});
    is($db->sql("SELECT string_agg(DISTINCT query, ' ') FROM pgscale_internal.past_queries('{$ids}')"), 'as the archive has it',
        'what the archive has, pg_stat_statements is not asked for');
    unlike($db->sql("SELECT string_agg(query, ' ') FROM pgscale_internal.past_queries('{$ids}', true)"), qr/as the archive has it/, 'but for the archive');
    $db->sql('DELETE FROM pgscale_internal.archive_query');
}

# Texts of sessions on the screen of now
$db->sql('CREATE TABLE wanted (a int)');
my $locker = session($node);
$locker->sql('BEGIN; LOCK wanted /* passwd: hunter4 */');
$db->sees_waiting($another, q{SELECT 'hunter4' AS password FROM wanted});
my $screen = sub { $db->sql('SELECT string_agg(n::text, chr(10)) FROM pgscale.now n') };
in_time_ok(sub { $screen->() =~ /LOCK wanted \/\* \(hidden\)/ }, 'now shows the text of a root without its secret')
  or diag $screen->();
unlike($screen->(), qr/hunter4/, 'nor that of a session that waits');
$locker->sql('ROLLBACK');
$another->finish;

# A reset
$db->sql('SELECT pgscale.reset($$sampler$$)');
is($db->sql("SELECT count(*) FROM $texts"), 0, 'a reset empties it');

# Statements without an identifier take most: they are named, and not the first that has one
my @anonymous = map { session($node) } 1 .. 3;
$_->sql(q{SET compute_query_id = off; SET application_name = 'unnamed'}) for @anonymous;
runs($_, 'SELECT pg_sleep(600) AS anonymous', 'without an identifier') for @anonymous;
runs($app, 'SELECT pg_sleep(600) AS named, 1, 2', 'with one');
$db->poll_ok(kept('anonymous', 'queryid IS NULL'), 'its text is kept once for each role', 1);
$db->poll_ok(kept('named'), 'and the other one', 1);
$another->sql('SET compute_query_id = off');
runs($another, 'SELECT pg_sleep(600) AS nameless', 'another one without an identifier');
$db->poll_ok(kept('nameless', 'queryid IS NULL'), 'is another one', 1);
my $summary = report();
like($summary, qr/Statements\ without\ a\ query\ identifier\ took\ \d+\ %\ of\ it\ \(most\ of\ user\ \S+,\ application\ unnamed\)\.
    \ The\ one\ that\ ran\ longest:\ SELECT\ pg_sleep\(600\)\ AS\ anonymous/x,
    'named by what is known');
like($summary, qr/The statement with an identifier that took most of it, \d+ %, is: SELECT pg_sleep\(600\) AS named/,
    'before the first that has one');
like($summary, qr/\(no identifier; longest: SELECT pg_sleep/, 'also among the queries');
sub unidentified { return "SELECT pgscale_internal.unidentified_statement($_[0], $_[1])"; }
my $hour = unidentified('now() - interval $$1 h$$', 'now()');
like($observer->sql($hour), qr/^SELECT pg_sleep\(600\) AS anonymous\W*$/, 'which pg_monitor may see');
is($stranger->sql($hour), '', 'and others not');
my $within = sub { $db->sql(unidentified(@_) . " FROM (SELECT min(last_seen - last_ms * interval '1 ms') AS begun,
        max(last_seen) AS seen
    FROM $texts WHERE queryid IS NULL) k") };
is($within->('$$-infinity$$', q{begun - interval '1 ms'}), '', 'in a period before it, it did not run');
like($within->(q{begun - interval '1 h'}, q{begun + interval '1 ms'}), qr/AS anonymous/, 'in that in which it began, it did');
cancelled($db, @anonymous, $another, $app);
is($within->(q{seen + interval '1 ms'}, '$$infinity$$'), '', 'in a period after it, it did not run');

# A statement has no identifier yet while it waits for a lock to be analyzed
$db->sql('SELECT pgscale.reset($$sampler$$); CREATE TABLE locked AS SELECT 1; CREATE TABLE gate (a int);
    GRANT SELECT ON locked TO app');
$locker->sql('BEGIN; LOCK locked');
$db->sees_waiting($app, 'SELECT pg_sleep(600) AS parsed FROM locked');
$another->sql('RESET compute_query_id');
runs($another, 'SELECT pg_sleep(600) AS later', 'a statement that begins later');
$db->poll_ok(kept('later', 'longest_ms > 2000'), 'is kept', 1);
is($db->sql(kept('parsed')), 0, 'and not the one that waits');
$locker->sql('COMMIT');
$db->poll_ok(kept('parsed', 'queryid IS NOT NULL'), 'with its identifier it is', 1);

# One that has its identifier after its text was read
my $gated = wire($node);
$gated->send_query('SET compute_query_id = off; DO $$BEGIN WHILE NOT EXISTS (SELECT
    FROM gate) LOOP PERFORM pg_sleep(0.05); END LOOP; END$$;'
    . ' SET compute_query_id = on; SELECT pg_sleep(600) AS gated, now(), now()');
my $of_gate = "SELECT count(queryid), count(*) FROM $texts WHERE query ~ 'AS gated'";
in_time_ok(sub { $db->sql($of_gate) eq '0|1' }, 'a text is kept without an identifier');
$db->sql('INSERT INTO gate VALUES (1)');
in_time_ok(sub { $db->sql($of_gate) eq '1|1' }, 'and then with it only');
is($db->sql(unidentified('$$-infinity$$', '$$infinity$$')), '', 'so it is not named as one without');
cancelled($db, $another, $app);
ended('AS gated');

# No more than there is room for; what has run longer takes the place of what ran shortest
$db->sql('SELECT pgscale.reset($$sampler$$)');
my @many = map { wire($node) } 1 .. 70;
$many[$_]->send_query('SELECT pg_sleep(600) AS many' . ', 1' x $_) for 0 .. $#many;
in_time_ok(sub { $db->sql("SELECT count(*) FROM $texts") eq '64' }, 'sixty-four are kept');
my $seen = $db->sql("SELECT max(last_seen) FROM $texts");
$db->poll_ok("SELECT count(*) > 60 FROM $texts WHERE last_seen > '$seen' AND query ~ 'many'", 'whose times go on');
ended('AS many');
# not the identifier of any of them
runs($app, 'SELECT pg_sleep(600) AS late, now()', 'one more');
my $shortest = $db->sql("SELECT min(longest_ms) FROM $texts");
in_time_ok(sub { $db->sql(kept('late')) eq '1' }, 'takes a place in the end');
is($db->sql("SELECT count(*), bool_and(longest_ms > $shortest) FROM $texts"), '64|t',
    'when it has run longer than the shortest, whose place it takes')
      or diag $db->sql("SELECT queryid, longest_ms FROM $texts ORDER BY 2 LIMIT 5");

$node->stop;
done_testing();
