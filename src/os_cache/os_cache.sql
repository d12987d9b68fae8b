-- Relations in the kernel's page cache.

CREATE FUNCTION pgscale_internal.relation_os_cache(
    relation regclass,
    OUT relation regclass, OUT fork text, OUT size_bytes bigint,
    OUT buffers_bytes bigint, OUT os_cache_bytes bigint, OUT both_bytes bigint,
    OUT dirty_bytes bigint, OUT writeback_bytes bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_relation_os_cache'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale_internal.relation_os_cache(regclass) IS
'one row a fork of a relation, or of all of this database that the caller can read: the rows of pgscale.relation_os_cache()';
GRANT EXECUTE ON FUNCTION pgscale_internal.relation_os_cache(regclass) TO pg_monitor;

-- The files of other databases are seen only from there, so that it says of each what is not seen here.
CREATE FUNCTION pgscale.relation_os_cache(
    relation regclass DEFAULT NULL,
    OUT relation regclass, OUT fork text, OUT size_bytes bigint,
    OUT buffers_bytes bigint, OUT os_cache_bytes bigint, OUT both_bytes bigint,
    OUT dirty_bytes bigint, OUT writeback_bytes bigint, OUT datname name)
RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
BEGIN ATOMIC
    SELECT c.*, pgscale_internal.foreign_name(current_database())
      FROM pgscale_internal.relation_os_cache($1) c
     WHERE $1 IS NOT NULL OR c.size_bytes > 0
    UNION ALL
    SELECT NULL, NULL, NULL, coalesce(sum(b.buffers_bytes), 0)::bigint, NULL, NULL, NULL, NULL, pgscale_internal.foreign_name(d.datname)
      FROM pg_catalog.pg_database d LEFT JOIN pgscale_internal.relation_buffers() b ON b.datid = d.oid
     WHERE $1 IS NULL AND d.datname <> current_database() AND d.datallowconn AND NOT d.datistemplate
     GROUP BY d.datname
     ORDER BY 5 DESC NULLS LAST;
END;
COMMENT ON FUNCTION pgscale.relation_os_cache(regclass) IS
'one row a fork of a relation, or of all that are not empty, largest share of the kernel''s cache first: bytes in shared buffers, in that cache and in both, and bytes that the kernel must still write, an upper bound; without a relation also one row for each other database, which is not seen from here; takes no lock';
GRANT EXECUTE ON FUNCTION pgscale.relation_os_cache(regclass) TO pg_monitor;

CREATE FUNCTION pgscale.os_cache_flush(relation regclass, wait boolean DEFAULT false)
RETURNS bigint
AS 'MODULE_PATHNAME', 'pgscale_os_cache_flush'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.os_cache_flush(regclass, boolean) IS
'writes a relation''s dirty buffers, returns their bytes, and makes the kernel begin to write the relation to disk; with wait, returns when it is on disk';

CREATE FUNCTION pgscale.os_cache_evict(relation regclass)
RETURNS bigint
AS 'MODULE_PATHNAME', 'pgscale_os_cache_evict'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.os_cache_evict(regclass) IS
'drops a relation''s clean pages from the kernel''s cache, and returns their bytes; dirty pages stay, and the kernel begins to write them';
