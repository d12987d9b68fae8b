-- Settings of functions that read pgscale's tables.

CREATE FUNCTION pgscale_internal.short_locks()
RETURNS void
AS 'MODULE_PATHNAME', 'pgscale_short_locks'
LANGUAGE C STRICT VOLATILE PARALLEL RESTRICTED;
COMMENT ON FUNCTION pgscale_internal.short_locks() IS
'makes the calling function wait for half a second for a lock, or for lock_timeout if that is shorter; it must have a SET clause';
