/*-------------------------------------------------------------------------
 *
 * wal_efficiency.c
 *	  The efficiency of WAL: bytes written for bytes generated, and the cost and use
 *	  of flushes.
 *
 * WAL is written in blocks of 8 kB. A flush that ends within a block writes the filled
 * part, and the next flush writes that block again.  So more bytes are written than
 * generated, the more the smaller the commits are.
 *
 * From 18 on the server counts the written bytes.  Before, they are estimated: the
 * distance between two write positions, plus a block for each flush, which writes at
 * most one block a second time.  That is an upper bound where flushes are few or end
 * with a block; written_exact shows whether the value is an estimate.  From 19 on the
 * server counts the bytes of page images, too, which page_image_exact shows.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "access/xlog.h"
#include "funcapi.h"
#include "utils/builtins.h"
#include "utils/timestamp.h"

#include "base/pg_compat.h"
#include "base/preload.h"
#include "base/row_builder.h"
#include "tuning/findings.h"
#include "tuning/tuning.h"

/* With less evidence nothing is said. */
#define ENOUGH_S		10
#define ENOUGH_FLUSHES	10

/* And nothing is usual. */
#define USUAL_S			60

/* Shares that are worth a word. */
#define MUCH			0.3
#define SOME			0.2

typedef struct Efficiency
{
	double		written;		/* bytes; NaN: unknown */
	bool		exact;
	double		rewritten;		/* of them, what was written before */
	double		commits;		/* NaN if there were none */
	double		flushes;		/* NaN: not counted */
	double		flush_ms;
	bool		flush_measured; /* by the server, not from waits */
	double		flush_fraction; /* of the sessions' time: all that commits
								 * wait for */
	double		images;
	bool		images_exact;
	double		switches;		/* segments begun a second */
	double		full;			/* times a second that WAL buffers were */
} Efficiency;

PG_FUNCTION_INFO_V1(pgscale_wal_efficiency);

/* Why the server does not count what it flushes, or NULL. */
static const char *
flushes_uncounted(void)
{
	if (pgscale_tuning_setting("fsync") == 0)
		return "fsync is off: no WAL is flushed, and a crash of the machine may lose it and more";
	if (strncmp(pgscale_tuning_setting_text("wal_sync_method"), "open", 4) == 0)
		return "wal_sync_method flushes WAL as it is written, and the server counts no flushes";
	return NULL;
}

static void
wal_compute(const PgscaleEvidence *e, Efficiency *w)
{
	const PgscaleCounters *c = &e->counts;

	w->exact = c->wal_written_bytes >= 0;
	w->flushes = c->wal_syncs == 0 && flushes_uncounted() ? NAN : c->wal_syncs;
	if (w->exact)
		w->written = c->wal_written_bytes;
	else
		w->written = c->wal_position < 0 ? NAN : (double) c->wal_position +
			(double) XLOG_BLCKSZ * (isnan(w->flushes) ? c->wal_writes : c->wal_syncs);
	w->rewritten = w->written > 0 && c->wal_position >= 0 ? Max(1 - c->wal_position / w->written, 0) : NAN;
	w->commits = c->commits;
	w->flush_ms = pgscale_tuning_flush_ms(e);
	w->flush_measured = c->wal_sync_us > 0;
	w->flush_fraction = pgscale_tuning_fraction(e, PGSCALE_KIND_WAL_SYNC) +
		pgscale_tuning_fraction(e, PGSCALE_KIND_WAL_WRITE) +
		pgscale_tuning_fraction(e, PGSCALE_KIND_WAL_WRITE_LOCK);
	w->images = pgscale_tuning_page_images(e);
	w->images_exact = c->wal_page_bytes >= 0;
	w->switches = c->wal_position < 0 ? NAN : pgscale_tuning_rate(e, c->wal_position) / wal_segment_size;
	w->full = pgscale_tuning_rate(e, c->wal_buffers_full);
}

