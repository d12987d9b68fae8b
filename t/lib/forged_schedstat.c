/*
 * Preloaded into a server: what the kernel counts of each process is what the file "schedstat" in the server's folder says, so
 * that a test decides how long sessions ran and queued. Without the file, or with an empty one, nothing can be read.
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
	int			(*real_open) (const char *, int,...) = (int (*) (const char *, int,...)) dlsym(RTLD_NEXT, "open");
	va_list		args;
	mode_t		mode;

	va_start(args, flags);
	mode = va_arg(args, mode_t);
	va_end(args);
	return real_open(strstr(path, "/schedstat") ? "schedstat" : path, flags, mode);
}

int			open64(const char *path, int flags,...) __attribute__((alias("open")));
