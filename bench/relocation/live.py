"""The longest wait of a transaction while a table moves to another tablespace: by pgscale, by other ways, and without a move.

pgbench's simple updates run all the while, at a rate or as fast as they can, once with nobody else, once with readers. A
load starts once, and then all ways have their turns, round by round, each round in a random order of its own, with a checkpoint
before each turn. The table goes from one tablespace to the other, both in ordinary folders. A transaction counts if any
of it fell into the move or into the second after it, in which the server still removes files; at a rate, its time counts from
when it was due.
"""
import contextlib
import dataclasses
import itertools
import pathlib
import time

import mover
import stall
import stats
from cluster import run, say, value
from load import Load, latencies
from report import spread, table

TABLE, TABLESPACES = stall.TABLE, stall.TABLESPACES
CLIENTS, RATE = stall.CLIENTS, stall.RATE
PACED, FULL_SPEED = f"{RATE} tx/s", "full speed"
LOADS = {PACED: ("-N", "-c", CLIENTS, "-j", 2, "-R", RATE), FULL_SPEED: ("-N", "-c", 4, "-j", 2)}
QUIET, READ = "quiet", "long readers"
READERS, READ_MS, PAUSE_MS = 2, (3000, 3000), (0, 2000)
# room for new versions in each page, as a table has that VACUUM keeps up with: it does not grow from move to move
FILLFACTOR = 80
AFTER_SECONDS = 1
MOST_MS = {QUIET: 60, READ: 125}
MOST_TIMES = 2
BASELINE, PGSCALE, ALTER = "no move", "pgscale", "ALTER TABLE"
PG_REPACK, PG_SQUEEZE, REPACK = "pg_repack", "pg_squeeze", "REPACK (CONCURRENTLY)"
MOVES = {PGSCALE: mover.table_by_pgscale, ALTER: mover.by_alter_table, PG_REPACK: mover.table_by_pg_repack,
         PG_SQUEEZE: mover.by_pg_squeeze, REPACK: mover.by_repack}
# what not every server has
EXTENSIONS = (PG_REPACK, PG_SQUEEZE)
IN_PLACE = (REPACK,)
REPACK_SINCE = 19
PLUGINS = "output_plugin_libraries"


def is_there(place, way):
    if way in EXTENSIONS:
        return pathlib.Path(place.ask("--sharedir"), "extension", f"{way}.control").exists()
    return way != REPACK or place.major >= REPACK_SINCE


