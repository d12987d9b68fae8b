"""Misses by pattern and algorithm, and what happens after a sudden move."""
import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

import pictures  # noqa: E402
import plot_real  # noqa: E402
import stats  # noqa: E402
import traces  # noqa: E402
from simulator import ADAPTIVE, is_move, moved, patterns, ratios  # noqa: E402

MARKS = {ADAPTIVE: ("#1668b8", "o", 7), "ARC": ("#d2601a", "s", 4), "LIRS": ("#8a5cb0", "^", 4), "2Q": ("#5a9a3a", "v", 4),
         "S3-FIFO": ("#b8a000", "D", 3.5), "LRU": ("#999999", "x", 4), "static optimum": ("#000000", "|", 8)}


def draw_misses(axes, names, misses, title):
    """One line for each name; misses (name, algorithm) are relative to the clock's."""
    for algorithm, (colour, mark, size) in MARKS.items():
        axes.plot([min(misses(name, algorithm), LIMIT) for name in names], range(len(names)), mark, color=colour,
                  markersize=size, label=algorithm, alpha=0.85)
    axes.axvline(1, color="#777777", linewidth=0.8)
    axes.set_yticks(range(len(names)), names)
    axes.set_xlim(0, LIMIT + 0.05)
    axes.set_xlabel(f"misses relative to the clock's (beyond {LIMIT}: at the edge)")
    axes.set_title(title, fontsize=10)
    axes.legend(frameon=False, fontsize=8, loc="lower left")


LIMIT = 1.5


def draw_moved(axes, results):
    for pattern, style in zip((pattern for pattern in patterns(results) if is_move(pattern)), ("-", "--")):
        for algorithm in (ADAPTIVE, "policy history", "ARC", "LIRS"):
            colour = MARKS.get(algorithm, ("#63a8e0",))[0]
            windows = moved(results, pattern, algorithm)
            axes.plot(range(1, len(windows) + 1), windows, style, color=colour, label=f"{algorithm}, {pattern.split(', ')[1]}", linewidth=1.2)
    axes.axhline(1, color="#777777", linewidth=0.8)
    axes.set_xlabel("references since the move, as a multiple of the buffers")
    axes.set_ylabel("misses relative to the clock's")
    axes.set_title("after a sudden move of the hot pages", fontsize=10)
    axes.legend(frameon=False, fontsize=8)


def draw(results, folder):
    plot_real.draw(results, folder / "reads.png")
    if "traces" in results:
        draw_traces(results["traces"]["results"], folder / "traces.png")
    if "simulator" not in results:
        return
    figure, axes = pyplot.subplots(1, 2, figsize=(11.2, 5.2), layout="constrained")
    found = results["simulator"]["results"]
    draw_misses(axes[0], [pattern for pattern in patterns(found) if not is_move(pattern)][::-1],
                lambda name, algorithm: stats.median(ratios(found, name, algorithm)), "steady state")
    draw_moved(axes[1], found)
    save(figure, axes, folder / "replacement.png")


def draw_traces(results, file):
    figure, axes = pyplot.subplots(figsize=(6.4, 3.6), layout="constrained")
    draw_misses(axes, traces.loads(results)[::-1], lambda name, algorithm: traces.ratio(results, name, algorithm),
                "references recorded from a real server")
    save(figure, [axes], file)


def save(figure, axes, file):
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    pictures.save(figure, file)
