-- The shape of what it tells; other nodes take other servers: see t/fleet_nodes.pl.
CREATE EXTENSION pgscale;
\pset format unaligned \pset footer off

-- this server
SELECT node = concat(nullif(concat(current_setting('cluster_name'), '@'), '@'), substring(node FROM '[^@:]+:\d+$')) AS named,
       node LIKE '%:' || current_setting('port') AS port,
       system_identifier = (SELECT system_identifier FROM pg_control_system()) AS same, role, lag_s
  FROM pgscale.node_identity();

-- nodes
SELECT pgscale.fleet_add('regress a', 'host=/nowhere port=1 dbname=x user=y connect_timeout=3 sslmode=disable');
SELECT pgscale.fleet_add('b', 'postgresql://?host=/nowhere');
SELECT srvname, fdwname, (SELECT array_agg(o ORDER BY o COLLATE "C") FROM unnest(srvoptions) o) AS options, usename = current_user AS own,
       replace(umoptions::text, current_user, 'me') AS umoptions, has_server_privilege('pg_monitor', s.oid, 'USAGE') AS monitor
  FROM pg_foreign_server s JOIN pg_foreign_data_wrapper w ON w.oid = srvfdw
  LEFT JOIN pg_user_mappings m USING (srvname) WHERE fdwname = 'pgscale_fleet' ORDER BY 1;
SELECT node, state, error IS NOT NULL AS error FROM pgscale.fleet;
SELECT node, feature, state, reason IS NOT NULL AS reason FROM pgscale.fleet_health ORDER BY 1;
SELECT node, setting, error IS NOT NULL AS error FROM pgscale.fleet_advice;
SELECT node, item, error IS NOT NULL AS error FROM pgscale.fleet_waits() ORDER BY 1;
SELECT * FROM pgscale_internal.fleet_ask('pg_authid', '{}') AS a (node text, state text, error text, rolpassword text);
SELECT * FROM pgscale_internal.fleet_ask('health', '{}') AS a (node text);
SELECT pgscale.fleet_add(repeat('x', 64), 'host=a');
SELECT pgscale.fleet_add('', 'host=a');
SELECT pgscale.fleet_add('c', 'host=a password=b');
SELECT pgscale.fleet_add('c', 'host=a,b');
SELECT pgscale.fleet_add('c', 'host=a service=b');
SELECT pgscale.fleet_add('c', 'dbname=a');
SELECT pgscale.fleet_add('c', 'host');
SELECT pgscale.fleet_add('b', 'host=a');
CREATE SERVER c FOREIGN DATA WRAPPER pgscale_fleet OPTIONS (host 'a', password 'b');
CREATE USER MAPPING FOR CURRENT_USER SERVER c OPTIONS (host 'a');
\set VERBOSITY terse
SET client_min_messages = warning;
DROP EXTENSION pgscale;
SELECT pgscale.fleet_remove('regress a');
SELECT pgscale.fleet_remove('b');
SELECT pgscale.fleet_remove('b');
RESET client_min_messages;

-- who may read it
CREATE ROLE regress_fleet;
SET ROLE regress_fleet;
SELECT * FROM pgscale.node_identity();
RESET ROLE;
GRANT pg_monitor TO regress_fleet;
SET ROLE regress_fleet;
SELECT count(*) FROM pgscale.node_identity();
RESET ROLE;
DROP ROLE regress_fleet;
DROP EXTENSION pgscale;
