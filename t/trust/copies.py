"""Copies of a server that are made while relations move: see copies and README.md."""
import argparse
import contextlib
import itertools
import os
import random
import re
import shutil
import subprocess
import sys
import time

import psycopg2

import checks
import features
import ledger
import moves
import twin
from cluster import Place, run, value
from features import SPACES
from ledger import ACKNOWLEDGED, PREPARED, REFUSED, Ledger
from moves import Moves
from server import Loss, Server, record, wait_for
from twin import Twin

CLIENTS = 3
LOAD = 3.0          # seconds of load before and after what is tried
SEEN = 60           # seconds within which a move is in a certain phase
CAUGHT_UP = 180     # seconds for a copy to replay all
SETTINGS = {
    **features.SETTINGS,
    "max_wal_size": "512MB",
    "pgscale.relocation_switch_timeout": "600",     # a busy machine has few gaps
    "shared_preload_libraries": "pgscale",
    "max_wal_senders": "20",
    "max_replication_slots": "20",
    "wal_keep_size": "8GB",
    "wal_retrieve_retry_interval": "200ms",
    "wal_receiver_status_interval": "1s",
    "archive_mode": "on",
    "archive_timeout": "0",
    "hot_standby_feedback": "off",
    "max_standby_streaming_delay": "-1",
    "max_standby_archive_delay": "-1",
}
COMMIT = re.compile(r"lsn: ([0-9A-F]+/[0-9A-F]+),.*desc: COMMIT(?:_PREPARED (\d+):)?")
NARROW = SPACES[2]  # lies on a small disk of one standby,
ROOM = 24           # which has so many MB beyond what is there


class Scene:
    """A server with the books and the large table, which moves; and its archive."""

    def __init__(self, place, name, **settings):
        self.place = place
        self.server = Server(place, name)
        self.archive = self.server.outside / "archive"
        self.archive.mkdir()
        place.give(self.archive)
        self.settings = {**SETTINGS, "archive_command": f"cp %p {self.archive}/%f", **settings}
        self.server.start(**self.settings)
        self.seed = 0
        self.load = self.churn = None       # the latest
        with contextlib.closing(self.server.connect()) as connection:
            ledger.create(connection)
            self.server.create_pgscale(connection)
            moves.create(connection, place, (self.server.outside,) * 3)

    @contextlib.contextmanager
    def busy(self):
        """Load and moves within; after it the server itself is judged. Yields a connection."""
        self.seed += 1
        with contextlib.closing(self.server.connect()) as connection:
            ledger.truncate(connection)
            with Ledger(self.server, CLIENTS, self.seed, also=moves.change) as self.load:
                with Moves(self.server, self.seed) as self.churn:
                    yield connection
            self.load.check(connection)
            self.churn.check(connection)

    def during(self, phase):
        """Waits, under load, until a move is there; returns where it was then."""
        with contextlib.closing(self.server.connect()) as connection:
            job, found = moves.await_phase(connection, random.Random(self.seed), phase, SEEN)
        if not job:
            raise Loss(f"no move was {phase} within {SEEN} s")
        return found

    def end(self):
        """What there is now: (digest, WAL's end), all of which is in the archive."""
        with contextlib.closing(self.server.connect()) as connection:
            found = twin.digest(connection)
            lsn = value(connection, "SELECT pg_current_wal_insert_lsn()")
            last = value(connection, "SELECT pg_walfile_name(pg_switch_wal())")
            wait_for("archive", lambda: (self.archive / last).exists() and value(
                connection, "SELECT last_archived_wal >= %s FROM pg_stat_archiver", last), 60)
        return found, lsn

    def twin(self, name, make, spaces=None):
        made = Twin(self.place, name, make, spaces)
        made.configure(**{key: its for key, its in self.settings.items() if not key.startswith("archive")})
        return made

    def backup(self, name, *options):
        """A base backup as a twin that was not started."""
        return self.twin(name, lambda made: twin.base_backup(self.server, made.folder, made.spaces, *options))

    def cloned(self, name, backup, spaces=None):
        return self.twin(name, lambda made: twin.clone(self.place, backup.folder, made.folder, made.spaces), spaces)


