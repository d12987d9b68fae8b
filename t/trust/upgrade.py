"""pg_upgrade of a server that has everything of pgscale in it: see upgrade and README.md."""
import argparse
import os
import pathlib
import re
import subprocess
import sys
import time

import psycopg2

import checks
from cluster import TREE, Place, run, say, value
from server import Loss, Server, record, wait_for

OLD = TREE / "old"
DATABASE = "app"
SETTINGS = {
    "shared_preload_libraries": "pgscale, pg_stat_statements",
    "compute_query_id": "on",
    "max_wal_senders": "10",
    "pgscale.archive_database": DATABASE,
    "pgscale.debug_period": "1s",
    "pgscale.relocation_max_transaction_age": "-1",
}
# What is compared before and after; the archive by its rows of that time.
ROWS = {
    "minutes": "SELECT count(*), sum(period_s), count(*) FILTER (WHERE pulled) FROM pgscale.archive_minutes WHERE at < {end}",
    "waits": "SELECT count(*), round(sum(wait_ms)::numeric) FROM pgscale.archive_waits WHERE at < {end}",
    "queries": "SELECT count(*), max(md5(query)) FROM pgscale.archive_queries WHERE first_seen < {end}",
    "changes of settings": "SELECT count(*), count(node) FROM pgscale.archive_changes WHERE at < {end}",
    "top_waits of another node": "SELECT * FROM pgscale.top_waits({end}::timestamptz - interval '1 hour', {end}, node => 'b@b:1')",
    "nodes": "SELECT node, role, timeline, at FROM pgscale.archive_nodes WHERE node = 'b@b:1'",
    "journal": "SELECT change, setting, old_value, new_value FROM pgscale.tuning_journal ORDER BY 1",
    "jobs": "SELECT job, relation, target FROM pgscale.relocation_jobs ORDER BY 1",
}
# What another node was asked for.
ASKED = """
    CREATE TEMP TABLE asked AS SELECT * FROM pgscale_internal.archive_minute;
    UPDATE asked SET node = 'b@b:1', node_id = 7, pulled = true, standby = true, wait_ms = ARRAY(SELECT 2 * w FROM unnest(wait_ms) w);
    INSERT INTO pgscale_internal.archive_minute TABLE asked;
    INSERT INTO pgscale_internal.archive_node (node_id, node, standby, timeline, seen_at, at) SELECT 7, 'b@b:1', true, 1, now(), max(at) FROM asked;
    INSERT INTO pgscale_internal.archive_change VALUES (now(), 'work_mem', '1', '2', 7)"""


