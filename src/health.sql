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
'one row a feature that can be off or fail: off, starting, idle, working, standing down or broken; why, and what to do';
GRANT SELECT ON pgscale.health TO pg_monitor;
COMMENT ON COLUMN pgscale.health.feature IS 'name of the feature: also the stem of its settings, functions and page; or version';
COMMENT ON COLUMN pgscale.health.enabled IS 'whether the configuration asks for it; false only in state off';
COMMENT ON COLUMN pgscale.health.state IS 'off, starting, idle, working, standing down or broken';
COMMENT ON COLUMN pgscale.health.reason IS 'why, in one sentence';
COMMENT ON COLUMN pgscale.health.action IS 'what to do, or NULL';
