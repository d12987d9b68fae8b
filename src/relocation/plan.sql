-- The plan of relocations, and its measurements.

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
'speed of the device below each tablespace, measured now by direct I/O, some seconds each; works without preload and on a hot standby
tablespace: the measured tablespace; as an argument NULL: all except pg_global
reads: random reads of a page that were timed, up to 256 within 3 s
read_ms: mean time of a random read; NULL if nothing could be read
max_ms: maximum time of a random read
spread: mean of the slowest of four rounds / mean of the fastest
sequential_bytes_per_s: rate of sequential reads of 1 MB, up to 32 MB within 1 s
random_page_cost: suggestion, not applied (Planner Cost Constants): greatest(1, 0.1 * read_ms / ms of a page read in sequence); NULL if the rounds differ by more than half
device: the disk; of partitions and logical volumes the disk below; a number if there is no disk
reason: what was read, or why nothing could be read';

CREATE FUNCTION pgscale_internal.relocation_write_rate(tablespace oid)
RETURNS double precision
AS 'MODULE_PATHNAME', 'pgscale_relocation_write_rate'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale_internal.relocation_write_rate(oid) IS
'internal, for relocation_plan: bytes per second at which a new file can be written there, measured now; for roles that may execute tablespace_latency';
GRANT EXECUTE ON FUNCTION pgscale_internal.relocation_write_rate(oid) TO pg_monitor;

CREATE PROCEDURE pgscale.relocation_watch(duration interval DEFAULT '10 minutes', INOUT relations_read bigint DEFAULT NULL)
AS 'MODULE_PATHNAME', 'pgscale_relocation_watch'
LANGUAGE C;
COMMENT ON PROCEDURE pgscale.relocation_watch(interval, bigint) IS
'watches which relations of this database are read, without a snapshot; then relocation_plan() of this session uses that window if its duration is NULL. Errors: active_sql_transaction, invalid_parameter_value, null_value_not_allowed, insufficient_privilege; object_not_in_prerequisite_state if statistics were reset meanwhile
duration: for how long, a millisecond to a day
relations_read: number of relations that were read';
GRANT EXECUTE ON PROCEDURE pgscale.relocation_watch(interval, bigint) TO pg_monitor;

CREATE FUNCTION pgscale_internal.relocation_reads(relation oid)
RETURNS bigint
AS 'MODULE_PATHNAME', 'pgscale_relocation_reads'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale_internal.relocation_reads(oid) IS
'internal, for relocation_look: blocks of a relation that were not in shared buffers, so far';
GRANT EXECUTE ON FUNCTION pgscale_internal.relocation_reads(oid) TO pg_monitor;

-- A look at all relations of this database: how often each was read so far. As numbers that are the same in each session's texts.
CREATE FUNCTION pgscale_internal.relocation_look(OUT relations oid[], OUT files oid[], OUT reads bigint[], OUT read_us bigint, OUT reset_at text)
RETURNS record
-- by the snapshot of the query that calls it
LANGUAGE sql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET stats_fetch_consistency = none SET jit = off
AS $$
    SELECT array_agg(c.oid), array_agg(c.relfilenode), array_agg(pgscale_internal.relocation_reads(c.oid)),
           (1000 * pg_stat_get_db_blk_read_time(d.oid))::bigint, coalesce(extract(epoch FROM pg_stat_get_db_stat_reset_time(d.oid))::text, '')
      FROM pg_class c, pg_database d
     WHERE d.datname = current_database() AND c.relkind IN ('r', 'i', 'S', 't', 'm') AND NOT c.relisshared
     GROUP BY d.oid
$$;
COMMENT ON FUNCTION pgscale_internal.relocation_look() IS
'internal, for relocation_window: reads of each relation so far, its file, the time of all reads, and since when these are counted';
GRANT EXECUTE ON FUNCTION pgscale_internal.relocation_look() TO pg_monitor;

