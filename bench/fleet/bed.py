"""A fleet on this machine: etcd, and three nodes that Patroni runs, all on 127.0.0.1."""
import contextlib
import json
import os
import signal
import subprocess
import time

import psycopg2

from cluster import end, free_port, run, say, value

NODES = ("db1", "db2", "db3")
SETTINGS = {
    "shared_preload_libraries": "pgscale", "pgscale.archive_database": "postgres", "shared_buffers": "128MB", "max_connections": 50,
    "wal_log_hints": "on", "autovacuum": "off", "logging_collector": "off"}
# seconds; the old leader's key in etcd lives that long
TTL = 20


class Node:
    def __init__(self, fleet, name):
        self.fleet = fleet
        self.place = fleet.place
        self.name = name
        self.folder = fleet.folder / name
        self.data = self.folder / "data"
        self.port = free_port()
        self.rest_port = free_port()
        self.patroni = None
        self.folder.mkdir()
        (self.folder / "patroni.json").write_text(json.dumps(self._configuration(), indent=1))

    def _configuration(self):
        parameters = {**SETTINGS, **self.fleet.settings, "unix_socket_directories": str(self.folder),
                      "dynamic_library_path": f"{self.place.library}:$libdir"}
        return {
            "scope": "shop", "name": self.name,
            "restapi": {"listen": f"127.0.0.1:{self.rest_port}", "connect_address": f"127.0.0.1:{self.rest_port}"},
            "etcd3": {"host": f"127.0.0.1:{self.fleet.etcd_port}"},
            "bootstrap": {"dcs": {"ttl": TTL, "loop_wait": 5, "retry_timeout": 5, "postgresql": {"use_pg_rewind": True}},
                          "initdb": [{"encoding": "UTF8"}, {"locale": "C"}, "no-sync"]},
            "postgresql": {
                "listen": f"127.0.0.1:{self.port}", "connect_address": f"127.0.0.1:{self.port}", "data_dir": str(self.data),
                "bin_dir": str(self.place.bindir), "pgpass": str(self.folder / "pgpass"), "parameters": parameters,
                "pg_hba": ["local all all trust", "host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"],
                "authentication": {"superuser": {"username": "postgres"}, "replication": {"username": "replicator"}}}}

    def start(self):
        self.patroni = self.fleet.start(self.folder / "log", "/usr/bin/patroni", self.folder / "patroni.json")

    def kill(self):
        """As if its machine had lost power: Patroni first, which would start the server again."""
        self.patroni.kill()
        self.patroni.wait()
        for pid in self.processes():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)

    def processes(self):
        """The postmaster and its children."""
        try:
            postmaster = int((self.data / "postmaster.pid").read_text().split()[0])
            with open(f"/proc/{postmaster}/task/{postmaster}/children") as children:
                return [postmaster, *map(int, children.read().split())]
        except (FileNotFoundError, ProcessLookupError):
            return []

    def stop(self):
        if self.patroni and self.patroni.poll() is None:
            self.patroni.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self.patroni.wait(30)
        if self.patroni:
            self.kill()

    def connect(self):
        connection = psycopg2.connect(host=str(self.folder), port=self.port, user="postgres", dbname="postgres",
                                      application_name="bench", connect_timeout=2)
        connection.autocommit = True
        return connection

    def ask(self, statement):
        """One value, or None if it does not answer."""
        try:
            with contextlib.closing(self.connect()) as connection:
                return value(connection, statement)
        except psycopg2.Error:
            return None

    def role(self):
        return {True: "standby", False: "primary"}.get(self.ask("SELECT pg_is_in_recovery()"))


class Fleet:
    """with Fleet(place, **settings) as fleet: ..."""

    def __init__(self, place, **settings):
        self.place = place
        self.settings = settings
        self.folder = place.folder / "fleet"
        self.etcd_port = free_port()
        self.folder.mkdir()
        self.nodes = {name: Node(self, name) for name in NODES}
        place.give(self.folder)
        self._started = contextlib.ExitStack()

    def __enter__(self):
        try:
            self._start()
        except BaseException:
            self._started.close()
            raise
        return self

    def __exit__(self, *exc):
        self._started.close()

    def start(self, log, *command):
        # Patroni's own modules are to be found, not those of bench/lib
        with open(log, "ab") as out:
            return self.place.popen(["/usr/bin/env", "-u", "PYTHONPATH", *command], stdout=out, stderr=out)

    def _start(self):
        peer = f"http://127.0.0.1:{free_port()}"
        client = f"http://127.0.0.1:{self.etcd_port}"
        etcd = self.start(self.folder / "etcd.log", "/usr/bin/etcd", "--name", "etcd", "--data-dir", self.folder / "etcd",
                          "--listen-client-urls", client, "--advertise-client-urls", client, "--listen-peer-urls", peer,
                          "--initial-advertise-peer-urls", peer, "--initial-cluster", f"etcd={peer}")
        self._started.callback(end, etcd)
        first = self.nodes[NODES[0]]
        for node in self.nodes.values():
            self._started.callback(node.stop)
            node.start()
            if node is first:
                self.wait(lambda: first.role() == "primary", 60)
        self.wait(lambda: sorted(str(node.role()) for node in self.nodes.values()) == ["primary", "standby", "standby"], 90)
        with contextlib.closing(first.connect()) as connection:
            self.place.create_pgscale(connection)
            for node in self.nodes.values():
                run(connection, "SELECT pgscale.fleet_add(%s, %s)", node.name,
                    f"host=127.0.0.1 port={node.port} dbname=postgres user=postgres")
        say("three nodes")

    def leader(self):
        """The primary; None if there is none."""
        return next((node for node in self.nodes.values() if node.role() == "primary"), None)

    def wait(self, condition, seconds):
        """Until that is true; returns it."""
        until = time.monotonic() + seconds
        while not (found := condition()):
            if time.monotonic() > until:
                raise RuntimeError(f"in vain for {seconds} s\n{self.logs()}")
            time.sleep(0.1)
        return found

    def logs(self):
        return "\n".join(f"{log}:\n{log.read_text()[-1500:]}" for log in sorted(self.folder.glob("**/*log")) if log.is_file())

    def conninfo(self):
        """For a client: the primary, whichever that is."""
        nodes = self.nodes.values()
        return f"host={','.join('127.0.0.1' for _ in nodes)} port={','.join(str(node.port) for node in nodes)} user=postgres" \
            " dbname=postgres target_session_attrs=read-write connect_timeout=2"
