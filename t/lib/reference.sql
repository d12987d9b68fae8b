-- Prints doc/reference.md, from the catalog of a server that has pgscale preloaded and created: psql -XAtq -f t/lib/reference.sql.
-- `make reference` does it. t/pgscale_reference.pl checks that each major prints the committed page.
--
-- Settings, views and functions are in order of their names. Texts are those of DefineCustom...Variable and of COMMENT ON. In the
-- comment of a function further lines may describe arguments and result columns, each "name: meaning". A name of both is one row.
SET client_encoding = 'UTF8';
SET search_path = pg_catalog, pg_temp;

-- a value or a limit of a setting, in the largest unit that keeps it whole
CREATE FUNCTION pg_temp.shown(value text, unit text) RETURNS text LANGUAGE sql AS $$
    SELECT CASE WHEN value = '' THEN 'empty'
                WHEN unit IS NULL OR value IN ('-1', '0') THEN value
                WHEN unit IN ('B', 'kB', 'MB') THEN pg_size_pretty(pg_size_bytes(value || unit) + 1)
                ELSE (SELECT floor(s / size) || ' ' || name
                        FROM (VALUES (86400, 'days'), (3600, 'h'), (60, 'min'), (1, 's'), (0.001, 'ms')) u(size, name),
                             extract(epoch FROM (value || unit)::interval) s
                       WHERE s >= size AND (s % size = 0 OR size = 86400) LIMIT 1) END;
$$;
-- prose: names as code, lines of at most 120 columns. t/pgscale_reference.pl looks for what has no description.
CREATE FUNCTION pg_temp.marked(text) RETURNS text LANGUAGE sql AS $$
    SELECT regexp_replace(replace(coalesce($1, '(undescribed)'), '|', '\|'), '(?<![\w`/=-])([a-z][a-z0-9.]*[_.][a-z0-9_.]*[a-z0-9](\(\))?|[a-z]+\(\))(?![\w`/*@])', '`\1`', 'g');
$$;
CREATE FUNCTION pg_temp.wrapped(text) RETURNS text LANGUAGE sql AS $$ SELECT rtrim(regexp_replace($1, '(.{1,120})(\s+|$)', E'\\1\n', 'g'), E'\n'); $$;
CREATE FUNCTION pg_temp.type(oid) RETURNS text LANGUAGE sql AS $$ SELECT replace(format_type($1, NULL), 'timestamp with time zone', 'timestamptz'); $$;
-- the roles, except the owner, that have it
CREATE FUNCTION pg_temp.roles(acl aclitem[], owner oid) RETURNS text LANGUAGE sql AS $$
    SELECT coalesce(string_agg(format('`%s`', CASE grantee WHEN 0 THEN 'PUBLIC' ELSE grantee::regrole::text END), ', ' ORDER BY grantee::regrole::text), 'superuser')
      FROM aclexplode(acl) WHERE grantee <> owner;
$$;

CREATE TEMP VIEW part AS
SELECT p.oid, p.proargnames[n] AS name, coalesce(p.proargmodes[n], 'i') IN ('i', 'b', 'v') AS is_input, n,
       array_position(p.proargnames, p.proargnames[n]) < n AS is_again,
       pg_temp.type(coalesce(p.proallargtypes[n], p.proargtypes[n - 1])) AS type,
       regexp_replace(pg_get_function_arg_default(p.oid, n), '::[a-z ]+(\[\])?', '') AS by_default
  FROM pg_proc p CROSS JOIN LATERAL generate_series(1, coalesce(cardinality(p.proallargtypes), p.pronargs)) n
 WHERE p.pronamespace = 'pgscale'::regnamespace;

CREATE TEMP VIEW meaning AS
SELECT p.oid, substring(l.line FROM '^(\w+): ') AS name, substring(l.line FROM '^\w+: (.*)') AS meaning
  FROM pg_proc p CROSS JOIN LATERAL regexp_split_to_table(obj_description(p.oid, 'pg_proc'), '\n') WITH ORDINALITY l(line, n)
 WHERE p.pronamespace = 'pgscale'::regnamespace AND l.n > 1;

