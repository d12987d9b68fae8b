/*-------------------------------------------------------------------------
 *
 * ask.c
 *	  Queries all nodes at once.
 *
 * Each node is a small state machine over a connection that never blocks: connect,
 * send, read.  One loop waits for all connections and for the latch, so a cancel ends
 * it at any moment, whatever the nodes do.  Each node has a time limit and is given up
 * after that.  A failure of a node becomes its answer and is not an error here.  All
 * connections are closed before the function returns, however it returns.
 *
 * Why not dblink: it connects to one node after the other.  Before 16 it ignores
 * interrupts; from then on it ignores connect_timeout, so one host that accepts
 * connections and stays silent would delay all others.  One call can still block: the
 * resolver, which looks up host names.
 *
 * Answers are not trusted.  Bytes must be text in the database's encoding, the number
 * and types of the columns must match, and the size is limited.  The node's catalogs
 * are not trusted either: names are looked up in pg_catalog only, and functions are
 * called only if the schemas belong to the extension.  Otherwise any role that may
 * create a schema there could run code as our user.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <libpq-fe.h>

#include "access/htup_details.h"
#include "catalog/pg_type_d.h"
#include "fmgr.h"
#include "funcapi.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "storage/fd.h"
#include "storage/latch.h"
#include "utils/array.h"
#include "utils/builtins.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/resowner.h"
#include "utils/tuplestore.h"

#include "base/pg_compat.h"
#include "base/subtransaction.h"
#include "base/texts.h"
#include "base/timer.h"
#include "base/units.h"
#include "fleet/fleet.h"

PG_FUNCTION_INFO_V1(pgscale_fleet_ask);

/* A node may send that many bytes, and that many characters of an error are shown. */
#define MOST_BYTES		(16 * PGSCALE_MB)
#define MOST_ERROR		500

/* The columns of fleet_ask() that are its own. */
#define OWN_COLUMNS		3

typedef enum AnswerState
{
	ANSWER_OK,
	ANSWER_UNREACHABLE,			/* no connection */
	ANSWER_SILENT,				/* no answer in time */
	ANSWER_FAILED,				/* an error of the node's */
	ANSWER_GARBLED				/* an answer that cannot be understood */
} AnswerState;

typedef enum Step
{
	STEP_CONNECTING,
	STEP_CHECKING,				/* is pgscale there? */
	STEP_ASKING,
	STEP_ENDED
} Step;

/* A connection, from beginning to end, and the node's answer. */
typedef struct Talk
{
	const PgscaleFleetNode *node;
	AnswerState state;
	const char *error;			/* unless it is OK */
	List	   *rows;			/* of char **: text by column, or NULL */
	PGconn	   *conn;
	PGresult   *result;			/* that is being read */
	Step		step;
	int			polling;		/* while connecting */
	bool		sending;		/* some of the statement is not sent yet */
	bool		checked;		/* pgscale is there */
	int64		connect_ns;		/* when to give up, by pgscale_timer_clock() */
	int64		end_ns;
	int64		bytes;
} Talk;

typedef struct Round
{
	Talk	   *talks;
	int			ntalks;
	int			nrunning;
	const char *check;
	const char *statement;
	int			ncolumns;
	int64		timeout_ns;
	WaitEventSet *set;
} Round;

static const char *const state_names[] = {
	[ANSWER_OK] = "ok",
	[ANSWER_UNREACHABLE] = "unreachable",
	[ANSWER_SILENT] = "no answer",
	[ANSWER_FAILED] = "failed",
	[ANSWER_GARBLED] = "garbled",
};

/* What fleet_ask() asks, and the function of the node's pgscale that answers. */
typedef struct Question
{
	const char *name;
	const char *function;
	bool		by_worker;		/* of its own accord */
} Question;

static const Question questions[] = {
	{"node_state", "pgscale_internal.node_state"},
	{"node_advice", "pgscale_internal.node_advice"},
	{"node_minutes", "pgscale_internal.node_minutes", true},
	{"health", "pgscale_internal.health"},
	{"top_waits", "pgscale.top_waits"},
};

/* One line of text that can be shown, whatever bytes there are. */
static char *
readable_text(const char *bytes)
{
	return pgscale_text_line(bytes, GetDatabaseEncoding(), MOST_ERROR);
}

static void
close_talk(Round *round, Talk *talk)
{
	if (talk->conn)
	{
		PQfinish(talk->conn);
		ReleaseExternalFD();
		talk->conn = NULL;
	}
	if (talk->step != STEP_ENDED)
	{
		talk->step = STEP_ENDED;
		round->nrunning--;
	}
}

