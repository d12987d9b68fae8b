/*-------------------------------------------------------------------------
 *
 * preload.h
 *	  Whether the library was loaded through shared_preload_libraries.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_PRELOAD_H
#define PGSCALE_BASE_PRELOAD_H

/*
 * For _PG_init, first: is the library loaded through shared_preload_libraries now?
 * Raises an error if another file of pgscale was.
 */
extern bool pgscale_preload_init(void);

/* Was it? */
extern bool pgscale_preload_done(void);

/* Raises an error with a hint if it was not. */
extern void pgscale_preload_require(void);

#endif							/* PGSCALE_BASE_PRELOAD_H */
