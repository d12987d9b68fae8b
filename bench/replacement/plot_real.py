"""Pages read and transactions a second with each policy, relative to a server without the sweeper: a dot a round."""
from matplotlib import pyplot

import pictures
import real
import stats
import turns
from bed import ADAPTIVE, AGAIN, CLOCK, HISTORY

COLOURS = {AGAIN: "#999999", CLOCK: "#d2601a", HISTORY: "#63a8e0", ADAPTIVE: "#1668b8"}
TITLES = {"reads": "", "reads_window": ", mode window", "cases": "", "neutral": ""}


def rows_of(results):
    """Each load that was measured on the disk of few reads, with its title."""
    for name, more in TITLES.items():
        if name in results:
            for load in real.PARTS[name].loads:
                yield load.name + more, load, results[name]["results"]


def draw_ratios(axes, rows, figure, label):
    for place, (_, load, measured) in enumerate(rows):
        if load.takes_none and figure is turns.reads:
            continue
        for at, (condition, colour) in enumerate(COLOURS.items()):
            found = real.ratios(measured, load, condition, figure)
            if not found:
                continue
            height = place + 0.27 - 0.18 * at
            axes.plot(found, [height] * len(found), "o", color=colour, markersize=3.5, alpha=0.7)
            axes.plot(stats.median(found), height, "|", color=colour, markersize=11)
    axes.axvline(1, color="#777777", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [title for title, *_ in rows])
    axes.set_xlabel(label)


def draw(results, file):
    rows = list(rows_of(results))[::-1]
    if not rows:
        return
    figure, axes = pyplot.subplots(1, 2, figsize=(11.2, 0.8 + 0.6 * len(rows)), sharey=True, layout="constrained")
    draw_ratios(axes[0], rows, turns.reads, "pages read a transaction, to off (a dot a round, a line the median)")
    draw_ratios(axes[1], rows, turns.tps, "transactions a second, to off")
    axes[0].legend(handles=[pyplot.Line2D([], [], color=colour, marker="o", linestyle="", markersize=4, label=condition)
                            for condition, colour in COLOURS.items()], frameon=False, fontsize=8)
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    pictures.save(figure, file)
