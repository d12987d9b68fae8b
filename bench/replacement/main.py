"""The experiment on replacement: see run and README.md."""
import sys

import experiment

import real
import simulator
import without

PARTS = {"simulator": simulator, "without": without, **real.PARTS}

if __name__ == "__main__":
    sys.exit(experiment.run(__file__, PARTS))
