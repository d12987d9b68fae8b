"""The longest time that a writer waits while an index moves: by pgscale, ALTER INDEX, pg_repack, and without a move.

Clients update random rows at a fixed rate in all: so many clients that the rate holds while each waits for a second.
Each round has all ways in a random order, once with nobody
else, once with readers of which there always is one; every move goes from one tablespace to the other, both in ordinary
folders. A transaction's latency counts from when it was due, and counts if any of it fell into the move.
"""
import contextlib
import itertools
import pathlib
import subprocess
import time

import mover
import stats
from cluster import end, run, say, value
from load import Load, latencies
from report import spread, table

TABLE, INDEX = "pgbench_accounts", "pgbench_accounts_pkey"
CLIENTS = 64
RATE = 50
READERS = 3
READ_MS = (4000, 6000)
LIMIT_MS = 150
CANCELLED = "canceling statement"
UPDATE = pathlib.Path(__file__).with_name("update.sql")
TABLESPACES = ("here", "there")
BASELINE, PGSCALE = "no move", "pgscale"
WAYS = {
    BASELINE: None,
    PGSCALE: mover.by_pgscale,
    "ALTER INDEX": mover.by_alter_index,
    "pg_repack": mover.by_pg_repack,
}
QUIET, READ = "quiet", "long readers"
SETTINGS = {"shared_preload_libraries": "pgscale", "shared_buffers": "1GB", "synchronous_commit": "on",
            "maintenance_work_mem": "256MB", "max_wal_size": "8GB"}
# scale, rounds, seconds without a move, seconds before and after
FULL = (150, 3, 20, 3)
QUICK = (15, 1, 5, 2)


@contextlib.contextmanager
def readers(server, number, read_ms=READ_MS, pause_ms=(0, 0)):
    """So many sessions that read the table by its index, each for a random time, with pauses: they overlap.

    Yields a function that tells how many of them were cancelled since, and so ended.
    """
    if not number:
        yield lambda: 0
        return
    script, errors = server.folder / "read.sql", server.folder / "read.errors"
    pause = "\\set pause random({}, {})\n\\sleep :pause ms\n".format(*pause_ms) if pause_ms[1] else ""
    script.write_text("\\set aid random(1, 100000)\n\\set ms random({}, {})\n".format(*read_ms) +
                      f"SELECT abalance, pg_sleep(:ms / 1000.0) FROM {TABLE} WHERE aid = :aid;\n{pause}")
    with open(errors, "w") as file:
        reading = server.place.popen(["pgbench", "-h", server.folder, "-U", "postgres", "-n", "-f", script,
                                      "-c", number, "-T", 3600, "postgres"], stdout=subprocess.DEVNULL, stderr=file)
    try:
        yield lambda: errors.read_text().count(CANCELLED)
    finally:
        end(reading)


def one(server, connection, way, others, scale, idle, beside):
    """Measures one move."""
    move = WAYS[way]
    run(connection, "CHECKPOINT")
    target = TABLESPACES[mover.tablespace_of(connection, INDEX) == TABLESPACES[0]]
    load = Load(server, "-f", UPDATE, "-s", scale, "-c", CLIENTS, "-j", 2, "-R", RATE, log=True, may_fail=True)
    with readers(server, READERS if others == READ else 0) as cancelled, load:
        time.sleep(beside)
        began = time.time()
        if move:
            move(server, INDEX, target)
        else:
            time.sleep(idle)
        ended = time.time()
        time.sleep(beside)
        readers_cancelled = cancelled()
    if move and mover.tablespace_of(connection, INDEX) != target:
        raise RuntimeError(f"{INDEX} is not in {target}")
    at, ms = load.transactions()
    met = (at >= began) & (at - ms / 1000 <= ended)
    found = {"way": way, "others": others, "seconds": ended - began, "transactions": int(met.sum()),
             "ms": latencies(ms[met]), "waited long": int((ms[met] > LIMIT_MS).sum()),
             "readers cancelled": readers_cancelled, "writers cancelled": load.errors(CANCELLED)}
    say(f"  {way}, {others}: {found['seconds']:.1f} s, longest {found['ms']['max']:.0f} ms")
    return found