-- TOAST, and its index, counts for the table with which it moves.
CREATE FUNCTION pgscale_internal.relocation_between(
    earlier oid[], earlier_files oid[], earlier_reads bigint[], later oid[], later_files oid[], later_reads bigint[], being_built oid[],
    OUT relations oid[], OUT reads bigint[], OUT built boolean[], OUT relations_read bigint)
RETURNS record
LANGUAGE sql STABLE PARALLEL UNSAFE
-- it is not known how long the arrays are
SET search_path = pg_catalog, pg_temp SET jit = off SET enable_nestloop = off
AS $$
    WITH counted AS (
        SELECT relation, CASE WHEN e.file = l.file THEN greatest(l.reads - e.reads, 0) ELSE 0 END AS reads,
               e.file IS DISTINCT FROM l.file OR relation = ANY (being_built) AS built
          FROM unnest(later, later_files, later_reads) AS l(relation, file, reads)
          LEFT JOIN unnest(earlier, earlier_files, earlier_reads) AS e(relation, file, reads) USING (relation)
    ), moves_with AS (
        SELECT coalesce(t.oid, c.relation) AS relation, sum(c.reads)::bigint AS reads, bool_or(c.built) AS built
          FROM counted c
          LEFT JOIN pg_index x ON x.indexrelid = c.relation
          LEFT JOIN pg_class t ON t.reltoastrelid = coalesce(x.indrelid, c.relation) AND t.reltoastrelid <> 0
         WHERE c.reads > 0 OR c.built
         GROUP BY 1
    )
    SELECT coalesce(array_agg(relation), '{}'), coalesce(array_agg(reads), '{}'), coalesce(array_agg(built), '{}'), count(*) FILTER (WHERE reads > 0)
      FROM moves_with
$$;
COMMENT ON FUNCTION pgscale_internal.relocation_between(oid[], oid[], bigint[], oid[], oid[], bigint[], oid[]) IS
'internal, for relocation_window: what was read between two looks, and what was built or rewritten';
GRANT EXECUTE ON FUNCTION pgscale_internal.relocation_between(oid[], oid[], bigint[], oid[], oid[], bigint[], oid[]) TO pg_monitor;

CREATE FUNCTION pgscale_internal.relocation_window(
    duration_ms double precision,
    OUT seconds double precision, OUT timed_ms double precision, OUT relations oid[], OUT reads bigint[], OUT built boolean[])
AS 'MODULE_PATHNAME', 'pgscale_relocation_window'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale_internal.relocation_window(double precision) IS
'internal, for relocation_plan: the relations that were read, built or rewritten within that many milliseconds, and the time of all reads; TOAST counts for its table; NULL: in the window that relocation_watch() watched';
GRANT EXECUTE ON FUNCTION pgscale_internal.relocation_window(double precision) TO pg_monitor;

-- mode: how it is moved, unless it is asked for in another way. simple: the time to build it is that of its reads and writes; other
-- access methods, expressions and predicates may take any time of the CPU.
CREATE VIEW pgscale_internal.relocation_movable AS
    SELECT CASE c.relkind WHEN 'i' THEN 'index' ELSE 'table' END AS kind, c.oid AS relation,
           format('%I.%I', n.nspname, c.relname) AS name, s.oid AS tablespace, s.spcname, a.amname,
           x.indrelid AS heap, c.relpersistence = 'p' AS logged, c.reltuples, c.relpages,
           a.amname IN ('btree', 'hash', 'brin') AND x.indexprs IS NULL AND x.indpred IS NULL AS simple,
           CASE WHEN pgscale_internal.relocation_may_move_online(c.oid) THEN 'online'
                WHEN c.relkind = 'i' THEN 'rebuild' ELSE 'lock' END AS mode
      FROM pg_class c
      JOIN pg_namespace n ON n.oid = c.relnamespace
      JOIN pg_database d ON d.datname = current_database()
      JOIN pg_tablespace s ON s.oid = coalesce(nullif(c.reltablespace, 0), d.dattablespace)
      LEFT JOIN pg_am a ON a.oid = c.relam
      LEFT JOIN pg_index x ON x.indexrelid = c.oid
     WHERE c.relkind IN ('r', 'm', 'i') AND c.relpersistence <> 't'
       AND c.oid >= 16384 AND n.nspname NOT IN ('pg_catalog', 'pg_toast')
       -- an index that cannot be built concurrently can only move online
       AND (x.indisexclusion AND NOT pgscale_internal.relocation_may_move_online(c.oid)) IS NOT TRUE AND x.indisvalid IS NOT FALSE;
