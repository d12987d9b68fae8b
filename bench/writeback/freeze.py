"""A steady load on a slow disk of which the kernel may keep gigabytes dirty: who freezes for how long?

Each round runs the variants in an order of its own, each on a fresh server. The disk is slowed down after a checkpoint;
the load settles for as long as it is to the next one, in which pgscale only watches for 30 s, and what follows is
measured: two whole checkpoints, and the kernel's own flusher.
"""
import time

import numpy

import checkpoints
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


def stall(ended, began, seconds):
    """The longest time without any commit."""
    return float(numpy.diff(numpy.sort(numpy.concatenate(([began], ended, [began + seconds])))).max())


def low_seconds(each_second):
    """The longest run of seconds with less than a tenth of the median's transactions."""
    longest = now = 0
    for transactions in each_second:
        now = now + 1 if transactions < 0.1 * stats.median(each_second) else 0
        longest = max(longest, now)
    return longest


def one(bed, variant, times):
    """Measures one variant."""
    fill, settle, seconds = times
    log = bed.server.log
    offset = log.stat().st_size
    with bed.running(**VARIANTS[variant]) as connection:
        bed.fill(connection, fill, *LOAD)
        bed.disk.slow(write_bps=WRITE_BPS)
        with Watch(bed.disk, bed.server.data) as watch, Load(bed.server, *LOAD, log=True) as load:
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
        found["checkpoints"] = checkpoints.completed(log, offset, began)
    ended, ms = load.transactions()
    inside = (began <= ended) & (ended < began + seconds)
    ended, ms = ended[inside], ms[inside]
    each_second = numpy.histogram(ended - began, numpy.arange(seconds + 1))[0].tolist()
    samples = [[round(at - began, 3), *rest] for at, *rest in watch.samples if began <= at < began + seconds]
    found = {
        "variant": variant,
        "tps": len(ended) / seconds,
        "ms": latencies(ms),
        "stall": stall(ended, began, seconds),
        "low seconds": low_seconds(each_second),
        "each second": each_second,
        "dirty": samples,
        "peak dirty": max(dirty for _, dirty, *_ in samples),
        "peak owed": max(dirty + writeback for _, dirty, writeback, *_ in samples),
        "seconds": seconds,
        **found,
    }
    say(f"  {variant}: {found['tps']:.0f} TPS, stall {found['stall']:.2f} s, p99.9 {found['ms']['p99.9']:.0f} ms, "
        f"peak {found['peak dirty'] / 2**20:.0f} MiB, sync {longest_sync(found):.2f} s")
    return found


LEFT_OUT = counters.NOT_SHOWN
RECORDS = {"runs": ("variant",)}


def turns(quick):
    """Round and variant, by the name of the piece."""
    return {f"{number} {variant}": (number, variant) for number, variant in stats.rounds((QUICK if quick else FULL)[0], VARIANTS)}


def pieces(quick):
    return list(turns(quick))


def measure(place, quick, names):
    times = (QUICK if quick else FULL)[1:]
    with slow_bed(place, "freeze", DISK_MIB, SCALE, True, **SETTINGS) as bed:
        for name in names:
            number, variant = turns(quick)[name]
            yield name, {"bytes": bed.bytes, "round": number, **one(bed, variant, times)}


def whole(found):
    runs = [{what: figure for what, figure in each.items() if what != "bytes"} for each in found.values()]
    return {"bytes": next(iter(found.values()))["bytes"], "runs": runs}


def summarise(results):
    """What happened when, of each variant's typical run alone; of dirty data only how much there was."""
    shown = {variant: typical(select(results["runs"], variant))["round"] for variant in VARIANTS}
    runs = []
    for run in results["runs"]:
        if run["round"] == shown[run["variant"]]:
            series = {"dirty": [sample[:2] for sample in run["dirty"]]}
        else:
            series = {"dirty": None, "each second": None}
        runs.append({**run, **series})
    return {**results, "runs": runs}


