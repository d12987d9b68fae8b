"""The experiments on moving indexes and tables between tablespaces: see run and README.md."""
import sys

import experiment

import both
import live
import many
import move
import stall
import synchronous

PARTS = {"move": move, "stall": stall, **live.PARTS, "live_both": both, "synchronous": synchronous,
         "many": many}

if __name__ == "__main__":
    sys.exit(experiment.run(__file__, PARTS))
