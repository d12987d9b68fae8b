"""The experiment as one picture: a statement's waits as they came, and what its session notices of who watches."""
import matplotlib

matplotlib.use("Agg")
from matplotlib import patches, pyplot  # noqa: E402

import cost  # noqa: E402
import pictures  # noqa: E402
import stats  # noqa: E402
import timeline  # noqa: E402

SHOWN = 9
CLASSES = {"CPU": "#7ab648", "IO": "#1668b8", "Lock": "#c8201a", "LWLock": "#e8901a", "Client": "#999999", "IPC": "#8a4fae",
           "BufferPin": "#7a4a20", "Timeout": "#d9579b", "Activity": "#555555", "Extension": "#17a2a2"}
TOOLS = {cost.LOOP: "#999999", cost.TRACED: "#1668b8", "strace -c": "#c8201a", "perf trace -s": "#e8901a"}


def class_of(name):
    return name.split(":")[0]


def draw_timeline(axes, results):
    """A lane an event: how much of each moment it took, so that many short waits are as visible as one long one."""
    width = results["ms"] / timeline.BINS
    at = [n * width for n in range(timeline.BINS)]
    # the longest one on top
    names = timeline.longest(results)[SHOWN - 1::-1]
    for lane, name in enumerate(names):
        parts = results["events"][name]
        # whatever there is can be seen
        heights = [max(0.85 * min(ms / width, 1), 0.06) if ms else 0 for ms in parts]
        axes.bar(at, heights, width, bottom=lane, align="edge", color=CLASSES[class_of(name)], linewidth=0)
        axes.axhline(lane, color="#cccccc", linewidth=0.5)
        axes.text(1.01, lane + 0.42, f"{sum(parts):,.1f} ms", transform=axes.get_yaxis_transform(), fontsize=8, va="center")
    for number, (label, began) in enumerate(results["phases"].items()):
        axes.axvline(began, color="#000000", linewidth=0.8, linestyle=":")
        axes.text(began, len(names) + 0.1 + 0.5 * (number % 2), f" {label}", fontsize=8, fontweight="bold")
    axes.set_yticks([lane + 0.42 for lane in range(len(names))], [name.split(": ")[-1] for name in names], fontsize=8)
    axes.tick_params(axis="y", length=0)
    axes.set_xlim(0, results["ms"])
    axes.set_ylim(-0.05, len(names) + 1.1)
    axes.set_xlabel("ms since the statement began (height: fraction of that moment)")
    axes.set_title(f"What one statement waited for, when: {results['waits']:,} stretches", fontsize=10)
    used = dict.fromkeys(class_of(name) for name in reversed(names))
    axes.legend(handles=[patches.Patch(color=CLASSES[each], label=each) for each in used], frameon=False, fontsize=8, ncol=len(used),
                loc="upper right", bbox_to_anchor=(1, -0.12))


def draw_cost(axes, results):
    names, ways = list(cost.STATEMENTS), cost.ways(results)
    for i, name in enumerate(names):
        for n, way in enumerate(ways):
            ratios = cost.ratios(results, name, way)
            low, high = stats.interval(ratios)
            y = i + (n - (len(ways) - 1) / 2) * 0.2
            axes.plot(ratios, [y] * len(ratios), "o", color=TOOLS[way], markersize=3, alpha=0.35, markeredgewidth=0)
            axes.plot([low, high], [y + 0.08] * 2, "-", color=TOOLS[way], linewidth=3, label=way if i == 0 else None)
    axes.axvline(1, color="#000000", linewidth=0.7)
    axes.set_xscale("log")
    every = [ratio for name in names for way in ways for ratio in cost.ratios(results, name, way)]
    ticks = [tick for tick in (0.2, 0.5, 1, 1.5, 2, 3, 5, 10, 20, 50) if min(every) <= tick <= max(every)]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlabel("time while watched / alone (dot: a round, line: 95 % of the median)")
    axes.set_title("What the target notices", fontsize=10)
    axes.legend(frameon=False, fontsize=8)


def draw(results, folder):
    drawn = [(draw, results[name]["results"]) for name, draw in (("timeline", draw_timeline), ("cost", draw_cost))
             if name in results]
    if not drawn:
        return
    figure, axes = pyplot.subplots(len(drawn), 1, figsize=(9, 3.8 * len(drawn)), squeeze=False)
    for axis, (each, mine) in zip(axes.flat, drawn):
        each(axis, mine)
    figure.tight_layout()
    pictures.save(figure, folder / timeline.PICTURE, dpi=120)