/* The most important finding, in one sentence. */
static const char *
wal_efficiency_reason(const PgscaleEvidence *e, const Efficiency *w)
{
	if (pgscale_tuning_seconds(e) < PGSCALE_EVIDENCE_S(ENOUGH_S))
		return "there is too little evidence: see pgscale.health, or ask again later";
	if (isnan(w->flushes))
		return flushes_uncounted();
	if (w->flushes < ENOUGH_FLUSHES)
		return "hardly any WAL was flushed";
	if (w->flush_fraction >= SOME && w->commits / w->flushes < 1.5)
		return psprintf("commits wait for %.0f %% of the sessions' time, and hardly two of them share a flush, which takes "
						"%.2f ms: the disk's flush is the limit of a session; more sessions at a time would share it",
						100 * w->flush_fraction, w->flush_ms);
	if (w->flush_fraction >= SOME)
		return psprintf("commits wait for %.0f %% of the sessions' time; %.1f of them share a flush of %.2f ms",
						100 * w->flush_fraction, w->commits / w->flushes, w->flush_ms);
	if (pgscale_tuning_wal_buffers_short(e))
		return psprintf("WAL buffers were full %.0f times a second: sessions wrote WAL to free them", w->full);
	if (w->images >= MUCH)
		return psprintf("%s%.0f %% of WAL are images of whole pages, which follow each checkpoint",
						w->images_exact ? "" : "up to ", 100 * w->images);
	if (w->rewritten >= MUCH)
		return psprintf("%.0f %% of the written WAL was written before, because small commits end within a block",
						100 * w->rewritten);
	return psprintf("WAL costs little: commits wait for %.0f %% of the sessions' time", 100 * w->flush_fraction);
}

/* What is usual: the time of a flush, and the part of the sessions' time, by the evidence before the window. */
static void
wal_usual(int64 duration_ms, Efficiency *usual)
{
	PgscaleEvidence before;

	pgscale_tuning_window_before(duration_ms, &before);
	if (pgscale_tuning_seconds(&before) >= PGSCALE_EVIDENCE_S(USUAL_S))
		wal_compute(&before, usual);
	else
		usual->flush_ms = usual->flush_fraction = NAN;
}

/* A figure of the window: null without evidence, and where it is not known. */
static void
put_figure(PgscaleRow *row, const PgscaleEvidence *e, double figure)
{
	pgscale_row_float8(row, e->ns > 0 ? figure : NAN);
}

static void
put_count(PgscaleRow *row, const PgscaleEvidence *e, double count)
{
	const bool	known = e->ns > 0 && !isnan(count);

	pgscale_row_put(row, Int64GetDatum(known ? (int64) count : 0), !known);
}

/* pgscale_internal.wal_efficiency(duration): one row. */
Datum
pgscale_wal_efficiency(PG_FUNCTION_ARGS)
{
	const int64 duration_ms = pgscale_tuning_duration_ms(fcinfo, 0);
	PgscaleEvidence e;
	Efficiency	w;
	Efficiency	usual;
	PgscaleRow	row = {0};

	pgscale_preload_require();
	pgscale_tuning_window(duration_ms, &e);
	wal_compute(&e, &w);
	wal_usual(duration_ms, &usual);

	put_count(&row, &e, e.counts.wal_bytes);
	put_count(&row, &e, w.written);
	put_figure(&row, &e, w.rewritten);
	pgscale_row_bool(&row, w.exact);
	put_count(&row, &e, w.commits);
	put_figure(&row, &e, w.commits > 0 ? w.flushes / w.commits : NAN);
	put_figure(&row, &e, w.flushes > 0 ? w.commits / w.flushes : NAN);
	put_figure(&row, &e, w.flush_ms);
	pgscale_row_bool(&row, w.flush_measured);
	put_figure(&row, &e, w.flush_fraction);
	put_figure(&row, &e, e.counts.wal_bytes > 0 ? w.images : NAN);
	pgscale_row_bool(&row, w.images_exact);
	put_figure(&row, &e, w.switches);
	put_figure(&row, &e, w.full);
	pgscale_row_text(&row, wal_efficiency_reason(&e, &w));
	pgscale_row_put(&row, TimestampTzGetDatum(e.since), e.ns == 0);
	pgscale_row_put(&row, TimestampTzGetDatum(e.until), e.ns == 0);
	pgscale_row_float8(&row, usual.flush_ms);
	pgscale_row_float8(&row, usual.flush_fraction);
	return pgscale_row_result(&row, fcinfo);
}
