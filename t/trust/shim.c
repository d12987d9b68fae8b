/*
 * Preloaded into a server: its syncs of files whose path contains a word do nothing and report success. The word is in the file that
 * PGSCALE_SHIM names, as soon as that is there.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int
is_meant(int fd)
{
	char		word[64] = "";
	char		link[32];
	char		path[4096];
	const char *orders = getenv("PGSCALE_SHIM");
	int			file = orders ? open(orders, O_RDONLY) : -1;
	ssize_t		length;

	if (file < 0)
		return 0;
	length = read(file, word, sizeof(word) - 1);
	close(file);
	snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
	if (length <= 0 || (length = readlink(link, path, sizeof(path) - 1)) < 0)
		return 0;
	path[length] = '\0';
	return strstr(path, word) != NULL;
}

#define SYNCS(name) \
int \
name(int fd) \
{ \
	static int	(*real) (int); \
	if (real == NULL) \
		real = dlsym(RTLD_NEXT, #name); \
	return is_meant(fd) ? 0 : real(fd); \
}

SYNCS(fsync)
SYNCS(fdatasync)
