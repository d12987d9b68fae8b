/*-------------------------------------------------------------------------
 *
 * cpu_split.c
 *	  Splits the time on CPU of sessions and io workers into running and queued.
 *
 * Shared memory shows that a session does not wait.  It cannot show whether the session
 * runs or is ready to run and queues for a CPU.  Nor can it show that a session with a
 * wait event was woken long ago and has not had a CPU since: on a saturated machine
 * that is most of the time in ClientRead, and of an io worker most of IoWorkerMain.
 * The kernel counts both exactly, in /proc/PID/schedstat, which the server's own user
 * may read.
 *
 * Samples without a wait event are first counted in an entry with the event CPU.  Once
 * a second the kernel's counts of each active session are read, and its samples since
 * the last reading are moved:
 *
 *	Running			no wait event, on a CPU
 *	Queued			no wait event, ready to run
 *	RunningInWait	on a CPU while a wait event was shown: the kernel's work
 *					for a system call, such as copying from its page cache
 *	QueuedInWait	woken, and ready to run, while a wait event was shown
 *	Blocked			no wait event, and neither running nor ready: in the
 *					kernel, for a page of memory, say
 *
 * The two "InWait" events are subtracted from the waits that were sampled in the same
 * second.  Only their sum is known.  Of the kernel's time beyond the samples without a
 * wait event, as much as possible counts as queueing, because a woken process only
 * queues before it clears its wait event.  The rest ran.  Running time is subtracted
 * from I/O first, because that is where the kernel works for a process; otherwise each
 * wait gives in proportion to its time.
 *
 * Noise: a second has as many samples as ticks, and these miss the kernel's counts by
 * chance, in both directions.  An excess within three standard deviations is kept as a
 * debt, which later seconds pay; an excess beyond that is Blocked.  So sums follow the
 * kernel's without a bias.
 *
 * The last time of an ended session is split like its last second.  The time of a
 * session that lasted less than a second stays at the event CPU.  So does all time
 * where the kernel's counts cannot be read (hidepid, a container, another kernel).
 *
 * Samples of a session count in the totals (wait_totals.c), which must not fall, only
 * here: when they are split, or when they can no longer be.
 *
 * Cost: one pread() a second for each active session; an idle one is not read.
 * Descriptors are kept as long as fd.c allows; beyond that the file is opened each
 * time.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <fcntl.h>
#include <math.h>
#include <unistd.h>

#include "storage/fd.h"
#include "utils/memutils.h"
#include "utils/wait_event.h"

#include "base/evidence.h"
#include "base/kernel.h"
#include "base/timer.h"
#include "base/units.h"
#include "base/wait_events.h"
#include "sampler/past/past.h"
#include "sampler/profile/profile.h"
#include "sampler/samples.h"

/* Time between two readings of a session. */
#define SETTLE_NS		NS_PER_S

/* The same while a statement has no identifier, which it may never get. */
#define PARKED_NS		(3 * NS_PER_S)

/* Readings between two changes of the profile: 0.1 ms. */
#define MAX_READINGS	32

/* At the end of one tick there may be this many times those that all of them need. */
#define SPARE_READINGS	2

/* Entries of one session between two readings; with more it is read earlier. */
#define MAX_PARTS		32

/* Standard deviations of what is taken for chance. */
#define NOISE			3.0

/* What was counted in an entry of the profile since the last reading. */
typedef struct Part
{
	int			entry;
	uint32		wait_event;
	PgscaleProcKind kind;
	uint64		born;			/* which one is in that place */
	uint64		samples;
	uint64		ns;
} Part;

typedef struct CpuAccount
{
	int			pid;			/* 0: none is there */
	int			fd;				/* of its schedstat, or -1 */
	bool		listed;			/* is among the busy */
	bool		based;			/* the counts below are known */
	int64		settled_at;
	PgscaleKernelSchedule counts;	/* at the last reading */
	int64		carried_ns;		/* of the kernel's time, not yet placed; below
								 * 0: placed before the kernel counted it */
	double		running;		/* fractions of samples without a wait event, */
	double		queued;			/* in the last second */
	int			nparts;
	Part	   *parts;			/* MAX_PARTS of them, since it first had any */
} CpuAccount;

