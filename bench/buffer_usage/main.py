"""The experiment on what is in memory: see run and README.md."""
import sys

import experiment

import beside
import os_cache
import sample
import summary
import usage

PARTS = {"usage": usage, "sample": sample, "beside": beside, "os_cache": os_cache, "summary": summary}

if __name__ == "__main__":
    sys.exit(experiment.run(__file__, PARTS))
