-- Findings of the rules.

CREATE FUNCTION pgscale.advice_rules(
    duration interval DEFAULT '10 minutes', probe boolean DEFAULT false,
    OUT rule text, OUT verdict text, OUT setting text, OUT object text,
    OUT current text, OUT recommended text, OUT evidence jsonb, OUT reason text,
    OUT gain double precision, OUT needs text, OUT confidence text, OUT risk text,
    OUT since timestamptz, OUT until timestamptz)
RETURNS SETOF record
AS 'MODULE_PATHNAME', 'pgscale_tuning_findings'
LANGUAGE C VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION pgscale.advice_rules(interval, boolean) IS
'findings of each rule by the evidence of the duration, not rounded. Errors: null_value_not_allowed; invalid_parameter_value for a duration that is not positive; object_not_in_prerequisite_state without preload
duration: length of the period that ends now
probe: true: also time the disks, which needs EXECUTE on tablespace_latency()
rule: name of the rule
verdict: advises, satisfied, or silent
setting: setting to change by ALTER SYSTEM; NULL if the advice is not about a setting
object: tablespace, table or another object, if the advice is not about a setting
current: value now, as SHOW prints it
recommended: value to set, as ALTER SYSTEM takes it; or what to do
evidence: the numbers; NULL if unknown; fractions are of the sessions'' time, 0 to 1
reason: why, in one sentence, with the source
gain: fraction of the sessions'' time that the change would save, 0 to 1, an estimate
needs: requirement: reload, restart, superuser ...
confidence: high, medium or low
risk: cost and risk of the change
since: start of the evidence
until: end of the evidence';
GRANT EXECUTE ON FUNCTION pgscale.advice_rules(interval, boolean) TO pg_monitor;

CREATE FUNCTION pgscale_internal.tuning_max_wal_size(duration interval DEFAULT '10 minutes') RETURNS text
AS 'MODULE_PATHNAME', 'pgscale_tuning_wal_size'
LANGUAGE C VOLATILE PARALLEL UNSAFE
SET search_path = pg_catalog, pg_temp;
COMMENT ON FUNCTION pgscale_internal.tuning_max_wal_size(interval) IS
'value for max_wal_size by the evidence of the duration, as advice has it; NULL if no larger one is of use, or the disk of pg_wal has no room';
GRANT EXECUTE ON FUNCTION pgscale_internal.tuning_max_wal_size(interval) TO pg_monitor;

CREATE VIEW pgscale.advice AS
    SELECT setting, object, current, recommended, pgscale_internal.three_digits(gain) AS gain, confidence, needs, rule,
           since, until, reason, risk, evidence
      FROM pgscale.advice_rules() f
     WHERE verdict = 'advises'
     ORDER BY f.gain DESC;
COMMENT ON VIEW pgscale.advice IS
'settings to change, by the evidence of the last 10 minutes, greatest gain first; no rows if no rule expects a gain of 2 %';
GRANT SELECT ON pgscale.advice TO pg_monitor;
COMMENT ON COLUMN pgscale.advice.setting IS 'setting to change by ALTER SYSTEM; NULL if the advice is not about a setting';
COMMENT ON COLUMN pgscale.advice.object IS 'tablespace, table or another object, if the advice is not about a setting';
COMMENT ON COLUMN pgscale.advice.current IS 'value now, as SHOW prints it';
COMMENT ON COLUMN pgscale.advice.recommended IS 'value to set, as ALTER SYSTEM takes it; or what to do';
COMMENT ON COLUMN pgscale.advice.gain IS 'fraction of the sessions'' time that the change would save, 0 to 1, an estimate';
COMMENT ON COLUMN pgscale.advice.confidence IS 'high, medium or low';
COMMENT ON COLUMN pgscale.advice.needs IS 'requirement: reload, restart, superuser ...';
COMMENT ON COLUMN pgscale.advice.rule IS 'name of the rule';
COMMENT ON COLUMN pgscale.advice.since IS 'start of the evidence';
COMMENT ON COLUMN pgscale.advice.until IS 'end of the evidence';
COMMENT ON COLUMN pgscale.advice.reason IS 'why, in one sentence, with the source';
COMMENT ON COLUMN pgscale.advice.risk IS 'cost and risk of the change';
COMMENT ON COLUMN pgscale.advice.evidence IS
'the numbers behind the advice, NULL if unknown; fractions are of the sessions'' time, 0 to 1';
