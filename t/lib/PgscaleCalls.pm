# PgscaleCalls.pm: how each function and procedure of the extension is called sensibly, and a server on which there is something
# for it to find. The tests that call all there is (fuzz, cancel) ask the catalog for what there is: a new function that needs arguments
# needs a line here, or they fail and name it.
package PgscaleCalls;

use strict;
use warnings;
use Exporter 'import';
use PgscaleTest;
use PgscaleWire;

our @EXPORT = qw(calls_node calls_unknown calls_known calls_state);

my $checkpointer = q{(SELECT pid FROM pg_stat_activity WHERE backend_type = 'checkpointer')};

# Arguments; more than one list where they take different ways. Those of an aggregate stand with what they are selected from. A function
# that needs none has no line. undef: it cannot be called by itself.
our %arguments = (
    activity => [ '', q{'-infinity', 'infinity', '1 h'} ],
    advice_rules => [ '', q{'10 min', true} ],
    apply => [q{'work_mem'}],
    apply_all => [ 'true', 'false' ],
    archive_answered => [q{ROW(1), now(), now()}],
    archive_ask => [q{60, '{}', 0, now()}],
    archive_counter_growth => [q{'{1}', '{1}'}],
    archive_create => [q{'archive_minute_19991231', 'archive_minute', 'a day'}],
    archive_drop => [q{'archive_minute_20000101'}],
    archive_garbled => [q{NULL, 'x', now()}],
    archive_known => ['0, now()'],
    archive_longest => [q{'SELECT 1 AS part, w.*, w.wait_ms AS ms FROM pgscale.past_waits() w', 10}],
    archive_missing => [q{'{1}', '2000-01-01'}],
    archive_named_waits => [q{'2000-01-01', '2000-01-01'}],
    archive_partition => [q{'archive_minute', '2000-01-01'}],
    archive_roll_up => [q{'archive_minute_20000101'}],
    archive_node_ids => [q{'x'}],
    archive_node_growth => [q{'{}', '{}', 1}],
    archive_pull => ['60'],
    archive_remarks => ['true'],
    archive_seen => [q{NULL, '2000-01-01', 'x'}],
    archive_settings => [q{'2000-01-01', '{}', 0}],
    archive_stretches => [q{'archive_minute_20000101'}],
    archive_take => [q{ROW(1), '0', '{}', now()}],
    archive_take_latest => [q{ROW(1), '0', NULL, now()}],
    archive_texts => [q{'{1}', '2000-01-01'}],
    archive_upkeep => ['7, 35'],
    archive_wait_deltas => [q{'2000-01-01'}],
    archive_wait_growth => [q{'{1, 1, 1, 0, 0}', '{1}'}],
    archive_write => [q{'2000-01-01', '1 min'}],
    buffer_usage => [ '', 'NULL', '4096' ],
    'pgscale_internal.buffer_usage' => [''],
    buffer_usage_sample => ['4096'],
    cancel => [ '0', q{2147483647, true} ],
    clean_line => [q{repeat(E' x\n', 100000), 1000}],
    clean_statement => [q{repeat('password ', 10000)}],
    clean_text => [q{repeat('x', 100000)}],
    compare_waits => [q{'-infinity', now() - interval '5 s', now() - interval '5 s', NULL, 'query'}],
    connections_by_application => [ '', '1' ],
    connections_peak => [ '', q{now() - interval '1 min'} ],
    discard_replicated => undef,
    fleet_add => [q{'nowhere', 'host=/nowhere'}],
    fleet_ask => undef,
    fleet_remove => [q{'nowhere'}],
    fleet_validate => [q{'{host=x}', 'pg_foreign_server'::regclass}],
    foreign_name => [q{repeat('x', 100)}],
    foreign_text => [q{repeat('x', 100000), 6}],
    is_secret => [q{'work_mem', i::text}],
    keep => [ q{'t'}, q{'t', 0.1}, q{'t_pkey', NULL} ],
    metrics => [ '', q{'sampler'} ],
    name_of => [ '1', '10, true' ],
    now_age => [q{now() - interval '1 min'}],
    now_classes => [q{now() - interval '1 min', now()}],
    now_conflicting => [ q{'snapshot', 0}, q{'lock', 1}, q{'pin', i} ],
    now_findings => ['pgscale_internal.now_evidence()'],
    now_horizon => [ q{100000, 60}, q{1, 0} ],
    now_latency => [q{'read', 1.234, 0, i}],
    now_lines => ['pgscale_internal.now_evidence()'],
    now_ms => ['12.345'],
    (map { ("now_part_$_" => ['pgscale_internal.now_evidence()']) } qw(diagnosis load sessions machine)),
    node_waits => [q{now() - interval '5 min', now(), 60}],
    node_minutes => [ q{60, '{}', 10}, q{1, '{"0": {}}', 1} ],
    now_period => [q{'{"s": 6, "wal_syncs": 3, "active": 2.5, "kinds": {"wal_sync": 2.5}}'}],
    now_pinning => ['0'],
    now_processes => [ '', 'false' ],
    now_rate => ['12.345'],
    now_root_sessions => ['true, true'],
    now_roots => [ 'true', 'false' ],
    now_sessions => [q{'[{"pid": 1}]'}],
    now_standbys => [ 'i, NULL', q{i, '0/1'} ],
    now_usual => [q{'{"s": 6, "reads": 300}'}],
    numa_buffers => [ '', 'true' ],
    os_cache_evict => [q{'t'}],
    os_cache_flush => [ q{'t'}, q{'t', true} ],
    past_coverage => [ '', q{'-infinity'} ],
    past_differences => [q{'-infinity', now() - interval '5 s', now() - interval '5 s', NULL, 'query', 10}],
    past_items => [q{NULL, NULL, 'query', 10}, q{'-infinity', NULL, 'event', 3, 42}],
    past_keep => [ q{now() - interval '1 h', now()}, 'NULL, NULL' ],
    past_queries => [ 'ARRAY[1, i]::bigint[]', 'ARRAY[1, i]::bigint[], true' ],
    past_waits => [ '', q{'-infinity', NULL, 10} ],
    query_waits_statements => ['true'],
    query_waits_text_fits => ['true'],
    relation_os_cache => [ 'NULL', q{'t'} ],
    relocate_indexes => [ q{'p_pkey', 'there'}, q{'t_pkey', 'there', false, true}, q{'p_b_idx', 'pg_default', false, false, 'online'},
        q{'p', 'there'} ],
    relocate_table => [ q{'p', 'there', 'lock', '1 ms'}, q{'t', 'there'}, q{'t', 'pg_default'} ],
    relocate_tablespace => [ q{'pg_default', 'there'}, q{'there', 'pg_default'}, q{'pg_default', 'there', 'indexes'} ],
    relocation_cancel => ['job(false)'],
    relocation_bytes => [ q{'t'::regclass, true, false}, q{'t'::regclass, true, true} ],
    relocation_database_bytes => ['1663, 1'],
    relocation_staying => ['0'],
    relocation_describe_index => [q{'t_pkey'::regclass}],
    relocation_obstacle => [q{'t'::regclass, false, 0}],
    relocation_btree_bytes => [q{'t_pkey'::regclass, 50000}],
    relocation_index_mode => [q{'t_pkey'::regclass}],
    relocation_effort => [q{'rebuild', true, true, 2, 1, 3, 4, 5, 6}],
    relocation_write_rate => [q{1663}],
    relocation_costs => [q{1663, 1, 1, 1, array['t'::regclass::oid], '{1000}', '{f}'}],
    relocation_fit => [q{'{1, 2, 3}', 4}],
    relocation_look => [''],
    relocation_reads => [q{'t'::regclass}],
    relocation_between => [q{'{1, 2}', '{1, 2}', '{0, 0}', '{1, 2}', '{1, 3}', '{5, 5}', '{}'}],
    relocation_may_move_online => [q{'t'::regclass}],
    relocation_plan_check => [q{'there', 1, '1 s'}],
    relocation_window => ['10'],
    relocation_plan => [ q{'there', 1000000000, '1 s'}, q{'there', 1000000000, '1 ms'} ],
    relocation_watch => [q{'10 ms'}],
    relocation_undo => ['job(true)'],
    relocation_wait => [ 'job(false)', q{job(true), '1 h'} ],
    report => [ '', q{now() - interval '1 min', NULL, 'html', node => (SELECT node FROM pgscale.node_identity())}, q{now() - interval '2 min', now() - interval '1 min', 'html', now() - interval '1 min', now()} ],
    report_blame => [q{now() - interval '1 min', now()}],
    report_bucket => [q{'1 h', 100}],
    report_chart => [q{'html', now() - interval '1 h', now(), 60, array[now()], '{CPU}', '{1}', '{1}', array[now()], '{x}', i}],
    report_known => [q{now() - interval '1 min', now()}],
    report_marks => [q{now() - interval '1 h', now()}],
    report_page => [q{'x', repeat('x', 100000)}],
    report_paragraph => [q{'text', repeat('x y', 10000), ''}],
    report_part => [ map { "'$_', now() - interval '1 min', now(), NULL, NULL, 'text'" } qw(activity waits queries buffers health) ],
    report_node_waits => [q{now() - interval '1 min', now()}],
    (map { ("report_part_$_" => [q{now() - interval '1 min', now(), 'text'}]) } qw(activity period summary nodes load waits queries sessions connections blockers buffers sweeper writeback wal relocation advice scalability health settings)),
    (map { ("report_part_$_" => [q{now() - interval '1 min', now(), now() - interval '1 min', now(), 'html'}]) } qw(periods activities differences changes)),
    report_period => [q{now() - interval '1 h', now()}],
    report_roots => [q{now() - interval '1 min', now()}],
    report_section => [q{'queries', 'x', 'x', now() - interval '1 min', now(), NULL, NULL, 'html'}],
    report_table => [q{'html', '{a}', '{query}', array[repeat('<', 100000)]}],
    report_top_statement => [q{now() - interval '1 min', now(), 1}],
    report_what => [q{'LWLock', 'WALWrite'}],
    revert => ['change(false), false, true'],
    reset => [ '', map { "'$_'" } qw(sampler lwlocks trace sweeper buffer_usage writeback scalability) ],
    row_origin => ['1, 1'],
    set => [ q{'work_mem', concat(64 + i % 1000, 'kB')}, q{'work_mem', concat(64 + i % 1000, 'kB'), true} ],
    session_queries => ['ARRAY[1, i]::bigint[]'],
    setting_text => [q{i::text, '8kB'}],
    statement_command => [q{repeat('/* x */ ', 10000) || 'VACUUM'}],
    three_digits => ['12.345'],
    tablespace_latency => [ '', q{'pg_default'} ],
    terminate => [ '0', q{2147483647, true}, q{0, false, true} ],
    top_waits => [ '', q{'-infinity', 'infinity', 'query'} ],
    trace_summary => ["$checkpointer, '10 ms'", "$checkpointer, '10 ms', '10 ms'"],
    trace_waits => ["$checkpointer, '10 ms', 1000", "$checkpointer, '10 ms', 1000, '10 ms'"],
    unidentified_statement => [q{now() - interval '1 min', now()}],
    usl_fit => [ 'n, n / (1 + 0.1 * n)) FROM generate_series(1, 200000) n', 'array[1, 2, 4, 8, 16], array[1, 1.9, 3.5, 6, 8]' ],
    usl_fit_add => undef,
    usl_fit_end => undef,
    usl_predict => [q{'(ok,1,0.1,0.01,1,5,4,6,7,6,8,9,1,9)', i}],
    usl_throughput => ['1, 0.1, 0.01, i'],
    verify => [ 'change(false)', q{change(true), '1 min'} ],
    wait_history => [ '', q{now() - interval '1 s', 'infinity'} ],
    wait_kind => [q{'LWLock', 'WALWrite'}],
    wal_efficiency => [ '', q{'1 h'} ]);

