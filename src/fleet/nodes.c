/*-------------------------------------------------------------------------
 *
 * nodes.c
 *	  The nodes of the fleet: foreign servers of the wrapper pgscale_fleet.
 *
 * So each node has one name.  Its secrets are in user mappings, which only their user
 * and superusers can read, and pg_dump and replication copy all of it.  The wrapper has
 * no handler: it has no foreign tables.
 *
 * Roles other than superusers must connect with a password from the mapping, as with
 * dblink and postgres_fdw: otherwise the node might let in the operating system user of
 * this server.  A superuser may declare for a mapping that it needs none.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include <libpq-fe.h>

#include "access/genam.h"
#include "access/htup_details.h"
#include "access/reloptions.h"
#include "access/table.h"
#include "catalog/pg_foreign_server.h"
#include "catalog/pg_user_mapping.h"
#include "commands/dbcommands.h"
#include "commands/defrem.h"
#include "executor/spi.h"
#include "fmgr.h"
#include "foreign/foreign.h"
#include "mb/pg_wchar.h"
#include "miscadmin.h"
#include "utils/builtins.h"
#include "utils/fmgroids.h"
#include "utils/lsyscache.h"
#include "utils/memutils.h"
#include "utils/rel.h"
#include "utils/syscache.h"

#include "base/pg_compat.h"
#include "fleet/fleet.h"

PG_FUNCTION_INFO_V1(pgscale_fleet_add);
PG_FUNCTION_INFO_V1(pgscale_fleet_remove);
PG_FUNCTION_INFO_V1(pgscale_fleet_validate);

#define WRAPPER		"pgscale_fleet"

/* Options of libpq that locate a node and say how to connect, without secrets. */
static const char *const server_options[] = {
	"host", "hostaddr", "port", "dbname", "connect_timeout", "keepalives", "keepalives_idle", "keepalives_interval",
	"keepalives_count", "tcp_user_timeout", "sslmode", "sslrootcert", "sslcrl", "sslcrldir", "sslsni",
	"ssl_min_protocol_version", "ssl_max_protocol_version", "sslnegotiation", "requirepeer", "require_auth",
	"channel_binding", "gssencmode", "krbsrvname", "gsslib", "min_protocol_version", "max_protocol_version", NULL
};

static const char *const mapping_options[] = {"user", "password", "password_required", "sslcert", "sslkey", "sslpassword", NULL};

static bool
is_option(const char *const *options, const char *name)
{
	for (; *options; options++)
		if (strcmp(*options, name) == 0)
			return true;
	return false;
}

/* pgscale_internal.fleet_validate(options, catalog): which options servers and user mappings of the wrapper may have. */
Datum
pgscale_fleet_validate(PG_FUNCTION_ARGS)
{
	Oid			catalog = PG_ARGISNULL(1) ? InvalidOid : PG_GETARG_OID(1);
	ListCell   *cell;

	if (PG_ARGISNULL(0))
		PG_RETURN_VOID();
	foreach(cell, untransformRelOptions(PG_GETARG_DATUM(0)))
	{
		DefElem    *option = lfirst(cell);
		const char *const *known = catalog == ForeignServerRelationId ? server_options :
			catalog == UserMappingRelationId ? mapping_options : NULL;

		if (known == NULL || !is_option(known, option->defname))
			ereport(ERROR,
					(errcode(ERRCODE_FDW_INVALID_OPTION_NAME),
					 errmsg("invalid option \"%s\"", option->defname),
					 errhint("A server of pgscale_fleet has host, port, dbname and the like; a user mapping has user, password, password_required, sslcert, sslkey and sslpassword.")));
		if (strcmp(option->defname, "connect_timeout") == 0)
			(void) pg_strtoint32(defGetString(option));

		/* These are about files and rights of the server. */
		if (((strcmp(option->defname, "password_required") == 0 && !defGetBoolean(option)) ||
			 strcmp(option->defname, "sslcert") == 0 || strcmp(option->defname, "sslkey") == 0) && !superuser())
			ereport(ERROR,
					(errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
					 errmsg("only superusers may have user mappings with the option \"%s\"", option->defname),
					 errhint("Use a password, or have a superuser change the user mapping.")));
	}
	PG_RETURN_VOID();
}

static void
add_parameter(PgscaleFleetNode *node, int *n, const char *keyword, const char *value)
{
	node->keywords[*n] = keyword;
	node->values[*n] = value;
	(*n)++;
}

