/*-------------------------------------------------------------------------
 *
 * rules_locks.c
 *	  Rules of diagnosis about locks: blockers, hot rows, the lock manager's own locks, and
 *	  those of the buffer table.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "base/texts.h"
#include "now/now_rules.h"

bool
pgscale_now_prevents_wraparound(const PgscaleNowSession *session)
{
	/* the server's own mark, in pg_stat_activity.query */
	return session->query && session->backend_type && strcmp(session->backend_type, "autovacuum worker") == 0 &&
		strstr(session->query, "(to prevent wraparound)") != NULL;
}

bool
pgscale_now_state_is_known(const PgscaleNowSession *session)
{
	return session->state && strcmp(session->state, "disabled") != 0 &&
		!(session->backend_type && strcmp(session->backend_type, "client backend") == 0 && strcmp(session->state, "client backend") == 0);
}

static bool
is_age_known(const PgscaleNowSession *root)
{
	return !isnan(root->transaction_s) || !isnan(root->transaction_least_s);
}

static double
known_age(const PgscaleNowSession *root)
{
	return isnan(root->transaction_s) ? root->transaction_least_s : root->transaction_s;
}

/*
 * A transaction of two seconds, and either two sessions that have waited for it for a second or
 * one that has waited for five: more than a busy row's transactions take, which follow each
 * other in milliseconds.  A session that is idle, and in no transaction, has an advisory lock for
 * as long as it likes, as the leader of several that wait for that office: nothing is wrong.  Where the
 * age of a transaction is not known, as without track_activities, the longest wait counts: then it may
 * be a short one, too.
 */
bool
pgscale_now_blocks(const PgscaleNowSession *root)
{
	const double held_s = is_age_known(root) ? known_age(root) : root->longest_s;
	const bool	advisory = root->locktype && strcmp(root->locktype, "advisory") == 0;
	const bool	elected = root->state && pgscale_now_state_is_known(root) ? strcmp(root->state, "idle") == 0 :
		advisory && root->pid != 0 && !is_age_known(root);

	return !root->waits && !elected && held_s >= 2 &&
		((root->waiters >= 1 && root->longest_s >= 5) || (root->waiters >= 2 && root->longest_s >= 1));
}

bool
pgscale_now_idles_in_transaction(const PgscaleNowSession *session)
{
	return session->state && strncmp(session->state, "idle in transaction", strlen("idle in transaction")) == 0;
}

static bool
is_replay(const PgscaleNowSession *session)
{
	return session->backend_type && strcmp(session->backend_type, "startup") == 0;
}

/* Does it wait for what another rule may name as the cause? */
static bool
waits_for_server(const PgscaleNowSession *session)
{
	return !pgscale_now_idles_in_transaction(session) && session->event_type &&
		(strcmp(session->event_type, "IO") == 0 || strcmp(session->event_type, "LWLock") == 0 ||
		 (session->event && strcmp(session->event, "SyncRep") == 0));
}

static const char *
awaited_of(const PgscaleNowSession *root)
{
	if (root->rows * 2 > root->waiters)
		return "rows";
	if (root->locktype && strcmp(root->locktype, "advisory") == 0)
		return "an advisory lock";
	if (root->relation)
		return psprintf("a lock on %s", pgscale_now_beginning(root->relation, 30));
	return "a lock";
}

/* May pgscale.cancel() and pgscale.terminate() end it?  Where its type is not known, they say. */
static bool
can_be_ended(const PgscaleNowSession *session)
{
	return !session->backend_type || strcmp(session->backend_type, "client backend") == 0 ||
		strcmp(session->backend_type, "autovacuum worker") == 0;
}

/* A gid that does not fit on a line, or is on several, is to be read where it is not cut. */
static void
cure_prepared(PgscaleNowFinding *f, const PgscaleNowSession *root)
{
	bool		plain = root->gid && strlen(root->gid) <= 97;

	for (const char *c = root->gid; plain && *c; c++)
		plain = (unsigned char) *c >= ' ' && *c != 0x7F;
	if (plain)
		pgscale_now_cure(f, psprintf("run it in database %s; undoes the transaction; COMMIT PREPARED keeps it",
									 root->database ? root->database : "(unknown)"),
						 "ROLLBACK PREPARED %s", root->gid);
	else
		pgscale_now_cure(f, psprintf("reads only; then ROLLBACK PREPARED or COMMIT PREPARED with its gid in database %s",
									 root->database ? root->database : "(unknown)"),
						 "SELECT transaction, prepared, owner, database, gid FROM pg_prepared_xacts ORDER BY prepared");
}

