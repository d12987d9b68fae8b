/*-------------------------------------------------------------------------
 *
 * sampler_store.c
 *	  Keeps the wait profile over a restart of the server.
 *
 * The postmaster writes the file when it shuts down, after all other
 * processes are gone, and reads and removes it when it starts: so a base
 * backup or a crash never brings back an old one.
 *
 * The file is a header, the entries as they lie in memory, and a CRC of both.
 * One that another major version, another build or another format wrote, or
 * that is damaged, is left out with a LOG message; it is statistics, and never
 * worth a server that does not start.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "catalog/catversion.h"
#include "pgstat.h"
#include "port/pg_crc32c.h"
#include "storage/fd.h"

#include "compat.h"
#include "sampler_profile.h"
#include "sampler_store.h"

#define STORE_FILE	PGSTAT_STAT_PERMANENT_DIRECTORY "/pgscale_sampler.stat"
#define STORE_TEMP	STORE_FILE ".tmp"

/* To be changed with the format of the header or of an entry. */
#define STORE_FORMAT	0x70677331

typedef struct StoreHeader
{
	uint32		format;
	uint32		catversion;		/* wait events' numbers go with the major */
	uint32		entry_size;
	uint32		nentries;
	PgscaleProfileTotals totals;
} StoreHeader;

static pg_crc32c
checksum(const StoreHeader *header, const PgscaleProfileEntry *entries)
{
	pg_crc32c	crc;

	INIT_CRC32C(crc);
	COMP_CRC32C(crc, header, sizeof(*header));
	COMP_CRC32C(crc, entries, header->nentries * sizeof(*entries));
	FIN_CRC32C(crc);
	return crc;
}

void
pgscale_sampler_save(void)
{
	PgscaleProfileSnapshot snapshot;
	StoreHeader header;
	pg_crc32c	crc;
	FILE	   *file;

	pgscale_profile_snapshot(&snapshot);

	memset(&header, 0, sizeof(header));
	header.format = STORE_FORMAT;
	header.catversion = CATALOG_VERSION_NO;
	header.entry_size = sizeof(PgscaleProfileEntry);
	header.nentries = snapshot.nentries;
	header.totals = snapshot.totals;
	crc = checksum(&header, snapshot.entries);

	file = AllocateFile(STORE_TEMP, PG_BINARY_W);
	if (file == NULL ||
		fwrite(&header, sizeof(header), 1, file) != 1 ||
		(snapshot.nentries > 0 &&
		 fwrite(snapshot.entries, sizeof(PgscaleProfileEntry),
				snapshot.nentries, file) != snapshot.nentries) ||
		fwrite(&crc, sizeof(crc), 1, file) != 1)
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", STORE_TEMP)));
		if (file)
			FreeFile(file);
		unlink(STORE_TEMP);
		return;
	}
	if (FreeFile(file) != 0)
	{
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not close file \"%s\": %m", STORE_TEMP)));
		unlink(STORE_TEMP);
		return;
	}

	/* It reports its own failures. */
	(void) durable_rename(STORE_TEMP, STORE_FILE, LOG);
}

/* Reads and checks the file; returns why it cannot be used, or NULL. */
static const char *
read_store(FILE *file, StoreHeader *header, PgscaleProfileEntry **entries)
{
	struct stat st;
	pg_crc32c	crc;

	if (fstat(fileno(file), &st) != 0 ||
		fread(header, sizeof(*header), 1, file) != 1)
		return "it is too short";
	if (header->format != STORE_FORMAT ||
		header->entry_size != sizeof(PgscaleProfileEntry))
		return "its format is not this version's";
	if (header->catversion != CATALOG_VERSION_NO)
		return "another major version wrote it";
	if (st.st_size != sizeof(*header) + sizeof(crc) +
		(uint64) header->nentries * sizeof(PgscaleProfileEntry))
		return "its size is wrong";

	*entries = palloc_extended(Max(1, header->nentries) * sizeof(PgscaleProfileEntry),
							   MCXT_ALLOC_HUGE);
	if (fread(*entries, sizeof(PgscaleProfileEntry), header->nentries, file) != header->nentries ||
		fread(&crc, sizeof(crc), 1, file) != 1)
		return "it could not be read";
	if (!EQ_CRC32C(crc, checksum(header, *entries)))
		return "its checksum is wrong";
	return NULL;
}

void
pgscale_sampler_load(void)
{
	StoreHeader header;
	PgscaleProfileEntry *entries = NULL;
	const char *problem;
	FILE	   *file = AllocateFile(STORE_FILE, PG_BINARY_R);

	if (file == NULL)
	{
		if (errno != ENOENT)
			ereport(LOG,
					(errcode_for_file_access(),
					 errmsg("could not read file \"%s\": %m", STORE_FILE)));
		return;
	}

	problem = read_store(file, &header, &entries);
	FreeFile(file);
	if (problem)
		ereport(LOG,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("ignoring file \"%s\": %s", STORE_FILE, problem),
				 errdetail("The wait profile starts empty.")));
	else
		pgscale_profile_restore(&header.totals, entries, header.nentries);

	if (entries)
		pfree(entries);
	if (unlink(STORE_FILE) != 0)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not remove file \"%s\": %m", STORE_FILE)));
}
