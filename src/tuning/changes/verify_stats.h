/*-------------------------------------------------------------------------
 *
 * verify_stats.h
 *	  The ratio of two series whose values depend on each other, and the difference
 *	  of two such ratios; pure.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_TUNING_CHANGES_VERIFY_STATS_H
#define PGSCALE_TUNING_CHANGES_VERIFY_STATS_H

#include "postgres.h"

/* Of fewer values nothing is said. */
#define PGSCALE_SERIES_MIN	12

typedef struct PgscaleTuningSeries
{
	int			n;				/* pairs that are known */
	double		mean;			/* the ratio of their sums; NaN: unknown */
	double		variance;		/* of the mean; NaN: too few values */
	double		df;				/* that the variance is known with */
} PgscaleTuningSeries;

/* Counts and what each is divided by, in the order of time; NaN: unknown. */
extern PgscaleTuningSeries pgscale_tuning_series(const double *of, const double *per, int n);

/*
 * Half the width of the 95 % confidence interval of the difference of their
 * means.  NaN: too few values.
 */
extern double pgscale_tuning_series_difference(const PgscaleTuningSeries *a, const PgscaleTuningSeries *b);

/* What Student's t exceeds on either side with a probability of 2.5 %; df >= 1. */
extern double pgscale_tuning_student_95(double df);

#endif							/* PGSCALE_TUNING_CHANGES_VERIFY_STATS_H */
