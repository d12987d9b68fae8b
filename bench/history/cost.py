"""What the archive costs: transactions lost around each row, throughput with it and without, CPU of its worker.

A row a minute is little work at long intervals, and far less than what a machine varies by from minute to minute. So rows are
written every ten seconds, and the seconds with a row are compared with their neighbours beneath the same pgbench: what is missing
there, spread over a minute, is the loss. In turns of the archive on and off, at a row every five seconds, it is looked for
once more without any such assumption.
"""
import contextlib
import pathlib
import re
import time

import numpy

import stats
from cluster import run, say
from load import Load
from report import between, percent, table

import bed

CLIENTS, SCALE = 4, 10
ROWS, PERIOD_S, PAIRS, TURN_S = 180, 10, 30, 10
QUICK = {"ROWS": 2, "PAIRS": 1, "TURN_S": 4}
LIMIT, LIMIT_CPU = 0.005, 0.003
# around a row: seconds that it may take from, and those that say what there would have been
TAKEN, NEIGHBOURS = 2, 3


def seconds_of(load):
    found = re.findall(r"progress: ([\d.]+) s, ([\d.]+) tps", load.progress.read_text())
    return [(float(at), float(tps)) for at, tps in found]


def around(rows, seconds):
    """Of each row: transactions missing around it, as a fraction of those of a minute."""
    lost = []
    for row in rows:
        beside = [tps for at, tps in seconds if 1 < abs(at - 0.5 - row) and abs(at - 0.5 - row) <= TAKEN + NEIGHBOURS
                  and not 0 <= at - row <= TAKEN]
        taken = [tps for at, tps in seconds if 0 <= at - row <= TAKEN]
        if len(taken) >= TAKEN and len(beside) >= NEIGHBOURS:
            usual = numpy.mean(beside)
            lost.append(float(sum(usual - tps for tps in taken) / (60 * usual)))
    return lost


def children_cpu(server):
    """CPU seconds of the postmaster's children that have ended: while no session ends, the rounds of the archive."""
    fields = pathlib.Path(f"/proc/{server.process.pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[13]) + int(fields[14])) / 100


def archive(connection, database):
    run(connection, f"ALTER SYSTEM SET pgscale.archive_database = '{database}'")
    run(connection, "SELECT pg_reload_conf()")


def measure(place, quick):
    rows, pairs, turn = QUICK.values() if quick else (ROWS, PAIRS, TURN_S)
    settings = {**bed.SETTINGS, "pgscale.archive_period": None, "pgscale.archive_database": None}
    found = {"pairs": []}
    with place.cluster("cost", **settings) as server, contextlib.closing(server.connect()) as connection:
        bed.create(server, connection)
        server.pgbench("-i", "-s", SCALE, "-q")
        run(connection, f"ALTER SYSTEM SET pgscale.archive_period = '{PERIOD_S}s'")
        archive(connection, "postgres")
        with Load(server, "-c", CLIENTS, "-j", 2, "-N") as load:
            bed.await_minutes(connection, 2, 60)
            cpu, since = children_cpu(server), bed.minutes(connection)
            bed.await_minutes(connection, rows, 10 * rows + 120)
            found["cpu_s_a_row"] = (children_cpu(server) - cpu) / (bed.minutes(connection) - since)
            at = [float(each[0]) for each in run(
                connection, "SELECT extract(epoch FROM at) + period_s FROM pgscale.archive_minutes ORDER BY at DESC LIMIT %s", rows)]
            time.sleep(TAKEN + NEIGHBOURS)
            found["around"] = around(at, seconds_of(load))
        say("in turns")
        run(connection, "ALTER SYSTEM SET pgscale.archive_period = '5s'")
        with Load(server, "-c", CLIENTS, "-j", 2, "-N") as load:
            time.sleep(5)
            for number in range(pairs):
                tps = {}
                for on in (number % 2 == 0, number % 2 == 1):
                    archive(connection, "postgres" if on else "")
                    time.sleep(1)
                    began = time.time()
                    time.sleep(turn)
                    tps[on] = load.tps(began, time.time())
                found["pairs"].append(tps[True] / tps[False] - 1)
    return found


def show(results):
    low, high = stats.interval(results["around"])
    on, off = stats.interval(results["pairs"])
    return table(["", "", "95 %"], [
        [f"transactions lost to a row, of a minute's ({len(results['around'])} rows)", percent(stats.median(results["around"]), 3),
         f"{percent(low, 3)} .. {percent(high, 3)}"],
        [f"throughput with a row every 5 s, to without ({len(results['pairs'])} pairs of turns)", percent(stats.median(results["pairs"]), 2),
         f"{percent(on, 2)} .. {percent(off, 2)}"],
        ["CPU of a row", f"{1000 * results['cpu_s_a_row']:.1f} ms", ""],
        ["CPU, of a core, at a row a minute", percent(results["cpu_s_a_row"] / 60, 3), ""]])


def published(results):
    low, high = stats.interval(results["around"])
    yield "loss", between(100 * stats.median(results["around"]), 100 * low, 100 * high, "{:.3f}", " %")
    yield "cpu", percent(results["cpu_s_a_row"] / 60, 3)


def required(results):
    lost = stats.median(results["around"])
    yield "cost: transactions lost, at a row a minute", percent(lost, 3), f"less than {percent(LIMIT)}", lost < LIMIT
    share = results["cpu_s_a_row"] / 60
    yield "cost: CPU of the worker, of a core", percent(share, 3), f"less than {percent(LIMIT_CPU)}", share < LIMIT_CPU
