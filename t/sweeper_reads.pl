# The sweeper where reads are the bottleneck, on a server whose reads are slow (t/lib/slow_reads.c): what it observes while it
# only watches, and what it decides by that.
use strict;
use warnings;
use IPC::Run;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $reads = PostgreSQL::Test::Utils::tempdir;
my $slow_reads = compiled('slow_reads');
my $node;
{
    local $ENV{LD_PRELOAD} = $slow_reads // $ENV{LD_PRELOAD} // '';
    local $ENV{READS_DIR} = $reads;
    $node = pgscale_node('main', conf => <<'EOC');
shared_buffers = 8MB
max_worker_processes = 32
checkpoint_timeout = 1h
pgscale.sweeper = auto
EOC
}
my $db = session($node);
my $state = 'SELECT state, reason FROM pgscale.sweeper_stats';

sub file { my $name = shift; open my $file, '>', "$reads/$name" or die $!; close $file; return; }
sub replacement { my $columns = shift; return $db->sql("SELECT $columns FROM pgscale.replacement_stats"); }

# Sessions use 2,000 pages of 13 rows each, some pages much more often than others: the clock misses many of those, and what
# remembers how often a page was used does not. Whatever the pace is, what is saved is the same. They pause, or the hand would go
# round such a small cache more often than there are ticks. From 18 on io workers read for bitmap scans, and sessions themselves
# for index scans.
$db->churn_table(26000);
$db->sql('VACUUM churn');
$db->sql('CHECKPOINT');
$db->sql('CREATE TABLE by_index ()');
$db->sql(<<"EOQ") for [ 'use_bitmap', 'indexscan' ], [ 'use_index', 'bitmapscan' ];
CREATE PROCEDURE $_->[0]() LANGUAGE plpgsql SET enable_$_->[1] = off SET enable_seqscan = off AS \$\$
DECLARE
    used int[];
BEGIN
    FOR i IN 1..10 LOOP
        used := ARRAY(SELECT (floor(2000 * random() ^ 4)::int * 1237 % 2000) * 13 + floor(13 * random())::int FROM generate_series(1, 2));
        PERFORM filler FROM churn WHERE id = ANY (used);
    END LOOP;
END \$\$;
EOQ
$db->sql(<<'EOQ');
CREATE PROCEDURE go_on() LANGUAGE plpgsql AS $$
BEGIN
    WHILE EXISTS (SELECT FROM churn_on) LOOP
        IF EXISTS (SELECT FROM by_index) THEN
            CALL use_index();
        ELSE
            CALL use_bitmap();
        END IF;
        COMMIT;
        PERFORM pg_sleep(0.01);
    END LOOP;
END $$;
EOQ
my $counted = q{SELECT sum(blks_read), sum(blks_hit + blks_read) FROM pg_stat_database};
my ($read_before, $asked_before) = split /\|/, $db->sql($counted);

sub go_on
{
    my @going = map { session($node) } 0 .. 3;

    $_->start('CALL go_on()') for @going;
    return @going;
}

# Where reads are quick it only watches. What it sees agrees with what the server counts. An io worker may be late on a busy machine,
# however quick the disk is: so sessions read for themselves.
$db->sql('INSERT INTO by_index DEFAULT VALUES');
my @going = go_on();
$db->poll_ok('SELECT expected_reads < -0.05 AND observed > 0 FROM pgscale.replacement_stats',
    'while it watches, it foretells what would be saved')
  or diag replacement('row_to_json(replacement_stats)');
