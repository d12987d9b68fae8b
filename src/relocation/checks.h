/*-------------------------------------------------------------------------
 *
 * checks.h
 *	  Checks before a move: is it possible, and is it possible now?
 *
 * All checks are made for the current user, in a transaction: once when a move is
 * requested, and again before it begins.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_RELOCATION_CHECKS_H
#define PGSCALE_RELOCATION_CHECKS_H

#include "postgres.h"

#include <sys/types.h>

#include "relocation/jobs/relocation_jobs.h"

/* The tablespace that a relation is stored in; InvalidOid if it is gone. */
extern Oid	pgscale_relocation_tablespace_of(Oid relation);

/* Its access method; InvalidOid if it has none. */
extern Oid	pgscale_relocation_am_of(Oid relation);

/* Raises an error if it was dropped since a job was asked for. */
extern void pgscale_relocation_check_there(Oid relation, bool is_table);

/* In bytes, with all forks and its TOAST table. */
extern int64 pgscale_relocation_size_of(Oid relation);

/* Raises an error if there is none of that name. */
extern Oid	pgscale_relocation_tablespace_named(const char *name);

/* Raises an error if the current user cannot create relations there. */
extern void pgscale_relocation_check_target(Oid tablespace);

/* Raises an error if it is neither a table nor partitioned into tables. */
extern void pgscale_relocation_check_is_table(Oid relation);

/*
 * Is the job's relation fit to be moved to its target, in its mode?  What speaks against it is reported at this
 * level, with an errcode, and is an error or answered with false.
 */
extern bool pgscale_relocation_check(const PgscaleRelocationJob *job, int elevel);

/* As above, for an online move: can the changes of its files be followed? */
extern bool pgscale_relocation_check_online(Oid relation, int elevel);

/* Raises an error unless the current user may move the job's relation to its target, and both are fit for that. */
extern void pgscale_relocation_check_job(const PgscaleRelocationJob *job);

/* Raises an error if there is no room for relations of that many bytes.  online: by moves that can wait for room for their WAL. */
extern void pgscale_relocation_check_space(Oid tablespace, int64 bytes, bool logged, bool online);

/* How much pg_wal may still grow while that number of bytes of WAL is written. */
extern int64 pgscale_relocation_wal_growth(int64 bytes);

/* Bytes that are free on the disk of a folder, and which disk that is; -1 if unknown. */
extern int64 pgscale_relocation_free_bytes(const char *folder, dev_t *device);

/*
 * Why a job should wait with its beginning, or NULL.  As a superuser.
 */
extern char *pgscale_relocation_obstacle(const PgscaleRelocationJob *job);

#endif							/* PGSCALE_RELOCATION_CHECKS_H */
