"""Pages read and transactions a second with each policy, relative to a server without the sweeper: a dot a round."""
from matplotlib import pyplot

import pictures
import real
import stats
import turns
from bed import ADAPTIVE, AGAIN, CLOCK, HISTORY
from real_tables import majors, ratios, select

COLOURS = {AGAIN: "#999999", CLOCK: "#d2601a", HISTORY: "#63a8e0", ADAPTIVE: "#1668b8"}
TITLES = {"reads": "", "reads_window": ", mode window", "cases": "", "neutral": "", "slow_writes": ", few writes"}


def rows_of(results):
    """Each load and major that was measured on the slow disk, with its title."""
    for name, more in TITLES.items():
        measured = results[name]["results"] if name in results else []
        for load in real.PARTS[name].loads:
            for major in majors(measured):
                if select(measured, load, ADAPTIVE, major):
                    yield f"{load.name}{more}, {major}", load, major, measured


def draw_ratios(axes, rows, figure, label):
    for place, (_, load, major, measured) in enumerate(rows):
        if load.takes_none and figure is turns.reads:
            continue
        for at, (condition, colour) in enumerate(COLOURS.items()):
            found = ratios(measured, load, condition, major, figure)
            if not found:
                continue
            height = place + 0.27 - 0.18 * at
            axes.plot(found, [height] * len(found), "o", color=colour, markersize=3.5, alpha=0.7)
            axes.plot(stats.median(found), height, "|", color=colour, markersize=11)
    axes.axvline(1, color="#777777", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [title for title, *_ in rows])
    axes.set_ylim(-0.5, len(rows) - 0.5)
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