is(replacement('choice, reads_saved'), 'clock|0', 'but nothing is in force, and nothing was saved');
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
    skip 'the library that makes reads slow cannot be compiled here', 8 + (server_major() >= 18) unless $slow_reads;

    # It works where sessions wait for reads, and as long as they do.
    $db->sql('DELETE FROM by_index');
    file($_) for qw(slow all);
    @going = go_on();
    $db->poll_ok('SELECT state, reason ~ $$^sessions wait for reads, and another choice of pages saves \d+ % of them$$ FROM pgscale.sweeper_stats',
        'where sessions wait for reads, it works', 'working|t') or diag $db->sql($state),
            replacement('row_to_json(replacement_stats)');
    $db->poll_ok(q{SELECT sum(consumed) > 1000 FROM pgscale.sweeper_stats}, 'and supplies');
    $db->poll_ok(q{SELECT choice LIKE 'half-life %' FROM pgscale.replacement_stats}, 'what the best half-life chooses')
      or diag replacement('row_to_json(replacement_stats)');
    $db->poll_ok(q{SELECT count(*) > 0 FROM pg_stat_activity WHERE wait_event = 'AioIoCompletion' AND backend_type = 'client backend'},
        'they wait for io workers')
      if server_major() >= 18;
    $db->sql('INSERT INTO by_index DEFAULT VALUES');
    unlink "$reads/slow" or die $!;
    in_time_ok(sub { return $db->sql('SELECT state, reason FROM pgscale.sweeper_stats') eq 'watching|reads no longer delay sessions'; },
        'when reads are quick again, it stands down') or diag $db->sql($state), replacement('row_to_json(replacement_stats)');
    $db->poll_ok('SELECT choice, expected_reads < -0.05 FROM pgscale.replacement_stats',
        'though another choice would save as much', 'clock|t')
      or diag replacement('row_to_json(replacement_stats)');
    $db->churn_end(@going);

    # What transactions take is all that counts: reads take longer from then on when it works, and it may be the reason.
    my $script = "$reads/read.sql";
    append_to_file($script, <<'EOS');
SELECT filler FROM churn WHERE id = (SELECT (floor(2000 * random() ^ 4)::int * 1237 % 2000) * 13);
EOS
    $db->set('pgscale.sweeper', $_) for qw(off auto);
    file('slow');
    my $load = IPC::Run::start([ 'pgbench', '-n', '-c', 4, '-T', 600, '-f', $script, $node->connstr('postgres') ], '>&', \my $said);
    $db->poll_ok('SELECT state, reason ~ $$^sessions wait for reads$$ FROM pgscale.sweeper_stats', 'it works again', 'working|t')
      or diag $db->sql($state);
    file('slower');
    in_time_ok(sub { return $db->sql($state) =~ /^watching[|]transactions took \d+ % longer than before it worked$/; },
        'it stands down when transactions take longer')
      or diag $db->sql($state);
    unlink map { "$reads/$_" } qw(slow slower);
    $load->kill_kill;
}

# At work it goes on with what was seen: its choice is in force at once, and the log says so.
my $log = -s $node->logfile;
$db->set('log_min_messages', 'debug1');
$db->set('pgscale.sweeper', 'on');
$db->poll_ok(q{SELECT state, choice ~ 'half-life', switches > 0 FROM pgscale.sweeper_stats, pgscale.replacement_stats},
    'it works, and chooses at once', 'working|t|t');
until_ok(sub { slurp_file($node->logfile, $log) =~ /DEBUG:  pages leave by half-life [0-9.]+, before by clock; switch [1-9]/ },
    'the log has it');
@going = go_on();
$db->sql(q{SELECT pgscale.reset('sweeper')});
$db->poll_ok('SELECT reads_saved_low > 0, reads_saved BETWEEN reads_saved_low AND reads_saved_high, served_fraction BETWEEN 0 AND 1,
    scanned > evictions, cpu_ms > 0 FROM pgscale.replacement_stats, pgscale.sweeper_stats', 'it saves reads, and is sure of that', 't|t|t|t|t')
  or diag replacement('row_to_json(replacement_stats)');

# Its scores: the pages that are used most have higher ones than the whole table, and few of them may leave.
is($db->sql(q{SELECT mean_score > 1, may_leave < buffers FROM pgscale.relation_buffers WHERE relation = 'churn'::regclass AND fork = 'main'}), 't|t',
    'relation_buffers has the scores of a table');
$db->churn_end(@going);

$db->quit;
$node->stop;
done_testing();
