/*-------------------------------------------------------------------------
 *
 * flush_requests.c
 *	  Asks the kernel to write, and notices when it has written.
 *
 * The request is the server's own pg_flush_data(): only SYNC_FILE_RANGE_WRITE, which
 * starts writing and does not wait.  Flags that wait, like fsync, would consume the
 * report of a failed write that the checkpointer needs.
 *
 * Which pages: those of the stretches with the most waiting pages, because there the
 * disk has the least work for each.  Stretches that have waited for long come first, so
 * that none is forgotten.  The chosen ones are requested in the order of the files.
 *
 * A requested piece is on disk when the kernel has no page of it under writeback any
 * more.  A kernel that does not report that is given some time instead.
 *
 * A checkpoint's fsync, and the kernel by itself, write waiting pages, too.  So some
 * stretches are checked in each round, and pages that the kernel has clean no longer
 * wait.  Nor do the buffers show every write.
 *
 * The time of reads on the same disks shows what the requests cost others.  The kernel
 * counts reads and their time for each block device.  Files on a file system without a
 * named device (tmpfs, overlay, btrfs) are left out.
 *
 * No file stays open: a round opens the files that it needs, one at a time.  A missing
 * file has nothing to write.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <sys/stat.h>

#include "miscadmin.h"
#include "postmaster/interrupt.h"
#include "storage/fd.h"

#include "base/kernel.h"
#include "base/relation_files.h"
#include "base/shared_buffers.h"
#include "base/timer.h"
#include "base/units.h"
#include "writeback/dirty_tracker.h"
#include "writeback/flush_requests.h"
#include "writeback/writeback.h"


/*
 * Pieces in flight, and how long to look at them in a round; the clock is read after
 * every so many pieces.
 */
#define MAX_FLIGHTS		2048
#define LOOK_NS			(2 * NS_PER_MS)
#define CLOCK_FLIGHTS	16

/*
 * Stretches to look at in a round, to try for that, and how soon again: looking
 * takes each page's state from the processor that is writing it.
 */
#define LOOK_STRETCHES	8
#define TRY_STRETCHES	512
#define LOOK_AGAIN_NS	NS_PER_S

#define ALL_PIECES		((1 << PGSCALE_PIECES) - 1)

#define MAX_PRIORITY	(PGSCALE_STRETCH_BLOCKS + 1)

/* Stretches to ask for in a round. */
#define MAX_CHOSEN		256

/* Pages that have waited for that long come first. */
#define OLD_NS			(10 * NS_PER_S)

/* If the kernel does not report it, and if it reports the same for ever. */
#define FLIGHT_NS		(250 * NS_PER_MS)
#define MAX_FLIGHT_NS	(10 * NS_PER_S)

/* Requests of the server have to wait while we ask. */
#define ASK_NS			(50 * NS_PER_MS)

#define MAX_DISKS		16

/* With fewer reads in a second their time is meaningless. */
#define ENOUGH_READS	20

typedef struct Flight
{
	uint32		stretch;
	uint16		pages;
	uint8		piece;
	int64		asked_ns;
} Flight;

static Flight flights[MAX_FLIGHTS];
static int	flying = 0;
static int	flight_hand = 0;
static int	look_hand = 0;
static bool kernel_tells = true;

/* The file that is open, if any. */
static int	open_fd = -1;
static PgscaleWritebackStretchKey open_key;

void
pgscale_writeback_ask_start(void)
{
	flying = flight_hand = look_hand = 0;
	kernel_tells = true;
	open_fd = -1;
}

static void
close_file(void)
{
	if (open_fd >= 0)
		CloseTransientFile(open_fd);
	open_fd = -1;
}

static bool
same_file(const PgscaleWritebackStretchKey *a, const PgscaleWritebackStretchKey *b)
{
	return a->number / PGSCALE_SEGMENT_STRETCHES == b->number / PGSCALE_SEGMENT_STRETCHES &&
		a->fork == b->fork && RelFileLocatorEquals(a->locator, b->locator);
}

