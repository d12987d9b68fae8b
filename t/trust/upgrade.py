"""pg_upgrade of a server that has everything of pgscale in it: see upgrade and README.md."""
import argparse
import os
import pathlib
import re
import shutil
import subprocess
import sys
import time

import psycopg2

import checks
import machine
from cluster import TREE, Place, run, say, value
from record import OUTPUT, record
from server import Loss, Server, wait_for

OLD = TREE / "old"
DATABASE = "app"
SETTINGS = {
    "shared_preload_libraries": "pgscale, pg_stat_statements",
    "compute_query_id": "on",
    "max_wal_senders": "10",
    "pgscale.archive_database": DATABASE,
    "pgscale.sampler_debug_period": "1s",
    "pgscale.relocation_max_transaction_age": "-1",
}
# What is compared before and after; the archive by its rows of that time.
ROWS = {
    "minutes": "SELECT count(*), sum(period_s) FROM pgscale.archive_minutes WHERE at < {end}",
    "waits": "SELECT count(*), round(sum(wait_ms)::numeric) FROM pgscale.archive_waits WHERE at < {end}",
    "queries": "SELECT count(*), max(md5(query)) FROM pgscale.archive_queries WHERE first_seen < {end}",
    "changes of settings": "SELECT count(*) FROM pgscale.archive_changes WHERE at < {end}",
    "journal": "SELECT change, setting, old_value, new_value FROM pgscale.tuning_journal ORDER BY 1",
    "jobs": "SELECT job, relation, target FROM pgscale.relocation_jobs ORDER BY 1",
}
KEPT = ("pgscale_sampler.stat", "pgscale_sampler_history.stat", "pgscale_relocation.stat")


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


def asked(connection):
    """What there is until now."""
    end = f"'{value(connection, 'SELECT clock_timestamp()')}'"
    return end, again(connection, end)


def again(connection, end):
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
    job = value(connection, "SELECT pgscale.relocate_index('pgbench_accounts_pkey', 'fast', mode => 'rebuild')")
    wait_for("a job", lambda: value(connection, f"SELECT state FROM pgscale.relocation_jobs WHERE job = {job}") == "done", 60)
    server.reload(**{"pgscale.relocation_workers": "0"})
    wait_for("no relocation", lambda: value(connection, "SHOW pgscale.relocation_workers") == "0", 30)
    run(connection, "SELECT pgscale.relocate_index('pgbench_tellers_pkey', 'fast', mode => 'rebuild')")
    wait_for("rows of the archive", lambda: value(connection, "SELECT count(*) FROM pgscale.archive_minutes") > 4, 60)
    found = asked(connection)
    connection.close()
    return found


def unbroken(connection):
    broken = run(connection, "SELECT feature, reason FROM pgscale.health WHERE state = 'broken'")
    if broken:
        raise Loss(f"broken: {broken}")


def check_moved(server, end, before):
    """What came along, and what of it may still act."""
    connection = server.connect(DATABASE)
    after = again(connection, end)
    for name, rows in before.items():
        if rows != after[name]:
            raise Loss(f"{name}: {rows[:3]} before, {after[name][:3]} after")
    origins = run(connection, f"SELECT DISTINCT origin FROM pgscale.archive_minutes WHERE at < {end}")
    if origins != [("another server",)]:
        raise Loss(f"the archive's rows are from {origins}")
    top = run(connection, f"SELECT item FROM pgscale.top_waits({end}::timestamptz - interval '1 hour', {end}::timestamptz)")
    if not top:
        raise Loss("top_waits knows nothing of the time before")
    states = run(connection, "SELECT DISTINCT state FROM pgscale.tuning_journal")
    if states != [("of another server",)]:
        raise Loss(f"the journal's rows are {states}")
    states = run(connection, "SELECT state FROM pgscale.relocation_jobs ORDER BY job")
    if states != [("done",), ("copied",)]:
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
    job = value(connection, "SELECT pgscale.relocate_index('pgbench_branches_pkey', 'fast', mode => 'rebuild')")
    wait_for("a job", lambda: value(connection, f"SELECT state FROM pgscale.relocation_jobs WHERE job = {job}") == "done", 60)
    wait_for("a tick", lambda: value(connection, "SELECT ticks FROM pgscale.sampler_stats") > 0, 30)
    for view, in run(connection, "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'v' AND relnamespace = 'pgscale'::regnamespace"):
        run(connection, f"SELECT * FROM {view}")
    run(connection, "SELECT pgscale.report()")
    unbroken(connection)
    if server.place.major >= 18:
        found = run(connection, "SELECT version FROM pg_get_loaded_modules() WHERE module_name = 'pgscale'")
        if found != run(connection, "SELECT extversion FROM pg_extension WHERE extname = 'pgscale'"):
            raise Loss(f"the library is of version {found}")
    connection.close()


