/*
 * What known_pages_steps.c and window_steps.c make up of buffers in the same way: a page's name is its block, and a tick has time
 * for a number of looks. Included once in a program, after the sweeper's files.
 */
#ifndef PGSCALE_STEPS_PAGES_H
#define PGSCALE_STEPS_PAGES_H

static int	most_looks = PG_INT32_MAX;

bool
pgscale_buffer_page_equal(const PgscalePage *a, const PgscalePage *b)
{
	return a->block == b->block;
}

uint32
pgscale_buffer_page_hash(const PgscalePage *page)
{
	return page->block;
}

bool
pgscale_sweeper_long_enough(int n)
{
	return n >= most_looks;
}

#endif							/* PGSCALE_STEPS_PAGES_H */
