"""Servers with which nothing is wrong: diagnosis() must have no row, whatever the load.

Each load finds the server started anew: what is usual is what this load does, and no evidence of another one is left.
"""
import contextlib
import dataclasses
import os
import time
from typing import Callable

import bed
import watch
from cluster import end, run, say
from load import sysbench
from report import percent, table

SCALE = 20
SETTLE_S, ASKED_S = 3, 20
QUICK = (1, 4)
CORES = os.cpu_count()
PREPARED = ("-M", "prepared", "-j", 2)
SETTINGS = {"max_wal_size": "8GB", "wal_level": "logical"}
COPY_ROWS = 200000
SETUP = f"""
CREATE TABLE loaded (id int, filler text);
CREATE TABLE jobs (id int PRIMARY KEY, state int);
INSERT INTO jobs SELECT i, 0 FROM generate_series(1, 100) i;
COPY (SELECT i, repeat('x', 80) FROM generate_series(1, {COPY_ROWS}) i) TO '{{folder}}/rows';
"""
SYSBENCH_ROWS = 20000
LEFT_OUT = ("rule", "pid")
# a row is locked for some 5 ms
SHORT_LOCKS = """\\set id random(1, 100)
BEGIN;
UPDATE jobs SET state = state + 1 WHERE id = :id;
\\sleep 5 ms
COMMIT;
"""
ANALYSIS = "SELECT bid, count(*), avg(abalance), max(md5(filler)) FROM pgbench_accounts GROUP BY bid"
SORT = "SELECT max(sorted) FROM (SELECT md5(aid::text) AS sorted FROM pgbench_accounts ORDER BY 1 OFFSET 0) s"


@dataclasses.dataclass(frozen=True)
class Healthy:
    name: str
    act: Callable               # stage -> a context in which the load runs
    settings: dict = dataclasses.field(default_factory=dict)
    longer_s: int = 0           # asked, beyond ASKED_S


def pgbench(*options):
    return lambda stage: bed.pgbench(stage.server, *PREPARED, *options)


def script(text, *options):
    return lambda stage: bed.pgbench(stage.server, "-f", stage.script("healthy", text), *options)


def again(*statements):
    """A session that executes these again and again."""
    return lambda stage: bed.Statements(stage.server, "maintenance", *(each.format(folder=stage.server.folder) for each in statements),
                                        again=True)


def program(*command):
    """A program that runs until the context ends, with a folder of its own."""

    @contextlib.contextmanager
    def act(stage):
        folder = stage.server.folder / "taken"
        folder.mkdir(exist_ok=True)
        stage.place.give(folder)
        words = [word.format(folder=folder, socket=stage.server.folder, bindir=stage.place.bindir) for word in command]
        with open(stage.server.folder / "program.out", "w") as out:
            process = stage.place.popen(words, stdout=out, stderr=out)
        try:
            yield
            if process.poll() is not None:
                raise RuntimeError(f"{words[0]} ended early:\n" + (stage.server.folder / "program.out").read_text()[-2000:])
        finally:
            end(process)

    return act


def together(*acts):
    @contextlib.contextmanager
    def act(stage):
        with contextlib.ExitStack() as undo:
            for each in acts:
                undo.enter_context(each(stage))
            yield

    return act


@contextlib.contextmanager
def leaders(stage):
    """One of three instances of a service works, the others wait for its advisory lock for as long as it lives."""
    lock = "SELECT pg_advisory_lock(7)"
    with contextlib.closing(stage.server.connect("service", "shop")) as leader:
        run(leader, lock)
        with bed.Statements(stage.server, "service", lock, user="shop"), bed.Statements(stage.server, "service", lock, user="shop"):
            yield


@contextlib.contextmanager
def reading_transaction(stage):
    with bed.transaction(stage.server, "report", "SELECT count(*) FROM pgbench_branches", user="postgres"):
        yield


def idle(count, pause_s=0):
    return lambda stage: bed.sessions(stage.server, count, pause_s=pause_s)


