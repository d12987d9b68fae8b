"""The archive's cost: throughput with it and without, in turns.

A row a minute is little work at long intervals, and far less than what a machine varies by from minute to minute. So a row is
written each second, sixty times as often as by default, and a sixtieth of the difference is that of a row a minute. rows.py checks
that: it looks at single rows.
"""
import contextlib
import time

import machine
import stats
from cluster import run
from load import Load
from report import between, percent, table

import bed

CLIENTS, SCALE = 4, 10
PERIOD_S, PAIRS, TURN_S, SETTLE_S = 1, 30, 8, 1
QUICK = {"PAIRS": 2, "TURN_S": 4}
LIMIT = 0.005


def archive(connection, database):
    run(connection, f"ALTER SYSTEM SET pgscale.archive_database = '{database}'")
    run(connection, "SELECT pg_reload_conf()")


@contextlib.contextmanager
def bed_of(place, name, period_s):
    """A server with pgbench's tables, its archive off: yields it and a connection."""
    settings = {**bed.SETTINGS, "pgscale.sampler_debug_period": f"{period_s}s", "pgscale.archive_database": None}
    with place.cluster(name, **settings) as server, contextlib.closing(server.connect()) as connection:
        bed.create(server, connection)
        server.pgbench("-i", "-s", SCALE, "-q")
        yield server, connection


def load(server):
    return Load(server, "-c", CLIENTS, "-j", 2, "-N")


def measure(place, quick):
    pairs, turn = QUICK.values() if quick else (PAIRS, TURN_S)
    found = {"pairs": [], "load": machine.load(), "written": 0}
    with bed_of(place, "cost", PERIOD_S) as (server, connection), load(server) as running:
        time.sleep(5)
        for number in range(pairs):
            tps = {}
            for on in (number % 2 == 0, number % 2 == 1):
                archive(connection, "postgres" if on else "")
                time.sleep(SETTLE_S)
                began, there = time.time(), bed.minutes(connection)
                time.sleep(turn)
                tps[on] = running.tps(began, time.time())
                found["written"] += bed.minutes(connection) - there
            found["pairs"].append(tps[True] / tps[False] - 1)
    return found


def lost(results):
    """Of the transactions, at a row a minute: the median, and the ends of its interval."""
    return [-change * PERIOD_S / 60 for change in (stats.median(results["pairs"]), *reversed(stats.interval(results["pairs"])))]


def show(results):
    low, high = stats.interval(results["pairs"])
    loss, least, most = lost(results)
    return table(["", "median", "95 % interval"], [
        [f"throughput with a row each second, to without ({len(results['pairs'])} pairs of turns, {results['written']} rows)",
         percent(stats.median(results["pairs"]), 2), f"{percent(low, 2)} .. {percent(high, 2)}"],
        ["a sixtieth of it, transactions lost at a row a minute", percent(loss, 3), f"{percent(least, 3)} .. {percent(most, 3)}"],
        ["load average before", f"{results['load']:.1f}", ""]])


def published(results):
    loss, least, most = lost(results)
    yield "loss", between(100 * loss, 100 * least, 100 * most, "{:.3f}", " %")


def required(results):
    most = lost(results)[2]
    yield "cost: transactions lost at a row a minute, upper end of the interval", percent(most, 3), f"less than {percent(LIMIT)}", most < LIMIT
