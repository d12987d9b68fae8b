-- Changes of settings, and their journal.

-- Only the library reads and writes it; users see tuning_journal.
CREATE TABLE pgscale_internal.tuning_change (
    change bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    cluster bigint NOT NULL,
    database oid NOT NULL,
    node text NOT NULL,
    timeline bigint NOT NULL,
    setting text NOT NULL,
    old_value text,
    old_in_force text,
    new_value text,
    state text NOT NULL DEFAULT 'begun',
    requested_by text NOT NULL,
    acting_as text NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    applied_at timestamptz,
    effective_at timestamptz,
    reason text,
    evidence jsonb,
    metrics text[],
    metric_ends timestamptz[],
    metric_values double precision[],
    outcome jsonb,
    revert_of bigint,
    reverted_by bigint,
    sqlstate text,
    message text);
COMMENT ON TABLE pgscale_internal.tuning_change IS 'changes of settings as the library keeps them; see pgscale.tuning_journal';
COMMENT ON SEQUENCE pgscale_internal.tuning_change_change_seq IS 'ids of changes of settings';

CREATE FUNCTION pgscale_internal.tuning_journal(
    OUT change bigint, OUT setting text, OUT old_value text, OUT new_value text,
    OUT state text, OUT requested_by text, OUT acting_as text,
    OUT requested_at timestamptz, OUT applied_at timestamptz,
    OUT effective_at timestamptz, OUT reason text, OUT evidence jsonb,
    OUT outcome jsonb, OUT revert_of bigint, OUT reverted_by bigint,
    OUT sqlstate text, OUT message text, OUT node text, OUT old_in_force text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_tuning_journal'
LANGUAGE C STRICT VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale_internal.tuning_journal() IS 'the rows of pgscale.tuning_journal';
GRANT EXECUTE ON FUNCTION pgscale_internal.tuning_journal() TO pg_monitor;

CREATE VIEW pgscale.tuning_journal AS
    SELECT change, setting, old_value, old_in_force, new_value, state, requested_by, requested_at, applied_at, effective_at,
           acting_as, revert_of, reverted_by, node, sqlstate, message, reason, evidence, outcome
      FROM pgscale_internal.tuning_journal();
COMMENT ON VIEW pgscale.tuning_journal IS
'changes of settings made from this database: the line of postgresql.auto.conf before and after (NULL: none), role, time, reason and state';
GRANT SELECT ON pgscale.tuning_journal TO pg_monitor;
COMMENT ON COLUMN pgscale.tuning_journal.change IS 'number of the change, as verify and revert take it';
COMMENT ON COLUMN pgscale.tuning_journal.setting IS 'name of the setting';
COMMENT ON COLUMN pgscale.tuning_journal.old_value IS 'line in postgresql.auto.conf before the change; NULL if there was none';
COMMENT ON COLUMN pgscale.tuning_journal.old_in_force IS
'value in force before the change, whatever had set it, as SHOW prints it; NULL for a setting that the server does not know';
COMMENT ON COLUMN pgscale.tuning_journal.new_value IS 'line in postgresql.auto.conf after the change; NULL if there is none';
COMMENT ON COLUMN pgscale.tuning_journal.state IS
'applied, pending reload, pending restart, overridden, superseded, changed by hand, reverted, failed, begun, or where it was made';
COMMENT ON COLUMN pgscale.tuning_journal.requested_by IS 'session user';
COMMENT ON COLUMN pgscale.tuning_journal.requested_at IS 'time of the request';
COMMENT ON COLUMN pgscale.tuning_journal.applied_at IS 'time when the change was made';
COMMENT ON COLUMN pgscale.tuning_journal.effective_at IS 'time at which the change took effect';
COMMENT ON COLUMN pgscale.tuning_journal.acting_as IS 'role whose privileges the session user used';
COMMENT ON COLUMN pgscale.tuning_journal.revert_of IS 'number of the change that this one reverts';
COMMENT ON COLUMN pgscale.tuning_journal.reverted_by IS 'number of the change that reverted this one';
COMMENT ON COLUMN pgscale.tuning_journal.node IS 'host and data directory where it was made; NULL for roles that may not see data_directory';
COMMENT ON COLUMN pgscale.tuning_journal.sqlstate IS 'SQLSTATE of its error';
COMMENT ON COLUMN pgscale.tuning_journal.message IS 'error of the change';
COMMENT ON COLUMN pgscale.tuning_journal.reason IS 'why, in one sentence: the reason of the advice';
COMMENT ON COLUMN pgscale.tuning_journal.evidence IS 'the numbers of the advice';
COMMENT ON COLUMN pgscale.tuning_journal.outcome IS 'latest result of verify';

CREATE PROCEDURE pgscale.set(
    setting text, value text, reload boolean DEFAULT false, force boolean DEFAULT false,
    INOUT change bigint DEFAULT NULL)
AS 'MODULE_PATHNAME', 'pgscale_tuning_set'
LANGUAGE C;
COMMENT ON PROCEDURE pgscale.set(text, text, boolean, boolean, bigint) IS
'ALTER SYSTEM with a journal: sets a setting to a value, as in postgresql.conf, or with NULL removes its line; with force also if the server would not start again; shows the change';

CREATE PROCEDURE pgscale.apply(
    setting text, reload boolean DEFAULT false, INOUT change bigint DEFAULT NULL)
AS 'MODULE_PATHNAME', 'pgscale_tuning_apply'
LANGUAGE C;
COMMENT ON PROCEDURE pgscale.apply(text, boolean, bigint) IS 'sets a setting to what pgscale.advice recommends, and shows the change';

CREATE PROCEDURE pgscale.apply_all(
    dry_run boolean DEFAULT true, reload boolean DEFAULT false, INOUT changes bigint[] DEFAULT NULL)
AS 'MODULE_PATHNAME', 'pgscale_tuning_apply_all'
LANGUAGE C;
COMMENT ON PROCEDURE pgscale.apply_all(boolean, boolean, bigint[]) IS
'sets all that pgscale.advice recommends with high or medium confidence and ALTER SYSTEM can set, and shows the changes; with dry_run only shows them as notices';

CREATE PROCEDURE pgscale.revert(
    change bigint, reload boolean DEFAULT false, force boolean DEFAULT false,
    INOUT reverted_by bigint DEFAULT NULL)
AS 'MODULE_PATHNAME', 'pgscale_tuning_revert'
LANGUAGE C;
COMMENT ON PROCEDURE pgscale.revert(bigint, boolean, boolean, bigint) IS
'restores the line that a setting had before a change, or removes it; with force also if it was changed since, by hand or by later changes, which are then reverted, too';

CREATE FUNCTION pgscale.verify(
    change bigint, duration interval DEFAULT NULL,
    OUT metric text, OUT unit text, OUT before double precision, OUT after double precision,
    OUT difference double precision, OUT difference_low double precision, OUT difference_high double precision,
    OUT samples_before integer, OUT samples_after integer,
    OUT verdict text, OUT decides boolean, OUT reason text)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_tuning_verify'
LANGUAGE C VOLATILE PARALLEL UNSAFE;
COMMENT ON FUNCTION pgscale.verify(bigint, interval) IS
'compares the metrics of a setting before and after a change: difference is relative, with its 95 % interval, verdict better, worse or cannot tell';