static PgscaleFleetNode *
read_node(Oid serverid)
{
	PgscaleFleetNode *node = palloc0(sizeof(PgscaleFleetNode));
	ForeignServer *server = GetForeignServer(serverid);
	UserMapping *mapping;
	bool		password = false;
	int			n = 0;
	ListCell   *cell;

	node->name = server->servername;
	node->of_superuser = superuser_arg(server->owner);
	if (!pgscale_may_use_server(serverid))
	{
		node->trouble = psprintf("permission denied for foreign server %s; GRANT USAGE ON FOREIGN SERVER gives it", node->name);
		return node;
	}
	if (!SearchSysCacheExists2(USERMAPPINGUSERSERVER, ObjectIdGetDatum(GetUserId()), ObjectIdGetDatum(serverid)) &&
		!SearchSysCacheExists2(USERMAPPINGUSERSERVER, ObjectIdGetDatum(InvalidOid), ObjectIdGetDatum(serverid)))
	{
		node->trouble = psprintf("%s has no user mapping for it; CREATE USER MAPPING makes one", GetUserNameFromId(GetUserId(), false));
		return node;
	}
	mapping = GetUserMapping(GetUserId(), serverid);

	node->needs_password = !superuser();
	node->keywords = palloc0((list_length(server->options) + list_length(mapping->options) + 3) * sizeof(char *));
	node->values = palloc0((list_length(server->options) + list_length(mapping->options) + 3) * sizeof(char *));
	foreach(cell, server->options)
	{
		DefElem    *option = lfirst(cell);

		/* libpq heeds this one only where it blocks. */
		if (strcmp(option->defname, "connect_timeout") == 0)
			node->connect_ms = (int) Min(Max(pg_strtoint32(defGetString(option)), 0), 600) * 1000;
		else if (is_option(server_options, option->defname))
			add_parameter(node, &n, option->defname, defGetString(option));
	}
	foreach(cell, mapping->options)
	{
		DefElem    *option = lfirst(cell);

		if (strcmp(option->defname, "password_required") == 0)
			node->needs_password = node->needs_password && defGetBoolean(option);
		else if (is_option(mapping_options, option->defname))
		{
			if (strcmp(option->defname, "password") == 0 && defGetString(option)[0] != '\0')
				password = true;
			add_parameter(node, &n, option->defname, defGetString(option));
		}
	}
	add_parameter(node, &n, "application_name", "pgscale fleet");
	add_parameter(node, &n, "client_encoding", GetDatabaseEncodingName());
	if (node->needs_password && !password)
		node->trouble = "a password is required; put it into the user mapping, or have a superuser set password_required to false there";
	return node;
}

List *
pgscale_fleet_nodes(const char *name)
{
	Oid			wrapper = get_foreign_data_wrapper_oid(WRAPPER, false);
	List	   *servers = NIL;
	List	   *nodes = NIL;
	Relation	catalog;
	SysScanDesc scan;
	HeapTuple	tuple;
	ListCell   *cell;

	/* by name, as the index has them */
	catalog = table_open(ForeignServerRelationId, AccessShareLock);
	scan = systable_beginscan(catalog, ForeignServerNameIndexId, true, NULL, 0, NULL);
	while ((tuple = systable_getnext(scan)) != NULL)
	{
		Form_pg_foreign_server server = (Form_pg_foreign_server) GETSTRUCT(tuple);

		if (server->srvfdw == wrapper && (name == NULL || strcmp(NameStr(server->srvname), name) == 0))
			servers = lappend_oid(servers, server->oid);
	}
	systable_endscan(scan);
	table_close(catalog, AccessShareLock);

	if (name && servers == NIL)
		ereport(ERROR,
				(errcode(ERRCODE_UNDEFINED_OBJECT),
				 errmsg("there is no node \"%s\"", name),
				 errhint("pgscale.fleet lists the nodes; pgscale.fleet_add() adds one.")));
	foreach(cell, servers)
		nodes = lappend(nodes, read_node(lfirst_oid(cell)));
	return nodes;
}

static void
run_utility(const char *statement)
{
	int			result = SPI_execute(statement, false, 0);

	if (result != SPI_OK_UTILITY)
		elog(ERROR, "could not execute \"%s\": %s", statement, SPI_result_code_string(result));
}

static void
append_option(StringInfo statement, int n, const char *name, const char *value)
{
	appendStringInfo(statement, "%s%s %s", n == 0 ? "" : ", ", quote_identifier(name), quote_literal_cstr(value));
}

