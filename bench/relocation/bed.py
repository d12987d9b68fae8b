"""The published experiment's server: pgbench_accounts, ten indexes on a slow disk, and little memory."""
import contextlib
import pathlib

from cluster import run, value
from load import Load
from memory import MemoryGroup
from slowdisk import SlowDisk

SCALE = 30
DISK_MIB = 3072
READ_IOPS = 120
MEMORY_MIB = 96
SLOW, FAST = "hdd", "ssd"
INDEXES = 10
TABLE = "pgbench_accounts"
UPDATE = pathlib.Path(__file__).with_name("update.sql")
SETTINGS = {
    "shared_preload_libraries": "pgscale",
    "shared_buffers": "16MB",
    # clear of the limit: whoever exceeds it is killed, and all servers' processes with it
    "maintenance_work_mem": "16MB",
    "max_parallel_maintenance_workers": 0,
    "max_connections": 20,
    # what relocation_plan measures by
    "track_io_timing": "on",
    # as published
    "bgwriter_lru_maxpages": 0,
}


@contextlib.contextmanager
def slow_bed(place, scale):
    with SlowDisk(place.folder / "slow", DISK_MIB) as disk, MemoryGroup() as memory, \
            Bed(place, scale, disk, memory).running() as bed:
        yield bed


class Bed:
    """The table is unlogged and on the fast disk."""

    def __init__(self, place, scale, disk, memory):
        self.place = place
        self.scale = scale
        self.disk = disk
        self.memory = memory
        self.server = place.cluster("relocation", **SETTINGS)

    @contextlib.contextmanager
    def running(self):
        with self.server, contextlib.closing(self.server.connect()) as self.connection:
            self.memory.take(self.server.process.pid)
            self.server.create_pgscale(self.connection)
            for name, folder in ((SLOW, self.disk.path / SLOW), (FAST, self.place.folder / FAST)):
                folder.mkdir()
                self.place.give(folder)
                run(self.connection, f"CREATE TABLESPACE {name} LOCATION '{folder}'")
            self.server.pgbench("-i", "-s", self.scale, "-q", "--unlogged-tables")
            for number in range(1, 9):
                run(self.connection, f"CREATE INDEX {TABLE}_aid_{number} ON {TABLE} (aid) TABLESPACE {SLOW}")
            run(self.connection, f"CREATE INDEX {TABLE}_abalance ON {TABLE} (abalance) TABLESPACE {SLOW}")
            try:
                yield self
            finally:
                self.lift()

    def lift(self):
        self.disk.lift()
        self.memory.lift()

    def reset(self):
        """The indexes anew on the slow disk, and a full cache; then the limits."""
        self.lift()
        run(self.connection, f"REINDEX (TABLESPACE {SLOW}) TABLE {TABLE}")
        self.memory.limit(MEMORY_MIB)
        # a disk of 120 reads/s would take minutes to fill the cache
        with self.load():
            value(self.connection, "SELECT pg_sleep(8)")
        self.disk.slow(read_iops=READ_IOPS)

    def load(self, rate=None):
        """One client that updates random rows, at once or at a rate."""
        pace = ("-R", rate) if rate else ()
        return Load(self.server, "-f", UPDATE, "-s", self.scale, "-c", 1, *pace, log=True)

    def on_slow(self):
        """The relations that are on the slow disk."""
        return [name for name, in run(self.connection, "SELECT c.oid::regclass::text FROM pg_class c JOIN pg_tablespace t"
                                                       " ON t.oid = c.reltablespace WHERE spcname = %s", SLOW)]

    def bytes(self):
        """Of the table, and of its indexes."""
        return run(self.connection, "SELECT pg_table_size(%s), pg_indexes_size(%s)", TABLE, TABLE)[0]
