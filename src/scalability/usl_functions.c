/*-------------------------------------------------------------------------
 *
 * usl_functions.c
 *	  The Universal Scalability Law of given measurements.
 *
 * The aggregate keeps all its points until the end, because the interval needs the
 * residuals.  The number of points is limited, so its memory is bounded.
 *
 * Failure: an invalid figure is an error.  Valid figures without enough information are
 * not: the status says so.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "base/row_builder.h"
#include "scalability/scalability.h"

#define MAX_POINTS		10000

typedef struct Points
{
	int			count;
	int			room;
	PgscaleScalabilityUslPoint *points;
} Points;

PG_FUNCTION_INFO_V1(pgscale_usl_fit_add);
PG_FUNCTION_INFO_V1(pgscale_usl_fit_end);
PG_FUNCTION_INFO_V1(pgscale_usl_fit);
PG_FUNCTION_INFO_V1(pgscale_usl_throughput);

void
pgscale_scalability_usl_row(PgscaleRow *row, const PgscaleScalabilityUsl *usl)
{
	pgscale_row_text(row, usl->status);
	pgscale_row_put(row, Float8GetDatum(usl->lambda), !usl->fitted);
	pgscale_row_put(row, Float8GetDatum(usl->sigma), !usl->fitted);
	pgscale_row_put(row, Float8GetDatum(usl->kappa), !usl->fitted);
	pgscale_row_float8(row, usl->fitted ? usl->r2 : NAN);
	pgscale_row_put(row, Float8GetDatum(usl->peak_n), !usl->peaked);
	pgscale_row_put(row, Float8GetDatum(usl->peak_n_low), !usl->peaked);
	pgscale_row_put(row, Float8GetDatum(usl->peak_n_high), !usl->peaked);
	pgscale_row_put(row, Float8GetDatum(usl->peak_x), !usl->peaked);
	pgscale_row_put(row, Float8GetDatum(usl->peak_x_low), !usl->peaked);
	pgscale_row_put(row, Float8GetDatum(usl->peak_x_high), !usl->peaked);
	pgscale_row_int4(row, usl->points);
	pgscale_row_put(row, Float8GetDatum(usl->min_n), usl->points == 0);
	pgscale_row_put(row, Float8GetDatum(usl->max_n), usl->points == 0);
}

static void
check_figure(const char *what, double figure, const char *hint)
{
	if (isfinite(figure) && figure > 0)
		return;
	ereport(ERROR,
			(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
			 errmsg("%s must be a finite number above zero, not %g", what, figure),
			 errhint("%s", hint)));
}

static void
add_point(Points *points, double n, double x)
{
	static const char *const hint = "Leave such measurements out, for example with FILTER (WHERE throughput > 0).";

	check_figure("concurrency", n, hint);
	check_figure("throughput", x, hint);
	if (points->count >= MAX_POINTS)
		ereport(ERROR,
				(errcode(ERRCODE_PROGRAM_LIMIT_EXCEEDED),
				 errmsg("more than %d points", MAX_POINTS),
				 errhint("Group the measurements by concurrency, and fit the averages.")));
	if (points->count == points->room)
	{
		points->room *= 2;
		points->points = repalloc(points->points, sizeof(PgscaleScalabilityUslPoint) * points->room);
	}
	points->points[points->count++] = (PgscaleScalabilityUslPoint)
	{
		.n = n,.x = x,.weight = 1
	};
}

static Points *
make_points(MemoryContext context)
{
	Points	   *points = MemoryContextAlloc(context, sizeof(Points));

	points->count = 0;
	points->room = 32;
	points->points = MemoryContextAlloc(context, sizeof(PgscaleScalabilityUslPoint) * points->room);
	return points;
}

static Datum
usl_fit_points(FunctionCallInfo fcinfo, const Points *points)
{
	Size		size = sizeof(PgscaleScalabilityUslPoint) * points->count;
	PgscaleScalabilityUslPoint *sorted = memcpy(palloc(size), points->points, size);
	PgscaleScalabilityUsl usl;
	PgscaleRow	row = {0};

	pgscale_scalability_usl_fit(&usl, sorted, points->count);
	pgscale_scalability_usl_row(&row, &usl);
	return pgscale_row_result(&row, fcinfo);
}

/* usl_fit's transition: a point of which a coordinate is NULL does not count. */
Datum
pgscale_usl_fit_add(PG_FUNCTION_ARGS)
{
	MemoryContext context;
	Points	   *points = PG_ARGISNULL(0) ? NULL : (Points *) PG_GETARG_POINTER(0);

	if (!AggCheckCallContext(fcinfo, &context))
		elog(ERROR, "aggregate function called in non-aggregate context");
	if (!PG_ARGISNULL(1) && !PG_ARGISNULL(2))
	{
		if (!points)
			points = make_points(context);
		add_point(points, PG_GETARG_FLOAT8(1), PG_GETARG_FLOAT8(2));
	}
	if (!points)
		PG_RETURN_NULL();
	PG_RETURN_POINTER(points);
}