COMMENT ON VIEW pgscale_internal.relocation_movable IS 'internal, for relocation_plan: what can be moved, and how';
GRANT SELECT ON pgscale_internal.relocation_movable TO pg_monitor;

-- The size of a btree index of that many tuples that is built anew. A tuple has a header, with 8 bytes more if there is a map of
-- nulls, the key, aligned, and a line pointer. A page has 40 bytes of its own; a leaf has a high key, inner pages are 70 % full, and
-- one page is meta. pg_stats has the statistics of an expression under the index, by its own column.
CREATE FUNCTION pgscale_internal.relocation_btree_bytes(index oid, tuples double precision)
RETURNS double precision
LANGUAGE sql STRICT VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    WITH tuple AS (
        SELECT CASE WHEN bool_or(s.null_frac > 0) THEN 16 ELSE 8 END + 8 * ceil(sum(s.avg_width * (1 - s.null_frac)) / 8) + 4 AS bytes
          FROM pg_index x
          CROSS JOIN unnest(x.indkey::int2[]) WITH ORDINALITY AS k(attnum, place)
          JOIN pg_class c ON c.oid = CASE k.attnum WHEN 0 THEN x.indexrelid ELSE x.indrelid END
          JOIN pg_namespace n ON n.oid = c.relnamespace
          JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = CASE k.attnum WHEN 0 THEN k.place ELSE k.attnum END
          -- OFFSET has the view looked up by these names for each column, instead of all of it read once an index
          LEFT JOIN LATERAL (SELECT p.null_frac, p.avg_width FROM pg_stats p
                              WHERE p.schemaname = n.nspname AND p.tablename = c.relname AND p.attname = a.attname AND NOT p.inherited
                             OFFSET 0) s ON true
         WHERE x.indexrelid = index
        HAVING count(*) = count(s.avg_width)
    ), page AS (
        SELECT b.size, bytes, coalesce((SELECT o.option_value::float8 / 100 FROM pg_class c, pg_options_to_table(c.reloptions) o
                                         WHERE c.oid = index AND o.option_name = 'fillfactor'), 0.9) AS fill
          FROM tuple, CAST(current_setting('block_size') AS float8) AS b(size)
    ), tree AS (
        SELECT size, ceil(tuples / greatest(floor((size * fill - 40) / bytes) - 1, 1)) AS leaves, floor((size - 40) * 0.7 / bytes) AS fanout
          FROM page
    )
    SELECT (2 + ceil(leaves * fanout / greatest(fanout - 1, 1))) * size FROM tree
$$;
COMMENT ON FUNCTION pgscale_internal.relocation_btree_bytes(oid, double precision) IS
'internal, for relocation_plan: estimated size of a btree index of that many tuples when it is built anew; NULL unless ANALYZE has the width of each column, and the role may see it';

