-- nightly_report: changes a row, and is busy elsewhere before it commits.
BEGIN;
UPDATE pgbench_branches SET bbalance = bbalance + 1 WHERE bid = 1;
\setenv PAUSE :hold
\! sleep "$PAUSE"
COMMIT;
