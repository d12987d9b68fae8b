/* control.c: two mistakes that the sanitizers must see, else t/trust/sanitizers proves nothing. */
#include "postgres.h"

#include <limits.h>

#include "fmgr.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(overrun);
PG_FUNCTION_INFO_V1(overflow);

/* reads the byte behind a piece of the heap: ASan's */
Datum
overrun(PG_FUNCTION_ARGS)
{
	int			n = PG_GETARG_INT32(0);
	volatile char *piece = malloc(n);

	piece[0] = 1;
	PG_RETURN_INT32(piece[n]);
}

/* shifts by more than the type is wide: UBSan's */
Datum
overflow(PG_FUNCTION_ARGS)
{
	PG_RETURN_INT32(1 << (PG_GETARG_INT32(0) + (int) sizeof(int) * CHAR_BIT));
}