CREATE FUNCTION pgscale_internal.relocation_index_mode(index oid, OUT mode text, OUT why text)
RETURNS record
LANGUAGE sql STRICT VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE WHEN k.online AND (k.exclusion OR (k.bloat > 0.3) IS NOT TRUE) THEN 'online' ELSE 'rebuild' END,
           CASE WHEN NOT k.logged THEN 'an unlogged index cannot move online'
                WHEN NOT k.online THEN format('access method "%s" may log changes that a copy cannot follow', k.amname)
                WHEN k.exclusion THEN 'an exclusion constraint''s index cannot be built concurrently'
                WHEN k.bloat > 0.3 THEN format('estimated bloat of %s %%', round((100 * k.bloat)::numeric))
                WHEN k.bloat IS NOT NULL THEN 'estimated bloat is below 30 %'
                WHEN k.amname <> 'btree' THEN 'its bloat cannot be estimated: it is not a btree index'
                ELSE 'its bloat cannot be estimated: its columns were not analyzed, or the role may not read them' END
      FROM (SELECT c.relpersistence = 'p' AS logged, pgscale_internal.relocation_may_move_online(c.oid) AS online,
                   x.indisexclusion AS exclusion, a.amname,
                   CASE WHEN a.amname = 'btree' AND c.reltuples >= 0 THEN
                   -- as relocation_costs(): density when last counted, times the present size
                   1 - pgscale_internal.relocation_btree_bytes(c.oid, c.reltuples * s.size / nullif(c.relpages, 0) / current_setting('block_size')::float8)
                       / nullif(s.size, 0) END AS bloat
              FROM pg_index x
              JOIN pg_class c ON c.oid = x.indexrelid
              JOIN pg_am a ON a.oid = c.relam
              CROSS JOIN LATERAL pg_relation_size(c.oid) AS s(size)
             WHERE c.oid = index) k
$$;
COMMENT ON FUNCTION pgscale_internal.relocation_index_mode(oid) IS
'internal, for relocation: how an index is moved with mode => auto, online or rebuild, and the reason';

-- The cost of reads in the window, for the relations that can be moved to that tablespace: here_ms for all of their reads, of which
-- the device saw physical. timed: the server measured the time, so the kernel's cache need not be asked. The relations and their
-- reads are those of relocation_window(); only these are looked at.
CREATE FUNCTION pgscale_internal.relocation_costs(
    target oid, target_read_ms double precision, target_rate double precision, timed_ms double precision,
    relations oid[], reads double precision[], built boolean[],
    OUT kind text, OUT relation oid, OUT name text, OUT source name, OUT reads double precision, OUT built boolean, OUT unknown boolean,
    OUT timed boolean, OUT size_bytes bigint, OUT size_after_bytes bigint, OUT here_ms double precision, OUT physical double precision,
    OUT spread double precision, OUT device text, OUT reason text,
    OUT mode text, OUT logged boolean, OUT simple boolean, OUT rate double precision, OUT heap_bytes bigint, OUT heap_rate double precision)
RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    WITH part AS MATERIALIZED (
        SELECT w.relation, w.reads, w.built, coalesce(nullif(c.reltablespace, 0), d.dattablespace) AS tablespace
          FROM unnest($5, $6, $7) AS w(relation, reads, built)
          JOIN pg_class c ON c.oid = w.relation
          JOIN pg_database d ON d.datname = current_database()
    ), move AS MATERIALIZED (
        SELECT m.*, p.reads, p.built, coalesce(nullif(h.reltablespace, 0), d.dattablespace) AS heap_tablespace,
               pgscale_internal.relocation_bytes(m.relation, true, false) AS size
          FROM part p
          JOIN pgscale_internal.relocation_movable m USING (relation)
          JOIN pg_database d ON d.datname = current_database()
          LEFT JOIN pg_class h ON h.oid = m.heap
         WHERE p.tablespace <> target
    ), latency AS MATERIALIZED (
        SELECT s.oid, l.read_ms, l.reason, l.spread, l.device, l.sequential_bytes_per_s::float8 AS rate
          FROM (SELECT p.tablespace FROM part p WHERE p.reads > 0
                 UNION
                SELECT m.heap_tablespace FROM move m
                OFFSET 0) t
          JOIN pg_tablespace s ON s.oid = t.tablespace
          CROSS JOIN LATERAL pgscale.tablespace_latency(s.spcname) l
         WHERE t.tablespace <> target
        UNION ALL
        SELECT target, target_read_ms, NULL, NULL, NULL, target_rate
    ), factor AS MATERIALIZED (
        SELECT CASE WHEN timed_ms > 0 THEN timed_ms / nullif(sum(p.reads * l.read_ms), 0) END AS f
          FROM part p JOIN latency l ON l.oid = p.tablespace
    ), known AS MATERIALIZED (
        -- share: the part of its reads that the device sees; by timed reads more than 1 where they queue
        SELECT m.*, m.reads > 0 AND l.read_ms IS NULL AS unknown, f.f IS NOT NULL AS timed, l.read_ms, l.spread, l.device, l.reason, l.rate,
               coalesce(f.f, 1 - coalesce(pgscale_internal.relocation_bytes(m.relation, true, true) / nullif(m.size, 0)::float8, 0)) AS share
          FROM move m
          CROSS JOIN factor f
          LEFT JOIN latency l ON l.oid = m.tablespace
    )
    SELECT k.kind, k.relation, k.name, k.spcname, k.reads, k.built, k.unknown, k.timed, k.size,
           -- as the planner does: density when last counted, times the present size
           least(k.size, CASE WHEN k.amname = 'btree' AND k.mode = 'rebuild' AND k.reltuples >= 0 THEN
                              pgscale_internal.relocation_btree_bytes(k.relation,
                                  k.reltuples * k.size / nullif(k.relpages, 0) / current_setting('block_size')::float8) END)::bigint,
           CASE WHEN NOT (k.built OR k.unknown) THEN k.reads * k.read_ms * k.share END,
           CASE WHEN NOT (k.built OR k.unknown) THEN k.reads * least(1, k.share) END,
           k.spread, k.device, k.reason, k.mode, k.logged, k.simple, k.rate,
           CASE WHEN k.mode = 'rebuild' THEN pgscale_internal.relocation_bytes(k.heap, false, false) END, h.rate
      FROM known k
      LEFT JOIN latency h ON h.oid = k.heap_tablespace
$$;
COMMENT ON FUNCTION pgscale_internal.relocation_costs(oid, double precision, double precision, double precision, oid[], double precision[], boolean[]) IS
'internal, for relocation_plan: what reads of each relation cost where it is, within the window that relocation_window() returned';
GRANT EXECUTE ON FUNCTION
    pgscale_internal.relocation_costs(oid, double precision, double precision, double precision, oid[], double precision[], boolean[])
    TO pg_monitor;

-- What a move takes, by mode and sizes. Rates are bytes/s: of reads where it is, of reads of an index' table, and of writes in the
-- target. A copy reads and writes each page in turn; pgscale.relocation_rate limits that of an online move. A rebuild reads the table
-- twice: to build the index, and to add what has changed meanwhile. simple: that is what it takes.
CREATE FUNCTION pgscale_internal.relocation_effort(
    mode text, logged boolean, simple boolean, size_bytes bigint, size_after_bytes bigint, heap_bytes bigint,
    rate double precision, heap_rate double precision, write_rate double precision,
    OUT move_s double precision, OUT wal_bytes bigint, OUT space_bytes bigint)
RETURNS record
LANGUAGE sql STABLE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT CASE mode WHEN 'rebuild' THEN CASE WHEN simple THEN 2 * heap_bytes / heap_rate + size_after_bytes / write_rate END
                     ELSE greatest(size_bytes / rate + size_bytes / write_rate,
                                   CASE WHEN mode = 'online' AND rate IS NOT NULL AND write_rate IS NOT NULL THEN
                                   size_bytes / nullif(pg_size_bytes(current_setting('pgscale.relocation_rate', true)), 0)::float8 END) END,
           CASE WHEN NOT logged THEN 0 WHEN mode = 'rebuild' THEN size_after_bytes ELSE size_bytes END,
           CASE mode WHEN 'rebuild' THEN size_after_bytes ELSE size_bytes END
