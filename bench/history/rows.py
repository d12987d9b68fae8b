"""Single rows of the archive: transactions lost around each of them, and CPU of the worker.

Rows are written every ten seconds, and the seconds with a row are compared with their neighbours beneath the same pgbench. The
transactions that are missing there, spread over a minute, are the loss at a row a minute.
"""
import pathlib
import re
import time

import numpy

import machine
import stats
from cluster import run, value
from report import between, percent, table

import bed
import cost

PERIOD_S, ROWS = 10, 36
QUICK = {"ROWS": 2}
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


def measure(place, quick):
    wanted = QUICK["ROWS"] if quick else ROWS
    found = {"load": machine.load()}
    with cost.bed_of(place, "rows", PERIOD_S) as (server, connection), cost.load(server) as load:
        cost.archive(connection, "postgres")
        bed.await_minutes(connection, 2, 60)
        cpu, since = children_cpu(server), bed.minutes(connection)
        bed.await_minutes(connection, wanted, PERIOD_S * wanted + 120)
        found["cpu_s_a_row"] = (children_cpu(server) - cpu) / (bed.minutes(connection) - since)
        found["waits"] = float(value(connection, "SELECT avg(cardinality(wait_ms)) FROM pgscale_internal.archive_minute"))
        at = [float(each[0]) for each in run(
            connection, "SELECT extract(epoch FROM at) + period_s FROM pgscale.archive_minutes ORDER BY at DESC LIMIT %s", wanted)]
        time.sleep(TAKEN + NEIGHBOURS)
        found["around"] = around(at, seconds_of(load))
    return found


def cpu(results):
    return results["cpu_s_a_row"] / 60


def show(results):
    low, high = stats.interval(results["around"])
    return table(["", "median", "95 % interval"], [
        [f"transactions lost to a row, of a minute's ({len(results['around'])} rows)", percent(stats.median(results["around"]), 3),
         f"{percent(low, 3)} .. {percent(high, 3)}"],
        [f"CPU of a row of {results['waits']:.0f} waits", f"{1000 * results['cpu_s_a_row']:.1f} ms", ""],
        ["CPU, of a core, at a row a minute", percent(cpu(results), 3), ""],
        ["load average before", f"{results['load']:.1f}", ""]])


def published(results):
    low, high = stats.interval(results["around"])
    yield "loss", between(100 * stats.median(results["around"]), 100 * low, 100 * high, "{:.3f}", " %")
    yield "cpu", percent(cpu(results), 3)


def required(results):
    most = stats.interval(results["around"])[1]
    yield "rows: transactions lost at a row a minute, upper end of the interval", percent(most, 3), f"less than {percent(LIMIT)}", most < LIMIT
    yield "rows: CPU of the worker, of a core", percent(cpu(results), 3), f"less than {percent(LIMIT_CPU)}", cpu(results) < LIMIT_CPU
