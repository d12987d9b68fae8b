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

#include "now/now_rules.h"

/* Of 2.1 billion; autovacuum begins at 200 million, and in haste at 1.6 billion (vacuum_failsafe_age). */
#define OLD_XIDS		1.5e9
#define OLDEST_XIDS		1.9e9

/*
 * replication_wait: a session and three in ten of the active ones wait for a synchronous
 * standby, twice as many as usual.  High, if none that a commit waits for is connected; else medium.
 */
static void
find_replication_wait(const PgscaleNowEvidence *e, PgscaleNowFindings *found)
{
	const double waits = e->now.kinds[PGSCALE_NOW_SYNC_REP];
	const bool	none = e->sync_standbys < 1;
	PgscaleNowFinding *f;

	if (!pgscale_now_unusual(e, waits, e->usual.kinds[PGSCALE_NOW_SYNC_REP], 1, 0.3, 2))
		return;
	f = pgscale_now_add(found, none ? PGSCALE_NOW_HIGH : PGSCALE_NOW_MEDIUM, waits,
						"%.0f %s for a synchronous standby%s", waits, PGSCALE_NOW_WAIT(waits),
						none ? ", and none is connected" : isnan(e->sync_standbys) ? "" : ", which confirms commits late");
	pgscale_now_cure(f, "commits are on this server only: losing it loses them",
					 "CALL pgscale.set('synchronous_standby_names', '', true)");
	pgscale_now_number(f, "waiting_sessions", waits);
	pgscale_now_number(f, "standbys", e->sync_standbys);
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

		if (!pgscale_now_blocks(root) || !pgscale_now_prevents_wraparound(root))
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
	pgscale_now_cure(f, "run it in that database, and first end old transactions and drop unused slots; it reads much",
					 "VACUUM");
	pgscale_now_number(f, "xid_age", e->oldest_xid_age);
	pgscale_now_text(f, "database", e->oldest_xid_database);
}

/*
 * recovery_conflict: on a standby the process that replays WAL waits for queries.  Medium,
 * because which of them it waits for is not known: the one with the oldest snapshot is named.  One that
 * idles in its transaction ignores a cancellation.
 */
static void
find_recovery_conflict(const PgscaleNowEvidence *e, PgscaleNowFindings *found)
{
	const PgscaleNowSession *oldest = e->nconflicting > 0 ? &e->conflicting[0] : NULL;
	PgscaleNowFinding *f;

	if (!e->standby || !e->startup_event || strncmp(e->startup_event, "RecoveryConflict", strlen("RecoveryConflict")) != 0)
		return;
	f = pgscale_now_add(found, PGSCALE_NOW_MEDIUM, 1, "Replay waits for queries (%s)%s%s", e->startup_event,
						oldest ? ", the oldest snapshot is that of " : "", oldest ? pgscale_now_who(oldest) : "");
	if (oldest)
	{
		f->pid = oldest->pid;
		if (pgscale_now_idles_in_transaction(oldest))
			pgscale_now_cure(f, "rolls back what it did; otherwise max_standby_streaming_delay ends it",
							 "SELECT pgscale.terminate(%d)", oldest->pid);
		else
			pgscale_now_cure(f, "its query fails; otherwise max_standby_streaming_delay ends it",
							 "SELECT pgscale.cancel(%d)", oldest->pid);
		pgscale_now_number(f, "transaction_s", oldest->transaction_s);
	}
	else
		pgscale_now_cure(f, "reads only; then cancel the query with the oldest snapshot",
						 "SELECT pid, xact_start, query FROM pg_stat_activity WHERE backend_xmin IS NOT NULL");
	pgscale_now_text(f, "event", e->startup_event);
}

const PgscaleNowRule pgscale_now_server_rules[] = {
	{"replication_wait", find_replication_wait},
	{"wraparound_vacuum", find_wraparound_vacuum},
	{"recovery_conflict", find_recovery_conflict},
	{NULL}
};
