/*-------------------------------------------------------------------------
 *
 * saved_file.c
 *	  The files of pgscale's own in pg_stat/.
 *
 * A file has what its owner puts into it, and a CRC of that at its end.  The first word
 * should be a number of its format.  It is written under another name, synced and renamed,
 * so there is the old file or the new one, whatever happens.  Data that is only kept over a
 * restart is removed when it is read, so that a crash restores no old file, nor does a base
 * backup of what is in use.
 *
 * Statistics must never keep a server from starting or ending.  So all that goes wrong with
 * a file that is read is a LOG message; and of one that is written, if the caller wants
 * that, as the postmaster must, in which an error is FATAL.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>
#include <unistd.h>

#include "pgstat.h"
#include "storage/fd.h"

#include "base/saved_file.h"
#include "base/units.h"

/* More than any owner puts into one; reading what is far larger would delay the server's start. */
#define MOST_BYTES	(256 * PGSCALE_MB)

static const char *
temporary_name(const PgscaleSavedFile *file, char *temp)
{
	snprintf(temp, MAXPGPATH, "%s.tmp", file->name);
	return temp;
}

void
pgscale_saved_begin(PgscaleSavedFile *file, const char *name)
{
	char		temp[MAXPGPATH];

	memset(file, 0, sizeof(*file));
	strlcpy(file->name, name, sizeof(file->name));
	INIT_CRC32C(file->crc);
	file->file = AllocateFile(temporary_name(file, temp), PG_BINARY_W);
	file->error = file->file ? 0 : errno;
}

static void
saved_write(PgscaleSavedFile *file, const void *data, Size size)
{
	if (file->error != 0 || size == 0)
		return;
	errno = 0;
	if (fwrite(data, size, 1, file->file) != 1)
		file->error = errno ? errno : ENOSPC;
}

void
pgscale_saved_put(PgscaleSavedFile *file, const void *data, Size size)
{
	COMP_CRC32C(file->crc, data, size);
	saved_write(file, data, size);
}

bool
pgscale_saved_end(PgscaleSavedFile *file, int elevel, const char *hint)
{
	char		temp[MAXPGPATH];

	FIN_CRC32C(file->crc);
	saved_write(file, &file->crc, sizeof(file->crc));
	if (file->error == 0 && (fflush(file->file) != 0 || pg_fsync(fileno(file->file)) != 0))
		file->error = errno;
	if (file->file && FreeFile(file->file) != 0 && file->error == 0)
		file->error = errno;
	if (file->error == 0 && rename(temporary_name(file, temp), file->name) != 0)
		file->error = errno;
	if (file->error != 0)
	{
		unlink(temporary_name(file, temp));
		errno = file->error;
		ereport(elevel,
				(errcode_for_file_access(),
				 errmsg("could not write file \"%s\": %m", file->name),
				 hint ? errhint("%s", hint) : 0));
		return false;
	}
	/* It is there by now, whether this is on the disk or not. */
	(void) fsync_fname_ext(PGSTAT_STAT_PERMANENT_DIRECTORY, true, true, LOG);
	return true;
}

/* Reads all of it for the CRC. */
static const char *
check_saved(PgscaleSavedFile *file, void (*interrupts) (void))
{
	char		chunk[BLCKSZ];
	pg_crc32c	written;
	struct stat st;

	if (fstat(fileno(file->file), &st) != 0)
		return "it could not be read";
	if (st.st_size < sizeof(written))
		return "its checksum is wrong";
	if (st.st_size > MOST_BYTES)
		return "its size is wrong";
	file->left = st.st_size - sizeof(written);
	for (uint64 left = file->left; left > 0;)
	{
		const Size	n = Min(left, sizeof(chunk));

		if (interrupts)
			interrupts();
		if (fread(chunk, n, 1, file->file) != 1)
			return "it could not be read";
		COMP_CRC32C(file->crc, chunk, n);
		left -= n;
	}
	FIN_CRC32C(file->crc);
	if (fread(&written, sizeof(written), 1, file->file) != 1)
		return "it could not be read";
	if (!EQ_CRC32C(file->crc, written))
		return "its checksum is wrong";
	return fseek(file->file, 0, SEEK_SET) == 0 ? NULL : "it could not be read";
}

bool
pgscale_saved_open(PgscaleSavedFile *file, const char *name, void (*interrupts) (void))
{
	struct stat st;

	memset(file, 0, sizeof(*file));
	strlcpy(file->name, name, sizeof(file->name));
	INIT_CRC32C(file->crc);
	/* opening a pipe would never end */
	if (lstat(name, &st) == 0 && !S_ISREG(st.st_mode))
		file->problem = "it is not a regular file";
	else if ((file->file = AllocateFile(name, PG_BINARY_R)) != NULL)
		file->problem = check_saved(file, interrupts);
	else if (errno == ENOENT)
		return false;
	else
		file->problem = psprintf("it could not be opened: %m");
	return true;
}

bool
pgscale_saved_get(PgscaleSavedFile *file, void *data, Size size)
{
	if (file->problem)
		return false;
	if (size > file->left)
		file->problem = "its size is wrong";
	else if (size > 0 && fread(data, size, 1, file->file) != 1)
		file->problem = "it could not be read";
	else
		file->left -= size;
	return file->problem == NULL;
}

void
pgscale_saved_close(PgscaleSavedFile *file, bool remove, const char *detail, const char *hint)
{
	if (file->file)
		FreeFile(file->file);
	if (file->problem)
		ereport(LOG,
				(errcode(ERRCODE_DATA_CORRUPTED),
				 errmsg("ignoring file \"%s\": %s", file->name, file->problem),
				 errdetail("%s", detail),
				 hint ? errhint("%s", hint) : 0));
	if (remove && file->file && unlink(file->name) != 0)
		ereport(LOG,
				(errcode_for_file_access(),
				 errmsg("could not remove file \"%s\": %m", file->name)));
}
