# doc/tuning.md's "Tuning in four statements", word by word, on a fresh server under load.
use strict;
use warnings;
use IPC::Run;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my ($text) = slurp_file('doc/tuning.md') =~ /^### Tuning in four statements\n.*?^```sql\n(.*?)^```/ms;
my ($advice, $apply, $verify, $revert) = my @statements = map { s/--.*//gr =~ s/\A\s+|\s+\z//gr } $text =~ /[^;]+;/g;
is(scalar @statements, 4, 'four statements');
my ($setting) = $apply =~ /apply\('(\w+)'/;

my $node = pgscale_node('main', init => [ extra => ['--wal-segsize=1'] ], conf => <<'EOC');
shared_buffers = 64MB
min_wal_size = 2MB
max_wal_size = 4MB
wal_compression = off
synchronous_commit = off
pgscale.sampler_debug_period = 1s
EOC
my $db = session($node);
my $file = $node->data_dir . '/postgresql.auto.conf';
my ($before, $value) = (slurp_file($file), $db->sql("SHOW $setting"));
$node->run_log([ 'pgbench', '-i', '-q', '-s', 2, $node->connstr('postgres') ]);
my $load = IPC::Run::start([ 'pgbench', '-n', '-c', 3, '-R', 300, '-T', 600, $node->connstr('postgres') ], '>&', \my $said);

my $answer;
# What it rests on is also what comes before the change: verify wants twelve records of both, which on a slow machine take longer.
in_time_ok(sub { $db->sql("SELECT until - since >= '14 s' FROM pgscale.advice WHERE setting = '$setting'") eq 't' }, 'evidence')
  or diag $db->sql('SELECT * FROM pgscale.advice_rules');
in_time_ok(sub { ($answer) = grep { /^\Q$setting\E\|/ } split /\n/, $db->sql($advice) }, "advice on $setting");
like($answer, qr/^\Q$setting\E\|\Q$value\E\|[0-9]+[MG]B\|.+/, 'what it is, what it should be, and why');
is($db->sql($apply), 1, 'applied as the first change');
isnt(slurp_file($file), $before, 'it is in the file');
$db->poll_ok("SELECT pg_size_bytes(current_setting('$setting')) = pg_size_bytes(new_value) FROM pgscale.tuning_journal",
    'the server has read it');
in_time_ok(sub { $answer = $db->sql($verify);
    $answer =~ /\A([^|]+\|[\d.e+-]+\|[\d.e+-]+\|[\d.e+-]+\|[\d.e+-]+\|[\d.e+-]+\|(better|worse|cannot tell)\|.+\n?)+\z/ },
    'it is known how it went: a verdict for each metric, with numbers') or diag $answer;
unlike($answer, qr/cannot tell yet/, 'which is not to wait');
$db->sql($revert);
is(slurp_file($file), $before, 'and the file is as it was, byte by byte');
$db->poll_ok("SHOW $setting", 'and so is the server', $value);

$load->kill_kill;
$node->stop;
done_testing();
