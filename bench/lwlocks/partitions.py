"""A query that locks all partitions of a table: more locks than a session has fast-path slots for, unless it is given them."""
import contextlib
import pathlib

import digest
import stats
from cluster import run, say
from report import table

import waits

PARTITIONS = 100
CLIENTS = (1, 8, 32)
SECONDS, ROUNDS = 15, 1
QUICK = {"CLIENTS": (1, 32), "SECONDS": 1, "ROUNDS": 1}
# max_locks_per_transaction, by which a session's slots are counted since 18: its default before 19, and enough for the query
LOCKS = 64
ENOUGH_LOCKS = 256
SLOTS_BY_SETTING = 18
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


def measure_at(place, locks, queries, every, seconds, rounds):
    points = []
    with place.cluster(f"partitions-{locks}", shared_buffers="256MB", max_locks_per_transaction=locks, **waits.SETTINGS) as server, \
            contextlib.closing(server.connect()) as connection:
        server.create_pgscale(connection)
        create(connection)
        for _, (name, clients) in stats.rounds(rounds, [(name, clients) for name in QUERIES for clients in every]):
            say(f"{name}, {clients} clients, max_locks_per_transaction {locks}")
            points.append({"query": name, "clients": clients, "locks": locks,
                           **waits.measure(server, connection, seconds, "-f", queries[name], "-c", clients, "-j", min(clients, 2))})
    return points


def measured_before():
    """Of other majors: each run measures one server."""
    before = digest.read(pathlib.Path(__file__).parent)
    return digest.restored(before["partitions"]["results"])["majors"] if "partitions" in before else {}


def measure(place, quick):
    every, seconds, rounds = QUICK.values() if quick else (CLIENTS, SECONDS, ROUNDS)
    queries = {name: script(place, name) for name in QUERIES}
    points = []
    for locks in (LOCKS, ENOUGH_LOCKS) if place.major >= SLOTS_BY_SETTING else (LOCKS,):
        points += measure_at(place, locks, queries, every, seconds, rounds)
    majors = {} if quick else measured_before()
    majors[str(place.major)] = {"version": place.version, "seconds": seconds, "points": points}
    return {"majors": majors}


def show(results):
    rows, said = [], []
    for major, measured in sorted(results["majors"].items(), key=lambda each: int(each[0])):
        said.append(f"PostgreSQL {measured['version']}: {PARTITIONS} partitions, {measured['seconds']} s each.")
        for point in sorted(measured["points"], key=lambda each: (list(QUERIES).index(each["query"]), each["locks"], each["clients"])):
            rows.append([point["query"], major, point["locks"], point["clients"], *waits.cells(point)])
    rows.sort(key=lambda row: list(QUERIES).index(row[0]))
    return "\n".join(said) + "\n\n" + table(
        ["query looks into", "major", "max_locks_per_transaction", "clients", *waits.HEADER], rows)


def required(results):
    return []
