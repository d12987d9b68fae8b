-- Ends the statement or the session of a root blocker.

-- For pg_signal_backend, whose members may signal other roles' sessions; the server decides which.
CREATE FUNCTION pgscale.cancel(pid integer, root boolean DEFAULT false, OUT pid integer, OUT done boolean, OUT what text)
RETURNS record
AS 'MODULE_PATHNAME', 'pgscale_cancel'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.cancel(integer, boolean) IS
'cancels the statement of a session, or of its root blocker, and says what happened; does nothing if the session waits for a lock; raises an error for a process that must not be ended';
GRANT EXECUTE ON FUNCTION pgscale.cancel(integer, boolean) TO pg_signal_backend;

CREATE FUNCTION pgscale.terminate(pid integer, root boolean DEFAULT false, idle boolean DEFAULT false,
    OUT pid integer, OUT done boolean, OUT what text)
RETURNS record
AS 'MODULE_PATHNAME', 'pgscale_terminate'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.terminate(integer, boolean, boolean) IS
'terminates a session, or its root blocker, and says what happened; does nothing if the session waits for a lock or, with idle => true, is not idle; raises an error for a process that must not be ended';
GRANT EXECUTE ON FUNCTION pgscale.terminate(integer, boolean, boolean) TO pg_signal_backend;
