/*-------------------------------------------------------------------------
 *
 * server_settings.h
 *	  The server's values of settings that a session can change for itself.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_SERVER_SETTINGS_H
#define PGSCALE_BASE_SERVER_SETTINGS_H

#include "postgres.h"

#include "base/shared_area.h"

extern const PgscaleArea pgscale_server_settings_area;

/* For a process without settings of a session: stores the values that it has. */
extern void pgscale_server_settings_store(void);

/*
 * The server's value of a setting, as SHOW has it.  The session's, if server_settings.c
 * does not list the setting: then no session may change it.
 */
extern const char *pgscale_server_setting(const char *name);

#endif							/* PGSCALE_BASE_SERVER_SETTINGS_H */