RECORDS = {"runs": ("way", "others")}


def measure(place, quick):
    scale, rounds, idle, beside = QUICK if quick else FULL
    with place.cluster("stall", **SETTINGS) as server, contextlib.closing(server.connect()) as connection:
        server.create_pgscale(connection)
        run(connection, "CREATE EXTENSION pg_repack")
        for name in TABLESPACES:
            folder = place.folder / name
            folder.mkdir()
            place.give(folder)
            run(connection, f"CREATE TABLESPACE {name} LOCATION '{folder}'")
        say(f"loading scale {scale}")
        server.pgbench("-i", "-s", scale, "-q")
        run(connection, f"ALTER INDEX {INDEX} SET TABLESPACE {TABLESPACES[0]}")
        size = value(connection, "SELECT pg_relation_size(%s::regclass)", INDEX)
        runs = [{"round": number, **one(server, connection, way, others, scale, idle, beside)}
                for number, (way, others) in stats.rounds(rounds, itertools.product(WAYS, (QUIET, READ)))]
        return {"bytes": size, "runs": runs}


def select(runs, way, others):
    return [r for r in runs if (r["way"], r["others"]) == (way, others)]


def show(results):
    runs = results["runs"]
    described = f"{results['bytes'] / 2**20:.0f} MiB of index, {CLIENTS} clients, {RATE} transactions/s; median " \
        f"(least .. greatest) of rounds: {len(select(runs, PGSCALE, QUIET))}"
    rows = []
    for others, way in itertools.product((QUIET, READ), WAYS):
        mine = select(runs, way, others)
        rows.append([others, way, spread([r["ms"]["max"] for r in mine], "{:,.0f}"),
                     spread([r["waited long"] for r in mine], "{:,.0f}"),
                     spread([r["ms"]["p99"] for r in mine], "{:,.0f}"),
                     spread([r["ms"]["p50"] for r in mine], "{:.1f}"),
                     spread([r["seconds"] for r in mine], "{:.1f}"),
                     spread([r["readers cancelled"] for r in mine], "{:.0f}"),
                     spread([r["writers cancelled"] for r in mine], "{:.0f}")])
    return described + "\n\n" + table(["", "", "longest wait of a writer, ms", f"that waited > {LIMIT_MS} ms",
                                       "p99, ms", "p50, ms", "the move, s", "readers cancelled",
                                       "writers cancelled"], rows)


def published(results):
    yield "index", f"{results['bytes'] / 2**20:.0f} MB"
    for way, others in itertools.product(WAYS, (QUIET, READ)):
        mine = select(results["runs"], way, others)
        longest, took = [r["ms"]["max"] for r in mine], [r["seconds"] for r in mine]
        if stats.median(longest) < 500:
            yield f"longest wait, {way}, {others}", spread(longest, "{:.0f}", " ms")
        else:
            seconds = [ms / 1000 for ms in longest]
            yield f"longest wait, {way}, {others}", spread(seconds, "{:.1f}" if stats.median(seconds) >= 1 else "{:.2f}", " s")
        yield f"longest wait in seconds, {way}, {others}", f"{stats.median(longest) / 1000:.2f} s"
        yield f"took, {way}, {others}", f"{stats.median(took):.{0 if stats.median(took) >= 10 else 1}f} s"


def required(results):
    for others in (QUIET, READ):
        longest = [r["ms"]["max"] for r in select(results["runs"], PGSCALE, others)]
        yield (f"stall: longest wait of a writer, {others}", spread(longest, "{:.0f} ms"),
               f"at most {LIMIT_MS} ms in each round", max(longest) <= LIMIT_MS)
