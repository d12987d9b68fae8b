"""The experiment on the scalability law: see run and README.md."""
import sys

import experiment

import noise
import online
import sweep

PARTS = {"sweep": sweep, "online": online, "noise": noise}

if __name__ == "__main__":
    sys.exit(experiment.run(__file__, PARTS))
