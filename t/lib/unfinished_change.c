/*
 * Leaves the sampler's profile in the middle of a change, as a sampler that an error ends there does. The sampler must be off.
 */
#include "postgres.h"

#include "fmgr.h"

#include "sampler/profile/profile.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(begin_change);

Datum
begin_change(PG_FUNCTION_ARGS)
{
	pgscale_sampler_profile_begin(NULL);
	PG_RETURN_VOID();
}
