/*-------------------------------------------------------------------------
 *
 * rules_server.c
 *	  Rules of diagnosis about standbys and the age of transaction IDs.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "utils/builtins.h"

#include "now/now_rules.h"

/* Of 2.1 billion; autovacuum begins at 200 million, and in haste at 1.6 billion (vacuum_failsafe_age). */
#define OLD_XIDS		1.5e9
#define OLDEST_XIDS		1.9e9

/* "a synchronous standby", "2 synchronous standbys" */
static const char *
awaited_standbys(double wanted)
{
	return wanted < 1.5 ? "a synchronous standby" : psprintf("%.0f synchronous standbys", wanted);
}

/* What is known of those that must confirm a commit. */
static const char *
standbys_text(const PgscaleNowEvidence *e, double wanted)
{
	const double confirm = e->sync_standbys;
	const double late = e->sync_catching_up;
	const char *catch_up;

	if (isnan(confirm))
		return "";
	if (confirm >= wanted)
		return wanted < 1.5 ? ", which confirms commits late" : ", which confirm commits late";
	if (confirm < 1 && late < 1)
		return ", and none is connected";
	if (wanted < 1.5)
		return ", which must catch up first";
	catch_up = late < 1 ? "" : psprintf("; %.0f more must catch up first", late);
	return confirm < 1 ? psprintf(", and none is ready%s", catch_up) : psprintf(", and only %.0f %s connected%s", confirm, confirm < 1.5 ? "is" : "are", catch_up);
}

static double
standbys_wanted(const PgscaleNowEvidence *e)
{
	return isnan(e->sync_wanted) ? 1 : e->sync_wanted;
}

/* Sessions that wait for locks of those whose commits wait for a standby. */
static double
behind_commits(const PgscaleNowEvidence *e)
{
	double		n = 0;

	for (int i = 0; i < e->nroots; i++)
		if (pgscale_now_awaits_standby(&e->roots[i]))
			n += e->roots[i].waiters;
	return n;
}

static bool
standbys_are_missing(const PgscaleNowEvidence *e)
{
	return e->sync_standbys < standbys_wanted(e);
}

/*
 * A session waits for synchronous standbys, and with those that wait for locks of
 * such sessions it is three in ten of the active ones, twice as many as usual.  If fewer standbys are
 * connected than a commit waits for, one session is enough: it waits until they are back, and so
 * will each one that commits.  Not so if no commit has to wait any more.
 */
bool
pgscale_now_commits_wait(const PgscaleNowEvidence *e)
{
	const double waits = e->now.kinds[PGSCALE_KIND_SYNC_REP];

	/* an average: of a single session, the moments before and after */
	if (standbys_wanted(e) < 1 || waits < 0.9)
		return false;
	return standbys_are_missing(e) ||
		pgscale_now_unusual(e, waits + behind_commits(e), e->usual.kinds[PGSCALE_KIND_SYNC_REP], 1, 0.3, 2);
}

/* The standbys have the WAL and have not replayed it, for which commits with remote_apply wait. */
static void
cure_late_replay(PgscaleNowFinding *f, const PgscaleNowEvidence *e)
{
	const char *standby = e->sync_replaying ? pgscale_now_beginning(e->sync_replaying, 24) : "the standby";

	pgscale_now_set(f, e, "synchronous_commit", "on",
					psprintf("later commits wait until they are flushed; to free these, see pgscale.now of %s", standby));
}

/*
 * replication_wait: see pgscale_now_commits_wait().
 *
 * High, if standbys are missing, or have not caught up; and if they have all that is waited for and have
 * not replayed it, where the server's setting is remote_apply: where only some sessions have set that, a
 * standby that is about to confirm a flush looks the same.  Else medium.
 */
