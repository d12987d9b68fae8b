# PgscaleTuning.pm: what the tests of changes of settings share: a server and a session, the file that ALTER SYSTEM writes, changes
# and the journal of them.
package PgscaleTuning;

use strict;
use warnings;
use Exporter 'import';
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw($node $db tuning_node file write_file line change journal last_change refused_ok);

# The server that the functions below are about, and the session that asks it.
our ($node, $db);

sub tuning_node
{
    my $conf = shift // '';

    $node = pgscale_node('main', init => [ allows_streaming => 1 ], conf => "synchronous_commit = off\ncheckpoint_timeout = 1h\n$conf\n");
    $db = session($node);
    return;
}

sub file { return slurp_file($node->data_dir . '/postgresql.auto.conf'); }

sub write_file
{
    my $path = $node->data_dir . '/postgresql.auto.conf';

    unlink $path or die $!;
    return append_to_file($path, shift);
}

# The value of a setting's line, as the server itself reads it; undef if there is none.
sub line
{
    my $setting = shift;
    my $lines = $db->sql("SELECT setting || '<' FROM pg_file_settings WHERE name = '$setting' AND sourcefile LIKE '%auto.conf'
        ORDER BY seqno DESC LIMIT 1");

    return $lines =~ /\A(.*)<\z/s ? $1 : undef;
}

# CALL, and the change that it was
sub change
{
    my ($session, $call) = @_;
    my ($id) = $session->sql("SET client_min_messages = warning; CALL pgscale.$call; ") =~ /(\d+)\s*\z/;

    return $id;
}

sub journal
{
    my ($columns, $change) = @_;

    return $db->sql("SELECT $columns FROM pgscale.tuning_journal WHERE change = $change");
}

sub last_change { return $db->sql('SELECT max(change) FROM pgscale.tuning_journal'); }

# How it is refused: nothing is changed in the file, and the lock is let go.
sub refused_ok
{
    my ($session, $call, $state, $text, $name) = @_;
    my $before = file();
    local $Test::Builder::Level = $Test::Builder::Level + 1;
    my ($got, $answer) = $session->try("CALL pgscale.$call");

    is($got, $state, $name);
    like($answer, $text, "$name: in these words");
    like($answer, qr/^HINT: /m, "$name: with a hint");
    is(file(), $before, "$name: the file is as it was");
    is($db->sql(q{SELECT count(*) FROM pg_locks WHERE locktype = 'object' AND classid = 6243}), 0, "$name: no lock is left");
    return;
}

1;
