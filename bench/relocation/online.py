"""The longest wait of a transaction while a table or an index moves to another tablespace: by pgscale, by other ways, and without a move.

A load runs all the while, at a rate or as fast as it can, alone or beside others. It starts once, and then all ways have their
turns, round by round, each round in a random order of its own, with a checkpoint before each turn. The relation goes from one
tablespace to the other, both in ordinary folders. A transaction counts if any of it fell into the move or into the second after
it, in which the server still removes files; at a rate, its time counts from when it was due.
"""
import contextlib
import dataclasses
import itertools
import pathlib
import subprocess
import time

import mover
import stats
from cluster import Standby, end, run, say, value
from load import Load
from report import spread, table
from slowline import SlowLine

TABLE, INDEX = "pgbench_accounts", "pgbench_accounts_pkey"
TABLESPACES = ("here", "there")
SETTINGS = {"shared_preload_libraries": "pgscale", "shared_buffers": "1GB", "synchronous_commit": "on",
            "maintenance_work_mem": "256MB", "max_wal_size": "16GB"}
# room for new versions in each page, as a table has that VACUUM keeps up with: it does not grow from move to move
FILLFACTOR = 80
AFTER_SECONDS = 1
CANCELLED = "canceling statement"
CONNECT_S = 60

RATE = 50
UPDATE = pathlib.Path(__file__).with_name("update.sql")
# so many clients that the rate holds while each waits for a second
PACED, FULL_SPEED = f"{RATE} tx/s", "full speed"
MANY_CLIENTS, FEW_CLIENTS = ("-c", 64, "-j", 2, "-R", RATE), ("-c", 4, "-j", 2, "-R", RATE)
BOTH = {PACED: ("-N", *MANY_CLIENTS), FULL_SPEED: ("-N", "-c", 4, "-j", 2)}

QUIET, READ = "quiet", "long readers"
STANDBY, RECEIVEWAL = "standby", "pg_receivewal"
LINE_BYTES_PER_S = 20 * 10**6

BASELINE, PGSCALE = "no move", "pgscale"
ALTER_TABLE, ALTER_INDEX, PG_REPACK, PG_SQUEEZE = "ALTER TABLE", "ALTER INDEX", "pg_repack", "pg_squeeze"
MOVES = {TABLE: {PGSCALE: mover.table_by_pgscale, ALTER_TABLE: mover.by_alter_table, PG_REPACK: mover.table_by_pg_repack,
                 PG_SQUEEZE: mover.by_pg_squeeze},
         INDEX: {PGSCALE: mover.by_pgscale, ALTER_INDEX: mover.by_alter_index, PG_REPACK: mover.by_pg_repack}}
EXTENSIONS = (PG_REPACK, PG_SQUEEZE)        # what not every server has
PLUGINS = "output_plugin_libraries"


@contextlib.contextmanager
def readers(server, number, read_ms, pause_ms):
    """So many sessions that read the table by its index, each for a random time, with pauses. Yields a function that counts those
    that were cancelled, and so ended."""
    script, errors = server.folder / "read.sql", server.folder / "read.errors"
    script.write_text("\\set aid random(1, 100000)\n\\set ms random({}, {})\n\\set pause random({}, {})\n".format(*read_ms, *pause_ms) +
                      f"SELECT abalance, pg_sleep(:ms / 1000.0) FROM {TABLE} WHERE aid = :aid;\n\\sleep :pause ms\n")
    with open(errors, "w") as file:
        reading = server.place.popen(["pgbench", "-h", server.folder, "-U", "postgres", "-n", "-f", script,
                                      "-c", number, "-T", 3600, "postgres"], stdout=subprocess.DEVNULL, stderr=file)
    try:
        yield lambda: errors.read_text().count(CANCELLED)
    finally:
        end(reading)


@contextlib.contextmanager
def receivewal(server, line):
    """pg_receivewal, which flushes what it receives at once."""
    folder = server.place.folder / "received"
    folder.mkdir()
    server.place.give(folder)
    receiving = server.place.popen(["pg_receivewal", "-h", "127.0.0.1", "-p", line.port, "-U", "postgres", "-D", folder, "--synchronous"])
    try:
        yield
    finally:
        end(receiving)


@contextlib.contextmanager
def synchronous(server, connection, receiver):
    """Commits wait for a receiver of the WAL behind a slow line."""
    with SlowLine(server, LINE_BYTES_PER_S) as line, receivewal(server, line) if receiver == RECEIVEWAL else \
            Standby(server, {"primary_conninfo": f"host=127.0.0.1 port={line.port} user=postgres"}):
        until = time.monotonic() + CONNECT_S
        run(connection, "ALTER SYSTEM SET synchronous_standby_names = '*'")
        try:
            run(connection, "SELECT pg_reload_conf()")
            while not value(connection, "SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = 'sync'"):
                if time.monotonic() > until:
                    raise RuntimeError(f"no receiver of the WAL became synchronous within {CONNECT_S} s")
                time.sleep(0.1)
            yield lambda: 0
        finally:
            run(connection, "ALTER SYSTEM RESET synchronous_standby_names")
            run(connection, "SELECT pg_reload_conf()")


