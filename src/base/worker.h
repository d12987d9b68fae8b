/*-------------------------------------------------------------------------
 *
 * worker.h
 *	  What pgscale's background workers have in common.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_WORKER_H
#define PGSCALE_BASE_WORKER_H

#include "postgres.h"

#include "postmaster/bgworker.h"

/*
 * In the postmaster: registers a worker that runs function(arg), from consistency on, for ever.
 * Has the server a slot for each of those?  If not, it will not have one before its next start.
 */
extern void pgscale_worker_register(const char *name, const char *function, int32 arg);
extern bool pgscale_worker_all_registered(void);

/*
 * Starts one now, for once.  Returns false if the server has no slot for it.
 * handle may be NULL; else *handle is NULL or lasts until it has ended.  With gives_way the server itself ends it, from 19 on, for
 * CREATE, ALTER and DROP DATABASE of the database that it is connected to.
 */
extern bool pgscale_worker_launch(const char *name, const char *function, int32 arg, bool gives_way,
								  BackgroundWorkerHandle **handle);

/* Is one about to start, or there?  When it has ended, *handle is freed and NULL. */
extern bool pgscale_worker_launched(BackgroundWorkerHandle **handle);

/* First thing in a worker: signals, connection, wait event name. */
extern void pgscale_worker_start(const char *wait_event_name);

/*
 * Once a round: serves every request of the server to this process.  Returns
 * true if the configuration was read again.
 */
extern bool pgscale_worker_interrupts(void);

/*
 * Calls round for ever, within a resource owner without a transaction.  After an error
 * it logs the error, cleans up and calls failed; a second later it calls the next
 * round.
 */
extern void pgscale_worker_rounds(void (*round) (void), void (*failed) (void));

/* Does a command need this database exclusively?  Then sessions must wait to connect. */
extern bool pgscale_worker_database_locked(Oid database);

typedef struct PgscaleWorkerSetting
{
	const char *name;
	const char *value;
} PgscaleWorkerSetting;

/*
 * Connects a worker to a database, once: settings of the database or the role that could stop it,
 * change what it does, or log it are overridden, and then those of its own.  They are set for the
 * session, so that pg_settings.reset_val still is the server's value.  Warnings of the connection
 * itself, which would be in the log again each time, are not logged; its errors are.
 */
extern void pgscale_worker_connect(Oid database, const PgscaleWorkerSetting *own, int n);

/* Overrides a setting for the session while there is no user yet, whose rights the server would check. */
extern void pgscale_worker_set_early(const char *name, const char *value);

/* Wait for a request to serve, or for that many milliseconds. */
extern void pgscale_worker_wait(long timeout_ms);

#endif							/* PGSCALE_BASE_WORKER_H */