def caught_up(standby, lsn):
    """Waits until a standby has replayed all up to there."""
    with contextlib.closing(standby.connect()) as connection:
        return wait_for("replay", lambda: value(connection, "SELECT pg_last_wal_replay_lsn() >= %s::pg_lsn", lsn), CAUGHT_UP)


def told(load, *outcomes):
    """Keys whose outcome is one of these at this moment, of clients at work."""
    return {key for key, outcome in dict(load.outcomes).items() if outcome in outcomes}


def between(least, most):
    """A check: a copy's ledger has what was acknowledged before it was begun, and nothing that was not asked for by its end."""
    def check(connection):
        found = ledger.entered(connection)
        if least - found:
            raise Loss(f"{len(least - found)} commits from before the backup are lost, such as {min(least - found)}")
        if found - most:
            raise Loss(f"{len(found - most)} transactions are there that were refused or came later, such as {min(found - most)}")
    return check


def exactly(expected, what):
    """A check: the ledger has these entries."""
    def check(connection):
        found = ledger.entered(connection)
        if found != expected:
            raise Loss(f"at {what} the ledger lacks {len(expected - found)} commits, and {len(found - expected)} came later")
    return check


### Base backups

def base_backups(place):
    """Begun at each phase; started alone, and after the WAL of the time since was replayed."""
    scene = Scene(place, "base")
    for number, phase in enumerate(moves.PHASES):
        with scene.busy() as connection:
            time.sleep(LOAD / 2)
            met = scene.during(phase)
            least = told(scene.load, ACKNOWLEDGED, PREPARED)
            moved = done(connection)
            backup = scene.backup(f"backup_{number}")
            moved = done(connection) - moved
            most = set(dict(scene.load.outcomes)) - told(scene.load, REFUSED)
            call_verify(backup)
            time.sleep(LOAD / 2)
        cancelled = scene.churn.cancelled
        expected, _ = scene.end()
        followed = scene.cloned(f"followed_{number}", backup)
        followed.recover(scene.archive)
        backup.start()
        twin.judge(backup, None, cancelled, between(least, most))
        backup.discard()
        followed.start()
        twin.judge(followed, expected, cancelled)
        followed.discard()
        yield f"begun while {met}", f"{moved} moves done meanwhile"


def done(connection):
    return value(connection, "SELECT count(*) FROM pgscale_internal.relocation_job WHERE state = 'done'")


def call_verify(backup):
    if (backup.place.bindir / "pg_verifybackup").exists():
        twin.call(backup.place, "pg_verifybackup", "--no-parse-wal", "--exit-on-error", "--ignore=postgresql.conf",
                  backup.folder)


def incremental(place):
    """A full backup and two incremental ones, each begun at another phase, combined."""
    if place.major < 17:
        yield "none", "there are no incremental backups before 17"
        return
    scene = Scene(place, "incremental", summarize_wal="on")
    for number, phases in enumerate((("copying", "switching", "dropping"), ("waiting for a gap", "following", "copying"))):
        backups, met = [], []
        with scene.busy():
            for step, phase in enumerate(phases):
                time.sleep(LOAD / 2)
                met.append(scene.during(phase))
                options = ("-i", backups[-1].folder / "backup_manifest") if backups else ()
                backups.append(scene.backup(f"part_{number}_{step}", *options))
            time.sleep(LOAD / 2)
        expected, _ = scene.end()

        def combine(made, parts=backups):
            mapped = [f"--tablespace-mapping={parts[-1].spaces[name]}={made.spaces[name]}" for name in SPACES]
            twin.call(place, "pg_combinebackup", *(part.folder for part in parts), "-o", made.folder, "--no-sync", *mapped)
        alone = scene.twin(f"combined_{number}", combine)
        followed = scene.cloned(f"combined_followed_{number}", alone)
        alone.start()
        twin.judge(alone, None, scene.churn.cancelled)
        followed.recover(scene.archive)
        followed.start()
        twin.judge(followed, expected, scene.churn.cancelled)
        for each in (*backups, alone, followed):
            each.discard()
        yield "full while {}, then while {} and {}".format(*met), f"{scene.churn.counts['jobs done']} moves done"


### Recovery to a point

