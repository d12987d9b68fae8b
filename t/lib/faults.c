/*
 * Preloaded into a server: in one of its processes the n-th call of some kind fails, or a signal arrives at it.
 *
 * What is to happen is said by struct orders in the file that PGSCALE_FAULTS names, which all processes map. File calls count
 * if they are about a path that contains the word, or about the folder itself; memory counts wherever it is asked for. After
 * it has happened once nothing more does, unless the orders say always. What is not to fail to be synced is not synced, for
 * no test here lets the machine crash, and it takes its time.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

enum
{
	OPEN = 1,
	WRITE = 2,
	SYNC = 4,
	RENAME = 8,
	MEMORY = 16,
	CREATE = 32
};

/* tuning_changes.pl, relocation_faults.pl and sweeper_faults.pl know this layout */
struct orders
{
	int32_t		pid;			/* of the process that is meant; 0: none, -1: a
								 * worker that moves relations; -2: a server that is asked
								 * whether it would start stops; -3: a writer of the
								 * sweeper; -4: the sweeper */
	int32_t		kinds;			/* of calls that count */
	int32_t		left;			/* so many are to come before it happens */
	int32_t		error;			/* that the call fails with, an errno; or less a signal */
	int32_t		hits;			/* so often it has happened */
	int32_t		always;			/* and goes on to happen */
	char		word[64];
	char		folder[1024];
};

static struct orders *orders;

/* Is it in the command line of this process? */
static int
title_has(const char *word)
{
	static __typeof__(open) *real_open;
	char		title[4096];
	int			fd;
	ssize_t		length;

	if (real_open == NULL)
		real_open = (__typeof__(open) *) dlsym(RTLD_NEXT, "open");
	fd = real_open("/proc/self/cmdline", O_RDONLY);
	length = fd < 0 ? 0 : read(fd, title, sizeof(title));
	if (fd >= 0)
		close(fd);
	return length > 0 && memmem(title, length, word, strlen(word)) != NULL;
}

__attribute__((constructor))
static void
map_orders(void)
{
	const char *path = getenv("PGSCALE_FAULTS");
	int			fd = path ? open(path, O_RDWR) : -1;
	void	   *map;

	if (fd < 0)
		return;
	map = mmap(NULL, sizeof(struct orders), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
	close(fd);
	if (map == MAP_FAILED)
		return;
	orders = map;
	if (orders->pid == -2 && title_has("shared_memory_size"))
		raise(SIGSTOP);
}

/* Is now the time? Then a call is to return its error, or a signal has come. */
static int
happens(int kind)
{
	if (orders->left > 0)
	{
		orders->left--;
		return 0;
	}
	if (orders->hits > 0 && !orders->always)
		return 0;
	orders->hits++;
	if (orders->error < 0)
	{
		kill(getpid(), -orders->error);
		return 0;
	}
	errno = orders->error;
	return 1;
}

/* Is this process meant? By its title, which it has given itself by the time that it does anything. */
static int
is_meant(void)
{
	if (orders->pid == -1)
		return title_has("pgscale relocation worker");
	if (orders->pid == -3)
		return title_has("pgscale sweeper writer");
	if (orders->pid == -4)
		return title_has("pgscale sweeper") && !title_has("pgscale sweeper writer") && !title_has("pgscale sweeper keep");
	return orders->pid == getpid();
}

static int
counts(int kind)
{
	return orders && orders->pid && (orders->kinds & kind) && is_meant();
}

static int
path_meant(int kind, const char *path)
{
	return counts(kind) && (strstr(path, orders->word) || strcmp(path, ".") == 0 || strcmp(path, orders->folder) == 0) &&
		happens(kind);
}

static int
fd_meant(int kind, int fd)
{
	char		link[32];
	char		path[4096];
	ssize_t		length;

	if (!counts(kind))
		return 0;
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	length = readlink(link, path, sizeof(path) - 1);
	if (length < 0)
		return 0;
	path[length] = '\0';
	return (strstr(path, orders->word) || strcmp(path, orders->folder) == 0) && happens(kind);
}

#define REAL(name) \
	static __typeof__(name) *real; \
	if (real == NULL) \
		real = (__typeof__(name) *) dlsym(RTLD_NEXT, #name)

#define OPENS(name) \
int \
name(const char *path, int flags, ...) \
{ \
	va_list		rest; \
	mode_t		mode = 0; \
	REAL(name); \
	va_start(rest, flags); \
	if (flags & O_CREAT) \
		mode = va_arg(rest, mode_t); \
	va_end(rest); \
	return path_meant(flags & O_CREAT ? OPEN | CREATE : OPEN, path) ? -1 : real(path, flags, mode); \
}

#define FOPENS(name) \
FILE * \
name(const char *path, const char *mode) \
{ \
	REAL(name); \
	return path_meant(OPEN, path) ? NULL : real(path, mode); \
}

#define SYNCS(name) \
int \
name(int fd) \
{ \
	REAL(name); \
	return fd_meant(SYNC, fd) ? -1 : orders ? 0 : real(fd); \
}

OPENS(open)
OPENS(open64)
FOPENS(fopen)
FOPENS(fopen64)
SYNCS(fsync)
SYNCS(fdatasync)

ssize_t
write(int fd, const void *data, size_t n)
{
	REAL(write);
	return fd_meant(WRITE, fd) ? -1 : real(fd, data, n);
}

ssize_t
pwrite(int fd, const void *data, size_t n, off_t at)
{
	REAL(pwrite);
	return fd_meant(WRITE, fd) ? -1 : real(fd, data, n, at);
}

ssize_t
pwrite64(int fd, const void *data, size_t n, off64_t at)
{
	REAL(pwrite64);
	return fd_meant(WRITE, fd) ? -1 : real(fd, data, n, at);
}

/* how files grow since PostgreSQL 16; it returns the errno */
int
posix_fallocate(int fd, off_t at, off_t length)
{
	REAL(posix_fallocate);
	return fd_meant(WRITE, fd) ? errno : real(fd, at, length);
}

int
rename(const char *from, const char *to)
{
	REAL(rename);
	return path_meant(RENAME, to) ? -1 : real(from, to);
}

extern void *__libc_malloc(size_t n);
extern void *__libc_realloc(void *old, size_t n);

void *
malloc(size_t n)
{
	return counts(MEMORY) && happens(MEMORY) ? NULL : __libc_malloc(n);
}

void *
realloc(void *old, size_t n)
{
	return counts(MEMORY) && happens(MEMORY) ? NULL : __libc_realloc(old, n);
}