def turns(rounds):
    """Of so many rounds for each way, the turns in their order: those with fewer are spread over all rounds."""
    most = max(rounds.values())
    return [(number, way) for number, way in stats.rounds(most, rounds)
            if (number + 1) * rounds[way] // most > number * rounds[way] // most]


def move(server, connection, way, idle):
    """Has a way its turn. Returns what there is to tell, and when it began and ended."""
    run(connection, "CHECKPOINT")
    time.sleep(1)
    target = TABLESPACES[mover.tablespace_of(connection, TABLE) == TABLESPACES[0]]
    lsn = value(connection, "SELECT pg_current_wal_insert_lsn()")
    began = time.time()
    if way == BASELINE:
        time.sleep(idle)
        found = None
    else:
        found = MOVES[way](server, TABLE, target)
    ended = time.time()
    written = value(connection, "SELECT (pg_current_wal_insert_lsn() - %s)::bigint", lsn)
    time.sleep(AFTER_SECONDS)
    if way != BASELINE and way not in IN_PLACE and mover.tablespace_of(connection, TABLE) != target:
        raise RuntimeError(f"{way} did not move {TABLE} to {target}")
    say(f"  {way}: {ended - began:.1f} s")
    copy = {name: found[name] for name in mover.COPY} if found else {}
    return {"seconds": ended - began, "WAL bytes": written, **copy}, began, ended


@dataclasses.dataclass(frozen=True)
class Live:
    """A part of the experiment."""

    name: str
    scale: int
    rounds: dict                # of each way
    others: tuple               # beside the load
    idle: dict                  # seconds without a move, by who else is there
    peers: tuple = ()           # one of these must be there, or nothing is measured
    limits: bool = False        # is anything required?
    settings: dict = dataclasses.field(default_factory=dict)

    RECORDS = {"runs": ("load", "others", "way")}

    def pieces(self, quick):
        return [f"{load}, {others}" for load, others in self._cases()]

    def _cases(self):
        return list(itertools.product(LOADS, self.others))

    def measure(self, place, quick, names):
        ways = {way: 1 if quick else number for way, number in self.rounds.items() if way in (BASELINE, PGSCALE, ALTER) or is_there(place, way)}
        if self.peers and not any(way in ways for way in self.peers):
            say(f"there is no {' and no '.join(self.peers)} for PostgreSQL {place.major}")
            yield from ((name, None) for name in names)
            return
        with self._bed(place, ways, 3 if quick else self.scale) as (server, connection):
            for load, others in self._cases():
                if f"{load}, {others}" in names:
                    yield f"{load}, {others}", self._piece(server, connection, ways, load, others, quick)

    @contextlib.contextmanager
    def _bed(self, place, ways, scale):
        libraries = ["pgscale", *(way for way in ways if way == PG_SQUEEZE)]
        settings = {**stall.SETTINGS, **self.settings, "shared_preload_libraries": ",".join(libraries)}
        if PG_SQUEEZE in ways or REPACK in ways:
            settings["wal_level"] = "logical"
        # minor versions since 2026 use no other plugins than these
        if PG_SQUEEZE in ways and PLUGINS in place.run(["postgres", "--describe-config"]):
            settings[PLUGINS] = f"pgoutput,test_decoding,{PG_SQUEEZE}"
        with place.cluster(self.name, **settings) as server, contextlib.closing(server.connect()) as connection:
            server.create_pgscale(connection)
            for way in ways:
                if way in EXTENSIONS:
                    run(connection, f"CREATE EXTENSION {way}")
            for name in TABLESPACES:
                folder = place.folder / f"{self.name}-{name}"
                folder.mkdir()
                place.give(folder)
                run(connection, f"CREATE TABLESPACE {name} LOCATION '{folder}'")
            say(f"loading scale {scale}")
            server.pgbench("-i", "-s", scale, "-q", "-F", FILLFACTOR, f"--tablespace={TABLESPACES[0]}")
            yield server, connection

    def _piece(self, server, connection, ways, load, others, quick):
        say(f"{load}, {others}")
        size = value(connection, "SELECT pg_relation_size(%s::regclass)", TABLE)
        idle = 2 if quick else self.idle[others]
        moved = []
        with stall.readers(server, READERS if others == READ else 0, READ_MS, PAUSE_MS) as cancelled, \
                Load(server, *LOADS[load], log=True, may_fail=True) as running:
            time.sleep(3)
            for number, way in turns(ways):
                before = cancelled(), running.errors(stall.CANCELLED)
                found = move(server, connection, way, idle)
                moved.append((number, way, *found, cancelled() - before[0], running.errors(stall.CANCELLED) - before[1]))
        at, ms = running.transactions()
        runs = []
        for number, way, found, began, ended, readers, writers in moved:
            met = (at >= began) & (at - ms / 1000 <= ended + AFTER_SECONDS)
            runs.append({"round": number, "load": load, "others": others, "way": way, **found,
                         "tps": float(((at >= began) & (at < ended)).sum() / (ended - began)), "ms": latencies(ms[met]),
                         "readers cancelled": readers, "writers cancelled": writers})
            say(f"  {way}: longest {runs[-1]['ms']['max']:.0f} ms")
        return {"bytes": size, "runs": runs}

    @staticmethod
    def whole(found):
        measured = [each for each in found.values() if each]
        if not measured:
            return None
        return {"bytes": measured[0]["bytes"], "runs": [r for each in measured for r in each["runs"]]}

    def show(self, results):
        if results is None:
            return f"Not measured: this server has no {' and no '.join(self.peers)}."
        runs = results["runs"]
        described = f"{results['bytes'] / 2**20:,.0f} MiB of table; median (least .. greatest)"
        return "\n\n".join([described, _show_waits(runs), _show_copies(runs)])

    def published(self, results):
        if results is None:
            return
        yield "table", f"{results['bytes'] / 2**20:.0f} MB" if results["bytes"] < 2**30 else f"{results['bytes'] / 2**30:.1f} GB"
        for load, others, way in cases(results["runs"]):
            mine = select(results["runs"], load, others, way)
            case = f"{way}, {load}, {others}"
            longest, took = [r["ms"]["max"] for r in mine], [r["seconds"] for r in mine]
            yield f"moves, {case}", str(len(mine))
            yield f"longest wait, {case}", _time(longest)
            yield f"longest wait in seconds, {case}", f"{stats.median(longest) / 1000:.2f} s"
            yield f"worst wait, {case}", _time([max(longest)])
            yield f"took, {case}", f"{stats.median(took):.{0 if stats.median(took) >= 10 else 1}f} s"
            if way == PGSCALE:
                yield f"lock held, {case}", spread([r["locked ms"] for r in mine], "{:.1f}", " ms")
        yield "most times without", f"{max(times_without(results['runs'], *case) for case in self._cases()):.1f} times"

    def required(self, results):
        if results is None or not self.limits:
            return
        for load, others in self._cases():
            longest = [r["ms"]["max"] for r in select(results["runs"], load, others, PGSCALE)]
            most, times = MOST_MS[others], times_without(results["runs"], load, others)
            yield (f"{self.name}: longest wait, {load}, {others}", spread(longest, "{:.0f} ms"),
                   f"at most {most} ms in the median of {len(longest)} moves", stats.median(longest) <= most)
            yield (f"{self.name}: longest wait with a move / without, medians, {load}, {others}", f"{times:.1f}",
                   f"at most {MOST_TIMES}", times <= MOST_TIMES)


def cases(runs):
    return list(dict.fromkeys((r["load"], r["others"], r["way"]) for way in (BASELINE, *MOVES) for r in runs if r["way"] == way))


def select(runs, *case):
    return [r for r in runs if (r["load"], r["others"], r["way"]) == case]


def times_without(runs, load, others):
    """How many times as long as without a move the longest wait is, in the medians."""
    with_move, without = ([r["ms"]["max"] for r in select(runs, load, others, way)] for way in (PGSCALE, BASELINE))
    return stats.median(with_move) / stats.median(without)


def _time(ms):
    if stats.median(ms) < 500:
        return spread(ms, "{:.0f}", " ms")
    return spread([each / 1000 for each in ms], "{:.1f}", " s")


def _in_order(runs):
    return sorted(cases(runs), key=lambda case: (list(LOADS).index(case[0]), case[1] != QUIET))


def _show_waits(runs):
    rows = []
    for case in _in_order(runs):
        mine = select(runs, *case)
        rows.append([*case, len(mine), spread([r["ms"]["max"] for r in mine], "{:,.0f}"), spread([r["ms"]["p99"] for r in mine], "{:,.1f}"),
                     spread([r["ms"]["p50"] for r in mine], "{:,.1f}"), spread([r["tps"] for r in mine], "{:,.0f}"),
                     spread([r["seconds"] for r in mine], "{:.1f}"), spread([r["WAL bytes"] / 2**20 for r in mine], "{:,.0f}"),
                     sum(r["readers cancelled"] for r in mine), sum(r["writers cancelled"] for r in mine)])
    return table(["load", "", "", "turns", "longest wait of a transaction, ms", "p99, ms", "p50, ms", "transactions/s", "the move, s",
                  "WAL of all, MiB", "readers cancelled", "writers cancelled"], rows)


def _show_copies(runs):
    rows = []
    for load, others, way in _in_order(runs):
        if way == PGSCALE:
            mine = select(runs, load, others, way)
            rows.append([load, others, spread([r["locked ms"] for r in mine], "{:.1f}"), spread([r["lock tries"] for r in mine], "{:.0f}"),
                         spread([r["copied bytes"] / 2**20 for r in mine], "{:,.0f}"),
                         spread([r["copied again"] for r in mine], "{:,.0f}"), spread([r["WAL read"] / 2**20 for r in mine], "{:,.0f}")])
    return table(["load", "", "pgscale: lock held, ms", "tries", "copied, MiB", "blocks copied again", "WAL read, MiB"], rows)


IDLE = {QUIET: 8, READ: 12}
SMALL, LARGE = 22, 200
PARTS = {part.name: part for part in (
    Live("live", SMALL, {BASELINE: 5, PGSCALE: 10, ALTER: 3}, (QUIET, READ), IDLE, limits=True),
    Live("live_large", LARGE, {BASELINE: 2, PGSCALE: 3, ALTER: 1}, (QUIET,), {QUIET: 30}, limits=True, settings={"max_wal_size": "16GB"}),
    Live("live_peers", SMALL, {BASELINE: 3, PGSCALE: 3, PG_REPACK: 3, PG_SQUEEZE: 3}, (QUIET, READ), IDLE, peers=EXTENSIONS),
    Live("live_repack", SMALL, {BASELINE: 3, PGSCALE: 3, REPACK: 3}, (QUIET, READ), IDLE, peers=(REPACK,)),
)}
