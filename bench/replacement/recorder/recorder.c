/*-------------------------------------------------------------------------
 *
 * recorder.c
 *	  A part of the server that records references to pages: see dtrace.
 *
 * Each process maps the file "recording" of the data directory, if it is there, and
 * takes entries with an atomic addition: so they are in the order in which the pages
 * were found.  The program that runs the load makes the file, and says when to record.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include <fcntl.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "recording.h"

extern void pgscale_record_page(unsigned db, unsigned relation, int fork, unsigned block, int extends, int by_ring);

/* The file, or NULL: there is none. */
static Recording *
recording_map(void)
{
	const int	file = open("recording", O_RDWR);
	struct stat found;
	void	   *memory = MAP_FAILED;

	if (file < 0)
		return NULL;
	if (fstat(file, &found) == 0 && found.st_size > 0)
		memory = mmap(NULL, found.st_size, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
	close(file);
	return memory == MAP_FAILED ? NULL : memory;
}

void
pgscale_record_page(unsigned db, unsigned relation, int fork, unsigned block, int extends, int by_ring)
{
	static bool tried = false;
	static Recording *recording = NULL;
	RecordedPage *page;
	uint64_t	at;

	if (!tried)
		recording = recording_map();
	tried = true;
	if (!recording || !recording->recording)
		return;
	at = __atomic_fetch_add(&recording->used, 1, __ATOMIC_RELAXED);
	if (at >= recording->room)
		return;
	page = &recording->pages[at];
	page->db = db;
	page->relation = relation;
	page->block = block;
	page->fork = fork;
	page->extends = extends;
	page->by_ring = by_ring;
	page->written = 1;
}