/* The error is one that lasts: a constant, or palloc'd. */
static void
fail_talk(Round *round, Talk *talk, AnswerState state, const char *error)
{
	if (talk->error == NULL)
	{
		talk->state = state;
		talk->error = error;
		talk->rows = NIL;
	}
	close_talk(round, talk);
}

static void
fail_lost(Round *round, Talk *talk, AnswerState state)
{
	fail_talk(round, talk, state, readable_text(PQerrorMessage(talk->conn)));
}

/* What is not sent yet goes on when the node has read some of it. */
static void
flush_talk(Round *round, Talk *talk)
{
	int			left = PQflush(talk->conn);

	if (left < 0)
		fail_lost(round, talk, ANSWER_FAILED);
	else
		talk->sending = left > 0;
}

static void
send_statement(Round *round, Talk *talk, Step step)
{
	talk->step = step;
	if (!PQsendQuery(talk->conn, step == STEP_CHECKING ? round->check : round->statement) ||
		!PQsetSingleRowMode(talk->conn))
		fail_lost(round, talk, ANSWER_FAILED);
	else
		flush_talk(round, talk);
}

static void
ignore_notice(void *arg, const PGresult *result)
{
}

static void
begin_talk(Round *round, Talk *talk)
{
	int64		now = pgscale_timer_clock();

	talk->end_ns = now + round->timeout_ns;
	talk->connect_ns = talk->end_ns;
	if (talk->node->connect_ms > 0)
		talk->connect_ns = Min(talk->end_ns, now + talk->node->connect_ms * (int64) NS_PER_MS);

	if (talk->node->trouble)
	{
		fail_talk(round, talk, ANSWER_UNREACHABLE, talk->node->trouble);
		return;
	}
	if (!AcquireExternalFD())
	{
		fail_talk(round, talk, ANSWER_UNREACHABLE, "this session has too many files open");
		return;
	}
	talk->conn = PQconnectStartParams(talk->node->keywords, talk->node->values, 0);
	if (talk->conn == NULL)
	{
		ReleaseExternalFD();
		fail_talk(round, talk, ANSWER_UNREACHABLE, "out of memory");
		return;
	}
	(void) PQsetNoticeReceiver(talk->conn, ignore_notice, NULL);
	if (PQstatus(talk->conn) == CONNECTION_BAD)
		fail_lost(round, talk, ANSWER_UNREACHABLE);
	else
		talk->polling = PGRES_POLLING_WRITING;
}

static void
connect_talk(Round *round, Talk *talk)
{

	talk->polling = PQconnectPoll(talk->conn);
	if (talk->polling == PGRES_POLLING_FAILED)
		fail_lost(round, talk, ANSWER_UNREACHABLE);
	else if (talk->polling == PGRES_POLLING_OK)
	{
		/* Otherwise it may be the server's own user that was let in. */
		if (talk->node->needs_password && !PQconnectionUsedPassword(talk->conn))
			fail_talk(round, talk, ANSWER_UNREACHABLE, "the node did not ask for the password, which only a superuser's connection may do without");
		else if (PQsetnonblocking(talk->conn, 1) != 0)
			fail_lost(round, talk, ANSWER_UNREACHABLE);
		else
			send_statement(round, talk, STEP_CHECKING);
	}
}

/* Copies a row, or says what is wrong with it. */
static const char *
take_node_row(Round *round, Talk *talk, const PGresult *result)
{
	char	  **row = palloc0(round->ncolumns * sizeof(char *));

	talk->bytes += round->ncolumns * sizeof(char *) + 2 * sizeof(void *);
	for (int column = 0; column < round->ncolumns; column++)
	{
		int			length = PQgetlength(result, 0, column);
		const char *value = PQgetvalue(result, 0, column);

		if (PQgetisnull(result, 0, column))
			continue;
		talk->bytes += length + 1;
		if (talk->bytes > MOST_BYTES)
			return psprintf("its answer is longer than %d MB", (int) (MOST_BYTES / PGSCALE_MB));
		if (PQfformat(result, column) != 0 || strlen(value) != length ||
			!pg_verify_mbstr(GetDatabaseEncoding(), value, length, true))
			return "its answer is not a text in the encoding of this database";
		row[column] = pnstrdup(value, length);
	}
	talk->rows = lappend(talk->rows, row);
	return NULL;
}

