"""A table of several files of 1 GB moves while it grows and shrinks: see segments and README.md."""
import argparse
import collections
import contextlib
import os
import shutil
import sys
import threading
import time

import psycopg2

import checks
import machine
import twin
from cluster import TREE, Place, run, say, value
from copies import SETTINGS, caught_up
from loops import Loops, refused
from record import OUTPUT, record
from server import Loss, Server, wait_for
from twin import Twin

GB = 2**30
SPACES = ("space_0", "space_1")
CLIENTS = 3
# Three rows a page, and room for one more. rows that are never deleted, which the load updates; rows at first; GB to which the
# table grows, before it shrinks and after
SIZES = {"large": (700_000, 1_080_000, 3.2, 2.2), "small": (370_000, 410_000, 1.2, 1.1)}
STEP = 20_000       # rows that come or go at a time, 52 MB
END = 600           # seconds for a move
NOTE = "repeat(md5(concat(id, '.', version)), 58)"
SCHEMA = f"""
CREATE EXTENSION amcheck;
CREATE TABLESPACE space_0 LOCATION '{{0}}';
CREATE TABLESPACE space_1 LOCATION '{{1}}';
BEGIN;
CREATE TABLE wide (id int NOT NULL, version int NOT NULL, balance bigint NOT NULL, note text NOT NULL)
    WITH (fillfactor = 75, autovacuum_enabled = off) TABLESPACE space_0;
ALTER TABLE wide ALTER note SET STORAGE PLAIN;
INSERT INTO wide SELECT id, 0, 0, {NOTE} FROM (SELECT i AS id, 0 AS version FROM generate_series(1, {{2}}) i) AS filled;
COMMIT;
ALTER TABLE wide ADD PRIMARY KEY (id) USING INDEX TABLESPACE space_0;
CREATE TABLE aside (LIKE wide INCLUDING STORAGE);
CREATE TABLE ledger (client int, number int, id int NOT NULL, delta bigint NOT NULL, PRIMARY KEY (client, number));
VACUUM ANALYZE wide;
"""
UPDATE = f"""
WITH new AS (SELECT id, version + 1 AS version FROM wide WHERE id = {{id}} FOR UPDATE),
changed AS (UPDATE wide SET version = new.version, balance = balance + {{delta}},
                   note = (SELECT {NOTE} FROM (SELECT new.id, new.version) AS n) FROM new WHERE wide.id = new.id RETURNING wide.id)
INSERT INTO ledger SELECT {{client}}, {{number}}, id, {{delta}} FROM changed RETURNING id"""
# Rows that updates have carried to the end are in the way of a truncation. Inserted again at once they would come to the end
# again, where most room is. While they are aside no update finds them.
ASIDE = """
WITH gone AS (DELETE FROM wide WHERE ctid >= '({page},0)' RETURNING *) INSERT INTO aside SELECT * FROM gone"""
BACK = "WITH gone AS (DELETE FROM aside RETURNING *) INSERT INTO wide SELECT * FROM gone"
FILE = "SELECT pg_relation_filepath('wide')"
ROUNDS = 20         # of rows that go aside


class Updates(Loops):
    """Clients update rows that stay, and remember each answer. While they rest, they do nothing."""

    def __init__(self, server, seed, rows):
        super().__init__(server)
        self.rows = rows
        self.rest = threading.Event()
        self.outcomes = {}      # (client, number) -> True, False, or None without an answer
        self.numbers = collections.Counter()
        for client in range(CLIENTS):
            self.add(f"client {client}", lambda connection, rng, c=client + CLIENTS * seed: self._update(connection, rng, c),
                     f"{seed} {client}")

    def _update(self, connection, rng, client):
        self.stopping.wait(0.005)
        if self.rest.is_set():
            return
        self.numbers[client] += 1
        key = client, self.numbers[client]
        self.outcomes[key] = None
        try:
            changed = run(connection, UPDATE.format(id=1 + rng.randrange(self.rows), delta=rng.randrange(-5000, 5000),
                                                    client=client, number=key[1]))
            # False: the row was just carried to another page
            self.outcomes[key] = bool(changed)
        except psycopg2.Error as error:
            if refused(connection, error):
                self.outcomes[key] = False
            raise


