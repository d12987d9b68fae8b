-- The parts of a report: a function for each. If data is not available, the function raises an error, which report_section()
-- turns into a sentence. Parts about two periods take both.

CREATE FUNCTION pgscale_internal.report_part_period(since timestamptz, until timestamptz, format text, node text DEFAULT NULL)
RETURNS text LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
#variable_conflict use_variable
DECLARE
    body text;
    cells text[];
    item record;
BEGIN
    cells := ARRAY[
        ['Period', format('%s to %s (%s)', date_trunc('second', since), date_trunc('second', until), current_setting('TimeZone'))],
        ['Made', format('%s in database %s by %s, of pgscale %s', date_trunc('second', clock_timestamp()), current_database(),
                        session_user, (SELECT e.extversion FROM pg_extension e WHERE e.extname = 'pgscale'))]];
    BEGIN
        IF node IS NULL THEN
            cells := ARRAY['Server', format('PostgreSQL %s, up since %s', current_setting('server_version'),
                                            date_trunc('second', pg_postmaster_start_time()))] || cells;
            SELECT concat_ws(', ', n.node, 'system identifier ' || n.system_identifier, n.role,
                             'behind by ' || round(n.lag_s::numeric, 1) || ' s') AS text INTO item FROM pgscale.node_identity() n;
        ELSE
            SELECT concat(node, ', from the archive of ' || nullif(pgscale_internal.report_node(), node) || '; its own report has more') AS text INTO item;
        END IF;
        cells := ARRAY['Node', item.text] || cells;
    EXCEPTION
        WHEN insufficient_privilege THEN NULL;
    END;
    body := pgscale_internal.report_table(format, '{"",""}'::text[], '{name,prose}'::text[], cells);
    BEGIN
        RETURN body || pgscale_internal.report_paragraph(format, pgscale_internal.report_known(since, until, node), ''::text);
    EXCEPTION
        WHEN OTHERS THEN
            RETURN body || pgscale_internal.report_paragraph(format, 'Nothing is known of the waits: ' || SQLERRM || '.', 'missing'::text);
    END;
END
$$;
COMMENT ON FUNCTION pgscale_internal.report_part_period(timestamptz, timestamptz, text, text) IS
'part of report: the server, the period, and its known part';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_part_period(timestamptz, timestamptz, text, text) TO pg_monitor;

-- The first statement, whether its text is known or not. Those without an identifier are one item: it is named before a statement
-- that took less.
CREATE FUNCTION pgscale_internal.report_top_statement(since timestamptz, until timestamptz, active_sessions double precision, node text DEFAULT NULL)
RETURNS text LANGUAGE sql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
    WITH item AS MATERIALIZED (
        SELECT i.kind, i.queryid, i.active_sessions, round((100 * i.active_sessions / $3)::numeric) AS percent
          FROM pgscale_internal.past_items($1, $2, 'query'::text, 100, NULL, $4) i
         WHERE i.kind <> 'other' AND i.active_sessions > 0),
    named AS MATERIALIZED (SELECT * FROM item i WHERE i.kind = 'named' ORDER BY i.active_sessions DESC, i.queryid LIMIT 1),
    unknown AS MATERIALIZED (
        SELECT * FROM item i WHERE i.kind = 'unknown' AND i.active_sessions > coalesce((SELECT n.active_sessions FROM named n), 0))
    SELECT nullif(concat_ws(' ',
               (SELECT format('Statements without a query identifier took %s %% of it%s.%s', u.percent,
                              ' (' || nullif(concat_ws(', ',
                                  (SELECT 'compute_query_id is off' FROM pg_settings s WHERE $4 IS NULL AND s.name = 'compute_query_id' AND s.reset_val = 'off'),
                                  (SELECT 'most of user ' || i.item FROM pgscale_internal.past_items($1, $2, 'user'::text, 1, 0::bigint, $4) i WHERE i.kind = 'named'),
                                  (SELECT 'application ' || i.item FROM pgscale_internal.past_items($1, $2, 'application'::text, 1, 0::bigint, $4) i
                                    WHERE i.kind = 'named')), '') || ')',
                              ' The one that ran longest: ' || pgscale_internal.clean_line((SELECT pgscale_internal.unidentified_statement($1, $2) WHERE $4 IS NULL), 100))
                  FROM unknown u),
               (SELECT format('The statement%s that took most of it, %s %%, is%s', (SELECT ' with an identifier' FROM unknown), n.percent,
                              coalesce(': ' || pgscale_internal.clean_line(x.query, 100),
                                       format(' the one with queryid %s, whose text is not known.', n.queryid)))
                  FROM named n LEFT JOIN pgscale_internal.past_queries(ARRAY[n.queryid]) x ON true)), '')
$$;
COMMENT ON FUNCTION pgscale_internal.report_top_statement(timestamptz, timestamptz, double precision, text) IS
'part of report: the statement with the most active sessions, and the statements without an identifier if they had more';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_top_statement(timestamptz, timestamptz, double precision, text) TO pg_monitor;

CREATE FUNCTION pgscale_internal.report_part_summary(since timestamptz, until timestamptz, format text, node text DEFAULT NULL)
RETURNS text LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
#variable_conflict use_variable
DECLARE
    body text;
    finding text := CASE WHEN node IS NULL AND until > clock_timestamp() - interval '1 minute'
                         THEN (SELECT format('Now%s: %s.', CASE d.certainty WHEN 'low' THEN ', perhaps' ELSE '' END, d.sentence)
                                 FROM pgscale.diagnosis() d WHERE d.rank = 1) END;
