"""The experiment on replacement: see run and README.md."""
import sys

import begins
import experiment
import keep
import paces
import real
import simulator
import traces
import without
import writes

PARTS = {"simulator": simulator, "without": without, "paces": paces, "traces": traces, "writes": writes, **real.PARTS,
         "begins": begins.Begins(), "keep": keep}

if __name__ == "__main__":
    sys.exit(experiment.run(__file__, PARTS))
