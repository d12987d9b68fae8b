-- Relations in the kernel's page cache.

CREATE FUNCTION pgscale.relation_os_cache(
    relation regclass DEFAULT NULL,
    OUT relation regclass, OUT fork text, OUT size_bytes bigint,
    OUT buffers_bytes bigint, OUT os_cache_bytes bigint, OUT both_bytes bigint,
    OUT dirty_bytes bigint, OUT writeback_bytes bigint)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_relation_os_cache'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale.relation_os_cache(regclass) IS
'one row a fork of a relation, or of all: bytes in shared buffers, in the kernel''s cache and in both, and bytes that the kernel must still write, an upper bound; takes no lock';
GRANT EXECUTE ON FUNCTION pgscale.relation_os_cache(regclass) TO pg_monitor;

-- The files of other databases are seen only from there, so that the view says of each what it does not see.
CREATE VIEW pgscale.relation_os_cache AS
    SELECT relation, fork, size_bytes, buffers_bytes, os_cache_bytes, both_bytes, dirty_bytes, writeback_bytes, datname
      FROM (SELECT c.*, pgscale_internal.foreign_name(current_database()) AS datname FROM pgscale.relation_os_cache(NULL) c WHERE c.size_bytes > 0
            UNION ALL
            SELECT NULL, NULL, NULL, coalesce(sum(b.buffers_bytes), 0)::bigint, NULL, NULL, NULL, NULL, pgscale_internal.foreign_name(d.datname)
              FROM pg_database d LEFT JOIN pgscale_internal.relation_buffers() b ON b.datid = d.oid
             WHERE d.datname <> current_database() AND d.datallowconn AND NOT d.datistemplate
             GROUP BY d.datname) r
     ORDER BY os_cache_bytes DESC NULLS LAST;
COMMENT ON VIEW pgscale.relation_os_cache IS
'one row a fork of each relation of this database that is not empty, largest share of the kernel''s cache first: bytes in shared buffers, in that cache and in both, and bytes that the kernel must still write, an upper bound; and one row for each other database, which is not seen from here';
GRANT SELECT ON pgscale.relation_os_cache TO pg_monitor;
COMMENT ON COLUMN pgscale.relation_os_cache.relation IS
'table, index, TOAST table, materialized view or sequence; NULL in the row of another database, of which only buffers_bytes is known here';
COMMENT ON COLUMN pgscale.relation_os_cache.fork IS 'main, fsm, vm or init';
COMMENT ON COLUMN pgscale.relation_os_cache.size_bytes IS 'size of its files';
COMMENT ON COLUMN pgscale.relation_os_cache.buffers_bytes IS 'size of its pages in shared buffers';
COMMENT ON COLUMN pgscale.relation_os_cache.os_cache_bytes IS 'size of its pages in the kernel''s page cache; NULL if the kernel cannot report it';
COMMENT ON COLUMN pgscale.relation_os_cache.both_bytes IS 'size of its pages in both caches, counted page by page';
COMMENT ON COLUMN pgscale.relation_os_cache.dirty_bytes IS
'written to the kernel, and writing to the disk has not begun, an upper bound; NULL without cachestat';
COMMENT ON COLUMN pgscale.relation_os_cache.writeback_bytes IS 'being written to the disk; NULL without cachestat';
COMMENT ON COLUMN pgscale.relation_os_cache.datname IS 'name of the database';

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
