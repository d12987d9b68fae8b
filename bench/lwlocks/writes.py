"""The tables of the write-scalability thread of 2011: pgbench on permanent and unlogged tables."""
import contextlib

import stats
from cluster import say
from report import table

import waits

CLIENTS = (1, 8, 32)
SECONDS, ROUNDS, SCALE = 20, 1, 40      # no fewer branches than clients: else they would wait for the same rows
QUICK = {"CLIENTS": (1, 8), "SECONDS": 1, "ROUNDS": 1, "SCALE": 8}
TABLES = ("permanent", "unlogged")


def load(place, name, scale):
    server = place.cluster(f"writes-{name}", shared_buffers="1GB", **waits.SETTINGS)
    say(f"loading scale {scale}, {name}")
    with server:
        server.pgbench("-i", "-q", "-s", scale, *(["--unlogged-tables"] if name == "unlogged" else []))
    return server


def measure(place, quick):
    every, seconds, rounds, scale = QUICK.values() if quick else (CLIENTS, SECONDS, ROUNDS, SCALE)
    points = []
    for name in TABLES:
        with load(place, name, scale) as server, contextlib.closing(server.connect()) as connection:
            server.create_pgscale(connection)
            for _, clients in stats.rounds(rounds, every):
                say(f"{name}, {clients} clients")
                points.append({"tables": name, "clients": clients,
                               **waits.measure(server, connection, seconds, "-M", "prepared", "-c", clients, "-j", min(clients, 2))})
    return {"version": place.version, "scale": scale, "seconds": seconds, "points": points}


def show(results):
    points = sorted(results["points"], key=lambda point: (TABLES.index(point["tables"]), point["clients"]))
    rows = [[point["tables"], point["clients"], *waits.cells(point)] for point in points]
    return f"PostgreSQL {results['version']}: scale {results['scale']}, {results['seconds']} s each.\n\n" + \
        table(["tables", "clients", *waits.HEADER], rows)


def required(results):
    return []
