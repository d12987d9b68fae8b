"""PoWA on the views that sql/pgscale_pg_wait_sampling--1.0.sql makes: does it take snapshots of them, and are these true?

Sessions that sleep are the truth: as many samples of PgSleep as they slept periods of the sampler. PoWA looks whether the extension
pg_wait_sampling is installed; its row in powa_functions is made by hand, as README.md shows.
"""
import contextlib
import time

import stats
from cluster import run, value
from report import percent, signed, table

SLEEPERS = 5
PERIOD_S = 0.01
SNAPSHOTS, BETWEEN_S = 6, 10
QUICK = {"SNAPSHOTS": 2, "BETWEEN_S": 3}
LIMIT = 0.05

REGISTER = """INSERT INTO powa_functions (srvid, extname, module, operation, function_name, query_source, added_manually, enabled)
SELECT 0, NULL, 'pg_wait_sampling', operation, 'powa_wait_sampling_' || operation,
       CASE operation WHEN 'snapshot' THEN 'powa_wait_sampling_src' END, true, true
  FROM unnest(ARRAY['snapshot', 'aggregate', 'unregister', 'purge', 'reset']) operation;"""
COUNTED = """
    SELECT extract(epoch FROM (record).ts), sum((record).count) FROM powa_wait_sampling_history_current
     WHERE srvid = 0 AND event_type = 'Timeout' AND event = 'PgSleep' GROUP BY 1 ORDER BY 1"""


def views(place, server):
    """The script, as its user would run it."""
    place.run(["psql", "-Xq", "-h", server.folder, "-U", "postgres", "-v", "ON_ERROR_STOP=1", "-f",
               place.folder / "sql" / "pgscale_pg_wait_sampling--1.0.sql", "postgres"])


def measure(place, quick):
    snapshots, between = QUICK.values() if quick else (SNAPSHOTS, BETWEEN_S)
    with place.cluster("powa", shared_preload_libraries="pgscale,pg_stat_statements,powa", **{"powa.frequency": "-1"}) as server, \
            contextlib.closing(server.connect()) as connection:
        server.create_pgscale(connection)
        views(place, server)
        run(connection, "CREATE EXTENSION powa CASCADE")
        found = {"version": value(connection, "SELECT extversion FROM pg_extension WHERE extname = 'powa'"),
                 "of_itself": value(connection, "SELECT count(*) FROM powa_functions WHERE module = 'pg_wait_sampling'")}
        run(connection, REGISTER)
        sleeping = [server.place.popen(["psql", "-Xq", "-h", server.folder, "-U", "postgres", "-c", "SELECT pg_sleep(600)", "postgres"])
                    for _ in range(SLEEPERS)]
        try:
            time.sleep(2)
            errors = 0
            for _ in range(snapshots + 1):
                errors += value(connection, "SELECT powa_take_snapshot()")
                time.sleep(between)
        finally:
            for process in sleeping:
                process.terminate()
                process.wait()
        counted = [(float(at), float(n)) for at, n in run(connection, COUNTED)]
        found["errors"] = errors
        found["sessions"] = [(n - before) * PERIOD_S / (at - since) for (since, before), (at, n) in zip(counted, counted[1:])]
        run(connection, "SELECT powa_wait_sampling_aggregate(0)")
        found["aggregated"] = value(connection, "SELECT count(*) FROM powa_wait_sampling_history WHERE event = 'PgSleep'")
        found["events"] = value(connection, "SELECT count(DISTINCT (event_type, event)) FROM powa_wait_sampling_history_db")
    return found


def worst(results):
    return stats.worst([sessions / SLEEPERS - 1 for sessions in results["sessions"]])


def show(results):
    return table(["PoWA", "functions that it registers by itself", "snapshots with an error", "wait events it has",
                  f"sessions asleep by its snapshots, of {SLEEPERS}"],
                 [[results["version"], results["of_itself"], results["errors"], results["events"],
                   f"{min(results['sessions']):.2f} .. {max(results['sessions']):.2f}"]]) + \
        f"\n\n```sql\n{REGISTER}\n```\n"


def published(results):
    yield "version", results["version"]
    yield "register", f"```sql\n{REGISTER}\n```\n"


def required(results):
    yield "powa: snapshots with an error", results["errors"], 0, results["errors"] == 0
    yield f"powa: error of the sessions asleep, {SLEEPERS}", signed(worst(results)), f"within {percent(LIMIT, 0)}", \
        abs(worst(results)) <= LIMIT
    yield "powa: aggregated rows of them", results["aggregated"], "at least 1", results["aggregated"] >= 1
