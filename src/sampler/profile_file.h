/*-------------------------------------------------------------------------
 *
 * profile_file.h
 *	  Keeps the wait profile over a restart of the server.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SAMPLER_PROFILE_FILE_H
#define PGSCALE_SAMPLER_PROFILE_FILE_H

/* In the postmaster, with no writer running. */
extern void pgscale_sampler_save(void);
extern void pgscale_sampler_load(void);

#endif							/* PGSCALE_SAMPLER_PROFILE_FILE_H */
