"""Kills, stops and cancels relocation jobs at all their steps: see kills and README.md."""
import argparse
import collections
import contextlib
import functools
import itertools
import pathlib
import random
import shutil
import signal
import sys
import time

import psycopg2

import checks
import digest
import machine
import moves
from churn import ABSENT, Expected
from cluster import TREE, Place, run, say, value
from loops import Loops
from record import OUTPUT, record
from report import filled, table as markdown
from server import Loss, Server, wait_for

HERE = pathlib.Path(__file__).resolve().parent

CLIENTS = 4
TABLES = ("items_0", "items_1")
ROWS = 120_000      # in each of them
SPACE = 160_000     # of their keys
PLACES = ("pg_default", "elsewhere")    # tablespaces

SETTINGS = {
    "shared_preload_libraries": "pgscale",
    "pgscale.relocation_workers": "2",
    "maintenance_work_mem": "1MB",      # so that sorting takes some time
    "deadlock_timeout": "200ms",
}

# One table's; those of the other one are alike. Each kind of index that has something to lose.
SCHEMA = """
CREATE TABLE {table} (id int PRIMARY KEY, version bigint NOT NULL, code text NOT NULL, filler text NOT NULL,
    CONSTRAINT "{table}'s code" UNIQUE (code));
CREATE INDEX {table}_wide ON {table} (filler, id);
CREATE INDEX {table}_part ON {table} (version) WHERE version % 2 = 0;
CREATE INDEX {table}_expression ON {table} (lower(code) DESC) INCLUDE (version) WITH (fillfactor = 80);
ALTER INDEX {table}_expression ALTER COLUMN 1 SET STATISTICS 500;
ALTER TABLE {table} REPLICA IDENTITY USING INDEX "{table}'s code";
ALTER TABLE {table} CLUSTER ON {table}_wide;
COMMENT ON INDEX {table}_part IS 'even';
COMMENT ON CONSTRAINT "{table}'s code" ON {table} IS 'of the row';
INSERT INTO {table} SELECT i, 0, md5('{table}' || i || '.0'), repeat(md5(i::text), 5) FROM generate_series(0, {rows} - 1) i;
INSERT INTO {table} SELECT -i, 0, -i, 'referred to' FROM generate_series(1, 5) i;
CREATE TABLE {table}_referring (id int REFERENCES {table});
INSERT INTO {table}_referring SELECT -i FROM generate_series(1, 5) i;
"""
INDEXES = ("{}_pkey", "\"{}'s code\"", "{}_wide", "{}_part", "{}_expression")

# Where a job is: stock's phases and what pgscale does around them.
QUEUED, STARTING = "queued", "starting"
INITIALIZING, BUILD = "initializing", "building index"
BEFORE_BUILD, BEFORE_VALIDATION = "waiting for writers before build", "waiting for writers before validation"
SCAN_INDEX, SORT, SCAN_TABLE = (f"index validation: {step}" for step in ("scanning index", "sorting tuples", "scanning table"))
OLD_SNAPSHOTS = "waiting for old snapshots"
BEFORE_DEAD, BEFORE_DROP = "waiting for readers before marking dead", "waiting for readers before dropping"
CLEANING, CLEANING_OLD, VERIFYING, ENDED = "cleaning up", "cleaning up, moved", "verifying", "ended"
STEPS = (QUEUED, STARTING, INITIALIZING, BEFORE_BUILD, BUILD, BEFORE_VALIDATION, SCAN_INDEX, SORT, SCAN_TABLE, OLD_SNAPSHOTS,
         BEFORE_DEAD, BEFORE_DROP, CLEANING, CLEANING_OLD, VERIFYING)
