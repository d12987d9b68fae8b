"""Throughput over clients, a panel for each load, with the law that was fitted; and the loads that show the cures."""
import matplotlib

matplotlib.use("Agg")
import numpy  # noqa: E402
from matplotlib import pyplot, ticker  # noqa: E402

import cures  # noqa: E402
import law  # noqa: E402
import pictures  # noqa: E402
import stats  # noqa: E402
import sweep  # noqa: E402

COLOURS = dict(zip(("15", "16", "17", "18", "19"), ("#1668b8", "#2a9d60", "#d2601a", "#8a4fbf", "#c2273d")))


def thousands(axes):
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x / 1000:g}k" if x >= 1000 else f"{x:g}"))
    axes.yaxis.set_major_locator(ticker.MaxNLocator(5))


def draw_load(axes, results, workload):
    for major, fit in results["fits"][workload].items():
        points = sweep.tps(results, workload, major)
        clients = sorted(points)
        axes.plot(clients, [stats.median(points[n]) for n in clients], "-", color=COLOURS[major], linewidth=1.5, label=major)
        axes.plot([n for n in clients for _ in points[n]], [tps for n in clients for tps in points[n]], "o", color=COLOURS[major],
                  markersize=3, alpha=0.5, markeredgewidth=0)
        if fit["lambda"] is not None:
            at = numpy.geomspace(clients[0], clients[-1], 100)
            axes.plot(at, [law.throughput(fit, n) for n in at], ":", color=COLOURS[major], linewidth=1)
        if fit["peak_concurrency"] is not None:
            axes.plot(fit["peak_concurrency"], fit["peak_throughput"], "v", color=COLOURS[major], markersize=8, markeredgecolor="white")
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda n, _: f"{n:g}"))
    axes.set_ylim(bottom=0)
    axes.set_title(workload, fontsize=10)
    axes.set_xlabel("clients")


def draw_cure(axes, results, load):
    for at, major in enumerate(results["versions"]):
        tps = [cell["tps"] for cell in results["cells"] if (cell["load"], cell["major"]) == (load, major)]
        middle = stats.median(tps)
        axes.bar(at, middle, color=COLOURS[major], yerr=[[middle - min(tps)], [max(tps) - middle]], capsize=3, width=0.7)
    axes.set_xticks(range(len(results["versions"])), list(results["versions"]))
    axes.set_title(f"{load}: cured in {cures.LOADS[load].cured_in}", fontsize=9)


def draw(results, folder):
    """Draws the parts that there are, a row each."""
    rows = []
    sweeps = [part["results"] for name, part in results.items() if name != "cures"]
    panels = [(draw_load, part, workload) for part in sweeps for workload in part["fits"]]
    rows += [panels[at:at + 4] for at in range(0, len(panels), 4)]
    if "cures" in results:
        rows.append([(draw_cure, results["cures"]["results"], load) for load in cures.LOADS])
    if not rows:
        return
    figure, axes = pyplot.subplots(len(rows), 4, figsize=(16, 3.6 * len(rows)), squeeze=False, layout="constrained")
    for line, panels in zip(axes, rows):
        for each, (function, *arguments) in zip(line, panels):
            function(each, *arguments)
            thousands(each)
            each.spines[["top", "right"]].set_visible(False)
        for each in line[len(panels):]:
            each.set_visible(False)
        line[0].set_ylabel("transactions a second")
    if sweeps:
        axes[0][0].legend(frameon=False, fontsize=9)
    figure.suptitle("Dots: each round. Solid: their medians. Dotted: the fitted law. Triangle: its peak, where the data tell it.",
                    fontsize=11)
    pictures.save(figure, folder / "tour.png")
