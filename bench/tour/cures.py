"""Loads that show what a major has cured: throughput, and the time in the waits that the cure is about, major by major.

A run measures the major that PG_CONFIG names, or as .ci/majors has it; the others keep their results.
"""
import contextlib
import dataclasses

import stats
from cluster import run, say
from load import OF_ALL_PARTITIONS, parted
from report import percent, spread, table

RECORDS = {"": ("load", "major")}
MAJORS = (15, 16, 17, 18, 19)
CLIENTS, ROUNDS, SECONDS = 32, 4, 3
QUICK = (8, 1, 1)
SETTINGS = {"shared_preload_libraries": "pgscale", "shared_buffers": "1540MB", "max_connections": 100, "max_wal_size": "16GB",
            "jit": "off", "max_locks_per_transaction": 256}

# of the time of sessions within their statements; kinds as in wait_meanings
KINDS = """
    SELECT coalesce(sum(wait_ms) FILTER (WHERE pgscale.wait_kind(event_type, event) = ANY (%s)) / sum(wait_ms), 0)
      FROM pgscale_internal.wait_profile()
     WHERE backend_type = 'client backend' AND NOT idle AND event_type NOT IN ('Client', 'Extension')"""
PARTITIONS = 50
STATUS_ROWS = 150000


@dataclasses.dataclass(frozen=True)
class Load:
    cured_in: int
    cure: str
    kinds: tuple            # of the waits that it cures
    script: str             # for pgbench
    setup: str
    before: str = ""        # each cell
    held: tuple = ()        # what a transaction that stays open has done, and what others do meanwhile
    prepared: bool = True


LOADS = {
    "inserts into one table": Load(
        16, "a relation is extended by many pages at a time", ("lock_extend", "data_extend"),
        "INSERT INTO grown SELECT repeat('x', 500) FROM generate_series(1, 200);\n",
        "CREATE UNLOGGED TABLE grown (v text)",
        before="TRUNCATE grown"),
    "rows of 150,000 subtransactions": Load(
        17, "SLRU caches have banks with a lock each, and a size", ("subtrans", "slru_io", "xact"),
        f"\\set id random(1, {STATUS_ROWS - 50})\nSELECT sum(v) FROM looked_up WHERE id BETWEEN :id AND :id + 49;\n",
        """CREATE TABLE looked_up (id int PRIMARY KEY, v int);
           CREATE PROCEDURE fill(base int, n int, step bigint) LANGUAGE plpgsql AS $$
           BEGIN
               FOR i IN 1 .. n LOOP
                   BEGIN
                       -- neighbours in the index are far from each other in the order of transactions
                       INSERT INTO looked_up VALUES (base + i * step % n, 0);
                   EXCEPTION WHEN unique_violation THEN
                       NULL;
                   END;
               END LOOP;
           END $$""",
        # more subtransactions than a snapshot has room for, so that it must look up the parent of each transaction since
        held=("CALL fill(-1000, 100, 1)", f"CALL fill(0, {STATUS_ROWS}, 7919)")),
    f"a query of {PARTITIONS} partitions": Load(
        18, "max_locks_per_transaction sets the number of fast-path locks", ("lock_manager",),
        OF_ALL_PARTITIONS, parted(PARTITIONS)),
    "tables emptied and filled": Load(
        19, "no freelist and no spinlock for it: buffers of dropped files are found by the clock sweep", ("spin",),
        "BEGIN;\nTRUNCATE emptied:client_id;\nINSERT INTO emptied:client_id SELECT generate_series(1, 5000);\nCOMMIT;\n",
        "DO $$ BEGIN FOR i IN 0 .. 999 LOOP EXECUTE format('CREATE TABLE emptied%s (i int)', i); END LOOP; END $$",
        prepared=False),
}


def pieces(quick):
    return list(LOADS)


def measure(place, quick, names):
    clients, rounds, seconds = QUICK if quick else (CLIENTS, ROUNDS, SECONDS)
    for number, name in enumerate(names):
        say(name)
        load = LOADS[name]
        script = place.script(f"cure-{load.cured_in}.sql", load.script)
        with place.cluster(f"cure-{number}", **SETTINGS) as server, contextlib.closing(server.connect()) as connection, \
                contextlib.closing(server.connect()) as holder:
            server.create_pgscale(connection)
            run(connection, load.setup)
            holder.autocommit = False
            for each, statement in zip((holder, connection), load.held):
                run(each, statement)
            run(connection, "CHECKPOINT")
            options = ("-n", "-c", clients, "-j", 2, "-T", seconds, "-M", "prepared" if load.prepared else "simple", "-f", script)
            yield name, [{"load": name, "major": str(place.major), "round": each, **_cell(server, connection, load, options)}
                         for each in range(rounds)]


def _cell(server, connection, load, options):
    if load.before:
        run(connection, load.before)
    run(connection, "SELECT pgscale.reset('sampler')")
    tps = server.pgbench(*options)
    share = run(connection, KINDS, list(load.kinds))[0][0]
    run(connection, "CHECKPOINT")
    return {"tps": tps, "share": share}


def whole(found):
    return sum(found.values(), [])


def merged(before, found):
    """Results of other loads and of other majors stay."""
    anew = {(cell["load"], cell["major"]) for cell in found}
    return [cell for cell in before if (cell["load"], cell["major"]) not in anew] + found


def show(results):
    rows = []
    for name, load in LOADS.items():
        of = {major: [cell for cell in results if (cell["load"], cell["major"]) == (name, str(major))] for major in MAJORS}
        rows.append([name, f"{load.cured_in}: {load.cure}", "tps",
                     *(spread([cell["tps"] for cell in cells], "{:,.0f}") if cells else "" for cells in of.values())])
        rows.append(["", "", "time in " + ", ".join(load.kinds),
                     *(percent(stats.median([cell["share"] for cell in cells])) if cells else "" for cells in of.values())])
    return table(["load", "cured in", "", *map(str, MAJORS)], rows)


def caption(results):
    return f"\n\nPostgreSQL {', '.join(sorted({cell['major'] for cell in results}))}; a run measures one major."


def required(results):
    return []
