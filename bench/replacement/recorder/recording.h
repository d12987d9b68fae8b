/*-------------------------------------------------------------------------
 *
 * recording.h
 *	  The file of references to pages that a server's processes write together.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef RECORDING_H
#define RECORDING_H

#include <stdint.h>

typedef struct RecordedPage
{
	uint32_t	db;
	uint32_t	relation;		/* its file's number */
	uint32_t	block;
	uint8_t		fork;
	uint8_t		extends;		/* the page is new */
	uint8_t		by_ring;		/* VACUUM, COPY, or a scan of a large table */
	uint8_t		written;		/* the entry is complete */
} RecordedPage;

typedef struct Recording
{
	uint64_t	used;			/* entries; may be more than there is room for */
	uint64_t	room;
	uint64_t	recording;		/* 1: yes */
	uint64_t	unused;
	RecordedPage pages[];
} Recording;

#endif							/* RECORDING_H */
