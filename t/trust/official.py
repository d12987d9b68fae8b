"""PostgreSQL's own suites, run from a built source tree that they do not change, against servers with given settings."""
import concurrent.futures
import os
import pathlib
import re
import subprocess

# "test x ... ok" or "    x ... ok" until 15, "ok 1 - x" since 16
RESULT = (re.compile(r"^(?:test| ) +(?P<test>\S+) +\.\.\. (?P<answer>ok|FAILED|failed)"),
          re.compile(r"^(?P<answer>ok|not ok) +\d+ +[-+] (?P<test>\S+)"))
LIMIT = 1800        # seconds for one program


class Suites:
    """The suites of one source tree; what they write goes to one folder a run."""

    def __init__(self, place, source):
        self.place = place
        self.tests = pathlib.Path(source) / "src" / "test"

    def run(self, command, output, cwd, **environment):
        """Runs a program as the ordinary user, with its output in a file. True if it ended well."""
        environment = {"PATH": f"{self.place.bindir}:{os.environ['PATH']}", "HOME": str(self.place.folder),
                       "TMPDIR": str(self.place.folder), "LANG": "C", "LC_ALL": "C",
                       **{key: value for key, value in os.environ.items() if key.endswith("SAN_OPTIONS")},
                       **{key: str(value) for key, value in environment.items()}}
        with open(output, "wb") as out:
            process = subprocess.Popen([*self.place.as_user, *map(str, command)], cwd=cwd, env=environment, stdout=out,
                                       stderr=subprocess.STDOUT, stdin=subprocess.DEVNULL)
            try:
                return process.wait(LIMIT) == 0
            except subprocess.TimeoutExpired:
                out.write(b"\nno end in time\n")
                return False
            finally:
                if process.poll() is None:
                    process.kill()
                    process.wait()

    def folder(self, name):
        made = self.place.folder / "suites" / name
        made.mkdir(parents=True)
        self.place.give(self.place.folder / "suites")
        return made

    def pg_regress(self, program, suite, server, name, tests=()):
        """Answers by test of a suite of pg_regress' kind, against a running server."""
        folder = self.folder(name)
        self.run([self.tests / suite / program, f"--inputdir={self.tests / suite}", f"--outputdir={folder}",
                  f"--dlpath={self.tests / 'regress'}", f"--bindir={self.place.bindir}", f"--host={server.folder}",
                  "--user=postgres", "--max-concurrent-tests=20", *tests], folder / "out", folder)
        return answers((folder / "out").read_text(errors="replace"))

    def regress(self, server, name):
        return self.pg_regress("pg_regress", "regress", server, name,
                               [f"--schedule={self.tests / 'regress' / 'parallel_schedule'}"])

    def isolation(self, server, name):
        return self.pg_regress("pg_isolation_regress", "isolation", server, name,
                               [f"--schedule={self.tests / 'isolation' / 'isolation_schedule'}", "prepared-transactions"])

    def recovery(self, config, preload, name, only=None, at_once=4):
        """Answers by file of the recovery tests. Their servers take the settings of that file; where a test preloads a
        library of its own, preload is added. Mostly they wait, so several run at a time."""
        folder = self.folder(name)
        programs = folder / "recovery" / "t"
        programs.mkdir(parents=True)
        # otherwise they take the folder of the source, which is not the user's
        ports = folder / "ports"
        ports.mkdir()
        # some of them use the regress suite by ../regress
        (folder / "regress").symlink_to(self.tests / "regress")
        for program in (self.tests / "recovery" / "t").iterdir():
            text = program.read_text()
            if preload:
                text = re.sub(r"(shared_preload_libraries\s*=\s*')", rf"\g<1>{preload},", text)
            (programs / program.name).write_text(text)

        def prove(program):
            check = folder / "check" / program.stem
            good = self.run(["prove", "--verbose", "-I", self.tests / "perl", program], check / "out", folder / "recovery",
                            TEMP_CONFIG=config, TESTDIR=check, TESTDATADIR=check / "tmp_check",
                            TESTLOGDIR=check / "tmp_check" / "log", PG_REGRESS=self.tests / "regress" / "pg_regress",
                            REGRESS_SHLIB=self.tests / "regress" / "regress.so", top_builddir=self.tests.parents[1],
                            PG_TEST_PORT_DIR=ports, enable_injection_points="yes", with_icu="no", PG_TEST_TIMEOUT_DEFAULT=180)
            output = (check / "out").read_text(errors="replace")
            if re.search(r"^Result: NOTESTS", output, re.MULTILINE):
                return program.name, "skipped", 0
            return program.name, "ok" if good else "failed", len(re.findall(r"^ok ", output, re.MULTILINE))

        chosen = [program for program in sorted(programs.glob("*.pl")) if only is None or program.name in only]
        for program in chosen:
            (folder / "check" / program.stem / "tmp_check" / "log").mkdir(parents=True)
        self.place.give(folder)
        with concurrent.futures.ThreadPoolExecutor(at_once) as pool:
            done = list(pool.map(prove, chosen))
        self.assertions = sum(count for _, _, count in done)
        return {test: answer for test, answer, _ in done}


def answers(output):
    found = {}
    for line in output.splitlines():
        for form in RESULT:
            match = form.match(line)
            if match:
                found[match["test"]] = "ok" if match["answer"] == "ok" else "failed"
    return found
