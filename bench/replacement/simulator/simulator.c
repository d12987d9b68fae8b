/*-------------------------------------------------------------------------
 *
 * simulator.c
 *	  Misses of replacement algorithms on one sequence of references.
 *
 *	  simulator PATTERN SEED [ALGORITHM...]
 *	  simulator trace:FILE 0 [ALGORITHM...]
 *
 * Prints a line for each algorithm: its name, a tab, and its misses in each window of
 * as many references as there are buffers. "simulator" alone lists the patterns.
 *
 * The policies of src/sweeper/policies are compiled into it unchanged: see sweeper.c.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include <stdio.h>
#include <string.h>

#include "simulator.h"

static const Algorithm *const algorithms[] = {
	&server_clock, &one_bit_clock, &lru, &lru_2, &two_q, &arc, &s3_fifo, &sieve, &lirs, &static_optimum, &belady,
	&sweeper_clock, &sweeper_history, &sweeper_adaptive
};

#define FROM_FILE	"trace:"

#define ALGORITHMS	(sizeof(algorithms) / sizeof(algorithms[0]))

static void
run_algorithm(const Algorithm *algorithm, const Trace *trace)
{
	const int	windows = trace->length / BUFFERS;
	double	   *figures = zeroed(windows, sizeof(double));

	printf("%s\t", algorithm->name);
	algorithm->begin(trace);
	for (int window = 0; window < windows; window++)
	{
		int			misses = 0;

		for (int i = 0; i < BUFFERS; i++)
			misses += !algorithm->use(window * BUFFERS + i);
		printf("%d ", misses);
		if (algorithm->figure)
			figures[window] = algorithm->figure();
	}
	printf("\n");
	if (algorithm->figure)
	{
		printf("%s: %s\t", algorithm->name, algorithm->figure_name);
		for (int window = 0; window < windows; window++)
			printf("%g ", figures[window]);
		printf("\n");
	}
	algorithm->end();
	free(figures);
}

static bool
is_wanted(const char *name, int argc, char **argv)
{
	for (int i = 3; i < argc; i++)
		if (strcmp(name, argv[i]) == 0)
			return true;
	return argc <= 3;
}

int
main(int argc, char **argv)
{
	Trace		trace;

	if (argc < 3)
	{
		trace_patterns();
		return argc == 1 ? 0 : 2;
	}
	if (strncmp(argv[1], FROM_FILE, strlen(FROM_FILE)) == 0 ? !trace_read(argv[1] + strlen(FROM_FILE), &trace) :
		!trace_make(argv[1], strtoull(argv[2], NULL, 10), &trace))
	{
		fprintf(stderr, "there is no pattern or trace \"%s\"\n", argv[1]);
		return 2;
	}
	for (size_t i = 0; i < ALGORITHMS; i++)
		if (is_wanted(algorithms[i]->name, argc, argv))
			run_algorithm(algorithms[i], &trace);
	free(trace.pages);
	return 0;
}
