"""The servers of this experiment: pgbench's tables on a slow disk, and the variants."""
import contextlib
import os

import watch
from cluster import run
from copied import CopiedServer
from slowdisk import SlowDisk

OFF, FLUSH_AFTER, BACKENDS, PGSCALE = "flush_after off", "flush_after", "flush_after, backends too", "pgscale"
NO_FLUSH_AFTER = {"checkpoint_flush_after": 0, "bgwriter_flush_after": 0, "backend_flush_after": 0}
PRELOADED = {"shared_preload_libraries": "pgscale"}
CAPPING = {"pgscale.writeback": "on", "pgscale.writeback_cap": "16MB"}
# What each variant differs in from a server's defaults; those of flush_after are 256 kB for checkpoints and 512 kB for
# the background writer
VARIANTS = {
    FLUSH_AFTER: {},
    BACKENDS: {"backend_flush_after": "256kB"},
    PGSCALE: {**PRELOADED, "pgscale.writeback": "auto"},
}
COMMON = {
    "max_wal_size": "16GB",
    "synchronous_commit": "on",
    "max_connections": 50,
    # or commits wait behind the 16 MB of each new segment of WAL, whatever the variant
    "wal_init_zero": "off",
    "log_line_prefix": "%n ",
}
# room on each page for new versions of its rows, as in a table that has been updated for long
FILLFACTOR = ("-F", 90)


@contextlib.contextmanager
def slow_bed(place, name, mib, scale, wal_on_disk, **settings):
    with SlowDisk(place.folder / f"{name}-disk", mib) as disk:
        yield Bed(place, name, scale, disk, wal_on_disk, FILLFACTOR, **COMMON, **settings)


class Bed(CopiedServer):
    def restore(self):
        """A copy is in the kernel's cache in large folios, of which one changed page makes all count as dirty."""
        super().restore()
        self.disk.sync()
        for path in watch.relation_files(self.server.data):
            file = os.open(path, os.O_RDONLY)
            os.posix_fadvise(file, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(file)

    def fill(self, connection, seconds, *options):
        """Reads all that the load will need, in random order for the sake of small folios, and has it run."""
        run(connection, """
            SELECT sum(pg_prewarm(relation, 'buffer', 'main', block, block)) FROM (
                SELECT relation, block
                  FROM (VALUES ('pgbench_accounts'::regclass), ('pgbench_accounts_pkey')) AS r(relation),
                       generate_series(0, pg_relation_size(relation) / 8192 - 1) AS block
                 ORDER BY random()) AS blocks""")
        self.server.pgbench("-n", *options, "-T", seconds)
        run(connection, "CHECKPOINT")
