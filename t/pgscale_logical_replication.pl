# Logical replication: what pgscale writes into its own tables is nobody else's. A publication FOR ALL TABLES has them, too: a
# subscriber without pgscale goes on, one with pgscale keeps its own rows, and output plugins see nothing of them.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $publisher = pgscale_node('publisher', init => [ allows_streaming => 'logical' ], create => 0, conf => <<'EOC');
allow_in_place_tablespaces = on
pgscale.debug_period = 1s
EOC
my $subscriber = pgscale_node('subscriber', create => 0, conf => "wal_retrieve_retry_interval = 100ms\n");
my $p = session($publisher);
my $s = session($subscriber);
my $rows = 0;

# A row that is written after all before it arrives
sub replicates_ok
{
    my $name = shift;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    $p->sql('INSERT INTO t VALUES (' . ++$rows . ')');
    return $s->poll_ok('SELECT max(id) FROM t', $name, $rows);
}

$_->sql('CREATE TABLE t (id int PRIMARY KEY)') for $p, $s;
$p->sql('CREATE PUBLICATION everything FOR ALL TABLES');
$s->sql("CREATE SUBSCRIPTION sub CONNECTION '@{[$publisher->connstr =~ s/'//gr]} dbname=postgres' PUBLICATION everything");
replicates_ok('before');
my $decodes = have_module('test_decoding');
$p->sql(q{SELECT pg_create_logical_replication_slot('other', 'test_decoding')}) if $decodes;

# A subscriber without pgscale
like(($p->try('CREATE EXTENSION pgscale'))[1], qr/WARNING.*publication "everything" includes its tables.*HINT/s, 'a warning says so');
like($p->sql(q{SET ROLE pg_monitor; SELECT reason, action FROM pgscale.health WHERE feature = 'tuning'}),
    qr/; publication "everything" includes its tables\|.*operations/, 'health does, too');
$p->sql('RESET ROLE');
$p->sql(q{CALL pgscale.set('work_mem', '5MB')});
replicates_ok('a change of a setting');
$p->sql(q{CALL pgscale.revert(1)});
replicates_ok('a revert');
$p->sql(q{CREATE TABLESPACE other LOCATION ''});
$p->sql(q{SELECT pgscale.relocate_indexes('t_pkey', 'other', mode => 'rebuild')});
$p->poll_ok('SELECT state FROM pgscale.relocation_jobs', 'a job', 'done');
replicates_ok('a job');
$p->sql(q{BEGIN; INSERT INTO t VALUES (0);
    INSERT INTO pgscale_internal.archive_change SELECT now(), 'large', string_agg(md5(i::text), ''), '' FROM generate_series(1, 10000) i;
    UPDATE pgscale_internal.archive_change SET new = 'x'; DELETE FROM pgscale_internal.archive_change; COMMIT});
replicates_ok('values out of line');

# After pg_upgrade, which loses the marks
my $forget = q{UPDATE pg_class SET relrewrite = 0 WHERE relrewrite <> 0};
$p->sql($forget);
$p->sql(q{CALL pgscale.set('commit_delay', '11')});
replicates_ok('a change when the marks are lost');

# In a session of a replica, where triggers are others
like($p->sql(q{SET session_replication_role = replica; CALL pgscale.set('work_mem', '6MB')}), qr/4/, 'as a replica');
is($p->sql(q{RESET session_replication_role; SELECT new_value FROM pgscale.tuning_journal WHERE change = 4}), '6MB', 'is in the journal');

# One with pgscale, and rows of the same keys
$s->sql('CREATE EXTENSION pgscale');
$s->sql(q{CALL pgscale.set('maintenance_work_mem', '65MB')});
$s->sql(q{INSERT INTO pgscale_internal.archive_setting VALUES ('work_mem', 'here')});
$p->sql(q{INSERT INTO pgscale_internal.archive_setting VALUES ('work_mem', 'there'), ('other', 'there')});
$s->sql('ALTER SUBSCRIPTION sub REFRESH PUBLICATION');
$s->poll_ok(q{SELECT count(*) > 4 AND bool_and(srsubstate = 'r') FROM pg_subscription_rel}, 'the first copy ends');
is($s->sql('SELECT setting FROM pgscale.tuning_journal'), 'maintenance_work_mem', 'the journal is its own');
is($s->sql('SELECT setting, value FROM pgscale_internal.archive_setting'), 'work_mem|here', 'and so is the archive');
is($s->sql('SELECT count(*) FROM pgscale_internal.relocation_job'), 0, 'no job came');

