-- NUMA: nodes, and where shared buffers lie. Of machines with more nodes than one, see bench/numa.
-- Statements are not echoed: a line of \echo says whose answer follows.
\set ECHO none
CREATE EXTENSION pgscale;
\pset format unaligned \pset footer off
-- Without libnuma, and where the kernel forbids to ask, there is another expected output.
SELECT reason !~ 'without (libnuma|NUMA)|forbids|finds no nodes' AS looks FROM pgscale.health WHERE feature = 'numa' \gset
\if :looks

\echo -- nodes
SELECT count(*) > 0 AS nodes, bool_and(node >= 0 AND cpus >= 0 AND free_bytes BETWEEN 0 AND memory_bytes) AS sane,
       sum(cpus) > 0 AS cpus, sum(memory_bytes) > 0 AS memory, bool_and(cpu_list ~ '^([0-9]+(-[0-9]+)?(,|$))*$') AS lists,
       bool_and(cardinality(distance) = (SELECT count(*) FROM pgscale.numa_nodes)) AS distances
  FROM pgscale.numa_nodes;
SELECT bool_and(distance[number] = 10) AS near FROM (SELECT distance, row_number() OVER () AS number FROM pgscale.numa_nodes) n;

\echo '-- buffers: a row a node and one for what is not in memory, in all as much as there is'
SELECT setting::bigint * 8192 AS bytes FROM pg_settings WHERE name = 'shared_buffers' \gset
SELECT count(node) = (SELECT count(*) FROM pgscale.numa_nodes) AS nodes, count(*) - count(node) AS nowhere, sum(bytes) = :bytes AS bytes,
       abs(sum(fraction) - 1) < 1e-3 AS fractions, bool_or(sampled) AS sampled,
       bool_and(fraction = round(bytes::numeric / :bytes, 4)::float8 AND fraction_low = fraction AND fraction_high = fraction) AS exact
  FROM pgscale.numa_buffers(true);
SELECT sum(bytes) = :bytes AS bytes, bool_or(sampled) AS sampled FROM pgscale.numa_buffers();

\echo -- what is used for the first time comes into memory; to look at it does not
CREATE TEMP TABLE before AS SELECT * FROM pgscale.numa_buffers(true);
\echo -- (from 19 on the server goes round all buffers, whether it needs them or not)
SELECT sum(bytes) > 0 OR pgscale_internal.major() >= 19 AS untouched FROM before WHERE node IS NULL;
CREATE TABLE numa (i int, filler text) WITH (fillfactor = 10);
INSERT INTO numa SELECT i, repeat('x', 1000) FROM generate_series(1, 1000) i;
SELECT b.bytes - a.bytes BETWEEN 500 * 8192 AND 2000 * 8192 OR pgscale_internal.major() >= 19 AS taken
  FROM before b, pgscale.numa_buffers(true) a WHERE b.node IS NULL AND a.node IS NULL;
DROP TABLE numa;

\else
\set VERBOSITY sqlstate
SELECT * FROM pgscale.numa_nodes;
SELECT * FROM pgscale.numa_buffers();
SELECT * FROM pgscale.numa_buffers(true);
\set VERBOSITY default
SELECT reason <> '' AS reason, action <> '' AS action FROM pgscale.health WHERE feature = 'numa';
\endif

\echo -- wrong input
SELECT * FROM pgscale.numa_buffers(NULL);
\set VERBOSITY sqlstate
SELECT * FROM pgscale.numa_buffers('some');
SELECT * FROM pgscale.numa_buffers(1);
\set VERBOSITY default
SET pgscale.numa_interleave = on;

\echo -- who may do what
CREATE ROLE pgscale_nobody;
CREATE ROLE pgscale_watcher IN ROLE pg_monitor;
GRANT USAGE ON SCHEMA pgscale, pgscale_internal TO pgscale_nobody;
SET ROLE pgscale_nobody;
SELECT * FROM pgscale.numa_nodes;
SELECT * FROM pgscale.numa_buffers();
SELECT * FROM pgscale_internal.numa_nodes();
SELECT * FROM pgscale.numa_buffers(true);
RESET ROLE;
\if :looks
SET ROLE pgscale_watcher;
SELECT count(*) > 0 AS nodes FROM pgscale.numa_nodes;
SELECT count(*) > 1 AS rows FROM pgscale.numa_buffers();
SELECT count(*) > 1 AS rows FROM pgscale.numa_buffers(true);
RESET ROLE;
\endif

DROP EXTENSION pgscale;
DROP ROLE pgscale_nobody, pgscale_watcher;
