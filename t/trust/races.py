"""Everything at once against a server that checks itself: see races and README.md."""
import argparse
import collections
import math
import os
import pathlib
import random
import sys
import time

import psycopg2

import checks
import ledger
from churn import Churn
from cluster import Place, run, say, value
from ledger import TABLES
from server import SWEEPER, Loss, Server, record, swept, wait_for, wait_sweeping

CLIENTS = 4
LIFE = 30.0         # seconds between two starts
LIMIT = LIFE / 2    # seconds that a DROP may take; what hangs is cancelled at the end of a life
SHUT = 60.0         # seconds within which a fast shutdown has come to an end
CORRUPTED = ("XX001", "XX002", "58030")     # what a session is told of broken data or a failing disk

# What a reload switches
SWITCHED = {
    "pgscale.sweeper": ("on", "on", "auto", "off"),
    "pgscale.sweeper_high_watermark": (0.002, 0.02, 0.1, 0.25),
}


class Races(Churn):
    """Churn, and what else moves, drops, grows, shrinks or holds what the sweeper may be about to write."""

    STEPS = (*Churn.STEPS, "space", "filled_database", "moved_database", "growth", "shrinking", "prewarm", "temporary",
             "pins", "index", "reload")

    def __init__(self, server, seed, spaces):
        self.seed = seed
        self.spaces = spaces
        self.slowest = collections.defaultdict(float)       # kind of statement -> seconds
        super().__init__(server, seed)

    def timed(self, kind, connection, statement):
        since = time.monotonic()
        try:
            run(connection, statement)
        finally:
            self.slowest[kind] = max(self.slowest[kind], time.monotonic() - since)

    def new(self, what):
        return f"{what}_{next(self.numbers)}"

    def new_space(self, connection):
        name = self.new("race_space")
        location = self.spaces / f"{self.seed}_{name}"
        location.mkdir()
        self.server.place.give(location)
        run(connection, f"CREATE TABLESPACE {name} LOCATION '{location}'")
        return name

    def drop_space(self, connection, name):
        self.timed("DROP TABLESPACE", connection, f"DROP TABLESPACE {name}")

    def space(self, connection, rng):
        """A table, and an index of the bank's accounts, move to another tablespace and back."""
        name, table = self.new_space(connection), self.new("race_moving")
        run(connection, f"CREATE TABLE {table} TABLESPACE {name} AS SELECT i, repeat('x', 99) FROM generate_series(1, 9999) i")
        index = f"accounts_{rng.randrange(TABLES)}_pkey"
        for place in ("pg_default", name, "pg_default"):
            run(connection, f"ALTER TABLE {table} SET TABLESPACE {place}")
            run(connection, f"ALTER INDEX {index} SET TABLESPACE {place}")
            run(connection, f"INSERT INTO {table} SELECT i FROM generate_series(1, 1000) i")
        run(connection, f"DROP TABLE {table}")
        self.drop_space(connection, name)

    def filled_database(self, connection, rng):
        """Its buffers are dirty and a session is in it when it goes."""
        name = self.new("race_db")
        run(connection, f"CREATE DATABASE {name} STRATEGY {rng.choice(('wal_log', 'file_copy'))}")
        other = self.server.connect(name)
        try:
            run(other, "CREATE TABLE filled AS SELECT i, repeat('x', 200) FROM generate_series(1, 20000) i")
            self.timed("DROP DATABASE", connection, f"DROP DATABASE {name} WITH (FORCE)")
        finally:
            other.close()

    def moved_database(self, connection, rng):
        database, name = self.new("race_db"), self.new_space(connection)
        run(connection, f"CREATE DATABASE {database}")
        run(connection, f"ALTER DATABASE {database} SET TABLESPACE {name}")
        other = self.server.connect(database)
        run(other, "CREATE TABLE filled AS SELECT i FROM generate_series(1, 20000) i")
        other.close()
        if rng.random() < 0.5:
            run(connection, f"ALTER DATABASE {database} SET TABLESPACE pg_default")
        self.timed("DROP DATABASE", connection, f"DROP DATABASE {database} WITH (FORCE)")
        self.drop_space(connection, name)

    def growth(self, connection, rng):
        """Extension by INSERT and by COPY, logged and unlogged; then gone in one of three ways."""
        table = self.new("race_growing")
        run(connection, f"CREATE {rng.choice(('', 'UNLOGGED'))} TABLE {table} (i int, filler text)")
        run(connection, f"INSERT INTO {table} SELECT i, repeat('x', 300) FROM generate_series(1, {rng.randrange(40_000)}) i")
        run(connection, f"COPY {table} (filler) FROM PROGRAM 'yes copied | head -n {rng.randrange(100_000)}'")
        ending = rng.choice((f"TRUNCATE {table}", f"VACUUM FULL {table}", f"ALTER TABLE {table} SET LOGGED"))
        self.timed(ending.split()[0], connection, ending)
        self.timed("DROP TABLE", connection, f"DROP TABLE {table}")

    def shrinking(self, connection, rng):
        """VACUUM cuts the file's end off while its pages are dirty."""
        table = self.new("race_shrinking")
        run(connection, f"CREATE TABLE {table} AS SELECT i, repeat('x', 300) FROM generate_series(1, 20000) i")
        for least in (15_000, 5_000, 0):
            run(connection, f"DELETE FROM {table} WHERE i > {least}")
            self.timed("VACUUM", connection, f"VACUUM {table}")
            run(connection, f"INSERT INTO {table} SELECT i FROM generate_series(1, 5000) i")
        self.timed("DROP TABLE", connection, f"DROP TABLE {table}")

    def prewarm(self, connection, rng):
        run(connection, "SELECT pg_prewarm(%s)", f"accounts_{rng.randrange(TABLES)}")
        self.pause(rng.random() / 2)

    def temporary(self, connection, rng):
        run(connection, f"""
            BEGIN; CREATE TEMP TABLE race_temporary ON COMMIT DROP AS
            SELECT i, repeat('x', 200) FROM generate_series(1, 5000) i;
            CREATE INDEX ON race_temporary (i); {rng.choice(('COMMIT', 'ROLLBACK'))}""")
        self.pause(rng.random() / 2)

    def pins(self, connection, rng):
        """A cursor keeps a page pinned; VACUUM FREEZE of the same table waits for it."""
        run(connection, f"BEGIN; DECLARE c CURSOR FOR SELECT * FROM accounts_{rng.randrange(TABLES)}; FETCH 10 FROM c")
        self.pause(rng.random() / 2)
        run(connection, "COMMIT")

    def index(self, connection, rng):
        table = f"accounts_{rng.randrange(TABLES)}"
        if rng.random() < 0.5:
            run(connection, f"REINDEX INDEX CONCURRENTLY {table}_pkey")
        else:
            run(connection, f"REINDEX TABLE {table}")
        self.pause(rng.random() / 2)

    def reload(self, connection, rng):
        self.server.reload(**{setting: rng.choice(SWITCHED[setting]) for setting in rng.sample(tuple(SWITCHED), 2)})
        self.pause(rng.random() / 2)


