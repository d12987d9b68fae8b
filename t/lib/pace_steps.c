/*
 * src/relocation/online/pace.c with a clock, disks, standbys and settings that this file makes up, for t/relocation_pace.pl:
 *   pace_set(name, value)             changes what is made up: the names are those of `values` below, and "hours"
 *   pace_begin(synchronous)           begins a move of 100 GB for which nothing is in the way, beside a synchronous standby or none
 *   pace_ask(ms, copied, left)        so much later, when so many bytes are copied: milliseconds to wait | next piece | why
 *   pace_copied(s, mb_per_s, late_ms) bytes that are copied in that time, on such a disk, if each wait takes longer
 *   pace_confirmed(ms, mb_per_s)      with a standby at that distance: the largest piece of half a minute | its bytes
 */
#include "steps.h"

#include <time.h>

#include "access/xact.h"
#include "catalog/pg_tablespace_d.h"
#include "postmaster/bgwriter.h"
#include "utils/memutils.h"

PG_FUNCTION_INFO_V1(pace_set);
PG_FUNCTION_INFO_V1(pace_begin);
PG_FUNCTION_INFO_V1(pace_ask);
PG_FUNCTION_INFO_V1(pace_copied);
PG_FUNCTION_INFO_V1(pace_confirmed);

static struct
{
	const char *name;
	double		at_first;
	double		now;
}			values[] = {
	{"wall"},					/* seconds since 1970 */
	{"reload"},					/* the next time that it is asked */
	{"pressure"},
	{"room", 1e9},				/* free MB of the target's disk, and of that of pg_wal */
	{"wal_room", 1e9},
	{"one_disk"},
	{"wal_most", 1e9},			/* MB that pg_wal grows by at most */
	{"checkpoints"},
	{"behind"},					/* MB, of a standby */
	{"synchronous"},
	{"unconfirmed"},			/* bytes of WAL that it has not confirmed */
	{"slot_at_risk"},
	{"held_back"},
	{"rate"},
	{"max_lag", 256},
	{"max_pressure", -1},
	{"written", 1e10}			/* bytes of WAL */
};

static int64 now_ns = 1;

static double *
value(const char *name)
{
	for (int i = 0; i < lengthof(values); i++)
		if (strcmp(name, values[i].name) == 0)
			return &values[i].now;
	elog(ERROR, "nothing made up is called \"%s\"", name);
}

#define time(out)					((pg_time_t) *value("wall"))
#define StartTransactionCommand()	((void) 0)
#define RequestCheckpoint(flags)	(*value("checkpoints") += (flags) == CHECKPOINT_FORCE)

#include "relocation/online/pace.c"

int			pgscale_relocation_max_lag;

int64 pgscale_timer_clock(void) { return now_ns; }
double pgscale_kernel_io_pressure_fraction(void) { return *value("pressure"); }
int64 pgscale_relocation_wal_growth(int64 bytes) { return Min(bytes, (int64) (*value("wal_most") * PGSCALE_MB)); }
bool pgscale_relocation_wal_is_synchronous(void) { return *value("synchronous"); }
XLogRecPtr pgscale_relocation_wal_flush(void) { return *value("written"); }

void
pgscale_relation_files_folder(char *path, Oid tablespace)
{
	strcpy(path, tablespace == DEFAULTTABLESPACE_OID ? "base" : "elsewhere");
}

int64
pgscale_relocation_free_bytes(const char *folder, dev_t *device)
{
	const bool	of_wal = strcmp(folder, "pg_wal") == 0;

	*device = of_wal && !*value("one_disk") ? 1 : 2;
	return *value(of_wal ? "wal_room" : "room") * PGSCALE_MB;
}

/* Says why, if that is so. */
static bool
answer(bool it_is, const char *reason, char *why, Size size)
{
	strlcpy(why, it_is ? reason : "", size);
	return it_is;
}

bool
pgscale_relocation_wal_behind(int64 most, char *why, Size size)
{
	return answer(*value("behind") * PGSCALE_MB > most, "a standby", why, size);
}

bool
pgscale_relocation_wal_unconfirmed(XLogRecPtr until, char *why, Size size)
{
	return answer(*value("synchronous") && *value("written") - *value("unconfirmed") < until, "unconfirmed", why, size);
}

