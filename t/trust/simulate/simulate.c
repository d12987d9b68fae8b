/*-------------------------------------------------------------------------
 *
 * simulate.c
 *	  Runs code that shares memory without locks as a weakly ordered machine may.
 *
 * On x86 loads happen in the program's order, and so do stores: a barrier that is
 * missing there does no harm, and no emulator that runs on x86 shows what it does
 * on ARM.  Here it shows.  The code under test is compiled with the compiler's
 * hooks for ThreadSanitizer, which this file answers; the threads are coroutines
 * of one process, and which one goes on is chosen at random before each access.
 *
 * Each word of shared memory remembers all that was ever stored in it.  A load
 * may return any of that which is not older than what its thread knows of, its
 * "view".  A view grows by the thread's own accesses and by synchronization: a
 * message carries the view that its writer had at its latest write barrier, and a
 * read barrier takes over the views of all messages read before it (the relaxed
 * accesses and fences of C11, RC11's views).  Before a load the hook puts the chosen value
 * into memory, where the code then finds it; what a store has left there is taken
 * up at the thread's next step.
 *
 * It does not delay a load beyond a store that follows it: a barrier whose only
 * use is to keep these two in order is not missed here.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <ucontext.h>

#define MEMORY		(64 * 1024)
#define WORDS		(MEMORY / 4)
#define THREADS		5
#define STACK		(256 * 1024)
#define STEPS		2000000

typedef struct View
{
	uint32_t	known[WORDS];	/* the oldest message that may still be read */
} View;

typedef struct Message
{
	uint32_t	value;
	const View *view;			/* its writer's, at the latest write barrier; NULL: none */
} Message;

typedef struct Word
{
	Message    *messages;
	uint32_t	count;
	uint32_t	room;
} Word;

typedef struct Thread
{
	ucontext_t	context;
	char	   *stack;
	void		(*run) (void *);
	void	   *argument;
	bool		ended;
	View	   *now;
	View	   *read;			/* views of what was read: the next read barrier's */
	const View *released;		/* at the latest write barrier */
	const View *last_joined;
	uintptr_t	pending;		/* a store that the code is about to make */
	size_t		pending_size;
} Thread;

static char memory[MEMORY] __attribute__((aligned(64)));
static size_t memory_used;
static Word words[WORDS];
static size_t words_used;		/* of which views are compared */
static Thread threads[THREADS];
static int	nthreads;
static Thread *me;
static ucontext_t scheduler;
static View full;				/* what pg_memory_barrier() makes known to all */
static uint64_t state;
static int	switching;			/* a thread goes on with 1 in so many */
static int	stale;				/* and reads what is old with so many in 8 */
static long steps;
static jmp_buf failed;
static char why[500];

/* Everything of a run is freed at its end. */
static void *pieces[1 << 20];
static int	npieces;

extern void sim_begin(void);
extern void sim_end(void);
void		sim_fail(const char *format,...) __attribute__((format(printf, 1, 2), noreturn));

static uint64_t
draw(void)
{
	state ^= state << 13;
	state ^= state >> 7;
	state ^= state << 17;
	return state;
}

int
sim_random(int n)
{
	return (int) ((draw() >> 11) % n);
}

static void *
piece(size_t n)
{
	void	   *p = calloc(1, n);

	if (!p || npieces == sizeof(pieces) / sizeof(pieces[0]))
	{
		fprintf(stderr, "out of memory\n");
		exit(2);
	}
	return pieces[npieces++] = p;
}

void
sim_fail(const char *format,...)
{
	va_list		arguments;

	va_start(arguments, format);
	vsnprintf(why, sizeof(why), format, arguments);
	va_end(arguments);
	longjmp(failed, 1);
}

static bool
is_shared(const volatile void *at)
{
	return (const char *) at >= memory && (const char *) at < memory + MEMORY;
}

static size_t
number(const volatile void *at)
{
	return ((const char *) at - memory) / 4;
}

static void
put_message(size_t w, uint32_t value, const View *view)
{
	Word	   *word = &words[w];

	if (word->count == word->room)
	{
		word->room = word->room ? 2 * word->room : 8;
		word->messages = realloc(word->messages, word->room * sizeof(Message));
	}
	word->messages[word->count].value = value;
	word->messages[word->count++].view = view;
	if (w >= words_used)
		words_used = w + 1;
}

