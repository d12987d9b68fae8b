"""Cuts a busy server's power, or kills processes of it, over and over: see powercut and README.md."""
import argparse
import collections
import os
import random
import shutil
import subprocess
import sys
import time

import psycopg2

import checks
import ledger
import machine
import sweeper
from churn import Churn
from cluster import TREE, Place, run, say, value
from disk import Disk
from record import OUTPUT, record
from server import Loss, Server, wait_for
from shim import Shim

CLIENTS = 6
UNLOGGED_ROWS = 30_000
UNLOGGED = f"INSERT INTO unlogged SELECT i, repeat('x', 100) FROM generate_series(1, {UNLOGGED_ROWS}) i"

POWER, POSTMASTER, ALL = "power cut", "kill -9 of the postmaster", "kill -9 of all"
# else kill -9 of one of these
CHILDREN = {"stock": ("checkpointer", "background writer"), "sweeper": ("pgscale sweeper 1", "pgscale sweeper writer 1")}
CONTROLS = ("fsync-off", "dropped-fsync", "dropped-wal-sync")

PROMPT = {"synchronous_commit": "on", "wal_writer_delay": "200ms", "wal_writer_flush_after": "1MB", "wal_buffers": "1MB"}
# WAL is flushed as late as can be, pages go to the disk at once: a page that goes before its WAL stands out.
LATE = {"synchronous_commit": "off", "wal_writer_delay": "10s", "wal_writer_flush_after": "1GB", "wal_buffers": "64MB"}


def settings(rng, kind, durable):
    """Different in each cycle: what decides who writes a page, and when it is synced."""
    chosen = {
        "wal_level": rng.choice(("minimal", "replica")),
        "checkpoint_flush_after": rng.choice(("0", "256kB")),
        "bgwriter_lru_maxpages": rng.choice(("0", "100")),
        **(PROMPT if durable else LATE),
    }
    if kind == "sweeper":
        low = rng.choice((1, 5, 12))
        chosen.update({
            **sweeper.SETTINGS,
            "pgscale.sweeper_workers": rng.randint(1, 3),
            "pgscale.sweeper_mode": rng.choice(("freelist", "freelist", "ahead")),
            "pgscale.sweeper_low_watermark": low,
            "pgscale.sweeper_high_watermark": 2 * low,
            "pgscale.sweeper_combine_limit": rng.choice((1, 16, 64)),
            "pgscale.sweeper_writeback_pages": rng.choice((0, 16)) if durable else 1,
        })
    return chosen


