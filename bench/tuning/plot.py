"""How much better each case became, as one picture: what applying the advice gained, what verify claims of it, and
pgtune's answer.
"""
import matplotlib

matplotlib.use("Agg")
from matplotlib import pyplot  # noqa: E402

import pictures  # noqa: E402
import stats  # noqa: E402
from trial import APPLIED, PGTUNE, case_of, gains, of_time  # noqa: E402

COLOURS = {APPLIED: "#1668b8", PGTUNE: "#d2601a"}
LABELS = {APPLIED: "what pgscale advised, applied", PGTUNE: "pgtune's answer for this machine"}
HEIGHT = 0.27


def draw_claim(axes, row, found):
    """A sixth less time is a fifth more transactions."""
    claim = of_time(found)
    if not claim:
        return
    middle, low, high = (1 / max(1 + claim[end], 0.01) for end in ("difference", "difference_high", "difference_low"))
    axes.errorbar(middle, row, xerr=[[middle - low], [high - middle]], fmt="D", color="black", markersize=4.5, capsize=4,
                  linewidth=1.3, zorder=3, label="what verify claims, with its interval" if row == 0 else None)


def draw(results, folder):
    if "cases" not in results:
        return
    everything = results["cases"]["results"]
    figure, axes = pyplot.subplots(figsize=(9.6, 1.05 * len(everything) + 1.4), layout="constrained")
    for row, found in enumerate(everything):
        for name, shift in ((APPLIED, -HEIGHT), (PGTUNE, HEIGHT)):
            ratios = gains(found, name)
            middle = stats.median(ratios)
            axes.barh(row + shift, middle - 1, HEIGHT * 0.9, left=1, color=COLOURS[name], alpha=0.85,
                      label=LABELS[name] if row == 0 else None)
            axes.plot(ratios, [row + shift] * len(ratios), "|", color="black", markersize=9, markeredgewidth=1.1)
            axes.annotate(f"{middle:.2f}", (max(*ratios, 1), row + shift), xytext=(6, 0), textcoords="offset points",
                          va="center", fontsize=9)
        draw_claim(axes, row, found)
    axes.axvline(1, color="black", linewidth=0.9)
    axes.set_xscale("log")
    axes.set_yticks(range(len(everything)), [
        case_of(found).name + ("" if case_of(found).metric == "tps" else f"\n({case_of(found).metric} latency)")
        for found in everything])
    axes.invert_yaxis()
    low, high = axes.get_xlim()
    axes.set_xlim(low, high * 1.25)
    ticks = [tick for tick in (0.5, 0.7, 1, 1.5, 2, 3, 5, 10, 20, 50, 100, 200, 500) if low <= tick <= high * 1.25]
    axes.set_xticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_xlabel("times better than the bad configuration (bar: median of rounds; mark: a round)")
    axes.legend(frameon=False, fontsize=9, loc="lower center", bbox_to_anchor=(0.45, 1.0), ncols=3)
    axes.spines[["top", "right"]].set_visible(False)
    pictures.save(figure, folder / "tuning.png")
