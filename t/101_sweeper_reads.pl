# The sweeper where reads are the bottleneck: what it observes while it only watches and decides by that, step by step
# (t/lib/reads_steps.c); and on a server whose reads are slow (t/lib/slow_reads.c).
use strict;
use warnings;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $reads = PostgreSQL::Test::Utils::tempdir;
my $library = "$reads/slow_reads.so";
my $slow_reads = system("cc -shared -fPIC -o $library t/lib/slow_reads.c >$library.out 2>&1") == 0;
my $node;
{
    local $ENV{LD_PRELOAD} = $slow_reads ? $library : $ENV{LD_PRELOAD} // '';
    local $ENV{READS_DIR} = $reads;
    $node = pgscale_node('main', conf => <<'EOC');
shared_buffers = 8MB
max_worker_processes = 32
checkpoint_timeout = 1h
pgscale.sweeper = on
EOC
}
my $db = session($node);
my $state = 'SELECT state, reason FROM pgscale.sweeper_stats';

sub file { my $name = shift; open my $file, '>', "$reads/$name" or die $!; close $file; return; }
sub replacement { my $columns = shift; return $db->sql("SELECT $columns FROM pgscale.replacement_stats"); }

$db->steps_ok('reads_steps');

# Sessions go round and round over more pages than there are buffers, 13 rows each, each from a place of its own. The clock then
# misses nearly all of them, and what remembers that a page was used keeps some. They pause, or the hand would go round such a small
# cache more often than there are ticks.
$db->churn_table(26000);
$db->sql('VACUUM churn');
$db->sql('CHECKPOINT');
$db->sql(<<'EOQ');
CREATE PROCEDURE go_round(at int) LANGUAGE plpgsql AS $$
BEGIN
    WHILE EXISTS (SELECT FROM churn_on) LOOP
        FOR i IN 1..20 LOOP
            PERFORM filler FROM churn WHERE id = at;
            at := (at + 13) % 26000;
        END LOOP;
        COMMIT;
        PERFORM pg_sleep(0.002);
    END LOOP;
END $$;
EOQ
my $counted = q{SELECT sum(blks_read), sum(blks_hit + blks_read) FROM pg_stat_database};
my ($read_before, $asked_before) = split /\|/, $db->sql($counted);

sub go_round
{
    my @going = map { session($node) } 0 .. 3;

    $going[$_]->start("CALL go_round($_ * 6500)") for 0 .. 3;
    return @going;
}

# Under the clock it only watches. What it sees agrees with what the server counts.
my @going = go_round();
$db->poll_ok('SELECT expected_reads < -0.05 AND observed > 0 FROM pgscale.replacement_stats', 'while it watches, it foretells what would be saved')
  or diag replacement('row_to_json(replacement_stats)');
is(replacement('policy, choice, reads_saved'), 'clock|clock|0', 'but nothing is in force, and nothing was saved');
is($db->sql($state), 'watching|no session waits to write a page', 'it goes on to watch');
$db->churn_end(@going);
until_ok(sub {
    my ($read, $asked) = split /\|/, $db->sql($counted);
    my ($left, $used) = split /\|/, replacement('evictions, shadow_references * shadow_sample');

    ($read, $asked) = ($read - $read_before, $asked - $asked_before);
    note "$left pages left, $read were read; $used references, $asked were asked for";
    return $left <= $read && 10 * $left >= $read && $used <= 1.5 * $asked && 10 * $used >= $read;
}, 'as many pages left as were read, or fewer; and it saw as many uses as there were, or fewer');

SKIP:
{
    skip 'the library that makes reads slow cannot be compiled here', 9 unless $slow_reads;

    # With a policy, it works where sessions wait for reads, and as long as they do.
    $db->set('pgscale.sweeper_policy', 'adaptive');
    file($_) for qw(slow all);
    @going = go_round();
    $db->poll_ok('SELECT state, reason ~ $$^sessions wait for reads, and another choice of pages saves \d+ % of them$$ FROM pgscale.sweeper_stats',
        'where sessions wait for reads, it works', 'working|t') or diag $db->sql($state), replacement('row_to_json(replacement_stats)');
    $db->poll_ok(q{SELECT sum(consumed) > 1000 FROM pgscale.sweeper_stats}, 'and supplies');
    $db->poll_ok(q{SELECT policy, choice LIKE 'half-life %' FROM pgscale.replacement_stats}, 'what the best half-life chooses', 'adaptive|t')
      or diag replacement('row_to_json(replacement_stats)');
    is($db->sql(q{SELECT state, reason ~ 'wait for reads' FROM pgscale.health WHERE feature = 'sweeper'}), 'working|t', 'health says why');
    unlink "$reads/slow" or die $!;
    # At that pace it may also see less than it would have to know that reads are saved.
    $db->poll_ok('SELECT state, reason ~ $$^(reads no longer delay sessions|another choice of pages saves only)$$ FROM pgscale.sweeper_stats',
        'when reads are quick again, it stands down', 'watching|t') or diag $db->sql($state);
    $db->churn_end(@going);
}

$db->quit;
$node->stop;
done_testing();