def static(rng):
    """What only a start can change."""
    return {
        **SWEEPER,
        "shared_preload_libraries": "pgscale,pg_prewarm",
        "pg_prewarm.autoprewarm_interval": "2s",
        "shared_buffers": rng.choice(("8MB", "16MB")),
        "wal_level": rng.choice(("minimal", "replica")),
        "max_wal_size": "1GB",
    }


class Experiment:
    """One server through lives of half a minute, each ended by a fast shutdown under load."""

    def __init__(self, place, seed):
        self.rng = random.Random(seed)
        self.spaces = place.folder / "spaces"
        self.spaces.mkdir()
        place.give(self.spaces)
        self.server = Server(place, "server")
        self.lives = self.swept = self.commits = 0
        self.slowest = collections.defaultdict(float)
        self.answers = collections.Counter()
        self.server.start(**static(self.rng))
        connection = self.server.connect()
        self.assertions = value(connection, "SHOW debug_assertions")
        ledger.create(connection)
        run(connection, "CREATE EXTENSION pg_prewarm")
        self.server.create_pgscale(connection)
        connection.close()
        self.server.shut()

    def life(self, seconds):
        server = self.server
        born = server.mark()
        self.lives += 1
        server.start(**static(self.rng))
        admin = server.connect()
        ledger.truncate(admin)
        with ledger.Ledger(server, CLIENTS, self.lives) as load:
            wait_sweeping(admin)
            with Races(server, self.lives, self.spaces) as races:
                time.sleep(seconds)
                self.swept += swept(admin)
                admin.close()
                took = server.shut(SHUT)
        self.slowest["fast shutdown under load"] = max(self.slowest["fast shutdown under load"], took)
        for kind, slowest in races.slowest.items():
            self.slowest[kind] = max(self.slowest[kind], slowest)
        self.commits += load.count()[ledger.ACKNOWLEDGED]
        for (_, answer), times in (load.errors + races.errors).items():
            self.answers[answer] += times

        server.start()
        connection = server.connect()
        load.check(connection)
        races.check(connection)
        tidy(connection)
        self.check_deleted(connection)
        connection.close()
        checks.amcheck(server)
        server.shut()
        checks.checksums(server)
        said = server.said(born)
        checks.log(said)
        if "was terminated by" in said:
            raise Loss("a process crashed")
        for answer in self.answers:
            if answer.startswith(CORRUPTED):
                raise Loss(f"a session was told: {answer}")
        for kind, slowest in self.slowest.items():
            if kind.startswith("DROP") and slowest > LIMIT:
                raise Loss(f"a {kind} took {slowest:.1f} s")

    def check_deleted(self, connection):
        """After a checkpoint no worker of pgscale holds a file that is gone: its disk space would not come back."""
        def held():
            return [link for pid, title in self.server.processes().items() if title.startswith("postgres: pgscale")
                    for link in links(pid) if link.endswith(" (deleted)") and "/base/" in link]
        run(connection, "CHECKPOINT")
        wait_for("end of deleted files in pgscale's workers", lambda: not held(), 20)


