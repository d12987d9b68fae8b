-- The partitions of the archive: one for each day, later rolled up to hours, finally dropped.

-- A table like another one, in the same tablespace; it belongs to the extension and has no default privileges of the owner.
CREATE FUNCTION pgscale_internal.archive_create(partition text, model text, meaning text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    granted record;
BEGIN
    EXECUTE format('CREATE TABLE pgscale_internal.%I (LIKE pgscale_internal.%I INCLUDING ALL)%s', partition, model,
                   (SELECT format(' TABLESPACE %I', t.spcname) FROM pg_class c JOIN pg_tablespace t ON t.oid = c.reltablespace
                     WHERE c.oid = format('pgscale_internal.%I', model)::regclass));
    FOR granted IN SELECT DISTINCT a.grantee FROM pg_class c, aclexplode(c.relacl) a
                    WHERE c.oid = format('pgscale_internal.%I', partition)::regclass AND a.grantee <> c.relowner LOOP
        EXECUTE format('REVOKE ALL ON pgscale_internal.%I FROM %s', partition,
                       CASE WHEN granted.grantee = 0 THEN 'PUBLIC' ELSE granted.grantee::regrole::text END);
    END LOOP;
    EXECUTE format('COMMENT ON TABLE pgscale_internal.%I IS %L', partition, meaning);
    EXECUTE format('ALTER EXTENSION pgscale ADD TABLE pgscale_internal.%I', partition);
    PERFORM pgscale_internal.keep_local();
END
$$;
COMMENT ON FUNCTION pgscale_internal.archive_create(text, text, text) IS 'creates the table of a partition; for the archive''s worker';

-- A trigger or rule would run as the owner of the tables, a superuser.
CREATE FUNCTION pgscale_internal.archive_partition(parent text, day date)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    partition text := parent || to_char(day, '_YYYYMMDD');
    found regclass;
BEGIN
    IF coalesce(parent, '') NOT IN ('archive_minute', 'archive_query') OR NOT coalesce(isfinite(day), false) THEN
        RAISE EXCEPTION 'there is no such partition' USING ERRCODE = 'invalid_parameter_value',
              HINT = 'The archive''s worker makes what it needs.';
    END IF;
    SELECT i.inhrelid INTO found
      FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
     WHERE i.inhparent = format('pgscale_internal.%I', parent)::regclass
       AND c.relname IN (partition, replace(partition, '_minute_', '_hour_'));
    IF found IS NULL THEN
        PERFORM pgscale_internal.archive_create(partition, parent, 'a day (UTC) of ' || parent);
        IF parent = 'archive_minute' THEN
            EXECUTE format('ALTER TABLE pgscale_internal.%I ATTACH PARTITION pgscale_internal.%I FOR VALUES FROM (%L) TO (%L)', parent, partition,
                           to_char(day, 'YYYY-MM-DD 00:00+00'), to_char(day + 1, 'YYYY-MM-DD 00:00+00'));
        ELSE
            EXECUTE format('ALTER TABLE pgscale_internal.%I ATTACH PARTITION pgscale_internal.%I FOR VALUES FROM (%L) TO (%L)', parent, partition,
                           to_char(day, 'YYYY-MM-DD'), to_char(day + 1, 'YYYY-MM-DD'));
        END IF;
        found := format('pgscale_internal.%I', partition)::regclass;
    END IF;
    IF EXISTS (SELECT FROM pg_trigger t WHERE t.tgrelid IN (found, format('pgscale_internal.%I', parent)::regclass) AND NOT t.tgisinternal
                  AND t.tgfoid <> 'pgscale_internal.discard_replicated()'::regprocedure)
       OR EXISTS (SELECT FROM pg_rewrite r WHERE r.ev_class IN (found, format('pgscale_internal.%I', parent)::regclass))
       OR NOT (SELECT r.rolsuper FROM pg_class c JOIN pg_roles r ON r.oid = c.relowner WHERE c.oid = found) THEN
        RAISE EXCEPTION '% has a trigger or a rule, or belongs to a role that is not a superuser', found
            USING ERRCODE = 'wrong_object_type', HINT = 'Drop the trigger or rule, or give it to a superuser.';
    END IF;
END
$$;
COMMENT ON FUNCTION pgscale_internal.archive_partition(text, date) IS
'creates the partition of a day if it is missing; raises an error if it has a trigger or a rule that is not pgscale''s, or an owner that is not a superuser; for the archive''s worker';

-- The rows of a partition of minutes, each with the number of its stretch: rows of a node without a gap, within an hour.
CREATE FUNCTION pgscale_internal.archive_stretches(minutes text, OUT stretch bigint, OUT minute pgscale_internal.archive_minute)
RETURNS SETOF record
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    RETURN QUERY EXECUTE format($q$
        SELECT sum(CASE WHEN j.joined THEN 0 ELSE 1 END) OVER (ORDER BY j.node_id, j.at), j.minute
          FROM (SELECT m.at, m.node_id, m::pgscale_internal.archive_minute AS minute,
                       coalesce(m.at - lag(m.at + make_interval(secs => m.period_s)) OVER o < interval '2 s'
                           AND date_trunc('hour', m.at, 'UTC') = date_trunc('hour', lag(m.at) OVER o, 'UTC')
                           AND m.node IS NOT DISTINCT FROM lag(m.node) OVER o AND m.cluster = lag(m.cluster) OVER o
                           AND m.database = lag(m.database) OVER o AND m.timeline = lag(m.timeline) OVER o
                           AND m.standby = lag(m.standby) OVER o AND m.pulled = lag(m.pulled) OVER o, false) AS joined
                  FROM pgscale_internal.%I m WINDOW o AS (PARTITION BY m.node_id ORDER BY m.at)) j$q$, minutes);
END
$$;
COMMENT ON FUNCTION pgscale_internal.archive_stretches(text) IS 'minutes of a partition, in stretches that become an hour; for the archive''s worker';

-- Rolls minutes up to hours.
CREATE FUNCTION pgscale_internal.archive_roll_up(minutes text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    hours text := replace(minutes, '_minute_', '_hour_');
    bound text := (SELECT pg_get_expr(c.relpartbound, c.oid) FROM pg_class c WHERE c.oid = to_regclass(format('pgscale_internal.%I', minutes)));
BEGIN
    IF bound IS NULL OR minutes !~ '^archive_minute_[0-9]{8}$' THEN
        RAISE EXCEPTION 'there is no such partition of minutes' USING ERRCODE = 'invalid_parameter_value',
              HINT = 'The archive''s worker rolls up what is old: see pgscale.archive_detail.';
    END IF;
    PERFORM pgscale_internal.archive_create(hours, minutes, 'a day (UTC) of archive_minute, by hours'::text);
    EXECUTE (SELECT format($q$
        INSERT INTO pgscale_internal.%1$I (at, period_s, rounds, node, cluster, database, node_id, timeline, standby, pulled, backend_types, datids, datnames, usenames,
                                           application_names, queryids, event_types, events, blockers, wait_ms, %2$s)
        SELECT h.at, h.period_s, h.rounds, h.node, h.cluster, h.database, h.node_id, h.timeline, h.standby, h.pulled,
               coalesce(w.backend_types, '{}'), coalesce(w.datids, '{}'), coalesce(w.datnames, '{}'), coalesce(w.usenames, '{}'),
               coalesce(w.application_names, '{}'), coalesce(w.queryids, '{}'), coalesce(w.event_types, '{}'),
               coalesce(w.events, '{}'), coalesce(w.blockers, '{}'), coalesce(w.wait_ms, '{}'), %2$s
          FROM (SELECT m.stretch, min(m.at) AS at,
                       extract(epoch FROM max(m.at + make_interval(secs => m.period_s)) - min(m.at))::double precision AS period_s,
                       sum(m.rounds)::integer AS rounds,
                       min(m.node) AS node, min(m.cluster) AS cluster, min(m.database) AS database, min(m.node_id) AS node_id,
                       min(m.timeline) AS timeline, bool_and(m.standby) AS standby, bool_and(m.pulled) AS pulled, %3$s
                  FROM (SELECT s.stretch, (s.minute).* FROM pgscale_internal.archive_stretches($1) s) m GROUP BY m.stretch) h
          LEFT JOIN pgscale_internal.archive_longest($w$
                SELECT s.stretch AS part, w.backend_type, w.datid, w.datname, w.usename, w.application_name, w.queryid, w.event_type,
                       w.event, w.blocker, sum(w.ms::double precision) AS ms
                  FROM pgscale_internal.archive_stretches(%4$L) s,
                       unnest((s.minute).backend_types, (s.minute).datids, (s.minute).datnames, (s.minute).usenames,
                              (s.minute).application_names, (s.minute).queryids, (s.minute).event_types, (s.minute).events,
                              (s.minute).blockers, (s.minute).wait_ms)
                       AS w(backend_type, datid, datname, usename, application_name, queryid, event_type, event, blocker, ms)
                 GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10$w$, $2) w ON w.part = h.stretch$q$, hours,
                            string_agg(quote_ident(c.name), ', ' ORDER BY c.n),
                            string_agg(format('%s(m.%I) AS %2$I', CASE c.source WHEN 'moment' THEN 'max' ELSE 'sum' END, c.name),
                                       ', ' ORDER BY c.n), minutes)
               FROM pgscale_internal.archive_counter c) USING minutes, current_setting('pgscale.archive_top')::integer;
    PERFORM pgscale_internal.archive_drop(minutes);
    EXECUTE format('ALTER TABLE pgscale_internal.archive_minute ATTACH PARTITION pgscale_internal.%I %s', hours, bound);
END
$$;
COMMENT ON FUNCTION pgscale_internal.archive_roll_up(text) IS 'replaces a partition of minutes by one of hours; for the archive''s worker';

CREATE FUNCTION pgscale_internal.archive_drop(partition text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
                    WHERE i.inhparent IN ('pgscale_internal.archive_minute'::regclass, 'pgscale_internal.archive_query'::regclass)
                      AND c.relnamespace = 'pgscale_internal'::regnamespace AND c.relname = partition) THEN
        RAISE EXCEPTION 'there is no such partition' USING ERRCODE = 'invalid_parameter_value',
              HINT = 'The archive''s worker drops what is too old: see pgscale.archive_retention.';
    END IF;
    IF EXISTS (SELECT FROM pg_depend d WHERE d.classid = 'pg_class'::regclass AND d.objid = format('pgscale_internal.%I', partition)::regclass
                AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e') THEN
        EXECUTE format('ALTER EXTENSION pgscale DROP TABLE pgscale_internal.%I', partition);
    END IF;
    EXECUTE format('DROP TABLE pgscale_internal.%I', partition);
END
$$;
COMMENT ON FUNCTION pgscale_internal.archive_drop(text) IS 'drops a partition, whether or not it belongs to the extension; for the archive''s worker';

-- One partition at a time, because that takes the strongest lock on the parent for a moment. While other sessions have a lock on
-- either, it does not queue, because all readers of the archive would queue behind it.
CREATE FUNCTION pgscale_internal.archive_upkeep(detail integer, retention integer)
RETURNS text
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    today date := (clock_timestamp() AT TIME ZONE 'UTC')::date;
    old record;
BEGIN
    PERFORM pgscale_internal.archive_partition('archive_minute'::text, today + 1);
    PERFORM pgscale_internal.archive_partition('archive_query'::text, today + 1);
    SELECT p.* INTO old
      FROM (SELECT c.oid, c.relname::text AS name, i.inhparent AS parent, today - to_date(right(c.relname, 8), 'YYYYMMDD') AS days
              FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
             WHERE i.inhparent IN ('pgscale_internal.archive_minute'::regclass, 'pgscale_internal.archive_query'::regclass)
               AND c.relnamespace = 'pgscale_internal'::regnamespace AND c.relname ~ '^archive_(minute|hour|query)_[0-9]{8}$') p
     WHERE p.days > retention OR (p.days > detail AND p.name ~ '^archive_minute_')
     ORDER BY p.days > retention DESC, p.days DESC, p.name LIMIT 1;
    IF NOT FOUND THEN
        RETURN 'nothing';
    END IF;
    -- a prepared transaction has no pid
    IF EXISTS (SELECT FROM pg_locks l JOIN pg_database d ON d.oid = l.database
                WHERE l.relation IN (old.oid, old.parent) AND d.datname = current_database() AND l.pid IS DISTINCT FROM pg_backend_pid()) THEN
        RETURN 'hindered';
    END IF;
    SET LOCAL lock_timeout = '10ms';
    IF old.days > retention THEN
        PERFORM pgscale_internal.archive_drop(old.name);
        DELETE FROM pgscale_internal.archive_change c WHERE c.at < today - retention;
        DELETE FROM pgscale_internal.archive_node n WHERE n.seen_at < today - retention;
        DELETE FROM pgscale_internal.archive_setting s WHERE s.node_id <> 0 AND s.node_id NOT IN (SELECT n.node_id FROM pgscale_internal.archive_node n);
        RETURN 'dropped';
    END IF;
    PERFORM pgscale_internal.archive_roll_up(old.name);
    RETURN 'rolled up';
EXCEPTION
    WHEN lock_not_available THEN
        RETURN 'hindered';
END
$$;
COMMENT ON FUNCTION pgscale_internal.archive_upkeep(integer, integer) IS
'creates tomorrow''s partitions, drops one that is too old or rolls one up, unless a lock prevents it; for the archive''s worker';