static Word *
word_at(size_t w)
{
	if (words[w].count == 0)
		put_message(w, ((uint32_t *) memory)[w], NULL);
	return &words[w];
}

static void
join(View *to, const View *from)
{
	if (from)
		for (size_t w = 0; w < words_used; w++)
			if (to->known[w] < from->known[w])
				to->known[w] = from->known[w];
}

static const View *
frozen(const View *view)
{
	View	   *copy = piece(sizeof(View));

	memcpy(copy, view, words_used * sizeof(view->known[0]));
	return copy;
}

/* What the code has stored since its last step. */
static void
take_up(void)
{
	uintptr_t	at = me ? me->pending : 0;

	if (!at)
		return;
	for (size_t w = number((void *) at); w <= number((char *) at + me->pending_size - 1); w++)
	{
		put_message(w, ((uint32_t *) memory)[w], me->released);
		me->now->known[w] = words[w].count - 1;
	}
	me->pending = 0;
}

/* Before each access of a thread to shared memory: another thread goes on with 1 in so many. */
static void
step_of(int switches)
{
	if (!me)
		return;
	take_up();
	if (++steps > STEPS)
		sim_fail("it does not end");
	if (sim_random(switches) == 0)
		swapcontext(&me->context, &scheduler);
}

static void
step(void)
{
	step_of(switching);
}

void
sim_pause(void)
{
	step_of(1);
}

/* Which message of a word this load returns. */
static uint32_t
choose(size_t w)
{
	const Word *word = word_at(w);
	uint32_t	oldest = me->now->known[w];
	uint32_t	newest = word->count - 1;

	if (oldest == newest || sim_random(8) >= stale)
		return newest;
	return oldest + sim_random(newest - oldest + 1);
}

static void
read_message(size_t w, uint32_t n)
{
	const Message *message = &words[w].messages[n];

	me->now->known[w] = n;
	if (message->view && message->view != me->last_joined)
	{
		join(me->read, message->view);
		me->last_joined = message->view;
	}
	((uint32_t *) memory)[w] = message->value;
}

/* Two words that are stored together are read together. */
static void
load(const volatile void *at, size_t size)
{
	if (!me || !is_shared(at))
		return;
	step();
	for (size_t w = number(at); w <= number((const char *) at + size - 1); w++)
	{
		uint32_t	n = choose(w);

		if (size == 8 && ((uintptr_t) at & 7) == 0 && w == number(at) &&
			word_at(w)->count == word_at(w + 1)->count)
		{
			if (n < me->now->known[w + 1])
				n = me->now->known[w + 1];
			read_message(w, n);
			w++;
		}
		read_message(w, n);
	}
}

static void
store(volatile void *at, size_t size)
{
	if (!me || !is_shared(at))
		return;
	step();
	for (size_t w = number(at); w <= number((const char *) at + size - 1); w++)
	{
		/* the rest of a word that is stored in part */
		((uint32_t *) memory)[w] = word_at(w)->messages[words[w].count - 1].value;
	}
	me->pending = (uintptr_t) at;
	me->pending_size = size;
}

uint32_t
sim_load32(const volatile void *at)
{
	load(at, 4);
	return *(const volatile uint32_t *) at;
}

uint64_t
sim_load64(const volatile void *at)
{
	load(at, 8);
	return *(const volatile uint64_t *) at;
}

void
sim_store32(volatile void *at, uint32_t value)
{
	store(at, 4);
	*(volatile uint32_t *) at = value;
	take_up();
}

void
sim_store64(volatile void *at, uint64_t value)
{
	store(at, 8);
	*(volatile uint64_t *) at = value;
	take_up();
}

void
sim_acquire(void)
{
	step();
	if (me)
		join(me->now, me->read);
}

void
sim_release(void)
{
	step();
	if (me)
		me->released = frozen(me->now);
}

void
sim_full(void)
{
	step();
	join(me->now, me->read);
	join(me->now, &full);
	join(&full, me->now);
	me->released = frozen(me->now);
}

