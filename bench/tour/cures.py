"""Loads that show what a major has cured: throughput, and the time in the waits that the cure is about, major by major."""
import contextlib
import dataclasses

import majors
import sizes
import stats
from cluster import run, say
from report import percent, spread, table
from sweep import block

RECORDS = {"cells": ("load", "major")}

# of the time of sessions within their statements; kinds as in wait_meanings
KINDS = """
    SELECT coalesce(sum(wait_ms) FILTER (WHERE pgscale.wait_kind(event_type, event) = ANY (%s)) / sum(wait_ms), 0)
      FROM pgscale.wait_profile()
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
        "\\set k random(1, 10000)\nSELECT v FROM parted WHERE other = :k;\n",
        "CREATE TABLE parted (k int, other int, v text) PARTITION BY HASH (k);" + "".join(
            f"CREATE TABLE parted{number} PARTITION OF parted FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {number});"
            for number in range(PARTITIONS)) +
        "INSERT INTO parted SELECT i, i, 'x' FROM generate_series(1, 10000) i; CREATE INDEX ON parted (other)"),
    "tables emptied and filled": Load(
        19, "no freelist and no spinlock for it: buffers of dropped files are found by the clock sweep", ("spin",),
        "BEGIN;\nTRUNCATE emptied:client_id;\nINSERT INTO emptied:client_id SELECT generate_series(1, 5000);\nCOMMIT;\n",
        "DO $$ BEGIN FOR i IN 0 .. 999 LOOP EXECUTE format('CREATE TABLE emptied%s (i int)', i); END LOOP; END $$",
        prepared=False),
}


def pieces(quick):
    return sizes.pieces(LOADS, quick)


def measure(place, quick, names):
    of = sizes.sizes(quick)
    rounds = 2 * of.rounds
    # half of the most that the other parts have: enough to meet at a lock
    clients = max(1, of.most // 2)
    for piece in names:
        name = piece.split(":")[0]
        load = LOADS[name]
        script = place.script(f"cure-{load.cured_in}.sql", load.script)
        with majors.running(place, shared_buffers=of.large, max_connections=of.most + 20, max_locks_per_transaction=256,
                            synchronous_commit="off") as connections, contextlib.ExitStack() as stack:
            inside = {major: stack.enter_context(contextlib.closing(majors.servers(place)[major].connect("tour"))) for major in connections}
            for major in connections:
                say(f"{name}: {major} gets its tables")
                _prepare(stack, majors.servers(place)[major], inside[major], load)
            cells = []
            for number, major in stats.rounds(rounds, connections):
                say(f"{name}, round {number + 1}, {major}")
                cells.append({"load": name, "major": major, "round": number,
                              **_cell(majors.servers(place)[major], connections[major], inside[major], load, clients, of.seconds, script)})
            yield piece, {"cells": cells, "versions": majors.versions(connections), "clients": clients,
                          "conditions": f"{rounds} rounds of {of.seconds} s, {of.large} of shared buffers, max_locks_per_transaction 256"}


def _prepare(stack, server, inside, load):
    run(inside, load.setup)
    if load.held:
        holder = stack.enter_context(contextlib.closing(server.connect("tour")))
        holder.autocommit = False
        for connection, statement in zip((holder, inside), load.held):
            run(connection, statement)
    run(inside, "CHECKPOINT")


def _cell(server, connection, inside, load, clients, seconds, script):
    if load.before:
        run(inside, load.before)
    run(connection, "SELECT pgscale.reset('sampler')")
    tps = server.load(clients, seconds, "-M", "prepared" if load.prepared else "simple", "-f", script)
    share = run(connection, KINDS, list(load.kinds))[0][0]
    run(connection, "CHECKPOINT")
    return {"tps": tps, "share": share}


def whole(found):
    first, *_ = found.values()
    return {**first, "cells": sum((piece["cells"] for piece in found.values()), [])}


def show(results):
    return conditions(results) + "."


def conditions(results):
    return f"{results['clients']} clients, {results['conditions']}"


def cures(results):
    rows = []
    for name, load in LOADS.items():
        of = {major: [cell for cell in results["cells"] if (cell["load"], cell["major"]) == (name, major)]
              for major in results["versions"]}
        rows.append([name, f"{load.cured_in}: {load.cure}", "tps",
                     *(spread([cell["tps"] for cell in cells], "{:,.0f}") for cells in of.values()), gain(of, load.cured_in)])
        rows.append(["", "", "time in " + ", ".join(load.kinds),
                     *(percent(stats.median([cell["share"] for cell in cells])) for cells in of.values()), ""])
    return table(["load", "cured in", "", *results["versions"], "with the cure, times the major before"], rows)


def gain(of, cured_in):
    """Round by round; nothing if one of the two was not there."""
    before, after = (of.get(str(major), ()) for major in (cured_in - 1, cured_in))
    each = [new["tps"] / old["tps"] for new, old in zip(after, before)]
    return spread(each, "{:.2f}") if each else ""


def published(results):
    yield "conditions", conditions(results)
    yield "cures", block(cures(results))


def required(results):
    return []