class Experiment:
    def __init__(self, place, size):
        self.place = place
        self.server = Server(place, "server")
        self.stay, self.rows, *self.sizes = SIZES[size]     # rows: as many, from 1 on
        self.outcomes = {}
        self.seed = 0
        self.standby = self.load = None
        self.settings = {**SETTINGS, "archive_mode": "off", "wal_keep_size": "3GB", "max_wal_size": "1GB"}

    def fill(self):
        self.server.start(wal_level="minimal", **{**self.settings, "max_wal_senders": "0"})
        with contextlib.closing(self.server.connect()) as connection:
            for space in SPACES:
                (self.server.outside / space).mkdir()
                self.place.give(self.server.outside / space)
            for statement in SCHEMA.format(*(self.server.outside / space for space in SPACES), self.rows).split(";\n"):
                if statement.strip():
                    run(connection, statement)
            self.server.create_pgscale(connection)
            size = value(connection, "SELECT pg_relation_size('wide')")
        self.server.shut()
        self.server.start(wal_level="replica", **self.settings)
        return f"{size / GB:.2f} GB"

    def attach(self):
        spaces = {space: self.place.folder / "standby.outside" / space for space in SPACES}
        self.standby = Twin(self.place, "standby", lambda made: twin.call(
            self.place, "pg_basebackup", "-h", self.server.outside, "-U", "postgres", "-D", made.folder, "-c", "fast", "--no-sync",
            *(f"--tablespace-mapping={self.server.outside / space}={spaces[space]}" for space in SPACES)), spaces)
        self.standby.configure(**self.settings)
        self.standby.follow(self.server, "standby")
        self.standby.start()

    def grow(self, connection, gigabytes):
        while value(connection, "SELECT pg_relation_size('wide')") < gigabytes * GB:
            run(connection, f"INSERT INTO wide SELECT id, version, 0, {NOTE} FROM"
                            f" (SELECT i AS id, 0 AS version FROM generate_series({self.rows + 1}, {self.rows + STEP}) i) AS filled")
            self.rows += STEP

    def shrink(self, connection):
        """Rows at the end go, and VACUUM truncates the file. Updates rest meanwhile, as they would carry more rows there."""
        while self.rows > self.stay:
            self.rows = max(self.stay, self.rows - 5 * STEP)
            run(connection, f"DELETE FROM wide WHERE id > {self.rows}")
            run(connection, "VACUUM wide")
        pages = self.rows // 3
        self.load.rest.set()
        for _ in range(ROUNDS):
            run(connection, ASIDE.format(page=pages))
            # by itself VACUUM leaves a few dead line pointers, and no page with one is cut off
            run(connection, "VACUUM (INDEX_CLEANUP on) wide")
            size = value(connection, "SELECT pg_relation_size('wide')")
            # it leaves 1,000 pages
            if size <= pages * checks.BLOCK + GB // 50:
                break
        else:
            raise RuntimeError(f"with {self.rows} rows the file still has {size} bytes")
        self.load.rest.clear()
        run(connection, "ALTER TABLE wide SET (fillfactor = 100)")
        run(connection, BACK)
        run(connection, "ALTER TABLE wide SET (fillfactor = 75)")

    @contextlib.contextmanager
    def held(self):
        """Within, a lock of the TOAST table keeps a move from its switch, and VACUUM from nothing."""
        with contextlib.closing(self.server.connect()) as connection:
            toast = value(connection, "SELECT reltoastrelid::regclass::text FROM pg_class WHERE oid = 'wide'::regclass")
            run(connection, "BEGIN")
            run(connection, f"SELECT FROM {toast}")
            yield

    def step(self, change, kill=None, copied=GB / 2):
        """A move under load; once so many bytes are copied, change(connection) runs, and the move switches afterwards. With kill
        the server dies as soon as kill(connection, job) is true, and the change comes after its start."""
        self.seed += 1
        connection = self.server.connect()
        before = value(connection, "SELECT pg_relation_size('wide')")
        with Updates(self.server, self.seed, self.stay) as self.load, contextlib.ExitStack() as holds:
            if not kill:
                holds.enter_context(self.held())
            job, copied = self.begin(connection, copied)
            if kill:
                wait_for("the moment to die", lambda: kill(connection, job), END)
                self.server.held = True
                self.server.kill_all()
                self.server.start(**self.settings)
                self.server.held = False
                connection = self.server.connect()
                holds.enter_context(self.held())
            file = value(connection, FILE)
            change(connection)
            if value(connection, FILE) != file:
                raise RuntimeError("the move was over before the change")
            holds.close()
            wait_for("end of the move", lambda: value(
                connection, "SELECT finished_at IS NOT NULL FROM pgscale.relocation_jobs WHERE job = %s", job), END)
        self.outcomes.update(self.load.outcomes)
        state, attempts, message = run(connection, "SELECT state, attempts, message FROM pgscale.relocation_jobs WHERE job = %s", job)[0]
        if state != "done":
            raise Loss(f"the move ended as {state}: {message}")
        self.check(self.server)
        after = value(connection, "SELECT pg_relation_size('wide')")
        connection.close()
        return f"{before / GB:.2f} to {after / GB:.2f} GB, change begun at {copied / GB:.2f} GB copied; attempts {attempts}, " \
            f"{sum(outcome is True for outcome in self.load.outcomes.values()):,} commits"

    def begin(self, connection, least):
        """Asks for a move, waits until so many bytes are copied; returns the job, and how much that is."""
        job = value(connection, """
            SELECT pgscale.relocate_table('wide', CASE WHEN spcname = 'space_0' THEN 'space_1' ELSE 'space_0' END)
              FROM pg_class c JOIN pg_tablespace t ON t.oid = reltablespace WHERE c.oid = 'wide'::regclass""")
        copied = "SELECT copied_bytes FROM pgscale.relocation_jobs WHERE job = %s"
        wait_for("a part of the copy", lambda: (value(connection, copied, job) or 0) > least, END)
        return job, value(connection, copied, job)

    def check(self, server):
        with contextlib.closing(server.connect()) as connection:
            found = set(run(connection, "SELECT client, number FROM ledger"))
            lost = {key for key, outcome in self.outcomes.items() if outcome is True} - found
            false = found - {key for key, outcome in self.outcomes.items() if outcome is not False}
            if lost or false:
                raise Loss(f"{len(lost)} acknowledged commits are lost, {len(false)} refused ones are there")
            run(connection, "SET enable_indexscan = off; SET enable_bitmapscan = off; SET enable_indexonlyscan = off")
            there = run(connection, f"""
                SELECT count(*), min(id), max(id), count(*) FILTER (WHERE note <> {NOTE}), sum(version), sum(balance) FROM wide""")
            told = run(connection, f"SELECT {self.rows}, 1, {self.rows}, 0, count(*), sum(delta) FROM ledger")
            run(connection, "RESET ALL")
            if there != told:
                raise Loss(f"rows, first, last, wrong, versions, balance are {there[0]}, not {told[0]}")
            differing = value(connection, """
                SELECT count(*) FROM (SELECT id, sum(delta) AS delta, count(*) AS times FROM ledger GROUP BY id) l
                  JOIN wide USING (id) WHERE balance <> delta OR version <> times""")
            if differing:
                raise Loss(f"{differing} rows are not what the ledger says of them")
            run(connection, "SET enable_seqscan = off; SET enable_bitmapscan = off")
            by_index = value(connection, "SELECT count(version) FROM wide WHERE id >= 0")
            if by_index != self.rows:
                raise Loss(f"by way of its index there are {by_index} rows, not {self.rows}")
        self.check_files(server)

    def check_files(self, server):
        """Each file but the last is of 1 GB, they are what the server takes them for, and there are no others."""
        with contextlib.closing(server.connect()) as connection:
            path, size = run(connection, "SELECT pg_relation_filepath('wide'), pg_relation_size('wide')")[0]
            known = {path for path, in run(connection, "SELECT pg_relation_filepath(oid) FROM pg_class WHERE relkind IN ('r', 'i', 't')")}

            def strays():
                run(connection, "CHECKPOINT")
                return [file for file in server.folder.glob("pg_tblspc/*/*/*/*") if checks.RELATION.match(file.name)
                        and str(file.relative_to(server.folder)).split(".")[0].split("_fsm")[0].split("_vm")[0] not in known
                        and file.stat().st_size]
            main = server.folder / path
            sizes = [file.stat().st_size for file in (main, *(main.with_name(f"{main.name}.{n}") for n in range(1, 9)))
                     if file.exists()]
            sizes = [its for number, its in enumerate(sizes) if its or not number]
            if sum(sizes) != size or any(its != GB for its in sizes[:-1]):
                raise Loss(f"its files have {sizes}, and the server says {size}")
            left = [file for file in strays()][:2] and strays()
            if left:
                raise Loss(f"files without a relation: {left[:3]}, of {left[0].stat().st_size} bytes")

    def compare(self):
        """The standby, and both sides' sums, indexes and checksums."""
        with contextlib.closing(self.server.connect()) as connection:
            expected, lsn = twin.digest(connection), value(connection, "SELECT pg_current_wal_flush_lsn()")
        caught_up(self.standby, lsn)
        with contextlib.closing(self.standby.connect()) as connection:
            twin.compare(twin.digest(connection), expected)
        for server in (self.standby, self.server):
            self.check(server)
            checks.amcheck(server, standby=server is self.standby)
        for server in (self.standby, self.server):
            server.shut()
            checks.checksums(server)
            checks.log(server.said())
        return f"{len(expected)} tables, the largest of {expected['wide'][0]:,} rows"


