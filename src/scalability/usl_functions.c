/*-------------------------------------------------------------------------
 *
 * usl_functions.c
 *	  The Universal Scalability Law of figures that the caller has.
 *
 * The aggregate keeps all its points until the end, since the residuals tell
 * the interval; there is a greatest number of them, so that its memory is
 * bounded.  Parts of a parallel query each keep theirs and hand them on as
 * bytes.
 *
 * Failure: a figure that makes no sense is an error.  Figures that make sense
 * but do not tell enough are none: the status says so.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/htup_details.h"
#include "catalog/pg_type.h"
#include "executor/executor.h"
#include "fmgr.h"
#include "funcapi.h"
#include "utils/array.h"
#include "utils/builtins.h"

#include "scalability/scalability.h"

#define MAX_POINTS		10000

/* What a parallel worker hands on: as many of these as there are points. */
typedef struct Pair
{
	double		n;
	double		x;
} Pair;

typedef struct Points
{
	int			count;
	int			room;
	Pair	   *pairs;
} Points;

PG_FUNCTION_INFO_V1(pgscale_usl_fit_add);
PG_FUNCTION_INFO_V1(pgscale_usl_fit_combine);
PG_FUNCTION_INFO_V1(pgscale_usl_fit_serialize);
PG_FUNCTION_INFO_V1(pgscale_usl_fit_deserialize);
PG_FUNCTION_INFO_V1(pgscale_usl_fit_end);
PG_FUNCTION_INFO_V1(pgscale_usl_fit);
PG_FUNCTION_INFO_V1(pgscale_usl_predict);

void
pgscale_scalability_usl_row(const PgscaleScalabilityUsl *usl, Datum *values, bool *nulls)
{
	int			i = 0;

	values[i++] = CStringGetTextDatum(usl->status);
	for (int c = i; c <= 10; c++)
		nulls[c] = !(c <= 4 ? usl->fitted : usl->peaked);
	values[i++] = Float8GetDatum(usl->lambda);
	values[i++] = Float8GetDatum(usl->sigma);
	values[i++] = Float8GetDatum(usl->kappa);
	nulls[i] = !usl->fitted || isnan(usl->r2);
	values[i++] = Float8GetDatum(usl->r2);
	values[i++] = Float8GetDatum(usl->peak_n);
	values[i++] = Float8GetDatum(usl->peak_n_low);
	values[i++] = Float8GetDatum(usl->peak_n_high);
	values[i++] = Float8GetDatum(usl->peak_x);
	values[i++] = Float8GetDatum(usl->peak_x_low);
	values[i++] = Float8GetDatum(usl->peak_x_high);
	values[i++] = Int32GetDatum(usl->points);
	nulls[i] = nulls[i + 1] = (usl->points == 0);
	values[i++] = Float8GetDatum(usl->min_n);
	values[i++] = Float8GetDatum(usl->max_n);
	Assert(i == PGSCALE_USL_COLUMNS);
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
add_pair(Points *points, double n, double x)
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
		points->pairs = repalloc(points->pairs, sizeof(Pair) * points->room);
	}
	points->pairs[points->count].n = n;
	points->pairs[points->count].x = x;
	points->count++;
}

/* In this memory context. */
static Points *
make_points(MemoryContext context)
{
	Points	   *points = MemoryContextAlloc(context, sizeof(Points));

	points->count = 0;
	points->room = 32;
	points->pairs = MemoryContextAlloc(context, sizeof(Pair) * points->room);
	return points;
}

static Datum
usl_fit_points(FunctionCallInfo fcinfo, const Points *points)
{
	PgscaleScalabilityUslPoint *weighted = palloc(sizeof(PgscaleScalabilityUslPoint) * points->count);
	PgscaleScalabilityUsl usl;
	TupleDesc	desc;
	Datum		values[PGSCALE_USL_COLUMNS] = {0};
	bool		nulls[PGSCALE_USL_COLUMNS] = {0};

	if (get_call_result_type(fcinfo, NULL, &desc) != TYPEFUNC_COMPOSITE)
		elog(ERROR, "return type must be a row type");
	for (int i = 0; i < points->count; i++)
	{
		weighted[i].n = points->pairs[i].n;
		weighted[i].x = points->pairs[i].x;
		weighted[i].weight = 1;
	}
	pgscale_scalability_usl_fit(&usl, weighted, points->count);
	pgscale_scalability_usl_row(&usl, values, nulls);
	return HeapTupleGetDatum(heap_form_tuple(BlessTupleDesc(desc), values, nulls));
}

