-- Waits for LWLocks: by lock, by tranche, and by page of shared buffers.

CREATE FUNCTION pgscale_internal.lwlock_profile(
    OUT tranche_id integer, OUT tranche text, OUT lock integer, OUT ticks bigint, OUT waited bigint,
    OUT held_exclusive bigint, OUT held_shared bigint, OUT wait_ms double precision,
    OUT mean_waiters double precision, OUT looks bigint, OUT looks_exclusive bigint,
    OUT looks_shared bigint, OUT stats_reset timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_lwlock_profile'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 100;
COMMENT ON FUNCTION pgscale_internal.lwlock_profile() IS 'the rows of pgscale.lwlock_profile';
GRANT EXECUTE ON FUNCTION pgscale_internal.lwlock_profile() TO pg_monitor;

CREATE VIEW pgscale.lwlock_profile AS
    SELECT tranche, lock, ticks, waited, held_exclusive, held_shared, pgscale_internal.three_digits(wait_ms) AS wait_ms,
           pgscale_internal.three_digits(mean_waiters) AS mean_waiters,
           pgscale_internal.three_digits((looks_exclusive + looks_shared) / nullif(looks, 0)::double precision) AS held_fraction,
           stats_reset, looks, looks_exclusive, looks_shared, tranche_id
      FROM pgscale_internal.lwlock_profile() p
     ORDER BY p.wait_ms DESC, waited DESC, tranche_id, lock;
COMMENT ON VIEW pgscale.lwlock_profile IS 'LWLocks that were seen held or waited for, one by one, those waited for longest first';
GRANT SELECT ON pgscale.lwlock_profile TO pg_monitor;
COMMENT ON COLUMN pgscale.lwlock_profile.tranche IS 'the tranche, as the wait event is named; extension if this session does not know the name';
COMMENT ON COLUMN pgscale.lwlock_profile.lock IS 'number of the lock in its tranche, from 0: of a partitioned table the server''s number of the partition';
COMMENT ON COLUMN pgscale.lwlock_profile.ticks IS 'number of ticks at which processes waited for the tranche, so that its locks were read';
COMMENT ON COLUMN pgscale.lwlock_profile.waited IS 'number of these at which a process queued at this lock';
COMMENT ON COLUMN pgscale.lwlock_profile.held_exclusive IS 'number of these at which it was held exclusive';
COMMENT ON COLUMN pgscale.lwlock_profile.held_shared IS 'number of these at which it was held shared';
COMMENT ON COLUMN pgscale.lwlock_profile.wait_ms IS
'its share of the time that processes waited for the tranche, in milliseconds; the locks with a queue share the time of a tick evenly';
COMMENT ON COLUMN pgscale.lwlock_profile.mean_waiters IS
'its share of the processes that waited, on average over the ticks; exact where only one lock had a queue';
COMMENT ON COLUMN pgscale.lwlock_profile.held_fraction IS 'fraction of the readings once per second that found it held, with or without waiters, 0 to 1';
COMMENT ON COLUMN pgscale.lwlock_profile.stats_reset IS 'start of the counts: the last reset or start of the server';
COMMENT ON COLUMN pgscale.lwlock_profile.looks IS 'number of readings once per second, with or without waiters';
COMMENT ON COLUMN pgscale.lwlock_profile.looks_exclusive IS 'of these, those that found it held exclusively';
COMMENT ON COLUMN pgscale.lwlock_profile.looks_shared IS 'of these, those that found it held shared';
COMMENT ON COLUMN pgscale.lwlock_profile.tranche_id IS 'number of the tranche';

CREATE FUNCTION pgscale_internal.lwlock_tranches(
    OUT tranche_id integer, OUT tranche text, OUT locks integer, OUT ticks bigint,
    OUT wait_ms double precision, OUT mean_waiters double precision, OUT busiest_lock integer,
    OUT skew double precision, OUT reason text, OUT stats_reset timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_lwlock_tranches'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 20;
COMMENT ON FUNCTION pgscale_internal.lwlock_tranches() IS 'the rows of pgscale.lwlock_tranches';
GRANT EXECUTE ON FUNCTION pgscale_internal.lwlock_tranches() TO pg_monitor;

CREATE VIEW pgscale.lwlock_tranches AS
    SELECT tranche, locks, ticks, pgscale_internal.three_digits(wait_ms) AS wait_ms, pgscale_internal.three_digits(mean_waiters) AS mean_waiters,
           busiest_lock, pgscale_internal.three_digits(skew) AS skew, stats_reset, reason, tranche_id
      FROM pgscale_internal.lwlock_tranches() t
     ORDER BY t.wait_ms DESC;
COMMENT ON VIEW pgscale.lwlock_tranches IS 'tranches of LWLocks that were waited for, longest first, and how unevenly over their locks';
GRANT SELECT ON pgscale.lwlock_tranches TO pg_monitor;
COMMENT ON COLUMN pgscale.lwlock_tranches.tranche IS
'the tranche, as the wait event is named; extension if this session does not know the name; other for those beyond the first 255';
COMMENT ON COLUMN pgscale.lwlock_tranches.locks IS 'number of its locks; NULL if they cannot be read one by one, see reason';
COMMENT ON COLUMN pgscale.lwlock_tranches.ticks IS 'number of ticks at which processes waited for it';
COMMENT ON COLUMN pgscale.lwlock_tranches.wait_ms IS 'time that processes waited for it, in milliseconds, as in pgscale.wait_profile';
COMMENT ON COLUMN pgscale.lwlock_tranches.mean_waiters IS 'number of processes that waited for it, on average over the ticks';
COMMENT ON COLUMN pgscale.lwlock_tranches.busiest_lock IS 'number of the lock at which processes queued most often; NULL if that is unknown';
COMMENT ON COLUMN pgscale.lwlock_tranches.skew IS
'how often processes queued at that lock, as a multiple of the mean; NULL for one lock, or below 4 queues for each lock';
COMMENT ON COLUMN pgscale.lwlock_tranches.stats_reset IS 'start of the counts: the last reset or start of the server';
COMMENT ON COLUMN pgscale.lwlock_tranches.reason IS 'why its locks cannot be read one by one';
COMMENT ON COLUMN pgscale.lwlock_tranches.tranche_id IS 'number of the tranche';

CREATE FUNCTION pgscale_internal.hot_buffers(
    OUT bufferid integer, OUT datid oid, OUT relation regclass, OUT relfilenode oid, OUT reltablespace oid,
    OUT fork text, OUT block bigint, OUT page_kind text, OUT held text, OUT holders integer,
    OUT all_waiters integer)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_hot_buffers'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED ROWS 10;
COMMENT ON FUNCTION pgscale_internal.hot_buffers() IS 'the rows of pgscale.hot_buffers';
GRANT EXECUTE ON FUNCTION pgscale_internal.hot_buffers() TO pg_monitor;

CREATE VIEW pgscale.hot_buffers AS
    SELECT h.relation, h.fork, h.block, h.page_kind, h.held, h.holders, h.all_waiters,
           pgscale_internal.name_of(h.datid) AS datname, h.bufferid, h.datid, h.relfilenode, h.reltablespace
      FROM pgscale_internal.hot_buffers() h
     ORDER BY h.relation::text, h.block;
COMMENT ON VIEW pgscale.hot_buffers IS
'buffers of all databases whose content lock processes wait for now; needs no preload; error feature_not_supported if pgscale does not know the layout of the server''s locks';
GRANT SELECT ON pgscale.hot_buffers TO pg_monitor;
COMMENT ON COLUMN pgscale.hot_buffers.relation IS 'the relation; NULL if it is of another database, was just dropped, or belongs to an open transaction';
COMMENT ON COLUMN pgscale.hot_buffers.fork IS 'main, fsm, vm or init';
COMMENT ON COLUMN pgscale.hot_buffers.block IS 'number of the page in the fork';
COMMENT ON COLUMN pgscale.hot_buffers.page_kind IS
'of a B-tree: meta, root, internal, leaf or deleted; NULL for other relations or if the page is being changed';
COMMENT ON COLUMN pgscale.hot_buffers.held IS
'exclusive or shared, from 19 on also share exclusive, by a process that writes the page; NULL while waiters are being woken';
COMMENT ON COLUMN pgscale.hot_buffers.holders IS 'number of processes that hold the lock';
COMMENT ON COLUMN pgscale.hot_buffers.all_waiters IS
'number of processes that wait for the content of any buffer, equal in all rows; the number for one buffer is unknown';
COMMENT ON COLUMN pgscale.hot_buffers.datname IS 'name of the database; NULL for shared catalogs';
COMMENT ON COLUMN pgscale.hot_buffers.bufferid IS 'number of the buffer, as in pg_buffercache';
COMMENT ON COLUMN pgscale.hot_buffers.datid IS 'OID of the database; 0 for shared catalogs';
COMMENT ON COLUMN pgscale.hot_buffers.relfilenode IS 'filenode number of the relation, as in pg_buffercache';
COMMENT ON COLUMN pgscale.hot_buffers.reltablespace IS 'OID of the tablespace, as in pg_buffercache';
