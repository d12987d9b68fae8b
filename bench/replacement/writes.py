"""What the policies cost the writes, and the writes cost them: bench/sweeper's model, with each policy, on two disks."""
import stats
import sweeper_model
from report import table

LOADS = (("uniform", 1.7), ("uniform", 3.2), ("pareto", 3.2), ("pareto", 8), ("zipf1.05", 3.2), ("zipf.9", 3.2), ("tpcb", 3.2))
# writes a second: fewer than the sessions need, and more
DISKS = {"slow": sweeper_model.WRITES, "fast": 20000}
POLICIES = ("clock", "history", "adaptive")
NAMES = ("stock", *(f"policy {policy}" for policy in POLICIES))
# that the disk serves first; the set has room for one buffer in so many
WRITERS, PART = -16, 4
VARIANTS = {f"{disk}, {name}": (WRITERS if policy else 0, PART, "freelist", policy or "clock", writes)
            for disk, writes in DISKS.items() for name, policy in zip(NAMES, (None, *POLICIES))}
RECORDS = {"": ("load", "times", "variant")}


def measure(place, quick):
    return sweeper_model.measured(place, quick, LOADS, VARIANTS)


def median(results, load, times, disk, name, figure):
    return stats.median([figure(r) for r in results if (r["load"], r["times"], r["variant"]) == (load, times, f"{disk}, {name}")])


FIGURES = {
    "reads": lambda r: r["misses"],
    "transactions a write": lambda r: r["transactions a write"],
    "reads and writes": lambda r: r["misses"] + 1 / r["transactions a write"],
}


def show(results):
    said = "Of a transaction; median of seeds. A write is an operation of the disk, a run of neighbours one."
    for disk, writes in DISKS.items():
        rows = [[f"{load}, data {times}x", *(f"{median(results, load, times, disk, name, figure):.2f}" for figure in FIGURES.values() for name in NAMES)]
                for load, times in LOADS]
        said += f"\n\nA disk of {writes:,} writes a second:\n\n" + table(["", *(f"{figure}: {name}" for figure in FIGURES for name in NAMES)], rows)
    return said


def published(results):
    for disk in DISKS:
        for load, times in LOADS:
            for figure in FIGURES:
                for name in NAMES:
                    yield f"{load}, {times}x, {disk}: {figure}, {name}", f"{median(results, load, times, disk, name, FIGURES[figure]):.2f}"


def required(results):
    for load, times in LOADS:
        ratio = median(results, load, times, "fast", "policy adaptive", FIGURES["reads"]) / median(results, load, times, "fast", "stock", FIGURES["reads"])
        yield f"writes: {load}, {times}x, a disk of {DISKS['fast']:,} writes/s: reads / stock", f"{ratio:.2f}", "at most 1.05", ratio <= 1.05
