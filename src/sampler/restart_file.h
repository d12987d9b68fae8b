/*-------------------------------------------------------------------------
 *
 * restart_file.h
 *	  Common code of the files that keep the sampler's data over a restart.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SAMPLER_RESTART_FILE_H
#define PGSCALE_SAMPLER_RESTART_FILE_H

#include "postgres.h"

#include "base/processes.h"
#include "sampler/worker_types.h"

/* Some of a kind; false on failure.  None is not a failure. */
extern bool pgscale_sampler_restart_file_put(FILE *file, const void *items, Size size, Size count);
extern bool pgscale_sampler_restart_file_get(FILE *file, void *items, Size size, Size count);

/* In place of writing: logs that there is nothing to keep. */
extern void pgscale_sampler_restart_file_not_kept(const char *what);

/*
 * The end of writing: gives the temporary file its name, or logs why there is none; file
 * may be NULL if it could not be opened.
 */
extern void pgscale_sampler_restart_file_finish(FILE *file, bool good, const char *temp, const char *name);

/* Opens a file to read; NULL if there is none, or none that can be read, which is logged. */
extern FILE *pgscale_sampler_restart_file_open(const char *name);

/* The end of reading: logs why the file is of no use, if so, and removes it. */
extern void pgscale_sampler_restart_file_done(FILE *file, const char *name, const char *problem, const char *detail);

/* Can it be in a file? */
extern bool pgscale_sampler_restart_file_knows_event(uint32 wait_event);
extern bool pgscale_sampler_restart_file_knows_kind(PgscaleProcKind kind, uint32 ntypes);
extern bool pgscale_sampler_restart_file_knows_types(const PgscaleSamplerTypeName * types, uint32 ntypes);
extern bool pgscale_sampler_restart_file_is_ascii(const char *text);

/* What kind the types of a file are in this server. */
extern void pgscale_sampler_restart_file_kinds(const PgscaleSamplerTypeName * types, uint32 ntypes, PgscaleProcKind *kinds);

#endif							/* PGSCALE_SAMPLER_RESTART_FILE_H */
