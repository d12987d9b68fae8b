/*-------------------------------------------------------------------------
 *
 * rules_disk.c
 *	  Rules of diagnosis about checkpoints and disks.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "base/units.h"
#include "base/texts.h"
#include "now/now_rules.h"

/* Checkpoints in the last minute from which on they are close together, as by default checkpoint_warning has it. */
#define CLOSE_CHECKPOINTS	2

/* With less WAL for each, as a part of max_wal_size, checkpoints were not asked for by WAL but by a command. */
#define LEAST_WAL			0.25

/* Sessions that wait for what a checkpoint makes slow. */
static double
checkpoint_waits(const PgscaleNowPeriod *period)
{
	return pgscale_now_wal_waits(period) + period->kinds[PGSCALE_NOW_WAL_BUFFERS] +
		period->kinds[PGSCALE_NOW_DATA_WRITE] + period->kinds[PGSCALE_NOW_DATA_EXTEND] + period->kinds[PGSCALE_NOW_DATA_SYNC];
}

static bool
checkpoints_are_close(const PgscaleNowEvidence *e)
{
	return !e->standby && e->checkpoints_requested >= CLOSE_CHECKPOINTS;
}

static bool
caused_by_wal(const PgscaleNowEvidence *e)
{
	return e->minute_wal_bytes >= LEAST_WAL * e->max_wal_size_bytes * e->checkpoints_requested;
}

/*
 * Sessions that wait for what checkpoints make slow, in the usual period; none, if checkpoints
 * were half as frequent then: the usual period is a part of the storm, and nothing to compare with.
 */
static double
usual_checkpoint_waits(const PgscaleNowEvidence *e)
{
	const double now_per_s = e->checkpoints_requested / Max(e->minute_s, 1);

	if (e->usual.s <= 0 || e->usual_checkpoints_requested / e->usual.s >= 0.5 * now_per_s)
		return 0;
	return checkpoint_waits(&e->usual);
}

static bool
waits_are_many(const PgscaleNowPeriod *period, double usual)
{
	const double waits = checkpoint_waits(period);

	return waits >= 1 && waits >= 0.2 * period->active && waits >= 2 * usual;
}

/* Is as much WAL written as in the minute, or held up by the files that a checkpoint syncs? */
static bool
storm_goes_on(const PgscaleNowEvidence *e)
{
	return !(e->now.wal_bytes_per_s < 0.25 * e->minute_wal_bytes / Max(e->minute_s, 1)) ||
		(e->checkpointer_event && strcmp(e->checkpointer_event, "DataFileSync") == 0 && checkpoint_waits(&e->now) >= 1);
}

/* A value that the disk of pg_wal can hold, if it can hold more at all: what advice has. */
static void
cure_checkpoints(PgscaleNowFinding *f, const PgscaleNowEvidence *e)
{
	if (!caused_by_wal(e))
		pgscale_now_cure(f, "reads only; find what runs CHECKPOINT, or base backups, this often",
						 "SELECT pid, usename, application_name, query FROM pg_stat_activity WHERE query ILIKE '%%checkpoint%%'");
	else if (e->max_wal_size_wanted)
		pgscale_now_cure(f, psprintf("pg_wal may take %s and more, and recovery after a crash longer", e->max_wal_size_wanted),
						 "CALL pgscale.set('max_wal_size', '%s', true)", e->max_wal_size_wanted);
	else
		pgscale_now_cure(f, "reads only; the disk of pg_wal has no room for a larger max_wal_size: enlarge it, or write less WAL",
						 "SELECT * FROM pgscale.top_waits(now() - interval '1 min', now(), 'query', 5)");
}

/*
 * checkpoint_storm: two checkpoints or more in the last minute that no timer asked for, while a
 * session and a fifth of the active ones wait for WAL or for writes, twice as many as usual, now
 * or in the last half minute: between two checkpoints there may be few.  WAL
 * asked for them if there was enough of it: then max_wal_size is too small for the load, whichever
 * session writes it.  High; medium, if commands asked for them.
 *
 * Without such waits they cost no more than full-page images, which pgscale.advice minds.  Nor is it
 * one any more, if WAL has come to a quarter of the minute's rate, or max_wal_size has just been changed.
 */
static void
find_checkpoint_storm(const PgscaleNowEvidence *e, PgscaleNowFindings *found)
{
	const double usual = usual_checkpoint_waits(e);
	const double waits = Max(checkpoint_waits(&e->now), checkpoint_waits(&e->half_minute));
	PgscaleNowFinding *f;

	if (!checkpoints_are_close(e) || e->max_wal_size_bytes != e->minute_max_wal_size_bytes || !storm_goes_on(e) ||
		!(waits_are_many(&e->now, usual) || waits_are_many(&e->half_minute, usual)))
		return;
	f = pgscale_now_add(found, caused_by_wal(e) ? PGSCALE_NOW_HIGH : PGSCALE_NOW_MEDIUM, waits,
						caused_by_wal(e) ? "%.0f checkpoints in %s: max_wal_size (%s) is too small for the WAL written; %.0f %s" :
						"%.0f checkpoints in %s were asked for by commands (max_wal_size: %s); %.0f %s",
						e->checkpoints_requested, pgscale_text_duration(e->minute_s),
						psprintf("%.0f MB", e->max_wal_size_bytes / PGSCALE_MB), waits, PGSCALE_NOW_WAIT(waits));
	cure_checkpoints(f, e);
	pgscale_now_number(f, "checkpoints", e->checkpoints_requested);
	pgscale_now_number(f, "seconds", e->minute_s);
	pgscale_now_number(f, "wal_bytes", e->minute_wal_bytes);
	pgscale_now_number(f, "max_wal_size_bytes", e->max_wal_size_bytes);
	pgscale_now_number(f, "waiting_sessions", waits);
}

