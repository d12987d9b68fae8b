"""What a transaction waits when the load is the same for all: a fixed rate, below what the stock server can do.

The time counts from when a transaction was due, so that a server which falls behind shows it.
"""
import counters
import stats
from bed import STOCK, TPCB, VARIANTS, slow_bed
from contest import one, select
from cluster import say
from load import PERCENTILES
from report import spread, table

SHARES = (0.6, 0.9)
DIRTY_MIB = 4
# rounds; seconds: filling, settling, measured; of the run that finds out what the stock server can do, of the others
FULL = (1, (5, 15, 15), (5, 8, 20))
QUICK = (1, (5, 5, 5), (5, 4, 5))
LEFT_OUT = (*counters.NOT_SHOWN, "each second", "settle")
RECORDS = {"": ("share", "rate", "variant")}


def measure(place, quick):
    rounds, free, times = QUICK if quick else FULL
    results = []
    with slow_bed(place, "rate") as bed:
        most = one(bed, STOCK, DIRTY_MIB, free)["tps"]
        conditions = [(share, variant) for share in SHARES for variant in VARIANTS]
        for number, (share, variant) in stats.rounds(rounds, conditions):
            rate = round(most * share)
            say(f"  {rate} TPS")
            results.append({"round": number, "share": share, "rate": rate,
                            **one(bed, variant, DIRTY_MIB, times, (*TPCB, "-R", rate))})
    return results


def show(results):
    rows = []
    for share in SHARES:
        for variant in VARIANTS:
            mine = [r for r in select(results, variant) if r["share"] == share]
            rows.append([f"{mine[0]['rate']:,} TPS, {share * 100:.0f} % of stock's most", variant,
                         spread([r["tps"] for r in mine], "{:,.0f}")] +
                        [spread([r["ms"][rank] for r in mine], "{:,.1f}") for rank in PERCENTILES])
    return table(["rate", "", "TPS done", *(f"{rank}, ms" for rank in PERCENTILES)], rows)


def required(results):
    return []
