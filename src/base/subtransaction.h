/*-------------------------------------------------------------------------
 *
 * subtransaction.h
 *	  What may fail without failing the statement it is part of.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_SUBTRANSACTION_H
#define PGSCALE_BASE_SUBTRANSACTION_H

#include "postgres.h"

/*
 * Calls function(arg) as a subtransaction.  Returns NULL, or the error that it
 * raised, in the caller's memory context: then all that it did is rolled back.  If
 * the caller holds off interrupts, they are held off after an error, too.
 */
extern ErrorData *pgscale_subtransaction_run(void (*function) (void *arg), void *arg);

/*
 * Must the caller raise this error again with ReThrowError(), instead of turning it
 * into a result?  A cancel, a shutdown of the server, lack of memory, a damaged file or
 * damaged memory.
 */
extern bool pgscale_subtransaction_is_grave(const ErrorData *error);

#endif							/* PGSCALE_BASE_SUBTRANSACTION_H */
