/*-------------------------------------------------------------------------
 *
 * rules_load.c
 *	  Rules of diagnosis about CPUs, connections and temporary files.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "utils/builtins.h"

#include "base/texts.h"
#include "now/now_rules.h"

/* Commands that take long by nature, whatever comments are before them. */
static bool
is_maintenance(const PgscaleNowSession *session)
{
	static const char *const commands[] = {
		"COPY", "CREATE", "REINDEX", "VACUUM", "ANALYZE", "CLUSTER", "REFRESH", "ALTER", "REPACK"
	};

	for (int i = 0; session->command && i < lengthof(commands); i++)
		if (strcmp(session->command, commands[i]) == 0)
			return true;
	return false;
}

/* "2", or by a quota "1.5" */
static const char *
cpus_text(const PgscaleNowEvidence *e)
{
	return psprintf("%g %s", rint(e->cpus * 10) / 10, rint(e->cpus * 10) == 10 ? "CPU" : "CPUs");
}

/*
 * Does it use CPUs, rather than wait for one?  Half a CPU in the look, which may be of 15 ms.  That is a
 * short time: a quarter is enough of a process that in its life ran for half of the time that the
 * statement lasts.  In any case it must have run or queued for as long as that.
 */
static bool
burns_cpu(const PgscaleNowSession *s, double cpus)
{
	if (s->cpu_s < 0.5 * s->age_s)
		return false;
	return cpus >= 0.5 || (cpus >= 0.25 && s->ran_s >= 0.5 * s->age_s);
}

/* Do sessions queue, and more of them than usual? */
static bool
queue_is_unusual(const PgscaleNowEvidence *e)
{
	return pgscale_now_queued(e) >= Max(1, 0.1 * e->cpus) &&
		(e->usual.s <= 0 || e->now.kinds[PGSCALE_KIND_CPU] >= e->usual.kinds[PGSCALE_KIND_CPU] + 0.5);
}

/*
 * cpu_runaway: a statement that has lasted for 5 s uses half a CPU or more by the kernel's
 * counts, while the others are short (no more than a third of the active sessions are so long
 * at theirs), and it matters: it would take two fifths of the server's CPUs, or one session and a
 * tenth of the CPUs queue, which is more than usual.  One that has the server for itself is named
 * after a minute.  Commands that are long by nature, such as COPY or CREATE INDEX, are never named.
 *
 * Not so if the sessions at the CPUs are too many for them without it, too: then it is a
 * victim, and cpu_saturation has the cause.
 *
 * Certainty: high, if sessions queue; else medium.  A step less while temporary files are written
 * or read, which may be its own: then the disk counts for more than the CPU.
 */
static void
find_cpu_runaway(const PgscaleNowEvidence *e, PgscaleNowFindings *found)
{
	const double queued = pgscale_now_queued(e);
	const double others = e->now.active - e->long_computing;
	const bool	queue = queue_is_unusual(e);

	if (e->long_computing > Max(e->ncomputing > 0 ? 2 : 0, e->now.active / 3))
		return;
	for (int i = 0; i < e->ncomputing; i++)
	{
		const PgscaleNowSession *s = &e->computing[i];
		const double cpus = isnan(s->cpus) ? 1 + s->workers : s->cpus;
		const double demand = isnan(s->demand) ? cpus : s->demand;
		PgscaleNowCertainty certainty = queue ? PGSCALE_NOW_HIGH : PGSCALE_NOW_MEDIUM;
		PgscaleNowFinding *f;

		if (s->age_s < 5 || !burns_cpu(s, cpus) || is_maintenance(s) || e->now.kinds[PGSCALE_KIND_CPU] - (1 + s->workers) > e->cpus ||
			!(queue || demand >= 0.4 * e->cpus) || (others < 0.1 && s->age_s < 60))
			continue;
		if (e->now.kinds[PGSCALE_KIND_TEMP_FILE] >= 1)
			certainty--;
		f = pgscale_now_add(found, certainty, Max(queued, cpus), "%s uses %.1f of %s for %s with one statement: %s",
							pgscale_now_who(s), cpus, cpus_text(e), pgscale_text_duration(s->age_s),
							s->query ? pgscale_now_beginning(s->query, 40) : "(unknown)");
		pgscale_now_cancel(f, s, "its statement fails");
		f->pid = s->pid;
		pgscale_now_number(f, "cpus", cpus);
		pgscale_now_number(f, "statement_s", s->age_s);
		pgscale_now_number(f, "queued_sessions", queued);
		pgscale_now_text(f, "query", s->query);
		/* of several, the oldest */
		break;
	}
}

