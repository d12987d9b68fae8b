# Known samples, put into the files that a server reads at its start: what the views show is compared with figures worked out here.
# No two of the times are equal, and none is a whole number of buckets.
# Runs on 18, too.
use strict;
use warnings;
use List::Util qw(sum0);
use PgscaleKept;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

# A clock that can be set
my $clock = compiled('clock');
local $ENV{PGSCALE_CLOCK} = number_file();

my $statements = have_module('pg_stat_statements');
my $node = pgscale_node('main', preload => 'pgscale' . ($statements ? ', pg_stat_statements' : ''), conf => <<'EOC');
pgscale.sampler_period = 1ms
pgscale.sampler_history_period = 1ms
pgscale.sampler_history_size = 30
pgscale.sampler_profile_size = 100
pgscale.sampler_dimensions = 'application_name'
EOC
my $db = session($node);
$db->sql('CREATE DATABASE second; CREATE ROLE alice; CREATE ROLE bob LOGIN; CREATE ROLE idler LOGIN');
$db->sql('CREATE EXTENSION pg_stat_statements; SELECT pg_stat_statements_reset()') if $statements;
my $active = server_major() >= 18 ? 3 : 2;    # 18 has one more state before it
my ($catversion, $first, $second, $alice, $bob, $me, $my_name) = split /\|/, $db->sql(q{SELECT catalog_version_no,
    (SELECT oid FROM pg_database WHERE datname = 'postgres'), (SELECT oid FROM pg_database WHERE datname = 'second'),
    'alice'::regrole::oid, 'bob'::regrole::oid, current_user::regrole::oid, current_user FROM pg_control_system()});
my %name = ($first => 'postgres', $second => 'second', $alice => 'alice', $bob => 'bob', $me => $my_name);
my $other = session($node);
$other->sql('SELECT 2 AS asked, 3') for 1 .. 3;
my $known_query = $db->queryid($other);
$other->quit;

# The number of a client backend is the server's own business: here is one.
$db->sql('SELECT pg_sleep(0.05)');
$db->poll_ok(q{SELECT count(*) > 0 FROM pgscale.wait_history WHERE event = 'PgSleep'}, 'a sample of a session');
$db->sampler('off');
my $file = $node->data_dir . '/pg_stat/pgscale_sampler';
$db->quit;
$node->stop;
my $saved = slurp_file("${file}_history.stat", 0);
my ($nsamples, $ntypes, $nnames) = (unpack 'L6', $saved)[ 3, 4, 5 ];
my ($client) = map { $_->[1] } grep { $_->[0] == $me } map { [ unpack 'x24 L x18 C', substr $saved, $_, 56 ] }
  map { 24 + 16 + 256 * 24 + 96 * $ntypes + 64 * $nnames + 56 * $_ } 0 .. $nsamples - 1;
my ($worker, $parallel) = (0x40, 0xFE);
my ($relation, $tuple, $transaction, $advisory, $pin, $read, $in_transaction, $running) =
  (0x03000000, 0x03000004, 0x03000005, 0x0300000A, 0x04000000, 0x06000000, 0x0600FFFF, 1);
my %event = (
    $relation => [qw(Lock relation)], $tuple => [qw(Lock tuple)], $transaction => [qw(Lock transactionid)],
    $advisory => [qw(Lock advisory)], $pin => [ server_major() >= 19 ? qw(Buffer BufferCleanup) : qw(BufferPin BufferPin) ],
    $in_transaction => [qw(Client IdleInTransaction)], $running => [qw(CPU Running)]);
my %kind = ($client => 'client backend', $worker => 'forged worker', $parallel => 'parallel worker');

### The history