# Some lock or snapshot holds the job there until it is let go, and it has not moved yet.
HELD_UNMOVED = (STARTING, INITIALIZING, BEFORE_BUILD, BEFORE_VALIDATION, OLD_SNAPSHOTS, CLEANING)
SHORT = (SCAN_INDEX, SORT, SCAN_TABLE)
# And with --moves
COPYING, FOLLOWING, WAITING, SWITCHING, DROPPING = moves.PHASES
MOVE_STEPS = (QUEUED, STARTING, *moves.PHASES, VERIFYING)
MOVE_SHORT = (STARTING, FOLLOWING, SWITCHING, DROPPING)
COPY_RATE = "10MB"      # a second, so that copying takes some time

WORKER, TWICE, LAUNCHER = "kill -9 of the worker", "kill -9 of the worker, twice", "kill -9 of the launcher"
POSTMASTER, ALL = "kill -9 of the postmaster", "kill -9 of all"
IMMEDIATE, FAST = "immediate shutdown", "fast shutdown"
TERMINATE, PG_CANCEL, CANCEL = "pg_terminate_backend", "pg_cancel_backend", "relocation_cancel"
WAYS = (WORKER, TWICE, LAUNCHER, POSTMASTER, ALL, IMMEDIATE, FAST, TERMINATE, PG_CANCEL, CANCEL)
CRASHES = (WORKER, TWICE, LAUNCHER, POSTMASTER, ALL, IMMEDIATE)
CANCELS = (PG_CANCEL, CANCEL)

END = 60        # seconds by which all jobs must have ended
SEE = 30        # seconds to wait for a step
TRIES = 20      # moves until a short step is seen


class Stuck(Loss):
    pass


class Leftover(Loss):
    pass


class Wrong(Loss):
    """A job ended as it must not."""


