/*-------------------------------------------------------------------------
 *
 * patterns.c
 *	  Sequences of references to pages, as loads of a database make them.
 *
 * Each is made of a seed, so that it can be repeated.  Zipf's ranks are spread over the
 * pages in random order, so that no neighbourhood helps an algorithm.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "simulator.h"

/* Windows of each trace: what comes before is not measured. */
#define WARM_UP		60
#define MEASURED	40

static uint64_t random_state;

static uint64_t
random_bits(void)
{
	random_state += 0x9E3779B97F4A7C15;
	return mixed(random_state);
}

/* 0 <= x < 1 */
static double
random_part(void)
{
	return (random_bits() >> 11) * 0x1p-53;
}

static uint32_t
random_below(uint32_t n)
{
	return (uint32_t) (random_part() * n);
}

/* References with probabilities 1, 1/2^s, 1/3^s, .. to numbers below n, in random order. */
typedef struct Zipf
{
	int			n;
	double	   *cumulated;
	uint32_t   *order;
} Zipf;

static uint32_t *
random_order(int n)
{
	uint32_t   *order = zeroed(n, sizeof(uint32_t));

	for (int i = 0; i < n; i++)
	{
		const uint32_t j = random_below(i + 1);

		order[i] = order[j];
		order[j] = i;
	}
	return order;
}

static Zipf
zipf_make(int n, double s)
{
	Zipf		zipf = {n, zeroed(n, sizeof(double)), random_order(n)};
	double		sum = 0;

	for (int i = 0; i < n; i++)
		zipf.cumulated[i] = sum += pow(i + 1, -s);
	return zipf;
}

static void
zipf_free(Zipf *zipf)
{
	free(zipf->cumulated);
	free(zipf->order);
}

static int
zipf_rank(const Zipf *zipf)
{
	const double x = random_part() * zipf->cumulated[zipf->n - 1];
	int			low = 0;
	int			high = zipf->n - 1;

	while (low < high)
	{
		const int	middle = (low + high) / 2;

		if (zipf->cumulated[middle] <= x)
			low = middle + 1;
		else
			high = middle;
	}
	return low;
}

static uint32_t
zipf_page(const Zipf *zipf)
{
	return zipf->order[zipf_rank(zipf)];
}

static void
make_zipf(Trace *trace, double exponent)
{
	Zipf		zipf = zipf_make(PAGES, exponent);

	for (int i = 0; i < trace->length; i++)
		trace->pages[i] = zipf_page(&zipf);
	zipf_free(&zipf);
}

/* One reference in five is to a page that is never used again. */
static void
make_one_touch(Trace *trace, double exponent)
{
	Zipf		zipf = zipf_make(PAGES, exponent);

	trace->distinct = PAGES;
	for (int i = 0; i < trace->length; i++)
		trace->pages[i] = random_part() < 0.2 ? trace->distinct++ : zipf_page(&zipf);
	zipf_free(&zipf);
}

/*
 * Look-ups of keys: the root, an inner page and a leaf of a B-tree, and a page of a heap
 * that is in another order.
 */
#define KEYS_OF_LEAF	256
#define LEAVES_OF_INNER	256
#define ROWS_OF_PAGE	40
#define KEYS			(ROWS_OF_PAGE * (PAGES - PAGES / 8))

static void
make_btree(Trace *trace, double exponent)
{
	Zipf		zipf = zipf_make(KEYS, exponent);
	uint32_t   *rows = random_order(KEYS);
	const uint32_t heap = KEYS / ROWS_OF_PAGE;
	const uint32_t leaves = KEYS / KEYS_OF_LEAF + 1;

	for (int i = 0; i + 3 < trace->length; i += 4)
	{
		const uint32_t key = zipf_page(&zipf);
		const uint32_t leaf = key / KEYS_OF_LEAF;

		trace->pages[i] = heap + leaves + leaves / LEAVES_OF_INNER + 1;
		trace->pages[i + 1] = heap + leaves + leaf / LEAVES_OF_INNER;
		trace->pages[i + 2] = heap + leaf;
		trace->pages[i + 3] = rows[key] / ROWS_OF_PAGE;
	}
	trace->distinct = heap + leaves + leaves / LEAVES_OF_INNER + 2;
	free(rows);
	zipf_free(&zipf);
}

/* After so many references each page takes the next higher rank; the first becomes the last. */
static void
make_drift(Trace *trace, double references)
{
	Zipf		zipf = zipf_make(PAGES, 0.99);

	for (int i = 0; i < trace->length; i++)
		trace->pages[i] = zipf.order[(zipf_rank(&zipf) + (int) (i / references)) % PAGES];
	zipf_free(&zipf);
}

/* At the end of the warm-up, all pages change their ranks. */
static void
make_move(Trace *trace, double exponent)
{
	Zipf		before = zipf_make(PAGES, exponent);
	Zipf		after = zipf_make(PAGES, exponent);

	for (int i = 0; i < trace->length; i++)
		trace->pages[i] = zipf_page(i < WARM_UP * BUFFERS ? &before : &after);
	zipf_free(&before);
	zipf_free(&after);
}

/*
 * Rows are inserted at the end of a table, and read the more the newer they are: a page's
 * age in pages has an exponential distribution of that mean, as a part of the buffers.
 */
#define REFERENCES_OF_PAGE	40