def commits(scene, since, until):
    """xid, or that of a subtransaction -> LSN of its commit, of this part of the archive."""
    out = twin.call(scene.place, "pg_waldump", "-p", scene.archive, "-r", "Transaction", "-s", since, "-e", until)
    found = {}
    for line in out.splitlines():
        match = COMMIT.search(line)
        if match:
            subxacts = re.search(r"subxacts: ([\d ]+)", line)
            xids = [match[2] or re.search(r"tx: +(\d+)", line)[1], *(subxacts[1].split() if subxacts else ())]
            found.update(dict.fromkeys(xids, match[1]))
    return found


def position(lsn):
    high, low = lsn.split("/")
    return (int(high, 16) << 32) + int(low, 16)


def switches(connection, at, begun):
    """(relation, its file since, LSN of the commit) of the last switch of each relation that switched after that LSN."""
    rows = run(connection, """
        SELECT relname, relfilenode::bigint, xmin::text FROM pg_class
         WHERE relnamespace = 'public'::regnamespace AND relname = ANY (%s) ORDER BY relname""",
               ["large", *moves.INDEXES, *moves.BOOKS])
    found = [(name, file, at[xid]) for name, file, xid in rows if xid in at and position(at[xid]) > position(begun)]
    if not any(name == "large" for name, _, _ in found):
        raise Loss(f"large has not switched between the backup and the end, but {[name for name, _, _ in found]}")
    return found


def points(place):
    """Right before and right after the commit of a switch, exactly as the WAL says: which files, and which other commits."""
    scene = Scene(place, "points")
    with scene.busy() as connection:
        since = value(connection, "SELECT pg_current_wal_insert_lsn()")
        backup = scene.backup("backup")
        begun = value(connection, "SELECT pg_current_wal_insert_lsn()")
        asked = done(connection)
        wait_for("moves", lambda: done(connection) - asked > 10, 120)
    _, until = scene.end()
    at = commits(scene, since, until)
    with contextlib.closing(scene.server.connect()) as connection:
        entries = [((client, number), xid) for client, number, xid in run(
            connection, "SELECT client, number, xmin::text FROM ledger")]
        found = switches(connection, at, begun)
    for number, (name, file, lsn) in enumerate(sorted(found, key=lambda switch: switch[0] != "large")[:3]):
        counts = []
        for inclusive, when in (("off", "right before"), ("on", "right after")):
            last = position(lsn) - (inclusive == "off")
            expected = {key for key, xid in entries if position(at.get(xid, "0/0")) <= last}
            copy = scene.cloned(f"point_{number}_{inclusive}", backup)
            copy.recover(scene.archive, recovery_target_lsn=lsn, recovery_target_inclusive=inclusive)
            copy.configure(**{"pgscale.relocation_workers": "0"})
            copy.start()
            with contextlib.closing(copy.connect()) as connection:
                prepared = {tuple(map(int, gid.split("-"))) for gid, in run(connection, "SELECT gid FROM pg_prepared_xacts")}
                has = value(connection, "SELECT pg_relation_filenode(%s)::bigint", name)
            if (has == file) != (inclusive == "on"):
                raise Loss(f"{when} the switch of {name} at {lsn} it has the file {has}; since it, {file}")
            copy.reload(**{"pgscale.relocation_workers": SETTINGS["pgscale.relocation_workers"]})
            twin.judge(copy, None, scene.churn.cancelled, exactly(expected | prepared, f"the point {when} {lsn}"))
            copy.discard()
            counts.append(f"{len(expected)} commits {when} it")
        yield f"the switch of {name}", f"{counts[0]}, {counts[1]}, as the WAL says"


### pg_rewind

