"""TPC-B at a given rate on a disk of few writes a second, without the sweeper and with it.

As fast as it can, a server always meets the limit of some resource, and then its slowest transactions show how the kernel
makes its writers wait. Here transactions begin by a schedule, and a latency counts from the scheduled time. 550 per second is
a little less than the stock server's most in part main, 2,500 a little less than the sweeper's.
"""
import contest
import stats
from bed import CLIENTS, DIRTY_MIB, STOCK, SWEEPER, WRITE_IOPS, slow_bed
from load import PERCENTILES
from report import spread, table

ROUNDS = 3
CONDITIONS = ((STOCK, 550), (SWEEPER, 550), (SWEEPER, 2500))
# seconds: filling, settling, measured
FULL, QUICK = (8, 40, 30), (5, 6, 6)
LEFT_OUT = contest.LEFT_OUT
RECORDS = {"runs": ("variant", "rate")}


def measure(place, quick):
    with slow_bed(place, "rate") as bed:
        return {"runs": [{"round": number, "rate": rate, **contest.one(bed, variant, *(QUICK if quick else FULL), "-R", rate)}
                         for number, (variant, rate) in stats.rounds(1 if quick else ROUNDS, CONDITIONS)]}


def select(runs, variant, rate):
    return [r for r in runs if (r["variant"], r["rate"]) == (variant, rate)]


def show(results):
    rows = []
    for variant, rate in CONDITIONS:
        mine = select(results["runs"], variant, rate)
        rows.append([f"{variant}, {rate:,}/s", spread([r["tps"] for r in mine], "{:,.0f}"),
                     *(spread([r["ms"][rank] for r in mine], "{:,.1f}") for rank in PERCENTILES),
                     spread([r["disk"]["writes"] / r["seconds"] for r in mine], "{:,.0f}")])
    return f"{CLIENTS} clients, {WRITE_IOPS} writes/s, {DIRTY_MIB} MiB that the kernel may keep dirty; median (least .. greatest) " \
        f"of rounds: {len(select(results['runs'], *CONDITIONS[0]))}\n\n" + table(["", "TPS", *(f"{rank}, ms" for rank in PERCENTILES), "device writes/s"], rows)


def published(results):
    for variant, rate in CONDITIONS:
        yield f"p99.9, {variant}, {rate}", spread([r["ms"]["p99.9"] for r in select(results["runs"], variant, rate)], "{:,.0f}")


def required(results):
    for rank in "p99", "p99.9":
        stock, sweeper = ([r["ms"][rank] for r in select(results["runs"], variant, CONDITIONS[0][1])] for variant in (STOCK, SWEEPER))
        found = [mine / theirs for mine, theirs in zip(sweeper, stock)]
        yield f"rate: {rank} / stock", spread(found, "{:.3f}"), "at most 0.5", stats.median(found) <= 0.5