/* Where what was sampled in a second belongs; nanoseconds. */
typedef struct Split
{
	double		on_cpu;			/* samples without a wait event, which are */
	double		running;
	double		queued;
	double		blocked;
	double		waits;			/* samples with one, of which were */
	double		running_in_wait;
	double		queued_in_wait;
} Split;

static CpuAccount *accounts = NULL;
static int	naccounts = 0;
static int *busy = NULL;		/* accounts with parts, nbusy of them */
static int	nbusy = 0;
static int	all_seen_after;		/* ticks */
static int	ticks_left;			/* until all that is counted is split */

/* Of the present tick: see PgscaleSamplerTick. */
static int64 found_idle_ns;
static int64 found_in_transaction_ns;

static void
cpu_attach(void)
{
	naccounts = pgscale_procs_count();
	/* after that many ticks, a new process has just started */
	all_seen_after = naccounts / PGSCALE_SAMPLER_FREE_SLOTS + 2;
	ticks_left = all_seen_after + 1;
	accounts = MemoryContextAllocExtended(TopMemoryContext, naccounts * sizeof(CpuAccount), MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO);
	busy = MemoryContextAllocZero(TopMemoryContext, naccounts * sizeof(int));
	for (int slot = 0; slot < naccounts; slot++)
		accounts[slot].fd = -1;
}

/* What was counted since the last reading stays what it is now. */
static void
cpu_end_parts(CpuAccount *account)
{
	for (int i = 0; i < account->nparts; i++)
		pgscale_sampler_totals_add(account->parts[i].kind, account->parts[i].wait_event, account->parts[i].ns);
	account->nparts = 0;
}

/* What was counted before is not split any more: after a reset, or a pause. */
static void
cpu_stop(void)
{
	ticks_left = all_seen_after + 1;
	for (int slot = 0; slot < naccounts; slot++)
	{
		CpuAccount *account = &accounts[slot];

		account->based = false;
		cpu_end_parts(account);
		account->carried_ns = 0;
		account->settled_at = 0;
		account->running = account->queued = 0;
	}
}

static void
cpu_start(int64 now)
{
	cpu_stop();
}

/* How the kernel's counts have changed since the last reading; false if unknown. */
static bool
cpu_read(CpuAccount *account, PgscaleSamplerStats *stats, PgscaleKernelSchedule *change)
{
	PgscaleKernelSchedule counts;
	int			fd = account->fd;
	bool		known = account->based;
	bool		ok;

	if (fd < 0)
		fd = pgscale_kernel_open_schedule(account->pid);
	ok = fd >= 0 && pgscale_kernel_read_schedule(fd, &counts);
	if (fd >= 0 && account->fd < 0)
	{
		if (ok && AcquireExternalFD())
			account->fd = fd;
		else
			close(fd);
	}

	/* A process that has just ended cannot be read: that is not a failure. */
	if (!ok)
	{
		stats->unreadable++;
		account->based = false;
		return false;
	}
	stats->unreadable = 0;
	stats->readings++;
	pgscale_evidence_add_cpu(account->pid, &counts);
	change->run_ns = counts.run_ns - account->counts.run_ns;
	change->queue_ns = counts.queue_ns - account->counts.queue_ns;
	account->counts = counts;
	account->based = true;
	return known;
}

/*
 * Weighs the kernel's time against what was sampled, see above.
 */
