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
'one row a fork of a relation, or of all: what shared buffers, the kernel''s cache and both hold, and what the kernel has yet to write, which is an upper bound; takes no lock';
GRANT EXECUTE ON FUNCTION pgscale.relation_os_cache(regclass) TO pg_monitor;

CREATE VIEW pgscale.relation_os_cache AS
    SELECT * FROM pgscale.relation_os_cache(NULL)
     WHERE size_bytes > 0
     ORDER BY os_cache_bytes DESC NULLS LAST;
COMMENT ON VIEW pgscale.relation_os_cache IS
'one row a fork of each relation of this database that is not empty, largest share of the kernel''s cache first: what shared buffers, that cache and both hold, and what the kernel has yet to write, which is an upper bound';
GRANT SELECT ON pgscale.relation_os_cache TO pg_monitor;
COMMENT ON COLUMN pgscale.relation_os_cache.relation IS
'table, index, TOAST table, materialized view or sequence';
COMMENT ON COLUMN pgscale.relation_os_cache.fork IS
'main, fsm, vm or init';
COMMENT ON COLUMN pgscale.relation_os_cache.size_bytes IS
'size of its files';
COMMENT ON COLUMN pgscale.relation_os_cache.buffers_bytes IS
'size of what shared buffers hold of it';
COMMENT ON COLUMN pgscale.relation_os_cache.os_cache_bytes IS
'size of what the kernel''s page cache holds of it; NULL if the kernel cannot tell';
COMMENT ON COLUMN pgscale.relation_os_cache.both_bytes IS
'size of what both hold, counted page by page';
COMMENT ON COLUMN pgscale.relation_os_cache.dirty_bytes IS
'written to the kernel and not yet on its way to the disk, an upper bound; NULL without cachestat';
COMMENT ON COLUMN pgscale.relation_os_cache.writeback_bytes IS
'on its way to the disk; NULL without cachestat';

CREATE FUNCTION pgscale.os_cache_flush(relation regclass, wait boolean DEFAULT false)
RETURNS bigint
AS 'MODULE_PATHNAME', 'pgscale_os_cache_flush'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.os_cache_flush(regclass, boolean) IS
'writes a relation''s dirty buffers, returns their bytes, and has the kernel begin to write the relation to disk; with wait, returns when it is there';

CREATE FUNCTION pgscale.os_cache_evict(relation regclass)
RETURNS bigint
AS 'MODULE_PATHNAME', 'pgscale_os_cache_evict'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.os_cache_evict(regclass) IS
'drops what is clean of a relation from the kernel''s cache, and returns how many bytes that were; what is dirty stays, and begins to be written';
