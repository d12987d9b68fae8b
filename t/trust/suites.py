"""PostgreSQL's own suites with everything of pgscale at work, and without pgscale; and sqlsmith.

A test counts by whether it answers the same with and without: what fails in both is the machine's or the suite's. What differs is
run again, so that a test which fails now and then is not taken for a difference.
"""
import argparse
import concurrent.futures
import contextlib
import os
import pathlib
import re
import shutil
import signal
import subprocess
import sys
import time

import psycopg2

from cluster import TREE, Place, run, say
from server import OUTPUT, SWEEPER, record

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
    **SWEEPER,
    "pgscale.sampler_period": "1ms",
    "pgscale.sampler_nested": "on",
    "pgscale.sweeper_high_watermark": "0.2",
    "pgscale.writeback": "on",
    "pgscale.writeback_cap": "1MB",
    # in a database that the suites do not use; recovery's servers lack the extension, so each round fails there
    "pgscale.archive_database": "postgres",
    "pgscale.debug_period": "1s",
}
# what bench's servers have otherwise
DEFAULTS = {name: None for name in ("autovacuum", "checkpoint_timeout", "max_wal_size", "synchronous_commit")}

# "test x ... ok" or "    x ... ok" until 15, "ok 1 - x" since 16
RESULT = (re.compile(r"^(?:test| ) +(?P<test>\S+) +\.\.\. (?P<answer>ok|FAILED|failed)"),
          re.compile(r"^(?P<answer>ok|not ok) +\d+ +[-+] (?P<test>\S+)"))
LIMIT = 1800        # seconds for one program
AT_ONCE = 4         # recovery tests: mostly they wait
PASS = 0.9          # of a suite's tests, without pgscale
# What a server with assertions must not say; a statement in the log may quote it.
WRONG = re.compile(r"^TRAP: |\bPANIC: |was terminated by signal (4|6|7|8|11)\b|refcount leak|stuck spinlock")
INTERNAL = re.compile(r"(ERROR|FATAL):  XX000: (?P<message>.*)")
LOCATION = re.compile(r"LOCATION:  (?P<function>\w+), (?P<file>\w+\.c):\d+")
FUNCTION = re.compile(r"^(\w+)\(", re.MULTILINE)


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


def answers(output):
    """test -> its answer, of what pg_regress said"""
    found = {}
    for line in output.read_text(errors="replace").splitlines():
        for form in RESULT:
            match = form.match(line)
            if match:
                found[match["test"]] = "ok" if match["answer"] == "ok" else "failed"
    return found


