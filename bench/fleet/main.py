"""The experiment on fleets: see run and README.md."""
import sys

import experiment

import failover
import powa

PARTS = {"failover": failover, "powa": powa}

if __name__ == "__main__":
    sys.exit(experiment.run(__file__, PARTS))
