/*-------------------------------------------------------------------------
 *
 * wilson_interval.c
 *	  The confidence interval of a fraction from a sample.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "base/wilson_interval.h"

/* The normal distribution's quantile that leaves 2.5 % on either side. */
#define Z_95			1.959963984540054

/*
 * Wilson's score interval, which holds for shares near 0 and 1, too, and for
 * small n (E. B. Wilson, "Probable Inference, the Law of Succession, and
 * Statistical Inference", J. Am. Stat. Assoc. 22 (1927), p. 209-212).
 */
PgscaleInterval
pgscale_wilson_interval(double k, double n)
{
	const double share = k / n;
	const double zz = Z_95 * Z_95 / n;
	const double middle = share + zz / 2;
	const double half = sqrt(zz * (share * (1 - share) + zz / 4));

	/* Rounding must not lead beyond. */
	return (PgscaleInterval)
	{
		.low = Max((middle - half) / (1 + zz), 0),
			.high = Min((middle + half) / (1 + zz), 1)
	};
}
