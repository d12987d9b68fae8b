-- Whose each object is, who may use it, and as whom and how it runs.  Whoever changes this file's output changes what a role can
-- reach: hold it against the "Privilege" of the object in doc/.
-- Statements are not echoed: a line of \echo says whose answer follows.
\set ECHO none
CREATE EXTENSION pgscale;
\pset null '-'
\pset format unaligned

-- "superuser" is whoever installed the extension, and what belongs to the owner alone is left out.
CREATE FUNCTION pg_temp.owner(oid) RETURNS text LANGUAGE sql STABLE AS
$$ SELECT CASE WHEN $1 = e.extowner AND r.rolsuper THEN 'superuser' ELSE $1::regrole::text END
     FROM pg_extension e JOIN pg_roles r ON r.oid = e.extowner WHERE extname = 'pgscale' $$;
CREATE FUNCTION pg_temp.grants(acl aclitem[], kind "char", owner oid) RETURNS text LANGUAGE sql STABLE AS
$$ SELECT string_agg(format('%s: %s', grantee, privileges), '; ' ORDER BY grantee COLLATE "C")
     FROM (SELECT CASE WHEN a.grantee = 0 THEN 'PUBLIC' ELSE a.grantee::regrole::text END AS grantee,
                  string_agg(a.privilege_type || CASE WHEN a.is_grantable THEN '*' ELSE '' END, ', '
                             ORDER BY a.privilege_type COLLATE "C") AS privileges
             FROM aclexplode(coalesce($1, acldefault($2, $3))) a
            WHERE a.grantee <> $3
            GROUP BY 1) g $$;

\echo -- the schema
SELECT n.nspname AS schema, pg_temp.owner(nspowner) AS owner, pg_temp.grants(nspacl, 'n', nspowner) AS grants,
       obj_description(n.oid, 'pg_namespace') IS NOT NULL AS comment
  FROM pg_namespace n
 WHERE nspname IN ('pgscale', 'pgscale_internal') ORDER BY 1;

\echo '-- functions, procedures and aggregates: "safe", "restricted" and "unsafe" are what they are in parallel queries'
SELECT p.oid::regprocedure AS routine,
       CASE prokind WHEN 'f' THEN 'function' WHEN 'p' THEN 'procedure' WHEN 'a' THEN 'aggregate' ELSE prokind::text END AS kind,
       lanname AS language,
       pg_temp.owner(proowner) AS owner, pg_temp.grants(proacl, 'f', proowner) AS grants,
       CASE WHEN prosecdef THEN 'definer' ELSE 'invoker' END AS runs_as, proconfig AS settings,
       CASE provolatile WHEN 'v' THEN 'volatile' WHEN 's' THEN 'stable' ELSE 'immutable' END AS volatility,
       CASE proparallel WHEN 'u' THEN 'unsafe' WHEN 'r' THEN 'restricted' ELSE 'safe' END AS parallel,
       proisstrict AS strict, proleakproof AS leakproof, obj_description(p.oid, 'pg_proc') IS NOT NULL AS comment
  FROM pg_proc p JOIN pg_language l ON l.oid = prolang
 WHERE pronamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace)
 ORDER BY proname COLLATE "C", pg_get_function_identity_arguments(p.oid) COLLATE "C";

\echo '-- what depends on the server''s version asks one function'
SELECT p.oid::regprocedure AS asks_the_server FROM pg_proc p
 WHERE p.pronamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace) AND concat(p.prosrc, pg_get_function_sqlbody(p.oid)) ~ 'current_setting\(''server_version_num|to_regclass\(''pg_';
SELECT current_setting('server_version') ~ concat('^', pgscale_internal.major(), '\D') AS major;
\echo '-- a subtransaction cannot start within a parallel plan: what has an exception block, or calls what has one, is parallel unsafe'
WITH RECURSIVE blocks AS (
    SELECT oid, proname FROM pg_proc WHERE pronamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace) AND prosrc ~ '\n *EXCEPTION *\n'
    UNION
    SELECT p.oid, p.proname FROM pg_proc p JOIN blocks b ON concat(p.prosrc, pg_get_function_sqlbody(p.oid)) ~ concat('pgscale(_internal)?\.', b.proname, '\(')
     WHERE p.pronamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace))
SELECT count(*) > 10 AS some, string_agg(p.oid::regprocedure::text, ' ' ORDER BY 1) FILTER (WHERE p.proparallel <> 'u') AS not_unsafe
  FROM blocks JOIN pg_proc p USING (oid);
