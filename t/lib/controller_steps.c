/*
 * What the sweeper decides, and what it decides by: what is seen, and what follows. controller_steps() returns a line for each
 * check.
 */
#include "steps.h"

#include "utils/wait_event.h"

#include "base/pg_compat.h"
#include "base/units.h"

PG_FUNCTION_INFO_V1(controller_steps);

#include "sweeper/controller.c"
#include "sweeper/forecast.c"

static PgscaleSweeperDecision decision;
static PgscaleSweeperEvidence seen;
static PgscaleSweeperForecast forecast;

static void
begin(PgscaleSweeperState state, PgscaleSweeperReason reason, double since, double rest)
{
	decision = (PgscaleSweeperDecision) {
		.state = state,.reason = reason,.since_ns = since * 1e9,.rest_ns = rest * 1e9,.again = true
	};
}

static void
see_demand(int supplied, int consumed, int starved)
{
	seen.supplied = supplied;
	seen.consumed = consumed;
	seen.starved = starved;
}

static void
see_writes(int pages, int runs, int us)
{
	seen.written = pages;
	seen.runs = runs;
	seen.write_ns = us * NS_PER_US;
}

/* Another choice of pages would save that fraction of the reads. */
static void
see_choice(bool forecast_known, double saved)
{
	seen.forecast = forecast_known;
	seen.saved = saved;
}

/* What that many transactions cost: sessions that run, and its standard error. */
static void
see_cost(int transactions, double running, double error)
{
	seen.transactions = transactions;
	seen.running = running;
	seen.running_error = error;
}

static void
decide(double s)
{
	const bool	used = pgscale_sweeper_decide(&decision, &seen, s * 1e9);

	say("%s%s since %g rest %g: %s", used ? "" : "kept, ", decision.state == PGSCALE_SWEEPER_WORKING ? "work" : "watch",
		decision.since_ns / 1e9, decision.rest_ns / 1e9, pgscale_sweeper_reason(decision.reason, decision.number));
}

/* How many writers after so many seconds, and are slots missing? */
static void
decide_writers(const double *n)
{
	PgscaleSweeperWriterCount count = {.writers = n[0]};

	for (int s = 0; s < n[5]; s++)
		pgscale_sweeper_decide_writers(&count, n[1], n[2], n[3], n[4]);
	say("%d%s", count.writers, count.few_slots ? " few" : "");
}

/* What is forecast by misses of the clock and of the best half-life, with one page of ten in the sample of 100 buffers. */
static void
look_ahead(int start, int clock, int best, int seen_pages, int missed)
{
	const PgscaleSweeperPolicyReport report = {.sample = 10,.misses = {clock, 2 * clock, best, 3 * clock, 2 * clock}};
	const PgscaleSweeperCoverage coverage = {.seen = seen_pages,.missed = missed};

	pgscale_sweeper_forecast_go_on(&forecast, &report, start, 100, &coverage);
}

static void
say_forecast(void)
{
	double		saved;

	say(pgscale_sweeper_forecast_saved(&forecast, &saved) ? psprintf("%.3f", saved) : "unknown");
}

/* Reads that were saved: groups have 100 misses of the choice each, and of the clock in turn "some" more and fewer than 150. */
static void
say_saved(int groups, int some)
{
	/* more pages left than came, as after DROP TABLE */
	PgscaleSweeperPolicyReport report = {.arrivals = 32000,.evictions = 50000,.groups = groups};
	PgscaleSweeperSaved saved = {0};

	for (int g = 0; g < groups; g++)
	{
		report.misses[0] += report.clock_group[g] = 150 + (g % 2 ? some : -some);
		report.chosen_misses += report.chosen_group[g] = 100;
	}
	if (!pgscale_sweeper_reads_saved(&report, &saved))
		say("unknown");
	else if (saved.sure)
		say("%.0f, %.0f to %.0f", saved.reads, saved.low, saved.high);
	else
		say("%.0f", saved.reads);
}

