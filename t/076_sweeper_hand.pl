# The sweeper in mode window beside a hand of the server's that runs as fast as is asked for: see t/lib/window_steps.c.
use strict;
use warnings;
use PgscaleTest;
use Test::More;

my $node = pgscale_node('main');
my $db = session($node);

$db->steps_ok('window_steps');
$db->quit;
$node->stop;
done_testing();
