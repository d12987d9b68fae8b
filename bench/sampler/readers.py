"""A full profile, and many who read it: how long a read takes, and what that costs the sampler's schedule.

The profile is filled by statements that differ in the columns they name, so that each has an identifier of its own.
Eight sessions then read the whole profile over and over; the control is eight that only burn CPU, since on a small
machine that alone makes a sampler late.
"""
import contextlib
import io
import itertools
import threading
import time

import numpy

import stats
from cluster import run, value
from report import percent, table
from tools import TOOLS, PgWaitSampling, Pgscale

ENTRIES = 5000
COLUMNS = 110
FILLERS = 16
READERS = 8
PERIOD = 10

READS = {
    Pgscale: {"function": "SELECT * FROM pgscale.wait_profile()",
              "view": "SELECT * FROM pgscale.wait_profile",
              "count(*)": "SELECT count(*) FROM pgscale.wait_profile()"},
    PgWaitSampling: {"view": "SELECT * FROM pg_wait_sampling_profile",
                     "count(*)": "SELECT count(*) FROM pg_wait_sampling_profile"},
}
BURN = "SELECT count(*) FROM generate_series(1, 20000)"
CONDITIONS = ("nobody", "readers", "CPU only")


def fill(tool, server, connection):
    """Fills the profile. The statements sleep longer than the period of the time."""
    run(connection, f"CREATE TABLE wide AS SELECT {', '.join(f'{n} AS c{n}' for n in range(COLUMNS))}")
    statements = [f"SELECT pg_sleep(0.004), c{a}, c{b} FROM wide" for a in range(COLUMNS) for b in range(COLUMNS)]
    shared = iter(statements)
    lock = threading.Lock()
    full = threading.Event()

    def work():
        session = server.connect()
        while not full.is_set():
            with lock:
                statement = next(shared, None)
            if statement is None:
                break
            run(session, statement)
        session.close()

    threads = [threading.Thread(target=work) for _ in range(FILLERS)]
    for thread in threads:
        thread.start()
    try:
        while any(thread.is_alive() for thread in threads) and entries(tool, connection) < ENTRIES:
            time.sleep(0.05)
    finally:
        full.set()
        for thread in threads:
            thread.join()


def entries(tool, connection):
    return value(connection, READS[tool]["count(*)"])


def time_read(connection, statement):
    """Milliseconds from asking to having all rows, as text."""
    with connection.cursor() as cursor:
        began = time.monotonic()
        cursor.copy_expert(f"COPY ({statement}) TO STDOUT", io.BytesIO())
        return (time.monotonic() - began) * 1000


def schedule(tool, connection):
    """Ticks done, ticks missed if they are counted."""
    if tool is Pgscale:
        return run(connection, "SELECT ticks, missed_ticks FROM pgscale.sampler_stats")[0]
    return tool.ticks(connection), 0


def missed(tool, server, connection, condition, seconds):
    """How many ticks did not take place while the readers, or the control, were at work."""
    began, before, reads = time.monotonic(), schedule(tool, connection), 0
    if condition == "nobody":
        time.sleep(seconds)
    else:
        script = server.place.folder / "script.sql"
        script.write_text((READS[tool]["view"] if condition == "readers" else BURN) + ";\n")
        server.place.give(script)
        reads = server.pgbench("-n", "-c", READERS, "-j", 2, "-T", seconds, "-f", script)
    ended, after = time.monotonic(), schedule(tool, connection)
    done, counted = (b - a for a, b in zip(before, after))
    expected = done + counted if tool is Pgscale else (ended - began) * 1000 / PERIOD
    return {"missed": expected - done, "share": 1 - done / expected, "per_s": reads}


RECORDS = {"": ("tool", "condition")}


def measure(place, quick):
    repetitions, reads, seconds = (1, 20, 3) if quick else (2, 100, 20)
    results = []
    with contextlib.ExitStack() as stack:
        servers = {}
        for tool in TOOLS:
            settings = {"pgscale.sampler_profile_size": ENTRIES} if tool is Pgscale else {}
            server = place.cluster(f"readers-{tool.name}", max_connections=100, compute_query_id="on",
                                   shared_preload_libraries=tool.library, **settings)
            stack.enter_context(server)
            connection = stack.enter_context(contextlib.closing(server.connect()))
            tool.create(server, connection)
            tool.set_period(server, connection, 1)
            fill(tool, server, connection)
            tool.set_period(server, connection, 0)
            servers[tool.name] = server, connection
        for _, (tool, condition) in stats.rounds(repetitions, itertools.product(TOOLS, CONDITIONS)):
            server, connection = servers[tool.name]
            tool.set_period(server, connection, PERIOD)
            time.sleep(0.3)
            result = {"tool": tool.name, "condition": condition, "entries": entries(tool, connection)}
            if condition == "nobody":
                result["reads"] = {what: [time_read(connection, statement) for _ in range(reads)]
                                   for what, statement in READS[tool].items()}
            result.update(missed(tool, server, connection, condition, seconds))
            results.append(result)
            tool.set_period(server, connection, 0)
    return results


def reads(results, tool, what):
    return [ms for r in results if r["tool"] == tool.name and "reads" in r for ms in r["reads"][what]]


def show(results):
    rows = []
    for tool in TOOLS:
        size = stats.median([r["entries"] for r in results if r["tool"] == tool.name])
        for what in READS[tool]:
            spent = reads(results, tool, what)
            rows.append([tool.name, what, f"{size:,.0f}", f"{stats.median(spent):.1f}", f"{numpy.quantile(spent, 0.99):.1f}"])
    times = table(["", "read", "rows", "ms, median", "ms, p99"], rows)
    rows = []
    for tool, condition in itertools.product(TOOLS, CONDITIONS):
        found = [r for r in results if r["tool"] == tool.name and r["condition"] == condition]
        rows.append([tool.name, condition, f"{sum(r['missed'] for r in found):.0f}",
                     percent(stats.median([r["share"] for r in found]), 2),
                     f"{stats.median([r['per_s'] for r in found]):.0f}" if condition == "readers" else ""])
    return times + "\n\n" + table(["", "beside", "ticks not done, all rounds", "median share", "reads/s"], rows)


def published(results):
    for tool in TOOLS:
        missed = [r["share"] for r in results if (r["tool"], r["condition"]) == (tool.name, "readers")]
        yield f"missed beside readers, {tool.name}", percent(stats.median(missed))
        yield f"a read, {tool.name}", f"{stats.median(reads(results, tool, 'view')):.1f} ms"


def required(results):
    spent = stats.median(reads(results, Pgscale, "view"))
    yield f"readers: {ENTRIES:,} entries, all rows of the view", f"{spent:.1f} ms", "20 ms", spent < 20
    gone = {condition: sum(r["missed"] for r in results if r["tool"] == Pgscale.name and r["condition"] == condition)
            for condition in CONDITIONS}
    yield (f"readers: ticks missed beside {READERS} readers ({READERS} that only burn CPU)",
           f"{gone['readers']:.0f} ({gone['CPU only']:.0f})", "0, or as CPU alone", gone["readers"] <= gone["CPU only"])
