/*-------------------------------------------------------------------------
 *
 * restart_file.h
 *	  Files that keep data over a restart of the server.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_RESTART_FILE_H
#define PGSCALE_BASE_RESTART_FILE_H

#include "postgres.h"

/* Some of a kind; false on failure.  None is not a failure. */
extern bool pgscale_restart_file_put(FILE *file, const void *items, Size size, Size count);
extern bool pgscale_restart_file_get(FILE *file, void *items, Size size, Size count);

/*
 * The end of writing: gives the temporary file its name, or logs why there is none; file
 * may be NULL if it could not be opened.
 */
extern void pgscale_restart_file_finish(FILE *file, bool good, const char *temp, const char *name);

/* Opens a file to read; NULL if there is none, or none that can be read, which is logged. */
extern FILE *pgscale_restart_file_open(const char *name);

/* The end of reading: logs why the file is of no use, if so, and removes it. */
extern void pgscale_restart_file_done(FILE *file, const char *name, const char *problem, const char *detail);

#endif							/* PGSCALE_BASE_RESTART_FILE_H */
