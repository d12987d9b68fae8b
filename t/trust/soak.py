"""Everything on for a long time: see soak and README.md."""
import argparse
import collections
import contextlib
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import psycopg2

import checks
import features
import machine
from churn import ABSENT
from cluster import TREE, Place, end, run, say, value
from features import Features
from loops import Loops
from record import OUTPUT, record
from report import table
from server import Loss, Server, wait_for
from watch import Watch, cpu, descriptors, memory, slope

PARTITIONS = 8
TABLES = tuple(f"pgbench_accounts_{n + 1}" for n in range(PARTITIONS))
EVERY = 10.0        # seconds between two looks at the processes
VIEWS = 5.0         # seconds between two looks at all views
WARM = 0.2          # of the time: caches fill
SETTINGS = {
    **features.SETTINGS,
    "shared_preload_libraries": "pgscale, pg_stat_statements",
    "compute_query_id": "on",
    "track_io_timing": "on",
    "shared_buffers": "64MB",
    "max_wal_size": "512MB",
    "checkpoint_timeout": "2min",
    "autovacuum_naptime": "15s",
    "pgscale.sampler_nested": "on",
    "pgscale.sampler_profile_size": "1000",     # so that entries are evicted
    "pgscale.sweeper": "on",
    "pgscale.sweeper_adaptive": "off",
    "pgscale.sweeper_policy": "adaptive",
    "pgscale.sweeper_workers": "2",
    "pgscale.sweeper_writers": "2",
    "pgscale.writeback": "on",
    "pgscale.writeback_cap": "8MB",
    "pgscale.writeback_adaptive": "off",
}
# An hour may add so much to a process at most, surely. 1 byte at each of the sampler's ticks would be 350 kB.
MOST = {"kB": 256.0, "descriptors": 1.5, "files": 60.0}
# Half of what leak.c loses in an hour of ticks every 10 ms: a step while caches fill must not pass for it.
LEAKED = {"kB": 36_000.0, "descriptors": 45.0}
# These are there from the first second to the last; those of the server itself are watched for comparison.
WORKERS = ("pgscale sampler", "pgscale sweeper 1", "pgscale sweeper 2", "pgscale writeback")
SERVERS = ("checkpointer", "background writer", "walwriter", "autovacuum launcher")
# What is asked of each, besides a look at all of it.
QUESTIONS = (
    "SELECT * FROM pgscale.activity(bucket => '1 second')",
    "SELECT * FROM pgscale.tuning_findings('10 minutes', false)",
    "SELECT * FROM pgscale.buffer_usage_sample(1000)",
    "SELECT * FROM pgscale.scalability_points()",
    "SELECT * FROM pgscale.contention('5 minutes')",
    "SELECT pgscale.os_cache_flush('pgbench_tellers')",
    "CALL pgscale.apply_all()",
)
# These make the disk work.
SELDOM = {
    "SELECT * FROM pgscale.tablespace_latency()": 120,
    "SELECT * FROM pgscale.tuning_findings('10 minutes', true)": 180,
    "SELECT * FROM pgscale.relocation_plan('space_0', 1000000000, '1 s')": 120,
}
ERROR = re.compile(r"(ERROR|FATAL|PANIC|WARNING):")
# of workers, in this load: jobs are cancelled, and do not always get their lock
EXPECTED = re.compile(r"canceling statement due to (user request|lock timeout)|deadlock detected")


class Load(Features):
    """What comes and goes beside pgbench."""

    STEPS = ("tables", "databases", "checkpoint", "relocation", "changes", "copy", "verify")

    def pause(self, seconds):
        """Leaves the processor to others for most of the time."""
        super().pause(0.5 + 8 * seconds)

    def tables(self, connection, rng):
        """Leaves none behind: the number of files is to stay."""
        super().tables(connection, rng)
        for name, in run(connection, "SELECT relname FROM pg_class WHERE relkind = 'r' AND relname ~ '^side_[0-9]+$'"):
            self.expected.change(connection, name, ABSENT, f"DROP TABLE {name}")

    def copy(self, connection, rng):
        run(connection, "TRUNCATE copied")
        run(connection, f"COPY copied (filler) FROM PROGRAM 'yes copied | head -n {rng.randrange(1, 60_000)}'")
        self.pause(rng.random())

    def verify(self, connection, rng):
        """Of one change or another, mostly too early to tell."""
        run(connection, "SELECT v.* FROM (SELECT max(change) AS change FROM pgscale.tuning_journal) j,"
                        " pgscale.verify(j.change) v WHERE j.change IS NOT NULL")
        self.pause(rng.random())


