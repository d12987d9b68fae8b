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

#include "miscadmin.h"
#include "utils/builtins.h"

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
	return pgscale_now_wal_waits(period) + period->kinds[PGSCALE_KIND_WAL_BUFFERS] +
		period->kinds[PGSCALE_KIND_DATA_WRITE] + period->kinds[PGSCALE_KIND_DATA_EXTEND] + period->kinds[PGSCALE_KIND_DATA_SYNC];
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
		pgscale_now_set(f, e, "max_wal_size", e->max_wal_size_wanted,
						psprintf("pg_wal may take %s and more, and recovery after a crash longer", e->max_wal_size_wanted));
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
	return e->cpus > 0 && (pgscale_now_queued(e) >= Max(1, 0.1 * e->cpus) || e->now.kinds[PGSCALE_KIND_CPU] > e->cpus);
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
	const bool	disk_is_busy = checkpoints_are_close(e) || e->now.kinds[PGSCALE_KIND_TEMP_FILE] >= 1;
	PgscaleNowFinding *f;

	/* on a standby no session flushes WAL, and pgscale.set() is refused */
	if (e->standby || waits < 1 || waits < 0.25 * e->now.active)
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
	pgscale_now_set(f, e, "synchronous_commit", "off",
					"a crash or a failover loses the latest commits, a second of them or more; revert it after the repair");
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
	const double waits = e->now.kinds[PGSCALE_KIND_DATA_READ] + e->now.kinds[PGSCALE_KIND_BUFFER_IO];
	PgscaleNowFinding *f;

	if (waits < 1 || waits < 0.25 * e->now.active || !is_slow(ms, e->usual.read_ms))
		return;
	f = pgscale_now_add(found, cpus_are_short(e) ? PGSCALE_NOW_LOW : PGSCALE_NOW_HIGH, waits,
						"A read of data takes %.0f ms (computed%s), and %.0f %s for reads: the disk is slow",
						ms, usually_ms(e->usual.read_ms), waits, PGSCALE_NOW_WAIT(waits));
	pgscale_now_cure(f, "reads a few pages of each tablespace; then look at the disk, or move indexes: pgscale.relocation_plan()",
					 "SELECT * FROM pgscale.tablespace_latency()");
	pgscale_now_needs_latency(f);
	pgscale_now_number(f, "read_ms", ms);
	pgscale_now_number(f, "usual_read_ms", e->usual.read_ms);
	pgscale_now_number(f, "reads_per_s", e->now.reads_per_s);
	pgscale_now_number(f, "waiting_sessions", waits);
}

/* Of a disk that has less than this part free, it is full soon whatever the reason is. */
#define NEARLY_FULL		0.02

/* The finding, with what is known of the reason; the caller adds the cure. */
static PgscaleNowFinding *
add_full_disk(PgscaleNowFindings *found, const PgscaleNowEvidence *e, const char *whose, double size, double room, const char *reason)
{
	PgscaleNowFinding *f = pgscale_now_add(found, *reason ? PGSCALE_NOW_HIGH : PGSCALE_NOW_MEDIUM, e->used,
										   "The disk of %s has %s free of %s%s", whose, pgscale_text_bytes(room), pgscale_text_bytes(size), reason);

	pgscale_now_number(f, "size_bytes", size);
	pgscale_now_number(f, "free_bytes", room);
	return f;
}

/* Does a slot keep half of the files in pg_wal, or more? */
static bool
slot_fills_disk(const PgscaleNowEvidence *e)
{
	return e->slot && e->slot_bytes >= 0.5 * e->wal_used_bytes && e->slot_bytes > 2 * e->max_wal_size_bytes;
}

static void
find_full_wal_disk(const PgscaleNowEvidence *e, PgscaleNowFindings *found)
{
	PgscaleNowFinding *f;

	if (slot_fills_disk(e))
	{
		f = add_full_disk(found, e, "pg_wal", e->wal_size_bytes, e->wal_free_bytes,
						  psprintf(": slot %s, %s, keeps %s of WAL", e->slot, e->slot_active ? "whose reader lags" : "which no process reads",
								   pgscale_text_bytes(e->slot_bytes)));
		if (e->slot_active)
			pgscale_now_cure(f, "reads only; end what holds the reader up, or enlarge the disk: when it is full the server stops",
							 "SELECT * FROM pg_stat_replication");
		else if (e->wal_free_bytes >= NEARLY_FULL * e->wal_size_bytes)
			pgscale_now_cure(f, "reads only; start its reader, or enlarge the disk; drop it if its reader is gone for good",
							 "SELECT * FROM pg_replication_slots WHERE slot_name = %s", quote_literal_cstr(e->slot));
		else
		{
			pgscale_now_cure(f, "its reader must be built anew; rather start the reader, or enlarge the disk, if there is time",
							 "SELECT pg_drop_replication_slot(%s)", quote_literal_cstr(e->slot));
			pgscale_now_needs(f, has_rolreplication(GetUserId()), "a superuser, or a role with REPLICATION");
		}
		pgscale_now_text(f, "slot", e->slot);
		pgscale_now_number(f, "slot_bytes", e->slot_bytes);
	}
	else if (!isnan(e->archive_failed_s) && e->wal_used_bytes > 2 * e->max_wal_size_bytes)
	{
		f = add_full_disk(found, e, "pg_wal", e->wal_size_bytes, e->wal_free_bytes,
						  psprintf(": archiving failed %s ago and keeps WAL", pgscale_text_duration(e->archive_failed_s)));
		pgscale_now_cure(f, "reads only; the server's log has the error: once archiving works, the next checkpoints remove WAL",
						 "SELECT * FROM pg_stat_archiver");
		pgscale_now_number(f, "archive_failed_s", e->archive_failed_s);
	}
	else if (e->wal_free_bytes < NEARLY_FULL * e->wal_size_bytes)
	{
		f = add_full_disk(found, e, "pg_wal", e->wal_size_bytes, e->wal_free_bytes, "");
		pgscale_now_cure(f, "reads only; enlarge that disk, or lower max_wal_size and wal_keep_size: when it is full the server stops",
						 "SELECT name, setting, unit FROM pg_settings WHERE name IN ('max_wal_size', 'wal_keep_size')");
	}
}

/*
 * full_disk: the disk of pg_wal has less than a tenth free, and less than 10 GB, and half of what is there,
 * and twice max_wal_size, is kept by a slot, or archiving fails and pg_wal has grown to twice that size:
 * high.  Or that disk, or the data directory's, has a fiftieth free: medium.
 */
static void
find_full_disk(const PgscaleNowEvidence *e, PgscaleNowFindings *found)
{
	const bool	one_disk = e->wal_size_bytes == e->data_size_bytes && e->wal_free_bytes == e->data_free_bytes;
	PgscaleNowFinding *f;

	if (e->wal_free_bytes < e->wal_size_bytes)
		find_full_wal_disk(e, found);
	if (one_disk || !(e->data_free_bytes < NEARLY_FULL * e->data_size_bytes))
		return;
	f = add_full_disk(found, e, "the data directory", e->data_size_bytes, e->data_free_bytes, "");
	pgscale_now_cure(f, "reads only; DROP and TRUNCATE return space at once, VACUUM does not",
					 "SELECT datname, pg_size_pretty(pg_database_size(oid)) FROM pg_database ORDER BY pg_database_size(oid) DESC");
}

const PgscaleNowRule pgscale_now_disk_rules[] = {
	{"full_disk", find_full_disk},
	{"checkpoint_storm", find_checkpoint_storm},
	{"slow_flush", find_slow_flush},
	{"slow_reads", find_slow_reads},
	{NULL}
};
