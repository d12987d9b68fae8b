/*-------------------------------------------------------------------------
 *
 * now.h
 *	  What is wrong with the server now.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_NOW_H
#define PGSCALE_NOW_H

#include "lib/stringinfo.h"

#include "pgscale.h"

extern const PgscaleModule pgscale_now_module;

/* The sessions in each kind of wait, and in locks, as members of an object; unit: what a session counts. */
extern void pgscale_now_put_waits(StringInfo out, const int64 *waits, int64 locks, double unit);

#endif							/* PGSCALE_NOW_H */