def select(runs, variant):
    return [r for r in runs if r["variant"] == variant]


def typical(runs):
    """The run whose longest stall is the median one."""
    middle = stats.median([r["stall"] for r in runs])
    return min(runs, key=lambda r: abs(r["stall"] - middle))


def during(run):
    """The checkpoints that ended while it was measured, on the slow disk."""
    return [checkpoint for checkpoint in run["checkpoints"] if checkpoint["ended"] < run["seconds"]]


def longest_sync(run):
    return max((checkpoint["sync"] for checkpoint in during(run)), default=0.0)


def show(results):
    runs = results["runs"]
    described = f"{results['bytes'] / 2**20:.0f} MiB of tables and indexes, {SETTINGS['shared_buffers']} of buffers, " \
        f"{CLIENTS} clients, {RATE:,} transactions/s, {WRITE_BPS / 1e6:.0f} MB/s; median (least .. greatest) of " \
        f"rounds: {len(select(runs, OFF))}"
    return "\n\n".join([described, _show_sessions(runs), _show_disk(runs), _show_pgscale(select(runs, PGSCALE))])


def _show_sessions(runs):
    rows = []
    for variant in VARIANTS:
        mine = select(runs, variant)
        rows.append([variant,
                     spread([r["tps"] for r in mine], "{:,.0f}"),
                     spread([r["stall"] for r in mine], "{:.2f}"),
                     spread([r["low seconds"] for r in mine], "{:.0f}"),
                     *(spread([r["ms"][rank] for r in mine], "{:,.0f}") for rank in SHOWN)])
    return table(["", "TPS", "longest stall, s", "seconds below 10 % in a row", *(f"{rank}, ms" for rank in SHOWN)],
                 rows)


def _show_disk(runs):
    rows = []
    for variant in VARIANTS:
        mine = select(runs, variant)
        rows.append([variant,
                     spread([longest_sync(r) for r in mine], "{:.2f}"),
                     spread([r["peak dirty"] / 2**20 for r in mine], "{:.0f}"),
                     spread([r["peak owed"] / 2**20 for r in mine], "{:.0f}"),
                     spread([r["disk"]["bytes_written"] / 1e6 / r["seconds"] for r in mine], "{:.1f}"),
                     spread([r["disk"]["writes"] / r["seconds"] for r in mine], "{:,.0f}"),
                     percent(stats.median([r["rewritten"] for r in mine]))])
    return table(["", "longest sync phase, s", "peak of dirty data, MiB", "and under writeback, MiB",
                  "to the disk, MB/s", "writes/s", "written while still dirty"], rows)


def _show_pgscale(runs):
    """What the worker says of itself, a row a run."""
    rows = [[r["round"] + 1, *(r["pgscale"][name] for name in ("state", "reason")),
             *(f"{r['pgscale'][name]:,}" for name in ("requests", "requested_bytes", "skipped_bytes", "backed_off")),
             f"{r['pgscale']['redirty_fraction']:.2f}", f"{r['pgscale']['peak_dirty_bytes'] / 2**20:.0f}",
             f"{r['pgscale']['cpu_ms']:,.0f}"] for r in runs]
    return table(["round", "state at the end", "reason", "requests", "bytes requested", "skipped",
                  "rounds backed off", "redirty", "peak that it saw, MiB", "CPU, ms"], rows)


def published(results):
    for variant in VARIANTS:
        mine = select(results["runs"], variant)
        stalls, slow = [r["stall"] for r in mine], [r["ms"]["p99.9"] for r in mine]
        yield f"stall, {variant}", spread(stalls, "{:.1f}" if stats.median(stalls) >= 1 else "{:.2f}", " s")
        yield f"p99.9, {variant}", spread([ms / 1000 for ms in slow], "{:.1f}", " s") if stats.median(slow) >= 1000 else \
            spread(slow, "{:.0f}", " ms")


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
