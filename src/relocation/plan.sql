-- The plan of what to relocate, and the measurements that it rests on.

CREATE FUNCTION pgscale.tablespace_latency(
    tablespace name DEFAULT NULL,
    OUT tablespace name, OUT reads integer,
    OUT read_ms double precision, OUT max_ms double precision, OUT spread double precision,
    OUT sequential_bytes_per_s bigint, OUT random_page_cost double precision,
    OUT device text, OUT reason text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_tablespace_latency'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.tablespace_latency(name) IS
'speed of the device below a tablespace, or below each, measured now without caches: mean of up to 256 random reads of a page, rate of sequential ones, and the random_page_cost that this suggests, greatest(1, 0.1 * read_ms / ms of a page read in sequence); because PostgreSQL''s documentation bases its default of 4 on random reads 40 times slower, 90 % of them cached; none if the rounds of the measurement disagree';

CREATE FUNCTION pgscale_internal.relocation_clock(pause_ms double precision DEFAULT 0)
RETURNS double precision
AS 'MODULE_PATHNAME', 'pgscale_relocation_clock'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale_internal.relocation_clock(double precision) IS
'internal, for relocation_plan: waits for that time, a second at most, and returns the milliseconds of a clock that cannot be set';
GRANT EXECUTE ON FUNCTION pgscale_internal.relocation_clock(double precision) TO pg_monitor;

-- A look at what the server has counted up to now: for each relation the blocks that were not in shared buffers, by its file,
-- and for all of them the time that reads took.
CREATE FUNCTION pgscale_internal.relocation_reads(
    OUT at_ms double precision, OUT relations oid[], OUT filenodes oid[], OUT reads bigint[],
    OUT read_ms double precision, OUT stats_reset timestamptz)
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT pg_stat_clear_snapshot();
    SELECT pgscale_internal.relocation_clock(), array_agg(c.oid), array_agg(c.relfilenode),
           array_agg(pg_stat_get_blocks_fetched(c.oid) - pg_stat_get_blocks_hit(c.oid)),
           pg_stat_get_db_blk_read_time(d.oid), pg_stat_get_db_stat_reset_time(d.oid)
      FROM pg_class c, pg_database d
     WHERE d.datname = current_database() AND c.relkind IN ('r', 'm', 't', 'i', 'S') AND NOT c.relisshared
     GROUP BY d.oid
$$;
COMMENT ON FUNCTION pgscale_internal.relocation_reads() IS
'internal, for relocation_plan: the server''s counts of reads of each relation of this database so far';
GRANT EXECUTE ON FUNCTION pgscale_internal.relocation_reads() TO pg_monitor;

-- What to move: which indexes and tables would gain how much in another tablespace, and which of them to take there when it has
-- only so much room.
--
-- The server counts, for each relation, the blocks that were not in shared buffers. Two looks at these counts, a window apart,
-- tell what is read now. Some of it the kernel's cache answers; how much the counts do not tell, but time does, if the server
-- measures it (track_io_timing): let f be the time that all reads of this database took in the window, divided by what they would
-- have taken had each gone to its device, which a probe times. Then
--
--     time of a relation's reads here  = reads * latency here * f
--     how many of them the device sees = reads * least(1, f)
--     time of them there               = those * latency there
--
-- f may be larger than 1: requests queue when many sessions read at a time, and the probe, which has one under way, knows nothing
-- of that. With all that is read in one tablespace, the first line is reads * the mean time of a read, and the probe only says how
-- many reads the device saw. Reads that the kernel answers cost the same here and there.
--
-- Without measured times, the share of a relation that the kernel has in its cache stands for the share of reads that it answers,
-- which is a guess: the reason says so.
--
-- What is built or rewritten in the window is read by that and not by queries, or has counts that are not its own: such rows are
-- shown, and not chosen.
--
-- Locking. No relation's: sizes are those that relation_os_cache() finds, past smgr, since pg_relation_size() would wait for
-- whoever locks a relation. A relation that is dropped during the window has no row. Like any long query, this one holds back
-- the horizon of VACUUM while it waits.
--
-- Privileges. All is done as the caller, who needs pg_monitor's to see what others build, and EXECUTE on tablespace_latency().
CREATE FUNCTION pgscale.relocation_plan(
    tablespace name, budget_bytes bigint, duration interval DEFAULT '30 seconds',
    OUT kind text, OUT relation regclass, OUT source name,
    OUT size_bytes bigint, OUT size_after_bytes bigint,
    OUT reads_per_s double precision, OUT physical_reads_per_s double precision,
    OUT here_ms double precision, OUT there_ms double precision,
    OUT saved_ms_per_s double precision, OUT saved_ms_per_s_per_gb double precision,
    OUT chosen boolean, OUT statement text, OUT reason text)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_column
DECLARE
    -- what a move must save at least, in ms of all sessions' waiting in a second: a hundredth of one session; below it a window
    -- tells chance from gain no more
    least_gain_ms CONSTANT float8 := 10;
    duration_ms CONSTANT float8 := extract(epoch FROM duration) * 1000;
    target record;
    target_oid oid;
    earlier record;
    later record;
    left_ms float8;
    seconds float8;
    timed_ms float8;    -- that all reads in between took
    seen_built oid[] := '{}';
BEGIN
    IF tablespace IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'tablespace must not be null',
            HINT = 'Name the tablespace to move to.';
    ELSIF budget_bytes IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'budget_bytes must not be null',
            HINT = 'Say how many bytes may be moved.';
    ELSIF duration IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'duration must not be null',
            HINT = 'Say for how long to watch, such as interval ''1 minute''.';
    ELSIF budget_bytes <= 0 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'budget_bytes must be greater than zero',
            HINT = 'Say how many bytes may be moved, such as pg_size_bytes(''10 GB'').';
    ELSIF duration_ms NOT BETWEEN 1 AND 86400000 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'duration must be from a millisecond to a day',
            HINT = 'Name a time in which the server does its usual work, such as interval ''1 minute''.';
    ELSIF NOT pg_has_role('pg_monitor', 'USAGE') THEN
        RAISE insufficient_privilege USING MESSAGE = 'permission denied to plan relocation',
            HINT = 'Beside EXECUTE on this function and on pgscale.tablespace_latency(name), it takes pg_monitor.';
    END IF;

    SELECT l.read_ms, l.reason, l.spread, l.device INTO target FROM pgscale.tablespace_latency(tablespace) l;
    IF target.read_ms IS NULL THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('the latency of tablespace "%s" is unknown', tablespace),
            DETAIL = format('pgscale.tablespace_latency says: %s.', target.reason),
            HINT = 'Name a tablespace that can be read from and written to.';
    END IF;

    SELECT * INTO earlier FROM pgscale_internal.relocation_reads();
    LOOP
        -- what is being built or rewritten: index, and table
        PERFORM pg_stat_clear_snapshot();
        seen_built := ARRAY(
            SELECT unnest(seen_built)
            UNION
            SELECT unnest(ARRAY[index_relid, relid]) FROM pg_stat_progress_create_index WHERE datname = current_database()
            UNION
            SELECT relid FROM pg_stat_progress_cluster WHERE datname = current_database());
        left_ms := earlier.at_ms + duration_ms - pgscale_internal.relocation_clock();
        EXIT WHEN left_ms <= 0;
        PERFORM pgscale_internal.relocation_clock(left_ms);
    END LOOP;
    SELECT * INTO later FROM pgscale_internal.relocation_reads();
    IF later.stats_reset IS DISTINCT FROM earlier.stats_reset THEN
        RAISE object_not_in_prerequisite_state USING MESSAGE = 'statistics were reset during the window',
            HINT = 'Ask again.';
    END IF;
    seconds := (later.at_ms - earlier.at_ms) / 1000;
    timed_ms := later.read_ms - earlier.read_ms;
    SELECT oid INTO target_oid FROM pg_tablespace WHERE spcname = relocation_plan.tablespace;
    IF NOT FOUND THEN
        RAISE undefined_object USING MESSAGE = format('tablespace "%s" does not exist', tablespace),
            HINT = 'The tablespaces are those of pg_tablespace; CREATE TABLESPACE makes another one.';
    END IF;

    RETURN QUERY
    WITH RECURSIVE part AS MATERIALIZED (
        -- each relation, and the one that it is moved with: TOAST moves with its table
        SELECT c.oid AS part, coalesce(owner.oid, c.oid) AS relation, c.reltuples, c.relpages,
               coalesce(nullif(c.reltablespace, 0), d.dattablespace) AS tablespace,
               CASE WHEN b.filenode = a.filenode THEN b.reads - a.reads ELSE 0 END::float8 AS reads,
               b.filenode IS DISTINCT FROM a.filenode OR c.oid = ANY (seen_built) AS built
          FROM pg_class c
          JOIN unnest(later.relations, later.filenodes, later.reads) AS b(relation, filenode, reads) ON b.relation = c.oid
          JOIN pg_database d ON d.datname = current_database()
          LEFT JOIN unnest(earlier.relations, earlier.filenodes, earlier.reads) AS a(relation, filenode, reads) ON a.relation = c.oid
          LEFT JOIN pg_index x ON x.indexrelid = c.oid
          LEFT JOIN pg_class owner ON owner.reltoastrelid = coalesce(x.indrelid, c.oid)
    ), latency AS MATERIALIZED (
        SELECT s.oid, s.spcname, l.read_ms, l.reason, l.spread, l.device
          FROM (SELECT DISTINCT tablespace FROM part WHERE reads > 0 AND tablespace <> target_oid OFFSET 0) t
          JOIN pg_tablespace s ON s.oid = t.tablespace
          CROSS JOIN LATERAL pgscale.tablespace_latency(s.spcname) l
        UNION ALL
        SELECT target_oid, relocation_plan.tablespace, target.read_ms, NULL, target.spread, target.device
    ), factor AS MATERIALIZED (
        SELECT CASE WHEN timed_ms > 0 THEN timed_ms / nullif(sum(p.reads * l.read_ms), 0) END AS f
          FROM part p JOIN latency l ON l.oid = p.tablespace
    ), file AS (
        SELECT relation::oid AS part, sum(size_bytes) AS size, sum(os_cache_bytes) AS kernel
          FROM pgscale.relation_os_cache()
         GROUP BY 1
    ), movable AS MATERIALIZED (
        SELECT CASE c.relkind WHEN 'i' THEN 'index' ELSE 'table' END AS kind, c.oid AS relation,
               format('%I.%I', n.nspname, c.relname) AS name,
               coalesce(nullif(c.reltablespace, 0), d.dattablespace) AS tablespace,
               a.amname, c.reloptions, x.indrelid, x.indkey
          FROM pg_class c
          JOIN pg_namespace n ON n.oid = c.relnamespace
          JOIN pg_database d ON d.datname = current_database()
          LEFT JOIN pg_am a ON a.oid = c.relam
          LEFT JOIN pg_index x ON x.indexrelid = c.oid
         WHERE c.relkind IN ('r', 'm', 'i') AND c.relpersistence <> 't'
           AND c.oid >= 16384 AND n.nspname NOT IN ('pg_catalog', 'pg_toast')
           AND x.indisexclusion IS NOT TRUE AND x.indisvalid IS NOT FALSE
           AND coalesce(nullif(c.reltablespace, 0), d.dattablespace) <> target_oid
    ), read AS MATERIALIZED (
        SELECT m.*, p.reads, p.built, p.unknown, p.size, p.tuples,
               CASE WHEN NOT (p.built OR p.unknown) THEN p.here END AS here,
               CASE WHEN NOT (p.built OR p.unknown) THEN p.physical END AS physical
          FROM movable m
          JOIN (SELECT p.relation, sum(p.reads) AS reads, bool_or(p.built) AS built,
                       bool_or(p.reads > 0 AND l.read_ms IS NULL) AS unknown,
                       sum(p.reads * l.read_ms * coalesce(f.f, 1 - coalesce(k.cached, 0))) AS here,
                       sum(p.reads * least(1, coalesce(f.f, 1 - coalesce(k.cached, 0)))) AS physical,
                       sum(k.size) AS size,
                       -- as the planner does: density when last counted, times the present size
                       sum(p.reltuples * k.size / nullif(p.relpages, 0) / current_setting('block_size')::float8)
                           FILTER (WHERE p.part = p.relation AND p.reltuples >= 0) AS tuples
                  FROM part p
                  CROSS JOIN factor f
                  LEFT JOIN latency l ON l.oid = p.tablespace
                  LEFT JOIN (SELECT part, size, kernel / nullif(size, 0)::float8 AS cached FROM file) k ON k.part = p.part
                 GROUP BY 1) p USING (relation)
         WHERE p.reads > 0 OR p.built
    ), width AS (
        -- a btree's tuple: header, 8 bytes more with a map of nulls; key, aligned; line pointer
        SELECT r.relation, r.tuples,
               CASE WHEN bool_or(s.null_frac > 0) THEN 16 ELSE 8 END
               + 8 * ceil(sum(s.avg_width * (1 - s.null_frac)) / 8) + 4 AS tuple,
               coalesce((SELECT option_value::float8 FROM pg_options_to_table(r.reloptions)
                          WHERE option_name = 'fillfactor'), 90) / 100 AS fill,
               current_setting('block_size')::float8 AS page
          FROM read r
          CROSS JOIN LATERAL unnest(r.indkey) WITH ORDINALITY AS k(attnum, position)
          -- an expression's statistics are the index's, by its own column
          JOIN pg_attribute a ON a.attrelid = CASE k.attnum WHEN 0 THEN r.relation ELSE r.indrelid END
                             AND a.attnum = CASE k.attnum WHEN 0 THEN k.position ELSE k.attnum END
          JOIN pg_class c ON c.oid = a.attrelid
          JOIN pg_namespace n ON n.oid = c.relnamespace
          LEFT JOIN pg_stats s ON s.schemaname = n.nspname AND s.tablename = c.relname
                              AND s.attname = a.attname AND NOT s.inherited
         WHERE r.amname = 'btree'
         GROUP BY r.relation, r.tuples, r.reloptions
        HAVING count(*) = count(s.avg_width)
    ), rebuilt AS (
        -- pages have 40 bytes of header and special space, and a high key; inner pages are 70 % full; one page is meta
        SELECT relation, (2 + ceil(leaves * fanout / greatest(fanout - 1, 1))) * page AS size
          FROM (SELECT relation, page, floor((page - 40) * 0.7 / tuple) AS fanout,
                       ceil(tuples / greatest(floor((page * fill - 40) / tuple) - 1, 1)) AS leaves
                  FROM width) w
    ), rated AS (
        SELECT r.*, least(r.size, b.size)::bigint AS size_after, r.physical * target.read_ms AS there,
               (r.here - r.physical * target.read_ms) / seconds AS saved
          FROM read r LEFT JOIN rebuilt b USING (relation)
    ), ranked AS MATERIALIZED (
        SELECT *, CASE WHEN gains THEN
               row_number() OVER (PARTITION BY gains ORDER BY saved / greatest(size_after, 1) DESC, relation) END AS rank
          -- by the slowest round there; and here by the fastest, where the probe is all that is known
          FROM (SELECT r.*, l.device IS NOT DISTINCT FROM target.device AS same_device,
                       saved >= least_gain_ms AND l.device IS DISTINCT FROM target.device
                       AND here / CASE WHEN f.f IS NULL THEN l.spread ELSE 1 END - there * target.spread > here * 0.2 AS gains
                  FROM rated r CROSS JOIN factor f LEFT JOIN latency l ON l.oid = r.tablespace) r
    ), sizes AS MATERIALIZED (
        SELECT array_agg(coalesce(size_after, 0) ORDER BY rank) AS size FROM ranked WHERE rank IS NOT NULL
    ), greedy AS (
        -- down the ranks, taking what still fits
        SELECT 0::bigint AS rank, false AS chosen, budget_bytes AS left_bytes
        UNION ALL
        SELECT g.rank + 1, g.next <= g.left_bytes, g.left_bytes - CASE WHEN g.next <= g.left_bytes THEN g.next ELSE 0 END
          FROM (SELECT rank, left_bytes, (SELECT size FROM sizes)[rank + 1] AS next FROM greedy) g
         WHERE g.next IS NOT NULL
    )
    SELECT r.kind, r.relation::regclass, l.spcname, r.size::bigint, r.size_after,
           r.reads / seconds, r.physical / seconds, r.here / nullif(r.reads, 0), r.there / nullif(r.reads, 0),
           r.saved, r.saved / greatest(r.size_after, 1) * 1024 ^ 3, coalesce(g.chosen, false),
           CASE r.kind WHEN 'index' THEN format('SELECT pgscale.relocate_index(%L, %L);', r.name, relocation_plan.tablespace)
                       ELSE format('SELECT pgscale.relocate_table(%L, %L, mode => ''lock'');', r.name, relocation_plan.tablespace) END,
           CASE WHEN r.built THEN 'discarded: built or rewritten during the window'
                ELSE concat_ws('; ',
                     CASE WHEN r.unknown THEN 'latency here is unknown: ' || t.reason
                          WHEN g.chosen THEN 'chosen'
                          WHEN r.gains THEN 'does not fit into the budget'
                          WHEN r.same_device THEN 'is on the same device: ' || target.device
                          ELSE 'saves too little' END,
                     CASE WHEN f.f IS NULL THEN 'an estimate: no read was timed, so the kernel''s cache stands for what it answers' END)
           END
      FROM ranked r
      CROSS JOIN factor f
      JOIN pg_tablespace l ON l.oid = r.tablespace
      LEFT JOIN latency t ON t.oid = r.tablespace
      LEFT JOIN greedy g ON g.rank = r.rank
     ORDER BY g.chosen DESC NULLS LAST, r.saved DESC NULLS LAST, r.relation;
END
$$;
COMMENT ON FUNCTION pgscale.relocation_plan(name, bigint, interval) IS
'relations to move to a tablespace: watches for the given time which indexes and tables of this database are read, times the devices, and chooses those that save most per byte within the budget; with the statement that moves each';
