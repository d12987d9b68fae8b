"""The servers of this experiment: what is wrong with each, under which load and on which disk it hurts."""
import contextlib
import dataclasses

from cluster import run
from copied import CopiedServer
from load import Load
from slowdisk import SlowDisk

CONNECTIONS = 100
PREPARED = ("-M", "prepared", "-j", 2)

# what all of them have that is not wrong: room for what the load works with, and for the WAL of all of a run
WELL = {
    "max_connections": CONNECTIONS,
    "shared_buffers": "512MB",
    "max_wal_size": "8GB",
    "checkpoint_timeout": "15min",
    "synchronous_commit": "on",
}
LOOKUPS = """
SELECT count(*), sum(abalance) FROM pgbench_accounts
 WHERE aid = ANY (ARRAY(SELECT (1 + random() * 1499999)::int FROM generate_series(1, 200)));
"""
# much WAL and few changed pages: updates of wide rows
WIDE = """
    CREATE TABLE wide (id int PRIMARY KEY, filler text) WITH (fillfactor = 40);
    ALTER TABLE wide ALTER filler SET STORAGE plain;
    INSERT INTO wide SELECT id, repeat('x', 3200) FROM generate_series(1, 2000) AS id
"""
WIDE_UPDATE = """\\set id random(1, 2000)
UPDATE wide SET filler = repeat(md5(random()::text), 100) WHERE id = :id;
"""
# set in configuration files, or ALTER SYSTEM could not change them
IN_FILES = dict.fromkeys(("shared_buffers", "max_wal_size", "checkpoint_timeout", "synchronous_commit"))


@dataclasses.dataclass(frozen=True)
class Disk:
    """A slow disk, what lies on it, and how slow it is."""

    limits: dict
    mib: int
    data: bool = True
    wal: bool = True
    said: str = ""


@dataclasses.dataclass(frozen=True)
class Case:
    name: str
    bad: dict                   # the settings that are wrong; beside them all is well
    culprits: tuple             # to name any of them first is right
    cure: dict                  # what to go on with where none of them is advised
    load: tuple                 # pgbench's options
    scale: int
    said: str                   # the load, for the table
    disk: Disk = None
    well: dict = dataclasses.field(default_factory=dict)
    init: tuple = ()            # pgbench's options to load with
    sql: str = ""               # more to load
    scripts: dict = dataclasses.field(default_factory=dict)     # for pgbench, by the names in its options
    restart: bool = False
    metric: str = "tps"         # or a latency
    longer: int = 0             # seconds of evidence more, where what hurts is rare
    settle: int = 5             # seconds before what counts
    short: int = 10             # seconds of a leg that only pgbench measures


