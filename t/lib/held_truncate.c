/*
 * Preloaded into a server: while the file that HELD_TRUNCATE names is there, whoever has made another file shorter goes no further.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <unistd.h>

int
truncate(const char *path, off_t length)
{
	const char *hold = getenv("HELD_TRUNCATE");
	const int	result = ((int (*) (const char *, off_t)) dlsym(RTLD_NEXT, "truncate")) (path, length);

	while (hold && access(hold, F_OK) == 0)
		usleep(10000);
	return result;
}