/* The statement that ends what holds the others up, and what that costs. */
static void
cure_blocker(PgscaleNowFinding *f, const PgscaleNowSession *root)
{
	if (root->pid == 0)
		cure_prepared(f, root);
	else if (is_replay(root))
		pgscale_now_cure(f, "reads only; the lock is a transaction's of the primary, and ends with that",
						 "SELECT * FROM pgscale.blockers");
	else if (!can_be_ended(root))
		pgscale_now_cure(f, psprintf("reads only; then end the %s where it was started", root->backend_type),
						 "SELECT * FROM pg_stat_activity WHERE pid = %d", root->pid);
	else if (pgscale_now_idles_in_transaction(root) || !pgscale_now_state_is_known(root))
		pgscale_now_cure(f, "rolls back what it did", "SELECT pgscale.terminate(%d)", root->pid);
	else
		pgscale_now_cure(f, "its statement fails; if its locks remain, terminate it",
						 "SELECT pgscale.cancel(%d)", root->pid);
}

/* Then recovery_conflict names it. */
static bool
holds_up_replay_only(const PgscaleNowEvidence *e, const PgscaleNowSession *root)
{
	for (int i = 0; pgscale_now_waits_for_lock(e) && root->waiters < 2 && i < e->nconflicting; i++)
		if (e->conflicting[i].pid == root->pid)
			return true;
	return false;
}

/*
 * blocker: a root that holds others up, see pgscale_now_blocks().  What is usual does not
 * matter: such a wait is never usual.
 *
 * Certainty: high, if the root idles in its transaction, is prepared or executes a statement;
 * low, if it itself waits for a disk, an LWLock or a standby, where another rule may have the
 * cause; medium, if its client has sent a statement within the last second, or it is not known what
 * it does, and low if neither is known how long its transaction has lasted: then it may be the
 * latest of many short ones.
 */
static void
find_blocker(const PgscaleNowEvidence *e, PgscaleNowFindings *found)
{
	for (int i = 0; i < e->nroots; i++)
	{
		const PgscaleNowSession *root = &e->roots[i];
		PgscaleNowCertainty certainty = PGSCALE_NOW_HIGH;
		const char *doing;
		PgscaleNowFinding *f;

		if (!pgscale_now_blocks(root) || pgscale_now_prevents_wraparound(root) || holds_up_replay_only(e, root))
			continue;
		if (root->pid == 0)
			doing = psprintf("prepared %s ago", pgscale_text_duration(root->transaction_s));
		else if (is_replay(root))
			doing = "which replays WAL of the primary";
		else if (pgscale_now_idles_in_transaction(root))
		{
			doing = psprintf("idle in transaction for %s",
							 pgscale_text_duration(isnan(root->state_s) ? root->longest_s : root->state_s));
			if (root->state_s < 1)
				certainty = PGSCALE_NOW_MEDIUM;
		}
		else if (!pgscale_now_state_is_known(root))
		{
			doing = "whose state is not known";
			certainty = is_age_known(root) ? PGSCALE_NOW_MEDIUM : PGSCALE_NOW_LOW;
		}
		else if (waits_for_server(root))
		{
			doing = psprintf("which itself waits for %s %s", root->event_type, root->event ? root->event : "");
			certainty = PGSCALE_NOW_LOW;
		}
		else
			doing = psprintf("active for %s%s%s", pgscale_text_duration(root->age_s > 0 ? root->age_s : root->longest_s),
							 root->query ? ": " : "", root->query ? pgscale_now_beginning(root->query, 40) : "");

		f = pgscale_now_add(found, certainty, root->waiters, "%.0f %s for %s held by %s, %s", root->waiters,
							PGSCALE_NOW_WAIT(root->waiters), awaited_of(root), pgscale_now_who(root), doing);
		f->pid = is_replay(root) ? 0 : root->pid;
		cure_blocker(f, root);
		pgscale_now_number(f, "waiters", root->waiters);
		pgscale_now_number(f, "longest_wait_s", root->longest_s);
		pgscale_now_number(f, "transaction_s", root->transaction_s);
		pgscale_now_text(f, "state", root->state);
		pgscale_now_text(f, "locktype", root->locktype);
		pgscale_now_text(f, "relation", root->relation);
	}
}

/*
 * hot_row: three sessions and two in five of the active ones wait for rows, twice as many as
 * usual, and no root holds its lock for long.  Then it is short transactions that follow each
 * other.  Two must wait at this moment, too: what a blocker held up until a moment ago is over.
 * Medium, because slow commits lengthen each of them, too.
 */
