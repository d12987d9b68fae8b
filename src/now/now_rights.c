/*-------------------------------------------------------------------------
 *
 * now_rights.c
 *	  Cures that act, and who may run them.
 *
 * pg_monitor reads the screen, and may run none of these.  If the current user may not run one,
 * its risk says who may.  The server's own checks decide when the statement is run.
 *
 * Portions Copyright (c) 2026, pgscale contributors
 *
 *-------------------------------------------------------------------------
 */
#include "postgres.h"

#include "catalog/pg_authid.h"
#include "catalog/pg_parameter_acl.h"
#include "miscadmin.h"
#include "utils/acl.h"
#include "utils/builtins.h"
#include "utils/fmgrprotos.h"

#include "base/pg_compat.h"
#include "now/now_rules.h"

void
pgscale_now_needs(PgscaleNowFinding *f, bool may, const char *who)
{
	if (!may && !superuser())
		f->risk = psprintf("%s; needs %s", f->risk, who);
}

/* The function, with its parameters, as has_function_privilege() wants it. */
static bool
may_execute(const char *function)
{
	return DatumGetBool(DirectFunctionCall2(has_function_privilege_name, CStringGetTextDatum(function), CStringGetTextDatum("EXECUTE")));
}

/* False if there is no such role. */
static bool
has_privs_of(Oid role)
{
	return OidIsValid(role) && has_privs_of_role(GetUserId(), role);
}

/* By the rules of pg_cancel_backend(): a superuser's session, and a process that has no role, are for superusers. */
static void
needs_signal(PgscaleNowFinding *f, Oid role, const char *backend_type, const char *function)
{
	if (backend_type && strcmp(backend_type, "autovacuum worker") == 0)
	{
		/* 18 and later have that role */
		const Oid	signaler = get_role_oid("pg_signal_autovacuum_worker", true);

		pgscale_now_needs(f, has_privs_of(signaler) && may_execute(function),
						  OidIsValid(signaler) ? "a member of pg_signal_autovacuum_worker" : "a superuser");
	}
	else if (superuser_arg(role))
		pgscale_now_needs(f, false, "a superuser");
	else
		pgscale_now_needs(f, (has_privs_of(ROLE_PG_SIGNAL_BACKEND) || has_privs_of(role)) && may_execute(function),
						  "a member of pg_signal_backend");
}

void
pgscale_now_cancel(PgscaleNowFinding *f, const PgscaleNowSession *session, const char *risk)
{
	pgscale_now_cure(f, risk, "SELECT pgscale.cancel(%d)", session->pid);
	needs_signal(f, session->role, session->backend_type, "pgscale.cancel(integer, boolean)");
}

#define TERMINATE	"pgscale.terminate(integer, boolean, boolean)"

void
pgscale_now_terminate(PgscaleNowFinding *f, const PgscaleNowSession *session, const char *risk)
{
	pgscale_now_cure(f, risk, "SELECT pgscale.terminate(%d)", session->pid);
	needs_signal(f, session->role, session->backend_type, TERMINATE);
}

void
pgscale_now_needs_terminate(PgscaleNowFinding *f)
{
	needs_signal(f, InvalidOid, NULL, TERMINATE);
}

void
pgscale_now_cancel_waiter(PgscaleNowFinding *f, int pid, Oid role, const char *risk)
{
	pgscale_now_cure(f, risk, "SELECT pg_cancel_backend(%d)", pid);
	needs_signal(f, role, NULL, "pg_catalog.pg_cancel_backend(integer)");
}

void
pgscale_now_set(PgscaleNowFinding *f, const PgscaleNowEvidence *e, const char *setting, const char *value, const char *risk)
{
	if (e->patroni)
	{
		/*
		 * no rule sets a text under Patroni, and a shell takes what is set as
		 * it is
		 */
		Assert(strchr(value, '\'') == NULL);
		pgscale_now_cure(f, psprintf("%s; run it in a shell: Patroni has the settings of all nodes", risk),
						 "patronictl edit-config --pg '%s=%s'", setting, value);
		return;
	}
	pgscale_now_cure(f, risk, "CALL pgscale.set('%s', %s, true)", setting, quote_literal_cstr(value));
	if (!may_execute("pgscale.set(pg_catalog.text, pg_catalog.text, boolean, boolean, bigint)"))
		pgscale_now_needs(f, false, "a superuser, or EXECUTE on pgscale.set()");
	else if (pg_parameter_aclcheck(setting, GetUserId(), ACL_ALTER_SYSTEM) != ACLCHECK_OK)
		pgscale_now_needs(f, false, psprintf("a superuser, or ALTER SYSTEM ON PARAMETER %s", setting));
	else
		pgscale_now_needs(f, may_execute("pg_catalog.pg_reload_conf()"), "a superuser, or EXECUTE on pg_reload_conf()");
}

void
pgscale_now_needs_latency(PgscaleNowFinding *f)
{
	pgscale_now_needs(f, may_execute("pgscale.tablespace_latency(pg_catalog.name)"), "a superuser, or EXECUTE on pgscale.tablespace_latency()");
}

void
pgscale_now_needs_owner(PgscaleNowFinding *f, Oid owner)
{
	pgscale_now_needs(f, has_privs_of(owner), "a superuser, or the database's owner");
}

/* 17 and later have that role. */
void
pgscale_now_needs_vacuum(PgscaleNowFinding *f, Oid owner)
{
	pgscale_now_needs(f, has_privs_of(owner) || has_privs_of(get_role_oid("pg_maintain", true)), "a superuser, the database's owner, or on 17 and later pg_maintain");
}
