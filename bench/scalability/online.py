"""The law that the server fits of itself, beside the one of pgbench's figures, over one and the same sweep."""
import contextlib

import stats
from cluster import run, say
from report import table

import law
from sweep import CLIENTS, COMMON, LARGE, READ, SCALE, WRITE, tps

WORKLOADS = {"read-write": WRITE, "read-only": READ}
# a bucket takes 5 seconds, after one more
SECONDS, ROUNDS = 13, 1


def measure(place, quick):
    seconds, scale, sizes = (13, 5, (1, 4, 16, 64)) if quick else (SECONDS, SCALE, CLIENTS)
    workloads = dict(list(WORKLOADS.items())[:1]) if quick else WORKLOADS
    server = place.cluster("online", **COMMON, shared_preload_libraries="pgscale", shared_buffers=LARGE)
    found = {}
    with server, contextlib.closing(server.connect()) as connection:
        say(f"loading scale {scale}")
        server.pgbench("-i", "-q", "-s", scale)
        server.create_pgscale(connection)
        for name, options in workloads.items():
            run(connection, "SELECT pgscale.reset('scalability')")
            points = []
            for number, clients in stats.rounds(ROUNDS, sizes):
                say(f"{name}, {clients} clients")
                points.append((clients, tps(server, options, clients, seconds)))
            online = dict(zip(law.FIELDS, run(connection, f"SELECT {', '.join(law.FIELDS)} FROM pgscale.scalability")[0]))
            online["buckets"], online["discarded"] = run(connection, "SELECT buckets, discarded FROM pgscale.scalability")[0]
            found[name] = {
                "points": points, "offline": law.fit(connection, points), "online": online,
                "online points": run(connection, "SELECT concurrency, throughput, seconds FROM pgscale.scalability_points()"),
            }
    return {"seconds": seconds, "workloads": found}


def show(results):
    rows = []
    for name, found in results["workloads"].items():
        for how in ("offline", "online"):
            fit = found[how]
            seen = f"{fit['min_concurrency']:.1f} .. {fit['max_concurrency']:.1f}" if fit["points"] else ""
            buckets = f"{fit['buckets']}, {fit['discarded']}" if how == "online" else ""
            rows.append([name, how, fit["points"], seen, buckets, *law.cells(fit)])
    return f"{results['seconds']} s at each number of clients.\n\n" + table(
        ["workload", "fitted", "points", "concurrency seen", "buckets, discarded", "lambda", "sigma", "kappa", "r2", "N* (95 %)",
         "tps there (95 %)", "status"], rows)


def required(results):
    for name, found in results["workloads"].items():
        offline, online = found["offline"], found["online"]
        if offline["peak_throughput"] and online["peak_throughput"]:
            ratio = online["peak_throughput"] / offline["peak_throughput"]
            yield f"online: peak throughput, online / offline, {name}", f"{ratio:.2f}", "0.9 .. 1.1", 0.9 <= ratio <= 1.1
