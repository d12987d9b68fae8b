"""What the sweeper decides, in a model: its own source files beside a cache, sessions and a disk that are simulated.

See model/model.c. No server runs, so the machine does not matter.
"""
import stats
import sweeper_model
from report import spread, table

LOADS = (("uniform", 1.7), ("uniform", 3.2), ("pareto", 3.2), ("pareto", 8), ("zipf1.05", 3.2), ("zipf.9", 3.2))
# writers, less than 0: that the disk serves first; the set has room for a part of the buffers, one in
VARIANTS = {
    "stock": (0, 4),
    "set of N/16": (-16, 16), "N/8": (-16, 8), "N/4": (-16, 4), "N/2": (-16, 2),
    "N/4, 4 writers and 8 sessions alike": (4, 4), "N/4, 16 writers and 8 sessions alike": (16, 4),
    "window, N/4": (-16, 4, "window"), "window, N/4, 16 writers and 8 sessions alike": (16, 4, "window"),
}
RECORDS = {"": ("load", "times", "variant")}


def measure(place, quick):
    return sweeper_model.measured(place, quick, LOADS, VARIANTS)


def of(results, load, times, variant, figure):
    return [r[figure] for r in results if (r["load"], r["times"], r["variant"]) == (load, times, variant)]


def show(results):
    rows = [[f"{load}, data {times}x", *(
        f"{stats.median(of(results, load, times, variant, 'transactions a write')):.2f} "
        f"({stats.median(of(results, load, times, variant, 'pages a transaction')):.2f})" for variant in VARIANTS)]
        for load, times in LOADS]
    return "Transactions a disk write (pages written a transaction), median of seeds.\n\n" + table(["", *VARIANTS], rows)


def published(results):
    for load, times in LOADS:
        stock = of(results, load, times, "stock", "transactions a write")
        mine = of(results, load, times, "N/4", "transactions a write")
        yield f"{load}, {times}x", spread([a / b for a, b in zip(mine, stock)], "{:.1f}")


def required(results):
    return []
