/*-------------------------------------------------------------------------
 *
 * chart.c
 *	  A chart of active sessions over time by class of wait event.
 *
 * The period is divided into buckets.  A bucket with data is a stack of its classes; a
 * bucket without data is shown as a gap.
 *
 * For a browser it is SVG, with one path for each class: so its size depends on the
 * number of classes and little on the number of buckets.  One invisible rectangle for
 * each bucket shows its figures under the pointer.  The chart is stretched to the
 * page's width.  Labels of its axes are HTML beside it, so they keep their size on a
 * narrow screen.  For psql it is a row of letters for each bucket.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type_d.h"
#include "miscadmin.h"
#include "pgtime.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/kernel.h"
#include "base/pg_compat.h"
#include "base/texts.h"
#include "base/wait_events.h"
#include "report/report.h"

PG_FUNCTION_INFO_V1(pgscale_report_chart);

#define MOST_BUCKETS	240
#define MOST_MARKS		40
#define MOST_SESSIONS	1e7		/* what is beyond cannot be */

/* The picture's own units; both are stretched. */
#define PICTURE_WIDTH	1000.0
#define PICTURE_HEIGHT	200.0

#define LETTERS			60		/* of a bucket's row, for psql */

/*
 * In the order of the stack, lowest first.  Those that are idle in a transaction are not
 * active: they are on top of it, and count for no sum.
 */
static const struct
{
	const char *name;
	char		letter;
}			chart_classes[] = {
	{"CPU", 'C'},
	{"IO", 'I'},
	{"LWLock", 'W'},
	{"Lock", 'L'},
	{"IPC", 'P'},
	{"Client", 'N'},
	{PGSCALE_BUFFER_WAITS, 'B'},
	{"Timeout", 'T'},
	{"Extension", 'E'},
	{"others", 'o'},
	{"idle in a transaction", '.'},
};

#define CLASSES ((int) lengthof(chart_classes))
#define CLASS_OTHERS	(CLASSES - 2)
#define CLASS_IDLE		(CLASSES - 1)

typedef struct ChartBucket
{
	double		known;			/* part of it, 0 to 1 */
	double		sessions[CLASSES];
	double		active;
} ChartBucket;

typedef struct ChartMark
{
	double		at;				/* microseconds since the chart's start */
	const char *text;			/* UTF-8 */
} ChartMark;

typedef struct Chart
{
	TimestampTz since;
	double		length;			/* microseconds */
	double		bucket;
	int			nbuckets;
	int			nknown;
	ChartBucket *buckets;
	double		mean[CLASSES];	/* over the time that is known */
	double		most;			/* top of the scale */
	double		step;			/* from one line of the scale to the next */
	double		cpus;			/* to a tenth; 0: not to be shown */
	ChartMark	marks[MOST_MARKS];
	int			nmarks;
	int			marks_left_out;
} Chart;

/* The elements of an array argument; n is 0 if it is NULL. */
static Datum *
read_array(FunctionCallInfo fcinfo, int argument, Oid type, bool **nulls, int *n)
{
	Datum	   *values;
	int16		typlen = type == TEXTOID ? -1 : 8;

	*n = 0;
	if (PG_ARGISNULL(argument))
		return NULL;
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(argument), type, typlen, type == TEXTOID ? false : FLOAT8PASSBYVAL,
					  type == TEXTOID ? TYPALIGN_INT : TYPALIGN_DOUBLE, &values, nulls, n);
	return values;
}

static int
chart_class_of(const text *name)
{
	const char *class = text_to_cstring(name);

	if (strcmp(class, PGSCALE_WAIT_IDLE_NAME) == 0)
		return CLASS_IDLE;
	/* An archive may be of a server of before 19, which called it BufferPin. */
	if (strncmp(class, "Buffer", strlen("Buffer")) == 0)
		class = PGSCALE_BUFFER_WAITS;
	for (int i = 0; i < CLASS_OTHERS; i++)
		if (strcmp(chart_classes[i].name, class) == 0)
			return i;
	return CLASS_OTHERS;
}

