"""Misses of known algorithms in each window of a trace, as JSON: the implementations of libcachesim.

known.py TRACE BUFFERS: simulator.py runs it with the Python that has the library.
"""
import json
import pathlib
import sys

import libcachesim
import numpy

ALGORITHMS = {"LRU": libcachesim.LRU, "2Q": libcachesim.TwoQ, "ARC": libcachesim.ARC, "S3-FIFO": libcachesim.S3FIFO,
              "SIEVE": libcachesim.Sieve, "LIRS": libcachesim.LIRS, "Belady": libcachesim.Belady}
# the library's format for algorithms that know the future
RECORD = [("second", "<u4"), ("object", "<u8"), ("bytes", "<u4"), ("next use", "<i8")]


def next_uses(references):
    """The number of the next reference to the same page, from 1 on; -1 if there is none."""
    order = numpy.argsort(references, kind="stable")
    found = numpy.full(len(references), -1, dtype=numpy.int64)
    again = references[order[1:]] == references[order[:-1]]
    found[order[:-1][again]] = order[1:][again] + 1
    return found


def main(trace, buffers):
    references = numpy.fromfile(trace, dtype="<u4")
    records = numpy.zeros(len(references), dtype=RECORD)
    records["object"], records["bytes"], records["next use"] = references + 1, 1, next_uses(references)
    file = pathlib.Path(trace).with_suffix(".oracleGeneral")
    records.tofile(file)
    reader = libcachesim.TraceReader(str(file), libcachesim.TraceType.ORACLE_GENERAL_TRACE)
    found = {}
    for name, algorithm in ALGORITHMS.items():
        cache = algorithm(buffers, hashpower=18)
        found[name] = [round(cache.process_trace(reader, first, buffers)[0] * buffers)
                       for first in range(0, len(references), buffers)]
    file.unlink()
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
