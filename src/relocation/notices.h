/*-------------------------------------------------------------------------
 *
 * notices.h
 *	  What the request of a move says to its user.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_RELOCATION_NOTICES_H
#define PGSCALE_RELOCATION_NOTICES_H

#include "postgres.h"

#include "relocation/job_table.h"

/* If a slot that no process reads from could lose its WAL by moves of that many bytes. */
extern void pgscale_relocation_notice_readers(int64 bytes);

/* What room standbys need, where there are any: one that is full stops. */
extern void pgscale_relocation_notice_standbys(Oid target, int64 bytes);

/* Which tables inherit from one that is moved, and stay where they are. */
extern void pgscale_relocation_notice_children(Oid table, Oid target);

/* If amcheck cannot check the index: it is moved all the same. */
extern void pgscale_relocation_notice_unverified(Oid index);

/* What the rebuild of this number of unique indexes means for others. */
extern void pgscale_relocation_notice_unique_rebuilds(int n);

/* How long all use of the table is going to wait, which is noted in the job; rate in bytes/s, 0 if unknown. */
extern void pgscale_relocation_notice_lock(PgscaleRelocationJob *job, double rate);

/* The room that an online move takes.  It blocks no session, so the job has no predicted time. */
extern void pgscale_relocation_notice_online(PgscaleRelocationJob *job);

/* What relocate_tablespace() does not move: a line for each kind. */
extern void pgscale_relocation_notice_staying(Oid tablespace);

#endif							/* PGSCALE_RELOCATION_NOTICES_H */