class Installed(Place):
    """A server in whose own folders pgscale is installed: pg_upgrade looks for it there."""

    def __init__(self, pg_config):
        os.environ["PG_CONFIG"] = pg_config
        super().__init__()

    def _build(self):
        say(f"installing pgscale into {self.version}")
        for goal in ("clean", "all", "install"):
            made = subprocess.run(["make", "-s", f"-j{os.cpu_count()}", f"PG_CONFIG={self.pg_config}", goal], cwd=TREE,
                                  stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
            if made.returncode != 0:
                sys.exit(f"make {goal} failed:\n{made.stdout}")
        self.library = pathlib.Path(self.ask("--pkglibdir"))
        self.give(self.folder)


def refused(connection, statement):
    """The SQLSTATE and the hint of a statement that must fail."""
    try:
        run(connection, statement)
    except psycopg2.Error as error:
        return error.pgcode, error.diag.message_primary, error.diag.message_hint
    raise Loss(f"this did not fail: {statement}")


def rows_of(connection, end):
    """What there is of before that moment."""
    return {name: run(connection, query.format(end=end)) for name, query in ROWS.items()}


def fill(server, place):
    """A profile, rows of the archive, changes, one of them reverted, jobs, one of them not done."""
    connection = server.connect()
    run(connection, f"CREATE DATABASE {DATABASE}")
    fast = server.outside / "fast"
    fast.mkdir()
    place.give(fast)
    run(connection, f"CREATE TABLESPACE fast LOCATION '{fast}'")
    connection.close()
    connection = server.connect(DATABASE)
    run(connection, "CREATE EXTENSION pgscale; CREATE EXTENSION pg_stat_statements; CREATE EXTENSION amcheck")
    bench = ["pgbench", "-h", server.outside, "-U", "postgres", DATABASE]
    place.run([*bench, "-i", "-s", 2, "-q"])
    place.run([*bench, "-n", "-c", 4, "-T", 5])
    for setting, new in (("work_mem", "8MB"), ("maintenance_work_mem", "96MB")):
        run(connection, f"CALL pgscale.set('{setting}', '{new}', true)")
    change = value(connection, "SELECT max(change) FROM pgscale.tuning_journal")
    run(connection, f"CALL pgscale.revert({change}, true)")
    job = value(connection, "SELECT pgscale.relocate_indexes('pgbench_accounts_pkey', 'fast', mode => 'rebuild')")
    wait_for("a job", lambda: value(connection, f"SELECT state FROM pgscale.relocation_jobs WHERE job = {job}") == "done", 60)
    server.reload(**{"pgscale.relocation_workers": "0"})
    wait_for("no relocation", lambda: value(connection, "SHOW pgscale.relocation_workers") == "0", 30)
    run(connection, "SELECT pgscale.relocate_indexes('pgbench_tellers_pkey', 'fast', mode => 'rebuild')")
    wait_for("rows of the archive", lambda: value(connection, "SELECT count(*) FROM pgscale.archive_minutes") > 4, 60)
    run(connection, ASKED)
    end = f"'{value(connection, 'SELECT clock_timestamp()')}'"
    found = rows_of(connection, end)
    connection.close()
    return end, found


def unbroken(connection):
    broken = run(connection, "SELECT feature, reason FROM pgscale.health WHERE state = 'broken'")
    if broken:
        raise Loss(f"broken: {broken}")


def check_moved(server, end, before):
    """What came along, and what of it may still act."""
    connection = server.connect(DATABASE)
    after = rows_of(connection, end)
    for name, rows in before.items():
        if rows != after[name]:
            raise Loss(f"{name}: {rows[:3]} before, {after[name][:3]} after")
    origins = run(connection, f"SELECT DISTINCT origin FROM pgscale.archive_minutes WHERE at < {end} AND NOT pulled")
    if origins != [("another server",)]:
        raise Loss(f"the archive's rows are from {origins}")
    top = run(connection, f"SELECT item FROM pgscale.top_waits({end}::timestamptz - interval '1 hour', {end}::timestamptz)")
    if not top:
        raise Loss("top_waits knows nothing of the time before")
    states = run(connection, "SELECT DISTINCT state FROM pgscale.tuning_journal")
    if states != [("of another server",)]:
        raise Loss(f"the journal's rows are {states}")
    states = run(connection, "SELECT state FROM pgscale.relocation_jobs ORDER BY job")
    if states != [("done",), ("foreign",)]:
        raise Loss(f"jobs are {states}")
    change = value(connection, "SELECT min(change) FROM pgscale.tuning_journal")
    state, message, hint = refused(connection, f"CALL pgscale.revert({change})")
    if state.startswith("XX") or not hint:
        raise Loss(f"an undo of a change before is answered by {state} {message}, {hint}")
    connection.close()
    return f"{state} {message}; hint: {hint}"


def check_works(server):
    """Each part goes on, with rows of its own."""
    connection = server.connect(DATABASE)
    wait_for("a row of the archive", lambda: value(
        connection, "SELECT count(*) FROM pgscale.archive_minutes WHERE origin IS NULL") > 2, 60)
    change = run(connection, "CALL pgscale.set('work_mem', '12MB', true)")[0][0]
    wait_for("a change", lambda: value(connection, "SHOW work_mem") == "12MB", 30)
    run(connection, f"CALL pgscale.revert({change}, true)")
    job = value(connection, "SELECT pgscale.relocate_indexes('pgbench_branches_pkey', 'fast', mode => 'rebuild')")
    wait_for("a job", lambda: value(connection, f"SELECT state FROM pgscale.relocation_jobs WHERE job = {job}") == "done", 60)
    wait_for("a tick", lambda: value(connection, "SELECT ticks FROM pgscale.sampler_stats") > 0, 30)
    for view, in run(connection, "SELECT oid::regclass::text FROM pg_class"
                                 " WHERE relkind = 'v' AND relnamespace = 'pgscale'::regnamespace"):
        run(connection, f"SELECT * FROM {view}")
    run(connection, "SELECT pgscale.report()")
    unbroken(connection)
    if server.place.major >= 18:
        found = run(connection, "SELECT version FROM pg_get_loaded_modules() WHERE module_name = 'pgscale'")
        if found != run(connection, "SELECT extversion FROM pg_extension WHERE extname = 'pgscale'"):
            raise Loss(f"the library is of version {found}")
    connection.close()


def upgrade(old, new, mode):
    before = Server(old, f"old-{mode}")
    before.start(**SETTINGS)
    end, rows = fill(before, old)
    before.shut()
    after = Server(new, f"new-{mode}")
    after.configure(**SETTINGS)
    since = time.monotonic()
    work = new.folder / f"work-{mode}"
    work.mkdir()
    new.give(work)
    # whose sockets must not be those of a server that runs
    done = subprocess.run(
        [*new.as_user, str(new.bindir / "pg_upgrade"), "-b", str(old.bindir), "-B", str(new.bindir), "-d", str(before.folder),
         "-D", str(after.folder), "-U", "postgres", "-s", str(work), "-j", "2", f"--{mode}"],
        cwd=work, capture_output=True, text=True)
    took = time.monotonic() - since
    if done.returncode != 0:
        said = done.stdout + done.stderr
        for log in sorted((after.folder / "pg_upgrade_output.d").glob("*/log/pg_upgrade_dump_*.log")):
            said += "\n".join(line for line in log.read_text().splitlines() if ": error:" in line or line.startswith("DETAIL"))
        raise Loss("pg_upgrade: " + " | ".join(said.strip().splitlines()[-12:]))
    after.start(**SETTINGS)
    found = {"pg_upgrade s": round(took, 1), "undo": check_moved(after, end, rows)}
    check_works(after)
    checks.amcheck(after, DATABASE)
    after.shut()
    checks.checksums(after)
    said = after.said()
    checks.log(said)
    # a shutdown ends a worker of relocation in its statement
    wrong = [line for line in said.splitlines() if re.search(r"(WARNING|ERROR|FATAL): ", line) and "pgscale" in line
             and not re.search("terminating background worker|relocation worker ERROR:  canceling statement", line)]
    if wrong:
        raise Loss(f"the log says: {wrong[:3]}")
    return found


def main():
    parser = argparse.ArgumentParser(prog="t/trust/upgrade")
    parser.add_argument("old", type=int, help="the old major")
    parser.add_argument("--mode", choices=("copy", "link", "swap"), action="append", help="all unless given")
    arguments = parser.parse_args()
    new_config = os.environ["PG_CONFIG"]
    with Installed(str(OLD / f"usr/lib/postgresql/{arguments.old}/bin/pg_config")) as old, Installed(new_config) as new:
        modes = arguments.mode or ["copy", "link", *["swap"] * (new.major >= 18)]
        result, problems = {"from": old.version, "to": new.version}, []
        for mode in modes:
            try:
                result[mode] = upgrade(old, new, mode)
                print(f"{mode}: {result[mode]}", flush=True)
            except (Loss, psycopg2.Error) as error:
                problems.append(f"{mode}: {error}")
                print(f"{mode}: WRONG: {error}", flush=True)
        record(f"upgrade {old.major} {new.major}", new, result, problems)
    print(f"{old.version} to {new.version}, {', '.join(modes)}: wrong: {'; '.join(problems) or 'nothing'}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
