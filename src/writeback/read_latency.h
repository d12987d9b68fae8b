/*-------------------------------------------------------------------------
 *
 * read_latency.h
 *	  How long reads take on the disks that are written to.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_WRITEBACK_READ_LATENCY_H
#define PGSCALE_WRITEBACK_READ_LATENCY_H

#include "postgres.h"

/* Notes the disk that an open file lies on. */
extern void pgscale_disk_note(int fd);

/*
 * Once a second: milliseconds that a read took in it, on all of them.  -1 in
 * between, or if there were few reads or it is not known.
 */
extern double pgscale_disk_read_ms(int64 now_ns);

#endif							/* PGSCALE_WRITEBACK_READ_LATENCY_H */
