/*-------------------------------------------------------------------------
 *
 * known_pages.c
 *	  What the sweeper knows of the pages in the buffers, and what its policy remembers.
 *
 * No process reports the use of a page.  But a use increments the count in the buffer's
 * header, and a page that comes or goes changes the buffer's tag.  So the sweep remembers
 * for each buffer the hash of the page and the header's count when it last saw them, and
 * what has changed at its next look is what happened: that is reported to the policy
 * (policy/policy.h), which keeps what it learns in a memory of its own.  A page that
 * comes and goes between two looks is not noticed, and a header that is at its highest
 * count shows no further use.
 *
 * The count is also lowered: by the server's hand, and by the sweep.  The sweep knows
 * what it has left there.  While it works each pass of the hand is expected, and is no
 * news (supply.c).  What the hand did before is a visit to the policy for each pass, so
 * that the clock ages pages as on a stock server.
 *
 * Both lie in the sweeper's own memory (segment.c).  A sweeper that was restarted, or switched
 * off and on, has what the one before kept in a file (saved_history.c).
 *
 * The tag is read without its lock, with the protocol of pgscale_buffer_read().  It may be
 * old a moment later, or torn, if the page is exchanged completely during the read; and two
 * pages may have one hash.  Then the policy takes a page for another, which makes a choice
 * worse and no page wrong, because nothing that the sweep does depends on the name:
 *
 *	- A usage count is changed: by one CAS of the state as it was read.  The state does
 *	  not include the tag.  A page that has come since with an equal state gets the count
 *	  that was meant for the other one.  Any count is valid for any page: at zero, a
 *	  backend takes it if it is not pinned, and evicts it as any other victim.
 *	- A page is written.  ReadRecentBuffer() compares the whole tag under the header's
 *	  lock and pins the buffer; FlushOneBuffer() writes it under the name in the header.
 *
 * t/sweeper_ddl.pl exchanges pages under the sweep, and t/lib/sweep_steps.c shows that
 * a name or a header that has changed is left alone.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "miscadmin.h"

#include "sweeper/known_pages.h"

/* Bytes between two checks for interrupts. */
#define CLEAR_AT_ONCE	((Size) 64 * 1024 * 1024)

static void
clear_memory(void *memory, Size size)
{
	for (Size at = 0; at < size; at += CLEAR_AT_ONCE)
	{
		CHECK_FOR_INTERRUPTS();
		memset((char *) memory + at, 0, Min(size - at, CLEAR_AT_ONCE));
	}
}

void
pgscale_sweeper_pages_begin(void)
{
	const PgscaleSweeperMemory *memory = &pgscale_sweeper_memory;

	clear_memory(memory->pages, NBuffers * sizeof(PgscaleSweeperPage));
	clear_memory(memory->policy, pgscale_sweeper_policy_size(NBuffers));
	pgscale_sweeper_policy_init(memory->policy, NBuffers);
}

PgscaleSweeperNews
pgscale_sweeper_page_seen(int buf, const PgscaleBuffer *look,
						  const PgscalePage *page, int expected, bool hand_ages)
{
	PgscaleSweeperPolicy *policy = pgscale_sweeper_memory.policy;
	PgscaleSweeperPage *p = pgscale_sweeper_page(buf);
	const uint32 hash = pgscale_buffer_page_hash(page);
	PgscaleSweeperNews news = PGSCALE_PAGE_NOT_USED;

	if (!p->known || p->hash != hash)
	{
		news = p->known ? PGSCALE_PAGE_REPLACED : PGSCALE_PAGE_FIRST_SEEN;
		pgscale_sweeper_page_left(buf);
		p->kept = false;
		pgscale_sweeper_policy_arrived(policy, buf, hash, look->usage);
		/* A page comes with one use. */
		expected = 1;
	}
	else if (look->usage > expected)
	{
		news = PGSCALE_PAGE_USED;
		pgscale_sweeper_policy_used(policy, buf, hash, look->usage - expected);
	}
	else if (look->usage < expected)
		news = PGSCALE_PAGE_LOWERED;
	if (hand_ages)
		for (int passes = expected - look->usage; passes > 0; passes--)
			(void) pgscale_sweeper_policy_visit(policy, buf, p->kept);
	p->hash = hash;
	p->left = look->usage;
	p->known = true;
	return news;
}

void
pgscale_sweeper_page_left(int buf)
{
	PgscaleSweeperPage *p = pgscale_sweeper_page(buf);

	if (p->known)
		pgscale_sweeper_policy_evicted(pgscale_sweeper_memory.policy, buf, p->hash);
	p->known = false;
}