/* The smallest of 1, 2, 5, 10, 20, ... that is not below. */
static double
round_step(double least)
{
	double		power = pow(10, floor(log10(least)));

	for (int i = 0; i < 3; i++)
		if (power * "\1\2\5"[i] >= least * (1 - 1e-9))
			return power * "\1\2\5"[i];
	return power * 10;
}

static void
read_buckets(FunctionCallInfo fcinfo, Chart *chart)
{
	int			n;
	int			ntypes;
	int			nsessions;
	int			ncovered;
	double		known = 0;		/* buckets */
	bool	   *at_nulls;
	bool	   *type_nulls;
	bool	   *session_nulls;
	bool	   *covered_nulls;
	Datum	   *at = read_array(fcinfo, 4, TIMESTAMPTZOID, &at_nulls, &n);
	Datum	   *types = read_array(fcinfo, 5, TEXTOID, &type_nulls, &ntypes);
	Datum	   *sessions = read_array(fcinfo, 6, FLOAT8OID, &session_nulls, &nsessions);
	Datum	   *covered = read_array(fcinfo, 7, FLOAT8OID, &covered_nulls, &ncovered);

	if (ntypes != n || nsessions != n || ncovered != n)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the arrays of a report's chart differ in length"),
				 errhint("Pass the columns of pgscale.activity().")));
	for (int i = 0; i < n; i++)
	{
		double		value = session_nulls[i] ? 0 : DatumGetFloat8(sessions[i]);
		double		from;
		ChartBucket *bucket;
		int			class;

		if (at_nulls[i] || TIMESTAMP_NOT_FINITE(DatumGetTimestampTz(at[i])))
			continue;
		from = (double) DatumGetTimestampTz(at[i]) - (double) chart->since;
		if (from < -chart->bucket || from >= chart->length)
			continue;
		/* the first one may have begun before the period */
		bucket = &chart->buckets[Min((int) (Max(from, 0) / chart->bucket + 1e-6), chart->nbuckets - 1)];
		if (covered_nulls[i] || !(DatumGetFloat8(covered[i]) > 0))
			continue;
		bucket->known = Min(DatumGetFloat8(covered[i]), 1);
		if (type_nulls[i] || !(value > 0 && value < MOST_SESSIONS))
			continue;
		class = chart_class_of(DatumGetTextPP(types[i]));
		bucket->sessions[class] += value;
		if (class != CLASS_IDLE)
			bucket->active += value;
	}
	for (int i = 0; i < chart->nbuckets; i++)
	{
		const ChartBucket *bucket = &chart->buckets[i];

		known += bucket->known;
		chart->nknown += bucket->known > 0;
		for (int c = 0; c < CLASSES; c++)
			chart->mean[c] += bucket->sessions[c] * bucket->known;
	}
	for (int c = 0; c < CLASSES && known > 0; c++)
		chart->mean[c] /= known;
}

static void
read_marks(FunctionCallInfo fcinfo, Chart *chart)
{
	int			n;
	int			ntexts;
	bool	   *at_nulls;
	bool	   *text_nulls;
	Datum	   *at = read_array(fcinfo, 8, TIMESTAMPTZOID, &at_nulls, &n);
	Datum	   *texts = read_array(fcinfo, 9, TEXTOID, &text_nulls, &ntexts);

	if (ntexts != n)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("the arrays of a report's chart differ in length"),
				 errhint("Each mark has a time and a text.")));
	for (int i = 0; i < n; i++)
	{
		double		from;

		if (at_nulls[i] || text_nulls[i] || TIMESTAMP_NOT_FINITE(DatumGetTimestampTz(at[i])))
			continue;
		from = (double) DatumGetTimestampTz(at[i]) - (double) chart->since;
		if (from < 0 || from > chart->length)
			continue;
		if (chart->nmarks == MOST_MARKS)
		{
			chart->marks_left_out++;
			continue;
		}
		chart->marks[chart->nmarks].at = from;
		chart->marks[chart->nmarks++].text = pgscale_report_text_of(DatumGetTextPP(texts[i]), 200, false);
	}
}

