"""TPC-B on a disk of few writes a second: a stock server, a tuned background writer, the sweeper.

Each round runs the three in an order of its own, each on a fresh server. The buffers are filled with dirty pages at full
speed; then the disk is slowed down, the load settles, and the time after that is measured.
"""
import time

import numpy

import counters
import stats
from bed import BGWRITER, CLIENTS, STOCK, SWEEPER, TPCB, VARIANTS, WRITE_IOPS, slow_bed
from cluster import say
from load import PERCENTILES, latencies
from report import percent, spread, table

# seconds: filling, settling, measured
QUICK = (5, 6, 6)


def one(bed, variant, dirty_mib, times, options=TPCB):
    """Measures one variant."""
    fill, settle, seconds = times
    with bed.running(**VARIANTS[variant]) as connection:
        with bed.loaded(connection, fill, dirty_mib, *options, log=True) as load:
            since = time.time()
            time.sleep(settle)
            before = counters.read(bed, connection)
            time.sleep(seconds)
            after = counters.read(bed, connection)
            density = counters.density(connection)
    ended, ms = load.transactions()
    inside = (before["at"] <= ended) & (ended < after["at"])
    found = {
        "variant": variant,
        "tps": int(inside.sum()) / (after["at"] - before["at"]),
        "ms": latencies(ms[inside]),
        "settle": before["at"] - since,
        "each second": numpy.histogram(ended - since, numpy.arange(settle + seconds + 1))[0].tolist(),
        "density": density,
        **counters.difference(before, after),
    }
    say(f"  {variant}: {found['tps']:.0f} TPS, p99.9 {found['ms']['p99.9']:.0f} ms" +
        "".join(f", {state}" for state in found.get("state", [])))
    return found


def pages_an_io(result):
    return result["disk"]["bytes_written"] / counters.PAGE / max(result["disk"]["writes"], 1)


