"""How much slower is a session while it is watched? The same statement alone, traced, and under other tools, in turns."""
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import textwrap
import threading
import time

import stats
from cluster import run, value
from load import busy_loops
from report import interval, spread, table

ROUNDS, QUICK_ROUNDS = 30, 2
STATEMENTS = {
    "page-cache reads": ("SELECT count(*) FROM pages", 1),
    "short statements": ("SELECT 1", 2000),
    "CPU only": ("SELECT sum(i) FROM generate_series(1, 1000000) i", 1),
}
LIMIT = 1.02
ALONE, TRACED = "alone", "pgscale's trace"
# a trace keeps a CPU awake, which alone changes how fast others are woken
LOOP = "a busy loop"
TOOLS = {"strace -c": ("strace", "-c", "-p"), "perf trace -s": ("perf", "trace", "-s", "-p")}

PAGES, QUICK_PAGES = 40_000, 4_000
TRACES = "SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND classid = 1953653091 AND objsubid = 3"

RECORDS = {"runs": ("load", "beside")}


@contextlib.contextmanager
def server(place, quick):
    """A server whose buffers hold next to nothing, a table that the kernel's cache holds all of, and two sessions."""
    # so that a read is a wait
    settings = {"io_combine_limit": 1} if place.major >= 17 else {}
    settings |= {"io_method": "sync"} if place.major >= 18 else {}
    with place.cluster("cost", shared_preload_libraries="pgscale", shared_buffers="1MB", compute_query_id="on", track_io_timing="on",
                       wal_writer_delay="10s", max_parallel_workers_per_gather=0, **settings) as cluster:
        control, target = cluster.connect(), cluster.connect()
        cluster.create_pgscale(control)
        pages = QUICK_PAGES if quick else PAGES
        run(control, "CREATE TABLE pages (i int, filler char(7000))")
        run(control, "ALTER TABLE pages ALTER filler SET STORAGE PLAIN")
        run(control, f"INSERT INTO pages SELECT i, 'x' FROM generate_series(1, {pages}) i")
        run(control, "VACUUM pages")
        run(control, "CHECKPOINT")
        value(target, "SELECT count(*) FROM pages")
        yield cluster, control, target


@contextlib.contextmanager
def traced(cluster, control, target, usual):
    """A trace that still runs when statements that usually take so many ms have ended; it ends soon after them."""
    with contextlib.closing(cluster.connect()) as tracer:
        thread = threading.Thread(target=run, args=(
            tracer, f"SELECT count(*) FROM pgscale.trace_waits({target.get_backend_pid()}, '{int(3 * usual) + 50} ms', 1000000)"))
        thread.start()
        while value(control, TRACES) == 0:
            time.sleep(0.001)
        try:
            yield
        finally:
            thread.join()


class Absent(Exception):
    """A tool cannot be used here."""


def attached(tool, process, pid):
    """Does the tool watch yet?"""
    if tool.startswith("strace"):
        return not pathlib.Path(f"/proc/{pid}/status").read_text().split("TracerPid:")[1].startswith("\t0\n")
    descriptors = pathlib.Path(f"/proc/{process.pid}/fd")
    with contextlib.suppress(OSError):
        return any("perf_event" in os.readlink(each) for each in descriptors.iterdir())
    return False


@contextlib.contextmanager
def watched(tool, target):
    """A tool watches the target's process; what it says of it is checked afterwards."""
    pid = target.get_backend_pid()
    command = TOOLS[tool]
    if not shutil.which(command[0]):
        raise Absent(f"{command[0]} is not installed")
    # without setpriv and as who runs this: it may need to be root
    process = subprocess.Popen([*command, str(pid)], stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, env={**os.environ, "LC_ALL": "C"})
    try:
        while process.poll() is None and not attached(tool, process, pid):
            time.sleep(0.01)
        if process.poll() is None:
            # perf opens all its events one by one
            time.sleep(0.2)
            yield
    finally:
        process.send_signal(signal.SIGINT)
        said = process.communicate()[0]
    if "calls" not in said:
        raise Absent(textwrap.shorten(said, 200) or "it saw nothing")


def absent(target):
    """Why the tools that cannot be used here cannot."""
    why = {}
    for tool in TOOLS:
        try:
            with watched(tool, target):
                for _ in range(10):
                    run(target, "SELECT 1")
        except (Absent, RuntimeError) as reason:
            why[tool] = str(reason)
    return why


def timed(target, name):
    statement, times = STATEMENTS[name]
    since = time.perf_counter()
    for _ in range(times):
        run(target, statement)
    return (time.perf_counter() - since) * 1000


def besides(cluster, control, target, beside, usual):
    if beside == TRACED:
        return traced(cluster, control, target, usual)
    if beside == LOOP:
        return busy_loops(cluster.place, 1)
    return watched(beside, target) if beside in TOOLS else contextlib.nullcontext()


def measure(place, quick):
    runs = []
    with server(place, quick) as (cluster, control, target):
        usual = {name: max(timed(target, name), timed(target, name)) for name in STATEMENTS}
        why = absent(target)
        ways = [ALONE, LOOP, TRACED, *(tool for tool in TOOLS if tool not in why)]
        for number, (name, beside) in stats.rounds(QUICK_ROUNDS if quick else ROUNDS,
                                                   [(name, beside) for name in STATEMENTS for beside in ways]):
            with besides(cluster, control, target, beside, usual[name]):
                # a trace looks a moment after it has begun
                time.sleep(0.005)
                runs.append({"round": number, "load": name, "beside": beside, "ms": timed(target, name)})
    return {"runs": runs, "absent": why}


def ways(results):
    """What was beside the statements, in order, without the time when nothing was."""
    return [way for way in (LOOP, TRACED, *TOOLS) if way not in results["absent"]]


def times(results, name, beside):
    """By round."""
    return {r["round"]: r["ms"] for r in results["runs"] if r["load"] == name and r["beside"] == beside}


def ratios(results, name, beside, to=ALONE):
    """Of the time beside something to that alone, or beside something else, in each round."""
    alone = times(results, name, to)
    return [ms / alone[number] for number, ms in sorted(times(results, name, beside).items())]


def show(results):
    rows = []
    for name in STATEMENTS:
        row = [name, spread(list(times(results, name, ALONE).values()), "{:.1f}")]
        for way in ways(results):
            row.append(interval(ratios(results, name, way), "{:.3f}"))
        rows.append(row + ["could not be tried"] * len(results["absent"]))
    why = "".join(f"\n\n{tool} could not be tried: {reason}" for tool, reason in results["absent"].items())
    return "Time of the statements while watched, divided by that without a watcher (95 %).\n\n" + \
        table(["load", "ms, not watched", *ways(results), *results["absent"]], rows) + why


def required(results):
    for name in STATEMENTS:
        for to, words in {ALONE: "not traced", LOOP: "under a busy loop"}.items():
            ratio = stats.median(ratios(results, name, TRACED, to))
            yield f"cost: time of {name} while traced to the time {words}", f"{ratio:.3f}", f"at most {LIMIT}", ratio <= LIMIT
