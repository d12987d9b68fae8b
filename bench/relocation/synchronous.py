"""The longest commit while a table moves, where commits wait for a receiver of the WAL behind a slow line; and without a move.

The receiver is a standby, or pg_receivewal. pgbench's simple updates run all the while at a rate. One load runs through all turns,
round by round, each round in a random order of its own. A turn begins when all WAL before it is confirmed, and with a checkpoint.
A commit counts if any of its transaction fell into the move or into the second after it; its time counts from when the transaction
was due.
"""
import contextlib
import time

import live
import machine
import stall
import stats
from cluster import Standby, end, run, say, value
from load import Load, latencies
from report import spread, table
from slowline import SlowLine

LINE_BYTES_PER_S = 20 * 10**6
CLIENTS, RATE = 4, stall.RATE
BASELINE, PGSCALE = live.BASELINE, live.PGSCALE
MOST_TIMES, MOST_MORE_MS = 2, 50
SETTINGS = {**stall.SETTINGS, "allow_in_place_tablespaces": "on"}
CONNECT_S = 60
# scale, rounds, seconds without a move
FULL = (16, 4, 15)
QUICK = (2, 1, 2)


def standby(server, line):
    """A standby that receives the WAL through the line."""
    return Standby(server, {"primary_conninfo": f"host=127.0.0.1 port={line.port} user=postgres"})


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


RECEIVERS = {"standby": standby, "pg_receivewal": receivewal}


@contextlib.contextmanager
def synchronous(connection):
    """Commits wait for the one receiver that there is."""
    until = time.monotonic() + CONNECT_S
    run(connection, "ALTER SYSTEM SET synchronous_standby_names = '*'")
    try:
        run(connection, "SELECT pg_reload_conf()")
        while not value(connection, "SELECT count(*) = 1 FROM pg_stat_replication WHERE state = 'streaming' AND sync_state = 'sync'"):
            if time.monotonic() > until:
                raise RuntimeError(f"no receiver of the WAL became synchronous within {CONNECT_S} s")
            time.sleep(0.1)
        yield
    finally:
        run(connection, "ALTER SYSTEM RESET synchronous_standby_names")
        run(connection, "SELECT pg_reload_conf()")


def pieces(_quick):
    return list(RECEIVERS)


RECORDS = {"runs": ("receiver", "way")}


def measure(place, quick, names):
    scale, rounds, idle = QUICK if quick else FULL
    with place.cluster("synchronous", **SETTINGS) as server, contextlib.closing(server.connect()) as connection:
        server.create_pgscale(connection)
        for name in live.TABLESPACES:
            run(connection, f"CREATE TABLESPACE {name} LOCATION ''")
        say(f"loading scale {scale}")
        server.pgbench("-i", "-s", scale, "-q", "-F", live.FILLFACTOR, f"--tablespace={live.TABLESPACES[0]}")
        for name in names:
            say(name)
            with SlowLine(server, LINE_BYTES_PER_S) as line, RECEIVERS[name](server, line), synchronous(connection):
                yield name, _piece(server, connection, name, rounds, idle)


def _piece(server, connection, receiver, rounds, idle):
    size = value(connection, "SELECT pg_relation_size(%s::regclass)", live.TABLE)
    moved = []
    with Load(server, "-N", "-c", CLIENTS, "-j", 2, "-R", RATE, log=True) as running:
        time.sleep(3)
        for number, way in stats.rounds(rounds, (BASELINE, PGSCALE)):
            # its commit waits until all before it is confirmed
            run(connection, "SELECT pg_logical_emit_message(true, 'bench', 'a turn begins')")
            moved.append((number, way, *live.move(server, connection, way, idle), machine.load()))
    at, ms = running.transactions()
    runs = []
    for number, way, found, began, ended, load in moved:
        met = (at >= began) & (at - ms / 1000 <= ended + live.AFTER_SECONDS)
        runs.append({"round": number, "receiver": receiver, "way": way, **found, "commits": int(met.sum()), "ms": latencies(ms[met]),
                     "load average": load})
        say(f"  {way}: longest {runs[-1]['ms']['max']:.0f} ms")
    return {"bytes": size, "runs": runs}


whole = live.Live.whole


def select(runs, receiver, way):
    return [r for r in runs if (r["receiver"], r["way"]) == (receiver, way)]


def cases(runs):
    return [(receiver, way) for receiver in RECEIVERS for way in (BASELINE, PGSCALE) if select(runs, receiver, way)]


def show(results):
    runs, size = results["runs"], results["bytes"]
    rows = []
    for receiver, way in cases(runs):
        mine = select(runs, receiver, way)
        rate = spread([size / 1e6 / r["seconds"] for r in mine], "{:.1f}") if way == PGSCALE else ""
        rows.append([receiver, way, len(mine), spread([r["ms"]["max"] for r in mine], "{:,.0f}"),
                     spread([r["ms"]["p99"] for r in mine], "{:,.1f}"), spread([r["ms"]["p50"] for r in mine], "{:,.1f}"),
                     spread([r["seconds"] for r in mine], "{:.1f}"), rate, spread([r["WAL bytes"] / 1e6 for r in mine], "{:,.0f}"),
                     spread([r["load average"] for r in mine], "{:.1f}")])
    described = f"{size / 1e6:,.0f} MB of table, {CLIENTS} clients, {RATE} transactions/s, a line of {LINE_BYTES_PER_S / 1e6:.0f} MB/s; " \
        "median (least .. greatest)"
    return described + "\n\n" + table(["commits wait for", "", "turns", "longest commit, ms", "p99, ms", "p50, ms", "the move, s",
                                       "table, MB/s", "WAL of all, MB", "load average"], rows)


def published(results):
    yield "table", f"{results['bytes'] / 1e6:.0f} MB"
    for receiver, way in cases(results["runs"]):
        mine = select(results["runs"], receiver, way)
        case = f"{way}, {receiver}"
        yield f"turns, {case}", str(len(mine))
        yield f"longest commit, {case}", spread([r["ms"]["max"] for r in mine], "{:,.0f}", " ms")
        yield f"took, {case}", f"{stats.median([r['seconds'] for r in mine]):.0f} s"


def required(results):
    for receiver in RECEIVERS:
        without, beside = ([r["ms"]["max"] for r in select(results["runs"], receiver, way)] for way in (BASELINE, PGSCALE))
        if without and beside:
            most = MOST_TIMES * stats.median(without) + MOST_MORE_MS
            yield (f"synchronous: longest commit with a move, {receiver}", spread(beside, "{:,.0f} ms"),
                   f"at most {MOST_TIMES} x the median without + {MOST_MORE_MS} ms = {most:,.0f} ms, in each move", max(beside) <= most)
