"""Which lock is it? A query of many partitions, and inserts of ascending keys: the page that they queue for, and a cure."""
import contextlib
import time

import psql
import stats
from cluster import run, say
from load import Load
from report import between, percent, table

import partitions
import waits

CLIENTS = 16
SECONDS, ROUNDS = 8, 4
QUICK = {"SECONDS": 2, "ROUNDS": 1}

# each session of the second takes its keys a thousand at a time, so that it has a page of its own
PLAIN, SPREAD = "orders", "orders_cached"
SETUP = "".join(f"""
CREATE SEQUENCE {name}_ids CACHE {cached};
CREATE TABLE {name} (id bigint PRIMARY KEY DEFAULT nextval('{name}_ids'), item text);
""" for name, cached in ((PLAIN, 1), (SPREAD, 1000)))
INSERT = "INSERT INTO {} (item) SELECT 'x' FROM generate_series(1, 200);\n"

# what doc/lwlocks.md asks
ASKED = {
    "tranches": "SELECT tranche, locks, ticks, wait_ms, mean_waiters, busiest_lock, skew, reason FROM pgscale.lwlock_tranches;",
    "profile": "SELECT tranche, lock, ticks, waited, held_exclusive, held_shared, wait_ms, held_fraction"
               " FROM pgscale.lwlock_profile LIMIT 3;",
    "hot": "SELECT relation, fork, block, page_kind, held, holders, all_waiters FROM pgscale.hot_buffers;",
}

RECORDS = {"turns": ("table",)}


def load(script):
    return "-n", "-M", "prepared", "-f", script, "-c", CLIENTS, "-j", 2


def hot_page(server, script, seconds):
    """The answer with the longest queue of those in so many seconds; a queue lasts for moments."""
    answers = []
    with Load(server, *load(script)), psql.Session(server, "psql") as asker:
        # the table is not as small then as that all rows go to one page of it
        time.sleep(1)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            answers.append(asker.ask(ASKED["hot"]))
            time.sleep(0.01)
    return max(answers, key=lambda answer: max((int(row["all_waiters"]) for row in psql.rows(answer)), default=0))


def measure(place, quick):
    seconds, rounds = QUICK.values() if quick else (SECONDS, ROUNDS)
    found = {"major": place.major, "turns": []}
    with place.cluster("case", shared_buffers="256MB", **waits.SETTINGS) as server, \
            contextlib.closing(server.connect()) as connection:
        server.create_pgscale(connection)
        partitions.create(connection)
        run(connection, SETUP)
        say("all partitions")
        waits.measure(server, connection, seconds, *load(partitions.script(place, "all partitions")))
        with psql.Session(server, "psql") as asker:
            found |= {name: asker.ask(ASKED[name]) for name in ("tranches", "profile")}
        scripts = {name: place.script(f"{name}.sql", INSERT.format(name)) for name in (PLAIN, SPREAD)}
        say("inserts")
        found["hot"] = hot_page(server, scripts[PLAIN], seconds)
        for number, name in stats.rounds(rounds, scripts):
            seen = waits.measure(server, connection, seconds, *load(scripts[name]))
            found["turns"].append({"round": number, "table": name, "tps": seen["tps"], "lwlocks": seen["lwlocks"]})
    return found


def of(results, name, what):
    return [turn[what] for turn in results["turns"] if turn["table"] == name]


def faster(results):
    """By the cure, round by round."""
    return [after / before for before, after in zip(of(results, PLAIN, "tps"), of(results, SPREAD, "tps"))]


def show(results):
    rows = []
    for name, words in {PLAIN: "CACHE 1", SPREAD: "CACHE 1000"}.items():
        tps, lwlocks = of(results, name, "tps"), of(results, name, "lwlocks")
        rows.append([words, between(stats.median(tps), min(tps), max(tps), "{:,.0f}"), percent(stats.median(lwlocks))])
    low, high = stats.interval(faster(results))
    return f"The inserts, {CLIENTS} clients:\n\n" + \
        table(["sequence", "inserts of 200 rows a second", "time in LWLocks"], rows) + \
        f"\n\nThe second to the first, round by round: {stats.median(faster(results)):.2f} ({low:.2f} .. {high:.2f})."


def published(results):
    for name, statement in ASKED.items():
        yield name, psql.fences(statement, results[name])
    plain, spread = (percent(stats.median(of(results, name, "lwlocks")), 0) for name in (PLAIN, SPREAD))
    yield "sentence", f"\nThe inserts of ascending keys waited for LWLocks for {plain} of their time. With CACHE 1000 on the sequence" \
        f" it was {spread},\nand throughput was {stats.median(faster(results)):.1f} times as high.\n"


def required(results):
    page = any(row["relation"] == f"{PLAIN}_pkey" and row["page_kind"] == "leaf" for row in psql.rows(results["hot"]))
    yield "case: the page that inserts of ascending keys queue for", f"{PLAIN}_pkey, leaf" if page else "not found", \
        f"{PLAIN}_pkey, leaf", page
    if results["major"] >= 18:
        return
    manager = any(row["tranche"] == "LockManager" for row in psql.rows(results["tranches"])[:1])
    yield "case: the tranche that a query of 100 partitions waits for", "LockManager" if manager else "another one", \
        "LockManager", manager
