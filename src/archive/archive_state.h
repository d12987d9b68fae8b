/*-------------------------------------------------------------------------
 *
 * archive_state.h
 *	  State that the archive's launcher, its rounds and backends share, and the
 *	  counters' values at the latest round.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_ARCHIVE_ARCHIVE_STATE_H
#define PGSCALE_ARCHIVE_ARCHIVE_STATE_H

#include "postgres.h"

#include "datatype/timestamp.h"

/* What keeps the launcher from starting rounds. */
typedef enum PgscaleArchiveObstacle
{
	PGSCALE_ARCHIVE_READY,		/* nothing does */
	PGSCALE_ARCHIVE_OFF,
	PGSCALE_ARCHIVE_NO_DATABASE,
	PGSCALE_ARCHIVE_CLOSED,		/* the database takes no connections */
	PGSCALE_ARCHIVE_NO_SLOT
} PgscaleArchiveObstacle;

#define PGSCALE_ARCHIVE_MESSAGE	256
#define PGSCALE_ARCHIVE_FUNCTION	160
#define PGSCALE_ARCHIVE_COUNTERS 64

/* What is wrong with the rounds. */
typedef struct PgscaleArchiveError
{
	int			sqlstate;		/* 0: nothing */
	int			encoding;		/* of the texts */
	char		message[PGSCALE_ARCHIVE_MESSAGE];
	char		function[PGSCALE_ARCHIVE_FUNCTION]; /* of others, which raised
													 * it; "": none */
} PgscaleArchiveError;

typedef struct PgscaleArchiveState
{
	int			launcher_pid;	/* 0: none */
	uint64		starts;
	int64		last_ns;		/* when the launcher was last seen, by
								 * CLOCK_MONOTONIC */
	PgscaleArchiveObstacle obstacle;
	uint64		rounds;			/* that wrote a row */
	TimestampTz written_at;		/* the end of the latest row, 0: none */
	PgscaleArchiveError error;	/* of the latest round */
	PgscaleArchiveError upkeep; /* of the latest making, dropping and rolling
								 * up of partitions */
} PgscaleArchiveState;

extern void pgscale_archive_share_request(void);
extern void pgscale_archive_share_startup(void);
extern void pgscale_archive_state(PgscaleArchiveState *state);

/* The launcher's side. */
extern void pgscale_archive_launcher_started(void);
extern void pgscale_archive_launcher_alive(PgscaleArchiveObstacle obstacle);

/* How far the clock is ahead of CLOCK_MONOTONIC, and when that was last seen to change much; 0: unknown. */
typedef struct PgscaleArchiveClock
{
	int64		offset_ns;
	int64		stepped_ns;
} PgscaleArchiveClock;

/* The launcher's own, which outlives it. */
extern PgscaleArchiveClock *pgscale_archive_clock(void);

/*
 * Names the database of the next round, and whether that may drop and roll up what is old.
 * False while a round is under way.
 */
extern bool pgscale_archive_round_offer(Oid database, bool may_age);

/* The round will not come, or is over: true if it has ended without a word. */
extern bool pgscale_archive_round_over(void);

/* The round's side: InvalidOid if there is none to be taken. */
extern Oid	pgscale_archive_round_attach(bool *may_age);
extern void pgscale_archive_round_written(TimestampTz until, bool row);

/* Notes whether upkeep was hindered by a lock of others; returns since when it has been each time, 0 if it was not. */
extern TimestampTz pgscale_archive_hindered(bool hindered);

/*
 * Notes an error (or none, NULL) of a round or of its upkeep.  Returns true if it is
 * another one than before, and so is to be logged.
 */
extern bool pgscale_archive_note(bool upkeep, const PgscaleArchiveError *error);

/*
 * The baseline: what waits and counters were when the latest row ended.  Only a
 * round reads or changes it, and there is one at a time.
 */
typedef struct PgscaleArchiveWait
{
	int64		key;			/* a hash of whose it is and of what */
	int64		event;			/* a hash of the wait event only */
	int64		owner;			/* a hash of whose it is only */
	double		ms;
} PgscaleArchiveWait;

typedef struct PgscaleArchiveCounter
{
	bool		known;
	int64		marker;			/* a hash of when it was reset */
	double		value;
} PgscaleArchiveCounter;

typedef struct PgscaleArchiveBaseline
{
	int64		taken_ns;		/* by CLOCK_MONOTONIC; 0: there is none */
	TimestampTz taken_at;
	int64		profile_reset;	/* of the sampler */
	int			ncounters;
	PgscaleArchiveCounter counters[PGSCALE_ARCHIVE_COUNTERS];
	int			nwaits;
	PgscaleArchiveWait waits[FLEXIBLE_ARRAY_MEMBER];	/* by key */
} PgscaleArchiveBaseline;

extern PgscaleArchiveBaseline *pgscale_archive_baseline(int *capacity);
extern void pgscale_archive_baseline_forget(void);

#endif							/* PGSCALE_ARCHIVE_ARCHIVE_STATE_H */
