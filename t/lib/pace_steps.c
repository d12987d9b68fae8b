/*
 * What holds a live move back, with a clock, disks, standbys and settings that this file makes up. pace_steps(folder) returns a
 * line for each check: "ok" or "not ok", and its name.
 */
#include "postgres.h"

#include <ctype.h>
#include <limits.h>
#include <math.h>
#include <sys/types.h>
#include <time.h>

#include "access/xact.h"
#include "access/xlog.h"
#include "access/xlog_internal.h"
#include "catalog/pg_tablespace_d.h"
#include "commands/tablespace.h"
#include "fmgr.h"
#include "pgstat.h"
#include "pgtime.h"
#include "postmaster/bgwriter.h"
#include "postmaster/interrupt.h"
#include "replication/slot.h"
#include "replication/syncrep.h"
#include "replication/walsender.h"
#include "replication/walsender_private.h"
#include "storage/procarray.h"
#include "storage/spin.h"
#include "utils/builtins.h"
#include "utils/guc.h"
#include "utils/memutils.h"

#include "base/pg_compat.h"
#include "base/processes.h"

#include "steps.h"

PG_MODULE_MAGIC;

PG_FUNCTION_INFO_V1(pace_steps);

#define SENDERS		3

/* Of the slots that have no process that is connected to a database */
#define SLOT_OF(pid)	((int) ProcGlobal->allProcCount - 1 - (pid))

static int64 now_ns = 0;
static pg_time_t wall = 0;
static pg_tz *zone;
static bool asked_to_reload = false;
static int	rate_after_reload;
static XLogRecPtr written;
static int	wal_size_mb = 1024;
static WalSndCtlData *senders;
static double pressure = 0;
static int64 target_free = 1LL << 50;
static int64 wal_free = 1LL << 50;
static bool one_disk = false;
static int	spaces = 0;
static SyncRepConfigData *synchronous = NULL;
static XLogRecPtr confirmed;
static int	candidates;
static bool slot_at_risk = false;
static int	checkpoints = 0;

int			pgscale_relocation_max_lag = 256;

#define time(out)					(wall)
#define log_timezone				zone
#define ConfigReloadPending			asked_to_reload
#define ProcessConfigFile(context)	(rate_kb = rate_after_reload)
#define GetXLogWriteRecPtr()		(written)
#define max_wal_senders				SENDERS
#define WalSndCtl					senders
#define BackendPidGetProc(pid)		(&ProcGlobal->allProcs[SLOT_OF(pid)])
#undef pgscale_compat_sync_rep_waits
#define pgscale_compat_sync_rep_waits(mode)	((void) (mode), false)
#define SyncRepConfig				synchronous
#define SyncRepGetCandidateStandbys made_up_standbys
#define GetConfigOptionResetString(name)	"on"

static int
made_up_standbys(SyncRepStandbyData **standbys)
{
	*standbys = palloc0(sizeof(SyncRepStandbyData));
	(*standbys)->pid = 1;
	(*standbys)->flush = confirmed;
	return candidates;
}
#define StartTransactionCommand()	((void) 0)
#define RequestCheckpoint(flags)	(checkpoints += (flags) == CHECKPOINT_FORCE)

/* The slots and the archiver are not made up, so what is said of them is. */
#define pgscale_relocation_wal_slot_at_risk real_slot_at_risk
#define pgscale_relocation_wal_held_back real_held_back
#include "relocation/wal_readers.c"
#undef pgscale_relocation_wal_slot_at_risk
#undef pgscale_relocation_wal_held_back

bool
pgscale_relocation_wal_slot_at_risk(int64 bytes, bool unused, char *why, Size size)
{
	strlcpy(why, "a slot", slot_at_risk ? size : 0);
	return slot_at_risk;
}

static PgscaleRelocationHeldBack held_back = PGSCALE_RELOCATION_HELD_BY_NONE;

PgscaleRelocationHeldBack
pgscale_relocation_wal_held_back(int64 bytes, char *why, Size size)
{
	strlcpy(why, "an archiver", held_back != PGSCALE_RELOCATION_HELD_BY_NONE ? size : 0);
	return held_back;
}

int64
pgscale_wal_disk_used_before(XLogSegNo end)
{
	return 0;
}

int64
pgscale_wal_disk_to_archive_before(XLogSegNo end)
{
	return 0;
}