BEGIN
    WITH waits AS MATERIALIZED (
        SELECT t.*, pgscale_internal.report_what(t.event_type, t.event) AS what, t.event IS NOT DISTINCT FROM 'IdleInTransaction' AS idle
          FROM pgscale_internal.past_items(since, until, 'event'::text, 1000, NULL, node) t),
    total AS (
        SELECT sum(w.wait_ms) FILTER (WHERE NOT w.idle) AS ms, sum(w.active_sessions) FILTER (WHERE NOT w.idle) AS active,
               sum(w.active_sessions) FILTER (WHERE w.idle) AS idle
          FROM waits w),
    -- the hour before, if a minute of it is known
    before AS (
        SELECT CASE WHEN (SELECT sum(c.known_s) >= 60 FROM pgscale_internal.past_coverage(since - interval '1 hour', since, node) c)
                    THEN coalesce((SELECT sum(i.active_sessions) FROM pgscale_internal.past_items(since - interval '1 hour', since, 'event'::text, 1000, NULL, node) i
                                    WHERE i.event IS DISTINCT FROM 'IdleInTransaction'), 0) END AS active),
    wait AS (
        SELECT coalesce('waiting for ' || nullif(w.what, substring(w.what FROM '^[(].*')),
                        CASE WHEN w.item = 'CPU' THEN 'running, or ready to run'
                             WHEN w.event_type = 'CPU' AND w.event ~ '^Queued' THEN 'ready to run, and waiting for a CPU'
                             WHEN w.event_type = 'CPU' AND w.event ~ '^Running' THEN 'running'
                             ELSE 'in ' || w.item END) AS what, sum(w.wait_ms) AS ms
          FROM waits w WHERE w.item <> 'other' AND NOT w.idle GROUP BY 1 ORDER BY 2 DESC LIMIT 1)
    SELECT pgscale_internal.report_paragraph(format, concat_ws(' ', finding,
               (SELECT r.sentence FROM pgscale_internal.report_blame(since, until, node) r),
               format('On average %s sessions were active%s%s.', round(coalesce(total.active, 0)::numeric, 1),
                      ', and ' || nullif(round(total.idle::numeric, 1), 0) || ' were idle in a transaction',
                      '; in the hour before, ' || (SELECT round(b.active::numeric, 1) FROM before b) || ' were active'),
               (SELECT format('Active sessions spent %s %% of their time %s.', round((100 * wait.ms / total.ms)::numeric), wait.what)
                  FROM wait),
               pgscale_internal.report_top_statement(since, until, total.active, node)), ''::text)
      INTO body
      FROM total
     WHERE EXISTS (SELECT FROM waits w WHERE w.wait_ms > 0);
    RETURN coalesce(body, pgscale_internal.report_paragraph(format, concat_ws(' ', finding, 'No active session is known.'), ''::text));
END
$$;
COMMENT ON FUNCTION pgscale_internal.report_part_summary(timestamptz, timestamptz, text, text) IS 'part of report: the period in a few sentences';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_part_summary(timestamptz, timestamptz, text, text) TO pg_monitor;

CREATE FUNCTION pgscale_internal.report_part_load(since timestamptz, until timestamptz, format text, node text DEFAULT NULL)
RETURNS text LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
#variable_conflict use_variable
DECLARE
    body text;
    item record;
BEGIN
    IF node IS NULL AND pg_is_in_recovery() THEN
        RETURN pgscale_internal.report_paragraph(format, 'This server is a standby, so its archive describes the primary.', 'missing'::text);
    END IF;
    -- a row that lies in the period in part counts by its part
    SELECT sum(m.period_s * m.part) AS s, sum(m.commits * m.part) AS commits, sum(m.rollbacks * m.part) AS rollbacks,
           sum(m.blocks_read * m.part) AS blocks_read,
           sum(m.blocks_read * m.part) / nullif(sum((m.blocks_read + m.blocks_hit) * m.part), 0) AS missed,
           sum(m.wal_bytes * m.part)::bigint AS wal_bytes, sum(m.wal_buffers_full * m.part) AS full,
           sum(m.checkpoints_timed * m.part) AS timed, sum(m.checkpoints_requested * m.part) AS requested,
           sum(m.temp_bytes * m.part)::bigint AS temp_bytes, sum(m.deadlocks * m.part) AS deadlocks, sum(m.conflicts * m.part) AS conflicts,
           sum(m.rows_inserted * m.part) AS inserted, sum(m.rows_updated * m.part) AS updated, sum(m.rows_deleted * m.part) AS deleted,
           max(m.connections_peak) AS connections,
           string_agg(DISTINCT m.node, ', ') FILTER (WHERE node IS NULL AND m.node <> (SELECT pgscale_internal.report_node())) AS nodes
      INTO item
      FROM (SELECT a.*, extract(epoch FROM least(a.at + a.period_s * interval '1 s', until) - greatest(a.at, since))::float8 / a.period_s AS part
              FROM pgscale.archive_minutes a
             WHERE a.at > since - interval '1 day' AND a.at < until AND a.period_s > 0 AND CASE WHEN node IS NULL THEN NOT a.pulled ELSE a.node_id = ANY ((SELECT pgscale_internal.archive_node_ids(node))::bigint[]) END) m
     WHERE m.part > 0;
    IF item.s IS NULL THEN
        RETURN pgscale_internal.report_paragraph(format, 'The archive of this database has no rows of the period.', 'missing'::text);
    END IF;
    SELECT pgscale_internal.report_table(format, '{"",total,"a second"}'::text[], '{name,count,number}'::text[],
               array_agg(ARRAY[c.name, round(c.value)::text, (c.value / item.s)::text] ORDER BY c.n))
           || pgscale_internal.report_paragraph(format, format('The archive has %s s of the period%s. %s %% of the blocks that statements asked for were not in shared buffers; %s of WAL and %s of temporary files were written.%s',
                  round(item.s), ', in part of another server, ' || item.nodes, round((100 * coalesce(item.missed, 0))::numeric, 1), pg_size_pretty(item.wal_bytes), pg_size_pretty(item.temp_bytes),
                  ' At most ' || item.connections || ' connections were in use at a time.'), ''::text)
      INTO body
      FROM unnest(ARRAY['transactions committed', 'rolled back', 'rows inserted', 'rows updated', 'rows deleted', 'blocks read',
                        'WAL buffers full', 'timed checkpoints', 'requested checkpoints', 'deadlocks', 'conflicts'],
                  ARRAY[item.commits, item.rollbacks, item.inserted, item.updated, item.deleted, item.blocks_read,
                        item.full, item.timed, item.requested, item.deadlocks, item.conflicts]::float8[]) WITH ORDINALITY c (name, value, n);
    RETURN body;
