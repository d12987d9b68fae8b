/*-------------------------------------------------------------------------
 *
 * now_evidence.h
 *	  What the rules of diagnosis look at.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_NOW_EVIDENCE_H
#define PGSCALE_NOW_EVIDENCE_H

#include "postgres.h"

#include "utils/jsonb.h"

#include "base/wait_kinds.h"

/* Sessions in each kind of wait, on average, and the server's counts, of a period; NaN: unknown. */
typedef struct PgscaleNowPeriod
{
	double		s;				/* its length; 0: a single moment */
	double		active;			/* in all kinds */
	double		kinds[PGSCALE_WAIT_KINDS];	/* 0: no session was in it */
	double		flush_ms;		/* mean time of a flush of WAL */
	double		read_ms;		/* of a read of data */
	double		reads_per_s;
	double		commits_per_s;
	double		rollbacks_per_s;
	double		deadlocks_per_s;
	double		temp_bytes_per_s;
	double		wal_bytes_per_s;
} PgscaleNowPeriod;

/* A session, or a prepared transaction.  Texts are NULL where they are not known. */
typedef struct PgscaleNowSession
{
	int			pid;			/* 0: a prepared transaction */
	Oid			role;			/* of the session */
	const char *gid;			/* of that, quoted as a literal */
	const char *gid_shown;		/* the same, cut, on one line */
	const char *database;		/* of that */
	const char *application;
	const char *backend_type;
	const char *state;
	const char *event_type;
	const char *event;
	const char *query;			/* its beginning, on one line */
	const char *command;		/* its first word, in capitals */
	double		age_s;			/* of its statement */
	double		transaction_s;
	double		transaction_least_s;	/* at least that, where no more may be
										 * shown */
	double		state_s;		/* since it is in that state */
	double		cpus;			/* that it uses, with its parallel workers */
	double		demand;			/* the same, if it did not queue for them */
	double		cpu_s;			/* that these ran or queued since they began */
	double		ran_s;			/* that these ran */
	double		workers;

	/* of a root blocker */
	double		waiters;
	double		rows;			/* of them, those that wait for a row */
	double		longest_s;
	const char *locktype;
	const char *relation;
	bool		waits;			/* for a lock itself: a cycle */
	double		waited_ago_s;	/* since it waited for such a lock itself, of
								 * late; NaN: it did not */
	double		maintenance;	/* of the waiters, commands that the load does
								 * not feel */
	double		first_s;		/* as longest_s, of those that it is in the
								 * way of itself */
	double		queue_s;		/* of the waiters for a row, the age of the
								 * oldest statement; 0: none is known */
	double		row_wait_s;		/* and of the oldest wait for the row as this
								 * root has it */
	double		holders;		/* that are in the way of the gate, with it */
	int			gate_pid;		/* of those that it is in the way of, the one
								 * or one of them */
	Oid			gate_role;
	double		behind_gate;	/* that wait only because that one does */
	const char *gate_application;
	const char *gate_type;		/* as backend_type */
	const char *gate_query;
	int			npinning;		/* that may have pinned the page that it waits
								 * for */
	struct PgscaleNowSession *pinning;
} PgscaleNowSession;

#define PGSCALE_NOW_SESSIONS	8

