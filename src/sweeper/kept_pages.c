/*-------------------------------------------------------------------------
 *
 * kept_pages.c
 *	  Pages of kept relations: which ones stay when the sweep comes to them.
 *
 * A policy ranks pages by their use.  A page of a kept relation ranks one at least, so
 * that it does not leave, if the relation has no more pages in this lap of the sweep so
 * far than its fraction of the buffers.  The pages beyond that rank by their use.
 * So in each lap at most the sum of all fractions stays, half of the buffers, and the
 * sweep finds its victims among the others.  No page is pinned: the server's own hand
 * finds a count of three, which the sweep restores.
 *
 * A lap is as many visits as there are buffers.  The sweep may go back within a lap, and
 * meets some pages twice: then fewer stay.  The policy learns of the visit, but
 * not for the limits between its ranks: else the limits would come down to the kept pages,
 * and none of the others could leave.
 *
 * The list is in shared memory, and the sweeper has a copy, hashed by file, which it makes
 * anew after a change.  Where nothing is kept, a visit costs the test of an integer.  A tag
 * that is read torn, or a file's number that another relation has by now, keeps a page of
 * another relation, within the same bound.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "sweeper/keep.h"

/* Places in the hash; a power of two. */
#define KEPT_SLOTS		(4 * PGSCALE_SWEEPER_KEPT_MOST)

typedef struct KeptSlot
{
	RelFileLocator file;
	int			place;			/* in the list; less than 0: none */
} KeptSlot;

int			pgscale_sweeper_kept_files = 0;

static KeptSlot slots[KEPT_SLOTS];
static PgscaleSweeperKept list[PGSCALE_SWEEPER_KEPT_MOST];	/* copied */
static uint32 list_version = 0;
static int	allowed[PGSCALE_SWEEPER_KEPT_MOST]; /* buffers */
static int	met[PGSCALE_SWEEPER_KEPT_MOST]; /* in this lap */
static uint64 lap_begin = 0;	/* in buffers that were scanned */

/* Where the search for the file begins. */
static uint32
first_slot(const RelFileLocator *file)
{
	return (file->relNumber * 0x9E3779B1U) >> 24 & (KEPT_SLOTS - 1);
}

static void
add_slot(const RelFileLocator *file, int place)
{
	uint32		at = first_slot(file);

	while (slots[at].place >= 0)
		at = (at + 1) & (KEPT_SLOTS - 1);
	slots[at].file = *file;
	slots[at].place = place;
	pgscale_sweeper_kept_files++;
}

/* Begins a lap; what was held is not known where the relation or its file is another. */
static void
begin_with_list(void)
{
	PgscaleSweeperKeptCounts *counts = pgscale_sweeper_kept_list->counts;

	pgscale_sweeper_kept_files = 0;
	for (int i = 0; i < KEPT_SLOTS; i++)
		slots[i].place = -1;
	for (int place = 0; place < PGSCALE_SWEEPER_KEPT_MOST; place++)
	{
		const PgscaleSweeperKept *kept = &list[place];

		met[place] = 0;
		allowed[place] = (int) (kept->fraction * NBuffers);
		if (counts[place].changes != kept->changes)
		{
			counts[place].held = -1;
			pg_write_barrier();
			counts[place].changes = kept->changes;
		}
		if (OidIsValid(kept->relation) && kept->found)
			add_slot(&kept->file, place);
	}
	lap_begin = pgscale_sweeper->counts.scanned;
}

/* A change that is under way just now is there at the next tick. */
void
pgscale_sweeper_kept_refresh(void)
{
	if (pg_atomic_read_u32(&pgscale_sweeper_kept_list->version) == list_version)
		return;
	if (!LWLockConditionalAcquire(pgscale_sweeper_kept_list->lock, LW_SHARED))
		return;
	memcpy(list, pgscale_sweeper_kept_list->of, sizeof(list));
	list_version = pg_atomic_read_u32(&pgscale_sweeper_kept_list->version);
	LWLockRelease(pgscale_sweeper_kept_list->lock);
	begin_with_list();
}

int
pgscale_sweeper_kept_place(const RelFileLocator *file)
{
	if (pgscale_sweeper_kept_files == 0)
		return -1;
	for (uint32 at = first_slot(file); slots[at].place >= 0; at = (at + 1) & (KEPT_SLOTS - 1))
		if (RelFileLocatorEquals(slots[at].file, *file))
			return slots[at].place;
	return -1;
}

/* The sweep has passed as many buffers as there are. */
static void
end_lap(void)
{
	PgscaleSweeperKeptCounts *counts = pgscale_sweeper_kept_list->counts;

	for (int place = 0; place < PGSCALE_SWEEPER_KEPT_MOST; place++)
	{
		counts[place].held = met[place];
		met[place] = 0;
	}
	lap_begin = pgscale_sweeper->counts.scanned - 1;
}

int
pgscale_sweeper_kept_met(const RelFileLocator *file)
{
	int			place;

	if (pgscale_sweeper->counts.scanned - lap_begin > NBuffers)
		end_lap();
	place = pgscale_sweeper_kept_place(file);
	return place >= 0 && ++met[place] <= allowed[place] ? place : -1;
}

void
pgscale_sweeper_kept_stayed(int place)
{
	pgscale_sweeper_kept_list->counts[place].stayed++;
}