END
$$;
COMMENT ON FUNCTION pgscale_internal.report_part_load(timestamptz, timestamptz, text, text) IS 'part of report: the archive''s counters of the period';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_part_load(timestamptz, timestamptz, text, text) TO pg_monitor;

CREATE FUNCTION pgscale_internal.report_part_periods(since timestamptz, until timestamptz, since2 timestamptz, until2 timestamptz, format text, node text DEFAULT NULL)
RETURNS text LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
#variable_conflict use_variable
BEGIN
    RETURN pgscale_internal.report_table(format, '{period,since,until,known}'::text[], '{name,name,name,prose}'::text[], ARRAY[
        ['1', date_trunc('second', since)::text, date_trunc('second', until)::text, pgscale_internal.report_known(since, until, node)],
        ['2', date_trunc('second', since2)::text, date_trunc('second', until2)::text, pgscale_internal.report_known(since2, until2, node)]]);
END
$$;
COMMENT ON FUNCTION pgscale_internal.report_part_periods(timestamptz, timestamptz, timestamptz, timestamptz, text, text) IS
'part of report: two periods, and their known parts';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_part_periods(timestamptz, timestamptz, timestamptz, timestamptz, text, text) TO pg_monitor;

CREATE FUNCTION pgscale_internal.report_part_activities(since timestamptz, until timestamptz, since2 timestamptz, until2 timestamptz, format text, node text DEFAULT NULL)
RETURNS text LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
#variable_conflict use_variable
DECLARE
    html CONSTANT boolean := format = 'html';
    buckets CONSTANT integer := CASE format WHEN 'html' THEN 120 ELSE 30 END;
    body text;
    item record;
BEGIN
    SELECT max(t.total) INTO item
      FROM (SELECT sum(a.active_sessions) AS total FROM pgscale.activity(since, until, pgscale_internal.report_bucket(until - since, buckets) * interval '1 s', node) a GROUP BY a.at
            UNION ALL
            SELECT sum(a.active_sessions) FROM pgscale.activity(since2, until2, pgscale_internal.report_bucket(until2 - since2, buckets) * interval '1 s', node) a GROUP BY a.at) t;
    body := pgscale_internal.report_part_activity(since, until, format, node, item.max);
    RETURN CASE WHEN html THEN '<div class="two"><div><h3>1</h3>' || body || '</div><div><h3>2</h3>'
                               || pgscale_internal.report_part_activity(since2, until2, format, node, item.max) || '</div></div>'
                ELSE body || pgscale_internal.report_part_activity(since2, until2, format, node, item.max) END;
END
$$;
COMMENT ON FUNCTION pgscale_internal.report_part_activities(timestamptz, timestamptz, timestamptz, timestamptz, text, text) IS
'part of report: active sessions over time, of both periods';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_part_activities(timestamptz, timestamptz, timestamptz, timestamptz, text, text) TO pg_monitor;

CREATE FUNCTION pgscale_internal.report_part_differences(since timestamptz, until timestamptz, since2 timestamptz, until2 timestamptz, format text, node text DEFAULT NULL)
RETURNS text LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
#variable_conflict use_variable
BEGIN
    RETURN (SELECT string_agg(pgscale_internal.report_paragraph(format, 'By ' || k.kind, 'list'::text)
               || pgscale_internal.report_table(format, ARRAY[k.kind, 'sessions in 1', 'sessions in 2', 'difference', 'share in 1', 'share in 2'],
                                       ARRAY[CASE k.kind WHEN 'query' THEN 'query' ELSE 'name' END, 'number', 'number', 'change', 'share', 'share'],
                                       k.cells), '' ORDER BY k.n)
      FROM (SELECT k.kind, k.n, array_agg(ARRAY[
                       CASE k.kind WHEN 'query' THEN coalesce(q.query, w.item) ELSE w.item END,
                       w.active_sessions_1::text, w.active_sessions_2::text, w.difference::text, w.fraction_1::text, w.fraction_2::text]
                       ORDER BY w.ordinality) AS cells
              FROM unnest('{event,query,application,user,database}'::text[]) WITH ORDINALITY k (kind, n)
              CROSS JOIN LATERAL pgscale_internal.past_differences(since, until, since2, until2, k.kind, 10, node) WITH ORDINALITY w
              LEFT JOIN LATERAL (
                   SELECT p.query FROM pgscale_internal.past_queries(ARRAY[w.item::bigint]) p
                    WHERE k.kind = 'query' AND w.item ~ '^-?[0-9]+$' LIMIT 1) q ON true
             GROUP BY k.kind, k.n) k);
