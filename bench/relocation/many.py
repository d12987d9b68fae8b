"""Thousands of small tables: what each of so many jobs takes, and ALTER TABLE ALL IN TABLESPACE, which locks all of them at once.

Tables of one row move from one tablespace to the other by relocate_tablespace, and back by ALTER TABLE ALL. Nothing else runs.
"""
import contextlib
import time

import online
from cluster import run, say, value
from report import table

SOURCE, TARGET = TABLESPACES = online.TABLESPACES
PGSCALE, ALTER = "pgscale", "ALTER TABLE ALL"
LEAST_PER_S = 50
MOST_TIMES = 1.5
A_TRANSACTION = 1000
# ALTER TABLE ALL takes as many locks, at 100 connections
LOCKS = 512
SETTINGS = {**online.SETTINGS, "allow_in_place_tablespaces": "on", "max_locks_per_transaction": LOCKS}
RECORDS = {"runs": ("tables", "way")}


def pieces(quick):
    return ["200"] if quick else ["1000", "10000", "40000"]


def measure(place, _quick, names):
    for name in names:
        with place.cluster(f"many{name}", **SETTINGS) as server, contextlib.closing(server.connect()) as connection:
            server.create_pgscale(connection)
            for tablespace in TABLESPACES:
                run(connection, f"CREATE TABLESPACE {tablespace} LOCATION ''")
            yield name, _piece(server, connection, int(name))


def _piece(server, connection, tables):
    say(f"{tables} tables")
    for first in range(0, tables, A_TRANSACTION):
        run(connection, f"""DO $$ BEGIN FOR i IN {first + 1} .. {min(first + A_TRANSACTION, tables)} LOOP
            EXECUTE format('CREATE TABLE small_%s TABLESPACE {SOURCE} AS SELECT 1', i); END LOOP; END $$""")
    run(connection, "CHECKPOINT")
    runs = []
    for way, move in ((PGSCALE, by_pgscale), (ALTER, by_alter)):
        began = time.monotonic()
        move(connection)
        seconds = time.monotonic() - began
        runs.append({"tables": tables, "way": way, "seconds": seconds})
        say(f"  {way}: {seconds:.1f} s, {tables / seconds:.0f} a second")
    return runs


def by_pgscale(connection):
    run(connection, "SELECT count(*) FROM pgscale.relocate_tablespace(%s, %s)", SOURCE, TARGET)
    while True:
        time.sleep(1)
        failed, left = run(connection, "SELECT count(*) FILTER (WHERE state IN ('failed', 'cancelled', 'lost')),"
                                       " count(*) FILTER (WHERE state <> 'done') FROM pgscale_internal.relocation_job")[0]
        if failed:
            raise RuntimeError(f"{failed} jobs failed")
        if not left:
            return


def by_alter(connection):
    run(connection, f"ALTER TABLE ALL IN TABLESPACE {TARGET} SET TABLESPACE {SOURCE}")
    if value(connection, "SELECT count(*) FROM pg_class c JOIN pg_tablespace t ON t.oid = c.reltablespace WHERE spcname = %s", TARGET):
        raise RuntimeError("a table has stayed")


def whole(found):
    return {"runs": [r for runs in found.values() for r in runs]}


def select(runs, way):
    return {r["tables"]: r for r in runs if r["way"] == way}


def show(results):
    ours, theirs = (select(results["runs"], way) for way in (PGSCALE, ALTER))
    rows = [[f"{n:,}", f"{r['seconds']:.0f}", f"{n / r['seconds']:.0f}", f"{theirs[n]['seconds']:.1f}", f"{n / theirs[n]['seconds']:,.0f}"]
            for n, r in sorted(ours.items())]
    return table(["tables", "relocate_tablespace, s", "tables/s", "ALTER TABLE ALL, s", "tables/s"], rows)


def required(results):
    ours = select(results["runs"], PGSCALE)
    few, many = min(ours), max(ours)
    rate = many / ours[many]["seconds"]
    yield f"many: jobs a second, {many:,}", f"{rate:.0f}", f"at least {LEAST_PER_S}", rate >= LEAST_PER_S
    if few < many:
        times = ours[many]["seconds"] / many / (ours[few]["seconds"] / few)
        yield f"many: time of a job among {many:,}, of that among {few:,}", f"{times:.2f}", f"at most {MOST_TIMES}", times <= MOST_TIMES
