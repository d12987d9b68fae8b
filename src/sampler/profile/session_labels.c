/*-------------------------------------------------------------------------
 *
 * session_labels.c
 *	  Extra columns of the wait profile: the application, the client's address, the
 *	  plan.
 *
 * The plan identifier is a number and a part of the profile's key; this file only knows
 * whether it is wanted.  Application and address are texts, and samples have room for a
 * number.  So each pair of them gets a number when it is first seen, and keeps it until
 * the profile is reset.  Pairs have a space of fixed size.  When it is full, all
 * further pairs share one number, whose application is "other".  Any client can set any
 * name, so this is the limit.
 *
 * Only the sampler adds pairs.  It removes them only with the whole profile.  A pair is
 * complete before the count includes it.  A reader that needs the texts of a copy of
 * the profile copies the texts after the profile, and copies both again if there was a
 * reset meanwhile.
 *
 * A session's texts are read when its status has changed, and their hash, of 64 bits, is
 * compared with the previous one.
 *
 * pgscale.sampler_dimensions can be changed by a reload: the memory for texts is always
 * there, and the sampler is the only process that acts on the setting.  Each pair records
 * whether it has an application, so readers need not know what the setting was.  What was
 * counted before a change keeps its pair until the profile is emptied.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "common/hashfn.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "utils/acl.h"
#include "utils/guc.h"
#include "utils/varlena.h"

#include "base/change_count.h"
#include "base/pg_compat.h"
#include "base/processes.h"
#include "sampler/profile/profile.h"
#include "sampler/samples.h"

/* Without any, and the last for all that have no number of their own. */
#define NONE		0
#define MAX_VALUES	1000
#define OTHER		MAX_VALUES

#define OTHER_NAME	"other"

/* In a file, in place of a name that was not wanted: no session can have it, and no file's reader takes it. */
#define NO_NAME		"\177"

typedef struct LabelValue
{
	PgscaleProcClient client;	/* what is not wanted is empty */
	bool		has_application;	/* it was wanted, and may be empty */
} LabelValue;

typedef struct Labels
{
	PgscaleChangeCount resets;	/* a reset is under way while it is odd */
	pg_atomic_uint32 used;		/* of the values */
	uint64		hashes[MAX_VALUES]; /* of the values, for the sampler */
	LabelValue	values[MAX_VALUES]; /* the first is of number 1 */
} Labels;

/* A reader's copy. */
struct PgscaleSamplerLabels
{
	bool		reads_all;		/* of all users' sessions */
	uint32		used;
	LabelValue	values[FLEXIBLE_ARRAY_MEMBER];
};

/* Possible extra columns of the profile. */
typedef struct Wanted
{
	bool		application;
	bool		address;
	bool		plan_id;
} Wanted;

static char *setting = NULL;
static Wanted by;				/* the setting, as the sampler last applied
								 * it; in the postmaster, that of the start */
static Labels *labels = NULL;

/* Which of them a text names.  Returns false if it names anything else. */
static bool
labels_parse(const char *text, Wanted *wanted)
{
	char	   *copy = pstrdup(text);
	List	   *names = NIL;
	ListCell   *cell;
	bool		known;

	memset(wanted, 0, sizeof(*wanted));
	known = SplitIdentifierString(copy, ',', &names);
	foreach(cell, names)
	{
		const char *name = lfirst(cell);

		if (strcmp(name, "application_name") == 0)
			wanted->application = true;
		else if (strcmp(name, "client_addr") == 0)
			wanted->address = true;
		else if (strcmp(name, "plan_id") == 0)
			wanted->plan_id = true;
		else
			known = false;
	}
	list_free(names);
	pfree(copy);
	return known;
}

/*
 * The plan is accepted on every major, so that one configuration works on all: health
 * says where the server has no plan identifiers.
 */
static bool
labels_check(char **newval, void **extra, GucSource source)
{
	Wanted		wanted;

	if (labels_parse(*newval, &wanted))
		return true;
	GUC_check_errdetail("It is a list of application_name, client_addr and plan_id, or empty.");
	return false;
}

void
pgscale_sampler_labels_define_guc(void)
{
	DefineCustomStringVariable("pgscale.sampler_dimensions",
							   "Extra columns by which the wait profile splits waits: application_name, client_addr, plan_id.",
							   "A comma-separated list. Each column makes more rows of the profile.",
							   &setting, "application_name",
							   PGC_SIGHUP, GUC_LIST_INPUT, labels_check, NULL, NULL);
}

bool
pgscale_sampler_labels_apply(void)
{
	const Wanted before = by;

	(void) labels_parse(setting, &by);
	return by.application != before.application || by.address != before.address || by.plan_id != before.plan_id;
}

bool
pgscale_sampler_by_plan_id(void)
{
	return PGSCALE_PLAN_IDS && by.plan_id;
}

bool
pgscale_sampler_plan_id_unknown(void)
{
	Wanted		wanted;

	return !PGSCALE_PLAN_IDS && labels_parse(setting, &wanted) && wanted.plan_id;
}

