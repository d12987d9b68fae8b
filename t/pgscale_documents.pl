# Each statement of README.md and doc/, as psql runs it on a server with pgscale: none may fail. Where the answer is shown, its
# columns must be those that come; where that is stable, all of it. CONTRIBUTING.md, "Documents", says what the comments before a
# fence mean. (t/pgscale_reference.pl compares settings, views and functions with doc/reference.md.)
# Runs on each major.
use strict;
use warnings;
use Encode qw(decode);
use PgscaleTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# What is not run needs minutes of load, and has a test of its own.
my $MOST_NOT_RUN = 2;

# The pages that are open at night: their statements and answers fit a terminal, and they are run while a session blocks another
# one.
my $WIDTH = 120;
my @AT_NIGHT = ('README.md', map { "doc/$_.md" } qw(now locks waits report tuning relocation memory sweeper));

my @preload = ('pgscale', grep { have_module($_) } 'pg_stat_statements');
my $node = pgscale_node('main', preload => join(', ', @preload), create => 0, conf => <<'EOC');
max_worker_processes = 24
compute_query_id = on
track_io_timing = on
EOC
my $db = session($node);
for my $folder (map { $node->basedir . "/$_" } qw(ssd hdd))
{
    mkdir $folder or die $!;
    $db->sql('CREATE TABLESPACE ' . $folder =~ s{.*/}{}r . " LOCATION '$folder'");
}
$db->sql($_) for split /;\n/, <<'EOS';
CREATE ROLE monitoring LOGIN IN ROLE pg_monitor;
CREATE ROLE signalling LOGIN IN ROLE pg_monitor, pg_signal_backend;
CREATE ROLE shop LOGIN;
CREATE TABLE orders (id int PRIMARY KEY, customer int);
CREATE INDEX orders_customer ON orders (customer);
INSERT INTO orders SELECT i, i FROM generate_series(1, 1000) i;
CREATE TABLE stock (product int PRIMARY KEY, amount int);
INSERT INTO stock VALUES (1, 1000);
GRANT ALL ON stock TO shop;
CREATE TABLE events AS SELECT i FROM generate_series(1, 1000) i;
CREATE TABLE pgbench_accounts AS SELECT i AS aid FROM generate_series(1, 1000) i;
ALTER TABLE pgbench_accounts ADD PRIMARY KEY (aid);
EOS
$db->sql('CREATE EXTENSION pg_stat_statements') if @preload > 1;