static void
find_replication_wait(const PgscaleNowEvidence *e, PgscaleNowFindings *found)
{
	const double waits = e->now.kinds[PGSCALE_KIND_SYNC_REP];
	const double held_up = waits + behind_commits(e);
	const double wanted = standbys_wanted(e);
	const bool	missing = standbys_are_missing(e);
	const bool	replaying = !missing && e->sync_apply && e->sync_flushed >= wanted;
	PgscaleNowFinding *f;

	if (!pgscale_now_commits_wait(e))
		return;
	f = pgscale_now_add(found, missing || replaying ? PGSCALE_NOW_HIGH : PGSCALE_NOW_MEDIUM, held_up, "%.0f %s for %s%s", held_up,
						PGSCALE_NOW_WAIT(held_up), awaited_standbys(wanted),
						replaying ? ", which has the WAL but has not replayed it (remote_apply)" : standbys_text(e, wanted));
	if (replaying)
		cure_late_replay(f, e);
	else if (e->patroni)
		pgscale_now_cure(f, "reads only; Patroni sets who must confirm: patronictl edit-config, synchronous_mode and _strict",
						 "SELECT application_name, state, sync_state, flush_lsn FROM pg_stat_replication");
	else if (e->sync_standbys >= 1 && missing && e->sync_fewer)
		pgscale_now_set(f, e, "synchronous_standby_names", e->sync_fewer, "commits are on fewer servers; set it back when the others are there");
	else
		pgscale_now_set(f, e, "synchronous_standby_names", "", "commits are on this server only: losing it loses them; set it back when a standby is there");
	pgscale_now_number(f, "waiting_sessions", waits);
	pgscale_now_number(f, "held_up_sessions", held_up);
	pgscale_now_number(f, "standbys_wanted", e->sync_wanted);
	pgscale_now_number(f, "standbys", e->sync_standbys);
	if (!isnan(e->sync_standbys))
		pgscale_now_number(f, "standbys_catching_up", e->sync_catching_up);
	pgscale_now_number(f, "standbys_to_replay", e->sync_flushed);
}

/*
 * wraparound_vacuum: an autovacuum that prevents wraparound holds others up, which is no
 * reason to end it: high.  Or a database is older than 1.5 billion transactions: medium; high
 * from 1.9 billion on.
 */
static void
find_wraparound_vacuum(const PgscaleNowEvidence *e, PgscaleNowFindings *found)
{
	PgscaleNowFinding *f;

	for (int i = 0; i < e->nroots; i++)
	{
		const PgscaleNowSession *root = &e->roots[i];

		if (!pgscale_now_blocks(e, root) || !pgscale_now_prevents_wraparound(root))
			continue;
		f = pgscale_now_add(found, PGSCALE_NOW_HIGH, root->waiters,
							"%.0f %s for autovacuum, pid %d, which prevents wraparound: do not end it", root->waiters,
							PGSCALE_NOW_WAIT(root->waiters), root->pid);
		pgscale_now_cure(f, "reads only; cancel what waits and run it later: the vacuum would start again",
						 "SELECT * FROM pg_stat_progress_vacuum WHERE pid = %d", root->pid);
		pgscale_now_number(f, "waiters", root->waiters);
		pgscale_now_number(f, "vacuum_pid", root->pid);
		pgscale_now_text(f, "query", root->query);
	}
	if (e->standby || !(e->oldest_xid_age >= OLD_XIDS))
		return;
	f = pgscale_now_add(found, e->oldest_xid_age >= OLDEST_XIDS ? PGSCALE_NOW_HIGH : PGSCALE_NOW_MEDIUM, 1,
						"Database %s is %.1f billion transactions old; at 2.1 the server stops writing",
						e->oldest_xid_database ? pgscale_now_beginning(e->oldest_xid_database, 30) : "(unknown)", e->oldest_xid_age / 1e9);
	pgscale_now_cure(f, "run it in that database; it reads much; first end what keeps old rows: transactions, unused slots",
					 "VACUUM");
	pgscale_now_needs_vacuum(f, e->oldest_xid_owner);
	pgscale_now_number(f, "xid_age", e->oldest_xid_age);
	pgscale_now_text(f, "database", e->oldest_xid_database);
}

static bool
replay_waits_for(const PgscaleNowEvidence *e, const char *conflict)
{
	return e->standby && e->conflict && strcmp(e->conflict, conflict) == 0;
}

bool
pgscale_now_waits_for_lock(const PgscaleNowEvidence *e)
{
	return replay_waits_for(e, "lock") && e->conflict_s >= 1;
}

/*
 * Ends what a session does that is in the way of replay.  One that idles in its transaction, or
 * waits for its client, ignores a cancellation; one that waits for a lock is refused by pgscale.cancel().
 */
static void
cure_conflict(PgscaleNowFinding *f, const PgscaleNowSession *session)
{
	f->pid = session->pid;
	pgscale_now_number(f, "transaction_s", session->transaction_s);
	if (!pgscale_now_obeys_cancel(session))
		pgscale_now_terminate(f, session, "rolls back what it did; otherwise max_standby_streaming_delay ends it");
	else if (session->event_type && strcmp(session->event_type, "Lock") == 0)
		pgscale_now_cancel_waiter(f, session->pid, session->role,
								  "its query fails; if it waits for replay, the server does this after deadlock_timeout");
	else
		pgscale_now_cancel(f, session, "its query fails; otherwise max_standby_streaming_delay ends it");
}

