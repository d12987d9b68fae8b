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
'one row for each fork of a relation, largest share of the kernel''s cache first; takes no lock. Errors: wrong_object_type without storage, undefined_table, feature_not_supported for a temporary relation of another session
relation: table, index, TOAST table, materialized view or sequence; as an argument NULL: all of this database that are not empty
fork: main, fsm, vm or init
size_bytes: size of its files
buffers_bytes: size of its pages in shared buffers; 0 for temporary relations
os_cache_bytes: size of its pages in the kernel''s cache; NULL if the kernel cannot report it for this file
both_bytes: size of its pages in both, counted page by page
dirty_bytes: written to the kernel, while writing to disk has not begun, an upper bound; NULL without cachestat
writeback_bytes: being written to disk; NULL without cachestat
datname: name of the database; another one has only buffers_bytes: ask there';
GRANT EXECUTE ON FUNCTION pgscale.relation_os_cache(regclass) TO pg_monitor;

CREATE FUNCTION pgscale.os_cache_flush(relation regclass, wait boolean DEFAULT false)
RETURNS bigint
AS 'MODULE_PATHNAME', 'pgscale_os_cache_flush'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.os_cache_flush(regclass, boolean) IS
'writes the dirty buffers of all forks of a relation, makes the kernel begin to write it to disk, and returns the bytes of these buffers. Holds ACCESS SHARE. Errors: as relation_os_cache(), and feature_not_supported without wait where sync_file_range is not allowed
relation: any with storage, also one that the role cannot read
wait: true: return when all of it is on disk';

CREATE FUNCTION pgscale.os_cache_evict(relation regclass)
RETURNS bigint
AS 'MODULE_PATHNAME', 'pgscale_os_cache_evict'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.os_cache_evict(regclass) IS
'makes the kernel drop the clean pages of all forks of a relation, and returns their bytes, NULL if the kernel cannot report it. Dirty pages stay, and the kernel begins to write them. Shared buffers do not change. Takes no lock. Errors: as relation_os_cache()
relation: any with storage, also one that the role cannot read';
