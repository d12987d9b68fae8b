/*-------------------------------------------------------------------------
 *
 * pace.c
 *	  What holds an online move back: the settings for it, standbys, and disks.
 *
 * The worker copies in pieces, each in a short transaction with its lock, and asks here
 * before each piece.  Between two answers it follows the WAL, so that a move can wait for
 * hours and does not fall behind.
 *
 * The rate is kept by a debt: bytes that were copied beyond it.  Each piece adds to the
 * debt, time takes from it, and a move goes on while there is none.  A tenth of a second
 * may be saved up, so that a wait that took too long is made up for, and no more, so that
 * a night outside pgscale.relocation_hours does not end in a burst.
 *
 * A piece is as large as was copied in 100 ms lately, but no more than doubled from one
 * piece to the next.  The time includes that of the WAL followed in between, so this errs
 * to small pieces.
 *
 * Commits of others must not wait for a piece to cross the line to a synchronous standby.  So a piece is over only when such
 * standbys have confirmed its WAL, and it is small enough for that to take 20 ms (relocation_wal.c).  The way there and back, and the
 * standby's disk, do not count: a commit waits for them anyway, and smaller pieces would not make them shorter.  How long they take
 * is what a small piece takes, one each 10 s.
 *
 * The reasons to wait are looked for once a second: the hours, standbys, and I/O pressure.  That
 * pressure is not looked at by default: it is the time in which any process waited for a
 * disk, so one session that reads all the time makes it 1, and on a slow disk the copy
 * itself does.
 *
 * Before each piece, slots: none may lose its WAL.  Once a second, and every 64 MB, free space: the rest of the copy must fit on the
 * disk of the target.  The disk of pg_wal needs room for pg_wal to reach max_wal_size.  More WAL piles up only
 * while the archiver or a slot holds it back, which may end: so the move waits, while the server itself still has
 * room.  What they let go stays until the end of the next checkpoint, for which it asks.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <limits.h>
#include <math.h>
#include <sys/types.h>
#include <time.h>

#include "access/xact.h"
#include "access/xlog.h"
#include "commands/tablespace.h"
#include "pgtime.h"
#include "postmaster/bgwriter.h"
#include "postmaster/interrupt.h"
#include "utils/guc.h"

#include "base/kernel.h"
#include "base/relation_files.h"
#include "base/timer.h"
#include "base/units.h"
#include "relocation/checks.h"
#include "relocation/online/pace.h"
#include "relocation/online/relocation_wal.h"
#include "relocation/relocation.h"

/* The largest piece, and the smallest: pages of one record of the WAL. */
#define PIECE_MOST		(4 * PGSCALE_MB)
#define PIECE_LEAST		(256 * PGSCALE_KB)

/* How long a piece should hold its lock, and how much of the rate may be saved up. */
#define PIECE_NS		(100 * NS_PER_MS)

/* How long a piece may take until synchronous standbys have confirmed it, the first one, and between two looks for that. */
#define CONFIRM_NS		(20 * NS_PER_MS)
#define CONFIRM_FIRST	(16 * PGSCALE_KB)
#define CONFIRM_LOOK_MS	1
#define CONFIRM_LOOK_MAX_MS	100

/* How often the way to synchronous standbys is measured anew. */
#define CONFIRM_BASE_NS	(10 * NS_PER_S)

/* Between two looks at the reasons to wait. */
#define PACE_LOOK_MS	1000
#define PACE_LOOK_NS	(PACE_LOOK_MS * NS_PER_MS)

/* A checkpoint that was asked for has most likely ended, or will not help. */
#define CHECKPOINT_AGAIN_NS	(10 * NS_PER_S)

/* Between two looks at free space, besides. */
#define SPACE_LOOK_BYTES	(64 * PGSCALE_MB)

/* Free space that is left to others: 5 % of what is needed, and one segment of WAL or so. */
#define SPACE_PERCENT	5
#define SPACE_RESERVE	(16 * PGSCALE_MB)

#define DAY_MINUTES		(24 * 60)

/* As scanf() has them. */
#define SPACES			" \t\n\v\f\r"

static int	rate_kb;
static char *hours;
static double max_io_pressure;

/*
 * Reads a list of periods.  *left is how many minutes there are from this one of the day until
 * the next one in which moves may go on: 0 if it is such a one, or the list is empty.  Returns
 * false if the list is malformed.
 */