def links(pid):
    """Where its file descriptors lead."""
    found = []
    for descriptor in pathlib.Path(f"/proc/{pid}/fd").iterdir():
        try:
            found.append(os.readlink(descriptor))
        except FileNotFoundError:
            pass            # just closed
    return found


def tidy(connection):
    """Removes what the shutdown left half done."""
    def names(query):
        return [name for name, in run(connection, query)]
    for name in names("SELECT datname FROM pg_database WHERE datname LIKE 'race_%'"):
        run(connection, f"DROP DATABASE {name} WITH (FORCE)")
    for name in names("SELECT relname FROM pg_class WHERE relname LIKE 'race_%' AND relkind = 'r'"):
        run(connection, f"DROP TABLE {name}")
    for name in names("SELECT indexrelid::regclass FROM pg_index WHERE NOT indisvalid"):
        run(connection, f"DROP INDEX {name}")
    for name in names("SELECT oid::regclass FROM pg_class WHERE reltablespace <> 0 AND relkind = 'i' AND oid > 16384"):
        run(connection, f"ALTER INDEX {name} SET TABLESPACE pg_default")
    for name in names("SELECT spcname FROM pg_tablespace WHERE spcname LIKE 'race_%'"):
        run(connection, f"DROP TABLESPACE {name}")


def main():
    parser = argparse.ArgumentParser(prog="t/trust/races")
    parser.add_argument("--seconds", type=float, default=120, help="of load in all; 120")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    problem = None
    with Place() as place:
        its = Experiment(place, arguments.seed)
        if its.assertions == "off":
            say("this server was built without assertions: one built with --enable-cassert sees more")
        for _ in range(math.ceil(arguments.seconds / LIFE)):
            since = time.monotonic()
            try:
                its.life(min(LIFE, arguments.seconds))
                print(f"life {its.lives}: {time.monotonic() - since:.0f} s, {its.commits} commits and {its.swept} pages swept"
                      " so far", flush=True)
            except (Loss, psycopg2.Error) as error:
                problem = str(error).splitlines()[0]
                print(f"life {its.lives}: WRONG: {problem}", flush=True)
                break
        slowest = {what: round(took, 2) for what, took in sorted(its.slowest.items())}
        record(f"races {place.major}", place, {
            "assertions": its.assertions, "seed": arguments.seed, "lives": its.lives, "commits": its.commits,
            "swept pages": its.swept, "slowest": slowest, "answers": its.answers}, problem)
    print("slowest: " + ", ".join(f"{what} {took} s" for what, took in slowest.items()))
    for answer, times in its.answers.most_common(20):
        print(f"{times:6d}  {answer}")
    if not problem and not its.swept:
        problem = "the sweeper wrote nothing: nothing was tested"
    print(f"{its.lives} lives, {its.commits} commits, {its.swept} pages swept, " +
          (f"wrong: {problem}" if problem else "nothing wrong"))
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
