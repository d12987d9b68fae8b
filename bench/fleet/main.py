"""The experiment on fleets: see run and README.md."""
import sys

import experiment

import failover

PARTS = {"failover": failover}

if __name__ == "__main__":
    sys.exit(experiment.run(__file__, PARTS))
