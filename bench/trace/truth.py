"""Known loads: how many of the waits does a trace see, and how far is their time from the server's own?

The server counts what it does itself: reads and their time in EXPLAIN (BUFFERS), flushes of WAL and their time in its
statistics. It looks at its clock before and after, so that its time of a read or a flush has one reading of the clock more
than the wait has: pg_test_timing says how long that takes. A lock wait lasts from one look at the waiter's clock to another
one. A trace that was not watching all the time
misses waits, and says so: what it sees is held against its coverage, and repetitions with less than nine tenths of it are
not judged.
"""
import re
import threading
import time

import stats
from bed import QUALITY, Traced, server
from cluster import run, value
from report import percent, signed, spread, table

LOADS = ("page-cache reads", "WAL flushes", "lock waits")
REPETITIONS, QUICK_REPETITIONS = 15, 3
FLUSHES, QUICK_FLUSHES = 2000, 100
LOCK_S, QUICK_LOCK_S = 0.5, 0.1
JUDGED = 0.9

QUERY = f"SELECT event, count, total_ms, min_us, p50_us, {QUALITY} FROM pgscale.trace_summary({{pid}}, '10 min', '10 s')"
WAL = {
    False: "SELECT wal_sync, wal_sync_time FROM pg_stat_wal",
    True: "SELECT sum(fsyncs), sum(fsync_time) FROM pg_stat_io WHERE object = 'wal'",
}


def reads(cluster, control, target, quick):
    with Traced(cluster, control, target, QUERY) as trace:
        plan = value(target, "EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, FORMAT JSON) SELECT count(*) FROM pages")[0]
    every = [plan["Plan"], plan.get("Planning", {})]
    # named anew in 17
    ms = sum(each.get("I/O Read Time", 0) + each.get("Shared I/O Read Time", 0) for each in every)
    return trace, "datafileread", sum(each.get("Shared Read Blocks", 0) for each in every), ms


def flushes(cluster, control, target, quick):
    wal = WAL[cluster.place.major >= 18]
    n = QUICK_FLUSHES if quick else FLUSHES
    run(target, "SELECT pg_stat_force_next_flush()")
    time.sleep(0.1)
    before = run(control, wal)[0]
    with Traced(cluster, control, target, QUERY) as trace:
        run(target, f"CALL flushed({n})")
    run(target, "SELECT pg_stat_force_next_flush()")
    time.sleep(0.1)
    count, ms = (after - old for old, after in zip(before, run(control, wal)[0]))
    return trace, "walsync", int(count), float(ms)


def locks(cluster, control, target, quick):
    holder = cluster.connect()
    run(holder, "SELECT pg_advisory_lock(1)")
    timer = threading.Timer(QUICK_LOCK_S if quick else LOCK_S, run, (holder, "SELECT pg_advisory_unlock(1)"))
    with Traced(cluster, control, target, QUERY) as trace:
        timer.start()
        ms = value(target, "SELECT waited()")
    timer.join()
    holder.close()
    return trace, "advisory", 1, ms


MEASURE = dict(zip(LOADS, (reads, flushes, locks)))

SETUP = """
CREATE TABLE flushed (i int);
CREATE PROCEDURE flushed(n int) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1..n LOOP INSERT INTO flushed VALUES (i); COMMIT; END LOOP;
END $$;
CREATE FUNCTION waited() RETURNS double precision LANGUAGE plpgsql AS $$
DECLARE began timestamptz := clock_timestamp();
BEGIN
    PERFORM pg_advisory_xact_lock(1);
    RETURN extract(epoch FROM clock_timestamp() - began) * 1000;
END $$;
"""

RECORDS = {"": ("load",)}


def clock_ns(place):
    """How long the server takes to read its clock."""
    said = place.run(["pg_test_timing", "-d", "1"])
    return float(re.search(r"([0-9.]+) ns", said).group(1))


def measure(place, quick):
    results = []
    clock = clock_ns(place)
    with server(place, "truth", quick, synchronous_commit="on", fsync="on") as (cluster, control, target):
        run(control, SETUP)
        for number, name in stats.rounds(QUICK_REPETITIONS if quick else REPETITIONS, LOADS):
            trace, event, count, ms = MEASURE[name](cluster, control, target, quick)
            seen = [row for row in trace.rows if row[0].lower() == event]
            results.append({
                "round": number, "load": name, "whole": trace.whole, "count": count, "ms": ms, "clock_ns": clock,
                "coverage": trace.coverage or 0, "longest_gap_us": trace.quality[2] or 0,
                "seen": sum(row[1] for row in seen), "seen_ms": sum(row[2] for row in seen),
                "min_us": min((row[3] for row in seen), default=0), "p50_us": max((row[4] for row in seen), default=0)})
    return results


def judged(results, name):
    return [r for r in results if r["load"] == name and r["whole"] and r["coverage"] >= JUDGED]


def found(results, name):
    """Of the waits, what was seen, by the share of the time that was watched."""
    return [min(r["seen"] / r["count"] / r["coverage"], 1) if name != "lock waits" else r["seen"] / r["count"]
            for r in judged(results, name)]


def error(results, name, clock=False):
    """Of a mean wait, since those that were not seen are told of elsewhere; a lock wait is one, though a process may wake up in
    between. clock: with the server's own readings of its clock."""
    errors = []
    for r in judged(results, name):
        ms = r["ms"] - (0 if clock else r["count"] * r["clock_ns"] / 1e6)
        seen = 1 if name == "lock waits" else r["seen"] / r["count"]
        errors.append(r["seen_ms"] / seen / ms - 1)
    return errors


def show(results):
    rows = []
    for name in LOADS:
        every = [r for r in results if r["load"] == name]
        mine = judged(results, name)
        row = [name, f"{len(mine)} of {len(every)}", spread([r["coverage"] for r in every], "{:.3f}")]
        if mine:
            row += [f"{stats.median([r['count'] for r in mine]):,.0f}",
                    spread([100 * share for share in found(results, name)], "{:.2f}", " %"),
                    spread([100 * share for share in error(results, name, clock=True)], "{:+.2f}", " %"),
                    spread([100 * share for share in error(results, name)], "{:+.2f}", " %"),
                    spread([r["p50_us"] for r in mine], "{:.1f}")]
        rows.append(row + [""] * (8 - len(row)))
    return table(["load", "judged", "coverage", "waits", "seen of what was watched", "error of a wait", "without the clock's", "median wait, µs"],
                 rows)


def published(results):
    for name in LOADS:
        if judged(results, name):
            yield f"seen, {name}", percent(stats.median(found(results, name)))


def required(results):
    for name in LOADS:
        shares, errors = found(results, name), error(results, name)
        yield f"truth: {name} seen, of those within the time watched", \
            percent(stats.median(shares), 2) if shares else "not judged", "at least 99 %", \
            bool(shares) and stats.median(shares) >= 0.99
        yield f"truth: error of a mean wait, {name}", signed(stats.median(errors), 2) if errors else "not judged", \
            "within 3 %", bool(errors) and abs(stats.median(errors)) <= 0.03