def rewind(place):
    """A standby is promoted in the midst of a move; the old primary goes on, then it is rewound."""
    for number, (phase, clean) in enumerate((("copying", True), ("switching", False), ("dropping", True))):
        scene = Scene(place, f"rewind_{number}", wal_log_hints="on")
        old = scene.server
        new = scene.backup(f"promoted_{number}")
        new.follow(old, "new")
        new.start()
        try:
            with scene.busy():
                time.sleep(LOAD)
                met = scene.during(phase)
                with contextlib.closing(new.connect()) as connection:
                    run(connection, "SELECT pg_promote(); CHECKPOINT")
                new.READY = Server.READY
                time.sleep(LOAD)
                if not clean:
                    old.kill_all()
        except (Loss, psycopg2.Error, RuntimeError):
            if clean:
                raise
        if clean:
            old.shut()
        # on the other side of the fork others move, in files of the same numbers
        scene.server = new
        with contextlib.closing(new.connect()) as connection:
            ledger.settle(connection)
            twin.Judged(new, scene.churn.cancelled).check_ends(connection)
        with scene.busy():
            time.sleep(LOAD)
            # while it runs no move may remove a file there: doc/relocation.md
            new.reload(**{"pgscale.relocation_workers": "0"})
            with contextlib.closing(new.connect()) as connection:
                wait_for("end of the moves under way", lambda: not moves.phases(connection), CAUGHT_UP)
            output = twin.call(place, "pg_rewind", "--target-pgdata", old.folder, "--no-sync", "--source-server",
                               f"host={new.outside} user=postgres dbname=postgres")
            new.reload(**{"pgscale.relocation_workers": scene.settings["pgscale.relocation_workers"]})
            old.include()
            old.configure(archive_mode="off")
            since = old.mark()
            twin.follow(old, new, "old")
            old.start()
            time.sleep(LOAD)
        expected, lsn = digest_of(new)
        caught_up(old, lsn)
        twin.judge(old, expected)
        checks.log(old.said(since))
        twin.judge(new, expected)
        for each in (old, new):
            each.stop()
            shutil.rmtree(each.folder)
        rewound = "rewound" if "Done!" in output else output.strip().splitlines()[-1]
        yield f"forked while {met}, old primary {'stopped' if clean else 'killed'}", rewound


def digest_of(server):
    """What there is now, and the end of WAL."""
    with contextlib.closing(server.connect()) as connection:
        return twin.digest(connection), value(connection, "SELECT pg_current_wal_flush_lsn()")


### Standbys

def small_disk(server, base):
    """A folder with so much room beyond what the backup has of that tablespace, into which large has not moved then."""
    folder = server.outside / "small_disk"
    folder.mkdir()
    size = sum(file.stat().st_size for file in base.spaces[NARROW].rglob("*") if file.is_file()) // 2**20 + ROOM
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}m", "tmpfs", folder], check=True)
    (folder / NARROW).mkdir()
    server.place.give(folder)
    return folder


def fill(connection, narrow):
    """large moves to where that standby has no room, if that has not ended by then; returns how many jobs the primary did."""
    if value(connection, "SELECT spcname <> %s FROM pg_class c JOIN pg_tablespace t ON t.oid = reltablespace"
                         " WHERE c.oid = 'large'::regclass", NARROW):
        job = value(connection, "SELECT pgscale.relocate_table('large', %s)", NARROW)
        wait_for("a move", lambda: value(
            connection, "SELECT state = 'done' FROM pgscale.relocation_jobs WHERE job = %s", job), CAUGHT_UP)
    wait_for("end of the standby without room", lambda: narrow.process.poll() is not None, CAUGHT_UP)


def standbys(place):
    """A synchronous one, one behind it, a delayed one, and one in whose tablespace there is no room for the copies."""
    scene = Scene(place, "standbys", **{"pgscale.relocation_max_lag": "-1"})
    primary = scene.server
    base = scene.backup("standbys_base")
    small = small_disk(primary, base)
    sync, behind, delayed = (scene.cloned(name, base) for name in ("sync", "behind", "delayed"))
    narrow = scene.cloned("narrow", base, {NARROW: small / NARROW})
    for copy, origin, settings in ((sync, primary, {}), (behind, sync, {}), (delayed, primary, {"recovery_min_apply_delay": "4s"}),
                                   (narrow, primary, {})):
        copy.follow(origin, copy.name, **settings)
        copy.start()
    primary.reload(synchronous_standby_names="sync")
    with scene.busy():
        time.sleep(LOAD)
        for phase in moves.PHASES:
            scene.during(phase)
    moved = scene.churn.counts["jobs done"]
    with contextlib.closing(primary.connect()) as connection:
        fill(connection, narrow)
    primary.reload(synchronous_standby_names="")
    expected, lsn = digest_of(primary)
    for copy, what in ((sync, "synchronous"), (behind, "behind another standby"), (delayed, "4 s late")):
        caught_up(copy, lsn)
        twin.judge(copy, expected, stop=copy is not sync)
        yield f"standby, {what}", f"{moved} moves done"
    reason = next((line for line in narrow.said().splitlines() if " FATAL: " in line and "No space left on device" in line), None)
    if not reason:
        raise Loss(f"the standby without room ended for another reason: {narrow.last_words(0)}")
    subprocess.run(["mount", "-o", "remount,size=4g", small], check=True)
    narrow.start()
    caught_up(narrow, lsn)
    twin.judge(narrow, expected, log=False)     # which has the errors of a full disk
    yield f"standby without room for a copy ({ROOM} MB left)", "it ended: " + re.sub(r"^.*?FATAL: +", "", reason) + \
        "; the moves of the primary were done; with more room it went on, with the same rows"


