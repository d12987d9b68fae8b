"""The experiment on WAL: see run and README.md."""
import sys

import experiment

from parts import PARTS

if __name__ == "__main__":
    sys.exit(experiment.run(__file__, PARTS))