static void
set_scale(Chart *chart, double given, double cpus)
{
	double		most = 0;

	for (int i = 0; i < chart->nbuckets; i++)
		most = Max(most, chart->buckets[i].active + chart->buckets[i].sessions[CLASS_IDLE]);
	if (given > 0 && given < MOST_SESSIONS)
		most = Max(most, given);
	/* a line for the CPUs, unless it would make all else small */
	if (cpus > 0 && cpus <= 3 * most)
	{
		chart->cpus = cpus;
		most = Max(most, cpus);
	}
	if (most <= 0)
		most = 1;
	chart->step = round_step(most / 5);
	chart->most = ceil(most / chart->step - 1e-9) * chart->step;
}

/* A time of the chart as people say it, as exactly as the distance from one to the next asks for. */
static char *
time_shown(const Chart *chart, double from, double distance)
{
	TimestampTz at = chart->since + (TimestampTz) rint(from);
	struct pg_tm tm;
	fsec_t		fsec;
	int			tz;

	if (timestamp2tm(at, &tz, &tm, &fsec, NULL, NULL) != 0)
		return pstrdup("?");
	if (distance < 1e6)
		return psprintf("%02d:%02d:%02d.%03d", tm.tm_hour, tm.tm_min, tm.tm_sec, (int) (fsec / 1000));
	if (distance < 60e6)
		return psprintf("%02d:%02d:%02d", tm.tm_hour, tm.tm_min, tm.tm_sec);
	if (distance < 86400e6 && chart->length <= 86400e6)
		return psprintf("%02d:%02d", tm.tm_hour, tm.tm_min);
	if (distance < 86400e6)
		return psprintf("%02d-%02d %02d:%02d", tm.tm_mon, tm.tm_mday, tm.tm_hour, tm.tm_min);
	return psprintf("%04d-%02d-%02d", tm.tm_year, tm.tm_mon, tm.tm_mday);
}

/* Distance of the marks at the time axis, at most eight of them. */
static double
time_step(double length)
{
	static const double seconds[] = {1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 10800, 21600,
	43200, 86400, 172800, 604800};

	if (length <= 8e6)
		return round_step(length / 8);
	for (int i = 0; i < lengthof(seconds); i++)
		if (length / 1e6 / seconds[i] <= 8)
			return seconds[i] * 1e6;
	return ceil(length / 8 / 86400e6) * 86400e6;
}

/* How far the period's start is behind a full step of local time. */
static double
time_behind_step(const Chart *chart, double step)
{
	struct pg_tm tm;
	fsec_t		fsec;
	int			tz;
	double		local = (double) chart->since;

	if (timestamp2tm(chart->since, &tz, &tm, &fsec, NULL, NULL) == 0)
		local -= (double) tz * 1e6;
	return local - floor(local / step) * step;
}

/* "0.4", "12" */
static char *
sessions_shown(double value)
{
	return psprintf("%.*f", value >= 100 ? 0 : value >= 0.095 || value == 0 ? 1 : 2, value);
}

/* ---- for a browser ---- */

/* The stack's part of one class, for each run of buckets that are known. */
static void
put_class(StringInfo out, const Chart *chart, int class)
{
	double		width = PICTURE_WIDTH * chart->bucket / chart->length;
	double		scale = PICTURE_HEIGHT / chart->most;
	bool		any = false;

	for (int i = 0; i < chart->nbuckets; i++)
		any = any || chart->buckets[i].sessions[class] > 0;
	if (!any)
		return;
	appendStringInfo(out, "<path class=\"w%d\" d=\"", class);
	for (int first = 0; first < chart->nbuckets;)
	{
		int			end = first;

		CHECK_FOR_INTERRUPTS();
		while (end < chart->nbuckets && chart->buckets[end].sessions[class] > 0)
			end++;
		for (int i = first; i < end; i++)
		{
			double		top = 0;

			for (int c = 0; c <= class; c++)
				top += chart->buckets[i].sessions[c];
			if (i == first)
				appendStringInfo(out, "M%.1f %.1f", i * width, PICTURE_HEIGHT - top * scale);
			else
				appendStringInfo(out, "V%.1f", PICTURE_HEIGHT - top * scale);
			appendStringInfo(out, "H%.1f", Min((i + 1) * width, PICTURE_WIDTH));
		}
		for (int i = end - 1; i >= first; i--)
		{
			double		bottom = 0;

			for (int c = 0; c < class; c++)
				bottom += chart->buckets[i].sessions[c];
			appendStringInfo(out, "V%.1fH%.1f", PICTURE_HEIGHT - bottom * scale, i * width);
		}
		if (end > first)
			appendStringInfoChar(out, 'Z');
		first = end + 1;
	}
	appendStringInfoString(out, "\"/>\n");
}