/* A read-modify-write finds what is newest, and is a full barrier. */
static void
latest(volatile void *at, size_t size)
{
	sim_full();
	for (size_t w = number(at); w <= number((char *) at + size - 1); w++)
		read_message(w, word_at(w)->count - 1);
	join(me->now, me->read);
	me->released = frozen(me->now);
}

static void
publish(volatile void *at, size_t size)
{
	me->pending = (uintptr_t) at;
	me->pending_size = size;
	take_up();
	join(&full, me->now);
}

bool
sim_swap32(volatile void *at, uint32_t *expected, uint32_t value)
{
	uint32_t	found;

	latest(at, 4);
	found = *(volatile uint32_t *) at;
	if (found != *expected)
	{
		*expected = found;
		return false;
	}
	*(volatile uint32_t *) at = value;
	publish(at, 4);
	return true;
}

uint64_t
sim_add64(volatile void *at, int64_t n)
{
	uint64_t	found;

	latest(at, 8);
	found = *(volatile uint64_t *) at;
	*(volatile uint64_t *) at = found + n;
	publish(at, 8);
	return found;
}

/* Word by word: nobody promises more. */
void *
sim_copy(void *to, const void *from, size_t n)
{
	if (!me || !(is_shared(to) || is_shared(from)))
		return memmove(to, from, n);
	for (size_t i = 0; i < n; i += 4)
	{
		size_t		part = n - i < 4 ? n - i : 4;

		load((const char *) from + i, part);
		store((char *) to + i, part);
		memmove((char *) to + i, (const char *) from + i, part);
		take_up();
	}
	return to;
}

void *
sim_fill(void *to, int byte, size_t n)
{
	if (!me || !is_shared(to))
	{
		for (size_t i = 0; i < n; i++)
			((volatile char *) to)[i] = (char) byte;
		return to;
	}
	for (size_t i = 0; i < n; i += 4)
	{
		size_t		part = n - i < 4 ? n - i : 4;

		store((char *) to + i, part);
		memset((char *) to + i, byte, part);
		take_up();
	}
	return to;
}

/*
 * The compiler's hooks.
 */
#define HOOK(name, does) \
	void		name(void *at); \
	void		name(void *at) { does; }
