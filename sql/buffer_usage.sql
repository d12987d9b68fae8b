-- What shared buffers hold: the views, who may use them, and what they answer to wrong input.
CREATE EXTENSION pgscale;
\pset format unaligned \pset footer off

SELECT * FROM pgscale.health WHERE feature = 'buffer_usage';

-- all counts, and all buffers
SELECT usage_count, fraction = buffers::float8 / (SELECT setting::int FROM pg_settings WHERE name = 'shared_buffers') AS fraction,
       dirty BETWEEN 0 AND buffers AS dirty, pinned BETWEEN 0 AND buffers AS pinned
  FROM pgscale_internal.buffer_usage();

-- a sample: of one buffer the interval is known, of many it can be computed
SELECT fraction, round(fraction_low::numeric, 9) AS low, round(fraction_high::numeric, 9) AS high,
       sum(buffers) = (SELECT sum(buffers) FROM pgscale.buffer_usage()) AS buffers, count(*)
  FROM pgscale_internal.buffer_usage_sample(1) GROUP BY 1, 2, 3 ORDER BY 1;
SELECT n, array_agg(s.usage_count) AS usage_counts, round(sum(fraction)::numeric, 6) AS fractions,
       abs(sum(buffers) - (SELECT sum(buffers) FROM pgscale.buffer_usage())) <= 4 AS buffers,
       bool_and(abs(buffers - fraction * (SELECT sum(buffers) FROM pgscale.buffer_usage())) <= 0.5) AS scaled,
       bool_and(fraction BETWEEN fraction_low AND fraction_high AND fraction_low >= 0 AND fraction_high <= 1) AS inside,
       -- its ends are where the share seen is off by 1.96 standard deviations
       bool_and(fraction_low = 0 OR abs((fraction - fraction_low) / sqrt(fraction_low * (1 - fraction_low) / n) - 1.96) < 0.001) AS low,
       bool_and(fraction_high = 1 OR abs((fraction_high - fraction) / sqrt(fraction_high * (1 - fraction_high) / n) - 1.96) < 0.001) AS high,
       bool_and(dirty BETWEEN 0 AND buffers AND pinned BETWEEN 0 AND buffers) AS parts
  FROM unnest(ARRAY[2, 1000, 1025, 100000]) n, pgscale_internal.buffer_usage_sample(n) s GROUP BY n ORDER BY n;
SELECT bool_and(fraction_high - fraction_low < 0.008) AS "of 65536" FROM pgscale.buffer_usage(65536);

-- what is in them of one relation
CREATE TABLE buffer_usage (i int PRIMARY KEY, filler char(1000));
CREATE UNLOGGED TABLE "Unlogged" (i int);
CREATE TEMP TABLE temporary AS SELECT 1 AS i;
INSERT INTO buffer_usage SELECT i, '' FROM generate_series(1, 700) i;
INSERT INTO "Unlogged" VALUES (1);
SELECT r.relation, r.fork, r.datid = d.oid AS here, r.relfilenode = pg_relation_filenode(r.relation) AS relfilenode,
       t.spcname, r.buffers = pg_relation_size(r.relation, r.fork) / current_setting('block_size')::int AS buffers,
       r.buffers_bytes = pg_relation_size(r.relation, r.fork) AS bytes, r.dirty = r.buffers AS dirty, r.cached_fraction,
       r.mean_usage BETWEEN 1 AND 5 AS mean_usage
  FROM pgscale.relation_buffers r JOIN pg_database d ON d.datname = current_database()
  LEFT JOIN pg_tablespace t ON t.oid = r.reltablespace
 WHERE r.relation::text ~* 'buffer_usage|unlogged|temporary' AND r.fork <> 'fsm' ORDER BY r.relation::text COLLATE "C", r.fork;
-- a large sample comes close to the truth, in each of its columns; to be off by more is one chance in a million
CREATE TABLE dirtied AS SELECT i, repeat('x', 1000) FROM generate_series(1, 6000) i;
SELECT count(*) AS counts, max(abs(s.buffers - u.buffers)) < 60 AS buffers, max(abs(s.dirty - u.dirty)) < 60 AS dirty,
       max(abs(s.pinned - u.pinned)) < 20 AS pinned, sum(u.dirty) > 600 AS some
  FROM pgscale_internal.buffer_usage() u JOIN pgscale_internal.buffer_usage_sample(100000) s ON u.usage_count IS NOT DISTINCT FROM s.usage_count;
DROP TABLE dirtied;
SELECT bool_and(buffers <= before) AS most_first
  FROM (SELECT buffers, lag(buffers) OVER () AS before FROM pgscale.relation_buffers) b;