# A server with everything on, itself as the only node of its fleet, tables t and p (of 40 partitions), tablespace there, jobs and changes; job(first) and
# change(first) are the first or last of these.
sub calls_node
{
    my ($name, $conf) = @_;
    my $statements = have_module('pg_stat_statements');
    my $node = pgscale_node($name, preload => 'pgscale' . ($statements ? ', pg_stat_statements' : ''), conf => <<"EOC");
log_line_prefix = '%m [%p] %e %b '
max_worker_processes = 24
pgscale.sampler_period = 1ms
pgscale.sweeper = on
pgscale.writeback = on
$conf
EOC
    my $place = $node->basedir . '/there';
    my $db = wire($node);
    my ($host, $port) = ($node->host, $node->port);

    mkdir $place or die $!;
    $db->value('CREATE EXTENSION pg_stat_statements') if $statements;
    $db->value("CREATE TABLESPACE there LOCATION '$place'");
    $db->value($_) for (
        'CREATE TABLE t (a int PRIMARY KEY, b text)',
        q{INSERT INTO t SELECT i, repeat('x', 300) FROM generate_series(1, 50000) i},
        'CREATE TABLE p (a int PRIMARY KEY, b text) PARTITION BY HASH (a)',
        'CREATE INDEX ON p (b)',
        q{DO $$ BEGIN FOR i IN 0..39 LOOP
            EXECUTE format('CREATE TABLE p%s PARTITION OF p FOR VALUES WITH (MODULUS 40, REMAINDER %s)', i, i);
        END LOOP; END $$},
        q{INSERT INTO p SELECT i, i FROM generate_series(1, 4000) i},
        q{CREATE FUNCTION job(first bool) RETURNS bigint LANGUAGE sql
            AS $$ SELECT CASE WHEN first THEN min(job) ELSE max(job) END FROM pgscale.relocation_jobs $$},
        q{CREATE FUNCTION change(first bool) RETURNS bigint LANGUAGE sql
            AS $$ SELECT CASE WHEN first THEN min(change) ELSE max(change) END FROM pgscale.tuning_journal $$},
        'ANALYZE',
        q{SELECT pgscale.relocate_indexes('p_b_idx', 'there', mode => 'rebuild')},
        "SELECT pgscale.fleet_add('self', 'host=$host port=$port')",
        q{CALL pgscale.set('work_mem', '4MB')},
        q{SELECT pgscale.relocate_indexes('p0_pkey', 'there', mode => 'rebuild')});
    $db->quit;
    return $node;
}

