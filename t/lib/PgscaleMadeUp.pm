# PgscaleMadeUp.pm: what the tests of rules, verdicts and measurements share: a server of which evidence is made up, and the
# functions of t/lib/made_up.c.
package PgscaleMadeUp;

use strict;
use warnings;
use Exporter 'import';
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

our @EXPORT = qw(forge made_up made_up_functions evidence_is settings_are of_mix);

my ($library, $db, $size);

# Is there a compiler? If not, all tests are skipped.
sub made_up
{
    $library = compiled('made_up') or plan skip_all => 'no compiler, or no headers of the server';
    return;
}

# Files of the kernel's, as a server sees them that preloads t/lib/forged_files.c with this folder: their paths and texts
sub forge
{
    my ($folder, %text) = @_;

    for my $path (sort keys %text)
    {
        system('mkdir', '-p', "$folder$path" =~ s{/[^/]*$}{}r) == 0 or die $!;
        open my $file, '>', "$folder$path" or die $!;
        print $file "$text{$path}\n";
        close $file;
    }
    return;
}

# The functions, in this session's database. Where the server has pgscale.debug_period = 1h, nothing else writes evidence or
# measurements; this session has the usual period.
sub made_up_functions
{
    ($db) = @_;
    $size = $db->sql(q{SELECT size FROM pg_shmem_allocations WHERE name = 'pgscale evidence'});
    $db->sql(<<"EOQ");
CREATE FUNCTION made_up_evidence(bigint, text[], timestamptz[]) RETURNS void LANGUAGE C STRICT AS '$library';
CREATE FUNCTION made_up_setting(text, text) RETURNS void LANGUAGE C STRICT AS '$library';
CREATE FUNCTION made_up_observation(text, timestamptz, bigint, float8, boolean, oid[], bigint[]) RETURNS void LANGUAGE C STRICT AS '$library';
CREATE FUNCTION made_up_transactions(oid, bigint, bigint) RETURNS void LANGUAGE C STRICT AS '$library';
SELECT made_up_setting('pgscale.debug_period', '0');
EOQ
    return;
}

# A record as made_up_evidence() takes it. In capitals: seconds of sessions' time in a kind of wait; s: the record's seconds;
# sync_s: those in which the checkpointer synced; io_queue_s: seconds of sessions' waits for io workers that were all busy; else a
# count. What is missing of "sessions" seconds in all are waits for clients.
sub record_of
{
    my (%record) = @_;
    my $sessions = delete $record{sessions};

    if (defined $sessions)
    {
        $sessions -= $record{$_} for grep { /^[A-Z]/ } keys %record;
        die "more waits than sessions' time: $sessions" if $sessions < -1e-6;
        $record{CLIENT} = ($record{CLIENT} // 0) + $sessions if $sessions > 0;
    }
    return join ' ', map {
        /^[A-Z]/ ? "$_=" . $record{$_} * 1e9 : $_ eq 's' ? 'ns=' . $record{s} * 1e9 :
          /^(sync|io_queue)_s$/ ? "$1_ns=" . $record{$_} * 1e9 : "$_=$record{$_}"
    } sort keys %record;
}

# The statement after which the evidence is these records, the last of which ended now, or at some other time
sub evidence_is
{
    my ($records, $at) = @_;
    my $n = @$records;
    my $texts = join ', ', map { "'" . record_of(%$_) . "'" } @$records;

    $at //= 'clock_timestamp()';
    return "PERFORM made_up_evidence($size, ARRAY[$texts]::text[], ARRAY(SELECT $at - make_interval(secs => 0.00001 * ($n - i)) FROM generate_series(1, $n) i));";
}

sub settings_are
{
    my (%settings) = @_;

    return join '', map { "PERFORM made_up_setting('$_', '$settings{$_}');" } sort keys %settings;
}

# A hundred seconds of ten sessions, which wait for everything, for each a time of its own: 0.235 of it for WAL, 0.26 for data
my %mix = (s => 100, sessions => 1000, CPU => 300, WAL_SYNC => 90, WAL_WRITE => 40, WAL_WRITE_LOCK => 70, WAL_INSERT => 20,
    WAL_BUFFERS => 10, WAL_INIT => 5, DATA_READ => 110, DATA_WRITE => 80, DATA_EXTEND => 30, DATA_SYNC => 15, BUFFER_IO => 25,
    TEMP_FILE => 45, SLRU_IO => 55, BUFFER_MAPPING => 35);

sub of_mix { return (%mix, @_) }
1;