/*
 * cpu_saturation: as many sessions queue for a CPU as there are CPUs, and two at least; and
 * twice as many as usual are at the CPUs.  Where it is not known what is usual, twice as
 * many as there are CPUs.  Medium: it is the load, and no fault.
 */
static void
find_cpu_saturation(const PgscaleNowEvidence *e, PgscaleNowFindings *found)
{
	const double at_cpus = e->now.kinds[PGSCALE_KIND_CPU];
	const double usual = e->usual.kinds[PGSCALE_KIND_CPU];
	const double queued = pgscale_now_queued(e);
	PgscaleNowFinding *f;

	if (e->cpus <= 0 || queued < Max(2, (e->usual.s > 0 ? 1 : 2) * e->cpus) || (e->usual.s > 0 && at_cpus < 2 * usual))
		return;
	f = pgscale_now_add(found, PGSCALE_NOW_MEDIUM, 0.9 * queued, "%.0f sessions queue for %s%s", queued, cpus_text(e),
						e->usual.s > 0 ? psprintf(" (%.0f run or queue, usually %.1f)", at_cpus, usual) : "");
	pgscale_now_cure(f, "reads only; fewer sessions at a time, as through a pooler, do the same work sooner",
					 "SELECT * FROM pgscale.top_waits(now() - interval '1 min', now(), 'query', 5)");
	pgscale_now_number(f, "queued_sessions", queued);
	pgscale_now_number(f, "cpus", e->cpus);
	if (e->usual.s > 0)
		pgscale_now_number(f, "usual_sessions_at_cpus", usual);
}

/* Are the connections so many because sessions are held up? */
static bool
sessions_pile_up(const PgscaleNowEvidence *e)
{
	for (int i = 0; i < e->nroots; i++)
		if (pgscale_now_blocks(e, &e->roots[i]) && e->roots[i].waiters >= e->used / 4)
			return true;
	return false;
}

/* "80 idle", and where half of them do something else that explains their number, that */
static const char *
connections_text(const PgscaleNowEvidence *e)
{
	if (e->starting >= e->used / 2)
		return psprintf("%.0f not authenticated yet", e->starting);
	if (e->idle_in_transaction >= e->used / 2)
		return psprintf("%.0f idle in a transaction", e->idle_in_transaction);
	return psprintf("%.0f idle", e->idle);
}

static void
cure_connections(PgscaleNowFinding *f, const PgscaleNowEvidence *e, bool end_idle)
{
	if (e->starting >= e->used / 2)
		pgscale_now_cure(f, "reads only: the server ends each after that time; look for a slow LDAP, RADIUS or PAM server, or silent clients",
						 "SHOW authentication_timeout");
	else if (e->idle_in_transaction >= e->used / 2)
		pgscale_now_cure(f, "reads only; then mend the application that leaves them open, or set idle_in_transaction_session_timeout",
						 "SELECT pid, application_name, xact_start, query FROM pg_stat_activity\n"
						 "WHERE state LIKE 'idle in transaction%%' ORDER BY xact_start LIMIT 20");
	else if (end_idle)
	{
		pgscale_now_cure(f, "up to 20 clients must connect again; repeat it if that is not enough; a pooler helps for good",
						 "SELECT pgscale.terminate(pid, idle => true)\n"
						 "FROM (SELECT pid FROM pg_stat_activity\n"
						 "WHERE application_name = %s\n"
						 "AND state = 'idle' AND state_change < now() - interval '10 s'\n"
						 "AND backend_type = 'client backend' AND pid <> pg_backend_pid() LIMIT 20) idle",
						 quote_literal_cstr(e->application));
		pgscale_now_needs_terminate(f);
	}
	else
		pgscale_now_cure(f, "reads only; then limit the clients: a pooler, or ALTER ROLE ... CONNECTION LIMIT",
						 "SELECT application_name, state, count(*) FROM pg_stat_activity GROUP BY 1, 2 ORDER BY 3 DESC");
}

