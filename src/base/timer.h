/*-------------------------------------------------------------------------
 *
 * timer.h
 *	  The clock, and a timer that does not drift.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_TIMER_H
#define PGSCALE_BASE_TIMER_H

#include "postgres.h"

/* Nanoseconds of CLOCK_MONOTONIC. */
extern int64 pgscale_timer_clock(void);

/* CPU time of this process, nanoseconds. */
extern int64 pgscale_timer_cpu_time(void);

/*
 * The length of a period that is usually that long.  In tests, which cannot wait,
 * pgscale.debug_period is the length of all of them.
 */
extern int	pgscale_timer_debug_ms; /* 0: none */
extern int	pgscale_timer_period_ms(int usual_ms);

/*
 * A timer that expires at start + n * period, however late its expirations
 * are noticed.
 */
typedef struct PgscaleTimer
{
	int64		period_ns;		/* 0 if stopped */
	int64		next_ns;		/* when it expires next, by the clock above */
} PgscaleTimer;

/* Start it anew, with the first expiration a period from now; 0 stops it. */
extern void pgscale_timer_set(PgscaleTimer *timer, int64 period_ns);

/*
 * Wait for the next expiration, or for a request to serve; if the timer is stopped, for a
 * second at most.  Returns how many
 * periods expired since the last call (0: there may be a request) and, if any
 * did, in *due when the first of them was due.
 */
extern int64 pgscale_timer_wait(PgscaleTimer *timer, int64 *due);

/* What waits of this process are shown as from now on. */
extern void pgscale_timer_wait_event(uint32 event);

/*
 * In a session or a worker: wait for that long, or less.  Serves interrupts, and ends a session if its client
 * is gone, for which the server itself looks only with client_connection_check_interval.
 */
extern void pgscale_timer_pause(long timeout_ms);

/* Wait for the latch, for at most that many milliseconds unless that is -1; it stays set. */
extern void pgscale_timer_wait_latch(long timeout_ms);

#endif							/* PGSCALE_BASE_TIMER_H */
