"""The other rules of diagnosis(): an incident each, and two in which a victim is easily taken for the cause."""
import contextlib

import bed
import scenes
from cluster import run

ALTER = "ALTER TABLE pgbench_branches ADD COLUMN note text"
HOT = "UPDATE stock SET amount = amount - 1 WHERE product = 1;\n"
# ten milliseconds of a CPU, so that the server needs the CPUs, not pgbench
SUM = """\\set first random(1, 950000)
SELECT sum(abalance) FROM pgbench_accounts WHERE aid BETWEEN :first AND :first + 50000;
"""
LOOKUPS = """SELECT sum(abalance) FROM pgbench_accounts
 WHERE aid = ANY (ARRAY(SELECT (1 + random() * 999999)::int FROM generate_series(1, 200)));
"""
# spilled to temporary files; without an abbreviated key, all of it
SORT = "SELECT max(sorted) FROM (SELECT repeat(md5(aid::text), 3) AS sorted FROM pgbench_accounts ORDER BY 1 OFFSET 0) s;\n"
# its only vacuum is due when 100,000 transaction ids have been used, and rests for 100 ms after each page
AGED = """
CREATE TABLE aged (id int, filler text) WITH (autovacuum_enabled = off, autovacuum_freeze_max_age = 100000,
    autovacuum_vacuum_cost_delay = 100, autovacuum_vacuum_cost_limit = 1, fillfactor = 10);
INSERT INTO aged SELECT i, repeat('x', 100) FROM generate_series(1, 20000) i;
CREATE TABLE burnt (i int);
"""
BURN = """
DO $$
BEGIN
    FOR i IN 1 .. 101000 LOOP
        BEGIN
            INSERT INTO burnt VALUES (i);
        EXCEPTION WHEN unique_violation THEN
            NULL;
        END;
    END LOOP;
END $$"""
VACUUMS = "EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'autovacuum worker' AND query LIKE '%aged (to prevent wraparound)')"
CONFLICT = "EXISTS (SELECT FROM pg_stat_activity WHERE backend_type = 'startup' AND wait_event LIKE 'RecoveryConflict%')"


@contextlib.contextmanager
def ddl_queue(stage):
    """A report that only reads holds up an ALTER TABLE, and that holds up all others."""
    with contextlib.ExitStack() as undo:
        holder = contextlib.ExitStack()
        pid = holder.enter_context(bed.transaction(stage.server, "report", "SELECT count(*) FROM pgbench_branches"))
        # which goes first when it ends
        undo.enter_context(bed.Statements(stage.server, "migration", ALTER))
        undo.enter_context(holder)
        yield [pid]


@contextlib.contextmanager
def active_blocker(stage):
    """Within its transaction it waits for something outside."""
    with bed.Statements(stage.server, "payment", "BEGIN", "UPDATE stock SET amount = amount - 1 WHERE product = 7",
                        "SELECT pg_sleep(600)") as session:
        yield [session.pid]


@contextlib.contextmanager
def saturated(stage):
    with bed.pgbench(stage.server, "-M", "prepared", "-f", stage.script("sum", SUM), "-c", 32, "-j", 2, application_name="search"):
        yield


@contextlib.contextmanager
def hot_row(stage):
    with bed.pgbench(stage.server, "-f", stage.script("hot", HOT), "-c", 24, "-j", 2, application_name="counter"):
        yield


@contextlib.contextmanager
def mapping(stage):
    with bed.pgbench(stage.server, "-M", "prepared", "-f", stage.script("lookups", LOOKUPS), "-c", 48, "-j", 2,
                     application_name="search"):
        yield


@contextlib.contextmanager
def slow_reads(stage):
    """What was in the kernel's cache is no longer, and the disk is slow."""
    run(stage.connection, "SELECT pgscale.os_cache_evict(oid) FROM pg_class WHERE relname ~ '^pgbench_accounts'")
    stage.disk.slow(read_iops=100)
    try:
        yield
    finally:
        stage.disk.lift()