/*
 * connection_storm: nine tenths of the connections that are not reserved are used; or three
 * quarters, and a fifth of max_connections (20 at least) began in the last 10 s.
 *
 * Certainty: high, if so many began and no connection is left; medium, if a blocker holds up a quarter of the
 * sessions, if either is so, as when an application with a large pool starts, or if connections are many, but neither
 * new nor idle: then clients wait for something else.  Low, if some are left, and those in use idle and are not new, as
 * those of a pool do.
 * Behind a blocker the storm is its consequence, and comes after it.
 *
 * The cure of a storm, and of a server that has none left, ends only sessions that have idled for
 * ten seconds, and so few at a time that they still idle when it comes to them.  No line of it, and
 * no part of its lines from the first one on, is a statement that ends more than that.
 */
static void
find_connection_storm(const PgscaleNowEvidence *e, PgscaleNowFindings *found)
{
	const double usable = e->max_connections - e->reserved;
	const bool	flood = e->new >= Max(20, 0.2 * e->max_connections);
	const bool	full = e->used >= usable;
	const bool	idle = e->idle >= e->used / 2;
	const char *application = e->application && e->application[0] != '\0' ? pgscale_now_beginning(e->application, 24) : NULL;
	PgscaleNowFinding *f;

	if (usable <= 0 || !(e->used >= 0.9 * usable || (flood && e->used >= 0.75 * usable)))
		return;
	f = pgscale_now_add(found, sessions_pile_up(e) ? PGSCALE_NOW_MEDIUM : flood && full ? PGSCALE_NOW_HIGH :
						idle && !flood && !full ? PGSCALE_NOW_LOW : PGSCALE_NOW_MEDIUM, sessions_pile_up(e) ? 1 : Max(flood ? e->new : 0, full ? 5 : 1),
						"%.0f of %.0f connections are used (%s), %.0f began in the last 10 s%s%s", e->used, usable, connections_text(e),
						e->new, application ? psprintf(", %.0f by ", e->application_sessions) : "", application ? application : "");
	cure_connections(f, e, application && (flood || full) && e->application_idle >= 1);
	pgscale_now_number(f, "used", e->used);
	pgscale_now_number(f, "usable", usable);
	pgscale_now_number(f, "idle", e->idle);
	pgscale_now_number(f, "idle_in_transaction", e->idle_in_transaction);
	pgscale_now_number(f, "not_authenticated", e->starting);
	pgscale_now_number(f, "new", e->new);
	pgscale_now_text(f, "application", e->application);
}

/*
 * temp_files: one session and a fifth of the active ones read or write temporary files, twice
 * as many as usual.  Files that no session waits for stay in the kernel's cache and cost no time.
 */
static void
find_temp_files(const PgscaleNowEvidence *e, PgscaleNowFindings *found)
{
	const double now = e->now.kinds[PGSCALE_KIND_TEMP_FILE];
	const double bytes = e->now.temp_bytes_per_s;
	const PgscaleNowSession *s = pgscale_now_session_in(e, "BufFileWrite");
	PgscaleNowFinding *f;

	if (!pgscale_now_unusual(e, now, e->usual.kinds[PGSCALE_KIND_TEMP_FILE], 1, 0.2, 2))
		return;
	if (!s)
		s = pgscale_now_session_in(e, "BufFileRead");
	f = pgscale_now_add(found, PGSCALE_NOW_MEDIUM, now, "%.1f sessions write or read temporary files%s%s%s", now,
						bytes >= 1e6 ? psprintf(" (%.0f MB a second)", bytes / 1e6) : "", s ? ", longest " : "",
						s ? pgscale_now_who(s) : "");
	if (s)
	{
		f->pid = s->pid;
		pgscale_now_cancel(f, s, "its statement fails; a larger work_mem for its role may avoid the files");
	}
	else
		pgscale_now_cure(f, "reads only; a larger work_mem for the role of the statement may avoid the files",
						 "SELECT * FROM pgscale.top_waits(now() - interval '1 min', now(), 'query', 5)");
	pgscale_now_number(f, "sessions", now);
	pgscale_now_number(f, "temp_bytes_per_s", bytes);
}

const PgscaleNowRule pgscale_now_load_rules[] = {
	{"cpu_runaway", find_cpu_runaway},
	{"cpu_saturation", find_cpu_saturation},
	{"connection_storm", find_connection_storm},
	{"temp_files", find_temp_files},
	{NULL}
};
