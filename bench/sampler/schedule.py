"""How well a sampler keeps its schedule, on an idle machine and beside a pgbench that saturates it."""
import itertools
import time

import stats
from cluster import run
from report import percent, table
from tools import TOOLS, PgWaitSampling, Pgscale

IDLE_SESSIONS = 100
LOADS = ("idle", "saturated")
PERIODS = (10, 1)


def watch(tool, connection, period, seconds):
    """What share of the ticks did not take place, and how late the others were."""
    tool.reset(connection)
    began, before = time.monotonic(), tool.ticks(connection)
    time.sleep(seconds)
    if tool is Pgscale:
        ticks, missed, p50, p99, most = run(connection, """
            SELECT ticks, missed_ticks, lateness_p50_us, lateness_p99_us, lateness_max_us FROM pgscale.sampler_stats""")[0]
        return {"missed": missed / (ticks + missed), "p50": p50, "p99": p99, "max": most}
    after, ended = tool.ticks(connection), time.monotonic()
    return {"missed": 1 - (after - before) * period / 1000 / (ended - began)}


RECORDS = {"": ("load", "period", "tool")}


def measure(place, quick):
    repetitions, seconds = (1, 2) if quick else (3, 8)
    servers = {}
    for tool in TOOLS:
        servers[tool.name] = server = place.cluster(
            f"schedule-{tool.name}", max_connections=IDLE_SESSIONS + 20, shared_preload_libraries=tool.library)
        with server:
            tool.create(server, server.connect())
            server.pgbench("-i", "-s", 10, "-q")
    results = []
    for _, (load, period, tool) in stats.rounds(repetitions, itertools.product(LOADS, PERIODS, TOOLS)):
        server = servers[tool.name]
        server.start(**tool.settings(period))
        sessions = [server.connect() for _ in range(IDLE_SESSIONS)]
        with server.busy(4 if load == "saturated" else 0):
            time.sleep(1)
            result = watch(tool, sessions[0], period, seconds)
        server.stop()
        results.append({"load": load, "period": period, "tool": tool.name, **result})
    return results


def show(results):
    rows = []
    for load, period, tool in itertools.product(LOADS, PERIODS, TOOLS):
        found = [r for r in results if (r["load"], r["period"], r["tool"]) == (load, period, tool.name)]
        cells = [stats.median([r["missed"] for r in found]), stats.worst([r["missed"] for r in found])]
        row = [load, f"{period} ms", tool.name] + [percent(cell, 2) for cell in cells]
        for what in ("p50", "p99", "max"):
            row.append("unknown" if tool is PgWaitSampling else f"{stats.median([r[what] for r in found]):,.0f}")
        rows.append(row)
    return table(["machine", "period", "", "ticks not done, median", "worst", "late by p50, µs", "p99", "max"], rows)


def published(results):
    for tool in TOOLS:
        missed = [r["missed"] for r in results if (r["load"], r["period"], r["tool"]) == ("saturated", 1, tool.name)]
        yield f"missed, {tool.name}", percent(stats.median(missed), 2)


def required(results):
    return []
