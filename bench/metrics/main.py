"""The experiment on metrics: see run and README.md."""
import sys

import experiment

import alerts

PARTS = {"alerts": alerts}

if __name__ == "__main__":
    sys.exit(experiment.run(__file__, PARTS))
