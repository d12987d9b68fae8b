/*-------------------------------------------------------------------------
 *
 * rules_locks.c
 *	  Rules of diagnosis about locks: blockers, deadlocks, hot rows, the lock manager's own locks,
 *	  and those of the buffer table.
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

/* What a session does is not known without the privilege, or without track_activities. */
static bool
is_state_known(const PgscaleNowSession *session)
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

static bool
idles_in_transaction(const PgscaleNowSession *session)
{
	return session->state && strncmp(session->state, "idle in transaction", strlen("idle in transaction")) == 0;
}

static bool
is_advisory(const PgscaleNowSession *root)
{
	return root->locktype && strcmp(root->locktype, "advisory") == 0;
}

/* Does it hold up sessions that wait for locks of this kind?  A transaction's stand for those of rows. */
static bool
holds_up(const PgscaleNowSession *root, PgscaleWaitKind kind)
{
	const bool	object = root->locktype && strcmp(root->locktype, "object") == 0;

	switch (kind)
	{
		case PGSCALE_KIND_LOCK_TRANSACTION:
			return root->rows > 0;
		case PGSCALE_KIND_LOCK_ADVISORY:
			return is_advisory(root);
		case PGSCALE_KIND_OTHER_LOCK:
			return object;
		default:
			return !is_advisory(root) && !object;
	}
}

/*
 * How long a root has had its lock, as far as is known: no longer than its transaction lasts, and since it waited
 * for such a lock itself, as one of a queue does whose turn it is; at least since it idles.  Where the
 * age of a transaction is not known, as without track_activities, the longest wait counts.
 */
static double
held_s(const PgscaleNowSession *root)
{
	const double most = is_age_known(root) ? known_age(root) : root->longest_s;
	double		s = isnan(root->waited_ago_s) ? most : Min(most, root->waited_ago_s);

	if (idles_in_transaction(root) && !isnan(root->state_s))
		s = Max(s, Min(most, root->state_s));
	/* who waits for its row waits since it has that one at the latest */
	return Max(s, Min(most, root->row_wait_s));
}

/* Is that more than the age of a transaction, which may have begun in a queue? */
static bool
is_held_known(const PgscaleNowEvidence *e, const PgscaleNowSession *root)
{
	return root->pid == 0 || e->watched_s >= 2 || (idles_in_transaction(root) && root->state_s >= 2);
}

/*
 * Does a session hold an advisory lock as an office, apart from any transaction, so that others wait for it on
 * purpose?  It idles in none, or its transaction is younger than the wait for its lock.  Where nothing is
 * shown of it, it may be one.
 */
static bool
holds_office(const PgscaleNowSession *root)
{
	if (!is_advisory(root) || root->pid == 0)
		return false;
	if (!is_state_known(root) || !root->state)
		return !is_age_known(root);
	return strcmp(root->state, "idle") == 0 || (is_age_known(root) && root->first_s > known_age(root) + 1);
}

/* Sessions that a root holds up, without commands that the load does not feel. */
static double
sessions_hurt(const PgscaleNowSession *root)
{
	return Max(root->waiters - root->maintenance, 0);
}

/* Sessions that wait for locks of that kind, on average over the last seconds; the part that this root has of all waiters. */
static double
recent_waiters(const PgscaleNowEvidence *e, const PgscaleNowSession *root)
{
	const double *kinds = e->now.kinds;
	double		all = 0;
	double		recent;

	if (root->rows > 0)
		recent = kinds[PGSCALE_KIND_LOCK_TRANSACTION] + kinds[PGSCALE_KIND_LOCK_TUPLE];
	else if (is_advisory(root))
		recent = kinds[PGSCALE_KIND_LOCK_ADVISORY];
	else
		recent = kinds[PGSCALE_KIND_LOCK_RELATION];
	for (int i = 0; i < e->nroots; i++)
		all += e->roots[i].waiters;
	return all > 0 ? recent * root->waiters / all : 0;
}

/* A turn in a queue may take 8 s; the history, of ten, has the wait before it. */
#define TURN_S	8

