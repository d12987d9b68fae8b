"""The experiment on WAL: see run and README.md."""
import sys

import experiment

import plot
from parts import PARTS

if __name__ == "__main__":
    sys.exit(experiment.run(__file__, PARTS, plot.draw))
