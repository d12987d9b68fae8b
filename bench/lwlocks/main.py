"""The experiment on LWLocks: see run and README.md."""
import sys

import experiment

import case
import cost
import partitions
import writes

PARTS = {"writes": writes, "partitions": partitions, "cost": cost, "case": case}

if __name__ == "__main__":
    sys.exit(experiment.run(__file__, PARTS))
