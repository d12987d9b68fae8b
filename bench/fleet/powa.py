"""PoWA on the views that sql/pgscale_pg_wait_sampling--1.0.sql makes: does it take snapshots of them, and are these true?

Sessions that sleep are the truth: as many samples of PgSleep as they slept periods of the sampler. On its own server PoWA looks whether
the extension pg_wait_sampling is installed, so its functions are registered by hand. For a server that its collector reads from
another one it does not look.
"""
import contextlib
import json
import time

import psycopg2

import stats
from cluster import end, run, value
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
REMOTE = """
    SELECT powa_register_server(hostname => %s, username => 'postgres', dbname => 'postgres', frequency => 5,
                                extensions => '{pg_wait_sampling}')"""
# the collector reads the first file of several places, and Debian's is in /etc
COLLECTOR = """
import runpy, sys, powa_collector.options
powa_collector.options.CONF_LOCATIONS[:] = ["./powa-collector.conf"]
sys.argv[1:] = []
runpy.run_path("/usr/bin/powa-collector", run_name="__main__")
"""
COUNTED = """
    SELECT extract(epoch FROM (record).ts), sum((record).count) FROM powa_wait_sampling_history_current
     WHERE srvid = %s AND event_type = 'Timeout' AND event = 'PgSleep' GROUP BY 1 ORDER BY 1"""


def views(place, server):
    """The script, as its user would run it."""
    place.run(["psql", "-Xq", "-h", server.folder, "-U", "postgres", "-v", "ON_ERROR_STOP=1", "-f",
               place.folder / "sql" / "pgscale_pg_wait_sampling--1.0.sql", "postgres"])


@contextlib.contextmanager
def sleepers(server):
    sleeping = [server.place.popen(["psql", "-Xq", "-h", server.folder, "-U", "postgres", "-c", "SELECT pg_sleep(600)", "postgres"])
                for _ in range(SLEEPERS)]
    try:
        time.sleep(2)
        yield
    finally:
        for process in sleeping:
            end(process)


def asleep(connection, srvid):
    """Sessions that slept between each two snapshots, by PoWA's history."""
    counted = [(float(at), float(n)) for at, n in run(connection, COUNTED, srvid)]
    return [(n - before) * PERIOD_S / (at - since) for (since, before), (at, n) in zip(counted, counted[1:])]


def collected(place, server):
    """What three snapshots by the collector find of this server, with its repository in another database."""
    with contextlib.closing(psycopg2.connect(host=str(server.folder), user="postgres", dbname="repository")) as repository:
        repository.autocommit = True
        run(repository, "CREATE EXTENSION powa CASCADE")
        run(repository, REMOTE, str(server.folder))
        place.script("powa-collector.conf", json.dumps(
            {"repository": {"dsn": f"host={server.folder} user=postgres dbname=repository"}, "debug": False}))
        log = place.folder / "collector.log"
        with open(log, "wb") as out:
            collector = place.popen(["/usr/bin/env", "-u", "PYTHONPATH", "/usr/bin/python3", "-c", COLLECTOR], stdout=out, stderr=out)
        try:
            until = time.monotonic() + 90
            while len(found := asleep(repository, 1)) < 2:
                if time.monotonic() > until:
                    raise RuntimeError(f"the collector takes no snapshots:\n{log.read_text()}")
                time.sleep(0.5)
            return found
        finally:
            end(collector)


def measure(place, quick):
    snapshots, between = QUICK.values() if quick else (SNAPSHOTS, BETWEEN_S)
    with place.cluster("powa", shared_preload_libraries="pgscale,pg_stat_statements,powa", **{"powa.frequency": "-1"}) as server, \
            contextlib.closing(server.connect()) as connection:
        server.create_pgscale(connection)
        views(place, server)
        run(connection, "CREATE EXTENSION powa CASCADE")
        run(connection, "CREATE DATABASE repository")
        found = {"version": value(connection, "SELECT extversion FROM pg_extension WHERE extname = 'powa'"),
                 "of_itself": value(connection, "SELECT count(*) FROM powa_functions WHERE module = 'pg_wait_sampling'"), "errors": 0}
        run(connection, REGISTER)
        with sleepers(server):
            for _ in range(snapshots + 1):
                found["errors"] += value(connection, "SELECT powa_take_snapshot()")
                time.sleep(between)
            found["collected"] = collected(place, server)
        found["sessions"] = asleep(connection, 0)
        run(connection, "SELECT powa_wait_sampling_aggregate(0)")
        found["aggregated"] = value(connection, "SELECT count(*) FROM powa_wait_sampling_history WHERE event = 'PgSleep'")
        found["events"] = value(connection, "SELECT count(DISTINCT (event_type, event)) FROM powa_wait_sampling_history_db")
    return found


def worst(sessions):
    return stats.worst([each / SLEEPERS - 1 for each in sessions])


def show(results):
    return table(["PoWA", "functions that it registers by itself", "snapshots with an error", "wait events it has",
                  f"sessions asleep by its snapshots, of {SLEEPERS}", "by its collector's"],
                 [[results["version"], results["of_itself"], results["errors"], results["events"],
                   *(f"{min(sessions):.2f} .. {max(sessions):.2f}" for sessions in (results["sessions"], results["collected"]))]]) + \
        f"\n\n```sql\n{REGISTER}\n```\n"


def published(results):
    yield "version", results["version"]
    yield "register", f"```sql\n{REGISTER}\n```\n"


def required(results):
    yield "powa: snapshots with an error", results["errors"], 0, results["errors"] == 0
    for sessions, words in (("sessions", "by its snapshots"), ("collected", "by its collector's")):
        error = worst(results[sessions])
        yield f"powa: error of the sessions asleep, {words}", signed(error), f"within {percent(LIMIT, 0)}", abs(error) <= LIMIT
    yield "powa: aggregated rows of them", results["aggregated"], "at least 1", results["aggregated"] >= 1
