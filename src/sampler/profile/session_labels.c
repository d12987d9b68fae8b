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
 * All of this costs nothing unless pgscale.sampler_dimensions asks for it.  Then a
 * session's texts are read when its status has changed, and their hash, of 64 bits, is
 * compared with the previous one.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "common/hashfn.h"
#include "miscadmin.h"
#include "port/atomics.h"
#include "storage/shmem.h"
#include "utils/guc.h"
#include "utils/varlena.h"

#include "base/change_count.h"
#include "base/pg_compat.h"
#include "base/processes.h"
#include "sampler/profile/session_labels.h"

/* Without any, and the last for all that have no number of their own. */
#define NONE		0
#define MAX_VALUES	1000
#define OTHER		MAX_VALUES

#define OTHER_NAME	"other"

typedef struct Labels
{
	PgscaleChangeCount resets;	/* a reset is under way while it is odd */
	pg_atomic_uint32 used;		/* of the values */
	uint64		hashes[MAX_VALUES]; /* of the values, for the sampler */
	PgscaleProcClient values[MAX_VALUES];	/* the first is of number 1 */
} Labels;

/* A reader's copy. */
struct PgscaleSamplerLabels
{
	uint32		used;
	PgscaleProcClient values[FLEXIBLE_ARRAY_MEMBER];
};

/* Possible extra columns of the profile. */
typedef struct Wanted
{
	bool		application;
	bool		address;
	bool		plan_id;
} Wanted;

static char *setting = NULL;
static Wanted by;
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
							   "Extra columns by which the wait profile splits waits: application_name, "
							   "client_addr, plan_id.",
							   NULL,
							   &setting, "",
							   PGC_POSTMASTER, GUC_LIST_INPUT, labels_check, NULL, NULL);
}

bool
pgscale_sampler_by_plan_id(void)
{
	return PGSCALE_PLAN_IDS && by.plan_id;
}

bool
pgscale_sampler_plan_id_unknown(void)
{
	return !PGSCALE_PLAN_IDS && by.plan_id;
}

Size
pgscale_sampler_labels_size(void)
{
	(void) labels_parse(setting, &by);
	return by.application || by.address ? sizeof(Labels) : 0;
}

void
pgscale_sampler_labels_startup(void)
{
	bool		found;

	if (!by.application && !by.address)
		return;
	labels = ShmemInitStruct("pgscale sampler dimensions", sizeof(Labels), &found);
	if (found)
		return;
	memset(labels, 0, sizeof(*labels));
	pgscale_change_init(&labels->resets);
	pg_atomic_init_u32(&labels->used, 0);
}

static uint64
hash_of_client(const PgscaleProcClient *client)
{
	const uint64 name = hash_bytes_extended((const unsigned char *) client->application_name,
											strlen(client->application_name), 0);

	return hash_bytes_extended((const unsigned char *) client->address, strlen(client->address), name);
}

/* The number of a client with this hash, made if need be. */
static uint16
number_of_client(const PgscaleProcClient *client, uint64 hash)
{
	const uint32 used = pg_atomic_read_u32(&labels->used);

	for (uint32 i = 0; i < used; i++)
		if (labels->hashes[i] == hash)
			return i + 1;
	if (used == MAX_VALUES - 1)
		return OTHER;
	Assert(used < MAX_VALUES);
	labels->values[used] = *client;
	labels->hashes[used] = hash;
	pg_write_barrier();
	pg_atomic_write_u32(&labels->used, used + 1);
	return used + 1;
}

void
pgscale_sampler_label_of(const PgscaleProc *proc, int slot, PgscaleSamplerLabel *label)
{
	PgscaleProcClient client;
	uint64		hash;

	if (labels == NULL || !proc->session)
	{
		label->number = NONE;
		return;
	}
	if (!pgscale_procs_read_client(proc->leader_slot >= 0 ? proc->leader_slot : slot, &client))
		return;
	if (!by.application)
		client.application_name[0] = '\0';
	if (!by.address)
		client.address[0] = '\0';

	hash = hash_of_client(&client);
	if (label->number != NONE && label->hash == hash)
		return;
	label->number = number_of_client(&client, hash);
	label->hash = hash;
}

void
pgscale_sampler_labels_begin_reset(void)
{
	if (labels)
		(void) pgscale_change_begin_write(&labels->resets);
}

void
pgscale_sampler_labels_end_reset(void)
{
	if (labels == NULL)
		return;
	pg_atomic_write_u32(&labels->used, 0);
	pgscale_change_end_write(&labels->resets);
}

/* The one before may have ended within a reset. */
void
pgscale_sampler_labels_attach(void)
{
	if (labels == NULL)
		return;
	(void) pgscale_change_begin_write(&labels->resets);
	pgscale_change_end_write(&labels->resets);
}

uint64
pgscale_sampler_labels_begin_read(void)
{
	return labels ? pgscale_change_wait(&labels->resets) : 0;
}

PgscaleSamplerLabels *
pgscale_sampler_labels_copy(void)
{
	PgscaleSamplerLabels *copy;
	uint32		used;

	if (labels == NULL)
		return NULL;
	used = pg_atomic_read_u32(&labels->used);
	pg_read_barrier();
	copy = palloc(offsetof(PgscaleSamplerLabels, values) + used * sizeof(PgscaleProcClient));
	copy->used = used;
	memcpy(copy->values, labels->values, used * sizeof(PgscaleProcClient));
	return copy;
}

bool
pgscale_sampler_labels_unchanged(uint64 before)
{
	return labels == NULL || pgscale_change_is_unchanged(&labels->resets, before);
}

void
pgscale_sampler_label(const PgscaleSamplerLabels *copy, uint16 number,
					  const char **application_name, const char **address)
{
	*application_name = *address = NULL;
	if (copy == NULL || number == NONE)
		return;
	if (number == OTHER)
		*application_name = OTHER_NAME;
	else if (number <= copy->used)
	{
		const PgscaleProcClient *client = &copy->values[number - 1];

		if (by.application)
			*application_name = client->application_name;
		if (by.address && client->address[0] != '\0')
			*address = client->address;
	}
}

int
pgscale_sampler_label_names(PgscaleSamplerName * names, int most)
{
	const int	n = labels ? Min(pg_atomic_read_u32(&labels->used), most) : 0;

	for (int i = 0; i < n; i++)
		memcpy(names[i], labels->values[i].application_name, NAMEDATALEN);
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
	PgscaleProcClient client = {0};

	if (labels == NULL || !by.application)
		return NONE;
	strlcpy(client.application_name, application_name, sizeof(client.application_name));
	return number_of_client(&client, hash_of_client(&client));
}
