/*
 * Loaded by a session: evidence that is made up, settings as this session's server might have them, and what the sampler would
 * show the features that observe it, at any moment and of any length. Nothing else writes evidence or measurements while
 * pgscale.sampler is off, or pgscale.debug_period is longer than the test.
 */
#include "postgres.h"

#include <dlfcn.h>
#include <math.h>

#include "catalog/pg_type.h"
#include "fmgr.h"
#include "miscadmin.h"
#include "pgstat.h"
#include "storage/shmem.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/pgstat_internal.h"
#include "utils/timestamp.h"

#include "base/ring.h"
#include "pgscale.h"
#include "base/evidence.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(made_up_evidence);
PG_FUNCTION_INFO_V1(made_up_setting);
PG_FUNCTION_INFO_V1(made_up_observation);
PG_FUNCTION_INFO_V1(made_up_transactions);

typedef struct Member
{
	const char *name;
	size_t		offset;
} Member;

#define MEMBER(name)	{#name, offsetof(PgscaleEvidence, name)}
#define COUNT(name)		{#name, offsetof(PgscaleEvidence, counts) + offsetof(PgscaleCounters, name)}
#define WAIT(kind)		{#kind, offsetof(PgscaleEvidence, wait_ns) + PGSCALE_KIND_##kind * sizeof(uint64)}

/* All of them have 64 bits. */
static const Member members[] = {
	MEMBER(ns), MEMBER(sync_ns), MEMBER(io_queue_ns), MEMBER(sweep_ticks), MEMBER(swapped), MEMBER(compact_stalls), MEMBER(active_ns),
	COUNT(commits), COUNT(rollbacks), COUNT(blocks_read), COUNT(blocks_hit), COUNT(temp_bytes), COUNT(checkpoints_timed),
	COUNT(checkpoints_requested), COUNT(checkpoint_buffers), COUNT(checkpoint_write_ms), COUNT(checkpoint_sync_ms),
	COUNT(bgwriter_buffers), COUNT(bgwriter_stopped), COUNT(buffers_allocated), COUNT(backend_buffers),
	COUNT(sweeper_buffers), COUNT(backend_ring_buffers), COUNT(backend_ring_reads), COUNT(reads), COUNT(backend_fsyncs), COUNT(wal_records), COUNT(wal_pages),
	COUNT(wal_page_bytes), COUNT(wal_bytes), COUNT(wal_buffers_full), COUNT(wal_writes), COUNT(wal_written_bytes), COUNT(wal_syncs),
	COUNT(wal_write_us), COUNT(wal_sync_us), COUNT(wal_position), COUNT(xact_hits), COUNT(xact_reads), COUNT(subtrans_hits),
	COUNT(subtrans_reads), COUNT(offset_hits), COUNT(offset_reads), COUNT(member_hits), COUNT(member_reads),
	COUNT(lock_waits[PGSCALE_LOCK_TUPLE]), COUNT(lock_wait_us[PGSCALE_LOCK_TUPLE]), COUNT(fast_path_exceeded),
	WAIT(CPU), WAIT(WAL_SYNC), WAIT(WAL_WRITE), WAIT(WAL_WRITE_LOCK), WAIT(WAL_INSERT), WAIT(WAL_BUFFERS), WAIT(WAL_INIT),
	WAIT(DATA_READ), WAIT(AIO_QUEUE), WAIT(DATA_WRITE), WAIT(DATA_EXTEND), WAIT(DATA_SYNC), WAIT(TEMP_FILE), WAIT(SLRU_IO),
	WAIT(BUFFER_MAPPING), WAIT(BUFFER_CONTENT), WAIT(BUFFER_IO), WAIT(BUFFER_PIN), WAIT(PROC_ARRAY), WAIT(XACT),
	WAIT(SUBTRANS), WAIT(MULTIXACT), WAIT(LOCK_MANAGER), WAIT(LOCK_EXTEND), WAIT(LOCK_TUPLE), WAIT(CLIENT), WAIT(OTHER_IPC), WAIT(OTHER),
};

/* "name=value name=value ..."; the sessions' time is the sum of their waits.  What only 19 counts is unknown unless given. */
static void
parse_record(char *text, PgscaleEvidence *record)
{
	memset(record, 0, sizeof(*record));
	record->counts.wal_page_bytes = record->counts.fast_path_exceeded = -1;
	for (int type = 0; type < PGSCALE_LOCK_TYPES; type++)
		record->counts.lock_waits[type] = record->counts.lock_wait_us[type] = -1;
	for (char *part = strtok(text, " "); part; part = strtok(NULL, " "))
	{
		char	   *value = strchr(part, '=');
		int			i = 0;

		if (!value)
			elog(ERROR, "no value in %s", part);
		*value++ = '\0';
		while (i < lengthof(members) && strcmp(members[i].name, part) != 0)
			if (++i == lengthof(members))
				elog(ERROR, "evidence has no %s", part);
		*(int64 *) ((char *) record + members[i].offset) = (int64) rint(strtod(value, NULL));
	}
	for (int i = 0; i < PGSCALE_WAIT_KINDS; i++)
		record->session_ns += record->wait_ns[i];
}

/*
 * made_up_evidence(size, records, ends): all the evidence there is, of records that end then, and each of which begins where
 * the one before ends. The size is that of "pgscale evidence" in pg_shmem_allocations. Looks are at its end, those of the hour first;
 * the first one begins the first record. What a record does not know falls, by one, which is as if it was reset.
 */