static bool
pace_read_hours(const char *list, int minute, int *left)
{
	*left = DAY_MINUTES;
	if (strspn(list, SPACES) == strlen(list))
	{
		*left = 0;
		return true;
	}
	for (;; list++)
	{
		char		hour[2][3];
		char		minutes[2][3];
		int			end;
		int			from;
		int			to;
		bool		within;

		if (sscanf(list, " %2[0-9]:%2[0-9] - %2[0-9]:%2[0-9] %n", hour[0], minutes[0], hour[1], minutes[1], &end) != 4 ||
			strlen(minutes[0]) < 2 || strlen(minutes[1]) < 2 || atoi(minutes[0]) > 59 || atoi(minutes[1]) > 59)
			return false;
		from = atoi(hour[0]) * 60 + atoi(minutes[0]);
		to = atoi(hour[1]) * 60 + atoi(minutes[1]);
		if (from == to || from >= DAY_MINUTES || to > DAY_MINUTES)
			return false;
		list += end;
		within = from < to ? minute >= from && minute < to : minute >= from || minute < to;
		*left = Min(*left, within ? 0 : (from - minute + DAY_MINUTES) % DAY_MINUTES);
		if (*list == '\0')
			return true;
		if (*list != ',')
			return false;
	}
}

static bool
pace_check_hours(char **newval, void **extra, GucSource source)
{
	int			left;

	if (pace_read_hours(*newval, 0, &left))
		return true;
	GUC_check_errdetail("It is a list of periods of the day, separated by commas, such as 22:00-06:00.");
	GUC_check_errhint("Times are from 00:00 to 24:00, and a period must not end when it begins; an empty list means always.");
	return false;
}

void
pgscale_relocation_pace_define_gucs(void)
{
	DefineCustomIntVariable("pgscale.relocation_rate",
							"How much each online move copies per second.",
							"0: no limit. It does not slow down REINDEX or ALTER TABLE.",
							&rate_kb, 0, 0, INT_MAX,
							PGC_SIGHUP, GUC_UNIT_KB, NULL, NULL, NULL);
	DefineCustomStringVariable("pgscale.relocation_hours",
							   "Periods of the day, in log_timezone, in which jobs start and online moves copy, such as 22:00-06:00, 12:00-13:30.",
							   "Empty: always. Started rebuilds go on.",
							   &hours, "",
							   PGC_SIGHUP, GUC_LIST_INPUT, pace_check_hours, NULL, NULL);
	DefineCustomRealVariable("pgscale.relocation_max_io_pressure",
							 "Fraction of the last 10 s with waits for I/O above which no online move copies.",
							 "-1: not checked. The copy itself, or one session that always reads, can make it 1.",
							 &max_io_pressure, -1, -1, 1,
							 PGC_SIGHUP, 0, NULL, NULL, NULL);
}

void
pgscale_relocation_pace_start(PgscaleRelocationPace *pace, Oid target, int64 bytes)
{
	memset(pace, 0, sizeof(*pace));
	pace->target = target;
	pace->bytes = bytes;
	pace->piece = pgscale_relocation_wal_is_synchronous() ? CONFIRM_FIRST : PIECE_MOST;
	pace->asked_ns = pgscale_timer_clock();
}

static double
pace_rate(void)
{
	return (double) rate_kb * PGSCALE_KB;
}

int64
pgscale_relocation_pace_piece(const PgscaleRelocationPace *pace)
{
	int64		piece = pace->piece;

	if (rate_kb > 0)
		piece = Min(piece, Max((int64) (pace_rate() * PIECE_NS / NS_PER_S), PIECE_LEAST));
	return Max(piece - piece % BLCKSZ, BLCKSZ);
}

/*
 * The size of the next piece by that of the last one, which synchronous standbys have confirmed in that time.
 */
static double
pace_confirmable(PgscaleRelocationPace *pace, int64 bytes, int64 took_ns, int64 now)
{
	if (pace->base_ns == 0)
	{
		pace->base_ns = took_ns;
		pace->base_at_ns = now;
	}
	else if (now - pace->base_at_ns >= CONFIRM_BASE_NS)
	{
		/* the next one is small, and tells */
		pace->base_ns = 0;
		return Min(pace->piece, CONFIRM_FIRST);
	}
	/* one that took longer was held up by something else */
	pace->base_ns = Min(pace->base_ns, took_ns);
	return (double) bytes * CONFIRM_NS / Max(took_ns - pace->base_ns, 1);
}

