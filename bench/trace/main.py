"""The experiment on traces: see run and README.md."""
import sys

import experiment

import case
import cost
import timeline
import truth

PARTS = {"truth": truth, "cost": cost, "timeline": timeline, "case": case}

if __name__ == "__main__":
    sys.exit(experiment.run(__file__, PARTS))
