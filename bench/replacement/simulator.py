"""Misses of the sweeper's policies, and of known algorithms, on the same references to pages.

See simulator/. No server runs, so the machine does not matter.
"""
import subprocess

import stats
from cluster import TREE, say
from report import spread, table

HERE = TREE / "bench" / "replacement" / "simulator"
POLICIES = TREE / "src" / "sweeper" / "policies"
SEEDS = (1, 2, 3)
# windows, each of as many references as there are buffers; as in patterns.c
WARM_UP = 60
BUFFERS = 16384
# of the sweeper, in a window; as in simulator.h
TICKS = 64
CLOCK, OURS = "clock", ("policy clock", "policy history", "policy adaptive")
ADAPTIVE = OURS[-1]
ALGORITHMS = (CLOCK, "LRU", "LRU-2", "2Q", "ARC", "S3-FIFO", "SIEVE", "LIRS", *OURS, "static optimum", "Belady")
ONE_BIT = "clock of one bit"
# misses to a clock's, zipf 80/20, the cache a quarter of the pages: a talk on PostgreSQL's buffer manager
PUBLISHED = {"ARC": 0.75, "2Q": 0.73, "LRU-2": 0.60}
SAME_SHAPE = ("80/20", "80/20, equal pages")
MOVES = "move"          # patterns with a moment at which the pages change their ranks
SKEWED = ("zipf 0.7", "zipf 0.9", "zipf 0.99", "zipf 1.05", "zipf 1.1")
# required: misses relative to the clock's
MOST_SKEWED, MOST_STEADY = 0.82, 1.05
MOST_MOVED, MOVED_WINDOWS = 1.15, 6
RECORDS = {"": ("pattern", "algorithm")}


def measure(place, quick):
    program = compiled(place)
    results = []
    for pattern in subprocess.run([program], check=True, capture_output=True, text=True).stdout.splitlines():
        say(pattern)
        for seed in SEEDS[:1] if quick else SEEDS:
            windows = run(program, pattern, seed)
            results += [record(pattern, seed, name, windows) for name in (*ALGORITHMS, ONE_BIT)]
    return results


def compiled(place, policies=POLICIES, buffers=BUFFERS, ticks=TICKS):
    """The program, with the policies in that folder."""
    program = place.folder / f"simulator-{buffers}-{ticks}"
    subprocess.run(["cc", "-O2", "-Wall", "-D_GNU_SOURCE", f"-DBUFFERS={buffers}", f"-DTICKS={ticks}", f"-I{place.ask('--includedir-server')}", f"-I{policies.parents[1]}",
                    f"-I{TREE / 'src'}", f"-I{HERE}", "-o", program, *HERE.glob("*.c"), *policies.glob("*.c"), "-lm"], check=True)
    return program


def run(program, pattern, seed, *algorithms):
    """By name of an algorithm, or of a figure of one: a number for each window."""
    lines = subprocess.run([program, pattern, str(seed), *algorithms], check=True, capture_output=True, text=True).stdout.splitlines()
    return {name: [float(number) for number in numbers.split()] for name, numbers in (line.split("\t") for line in lines)}


def record(pattern, seed, name, windows):
    mine = windows[name][WARM_UP:]
    found = {"pattern": pattern, "seed": seed, "algorithm": name, "windows": len(mine), "misses": sum(mine)}
    if is_move(pattern):
        found["after"] = mine
    choice = windows.get(f"{name}: choice")
    if choice:
        found["choice"] = most_common(choice[WARM_UP:])
    visits = windows.get(f"{name}: visits")
    if visits:
        found["visits"] = sum(visits[WARM_UP:]) / max(sum(mine), 1)
    return found


def most_common(values):
    return max(set(values), key=values.count)


def is_move(pattern):
    return pattern.startswith(MOVES)


def patterns(results):
    return list(dict.fromkeys(r["pattern"] for r in results))


def of(results, pattern, name, figure="misses"):
    """By seed."""
    return [r[figure] for r in results if (r["pattern"], r["algorithm"]) == (pattern, name)]


