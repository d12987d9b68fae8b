# What is to be moved: reads that other sessions do while a plan is made, compared with what the server's statistics say of the
# same reads; the probe of the devices, where there is room, none, no direct I/O, no tablespace; and what a request says of what
# stays.
#
# All disks below a test are the same, so for the plans two tablespaces have latencies that the test gives them.
use strict;
use warnings;
use Fcntl ();
use JSON::PP ();
use PgscaleRelocation;
use PgscaleTest;
use PgscaleWire;
use PostgreSQL::Test::Utils;
use Test::More;

my $reads = $ENV{READS_DIR} = PostgreSQL::Test::Utils::tempdir();
my $slow_reads = compiled('slow_reads');
{
    local $ENV{LD_PRELOAD} = $slow_reads // $ENV{LD_PRELOAD} // '';
    relocation_node(conf => "track_io_timing = off\nmax_parallel_workers_per_gather = 0");
}

### The probe

sub probe
{
    my ($tablespace, $columns) = @_;

    return $db->sql("SELECT $columns FROM pgscale.tablespace_latency('$tablespace')");
}

# How many temporary files of the server there are
sub temporary_files
{
    my $tablespace = shift;

    return $db->sql("SELECT count(*) FROM pg_tablespace t, pg_ls_tmpdir(t.oid) WHERE spcname = '$tablespace'");
}

sub path { return $node->data_dir . '/' . $db->sql("SELECT pg_relation_filepath('@{[ shift ]}')"); }

$db->sql(q{CREATE TABLE t (id int PRIMARY KEY, n bigint, filler text);
    INSERT INTO t SELECT i, hashint8(i), repeat('x', 100) FROM generate_series(1, 200000) i; CREATE INDEX t_n ON t (n)});
$db->sql('CHECKPOINT');
system 'sync', map { path($_) } qw(t t_pkey t_n);

sysopen my $direct, path('t'), Fcntl::O_DIRECT or plan skip_all => "no direct I/O below the tests: $!";
my $of_temporary = 'of a temporary file, because there was little to read';
my $sound = q{reads BETWEEN 64 AND 256 OR reason ~ '; only \d+ reads', read_ms > 0 AND read_ms <= max_ms,
    sequential_bytes_per_s > 0,
    CASE WHEN random_page_cost IS NULL THEN reason ~ 'no random_page_cost, because \d rounds suggest'
    ELSE random_page_cost >= 1 AND random_page_cost = round(random_page_cost::numeric, 1) END, spread >= 1, device <> ''};
my $formula = q{random_page_cost IS NULL
    OR abs(random_page_cost - greatest(1, 0.1 * read_ms / (1000 * 8192 / sequential_bytes_per_s::float8))) <= 0.0501};
like(probe('pg_default', "$sound, reason"), qr/^(t\|){6}of its relations/, 'a tablespace with relations is read from those');
like(probe('fast', "$sound, $formula, reason"), qr/^(t\|){7}$of_temporary/, 'an empty tablespace is written to first');
is(temporary_files('fast'), 0, 'nothing is left of that');

