"""Cuts a busy server's power, or kills processes of it, over and over: see powercut and README.md."""
import argparse
import collections
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import threading
import time

import psycopg2

import checks
import features
import ledger
import machine
import moves
import sweeper
from churn import Churn
from cluster import TREE, Place, run, say, value
from disk import Disk
from features import Features
from moves import Moves
from record import OUTPUT, record
from server import Loss, Server, wait_for
from shim import Shim

CLIENTS = 6
AGAIN = 0.15        # of the power cuts are followed by another one during or right after recovery
UNLOGGED_ROWS = 30_000
UNLOGGED = f"INSERT INTO unlogged SELECT i, repeat('x', 100) FROM generate_series(1, {UNLOGGED_ROWS}) i"

POWER, IN_RECOVERY = "power cut", "power cut in or after recovery"
POSTMASTER, ALL = "kill -9 of the postmaster", "kill -9 of all"
# else kill -9 of one of these
CHILDREN = {"stock": ("checkpointer", "background writer"),
            "sweeper": ("pgscale sweeper 1", "pgscale sweeper writer 1", "pgscale relocation", "pgscale writeback")}
# with --moves also of a process of this kind, at a move
MOVER = "pgscale relocation worker"
MOVING = tuple(f"accounts_{n}" for n in range(0, ledger.TABLES, 2))       # what relocation moves
FORGOTTEN = "forgotten-marks"
CONTROLS = ("fsync-off", "dropped-fsync", "dropped-wal-sync", "spoiled", FORGOTTEN)
SEEN = 20           # seconds within which a move is in a certain phase

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
        chosen.update({
            **sweeper.SETTINGS,
            **features.SETTINGS,
            "pgscale.writeback": rng.choice(("on", "off")),
            "pgscale.writeback_cap": rng.choice(("64kB", "1MB", "-1")),
            "pgscale.writeback_adaptive": "off",
            "pgscale.sweeper_workers": rng.randint(1, 3),
            "pgscale.sweeper_mode": rng.choice(("freelist", "window")),
            "pgscale.sweeper_high_watermark": rng.choice((0.02, 0.1, 0.25)),
            "pgscale.sweeper_policy": rng.choice(sweeper.POLICIES),
        })
    return chosen