\echo '# Reference'
\echo
\echo 'Each setting, view and function of pgscale, by name. `make reference` writes this page from the catalog of a server.'
\echo
\echo '## Settings'
\echo
\echo '*Change*: `session`: any user, with SET; `reload`: `postgresql.conf` or ALTER SYSTEM, then `pg_reload_conf()`;'
\echo '`restart`: a restart of the server. Without preload these settings do not exist, and SET creates a placeholder'
\echo 'without effect. [Operations](operations.md) has the settings of the server that matter, and what each feature takes.'
\echo
\echo '| setting | default | range | change | description |'
\echo '|---|---|---|---|---|'
SELECT format('| `%s` | %s | %s | %s | %s |', name, pg_temp.shown(boot_val, unit),
              CASE vartype WHEN 'bool' THEN 'on, off' WHEN 'enum' THEN array_to_string(enumvals, ', ') WHEN 'string' THEN 'text'
                           ELSE format('%s to %s', pg_temp.shown(min_val, unit), pg_temp.shown(max_val, unit)) END,
              CASE context WHEN 'user' THEN 'session' WHEN 'sighup' THEN 'reload' WHEN 'postmaster' THEN 'restart' ELSE context END,
              pg_temp.marked(concat_ws(' ', short_desc, extra_desc)))
  FROM pg_settings WHERE name LIKE 'pgscale.%' ORDER BY name COLLATE "C";

\echo
\echo '## Views and types'
SELECT format(E'\n### pgscale.%s\n%s\n\n| column | type | meaning |\n|---|---|---|\n%s', c.relname,
              pg_temp.wrapped(CASE c.relkind WHEN 'v' THEN format('%s. Privilege: %s.', pg_temp.marked(obj_description(c.oid, 'pg_class')), pg_temp.roles(c.relacl, c.relowner))
                                                  ELSE pg_temp.marked(obj_description(c.reltype, 'pg_type')) || '.' END),
              (SELECT string_agg(format('| `%s` | %s | %s |', attname, pg_temp.type(atttypid), pg_temp.marked(col_description(c.oid, attnum))), E'\n' ORDER BY attnum)
                 FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0))
  FROM pg_class c WHERE c.relnamespace = 'pgscale'::regnamespace AND c.relkind IN ('v', 'c') ORDER BY c.relname COLLATE "C";

\echo
\echo '## Functions'
\echo
\echo 'Where the privilege is *superuser*, a superuser can grant EXECUTE to other roles.'
SELECT format(E'\n### pgscale.%s()\n%s%s', p.proname,
              pg_temp.wrapped(format('`%spgscale.%s(%s)%s`: %s. Privilege: %s.%s', CASE p.prokind WHEN 'p' THEN 'CALL ' END, p.proname,
                  (SELECT string_agg(concat_ws(' ', name, type, 'DEFAULT ' || by_default), ', ' ORDER BY n) FROM part WHERE part.oid = p.oid AND is_input),
                  CASE WHEN p.prokind <> 'p' AND p.prorettype NOT IN ('record'::regtype, 'void'::regtype) THEN ' RETURNS ' || pg_get_function_result(p.oid) END,
                  pg_temp.marked(split_part(obj_description(p.oid, 'pg_proc'), E'\n', 1)), pg_temp.roles(p.proacl, p.proowner),
                  CASE WHEN t.rows IS NULL THEN (SELECT ' Columns: ' || string_agg(format('`%s` %s', name, type), ', ' ORDER BY n) || '.'
                                                   FROM part WHERE part.oid = p.oid AND NOT is_input) END)),
              t.rows)
  FROM pg_proc p
 CROSS JOIN LATERAL (SELECT CASE WHEN count(m.meaning) > 0 THEN E'\n\n| argument or column | type | meaning |\n|---|---|---|\n'
                                 || string_agg(format('| `%s` | %s | %s |', name, coalesce(type, '(unknown)'), CASE WHEN m.meaning IS NOT NULL THEN pg_temp.marked(m.meaning) END), E'\n' ORDER BY n) END AS rows
                       FROM (SELECT * FROM part WHERE part.oid = p.oid AND NOT is_again) part FULL JOIN (SELECT * FROM meaning WHERE meaning.oid = p.oid) m USING (name)) t
 WHERE p.pronamespace = 'pgscale'::regnamespace ORDER BY p.proname COLLATE "C", p.oid;
