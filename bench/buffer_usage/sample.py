"""Does the sample's interval hold, and does its cost depend on the size of shared_buffers?

The truth is the full scan of the same server, which rests meanwhile. A second, smaller server tells how the time grows.
"""
import contextlib
import itertools

import numpy

import stats
from bed import Floor, buffers, filled, largest, timed
from cluster import run, say
from report import percent, table
from usage import spread

SIZES = (1024, 8192, 65536)
SAMPLES, QUICK_SAMPLES = 2000, 50
ROUNDS, QUICK_ROUNDS = 15, 2
SCALE, QUICK_SCALE = 20, 2
SCAN = "full scan"
NOMINAL, LIMIT = 0.95, 0.93

TRUTH = "SELECT usage_count, fraction FROM pgscale_internal.buffer_usage() WHERE buffers > 0"
SAMPLE = "SELECT usage_count, fraction, fraction_low, fraction_high FROM pgscale.buffer_usage_sample({})"


def coverage(connection, samples):
    """For each size of sample and usage count: how often the interval held the truth, how wide it was."""
    truth = dict(run(connection, TRUTH))
    found = []
    for size in SIZES:
        seen = {count: [] for count in truth}
        for _ in range(samples):
            for count, *estimate in run(connection, SAMPLE.format(size)):
                if count in seen:
                    seen[count].append(estimate)
        for count, estimates in seen.items():
            fraction, low, high = numpy.array(estimates).T
            found.append({"size": size, "count": count, "truth": truth[count], "samples": len(estimates),
                          "held": int(((low <= truth[count]) & (truth[count] <= high)).sum()),
                          "half": float(numpy.median((high - low) / 2)), "bias": float(fraction.mean() - truth[count])})
    moved = {count: part - truth.get(count, 0) for count, part in run(connection, TRUTH)}
    moved = max(map(abs, moved.values()))
    say(f"  the truth itself moved by at most {percent(moved, 4)} of the buffers")
    return {"intervals": found, "moved": moved}


def speed(place, servers, rounds):
    """Times of samples and full scans of both servers, in turns, with the CPU's caches cold."""
    floor = Floor(place)
    queries = {size: SAMPLE.format(size) for size in SIZES} | {SCAN: TRUTH}
    found = []
    for connection, query in itertools.product(servers.values(), queries.values()):
        timed(connection, query)
    for number, (gib, what) in stats.rounds(rounds, itertools.product(servers, queries)):
        floor.read(1024)
        found.append({"round": number, "gib": gib, "what": what, "ms": timed(servers[gib], queries[what])[0]})
    return found


RECORDS = {"speed": ("gib", "what")}


def measure(place, quick):
    small, large = (0.125, 0.5) if quick else (1, largest(beside_gib=1))
    scale = QUICK_SCALE if quick else SCALE
    with contextlib.ExitStack() as stack:
        servers = {gib: stack.enter_context(filled(place, f"sample-{gib}", gib, scale))[1] for gib in (large, small)}
        return {"gib": [small, large], "buffers": [buffers(servers[gib]) for gib in (small, large)],
                "coverage": coverage(servers[large], QUICK_SAMPLES if quick else SAMPLES),
                "speed": speed(place, servers, QUICK_ROUNDS if quick else ROUNDS)}


def one(results, size):
    """The intervals of samples of a size, by usage count."""
    found = [r for r in results["coverage"]["intervals"] if r["size"] == size]
    return sorted(found, key=lambda each: (each["count"] is None, each["count"]))


def share(interval):
    return interval["held"] / interval["samples"]


def times(results, gib, what):
    return [r["ms"] for r in results["speed"] if (r["gib"], r["what"]) == (gib, what)]


def growth(results, what):
    """Of the larger server's times to the smaller one's, in each round."""
    small, large = results["gib"]
    return [a / b for a, b in zip(times(results, large, what), times(results, small, what))]


def named(count):
    return "none" if count is None else str(count)


def show(results):
    rows = []
    for size in SIZES:
        for each in one(results, size):
            rows.append([f"{size:,}", named(each["count"]), percent(each["truth"], 2), percent(share(each)),
                         f"± {each['half'] * 100:.2f}", f"{each['bias'] * 100:+.3f}"])
    held = table(["headers", "usage count", "of all buffers", "intervals that hold it", "half width, points",
                  "mean error, points"], rows)
    small, large = results["gib"]
    rows = [[what if what == SCAN else f"sample of {what:,}", spread(times(results, small, what)),
             spread(times(results, large, what)), spread(growth(results, what))] for what in (*SIZES, SCAN)]
    return "\n\n".join([f"{results['coverage']['intervals'][0]['samples']:,} samples of each size.", held, table(
        ["", f"ms at {small:g} GiB (95 %)", f"ms at {large:g} GiB (95 %)", "ratio (95 %)"], rows)])


def published(results):
    for size in SIZES:
        yield f"sample of {size}", spread(times(results, max(results["gib"]), size), "{:.1f}", " ms")


def required(results):
    for size in SIZES:
        intervals = one(results, size)
        worst = min(intervals, key=share)
        together = sum(each["held"] for each in intervals) / sum(each["samples"] for each in intervals)
        yield f"sample: intervals of {size:,} headers that hold the truth", \
            f"{percent(together)}; least, usage count {named(worst['count'])}: {percent(share(worst))}", \
            f"each at least {percent(LIMIT, 0)}", share(worst) >= LIMIT
    small, large = results["gib"]
    for size in SIZES:
        ratio = growth(results, size)
        yield f"sample: time of {size:,} headers, {large / small:g} times the buffers", spread(ratio), "at most 2", \
            stats.median(ratio) <= 2
