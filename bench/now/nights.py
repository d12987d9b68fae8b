"""Six nights: each incident that a DBA had to solve with the documents, acted out. When does the first line name it?"""
import contextlib
import threading

import psycopg2

import bed
import scenes

# by hash, and an index each, so that a query of all of them locks some 200 relations
PARTITIONS = 100
PARTED = "CREATE TABLE parted (k int, other int, v text) PARTITION BY HASH (k);" + "".join(
    f"CREATE TABLE parted{number} PARTITION OF parted FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {number});"
    for number in range(PARTITIONS)) + """
INSERT INTO parted SELECT i, i, 'x' FROM generate_series(1, 10000) i;
CREATE INDEX ON parted (other);
ANALYZE parted;
"""
OF_ONE = "\\set k random(1, 10000)\nSELECT v FROM parted WHERE k = :k;\n"
OF_ALL = "\\set k random(1, 10000)\nSELECT v FROM parted WHERE other = :k;\n"
CROSS_JOIN = "SELECT count(*) FROM pgbench_accounts a CROSS JOIN pgbench_accounts b WHERE a.abalance <> b.abalance + 1"


@contextlib.contextmanager
def idle_in_transaction(stage):
    with bed.transaction(stage.server, "nightly_report", "UPDATE stock SET amount = amount - 10 WHERE product = 7") as pid:
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
    script = stage.script("of-all", OF_ALL)
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
    scenes.Scene("Idle in transaction", "blocker", "`nightly_report` changes a row and idles in its transaction; 8 clients want it",
                 idle_in_transaction, ("-c", 8, "-j", 2, "-R", 200), bed.UPDATE_STOCK),
    scenes.Scene("Checkpoints", "checkpoint_storm", "an import of 12 clients, `max_wal_size` 64 MB, a disk of 40 MB/s",
                 many_writes, ("-M", "prepared", "-c", 4, "-R", 20), settings={"max_wal_size": "64MB", "min_wal_size": "32MB"},
                 disk=bed.Disk(("data", "wal"), {"write_bps": 40_000_000})),
    scenes.Scene("Runaway query", "cpu_runaway", "a cross join of a million rows each, beside TPC-B", runaway),
    scenes.Scene("Lock manager", "lock_manager", f"48 clients query a table of {PARTITIONS} partitions without its key",
                 many_locks, ("-M", "simple", "-c", 8, "-j", 2, "-R", 100), OF_ONE, PARTED,
                 settings={"max_locks_per_transaction": 256}),
    scenes.Scene("Slow disk", "slow_flush", "the disk of the WAL, from now on, does 40 writes a second", slow_flushes,
                 disk=bed.Disk(("wal",))),
    scenes.Scene("Connection storm", "connection_storm", f"20 new sessions a second that stay, `max_connections` {bed.CONNECTIONS}",
                 connection_storm),
)

RECORDS, LEFT_OUT = scenes.RECORDS, scenes.LEFT_OUT
whole, show, published = scenes.whole, scenes.show, scenes.published


def pieces(quick):
    return [night.name for night in NIGHTS]


def measure(place, quick, names):
    return scenes.play(place, NIGHTS, scenes.QUICK if quick else scenes.NIGHT, names)


def required(results):
    return scenes.required("nights", results)