class Rows(Loops):
    """The load: each client inserts, updates and deletes rows of its own and remembers the answers."""

    PAUSE = 0.004

    def __init__(self, server, seed, known):
        """known: table -> id -> version"""
        super().__init__(server)
        self.expected = {}
        for table in TABLES:
            self.expected[table] = Expected()
            self.expected[table].possible = {row: {version} for row, version in known[table].items()}
        self.versions = itertools.count(1 + max(version for rows in known.values() for version in rows.values()))
        self.acknowledged = 0
        for client in range(CLIENTS):
            self.add(f"client {client}", functools.partial(self._change, client), f"{seed} {client}")

    def _change(self, client, connection, rng):
        self.stopping.wait(self.PAUSE)
        table = rng.choice(TABLES)
        row = rng.randrange(SPACE // CLIENTS) * CLIENTS + client
        possible = self.expected[table].possible.get(row, {ABSENT})
        if possible == {ABSENT}:
            version = next(self.versions)
            statement = f"INSERT INTO {table} VALUES ({row}, {version}, md5('{table}{row}.{version}'), repeat(md5('{row}'), 5))"
        elif len(possible) > 1 or rng.random() < 0.25:
            version = ABSENT
            statement = f"DELETE FROM {table} WHERE id = {row}"
        else:
            version = next(self.versions)
            statement = f"UPDATE {table} SET version = {version}, code = md5('{table}{row}.{version}') WHERE id = {row}"
        self.expected[table].change(connection, row, version, statement)
        self.acknowledged += 1

    def check(self, connection):
        """After stop(); returns what there is, and raises Loss if that is not what was acknowledged."""
        found = rows_of(connection)
        for table, expected in self.expected.items():
            for row in set(expected.possible) | set(found[table]):
                expected.check(row, found[table].get(row, ABSENT))
        return found


def rows_of(connection):
    return {table: dict(run(connection, f"SELECT id, version FROM {table}")) for table in TABLES}


def definitions(connection):
    """All there is of relations and constraints but where they are and what is in them."""
    relations = run(connection, """
        SELECT c.oid::regclass::text, c.relkind, c.reloptions, i.indisvalid, i.indisready, i.indislive, i.indisclustered,
               i.indisreplident, pg_get_indexdef(i.indexrelid), obj_description(c.oid, 'pg_class'),
               (SELECT array_agg(concat(attnum, ':', attstattarget) ORDER BY attnum)
                  FROM pg_attribute WHERE attrelid = c.oid AND attnum > 0)
          FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid
         WHERE relnamespace NOT IN ('pg_catalog'::regnamespace, 'information_schema'::regnamespace) AND relpersistence <> 't'
         ORDER BY 1""")
    constraints = run(connection, """
        SELECT conrelid::regclass::text, conname, conindid::regclass::text, convalidated, pg_get_constraintdef(oid),
               obj_description(oid, 'pg_constraint')
          FROM pg_constraint WHERE conrelid <> 0 ORDER BY 1, 2""")
    return relations + constraints


class Holds:
    """Transactions that keep a job at a step. at() is told of each step that is seen: some take more than one of them."""

    def __init__(self, server, step, table, strike, prepare):
        """strike: a first one, of the worker. prepare: by prepared transactions where that can be."""
        self.server = server
        self.table = table
        self.strike = strike
        self.prepared = prepare and step in (BEFORE_BUILD, BEFORE_VALIDATION, BEFORE_DEAD, BEFORE_DROP, CLEANING, CLEANING_OLD,
                                             WAITING)
        self.numbers = itertools.count(1)
        self.open = []              # connections, or names of what is prepared
        self.seen = set()
        self.at = getattr(self, "_" + {BEFORE_VALIDATION: "validation", BEFORE_DROP: "drop", CLEANING: "cleaning",
                                       CLEANING_OLD: "cleaning_old"}.get(step, "nothing"))
        first = {
            QUEUED: "LOCK TABLE pgscale_internal.relocation_job IN SHARE UPDATE EXCLUSIVE MODE",
            STARTING: f"LOCK TABLE {table} IN SHARE UPDATE EXCLUSIVE MODE",
            INITIALIZING: "LOCK TABLE pg_index IN SHARE MODE",
            BEFORE_BUILD: self._writer(), CLEANING: self._writer(),
            OLD_SNAPSHOTS: "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ; SELECT 1",
            BEFORE_DEAD: self._reader(), BEFORE_DROP: self._reader(), CLEANING_OLD: self._reader(), WAITING: self._reader(),
        }.get(step)
        if first:
            self._begin(first)

    def _writer(self):
        return f"LOCK TABLE {self.table} IN ROW EXCLUSIVE MODE"

    def _reader(self):
        return f"LOCK TABLE {self.table} IN ACCESS SHARE MODE"

    def _begin(self, statement):
        connection = self.server.connect()
        run(connection, f"BEGIN; {statement}")
        if self.prepared:
            self.open.append(f"hold {next(self.numbers)}")
            run(connection, f"PREPARE TRANSACTION '{self.open[-1]}'")
            connection.close()
        else:
            self.open.append(connection)

    def _end(self, hold):
        if not self.prepared:
            hold.close()
            return
        connection = self.server.connect()
        run(connection, f"COMMIT PREPARED '{hold}'")
        connection.close()

    def _nothing(self, step):
        pass

    def _validation(self, step):
        if step == BUILD and not self.open:
            self._begin(self._writer())

    def _drop(self, step):
        if step == BEFORE_DEAD and len(self.open) == 1:
            self._begin(self._reader())
            self._end(self.open.pop(0))

    def _cleaning(self, step):
        if step == BEFORE_BUILD and not self.seen:
            self.seen.add(step)
            self.strike()

    def _cleaning_old(self, step):
        if step == BEFORE_DEAD and not self.seen:
            self.seen.add(step)
            self.strike()

    def release(self):
        while self.open:
            self._end(self.open.pop())


class Experiment:
    """One server through many strikes."""

    STEPS, SHORT, HELD_UNMOVED = STEPS, SHORT, HELD_UNMOVED
    HOLDS = Holds

    def __init__(self, place, seed):
        self.rng = random.Random(seed)
        self.seed = seed
        self.server = Server(place, "server")
        self.elsewhere = place.folder / "elsewhere"
        self.elsewhere.mkdir()
        place.give(self.elsewhere)
        self.strikes = []           # what happened, one dict each
        self.moves = 0              # jobs done
        self.commits = 0
        self.target = None          # where the index that is to be struck is moved to
        self.files = set()          # without a relation, known by now
        self.steps, self.ways = [], []      # to come

    def set_up(self):
        self.server.start(**SETTINGS)
        connection = self.server.connect()
        run(connection, f"CREATE TABLESPACE elsewhere LOCATION '{self.elsewhere}'")
        for table in TABLES:
            run(connection, SCHEMA.format(table=table, rows=ROWS))
        run(connection, "CREATE EXTENSION amcheck")
        run(connection, "VACUUM ANALYZE")
        self.server.create_pgscale(connection)
        self.known = rows_of(connection)
        self.definitions = definitions(connection)
        self.database = value(connection, "SELECT oid FROM pg_database WHERE datname = current_database()")
        connection.close()

    def deal(self):
        """A step and a way to strike, so that all of both come equally often, in any combination."""
        for deck, cards in ((self.steps, self.STEPS), (self.ways, WAYS)):
            if not deck:
                deck += self.rng.sample(cards, len(cards))
        return self.steps.pop(), self.ways.pop()

    def index(self, table, step):
        return (INDEXES[2] if step in self.SHORT else self.rng.choice(INDEXES)).format(table)

    def tablespace(self, connection, index):
        return value(connection, """
            SELECT coalesce(spcname, 'pg_default') FROM pg_class c LEFT JOIN pg_tablespace t ON t.oid = reltablespace
             WHERE c.oid = %s::regclass""", index)

    def other_tablespace(self, connection, index):
        return next(place for place in PLACES if place != self.tablespace(connection, index))

    def request(self, connection, index):
        """Has it moved to where it is not; returns the job."""
        target = self.other_tablespace(connection, index)
        return value(connection, "SELECT pgscale.relocate_index(%s, %s, amcheck => true, mode => 'rebuild')", index, target)

    @staticmethod
    def look(connection, job):
        """Where the job is, and its worker's pid."""
        state, phase, pid, moved, new = run(connection, """
            SELECT j.state, p.phase, a.pid, i.indisvalid, new_index FROM pgscale_internal.relocation_job j
              LEFT JOIN pg_stat_activity a ON a.pid = j.pid AND a.backend_type = 'pgscale relocation worker'
              LEFT JOIN pg_stat_progress_create_index p ON p.pid = a.pid
              LEFT JOIN pg_index i ON i.indexrelid = j.new_index WHERE job = %s""", job)[0]
        if state not in ("queued", "waiting", "running", "verifying"):
            return ENDED, None
        # what a worker that is no more has left counts as queued
        if state in ("queued", "waiting") or not pid:
            return QUEUED, None
        if state == "verifying":
            return VERIFYING, pid
        if phase:
            return phase.split(": ")[0] if phase.startswith(BUILD) else phase, pid
        return STARTING if not new else CLEANING_OLD if moved else CLEANING, pid

    def watch(self, connection, job, step, holds):
        """Until the job is there; False if it got past it unseen."""
        since = time.monotonic()
        while True:
            now, _ = self.look(connection, job)
            if now == step:
                return True
            if now == ENDED:
                return False
            holds.at(now)
            if time.monotonic() - since > SEE:
                raise Stuck(f"job {job} is at \"{now}\" for long; \"{step}\" was awaited")

    def worker(self, connection, job):
        """Of this job; or of whatever, as long as it is queued."""
        pid = self.look(connection, job)[1]
        found = run(connection, "SELECT pid FROM pg_stat_activity WHERE backend_type = 'pgscale relocation worker'")
        return pid or (found[0][0] if found else None)

    def strike(self, connection, way, job):
        """Returns when the server is there again, or was told; False if the job got to its end before."""
        server = self.server
        died = server.mark()
        if way in (WORKER, TWICE, TERMINATE, PG_CANCEL):
            wait_for("a worker", lambda: self.worker(connection, job) or self.look(connection, job)[0] == ENDED, 20)
            pid = self.worker(connection, job)
            if not pid:
                return False
        if way in (WORKER, TWICE):
            server.kill(pid)
            server.wait_ready(died)
        elif way == LAUNCHER:
            wait_for("a launcher", lambda: server.child("pgscale relocation") or self.look(connection, job)[0] == ENDED, 20)
            pid = server.child("pgscale relocation")
            if not pid:
                return False
            server.kill(pid)
            server.wait_ready(died)
        elif way == TERMINATE:
            run(connection, "SELECT pg_terminate_backend(%s)", pid)
        elif way == PG_CANCEL:
            run(connection, "SELECT pg_cancel_backend(%s)", pid)
        elif way == CANCEL:
            run(connection, "SELECT pgscale.relocation_cancel(%s)", job)
        else:
            if way == POSTMASTER:
                server.kill_postmaster()
                server.wait_gone()
            elif way == ALL:
                server.kill_all()
            elif way == FAST:
                server.shut()
            else:
                server.process.send_signal(signal.SIGQUIT)
                server.process.wait(60)
                server.wait_gone()
            server.start()
        return True

    def ended(self, connection, jobs):
        """Until all have; returns their rows."""
        query = "SELECT job, state, relation, sqlstate, message FROM pgscale.relocation_jobs WHERE job = ANY (%s) ORDER BY job"
        try:
            wait_for("end of all jobs", lambda: value(
                connection, "SELECT count(*) FROM pgscale_internal.relocation_job WHERE finished_at IS NULL") == 0, END)
        except Loss as late:
            raise Stuck(f"{late}: {run(connection, query, list(jobs))}; " + str(run(
                connection, "SELECT pid, backend_type, wait_event, state, query FROM pg_stat_activity"))) from None
        return run(connection, query, list(jobs))

    def again(self, table, job):
        """A second strike, somewhere on the way; a reader sees to it that the job does not get through before."""
        holds = Holds(self.server, BEFORE_DEAD, table, None, False)
        with contextlib.closing(self.server.connect()) as connection:
            wait_for("another attempt", lambda: self.look(connection, job)[0] != QUEUED, SEE)
            time.sleep(self.rng.uniform(0, 0.8))
            step, _ = self.look(connection, job)
            if step != ENDED and not self.strike(connection, WORKER, job):
                step = ENDED
        holds.release()
        return step

    def cycle(self, number):
        """One strike, and all checks; returns what to print."""
        server = self.server
        step, way = self.deal()
        born = server.mark()
        connection = server.connect()
        since = time.monotonic()
        with Rows(server, f"{self.seed} {number}", self.known) as load:
            struck, table, index, jobs, prepared = self.hit(connection, step, way)
            job = jobs[0]
            connection.close()
            if way == TWICE:
                struck_again = self.again(table, job)
            connection = server.connect()
            ended = time.monotonic()
            rows = self.ended(connection, jobs)
            ended = time.monotonic() - ended
            told = {row[0]: row for row in rows}
            moved = self.tablespace(connection, index) == self.target
            self.verdict(step, struck, way, told[job], moved, told)
            self.nothing_left(connection, "after the strike")
            if not moved:
                retry = self.request(connection, index)
                state = self.ended(connection, [retry])[0][1]
                if state != "done" or self.tablespace(connection, index) != self.target:
                    raise Wrong(f"requested again, it is {state}")
                self.moves += 1
        self.known = load.check(connection)
        self.commits += load.acknowledged
        self.nothing_left(connection, "in the end")
        self.moves += sum(row[1] == "done" for row in rows)
        orphans = self.orphans(connection, way)
        connection.close()
        checks.amcheck(server)
        checks.log(server.said(born))
        outcome = told[job][1] + (", moved" if moved and told[job][1] != "done" else "")
        self.strikes.append({"step": step, "struck": struck, "way": way, "prepared": prepared, "index": index,
                             "outcome": outcome, "jobs": len(jobs), "seconds to end": round(ended, 2),
                             "files without a relation": orphans})
        if way == TWICE:
            self.strikes[-1]["struck again"] = struck_again
        return f"{way} at \"{struck}\"" + " (prepared)" * prepared + (f", then \"{struck_again}\"" if way == TWICE else "") + \
            f": {outcome} after {ended:.1f} s, {orphans} files without a relation; {load.acknowledged} commits, " + \
            f"{time.monotonic() - since:.1f} s in all"

    def hit(self, connection, step, way):
        """Moves indexes until one of them is at that step, and strikes. Returns where it was by then, and what was moved."""
        rng = self.rng
        for _ in range(TRIES):
            table = rng.choice(TABLES)
            index = self.index(table, step)
            self.target = self.other_tablespace(connection, index)
            jobs = []
            holds = self.HOLDS(self.server, step, table, lambda: self.strike(
                connection, PG_CANCEL if way not in CANCELS else way, jobs[0]), rng.random() < 0.4)
            try:
                jobs.append(self.request(connection, index))
                if step not in self.SHORT and rng.random() < 0.5:
                    other = self.index(rng.choice(TABLES), step)
                    if other != index:
                        jobs.append(self.request(connection, other))
                seen = self.watch(connection, jobs[0], step, holds)
                if seen:
                    if rng.random() < 0.5 and step not in self.SHORT:
                        time.sleep(rng.uniform(0, 0.3))
                    struck, _ = self.look(connection, jobs[0]) if step not in self.SHORT else (step, None)
                    if struck != ENDED and self.strike(connection, way, jobs[0]):
                        if way not in CRASHES:
                            time.sleep(rng.uniform(0, 0.3))     # what holds it up goes on for a while
                        return struck, table, index, jobs, holds.prepared
            finally:
                holds.release()
            self.moves += sum(row[1] == "done" for row in self.ended(connection, jobs))
        raise Wrong(f"{TRIES} moves, and none was seen at \"{step}\"")

    def verdict(self, step, struck, way, row, moved, told):
        """What may have become of the jobs?"""
        job, state, index, sqlstate, message = row
        says = f"{way} at \"{struck}\": the job for {index} is {state}: {sqlstate} {message}"
        if state == "done" and not moved:
            raise Wrong(f"{says}, but it has not moved")
        may = {"done"}
        if way == TWICE:
            may.add("lost")
        if way in CANCELS or step in (CLEANING, CLEANING_OLD):      # of which one was cancelled before
            may.add("cancelled")
        if step == struck and (way in CANCELS and step in self.HELD_UNMOVED or way == CANCEL and step == QUEUED or
                               way not in CRASHES and step == CLEANING):
            may = {"cancelled"}
        if state not in may:
            raise Wrong(says)
        for other, its, index, sqlstate, message in told.values():
            if other != job and its not in ({"done", "lost"} if way == TWICE else {"done"}):
                raise Wrong(f"{way} at \"{struck}\" of another job: that for {index} is {its}: {sqlstate} {message}")

    def nothing_left(self, connection, when):
        found = definitions(connection)
        if found != self.definitions:
            added = [row for row in found if row not in self.definitions]
            missing = [row for row in self.definitions if row not in found]
            raise Leftover(f"{when}: there are {added} instead of {missing}")
        names = run(connection, "SELECT relname FROM pg_class WHERE relname ~ '_cc(new|old)[0-9]*$'")
        if names:
            raise Leftover(f"{when}: {names}")

    def orphans(self, connection, way):
        """How many files without a relation have come up. After a crash there may be some, as after a crash of stock."""
        run(connection, "CHECKPOINT")       # dropped ones go now

        def look():
            known = {str(node) for node, in run(connection, "SELECT pg_relation_filenode(oid) FROM pg_class")}
            folders = [self.server.folder / "base" / str(self.database), *self.elsewhere.glob(f"*/{self.database}")]
            return {str(file) for folder in folders for file in folder.iterdir()
                    if checks.RELATION.match(file.name) and file.name.split(".")[0].split("_")[0] not in known}
        # autovacuum may be at it, and a later checkpoint's turn is the rest
        new = look() - self.files
        if new and way not in CRASHES:
            run(connection, "CHECKPOINT")
            new &= look()
            if new:
                raise Leftover(f"files without a relation: {sorted(new)}")
        self.files |= new
        return len(new)

    def keep(self, folder):
        """What there is to look for the cause."""
        self.server.stop()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        shutil.copy(self.server.log, folder)


class MoveHolds(Holds):
    """Only a move that waits to begin, or for the table's users, can be kept at that; it follows for longer if much changes."""

    def __init__(self, server, step, table, strike, prepare):
        super().__init__(server, step if step in (QUEUED, WAITING) else ENDED, table, strike, prepare)
        if step == FOLLOWING:
            self.at = self._following

    def _following(self, step):
        if step == COPYING:
            with contextlib.closing(self.server.connect()) as connection:
                run(connection, f"UPDATE {self.table} SET filler = filler WHERE id % 50 = {next(self.numbers) % 50}")


class Moves(Experiment):
    """The same with live moves, of the tables as well."""

    STEPS, SHORT, HELD_UNMOVED = MOVE_STEPS, MOVE_SHORT, (WAITING,)
    HOLDS = MoveHolds

    def index(self, table, step):
        if step in self.SHORT or step != VERIFYING and self.rng.random() < 0.5:
            return table
        return super().index(table, step)

    def request(self, connection, index):
        target = self.other_tablespace(connection, index)
        if index in TABLES:
            return value(connection, "SELECT pgscale.relocate_table(%s, %s)", index, target)
        return value(connection, "SELECT pgscale.relocate_index(%s, %s, amcheck => true, mode => 'copy')", index, target)

    @staticmethod
    def look(connection, job):
        state, phase, pid, files = run(connection, """
            SELECT j.state, p.phase, a.pid, files IS NOT NULL FROM pgscale_internal.relocation_job j
              LEFT JOIN pg_stat_activity a ON a.pid = j.pid AND a.backend_type = 'pgscale relocation worker'
              LEFT JOIN pgscale_internal.relocation_progress() p ON p.job = j.job WHERE j.job = %s""", job)[0]
        if state not in ("queued", "waiting", "running", "verifying"):
            return ENDED, None
        if state in ("queued", "waiting") or not pid:
            return QUEUED, None
        if state == "verifying":
            return VERIFYING, pid
        return phase or (CLEANING if files else STARTING), pid

    def hit(self, connection, step, way):
        self.server.reload(**{"pgscale.relocation_rate": COPY_RATE if step in (COPYING, FOLLOWING) else "0"})
        return super().hit(connection, step, way)

    def again(self, table, job):
        """Half of the time as soon as it cleans up, if that takes long enough to be seen."""
        if self.rng.random() < 0.5:
            return super().again(table, job)
        holds = Holds(self.server, BEFORE_DEAD, table, None, False)
        with contextlib.closing(self.server.connect()) as connection:
            wait_for("another attempt", lambda: self.look(connection, job)[0] not in (QUEUED, STARTING), SEE)
            step, _ = self.look(connection, job)
            if step != ENDED and not self.strike(connection, WORKER, job):
                step = ENDED
        holds.release()
        return step

    def orphans(self, connection, way):
        """Moves leave no file, not even after a crash; except an empty one that was dropped, as stock does."""
        before = set(self.files)
        found = super().orphans(connection, way)
        for file in map(pathlib.Path, self.files - before):
            if file.exists() and file.stat().st_size:
                raise Leftover(f"after {way}: a file without a relation, of {file.stat().st_size} bytes: {file}")
        return found


def measure(experiment, strikes):
    """Returns what was wrong, or None."""
    experiment.set_up()
    for number in range(1, strikes + 1):
        try:
            line = experiment.cycle(number)
        except (Loss, psycopg2.Error) as error:
            print(f"{number:4d}  {type(error).__name__.upper()}: {error}", flush=True)
            return error
        print(f"{number:4d}  {line}", flush=True)
    return None


def tables(strikes, steps):
    """Where it was struck how, and what became of it."""
    hits = collections.Counter((strike["struck"], strike["way"]) for strike in strikes)
    rows = [[step] + [hits[step, way] or "" for way in WAYS] + [sum(hits[step, way] for way in WAYS)] for step in steps]
    rows.append(["all"] + [sum(hits[step, way] for step in steps) for way in WAYS] + [len(strikes)])
    where = markdown(["struck at", *WAYS, "all"], rows)
    rows = []
    for way in WAYS:
        its = [strike for strike in strikes if strike["way"] == way]
        if its:
            outcomes = collections.Counter(strike["outcome"] for strike in its)
            rows.append([way, len(its), ", ".join(f"{n} {outcome}" for outcome, n in sorted(outcomes.items())),
                         f"{max(strike['seconds to end'] for strike in its)} s",
                         sum(strike["files without a relation"] for strike in its)])
    return where + "\n\n" + markdown(["strike", "times", "the job ended", "at most after", "files without a relation"], rows)


def keep(described, arguments, found, line, block):
    options = "--moves " * arguments.moves + f"--strikes {arguments.strikes} --seed {arguments.seed}"
    name = "kills" + "_moves" * arguments.moves
    digest.write(HERE, {**digest.read(HERE), name: {
        "machine": described, "experiment": f"kills, {options}", "result": line, "figures": found}})
    said = f"PostgreSQL {described['PostgreSQL']}, `{options}`:"
    readme = HERE / "README.md"
    readme.write_text(filled(readme.read_text(), name, f"{said}\n\n{block}"))


def main():
    parser = argparse.ArgumentParser(prog="t/trust/kills")
    parser.add_argument("--strikes", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--moves", action="store_true", help="live moves of tables and indexes, in place of REINDEX")
    parser.add_argument("--keep", action="store_true", help="put what was found into summary.json and README.md")
    arguments = parser.parse_args()
    with Place() as place:
        experiment = (Moves if arguments.moves else Experiment)(place, arguments.seed)
        since = time.monotonic()
        wrong = measure(experiment, arguments.strikes)
        strikes = experiment.strikes
        crashes = sum(strike["way"] in CRASHES for strike in strikes) + sum("struck again" in strike for strike in strikes)
        text = tables(strikes, experiment.STEPS)
        OUTPUT.mkdir(parents=True, exist_ok=True)
        name = "kills" + "-moves" * arguments.moves
        (OUTPUT / f"{name}-{place.major}.md").write_text(text + "\n")
        record(f"{name}-{place.major}", {
            **machine.describe(place), "seed": arguments.seed, "strikes": strikes, "crashes": crashes, "moves": experiment.moves,
            "commits": experiment.commits, "wrong": str(wrong) if wrong else None, "seconds": round(time.monotonic() - since)})
        if wrong:
            kept = OUTPUT / f"kills-wrong-{place.major}"
            experiment.keep(kept)
            say(f"kept for a closer look: {kept.relative_to(TREE)}")
        described = machine.describe(place)
        described["PostgreSQL"] += " with assertions" * ("--enable-cassert" in place.ask("--configure"))
    print(text)
    kinds = {"stuck": Stuck, "leftovers": Leftover, "ended wrongly": Wrong}
    counts = [f"{name} {int(isinstance(wrong, kind))}" for name, kind in kinds.items()]
    lost = wrong is not None and not isinstance(wrong, tuple(kinds.values()))
    found = {"strikes": f"{len(strikes)}", "crashes": f"{crashes}", "moves": f"{experiment.moves}",
             "commits": f"{experiment.commits:,}", "wrong": f"{', '.join(counts)}, lost {int(lost)}"}
    line = "{strikes} strikes, {crashes} crashes, {moves} moves done, {commits} acknowledged commits, {wrong}".format(**found)
    print(line)
    if arguments.keep:
        keep(described, arguments, found, line, f"{text}\n\n    {line}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
