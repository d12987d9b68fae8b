/*
 * What the sweeper decides, and what it decides by: tables of what is seen and of what follows. controller_steps() returns a
 * line for each check.
 */
#include "postgres.h"

#include <math.h>

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/wait_event.h"

#include "base/pg_compat.h"
#include "base/units.h"
#include "steps.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(controller_steps);

#include "sweeper/controller.c"
#include "sweeper/forecast.c"

static void
says(const char *got, const char *want, const char *name)
{
	appendStringInfo(&lines, "%s %s: %s", strcmp(got, want) == 0 ? "ok" : "not ok", name, got);
	appendStringInfo(&lines, strcmp(got, want) == 0 ? "\n" : " instead of %s\n", want);
}

static const char *
describe(const PgscaleSweeperDecision *d)
{
	return psprintf("%s since %g rest %g: %s", d->state == PGSCALE_SWEEPER_WORKING ? "work" : "watch", d->since_ns / 1e9,
					d->rest_ns / 1e9,
					pgscale_sweeper_reason(d->reason, d->number));
}

/* Whether to work: for writes. Seconds, except what all writes took, which is in us. */
static void
check_writes(void)
{
	static const struct
	{
		int			working;
		double		since, rest, now, ns, waiting;
		int			supplied, consumed, written, runs, write_us, starved;
		const char *want;
	}			cases[] = {
		{0, 0, 0, 100, 1.9, 5, 0, 0, 0, 0, 0, 0, "kept watch since 0 rest 0: no session waits to write a page"},
		{0, 0, 0, 100, 2, 0.19, 0, 0, 0, 0, 0, 0, "used watch since 0 rest 0: no session waits to write a page"},
		{0, 0, 0, 100, 2, 0.2, 0, 0, 0, 0, 0, 0, "used work since 100 rest 0: 0.2 sessions were waiting to write a page"},
		{0, 90, 20, 109.9, 2, 3.3, 0, 0, 0, 0, 0, 0, "used watch since 90 rest 20: no session waits to write a page"},
		{0, 90, 20, 110, 2, 3.3, 0, 0, 0, 0, 0, 0, "used work since 110 rest 20: 3.3 sessions were waiting to write a page"},
		/* at work: nothing yet; no demand; demand without writes */
		{1, 50, 40, 100, 9.9, 0, 0, 0, 0, 0, 0, 0, "kept work since 50 rest 40: no session waits to write a page"},
		{1, 50, 40, 100, 11, 9, 9, 0, 0, 0, 0, 9, "used watch since 100 rest 0: no buffer was needed for 11 s"},
		{1, 50, 40, 100, 10, 0, 0, 1, 0, 0, 0, 0, "used work since 50 rest 40: no session waits to write a page"},
		/* clean */
		{1, 50, 0, 100, 10, 0, 1000, 900, 49, 9, 0, 0,
		"used watch since 100 rest 20: only 4.9 % of the pages that leave are dirty"},
		{1, 50, 0, 100, 10, 0, 1000, 0, 50, 9, 0, 0, "used work since 50 rest 0: no session waits to write a page"},
		/* quick */
		{1, 50, 20, 100, 10, 0, 900, 900, 500, 99, 49 * 500, 0,
		"used watch since 100 rest 40: the disk delays no session: a write takes 49 us"},
		{1, 50, 20, 100, 10, 0, 900, 900, 500, 99, 50 * 500, 0, "used work since 50 rest 20: no session waits to write a page"},
		{1, 50, 20, 100, 10, 0, 900, 900, 499, 99, 49 * 499, 0, "used work since 50 rest 20: no session waits to write a page"},
		/* no neighbours */
		{1, 50, 700, 100, 10, 0, 900, 900, 240, 200, 0, 0,
		"used watch since 100 rest 1200: dirty pages have no dirty neighbours: 1.20 pages a run"},
		{1, 50, 700, 100, 10, 0, 900, 900, 238, 199, 0, 0, "used work since 50 rest 700: no session waits to write a page"},
		{1, 50, 700, 100, 10, 0, 900, 900, 250, 200, 0, 0, "used work since 50 rest 700: no session waits to write a page"},
		/* rings */
		{1, 50, 5, 100, 10, 0.2, 900, 900, 240, 99, 0, 0,
		"used watch since 100 rest 20: 0.2 sessions write pages of their own, as COPY and VACUUM do"},
		{1, 50, 5, 100, 10, 0.19, 900, 900, 240, 99, 0, 0, "used work since 50 rest 5: no session waits to write a page"},
		{1, 50, 5, 100, 10, 0.2, 900, 900, 240, 99, 0, 1, "used work since 50 rest 5: no session waits to write a page"},
		/* of use for a minute */
		{1, 50, 40, 109.9, 10, 0, 900, 900, 240, 99, 0, 0, "used work since 50 rest 40: no session waits to write a page"},
		{1, 50, 40, 110, 10, 0, 900, 900, 240, 99, 0, 0, "used work since 50 rest 0: no session waits to write a page"}
	};

	for (int i = 0; i < lengthof(cases); i++)
	{
		PgscaleSweeperDecision d = {
			.state = cases[i].working ? PGSCALE_SWEEPER_WORKING : PGSCALE_SWEEPER_WATCHING,
			.reason = PGSCALE_BECAUSE_NO_WAITS,
			.since_ns = (int64) (cases[i].since * 1e9),
			.rest_ns = (int64) (cases[i].rest * 1e9)
		};
		const PgscaleSweeperEvidence e = {
			.ns = (int64) (cases[i].ns * 1e9),
			.waiting = cases[i].waiting,
			.supplied = cases[i].supplied,
			.consumed = cases[i].consumed,
			.written = cases[i].written,
			.runs = cases[i].runs,
			.write_ns = cases[i].write_us * INT64CONST(1000),
			.starved = cases[i].starved
		};
		const bool	used = pgscale_sweeper_decide(&d, &e, (int64) (cases[i].now * 1e9));

		says(psprintf("%s %s", used ? "used" : "kept", describe(&d)), cases[i].want, psprintf("it decides for writes, %d", i));
	}
}