class Experiment:
    """One server on one disk through many lives."""

    def __init__(self, place, disk, kind, control, seed):
        self.disk = disk
        self.kind = kind
        self.control = control
        self.rng = random.Random(seed)
        self.commits = 0
        self.deaths = collections.Counter()
        self.swept = 0          # pages that the sweeper wrote
        shim = Shim(place, "disk") if control and control.startswith("dropped") else None
        self.server = Server(place, "server", disk.path / "data", shim)

    def set_up(self):
        self.server.start(**settings(self.rng, self.kind, True))
        connection = self.server.connect()
        ledger.create(connection)
        run(connection, "CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY, filler text)")
        run(connection, UNLOGGED)
        if self.kind == "sweeper":
            self.server.create_pgscale(connection)
        connection.close()
        self.server.shut()
        self.disk.sync()
        # only now: what was never complete is no loss
        if self.control == "fsync-off":
            self.server.configure(fsync="off")
        elif self.control == "dropped-fsync":
            self.server.shim.on("sync", "/base/")
        elif self.control == "dropped-wal-sync":
            self.server.shim.on("sync", "/pg_wal/")
        return "set up"

    def choose_death(self):
        """The controls' servers are sound unless the power is cut."""
        if self.control:
            return POWER
        return self.rng.choices((POWER, POSTMASTER, ALL, *CHILDREN[self.kind]), (5, 2, 1, 1, 1))[0]

    def cycle(self, number):
        """A life, a death, a recovery and all checks; returns what to print."""
        server, rng = self.server, self.rng
        born = server.mark()
        durable = self.control is not None or rng.random() < 0.7
        server.start(**settings(rng, self.kind, durable))
        admin = server.connect()
        if value(admin, "SELECT count(*) FROM unlogged") != UNLOGGED_ROWS:
            raise Loss("an unlogged table lost rows at a clean stop")
        ledger.truncate(admin)
        with ledger.Ledger(server, CLIENTS, number, durable) as load:
            if self.kind == "sweeper":
                sweeper.wait_at_work(admin)
            with Churn(server, number, None if durable else ("checkpoint", "bulk")) as churn:
                lived = rng.uniform(2, 6)
                time.sleep(lived)
                if self.kind == "sweeper":
                    self.swept += sweeper.swept(admin)
                admin.close()
                death = self.choose_death()
                died = server.mark()
                self.die(death)
        revived = server.mark()
        newest = None
        if death in CHILDREN[self.kind]:
            recovery = server.wait_ready(died)
        else:
            newest = checks.newest_page(server.folder)
            recovery = server.start()

        self.check(load, churn, newest)
        server.shut()
        checks.checksums(server)
        # what a server says of a disk without power is of no interest
        checks.log(server.said(born)[:died - born] if death == POWER else server.said(born))
        checks.log(server.said(revived))
        told = load.count()
        self.commits += told[ledger.ACKNOWLEDGED]
        self.deaths[death] += 1
        how = death if death not in CHILDREN[self.kind] else f"kill -9 of {death}"
        return f"{how} after {lived:.1f} s, {told[ledger.ACKNOWLEDGED]} commits acknowledged, {told[ledger.UNKNOWN]} " + \
            ("without answer" if durable else "not durable") + f", recovery {recovery:.1f} s"

    def die(self, death):
        server = self.server
        if death == POWER:
            self.disk.cut()
            server.kill_all()
            self.disk.umount()
            self.disk.mount()
            # empty, unless it was synced: then only an operator can say that no other server is at work here
            (server.folder / "postmaster.pid").unlink(missing_ok=True)
        elif death == POSTMASTER:
            server.kill_postmaster()
            server.wait_gone()
        elif death == ALL:
            server.kill_all()
        else:
            # the sweeper has its writers only while there is something to write
            wait_for(f"a {death}", lambda: server.child(death), 20)
            server.kill(server.child(death))

    def check(self, load, churn, newest):
        server = self.server
        connection = server.connect()
        if newest:
            checks.future(connection, newest)
        load.check(connection)
        churn.check(connection)
        if value(connection, "SELECT count(*) FROM unlogged") != 0:
            raise Loss("an unlogged table has rows after a crash")
        run(connection, UNLOGGED)
        connection.close()
        checks.amcheck(server)
        child = CHILDREN[self.kind][0]
        wait_for(f"new {child}", lambda: server.child(child), 20)

    def keep(self, folder):
        """What there is to look for the cause of a loss."""
        self.server.stop()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        shutil.copy(self.server.log, folder)
        if os.path.ismount(self.disk.path):
            self.disk.umount()
        subprocess.run(["cp", "--sparse=always", self.disk.image, folder], check=True)


def measure(experiment, cycles):
    """Returns what was lost, or None."""
    for number in range(cycles + 1):
        since = time.monotonic()
        try:
            line = experiment.cycle(number) if number else experiment.set_up()
        except (Loss, psycopg2.Error) as error:
            lost = str(error).splitlines()[0]
            print(f"{number:4d}  LOST: {lost}", flush=True)
            return lost
        print(f"{number:4d}  {line}, {time.monotonic() - since:.1f} s in all", flush=True)
    return None


def main():
    parser = argparse.ArgumentParser(prog="bench/trust/powercut")
    parser.add_argument("--cycles", type=int, default=50, help="50, with --control at most 5")
    parser.add_argument("--stock", action="store_true", help="without pgscale")
    parser.add_argument("--control", choices=CONTROLS, help="a server that must lose something: does the test see it?")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    kind = "stock" if arguments.stock else "sweeper"
    with Place() as place, Disk(place) as disk:
        experiment = Experiment(place, disk, kind, arguments.control, arguments.seed)
        since = time.monotonic()
        lost = measure(experiment, min(arguments.cycles, 5) if arguments.control else arguments.cycles)
        result = {
            **machine.describe(place), "kind": kind, "control": arguments.control, "seed": arguments.seed,
            "cycles": sum(experiment.deaths.values()), "deaths": experiment.deaths, "commits": experiment.commits,
            "swept pages": experiment.swept, "lost": lost,
            "dropped": experiment.server.shim.hits() if experiment.server.shim else 0,
            "seconds": round(time.monotonic() - since),
        }
        record(f"powercut {arguments.control or kind} {place.major}", result)
        if lost and not arguments.control:
            kept = OUTPUT / f"lost-{kind}-{place.major}"
            experiment.keep(kept)
            say(f"kept for a closer look: {kept.relative_to(TREE)}")
    print(f"{result['cycles']} cycles, {result['commits']} acknowledged commits, {result['swept pages']} pages swept, " +
          (f"lost: {lost}" if lost else "lost 0"))
    if arguments.control:
        print(f"{result['dropped']} syncs dropped: " * bool(result["dropped"]) +
              ("seen, as it must be" if lost else "NOT SEEN: this test is blind"))
        return 0 if lost else 1
    if kind == "sweeper" and not lost and not result["swept pages"]:
        print("the sweeper wrote nothing: nothing was tested")
        return 1
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
