"""What a sampler costs: CPU time of its process, by the kernel's account, for each tick that it really did.

Two servers with equal settings hold equally many sessions; one sampler at a time is awake, for a few seconds, in turns.
In the same turns, a loop that wakes up as often but does nothing (floor.c) shows what no sampler can go below here.
"""
import contextlib
import itertools
import time

import stats
from cluster import end, schedstat
from report import interval, percent, table
from tools import TOOLS, Pgscale

PERIODS = (10, 1)
# idle sessions, clients of a pgbench that runs meanwhile
LEVELS = ((100, 0), (500, 0), (100, 4))
QUICK_LEVELS = ((100, 0),)
SPARE_CONNECTIONS = 20
FLOOR = "bare sleep"


def account(pid, seconds):
    """Share of a core that a process takes."""
    began, before = time.monotonic(), schedstat(pid)[0]
    time.sleep(seconds)
    after, ended = schedstat(pid)[0], time.monotonic()
    return (after - before) / 1e9 / (ended - began)


def floor(place, program, period, seconds):
    """Measures a loop without work."""
    process = place.popen([program, period * 1000])
    try:
        time.sleep(0.4)
        share = account(process.pid, seconds)
    finally:
        end(process)
    return {"share": share, "ticks": 1000 / period}


def awake(tool, server, connection, period, seconds):
    """Measures a sampler: share of a core, ticks a second."""
    tool.set_period(server, connection, period)
    try:
        # the peer's ticks are counted by a read that its collector serves, so that is done outside the measured time
        time.sleep(0.3)
        began, before = time.monotonic(), tool.ticks(connection)
        time.sleep(0.1)
        share = account(server.worker(tool.title), seconds)
        ended, ticks = time.monotonic(), tool.ticks(connection) - before
    finally:
        tool.set_period(server, connection, 0)
    return {"share": share, "ticks": ticks / (ended - began)}


# far below the share of any sampler that ticks, and above that of one that looks for a signal meanwhile
ASLEEP = 0.001


def asleep(server, tool, seconds):
    share = account(server.worker(tool.title), seconds)
    if share > ASLEEP:
        raise RuntimeError(f"{tool.name} is not asleep: {percent(share, 3)}")


def level(place, program, idle, clients, repetitions, seconds):
    results = []
    with contextlib.ExitStack() as stack:
        servers = {}
        for tool in TOOLS:
            server = place.cluster(f"cost-{tool.name}-{idle}-{clients}", max_connections=idle + SPARE_CONNECTIONS,
                                   shared_preload_libraries=tool.library)
            stack.enter_context(server)
            connection = stack.enter_context(contextlib.closing(server.connect()))
            tool.create(server, connection)
            if clients:
                server.pgbench("-i", "-s", 10, "-q")
            for _ in range(idle):
                stack.enter_context(contextlib.closing(server.connect()))
            tool.set_period(server, connection, 0)
            servers[tool.name] = server, connection
        time.sleep(2)
        for tool in TOOLS:
            asleep(servers[tool.name][0], tool, 0.5)
        conditions = itertools.product([*TOOLS, FLOOR], PERIODS)
        for number, (who, period) in stats.rounds(repetitions, conditions):
            if who == FLOOR:
                with servers[Pgscale.name][0].busy(clients):
                    found = floor(place, program, period, seconds)
                name = who
            else:
                with servers[who.name][0].busy(clients):
                    found = awake(who, *servers[who.name], period, seconds)
                name = who.name
            results.append({"idle": idle, "clients": clients, "round": number, "who": name, "period": period,
                            "tick_us": found["share"] / found["ticks"] * 1e6, **found})
    return results


RECORDS = {"": ("idle", "clients", "who", "period")}


def measure(place, quick):
    repetitions, seconds = (1, 1) if quick else (7, 3)
    program = place.compile(__file__.replace("cost.py", "floor.c"))
    results = []
    for idle, clients in QUICK_LEVELS if quick else LEVELS:
        results += level(place, program, idle, clients, repetitions, seconds)
    return results


def values(results, what, **wanted):
    return [r[what] for r in results if all(r[k] == v for k, v in wanted.items())]


def net(results, who, **wanted):
    """Microseconds a tick beyond those of the bare sleep in the same round."""
    bare = values(results, "tick_us", who=FLOOR, **wanted)
    return [tick - floor for tick, floor in zip(values(results, "tick_us", who=who, **wanted), bare)]


def show(results):
    rows = []
    for (idle, clients), period, tool in itertools.product(LEVELS, PERIODS, TOOLS):
        wanted = {"idle": idle, "clients": clients, "period": period, "who": tool.name}
        shares = values(results, "share", **wanted)
        if shares:
            tick = values(results, "tick_us", **wanted)
            rows.append([f"{idle} idle" + (f", {clients} busy" if clients else ""), f"{period} ms", tool.name,
                         percent(stats.median(shares), 2), f"{stats.median(values(results, 'ticks', **wanted)):.1f}",
                         interval(tick, "{:.1f}"), f"{stats.median(net(results, **wanted)):.1f}"])
    return table(["sessions", "period", "", "of a core", "ticks/s", "µs/tick (95 %)", "above a bare wake-up"], rows)


def published(results):
    for tool in TOOLS:
        shares = values(results, "share", idle=100, clients=0, period=10, who=tool.name)
        yield f"share of a core, {tool.name}, 10 ms", percent(stats.median(shares), 2)


def required(results):
    for period, limit in ((10, 0.003), (1, 0.03)):
        wanted = {"idle": 100, "clients": 0, "period": period}
        mine = stats.median(values(results, "share", who=Pgscale.name, **wanted))
        yield f"cost: {period} ms, 100 sessions", percent(mine, 2), f"{percent(limit)} of a core", mine < limit
    for period, clients in itertools.product(PERIODS, (0, 4)):
        wanted = {"idle": 100, "clients": clients, "period": period}
        if values(results, "share", **wanted):
            mine, theirs = (stats.median(values(results, "tick_us", who=tool.name, **wanted)) for tool in TOOLS)
            yield f"cost: tick, {period} ms, 100 sessions{f', {clients} busy' if clients else ''}", f"{mine:.1f} µs", \
                f"below the peer's {theirs:.1f} µs", mine < theirs
