# Known samples, put into the files that a server reads at its start: what the views show is compared with figures worked out here.
# No two of the times are equal, and none is a whole number of buckets.
use strict;
use warnings;
use List::Util qw(max min sum0 uniq);
use POSIX qw(ceil floor log10 rint);
use PgscaleKept;
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

# A clock that can be set
my $library = PostgreSQL::Test::Utils::tempdir() . '/clock.so';
my $compiled = system("cc -shared -fPIC -o $library t/lib/clock.c >$library.out 2>&1") == 0;
local $ENV{PGSCALE_CLOCK} = PostgreSQL::Test::Utils::tempdir() . '/clock';
sub set_clock
{
    open my $handle, '+>', $ENV{PGSCALE_CLOCK} or die $!;
    syswrite $handle, pack 'q', 1e6 * shift or die $!;
    close $handle or die $!;
    return;
}

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
my $active = $db->sql('SHOW server_version_num') >= 180000 ? 3 : 2;    # 18 has one more state before it
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
    $advisory => [qw(Lock advisory)], $pin => [ server_major() >= 19 ? qw(Buffer BufferCleanup) : qw(BufferPin BufferPin) ], $in_transaction => [qw(Client IdleInTransaction)],
    $running => [qw(CPU Running)]);
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

# seconds that two times have in common
sub common { return max(0, min($_[1], $_[3]) - max($_[0], $_[2])); }
sub known { my ($since, $until) = @_; return sum0(map { common($since, $until, @$_[ 0, 1 ]) } @spans); }

# What is not idle, within a period: [sample, milliseconds]
sub waits
{
    my ($since, $until) = @_;

    return grep { $_->[1] > 0 } map { [ $_, 1000 * common($since, $until, $_->{end} - $_->{s}, $_->{end}) ] } grep { $_->{event} != $read } @samples;
}
sub is_session { return $_[0]{kind} != $worker; }

sub item
{
    my ($s, $by) = @_;
    my ($type, $event) = @{ $event{ $s->{event} } };

    return $type eq $event ? $event : "$type:$event" if $by eq 'event';
    return $event eq 'IdleInTransaction' ? $event : $type if $by eq 'class';
    return $kind{ $s->{kind} } if $by eq 'backend_type';
    return ( $by eq 'query' ? $s->{queryid} || undef
        : $by eq 'database' ? $name{ $s->{datid} }
        : $by eq 'user' ? $name{ $s->{userid} }
        : $by eq 'application' ? ($s->{name} ? $applications[ $s->{name} - 1 ] : undef)
        : defined $s->{root} ? ($s->{root} || 'prepared transaction') : undef) // 'unknown';
}

