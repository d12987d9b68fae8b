/*-------------------------------------------------------------------------
 *
 * rule_table.c
 *	  The one table of rules, and how a rule is evaluated.
 *
 * A rule is a small function of the evidence of a window.  It is not evaluated if the
 * window is too short after the last change of a setting that it is about; time before
 * that change is left out.  A rule advises only for a fraction of the sessions' time,
 * or for a harmful rate, never for a mere count: so an idle or a well-tuned server gets
 * no advice.
 *
 * What has happened in a window need not go on: a burst of a minute is a part of it for as long as the window
 * lasts.  So advice must hold in the last quarter of the window, too, if the rule can judge that.
 *
 * Ranking: each finding estimates the fraction of the sessions' time that it would
 * save.  Where one fault causes the symptoms of another one, the rule of the latter is
 * silent and names the former.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "utils/timestamp.h"

#include "pgscale.h"
#include "tuning/findings.h"
#include "tuning/tuning.h"

/* With fewer sessions at work there is nothing that could be won. */
#define IDLE			0.1

/* By subject: the table at the end of each file beside this one. */
static const PgscaleTuningRule *const subjects[] = {
	pgscale_tuning_wal_rules,
	pgscale_tuning_checkpoint_rules,
	pgscale_tuning_buffers_rules,
	pgscale_tuning_locks_rules,
	pgscale_tuning_reads_rules,
	pgscale_tuning_memory_rules,
	pgscale_tuning_tables_rules,
	pgscale_tuning_features_rules,
};

const PgscaleTuningRule *
pgscale_tuning_rule(int number)
{
	for (int i = 0; i < lengthof(subjects); i++)
		for (const PgscaleTuningRule *rule = subjects[i]; rule->name; rule++)
			if (number-- == 0)
				return rule;
	return NULL;
}

const PgscaleTuningRule *
pgscale_tuning_rule_named(const char *name)
{
	const PgscaleTuningRule *rule;

	for (int i = 0; (rule = pgscale_tuning_rule(i)) != NULL; i++)
		if (pg_strcasecmp(rule->name, name) == 0)
			return rule;
	return NULL;
}

const char *
pgscale_tuning_verdict_name(PgscaleTuningVerdict verdict)
{
	switch (verdict)
	{
		case PGSCALE_ADVISES:
			return "advises";
		case PGSCALE_SATISFIED:
			return "satisfied";
		default:
			return "silent";
	}
}

/* Sessions' time that each transaction took. */
static void
session_ms(const PgscaleEvidence *e, double *of, double *per)
{
	*of = e->session_ns / 1e6;
	*per = e->counts.commits + e->counts.rollbacks;
}

const PgscaleTuningMetric pgscale_tuning_metric_session_ms = {
	"sessions' time per transaction", "ms", true, session_ms
};

static void
metric_throughput(const PgscaleEvidence *e, double *of, double *per)
{
	*of = e->counts.commits + e->counts.rollbacks;
	*per = pgscale_tuning_seconds(e);
}

const PgscaleTuningMetric pgscale_tuning_metric_throughput = {
	"transactions", "1/s", false, metric_throughput
};

static void
wal_bytes(const PgscaleEvidence *e, double *of, double *per)
{
	*of = e->counts.wal_bytes;
	*per = e->counts.commits + e->counts.rollbacks;
}

const PgscaleTuningMetric pgscale_tuning_metric_wal_bytes = {
	"WAL per transaction", "bytes", true, wal_bytes
};

static void
wal_fraction(const PgscaleEvidence *e, double *of, double *per)
{
	*of = pgscale_tuning_wal_fraction(e) * e->session_ns;
	*per = e->session_ns;
}

const PgscaleTuningMetric pgscale_tuning_metric_wal_fraction = {
	"share of waiting for WAL", "1", true, wal_fraction
};

static const PgscaleTuningMetric *const general_metrics[] = {
	&pgscale_tuning_metric_session_ms, &pgscale_tuning_metric_throughput, NULL
};

static bool
is_about(const PgscaleTuningRule *rule, const char *setting)
{
	for (int i = 0; rule->settings[i]; i++)
		if (pg_strcasecmp(rule->settings[i], setting) == 0)
			return true;
	return pg_strcasecmp(rule->name, setting) == 0;
}

const PgscaleTuningMetric *const *
pgscale_tuning_metrics(const char *setting)
{
	const PgscaleTuningRule *rule;
	const PgscaleTuningMetric *const *metrics = general_metrics;

	for (int i = 0; (rule = pgscale_tuning_rule(i)) != NULL; i++)
	{
		if (!rule->metrics[0])
			continue;
		if (pg_strcasecmp(rule->name, setting) == 0)
			return rule->metrics;
		if (metrics == general_metrics && is_about(rule, setting))
			metrics = rule->metrics;
	}
	return metrics;
}

