"""What a sampler costs the sessions: pgbench -S -M prepared with and without it.

The server restarts before each run, so that "without" is a server that has not even loaded the library. Each round has
two runs without: the ratio of those two shows what is noise.
"""
import stats
from report import percent, table
from tools import TOOLS, Pgscale

SCALE = 10
PERIOD = 10
CONTROL = "nothing"
CONDITIONS = (CONTROL, "nothing again") + tuple(tool.name for tool in TOOLS)


def measure(place, quick):
    repetitions, seconds = (2, 2) if quick else (20, 5)
    server = place.cluster("tps", max_connections=100)
    with server:
        server.pgbench("-i", "-s", SCALE, "-q")
    tools = {tool.name: tool for tool in TOOLS}
    results = []
    for number, name in stats.rounds(repetitions, CONDITIONS):
        settings = {}
        if name in tools:
            settings = dict(tools[name].settings(PERIOD), shared_preload_libraries=tools[name].library)
        server.start(**settings)
        options = ("-n", "-S", "-M", "prepared", "-c", 4, "-j", 2)
        server.pgbench(*options, "-T", 1)
        results.append({"round": number, "name": name, "tps": server.pgbench(*options, "-T", seconds)})
        server.stop()
    return results


def ratios(results, name):
    tps = {(r["round"], r["name"]): r["tps"] for r in results}
    return [tps[number, name] / tps[number, CONTROL] for number, other in tps if other == name]


def show(results):
    rows = []
    for name in CONDITIONS:
        tps = stats.median([r["tps"] for r in results if r["name"] == name])
        change = [ratio - 1 for ratio in ratios(results, name)]
        low, high = stats.interval(change)
        rows.append([name, f"{tps:,.0f}", percent(stats.median(change), 2), f"{percent(low, 2)} .. {percent(high, 2)}"])
    return table(["sampler", "TPS, median", "change, median of pairs", "95 %"], rows)


def required(results):
    loss = 1 - stats.median(ratios(results, Pgscale.name))
    low, high = stats.interval([1 - ratio for ratio in ratios(results, Pgscale.name)])
    yield "tps: loss at 10 ms", f"{percent(loss, 2)} ({percent(low, 2)} .. {percent(high, 2)})", "1 %", loss < 0.01