static void
take_node_error(Round *round, Talk *talk, const PGresult *result)
{
	const char *sqlstate = PQresultErrorField(result, 'C');
	const char *message = PQresultErrorField(result, 'M');
	const char *detail = PQresultErrorField(result, 'D');
	const char *hint = PQresultErrorField(result, 'H');
	StringInfoData text;

	initStringInfo(&text);
	appendStringInfoString(&text, message ? message : PQresultErrorMessage(result));
	if (detail)
		appendStringInfo(&text, "; %s", detail);
	if (hint)
		appendStringInfo(&text, "; %s", hint);

	/*
	 * The first one is the cause.  What follows is read, so that the node
	 * does not complain of a lost connection.
	 */
	if (talk->error)
		return;
	talk->error = readable_text(text.data);
	/* its statement_timeout is ours */
	talk->state = sqlstate && strcmp(sqlstate, "57014") == 0 ? ANSWER_SILENT : ANSWER_FAILED;
	talk->rows = NIL;
}

static void
take_node_result(Round *round, Talk *talk, const PGresult *result)
{
	const char *trouble;

	switch (PQresultStatus(result))
	{
		case PGRES_EMPTY_QUERY:
		case PGRES_COMMAND_OK:
		case PGRES_NONFATAL_ERROR:
			break;
		case PGRES_FATAL_ERROR:
			take_node_error(round, talk, result);
			break;
		case PGRES_SINGLE_TUPLE:
			if (talk->step == STEP_CHECKING)
				talk->checked = true;
			else if (PQnfields(result) != round->ncolumns)
				fail_talk(round, talk, ANSWER_GARBLED, "its answer has other columns than were asked for");
			else if ((trouble = take_node_row(round, talk, result)))
				fail_talk(round, talk, ANSWER_GARBLED, trouble);
			break;
		case PGRES_TUPLES_OK:
			if (talk->step == STEP_ASKING && PQnfields(result) != round->ncolumns)
				fail_talk(round, talk, ANSWER_GARBLED, "its answer has other columns than were asked for");
			break;
		default:
			fail_talk(round, talk, ANSWER_GARBLED, "its answer is not that of a server to a query");
			break;
	}
}

static void
read_talk(Round *round, Talk *talk)
{

	if (!PQconsumeInput(talk->conn))
	{
		fail_lost(round, talk, ANSWER_FAILED);
		return;
	}
	if (talk->sending)
		flush_talk(round, talk);
	while (talk->step != STEP_ENDED && !PQisBusy(talk->conn))
	{
		talk->result = PQgetResult(talk->conn);
		if (talk->result == NULL)
		{
			if (talk->step == STEP_ASKING || talk->error)
				close_talk(round, talk);
			else if (!talk->checked)
				fail_talk(round, talk, ANSWER_FAILED, "that database of the node has no extension pgscale, or one of an older version");
			else
				send_statement(round, talk, STEP_ASKING);
			return;
		}
		take_node_result(round, talk, talk->result);
		PQclear(talk->result);
		talk->result = NULL;
	}
}

/* Waits until something can be done, and does it. */
static void
advance_talks(Round *round)
{
	WaitEvent  *events = palloc((round->ntalks + 2) * sizeof(WaitEvent));
	int64		now = pgscale_timer_clock();
	int64		wake = now + round->timeout_ns;
	int			n;

	/* libpq may have another socket after each call, so that no set lasts. */
	round->set = CreateWaitEventSet(CurrentResourceOwner, round->ntalks + 2);
	AddWaitEventToSet(round->set, WL_LATCH_SET, PGINVALID_SOCKET, MyLatch, NULL);
	AddWaitEventToSet(round->set, WL_EXIT_ON_PM_DEATH, PGINVALID_SOCKET, NULL, NULL);
	for (int i = 0; i < round->ntalks; i++)
	{
		Talk	   *talk = &round->talks[i];
		int			flags = WL_SOCKET_READABLE;

		if (talk->step == STEP_ENDED)
			continue;
		if (talk->step == STEP_CONNECTING)
		{
			wake = Min(wake, talk->connect_ns);
			if (talk->polling == PGRES_POLLING_WRITING)
				flags = WL_SOCKET_WRITEABLE;
		}
		else
		{
			wake = Min(wake, talk->end_ns);
			if (talk->sending)
				flags |= WL_SOCKET_WRITEABLE;
		}
		AddWaitEventToSet(round->set, flags, PQsocket(talk->conn), NULL, talk);
	}
	n = WaitEventSetWait(round->set, Max(wake - now + NS_PER_MS - 1, 0) / NS_PER_MS, events, round->ntalks + 2,
						 PG_WAIT_EXTENSION);
	FreeWaitEventSet(round->set);
	round->set = NULL;

	for (int i = 0; i < n; i++)
	{
		Talk	   *talk = events[i].user_data;

		if (talk == NULL)
			ResetLatch(MyLatch);
		else if (talk->step == STEP_CONNECTING)
			connect_talk(round, talk);
		else
			read_talk(round, talk);
	}
	CHECK_FOR_INTERRUPTS();

	now = pgscale_timer_clock();
	for (int i = 0; i < round->ntalks; i++)
	{
		Talk	   *talk = &round->talks[i];

		if (talk->step == STEP_CONNECTING && talk->connect_ns <= now)
			fail_talk(round, talk, ANSWER_SILENT, "it did not accept the connection in time");
		else if (talk->step != STEP_ENDED && talk->end_ns <= now)
			fail_talk(round, talk, ANSWER_SILENT,
					  psprintf("it did not answer within %d ms", pgscale_fleet_timeout));
	}
	pfree(events);
}

