/*-------------------------------------------------------------------------
 *
 * rules_transactions.c
 *	  Rules of diagnosis about transactions that fail, that are forgotten, and about sessions that are refused.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "miscadmin.h"
#include "utils/acl.h"

#include "base/pg_compat.h"
#include "base/texts.h"
#include "now/now_rules.h"

/* What fails a second, and its part of all. */
static double
failing_fraction(const PgscaleNowPeriod *period)
{
	const double all = period->commits_per_s + period->rollbacks_per_s;

	return all > 0 ? period->rollbacks_per_s / all : 0;
}

/*
 * failing_transactions: five transactions a second and a fifth of all end in ROLLBACK, which is four times the usual part and twice the
 * usual number: if only what commits has stopped, it is no cause.  Serialization failures, NOWAIT, timeouts and errors look the same from
 * here.  Not so if most are deadlocks, and rule deadlocks is certain of them.  Clients that end what only reads with ROLLBACK do so
 * always: low where it is not known what is usual, else medium.
 */
static void
find_failing_transactions(const PgscaleNowEvidence *e, PgscaleNowFindings *found)
{
	const bool	known = e->usual.s > 0 && e->usual.commits_per_s + e->usual.rollbacks_per_s > 0;
	const double fraction = failing_fraction(&e->now);
	const double usual = failing_fraction(&e->usual);
	const bool	deadlocks = e->now.deadlocks_per_s >= 0.5 * e->now.rollbacks_per_s;
	PgscaleNowFinding *f;

	if (!(e->now.rollbacks_per_s >= 5) || fraction < (known ? 0.2 : 0.5) ||
		(known && (fraction < 4 * usual || e->now.rollbacks_per_s < 2 * e->usual.rollbacks_per_s)))
		return;
	if (deadlocks && pgscale_now_deadlocks_hold(e))
		return;
	f = pgscale_now_add(found, known ? PGSCALE_NOW_MEDIUM : PGSCALE_NOW_LOW, fraction * e->now.active,
						"%.0f transactions a second are rolled back, %.0f %% of all%s: %s", e->now.rollbacks_per_s, 100 * fraction,
						known ? psprintf(" (usually %.0f %%)", 100 * usual) : "",
						deadlocks ? "most of them by deadlocks" : "the server's log has the errors, if any");
	pgscale_now_cure(f, "reads only, sums since the last reset; what failed, and how, is in the log",
					 "SELECT datname, xact_rollback, deadlocks FROM pg_stat_database ORDER BY 2 DESC");
	pgscale_now_number(f, "rollbacks_per_s", e->now.rollbacks_per_s);
	pgscale_now_number(f, "commits_per_s", e->now.commits_per_s);
	pgscale_now_number(f, "deadlocks_per_s", e->now.deadlocks_per_s);
	if (known)
		pgscale_now_number(f, "usual_fraction", usual);
}

/*
 * forgotten_xmin: a prepared transaction, an unused slot, or an idle transaction has kept rows from VACUUM for 100,000 transactions, and
 * for a minute.  Medium: tables grow, and all scans with them, but nobody waits for it.  Low for a slot, whose time is not known.  One that
 * others wait for is left to rule blocker.
 */
