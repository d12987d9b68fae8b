/*
 * What files that check a part of src/ step by step have in common: lines is what they return, a line for each check.
 */
#include "lib/stringinfo.h"

static StringInfoData lines;

static void
is(double got, double want, const char *name)
{
	bool		ok = fabs(got - want) <= 1e-6 * Max(1, fabs(want));

	appendStringInfo(&lines, "%s %s", ok ? "ok" : "not ok", name);
	if (!ok)
		appendStringInfo(&lines, ": %.10g instead of %.10g", got, want);
	appendStringInfoChar(&lines, '\n');
}
