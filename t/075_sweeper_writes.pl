# How the sweeper writes a page: under the lock that the server demands of it, and without a use of the page. In a window,
# which works on any major.
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

plan skip_all => 'this server has no pg_buffercache' unless have_module('pg_buffercache');
my ($include, $library) = (server_headers(), PostgreSQL::Test::Utils::tempdir() . '/held_writes.so');
plan skip_all => "the server's headers are not here" unless -r "$include/postgres.h";
system("cc -shared -fPIC -O1 -w -I $include -o $library t/lib/held_writes.c") == 0 or die 'held_writes.c cannot be compiled';
chmod 0755, $library or die $!;

# With checksums, older majors write a copy of the page.
my $writes = PostgreSQL::Test::Utils::tempdir() . '/writes';
my @init = qx(initdb --help) =~ /--no-data-checksums/ ? (init => [ extra => ['--no-data-checksums'] ]) : ();
local $ENV{LD_PRELOAD} = $library;
local $ENV{HELD_WRITES} = $writes;
my $node = pgscale_node('main', @init, conf => <<'EOC');
shared_buffers = 8MB
max_worker_processes = 16
checkpoint_timeout = 1h
bgwriter_lru_maxpages = 0
pgscale.sampler = off
pgscale.sweeper_mode = window
pgscale.sweeper_adaptive = off
pgscale.sweeper_policy = clock    # whose counts are those of the headers, when it leaves
pgscale.sweeper_high_watermark = 0.25
EOC
delete $ENV{LD_PRELOAD};
my $db = session($node);

# A row a page. The pages of a are most of the buffers and dirty; those of b take their counts down.
$db->sql(<<'EOQ');
CREATE EXTENSION pg_buffercache;
CREATE TABLE a (i int, n int, filler char(500)) WITH (fillfactor = 10);
CREATE TABLE b (i int, n int, filler char(500)) WITH (fillfactor = 10);
INSERT INTO a SELECT i, 0, '' FROM generate_series(0, 799) i;
INSERT INTO b SELECT i, 0, '' FROM generate_series(0, 999) i;
VACUUM FREEZE a, b;
EOQ
sub reads
{
    my ($table, $times, @blocks) = @_;
    my $rows = join ',', map { qq{"($_,1)"} } @blocks;

    $db->sql("SELECT count(*) FROM $table WHERE ctid = ANY ('{$rows}')") for 1 .. $times;
    return;
}
sub pages
{
    my $where = shift;

    return map { my ($block, @is) = split /\|/; ($block => "@is") } split /\n/, $db->sql("SELECT relblocknumber, bufferid, usagecount
        FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('a') AND relforknumber = 0 AND $where");
}
my $hand = 'SELECT passes, hand FROM pgscale.clock_sweep';
my (%before, %clean, $moved);

# Nothing but the sweeper may move the counts meanwhile, so no other page is read: what does that, as a catalog may, is found out.
for my $attempt (1 .. 5)
{
    $db->sql('UPDATE a SET n = n + 1');
    for (my $at = 0; keys %{ { pages('isdirty AND usagecount = 0') } } < 300; $at = ($at + 4) % 1000) { reads('b', 1, $at .. $at + 3); }
    my @dirty = keys %{ { pages('isdirty') } };
    reads('a', 2, grep { $_ % 10 == 3 } @dirty);
    reads('a', 9, grep { $_ % 10 == 7 } @dirty);
    # or there were clean ones enough
    reads('b', 2, split /\n/, $db->sql(q{SELECT relblocknumber FROM pg_buffercache WHERE relfilenode = pg_relation_filenode('b') AND relforknumber = 0}));
    %before = pages('isdirty');
    my $from = $db->sql($hand);
    $db->set('pgscale.sweeper', 'on');
    $db->poll_ok('SELECT written > 250 AND ready >= low_watermark FROM pgscale.sweeper_stats', 'the sweeper writes as many as are wanted');
    $db->set('pgscale.sweeper', 'off');
    $db->poll_ok('SELECT state FROM pgscale.sweeper_stats', 'and ends', 'off');
    $db->sql("SELECT pg_terminate_backend($_)") for $db->sweeper_pids('writer');
    $db->poll_ok('SELECT writers FROM pgscale.sweeper_stats', 'with its writers', 0);
    %clean = pages('NOT isdirty');
    $moved = $db->sql($hand) ne $from;
    last unless $moved;
    $db->sql('SELECT pgscale.reset($$sweeper$$)');
}
ok(!$moved, 'no buffer is needed meanwhile');
my @written = grep { $clean{$_} } keys %before;
cmp_ok(scalar @written, '>', 250, 'pages that the sweeper wrote');
my %usage;
$usage{ (split / /, $before{$_})[1] }++ for @written;
cmp_ok(scalar keys %usage, '>=', 3, 'with counts of uses from none to the most') or diag explain \%usage;
# buffer, and count of uses; the sweep may have taken counts down while it looked for pages, and a write adds none
is(join(', ', map { "$_: $before{$_} then $clean{$_}" } grep { my ($buf, $uses) = split / /, $before{$_}; $clean{$_} !~ /^$buf [0-$uses]$/ } @written),
    '', 'a write is no use');
my %letters = map { $_ => 1 } split //, slurp_file($writes);
is(join('', sort keys %letters), server_major() >= 19 ? 'x' : 's', 'each was locked as the server demands');

$db->quit;
$node->stop('immediate');
done_testing();