END
$$;
COMMENT ON FUNCTION pgscale_internal.report_part_differences(timestamptz, timestamptz, timestamptz, timestamptz, text, text) IS
'part of report: differences between two periods';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_part_differences(timestamptz, timestamptz, timestamptz, timestamptz, text, text) TO pg_monitor;

CREATE FUNCTION pgscale_internal.report_part_changes(since timestamptz, until timestamptz, since2 timestamptz, until2 timestamptz, format text, node text DEFAULT NULL)
RETURNS text LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
#variable_conflict use_variable
DECLARE
    body text;
BEGIN
    SELECT pgscale_internal.report_table(format, '{"at",what}'::text[], '{name,prose}'::text[],
               array_agg(ARRAY[date_trunc('second', m.at)::text, m.mark] ORDER BY m.at))
      INTO body
      FROM pgscale_internal.report_marks(least(since, since2), greatest(until, until2), node) m
     WHERE m.kind <> 'checkpoint';
    RETURN coalesce(nullif(body, ''), pgscale_internal.report_paragraph(format, 'No restart and no changed setting is known.', 'note'::text));
END
$$;
COMMENT ON FUNCTION pgscale_internal.report_part_changes(timestamptz, timestamptz, timestamptz, timestamptz, text, text) IS
'part of report: restarts and settings changed';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_part_changes(timestamptz, timestamptz, timestamptz, timestamptz, text, text) TO pg_monitor;

CREATE FUNCTION pgscale_internal.report_part_waits(since timestamptz, until timestamptz, format text, node text DEFAULT NULL)
RETURNS text LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
#variable_conflict use_variable
DECLARE
    body text;
BEGIN
    WITH w AS MATERIALIZED (
        SELECT t.rank, t.item, t.active_sessions, t.fraction, t.wait_ms, pgscale_internal.report_what(t.event_type, t.event) AS what,
               pgscale.wait_kind(t.event_type, t.event) AS kind, t.event_type, t.event
          FROM pgscale_internal.past_items(since, until, 'event'::text, 12, NULL, node) t),
    blame AS MATERIALIZED (SELECT b.idle FROM pgscale_internal.report_blame(since, until, node) b WHERE EXISTS (SELECT FROM w WHERE w.event_type = 'Lock')),
    help AS (
        SELECT w.what, sum(w.fraction) AS fraction, (array_agg(m.meaning ORDER BY w.rank))[1] AS meaning,
               (array_agg(m.remedy ORDER BY w.rank))[1] AS remedy
          FROM (SELECT w.*, w.event = 'IdleInTransaction' AS idle, w.event_type = 'Lock' AND w.kind <> 'lock_extend' AND b.idle AS blocked
                  FROM w LEFT JOIN blame b ON true) w
          CROSS JOIN LATERAL (
               SELECT CASE WHEN w.idle THEN 'a session has a transaction open and waits for its client''s next statement'
                           ELSE 'a session waits for a transaction that is idle: see root blockers' END AS meaning,
                      'shorter transactions, with no work of the application between their statements; '
                      'idle_in_transaction_session_timeout' AS remedy
                WHERE w.idle OR w.blocked
               UNION ALL
               (SELECT CASE WHEN k.cured_in <= pgscale_internal.major() THEN k.cured_meaning ELSE k.meaning END, k.remedy
                  FROM pgscale.wait_meanings k
                 WHERE k.kind = w.kind AND NOT w.idle AND NOT w.blocked LIMIT 1)) m
         WHERE w.kind <> 'other' OR w.idle
         GROUP BY w.what
        HAVING sum(w.fraction) >= 0.05)
    SELECT pgscale_internal.report_table(format, '{wait,sessions,share,time,"it waits for"}'::text[], '{name,number,share,ms,prose}'::text[],
               (SELECT array_agg(ARRAY[w.item, w.active_sessions::text, w.fraction::text, w.wait_ms::text, w.what] ORDER BY w.rank)
                  FROM w WHERE w.wait_ms > 0))
           || coalesce((SELECT pgscale_internal.report_paragraph(format, 'What helps', 'list'::text)
                     || pgscale_internal.report_table(format, '{"it waits for",share,"what happens","what helps"}'::text[], '{name,share,prose,prose}'::text[],
                            array_agg(ARRAY[h.what, h.fraction::text, h.meaning, h.remedy] ORDER BY h.fraction DESC))
                  FROM (SELECT * FROM help ORDER BY help.fraction DESC LIMIT 5) h HAVING count(*) > 0), '')
      INTO body;
    RETURN body;
END
$$;
COMMENT ON FUNCTION pgscale_internal.report_part_waits(timestamptz, timestamptz, text, text) IS 'part of report: top waits, and what helps';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_part_waits(timestamptz, timestamptz, text, text) TO pg_monitor;