/* The descriptor of a stretch's file, until the next one's; -1 if it is gone. */
static int
open_file(const PgscaleWritebackStretchKey *key)
{
	char		path[MAXPGPATH];

	if (open_fd >= 0 && same_file(key, &open_key))
		return open_fd;
	close_file();
	pgscale_relation_file_path(path, key->locator, INVALID_PROC_NUMBER, key->fork,
							   key->number / PGSCALE_SEGMENT_STRETCHES);
	open_key = *key;
	open_fd = pgscale_relation_file_open(path);
	return open_fd;
}

static off_t
offset_of(const PgscaleWritebackStretchKey *key, int piece)
{
	return key->number % PGSCALE_SEGMENT_STRETCHES * PGSCALE_STRETCH_BYTES + piece * PGSCALE_PIECE_BYTES;
}

typedef enum Landing
{
	FLYING,
	LANDED,
	ASSUMED,					/* the kernel does not report it */
	GONE						/* with its file */
} Landing;

static Landing
landing_of(const Flight *flight, const PgscaleWritebackStretchKey *key, int64 now_ns)
{
	PgscaleCached cached;
	int			fd = open_file(key);

	if (fd < 0)
		return GONE;
	if (!pgscale_kernel_cached(fd, offset_of(key, flight->piece), PGSCALE_PIECE_BYTES, &cached) ||
		cached.writeback < 0)
		return now_ns - flight->asked_ns >= FLIGHT_NS ? ASSUMED : FLYING;
	if (cached.writeback == 0)
		return LANDED;
	/* Others may have the kernel write there all the time. */
	return now_ns - flight->asked_ns >= MAX_FLIGHT_NS ? ASSUMED : FLYING;
}

static void
look_at_flights(PgscaleWritebackAsked *asked, int64 now_ns)
{
	int64		since = pgscale_timer_clock();
	double		ms = 0;
	int			landed = 0;
	int			assumed = 0;

	if (flight_hand >= flying)
		flight_hand = 0;
	for (int left = flying; left > 0; left--)
	{
		Flight	   *flight = &flights[flight_hand];
		PgscaleWritebackStretch *s = &pgscale_writeback_watch.stretches[flight->stretch];
		Landing		landing = landing_of(flight, &s->key, now_ns);

		if (landing == FLYING)
			flight_hand++;
		else
		{
			pgscale_writeback_stretch_landed(s, flight->pages);
			if (landing == LANDED)
			{
				asked->landed += flight->pages;
				ms += (double) (now_ns - flight->asked_ns) / NS_PER_MS;
				landed++;
			}
			else if (landing == ASSUMED)
				assumed++;
			*flight = flights[--flying];
		}
		if (flight_hand >= flying)
			flight_hand = 0;
		if (left % CLOCK_FLIGHTS == 0 && pgscale_timer_clock() - since > LOOK_NS)
			break;
	}
	if (landed + assumed > 0)
		kernel_tells = landed > 0;
	asked->tells = kernel_tells;
	asked->landing_ms = landed > 0 ? ms / landed : -1;
}

/*
 * What waits is at most what the kernel has dirty.  If that is most of a stretch,
 * it all waits: COPY and VACUUM write pages that no look has seen dirty.  Of less
 * the kernel's count may be no more than the size of its folios.
 */
