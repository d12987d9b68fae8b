"""Six nights: each incident that a DBA had to solve with the documents, acted out. When does the first line name it?"""
import contextlib
import dataclasses
import threading
import time
from typing import Callable

import psycopg2

import bed
import watch
from cluster import say
from load import HOLD_STOCK, OF_ALL_PARTITIONS, UPDATE_STOCK, parted
from report import percent, table

# seconds of the usual load, of the incident, and of the usual load after it
NIGHT, QUICK = (40, 20, 10), (6, 12, 3)
LIMIT_S = 10
LIMIT_KEPT = 0.9
TPCB = ("-M", "prepared", "-c", 8, "-j", 2, "-R", 100)


@dataclasses.dataclass(frozen=True)
class Scene:
    name: str
    rule: str                   # that has to be first
    said: str                   # what happens, for the table
    # stage -> a context in which it happens; yields a list of process ids, of which the first line must name one, or None
    act: Callable
    usual: tuple = TPCB         # pgbench's options of the usual load
    script: str = None          # its statements, if they are not pgbench's own
    setup: str = ""             # SQL
    scale: int = bed.SCALE
    settings: dict = dataclasses.field(default_factory=dict)
    disk: bed.Disk = None


PARTITIONS = 100
OF_ONE = "\\set k random(1, 10000)\nSELECT v FROM parted WHERE k = :k;\n"
CROSS_JOIN = "SELECT count(*) FROM pgbench_accounts a CROSS JOIN pgbench_accounts b WHERE a.abalance <> b.abalance + 1"


@contextlib.contextmanager
def idle_in_transaction(stage):
    with bed.transaction(stage.server, "nightly_report", HOLD_STOCK) as pid:
        yield [pid]


@contextlib.contextmanager
def many_writes(stage):
    with bed.pgbench(stage.server, "-M", "prepared", "-N", "-c", 12, "-j", 2, application_name="import"):
        yield


@contextlib.contextmanager
def runaway(stage):
    with bed.Statements(stage.server, "adhoc", CROSS_JOIN) as session:
        yield [session.pid]


@contextlib.contextmanager
def many_locks(stage):
    script = stage.script("of-all", OF_ALL_PARTITIONS)
    with bed.pgbench(stage.server, "-M", "prepared", "-f", script, "-c", 48, "-j", 2, application_name="search"):
        yield


@contextlib.contextmanager
def slow_flushes(stage):
    stage.disk.slow(write_iops=40)
    try:
        yield
    finally:
        stage.disk.lift()


