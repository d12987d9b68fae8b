/*-------------------------------------------------------------------------
 *
 * saved_file.h
 *	  The files of pgscale's own in pg_stat/.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_SAVED_FILE_H
#define PGSCALE_BASE_SAVED_FILE_H

#include "postgres.h"

#include "port/pg_crc32c.h"

/* One that is being written or read. */
typedef struct PgscaleSavedFile
{
	FILE	   *file;			/* NULL: it could not be opened */
	char		name[MAXPGPATH];
	pg_crc32c	crc;
	uint64		left;			/* reading: bytes that were not taken yet */
	int			error;			/* writing: the first one, an errno */
	const char *problem;		/* reading: why it is of no use, or NULL */
} PgscaleSavedFile;

/*
 * Writes a file, in the place of an older one: begin, any number of puts, end.  Only end()
 * says whether all of it went well: otherwise it reports that at elevel, with the hint if
 * that is not NULL, and the older file is as it was.
 */
extern void pgscale_saved_begin(PgscaleSavedFile *file, const char *name);
extern void pgscale_saved_put(PgscaleSavedFile *file, const void *data, Size size);
extern bool pgscale_saved_end(PgscaleSavedFile *file, int elevel, const char *hint);

/*
 * Reads one.  open() returns false if there is none.  It goes through all of the file, and
 * calls interrupts() now and then if that is not NULL: from there on each bit is known to
 * be as it was written.
 *
 * The caller takes what it expects, checks it, and sets file->problem if it is not what it
 * would have written.  get() returns false if there is a problem already, or not so much
 * left.  close() logs the problem with the detail and the hint, which may be NULL, and
 * removes the file if that is wanted and it could be read.
 */
extern bool pgscale_saved_open(PgscaleSavedFile *file, const char *name, void (*interrupts) (void));
extern bool pgscale_saved_get(PgscaleSavedFile *file, void *data, Size size);
extern void pgscale_saved_close(PgscaleSavedFile *file, bool remove, const char *detail, const char *hint);

#endif							/* PGSCALE_BASE_SAVED_FILE_H */
