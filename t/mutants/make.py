#!/usr/bin/env python3
"""t/mutants/make.py [FEATURE|FILE...] [--range COMMITS] [--count N] [--seed S] [--jobs N]: do the tests see small bugs?

Makes bugs from the source itself: a comparison swapped or off by one, a condition negated, a statement dropped, a constant
changed, a sibling field of a struct taken. Each is built in a copy of the tree and meets the tests of its feature, up to the
first that fails. It is "killed", or it "survived"; "equivalent" if the compiler makes the same code of it. The seed is printed,
and makes the same bugs of the same tree. --range takes only lines that these commits changed; --list only names the bugs.
What survives shows a hole in the tests, or stands in t/mutants/accepted with the reason. It needs root, for mounts of its own.
"""
import argparse
import collections
import concurrent.futures
import itertools
import os
import pathlib
import queue
import random
import re
import subprocess
import sys
import tempfile
import threading
import time

TREE = pathlib.Path(__file__).resolve().parents[2]
ACCEPTED = TREE / "t/mutants/accepted"
LEAST = 0.85
AT_ONCE = 4             # tests of one run of `make test-here`
SWAPPED = {"<": "<= >", "<=": "< >=", ">": ">= <", ">=": "> <=", "==": "!=", "!=": "==", "&&": "||", "||": "&&", "+": "-", "-": "+",
           "true": "false", "false": "true", "Min": "Max", "Max": "Min", "AND": "OR", "OR": "AND", "least": "greatest", "greatest": "least"}
KINDS = {
    "comparison": r"(?<=\s)(?:<=|>=|==|!=|<|>)(?=\s)",
    "logic": r"(?<=\s)&&(?=\s)|(?<=\s)\|\|(?=\s)|\b(?:AND|OR|true|false)\b",
    "arithmetic": r"(?<=[\w)\]] )[+-](?= [\w(])|\b(?:Min|Max|least|greatest)(?=\()",
    "constant": r"(?<![\w.$\"'])\d+(?![\w.\"'])",
    "condition": r"^\s*(?:else )?(?:if|while) \((.*)\)$",
    "statement": r"^\s+(?!pfree|list_free|MemoryContextDelete)(?:[\w>.\[\]-]+(?:\+\+|--|(?: [-+|&*/]?= .*))|\w+\(.*\)|continue|break|return);$",
    "field": r"(?:->|(?<=[\w\])])\.)([a-z_]\w*)\b(?!\()",
}
ONLY_C = ("condition", "statement", "field")


def masked(text, sql):
    """The text without what comments and literals say."""
    pattern = r"--[^\n]*|'(?:[^']|'')*'" if sql else r'/\*.*?\*/|"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|^[ \t]*#(?:\\\n|[^\n])*'
    return re.sub(pattern, lambda m: re.sub(r"[^\n]", " ", m[0]), text, flags=re.S | re.M)


def code(file):
    """Number, text and masked text of each line of a function's body, and the function."""
    text = file.read_text()
    sql = file.suffix == ".sql"
    lines, bare = text.split("\n"), masked(text, sql).split("\n")
    inside, function = False, ""
    for number, line in enumerate(bare):
        if sql:
            if found := re.search(r"CREATE (?:FUNCTION|PROCEDURE|VIEW) ([\w.]+)", line):
                function = found[1]
            inside = function and not line.startswith(("CREATE", "COMMENT", "GRANT", "REVOKE", "SET", "RETURNS", "LANGUAGE", "AS "))
        elif line == "{":
            inside = not re.match(r"(typedef |static )*(const )?(struct|enum|union)\b", bare[number - 1])
            function = re.match(r"(\w*)", bare[number - 1])[1] if inside else function
        elif line.startswith("}"):
            inside = False
        elif re.match(r"[a-z_]\w*\(", line):
            function = re.match(r"\w+", line)[0]
        if inside and not re.search(r"\b(Assert|StaticAssert\w*|elog|errmsg\w*|pg_unreachable)\(|^\s+(static |const )?[A-Z]?\w+ +\**\w+;$", line):
            yield number, lines[number], line, function


def siblings():
    """By the name of a field, the names of fields of the same type in the same struct."""
    found = {}
    for file in sorted(TREE.glob("src/**/*.[ch]")):
        for struct in re.findall(r"^(?:typedef )?struct \w*\n\{\n(.*?)^\}", masked(file.read_text(), False), re.S | re.M):
            fields = re.findall(r"^\t((?:const |unsigned |struct )?\w+)\s+(\**)(\w+)(\[\w+\])?;", struct, re.M)
            for a in fields:
                found.setdefault(a[2], set()).update(b[2] for b in fields if a != b and (a[0], a[1], a[3]) == (b[0], b[1], b[3]))
    return {name: sorted(others) for name, others in found.items()}