static void
make_recency(Trace *trace, double mean)
{
	uint32_t	last = BUFFERS * 2;

	for (int i = 0; i < trace->length; i++)
	{
		const double age = random_part() < 0.25 ? 0 : -mean * BUFFERS * log(1 - random_part());

		last += i % REFERENCES_OF_PAGE == 0;
		trace->pages[i] = age < last ? last - (uint32_t) age : last;
	}
	trace->distinct = last + 1;
}

static void
make_loop(Trace *trace, double buffers)
{
	const int	pages = (int) (buffers * BUFFERS);

	for (int i = 0; i < trace->length; i++)
		trace->pages[i] = i % pages;
}

static void
make_uniform(Trace *trace, double buffers)
{
	for (int i = 0; i < trace->length; i++)
		trace->pages[i] = random_below((uint32_t) (buffers * BUFFERS));
}

static void
make_small(Trace *trace, double buffers)
{
	Zipf		zipf = zipf_make((int) (buffers * BUFFERS), 0.99);

	for (int i = 0; i < trace->length; i++)
		trace->pages[i] = zipf_page(&zipf);
	zipf_free(&zipf);
}

/* 80 % of the references are to 20 % of the pages, 64 % to 4 %, ...; that many times the buffers. */
static void
make_80_20(Trace *trace, double buffers)
{
	const int	pages = (int) (buffers * BUFFERS);
	uint32_t   *order = random_order(pages);

	for (int i = 0; i < trace->length; i++)
		trace->pages[i] = order[(int) (pages * pow(random_part(), log(0.2) / log(0.8)))];
	free(order);
}

/* 80 % of the references are to 20 % of the pages, which are equal, as are the others; that many times the buffers. */
static void
make_hot_and_cold(Trace *trace, double buffers)
{
	const uint32_t pages = (uint32_t) (buffers * BUFFERS);
	const uint32_t hot = pages / 5;
	uint32_t   *order = random_order(pages);

	for (int i = 0; i < trace->length; i++)
		trace->pages[i] = order[random_part() < 0.8 ? random_below(hot) : hot + random_below(pages - hot)];
	free(order);
}

/*
 * Single pages, and one reference in four in ranges of 64 pages; a pass over a table of
 * as many pages as there are buffers takes half of the references, every tenth window.
 */
#define RANGE			64
#define PASS_WINDOWS	10

static void
make_ranges(Trace *trace, double exponent)
{
	Zipf		zipf = zipf_make(PAGES, exponent);
	uint32_t	in_range = 0;
	uint32_t	passed = 0;

	for (int i = 0; i < trace->length; i++)
	{
		if (i % (PASS_WINDOWS * BUFFERS) < 2 * BUFFERS && i % 2 == 0)
			trace->pages[i] = PAGES + passed++ % BUFFERS;
		else if (i % 4 == 1)
		{
			if (in_range % RANGE == 0)
				in_range = random_below(PAGES / RANGE) * RANGE;
			trace->pages[i] = in_range++;
		}
		else
			trace->pages[i] = zipf_page(&zipf);
	}
	trace->distinct = PAGES + BUFFERS;
	zipf_free(&zipf);
}

static const struct
{
	const char *name;
	void		(*make) (Trace *trace, double parameter);
	double		parameter;
	int			measured;		/* windows, after the warm-up */
}			patterns[] =
{
	{"zipf 0.7", make_zipf, 0.7, MEASURED},
	{"zipf 0.9", make_zipf, 0.9, MEASURED},
	{"zipf 0.99", make_zipf, 0.99, MEASURED},
	{"zipf 1.05", make_zipf, 1.05, MEASURED},
	{"zipf 1.1", make_zipf, 1.1, MEASURED},
	{"80/20", make_80_20, 4, MEASURED},
	{"80/20, equal pages", make_hot_and_cold, 4, MEASURED},
	{"20 % used once", make_one_touch, 0.99, MEASURED},
	{"B-tree and heap", make_btree, 0.99, MEASURED},
	{"ranges and passes", make_ranges, 0.99, MEASURED},
	{"drift, slow", make_drift, 64, MEASURED},
	{"drift, fast", make_drift, 8, MEASURED},
	{"move, zipf 0.99", make_move, 0.99, MEASURED},
	{"move, zipf 0.7", make_move, 0.7, MEASURED},
	{"recency, N/8", make_recency, 0.125, 2 * MEASURED},
	{"recency, N/2", make_recency, 0.5, 2 * MEASURED},
	{"loop", make_loop, 1.4, MEASURED},
	{"uniform", make_uniform, 8, MEASURED},
	{"all fits", make_small, 0.95, MEASURED}
};

#define PATTERNS	(sizeof(patterns) / sizeof(patterns[0]))

bool
trace_make(const char *pattern, uint64_t seed, Trace *trace)
{
	random_state = mixed(seed);
	for (size_t i = 0; i < PATTERNS; i++)
	{
		if (strcmp(patterns[i].name, pattern) != 0)
			continue;
		trace->length = (WARM_UP + patterns[i].measured) * BUFFERS;
		trace->pages = zeroed(trace->length, sizeof(uint32_t));
		trace->distinct = PAGES;
		patterns[i].make(trace, patterns[i].parameter);
		return true;
	}
	return false;
}

void
trace_patterns(void)
{
	for (size_t i = 0; i < PATTERNS; i++)
		printf("%s\n", patterns[i].name);
}
