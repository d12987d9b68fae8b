/*-------------------------------------------------------------------------
 *
 * extension_table.h
 *	  Statements on the extension's own tables, which users cannot touch.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_BASE_EXTENSION_TABLE_H
#define PGSCALE_BASE_EXTENSION_TABLE_H

#include "postgres.h"

#include "datatype/timestamp.h"

typedef struct PgscaleExtensionTable
{
	const char *name;			/* in schema pgscale_internal */
	const char *keeps;			/* what a database without it lacks */
} PgscaleExtensionTable;

#define PGSCALE_TABLE_PARAMETERS	24

/* A statement's parameters; SQL's NULL by a type without a value. */
typedef struct PgscaleParameters
{
	int			n;
	Oid			types[PGSCALE_TABLE_PARAMETERS];
	Datum		values[PGSCALE_TABLE_PARAMETERS];
	char		nulls[PGSCALE_TABLE_PARAMETERS];
} PgscaleParameters;

extern void pgscale_table_add(PgscaleParameters *parameters, Oid type, Datum value);
extern void pgscale_table_add_null(PgscaleParameters *parameters, Oid type);
extern void pgscale_table_add_bigint(PgscaleParameters *parameters, int64 value);
extern void pgscale_table_add_oid(PgscaleParameters *parameters, Oid value);
extern void pgscale_table_add_text(PgscaleParameters *parameters, const char *value);	/* or NULL */

/*
 * Whose a row is.  CREATE DATABASE ... TEMPLATE and pg_upgrade take such a table
 * along, to where its rows are about nothing: so each has the columns "cluster
 * bigint" and "database oid", and only those act that are of here.  A base
 * backup, a promotion and ALTER DATABASE RENAME keep both; pg_upgrade the
 * database's alone; pg_dump leaves the tables out.  In SQL: pgscale_internal.row_origin().
 */
#define PGSCALE_TABLE_HERE(cluster, database) \
	" (cluster = $" #cluster " AND database = $" #database ") "

/* Two parameters, bigint and oid: of this server and this database. */
extern void pgscale_table_add_here(PgscaleParameters *parameters);

/* "another server", "another database", or NULL: the row is of here. */
extern const char *pgscale_table_origin(int64 cluster, Oid database);

/* The table, if it is to be trusted, else InvalidOid; *owner is whom it belongs to. */
extern Oid	pgscale_table_find(const PgscaleExtensionTable *table, Oid *owner);

/*
 * Raises an error if the extension is here and its schema has another name: then no
 * table is missing, and a hint to make one would have it dropped.
 */
extern void pgscale_table_refuse_renamed(void);

/*
 * To be called as its owner before a table is written.  pg_upgrade loses the marks
 * by which logical decoding skips its rows: sets them again.
 */
extern void pgscale_table_keep_local(Oid relation);

/*
 * Executes a statement as the table's owner.  SPI_tuptable keeps the rows until the
 * caller calls SPI_finish(). latest: with a new snapshot instead of the transaction's.
 * Raises an error if there is no such table.
 */
extern uint64 pgscale_table_execute(const PgscaleExtensionTable *table, const char *statement,
									PgscaleParameters *parameters, bool latest);

/*
 * The same, as a transaction of its own, for what has no result.  flush: false if its commit need not wait for the disk, because
 * nothing is missed if a crash undoes it.
 */
extern void pgscale_table_execute_alone(const PgscaleExtensionTable *table, const char *statement,
										PgscaleParameters *parameters, bool flush);

/* Of the rows that SPI_tuptable keeps; columns from 1; SQL's NULL is 0 or false. */
extern Datum pgscale_table_column(uint64 row, int number, bool *isnull);
extern int64 pgscale_table_bigint(uint64 row, int number);
extern Oid	pgscale_table_oid(uint64 row, int number);
extern bool pgscale_table_bool(uint64 row, int number);
extern char *pgscale_table_text(uint64 row, int number);	/* or NULL; in SPI's
															 * memory */

#endif							/* PGSCALE_BASE_EXTENSION_TABLE_H */
