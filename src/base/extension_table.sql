-- Rows of the extension's own tables.

CREATE FUNCTION pgscale_internal.row_origin(cluster bigint, database oid)
RETURNS text
AS 'MODULE_PATHNAME', 'pgscale_row_origin'
LANGUAGE C STRICT STABLE PARALLEL SAFE;
COMMENT ON FUNCTION pgscale_internal.row_origin(bigint, oid) IS
'where a row of the library''s tables was written: another server, another database, or NULL for this one';
GRANT EXECUTE ON FUNCTION pgscale_internal.row_origin(bigint, oid) TO pg_monitor;
