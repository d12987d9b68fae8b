/*-------------------------------------------------------------------------
 *
 * now_evidence.c
 *	  Reads the evidence of diagnosis from jsonb.
 *
 * Tables say which member of the object is which member of the struct.  A new member
 * of the evidence that rules read needs a line here; rules never search a text.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <math.h>

#include "fmgr.h"
#include "utils/builtins.h"
#include "utils/numeric.h"

#include "base/pg_compat.h"
#include "now/now_evidence.h"

typedef enum MemberType
{
	MEMBER_NUMBER,				/* double; NaN if unknown */
	MEMBER_COUNT,				/* double; 0 if unknown */
	MEMBER_TEXT,				/* NULL if unknown */
	MEMBER_BOOL					/* false if unknown */
} MemberType;

typedef struct Member
{
	const char *name;			/* NULL ends a table */
	MemberType	type;
	size_t		offset;
} Member;

#define PERIOD_MEMBER(type, member)		{#member, type, offsetof(PgscaleNowPeriod, member)}
#define SESSION_MEMBER(type, member)	{#member, type, offsetof(PgscaleNowSession, member)}
#define EVIDENCE_MEMBER(type, member)	{#member, type, offsetof(PgscaleNowEvidence, member)}

static const Member period_members[] = {
	PERIOD_MEMBER(MEMBER_COUNT, s),
	PERIOD_MEMBER(MEMBER_COUNT, active),
	PERIOD_MEMBER(MEMBER_NUMBER, flush_ms),
	PERIOD_MEMBER(MEMBER_NUMBER, read_ms),
	PERIOD_MEMBER(MEMBER_NUMBER, reads_per_s),
	PERIOD_MEMBER(MEMBER_NUMBER, commits_per_s),
	PERIOD_MEMBER(MEMBER_NUMBER, rollbacks_per_s),
	PERIOD_MEMBER(MEMBER_NUMBER, deadlocks_per_s),
	PERIOD_MEMBER(MEMBER_NUMBER, temp_bytes_per_s),
	PERIOD_MEMBER(MEMBER_NUMBER, wal_bytes_per_s),
	{NULL}
};

static const Member session_members[] = {
	SESSION_MEMBER(MEMBER_TEXT, gid),
	SESSION_MEMBER(MEMBER_TEXT, gid_shown),
	SESSION_MEMBER(MEMBER_TEXT, database),
	SESSION_MEMBER(MEMBER_TEXT, application),
	SESSION_MEMBER(MEMBER_TEXT, backend_type),
	SESSION_MEMBER(MEMBER_TEXT, state),
	SESSION_MEMBER(MEMBER_TEXT, event_type),
	SESSION_MEMBER(MEMBER_TEXT, event),
	SESSION_MEMBER(MEMBER_TEXT, query),
	SESSION_MEMBER(MEMBER_TEXT, command),
	SESSION_MEMBER(MEMBER_COUNT, age_s),
	SESSION_MEMBER(MEMBER_NUMBER, transaction_s),
	SESSION_MEMBER(MEMBER_NUMBER, transaction_least_s),
	SESSION_MEMBER(MEMBER_NUMBER, state_s),
	SESSION_MEMBER(MEMBER_NUMBER, cpus),
	SESSION_MEMBER(MEMBER_NUMBER, demand),
	SESSION_MEMBER(MEMBER_NUMBER, cpu_s),
	SESSION_MEMBER(MEMBER_NUMBER, ran_s),
	SESSION_MEMBER(MEMBER_COUNT, workers),
	SESSION_MEMBER(MEMBER_COUNT, waiters),
	SESSION_MEMBER(MEMBER_COUNT, rows),
	SESSION_MEMBER(MEMBER_COUNT, longest_s),
	SESSION_MEMBER(MEMBER_TEXT, locktype),
	SESSION_MEMBER(MEMBER_TEXT, relation),
	SESSION_MEMBER(MEMBER_BOOL, waits),
	SESSION_MEMBER(MEMBER_NUMBER, waited_ago_s),
	SESSION_MEMBER(MEMBER_COUNT, maintenance),
	SESSION_MEMBER(MEMBER_COUNT, first_s),
	SESSION_MEMBER(MEMBER_COUNT, queue_s),
	SESSION_MEMBER(MEMBER_COUNT, row_wait_s),
	SESSION_MEMBER(MEMBER_COUNT, holders),
	SESSION_MEMBER(MEMBER_COUNT, behind_gate),
	SESSION_MEMBER(MEMBER_TEXT, gate_application),
	SESSION_MEMBER(MEMBER_TEXT, gate_type),
	SESSION_MEMBER(MEMBER_TEXT, gate_query),
	{NULL}
};