/* The last change of a setting that the rule is about, and its name. */
static TimestampTz
last_change(const PgscaleTuningRule *rule, const char **setting)
{
	TimestampTz last = 0;

	*setting = NULL;
	for (int i = 0; rule->settings[i]; i++)
	{
		const TimestampTz at = pgscale_tuning_set_at(rule->settings[i]);

		if (at > last)
		{
			last = at;
			*setting = rule->settings[i];
		}
	}
	return last;
}

static PgscaleTuningFinding *
too_short(const PgscaleTuningRule *rule, const PgscaleEvidence *sum, TimestampTz since, const char *changed)
{
	const double have = pgscale_tuning_seconds(sum);
	const double need = PGSCALE_EVIDENCE_S(rule->min_s);

	if (pgscale_evidence_snapshots(PGSCALE_EVIDENCE_HOUR) == 0 && pgscale_evidence_last_ns() == 0)
		return pgscale_tuning_finding(PGSCALE_SILENT, "there is no evidence: the sampler is not at work, see pgscale.health");
	if (changed)
		return pgscale_tuning_finding(PGSCALE_SILENT,
									  "%.0f s of evidence since %s got its value, %s ago: %.0f s are needed",
									  have, changed, psprintf("%.0f s", (GetCurrentTimestamp() - since) / 1e6), need);
	return pgscale_tuning_finding(PGSCALE_SILENT, "%.0f s of evidence: %.0f s are needed", have, need);
}

/* NULL unless a feature claims the setting; otherwise a finding in place of advice. */
static PgscaleTuningFinding *
left_to_feature(const char *about)
{
	PgscaleHealth health;
	PgscaleClaim claim;
	const PgscaleModule *module = pgscale_claimant(about, &health, &claim);

	if (!module)
		return NULL;
	return pgscale_tuning_finding(PGSCALE_SILENT, "pgscale.%s is on and claims %s%s%s: %s; now %s (pgscale.health)", module->name,
								  about, claim.wanted ? ", which is to be " : "", claim.wanted ? claim.wanted : "", claim.why,
								  health.reason);
}

static PgscaleTuningFinding *
rule_ask(const PgscaleTuningRule *rule, const PgscaleTuningRuleInput *input, TimestampTz since, const char *changed)
{
	if (rule->min_s > 0)
	{
		/* Ticks are late now and then, so a minute may lack a moment. */
		if (pgscale_tuning_seconds(input->sum) < 0.95 * PGSCALE_EVIDENCE_S(rule->min_s))
			return too_short(rule, input->sum, since, changed);
		if (pgscale_tuning_busy(input->sum) < IDLE)
			return pgscale_tuning_finding(PGSCALE_SATISFIED,
										  "the server is idle: %.2f sessions at work on average", pgscale_tuning_busy(input->sum));
	}
	return rule->find(input);
}

/* Adds to advice what its rule says of all its advice. */
static void
rule_complete(const PgscaleTuningRule *rule, PgscaleTuningFinding *f)
{
	if (!f->object && !f->setting)
	{
		f->object = rule->object;
		f->setting = rule->object ? NULL : rule->name;
	}
	if (f->setting)
		f->current = pgscale_tuning_setting_text(f->setting);
	if (!f->needs)
		f->needs = rule->needs;
	if (!f->confidence)
		f->confidence = rule->confidence;
	if (!f->risk)
		f->risk = rule->risk;
	Assert(f->needs && f->confidence && f->risk);
}

/*
 * What is left of a finding if a feature minds what it is about (pgscale.h), and if
 * it would not win what every advice has to.
 */
static PgscaleTuningFinding *
rule_judge(const PgscaleTuningRule *rule, PgscaleTuningFinding *f)
{
	const char *about;
	PgscaleTuningFinding *instead;

	if (f->verdict != PGSCALE_ADVISES)
		return f;
	rule_complete(rule, f);
	about = f->setting ? f->setting : f->object;
	instead = left_to_feature(about);
	if (!instead && !rule->no_gain && f->gain < PGSCALE_LEAST_GAIN)
		instead = pgscale_tuning_finding(PGSCALE_SATISFIED, "%s: %s; but a change would save %.1f %% of the "
										 "sessions' time",
										 about, f->reason, 100 * f->gain);
	if (!instead)
		return f;
	instead->next = f->next;
	return instead;
}

