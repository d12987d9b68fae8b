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

#include "utils/wait_event.h"

#include "base/processes.h"

/* The bits of a wait event's number that are its class. */
#define PGSCALE_WAIT_CLASS	((uint32) 0xFF000000)

/*
 * Wait events as pgscale counts them: the server's numbers, 0 for a session that does
 * not wait, a few more that the server does not separate, and one for events without a
 * row of their own.
 */
#define PGSCALE_WAIT_CPU	((uint32) 0)
#define PGSCALE_WAIT_RUNNING	((uint32) 1)
#define PGSCALE_WAIT_QUEUED	((uint32) 2)
#define PGSCALE_WAIT_RUNNING_IN_WAIT	((uint32) 3)
#define PGSCALE_WAIT_QUEUED_IN_WAIT	((uint32) 4)
#define PGSCALE_WAIT_BLOCKED	((uint32) 5)
#define PGSCALE_WAIT_IDLE_IN_TRANSACTION	(PG_WAIT_CLIENT | (uint32) 0xFFFF)
/* the name, and the class of sessions that are not active, where classes are separate */
#define PGSCALE_WAIT_IDLE_NAME	"IdleInTransaction"
#define PGSCALE_WAIT_OTHER	((uint32) 0xFFFFFFFF)
/* an LWLock of a library, from before a restart */
#define PGSCALE_WAIT_TRANCHE	(PG_WAIT_LWLOCK | UINT16_MAX)

/*
 * What a process waits for, as pgscale counts it.  Returns false if that is not
 * known: only a session, or an io worker, is known to be on CPU if it shows no wait
 * event.
 */
extern bool pgscale_wait_of(const PgscaleProc *proc, uint32 *wait_event);

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
