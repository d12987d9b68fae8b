/*-------------------------------------------------------------------------
 *
 * timeline.h
 *	  Average active sessions second by second, by wait class.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SAMPLER_TIMELINE_H
#define PGSCALE_SAMPLER_TIMELINE_H

#include "postgres.h"

#include "datatype/timestamp.h"

extern Size pgscale_timeline_size(int seconds);
extern void pgscale_timeline_startup(int seconds);

/*
 * The writer's side: one process only.  A tick's waits lie between begin,
 * which tells the time the tick stands for, and end.
 */
extern void pgscale_timeline_begin(TimestampTz now, uint64 ns);
extern void pgscale_timeline_add(uint32 wait_event);
extern void pgscale_timeline_end(void);
extern void pgscale_timeline_reset(void);

#endif							/* PGSCALE_SAMPLER_TIMELINE_H */