def changes(kind, line, bare, fields, sql):
    """What becomes of the line, for each bug of the kind in it."""
    for m in re.finditer(KINDS[kind], bare):
        if kind == "condition" and m[1].count("(") == m[1].count(")"):
            yield line[:m.start(1)] + f"!({line[m.start(1):m.end(1)]})" + line[m.end(1):]
        elif kind == "statement":
            yield re.match(r"\s*", line)[0] + ";"
        elif kind == "field":
            yield from (line[:m.start(1)] + other + line[m.end(1):] for other in fields.get(m[1], ()))
        elif kind == "constant":
            yield line[:m.start()] + str(int(m[0]) + 1) + line[m.end():]
        elif kind != "condition" and (m[0] != "||" or not sql):
            yield from (line[:m.start()] + other + line[m.end():] for other in SWAPPED[m[0]].split())


def bugs(files, lines, rng):
    """All of them, in a random order that has as many of each kind."""
    fields, by_kind = siblings(), {kind: [] for kind in KINDS}
    for file in files:
        for number, line, bare, function in code(TREE / file):
            if lines is None or number + 1 in lines.get(file, ()):
                for kind in KINDS:
                    if file.endswith(".c") or kind not in ONLY_C:
                        by_kind[kind] += [(file, number, function, line, new) for new in changes(kind, line, bare, fields, file.endswith(".sql"))]
    for some in by_kind.values():
        rng.shuffle(some)
    while kinds := [kind for kind in by_kind if by_kind[kind]]:
        yield by_kind[rng.choice(kinds)].pop()


def changed(commits):
    """The lines that commits changed, by file."""
    found, file = {}, None
    for line in subprocess.run(["git", "diff", "-U0", commits, "--", "src"], cwd=TREE, check=True, capture_output=True, text=True).stdout.split("\n"):
        if line.startswith("+++ b/"):
            file = line[6:]
        elif m := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))? @@", line):
            found.setdefault(file, set()).update(range(int(m[1]), int(m[1]) + int(m[2] or 1)))
    return found


def features(file):
    """The folders of src/ whose tests may see a bug in this file: its own, or those that use what all use."""
    parts = pathlib.PurePath(file).parts
    if len(parts) > 2 and parts[1] != "base":
        return [parts[1]]
    used = f'#include "{pathlib.PurePath(*parts[1:]).with_suffix(".h")}"'
    return sorted({f.relative_to(TREE / "src").parts[0] for f in TREE.glob("src/*/**/*.c") if used in f.read_text()} - {"base"}) or ["health", parts[-1].split(".")[0]]


def runs(file):
    """Which tests go together: the SQL tests first, as the fastest; then TAP tests, the shortest files first."""
    sql = [f.stem for name in features(file) for f in sorted(TREE.glob(f"sql/{name}*.sql")) if re.fullmatch(rf"{name}(_.*)?", f.stem)]
    tap = {f for name in features(file) for f in TREE.glob(f"t/[0-9]*_{name}*.pl") if re.fullmatch(rf"\d+_{name}(_.*)?", f.stem)}
    tap = [f"t/{f.name}" for f in sorted(tap, key=lambda f: (f.stat().st_size, f.name))]
    return [(" ".join(sql), "")] + [("", " ".join(tap[i:i + AT_ONCE])) for i in range(0, len(tap), AT_ONCE)]


