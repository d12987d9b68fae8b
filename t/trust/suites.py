"""PostgreSQL's own suites with everything of pgscale at work, and without pgscale; and sqlsmith.

A test counts by whether it answers alike with and without: what fails in both is the machine's or the suite's. What
differs is run again, so that a test which fails now and then is not taken for a difference.
"""
import argparse
import contextlib
import os
import re
import shutil
import sys
import time

import psycopg2

import machine
import smith
import workers
from cluster import TREE, Place, run, say
from official import Suites
from record import OUTPUT, record

# The same with and without. What the suites expect of a server they start themselves, and fsync: without it nothing is
# written back. Small buffers make the sweeper work; a scan must not start where another one is, as it then would.
COMMON = {
    "fsync": "on",
    "shared_buffers": "8MB",
    "synchronize_seqscans": "off",
    "max_worker_processes": "40",
    "max_prepared_transactions": "10",
    "compute_query_id": "regress",
    "log_error_verbosity": "verbose",
}
EVERYTHING = {
    "shared_preload_libraries": "pgscale",
    "pgscale.sampler_period": "1ms",
    "pgscale.sampler_nested": "on",
    "pgscale.sweeper": "on",
    "pgscale.sweeper_adaptive": "off",
    "pgscale.sweeper_policy": "adaptive",
    "pgscale.sweeper_workers": "2",
    "pgscale.sweeper_high_watermark": "0.2",
    "pgscale.writeback": "on",
    "pgscale.writeback_cap": "1MB",
    "pgscale.writeback_adaptive": "off",
    # in a database that the suites do not use; recovery's servers lack the extension, so each round fails there
    "pgscale.archive_database": "postgres",
    "pgscale.sampler_debug_period": "1s",
}
# what bench's servers have otherwise
DEFAULTS = {name: None for name in ("autovacuum", "checkpoint_timeout", "max_wal_size", "synchronous_commit")}

# Differences that are no fault: (suite, test) -> why
EXPLAINED = {}

# What a server with assertions must not say; a statement in the log may quote it.
WRONG = re.compile(r"^TRAP: |\bPANIC: |was terminated by signal (4|6|7|8|11)\b|refcount leak|stuck spinlock")
INTERNAL = re.compile(r"(ERROR|FATAL):  XX000: (?P<message>.*)")
LOCATION = re.compile(r"LOCATION:  (?P<function>\w+), (?P<file>\w+\.c):\d+")
FUNCTION = re.compile(r"^(\w+)\(", re.MULTILINE)
PASS = 0.9          # of a suite's tests, without pgscale
PRIVATE = 1024      # kB that a worker's own memory may grow in a run


def complaints(log):
    """Lines that must not be there; and of internal errors, those raised by pgscale itself."""
    # a server's log has no folders, and the server has a worker.c, too
    own = {(function, file.name) for file in (TREE / "src").rglob("*.c") for function in FUNCTION.findall(file.read_text())}
    found, internal = [], None
    with open(log, errors="replace") as lines:
        for line in lines:
            if WRONG.search(line) and not line.startswith("\t") and "STATEMENT:" not in line:
                found.append(line.strip())
            match = INTERNAL.search(line)
            if match:
                internal = match["message"]
            match = LOCATION.search(line)
            if match:
                if internal and (match["function"], match["file"]) in own:
                    found.append(f"{match['file']}: XX000: {internal}")
                internal = None
    return found


def did(server):
    """What pgscale did on this server, and what it says of itself."""
    connection = server.connect()
    numbers = run(connection, """
        SELECT (SELECT ticks FROM pgscale.sampler_stats), (SELECT missed_ticks FROM pgscale.sampler_stats),
               (SELECT samples FROM pgscale.sampler_stats), (SELECT sum(written) FROM pgscale.sweeper_stats),
               (SELECT count(*) FROM pgscale_internal.archive_minute)""")[0]
    writeback = run(connection, "SELECT to_jsonb(k) FROM pgscale.writeback_stats k")[0][0]
    health = run(connection, "SELECT feature, to_jsonb(h) - 'feature' - 'action' FROM pgscale.health h")
    connection.close()
    return {"sampler ticks": numbers[0], "missed": numbers[1], "samples": numbers[2], "pages swept": int(numbers[3] or 0),
            "archive rows": numbers[4], "writeback": writeback, "health": dict(health)}


