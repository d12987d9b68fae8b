# What features and rules make of each other and of a cancel: the states of pgscale.health, settings that a feature claims, and
# reads of advice that are cancelled at any moment.
use strict;
use warnings;
use IPC::Run;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# so few buffers that the catalogs fill them
my $node = pgscale_node('main', conf => <<"EOC");
shared_buffers = 1MB
max_worker_processes = 16
pgscale.sweeper_mode = ${\ sweeper_mode()}
pgscale.sweeper_adaptive = off
EOC
my $db = session($node);
my $other = session($node);

### A read that is cancelled leaves nothing behind

$db->sql('CREATE TABLE t (i int)');
$db->sql('CREATE ROLE observer LOGIN IN ROLE pg_monitor');

# The session works, nothing of it is open, and what it commits is there for others.
my $rows = 0;
sub left_nothing
{
    my ($session, $name) = @_;
    my $pid = $session->pid;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    $rows++;
    # the timeout may strike here, too
    until_true(sub { ($session->try('SET statement_timeout = 0'))[0] ne '57014' && ($session->try('SELECT 1'))[0] ne '57014' });
    my ($state, $text) = $session->try("INSERT INTO t VALUES ($rows)");
    is($state, '00000', "$name: the session works") or diag $text;
    is($other->sql("SELECT count(*) FROM t WHERE i = $rows"), 1, 'what it has inserted is there for others');
    is($other->sql("SELECT state, backend_xmin FROM pg_stat_activity WHERE pid = $pid"), 'idle|', 'and no transaction is open');
    return;
}

