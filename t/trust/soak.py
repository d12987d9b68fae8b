"""Everything on for a long time: see soak and README.md."""
import argparse
import collections
import contextlib
import os
import pathlib
import re
import statistics
import subprocess
import sys
import time

import psycopg2

import checks
import features
from churn import ABSENT
from cluster import Place, end, run, say, value
from features import Features
from loops import Loops
from server import SWEEPER, Loss, Server, preload, record, wait_for

PARTITIONS = 8
TABLES = tuple(f"pgbench_accounts_{n + 1}" for n in range(PARTITIONS))
LOOKS = 60          # at the processes, in all
VIEWS = 5.0         # seconds between two looks at all views
SETTINGS = {
    **SWEEPER,
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
    "pgscale.sweeper_writers": "2",
    "pgscale.writeback": "on",
    "pgscale.writeback_cap": "8MB",
}
# An hour may add this to a process at most. 1 byte at each of the sampler's ticks would be 350 kB. Less than LEAST in all is none: a
# block of memory, or a file that comes and goes.
MOST = {"kB": 256.0, "descriptors": 1.5, "files": 60.0}
LEAST = {"kB": 180.0, "descriptors": 1.0, "files": 30.0}
# These are there from the first second to the last.
WORKERS = ("pgscale sampler", "pgscale sweeper", "pgscale writeback")
# What is asked besides all views
QUESTIONS = (
    "SELECT * FROM pgscale.activity(bucket => '1 second')",
    "SELECT * FROM pgscale.advice_rules('10 minutes', false)",
    "SELECT * FROM pgscale.buffer_usage(1000)",
    "SELECT * FROM pgscale_internal.scalability_points()",
    "SELECT * FROM pgscale.contention('5 minutes')",
    "SELECT pgscale.os_cache_flush('pgbench_tellers')",
    "CALL pgscale.apply_all()",
)
ERROR = re.compile(r"(ERROR|FATAL|PANIC|WARNING):")
# of workers, in this load: jobs are cancelled, and do not always get their lock
EXPECTED = re.compile(r"canceling statement due to (user request|lock timeout)|deadlock detected")


class Load(Features):
    """What comes and goes beside pgbench."""

    STEPS = ("tables", "databases", "checkpoint", "relocation", "changes", "copy")

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


class Monitor(Loops):
    """One session that looks at everything, again and again, for as long as the server lives."""

    def __init__(self, server, views):
        super().__init__(server)
        self.views = views
        self.pid = None
        self.looks = 0
        self.keeps = 0              # kB between two looks
        self.add("monitor", self.look, 1, self.greet)

    def greet(self, connection):
        if self.pid:
            raise RuntimeError("the monitoring session was lost")
        self.pid = connection.info.backend_pid

    def look(self, connection, rng):
        for statement in [f"SELECT * FROM {view}" for view in self.views] + list(QUESTIONS):
            run(connection, statement)
            connection.notices.clear()
        # Not what it has: while it runs a statement that is as much as there are rows, and the journal grows.
        self.keeps = int(value(connection, "SELECT sum(total_bytes) / 1024 FROM pg_backend_memory_contexts"))
        self.looks += 1
        self.stopping.wait(VIEWS)


def memory(pid):
    """kB that a process has for data of its own. What it has allocated and not touched yet counts: a table of fixed size that fills
    up is no leak."""
    return int(re.search(r"VmData:\s+(\d+) kB", pathlib.Path(f"/proc/{pid}/status").read_text())[1])