class Experiment:
    def __init__(self, place, arguments):
        self.place = place
        self.arguments = arguments
        self.suites = Suites(place, os.environ["PG_SOURCE"])
        self.wrong = []
        self.table = []
        self.found = {}
        self.tested = None      # the server on which the regress suite left its database

    def settings(self, everything):
        return {**COMMON, **(EVERYTHING if everything else {})}

    def server(self, name, everything):
        return self.place.cluster(name, **DEFAULTS, **self.settings(everything))

    def compare(self, suite, without, with_all, again):
        """Two runs; what differs, once more. again(everything, tests) runs these or, if it cannot, all."""
        differ = sorted(test for test in without.keys() | with_all.keys() if without.get(test) != with_all.get(test))
        if differ:
            say(f"{suite}: {', '.join(differ)} differ: once more")
            once, more = again(False, differ), again(True, differ)
            for test in differ:
                first = f"{test}: {without.get(test)} without, {with_all.get(test)} with"
                if once.get(test) == more.get(test):
                    self.found[suite, test] = f"{first}; in a second run {more.get(test)} in both"
                else:
                    why = EXPLAINED.get((suite, test))
                    self.found[suite, test] = f"{first}, twice" + (f": {why}" if why else "")
                    if not why:
                        self.wrong.append(f"{suite}: {self.found[suite, test]}")
        def score(answers):
            good = sum(answer == "ok" for answer in answers.values())
            return f"{good} of {sum(answer != 'skipped' for answer in answers.values())}"
        self.table.append((suite, score(without), score(with_all), len(differ)))
        both = sorted(test for test in without if without[test] == with_all.get(test) == "failed")
        if both:
            self.found[suite, "both"] = f"failed in both: {', '.join(both)}"
        # a few that fail in both are the machine's; most of them, and nothing was tested
        if sum(answer == "ok" for answer in without.values()) < PASS * len(without) or not without or not with_all:
            self.wrong.append(f"{suite} did not run, or hardly any of it passes without pgscale")

    def on_server(self, suite, everything, number):
        """One of the two suites of pg_regress' kind, on a new server; its workers' memory, its log."""
        name = f"{suite}-{'with' if everything else 'without'}-{number}"
        server = self.server(name, everything)
        with server:
            if everything:
                with contextlib.closing(server.connect()) as connection:
                    server.create_pgscale(connection)
                time.sleep(5)       # the workers have read their catalogs and touched their memory
                before = workers.memory(server)
            answers = getattr(self.suites, suite)(server, f"{name}-out")
            if everything:
                self.memory(suite, before, workers.memory(server))
                self.found[suite, f"did {number}"] = done = did(server)
                if done["archive rows"] == 0:
                    self.wrong.append(f"{suite}: nothing was archived")
        self.check(name, server.log)
        if suite == "regress" and everything:
            self.tested = server
        else:
            shutil.move(server.log, self.place.folder / "suites" / f"{name}-out" / "log")
            shutil.rmtree(server.data)
        return answers

    def memory(self, suite, before, after):
        rows = workers.compare(before, after)
        self.found[suite, "memory"] = rows
        for title, _, _, private_before, private_after in rows:
            if private_after - private_before > PRIVATE:
                self.wrong.append(f"{suite}: {title}: private memory grew from {private_before} to {private_after} kB")
        if not rows:
            self.wrong.append(f"{suite}: no worker of pgscale stayed")

    def check(self, name, *logs):
        for log in logs:
            for line in complaints(log)[:5]:
                self.wrong.append(f"{name}: {line}")

    def pg_regress(self, suite):
        first = [self.on_server(suite, everything, 1) for everything in (False, True)]
        self.compare(suite, *first, lambda everything, tests: self.on_server(suite, everything, 2))

    def regress(self):
        self.pg_regress("regress")

    def isolation(self):
        self.pg_regress("isolation")

    def recovery(self):
        count = {}

        def one(everything, tests):
            kind = "with" if everything else "without"
            name = f"recovery-{kind}-{'again' if kind in count else 'first'}"
            settings = {**self.settings(everything), "dynamic_library_path": f"{self.place.library}:$libdir"}
            config = self.place.script(f"{name}.conf", "".join(f"{k} = '{v}'\n" for k, v in settings.items()))
            answers = self.suites.recovery(config, "pgscale" if everything else None, name, tests)
            count.setdefault(kind, self.suites.assertions)
            if everything:
                self.check(name, *(self.place.folder / "suites" / name).glob("check/*/tmp_check/log/*.log"))
            return answers
        chosen = self.arguments.tests and self.arguments.tests.split(",")
        self.compare("recovery", one(False, chosen), one(True, chosen), one)
        self.found["recovery", "assertions"] = count

    def sqlsmith(self):
        """On the regress suite's database, with the extension in it."""
        if not self.tested:
            self.on_server("regress", True, 0)
        server, mark = self.tested, self.tested.log.stat().st_size
        with server:
            connection = psycopg2.connect(host=str(server.folder), user="postgres", dbname="regression")
            connection.autocommit = True
            server.create_pgscale(connection)
            connection.close()
            time.sleep(5)
            before = workers.memory(server)
            said = smith.run(server, self.arguments.minutes * 60, self.arguments.seed)
            self.memory("sqlsmith", before, workers.memory(server))
            alive = server.process.poll() is None
        self.check("sqlsmith", server.log)
        self.found["sqlsmith", "statements"] = said
        self.found["sqlsmith", "internal errors"] = smith.internal_errors(server.log, mark)
        if not alive:
            self.wrong.append("sqlsmith: the server ended")
        if said["statements"] < 100:
            self.wrong.append("sqlsmith: it did not work")
        self.table.append(("sqlsmith", "", f"{said['statements']} statements", ""))

    def keep(self):
        """What a closer look needs: what the suites said, and the servers' logs where something is wrong."""
        kept = OUTPUT / f"suites-{self.place.major}"
        wanted = ["suites/*/out", "suites/*/regression.diffs", "suites/*/check/*/out", "sqlsmith.out"]
        if self.wrong:
            wanted += ["suites/*/log", "suites/recovery-with*/check/*/tmp_check/log/*", "*/log"]
        for file in (file for pattern in wanted for file in self.place.folder.glob(pattern) if file.is_file()):
            to = kept / file.relative_to(self.place.folder)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, to)
        say(f"kept for a closer look: {kept.relative_to(TREE)}")


