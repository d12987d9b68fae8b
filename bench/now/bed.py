"""The servers of this experiment and what happens on them: loads, sessions that hold something, statements that take long."""
import contextlib
import dataclasses
import os
import re
import shutil
import threading
import time

import psycopg2

import watch
from cluster import end, run
from load import STOCK
from slowdisk import SlowDisk

SCALE = 10
CONNECTIONS = 100
# defaults, as far as Cluster.SETTINGS are not
SETTINGS = {"shared_preload_libraries": "pgscale", "max_connections": CONNECTIONS, "synchronous_commit": "on", "autovacuum": "on",
            "checkpoint_timeout": "5min"}
SETUP = f"{watch.CREATE};{STOCK}GRANT ALL ON ALL TABLES IN SCHEMA public TO shop;\n"


@dataclasses.dataclass(frozen=True)
class Disk:
    """A slow disk for the server's folders "data" or "wal", and its limits from the beginning."""

    holds: tuple
    limits: dict = dataclasses.field(default_factory=dict)
    mib: int = 2048


class Stage:
    """A server with pgbench's tables and pgscale, its disk, if any, and a superuser's connection."""

    def __init__(self, server, disk, connection):
        self.place = server.place
        self.server = server
        self.disk = disk
        self.connection = connection

    def script(self, name, text):
        return self.place.script(f"{self.server.name}-{name}.sql", text)


@contextlib.contextmanager
def staged(place, name, scale=SCALE, disk=None, setup="", **settings):
    """Yields a Stage. Its server and its data are gone afterwards."""
    name = re.sub(r"\W+", "-", name)
    with contextlib.ExitStack() as undo:
        slow, paths = None, {}
        if disk:
            slow = undo.enter_context(SlowDisk(place.folder / f"{name}-disk", disk.mib))
            place.give(slow.path)
            paths = {what: slow.path / what for what in disk.holds}
        undo.callback(shutil.rmtree, place.folder / name, ignore_errors=True)
        server = undo.enter_context(place.cluster(name, **paths, **{**SETTINGS, **settings}))
        if scale:
            server.pgbench("-i", "-q", "-s", scale)
        stage = Stage(server, slow, undo.enter_context(contextlib.closing(server.connect())))
        server.create_pgscale(stage.connection)
        run(stage.connection, SETUP + setup)
        run(stage.connection, "CHECKPOINT")
        if slow:
            slow.slow(**disk.limits)
            undo.callback(slow.lift)
        yield stage


@contextlib.contextmanager
def pgbench(server, *options, application_name="shop"):
    """A load for as long as the context lasts."""
    said = server.place.folder / f"{server.name}-{application_name}.out"
    with open(said, "w") as out:
        load = server.place.popen(["pgbench", "-h", server.folder, "-U", "postgres", "-n", "-T", 3600, *options, "postgres"],
                                  stdout=out, stderr=out, env={**os.environ, "PGAPPNAME": application_name})
    try:
        yield
        if load.poll() is not None:
            raise RuntimeError("a load ended early:\n" + said.read_text()[-2000:])
    finally:
        end(load)


class Statements:
    """with Statements(server, "report", "SELECT ...") as session: ...; a session executes them once, or again and again.

    When the context ends, the statement that runs is cancelled and the session closed.
    """

    def __init__(self, server, application_name, *statements, again=False, user="postgres"):
        self._connection = server.connect(application_name, user)
        self.pid = self._connection.info.backend_pid
        self._statements = statements
        self._again = again
        self._ends = threading.Event()
        self._error = None
        self._thread = threading.Thread(target=self._work, daemon=True)

    def _work(self):
        try:
            while True:
                for statement in self._statements:
                    run(self._connection, statement)
                if not self._again or self._ends.is_set():
                    return
        except psycopg2.Error as error:
            if not self._ends.is_set():
                self._error = error

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, kind, *exc):
        self._ends.set()
        # a statement that begins at this moment misses the cancel
        while self._thread.is_alive():
            self._connection.cancel()
            self._thread.join(0.5)
        self._connection.close()
        if kind is None and self._error:
            raise self._error


@contextlib.contextmanager
def transaction(server, application_name, *statements, user="postgres"):
    """A session that stays idle in a transaction after these statements. Yields its process id."""
    with contextlib.closing(server.connect(application_name, user)) as connection:
        connection.autocommit = False
        for statement in statements:
            run(connection, statement)
        yield connection.info.backend_pid


@contextlib.contextmanager
def sessions(server, count, application_name="pool", pause_s=0):
    """Idle sessions, opened one after the other."""
    with contextlib.ExitStack() as undo:
        for _ in range(count):
            undo.enter_context(contextlib.closing(server.connect(application_name, "shop")))
            time.sleep(pause_s)
        yield