\echo -- views, tables and sequences; options are security_barrier, security_invoker and the like
SELECT c.oid::regclass AS relation,
       CASE relkind WHEN 'v' THEN 'view' WHEN 'r' THEN 'table' WHEN 'S' THEN 'sequence' ELSE relkind::text END AS kind,
       pg_temp.owner(relowner) AS owner, pg_temp.grants(relacl, CASE relkind WHEN 'S' THEN 's' ELSE 'r' END::"char", relowner) AS grants,
       reloptions AS options, relpersistence AS persistence, relrowsecurity AS row_security,
       obj_description(c.oid, 'pg_class') IS NOT NULL AS comment
  FROM pg_class c
 WHERE relnamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace) AND relkind NOT IN ('i', 'c', 't')
 ORDER BY relname COLLATE "C";
SELECT attrelid::regclass AS relation, attname AS column, pg_temp.grants(attacl, 'c', relowner) AS grants
  FROM pg_attribute a JOIN pg_class c ON c.oid = attrelid
 WHERE relnamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace) AND attacl IS NOT NULL
 ORDER BY relname COLLATE "C", attnum;

\echo '-- types, without those of tables'' and views'' rows, which go with these'
SELECT t.oid::regtype AS type, pg_temp.owner(typowner) AS owner, pg_temp.grants(typacl, 'T', typowner) AS grants,
       obj_description(t.oid, 'pg_type') IS NOT NULL AS comment
  FROM pg_type t LEFT JOIN pg_class c ON c.oid = typrelid
 WHERE typnamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace) AND typelem = 0 AND coalesce(c.relkind, 'c') = 'c'
 ORDER BY typname COLLATE "C";

\echo -- the foreign-data wrapper, of which nodes are servers
SELECT fdwname AS wrapper, pg_temp.owner(fdwowner) AS owner, pg_temp.grants(fdwacl, 'F', fdwowner) AS grants, fdwhandler::oid AS handler,
       fdwvalidator::regproc AS validator, obj_description(oid, 'pg_foreign_data_wrapper') IS NOT NULL AS comment
  FROM pg_foreign_data_wrapper;

\echo '-- kinds of objects that are not looked at above, and what runs by itself: none'
SELECT classid::regclass AS catalog, count(*)
  FROM pg_depend
 WHERE refclassid = 'pg_extension'::regclass AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pgscale')
   AND deptype = 'e' AND classid NOT IN ('pg_namespace'::regclass, 'pg_proc'::regclass, 'pg_class'::regclass, 'pg_type'::regclass,
                                         'pg_foreign_data_wrapper'::regclass)
 GROUP BY 1;
SELECT tgrelid::regclass AS relation, tgname AS trigger FROM pg_trigger WHERE tgrelid IN
    (SELECT oid FROM pg_class WHERE relnamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace)) ORDER BY tgrelid::regclass::text COLLATE "C";
SELECT ev_class::regclass AS relation, rulename AS rule FROM pg_rewrite WHERE rulename <> '_RETURN' AND ev_class IN
    (SELECT oid FROM pg_class WHERE relnamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace));

\echo -- all that is in the schema belongs to the extension, and nothing of the extension is elsewhere; without types, of which those
-- of rows are members only since 17
SELECT pg_describe_object(classid, objid, 0) AS object, member, in_schema
  FROM (SELECT classid, objid, true AS member FROM pg_depend
         WHERE refclassid = 'pg_extension'::regclass AND refobjid = (SELECT oid FROM pg_extension WHERE extname = 'pgscale')
           AND deptype = 'e' AND classid NOT IN ('pg_namespace'::regclass, 'pg_type'::regclass,
                                                'pg_foreign_data_wrapper'::regclass)) m
  FULL JOIN (SELECT classid, objid, true AS in_schema FROM pg_depend
              WHERE refclassid = 'pg_namespace'::regclass AND refobjid IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace) AND deptype = 'n'
                AND classid <> 'pg_type'::regclass) s
       USING (classid, objid)
 WHERE (member AND in_schema) IS NOT TRUE
 ORDER BY 1;

\echo '-- pg_dump keeps what an administrator has granted since, and knows it from what the extension''s script has granted: that'
-- script is all that has
SELECT pg_describe_object(classoid, objoid, objsubid) AS object
  FROM (SELECT 'pg_proc'::regclass::oid AS classoid, oid AS objoid, 0 AS objsubid, proacl AS acl FROM pg_proc
         WHERE pronamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace)
        UNION ALL SELECT 'pg_class'::regclass, oid, 0, relacl FROM pg_class WHERE relnamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace)) o
  LEFT JOIN pg_init_privs i USING (classoid, objoid, objsubid)
 WHERE acl IS DISTINCT FROM initprivs
 ORDER BY 1;

DROP EXTENSION pgscale;
