/*-------------------------------------------------------------------------
 *
 * simulator.h
 *	  References to pages, and the algorithms that decide which pages a cache holds.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef SIMULATOR_H
#define SIMULATOR_H

#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>

#ifndef BUFFERS
#define BUFFERS		16384
#endif

/* Ticks of the sweeper in a window: the fewer, the more pages are used meanwhile. */
#ifndef TICKS
#define TICKS		64
#endif

#define PAGES		131072

/* A sequence of references to pages.  Misses are counted in windows of BUFFERS references. */
typedef struct Trace
{
	uint32_t   *pages;			/* by reference */
	int			length;
	uint32_t	distinct;		/* pages are numbered below that */
} Trace;

/* Makes the trace of a pattern, or returns false if there is none of that name. */
extern bool trace_make(const char *pattern, uint64_t seed, Trace *trace);

/* Reads one from a file of 32-bit numbers of pages, or returns false if there are none. */
extern bool trace_read(const char *file, Trace *trace);
extern void trace_patterns(void);	/* prints their names */

typedef struct Algorithm
{
	const char *name;
	void		(*begin) (const Trace *trace);

	/* The next reference.  Returns whether the page is in the cache. */
	bool		(*use) (int reference);

	/* At the end of a window: a number of its own, or NULL. */
	double		(*figure) (void);
	const char *figure_name;
	void		(*end) (void);	/* frees its memory */
} Algorithm;

extern const Algorithm server_clock,
			one_bit_clock,
			lru,
			lru_2,
			two_q,
			arc,
			s3_fifo,
			sieve,
			lirs,
			static_optimum,
			belady,
			sweeper_clock,
			sweeper_history,
			sweeper_adaptive;

static inline void *
zeroed(size_t n, size_t size)
{
	void	   *memory = calloc(n, size);

	if (!memory)
		abort();
	return memory;
}

/* splitmix64 */
static inline uint64_t
mixed(uint64_t x)
{
	x += 0x9E3779B97F4A7C15;
	x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9;
	x = (x ^ x >> 27) * 0x94D049BB133111EB;
	return x ^ x >> 31;
}

#endif							/* SIMULATOR_H */