static void
cpu_weigh(CpuAccount *account, const PgscaleKernelSchedule *change, Split *split)
{
	const double kernel = change->run_ns + change->queue_ns;
	const double due = kernel + account->carried_ns;
	uint64		samples = 0;
	uint64		on_cpu = 0;
	uint64		waits = 0;
	double		in_wait;
	double		ran;

	for (int i = 0; i < account->nparts; i++)
	{
		const Part *part = &account->parts[i];

		if (part->wait_event == PGSCALE_WAIT_CPU)
			on_cpu += part->ns;
		else
			waits += part->ns;
		samples += part->samples;
	}
	split->on_cpu = on_cpu;
	split->waits = waits;

	in_wait = Min(Max(due - split->on_cpu, 0), split->waits);
	split->blocked = 0;
	if (due < split->on_cpu)
	{
		const double tick = (split->on_cpu + split->waits) / Max(samples, 1);
		const double chance = NOISE * 0.5 * sqrt(samples) * tick;

		split->blocked = Min(Max(split->on_cpu - due - chance, 0), split->on_cpu);
	}
	account->carried_ns = due - (split->on_cpu - split->blocked) - in_wait;
	/* What was never sampled, as before the first tick, is not made up for. */
	account->carried_ns = Min(account->carried_ns, 0);

	ran = (split->on_cpu - split->blocked + in_wait) * (kernel > 0 ? change->run_ns / kernel : 1);
	split->queued_in_wait = Max(Min(in_wait, split->on_cpu - split->blocked + in_wait - ran), 0);
	split->running_in_wait = in_wait - split->queued_in_wait;
	split->running = Max(ran - split->running_in_wait, 0);
	split->queued = Max(split->on_cpu - split->blocked - split->running, 0);
}

/*
 * Moves a part of what was counted in an entry to another event of the same session,
 * which was active then if it was thought to idle.
 */
static void
cpu_move(Part *part, uint32 wait_event, double fraction)
{
	const uint64 ns = Min((uint64) (part->ns * fraction + 0.5), part->ns);
	const uint64 samples = Min((uint64) (part->samples * fraction + 0.5), part->samples);
	PgscaleSamplerWaitKey key;

	if (ns == 0)
		return;
	if (pgscale_sampler_profile_key(part->entry, part->born, &key))
	{
		key.wait_event = wait_event;
		(void) pgscale_sampler_profile_move(part->entry, &key, samples, ns);
	}
	pgscale_sampler_totals_add(part->kind, wait_event, ns);
	part->ns -= ns;
	part->samples -= samples;
	if (!pgscale_proc_is_session(part->kind))
		return;
	if (part->wait_event == WAIT_EVENT_CLIENT_READ)
	{
		found_idle_ns += ns;
		pgscale_sampler_timeline_add_late(wait_event, ns);
	}
	else
		pgscale_sampler_timeline_to_cpu(part->wait_event, wait_event, ns);
	if (part->wait_event == PGSCALE_WAIT_IDLE_IN_TRANSACTION)
		found_in_transaction_ns += ns;
}

/* Moves fractions of the part as it was: each is of what the former have left. */
static void
cpu_move_each(Part *part, const uint32 *wait_events, const double *fractions, int n)
{
	double		left = 1;

	for (int i = 0; i < n && left > 1e-9; i++)
	{
		cpu_move(part, wait_events[i], Min(fractions[i] / left, 1));
		left -= fractions[i];
	}
}

static void
cpu_move_on_cpu(CpuAccount *account, const Split *split)
{
	const uint32 events[] = {PGSCALE_WAIT_BLOCKED, PGSCALE_WAIT_QUEUED, PGSCALE_WAIT_RUNNING};
	const double fractions[] = {split->blocked / split->on_cpu, split->queued / split->on_cpu, 1};

	for (int i = 0; i < account->nparts; i++)
		if (account->parts[i].wait_event == PGSCALE_WAIT_CPU)
			cpu_move_each(&account->parts[i], events, fractions, lengthof(events));
}

static bool
is_io(uint32 wait_event)
{
	return (wait_event & PGSCALE_WAIT_CLASS) == PG_WAIT_IO;
}

