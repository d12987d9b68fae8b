/*-------------------------------------------------------------------------
 *
 * relation_files.h
 *	  The files of a relation's forks, by path, without smgr.
 *
 * Nothing is locked, so a file may be gone, or may belong to another relation, a moment
 * later.  That is good enough to read the state of the kernel's cache and to give it
 * hints.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_RELATION_FILES_H
#define PGSCALE_BASE_RELATION_FILES_H

#include "postgres.h"

#include "common/relpath.h"

#include "base/pg_compat.h"

#define PGSCALE_SEGMENT_BYTES ((off_t) RELSEG_SIZE * BLCKSZ)

/* A segment's path, relative to the data directory; path is char[MAXPGPATH]. */
extern void pgscale_relation_file_path(char *path, RelFileLocator locator, ProcNumber backend, ForkNumber fork,
									   uint32 segment);

/* Where a relation of this database lies. */
extern RelFileLocator pgscale_relation_locator(Form_pg_class class);

/*
 * Calls each(arg, ...) with every permanent or unlogged relation of this database that
 * has files, and with their place.  Locks only pg_class.
 */
extern void pgscale_relation_files_each(void (*each) (void *arg, Form_pg_class class, RelFileLocator locator), void *arg);

/* A transient descriptor to read, or -1 with errno, ENOENT when it is gone. */
extern int	pgscale_relation_file_open(const char *path);

/* The folder of a tablespace that contains the databases' folders; not for pg_global. */
extern void pgscale_relation_files_folder(char *path, Oid tablespace);

#endif							/* PGSCALE_BASE_RELATION_FILES_H */
