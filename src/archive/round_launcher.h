/*-------------------------------------------------------------------------
 *
 * round_launcher.h
 *	  The process that starts a round of the archive each minute, the state that it shares with
 *	  rounds and backends, and the counters' values at the latest round.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_ARCHIVE_ROUND_LAUNCHER_H
#define PGSCALE_ARCHIVE_ROUND_LAUNCHER_H

#include "postgres.h"

#include "datatype/timestamp.h"

#include "base/shared_area.h"
#include "pgscale.h"

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

/* The steps of a round, in order. */
typedef enum PgscaleArchiveStep
{
	PGSCALE_ARCHIVE_ROW,
	PGSCALE_ARCHIVE_UPKEEP,		/* makes, drops and rolls up partitions */
	PGSCALE_ARCHIVE_PULL		/* asks other nodes */
} PgscaleArchiveStep;

#define PGSCALE_ARCHIVE_STEPS	(PGSCALE_ARCHIVE_PULL + 1)

typedef struct PgscaleArchiveState
{
	int			launcher_pid;	/* 0: none */
	uint64		starts;
	int64		last_ns;		/* when the launcher was last seen, by
								 * CLOCK_MONOTONIC */
	PgscaleArchiveObstacle obstacle;
	uint64		rounds;			/* that wrote a row */
	TimestampTz written_at;		/* the end of the latest row, 0: none */
	PgscaleArchiveError errors[PGSCALE_ARCHIVE_STEPS];	/* of the latest time */
} PgscaleArchiveState;

extern const PgscaleArea pgscale_archive_area;
extern const PgscaleArea pgscale_archive_baseline_area;
extern const PgscaleWorker pgscale_archive_launcher;

extern void pgscale_archive_state(PgscaleArchiveState *state);

/* The round's side: InvalidOid if there is none to be taken. */
extern Oid	pgscale_archive_round_attach(bool *may_age);
extern void pgscale_archive_round_written(TimestampTz until, bool row);

/* Notes whether upkeep was hindered by a lock of others; returns since when it has been each time, 0 if it was not. */
extern TimestampTz pgscale_archive_hindered(bool hindered);

/*
 * Notes an error (or none, NULL) of a round or of its upkeep.  Returns true if it is
 * another one than before, and so is to be logged.
 */
extern bool pgscale_archive_note(PgscaleArchiveStep step, const PgscaleArchiveError *error);

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

#endif							/* PGSCALE_ARCHIVE_ROUND_LAUNCHER_H */
