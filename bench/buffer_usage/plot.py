"""The experiment as one picture: what an answer costs, whether the sample's intervals hold, what sessions notice."""
import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot, ticker  # noqa: E402

import beside  # noqa: E402
import pictures  # noqa: E402
import sample  # noqa: E402
import stats  # noqa: E402
import usage  # noqa: E402

MINE, PEER, PLAIN = "#1668b8", "#d2601a", "#777777"
SIZE_COLOURS = dict(zip(sample.SIZES, ("#8db8e2", "#4a8fce", "#0b3d6e")))


def colour(name):
    return PEER if name.startswith("pg_buffercache") else PLAIN if name in ("computing", "SELECT 1") else MINE


def dots(axes, row, values, shade):
    """All values as dots, the median as a bar above them."""
    axes.plot(values, [row] * len(values), "o", color=shade, markersize=3.5, alpha=0.4)
    axes.plot(stats.median(values), row, "|", color=shade, markersize=16, markeredgewidth=2.5)


def label_rows(axes, names):
    names = [name.replace("pg_buffercache by", "pg_buffercache\nby").replace(", once", "\nonce") for name in names]
    axes.set_yticks(range(len(names)), names, fontsize=8)
    axes.set_ylim(len(names) - 0.5, -0.5)


def log_in_numbers(axis):
    axis.set_major_formatter(ticker.FuncFormatter(lambda number, _: f"{number:g}"))


def draw_usage(axes, results):
    asked = [question for question in usage.QUESTIONS if not question.psql]
    rows = [("plain reading", [r["floor cold"] for r in results["times"]], PLAIN)]
    rows += [(question.name, usage.times(results, question, "cold"), colour(question.name)) for question in asked]
    for number, (_, values, shade) in enumerate(rows):
        dots(axes, number, values, shade)
    label_rows(axes, [name for name, _, _ in rows])
    axes.set_xscale("log")
    log_in_numbers(axes.xaxis)
    axes.set_xlabel("ms (log; dot: a call, bar: median)")
    axes.set_title(f"An answer about {results['buffers'] * 8192 / 2**30:g} GiB of buffers", fontsize=10)


def draw_coverage(axes, results):
    counts = [each["count"] for each in sample.one(results, sample.SIZES[0])]
    width = 0.25
    for number, size in enumerate(sample.SIZES):
        share = {each["count"]: sample.share(each) * 100 for each in sample.one(results, size)}
        axes.plot([at + (number - 1) * width for at in range(len(counts))], [share[count] for count in counts], "o",
                  color=SIZE_COLOURS[size], label=f"{size:,} headers", markersize=5)
    axes.axhline(sample.NOMINAL * 100, color="#000000", linewidth=0.7)
    axes.axhline(sample.LIMIT * 100, color="#000000", linewidth=0.7, linestyle=":")
    axes.set_xticks(range(len(counts)), [sample.named(count) for count in counts])
    axes.set_ylim(min(90, axes.get_ylim()[0]), 100)
    axes.set_xlabel("usage count (line: nominal, dotted: required)")
    axes.set_ylabel("intervals that hold the truth, %")
    axes.set_title("buffer_usage_sample: do its intervals hold?", fontsize=10)
    axes.legend(frameon=False, fontsize=8, loc="upper right", ncols=3, columnspacing=0.8, handletextpad=0.1)


def draw_growth(axes, results):
    small, large = results["gib"]
    for what in (*sample.SIZES, sample.SCAN):
        shade = MINE if what == sample.SCAN else SIZE_COLOURS[what]
        name = "buffer_usage" if what == sample.SCAN else f"sample of {what:,}"
        found = [sample.times(results, gib, what) for gib in (small, large)]
        axes.plot([small, large], [stats.median(each) for each in found], "s--" if what == sample.SCAN else "o-",
                  color=shade, label=name, markersize=5)
        low, high = zip(*(stats.interval(each) for each in found))
        axes.fill_between([small, large], low, high, color=shade, alpha=0.2, linewidth=0)
    axes.set_xscale("log")
    axes.set_yscale("log")
    axes.set_xticks([small, large], [f"{gib:g}" for gib in (small, large)])
    axes.xaxis.set_minor_locator(ticker.NullLocator())
    log_in_numbers(axes.yaxis)
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())
    axes.set_xlabel("GiB of shared buffers (log; band: median's 95 %)")
    axes.set_ylabel("ms (log)")
    axes.set_title("Time by the size of shared buffers", fontsize=10)
    axes.legend(frameon=False, fontsize=8)


def draw_beside(axes, results):
    names = [name for name in beside.BESIDE if name != beside.NOTHING]
    for number, name in enumerate(names):
        for shift, figure, shade in ((-0.16, beside.p99, colour(name)), (0.2, beside.tps, "#333333")):
            dots(axes, number + shift, beside.ratios(results, name, figure), shade)
    axes.axvline(1, color="#000000", linewidth=0.7)
    label_rows(axes, names)
    axes.set_xscale("log")
    log_in_numbers(axes.xaxis)
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    ends = axes.get_xlim()
    axes.set_xticks([tick for tick in (0.2, 0.5, 1, 2, 5, 10, 20, 50) if ends[0] <= tick <= ends[1]])
    axes.set_xlabel("ratio to nothing beside (log; colour: p99, black: TPS)")
    axes.set_title("pgbench -S beside scans, in a loop or once a second", fontsize=10)


PANELS = (("usage", draw_usage), ("beside", draw_beside), ("sample", draw_coverage), ("sample", draw_growth))


def draw(results, folder):
    """Draws the parts that there are."""
    panels = [(panel, results[name]["results"]) for name, panel in PANELS if name in results]
    if not panels:
        return
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    figure, axes = pyplot.subplots(rows, columns, figsize=(5.6 * columns, 3.7 * rows), squeeze=False,
                                   layout="constrained")
    for axis, (panel, measured) in zip(axes.flat, panels):
        panel(axis, measured)
        axis.spines[["top", "right"]].set_visible(False)
    for axis in axes.flat[len(panels):]:
        axis.set_visible(False)
    pictures.save(figure, folder / "buffer_usage.png")