static bool
command(const char *name, const double *n)
{
	COMMAND("watch", begin(PGSCALE_SWEEPER_WATCHING, PGSCALE_SWEEPER_REASON_NO_WAITS, n[0], n[1]));
	COMMAND("work", begin(PGSCALE_SWEEPER_WORKING, PGSCALE_SWEEPER_REASON_NO_WAITS, n[0], n[1]));
	COMMAND("for_reads", begin(PGSCALE_SWEEPER_WORKING, PGSCALE_SWEEPER_REASON_READS, n[0], n[1]));
	COMMAND("for_writes", begin(PGSCALE_SWEEPER_WORKING, PGSCALE_SWEEPER_REASON_WAITS, n[0], n[1]));
	COMMAND("seconds", seen.ns = n[0] * 1e9);
	COMMAND("waiting", seen.waiting = n[0]);
	COMMAND("demand", see_demand(n[0], n[1], n[2]));
	COMMAND("writes", see_writes(n[0], n[1], n[2]));
	COMMAND("reading", seen.reading = n[0]);
	COMMAND("allocations", seen.allocations = n[0]);
	COMMAND("saves", see_choice(true, n[0]));
	COMMAND("untold", see_choice(false, 0));
	COMMAND("most", seen.most = n[0]);
	COMMAND("always", seen.always = n[0] != 0);
	COMMAND("cost", see_cost(n[0], n[1], n[2]));
	COMMAND("before", decision.before = ((PgscaleSweeperCost) {.ms = n[0],.per_s = n[1],.error = n[2]}));
	COMMAND("what_was", say("%g of %g, %.4f", decision.before.ms, decision.before.per_s, decision.before.error));
	COMMAND("not_again", decision.again = false);
	COMMAND("at", decide(n[0]));
	COMMAND("writers", decide_writers(n));
	COMMAND("foretell", look_ahead(n[0], n[1], n[2], n[3], n[4]));
	COMMAND("forecast", say_forecast());
	COMMAND("saved", say_saved(n[0], n[1]));
	return false;
}

#define NO_WAITS	": no session waits to write a page"

/*
 * Whether to work, for writes. "watch" and "work" are the state, since when, and its rest; "demand" is supplied and consumed
 * buffers and ticks that found none; "writes" are pages, runs and us.
 */
static const Step for_writes[] = {
	{"watch 0 0, seconds 4.9, waiting 5, at 100", "kept, watch since 0 rest 0" NO_WAITS, "five seconds are needed"},
	{"seconds 5, waiting 0.19, at 100", "watch since 0 rest 0" NO_WAITS, "fewer than 0.2 sessions"},
	{"waiting .2, at 100, at 105", "watch since 0 rest 0" NO_WAITS "; work since 105 rest 0: 0.2 sessions were waiting to write a page",
	"0.2 sessions, twice"},
	{"watch 90 20, waiting 3.3, at 109.9", "watch since 90 rest 20" NO_WAITS, "at rest"},
	{"at 110", "work since 110 rest 20: 3.3 sessions were waiting to write a page", "after it"},

	{"work 50 40, waiting 0, seconds 9.9, at 100", "kept, work since 50 rest 40" NO_WAITS, "ten seconds are needed"},
	{"waiting 9, demand 9 0 9, seconds 11, at 100", "watch since 100 rest 0: no buffer was needed for 11 s", "no demand"},
	{"work 50 40, waiting 0, demand 0 1 0, seconds 10, at 100", "work since 50 rest 40" NO_WAITS, "demand without writes"},
	{"work 50 0, demand 1000 900 0, writes 49 9 0, at 100",
	"watch since 100 rest 20: only 4.9 % of the pages that leave are dirty", "clean"},
	{"work 50 0, demand 1000 0 0, writes 50 9 0, at 100", "work since 50 rest 0" NO_WAITS, "less clean"},
	{"work 50 20, demand 900 900 0, writes 500 99 24500, at 100",
	"watch since 100 rest 40: the disk delays no session: a write takes 49 us", "a quick disk"},
	{"work 50 20, writes 500 99 25000, at 100", "work since 50 rest 20" NO_WAITS, "a slower one"},
	{"work 50 20, writes 499 99 24451, at 100", "work since 50 rest 20" NO_WAITS, "few writes"},
	{"work 50 700, writes 240 200 0, at 100",
	"watch since 100 rest 1200: dirty pages have no dirty neighbours: 1.20 pages a run", "no neighbours"},
	{"work 50 700, writes 238 199 0, at 100", "work since 50 rest 700" NO_WAITS, "few runs"},
	{"work 50 700, writes 250 200 0, at 100", "work since 50 rest 700" NO_WAITS, "longer runs"},
	{"work 50 5, writes 240 99 0, waiting .2, at 100",
	"watch since 100 rest 20: 0.2 sessions write pages of their own, as COPY and VACUUM do", "rings"},
	{"work 50 5, waiting .19, at 100", "work since 50 rest 5" NO_WAITS, "fewer sessions"},
	{"work 50 5, waiting .2, demand 900 900 1, at 100", "work since 50 rest 5" NO_WAITS, "which found nothing ready"},
	{"work 50 40, waiting 0, demand 900 900 0, at 109.9", "work since 50 rest 40" NO_WAITS, "of use for less than a minute"},
	{"work 50 40, at 110", "work since 50 rest 0" NO_WAITS, "for a minute"},
};