@dataclasses.dataclass(frozen=True)
class Online:
    """A part of the experiment."""

    name: str
    scale: int
    rounds: dict                # of each way
    loads: dict                 # pgbench's options, by name
    idle: dict                  # seconds without a move, by who is there beside the load
    relation: str = TABLE
    readers: tuple = (2, (3000, 3000), (0, 2000))       # how many, milliseconds of a statement and of a pause
    most: dict = None           # what is required: milliseconds, by who is there beside
    most_times: int = None      # and how many times as long as without a move, plus milliseconds
    most_more_ms: int = 0
    settings: dict = dataclasses.field(default_factory=dict)

    RECORDS = {"runs": ("load", "others", "way")}

    def pieces(self, quick):
        return [f"{load}, {others}" for load, others in self._cases()]

    def _cases(self):
        return list(itertools.product(self.loads, self.idle))

    def measure(self, place, quick, names):
        ways = {way: 1 if quick else number for way, number in self.rounds.items()
                if way not in EXTENSIONS or pathlib.Path(place.ask("--sharedir"), "extension", f"{way}.control").exists()}
        with self._bed(place, ways, 3 if quick else self.scale) as (server, connection):
            for load, others in self._cases():
                if f"{load}, {others}" in names:
                    with self._beside(server, connection, others) as cancelled:
                        yield f"{load}, {others}", self._piece(server, connection, ways, load, others, cancelled, quick)

    def _beside(self, server, connection, others):
        if others == QUIET:
            return contextlib.nullcontext(lambda: 0)
        return readers(server, *self.readers) if others == READ else synchronous(server, connection, others)

    @contextlib.contextmanager
    def _bed(self, place, ways, scale):
        settings = {**SETTINGS, "allow_in_place_tablespaces": "on", **self.settings}
        if PG_SQUEEZE in ways:
            settings |= {"shared_preload_libraries": f"pgscale,{PG_SQUEEZE}", "wal_level": "logical"}
            # minor versions since 2026 use no other plugins than these
            if PLUGINS in place.run(["postgres", "--describe-config"]):
                settings[PLUGINS] = f"pgoutput,test_decoding,{PG_SQUEEZE}"
        with place.cluster(self.name, **settings) as server, contextlib.closing(server.connect()) as connection:
            server.create_pgscale(connection)
            for way in ways:
                if way in EXTENSIONS:
                    run(connection, f"CREATE EXTENSION {way}")
            for name in TABLESPACES:
                run(connection, f"CREATE TABLESPACE {name} LOCATION ''")
            say(f"loading scale {scale}")
            server.pgbench("-i", "-s", scale, "-q", "-F", FILLFACTOR, f"--tablespace={TABLESPACES[0]}",
                           f"--index-tablespace={TABLESPACES[0]}")
            yield server, connection

    def _turns(self, ways):
        """In their order: those of ways with fewer rounds are spread over all rounds."""
        most = max(ways.values())
        return [(number, way) for number, way in stats.rounds(most, ways)
                if (number + 1) * ways[way] // most > number * ways[way] // most]

    def _piece(self, server, connection, ways, load, others, cancelled, quick):
        say(f"{load}, {others}")
        size = value(connection, "SELECT pg_relation_size(%s::regclass)", self.relation)
        idle = 2 if quick else self.idle[others]
        scale = value(connection, "SELECT count(*) FROM pgbench_branches")
        moved = []
        with Load(server, "-s", scale, *self.loads[load], log=True, may_fail=True) as running:
            time.sleep(3)
            for number, way in self._turns(ways):
                before = cancelled(), running.errors(CANCELLED)
                found = self._move(server, connection, way, idle)
                moved.append((number, way, *found, cancelled() - before[0], running.errors(CANCELLED) - before[1]))
        at, ms = running.transactions()
        runs = []
        for number, way, began, ended, locked, readers_gone, writers_gone in moved:
            met = (at >= began) & (at - ms / 1000 <= ended + AFTER_SECONDS)
            runs.append({"round": number, "load": load, "others": others, "way": way, "seconds": ended - began, "locked ms": locked,
                         "ms": {"max": float(ms[met].max())},
                         "readers cancelled": readers_gone, "writers cancelled": writers_gone})
            say(f"  {way}: longest {runs[-1]['ms']['max']:.0f} ms")
        return {"bytes": size, "runs": runs}

    def _move(self, server, connection, way, idle):
        """Has a way its turn. Returns when it began and ended, and for how long it had the table locked, if that is known."""
        run(connection, "CHECKPOINT")
        # its commit waits until all before it is confirmed
        run(connection, "SELECT pg_logical_emit_message(true, 'bench', 'a turn begins')")
        time.sleep(1)
        target = TABLESPACES[mover.tablespace_of(connection, self.relation) == TABLESPACES[0]]
        began = time.time()
        if way == BASELINE:
            time.sleep(idle)
            found = None
        else:
            found = MOVES[self.relation][way](server, self.relation, target)
        ended = time.time()
        time.sleep(AFTER_SECONDS)
        if way != BASELINE and mover.tablespace_of(connection, self.relation) != target:
            raise RuntimeError(f"{way} did not move {self.relation} to {target}")
        say(f"  {way}: {ended - began:.1f} s")
        return began, ended, found["locked ms"] if found else None

    @staticmethod
    def whole(found):
        measured = list(found.values())
        return {"bytes": measured[0]["bytes"], "runs": [r for each in measured for r in each["runs"]]}

    def show(self, results):
        runs = results["runs"]
        ways = [way for way in self.rounds if any(r["way"] == way for r in runs)]
        every = [(load, others) for load, others in self._cases() if select(runs, load, others, PGSCALE)]
        rows = [[f"longest wait of a transaction, {load}, {others}",
                 *(_time([r["ms"]["max"] for r in select(runs, load, others, way)]) for way in ways)] for load, others in every]
        rows += [[f"length of the move, {load}, {others}",
                  *("" if way == BASELINE else _time([1000 * r["seconds"] for r in select(runs, load, others, way)]) for way in ways)]
                 for load, others in every]
        turns = ", ".join(f"{len(select(runs, *every[0], way))} of {way}" for way in ways)
        locked = [r["locked ms"] for r in runs if r["locked ms"] is not None]
        cancelled = sum(r["readers cancelled"] + r["writers cancelled"] for r in runs)
        words = f"{_size(results)} of {'index' if self.relation == INDEX else 'table'}, median (least .. greatest); turns: {turns}." + \
            (f" pgscale held the lock for {spread(locked, '{:.1f}', ' ms')}." if locked else "") + \
            (f" pg_repack cancelled {cancelled} statements of others." if cancelled else "")
        return f"{words}\n\n{table(['', *ways], rows)}"

    def published(self, results):
        yield "size", _size(results)
        for load, others, way in itertools.product(self.loads, self.idle, self.rounds):
            longest = [r["ms"]["max"] for r in select(results["runs"], load, others, way)]
            if longest:
                yield f"longest wait, {way}, {load}, {others}", _time(longest)

    def required(self, results):
        for load, others in self._cases():
            mine, without = ([r["ms"]["max"] for r in select(results["runs"], load, others, way)] for way in (PGSCALE, BASELINE))
            case = f"{self.name}: longest wait, {load}, {others}"
            if self.most:
                yield (case, spread(mine, "{:.0f} ms"), f"at most {self.most[others]} ms in the median of {len(mine)} moves",
                       stats.median(mine) <= self.most[others])
            if self.most_times:
                most = self.most_times * stats.median(without) + self.most_more_ms
                yield (f"{case}, to that without a move", spread(mine, "{:.0f} ms"), f"at most {most:.0f} ms in the median",
                       stats.median(mine) <= most)


def select(runs, *case):
    return [r for r in runs if (r["load"], r["others"], r["way"]) == case]


def _time(ms):
    if stats.median(ms) < 500:
        return spread(ms, "{:.0f}", " ms")
    return spread([each / 1000 for each in ms], "{:.0f}" if stats.median(ms) >= 10000 else "{:.1f}", " s")


def _size(results):
    return f"{results['bytes'] / 2**20:.0f} MB" if results["bytes"] < 2**30 else f"{results['bytes'] / 2**30:.1f} GB"


SMALL, LARGE = 22, 200
IDLE = {QUIET: 8, READ: 12}
PARTS = {part.name: part for part in (
    Online("stall", 150, {BASELINE: 3, PGSCALE: 3, ALTER_INDEX: 3, PG_REPACK: 3}, {PACED: ("-f", UPDATE, *MANY_CLIENTS)},
         {QUIET: 20, READ: 20}, INDEX, (3, (4000, 6000), (0, 0)), {QUIET: 150, READ: 150}),
    Online("online", SMALL, {BASELINE: 5, PGSCALE: 10, ALTER_TABLE: 3}, BOTH, IDLE, most={QUIET: 60, READ: 125}, most_times=2),
    Online("online_large", LARGE, {BASELINE: 2, PGSCALE: 3, ALTER_TABLE: 1}, BOTH, {QUIET: 30}, most={QUIET: 60}, most_times=2),
    Online("online_peers", SMALL, {BASELINE: 3, PGSCALE: 3, PG_REPACK: 3, PG_SQUEEZE: 3}, BOTH, IDLE),
    Online("synchronous", 16, {BASELINE: 4, PGSCALE: 4}, {PACED: ("-N", *FEW_CLIENTS)}, {STANDBY: 15, RECEIVEWAL: 15}, most_times=2,
         most_more_ms=50),
)}
