/*
 * What the sweeper learns while it only watches, and what it decides by that, step by step: with the policy and the buffers that
 * t/lib/known_pages_steps.c makes up, a clock, and a hand that goes round as the server's does. reads_steps() returns a line for
 * each check.
 */
#include "known_pages_steps.c"

#include "base/pg_compat.h"
#include "sweeper/controller.c"
#include "sweeper/forecast.c"
#include "sweeper/observe.c"

PG_FUNCTION_INFO_V1(reads_steps);

static int64 the_time = INT64CONST(1000000000);
static bool written = false;

int64
pgscale_timer_clock(void)
{
	return the_time;
}

/* The hand goes on: it decrements counts, and reads another page into each buffer that has none and no pin. */
static void
hand_passes(int buffers)
{
	for (; buffers > 0; buffers--)
	{
		Frame	   *f = &frames[server_hand++ % BUFFERS];

		if (f->pinned)
			continue;
		if (f->usage > 0)
			f->usage--;
		else
		{
			f->page += 1000;
			f->usage = 1;
		}
	}
}

static void
says(const char *got, const char *want, const char *name)
{
	appendStringInfo(&heard, "%s; ", got);
	hears(want, name);
}

static void
use(int buf, int times)
{
	frames[buf].usage = Min(frames[buf].usage + times, PGSCALE_MAX_USAGE);
}

/* A tick, a millisecond later or at once.  Nothing may be written to the buffers. */
static bool
tick(int ms)
{
	Frame		before[BUFFERS];
	bool		hurries;

	the_time += ms * INT64CONST(1000000);
	memcpy(before, frames, sizeof(frames));
	hurries = pgscale_sweeper_observe(&the_share);
	written |= memcmp(before, frames, sizeof(frames)) != 0;
	return hurries;
}

/* The hand goes once round, so that a tick can follow. */
static void
lap(void)
{
	hand_passes(BUFFERS / 2);
	(void) tick(0);
	hand_passes(BUFFERS / 2);
	(void) tick(0);
}

/* A share of the four buffers from 100 on.  The hand is before it, and has not been observed for a long time. */
static void
begin_observing(void)
{
	begin(PGSCALE_SWEEPER_CLOCK);
	the_share.buffers = 4;
	the_share.observing = true;
	the_share.counts.observed = the_share.counts.unobserved = 0;
	memset(&the_share.sight, 0, sizeof(the_share.sight));
	server_hand += BUFFERS - server_hand % BUFFERS;
	frames[100].usage = 2;
	frames[102].usage = 5;
	frames[103].usage = 1;
	resetStringInfo(&heard);
	(void) tick(100000);
}

static void
check_observed(void)
{
	begin_observing();
	hears("", "a hand that stands shows nothing");
	hand_passes(164);
	(void) tick(0);
	hears("", "nor do the buffers that it may still be at");
	hand_passes(1);
	(void) tick(0);
	hears("0: 7100 arrived, 1", "one that it has passed");
	hand_passes(10);
	(void) tick(0);
	hears("1: 8101 arrived, 1; 2: 7102 arrived, 4; 3: 7103 arrived, 0; 3: visit",
		  "one after the other, in some of which are other pages now");

	use(100, 1);
	frames[101].pinned = true;
	use(102, 3);
	lap();
	hears("0: 7100 used 1; 0: visit; 2: 7102 used 1; 2: visit; 3: 7103 evicted; 3: 8103 arrived, 1",
		  "in the next lap, uses are the growth and one for the pass, except where a pin keeps the hand away");
	frames[101].pinned = false;
	frames[101].locked = true;
	lap();
	hears("0: visit; 1: 8101 evicted; 2: visit; 3: visit", "what is not used is visited, and a page that is being read has left");
	frames[101].locked = false;
	use(101, 2);
	use(100, 1);
	lap();
	hears("0: 7100 used 1; 0: visit; 1: 8101 arrived, 1; 2: visit; 3: 8103 evicted; 3: 9103 arrived, 1",
		  "one that comes with uses is visited in the lap after that");
	is(the_share.counts.observed, 16, "each visit is counted");
	is(written, false, "no header is written");
}

