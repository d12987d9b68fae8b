"""What else happens in a server: tables and databases come and go, vacuum, checkpoints, bulk changes.

What was acknowledged is remembered outside: after a crash each table has the rows it must have, each database is there or
gone.
"""
import itertools

import psycopg2

from cluster import run, value
from ledger import ROWS, TABLES
from loops import Loops, refused
from server import Loss

ABSENT = "absent"


class Expected:
    """name -> all states it may be in: two while a change is under way, one after the answer."""

    def __init__(self):
        self.possible = {}

    def change(self, connection, name, state, *statements, whole=True):
        """A refused change that is not whole may have been done or not. Returns the last statement's rows."""
        before = self.possible.get(name, {ABSENT})
        self.possible[name] = before | {state}
        try:
            for statement in statements:
                rows = run(connection, statement)
        except psycopg2.Error as error:
            if whole and refused(connection, error):
                self.possible[name] = before
            raise
        self.possible[name] = {state}
        return rows

    def check(self, name, state):
        if state not in self.possible.get(name, {ABSENT}):
            raise Loss(f"{name} is {state}, not {' or '.join(map(str, self.possible[name]))}")


class Churn(Loops):
    STEPS = ("tables", "databases", "vacuum", "checkpoint", "bulk")
    not_rewritten = ()      # tables

    def __init__(self, server, seed, steps=None):
        super().__init__(server)
        self.expected = Expected()
        self.numbers = itertools.count(1)
        for step in steps or self.STEPS:
            self.add(step, getattr(self, step), f"{seed} {step}")

    def pause(self, seconds):
        self.stopping.wait(seconds)

    def tables(self, connection, rng):
        """A table's life. Under wal_level=minimal the first rows are not logged, but synced at commit."""
        name = f"side_{next(self.numbers)}"
        rows = rng.randrange(100, 30_000)
        self.expected.change(connection, name, rows, f"""
            BEGIN; CREATE TABLE {name} (id int PRIMARY KEY, filler text);
            INSERT INTO {name} SELECT i, repeat('x', 100) FROM generate_series(1, {rows}) i; COMMIT""")
        self.pause(rng.random() / 2)
        if rng.random() < 0.5:
            self.expected.change(connection, name, 0, f"TRUNCATE {name}")
            self.expected.change(connection, name, rows, f"INSERT INTO {name} SELECT i FROM generate_series(1, {rows}) i")
        if rng.random() < 0.8:
            self.expected.change(connection, name, ABSENT, f"DROP TABLE {name}")

    def databases(self, connection, rng):
        name = f"side_db_{next(self.numbers)}"
        strategy = rng.choice(("wal_log", "file_copy"))
        self.expected.change(connection, name, "present", f"CREATE DATABASE {name} STRATEGY {strategy}")
        self.pause(rng.random())
        # it marks the database as gone before its checkpoint, which fails on a dying disk
        self.expected.change(connection, name, ABSENT, f"DROP DATABASE {name} WITH (FORCE)", whole=False)
        self.pause(rng.random() * 2)

    def vacuum(self, connection, rng):
        table = rng.choice(["tellers", "branches", "history", "ledger"] + [f"accounts_{rng.randrange(TABLES)}"] * 4)
        how = rng.choice(("", "", "FREEZE", "FULL", "ANALYZE"))
        run(connection, f"VACUUM {'' if how == 'FULL' and table in self.not_rewritten else how} {table}")
        self.pause(rng.random() / 4)

    def checkpoint(self, connection, rng):
        self.pause(rng.random() * 1.5)
        run(connection, "CHECKPOINT")

    def bulk(self, connection, rng):
        """Dirties many pages whose WAL nobody flushes for a while; half of it is taken back."""
        first = rng.randrange(TABLES * ROWS)
        run(connection, f"""
            BEGIN; SET LOCAL synchronous_commit = off;
            UPDATE accounts SET filler = '{rng.random()}' WHERE aid BETWEEN {first} AND {first + rng.randrange(20_000)};
            {rng.choice(('COMMIT', 'ROLLBACK'))}""")
        self.pause(rng.random())

    def check(self, connection):
        """Compares what there is with what was acknowledged, and removes it."""
        tables = {name for name, in run(connection, "SELECT relname FROM pg_class WHERE relname ~ '^side_[0-9]+$'")}
        # -2: its DROP had begun to remove files, and can only be repeated
        databases = {name: limit != -2 for name, limit in run(
            connection, "SELECT datname, datconnlimit FROM pg_database WHERE datname ~ '^side_db_'")}
        for name in self.expected.possible:
            if name.startswith("side_db_"):
                self.expected.check(name, "present" if databases.get(name) else ABSENT)
            else:
                self.expected.check(name, value(connection, f"SELECT count(*) FROM {name}") if name in tables else ABSENT)
        for name in tables:
            run(connection, f"DROP TABLE {name}")
        for name, usable in databases.items():
            if usable:
                other = self.server.connect(name)
                run(other, "SELECT count(*) FROM pg_class JOIN pg_attribute ON attrelid = pg_class.oid")
                other.close()
            run(connection, f"DROP DATABASE {name}")
