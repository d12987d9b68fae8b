/*-------------------------------------------------------------------------
 *
 * trace_file.c
 *	  Reads a trace from a file: a 32-bit number of a page for each reference.
 *
 * Pages are numbered from 0.  What does not fill the last window is left out.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include <limits.h>
#include <stdio.h>

#include "simulator.h"

bool
trace_read(const char *name, Trace *trace)
{
	FILE	   *file = fopen(name, "rb");
	long		bytes;
	size_t		length;

	if (!file)
		return false;
	bytes = fseek(file, 0, SEEK_END) == 0 ? ftell(file) : -1;
	length = bytes > 0 ? bytes / sizeof(uint32_t) / BUFFERS * BUFFERS : 0;
	trace->pages = zeroed(length + 1, sizeof(uint32_t));
	rewind(file);
	if (length > INT_MAX || fread(trace->pages, sizeof(uint32_t), length, file) != length)
		length = 0;
	fclose(file);
	trace->length = (int) length;
	trace->distinct = 0;
	for (size_t i = 0; i < length; i++)
		if (trace->pages[i] >= trace->distinct)
			trace->distinct = trace->pages[i] + 1;
	return length > 0;
}