class Monitor(Loops):
    """One session that looks at everything, again and again, for as long as the server lives."""

    def __init__(self, server, views):
        super().__init__(server)
        self.views = views
        self.pid = None
        self.looks = 0
        self.slowest = collections.defaultdict(float)       # statement -> seconds
        self.keeps = None           # kB between two looks
        self.due = {statement: time.monotonic() + after / 4 for statement, after in SELDOM.items()}
        self.add("monitor", self.look, 1, self.greet)

    def greet(self, connection):
        if self.pid:
            raise RuntimeError("the monitoring session was lost")
        self.pid = connection.info.backend_pid

    def look(self, connection, rng):
        for statement in [f"SELECT * FROM {view}" for view in self.views] + list(QUESTIONS):
            self.ask(connection, statement)
        for statement, at in self.due.items():
            if time.monotonic() >= at:
                self.due[statement] = time.monotonic() + SELDOM[statement]
                self.ask(connection, statement)
        # Not what it has: while it runs a statement that is as much as there are rows, and the journal grows.
        self.keeps = int(value(connection, "SELECT sum(total_bytes) / 1024 FROM pg_backend_memory_contexts"))
        self.looks += 1
        self.stopping.wait(VIEWS)

    def ask(self, connection, statement):
        since = time.monotonic()
        run(connection, statement)
        connection.notices.clear()
        self.slowest[statement] = max(self.slowest[statement], time.monotonic() - since)


