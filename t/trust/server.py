"""A server that may be killed, lose its disk and come back; and what all programs here share about servers."""
import json
import os
import pathlib
import shutil
import signal
import subprocess
import time

import psycopg2

import machine
from cluster import TREE, Cluster, say, value

OUTPUT = TREE / "build" / "trust"
HERE = pathlib.Path(__file__).resolve().parent

# The sweeper is always at work.
SWEEPER = {
    "shared_preload_libraries": "pgscale",
    "pgscale.sweeper": "on",
}


class Loss(Exception):
    """Something that must not happen did."""


def record(name, place, result, wrong=None):
    """Leaves what a run found in build/trust, and the servers' logs if something was wrong."""
    OUTPUT.mkdir(parents=True, exist_ok=True)
    name = name.replace(" ", "-")
    described = {**machine.describe(place), "load": os.getloadavg()} if place else {}
    (OUTPUT / f"{name}.json").write_text(json.dumps({**described, **result, "wrong": wrong}, indent=1, default=str) + "\n")
    if wrong and place:
        for log in place.folder.glob("*/log"):
            shutil.copy(log, OUTPUT / f"{name}-{log.parent.name}.log")
        say(f"kept for a closer look: {(OUTPUT / name).relative_to(TREE)}*.log")


def preload(place, name, **environment):
    """Compiles NAME.c of this folder; returns what goes before the command of a server that is to load it first."""
    library = place.folder / f"{name}.so"
    subprocess.run(["cc", "-O2", "-Wall", "-shared", "-fPIC", "-o", library, HERE / f"{name}.c", "-ldl"], check=True)
    place.give(library)
    return ["/usr/bin/env", f"LD_PRELOAD={library}", *(f"{name}={its}" for name, its in environment.items())]


def wait_sweeping(connection):
    """Under load; not while buffers are free, and dropped tables free some all the time: so before there are any."""
    wait_for("the sweeper at work", lambda: value(
        connection, "SELECT state = 'working' FROM pgscale.sweeper_stats"), 60)


def swept(connection):
    """Pages written since the server started."""
    return int(value(connection, "SELECT written FROM pgscale.sweeper_stats"))


def wait_for(what, condition, seconds):
    """Polls; what does not come true in time is a Loss. Returns how long it took."""
    since = time.monotonic()
    while not condition():
        if time.monotonic() - since > seconds:
            raise Loss(f"{what}: not within {seconds} s")
        time.sleep(0.02)
    return time.monotonic() - since