# fences TEXT: what is between fences of sql, with the comments before them and the text fence that follows at once
sub fences
{
    my $text = shift;
    my ($comment, $blank) = (qr/^\h*(?:<!--(?:(?!-->).)*-->)+\n/ms, qr/^\h*\n/m);
    my @found;

    while ($text =~ /((?:$comment)*)^(\h*)```sql\n(.*?)^\h*```\n(?:$blank*^\h*```text\n(.*?)^\h*```\n)?/gmsc)
    {
        my %fence = (comments => $1, sql => $3, shown => $4, line => 1 + (substr($text, 0, $-[3]) =~ tr/\n//));

        $fence{sql} =~ s/^$2//gm;
        while ($fence{comments} =~ /<!-- ([^:]+?): (.*?) -->/gs) { push @{ $fence{$1} }, $2 }
        push @found, \%fence;
    }
    return @found;
}

# The statements in the second column of this page's tables are run, too.
my $RUNBOOK = 'doc/now.md';

# rows TEXT: the statements in the second column of a page's tables, as fences for the same role
sub rows
{
    my $text = shift;
    my @found;

    while ($text =~ /^\| [^|]+ \| `([^`|]+)`(?: \| [^|]+){1,2} \|$/gm)
    {
        push @found, { sql => "$1\n", as => ['monitoring'], scene => ['blocked'], line => 1 + (substr($text, 0, $-[0]) =~ tr/\n//) };
    }
    return @found;
}

# A session that is idle in a transaction blocks a second one. A statement of a page may end either, and then both begin anew.
my @scene;

sub scene_sessions { return $db->sql("SELECT count(*) FROM pg_stat_activity WHERE usename = 'shop'"); }

sub scene_ends
{
    $db->sql("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE usename = 'shop'") if @scene;
    until_true(sub { scene_sessions() eq '0' }) or die 'the scene does not end';
    @scene = ();
    return;
}

sub scene
{
    return if @scene && scene_sessions() eq @scene;
    scene_ends();
    @scene = map { session($node, user => 'shop') } 1 .. 2;
    $scene[0]->sql($_) for "SET application_name = 'nightly_report'", 'BEGIN', 'UPDATE stock SET amount = amount - 10';
    $scene[1]->sql("SET application_name = 'shop'");
    $db->sees_waiting($scene[1], 'UPDATE stock SET amount = amount - 1 /* ' . 'a comment ' x 50 . '*/');
    return;
}

# psql USER, SQL: its status and what it wrote
sub psql
{
    my ($user, $sql) = @_;
    my $file = $node->basedir . '/fence.sql';
    my $said = '';

    unlink $file;
    append_to_file($file, $sql);
    my $done = IPC::Run::run([ 'psql', '-Xq', '-v', 'ON_ERROR_STOP=1', '-v', 'VERBOSITY=verbose', '-d', $node->connstr('postgres')
          . ($user ? " user=$user" : ''), '-f', $file ], '>&', \$said);
    return ($done, $said);
}

# Numbers with a decimal point and more digits than anything is measured with. Times of day and versions are not such numbers.
my $version = $db->sql('SHOW server_version');
sub exact
{
    my $text = shift =~ s/\Q$version\E//gr;

    return grep { tr/0-9//cdr =~ s/^0+//r =~ tr/0-9// > 3 } map { s/0+$//r } $text =~ /(?<![\w.:\/])(\d+\.\d+)(?!\d*\.\d)/g;
}

# The names of the columns, of tables and of expanded ones.
sub columns
{
    my $text = shift;
    my (@names, %seen);
    my $before = '';

    for (split /\n/, $text)
    {
        push @names, map { s/^\s+|\s+$//gr } split /\|/, $before if /^-[-+]*$/;
        push @names, $1 if /^(\w+) *\|(?: |$)/ && $text !~ /^-[-+]*$/m;
        $before = $_;
    }
    return join ' ', grep { !$seen{$_}++ } @names;
}

# Without what differs between terminals and between zero and more rows.
sub plain
{
    return join "\n", grep { $_ ne '' && !/^\(\d+ rows?\)$/ } map { s/\s+$//r } split /\n/, shift;
}

# Jobs that a page has left would be in the way of the next one.
sub settle
{
    $db->sql('SET client_min_messages = error; CREATE EXTENSION IF NOT EXISTS pgscale');
    until_true(sub { $db->sql('SELECT count(*) FROM pgscale.relocation_jobs WHERE finished_at IS NULL') eq '0' })
      or BAIL_OUT('relocation jobs do not end');
    return;
}

my ($run, $not_run) = (0, 0);

sub run_fence
{
    my ($page, $fence) = @_;
    my $name = "$page, line $fence->{line}";
    my ($user) = @{ $fence->{as} // [] };
    my $sql = $fence->{sql};
    local $Test::Builder::Level = $Test::Builder::Level + 1;

    if ($fence->{norun})
    {
        $not_run++;
        return;
    }
    for (@{ $fence->{needs} // [] })
    {
        return if !have_module($_);
        $db->sql("CREATE EXTENSION IF NOT EXISTS $_");
    }
    $db->sql($_) for @{ $fence->{setup} // [] };
    for (@{ $fence->{test} // [] })
    {
        my ($from, $to) = split / => /;
        ok($sql =~ s/\Q$from\E/$to/, "$name: there is a $from to replace");
    }
    my ($done, $said) = psql($user, $sql);
    $run++;
    my ($may) = @{ $fence->{'may fail'} // [] };
    return pass("$name: $may") if !$done && $may && $said =~ /ERROR:  $may:/;
    ok($done, $name) or return diag "$sql$said";
    if (grep { $_ eq $page } @AT_NIGHT)
    {
        my @wide = grep { length > $WIDTH } map { s/^psql:\S+:\d+: //r } split /\n/, decode('UTF-8', $said);
        is("@wide", '', "$name: the answer fits the terminal");
        # columns of a report have two decimals, so that they stand below each other
        is(join(' ', exact($said)), '', "$name: the answer has no more than three digits that mean something") or diag $said unless $sql =~ /\breport\(/;
    }
    return unless defined $fence->{shown};
    return is(plain($said), plain($fence->{shown}), "$name: the answer") if $fence->{output};
    $said = (psql($user, $sql =~ s/\\gx(?: \([^)]*\))?/\\gdesc/r))[1] =~ s/^ (\w+) *\| .*$/$1 | /gmr =~ s/^.*\|.*\n-.*\n//r
      if columns($said) eq '' && $sql =~ /\\gx/;
    return is(columns($said), columns($fence->{shown}), "$name: its columns") || diag $said;
}

$db->sql('CREATE EXTENSION pgscale');
$db->poll_ok(q{SELECT bool_and(state <> 'starting') FROM pgscale.health}, 'all has started');

### What the pages list

my %page = map { $_ => slurp_file($_) } 'README.md', glob 'doc/*.md doc/*/*.md';
# the lists of the one cleaner of texts
my ($secrets) = $page{'doc/safety.md'} =~ /^### Secrets in texts\n(.*?)^#/ms;
my @signs = map { /"([^"]+)"/g } slurp_file('src/base/secrets.c') =~ /^static const (?:SecretWord|char \*const) (?:secret|harmless)_\w+\[\] = \{(.*?)\};/gms;
cmp_ok(scalar(@signs), '>', 25, 'the signs of a secret are found');
is(join(' ', grep { $secrets !~ /`$_`/ } @signs), '', 'doc/safety.md lists the signs of a secret');

### Statements

for my $page (sort keys %page)
{
    settle();
    for my $fence (fences($page{$page}), $page eq $RUNBOOK ? rows($page{$page}) : ())
    {
        $fence->{scene} ? scene() : scene_ends();
        run_fence($page, $fence);
    }
}
scene_ends();
cmp_ok(scalar(rows($page{$RUNBOOK})), '>', 40, 'the rows of the runbook are found');
my @wide = grep { length > $WIDTH } map { split /\n/, $_->{sql} } map { fences($page{$_}) } grep { exists $page{$_} } @AT_NIGHT;
is("@wide", '', 'statements of the pages that are open at night fit the terminal');
cmp_ok($run, '>', 60, 'statements were run');
cmp_ok($not_run, '<=', $MOST_NOT_RUN, 'and hardly any was not');
is(scalar(map { /^\h*```sql$/gm } values %page) + rows($page{$RUNBOOK}), $run + $not_run + grep({ my $f = $_; grep { !have_module($_) } @{ $f->{needs} // [] } }
        map { fences($_) } values %page), 'none was overlooked');

$node->stop;
done_testing();