def ratio(mine, clock):
    """Where nothing misses, all are equal."""
    return mine / clock if clock else 1.0 if not mine else float("inf")


def ratios(results, pattern, name):
    """Misses relative to the clock's, by seed."""
    return [ratio(*both) for both in zip(of(results, pattern, name), of(results, pattern, CLOCK))]


def moved(results, pattern, name):
    """Of each window after the move, the median of the seeds' misses relative to the clock's."""
    return [stats.median([ratio(*both) for both in zip(mine, clock)])
            for mine, clock in zip(zip(*of(results, pattern, name, "after")), zip(*of(results, pattern, CLOCK, "after")))]


def show(results):
    steady = [pattern for pattern in patterns(results) if not is_move(pattern)]
    rows = [[pattern, f"{stats.median(missing(results, pattern)) * 100:.1f} %",
             *(f"{stats.median(ratios(results, pattern, name)):.2f}" for name in ALGORITHMS[1:])] for pattern in steady]
    text = "Misses in the steady state, relative to the clock's; median of seeds.\n\n"
    text += table(["", "misses of the clock", *ALGORITHMS[1:]], rows)
    text += "\n\n" + show_published(results)
    text += "\n\nAfter a sudden move of the hot pages, in windows of N references: misses relative to the clock's, at the greatest " \
        f"of the first {MOVED_WINDOWS} windows, and of those after them (median of seeds in each window); in all of the first {MOVED_WINDOWS}.\n\n"
    return text + table(["", "", "greatest", "greatest later", "in all"], [
        [pattern, name, *(f"{each:.2f}" for each in move_figures(results, pattern, name))]
        for pattern in patterns(results) if is_move(pattern) for name in ALGORITHMS[1:-2]])


def show_published(results):
    """Beside the published figures."""
    rows = [["published", "a clock's", *(f"{figure:.2f}" for figure in PUBLISHED.values())]]
    for pattern in SAME_SHAPE:
        for to in (CLOCK, "LRU", ONE_BIT):
            rows.append([pattern, to, *(f"{stats.median([ratio(*both) for both in zip(of(results, pattern, name), of(results, pattern, to))]):.2f}"
                                       for name in PUBLISHED)])
    return "Beside published figures, the cache a quarter of the pages; median of seeds.\n\n" + table(
        ["", "misses relative to those of", *PUBLISHED], rows)


def missing(results, pattern):
    """Misses of the clock a reference."""
    return [r["misses"] / r["windows"] / BUFFERS for r in results if (r["pattern"], r["algorithm"]) == (pattern, CLOCK)]


def move_figures(results, pattern, name):
    windows = moved(results, pattern, name)
    both = [[sum(each[:MOVED_WINDOWS]) for each in of(results, pattern, who, "after")] for who in (name, CLOCK)]
    return max(windows[:MOVED_WINDOWS]), max(windows[MOVED_WINDOWS:]), stats.median([ratio(*each) for each in zip(*both)])


def published(results):
    for pattern in patterns(results):
        for name in ALGORITHMS[1:]:
            yield f"{pattern}: misses, {name} / clock", spread(ratios(results, pattern, name), "{:.2f}")


def required(results):
    for pattern in patterns(results):
        if is_move(pattern):
            first, later, _ = move_figures(results, pattern, ADAPTIVE)
            yield f"simulator: {pattern}: misses / clock's, worst window of the first {MOVED_WINDOWS}", f"{first:.2f}", \
                f"at most {MOST_MOVED}", first <= MOST_MOVED
            yield f"simulator: {pattern}: misses / clock's, worst window after that", f"{later:.2f}", f"at most {MOST_STEADY}", \
                later <= MOST_STEADY
            continue
        found = ratios(results, pattern, ADAPTIVE)
        limit = MOST_SKEWED if pattern in SKEWED else MOST_STEADY
        yield f"simulator: {pattern}: misses / clock's", spread(found, "{:.3f}"), f"at most {limit}", stats.median(found) <= limit