/* The text of a bucket under the pointer. */
static void
put_bucket_title(StringInfo out, const Chart *chart, int i)
{
	const ChartBucket *bucket = &chart->buckets[i];

	appendStringInfo(out, "%s: ", time_shown(chart, i * chart->bucket, Min(chart->bucket, 59e6)));
	if (!bucket->known)
	{
		appendStringInfoString(out, "not known");
		return;
	}
	appendStringInfo(out, "%s active", sessions_shown(bucket->active));
	for (int c = CLASSES - 1; c >= 0; c--)
		if (bucket->sessions[c] >= 0.005)
			appendStringInfo(out, ", %s %s", chart_classes[c].name, sessions_shown(bucket->sessions[c]));
}

static void
put_html_legend(StringInfo out, const Chart *chart)
{
	appendStringInfoString(out, "<ul class=\"legend\">");
	for (int c = 0; c < CLASSES; c++)
		if (chart->mean[c] > 0)
			appendStringInfo(out, "<li><i class=\"w%d\"></i>%s <b>%s</b></li>", c, chart_classes[c].name,
							 sessions_shown(chart->mean[c]));
	if (chart->nknown < chart->nbuckets)
		appendStringInfoString(out, "<li><i class=\"gap\"></i>not known</li>");
	if (chart->cpus > 0)
		appendStringInfo(out, "<li><i class=\"cpus\"></i>CPUs <b>%g</b></li>", chart->cpus);
	appendStringInfoString(out, "</ul>\n");
	if (chart->nmarks > 0)
	{
		appendStringInfoString(out, "<ol class=\"marks\">");
		for (int i = 0; i < chart->nmarks; i++)
		{
			appendStringInfo(out, "<li><b>%s</b> ", time_shown(chart, chart->marks[i].at, Max(chart->length / 1e4, 1e6)));
			pgscale_report_text_put_html(out, chart->marks[i].text);
			appendStringInfoString(out, "</li>");
		}
		appendStringInfoString(out, "</ol>\n");
		if (chart->marks_left_out > 0)
			appendStringInfo(out, "<p class=\"m\">and %d more</p>\n", chart->marks_left_out);
	}
}