class Experiment:
    def __init__(self, place, seconds, arguments):
        self.place = place
        self.seconds = seconds
        self.arguments = arguments
        self.server = Server(place, "server", None, preload(place, "leak") if arguments.leak else ())
        self.series = collections.defaultdict(list)     # (name, what) -> numbers, one a look
        self.wrong = []
        self.first = {}             # a worker's pid
        self.counters = None

    def set_up(self):
        self.server.start(**SETTINGS)
        connection = self.server.connect()
        self.place.run(["pgbench", "-h", self.server.outside, "-U", "postgres", "-i", "-s", 8, "-q",
                        f"--partitions={PARTITIONS}", "postgres"])
        self.server.create_pgscale(connection)
        run(connection, "CREATE EXTENSION amcheck; CREATE EXTENSION pg_prewarm; CREATE EXTENSION pg_stat_statements")
        run(connection, "CREATE TABLE copied (id serial, filler text)")
        features.create_spaces(connection, self.place, [self.place.folder] * 2)
        features.move_in(connection, TABLES)
        views = [name for name, in run(connection, """
            SELECT oid::regclass::text FROM pg_class WHERE relkind = 'v' AND relnamespace = 'pgscale'::regnamespace""")]
        connection.close()
        return views

    def look(self, monitor):
        """Notes what each process holds, and the numbers of files by kind."""
        pids = {"postmaster": self.server.process.pid}
        for pid, title in self.server.processes().items():
            title = title.removeprefix("postgres: ").strip()
            if title in WORKERS:
                pids[title] = pid
                if self.first.setdefault(title, pid) != pid:
                    self.wrong.append(f"{title} started again")
                    self.first[title] = pid
        self.wrong += [f"there is no {name}" for name in WORKERS if name not in pids]
        for name, pid in pids.items():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError, TypeError):        # it has just ended
                self.series[name, "kB"].append(memory(pid))
                self.series[name, "descriptors"].append(len(os.listdir(f"/proc/{pid}/fd")))
        self.series["monitoring session", "kB"].append(monitor.keeps)
        for top in self.server.folder.iterdir():
            if top.is_dir():
                count = sum(len(files) for _, _, files in os.walk(top, followlinks=True))
                self.series[f"files in {top.name}", "files"].append(count)
        with contextlib.closing(self.server.connect()) as connection:
            ticks, missed, errors, broken, shared = run(connection, """
                SELECT ticks, missed_ticks,
                       (SELECT errors FROM pgscale.sweeper_stats) + (SELECT errors FROM pgscale.writeback_stats),
                       (SELECT string_agg(feature, ' ') FROM pgscale.health WHERE state = 'broken' AND feature <> 'numa'),
                       (SELECT sum(allocated_size) FROM pg_shmem_allocations) FROM pgscale.sampler_stats""")[0]
        if errors or broken:
            self.wrong.append(f"{errors} errors of sweeper and writeback; broken: {broken}")
        if self.counters and shared != self.counters["shared memory"]:
            self.wrong.append(f"shared memory has {shared} bytes instead of {self.counters['shared memory']}")
        self.counters = {"ticks": ticks, "missed": missed, "shared memory": shared}

    def soak(self):
        views = self.set_up()
        server = self.server
        pgbench = self.place.popen(
            ["pgbench", "-h", server.outside, "-U", "postgres", "-n", "-c", 4, "-j", 1, "-R", 60, "-T", 10 ** 6,
             "-b", "tpcb-like@1", "-b", "select-only@3", "postgres"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            with Monitor(server, views) as monitor, Load(server, self.arguments.seed, TABLES) as load:
                wait_for("monitoring", lambda: monitor.looks, 60)
                for number in range(LOOKS):
                    time.sleep(self.seconds / LOOKS)
                    if server.process.poll() is not None or pgbench.poll() is not None:
                        raise Loss("the server or pgbench has ended: " + server.last_words(0))
                    if load.broken or monitor.broken:
                        raise Loss("; ".join(load.broken + monitor.broken))
                    self.look(monitor)
                    if number % 10 == 9:
                        say(f"{monitor.looks} looks at all views, {dict(load.counts)}, {self.counters}")
        finally:
            end(pgbench)
        self.wrong += [f"the monitor was told: {answer}" for _, answer in monitor.errors]
        with contextlib.closing(server.connect()) as connection:
            load.check(connection)
        self.wrong += [f"the log says: {line.strip()}" for line in server.said().splitlines()
                       if ERROR.search(line) and re.search(r"\] pgscale", line) and not EXPECTED.search(line)][:5]
        checks.log(server.said())

    def growth(self):
        """(name, what) -> (median of each quarter of the looks, what an hour adds, too much?). The first quarter fills caches."""
        found = {}
        for (name, what), numbers in sorted(self.series.items()):
            quarter = len(numbers) // 4
            if quarter:
                medians = [statistics.median(numbers[i * quarter:(i + 1) * quarter]) for i in range(4)]
                more = medians[3] - medians[1]
                an_hour = more / (self.seconds / 2) * 3600
                # all the time, not once: a hash table that doubles grows once
                grows = medians[1] < medians[2] < medians[3] and more >= LEAST[what] and an_hour > MOST[what]
                found[name, what] = medians, round(an_hour, 1), grows
        return found


def main():
    parser = argparse.ArgumentParser(prog="t/trust/soak")
    parser.add_argument("--minutes", type=float, default=90)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--leak", action="store_true", help="with a library that leaks: does the test see it?")
    arguments = parser.parse_args()
    with Place() as place:
        its = Experiment(place, arguments.minutes * 60, arguments)
        try:
            its.soak()
        except (Loss, psycopg2.Error, RuntimeError) as error:
            its.wrong.append(str(error))
        growth = its.growth()
        leaks = {(name, what) for (name, what), (_, _, grows) in growth.items() if grows}
        wrong = list(dict.fromkeys(its.wrong))
        wrong += [f"{name} grows by {growth[name, what][1]} {what} an hour" for name, what in sorted(leaks)]
        record(f"soak{' leak' * arguments.leak} {place.major}", place, {
            "minutes": arguments.minutes, "seed": arguments.seed, "counters": its.counters,
            "growth": {" ".join(key): its for key, its in growth.items()}}, not arguments.leak and wrong)
    for (name, what), (medians, an_hour, _) in growth.items():
        print(f"{name}, {what}: {' '.join(f'{number:g}' for number in medians)}; {an_hour:+g} an hour")
    if arguments.leak:
        seen = {("pgscale sampler", "kB"), ("pgscale sampler", "descriptors")} <= leaks
        print("seen, as it must be" if seen else "NOT SEEN: this test is blind")
        return 0 if seen else 1
    print(f"{arguments.minutes:g} minutes, {its.counters}, wrong: " + ("; ".join(wrong) or "nothing"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
