/*
 * Preloaded into a server: a file of the kernel's is the one of that path below the folder that FORGED_FILES names, if there is one.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

int
open(const char *path, int flags,...)
{
	static int	(*real_open) (const char *, int,...);
	char		forged[4096];
	va_list		args;
	mode_t		mode;

	if (!real_open)
		real_open = (int (*) (const char *, int,...)) dlsym(RTLD_NEXT, "open");
	va_start(args, flags);
	mode = va_arg(args, mode_t);
	va_end(args);
	if (getenv("FORGED_FILES") && (strncmp(path, "/proc/", 6) == 0 || strncmp(path, "/sys/", 5) == 0))
	{
		snprintf(forged, sizeof(forged), "%s%s", getenv("FORGED_FILES"), path);
		if (access(forged, R_OK) == 0)
			path = forged;
	}
	return real_open(path, flags, mode);
}

int			open64(const char *path, int flags,...) __attribute__((alias("open")));