class Server(Cluster):
    """Its log, its socket and its settings lie outside of its data, on a disk that stays."""

    SETTINGS = {
        "listen_addresses": "",
        "unix_socket_permissions": "0700",
        "logging_collector": "off",
        "log_checkpoints": "on",
        "log_line_prefix": "%m [%p] %b ",
        "autovacuum_naptime": "1s",
        "max_connections": "100",
        "max_prepared_transactions": "100",
        "max_worker_processes": "64",
        "max_wal_senders": "0",
        "shared_buffers": "16MB",
        "max_wal_size": "256MB",
        "checkpoint_timeout": "30s",
    }
    READY = "database system is ready to accept connections"

    def __init__(self, place, name, data=None, preload=()):
        """preload: see preload()"""
        self.place = place
        self.name = name
        self.folder = data or place.folder / name
        self.outside = place.folder / f"{name}.outside"
        self.outside.mkdir()
        self.log = self.outside / "log"
        self.log.touch()
        self.preload = [*preload]
        self.process = None
        self.held = False       # loops may not connect
        self.settings = {}
        place.give(self.outside)
        self.make()
        self.include()
        place.clusters.append(self)

    def make(self):
        self.place.run(["initdb", "-D", self.folder, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync",
                        "--data-checksums"])

    def include(self):
        """Its settings are in a file of its own, also where postgresql.conf came from another server."""
        conf = self.folder / "postgresql.conf"
        lines = [line for line in conf.read_text().splitlines() if not line.startswith("include ")]
        conf.write_text("\n".join([*lines, f"include '{self.outside}/settings.conf'"]) + "\n")

    def configure(self, **settings):
        """Changes settings; they count from the next start or reload on."""
        self.settings.update(settings)
        fixed = {"unix_socket_directories": self.outside, "dynamic_library_path": f"{self.place.library}:$libdir"}
        lines = [f"{key} = '{value}'\n" for key, value in {**self.SETTINGS, **fixed, **self.settings}.items()]
        # a new file in one step: the server may be reading the old one
        new = self.outside / "settings.new"
        new.write_text("".join(lines))
        self.place.give(new)
        new.rename(self.outside / "settings.conf")

    def reload(self, **settings):
        self.configure(**settings)
        self.process.send_signal(signal.SIGHUP)

    def launch(self, **settings):
        """Waits for nothing; returns a mark in the log for wait_ready()."""
        self.configure(**settings)
        command = [self.place.bindir / "postgres", "-D", self.folder]
        since = self.mark()
        with open(self.log, "ab") as out:
            self.process = self.place.popen(self.preload + command, stdout=out, stderr=out)
        return since

    def start(self, **settings):
        """Returns how long it took, recovery included."""
        return self.wait_ready(self.launch(**settings))

    def wait_ready(self, since, seconds=120):
        """Waits until the log has said after that mark that the server is ready."""
        def ready():
            if self.process.poll() is not None:
                raise Loss("the server ended: " + self.last_words(since))
            return self.READY in self.said(since)
        return wait_for("ready again", ready, seconds)

    def mark(self):
        """A place in the log: its end for now."""
        return self.log.stat().st_size

    def said(self, since=0, until=None):
        with open(self.log, "rb") as log:
            log.seek(since)
            return log.read(-1 if until is None else max(0, until - since)).decode(errors="replace")

    def last_words(self, since):
        lines = [line for line in self.said(since).splitlines() if " FATAL: " in line or " PANIC: " in line]
        return lines[-1] if lines else "it said nothing"

    def connect(self, database="postgres"):
        connection = psycopg2.connect(host=str(self.outside), user="postgres", dbname=database, connect_timeout=10)
        connection.autocommit = True
        return connection

    def processes(self):
        """Process id and title of all that work in its data folder, children without a parent included."""
        found = {}
        for entry in pathlib.Path("/proc").iterdir():
            if entry.name.isdigit():
                try:
                    if os.readlink(entry / "cwd") == str(self.folder):
                        found[int(entry.name)] = (entry / "cmdline").read_text().replace("\0", " ").strip()
                except (FileNotFoundError, ProcessLookupError, PermissionError):
                    pass        # it has just ended
        return found

    def child(self, title):
        """The process id of the child with exactly this title, or None."""
        for pid, found in self.processes().items():
            if found == f"postgres: {title}":
                return pid
        return None

    def kill(self, pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            pass

    def kill_postmaster(self):
        self.process.kill()
        self.process.wait()

    def kill_all(self):
        self.kill_postmaster()
        for pid in self.processes():
            self.kill(pid)
        self.wait_gone()

    def wait_gone(self, seconds=20):
        """No process of the server may outlive its postmaster."""
        try:
            wait_for("end of all processes", lambda: not self.processes(), seconds)
        except Loss:
            left = self.processes()
            for pid in left:
                self.kill(pid)
            raise Loss(f"{seconds} s after the postmaster there still are: " + ", ".join(left.values())) from None

    def shut(self, seconds=60):
        """A fast shutdown; returns how long it took."""
        since = time.monotonic()
        self.process.send_signal(signal.SIGINT)
        try:
            code = self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise Loss(f"fast shutdown: not within {seconds} s; there still are: " +
                       ", ".join(self.processes().values())) from None
        if code != 0:
            raise Loss(f"fast shutdown: exit status {code}")
        return time.monotonic() - since
