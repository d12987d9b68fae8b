"""Pictures: latency over time as ten indexes move, with their table and without; how long the longest wait is as one of them moves."""
import itertools

import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot, ticker  # noqa: E402

import live  # noqa: E402
import move  # noqa: E402
import pictures  # noqa: E402
import stall  # noqa: E402
import stats  # noqa: E402

BLUE, ORANGE, GREY, GREEN = "#1668b8", "#d2601a", "#777777", "#3a8f4d"
COLOURS = dict(zip(stall.WAYS, (GREY, BLUE, ORANGE, GREEN)))
PURPLE, BROWN = "#7d4fa3", "#8a6d3b"
LIVE_COLOURS = dict(zip((live.BASELINE, *live.MOVES), (GREY, BLUE, ORANGE, GREEN, PURPLE, BROWN)))
SHADES = {move.PLAN: (GREEN, "relocation_plan watches, then probes the disks"),
          move.CHOSEN_MOVE: (ORANGE, "pgscale moves {}"), move.REST_MOVE: (ORANGE, None)}


def milliseconds(axis):
    axis.set_major_formatter(ticker.FuncFormatter(lambda ms, _: f"{ms:,.10g}"))


def draw_move(rounds, of, what, file):
    """Of so many relations, named so."""
    closed = move.typical(rounds)[move.CLOSED]
    each = closed["each second"]
    at = [second + 0.5 for second, *_ in each]
    figure, axes = pyplot.subplots(figsize=(9.6, 4.4), layout="constrained")
    axes.plot(at, [longest for *_, longest in each], color=GREY, linewidth=0.8, label="the longest of each second")
    axes.plot(at, [mean for _, _, mean, _ in each], color=BLUE, linewidth=1.4, label="mean of each second")
    for name, (colour, label) in SHADES.items():
        axes.axvspan(*closed["spans"][name], color=colour, alpha=0.18, linewidth=0, label=label and label.format(what))
    axes.set_yscale("log")
    milliseconds(axes.yaxis)
    low, high = axes.get_ylim()
    chosen = closed["foretold"]["chosen"]
    for name, text in ((move.BEFORE, f"all {of} on HDD"), (move.BETWEEN, f"{chosen} on SSD"),
                       (move.AFTER, f"all {of} on SSD")):
        since, until = closed["spans"][name]
        mean = closed["measured"][name]["mean"]
        axes.text((since + until) / 2, high * 1.4, f"{text}\nmean {mean:.3g} ms", ha="center", va="bottom", fontsize=9)
    axes.set_ylim(low, high * 6)
    axes.set_xlim(0, at[-1] + 0.5)
    axes.set_xlabel("seconds of a closed loop with 1 client; the disk's and the memory's limits stand all the while")
    axes.set_ylabel("latency of an update, ms (log)")
    axes.legend(frameon=False, fontsize=8, loc="lower left")
    save(figure, axes, file)


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


def live_columns(results):
    """Name, way and runs: all ways of "live", and of the other majors what only they have."""
    columns = []
    for name in ("live", "live_peers", "live_repack"):
        part = results.get(name)
        if part and part["results"]:
            runs = part["results"]["runs"]
            major = part["machine"]["PostgreSQL"].split()[0]
            columns += [(way if name == "live" else f"{way.replace(' (', chr(10) + '(')}\non {major}", way, runs)
                        for way in dict.fromkeys(r["way"] for r in runs)
                        if name == "live" or way not in (live.BASELINE, live.PGSCALE)]
    return sorted(columns, key=lambda column: list(LIVE_COLOURS).index(column[1]))


def draw_live(results, folder):
    columns = live_columns(results)
    figure, all_axes = pyplot.subplots(2, 2, figsize=(9.6, 6.8), sharex=True, sharey=True, layout="constrained")
    for axes, (load, others) in zip(all_axes.flat, itertools.product(live.LOADS, (live.QUIET, live.READ))):
        for place, (_, way, runs) in enumerate(columns):
            longest = [r["ms"]["max"] for r in live.select(runs, load, others, way)]
            if longest:
                axes.scatter([place] * len(longest), longest, color=LIVE_COLOURS[way], s=20)
                axes.text(place + 0.14, stats.median(longest), f"{stats.median(longest):,.0f}", fontsize=8, va="center")
        axes.axhline(live.MOST_MS[others], color="black", linewidth=0.8, linestyle="--")
        axes.text(0.5, live.MOST_MS[others] * 1.1, f"{live.MOST_MS[others]} ms", fontsize=8, ha="center")
        axes.set_xticks(range(len(columns)), [name for name, *_ in columns], fontsize=8)
        axes.set_xlim(-0.5, len(columns) - 0.3)
        axes.set_title(f"{load}, {others}", fontsize=10, loc="left")
    all_axes[0][0].set_yscale("log")
    milliseconds(all_axes[0][0].yaxis)
    figure.supylabel("longest wait of a transaction, ms (log); a dot a move, its number the median", fontsize=9)
    save(figure, all_axes, folder / "live.png")


def save(figure, axes, file):
    for axis in getattr(axes, "flat", [axes]):
        axis.spines[["top", "right"]].set_visible(False)
    pictures.save(figure, file)


def draw(results, folder):
    if "move" in results:
        draw_move(results["move"]["results"]["rounds"], move.INDEXES, "indexes", folder / "move.png")
    if "stall" in results:
        draw_stall(results["stall"]["results"]["runs"], folder)
    if "live" in results:
        draw_live(results, folder)
    if "live_both" in results:
        draw_move(results["live_both"]["results"]["rounds"], move.INDEXES + 1, "the table and indexes", folder / "both.png")
