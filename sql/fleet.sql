-- The shape of what it tells; other nodes take other servers: see t/061_fleet.pl.
CREATE EXTENSION pgscale;
SELECT * FROM pgscale.health WHERE feature = 'fleet';

-- this server
SELECT node = concat(nullif(concat(current_setting('cluster_name'), '@'), '@'), substring(node FROM '[^@:]+:\d+$')) AS named,
       node LIKE '%:' || current_setting('port') AS port,
       system_identifier = (SELECT system_identifier FROM pg_control_system()) AS same, role, lag_s
  FROM pgscale.node_identity();

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