def check_kept_files(old, new):
    """Those of another major, brought along by hand, are refused in so many words, and the sampler works."""
    for name in KEPT:
        if (old / "pg_stat" / name).exists():
            shutil.copy(old / "pg_stat" / name, new.folder / "pg_stat" / name)
            new.place.give(new.folder / "pg_stat" / name)
    since = new.mark()
    new.start()
    connection = new.connect(DATABASE)
    wait_for("a tick", lambda: value(connection, "SELECT ticks FROM pgscale.sampler_stats") > 0, 30)
    unbroken(connection)
    connection.close()
    said = [line for line in new.said(since).splitlines() if "pgscale_" in line and "ignoring" in line]
    if len(said) < 2:
        raise Loss(f"files of another major: the log says {said}")
    return re.sub(r"^.*?LOG: +", "", said[0])


def check_libraries(old, new):
    """What each server says of the other one's library."""
    found = {}
    for place, other in ((old, new), (new, old)):
        name = f"pgscale_of_{other.major}"
        shutil.copy(other.library / "pgscale.so", place.library / f"{name}.so")
        server = Server(place, f"wrong-{place.major}")
        try:
            server.start(shared_preload_libraries=name)
            raise Loss(f"{place.version} took a library of {other.version}")
        except Loss as loss:
            # before it looks at the version it needs all the functions that the library calls
            if not re.search("incompatible library|undefined symbol", str(loss)):
                raise
        found[f"{place.major} with that of {other.major}"] = "; ".join(
            re.sub(r"^.*?(FATAL|DETAIL): +", r"\1: ", line) for line in server.said().splitlines() if re.search("FATAL|DETAIL", line))
    return found


def upgrade(old, new, mode):
    before = Server(old, f"old-{mode}")
    before.start(**SETTINGS)
    end, rows = fill(before, old)
    before.shut()
    kept = old.folder / f"kept-{mode}"
    shutil.copytree(before.folder / "pg_stat", kept / "pg_stat")
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
        raise Loss("pg_upgrade: " + " | ".join((done.stdout + done.stderr).strip().splitlines()[-8:]))
    after.start(**SETTINGS)
    found = {"pg_upgrade s": round(took, 1), "undo": check_moved(after, end, rows)}
    check_works(after)
    checks.amcheck(after, DATABASE)
    after.shut()
    checks.checksums(after)
    found["kept files"] = check_kept_files(kept, after)
    after.shut()
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
        result = {**machine.describe(new), "from": old.version, "to": new.version}
        problems = []
        for name, check in [("libraries", lambda: check_libraries(old, new)),
                            *[(mode, lambda mode=mode: upgrade(old, new, mode)) for mode in modes]]:
            try:
                result[name] = check()
                print(f"{name}: {result[name]}", flush=True)
            except (Loss, psycopg2.Error) as error:
                problems.append(f"{name}: {error}")
                print(f"{name}: WRONG: {error}", flush=True)
        record(f"upgrade {old.major} {new.major}", {**result, "wrong": problems})
        for log in [*old.folder.glob("*.outside/log"), *new.folder.glob("*.outside/log")] if problems else []:
            shutil.copy(log, OUTPUT / f"upgrade-{log.parent.name}.log")
    print(f"{old.version} to {new.version}, {', '.join(modes)}: wrong: {'; '.join(problems) or 'nothing'}")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
