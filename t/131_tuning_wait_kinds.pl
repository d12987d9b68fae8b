# Each wait event of this major has a kind of its own in src/tuning/wait_kinds.c: none is only what its class is. So a new major, or
# an event that nobody has looked at, fails here.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $library = PostgreSQL::Test::Utils::tempdir() . '/wait_events.so';
my $include = server_headers();
system("cc -shared -fPIC -O1 -I $include -o $library t/lib/wait_events.c >$library.out 2>&1") == 0
  or plan skip_all => 'no compiler: ' . slurp_file("$library.out");
chmod 0755, $library;

my $node = pgscale_node('main');
my $db = session($node);
$db->sql("CREATE FUNCTION wait_event_of(int, int) RETURNS text STRICT LANGUAGE c AS '$library'");
my @events = split /\n/, $db->sql('SELECT DISTINCT e FROM generate_series(1, 15) c, generate_series(0, 300) n, wait_event_of(c, n) e WHERE e IS NOT NULL ORDER BY 1');
cmp_ok(scalar(@events), '>', 200, 'the events of this server are found');

my ($table) = slurp_file('src/tuning/wait_kinds.c') =~ /^static const WaitName wait_names\[\] = \{(.*?)^\};/ms;
# that one is no wait, and has no kind on purpose
my %known = map { lc($_) => 1 } map { "$_->[0] $_->[1]" } map { [ /"([^"]+)", "([^"]+)"/ ] } grep { /", "/ } split /\n/, qq{$table"Timeout", "PgSleep"};
is(join("\n", grep { !$known{ lc $_ } } @events), '', 'and each has a kind that was looked at');
# where the server lists them itself, none is overlooked
is($db->sql(q{SELECT to_regclass('pg_catalog.pg_wait_events') IS NULL}) eq 't' ? '' : join("\n", grep { !$known{ lc $_ } }
    split /\n/, $db->sql(q{SELECT type || ' ' || name FROM pg_wait_events WHERE type NOT IN ('Extension', 'InjectionPoint') AND name !~ '^pgscale' ORDER BY 1})), '', 'also of those that it lists');
$db->quit;
$node->stop;
done_testing();
