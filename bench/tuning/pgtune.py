"""What pgtune would set: from the hardware and the kind of load alone.

The formulas are those of github.com/le0pard/pgtune (MIT license), src/features/configuration/configurationSlice.js at
commit 01bb6447113831159c5f14fafe11f59cf2ba0964, for Linux and what this experiment asks for: OLTP on an SSD.
"""
import dataclasses
import math
import os

KIB_A_MIB = 1024
KIB_A_GIB = 1024 * KIB_A_MIB

# setting: share of the memory
OF_MEMORY = {"shared_buffers": 1 / 4, "effective_cache_size": 3 / 4, "maintenance_work_mem": 1 / 16}
MAX_MAINTENANCE_KIB = 8 * KIB_A_GIB
AUTOVACUUM_KIB = 2 * KIB_A_GIB
HUGE_PAGES_KIB = 2 * KIB_A_GIB
# 3 % of shared_buffers, rounded up when it is nearly the most
WAL_BUFFERS = 0.03
LEAST_WAL_BUFFERS_KIB, NEARLY_MOST_KIB, MOST_WAL_BUFFERS_KIB = 32, 14 * KIB_A_MIB, 16 * KIB_A_MIB
LEAST_WORK_MEM_KIB = 4 * KIB_A_MIB
MAX_WORKER_PROCESSES = 8            # PostgreSQL's default
CORES_TO_BE_PARALLEL = 4
# cores: autovacuum_max_workers
AUTOVACUUM_WORKERS = ((32, 5), (16, 4))
FIXED = {
    "min_wal_size": "2GB",
    "max_wal_size": "8GB",
    "checkpoint_completion_target": 0.9,
    "default_statistics_target": 100,
    "random_page_cost": 1.1,
    "effective_io_concurrency": 200,
    "jit": "off",
    "wal_compression": "lz4",
}


@dataclasses.dataclass(frozen=True)
class Machine:
    gib: int
    cores: int

    @classmethod
    def this(cls):
        return cls(math.floor(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30), os.cpu_count())


def _wal_buffers(shared_buffers):
    kib = min(math.floor(WAL_BUFFERS * shared_buffers), MOST_WAL_BUFFERS_KIB)
    return MOST_WAL_BUFFERS_KIB if kib > NEARLY_MOST_KIB else max(kib, LEAST_WAL_BUFFERS_KIB)


def _parallel(cores):
    if cores < CORES_TO_BE_PARALLEL:
        return {}
    half = min(math.ceil(cores / 2), 4)
    return {"max_worker_processes": cores, "max_parallel_workers": cores, "max_parallel_workers_per_gather": half,
            "max_parallel_maintenance_workers": half}


def settings(machine, connections):
    """For a server of 15 or newer."""
    memory = machine.gib * KIB_A_GIB
    kib = {name: math.floor(share * memory) for name, share in OF_MEMORY.items()}
    kib["maintenance_work_mem"] = min(kib["maintenance_work_mem"], MAX_MAINTENANCE_KIB)
    if kib["maintenance_work_mem"] >= AUTOVACUUM_KIB:
        kib["autovacuum_work_mem"] = AUTOVACUUM_KIB
    kib["wal_buffers"] = _wal_buffers(kib["shared_buffers"])
    parallel = _parallel(machine.cores)
    users = connections + parallel.get("max_worker_processes", MAX_WORKER_PROCESSES)
    kib["work_mem"] = max(math.floor((memory - kib["shared_buffers"]) / (users * 3)), LEAST_WORK_MEM_KIB)
    workers = next((workers for cores, workers in AUTOVACUUM_WORKERS if machine.cores >= cores), None)
    return {
        "max_connections": connections,
        **{name: f"{value}kB" for name, value in kib.items()},
        "huge_pages": "try" if kib["shared_buffers"] >= HUGE_PAGES_KIB else "off",
        **FIXED,
        **parallel,
        **({"autovacuum_max_workers": workers} if workers else {}),
    }