class Experiment:
    def __init__(self, place, kind, seconds, rate, seed, shim):
        self.place = place
        self.kind = kind
        self.seconds = seconds
        self.rate = rate
        self.seed = seed
        self.shim = shim
        self.server = Server(place, "server", shim=shim)
        self.monitor = self.load = self.watch = None
        self.first = {}             # a worker's pid
        self.restarts = []
        self.passing = collections.Counter()        # of processes that come and go: the most that one held

    def set_up(self):
        self.server.start(**SETTINGS)
        connection = self.server.connect()
        self.place.run(["pgbench", "-h", self.server.outside, "-U", "postgres", "-i", "-s", 8, "-q",
                        f"--partitions={PARTITIONS}", "postgres"])
        self.server.create_pgscale(connection)
        run(connection, "CREATE EXTENSION amcheck; CREATE EXTENSION pg_prewarm; CREATE EXTENSION pg_stat_statements")
        run(connection, "CREATE TABLE copied (id serial, filler text)")
        features.create_spaces(connection, self.place, self.place.folder)
        features.move_in(connection, TABLES)
        self.database = value(connection, "SELECT oid FROM pg_database WHERE datname = 'postgres'")
        views = [name for name, in run(connection, """
            SELECT oid::regclass::text FROM pg_class WHERE relkind = 'v' AND relnamespace = 'pgscale'::regnamespace""")]
        connection.close()
        return [view for view in views if f"SELECT * FROM {view}" not in SELDOM]

    def processes(self):
        """name -> process id, of those that are always there, and the others of pgscale as a list."""
        always, others = {"postmaster": self.server.process.pid}, []
        for pid, title in self.server.processes().items():
            title = title.removeprefix("postgres: ").strip()
            if title in WORKERS or title in SERVERS:
                always[title] = pid
            elif title.startswith("pgscale"):
                others.append((pid, re.sub(r"(worker|writer) .*", r"\1", title)))
        if self.monitor and self.monitor.pid:
            always["monitoring session"] = self.monitor.pid
        return always, others

    def look(self):
        always, others = self.processes()
        found = {}
        for name, pid in always.items():
            if name in WORKERS and self.first.setdefault(name, pid) != pid:
                self.restarts.append(f"{name} started again")
                self.first[name] = pid
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):        # it has just ended
                found[name, "kB"], found[name, "descriptors"], found[name, "CPU s"] = memory(pid), descriptors(pid), cpu(pid)
        if self.monitor and self.monitor.keeps:
            found["monitoring session", "kB"] = self.monitor.keeps
        for name in WORKERS:
            if name not in always:
                self.restarts.append(f"there is no {name}")
        for pid, title in others:
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                self.passing[title, "kB"] = max(self.passing[title, "kB"], memory(pid))
                self.passing[title, "descriptors"] = max(self.passing[title, "descriptors"], descriptors(pid))
        found.update(self.files())
        found.update(self.ask())
        return found

    def files(self):
        """How many there are, by kind."""
        counts = collections.Counter()
        for top in self.server.folder.iterdir():
            for folder, _, files in os.walk(top, followlinks=True):
                counts["temporary" if "pgsql_tmp" in folder else top.name] += len(files)
        counts["the data folder itself"] = sum(file.is_file() for file in self.server.folder.iterdir())
        counts["/dev/shm"] = sum(1 for file in pathlib.Path("/dev/shm").glob("PostgreSQL.*") if self.own(file))
        return {(f"files in {name}", "files"): count for name, count in counts.items()}

    def own(self, file):
        """Other servers of this machine have theirs there, too."""
        try:
            return file.stat().st_mtime >= self.born
        except FileNotFoundError:
            return False

    def ask(self):
        connection = self.server.connect()
        try:
            row = run(connection, """
                SELECT ticks, missed_ticks, lateness_p99_us, lateness_max_us, tick_mean_us, cpu_ms, entries, evictions, torn_reads,
                       (SELECT sum(errors) FROM pgscale.sweeper_stats), (SELECT errors FROM pgscale.writeback_stats),
                       (SELECT sum(written) FROM pgscale.sweeper_stats), (SELECT sum(allocated_size) FROM pg_shmem_allocations),
                       (SELECT count(*) FROM pgscale.health WHERE state = 'broken' AND feature <> 'numa')
                  FROM pgscale.sampler_stats""")[0]
        finally:
            connection.close()
        return {("sampler", "ticks"): row[0], ("sampler", "missed"): row[1], ("sampler", "late p99 us"): row[2],
                ("sampler", "late max us"): row[3], ("sampler", "tick us"): row[4], ("sampler", "CPU ms"): row[5],
                ("sampler", "entries"): row[6], ("sampler", "evictions"): row[7], ("sampler", "torn reads"): row[8],
                ("sweeper", "errors"): int(row[9]), ("writeback", "errors"): row[10], ("sweeper", "written"): int(row[11]),
                ("shared memory", "bytes"): int(row[12]), ("health", "broken"): row[13]}

    def soak(self):
        """Leaves watch and load, both over; raises what went wrong."""
        self.born = time.time()
        views = self.set_up()
        server = self.server
        OUTPUT.mkdir(parents=True, exist_ok=True)
        pgbench = self.place.popen(
            ["pgbench", "-h", server.outside, "-U", "postgres", "-n", "-c", 4, "-j", 1, "-R", self.rate, "-T", 10 ** 6,
             "-b", "tpcb-like@1", "-b", "select-only@3", "postgres"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            with Monitor(server, views) as self.monitor, Load(server, self.seed, TABLES) as self.load:
                wait_for("monitoring", lambda: self.monitor.looks, 60)
                self.watch = Watch(self.look, min(EVERY, self.seconds / 50), OUTPUT / f"{self.kind}-{self.place.major}.tsv")
                until = time.monotonic() + self.seconds
                while time.monotonic() < until:
                    time.sleep(min(300.0, max(0.1, until - time.monotonic())))
                    say(f"{time.strftime('%H:%M:%S')}: {self.monitor.looks} looks at all views, {dict(self.load.counts)}, "
                        f"{len(self.restarts)} restarts")
                    if server.process.poll() is not None or pgbench.poll() is not None:
                        raise Loss("the server or pgbench has ended: " + server.last_words(0))
                    if self.load.broken or self.monitor.broken:
                        raise Loss("; ".join(self.load.broken + self.monitor.broken))
        finally:
            if self.watch:
                self.watch.stop()
            end(pgbench)
        connection = server.connect()
        self.load.check(connection, crashed=False)
        connection.close()

    def wrong(self):
        """What is not as it must be."""
        watch = self.watch
        found = list(dict.fromkeys(self.restarts)) + [f"a look failed: {why}" for why in dict.fromkeys(watch.broken)]
        for name, what in (("sweeper", "errors"), ("writeback", "errors")):
            if watch.series[name, what][-1][1]:
                found.append(f"{watch.series[name, what][-1][1]} errors of the {name}")
        broken = sum(number > 0 for _, number in watch.series["health", "broken"])
        if broken:
            found.append(f"pgscale.health called a feature broken, {broken} times")
        memory = {number for _, number in watch.series["shared memory", "bytes"]}
        if len(memory) != 1:
            found.append(f"shared memory changed: {sorted(memory)} bytes")
        for line in self.server.said().splitlines():
            if ERROR.search(line) and re.search(r"\] pgscale", line) and not EXPECTED.search(line):
                found.append(f"the log says: {line.strip()}")
        try:
            checks.log(self.server.said())
        except Loss as error:
            found.append(str(error))
        for (who, answer), times in self.monitor.errors.items():
            found.append(f"{times} times the monitor was told: {answer}")
        return found[:20]


def growth(watch, seconds):
    """A row for each series that must not grow: name, what, first, last, most, slope, half of its interval, too much?"""
    rows = []
    for (name, what) in sorted(watch.series):
        if what in MOST:
            times, values = watch.after(name, what, WARM * seconds)
            grows = slope(times, values)
            if grows:
                rows.append((name, what, values[0], values[-1], max(values), *grows,
                             name not in SERVERS and grows[0] - grows[1] > MOST[what] and goes_on(values)))
    return rows


def goes_on(values):
    """Does it grow all the time, in three quarters of it at least? A hash table that doubles grows once."""
    cuts = [round(i * (len(values) - 1) / 4) for i in range(5)]
    return sum(values[b] > values[a] for a, b in zip(cuts, cuts[1:])) >= 3


def shown(rows):
    return table(["", "", "first", "last", "most", "an hour adds", ""],
                 [[name, what, first, last, most, f"{grows:+.1f} ± {half:.1f}", "**grows**" if much else ""]
                  for name, what, first, last, most, grows, half, much in rows])


def punctual(watch):
    """Ticks and how many were missed, by fifths of the time."""
    ticks, missed = ([number for _, number in watch.series["sampler", what]] for what in ("ticks", "missed"))
    cuts = [round(i * (len(ticks) - 1) / 5) for i in range(6)]
    return [(ticks[b] - ticks[a], missed[b] - missed[a]) for a, b in zip(cuts, cuts[1:])]


def main():
    parser = argparse.ArgumentParser(prog="t/trust/soak")
    parser.add_argument("--minutes", type=float, default=90)
    parser.add_argument("--rate", type=float, default=60, help="pgbench's transactions a second; 60")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--leak", action="store_true", help="with a library that leaks: does the test see it?")
    arguments = parser.parse_args()
    kind = "soak-leak" if arguments.leak else "soak"
    with Place() as place:
        experiment = Experiment(place, kind, arguments.minutes * 60, arguments.rate, arguments.seed,
                                leak(place) if arguments.leak else None)
        wrong = []
        try:
            experiment.soak()
        except (Loss, psycopg2.Error, RuntimeError) as error:
            wrong.append(str(error))
        watch, load, monitor = experiment.watch, experiment.load, experiment.monitor
        if not watch or not watch.series:
            sys.exit(f"it did not even begin: {wrong}")
        rows = growth(watch, experiment.seconds)
        wrong += experiment.wrong() + [f"{name} grows by {grows:.1f} ± {half:.1f} {what} an hour"
                                       for name, what, *_, grows, half, much in rows if much]
        slowest = sorted(monitor.slowest.items(), key=lambda item: -item[1])[:8]
        record(f"{kind} {place.major}", {
            **machine.describe(place), "minutes": arguments.minutes, "rate": arguments.rate, "seed": arguments.seed,
            "growth": rows, "ticks and missed, by fifths": punctual(watch), "looks": monitor.looks, "slowest s": slowest,
            "load": load.counts, "answers": {f"{who}: {what}": n for (who, what), n in load.errors.items()},
            "come and go, at most": {f"{name} {what}": most for (name, what), most in experiment.passing.items()},
            "last": {f"{name} {what}": series[-1][1] for (name, what), series in watch.series.items()}, "wrong": wrong})
        if wrong:
            kept = OUTPUT / f"{kind}-{place.major}.log"
            shutil.copy(experiment.server.log, kept)
            say(f"kept for a closer look: {kept.relative_to(TREE)}")
    print(shown(rows))
    print("\nticks (missed), by fifths of the time: " + ", ".join(f"{ticks} ({missed})" for ticks, missed in punctual(watch)))
    print("of those that come and go, at most: " + ", ".join(
        f"{name} {most} {what}" for (name, what), most in sorted(experiment.passing.items())))
    print("slowest answers: " + ", ".join(f"{seconds:.2f} s {statement}" for statement, seconds in slowest))
    for (who, answer), times in load.errors.most_common(12):
        print(f"{times:6d}  {who}: {answer}")
    print(f"{arguments.minutes:g} minutes, {monitor.looks} looks at all views, {dict(load.counts)}")
    for what in wrong:
        print(f"WRONG: {what}")
    if arguments.leak:
        seen = {what for name, what, *_, grows, half, much in rows
                if much and name == "pgscale sampler" and grows > LEAKED[what]} == set(LEAKED)
        print("seen, as it must be" if seen else "NOT SEEN: this test is blind")
        return 0 if seen else 1
    print("wrong: " + ("; ".join(wrong) if wrong else "nothing"))
    return 1 if wrong else 0


class Preload:
    """A library for Server."""

    def __init__(self, library):
        self.preload = ["/usr/bin/env", f"LD_PRELOAD={library}"]


def leak(place):
    library = place.folder / "leak.so"
    source = pathlib.Path(__file__).with_name("leak.c")
    subprocess.run(["cc", "-O2", "-Wall", "-shared", "-fPIC", "-o", library, source, "-ldl"], check=True)
    place.give(library)
    return Preload(library)


if __name__ == "__main__":
    sys.exit(main())
