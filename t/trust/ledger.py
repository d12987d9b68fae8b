"""A bank whose books are kept twice: by the server, and by the clients, who remember what they were told.

Each transaction moves an amount into an account, its teller and its branch, notes it in the history, and enters (client,
number) into the ledger. So afterwards the four sums must be equal, and the ledger must hold each transaction that was
acknowledged and none that was refused. Of those whose connection broke before an answer either may be true.

The accounts lie in many small tables, and half of the clients' choices in one that changes: there are always files that
were written a moment ago and are left alone now, whose sync nobody else would make up for.
"""
import collections
import itertools
import time

import psycopg2

from cluster import run, value
from loops import Loops, refused
from server import Loss

BRANCHES = 20
TELLERS = 10 * BRANCHES
TABLES = 48
ROWS = 10_000       # in each of them
MOVE = 1.0          # seconds until another table is the favourite

SCHEMA = f"""
CREATE TABLE branches (bid int PRIMARY KEY, balance bigint NOT NULL, filler char(88) DEFAULT '');
CREATE TABLE tellers (tid int PRIMARY KEY, balance bigint NOT NULL, filler char(84) DEFAULT '');
CREATE TABLE accounts (aid int PRIMARY KEY, balance bigint NOT NULL, filler char(84) DEFAULT '') PARTITION BY RANGE (aid);
CREATE TABLE history (tid int, bid int, aid int, delta bigint, at timestamptz DEFAULT now(), filler char(22) DEFAULT '');
CREATE TABLE ledger (client int, number bigint, PRIMARY KEY (client, number));
INSERT INTO branches SELECT i, 0 FROM generate_series(0, {BRANCHES - 1}) i;
INSERT INTO tellers SELECT i, 0 FROM generate_series(0, {TELLERS - 1}) i;
DO $$ BEGIN
FOR i IN 0 .. {TABLES - 1} LOOP
    EXECUTE format('CREATE TABLE accounts_%s PARTITION OF accounts FOR VALUES FROM (%s) TO (%s)',
        i, i * {ROWS}, (i + 1) * {ROWS});
END LOOP; END $$;
INSERT INTO accounts SELECT i, 0 FROM generate_series(0, {TABLES * ROWS - 1}) i;
CREATE EXTENSION amcheck;
"""

UPDATES = """
{also}
UPDATE accounts_{table} SET balance = balance + {delta} WHERE aid = {aid};
UPDATE tellers SET balance = balance + {delta} WHERE tid = {tid};
UPDATE branches SET balance = balance + {delta} WHERE bid = {bid};
INSERT INTO history (tid, bid, aid, delta) VALUES ({tid}, {bid}, {aid}, {delta});
INSERT INTO ledger VALUES ({client}, {number});
"""
PLAIN = "BEGIN;" + UPDATES + "COMMIT"
# the subtransaction that is rolled back leaves what would spoil every sum
NESTED = "BEGIN; SAVEPOINT a; DELETE FROM accounts_{table} WHERE aid = {aid}; INSERT INTO history (delta) VALUES (1); " \
    "ROLLBACK TO a; SAVEPOINT b;" + UPDATES + "RELEASE b; COMMIT"
PREPARE = "BEGIN;" + UPDATES + "PREPARE TRANSACTION '{client}-{number}'"

UNKNOWN, REFUSED, PREPARED, ACKNOWLEDGED = "unknown", "refused", "prepared", "acknowledged"


def create(connection):
    run(connection, SCHEMA)


def truncate(connection):
    """Empties ledger and history; the history keeps its sum, in one row."""
    run(connection, """BEGIN;
        CREATE TEMP TABLE carried ON COMMIT DROP AS SELECT sum(delta) AS delta FROM history;
        TRUNCATE history, ledger;
        INSERT INTO history (delta) SELECT coalesce(delta, 0) FROM carried;
        COMMIT""")


def settle(connection, like="%"):
    """Commits what is prepared."""
    for gid, in run(connection, "SELECT gid FROM pg_prepared_xacts WHERE gid LIKE %s", like):
        run(connection, f"COMMIT PREPARED '{gid}'")


