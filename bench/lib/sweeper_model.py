"""The model of the sweeper's world: bench/sweeper/model/model.c, with the sweeper's own source files."""
import subprocess

from cluster import TREE, say

SWEEPER = TREE / "src" / "sweeper"
SOURCES = ("scan.c", "known_pages.c", "standing_set.c", "write_combining.c", "supply/*.c", "policies/*.c")
SEEDS = (1, 2, 3)
SECONDS = 120
WRITES = 300     # that the disk does a second
FIGURES = ("transactions a write", "pages a transaction", "pages a write", "tps", "misses", "passed", "starved", "sessions' pages",
           "longest tick", "hand")


def compiled(place):
    program = place.folder / "model"
    subprocess.run(["cc", "-O2", "-w", "-D_GNU_SOURCE", f"-I{place.ask('--includedir-server')}", f"-I{TREE / 'src'}", "-o", program,
                    TREE / "bench" / "sweeper" / "model" / "model.c",
                    *(path for source in SOURCES for path in sorted(SWEEPER.glob(source))), "-lm"], check=True)
    return program


def run(program, load, times, seconds, writers, part, seed, mode="freelist", policy="clock", writes=WRITES):
    """By figure; writers, part of the buffers and the disk's writes: see model.c."""
    words = [load, times, seconds, writers, part, seed, mode, policy, writes]
    line = subprocess.run([program, *map(str, words)], check=True, capture_output=True, text=True).stdout
    return dict(zip(FIGURES, map(float, line.split())))


def measured(place, quick, loads, variants):
    """A record for each load (with how many times the buffers its data are), variant and seed.

    variants: by name, the writers, the part of the buffers, and if need be mode, policy and writes a second.
    """
    program = compiled(place)
    results = []
    for load, times in loads:
        say(f"{load}, {times} times the buffers")
        for variant, (writers, part, *rest) in variants.items():
            for seed in SEEDS[:1] if quick else SEEDS:
                results.append({"load": load, "times": times, "variant": variant, "seed": seed,
                                **run(program, load, times, SECONDS, writers, part, seed, *rest)})
    return results
