/*-------------------------------------------------------------------------
 *
 * extension_function.h
 *	  Functions and views of extensions.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_EXTENSION_FUNCTION_H
#define PGSCALE_BASE_EXTENSION_FUNCTION_H

#include "postgres.h"

/* The extension.  Raises an error with a hint where it is not installed here; option is what has asked for it. */
extern Oid	pgscale_extension_required(const char *extension, const char *option);

/*
 * Returns the function with that name and exactly these parameters that belongs to the
 * extension, in any schema.  Raises an error with a hint if the extension is not
 * installed here or has no such function; option is the name in that message.
 */
extern Oid	pgscale_extension_function(const char *extension, const char *function, int nargs, const Oid *types,
									   const char *option);

/* As above, but returns InvalidOid if the extension is not installed here or has no such function. */
extern Oid	pgscale_extension_function_if_any(const char *extension, const char *function, int nargs, const Oid *types);

/* The view of that name that belongs to the extension, wherever that is installed; or InvalidOid. */
extern Oid	pgscale_extension_view(const char *extension, const char *view);

/*
 * Calls a function of our own script that returns text, with arguments that are not
 * null; returns NULL for null.  It runs as the current user, who needs no privilege on
 * it.
 */
extern char *pgscale_extension_own_text(const char *function, int nargs, const Oid *types, const Datum *values);

#endif							/* PGSCALE_BASE_EXTENSION_FUNCTION_H */
