# What holds a live move back: the rate, the hours, standbys, I/O pressure and room, with a clock and disks that are made up: see
# t/lib/pace_steps.c. And the hours of a server, which hold back what is queued.
use strict;
use warnings;
use PgscaleRelocation;
use PgscaleTest;
use Test::More;

relocation_node();
# it warns where the pressure is unknown
$db->sql('SET client_min_messages = error');
$db->steps_ok('pace_steps');

$db->sql('CREATE TABLE t (id int PRIMARY KEY)');
# an hour that begins in some hours
my ($from, $to) = map { $db->sql("SELECT to_char(clock_timestamp() + interval '$_ h', 'HH24:MI')") } 3, 4;
$db->set('log_timezone', $db->sql('SHOW timezone'));
$db->set('pgscale.relocation_hours', "$from-$to");
my ($job) = ask(q{relocate_index('t_pkey', 'fast', mode => 'rebuild')});
job_ok($job, q{state, sqlstate, attempts, message}, "waiting|55006|0|pgscale.relocation_hours begin at $from (" . $db->sql('SHOW timezone') . ')',
    'a job waits for its hours');
$db->set('pgscale.relocation_hours', '');
done_ok('and then is done', $job);

$db->quit;
$node->stop;
done_testing();
