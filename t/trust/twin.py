"""A copy of a server, made while relations move there: how it comes to be, and what must be true of it.

A twin has tablespaces of its own, under the same names. With archive=... it replays what the first server archives, to its end
or to a point; as a standby it follows a server.
"""
import contextlib
import pathlib
import shutil

import checks
import ledger
from cluster import run, value
from features import SPACES
from moves import Moves
from server import Loss, Server

# whatever its tables are called; rows of equal text count, too
DIGEST = "SELECT count(*), coalesce(sum(hashtextextended(t::text, 0)::numeric), 0)::text FROM ONLY {} t"
TABLES = "SELECT oid::regclass::text FROM pg_class WHERE relnamespace = 'public'::regnamespace AND relkind = 'r' ORDER BY 1"
STANDBY_READY = "database system is ready to accept read-only connections"


def call(place, *command):
    """Runs a program as the servers' user and returns its output; an error is a Loss."""
    try:
        return place.run(command)
    except SystemExit as failed:
        raise Loss(" | ".join(str(failed).strip().splitlines()[-4:])) from None


def locations(server):
    """tablespace -> its folder"""
    with contextlib.closing(server.connect()) as connection:
        return {name: pathlib.Path(location) for name, location in run(
            connection, "SELECT spcname, pg_tablespace_location(oid) FROM pg_tablespace WHERE spcname = ANY (%s)", list(SPACES))}


def base_backup(server, folder, spaces, *options):
    """Tablespaces go to the folders that spaces names."""
    mapped = [f"--tablespace-mapping={old}={spaces[name]}" for name, old in locations(server).items()]
    return call(server.place, "pg_basebackup", "-h", server.outside, "-U", "postgres", "-D", folder, "-c", "fast", "--no-sync",
                *mapped, *options)


def clone(place, folder, target, spaces):
    """A backup once more, with tablespaces elsewhere."""
    call(place, shutil.which("cp"), "-a", folder, target)
    for link in (target / "pg_tblspc").iterdir():
        old = link.readlink()
        link.unlink()
        call(place, shutil.which("cp"), "-aT", old, spaces[old.name])
        link.symlink_to(spaces[old.name])


class Twin(Server):
    """make(twin) fills its folder, and those that its spaces name."""

    def __init__(self, place, name, make, spaces=None):
        self.made = make
        self.spaces = {space: place.folder / f"{name}.outside" / space for space in SPACES} | (spaces or {})
        super().__init__(place, name)

    def make(self):
        self.made(self)

    def configure(self, **settings):
        super().configure(**{"archive_mode": "off", **settings})

    def recover(self, archive, **target):
        """Replays an archive to its end, or to a target, and is a server of its own then."""
        self.configure(restore_command=f"cp {archive}/%f %p", recovery_target_action="promote", **target)
        (self.folder / "recovery.signal").touch()
        self.place.give(self.folder / "recovery.signal")

    def follow(self, server, name, **settings):
        """From its start on it is that server's standby."""
        follow(self, server, name, **settings)

    def discard(self):
        """Its log stays."""
        self.stop()
        self.place.clusters.remove(self)
        for folder in (self.folder, *self.spaces.values()):
            shutil.rmtree(folder, ignore_errors=True)


def follow(server, primary, name, **settings):
    server.READY = STANDBY_READY
    server.configure(primary_conninfo=f"host={primary.outside} user=postgres application_name={name}", **settings)
    (server.folder / "standby.signal").touch()
    server.place.give(server.folder / "standby.signal")


class Judged(Moves):
    """The checks of Moves, where nothing of it is at work; cancelled: jobs that may have ended so."""

    STEPS = ()

    def __init__(self, server, cancelled=()):
        super().__init__(server, 0)
        self.cancelled = set(cancelled)


def digest(connection):
    """table -> (rows, sum over their texts)"""
    run(connection, "SET enable_indexscan = off; SET enable_indexonlyscan = off; SET enable_bitmapscan = off")
    found = {table: run(connection, DIGEST.format(table))[0] for table, in run(connection, TABLES)}
    run(connection, "RESET ALL")
    return found


def compare(found, expected):
    differing = [f"{name} has {found.get(name)}, not {expected.get(name)}"
                 for name in sorted(found.keys() | expected.keys()) if found.get(name) != expected.get(name)]
    if differing:
        raise Loss(f"{len(differing)} tables differ: {'; '.join(differing[:2])}")


def judge(server, expected=None, cancelled=(), books=None, stop=True, log=True):
    """All that must be true of a copy. expected: the other side's digest; books(connection) comes first. With stop it is stopped,
    and its checksums are verified."""
    judged = Judged(server, cancelled)
    with contextlib.closing(server.connect()) as connection:
        standby = value(connection, "SELECT pg_is_in_recovery()")
        if not standby:
            ledger.settle(connection)
        if books:
            books(connection)
        if not standby:
            judged.check_ends(connection)
        wrong = ledger.differences(connection)
        if wrong:
            raise Loss("; ".join(wrong))
        if expected is not None:
            compare(digest(connection), expected)
        judged.check_tables(connection)
        if not standby:
            judged.check_maps(connection)
    checks.amcheck(server, standby=standby)
    if stop:
        server.shut()
        checks.checksums(server)
    if log:
        checks.log(server.said())
