-- The state of each feature.

CREATE FUNCTION pgscale_internal.health(
    OUT feature text, OUT enabled boolean, OUT state text,
    OUT reason text, OUT action text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_health'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale_internal.health() IS 'the rows of pgscale.health';
GRANT EXECUTE ON FUNCTION pgscale_internal.health() TO pg_monitor;

CREATE VIEW pgscale.health AS SELECT * FROM pgscale_internal.health();
COMMENT ON VIEW pgscale.health IS
'one row for each feature that can be off or fail; about the server, except query_waits and version, which are about this database';
GRANT SELECT ON pgscale.health TO pg_monitor;
COMMENT ON COLUMN pgscale.health.feature IS 'name of the feature, also the stem of its settings; query_waits: pg_stat_statements; version: library and extension';
COMMENT ON COLUMN pgscale.health.enabled IS 'whether the configuration asks for it; false only in state off';
COMMENT ON COLUMN pgscale.health.state IS
'off; starting; idle: no work now, or works when asked; working; standing down: of no use on this load; broken: cannot work';
COMMENT ON COLUMN pgscale.health.reason IS 'why, in one sentence; for people, may change';
COMMENT ON COLUMN pgscale.health.action IS 'what to do; NULL if nothing; for people, may change';
