"""The experiment on moving indexes between tablespaces: see run and README.md."""
import sys

import experiment

import move
import stall

PARTS = {"move": move, "stall": stall}

if __name__ == "__main__":
    sys.exit(experiment.run(__file__, PARTS))
