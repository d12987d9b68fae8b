"""The variants over time as one picture: transactions each second, the checkpoints' sync phases, and dirty data."""
import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

import pictures  # noqa: E402
from bed import CAP_MIB, VARIANTS  # noqa: E402
from freeze import RATE, during, select, typical  # noqa: E402

COLOURS = dict(zip(VARIANTS, ("#777777", "#d2601a", "#3a8f4d", "#1668b8")))


def draw_seconds(axes, run):
    each = run["each second"]
    axes.fill_between(range(len(each) + 1), each + each[-1:], step="post", color=COLOURS[run["variant"]], linewidth=0)
    for checkpoint in during(run):
        axes.axvline(checkpoint["began"], color="black", linewidth=0.8, linestyle=":")
        # a sync phase of milliseconds has to be seen, too
        since = checkpoint["ended"] - max(checkpoint["sync"], 0.2)
        axes.axvspan(since, checkpoint["ended"], color="#d01c1c", alpha=0.45, linewidth=0)
    axes.set_ylim(0, 2.2 * RATE)
    axes.set_ylabel("TPS")
    axes.set_title(f"{run['variant']}: longest stall {run['stall']:.2f} s, p99.9 {run['ms']['p99.9'] / 1000:.2f} s",
                   fontsize=10, loc="left")


def draw_dirty(axes, runs):
    for run in runs:
        axes.plot([at for at, *_ in run["dirty"]], [dirty / 2**20 for _, dirty, *_ in run["dirty"]],
                  color=COLOURS[run["variant"]], label=run["variant"], linewidth=1.2)
    axes.axhline(CAP_MIB, color="black", linewidth=0.8, linestyle="--", label=f"pgscale's cap, {CAP_MIB} MiB")
    # room for the legend
    axes.set_ylim(0, 1.2 * max(run["peak dirty"] for run in runs) / 2**20)
    axes.set_ylabel("dirty, MiB")
    axes.set_xlabel("seconds (dotted: a checkpoint begins; red: its sync phase)")
    axes.legend(frameon=False, fontsize=8, ncols=5, loc="upper left")


def draw(results, folder):
    if "freeze" not in results:
        return
    everything = results["freeze"]["results"]["runs"]
    runs = [typical(select(everything, variant)) for variant in VARIANTS]
    figure, axes = pyplot.subplots(len(runs) + 1, 1, figsize=(9.6, 1.5 * len(runs) + 2.6), sharex=True,
                                   layout="constrained", height_ratios=[1] * len(runs) + [1.8])
    for axis, run in zip(axes, runs):
        draw_seconds(axis, run)
    draw_dirty(axes[-1], runs)
    axes[-1].set_xlim(0, runs[0]["seconds"])
    for axis in axes:
        axis.spines[["top", "right"]].set_visible(False)
    pictures.save(figure, folder / "writeback.png")
