/*-------------------------------------------------------------------------
 *
 * revert.c
 *	  Reverts a change of a setting.
 *
 * The previous line is restored if the present line is the one that the change made:
 * later changes by hand are not undone without force.  Nor is a change below a later
 * one of the same setting, because the old value of the later one would become wrong;
 * with force both are reverted.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "fmgr.h"
#include "utils/builtins.h"

#include "tuning/changes/auto_conf.h"
#include "tuning/changes/changes.h"
#include "tuning/changes/journal.h"

PG_FUNCTION_INFO_V1(pgscale_tuning_revert);

/* May it be reverted, as far as the journal knows? */
static void
check_revertable(const PgscaleTuningChange *change, bool force)
{
	int64		later;

	if (change->foreign)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("change " INT64_FORMAT " is of %s", change->id, change->foreign),
				 errdetail("Its row came here with a copy of that journal."),
				 errhint("Revert it there, or restore the previous value here: %s.",
						 pgscale_tuning_change_statement(change->setting, change->old_value, false))));
	if (strcmp(change->state, PGSCALE_CHANGE_REVERTED) == 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("change " INT64_FORMAT " already was reverted, by change " INT64_FORMAT, change->id, change->reverted_by),
				 errhint("To make it again: %s.", pgscale_tuning_change_statement(change->setting, change->new_value, false))));
	if (strcmp(change->state, PGSCALE_CHANGE_APPLIED) != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("change " INT64_FORMAT " was not made, so there is nothing to revert", change->id),
				 errhint("pgscale.tuning_journal has its state and its error.")));
	if (change->revert_of != 0)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("change " INT64_FORMAT " is itself the revert of change " INT64_FORMAT, change->id, change->revert_of),
				 errhint("To restore the previous value: %s.", pgscale_tuning_change_statement(change->setting, change->old_value, false))));
	later = pgscale_tuning_journal_later(change);
	if (later != 0 && !force)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("\"%s\" was changed again since, by change " INT64_FORMAT, change->setting, later),
				 errhint("Revert that change first; force => true reverts all changes since then along with this one.")));
}

/* Where it was made, as far as the user may know. */
static const char *
node_of(const PgscaleTuningChange *change)
{
	if (!change->other_node)
		return "this node before its last promotion or restore";
	return pgscale_tuning_line_visible("data_directory") ? psprintf("another node, %s", change->node) : "another node";
}

/* May the line that is there be replaced by the one that was before the change? */
static void
check_line(const PgscaleTuningChange *change, const PgscaleTuningChange *back, bool force)
{
	const char *was = pgscale_tuning_line_show(change->setting, change->new_value);
	const char *is = pgscale_tuning_line_show(change->setting, back->old_value);
	const char *back_to = pgscale_tuning_line_show(change->setting, change->old_value);

	if (force || pgscale_tuning_line_same(back->old_value, change->new_value))
		return;
	if (!change->elsewhere)
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("\"%s\" was changed by hand since change " INT64_FORMAT, change->setting, change->id),
				 errdetail("\"%s\" had %s since then and has %s now.", PG_AUTOCONF_FILENAME, was, is),
				 errhint("force => true overwrites it with %s.", back_to)));
	if (!pgscale_tuning_line_same(back->old_value, change->old_value))
		ereport(ERROR,
				(errcode(ERRCODE_OBJECT_NOT_IN_PREREQUISITE_STATE),
				 errmsg("change " INT64_FORMAT " was made on %s", change->id, node_of(change)),
				 errdetail("\"%s\", which is not replicated, had %s there and has %s here.", PG_AUTOCONF_FILENAME, was, is),
				 errhint("force => true overwrites it with %s.  To make the change here: %s.", back_to,
						 pgscale_tuning_change_statement(change->setting, change->new_value, false))));
	ereport(NOTICE,
			(errmsg("change " INT64_FORMAT " was made on %s, and \"%s\" here has what it had before",
					change->id, node_of(change), PG_AUTOCONF_FILENAME)));
}

/* CALL pgscale.revert(change, reload, force, reverted_by) */
Datum
pgscale_tuning_revert(PG_FUNCTION_ARGS)
{
	bool		reload = pgscale_tuning_change_bool(fcinfo, 1, "reload");
	bool		force = pgscale_tuning_change_bool(fcinfo, 2, "force");
	PgscaleTuningChange change;
	PgscaleTuningChange back = {0};

	if (PG_ARGISNULL(0))
		pgscale_tuning_change_null("change", "pgscale.tuning_journal lists the changes.");
	pgscale_tuning_change_begin(fcinfo, "revert", reload);
	pgscale_tuning_change_lock();
	if (!pgscale_tuning_journal_get(PG_GETARG_INT64(0), &change))
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("there is no change " INT64_FORMAT " in this database's journal", PG_GETARG_INT64(0)),
				 errhint("pgscale.tuning_journal lists the changes. Each database with the extension has a journal of its own.")));
	check_revertable(&change, force);
	back.setting = unconstify(char *, pgscale_tuning_line_check(change.setting, change.old_value));
	back.new_value = change.old_value;
	back.revert_of = change.id;
	pgscale_tuning_change_remember(&back);
	check_line(&change, &back, force);
	if (!force)
		pgscale_tuning_start_check(back.setting, back.new_value,
								   psprintf("CALL pgscale.revert(" INT64_FORMAT ", force => true)", change.id));
	if (force)
		pgscale_tuning_change_check_old(&back);
	return pgscale_tuning_change_one(fcinfo, &back, reload);
}
