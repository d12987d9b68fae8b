"""The sampler's experiment: see run and README.md."""
import sys

import experiment

import clock
import cost
import readers
import schedule
import tps
import truth

PARTS = {"truth": truth, "clock": clock, "cost": cost, "tps": tps, "schedule": schedule, "readers": readers}

if __name__ == "__main__":
    sys.exit(experiment.run(__file__, PARTS))