def steps(experiment):
    def phase(connection, job):
        return dict(run(connection, "SELECT job, phase FROM pgscale_internal.relocation_progress()")).get(job)

    def growing(gigabytes):
        return lambda connection: experiment.grow(connection, gigabytes)

    def dropping(connection, job):
        return phase(connection, job) == "dropping"

    yield "filled", experiment.fill
    yield "a standby", experiment.attach
    first, second = experiment.sizes
    yield "grows", lambda: experiment.step(growing(first))
    # the copy must be truncated, too
    yield "shrinks", lambda: experiment.step(experiment.shrink, copied=0.9 * first * GB)
    yield "killed while copying, then grows", lambda: experiment.step(
        growing(second), lambda connection, job: phase(connection, job) == "copying")
    yield "killed while the old files go, then shrinks", lambda: experiment.step(experiment.shrink, dropping)
    yield "the standby", experiment.compare


def main():
    parser = argparse.ArgumentParser(prog="t/trust/segments")
    parser.add_argument("--small", action="store_true", help="1 GB in place of 3")
    size = "small" if parser.parse_args().small else "large"
    found, wrong = {}, None
    begun = time.monotonic()
    with Place() as place:
        experiment = Experiment(place, size)
        for name, step in steps(experiment):
            since = time.monotonic()
            try:
                result = step() or "attached"
            except (Loss, psycopg2.Error, RuntimeError) as error:
                wrong = f"{name}: {str(error).splitlines()[0]}"
                print(f"{name}: WRONG: {error}", flush=True)
                break
            found[name] = f"{result}; {time.monotonic() - since:.0f} s"
            print(f"{name}: {found[name]}", flush=True)
        record(f"segments {size} {place.major}", {**machine.describe(place), "load": os.getloadavg(), "steps": found, "wrong": wrong,
                                           "seconds": round(time.monotonic() - begun)})
        for cluster in place.clusters if wrong else []:
            kept = OUTPUT / f"segments-{cluster.name}-{place.major}.log"
            shutil.copy(cluster.log, kept)
            say(f"kept for a closer look: {kept.relative_to(TREE)}")
    print(f"wrong: {wrong or 'nothing'}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
