-- The shape of what it tells; who waits for whom takes several sessions: see t/blockers_queues.pl.
CREATE EXTENSION pgscale;
\pset format unaligned \pset footer off

-- nobody waits
SELECT * FROM pgscale.blockers;
SELECT count(*) FROM pgscale.blockers;
SELECT count(*) FROM pgscale_internal.lock_waits();

-- locks that nobody waits for; in a block, in a subtransaction, after an error
BEGIN;
CREATE TABLE t (x int);
LOCK TABLE t;
SELECT pg_advisory_xact_lock(1);
SELECT count(*) FROM pgscale.blockers;
SAVEPOINT s;
SELECT 1 / count(*) FROM pgscale.blockers;
ROLLBACK TO s;
SELECT count(*) FROM pgscale.blockers;
COMMIT;

-- who may read it
CREATE ROLE regress_blockers;
SET ROLE regress_blockers;
SELECT * FROM pgscale.blockers;
SELECT * FROM pgscale_internal.blockers();
SELECT * FROM pgscale_internal.lock_waits();
RESET ROLE;
GRANT pg_monitor TO regress_blockers;
SET ROLE regress_blockers;
SELECT count(*) FROM pgscale.blockers;
RESET ROLE;
DROP ROLE regress_blockers;
DROP TABLE t;
DROP EXTENSION pgscale;
