"""The servers of this experiment: pgbench's tables, eight times the buffers.

Limited: on a disk of few reads a second, or of few reads and few writes, and with little memory for the kernel's cache, so that
a miss in shared buffers is a read of the disk. Unlimited: all data in the kernel's cache. The WAL always lies on the fast disk.
"""
import contextlib
import os
import time
from typing import NamedTuple

from cluster import run, value
from copied import CopiedServer
from memory import MemoryGroup
from slowdisk import SlowDisk

# what a disk may do; of writes also what the kernel may have in memory, or the disk would look fast for a while
FEW_READS = {"read_iops": 4000}
FEW_WRITES = {**FEW_READS, "write_iops": 300, "dirty_mib": 4}
DISK_MIB = 5120
# memory of the server beyond shared_buffers: its processes, and the kernel's cache of all its files
ROOM_MIB = 112
# how often all buffers have been taken anew before what counts
TURNOVERS = 10

# every access by an index, and nothing at work but the sessions
SETTINGS = {
    "max_wal_size": "16GB",
    "max_connections": 50,
    "max_worker_processes": 32,
    "max_parallel_workers_per_gather": 0,
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "jit": "off",
}
PRELOADED = {"shared_preload_libraries": "pgscale"}

OFF, AGAIN, ON, BY_ITSELF = "off", "off again", "on", "by itself"


class Size(NamedTuple):
    scale: int
    buffers_mib: int


FULL, QUICK = Size(70, 128), Size(9, 16)


def settings_of(condition):
    """Of a turn. The sweeper works all the time, so that it is not its decisions that are measured, or it decides by itself."""
    if condition in (OFF, AGAIN):
        return {}
    if condition == BY_ITSELF:
        return {"pgscale.sweeper": "auto"}
    return {"pgscale.sweeper": "on"}


@contextlib.contextmanager
def limited_bed(place, name, size, limits=FEW_READS):
    with SlowDisk(place.folder / f"{name}-disk", DISK_MIB) as disk, MemoryGroup() as memory:
        yield Bed(place, name, size, disk, memory, limits)


class Bed(CopiedServer):
    def __init__(self, place, name, size, disk=None, memory=None, limits=None):
        self.memory = memory
        self.limits = limits
        # room for new versions in each page
        super().__init__(place, name, size.scale, disk, load=("-F", 90), shared_buffers=f"{size.buffers_mib}MB", **SETTINGS)
        self.rows = size.scale * 100000
        self.branches = size.scale

    @contextlib.contextmanager
    def running_with(self, buffers_mib):
        """Yields a connection; the buffers are full."""
        with self.running(**PRELOADED, shared_buffers=f"{buffers_mib}MB") as connection:
            self.buffers = buffers_mib * 128
            self.pages = value(connection, "SELECT pg_relation_size('pgbench_accounts') / 8192")
            try:
                if self.memory:
                    self._forget()
                    self.memory.take(self.server.process.pid)
                    self.memory.limit(buffers_mib + ROOM_MIB)
                run(connection, "SELECT pg_prewarm('pgbench_accounts', last_block => %s)", min(self.buffers, self.pages) - 1)
                yield connection
            finally:
                if self.memory:
                    self.memory.lift()

    def _forget(self):
        """Empties the kernel's cache of the data, which the copying has filled: it counts for no server's limit."""
        self.disk.sync()
        for file in self.server.data.rglob("*"):
            if file.is_file():
                with open(file, "rb") as data:
                    os.posix_fadvise(data.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)

    def slow(self):
        if self.disk:
            self.disk.slow(**self.limits)

    def turn_over(self, connection, times, seconds):
        """Waits until the buffers have been taken that many times, or for that many seconds."""
        began, before, taken = time.monotonic(), allocations(connection), 0
        while taken < times and time.monotonic() - began < seconds:
            time.sleep(0.2)
            taken = (allocations(connection) - before) / self.buffers


def allocations(connection):
    """Buffers that sessions took, with or without the sweeper: the background writer counts them."""
    return value(connection, "SELECT buffers_alloc FROM pg_stat_bgwriter")
