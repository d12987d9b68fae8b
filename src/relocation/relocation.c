/*-------------------------------------------------------------------------
 *
 * relocation.c
 *	  Moves indexes and tables to other tablespaces while they are in use.
 *
 * A move is a job: a row that a backend adds in its own transaction (requests.c,
 * jobs/relocation_jobs.c).  A launcher starts a worker in that database (jobs/).  The worker moves the relation online: it copies
 * the blocks, and follows their changes in the WAL (online/).  Or it acts as the requesting role and runs
 * REINDEX (CONCURRENTLY, TABLESPACE) or ALTER TABLE (move.c).
 *
 * Why a worker: REINDEX CONCURRENTLY cannot run within a transaction, so a function
 * cannot call it.  It may take hours, and a process must be there to clean up and to
 * try again after a deadlock, a crash or a shutdown.
 *
 * relocation_plan() in plan.sql decides which relations to move, by the speed of disks and the reads of relations (plan/).
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>

#include "fmgr.h"
#include "miscadmin.h"
#include "utils/guc.h"

#include "base/preload.h"
#include "base/row_builder.h"
#include "base/timer.h"
#include "base/units.h"
#include "relocation/jobs/relocation_jobs.h"
#include "relocation/jobs/launcher.h"
#include "relocation/online/pace.h"
#include "relocation/relocation.h"

PG_FUNCTION_INFO_V1(pgscale_relocation_progress);

/* If there was no round of the launcher for that long, something is wrong. */
#define STALLED_MS	30000

int			pgscale_relocation_workers;
int			pgscale_relocation_max_lag;
int			pgscale_relocation_max_transaction_age;
int			pgscale_relocation_switch_timeout;

