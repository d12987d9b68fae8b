"""Which lock is it? A query of many partitions, and inserts of ascending keys: the page that they queue for, and a cure."""
import contextlib
import time

import stats
from cluster import run, say
from load import OF_ALL_PARTITIONS, Load, parted
from report import interval, percent, spread, table

CLIENTS = 16
SECONDS, ROUNDS = 8, 4
QUICK = (2, 1)
SETTINGS = {"shared_preload_libraries": "pgscale", "max_connections": 100, "max_wal_size": "16GB", "shared_buffers": "256MB"}
PARTITIONS = 100

# each session of the second takes its keys a thousand at a time, so that it has a page of its own
PLAIN, SPREAD = "orders", "orders_cached"
SETUP = parted(PARTITIONS) + "ANALYZE parted;" + "".join(f"""
CREATE SEQUENCE {name}_ids CACHE {cached};
CREATE TABLE {name} (id bigint PRIMARY KEY DEFAULT nextval('{name}_ids'), item text);
""" for name, cached in ((PLAIN, 1), (SPREAD, 1000)))
INSERT = "INSERT INTO {} (item) SELECT 'x' FROM generate_series(1, 200);\n"

# of all the time of sessions that worked
WAITING = """
    SELECT coalesce(sum(wait_ms) FILTER (WHERE event_type = 'LWLock') / sum(wait_ms), 0)
      FROM pgscale_internal.wait_profile() WHERE backend_type = 'client backend' AND NOT idle AND event_type <> 'Client'"""
TRANCHE = "SELECT tranche FROM pgscale.lwlock_tranches LIMIT 1"
HOT = "SELECT relation, page_kind, all_waiters FROM pgscale.hot_buffers ORDER BY all_waiters DESC LIMIT 1"

RECORDS = {"turns": ("table",)}


def load(script):
    return "-n", "-M", "prepared", "-f", script, "-c", CLIENTS, "-j", 2


def hot_page(server, connection, script, seconds):
    """The page with the longest queue in so many seconds, and its kind; a queue lasts for moments."""
    found = []
    with Load(server, *load(script)):
        # the table is not so small then that all rows go to one page of it
        time.sleep(1)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            found += run(connection, HOT)
            time.sleep(0.01)
    return list(max(found, key=lambda row: row[2])[:2]) if found else []


def turn(server, connection, script, seconds):
    run(connection, "SELECT pgscale.reset('sampler')")
    run(connection, "SELECT pgscale.reset('lwlocks')")
    return {"tps": server.pgbench("-T", seconds, *load(script)), "lwlocks": run(connection, WAITING)[0][0]}


def measure(place, quick):
    seconds, rounds = QUICK if quick else (SECONDS, ROUNDS)
    with place.cluster("case", **SETTINGS) as server, contextlib.closing(server.connect()) as connection:
        server.create_pgscale(connection)
        run(connection, SETUP)
        say("all partitions")
        turn(server, connection, place.script("all.sql", OF_ALL_PARTITIONS), seconds)
        tranche = run(connection, TRANCHE)
        scripts = {name: place.script(f"{name}.sql", INSERT.format(name)) for name in (PLAIN, SPREAD)}
        say("inserts")
        hot = hot_page(server, connection, scripts[PLAIN], seconds)
        turns = [{"round": number, "table": name, **turn(server, connection, scripts[name], seconds)}
                 for number, name in stats.rounds(rounds, scripts)]
    return {"major": place.major, "tranche": tranche[0][0] if tranche else None, "hot": hot, "turns": turns}


def of(results, name, what):
    return [turn[what] for turn in results["turns"] if turn["table"] == name]


def show(results):
    rows = []
    for name, words in {PLAIN: "CACHE 1", SPREAD: "CACHE 1000"}.items():
        tps, lwlocks = of(results, name, "tps"), of(results, name, "lwlocks")
        rows.append([words, spread(tps, "{:,.0f}"), percent(stats.median(lwlocks))])
    faster = [after / before for before, after in zip(of(results, PLAIN, "tps"), of(results, SPREAD, "tps"))]
    return table(["sequence", "inserts of 200 rows a second", "time in LWLocks"], rows) + \
        f"\n\nThe second to the first, round by round: {interval(faster)}."


def required(results):
    page = results["hot"] == [f"{PLAIN}_pkey", "leaf"]
    yield "case: the page that inserts of ascending keys queue for", f"{PLAIN}_pkey, leaf" if page else "not found", \
        f"{PLAIN}_pkey, leaf", page
    # from 18 on, a session has room for more such locks
    if results["major"] < 18:
        yield f"case: the tranche that a query of {PARTITIONS} partitions waits for", str(results["tranche"]), "LockManager", \
            results["tranche"] == "LockManager"