# A device whose times are known, and one whose rounds disagree
SKIP:
{
    skip 'the library that makes reads slow cannot be compiled here', 11 unless $slow_reads;

    append_to_file("$reads/slow", '');
    my ($cost, $read_ms, $as_computed, $rate);
    until_ok(sub {
        ($cost, $read_ms, $as_computed, $rate) = split /\|/,
          probe('pg_default', "random_page_cost, read_ms, $formula, sequential_bytes_per_s");
        return ($cost // '') ne '';
    }, 'where rounds agree, they suggest a random_page_cost');
    is($as_computed, 't', 'by the formula');
    cmp_ok($cost || 0, '<=', 0.1 * $read_ms / (20 / 128) + 0.05, 'of no more than what a read costs beside a sequential one');
    cmp_ok($read_ms, '>=', 8, 'a read takes as long as it does');
    cmp_ok($rate, '<=', 1048576 / 0.02, 'and a megabyte, too');

    # what a table's move takes is said beforehand: to read it, and to write it
    my $said = $db->sql(q{BEGIN; SET LOCAL client_min_messages = notice; SELECT pgscale.relocate_table('t', 'fast', 'lock')
        AS moved \gset
        SELECT block_ms_predicted, size_bytes / 1048576.0 FROM pgscale.relocation_jobs WHERE job = :moved});
    $db->sql('ROLLBACK');
    my ($seconds, $mb, $per_s) = $said =~ /all use of "t" will wait for about ([\d.]+) s: (\d+) MB at (\d+) MB\/s/;
    my ($predicted, $size_mb) = $said =~ /^([\d.]+)\|([\d.]+)\z/m;
    ok($seconds && abs($seconds * $per_s - $mb) <= 0.05 * $per_s + $seconds && abs($mb - $size_mb) <= 0.5
          && abs($predicted - 1000 * $seconds) <= 50, 'how long a move of a table blocks it') or diag $said;
    cmp_ok($predicted, '>=', 20 * $size_mb, 'not less than reading it takes');

    # A move ends in what the planner should know of the new place, if that is news. On a busy machine rounds may disagree.
    my ($job, $suggested);
    in_time_ok(sub {
        ended($db->sql("SELECT pgscale.relocation_undo($job)")) if $job;
        ($job) = ask(q{relocate_indexes('t_n', 'fast', mode => 'rebuild')});
        ended($job);
        ($suggested) = of_job($job, 'message')
            =~ /^the disk of "fast" suggests ALTER TABLESPACE fast SET \(random_page_cost = ([\d.]+)\); /;
        return defined $suggested;
    }, 'a move suggests a random_page_cost');
    cmp_ok($suggested || 0, '>', 4.8, 'which is news');
    $db->sql('ALTER TABLESPACE pg_default SET (random_page_cost = 1)');
    ended_ok($db->sql("SELECT pgscale.relocation_undo($job)"), 'done|', 'but none where there is one', 'state, message');
    $db->sql('ALTER TABLESPACE pg_default RESET (random_page_cost)');

    append_to_file("$reads/uneven", '');
    # a busy machine makes all of them slow
    in_time_ok(sub {
        return probe('pg_default', 'random_page_cost, spread > 3, max_ms >= 8, read_ms < 7, reason') =~
          /^\|t\|t\|t\|of its relations; no random_page_cost, because 4 rounds suggest/;
    }, 'where rounds do not agree, they suggest none');
    unlink "$reads/slow", "$reads/uneven";
}

# A file that is a hole has nothing to read; one that is so for most of it, too little.
$db->sql('CREATE TABLE hole (x int) TABLESPACE fast');
my $hole = path('hole');
truncate $hole, 8000 << 20 or die $!;    # so large that few reads find what it has then
like(probe('fast', 'reads, reason'), qr/^\d+\|$of_temporary/, 'a file that is a hole is not read');
append_to_file($hole, 'x' x (17 << 20));
system 'sync', $hole;
like(probe('fast', 'reads, reason'), qr/^\d+\|$of_temporary/, 'nor is one with a large hole');
$db->sql('DROP TABLE hole');
$db->sql('CHECKPOINT');

is($db->sql(q{SET temp_file_limit = '1MB'; SELECT reads, read_ms, reason FROM pgscale.tablespace_latency('fast')}),
    '0||temp_file_limit does not allow a file of 64 MB', 'temp_file_limit holds');
is(probe('pg_default', $sound), 't|t|t|t|t|t', 'and is none where nothing is written');
$db->sql('RESET temp_file_limit');
$db->sql(q{BEGIN; SET LOCAL temp_tablespaces = other; SET LOCAL work_mem = '64kB'; SELECT reads
    FROM pgscale.tablespace_latency('fast');
    DECLARE c CURSOR FOR SELECT i FROM generate_series(1, 100000) i ORDER BY -i; FETCH 1 FROM c});
ok(temporary_files('other') > 0 && temporary_files('fast') == 0, 'after a probe temporary files go where they should');
$db->sql('ROLLBACK');

my $folder = $node->data_dir . '/pg_tblspc/' . $db->sql(q{SELECT oid FROM pg_tablespace WHERE spcname = 'other'});
rename $folder, "$folder.away" or die $!;
like($db->sql(q{SELECT tablespace, reads > 0, read_ms > 0, reason FROM pgscale.tablespace_latency() ORDER BY 1}),
    qr/^fast\|t\|t\|.*\nother\|f\|\|could not open directory "pg_tblspc.*": No such file.*\npg_default\|t\|t\|.*$/,
    'a tablespace that is away, beside the others');
my ($state, $error) = $db->try(q{SELECT pgscale.relocation_plan('other', 1)});
like("$state $error", qr/^55000 .*latency of tablespace "other" is unknown.*tablespace_latency says: could not open/s,
    'nothing can move there');
is(($db->try(q{SELECT pgscale.relocation_plan('fast', 1, '1 ms')}))[0], '00000', 'but elsewhere');
rename "$folder.away", $folder or die $!;

### The plan

$db->sql('ALTER FUNCTION pgscale.tablespace_latency(name) RENAME TO probed');
# devices OTHER, SPREAD-OF-DEFAULT, SPREAD-OF-FAST, DEVICE: what is said of their reads; the spread is how far rounds are apart
sub devices
{
    my ($other_ms, $spread, $fast_spread, $device) = @_;

    return $db->sql(<<"EOQ");
CREATE OR REPLACE FUNCTION pgscale.tablespace_latency(name, OUT read_ms float8, OUT reason text, OUT spread float8, OUT device text,
    OUT sequential_bytes_per_s bigint) LANGUAGE sql AS \$\$
SELECT CASE \$1 WHEN 'fast' THEN 0.1 WHEN 'other' THEN $other_ms ELSE 8 END::float8, 'unplugged',
       CASE \$1 WHEN 'fast' THEN $fast_spread WHEN 'other' THEN 100 ELSE $spread END::float8, $device,
       CASE WHEN \$1 <> 'other' THEN 100000000 END::bigint \$\$
EOQ
}
# where reads are timed, the spread here is no matter
devices('NULL', 100, 1, q{'device of ' || $1});

# how fast it can be written to, and how often it is asked
like($db->sql(q{SELECT pgscale_internal.relocation_write_rate(oid) > 0 FROM pg_tablespace WHERE spcname = 'fast'}), qr/^t?\z/,
    'the rate of writes');
is(temporary_files('fast'), 0, 'nothing is left of them');
is($db->sql('SELECT num_nulls(pgscale_internal.relocation_write_rate(1664), pgscale_internal.relocation_write_rate(0))'), 2,
    'nowhere else');
$db->sql(q{CREATE SEQUENCE written; CREATE OR REPLACE FUNCTION pgscale_internal.relocation_write_rate(tablespace oid) RETURNS float8
    LANGUAGE sql AS 'SELECT 25e6::float8 FROM (SELECT nextval(''public.written'') OFFSET 0) n'});

my $quoted = qq{"it's ""q"" \nline"};
# One statement each: several of them would be one transaction
$db->sql($_) for split /;\n/, <<"EOQ" =~ s/;\n\z//r;
CREATE TABLE toasted (id int PRIMARY KEY, filler text);
ALTER TABLE toasted ALTER filler SET STORAGE EXTERNAL;
INSERT INTO toasted SELECT i, repeat('x', 9000) FROM generate_series(1, 3000) i;
CREATE TABLE p (id int PRIMARY KEY) PARTITION BY RANGE (id);
CREATE TABLE p1 PARTITION OF p FOR VALUES FROM (0) TO (1000000);
INSERT INTO p SELECT generate_series(1, 100000);
CREATE TABLE excluding (id int, EXCLUDE USING btree (id WITH =));
INSERT INTO excluding SELECT generate_series(1, 3000);
CREATE UNLOGGED TABLE unlogged (id int, EXCLUDE USING btree (id WITH =));
INSERT INTO unlogged SELECT generate_series(1, 3000);
CREATE TABLE there (id int PRIMARY KEY USING INDEX TABLESPACE fast) TABLESPACE fast;
INSERT INTO there SELECT generate_series(1, 1000);
CREATE TABLE unknown (id int) TABLESPACE other;
INSERT INTO unknown SELECT generate_series(1, 10000);
CREATE TABLE airy (id int PRIMARY KEY);
INSERT INTO airy SELECT generate_series(1, 200000);
DELETE FROM airy WHERE id % 10 <> 0;
CREATE TABLE rewritten AS SELECT generate_series(1, 1000) AS id;
CREATE TABLE built AS SELECT generate_series(1, 1000) AS id;
CREATE SCHEMA $quoted;
CREATE TABLE $quoted.$quoted (id int);
INSERT INTO $quoted.$quoted SELECT generate_series(1, 3000);
CREATE INDEX named ON $quoted.$quoted (id);
VACUUM (FREEZE, ANALYZE)
EOQ
stopped();    # nothing is in shared buffers
my ($reader, $other, $planner) = map { session($node) } 1 .. 3;
my $waiting = q{SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Extension' AND pid = } . $planner->pid;

# What the server has counted up to now: reads of all relations, the time that they took, and reads of some.
sub counted
{
    my @relations = @_;
    my $reads = 'pg_stat_get_blocks_fetched(oid) - pg_stat_get_blocks_hit(oid)';

    return split /\|/, $db->sql("SELECT (SELECT sum($reads) FROM pg_class WHERE NOT relisshared),
        (SELECT blk_read_time FROM pg_stat_database WHERE datname = current_database()), "
          . join ', ', map { "(SELECT $reads FROM pg_class WHERE oid = $_)" } @relations);
}

# window START, CODE, WAITS: the code is run while the planner's statement START, which has the length of a window, waits. When a
# window ends is not ours to say: where the code did not end within it, both are done again with a longer one. Returns what the
# planner says.
my $seconds = 1;
my $windows = 0;
sub window
{
    my ($statement, $code, $waits) = @_;

    for (; $seconds < 120; $seconds *= 2)
    {
        # what sessions have read before counts before
        $_->sql('SELECT pg_stat_force_next_flush()') for $db, $reader, $other;
        $windows++;
        $planner->start(sprintf $statement, "$seconds s");
        my $in_time = until_true(sub { $db->sql($waits // $waiting) eq '1' });
        $code->() if $in_time;
        $in_time &&= $db->sql($waiting);
        my (undef, $said) = $planner->finish;
        return $said if $in_time;
    }
    die 'it never ends in time';
}

# The plan of a window, as a hash by OID, and the OIDs in its order
sub plan_while
{
    my ($budget, $code) = @_;
    my @rows = map { JSON::PP::decode_json($_) } split /\n/, window(
        "SELECT to_json(r.*) FROM (SELECT *, relation::oid AS oid FROM pgscale.relocation_plan('fast', $budget, '%s')) r", $code);

    return ({ map { $_->{oid} => $_ } @rows }, map { $_->{oid} } @rows);
}

my %oid;
sub oid { my $name = shift; return $oid{$name} //= $db->sql("SELECT \$a\$$name\$a\$::regclass::oid"); }

sub read_all
{
    my $timed = shift;
    my $join = 'JOIN LATERAL (SELECT filler FROM %s) r ON true';

    $reader->sql("SET $_") for "track_io_timing = $timed", map { "enable_$_ = off" } qw(seqscan bitmapscan indexonlyscan);
    $reader->sql('SELECT count(filler) FROM generate_series(1, 200000, 101) i ' . sprintf $join, 't WHERE id = i');
    $reader->sql('SELECT count(filler) FROM generate_series(1, 200000, 401) i ' . sprintf $join, 't WHERE n = hashint8(i)');
    $reader->sql("SELECT sum(length(filler || '')) FROM generate_series(1, 3000, 3) i " . sprintf $join, 'toasted WHERE id = i');
    $reader->sql("SELECT count(*) FROM $_ WHERE id > 0") for qw(p excluding unlogged there airy unknown), "$quoted.$quoted";
    $reader->sql('SET track_io_timing = off');
    $reader->sql('SELECT pg_stat_force_next_flush()');
    return;
}

# The choice, made once more
sub chosen_by_hand
{
    my ($plan, $budget) = @_;
    my @chosen;

    for my $row (sort { $b->{saved_ms_per_s} / $b->{size_after_bytes} <=> $a->{saved_ms_per_s} / $a->{size_after_bytes}
            || $a->{oid} <=> $b->{oid} }
        grep { ($_->{saved_ms_per_s} // 0) >= 10 } values %$plan)
    {
        next if $row->{size_after_bytes} > $budget;
        $budget -= $row->{size_after_bytes};
        push @chosen, $row->{oid};
    }
    return join ' ', sort @chosen;
}
sub chosen { my $plan = shift; return join ' ', sort map { $_->{oid} } grep { $_->{chosen} } values %$plan; }

sub near
{
    my ($got, $expected, $name) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return ok($expected > 0 && abs($got - $expected) <= 0.02 * $expected, $name) || diag "got $got, expected $expected";
}

my $toast = $db->sql(q{SELECT reltoastrelid FROM pg_class WHERE relname = 'toasted'});
my $toast_index = $db->sql("SELECT indexrelid FROM pg_index WHERE indrelid = $toast");
my @parts = (map({ oid($_) } qw(unknown there there_pkey t t_pkey t_n toasted)), $toast, $toast_index);
my $discarded = 'discarded: built or rewritten during the window';
my $all = '1::bigint << 40';

oid($_) for qw(toasted_pkey p1 p1_pkey excluding excluding_id_excl unlogged rewritten airy airy_pkey), "$quoted.$quoted",
    "$quoted.named";
my (@before, @after);
my ($plan, @order) = plan_while($all, sub {
    @before = counted(@parts);
    read_all('on');
    $other->sql('TRUNCATE rewritten');
    @after = counted(@parts);
});
my ($sum, $ms, $unknown, $there, $there_pkey, $t, $t_pkey, $t_n, @toasted) = map { $after[$_] - $before[$_] } 0 .. $#after;
my $toasted = $toasted[0] + $toasted[1] + $toasted[2];
my %row = map { $_ => $plan->{ oid($_) } } keys %oid;

is(join(' ', sort keys %$plan), join(' ', sort map { oid($_) } grep { !/^there/ } keys %oid), 'what was read and can move');
is("$row{p1_pkey}{kind} $row{t}{kind} $row{t}{source} $row{unknown}{source}", 'index table pg_default other',
    'what it is and where');
cmp_ok($toasted[1], '>', $toasted[0], 'TOAST was read');
near($row{t}{reads_per_s} / $row{t_pkey}{reads_per_s}, $t / $t_pkey, 'reads as the server counted them');
near($row{toasted}{reads_per_s} / $row{t_n}{reads_per_s}, $toasted / $t_n, q{those of TOAST are the table's});
my $lasted = $t / $row{t}{reads_per_s};
cmp_ok($lasted, '>=', $seconds, 'a second is one');
$there += $there_pkey;
my $factor = $ms / (($sum - $unknown - $there) * 8 + $there * 0.1);
my $share = $factor < 1 ? $factor : 1;
near($row{$_}{here_ms}, 8 * $factor, "$_: a read takes here what it took") for qw(t t_n toasted);
near($row{$_}{there_ms}, 0.1 * $share, "$_: there what that device takes for those that get to it") for qw(t t_n toasted);
near($row{t}{physical_reads_per_s}, $t * $share / $lasted, 'how many those are');
near($row{t}{saved_ms_per_s}, $t * (8 * $factor - 0.1 * $share) / $lasted, 'what that saves');
near($row{t}{saved_ms_per_s_per_gb}, $row{t}{saved_ms_per_s} / $row{t}{size_after_bytes} * 2**30, 'and per GB');
is($row{$_}{reason}, $row{$_}{saved_ms_per_s} >= 10 ? 'chosen' : 'saves too little', "$_: there is room for all that gains")
    for qw(t t_pkey);
is(chosen($plan), chosen_by_hand($plan, 2**40), 'all is chosen that saves something')
  or diag map { "$_->{oid} saves " . ($_->{saved_ms_per_s} // '-') . ": $_->{reason}\n" } values %$plan;
is($row{rewritten}{reason}, $discarded, 'what was rewritten is discarded');
is($row{unknown}{reason}, 'latency here is unknown: unplugged', 'no latency here');
is("$row{t_n}{size_bytes}|$row{toasted}{size_bytes}", $db->sql("SELECT pg_total_relation_size('t_n'), pg_table_size('toasted')"),
    'sizes, that of a table with its TOAST');
is($row{t}{size_after_bytes}, $row{t}{size_bytes}, 'a table stays as large');

# The statements name what is meant.
for my $row (grep { $_->{statement} } values %row)
{
    my ($kind, $what) = $row->{statement} =~
      /\ASELECT pgscale\.relocate_(index|table)(?:es)?\((.*), 'fast'(?:, mode => 'lock')?\);\z/s;
    is($kind . $db->sql("SELECT $what\::regclass::oid"), "$row->{kind}$row->{oid}", "a statement: $what");
}
is(join(' ', map { $row{$_}{statement} =~ /mode => '(\w+)'/ ? $1 : '-' } qw(t toasted t_n unlogged excluding_id_excl)),
    '- - - lock -',
    'an unlogged table is moved under a lock, all else online');

# What the moves take
near($row{$_}{move_s}, $row{$_}{size_bytes} / 100e6 + $row{$_}{size_bytes} / 25e6, "$_: a copy reads it and writes it")
  for qw(t toasted excluding_id_excl unlogged t_n toasted_pkey);
is($row{unknown}{move_s}, undef, 'of a disk whose rate is unknown that is unknown');
is(join(' ', map { $row{$_}{wal_bytes} - $row{$_}{size_bytes} } qw(t toasted excluding_id_excl)), '0 0 0',
    'a copy is written to the WAL');
is($row{airy_pkey}{size_after_bytes}, $row{airy_pkey}{size_bytes}, 'with its bloat');
is($row{unlogged}{wal_bytes}, 0, 'what is not logged is not');
is(join(' ', map { $row{$_}{space_bytes} - $row{$_}{size_bytes} } qw(t excluding_id_excl unlogged)), '0 0 0',
    'a copy needs as much room');
cmp_ok($db->sql('SELECT last_value FROM written'), '<=', $windows, 'the rate of writes is measured once for each plan');

sub effort { return $db->sql("SELECT round(move_s::numeric, 1) FROM pgscale_internal.relocation_effort($_[0])"); }
my $of_100_mb = join ', ', (100 << 20) x 5;
for my $case ([ undef, '5.0 5.0 6.0' ], [ '10MB', '10.0 5.0 6.0' ], [ '1GB', '5.0 5.0 6.0' ])
{
    my ($rate, $expected) = @$case;

    reloaded('pgscale.relocation_rate', $rate);
    is(join(' ', map { effort("'$_', true, true, $of_100_mb, 26214400") } qw(online lock rebuild)), $expected,
        'online moves obey a rate: ' . ($rate // 'none'));
}
reloaded('pgscale.relocation_rate');
is(effort("'rebuild', true, false, $of_100_mb, 26214400"), '', 'what the CPU takes is not predicted');
$db->sql('CREATE INDEX simple ON toasted USING brin (id);
    CREATE INDEX costly_gin ON toasted USING gin (to_tsvector($$simple$$::regconfig, filler));
    CREATE INDEX costly_expression ON toasted (abs(id)); CREATE INDEX costly_predicate ON toasted (id) WHERE abs(id) < 3;
    CREATE INDEX costly_gist ON toasted USING gist (point(id, id))');
is($db->sql(q{SELECT string_agg(name, ' ' ORDER BY name) FROM pgscale_internal.relocation_movable WHERE heap = 'toasted'::regclass
    AND simple}),
    'public.simple public.toasted_pkey', 'nor that of indexes that are not simple');
$db->sql('DROP INDEX simple, costly_gin, costly_expression, costly_predicate, costly_gist');

# With mode => 'auto': online or rebuilt
my $unknown_bloat = 'online|its bloat cannot be estimated: its columns were not analyzed, or the role may not read them';
$db->sql('CREATE INDEX t_brin ON t USING brin (id); CREATE TABLE uncounted (id int PRIMARY KEY); INSERT INTO uncounted VALUES (1)');
for my $case ([ t_n => 'online|estimated bloat is below 30 %' ],
    [ excluding_id_excl => q{online|an exclusion constraint's index cannot be built concurrently} ],
    [ unlogged_id_excl => 'rebuild|an unlogged index cannot move online' ],
    [ t_brin => 'online|its bloat cannot be estimated: it is not a btree index' ],
    [ uncounted_pkey => $unknown_bloat ])
{
    is($db->sql("SELECT * FROM pgscale_internal.relocation_index_mode('$case->[0]'::regclass)"), $case->[1],
        "online or rebuilt: $case->[0]");
}
my ($bloat) = $db->sql(q{SELECT * FROM pgscale_internal.relocation_index_mode('airy_pkey'::regclass)})
    =~ /^rebuild\|estimated bloat of (\d+) %$/;
cmp_ok($bloat, '>', 80, 'an index that is mostly air is rebuilt');
is($db->sql('SELECT pgscale_internal.relocation_index_mode(1)'), '', 'what is no index is neither');
$db->sql('DROP INDEX t_brin');

# It is asked for each index of a plan, so it must not read all statistics: it does not need to, where that is not cheaper.
$db->sql("BEGIN; SET LOCAL enable_seqscan = off");
my $size = q{SELECT pgscale_internal.relocation_btree_bytes('t_n'::regclass, 1)};
my $read = q{SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_sys_tables WHERE relname = 'pg_statistic'};
$db->sql($size);    # and reads those of the catalogs themselves
my $read_before = $db->sql($read);
$db->sql($size);
cmp_ok($db->sql($read) - $read_before, '<', 20, 'the size of an index takes the statistics of its columns');
cmp_ok($db->sql('SELECT count(*) FROM pg_statistic'), '>', 100, 'of more');
$db->sql('COMMIT');

# Predicted against rebuilt
my $bytes = q{SELECT ceil(pgscale_internal.relocation_btree_bytes(oid, reltuples)) FROM pg_class WHERE oid = '%s'::regclass};
my %guess = map { $_ => $db->sql(sprintf $bytes, $_) } qw(airy_pkey t_n);
$db->sql('REINDEX TABLE airy; REINDEX INDEX t_n');
for my $index (qw(airy_pkey t_n))
{
    my $real = $db->sql("SELECT pg_relation_size('$index')");

    ok($guess{$index} >= $real && $guess{$index} <= $real * 1.15, "$index: its size once rebuilt")
        || diag "$guess{$index}, really $real";
}
cmp_ok($guess{airy_pkey}, '<', $row{airy_pkey}{size_bytes} / 5, 'much of one index is air');

### Windows

# One that is watched without a snapshot; then plans of it, of the same session
my $no_snapshot = $waiting . ' AND backend_xmin IS NULL';
$planner->start("CALL pgscale.relocation_watch('1 hour')");
until_ok(sub { $db->sql($no_snapshot) }, 'a window is watched without a snapshot');
$db->sql('SELECT pg_cancel_backend(' . $planner->pid . ')');
is(($planner->finish)[0], '57014', 'it can be cancelled');
is(($planner->try(q{SELECT pgscale.relocation_plan('fast', 1, NULL)}))[0], '55000', 'and then there is none');
my $relations = window(q{CALL pgscale.relocation_watch('%s')}, sub {
    @before = counted(@parts);
    read_all('on');
    @after = counted(@parts);
}, $no_snapshot);
like($relations, qr/^\d+\z/, 'it shows how many relations were read');
for my $budget (1, $all)
{
    my %reads = map { split /\|/ } split /\n/,
        $planner->sql("SELECT relation::oid, reads_per_s FROM pgscale.relocation_plan('fast', $budget, NULL)");
    near($reads{ oid('t') } / $reads{ oid('t_n') }, ($after[5] - $before[5]) / ($after[7] - $before[7]), 'a plan of that window');
}

# A client that goes away, or cancels, ends what it waits for.
for my $call (q{CALL pgscale.relocation_watch('1 hour')}, q{SELECT * FROM pgscale.relocation_plan('fast', 1, '1 minute')})
{
    my $gone = wire($node);
    my $pid = $gone->value('SELECT pg_backend_pid()');
    $gone->send_query($call);
    $db->poll_ok("SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Extension' AND pid = $pid", "$call waits", 1);
    $gone->quit;
    $db->poll_ok("SELECT count(*) FROM pg_stat_activity WHERE pid = $pid", "$call ends with its client", 0);
}
like(window(q{SELECT pgscale.relocation_plan('fast', 1, '%s')}, sub { $db->sql('SELECT pg_stat_reset()') }),
    qr/statistics were reset during the window/, 'statistics that were reset are none');

# A transaction whose snapshot is from before the window
$planner->sql('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
is(window(q{SELECT (SELECT bool_or(built) FROM unnest(w.relations, w.built) b(relation, built) WHERE relation = 'rewritten'::regclass)
    FROM pgscale_internal.relocation_window(extract(epoch FROM interval '%s') * 1000) w}, sub { $other->sql('TRUNCATE rewritten') }),
    't', 'what is rewritten since the snapshot is seen');
$planner->sql('COMMIT');

# Under a budget, while an index is being built: a transaction holds that up.
$other->sql('BEGIN; INSERT INTO built VALUES (0)');
my $builder = session($node);
$builder->start('CREATE INDEX CONCURRENTLY built_id ON built (id)');
$db->poll_ok('SELECT count(*) FROM pg_stat_progress_create_index', 'an index is being built', 1);
my $budget = $row{t_pkey}{size_after_bytes} + $row{airy_pkey}{size_after_bytes} + 100_000;
devices('NULL', 1, 1, q{'device of ' || $1});
# of what the kernel has not, each read counts as one of the device: gains that no window is too long for
sub read_uncached
{
    read_all('off');
    $db->sql("SELECT pgscale.os_cache_evict('$_')") for qw(t t_pkey t_n airy airy_pkey unknown);
    return;
}
($plan, @order) = plan_while($budget, \&read_uncached);
is($plan->{ oid('built') }{reason}, $discarded, 'a table of which an index is built is discarded');
ok(!$plan->{ oid('built_id') }, 'an index that is not there yet has no row');
$other->sql('COMMIT');
is(($builder->finish)[0], '00000', 'it is built');
is(chosen($plan), chosen_by_hand($plan, $budget), 'what saves most per byte is chosen, and what fits beside it');
isnt(chosen($plan), '', 'which is something');
# the rest is not worth it, or does not fit, unless a busy machine timed no read of the others
my $rest = $plan->{ oid('t_n') };
like($rest->{reason}, $rest->{chosen} ? qr/^chosen/ : qr/^(does not fit into the budget|saves too little)/, 'and each says why');
is(join(' ', @order), join(' ', sort { $plan->{$b}{chosen} <=> $plan->{$a}{chosen}
        || ($plan->{$b}{saved_ms_per_s} // -1) <=> ($plan->{$a}{saved_ms_per_s} // -1) || $a <=> $b } @order),
    'chosen ones first, then by what they save');

# Without timed reads, and with a slowest round there that is no better than here
my $cached;
devices('NULL', 1, 75, q{'device of ' || $1});
# again where the kernel has dropped pages between the two looks
until_ok(sub {
    ($plan) = plan_while($all, sub { $db->sql("SELECT pgscale.os_cache_evict('t')"); read_all('off') });
    $cached = $db->sql(q{SELECT sum(os_cache_bytes) / sum(size_bytes)::float8 FROM pgscale.relation_os_cache('t')});
    $row{t} = $plan->{ oid('t') };
    return abs($row{t}{here_ms} - 8 * (1 - $cached)) < 0.01 && abs($row{t}{there_ms} - 0.1 * (1 - $cached)) < 0.001;
}, "without timed reads the kernel's cache stands for what it answers")
    || diag "$cached cached, $row{t}{here_ms} and $row{t}{there_ms} ms";
like($row{t}{reason}, qr/^saves too little; an estimate: no read was timed/, 'and the plan is an estimate');
is(chosen($plan), '', 'of nothing that is better in any case');

# A move within one device wins nothing, however much faster it once has seemed.
devices(8, 1, 1, q{CASE $1 WHEN 'other' THEN NULL ELSE 'the only disk' END});
($plan) = plan_while($all, \&read_uncached);
my %on_one = map { $_->{oid} => $_ } grep { $_->{source} ne 'other' && $_->{reason} !~ /^discarded/ } values %$plan;
cmp_ok((sort { $b <=> $a } map { $_->{saved_ms_per_s} } values %on_one)[0], '>=', 10, 'moves that would seem to save much');
is(join(' ', grep { $on_one{$_}{chosen} || $on_one{$_}{reason} !~ /^is on the same device: the only disk/ } sort keys %on_one), '',
    'are refused where both tablespaces are on one device');
like($plan->{ oid('unknown') }{reason}, qr/^saves too little; an estimate/, 'of a device that is not known that is not said');

### What stays

# What a request says that is rolled back, a line each
sub notices
{
    my $request = shift;
    my $said = $db->sql("BEGIN; SET LOCAL client_min_messages = notice; SELECT count(*) FROM pgscale.$request");

    $db->sql('ROLLBACK');
    return join "\n", $said =~ /NOTICE: +\w+: +(.*)/g;
}
$db->sql($_) for 'CREATE DATABASE neighbour TABLESPACE fast', 'CREATE TABLE parent (id int, filler text)',
  'CREATE TABLE child () INHERITS (parent)', 'CREATE TABLE grandchild () INHERITS (child)', 'CREATE INDEX parent_id ON parent (id)',
  q{INSERT INTO child SELECT i, repeat('x', 1000) FROM generate_series(1, 2000) i},
  'CREATE SEQUENCE sequence_there', 'CREATE ACCESS METHOD odd TYPE INDEX HANDLER hashhandler',
  'CREATE OPERATOR CLASS odd_int DEFAULT FOR TYPE int USING odd AS OPERATOR 1 =, FUNCTION 1 hashint4(int)',
  'CREATE INDEX odd_a ON t USING odd (id)', 'CREATE INDEX odd_b ON p1 USING odd (id)',
  'CREATE TEMP TABLE temporary AS SELECT generate_series(1, 5000) AS id',
      q{SELECT lo_from_bytea(0, decode(repeat('00', 100000), 'hex'))};
my $stay = qr/ stay in tablespace "pg_default": (\d+) (?:kB|MB)/;
my $said = notices(q{relocate_tablespace('pg_default', 'fast')});
for my $kind ('system catalogs', 'large objects', 'sequences', 'temporary tables', 'indexes that cannot move online',
    q{pgscale's own relations}, 'unlogged tables and indexes', 'relations of other databases \(.*template1\)')
{
    my @lines = $said =~ /^(?:$kind)$stay$/gm;
    ok(@lines == 1 && $lines[0] > 0, "a line of $kind, with their size") or diag $said;
}
unlike($said, qr/"(?:relocation_job|archive_|odd_|unlogged)/, 'and none of each relation');
my ($odd_kb) = $said =~ /^indexes that cannot move online$stay$/m;
is($odd_kb, $db->sql(q{SELECT pg_size_pretty(pg_table_size('odd_a') + pg_table_size('odd_b'))}) =~ s/\D//gr,
    'the size is that of its files');
like(notices(q{relocate_tablespace('fast', 'pg_default')}),
    qr/^relations of other databases \(neighbour\) stay in tablespace "fast": \d+ kB$/m,
    'another database');
like(notices("$_('parent', 'fast')"), qr/^2 tables that inherit from "parent" are not moved with it: 2\.\d MB$/m,
    "$_: children stay")
  for qw(relocate_table relocate_indexes);
unlike(notices(q{relocate_table('p', 'fast')}), qr/inherit|standby/, 'partitions do not; there is no standby');
$db->sql(q{SELECT pg_create_physical_replication_slot('standby')});
my $mb = $db->sql(q{SELECT round(pg_table_size('t') / 1048576.0, 1)});
like(notices(q{relocate_table('t', 'fast')}), qr/^each standby also needs room in tablespace "fast": $mb MB$/m,
    'where there may be one, it needs room');
$db->sql(q{SELECT pg_drop_replication_slot('standby')});

### Without direct I/O

$_->quit for $reader, $other, $planner, $builder;
$db->sql($_) for 'DROP DATABASE neighbour', 'DROP FUNCTION pgscale.tablespace_latency(name)',
  'ALTER FUNCTION pgscale.probed(name) RENAME TO tablespace_latency', 'DROP TABLE there';
if (my $path = refuse_direct_io($node))
{
    $db->quit;
    $node->stop;
    { local $ENV{PATH} = $path; $node->start }
    $db = session($node);
    is(probe($_, 'reads, read_ms, max_ms, spread, sequential_bytes_per_s, random_page_cost, reason'),
        '0||||||its file system does not do direct I/O', "a file system without direct I/O: $_") for qw(pg_default fast);
    is(temporary_files('fast'), 0, 'and nothing stays');
}
stop_ok();
done_testing();
