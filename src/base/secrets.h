/*-------------------------------------------------------------------------
 *
 * secrets.h
 *	  Secrets in statements and settings.  In SQL: pgscale_internal.is_secret().
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_SECRETS_H
#define PGSCALE_BASE_SECRETS_H

#include "postgres.h"

/*
 * Statements in UTF-8, which may be cut anywhere, without their constants if they have to do with a
 * secret; or, if all is true, in any case.
 */
extern char *pgscale_secrets_hide(const char *statement, bool all);

/* Does a setting, by its name or by this value of it (NULL: any), seem to hold a password, a key, a command or a connection? */
extern bool pgscale_secret_setting(const char *setting, const char *value);

#endif							/* PGSCALE_BASE_SECRETS_H */
