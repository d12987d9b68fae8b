"""Cuts a busy server's power, or kills processes of it, over and over: see powercut and README.md."""
import argparse
import collections
import contextlib
import os
import random
import subprocess
import sys
import time

import psycopg2

import checks
import features
import ledger
import moves
from cluster import TREE, Place, run, say, value
from disk import Disk
from features import Features
from moves import Moves
from server import OUTPUT, SWEEPER, Loss, Server, preload, record, swept, wait_for, wait_sweeping

CLIENTS = 6
AGAIN = 0.15        # of the power cuts are followed by another one during or right after recovery
UNLOGGED_ROWS = 30_000
UNLOGGED = f"INSERT INTO unlogged SELECT i, repeat('x', 100) FROM generate_series(1, {UNLOGGED_ROWS}) i"

POWER, IN_RECOVERY = "power cut", "power cut in or after recovery"
POSTMASTER, ALL = "kill -9 of the postmaster", "kill -9 of all"
# else kill -9 of one of these; with --moves also of a process of the last kind, at a move
CHILDREN = ("pgscale sweeper", "pgscale sweeper writer", "pgscale relocation", "pgscale writeback")
MOVER = "pgscale relocation worker"
MOVING = tuple(f"accounts_{n}" for n in range(0, ledger.TABLES, 2))       # what relocation moves
FORGOTTEN = "forgotten-marks"
CONTROLS = ("fsync-off", "dropped-fsync", "dropped-wal-sync", FORGOTTEN)
SEEN = 20           # seconds within which a move is in a certain phase

PROMPT = {"synchronous_commit": "on", "wal_writer_delay": "200ms", "wal_writer_flush_after": "1MB", "wal_buffers": "1MB"}
# WAL is flushed as late as can be, pages go to the disk at once: a page that goes before its WAL stands out.
LATE = {"synchronous_commit": "off", "wal_writer_delay": "10s", "wal_writer_flush_after": "1GB", "wal_buffers": "64MB"}


def settings(rng, durable):
    """Different in each cycle: what decides who writes a page, and when it is synced."""
    return {
        "wal_level": rng.choice(("minimal", "replica")),
        "checkpoint_flush_after": rng.choice(("0", "256kB")),
        "bgwriter_lru_maxpages": rng.choice(("0", "100")),
        **(PROMPT if durable else LATE),
        **SWEEPER,
        **features.SETTINGS,
        "pgscale.writeback": rng.choice(("on", "off")),
        "pgscale.writeback_cap": rng.choice(("64kB", "1MB", "-1")),
        "pgscale.sweeper_high_watermark": rng.choice((0.02, 0.1, 0.25)),
    }


