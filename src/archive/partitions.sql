-- The partitions of the archive: a day each, later rolled up to hours, at last dropped.

-- A trigger or rule would run as the owner of the tables, a superuser.
CREATE FUNCTION pgscale_internal.archive_partition(parent text, day date)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    partition text := parent || to_char(day, '_YYYYMMDD');
    found regclass;
    granted record;
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
        EXECUTE format('CREATE TABLE pgscale_internal.%I (LIKE pgscale_internal.%I INCLUDING ALL)%s', partition, parent,
                       (SELECT format(' TABLESPACE %I', t.spcname) FROM pg_class c JOIN pg_tablespace t ON t.oid = c.reltablespace
                         WHERE c.oid = format('pgscale_internal.%I', parent)::regclass));
        FOR granted IN SELECT DISTINCT a.grantee FROM pg_class c, aclexplode(c.relacl) a
                        WHERE c.oid = format('pgscale_internal.%I', partition)::regclass AND a.grantee <> c.relowner LOOP
            EXECUTE format('REVOKE ALL ON pgscale_internal.%I FROM %s', partition,
                           CASE WHEN granted.grantee = 0 THEN 'PUBLIC' ELSE granted.grantee::regrole::text END);
        END LOOP;
        EXECUTE format('COMMENT ON TABLE pgscale_internal.%I IS %L', partition, 'a day (UTC) of ' || parent);
        IF parent = 'archive_minute' THEN
            EXECUTE format('ALTER TABLE pgscale_internal.%I ATTACH PARTITION pgscale_internal.%I FOR VALUES FROM (%L) TO (%L)', parent, partition,
                           to_char(day, 'YYYY-MM-DD 00:00+00'), to_char(day + 1, 'YYYY-MM-DD 00:00+00'));
        ELSE
            EXECUTE format('ALTER TABLE pgscale_internal.%I ATTACH PARTITION pgscale_internal.%I FOR VALUES FROM (%L) TO (%L)', parent, partition,
                           to_char(day, 'YYYY-MM-DD'), to_char(day + 1, 'YYYY-MM-DD'));
        END IF;
        EXECUTE format('ALTER EXTENSION pgscale ADD TABLE pgscale_internal.%I', partition);
        PERFORM pgscale_internal.keep_local();
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

-- Minutes become hours: stretches of them without a gap, within an hour, by the longest waits of that.
CREATE FUNCTION pgscale_internal.archive_roll_up(minutes text)
RETURNS void
LANGUAGE plpgsql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
DECLARE
    hours text := replace(minutes, '_minute_', '_hour_');
    bound text := (SELECT pg_get_expr(c.relpartbound, c.oid) FROM pg_class c WHERE c.oid = to_regclass(format('pgscale_internal.%I', minutes)));
    granted record;
