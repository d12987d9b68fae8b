"""A steady load on a slow disk of which the kernel may keep gigabytes dirty: for how long do commits freeze?

Each round of a shape runs the variants in an order of its own, each on a fresh server. The disk is slowed down after a
checkpoint; the load settles for as long as it is to the next one, in which pgscale only watches for 30 s, and what follows is
measured: two whole checkpoints, and the kernel's own flusher.
"""
import re
import time
from typing import NamedTuple

import numpy

import counters
import majors
import stats
from bed import BACKENDS, FLUSH_AFTER, PGSCALE, VARIANTS, slow_bed
from cluster import say
from load import Load, latencies
from report import percent, spread, table
from watch import Watch

DISK_MIB = 5120
CLIENTS = 12
CHECKPOINT_TIMEOUT = 32
rounds = 3
# seconds: filling, settling, measured
FULL = (5, CHECKPOINT_TIMEOUT, 2 * CHECKPOINT_TIMEOUT)
QUICK = (3, CHECKPOINT_TIMEOUT, 10)


class Shape(NamedTuple):
    rate: int               # transactions a second
    write_mb: int           # that the disk writes a second
    scale: int
    shared_buffers: str

    @property
    def name(self):
        return f"{self.rate:,}/s on {self.write_mb} MB/s"

    @property
    def load(self):
        return "-N", "-M", "prepared", "-c", CLIENTS, "-j", 2, "-R", self.rate


SHAPES = (Shape(1000, 40, 60, "128MB"), Shape(600, 30, 15, "96MB"))
SHOWN = ("p50", "p99", "p99.9", "max")
CHECKPOINT = re.compile(r"^([\d.]+) LOG: +checkpoint complete: .* sync=([\d.]+) s, total=", re.M)
LEFT_OUT = (*counters.NOT_SHOWN, "p95")
RECORDS = {"": ("name", "major", "variant")}
caption = majors.caption


def stall(ended, began, seconds):
    """The longest time without any commit."""
    return float(numpy.diff(numpy.sort(numpy.concatenate(([began], ended, [began + seconds])))).max())


def longest_sync(log, offset, began, seconds):
    """Seconds, of the checkpoints that ended meanwhile, by the part of the server's log that begins at the offset."""
    return max((float(sync) for ended, sync in CHECKPOINT.findall(log.read_bytes()[offset:].decode())
                if began <= float(ended) < began + seconds), default=0.0)


def one(bed, shape, variant, fill, settle, seconds):
    """Measures one variant."""
    offset = bed.server.log.stat().st_size
    with bed.running(**VARIANTS[variant]) as connection:
        bed.fill(connection, fill, *shape.load)
        bed.disk.slow(write_bps=shape.write_mb * 10**6)
        with Watch(bed.server.data) as watch, Load(bed.server, *shape.load, log=True) as load:
            time.sleep(settle)
            before, disk = counters.written_in_background(bed), bed.disk.counters()
            counters.reset(connection)
            began = time.time()
            time.sleep(seconds)
            found = {
                "disk": {name: n - disk[name] for name, n in bed.disk.counters().items()},
                "rewritten": counters.rewritten(*(b - a for a, b in zip(before, counters.written_in_background(bed)))),
                "pgscale": counters.writeback_stats(connection),
            }
            bed.lift()
    ended, ms = load.transactions()
    inside = (began <= ended) & (ended < began + seconds)
    samples = [rest for at, *rest in watch.samples if began <= at < began + seconds]
    found = {
        "variant": variant,
        "tps": int(inside.sum()) / seconds,
        "ms": latencies(ms[inside]),
        "stall": stall(ended[inside], began, seconds),
        "sync": longest_sync(bed.server.log, offset, began, seconds),
        "peak dirty": max(dirty for dirty, _ in samples),
        "peak owed": max(dirty + writeback for dirty, writeback in samples),
        "seconds": seconds,
        **found,
    }
    say(f"  {variant}: {found['tps']:.0f} TPS, stall {found['stall']:.2f} s, p99.9 {found['ms']['p99.9']:.0f} ms")
    return found