LIGHT = pgbench("-c", 8, "-R", 100)
LOADS = (
    Healthy("idle server", lambda stage: contextlib.nullcontext()),
    Healthy("TPC-B, 1 client", pgbench("-c", 1)),
    Healthy(f"TPC-B, {CORES} clients", pgbench("-c", CORES)),
    Healthy(f"TPC-B, {4 * CORES} clients", pgbench("-c", 4 * CORES)),
    Healthy("TPC-B, 16 clients, 200/s", pgbench("-c", 16, "-R", 200)),
    Healthy("simple update, 4 clients, 400/s", pgbench("-N", "-c", 4, "-R", 400)),
    Healthy("select-only, 1 client", pgbench("-S", "-c", 1)),
    Healthy(f"select-only, {2 * CORES} clients", pgbench("-S", "-c", 2 * CORES)),
    Healthy("select-only, 16 clients, 2,000/s", pgbench("-S", "-c", 16, "-R", 2000)),
    Healthy("select-only, 16 MB of shared buffers, 500/s", pgbench("-S", "-c", 8, "-R", 500), {"shared_buffers": "16MB"}),
    Healthy("select-only, a session each, 20/s", pgbench("-C", "-S", "-c", 2, "-R", 20)),
    Healthy("sysbench read_write, 1 thread", program(*sysbench(
        "{socket}", SYSBENCH_ROWS, "--threads=1", "--time=3600", "oltp_read_write", "run"))),
    Healthy("COPY, over and over", again("TRUNCATE loaded", "COPY loaded FROM '{folder}/rows'")),
    Healthy("VACUUM FREEZE beside TPC-B, 100/s", together(LIGHT, again("VACUUM (FREEZE, DISABLE_PAGE_SKIPPING) pgbench_accounts"))),
    Healthy("CREATE INDEX beside select-only, 500/s", together(
        pgbench("-S", "-c", 8, "-R", 500), again("CREATE INDEX built ON pgbench_accounts (abalance, aid)", "DROP INDEX built"))),
    Healthy("pg_dump beside TPC-B, 100/s", together(LIGHT, program(
        "/bin/sh", "-c", "while {bindir}/pg_dump -h {socket} -U postgres -Fc -f {folder}/dump postgres; do :; done"))),
    Healthy("an analysis, nothing else", again(ANALYSIS)),
    Healthy("a sort that spills, nothing else", again(SORT)),
    Healthy("half of the connections idle, TPC-B, 100/s", together(LIGHT, idle(bed.CONNECTIONS // 2))),
    Healthy("an application that opens 10 sessions, TPC-B, 100/s", together(LIGHT, idle(10, 0.05))),
    Healthy("short row locks, 8 clients, 200/s", script(SHORT_LOCKS, "-c", 8, "-j", 2, "-R", 200)),
    Healthy("a transaction that only reads, idle, TPC-B, 100/s", together(LIGHT, reading_transaction)),
    Healthy("two that wait to be leader, TPC-B, 100/s", together(LIGHT, leaders)),
    Healthy("WAL streamed, TPC-B, 100/s", together(LIGHT, program("pg_receivewal", "-h", "{socket}", "-U", "postgres", "-D", "{folder}"))),
    Healthy("logical decoding, TPC-B, 100/s", together(LIGHT, program(
        "pg_recvlogical", "-h", "{socket}", "-U", "postgres", "-d", "postgres", "-S", "decoded", "-f", "{folder}/decoded",
        "--create-slot", "--if-not-exists", "--start"))),
    Healthy("checkpoints each 30 s, TPC-B, 100/s", LIGHT, {"checkpoint_timeout": "30s"}, longer_s=20),
)


def pieces(quick):
    return [load.name for load in LOADS]


def measure(place, quick, names):
    settle_s, asked_s = QUICK if quick else (SETTLE_S, ASKED_S)
    with bed.staged(place, "healthy", SCALE, **SETTINGS) as stage:
        server = stage.server
        run(stage.connection, SETUP.format(folder=server.folder))
        place.run(sysbench(server.folder, SYSBENCH_ROWS, "oltp_read_write", "prepare"))
        run(stage.connection, "CREATE EXTENSION pg_prewarm")
        for load in LOADS:
            if load.name in names:
                stage.connection.close()
                server.stop()
                server.start(**load.settings)
                stage.connection = server.connect()
                run(stage.connection, "SELECT pg_prewarm(oid) FROM pg_class WHERE relname LIKE 'pgbench_%' AND relkind IN ('r', 'i')")
                yield load.name, one(stage, load, settle_s, asked_s + (0 if quick else load.longer_s))


def one(stage, load, settle_s, asked_s):
    with load.act(stage):
        time.sleep(settle_s)
        with watch.Watch(stage.server, every_s=1) as watching:
            time.sleep(asked_s)
    false = [poll for poll in watching.polls if poll.rows]
    fired = [row for poll in false for row in poll.rows]
    rules = sorted({row["rule"] for row in fired})
    found = {"load": load.name, "polls": len(watching.polls), "false": len(false),
             "rules": {rule: sum(row["rule"] == rule for row in fired) for rule in rules},
             "rows": {rule: next(row for row in fired if row["rule"] == rule) for rule in rules}}
    say(f"  {load.name}: {found['false']} of {found['polls']} asked are false"
        + "".join(f"\n    {rule}: {row['certainty']}: {row['sentence']}" for rule, row in found["rows"].items()))
    return found


def whole(found):
    return list(found.values())


def show(results):
    rows = [[found["load"], found["polls"], percent(found["false"] / found["polls"], 0),
             "; ".join(f"`{rule}` {times} times, {found['rows'][rule]['certainty']}: {found['rows'][rule]['sentence']}"
                       for rule, times in found["rules"].items())] for found in results]
    return table(["load", "asked", "false", ""], rows)


def published(results):
    yield "loads", str(len(results))
    yield "loads with a false row", str(sum(found["false"] > 0 for found in results))


def required(results):
    false = [found["load"] for found in results if found["false"]]
    yield "healthy: loads with which a rule fires", f"{len(false)} of {len(results)}", "0", not false
