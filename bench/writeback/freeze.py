"""A steady load on a slow disk of which the kernel may keep gigabytes dirty: for how long do commits freeze?

Each round runs the variants in an order of its own, each on a fresh server. The disk is slowed down after a checkpoint;
the load settles for as long as it is to the next one, in which pgscale only watches for 30 s, and what follows is
measured: two whole checkpoints, and the kernel's own flusher.
"""
import re
import time

import numpy

import counters
import stats
from bed import CAP_MIB, FLUSH_AFTER, OFF, PGSCALE, VARIANTS, slow_bed
from cluster import say
from load import Load, latencies
from report import percent, spread, table
from watch import Watch

SCALE = 60
DISK_MIB = 5120
WRITE_BPS = 40_000_000
CLIENTS = 12
RATE = 1000
LOAD = ("-N", "-M", "prepared", "-c", CLIENTS, "-j", 2, "-R", RATE)
CHECKPOINT_TIMEOUT = 40
SETTINGS = {"shared_buffers": "128MB", "checkpoint_timeout": f"{CHECKPOINT_TIMEOUT}s"}
# rounds; seconds: filling, settling, measured
FULL = (3, 5, CHECKPOINT_TIMEOUT, 90)
QUICK = (1, 3, 30, 20)
SHOWN = ("p50", "p99", "p99.9", "max")
CHECKPOINT = re.compile(r"^([\d.]+) LOG: +checkpoint complete: .* sync=([\d.]+) s, total=", re.M)
LEFT_OUT = (*counters.NOT_SHOWN, "p95")
RECORDS = {"runs": ("variant",)}


def stall(ended, began, seconds):
    """The longest time without any commit."""
    return float(numpy.diff(numpy.sort(numpy.concatenate(([began], ended, [began + seconds])))).max())


def longest_sync(log, offset, began, seconds):
    """Seconds, of the checkpoints that ended meanwhile, by the part of the server's log that begins at the offset."""
    return max((float(sync) for ended, sync in CHECKPOINT.findall(log.read_bytes()[offset:].decode())
                if began <= float(ended) < began + seconds), default=0.0)


def one(bed, variant, fill, settle, seconds):
    """Measures one variant."""
    offset = bed.server.log.stat().st_size
    with bed.running(**VARIANTS[variant]) as connection:
        bed.fill(connection, fill, *LOAD)
        bed.disk.slow(write_bps=WRITE_BPS)
        with Watch(bed.server.data) as watch, Load(bed.server, *LOAD, log=True) as load:
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


def measure(place, quick):
    rounds, *times = QUICK if quick else FULL
    with slow_bed(place, "freeze", DISK_MIB, SCALE, True, **SETTINGS) as bed:
        runs = [{"round": number, **one(bed, variant, *times)} for number, variant in stats.rounds(rounds, VARIANTS)]
        return {"bytes": bed.bytes, "runs": runs}


def select(runs, variant):
    return [r for r in runs if r["variant"] == variant]


def show(results):
    runs, rows = results["runs"], []
    described = f"{results['bytes'] / 2**20:.0f} MiB of tables and indexes, {SETTINGS['shared_buffers']} of buffers, " \
        f"{CLIENTS} clients, {RATE:,} transactions/s, {WRITE_BPS / 1e6:.0f} MB/s; " \
        f"median (least .. greatest) of rounds: {len(select(runs, OFF))}"
    for variant in VARIANTS:
        mine = select(runs, variant)
        states = dict.fromkeys(r["pgscale"]["state"] for r in mine if r["pgscale"])
        rows.append([variant, spread([r["tps"] for r in mine], "{:,.0f}"), spread([r["stall"] for r in mine], "{:.2f}"),
                     *(spread([r["ms"][rank] for r in mine], "{:,.0f}") for rank in SHOWN),
                     spread([r["sync"] for r in mine], "{:.2f}"),
                     *(spread([r[peak] / 2**20 for r in mine], "{:.0f}") for peak in ("peak dirty", "peak owed")),
                     spread([r["disk"]["bytes_written"] / 1e6 / r["seconds"] for r in mine], "{:.1f}"),
                     percent(stats.median([r["rewritten"] for r in mine])), ", ".join(states),
                     spread([r["pgscale"]["cpu_ms"] / 10 / r["seconds"] for r in mine], "{:.1f}", " %") if states else ""])
    return described + "\n\n" + table(
        ["", "TPS", "longest stall, s", *(f"{rank}, ms" for rank in SHOWN), "longest sync phase, s", "peak of dirty data, MiB",
         "and under writeback, MiB", "to the disk, MB/s", "written while still dirty", "states at the end",
         "CPU of the worker"], rows)


def published(results):
    for variant in VARIANTS:
        stalls = [r["stall"] for r in select(results["runs"], variant)]
        yield f"stall, {variant}", spread(stalls, "{:.1f}" if stats.median(stalls) >= 1 else "{:.2f}", " s")


def required(results):
    runs = results["runs"]

    def ratios(figure, other):
        return [mine[figure] / theirs[figure] for mine, theirs in zip(select(runs, PGSCALE), select(runs, other))]

    peaks = [r["peak dirty"] / 2**20 / CAP_MIB for r in select(runs, PGSCALE)]
    for what, found, limit, met in (
            (f"longest stall / {OFF}", ratios("stall", OFF), "at most 0.25", lambda ratio: ratio <= 0.25),
            (f"longest stall / {FLUSH_AFTER}", ratios("stall", FLUSH_AFTER), "less than 1", lambda ratio: ratio < 1),
            ("peak of dirty data / cap", peaks, "at most 1.25", lambda ratio: ratio <= 1.25),
            (f"TPS / {OFF}", ratios("tps", OFF), "at least 0.97", lambda ratio: ratio >= 0.97)):
        yield f"freeze: {what}", spread(found, "{:.3f}"), limit, met(stats.median(found))
