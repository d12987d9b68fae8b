/*-------------------------------------------------------------------------
 *
 * now_rules.c
 *	  Asks the rules of diagnosis, and sorts what they find.
 *
 * A rule is a function of the evidence, and lives in one of the files rules_*.c, with its
 * thresholds and their reasons.  On a load that a server carries well no rule fires.  So each
 * asks for much, in sessions, and where it is known what is usual, for much more than that.
 * A rule names causes: a session that itself waits for a lock is none.
 *
 * First come the findings that cost most sessions, each session counted for as much as is certain.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/json.h"
#include "utils/jsonb.h"

#include "base/pg_compat.h"
#include "base/row_builder.h"
#include "base/texts.h"
#include "now/now_rules.h"

PG_FUNCTION_INFO_V1(pgscale_now_findings);
PG_FUNCTION_INFO_V1(pgscale_now_rules);

static const PgscaleNowRule *const rule_lists[] = {
	pgscale_now_locks_rules, pgscale_now_load_rules, pgscale_now_disk_rules, pgscale_now_server_rules,
	pgscale_now_transactions_rules
};

static const char *const certainty_names[] = {
	[PGSCALE_NOW_LOW] = "low",
	[PGSCALE_NOW_MEDIUM] = "medium",
	[PGSCALE_NOW_HIGH] = "high",
};

PgscaleNowFinding *
pgscale_now_add(PgscaleNowFindings *found, PgscaleNowCertainty certainty, double cost, const char *sentence,...)
{
	PgscaleNowFinding *f = &found->findings[Min(found->n, PGSCALE_NOW_FINDINGS - 1)];
	va_list		args;

	found->n = Min(found->n + 1, PGSCALE_NOW_FINDINGS);
	memset(f, 0, sizeof(*f));
	f->rule = found->rule;
	f->certainty = certainty;
	f->cost = isfinite(cost) ? cost : 0;
	initStringInfo(&f->evidence);
	va_start(args, sentence);
	f->sentence = pgscale_text_format(sentence, args);
	va_end(args);

	return f;
}

void
pgscale_now_cure(PgscaleNowFinding *f, const char *risk, const char *cure,...)
{
	va_list		args;

	va_start(args, cure);
	f->cure = pgscale_text_format(cure, args);
	va_end(args);
	f->risk = risk;
}

static void
put_member_name(PgscaleNowFinding *f, const char *name)
{
	if (f->evidence.len > 0)
		appendStringInfoString(&f->evidence, ", ");
	escape_json(&f->evidence, name);
	appendStringInfoString(&f->evidence, ": ");
}

void
pgscale_now_number(PgscaleNowFinding *f, const char *name, double value)
{
	if (!isfinite(value))
		return;
	put_member_name(f, name);
	appendStringInfo(&f->evidence, "%.*f", fabs(value) < 1000 ? 3 : 0, value);
}

void
pgscale_now_text(PgscaleNowFinding *f, const char *name, const char *value)
{
	if (!value)
		return;
	put_member_name(f, name);
	escape_json(&f->evidence, value);
}

bool
pgscale_now_unusual(const PgscaleNowEvidence *e, double now, double usual, double least, double share, double factor)
{
	return now >= least && now >= share * e->now.active && (e->usual.s <= 0 || now >= factor * usual);
}

double
pgscale_now_wal_waits(const PgscaleNowPeriod *period)
{
	return period->kinds[PGSCALE_KIND_WAL_SYNC] + period->kinds[PGSCALE_KIND_WAL_WRITE] +
		period->kinds[PGSCALE_KIND_WAL_WRITE_LOCK] + period->kinds[PGSCALE_KIND_WAL_INIT];
}

/* By the kernel's counts, and no fewer than are more than there are CPUs. */
double
pgscale_now_queued(const PgscaleNowEvidence *e)
{
	const double at_cpus = e->now.kinds[PGSCALE_KIND_CPU];
	const double counted = isnan(e->queued_fraction) ? 0 : at_cpus * e->queued_fraction;

	return Max(counted, Max(at_cpus - e->cpus, 0));
}