def pieces(quick):
    return [shape.name for shape in SHAPES]


def measure(place, quick, names):
    for shape in SHAPES:
        if shape.name in names:
            known = {"name": shape.name, **majors.described(place)}
            with slow_bed(place, f"freeze{shape.scale}", DISK_MIB, shape.scale, True, shared_buffers=shape.shared_buffers,
                          checkpoint_timeout=f"{CHECKPOINT_TIMEOUT}s") as bed:
                yield shape.name, [{**known, "round": number, **one(bed, shape, variant, *(QUICK if quick else FULL))}
                                   for number, variant in stats.rounds(1 if quick else rounds, VARIANTS)]


def whole(found):
    return [record for records in found.values() for record in records]


def merged(before, found):
    return majors.merged(before, found, "name", pieces(False))


def select(runs, variant):
    return [r for r in runs if r["variant"] == variant]


def show(results):
    rows = []
    for name, major, runs in majors.cases(results, "name"):
        for variant in VARIANTS:
            mine = select(runs, variant)
            states = dict.fromkeys(r["pgscale"]["state"] for r in mine if r["pgscale"])
            rows.append([f"{name}: {variant}", major, spread([r["tps"] for r in mine], "{:,.0f}"),
                         spread([r["stall"] for r in mine], "{:.2f}"),
                         *(spread([r["ms"][rank] for r in mine], "{:,.0f}") for rank in SHOWN),
                         spread([r["sync"] for r in mine], "{:.2f}"),
                         *(spread([r[peak] / 2**20 for r in mine], "{:.0f}") for peak in ("peak dirty", "peak owed")),
                         spread([r["disk"]["bytes_written"] / 1e6 / r["seconds"] for r in mine], "{:.1f}"),
                         percent(stats.median([r["rewritten"] for r in mine])), ", ".join(states),
                         spread([r["pgscale"]["cpu_ms"] / 10 / r["seconds"] for r in mine], "{:.1f}", " %") if states else ""])
    return table(
        ["", "PostgreSQL", "TPS", "longest stall, s", *(f"{rank}, ms" for rank in SHOWN), "longest sync phase, s",
         "peak of dirty data, MiB", "and under writeback, MiB", "to the disk, MB/s", "written while still dirty", "states at the end",
         "CPU of the worker"], rows)


def published(results):
    for name, major, runs in majors.cases(results, "name"):
        for variant in VARIANTS:
            stalls = [r["stall"] for r in select(runs, variant)]
            yield f"{name}: stall, {variant}, {major}", spread(stalls, "{:.1f}" if stats.median(stalls) >= 1 else "{:.2f}", " s")


def required(results):
    for name, major, runs in majors.cases(results, "name"):
        mine, by_default, backends = (select(runs, variant) for variant in (PGSCALE, FLUSH_AFTER, BACKENDS))
        for what, found, limit, met in (
                ("longest stall, s", [r["stall"] for r in mine], "at most 0.10", lambda stall: stall <= 0.10),
                (f"longest stall, s, beyond that of {BACKENDS}", [a["stall"] - b["stall"] for a, b in zip(mine, backends)],
                 "at most 0.05", lambda more: more <= 0.05),
                ("peak of dirty data / cap", [r["peak dirty"] / r["pgscale"]["cap"] for r in mine], "at most 1.25",
                 lambda ratio: ratio <= 1.25),
                (f"TPS / {FLUSH_AFTER}", [a["tps"] / b["tps"] for a, b in zip(mine, by_default)], "at least 0.97",
                 lambda ratio: ratio >= 0.97)):
            yield f"freeze: {name}, {major}: {what}", spread(found, "{:.3f}"), limit, met(stats.median(found))
