# A report in a real browser: what it makes of a page with hostile texts, and that nothing runs and nothing is loaded. Needs Chromium
# (Debian: chromium); t/report_page.pl checks the page without one.
use strict;
use warnings;
use IPC::Run ();
use PgscaleTest;
use PostgreSQL::Test::Utils;
use Test::More;

my ($browser) = grep { -x } map { my $name = $_; map { "$_/$name" } split /:/, $ENV{PATH} } qw(chromium chromium-browser google-chrome);
plan skip_all => 'NOT TESTED: there is no Chromium on this machine (Debian: apt-get install chromium)' unless $browser;

my $node = pgscale_node('main');
my $folder = PostgreSQL::Test::Utils::tempdir();
my $db = session($node);
my $markup = q{</code></td></table></section></style></title><script>document.title = "run"</script><img src="x" onerror="alert(1)"><h1>};
$db->sql("SET application_name = '<b>x</b>'");
$db->sql('CREATE TABLE held (id int); INSERT INTO held VALUES (1)');
my $culprit = session($node);
$culprit->sql(q{SET application_name = 'nightly_report_of_all_shops'});
$culprit->sql('BEGIN; UPDATE held SET id = 2');
my $victim = session($node);
$victim->sql(q{SET application_name = '<script>document.title = "run"</script>'});
$db->sees_waiting($victim, "UPDATE held SET id = length('$markup')");
$db->poll_ok(q{SELECT count(*) > 0 FROM pgscale.top_waits(now() - interval '1 min', now(), 'event', 10) WHERE event = 'transactionid'}, 'waits are in the history');

sub browse
{
    my ($page, @arguments) = @_;
    my ($out, $err) = ('', '');
    my @command = ($browser, qw(--headless --no-sandbox --disable-gpu --disable-dev-shm-usage --hide-scrollbars --no-first-run),
        "--user-data-dir=$folder/profile", @arguments, "file://$page");

    local $ENV{HOME} = $folder;
    my $done = eval { IPC::Run::run(\@command, '<', \undef, '>', \$out, '2>', \$err, IPC::Run::timeout(6 * $PostgreSQL::Test::Utils::timeout_default)) };
    ok($done, "the browser runs: @arguments") or diag($err, $@);
    return $out;
}

my $page = $db->sql("SELECT pgscale.report(now() - interval '1 min', NULL, 'html')");
append_to_file("$folder/report.html", $page);
my $dom = browse("$folder/report.html", '--dump-dom', '--window-size=390,2000');

like($dom, qr{<title>pgscale report[^<]*main@}, 'the title is as written');
unlike($dom, qr/<script|<img|<[^>]*onerror="/, 'no element of others');
is(join(' ', $dom =~ /<section id="(\w+)"/g), join(' ', $page =~ /<section id="(\w+)"/g), 'all sections');
is(scalar(() = $dom =~ /<$_\b/g), scalar(() = $page =~ /<$_\b/g), "as many $_ as were written") for qw(section table tr td details pre svg path rect span p h1 h2);
like($dom, qr{&lt;script&gt;.*</section>\s*</main>\s*</body>}s, 'text stays text, up to the end');

# No column lies over another one, and no table is wider than the page: measured by a script, which a page of its own policy would not run
my $measured = $db->sql("SELECT pgscale.report(now() - interval '1 min', NULL, 'html')") =~ s/<meta http-equiv="Content-Security-Policy"[^>]*>//r;
$measured =~ s{</body>}{<script>
var wrong = [...document.querySelectorAll('td, th')].filter(c => c.scrollWidth > c.clientWidth + 1 || c.getBoundingClientRect().right > document.documentElement.clientWidth + 1);
document.title = 'measured ' + document.querySelectorAll('#blockers td').length + ', wrong: ' + wrong.map(c => c.textContent).join('; ');</script></body>};
append_to_file("$folder/measured.html", $measured);
like(browse("$folder/measured.html", '--dump-dom', "--window-size=$_,2000"), qr{<title>measured [1-9]\d*, wrong: </title>}, "the cells of a page of $_ pixels are apart") for 1080, 1400;

$_->quit for $culprit, $victim;
$node->stop('fast');
done_testing();