const char *
pgscale_now_beginning(const char *text, int bytes)
{
	const int	len = strlen(text);

	if (len <= bytes)
		return text;

	return psprintf("%.*s...", pg_mbcliplen(text, len, Max(bytes - 3, 0)), text);
}

const char *
pgscale_now_who(const PgscaleNowSession *session)
{
	if (session->pid == 0)
		return psprintf("the prepared transaction %s", session->gid_shown ? pgscale_now_beginning(session->gid_shown, 24) : "");
	if (!session->application || session->application[0] == '\0')
		return psprintf("pid %d", session->pid);
	return psprintf("pid %d, %s", session->pid, pgscale_now_beginning(session->application, 24));
}

static const PgscaleNowSession *
find_session_in(const PgscaleNowSession *sessions, int n, const char *event)
{
	for (int i = 0; i < n; i++)
		if (sessions[i].event && pg_strcasecmp(sessions[i].event, event) == 0)
			return &sessions[i];
	return NULL;
}

const PgscaleNowSession *
pgscale_now_session_in(const PgscaleNowEvidence *e, const char *event)
{
	return find_session_in(e->sessions, e->nsessions, event);
}

/* What it costs, as far as it is certain. */
static double
weight_of(const PgscaleNowFinding *f)
{
	static const double weights[] = {
		[PGSCALE_NOW_LOW] = 0.25,
		[PGSCALE_NOW_MEDIUM] = 0.6,
		[PGSCALE_NOW_HIGH] = 1,
	};

	return f->cost * weights[f->certainty];
}

static int
compare_findings(const void *a, const void *b)
{
	const PgscaleNowFinding *left = a;
	const PgscaleNowFinding *right = b;

	if (weight_of(left) != weight_of(right))
		return weight_of(left) > weight_of(right) ? -1 : 1;
	if (left->certainty != right->certainty)
		return left->certainty > right->certainty ? -1 : 1;
	return strcmp(left->sentence, right->sentence);
}

static void
put_diagnosis(ReturnSetInfo *rsinfo, int rank, const PgscaleNowFinding *f)
{
	PgscaleRow	row = {0};

	pgscale_row_int4(&row, rank);
	pgscale_row_text(&row, f->rule);
	pgscale_row_text(&row, certainty_names[f->certainty]);
	pgscale_row_text(&row, f->sentence);
	pgscale_row_text(&row, f->cure);
	pgscale_row_text(&row, f->risk);
	pgscale_row_pid(&row, f->pid);
	pgscale_row_put(&row, DirectFunctionCall1(jsonb_in, CStringGetDatum(psprintf("{%s}", f->evidence.data))), false);
	pgscale_row_end(&row, rsinfo);
}

/* pgscale_internal.now_findings(seen): what the rules find in that evidence; no row if all is usual. */
Datum
pgscale_now_findings(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	PgscaleNowEvidence *e = palloc(sizeof(PgscaleNowEvidence));
	PgscaleNowFindings *found = palloc0(sizeof(PgscaleNowFindings));

	InitMaterializedSRF(fcinfo, 0);
	pgscale_now_evidence_read(PG_GETARG_JSONB_P(0), e);
	for (int list = 0; list < lengthof(rule_lists); list++)
		for (const PgscaleNowRule *rule = rule_lists[list]; rule->name; rule++)
		{
			CHECK_FOR_INTERRUPTS();
			found->rule = rule->name;
			rule->find(e, found);
		}
	qsort(found->findings, found->n, sizeof(PgscaleNowFinding), compare_findings);
	for (int i = 0; i < found->n; i++)
		put_diagnosis(rsinfo, i + 1, &found->findings[i]);
	return (Datum) 0;
}

/* pgscale_internal.now_rules(): the names of all rules. */
Datum
pgscale_now_rules(PG_FUNCTION_ARGS)
{
	ArrayBuildState *names = NULL;

	for (int list = 0; list < lengthof(rule_lists); list++)
		for (const PgscaleNowRule *rule = rule_lists[list]; rule->name; rule++)
			names = accumArrayResult(names, CStringGetTextDatum(rule->name), false, TEXTOID, CurrentMemoryContext);
	PG_RETURN_DATUM(makeArrayResult(names, CurrentMemoryContext));
}
