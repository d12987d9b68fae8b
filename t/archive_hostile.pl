# What may befall an archive: its database is dropped, renamed, closed or hostile, its disk full, its tables locked, changed or planted
# with traps; rounds are cancelled and killed. It stops with one line in the log, says so, harms nothing, and goes on by itself.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main', create => 0, conf => <<'EOC');
pgscale.debug_period = 1s
log_line_prefix = '%m [%p] %b '
EOC
my $db = session($node);
my $health = q{SELECT state FROM pgscale.health WHERE feature = 'archive'};
my $reason = q{SELECT state, reason, action FROM pgscale.health WHERE feature = 'archive'};

$db->sql('CREATE EXTENSION pgscale');
$db->sql(q{CREATE DATABASE a TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'});
sub in_archive { my $s = session($node, dbname => 'a'); my $answer = $s->sql(shift); $s->quit; return $answer; }
sub logged { my $what = shift; my @lines = slurp_file($node->logfile) =~ /(LOG:  pgscale archive: $what)/g; return scalar @lines; }

# It works on: so many more rows, two where one may have been under way before
sub works_ok
{
    my ($name, $database, $more) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my $in = session($node, dbname => $database // 'a');

    until_true(sub { (($in->try('SELECT 1 FROM pgscale.archive_minutes LIMIT 1'))[0]) eq '00000' });
    my $rows = $in->sql('SELECT count(*) FROM pgscale.archive_minutes');
    $rows += ($more // 1);
    $in->poll_ok("SELECT count(*) >= $rows FROM pgscale.archive_minutes", "$name: it goes on");
    $in->quit;
    return $db->poll_ok($health, "$name: and says so", 'working');
}

sub broken_ok
{
    my ($what, $name, $action) = @_;
    my $said;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    until_true(sub { ($said = $db->sql($reason)) =~ /^broken\|.*$what/ });
    return like($said, qr/^broken\|.*$what.*\|$action/, $name);
}

# Without the extension
$db->set('pgscale.archive_database' => 'a');
broken_ok('archive_minute', 'no extension there', 'in database "a": CREATE EXTENSION');
in_archive('CREATE EXTENSION pgscale');
works_ok('there it is');

# What its owner has set there to be logged is not, nor what each connection warns of; but errors of a connection are
$db->sql('ALTER DATABASE a SET debug_print_plan = on; ALTER DATABASE a SET log_statement_stats = on; ALTER DATABASE a SET log_min_duration_statement = 0');
$db->sql(q{UPDATE pg_database SET datcollversion = 'another' WHERE datname = 'a'});
works_ok('noisy, and with a stale collation version', 'a', 3);
unlike(slurp_file($node->logfile), qr/pgscale archive round LOG:  (?:00000: )?(?:plan|duration|QUERY STATISTICS)/, 'its rounds are quiet');
$db->sql('ALTER DATABASE a RESET ALL');
like(slurp_file($node->logfile), qr/WARNING:.*collation version/, 'sessions are warned of a stale collation version');
unlike(slurp_file($node->logfile), qr/pgscale archive round WARNING/, 'its rounds do not repeat it');
$db->sql(q{UPDATE pg_database SET datcollversion = NULL, datctype = 'none such' WHERE datname = 'a'});
until_ok(sub { slurp_file($node->logfile) =~ /pgscale archive round FATAL:.*locale/ }, 'a round that cannot connect is in the log');
$db->sql(q{UPDATE pg_database SET datctype = 'C' WHERE datname = 'a'});
works_ok('and can connect again');

# Renamed, and closed
is(($db->try('ALTER DATABASE a RENAME TO b'))[0], '00000', 'renamed');
broken_ok('does not exist', 'it is missing', 'set pgscale.archive_database to one');
is(($db->try('ALTER DATABASE b RENAME TO a'))[0], '00000', 'and back');
works_ok('renamed back');
is(logged('database "a" does not exist'), 1, 'a line in the log');
$db->sql('ALTER DATABASE a ALLOW_CONNECTIONS false');
broken_ok('takes no connections', 'closed', 'ALTER DATABASE ... ALLOW_CONNECTIONS true');
$db->sql('ALTER DATABASE a ALLOW_CONNECTIONS true');
works_ok('open again');

# A round that takes long gives way. From 19 on the server sees to that, without the launcher, which is stopped.
{
    my $other = session($node);
    my $launcher = $db->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'pgscale archive'});
    my $sleeping = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'pgscale archive round' AND wait_event = 'PgSleep'};
    my $alone = $db->sql('SELECT pgscale_internal.major()') >= 19;

    in_archive(q{CREATE FUNCTION slow() RETURNS event_trigger LANGUAGE plpgsql AS $$BEGIN PERFORM pg_sleep(600) FROM pg_stat_activity
            WHERE pid = pg_backend_pid() AND backend_type = 'pgscale archive round'; END$$;
        CREATE EVENT TRIGGER slow ON ddl_command_start EXECUTE FUNCTION slow();
        SELECT pgscale_internal.archive_drop('archive_minute_' || to_char(now() AT TIME ZONE 'UTC' + interval '1 day', 'YYYYMMDD'))});
    for my $command ('CREATE DATABASE copy TEMPLATE a', 'DROP DATABASE a')
    {
        $db->poll_ok("SELECT count(*) FROM ($sleeping) s", "a long round, before $command", 1);
        my $round = $db->sql($sleeping);
        kill STOP => $launcher if $alone;
        $other->start($command);
        $db->poll_ok("SELECT count(*) FROM pg_stat_activity WHERE pid = $round", 'it ends', 0);
        kill CONT => $launcher;
        is(($other->finish)[0], '00000', $command);
    }
    $db->sql(q{CREATE DATABASE a TEMPLATE template0 ENCODING 'UTF8' LC_COLLATE 'C' LC_CTYPE 'C'});
    in_archive('CREATE EXTENSION pgscale');
    works_ok('made again without long rounds');
}

# Settings that others may make
my @settings = (
    [ statement_timeout => '1ms' ], [ lock_timeout => '1ms' ], [ idle_in_transaction_session_timeout => '1ms' ], [ exit_on_error => 'on' ],
    [ default_transaction_read_only => 'on' ], [ default_transaction_isolation => 'serializable' ], [ search_path => 'planted, pg_catalog' ],
    [ session_replication_role => 'replica' ], [ row_security => 'off' ], [ TimeZone => 'Asia/Kathmandu' ], [ DateStyle => 'SQL, DMY' ],
    [ IntervalStyle => 'sql_standard' ], [ 'plpgsql.extra_errors' => 'all' ], [ 'plpgsql.variable_conflict' => 'use_variable' ],
    [ transform_null_equals => 'on' ], [ quote_all_identifiers => 'on' ], [ array_nulls => 'off' ], [ extra_float_digits => '-15' ]);
# PostgreSQL 19 has no other strings
push @settings, [ standard_conforming_strings => 'off' ] if $db->sql('SELECT pgscale_internal.major()') < 19;
in_archive(q{CREATE SCHEMA planted; CREATE TABLE public.ran (what text);
    CREATE FUNCTION planted.plant(text) RETURNS boolean LANGUAGE sql AS 'INSERT INTO public.ran VALUES ($1); SELECT true';
    CREATE FUNCTION planted.equal(text, text) RETURNS boolean LANGUAGE sql AS 'SELECT planted.plant($1)';
    CREATE OPERATOR planted.= (LEFTARG = text, RIGHTARG = text, FUNCTION = planted.equal);
    CREATE FUNCTION planted.now() RETURNS timestamptz LANGUAGE sql AS $$SELECT planted.plant('now'); SELECT 'epoch'::timestamptz$$;
    CREATE FUNCTION pgscale_internal.wait_history(timestamptz) RETURNS SETOF pgscale.wait_history LANGUAGE sql AS $$SELECT planted.plant('history'); SELECT * FROM pgscale.wait_history$$;
    CREATE FUNCTION pgscale_internal.clean_text(name) RETURNS text LANGUAGE sql AS $$SELECT planted.plant('name'); SELECT 'x'$$;
    CREATE FUNCTION pgscale_internal.clean_text(varchar) RETURNS text LANGUAGE sql AS $$SELECT planted.plant('varchar'); SELECT 'x'$$;
    CREATE FUNCTION pgscale_internal.archive_partition(name, date) RETURNS void LANGUAGE sql AS $$SELECT planted.plant('partition')$$;
    CREATE FUNCTION pgscale_internal.archive_partition(text, timestamptz) RETURNS void LANGUAGE sql AS $$SELECT planted.plant('partition')$$;
    CREATE FUNCTION pgscale_internal.archive_drop(name) RETURNS void LANGUAGE sql AS $$SELECT planted.plant('drop')$$;
    CREATE FUNCTION pgscale_internal.archive_texts(text, timestamptz) RETURNS void LANGUAGE sql AS $$SELECT planted.plant('texts')$$;
    CREATE FUNCTION pgscale_internal.archive_write(timestamptz, interval, integer DEFAULT 1) RETURNS text LANGUAGE sql AS $$SELECT planted.plant('write'); SELECT 'written'$$});
for (@settings)
{
    my ($name, $value) = @$_;
    $db->sql("ALTER DATABASE a SET $name = " . ($name eq 'search_path' ? $value : "'$value'"));
}
my $settled = do {
    local $ENV{PGOPTIONS} = '-c statement_timeout=0 -c lock_timeout=0 -c exit_on_error=off -c search_path=pg_catalog -c idle_in_transaction_session_timeout=0';
    session($node, dbname => 'a');
};
my $count = $settled->sql('SELECT count(*) FROM pgscale.archive_minutes');
$settled->poll_ok("SELECT count(*) > $count + 1 FROM pgscale.archive_minutes", 'whatever the database has set');
is($settled->sql('SELECT count(*) FROM public.ran'), 0, 'nothing that was planted has run');
$settled->quit;
is($db->sql($reason), 'working|a row is written each period|', 'it works');
$db->sql('ALTER DATABASE a RESET ALL');

# A table that is locked
my $locker = session($node, dbname => 'a');
my $before = logged('canceling statement due to lock timeout');
$locker->sql('BEGIN; LOCK pgscale_internal.archive_minute');
broken_ok('lock', 'locked', 'end the session that has locked pgscale_internal.archive_minute');
$locker->sql('COMMIT');
works_ok('unlocked');
# one for rows; and one for upkeep, if that was hit first
like(logged('canceling statement due to lock timeout') - $before, qr/^[12]$/, 'a line in the log');

# A transaction that has read hinders upkeep, which gives way at once: others read, rows are written
$locker->sql('BEGIN; SELECT count(*) FROM pgscale.archive_waits');
my @days = split /\|/, in_archive(q{SELECT to_char(d - 40, 'YYYYMMDD'), to_char(d - 20, 'YYYYMMDD') FROM (SELECT (now() AT TIME ZONE 'UTC')::date) t (d)});
in_archive("SELECT pgscale_internal.archive_partition('archive_minute'::text, '$_'::date)") for @days;
my $names = qq{SELECT string_agg(relname, ' ') FROM (SELECT relname FROM pg_class WHERE relname ~ '^archive_(hour|minute)_($days[0]|$days[1])\$' ORDER BY 1) c};
my $reader = session($node, dbname => 'a');
my ($read_rows, $failed) = (undef, '');
$reader->sql(q{SET lock_timeout = '100ms'});
until_true(sub {
    my ($state, $rows) = $reader->try('SELECT count(*) FROM pgscale.archive_minutes');
    $failed = $rows if $state ne '00000';
    $read_rows //= $rows;
    return $failed || $rows >= $read_rows + 3;
});
is($failed, '', 'another reader does not wait');
is($reader->sql($names), "archive_minute_$days[0] archive_minute_$days[1]", 'what is old is there');
is($db->sql($reason), 'working|a row is written each period|', 'which is no fault');
$locker->sql('COMMIT');
$reader->poll_ok($names, 'then one is dropped, and one rolled up', "archive_hour_$days[1]");
$reader->quit;

# What may be wrong with its objects: what breaks them, what the reason and the action say then, and what mends them. The last one makes
# rows of the time that it is, as there are when the clock was set back.
my ($day, $next) = split /\|/, $locker->sql(q{SELECT to_char(d, 'YYYYMMDD'), to_char(d + 1, 'YYYYMMDD') FROM (SELECT (now() AT TIME ZONE 'UTC')::date) t (d)});
my $columns = $locker->sql(q{SELECT string_agg(attname, ', ') FROM pg_attribute
    WHERE attrelid = 'pgscale_internal.archive_minute'::regclass AND attnum > 2 AND NOT attisdropped});
my $now_there = 'the archive already has rows of this time';
my $latest = "(SELECT * FROM pgscale_internal.archive_minute ORDER BY at DESC LIMIT 1) m";
my $function = 'CREATE OR REPLACE FUNCTION public.audited() RETURNS event_trigger LANGUAGE plpgsql AS';

$locker->sql(q{CREATE ROLE mallory; GRANT USAGE, CREATE ON SCHEMA pgscale, pgscale_internal, public TO mallory; GRANT INSERT ON public.ran TO mallory});
$before = logged($now_there);
for my $fault (
    [ 'a column has another name', 'ALTER TABLE pgscale_internal.archive_minute RENAME COLUMN rounds TO changed', 'rounds', 'in database "a": CREATE EXTENSION',
        'ALTER TABLE pgscale_internal.archive_minute RENAME COLUMN changed TO rounds' ],
    [ 'a trigger', qq{GRANT TRIGGER ON pgscale_internal.archive_minute_$day TO mallory; SET ROLE mallory;
        CREATE FUNCTION public.trap() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN INSERT INTO public.ran VALUES (current_user); RETURN NEW; END';
        CREATE TRIGGER trap BEFORE INSERT ON pgscale_internal.archive_minute_$day FOR EACH ROW EXECUTE FUNCTION public.trap(); RESET ROLE},
        'trigger', 'in database "a": drop the trigger', "DROP TRIGGER trap ON pgscale_internal.archive_minute_$day" ],
    [ 'a table of another role', 'ALTER EXTENSION pgscale DROP TABLE pgscale_internal.archive_setting; ALTER TABLE pgscale_internal.archive_setting OWNER TO mallory',
        'archive_setting', 'in database "a": CREATE EXTENSION',
        'ALTER TABLE pgscale_internal.archive_setting OWNER TO CURRENT_USER; ALTER EXTENSION pgscale ADD TABLE pgscale_internal.archive_setting' ],
    [ 'an event trigger that fails when a partition is made', qq{$function 'BEGIN INSERT INTO public.nowhere VALUES (1); END';
        SELECT pgscale_internal.archive_drop('archive_minute_$next'); CREATE EVENT TRIGGER audited ON ddl_command_start EXECUTE FUNCTION public.audited()},
        'relation "public.nowhere" does not exist', 'in database "a": fix the function public.audited\(\), which is not a part of pgscale, or disable the event trigger',
        'DROP EVENT TRIGGER audited' ],
    [ 'its schema has another name', 'ALTER SCHEMA pgscale RENAME TO elsewhere', 'has no schema', 'in database "a": give the schema its name back',
        'ALTER SCHEMA elsewhere RENAME TO pgscale' ],
    [ 'rows of this time', "INSERT INTO pgscale_internal.archive_minute (at, period_s, $columns)
        SELECT clock_timestamp() + n * interval '1 s', 3600, $columns FROM generate_series(-1, 0) n, $latest",
        $now_there, 'nothing: the archive resumes by itself', 'DELETE FROM pgscale_internal.archive_minute WHERE period_s = 3600' ])
{
    my ($name, $breaks, $said, $action, $mends) = @$fault;

    $locker->sql($breaks);
    broken_ok($said, $name, $action);
    $locker->sql($mends);
    works_ok("$name: mended");
}
is($locker->sql('SELECT count(*) FROM public.ran'), 0, 'the trigger has not run');
is(logged($now_there) - $before, 1, 'a line in the log');
$locker->sql("INSERT INTO pgscale_internal.archive_minute (at, period_s, $columns) SELECT at + interval '20 hours', 60, $columns FROM $latest");
works_ok('with rows of tomorrow', 'a', 2);
$locker->sql('DELETE FROM pgscale_internal.archive_minute WHERE period_s = 60');

# Whatever an error says, it is text here, and in a database of another encoding: a character is not cut
$locker->sql($_) for "$function 'BEGIN RAISE ''%'', repeat(chr(228), 200); END'", "SELECT pgscale_internal.archive_drop('archive_minute_$next')",
  'CREATE EVENT TRIGGER audited ON ddl_command_start EXECUTE FUNCTION public.audited()';
$db->sql(q{CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LC_COLLATE 'C' LC_CTYPE 'C'});
for my $database ('a', 'latin')
{
    my $there = session($node, dbname => $database);

    $there->sql('CREATE EXTENSION pgscale') if $database eq 'latin';
    $there->poll_ok(q{SELECT reason = 'rows are written, but partitions are not made, rolled up or dropped: ' || repeat(chr(228), 127)
        FROM pgscale.health WHERE feature = 'archive'}, "an error in $database");
    $there->quit;
}
$locker->sql('DROP EVENT TRIGGER audited');
works_ok('without the event trigger');

# Cancelled and killed
my $pid = q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'pgscale archive round'};
for my $how ('pg_cancel_backend', 'pg_terminate_backend')
{
    $locker->sql('BEGIN; LOCK pgscale_internal.archive_minute');
    until_ok(sub { ($db->sql("SELECT count($how(pid)) FROM ($pid) p")) eq '1' }, "$how of a round");
    $locker->sql('COMMIT');
    works_ok($how, 'a', 2);
}
my $launcher = $db->sql(q{SELECT pid FROM pg_stat_activity WHERE backend_type = 'pgscale archive'});
$db->sql("SELECT pg_terminate_backend($launcher)");
$db->poll_ok(qq{SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pgscale archive' AND pid <> $launcher}, 'another launcher', 1);
works_ok('it');

# A shutdown while a round waits
$locker->sql('BEGIN; LOCK pgscale_internal.archive_minute');
until_ok(sub { $db->sql("SELECT count(*) FROM ($pid) p") eq '1' }, 'a round waits');
ok($node->stop('fast', fail_ok => 1), 'a fast shutdown');
$node->start;
$db = session($node);
$node->stop('immediate');
$node->start;
$db = session($node);
works_ok('after a crash');
is($db->sql(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type ~ 'pgscale archive$'}), 1, 'one launcher');
is(in_archive(q{SELECT count(*) FROM (SELECT at, lag(at + make_interval(secs => period_s)) OVER (ORDER BY at) AS before
    FROM pgscale.archive_minutes) m WHERE at < before - interval '0.001 s'}), 0, 'no time is there twice');

done_testing();