# {item} = { ms, session, events => {type|event}, queries => {} }, and all database time
sub items
{
    my ($since, $until, $by) = @_;
    my (%items, $database_ms);

    for (waits($since, $until))
    {
        my ($s, $ms) = @$_;
        my $item = item($s, $by);

        $database_ms += $ms if is_session($s);
        next if !is_session($s) && $by ne 'backend_type' || $by eq 'blocker' && $item eq 'unknown';
        $items{$item}{ms} += $ms;
        $items{$item}{active_ms} += $ms if $by =~ /^(?:event|class)$/ || $s->{event} != $in_transaction;
        $items{$item}{session} = is_session($s);
        $items{$item}{events}{ join '|', @{ $event{ $s->{event} } } } += $ms;
        $items{$item}{queries}{ $s->{queryid} } += $ms if $s->{queryid};
    }
    return (\%items, $database_ms);
}
sub longest { my $of = shift; return (sort { $of->{$b} <=> $of->{$a} } keys %$of)[0] // ''; }
sub rounded { return defined $_[0] ? sprintf('%.6f', $_[0]) =~ s/\.?0+$//r : ''; }

# what is shown to people: three digits, or a whole number; a difference has the decimals of the larger number
sub short
{
    my ($number, $larger) = @_;
    my $of = $larger // $number;
    my $power = $of ? 10**max(2 - floor(log10(abs $of)), 0) : 1;

    return rounded(defined $number ? rint($number * $power) / $power : undef);
}

sub top_waits
{
    my ($since, $until, $by, $top, $number) = @_;
    my ($items, $database_ms) = items($since, $until, $by);
    my @names = sort { $items->{$b}{ms} <=> $items->{$a}{ms} || $a cmp $b } keys %$items;
    my @rows = map { [ $_, $_ ] } splice @names, 0, $top;

    push @rows, [ 'other', @names ] if @names;
    my $rank = 0;
    return join "\n", map {
        my ($name, @of) = @$_;
        my $ms = sum0(map { $items->{$_}{ms} } @of);
        my $session = !grep { !$items->{$_}{session} } @of;
        my $i = ++$rank > $top ? {} : $items->{$name};
        join '|', $rank, $name, $i->{events} ? longest($i->{events}) : '|',
          $number->(sum0(map { $items->{$_}{active_ms} // 0 } @of) / 1000 / known($since, $until)),
          $session ? $number->($ms / $database_ms) : '', $number->($ms), longest($i->{queries} // {})
    } @rows;
}

sub activity
{
    my ($since, $until, $size) = @_;
    my @rows;

    for my $n (floor(($origin + $since) / $size) .. ceil(($origin + $until) / $size) - 1)
    {
        my ($from, $to) = (max($since, $n * $size - $origin), min($until, ($n + 1) * $size - $origin));
        my $known = known($from, $to);
        my %ms;
        $ms{ item($_->[0], 'class') } += $_->[1] for grep { is_session($_->[0]) } waits($from, $to);
        $ms{CPU} = 0 if $known > 0 && !%ms;
        push @rows, map { join '|', $n * $size - $origin, $_, rounded($ms{$_} / 1000 / $known), rounded($known / $size) }
          sort { $ms{$b} <=> $ms{$a} || $a cmp $b } keys %ms;
        push @rows, ($n * $size - $origin) . '|||0' if $known == 0;
    }
    return join "\n", @rows;
}

sub compare_waits
{
    my ($since1, $until1, $since2, $until2, $by, $top) = @_;
    my ($one, $ms1) = items($since1, $until1, $by);
    my ($two, $ms2) = items($since2, $until2, $by);
    my ($known1, $known2) = (known($since1, $until1), known($since2, $until2));
    my %of;

    for my $item (uniq keys %$one, keys %$two)
    {
        my ($a, $b) = map { $_->{$item}{ms} // 0 } $one, $two;
        my ($active1, $active2) = map { $_->{$item}{active_ms} // 0 } $one, $two;
        my $session = grep { $_->{$item}{session} } $one, $two;
        $of{$item} = [ $active1 / 1000 / $known1, $active2 / 1000 / $known2, map { $session ? $_ : 0 } $a / $ms1, $b / $ms2 ];
    }
    my @names = sort { abs($of{$b}[1] - $of{$b}[0]) <=> abs($of{$a}[1] - $of{$a}[0]) || $a cmp $b } keys %of;
    my @rows = map { [ $_, $_ ] } splice @names, 0, $top;
    push @rows, [ 'other', @names ] if @names;
    return join "\n", map {
        my ($name, @of) = @$_;
        my @sums = map { my $i = $_; sum0(map { $of{$_}[$i] } @of) } 0 .. 3;
        join '|', $name, short($sums[0]), short($sums[1]), short($sums[1] - $sums[0], max(@sums[ 0, 1 ])), map({ short($_) } @sums[ 2, 3 ])
    } @rows;
}

sub at { return "timestamptz '2000-01-01 00:00:00+00' + interval '" . ($origin + $_[0]) . " s'"; }
sub round_of { return join ', ', map { "round(($_)::numeric, 6)::float8" } @_; }

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
set_clock(0);
chmod 0755, $library if $compiled;
{
    local $ENV{LD_PRELOAD} = $compiled ? $library : $ENV{LD_PRELOAD} // '';
    $node->start;
}
$db = session($node);

is($db->sql(q{SELECT extract(epoch FROM at)::float8 - 946684800 - } . $origin . q{, period_s, source FROM pgscale.past_coverage('-infinity')}),
    "10|10|memory\n32.5|7.5|memory", 'what is known');
is($db->sql('SELECT round((extract(epoch FROM at) - 946684800 - ' . $origin . ')::numeric, 6)::float8, round(period_s::numeric, 6)::float8 FROM pgscale.past_coverage(' . at(13.3) . ', ' . at(37.7) . ')'),
    "13.3|6.7\n32.5|5.2", 'of a part');

# Two in the midst of samples, one at their ends, one that is in a gap
my @periods = ([ 0, 60 ], [ 13.3, 36.1 ], [ 12, 17.25 ], [ 5, 35 ], [ 19.5, 33.4 ]);
for my $period (@periods)
{
    my ($since, $until) = @$period;

    for my $by (qw(event class query database user application backend_type blocker))
    {
        for my $top ($since == 0 ? (1, 2, 10) : 2)
        {
            is($db->sql('SELECT rank, item, event_type, event, ' . round_of('active_sessions', 'fraction', 'wait_ms')
                      . ', queryid FROM pgscale_internal.past_items(' . at($since) . ', ' . at($until) . ", '$by', $top)"),
                top_waits($since, $until, $by, $top, \&rounded), "top_waits of $since to $until, by $by, top $top");
        }
    }
    for my $size (1, 7, 60)
    {
        is($db->sql("SELECT extract(epoch FROM at)::int8 - 946684800 - $origin, event_type, " . round_of('active_sessions', 'covered_fraction')
              . ' FROM pgscale.activity(' . at($since) . ', ' . at($until) . ", '$size s')"),
            activity($since, $until, $size), "activity of $since to $until, in buckets of $size s");
    }
}
for ([ 10, 20, 32.5, 40 ], [ 13.3, 36.1, 5, 16 ])
{
    for my $by ('event', 'user', 'backend_type', 'blocker')
    {
        my $times = join ', ', map { at($_) } @$_;
        for my $top (1, 3)
        {
            is($db->sql('SELECT item, ' . round_of(qw(active_sessions_1 active_sessions_2 difference fraction_1 fraction_2))
                  . " FROM pgscale.compare_waits($times, '$by', $top)") =~ s/\|(?=\||$)/|0/gmr,
                compare_waits(@$_, $by, $top), "compare_waits of @$_, by $by, top $top");
        }
    }
}
# of an hour, by event, ten of them; in buckets of a minute
is($db->sql('SELECT rank, item, event_type, event, ' . round_of('active_sessions', 'fraction', 'wait_ms') . ', queryid
    FROM pgscale.top_waits(until => ' . at(3613.3) . ')'), top_waits(13.3, 3613.3, 'event', 10, \&short), 'the defaults of top_waits, and its digits');
is($db->sql("SELECT extract(epoch FROM at)::int8 - 946684800 - $origin, event_type, " . round_of('active_sessions', 'covered_fraction')
      . ' FROM pgscale.activity(until => ' . at(3613.3) . ') WHERE at < ' . at(60)), activity(13.3, 60, 60), 'and of activity');
my %bucket = (60 => 1, 60.5 => 2, 121 => 5, 301 => 10, 601 => 15, 901 => 30, 1801 => 60, 3600 => 60, 3601 => 120, 7201 => 300, 18001 => 600,
    36001 => 900, 54001 => 1800, 108001 => 3600, 216001 => 7200, 432001 => 10800, 648001 => 21600, 1296001 => 43200, 2592001 => 86400,
    5184000 => 86400, 5184001 => 172800, 10368001 => 259200);
is($db->sql("SELECT string_agg(DISTINCT step::text, ' ') FROM (SELECT extract(epoch FROM at - lag(at) OVER (ORDER BY at))::int AS step
    FROM pgscale.activity(" . at(-$_) . ', ' . at(0) . ')) s'), $bucket{$_}, "$_ s have buckets of $bucket{$_}")
  for sort { $a <=> $b } keys %bucket;

# Each look by itself, and in buckets: which begin where the period does
is($db->sql("SELECT round((extract(epoch FROM at) - 946684800 - $origin)::numeric, 6)::float8, round(period_s::numeric, 6)::float8, round(wait_ms::numeric, 6)::float8 FROM pgscale.past_waits("
      . at(13.3) . ', ' . at(36.1) . ") WHERE event_type = 'Lock' AND backend_type = 'client backend' ORDER BY 1"),
    "13.3|1.2|1200\n16.5|0.75|750\n33|3.1|3100", 'each look is a row');
is($db->sql("SELECT round((extract(epoch FROM at) - 946684800 - $origin)::numeric, 6)::float8, round(period_s::numeric, 6)::float8, round(wait_ms::numeric, 6)::float8 FROM pgscale.past_waits("
      . at(13.3) . ', ' . at(36.1) . ", 1.5) WHERE event_type = 'Lock' AND backend_type = 'client backend' ORDER BY 1"),
    "13.3|0.2|200\n13.5|1.5|1000\n16.5|1.5|750\n33|1.5|1500\n34.5|1.5|1500\n36|0.1|100", 'and in buckets');
is($db->sql(q{SELECT backend_type, datname, usename, application_name, queryid, event_type, event, blocker, wait_ms FROM pgscale.past_waits('-infinity') ORDER BY at, 1, wait_ms, queryid}),
    join("\n", map { join '|', $kind{ $_->{kind} }, $name{ $_->{datid} } // '', $name{ $_->{userid} } // '', $_->{name} ? $applications[ $_->{name} - 1 ] : '',
        $_->{queryid} || '', @{ $event{ $_->{event} } }, defined $_->{root} ? $_->{root} || 'prepared transaction' : '', 1000 * $_->{s} }
        sort { $a->{end} - $a->{s} <=> $b->{end} - $b->{s} || $kind{ $a->{kind} } cmp $kind{ $b->{kind} } || $a->{s} <=> $b->{s} || $a->{queryid} <=> $b->{queryid} } grep { $_->{event} != $read } @samples),
    'each column of past_waits, without what idles');

# Single samples: from since on, and before until; what idles is among them
for ([ 12, 17.25 ], [ 12.000001, 17.250001 ], [ undef, 12 ], [ 40, undef ], [ undef, undef ])
{
    my ($since, $until) = map { defined $_ ? at($_) : 'NULL' } @$_;
    my ($from, $to) = ($_->[0] // -1e9, $_->[1] // 1e9);

    is($db->sql("SELECT pid, extract(epoch FROM sampled_at)::float8 - 946684800 - $origin, backend_type, datid, userid, queryid, state, event_type, blocker_pid, root_pid
        FROM pgscale.wait_history($since, $until)"),
        join("\n", map { join '|', $_->{pid}, $_->{end}, $kind{ $_->{kind} }, (map { $_ || '' } @$_{qw(datid userid queryid)}), 'active',
            ($event{ $_->{event} } // ['Client'])->[0], $_->{blocker} // '', $_->{root} // '' } grep { $_->{end} >= $from && $_->{end} < $to } @samples),
        "wait_history of $since, $until");
}
is($db->sql('SELECT pid, datname, usename FROM pgscale.wait_history'),
    join("\n", map { join '|', $_->{pid}, $name{ $_->{datid} } // '', $name{ $_->{userid} } // '' } @samples), 'and the view has their names');
my $columns = 'sampled_at, pid, backend_type, state, event_type, event, blocker_pid, root_pid, queryid, datid, userid';
is($db->sql("SELECT count(*) FROM (SELECT $columns FROM pgscale.wait_history EXCEPT ALL SELECT $columns FROM pgscale.wait_history()) h"), 0, 'with all else');

# What the profile kept of it
my $ms = 'trim_scale(round(wait_ms::numeric, 3))';
is($db->sql("SELECT queryid, event_type, samples, $ms || coalesce(application_name, '') || coalesce(client_addr::text, '') || coalesce(plan_id::text, '')
    FROM pgscale.wait_profile() WHERE backend_type = 'client backend' AND queryid < 1000 ORDER BY 1"),
    join("\n", map { join '|', $_->{queryid}, $event{ $_->{event} }[0], $_->{samples}, rounded($_->{ns} / 1e6) }
        sort { $a->{queryid} <=> $b->{queryid} } grep { $_->{queryid} && $_->{queryid} < 1000 && $_->{queryid} > 0 } @places), 'those stay that weigh most');
is($db->sql("SELECT event, samples, $ms, datid, userid, queryid FROM pgscale.wait_profile() WHERE backend_type = 'other' ORDER BY 1"),
    join("\n", map { join '|', $event{$_}[1], $others{$_}{samples}, rounded($others{$_}{ns} / 1e6), '', '', '' } sort { $event{$a}[1] cmp $event{$b}[1] } keys %others),
    'the others are one row an event');
is($db->sql("SELECT samples, round(wait_ms), entries, evictions, extract(epoch FROM stats_reset)::int8 - 946684800 - $origin FROM pgscale.sampler_stats"),
    join('|', sum0(map { $_->{samples} } @entries), sprintf('%.0f', sum0(map { $_->{ns} } @entries) / 1e6), 100, 67, -12345), 'and the totals count them all');
my @shown = map { [ $_->{kind} == $worker ? 'forged worker' : 'client backend', @{ $event{ $_->{event} } }, $_->{ns} / 1e6, $name{ $_->{datid} } // '', $_->{queryid} || '', $name{ $_->{userid} } // '' ] }
  grep { $_->{event} != $read } @places;
push @shown, map { [ 'other', @{ $event{$_} }, $others{$_}{ns} / 1e6, '', '', '' ] } keys %others;
my $all_ms = sum0(map { $_->[3] } @shown);
is($db->sql('SELECT backend_type, event_type, event, wait_ms, fraction::numeric, datname, queryid, usename FROM pgscale.wait_profile'
      . ' ORDER BY wait_ms DESC, backend_type, event, queryid'),
    join("\n", map { join '|', @$_[ 0, 1, 2 ], rounded(sprintf '%.1f', $_->[3]), rounded($_->[3] / $all_ms), @$_[ 4 .. 6 ] }
        sort { sprintf('%.1f', $b->[3]) <=> sprintf('%.1f', $a->[3]) || $a->[0] cmp $b->[0] || $a->[2] cmp $b->[2] || ($a->[5] || 9e99) <=> ($b->[5] || 9e99) } @shown),
    'the view, without what idles');
is($db->sql('SELECT count(*) FROM (SELECT wait_ms - lag(wait_ms) OVER () AS more FROM pgscale.wait_profile) w WHERE more > 0'), 0, 'longest first');
is($db->sql("SELECT sum(wait_ms) BETWEEN $entries[146]{ns} / 1e6 - 1e-3 AND $entries[146]{ns} / 1e6 + 1e-3 FROM pgscale.wait_profile()
    WHERE event = 'ClientRead' AND idle"), 't', 'which the function has');

SKIP:
{
    skip 'this server has no pg_stat_statements', 4 unless $statements;

    is($db->sql("SELECT event_type, event, samples, calls, query FROM pgscale.query_waits() WHERE queryid = $known_query LIMIT 1"),
        "Lock|tuple|$entries[149]{samples}|3|SELECT \$1 AS asked, \$2", 'query_waits: with its calls and its text');
    is($db->sql("SELECT event, round(fraction::numeric, 6), round(wait_ms::numeric, 3), abs(total_time_ms / (SELECT total_plan_time + total_exec_time
        FROM pg_stat_statements WHERE queryid = $known_query) - 1) < 1e-9 FROM pgscale.query_waits() WHERE queryid = $known_query"),
        join("\n", map { join '|', $event{ $_->{event} }[1], sprintf('%.6f', $_->{ns} / ($entries[148]{ns} + $entries[149]{ns})), sprintf('%.3f', $_->{ns} / 1e6), 't' } @entries[ 149, 148 ]),
        'the fraction is of the query, longest first');
    is($db->sql('SELECT count(*), count(queryid), count(calls) FROM pgscale.query_waits()'), '98|97|2',
        'sessions without a query are there, and neither what idles nor a server process');
    is($db->sql("SELECT event, wait_ms, calls, query, datname FROM pgscale.query_waits WHERE queryid = $known_query LIMIT 1"),
        join('|', 'tuple', rounded(sprintf '%.1f', $entries[149]{ns} / 1e6), 3, 'SELECT $1 AS asked, $2', 'postgres'), 'and the view');
}

### Evictions while sessions idle

# What is new now is the least wherever it stands, and goes soon. Six sessions that idle are counted at each tick, in whichever entry
# they have by then, and never in one that was theirs.
my @idle = map { session($node, user => 'idler') } 1 .. 6;
my $sleeper = session($node, user => 'bob');
my $seen = q{SELECT sum(samples) FILTER (WHERE event = 'ClientRead'), coalesce(sum(samples) FILTER (WHERE event = 'PgSleep'), 0) FROM pgscale.wait_profile()};
my @before = split /\|/, $db->sql($seen);
$db->sampler('on');
until_ok(sub {
    $sleeper->sql(q{SELECT format('SELECT pg_sleep(0.002)%s', repeat(', 1', i)) FROM generate_series(1, 100) i
\gexec
SELECT 1});
    return $db->sql(q{SELECT evictions > 250 AND count(*) > 0 FROM pgscale.sampler_stats, pgscale.wait_profile()
        WHERE backend_type = 'other' AND event = 'ClientRead' GROUP BY evictions}) eq 't';
}, 'the entry of those that idle is evicted');
$db->sampler('off');
my $ticks = $db->sql('SELECT ticks FROM pgscale.sampler_stats');
my ($read_samples, $sleep_samples) = map { $_->[1] - $_->[0] } map { [ $before[$_], (split /\|/, $db->sql($seen))[$_] ] } 0, 1;
cmp_ok($read_samples, '>', 5.5 * $ticks, 'they are counted at each tick');
cmp_ok($sleep_samples, '<', 1.1 * $ticks, 'and as nothing else');
is($db->sql('SELECT sum(p.samples) = s.samples, abs(sum(p.wait_ms) / s.wait_ms - 1) < 1e-9 FROM pgscale.wait_profile() p, pgscale_internal.sampler_stats() s
    GROUP BY s.samples, s.wait_ms'), 't|t', 'and it adds up');

# The ring of single samples was full many times over. Of the oldest look that is left some may be gone, so what is known begins with its end.
is($db->sql('SELECT count(*) FROM pgscale.wait_history()'), 30, 'the history has as many samples as it can');
is($db->sql(q{SELECT count(*), min(at) = (SELECT min(sampled_at) FROM pgscale.wait_history()),
    max(at + make_interval(secs => period_s)) >= (SELECT max(sampled_at) FROM pgscale.wait_history()) FROM pgscale.past_coverage('-infinity')}), '1|t|t',
    'it is known from the oldest of them on');
is($db->sql(q{SELECT count(*) > 0, count(*) FILTER (WHERE at < (SELECT min(at) FROM pgscale.past_coverage('-infinity'))) FROM pgscale.past_waits()}), 't|0',
    'which counts for nothing itself, as one that is not whole');
# a row of what the timeline has in a minute and no sample may come with them
is($db->sql(q{SELECT count(DISTINCT p.at) - h.n IN (0, 1, 2) FROM pgscale.past_waits() p CROSS JOIN
    (SELECT count(DISTINCT sampled_at) FILTER (WHERE sampled_at > (SELECT min(sampled_at) FROM pgscale.wait_history())) AS n
       FROM pgscale.wait_history() WHERE event <> 'ClientRead') h GROUP BY h.n}), 't', 'and each of the others does');

### The timeline's ring: an hour later the same places are used again, and what was in them is gone.

SKIP:
{
    skip 'no compiler: ' . slurp_file("$library.out"), 3 unless $compiled;

    my $observed = q{SELECT round(observed_ms::numeric, 3) FROM pgscale_internal.sampler_stats()};
    my $known = q{SELECT round((max(covered_fraction) * 36500 * 86400e3)::numeric, 3) FROM pgscale.activity(clock_timestamp() - interval '%d s', NULL, '36500 d')};
    my $before_ms = $db->sql($observed);
    is($db->sql('SELECT abs((' . sprintf($known, 3600) . ") - $before_ms) < 1"), 't', 'activity has all of the time');
    my ($behind) = $db->sql(q{SELECT extract(epoch FROM clock_timestamp() - max(at)) FROM pgscale.activity(bucket => '1 s') WHERE covered_fraction > 0});
    set_clock(3600 - $behind);
    $db->sampler('on');
    $db->poll_ok("SELECT observed_ms > $before_ms + 1200 FROM pgscale.sampler_stats", 'an hour later it goes on');
    $db->sampler('off');
    is($db->sql('SELECT abs((' . sprintf($known, 40) . ") - (($observed) - $before_ms)) < 1"), 't', 'and has no more than that time');
}

$db->quit;
$node->stop;
done_testing();
