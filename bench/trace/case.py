"""A query is slow: a trace, the cause, the cure. An import commits each row, and waits for the disk each time."""
import contextlib
import time

import psql
from bed import TRACES
from cluster import run, value
from report import percent

ROWS = 10000

SETUP = f"""
CREATE TABLE incoming (id bigint PRIMARY KEY, item text);
CREATE TABLE imported (LIKE incoming);
INSERT INTO incoming SELECT i, 'item ' || i FROM generate_series(1, {ROWS}) i;
CREATE PROCEDURE import_items(rows_per_commit int DEFAULT 1) LANGUAGE plpgsql AS $$
DECLARE
    item incoming;
    done int := 0;
BEGIN
    FOR item IN SELECT * FROM incoming LOOP
        INSERT INTO imported SELECT item.*;
        done := done + 1;
        IF done % rows_per_commit = 0 THEN COMMIT; END IF;
    END LOOP;
END $$;""".strip()
CALLS = {"before": "CALL import_items();", "after": "CALL import_items(rows_per_commit => 1000);"}
TRACE = """
SELECT event_type, event, count, round(total_ms::numeric, 1) AS total_ms, round(p50_us::numeric) AS p50_us,
       round(max_us::numeric) AS max_us, round(coverage_fraction::numeric, 2) AS coverage
  FROM pg_stat_activity, pgscale.trace_summary(pid, '1 min', statement_within => '10 s')
 WHERE application_name = 'import' ORDER BY total_ms DESC LIMIT 4;""".strip()
FLUSH = "WALSync"


def measure(place, quick):
    found = {}
    with place.cluster("case", shared_preload_libraries="pgscale", synchronous_commit="on", fsync="on") as server, \
            contextlib.closing(server.connect()) as control:
        server.create_pgscale(control)
        run(control, SETUP)
        with psql.Session(server, "import") as target, psql.Session(server, "tracer") as tracer:
            target.ask("\\timing on")
            for when, call in CALLS.items():
                run(control, "TRUNCATE imported")
                run(control, "CHECKPOINT")
                tracer.send(TRACE)
                while value(control, TRACES) == 0:
                    time.sleep(0.001)
                said = target.ask(call)
                found[when] = {"call": call, "said": said, "trace": tracer.answer()}
    return found


def milliseconds(step):
    """What psql says of the call's time."""
    return float(step["said"].split()[1])


def flushes(results):
    """What the first trace says of flushes of WAL."""
    seen = [row for row in psql.rows(results["before"]["trace"]) if row["event"].lower() == FLUSH.lower()]
    return {name: float(seen[0][name] if seen else 0) for name in ("count", "total_ms", "p50_us")}


def transcript(step):
    """The session's call, and what another session saw of it."""
    return psql.fences(step["call"], step["said"]) + "\n" + psql.fences(TRACE, step["trace"])


def faster(results):
    return milliseconds(results["before"]) / milliseconds(results["after"])


def show(results):
    return f"{ROWS:,} rows, a commit after each 1,000 instead of after each: {faster(results):.0f} times as fast."


def published(results):
    seen = flushes(results)
    yield "setup", f"```sql\n{SETUP}\n```\n"
    for when in CALLS:
        yield when, transcript(results[when])
    yield "flushes", f"{seen['count']:,.0f}"
    yield "share of flushes", percent(seen["total_ms"] / milliseconds(results["before"]), 0)
    yield "median flush", f"{seen['p50_us'] / 1000:.1f} ms"
    yield "faster", f"{faster(results):.0f}"


def required(results):
    seen = flushes(results)["count"] / ROWS
    yield "case: flushes in the trace, of the commits", percent(seen), "at least 90 %", seen >= 0.9
    share = 1 / faster(results)
    yield "case: time of the import after the cure, ratio", f"{share:.3f}", "at most 0.5", share <= 0.5
