"""Throughput over clients, major beside major, with the law that pgscale fits and the waits that it sees."""
import contextlib
import random

import law
import majors
import sizes
import stats
from cluster import run, say
from report import between, percent, spread, table

# of the time of sessions within their statements; Extension is the wait of the session that asks pgscale to begin anew
WAITS = """
    SELECT event_type || ':' || event, sum(wait_ms) / sum(sum(wait_ms)) OVER () AS share, event_type = 'LWLock'
      FROM pgscale.wait_profile()
     WHERE backend_type = 'client backend' AND NOT idle AND event_type NOT IN ('Client', 'Extension')
     GROUP BY event_type, event ORDER BY share DESC"""
WARM = """
    SET enable_seqscan = off; SET enable_bitmapscan = off; SET max_parallel_workers_per_gather = 0;
    SELECT sum(abalance) FROM pgbench_accounts WHERE aid > 0"""
KEPT = 6
SHOWN = 3
LEAST = 0.001


class Sweep:
    """A part of the tour: one kind of transaction, with data that fit in shared buffers and data that do not."""

    RECORDS = {"cells": ("workload", "major", "clients")}

    def __init__(self, kind, options=(), writes=True, initialise=(), **settings):
        self.workloads = {f"{kind}, {how}": size for how, size in (("fits", "large"), ("does not fit", "small"))}
        self.options = ("-M", "prepared", *options)
        self.writes = writes
        self.initialise = initialise
        self.settings = settings

    def pieces(self, quick):
        return sizes.pieces(self.workloads, quick)

    def measure(self, place, quick, names):
        of = sizes.sizes(quick)
        for piece in names:
            workload = piece.split(":")[0]
            buffers = getattr(of, self.workloads[workload])
            with majors.running(place, shared_buffers=buffers, max_connections=of.most + 20, **self.settings) as connections:
                self._load(place, connections, of)
                cells = list(self._cells(place, connections, workload, of))
                fits = {major: law.fit(connection, [(cell["clients"], cell["tps"]) for cell in cells if cell["major"] == major])
                        for major, connection in connections.items()}
                yield piece, {"cells": cells, "fits": {workload: fits}, "versions": majors.versions(connections), "sizes": str(of)}

    def _load(self, place, connections, of):
        for major, connection in connections.items():
            say(f"loading scale {of.scale}, {major}")
            server = majors.servers(place)[major]
            server.pgbench("-i", "-q", "-s", of.scale, *self.initialise)
            with contextlib.closing(server.connect("tour")) as inside:
                # into shared buffers as much as there is room for: a sequential scan would keep to its ring
                run(inside, WARM)
            run(connection, "CHECKPOINT")

    def _cells(self, place, connections, workload, of):
        for number, clients in stats.rounds(of.rounds, of.clients):
            say(f"{workload}, round {number + 1}, {clients} clients")
            order = list(connections)
            random.Random(f"{number} {clients}").shuffle(order)
            for major in order:
                yield {"workload": workload, "major": major, "clients": clients, "round": number,
                       **self._cell(majors.servers(place)[major], connections[major], clients, of)}

    def _cell(self, server, connection, clients, of):
        run(connection, "SELECT pgscale.reset('sampler')")
        found = {"tps": server.load(clients, of.seconds, *self.options)}
        if clients == of.most:
            waits = run(connection, WAITS)
            found["waits"] = {event: share for event, share, _ in waits[:KEPT]}
            found["lwlocks"] = {event: share for event, share, lwlock in waits if lwlock and share >= LEAST}
        if self.writes:
            # so that each cell begins behind a checkpoint, and nothing is left to write while another server is measured
            run(connection, "CHECKPOINT")
        return found

    def whole(self, found):
        pieces = list(found.values())
        return {"versions": pieces[0]["versions"], "sizes": pieces[0]["sizes"], "cells": sum((piece["cells"] for piece in pieces), []),
                "fits": {workload: fits for piece in pieces for workload, fits in piece["fits"].items()}}

    def show(self, results):
        return conditions(results) + "."

    def published(self, results):
        yield "conditions", conditions(results)
        yield "plot", block("![throughput over clients, load by load and major by major](../bench/tour/tour.png)")
        for name, make in TABLES.items():
            yield name, block(make(results))

    def required(self, results):
        return []


READ = Sweep("read-only", ["-S"], writes=False)
WRITE = Sweep("read-write", synchronous_commit="on")
ASYNC = Sweep("synchronous_commit off", synchronous_commit="off")
UNLOGGED = Sweep("unlogged", initialise=["--unlogged-tables"], synchronous_commit="on")


def conditions(results):
    return f"{results['sizes']}, PostgreSQL {', '.join(results['versions'].values())}"


def block(text):
    """Apart from the lines around it."""
    return f"\n{text}\n\n"


def tps(results, workload, major, clients=None):
    """By number of clients, round by round; or at one number."""
    found = {}
    for cell in results["cells"]:
        if (cell["workload"], cell["major"]) == (workload, major):
            found.setdefault(cell["clients"], []).append(cell["tps"])
    return found if clients is None else found[clients]


def every(results):
    """Number of clients."""
    return sorted({cell["clients"] for cell in results["cells"]})


def throughput(results):
    rows = [[workload, clients, *(spread(tps(results, workload, major, clients), "{:,.0f}") for major in fits)]
            for workload, fits in results["fits"].items() for clients in every(results)]
    return table(["tps, median (least .. greatest)", "clients", *results["versions"]], rows)


def ratios(results):
    """Of each round and number of clients, to the oldest major beside it."""
    oldest, *others = results["versions"]
    rows = []
    for workload in results["fits"]:
        row = [workload]
        for major in others:
            mine, its = (tps(results, workload, each) for each in (major, oldest))
            each = [new / old for clients in mine for new, old in zip(mine[clients], its[clients])]
            row.append(between(stats.median(each), *stats.interval(each), "{:.2f}"))
        rows.append(row)
    return table([f"times the tps of {oldest}, median (95 %)", *others], rows)


def laws(results):
    rows = []
    for workload, fits in results["fits"].items():
        for major, fit in fits.items():
            mine = {clients: stats.median(each) for clients, each in tps(results, workload, major).items()}
            best = max(mine, key=mine.get)
            *fitted, status = law.cells(fit)
            rows.append([workload, major, f"{mine[best]:,.0f} ({best})", *fitted, status.split(":")[0]])
    return table(["", "major", "best tps (clients)", "lambda", "sigma", "kappa", "r2", "N* (95 %)", "tps there (95 %)", "status"], rows)


def waits(results):
    most = every(results)[-1]
    rows = []
    for workload, fits in results["fits"].items():
        for major in fits:
            cells = [cell for cell in results["cells"] if (cell["workload"], cell["major"], cell["clients"]) == (workload, major, most)]
            rows.append([workload, major, shares(cells, "waits"), shares(cells, "lwlocks")])
    return table([f"{most} clients", "major", "share of the time in statements", "LWLocks"], rows)


def shares(cells, what):
    """The greatest, mean over the rounds."""
    means = {}
    for cell in cells:
        for event, share in cell[what].items():
            means[event] = means.get(event, 0) + share / len(cells)
    greatest = sorted(means, key=means.get, reverse=True)[:SHOWN]
    return ", ".join(f"{event.removeprefix('LWLock:') if what == 'lwlocks' else event} {percent(means[event])}"
                     for event in greatest if means[event] >= LEAST)


TABLES = {"against the oldest": ratios, "throughput": throughput, "law": laws, "waits": waits}
