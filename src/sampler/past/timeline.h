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

/* A second has the time of each class, of each event on CPU, and of being idle in a transaction: so many places. */
#define PGSCALE_TIMELINE_PLACES	19

/* The number of a minute, counted from 2000, among the minutes of one reading: an hour, and as long as it takes, have fewer. */
#define PGSCALE_TIMELINE_MINUTES	64

static inline uint8
pgscale_sampler_timeline_minute(int64 minute)
{
	return (uint64) minute % PGSCALE_TIMELINE_MINUTES;
}

/* The place of a wait event; and what there is in a place: an event, or the number of a class. */
extern uint32 pgscale_sampler_timeline_place(uint32 wait_event);
extern uint32 pgscale_sampler_timeline_event(uint32 place);

extern Size pgscale_sampler_timeline_size(void);
extern void pgscale_sampler_timeline_startup(void);

/*
 * In any process: the most connections at a tick of the seconds since then, of the last hour
 * at most; -1 if none of them was observed.
 */
extern int	pgscale_sampler_timeline_connections(TimestampTz since);

/*
 * The writer's side: one process only.  A tick's waits are between begin, which sets
 * the time that the tick represents, and end.
 */
extern void pgscale_sampler_timeline_begin(TimestampTz now, uint64 ns);
extern void pgscale_sampler_timeline_add(uint32 wait_event);
extern void pgscale_sampler_timeline_end(int connections);

/* After the end of a tick: time of the last second that only now is known to be one. */
extern void pgscale_sampler_timeline_add_late(uint32 wait_event, uint64 ns);

/* After the end of a tick: time of its second that was shown as this wait, and was spent as this event on CPU. */
extern void pgscale_sampler_timeline_to_cpu(uint32 wait_event, uint32 cpu_event, uint64 ns);
extern void pgscale_sampler_timeline_reset(void);

#endif							/* PGSCALE_SAMPLER_TIMELINE_H */
