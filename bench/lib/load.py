"""A pgbench beside something else, what it says of each second and each transaction, and loads of several folders."""
import contextlib
import re
import signal
import subprocess

import numpy

from cluster import end

PERCENTILES = {"p50": 50, "p95": 95, "p99": 99, "p99.9": 99.9, "max": 100}

# sessions that want the rows of a table, and a statement that holds one of them
STOCK = """
CREATE TABLE stock (product int PRIMARY KEY, amount int);
INSERT INTO stock SELECT i, 1000000 FROM generate_series(1, 20) i;
CREATE ROLE shop LOGIN;
CREATE ROLE reports LOGIN;
GRANT ALL ON stock TO shop, reports;
"""
UPDATE_STOCK = "\\set product random(1, 20)\nUPDATE stock SET amount = amount - 1 WHERE product = :product;\n"
HOLD_STOCK = "UPDATE stock SET amount = amount - 10 WHERE product = 7"
OF_ALL_PARTITIONS = "\\set k random(1, 10000)\nSELECT v FROM parted WHERE other = :k;\n"


def parted(partitions):
    """A table by hash, with an index each, so that a query of all partitions locks twice as many relations."""
    return "CREATE TABLE parted (k int, other int, v text) PARTITION BY HASH (k);" + "".join(
        f"CREATE TABLE parted{number} PARTITION OF parted FOR VALUES WITH (MODULUS {partitions}, REMAINDER {number});"
        for number in range(partitions)) + \
        "INSERT INTO parted SELECT i, i, 'x' FROM generate_series(1, 10000) i; CREATE INDEX ON parted (other);"


def sysbench(folder, rows, *words, user="postgres"):
    """The command, for four tables of that many rows."""
    return ["/usr/bin/env", "sysbench", "--db-driver=pgsql", "--pgsql-db=postgres", f"--pgsql-host={folder}",
            f"--pgsql-user={user}", "--tables=4", f"--table-size={rows}", *words]


@contextlib.contextmanager
def busy_loops(place, number):
    loops = [place.popen(["/bin/sh", "-c", "while :; do :; done"]) for _ in range(number)]
    try:
        yield
    finally:
        for loop in loops:
            end(loop)


class Load:
    """with Load(server, *options) as load: ...; its transactions are known afterwards, its seconds at once.

    A client that has an error ends, and so does the experiment, unless that may_fail.
    """

    def __init__(self, server, *options, log=False, may_fail=False):
        self.server = server
        self.options = options
        self.may_fail = may_fail
        self.folder = server.place.folder
        self.progress = self.folder / f"{server.name}.progress"
        if log:
            self.options += ("-l", f"--log-prefix={self.folder / server.name}.log")

    def __enter__(self):
        with open(self.progress, "w") as progress:
            self.process = self.server.place.popen(
                ["pgbench", "-h", self.server.folder, "-U", "postgres", "-n", *self.options, "-T", 3600, "-P", 1,
                 "--progress-timestamp", "postgres"], stdout=subprocess.DEVNULL, stderr=progress)
        return self

    def __exit__(self, kind, *exc):
        # pgbench's own alarm clock: it ends after the transactions that are under way, and writes the whole log
        self.process.send_signal(signal.SIGALRM if kind is None else signal.SIGTERM)
        code = self.process.wait()
        # the alarm ends one that has not begun
        if kind is None and code not in (0, -signal.SIGALRM) and not self.may_fail:
            raise RuntimeError(f"pgbench ended with {code}:\n{self.progress.read_text()[-2000:]}")

    def errors(self, message):
        """How many clients have ended with this error."""
        return self.progress.read_text().count(message)

    def tps(self, began, ended):
        """The mean of the whole seconds between two times."""
        seconds = re.findall(r"progress: ([\d.]+) s, ([\d.]+) tps", self.progress.read_text())
        return float(numpy.mean([float(tps) for at, tps in seconds if began <= float(at) - 1 and float(at) <= ended]))

    def transactions(self):
        """When each one ended and how many milliseconds it took, from when it was due if there is a rate.

        One that met a deadlock has no time and is left out.
        """
        found = []
        for log in self.folder.glob(f"{self.server.name}.log.*"):
            with open(log) as lines:
                found.append(numpy.loadtxt((line for line in lines if "failed" not in line), usecols=(2, 4, 5), ndmin=2))
            log.unlink()
        us, seconds, fraction = numpy.concatenate(found).T
        return seconds + fraction / 1e6, us / 1000


def latencies(ms):
    return {name: float(numpy.percentile(ms, rank)) for name, rank in PERCENTILES.items()}