@contextlib.contextmanager
def connection_storm(stage):
    """Some 20 a second, which stay; and when all are taken, tries."""
    ends = threading.Event()
    with contextlib.ExitStack() as held:

        def connect():
            while not ends.wait(0.05):
                try:
                    held.enter_context(contextlib.closing(stage.server.connect("web", "shop")))
                except psycopg2.OperationalError:
                    ends.wait(0.5)

        thread = threading.Thread(target=connect, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ends.set()
            thread.join()


NIGHTS = (
    Scene("Idle in transaction", "blocker", "`nightly_report` changes a row and idles in its transaction; 8 clients want it",
          idle_in_transaction, ("-c", 8, "-j", 2, "-R", 200), UPDATE_STOCK),
    Scene("Checkpoints", "checkpoint_storm", "an import of 12 clients, `max_wal_size` 64 MB, a disk of 40 MB/s",
          many_writes, ("-M", "prepared", "-c", 4, "-R", 20), settings={"max_wal_size": "64MB", "min_wal_size": "32MB"},
          disk=bed.Disk(("data", "wal"), {"write_bps": 40_000_000})),
    Scene("Runaway query", "cpu_runaway", "a cross join of a million rows each, beside TPC-B", runaway),
    Scene("Lock manager", "lock_manager", f"48 clients query a table of {PARTITIONS} partitions without its key",
          many_locks, ("-M", "simple", "-c", 8, "-j", 2, "-R", 100), OF_ONE, parted(PARTITIONS) + "ANALYZE parted;",
          settings={"max_locks_per_transaction": 256}),
    Scene("Slow disk", "slow_flush", "the disk of the WAL, from now on, does 40 writes a second", slow_flushes,
          disk=bed.Disk(("wal",))),
    Scene("Connection storm", "connection_storm", f"20 new sessions a second that stay, `max_connections` {bed.CONNECTIONS}",
          connection_storm),
)


def pieces(quick):
    return [night.name for night in NIGHTS]


def measure(place, quick, names):
    for night in NIGHTS:
        if night.name in names:
            say(night.name)
            yield night.name, one(place, night, QUICK if quick else NIGHT)


def whole(found):
    return list(found.values())


def one(place, scene, times):
    usual_s, held_s, after_s = times
    with bed.staged(place, scene.name, scene.scale, scene.disk, scene.setup, **scene.settings) as stage:
        options = scene.usual
        if scene.script:
            options += ("-f", stage.script("usual", scene.script))
        with bed.pgbench(stage.server, *options) if options else contextlib.nullcontext(), watch.Watch(stage.server) as watching:
            time.sleep(usual_s)
            before = time.time()
            with scene.act(stage) as pids:
                began = time.time()
                time.sleep(held_s)
                ended = time.time()
            over = time.time()
            time.sleep(after_s)
        record = judged(scene, watching, pids or (), (before - usual_s, before, began, ended, over))
    say(f"  {scene.name}: {scene.rule} named after {record['named_s']} s; wrong first lines {record['wrong_first']}")
    return record


def judged(scene, watching, pids, times):
    start, before, began, ended, over = times

    def right(poll):
        return poll.first() == scene.rule and (not pids or poll.rows[0]["pid"] in pids)

    held = watching.between(began, ended)
    named = next((poll for poll in held if right(poll)), None)
    since = [poll for poll in held if named and poll.at >= named.at]
    usual = watching.between(start, before)
    cleared = next((poll.at - over for poll in watching.between(over, time.time()) if poll.first() != scene.rule), None)
    return {"scene": scene.name, "rule": scene.rule, "said": scene.said,
            "named_s": round(named.at - began, 1) if named else None, "certainty": named.rows[0]["certainty"] if named else "",
            "wrong_first": sorted({poll.first() for poll in held if poll.rows and not right(poll)}),
            "kept": sum(map(right, since)) / len(since) if since else 0,
            "usual_polls": len(usual), "usual_false": sum(bool(poll.rows) for poll in usual),
            "cleared_s": round(cleared, 1) if cleared is not None else None}


def seconds(figure):
    return "never" if figure is None else f"{figure:.1f} s"


def show(results):
    rows = []
    for found in results:
        rows.append([found["scene"], found["said"], f"`{found['rule']}`", seconds(found["named_s"]), found["certainty"],
                     percent(found["kept"], 0), ", ".join(f"`{rule}`" for rule in found["wrong_first"]),
                     f"{found['usual_false']} of {found['usual_polls']}", seconds(found["cleared_s"])])
    return table(["", "what happens", "rule", "first line after", "certainty", "and it stays", "other first lines",
                   "false in the usual time before", "gone after"], rows)


def required(results):
    named = [found["named_s"] for found in results if found["named_s"] is not None and found["named_s"] <= LIMIT_S]
    yield f"nights: causes that the first line names within {LIMIT_S} s, with the process where one is the cause", \
        f"{len(named)}, the latest after {seconds(max(named, default=None))}", len(results), len(named) == len(results)
    least = min(results, key=lambda found: found["kept"])
    yield f"nights: part of the time after that in which the first line stays right, least: {least['scene']}", \
        percent(least["kept"], 0), f"at least {percent(LIMIT_KEPT, 0)}", least["kept"] >= LIMIT_KEPT
    false = sum(found["usual_false"] for found in results)
    yield "nights: rows in the usual time before", f"{false} of {sum(found['usual_polls'] for found in results)} times asked", "0", not false