BEGIN
    IF bound IS NULL OR minutes !~ '^archive_minute_[0-9]{8}$' THEN
        RAISE EXCEPTION 'there is no such partition of minutes' USING ERRCODE = 'invalid_parameter_value',
              HINT = 'The archive''s worker rolls up what is old: see pgscale.archive_detail.';
    END IF;
    EXECUTE format('CREATE TABLE pgscale_internal.%I (LIKE pgscale_internal.%I INCLUDING ALL)%s', hours, minutes,
                   (SELECT format(' TABLESPACE %I', t.spcname) FROM pg_class c JOIN pg_tablespace t ON t.oid = c.reltablespace
                     WHERE c.oid = format('pgscale_internal.%I', minutes)::regclass));
    FOR granted IN SELECT DISTINCT a.grantee FROM pg_class c, aclexplode(c.relacl) a
                    WHERE c.oid = format('pgscale_internal.%I', hours)::regclass AND a.grantee <> c.relowner LOOP
        EXECUTE format('REVOKE ALL ON pgscale_internal.%I FROM %s', hours,
                       CASE WHEN granted.grantee = 0 THEN 'PUBLIC' ELSE granted.grantee::regrole::text END);
    END LOOP;
    EXECUTE format('COMMENT ON TABLE pgscale_internal.%I IS %L', hours, 'a day (UTC) of archive_minute, by hours');
    EXECUTE format('ALTER EXTENSION pgscale ADD TABLE pgscale_internal.%I', hours);
    PERFORM pgscale_internal.keep_local();
    EXECUTE format($q$
        INSERT INTO pgscale_internal.%I (at, period_s, rounds, node, cluster, database, counters, backend_types,
                                datids, datnames, usenames, application_names, queryids, event_types, events, blockers, wait_ms)
        WITH minutes AS MATERIALIZED (
            SELECT j.*, sum(CASE WHEN j.joined THEN 0 ELSE 1 END) OVER (ORDER BY j.at) AS stretch
              FROM (SELECT m.*,
                           coalesce(m.at - lag(m.at + make_interval(secs => m.period_s)) OVER o < interval '2 s'
                               AND date_trunc('hour', m.at, 'UTC') = date_trunc('hour', lag(m.at) OVER o, 'UTC')
                               AND m.node IS NOT DISTINCT FROM lag(m.node) OVER o AND m.cluster = lag(m.cluster) OVER o
                               AND m.database = lag(m.database) OVER o, false) AS joined
                      FROM pgscale_internal.%I m WINDOW o AS (ORDER BY m.at)) j),
        waits AS (
            SELECT m.stretch, w.backend_type, w.datid, w.datname, w.usename, w.application_name, w.queryid, w.event_type,
                   w.event, w.blocker, sum(w.ms::double precision) AS ms,
                   w.backend_type = 'other' AND w.event_type = 'other' AS rest
              FROM minutes m,
                   unnest(m.backend_types, m.datids, m.datnames, m.usenames, m.application_names, m.queryids, m.event_types,
                          m.events, m.blockers, m.wait_ms)
                   AS w(backend_type, datid, datname, usename, application_name, queryid, event_type, event, blocker, ms)
             GROUP BY 1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
        ranked AS (SELECT w.*, row_number() OVER (PARTITION BY w.stretch ORDER BY w.rest, w.ms DESC) AS place FROM waits w),
        arrays AS (
            SELECT k.stretch, array_agg(k.backend_type) AS backend_types, array_agg(k.datid) AS datids,
                   array_agg(k.datname) AS datnames, array_agg(k.usename) AS usenames,
                   array_agg(k.application_name) AS application_names, array_agg(k.queryid) AS queryids,
                   array_agg(k.event_type) AS event_types, array_agg(k.event) AS events, array_agg(k.blocker) AS blockers,
                   array_agg(k.ms::real) AS wait_ms
              FROM (SELECT r.stretch, r.backend_type, r.datid, r.datname, r.usename, r.application_name, r.queryid,
                           r.event_type, r.event, r.blocker, r.ms
                      FROM ranked r WHERE r.place <= $1 AND NOT r.rest
                     UNION ALL
                    SELECT r.stretch, 'other', NULL, NULL, NULL, NULL, NULL, 'other', 'other', NULL, sum(r.ms)
                      FROM ranked r WHERE r.place > $1 OR r.rest GROUP BY r.stretch
                     ORDER BY stretch, event_type, event, backend_type, datname, usename, application_name, queryid) k
             GROUP BY k.stretch),
        counts AS (
            SELECT s.stretch, array_agg(s.value ORDER BY s.n) AS counters
              FROM (SELECT m.stretch, c.n, CASE WHEN c.n BETWEEN 50 AND 52 THEN max(c.value) ELSE sum(c.value) END AS value
                      FROM minutes m, unnest(m.counters) WITH ORDINALITY c(value, n)
                     GROUP BY 1, 2) s
             GROUP BY 1)
        SELECT h.at, h.period_s, h.rounds, h.node, h.cluster, h.database, c.counters,
               coalesce(a.backend_types, '{}'), coalesce(a.datids, '{}'), coalesce(a.datnames, '{}'), coalesce(a.usenames, '{}'),
               coalesce(a.application_names, '{}'), coalesce(a.queryids, '{}'), coalesce(a.event_types, '{}'),
               coalesce(a.events, '{}'), coalesce(a.blockers, '{}'), coalesce(a.wait_ms, '{}')
          FROM (SELECT m.stretch, min(m.at) AS at,
                       extract(epoch FROM max(m.at + make_interval(secs => m.period_s)) - min(m.at))::double precision AS period_s,
                       sum(m.rounds)::integer AS rounds,
                       min(m.node) AS node, min(m.cluster) AS cluster, min(m.database) AS database
                  FROM minutes m GROUP BY m.stretch) h
          JOIN counts c USING (stretch)
          LEFT JOIN arrays a USING (stretch)$q$, hours, minutes) USING current_setting('pgscale.archive_top')::integer;
    PERFORM pgscale_internal.archive_drop(minutes);
    EXECUTE format('ALTER TABLE pgscale_internal.archive_minute ATTACH PARTITION pgscale_internal.%I %s', hours, bound);
END
$$;
COMMENT ON FUNCTION pgscale_internal.archive_roll_up(text) IS
'replaces a partition of minutes by one of hours; for the archive''s worker';

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
COMMENT ON FUNCTION pgscale_internal.archive_drop(text) IS
'drops a partition, whether or not it belongs to the extension; for the archive''s worker';

-- One partition at a time, because it takes the strongest lock of its parent for a moment. While others have a lock of either, it
-- does not queue for that, because all who read the archive then would queue behind it.
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