static void
check_windows(void)
{
	uint32		last;

	begin_observing();
	for (int i = 0; i < 12; i++)
		lap();
	is(the_share.counts.observed, 32, "a window ends after eight laps");
	resetStringInfo(&heard);
	last = the_pages[3].hash;
	hand_passes(BUFFERS);
	is(tick(0), false, "then it need not hurry");
	hears("", "and what the hand passes is not observed");
	is(the_share.counts.unobserved, 0, "which is counted later");
	(void) tick(1);
	is(the_share.counts.unobserved / 4, 4, "when another window begins, as visits are allowed again");

	/* The pages that were known last are there again, except one. */
	for (int buf = 100; buf < 104; buf++)
	{
		frames[buf].page = the_pages[buf - 100].hash;
		frames[buf].usage = 5;
	}
	frames[103].page = 1;
	resetStringInfo(&heard);
	lap();
	hears(psprintf("0: visit; 1: visit; 2: visit; 3: %u evicted; 3: 1 arrived, 4", last),
		  "in its first lap counts show no uses, because passes of the hand were not seen");
	use(103, 1);
	lap();
	hears("0: visit; 1: visit; 2: visit; 3: 1 used 1; 3: visit", "in the second lap they do");

	is(the_share.sight.seen, the_share.counts.observed, "what is observed is seen");
	is(the_share.sight.missed, 0, "and nothing is missed, because pauses are not part of a window");
	hand_passes(2 * BUFFERS + 200);
	(void) tick(0);
	hears("", "a hand that outruns the ticks ends the window");
	is(the_share.sight.missed > 0 && the_share.sight.missed < 2.5 * the_share.buffers, true, "and what it passed is missed");
	(void) tick(2000);
	is(the_share.counts.unobserved / 4, 4, "what passes where no tick comes is not missed");
}

static void
check_pace(void)
{
	begin_observing();
	hand_passes(BUFFERS / 8);
	is(tick(100), false, "a hand that needs eight ticks for a lap is followed at leisure");
	hand_passes(BUFFERS / 8 + 1);
	is(tick(100), true, "a faster one needs more ticks");
	hand_passes(BUFFERS / 8 / 20);
	is(tick(4), true, "as long as it is that fast");
	hand_passes(BUFFERS / 8 / 25);
	is(tick(4), false, "and no longer");
	most_looks = 0;
	hand_passes(BUFFERS - server_hand % BUFFERS);
	(void) tick(0);
	hand_passes(110);
	is(tick(100), false, "nothing of the share was passed");
	hand_passes(70);
	is(tick(100), true, "one that takes more time than a tick has needs more ticks, too");
	is(the_share.counts.observed, 4, "which waits for the next tick");
	most_looks = PG_INT32_MAX;
	resetStringInfo(&heard);
}

/* Misses of the clock, and of the best half-life, with one page of ten in the sample of 100 buffers. */
static PgscaleSweeperSight sight;

static const char *
foretells(PgscaleSweeperForecast *forecast, uint32 begun, uint64 clock, uint64 best)
{
	const PgscaleSweeperPolicyReport report = {.sample = 10,.misses = {clock, 2 * clock, best, 3 * clock, 2 * clock}};
	uint64		sum[PGSCALE_SWEEPER_CANDIDATES] = {0};
	double		saved;

	pgscale_sweeper_forecast_go_on(forecast, &report, begun, 100, &sight);
	pgscale_sweeper_forecast_add(sum, forecast);
	return pgscale_sweeper_forecast_saved(sum, PGSCALE_SWEEPER_ADAPTIVE, &saved) ? psprintf("%.3f", saved) : "unknown";
}

