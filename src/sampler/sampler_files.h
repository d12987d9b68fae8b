/*-------------------------------------------------------------------------
 *
 * sampler_files.h
 *	  Common code of the files that keep the sampler's data over a restart.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SAMPLER_FILES_H
#define PGSCALE_SAMPLER_FILES_H

#include "postgres.h"

#include "base/processes.h"
#include "sampler/worker_types.h"

/* In place of writing: logs that there is nothing to keep. */
extern void pgscale_sampler_file_not_kept(const char *what);

/* Can it be in a file? */
extern bool pgscale_sampler_file_knows_event(uint32 wait_event);
extern bool pgscale_sampler_file_knows_kind(PgscaleProcKind kind, uint32 ntypes);
extern bool pgscale_sampler_file_knows_types(const PgscaleSamplerTypeName * types, uint32 ntypes);
extern bool pgscale_sampler_file_is_ascii(const char *text);

/* What kind the types of a file are in this server. */
extern void pgscale_sampler_file_kinds(const PgscaleSamplerTypeName * types, uint32 ntypes, PgscaleProcKind *kinds);

#endif							/* PGSCALE_SAMPLER_FILES_H */
