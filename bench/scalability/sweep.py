"""Throughput over clients: read-only and read-write, in shared buffers and not, permanent and unlogged tables."""
import contextlib
import pathlib

import digest
import stats
from cluster import say
from report import table

import law

CLIENTS = (1, 2, 4, 8, 16, 32, 64)
SECONDS, ROUNDS, SCALE = 4, 1, 70       # no fewer branches than clients: else they would wait for the same rows
QUICK = {"SECONDS": 1, "ROUNDS": 1, "SCALE": 5}

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
COMMON = {"synchronous_commit": "on", "max_wal_size": "16GB", "max_connections": 100}


def load(place, name, scale):
    server = place.cluster(name, **COMMON)
    say(f"loading scale {scale}, {name}")
    with server:
        server.pgbench("-i", "-q", "-s", scale, *(["--unlogged-tables"] if name == "unlogged" else []))
    return server


def tps(server, options, clients, seconds):
    return server.pgbench("-n", "-M", "prepared", *options, "-c", clients, "-j", min(clients, 2), "-T", seconds)


def warm(connection):
    """As much as there is room for."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT sum(hashtext(t::text)) FROM pgbench_accounts t")


def measure(place, quick):
    seconds, rounds, scale = QUICK.values() if quick else (SECONDS, ROUNDS, SCALE)
    servers = {name: load(place, name, scale) for name in ("permanent", "unlogged")}
    points = {name: [] for name in WORKLOADS}
    fits = {}
    for number, name in stats.rounds(rounds, WORKLOADS):
        options, data, buffers = WORKLOADS[name]
        server = servers[data]
        say(f"round {number + 1}: {name}")
        server.start(shared_buffers=buffers)
        try:
            with contextlib.closing(server.connect()) as connection:
                # so that no writing of one workload is left to the next one
                warm(connection)
                for _, clients in stats.rounds(1, CLIENTS):
                    points[name].append((clients, tps(server, options, clients, seconds)))
                with connection.cursor() as cursor:
                    cursor.execute("CHECKPOINT")
                if number == rounds - 1:
                    server.create_pgscale(connection)
                    fits[name] = law.fit(connection, points[name])
                    with connection.cursor() as cursor:
                        cursor.execute("DROP EXTENSION pgscale CASCADE; DROP SCHEMA IF EXISTS pgscale CASCADE")
        finally:
            server.stop()
    majors = {} if quick else measured_before()
    majors[str(place.major)] = {"version": place.version, "seconds": seconds, "rounds": rounds, "scale": scale,
                                "points": points, "fits": fits}
    return {"majors": majors}


def measured_before():
    """Of other majors: each run measures one server."""
    before = digest.read(pathlib.Path(__file__).parent)
    return digest.restored(before["sweep"]["results"])["majors"] if "sweep" in before else {}


def at(points, clients):
    return stats.median([x for n, x in points if n == clients])


def show(results):
    rows = []
    for name in WORKLOADS:
        for major, measured in sorted(results["majors"].items(), key=lambda each: int(each[0])):
            points = measured["points"][name]
            best = max(CLIENTS, key=lambda clients: at(points, clients))
            rows.append([name, major, f"{at(points, 1):,.0f}", f"{at(points, best):,.0f} ({best})",
                         f"{at(points, CLIENTS[-1]):,.0f}", *law.cells(measured["fits"][name])])
    said = [f"PostgreSQL {m['version']}: scale {m['scale']}, {m['rounds']} rounds of {m['seconds']} s."
            for m in results["majors"].values()]
    return "\n".join(said) + "\n\n" + table(
        ["workload", "major", "tps, 1 client", "best (clients)", f"{CLIENTS[-1]} clients", "lambda", "sigma", "kappa", "r2",
         "N* (95 %)", "tps there (95 %)", "status"], rows)


def published(results):
    for major, measured in results["majors"].items():
        for name, points in measured["points"].items():
            for clients in CLIENTS:
                yield f"{major}, {name}, {clients}", f"{at(points, clients):,.0f}"
            best = max(CLIENTS, key=lambda clients: at(points, clients))
            yield f"{major}, {name}, best", f"{at(points, best):,.0f} at {best} clients"
            sigma = measured["fits"][name]["sigma"]
            yield f"{major}, {name}, sigma", "" if sigma is None else f"{sigma:.3f}"
        statuses = {fit["status"].split(":")[0] for fit in measured["fits"].values()}
        yield f"{major}, status", " or ".join(sorted(statuses))
        yield f"{major}, workloads", str(len(measured["fits"]))


def required(results):
    return []
