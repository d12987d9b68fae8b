-- What the archive's tables and views are; who writes them and when takes a server of its own: see t/054_archive.pl.
CREATE EXTENSION pgscale;
SELECT enabled, state FROM pgscale.health WHERE feature = 'archive';
SELECT name, setting, unit, context, min_val FROM pg_settings WHERE name LIKE 'pgscale.archive%' ORDER BY 1;

-- nothing was archived
SELECT count(*) FROM pgscale.archive_waits;
SELECT count(*) FROM pgscale.archive_minutes;
SELECT count(*) FROM pgscale.archive_queries;
SELECT count(*) FROM pgscale.archive_changes;

-- the columns that others rely on
SELECT attname, atttypid::regtype FROM pg_attribute WHERE attrelid = 'pgscale.archive_waits'::regclass AND attnum > 0 ORDER BY attnum;

-- who may read it
CREATE ROLE regress_archive;
SET ROLE regress_archive;
SELECT * FROM pgscale.archive_waits;
RESET ROLE;
GRANT pg_monitor TO regress_archive;
SET ROLE regress_archive;
SELECT count(*) FROM pgscale.archive_waits;
SELECT count(*) FROM pgscale.archive_minutes;
SELECT count(*) FROM pgscale.archive_queries;
SELECT count(*) FROM pgscale.archive_minute;
RESET ROLE;
DROP ROLE regress_archive;
DROP EXTENSION pgscale;
