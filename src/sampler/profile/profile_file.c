/*-------------------------------------------------------------------------
 *
 * profile_file.c
 *	  Keeps the wait profile over a restart of the server.
 *
 * The file (sampler_files.c) has a header, the types of background workers of the
 * entries, the entries as they are in memory, and a CRC of all that.  A file of another
 * major version, another build or another format, or a damaged file, is ignored.  A
 * checksum does not prove who wrote the file, so each field is checked as well:
 * whatever the file contains, the result is a valid profile.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/catversion.h"
#include "miscadmin.h"
#include "pgstat.h"

#include "base/pg_compat.h"
#include "base/saved_file.h"
#include "base/wait_events.h"
#include "sampler/profile/profile.h"
#include "sampler/profile/session_labels.h"
#include "sampler/sampler_files.h"
#include "sampler/worker_types.h"

#define STORE_FILE	PGSTAT_STAT_PERMANENT_DIRECTORY "/pgscale_sampler.stat"

/* The most that any server keeps, by the setting's bounds; rows of what was evicted come on top. */
#define MAX_ENTRIES		(PGSCALE_PROFILE_MAX + PGSCALE_PROFILE_OTHERS)

/* To be changed with the format of the header or of an entry. */
#define STORE_FORMAT	0x70677334

typedef struct StoreHeader
{
	uint32		format;
	uint32		catversion;		/* wait events' numbers go with the major */
	uint32		entry_size;
	uint32		nentries;
	uint32		ntypes;
	uint32		unused;
	PgscaleSamplerProfileTotals totals;
} StoreHeader;

/* What a file holds. */
typedef struct Store
{
	StoreHeader header;
	PgscaleSamplerTypeName types[PGSCALE_PROC_TYPES];
	PgscaleSamplerProfileEntry *entries;
} Store;

void
pgscale_sampler_save(void)
{
	PgscaleSamplerProfileSnapshot snapshot;
	const		PgscaleSamplerTypeName *types;
	StoreHeader header;
	PgscaleSavedFile file;

	if (!pgscale_sampler_profile_at_rest(&snapshot))
	{
		pgscale_sampler_file_not_kept("the wait profile");
		return;
	}

	memset(&header, 0, sizeof(header));
	header.format = STORE_FORMAT;
	header.catversion = CATALOG_VERSION_NO;
	header.entry_size = sizeof(PgscaleSamplerProfileEntry);
	header.nentries = snapshot.nentries;
	header.ntypes = pgscale_sampler_types(&types);
	header.totals = snapshot.totals;

	pgscale_saved_begin(&file, STORE_FILE);
	pgscale_saved_put(&file, &header, sizeof(header));
	pgscale_saved_put(&file, types, header.ntypes * sizeof(*types));
	pgscale_saved_put(&file, snapshot.entries, header.nentries * sizeof(PgscaleSamplerProfileEntry));
	(void) pgscale_saved_end(&file, LOG, NULL);
}

static bool
entry_is_possible(const PgscaleSamplerProfileEntry *entry, uint32 ntypes)
{
	const PgscaleSamplerWaitKey *key = &entry->key;

	if (!(key->kind == PGSCALE_PROC_OTHER || pgscale_sampler_file_knows_kind(key->kind, ntypes)) ||
		!pgscale_sampler_file_knows_event(key->wait_event) || key->unused != 0)
		return false;
	/* Evicted time has no owner. */
	return key->kind != PGSCALE_PROC_OTHER ||
		(key->datid == InvalidOid && key->userid == InvalidOid && key->queryid == 0 && key->plan_id == 0);
}

/* Adds, unless the sum is more than the views can show. */
static bool
profile_file_add(uint64 *sum, uint64 n)
{
	if (n > PG_INT64_MAX || *sum + n > PG_INT64_MAX)
		return false;
	*sum += n;
	return true;
}

/* Do the entries make sense, and are the totals theirs? */
static const char *
check_store(const Store *store)
{
	const StoreHeader *header = &store->header;
	const PgscaleSamplerProfileTotals *totals = &header->totals;
	uint64		samples = 0;
	uint64		ns = 0;

	if (!pgscale_sampler_file_knows_types(store->types, header->ntypes))
		return "it has a type of process without a name";
	for (int i = 0; i < header->nentries; i++)
	{
		const PgscaleSamplerProfileEntry *entry = &store->entries[i];

		if (!entry_is_possible(entry, header->ntypes))
			return "it has an entry that cannot be";
		if (entry->samples + entry->ns == 0 || !profile_file_add(&samples, entry->samples) || !profile_file_add(&ns, entry->ns))
			return "it has an entry with counts that cannot be";
	}
	if (totals->samples != samples || totals->ns != ns)
		return "its totals are not those of its entries";
	if (totals->evictions > PG_INT64_MAX / 2 || !IS_VALID_TIMESTAMP(totals->reset_at))
		return "its totals cannot be";
	return NULL;
}

/* Reads and checks what the file has; returns why it cannot be used, or NULL. */
static const char *
read_store(PgscaleSavedFile *file, Store *store)
{
	StoreHeader *header = &store->header;

	if (!pgscale_saved_get(file, header, sizeof(*header)))
		return file->problem;
	if (header->format != STORE_FORMAT ||
		header->entry_size != sizeof(PgscaleSamplerProfileEntry))
		return "its format is not this version's";
	if (header->catversion != CATALOG_VERSION_NO)
		return "another major version wrote it";
	if (header->nentries > MAX_ENTRIES || header->ntypes > PGSCALE_PROC_TYPES ||
		file->left != (uint64) header->ntypes * sizeof(PgscaleSamplerTypeName) +
		(uint64) header->nentries * sizeof(PgscaleSamplerProfileEntry))
		return "its size is wrong";

	store->entries = palloc_extended(Max(1, header->nentries) * sizeof(PgscaleSamplerProfileEntry),
									 MCXT_ALLOC_HUGE);
	if (!pgscale_saved_get(file, store->types, header->ntypes * sizeof(PgscaleSamplerTypeName)) ||
		!pgscale_saved_get(file, store->entries, header->nentries * sizeof(PgscaleSamplerProfileEntry)))
		return file->problem;
	return check_store(store);
}

static void
profile_file_restore(Store *store)
{
	PgscaleProcKind kinds[PGSCALE_PROC_TYPES];

	pgscale_sampler_file_kinds(store->types, store->header.ntypes, kinds);
	for (int i = 0; i < store->header.nentries; i++)
	{
		PgscaleProcKind *kind = &store->entries[i].key.kind;
		int			type = *kind - PGSCALE_PROC_FIRST_TYPE;

		if (type >= 0 && type < store->header.ntypes)
			*kind = kinds[type];
		/* The texts that it stood for are not kept. */
		store->entries[i].key.label = 0;
		if (!pgscale_sampler_by_plan_id())
			store->entries[i].key.plan_id = 0;
	}
	pgscale_sampler_profile_restore(&store->header.totals, store->entries, store->header.nentries);
}

void
pgscale_sampler_load(void)
{
	Store	   *store;
	PgscaleSavedFile file;

	if (!pgscale_saved_open(&file, STORE_FILE, NULL))
		return;

	store = palloc0(sizeof(Store));
	file.problem = read_store(&file, store);
	if (file.problem == NULL)
		profile_file_restore(store);

	if (store->entries)
		pfree(store->entries);
	pfree(store);
	pgscale_saved_close(&file, true, "The wait profile starts empty.", NULL);
}
