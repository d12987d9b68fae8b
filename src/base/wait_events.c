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

/* The events that are pgscale's own. */
static const struct
{
	uint32		wait_event;
	const char *type;
	const char *name;
}			own_events[] = {
	{PGSCALE_WAIT_CPU, "CPU", "CPU"},
	{PGSCALE_WAIT_RUNNING, "CPU", "Running"},
	{PGSCALE_WAIT_QUEUED, "CPU", "Queued"},
	{PGSCALE_WAIT_RUNNING_IN_WAIT, "CPU", "RunningInWait"},
	{PGSCALE_WAIT_QUEUED_IN_WAIT, "CPU", "QueuedInWait"},
	{PGSCALE_WAIT_BLOCKED, "CPU", "Blocked"},
	{PGSCALE_WAIT_IDLE_IN_TRANSACTION, "Client", PGSCALE_WAIT_IDLE_NAME},
	{PGSCALE_WAIT_OTHER, "Other", "Other"},
	{PGSCALE_WAIT_TRANCHE, "LWLock", "extension"},
};

const char *
pgscale_wait_event_type(uint32 wait_event)
{
	for (int i = 0; i < lengthof(own_events); i++)
		if (own_events[i].wait_event == wait_event)
			return own_events[i].type;
	return pgstat_get_wait_event_type(wait_event);
}

const char *
pgscale_wait_event_name(uint32 wait_event)
{
	for (int i = 0; i < lengthof(own_events); i++)
		if (own_events[i].wait_event == wait_event)
			return own_events[i].name;
	return pgstat_get_wait_event(wait_event);
}

/*
 * A session without a wait event is on CPU whatever its state says: between two
 * statements it reads the next one, or sends the last one's result.  So is an io
 * worker: it shows when it idles, in its main loop.  Other processes do most of their
 * work without a wait event, and some of them idle so, too.
 */
bool
pgscale_wait_of(const PgscaleProc *proc, uint32 *wait_event)
{
	*wait_event = proc->wait_event;
	if (proc->wait_event == PGSCALE_WAIT_CPU)
		return proc->has_cpu;
	if (proc->wait_event == WAIT_EVENT_CLIENT_READ && proc->session && proc->in_transaction)
		*wait_event = PGSCALE_WAIT_IDLE_IN_TRANSACTION;
	return true;
}

/* A pause whose length is a setting, or because there is no work. */
static bool
is_pause(uint32 wait_event)
{
	return wait_event == WAIT_EVENT_CHECKPOINT_WRITE_DELAY ||
		wait_event == WAIT_EVENT_VACUUM_DELAY ||
		wait_event == WAIT_EVENT_BASE_BACKUP_THROTTLE ||
		wait_event == WAIT_EVENT_RECOVERY_APPLY_DELAY ||
		wait_event == WAIT_EVENT_RECOVERY_RETRIEVE_RETRY_INTERVAL;
}

/*
 * The Activity class is a server process' main loop, and an extension's worker
 * waits in its own main loop for most of its life.  Two events of the Client
 * class are the same for a session and for a walsender.  A server process makes
 * pauses on purpose; a session's statement takes longer by them.
 */
bool
pgscale_wait_is_idle(PgscaleProcKind kind, uint32 wait_event)
{
	uint32		class = wait_event & PGSCALE_WAIT_CLASS;

	return class == PG_WAIT_ACTIVITY ||
		(is_pause(wait_event) && !pgscale_proc_is_session(kind)) ||
		(class == PG_WAIT_EXTENSION && pgscale_proc_is_worker(kind)) ||
		wait_event == WAIT_EVENT_CLIENT_READ ||
		wait_event == PGSCALE_WAIT_WAL_SENDER_IDLE;
}

/*
 * Only numbers up to the built-in ones are the same after a restart.  The
 * lock tranches' last one stands for those of libraries.  Classes
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
		return PGSCALE_WAIT_TRANCHE;
	return wait_event;
}
