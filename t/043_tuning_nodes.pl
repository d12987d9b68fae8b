# Whose changes are in the journal: those of another server, of a database of which this one is a copy, of the primary of a standby,
# before and after its promotion.
use strict;
use warnings;
use PgscaleTest;
use PgscaleTuning;
use PostgreSQL::Test::Utils;
use Test::More;

tuning_node();
my $before = file();

# The journal is of this server: a dump, which the database's owner may make, leaves it out; and where pg_upgrade has taken it
# along, the server is another one.
$db->sql('CREATE ROLE owning LOGIN; CREATE DATABASE owned OWNER owning');
my $owned = session($node, dbname => 'owned');
$owned->sql('CREATE EXTENSION pgscale');
my $of_owned = change($owned, q{set('work_mem', '7MB')});
$node->command_ok([ 'pg_dump', '-U', 'owning', '-f', $node->basedir . '/dump.sql', 'owned' ], 'the owner of a database dumps it');
unlike(slurp_file($node->basedir . '/dump.sql'), qr/tuning_change/, 'without the journal');
$owned->sql('UPDATE pgscale_internal.tuning_change SET cluster = cluster + 1');
is($owned->sql("SELECT setting, new_value, state FROM pgscale.tuning_journal WHERE change = $of_owned"),
    'work_mem|7MB|of another server', 'what was changed on another server');
like(($owned->try("CALL pgscale.revert($of_owned, force => true)"))[1], qr/ERROR: .*another server/, 'cannot be reverted here');
$owned->sql('UPDATE pgscale_internal.tuning_change SET cluster = cluster - 1');
my $as_changed = file();
$owned->quit;
until_true(sub { $db->sql(q{SELECT count(*) FROM pg_stat_activity WHERE datname = 'owned'}) eq '0' });
$db->sql('CREATE DATABASE copied TEMPLATE owned');
my $copied = session($node, dbname => 'copied');
is($copied->sql("SELECT setting, new_value, state FROM pgscale.tuning_journal WHERE change = $of_owned"),
    'work_mem|7MB|of another database', 'what was changed in the database of which this one is a copy');
refused_ok($copied, "revert($of_owned, force => true)", '55000', qr/is of another database/, 'is not reverted in the copy');
like(($copied->try("SELECT * FROM pgscale.verify($of_owned)"))[1], qr/ERROR: .*is of another database/, 'nor verified');
change($copied, 'revert(' . change($copied, q{set('work_mem', '8MB')}) . ')');
is(file(), $as_changed, 'the copy has a journal of its own');
$copied->quit;
$owned = session($node, dbname => 'owned');
change($owned, "revert($of_owned)");
is(file(), $before, 'and it is reverted where it was made');
$owned->quit;
$db->sql('DROP DATABASE owned');
$db->sql('DROP DATABASE copied');
$db->sql('DROP ROLE owning');

# A standby
my $standby = pgscale_standby($node);
my $on_standby = session($standby);
change($db, 'revert(' . change($db, q{set('work_mem', '5MB')}) . ')');
until_ok(sub { $on_standby->sql('SELECT count(*) FROM pgscale.tuning_journal') eq $db->sql('SELECT count(*) FROM pgscale.tuning_journal') },
    'a standby has the journal');
for my $call (q{set('work_mem', '1MB')}, 'revert(1)', q{apply('work_mem')}, 'apply_all()')
{
    my ($state, $answer) = $on_standby->try("CALL pgscale.$call");
    is($state, '25006', "no $call on a standby");
    like($answer, qr/on a standby.*^HINT: /ms, 'with a hint');
}
$db->sql('RESET client_min_messages');
like(($db->try(q{CALL pgscale.set('max_connections', '60')}))[1], qr/NOTICE: .*a standby on which "max_connections" is less than 60/,
    'what standbys must follow is told');
change($db, 'revert(' . last_change() . ')');

# Once it is promoted, it has the primary's journal, and a postgresql.auto.conf of its own.
my @of_primary = map { change($db, "set('work_mem', '${_}MB')") } 6 .. 8;
until_ok(sub { $on_standby->sql(q{SELECT max(change) FROM pgscale.tuning_journal WHERE state <> 'begun'}) eq $of_primary[2] }, 'changes of the primary');
is($on_standby->sql("SELECT state FROM pgscale.tuning_journal WHERE change = $of_primary[2]"), 'not on this node', 'are not on a standby');
$standby->promote;
is($on_standby->sql("SELECT state, node FROM pgscale.tuning_journal WHERE change = $of_primary[2]"),
    'not on this node|' . qx(uname -n | tr -d '\n') . ':' . $node->data_dir, 'nor on a promoted node, which tells where they are');
my ($state, $answer) = $on_standby->try("CALL pgscale.revert($of_primary[2])");
is($state, '55000', 'what is not there is not reverted');
like($answer, qr/made on another node, .*HINT: .*To make the change here: CALL pgscale.set\('work_mem', '8MB'\)/s, 'and how to make it is told');
like($on_standby->sql("SELECT reason FROM pgscale.verify($of_primary[2]) LIMIT 1"), qr/^cannot tell/, 'nor verified');
my $again = change($on_standby, q{set('work_mem', '8MB')});
like($on_standby->sql("SELECT state FROM pgscale.tuning_journal WHERE change = $again"), qr/^(applied|pending)/, 'it can be made there');
change($on_standby, "revert($again)");
is(($on_standby->try("CALL pgscale.revert($of_primary[0])"))[0], '55000', 'one below others');
like(($on_standby->try("CALL pgscale.revert($of_primary[0], force => true)"))[1], qr/^\d+\z/m, 'is reverted with them by force');
is($on_standby->sql("SELECT string_agg(DISTINCT state, ' ') FROM pgscale.tuning_journal WHERE change IN (" . join(',', @of_primary) . ')'),
    'reverted', 'and none is left');
$on_standby->quit;
$standby->stop;
change($db, "revert($_)") for reverse @of_primary;
is(file(), $before, 'where they were made they are reverted one by one');

# The file is this server's: what is done to it waits for no standby, which may not be there.
$db->set('synchronous_standby_names', 'nobody');
$db->poll_ok('SHOW synchronous_standby_names', 'commits are to wait for a standby that is not there', 'nobody');
$db->sql(q{SET synchronous_commit = on; SET client_min_messages = warning});
is(join('|', $db->try(q{CALL pgscale.set('work_mem', '9MB')})), '00000|' . last_change(), 'a change waits for none');
is(join('|', $db->try('CALL pgscale.revert(' . last_change() . ')')), '00000|' . last_change(), 'nor does its reverting');
$db->set('synchronous_standby_names', undef);

$db->quit;
$node->stop;
done_testing();
