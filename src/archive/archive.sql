-- The tables of the archive, and the views that show them; archive_minutes is in counters.sql, the other nodes are in pull.sql.

-- A row for each minute (later: each hour), with its waits in arrays of equal length: compressed, they take a tenth of the space
-- of one row for each wait. The worker creates a partition for each day (UTC), as a member of the extension, so pg_dump leaves it
-- out. counters.sql adds a column for each counter.
CREATE TABLE pgscale_internal.archive_minute (
    at timestamptz NOT NULL,
    period_s double precision NOT NULL,
    rounds integer NOT NULL,
    node text,
    cluster bigint NOT NULL,
    database oid NOT NULL,
    -- which data directory the row is about, its role then, and whether it was asked for the row by the node that writes
    node_id bigint NOT NULL DEFAULT 0,
    timeline integer NOT NULL DEFAULT 1,
    standby boolean NOT NULL DEFAULT false,
    pulled boolean NOT NULL DEFAULT false,
    backend_types text[] NOT NULL,
    datids oid[] NOT NULL,
    datnames text[] NOT NULL,
    usenames text[] NOT NULL,
    application_names text[] NOT NULL,
    queryids bigint[] NOT NULL,
    event_types text[] NOT NULL,
    events text[] NOT NULL,
    blockers text[] NOT NULL,
    wait_ms real[] NOT NULL,
    PRIMARY KEY (at, node_id))
PARTITION BY RANGE (at);
COMMENT ON TABLE pgscale_internal.archive_minute IS
'one row for each node and minute of the archive, later for each hour; see archive_minutes and archive_waits';
GRANT SELECT ON pgscale_internal.archive_minute TO pg_monitor;

CREATE TABLE pgscale_internal.archive_query (
    day date NOT NULL,
    queryid bigint NOT NULL,
    first_seen timestamptz NOT NULL,
    last_seen timestamptz NOT NULL,
    query text NOT NULL,
    PRIMARY KEY (day, queryid))
PARTITION BY RANGE (day);
COMMENT ON TABLE pgscale_internal.archive_query IS 'texts of the queries with waits in the archive, for each day; see archive_queries';

-- node_id: 0 for the server that writes the archive, whichever that is.
CREATE TABLE pgscale_internal.archive_change (
    at timestamptz NOT NULL,
    setting text NOT NULL,
    old text,
    new text,
    node_id bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (at, setting, node_id));
COMMENT ON TABLE pgscale_internal.archive_change IS 'settings that were found changed; see archive_changes';

-- The settings at the latest check; of hidden ones a hash.
CREATE TABLE pgscale_internal.archive_setting (
    setting text NOT NULL,
    value text,
    node_id bigint NOT NULL DEFAULT 0,
    PRIMARY KEY (setting, node_id));
COMMENT ON TABLE pgscale_internal.archive_setting IS 'values of the settings when the archive last read them, those that are hidden as a hash';

-- name: in fleet_add(); NULL for the server that writes. known_until: by its clock, which is clock_s ahead. counters: of its latest answer.
-- missing: the queries whose texts it is asked for next.
CREATE TABLE pgscale_internal.archive_node (
    node_id bigint PRIMARY KEY,
    node text NOT NULL,
    name text,
    standby boolean NOT NULL,
    timeline integer NOT NULL,
    seen_at timestamptz NOT NULL,
    known_until timestamptz,
    clock_s double precision NOT NULL DEFAULT 0,
    counters jsonb,
    missing bigint[],
    at timestamptz,
    active_sessions double precision,
    lag_s double precision,
    event text);
GRANT SELECT (node_id, node) ON pgscale_internal.archive_node TO pg_monitor;
COMMENT ON TABLE pgscale_internal.archive_node IS 'the nodes of the archive: what each answered last; see archive_nodes';

CREATE TABLE pgscale_internal.archive_pull (
    name text PRIMARY KEY,
    state text NOT NULL,
    error text,
    since timestamptz NOT NULL,
    node_id bigint);
COMMENT ON TABLE pgscale_internal.archive_pull IS 'how each node of the fleet answered the archive last, and since when so; see archive_nodes';

CREATE VIEW pgscale.archive_waits AS
    SELECT m.at, m.period_s, w.backend_type, w.datid, w.datname::name AS datname, w.usename::name AS usename,
           w.application_name, w.queryid, w.event_type, w.event, w.blocker, w.wait_ms::double precision AS wait_ms, m.node, m.pulled
      FROM pgscale_internal.archive_minute m,
           unnest(m.backend_types, m.datids, m.datnames, m.usenames, m.application_names, m.queryids,
                  m.event_types, m.events, m.blockers, m.wait_ms)
           AS w(backend_type, datid, datname, usename, application_name, queryid, event_type, event, blocker, wait_ms);
