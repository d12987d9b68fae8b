"""The experiment as one picture: a statement's waits as they came, and what its session notices of a trace."""
import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

import cost  # noqa: E402
import stats  # noqa: E402
import timeline  # noqa: E402

SHOWN = 7


def draw_timeline(axes, results):
    width = results["ms"] / timeline.BINS
    at = [n * width for n in range(timeline.BINS)]
    below = [0.0] * timeline.BINS
    names = timeline.longest(results)
    rest = [sum(each) for each in zip(*(results["events"][name] for name in names[SHOWN:]))] or None
    layers = [(name, results["events"][name]) for name in names[:SHOWN]] + ([("other", rest)] if rest else [])
    for number, (name, parts) in enumerate(layers):
        share = [ms / width for ms in parts]
        axes.bar(at, share, width, bottom=below, align="edge", label=name,
                 color="#7ab648" if name == "CPU" else pyplot.get_cmap("tab10")(number))
        below = [a + b for a, b in zip(below, share)]
    axes.set_xlim(0, results["ms"])
    axes.set_ylim(0, 1)
    axes.set_xlabel("ms since the statement began")
    axes.set_ylabel("fraction of the time")
    axes.set_title("One statement: a scan with an update, a lock, a sort", fontsize=10)
    axes.legend(frameon=False, fontsize=8, loc="upper left", bbox_to_anchor=(1, 1))


def draw_cost(axes, results):
    names = list(cost.STATEMENTS)
    for i, name in enumerate(names):
        ratios = cost.ratios(results, name)
        low, high = stats.interval(ratios)
        axes.plot(ratios, [i] * len(ratios), "o", color="#1668b8", markersize=3.5, alpha=0.4)
        axes.plot([low, high], [i + 0.2] * 2, "-", color="#1668b8", linewidth=3)
    axes.axvline(1, color="#000000", linewidth=0.7)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel("time while traced / without (dot: a round, line: 95 % of the median)")
    axes.set_title("What the target notices", fontsize=10)


def draw(results, folder):
    drawn = [(draw, results[name]["results"]) for name, draw in (("timeline", draw_timeline), ("cost", draw_cost))
             if name in results]
    if not drawn:
        return
    figure, axes = pyplot.subplots(len(drawn), 1, figsize=(9, 3.2 * len(drawn)), squeeze=False)
    for axis, (each, mine) in zip(axes.flat, drawn):
        each(axis, mine)
    figure.tight_layout()
    figure.savefig(folder / "trace.png", dpi=120)
