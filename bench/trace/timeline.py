"""One statement from start to end: what it waited for, when. It updates a table, waits for a lock, and sorts."""
import collections
import threading

from bed import QUALITY, Traced, server
from cluster import run, value
from report import percent, table

BINS = 200
LOCK_S = 0.2
# sent as one string, which counts as one statement
PHASES = {
    "UPDATE": "UPDATE pages SET i = -i WHERE i % 50 = 0",
    "a lock": "SELECT pg_advisory_lock(1)",
    "ORDER BY": "SELECT count(filler) FROM (SELECT filler FROM pages ORDER BY i % 100, i DESC OFFSET 0) s",
}
QUERY = f"""
WITH rows AS MATERIALIZED (
    SELECT event_type, event, queryid, duration_us / 1000 AS ms, sum(duration_us) OVER (ORDER BY seq) / 1000 AS until, {QUALITY}
      FROM pgscale.trace_waits({{pid}}, '10 min', 1000000, '10 s'))
SELECT event_type, event, queryid, until - ms, until, {QUALITY} FROM rows ORDER BY until"""
PICTURE = "trace.png"


def measure(place, quick):
    with server(place, "timeline", quick, work_mem="4MB", synchronous_commit="on", fsync="on") as (cluster, control, target):
        holder = cluster.connect()
        run(holder, "SELECT pg_advisory_lock(1)")
        timer = threading.Timer(LOCK_S, run, (holder, "SELECT pg_advisory_unlock(1)"))
        labels = {value(control, f"EXPLAIN (VERBOSE, FORMAT JSON) {statement}")[0]["Query Identifier"]: label
                  for label, statement in PHASES.items()}
        with Traced(cluster, control, target, QUERY) as trace:
            timer.start()
            run(target, ";".join(PHASES.values()))
        timer.join()
    total = max(row[4] for row in trace.rows)
    return {"ms": total, "waits": len(trace.rows), "coverage": trace.coverage, "phases": phases(trace.rows, labels),
            "events": binned(trace.rows, total / BINS)}


def phases(rows, labels):
    """When each phase that was seen began, in ms."""
    began = {}
    for _, _, queryid, since, *_ in rows:
        if queryid in labels:
            began.setdefault(labels[queryid], round(since, 3))
    return began


def binned(rows, width):
    """By event, the time in each part of the statement, in ms."""
    events = collections.defaultdict(lambda: [0.0] * BINS)
    for event_type, event, _, since, until, *_ in rows:
        name = event if event_type == "CPU" else f"{event_type}: {event}"
        while until - since > 1e-9:
            here = min(int(since / width), BINS - 1)
            end = min(until, (here + 1) * width) if here < BINS - 1 else until
            events[name][here] += max(end - since, 0)
            since = max(end, since + 1e-9)
    return {name: [round(ms, 4) for ms in parts] for name, parts in events.items()}


def longest(results):
    return sorted(results["events"], key=lambda name: -sum(results["events"][name]))


def show(results):
    rows = [[name, f"{sum(results['events'][name]):.1f}", percent(sum(results["events"][name]) / results["ms"])]
            for name in longest(results)]
    return f"![the waits of one statement as they came]({PICTURE})\n\n" \
        f"{results['waits']:,} stretches in {results['ms']:.0f} ms, coverage {results['coverage']:.3f}.\n\n" + \
        table(["event", "ms", "of the statement"], rows)


def published(results):
    yield "picture", "\n**As a picture**: [bench/trace](../bench/trace/README.md#timeline) draws the waits of one" \
        f" statement in their order.\n\n![the waits of one statement as they came](../bench/trace/{PICTURE})\n"


def required(results):
    lost = results["ms"] - sum(map(sum, results["events"].values()))
    yield "timeline: time of the statement that is in no row", f"{lost:.3f} ms", "at most 0.1 %", \
        abs(lost) <= 0.001 * results["ms"]
