"""Prometheus scrapes a server by two exporters. Known waits, then faults one after the other: which alerts fire, and when? Does each
expression of the dashboard answer?"""
import contextlib
import json
import os
import signal
import time

import psycopg2

import stats
from cluster import run, say
from prometheus import EXPORTERS, FILES, Prometheus
from report import percent, signed, table

SLEEPERS = 5
CONNECTIONS = 30
WINDOW_S = 30
LIMIT = 0.05            # what a session did in the last second or so is added later: of 30 s that is a thirtieth

AAS = 'sum by (exporter, event_type) (rate(pgscale_wait_seconds_total{backend_type="client backend"}[%ds]))' % WINDOW_S

# what is done to the server, and what must fire
FAULTS = {
    "a session idles in a transaction, three wait for its row":
        ("PgscaleBlocked", "PgscaleIdleInTransaction", "PgscaleDiagnosis blocker"),
    "clients take all connections": ("PgscaleConnections", "PgscaleDiagnosis connection_storm"),
    "the sampler's process is stopped": ("PgscaleSamplerStopped", "PgscaleBroken sampler"),
    "the server is stopped": ("PgscaleAbsent",),
}

SETUP = """
CREATE ROLE prometheus LOGIN IN ROLE pg_monitor;
CREATE ROLE app LOGIN;
CREATE TABLE stock (product int PRIMARY KEY, amount int);
INSERT INTO stock VALUES (1, 1000000);
"""


@contextlib.contextmanager
def sessions(server, n, statement):
    """So many that execute it, and end."""
    waiting = [server.place.popen(["psql", "-Xq", "-h", server.folder, "-U", "postgres", "-c", statement, "postgres"])
               for _ in range(n)]
    try:
        yield
    finally:
        for process in waiting:
            process.terminate()
            process.wait()


@contextlib.contextmanager
def idle_in_transaction(server):
    with contextlib.closing(server.connect("holder")) as holder:
        run(holder, "BEGIN; UPDATE stock SET amount = amount - 1")
        with sessions(server, 3, "UPDATE stock SET amount = amount - 1"):
            yield


@contextlib.contextmanager
def connections_full(server):
    with contextlib.ExitStack() as taken:
        for _ in range(CONNECTIONS):
            try:
                taken.enter_context(contextlib.closing(server.connect("app", user="app")))
            except psycopg2.OperationalError:
                break
        yield


@contextlib.contextmanager
def sampler_stopped(server):
    pid = server.worker("pgscale sampler")
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextlib.contextmanager
def server_stopped(server):
    server.stop()
    yield


INJECT = dict(zip(FAULTS, (idle_in_transaction, connections_full, sampler_stopped, server_stopped)))


def dashboard(prometheus):
    """Each expression as Grafana would send it: how many, and the panels of those without a series."""
    panels = json.loads((FILES / "grafana.json").read_text())["panels"]
    asked = [(panel["title"], prometheus.ask(target["expr"].replace("$instance", ".*").replace("$__rate_interval", "1m")))
             for panel in panels for target in panel["targets"]]
    return {"expressions": len(asked), "empty": sorted({title for title, found in asked if not found})}


def known_waits(server, prometheus, seconds):
    """Sessions that sleep: the rate must be their number, by both exporters."""
    with sessions(server, SLEEPERS, f"SELECT pg_sleep({seconds + 60})"):
        time.sleep(seconds)
        return {labels["exporter"]: sessions for labels, sessions in prometheus.ask(AAS) if labels["event_type"] == "Timeout"}


def inject(server, prometheus, fault):
    """How long it took until all its alerts fired, and what else did."""
    say(fault)
    before = prometheus.firing()
    with INJECT[fault](server):
        seconds = prometheus.wait(lambda: set(FAULTS[fault]) <= prometheus.firing(), 300)
        others = prometheus.firing() - before - set(FAULTS[fault])
    if server.process:
        prometheus.wait(lambda: not prometheus.firing(everywhere=False) & set(FAULTS[fault]), 300)
    return {"fault": fault, "seconds": seconds, "others": sorted(others), "over": bool(server.process)}


def measure(place, quick):
    with place.cluster("scraped", shared_preload_libraries="pgscale", max_connections=CONNECTIONS) as server, \
            contextlib.closing(server.connect()) as connection:
        server.create_pgscale(connection)
        run(connection, SETUP)
        # it is no extension's here: what a member of pg_monitor may do is granted at the end of its script
        found = {}
        with Prometheus(server, quick) as prometheus:
            place.run(["/usr/bin/promtool", "check", "config", place.folder / "prometheus" / "prometheus.yml"])
            for exporter in EXPORTERS:
                prometheus.wait(lambda: prometheus.ask('pgscale_health{exporter="%s"}' % exporter), 30)
            say("known waits")
            found["sessions"] = known_waits(server, prometheus, WINDOW_S + 8)
            found["dashboard"] = dashboard(prometheus)
            connection.close()
            found["faults"] = [inject(server, prometheus, fault) for fault in FAULTS]
    return found


def show(results):
    faults = table(["fault", "alerts", "fired after"],
                   [[each["fault"], ", ".join(FAULTS[each["fault"]] + tuple(f"({other})" for other in each["others"])),
                     f"{each['seconds']:.0f} s"] for each in results["faults"]])
    rates = table(["exporter", f"average active sessions, {SLEEPERS} known"],
                  [[exporter, f"{results['sessions'][exporter]:.3f}"] for exporter in EXPORTERS])
    return f"{rates}\n\n{faults}\n\n{results['dashboard']['expressions']} expressions of the dashboard were run."


# what this server, a primary without sweeper, writeback or jobs, has nothing of
EMPTY = {"Diagnosis now", "Standby behind", "Diagnoses", "Concurrency and its peak", "Dirty in the kernel", "Relocation jobs and advice",
         "pgscale: broken features"}


def required(results):
    worst = stats.worst([results["sessions"].get(exporter, 0) / SLEEPERS - 1 for exporter in EXPORTERS])
    yield f"alerts: error of the rate, {SLEEPERS} known sessions", signed(worst), f"within {percent(LIMIT, 0)}", abs(worst) <= LIMIT
    for each in results["faults"]:
        over = " and were over after it" if each["over"] else ""
        yield f"alerts: {each['fault']}", f"fired after {each['seconds']:.0f} s{over}", "its alerts fire", True
    silent = sorted(set(results["dashboard"]["empty"]) - EMPTY)
    yield "alerts: panels without an answer that should have one", ", ".join(silent) or "none", "none", not silent
