"""The four comparisons as one picture: transactions a second of each setting, and each round's."""
import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402
from matplotlib.ticker import MaxNLocator  # noqa: E402

import pictures  # noqa: E402
import stats  # noqa: E402
from parts import ALL  # noqa: E402

TITLES = {"flush": "With and without the flush (fast disk)", "delay": "commit_delay, µs (slow disk)",
          "buffers": "wal_buffers (slow disk, wide rows)", "segments": "Size of segments (fast disk)"}
COLOUR, FIRST = "#1668b8", "#777777"


def draw_part(axes, part, results):
    most = max(r["tps"] for r in results)
    first = None
    for row, name in enumerate(part.conditions):
        tps = [r["tps"] for r in results if r["name"] == name]
        middle = stats.median(tps)
        first = first or middle
        axes.barh(row, middle, 0.62, color=COLOUR if row else FIRST, alpha=0.85)
        axes.plot(tps, [row] * len(tps), "|", color="black", markersize=11, markeredgewidth=1.1)
        axes.annotate(f"{middle:,.0f}" + (f"  ({middle / first:.2f}x)" if row else ""), (max(tps), row), xytext=(7, 0),
                      textcoords="offset points", va="center", fontsize=9)
    axes.set_yticks(range(len(part.conditions)), part.conditions)
    # bars as thick in each part
    axes.set_ylim(3.5, -0.5)
    axes.set_xlim(0, 1.38 * most)
    axes.xaxis.set_major_locator(MaxNLocator(5))
    axes.xaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_title(TITLES[part.name], fontsize=10, loc="left")
    axes.spines[["top", "right"]].set_visible(False)


def draw(results, folder):
    parts = [part for part in ALL if part.name in results]
    if not parts:
        return
    rows = (len(parts) + 1) // 2
    figure, axes = pyplot.subplots(rows, 2, figsize=(11, 2.5 * rows + 0.4), layout="constrained", squeeze=False)
    for axis, part in zip(axes.flat, parts):
        draw_part(axis, part, results[part.name]["results"])
    for axis in axes.flat[len(parts):]:
        axis.set_visible(False)
    for axis in axes[-1]:
        axis.set_xlabel("transactions a second (bar: median; mark: a round)")
    pictures.save(figure, folder / "tuning_wal.png")
