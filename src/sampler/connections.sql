-- Connections in use, and the most at a time.

CREATE FUNCTION pgscale_internal.connections(
    OUT used integer, OUT active integer, OUT idle integer, OUT idle_in_transaction integer, OUT other integer,
    OUT reserved integer, OUT max integer, OUT peak integer, OUT peak_since timestamptz)
AS 'MODULE_PATHNAME', 'pgscale_connections'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale_internal.connections() IS
'connections in use, by what they do (other: starting, or track_activities is off), those that are reserved, max_connections, and the most in use at a time since the sampler''s reset or the start of the server; NULL if the sampler has not run';
GRANT EXECUTE ON FUNCTION pgscale_internal.connections() TO pg_monitor;

CREATE FUNCTION pgscale_internal.connections_peak(since timestamptz DEFAULT NULL)
RETURNS integer
AS 'MODULE_PATHNAME', 'pgscale_connections_peak'
LANGUAGE C VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale_internal.connections_peak(timestamptz) IS
'most connections in use at a time since then, of the last hour at most; NULL if the sampler observed none of it';
GRANT EXECUTE ON FUNCTION pgscale_internal.connections_peak(timestamptz) TO pg_monitor;

-- The applications with the most connections, and the others as one row. A client can choose any name.
CREATE FUNCTION pgscale_internal.connections_by_application(
    top integer DEFAULT 20,
    OUT application_name text, OUT used bigint, OUT active bigint, OUT idle bigint, OUT idle_in_transaction bigint)
RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL RESTRICTED ROWS 20
SET search_path = pg_catalog, pg_temp
AS $$
    WITH each AS (
        SELECT CASE a.application_name WHEN '' THEN '(none)' ELSE coalesce(a.application_name, '(hidden)') END AS name, count(*) AS used,
               count(*) FILTER (WHERE a.state IN ('active', 'fastpath function call')) AS active,
               count(*) FILTER (WHERE a.state = 'idle') AS idle,
               count(*) FILTER (WHERE a.state LIKE 'idle in transaction%') AS idle_in_transaction
          FROM pg_stat_activity a
         WHERE a.backend_type = 'client backend'
         GROUP BY 1),
    ranked AS (SELECT e.*, row_number() OVER (ORDER BY e.used DESC, e.name COLLATE "C") <= top AS shown FROM each e)
    SELECT CASE WHEN r.shown THEN r.name ELSE 'other' END, sum(r.used)::bigint, sum(r.active)::bigint, sum(r.idle)::bigint,
           sum(r.idle_in_transaction)::bigint
      FROM ranked r
     GROUP BY 1 ORDER BY 2 DESC, 1
$$;
COMMENT ON FUNCTION pgscale_internal.connections_by_application(integer) IS
'connections of the applications with the most of them, by what they do, and of all others as one row';
GRANT EXECUTE ON FUNCTION pgscale_internal.connections_by_application(integer) TO pg_monitor;

CREATE FUNCTION pgscale_internal.connections_ages(
    OUT transaction_s double precision, OUT idle_in_transaction_s double precision)
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT coalesce(max(greatest(extract(epoch FROM n.at - a.xact_start)::double precision, 0)), 0),
           coalesce(max(greatest(extract(epoch FROM n.at - a.state_change)::double precision, 0))
                    FILTER (WHERE a.state LIKE 'idle in transaction%'), 0)
      FROM (SELECT clock_timestamp() AS at) n CROSS JOIN pg_stat_get_activity(NULL) a
     WHERE a.backend_type = 'client backend'
$$;
COMMENT ON FUNCTION pgscale_internal.connections_ages() IS
'age of the oldest transaction of a session, and how long the longest idle one in a transaction has been so; of the sessions whose state the caller may see';
GRANT EXECUTE ON FUNCTION pgscale_internal.connections_ages() TO pg_monitor;
