/*
 * Preloaded into a server: each sync_file_range() that begins to write waits, as for a disk whose queue is full, until it may
 * take the file GATE_DIR/go, while the file GATE_DIR/gate is there. It says that it waits by making GATE_DIR/waits.
 */
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

static int
in_gate(const char *name, int (*call) (const char *))
{
	char		path[1024];

	snprintf(path, sizeof(path), "%s/%s", getenv("GATE_DIR"), name);
	return call(path) == 0;
}

static int
is_there(const char *path)
{
	return access(path, F_OK);
}

static int
make(const char *path)
{
	int			fd = open(path, O_CREAT | O_WRONLY, 0600);

	return fd < 0 ? -1 : close(fd);
}

int
sync_file_range(int fd, off64_t offset, off64_t bytes, unsigned int flags)
{
	(void) fd, (void) offset, (void) bytes, (void) flags;
	while (in_gate("gate", is_there) && !in_gate("go", unlink))
	{
		in_gate("waits", make);
		usleep(1000);
	}
	return 0;
}