static void
end_talks(Round *round)
{
	if (round->set)
		FreeWaitEventSet(round->set);
	for (int i = 0; i < round->ntalks; i++)
	{
		PQclear(round->talks[i].result);
		close_talk(round, &round->talks[i]);
	}
}

/* From the first connection to the end of the last one, however that comes. */
static void
run_talks(Round *round)
{
	PG_TRY();
	{
		for (int i = 0; i < round->ntalks; i++)
		{
			begin_talk(round, &round->talks[i]);
			CHECK_FOR_INTERRUPTS();
		}
		while (round->nrunning > 0)
			advance_talks(round);
	}
	PG_CATCH();
	{
		/* libpq's memory and sockets belong to no transaction */
		end_talks(round);
		PG_RE_THROW();
	}
	PG_END_TRY();
	end_talks(round);
}

/*
 * Sends the nodes a statement with ncolumns columns, each in a transaction that can
 * change nothing.  round->talks have the answers, in the order of nodes.
 */
static void
query_nodes(Round *round, List *nodes, const char *statement, int ncolumns)
{
	/* Names are not looked up in pg_temp unless they are of relations. */
	round->check = psprintf("BEGIN TRANSACTION READ ONLY; "
							"SET LOCAL search_path = pg_catalog, pg_temp; "
							"SET LOCAL statement_timeout = %d; "
							"SET LOCAL DateStyle = 'ISO'; "
							"SET LOCAL extra_float_digits = 1; "
							"SELECT 'pgscale' FROM pg_catalog.pg_depend d JOIN pg_catalog.pg_extension e ON e.oid = d.refobjid "
							"JOIN pg_catalog.pg_namespace n ON n.oid = d.objid "
							"WHERE d.deptype = 'e' AND d.refclassid = 'pg_catalog.pg_extension'::pg_catalog.regclass "
							"AND d.classid = 'pg_catalog.pg_namespace'::pg_catalog.regclass "
							"AND e.extname = 'pgscale' AND n.nspname IN ('pgscale', 'pgscale_internal') "
							"HAVING pg_catalog.count(*) OPERATOR(pg_catalog.=) 2",
							pgscale_fleet_timeout);
	round->statement = statement;
	round->ncolumns = ncolumns;
	round->timeout_ns = pgscale_fleet_timeout * (int64) NS_PER_MS;
	round->ntalks = round->nrunning = list_length(nodes);
	round->talks = palloc0(Max(round->ntalks, 1) * sizeof(Talk));

	for (int i = 0; i < round->ntalks; i++)
		round->talks[i].node = list_nth(nodes, i);
	run_talks(round);
}

/* An answer's rows as values of the types that are asked for. */
typedef struct Conversion
{
	const Talk *talk;
	TupleDesc	desc;
	List	   *tuples;
} Conversion;

static HeapTuple
form_row(const Talk *talk, TupleDesc desc, char **row)
{
	Datum	   *values = palloc0(desc->natts * sizeof(Datum));
	bool	   *nulls = palloc0(desc->natts * sizeof(bool));

	values[0] = CStringGetTextDatum(talk->node->name);
	values[1] = CStringGetTextDatum(state_names[talk->state]);
	nulls[2] = talk->error == NULL;
	if (talk->error)
		values[2] = CStringGetTextDatum(talk->error);
	for (int i = OWN_COLUMNS; i < desc->natts; i++)
	{
		Oid			input;
		Oid			parameter;

		nulls[i] = row == NULL || row[i - OWN_COLUMNS] == NULL;
		if (nulls[i])
			continue;
		getTypeInputInfo(TupleDescAttr(desc, i)->atttypid, &input, &parameter);
		values[i] = OidInputFunctionCall(input, row[i - OWN_COLUMNS], parameter, TupleDescAttr(desc, i)->atttypmod);
	}
	return heap_form_tuple(desc, values, nulls);
}

