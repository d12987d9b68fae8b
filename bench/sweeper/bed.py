"""The servers of this experiment: pgbench's tables on the fast or the slow disk. The WAL always lies on the fast disk."""
import contextlib

from cluster import run
from copied import CopiedServer
from load import Load
from slowdisk import SlowDisk

SCALE = 28
DISK_MIB = 3072
WRITE_IOPS = 300
# MiB that the kernel may keep dirty of the slow disk
DIRTY_MIB = 4
CLIENTS = 8
TPCB = ("-M", "prepared", "-c", CLIENTS, "-j", 2)

COMMON = {
    "shared_buffers": "256MB",
    "max_wal_size": "16GB",
    "synchronous_commit": "on",
    "max_connections": 50,
    # a sweeper with all its writers
    "max_worker_processes": 32,
}

STOCK, BGWRITER, SWEEPER = "stock", "bgwriter", "sweeper"
PRELOADED = {"shared_preload_libraries": "pgscale"}
# What a server that has loaded pgscale may be switched to
TURNS = {STOCK: {}, SWEEPER: {"pgscale.sweeper": "auto"}}
# What each variant differs in from a server's defaults
VARIANTS = {
    STOCK: {},
    BGWRITER: {"bgwriter_delay": "10ms", "bgwriter_lru_maxpages": 1000, "bgwriter_lru_multiplier": 4},
    SWEEPER: {**PRELOADED, **TURNS[SWEEPER]},
}


@contextlib.contextmanager
def slow_bed(place, name):
    with SlowDisk(place.folder / f"{name}-disk", DISK_MIB) as disk:
        yield Bed(place, name, disk)


class Bed(CopiedServer):
    """A server of this experiment, on the fast disk or on a slow one."""

    def __init__(self, place, name, disk=None):
        super().__init__(place, name, SCALE, disk, **COMMON)

    def fill(self, connection, seconds):
        """Leaves no buffer that was never used, and then dirties pages faster than the slow disk would let it."""
        run(connection, "SELECT pg_prewarm(oid) FROM pg_class WHERE relname ~ '^pgbench_' AND relkind IN ('r', 'i')")
        self.server.pgbench("-n", *TPCB, "-T", seconds)

    def slow(self):
        """Makes the slow disk slow."""
        if self.disk:
            self.disk.slow(write_iops=WRITE_IOPS, dirty_mib=DIRTY_MIB)

    @contextlib.contextmanager
    def loaded(self, connection, fill, *options, log=False):
        """Fills the buffers, makes the disk slow if it can be, and yields a pgbench that runs."""
        self.fill(connection, fill)
        self.slow()
        with Load(self.server, *options, log=log) as load:
            try:
                yield load
            finally:
                self.lift()
