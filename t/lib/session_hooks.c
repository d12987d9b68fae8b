/*
 * What is installed in a session: is the server's hook of that name set, and how many callbacks are there of the end of a
 * transaction?
 */
#include "postgres.h"

#include <dlfcn.h>

#include "access/xact.h"
#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/memutils.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(hook_is_set);
PG_FUNCTION_INFO_V1(transaction_callbacks);

Datum
hook_is_set(PG_FUNCTION_ARGS)
{
	void	  **hook = dlsym(RTLD_DEFAULT, text_to_cstring(PG_GETARG_TEXT_PP(0)));

	if (!hook)
		elog(ERROR, "no such hook");
	PG_RETURN_BOOL(*hook != NULL);
}

/* as the server has it */
typedef struct Callback
{
	struct Callback *next;
	XactCallback callback;
	void	   *arg;
} Callback;

static void
own_callback(XactEvent event, void *arg)
{
}

/* The list is the server's own: but what is allocated next is where something of that size was freed just now. */
Datum
transaction_callbacks(PG_FUNCTION_ARGS)
{
	volatile Callback *own = MemoryContextAlloc(TopMemoryContext, sizeof(Callback));
	int			n = 0;

	pfree((void *) own);
	RegisterXactCallback(own_callback, &n);
	if (own->callback != own_callback || own->arg != &n)
		elog(ERROR, "the callback lies elsewhere");
	for (Callback *other = own->next; other; other = other->next)
		n++;
	UnregisterXactCallback(own_callback, &n);
	PG_RETURN_INT32(n);
}
