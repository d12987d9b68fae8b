"""How much slower is a session while it is watched? The same statement alone, traced, and under other tools, in turns."""
import contextlib
import os
import pathlib
import shutil
import signal
import subprocess
import textwrap
import time

import publish
import stats
from bed import QUALITY, Traced, server
from cluster import end, run
from report import spread, table

ROUNDS, QUICK_ROUNDS = 30, 2
STATEMENTS = {
    "page-cache reads": ("SELECT count(*) FROM pages", 1),
    "short statements": ("SELECT 1", 2000),
    "CPU alone": ("SELECT sum(i) FROM generate_series(1, 1000000) i", 1),
}
LIMIT = 1.02
ALONE, TRACED = "alone", "pgscale's trace"
# a trace keeps a CPU awake, which alone changes how fast others are woken
LOOP = "a busy loop"
TOOLS = {"strace -c": ("strace", "-c", "-p"), "perf trace -s": ("perf", "trace", "-s", "-p")}

# It ends soon after what it watches: the next statement begins a new round.
QUERY = f"SELECT count(*), {QUALITY} FROM pgscale.trace_waits({{{{pid}}}}, '{{}} ms', 1000000) GROUP BY {QUALITY}"

RECORDS = {"runs": ("load", "beside")}


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


@contextlib.contextmanager
def looping(cluster):
    process = cluster.place.popen(["/bin/sh", "-c", "while :; do :; done"])
    try:
        yield
    finally:
        end(process)


def besides(cluster, target, beside):
    if beside == LOOP:
        return looping(cluster)
    return watched(beside, target) if beside in TOOLS else contextlib.nullcontext()


def one(cluster, control, target, name, beside, usual):
    """Milliseconds, and a trace's coverage."""
    if beside == TRACED:
        # so long that it still runs when the statements end
        with Traced(cluster, control, target, QUERY.format(int(3 * usual) + 50)) as trace:
            ms = timed(target, name)
        return ms, trace.coverage
    with besides(cluster, target, beside):
        time.sleep(0.005)
        return timed(target, name), None


def measure(place, quick):
    runs = []
    with server(place, "cost", quick) as (cluster, control, target):
        usual = {name: max(timed(target, name), timed(target, name)) for name in STATEMENTS}
        why = absent(target)
        ways = [ALONE, LOOP, TRACED, *(tool for tool in TOOLS if tool not in why)]
        for number, (name, beside) in stats.rounds(QUICK_ROUNDS if quick else ROUNDS,
                                                   [(name, beside) for name in STATEMENTS for beside in ways]):
            ms, coverage = one(cluster, control, target, name, beside, usual[name])
            runs.append({"round": number, "load": name, "beside": beside, "ms": ms, "coverage": coverage})
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
            low, high = stats.interval(ratios(results, name, way))
            row.append(f"{stats.median(ratios(results, name, way)):.3f} ({low:.3f} .. {high:.3f})")
        rows.append(row + ["could not be tried"] * len(results["absent"])
                    + [spread([r["coverage"] for r in results["runs"] if r["load"] == name and r["beside"] == TRACED], "{:.3f}")])
    why = "".join(f"\n\n{tool} could not be tried: {reason}" for tool, reason in results["absent"].items())
    return "Time beside a tool to that alone, ratio (95 %).\n\n" + \
        table(["load", "ms alone", *ways(results), *results["absent"], "coverage of the trace"], rows) + why


def sentence(results):
    """What a reader of doc/ wants to know: the slowdown of each load, by what watches."""
    words = {LOOP: "beside a process that only loops", TRACED: "while traced"}
    each = []
    for way in ways(results):
        figures = [f"{stats.median(ratios(results, name, way)):.2f}" for name in STATEMENTS]
        each.append(f"{', '.join(figures[:-1])} and {figures[-1]} times as long {words.get(way, f'under `{way}`')}")
    return f"Measured ([bench/trace](../bench/trace/README.md#cost)): {', '.join(STATEMENTS)} took " + "; ".join(each) + "."


def published(results):
    yield "sentence", "\n" + publish.wrapped(sentence(results)) + "\n"
    for name in STATEMENTS:
        yield f"time of {name} while traced, ratio", f"{stats.median(ratios(results, name, TRACED)):.2f}"
        for tool in TOOLS:
            yield f"time of {name} under {tool}, ratio", "not tried" if tool in results["absent"] else \
                f"{stats.median(ratios(results, name, tool)):.2f}"


def required(results):
    for name in STATEMENTS:
        for to, words in {ALONE: "that alone", LOOP: "that beside a busy loop"}.items():
            ratio = stats.median(ratios(results, name, TRACED, to))
            yield f"cost: time of {name} while traced to {words}", f"{ratio:.3f}", f"at most {LIMIT}", ratio <= LIMIT