class Experiment:
    def __init__(self, place, arguments):
        self.place = place
        self.arguments = arguments
        self.tests = pathlib.Path(os.environ["PG_SOURCE"]) / "src" / "test"
        self.runs = 0
        self.wrong = []
        self.found = {}
        self.tested = None      # the server on which the regress suite left its database

    def settings(self, everything):
        return {**COMMON, **(EVERYTHING if everything else {})}

    def folder(self, suite, everything):
        """A new one, of one run of a suite"""
        self.runs += 1
        made = self.place.folder / "suites" / f"{suite}-{'with' if everything else 'without'}-{self.runs}"
        made.mkdir(parents=True)
        self.place.give(self.place.folder / "suites")
        return made

    def program(self, command, output, cwd, **environment):
        """Runs a program as the ordinary user, with its output in a file. True if it ended well."""
        environment = {"PATH": f"{self.place.bindir}:{os.environ['PATH']}", "HOME": str(self.place.folder),
                       "TMPDIR": str(self.place.folder), "LANG": "C", "LC_ALL": "C",
                       **{key: str(value) for key, value in environment.items()}}
        with open(output, "wb") as out:
            return subprocess.run(["timeout", "-k", "10", str(LIMIT), *self.place.as_user, *map(str, command)], cwd=cwd,
                                  env=environment, stdout=out, stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL).returncode == 0

    def pg_regress(self, suite, program, schedule, *tests):
        """A suite of pg_regress' kind against a new server, as a function of everything and tests, which it cannot choose."""
        def once(everything, _):
            folder = self.folder(suite, everything)
            server = self.place.cluster(folder.name, **DEFAULTS, **self.settings(everything))
            with server:
                if everything:
                    with contextlib.closing(server.connect()) as connection:
                        server.create_pgscale(connection)
                self.program([self.tests / suite / program, f"--inputdir={self.tests / suite}", f"--outputdir={folder}",
                              f"--dlpath={self.tests / 'regress'}", f"--bindir={self.place.bindir}", f"--host={server.folder}",
                              "--user=postgres", "--max-concurrent-tests=20",
                              f"--schedule={self.tests / suite / schedule}", *tests], folder / "out", folder)
                if everything:
                    self.did(suite, server)
            self.check(folder.name, server.log)
            if suite == "regress" and everything:
                self.tested = server
            return answers(folder / "out")
        return once

    def did(self, suite, server):
        """What pgscale did on this server: everything must have worked."""
        with contextlib.closing(server.connect()) as connection:
            ticks, swept, written, rows = run(connection, """
                SELECT (SELECT ticks FROM pgscale.sampler_stats), (SELECT written FROM pgscale.sweeper_stats),
                       (SELECT written_bytes FROM pgscale.writeback_stats),
                       (SELECT count(*) FROM pgscale_internal.archive_minute)""")[0]
        self.found[f"{suite} did"] = {"ticks": ticks, "pages swept": swept, "written bytes seen": written, "archive rows": rows}
        if not (ticks and swept and written and rows):
            self.wrong.append(f"{suite}: not all features were at work: {self.found[f'{suite} did']}")

    def recovery(self, everything, only):
        """Answers by file of the recovery tests. Their servers take the settings of a file; where a test preloads a library of its
        own, pgscale is added."""
        folder = self.folder("recovery", everything)
        settings = {**self.settings(everything), "dynamic_library_path": f"{self.place.library}:$libdir"}
        config = self.place.script(f"{folder.name}.conf", "".join(f"{k} = '{v}'\n" for k, v in settings.items()))
        programs = folder / "recovery" / "t"
        programs.mkdir(parents=True)
        # otherwise they take the folder of the source, which is not the user's
        ports = folder / "ports"
        ports.mkdir()
        # some of them use the regress suite by ../regress
        (folder / "regress").symlink_to(self.tests / "regress")
        for program in (self.tests / "recovery" / "t").iterdir():
            text = program.read_text()
            if everything:
                text = re.sub(r"(shared_preload_libraries\s*=\s*')", r"\g<1>pgscale,", text)
            (programs / program.name).write_text(text)

        def prove(program):
            check = folder / "check" / program.stem
            good = self.program(["prove", "--verbose", "-I", self.tests / "perl", program], check / "out", folder / "recovery",
                                TEMP_CONFIG=config, TESTDIR=check, TESTDATADIR=check / "tmp_check",
                                TESTLOGDIR=check / "tmp_check" / "log", PG_REGRESS=self.tests / "regress" / "pg_regress",
                                REGRESS_SHLIB=self.tests / "regress" / "regress.so", top_builddir=self.tests.parents[1],
                                PG_TEST_PORT_DIR=ports, enable_injection_points="yes", with_icu="no",
                                PG_TEST_TIMEOUT_DEFAULT=180)
            skipped = re.search(r"^Result: NOTESTS", (check / "out").read_text(errors="replace"), re.MULTILINE)
            return program.name, "skipped" if skipped else "ok" if good else "failed"

        chosen = [program for program in sorted(programs.glob("*.pl")) if not only or program.name in only]
        for program in chosen:
            (folder / "check" / program.stem / "tmp_check" / "log").mkdir(parents=True)
        self.place.give(folder)
        with concurrent.futures.ThreadPoolExecutor(AT_ONCE) as pool:
            done = dict(pool.map(prove, chosen))
        if everything:
            self.check(folder.name, *folder.glob("check/*/tmp_check/log/*.log"))
        return done

    def compare(self, suite, once, chosen=None):
        """Without pgscale and with everything; what differs, once more. once(everything, tests) runs these, or all."""
        without, with_all = once(False, chosen), once(True, chosen)
        differ = sorted(test for test in without.keys() | with_all.keys() if without.get(test) != with_all.get(test))
        if differ:
            say(f"{suite}: {', '.join(differ)} differ: once more")
            again = once(False, differ), once(True, differ)
            twice = [test for test in differ if again[0].get(test) != again[1].get(test)]
            self.found[f"{suite} differs"] = {"once": differ, "twice": twice}
            self.wrong += [f"{suite}: {test}: {without.get(test)} without, {with_all.get(test)} with, and again" for test in twice]
        self.found[suite] = ", ".join(f"{sum(answer == 'ok' for answer in its.values())} of "
                                      f"{sum(answer != 'skipped' for answer in its.values())} {how}"
                                      for how, its in (("without", without), ("with", with_all)))
        # a few that fail in both are the machine's; most of them, and nothing was tested
        ran = [answer for answer in without.values() if answer != "skipped"]
        if not with_all or ran.count("ok") < max(1, PASS * len(ran)):
            self.wrong.append(f"{suite} did not run, or hardly any of it passes without pgscale")

    def check(self, name, *logs):
        self.wrong += [f"{name}: {line}" for log in logs for line in complaints(log)[:5]]

    def sqlsmith(self):
        """Random statements, well-formed and typed, over the regress suite's database with the extension in it."""
        if not self.tested:
            self.pg_regress("regress", "pg_regress", "parallel_schedule")(True, None)
        server = self.tested
        output = self.place.folder / "suites" / "sqlsmith.out"
        with server, open(output, "wb") as out:
            with contextlib.closing(psycopg2.connect(host=str(server.folder), user="postgres", dbname="regression")) as connection:
                connection.autocommit = True
                server.create_pgscale(connection)
            process = server.place.popen(
                ["/usr/bin/sqlsmith", f"--target=host={server.folder} user=postgres dbname=regression",
                 f"--seed={self.arguments.seed}", "--verbose"], stdout=out, stderr=subprocess.STDOUT)
            try:
                process.wait(self.arguments.minutes * 60)
            except subprocess.TimeoutExpired:
                process.send_signal(signal.SIGINT)      # it then says how far it came
                process.wait(60)
            finally:
                process.kill()
                process.wait()
            if server.process.poll() is not None:
                self.wrong.append("sqlsmith: the server ended")
        self.check("sqlsmith", server.log)
        counts = re.findall(r"^queries: (\d+)", output.read_text(errors="replace"), re.MULTILINE)
        self.found["sqlsmith"] = f"{counts[-1] if counts else 0} statements"
        if not counts or int(counts[-1]) < 100:
            self.wrong.append("sqlsmith: it did not work")

    def keep(self):
        """What a closer look needs: what the suites said, and the servers' logs where something is wrong."""
        wanted = ["suites/*/out", "suites/*/regression.diffs", "suites/*/check/*/out", "suites/sqlsmith.out"]
        if self.wrong:
            wanted += ["suites/recovery-with*/check/*/tmp_check/log/*", "*/log"]
        for file in (file for pattern in wanted for file in self.place.folder.glob(pattern) if file.is_file()):
            to = OUTPUT / f"suites-{self.place.major}" / file.relative_to(self.place.folder)
            to.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(file, to)


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
        its = Experiment(place, arguments)
        suites = {
            "regress": lambda: its.compare("regress", its.pg_regress("regress", "pg_regress", "parallel_schedule")),
            "isolation": lambda: its.compare("isolation", its.pg_regress("isolation", "pg_isolation_regress", "isolation_schedule",
                                                                         "prepared-transactions")),
            "recovery": lambda: its.compare("recovery", its.recovery, arguments.tests and arguments.tests.split(",")),
            "sqlsmith": its.sqlsmith}
        for kind in arguments.only.split(","):
            since = time.monotonic()
            suites[kind]()
            say(f"{kind}: {its.found[kind]}, {time.monotonic() - since:.0f} s")
        record(f"suites {arguments.only.replace(',', ' ')} {place.major}", place, its.found, its.wrong)
        its.keep()
    for what, found in its.found.items():
        print(f"{what}: {found}")
    print(f"{place.version}: wrong: " + ("; ".join(its.wrong) or "nothing"))
    return 1 if its.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
