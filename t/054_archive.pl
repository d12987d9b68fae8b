# The archive: what its rounds write is what the profile grew by.
use strict;
use warnings;
use PgscaleTest;
use Test::More;

my $node = pgscale_node('main');
my $db = session($node);

is($db->sql(q{SELECT state FROM pgscale.health WHERE feature = 'archive'}), 'off', 'off by default');
done_testing();