### A subscriber

class Applied(Moves):
    """Moves of a subscriber's tables, in which it changes nothing else."""

    STEPS = ("move_large", "move_books", "reader", "checkpoint")


def subscriber(place):
    """FOR ALL TABLES; both sides move theirs, also while the first copy is made."""
    scene = Scene(place, "publisher", wal_level="logical")
    publisher = scene.server
    other = Scene(place, "subscriber", wal_level="logical", archive_mode="off").server
    with contextlib.closing(publisher.connect()) as p, contextlib.closing(other.connect()) as s:
        for table in [table for table, in run(s, twin.TABLES)]:
            run(s, f"TRUNCATE {table}")
        run(p, "CREATE PUBLICATION everything FOR ALL TABLES")
        with scene.busy(), Applied(other, 1) as applied:
            time.sleep(LOAD)
            scene.during("copying")
            run(s, f"CREATE SUBSCRIPTION everything CONNECTION 'host={publisher.outside} user=postgres dbname=postgres'"
                   " PUBLICATION everything")
            wait_for("first copy", lambda: value(s, "SELECT bool_and(srsubstate = 'r') FROM pg_subscription_rel"), CAUGHT_UP)
            copied = applied.counts["jobs"]
            time.sleep(2 * LOAD)
            for phase in moves.PHASES:
                scene.during(phase)
        expected, lsn = digest_of(publisher)
        wait_for("the subscriber has all", lambda: value(
            p, "SELECT count(*) FROM pg_replication_slots WHERE slot_name = 'everything'"
               " AND confirmed_flush_lsn >= %s::pg_lsn", lsn), CAUGHT_UP)
        run(s, "ALTER SUBSCRIPTION everything DISABLE")
        run(s, "ALTER SUBSCRIPTION everything SET (slot_name = NONE)")
        run(s, "DROP SUBSCRIPTION everything")
    twin.judge(other, expected, applied.cancelled)
    yield "first copy and changes", f"{scene.churn.counts['jobs done']} moves there, {applied.counts['jobs']} here, " \
        f"{copied} of these before the end of the first copy"
    for each in (publisher, other):
        each.stop()
        shutil.rmtree(each.folder)


### Are differences seen?

def unlogged(tree):
    """Changes the copy of the source that is built: of ten pieces that a move copies one is not in the WAL."""
    source = tree / "src" / "relocation" / "online" / "online_copy.c"
    text = source.read_text()
    insert = "\tend = XLogInsert(RM_XLOG_ID, XLOG_FPI);\n"
    if text.count(insert) != 1:
        raise RuntimeError("online_copy.c writes WAL otherwise by now")
    source.write_text(text.replace(insert, """\tstatic int pieces;
\tif (++pieces % 10 == 0)
\t{
\t\tXLogResetInsertion();
\t\tend = GetXLogInsertRecPtr();
\t}
\telse
\t""" + insert))


