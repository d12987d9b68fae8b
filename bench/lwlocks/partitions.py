"""A query that locks all partitions of a table: more locks than a session has fast-path slots for, before PostgreSQL 18."""
import contextlib

import stats
from cluster import run, say
from report import table

import waits

PARTITIONS = 100
CLIENTS = (1, 8, 32)
SECONDS, ROUNDS = 15, 1
QUICK = {"CLIENTS": (1, 32), "SECONDS": 1, "ROUNDS": 1}
# one finds its partition, the other looks into all of them, as without the key in its condition
QUERIES = {"one partition": "SELECT v FROM parted WHERE k = :k", "all partitions": "SELECT v FROM parted WHERE other = :k"}


def create(connection):
    run(connection, "CREATE TABLE parted (k int, other int, v text) PARTITION BY HASH (k)")
    for number in range(PARTITIONS):
        run(connection, f"CREATE TABLE parted{number} PARTITION OF parted FOR VALUES WITH (MODULUS {PARTITIONS}, REMAINDER {number})")
    run(connection, "INSERT INTO parted SELECT i, i, 'x' FROM generate_series(1, 10000) i")
    run(connection, "CREATE INDEX ON parted (k)")
    run(connection, "CREATE INDEX ON parted (other)")
    run(connection, "VACUUM ANALYZE parted")


def script(place, name):
    return place.script(name.replace(" ", "-") + ".sql", f"\\set k random(1, 10000)\n{QUERIES[name]};\n")


def measure(place, quick):
    every, seconds, rounds = QUICK.values() if quick else (CLIENTS, SECONDS, ROUNDS)
    queries = {name: script(place, name) for name in QUERIES}
    points = []
    with place.cluster("partitions", shared_buffers="256MB", **waits.SETTINGS) as server, \
            contextlib.closing(server.connect()) as connection:
        server.create_pgscale(connection)
        create(connection)
        for _, (name, clients) in stats.rounds(rounds, [(name, clients) for name in QUERIES for clients in every]):
            say(f"{name}, {clients} clients")
            points.append({"query": name, "clients": clients,
                           **waits.measure(server, connection, seconds, "-f", queries[name], "-c", clients, "-j", min(clients, 2))})
    return {"version": place.version, "seconds": seconds, "points": points}


def show(results):
    points = sorted(results["points"], key=lambda point: (list(QUERIES).index(point["query"]), point["clients"]))
    rows = [[point["query"], point["clients"], *waits.cells(point)] for point in points]
    return f"PostgreSQL {results['version']}: {PARTITIONS} partitions, {results['seconds']} s each.\n\n" + \
        table(["query looks into", "clients", *waits.HEADER], rows)


def required(results):
    return []