CASES = (
    Case("max_wal_size of 64 MB",
         bad={"max_wal_size": "64MB", "min_wal_size": "32MB"},
         culprits=("max_wal_size",),
         cure={"max_wal_size": "4GB"},
         load=(*PREPARED, "-c", 8), scale=10, said="TPC-B, 8 clients",
         disk=Disk({"write_bps": 40_000_000}, mib=6144, said="data and WAL on 40 MB/s"),
         settle=10, short=15),
    Case("wal_buffers of 32 kB",
         bad={"wal_buffers": "32kB"},
         culprits=("wal_buffers",),
         cure={"wal_buffers": "16MB"},
         load=(*PREPARED, "-c", 24, "-f", "wide.sql"), scale=1, said="updates of rows of 3 kB, 24 clients",
         disk=Disk({"write_iops": 2000}, mib=6144, data=False, said="WAL on 2000 writes/s"),
         well={"commit_delay": 1000},
         sql=WIDE, scripts={"wide.sql": WIDE_UPDATE},
         restart=True),
    Case("bgwriter_lru_maxpages of 0",
         bad={"bgwriter_lru_maxpages": 0},
         culprits=("bgwriter_lru_maxpages", "bgwriter_delay", "bgwriter_lru_multiplier"),
         cure={"bgwriter_lru_maxpages": 1000},
         load=(*PREPARED, "-c", 1, "-N"), scale=20, said="simple update, 1 client, synchronous_commit off",
         disk=Disk({"synchronous": True}, mib=3072, wal=False, said="data on a disk mounted with \"sync\""),
         well={"shared_buffers": "64MB", "synchronous_commit": "off"}, init=("-F", 90)),
    Case("flush_after of 0",
         bad={"checkpoint_flush_after": 0, "bgwriter_flush_after": 0},
         culprits=("checkpoint_flush_after", "bgwriter_flush_after", "backend_flush_after"),
         cure={"checkpoint_flush_after": "256kB"},
         load=(*PREPARED, "-c", 12, "-N", "-R", 1000), scale=10, said="simple update, 1000 transactions/s",
         disk=Disk({"write_bps": 20_000_000}, mib=4096, said="data and WAL on 20 MB/s"),
         # or it were page images that the disk is busy with
         well={"checkpoint_timeout": "30s", "wal_compression": "on"}, init=("-F", 90),
         # the first checkpoint by the clock ends after 57 s
         metric="p99", settle=30, short=35, longer=90),
    Case("commit_delay of 0",
         bad={"commit_delay": 0},
         culprits=("commit_delay",),
         cure={"commit_delay": 1000},
         load=(*PREPARED, "-c", 16, "-N"), scale=10, said="simple update, 16 clients",
         disk=Disk({"write_iops": 1000}, mib=6144, data=False, said="WAL on 1000 writes/s")),
    Case("shared_buffers of 16 MB",
         bad={"shared_buffers": "16MB"},
         culprits=("shared_buffers",),
         cure={"shared_buffers": "256MB"},
         load=(*PREPARED, "-c", 4, "-f", "lookups.sql"), scale=15,
         said="200 random rows a transaction, 4 clients", scripts={"lookups.sql": LOOKUPS},
         restart=True),
)


class Bed(CopiedServer):
    """A server of one case. Its settings are in postgresql.conf, or rather in a file that that includes."""

    def __init__(self, place, number, case, disk):
        self.case = case
        on_disk = case.disk or Disk({}, 0)
        super().__init__(place, f"case{number}", case.scale, disk, on_disk.wal, case.init, case.sql, on_disk.data,
                         **IN_FILES)
        scripts = {name: place.script(name, text) for name, text in case.scripts.items()}
        self.options = [scripts.get(option, option) for option in case.load]

    @contextlib.contextmanager
    def serving(self, settings):
        """The server with these settings beside what is well, on fresh data, warm, on its slow disk."""
        with self.running({**WELL, **self.case.well, **settings}, shared_preload_libraries="pgscale") as connection:
            self.connection = connection
            try:
                self._warm()
                yield
            finally:
                self.connection.close()

    def restart(self):
        """Likewise on the same data, and with what ALTER SYSTEM has set."""
        self.connection.close()
        self.lift()
        self.server.stop()
        self.server.start(shared_preload_libraries="pgscale")
        self.connection = self.server.connect()
        self._warm()

    def _warm(self):
        run(self.connection, "SELECT pg_prewarm(oid) FROM pg_class"
                             " WHERE relname ~ '^(pgbench_|wide)' AND relkind IN ('r', 'i')")
        run(self.connection, "CHECKPOINT")
        if self.disk:
            self.disk.slow(**self.case.disk.limits)

    def load(self):
        return Load(self.server, *self.options, log=True)

    def auto_conf(self):
        return (self.server.data / "postgresql.auto.conf").read_bytes()


@contextlib.contextmanager
def bed_of(place, number, case):
    with contextlib.ExitStack() as undo:
        disk = None
        if case.disk:
            disk = undo.enter_context(SlowDisk(place.folder / f"disk{number}", case.disk.mib))
        yield Bed(place, number, case, disk)