# An hour began two hours ago: 0 is there, in seconds. Samples: end, length, and all else. Two times are known, with a gap.
my $origin = 3600 * (int((time - 946684800) / 3600) - 2);
my @applications = ('alpha', 'beta');
my @spans = ([ 10, 20, 0 ], [ 32.5, 40, 8 ]);
my @samples = map {
    my %s;
    @s{qw(end s pid kind datid userid name queryid event blocker root)} = @$_;
    $s{at} = ($origin + $s{end}) * 1e6;
    $s{us} = $s{s} * 1e6;
    $s{state} = $active;
    \%s
} (
    [ 12, 2, 101, $client, $first, $alice, 1, 11, $relation, 201, 201 ],
    [ 12, 2, 102, $client, $second, $bob, 2, 22, $running ],
    [ 14.5, 2.5, 101, $client, $first, $alice, 1, 11, $relation, 203, 201 ],
    [ 17.25, 0.75, 102, $client, $second, $bob, 2, 22, $tuple, 0, 0 ],
    [ 17.25, 0.5, 103, $parallel, $second, $bob, 2, 22, $pin ],
    [ 18, 4, 104, $client, $first, $alice, 1, 0, $read ],
    [ 20, 1.5, 105, $worker, 0, 0, 0, 0, $advisory ],
    [ 20, 1.25, 104, $client, $first, $alice, 1, 0, $in_transaction ],
    [ 36.25, 3.25, 101, $client, $first, $alice, 1, 11, $relation, 202, 202 ],
    [ 40, 3.75, 102, $client, $second, $bob, 2, 33, $running ],
    [ 40, 0.375, 106, $client, $second, $bob, 0, 22, $transaction, 201, 201 ]);

