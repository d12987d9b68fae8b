/*
 * A policy for the steps of other parts: a count for each buffer, a byte, as in the server. It reports nothing, and keeps its counts
 * when it takes over.
 */
static Size
clock_size(int buffers)
{
	return buffers * sizeof(uint8);
}

static void
clock_init(void *memory, int buffers)
{
}

/* It passes the pages that have counts. */
static void
clock_pass(void *memory, float pages)
{
}

static void
clock_take_over(void *memory)
{
}

static void
clock_arrived(void *memory, int buf, uint32 page, int uses)
{
	((uint8 *) memory)[buf] = Max(Min(uses, PGSCALE_MAX_USAGE), 1);
}

static void
clock_used(void *memory, int buf, uint32 page, int uses)
{
	uint8	   *count = (uint8 *) memory + buf;

	*count = Min(*count + uses, PGSCALE_MAX_USAGE);
}

static void
clock_evicted(void *memory, int buf, uint32 page)
{
}

static uint8
clock_neighbour_rank(const void *memory, bool writes_short)
{
	return pgscale_sweeper_neighbour_usage(writes_short);
}

static uint8
clock_rank(const void *memory, int buf)
{
	return ((const uint8 *) memory)[buf];
}

static uint8
clock_visit(void *memory, int buf, bool kept)
{
	uint8	   *count = (uint8 *) memory + buf;

	return *count == 0 ? 0 : (*count)--;
}

static uint8
clock_header(const void *memory, int buf)
{
	return pgscale_sweeper_header_of_rank(clock_rank(memory, buf));
}

static void
clock_report(const void *memory, int buffers, PgscaleSweeperPolicyReport *report)
{
	memset(report, 0, sizeof(PgscaleSweeperPolicyReport));
}

static const PgscaleSweeperPolicy plain_clock = {
	.name = "plain clock",
	.size = clock_size,
	.init = clock_init,
	.take_over = clock_take_over,
	.pass = clock_pass,
	.arrived = clock_arrived,
	.used = clock_used,
	.evicted = clock_evicted,
	.neighbour_rank = clock_neighbour_rank,
	.rank = clock_rank,
	.visit = clock_visit,
	.header = clock_header,
	.report = clock_report
};
