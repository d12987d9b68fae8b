# What features and rules make of each other and of a cancel: the states of pgscale.health, settings that a feature claims, and
# reads of advice that are cancelled at any moment.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main');
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
    my ($state, $text) = $session->try("SET statement_timeout = 0; INSERT INTO t VALUES ($rows)");
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

# By another session, while it is sure to be in it
{
    my $session = session($node);

    $session->start($probe);
    $other->poll_ok('SELECT state = $$active$$ FROM pg_stat_activity WHERE pid = ' . $session->pid, 'it runs');
    $other->sql('SELECT pg_cancel_backend(' . $session->pid . ')');
    is(($session->finish)[0], '57014', 'pg_cancel_backend');
    left_nothing($session, 'after that');
    $session->quit;
}

$_->quit for $db, $other;
$node->stop;
done_testing();