/* Learns from what was copied since the last call, when it was that time. */
static void
pace_learn(PgscaleRelocationPace *pace, int64 copied, int64 now)
{
	const int64 bytes = Max(copied - pace->copied, 0);
	const int64 took_ns = Max(now - pace->asked_ns, 1);

	if (pace->went_on && bytes > 0)
	{
		const bool	synchronous = pgscale_relocation_wal_is_synchronous();
		const double fits = synchronous ? pace_confirmable(pace, bytes, took_ns, now) : (double) bytes * PIECE_NS / took_ns;

		pace->piece = (int64) Min(fits, Min(2 * pace->piece, PIECE_MOST));
		pace->piece = Max(pace->piece, synchronous ? BLCKSZ : PIECE_LEAST);
	}
	pace->debt += bytes - pace_rate() * took_ns / NS_PER_S;
	pace->debt = Max(pace->debt, -pace_rate() * PIECE_NS / NS_PER_S);
	if (rate_kb == 0)
		pace->debt = 0;			/* of a limit there was before */
	pace->copied = copied;
	pace->asked_ns = now;
}

static bool
pace_outside_hours(char *why, Size size)
{
	const pg_time_t now = (pg_time_t) time(NULL);
	const struct pg_tm *tm = pg_localtime(&now, log_timezone);
	const int	minute = tm->tm_hour * 60 + tm->tm_min;
	int			left;
	int			next;

	if (!pace_read_hours(hours, minute, &left) || left == 0)
		return false;
	next = (minute + left) % DAY_MINUTES;
	snprintf(why, size, "pgscale.relocation_hours begin at %02d:%02d (%s)", next / 60, next % 60, pg_get_timezone_name(log_timezone));
	return true;
}

bool
pgscale_relocation_pace_must_wait(char *why, Size size)
{
	return pace_outside_hours(why, size) ||
		(pgscale_relocation_max_lag >= 0 && pgscale_relocation_wal_behind(pgscale_relocation_max_lag * PGSCALE_MB, why, size));
}

/* Looks for what to wait for. */
static void
pace_look(PgscaleRelocationPace *pace)
{
	double		pressure;

	pace->why[0] = '\0';
	if (pgscale_relocation_pace_must_wait(pace->why, sizeof(pace->why)) || max_io_pressure < 0)
		return;
	pressure = pgscale_kernel_io_pressure_fraction();
	if (pressure > max_io_pressure)
		snprintf(pace->why, sizeof(pace->why), "I/O pressure of the last 10 s was %.2f, more than pgscale.relocation_max_io_pressure", pressure);
	if (pressure < 0 && !pace->warned)
	{
		ereport(WARNING,
				(errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
				 errmsg("pgscale.relocation_max_io_pressure has no effect: the kernel does not report I/O pressure"),
				 errhint("Start the kernel with psi=1, or set pgscale.relocation_max_io_pressure to -1.")));
		pace->warned = true;
	}
}

static int64
pace_with_reserve(int64 bytes)
{
	return bytes + bytes * SPACE_PERCENT / 100 + SPACE_RESERVE;
}

static void
pace_raise_no_room(PgscaleRelocationPace *pace, bool for_wal, int64 room, int64 needed)
{
	const int64 room_mb = room / PGSCALE_MB;
	const int64 needed_mb = (needed + PGSCALE_MB - 1) / PGSCALE_MB;

	StartTransactionCommand();	/* for the name */
	ereport(ERROR,
			(errcode(ERRCODE_DISK_FULL),
			 for_wal
			 ? errmsg("not enough free space for the WAL: " INT64_FORMAT " MB are free, " INT64_FORMAT " MB are needed",
					  room_mb, needed_mb)
			 : errmsg("not enough free space in tablespace \"%s\": " INT64_FORMAT " MB are free, " INT64_FORMAT " MB are needed",
					  get_tablespace_name(pace->target), room_mb, needed_mb),
			 errdetail(INT64_FORMAT " of " INT64_FORMAT " MB were copied.",
					   pace->copied / PGSCALE_MB, pace->bytes / PGSCALE_MB),
			 for_wal
			 ? errhint("Make room for max_wal_size there, or lower max_wal_size and wal_keep_size. Then request the move again.")
			 : errhint("Free some space there, and request the move again.")));
}

/* Pauses the move if pg_wal can shrink by what is missing.  Returns false if it cannot. */
static bool
pace_wal_may_shrink(PgscaleRelocationPace *pace, int64 room, int64 needed, int64 now)
{
	char		who[128];
	const PgscaleRelocationHeldBack held = pgscale_relocation_wal_held_back(needed - room, who, sizeof(who));

	if (held == PGSCALE_RELOCATION_HELD_BY_NONE)
		return false;

	/*
	 * An idle server starts no checkpoint by itself.  One that fails, or that
	 * came too early for what was let go later, is followed by another.
	 */
	if (held == PGSCALE_RELOCATION_HELD_UNTIL_CHECKPOINT && (pace->checkpoint_ns == 0 || now - pace->checkpoint_ns >= CHECKPOINT_AGAIN_NS))
	{
		RequestCheckpoint(CHECKPOINT_FORCE);
		pace->checkpoint_ns = now;
	}
	snprintf(pace->why, sizeof(pace->why), "only " INT64_FORMAT " MB are free on the disk of pg_wal: %s", room / PGSCALE_MB, who);
	return true;
}

