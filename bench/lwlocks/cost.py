"""What the looks at locks add to the sampler's tick, turn by turn."""
import contextlib
import subprocess
import time

import stats
from cluster import end, run, say, value
from report import between, percent, table

import partitions
import waits

CLIENTS = 32
SECONDS, ROUNDS = 5, 10
QUICK = {"SECONDS": 1, "ROUNDS": 3}
LIMIT = 0.2


def set_lwlocks(connection, on):
    run(connection, f"ALTER SYSTEM SET pgscale.lwlocks = {on}")
    run(connection, "SELECT pg_reload_conf()")
    time.sleep(0.2)         # the sampler reads it at its next tick


def tick(connection, seconds):
    run(connection, "SELECT pgscale.reset('sampler')")
    time.sleep(seconds)
    return {"tick_us": value(connection, "SELECT tick_mean_us FROM pgscale.sampler_stats()"),
            "in_lwlocks": value(connection, "SELECT coalesce(sum(samples), 0)::int FROM pgscale.wait_profile() WHERE event_type = 'LWLock'")}


def measure(place, quick):
    seconds, rounds = QUICK.values() if quick else (SECONDS, ROUNDS)
    turns = []
    with place.cluster("cost", shared_buffers="256MB", **waits.SETTINGS) as server, \
            contextlib.closing(server.connect()) as connection:
        server.create_pgscale(connection)
        partitions.create(connection)
        query = partitions.script(place, "all partitions")
        load = server.place.popen(["pgbench", "-h", server.folder, "-U", "postgres", "-n", "-f", query, "-c", CLIENTS, "-j", 2,
                                   "-T", 3600, "postgres"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            for number, on in stats.rounds(rounds, ("on", "off")):
                say(f"round {number + 1}: {on}")
                set_lwlocks(connection, on)
                turns.append({"round": number, "lwlocks": on, **tick(connection, seconds)})
        finally:
            end(load)
    return {"version": place.version, "seconds": seconds, "turns": turns}


def ratios(results):
    """On to off, round by round."""
    by = {(turn["round"], turn["lwlocks"]): turn["tick_us"] for turn in results["turns"]}
    return [by[number, "on"] / by[number, "off"] for number in sorted({turn["round"] for turn in results["turns"]})]


def show(results):
    rows = []
    for on in ("off", "on"):
        ticks = [turn["tick_us"] for turn in results["turns"] if turn["lwlocks"] == on]
        samples = sum(turn["in_lwlocks"] for turn in results["turns"] if turn["lwlocks"] == on)
        rows.append([on, between(stats.median(ticks), min(ticks), max(ticks), "{:.1f}"), samples])
    low, high = stats.interval(ratios(results))
    return f"PostgreSQL {results['version']}: {len(results['turns']) // 2} rounds of {results['seconds']} s.\n\n" + \
        table(["pgscale.lwlocks", "tick, µs", "samples in LWLocks"], rows) + \
        f"\n\nOn to off, round by round: {stats.median(ratios(results)):.2f} ({low:.2f} .. {high:.2f})."


def required(results):
    grown = stats.median(ratios(results)) - 1
    yield "cost: the tick grows by the looks at locks", percent(grown), f"less than {percent(LIMIT, 0)}", grown < LIMIT