static MemoryContext
aggregate_context(FunctionCallInfo fcinfo)
{
	MemoryContext context;

	if (!AggCheckCallContext(fcinfo, &context))
		elog(ERROR, "aggregate function called in non-aggregate context");
	return context;
}

/* usl_fit's transition: a point of which a coordinate is NULL does not count. */
Datum
pgscale_usl_fit_add(PG_FUNCTION_ARGS)
{
	MemoryContext context = aggregate_context(fcinfo);
	Points	   *points = PG_ARGISNULL(0) ? NULL : (Points *) PG_GETARG_POINTER(0);

	if (!PG_ARGISNULL(1) && !PG_ARGISNULL(2))
	{
		if (!points)
			points = make_points(context);
		add_pair(points, PG_GETARG_FLOAT8(1), PG_GETARG_FLOAT8(2));
	}
	if (!points)
		PG_RETURN_NULL();
	PG_RETURN_POINTER(points);
}

Datum
pgscale_usl_fit_combine(PG_FUNCTION_ARGS)
{
	MemoryContext context = aggregate_context(fcinfo);
	Points	   *points = PG_ARGISNULL(0) ? NULL : (Points *) PG_GETARG_POINTER(0);

	if (!PG_ARGISNULL(1))
	{
		const Points *more = (Points *) PG_GETARG_POINTER(1);

		if (!points)
			points = make_points(context);
		for (int i = 0; i < more->count; i++)
			add_pair(points, more->pairs[i].n, more->pairs[i].x);
	}
	if (!points)
		PG_RETURN_NULL();
	PG_RETURN_POINTER(points);
}

Datum
pgscale_usl_fit_serialize(PG_FUNCTION_ARGS)
{
	const Points *points = (Points *) PG_GETARG_POINTER(0);
	Size		size = sizeof(Pair) * points->count;
	bytea	   *bytes;

	(void) aggregate_context(fcinfo);
	bytes = palloc(VARHDRSZ + size);
	SET_VARSIZE(bytes, VARHDRSZ + size);
	memcpy(VARDATA(bytes), points->pairs, size);
	PG_RETURN_BYTEA_P(bytes);
}

Datum
pgscale_usl_fit_deserialize(PG_FUNCTION_ARGS)
{
	bytea	   *bytes;
	Points	   *points;

	(void) aggregate_context(fcinfo);
	bytes = PG_GETARG_BYTEA_PP(0);
	points = make_points(CurrentMemoryContext);
	points->count = points->room = VARSIZE_ANY_EXHDR(bytes) / sizeof(Pair);
	points->pairs = repalloc(points->pairs, Max(sizeof(Pair) * points->room, 1));
	memcpy(points->pairs, VARDATA_ANY(bytes), sizeof(Pair) * points->count);
	PG_RETURN_POINTER(points);
}

/* usl_fit's result; NULL without a point. */
Datum
pgscale_usl_fit_end(PG_FUNCTION_ARGS)
{
	(void) aggregate_context(fcinfo);
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
		add_pair(points, n[i], x[i]);
	return usl_fit_points(fcinfo, points);
}

/* usl_predict(usl, concurrency): the fitted throughput; NULL if there is no fit. */
Datum
pgscale_usl_predict(PG_FUNCTION_ARGS)
{
	HeapTupleHeader usl = PG_GETARG_HEAPTUPLEHEADER(0);
	double		n = PG_GETARG_FLOAT8(1);
	const char *const names[] = {"lambda", "sigma", "kappa"};
	double		parameters[lengthof(names)];

	check_figure("concurrency", n, "Pass a number of sessions.");
	for (int i = 0; i < lengthof(names); i++)
	{
		bool		isnull;
		Datum		value = GetAttributeByName(usl, names[i], &isnull);

		if (isnull)
			PG_RETURN_NULL();
		parameters[i] = DatumGetFloat8(value);
	}
	PG_RETURN_FLOAT8(pgscale_scalability_usl_throughput(parameters[0], parameters[1], parameters[2], n));
}