def entered(connection):
    """What the ledger has."""
    return set(run(connection, "SELECT client, number FROM ledger"))


def differences(connection):
    """What is wrong with the four sums and the number of accounts."""
    wrong = []
    sums = {table: int(value(connection, f"SELECT coalesce(sum({column}), 0) FROM {table}"))
            for table, column in (("accounts", "balance"), ("tellers", "balance"), ("branches", "balance"),
                                  ("history", "delta"))}
    if len(set(sums.values())) != 1:
        wrong.append("sums differ: " + ", ".join(f"{table} {amount}" for table, amount in sums.items()))
    rows = value(connection, "SELECT count(*) FROM accounts")
    if rows != TABLES * ROWS:
        wrong.append(f"{rows} accounts of {TABLES * ROWS}")
    return wrong


class Ledger(Loops):
    """The load: clients at work from the start on until stop()."""

    def __init__(self, server, clients, seed, durable=True, also=None):
        """Where the server does not promise durability (synchronous_commit=off), an acknowledgement proves nothing.

        also(random, aid, delta) returns what each transaction does besides.
        """
        super().__init__(server)
        self.also = also or (lambda *_: "")
        self.acknowledged = ACKNOWLEDGED if durable else UNKNOWN
        self.outcomes = {}      # (client, number) -> one of the four above
        self.last = dict.fromkeys(range(clients), 0.0)      # client -> when a commit was last acknowledged
        self.seed = seed
        self.since = time.monotonic()
        for client in range(clients):
            numbers = itertools.count(1)
            self.add(f"client {client}", lambda connection, rng, c=client, n=numbers: self._transact(connection, rng, c, n),
                     f"{seed} {client}", lambda connection, c=client: settle(connection, f"{c}-%"))

    def _transact(self, connection, rng, client, numbers):
        favourite = (self.seed + int((time.monotonic() - self.since) / MOVE)) % TABLES
        table = favourite if rng.random() < 0.5 else rng.randrange(TABLES)
        tid = rng.randrange(TELLERS)
        key = client, next(numbers)
        values = dict(table=table, aid=table * ROWS + rng.randrange(ROWS), tid=tid, bid=tid // 10,
                      delta=rng.randrange(-5000, 5000), client=client, number=key[1])
        values["also"] = self.also(rng, values["aid"], values["delta"])
        kind = rng.choices((PLAIN, NESTED, PREPARE), (90, 5, 5))[0]
        self.outcomes[key] = UNKNOWN
        try:
            run(connection, kind.format(**values))
            if kind is PREPARE:
                self.outcomes[key] = PREPARED       # which is always durable
                run(connection, f"COMMIT PREPARED '{client}-{key[1]}'")
            self.outcomes[key] = self.acknowledged
            self.last[client] = time.monotonic()
        except psycopg2.Error as error:
            # a prepared one that cannot be committed holds its locks: settle() on a new connection tries again
            if self.outcomes[key] is PREPARED:
                connection.close()
            elif refused(connection, error):
                self.outcomes[key] = REFUSED
            raise

    def count(self):
        return collections.Counter(self.outcomes.values())

    def check(self, connection):
        """Compares the server's books with the clients', after stop(); raises Loss."""
        settle(connection)
        found = entered(connection)
        told = {outcome: {key for key, its in self.outcomes.items() if its is outcome}
                for outcome in (UNKNOWN, REFUSED, PREPARED, ACKNOWLEDGED)}
        lost = (told[ACKNOWLEDGED] | told[PREPARED]) - found
        false = found - told[ACKNOWLEDGED] - told[PREPARED] - told[UNKNOWN]
        wrong = []
        if lost:
            wrong.append(f"{len(lost)} acknowledged commits are lost, such as {min(lost)}")
        if false:
            wrong.append(f"{len(false)} refused transactions are there, such as {min(false)}")
        wrong += differences(connection)
        if wrong:
            raise Loss("; ".join(wrong))
