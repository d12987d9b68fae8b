"""The bad zone: buffers < working set < the kernel's cache, so that pages are written to the kernel over and over.

What the kernel keeps dirty there saves the disk most of the writes, and to cap it costs. The worker has to find that
out and to stand down. One server runs throughout and is switched in pairs of turns of random order, since two starts of
one and the same server differ by more than what is looked for; last comes a turn of what a cap does that does not ask.
"""
import random
import time

import counters
import stats
from bed import BACKENDS, CAPPING, NO_FLUSH_AFTER, OFF, PGSCALE, PRELOADED, slow_bed
from cluster import say
from load import Load
from report import interval, percent, spread, table
from watch import Watch

SCALE = 14
DISK_MIB = 2048
WRITE_IOPS = 300
CLIENTS = 8
LOAD = ("-N", "-M", "prepared", "-c", CLIENTS, "-j", 2)
SETTINGS = {"shared_buffers": "64MB"}
LIMIT = 0.98
TURNS = {OFF: NO_FLUSH_AFTER, PGSCALE: {**NO_FLUSH_AFTER, **CAPPING},
         BACKENDS: {**NO_FLUSH_AFTER, "backend_flush_after": "256kB"}}
# pairs; seconds: filling, until the kernel's flusher has begun, of a turn before what counts, and what counts
FULL = (4, 5, 40, 10, 30)
QUICK = (1, 3, 35, 4, 5)


def _read(bed, connection):
    return {"pages": counters.pages_written(bed, connection), "dirtied": bed.disk.dirtied(),
            "disk": bed.disk.counters(), "at": time.time()}


def turn(bed, connection, load, settle, seconds):
    time.sleep(settle)
    with Watch(bed.server.data) as watch:
        before = _read(bed, connection)
        time.sleep(seconds)
        after = _read(bed, connection)
    written = (after["pages"] - before["pages"]) * counters.PAGE
    pgscale = counters.writeback_stats(connection)
    return {"tps": load.tps(before["at"], after["at"]),
            "rewritten": counters.rewritten(written, after["dirtied"] - before["dirtied"]),
            "written": written / seconds,
            "disk": {name: (n - before["disk"][name]) / seconds for name, n in after["disk"].items()},
            "dirty": stats.median([dirty for _, dirty, _ in watch.samples]),
            "pgscale": pgscale}


LEFT_OUT = (*counters.NOT_SHOWN, "cpu_ms")
RECORDS = {"turns": ("name",)}


def measure(place, quick):
    pairs, fill, flusher, settle, seconds = QUICK if quick else FULL
    results = []
    with slow_bed(place, "zone", DISK_MIB, SCALE, False, **SETTINGS) as bed, bed.running(**PRELOADED) as connection:
        bed.set(**TURNS[OFF])
        bed.fill(connection, fill, *LOAD)
        bed.disk.slow(write_iops=WRITE_IOPS)
        with Load(bed.server, *LOAD) as load:
            time.sleep(flusher)
            turns = [(pair, name) for pair in range(pairs) for name in random.Random(pair).sample([OFF, PGSCALE], 2)]
            for pair, name in turns + [(pairs, BACKENDS)]:
                bed.set(**TURNS[name])
                found = turn(bed, connection, load, settle, seconds)
                say(f"  {name}: {found['tps']:.0f} TPS, rewritten {found['rewritten']:.2f}")
                results.append({"pair": pair, "name": name, **found})
            bed.lift()
        return {"bytes": bed.bytes, "turns": results}


def ratios(turns):
    """Of the turns with pgscale on to those with it off, in each pair."""
    found = {(r["pair"], r["name"]): r["tps"] for r in turns}
    return [found[pair, PGSCALE] / found[pair, OFF] for pair, name in found if name == PGSCALE]


def show(results):
    turns = results["turns"]
    described = f"{results['bytes'] / 2**20:.0f} MiB of tables and indexes, {SETTINGS['shared_buffers']} of buffers, " \
        f"{CLIENTS} clients, {WRITE_IOPS} writes/s; median (least .. greatest) of turns"
    rows = []
    for name in TURNS:
        mine = [r for r in turns if r["name"] == name]
        rows.append([name, spread([r["tps"] for r in mine], "{:,.0f}"),
                     percent(stats.median([r["rewritten"] for r in mine])),
                     spread([r["written"] / 1e6 for r in mine], "{:.1f}"),
                     spread([r["disk"]["bytes_written"] / 1e6 for r in mine], "{:.1f}"),
                     spread([r["dirty"] / 2**20 for r in mine], "{:.0f}"),
                     "; ".join(dict.fromkeys(r["pgscale"]["state"] for r in mine if r["pgscale"]))])
    return described + "\n\n" + table(["", "TPS", "written while still dirty", "written to the kernel, MB/s", "to the disk, MB/s",
                                      "dirty, MiB", "state"], rows)


def required(results):
    turns = results["turns"]
    found = ratios(turns)
    yield "zone: TPS, pgscale on / off", interval(found, "{:.3f}"), f"at least {LIMIT}", stats.median(found) >= LIMIT
    states = [r["pgscale"]["state"] for r in turns if r["name"] == PGSCALE and r["pgscale"]]
    yield "zone: turns in which it stood down", f"{states.count('standing down')} of {len(states)}", "all", \
        bool(states) and set(states) == {"standing down"}
