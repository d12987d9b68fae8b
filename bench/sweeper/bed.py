"""The servers of this experiment: pgbench's tables on the fast or the slow disk, the same at every start.

The data are loaded once; each start works on a copy of them, so that no variant finds what another has left, neither a
grown table nor a long WAL. The WAL always lies on the fast disk.
"""
import contextlib
import os
import signal
import time

from cluster import run, say, value
from load import Load
from slowdisk import SlowDisk

SCALE = 28
DISK_MIB = 3072
WRITE_IOPS = 300
CLIENTS = 8
TPCB = ("-M", "prepared", "-c", CLIENTS, "-j", 2)

COMMON = {
    "shared_buffers": "256MB",
    "max_wal_size": "16GB",
    "synchronous_commit": "on",
    "max_connections": 50,
    # two sweepers with all their writers
    "max_worker_processes": 32,
}

STOCK, BGWRITER, SWEEPER = "stock", "bgwriter", "sweeper"
PRELOADED = {"shared_preload_libraries": "pgscale"}
# as its documentation says
SWEEPING = {"pgscale.sweeper": "on", "bgwriter_lru_maxpages": 0}
# What each variant differs in from a server's defaults
VARIANTS = {
    STOCK: {},
    BGWRITER: {"bgwriter_delay": "10ms", "bgwriter_lru_maxpages": 1000, "bgwriter_lru_multiplier": 4},
    SWEEPER: {**PRELOADED, **SWEEPING},
}


@contextlib.contextmanager
def slow_bed(place, name):
    with SlowDisk(place.folder / f"{name}-disk", DISK_MIB) as disk:
        yield Bed(place, name, disk)


class Bed:
    """A server whose data start anew, on the fast disk or on a slow one, which is as fast until slow() is called."""

    def __init__(self, place, name, disk=None):
        self.place = place
        self.disk = disk
        base = disk.path if disk else place.folder
        if disk:
            place.give(base)
        self.wal = place.folder / f"{name}-wal"
        self.server = place.cluster(name, base / f"{name}-data", self.wal, **COMMON)
        self.turned = self.server.folder / "turned.conf"
        self._load()

    def _load(self):
        # what is set in turns lies on the fast disk: ALTER SYSTEM would wait for the slow one
        self.turned.touch()
        with open(self.server.data / "postgresql.conf", "a") as conf:
            conf.write(f"include '{self.turned}'\n")
        say(f"loading scale {SCALE}")
        with self.server, contextlib.closing(self.server.connect()) as connection:
            self.server.pgbench("-i", "-s", SCALE, "-q")
            run(connection, "CREATE EXTENSION pg_buffercache; CREATE EXTENSION pg_prewarm")
            self.bytes = value(connection, "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class"
                                           " WHERE relname ~ '^pgbench_' AND relkind = 'r'")
        self.copies = {self.server.data: self.place.folder / f"{self.server.name}-copy-data",
                       self.wal: self.place.folder / f"{self.server.name}-copy-wal"}
        for path, copy in self.copies.items():
            self.place.run(["/bin/cp", "-a", "--reflink=auto", path, copy])

    def _restore(self):
        for path, copy in self.copies.items():
            self.place.run(["/bin/rm", "-rf", path])
            self.place.run(["/bin/cp", "-a", "--reflink=auto", copy, path])

    @contextlib.contextmanager
    def running(self, **settings):
        """Yields a connection to the server, which has started on the data as they were loaded."""
        self._restore()
        try:
            self.turned.write_text("")
            self.server.start(**settings)
            with contextlib.closing(self.server.connect()) as connection:
                if "shared_preload_libraries" in settings:
                    self.server.create_pgscale(connection)
                yield connection
        finally:
            self.lift()
            self.server.stop()

    def set(self, **settings):
        """Changes settings of the running server; those that are left out return to their defaults."""
        self.turned.write_text("".join(f"{name} = '{setting}'\n" for name, setting in settings.items()))
        os.kill(self.server.process.pid, signal.SIGHUP)

    def fill(self, connection, seconds):
        """Leaves no buffer that was never used, and then dirties pages faster than the slow disk would let it."""
        run(connection, "SELECT pg_prewarm(oid) FROM pg_class WHERE relname ~ '^pgbench_' AND relkind IN ('r', 'i')")
        self.server.pgbench("-n", *TPCB, "-T", seconds)

    def slow(self, dirty_mib):
        """Makes the slow disk slow."""
        if self.disk:
            self.disk.slow(write_iops=WRITE_IOPS, dirty_mib=dirty_mib)

    def lift(self):
        if self.disk:
            self.disk.lift()

    @contextlib.contextmanager
    def loaded(self, connection, fill, dirty_mib, *options, log=False):
        """Fills the buffers, makes the disk slow if it can be, and yields a pgbench that runs."""
        self.fill(connection, fill)
        self.slow(dirty_mib)
        with Load(self.server, *options, log=log) as load:
            try:
                yield load
            finally:
                self.lift()

    def wake_checkpointer(self):
        """It hands in what it counts for the backends only when something wakes it."""
        os.kill(self.server.worker("checkpointer"), signal.SIGHUP)
        time.sleep(0.2)
