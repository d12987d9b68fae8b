"""The sweeper's experiment: see run and README.md."""
import sys

import experiment

import allocations
import elsewhere
import model
import modes
import rate
from bed import FREELIST, WINDOW
from contest import Contest
from skewed import Skewed

# MiB that the kernel may keep dirty of the slow disk
SMALL, LARGER = 4, 64

PARTS = {
    "main": Contest("main", SMALL, rounds=3, times=(8, 60, 30), has_limits=True),
    "skewed": Skewed("skewed", FREELIST, WINDOW),
    "skewed_window": Skewed("skewed_window", WINDOW),
    "larger": Contest("larger", LARGER, rounds=1, times=(5, 60, 20)),
    "rate": rate,
    "elsewhere": elsewhere,
    "allocations": allocations,
    "modes": modes,
    "model": model,
}

if __name__ == "__main__":
    sys.exit(experiment.run(__file__, PARTS))
