/*-------------------------------------------------------------------------
 *
 * libpq.h
 *	  The server's own libpq.
 *
 * Its functions by their names in the documentation, without PQ before them; types
 * and numbers are those of libpq-fe.h, which have not changed since libpq.so.5.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#ifndef PGSCALE_FLEET_LIBPQ_H
#define PGSCALE_FLEET_LIBPQ_H

#include "postgres.h"

typedef struct PgscaleFleetConnection PgscaleFleetConnection;
typedef struct PgscaleFleetResult PgscaleFleetResult;

/* PQconninfoOption */
typedef struct PgscaleFleetOption
{
	char	   *keyword;		/* NULL ends a list of them */
	char	   *envvar;
	char	   *compiled;
	char	   *val;
	char	   *label;
	char	   *dispchar;
	int			dispsize;
} PgscaleFleetOption;

/* PostgresPollingStatusType */
#define PGSCALE_FLEET_POLLING_FAILED	0
#define PGSCALE_FLEET_POLLING_READING	1
#define PGSCALE_FLEET_POLLING_WRITING	2
#define PGSCALE_FLEET_POLLING_OK		3

/* ConnStatusType */
#define PGSCALE_FLEET_CONNECTION_BAD	1

/* ExecStatusType */
#define PGSCALE_FLEET_EMPTY_QUERY		0
#define PGSCALE_FLEET_COMMAND_OK		1
#define PGSCALE_FLEET_TUPLES_OK			2
#define PGSCALE_FLEET_NONFATAL_ERROR	6
#define PGSCALE_FLEET_FATAL_ERROR		7
#define PGSCALE_FLEET_SINGLE_TUPLE		9

typedef struct PgscaleFleetLibpq
{
	PgscaleFleetConnection *(*connectStartParams) (const char *const *keywords, const char *const *values, int expand_dbname);
	int			(*connectPoll) (PgscaleFleetConnection *conn);
	int			(*status) (const PgscaleFleetConnection *conn);
	int			(*socket) (const PgscaleFleetConnection *conn);
	void		(*finish) (PgscaleFleetConnection *conn);
	char	   *(*errorMessage) (const PgscaleFleetConnection *conn);
	int			(*connectionUsedPassword) (const PgscaleFleetConnection *conn);
	int			(*setnonblocking) (PgscaleFleetConnection *conn, int arg);
	void	   *(*setNoticeReceiver) (PgscaleFleetConnection *conn, void (*receiver) (void *arg, const PgscaleFleetResult *result), void *arg);
	int			(*sendQuery) (PgscaleFleetConnection *conn, const char *query);
	int			(*setSingleRowMode) (PgscaleFleetConnection *conn);
	int			(*flush) (PgscaleFleetConnection *conn);
	int			(*consumeInput) (PgscaleFleetConnection *conn);
	int			(*isBusy) (PgscaleFleetConnection *conn);
	PgscaleFleetResult *(*getResult) (PgscaleFleetConnection *conn);
	int			(*resultStatus) (const PgscaleFleetResult *result);
	char	   *(*resultErrorField) (const PgscaleFleetResult *result, int field);
	char	   *(*resultErrorMessage) (const PgscaleFleetResult *result);
	int			(*ntuples) (const PgscaleFleetResult *result);
	int			(*nfields) (const PgscaleFleetResult *result);
	int			(*fformat) (const PgscaleFleetResult *result, int column);
	char	   *(*getvalue) (const PgscaleFleetResult *result, int row, int column);
	int			(*getlength) (const PgscaleFleetResult *result, int row, int column);
	int			(*getisnull) (const PgscaleFleetResult *result, int row, int column);
	void		(*clear) (PgscaleFleetResult *result);
	PgscaleFleetOption *(*conninfoParse) (const char *conninfo, char **error);
	void		(*conninfoFree) (PgscaleFleetOption *options);
	void		(*freemem) (void *memory);
} PgscaleFleetLibpq;

/* Raises an error if it cannot be had. */
extern const PgscaleFleetLibpq *pgscale_fleet_libpq(void);

#endif							/* PGSCALE_FLEET_LIBPQ_H */
