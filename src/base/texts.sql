-- Texts and names of other databases and sessions.

-- Statements and names of other sessions are bytes in the encoding of their database, or of the database where the name was
-- created. They must be converted to text before they are shown.
CREATE FUNCTION pgscale_internal.foreign_text(value text, encoding integer)
RETURNS text
AS 'MODULE_PATHNAME', 'pgscale_foreign_text'
LANGUAGE C STRICT STABLE PARALLEL SAFE;
COMMENT ON FUNCTION pgscale_internal.foreign_text(text, integer) IS
'a text of that encoding in the encoding of this database; invalid characters become U+FFFD or question marks';

CREATE FUNCTION pgscale_internal.foreign_name(value name)
RETURNS name
AS 'MODULE_PATHNAME', 'pgscale_foreign_name'
LANGUAGE C STRICT STABLE PARALLEL SAFE;
COMMENT ON FUNCTION pgscale_internal.foreign_name(name) IS
'the name of a role or a database as a valid text of this database; invalid characters become U+FFFD or question marks';

CREATE FUNCTION pgscale_internal.name_of(object oid, role boolean DEFAULT false)
RETURNS name
AS 'MODULE_PATHNAME', 'pgscale_name_of'
LANGUAGE C STRICT STABLE PARALLEL SAFE;
COMMENT ON FUNCTION pgscale_internal.name_of(oid, boolean) IS 'the name of a database or role, as foreign_name() returns it; NULL if there is none';

CREATE FUNCTION pgscale_internal.clean_text(value text)
RETURNS text
AS 'MODULE_PATHNAME', 'pgscale_clean_text'
LANGUAGE C STRICT STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION pgscale_internal.clean_text(text) IS
'a text, which may have another database''s encoding, without control characters and invalid bytes';
GRANT EXECUTE ON FUNCTION pgscale_internal.clean_text(text) TO pg_monitor;

CREATE FUNCTION pgscale_internal.clean_line(value text, most integer)
RETURNS text
AS 'MODULE_PATHNAME', 'pgscale_clean_line'
LANGUAGE C STRICT STABLE PARALLEL SAFE;
COMMENT ON FUNCTION pgscale_internal.clean_line(text, integer) IS 'the first characters of a clean text, on one line: white space in it is one space';

CREATE FUNCTION pgscale_internal.clean_statement(query text)
RETURNS text
AS 'MODULE_PATHNAME', 'pgscale_clean_statement'
LANGUAGE C STRICT STABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION pgscale_internal.clean_statement(text) IS
'a statement as a clean text, its first 2,000 characters, and without constants if it seems to have a password or a key';

CREATE FUNCTION pgscale_internal.statement_command(statement text)
RETURNS text
AS 'MODULE_PATHNAME', 'pgscale_statement_command'
LANGUAGE C STRICT IMMUTABLE PARALLEL SAFE;
COMMENT ON FUNCTION pgscale_internal.statement_command(text) IS
'the first word of a statement behind white space and comments, in capitals; empty if there is none';
GRANT EXECUTE ON FUNCTION pgscale_internal.statement_command(text) TO pg_monitor;

CREATE FUNCTION pgscale_internal.is_secret(setting text, value text)
RETURNS boolean
AS 'MODULE_PATHNAME', 'pgscale_is_secret'
LANGUAGE C STABLE PARALLEL SAFE;
COMMENT ON FUNCTION pgscale_internal.is_secret(text, text) IS
'whether a setting is for superusers only, or its name or this value of it (NULL: any) seems to have a password, a key, a command or a connection';
GRANT EXECUTE ON FUNCTION pgscale_internal.is_secret(text, text) TO pg_monitor;

-- Only a number above zero has a unit: 0 needs none, and -1 has a special meaning.
CREATE FUNCTION pgscale_internal.setting_text(value text, unit text)
RETURNS text
LANGUAGE sql IMMUTABLE PARALLEL SAFE
SET search_path = pg_catalog, pg_temp
AS $$
    WITH unit_size (name, kind, size) AS (
        VALUES ('B', 'bytes', 1::numeric), ('kB', 'bytes', 1024), ('MB', 'bytes', 1048576), ('GB', 'bytes', 1073741824),
               ('TB', 'bytes', 1099511627776), ('us', 'time', 0.001), ('ms', 'time', 1), ('s', 'time', 1000), ('min', 'time', 60000),
               ('h', 'time', 3600000), ('d', 'time', 86400000)
    )
    SELECT CASE WHEN value ~ '^[0-9]+([.][0-9]+)?$' AND value ~ '[1-9]'
                THEN coalesce((SELECT trim_scale(value::numeric * times * own.size / shown.size) || shown.name
                                 FROM unit_size own
                                 JOIN unit_size shown ON shown.kind = own.kind
                                CROSS JOIN coalesce(substring(unit FROM '^[0-9]+')::numeric, 1) times
                                WHERE own.name = ltrim(unit, '0123456789') AND value::numeric * times * own.size % shown.size = 0
                                ORDER BY shown.size DESC LIMIT 1), concat(value, unit))
                ELSE value END
$$;
COMMENT ON FUNCTION pgscale_internal.setting_text(text, text) IS
'value of a setting whose unit is that of pg_settings, as SHOW prints it: 16384 of 8kB is 128MB; any other text as it is';
GRANT EXECUTE ON FUNCTION pgscale_internal.setting_text(text, text) TO pg_monitor;
