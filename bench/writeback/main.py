"""The experiment on the kernel's writeback: see run and README.md."""
import sys

import experiment

import freeze
import zone

PARTS = {"freeze": freeze, "zone": zone}

if __name__ == "__main__":
    sys.exit(experiment.run(__file__, PARTS))
