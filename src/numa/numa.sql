-- NUMA nodes, and shared buffers on each.

CREATE FUNCTION pgscale_internal.numa_nodes(
    OUT node integer, OUT cpus integer, OUT cpu_list text, OUT memory_bytes bigint, OUT free_bytes bigint,
    OUT distance integer[])
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_numa_nodes'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 4;
COMMENT ON FUNCTION pgscale_internal.numa_nodes() IS 'the rows of pgscale.numa_nodes';
GRANT EXECUTE ON FUNCTION pgscale_internal.numa_nodes() TO pg_monitor;

CREATE VIEW pgscale.numa_nodes AS SELECT * FROM pgscale_internal.numa_nodes();
COMMENT ON VIEW pgscale.numa_nodes IS 'the machine''s NUMA nodes, with their distances in the order of the rows';
GRANT SELECT ON pgscale.numa_nodes TO pg_monitor;
COMMENT ON COLUMN pgscale.numa_nodes.node IS 'the kernel''s number of the node';
COMMENT ON COLUMN pgscale.numa_nodes.cpus IS 'number of its CPUs';
COMMENT ON COLUMN pgscale.numa_nodes.cpu_list IS 'its CPUs, as 0-3,8';
COMMENT ON COLUMN pgscale.numa_nodes.memory_bytes IS 'size of its memory';
COMMENT ON COLUMN pgscale.numa_nodes.free_bytes IS 'size of its free memory, without the page cache';
COMMENT ON COLUMN pgscale.numa_nodes.distance IS 'distance to each node, in the order of the rows; 10 to itself, 0 if unknown';

CREATE FUNCTION pgscale.numa_buffers(
    everything boolean DEFAULT false,
    OUT node integer, OUT pages bigint, OUT bytes bigint, OUT fraction double precision,
    OUT fraction_low double precision, OUT fraction_high double precision, OUT sampled boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_numa_buffers'
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 4;
COMMENT ON FUNCTION pgscale.numa_buffers(boolean) IS
'shared buffers by NUMA node; NULL for pages that are not in memory; of a sample unless everything is true';
GRANT EXECUTE ON FUNCTION pgscale.numa_buffers(boolean) TO pg_monitor;
