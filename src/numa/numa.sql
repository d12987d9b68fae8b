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
COMMENT ON VIEW pgscale.numa_nodes IS
'one row for each NUMA node of the machine, by number, which may have gaps; feature_not_supported, with a hint, without libnuma, NUMA, sysfs or the system calls';
GRANT SELECT ON pgscale.numa_nodes TO pg_monitor;
COMMENT ON COLUMN pgscale.numa_nodes.node IS 'the kernel''s number of the node';
COMMENT ON COLUMN pgscale.numa_nodes.cpus IS 'number of its CPUs; 0 if it has only memory';
COMMENT ON COLUMN pgscale.numa_nodes.cpu_list IS 'its CPUs, as 0-3,8; empty if it has only memory';
COMMENT ON COLUMN pgscale.numa_nodes.memory_bytes IS 'size of its memory';
COMMENT ON COLUMN pgscale.numa_nodes.free_bytes IS 'size of its free memory, without the page cache';
COMMENT ON COLUMN pgscale.numa_nodes.distance IS
'distance to each node, in the order of the rows: 10 to itself, 20 for twice the access time, 0 if unknown';

CREATE FUNCTION pgscale.numa_buffers(
    everything boolean DEFAULT false,
    OUT node integer, OUT pages bigint, OUT bytes bigint, OUT fraction double precision,
    OUT fraction_low double precision, OUT fraction_high double precision, OUT sampled boolean)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_numa_buffers'
LANGUAGE C VOLATILE PARALLEL RESTRICTED ROWS 4;
COMMENT ON FUNCTION pgscale.numa_buffers(boolean) IS
'shared buffers by NUMA node. Errors: feature_not_supported as numa_nodes, null_value_not_allowed
everything: false: an estimate from 4,096 random pages if there are more than 98,304
node: the kernel''s number of the node; NULL for pages that are not in memory: never touched since the start, or swapped out
pages: kernel pages, or huge pages, in which shared buffers lie; the first and the last may hold other data, too
bytes: size of the shared buffers in them
fraction: of all shared buffers, 0 to 1
fraction_low: lower end of the 95 % interval of the fraction (Wilson score interval); the fraction if all pages were examined
fraction_high: upper end of that interval
sampled: true: an estimate';
GRANT EXECUTE ON FUNCTION pgscale.numa_buffers(boolean) TO pg_monitor;
