/*-------------------------------------------------------------------------
 *
 * open_jobs.h
 *	  In which databases there are relocation jobs that have not ended.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_RELOCATION_OPEN_JOBS_H
#define PGSCALE_RELOCATION_OPEN_JOBS_H

#include "postgres.h"

#include "nodes/pg_list.h"

extern void pgscale_relocation_open_request(void);
extern void pgscale_relocation_open_startup(void);

/*
 * In a backend whose transaction has added jobs to its database: before it
 * commits, which may raise an error; and when it has ended, however.
 */
extern void pgscale_relocation_open_begin(void);
extern void pgscale_relocation_open_end(void);

/*
 * In a worker, about its database: first look, then see whether there is an open
 * job, and if there is none, say so.  What was added meanwhile is not forgotten.
 */
extern uint64 pgscale_relocation_open_look(void);
extern void pgscale_relocation_open_none(uint64 looked);

/*
 * In the launcher.  Which databases they are; on a server of which that is not
 * known, as after a promotion, those that every_one() lists.  Not in recovery.
 */
extern List *pgscale_relocation_open_list(List *(*every_one) (void));

/* This one is gone. */
extern void pgscale_relocation_open_gone(Oid database);

#endif							/* PGSCALE_RELOCATION_OPEN_JOBS_H */
