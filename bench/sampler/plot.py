"""The experiment as one picture: what a tick costs, how true the result is, what it costs the sessions."""
import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

import cost  # noqa: E402
import pictures  # noqa: E402
import stats  # noqa: E402
import tps  # noqa: E402
import truth  # noqa: E402
from tools import TOOLS  # noqa: E402

COLOURS = {"pg_wait_sampling": "#d2601a", "pgscale": "#1668b8", "bare sleep": "#777777"}


def draw_cost(axes, results, period):
    levels = sorted({r["idle"] for r in results})
    for who, colour in COLOURS.items():
        found = [cost.values(results, "tick_us", who=who, period=period, idle=idle, clients=0) for idle in levels]
        low, high = zip(*(stats.interval(each) for each in found))
        axes.plot(levels, [stats.median(each) for each in found], "o-", color=colour, label=who, markersize=4)
        axes.fill_between(levels, low, high, color=colour, alpha=0.2, linewidth=0)
    axes.set_xscale("log")
    axes.set_xticks(levels, [str(n) for n in levels])
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.set_xlabel("idle sessions (band: median's 95 %)")
    axes.set_ylabel("CPU a tick, µs")
    axes.set_title(f"Cost of a tick every {period} ms", fontsize=10)
    axes.legend(frameon=False, fontsize=8, loc="lower right")


def draw_truth(axes, results):
    rows = [(name, period) for name in truth.LOADS for period in truth.PERIODS]
    for i, (name, period) in enumerate(rows):
        for tool, shift in zip(TOOLS, (-0.16, 0.16)):
            errors = [r["error"] for r in truth.one(results, load=name, period=period, tool=tool.name)]
            if None in errors:
                axes.text(-2.6, i + shift, f"{tool.name}: not counted", color=COLOURS[tool.name], fontsize=7,
                          ha="right", va="center")
            else:
                axes.plot([e * 100 for e in errors], [i + shift] * len(errors), "o", color=COLOURS[tool.name],
                          markersize=3.5, alpha=0.7)
    axes.axvspan(-2, 2, color="#000000", alpha=0.07, linewidth=0)
    axes.axvline(0, color="#000000", linewidth=0.7)
    axes.set_yticks(range(len(rows)), [f"{name}, {period} ms" for name, period in rows], fontsize=8)
    axes.set_ylim(len(rows) - 0.3, -0.7)
    axes.set_xlabel("reported / true time − 1, %")
    axes.set_title("Error of the reported time (dot: a run, grey: 2 %)", fontsize=10)


def draw_tps(axes, results):
    names = [tool.name for tool in tps.TOOLS]
    for i, name in enumerate(names):
        change = [(ratio - 1) * 100 for ratio in tps.on_to_off(results, name)]
        low, high = stats.interval(change)
        colour = COLOURS[name]
        axes.plot(change, [i] * len(change), "o", color=colour, markersize=3.5, alpha=0.4)
        axes.plot([low, high], [i + 0.2] * 2, "-", color=colour, linewidth=3)
        axes.plot(stats.median(change), i + 0.2, "|", color=colour, markersize=14, markeredgewidth=2)
    axes.axvline(0, color="#000000", linewidth=0.7)
    axes.set_ylim(len(names) - 0.5, -0.5)
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_xlabel("TPS with the sampler on against off, %")
    axes.set_title(f"pgbench -S, {tps.PERIOD} ms (dot: a pair, bar: median, 95 %)", fontsize=10)


def draw(results, folder):
    """Draws the parts that there are."""
    panels = []
    if "cost" in results:
        panels += [(draw_cost, results["cost"]["results"], period) for period in cost.PERIODS]
    if "truth" in results:
        panels.append((draw_truth, results["truth"]["results"]))
    if "tps" in results:
        panels.append((draw_tps, results["tps"]["results"]))
    if not panels:
        return
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(5.6 * columns, 3.7 * rows), squeeze=False, layout="constrained")
    for axis, (draw_panel, *arguments) in zip(axes.flat, panels):
        draw_panel(axis, *arguments)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes.flat[len(panels):]:
        axis.set_visible(False)
    pictures.save(figure, folder / "sampler.png")