static const Member evidence_members[] = {
	EVIDENCE_MEMBER(MEMBER_BOOL, standby),
	EVIDENCE_MEMBER(MEMBER_COUNT, used),
	EVIDENCE_MEMBER(MEMBER_COUNT, idle),
	EVIDENCE_MEMBER(MEMBER_COUNT, idle_in_transaction),
	EVIDENCE_MEMBER(MEMBER_COUNT, starting),
	EVIDENCE_MEMBER(MEMBER_COUNT, new),
	EVIDENCE_MEMBER(MEMBER_COUNT, max_connections),
	EVIDENCE_MEMBER(MEMBER_COUNT, reserved),
	EVIDENCE_MEMBER(MEMBER_TEXT, application),
	EVIDENCE_MEMBER(MEMBER_COUNT, application_sessions),
	EVIDENCE_MEMBER(MEMBER_COUNT, application_idle),
	EVIDENCE_MEMBER(MEMBER_COUNT, cpus),
	EVIDENCE_MEMBER(MEMBER_NUMBER, queued_fraction),
	EVIDENCE_MEMBER(MEMBER_COUNT, long_computing),
	EVIDENCE_MEMBER(MEMBER_BOOL, flush_measured),
	EVIDENCE_MEMBER(MEMBER_COUNT, look_s),
	EVIDENCE_MEMBER(MEMBER_COUNT, stuck_flushes),
	EVIDENCE_MEMBER(MEMBER_COUNT, checkpoints_requested),
	EVIDENCE_MEMBER(MEMBER_COUNT, minute_s),
	EVIDENCE_MEMBER(MEMBER_COUNT, minute_wal_bytes),
	EVIDENCE_MEMBER(MEMBER_NUMBER, max_wal_size_bytes),
	EVIDENCE_MEMBER(MEMBER_NUMBER, minute_max_wal_size_bytes),
	EVIDENCE_MEMBER(MEMBER_TEXT, max_wal_size_wanted),
	EVIDENCE_MEMBER(MEMBER_COUNT, usual_checkpoints_requested),
	EVIDENCE_MEMBER(MEMBER_TEXT, checkpointer_event),
	EVIDENCE_MEMBER(MEMBER_NUMBER, wal_size_bytes),
	EVIDENCE_MEMBER(MEMBER_NUMBER, wal_free_bytes),
	EVIDENCE_MEMBER(MEMBER_COUNT, wal_used_bytes),
	EVIDENCE_MEMBER(MEMBER_NUMBER, data_size_bytes),
	EVIDENCE_MEMBER(MEMBER_NUMBER, data_free_bytes),
	EVIDENCE_MEMBER(MEMBER_TEXT, slot),
	EVIDENCE_MEMBER(MEMBER_BOOL, slot_active),
	EVIDENCE_MEMBER(MEMBER_COUNT, slot_bytes),
	EVIDENCE_MEMBER(MEMBER_NUMBER, archive_failed_s),
	EVIDENCE_MEMBER(MEMBER_NUMBER, sync_wanted),
	EVIDENCE_MEMBER(MEMBER_NUMBER, sync_standbys),
	EVIDENCE_MEMBER(MEMBER_COUNT, sync_catching_up),
	EVIDENCE_MEMBER(MEMBER_NUMBER, sync_flushed),
	EVIDENCE_MEMBER(MEMBER_TEXT, sync_replaying),
	EVIDENCE_MEMBER(MEMBER_BOOL, sync_apply),
	EVIDENCE_MEMBER(MEMBER_BOOL, patroni),
	EVIDENCE_MEMBER(MEMBER_TEXT, sync_fewer),
	EVIDENCE_MEMBER(MEMBER_TEXT, conflict),
	EVIDENCE_MEMBER(MEMBER_NUMBER, conflict_s),
	EVIDENCE_MEMBER(MEMBER_NUMBER, deadlock_timeout_s),
	EVIDENCE_MEMBER(MEMBER_NUMBER, watched_s),
	EVIDENCE_MEMBER(MEMBER_NUMBER, oldest_xid_age),
	EVIDENCE_MEMBER(MEMBER_TEXT, oldest_xid_database),
	EVIDENCE_MEMBER(MEMBER_TEXT, xmin_holder),
	EVIDENCE_MEMBER(MEMBER_TEXT, xmin_name),
	EVIDENCE_MEMBER(MEMBER_TEXT, xmin_shown),
	EVIDENCE_MEMBER(MEMBER_COUNT, xmin_age),
	EVIDENCE_MEMBER(MEMBER_NUMBER, xmin_s),
	EVIDENCE_MEMBER(MEMBER_TEXT, limited),
	EVIDENCE_MEMBER(MEMBER_TEXT, limited_name),
	EVIDENCE_MEMBER(MEMBER_TEXT, limited_shown),
	EVIDENCE_MEMBER(MEMBER_COUNT, limited_connections),
	EVIDENCE_MEMBER(MEMBER_COUNT, limited_idle),
	{NULL}
};

