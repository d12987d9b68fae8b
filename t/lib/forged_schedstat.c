/*
 * Preloaded into a server: what the kernel counts of each process is what the file "schedstat" in the server's folder says, so
 * that a test decides how long sessions ran and queued. An empty file cannot be read.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <string.h>
#include <sys/types.h>

int
open(const char *path, int flags,...)
{
	static int	(*real_open) (const char *, int,...);
	va_list		args;
	mode_t		mode;

	if (!real_open)
		real_open = (int (*) (const char *, int,...)) dlsym(RTLD_NEXT, "open");
	if (strstr(path, "/schedstat"))
		return real_open("schedstat", O_RDONLY | O_CLOEXEC);
	va_start(args, flags);
	mode = va_arg(args, mode_t);
	va_end(args);
	return real_open(path, flags, mode);
}

int			open64(const char *path, int flags,...) __attribute__((alias("open")));
