"""Misses of the sweeper, of the server's clock and of known algorithms, on the same references to pages.

The sweeper and the clock are those of simulator.c, with the product's own files; the known algorithms are libcachesim's.
No server runs, so the machine does not matter.
"""
import json
import os
import subprocess
import sys

import numpy

from cluster import TREE, say
from patterns import BUFFERS, MEASURED, PATTERNS, WARM_UP, made
from report import table

SOURCE = TREE / "src" / "sweeper"
SOURCES = ("scan.c", "known_pages.c", "standing_set.c", "supply.c", "policy/*.c")
LIBRARY = "libcachesim==0.3.5"
VENV = TREE / "build" / "bench" / "libcachesim"
CLOCK, SWEEPER = "clock", "sweeper"
SIMULATED = {CLOCK: "stock", "sweeper, by the clock": "clock", SWEEPER: "sweeper"}
KNOWN = ("LRU", "2Q", "ARC", "S3-FIFO", "SIEVE", "LIRS")
OPTIMA = ("static optimum", "Belady")
SHOWN = (*KNOWN, *list(SIMULATED)[1:], *OPTIMA)
# references a second, of 64 to a buffer between two ticks; nothing is written
REFERENCES, WRITES = 64000, 1
# after the move, the first windows count on their own
MOVED_WINDOWS = 6
MOVED = f"move, first {MOVED_WINDOWS} windows"
SKEWED = ("zipf 0.7", "zipf 0.99", "zipf 1.1")
# required: misses relative to the clock's
MOST_SKEWED, MOST_STEADY, MOST_MOVED = 0.82, 1.05, 1.15
RECORDS = {"": ("pattern", "algorithm")}


def compiled(place):
    program = place.folder / "simulator"
    subprocess.run(["cc", "-O2", "-w", "-D_GNU_SOURCE", f"-I{place.ask('--includedir-server')}", f"-I{TREE / 'src'}", "-o", program,
                    TREE / "bench" / "replacement" / "simulator.c",
                    *(path for source in SOURCES for path in sorted(SOURCE.glob(source))), "-lm"], check=True)
    return program


def run(program, trace, buffers, server, references, writes):
    """Misses, writes of the disk and pages written, in each window."""
    words = (program, trace, buffers, server, references, writes)
    lines = subprocess.run([str(word) for word in words], check=True, capture_output=True, text=True).stdout
    return numpy.array([line.split() for line in lines.splitlines()], dtype=int).T


def library():
    """The Python that has libcachesim, in a virtual environment of its own."""
    python = VENV / "bin" / "python"
    if not python.exists():
        subprocess.run([sys.executable, "-m", "venv", "--system-site-packages", VENV], check=True)
    # what else it names is for its own tests and for traces in a cloud
    subprocess.run([python, "-m", "pip", "install", "--quiet", "--no-deps", LIBRARY], check=True)
    return python


def known(python, trace, home):
    """Misses in each window, by algorithm."""
    # the library makes a folder in the home directory
    said = subprocess.run([python, TREE / "bench" / "replacement" / "known.py", trace, str(BUFFERS)], check=True,
                          stdout=subprocess.PIPE, env={**os.environ, "HOME": str(home)})
    return json.loads(said.stdout)


def static_optimum(references):
    """The cache holds the pages that are used most in the whole sequence, and exchanges none."""
    held = numpy.zeros(references.max() + 1, dtype=bool)
    held[numpy.argsort(-numpy.bincount(references), kind="stable")[:BUFFERS]] = True
    return (~held[references]).reshape(-1, BUFFERS).sum(axis=1)


def measure(place, quick):
    program, python, trace = compiled(place), library(), place.folder / "trace"
    results = []
    for pattern in list(PATTERNS)[:2] if quick else PATTERNS:
        say(pattern)
        references = made(PATTERNS[pattern])
        references.tofile(trace)
        windows = {**{name: run(program, trace, BUFFERS, server, REFERENCES, WRITES)[0] for name, server in SIMULATED.items()},
                   **known(python, trace, place.folder), "static optimum": static_optimum(references)}
        for label, first, last in parts_of(pattern):
            results += [{"pattern": label, "algorithm": name, "windows": last - first, "misses": int(sum(each[first:last]))}
                        for name, each in windows.items()]
    return results


def parts_of(pattern):
    """What is measured, with the windows."""
    last = WARM_UP + MEASURED
    if pattern != "move":
        return [(pattern, WARM_UP, last)]
    return [(MOVED, WARM_UP, WARM_UP + MOVED_WINDOWS), ("move, later", WARM_UP + MOVED_WINDOWS, last)]


def ratios(results):
    """By pattern: misses of each algorithm relative to the clock's."""
    misses = {(r["pattern"], r["algorithm"]): r["misses"] for r in results}
    return {pattern: {name: misses[pattern, name] / misses[pattern, CLOCK] for name in SHOWN}
            for pattern in dict.fromkeys(r["pattern"] for r in results)}


def show(results):
    missing = {r["pattern"]: r["misses"] / r["windows"] / BUFFERS for r in results if r["algorithm"] == CLOCK}
    return table(["misses relative to the clock's", "the clock misses", *SHOWN],
                 [[pattern, f"{missing[pattern] * 100:.1f} %", *(f"{found[name]:.2f}" for name in SHOWN)]
                  for pattern, found in ratios(results).items()])


def caption(results):
    return "\n\nNo server runs, so the machine does not matter."


def required(results):
    """Of the sweeper."""
    found = {pattern: (each[SWEEPER], MOST_SKEWED if pattern in SKEWED else MOST_MOVED if pattern == MOVED else MOST_STEADY)
             for pattern, each in ratios(results).items()}
    missed = [f"{pattern}: {mine:.3f}" for pattern, (mine, most) in found.items() if mine > most]
    yield "simulator: misses / clock's", "; not ".join([f"{len(found) - len(missed)} of {len(found)}", *missed]), \
        f"at most {MOST_SKEWED} (zipf), {MOST_MOVED} ({MOVED}), {MOST_STEADY} (others)", not missed
