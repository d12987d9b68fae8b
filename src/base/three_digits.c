/*-------------------------------------------------------------------------
 *
 * three_digits.c
 *	  Measured numbers, with as many digits as a measurement has.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "fmgr.h"

#include "base/three_digits.h"

#define DIGITS		3

/* 10 to this power is exact in a double, so that what is divided by it prints as that many digits. */
#define POWER_MAX	22

PG_FUNCTION_INFO_V1(pgscale_three_digits_of);

double
pgscale_three_digits(double value)
{
	double		power;

	if (value == 0 || !isfinite(value))
		return value;
	power = Min(DIGITS - 1 - floor(log10(fabs(value))), POWER_MAX);
	if (power <= 0)
		return rint(value);
	/* no -0 */
	return rint(value * pow(10, power)) / pow(10, power) + 0.0;
}

/* pgscale_internal.three_digits(value) */
Datum
pgscale_three_digits_of(PG_FUNCTION_ARGS)
{
	PG_RETURN_FLOAT8(pgscale_three_digits(PG_GETARG_FLOAT8(0)));
}
