-- complain if script is sourced in psql, rather than via CREATE EXTENSION
\echo Use "CREATE EXTENSION pgscale" to load this file. \quit

CREATE SCHEMA pgscale;
COMMENT ON SCHEMA pgscale IS 'objects of the extension pgscale';
GRANT USAGE ON SCHEMA pgscale TO pg_monitor, pg_signal_backend;
-- Parts of the functions and views of pgscale. A role that calls one of those needs USAGE on both schemas.
CREATE SCHEMA pgscale_internal;
COMMENT ON SCHEMA pgscale_internal IS 'tables and functions that the extension pgscale uses itself';
GRANT USAGE ON SCHEMA pgscale_internal TO pg_monitor;

-- The first statement of each upgrade script calls this, too: nothing is changed where the library is too old for a script.
CREATE FUNCTION pgscale_internal.require_library()
RETURNS void
AS 'MODULE_PATHNAME', 'pgscale_require_library'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale_internal.require_library() IS
'raises an error if the library is older than the extension, and warns if it is not preloaded; for the scripts of the extension';
SELECT pgscale_internal.require_library();
