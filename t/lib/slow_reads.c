/*
 * Preloaded into a server: reads that go past the kernel's cache take a known time while the file READS_DIR/slow is there. A page
 * takes 8 ms, or 40 while READS_DIR/slower is there, and a piece of a megabyte 20. While READS_DIR/uneven is there, too, a page takes 1, 2, 4 or 8 ms: from piece
 * to piece another one of them.  While READS_DIR/all is there, the same goes for reads from the kernel's cache.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <unistd.h>

static int	rounds = 0;
static int	in_pieces = 0;

static int
is_there(const char *name)
{
	char		path[1024];

	snprintf(path, sizeof(path), "%s/%s", getenv("READS_DIR"), name);
	return access(path, F_OK) == 0;
}

static void
take_time(int fd, size_t bytes)
{
	if (!is_there("slow") || ((fcntl(fd, F_GETFL) & O_DIRECT) == 0 && !is_there("all")))
		return;
	if (bytes > 65536)
	{
		in_pieces = 1;
		usleep(20000);
		return;
	}
	rounds += in_pieces;
	in_pieces = 0;
	usleep(is_there("slower") ? 40000 : is_there("uneven") ? 1000 << rounds % 4 : 8000);
}

ssize_t
pread(int fd, void *to, size_t bytes, off_t at)
{
	take_time(fd, bytes);
	return syscall(SYS_pread64, fd, to, bytes, at);
}

ssize_t
pread64(int fd, void *to, size_t bytes, off64_t at)
{
	return pread(fd, to, bytes, at);
}