static void
check_forecast(void)
{
	PgscaleSweeperForecast forecast = {0};
	PgscaleSweeperForecast other = {.known = true,.misses = {{100, 50, 60, 70, 80}}};
	uint64		sum[PGSCALE_SWEEPER_CANDIDATES] = {0};
	double		saved;

	says(foretells(&forecast, 1, 19, 0), "unknown", "a forecast: nothing is known at first");
	says(foretells(&forecast, 1, 20, 20), "unknown", "nor when the shadow cache was filled twice");
	says(foretells(&forecast, 1, 39, 30), "unknown", "nor before it was filled twice more");
	says(foretells(&forecast, 1, 40, 35), "0.250", "15 misses instead of 20: then these count, without those before");
	says(foretells(&forecast, 1, 50, 50), "0.000", "and what follows");
	says(foretells(&forecast, 1, 60, 60), "-0.250", "when it was filled twice again, the oldest ones count no more; a choice may be worse");
	says(foretells(&forecast, 1, 80, 90), "-0.500", "again");
	pgscale_sweeper_forecast_add(sum, &other);
	pgscale_sweeper_forecast_add(sum, &forecast);
	is(pgscale_sweeper_forecast_saved(sum, PGSCALE_SWEEPER_ADAPTIVE, &saved), true, "several shares");
	is(saved, 1 - 90 / 120.0, "by the sum of their misses");
	is(pgscale_sweeper_forecast_saved(sum, PGSCALE_SWEEPER_HISTORY, &saved), true, "the policy history has one half-life");
	is(saved, 1 - 130 / 120.0, "which may be worse than the clock where another one is better");
	says(foretells(&forecast, 2, 20, 10), "unknown", "another policy's beginning is the forecast's, too");
	says(foretells(&forecast, 2, 40, 20), "0.500", "which takes as long");
	sight.missed = 1;
	says(foretells(&forecast, 2, 50, 30), "unknown", "nothing is known while more was missed than seen");
	sight.seen = 1;
	says(foretells(&forecast, 2, 60, 30), "0.500", "as much of each will do");
	sight.missed = 10;
	says(foretells(&forecast, 2, 61, 31), "unknown", "not more");
	says(foretells(&forecast, 2, 80, 50), "unknown", "that counts for two to four turnovers");
	sight.seen = 2;
	says(foretells(&forecast, 2, 100, 60), "0.500", "as the misses do");
	pgscale_sweeper_forecast_go_on(&forecast, NULL, 0, 100, &sight);
	is(forecast.known, false, "nothing is known from a policy that reports nothing");
}

/* The groups have 100 misses of the choice each, and of the clock in turn "some" more and fewer than 150. */
static const char *
saves(int groups, int some)
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
		return "unknown";
	return saved.sure ? psprintf("%.0f, %.0f to %.0f", saved.reads, saved.low, saved.high) : psprintf("%.0f", saved.reads);
}

static void
check_saved_reads(void)
{
	says(saves(16, 0), "16000, 16000 to 16000", "reads saved: groups that do not differ leave no doubt");
	/* The variance of the ratio is 16 / 15 * 16 * 10^2 / 1600^2 = 0.0258^2 */
	says(saves(16, 10), "16000, 14239 to 17761", "those that do give an interval");
	says(saves(16, 100), "16000, -1607 to 33607", "which may have no gain in it");
	says(saves(10, 10), "16000", "too few groups give none");
	says(saves(9, 10), "unknown", "and too few misses no estimate");
}

/* In place of what is saved: the policy is the clock, or it is not known. */
#define CLOCK	(-9)
#define UNTOLD	(-8)

/* What it decides after ten seconds with 1,000 allocations: from that state, "reading" sessions being waiting. */
static void
decides(PgscaleSweeperState state, PgscaleSweeperReason reason, double reading, int allocations, double saved, bool writes,
		const char *want)
{
	PgscaleSweeperDecision decision = {.state = state,.reason = reason,.rest_ns = 20 * NS_PER_S};
	const PgscaleSweeperEvidence e = {
		.ns = 10 * NS_PER_S,
		.supplied = 1000,
		.consumed = 1000,
		.written = writes ? 500 : 10,
		.runs = writes ? 200 : 10,
		.write_ns = NS_PER_S,
		.reading = reading,
		.allocations = allocations,
		.chooses = saved > CLOCK,
		.foretold = saved != UNTOLD,
		.saved = saved == CLOCK ? 0.5 : saved
	};

	(void) pgscale_sweeper_decide(&decision, &e, 50 * NS_PER_S);
	says(psprintf("%s %d: %s", decision.state == PGSCALE_SWEEPER_WORKING ? "work" : "watch", (int) (decision.rest_ns / NS_PER_S),
				  pgscale_sweeper_reason(decision.reason, decision.number)), want,
		 psprintf("decides: %d, %d, %g waiting, %d allocations, %g saved, writes %d", state, reason, reading, allocations, saved, writes));
}

/* Waits for reads: a session's own, and from 18 on those of io workers, if the server has such an event */
static void
check_waits(void)
{
	is(pgscale_wait_is_data_read(WAIT_EVENT_DATA_FILE_READ), true, "a session reads");
	is(pgscale_wait_is_data_read(PGSCALE_WAIT_AIO_COMPLETION), PGSCALE_WAIT_AIO_COMPLETION != 0, "or another process does, for which it waits");
	is(pgscale_wait_is_data_read(WAIT_EVENT_DATA_FILE_WRITE), false, "a write is no read");
	is(pgscale_wait_is_data_read(0), false, "nor is work");
}

