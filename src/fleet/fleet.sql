-- The identity of this server, and queries to all nodes.

CREATE FUNCTION pgscale.node_identity(
    OUT node text, OUT system_identifier bigint, OUT role text, OUT lag_s double precision)
AS 'MODULE_PATHNAME', 'pgscale_node_identity'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale.node_identity() IS
'identity of this server; needs no preload
node: cluster_name@host:port, or host:port if cluster_name is empty; host is the machine''s own host name
system_identifier: identifier of the cluster, as in pg_control_system(); equal on a primary and its standbys
role: primary, or standby for a server in recovery
lag_s: age of the last replayed transaction, in seconds; 0 for a streaming standby without WAL to replay; '
'NULL on a primary, and before the first replay';
GRANT EXECUTE ON FUNCTION pgscale.node_identity() TO pg_monitor;

CREATE FUNCTION pgscale_internal.node_key(OUT node_id bigint, OUT timeline integer)
AS 'MODULE_PATHNAME', 'pgscale_node_key'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale_internal.node_key() IS
'which data directory this is, whatever its role, name and address; and its timeline';
GRANT EXECUTE ON FUNCTION pgscale_internal.node_key() TO pg_monitor;

CREATE FUNCTION pgscale_internal.node_manager() RETURNS text
AS 'MODULE_PATHNAME', 'pgscale_node_manager'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale_internal.node_manager() IS 'software that manages this server''s settings instead of ALTER SYSTEM: patroni, or NULL';
GRANT EXECUTE ON FUNCTION pgscale_internal.node_manager() TO pg_monitor;

CREATE FUNCTION pgscale_internal.node_state(
    OUT node text, OUT system_identifier bigint, OUT role text, OUT lag_s double precision,
    OUT version text, OUT started_at timestamptz, OUT manager text, OUT settings jsonb)
LANGUAGE sql VOLATILE PARALLEL RESTRICTED
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT i.*, current_setting('server_version'), pg_postmaster_start_time(), pgscale_internal.node_manager(),
           (SELECT jsonb_object_agg(name, CASE WHEN pgscale_internal.is_secret(name, setting)
                                               THEN '(hidden) ' || left(encode(sha256(textsend(setting)), 'hex'), 8)
                                               ELSE current_setting(name) END) FROM pg_settings
             WHERE category NOT IN ('Preset Options', 'Customized Options', 'File Locations') AND name NOT IN
                   -- settings of one server
                   ('cluster_name', 'port', 'listen_addresses', 'unix_socket_directories', 'external_pid_file',
                    'primary_conninfo', 'primary_slot_name', 'hot_standby', 'synchronous_standby_names', 'in_hot_standby',
                    'recovery_target_timeline', 'restore_command', 'archive_cleanup_command', 'recovery_end_command',
                    'promote_trigger_file', 'log_directory', 'log_filename',
                    -- or of this session
                    'application_name', 'client_encoding', 'DateStyle', 'IntervalStyle', 'TimeZone', 'extra_float_digits', 'search_path',
                    'role', 'session_authorization', 'statement_timeout', 'transaction_deferrable', 'transaction_isolation',
                    'transaction_read_only'))
      FROM pgscale.node_identity() i;
$$;
COMMENT ON FUNCTION pgscale_internal.node_state() IS
'this server''s row of pgscale.fleet, with the settings that servers of a fleet may have in common';
GRANT EXECUTE ON FUNCTION pgscale_internal.node_state() TO pg_monitor;

CREATE FUNCTION pgscale_internal.node_advice(
    OUT setting text, OUT object text, OUT current text, OUT recommended text, OUT gain double precision,
    OUT confidence text, OUT needs text, OUT rule text, OUT reason text, OUT risk text, OUT patroni_command text)
RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT a.setting, a.object, a.current, a.recommended, a.gain, a.confidence, a.needs, a.rule, a.reason, a.risk,
           CASE WHEN pgscale_internal.node_manager() = 'patroni' AND s.name IS NOT NULL
                THEN format('patronictl edit-config --pg %s %s', quoted.change, quoted.cluster) END
      FROM pgscale.advice a
      LEFT JOIN pg_settings s ON s.name = a.setting
     -- as a shell takes it
     CROSS JOIN LATERAL (SELECT concat('''', replace(concat(a.setting, '=', a.recommended), '''', E'''\\'''''), '''') AS change,
                                concat('''', replace(current_setting('cluster_name'), '''', E'''\\'''''), '''') AS cluster) quoted;
$$;
COMMENT ON FUNCTION pgscale_internal.node_advice() IS
'the rows of pgscale.advice, with the command that applies the advice if Patroni manages the settings';
GRANT EXECUTE ON FUNCTION pgscale_internal.node_advice() TO pg_monitor;

CREATE FUNCTION pgscale_internal.fleet_validate(options text[], catalog oid) RETURNS void
AS 'MODULE_PATHNAME', 'pgscale_fleet_validate'
LANGUAGE C CALLED ON NULL INPUT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale_internal.fleet_validate(text[], oid) IS
'part of the foreign-data wrapper pgscale_fleet: which options nodes and user mappings may have';

CREATE FOREIGN DATA WRAPPER pgscale_fleet NO HANDLER VALIDATOR pgscale_internal.fleet_validate;
COMMENT ON FOREIGN DATA WRAPPER pgscale_fleet IS 'its foreign servers are the nodes of the fleet';

CREATE FUNCTION pgscale.fleet_add(node text, conninfo text) RETURNS void
AS 'MODULE_PATHNAME', 'pgscale_fleet_add'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.fleet_add(text, text) IS
'adds a node, a foreign server of that name, with a user mapping for the current user. Errors: duplicate_object if the name is taken; '
'invalid_parameter_value if conninfo has a password, another option or several hosts
node: name of the node and of its foreign server
conninfo: has host or hostaddr, and may have port (5432), dbname (this one), user (the current one), connect_timeout, and options of '
'SSL, GSSAPI and keepalives';

CREATE FUNCTION pgscale.fleet_remove(node text) RETURNS void
AS 'MODULE_PATHNAME', 'pgscale_fleet_remove'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.fleet_remove(text) IS 'removes a node with all its user mappings
node: name in fleet_add()';

CREATE FUNCTION pgscale_internal.fleet_ask(question text, arguments text[]) RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_fleet_ask'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE ROWS 100;
COMMENT ON FUNCTION pgscale_internal.fleet_ask(text, text[]) IS
'queries all nodes at once: columns node, state and error, then the requested ones; a node that does not answer is one row';
GRANT EXECUTE ON FUNCTION pgscale_internal.fleet_ask(text, text[]) TO pg_monitor;

CREATE FUNCTION pgscale_internal.fleet(
    OUT node text, OUT state text, OUT role text, OUT lag_s double precision, OUT version text,
    OUT manager text, OUT same_as text, OUT identity text, OUT system_identifier bigint,
    OUT started_at timestamptz, OUT error text, OUT differing_settings text)
RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    WITH asked AS MATERIALIZED (
        SELECT * FROM pgscale_internal.fleet_ask('node_state', '{}') AS a (
            name text, state text, error text, node text, system_identifier bigint, role text, lag_s double precision,
            version text, started_at timestamptz, manager text, settings jsonb)
    ), setting AS (
        SELECT a.name AS node, s.key, s.value
          FROM asked a CROSS JOIN LATERAL jsonb_each_text(CASE jsonb_typeof(settings) WHEN 'object' THEN settings ELSE '{}' END) s
    ), counted AS (
        SELECT key, value, n, max(n) OVER (PARTITION BY key) AS most
          FROM (SELECT key, value, count(*) AS n FROM setting GROUP BY 1, 2) v
    ), usual AS (
        -- what most have; none if as many have another
        SELECT key, CASE count(*) FILTER (WHERE n = most) WHEN 1 THEN max(value) FILTER (WHERE n = most) END AS value
          FROM counted GROUP BY key HAVING count(*) > 1
    )
    SELECT a.name, a.state, a.role, a.lag_s, a.version, a.manager,
           (SELECT string_agg(b.name, ', ' ORDER BY b.name COLLATE "C") FROM asked b
             WHERE b.name <> a.name AND b.system_identifier = a.system_identifier AND b.started_at = a.started_at AND b.node = a.node),
           a.node, a.system_identifier, a.started_at, a.error,
           (SELECT string_agg(format('%s=%s', s.key, s.value), ', ' ORDER BY s.key COLLATE "C")
              FROM setting s JOIN usual u USING (key) WHERE s.node = a.name AND s.value IS DISTINCT FROM u.value)
      FROM asked a;
$$;
COMMENT ON FUNCTION pgscale_internal.fleet() IS 'the rows of pgscale.fleet';
GRANT EXECUTE ON FUNCTION pgscale_internal.fleet() TO pg_monitor;

CREATE VIEW pgscale.fleet AS
    SELECT node, state, role, round(lag_s * 1000) / 1000 AS lag_s, version, manager, same_as, identity, system_identifier,
           started_at, error, differing_settings
      FROM pgscale_internal.fleet()
     ORDER BY node COLLATE "C";
COMMENT ON VIEW pgscale.fleet IS
'one row for each node that fleet_add has added: whether it answers, its role, lag and version, and the settings in which it differs';
GRANT SELECT ON pgscale.fleet TO pg_monitor;
COMMENT ON COLUMN pgscale.fleet.node IS 'name in fleet_add';
COMMENT ON COLUMN pgscale.fleet.state IS
'ok; unreachable: no connection; no answer: none in time; failed: an error of the node; garbled: an invalid answer';
COMMENT ON COLUMN pgscale.fleet.role IS 'primary or standby';
COMMENT ON COLUMN pgscale.fleet.lag_s IS 'lag of a standby, in seconds, as in node_identity(); NULL on a primary';
COMMENT ON COLUMN pgscale.fleet.version IS 'version of PostgreSQL';
COMMENT ON COLUMN pgscale.fleet.manager IS 'software that manages its settings instead of ALTER SYSTEM: patroni, or NULL';
COMMENT ON COLUMN pgscale.fleet.same_as IS 'names of other nodes that lead to this server';
COMMENT ON COLUMN pgscale.fleet.identity IS 'its identity: cluster_name@host:port';
COMMENT ON COLUMN pgscale.fleet.system_identifier IS 'identifier of its cluster, equal on a primary and its standbys';
COMMENT ON COLUMN pgscale.fleet.started_at IS 'start of the server';
COMMENT ON COLUMN pgscale.fleet.error IS 'why there is no answer; NULL if there is one';
COMMENT ON COLUMN pgscale.fleet.differing_settings IS
'settings whose value is not the most common one, except those that belong to one server, such as port; NULL if there are none';

CREATE FUNCTION pgscale_internal.fleet_health(
    OUT node text, OUT feature text, OUT enabled boolean, OUT state text, OUT reason text, OUT action text)
RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT a.node, a.feature, a.enabled, CASE a.node_state WHEN 'ok' THEN a.state ELSE a.node_state END, coalesce(a.error, a.reason), a.action
      FROM pgscale_internal.fleet_ask('health', '{}') AS a (
          node text, node_state text, error text, feature text, enabled boolean, state text, reason text, action text);
$$;
COMMENT ON FUNCTION pgscale_internal.fleet_health() IS 'the rows of pgscale.fleet_health';
GRANT EXECUTE ON FUNCTION pgscale_internal.fleet_health() TO pg_monitor;

CREATE VIEW pgscale.fleet_health AS SELECT * FROM pgscale_internal.fleet_health();
COMMENT ON VIEW pgscale.fleet_health IS 'health of all nodes; a node that does not answer is a row without a feature';
GRANT SELECT ON pgscale.fleet_health TO pg_monitor;
COMMENT ON COLUMN pgscale.fleet_health.node IS 'name of the node';
COMMENT ON COLUMN pgscale.fleet_health.feature IS 'name of the feature; NULL for a node that does not answer';
COMMENT ON COLUMN pgscale.fleet_health.enabled IS 'whether the configuration asks for it; false only in state off';
COMMENT ON COLUMN pgscale.fleet_health.state IS 'as in health; or of a node that does not answer as in fleet';
COMMENT ON COLUMN pgscale.fleet_health.reason IS 'why, in one sentence';
COMMENT ON COLUMN pgscale.fleet_health.action IS 'what to do, or NULL';

CREATE FUNCTION pgscale_internal.fleet_advice(
    OUT node text, OUT setting text, OUT object text, OUT current text, OUT recommended text, OUT gain double precision,
    OUT confidence text, OUT needs text, OUT rule text, OUT patroni_command text, OUT error text, OUT reason text, OUT risk text)
RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
AS $$
    SELECT a.node, a.setting, a.object, a.current, a.recommended, a.gain, a.confidence, a.needs, a.rule, a.patroni_command,
           a.error, a.reason, a.risk
      FROM pgscale_internal.fleet_ask('node_advice', '{}') AS a (
          node text, state text, error text, setting text, object text, current text, recommended text, gain double precision,
          confidence text, needs text, rule text, patroni_command text, reason text, risk text)
     WHERE a.rule IS NOT NULL OR a.error IS NOT NULL;
$$;
COMMENT ON FUNCTION pgscale_internal.fleet_advice() IS 'the rows of pgscale.fleet_advice';
GRANT EXECUTE ON FUNCTION pgscale_internal.fleet_advice() TO pg_monitor;

CREATE VIEW pgscale.fleet_advice AS
    SELECT * FROM pgscale_internal.fleet_advice() ORDER BY gain DESC NULLS LAST, node COLLATE "C";
COMMENT ON VIEW pgscale.fleet_advice IS 'advice of all nodes, greatest gain first; a node that does not answer is a row with its error';
GRANT SELECT ON pgscale.fleet_advice TO pg_monitor;
COMMENT ON COLUMN pgscale.fleet_advice.node IS 'name of the node';
COMMENT ON COLUMN pgscale.fleet_advice.setting IS 'setting to change by ALTER SYSTEM there; NULL if the advice is not about a setting';
COMMENT ON COLUMN pgscale.fleet_advice.object IS 'tablespace, table or another object, if the advice is not about a setting';
COMMENT ON COLUMN pgscale.fleet_advice.current IS 'value now';
COMMENT ON COLUMN pgscale.fleet_advice.recommended IS 'value to set, or what to do';
COMMENT ON COLUMN pgscale.fleet_advice.gain IS 'fraction of that node''s sessions'' time that the change would save, 0 to 1, an estimate';
COMMENT ON COLUMN pgscale.fleet_advice.confidence IS 'high, medium or low';
COMMENT ON COLUMN pgscale.fleet_advice.needs IS 'requirement: reload, restart, superuser ...';
COMMENT ON COLUMN pgscale.fleet_advice.rule IS 'name of the rule';
COMMENT ON COLUMN pgscale.fleet_advice.patroni_command IS 'command that applies the advice, quoted for a shell, if Patroni manages the settings; otherwise NULL';
COMMENT ON COLUMN pgscale.fleet_advice.error IS 'why there is no answer; NULL if there is one';
COMMENT ON COLUMN pgscale.fleet_advice.reason IS 'why, in one sentence, with the source';
COMMENT ON COLUMN pgscale.fleet_advice.risk IS 'cost and risk of the change';

CREATE FUNCTION pgscale.fleet_waits(
    since timestamptz DEFAULT NULL, until timestamptz DEFAULT NULL, by text DEFAULT 'event', top integer DEFAULT 10,
    OUT node text, OUT rank integer, OUT item text, OUT event_type text, OUT event text,
    OUT active_sessions double precision, OUT fraction double precision, OUT wait_ms double precision,
    OUT queryid bigint, OUT query text, OUT idle_in_transaction_sessions double precision, OUT error text)
RETURNS SETOF record
LANGUAGE sql VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp
SET DateStyle = 'ISO'
AS $$
    SELECT a.node, a.rank, a.item, a.event_type, a.event, a.active_sessions, a.fraction, a.wait_ms, a.queryid, a.query,
           a.idle_in_transaction_sessions, a.error
      FROM pgscale_internal.fleet_ask('top_waits', ARRAY[$1::text, $2::text, $3, $4::text]) AS a (
          node text, state text, error text, rank integer, item text, event_type text, event text,
          active_sessions double precision, fraction double precision, wait_ms double precision, queryid bigint, query text,
          idle_in_transaction_sessions double precision)
     WHERE a.item IS NOT NULL OR a.error IS NOT NULL;
$$;
COMMENT ON FUNCTION pgscale.fleet_waits(timestamptz, timestamptz, text, integer) IS
'top_waits() of all nodes; a node that does not answer is a row with its error
since: as in top_waits()
until: as in top_waits()
by: as in top_waits()
top: number of rows for each node, as in top_waits()
node: name of the node
rank: 1 for the longest of the node; NULL if it does not answer
item: as in top_waits()
event_type: as in top_waits()
event: as in top_waits()
active_sessions: as in top_waits()
fraction: as in top_waits()
wait_ms: as in top_waits()
queryid: as in top_waits()
query: as in top_waits()
idle_in_transaction_sessions: as in top_waits()
error: why there is no answer; NULL if there is one';
GRANT EXECUTE ON FUNCTION pgscale.fleet_waits(timestamptz, timestamptz, text, integer) TO pg_monitor;
