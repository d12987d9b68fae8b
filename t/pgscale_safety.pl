# doc/safety.md says what pgscale can do to a server. Its statement shows each way in which a server does more than observe, and
# its lists of processes, hooks, locks, memory, files and acting functions are those of the library.
use strict;
use warnings;
use File::Find;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $page = slurp_file('doc/safety.md');
my $node = pgscale_node('main');
my $db = session($node);

# section NAME: what the page says under that heading
sub section
{
    my $name = shift;
    my ($text) = $page =~ /^### \Q$name\E\n(.*?)(?=^##|\z)/ms or die "no section $name";
    return $text;
}

# names TEXT, PATTERN: what of a text matches, sorted, each once
sub names
{
    my ($text, $pattern) = @_;
    my %found = map { $_ => 1 } $text =~ /$pattern/g;
    return join ' ', sort keys %found;
}

### The lists

my $source = '';
find({ no_chdir => 1, wanted => sub { $source .= slurp_file($_) if /\.c$/ } }, 'src');

# the first column of a table
my $column = join "\n", section('Processes') =~ /^\| (`pgscale[^|]*)\|/gm;
is(names($column, qr/`pgscale ([a-z ]+?)(?: N)?`/) =~ s/ N\b//r,
    names($source, qr/(?:PgscaleWorker \w+ = \{\s+\.name = |pgscale_worker_(?:register|launch)\(|snprintf\(name, sizeof\(name\), )"pgscale ([a-z ]+?)(?: %d)?"/), 'processes');
is(names(section('Hooks'), qr/`(\w+_hook\w*)`/), names($source, qr/^\s+(\w+_hook(?:_str)?) = \w+;/m) =~ s/\b(?:prev|next)_\w+ ?//gr, 'hooks');
is(names(section('Locks') =~ s/\n\|.*//sr, qr/`(pgscale [a-z_ ]+)`/),
    names($source, qr/\.name = "(pgscale [a-z_ ]+)",(?:\s+\.(?!nlocks)\w+ = .*)*\s+\.nlocks/), 'locks');
is(names(section('Memory') =~ s/\n/ /gr =~ s/ (pgscale [a-z_ ]*?) +\|/`$1`/gr =~ s/With `pgscale.sampler_nested`.*//r, qr/`(pgscale [a-z_ ]+)`/),
    names($db->sql('SELECT name FROM pg_shmem_allocations'), qr/^(pgscale.*)$/m), 'memory');
is(names(section('Files'), qr/`pg_stat\/(\w+\.stat)`/), names($source =~ s/%d\.stat/N.stat/gr, qr/(pgscale_\w+\.stat)\b/), 'files');
$column = join "\n", section('What acts') =~ /^\| (`[^.|]*)\|/gm;
is(names($column, qr/`(\w+)/) =~ s/\b(?:fleet(?:_health|_advice|_waits)?|advice_rules)\b ?//gr,
    names($db->sql(q{SELECT proname FROM pg_proc WHERE pronamespace = 'pgscale'::regnamespace AND proname <> 'relocation_wait'
        AND NOT has_function_privilege('pg_monitor', oid, 'EXECUTE')}), qr/(\w+)/), 'functions that act');

### Nothing in a session that does not call pgscale: what is there is there without the library, too

my $server = qx(pg_config --bindir) =~ s/\n/\/postgres/r;
my @hooks = grep { !/^shmem_/ } qx(nm -D --defined-only $server) =~ /^\w+ [BbDd] (\w+_hook(?:_str)?)$/gm;
my $probe = compiled('session_hooks');
sub installed
{
    my $session = session($node);
    my $set = $session->sql("SELECT string_agg(h, ' ') FROM unnest(string_to_array('@hooks', ' ')) h WHERE hook_is_set(h)");
    my $callbacks = $session->sql('SELECT transaction_callbacks()');

    $session->quit;
    return "hooks: $set; callbacks: $callbacks";
}
my $installed;
SKIP:
{
    skip 'no compiler', 1 unless $probe;
    cmp_ok(scalar @hooks, '>', 20, 'the hooks of the server');
    $db->sql("CREATE FUNCTION $_ LANGUAGE c STRICT AS '$probe'") for 'hook_is_set(text) RETURNS bool', 'transaction_callbacks() RETURNS int';
    $installed = installed();
}
unlike(qx(nm -D --undefined-only @{[ qx(pg_config --pkglibdir) =~ s/\n//r ]}/pgscale.so), qr/ (CacheRegister\w+|RegisterSubXactCallback)/,
    'no callback of the caches, or of subtransactions');

### The statement

my ($statement) = $page =~ /^```sql\n(SELECT 'setting' AS what.*?)^```/ms or die 'no statement';
is($db->sql($statement), '', 'as installed, it only observes');

$db->sql($_) for 'CREATE ROLE operator', 'GRANT EXECUTE ON FUNCTION pgscale_internal.wait_profile() TO operator';
is($db->sql($statement), '', 'a role that may read changes nothing');
$db->sql($_) for 'GRANT EXECUTE ON FUNCTION pgscale.reset(text) TO operator, PUBLIC', 'GRANT EXECUTE ON FUNCTION pgscale.os_cache_evict(regclass) TO pg_monitor';
is(join("\n", sort split /\n/, $db->sql($statement)), <<'EOR' =~ s/\n\z//r, 'functions that act and were granted');
grant|pgscale.os_cache_evict(regclass)|pg_monitor
grant|pgscale.reset(text)|PUBLIC
grant|pgscale.reset(text)|operator
EOR
$db->sql($_) for 'DROP EXTENSION pgscale', 'CREATE EXTENSION pgscale', 'GRANT ALTER SYSTEM ON PARAMETER pgscale.sweeper TO operator';
is($db->sql($statement), 'grant|pgscale.sweeper|operator', 'a setting that acts and was granted');
$db->sql('REVOKE ALL ON PARAMETER pgscale.sweeper FROM operator');

my $folder = $node->basedir . '/ssd';
mkdir $folder or die $!;
$db->sql($_) for 'ALTER SYSTEM SET pgscale.relocation_workers = 0', 'SELECT pg_reload_conf()', "CREATE TABLESPACE ssd LOCATION '$folder'",
    'CREATE TABLE orders (id int PRIMARY KEY)', q{SELECT pgscale.relocate_indexes('orders_pkey', 'ssd', mode => 'rebuild')};
is($db->sql($statement), 'job|public.orders_pkey|queued', 'a job');
$db->sql('SELECT pgscale.relocation_cancel(job) FROM pgscale.relocation_jobs');
is($db->sql($statement), '', 'and none once it has ended');

$node->append_conf('postgresql.conf', <<'EOC');
pgscale.archive_database = postgres
pgscale.numa_interleave = on
pgscale.sweeper = auto
pgscale.trace_trigger = 2s
pgscale.writeback = auto
EOC
$node->restart;
$db = session($node);
is($db->sql($statement), <<'EOR' =~ s/\n\z//r, 'settings that act');
setting|pgscale.archive_database|postgres
setting|pgscale.numa_interleave|on
setting|pgscale.sweeper|auto
setting|pgscale.trace_trigger|2000
setting|pgscale.writeback|auto
EOR

### To get rid of it

# Whatever a file says, and whatever else is set: the command line comes first. The server is not one that $node knows.
$node->stop;
END
{
    my $status = $?;
    IPC::Run::run([ 'pg_ctl', '-w', '-D', $node->data_dir, '-m', 'immediate', 'stop' ], '>&', \my $said) if $node && -e $node->data_dir . '/postmaster.pid';
    $? = $status;
}
ok(IPC::Run::run([ 'pg_ctl', '-w', '-D', $node->data_dir, '-l', $node->logfile, '-o', '-c shared_preload_libraries=', 'start' ], '>', \my $said),
    'it starts without the library');
$db = session($node);
is($db->sql('SHOW shared_preload_libraries'), '', 'which is not preloaded');
is(($db->try('SELECT * FROM pgscale_internal.wait_profile()'))[0], '55000', 'what needs it says so');
like($db->sql(q{SELECT string_agg(DISTINCT reason, ' ') FROM pgscale.health WHERE state = 'broken'}), qr/^pgscale is not loaded into the server/, 'and so does health');
is(installed(), $installed, 'with it there was no hook and no callback more') if $probe;
is(($db->try('DROP EXTENSION pgscale'))[0], '00000', 'it can be dropped');
$db->quit;
ok(IPC::Run::run([ 'pg_ctl', '-w', '-D', $node->data_dir, '-m', 'fast', 'stop' ], '>', \$said), 'and it stops');

done_testing();
