# A server without a freelist, as from PostgreSQL 19 on: the sweeper stays off when it is switched on, and says so: to the session,
# once in the log for each time, and in the views.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'this server has a freelist' if has_freelist();

my $node = pgscale_node('main', conf => <<'EOC');
shared_buffers = 8MB
checkpoint_timeout = 1h
bgwriter_lru_maxpages = 0
pgscale.sweeper_adaptive = off
EOC
my $db = session($node);
my $health = q{SELECT enabled, state, reason, action FROM pgscale.health WHERE feature = 'sweeper'};
my $none = 'PostgreSQL ' . server_major() . ' has no freelist, through which it supplies buffers';
my $warning = qr/pgscale\.sweeper does nothing in mode "freelist": PostgreSQL \d+ has no freelist/;

sub warnings_since { my $n = () = substr(slurp_file($node->logfile), $_[0]) =~ /WARNING:  $warning/g; return $n; }

sub says_off
{
    my $name = shift;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    $db->poll_ok('SELECT state, mode, reason FROM pgscale.sweeper_stats', "$name: off, and why", "off|freelist|$none");
    $db->poll_ok($health, "$name: so says health", "f|off|$none|"
          . 'set pgscale.sweeper to off, reset bgwriter_lru_maxpages and reload: otherwise no process writes ahead of the sessions');
    return until_ok(sub { $db->sweeper_pids == 0 }, "$name: it has no process");
}

# Switched on
my $log = -s $node->logfile;
is($db->sql($health), "f|off|it is switched off; $none|", 'nobody is asked to switch it on');
like(($db->try('ALTER SYSTEM SET pgscale.sweeper = on'))[1], qr/WARNING: .*$warning.*HINT:  Set pgscale\.sweeper to off/s,
    'switched on by ALTER SYSTEM: a warning');
is(warnings_since($log), 1, 'which the log has, too');
$db->sql('SELECT pg_reload_conf()');
says_off('switched on');
$db->set('bgwriter_lru_maxpages', 50);
$db->poll_ok('SHOW bgwriter_lru_maxpages', 'another reload', 50);
$db->poll_ok($health, 'where the background writer is on', "f|off|$none|set pgscale.sweeper to off and reload");
$db->set('bgwriter_lru_maxpages');
is(warnings_since($log), 2, 'one more warning by the reload that switched it on, and by no other process or reload');

# From the start, under load
$log = -s $node->logfile;
$db->quit;
$node->restart;
$db = session($node);
is(warnings_since($log), 1, 'one at a start');
says_off('after a start');
$db->churn_table(40000);
my @churning = churn($node, 2);
$db->poll_ok('SELECT sum(n) > 2000 FROM churned', 'a load');
is($db->sql('SELECT state, scanned, written, ticks FROM pgscale.sweeper_stats'), 'off|0|0|0', 'it does nothing');

# The mode that goes without one has to be named.
$db->set('pgscale.sweeper_mode', 'ahead');
$db->sweeps_on('mode "ahead": it works');
$db->set('pgscale.sweeper_mode', 'freelist');
says_off('back in mode "freelist"');
$db->set('pgscale.sweeper', 'off');
$db->poll_ok($health, 'switched off', "f|off|it is switched off; $none|");
$db->churn_end(@churning);
$db->set('pgscale.sweeper_mode', 'ahead');
$db->poll_ok('SHOW pgscale.sweeper_mode', 'that mode', 'ahead');
unlike(($db->try('ALTER SYSTEM SET pgscale.sweeper = on'))[1], qr/WARNING/, 'and no warning in it');

# Both lines are new, that of the mode comes last.
$db->sql("ALTER SYSTEM RESET pgscale.$_") for qw(sweeper sweeper_mode);
$db->sql('SELECT pg_reload_conf()');
$db->poll_ok('SHOW pgscale.sweeper_mode', 'no mode is named', 'freelist');
$db->sql('ALTER SYSTEM SET pgscale.sweeper = on');
$db->sql('ALTER SYSTEM SET pgscale.sweeper_mode = ahead');
$log = -s $node->logfile;
is($db->sql(q{SELECT string_agg(setting, ' ' ORDER BY seqno) FROM pg_file_settings WHERE name ~ '^pgscale[.]sweeper(_mode)?$'}),
    'on ahead', 'the mode is named after the switch');
$db->sql('SELECT pg_reload_conf()');
$db->poll_ok(q{SELECT mode, state <> 'off' FROM pgscale.sweeper_stats}, 'both are read at once', 'ahead|t');
is(warnings_since($log), 0, 'and no warning');

$db->quit;
$node->stop;
done_testing();