/* usl_fit's result; NULL without a point. */
Datum
pgscale_usl_fit_end(PG_FUNCTION_ARGS)
{
	Assert(AggCheckCallContext(fcinfo, NULL));
	if (PG_ARGISNULL(0))
		PG_RETURN_NULL();
	return usl_fit_points(fcinfo, (Points *) PG_GETARG_POINTER(0));
}

static double *
usl_figures(ArrayType *array, const char *what, int *count)
{
	Datum	   *elements;
	bool	   *nulls;
	double	   *values;

	deconstruct_array(array, FLOAT8OID, sizeof(float8), FLOAT8PASSBYVAL, TYPALIGN_DOUBLE,
					  &elements, &nulls, count);
	if (ARR_NDIM(array) > 1)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("array of %s must have one dimension, not %d", what, ARR_NDIM(array)),
				 errhint("Pass one element a measurement.")));
	values = palloc(sizeof(double) * *count);
	for (int i = 0; i < *count; i++)
	{
		if (nulls[i])
			ereport(ERROR,
					(errcode(ERRCODE_NULL_VALUE_NOT_ALLOWED),
					 errmsg("array of %s must not contain nulls", what),
					 errhint("Remove the element from both arrays, or use the aggregate, which ignores nulls.")));
		values[i] = DatumGetFloat8(elements[i]);
	}
	return values;
}

/* usl_fit(concurrency double precision[], throughput double precision[]): NULL if they are empty. */
Datum
pgscale_usl_fit(PG_FUNCTION_ARGS)
{
	int			count;
	int			throughputs;
	double	   *n = usl_figures(PG_GETARG_ARRAYTYPE_P(0), "concurrencies", &count);
	double	   *x = usl_figures(PG_GETARG_ARRAYTYPE_P(1), "throughputs", &throughputs);
	Points	   *points = make_points(CurrentMemoryContext);

	if (count != throughputs)
		ereport(ERROR,
				(errcode(ERRCODE_ARRAY_SUBSCRIPT_ERROR),
				 errmsg("arrays must have the same length, not %d and %d", count, throughputs),
				 errhint("Pass one throughput for each concurrency, in the same order.")));
	if (count == 0)
		PG_RETURN_NULL();
	for (int i = 0; i < count; i++)
		add_point(points, n[i], x[i]);
	return usl_fit_points(fcinfo, points);
}

/*
 * usl_throughput(lambda, sigma, kappa, concurrency): the throughput; NULL if the first three are, as
 * without a fit.  Not of a value of the composite type: the server's functions that take one
 * apart are others in new minor releases, and the library has to load into old ones.
 */
Datum
pgscale_usl_throughput(PG_FUNCTION_ARGS)
{
	double		parameters[3];
	double		n;

	if (PG_ARGISNULL(3))
		PG_RETURN_NULL();
	n = PG_GETARG_FLOAT8(3);
	check_figure("concurrency", n, "Pass a number of sessions.");
	for (int i = 0; i < lengthof(parameters); i++)
	{
		if (PG_ARGISNULL(i))
			PG_RETURN_NULL();
		parameters[i] = PG_GETARG_FLOAT8(i);
	}
	PG_RETURN_FLOAT8(pgscale_scalability_usl_throughput(parameters[0], parameters[1], parameters[2], n));
}
