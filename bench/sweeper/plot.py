"""The contests as one picture: throughput over time, and how long transactions take."""
import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

import pictures  # noqa: E402
import stats  # noqa: E402
from bed import VARIANTS  # noqa: E402
from contest import select  # noqa: E402
from load import PERCENTILES  # noqa: E402

COLOURS = dict(zip(VARIANTS, ("#777777", "#d2601a", "#1668b8")))
TITLES = {"main": "small kernel dirty limit", "larger": "larger kernel dirty limit"}


def draw_seconds(axes, runs, title):
    for variant, colour in COLOURS.items():
        mine = select(runs, variant)
        seconds = [r["each second"] for r in mine]
        for each in seconds:
            axes.plot(range(1, len(each) + 1), each, color=colour, linewidth=0.6, alpha=0.35)
        axes.plot(range(1, len(seconds[0]) + 1), [stats.median(at) for at in zip(*seconds)], color=colour, label=variant)
    axes.axvspan(0, mine[0]["settle"], color="#000000", alpha=0.06, linewidth=0)
    axes.set_xlim(0, len(seconds[0]))
    axes.set_ylim(bottom=0)
    axes.set_xlabel("seconds since the disk is slow (thin: a round, grey: not measured)")
    axes.set_ylabel("transactions each second")
    axes.set_title(f"TPC-B, {title}", fontsize=10)
    axes.legend(frameon=False, fontsize=8)


def draw_latencies(axes, runs, title):
    for variant, colour in COLOURS.items():
        found = [[r["ms"][rank] for r in select(runs, variant)] for rank in PERCENTILES]
        axes.plot([stats.median(each) for each in found], "o-", color=colour, label=variant, markersize=4)
        axes.fill_between(range(len(found)), [min(each) for each in found], [max(each) for each in found], color=colour,
                          alpha=0.2, linewidth=0)
    axes.set_yscale("log")
    axes.set_xticks(range(len(PERCENTILES)), PERCENTILES)
    axes.set_ylabel("latency, ms (log; band: all rounds)")
    axes.set_title(f"Latency, {title}", fontsize=10)
    axes.legend(frameon=False, fontsize=8, loc="upper left")


def draw(results, folder):
    """Draws the contests that there are."""
    names = [name for name in TITLES if name in results]
    if not names:
        return
    figure, axes = pyplot.subplots(len(names), 2, figsize=(11.2, 3.7 * len(names)), squeeze=False, layout="constrained",
                                   width_ratios=(3, 2))
    for row, name in zip(axes, names):
        runs = results[name]["results"]["runs"]
        draw_seconds(row[0], runs, TITLES[name])
        draw_latencies(row[1], runs, TITLES[name])
    for axis in axes.flat:
        axis.spines[["top", "right"]].set_visible(False)
    pictures.save(figure, folder / "sweeper.png")