$$;
COMMENT ON FUNCTION pgscale_internal.relocation_effort(text, boolean, boolean, bigint, bigint, bigint, double precision, double precision, double precision) IS
'internal, for relocation_plan: predicted time of a move, its WAL, and the room that it needs in the target';
GRANT EXECUTE ON FUNCTION pgscale_internal.relocation_effort(text, boolean, boolean, bigint, bigint, bigint, double precision, double precision, double precision)
    TO pg_monitor;

-- Goes down the ranks and takes whatever still fits.
CREATE FUNCTION pgscale_internal.relocation_fit(sizes bigint[], budget_bytes bigint, OUT rank bigint, OUT chosen boolean)
RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    WITH RECURSIVE greedy AS (
        SELECT 0::bigint AS rank, false AS chosen, budget_bytes AS left_bytes
        UNION ALL
        SELECT g.rank + 1, g.next <= g.left_bytes, g.left_bytes - CASE WHEN g.next <= g.left_bytes THEN g.next ELSE 0 END
          FROM (SELECT rank, left_bytes, sizes[rank + 1] AS next FROM greedy) g
         WHERE g.next IS NOT NULL
    )
    SELECT g.rank, g.chosen FROM greedy g WHERE g.rank > 0
$$;
COMMENT ON FUNCTION pgscale_internal.relocation_fit(bigint[], bigint) IS
'internal, for relocation_plan: which of these sizes, best first, fit into the budget';
GRANT EXECUTE ON FUNCTION pgscale_internal.relocation_fit(bigint[], bigint) TO pg_monitor;

CREATE FUNCTION pgscale_internal.relocation_plan_check(tablespace name, budget_bytes bigint, duration interval)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF tablespace IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'tablespace must not be null',
            HINT = 'Name the tablespace to move to.';
    ELSIF budget_bytes IS NULL THEN
        RAISE null_value_not_allowed USING MESSAGE = 'budget_bytes must not be null',
            HINT = 'Say how many bytes may be moved.';
    ELSIF budget_bytes <= 0 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'budget_bytes must be greater than zero',
            HINT = 'Say how many bytes may be moved, such as pg_size_bytes(''10 GB'').';
    ELSIF extract(epoch FROM duration) NOT BETWEEN 0.001 AND 60 THEN
        RAISE invalid_parameter_value USING MESSAGE = 'duration must be from a millisecond to a minute',
            DETAIL = 'The snapshot of a query holds back VACUUM.',
            HINT = 'CALL pgscale.relocation_watch(''10 minutes'') watches without a snapshot; then pass NULL as duration.';
    ELSIF NOT pg_has_role('pg_monitor', 'USAGE') THEN
        RAISE insufficient_privilege USING MESSAGE = 'permission denied to plan relocation',
            HINT = 'Beside EXECUTE on this function and on pgscale.tablespace_latency(name), it takes pg_monitor.';
    END IF;
END
$$;
COMMENT ON FUNCTION pgscale_internal.relocation_plan_check(name, bigint, interval) IS
'internal, for relocation_plan: raises an error if its arguments are wrong, or the caller is not a member of pg_monitor';

