/*-------------------------------------------------------------------------
 *
 * flush.h
 *	  Has the kernel write new indexes while they grow.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_RELOCATION_FLUSH_H
#define PGSCALE_RELOCATION_FLUSH_H

/*
 * A look at what grows, for another process than the one that writes it; in how
 * many milliseconds to look again, or -1 if nothing grows.
 */
extern long pgscale_relocation_flush(void);

#endif							/* PGSCALE_RELOCATION_FLUSH_H */
