"""One statement from start to end: what it waited for, when. It reads a table, waits for a lock, writes and commits."""
import collections
import threading

from bed import Traced, server
from cluster import run
from report import percent, table

BINS = 100
STATEMENT = """
UPDATE pages SET i = -i WHERE i % 50 = 0;
SELECT pg_advisory_lock(1);
SELECT count(*) FROM (SELECT filler FROM pages ORDER BY filler, i DESC) s;
"""
QUERY = """
WITH rows AS MATERIALIZED (
    SELECT event_type, event, duration_us / 1000 AS ms, sum(duration_us) OVER (ORDER BY seq) / 1000 AS until
      FROM pgscale.trace_query({pid}, '10 s', '10 min', 1000000))
SELECT event_type, event, until - ms, until FROM rows ORDER BY until"""


def measure(place, quick):
    with server(place, "timeline", quick, work_mem="4MB", synchronous_commit="on", fsync="on") as (cluster, control, target):
        holder = cluster.connect()
        run(holder, "SELECT pg_advisory_lock(1)")
        timer = threading.Timer(0.5, run, (holder, "SELECT pg_advisory_unlock(1)"))
        with Traced(cluster, control, target, QUERY) as trace:
            timer.start()
            run(target, STATEMENT)
        timer.join()
    total = max(row[3] for row in trace.rows)
    return {"ms": total, "waits": len(trace.rows), "coverage": trace.coverage, "events": binned(trace.rows, total / BINS)}


def binned(rows, width):
    """By event, the time in each part of the statement, in ms."""
    events = collections.defaultdict(lambda: [0.0] * BINS)
    for event_type, event, since, until in rows:
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
    return f"{results['waits']:,} stretches in {results['ms']:.0f} ms, coverage {results['coverage']:.3f}.\n\n" + \
        table(["event", "ms", "of the statement"], rows)


def required(results):
    lost = results["ms"] - sum(map(sum, results["events"].values()))
    yield "timeline: time of the statement that is in no row", f"{lost:.3f} ms", "at most 0.1 %", \
        abs(lost) <= 0.001 * results["ms"]
