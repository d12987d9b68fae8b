# doc/reference.md is what t/lib/reference.sql prints of this server's catalog, and nothing in it lacks a description: no setting,
# view, column or function. With PGSCALE_WRITE_REFERENCE (make reference) the page is written first.
# Runs on each major.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = pgscale_node('main');
my ($printed, $errors) = ('', '');
ok(IPC::Run::run([ 'psql', '-XAtq', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('postgres'), '-f', 't/lib/reference.sql' ], '>', \$printed, '2>', \$errors),
    'the page is printed')
  or diag $errors;
if ($ENV{PGSCALE_WRITE_REFERENCE})
{
    open my $file, '>', 'doc/reference.md' or die "doc/reference.md: $!";
    print $file $printed;
    close $file or die $!;
}
my @lines = split /\n/, $printed;
my @page = split /\n/, slurp_file('doc/reference.md');
my ($first) = grep { ($lines[$_] // '') ne ($page[$_] // '') } 0 .. (@lines > @page ? $#lines : $#page);
is($first, undef, 'doc/reference.md is what it should be: else run make reference')
  or diag "line @{[ $first + 1 ]}: $page[$first]\n  should be: $lines[$first]";
is(join("\n", grep { /\(undescribed\)/ } @lines), '', 'everything has its description');
is(join("\n", grep { /\| \(unknown\) \|/ } @lines), '', 'what a comment of a function describes is an argument or a column of it');
for (qw(pg_proc:pronamespace pg_class:relnamespace))
{
    my ($catalog, $namespace) = split /:/;
    my $name = $catalog eq 'pg_proc' ? "proname || '()'" : 'relname';
    my @there = split /\n/, session($node)->sql("SELECT DISTINCT $name FROM $catalog WHERE $namespace = 'pgscale'::regnamespace");
    cmp_ok(scalar @there, '>', 20, "objects of $catalog");
    is(join(' ', grep { my $n = $_; !grep { $_ eq "### pgscale.$n" } @lines } @there), '', 'each has its heading');
}
$node->stop;
done_testing();