CREATE FUNCTION pgscale_internal.report_part_queries(since timestamptz, until timestamptz, format text, node text DEFAULT NULL)
RETURNS text LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
#variable_conflict use_variable
DECLARE
    body text;
BEGIN
    WITH q AS MATERIALIZED (
        SELECT * FROM pgscale_internal.past_items(since, until, 'query'::text, 10, NULL, node)),
    texts AS (
        SELECT t.queryid, t.query FROM pgscale_internal.past_queries(ARRAY(SELECT q.queryid FROM q)) t),
    waits AS (
        SELECT w.queryid, string_agg(format('%s %s %%', w.item, round(100 * w.share)), ', ' ORDER BY w.share DESC) AS waits
          FROM (SELECT q.queryid, i.item, i.kind, i.rank, (i.wait_ms / nullif(sum(i.wait_ms) OVER (PARTITION BY q.queryid), 0))::numeric AS share
                  FROM q CROSS JOIN LATERAL pgscale_internal.past_items(since, until, 'event'::text, 5, q.queryid, node) i
                 WHERE q.queryid IS NOT NULL) w
         WHERE w.kind = 'named' AND w.rank <= 4 AND w.share >= 0.01
         GROUP BY w.queryid)
    SELECT pgscale_internal.report_table(format, '{query,sessions,share,time,"its waits"}'::text[], '{query,number,share,ms,prose}'::text[],
               array_agg(ARRAY[
                   CASE WHEN texts.query IS NOT NULL THEN texts.query
                        WHEN q.queryid IS NOT NULL THEN format('(query %s, whose text is not known)', q.queryid)
                        WHEN q.item = 'other' THEN '(all others)'
                        ELSE coalesce('(no identifier; longest: ' || (SELECT pgscale_internal.unidentified_statement(since, until) WHERE node IS NULL) || ')',
                                      '(no query: between statements, or before a statement has its identifier)') END,
                   q.active_sessions::text, q.fraction::text, q.wait_ms::text, waits.waits] ORDER BY q.rank))
      INTO body
      FROM q LEFT JOIN texts ON texts.queryid = q.queryid LEFT JOIN waits ON waits.queryid = q.queryid AND q.item <> 'other'
     WHERE q.wait_ms > 0;
    RETURN body;
END
$$;
COMMENT ON FUNCTION pgscale_internal.report_part_queries(timestamptz, timestamptz, text, text) IS 'part of report: top queries, and their waits';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_part_queries(timestamptz, timestamptz, text, text) TO pg_monitor;

CREATE FUNCTION pgscale_internal.report_part_sessions(since timestamptz, until timestamptz, format text, node text DEFAULT NULL)
RETURNS text LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
#variable_conflict use_variable
BEGIN
    RETURN (SELECT pgscale_internal.report_table(format, '{by,name,sessions,share,time}'::text[], '{name,name,number,share,ms}'::text[],
               array_agg(ARRAY[k.kind, w.item, w.active_sessions::text, w.fraction::text, w.wait_ms::text] ORDER BY k.n, w.rank))
      FROM unnest('{application,user,database}'::text[]) WITH ORDINALITY k (kind, n)
      CROSS JOIN LATERAL pgscale_internal.past_items(since, until, k.kind, 5, NULL, node) w);
END
$$;
COMMENT ON FUNCTION pgscale_internal.report_part_sessions(timestamptz, timestamptz, text, text) IS 'part of report: applications, users and databases';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_part_sessions(timestamptz, timestamptz, text, text) TO pg_monitor;

CREATE FUNCTION pgscale_internal.report_part_connections(since timestamptz, until timestamptz, format text)
RETURNS text LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
#variable_conflict use_variable
DECLARE
    body text;
BEGIN
    SELECT pgscale_internal.report_table(format, '{application,connections,active,idle,"idle in a transaction"}'::text[],
               '{name,count,count,count,count}'::text[],
               array_agg(ARRAY[a.application_name, a.used::text, a.active::text, a.idle::text, a.idle_in_transaction::text]
                         ORDER BY a.application_name = 'other', a.used DESC, a.application_name))
      INTO body
      FROM pgscale_internal.connections_by_application(10) a;
    RETURN pgscale_internal.report_paragraph(format, (SELECT format('%s of %s connections are in use, %s of the %s are reserved%s.', c.used, c.max, c.reserved, c.max,
                      '; at most ' || c.peak || ' were in use at a time since ' || date_trunc('second', c.peak_since))
                 FROM pgscale_internal.connections() c), ''::text) || coalesce(body, '');
END
$$;
COMMENT ON FUNCTION pgscale_internal.report_part_connections(timestamptz, timestamptz, text) IS
'part of report: connections in use now, and the applications with the most of them';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_part_connections(timestamptz, timestamptz, text) TO pg_monitor;

CREATE FUNCTION pgscale_internal.report_part_blockers(since timestamptz, until timestamptz, format text, node text DEFAULT NULL)
RETURNS text LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
#variable_conflict use_variable
DECLARE
    body text;
    item record;