static void
find_forgotten_xmin(const PgscaleNowEvidence *e, PgscaleNowFindings *found)
{
	const char *what = e->xmin_holder;
	const char *shown = e->xmin_shown ? pgscale_now_beginning(e->xmin_shown, 40) : "";
	const char *for_s = isnan(e->xmin_s) ? "" : psprintf(", for %s", pgscale_text_duration(e->xmin_s));
	PgscaleNowFinding *f;

	if (e->standby || !what || !e->xmin_name || e->xmin_age < PGSCALE_NOW_FORGOTTEN_XIDS || e->xmin_s < PGSCALE_NOW_FORGOTTEN_S)
		return;
	for (int i = 0; i < e->nroots; i++)
		if (strcmp(e->roots[i].pid == 0 ? e->roots[i].gid ? e->roots[i].gid : "" : psprintf("%d", e->roots[i].pid), e->xmin_name) == 0 &&
			pgscale_now_blocks(e, &e->roots[i]))
			return;

	f = pgscale_now_add(found, isnan(e->xmin_s) ? PGSCALE_NOW_LOW : PGSCALE_NOW_MEDIUM, 0.5,
						"%s %s keeps VACUUM from the dead rows%s of %.0f transactions%s", strcmp(what, "prepared") == 0 ? "The prepared transaction" :
						strcmp(what, "slot") == 0 ? "The unused replication slot" : "The idle transaction of", shown,
						strcmp(what, "slot") == 0 ? ", or those of catalogs," : "", e->xmin_age, for_s);
	if (strcmp(what, "prepared") == 0)
		pgscale_now_cure(f, "reads only; ask its transaction manager, then COMMIT or ROLLBACK PREPARED in that database",
						 "SELECT * FROM pg_prepared_xacts WHERE gid = %s", e->xmin_name);
	else if (strcmp(what, "slot") == 0)
		pgscale_now_cure(f, "reads only; start its consumer; if that is gone for good, pg_drop_replication_slot()",
						 "SELECT * FROM pg_replication_slots WHERE slot_name = %s", e->xmin_name);
	else
	{
		const PgscaleNowSession holder = {.pid = atoi(e->xmin_name),.role = e->xmin_role};

		f->pid = holder.pid;
		pgscale_now_terminate(f, &holder, "rolls back what it did; if it is a dump or a report, that is lost");
	}
	pgscale_now_text(f, "holder", what);
	pgscale_now_number(f, "xmin_age", e->xmin_age);
	pgscale_now_number(f, "held_s", e->xmin_s);
}

/*
 * connection_limit: a role or a database has as many connections as its CONNECTION LIMIT allows, so another one is refused.  Low, if half
 * of them idle, as those of a pool of that size do; else medium.
 */
static void
find_connection_limit(const PgscaleNowEvidence *e, PgscaleNowFindings *found)
{
	const double free = e->max_connections - e->reserved - e->used;
	const double more = floor(free / 2);
	const bool	role = e->limited && strcmp(e->limited, "role") == 0;
	PgscaleNowFinding *f;

	if (!e->limited)
		return;
	f = pgscale_now_add(found, e->limited_idle >= e->limited_connections / 2 ? PGSCALE_NOW_LOW : PGSCALE_NOW_MEDIUM, 1,
						"All %.0f connections that %s %s may have are used, %.0f of them idle: the next one is refused",
						e->limited_connections, e->limited, e->limited_shown ? pgscale_now_beginning(e->limited_shown, 40) : "", e->limited_idle);
	/* half of what is free is left to others */
	if (more >= 1 && e->limited_name && !e->standby)
	{
		pgscale_now_cure(f, psprintf("more sessions at a time; the limit was %.0f", e->limited_connections),
						 "ALTER %s %s CONNECTION LIMIT %.0f", role ? "ROLE" : "DATABASE", e->limited_name,
						 e->limited_connections + Min(more, e->limited_connections));
		if (role)
			pgscale_now_needs(f, pgscale_may_alter_role(e->limited_role), "a superuser, or a role that may alter it");
		else
			pgscale_now_needs_owner(f, e->limited_role);
	}
	else
		pgscale_now_cure(f, "reads only; end what is not needed, or raise its CONNECTION LIMIT on the primary",
						 "SELECT usename, datname, application_name, state, count(*) FROM pg_stat_activity GROUP BY 1, 2, 3, 4");
	pgscale_now_text(f, "limited", e->limited);
	pgscale_now_number(f, "connections", e->limited_connections);
	pgscale_now_number(f, "idle", e->limited_idle);
}

const PgscaleNowRule pgscale_now_transactions_rules[] = {
	{"failing_transactions", find_failing_transactions},
	{"forgotten_xmin", find_forgotten_xmin},
	{"connection_limit", find_connection_limit},
	{NULL}
};
