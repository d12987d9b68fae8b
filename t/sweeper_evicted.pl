# pg_buffercache evicts pages by their buffer, and only the server's hand finds it then: it must go on while the sweeper supplies.
# Runs on 18, too.
use strict;
use warnings;
use PgscaleTest;
use Test::More;

plan skip_all => 'this major evicts nothing by its buffer' if server_major() < 17;
my $node = pgscale_node('main', conf => <<'EOC');
shared_buffers = 32MB
checkpoint_timeout = 1h
pgscale.sweeper = on
EOC
my $db = session($node);
plan skip_all => 'pg_buffercache is not installed'
  unless $db->sql(q{SELECT count(*) FROM pg_available_extensions WHERE name = 'pg_buffercache'});

$db->sql('CREATE EXTENSION pg_buffercache');
$db->sql('CREATE TABLE wide AS SELECT i AS id, repeat($$x$$, 500) AS filler FROM generate_series(1, 100000) i');
$db->sql('ALTER TABLE wide ADD PRIMARY KEY (id)');
$db->sql('CREATE TABLE goes_on AS SELECT 1 AS i');
my @readers = map { session($node) } 1 .. 2;
$_->start('DO $$ BEGIN WHILE EXISTS (SELECT FROM goes_on) LOOP PERFORM filler FROM wide WHERE id = (100000 * random())::int; END LOOP; END $$')
  for @readers;

$db->poll_ok(q{SELECT state = 'working' AND consumed > 5000 FROM pgscale.sweeper_stats}, 'the sweeper supplies readers');
my $empty = 'count(*) FROM pg_buffercache WHERE relfilenode IS NULL';
my $evict = 'SELECT FROM (SELECT count(pg_buffercache_evict(bufferid)) FROM pg_buffercache) e';
cmp_ok($db->sql("$evict; SELECT $empty"), '>', 2000, 'half of 4,096 buffers and more are emptied');
$db->poll_ok("SELECT (SELECT $empty) < 200", 'and are used again') or diag $db->sql('SELECT s FROM pgscale.sweeper_stats s');

$db->sql('DELETE FROM goes_on');
is_deeply([ map { ($_->finish)[0] } @readers ], [ ('00000') x 2 ], 'no reader failed');
$_->quit for $db, @readers;
done_testing();
