-- The nodes of the archive in a report.

-- What sessions, and replay, waited for most on each node of the archive.
CREATE FUNCTION pgscale_internal.report_node_waits(
    since timestamptz, until timestamptz, OUT node text, OUT replays boolean, OUT event text, OUT what text)
RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    WITH wait AS MATERIALIZED (
        SELECT DISTINCT ON (w.node, w.replays) w.*
          FROM (SELECT w.node, w.backend_type = 'startup' AS replays, w.event_type, w.event,
                       CASE w.backend_type WHEN 'startup' THEN w.blocker END AS blocker, CASE w.backend_type WHEN 'startup' THEN w.queryid END AS queryid,
                       sum(w.wait_ms) AS ms
                  FROM pgscale.archive_waits w
                 WHERE w.at >= $1 AND w.at < $2 AND w.backend_type IN ('client backend', 'parallel worker', 'startup') AND w.event <> 'IdleInTransaction'
                 GROUP BY 1, 2, 3, 4, 5, 6) w
         ORDER BY w.node, w.replays, w.ms DESC)
    SELECT w.node, w.replays, w.event,
           concat_ws(' ', w.event, 'behind process ' || w.blocker, '(' || pgscale_internal.clean_line(q.query, 100) || ')')
      FROM wait w LEFT JOIN pgscale_internal.past_queries(ARRAY(SELECT x.queryid FROM wait x WHERE x.queryid IS NOT NULL)) q USING (queryid)
$$;
COMMENT ON FUNCTION pgscale_internal.report_node_waits(timestamptz, timestamptz) IS 'part of report: what sessions and replay of each node waited for most';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_node_waits(timestamptz, timestamptz) TO pg_monitor;

-- Over time: digits from 0 to 9, the highest of all nodes; a point where nothing is known, and | where the role changed.
CREATE FUNCTION pgscale_internal.report_part_nodes(since timestamptz, until timestamptz, format text)
RETURNS text LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
#variable_conflict use_variable
DECLARE
    body text;
BEGIN
    WITH minute AS MATERIALIZED (
        SELECT m.node, m.at, m.period_s, m.role, m.active_sessions, CASE m.role WHEN 'standby' THEN m.standby_lag_s END AS lag_s,
               m.at + make_interval(secs => m.period_s) > since AS inside
          FROM pgscale.archive_minutes m
         WHERE m.at > since - interval '1 hour' AND m.at < until AND m.active_sessions IS NOT NULL),
    of_node AS MATERIALIZED (
        SELECT m.node, sum(m.active_sessions * m.period_s) FILTER (WHERE m.inside) / sum(m.period_s) FILTER (WHERE m.inside) AS active,
               coalesce(percentile_cont(0.5) WITHIN GROUP (ORDER BY m.active_sessions) FILTER (WHERE NOT m.inside),
                        percentile_cont(0.5) WITHIN GROUP (ORDER BY m.active_sessions)) AS usual,
               max(m.lag_s) FILTER (WHERE m.inside) AS lag_s
          FROM minute m GROUP BY m.node HAVING count(*) FILTER (WHERE m.inside) > 0),
    wait AS MATERIALIZED (SELECT * FROM pgscale_internal.report_node_waits(since, until)),
    replay AS MATERIALIZED (SELECT w.node, w.what FROM wait w WHERE w.replays),
    change AS (
        SELECT c.*, lag(c.role) OVER (PARTITION BY c.node ORDER BY c.at) AS before FROM minute c WHERE c.inside),
    role AS (
        SELECT c.node, string_agg(concat(c.role, ' from ' || CASE WHEN c.before IS NOT NULL THEN to_char(c.at, 'HH24:MI') END), ', ' ORDER BY c.at) AS roles
          FROM change c WHERE c.role IS DISTINCT FROM c.before GROUP BY c.node),
    -- a row fills all columns of its time
    line AS (
        SELECT n.node, string_agg(CASE WHEN b.changed THEN '|' ELSE coalesce(b.digit, '.') END, '' ORDER BY c.number) AS levels
          FROM of_node n CROSS JOIN generate_series(1, 40) c(number)
          LEFT JOIN (SELECT m.node, x.number, bool_or(x.number = f.number AND m.role <> m.before) AS changed,
                            coalesce(round(9 * max(m.active_sessions) / nullif((SELECT max(x.active_sessions) FROM change x), 0)), 0)::text AS digit
                       FROM change m
                      CROSS JOIN LATERAL (SELECT width_bucket(extract(epoch FROM greatest(m.at, since)), extract(epoch FROM since), extract(epoch FROM until), 40)) f(number)
                      CROSS JOIN generate_series(f.number, least(40, width_bucket(extract(epoch FROM m.at) + m.period_s::numeric - 0.001, extract(epoch FROM since), extract(epoch FROM until), 40))) x(number)
                      GROUP BY 1, 2) b ON b.node = n.node AND b.number = c.number
         GROUP BY n.node),
    first AS (
        SELECT f.* FROM (
            SELECT m.node, m.at, m.active_sessions, m.lag_s, n.usual, coalesce(m.lag_s > 5, false) AS late
              FROM minute m JOIN of_node n USING (node)
             WHERE m.inside AND (m.lag_s > 5 OR m.active_sessions > 3 * n.usual + 2)) f
         ORDER BY f.at, f.late DESC, f.active_sessions - f.usual DESC LIMIT 1)
    SELECT pgscale_internal.report_paragraph(format,
               coalesce((SELECT CASE WHEN f.late
                                     THEN format('It began on %s at %s: replay was %s s behind%s.', f.node, to_char(f.at, 'HH24:MI'), round(f.lag_s),
                                                 coalesce(', and waited for ' || r.what, '; it waited for nothing there: the WAL came late, or its process used a CPU'))
                                     ELSE format('It began on %s at %s: %s active sessions, usually %s%s.', f.node, to_char(f.at, 'HH24:MI'),
                                                 round(f.active_sessions::numeric, 1), round(f.usual::numeric, 1),
                                                 ', most in ' || (SELECT w.event FROM wait w WHERE w.node = f.node AND NOT w.replays)) END
                           FROM first f LEFT JOIN replay r USING (node)),
                        'No node had two active sessions more than three times its usual number, or was five seconds behind.'), ''::text)
           || pgscale_internal.report_table(format, '{node,role,"active sessions","most waited for","behind","over time"}'::text[],
                  '{name,prose,number,name,ms,levels}'::text[],
                  (SELECT array_agg(ARRAY[n.node, r.roles, n.active::text, w.event, (1000 * n.lag_s)::text, l.levels] ORDER BY n.active DESC, n.node)
                     FROM of_node n LEFT JOIN role r USING (node) LEFT JOIN line l USING (node)
                     LEFT JOIN wait w ON w.node = n.node AND NOT w.replays))
           || coalesce((SELECT string_agg(pgscale_internal.report_paragraph(format,
                                   format('Replay on %s was up to %s s behind, and waited most for %s.', n.node, round(n.lag_s), r.what), ''::text), '' ORDER BY n.node)
                          FROM of_node n JOIN replay r USING (node) WHERE n.lag_s > 5), '')
      INTO body
     WHERE EXISTS (SELECT FROM of_node);
    RETURN coalesce(body, pgscale_internal.report_paragraph(format, 'The archive has no rows of the period.', 'missing'::text));
END
$$;
COMMENT ON FUNCTION pgscale_internal.report_part_nodes(timestamptz, timestamptz, text) IS
'part of report: the nodes of the archive side by side, and on which of them it began';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_part_nodes(timestamptz, timestamptz, text) TO pg_monitor;
