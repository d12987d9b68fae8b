"""Throwaway PostgreSQL servers with this tree's pgscale.

A Place is a temporary folder with a build of the tree's pgscale in it; nothing is installed into the server's own
folders, so what is measured is the tree, whatever else this machine has. A Cluster is a server in that folder, reached
by a Unix socket only. Root hands the folder to the user "nobody", as whom the servers then run, since they refuse root.
All ends with the program: the servers always, the folder unless the program was killed with -9.
"""
import contextlib
import os
import pathlib
import pwd
import re
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

import psycopg2

TREE = pathlib.Path(__file__).resolve().parents[2]


def say(text):
    print(text, file=sys.stderr, flush=True)


def free_port():
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return listening.getsockname()[1]


SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


def _leave(number, frame):
    # a second one must not interrupt the cleaning up
    for each in SIGNALS:
        signal.signal(each, signal.SIG_IGN)
    sys.exit(128 + number)


class Place:
    """with Place() as place: ... change(tree), if there is one, changes the copy of the tree before it is built."""

    def __init__(self, change=None):
        self.change = change
        self.pg_config = os.environ.get("PG_CONFIG", "pg_config")
        self.bindir = pathlib.Path(self.ask("--bindir"))
        self.version = self.ask("--version").split()[1]
        self.major = int(re.match(r"\d+", self.version)[0])      # of "19rc1", too
        # setpriv also sees to it that no server outlives this program
        self.as_user = ["setpriv", "--pdeathsig", "INT"]
        self.user = None
        if os.getuid() == 0:
            self.user = "nobody"
            group = pwd.getpwnam(self.user).pw_gid
            self.as_user += ["--reuid", self.user, "--regid", str(group), "--clear-groups"]
        self.clusters = []

    def ask(self, option):
        return subprocess.run([self.pg_config, option], check=True, capture_output=True, text=True).stdout.strip()

    def __enter__(self):
        for number in SIGNALS:
            signal.signal(number, _leave)
        hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        self.folder = pathlib.Path(tempfile.mkdtemp(prefix="pgscale-bench."))
        try:
            self._build()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *exc):
        for cluster in self.clusters:
            cluster.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _build(self):
        tree = TREE
        make = ["make", "-s", f"-j{os.cpu_count()}", f"PG_CONFIG={self.pg_config}"]
        # what was built for this server of these sources is not built anew
        if self.change or subprocess.run([*make, "-q", "all"], cwd=tree, capture_output=True).returncode != 0:
            tree = self.folder / "tree"
            tree.mkdir()
            for name in ("Makefile", "pgscale.control"):
                shutil.copy(TREE / name, tree)
            for name in ("src", "sql"):
                shutil.copytree(TREE / name, tree / name, ignore=shutil.ignore_patterns("*.o", "*.bc"))
            if self.change:
                self.change(tree)
            say("building pgscale")
            made = subprocess.run(make, cwd=tree, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if made.returncode != 0:
                sys.exit(f"the build failed:\n{made.stdout}")
        self.library = self.folder / "library"
        self.library.mkdir()
        shutil.copy(tree / "pgscale.so", self.library)
        shutil.copy(tree / "build" / "pgscale--1.0.sql", self.folder)
        if tree != TREE:
            shutil.rmtree(tree)
        self.give(self.folder)

    def give(self, path):
        """Hands a file, or a folder with all in it, to the user of the servers."""
        if self.user:
            subprocess.run(["chown", "-R", f"{self.user}:", path], check=True)

    def script(self, name, text):
        """Writes a file that the servers and pgbench may read, and returns its path."""
        file = self.folder / name
        file.write_text(text)
        self.give(file)
        return file

    def compile(self, source):
        """Compiles one C file and returns the program."""
        program = self.folder / pathlib.Path(source).stem
        subprocess.run(["cc", "-O2", "-o", program, source], check=True)
        self.give(program)
        return program

    def popen(self, command, **kwargs):
        """Starts a program of the server's folder, or any other one, as the ordinary user."""
        command = [str(word) for word in command]
        if "/" not in command[0]:
            command[0] = str(self.bindir / command[0])
        return subprocess.Popen(self.as_user + command, cwd=self.folder, **{"stdin": subprocess.DEVNULL, **kwargs})

    def run(self, command):
        """Runs a program likewise and returns its output; an error ends the experiment."""
        process = self.popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            output = process.communicate()[0]
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()
        if process.returncode != 0:
            sys.exit(f"{command[0]} failed:\n{output}")
        return output

    def create_pgscale(self, connection):
        """What CREATE EXTENSION would do if the tree's build were installed."""
        script = (self.folder / "pgscale--1.0.sql").read_text()
        # nor may a script say so that is not an extension's
        lines = [line for line in script.splitlines() if not line.startswith(("\\", "SELECT pg_extension_config_dump("))]
        run(connection, "SET check_function_bodies = off;" + "\n".join(lines).replace("MODULE_PATHNAME", "pgscale"))
        run(connection, "RESET check_function_bodies")
        # the library trusts its tables only as the extension's
        run(connection, """
            SET allow_system_table_mods = on;
            INSERT INTO pg_extension (oid, extname, extowner, extnamespace, extrelocatable, extversion)
                SELECT 16383, 'pgscale', nspowner, oid, false, '1.0' FROM pg_namespace WHERE nspname = 'pgscale';
            -- no command can add the extension's own schemas
            INSERT INTO pg_depend (classid, objid, objsubid, refclassid, refobjid, refobjsubid, deptype)
                SELECT 'pg_namespace'::regclass, oid, 0, 'pg_extension'::regclass, 16383, 0, 'e' FROM pg_namespace WHERE nspname LIKE 'pgscale%';
            RESET allow_system_table_mods""")
        for table, in run(connection, "SELECT oid::regclass FROM pg_class WHERE relkind IN ('r', 'p')"
                                      " AND relnamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace)"):
            run(connection, f"ALTER EXTENSION pgscale ADD TABLE {table}")
        for view, in run(connection, "SELECT oid::regclass FROM pg_class WHERE relkind = 'v' AND relnamespace = 'pgscale'::regnamespace"):
            run(connection, f"ALTER EXTENSION pgscale ADD VIEW {view}")
        # and calls functions of its own only
        for function, in run(connection, "SELECT oid::regprocedure FROM pg_proc WHERE prokind = 'f'"
                                         " AND pronamespace IN ('pgscale'::regnamespace, 'pgscale_internal'::regnamespace)"):
            run(connection, f"ALTER EXTENSION pgscale ADD FUNCTION {function}")

    def cluster(self, name, data=None, wal=None, **settings):
        self.clusters.append(Cluster(self, name, data, wal, settings))
        return self.clusters[-1]


class Cluster:
    """A server: with place.cluster("a", work_mem="8MB") as server: ..., or start() and stop() as often as needed.

    Data and WAL lie in the place's folder, or in the new folders "data" and "wal". A setting of None is left to the
    configuration files, which what is given here overrides.
    """

    port = 5432

    # quick to start, and nothing in the background that could be mistaken for what is measured
    SETTINGS = {
        "listen_addresses": "",
        "unix_socket_permissions": "0700",
        "autovacuum": "off",
        "checkpoint_timeout": "1h",
        "max_wal_size": "4GB",
        "shared_buffers": "512MB",
        "synchronous_commit": "off",
        "logging_collector": "off",
    }

    def __init__(self, place, name, data, wal, settings):
        self.place = place
        self.name = name
        self.settings = settings
        self.folder = place.folder / name
        self.log = self.folder / "log"
        self.data = data or self.folder
        self.process = None
        elsewhere = ["-X", wal] if wal else []
        place.run(["initdb", "-D", self.data, *elsewhere, "-U", "postgres", "-A", "trust", "-E", "UTF8", "--no-locale",
                   "--no-sync"])
        if data:
            self.folder.mkdir()
            place.give(self.folder)

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, kind, *exc):
        if kind and issubclass(kind, psycopg2.DatabaseError):
            say(f"server {self.name} wrote at last:\n" + self._last_words())
        self.stop()

    def _last_words(self):
        return "".join(self.log.read_text(errors="replace").splitlines(keepends=True)[-20:])

    def start(self, **settings):
        """Settings given here hold until the server stops."""
        command = ["postgres", "-D", self.data]
        fixed = {"unix_socket_directories": self.folder, "dynamic_library_path": f"{self.place.library}:$libdir"}
        for key, value in {**self.SETTINGS, **fixed, **self.settings, **settings}.items():
            if value is not None:
                command += ["-c", f"{key}={value}"]
        with open(self.log, "ab") as out:
            self.process = self.place.popen(command, stdout=out, stderr=out)
        for _ in range(300):
            if self.process.poll() is None:
                try:
                    self.connect().close()
                    return
                except psycopg2.OperationalError:
                    time.sleep(0.1)
        self.stop()
        sys.exit(f"server {self.name} did not start:\n{self._last_words()}")

    def stop(self):
        for number, seconds in ((signal.SIGINT, 60), (signal.SIGQUIT, 20), (signal.SIGKILL, None)):
            if self.process is None or self.process.poll() is not None:
                break
            self.process.send_signal(number)
            try:
                self.process.wait(seconds)
            except subprocess.TimeoutExpired:
                pass
        self.process = None

    def connect(self, application_name="bench", user="postgres"):
        connection = psycopg2.connect(host=str(self.folder), user=user, dbname="postgres", application_name=application_name)
        connection.autocommit = True
        return connection

    def create_pgscale(self, connection):
        self.place.create_pgscale(connection)

    def pgbench(self, *options):
        """Runs pgbench and returns its transactions per second, without the time of connecting."""
        output = self.place.run(["pgbench", "-h", self.folder, "-U", "postgres", *options, "postgres"])
        for line in output.splitlines():
            if line.startswith("tps = "):
                return float(line.split()[2])
        return None

    @contextlib.contextmanager
    def busy(self, clients):
        """Runs so many clients of pgbench -S, none if 0, within a with."""
        if not clients:
            yield
            return
        load = self.place.popen(
            ["pgbench", "-h", self.folder, "-U", "postgres", "-n", "-S", "-M", "prepared", "-c", clients, "-j", 2,
             "-T", 3600, "postgres"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            yield
        finally:
            end(load)

    def worker(self, title):
        """The process id of the one server process whose title contains these words."""
        found = []
        for pid in pathlib.Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split():
            try:
                if title in pathlib.Path(f"/proc/{pid}/cmdline").read_text():
                    found.append(int(pid))
            except (FileNotFoundError, ProcessLookupError):
                pass            # it has just ended
        if len(found) != 1:
            sys.exit(f"server {self.name} has {len(found)} processes \"{title}\"")
        return found[0]


class Standby(Cluster):
    """A streaming standby of a server, to be started. It has that server's settings, and those given here."""

    def __init__(self, primary, settings):
        self.place = primary.place
        self.name = f"{primary.name}-standby"
        self.settings = {**primary.settings, **settings}
        # the socket does not lie in the data: the primary's would be copied into them
        self.folder = self.place.folder / self.name
        self.data = self.folder / "data"
        self.log = self.folder / "log"
        self.process = None
        self.folder.mkdir()
        self.place.give(self.folder)
        self.place.clusters.append(self)
        self.place.run(["pg_basebackup", "-h", primary.folder, "-p", primary.port, "-U", "postgres", "-D", self.data, "-R",
                        "-c", "fast", "--no-sync"])


def end(process):
    process.terminate()
    process.wait()


def run(connection, statement, *parameters):
    """Executes a statement and returns its rows, if it has any."""
    with connection.cursor() as cursor:
        cursor.execute(statement, parameters or None)
        return cursor.fetchall() if cursor.description else None


def value(connection, statement, *parameters):
    return run(connection, statement, *parameters)[0][0]


def schedstat(pid):
    """What the kernel knows of a process: nanoseconds on a CPU, nanoseconds ready to run but waiting for one."""
    on_cpu, ready, _ = pathlib.Path(f"/proc/{pid}/schedstat").read_text().split()
    return int(on_cpu), int(ready)