/*
 * A root that has had its lock for two seconds, and either two sessions that have waited for it for a second or
 * one that has waited for five: more than a busy row's transactions take, which follow each
 * other in milliseconds.  Waits that end early, by lock_timeout or statement_timeout, and are tried again,
 * are never that long: after five seconds it is enough that a session waits most of the time.
 *
 * Not so, for half a minute, if its waiters have waited for those before it most of the time.  A wait for a row begins
 * anew with each holder: so not for eight seconds either, if the root has waited for such a lock itself, or if a waiter is
 * at its statement for longer than the root has had the lock, as far as the age of its transaction is known.  Then the
 * queue is the cause, and the session at its turn no more than the others.
 */
bool
pgscale_now_blocks(const PgscaleNowEvidence *e, const PgscaleNowSession *root)
{
	const double held = held_s(root);

	if (root->waits || holds_office(root) || held < 2 || (root->first_s > 2 * held + 1 && held < 30))
		return false;
	if (held < TURN_S && (!isnan(root->waited_ago_s) || (root->pid != 0 && !isnan(root->transaction_s) && root->queue_s > held)))
		return false;
	if ((root->waiters >= 1 && root->longest_s >= 5) || (root->waiters >= 2 && root->longest_s >= 1))
		return true;
	return held >= 5 && recent_waiters(e, root) >= 0.7;
}

bool
pgscale_now_awaits_standby(const PgscaleNowSession *session)
{
	return session->event && strcmp(session->event, "SyncRep") == 0;
}

static bool
session_awaits_client(const PgscaleNowSession *session)
{
	return session->event_type && strcmp(session->event_type, "Client") == 0;
}

bool
pgscale_now_obeys_cancel(const PgscaleNowSession *session)
{
	return is_state_known(session) && !idles_in_transaction(session) && !session_awaits_client(session);
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
	return !idles_in_transaction(session) && session->event_type &&
		(strcmp(session->event_type, "IO") == 0 || strcmp(session->event_type, "LWLock") == 0);
}

