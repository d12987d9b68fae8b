/*-------------------------------------------------------------------------
 *
 * three_digits.h
 *	  Measured numbers, with as many digits as a measurement has.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_THREE_DIGITS_H
#define PGSCALE_BASE_THREE_DIGITS_H

#include "postgres.h"

/*
 * A number for people, rounded to three significant digits, or to a whole number if that
 * has more: 0.0123, 12.3, 12346.  Not for what is added up again.
 * (relocation_plan() may compute with the rounded latencies of tablespace_latency(): half
 * a per cent is little beside the fifth that a move must save.)
 */
extern double pgscale_three_digits(double value);

#endif							/* PGSCALE_BASE_THREE_DIGITS_H */
