"""Buffers for other pages, as many as sessions can take: from the server's own clock sweep, the freelist, and the window.

All pages are clean and in the kernel's cache, so that little but the taking of buffers costs time. One server runs
throughout; in each round a pgbench of each size runs, and the sweeper is off or in a mode in turns of random order.
"""
import random
import time

import counters
import stats
from bed import FREELIST, PRELOADED, STOCK, TURNS, WINDOW, Bed, modes
from cluster import run, say, value
from load import Load
from report import percent, spread, table

CLIENTS = (1, 2, 4, 8, 16)
# rounds; seconds: of a turn before what counts, and what counts
FULL = (3, 2, 3)
QUICK = (1, 1, 1)
# a join by TID: a page each, nearly never the same again
SETTINGS = {"shared_buffers": "128MB", "enable_seqscan": "off", "enable_hashjoin": "off", "enable_mergejoin": "off",
            "max_parallel_workers_per_gather": 0}
TAKE = """SELECT count(a.aid) FROM (SELECT format('(%s,1)', floor(random() * {pages}))::tid AS tid FROM generate_series(1, 200)) r
    JOIN pgbench_accounts a ON a.ctid = r.tid;
"""

RECORDS = {"": ("clients", "mode")}
LEFT_OUT = counters.NOT_SHOWN


def counts(bed, connection):
    ticks, allocations = run(connection, "SELECT ticks, allocations FROM pgscale_internal.clock_sweep()")[0]
    return {"ticks": ticks, "allocations": allocations, **counters.read(bed, connection)}


def turn(bed, connection, mode, settle, seconds):
    bed.set(**TURNS[mode], **({"pgscale.sweeper_adaptive": "off"} if mode != STOCK else {}))
    time.sleep(settle)
    before = counts(bed, connection)
    time.sleep(seconds)
    after = counts(bed, connection)
    return {**{name: after[name] - before[name] for name in ("ticks", "allocations")}, **counters.difference(before, after)}


def measure(place, quick):
    rounds, settle, seconds = QUICK if quick else FULL
    found = []
    bed = Bed(place, "allocations")
    with bed.running(**PRELOADED, **SETTINGS) as connection:
        run(connection, "SELECT pg_prewarm('pgbench_accounts')")
        script = bed.server.folder / "take.sql"
        script.write_text(TAKE.format(pages=value(connection, "SELECT pg_relation_size('pgbench_accounts') / 8192")))
        for number, clients in stats.rounds(rounds, CLIENTS):
            with Load(bed.server, "-M", "prepared", "-f", script, "-c", clients, "-j", min(clients, 2)):
                turns = (STOCK, *modes(place.major))
                for mode in random.Random(number * 100 + clients).sample(turns, len(turns)):
                    found.append({"round": number, "clients": clients, "mode": mode, **turn(bed, connection, mode, settle, seconds)})
                    say(f"  {clients} clients, {mode}: {a_second(found[-1]):,.0f} allocations/s, {found[-1]['ticks'] / max(found[-1]['allocations'], 1):.2f} ticks each")
    return found


def a_second(r):
    return r["allocations"] / r["seconds"]


def to_stock(results, clients, mode):
    found = {(r["round"], r["mode"]): a_second(r) for r in results if r["clients"] == clients}
    return [found[number, mode] / found[number, STOCK] for number, each in found if each == mode]


def show(results):
    rows = []
    for clients in CLIENTS:
        for mode in dict.fromkeys(r["mode"] for r in sorted(results, key=lambda r: (STOCK, FREELIST, WINDOW).index(r["mode"]))):
            mine = [r for r in results if (r["clients"], r["mode"]) == (clients, mode)]
            on = mode != STOCK
            rows.append([clients, mode, spread([a_second(r) for r in mine], "{:,.0f}"),
                         spread(to_stock(results, clients, mode), "{:.2f}") if on else "",
                         spread([r["ticks"] / max(r["allocations"], 1) for r in mine], "{:.2f}"),
                         percent(stats.median([r["sweeper"]["starved"] / max(r["sweeper"]["ticks"], 1) for r in mine])) if on else "",
                         percent(stats.median([r["sweeper"]["cpu_ms"] / 1000 / r["seconds"] for r in mine])) if on else ""])
    return table(["clients", "", "allocations/s", "to stock", "steps of the server's hand for each", "ticks starved", "CPU of the sweeper"], rows)


def published(results):
    for mode in (FREELIST, WINDOW):
        for clients in CLIENTS:
            if found := to_stock(results, clients, mode):
                yield f"{clients} clients: allocations, {mode} / stock", spread(found, "{:.2f}")


def required(results):
    return []
