"""The experiment on pgscale.now: see run and README.md."""
import sys

import experiment

import cost
import healthy
import nights
import rules

PARTS = {"nights": nights, "healthy": healthy, "rules": rules, "cost": cost}

if __name__ == "__main__":
    sys.exit(experiment.run(__file__, PARTS))