@contextlib.contextmanager
def synchronous(stage):
    run(stage.connection, "ALTER SYSTEM SET synchronous_standby_names = '*'")
    run(stage.connection, "SELECT pg_reload_conf()")
    bed.await_true(stage.connection, "EXISTS (SELECT FROM pg_stat_replication WHERE sync_state = 'sync')", "a synchronous standby")
    stage.standby.stop()
    try:
        yield
    finally:
        run(stage.connection, "ALTER SYSTEM RESET synchronous_standby_names")
        run(stage.connection, "SELECT pg_reload_conf()")


@contextlib.contextmanager
def temporary_files(stage):
    with bed.pgbench(stage.server, "-f", stage.script("sort", SORT), "-c", 6, "-j", 2, application_name="reports"):
        yield


@contextlib.contextmanager
def wraparound(stage):
    """An autovacuum that must not be cancelled, an ALTER TABLE that waits for it, and all others behind that."""
    run(stage.connection, BURN)
    bed.await_true(stage.connection, VACUUMS, "an autovacuum to prevent wraparound")
    with bed.Statements(stage.server, "migration", "ALTER TABLE aged ADD COLUMN note text"):
        yield


@contextlib.contextmanager
def conflict(stage):
    with bed.transaction(stage.standby, "report", "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ",
                         "SELECT count(*) FROM pgbench_branches"):
        run(stage.connection, "UPDATE pgbench_branches SET filler = 'x'")
        run(stage.connection, "VACUUM pgbench_branches")
        with contextlib.closing(stage.standby.connect()) as connection:
            bed.await_true(connection, CONFLICT, "a recovery conflict")
        yield


RULES = (
    scenes.Scene("DDL queue", "blocker", "an idle report holds up an ALTER TABLE, which holds up 8 clients", ddl_queue),
    scenes.Scene("Active blocker", "blocker", "a payment service answers late, within a transaction; 8 clients want the row",
                 active_blocker, ("-c", 8, "-j", 2, "-R", 200), bed.UPDATE_STOCK),
    scenes.Scene("CPU saturation", "cpu_saturation", "32 clients sum 50,000 rows a statement, as fast as they can", saturated),
    scenes.Scene("Hot row", "hot_row", "24 clients update one row in short transactions", hot_row, ("-c", 8, "-j", 2, "-R", 50), HOT),
    scenes.Scene("Buffer mapping", "buffer_mapping", "48 clients read random pages, 16 MB of shared buffers, data in the kernel's cache",
                 mapping, ("-M", "prepared", "-S", "-c", 4, "-R", 50), settings={"shared_buffers": "16MB"}),
    scenes.Scene("Slow reads", "slow_reads", "the data are no longer cached, and the disk does 100 reads a second", slow_reads,
                 ("-M", "prepared", "-S", "-c", 8, "-j", 2, "-R", 200), scale=30, settings={"shared_buffers": "16MB"},
                 disk=bed.Disk(("data",))),
    scenes.Scene("Standby gone", "replication_wait", "the only synchronous standby stops", synchronous, standby={}),
    scenes.Scene("Temporary files", "temp_files", "6 sessions sort with `work_mem` 64 kB, a disk of 30 MB/s", temporary_files,
                 settings={"work_mem": "64kB", "max_parallel_workers_per_gather": 0},
                 disk=bed.Disk(("data",), {"write_bps": 30_000_000, "dirty_mib": 8})),
    scenes.Scene("Wraparound", "wraparound_vacuum", "an ALTER TABLE waits for an autovacuum that prevents wraparound, 8 clients behind it",
                 wraparound, ("-c", 8, "-j", 2, "-R", 50), "SELECT count(*) FROM aged WHERE id < 10;\n", AGED,
                 settings={"autovacuum_naptime": "1s"}),
    scenes.Scene("Recovery conflict", "recovery_conflict", "a report on a standby holds up the replay", conflict,
                 standby={"max_standby_streaming_delay": "-1"}, on_standby=True),
)

RECORDS, LEFT_OUT = scenes.RECORDS, scenes.LEFT_OUT
whole, show, published = scenes.whole, scenes.show, scenes.published


def pieces(quick):
    return [rule.name for rule in RULES]


def measure(place, quick, names):
    return scenes.play(place, RULES, scenes.QUICK if quick else scenes.SHORT, names)


def required(results):
    return scenes.required("rules", results)
