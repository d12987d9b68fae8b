# A report of a server with a load and with hostile names; as roles, beside locks, cancelled; without preload. In other encodings:
# t/blockers_encodings.pl.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $statements = have_module('pg_stat_statements');
my $node = pgscale_node('main', preload => 'pgscale' . ($statements ? ', pg_stat_statements' : ''),
    conf => <<'EOC');
compute_query_id = on
max_connections = 60
primary_conninfo = 'host=nowhere password=hidden1'
archive_command = 'true hidden2'
EOC
my $db = session($node);
$db->sql('CREATE EXTENSION pg_stat_statements') if $statements;

# Whether a page is well-formed, and asks for nothing: elements are closed in their order, attributes are quoted, all else is
# escaped, and all of it is ASCII.
my %void = map { $_ => 1 } qw(meta);
sub page_ok
{
    my ($page, $name) = @_;
    my (@open, @bad);
    my %allowed = map { $_ => 1 } qw(html head meta title style body main section h1 h2 h3 p table thead tbody tr th td span i b code
      details summary pre figure div svg path rect ul ol li);

    push @bad, 'no doctype' unless $page =~ s/\A<!DOCTYPE html>\n//;
    push @bad, 'not ASCII: ' . sprintf '%x', ord $1 if $page =~ /([^\n -~])/;
    # as a browser does: a style ends with the first end of one
    my $style = $page =~ s{<style>(.*?)</style>}{}s ? $1 : push @bad, 'no style';
    push @bad, 'style' if $style =~ /url\(|\@import|expression|</i;
    while ($page =~ /\G([^<]*)(?:<([^>]*)>|\z)/g)
    {
        my ($text, $tag) = ($1, $2);
        push @bad, "text $1" if $text =~ /(&(?!(?:lt|gt|amp|quot|#\d+);).{0,10}|>)/;
        last unless defined $tag;
        if ($tag =~ m{^/(\w+)$}) { my $last = pop @open // ''; push @bad, "</$1> ends $last" if $last ne $1; next; }
        push @bad, "<$tag>" unless $tag =~ m{^(\w+)((?: [\w-]+="[^"<>]*")*)(/?)$} && $allowed{ my $element = $1 };
        my ($attributes, $ends) = ($2 // '', $3 // '');
        push @bad, "attribute of <$tag>" if $attributes =~ / (?!class|style|data-t|id|d|x|width|height|viewBox|preserveAspectRatio|role|aria-label|lang|charset|content|http-equiv|name)[\w-]+=/ && $element ne 'meta';
        push @open, $element // '' unless $ends || $void{ $element // '' };
        last if @bad > 5;
    }
    push @bad, "not ended: @open" if @open;
    return is(join("\n", @bad), '', "$name: well-formed");
}

# Sections and what stands in each
sub section { my ($page, $part) = @_; return $page =~ m{<section id="$part">(.*?)</section>}s ? $1 : ''; }
sub rows_of { return scalar(() = $_[0] =~ /<tr><td/g); }

# psql's own output could not be told from a page with line breaks of another kind
sub report { my ($session, $arguments) = @_; return $session->sql("SELECT pgscale.report($arguments)"); }

# What others have named, and say
my $evil = q{</style></title><script>alert(1)</script>&"'<!-- \\};
my $quoted = $evil =~ s/'/''/gr;
my $name = q{</style><script>alert(1)</script>&"<!--};
$db->sql(qq{DO \$do\$ BEGIN EXECUTE format('CREATE ROLE %I LOGIN SUPERUSER', '$name'); EXECUTE format('CREATE TABLE %I (id int)', 't<i>"&'); END \$do\$});
my $culprit = session($node, user => $name);
$culprit->sql(qq{SET application_name = '<h1>"x"</h1> & more'});
$culprit->sql('CREATE TABLE held (id int); INSERT INTO held VALUES (1)');
$culprit->sql('BEGIN; UPDATE held SET id = 2');
my @victims = map { session($node) } 1 .. 3;
my $statement = qq{UPDATE held SET id = length('$quoted' || \$x\$\x{1}\t&lt;\$x\$) /* } . ('<b>' x 300_000) . ' */';
$db->sees_waiting($_, $statement) for @victims;
$db->poll_ok(q{SELECT count(*) > 0 FROM pgscale.top_waits(now() - interval '1 min', now(), 'blocker', 10) WHERE item <> 'other'}, 'waits are in the history');
$db->poll_ok(q{SELECT count(*) > 0 FROM pgscale.top_waits(now() - interval '1 min', now(), 'query', 10) WHERE wait_ms > 1000}, 'for some time');
# who is in the way is known from a wait's first second on, and blamed if that is clearly more than half of all
$db->poll_ok(q{SELECT (SELECT sum(wait_ms) FROM pgscale.top_waits(now() - interval '1 min', now(), 'blocker', 10))
    > 0.75 * sum(wait_ms) FROM pgscale.top_waits(now() - interval '1 min', now(), 'event', 100) WHERE event_type = 'Lock'}, 'and it is known for whom');

my ($seen) = $db->sql('SELECT idle_in_transaction_ms FROM pgscale_internal.blocker_profile() WHERE root_pid = ' . $culprit->pid);
my $page = report($db, q{now() - interval '1 min', NULL, 'html'});
page_ok($page, 'a page with hostile texts');
my ($held_up) = section($page, 'summary') =~ /Process @{[ $culprit->pid ]} \(user .*?, application &lt;h1&gt;.*?\) blocked other sessions for (\d+) s in all while it was idle in a transaction \(last statement: [^()]*UPDATE held SET id = /;
cmp_ok($held_up // -8, '>', $seen / 1000 - 8, 'the one that idles is named before its victims, with the time that the profile has');
cmp_ok($held_up // 0, '<', $db->sql('SELECT waited_ms FROM pgscale_internal.blocker_profile() WHERE root_pid = ' . $culprit->pid) / 1000 + 8, 'and no more');
unlike(section($page, 'waits'), qr/hot row/, 'and what helps is that it ends');
like(section($page, 'blockers'), qr{<td[^>]*>@{[ $culprit->pid ]} &lt;h1&gt;.*?idle in transaction.*?UPDATE held SET id = }s, 'its state and its statement');
unlike($page, qr/<script|<h1>"x|<i>"/, 'no markup of others');
cmp_ok(length $page, '<', 1_000_000, 'at most a megabyte');
like($page, qr{<title>pgscale report: main@}, 'the node in the title');
unlike($page, qr/hidden[12]/, 'no secrets');
is(() = $page =~ /<rect/g, () = $page =~ /<rect[^>]*><title>/g, 'each rectangle tells its figures');
like(section($page, 'activity'), qr/<path class="w3"/, 'a chart with locks');
like(section($page, 'waits'), qr/Lock:transactionid/, 'the wait');
like(section($page, 'blockers'), qr{&lt;script&gt;|&lt;b&gt;}, 'what they say');
like(section($page, 'blockers'), qr{&lt;h1&gt;&quot;x&quot;&lt;/h1&gt; &amp; more}, 'who is in the way');
cmp_ok(rows_of(section($page, 'blockers')), '>=', 5, 'and who waits');
cmp_ok(rows_of(section($page, $_)), '>', 0, "rows of $_") for qw(sessions buffers sweeper writeback wal health settings);
is(join(' ', map { /id="(\w+)"/ } grep { /<p class="x"/ } $page =~ m{<section.*?</section>}sg), 'load', 'all parts but the one of the archive');
my $text = report($db, q{now() - interval '1 min'});
like($text, qr/^  Lock:transactionid /m, 'text, too');
is((grep { length > 120 } split /\n/, $text), 0, 'fits into 120 columns');
$page = $db->sql(q{SELECT pgscale.report(now() - interval '2 min', now() - interval '1 min', 'html', now() - interval '1 min', now())});
page_ok($page, 'two periods');
is(scalar(() = $page =~ /<svg/g), 2, 'two charts');
like(section($page, 'differences'), qr/Lock:transactionid/, 'and what differs');

# A statement that has not ended, and of which the statistics know nothing
$db->sql('SELECT pg_stat_statements_reset()') if $statements;
push @victims, session($node);
$db->sees_waiting($victims[-1], 'UPDATE held SET id = id');
my $its = 'SELECT query_id FROM pg_stat_activity WHERE pid = ' . $victims[-1]->pid;
$db->poll_ok("SELECT count(*) = 1 FROM pgscale.top_waits(now() - interval '1 min', now(), 'query', 1000) WHERE item = ($its)::text AND query ~ '^UPDATE held SET id = id\\W*\$'", 'is known while it runs');
$db->sql('CREATE ROLE stranger; GRANT USAGE ON SCHEMA pgscale, pgscale_internal TO stranger; GRANT EXECUTE ON FUNCTION pgscale_internal.past_queries, pgscale_internal.past_archive, pgscale_internal.query_waits_statements TO stranger');
my $queryid = $db->sql($its);
like($db->sql("SELECT query FROM pgscale_internal.past_queries('{$queryid}')"), qr/^UPDATE held SET id = id\W*$/, 'to a role that may read all statistics');
is($db->sql("BEGIN; SET LOCAL ROLE stranger; SELECT count(*) FROM pgscale_internal.past_queries('{$queryid}'); COMMIT"), '0', 'and to no other role');

# What the archive keeps of a statement is what pg_stat_statements has, where it is installed
SKIP:
{
    skip 'this server has no pg_stat_statements', 1 unless $statements;

    $db->sql(q{SELECT pgscale_internal.archive_partition('archive_query', '2020-03-01')});
    $db->sql(q{SELECT 4711 AS found, 'password', 4712});
    $db->sql(q{SELECT pgscale_internal.archive_texts(array(SELECT queryid FROM pg_stat_statements WHERE query ~ '^SELECT \$1 AS found'), '2020-03-01 12:00+00')});
    is($db->sql('SELECT query FROM pgscale.archive_queries'), 'SELECT $1 AS found, $2, $3', 'a text for the archive');
}

# With rows in the archive, of two nodes, and with a setting that holds a password
my $counters = $db->sql(q{SELECT string_agg(name, ', ' ORDER BY n) FROM pgscale_internal.archive_counter WHERE source <> 'sampler'});
my $counts = join ', ', 1 .. split /, /, $counters;
$db->sql(qq{CREATE TABLE archived PARTITION OF pgscale_internal.archive_minute DEFAULT; INSERT INTO pgscale_internal.archive_minute
    (at, period_s, rounds, node, cluster, database, backend_types, datids, datnames, usenames, application_names,
     queryids, event_types, events, blockers, wait_ms, $counters)
    SELECT date_trunc('second', now()) - make_interval(secs => 600 - 60 * i), 60, 6, 'node' || i, c.system_identifier, d.oid,
           '{client backend}', array[d.oid], '{<i>}', '{<u>}', '{<b>}', '{1}', '{Lock}', '{relation}', '{<h1>}', '{60000}', $counts
      FROM generate_series(1, 2) i, pg_control_system() c, pg_database d WHERE d.datname = current_database();
    INSERT INTO pgscale_internal.archive_change VALUES (now() - interval '9 min', 'work_mem', '4MB', '<8MB>'), (now() - interval '9 min', 'archive_command', 'hidden3', 'hidden4')});
$page = report($db, q{now() - interval '11 min', now() - interval '7 min', 'html'});
page_ok($page, 'an archive');
like(section($page, 'activity'), qr/work_mem: 4MB to &lt;8MB&gt;/, 'a change of a setting');
like(section($page, 'blockers'), qr/&lt;h1&gt;/, 'and who was in the way');
unlike($page, qr/hidden\d|<u>/, 'and no secrets');
$db->sql('DROP TABLE archived; DELETE FROM pgscale_internal.archive_change');

# A part that cannot be had is a sentence: locks that others hold, on what a report reads, and one that is in nobody's way
my $locker = session($node);
$locker->sql('BEGIN; LOCK pgscale_internal.relocation_job, pgscale_internal.tuning_change');
$page = report($db, q{NULL, NULL, 'html'});
page_ok($page, 'beside a lock');
like(section($page, 'relocation'), qr/<p class="x">This part is missing: another session holds a lock/, 'a part behind a lock');
cmp_ok(rows_of(section($page, $_)), '>', 0, "but $_") for qw(waits health settings);
is($db->sql('SHOW lock_timeout'), '0', 'lock_timeout is as before');
$locker->sql('ROLLBACK');

# An error that speaks of the server's state is in the log, too
$db->sql(q{BEGIN; CREATE OR REPLACE FUNCTION pgscale_internal.report_part_health(since timestamptz, until timestamptz, format text) RETURNS text
    LANGUAGE plpgsql AS $$BEGIN RAISE EXCEPTION 'a damaged page' USING ERRCODE = 'data_corrupted'; END$$});
$page = report($db, q{NULL, NULL, 'html'});
like(section($page, 'health'), qr/<p class="x">This part is missing: a damaged page/, 'a part that fails');
like(slurp_file($node->logfile), qr/LOG: .*pgscale report: health: a damaged page/, 'as the log says');
$db->sql('ROLLBACK');

# and a cancel is none, also in the middle of a wait for a lock, that is: before the part becomes a sentence
$locker->sql('BEGIN; LOCK pgscale_internal.relocation_job');
$db->start('SELECT pgscale.report() FROM generate_series(1, 100000)');
until_ok(sub { $locker->sql('SELECT count(*) FROM pg_locks WHERE NOT granted AND pid = ' . $db->pid) eq '1' }, 'it waits for a lock');
$locker->sql('SELECT pg_cancel_backend(' . $db->pid . ')');
is(($db->finish)[0], '57014', 'cancelled while it waits for a lock');
$locker->sql('ROLLBACK');

# Roles
$db->sql(q{CREATE ROLE monitoring LOGIN IN ROLE pg_monitor; CREATE ROLE reader LOGIN; GRANT USAGE ON SCHEMA pgscale, pgscale_internal TO reader;
    DO $$ DECLARE f regprocedure; BEGIN FOR f IN SELECT oid FROM pg_proc WHERE pronamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace) AND proname ~ '^report' LOOP
        EXECUTE format('GRANT EXECUTE ON FUNCTION %s TO reader', f); END LOOP; END $$});
$page = report(session($node, user => 'monitoring'), q{NULL, NULL, 'html'});
page_ok($page, 'pg_monitor');
is(join(' ', map { /id="(\w+)"/ } grep { /<p class="x"/ } $page =~ m{<section.*?</section>}sg), 'load', 'has all parts');
unlike($page, qr/hidden[12]/, 'and no secrets');
$page = report(session($node, user => 'reader'), q{NULL, NULL, 'html'});
page_ok($page, 'one with the functions of report alone');
like(section($page, $_), qr/class="x">This part is not for the role that asked: permission denied/, "$_ is not for him") for qw(waits blockers health);
unlike($page, qr/hidden[12]|&lt;b&gt;&lt;b&gt;/, 'sees no statement of others');

# What others plant in the schema, or in public, is not called
$db->sql(q{CREATE TABLE planted (what text); CREATE ROLE planter LOGIN; GRANT CREATE, USAGE ON SCHEMA pgscale, pgscale_internal, public TO planter; GRANT INSERT ON planted TO PUBLIC});
my $planter = session($node, user => 'planter');
$planter->sql(qq{CREATE FUNCTION $_ AS 'INSERT INTO public.planted VALUES (\$p\$$_\$p\$); SELECT NULL::text'}) for map { "$_ RETURNS text LANGUAGE sql" }
  'pgscale_internal.report_paragraph(text, text)', 'pgscale_internal.report_paragraph(text, text, varchar)', 'pgscale_internal.report_table(text, text, text, text[])',
  'pgscale_internal.clean_text(varchar)', 'pgscale.top_waits(timestamptz, timestamptz, text)', 'pgscale_internal.clean_statement(varchar)',
  'pgscale_internal.is_secret(name, text)', 'public.format(text, text)', 'public.left(text, bigint)', 'public.current_setting(varchar)',
  'public.concat_ws(text, text, text)';
$planter->sql(q{CREATE FUNCTION public.planted_concat(text, text) RETURNS text LANGUAGE sql AS $$ INSERT INTO public.planted VALUES ('||'); SELECT $1 $$;
    CREATE OPERATOR public.|| (LEFTARG = text, RIGHTARG = text, FUNCTION = public.planted_concat)});
$db->sql(q{SET search_path = public, pg_catalog; SELECT length(pgscale.report(NULL, NULL, 'html')) + length(pgscale.report(now() - interval '1 min', now(), 'text', now() - interval '1 min', now()))});
is($db->sql('RESET search_path; SELECT string_agg(DISTINCT what, E\'\n\') FROM planted'), '', 'nothing planted is called');

$_->quit for $culprit, @victims;

# Without preload
$node->append_conf('postgresql.conf', "shared_preload_libraries = ''");
$node->restart;
$db = session($node);
$page = report($db, q{NULL, NULL, 'html'});
page_ok($page, 'without preload');
like(section($page, $_), qr/class="x">[^<]*pgscale is not loaded/, "without preload: $_") for qw(period waits activity);
cmp_ok(rows_of(section($page, $_)), '>', 0, "without preload: $_") for qw(health settings wal);
$node->stop('fast');
done_testing();
