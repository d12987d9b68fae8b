"""Throughput over clients with the fitted law and its peak, workload by workload; the online fit; the noise study."""
import matplotlib

matplotlib.use("Agg")
import numpy  # noqa: E402
from matplotlib import pyplot, ticker  # noqa: E402

import law  # noqa: E402
import noise  # noqa: E402
import pictures  # noqa: E402
from sweep import WORKLOADS  # noqa: E402

COLOURS = dict(zip(("15", "16", "17", "18"), ("#1668b8", "#2a9d60", "#d2601a", "#8a4fbf")))
ONLINE = {"offline": "#777777", "online": "#d2601a"}


def sessions(axes):
    axes.set_xscale("log", base=2)
    axes.xaxis.set_major_formatter(ticker.FuncFormatter(lambda n, _: f"{n:g}"))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda x, _: f"{x / 1000:g}k" if x >= 1000 else f"{x:g}"))
    axes.yaxis.set_major_locator(ticker.MaxNLocator(5))
    # room for the legend
    axes.set_ylim(0, axes.get_ylim()[1] * 1.25)


def draw_fit(axes, points, fit, colour, label):
    """Points, the law within the range and half as far again, and its peak with its interval."""
    axes.plot([n for n, *_ in points], [x for _, x, *_ in points], "o", color=colour, markersize=3.5, alpha=0.55, markeredgewidth=0)
    if fit["lambda"] is None:
        return
    end = fit["max_concurrency"]
    for at, style in ((numpy.geomspace(fit["min_concurrency"], end, 200), "-"), (numpy.geomspace(end, 1.5 * end, 50), ":")):
        axes.plot(at, [law.throughput(fit, n) for n in at], style, color=colour, linewidth=1.4,
                  label=label if style == "-" else None)
    if fit["peak_concurrency"] is not None:
        axes.errorbar([fit["peak_concurrency"]], [fit["peak_throughput"]],
                      xerr=[[fit["peak_concurrency"] - fit["peak_concurrency_low"]], [fit["peak_concurrency_high"] - fit["peak_concurrency"]]],
                      fmt="v", color=colour, markersize=7, capsize=3, elinewidth=1, markeredgecolor="white", zorder=5)


def peak(fit):
    return f"N* {fit['peak_concurrency']:.0f}" if fit["peak_concurrency"] is not None else fit["status"].split(":")[0].split(" up")[0]


def draw_sweep(axes, results, name):
    for major, measured in sorted(results["majors"].items(), key=lambda each: int(each[0])):
        fit = measured["fits"][name]
        draw_fit(axes, measured["points"][name], fit, COLOURS.get(major, "#777777"), f"{major}: {peak(fit)}")
    sessions(axes)
    axes.set_title(name, fontsize=10)
    axes.set_xlabel("clients")
    axes.legend(frameon=False, fontsize=8, loc="upper right")


def draw_online(axes, results):
    name, found = next(iter(results["workloads"].items()))
    draw_fit(axes, found["points"], found["offline"], ONLINE["offline"], f"pgbench's tps, by clients: {peak(found['offline'])}")
    draw_fit(axes, found["online points"], found["online"], ONLINE["online"],
             f"the server, by active sessions: {peak(found['online'])}")
    sessions(axes)
    axes.set_title(f"online and offline, {name}", fontsize=10)
    axes.set_xlabel("clients, or active sessions")
    axes.legend(frameon=False, fontsize=8, loc="upper right")


def draw_noise(axes, results):
    for repeats, marker in zip(noise.REPEATS, "o^"):
        for truth, colour in zip(noise.TRUTHS, ("#1668b8", "#2a9d60", "#d2601a")):
            cases = [case for case in results["cases"] if case["truth"] == truth and case["repeats"] == repeats]
            told, near = ([case[what] / case["fits"] * 100 for case in cases] for what in ("ok", "within 10%"))
            reach = [case["reach"] for case in cases]
            label = f"{truth}, {repeats} each" if repeats > 1 else f"{truth}, once each"
            axes.plot(reach, told, marker + "-", color=colour, markersize=4, linewidth=1.2, label=label,
                      alpha=1 if repeats > 1 else 0.5)
            axes.plot(reach, near, marker + ":", color=colour, markersize=3, linewidth=1, alpha=1 if repeats > 1 else 0.5)
    axes.set_title("5 % of noise: share of fits that tell N*", fontsize=10)
    axes.set_xlabel("data reach, of N*  (dotted: and are within 10 %)")
    axes.yaxis.set_major_formatter(ticker.PercentFormatter(decimals=0))
    axes.set_ylim(-3, 103)
    axes.legend(frameon=False, fontsize=7, loc="upper left")


def draw(results, folder):
    """Draws the parts that there are."""
    panels = []
    if "sweep" in results:
        panels += [(draw_sweep, results["sweep"]["results"], name) for name in WORKLOADS]
    if "online" in results:
        panels.append((draw_online, results["online"]["results"]))
    if "noise" in results:
        panels.append((draw_noise, results["noise"]["results"]))
    if not panels:
        return
    columns = min(4, len(panels))
    lines = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(lines, columns, figsize=(4 * columns, 3.5 * lines), squeeze=False, layout="constrained")
    for each in axes.flat[len(panels):]:
        each.set_visible(False)
    for each, (function, *arguments) in zip(axes.flat, panels):
        function(each, *arguments)
        each.spines[["top", "right"]].set_visible(False)
    for row in axes:
        row[0].set_ylabel("transactions a second")
    figure.suptitle("Dots: measurements. Line: the fitted law. Triangle: its peak, with its 95 % interval, where the data tell it.",
                    fontsize=10, wrap=True)
    pictures.save(figure, folder / "scalability.png")
