/*-------------------------------------------------------------------------
 *
 * segment.h
 *	  The memory of the sweeper that grows with the buffers.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SWEEPER_SEGMENT_H
#define PGSCALE_SWEEPER_SEGMENT_H

#include "postgres.h"

#include "base/shared_buffers.h"
#include "sweeper/shared.h"

/* Bytes that it takes while it runs. */
extern Size pgscale_sweeper_memory_size(void);

/*
 * In the sweeper, once: gets its memory, without any contents yet.  Where the server has
 * none, waits for a minute and ends the process.
 */
extern void pgscale_sweeper_memory_create(void);

/*
 * In any other process: maps it, for as long as the current resource owner lasts.  Returns
 * false if the sweeper does not run.
 */
extern bool pgscale_sweeper_memory_attach(PgscaleSweeperMemory *memory);

/* What the sweeper knows of pages. */
extern const PgscalePageWorths pgscale_sweeper_worths;

#endif							/* PGSCALE_SWEEPER_SEGMENT_H */