bool
pgscale_relocation_wal_slot_at_risk(int64 bytes, bool unused, char *why, Size size)
{
	return answer(*value("slot_at_risk"), "a slot", why, size);
}

PgscaleRelocationHeldBack
pgscale_relocation_wal_held_back(int64 bytes, char *why, Size size)
{
	strlcpy(why, "an archiver", size);
	return (PgscaleRelocationHeldBack) *value("held_back");
}

static PgscaleRelocationPace pace;

static void
apply(void)
{
	rate_kb = (int) *value("rate");
	max_io_pressure = *value("max_pressure");
	pgscale_relocation_max_lag = (int) *value("max_lag");
}

/* Returns whether it is a value that the setting takes. */
Datum
pace_set(PG_FUNCTION_ARGS)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	char	   *to = MemoryContextStrdup(TopMemoryContext, text_to_cstring(PG_GETARG_TEXT_PP(1)));

	if (strcmp(name, "hours") == 0)
	{
		hours = to;
		PG_RETURN_BOOL(pace_check_hours(&to, NULL, PGC_S_FILE));
	}
	if (strcmp(name, "zone") == 0)
		log_timezone = pg_tzset(to);
	else
		*value(name) = atof(to);
	apply();
	PG_RETURN_BOOL(true);
}

Datum
pace_begin(PG_FUNCTION_ARGS)
{
	for (int i = 0; i < lengthof(values); i++)
		values[i].now = values[i].at_first;
	*value("synchronous") = PG_GETARG_BOOL(0);
	hours = "";
	log_timezone = pg_tzset("UTC");
	now_ns += NS_PER_S;
	apply();
	pgscale_relocation_pace_start(&pace, DEFAULTTABLESPACE_OID, 100 * PGSCALE_GB);
	PG_RETURN_VOID();
}

static long
ask(int64 copied)
{
	char	   *why;

	return pgscale_relocation_pace_wait(&pace, copied, 1000 * PGSCALE_MB, &why);
}

Datum
pace_ask(PG_FUNCTION_ARGS)
{
	double		checkpoints;
	char	   *why;
	long		ms;

	now_ns += (int64) (PG_GETARG_FLOAT8(0) * NS_PER_MS);
	ConfigReloadPending = *value("reload");
	*value("reload") = 0;
	ms = pgscale_relocation_pace_wait(&pace, PG_GETARG_INT64(1), PG_GETARG_INT64(2), &why);
	checkpoints = *value("checkpoints");
	PG_RETURN_TEXT_P(cstring_to_text(psprintf("%ld|" INT64_FORMAT "|%s%s", ms, pgscale_relocation_pace_piece(&pace), why ? why : "",
											  checkpoints ? psprintf(" [%.0f checkpoints]", checkpoints) : "")));
}

Datum
pace_copied(PG_FUNCTION_ARGS)
{
	const int64 end = now_ns + PG_GETARG_INT32(0) * NS_PER_S;
	int64		copied = 0;

	while (now_ns < end)
	{
		const long	ms = ask(copied);
		const int64 piece = pgscale_relocation_pace_piece(&pace);

		if (ms > 0)
			now_ns += (ms + PG_GETARG_INT32(2)) * NS_PER_MS;
		else
			now_ns += piece * NS_PER_S / (PG_GETARG_INT32(1) * PGSCALE_MB);
		copied += ms > 0 ? 0 : piece;
	}
	PG_RETURN_INT64(copied);
}

Datum
pace_confirmed(PG_FUNCTION_ARGS)
{
	const int64 half = 30 * NS_PER_S;
	const int64 start = now_ns;
	int64		all = 0;
	int64		at_half = 0;
	int64		largest = 0;

	(void) ask(0);
	while (now_ns < start + 2 * half)
	{
		const int64 piece = pgscale_relocation_pace_piece(&pace);

		if (now_ns < start + half)
			at_half = all;
		else
			largest = Max(largest, piece);
		all += piece;
		now_ns += PG_GETARG_INT32(0) * NS_PER_MS + piece * NS_PER_S / (PG_GETARG_INT32(1) * PGSCALE_MB);
		(void) ask(all);
	}
	PG_RETURN_TEXT_P(cstring_to_text(psprintf(INT64_FORMAT "|" INT64_FORMAT, largest, all - at_half)));
}