COMMENT ON VIEW pgscale.archive_waits IS
'the longest waits of each archived minute, and the rest as one row "other"; give bounds of "at" as constants';
GRANT SELECT ON pgscale.archive_waits TO pg_monitor;
COMMENT ON COLUMN pgscale.archive_waits.at IS 'start of the minute, or of the hour once it is rolled up';
COMMENT ON COLUMN pgscale.archive_waits.period_s IS 'length of the minute or hour, in seconds';
COMMENT ON COLUMN pgscale.archive_waits.backend_type IS
'kind of process as in pg_stat_activity; also parallel worker, unknown, and other in the row of the rest';
COMMENT ON COLUMN pgscale.archive_waits.datid IS 'OID of the database; NULL if the process has none';
COMMENT ON COLUMN pgscale.archive_waits.datname IS 'name of the database at that time';
COMMENT ON COLUMN pgscale.archive_waits.usename IS 'name of the session user at that time';
COMMENT ON COLUMN pgscale.archive_waits.application_name IS 'name of the application; NULL while pgscale.sampler_dimensions is without it';
COMMENT ON COLUMN pgscale.archive_waits.queryid IS 'query identifier; NULL outside a statement or if it is unknown; see archive_queries';
COMMENT ON COLUMN pgscale.archive_waits.event_type IS
'type of the wait event as in pg_stat_activity; CPU for a backend that executes a statement and does not wait; other for the rest';
COMMENT ON COLUMN pgscale.archive_waits.event IS 'name of the wait event as in pg_stat_activity, or CPU; other for the rest';
COMMENT ON COLUMN pgscale.archive_waits.blocker IS 'of a lock wait: process ID and application of the root blocker; NULL if unknown';
COMMENT ON COLUMN pgscale.archive_waits.wait_ms IS 'time of waiting within that period, in milliseconds';
COMMENT ON COLUMN pgscale.archive_waits.node IS 'server of the row';
COMMENT ON COLUMN pgscale.archive_waits.pulled IS 'whether another server wrote the row, which asked that one; false for the history of the primary';

CREATE VIEW pgscale.archive_queries AS
    SELECT queryid, pgscale_internal.clean_statement(max(query)) AS query, min(first_seen) AS first_seen, max(last_seen) AS last_seen
      FROM pgscale_internal.archive_query
     GROUP BY queryid;
COMMENT ON VIEW pgscale.archive_queries IS 'texts of the queries with waits in the archive';
GRANT SELECT ON pgscale.archive_queries TO pg_monitor;
COMMENT ON COLUMN pgscale.archive_queries.queryid IS 'query identifier';
COMMENT ON COLUMN pgscale.archive_queries.query IS
'first 2,000 characters of the text, from pg_stat_statements, a session, or the sampler''s memory';
COMMENT ON COLUMN pgscale.archive_queries.first_seen IS 'when it was first among the longest waits';
COMMENT ON COLUMN pgscale.archive_queries.last_seen IS 'when it was last among the longest waits, accurate to an hour';

CREATE VIEW pgscale.archive_changes AS
    SELECT c.at, c.setting, c.old, c.new, n.node FROM pgscale_internal.archive_change c LEFT JOIN pgscale_internal.archive_node n USING (node_id);
COMMENT ON VIEW pgscale.archive_changes IS
'changes of settings and of server_version_num; values that may hold a password are hidden; at a new major version settings that only one of the two has are left out';
GRANT SELECT ON pgscale.archive_changes TO pg_monitor;
COMMENT ON COLUMN pgscale.archive_changes.at IS 'when the change was found: within a minute';
COMMENT ON COLUMN pgscale.archive_changes.setting IS 'name of the setting';
COMMENT ON COLUMN pgscale.archive_changes.old IS
'value before, in the unit of pg_settings; (hidden) if it may hold a password; NULL if the setting did not exist';
COMMENT ON COLUMN pgscale.archive_changes.new IS
'value after, in the unit of pg_settings; (hidden) if it may hold a password; NULL if the setting does not exist';
COMMENT ON COLUMN pgscale.archive_changes.node IS 'another node that was asked; NULL for the server that wrote the archive then';
