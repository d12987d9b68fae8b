/*-------------------------------------------------------------------------
 *
 * lists.c
 *	  Lists of pages: see lists.h.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include <assert.h>

#include "lists.h"

Links
links_make(uint32_t pages)
{
	Links		links = {zeroed(pages, sizeof(uint32_t)), zeroed(pages, sizeof(uint32_t)), zeroed(pages, sizeof(List *))};

	return links;
}

void
links_free(Links *links)
{
	free(links->newer);
	free(links->older);
	free(links->list);
}

void
list_put(Links *links, List *list, uint32_t page)
{
	assert(!links->list[page]);
	links->list[page] = list;
	links->newer[page] = NO_PAGE;
	links->older[page] = list->first;
	if (list->first == NO_PAGE)
		list->last = page;
	else
		links->newer[list->first] = page;
	list->first = page;
	list->length++;
}

void
list_remove(Links *links, uint32_t page)
{
	List	   *list = links->list[page];
	const uint32_t newer = links->newer[page];
	const uint32_t older = links->older[page];

	assert(list);
	if (newer == NO_PAGE)
		list->first = older;
	else
		links->older[newer] = older;
	if (older == NO_PAGE)
		list->last = newer;
	else
		links->newer[older] = newer;
	list->length--;
	links->list[page] = NULL;
}

void
list_to(Links *links, List *list, uint32_t page)
{
	if (links->list[page])
		list_remove(links, page);
	list_put(links, list, page);
}

uint32_t
list_take_last(Links *links, List *list)
{
	const uint32_t page = list->last;

	list_remove(links, page);
	return page;
}