-- The gain of each index and table in another tablespace, and which of them to move there within the given room.
--
-- The server counts, for each relation, the blocks that were not in shared buffers. Two readings of these counts, a window apart,
-- show the present reads. The kernel's cache answers some of them. The counts do not show how many, but the time does, if the server
-- measures it (track_io_timing). A probe times the devices. Let f be the time of all reads of this database in the window, divided by
-- the time that they would have taken if each had gone to its device. Then
--
--     time of a relation's reads here  = reads * latency here * f
--     how many of them the device sees = reads * least(1, f)
--     time of them there               = those * latency there
--
-- f may be larger than 1: requests queue when many sessions read at a time, and the probe has only one request at a time. If all reads
-- are in one tablespace, the first line is reads * the mean time of a read, and the probe only determines how many reads the device
-- saw. Reads that the kernel answers cost the same here and there.
--
-- Without measured times, the cached fraction of a relation is used as the fraction of reads that the kernel answers. That is a guess,
-- and the reason says so.
--
-- A relation that is built or rewritten in the window is read by that and not by queries, or has the counts of another one: such rows
-- are shown, but not chosen.
--
-- Locking. No lock on a relation. A relation that is dropped during the window has no row. Like any query, this one holds back the
-- horizon of VACUUM while it waits, so for a minute at most; relocation_watch() does not.
--
-- Cost. Linear in the relations that were read, except for two looks at all counts; relocation_plan.c.
--
-- Privileges. Everything runs as the caller, who needs those of pg_monitor to see builds of other roles, and EXECUTE on
-- tablespace_latency().
CREATE FUNCTION pgscale.relocation_plan(
    tablespace name, budget_bytes bigint, duration interval DEFAULT '30 seconds',
    OUT kind text, OUT relation regclass, OUT source name,
    OUT size_bytes bigint, OUT size_after_bytes bigint,
    OUT reads_per_s double precision, OUT physical_reads_per_s double precision,
    OUT here_ms double precision, OUT there_ms double precision,
    OUT saved_ms_per_s double precision, OUT saved_ms_per_s_per_gb double precision,
    OUT move_s double precision, OUT wal_bytes bigint, OUT space_bytes bigint,
    OUT chosen boolean, OUT statement text, OUT reason text)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp SET jit = off
AS $$
#variable_conflict use_column
DECLARE
    -- what a move must save at least, in ms of all sessions' waiting in a second: a hundredth of one session; below it a window
    -- tells chance from gain no more
    least_gain_ms CONSTANT float8 := 10;
    target record;
    target_oid oid;
    seen record;