#define WATCHES		"watch since 0 rest 20" NO_WAITS
#define SAVES(n)	"sessions wait for reads, and another choice of pages saves " n " % of them"
#define QUICK		"watch since 50 rest 40: reads no longer delay sessions"
#define TOO_FEW(n)	"watch since 50 rest 40: another choice of pages saves only " n " % of the reads"
#define CLEAN		"watch since 50 rest 40: only 1.0 % of the pages that leave are dirty"
#define WRITES		"work since 0 rest 20: 0.0 sessions were waiting to write a page"

/* For reads, after ten seconds in which so many sessions waited for one */
static const Step for_reads[] = {
	{"waiting 0, seconds 10, demand 1000 1000 0, writes 10 10 1e6, allocations 1000"},
	{"watch 0 20, reading .2, saves .05, at 50", "work since 50 rest 20: " SAVES("5"), "it begins"},
	{"watch 0 20, reading .19, at 50", WATCHES, "fewer sessions"},
	{"watch 0 20, reading .2, saves .049, at 50", WATCHES, "less is saved"},
	/* 0.2 sessions wait for 2 s in all: 50 us for each of 40,000 reads */
	{"watch 0 20, saves .05, allocations 40000, at 50", "work since 50 rest 20: " SAVES("5"), "50 us a read"},
	{"watch 0 20, allocations 40001, at 50", WATCHES, "less"},
	{"watch 0 20, allocations 1000, reading 9, untold, at 50", WATCHES, "it is not known what is saved"},

	/* it goes on for reads, whatever writes are: half of the waits, two per cent saved */
	{"for_reads 0 20, reading .1, saves .02, at 50", "work since 0 rest 20: " SAVES("0"), "it goes on"},
	{"for_reads 0 20, allocations 20000, at 50", "work since 0 rest 20: " SAVES("0"), "with 50 us a read"},
	{"for_reads 0 20, allocations 20001, at 50", QUICK, "not with less"},
	{"for_reads 0 20, allocations 1000, untold, at 50", "work since 0 rest 20: " SAVES("0"), "if it is not known"},
	{"for_reads 0 20, reading .09, saves .02, at 50", QUICK, "not with fewer sessions"},
	{"for_reads 0 20, reading 9, saves .019, at 50", TOO_FEW("1.9"), "or if less is saved"},
	{"for_reads 0 20, saves -.5, at 50", TOO_FEW("0.0"), "or more is read"},
	{"for_reads 0 20, reading .1, saves .02, writes 500 200 1e6, at 50", "work since 0 rest 20: " SAVES("0"), "writes gain, too"},
	{"for_reads 0 20, reading 0, saves .05, at 50",
	"work since 0 rest 20: dirty pages are written together: 2.5 pages a run", "then it may go on for them"},

	/* it goes on for writes, whatever reads are; where these gain nothing, for reads */
	{"for_writes 0 20, saves 0, at 50", WRITES, "writes gain"},
	{"for_writes 0 20, reading 9, saves .05, at 50", WRITES, "and reads do"},
	{"writes 10 10 1e6, for_writes 0 20, reading .1, at 50", "work since 0 rest 20: " SAVES("5"), "only reads do"},
	{"for_writes 0 20, reading .09, at 50", CLEAN, "of too few sessions"},
	{"for_writes 0 20, reading 9, saves .019, at 50", CLEAN, "too few reads"},
	{"for_writes 0 20, untold, at 50", CLEAN, "no reads"},
};