sub rounded { return sprintf('%.6f', $_[0]) =~ s/\.?0+$//r; }

### The profile: more entries than there is room for. Some have the same time, so that it is seen which one of them goes.

my @entries = map {
    my %e = (queryid => $_, datid => $first, userid => $_ % 3 ? $alice : $bob, event => $_ % 5 ? $relation : $pin, kind => $client,
        samples => 3 * $_ + 1, ns => 3_600_000_000_000 + 1_000_000 * ($_ * 7919 % 131 % 61) + 123_000);
    \%e
} 1 .. 150;
$_->{queryid} = $known_query, $_->{datid} = $first, $_->{userid} = $me for @entries[ 148, 149 ];
# a number of an application, which is not kept with the profile
$_->{dimension} = 1 for @entries[ 100 .. 140 ];
$entries[149]{ns} *= 3;
$entries[149]{event} = $tuple;
$entries[148]{event} = $relation;
# of no query: a session's, one that idles, and a server process
$entries[147]{queryid} = 0;
@{ $entries[146] }{qw(queryid event)} = (0, $read);
@{ $entries[145] }{qw(queryid kind datid userid event)} = (0, $worker, 0, 0, $advisory);

# the same once more, as the sampler does it: of sixteen from a rotating hand the least goes, the first of equals
my (@places, %others);
{
    my $hand = 0;
    for my $e (@entries)
    {
        if (@places < 100)
        {
            push @places, $e;
            next;
        }
        my @window = map { ($hand + $_) % 100 } 0 .. 15;
        my $victim = $window[0];
        $places[$_]{ns} < $places[$victim]{ns} and $victim = $_ for @window;
        $hand = ($hand + 16) % 100;
        $others{ $places[$victim]{event} }{$_} += $places[$victim]{$_} for 'samples', 'ns';
        $places[$victim] = $e;
    }
}

write_bytes("${file}_history.stat", history_file(catversion => $catversion, types => ['forged worker'], names => \@applications,
        spans => [ map { [ ($origin + $_->[0]) * 1e6, ($origin + $_->[1]) * 1e6, $_->[2] ] } @spans ], samples => \@samples));
my $reset_at = ($origin - 12345) * 1_000_000;
write_bytes("$file.stat", profile_file(catversion => $catversion, types => ['forged worker'], entries => \@entries, evictions => 17,
        reset_at => $reset_at));
$ENV{LD_PRELOAD} = $clock if $clock;
$node->start;
delete $ENV{LD_PRELOAD};
$db = session($node);
# seconds of a time since 0, and the other way round; six digits
$db->sql("CREATE FUNCTION at(float8) RETURNS timestamptz LANGUAGE sql
        RETURN timestamptz '2000-01-01 00:00:00+00' + make_interval(secs => $origin + \$1);
    CREATE FUNCTION r6(float8) RETURNS float8 LANGUAGE sql RETURN round(\$1::numeric, 6);
    CREATE FUNCTION s(timestamptz) RETURNS float8 LANGUAGE sql RETURN r6(extract(epoch FROM \$1) - 946684800 - $origin)");

is($db->sql(q{SELECT s(at), r6(period_s), source FROM pgscale_internal.past_coverage('-infinity')}), "10|10|memory\n32.5|7.5|memory",
    'what is known');
is($db->sql('SELECT s(at), r6(period_s) FROM pgscale_internal.past_coverage(at(13.3), at(37.7))'), "13.3|6.7\n32.5|5.2", 'of a part');

# By each of these: rank, item, its longest event, active sessions, fraction of database time, milliseconds, and its query.
# What only idles in a transaction is no active session, and a server process no database time. 19 has another name for one
# event.
sub rows_ok
{
    my ($query, $name, $expected) = @_;
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return is($db->sql($query) =~ s/Buffer:BufferCleanup|BufferCleanup|Buffer\b/BufferPin/gr . "\n", $expected, $name);
}
my $items = q{SELECT by, rank, item, event, r6(active_sessions), r6(fraction), r6(wait_ms), queryid
    FROM unnest('{event,class,query,database,user,application,backend_type,blocker}'::text[]) WITH ORDINALITY b (by, n)
    CROSS JOIN LATERAL pgscale_internal.past_items(at(%s), at(%s), by, %s) ORDER BY n, rank};
rows_ok((sprintf $items, 0, 60, 10), 'past_items of all that is known', <<'EOR');
event|1|Lock:relation|relation|0.442857|0.473282|7750|11
event|2|CPU:Running|Running|0.328571|0.351145|5750|33
event|3|Client:IdleInTransaction|IdleInTransaction|0.071429|0.076336|1250|
event|4|Lock:tuple|tuple|0.042857|0.045802|750|22
event|5|BufferPin|BufferPin|0.028571|0.030534|500|22
event|6|Lock:transactionid|transactionid|0.021429|0.022901|375|22
class|1|Lock|relation|0.507143|0.541985|8875|11
class|2|CPU|Running|0.328571|0.351145|5750|33
class|3|IdleInTransaction|IdleInTransaction|0.071429|0.076336|1250|
class|4|BufferPin|BufferPin|0.028571|0.030534|500|22
query|1|11|relation|0.442857|0.473282|7750|11
query|2|33|Running|0.214286|0.229008|3750|33
query|3|22|Running|0.207143|0.221374|3625|22
query|4|unknown|IdleInTransaction|0|0.076336|1250|
database|1|postgres|relation|0.442857|0.549618|9000|11
database|2|second|Running|0.421429|0.450382|7375|33
user|1|alice|relation|0.442857|0.549618|9000|11
user|2|bob|Running|0.421429|0.450382|7375|33
application|1|alpha|relation|0.442857|0.549618|9000|11
application|2|beta|Running|0.4|0.427481|7000|33
application|3|unknown|transactionid|0.021429|0.022901|375|22
backend_type|1|client backend|relation|0.835714|0.969466|15875|11
backend_type|2|forged worker|advisory|0.085714||1500|
backend_type|3|parallel worker|BufferPin|0.028571|0.030534|500|22
blocker|1|201|relation|0.278571|0.29771|4875|11
blocker|2|202|relation|0.185714|0.198473|3250|11
blocker|3|prepared transaction|tuple|0.042857|0.045802|750|22
EOR
# in the midst of samples: each counts by its part
my $some = $items =~ s/class,|database,user,application,//gr;
rows_ok((sprintf $some, 13.3, 36.1, 2), 'of a part, the top two and all others', <<'EOR');
event|1|Lock:relation|relation|0.417476|0.632353|4300|11
event|2|Client:IdleInTransaction|IdleInTransaction|0.121359|0.183824|1250|
event|3|other||0.121359|0.183824|1250|
query|1|11|relation|0.417476|0.632353|4300|11
query|2|22|tuple|0.121359|0.183824|1250|22
query|3|other||0|0.183824|1250|
backend_type|1|client backend|relation|0.490291|0.926471|6300|11
backend_type|2|forged worker|advisory|0.145631||1500|
backend_type|3|other||0.048544|0.073529|500|
blocker|1|202|relation|0.300971|0.455882|3100|11
blocker|2|201|relation|0.116505|0.176471|1200|11
blocker|3|other||0.072816|0.110294|750|
EOR
# Active sessions of each class, and the part of the bucket that is known
my $activity = 'SELECT s(at), event_type, r6(active_sessions), r6(coverage_fraction)
    FROM pgscale.activity(at(%s), at(%s), $$%s s$$)';
rows_ok((sprintf $activity, 0, 60, 9), 'activity in buckets of nine seconds', <<'EOR');
0|||0
9|Lock|0.65625|0.888889
9|CPU|0.25|0.888889
9|BufferPin|0.0625|0.888889
18|IdleInTransaction|0.625|0.222222
27|Lock|0.857143|0.388889
36|CPU|0.9375|0.444444
36|Lock|0.15625|0.444444
45|||0
54|||0
EOR
rows_ok((sprintf $activity, 13.3, 17, 1), 'of a second, with a part of the first, and one in which nothing was active', <<'EOR');
13|Lock|1|0.7
14|Lock|0.5|1
15|CPU|0|1
16|Lock|0.5|1
16|BufferPin|0.25|1
EOR
rows_ok((sprintf $activity, 13.3, 36.1, 60), 'of a minute', <<'EOR');
0|Lock|0.490291|0.171667
0|IdleInTransaction|0.121359|0.171667
0|BufferPin|0.048544|0.171667
EOR

# What is shown to people has three digits, or is a whole number; a difference has the decimals of the larger number.
my $compared = 'SELECT item, r6(active_sessions_1), r6(active_sessions_2), r6(difference), r6(fraction_1), r6(fraction_2)
    FROM pgscale.compare_waits(at(%s), at(%s), at(%s), at(%s), $$%s$$, %s)';
rows_ok((sprintf $compared, 10, 20, 32.5, 40, 'event', 3), 'compare_waits by event', <<'EOR');
CPU:Running|0.2|0.5|0.3|0.222|0.508
Client:IdleInTransaction|0.125|0|-0.125|0.139|0
Lock:tuple|0.075|0|-0.075|0.0833|0
other|0.5|0.483|-0.017|0.556|0.492
EOR
# of an hour, by event, ten of them
rows_ok('SELECT rank, item, event_type, event, active_sessions, fraction, wait_ms, queryid
    FROM pgscale.top_waits(until => at(3613.3))', 'the defaults of top_waits, and its digits', <<'EOR');
1|Lock:relation|Lock|relation|0.313|0.402|4450|11
2|CPU:Running|CPU|Running|0.264|0.339|3750|33
3|Client:IdleInTransaction|Client|IdleInTransaction|0.088|0.113|1250|
4|Lock:tuple|Lock|tuple|0.0528|0.0677|750|22
5|BufferPin|BufferPin|BufferPin|0.0352|0.0451|500|22
6|Lock:transactionid|Lock|transactionid|0.0264|0.0339|375|22
EOR
my %bucket = (60 => 1, 60.5 => 2, 121 => 5, 301 => 10, 601 => 15, 901 => 30, 1801 => 60, 3600 => 60, 3601 => 120, 7201 => 300,
    18001 => 600, 36001 => 900, 54001 => 1800, 108001 => 3600, 216001 => 7200, 432001 => 10800, 648001 => 21600, 1296001 => 43200,
    2592001 => 86400, 5184000 => 86400, 5184001 => 172800, 10368001 => 259200);
for my $s (sort { $a <=> $b } keys %bucket)
{
    is($db->sql("SELECT string_agg(DISTINCT step::text, ' ') FROM (SELECT extract(epoch
        FROM at - lag(at) OVER (ORDER BY at))::int AS step
        FROM pgscale.activity(at(-$s), at(0))) s"), $bucket{$s}, "$s s have buckets of $bucket{$s}");
}

# Each look by itself, and in buckets: which begin where the period does
my $of_locks = q{SELECT s(at), r6(period_s), r6(wait_ms) FROM pgscale.past_waits(at(13.3), at(36.1)%s)
    WHERE event_type = 'Lock' AND backend_type = 'client backend' ORDER BY 1};
is($db->sql(sprintf $of_locks, ''), "13.3|1.2|1200\n16.5|0.75|750\n33|3.1|3100", 'each look is a row');
is($db->sql(sprintf $of_locks, ', 1.5'), "13.3|0.2|200\n13.5|1.5|1000\n16.5|1.5|750\n33|1.5|1500\n34.5|1.5|1500\n36|0.1|100",
    'and in buckets');
my @by_begin = sort {
    $a->{end} - $a->{s} <=> $b->{end} - $b->{s} || $kind{ $a->{kind} } cmp $kind{ $b->{kind} } || $a->{s} <=> $b->{s}
      || $a->{queryid} <=> $b->{queryid}
} grep { $_->{event} != $read } @samples;
is($db->sql(q{SELECT backend_type, datname, usename, application_name, queryid, event_type, event, blocker, wait_ms
    FROM pgscale.past_waits('-infinity') ORDER BY at, 1, wait_ms, queryid}),
    join("\n", map { join '|', $kind{ $_->{kind} }, $name{ $_->{datid} } // '', $name{ $_->{userid} } // '',
        $_->{name} ? $applications[ $_->{name} - 1 ] : '', $_->{queryid} || '', @{ $event{ $_->{event} } },
        defined $_->{root} ? $_->{root} || 'prepared transaction' : '', 1000 * $_->{s} } @by_begin),
    'each column of past_waits, without what idles');

# Single samples: from since on, and before until; what idles is among them
for ([ 12, 17.25 ], [ 12.000001, 17.250001 ], [ undef, 12 ], [ 40, undef ], [ undef, undef ])
{
    my ($since, $until) = map { defined $_ ? "at($_)" : 'NULL' } @$_;
    my ($from, $to) = ($_->[0] // -1e9, $_->[1] // 1e9);

    is($db->sql("SELECT pid, s(sampled_at), backend_type, datid, userid, queryid, state, event_type, blocker_pid, root_pid
        FROM pgscale_internal.wait_history($since, $until)"),
        join("\n", map { join '|', @$_{qw(pid end)}, $kind{ $_->{kind} }, (map { $_ || '' } @$_{qw(datid userid queryid)}),
            'active', ($event{ $_->{event} } // ['Client'])->[0], $_->{blocker} // '', $_->{root} // '' }
            grep { $_->{end} >= $from && $_->{end} < $to } @samples),
        "wait_history of $since, $until");
}

# What the profile kept of it
is($db->sql("SELECT queryid, event_type, samples, r6(wait_ms) || concat(application_name, client_addr, plan_id)
    FROM pgscale_internal.wait_profile() WHERE backend_type = 'client backend' AND queryid BETWEEN 1 AND 999 ORDER BY 1"),
    join("\n", map { join '|', $_->{queryid}, $event{ $_->{event} }[0], $_->{samples}, rounded($_->{ns} / 1e6) }
        sort { $a->{queryid} <=> $b->{queryid} } grep { $_->{queryid} > 0 && $_->{queryid} < 1000 } @places),
            'those stay that weigh most');
is($db->sql("SELECT event, samples, r6(wait_ms), datid, userid, queryid FROM pgscale_internal.wait_profile() WHERE backend_type = 'other'
    ORDER BY 1"),
    join("\n", map { join '|', $event{$_}[1], $others{$_}{samples}, rounded($others{$_}{ns} / 1e6), '', '', '' }
        sort { $event{$a}[1] cmp $event{$b}[1] } keys %others), 'the others are one row an event');
is($db->sql('SELECT samples, round(wait_ms), entries, evictions, s(stats_reset) FROM pgscale.sampler_stats'),
    join('|', sum0(map { $_->{samples} } @entries), sprintf('%.0f', sum0(map { $_->{ns} } @entries) / 1e6), 100, 67, -12345),
    'and the totals count them all');
my $all_ms = sum0(map { $_->{ns} } @entries[ 0 .. 145, 147 .. 149 ]) / 1e6;
is($db->sql("SELECT backend_type, event, r6(wait_ms), r6(fraction::float8), datname, usename FROM pgscale.wait_profile
    WHERE event = 'tuple' AND usename = '$my_name'"),
    join('|', 'client backend', 'tuple', rounded(sprintf '%.1f', $entries[149]{ns} / 1e6),
        rounded($entries[149]{ns} / 1e6 / $all_ms),
        'postgres', $my_name), 'the view, without what idles');
is($db->sql('SELECT count(*) FROM (SELECT wait_ms - lag(wait_ms) OVER () AS more FROM pgscale.wait_profile) w WHERE more > 0'), 0,
    'longest first');
is($db->sql("SELECT r6(sum(wait_ms)) FROM pgscale_internal.wait_profile() WHERE event = 'ClientRead'
    AND idle"), rounded($entries[146]{ns} / 1e6),
    'which the function has');

SKIP:
{
    skip 'this server has no pg_stat_statements', 4 unless $statements;

    is($db->sql("SELECT event_type, event, samples, calls, query FROM pgscale_internal.query_waits() WHERE queryid = $known_query LIMIT 1"),
        "Lock|tuple|$entries[149]{samples}|3|SELECT \$1 AS asked, \$2", 'query_waits: with its calls and its text');
    is($db->sql("SELECT event, round(fraction::numeric, 6), round(wait_ms::numeric, 3),
        abs(total_time_ms / (SELECT total_plan_time + total_exec_time
        FROM pg_stat_statements WHERE queryid = $known_query) - 1) < 1e-9 FROM pgscale_internal.query_waits() WHERE queryid = $known_query"),
        join("\n", map { join '|', $event{ $_->{event} }[1], sprintf('%.6f', $_->{ns} / ($entries[148]{ns} + $entries[149]{ns})),
            sprintf('%.3f', $_->{ns} / 1e6), 't' } @entries[ 149, 148 ]),
        'the fraction is of the query, longest first');
    is($db->sql('SELECT count(*), count(queryid), count(calls) FROM pgscale.query_waits'), '98|97|2',
        'sessions without a query are there, and neither what idles nor a server process');
    is($db->sql("SELECT event, wait_ms, calls, query, datname FROM pgscale.query_waits WHERE queryid = $known_query LIMIT 1"),
        join('|', 'tuple', rounded(sprintf '%.1f', $entries[149]{ns} / 1e6), 3, 'SELECT $1 AS asked, $2', 'postgres'),
            'and the view');
}

### Evictions while sessions idle

# What is new now is the least wherever it stands, and goes soon. Six sessions that idle are counted at each tick, in
# whichever entry they have by then, and never in one that was theirs.
my @idle = map { session($node, user => 'idler') } 1 .. 6;
my $sleeper = session($node, user => 'bob');
my $seen = q{SELECT sum(samples) FILTER (WHERE event = 'ClientRead'), coalesce(sum(samples) FILTER (WHERE event = 'PgSleep'), 0)
    FROM pgscale_internal.wait_profile()};
my @before = split /\|/, $db->sql($seen);
$db->sampler('on');
in_time_ok(sub {
    $sleeper->sql(q{SELECT format('SELECT pg_sleep(0.002)%s', repeat(', 1', i)) FROM generate_series(1, 100) i
\gexec
SELECT 1});
    return $db->sql(q{SELECT evictions > 250 AND count(*) > 0 FROM pgscale.sampler_stats, pgscale_internal.wait_profile()
        WHERE backend_type = 'other' AND event = 'ClientRead' GROUP BY evictions}) eq 't';
}, 'the entry of those that idle is evicted');
$db->sampler('off');
my $ticks = $db->sql('SELECT ticks FROM pgscale.sampler_stats');
my ($read_samples, $sleep_samples) = map { $_->[1] - $_->[0] } map { [ $before[$_], (split /\|/, $db->sql($seen))[$_] ] } 0, 1;
cmp_ok($read_samples, '>', 5.5 * $ticks, 'they are counted at each tick');
cmp_ok($sleep_samples, '<', 1.1 * $ticks, 'and as nothing else');
is($db->sql('SELECT sum(p.samples) = s.samples, abs(sum(p.wait_ms) / s.wait_ms - 1) < 1e-9
    FROM pgscale_internal.wait_profile() p, pgscale_internal.sampler_stats() s GROUP BY s.samples, s.wait_ms'), 't|t', 'and it adds up');

# The ring of single samples was full many times over. Of the oldest look that is left some may be gone, so what is known
# begins with its end.
is($db->sql('SELECT count(*) FROM pgscale_internal.wait_history()'), 30, 'the history has as many samples as it can');
is($db->sql(q{SELECT count(*), min(at) = (SELECT min(sampled_at) FROM pgscale_internal.wait_history()),
    max(at + make_interval(secs => period_s)) >= (SELECT max(sampled_at) FROM pgscale_internal.wait_history())
        FROM pgscale_internal.past_coverage('-infinity')}), '1|t|t',
    'it is known from the oldest of them on');
is($db->sql(q{SELECT count(*) > 0, count(*) FILTER (WHERE at < (SELECT min(at) FROM pgscale_internal.past_coverage('-infinity')))
    FROM pgscale.past_waits()}), 't|0', 'which counts for nothing itself, as one that is not whole');
# a row of what the timeline has in a minute and no sample may come with them
is($db->sql(q{SELECT count(DISTINCT p.at) - h.n IN (0, 1, 2) FROM pgscale.past_waits() p CROSS JOIN
    (SELECT count(DISTINCT sampled_at) FILTER (WHERE sampled_at > (SELECT min(sampled_at) FROM pgscale_internal.wait_history())) AS n
       FROM pgscale_internal.wait_history() WHERE event <> 'ClientRead') h GROUP BY h.n}), 't', 'and each of the others does');

### The timeline's ring: an hour later the same places are used again, and what was in them is gone.

SKIP:
{
    skip 'no compiler', 3 unless $clock;

    my $observed = q{SELECT round(observed_ms::numeric, 3) FROM pgscale_internal.sampler_stats()};
    my $known = q{SELECT round((max(coverage_fraction) * 36500 * 86400e3)::numeric, 3)
        FROM pgscale.activity(clock_timestamp() - interval '%d s', NULL, '36500 d')};
    my $before_ms = $db->sql($observed);
    is($db->sql('SELECT abs((' . sprintf($known, 3600) . ") - $before_ms) < 1"), 't', 'activity has all of the time');
    my $behind = $db->sql(q{SELECT extract(epoch FROM clock_timestamp() - max(at)) FROM pgscale.activity(bucket => '1 s')
        WHERE coverage_fraction > 0});
    write_number($ENV{PGSCALE_CLOCK}, int(1e6 * (3600 - $behind)));
    $db->sampler('on');
    $db->poll_ok("SELECT observed_ms > $before_ms + 1200 FROM pgscale.sampler_stats", 'an hour later it goes on');
    $db->sampler('off');
    is($db->sql('SELECT abs((' . sprintf($known, 40) . ") - (($observed) - $before_ms)) < 1"), 't',
        'and has no more than that time');
}

$db->quit;
$node->stop;
done_testing();
