/*-------------------------------------------------------------------------
 *
 * wait_events.h
 *	  Wait events by number: their names, and which of them are idle.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_WAIT_EVENTS_H
#define PGSCALE_BASE_WAIT_EVENTS_H

#include "postgres.h"

#include "base/processes.h"

/* The bits of a wait event's number that are its class. */
#define PGSCALE_WAIT_CLASS	((uint32) 0xFF000000)

/*
 * Wait events as pgscale counts them: the server's numbers, 0 for a running
 * session that waits for nothing, and one for what has no row of its own.
 */
#define PGSCALE_WAIT_CPU	((uint32) 0)
#define PGSCALE_WAIT_OTHER	((uint32) 0xFFFFFFFF)

extern const char *pgscale_wait_event_type(uint32 wait_event);
extern const char *pgscale_wait_event_name(uint32 wait_event);

/* Waiting for something to do, as opposed to waiting while doing it. */
extern bool pgscale_wait_is_idle(PgscaleProcKind kind, uint32 wait_event);

/*
 * The number under which an event can be kept beyond a restart: extensions'
 * own events and lock tranches get theirs anew each time.
 */
extern uint32 pgscale_wait_event_durable(uint32 wait_event);

#endif							/* PGSCALE_BASE_WAIT_EVENTS_H */