BEGIN
    SELECT pgscale_internal.report_table(format, '{"root blocker",user,state,share,"time waited","from","to",statement}'::text[],
               '{name,name,prose,share,ms,name,name,query}'::text[],
               array_agg(ARRAY[r.item, r.usename, r.state || coalesce(', ' || nullif(round(100 * r.idle_fraction), 0) || ' % idle', ''), r.fraction::text,
                               r.wait_ms::text, to_char(r.first_seen, t.form), to_char(r.last_seen, t.form), r.query]
                         ORDER BY r.rank))
      INTO body
      FROM pgscale_internal.report_roots(since, until, node) r, (SELECT CASE WHEN until::date = since::date THEN 'HH24:MI:SS' ELSE 'MM-DD HH24:MI' END) t (form);
    IF node IS NOT NULL THEN
        RETURN body;
    END IF;
    SELECT body || pgscale_internal.report_paragraph(format, 'At this moment', 'list'::text)
                || pgscale_internal.report_table(format, '{process,waiters,waited,activity,application,query}'::text[],
                                        '{prose,count,ms,prose,name,query}'::text[], array_agg(b.row ORDER BY b.n)) AS now,
           count(*) AS rows
      INTO item
      FROM (SELECT ARRAY[repeat('> ', least(b.depth, 8)) || coalesce(b.pid::text, 'prepared ' || b.gid),
                         b.waiters::text, b.waited_ms::text, coalesce('waits for ' || b.waits_for, b.state),
                         b.application_name, pgscale_internal.clean_statement(b.query)] AS row, row_number() OVER () AS n
              FROM pgscale_internal.blockers() b LIMIT 30) b;
    RETURN CASE WHEN item.rows > 0 THEN item.now
                ELSE body || pgscale_internal.report_paragraph(format, 'At this moment no process waits for a lock.', 'note'::text) END;
END
$$;
COMMENT ON FUNCTION pgscale_internal.report_part_blockers(timestamptz, timestamptz, text, text) IS 'part of report: root blockers';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_part_blockers(timestamptz, timestamptz, text, text) TO pg_monitor;

CREATE FUNCTION pgscale_internal.report_part_buffers(since timestamptz, until timestamptz, format text)
RETURNS text LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
#variable_conflict use_variable
DECLARE
    body text;
BEGIN
    SELECT pgscale_internal.report_table(format, '{"usage count",buffers,share,dirty,pinned}'::text[], '{name,count,share,count,count}'::text[],
               array_agg(ARRAY[coalesce(u.usage_count::text, 'no page'), u.buffers::text, u.fraction::text, u.dirty::text, u.pinned::text]
                         ORDER BY u.usage_count NULLS FIRST))
      INTO body
      FROM pgscale_internal.buffer_usage_sample(16384) u;
    SELECT pgscale_internal.report_paragraph(format, format('Shared buffers have %s. %s', current_setting('shared_buffers'), c.reason), ''::text) || body
      INTO body
      FROM pgscale_internal.clock_sweep() c;
    RETURN body || pgscale_internal.report_paragraph(format, 'By database, since its statistics were reset', 'list'::text)
        || coalesce((SELECT pgscale_internal.report_table(format, '{database,"blocks read","found in buffers","mean read",transactions,"temporary files"}'::text[],
                                 '{name,count,share,ms,count,bytes}'::text[],
                   array_agg(ARRAY[d.datname::text, d.blks_read::text, (d.blks_hit / nullif(d.blks_hit + d.blks_read, 0)::float8)::text,
                                   CASE WHEN d.blk_read_time > 0 THEN (d.blk_read_time / nullif(d.blks_read, 0))::text END,
                                   (d.xact_commit + d.xact_rollback)::text, d.temp_bytes::text] ORDER BY d.blks_read DESC))
               FROM (SELECT * FROM pg_stat_database WHERE datname IS NOT NULL AND blks_hit + blks_read > 0
                      ORDER BY blks_read DESC LIMIT 8) d), '');
END
$$;
COMMENT ON FUNCTION pgscale_internal.report_part_buffers(timestamptz, timestamptz, text) IS 'part of report: shared buffers';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_part_buffers(timestamptz, timestamptz, text) TO pg_monitor;

CREATE FUNCTION pgscale_internal.report_part_sweeper(since timestamptz, until timestamptz, format text)
RETURNS text LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
#variable_conflict use_variable
BEGIN
    RETURN (SELECT pgscale_internal.report_table(format, '{state,consumed,starved,written,"backend writes",reason}'::text[],
               '{name,count,count,count,count,prose}'::text[],
               ARRAY[s.state, s.consumed::text, s.starved::text, s.written::text, s.backend_writes::text, s.reason])
      FROM pgscale_internal.sweeper_stats() s);
END
$$;
COMMENT ON FUNCTION pgscale_internal.report_part_sweeper(timestamptz, timestamptz, text) IS 'part of report: the sweeper';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_part_sweeper(timestamptz, timestamptz, text) TO pg_monitor;

CREATE FUNCTION pgscale_internal.report_part_writeback(since timestamptz, until timestamptz, format text)
RETURNS text LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
#variable_conflict use_variable
BEGIN
    RETURN (SELECT pgscale_internal.report_paragraph(format, format('The controller is %s: %s.', w.state, w.reason), ''::text)
           || pgscale_internal.report_table(format, '{"dirty in the kernel","of this cluster","under writeback","written by the server",requested,"I/O pressure"}'::text[],
                  '{bytes,bytes,bytes,bytes,bytes,share}'::text[],
                  ARRAY[w.dirty_bytes::text, w.cluster_dirty_bytes::text, w.writeback_bytes::text, w.written_bytes::text,
                        w.requested_bytes::text, w.io_pressure_fraction::text])
      FROM pgscale_internal.writeback_stats() w);
