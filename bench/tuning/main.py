"""The experiment on tuning: see run and README.md."""
import sys

import experiment

import quiet
import trial

PARTS = {"cases": trial, "quiet": quiet}

if __name__ == "__main__":
    sys.exit(experiment.run(__file__, PARTS))
