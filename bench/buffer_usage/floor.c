/*
 * floor.c
 *	  What it costs to read memory, before anything is made of it.
 *
 * floor HEADERS: reads one word of each of so many 64-byte headers that lie
 * side by side in shared memory, as the server's buffer headers do, and prints
 * the milliseconds it took with nothing of them in the CPU's caches.  When it
 * ends, the caches hold nothing of any server.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

#define LINE 64
/* several times the last-level cache of most machines */
#define TRASH ((size_t) 256 << 20)

static char *
shared(size_t size)
{
	char	   *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);

	if (memory == MAP_FAILED)
	{
		perror("mmap");
		exit(1);
	}
	memset(memory, 1, size);
	return memory;
}

static uint32_t
walk(const char *memory, size_t size)
{
	uint32_t	sum = 0;

	for (size_t at = 0; at < size; at += LINE)
		sum += *(const uint32_t *) (memory + at);
	return sum;
}

static double
timed(const char *memory, size_t size)
{
	struct timespec began,
				ended;
	volatile uint32_t sum;

	clock_gettime(CLOCK_MONOTONIC, &began);
	sum = walk(memory, size);
	clock_gettime(CLOCK_MONOTONIC, &ended);
	(void) sum;
	return (ended.tv_sec - began.tv_sec) * 1e3 + (ended.tv_nsec - began.tv_nsec) / 1e6;
}

int
main(int argc, char **argv)
{
	size_t		size;
	char	   *headers,
			   *trash;

	if (argc != 2 || (size = strtoull(argv[1], NULL, 10) * LINE) == 0)
		return 2;
	headers = shared(size);
	trash = shared(TRASH);
	timed(trash, TRASH);
	printf("%f\n", timed(headers, size));
	timed(trash, TRASH);
	return 0;
}