CHECKPOINT;
SELECT dirty FROM pgscale.relation_buffers WHERE relation = 'buffer_usage'::regclass AND fork = 'main';
-- each scan adds one to each count, up to five
DO $$ BEGIN FOR i IN 1..6 LOOP PERFORM count(*) FROM buffer_usage; END LOOP; END $$;
SELECT mean_usage FROM pgscale.relation_buffers WHERE relation = 'buffer_usage'::regclass AND fork = 'main';

-- another file of the same relation, none, and the names that are no files: mapped and shared catalogs
SELECT pg_relation_filenode('buffer_usage') AS before \gset
VACUUM (FULL) buffer_usage;
SELECT count(*) > 0 AS there FROM pgscale.relation_buffers
 WHERE relation = 'buffer_usage'::regclass AND relfilenode = pg_relation_filenode('buffer_usage');
SELECT count(*) FROM pgscale.relation_buffers WHERE relfilenode = :before;
DROP TABLE buffer_usage, "Unlogged";
SELECT relation, datid = 0 AS shared FROM pgscale.relation_buffers
 WHERE relation IN ('pg_class'::regclass, 'pg_database'::regclass) AND fork = 'main' ORDER BY 1;
SELECT count(*) > 20 AS named, count(*) FILTER (WHERE relfilenode <> pg_relation_filenode(relation)) AS wrong
  FROM pgscale.relation_buffers WHERE relation IS NOT NULL;

-- the clock sweep: rates since somebody asked first
SELECT count(stats_reset) AS stats_reset FROM pgscale.clock_sweep;
SELECT buffers = (SELECT setting::int FROM pg_settings WHERE name = 'shared_buffers') AS buffers,
       passes >= 0 AND hand BETWEEN 0 AND buffers - 1 AS hand, stats_reset < clock_timestamp() AS stats_reset,
       least(ticks, allocations) >= 0 AS counts,
       abs(unused_fraction - (SELECT fraction FROM pgscale.buffer_usage() WHERE usage_count IS NULL)) < 0.01 AS unused,
       abs(zero_fraction - (SELECT fraction FROM pgscale.buffer_usage() WHERE usage_count = 0)) < 0.01 AS zero,
       abs(max_fraction - (SELECT fraction FROM pgscale.buffer_usage() WHERE usage_count = 5)) < 0.01 AND max_fraction > 0.01 AS max,
       expected_search >= 1 AS expected,
       reason ~ '^nothing ha[sd] to leave' AS reason
  FROM pgscale.clock_sweep \gx
CREATE TEMP TABLE before AS SELECT stats_reset FROM pgscale.clock_sweep;
SELECT c.stats_reset = b.stats_reset AS kept FROM pgscale.clock_sweep c, before b;
SELECT pgscale.reset('buffer_usage');
SELECT c.stats_reset > b.stats_reset AS later, c.stats_reset <= clock_timestamp() AS now FROM pgscale.clock_sweep c, before b;

-- wrong input
SELECT * FROM pgscale.buffer_usage(0);
SELECT * FROM pgscale_internal.buffer_usage_sample(NULL);
\set VERBOSITY sqlstate
SELECT * FROM pgscale.buffer_usage(-1);
-- one that would take long is cancelled as any query
SET statement_timeout = '100ms';
SELECT * FROM pgscale.buffer_usage(2147483647);
RESET statement_timeout;
\set VERBOSITY default

-- who may do what
CREATE ROLE pgscale_nobody;
CREATE ROLE pgscale_watcher IN ROLE pg_monitor;
GRANT USAGE ON SCHEMA pgscale, pgscale_internal TO pgscale_nobody;
SET ROLE pgscale_nobody;
SELECT * FROM pgscale.buffer_usage();
SELECT * FROM pgscale.relation_buffers;
SELECT * FROM pgscale.clock_sweep;
SELECT * FROM pgscale_internal.buffer_usage();
SELECT * FROM pgscale.buffer_usage(1);
SELECT * FROM pgscale_internal.relation_buffers();
SELECT * FROM pgscale_internal.clock_sweep();
SELECT pgscale.reset('buffer_usage');
RESET ROLE;
SET ROLE pgscale_watcher;
SELECT count(*) FROM pgscale.buffer_usage();
SELECT count(*) FROM pgscale.buffer_usage(65536);
SELECT count(*) > 20 AS relations FROM pgscale.relation_buffers;
SELECT count(*) FROM pgscale.clock_sweep;
SELECT pgscale.reset('buffer_usage');
RESET ROLE;
GRANT EXECUTE ON FUNCTION pgscale.reset(text) TO pgscale_watcher;
SET ROLE pgscale_watcher;
SELECT pgscale.reset('buffer_usage');
RESET ROLE;

DROP EXTENSION pgscale;
DROP ROLE pgscale_nobody, pgscale_watcher;
