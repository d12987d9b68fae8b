/*-------------------------------------------------------------------------
 *
 * rule_table.h
 *	  Rules about settings, and the metrics that verify a change of them.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_TUNING_RULES_RULE_TABLE_H
#define PGSCALE_TUNING_RULES_RULE_TABLE_H

#include "postgres.h"

#include "utils/jsonb.h"

#include "base/evidence.h"

/* A figure that evidence of any length has, such as the WAL of a transaction. */
typedef struct PgscaleTuningMetric
{
	const char *name;
	const char *unit;
	bool		less_is_better;

	/*
	 * It is one count divided by another.  Of several records it is the sums
	 * that are divided: one without a transaction took its time, too.  NaN:
	 * unknown.
	 */
	void		(*parts) (const PgscaleEvidence *evidence, double *of, double *per);
} PgscaleTuningMetric;

/* What a rule has found. */
typedef enum PgscaleTuningVerdict
{
	PGSCALE_SILENT,				/* reason says what is missing */
	PGSCALE_SATISFIED,
	PGSCALE_ADVISES
} PgscaleTuningVerdict;

typedef struct PgscaleTuningFinding
{
	PgscaleTuningVerdict verdict;
	const char *reason;			/* one sentence, with the reason's source */
	const char *setting;		/* NULL: nothing that ALTER SYSTEM can set */
	const char *object;			/* a tablespace, table or else that it is
								 * about, and then setting is NULL; or NULL */
	const char *current;		/* as SHOW has it */
	const char *recommended;	/* as ALTER SYSTEM takes it, or what to do */
	Jsonb	   *evidence;		/* an object: the numbers */
	double		gain;			/* of the sessions' time, 0 .. 1: to rank */
	const char *needs;			/* reload, restart, superuser, offline ... */
	const char *confidence;		/* high, medium, low */
	const char *risk;
	TimestampTz since;			/* the evidence's window */
	TimestampTz until;
	struct PgscaleTuningFinding *next;	/* a rule may find several things */
} PgscaleTuningFinding;

/* What a rule may look at. */
typedef struct PgscaleTuningRuleInput
{
	const PgscaleEvidence *sum; /* of the window */
	const PgscaleEvidence *records;
	int			nrecords;
	const PgscaleEvidence *latest;	/* of the last part of the window, a
									 * quarter of it at least */
	int			nlatest;		/* so many records */
	bool		probe;			/* may it make disks work? */
} PgscaleTuningRuleInput;

/*
 * What advice has in common whatever the evidence is stands here.  Where it depends
 * on the evidence, find() sets it in the finding, which takes precedence.
 */
typedef struct PgscaleTuningRule
{
	const char *name;			/* the setting that it is about, unless there
								 * is an object */
	const char *object;			/* as in a finding */
	int			min_s;			/* evidence shorter than that is too short; 0:
								 * it needs none */
	const char *settings[8];	/* NULL-terminated: evidence from before a
								 * change of one of them does not count; the
								 * metrics verify them */
	const PgscaleTuningMetric *metrics[4];	/* NULL-terminated, the first with
											 * a result decides; or none */
	bool		by_checkpoint;	/* it is about checkpoints, of which the last
								 * part of the window may lack any; else it
								 * must hold there, too */
	bool		no_gain;		/* no metric: without it pgscale does not work */
	const char *needs;			/* as in a finding, the next two, too */
	const char *confidence;
	const char *risk;
	PgscaleTuningFinding *(*find) (const PgscaleTuningRuleInput *input);
} PgscaleTuningRule;

/* The rules, from number 0 on; NULL after the last. */
extern const PgscaleTuningRule *pgscale_tuning_rule(int number);

/* The rule of that name; NULL if there is none. */
extern const PgscaleTuningRule *pgscale_tuning_rule_named(const char *name);

/*
 * The evidence no older than that which counts for a rule.  *since is set to when it may begin,
 * *changed to the setting whose change cut it off, or to NULL.
 */
extern PgscaleTuningRuleInput *pgscale_tuning_input(const PgscaleTuningRule *rule, int64 duration_ms, TimestampTz *since,
													const char **changed);

/* Evaluates one rule, with evidence no older than that.  All in the current memory context. */
extern PgscaleTuningFinding *pgscale_tuning_find(const PgscaleTuningRule *rule, int64 duration_ms, bool probe);

/* The sum of the evidence no older than that. */
extern void pgscale_tuning_window(int64 duration_ms, PgscaleEvidence *sum);

/* And that of all older evidence, which is of the hour before now: what is usual. */
extern void pgscale_tuning_window_before(int64 duration_ms, PgscaleEvidence *sum);

/*
 * The metrics of a setting: those of the rule that recommends it, otherwise of the
 * first rule about it, otherwise the general ones.
 */
extern const PgscaleTuningMetric *const *pgscale_tuning_metrics(const char *setting);

/* As SQL shows it. */
extern const char *pgscale_tuning_verdict_name(PgscaleTuningVerdict verdict);

#endif							/* PGSCALE_TUNING_RULES_RULE_TABLE_H */
