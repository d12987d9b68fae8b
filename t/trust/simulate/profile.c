/*-------------------------------------------------------------------------
 *
 * profile.c
 *	  The wait profile, and with it the count of changes, under simulate.c: each
 *	  snapshot is one of the end of a tick, whose entries sum up to its totals, and no
 *	  older than the one before.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "simulate.h"

#include "base/change_count.c"
#include "base/shared_area.c"
#include "sampler/profile/profile.c"

#define CAPACITY	17			/* more than a search for a victim looks at */
#define TICKS		10
#define SAMPLES		4			/* of each tick, so that a part of one is told from all of it */

PgscaleSamplerSettings pgscale_sampler_settings;

static PgscaleSamplerWaitKey
make_key(int n)
{
	PgscaleSamplerWaitKey key = {0};

	key.queryid = n;
	key.wait_event = 1 + n % 2;
	return key;
}

static void
write_ticks(void *argument)
{
	int			hints[2] = {-1, -1};

	for (int tick = 0; tick < TICKS; tick++)
	{
		pgscale_sampler_profile_begin(NULL);
		for (int i = 0; i < SAMPLES; i++)
		{
			/* many of few, and some that are new */
			PgscaleSamplerWaitKey key = make_key(sim_random(4) ? sim_random(6) : 100 + sim_random(100));

			(void) pgscale_sampler_profile_add(&key, hints, 7);
		}
		pgscale_sampler_profile_end(NULL);
	}
}

static void
read_snapshots(void *argument)
{
	uint64		before = 0;

	for (int i = 0; i < 3; i++)
	{
		PgscaleSamplerProfileSnapshot snapshot;
		PgscaleSamplerProfileTotals totals;
		uint64		samples = 0;
		uint64		ns = 0;

		profile_snapshot(&snapshot);
		for (int n = 0; n < snapshot.nentries; n++)
		{
			samples += snapshot.entries[n].samples;
			ns += snapshot.entries[n].ns;
		}
		if (samples != snapshot.totals.samples || ns != snapshot.totals.ns || ns != 7 * samples || samples % SAMPLES != 0)
			sim_fail("%d samples and %d ns in the entries, %d and %d in all", (int) samples, (int) ns,
					 (int) snapshot.totals.samples, (int) snapshot.totals.ns);
		if (samples < before)
			sim_fail("%d samples after %d", (int) samples, (int) before);
		pgscale_sampler_profile_totals(&totals);
		if (totals.samples < samples || totals.ns != 7 * totals.samples || totals.samples % SAMPLES != 0)
			sim_fail("totals of %d samples and %d ns after %d", (int) totals.samples, (int) totals.ns, (int) samples);
		before = totals.samples;
	}
}

void
sim_begin(void)
{
	pgscale_sampler_settings.profile_size = CAPACITY;
	pgscale_area_startup(&pgscale_sampler_profile_area);
	hand = 0;
	profile_attach();
	sim_thread(write_ticks, NULL);
	sim_thread(read_snapshots, NULL);
	sim_thread(read_snapshots, NULL);
}

void
sim_end(void)
{
}

/* The server's.  It reads shared memory, so it is here, where the compiler's hooks are. */
uint32
hash_bytes(const unsigned char *k, int length)
{
	uint32		h = 5381;

	for (int i = 0; i < length; i++)
		h = h * 33 + k[i];
	return h;
}
