/*
 * What files that check a part of src/ step by step have in common: their head, and lines, which is what they return, a line for
 * each check. A list of steps is commands as text, each with the numbers that it takes, and what they say together.
 */
#include "postgres.h"

#include <math.h>

#include "fmgr.h"
#include "lib/stringinfo.h"
#include "miscadmin.h"
#include "utils/builtins.h"

PG_MODULE_MAGIC;

#define STEP_NUMBERS	8		/* of a command, at most */

typedef struct Step
{
	const char *does;			/* commands, with commas between them */
	const char *says;			/* what is expected; NULL if anything is */
	const char *name;
} Step;

static StringInfoData lines;
static StringInfoData said;

static void
is(double got, double want, const char *name)
{
	bool		ok = fabs(got - want) <= 1e-6 * Max(1, fabs(want));

	appendStringInfo(&lines, "%s %s", ok ? "ok" : "not ok", name);
	if (!ok)
		appendStringInfo(&lines, ": %.10g instead of %.10g", got, want);
	appendStringInfoChar(&lines, '\n');
}

static void
same(const char *got, const char *want, const char *name)
{
	const bool	ok = strcmp(got, want) == 0;

	appendStringInfo(&lines, "%s %s: %s", ok ? "ok" : "not ok", name, got);
	appendStringInfo(&lines, "%s%s\n", ok ? "" : " instead of ", ok ? "" : want);
}

/* What a command says of what happened. */
static void
say(const char *format,...)
{
	char		text[1024];
	va_list		args;

	va_start(args, format);
	vsnprintf(text, sizeof(text), format, args);
	va_end(args);
	appendStringInfo(&said, "%s%s", said.len > 0 ? "; " : "", text);
}

static const char *yes(bool it_is) { return it_is ? "yes" : "no"; }

/* In a function that does what the command "name" says, and returns whether there is one. */
#define COMMAND(its_name, does) \
	if (strcmp(name, its_name) == 0) \
	{ \
		does; \
		return true; \
	}

static void
check_steps(const Step *steps, int n, bool (*command) (const char *name, const double *numbers))
{
	for (int i = 0; i < n; i++)
	{
		char	   *rest = pstrdup(steps[i].does);
		char	   *one;

		resetStringInfo(&said);
		while ((one = strsep(&rest, ",")) != NULL)
		{
			char		name[NAMEDATALEN] = "";
			double		numbers[STEP_NUMBERS] = {0};
			int			length = 0;

			sscanf(one, "%63s%n", name, &length);
			for (int a = 0; a < lengthof(numbers) && sscanf(one += length, "%lf%n", &numbers[a], &length) == 1; a++)
				;
			if (one[strspn(one, " ")] != '\0')
				elog(ERROR, "no number: \"%s\"", one);
			if (!command(name, numbers))
				elog(ERROR, "there is no command \"%s\"", name);
		}
		if (steps[i].says)
			same(said.data, steps[i].says, steps[i].name ? steps[i].name : steps[i].does);
	}
}