def zero_block(server):
    """A block in the middle of an index is zeros, as where a copy has not written it; checksums do not mind."""
    with contextlib.closing(server.connect()) as connection:
        file = server.folder / value(connection, "SELECT pg_relation_filepath('large_hash')")
        blocks = value(connection, "SELECT pg_relation_size('large_hash') / 8192")
    server.shut()
    with open(file, "r+b") as pages:
        pages.seek(blocks // 2 * checks.BLOCK)
        pages.write(bytes(checks.BLOCK))
    server.start()


def sql(statement):
    def spoil(server):
        with contextlib.closing(server.connect()) as connection:
            run(connection, statement)
    return spoil


def stray(server):
    with contextlib.closing(server.connect()) as connection:
        file = server.folder / value(connection, "SELECT pg_relation_filepath('large')")
    shutil.copy(file, file.with_name("4000000000"))


PLANTED = {
    "a row with another balance": sql("UPDATE tellers SET balance = balance + 1 WHERE tid = 7"),
    "a commit that is gone": sql("DELETE FROM ledger WHERE ctid = (SELECT min(ctid) FROM ledger)"),
    "a row with other bytes": sql("UPDATE large SET filler = reverse(filler) || ' ' WHERE id = 12"),
    "a block of zeros in an index": zero_block,
    "a file without a relation": stray,
}


def planted(place):
    """Each of these, in a copy that is otherwise equal, must be seen."""
    scene = Scene(place, "planted")
    with scene.busy():
        backup = scene.backup("planted_backup")
        time.sleep(LOAD)
    expected, _ = scene.end()
    for number, (what, spoil) in enumerate(PLANTED.items()):
        copy = scene.cloned(f"planted_{number}", backup)
        copy.recover(scene.archive)
        copy.start()
        spoil(copy)
        try:
            twin.judge(copy, expected, scene.churn.cancelled)
        except (Loss, psycopg2.Error) as seen:
            yield what, f"seen: {str(seen).splitlines()[0]}"
        else:
            raise Loss(f"{what} was not seen")
        copy.discard()


CASES = {"base": base_backups, "incremental": incremental, "points": points, "rewind": rewind, "standbys": standbys,
         "subscriber": subscriber}


def measure(place, name, case, steps, most=None, seen=None):
    """Each step of a case has a line, at most so many are made; a Loss ends the case. Returns the error, or None."""
    since = time.monotonic()
    wrong = None
    try:
        for what, found in itertools.islice(case(place), most):
            took = round(time.monotonic() - since)
            steps.append({"case": name, "step": what, "found": found, "seconds": took})
            print(f"{name}: {what}: equal; {found}; {took} s" if not seen else f"{name}: {what}: {found}", flush=True)
            since = time.monotonic()
    except (Loss, psycopg2.Error, RuntimeError) as error:
        wrong = error
        print(f"{name}: DIFFERS: {error}", flush=True)
    record(f"copies {name} {place.major}", place, {"steps": steps}, wrong and str(wrong))
    for cluster in place.clusters:
        cluster.stop()
        shutil.rmtree(cluster.folder, ignore_errors=True)
    place.clusters.clear()
    for disk in filter(os.path.ismount, place.folder.glob("*/small_disk")):
        subprocess.run(["umount", disk], check=True)
    return wrong


def control():
    """Differences that are planted, and a pgscale whose copies are not all in the WAL."""
    with Place() as place:
        blind = measure(place, "planted", planted, [], seen=True)
    with Place(unlogged) as place:
        # by the comparison, or by the server that reads the copy
        seen = isinstance(measure(place, "unlogged", base_backups, [], 2),
                          (Loss, psycopg2.errors.DataCorrupted, psycopg2.errors.IndexCorrupted))
    print("blocks that are not in the WAL: " + ("seen" if seen else "NOT SEEN"))
    return 1 if blind or not seen else 0


def main():
    parser = argparse.ArgumentParser(prog="t/trust/copies")
    parser.add_argument("--only", action="append", choices=CASES, help="this case; may be repeated")
    parser.add_argument("--quick", action="store_true", help="the first step of each case only")
    parser.add_argument("--control", action="store_true", help="are differences seen?")
    arguments = parser.parse_args()
    if arguments.control:
        return control()
    steps = []
    with Place() as place:
        wrong = [f"{name}: {str(error).splitlines()[0]}" for name in arguments.only or CASES
                 if (error := measure(place, name, CASES[name], steps, 1 if arguments.quick else None))]
    print(f"{len(steps)} copies, " + ("; ".join(wrong) or "all equal"))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
