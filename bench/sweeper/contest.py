"""TPC-B on a disk of few writes a second: a stock server, a tuned background writer, the sweeper.

Each round runs the three in an order of its own, each on a fresh server. The buffers are filled with dirty pages at full
speed; then the disk is slowed down, the load settles, and the time after that is measured.
"""
import time

import counters
import stats
from bed import BGWRITER, CLIENTS, DIRTY_MIB, STOCK, SWEEPER, TPCB, VARIANTS, WRITE_IOPS, slow_bed
from cluster import say
from load import PERCENTILES, latencies
from report import percent, spread, table

ROUNDS = 3
# seconds: filling, settling, measured
FULL, QUICK = (8, 60, 30), (5, 6, 6)
RECORDS = {"runs": ("variant",)}
LEFT_OUT = (*counters.NOT_SHOWN, "blocks read")


def measure(place, quick):
    with slow_bed(place, "main") as bed:
        return {"bytes": bed.bytes, "runs": [{"round": number, **one(bed, variant, *(QUICK if quick else FULL))}
                                             for number, variant in stats.rounds(1 if quick else ROUNDS, VARIANTS)]}


def one(bed, variant, fill, settle, seconds, *options):
    """Measures one variant; the options are pgbench's."""
    with bed.running(**VARIANTS[variant]) as connection:
        with bed.loaded(connection, fill, *TPCB, *options, log=True) as load:
            time.sleep(settle)
            before = counters.read(bed, connection)
            time.sleep(seconds)
            after = counters.read(bed, connection)
    ended, ms = load.transactions()
    inside = (before["at"] <= ended) & (ended < after["at"])
    found = {"variant": variant, "tps": int(inside.sum()) / (after["at"] - before["at"]), "ms": latencies(ms[inside]),
             **counters.difference(before, after)}
    say(f"  {variant}: {found['tps']:.0f} TPS, p99.9 {found['ms']['p99.9']:.0f} ms")
    return found


def select(runs, variant):
    return [r for r in runs if r["variant"] == variant]


def tps(r):
    return r["tps"]


def p999(r):
    return r["ms"]["p99.9"]


def evictions(r):
    return r["evictions"] / r["seconds"]


def pages_a_write(r):
    return r["disk"]["bytes_written"] / counters.PAGE / max(r["disk"]["writes"], 1)


def ratios(runs, other, figure):
    """Of the sweeper to another variant, in each round."""
    return [figure(mine) / figure(theirs) for mine, theirs in zip(select(runs, SWEEPER), select(runs, other))]


def show(results):
    runs = results["runs"]
    described = f"{results['bytes'] / 2**20:.0f} MiB of tables and indexes, {CLIENTS} clients, {WRITE_IOPS} writes/s, " \
        f"{DIRTY_MIB} MiB that the kernel may keep dirty; median (least .. greatest) of rounds: {len(select(runs, STOCK))}"
    return "\n\n".join([described, _show_variants(runs), _show_sweeper(select(runs, SWEEPER))])


def _show_variants(runs):
    rows = []
    for variant in VARIANTS:
        mine = select(runs, variant)
        rows.append([variant, spread(list(map(tps, mine)), "{:,.0f}"),
                     *(spread([r["ms"][rank] for r in mine], "{:,.1f}") for rank in PERCENTILES),
                     spread(list(map(evictions, mine)), "{:,.1f}"),
                     spread([r["disk"]["writes"] / r["seconds"] for r in mine], "{:,.0f}"),
                     spread(list(map(pages_a_write, mine)), "{:.2f}")])
    return table(["", "TPS", *(f"{rank}, ms" for rank in PERCENTILES), "dirty pages/s written by sessions", "device writes/s",
                  "pages per write"], rows)


def _show_sweeper(runs):
    rows = []
    for r in runs:
        did, seconds = r["sweeper"], r["seconds"]
        rows.append([r["round"] + 1, "; ".join(r["state"]),
                     *(f"{did[what] / seconds:,.0f}" for what in ("runs", "written", "neighbours")),
                     percent(did["starved"] / max(did["ticks"], 1)),
                     *(percent(did[what] / 1000 / seconds, 2) for what in ("cpu_ms", "writer_cpu_ms"))])
    return table(["round", "state of the sweeper at the end", "runs/s", "pages written/s", "of them neighbours", "ticks starved",
                  "CPU of the sweeper", "CPU of its writers"], rows)


def published(results):
    for variant in VARIANTS:
        yield f"TPS, {variant}", spread(list(map(tps, select(results["runs"], variant))), "{:,.0f}")


def required(results):
    for what, other, figure, form, limit, met in (
            ("TPS / stock", STOCK, tps, "{:.2f}", "at least 2.5", lambda ratio: ratio >= 2.5),
            ("TPS / tuned bgwriter", BGWRITER, tps, "{:.2f}", "at least 2.7", lambda ratio: ratio >= 2.7),
            ("p99.9 / stock", STOCK, p999, "{:.2f}", "at most 0.5", lambda ratio: ratio <= 0.5),
            ("sessions' dirty evictions / stock", STOCK, evictions, "{:.4f}", "at most 0.02", lambda ratio: ratio <= 0.02)):
        found = ratios(results["runs"], other, figure)
        yield f"main: {what}", spread(found, form), limit, met(stats.median(found))