#define OUTPACED(s, r)	"watch since " s " rest " r ": sessions take 200001 buffers per second, more than it can offer"
#define ALWAYS(s)	"work since " s " rest 20: pgscale.sweeper is on, not auto"

/* Where buffers are taken too fast, and where it is to work always */
static const Step by_demand[] = {
	{"demand 900 900 0, writes 10 10 1e6, saves .05, seconds 2, allocations 400002, reading 9, watch 0 20, at 5", OUTPACED("0", "20"),
	"buffers are taken too fast, also at rest"},
	{"for_reads 0 100, at 50", OUTPACED("50", "20"), "to go on, which it sees soon"},
	{"seconds 5, reading 0, allocations 1000, at 55, seconds 2, reading 9, allocations 400002", "watch since 50 rest 20" NO_WAITS, "no longer"},
	{"for_reads 0 20, allocations 400000, at 50", "kept, work since 0 rest 20: " SAVES("0"), "not as fast"},
	{"for_reads 0 20, allocations 400001, most 200001, at 50", "kept, work since 0 rest 20: " SAVES("0"), "or its stock is larger"},
	{"most 0, always 1, seconds 5, allocations 1000, watch 31 20, at 50", "watch since 31 rest 20" NO_WAITS, "switched on, at rest"},
	{"watch 30 20, at 50", ALWAYS("50"), "after it"},
	{"seconds 10, demand 0 0 0, writes 0 0 0, work 0 20, at 50", ALWAYS("0"), "it works without demand"},
	{"seconds 2, allocations 400002, work 0 20, at 50, always 0", OUTPACED("50", "20"), "but not where buffers are taken too fast"},
};

#define LOST	"watch since 50 rest 100: transactions took 8 % longer than before it worked"

/* What transactions cost: 8 sessions run for 10 s, so that 10,000 cost 8 ms each. */
static const Step by_cost[] = {
	{"seconds 5, waiting .3, reading 0, allocations 1000, cost 5000 8 .08"},
	{"watch 0 20, at 50, what_was", "work since 50 rest 20: 0.3 sessions were waiting to write a page; 8 of 1000, 0.0173", "what was before"},
	{"seconds 10, demand 900 900 1, writes 500 200 1e6, waiting 0"},
	{"for_writes 0 20, before 8 1000 0, cost 9400 8 0, at 50, at 50", WRITES "; " WRITES, "a little more may be chance"},
	{"for_writes 0 20, before 8 1000 0, cost 9300 8 0, at 50", LOST, "they take longer"},
	{"for_writes 0 20, not_again, before 8 1000 0, at 50, at 50", WRITES "; " LOST, "twice in a row"},
	{"for_writes 0 20, not_again, before 8 1000 0, at 50, cost 10000 8 0, at 50, cost 9300 8 0, at 50", WRITES "; " WRITES "; " WRITES, "only"},
	{"for_writes 0 20, before 8 930 0, at 50", WRITES, "not while as many are done"},
	{"for_writes 0 20, before 8 1000 .01, at 50", WRITES, "what was before is not as sure"},
	{"for_writes 0 20, before 8 1000 0, cost 9300 8 .08, at 50", WRITES, "or what is now"},
	{"for_writes 0 20, before 0 0 0, cost 9300 8 0, at 50", WRITES, "it is not known what was before"},
	{"for_writes 0 20, before 8 1000 0, cost -1 8 0, at 50", WRITES, "or what is now"},
	{"for_writes 0 20, before 8 1000 0, cost 9300 8 0, at 60", "work since 0 rest 0: 0.0 sessions were waiting to write a page", "after a minute"},
	{"always 1, for_writes 0 20, before 8 1000 0, at 50, always 0", ALWAYS("0"), "or if it is to work always"},
};

