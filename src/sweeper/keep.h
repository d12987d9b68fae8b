/*-------------------------------------------------------------------------
 *
 * keep.h
 *	  Relations whose pages the sweeper ranks higher: see kept_relations.c.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SWEEPER_KEEP_H
#define PGSCALE_SWEEPER_KEEP_H

#include "postgres.h"

#include <sys/types.h>

#include "common/relpath.h"
#include "datatype/timestamp.h"
#include "port/atomics.h"
#include "storage/lwlock.h"

#include "base/pg_compat.h"
#include "base/shared_area.h"
#include "sweeper/shared.h"

/* As many relations can be kept, and that fraction of the buffers for all of them. */
#define PGSCALE_SWEEPER_KEPT_MOST		64
#define PGSCALE_SWEEPER_KEPT_FRACTION	0.5

/* A relation that is kept. */
typedef struct PgscaleSweeperKept
{
	Oid			database;		/* InvalidOid: the place is free */
	Oid			relation;		/* then, too */
	Oid			table;			/* of an index, or InvalidOid */
	bool		in_toast;		/* it is a TOAST table, or an index of one */
	NameData	name;			/* as last seen, in its database's encoding */
	double		fraction;		/* of the buffers, at most */
	uint32		changes;		/* of the place, in all that is above and
								 * below */
	bool		found;			/* its file is known: */
	RelFileLocator file;
} PgscaleSweeperKept;

/* What the sweeper has done for the relation of one place; it alone writes it. */
typedef struct PgscaleSweeperKeptCounts
{
	volatile uint32 changes;	/* of the relation that was held */
	volatile int held;			/* buffers in its last whole lap; less than 0:
								 * not known */
	volatile uint64 stayed;		/* pages that would have left, since the
								 * server started */
} PgscaleSweeperKeptCounts;

/* What the file does not have of the list. */
typedef enum PgscaleSweeperKeptProblem
{
	PGSCALE_KEPT_NO_PROBLEM,
	PGSCALE_KEPT_NO_FILE,		/* something that is no file lies there */
	PGSCALE_KEPT_UNREAD,		/* it could not be read at the start */
	PGSCALE_KEPT_IGNORED,		/* its contents were not right then */
	PGSCALE_KEPT_UNWRITTEN		/* only the list followed a relation */
} PgscaleSweeperKeptProblem;

typedef struct PgscaleSweeperKeptList
{
	LWLock	   *change_lock;	/* held to change the list and write the file */
	LWLock	   *lock;			/* over what follows, except where said; a
								 * change takes both */
	volatile PgscaleSweeperKeptProblem problem; /* written under change_lock;
												 * read without a lock */
	pg_atomic_uint32 version;	/* of the list; read without the lock */
	PgscaleSweeperKept of[PGSCALE_SWEEPER_KEPT_MOST];
	volatile int relations;		/* how many are kept; read without the lock */
	TimestampTz counted_since[PGSCALE_SWEEPER_KEPT_MOST];
	uint64		stayed_before[PGSCALE_SWEEPER_KEPT_MOST];	/* counted_since */
	PgscaleSweeperKeptCounts counts[PGSCALE_SWEEPER_KEPT_MOST]; /* without a lock */
} PgscaleSweeperKeptList;

/* In shared memory, set at server start. */
extern PgscaleSweeperKeptList *pgscale_sweeper_kept_list;

/* kept_relations.c: the list, its file, and how it follows the relations */

extern const PgscaleArea pgscale_sweeper_kept_area;

/*
 * Changes the list with change(list, arg) and writes the file.  Nothing has changed after
 * an error, of change() or of the write.
 */
extern void pgscale_sweeper_kept_change(void (*change) (PgscaleSweeperKept *list, void *arg), void *arg);

/* What the catalogs say of a relation of this database.  False if it is not there. */
extern bool pgscale_sweeper_kept_look_up(const PgscaleSweeperKept *kept, PgscaleSweeperKept *now);

/* Does it follow its relation there?  In a transaction of its database.  *in_file: if so, the list's file is behind. */
extern bool pgscale_sweeper_kept_follow_one(PgscaleSweeperKept *kept, bool *in_file);

/* Is its file known, and are there pages?  If not, there may be another file by now.  *file: the inode, 0: none. */
extern bool pgscale_sweeper_kept_has_pages(const PgscaleSweeperKept *kept, ino_t *file);

/* In the sweeper, now and then: has the databases of those that have none looked up, and of the others within a minute. */
extern void pgscale_sweeper_kept_follow(void);

/* A copy of the list.  Returns how many places are taken. */
extern int	pgscale_sweeper_kept_copy(PgscaleSweeperKept *list);

/* A reset of what is shown of the pages that stayed. */
extern void pgscale_sweeper_kept_reset(void);

/* kept_pages.c: the sweep's side, in the sweeper */

/* Files that it keeps pages of. */
extern int	pgscale_sweeper_kept_files;

/* In each tick: has the list changed? */
extern void pgscale_sweeper_kept_refresh(void);

/* Whose place is the file's?  Less than 0: of none. */
extern int	pgscale_sweeper_kept_place(const RelFileLocator *file);

/*
 * The sweep has come to a page of that file, whatever it does with it.  Returns the place
 * of its relation if the page stays, because that holds no more of the buffers than its
 * fraction; else less than 0.
 */
extern int	pgscale_sweeper_kept_met(const RelFileLocator *file);

/* It stayed, and would have left. */
extern void pgscale_sweeper_kept_stayed(int place);

#endif							/* PGSCALE_SWEEPER_KEEP_H */
