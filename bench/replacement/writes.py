"""What the policies cost the writes, and the writes cost them: bench/sweeper's model, with each policy."""
import stats
import sweeper_model
from report import table

LOADS = (("uniform", 1.7), ("uniform", 3.2), ("pareto", 3.2), ("pareto", 8), ("zipf1.05", 3.2), ("zipf.9", 3.2), ("tpcb", 3.2))
STOCK = "stock"
POLICIES = ("clock", "history", "adaptive")
NAMES = {STOCK: "stock", **{policy: f"policy {policy}" for policy in POLICIES}}
# that the disk serves first; the set has room for one buffer in so many
WRITERS, PART = -16, 4
VARIANTS = {STOCK: (0, PART), **{policy: (WRITERS, PART, "freelist", policy) for policy in POLICIES}}
RECORDS = {"": ("load", "times", "variant")}


def measure(place, quick):
    return sweeper_model.measured(place, quick, LOADS, VARIANTS)


def median(results, load, times, variant, figure):
    return stats.median([figure(r) for r in results if (r["load"], r["times"], r["variant"]) == (load, times, variant)])


FIGURES = {
    "reads": lambda r: r["misses"],
    "transactions a write": lambda r: r["transactions a write"],
    "reads and writes": lambda r: r["misses"] + 1 / r["transactions a write"],
}


def show(results):
    rows = [[f"{load}, data {times}x", *(f"{median(results, load, times, variant, FIGURES[figure]):.2f}"
                                        for figure in FIGURES for variant in NAMES)] for load, times in LOADS]
    return "Of a transaction; median of seeds. A write is an operation of the disk, a run of neighbours one.\n\n" + \
        table(["", *(f"{figure}: {name}" for figure in FIGURES for name in NAMES.values())], rows)


def published(results):
    for load, times in LOADS:
        for figure in FIGURES:
            for variant, name in NAMES.items():
                yield f"{load}, {times}x: {figure}, {name}", f"{median(results, load, times, variant, FIGURES[figure]):.2f}"


def required(results):
    return []