END
$$;
COMMENT ON FUNCTION pgscale_internal.report_part_writeback(timestamptz, timestamptz, text) IS 'part of report: the kernel''s writeback';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_part_writeback(timestamptz, timestamptz, text) TO pg_monitor;

CREATE FUNCTION pgscale_internal.report_part_wal(since timestamptz, until timestamptz, format text)
RETURNS text LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
#variable_conflict use_variable
DECLARE
    body text;
    item record;
BEGIN
    SELECT pgscale_internal.report_table(format, '{"WAL since the reset",records,"page images","buffers full","since"}'::text[], '{bytes,count,count,count,name}'::text[],
               ARRAY[w.wal_bytes::text, w.wal_records::text, w.wal_fpi::text, w.wal_buffers_full::text,
                     date_trunc('second', w.stats_reset)::text])
      INTO body
      FROM pg_stat_wal w;
    IF pgscale_internal.major() >= 17 THEN
        EXECUTE 'SELECT num_timed AS timed, num_requested AS requested, write_time AS write_ms, sync_time AS sync_ms,
                        buffers_written AS buffers, stats_reset FROM pg_stat_checkpointer' INTO item;
    ELSE
        EXECUTE 'SELECT checkpoints_timed AS timed, checkpoints_req AS requested, checkpoint_write_time AS write_ms,
                        checkpoint_sync_time AS sync_ms, buffers_checkpoint AS buffers, stats_reset FROM pg_stat_bgwriter' INTO item;
    END IF;
    body := body || pgscale_internal.report_table(format, '{"timed checkpoints",requested,"buffers written",writing,syncing,"since"}'::text[],
                '{count,count,count,ms,ms,name}'::text[],
                ARRAY[item.timed::text, item.requested::text, item.buffers::text, item.write_ms::text, item.sync_ms::text,
                      date_trunc('second', item.stats_reset)::text]);
    BEGIN
        body := body || pgscale_internal.report_paragraph(format, (SELECT w.reason FROM pgscale.wal_efficiency() w), ''::text);
    EXCEPTION
        -- its evidence needs preload
        WHEN object_not_in_prerequisite_state OR insufficient_privilege THEN NULL;
    END;
    RETURN body || coalesce((SELECT pgscale_internal.report_table(format, '{standby,state,sync,"not yet replayed"}'::text[], '{name,name,name,bytes}'::text[],
                   array_agg(ARRAY[r.application_name, r.state, r.sync_state,
                                   pg_wal_lsn_diff(CASE WHEN pg_is_in_recovery() THEN pg_last_wal_receive_lsn() ELSE pg_current_wal_lsn() END,
                                                   r.replay_lsn)::text]))
               FROM (SELECT r.*
                       FROM pg_stat_replication r JOIN pg_stat_activity a USING (pid)
                      WHERE a.datid IS NULL       -- a logical consumer is connected to a database
                      LIMIT 20) r), '');
END
$$;
COMMENT ON FUNCTION pgscale_internal.report_part_wal(timestamptz, timestamptz, text) IS 'part of report: WAL, checkpoints and standbys';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_part_wal(timestamptz, timestamptz, text) TO pg_monitor;

CREATE FUNCTION pgscale_internal.report_part_relocation(since timestamptz, until timestamptz, format text)
RETURNS text LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
#variable_conflict use_variable
DECLARE
    body text;
BEGIN
    SELECT pgscale_internal.report_table(format, '{job,kind,relation,"from","to",state,size,requested,message}'::text[],
               '{count,name,name,name,name,name,bytes,name,prose}'::text[],
               array_agg(ARRAY[j.job::text, j.kind, j.relation, j.source::text, j.target::text, j.state, j.size_bytes::text,
                               date_trunc('second', j.requested_at)::text, j.message] ORDER BY j.job DESC))
      INTO body
      FROM (SELECT * FROM pgscale.relocation_jobs ORDER BY job DESC LIMIT 10) j;
    RETURN coalesce(nullif(body, ''), pgscale_internal.report_paragraph(format, 'No job has been requested in this database.', 'note'::text));
END
$$;
COMMENT ON FUNCTION pgscale_internal.report_part_relocation(timestamptz, timestamptz, text) IS 'part of report: jobs of relocation';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_part_relocation(timestamptz, timestamptz, text) TO pg_monitor;

CREATE FUNCTION pgscale_internal.report_part_advice(since timestamptz, until timestamptz, format text)
RETURNS text LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
#variable_conflict use_variable
DECLARE
    body text;
BEGIN
    SELECT pgscale_internal.report_table(format, '{advice,"may gain",now,recommended,why,risk}'::text[],
               '{name,share,name,prose,prose,prose}'::text[],
               array_agg(ARRAY[coalesce(a.setting, a.object, a.rule), a.gain::text,
                               CASE WHEN a.setting IS NULL OR NOT pgscale_internal.is_secret(a.setting, a.current) THEN a.current
                                    ELSE '(hidden)' END,
                               a.recommended, concat_ws('; ', a.reason, 'confidence ' || a.confidence, 'needs ' || a.needs), a.risk]
                         ORDER BY a.gain DESC NULLS LAST))
           || CASE WHEN count(a.setting) > 0 THEN
                  pgscale_internal.report_paragraph(format, 'Statements to copy', 'list'::text)
                  || pgscale_internal.report_table(format, '{""}'::text[], '{statement}'::text[],
                         array_agg(ARRAY[format(CASE s.context WHEN 'postmaster' THEN 'CALL pgscale.apply(%L); -- then restart the server'
                                                               ELSE 'CALL pgscale.apply(%L, reload => true);' END, a.setting)]
                                   ORDER BY a.gain DESC NULLS LAST)
                             FILTER (WHERE a.setting IS NOT NULL))
              ELSE '' END
      INTO body
      FROM (SELECT * FROM pgscale.advice LIMIT 20) a
      LEFT JOIN pg_settings s ON s.name = a.setting;
    RETURN coalesce(nullif(body, ''), pgscale_internal.report_paragraph(format,
        'None: in the last ten minutes no rule found a change that would gain anything.', 'note'::text));
