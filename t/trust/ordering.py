"""Protocols without locks on a simulated weakly ordered machine: see ordering, README.md and simulate/simulate.c."""
import argparse
import collections
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

from cluster import TREE
from report import table
from server import record

HERE = pathlib.Path(__file__).parent / "simulate"
BARRIER = re.compile(r"^\s*pg_(?:read|write|memory)_barrier\(\);\n", re.MULTILINE)
# So that rings wrap and chunks are many in a run of some steps.
SMALL = {"PGSCALE_RUNS_QUEUED": 4, "PGSCALE_PAGES_WRITTEN": 4, "PGSCALE_SWEEPER_MAX_WRITERS": 3,
         "CHUNK_ENTRIES": 4, "PGSCALE_PROFILE_OTHERS": 4}
FUNCTION = re.compile(r"^(\w+)\(", re.MULTILINE)

# Why leaving out a barrier shows nothing here.
NEXT_BARRIER = "here the reader asks for the oldest record before it copies, which has a barrier of its own"
LOAD_STORE = "keeps a load before a later store, as the simulation always does"
# file of src/ -> its scenario, and the barriers that are not left out: function, which one of it -> why
Protocol = collections.namedtuple("Protocol", "scenario kept")
PROTOCOLS = {
    "sweeper/shared.c": Protocol("rings", {
        ("pgscale_sweeper_put_run", 1): LOAD_STORE,
        ("pgscale_sweeper_put_written", 1): LOAD_STORE,
        ("pgscale_sweeper_take_written", 2): LOAD_STORE}),
    "sampler/past/history.c": Protocol("history", {}),
    "base/ring.h": Protocol("history", {("pgscale_ring_begin_read", 1): NEXT_BARRIER}),
    "base/change_count.h": Protocol("profile", {}),
}


class Bench:
    def __init__(self, folder):
        self.folder = folder
        pg_config = os.environ["PG_CONFIG"]
        include = subprocess.run([pg_config, "--includedir-server"], check=True, capture_output=True, text=True).stdout.strip()
        self.includes = ["-I", folder, "-I", HERE, "-I", TREE / "src", "-I", include]
        self.simulate = folder / "simulate.o"
        self.cc("-c", HERE / "simulate.c", "-o", self.simulate)

    @staticmethod
    def cc(*words):
        subprocess.run(["cc", "-O1", "-g", "-Wall", "-D_GNU_SOURCE", *map(str, words)], check=True)

    def build(self, file, without=None):
        """The scenario's program, of the file without one of its barriers, by number."""
        for path in (TREE / "src").rglob("*.[ch]"):
            source, text = str(path.relative_to(TREE / "src")), path.read_text()
            for name, size in SMALL.items():
                text = re.sub(rf"^(#define {name}\b).*", rf"\1 {size}", text, flags=re.MULTILINE)
            if source == file and without is not None:
                found = list(BARRIER.finditer(text))[without]
                text = text[:found.start()] + text[found.end():]
            (self.folder / source).parent.mkdir(parents=True, exist_ok=True)
            (self.folder / source).write_text(text)
        scenario = PROTOCOLS[file].scenario
        program, objects = self.folder / scenario, self.folder / f"{scenario}.o"
        # the compiler's hooks for ThreadSanitizer, which simulate.c answers; what the code asks of the server and never calls here
        # may be missing
        self.cc("-fsanitize=thread", *self.includes, "-c", HERE / f"{scenario}.c", "-o", objects)
        self.cc("-no-pie", objects, self.simulate, "-o", program, "-Wl,--unresolved-symbols=ignore-all,-z,lazy")
        return program


def barriers(file):
    """(function, which one of it) of each."""
    text = (TREE / "src" / file).read_text()
    functions = [FUNCTION.findall(text[:match.start()])[-1] for match in BARRIER.finditer(text)]
    return [(function, functions[:n + 1].count(function)) for n, function in enumerate(functions)]


def run(program, runs, seed):
    """What it said, and whether all was well: None if it did not run to its end."""
    done = subprocess.run([program, str(runs), str(seed)], capture_output=True, text=True)
    return (done.stdout + done.stderr).strip() or f"exit status {done.returncode}", {0: True, 1: False}.get(done.returncode)


def main():
    parser = argparse.ArgumentParser(prog="t/trust/ordering")
    parser.add_argument("--runs", type=int, default=3000, help="of each protocol as it is, and at most of each broken one; 3,000")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    rows, wrong = [], []
    folder = pathlib.Path(tempfile.mkdtemp(prefix="pgscale-ordering."))
    try:
        bench = Bench(folder)
        for file, protocol in PROTOCOLS.items():
            said, well = run(bench.build(file), arguments.runs, arguments.seed)
            rows.append((file, "as it is", said))
            if not well:
                wrong.append(f"{file}: {said}")
            for n, barrier in enumerate(barriers(file)):
                broken = "without barrier {1} of {0}()".format(*barrier)
                if barrier in protocol.kept:
                    rows.append((file, broken, f"not tried: {protocol.kept[barrier]}"))
                    continue
                said, well = run(bench.build(file, n), arguments.runs, arguments.seed)
                rows.append((file, broken, said))
                if well is not False:
                    wrong.append(f"{file} {broken}: not seen")
    finally:
        shutil.rmtree(folder)
    print(table(["file", "", "what was seen first"], rows))
    record("ordering", None, {"runs": arguments.runs, "seed": arguments.seed, "rows": rows}, wrong)
    for what in wrong:
        print(f"WRONG: {what}")
    print(f"{len(rows) - len(wrong)} as they must be, {len(wrong)} not")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
