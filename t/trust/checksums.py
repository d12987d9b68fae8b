"""Data checksums that are switched while the server is at work: see checksums and README.md."""
import argparse
import collections
import random
import shutil
import sys
import time

import psycopg2

import checks
import features
import ledger
import machine
import sweeper
from cluster import TREE, Place, run, say, value
from features import Features
from ledger import ROWS, TABLES
from record import OUTPUT, record
from server import Loss, Server, wait_for

CLIENTS = 4
LOAD = 4.0          # seconds of load before and after each switch
LIMIT = 300         # seconds that a switch may take
MOVING = tuple(f"accounts_{n}" for n in range(0, TABLES, 2))
SETTINGS = {
    **sweeper.SETTINGS,
    "pgscale.sweeper_policy": "adaptive",
    **features.SETTINGS,
    "pgscale.writeback": "on",
    "pgscale.writeback_cap": "1MB",
    "pgscale.writeback_adaptive": "off",
    "pgscale.archive_database": "postgres",
    "pgscale.sampler_debug_period": "1s",
}
ONLINE = {"on": "SELECT pg_enable_data_checksums(0, 10000)", "off": "SELECT pg_disable_data_checksums()"}
STOPPED = {"on": "--enable", "off": "--disable"}


class Load(Features):
    """What comes and goes beside the ledger; and reading, which prunes."""

    STEPS = ("tables", "checkpoint", "bulk", "relocation", "changes", "reading")

    def reading(self, connection, rng):
        """Of one snapshot, the table and its index have the same rows; the index alone is believed of pages that are all-visible."""
        table = f"accounts_{rng.randrange(TABLES)}"
        run(connection, "BEGIN ISOLATION LEVEL REPEATABLE READ")
        found = []
        for by_index in ("off", "on"):
            run(connection, f"SET LOCAL enable_bitmapscan = off; SET LOCAL enable_indexscan = {by_index};"
                            f"SET LOCAL enable_seqscan = {'off' if by_index == 'on' else 'on'}")
            found.append(value(connection, f"SELECT count(aid) FROM {table} WHERE aid >= 0"))
        run(connection, "COMMIT")
        if set(found) != {ROWS}:
            raise Loss(f"{table} has {found[0]} rows, and {found[1]} by its index alone")
        self.counts["tables read"] += 1
        self.pause(rng.random() / 20)


class Experiment:
    def __init__(self, place, stock, seed):
        self.stock = stock
        self.rng = random.Random(seed)
        self.counts = collections.Counter()
        self.commits = self.swept = self.switches = 0
        self.lines, self.strays = {}, set()
        self.took = []
        self.server = Server(place, "server")
        self.server.start(**({} if stock else SETTINGS))
        connection = self.server.connect()
        ledger.create(connection)
        run(connection, "CREATE EXTENSION pg_visibility")
        self.online = value(connection, "SELECT to_regproc('pg_enable_data_checksums') IS NOT NULL")
        if not stock:
            self.server.create_pgscale(connection)
            features.create_spaces(connection, place, self.server.outside)
            features.move_in(connection, MOVING)
        connection.close()

    def switch(self, state):
        """Where checksums cannot be switched online, they are switched while the server is stopped."""
        server = self.server
        if not self.online:
            server.shut()
            server.place.run(["pg_checksums", STOPPED[state], "-D", server.folder])
            server.start(**({} if self.stock else SETTINGS))
        self.live(state)
        server.shut()
        if state == "on":
            checks.checksums(server)
        server.start(**({} if self.stock else SETTINGS))
        self.switches += 1

    def live(self, state):
        """Load, the switch, load; then all checks."""
        server = self.server
        admin = server.connect()
        ledger.truncate(admin)
        with ledger.Ledger(server, CLIENTS, self.switches + 1) as load:
            with self.churn() as churn:
                time.sleep(LOAD)
                if self.online:
                    since = time.monotonic()
                    run(admin, ONLINE[state])
                    wait_for(f"checksums {state}", lambda: value(admin, "SHOW data_checksums") == state, LIMIT)
                    self.took.append(round(time.monotonic() - since, 1))
                time.sleep(LOAD)
        if not self.stock:
            self.swept += sweeper.swept(admin)
            broken = run(admin, "SELECT feature, reason FROM pgscale.health WHERE state = 'broken' AND feature <> 'numa'")
            if broken:
                raise Loss(f"broken: {broken}")
        load.check(admin)
        if not self.stock:
            churn.check(admin, crashed=False)
            self.lines = features.lines(server.folder)
            self.counts.update(churn.counts)
        self.counts["pages all-visible"] = value(admin, """
            SELECT sum((SELECT all_visible FROM pg_visibility_map_summary(oid))) FROM pg_class
             WHERE relname ~ '^accounts_[0-9]+$' AND relkind = 'r'""")
        untrue = run(admin, "SELECT oid::regclass::text, pg_check_visible(oid) FROM pg_class WHERE relkind = 'r' LIMIT 3")
        if untrue:
            raise Loss(f"pages are called all-visible and are not: {untrue}")
        admin.close()
        checks.amcheck(server)
        self.commits += load.count()[ledger.ACKNOWLEDGED]

    def churn(self):
        if self.stock:
            return Load(self.server, self.switches, MOVING, ("tables", "checkpoint", "bulk", "reading"))
        return Load(self.server, self.switches, MOVING, None, self.lines, self.strays)


def main():
    parser = argparse.ArgumentParser(prog="t/trust/checksums")
    parser.add_argument("--switches", type=int, default=6, help="off and on in turn; 6")
    parser.add_argument("--stock", action="store_true", help="without pgscale")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    kind = "stock" if arguments.stock else "pgscale"
    with Place() as place:
        experiment = Experiment(place, arguments.stock, arguments.seed)
        if not experiment.online:
            print(f"{place.version} cannot switch checksums online: it is stopped for that", flush=True)
        problem = None
        for number in range(arguments.switches):
            state = ("off", "on")[number % 2]
            try:
                experiment.switch(state)
                print(f"{number + 1:4d}  {state}, {experiment.commits} commits so far", flush=True)
            except (Loss, psycopg2.Error, RuntimeError) as error:
                problem = str(error).splitlines()[0]
                print(f"{number + 1:4d}  {state}: WRONG: {problem}", flush=True)
                break
        try:
            checks.log(experiment.server.said())
        except Loss as loss:
            problem = problem or str(loss)
        record(f"checksums {kind} {place.major}", {
            **machine.describe(place), "kind": kind, "seed": arguments.seed, "switches": experiment.switches,
            "online": experiment.online, "commits": experiment.commits, "swept pages": experiment.swept, "took s": experiment.took,
            "counts": {name: int(count) for name, count in experiment.counts.items()}, "problem": problem})
        if problem:
            kept = OUTPUT / f"checksums-{kind}-{place.major}.log"
            shutil.copy(experiment.server.log, kept)
            say(f"kept for a closer look: {kept.relative_to(TREE)}")
    print(", ".join(f"{name} {count}" for name, count in sorted(experiment.counts.items())))
    print(f"{experiment.switches} switches, {experiment.commits} commits, " + (f"wrong: {problem}" if problem else "nothing wrong"))
    return 1 if problem else 0


if __name__ == "__main__":
    sys.exit(main())