XLogRecPtr
pgscale_relocation_wal_flush(void)
{
	return written;
}

#include "relocation/pace.c"

int64
pgscale_timer_clock(void)
{
	return now_ns;
}

double
pgscale_kernel_io_pressure_fraction(void)
{
	return pressure;
}

void
pgscale_relation_files_folder(char *path, Oid tablespace)
{
	strcpy(path, tablespace == DEFAULTTABLESPACE_OID ? "base" : "elsewhere");
}

int64
pgscale_relocation_free_bytes(const char *folder, dev_t *device)
{
	const bool	of_wal = strcmp(folder, "pg_wal") == 0;

	spaces += !of_wal;
	*device = of_wal && !one_disk ? 1 : 2;
	return of_wal ? wal_free : target_free;
}

int64
pgscale_relocation_wal_growth(int64 bytes)
{
	return Min(bytes, wal_size_mb * PGSCALE_MB);
}

bool
pgscale_procs_read_client(int slot, bool address, PgscaleProcClient *client)
{
	snprintf(client->application_name, NAMEDATALEN, "s%d", SLOT_OF(slot));
	return true;
}

static void
says(const char *got, const char *want, const char *name)
{
	const bool	ok = want ? got && strcmp(got, want) == 0 : !got;

	is(ok, true, name);
	if (!ok)
		elog(WARNING, "%s: %s", name, got ? got : "NULL");
}

static PgscaleRelocationPace pace;

static void
begin(void)
{
	now_ns += NS_PER_S;
	zone = pg_tzset("UTC");
	rate_kb = 0;
	hours = "";
	max_io_pressure = -1;
	pgscale_relocation_max_lag = 256;
	pgscale_relocation_pace_start(&pace, DEFAULTTABLESPACE_OID, 100 * PGSCALE_GB);
}

static char *why;

/* Asks, when so much was copied. */
static long
ask(int64 copied)
{
	return pgscale_relocation_pace_wait(&pace, copied, 1000 * PGSCALE_MB, &why);
}

static void
check_pieces(void)
{
	begin();
	is(ask(0), 0, "without settings it goes on");
	says(why, NULL, "for no reason");
	is(pgscale_relocation_pace_piece(&pace), 4 * PGSCALE_MB, "by 4 MB");
	now_ns += 400 * NS_PER_MS;
	is(ask(4 * PGSCALE_MB), 0, "a slow disk holds nothing back");
	is(pgscale_relocation_pace_piece(&pace), PGSCALE_MB, "but a piece is what it copies in 100 ms");
	now_ns += NS_PER_MS;
	ask(5 * PGSCALE_MB);
	is(pgscale_relocation_pace_piece(&pace), 2 * PGSCALE_MB, "which doubles at most");
	now_ns += 1000 * NS_PER_S;
	ask(5 * PGSCALE_MB);
	is(pgscale_relocation_pace_piece(&pace), 2 * PGSCALE_MB, "time in which nothing was copied teaches nothing");
	now_ns += 1000 * NS_PER_S;
	ask(6 * PGSCALE_MB);
	is(pgscale_relocation_pace_piece(&pace), 256 * PGSCALE_KB, "a piece is not smaller than a record of the WAL");
	ask(6 * PGSCALE_MB + 8192);
	is(pgscale_relocation_pace_piece(&pace), 512 * PGSCALE_KB, "a clock that stands still is none to divide by");
	rate_kb = 5000;
	is(pgscale_relocation_pace_piece(&pace), 5000 * 1024 / 10 / 8192 * 8192, "a low rate makes pieces small, of whole pages");
	rate_kb = 1;
	is(pgscale_relocation_pace_piece(&pace), 256 * PGSCALE_KB, "but not smaller than that, either");
	rate_kb = INT_MAX;
	is(pgscale_relocation_pace_piece(&pace), 512 * PGSCALE_KB, "a high rate does not matter");
}

/* Copies for so many seconds, on a disk of so many MB/s, and oversleeps by so many ms; returns bytes. */
static int64
copied_in(int seconds, double mb_per_s, int late_ms)
{
	const int64 end = now_ns + seconds * NS_PER_S;
	int64		copied = 0;

	while (now_ns < end)
	{
		const long	ms = ask(copied);

		if (ms > 0)
		{
			is(ms <= 1000 && why == NULL, true, "it waits for a second at most, by the rate");
			now_ns += (ms + late_ms) * NS_PER_MS;
			continue;
		}
		copied += pgscale_relocation_pace_piece(&pace);
		now_ns += pgscale_relocation_pace_piece(&pace) / (mb_per_s * PGSCALE_MB) * NS_PER_S;
	}
	return copied;
}