class Copy:
    """A built copy of the tree, in which one bug at a time is."""

    def __init__(self, folder, pg_config):
        self.folder, self.pg_config = folder, pg_config
        folder.mkdir(0o755)
        subprocess.run(f"git ls-files -z | tar -c --null -T - | tar -C {folder} -x --no-same-owner", shell=True, cwd=TREE, check=True)
        if self.make("all") != 0:
            sys.exit("the tree itself does not build")

    def make(self, *words):
        return subprocess.run(["make", "-s", *words, f"PG_CONFIG={self.pg_config}"], cwd=self.folder, capture_output=True, text=True).returncode

    def object(self, file):
        subprocess.run(["strip", "-g", "-o", self.folder / "stripped", (self.folder / file).with_suffix(".o")], check=True)
        return (self.folder / "stripped").read_bytes()

    def tried(self, file, number, new):
        """What became of the bug, and the test that saw it; None if it is no program."""
        path = self.folder / file
        text, before = path.read_text(), self.object(file) if path.suffix == ".c" else None
        lines = text.split("\n")
        lines[number] = new
        path.write_text("\n".join(lines))
        try:
            if self.make("all") != 0:
                return None, ""
            if before and self.object(file) == before:
                return "equivalent", ""
            for sql, tap in runs(file):
                said = subprocess.run(["t/lib/apart.sh", self.pg_config, "timeout", "-k", "20", "1200", "make", "-s", "test-here", f"PG_CONFIG={self.pg_config}",
                                       f"REGRESS={sql}", f"TAP={tap}", "JOBS=2", "AGAIN=4"], cwd=self.folder, capture_output=True, text=True,
                                      env={**os.environ, "TMPDIR": str(self.folder), "PG_TEST_TIMEOUT_DEFAULT": "30"})
                if said.returncode != 0:
                    saw = re.search(r"^not ok \d+\s+- (.*)|^test (\S+)\s.*FAILED|^# (t/\S+): .* [1-9]\d* not ok", said.stdout, re.M)
                    return "killed", next((each for each in saw.groups() if each), "") if saw else said.stdout[-200:]
            return "survived", ""
        finally:
            path.write_text(text)
            self.make("all")


def accepted(bug):
    """Is it listed as one that nobody can see, or need see? A line is FILE, FUNCTION, the new line and the reason, between tabs."""
    return ACCEPTED.exists() and any(line.split("\t")[:3] == [bug[0], bug[2], " ".join(bug[4].split())] for line in ACCEPTED.read_text().split("\n"))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("where", nargs="*", metavar="FEATURE|FILE")
    for name, kind, value in (("range", str, None), ("count", int, 10), ("seed", int, random.randrange(10**6)), ("jobs", int, 2), ("pg-config", str, None)):
        parser.add_argument(f"--{name}", type=kind, default=value)
    parser.add_argument("--list", action="store_true")
    given = parser.parse_args([re.sub("^PG_CONFIG=", "--pg-config=", word) for word in sys.argv[1:]])
    if not given.list and not given.pg_config:
        # the set-up finds or installs a server, and comes back here
        os.execv(TREE / "t/lib/setup.sh", ["setup.sh", "test", sys.executable, os.path.abspath(__file__), *sys.argv[1:], "--seed", str(given.seed)])
    print(f"seed {given.seed}", flush=True)
    files = sorted(str(f.relative_to(TREE)) for f in TREE.glob("src/**/*.*") if f.suffix in (".c", ".sql"))
    files = [f for f in files if not given.where or any(f == each or f.startswith(f"src/{each}/") for each in given.where)]
    made, counts = bugs(files, changed(given.range) if given.range else None, random.Random(given.seed)), collections.Counter()
    if given.list:
        for file, number, function, line, new in itertools.islice(made, given.count):
            print(f"{file}:{number + 1} {function}\n    -{line.strip()}\n    +{new.strip()}")
        return 0
    with tempfile.TemporaryDirectory(prefix="m.") as folder, concurrent.futures.ThreadPoolExecutor(given.jobs) as pool:
        os.chmod(folder, 0o755)
        copies, lock = queue.SimpleQueue(), threading.Lock()
        for number in range(given.jobs):
            copies.put(Copy(pathlib.Path(folder, str(number)), given.pg_config))

        def work(_):
            """The next bug that is a program."""
            copy, verdict = copies.get(), None
            while not verdict:
                with lock:
                    bug = next(made, None)
                if not bug:
                    break
                began, (verdict, saw) = time.monotonic(), ("accepted", "") if accepted(bug) else copy.tried(bug[0], bug[1], bug[4])
            copies.put(copy)
            if verdict:
                counts[verdict] += 1
                print(f"{verdict:10} {bug[0]}:{bug[1] + 1} {bug[2]} {time.monotonic() - began:.0f} s {saw}\n    -{bug[3].strip()}\n    +{bug[4].strip()}", flush=True)

        list(pool.map(work, range(given.count)))
    print(", ".join(f"{counts[verdict]} {verdict}" for verdict in ("killed", "survived", "equivalent", "accepted")))
    return int(counts["killed"] < LEAST * (counts["killed"] + counts["survived"]))


if __name__ == "__main__":
    sys.exit(main())