/* The last records, of a quarter of the time and of as much as the rule needs at least. */
static void
input_add_latest(const PgscaleTuningRule *rule, PgscaleTuningRuleInput *input)
{
	PgscaleEvidence *latest = palloc0(sizeof(PgscaleEvidence));
	const double enough = Max(0.25 * pgscale_tuning_seconds(input->sum), PGSCALE_EVIDENCE_S(rule->min_s));
	double		s = 0;

	while (input->nlatest < input->nrecords && s < 0.95 * enough)
		s += pgscale_tuning_seconds(&input->records[input->nrecords - ++input->nlatest]);
	for (int i = input->nrecords - input->nlatest; i < input->nrecords; i++)
		pgscale_evidence_add(latest, &input->records[i]);
	input->latest = latest;
}

PgscaleTuningRuleInput *
pgscale_tuning_input(const PgscaleTuningRule *rule, int64 duration_ms, TimestampTz *since, const char **changed)
{
	PgscaleEvidence *records = palloc(PGSCALE_EVIDENCE_MAX * sizeof(PgscaleEvidence));
	PgscaleEvidence *sum = palloc0(sizeof(PgscaleEvidence));
	PgscaleTuningRuleInput *input = palloc0(sizeof(PgscaleTuningRuleInput));
	const TimestampTz now = GetCurrentTimestamp();
	const TimestampTz changed_at = last_change(rule, changed);

	*since = now - duration_ms * 1000;
	if (changed_at > *since)
		*since = changed_at;
	else
		*changed = NULL;
	input->sum = sum;
	input->records = records;
	input->nrecords = pgscale_evidence_read(*since, now, records, PGSCALE_EVIDENCE_MAX);
	for (int i = 0; i < input->nrecords; i++)
		pgscale_evidence_add(sum, &records[i]);
	input_add_latest(rule, input);
	return input;
}

/* Of a burst that is over: what the rule finds in the last part of the window instead.  NULL: it goes on, or that is not known. */
static PgscaleTuningFinding *
find_over(const PgscaleTuningRule *rule, const PgscaleTuningRuleInput *input, const PgscaleTuningFinding *found)
{
	PgscaleTuningRuleInput last = *input;
	const PgscaleTuningFinding *now;

	if (rule->min_s == 0 || rule->by_checkpoint || found->verdict != PGSCALE_ADVISES || input->nlatest == input->nrecords)
		return NULL;
	last.sum = input->latest;
	last.records = &input->records[input->nrecords - input->nlatest];
	last.nrecords = input->nlatest;
	now = rule_ask(rule, &last, 0, NULL);
	if (now->verdict != PGSCALE_SATISFIED)
		return NULL;
	return pgscale_tuning_finding(PGSCALE_SATISFIED, "in the last %.0f s: %s; before that: %s", pgscale_tuning_seconds(last.sum),
								  now->reason, found->reason);
}

PgscaleTuningFinding *
pgscale_tuning_find(const PgscaleTuningRule *rule, int64 duration_ms, bool probe)
{
	TimestampTz since;
	const char *changed;
	PgscaleTuningRuleInput *input = pgscale_tuning_input(rule, duration_ms, &since, &changed);
	PgscaleTuningFinding *found = left_to_feature(rule->name);

	input->probe = probe;
	if (!found)
	{
		PgscaleTuningFinding *over;

		found = rule_ask(rule, input, since, changed);
		over = find_over(rule, input, found);
		if (over)
			found = over;
	}
	for (PgscaleTuningFinding **next = &found; *next; next = &(*next)->next)
	{
		PgscaleTuningFinding *f = *next = rule_judge(rule, *next);

		f->since = input->nrecords > 0 ? input->sum->since : 0;
		f->until = input->nrecords > 0 ? input->sum->until : 0;
	}
	pfree(unconstify(PgscaleEvidence *, input->records));
	return found;
}

static void
sum_evidence(TimestampTz since, TimestampTz until, PgscaleEvidence *sum)
{
	PgscaleEvidence *records = palloc(PGSCALE_EVIDENCE_MAX * sizeof(PgscaleEvidence));

	/* of no time there is none, although a record may end right now */
	const int	n = since < until ? pgscale_evidence_read(since, until, records, PGSCALE_EVIDENCE_MAX) : 0;

	memset(sum, 0, sizeof(*sum));
	for (int i = 0; i < n; i++)
		pgscale_evidence_add(sum, &records[i]);
	pfree(records);
}

void
pgscale_tuning_window(int64 duration_ms, PgscaleEvidence *sum)
{
	const TimestampTz now = GetCurrentTimestamp();

	sum_evidence(now - duration_ms * 1000, now, sum);
}

void
pgscale_tuning_window_before(int64 duration_ms, PgscaleEvidence *sum)
{
	sum_evidence(DT_NOBEGIN, GetCurrentTimestamp() - duration_ms * 1000, sum);
}