class Experiment:
    """One server on one disk through many lives."""

    def __init__(self, place, disks, arguments):
        """disks: the data folder's first; with --moves there is another one."""
        self.place = place
        self.disks = disks
        self.arguments = arguments
        self.rng = random.Random(arguments.seed)
        self.deck = []          # phases of moves in which it is to die
        self.struck = None      # (job, phase) at the latest death
        self.death = None       # the latest one,
        self.died = 0           # its place in the log,
        self.revived = 0        # that from which on the server has power again,
        self.logged = []        # and those between which it had
        self.lines = {}         # of postgresql.auto.conf
        self.strays = set()     # files without a relation
        self.cycles = self.commits = self.swept = 0
        self.cuts = collections.Counter()       # (death, phase, what had become of that move) -> times
        self.deaths = collections.Counter()
        self.features = collections.Counter()
        self.shim = place.folder / "shim.orders"
        dropped = arguments.control and arguments.control.startswith("dropped")
        self.server = Server(place, "server", disks[0].path / "data",
                             preload(place, "shim", PGSCALE_SHIM=self.shim) if dropped else ())

    def settings(self, durable):
        return {**settings(self.rng, durable), **({"max_wal_size": "512MB"} if self.arguments.moves else {})}

    def set_up(self):
        self.server.start(**self.settings(True))
        connection = self.server.connect()
        ledger.create(connection)
        run(connection, "CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY, filler text)")
        run(connection, UNLOGGED)
        self.server.create_pgscale(connection)
        if self.arguments.moves:
            moves.create(connection, self.place, (self.disks[0].path, *(disk.path for disk in self.disks)))
        else:
            features.create_spaces(connection, self.place, [self.disks[0].path] * 2)
            features.move_in(connection, MOVING)
        connection.close()
        self.server.shut()
        for disk in self.disks:
            disk.sync()
        # only now: what was never complete is no loss
        if self.arguments.control == "fsync-off":
            self.server.configure(fsync="off")
        elif self.arguments.control == "dropped-fsync":
            # the second one is in the paths of tablespaces
            self.shim.write_text("/PG_" if self.arguments.moves else "/base/")
        elif self.arguments.control == "dropped-wal-sync":
            self.shim.write_text("/pg_wal/")
        if self.shim.exists():
            self.place.give(self.shim)
        return "set up"

    def choose_death(self):
        """The controls' servers are sound unless the power is cut."""
        if self.arguments.control or self.arguments.only_power:
            return POWER
        ways = (POWER, POSTMASTER, ALL, *self.children())
        return self.rng.choices(ways, (10, 4, 2, *[4 / (len(ways) - 3)] * (len(ways) - 3)))[0]

    def children(self):
        return CHILDREN + ((MOVER,) * 3 if self.arguments.moves else ())

    def cycle(self, number):
        """A life or more, each with a death and a recovery, and then all checks; returns what to print."""
        server, rng, moving = self.server, self.rng, self.arguments.moves
        durable = self.arguments.control is not None or rng.random() < 0.7
        server.start(**self.settings(durable))
        admin = server.connect()
        if value(admin, "SELECT count(*) FROM unlogged") != UNLOGGED_ROWS:
            raise Loss("an unlogged table lost rows at a clean stop")
        ledger.truncate(admin)
        ways = []
        with ledger.Ledger(server, CLIENTS, number, durable, moves.change if moving else None) as load:
            wait_sweeping(admin)
            admin.close()
            with self.churn(number, durable) as churn:
                ways.append(self.live())
                for _ in range(1, self.arguments.lives):
                    self.revive(durable, 1 / self.arguments.lives)
                    ways.append(self.live())
        if self.death == POWER and rng.random() < AGAIN:
            self.recover_and_die(rng.uniform(0, 0.7))
            ways.append(IN_RECOVERY)
        recovery = self.revive(durable)
        thorough = number % self.arguments.thorough == 0
        self.check(load, churn, durable, thorough)
        server.shut()
        if thorough:
            checks.checksums(server)
        self.check_log()
        told = load.count()
        self.commits += told[ledger.ACKNOWLEDGED]
        self.cycles += 1
        return f"{', '.join(ways)}, {told[ledger.ACKNOWLEDGED]} commits acknowledged, {told[ledger.UNKNOWN]} " + \
            ("without answer" if durable else "not durable") + f", recovery {recovery:.1f} s"

    def live(self):
        """Some seconds under load, and a death; returns what to print."""
        server = self.server
        since = time.monotonic()
        time.sleep(self.rng.uniform(self.arguments.life / 3, self.arguments.life))
        self.death = self.choose_death()
        with contextlib.closing(server.connect()) as admin:
            self.swept += swept(admin)
            if self.arguments.moves:
                self.deck = self.deck or self.rng.sample(moves.PHASES, len(moves.PHASES))
                self.struck = moves.await_phase(admin, self.rng, self.deck.pop(), SEEN)
        lived = time.monotonic() - since
        self.died = server.mark()
        self.die(self.death)
        self.deaths[self.death] += 1
        # what a server says of a disk without power is of no interest
        self.logged.append((self.revived, self.died if self.death == POWER else server.mark()))
        return (self.death if self.death not in self.children() else f"kill -9 of {self.death}") + f" after {lived:.1f} s" + \
            (f" {self.struck[1]}" if self.struck else "")

    def revive(self, durable, share=1.0):
        """Recovery, and what is to be seen right after it alone, of that share of the files; returns how long it took."""
        server = self.server
        self.revived = server.mark()
        if self.death in self.children():
            took = server.wait_ready(self.died)
            self.note_struck()
            return took
        newest = checks.newest_pages(server.folder, lambda: self.rng.random() < share)
        server.held = True
        took = server.start(**self.settings(durable))
        connection = server.connect()
        checks.future(connection, newest)
        connection.close()
        self.note_struck()
        server.held = False
        return took

    def note_struck(self):
        """Had the move in whose phase it died been made by then? If it is done, another one may have moved the relation since."""
        if not self.struck:
            return
        job, phase = self.struck
        connection = self.server.connect()
        rows = run(connection, """
            SELECT state = 'done' OR (SELECT coalesce(nullif(reltablespace, 0), dattablespace)
                                        FROM pg_class, pg_database WHERE pg_class.oid = relation AND datname = current_database()) = target
              FROM pgscale_internal.relocation_job WHERE job = %s""", job)
        connection.close()
        switched = bool(rows and rows[0][0])
        if phase == moves.DROPPING and not switched:
            raise Loss(f"relocation job {job} was removing the old files, and has not moved its relation")
        self.cuts[self.death, phase, "switched" if switched else "not switched"] += 1
        self.struck = None

    def check_log(self):
        for since, until in [*self.logged, (self.revived, self.server.mark())]:
            checks.log(self.server.said(since, until))
        self.logged.clear()
        self.revived = self.server.mark()

    def churn(self, number, durable):
        if self.arguments.moves:
            return Moves(self.server, number, self.strays)
        steps = None if durable else ("checkpoint", "bulk", "relocation", "changes")
        return Features(self.server, number, MOVING, steps, self.lines)

    def recover_and_die(self, seconds):
        """The power fails again on the way, or soon after, when jobs that were interrupted go on."""
        self.server.launch()
        time.sleep(seconds)
        self.die(POWER)
        self.deaths[IN_RECOVERY] += 1

    def die(self, death):
        server = self.server
        if death == POWER:
            there = moves.files(server.folder) if self.arguments.moves else {}
            # that of the WAL first: while it still worked, a job could say that its move has failed, as the other disk has
            for disk in self.disks:
                disk.cut()
            server.kill_all()
            for disk in self.disks:
                disk.umount()
                disk.mount()
            # dropped files whose end was not synced
            self.strays.update(file for file in moves.files(server.folder) if self.arguments.moves and not there.get(file))
            # empty, unless it was synced: then only an operator can say that no other server is at work here
            (server.folder / "postmaster.pid").unlink(missing_ok=True)
        elif death == POSTMASTER:
            server.kill_postmaster()
            server.wait_gone()
        elif death == ALL:
            server.kill_all()
        else:
            # the sweeper has its writers only while there is something to write
            # what is switched off has no process, and what is done none at work
            title = "pgscale sampler" if death in ("pgscale writeback", MOVER) and not server.child(death) else death
            wait_for(f"a {title}", lambda: server.child(title), 20)
            server.kill(server.child(title))

    def check(self, load, churn, durable, thorough):
        server = self.server
        connection = server.connect()
        load.check(connection)
        churn.check(connection, durable)
        self.features.update(churn.counts)
        self.lines = features.lines(server.folder)
        if value(connection, "SELECT count(*) FROM unlogged") != 0:
            raise Loss("an unlogged table has rows after a crash")
        run(connection, UNLOGGED)
        connection.close()
        if thorough:
            checks.amcheck(server)
        child = CHILDREN[0]
        wait_for(f"new {child}", lambda: server.child(child), 60)

    def keep(self, folder):
        """The disks, to look for the cause of a loss."""
        self.server.stop()
        folder.mkdir(parents=True, exist_ok=True)
        for disk in self.disks:
            if os.path.ismount(disk.path):
                disk.umount()
            subprocess.run(["cp", "--sparse=always", disk.image, folder], check=True)
        say(f"kept for a closer look: {folder.relative_to(TREE)}")