static void
check_rate(void)
{
	const int	at = lines.len;
	int64		copied;

	for (int i = 0; i < 4; i++)
	{
		static const int kb[] = {100, 1000, 10240, 102400};

		begin();
		rate_kb = kb[i];
		copied = copied_in(100, 1000, 30);
		is(fabs(copied / (100.0 * kb[i] * 1024) - 1) < 0.03, true, "the rate is kept, with waits that take too long");
	}
	begin();
	rate_kb = 102400;
	copied = copied_in(100, 50, 0);
	is(fabs(copied / (5000.0 * PGSCALE_MB) - 1) < 0.01, true, "a disk that is slower than the rate is used in full");

	/* hours of nothing give no credit */
	begin();
	rate_kb = 10240;
	ask(0);
	now_ns += 3600 * NS_PER_S;
	is(copied_in(1, 1000, 0) < 12.2 * PGSCALE_MB, true, "an hour without a copy is not made up for");

	/* nor does a limit that is gone */
	begin();
	rate_kb = 1;
	ask(0);
	is(ask(4 * PGSCALE_MB), 1000, "a debt of an hour");
	says(why, NULL, "without a word");
	asked_to_reload = true;
	rate_after_reload = 0;
	is(ask(4 * PGSCALE_MB), 0, "ends with the limit, which is read again");
	is(asked_to_reload, false, "once");

	begin();
	rate_kb = 1024;
	ask(4 * PGSCALE_MB);
	is(ask(PGSCALE_MB), 1000, "what is copied anew, as of a new attempt, is not less than nothing");
	if (strstr(lines.data + at, "not ok") == NULL)
	{
		/* the many that are one */
		lines.len = at;
		is(true, true, "the rate, and what its limit does");
	}
}

/* As the server gives it to the hook: in memory of its own. */
static bool
valid(const char *list)
{
	char	   *value = pstrdup(list);

	return pace_check_hours(&value, NULL, PGC_S_FILE);
}

/* At that time of the day, on an odd day; minutes until it opens. */
static int
until(const char *list, int hour, int minute)
{
	int			left = -1;

	is(pace_read_hours(list, hour * 60 + minute, &left), true, list);
	return left;
}

static void
check_hours(void)
{
	static const char *const good[] = {"", "  ", "22:00-06:00", "0:00-24:00", "00:00-00:01", " 22:00 - 06:00 , 12:00-13:30 ", "9:05-9:06"};
	static const char *const bad[] = {"-", "x", "22", "22:00", "22:00-", "-06:00", "22:00-06:00,", ",22:00-06:00", "22:00-06:00;12:00-13:00",
		"22:00-22:00", "24:00-06:00", "22:00-24:01", "22:00-25:00", "22:60-23:00", "22:0-23:00", "22:000-23:00", "222:00-23:00", "22 :00-23:00",
		"22:00--23:00", "-1:00-02:00", "+1:00-02:00", "22:00-23:00x", "22:00-23:00 12:00-13:00", "22.00-23.00"};

	for (int i = 0; i < lengthof(good); i++)
		is(valid(good[i]), true, psprintf("hours: \"%s\"", good[i]));
	for (int i = 0; i < lengthof(bad); i++)
		is(valid(bad[i]), false, psprintf("not hours: \"%s\"", bad[i]));

	is(until("", 3, 0), 0, "no list: always");
	is(until("00:00-24:00", 23, 59), 0, "all day");
	is(until("22:00-06:00", 21, 59), 1, "a minute before");
	is(until("22:00-06:00", 22, 0), 0, "from then on");
	is(until("22:00-06:00", 23, 59), 0, "before midnight");
	is(until("22:00-06:00", 0, 0), 0, "and after");
	is(until("22:00-06:00", 5, 59), 0, "up to the end");
	is(until("22:00-06:00", 6, 0), 16 * 60, "which is out");
	is(until("22:00-24:00", 0, 0), 22 * 60, "until midnight");
	is(until("22:00-06:00,12:00-13:00", 6, 0), 6 * 60, "the next of several");
	is(until("12:00-13:00,22:00-06:00", 13, 0), 9 * 60, "in any order");
	is(until("12:00-13:00,22:00-06:00", 2, 0), 0, "or one of them");
	is(until("12:00-13:00", 13, 0), 23 * 60, "tomorrow");

	begin();
	zone = pg_tzset("Asia/Kolkata");	/* 5:30 h ahead */
	wall = 1000000000 / SECS_PER_DAY * SECS_PER_DAY + 8 * SECS_PER_HOUR + 35 * SECS_PER_MINUTE;
	hours = "14:06-15:00";
	is(ask(0), 1000, "it waits outside its hours");
	says(why, "pgscale.relocation_hours begin at 14:06 (Asia/Kolkata)", "and says until when");
	is(spaces, 0, "meanwhile it does not look at the disk");
	now_ns += 400 * NS_PER_MS;
	wall += SECS_PER_MINUTE;
	is(ask(0), 600, "until it looks again");
	says(why, "pgscale.relocation_hours begin at 14:06 (Asia/Kolkata)", "with the same words");
	now_ns += 600 * NS_PER_MS;
	is(ask(0), 0, "it goes on within its hours");
	says(why, NULL, "with none");
	wall += 54 * SECS_PER_MINUTE;
	is(ask(0), 0, "between two looks");
	now_ns += NS_PER_S;
	is(ask(0), 1000, "and waits at their end");
	hours = "";
	asked_to_reload = true;
	is(ask(0), 0, "a reload is seen at once");
}

