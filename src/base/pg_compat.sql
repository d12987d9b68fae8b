-- All SQL that depends on the server's version calls this function.
CREATE FUNCTION pgscale_internal.major()
RETURNS integer
LANGUAGE sql STABLE PARALLEL SAFE
RETURN current_setting('server_version_num')::integer / 10000;
COMMENT ON FUNCTION pgscale_internal.major() IS 'the server''s major version';