class Experiment:
    """One server on one disk through many lives."""

    def __init__(self, place, disks, arguments):
        """disks: the data folder's first; with --moves there is another one."""
        self.place = place
        self.disk = disks[0]
        self.disks = disks
        self.moves = arguments.moves
        self.deck = []          # phases of moves in which it is to die
        self.cuts = collections.Counter()       # (death, phase, what had become of that move) -> times
        self.struck = None      # (job, phase) at the latest death
        self.kind = "stock" if arguments.stock else "sweeper"
        self.control = control = arguments.control
        self.only_power = arguments.only_power
        self.thorough = arguments.thorough
        self.lifetime = arguments.life
        self.rng = random.Random(arguments.seed)
        self.commits = 0
        self.features = collections.Counter()
        self.lives = arguments.lives
        self.death = None       # the latest one,
        self.died = 0           # its place in the log,
        self.revived = 0        # that from which on the server has power again,
        self.logged = []        # and those between which it had
        self.lines = {}         # of postgresql.auto.conf
        self.strays = set()     # files without a relation
        self.cycles = 0
        self.deaths = collections.Counter()
        self.swept = 0          # pages that the sweeper wrote
        self.policies = collections.Counter()   # of these, by the policy at work
        shim = Shim(place, "disk") if control and control.startswith("dropped") else None
        self.server = Server(place, "server", self.disk.path / "data", shim)

    def set_up(self):
        self.server.start(**settings(self.rng, self.kind, True))
        connection = self.server.connect()
        ledger.create(connection)
        run(connection, "CREATE UNLOGGED TABLE unlogged (id int PRIMARY KEY, filler text)")
        run(connection, UNLOGGED)
        if self.kind == "sweeper":
            self.server.create_pgscale(connection)
            if self.moves:
                moves.create(connection, self.place, (self.disk.path, *(disk.path for disk in self.disks)))
            else:
                features.create_spaces(connection, self.place, self.disk.path)
                features.move_in(connection, MOVING)
        connection.close()
        self.server.shut()
        for disk in self.disks:
            disk.sync()
        # only now: what was never complete is no loss
        if self.control == "fsync-off":
            self.server.configure(fsync="off")
        elif self.control == "dropped-fsync":
            # the second one is in the paths of tablespaces
            self.server.shim.on("sync", "/PG_" if self.moves else "/base/")
        elif self.control == "dropped-wal-sync":
            self.server.shim.on("sync", "/pg_wal/")
        return "set up"

    def choose_death(self):
        """The controls' servers are sound unless the power is cut."""
        if self.control or self.only_power:
            return POWER
        ways = (POWER, POSTMASTER, ALL, *self.children())
        return self.rng.choices(ways, (10, 4, 2, *[4 / (len(ways) - 3)] * (len(ways) - 3)))[0]

    def children(self):
        return CHILDREN[self.kind] + ((MOVER,) if self.moves else ())

    def cycle(self, number):
        """A life or more, each with a death and a recovery, and then all checks; returns what to print."""
        server, rng = self.server, self.rng
        durable = self.control is not None or rng.random() < 0.7
        server.start(**self.settings(durable))
        admin = server.connect()
        if value(admin, "SELECT count(*) FROM unlogged") != UNLOGGED_ROWS:
            raise Loss("an unlogged table lost rows at a clean stop")
        ledger.truncate(admin)
        ways = []
        with ledger.Ledger(server, CLIENTS, number, durable, moves.change if self.moves else None) as load:
            if self.kind == "sweeper":
                sweeper.wait_at_work(admin)
            admin.close()
            with self.churn(number, durable) as churn:
                ways.append(self.live())
                for _ in range(1, self.lives):
                    self.revive(durable, 1 / self.lives)
                    ways.append(self.live())
        if self.death == POWER and rng.random() < AGAIN:
            self.recover_and_die(rng.uniform(0, 0.7))
            ways.append(IN_RECOVERY)
        recovery = self.revive(durable)
        thorough = number % self.thorough == 0
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
        time.sleep(self.rng.uniform(self.lifetime / 3, self.lifetime))
        self.death = self.choose_death()
        if self.kind == "sweeper":
            admin = server.connect()
            swept = sweeper.swept(admin)
            self.swept += swept
            self.policies[value(admin, "SHOW pgscale.sweeper_policy")] += swept
            if self.moves:
                self.deck = self.deck or self.rng.sample(moves.PHASES, len(moves.PHASES))
                self.struck = moves.await_phase(admin, self.rng, self.deck.pop(), SEEN)
            admin.close()
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

    def settings(self, durable):
        return {**settings(self.rng, self.kind, durable), **(moves.SETTINGS if self.moves else {})}

    def note_struck(self):
        """Had the move in whose phase it died been made by then? If it is done, another one may have moved the relation since."""
        if not self.struck:
            return
        job, phase = self.struck
        connection = self.server.connect()
        rows = run(connection, """
            SELECT state = 'done' OR (SELECT reltablespace FROM pg_class WHERE oid = relation) = target
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

    def spoil(self):
        """Without a death: spoils what relocation and changes leave in each way that their checks are there for."""
        server, unseen = self.server, []
        server.start(**settings(self.rng, self.kind, True))
        for name, (spoil, mend) in features.SPOILS.items():
            connection = server.connect()
            with Features(server, name, MOVING, ("relocation", "changes"), features.lines(server.folder), self.strays) as churn:
                try:
                    wait_for("a move and a change", lambda: "work_mem" in churn.lines.possible and run(
                        connection, "SELECT job FROM pgscale_internal.relocation_job WHERE state = 'done'"), 60)
                except Loss as late:
                    raise RuntimeError(f"{late}: {churn.counts} {churn.errors} {churn.broken}") from None
            wait_for("end of all relocation jobs", lambda: not run(
                connection, "SELECT job FROM pgscale_internal.relocation_job WHERE finished_at IS NULL"), features.ENDED)
            run(connection, "SET allow_system_table_mods = on")
            table = min(churn.touched)
            spoil(connection, server.folder, table)
            try:
                churn.check(connection, crashed=False)
                unseen.append(name)
            except Loss as loss:
                print(f"      {name}: {loss}", flush=True)
            mend(connection, server.folder, table)
            run(connection, "DELETE FROM pgscale_internal.relocation_job; DELETE FROM pgscale_internal.tuning_change")
            connection.close()
        if not unseen:
            raise Loss(f"{len(features.SPOILS)} of what was spoiled were seen")
        print(f"not seen: {', '.join(unseen)}")
        return "spoiled"

    def churn(self, number, durable):
        steps = ("checkpoint", "bulk")
        if self.kind == "stock":
            return Churn(self.server, number, None if durable else steps)
        if self.moves:
            return Moves(self.server, number, self.strays)
        return Features(self.server, number, MOVING, None if durable else (*steps, "relocation", "changes"),
                        self.lines, self.strays)

    def recover_and_die(self, seconds):
        """The power fails again on the way, or soon after, when jobs that were interrupted go on."""
        self.server.launch()
        time.sleep(seconds)
        self.die(POWER)
        self.deaths[IN_RECOVERY] += 1

    def die(self, death):
        server = self.server
        if death == POWER:
            there = moves.files(server.folder) if self.moves else {}
            # that of the WAL first: while it still worked, a job could say that its move has failed, as the other disk has
            for disk in self.disks:
                disk.cut()
            server.kill_all()
            for disk in self.disks:
                disk.umount()
                disk.mount()
            # dropped files whose end was not synced
            self.strays.update(file for file in moves.files(server.folder) if self.moves and not there.get(file))
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
        if self.kind == "sweeper":
            churn.check(connection, durable)
            self.features.update(churn.counts)
            self.lines = features.lines(server.folder)
        else:
            churn.check(connection)
        if value(connection, "SELECT count(*) FROM unlogged") != 0:
            raise Loss("an unlogged table has rows after a crash")
        run(connection, UNLOGGED)
        connection.close()
        if thorough:
            checks.amcheck(server)
        child = CHILDREN[self.kind][0]
        wait_for(f"new {child}", lambda: server.child(child), 60)

    def keep(self, folder):
        """What there is to look for the cause of a loss."""
        self.server.stop()
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        shutil.copy(self.server.log, folder)
        for disk in self.disks:
            if os.path.ismount(disk.path):
                disk.umount()
            subprocess.run(["cp", "--sparse=always", disk.image, folder], check=True)


def measure(experiment, arguments):
    """Returns what was lost, or None."""
    cycles = 1 if arguments.control == "spoiled" else arguments.cycles
    if arguments.control and arguments.control != FORGOTTEN:
        cycles = min(cycles, 5)
    until = time.monotonic() + 60 * arguments.minutes
    for number in range(cycles + 1):
        if arguments.cuts and experiment.deaths[POWER] >= arguments.cuts or time.monotonic() > until:
            break
        since = time.monotonic()
        try:
            line = experiment.set_up() if not number else experiment.spoil() if arguments.control == "spoiled" else \
                experiment.cycle(number)
        except (Loss, psycopg2.Error) as error:
            lost = str(error).splitlines()[0]
            print(f"{number:4d}  LOST: {lost}", flush=True)
            return lost
        print(f"{number:4d}  {line}, {time.monotonic() - since:.1f} s in all", flush=True)
    return None


def one(arguments):
    """One server on one disk. Returns what it found."""
    kind = "stock" if arguments.stock else "sweeper"
    with contextlib.ExitStack() as stack:
        place = stack.enter_context(Place(moves.forget if arguments.control == FORGOTTEN else None))
        disks = [stack.enter_context(Disk(place, name)) for name in ("disk", "disk_2")[:2 if arguments.moves else 1]]
        experiment = Experiment(place, disks, arguments)
        since = time.monotonic()
        lost = measure(experiment, arguments)
        result = {
            **machine.describe(place), "major": place.major, "kind": kind, "control": arguments.control, "seed": arguments.seed,
            "cycles": experiment.cycles, "deaths": experiment.deaths, "commits": experiment.commits,
            "swept pages": experiment.swept, "policies": experiment.policies, "features": experiment.features, "lost": lost, "moves": arguments.moves,
            "cuts": {", ".join(cut): times for cut, times in experiment.cuts.items()},
            "dropped": experiment.server.shim.hits() if experiment.server.shim else 0,
            "seconds": round(time.monotonic() - since),
        }
        if lost and not arguments.control:
            kept = OUTPUT / f"lost-{kind}-{place.major}-{arguments.seed}"
            experiment.keep(kept)
            say(f"kept for a closer look: {kept.relative_to(TREE)}")
    return result


def several(arguments):
    """As many servers as there are jobs, each in a process and on a disk of its own, with another seed. Their sum."""
    results = []

    def follow(process, name):
        for line in process.stdout:
            if line.startswith("{"):
                results.append(json.loads(line))
            else:
                print(f"{name}: {line}", end="", flush=True)

    given = [word for name in ("cycles", "cuts") for word in (f"--{name}", str(-(-getattr(arguments, name) // arguments.jobs)))]
    given += [word for name in ("thorough", "life", "lives", "minutes") for word in (f"--{name}", str(getattr(arguments, name)))]
    given += ["--stock"] * arguments.stock + ["--only-power"] * arguments.only_power + ["--moves"] * arguments.moves
    given += ["--control", arguments.control] if arguments.control else []
    processes, readers = [], []
    # so that the others end with this one
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        for job in range(arguments.jobs):
            command = [sys.executable, __file__, *given, "--seed", str(arguments.seed + job), "--json"]
            processes.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            readers.append(threading.Thread(target=follow, args=(processes[-1], f"{job + 1}")))
            readers[-1].start()
        for process in processes:
            process.wait()
    finally:
        for process in processes:
            process.terminate()
        for process, reader in zip(processes, readers):
            process.wait()
            reader.join()
    if len(results) < arguments.jobs:
        sys.exit("one of them has ended without a result")
    summed = {**results[0], "seconds": max(result["seconds"] for result in results), "lost": None}
    for name in ("cycles", "commits", "swept pages", "dropped"):
        summed[name] = sum(result[name] for result in results)
    for name in ("deaths", "features", "cuts", "policies"):
        summed[name] = sum((collections.Counter(result[name]) for result in results), collections.Counter())
    losses = [f"seed {result['seed']}: {result['lost']}" for result in results if result["lost"]]
    summed["lost"] = "; ".join(losses) or None
    return summed


def main():
    parser = argparse.ArgumentParser(prog="t/trust/powercut")
    parser.add_argument("--cycles", type=int, default=50, help="at most; 50, with most of the controls at most 5")
    parser.add_argument("--cuts", type=int, default=0, help="end after so many power cuts")
    parser.add_argument("--minutes", type=float, default=1e6, help="begin no cycle after so long")
    parser.add_argument("--jobs", type=int, default=1, help="servers at a time, each on a disk of its own")
    parser.add_argument("--only-power", action="store_true", help="no other death than a power cut")
    parser.add_argument("--thorough", type=int, default=1, metavar="N",
                        help="pg_amcheck and pg_checksums in every Nth cycle only")
    parser.add_argument("--life", type=float, metavar="SECONDS",
                        help=f"of load in a cycle, at most; 6, with --control {FORGOTTEN} 15; at least a third")
    parser.add_argument("--lives", type=int, default=1, metavar="N", help="deaths before the checks; 1")
    parser.add_argument("--stock", action="store_true", help="without pgscale")
    parser.add_argument("--moves", action="store_true", help="tables and indexes move while they are in use, between two disks,"
                        " and it dies at each phase of a move")
    parser.add_argument("--control", choices=CONTROLS, help="a server that must lose something: does the test see it?")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--json", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.moves |= arguments.control == FORGOTTEN
    # only what is switched while there is load can lack something
    arguments.life = arguments.life or (15 if arguments.control == FORGOTTEN else 6)
    if arguments.moves and (arguments.stock or arguments.control == "spoiled"):
        parser.error("without pgscale nothing moves, and --control spoiled has moves of its own")
    result = one(arguments) if arguments.jobs == 1 else several(arguments)
    if arguments.json:
        print(json.dumps(result), flush=True)
        return 0
    lost = result["lost"]
    record(f"powercut {arguments.control or result['kind']}{' moves' * arguments.moves} {result['major']}", result)
    for cut, times in sorted(result["cuts"].items()):
        print(f"{cut}: {times}")
    if result["features"]:
        print(", ".join(f"{name} {count}" for name, count in sorted(result["features"].items())))
    if result["policies"]:
        print("pages swept with policy " + ", ".join(f"{policy} {pages}" for policy, pages in sorted(result["policies"].items())))
    print(", ".join(f"{death} {count}" for death, count in result["deaths"].items()) + f", {result['seconds']} s")
    print(f"{result['cycles']} cycles, {result['commits']} acknowledged commits, {result['swept pages']} pages swept, " +
          (f"lost: {lost}" if lost else "lost 0"))
    if arguments.control:
        print(f"{result['dropped']} syncs dropped: " * bool(result["dropped"]) +
              ("seen, as it must be" if lost else "NOT SEEN: this test is blind"))
        return 0 if lost else 1
    if result["kind"] == "sweeper" and not lost and not (result["swept pages"] and result["features"]["jobs done"]):
        print("the sweeper wrote nothing, or nothing was moved: nothing was tested")
        return 1
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
