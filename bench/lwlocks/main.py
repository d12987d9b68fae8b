"""The experiment on LWLocks: see run and README.md."""
import sys

import experiment

import case
import partitions
import writes

PARTS = {"writes": writes, "partitions": partitions, "case": case}

if __name__ == "__main__":
    sys.exit(experiment.run(__file__, PARTS))
