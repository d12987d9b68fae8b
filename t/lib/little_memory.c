/*
 * Preloaded into a server: a machine that has as many megabytes of memory as the file says that PGSCALE_MEMORY names.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

long
sysconf(int name)
{
	static long (*real) (int);
	const char *path = getenv("PGSCALE_MEMORY");
	FILE	   *file;
	long		mb = -1;

	if (!real)
		real = (long (*) (int)) dlsym(RTLD_NEXT, "sysconf");
	if (name != _SC_PHYS_PAGES || !path || !(file = fopen(path, "r")))
		return real(name);
	if (fscanf(file, "%ld", &mb) != 1)
		mb = -1;
	fclose(file);
	return mb * (1048576 / real(_SC_PAGESIZE));
}
