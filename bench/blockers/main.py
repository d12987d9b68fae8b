"""The experiment on blockers: see run and README.md."""
import sys

import experiment

import case

PARTS = {"case": case}

if __name__ == "__main__":
    sys.exit(experiment.run(__file__, PARTS))
