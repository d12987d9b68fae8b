/*
 * Shared buffers that are made up: src/base/shared_buffers.c itself, over headers that a test fills. A page is known by its
 * block, which is its hash, too.
 */
#include "steps.h"

#include "storage/buf_internals.h"

#include "base/shared_buffers.h"

#define MOST_BUFFERS	20000
#define NBuffers		buffers_now

static int	buffers_now = MOST_BUFFERS;
static BufferDesc descs[MOST_BUFFERS];
static int64 server_hand = 0;
static void (*at_look) (void) = NULL;	/* what happens before a look at a header */
static void (*in_read) (void) = NULL;	/* or in the middle of it */

#undef GetBufferDescriptor
#define GetBufferDescriptor(buf)		(&descs[buf])
#undef pg_read_barrier
#define pg_read_barrier()				(in_read ? in_read() : (void) 0)
#define pgscale_buffer_look				true_buffer_look
#define pgscale_buffer_read				true_buffer_read
#define pgscale_buffer_find				true_buffer_find
#define pgscale_buffer_page_hash		true_buffer_page_hash
#define pgscale_buffers_hand			true_buffers_hand
#include "base/shared_buffers.c"
#undef pg_read_barrier
#define pg_read_barrier()				pg_memory_barrier()
#undef pgscale_buffer_look
#undef pgscale_buffer_read
#undef pgscale_buffer_find
#undef pgscale_buffer_page_hash
#undef pgscale_buffers_hand

PgscaleLwlock pgscale_lwlock_look(const LWLock *lock) { return (PgscaleLwlock) {0}; }
uint32 pgscale_buffer_page_hash(const PgscalePage *page) { return page->block; }
uint64 pgscale_buffers_hand(void) { return (uint64) server_hand; }

void
pgscale_buffer_look(int buf, PgscaleBuffer *buffer)
{
	if (at_look)
		at_look();
	true_buffer_look(buf, buffer);
}

bool
pgscale_buffer_read(int buf, PgscaleBuffer *buffer, PgscalePage *page)
{
	if (at_look)
		at_look();
	return true_buffer_read(buf, buffer, page);
}

int
pgscale_buffer_find(const PgscalePage *page)
{
	for (int buf = 0; buf < NBuffers; buf++)
	{
		PgscalePage its;

		pgscale_buffer_page(buf, &its);
		if (pgscale_buffer_page_equal(&its, page))
			return buf;
	}
	return -1;
}

static PgscalePage
page_of(BlockNumber block)
{
	PgscalePage page = {.locator = {1, 2, 3},.fork = MAIN_FORKNUM,.block = block};

	return page;
}

static BlockNumber page_in(int buf) { return descs[buf].tag.blockNum; }
static PgscaleBufferState state_of(int buf) { return pgscale_compat_state_read(&descs[buf].state); }
static int usage(int buf) { return buffer_usage_of(state_of(buf)); }

/* The server's hand is not in the middle of anything, so a state is simply set. */
static void
set_state(int buf, PgscaleBufferState state)
{
	PgscaleBufferState now = state_of(buf);

	while (!pgscale_compat_state_exchange(&descs[buf].state, &now, state))
		;
}

/* The buffer has that page, clean, with that count. */
static void
hold(int buf, BlockNumber block, int count)
{
	const PgscalePage page = page_of(block);

	make_tag(&descs[buf].tag, &page);
	set_state(buf, buffer_with_usage(BM_TAG_VALID | BM_VALID | BM_PERMANENT, count));
}

static void set_usage(int buf, int count) { set_state(buf, buffer_with_usage(state_of(buf), count)); }
