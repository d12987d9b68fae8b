"""The experiment on the archive: see run and README.md."""
import sys

import experiment

import cost
import day
import incident
import readers
import rows

PARTS = {"incident": incident, "day": day, "cost": cost, "rows": rows, "readers": readers}

if __name__ == "__main__":
    sys.exit(experiment.run(__file__, PARTS))