static void
sender(int i, int pid, XLogRecPtr flush)
{
	senders->walsnds[i].pid = pid;
	senders->walsnds[i].flush = flush;
}

static void
check_standbys(void)
{
	senders = palloc0(offsetof(WalSndCtlData, walsnds) + SENDERS * sizeof(WalSnd));
	for (int i = 0; i < SENDERS; i++)
		SpinLockInit(&senders->walsnds[i].mutex);
	written = 10 * PGSCALE_GB;
	sender(0, 0, PGSCALE_GB);	/* gone */
	sender(1, 1, InvalidXLogRecPtr);	/* a backup */
	sender(2, 2, written - 256 * PGSCALE_MB);
	begin();
	is(ask(0), 0, "a standby may be behind by the limit");
	sender(2, 2, written - 257 * PGSCALE_MB);
	is(ask(0), 0, "it is looked at once a second");
	now_ns += NS_PER_S;
	is(ask(0), 1000, "by more it may not");
	says(why, "standby \"s2\" has 257 MB of WAL still to receive (pgscale.relocation_max_lag)", "it is named");
	sender(1, 1, written - PGSCALE_GB);
	now_ns += NS_PER_S;
	(void) ask(0);
	says(why, "standby \"s1\" has 1024 MB of WAL still to receive (pgscale.relocation_max_lag)", "the last one of several");
	sender(1, 1, written + 1);
	pgscale_relocation_max_lag = 258;
	now_ns += NS_PER_S;
	is(ask(0), 0, "one that has flushed what was written since is not behind");
	sender(1, 1, 1);
	pgscale_relocation_max_lag = -1;
	now_ns += NS_PER_S;
	is(ask(0), 0, "no limit");
	pgscale_relocation_max_lag = INT_MAX;
	now_ns += NS_PER_S;
	is(ask(0), 0, "the largest limit");
	sender(1, 0, 0);
	sender(2, 0, 0);
}

