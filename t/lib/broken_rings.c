/*
 * Makes the sweeper's rings say what cannot be: that far more went in than there is room for, as two writers of one ring
 * could have done. It looks into shared memory as pgscale itself does.
 */
#include "postgres.h"

#include "fmgr.h"

#include "sweeper/shares.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(break_rings);

/* break_rings(runs, written): which of them */
Datum
break_rings(PG_FUNCTION_ARGS)
{
	PgscaleSweeperShare *share = pgscale_sweeper_share(0);

	if (PG_GETARG_BOOL(0))
		pg_atomic_fetch_add_u32(&share->runs_put, PG_INT32_MAX);
	for (int i = 0; PG_GETARG_BOOL(1) && i < PGSCALE_SWEEPER_MAX_WRITERS; i++)
		pg_atomic_fetch_add_u32(&share->writers[i].put, PG_INT32_MAX);
	PG_RETURN_VOID();
}