/* The policy is the clock, or it is not known what is saved. */
#define CLOCK	(-9)
#define UNTOLD	(-8)

#define WATCHES	"watch since 0 rest 20: no session waits to write a page"
#define BEGINS	"work since 50 rest 20: sessions wait for reads, and another choice of pages saves 5 % of them"
#define STAYS	"work since 0 rest 20: sessions wait for reads, and another choice of pages saves 5 % of them"
#define GOES_ON	"work since 0 rest 20: sessions wait for reads, and another choice of pages saves 0 % of them"
#define WRITES	"work since 0 rest 20: 0.0 sessions were waiting to write a page"
#define CLEAN	"watch since 50 rest 40: only 1.0 % of the pages that leave are dirty"
#define QUICK	"watch since 50 rest 40: reads no longer delay sessions"
#define SAVES(n)	"watch since 50 rest 40: another choice of pages saves only " n " % of the reads"

/* For reads, after ten seconds in which so many sessions waited for one. */
static void
check_reads(void)
{
	static const struct
	{
		PgscaleSweeperReason before;	/* it works for that, or watches */
		double		reading;
		int			allocations;
		double		saved;
		bool		writes;			/* are they seen to gain? */
		const char *want;
	}			cases[] = {
		{PGSCALE_BECAUSE_NO_WAITS, 0.2, 1000, 0.05, false, BEGINS},
		{PGSCALE_BECAUSE_NO_WAITS, 0.19, 1000, 0.05, false, WATCHES},
		{PGSCALE_BECAUSE_NO_WAITS, 0.2, 1000, 0.049, false, WATCHES},
		/* 0.2 sessions wait for 2 s in all: 50 us for each of 40,000 reads */
		{PGSCALE_BECAUSE_NO_WAITS, 0.2, 40000, 0.05, false, BEGINS},
		{PGSCALE_BECAUSE_NO_WAITS, 0.2, 40001, 0.05, false, WATCHES},
		{PGSCALE_BECAUSE_NO_WAITS, 9, 1000, UNTOLD, false, WATCHES},
		{PGSCALE_BECAUSE_NO_WAITS, 9, 1000, CLOCK, false, WATCHES},
		/* it goes on for reads, whatever writes are: half of the waits, two per cent saved */
		{PGSCALE_BECAUSE_READS, 0.1, 1000, 0.02, false, GOES_ON},
		{PGSCALE_BECAUSE_READS, 0.1, 20000, 0.02, false, GOES_ON},
		{PGSCALE_BECAUSE_READS, 0.1, 1000, UNTOLD, false, GOES_ON},
		{PGSCALE_BECAUSE_READS, 0.1, 1000, 0.02, true, GOES_ON},
		{PGSCALE_BECAUSE_READS, 0.09, 1000, 0.02, false, QUICK},
		{PGSCALE_BECAUSE_READS, 0.1, 20001, 0.02, false, QUICK},
		{PGSCALE_BECAUSE_READS, 9, 1000, 0.019, false, SAVES("1.9")},
		{PGSCALE_BECAUSE_READS, 9, 1000, -0.5, false, SAVES("0.0")},
		{PGSCALE_BECAUSE_READS, 9, 1000, CLOCK, false, SAVES("0.0")},
		{PGSCALE_BECAUSE_READS, 0, 1000, 0.05, true, "work since 0 rest 20: dirty pages are written together: 2.5 pages a run"},
		/* it goes on for writes, whatever reads are; where these gain nothing, for reads */
		{PGSCALE_BECAUSE_WAITS, 0, 1000, 0, true, WRITES},
		{PGSCALE_BECAUSE_WAITS, 9, 1000, 0.05, true, WRITES},
		{PGSCALE_BECAUSE_WAITS, 0.1, 1000, 0.05, false, STAYS},
		{PGSCALE_BECAUSE_WAITS, 0.09, 1000, 0.05, false, CLEAN},
		{PGSCALE_BECAUSE_WAITS, 9, 1000, 0.019, false, CLEAN},
		{PGSCALE_BECAUSE_WAITS, 9, 1000, UNTOLD, false, CLEAN},
		{PGSCALE_BECAUSE_WAITS, 9, 1000, CLOCK, false, CLEAN}
	};

	for (int i = 0; i < lengthof(cases); i++)
	{
		PgscaleSweeperDecision d = {
			.state = cases[i].before == PGSCALE_BECAUSE_NO_WAITS ? PGSCALE_SWEEPER_WATCHING : PGSCALE_SWEEPER_WORKING,
			.reason = cases[i].before,
			.rest_ns = 20 * NS_PER_S
		};
		const PgscaleSweeperEvidence e = {
			.ns = 10 * NS_PER_S,
			.supplied = 1000,
			.consumed = 1000,
			.written = cases[i].writes ? 500 : 10,
			.runs = cases[i].writes ? 200 : 10,
			.write_ns = NS_PER_S,
			.reading = cases[i].reading,
			.allocations = cases[i].allocations,
			.chooses = cases[i].saved > CLOCK,
			.foretold = cases[i].saved != UNTOLD,
			.saved = cases[i].saved == CLOCK ? 0.5 : cases[i].saved
		};

		(void) pgscale_sweeper_decide(&d, &e, 50 * NS_PER_S);
		says(describe(&d), cases[i].want, psprintf("it decides for reads, %d", i));
	}
	is(pgscale_wait_is_data_read(WAIT_EVENT_DATA_FILE_READ), true, "a session reads");
	is(pgscale_wait_is_data_read(PGSCALE_WAIT_AIO_COMPLETION), PGSCALE_WAIT_AIO_COMPLETION != 0,
	   "or another process does, for which it waits");
	is(pgscale_wait_is_data_read(WAIT_EVENT_DATA_FILE_WRITE) || pgscale_wait_is_data_read(0), false,
	   "a write is no read, nor is work");
}

