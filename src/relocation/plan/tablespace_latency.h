/*-------------------------------------------------------------------------
 *
 * tablespace_latency.h
 *	  The speed of the device below a tablespace: a few reads and writes past every
 *	  cache.
 *
 * Both functions need a transaction, at whose end the server closes their files
 * at the latest, and can be cancelled.  A failed measurement is not an error.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_RELOCATION_TABLESPACE_LATENCY_H
#define PGSCALE_RELOCATION_TABLESPACE_LATENCY_H

#include "postgres.h"

typedef struct PgscaleRelocationProbe
{
	int			reads;			/* random ones, of a page each */
	double		read_ms;		/* their mean */
	double		max_ms;
	double		spread;			/* the mean of the slowest round by that of
								 * the fastest; 1 if all are equal */
	double		sequential_bytes_per_s; /* 0 if unknown */
	double		random_page_cost;	/* 0 if unknown, or the rounds disagree */
	const char *reason;			/* what was read, or why nothing could be;
								 * never NULL, in the caller's memory context */
} PgscaleRelocationProbe;

/*
 * Reads for at most 3 + 1 s, and where the tablespace holds too little, writes
 * for at most 3 s before.  False, with only the reason set, if nothing could be
 * read.
 */
extern bool pgscale_relocation_probe_tablespace(Oid tablespace, PgscaleRelocationProbe *probe);

/*
 * Bytes/s at which a new file can be written: up to 32 MB, for at most 1 s.  0
 * if unknown.
 */
extern double pgscale_relocation_probe_write_rate(Oid tablespace);

#endif							/* PGSCALE_RELOCATION_TABLESPACE_LATENCY_H */