static void
look_at_waiting(PgscaleWritebackAsked *asked, int64 now_ns)
{
	int			looked = 0;

	for (int i = 0; i < TRY_STRETCHES && i < pgscale_writeback_watch.used && looked < LOOK_STRETCHES; i++)
	{
		PgscaleWritebackStretch *s;
		PgscaleCached cached;
		int			pages;
		int			fd;

		look_hand = (look_hand + 1) % pgscale_writeback_watch.used;
		s = &pgscale_writeback_watch.stretches[look_hand];
		pages = s->waiting;
		if (pages == 0 || now_ns - Max(s->since_ns, s->looked_ns) < LOOK_AGAIN_NS)
			continue;
		s->looked_ns = now_ns;
		looked++;
		fd = open_file(&s->key);
		if (fd < 0)
			pages = 0;
		else if (pgscale_kernel_cached(fd, offset_of(&s->key, 0), PGSCALE_STRETCH_BYTES, &cached) && cached.dirty >= 0)
		{
			int			dirty = (cached.dirty + BLCKSZ - 1) / BLCKSZ;

			if (dirty >= PGSCALE_STRETCH_BLOCKS / 2)
				asked->found += pgscale_writeback_watch_found(&s->key, ALL_PIECES, dirty, now_ns);
			pages = dirty;
		}
		else if (now_ns - s->since_ns > PGSCALE_REWRITE_WINDOW_S * NS_PER_S)
			pages = 0;			/* the kernel has it written by now */
		asked->taken += pgscale_writeback_stretch_limit(s, pages);
	}
}

void
pgscale_writeback_ask_look(PgscaleWritebackAsked *asked, int64 now_ns)
{
	memset(asked, 0, sizeof(*asked));
	look_at_flights(asked, now_ns);
	look_at_waiting(asked, now_ns);
	close_file();
}

static bool
is_skipped(const PgscaleWritebackStretch *s, double redirty_limit, int64 now_ns)
{
	return now_ns - s->since_ns < PGSCALE_REWRITE_WINDOW_S * NS_PER_S &&
		pgscale_writeback_stretch_rewritten(s) > redirty_limit;
}

int64
pgscale_writeback_ask_skipped(double redirty_limit, int64 now_ns)
{
	int64		skipped = 0;

	for (int i = 0; i < pgscale_writeback_watch.used; i++)
	{
		const PgscaleWritebackStretch *s = &pgscale_writeback_watch.stretches[i];

		if (s->waiting > 0 && is_skipped(s, redirty_limit, now_ns))
			skipped += s->waiting;
	}
	return skipped;
}

/* 0 if nothing waits.  Pages that are better left alone come last. */
static int
flush_priority(const PgscaleWritebackStretch *s, double redirty_limit, int64 now_ns)
{
	if (s->waiting == 0)
		return 0;
	if (is_skipped(s, redirty_limit, now_ns))
		return 1;
	return now_ns - s->since_ns >= OLD_NS ? MAX_PRIORITY : 1 + s->waiting;
}

static PgscalePage
first_page(uint32 stretch)
{
	const PgscaleWritebackStretchKey *key = &pgscale_writeback_watch.stretches[stretch].key;

	return (PgscalePage)
	{
		.locator = key->locator,.fork = key->fork,.block = key->number * PGSCALE_STRETCH_BLOCKS
	};
}

static int
compare_stretches(const void *a, const void *b)
{
	const PgscalePage x = first_page(*(const uint32 *) a);
	const PgscalePage y = first_page(*(const uint32 *) b);

	return pgscale_buffer_page_compare(&x, &y);
}

/* Chooses stretches with that many pages in total, in the files' order. */
static int
flush_choose(uint32 *chosen, int64 pages, double redirty_limit, int64 now_ns)
{
	static int64 pages_of[MAX_PRIORITY + 1];
	int			least = MAX_PRIORITY;
	int64		sum;
	int			n = 0;

	memset(pages_of, 0, sizeof(pages_of));
	for (int i = 0; i < pgscale_writeback_watch.used; i++)
	{
		const PgscaleWritebackStretch *s = &pgscale_writeback_watch.stretches[i];

		pages_of[flush_priority(s, redirty_limit, now_ns)] += s->waiting;
	}
	sum = pages_of[least];
	while (least > 1 && sum < pages)
		sum += pages_of[--least];

	for (int i = 0; i < pgscale_writeback_watch.used && n < MAX_CHOSEN && pages > 0; i++)
	{
		const PgscaleWritebackStretch *s = &pgscale_writeback_watch.stretches[i];

		if (flush_priority(s, redirty_limit, now_ns) >= least)
		{
			chosen[n++] = i;
			pages -= s->waiting;
		}
	}
	qsort(chosen, n, sizeof(*chosen), compare_stretches);
	return n;
}

