-- What it tells of each kind of relation, and what it answers to wrong input. Here fsync is off, so that nothing is asked to
-- reach the disk, and an older kernel does not tell what is dirty: for that see t/os_cache_truth.pl.
CREATE EXTENSION pgscale;
\pset format unaligned \pset footer off
SELECT enabled, state, reason ~ '^asks the kernel by (cachestat|mincore)' AS reason FROM pgscale.health WHERE feature = 'os_cache';

-- one row a fork, in bytes; what was just written is in memory twice
CREATE TABLE t (id int PRIMARY KEY, filler text);
INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 1000) i;
VACUUM (FREEZE) t;
CREATE FUNCTION blocks(bytes bigint) RETURNS bigint LANGUAGE sql AS 'SELECT bytes / current_setting(''block_size'')::bigint';
CREATE FUNCTION dirty_blocks(relation regclass) RETURNS bigint LANGUAGE sql AS 'SELECT blocks(pgscale.os_cache_flush(relation))';
SELECT dirty_blocks('t') >= 0 AS wrote, dirty_blocks('t') AS again;
SELECT relation, fork, size_bytes = pg_relation_size('t', fork) AS size, blocks(buffers_bytes) > 0 AS in_buffers,
       os_cache_bytes BETWEEN both_bytes AND size_bytes AS kernel, both_bytes = buffers_bytes AS in_both,
       coalesce(dirty_bytes BETWEEN 0 AND size_bytes, true) AS dirty,
       coalesce(writeback_bytes BETWEEN 0 AND size_bytes, true) AS writeback
  FROM pgscale.relation_os_cache('t') ORDER BY fork COLLATE "C";

-- what is written is the dirty buffers, no more, no less
UPDATE t SET filler = 'y' WHERE id = 1;
SELECT dirty_blocks('t') >= 1 AS wrote;
CREATE TABLE one (x int);
INSERT INTO one VALUES (1);
SELECT dirty_blocks('one');
SELECT dirty_blocks('one');
UPDATE one SET x = 2;
SELECT blocks(pgscale.os_cache_flush('one', true)), blocks(pgscale.os_cache_flush('one', wait => true)) AS again;

-- other kinds
CREATE INDEX one_x ON one (x);
CREATE UNLOGGED TABLE unlogged (x int);
CREATE MATERIALIZED VIEW matview AS SELECT 1 AS x;
CREATE SEQUENCE seq;
CREATE TEMP TABLE temp (x int);
INSERT INTO temp VALUES (1);
SELECT dirty_blocks('temp');
SELECT dirty_blocks('temp');
SELECT relation, fork, blocks(size_bytes) AS size, blocks(buffers_bytes) AS in_buffers, blocks(os_cache_bytes) AS kernel
  FROM unnest('{one, one_x, unlogged, matview, seq, temp}'::regclass[]) r, pgscale.relation_os_cache(r) WHERE fork <> 'vm' ORDER BY 1, 2;
SELECT count(pgscale.os_cache_evict(r)) AS evicted, count(dirty_blocks(r)) AS flushed
  FROM unnest('{t, matview, seq, pg_class, pg_database}'::regclass[]) r;
SELECT relation, buffers_bytes > 0 AS in_buffers FROM pgscale.relation_os_cache()
 WHERE relation IN ('pg_class'::regclass, 'pg_proc'::regclass, 'pg_database'::regclass) AND fork = 'main' ORDER BY relation;

-- in another tablespace
SET allow_in_place_tablespaces = on;
CREATE TABLESPACE pgscale_elsewhere LOCATION '';
CREATE TABLE away TABLESPACE pgscale_elsewhere AS SELECT generate_series(1, 1000) AS x;
CREATE INDEX away_x ON away (x);
SELECT dirty_blocks('away') > 0 AS flushed;
SELECT relation, size_bytes = pg_relation_size(relation) AS size, os_cache_bytes > 0 AS kernel
  FROM pgscale.relation_os_cache() WHERE relation IN ('away'::regclass, 'away_x'::regclass) AND fork = 'main' ORDER BY relation;
DROP TABLE away;
DROP TABLESPACE pgscale_elsewhere;

-- an empty relation has a row if it is asked for by name; without a name, or with NULL, all that are not empty
CREATE TABLE empty ();
SELECT * FROM pgscale.relation_os_cache('empty');
SELECT (SELECT count(*) FROM pgscale.relation_os_cache() WHERE relation = 'empty'::regclass) AS without_name,
       (SELECT count(*) FROM pgscale.relation_os_cache(NULL) WHERE relation = 'empty'::regclass) AS with_null,
       (SELECT count(*) FROM pgscale.relation_os_cache() WHERE relation IN ('temp'::regclass, 't'::regclass, 'pg_database'::regclass)) > 4 AS some,
       (SELECT count(DISTINCT relation) FROM pgscale_internal.relation_os_cache(NULL)) =
       (SELECT count(*) FROM pg_class WHERE pg_relation_filenode(oid) IS NOT NULL) AS complete;
SELECT bool_and(os_cache_bytes <= before) AS sorted
  FROM (SELECT os_cache_bytes, lag(os_cache_bytes) OVER () AS before FROM pgscale.relation_os_cache()) c;
SELECT pgscale.os_cache_flush(NULL), pgscale.os_cache_flush('t', NULL), pgscale.os_cache_evict(NULL);

-- what has no storage
CREATE VIEW v AS SELECT 1 AS x;
CREATE TABLE partitioned (x int PRIMARY KEY) PARTITION BY RANGE (x);
CREATE TYPE composite AS (x int);
CREATE FOREIGN DATA WRAPPER nothing;
CREATE SERVER nowhere FOREIGN DATA WRAPPER nothing;
CREATE FOREIGN TABLE remote (x int) SERVER nowhere;
DO $$
DECLARE
    call text;
    message text;
    detail text;
    hint text;
BEGIN
    FOREACH call IN ARRAY ARRAY[
        'relation_os_cache(''v'')', 'os_cache_flush(''v'')', 'os_cache_evict(''v'')',
        'relation_os_cache(''partitioned'')', 'os_cache_flush(''partitioned_pkey'')', 'os_cache_evict(''composite'')',
        'relation_os_cache(''remote'')', 'relation_os_cache(1)', 'os_cache_flush(1)', 'os_cache_evict(1)', 'os_cache_evict(0)']
    LOOP
        BEGIN
            EXECUTE 'SELECT pgscale.' || call;
        EXCEPTION WHEN OTHERS THEN
            GET STACKED DIAGNOSTICS message = MESSAGE_TEXT, detail = PG_EXCEPTION_DETAIL, hint = PG_EXCEPTION_HINT;
            RAISE INFO USING MESSAGE = format('%s: %s: %s', call, SQLSTATE, message), DETAIL = detail, HINT = hint;
        END;
    END LOOP;
END $$;

-- an error leaves nothing behind
SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND relation = 'partitioned_pkey'::regclass;
BEGIN;
SELECT dirty_blocks('t') >= 0 AS flushed, pgscale.os_cache_evict('t') >= 0 AS evicted, count(*) > 0 AS seen FROM pgscale.relation_os_cache('t');
SELECT count(*) FROM pg_locks WHERE pid = pg_backend_pid() AND relation IN ('t'::regclass, 'pg_class'::regclass);
COMMIT;
DROP EXTENSION pgscale;