/* "writers": how many, how pressed, how many run, the most, slots, and after how many seconds */
static const Step by_numbers[] = {
	{"writers 4 .1 16 16 99 1, writers 6 .1 16 16 99 1, writers 9 .1 16 16 99 1, writers 4 1 16 16 99 9", "6; 9; 13; 16", "more"},
	{"writers 4 .09 16 16 99 9, writers 4 1 3 16 99 9, writers 4 1 16 5 99 9, writers 4 1 16 16 1 1", "4; 4; 5; 5", "or not"},
	{"writers 16 1 16 16 -3 1, writers 16 1 16 16 -3 9, writers 16 0 16 16 -3 1, writers 16 1 16 16 -13 1", "13; 13; 13; 4",
	"slots are taken back"},
	{"writers 9 0 7 16 0 1, writers 9 1 7 16 -1 10, writers 9 1 7 16 1 1, writers 9 1 7 16 2 9", "7; 6 few; 8; 9", "slots are few"},
	{"writers 4 1 16 16 0 9, writers 4 1 16 16 -1 10, writers 16 1 16 16 0 10", "4; 4 few; 16", "for ten seconds"},
	{"writers 16 0 16 16 99 29, writers 16 0 16 16 99 30, writers 16 0 16 16 99 60, writers 4 0 16 16 99 60", "16; 15; 14; 4",
	"fewer"},

	/* the shadow cache must be filled twice, and twice more; then older misses count no more */
	{"foretell 1 19 0 0 0, forecast, foretell 1 20 20 0 0, forecast, foretell 1 39 30 0 0, forecast", "unknown; unknown; unknown",
	"at first nothing is forecast"},
	{"foretell 1 40 35 0 0, forecast, foretell 1 50 50 0 0, forecast, foretell 1 60 60 0 0, forecast", "0.250; 0.000; -0.250",
	"then by misses since"},
	{"foretell 1 80 90 0 0, forecast", "-0.500", "by the best half-life"},
	{"foretell 2 20 10 0 0, forecast, foretell 2 40 20 0 0, forecast", "unknown; 0.500", "another sweeper begins"},
	{"foretell 2 50 30 0 1, forecast, foretell 2 60 30 1 1, forecast", "unknown; 0.500", "more was missed than seen"},
	{"foretell 2 61 31 1 10, forecast, foretell 2 80 50 1 10, forecast, foretell 2 100 60 2 10, forecast",
	"unknown; unknown; 0.500",
	"for two to four turnovers after that"},

	/* the variance of the ratio is 16 / 15 * 16 * 10^2 / 1600^2 = 0.0258^2 */
	{"saved 16 0, saved 16 10", "16000, 16000 to 16000; 16000, 14239 to 17761", "reads saved, in groups that differ little"},
	{"saved 16 100", "16000, -1607 to 33607", "and much"},
	{"saved 10 10, saved 9 10", "16000; unknown", "too few groups, too few misses"},
};

Datum
controller_steps(PG_FUNCTION_ARGS)
{
	initStringInfo(&lines);
	initStringInfo(&said);
	check_steps(for_writes, lengthof(for_writes), command);
	check_steps(for_reads, lengthof(for_reads), command);
	check_steps(by_demand, lengthof(by_demand), command);
	check_steps(by_cost, lengthof(by_cost), command);
	check_steps(by_numbers, lengthof(by_numbers), command);
	is(pgscale_wait_is_data_read(WAIT_EVENT_DATA_FILE_READ), true, "a session reads");
	is(pgscale_wait_is_data_read(PGSCALE_WAIT_AIO_COMPLETION), PGSCALE_WAIT_AIO_COMPLETION != 0,
	   "or another process does, for which it waits");
	is(pgscale_wait_is_data_read(WAIT_EVENT_DATA_FILE_WRITE) || pgscale_wait_is_data_read(0), false,
	   "a write is no read, nor is work");
	PG_RETURN_TEXT_P(cstring_to_text(lines.data));
}