/* Milliseconds that are much, and if it is known what is usual, three times as much as that. */
static bool
is_slow(double now_ms, double usual_ms)
{
	return isnan(usual_ms) ? now_ms >= 20 : now_ms >= 5 && now_ms >= 3 * usual_ms;
}

/* With two digits that count, as far as it is more than what a mean of such times can show. */
static const char *
usually_ms(double usual_ms)
{
	if (isnan(usual_ms))
		return "";
	if (usual_ms < 0.01)
		return ", usually less than 0.01";
	return psprintf(usual_ms < 10 ? ", usually %.2g" : ", usually %.0f", usual_ms);
}

/*
 * A time that is computed is made of waits, and a session whose wait is over stays in it until
 * it has a CPU again.
 */
static bool
cpus_are_short(const PgscaleNowEvidence *e)
{
	return e->cpus > 0 && (pgscale_now_queued(e) >= Max(1, 0.1 * e->cpus) || e->now.kinds[PGSCALE_NOW_CPU] > e->cpus);
}

/*
 * slow_flush: a flush of WAL takes 5 ms and three times as long as usual, or 20 ms if it is
 * not known what is usual; and a session and a quarter of the active ones wait for WAL.
 * Where nothing is counted, flushes must last longer than they were watched.
 *
 * Certainty: high; medium, while checkpoints are close together or temporary files are waited
 * for, which slow flushes down, and if nothing is counted.  Low, if the time is computed while
 * sessions queue for a CPU.
 */
static void
find_slow_flush(const PgscaleNowEvidence *e, PgscaleNowFindings *found)
{
	const double ms = e->now.flush_ms;
	const double waits = pgscale_now_wal_waits(&e->now);
	const bool	disk_is_busy = checkpoints_are_close(e) || e->now.kinds[PGSCALE_NOW_TEMP_FILE] >= 1;
	PgscaleNowFinding *f;

	if (waits < 1 || waits < 0.25 * e->now.active)
		return;
	if (is_slow(ms, e->usual.flush_ms))
		f = pgscale_now_add(found, !e->flush_measured && cpus_are_short(e) ? PGSCALE_NOW_LOW : disk_is_busy ? PGSCALE_NOW_MEDIUM : PGSCALE_NOW_HIGH,
							disk_is_busy ? waits / 2 : waits,
							"A flush of WAL takes %.0f ms (%s%s), and %.0f %s for it: the disk of pg_wal is slow", ms,
							e->flush_measured ? "measured" : "computed", usually_ms(e->usual.flush_ms), waits, PGSCALE_NOW_WAIT(waits));
	else if (isnan(ms) && e->stuck_flushes >= 1 && waits >= 2)
		f = pgscale_now_add(found, PGSCALE_NOW_MEDIUM, waits,
							"A flush of WAL takes more than %.0f ms (measured), and %.0f %s for it: the disk of pg_wal is slow",
							e->look_s * 1000, waits, PGSCALE_NOW_WAIT(waits));
	else
		return;
	pgscale_now_cure(f, "a crash loses the latest commits, a second of them or more; then see to the disk",
					 "CALL pgscale.set('synchronous_commit', 'off', true)");
	pgscale_now_number(f, "flush_ms", ms);
	pgscale_now_number(f, "usual_flush_ms", e->usual.flush_ms);
	pgscale_now_number(f, "waiting_sessions", waits);
	pgscale_now_text(f, "source", isnan(ms) || e->flush_measured ? "measured" : "computed");
}

/*
 * slow_reads: a read of data takes 5 ms and three times as long as usual, or 20 ms if it is not
 * known what is usual; and a session and a quarter of the active ones wait for reads.  The
 * time is computed: what sessions waited for reads, divided by the reads.  High; low, while
 * sessions queue for a CPU.
 */
static void
find_slow_reads(const PgscaleNowEvidence *e, PgscaleNowFindings *found)
{
	const double ms = e->now.read_ms;
	const double waits = e->now.kinds[PGSCALE_NOW_DATA_READ] + e->now.kinds[PGSCALE_NOW_BUFFER_IO];
	PgscaleNowFinding *f;

	if (waits < 1 || waits < 0.25 * e->now.active || !is_slow(ms, e->usual.read_ms))
		return;
	f = pgscale_now_add(found, cpus_are_short(e) ? PGSCALE_NOW_LOW : PGSCALE_NOW_HIGH, waits,
						"A read of data takes %.0f ms (computed%s), and %.0f %s for reads: the disk is slow",
						ms, usually_ms(e->usual.read_ms), waits, PGSCALE_NOW_WAIT(waits));
	pgscale_now_cure(f, "reads a few pages of each tablespace; then look at the disk, or move indexes: pgscale.relocation_plan()",
					 "SELECT * FROM pgscale.tablespace_latency()");
	pgscale_now_number(f, "read_ms", ms);
	pgscale_now_number(f, "usual_read_ms", e->usual.read_ms);
	pgscale_now_number(f, "reads_per_s", e->now.reads_per_s);
	pgscale_now_number(f, "waiting_sessions", waits);
}

const PgscaleNowRule pgscale_now_disk_rules[] = {
	{"checkpoint_storm", find_checkpoint_storm},
	{"slow_flush", find_slow_flush},
	{"slow_reads", find_slow_reads},
	{NULL}
};