static void
convert_answer(void *arg)
{
	Conversion *conversion = arg;
	ListCell   *cell;

	foreach(cell, conversion->talk->rows)
		conversion->tuples = lappend(conversion->tuples, form_row(conversion->talk, conversion->desc, lfirst(cell)));
}

/*
 * Those that a superuser has added, and that the caller has a user mapping for.  A role that may add nodes
 * must not gain the rights of a worker.
 */
static List *
without_others(List *nodes)
{
	List	   *left = NIL;
	ListCell   *cell;

	foreach(cell, nodes)
	{
		PgscaleFleetNode *node = lfirst(cell);

		if (node->of_superuser && !node->trouble)
			left = lappend(left, node);
	}
	return left;
}

/*
 * pgscale_internal.fleet_ask(question, arguments): what an object of pgscale says on each
 * node, in the columns of the call's column list, of which the first three are
 * the node's name, its state and what is wrong with it.  A node has at least one row.
 */
Datum
pgscale_fleet_ask(PG_FUNCTION_ARGS)
{
	ReturnSetInfo *rsinfo = (ReturnSetInfo *) fcinfo->resultinfo;
	char	   *question = text_to_cstring(PG_GETARG_TEXT_PP(0));
	StringInfoData statement;
	TupleDesc	desc;
	List	   *nodes;
	Datum	   *arguments;
	bool	   *nulls;
	int			narguments;
	int			number = 0;
	Round		round = {0};

	InitMaterializedSRF(fcinfo, MAT_SRF_USE_EXPECTED_DESC);
	desc = rsinfo->setDesc;
	for (int i = 0; i < OWN_COLUMNS; i++)
		if (desc->natts <= OWN_COLUMNS || TupleDescAttr(desc, i)->atttypid != TEXTOID)
			ereport(ERROR,
					(errcode(ERRCODE_DATATYPE_MISMATCH),
					 errmsg("the first three columns must be of type text, and others must follow"),
					 errhint("They are the node, its state and its error: AS (node text, state text, error text, ...).")));

	while (number < lengthof(questions) && strcmp(questions[number].name, question) != 0)
		number++;
	if (number == lengthof(questions))
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("nodes do not answer \"%s\"", question),
				 errhint("Ask for node_state, node_advice, node_minutes, health or top_waits.")));

	initStringInfo(&statement);
	for (int i = OWN_COLUMNS; i < desc->natts; i++)
		appendStringInfo(&statement, "%s%s", i == OWN_COLUMNS ? "SELECT " : ", ",
						 quote_identifier(NameStr(TupleDescAttr(desc, i)->attname)));
	appendStringInfo(&statement, " FROM %s(", questions[number].function);
	deconstruct_array(PG_GETARG_ARRAYTYPE_P(1), TEXTOID, -1, false, TYPALIGN_INT, &arguments, &nulls, &narguments);
	for (int i = 0; i < narguments; i++)
		appendStringInfo(&statement, "%s%s", i == 0 ? "" : ", ",
						 nulls[i] ? "NULL" : quote_literal_cstr(TextDatumGetCString(arguments[i])));
	appendStringInfoChar(&statement, ')');

	nodes = pgscale_fleet_nodes(NULL);
	if (questions[number].by_worker)
		nodes = without_others(nodes);
	query_nodes(&round, nodes, statement.data, desc->natts - OWN_COLUMNS);
	for (int i = 0; i < round.ntalks; i++)
	{
		Talk	   *talk = &round.talks[i];
		Conversion	conversion = {.talk = talk,.desc = desc};
		ErrorData  *error = pgscale_subtransaction_run(convert_answer, &conversion);
		ListCell   *tuple;

		if (error)
		{
			if (pgscale_subtransaction_is_grave(error))
				ReThrowError(error);
			talk->state = ANSWER_GARBLED;
			talk->error = readable_text(error->message);
			conversion.tuples = NIL;
		}
		if (conversion.tuples == NIL)
			conversion.tuples = list_make1(form_row(talk, desc, NULL));
		foreach(tuple, conversion.tuples)
			tuplestore_puttuple(rsinfo->setResult, lfirst(tuple));
	}
	return (Datum) 0;
}
