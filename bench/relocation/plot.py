"""Two pictures: latency over time as ten indexes move, and how long writers wait as one moves."""
import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot, ticker  # noqa: E402

import move  # noqa: E402
import pictures  # noqa: E402
import stall  # noqa: E402
import stats  # noqa: E402

BLUE, ORANGE, GREY, GREEN = "#1668b8", "#d2601a", "#777777", "#3a8f4d"
COLOURS = dict(zip(stall.WAYS, (GREY, BLUE, ORANGE, GREEN)))
SHADES = {move.PLAN: (GREEN, "relocation_plan watches, then probes the disks"),
          move.CHOSEN_MOVE: (ORANGE, "pgscale moves indexes"), move.REST_MOVE: (ORANGE, None)}


def milliseconds(axis):
    axis.set_major_formatter(ticker.FuncFormatter(lambda ms, _: f"{ms:,.10g}"))


def draw_move(rounds, folder):
    closed = move.typical(rounds)[move.CLOSED]
    each = closed["each second"]
    at = [second + 0.5 for second, *_ in each]
    figure, axes = pyplot.subplots(figsize=(9.6, 4.4), layout="constrained")
    axes.plot(at, [longest for *_, longest in each], color=GREY, linewidth=0.8, label="the longest of each second")
    axes.plot(at, [mean for _, _, mean, _ in each], color=BLUE, linewidth=1.4, label="mean of each second")
    for name, (colour, label) in SHADES.items():
        axes.axvspan(*closed["spans"][name], color=colour, alpha=0.18, linewidth=0, label=label)
    axes.set_yscale("log")
    milliseconds(axes.yaxis)
    low, high = axes.get_ylim()
    chosen = closed["foretold"]["chosen"]
    for name, text in ((move.BEFORE, f"all {move.INDEXES} on HDD"), (move.BETWEEN, f"{chosen} on SSD"),
                       (move.AFTER, f"all {move.INDEXES} on SSD")):
        since, until = closed["spans"][name]
        mean = closed["measured"][name]["mean"]
        axes.text((since + until) / 2, high * 1.4, f"{text}\nmean {mean:.3g} ms", ha="center", va="bottom", fontsize=9)
    axes.set_ylim(low, high * 6)
    axes.set_xlim(0, at[-1] + 0.5)
    axes.set_xlabel("seconds of a closed loop with 1 client; the disk's and the memory's limits stand all the while")
    axes.set_ylabel("latency of an update, ms (log)")
    axes.legend(frameon=False, fontsize=8, loc="lower left")
    save(figure, axes, folder / "move.png")


def draw_stall(runs, folder):
    figure, both = pyplot.subplots(1, 2, figsize=(9.6, 3.8), sharey=True, layout="constrained")
    for axes, others in zip(both, (stall.QUIET, stall.READ)):
        for place, way in enumerate(stall.WAYS):
            longest = [r["ms"]["max"] for r in stall.select(runs, way, others)]
            axes.scatter([place] * len(longest), longest, color=COLOURS[way], s=28, alpha=0.8)
            axes.text(place + 0.15, stats.median(longest), f"{stats.median(longest):,.0f} ms", fontsize=8, va="center")
        axes.axhline(stall.LIMIT_MS, color="black", linewidth=0.8, linestyle="--")
        axes.text(-0.4, stall.LIMIT_MS * 1.08, f"{stall.LIMIT_MS} ms", fontsize=8)
        axes.set_xticks(range(len(stall.WAYS)), list(stall.WAYS))
        axes.set_xlim(-0.5, len(stall.WAYS) - 0.2)
        axes.set_title(others, fontsize=10, loc="left")
    both[0].set_yscale("log")
    milliseconds(both[0].yaxis)
    both[0].set_ylabel("longest wait of a writer, ms (log);\na dot a round, its number the median")
    save(figure, both, folder / "stall.png")


def save(figure, axes, file):
    for axis in getattr(axes, "flat", [axes]):
        axis.spines[["top", "right"]].set_visible(False)
    pictures.save(figure, file)


def draw(results, folder):
    if "move" in results:
        draw_move(results["move"]["results"]["rounds"], folder)
    if "stall" in results:
        draw_stall(results["stall"]["results"]["runs"], folder)
