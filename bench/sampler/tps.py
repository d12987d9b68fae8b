"""What a sampler costs the sessions: pgbench -S -M prepared with and without it.

switched: one pgbench runs throughout, and the sampler beneath it is switched on and off in turns of a few seconds.
restarted: the server restarts before each run, so that "without" is a server that has not even loaded the library. Its
runs differ by far more than any sampler costs, as the two runs without in each round show.
"""
import contextlib
import random
import re
import subprocess
import time

import stats
from cluster import end
from report import between, percent, table
from tools import TOOLS, Pgscale

SCALE = 10
PERIOD = 10
CLIENTS = 4
CONTROL = "nothing"
CONDITIONS = (CONTROL, "nothing again") + tuple(tool.name for tool in TOOLS)
TURN = 3.2
# of a turn, for the sampler to have heard of it
SETTLE = 0.15


def pairs(place, tool, server, connection, number):
    """TPS with the sampler switched on and off, in so many pairs of turns, each in an order of its own."""
    turns = []
    log = place.folder / f"progress-{tool.name}"
    with open(log, "w") as progress:
        load = place.popen(["pgbench", "-h", server.folder, "-U", "postgres", "-n", "-S", "-M", "prepared", "-c", CLIENTS,
                            "-j", 2, "-T", 3600, "-P", 1, "--progress-timestamp", "postgres"],
                           stdout=subprocess.DEVNULL, stderr=progress)
        try:
            time.sleep(3)
            for pair in range(number):
                for on in random.Random(pair).sample([True, False], 2):
                    tool.set_period(server, connection, PERIOD if on else 0)
                    began = time.time() + SETTLE
                    time.sleep(TURN)
                    turns.append((pair, on, began, time.time()))
        finally:
            end(load)
    seconds = [(float(at), float(tps)) for at, tps in re.findall(r"progress: ([\d.]+) s, ([\d.]+) tps", log.read_text())]
    found = []
    for pair, on, began, ended in turns:
        inside = [tps for at, tps in seconds if began <= at - 1 and at <= ended]
        found.append({"name": tool.name, "pair": pair, "on": on, "tps": sum(inside) / len(inside)})
    return found


def switched(place, number):
    found = []
    for tool in TOOLS:
        server = place.cluster(f"switched-{tool.name}", max_connections=100, shared_preload_libraries=tool.library)
        with server, contextlib.closing(server.connect()) as connection:
            server.pgbench("-i", "-s", SCALE, "-q")
            tool.create(server, connection)
            found += pairs(place, tool, server, connection, number)
    return found


def restarted(place, repetitions, seconds):
    server = place.cluster("tps", max_connections=100)
    with server:
        server.pgbench("-i", "-s", SCALE, "-q")
    tools = {tool.name: tool for tool in TOOLS}
    found = []
    for number, name in stats.rounds(repetitions, CONDITIONS):
        settings = {}
        if name in tools:
            settings = dict(tools[name].settings(PERIOD), shared_preload_libraries=tools[name].library)
        server.start(**settings)
        options = ("-n", "-S", "-M", "prepared", "-c", CLIENTS, "-j", 2)
        server.pgbench(*options, "-T", 1)
        found.append({"round": number, "name": name, "tps": server.pgbench(*options, "-T", seconds)})
        server.stop()
    return found


RECORDS = {"switched": ("name", "on"), "restarted": ("name",)}


def measure(place, quick):
    return {"switched": switched(place, 2 if quick else 30), "restarted": restarted(place, *((2, 2) if quick else (10, 5)))}


def on_to_off(results, name):
    tps = {(r["pair"], r["on"]): r["tps"] for r in results["switched"] if r["name"] == name}
    return [tps[pair, True] / tps[pair, False] for pair, on in tps if on]


def with_to_without(results, name):
    tps = {(r["round"], r["name"]): r["tps"] for r in results["restarted"]}
    return [tps[number, name] / tps[number, CONTROL] for number, other in tps if other == name]


def change(ratios):
    low, high = stats.interval([ratio - 1 for ratio in ratios])
    return [percent(stats.median(ratios) - 1, 2), f"{percent(low, 2)} .. {percent(high, 2)}", str(len(ratios))]


def show(results):
    rows = []
    for tool in TOOLS:
        tps = stats.median([r["tps"] for r in results["switched"] if r["name"] == tool.name and not r["on"]])
        rows.append(["switched on and off", tool.name, f"{tps:,.0f}", *change(on_to_off(results, tool.name))])
    for name in CONDITIONS[1:]:
        tps = stats.median([r["tps"] for r in results["restarted"] if r["name"] == name])
        rows.append(["restarted with and without", name, f"{tps:,.0f}", *change(with_to_without(results, name))])
    return table(["", "sampler", "TPS, median", "change, median of pairs", "95 %", "pairs"], rows)


def published(results):
    for tool in TOOLS:
        change = [(ratio - 1) * 100 for ratio in on_to_off(results, tool.name)]
        yield f"change, {tool.name}", between(stats.median(change), *stats.interval(change), "{:.2f}", " %")


def required(results):
    ratios = on_to_off(results, Pgscale.name)
    loss = 1 - stats.median(ratios)
    low, high = stats.interval([1 - ratio for ratio in ratios])
    yield "tps: loss at 10 ms", f"{percent(loss, 2)} ({percent(low, 2)} .. {percent(high, 2)})", "1 %", loss < 0.01