BEGIN
    PERFORM pgscale_internal.relocation_plan_check(tablespace, budget_bytes, duration);
    SELECT l.read_ms, l.reason, l.spread, l.device, l.sequential_bytes_per_s INTO target FROM pgscale.tablespace_latency(tablespace) l;
    IF target.read_ms IS NULL THEN
        RAISE object_not_in_prerequisite_state USING
            MESSAGE = format('the latency of tablespace "%s" is unknown', tablespace),
            DETAIL = format('pgscale.tablespace_latency says: %s.', target.reason),
            HINT = 'Name a tablespace that can be read from and written to.';
    END IF;
    SELECT * INTO seen FROM pgscale_internal.relocation_window((extract(epoch FROM duration) * 1000)::float8);
    SELECT oid INTO target_oid FROM pg_tablespace WHERE spcname = relocation_plan.tablespace;
    IF NOT FOUND THEN
        RAISE undefined_object USING MESSAGE = format('tablespace "%s" does not exist', tablespace),
            HINT = 'pg_tablespace lists the tablespaces; CREATE TABLESPACE creates one.';
    END IF;

    RETURN QUERY
    WITH rated AS (
        SELECT c.*, c.physical * target.read_ms AS there, (c.here_ms - c.physical * target.read_ms) / seen.seconds AS saved
          FROM pgscale_internal.relocation_costs(target_oid, target.read_ms, target.sequential_bytes_per_s, seen.timed_ms,
                                                seen.relations, seen.reads::float8[], seen.built) c
    ), ranked AS MATERIALIZED (
        SELECT *, CASE WHEN gains THEN
               row_number() OVER (PARTITION BY gains ORDER BY saved / greatest(size_after_bytes, 1) DESC, relation) END AS rank
          -- by the slowest round there; and here by the fastest, where the probe is all that is known
          FROM (SELECT r.*, saved >= least_gain_ms AND r.device IS DISTINCT FROM target.device
                       AND here_ms / CASE WHEN r.timed THEN 1 ELSE r.spread END - there * target.spread > here_ms * 0.2 AS gains
                  FROM rated r) r
    )
    SELECT r.kind, r.relation::regclass, r.source, r.size_bytes, r.size_after_bytes,
           pgscale_internal.three_digits(r.reads / seen.seconds), pgscale_internal.three_digits(r.physical / seen.seconds),
           pgscale_internal.three_digits(r.here_ms / nullif(r.reads, 0)), pgscale_internal.three_digits(r.there / nullif(r.reads, 0)),
           pgscale_internal.three_digits(r.saved), pgscale_internal.three_digits(r.saved / greatest(r.size_after_bytes, 1) * 1024 ^ 3),
           pgscale_internal.three_digits(e.move_s), e.wal_bytes, e.space_bytes, coalesce(g.chosen, false),
           format('SELECT pgscale.relocate_%s(%L, %L%s);', CASE r.kind WHEN 'index' THEN 'indexes' ELSE r.kind END, r.name, relocation_plan.tablespace,
                  CASE WHEN r.mode IN ('rebuild', 'lock') THEN format(', mode => %L', r.mode) END),
           CASE WHEN r.built THEN 'discarded: built or rewritten during the window'
                ELSE concat_ws('; ',
                     CASE WHEN r.unknown THEN 'latency here is unknown: ' || r.reason
                          WHEN g.chosen THEN 'chosen'
                          WHEN r.gains THEN 'does not fit into the budget'
                          WHEN r.device IS NOT DISTINCT FROM target.device THEN 'is on the same device: ' || target.device
                          ELSE 'saves too little' END,
                     CASE WHEN NOT r.timed THEN 'an estimate: no read was timed, so the kernel''s cache stands for what it answers' END)
           END
      FROM ranked r
      CROSS JOIN LATERAL pgscale_internal.relocation_effort(r.mode, r.logged, r.simple, r.size_bytes, r.size_after_bytes, r.heap_bytes, r.rate, r.heap_rate,
                         (SELECT pgscale_internal.relocation_write_rate(target_oid))) e
      LEFT JOIN pgscale_internal.relocation_fit((SELECT array_agg(coalesce(size_after_bytes, 0) ORDER BY rank) FROM ranked
                                                  WHERE rank IS NOT NULL), budget_bytes) g ON g.rank = r.rank
     ORDER BY g.chosen DESC NULLS LAST, r.saved DESC NULLS LAST, r.relation;
END
$$;
COMMENT ON FUNCTION pgscale.relocation_plan(name, bigint, interval) IS
'relations of this database that were read and could move to a tablespace, chosen ones first, by saving per byte. Needs EXECUTE on tablespace_latency() and pg_monitor, too. Errors: undefined_object; object_not_in_prerequisite_state if it cannot be measured, statistics were reset, or no window was watched; invalid_parameter_value, null_value_not_allowed
tablespace: the target
budget_bytes: room in the target
duration: for how long to watch, a minute at most; NULL: the window of relocation_watch()
kind: index, or table with its TOAST table
relation: the relation; of a partitioned one each leaf
source: its tablespace
size_after_bytes: maximum size once moved, which counts against the budget; of rebuilt btree indexes by rows and mean widths, if analyzed, without deduplication
reads_per_s: reads of blocks that were not in shared buffers
physical_reads_per_s: of these, reads that the kernel''s cache did not answer
here_ms: mean time of such a read here, including reads from the kernel''s cache
there_ms: mean time of such a read in the target
saved_ms_per_s: waiting time that all backends together would save, in ms per second
move_s: predicted time of the move if nothing holds it back; NULL if unknown
wal_bytes: WAL that the move writes; 0 for unlogged relations
space_bytes: room that the move needs in the target until it is done
chosen: whether it fits into the budget
statement: statement that moves it
size_bytes: size now
saved_ms_per_s_per_gb: saved_ms_per_s per 2^30 bytes of size_after_bytes
reason: why it is chosen or not; whether the row is an estimate, without track_io_timing';