static void
put_html_chart(StringInfo out, const Chart *chart)
{
	double		width = PICTURE_WIDTH * chart->bucket / chart->length;
	double		step = time_step(chart->length);
	double		marked = -1e9;

	appendStringInfoString(out, "<figure><div class=\"chart\">\n<div class=\"y\">");
	for (int i = 0; i * chart->step <= chart->most * (1 + 1e-9); i++)
		appendStringInfo(out, "<span style=\"bottom:%.1f%%\">%g</span>", 100 * i * chart->step / chart->most,
						 i * chart->step);
	appendStringInfo(out, "</div>\n<svg viewBox=\"0 0 %g %g\" preserveAspectRatio=\"none\" role=\"img\" "
					 "aria-label=\"Average active sessions over time, by class of wait event\">\n",
					 PICTURE_WIDTH, PICTURE_HEIGHT);
	appendStringInfoString(out, "<path class=\"grid\" d=\"");
	for (int i = 1; i * chart->step <= chart->most * (1 + 1e-9); i++)
		appendStringInfo(out, "M0 %.1fH%g", PICTURE_HEIGHT * (1 - i * chart->step / chart->most), PICTURE_WIDTH);
	appendStringInfoString(out, "\"/>\n");

	/* gaps, neighbours as one */
	for (int first = 0; first < chart->nbuckets; first++)
		if (!chart->buckets[first].known)
		{
			int			end = first;

			while (end < chart->nbuckets && !chart->buckets[end].known)
				end++;
			appendStringInfo(out, "<path class=\"gap\" d=\"M%.1f 0H%.1fV%gH%.1fZ\"/>\n", first * width,
							 Min(end * width, PICTURE_WIDTH), PICTURE_HEIGHT, first * width);
			first = end;
		}
	for (int c = 0; c < CLASSES; c++)
		put_class(out, chart, c);
	if (chart->cpus > 0)
		appendStringInfo(out, "<path class=\"cpus\" d=\"M0 %.1fH%g\"/>\n",
						 PICTURE_HEIGHT * (1 - chart->cpus / chart->most), PICTURE_WIDTH);
	for (int i = 0; i < chart->nmarks; i++)
		appendStringInfo(out, "<path class=\"mark\" d=\"M%.1f 0V%g\"/>\n", PICTURE_WIDTH * chart->marks[i].at / chart->length,
						 PICTURE_HEIGHT);
	for (int i = 0; i < chart->nbuckets; i++)
	{
		CHECK_FOR_INTERRUPTS();
		appendStringInfo(out, "<rect x=\"%.1f\" width=\"%.1f\" height=\"%g\"><title>", i * width,
						 Max(Min(width, PICTURE_WIDTH - i * width), 0), PICTURE_HEIGHT);
		put_bucket_title(out, chart, i);
		appendStringInfoString(out, "</title></rect>\n");
	}
	appendStringInfoString(out, "</svg>\n<div class=\"x\">");
	for (double at = step - time_behind_step(chart, step); at <= chart->length * 0.97; at += step)
		if (at >= chart->length * 0.03)
			appendStringInfo(out, "<span style=\"left:%.2f%%\">%s</span>", 100 * at / chart->length,
							 time_shown(chart, at, step));
	appendStringInfoString(out, "</div>\n");

	/*
	 * numbers of the marks above the picture, as far as there is room for
	 * them
	 */
	if (chart->nmarks > 0)
	{
		appendStringInfoString(out, "<div class=\"n\">");
		for (int i = 0; i < chart->nmarks; i++)
			if (chart->marks[i].at - marked >= chart->length * 0.025)
			{
				marked = chart->marks[i].at;
				appendStringInfo(out, "<span style=\"left:%.2f%%\">%d</span>", 100 * marked / chart->length, i + 1);
			}
		appendStringInfoString(out, "</div>\n");
	}
	appendStringInfoString(out, "</div>\n");
	put_html_legend(out, chart);
	appendStringInfoString(out, "</figure>\n");
}

/* ---- for psql ---- */

