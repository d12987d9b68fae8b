"""The policies while more pages are used between two ticks of the sweeper: the same sequences, fewer ticks."""
import simulator
import stats
from cluster import say
from report import table
from simulator import ADAPTIVE, CLOCK, OURS, SEEDS, TICKS

POLICIES = (OURS[0], ADAPTIVE)
PATTERNS = ("zipf 0.7", "zipf 0.99", "20 % used once", "recency, N/8", "recency, N/2", "uniform")
# in a window of as many references as there are buffers
PACES = (TICKS, 16, 8, 4)
TICK_S = 0.004
RECORDS = {"": ("pattern", "ticks", "algorithm")}


def measure(place, quick):
    results = []
    for ticks in PACES:
        say(f"{ticks} ticks a window")
        program = simulator.compiled(place, ticks=ticks)
        results += [{**simulator.record(pattern, seed, name, windows), "ticks": ticks}
                    for pattern in PATTERNS for seed in (SEEDS[:1] if quick else SEEDS)
                    for windows in [simulator.run(program, pattern, seed, CLOCK, *POLICIES)] for name in (CLOCK, *POLICIES)]
    return results


def ratio(results, pattern, ticks, name):
    """Median of seeds."""
    return stats.median(simulator.ratios([r for r in results if r["ticks"] == ticks], pattern, name))


def pace(ticks):
    """Uses a second, with this simulator's buffers."""
    return f"{simulator.BUFFERS / ticks / TICK_S / 1000:,.0f}k uses/s"


def show(results):
    rows = [[pattern, *(f"{ratio(results, pattern, ticks, name):.2f}" for ticks in PACES for name in POLICIES)] for pattern in PATTERNS]
    return "Misses relative to the clock's, median of seeds.\n\n" + table(
        ["", *(f"{pace(ticks)}: {name}" for ticks in PACES for name in POLICIES)], rows)


def required(results):
    for pattern in PATTERNS:
        for ticks in PACES[1:]:
            found = ratio(results, pattern, ticks, ADAPTIVE)
            yield f"paces: {pattern}, {pace(ticks)}: misses / clock's", f"{found:.3f}", f"at most {simulator.MOST_STEADY}", \
                found <= simulator.MOST_STEADY
