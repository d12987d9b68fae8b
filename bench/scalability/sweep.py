"""Throughput over clients: read-only and read-write, in shared buffers and not, permanent and unlogged tables."""
import contextlib

import stats
from cluster import run, say
from report import table

import law

CLIENTS = (1, 2, 4, 8, 16, 32, 64)
SECONDS, SCALE = 4, 70       # no fewer branches than clients: else they would wait for the same rows
QUICK = (3, 5)
READ, WRITE = ("-S",), ()
LARGE, SMALL = "2GB", "128MB"
# name: options of pgbench, the data (permanent or unlogged), shared_buffers
WORKLOADS = {
    "read-only, fits": (READ, "permanent", LARGE),
    "read-only, does not fit": (READ, "permanent", SMALL),
    "read-write, fits": (WRITE, "permanent", LARGE),
    "read-write, does not fit": (WRITE, "permanent", SMALL),
    "unlogged, fits": (WRITE, "unlogged", LARGE),
    "unlogged, does not fit": (WRITE, "unlogged", SMALL),
}
SETTINGS = {"synchronous_commit": "on", "max_wal_size": "16GB", "max_connections": 100}


def load(place, name, scale):
    server = place.cluster(name, **SETTINGS)
    say(f"loading scale {scale}, {name}")
    with server:
        server.pgbench("-i", "-q", "-s", scale, *(["--unlogged-tables"] if name == "unlogged" else []))
        with contextlib.closing(server.connect()) as connection:
            server.create_pgscale(connection)
    return server


def measure(place, quick):
    seconds, scale = QUICK if quick else (SECONDS, SCALE)
    servers = {name: load(place, name, scale) for name in ("permanent", "unlogged")}
    found = []
    for _, name in stats.rounds(1, WORKLOADS):
        options, data, buffers = WORKLOADS[name]
        server = servers[data]
        say(name)
        server.start(shared_buffers=buffers)
        try:
            with contextlib.closing(server.connect()) as connection:
                # as much as there is room for
                run(connection, "SELECT sum(hashtext(t::text)) FROM pgbench_accounts t")
                points = [(clients, server.pgbench("-n", "-M", "prepared", *options, "-c", clients, "-j", min(clients, 2), "-T", seconds))
                          for _, clients in stats.rounds(1, CLIENTS)]
                # so that no writing of one workload is left to the next one
                run(connection, "CHECKPOINT")
                fit = law.fit(connection, points)
                found.append({"workload": name, "tps": [tps for _, tps in sorted(points)], "fit": {what: fit[what] for what in ("r2", "status")}})
        finally:
            server.stop()
    return found


def show(results):
    rows = [[each["workload"], *(f"{tps:,.0f}" for tps in each["tps"]), f"{each['fit']['r2']:.2f}", each["fit"]["status"].split(":")[0]]
            for each in sorted(results, key=lambda each: list(WORKLOADS).index(each["workload"]))]
    return table(["transactions a second by clients", *map(str, CLIENTS), "r2 of the fit", "its status"], rows)


def required(results):
    return []
