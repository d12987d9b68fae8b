/*-------------------------------------------------------------------------
 *
 * now_rules.h
 *	  The rules of diagnosis, and what they find.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_NOW_RULES_H
#define PGSCALE_NOW_RULES_H

#include "postgres.h"

#include "lib/stringinfo.h"

#include "now/now_evidence.h"

typedef enum PgscaleNowCertainty
{
	PGSCALE_NOW_LOW,
	PGSCALE_NOW_MEDIUM,
	PGSCALE_NOW_HIGH
} PgscaleNowCertainty;

typedef struct PgscaleNowFinding
{
	const char *rule;
	PgscaleNowCertainty certainty;
	double		cost;			/* sessions that it slows down or keeps out */
	const char *sentence;
	const char *cure;			/* a statement */
	const char *risk;			/* of the statement */
	int			pid;			/* of the cause; 0: none, or not one */
	StringInfoData evidence;	/* the numbers, as the members of an object */
} PgscaleNowFinding;

#define PGSCALE_NOW_FINDINGS	32

typedef struct PgscaleNowFindings
{
	const char *rule;			/* that is being asked */
	int			n;
	PgscaleNowFinding findings[PGSCALE_NOW_FINDINGS];
} PgscaleNowFindings;

/* A rule adds what it finds; nothing, if all is usual. */
typedef struct PgscaleNowRule
{
	const char *name;			/* NULL ends a list */
	void		(*find) (const PgscaleNowEvidence *e, PgscaleNowFindings *found);
} PgscaleNowRule;

extern const PgscaleNowRule pgscale_now_locks_rules[];
extern const PgscaleNowRule pgscale_now_load_rules[];
extern const PgscaleNowRule pgscale_now_disk_rules[];
extern const PgscaleNowRule pgscale_now_server_rules[];
extern const PgscaleNowRule pgscale_now_transactions_rules[];

/*
 * Does a root hold others up for long enough to be a cause?  Not so where it waits itself, where it
 * has had the lock for as short a time as others before it, or holds an office.
 */
extern bool pgscale_now_blocks(const PgscaleNowEvidence *e, const PgscaleNowSession *root);

/* Is its commit written here, and does it wait only for a standby? */
extern bool pgscale_now_awaits_standby(const PgscaleNowSession *session);

/* Do commits wait for standbys, so that what waits behind them is their victim? */
extern bool pgscale_now_commits_wait(const PgscaleNowEvidence *e);

/* Do deadlocks hold up a session, and half of those that wait for locks, all the time? */
extern bool pgscale_now_deadlocks_hold(const PgscaleNowEvidence *e);

/* Does a cancellation end what it does?  Not so where it idles or waits for its client, or that is not known. */
extern bool pgscale_now_obeys_cancel(const PgscaleNowSession *session);

/* Has replay waited for a lock that a session holds for a second? */
extern bool pgscale_now_waits_for_lock(const PgscaleNowEvidence *e);

/* Is it an autovacuum that must not be ended? */
extern bool pgscale_now_prevents_wraparound(const PgscaleNowSession *session);

/* now_rules.c: the parts of a finding */

/* Adds a finding of the present rule, with its sentence; one more than there is room for replaces the last. */
extern PgscaleNowFinding *pgscale_now_add(PgscaleNowFindings *found, PgscaleNowCertainty certainty, double cost,
										  const char *sentence,...) pg_attribute_printf(4, 5);

extern void pgscale_now_cure(PgscaleNowFinding *f, const char *risk, const char *cure,...) pg_attribute_printf(3, 4);

/*
 * now_rights.c: cures that act.  Each adds to the risk who may run it, unless the current user may.
 */

/* The cure needs this, by what a rule knows of it. */
extern void pgscale_now_needs(PgscaleNowFinding *f, bool may, const char *who);
extern void pgscale_now_needs_latency(PgscaleNowFinding *f);

/* By the owner of a database. */
extern void pgscale_now_needs_owner(PgscaleNowFinding *f, Oid owner);
extern void pgscale_now_needs_vacuum(PgscaleNowFinding *f, Oid owner);

/* It ends sessions of roles that are not known. */
extern void pgscale_now_needs_terminate(PgscaleNowFinding *f);

extern void pgscale_now_cancel(PgscaleNowFinding *f, const PgscaleNowSession *session, const char *risk);
extern void pgscale_now_terminate(PgscaleNowFinding *f, const PgscaleNowSession *session, const char *risk);

/* pg_cancel_backend(), of a session that waits for a lock itself: pgscale.cancel() would refuse. */
extern void pgscale_now_cancel_waiter(PgscaleNowFinding *f, int pid, Oid role, const char *risk);

/* By pgscale.set(), or by the command of Patroni where that has the settings. */
extern void pgscale_now_set(PgscaleNowFinding *f, const PgscaleNowEvidence *e, const char *setting, const char *value, const char *risk);

/* One that is not finite is left out. */
extern void pgscale_now_number(PgscaleNowFinding *f, const char *name, double value);
extern void pgscale_now_text(PgscaleNowFinding *f, const char *name, const char *value);

/* Sessions in a kind of wait: at least so many, this share of the active ones, and this many times the usual number, if that is known. */
extern bool pgscale_now_unusual(const PgscaleNowEvidence *e, double now, double usual, double least, double share, double factor);

/* Sessions that wait for WAL to be written and flushed. */
extern double pgscale_now_wal_waits(const PgscaleNowPeriod *period);

/* Sessions that are ready to run and have no CPU. */
extern double pgscale_now_queued(const PgscaleNowEvidence *e);

/* "pid 4711, nightly_report" */
extern const char *pgscale_now_who(const PgscaleNowSession *session);

/* The beginning of a text in the database's encoding, at most so many bytes. */
extern const char *pgscale_now_beginning(const char *text, int bytes);

/* A session that is in this event, the one that has been at its statement for longest of those that are known; or NULL. */
extern const PgscaleNowSession *pgscale_now_session_in(const PgscaleNowEvidence *e, const char *event);

/* "1 session waits", "8 sessions wait" */
#define PGSCALE_NOW_WAIT(n)		((n) < 1.5 ? "session waits" : "sessions wait")

#endif							/* PGSCALE_NOW_RULES_H */
