/*-------------------------------------------------------------------------
 *
 * shared_area.h
 *	  A part of shared memory whose size is known when the server starts.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_SHARED_AREA_H
#define PGSCALE_BASE_SHARED_AREA_H

#include "postgres.h"

typedef struct PgscaleArea
{
	const char *name;			/* in pg_shmem_allocations, and of its locks */
	void	  **at;				/* where each process finds it */
	Size		size;			/* so much of it is zeroes at first */
	Size		(*computed) (void); /* if that is not all of it, because
									 * settings matter: the whole size; 0: no
									 * area */
	int			nlocks;			/* LWLocks, in a tranche of that name */
	Size		locks;			/* where their addresses are stored in it, one
								 * after the other */
	void		(*init) (void); /* once a start of the server; or NULL */
} PgscaleArea;

/* In the postmaster, in the hook of that name. */
extern void pgscale_area_request(const PgscaleArea *area);

/* The same, under AddinShmemInitLock. */
extern void pgscale_area_startup(const PgscaleArea *area);

#endif							/* PGSCALE_BASE_SHARED_AREA_H */
