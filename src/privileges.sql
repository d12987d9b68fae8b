-- pg_monitor reads: its GRANT is beside each object. Superusers act, and roles to which they grant that.
-- PUBLIC has only the privileges that are granted here: these lines would revoke a GRANT to PUBLIC that an earlier part makes.
REVOKE ALL ON SCHEMA pgscale, pgscale_internal FROM PUBLIC;
REVOKE ALL ON ALL TABLES IN SCHEMA pgscale, pgscale_internal FROM PUBLIC;
REVOKE ALL ON ALL ROUTINES IN SCHEMA pgscale, pgscale_internal FROM PUBLIC;

-- These functions read only their arguments, or names that each role may read, and views and functions call them: a role with a privilege on one of these needs no further one.
GRANT EXECUTE ON FUNCTION pgscale_internal.clean_line(text, integer), pgscale_internal.clean_statement(text), pgscale_internal.foreign_name(name),
    pgscale_internal.foreign_text(text, integer), pgscale_internal.major(), pgscale_internal.name_of(oid, boolean), pgscale_internal.three_digits(double precision),
    pgscale_internal.usl_throughput(double precision, double precision, double precision, double precision) TO PUBLIC;
-- texts of statements: each role is shown only what pg_stat_activity or pg_stat_statements would show it
GRANT EXECUTE ON FUNCTION pgscale_internal.past_archive(boolean), pgscale_internal.past_queries(bigint[], boolean), pgscale_internal.query_waits_text_fits(boolean),
    pgscale_internal.session_queries(bigint[]), pgscale_internal.short_locks(), pgscale_internal.statement_texts(),
    pgscale_internal.unidentified_statement(timestamptz, timestamptz) TO PUBLIC;
-- figures of this database's jobs, and the pids that they wait for, for the view of jobs
GRANT EXECUTE ON FUNCTION pgscale_internal.relocation_progress() TO PUBLIC;
-- read the kind and the size of relations, and the size of databases, for the functions that move
GRANT EXECUTE ON FUNCTION pgscale_internal.relocation_may_move_online(oid), pgscale_internal.relocation_staying(oid),
    pgscale_internal.relocation_bytes(oid, boolean, boolean), pgscale_internal.relocation_database_bytes(oid, oid) TO PUBLIC;
-- reports the privilege that relocation_plan() needs
GRANT EXECUTE ON FUNCTION pgscale_internal.relocation_plan_check(name, bigint, interval) TO PUBLIC;
-- a part of relocate_indexes(): each role is shown only what pg_stats would show it
GRANT EXECUTE ON FUNCTION pgscale_internal.relocation_btree_bytes(oid, double precision), pgscale_internal.relocation_index_mode(oid) TO PUBLIC;
-- a part of report(), which shows each role only what that role may see
GRANT EXECUTE ON FUNCTION pgscale_internal.past_keep(timestamptz, timestamptz, text) TO PUBLIC;
