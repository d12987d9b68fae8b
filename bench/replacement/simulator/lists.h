/*-------------------------------------------------------------------------
 *
 * lists.h
 *	  Lists of pages, of which each page is on one at most.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef LISTS_H
#define LISTS_H

#include "simulator.h"

#define NO_PAGE		UINT32_MAX

typedef struct List
{
	uint32_t	first;			/* the newest */
	uint32_t	last;
	int			length;
} List;

#define EMPTY_LIST	{NO_PAGE, NO_PAGE, 0}

/* By page: its neighbours, and its list or NULL. */
typedef struct Links
{
	uint32_t   *newer;
	uint32_t   *older;
	List	  **list;
} Links;

extern Links links_make(uint32_t pages);
extern void links_free(Links *links);

extern void list_put(Links *links, List *list, uint32_t page);	/* it is on none */
extern void list_remove(Links *links, uint32_t page);
extern void list_to(Links *links, List *list, uint32_t page);	/* from where it is, if on one */
extern uint32_t list_take_last(Links *links, List *list);

#endif							/* LISTS_H */