/*
 * Has what is left still room, as far as that was not seen just now?  Returns false if the move must wait for room for its WAL.
 * Raises an error if waiting would not help.
 */
static bool
pace_see_room(PgscaleRelocationPace *pace, int64 left, int64 now)
{
	int64		wal;
	dev_t		device = 0;
	dev_t		wal_device = 0;
	char		folder[MAXPGPATH];
	int64		wal_room;
	int64		room;

	if (pace->had_room && now - pace->space_ns < PACE_LOOK_NS && pace->copied - pace->space_copied < SPACE_LOOK_BYTES)
		return true;
	pace->had_room = false;
	pgscale_relation_files_folder(folder, pace->target);
	wal = pgscale_relocation_wal_growth(left);
	wal_room = pgscale_relocation_free_bytes("pg_wal", &wal_device);
	room = pgscale_relocation_free_bytes(folder, &device);
	if (room >= 0 && room < pace_with_reserve(left))
		pace_raise_no_room(pace, false, room, pace_with_reserve(left));
	if (device == wal_device)
	{
		wal += left;
		wal_room = room;
	}
	if (wal_room >= 0 && wal_room < pace_with_reserve(wal))
	{
		if (pace_wal_may_shrink(pace, wal_room, pace_with_reserve(wal), now))
			return false;
		pace_raise_no_room(pace, device != wal_device, wal_room, pace_with_reserve(wal));
	}
	pace->had_room = true;
	pace->checkpoint_ns = 0;
	pace->space_ns = now;
	pace->space_copied = pace->copied;
	return true;
}

/* Is the last piece still to be confirmed?  Then sets why, if that takes long. */
static bool
pace_unconfirmed(PgscaleRelocationPace *pace, int64 copied, int64 now)
{
	char		who[192];

	if (pace->went_on && copied > pace->copied && XLogRecPtrIsInvalid(pace->piece_end) && pgscale_relocation_wal_is_synchronous())
		pace->piece_end = pgscale_relocation_wal_flush();
	if (XLogRecPtrIsInvalid(pace->piece_end))
		return false;
	if (!pgscale_relocation_wal_unconfirmed(pace->piece_end, who, sizeof(who)))
	{
		pace->piece_end = InvalidXLogRecPtr;
		/* why is that it was not, or is looked for again */
		if (now - pace->asked_ns >= PACE_LOOK_NS)
			pace->looked = false;
		return false;
	}
	if (now - pace->asked_ns >= PACE_LOOK_NS)
		strlcpy(pace->why, who, sizeof(pace->why));
	return true;
}

long
pgscale_relocation_pace_wait(PgscaleRelocationPace *pace, int64 copied, int64 left, char **why)
{
	bool		reloaded = false;
	double		wait_ms = 0;
	int64		now;

	*why = NULL;
	if (ConfigReloadPending)
	{
		ConfigReloadPending = false;
		ProcessConfigFile(PGC_SIGHUP);
		reloaded = true;
	}
	now = pgscale_timer_clock();
	if (pace_unconfirmed(pace, copied, now))
	{
		*why = pace->why[0] != '\0' ? pace->why : NULL;
		/* often at first, and no more so once that takes long */
		return Min(Max((now - pace->asked_ns) / NS_PER_MS / 10, CONFIRM_LOOK_MS), CONFIRM_LOOK_MAX_MS);
	}
	if (!pace->looked || reloaded || now - pace->looked_ns >= PACE_LOOK_NS)
	{
		pace_look(pace);
		pace->looked = true;
		pace->looked_ns = now;
	}
	pace_learn(pace, copied, now);
	if (pace->why[0] == '\0' && pace->debt <= 0 &&
		!pgscale_relocation_wal_slot_at_risk(Min(left, pace->piece), false, pace->why, sizeof(pace->why)))
		(void) pace_see_room(pace, left, now);
	if (pace->why[0] != '\0')
	{
		*why = pace->why;
		wait_ms = Max((double) (pace->looked_ns + PACE_LOOK_NS - now) / NS_PER_MS, 1);
	}
	else if (pace->debt > 0)
		wait_ms = pace->debt / pace_rate() * 1000;
	pace->went_on = wait_ms <= 0;
	return (long) Min(ceil(wait_ms), PACE_LOOK_MS);
}