static void
cpu_move_waits(CpuAccount *account, const Split *split)
{
	const uint32 events[] = {PGSCALE_WAIT_RUNNING_IN_WAIT, PGSCALE_WAIT_QUEUED_IN_WAIT};
	double		io = 0;
	double		io_ran;
	double		other_ran;
	double		queued;

	for (int i = 0; i < account->nparts; i++)
		if (is_io(account->parts[i].wait_event))
			io += account->parts[i].ns;
	io_ran = io > 0 ? Min(split->running_in_wait / io, 1) : 0;
	other_ran = split->waits > io ? (split->running_in_wait - io_ran * io) / (split->waits - io) : 0;
	/* of what is left then */
	queued = split->queued_in_wait / Max(split->waits - split->running_in_wait, 1);

	for (int i = 0; i < account->nparts; i++)
	{
		Part	   *part = &account->parts[i];
		const double ran = is_io(part->wait_event) ? io_ran : other_ran;
		const double fractions[] = {ran, (1 - ran) * queued};

		if (part->wait_event != PGSCALE_WAIT_CPU)
			cpu_move_each(part, events, fractions, lengthof(events));
	}
}

/* Splits what was counted since the last time, if the kernel's counts are known. */
static void
cpu_apply(CpuAccount *account, const PgscaleKernelSchedule *change)
{
	Split		split = {0};

	cpu_weigh(account, change, &split);
	if (split.on_cpu > 0)
	{
		account->running = split.running / split.on_cpu;
		account->queued = split.queued / split.on_cpu;
		cpu_move_on_cpu(account, &split);
	}
	if (split.waits > 0)
		cpu_move_waits(account, &split);
	cpu_end_parts(account);
}

void
pgscale_sampler_cpu_leave(int slot)
{
	CpuAccount *account = &accounts[slot];

	if (account->pid == 0)
		return;
	if (account->running + account->queued > 0)
	{
		Split		split = {.on_cpu = 1,.running = account->running,.queued = account->queued};

		split.blocked = 1 - split.running - split.queued;
		cpu_move_on_cpu(account, &split);
	}
	cpu_end_parts(account);
	account->pid = 0;
	if (account->fd >= 0)
	{
		close(account->fd);
		ReleaseExternalFD();
		account->fd = -1;
	}
}

static void
cpu_arrive(int slot, int pid)
{
	CpuAccount *account = &accounts[slot];
	const bool	just_started = ticks_left == 0;

	pgscale_sampler_cpu_leave(slot);
	account->pid = pid;
	/* Then the kernel's counts were 0; else they are read at once. */
	account->based = just_started;
	memset(&account->counts, 0, sizeof(account->counts));
	account->settled_at = just_started ? pgscale_timer_clock() : 0;
	account->carried_ns = 0;
	account->running = account->queued = 0;
}

static void
cpu_add_part(CpuAccount *account, int entry, PgscaleProcKind kind, uint32 wait_event, uint64 samples, uint64 ns)
{
	const uint64 born = pgscale_sampler_profile_born(entry);
	Part	   *part = NULL;

	for (int i = 0; i < account->nparts && !part; i++)
		if (account->parts[i].entry == entry && account->parts[i].born == born)
			part = &account->parts[i];
	if (!account->parts)
		account->parts = MemoryContextAlloc(TopMemoryContext, MAX_PARTS * sizeof(Part));
	if (!part)
	{
		/*
		 * It is read at the end of the tick in which the last place was
		 * taken.
		 */
		if (account->nparts == MAX_PARTS)
		{
			pgscale_sampler_totals_add(kind, wait_event, ns);
			return;
		}
		part = &account->parts[account->nparts++];
		*part = (Part)
		{
			.entry = entry,.wait_event = wait_event,.kind = kind,.born = born
		};
	}
	part->samples += samples;
	part->ns += ns;
}

