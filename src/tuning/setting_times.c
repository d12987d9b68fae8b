/*-------------------------------------------------------------------------
 *
 * setting_times.c
 *	  The time of each setting's last change.
 *
 * After a reload, the sampler's process compares all values with the previous ones and
 * notes the time of each change.  Of the settings of a library that it has not loaded,
 * it knows those that a file sets.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "port/atomics.h"
#include "utils/guc.h"
#include "utils/timestamp.h"

#include "base/pg_compat.h"
#include "base/shared_area.h"
#include "base/timer.h"
#include "tuning/tuning.h"

/* For that many settings the time of the last change is known. */
#define MAX_SETTINGS	1024

/* A setting's value, as the sampler has it, and since when. */
typedef struct Setting
{
	uint64		name;			/* hashes of both */
	uint32		value;
	pg_atomic_uint64 set_at;	/* 0: as at the server's start */
	pg_atomic_uint64 set_ns;	/* by CLOCK_MONOTONIC */
} Setting;

typedef struct Shared
{
	pg_atomic_uint32 nsettings; /* the sampler adds to them, and writes all */
	Setting		settings[MAX_SETTINGS];
} Shared;

static Shared *shared = NULL;

static uint64
hash_of_name(const char *setting)
{
	char		name[256];

	strlcpy(name, setting, sizeof(name));
	for (char *c = name; *c; c++)
		*c = (char) pg_ascii_tolower((unsigned char) *c);
	return DatumGetUInt64(hash_any_extended((const unsigned char *) name, strlen(name), 0));
}

static uint32
value_of(const char *setting)
{
	const char *value = GetConfigOption(setting, true, false);

	return value ? DatumGetUInt32(hash_any((const unsigned char *) value, strlen(value))) : 0;
}

static Setting *
find_setting(uint64 name)
{
	const uint32 n = pg_atomic_read_u32(&shared->nsettings);

	pg_read_barrier();
	for (uint32 i = 0; i < n; i++)
		if (shared->settings[i].name == name)
			return &shared->settings[i];
	return NULL;
}

static void
watch_setting(const char *name, void *arg)
{
	const TimestampTz now = *(const TimestampTz *) arg; /* 0: the server starts */
	const uint64 hash = hash_of_name(name);
	const uint32 value = value_of(name);
	const uint32 n = pg_atomic_read_u32(&shared->nsettings);
	Setting    *setting = find_setting(hash);

	if (setting ? setting->value == value : n == MAX_SETTINGS)
		return;
	if (!setting)
	{
		setting = &shared->settings[n];
		setting->name = hash;
	}
	setting->value = value;
	if (now != 0)
	{
		pg_atomic_write_u64(&setting->set_ns, (uint64) pgscale_timer_clock());
		pg_atomic_write_u64(&setting->set_at, now);
	}
	pg_write_barrier();
	if (setting == &shared->settings[n])
		pg_atomic_write_u32(&shared->nsettings, n + 1);
}

static void
settings_init(void)
{
	TimestampTz start = 0;

	pg_atomic_init_u32(&shared->nsettings, 0);
	for (int i = 0; i < MAX_SETTINGS; i++)
	{
		pg_atomic_init_u64(&shared->settings[i].set_at, 0);
		pg_atomic_init_u64(&shared->settings[i].set_ns, 0);
	}
	pgscale_compat_each_setting(watch_setting, &start);
}

const PgscaleArea pgscale_tuning_settings_area = {
	.name = "pgscale settings",
	.at = (void **) &shared,
	.size = sizeof(Shared),
	.init = settings_init,
};

void
pgscale_tuning_settings_watch(TimestampTz now)
{
	static TimestampTz read_at = 0;

	if (read_at == PgReloadTime)
		return;
	read_at = PgReloadTime;
	pgscale_compat_each_setting(watch_setting, &now);
}

TimestampTz
pgscale_tuning_set_at(const char *name)
{
	const TimestampTz now = GetCurrentTimestamp();
	Setting    *setting = find_setting(hash_of_name(name));
	TimestampTz at;

	/* of one that found no place it may have been at the last reload */
	if (!setting)
		return pg_atomic_read_u32(&shared->nsettings) == MAX_SETTINGS && PgReloadTime <= now ? PgReloadTime : 0;
	at = (TimestampTz) pg_atomic_read_u64(&setting->set_at);
	/* A future time is from a clock that was set back since. */
	return at <= now ? at : now - (pgscale_timer_clock() - (int64) pg_atomic_read_u64(&setting->set_ns)) / 1000;
}
