"""What each idea of the adaptive policy is worth: its files with one of them taken out, in the simulator."""
import shutil

import simulator
import stats
from cluster import say
from report import table
from simulator import ADAPTIVE, CLOCK, POLICIES, SEEDS

PATTERNS = ("zipf 0.9", "drift, slow", "recency, N/8", "move, zipf 0.99")
# file, what stands there once, and instead of it
VARIANTS = {
    "as it is": None,
    "no ghosts": ("page_history.c", "if (set[i].tag == pgscale_sweeper_hash_tag(page))", "if (false)"),
    "no limit for idle pages": ("page_history.h", "IDLE_LIMIT\t1.5f", "IDLE_LIMIT\t100.0f"),
    "time never hurries": ("page_history.c", "HURRY_MOST\t\t32.0f", "HURRY_MOST\t\t1.0f"),
    "no short memory": ("adaptive.c", "{0.7f, 0.08f, 2.7f}", "{0.7f, 1.0f, 2.7f}"),
    "changes by chance": ("adaptive.c", "limits[s].errors * sqrtf(more + less)", "0"),
    "a half-life of 8, always": ("adaptive.c", "if (a->evictions >= a->compare_at)", "if (false)"),
}
RECORDS = {"": ("pattern", "variant")}


def measure(place, quick):
    results = []
    for variant, change in VARIANTS.items():
        say(variant)
        program = simulator.compiled(place, changed(place, change))
        results += [{**simulator.record(pattern, seed, name, simulator.run(program, pattern, seed, CLOCK, ADAPTIVE)), "variant": label}
                    for pattern in PATTERNS for seed in (SEEDS[:1] if quick else SEEDS)
                    for name, label in ((ADAPTIVE, variant), *(((CLOCK, CLOCK),) if change is None else ()))]
    return results


def changed(place, change):
    """A folder with the policies, one line changed."""
    folder = place.folder / "changed" / "sweeper" / "policies"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(POLICIES, folder)
    if change:
        name, old, new = change
        text = (folder / name).read_text()
        if text.count(old) != 1:
            raise ValueError(f"{name} has {text.count(old)} times {old!r}")
        (folder / name).write_text(text.replace(old, new))
    return folder


def figure(results, pattern, variant, windows=None):
    """Misses relative to the clock's, in the first windows after a move or in all, median of seeds."""
    mine, clock = ([r for r in results if (r["pattern"], r["variant"]) == (pattern, who)] for who in (variant, CLOCK))
    return stats.median([sum(m["after"][:windows]) / sum(c["after"][:windows]) if windows else m["misses"] / c["misses"]
                         for m, c in zip(mine, clock)])


def show(results):
    rows = [[variant, *(f"{figure(results, pattern, variant):.2f}" for pattern in PATTERNS[:-1]),
             f"{figure(results, PATTERNS[-1], variant, simulator.MOVED_WINDOWS):.2f}"] for variant in VARIANTS]
    return "Misses of the adaptive policy relative to the clock's, median of seeds; after the move, in the first " \
        f"{simulator.MOVED_WINDOWS} windows.\n\n" + table(["", *PATTERNS], rows)


def required(results):
    return []