static void
check_synchronous(void)
{
	SyncRepConfigData config = {.num_sync = 1};

	synchronous = &config;
	written = 10 * PGSCALE_GB;
	candidates = 1;
	begin();
	is(ask(0), 0, "with a synchronous standby it begins");
	is(pgscale_relocation_pace_piece(&pace), 16 * PGSCALE_KB, "with a small piece");
	now_ns += 5 * NS_PER_MS;
	confirmed = written - 1;
	is(ask(64 * PGSCALE_KB), 1, "which must be confirmed");
	says(why, NULL, "for a moment without a word");
	now_ns += 5 * NS_PER_MS;
	written += PGSCALE_MB;
	confirmed = written - PGSCALE_MB;
	is(ask(64 * PGSCALE_KB), 0, "and then it goes on, whatever others have written since");
	is(pgscale_relocation_pace_piece(&pace), 32 * PGSCALE_KB, "by no more than twice as much");
	now_ns += 400 * NS_PER_MS;
	is(ask(192 * PGSCALE_KB), 40, "a slow standby, which is asked less often");
	confirmed = written;
	is(ask(192 * PGSCALE_KB), 0, "that has confirmed");
	is(pgscale_relocation_pace_piece(&pace), 8192, "makes pieces small");
	written += 8192;
	now_ns += NS_PER_S;
	is(ask(200 * PGSCALE_KB), 100, "one that does not confirm");
	says(why, "synchronous standby \"s1\" has not confirmed the WAL of the last piece", "is named after a second");
	candidates = 0;
	is(ask(200 * PGSCALE_KB), 100, "none at all");
	says(why, "only 0 of 1 synchronous standbys stream WAL (synchronous_standby_names)", "is said");
	candidates = 1;
	confirmed = written;
	is(ask(200 * PGSCALE_KB), 0, "it goes on as soon as it has");
	says(why, NULL, "and says nothing");
	synchronous = NULL;
	now_ns += NS_PER_MS;
	is(ask(208 * PGSCALE_KB), 0, "without synchronous standbys nothing is waited for");
}

/* Beside a standby at that distance, on a line of 20 MB/s: the largest piece of the last half of a minute; *copied: bytes in it. */
static int64
largest_piece(int round_trip_ms, int64 *copied)
{
	SyncRepConfigData config = {.num_sync = 1};
	int64		all = 0;
	int64		at_half = 0;
	int64		largest = 0;
	int64		start;

	synchronous = &config;
	candidates = 1;
	confirmed = written = 10 * PGSCALE_GB;
	begin();
	(void) ask(0);
	start = now_ns;
	while (now_ns < start + 60 * NS_PER_S)
	{
		const int64 piece = pgscale_relocation_pace_piece(&pace);

		if (now_ns < start + 30 * NS_PER_S)
			at_half = all;
		else
			largest = Max(largest, piece);
		all += piece;
		now_ns += round_trip_ms * NS_PER_MS + piece * NS_PER_S / (20 * PGSCALE_MB);
		(void) ask(all);
	}
	synchronous = NULL;
	*copied = all - at_half;
	return largest;
}

static void
check_distance(void)
{
	int64		copied;
	int64		largest = largest_piece(1, &copied);

	is(largest >= 350 * PGSCALE_KB && largest <= 450 * PGSCALE_KB, true, "a standby that is near gets pieces of 20 ms");
	is(copied >= 30 * 15 * PGSCALE_MB, true, "which use most of its line");
	largest = largest_piece(50, &copied);
	is(largest >= 350 * PGSCALE_KB && largest <= 450 * PGSCALE_KB, true, "and so does one whose way takes 50 ms");
	is(copied >= 30 * 4 * PGSCALE_MB, true, "so that the move ends");
}

static void
check_slots(void)
{
	begin();
	slot_at_risk = true;
	is(ask(0), 1000, "it waits for a slot that would be lost");
	says(why, "a slot", "which is named");
	slot_at_risk = false;
	now_ns += NS_PER_S;
	is(ask(0), 0, "until it has advanced");
}

static void
check_pressure(void)
{
	begin();
	pressure = 1;
	is(ask(0), 0, "pressure is not looked at by default");
	max_io_pressure = 0.6;
	pressure = 0.6;
	now_ns += NS_PER_S;
	is(ask(0), 0, "pressure up to the limit");
	pressure = 0.61;
	now_ns += NS_PER_S;
	is(ask(0), 1000, "and above");
	says(why, "I/O pressure of the last 10 s was 0.61, more than pgscale.relocation_max_io_pressure", "is told");
	max_io_pressure = 0;
	pressure = 0.005;
	now_ns += NS_PER_S;
	is(ask(0), 1000, "none at all");
	pressure = -1;
	now_ns += NS_PER_S;
	is(pace.warned, false, "it is known");
	is(ask(0), 0, "where it is not known, it holds nothing back");
	is(pace.warned, true, "which is said");
}