# An archive, and hours of it
$p->sql(q{DELETE FROM pgscale_internal.archive_setting});
$p->set('pgscale.archive_database' => 'postgres');
$p->poll_ok('SELECT count(*) > 1 FROM pgscale.archive_minutes', 'rows of the archive');
my $columns = $p->sql(q{SELECT string_agg(attname, ', ') FROM pg_attribute
    WHERE attrelid = 'pgscale_internal.archive_minute'::regclass AND attnum > 1 AND NOT attisdropped});
$p->sql(qq{SELECT pgscale_internal.archive_partition('archive_minute', '2020-03-01');
    INSERT INTO pgscale_internal.archive_minute (at, $columns) SELECT '2020-03-01 10:00+00', $columns FROM pgscale_internal.archive_minute LIMIT 1;
    SELECT pgscale_internal.archive_roll_up('archive_minute_20200301')});
is($p->sql(q{SELECT count(*) FROM pgscale.archive_minutes WHERE at < '2020-03-02'}), 1, 'an hour');
replicates_ok('an archive');
is($p->sql(q{SELECT count(*) FROM pgscale.health WHERE feature IN ('archive', 'relocation', 'tuning') AND reason ~ 'everything'}), 3,
    'health says which features');
# not within a round of the worker, which has looked at the marks already
$p->set('pgscale.archive_database' => undef);
$p->poll_ok(q{SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'pgscale archive%'}, 'the archive stands still', 0);
my $rounds = $p->sql("$forget; SELECT count(*) FROM pgscale.archive_minutes");
$p->set('pgscale.archive_database' => 'postgres');
$p->poll_ok("SELECT count(*) > $rounds + 1 FROM pgscale.archive_minutes", 'more rows');
replicates_ok('an archive when the marks are lost');
$p->set('pgscale.archive_database' => undef);

# What others decode
SKIP:
{
    skip 'no test_decoding', 2 unless $decodes;
    my $changes = q{SELECT count(*) FROM pg_logical_slot_peek_changes('other', NULL, NULL) WHERE data ~ };

    is($p->sql("$changes 'table public.t: INSERT'"), $rows, 'an output plugin sees others\' rows');
    is($p->sql("$changes 'pgscale'"), 0, 'and none of pgscale');
}

# Without a publication of all
$p->sql('DROP PUBLICATION everything');
is($p->sql(q{SELECT count(*) FROM pgscale.health WHERE reason ~ 'publication'}), 0, 'no publication has them');
$p->sql('CREATE PUBLICATION ours FOR TABLES IN SCHEMA pgscale_internal');
like($p->sql(q{SELECT reason FROM pgscale.health WHERE feature = 'relocation'}), qr/publication "ours"/, 'one of the schema');
$p->sql('DROP PUBLICATION ours; CREATE PUBLICATION ours FOR TABLE pgscale_internal.tuning_change');
like($p->sql(q{SELECT reason FROM pgscale.health WHERE feature = 'tuning'}), qr/publication "ours"/, 'one of the table');
SKIP:
{
    skip 'no table can be left out of all', 1 if $publisher->safe_psql('postgres', 'SHOW server_version_num') < 190000;
    $p->sql('DROP PUBLICATION ours; CREATE PUBLICATION ours FOR ALL TABLES EXCEPT (TABLE ' . $p->sql(q{SELECT string_agg(c.oid::regclass::text, ', TABLE ')
        FROM pg_class c WHERE relnamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace) AND relkind IN ('r', 'p') AND NOT relispartition}) . ')');
    is($p->sql(q{SELECT DISTINCT reason FROM pgscale.health WHERE reason ~ 'publication'}), '', 'one of all tables but ours');
}
done_testing();