my $probe = q{SELECT count(*) FROM pgscale.tuning_findings('10 min', true)};
for my $ms (1, 20, 100, 250)
{
    my $session = session($node);

    $session->sql("SET statement_timeout = $ms");
    $session->try("DO \$\$ BEGIN PERFORM count(*) FROM pgscale.tuning_findings('10 min', true);
        EXCEPTION WHEN query_canceled THEN NULL; END \$\$");
    left_nothing($session, "caught after $ms ms");

    $session->sql("SET statement_timeout = $ms");
    $session->try($probe);
    left_nothing($session, "raised after $ms ms");

    $session->sql("BEGIN; SET LOCAL statement_timeout = $ms; SAVEPOINT s");
    $session->try($probe);
    is(($session->try('ROLLBACK TO s; COMMIT'))[0], '00000', "rolled back to a savepoint after $ms ms");
    left_nothing($session, 'and committed');
    $session->quit;
}

# By another session, while it is in it; again where that came too late
{
    my $session = session($node);
    my $probing = 'SELECT state = $$active$$ AND query ~ $$^SELECT count.*tuning_findings$$ FROM pg_stat_activity WHERE pid = ' . $session->pid;

    until_ok(sub {
        $session->start($probe);
        until_true(sub { $session->{psql}->pump_nb; $session->{out} =~ /^=end/m || $other->sql($probing) eq 't' });
        $other->sql('SELECT pg_cancel_backend(' . $session->pid . ')');
        return ($session->finish)[0] eq '57014';
    }, 'pg_cancel_backend');
    left_nothing($session, 'after that');
    $session->quit;
}

### A setting that a feature claims

my $health = q{SELECT state, action FROM pgscale.health WHERE feature = 'sweeper'};
my $verdicts = q{SELECT rule, verdict, reason ~ '^pgscale.sweeper is on and claims' FROM pgscale.advice_rules WHERE rule = 'bgwriter_lru_maxpages'};
my $silent = 'bgwriter_lru_maxpages|silent|t';
$db->set('pgscale.sweeper' => 'on');
if (has_freelist())
{
    $db->poll_ok($health, 'the sweeper works, and health asks for what it wants',
        'working|set bgwriter_lru_maxpages to 0 and reload: bgwriter writes single pages that could be combined');
    is($db->sql($verdicts), $silent, 'the rule leaves that to it');
    $db->set(bgwriter_lru_maxpages => 0);
    $db->poll_ok($health, 'with it, there is nothing to do', 'working|');
    is($db->sql($verdicts), $silent, 'and the rule does not take it back');
    is($db->sql(q{SELECT reason FROM pgscale.advice_rules WHERE rule = 'bgwriter_lru_maxpages'}),
        'pgscale.sweeper is on and claims bgwriter_lru_maxpages, which is to be 0: bgwriter writes single pages that could be combined; '
          . 'now pgscale.sweeper_adaptive is off (pgscale.health)', 'but says why');
    is(($db->try(q{CALL pgscale.apply('bgwriter_lru_maxpages')}))[0], 'P0002', 'there is no advice to apply');
    $db->sql('CALL pgscale.apply_all(dry_run => false)');
    is($db->sql('SHOW bgwriter_lru_maxpages'), 0, 'nor does apply_all');
}
else
{
    $db->poll_ok($health, 'the sweeper works, and health asks for nothing', 'working|');
    unlike($db->sql($verdicts), qr/\|t$/, 'and claims nothing');
}
$db->set('pgscale.sweeper' => 'off');
$db->poll_ok($health, 'off, it asks for nothing', 'off|set pgscale.sweeper to on and reload');
unlike($db->sql($verdicts), qr/\|t$/, 'nor minds anything');

# While the writeback worker learns, or has nothing to do
$db->set(fsync => 'on');
$db->set('pgscale.writeback' => 'on');
$db->poll_ok(q{SELECT string_agg(rule, ' ' ORDER BY rule) FROM pgscale.advice_rules WHERE verdict = 'silent' AND reason ~ '^pgscale.writeback is on and claims'},
    'what the writeback worker does in their place', 'backend_flush_after vm.dirty_background_bytes');
$db->set('pgscale.writeback' => 'off');
$db->set('fsync');

### States

# Asked for, but impossible; nothing else is broken, at no moment.
my $broken = q{SELECT string_agg(feature || ': ' || reason, '; ') FROM pgscale.health WHERE state = 'broken'};
for my $how (qw(fast immediate))
{
    $_->quit for $db, $other;
    $node->stop($how);
    $node->start;
    ($db, $other) = (session($node), session($node));
    my @seen;
    until_true(sub { push @seen, $db->sql($broken);
        $db->sql(q{SELECT bool_and(state IN ('off', 'idle', 'working')) FROM pgscale.health}) eq 't' });
    is(join('', @seen), '', "nothing is broken after a $how stop and a start");
}
$db->set('pgscale.writeback' => 'on');
for my $type ('pgscale sampler', 'pgscale writeback')
{
    $db->poll_ok("SELECT count(*) FROM pg_stat_activity WHERE backend_type = '$type'", $type, 1);
    $db->sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = '$type'");
    my @seen;
    until_true(sub { push @seen, $db->sql($broken); $db->sql("SELECT count(*) FROM pg_stat_activity WHERE backend_type = '$type'") eq '1' });
    is(join('', @seen), '', "nor while $type is started again");
}
for my $i (1 .. 3)
{
    my @seen;

    $db->sampler('off');
    # a sampler that has just started again has not switched them off yet
    $db->poll_ok(q{SELECT string_agg(feature, ' ' ORDER BY feature), coalesce(bool_or(state <> 'off'), true) FROM pgscale.health
        WHERE reason = 'this feature needs the sampler, which is off'}, 'without the sampler, what lives on it is off', 'lwlocks scalability tuning|f');
    $db->sampler('on');
    push @seen, $db->sql($broken) for 1 .. 50;
    is(join('', @seen), '', 'and no more as soon as it is on');
}
$_->quit for $db, $other;
$node->stop;

# In single-user mode no worker runs, and it says so.
{
    my $out = '';
    my @command = ('postgres', '--single', '-j', '-D', $node->data_dir, 'postgres');
    IPC::Run::run(\@command, '<', \"SELECT feature, state, reason FROM pgscale.health WHERE feature IN ('sampler', 'relocation');\n\n", '>&', \$out,
        IPC::Run::timeout($PostgreSQL::Test::Utils::timeout_default));
    my @rows = $out =~ /state = "broken"[^\n]*\n[^\n]*reason = "the server is in single-user mode, in which no background worker runs"/g;
    is(scalar @rows, 2, 'single-user mode') or diag $out;
}
done_testing();