static void
relocation_define_gucs(void)
{
	DefineCustomIntVariable("pgscale.relocation_workers",
							"Number of relocation jobs that run at the same time, never two of one table.",
							"0: no job starts. Each running job takes a worker slot.",
							&pgscale_relocation_workers, 1, 0, PGSCALE_RELOCATION_SLOTS,
							PGC_SIGHUP, 0, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.relocation_max_lag",
							"WAL that a physical standby must still flush, above which no job starts and no online move copies.",
							"-1: not checked.",
							&pgscale_relocation_max_lag, 256, -1, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_MB, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.relocation_max_transaction_age",
							"Age of a transaction that a job must wait for, above which the job does not start.",
							"-1: not checked. Online moves count only transactions that locked the relation.",
							&pgscale_relocation_max_transaction_age, 300, -1, INT_MAX / 1000,
							PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
	DefineCustomIntVariable("pgscale.relocation_switch_timeout",
							"Time that an online move may wait for a moment without other locks on its relation before its job fails.",
							"Pauses by other settings do not count.",
							&pgscale_relocation_switch_timeout, 3600, 1, INT_MAX / 1000,
							PGC_SIGHUP, GUC_UNIT_S, NULL, NULL, NULL);
	pgscale_relocation_pace_define_gucs();
}

static void
relocation_health(PgscaleHealth *health)
{
	PgscaleRelocationSlot slots[PGSCALE_RELOCATION_SLOTS];
	PgscaleRelocationLauncherState launcher;
	const char *held_back = "";
	int			jobs = 0;

	if (!pgscale_health_preloaded(health, "pgscale.relocation_workers", true))
		return;

	/*
	 * The launcher may know of a reload before this backend does.  Where
	 * there is nothing to do it is not there, and that is right.
	 */
	launcher = pgscale_relocation_launcher_state();
	if (launcher.pid == 0)
		launcher.enabled = pgscale_relocation_workers > 0;
	if (launcher.enabled && (launcher.pid != 0 || !IsUnderPostmaster || pgscale_relocation_launcher_wanted()) &&
		!pgscale_health_worker(health, &pgscale_relocation_module, launcher.pid, launcher.starts, launcher.last_round_ns, STALLED_MS))
		return;
	pgscale_relocation_slots(slots);
	for (int i = PGSCALE_RELOCATION_SLOTS - 1; i >= 0; i--)
	{
		jobs += slots[i].job != 0;
		if (slots[i].job != 0 && slots[i].progress.phase != PGSCALE_PHASE_NONE && slots[i].progress.held_back_by[0] != '\0')
			held_back = psprintf(", job " INT64_FORMAT " waits: %s", slots[i].job, slots[i].progress.held_back_by);
	}
	if (!launcher.enabled)
	{
		health->state = PGSCALE_HEALTH_OFF;
		health->reason = jobs > 0 ? "it is switched off; jobs that are under way go on" :
			pgscale_relocation_may_have_jobs() ? "it is switched off; a database may have queued jobs" : "it is switched off";
		health->action = "set pgscale.relocation_workers above 0 and reload";
	}
	else if (jobs > 0)
	{
		health->state = PGSCALE_HEALTH_WORKING;
		health->reason = psprintf("%d of its workers %s at a job%s; see pgscale.relocation_jobs", jobs, jobs == 1 ? "is" : "are",
								  held_back);
	}
	else if (launcher.no_slot)
	{
		health->state = PGSCALE_HEALTH_BROKEN;
		health->reason = "jobs are queued, but the server has no slot for another background worker";
		health->action = "raise max_worker_processes and restart";
		health->no_slot = true;
	}
	else
	{
		const char *waits = pgscale_relocation_may_have_jobs() ? pgscale_relocation_jobs_wait() : NULL;

		health->state = PGSCALE_HEALTH_IDLE;
		health->reason = waits ? waits : "ready; nothing is under way";
	}
}

static const char *const phase_words[] = {
	[PGSCALE_PHASE_NONE] = "",
	[PGSCALE_PHASE_COPYING] = "copying",
	[PGSCALE_PHASE_FOLLOWING] = "following",
	[PGSCALE_PHASE_WAITING] = "waiting for a gap",
	[PGSCALE_PHASE_SWITCHING] = "switching",
	[PGSCALE_PHASE_DROPPING] = "dropping",
};

/* As the copy went so far, with its pauses. */
static double
seconds_left(const PgscaleRelocationProgress *progress)
{
	const double done = progress->counts.copied_bytes;
	const double left = Max(progress->total_bytes - done, 0);

	return left / done * (pgscale_timer_clock() - progress->began_ns) / NS_PER_S;
}

/* pgscale_internal.relocation_progress(): a row for each online move of this database. */
Datum
pgscale_relocation_progress(PG_FUNCTION_ARGS)
{
	PgscaleRelocationSlot slots[PGSCALE_RELOCATION_SLOTS] = {0};
	PgscaleRow	row = {0};

	InitMaterializedSRF(fcinfo, 0);
	if (pgscale_preload_done())
		pgscale_relocation_slots(slots);
	for (int i = 0; i < PGSCALE_RELOCATION_SLOTS; i++)
	{
		const PgscaleRelocationProgress *progress = &slots[i].progress;

		if (slots[i].database != MyDatabaseId || slots[i].job == 0 || progress->phase == PGSCALE_PHASE_NONE)
			continue;
		pgscale_row_id(&row, slots[i].job);
		pgscale_row_text(&row, phase_words[progress->phase]);
		pgscale_row_float8(&row, progress->total_bytes > 0 ?
						   Min((double) progress->counts.copied_bytes / progress->total_bytes, 1) : 1);
		pgscale_row_int8(&row, progress->counts.copied_bytes);
		pgscale_row_int8(&row, progress->counts.recopied_blocks);
		pgscale_row_int8(&row, progress->counts.wal_read_bytes);
		pgscale_row_int8(&row, progress->counts.lock_tries);
		pgscale_row_float8(&row, progress->phase == PGSCALE_PHASE_COPYING && progress->counts.copied_bytes > 0 ?
						   seconds_left(progress) : NAN);
		pgscale_row_text(&row, progress->held_back_by[0] == '\0' ? NULL : progress->held_back_by);
		pgscale_row_end(&row, (ReturnSetInfo *) fcinfo->resultinfo);
	}
	return (Datum) 0;
}

const PgscaleModule pgscale_relocation_module = {
	.name = "relocation",
	.define_gucs = relocation_define_gucs,
	.areas = (const PgscaleArea *const[]) {&pgscale_relocation_area, &pgscale_relocation_open_area, NULL},
	.worker = &pgscale_relocation_launcher,
	.health = relocation_health,
	.has_tables = true,
};
