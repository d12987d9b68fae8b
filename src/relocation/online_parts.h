/*-------------------------------------------------------------------------
 *
 * online_parts.h
 *	  What the parts of an online move share.
 *
 * The method is in online_move.c.  online_follow.c copies and keeps up, online_switch.c waits for its moment and switches.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_RELOCATION_ONLINE_PARTS_H
#define PGSCALE_RELOCATION_ONLINE_PARTS_H

#include "postgres.h"

#include "utils/relcache.h"

#include "base/pg_compat.h"
#include "relocation/job_table.h"
#include "relocation/online_copy.h"
#include "relocation/pace.h"
#include "relocation/relocation_state.h"
#include "relocation/wal_follow.h"

/* What a try to switch is at, for the errors that it may raise. */
typedef enum PgscaleRelocationSwitchStep
{
	PGSCALE_SWITCH_LOCKS,		/* it asks for a lock */
	PGSCALE_SWITCH_COPIES,		/* it copies, and all else */
	PGSCALE_SWITCH_CATALOG,		/* it changes rows of pg_class */
} PgscaleRelocationSwitchStep;

typedef struct PgscaleRelocationOnline
{
	PgscaleRelocationJob *job;
	MemoryContext context;		/* that lasts until its end */
	Oid			relations[PGSCALE_JOB_FILES];	/* that belong together */
	int			nrelations;
	PgscaleRelocationCopy copies[PGSCALE_JOB_FILES];	/* of those that are not
														 * there already */
	int			ncopies;
	int64		locked_at;		/* when it got the lock, at the last try */
	PgscaleRelocationSwitchStep step;	/* of the last try */
	uint32		no_lock;		/* tries for which a lock was not free */
	int			collisions;		/* of tries, with others that change pg_class */
	char	   *checksums;		/* the server's setting when it began */
	PgscaleRelocationWal *wal;
	PgscaleRelocationPace pace;
	PgscaleRelocationProgress progress;
} PgscaleRelocationOnline;

/* online_move.c */

/* Lists a table, its TOAST table and that one's index; or an index.  Returns their number.  In a transaction. */
extern int	pgscale_relocation_online_list(const PgscaleRelocationJob *job, Oid *relations);

/* Notes in the job the files that are left, or else the new ones. */
extern void pgscale_relocation_online_note_files(const PgscaleRelocationOnline *move, PgscaleRelocationJob *job, bool from);

/*
 * Opens the relation, in a transaction.  Raises an error if it has another file than the one that is copied; and that error.
 */
extern Relation pgscale_relocation_online_open(const PgscaleRelocationOnline *move, const PgscaleRelocationCopy *copy, LOCKMODE lock);
extern void pgscale_relocation_online_raise_rewritten(const PgscaleRelocationOnline *move);

/* Shows how far it is. */
extern void pgscale_relocation_online_show(PgscaleRelocationOnline *move, PgscaleRelocationPhase phase);

/* online_follow.c */

/* Changes are followed from now on; and are, up to there. */
extern void pgscale_relocation_online_follow_from_now(PgscaleRelocationOnline *move);
extern void pgscale_relocation_online_follow(PgscaleRelocationOnline *move, XLogRecPtr until);

/* How much has been copied; and the number of copied blocks that are known to have changed. */
extern int64 pgscale_relocation_online_copied_bytes(const PgscaleRelocationOnline *move);
extern BlockNumber pgscale_relocation_online_marked(const PgscaleRelocationOnline *move);

/* For how many milliseconds nothing may be copied; notes the reason. */
extern long pgscale_relocation_online_pause(PgscaleRelocationOnline *move);

/* How many blocks may be copied under the lock, at most that number: commits wait for them, too, where standbys are synchronous. */
extern BlockNumber pgscale_relocation_online_try_blocks(const PgscaleRelocationOnline *move, BlockNumber most);

/* The following are in no transaction. */

extern void pgscale_relocation_online_copy_all(PgscaleRelocationOnline *move);

/* Copies again the blocks that have changed, until few are left, or there are not fewer from round to round. */
extern void pgscale_relocation_online_catch_up(PgscaleRelocationOnline *move, PgscaleRelocationPhase phase);

/* Does before the lock is taken what need not be done under it. */
extern void pgscale_relocation_online_prepare(PgscaleRelocationOnline *move);

/* online_switch.c */

/* Waits for a moment to switch, and does. */
extern void pgscale_relocation_online_switch(PgscaleRelocationOnline *move);

#endif							/* PGSCALE_RELOCATION_ONLINE_PARTS_H */