static bool
find_member(JsonbContainer *object, const char *name, JsonbValue *value)
{
	return object && JsonContainerIsObject(object) &&
		getKeyJsonValueFromContainer(object, name, (int) strlen(name), value) != NULL;
}

/* A member that is an object or an array itself; NULL if there is none. */
static JsonbContainer *
find_container(JsonbContainer *object, const char *name)
{
	JsonbValue	value;

	return find_member(object, name, &value) && value.type == jbvBinary ? value.val.binary.data : NULL;
}

static double
number_member(JsonbContainer *object, const char *name, double unknown)
{
	JsonbValue	value;

	if (!find_member(object, name, &value) || value.type != jbvNumeric)
		return unknown;
	return DatumGetFloat8(DirectFunctionCall1(numeric_float8, NumericGetDatum(value.val.numeric)));
}

static const char *
text_member(JsonbContainer *object, const char *name)
{
	JsonbValue	value;

	return find_member(object, name, &value) && value.type == jbvString ?
		pnstrdup(value.val.string.val, value.val.string.len) : NULL;
}

static bool
bool_member(JsonbContainer *object, const char *name)
{
	JsonbValue	value;

	return find_member(object, name, &value) && value.type == jbvBool && value.val.boolean;
}

static void
read_members(JsonbContainer *object, const Member *members, void *into)
{
	for (const Member *m = members; m->name; m++)
	{
		char	   *at = (char *) into + m->offset;

		switch (m->type)
		{
			case MEMBER_NUMBER:
				*(double *) at = number_member(object, m->name, NAN);
				break;
			case MEMBER_COUNT:
				*(double *) at = number_member(object, m->name, 0);
				break;
			case MEMBER_TEXT:
				*(const char **) at = text_member(object, m->name);
				break;
			case MEMBER_BOOL:
				*(bool *) at = bool_member(object, m->name);
				break;
		}
	}
}

static void
read_now_period(JsonbContainer *object, PgscaleNowPeriod *period)
{
	JsonbContainer *kinds = find_container(object, "kinds");

	read_members(object, period_members, period);
	for (int i = 0; i < PGSCALE_WAIT_KINDS; i++)
		period->kinds[i] = number_member(kinds, pgscale_wait_kind_name(i), 0);
}

static int
pid_member(JsonbContainer *object, const char *name)
{
	return (int) Min(Max(number_member(object, name, 0), 0), INT_MAX);
}

static Oid
oid_member(JsonbContainer *object, const char *name)
{
	return (Oid) Min(Max(number_member(object, name, InvalidOid), InvalidOid), OID_MAX);
}

static int
read_sessions(JsonbContainer *array, PgscaleNowSession *sessions)
{
	int			n = 0;

	/* in evidence that is made up it may be nested */
	check_stack_depth();
	if (!array || !JsonContainerIsArray(array))
		return 0;
	for (uint32 i = 0; i < JsonContainerSize(array) && n < PGSCALE_NOW_SESSIONS; i++)
	{
		JsonbValue *element = getIthJsonbValueFromContainer(array, i);
		JsonbContainer *object;
		JsonbContainer *pinning;

		if (!element || element->type != jbvBinary)
			continue;
		object = element->val.binary.data;
		read_members(object, session_members, &sessions[n]);
		sessions[n].pid = pid_member(object, "pid");
		sessions[n].role = oid_member(object, "role");
		sessions[n].gate_role = oid_member(object, "gate_role");
		sessions[n].gate_pid = pid_member(object, "gate_pid");
		pinning = find_container(object, "pinning");
		if (pinning)
		{
			sessions[n].pinning = palloc0(PGSCALE_NOW_SESSIONS * sizeof(PgscaleNowSession));
			sessions[n].npinning = read_sessions(pinning, sessions[n].pinning);
		}
		n++;
	}
	return n;
}

void
pgscale_now_evidence_read(Jsonb *json, PgscaleNowEvidence *e)
{
	JsonbContainer *root = &json->root;

	memset(e, 0, sizeof(*e));
	read_members(root, evidence_members, e);
	e->oldest_xid_owner = oid_member(root, "oldest_xid_owner");
	e->xmin_role = oid_member(root, "xmin_role");
	e->limited_role = oid_member(root, "limited_role");
	read_now_period(find_container(root, "now"), &e->now);
	read_now_period(find_container(root, "half_minute"), &e->half_minute);
	read_now_period(find_container(root, "usual"), &e->usual);
	e->nroots = read_sessions(find_container(root, "roots"), e->roots);
	e->ncomputing = read_sessions(find_container(root, "computing"), e->computing);
	e->nconflicting = read_sessions(find_container(root, "conflicting"), e->conflicting);
	e->nsessions = read_sessions(find_container(root, "sessions"), e->sessions);
}