/* How many writers after so many seconds, and are slots missing? */
static void
check_writers(void)
{
	static const struct
	{
		int			writers;
		double		pressed;
		int			running, most, slots, seconds, after;
		bool		few_slots;
	}			cases[] = {
		{4, 0.1, 16, 16, 99, 1, 6}, {6, 0.1, 16, 16, 99, 1, 9}, {9, 0.1, 16, 16, 99, 1, 13}, {4, 1, 16, 16, 99, 9, 16},
		{4, 0.09, 16, 16, 99, 9, 4}, {4, 1, 3, 16, 99, 9, 4}, {4, 1, 16, 5, 99, 9, 5}, {4, 1, 16, 16, 1, 1, 5},
		{16, 1, 16, 16, -3, 1, 13}, {16, 1, 16, 16, -3, 9, 13}, {16, 0, 16, 16, -3, 1, 13}, {16, 1, 16, 16, -13, 1, 4},
		{9, 0, 7, 16, 0, 1, 7}, {9, 1, 7, 16, -1, 10, 6, true}, {9, 1, 7, 16, 1, 1, 8}, {9, 1, 7, 16, 2, 9, 9},
		{4, 1, 16, 16, 0, 9, 4}, {4, 1, 16, 16, -1, 10, 4, true}, {16, 1, 16, 16, 0, 10, 16},
		{16, 0, 16, 16, 99, 29, 16}, {16, 0, 16, 16, 99, 30, 15}, {16, 0, 16, 16, 99, 60, 14}, {4, 0, 16, 16, 99, 60, 4}
	};

	for (int i = 0; i < lengthof(cases); i++)
	{
		PgscaleSweeperCrew crew = {.writers = cases[i].writers};

		for (int s = 0; s < cases[i].seconds; s++)
			pgscale_sweeper_decide_writers(&crew, cases[i].pressed, cases[i].running, cases[i].most, cases[i].slots);
		is(crew.writers + 100 * crew.few_slots, cases[i].after + 100 * cases[i].few_slots,
		   psprintf("writers: %d, pressed %g, running %d, most %d, slots %d, after %d s", cases[i].writers, cases[i].pressed,
					cases[i].running,
					cases[i].most, cases[i].slots, cases[i].seconds));
	}
}

