-- Answers while no process waits for a lock. For those of waits see t/lwlocks_truth.pl.
CREATE EXTENSION pgscale;
\pset format unaligned \pset footer off

-- counts are of one moment and begin anew
SELECT pgscale.reset('lwlocks');
SELECT count(*) FILTER (WHERE waited > ticks OR held_exclusive > ticks OR held_shared > ticks
                           OR looks_exclusive + looks_shared > looks OR wait_ms < 0) AS wrong,
       count(*) FILTER (WHERE stats_reset > clock_timestamp()) AS in_future
  FROM pgscale_internal.lwlock_profile();
SELECT count(*) FILTER (WHERE ticks = 0 OR mean_waiters < 1 OR skew < 1 OR (locks IS NULL) <> (reason IS NOT NULL)) AS wrong
  FROM pgscale_internal.lwlock_tranches();
SELECT count(*) FROM pgscale.lwlock_profile p LEFT JOIN pgscale.lwlock_tranches t USING (tranche) WHERE p.ticks > 0 AND t IS NULL;

-- nobody waits for a page
SELECT count(*) FROM pgscale.hot_buffers;

DROP EXTENSION pgscale;