def main():
    kinds = ("regress", "isolation", "recovery", "sqlsmith")
    parser = argparse.ArgumentParser(prog="t/trust/suites")
    parser.add_argument("--major", type=int, default=15, help="15, 17 or 18; 15")
    parser.add_argument("--only", default=",".join(kinds), help="which of them, separated by commas; all")
    parser.add_argument("--tests", help="which of recovery's, such as 029_stats_restart.pl,031_recovery_conflict.pl; all")
    parser.add_argument("--minutes", type=float, default=10, help="of sqlsmith; 10")
    parser.add_argument("--seed", type=int, default=1, help="of sqlsmith")
    arguments = parser.parse_args()
    with Place() as place:
        experiment = Experiment(place, arguments)
        for kind in arguments.only.split(","):
            if kind not in kinds:
                parser.error(f"no suite {kind}")
            since = time.monotonic()
            getattr(experiment, kind)()
            say(f"{kind}: {time.monotonic() - since:.0f} s")
        some = "" if arguments.only == ",".join(kinds) else f" {arguments.only.replace(',', ' ')}"
        record(f"suites{some} {place.major}", {
            **machine.describe(place), "table": experiment.table, "wrong": experiment.wrong,
            "found": {" ".join(key): value for key, value in experiment.found.items()}})
        experiment.keep()
    print(f"PostgreSQL {place.version}\n\n| suite | passed without | with | differ |\n|---|---|---|---|")
    for row in experiment.table:
        print("| " + " | ".join(str(cell) for cell in row) + " |")
    for (suite, what), found in experiment.found.items():
        if what == "memory":
            print(f"\n{suite}: kB resident, of which private")
            for title, *numbers in found:
                print(f"  {title}: {numbers[0]} -> {numbers[1]}, {numbers[2]} -> {numbers[3]}")
        else:
            print(f"\n{suite}, {what}: {found}")
    print("\n".join(f"WRONG: {line}" for line in experiment.wrong) or "\nnothing wrong")
    return 1 if experiment.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
