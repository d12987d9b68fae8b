"""References to pages, recorded from a real server: see recorder/.

The server is built from its unchanged source, configured with --enable-dtrace; what takes the place of dtrace makes the probe at
the end of a page's read call a function that writes the page's name into a file. So a reference is a call of ReadBuffer(): a page that
is read again while its pin is kept counts once, and what a ring of buffers reads (VACUUM, COPY, scans of large tables) is recorded
apart.
"""
import contextlib
import copy
import pathlib
import subprocess
import time

import numpy

import loads
import tpcc
from cluster import TREE, run, say, value

MAJOR = 15
CLIENTS = 4
SCALE = 24
TABLES, ROWS = 4, 200000
HEADER = 32             # bytes; as in recording.h
ENTRY = numpy.dtype([("db", "<u4"), ("relation", "<u4"), ("block", "<u4"), ("fork", "u1"), ("extends", "u1"), ("by_ring", "u1"),
                     ("written", "u1")])
MIB = 128               # pages
VACUUM = "VACUUM pgbench_accounts, pgbench_tellers, pgbench_branches;\n"
SETTINGS = {"shared_buffers": "1GB", "max_wal_size": "16GB", "jit": "off", "max_parallel_workers_per_gather": 0, "fsync": "off",
            "enable_seqscan": "off", "enable_bitmapscan": "off"}


NAMED = {load.name: load for load in (loads.ZIPF, *loads.GAINS, *loads.NEUTRAL)}


def _pgbench(scripts, buffers, **more):
    return {"scripts": scripts, "buffers": buffers * MIB, **more}


# pages of the cache that is simulated: 1/8 to 1/2 of those that the load refers to
LOADS = {
    "zipf 1.05": _pgbench(NAMED["zipf 1.05"].scripts, 64),
    "zipf 1.05 and index scans": _pgbench(NAMED["zipf 1.05 and index scans"].scripts, 64),
    "TPC-B": _pgbench({"@tpcb-like": (None, 1)}, 64),
    "TPC-B, zipf 1.05, VACUUM": _pgbench({**NAMED["TPC-B, zipf 1.05"].scripts, "vacuum": (VACUUM, 0.001)}, 64),
    "sysbench read_write": {"sysbench": "oltp_read_write", "buffers": 40 * MIB},
    "five transactions like TPC-C's": _pgbench({name: (text, tpcc.WEIGHTS[name]) for name, text in tpcc.SCRIPTS.items()}, 32, sql=tpcc.SETUP),
    "recent rows": _pgbench(NAMED["recent rows"].scripts, 64, tables=NAMED["recent rows"].tables),
}


def server_folder():
    """Of the server that records; it is built unless it was."""
    say("a server that records")
    return pathlib.Path(subprocess.run([TREE / ".ci" / "source", str(MAJOR), "recorder"], check=True, stdout=subprocess.PIPE,
                                       text=True).stdout.strip()) / "installed"


class Recorder:
    """A server whose references to pages are recorded."""

    def __init__(self, place):
        self.place = copy.copy(place)
        self.place.bindir = server_folder() / "bin"
        self.server = self.place.cluster("recorded", **SETTINGS)
        self.file = self.server.data / "recording"

    @contextlib.contextmanager
    def running(self):
        """The server with pgbench's and sysbench's tables."""
        with self.server:
            say(f"loading scale {SCALE}")
            self.server.pgbench("-i", "-s", SCALE, "-q", "-F", 90)
            self.place.run(self._sysbench("oltp_read_write", "prepare"))
            yield

    def _sysbench(self, script, *more):
        return ["/usr/bin/env", "sysbench", "--db-driver=pgsql", "--pgsql-db=postgres", f"--pgsql-host={self.server.folder}",
                "--pgsql-user=postgres", f"--tables={TABLES}", f"--table-size={ROWS}", f"--threads={CLIENTS}", "--rand-type=pareto",
                script, *more]

    def _command(self, name, load, connection):
        if "sysbench" in load:
            return self._sysbench(load["sysbench"], "--time=3600", "run")
        words = []
        for script, (text, weight) in load["scripts"].items():
            if text is None:
                words += ["-b", script[1:]]
                continue
            weight = max(int(weight * 1000), 1)
            words += ["-f", f"{self.place.script(f'{script}.sql', text)}@{weight}"]
        pages = value(connection, "SELECT pg_relation_size('pgbench_accounts') / 8192")
        variables = {"rows": SCALE * 100000, "branches": SCALE, "n": 0, "oldest": loads.oldest(load["buffers"]), "pages": pages}
        return ["pgbench", "-h", self.server.folder, "-U", "postgres", "-n", "-s", SCALE, "-M", "prepared", "-c", CLIENTS, "-j", 2, "-T", 3600,
                *(word for variable, at in variables.items() for word in ("-D", f"{variable}={at}")), *words, "postgres"]

    def record(self, name, references):
        """Runs a load until that many references are recorded.  Returns the entries."""
        load = LOADS[name]
        room = HEADER + references * ENTRY.itemsize
        with contextlib.closing(self.server.connect()) as connection:
            for statement in (load.get("sql", "").split(";\n") + (load["tables"](load["buffers"]) if "tables" in load else [])):
                if statement.strip():
                    run(connection, statement)
            with open(self.file, "wb") as new:
                new.truncate(room)
            self.place.give(self.file)
            header = numpy.memmap(self.file, dtype="<u8", mode="r+", shape=(4,))
            header[:3] = 0, references, 1
            process = self.place.popen(self._command(name, load, connection), stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            try:
                while header[0] < references and process.poll() is None:
                    time.sleep(0.1)
                header[2] = 0
                if process.poll() is not None:
                    raise RuntimeError(f"{name} ended:\n{process.stderr.read()[-2000:]}")
            finally:
                process.terminate()
                process.wait()
        entries = numpy.fromfile(self.file, dtype=ENTRY, offset=HEADER)
        self.file.unlink()
        return entries[entries["written"] == 1]


def save(entries, file):
    """What the simulator reads: a number for each reference's page.  Returns how many pages there are."""
    key = entries["relation"].astype("u8") << 34 | entries["fork"].astype("u8") << 32 | entries["block"]
    pages, numbers = numpy.unique(key, return_inverse=True)
    numbers.astype("<u4").tofile(file)
    return len(pages)
