/*
 * Preloaded into a server: the kernel's counts of a process cannot be read, as where /proc hides other processes.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
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

	if (strstr(path, "/schedstat"))
	{
		errno = EACCES;
		return -1;
	}
	if (!real_open)
		real_open = (int (*) (const char *, int,...)) dlsym(RTLD_NEXT, "open");
	va_start(args, flags);
	mode = va_arg(args, mode_t);
	va_end(args);
	return real_open(path, flags, mode);
}

int			open64(const char *path, int flags,...) __attribute__((alias("open")));
