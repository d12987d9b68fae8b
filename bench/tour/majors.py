"""A server of each major that this machine has or can have, all with the same settings, one under load at a time.

A major is taken from PG_CONFIGS, a list separated by spaces; or from Debian's packages; or, as root, from the folder that
.ci/majors makes. One program drives all: pgbench of the server that PG_CONFIG names.
"""
import contextlib
import functools
import os
import pathlib
import re
import subprocess
import sys
import time

import psycopg2

from cluster import TREE, run, say, value

import sizes

MAJORS = (15, 16, 17, 18, 19)
NOT_OFFERED = 75        # .ci/majors ends with it
COMMON = {
    "listen_addresses": "", "shared_preload_libraries": "pgscale", "autovacuum": "off", "checkpoint_timeout": "1h",
    "max_wal_size": "16GB", "log_checkpoints": "off", "log_lock_waits": "off", "jit": "off", "max_locks_per_transaction": 128,
}


class Server:
    """A major's server, kept by the program "hold"."""

    def __init__(self, place, major, command, jobs):
        self.place = place
        self.major = major
        # abstract, so that it is reached out of a folder of its own, too
        self.host = f"@pgscale-tour-{os.getpid()}-{major}"
        # descriptor 3, because what a shell starts in the background has no standard input
        self.holder = subprocess.Popen(
            ["setpriv", "--pdeathsig", "TERM", "sh", "-c", 'exec "$@" 3<&0 </dev/null', "sh", *command, "bench/tour/hold", self.host, str(jobs)],
            cwd=TREE, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def answered(self):
        """Waits until what was asked is done; false if the holder has ended."""
        return any(line == "ready\n" for line in self.holder.stdout)

    def _ask(self, line):
        self.holder.stdin.write(line + "\n")
        self.holder.stdin.flush()
        if not self.answered():
            sys.exit(f"the server of {self.major} is gone")

    def start(self, settings):
        self._ask("start " + " ".join(f"-c {name}={setting}" for name, setting in {**COMMON, **settings}.items()))
        for _ in range(300):
            try:
                self.connect().close()
                return
            except psycopg2.OperationalError:
                time.sleep(0.1)
        sys.exit(f"the server of {self.major} did not start")

    def halt(self):
        self._ask("stop")

    def stop(self):
        """For good."""
        self.holder.stdin.close()
        try:
            self.holder.wait(60)
        except subprocess.TimeoutExpired:
            # it is still building
            self.holder.terminate()
            self.holder.wait()

    def connect(self, database="postgres"):
        connection = psycopg2.connect(host=self.host, user="postgres", dbname=database, application_name="bench")
        connection.autocommit = True
        return connection

    def pgbench(self, *options):
        """Transactions a second, without the time of connecting."""
        output = self.place.run(["pgbench", "-h", self.host, "-U", "postgres", "-n", *options, "tour"])
        return next((float(line.split()[2]) for line in output.splitlines() if line.startswith("tps = ")), None)

    def load(self, clients, seconds, *options):
        return self.pgbench("-c", clients, "-j", min(clients, sizes.CORES), "-T", seconds, *options)


def _pg_configs():
    """By major."""
    found = {}
    given = os.environ.get("PG_CONFIGS", "").split()
    for pg_config in given or map("/usr/lib/postgresql/{}/bin/pg_config".format, MAJORS):
        if given or pathlib.Path(pg_config).with_name("postgres").exists():
            version = subprocess.run([pg_config, "--version"], check=True, capture_output=True, text=True).stdout
            found[int(re.search(r"\d+", version)[0])] = pg_config
    if not given and os.getuid() == 0:
        found = {**dict.fromkeys(MAJORS), **found}
    return dict(sorted(found.items()))


def _commands():
    """By major, what starts a program beside the server. What that takes is installed here, one after the other."""
    found = {}
    for major, pg_config in _pg_configs().items():
        if pg_config:
            command = ["env", f"PG_CONFIG={pg_config}", "t/lib/setup.sh", "demo"]
            code = subprocess.run([*command, "true"], cwd=TREE).returncode
        else:
            command = [".ci/majors", str(major), ".", "t/lib/setup.sh", "demo"]
            code = subprocess.run([".ci/majors", str(major)], cwd=TREE).returncode
        if code == 0:
            found[major] = command
        elif code == NOT_OFFERED:
            say(f"{major} is not offered: it is left out")
        else:
            sys.exit(f"no server of {major}")
    if not found:
        sys.exit("there is no server to compare: name some in PG_CONFIGS")
    return found


@functools.cache
def servers(place):
    """By major, as text. They stay until the place is left."""
    commands = _commands()
    say("building pgscale for " + ", ".join(map(str, commands)))
    jobs = max(1, sizes.CORES // len(commands))
    started = {str(major): Server(place, major, command, jobs) for major, command in commands.items()}
    place.clusters += started.values()
    for major, server in started.items():
        if not server.answered():
            sys.exit(f"no server of {major}")
    return started


@contextlib.contextmanager
def running(place, **settings):
    """Yields a connection to each server, by major, with pgscale and an empty database "tour" beside it."""
    with contextlib.ExitStack() as stack:
        connections = {}
        for major, server in servers(place).items():
            server.start(settings)
            stack.callback(server.halt)
            connections[major] = connection = stack.enter_context(contextlib.closing(server.connect()))
            if not value(connection, "SELECT count(*) FROM pg_namespace WHERE nspname = 'pgscale'"):
                place.create_pgscale(connection)
            run(connection, "DROP DATABASE IF EXISTS tour")
            run(connection, "CREATE DATABASE tour")
        yield connections


def versions(connections):
    return {major: value(connection, "SHOW server_version") for major, connection in connections.items()}