void
pgscale_sampler_cpu_add(PgscaleSamplerTickSample *sample, const PgscaleSamplerTick *tick)
{
	CpuAccount *account = &accounts[sample->slot];

	if (!sample->proc->has_cpu)
		return;
	if (account->pid != sample->proc->pid)
		cpu_arrive(sample->slot, sample->proc->pid);
	cpu_add_part(account, sample->entry, sample->key.kind, sample->key.wait_event, sample->samples, sample->ns);
	if (!account->listed)
	{
		account->listed = true;
		busy[nbusy++] = sample->slot;
	}
}

void
pgscale_sampler_cpu_moved(int slot, int from, uint64 born, int to, uint64 samples, uint64 ns)
{
	CpuAccount *account = &accounts[slot];

	for (int i = 0; i < account->nparts; i++)
	{
		Part	   *part = &account->parts[i];

		if (part->entry != from || part->born != born)
			continue;
		samples = Min(samples, part->samples);
		ns = Min(ns, part->ns);
		part->samples -= samples;
		part->ns -= ns;
		if (to >= 0)
			cpu_add_part(account, to, part->kind, part->wait_event, samples, ns);
		else
			pgscale_sampler_totals_add(part->kind, part->wait_event, ns);
		return;
	}
}

/* Samples that may be moved soon are better not split before. */
static bool
cpu_is_due(int slot, int64 now)
{
	const CpuAccount *account = &accounts[slot];
	const int64 ns = now - account->settled_at;

	return account->nparts == MAX_PARTS || ns >= PARKED_NS ||
		(ns >= SETTLE_NS && !pgscale_sampler_samples_parked(slot));
}

/* Splits at most that many due accounts; returns their number. */
static int
cpu_settle_some(PgscaleSamplerTick *tick, int most)
{
	static int	hand = 0;
	PgscaleKernelSchedule changes[MAX_READINGS];
	int			due[MAX_READINGS];
	int			nread = 0;
	int			ndue = 0;

	for (int left = nbusy; left > 0 && nread < Min(most, MAX_READINGS); left--)
	{
		CpuAccount *account;
		int			slot;

		if (hand >= nbusy)
			hand = 0;
		slot = busy[hand];
		account = &accounts[slot];
		if (!cpu_is_due(slot, tick->now))
		{
			hand++;
			continue;
		}
		busy[hand] = busy[--nbusy];
		account->listed = false;
		if (account->nparts == 0 || account->pid == 0)
			continue;
		account->settled_at = tick->now;
		nread++;
		if (cpu_read(account, tick->stats, &changes[ndue]))
			due[ndue++] = slot;
		else
			cpu_end_parts(account);
	}
	if (ndue > 0)
	{
		pgscale_sampler_profile_begin(NULL);
		for (int i = 0; i < ndue; i++)
			cpu_apply(&accounts[due[i]], &changes[i]);
		pgscale_sampler_profile_end(NULL);
	}
	return nread;
}

/* Outside of a change of the profile. */
static void
cpu_end(PgscaleSamplerTick *tick)
{
	int64		left = Max(MAX_READINGS, (int64) ((double) nbusy * tick->ns / SETTLE_NS * SPARE_READINGS));
	int			nread;

	ticks_left = Max(ticks_left - 1, 0);
	found_idle_ns = found_in_transaction_ns = 0;
	do
	{
		nread = cpu_settle_some(tick, Min(left, MAX_READINGS));
		left -= nread;
	} while (nread == MAX_READINGS && left > 0);
	tick->found_idle_ns = found_idle_ns;
	tick->found_in_transaction_ns = found_in_transaction_ns;
}

const PgscaleSamplerConsumer pgscale_sampler_cpu_consumer = {
	.attach = cpu_attach,
	.start = cpu_start,
	.stop = cpu_stop,
	.reset = cpu_start,
	.add = pgscale_sampler_cpu_add,
	.end = cpu_end,
};