static void
find_hot_row(const PgscaleNowEvidence *e, PgscaleNowFindings *found)
{
	const double now = e->now.kinds[PGSCALE_NOW_LOCK_TRANSACTION] + e->now.kinds[PGSCALE_NOW_LOCK_TUPLE];
	const double usual = e->usual.kinds[PGSCALE_NOW_LOCK_TRANSACTION] + e->usual.kinds[PGSCALE_NOW_LOCK_TUPLE];
	const char *relation = NULL;
	double		waiting = 0;
	PgscaleNowFinding *f;

	if (!pgscale_now_unusual(e, now, usual, 3, 0.4, 2))
		return;
	for (int i = 0; i < e->nroots; i++)
	{
		if (pgscale_now_blocks(&e->roots[i]))
			return;
		if (!relation && e->roots[i].rows > 0)
			relation = e->roots[i].relation;
		waiting += e->roots[i].rows;
	}
	if (waiting < 2)
		return;
	f = pgscale_now_add(found, PGSCALE_NOW_MEDIUM, now, "%.0f sessions wait for rows%s%s that short transactions change one after another",
						now, relation ? " of " : "", relation ? pgscale_now_beginning(relation, 30) : "");
	pgscale_now_cure(f, "reads only; then change such a row last in its transaction, or spread it over several rows",
					 "SELECT * FROM pgscale.top_waits(now() - interval '1 min', now(), 'query', 5)");
	pgscale_now_number(f, "waiting_sessions", now);
	if (e->usual.s > 0)
		pgscale_now_number(f, "usual_waiting_sessions", usual);
	pgscale_now_text(f, "relation", relation);
}

/*
 * Sessions that wait for a kind of LWLock.  High: on a load that does not contend for it hardly
 * any does, and the queue for CPUs that comes with it is its consequence.
 */
static PgscaleNowFinding *
add_lwlock_finding(const PgscaleNowEvidence *e, PgscaleNowFindings *found, PgscaleNowKind kind, const char *what)
{
	const double now = e->now.kinds[kind];
	const double usual = e->usual.kinds[kind];
	PgscaleNowFinding *f;

	if (!pgscale_now_unusual(e, now, usual, 2, 0.05, 2))
		return NULL;
	f = pgscale_now_add(found, PGSCALE_NOW_HIGH, now, "%.0f sessions wait for %s", now, what);
	pgscale_now_number(f, "waiting_sessions", now);
	pgscale_now_number(f, "active_sessions", e->now.active);
	if (e->usual.s > 0)
		pgscale_now_number(f, "usual_waiting_sessions", usual);
	return f;
}

/*
 * lock_manager: two sessions and a twentieth of the active ones wait for the lock table's own
 * locks, twice as many as usual: statements lock more relations than a session has fast-path
 * slots for, or take strong locks.  Not so if more wait for rows: then it is one row's lock that
 * they contend for.
 */
static void
find_lock_manager(const PgscaleNowEvidence *e, PgscaleNowFindings *found)
{
	const double rows = e->now.kinds[PGSCALE_NOW_LOCK_TRANSACTION] + e->now.kinds[PGSCALE_NOW_LOCK_TUPLE];
	const PgscaleNowSession *example = pgscale_now_session_in(e, "LockManager");
	PgscaleNowFinding *f;

	if (rows > e->now.kinds[PGSCALE_NOW_LOCK_MANAGER])
		return;
	f = add_lwlock_finding(e, found, PGSCALE_NOW_LOCK_MANAGER,
						   "the lock manager (LWLock LockManager): statements lock too many relations");
	if (!f)
		return;
	pgscale_now_cure(f, "reads only; then prune partitions, drop unused indexes, or use fewer sessions",
					 "SELECT * FROM pgscale.top_waits(now() - interval '1 min', now(), 'query', 5)");
	if (example)
	{
		pgscale_now_number(f, "example_pid", example->pid);
		pgscale_now_text(f, "example_query", example->query);
	}
}

/*
 * buffer_mapping: the same thresholds for the locks of the buffer table: sessions replace
 * pages in shared buffers faster than its partitions allow.
 */
static void
find_buffer_mapping(const PgscaleNowEvidence *e, PgscaleNowFindings *found)
{
	PgscaleNowFinding *f = add_lwlock_finding(e, found, PGSCALE_NOW_BUFFER_MAPPING,
											  "the buffer table (LWLock BufferMapping): shared buffers are too small for the reads");

	if (f)
		pgscale_now_cure(f, "reads only; then tune the statement that reads most, or raise shared_buffers (a restart)",
						 "SELECT * FROM pgscale.top_waits(now() - interval '1 min', now(), 'query', 5)");
}

const PgscaleNowRule pgscale_now_locks_rules[] = {
	{"blocker", find_blocker},
	{"hot_row", find_hot_row},
	{"lock_manager", find_lock_manager},
	{"buffer_mapping", find_buffer_mapping},
	{NULL}
};
