"""The tour over the majors: see run and README.md."""
import sys

import cures
import experiment
import sweep

PARTS = {"read": sweep.READ, "write": sweep.WRITE, "async": sweep.ASYNC, "unlogged": sweep.UNLOGGED, "cures": cures}

if __name__ == "__main__":
    sys.exit(experiment.run(__file__, PARTS))