static const char *
awaited_of(const PgscaleNowSession *root)
{
	if (root->rows * 2 > root->waiters)
		return "rows";
	if (is_advisory(root))
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

/* It is not rolled back by what is pasted: a manager may have decided to commit it, and would lose a part of its transaction. */
static void
cure_prepared(PgscaleNowFinding *f, const PgscaleNowSession *root)
{
	pgscale_now_cure(f, psprintf("reads only; ask its transaction manager, then COMMIT or ROLLBACK PREPARED in database %s",
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
						 "SELECT process, waiters, activity, query FROM pgscale.blockers");
	else if (!can_be_ended(root))
		pgscale_now_cure(f, psprintf("reads only; then end the %s where it was started", root->backend_type),
						 "SELECT * FROM pg_stat_activity WHERE pid = %d", root->pid);
	else if (!pgscale_now_obeys_cancel(root))
		pgscale_now_terminate(f, root, "rolls back what it did");
	else
		pgscale_now_cancel(f, root, "its statement fails; if its locks remain, terminate it");
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

/* What a root does, and how certain it is that it is the cause. */
static const char *
doing_of(const PgscaleNowEvidence *e, const PgscaleNowSession *root, PgscaleNowCertainty *certainty)
{
	const double active_s = root->age_s > 0 ? root->age_s : root->longest_s;

	*certainty = is_held_known(e, root) && !is_advisory(root) ? PGSCALE_NOW_HIGH : PGSCALE_NOW_MEDIUM;
	if (root->pid == 0)
		return psprintf("prepared %s ago", pgscale_text_duration(root->transaction_s));
	if (is_replay(root))
	{
		*certainty = PGSCALE_NOW_HIGH;
		return "which replays WAL of the primary";
	}
	if (idles_in_transaction(root))
	{
		if (root->state_s < 1)
			*certainty = PGSCALE_NOW_MEDIUM;
		return psprintf("idle in transaction for %s", pgscale_text_duration(isnan(root->state_s) ? root->longest_s : root->state_s));
	}
	if (!is_state_known(root))
	{
		*certainty = is_age_known(root) ? PGSCALE_NOW_MEDIUM : PGSCALE_NOW_LOW;
		return "whose state is not known";
	}
	if (waits_for_server(root))
	{
		*certainty = PGSCALE_NOW_LOW;
		return psprintf("which itself waits for %s %s", root->event_type, root->event ? root->event : "");
	}
	return psprintf("active for %s%s%s%s", pgscale_text_duration(active_s), session_awaits_client(root) ? ", which waits for its client" : "",
					root->query ? ": " : "", root->query ? pgscale_now_beginning(root->query, 40) : "");
}

static void
put_root_numbers(PgscaleNowFinding *f, const PgscaleNowSession *root)
{
	pgscale_now_number(f, "waiters", root->waiters);
	pgscale_now_number(f, "longest_wait_s", root->longest_s);
	pgscale_now_number(f, "held_s", held_s(root));
	pgscale_now_number(f, "transaction_s", root->transaction_s);
	pgscale_now_text(f, "state", root->state);
	pgscale_now_text(f, "locktype", root->locktype);
	pgscale_now_text(f, "relation", root->relation);
	if (root->holders > 1)
		pgscale_now_number(f, "holders", root->holders);
}

/* "pid 4711, psql: ALTER TABLE t" */
static const char *
gate_text(const PgscaleNowSession *root)
{
	const PgscaleNowSession gate = {.pid = root->gate_pid,.application = root->gate_application};

	return psprintf("%s%s%s", pgscale_now_who(&gate), root->gate_query ? ": " : "",
					root->gate_query ? pgscale_now_beginning(root->gate_query, 30) : "");
}

/*
 * Do all that are held up wait because one of them waits for a strong lock, as of ALTER TABLE, while what is in its way
 * would let them pass?  Then that one is what to cancel, if a transaction in its way does its work, or there are several.
 */
static bool
is_gate_the_cause(const PgscaleNowSession *root)
{
	return root->behind_gate >= 1 && root->pid != 0 && !is_replay(root) &&
		root->gate_type && strcmp(root->gate_type, "client backend") == 0 &&
		!(root->backend_type && strcmp(root->backend_type, "autovacuum worker") == 0) &&
		(root->holders > 1 || !idles_in_transaction(root));
}

static void
add_gate(const PgscaleNowEvidence *e, PgscaleNowFindings *found, const PgscaleNowSession *root)
{
	PgscaleNowCertainty certainty;
	const char *doing = doing_of(e, root, &certainty);
	const char *holders = root->holders > 1 ? psprintf("%.0f transactions", root->holders) :
		psprintf("%s, %s", pgscale_now_who(root), doing);
	PgscaleNowFinding *f = pgscale_now_add(found, is_held_known(e, root) ? PGSCALE_NOW_HIGH : PGSCALE_NOW_MEDIUM, root->waiters,
										   "%.0f %s behind %s, which waits for %s", root->behind_gate,
										   PGSCALE_NOW_WAIT(root->behind_gate), gate_text(root), holders);

	f->pid = root->gate_pid;
	pgscale_now_cancel_waiter(f, root->gate_pid, root->gate_role, "its statement fails, and the others go on; try it again with a lock_timeout");
	put_root_numbers(f, root);
}

/* A VACUUM that waits until a page is not pinned has a lock on the table, for which others wait. */
static void
add_pinning(PgscaleNowFindings *found, const PgscaleNowSession *root)
{
	const PgscaleNowSession *pinning = root->pinning;
	const bool	one = root->npinning == 1;
	PgscaleNowFinding *f = pgscale_now_add(found, one ? PGSCALE_NOW_HIGH : PGSCALE_NOW_MEDIUM, sessions_hurt(root),
										   "%.0f %s for VACUUM, pid %d, which waits for a page pinned by %s%s", root->waiters,
										   PGSCALE_NOW_WAIT(root->waiters), root->pid, one ? "" : psprintf("one of %d sessions, oldest ", root->npinning), pgscale_now_who(pinning));

	f->pid = pinning->pid;
	if (!one)
	{
		StringInfoData pids;

		initStringInfo(&pids);
		for (int i = 0; i < root->npinning; i++)
			appendStringInfo(&pids, "%s%d", i > 0 ? ", " : "", pinning[i].pid);
		f->pid = 0;
		pgscale_now_cure(f, "reads only; then end the scan, or the session with an open cursor",
						 "SELECT pid, state, xact_start, query FROM pg_stat_activity WHERE pid IN (%s)", pids.data);
	}
	else if (pgscale_now_obeys_cancel(pinning))
		pgscale_now_cancel(f, pinning, "its statement fails");
	else
		pgscale_now_terminate(f, pinning, "rolls back what it did");
	put_root_numbers(f, root);
	pgscale_now_number(f, "vacuum_pid", root->pid);
}

/* Commands that wait for older transactions to end, which no statement of the load has to wait for. */
static void
add_maintenance(PgscaleNowFindings *found, const PgscaleNowSession *root)
{
	PgscaleNowFinding *f = pgscale_now_add(found, PGSCALE_NOW_LOW, 0.1, "%s waits until %s ends its transaction; no other session waits",
										   gate_text(root), pgscale_now_who(root));

	f->pid = root->pid;
	pgscale_now_cure(f, "reads only; the command goes on by itself when that transaction ends", "SELECT process, waiters, activity, query FROM pgscale.blockers");
	put_root_numbers(f, root);
}

/*
 * blocker: a root that holds others up, see pgscale_now_blocks().  What is usual does not
 * matter: such a wait is never usual.
 *
 * Certainty: high, if the root idles in its transaction, is prepared or executes a statement, and it is known
 * for how long it has had the lock; low, if it itself waits for a disk or an LWLock, where another rule may have the
 * cause; medium, if its client has sent a statement within the last second, it is not known what
 * it does, or the lock is an advisory one, which may be held on purpose; and low if neither is known
 * how long its transaction has lasted: then it may be the latest of many short ones.  One whose
 * commit waits for a standby is replication_wait's.
 */
static void
find_blocker(const PgscaleNowEvidence *e, PgscaleNowFindings *found)
{
	for (int i = 0; i < e->nroots; i++)
	{
		const PgscaleNowSession *root = &e->roots[i];
		PgscaleNowCertainty certainty;
		const char *doing;
		PgscaleNowFinding *f;

		if (!pgscale_now_blocks(e, root) || pgscale_now_prevents_wraparound(root) || holds_up_replay_only(e, root) ||
			pgscale_now_awaits_standby(root))
			continue;
		if (sessions_hurt(root) < 1)
			add_maintenance(found, root);
		else if (root->npinning > 0)
			add_pinning(found, root);
		else if (is_gate_the_cause(root))
			add_gate(e, found, root);
		else
		{
			doing = doing_of(e, root, &certainty);
			f = pgscale_now_add(found, certainty, sessions_hurt(root), "%.0f %s for %s held by %s%s, %s", root->waiters,
								PGSCALE_NOW_WAIT(root->waiters), awaited_of(root), pgscale_now_who(root),
								root->holders > 1 ? psprintf(" and %.0f more", root->holders - 1) : "", doing);
			f->pid = is_replay(root) ? 0 : root->pid;
			if (root->holders > 1)
				pgscale_now_cure(f, "reads only; each of them is in the way: all must end", "SELECT process, waiters, activity, query FROM pgscale.blockers WHERE waiters > 0");
			else
				cure_blocker(f, root);
			put_root_numbers(f, root);
		}
	}
}

/*
 * advisory_lock: two sessions wait for five seconds for an advisory lock that a session has kept outside of its
 * transactions, and twice as many as usual wait for such locks.  Low: the session may be the leader of those that wait
 * for its office, or have forgotten the lock, as behind a pooler.
 */
static void
find_advisory_lock(const PgscaleNowEvidence *e, PgscaleNowFindings *found)
{
	const double now = e->now.kinds[PGSCALE_KIND_LOCK_ADVISORY];
	const double usual = e->usual.kinds[PGSCALE_KIND_LOCK_ADVISORY];

	for (int i = 0; i < e->nroots; i++)
	{
		const PgscaleNowSession *root = &e->roots[i];
		PgscaleNowFinding *f;

		if (!holds_office(root) || root->waits || root->waiters < 2 || root->first_s < 5 || root->waited_ago_s < 2 ||
			(e->usual.s > 0 && now < 2 * usual))
			continue;
		f = pgscale_now_add(found, PGSCALE_NOW_LOW, root->waiters,
							"%.0f sessions wait for an advisory lock that %s keeps outside of transactions: forgotten, or on purpose",
							root->waiters, pgscale_now_who(root));
		f->pid = root->pid;
		pgscale_now_cure(f, psprintf("reads only; if it is forgotten, SELECT pgscale.terminate(%d) frees it", root->pid),
						 "SELECT pid, classid, objid, granted FROM pg_locks WHERE locktype = 'advisory'");
		put_root_numbers(f, root);
	}
}

/* Sessions that wait for locks, on average over a period. */
static double
lock_waits(const PgscaleNowPeriod *period)
{
	const double *kinds = period->kinds;

	return kinds[PGSCALE_KIND_LOCK_TRANSACTION] + kinds[PGSCALE_KIND_LOCK_TUPLE] + kinds[PGSCALE_KIND_LOCK_RELATION] +
		kinds[PGSCALE_KIND_LOCK_ADVISORY];
}

/* Of the sessions that wait for locks at this moment, the part that waits in a cycle or behind one. */
static double
part_in_cycles(const PgscaleNowEvidence *e)
{
	double		in_cycles = 0;
	double		all = 0;

	for (int i = 0; i < e->nroots; i++)
	{
		const PgscaleNowSession *root = &e->roots[i];

		all += root->waiters + root->waits;
		if (root->waits)
			in_cycles += root->waiters + 1;
	}
	return all > 0 ? in_cycles / all : 0;
}

/* One in five seconds, and two: a single one is not yet a storm. */
#define FEWEST_DEADLOCKS	2
#define DEADLOCKS_PER_S		0.2

/* Has the server ended a deadlock in the last seconds, and is that, with those that there are at this moment, one of many? */
static bool
deadlocks_are_many(const PgscaleNowEvidence *e)
{
	const double ended = rint(e->now.deadlocks_per_s * e->now.s);
	double		all = ended;

	for (int i = 0; i < e->nroots; i++)
		all += e->roots[i].waits;
	return ended >= 1 && all >= FEWEST_DEADLOCKS && all >= DEADLOCKS_PER_S * e->now.s;
}

/*
 * Sessions that wait because of deadlocks, on average over the last seconds; 0 if there are few deadlocks.  A deadlock lasts
 * until one of its sessions has waited for deadlock_timeout, so two wait for about that long; the one that closed the cycle
 * for less, if it paused before.  Others wait behind them: the part that does so at this moment, for as much of the time as
 * there is a deadlock.
 */
static double
deadlocked_sessions(const PgscaleNowEvidence *e)
{
	const double at_a_time = e->now.deadlocks_per_s * e->deadlock_timeout_s;
	const double waits = lock_waits(&e->now);

	if (!deadlocks_are_many(e) || !(at_a_time > 0))
		return 0;
	return Min(Max(2 * at_a_time, Min(at_a_time, 1) * part_in_cycles(e) * waits), waits);
}

bool
pgscale_now_deadlocks_hold(const PgscaleNowEvidence *e)
{
	const double held = deadlocked_sessions(e);

	return held >= 1 && held >= 0.5 * lock_waits(&e->now);
}

/*
 * deadlocks: see pgscale_now_deadlocks_hold(), which is high: then no rule names short transactions as the cause of the same waits.
 * Else, if they are twice as many as usual, medium from a quarter of the waits for locks on, and low.  Not even many of
 * them are usual where they hold up most sessions: each is an error.
 */
static void
find_deadlocks(const PgscaleNowEvidence *e, PgscaleNowFindings *found)
{
	const double held = deadlocked_sessions(e);
	const double waits = lock_waits(&e->now);
	const bool	high = pgscale_now_deadlocks_hold(e);
	const char *relation = NULL;
	PgscaleNowFinding *f;

	if (held <= 0 || (!high && e->usual.s > 0 && e->now.deadlocks_per_s < 2 * e->usual.deadlocks_per_s))
		return;
	for (int i = 0; i < e->nroots && !relation; i++)
		if (e->roots[i].waits)
			relation = e->roots[i].relation;
	f = pgscale_now_add(found, high ? PGSCALE_NOW_HIGH : held >= 0.25 * waits ? PGSCALE_NOW_MEDIUM : PGSCALE_NOW_LOW, held,
						"%.1f deadlocks a second, each of up to %g s, hold up %.1f of the %.1f lock waits%s%s",
						e->now.deadlocks_per_s, e->deadlock_timeout_s, held, waits, relation ? ", on " : "",
						relation ? pgscale_now_beginning(relation, 24) : "");
	pgscale_now_cure(f, "reads only; the log has the statements of each deadlock: let all transactions change rows in one order",
					 "SELECT * FROM pgscale.top_waits(now() - interval '1 min', now(), 'query', 5)");
	pgscale_now_number(f, "deadlocks_per_s", e->now.deadlocks_per_s);
	pgscale_now_number(f, "deadlock_timeout_s", e->deadlock_timeout_s);
	pgscale_now_number(f, "held_up_sessions", held);
	pgscale_now_number(f, "waiting_sessions", waits);
	if (e->usual.s > 0)
		pgscale_now_number(f, "usual_deadlocks_per_s", e->usual.deadlocks_per_s);
	pgscale_now_text(f, "relation", relation);
}

/*
 * A queue in turns: three sessions and two in five of the active ones wait for locks of a kind, twice as
 * many as usual, and no root holds its lock for long.  Then it is short transactions that follow
 * each other; but not if most wait because of deadlocks, which are not of advisory locks as a rule.  Two must wait at this
 * moment, too: what a blocker held up until a moment ago is over.
 * Returns how many wait, or 0 if that is not so; and the first relation that is known.
 */
static double
find_turns(const PgscaleNowEvidence *e, PgscaleWaitKind first, PgscaleWaitKind second, const char **relation)
{
	const bool	rows = first == PGSCALE_KIND_LOCK_TRANSACTION;
	const double now = e->now.kinds[first] + (second != first ? e->now.kinds[second] : 0);
	const double usual = e->usual.kinds[first] + (second != first ? e->usual.kinds[second] : 0);
	double		waiting = 0;

	*relation = NULL;
	if (!pgscale_now_unusual(e, now, usual, 3, 0.4, 2) || (first != PGSCALE_KIND_LOCK_ADVISORY && pgscale_now_deadlocks_hold(e)))
		return 0;
	for (int i = 0; i < e->nroots; i++)
	{
		const PgscaleNowSession *root = &e->roots[i];

		if (pgscale_now_blocks(e, root) || (pgscale_now_awaits_standby(root) && pgscale_now_commits_wait(e)) ||
			(first == PGSCALE_KIND_LOCK_ADVISORY && holds_office(root) && !(root->waited_ago_s < 2)))
			return 0;
		if (!holds_up(root, first))
			continue;
		if (!*relation)
			*relation = root->relation;
		waiting += rows ? root->rows : root->waiters;
	}
	return waiting >= 2 ? now : 0;
}

static PgscaleNowFinding *
add_turns(const PgscaleNowEvidence *e, PgscaleNowFindings *found, PgscaleNowCertainty certainty, double n, double usual, const char *what,
		  const char *risk)
{
	PgscaleNowFinding *f = pgscale_now_add(found, certainty, n, "%.0f sessions wait for %s one after another", n, what);

	pgscale_now_cure(f, risk, "SELECT * FROM pgscale.top_waits(now() - interval '1 min', now(), 'query', 5)");
	pgscale_now_number(f, "waiting_sessions", n);
	if (e->usual.s > 0)
		pgscale_now_number(f, "usual_waiting_sessions", usual);
	return f;
}

/*
 * hot_row: a queue in turns for rows.  Medium, because slow commits lengthen each turn, too; low, if half as many sessions
 * wait for WAL: those who are at their turn.
 */
static void
find_hot_row(const PgscaleNowEvidence *e, PgscaleNowFindings *found)
{
	const char *relation;
	const double n = find_turns(e, PGSCALE_KIND_LOCK_TRANSACTION, PGSCALE_KIND_LOCK_TUPLE, &relation);
	PgscaleNowFinding *f;

	if (n == 0)
		return;
	f = add_turns(e, found, pgscale_now_wal_waits(&e->now) >= 0.5 * n ? PGSCALE_NOW_LOW : PGSCALE_NOW_MEDIUM, n,
				  e->usual.kinds[PGSCALE_KIND_LOCK_TRANSACTION] + e->usual.kinds[PGSCALE_KIND_LOCK_TUPLE],
				  psprintf("rows%s%s that short transactions change", relation ? " of " : "", relation ? pgscale_now_beginning(relation, 30) : ""),
				  "reads only; then change such a row last in its transaction, or spread it over several rows");
	pgscale_now_text(f, "relation", relation);
}

/*
 * hot_lock: a queue in turns for a table; or for the one lock of NOTIFY, which a transaction has until its commit is
 * flushed; or by advisory locks, which is low: the application made that queue, maybe on purpose.
 */
static void
find_hot_lock(const PgscaleNowEvidence *e, PgscaleNowFindings *found)
{
	const char *risk = "reads only; then shorten the transactions that take the lock";
	const char *relation;
	double		n = find_turns(e, PGSCALE_KIND_LOCK_RELATION, PGSCALE_KIND_LOCK_RELATION, &relation);

	if (n > 0)
		add_turns(e, found, PGSCALE_NOW_MEDIUM, n, e->usual.kinds[PGSCALE_KIND_LOCK_RELATION],
				  psprintf("a lock on %s that short transactions take", relation ? pgscale_now_beginning(relation, 30) : "a table"), risk);
	n = find_turns(e, PGSCALE_KIND_OTHER_LOCK, PGSCALE_KIND_OTHER_LOCK, &relation);
	if (n > 0 && relation && strcmp(relation, "pg_database") == 0)
		add_turns(e, found, PGSCALE_NOW_MEDIUM, n, e->usual.kinds[PGSCALE_KIND_OTHER_LOCK],
				  "a lock on pg_database, as commits after NOTIFY take it", "reads only; then NOTIFY more rarely, or apart from the work");
	n = find_turns(e, PGSCALE_KIND_LOCK_ADVISORY, PGSCALE_KIND_LOCK_ADVISORY, &relation);
	if (n > 0)
		add_turns(e, found, PGSCALE_NOW_LOW, n, e->usual.kinds[PGSCALE_KIND_LOCK_ADVISORY], "an advisory lock that short transactions take", risk);
}

/*
 * Sessions that wait for a kind of LWLock.  High: on a load that does not contend for it hardly
 * any does, and the queue for CPUs that comes with it is its consequence.
 */
static PgscaleNowFinding *
add_lwlock_finding(const PgscaleNowEvidence *e, PgscaleNowFindings *found, PgscaleWaitKind kind, const char *what)
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
	const double rows = e->now.kinds[PGSCALE_KIND_LOCK_TRANSACTION] + e->now.kinds[PGSCALE_KIND_LOCK_TUPLE];
	const PgscaleNowSession *example = pgscale_now_session_in(e, "LockManager");
	PgscaleNowFinding *f;

	if (rows > e->now.kinds[PGSCALE_KIND_LOCK_MANAGER])
		return;
	f = add_lwlock_finding(e, found, PGSCALE_KIND_LOCK_MANAGER,
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
	PgscaleNowFinding *f = add_lwlock_finding(e, found, PGSCALE_KIND_BUFFER_MAPPING,
											  "the buffer table (LWLock BufferMapping): shared buffers are too small for the reads");

	if (f)
		pgscale_now_cure(f, "reads only; then tune the statement that reads most, or raise shared_buffers (a restart)",
						 "SELECT * FROM pgscale.top_waits(now() - interval '1 min', now(), 'query', 5)");
}

const PgscaleNowRule pgscale_now_locks_rules[] = {
	{"blocker", find_blocker},
	{"advisory_lock", find_advisory_lock},
	{"deadlocks", find_deadlocks},
	{"hot_row", find_hot_row},
	{"hot_lock", find_hot_lock},
	{"lock_manager", find_lock_manager},
	{"buffer_mapping", find_buffer_mapping},
	{NULL}
};
