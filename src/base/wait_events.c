/*-------------------------------------------------------------------------
 *
 * wait_events.c
 *	  Wait events by number: their names, and which of them are idle.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "storage/lwlock.h"

#include "base/pg_compat.h"
#include "base/wait_events.h"

const char *
pgscale_wait_event_type(uint32 wait_event)
{
	if (wait_event == PGSCALE_WAIT_CPU)
		return "CPU";
	if (wait_event == PGSCALE_WAIT_OTHER)
		return "Other";
	return pgstat_get_wait_event_type(wait_event);
}

const char *
pgscale_wait_event_name(uint32 wait_event)
{
	if (wait_event == PGSCALE_WAIT_CPU)
		return "CPU";
	if (wait_event == PGSCALE_WAIT_OTHER)
		return "Other";
	return pgstat_get_wait_event(wait_event);
}

/*
 * The Activity class is a server process' main loop, and an extension's worker
 * waits in its own main loop for most of its life.  Two events of the Client
 * class are the same for a session and for a walsender.
 */
bool
pgscale_wait_is_idle(PgscaleProcKind kind, uint32 wait_event)
{
	uint32		class = wait_event & PGSCALE_WAIT_CLASS;

	return class == PG_WAIT_ACTIVITY ||
		(class == PG_WAIT_EXTENSION && pgscale_proc_is_worker(kind)) ||
		wait_event == WAIT_EVENT_CLIENT_READ ||
		wait_event == PGSCALE_WAIT_WAL_SENDER_IDLE;
}

/*
 * Only numbers up to the built-in ones are the same after a restart.  The
 * lock tranches' last one stands for unknown: its name is "extension".  Classes
 * beyond the server's common ones have numbers that are given out as they are
 * needed, too.
 */
uint32
pgscale_wait_event_durable(uint32 wait_event)
{
	if (wait_event == PGSCALE_WAIT_OTHER)
		return wait_event;
	if ((wait_event & PGSCALE_WAIT_CLASS) == PG_WAIT_EXTENSION)
		return PG_WAIT_EXTENSION;
	if ((wait_event & PGSCALE_WAIT_CLASS) > PG_WAIT_IO)
		return PGSCALE_WAIT_OTHER;
	if ((wait_event & PGSCALE_WAIT_CLASS) == PG_WAIT_LWLOCK &&
		(wait_event & ~PGSCALE_WAIT_CLASS) >= LWTRANCHE_FIRST_USER_DEFINED)
		return PG_WAIT_LWLOCK | UINT16_MAX;
	return wait_event;
}
