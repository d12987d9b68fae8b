# What holds an online move back: the rate, the hours, standbys, I/O pressure and room, with a clock and disks that t/lib/pace_steps.c
# makes up. And the hours of a server, which hold back what is queued.
use strict;
use warnings;
use PgscaleRelocation;
use PgscaleTest;
use Test::More;

relocation_node();
# it warns where the pressure is unknown
$db->sql('SET client_min_messages = error');

use constant { KB => 1024, MB => 1024 * 1024 };

# Changes what is made up.
sub made_up
{
    my (%values) = @_;

    return map { $db->sql("SELECT pace_set('$_', '$values{$_}')") } keys %values;
}

sub begin { $db->sql("SELECT pace_begin(@{[ shift // 'false' ]})"); return; }

# So many ms later, when so many bytes are copied, and this has changed: "ms to wait|next piece|why", or an error
sub asks
{
    my ($after_ms, $copied, $expected, $name, %made_up) = @_;
    my $left = MB * (delete $made_up{left} // 1000);

    made_up(%made_up);
    my (undef, $said) = $db->try("SELECT pace_ask($after_ms, $copied, $left)");
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    return like($said, qr/^$expected/, $name);
}

sub checks
{
    ### Pieces
    begin();
    asks(0, 0, '0\|4194304\|$', 'without settings it goes on');
    asks(400, 4 * MB, '0\|1048576\|$', 'of a slow disk a piece is what it copies in 100 ms');
    asks(1, 5 * MB, '0\|2097152\|$', 'which doubles at most');
    asks(1e6, 5 * MB, '0\|2097152\|$', 'time in which nothing was copied teaches nothing');
    asks(1e6, 6 * MB, '0\|262144\|$', 'a piece is not smaller than a record of the WAL');
    asks(0, 6 * MB + 8192, '0\|524288\|$', 'a clock that stands still is none to divide by');
    for my $case ([ 5000, int(5000 * 1024 / 10 / 8192) * 8192, 'a low rate makes pieces small, of whole pages' ],
        [ 1, 256 * KB, 'but not smaller than that' ], [ 2147483647, 524288, 'a high rate does not matter' ])
    {
        my ($rate, $piece, $name) = @$case;

        made_up(rate => $rate);
        asks(0, 6 * MB + 8192, "\\d+\\|$piece\\|", $name);
    }

    ### The rate
    for my $kb (100, 10240, 102400)
    {
        begin();
        made_up(rate => $kb);
        cmp_ok(abs($db->sql('SELECT pace_copied(100, 1000, 30)') / (100 * $kb * KB) - 1), '<', 0.03,
            "$kb kB: kept, with waits that take too long");
    }
    begin();
    made_up(rate => 102400);
    cmp_ok(abs($db->sql('SELECT pace_copied(100, 50, 0)') / (5000 * MB) - 1), '<', 0.01,
        'a disk that is slower than the rate is used in full');
    begin();
    made_up(rate => 10240);
    asks($_, 0, '0', 'no copy') for 0, 3600e3;
    cmp_ok($db->sql('SELECT pace_copied(1, 1000, 0)'), '<', 12.2 * MB, 'an hour without a copy is not made up for');
    begin();
    asks(0, 0, '0', 'a copy begins', rate => 1);
    asks(0, 4 * MB, '1000\|\d+\|$', 'a debt of an hour is waited for a second at a time, without a word');
    asks(0, 4 * MB, '0', 'it ends with the limit, which is read again', rate => 0, reload => 1);
    asks(0, 4 * MB, '0', 'a new one begins with none', rate => 1024);
    asks(0, 1 * MB, '0', 'what is copied anew, as of a new attempt, is not less than nothing');

    ### The hours
    begin();
    is((made_up(hours => $_))[0], 't', "hours: '$_'")
      for '', '  ', '0:00-24:00', '00:00-00:01', ' 22:00 - 06:00 , 12:00-13:30 ', '9:05-9:06', '22:00-06:00';
    is((made_up(hours => $_))[0], 'f', "not hours: '$_'")
      for '22:00-06:00,', ',22:00-06:00', qw(x 22 22:00- -06:00 22:00-06:00;12:00-13:00 22:00-22:00 24:00-06:00 22:00-24:01
      22:60-23:00 22:0-23:00 22:000-23:00 222:00-23:00 22:00--23:00 -1:00-02:00 +1:00-02:00 22:00-23:00x 22.00-23.00),
      '22 :00-23:00', '22:00-23:00 12:00-13:00';
    for my $case ([ '00:00-24:00', '23:59' ], [ '22:00-06:00', '22:00' ], [ '22:00-06:00', '23:59' ], [ '22:00-06:00', '00:00' ],
        [ '22:00-06:00', '05:59' ], [ '12:00-13:00,22:00-06:00', '02:00' ], [ '22:00-06:00', '21:59', '22:00' ],
        [ '22:00-06:00', '06:00', '22:00' ], [ '22:00-06:00,12:00-13:00', '06:00', '12:00' ],
            [ '12:00-13:00,22:00-06:00', '13:00', '22:00' ],
        [ '12:00-13:00', '13:00', '12:00' ])
    {
        my ($hours, $now, $next) = @$case;
        my ($hour, $minute) = split /:/, $now;

        begin();
        made_up(hours => $hours, wall => 60 * (60 * $hour + $minute));
        asks(0, 0, $next ? "1000\\|\\d+\\|pgscale.relocation_hours begin at $next [(]UTC" : '0\|\d+\|$', "at $now with $hours");
    }
    begin();
    made_up(zone => 'Asia/Kolkata', wall => 60 * (60 * 8 + 35), hours => '14:06-15:00');    # 5:30 h ahead
    asks(0, 0, '1000\|\d+\|pgscale.relocation_hours begin at 14:06 \(Asia/Kolkata\)$', 'the hours are those of log_timezone');
    made_up(wall => 60 * (60 * 8 + 36));
    asks(400, 0, '600\|\d+\|pgscale', 'it waits until it looks again');
    asks(600, 0, '0\|\d+\|$', 'and goes on within its hours');
    made_up(wall => 60 * (60 * 9 + 30));
    asks(0, 0, '0', 'between two looks');
    asks(1000, 0, '1000\|\d+\|pgscale', 'it waits at their end');
    asks(0, 0, '0', 'a reload is seen at once', hours => '', reload => 1);

    ### Who reads the WAL
    begin();
    asks(0, 0, '0', 'a standby may be behind by the limit', behind => 256);
    asks(0, 0, '0', 'it is looked at once a second', behind => 257);
    asks(1000, 0, '1000\|\d+\|a standby', 'by more it may not');
    asks(1000, 0, '0', 'without a limit it may', max_lag => -1);
    asks(0, 0, '1000\|\d+\|a slot', 'a slot that would be lost is looked at before each piece', slot_at_risk => 1);
    asks(1000, 0, '0\|\d+\|$', 'until it has advanced', slot_at_risk => 0);
    begin('true');
    asks(0, 0, '0\|16384\|$', 'with a synchronous standby it begins with a small piece');
    asks(5, 64 * KB, '1\|\d+\|$', 'which must be confirmed, for a moment without a word', unconfirmed => 1);
    made_up(written => 2e10, unconfirmed => 1e10);
    asks(5, 64 * KB, '0\|32768\|$', 'and then it goes on, whatever others have written since');
    asks(400, 192 * KB, '40\|\d+\|$', 'a slow standby is asked less often');
    asks(0, 192 * KB, '0\|8192\|$', 'and makes pieces small', unconfirmed => 0);
    made_up(written => 2e10 + 8192, unconfirmed => 8192);
    asks(1000, 200 * KB, '100\|\d+\|unconfirmed', 'one that does not confirm is named after a second');
    asks(0, 200 * KB, '0\|\d+\|$', 'it goes on as soon as that has, and says nothing', unconfirmed => 0);
    asks(1, 208 * KB, '0', 'without synchronous standbys nothing is waited for', synchronous => 0, unconfirmed => 1e6);
    for my $case ([ 1, 15, 'near' ], [ 50, 4, 'far away' ])
    {
        my ($ms, $least_mb_per_s, $where) = @$case;

        begin('true');
        my ($largest, $copied) = split /\|/, $db->sql("SELECT pace_confirmed($ms, 20)");
        ok($largest >= 350 * KB && $largest <= 450 * KB, "a standby that is $where gets pieces of 20 ms") or diag $largest;
        cmp_ok($copied, '>=', 30 * $least_mb_per_s * MB, 'so that the move ends');
    }

    ### I/O pressure
    begin();
    asks(0, 0, '0', 'pressure is not looked at by default', pressure => 1);
    asks(1000, 0, '0', 'pressure up to the limit', pressure => 0.6, max_pressure => 0.6);
    asks(1000, 0, '1000\|\d+\|I/O pressure of the last 10 s was 0.61, more than', 'and above', pressure => 0.61);
    made_up(pressure => -1);
    $db->sql('SET client_min_messages = warning');
    asks(1000, 0, '.*has no effect.*\n(.*\n)*0\|', 'where it is not known, it holds nothing back, which is said');
    $db->sql('SET client_min_messages = error');

    ### Room
    my $no_room = '.*ERROR:  53100: not enough free space in tablespace "pg_default": 1065 MB are free, 1066 MB are needed';
    my $held = '1000\|\d+\|only 1590 MB are free on the disk of pg_wal: an archiver';
    begin();
    asks(0, 0, '0', 'room for what is left, for 5 % more and for a segment of the WAL', room => 1066, wal_room => 1066);
    asks(0, 64 * MB - 1, '0', 'it is looked at once a second', room => 1065.9);
    asks(0, 64 * MB, $no_room, 'or when 64 MB were copied: there must not be less');
    asks(1000, 64 * MB, '0', 'for less that is left there may be less', left => 998);
    made_up(room => 1066, wal_room => 1065.9);
    asks(1000, 65 * MB, '.*ERROR:  53100: not enough free space for the WAL: 1065 MB are free, 1066 MB are needed',
        'nor for the WAL');
    asks(1000, 65 * MB, '0', 'of which the server keeps max_wal_size', wal_most => 500, wal_room => 541);
    asks(1000, 65 * MB, '.*ERROR:  53100: not enough free space for the WAL: 540 MB', 'but that must fit', wal_room => 540.9);
    asks(1000, 65 * MB, '0', 'on one disk there must be room for both', one_disk => 1, room => 1591);
    asks(1000, 65 * MB, '.*ERROR:  53100: not enough free space in tablespace', 'and not less', room => 1590.9);
    asks(1000, 65 * MB, $held, 'unless something holds WAL back', held_back => 1);
    made_up(held_back => 2);
    asks($_->[0], 65 * MB, "$held \\[$_->[1] checkpoints\\]", "then a checkpoint is asked for, and another one after 10 s: $_->[1]")
      for [ 1000, 1 ], [ 1000, 1 ], [ 10000, 2 ];
    asks(1000, 65 * MB, '0', 'with room again it goes on', room => 1591);
    asks(1000, 65 * MB, "$held \\[3 checkpoints\\]", 'and waits again, for a checkpoint at once', room => 1590.9);
    asks(1000, 65 * MB, $no_room, 'which does not help where the relation itself has no room', room => 1065.9);
    asks(1000, 65 * MB, '0', 'what is not known holds nothing back', room => -1, wal_room => -1);
    return;
}

SKIP:
{
    my $library = compiled('pace_steps') // skip 'pace_steps cannot be compiled here', 1;
    $db->sql("CREATE FUNCTION $_ AS '$library' LANGUAGE C") for 'pace_set(text, text) RETURNS bool',
        'pace_begin(bool) RETURNS void',
      'pace_ask(float8, bigint, bigint) RETURNS text', 'pace_copied(int, int, int) RETURNS bigint',
          'pace_confirmed(int, int) RETURNS text';
    checks();
}

### The hours of a server

$db->sql('CREATE TABLE t (id int PRIMARY KEY)');
# an hour that begins in some hours
my ($from, $to) = map { $db->sql("SELECT to_char(clock_timestamp() + interval '$_ h', 'HH24:MI')") } 3, 4;
my $zone = $db->sql('SHOW timezone');
$db->set('log_timezone', $zone);
$db->set('pgscale.relocation_hours', "$from-$to");
my ($job) = ask(q{relocate_indexes('t_pkey', 'fast', mode => 'rebuild')});
job_ok($job, q{state, sqlstate, attempts, message}, "waiting|55006|0|pgscale.relocation_hours begin at $from ($zone)",
    'a job waits for its hours');
$db->set('pgscale.relocation_hours', '');
done_ok('within its hours', $job);

stop_ok();
done_testing();