Datum
made_up_evidence(PG_FUNCTION_ARGS)
{
	Size		size = PG_GETARG_INT64(0);
	bool		found;
	char	   *shared = ShmemInitStruct("pgscale evidence", size, &found);
	PgscaleRing *ring = &((PgscaleRing *) shared)[PGSCALE_EVIDENCE_HOUR];
	PgscaleEvidenceSnapshot *snapshots = (PgscaleEvidenceSnapshot *) (shared + size) - PGSCALE_EVIDENCE_NHOUR - PGSCALE_EVIDENCE_NSECONDS;
	Datum	   *texts;
	Datum	   *ends;
	int			n;

	deconstruct_array(PG_GETARG_ARRAYTYPE_P(1), TEXTOID, -1, false, TYPALIGN_INT, &texts, NULL, &n);
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(2), TIMESTAMPTZOID, 8, true, TYPALIGN_DOUBLE, &ends, NULL, &n);
	memset(&snapshots[0], 0, sizeof(snapshots[0]));
	for (size_t at = offsetof(PgscaleEvidence, ns); at < sizeof(PgscaleEvidence); at += sizeof(int64))
		*(int64 *) ((char *) &snapshots[0].sums + at) = PGSCALE_EVIDENCE_NHOUR;
	for (int i = 0; i < n; i++)
	{
		PgscaleEvidence record;

		parse_record(TextDatumGetCString(texts[i]), &record);
		snapshots[i + 1].ends_record = true;
		for (size_t at = offsetof(PgscaleEvidence, ns); at < sizeof(record); at += sizeof(int64))
		{
			const int64 more = *(int64 *) ((char *) &record + at);
			const int64 before = *(int64 *) ((char *) &snapshots[i].sums + at);

			*(int64 *) ((char *) &snapshots[i + 1].sums + at) = before + Max(more, -1);
		}
		snapshots[i + 1].sums.until = DatumGetTimestampTz(ends[i]);
		if (i == 0)
			snapshots[0].sums.until = snapshots[1].sums.until - 1;
	}
	pgscale_ring_end_write(ring, n > 0 ? n + 1 : 0);
	PG_RETURN_VOID();
}

/* made_up_setting(name, value): in this session, as if the server had started with it */
Datum
made_up_setting(PG_FUNCTION_ARGS)
{
	const char *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	const char *value = text_to_cstring(PG_GETARG_TEXT_PP(1));
	const bool	internal = strcmp(name, "shared_memory_size") == 0;

	SetConfigOption(name, value, internal ? PGC_INTERNAL : PGC_POSTMASTER, PGC_S_OVERRIDE);
	PG_RETURN_VOID();
}

/* What sessions wait for: numbers of events and nanoseconds, in turn, since the sampler's process started */
static int64 waits[32];
static int	nwaits;

static void
each_wait(void (*each) (void *arg, uint32 wait_event, uint64 ns), void *arg)
{
	for (int i = 0; i + 1 < nwaits; i += 2)
		each(arg, (uint32) waits[i], (uint64) waits[i + 1]);
}

/* made_up_observation(feature, at, ns, active, anew, databases, waits): this session is the feature's sampler. */
Datum
made_up_observation(PG_FUNCTION_ARGS)
{
	const PgscaleModule **modules = dlsym(RTLD_DEFAULT, "pgscale_modules");
	const char *feature = text_to_cstring(PG_GETARG_TEXT_PP(0));
	PgscaleObservation observation = {0};
	Oid			databases[8];
	Datum	   *list;
	int			n;

	if (!modules)
		elog(ERROR, "pgscale does not show its features");
	observation.at = PG_GETARG_TIMESTAMPTZ(1);
	observation.ns = PG_GETARG_INT64(2);
	observation.active = PG_GETARG_FLOAT8(3);
	observation.anew = PG_GETARG_BOOL(4);
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(5), OIDOID, 4, true, TYPALIGN_INT, &list, NULL, &n);
	for (int i = 0; i < n && i < lengthof(databases); i++)
		databases[i] = DatumGetObjectId(list[i]);
	observation.databases = databases;
	observation.ndatabases = n;
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(6), INT8OID, 8, true, TYPALIGN_DOUBLE, &list, NULL, &nwaits);
	for (int i = 0; i < nwaits && i < lengthof(waits); i++)
		waits[i] = DatumGetInt64(list[i]);
	observation.waits = each_wait;
	for (int i = 0; modules[i]; i++)
		if (strcmp(modules[i]->name, feature) == 0)
			modules[i]->observe(&observation);
	PG_RETURN_VOID();
}

/* made_up_transactions(database, commits, rollbacks): that it has counted so many */
Datum
made_up_transactions(PG_FUNCTION_ARGS)
{
	PgStat_EntryRef *entry = pgstat_get_entry_ref_locked(PGSTAT_KIND_DATABASE, PG_GETARG_OID(0), InvalidOid, false);
	PgStatShared_Database *database = (PgStatShared_Database *) entry->shared_stats;

#if PG_VERSION_NUM >= 160000
	database->stats.xact_commit = PG_GETARG_INT64(1);
	database->stats.xact_rollback = PG_GETARG_INT64(2);
#else
	database->stats.n_xact_commit = PG_GETARG_INT64(1);
	database->stats.n_xact_rollback = PG_GETARG_INT64(2);
#endif
	pgstat_unlock_entry(entry);
	PG_RETURN_VOID();
}