/* Does the kernel have anything to write of a piece, and how many pages? */
static int
dirty_pages(int fd, off_t offset)
{
	PgscaleCached cached;

	if (!pgscale_kernel_cached(fd, offset, PGSCALE_PIECE_BYTES, &cached) || cached.dirty < 0)
		return PGSCALE_PIECE_BLOCKS;
	return (cached.dirty + BLCKSZ - 1) / BLCKSZ;
}

typedef struct Disk
{
	dev_t		device;
	PgscaleDisk before;
} Disk;

static Disk disks[MAX_DISKS];
static int	ndisks = 0;
static int64 disks_read_ns = 0;

/* Notes the disk that an open file lies on. */
static void
note_disk(int fd)
{
	struct stat status;

	if (fstat(fd, &status) != 0)
		return;
	for (int i = 0; i < ndisks; i++)
		if (disks[i].device == status.st_dev)
			return;
	if (ndisks < MAX_DISKS && pgscale_kernel_disk(status.st_dev, &disks[ndisks].before))
		disks[ndisks++].device = status.st_dev;
}

/*
 * Is it time to serve others?  A request waits where the disk's queue is full, so
 * this is to be asked after each piece, which is the least that is asked for.
 */
static bool
must_stop(int64 since_ns)
{
	return pgscale_timer_clock() - since_ns > ASK_NS || ShutdownRequestPending || ProcSignalBarrierPending;
}

/* Requests pieces of a stretch, with about that many pages. */
static void
ask_for_stretch(PgscaleWritebackAsked *asked, uint32 n, int64 pages, int64 since_ns)
{
	PgscaleWritebackStretch *s = &pgscale_writeback_watch.stretches[n];
	int			fd = open_file(&s->key);

	if (fd < 0)
	{
		asked->taken += pgscale_writeback_stretch_limit(s, 0);
		return;
	}
	note_disk(fd);
	for (int piece = 0; piece < PGSCALE_PIECES && pages > 0 && flying < MAX_FLIGHTS && !must_stop(since_ns); piece++)
	{
		off_t		offset = offset_of(&s->key, piece);
		int			waited = s->waiting;
		int			took;

		if ((s->pieces & (1 << piece)) == 0)
			continue;
		took = pgscale_writeback_stretch_take(s, piece, dirty_pages(fd, offset));
		asked->taken += waited - s->waiting - took;
		if (took == 0)
			continue;
		pg_flush_data(fd, offset, PGSCALE_PIECE_BYTES);

		flights[flying++] = (Flight)
		{
			.stretch = n,.piece = piece,.pages = took,.asked_ns = pgscale_timer_clock()
		};
		asked->requests++;
		asked->asked += took;
		pages -= took;
	}
}

void
pgscale_writeback_ask(PgscaleWritebackAsked *asked, int64 pages, double redirty_limit, int64 now_ns)
{
	uint32		chosen[MAX_CHOSEN];
	int			n = flush_choose(chosen, pages, redirty_limit, now_ns);
	int64		since = pgscale_timer_clock();

	for (int i = 0; i < n && asked->asked < pages && flying < MAX_FLIGHTS && !must_stop(since); i++)
		ask_for_stretch(asked, chosen[i], pages - asked->asked, since);
	close_file();
}

double
pgscale_writeback_read_ms(int64 now_ns)
{
	int64		reads = 0;
	int64		ms = 0;

	if (now_ns - disks_read_ns < NS_PER_S)
		return -1;
	disks_read_ns = now_ns;

	for (int i = 0; i < ndisks; i++)
	{
		PgscaleDisk now;

		if (!pgscale_kernel_disk(disks[i].device, &now))
			continue;
		reads += now.reads - disks[i].before.reads;
		ms += now.read_ms - disks[i].before.read_ms;
		disks[i].before = now;
	}
	return reads >= ENOUGH_READS ? (double) ms / reads : -1;
}