def measure(experiment, arguments):
    """Returns what was lost, or None."""
    until = time.monotonic() + 60 * arguments.minutes
    for number in range(arguments.cycles + 1):
        if time.monotonic() > until:
            break
        since = time.monotonic()
        try:
            line = experiment.cycle(number) if number else experiment.set_up()
        except (Loss, psycopg2.Error) as error:
            if not number:
                raise       # a control that never began has seen nothing
            lost = str(error).splitlines()[0]
            print(f"{number:4d}  LOST: {lost}", flush=True)
            return lost
        print(f"{number:4d}  {line}, {time.monotonic() - since:.1f} s in all", flush=True)
    return None


def main():
    parser = argparse.ArgumentParser(prog="t/trust/powercut")
    parser.add_argument("--cycles", type=int, default=50, help="at most; 50, with most of the controls at most 5")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no cycle after so long")
    parser.add_argument("--only-power", action="store_true", help="no other death than a power cut")
    parser.add_argument("--thorough", type=int, default=1, metavar="N", help="pg_amcheck and pg_checksums in every Nth cycle only")
    parser.add_argument("--life", type=float, metavar="SECONDS",
                        help=f"of load in a cycle, at most; 6, with --control {FORGOTTEN} 15; at least a third")
    parser.add_argument("--lives", type=int, default=1, metavar="N", help="deaths before the checks; 1")
    parser.add_argument("--moves", action="store_true", help="tables and indexes move while they are in use, between two disks,"
                        " and it dies at each phase of a move")
    parser.add_argument("--control", choices=CONTROLS, help="a server that must lose something: does the test see it?")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    forgets = arguments.control == FORGOTTEN
    arguments.moves |= forgets
    # only what is switched while there is load can lack something
    arguments.life = arguments.life or (15 if forgets else 6)
    if arguments.control and not forgets:
        arguments.cycles = min(arguments.cycles, 5)
    since = time.monotonic()
    name = f"powercut{' moves' * arguments.moves} {arguments.control or ''}".strip()
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(Place(moves.forget if forgets else None))
        disks = [stack.enter_context(Disk(place, disk)) for disk in ("disk", "disk_2")[:2 if arguments.moves else 1]]
        its = Experiment(place, disks, arguments)
        lost = measure(its, arguments)
        record(f"{name} {place.major}", place, {
            "seed": arguments.seed, "cycles": its.cycles, "deaths": its.deaths, "commits": its.commits, "swept pages": its.swept,
            "features": its.features, "cuts": {", ".join(cut): times for cut, times in its.cuts.items()},
            "seconds": round(time.monotonic() - since)}, not arguments.control and lost)
        if lost and not arguments.control:
            its.keep(OUTPUT / f"lost-{place.major}")
    for cut, times in sorted(its.cuts.items()):
        print(f"{', '.join(cut)}: {times}")
    print(", ".join(f"{name} {count}" for name, count in sorted(its.features.items())))
    print(", ".join(f"{death} {count}" for death, count in its.deaths.items()) + f", {time.monotonic() - since:.0f} s")
    print(f"{its.cycles} cycles, {its.commits} acknowledged commits, {its.swept} pages swept, " +
          (f"lost: {lost}" if lost else "lost 0"))
    if arguments.control:
        print("seen, as it must be" if lost else "NOT SEEN: this test is blind")
        return 0 if lost else 1
    if not lost and not (its.swept and its.features["jobs done"]):
        print("the sweeper wrote nothing, or nothing was moved: nothing was tested")
        return 1
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
