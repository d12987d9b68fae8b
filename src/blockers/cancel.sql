-- Ends the statement or the session of a root blocker.

-- For pg_signal_backend, whose members may signal other roles' sessions; the server decides which.
CREATE FUNCTION pgscale.cancel(pid integer, root boolean DEFAULT false, OUT pid integer, OUT done boolean, OUT what text)
RETURNS record
AS 'MODULE_PATHNAME', 'pgscale_cancel'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.cancel(integer, boolean) IS
'cancels the statement of a session, within two seconds; does nothing if the session waits for a lock, executes nothing, or its commit waits for a synchronous standby. Errors: wrong_object_type for a process that must not be ended; invalid_parameter_value for the own session; insufficient_privilege by the rules of the server
pid: process ID; of a parallel worker its leader; returned: the process that was acted on
root: true: act on its root blocker, or on the process if it is a root
done: whether the statement was seen to end
what: what was done, or why nothing was: session, user, application, state, and the number of transactions that waited for it';
GRANT EXECUTE ON FUNCTION pgscale.cancel(integer, boolean) TO pg_signal_backend;

CREATE FUNCTION pgscale.terminate(pid integer, root boolean DEFAULT false, idle boolean DEFAULT false,
    OUT pid integer, OUT done boolean, OUT what text)
RETURNS record
AS 'MODULE_PATHNAME', 'pgscale_terminate'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.terminate(integer, boolean, boolean) IS
'terminates a session, within two seconds, and rolls its transaction back; does nothing if the session waits for a lock, or its commit waits for a synchronous standby. Errors: wrong_object_type for a process that must not be ended; invalid_parameter_value for the own session; insufficient_privilege by the rules of the server
pid: process ID; of a parallel worker its leader; returned: the process that was acted on
root: true: act on its root blocker, or on the process if it is a root
idle: true: do nothing unless the session is idle and in no transaction
done: whether the session was seen to end
what: what was done, or why nothing was: session, user, application, state, and the number of transactions that waited for it';
GRANT EXECUTE ON FUNCTION pgscale.terminate(integer, boolean, boolean) TO pg_signal_backend;