# Each name, its schema, whether it needs arguments, and of a procedure the name and type of its result
sub _routines
{
    my $db = shift;

    return @{ $db->run(q{SELECT proname, pronamespace::regnamespace, min(pronargs - pronargdefaults), max(proargnames[pronargs]) FILTER (WHERE prokind = 'p'),
            max(format_type(proargtypes[pronargs - 1], NULL)) FILTER (WHERE prokind = 'p')
          FROM pg_proc WHERE pronamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace) GROUP BY 1, 2 ORDER BY 1})->{rows} };
}

# The names of routines that need arguments and are not in the list above, as one text
sub calls_unknown
{
    my $db = shift;

    return join ' ', map { $_->[0] } grep { $_->[2] > 0 && !exists $arguments{ $_->[0] } } _routines($db);
}

# All calls that are known, and all views. Each has a name, and what can be selected from, or for a procedure the name and type of its
# result. i in it stands for a number.
sub calls_known
{
    my $db = shift;
    my @calls;

    for my $row (_routines($db))
    {
        my ($name, $schema, undef, $result, $type) = @$row;
        my $of = exists $arguments{"$schema.$name"} ? "$schema.$name" : $name;
        for my $list (exists $arguments{$of} ? @{ $arguments{$of} // [] } : (''))
        {
            my $aggregate = $list =~ tr/)// > $list =~ tr/(//;
            my $call = "$schema.$name($list" . ($aggregate ? '' : ')');
            push @calls, {
                name => $call,
                procedure => defined $result,
                result => $result,
                type => $type,
                from => $aggregate ? "(SELECT $call) q" : $call };
        }
    }
    my $views = $db->run(q{SELECT oid::regclass FROM pg_class WHERE relnamespace = 'pgscale'::regnamespace AND relkind = 'v' ORDER BY 1});
    return @calls, map { { name => $_->[0], from => $_->[0], view => 1 } } @{ $views->{rows} };
}

# What a session is: who, with which settings of its own, and what it holds. Not its statement_timeout, which tests change, and not
# its virtualxid, which is there twice for a moment when somebody waits for it.
sub calls_state
{
    return q{SELECT concat_ws('|', current_user, session_user,
        (SELECT string_agg(name || '=' || setting, ' ' ORDER BY name COLLATE "C") FROM pg_settings
          WHERE source IN ('session', 'client', 'interactive', 'test') AND name <> 'statement_timeout'),
        (SELECT count(*) FROM pg_cursors), (SELECT count(*) FROM pg_prepared_statements),
        (SELECT string_agg(concat_ws(' ', locktype, relation::regclass, mode), ', ' ORDER BY locktype, relation, mode) FROM pg_locks
          WHERE pid = pg_backend_pid() AND locktype <> 'virtualxid'))};
}

1;