/* Checks what a connection string says, and makes of it the options of the server; *user is the one that it names, or NULL. */
static void
read_conninfo(const PQconninfoOption *options, const char *name, StringInfo server, char **user)
{
	bool		host = false;
	bool		port = false;
	bool		dbname = false;
	int			n = 0;

	for (const PQconninfoOption *option = options; option->keyword; option++)
	{
		if (option->val == NULL || option->val[0] == '\0')
			continue;
		if (strcmp(option->keyword, "password") == 0 || strcmp(option->keyword, "sslpassword") == 0)
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("a node's connection string must not have a password"),
					 errhint("Add the node without it, then ALTER USER MAPPING FOR CURRENT_USER SERVER %s OPTIONS (ADD %s '...').",
							 quote_identifier(name), option->keyword)));
		if (strcmp(option->keyword, "user") == 0)
		{
			*user = pstrdup(option->val);
			continue;
		}
		if (!is_option(server_options, option->keyword))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("a node's connection string must not have \"%s\"", option->keyword),
					 errhint("It has host, port, dbname, user, and options such as sslmode.")));
		if (strncmp(option->keyword, "host", 4) == 0 && strchr(option->val, ','))
			ereport(ERROR,
					(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
					 errmsg("a node has one host, not a list of them"),
					 errhint("Add each of them as a node.")));
		host |= strncmp(option->keyword, "host", 4) == 0;
		port |= strcmp(option->keyword, "port") == 0;
		dbname |= strcmp(option->keyword, "dbname") == 0;
		append_option(server, n++, option->keyword, option->val);
	}
	if (!host)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_PARAMETER_VALUE),
				 errmsg("a node's connection string must have a host"),
				 errhint("For example: host=db2 port=5432 dbname=postgres user=monitoring")));
	/* libpq would take these from the environment of the server */
	if (!port)
		append_option(server, n++, "port", "5432");
	if (!dbname)
		append_option(server, n++, "dbname", get_database_name(MyDatabaseId));
}

/* pgscale.fleet_add(node, conninfo): a server, and a mapping for the caller. */
Datum
pgscale_fleet_add(PG_FUNCTION_ARGS)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));
	char	   *conninfo = text_to_cstring(PG_GETARG_TEXT_PP(1));
	char	   *user = NULL;
	char	   *error = NULL;
	StringInfoData server;
	PQconninfoOption *options;

	if (name[0] == '\0' || strlen(name) >= NAMEDATALEN)
		ereport(ERROR,
				(errcode(ERRCODE_INVALID_NAME),
				 errmsg("the name of a node must have 1 to %d bytes", NAMEDATALEN - 1),
				 errhint("It is the name of a foreign server.")));
	if (OidIsValid(get_foreign_server_oid(name, true)))
		ereport(ERROR,
				(errcode(ERRCODE_DUPLICATE_OBJECT),
				 errmsg("there is a node or a foreign server \"%s\" already", name),
				 errhint("Use another name, or call pgscale.fleet_remove() first.")));

	initStringInfo(&server);
	options = PQconninfoParse(conninfo, &error);
	if (options == NULL)
	{
		/* The text may have a password: what is wrong is not shown. */
		if (error)
			PQfreemem(error);
		ereport(ERROR,
				(errcode(ERRCODE_SYNTAX_ERROR),
				 errmsg("the connection string of node \"%s\" cannot be read", name),
				 errhint("Write it as for psql: host=db2 port=5432 dbname=postgres user=monitoring")));
	}
	PG_TRY();
	{
		read_conninfo(options, name, &server, &user);
	}
	PG_FINALLY();
	{
		/* libpq's memory, with the text that was given */
		PQconninfoFree(options);
	}
	PG_END_TRY();

	SPI_connect();
	run_utility(psprintf("CREATE SERVER %s FOREIGN DATA WRAPPER " WRAPPER " OPTIONS (%s)", quote_identifier(name), server.data));
	run_utility(psprintf("CREATE USER MAPPING FOR CURRENT_USER SERVER %s OPTIONS (user %s)", quote_identifier(name),
						 quote_literal_cstr(user ? user : GetUserNameFromId(GetUserId(), false))));
	/* so that they may have user mappings of their own */
	run_utility(psprintf("GRANT USAGE ON FOREIGN SERVER %s TO pg_monitor", quote_identifier(name)));
	SPI_finish();
	PG_RETURN_VOID();
}

/* pgscale.fleet_remove(node): the server, with all its user mappings. */
Datum
pgscale_fleet_remove(PG_FUNCTION_ARGS)
{
	char	   *name = text_to_cstring(PG_GETARG_TEXT_PP(0));

	(void) pgscale_fleet_nodes(name);
	SPI_connect();
	run_utility(psprintf("DROP SERVER %s CASCADE", quote_identifier(name)));
	SPI_finish();
	PG_RETURN_VOID();
}
