/*-------------------------------------------------------------------------
 *
 * drop_notice.h
 *	  Tells what goes with the journal of changes when the extension is dropped.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_TUNING_CHANGES_DROP_NOTICE_H
#define PGSCALE_TUNING_CHANGES_DROP_NOTICE_H

#include "postgres.h"

/* In the postmaster, when the library is preloaded. */
extern void pgscale_drop_install(void);

#endif							/* PGSCALE_TUNING_CHANGES_DROP_NOTICE_H */
