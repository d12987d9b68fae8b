/*-------------------------------------------------------------------------
 *
 * extension_drop.h
 *	  What is said before the extension is dropped.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_EXTENSION_DROP_H
#define PGSCALE_BASE_EXTENSION_DROP_H

#include "postgres.h"

/*
 * Calls tell() before a superuser's DROP EXTENSION pgscale, as a subtransaction; its
 * errors do not stop the DROP.  Call this in the postmaster, when the library is
 * preloaded.
 */
extern void pgscale_extension_drop_tell(void (*tell) (void));

#endif							/* PGSCALE_BASE_EXTENSION_DROP_H */
