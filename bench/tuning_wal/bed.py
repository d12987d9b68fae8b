"""The servers of this experiment: pgbench's tables in shared buffers, and WAL on the fast or on a slow disk."""
import contextlib

import advice
from cluster import run
from copied import CopiedServer
from load import Load
from slowdisk import SlowDisk

SCALE = 20
CLIENTS = 16
WRITE_IOPS = 1000
DISK_MIB = 8192
SETTINGS = {
    "shared_buffers": "1GB",
    "max_wal_size": "6GB",
    # segments are there to be used again, as in a server that has worked for long
    "min_wal_size": "2GB",
    "synchronous_commit": None,
    "max_connections": 50,
}
PREPARED = ("-M", "prepared", "-c", CLIENTS, "-j", 2)
SIMPLE = (*PREPARED, "-N")


class Bed(CopiedServer):
    """Its settings lie in a file, so that they can change while the load runs."""

    def __init__(self, place, name, disk=None, **more):
        super().__init__(place, name, SCALE, disk, wal_on_disk=disk is not None, data_on_disk=False, **SETTINGS, **more)

    @contextlib.contextmanager
    def serving(self, options, settings):
        """The server under load, with these settings at first. Yields the load."""
        with self.running(settings, shared_preload_libraries="pgscale") as connection:
            self.connection = connection
            run(connection, "SELECT pg_prewarm(oid) FROM pg_class"
                            " WHERE relname ~ '^(pgbench_|wide)' AND relkind IN ('r', 'i')")
            # each page's first change after a checkpoint logs all of it: not in what is measured
            self.server.pgbench("-n", *options, "-T", 5)
            if self.disk:
                self.disk.slow(write_iops=WRITE_IOPS)
            with Load(self.server, *options) as load:
                yield load

    def efficiency(self, seconds):
        return advice.efficiency(self.connection, seconds)


@contextlib.contextmanager
def bed_of(place, name, slow, sql, initdb):
    with contextlib.ExitStack() as undo:
        disk = undo.enter_context(SlowDisk(place.folder / f"{name}-disk", DISK_MIB)) if slow else None
        yield Bed(place, name, disk, sql=sql, initdb=initdb)