/* Those with a snapshot, by the oldest one of each database. */
static PgscaleNowFinding *
add_snapshot_conflict(const PgscaleNowEvidence *e, PgscaleNowFindings *found)
{
	PgscaleNowFinding *f;

	if (e->nconflicting == 1)
	{
		f = pgscale_now_add(found, PGSCALE_NOW_MEDIUM, 1, "Replay waits for an old snapshot, the oldest is that of %s",
							pgscale_now_who(&e->conflicting[0]));
		cure_conflict(f, &e->conflicting[0]);
		return f;
	}
	f = pgscale_now_add(found, PGSCALE_NOW_MEDIUM, 1, "Replay waits for an old snapshot%s",
						e->nconflicting == 0 ? "" : psprintf(", in one of %d databases", e->nconflicting));
	pgscale_now_cure(f, "reads only: the oldest snapshot of each database; then cancel that of the right one",
					 "SELECT DISTINCT ON (datid) datname, pid, state, xact_start, query FROM pg_stat_activity\n"
					 "WHERE backend_xmin IS NOT NULL ORDER BY datid, age(backend_xmin) DESC");
	return f;
}

static PgscaleNowFinding *
add_lock_conflict(const PgscaleNowEvidence *e, PgscaleNowFindings *found)
{
	const PgscaleNowSession *holder = e->nconflicting > 0 ? &e->conflicting[0] : NULL;
	PgscaleNowFinding *f = pgscale_now_add(found, holder ? PGSCALE_NOW_HIGH : PGSCALE_NOW_MEDIUM, 1, "Replay waits for a lock held by %s%s",
										   holder ? pgscale_now_who(holder) : "a session",
										   e->nconflicting < 2 ? "" : psprintf(" and %d more", e->nconflicting - 1));

	if (holder)
		cure_conflict(f, holder);
	else
		pgscale_now_cure(f, "reads only; then cancel the root", "SELECT process, waiters, activity, query FROM pgscale.blockers");
	pgscale_now_number(f, "waited_s", e->conflict_s);
	return f;
}

/* Which session has the page pinned is not known, unless there is one only. */
static PgscaleNowFinding *
add_pin_conflict(const PgscaleNowEvidence *e, PgscaleNowFindings *found)
{
	PgscaleNowFinding *f = pgscale_now_add(found, PGSCALE_NOW_MEDIUM, 1, "Replay waits for a page that a scan or a cursor of %s has pinned",
										   e->nconflicting == 1 ? pgscale_now_who(&e->conflicting[0]) : "a session");

	if (e->nconflicting == 1)
		cure_conflict(f, &e->conflicting[0]);
	else
		pgscale_now_cure(f, "reads only; then cancel the scan, or terminate the session with the cursor",
						 "SELECT pid, state, xact_start, query FROM pg_stat_activity WHERE xact_start IS NOT NULL ORDER BY 3");
	return f;
}

static PgscaleNowFinding *
add_tablespace_conflict(const PgscaleNowEvidence *e, PgscaleNowFindings *found)
{
	const PgscaleNowSession *oldest = e->nconflicting > 0 ? &e->conflicting[0] : NULL;
	PgscaleNowFinding *f = pgscale_now_add(found, PGSCALE_NOW_MEDIUM, 1,
										   "Replay drops a tablespace with temporary files, and waits for all transactions%s%s",
										   oldest ? ": the oldest is that of " : "", oldest ? pgscale_now_who(oldest) : "");

	if (oldest)
		cure_conflict(f, oldest);
	else
		pgscale_now_cure(f, "reads only; then cancel the oldest; take the tablespace out of temp_tablespaces",
						 "SELECT pid, state, xact_start, query FROM pg_stat_activity WHERE xact_start IS NOT NULL ORDER BY 3");
	return f;
}

/*
 * recovery_conflict: on a standby the process that replays WAL waits for sessions: for snapshots,
 * for all transactions, for a lock, for a second or more, or for a page that is pinned.
 *
 * High for a lock, whose holder is known.  Else medium: those are named that can be in the way.  A
 * snapshot conflicts if it is the oldest of the database that is replayed; which one that
 * is is known only if no other one has sessions with snapshots.
 */
static void
find_recovery_conflict(const PgscaleNowEvidence *e, PgscaleNowFindings *found)
{
	PgscaleNowFinding *f;

	if (pgscale_now_waits_for_lock(e))
		f = add_lock_conflict(e, found);
	else if (replay_waits_for(e, "snapshot"))
		f = add_snapshot_conflict(e, found);
	else if (replay_waits_for(e, "pin"))
		f = add_pin_conflict(e, found);
	else if (replay_waits_for(e, "tablespace"))
		f = add_tablespace_conflict(e, found);
	else
		return;
	pgscale_now_text(f, "conflict", e->conflict);
}

const PgscaleNowRule pgscale_now_server_rules[] = {
	{"replication_wait", find_replication_wait},
	{"wraparound_vacuum", find_wraparound_vacuum},
	{"recovery_conflict", find_recovery_conflict},
	{NULL}
};