END
$$;
COMMENT ON FUNCTION pgscale_internal.report_part_advice(timestamptz, timestamptz, text) IS 'part of report: advice, and the statements that apply it';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_part_advice(timestamptz, timestamptz, text) TO pg_monitor;

CREATE FUNCTION pgscale_internal.report_part_scalability(since timestamptz, until timestamptz, format text)
RETURNS text LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
#variable_conflict use_variable
BEGIN
    RETURN (SELECT pgscale_internal.report_table(format, '{"best at",throughput,"now at","throughput now",status}'::text[], '{number,number,number,number,prose}'::text[],
               ARRAY[s.peak_concurrency::text, s.peak_throughput::text, s.concurrency::text, s.throughput::text, s.status])
      FROM pgscale_internal.scalability() s);
END
$$;
COMMENT ON FUNCTION pgscale_internal.report_part_scalability(timestamptz, timestamptz, text) IS 'part of report: the scalability law of this server';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_part_scalability(timestamptz, timestamptz, text) TO pg_monitor;

CREATE FUNCTION pgscale_internal.report_part_health(since timestamptz, until timestamptz, format text)
RETURNS text LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
#variable_conflict use_variable
BEGIN
    RETURN (SELECT pgscale_internal.report_table(format, '{feature,state,why,"what to do"}'::text[], '{name,name,prose,prose}'::text[],
               array_agg(ARRAY[h.feature, h.state, h.reason, h.action]))
      FROM pgscale_internal.health() h);
END
$$;
COMMENT ON FUNCTION pgscale_internal.report_part_health(timestamptz, timestamptz, text) IS 'part of report: health of the features';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_part_health(timestamptz, timestamptz, text) TO pg_monitor;

CREATE FUNCTION pgscale_internal.report_part_settings(since timestamptz, until timestamptz, format text)
RETURNS text LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE SET search_path = pg_catalog, pg_temp SET extra_float_digits = 1
AS $$
#variable_conflict use_variable
BEGIN
    RETURN (SELECT pgscale_internal.report_table(format, '{setting,value,default,source}'::text[], '{name,prose,prose,name}'::text[],
               array_agg(ARRAY[s.name, CASE WHEN s.secret THEN '(hidden)' ELSE s.value END, CASE WHEN s.secret THEN '' ELSE s.boot END,
                               s.source] ORDER BY s.name))
      FROM (SELECT s.name, left(pgscale_internal.setting_text(s.setting, s.unit), 200) AS value,
                   left(pgscale_internal.setting_text(s.boot_val, s.unit), 200) AS boot, s.source,
                   pgscale_internal.is_secret(s.name, s.setting) AS secret
              FROM pg_settings s
             WHERE s.source NOT IN ('default', 'override', 'client', 'session', 'interactive', 'test')
               AND s.setting IS DISTINCT FROM s.boot_val
             ORDER BY s.name LIMIT 150) s);
END
$$;
COMMENT ON FUNCTION pgscale_internal.report_part_settings(timestamptz, timestamptz, text) IS
'part of report: settings that differ from their defaults';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_part_settings(timestamptz, timestamptz, text) TO pg_monitor;

CREATE FUNCTION pgscale_internal.report_part(
    part text, since timestamptz, until timestamptz, since2 timestamptz, until2 timestamptz, format text, node text DEFAULT NULL)
RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
#variable_conflict use_variable
DECLARE
    body text;
    arguments CONSTANT integer := (SELECT p.pronargs FROM pg_proc p
                                    WHERE p.pronamespace = 'pgscale_internal'::regnamespace AND p.proname = 'report_part_' || part);
BEGIN
    IF arguments IS NULL THEN
        RAISE EXCEPTION 'a report has no part "%"', left(part, 40)
            USING ERRCODE = 'invalid_parameter_value', HINT = 'pgscale.report() prints all parts.';
    END IF;
    -- of this moment; of two periods; of one
    EXECUTE format('SELECT pgscale_internal.%I(%s)', 'report_part_' || part,
                   CASE arguments WHEN 3 THEN '$1, $2, $5' WHEN 6 THEN '$1, $2, $3, $4, $5, $6' ELSE '$1, $2, $5, $6' END)
       INTO body USING since, until, since2, until2, format, node;
    RETURN body;
END
$$;
COMMENT ON FUNCTION pgscale_internal.report_part(text, timestamptz, timestamptz, timestamptz, timestamptz, text, text) IS
'part of report: one of its parts; raises an error if it is not available';
GRANT EXECUTE ON FUNCTION pgscale_internal.report_part(text, timestamptz, timestamptz, timestamptz, timestamptz, text,
    text) TO pg_monitor;