typedef struct PgscaleNowEvidence
{
	PgscaleNowPeriod now;
	PgscaleNowPeriod half_minute;	/* s: 0 if it is not known, or no rule
									 * asks */
	PgscaleNowPeriod usual;		/* s: 0 if it is not known */
	bool		standby;

	double		used;			/* client backends */
	double		idle;
	double		idle_in_transaction;
	double		starting;		/* not authenticated yet */
	double		new;			/* that started in the last 10 s */
	double		max_connections;
	double		reserved;
	const char *application;	/* with the most of them */
	double		application_sessions;
	double		application_idle;

	double		cpus;			/* that the server may use; a quota may end
								 * with a part of one */
	double		queued_fraction;	/* of the sessions' time at the CPUs */
	double		long_computing; /* sessions that compute for 5 s or more */

	bool		flush_measured;
	double		look_s;			/* so long the processes were watched, and */
	double		stuck_flushes;	/* these flushes lasted all of that */

	double		checkpoints_requested;	/* in the last minute, as the next two */
	double		minute_s;		/* its true length; 0: unknown */
	double		minute_wal_bytes;
	double		minute_max_wal_size_bytes;	/* max_wal_size in that minute */
	double		max_wal_size_bytes; /* and as this session has it */
	const char *max_wal_size_wanted;	/* what advice has for it; NULL: no
										 * larger one */
	double		usual_checkpoints_requested;	/* in the usual period */
	const char *checkpointer_event; /* that it waits in; NULL: in none */

	double		wal_size_bytes; /* of the disk of pg_wal, if it has little
								 * space, as the next ones; else NaN */
	double		wal_free_bytes;
	double		wal_used_bytes; /* by pg_wal */
	double		data_size_bytes;	/* of the data directory's disk */
	double		data_free_bytes;
	const char *slot;			/* that keeps most WAL; or NULL */
	bool		slot_active;	/* does a process read from it? */
	double		slot_bytes;		/* that it keeps */
	double		archive_failed_s;	/* since it failed last, if it has not
									 * worked since; else NaN */

	double		sync_wanted;	/* standbys that must confirm a commit */
	double		sync_standbys;	/* connected ones that do */
	double		sync_catching_up;	/* and that will when they have caught up */
	double		sync_flushed;	/* those that confirm commits and have all
								 * that is waited for, but not replayed; NaN:
								 * unknown */
	const char *sync_replaying; /* the name of one of these */
	bool		sync_apply;		/* the server's synchronous_commit is
								 * remote_apply */
	bool		patroni;		/* sets the settings, and pgscale.set() does
								 * not set this one */
	const char *sync_fewer;		/* synchronous_standby_names for those only
								 * that do */
	const char *conflict;		/* what replay waits for: snapshot,
								 * tablespace, lock or pin */
	double		conflict_s;		/* since when; NaN: unknown */
	double		oldest_xid_age;
	const char *oldest_xid_database;
	Oid			oldest_xid_owner;	/* of that database */

	const char *xmin_holder;	/* what keeps the oldest rows from VACUUM:
								 * prepared, slot or session */
	const char *xmin_name;		/* identifies it, quoted as a literal; a pid */
	const char *xmin_shown;		/* the same for people */
	Oid			xmin_role;		/* of the session */
	double		xmin_age;		/* in transactions */
	double		xmin_s;			/* since it was prepared, or so idles; NaN:
								 * unknown */

	const char *limited;		/* whose connections are used up: role or
								 * database */
	const char *limited_name;	/* quoted as an identifier */
	const char *limited_shown;	/* the same for people */
	Oid			limited_role;	/* that role, or the owner of the database */
	double		limited_connections;
	double		limited_idle;

	double		deadlock_timeout_s; /* NaN: there was no deadlock lately */

	double		watched_s;		/* so long, lately, each second is in the
								 * history; NaN: it is not */
	int			nroots;
	PgscaleNowSession roots[PGSCALE_NOW_SESSIONS];
	int			ncomputing;
	PgscaleNowSession computing[PGSCALE_NOW_SESSIONS];
	int			nconflicting;
	PgscaleNowSession conflicting[PGSCALE_NOW_SESSIONS];	/* with replay: those
															 * that can be */
	int			nsessions;
	PgscaleNowSession sessions[PGSCALE_NOW_SESSIONS];
} PgscaleNowEvidence;

/*
 * What keeps rows from VACUUM is forgotten from so many transactions on, and such a time: after a minute no manager of
 * transactions still works at a prepared one.
 */
#define PGSCALE_NOW_FORGOTTEN_XIDS	100000
#define PGSCALE_NOW_FORGOTTEN_S		60

/*
 * Reads what pgscale_internal.now_evidence() has collected, or a test has made up.  What
 * is missing, or of another type, is unknown.
 */
extern void pgscale_now_evidence_read(Jsonb *json, PgscaleNowEvidence *e);

#endif							/* PGSCALE_NOW_EVIDENCE_H */