static void
labels_init(void)
{
	(void) pgscale_sampler_labels_apply();
	pgscale_change_init(&labels->resets);
	pg_atomic_init_u32(&labels->used, 0);
}

static uint64
hash_of_value(const LabelValue *value)
{
	const char *name = value->client.application_name;
	const uint64 of_name = value->has_application ? hash_bytes_extended((const unsigned char *) name, strlen(name), 0) : 0;

	return hash_bytes_extended((const unsigned char *) value->client.address, strlen(value->client.address), of_name);
}

/* The number of a value with this hash, made if need be. */
static uint16
number_of_value(const LabelValue *value, uint64 hash)
{
	const uint32 used = pg_atomic_read_u32(&labels->used);

	for (uint32 i = 0; i < used; i++)
		if (labels->hashes[i] == hash)
			return i + 1;
	if (used == MAX_VALUES - 1)
		return OTHER;
	Assert(used < MAX_VALUES);
	labels->values[used] = *value;
	labels->hashes[used] = hash;
	pg_write_barrier();
	pg_atomic_write_u32(&labels->used, used + 1);
	return used + 1;
}

void
pgscale_sampler_label_of(const PgscaleProc *proc, int slot, PgscaleSamplerLabel *label)
{
	LabelValue	value;
	uint64		hash;

	if (!proc->session || !(by.application || by.address))
	{
		label->number = NONE;
		return;
	}
	memset(&value, 0, sizeof(value));
	if (!pgscale_procs_read_client(proc->leader_slot >= 0 ? proc->leader_slot : slot, by.address, &value.client))
		return;
	value.has_application = by.application;
	if (!by.application)
		value.client.application_name[0] = '\0';

	hash = hash_of_value(&value);
	if (label->number != NONE && label->hash == hash)
		return;
	label->number = number_of_value(&value, hash);
	label->hash = hash;
}

/*
 * All that has a number was emptied just before: a reader that began before the reset finds
 * it, and reads again.
 */
static void
labels_reset(int64 now)
{
	(void) pgscale_change_begin_write(&labels->resets);
	pg_atomic_write_u32(&labels->used, 0);
	pgscale_change_end_write(&labels->resets);
}

/* The one before may have ended within a reset. */
static void
labels_attach(void)
{
	(void) pgscale_change_begin_write(&labels->resets);
	pgscale_change_end_write(&labels->resets);
}

const PgscaleArea pgscale_sampler_labels_area = {
	.name = "pgscale sampler dimensions",
	.at = (void **) &labels,
	.size = sizeof(Labels),
	.init = labels_init,
};

const PgscaleSamplerConsumer pgscale_sampler_labels_consumer = {
	.attach = labels_attach,
	.reset = labels_reset,
};

PgscaleSamplerLabels *
pgscale_sampler_labels_read_with(void (*read) (void *arg), void *arg)
{
	for (;;)
	{
		const uint64 before = pgscale_change_wait(&labels->resets);
		PgscaleSamplerLabels *copy;
		uint32		used;

		read(arg);
		used = pg_atomic_read_u32(&labels->used);
		pg_read_barrier();
		copy = palloc(offsetof(PgscaleSamplerLabels, values) + used * sizeof(LabelValue));
		copy->reads_all = has_privs_of_role(GetUserId(), ROLE_PG_READ_ALL_STATS);
		copy->used = used;
		memcpy(copy->values, labels->values, used * sizeof(LabelValue));
		if (pgscale_change_is_unchanged(&labels->resets, before))
			return copy;
		pfree(copy);
		CHECK_FOR_INTERRUPTS();
	}
}

void
pgscale_sampler_label(const PgscaleSamplerLabels *copy, uint16 number, Oid userid,
					  const char **application_name, const char **address)
{
	*application_name = *address = NULL;
	if (number == NONE || !(copy->reads_all || userid == GetUserId()))
		return;
	if (number == OTHER)
		*application_name = OTHER_NAME;
	else if (number <= copy->used)
	{
		const LabelValue *value = &copy->values[number - 1];

		if (value->has_application)
			*application_name = value->client.application_name;
		if (value->client.address[0] != '\0')
			*address = value->client.address;
	}
}

int
pgscale_sampler_label_names(PgscaleSamplerName * names, int most)
{
	const int	n = Min(pg_atomic_read_u32(&labels->used), most);

	for (int i = 0; i < n; i++)
	{
		const LabelValue *value = &labels->values[i];

		memset(names[i], 0, NAMEDATALEN);
		strlcpy(names[i], value->has_application ? value->client.application_name : NO_NAME, NAMEDATALEN);
	}
	return n;
}

bool
pgscale_sampler_label_is_other(uint16 number)
{
	return number == OTHER;
}

uint16
pgscale_sampler_label_of_name(const char *application_name)
{
	LabelValue	value;

	if (!by.application)
		return NONE;
	memset(&value, 0, sizeof(value));
	value.has_application = true;
	strlcpy(value.client.application_name, application_name, sizeof(value.client.application_name));
	return number_of_value(&value, hash_of_value(&value));
}
