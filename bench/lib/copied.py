"""A server whose data start anew: pgbench's tables on the fast or on a slow disk, the same at every start.

The data are loaded once; each start works on a copy of them, so that no variant finds what another has left, neither a
grown table nor a long WAL.
"""
import contextlib
import os
import signal
import time

from cluster import run, say, value


class CopiedServer:
    """The data are on the SlowDisk, if there is one, which is fast until its slow() is called; the WAL may be, too.

    More is loaded by "sql".
    """

    def __init__(self, place, name, scale, disk=None, wal_on_disk=False, load=(), sql="", data_on_disk=True, **settings):
        self.place = place
        self.disk = disk
        base = disk.path if disk else place.folder
        if disk:
            place.give(base)
        self.wal = (base if wal_on_disk else place.folder) / f"{name}-wal"
        data = (base if data_on_disk else place.folder) / f"{name}-data"
        self.server = place.cluster(name, data, self.wal, **settings)
        self.turned = self.server.folder / "turned.conf"
        self._load(scale, load, sql)

    def _load(self, scale, options, sql):
        # what is set in turns lies on the fast disk: ALTER SYSTEM would wait for the slow one
        self.turned.touch()
        with open(self.server.data / "postgresql.conf", "a") as conf:
            conf.write(f"include '{self.turned}'\n")
        say(f"loading scale {scale}")
        with self.server, contextlib.closing(self.server.connect()) as connection:
            self.server.pgbench("-i", "-s", scale, "-q", *options)
            run(connection, "CREATE EXTENSION pg_buffercache; CREATE EXTENSION pg_prewarm;" + sql)
            self.load_more()
            self.bytes = value(connection, "SELECT sum(pg_total_relation_size(oid))::bigint FROM pg_class"
                                           " WHERE relname ~ '^pgbench_' AND relkind = 'r'")
        self.copies = {self.server.data: self.place.folder / f"{self.server.name}-copy-data",
                       self.wal: self.place.folder / f"{self.server.name}-copy-wal"}
        for path, copy in self.copies.items():
            self.place.run(["/bin/cp", "-a", "--reflink=auto", path, copy])

    def load_more(self):
        """Whatever else is to be there at every start."""

    def restore(self):
        for path, copy in self.copies.items():
            self.place.run(["/bin/rm", "-rf", path])
            self.place.run(["/bin/cp", "-a", "--reflink=auto", copy, path])

    @contextlib.contextmanager
    def running(self, turned=None, **settings):
        """Yields a connection to the server, which has started on the data as they were loaded.

        Of the settings, those of "turned" are for set() to change.
        """
        self.restore()
        try:
            self._write(turned or {})
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
        self._write(settings)
        os.kill(self.server.process.pid, signal.SIGHUP)

    def _write(self, settings):
        self.turned.write_text("".join(f"{name} = '{setting}'\n" for name, setting in settings.items()))

    def lift(self):
        if self.disk:
            self.disk.lift()

    def wake_checkpointer(self):
        """It hands in what it counts for the backends only when something wakes it."""
        os.kill(self.server.worker("checkpointer"), signal.SIGHUP)
        time.sleep(0.2)