class Contest:
    RECORDS = {"runs": ("variant",)}
    LEFT_OUT = counters.NOT_SHOWN

    def __init__(self, name, dirty_mib, rounds, times, has_limits=False):
        self.name = name
        self.dirty_mib = dirty_mib
        self.rounds = rounds
        self.times = times
        self.has_limits = has_limits

    def measure(self, place, quick):
        rounds, times = (1, QUICK) if quick else (self.rounds, self.times)
        results = []
        with slow_bed(place, self.name) as bed:
            for number, variant in stats.rounds(rounds, VARIANTS):
                results.append({"round": number, **one(bed, variant, self.dirty_mib, times)})
            return {"bytes": bed.bytes, "runs": results}

    def show(self, results):
        runs = results["runs"]
        described = f"{results['bytes'] / 2**20:.0f} MiB of tables and indexes, {CLIENTS} clients, {WRITE_IOPS} " \
            f"writes/s, {self.dirty_mib} MiB that the kernel may keep dirty; median (least .. greatest) of rounds: " \
            f"{len(select(runs, STOCK))}"
        return "\n\n".join([described, self._show_sessions(runs), self._show_disk(runs), self._show_ratios(runs),
                            show_sweeper(select(runs, SWEEPER))])

    def _show_sessions(self, runs):
        rows = []
        for variant in VARIANTS:
            mine = select(runs, variant)
            rows.append([variant, spread([r["tps"] for r in mine], "{:,.0f}")] +
                        [spread([r["ms"][rank] for r in mine], "{:,.1f}") for rank in PERCENTILES])
        return table(["", "TPS", *(f"{rank}, ms" for rank in PERCENTILES)], rows)

    def _show_disk(self, runs):
        rows = []
        for variant in VARIANTS:
            mine = select(runs, variant)
            rows.append([variant,
                         spread([r["evictions"] / r["seconds"] for r in mine], "{:,.1f}"),
                         spread([r["disk"]["writes"] / r["seconds"] for r in mine], "{:,.0f}"),
                         spread([pages_an_io(r) for r in mine], "{:.2f}"),
                         spread([r["density"] for r in mine], "{:.2f}"),
                         spread([(1 + r["density"]) / (1 - r["density"]) for r in mine], "{:.2f}")])
        return table(["", "dirty pages/s written by sessions", "device writes/s", "pages per write",
                      "density p of dirty pages", "(1+p)/(1-p)"], rows)

    def _show_ratios(self, runs):
        rows = []
        for other in (STOCK, BGWRITER):
            rows.append([f"sweeper / {other}"] + [spread(ratios(runs, other, figure), form) for figure, form in (
                (tps, "{:.2f}"), (p99, "{:.2f}"), (p999, "{:.2f}"), (evictions, "{:.3f}"), (evictions_each, "{:.4f}"))])
        return table(["", "TPS", "p99", "p99.9", "dirty pages written by sessions", "by a transaction"], rows)

    def published(self, results):
        runs = results["runs"]
        for variant in VARIANTS:
            mine = select(runs, variant)
            yield f"TPS, {variant}", spread([tps(r) for r in mine], "{:,.0f}")
            yield f"p99, {variant}", spread([p99(r) for r in mine], "{:.0f}", " ms")
            yield f"p99.9, {variant}", spread([p999(r) for r in mine], "{:.0f}", " ms")
            yield f"pages in a write, {variant}", f"{stats.median([pages_an_io(r) for r in mine]):.2f}"
        for name, what in (("the sweeper", "cpu_ms"), ("its writers", "writer_cpu_ms")):
            share = [r["sweeper"][what] / 10 / r["seconds"] for r in select(runs, SWEEPER)]
            yield f"CPU of {name}, least", f"{min(share):.0f}"
            yield f"CPU of {name}, greatest", f"{max(share):.0f} %"
        for name, figure, form in (("TPS", tps, "{:.1f}"), ("p99.9", p999, "{:.2f}"), ("evictions", evictions, "{:.2f}")):
            yield f"{name}, {SWEEPER} / {STOCK}", spread(ratios(runs, STOCK, figure), form)

    def required(self, results):
        if not self.has_limits:
            return
        for what, other, figure, form, limit, met in (
                ("TPS / stock", STOCK, tps, "{:.2f}", "at least 2.5", lambda ratio: ratio >= 2.5),
                ("TPS / tuned bgwriter", BGWRITER, tps, "{:.2f}", "at least 2.7", lambda ratio: ratio >= 2.7),
                ("p99.9 / stock", STOCK, p999, "{:.2f}", "at most 0.5", lambda ratio: ratio <= 0.5),
                ("sessions' dirty evictions / stock", STOCK, evictions, "{:.4f}", "at most 0.02",
                 lambda ratio: ratio <= 0.02)):
            found = ratios(results["runs"], other, figure)
            yield f"{self.name}: {what}", spread(found, form), limit, met(stats.median(found))


def select(runs, variant):
    return [r for r in runs if r["variant"] == variant]


def tps(result):
    return result["tps"]


def p99(result):
    return result["ms"]["p99"]


def p999(result):
    return result["ms"]["p99.9"]


def evictions(result):
    return result["evictions"] / result["seconds"]


def evictions_each(result):
    return evictions(result) / result["tps"]


def ratios(runs, other, figure):
    """Of the sweeper to another variant, in each round."""
    return [figure(mine) / figure(theirs) for mine, theirs in zip(select(runs, SWEEPER), select(runs, other))]


def show_sweeper(runs):
    """What the sweeper did, a row a run."""
    rows = []
    for r in runs:
        did, seconds = r["sweeper"], r["seconds"]
        skipped = sum(did[f"skipped_{why}"] for why in ("pinned", "locked", "wal", "changed"))
        rows.append([r["round"] + 1, "; ".join(r["state"]),
                     *(f"{n / seconds:,.0f}" for n in (did["runs"], did["written"], did["neighbours"], skipped)),
                     f"{did['written'] / max(did['runs'], 1):.1f}",
                     percent(did["starved"] / max(did["ticks"], 1)),
                     percent(did["write_ms"] / 1000 / seconds), percent(did["writeback_ms"] / 1000 / seconds),
                     percent(did["cpu_ms"] / 1000 / seconds, 2), percent(did["writer_cpu_ms"] / 1000 / seconds, 2)])
    return table(["round", "state at the end", "runs/s", "pages written/s", "of them neighbours", "skipped/s",
                  "pages a run", "ticks starved", "time in writes, all writers", "asking for writeback",
                  "CPU of the sweeper", "CPU of its writers"], rows)