#define HOOKS(size) \
	HOOK(__tsan_read##size, load(at, size)) \
	HOOK(__tsan_write##size, store(at, size)) \
	HOOK(__tsan_unaligned_read##size, load(at, size)) \
	HOOK(__tsan_unaligned_write##size, store(at, size))

HOOKS(1)
HOOKS(2)
HOOKS(4)
HOOKS(8)
HOOKS(16)
HOOK(__tsan_func_entry, (void) at)
HOOK(__tsan_func_exit, (void) at)
HOOK(__tsan_init, (void) at)

void		__tsan_read_range(void *at, size_t size);
void		__tsan_write_range(void *at, size_t size);

void
__tsan_read_range(void *at, size_t size)
{
	load(at, size);
}

void
__tsan_write_range(void *at, size_t size)
{
	store(at, size);
}

/*
 * What the code under test asks of the server and of the rest of src/.
 */
int			MyProcPid = 1;
int			NBuffers = 4096;
int			max_worker_processes = 8;
void	   *CurrentMemoryContext;
void	   *TopMemoryContext;
volatile int InterruptPending;
uint64_t	(*pgscale_counters_own_writes) (void);

void *
ShmemInitStruct(const char *name, size_t size, bool *found)
{
	void	   *p = memory + memory_used;

	memory_used += (size + 63) / 64 * 64;
	if (memory_used > MEMORY)
	{
		fprintf(stderr, "\"%s\" takes %zu bytes\n", name, size);
		exit(2);
	}
	*found = false;
	return p;
}

/* They allocate, do nothing, or fail. Whatever else they are given they do not look at. */
#define ALLOCATES(name) \
	void	   *name(size_t size); \
	void	   *name(size_t size) { return piece(size); }
#define ALLOCATES_IN(name) \
	void	   *name(void *context, size_t size); \
	void	   *name(void *context, size_t size) { return piece(size); }
#define NOTHING(name) \
	intptr_t	name(void); \
	intptr_t	name(void) { return 0; }
#define ONE(name) \
	int64_t		name(void); \
	int64_t		name(void) { return 1; }
#define FAILS(name) \
	int			name(void); \
	int			name(void) { sim_fail("error: " #name); }

ALLOCATES(palloc)
ALLOCATES(palloc0)
ALLOCATES(palloc_extended)
ALLOCATES_IN(MemoryContextAlloc)
ALLOCATES_IN(MemoryContextAllocZero)
ALLOCATES_IN(MemoryContextAllocExtended)
ONE(GetCurrentTimestamp)
ONE(pgscale_timer_clock)
ONE(errstart)
ONE(errstart_cold)
FAILS(errmsg)
FAILS(errfinish)
NOTHING(errhint)
NOTHING(errcode)
NOTHING(pfree)
NOTHING(RequestAddinShmemSpace)
NOTHING(RequestNamedLWLockTranche)
NOTHING(ProcessInterrupts)
/* its name in 15, by base/pg_compat.h, and the later one */
NOTHING(SetSingleFuncCall)
NOTHING(InitMaterializedSRF)
NOTHING(cstring_to_text)
NOTHING(pgscale_preload_require)
NOTHING(pgscale_sampler_roots_copy)
NOTHING(pgscale_sampler_root_application)
NOTHING(pgscale_proc_state_name)

void
pg_usleep(long us)
{
	sim_pause();
}

size_t
add_size(size_t a, size_t b)
{
	return a + b;
}

size_t
mul_size(size_t a, size_t b)
{
	return a * b;
}

/* A lock, a name: never looked into */
#define SOME(name) \
	const void *name(void); \
	const void *name(void) { static char some[128] __attribute__((aligned(64))); return some; }

SOME(GetNamedLWLockTranche)
SOME(pgscale_sampler_type_name)
SOME(pgscale_wait_event_type)
SOME(pgscale_wait_event_name)

/*
 * Runs.
 */
static void
thread_main(void)
{
	me->run(me->argument);
	take_up();
	me->ended = true;
	swapcontext(&me->context, &scheduler);
}

void
sim_thread(void (*run) (void *), void *argument)
{
	Thread	   *thread = &threads[nthreads++];

	thread->run = run;
	thread->argument = argument;
	thread->ended = false;
	thread->now = piece(sizeof(View));
	thread->read = piece(sizeof(View));
	thread->released = NULL;
	thread->last_joined = NULL;
	thread->pending = 0;
	if (!thread->stack)
		thread->stack = malloc(STACK);
	getcontext(&thread->context);
	thread->context.uc_stack.ss_sp = thread->stack;
	thread->context.uc_stack.ss_size = STACK;
	thread->context.uc_link = &scheduler;
	makecontext(&thread->context, thread_main, 0);
}

static void
one_run(uint64_t seed)
{
	int			left;

	state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1;
	for (int i = 0; i < 10; i++)
		(void) draw();
	while (npieces > 0)
		free(pieces[--npieces]);
	memset(memory, 0, sizeof(memory));
	memory_used = words_used = 0;
	for (size_t w = 0; w < WORDS; w++)
		words[w].count = 0;
	memset(&full, 0, sizeof(full));
	nthreads = 0;
	steps = 0;
	me = NULL;
	switching = 1 << sim_random(6);
	stale = 1 + sim_random(6);

	sim_begin();
	left = nthreads;
	while (left > 0)
	{
		me = &threads[sim_random(nthreads)];
		if (me->ended)
			continue;
		swapcontext(&scheduler, &me->context);
		left -= me->ended;
	}
	me = NULL;
	/* in the end all see what is newest */
	for (size_t w = 0; w < words_used; w++)
		if (words[w].count > 0)
			((uint32_t *) memory)[w] = words[w].messages[words[w].count - 1].value;
	sim_end();
}

/* RUNS SEED: ends with 1 at the first run in which something was wrong. */
int
main(int argc, char **argv)
{
	uint64_t	runs = argc > 1 ? strtoull(argv[1], NULL, 10) : 1000;
	uint64_t	seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
	static volatile uint64_t run;

	for (run = 0; run < runs; run++)
	{
		if (setjmp(failed) != 0)
		{
			printf("run %llu, seed %llu: %s\n", (unsigned long long) run + 1, (unsigned long long) (seed + run), why);
			return 1;
		}
		one_run(seed + run);
	}
	printf("%llu runs\n", (unsigned long long) runs);
	return 0;
}