/* The error, or an empty text. */
static char *
refused(int64 copied, int64 left)
{
	MemoryContext context = CurrentMemoryContext;
	char	   *text = "";

	PG_TRY();
	{
		(void) pgscale_relocation_pace_wait(&pace, copied, left, &why);
	}
	PG_CATCH();
	{
		ErrorData  *data;

		MemoryContextSwitchTo(context);
		data = CopyErrorData();
		FlushErrorState();
		text = psprintf("%s %s (%s)%s", unpack_sql_state(data->sqlerrcode), data->message, data->detail, data->hint ? "" : " no hint");
	}
	PG_END_TRY();
	return text;
}

static void
check_room(void)
{
	const int64 left = 1000 * PGSCALE_MB;
	const int64 least = 1066 * PGSCALE_MB;

	begin();
	target_free = least;
	wal_free = least;
	says(refused(0, left), "", "room for what is left, for 5 % more and for a segment of the WAL");
	target_free--;
	spaces = 0;
	says(refused(64 * PGSCALE_MB - 1, left), "", "is looked at once a second");
	is(spaces, 0, "not more often");
	says(refused(64 * PGSCALE_MB, left),
		 "53100 not enough free space in tablespace \"pg_default\": 1065 MB are free, 1066 MB are needed (64 of 102400 MB were copied.)",
		 "or when 64 MB were copied: there must not be less");
	now_ns += NS_PER_S;
	says(refused(64 * PGSCALE_MB, left - 2 * PGSCALE_MB), "", "for less that is left there may be less");
	target_free = least;
	wal_free--;
	now_ns += NS_PER_S;
	says(refused(65 * PGSCALE_MB, left),
		 "53100 not enough free space for the WAL: 1065 MB are free, 1066 MB are needed (65 of 102400 MB were copied.)", "nor for the WAL");
	wal_size_mb = 500;
	wal_free = 541 * PGSCALE_MB;
	now_ns += NS_PER_S;
	says(refused(65 * PGSCALE_MB, left), "", "of which the server keeps max_wal_size");
	wal_free--;
	now_ns += NS_PER_S;
	is(strlen(refused(65 * PGSCALE_MB, left)) > 0, true, "but that must fit");
	one_disk = true;
	target_free = (1500 + 75 + 16) * PGSCALE_MB;
	now_ns += NS_PER_S;
	says(refused(65 * PGSCALE_MB, left), "", "on one disk there must be room for both");
	target_free--;
	now_ns += NS_PER_S;
	is(strlen(refused(65 * PGSCALE_MB, left)) > 0, true, "and not less");
	held_back = PGSCALE_RELOCATION_HELD_BY_READER;
	now_ns += NS_PER_S;
	is(ask(65 * PGSCALE_MB), 1000, "unless something holds WAL back");
	says(why, "only 1590 MB are free on the disk of pg_wal: an archiver", "which is named");
	is(checkpoints, 0, "a checkpoint would not help");
	held_back = PGSCALE_RELOCATION_HELD_UNTIL_CHECKPOINT;
	for (int i = 0; i < 3; i++)
	{
		now_ns += NS_PER_S;
		is(ask(65 * PGSCALE_MB), 1000, "or has held it until now");
	}
	is(checkpoints, 1, "then a checkpoint is asked for, once");
	now_ns += 10 * NS_PER_S;
	is(ask(65 * PGSCALE_MB), 1000, "if that has not made room");
	is(checkpoints, 2, "another one is");
	target_free++;
	now_ns += NS_PER_S;
	says(refused(65 * PGSCALE_MB, left), "", "with room again it goes on");
	target_free--;
	now_ns += NS_PER_S;
	is(ask(65 * PGSCALE_MB), 1000, "and waits again");
	is(checkpoints, 3, "for a checkpoint at once");
	target_free = left;
	now_ns += NS_PER_S;
	is(strlen(refused(65 * PGSCALE_MB, left)) > 0, true, "which does not help where the relation itself has no room");
	held_back = PGSCALE_RELOCATION_HELD_BY_NONE;
	target_free = wal_free = -1;
	now_ns += NS_PER_S;
	says(refused(65 * PGSCALE_MB, left), "", "what is not known holds nothing back");
}

Datum
pace_steps(PG_FUNCTION_ARGS)
{
	initStringInfo(&lines);
	check_standbys();
	check_synchronous();
	check_distance();
	check_slots();
	check_rate();
	check_pieces();
	spaces = 0;
	check_hours();
	check_pressure();
	check_room();
	PG_RETURN_TEXT_P(cstring_to_text(lines.data));
}