static void
check_decisions(void)
{
	const PgscaleSweeperState watching = PGSCALE_SWEEPER_WATCHING;
	const PgscaleSweeperState working = PGSCALE_SWEEPER_WORKING;
	const char *const watches = "watch 20: no session waits to write a page";
	const char *const begins = "work 20: sessions wait for reads, and another choice of pages saves 5 % of them";
	const char *const goes_on = "work 20: sessions wait for reads, and another choice of pages saves 0 % of them";
	const char *const writes = "work 20: 0.0 sessions were waiting to write a page";
	const char *const clean = "watch 40: only 1.0 % of the pages that leave are dirty";
	const char *const quick = "watch 40: reads no longer delay sessions";

	/* It begins: the limits of each condition */
	decides(watching, PGSCALE_BECAUSE_NO_WAITS, 0.2, 1000, 0.05, false, begins);
	decides(watching, PGSCALE_BECAUSE_NO_WAITS, 0.19, 1000, 0.05, false, watches);
	decides(watching, PGSCALE_BECAUSE_NO_WAITS, 0.2, 1000, 0.049, false, watches);
	/* 0.2 sessions wait for 2 s in all: 50 us for each of 40,000 reads */
	decides(watching, PGSCALE_BECAUSE_NO_WAITS, 0.2, 40000, 0.05, false, begins);
	decides(watching, PGSCALE_BECAUSE_NO_WAITS, 0.2, 40001, 0.05, false, watches);
	decides(watching, PGSCALE_BECAUSE_NO_WAITS, 9, 1000, UNTOLD, false, watches);
	decides(watching, PGSCALE_BECAUSE_NO_WAITS, 9, 1000, CLOCK, false, watches);

	/* It goes on for reads, whatever writes are: half of the waits, two per cent saved */
	decides(working, PGSCALE_BECAUSE_READS, 0.1, 1000, 0.02, false, goes_on);
	decides(working, PGSCALE_BECAUSE_READS, 0.1, 20000, 0.02, false, goes_on);
	decides(working, PGSCALE_BECAUSE_READS, 0.1, 1000, UNTOLD, false, goes_on);
	decides(working, PGSCALE_BECAUSE_READS, 0.1, 1000, 0.02, true, goes_on);
	/* or stands down */
	decides(working, PGSCALE_BECAUSE_READS, 0.09, 1000, 0.02, false, quick);
	decides(working, PGSCALE_BECAUSE_READS, 0.1, 20001, 0.02, false, quick);
	decides(working, PGSCALE_BECAUSE_READS, 9, 1000, 0.019, false, "watch 40: another choice of pages saves only 1.9 % of the reads");
	decides(working, PGSCALE_BECAUSE_READS, 9, 1000, -0.5, false, "watch 40: another choice of pages saves only 0.0 % of the reads");
	decides(working, PGSCALE_BECAUSE_READS, 9, 1000, CLOCK, false, "watch 40: another choice of pages saves only 0.0 % of the reads");
	/* unless writes are seen to gain */
	decides(working, PGSCALE_BECAUSE_READS, 0, 1000, 0.05, true, "work 20: dirty pages are written together: 2.5 pages a run");

	/* It goes on for writes, whatever reads are; where these gain nothing, for reads */
	decides(working, PGSCALE_BECAUSE_WAITS, 0, 1000, 0, true, writes);
	decides(working, PGSCALE_BECAUSE_WAITS, 9, 1000, 0.05, true, writes);
	decides(working, PGSCALE_BECAUSE_WAITS, 0.1, 1000, 0.05, false, begins);
	decides(working, PGSCALE_BECAUSE_WAITS, 0.09, 1000, 0.05, false, clean);
	decides(working, PGSCALE_BECAUSE_WAITS, 9, 1000, 0.019, false, clean);
	decides(working, PGSCALE_BECAUSE_WAITS, 9, 1000, UNTOLD, false, clean);
	decides(working, PGSCALE_BECAUSE_WAITS, 9, 1000, CLOCK, false, clean);
}

Datum
reads_steps(PG_FUNCTION_ARGS)
{
	initStringInfo(&lines);
	initStringInfo(&heard);
	check_observed();
	check_windows();
	check_pace();
	check_forecast();
	check_saved_reads();
	check_waits();
	check_decisions();
	PG_RETURN_TEXT_P(cstring_to_text(lines.data));
}