/* What is foretold by misses of the clock and of the best half-life, with one page of ten in the sample of 100 buffers. */
static void
check_forecast(void)
{
	static const struct
	{
		int			begun, clock, best, seen, missed;
		const char *want;
	}			cases[] = {
		/* the shadow cache must be filled twice, and twice more; then older misses count no more */
		{1, 19, 0, 0, 0, "unknown"}, {1, 20, 20, 0, 0, "unknown"}, {1, 39, 30, 0, 0, "unknown"}, {1, 40, 35, 0, 0, "0.250"},
		{1, 50, 50, 0, 0, "0.000"}, {1, 60, 60, 0, 0, "-0.250"}, {1, 80, 90, 0, 0, "-0.500"},
		/* another policy begins */
		{2, 20, 10, 0, 0, "unknown"}, {2, 40, 20, 0, 0, "0.500"},
		/* while more was missed than seen, and for two to four turnovers after that */
		{2, 50, 30, 0, 1, "unknown"}, {2, 60, 30, 1, 1, "0.500"}, {2, 61, 31, 1, 10, "unknown"}, {2, 80, 50, 1, 10, "unknown"},
		{2, 100, 60, 2, 10, "0.500"}
	};
	PgscaleSweeperForecast forecast = {0};
	PgscaleSweeperForecast other = {.known = true,.misses = {{100, 50, 60, 70, 80}}};
	uint64		both[PGSCALE_SWEEPER_CANDIDATES] = {0};
	double		saved;

	for (int i = 0; i < lengthof(cases); i++)
	{
		const uint64 clock = cases[i].clock;
		const PgscaleSweeperPolicyReport report = {.sample = 10,.misses = {clock, 2 * clock, cases[i].best, 3 * clock, 2 * clock}};
		const PgscaleSweeperSight sight = {.seen = cases[i].seen,.missed = cases[i].missed};
		uint64		sum[PGSCALE_SWEEPER_CANDIDATES] = {0};

		pgscale_sweeper_forecast_go_on(&forecast, &report, cases[i].begun, 100, &sight);
		pgscale_sweeper_forecast_add(sum, &forecast);
		says(pgscale_sweeper_forecast_saved(sum, PGSCALE_SWEEPER_ADAPTIVE, &saved) ? psprintf("%.3f", saved) : "unknown",
			 cases[i].want,
			 psprintf("it foretells, %d", i));
		if (strcmp(cases[i].want, "-0.500") == 0)
			pgscale_sweeper_forecast_add(both, &forecast);
	}
	pgscale_sweeper_forecast_add(both, &other);
	is(pgscale_sweeper_forecast_saved(both, PGSCALE_SWEEPER_ADAPTIVE, &saved) ? saved : -9, 1 - 90 / 120.0,
	   "several shares, by their sums");
	is(pgscale_sweeper_forecast_saved(both, PGSCALE_SWEEPER_HISTORY, &saved) ? saved : -9, 1 - 130 / 120.0,
	   "the policy history has one half-life");
	pgscale_sweeper_forecast_go_on(&forecast, NULL, 0, 100, &(PgscaleSweeperSight) {0});
	is(forecast.known, false, "nothing is known from a policy that reports nothing");
}

/* Reads that were saved: groups have 100 misses of the choice each, and of the clock in turn "some" more and fewer than 150. */
static void
check_saved_reads(void)
{
	static const struct
	{
		int			groups, some;
		const char *want;
	}			cases[] = {
		{16, 0, "16000, 16000 to 16000"},
		/* the variance of the ratio is 16 / 15 * 16 * 10^2 / 1600^2 = 0.0258^2 */
		{16, 10, "16000, 14239 to 17761"}, {16, 100, "16000, -1607 to 33607"},
		/* too few groups, too few misses */
		{10, 10, "16000"}, {9, 10, "unknown"}
	};

	for (int i = 0; i < lengthof(cases); i++)
	{
		/* more pages left than came, as after DROP TABLE */
		PgscaleSweeperPolicyReport report = {.arrivals = 32000,.evictions = 50000,.groups = cases[i].groups};
		PgscaleSweeperSaved saved = {0};
		const char *got = "unknown";

		for (int g = 0; g < cases[i].groups; g++)
		{
			report.misses[0] += report.clock_group[g] = 150 + (g % 2 ? cases[i].some : -cases[i].some);
			report.chosen_misses += report.chosen_group[g] = 100;
		}
		if (pgscale_sweeper_reads_saved(&report, &saved))
			got = saved.sure ? psprintf("%.0f, %.0f to %.0f", saved.reads, saved.low, saved.high) : psprintf("%.0f", saved.reads);
		says(got, cases[i].want, psprintf("reads saved, %d groups that differ by %d", cases[i].groups, cases[i].some));
	}
}

Datum
controller_steps(PG_FUNCTION_ARGS)
{
	initStringInfo(&lines);
	check_writes();
	check_reads();
	check_writers();
	check_forecast();
	check_saved_reads();
	PG_RETURN_TEXT_P(cstring_to_text(lines.data));
}