static void
put_plain_chart(StringInfo out, const Chart *chart)
{
	double		scale = LETTERS / chart->most;
	double		distance = Min(chart->bucket, 59e6);
	int			gap = 0;
	char		ruler[LETTERS + 20];

	if (chart->length > 86400e6)
		distance = chart->bucket < 86400e6 ? 3600e6 : 86400e6;
	memset(ruler, ' ', sizeof(ruler));
	for (int i = 0; i * chart->step <= chart->most * (1 + 1e-9); i++)
	{
		char		number[16];
		int			len = snprintf(number, sizeof(number), "%g", i * chart->step);

		memcpy(ruler + Min((int) rint(i * chart->step * scale), LETTERS), number, len);
	}
	ruler[sizeof(ruler) - 1] = '\0';
	appendStringInfo(out, "\n  %-12s %9s  %s", "time", "sessions", ruler);
	while (out->data[out->len - 1] == ' ')
		out->data[--out->len] = '\0';
	appendStringInfoChar(out, '\n');

	for (int i = 0; i < chart->nbuckets; i++)
	{
		const ChartBucket *bucket = &chart->buckets[i];
		double		sum = 0;
		int			letters = 0;

		CHECK_FOR_INTERRUPTS();
		gap = bucket->known ? 0 : gap + 1;
		if (gap > 1)
			continue;			/* one row for all of it */
		appendStringInfo(out, "  %-12s ", time_shown(chart, i * chart->bucket, distance));
		if (!bucket->known)
			appendStringInfoString(out, "        -  not known");
		else
			appendStringInfo(out, "%9s  ", sessions_shown(bucket->active));

		/*
		 * each class ends where the rounded sum up to it does, so that
		 * rounding does not add up
		 */
		for (int c = 0; c < CLASSES && bucket->known; c++)
		{
			sum += bucket->sessions[c];
			for (; letters < (int) rint(sum * scale) && letters < LETTERS; letters++)
				appendStringInfoChar(out, chart_classes[c].letter);
		}
		for (int m = 0; m < chart->nmarks; m++)
			if (chart->marks[m].at >= i * chart->bucket && chart->marks[m].at < (i + 1) * chart->bucket)
				appendStringInfo(out, " (%d)", m + 1);
		while (out->data[out->len - 1] == ' ')
			out->data[--out->len] = '\0';
		appendStringInfoChar(out, '\n');
	}
	appendStringInfoString(out, "\n  average: ");
	for (int c = 0, n = 0; c < CLASSES; c++)
		if (chart->mean[c] > 0)
			appendStringInfo(out, "%s%c %s %s", n++ > 0 ? ", " : "", chart_classes[c].letter, chart_classes[c].name,
							 sessions_shown(chart->mean[c]));
	if (chart->cpus > 0)
		appendStringInfo(out, "; CPUs: %g", chart->cpus);
	appendStringInfoChar(out, '\n');
	for (int m = 0; m < chart->nmarks; m++)
	{
		const char *text = chart->marks[m].text;
		int			len = pgscale_report_text_fit(text, PGSCALE_REPORT_WIDTH - 22, true);

		appendStringInfo(out, "  (%d) %s ", m + 1, time_shown(chart, chart->marks[m].at, Max(chart->length / 1e4, 1e6)));
		pgscale_text_put(out, text, len);
		appendStringInfoChar(out, '\n');
	}
}

/*
 * pgscale_internal.report_chart(format, since, until, bucket_s, at[], event_type[], active_sessions[], coverage_fraction[],
 * mark_at[], mark[], most, cpus): the arrays are the columns of pgscale.activity(), and what is to be marked.
 */
Datum
pgscale_report_chart(PG_FUNCTION_ARGS)
{
	bool		html = pgscale_report_text_is_html(fcinfo, 0);
	Chart		chart = {0};
	StringInfoData out;

	if (PG_ARGISNULL(1) || PG_ARGISNULL(2) || PG_ARGISNULL(3) ||
		TIMESTAMP_NOT_FINITE(PG_GETARG_TIMESTAMPTZ(1)) || TIMESTAMP_NOT_FINITE(PG_GETARG_TIMESTAMPTZ(2)) ||
		PG_GETARG_TIMESTAMPTZ(1) >= PG_GETARG_TIMESTAMPTZ(2))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a report's chart needs a period"),
				 errhint("Its start and end are finite, and the start is before the end.")));
	chart.since = PG_GETARG_TIMESTAMPTZ(1);
	chart.length = (double) PG_GETARG_TIMESTAMPTZ(2) - (double) chart.since;
	chart.bucket = PG_GETARG_FLOAT8(3) * 1e6;
	if (!(chart.bucket >= 1 && chart.length / chart.bucket <= MOST_BUCKETS))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a report's chart has room for %d buckets", MOST_BUCKETS),
				 errhint("Choose a longer bucket.")));
	chart.nbuckets = Max((int) ceil(chart.length / chart.bucket - 1e-6), 1);
	chart.buckets = palloc0(chart.nbuckets * sizeof(ChartBucket));

	read_buckets(fcinfo, &chart);
	read_marks(fcinfo, &chart);
	set_scale(&chart, PG_ARGISNULL(10) ? 0 : PG_GETARG_FLOAT8(10),
			  PG_ARGISNULL(11) || !PG_GETARG_BOOL(11) ? 0 : rint(pgscale_kernel_cpus() * 10) / 10);
	initStringInfo(&out);
	if (html)
		put_html_chart(&out, &chart);
	else
		put_plain_chart(&out, &chart);
	PG_RETURN_TEXT_P(cstring_to_text_with_len(out.data, out.len));
}
