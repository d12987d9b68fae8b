/*-------------------------------------------------------------------------
 *
 * usl_fit.h
 *	  The Universal Scalability Law, fitted to measurements.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_SCALABILITY_USL_FIT_H
#define PGSCALE_SCALABILITY_USL_FIT_H

#include "postgres.h"

typedef struct PgscaleScalabilityUslPoint
{
	double		n;				/* concurrency; as x and weight, above 0 */
	double		x;				/* throughput */
	double		weight;			/* 1 over the variance of log x, up to a
								 * factor that is the same for all */
} PgscaleScalabilityUslPoint;

typedef struct PgscaleScalabilityUsl
{
	char		status[160];	/* begins with "ok", "no peak", "noisy" or
								 * "insufficient range" */
	bool		fitted;			/* else only the last three are set */
	bool		peaked;			/* are those of the peak? Only if "ok" */
	double		lambda;			/* throughput of one session */
	double		sigma;			/* contention */
	double		kappa;			/* coherency */
	double		r2;				/* NaN if all throughputs are the same */
	double		scatter;		/* how far off the law a point is, as a
								 * fraction of its throughput */
	double		peak_n;			/* low and high: of 95 % */
	double		peak_n_low;
	double		peak_n_high;
	double		peak_x;
	double		peak_x_low;
	double		peak_x_high;
	int			points;
	double		min_n;
	double		max_n;
} PgscaleScalabilityUsl;

/*
 * Fits the law to at least one point; sorts them.  The same points give the
 * same result, in whatever order.
 */
extern void pgscale_scalability_usl_fit(PgscaleScalabilityUsl *usl, PgscaleScalabilityUslPoint *points, int npoints);

/* The law's throughput at this concurrency. */
extern double pgscale_scalability_usl_throughput(double lambda, double sigma, double kappa, double n);

#endif							/* PGSCALE_SCALABILITY_USL_FIT_H */
