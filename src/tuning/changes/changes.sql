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
'changes of settings made from this database; values that only pg_read_all_settings may see are NULL, values that may hold a secret are (hidden) for all except superusers';
GRANT SELECT ON pgscale.tuning_journal TO pg_monitor;
COMMENT ON COLUMN pgscale.tuning_journal.change IS 'number of the change, as verify and revert take it';
COMMENT ON COLUMN pgscale.tuning_journal.setting IS 'name of the setting';
COMMENT ON COLUMN pgscale.tuning_journal.old_value IS
'line in postgresql.auto.conf before the change; NULL if there was none';
COMMENT ON COLUMN pgscale.tuning_journal.old_in_force IS
'value in force before the change, whatever had set it, as SHOW prints it; NULL for a setting that the server does not know';
COMMENT ON COLUMN pgscale.tuning_journal.new_value IS 'line in postgresql.auto.conf after the change; NULL if there is none';
COMMENT ON COLUMN pgscale.tuning_journal.state IS
'applied, pending reload, pending restart, overridden, superseded, changed by hand, reverted, failed, begun, unknown, or where it was made';
COMMENT ON COLUMN pgscale.tuning_journal.requested_by IS 'session user of the request';
COMMENT ON COLUMN pgscale.tuning_journal.requested_at IS 'time of the request';
COMMENT ON COLUMN pgscale.tuning_journal.applied_at IS 'time when the change was made; NULL if it was not';
COMMENT ON COLUMN pgscale.tuning_journal.effective_at IS 'time since which the change is in force; NULL before that';
COMMENT ON COLUMN pgscale.tuning_journal.acting_as IS 'role whose privileges the session user used';
COMMENT ON COLUMN pgscale.tuning_journal.revert_of IS 'number of the change that this one reverts; otherwise NULL';
COMMENT ON COLUMN pgscale.tuning_journal.reverted_by IS 'number of the change that reverted this one; otherwise NULL';
COMMENT ON COLUMN pgscale.tuning_journal.node IS 'host and data directory where it was made; NULL for roles that may not see data_directory';
COMMENT ON COLUMN pgscale.tuning_journal.sqlstate IS 'SQLSTATE of its error; NULL if there was none';
COMMENT ON COLUMN pgscale.tuning_journal.message IS 'error of the change; NULL if there was none';
COMMENT ON COLUMN pgscale.tuning_journal.reason IS 'the reason of the advice, in one sentence; NULL without advice';
COMMENT ON COLUMN pgscale.tuning_journal.evidence IS 'the numbers of the advice; NULL without advice';
COMMENT ON COLUMN pgscale.tuning_journal.outcome IS 'latest result of verify; NULL before that';

CREATE PROCEDURE pgscale.set(
    setting text, value text, reload boolean DEFAULT false, force boolean DEFAULT false,
    INOUT change bigint DEFAULT NULL)
AS 'MODULE_PATHNAME', 'pgscale_tuning_set'
LANGUAGE C;
COMMENT ON PROCEDURE pgscale.set(text, text, boolean, boolean, bigint) IS
'ALTER SYSTEM with a journal. Acts with the privileges of the caller; cannot run inside a transaction
setting: name of the setting
value: as between the quotes in postgresql.conf, a list as one string; NULL: remove the line
reload: true: reload the configuration
force: true: also if the server would not start again
change: number of the change';

CREATE PROCEDURE pgscale.apply(
    setting text, reload boolean DEFAULT false, INOUT change bigint DEFAULT NULL)
AS 'MODULE_PATHNAME', 'pgscale_tuning_apply'
LANGUAGE C;
COMMENT ON PROCEDURE pgscale.apply(text, boolean, bigint) IS
'sets a setting to the value that pgscale.advice recommends, and keeps reason and evidence. Error: no_data_found without advice on that setting
setting: name of the setting
reload: true: reload the configuration
change: number of the change';

CREATE PROCEDURE pgscale.apply_all(
    dry_run boolean DEFAULT true, reload boolean DEFAULT false, INOUT changes bigint[] DEFAULT NULL)
AS 'MODULE_PATHNAME', 'pgscale_tuning_apply_all'
LANGUAGE C;
COMMENT ON PROCEDURE pgscale.apply_all(boolean, boolean, bigint[]) IS
'applies all advice of high or medium confidence that ALTER SYSTEM can follow, greatest gain first; a change that fails is a warning
dry_run: true: only show the changes, as notices
reload: true: reload the configuration
changes: numbers of the changes';

CREATE PROCEDURE pgscale.revert(
    change bigint, reload boolean DEFAULT false, force boolean DEFAULT false,
    INOUT reverted_by bigint DEFAULT NULL)
AS 'MODULE_PATHNAME', 'pgscale_tuning_revert'
LANGUAGE C;
COMMENT ON PROCEDURE pgscale.revert(bigint, boolean, boolean, bigint) IS
'restores the line that a setting had before a change, or removes it. Error if the line of the change is no longer there
change: number of the change
reload: true: reload the configuration
force: true: overwrite a line that was changed since, and also revert later changes
reverted_by: number of the new change';

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
'compares the metrics of a setting before and after a change, one row per metric, and writes the result into the journal
change: number of the change
duration: length of each window, a minute to an hour; NULL: the longest possible
metric: what is compared, such as the sessions'' time per transaction
unit: unit of before and after
before: value in the window that ends at the change: a sum divided by a sum
after: value in the latest window of that length, up to the next change of the setting
difference: relative to before: -0.2 is a fifth less
difference_low: lower end of its 95 % confidence interval (batch means; Welch)
difference_high: upper end of its 95 % confidence interval
samples_before: records of 5 s with a known value
samples_after: records of 5 s with a known value
verdict: better, worse; cannot tell, if the interval contains zero or there is too little evidence
decides: whether the journal takes the verdict of this metric: the first that is not cannot tell
reason: the verdict in words; how long to wait; the number of other changes in the windows';
