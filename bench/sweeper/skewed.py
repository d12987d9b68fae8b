"""Skewed writes on a disk of few writes a second: what a device write carries, with the sweeper on and off.

One server runs throughout a load, and the sweeper in it is switched on and off in turns of random order in each round. A turn
settles first; then it is measured, by the load's own program.
"""
import re
from typing import NamedTuple

import numpy

import counters
import stats
import tpcc
from bed import PRELOADED, SWEEPING
from cluster import say, value
from copied import CopiedServer
from report import percent, spread, table
from slowdisk import SlowDisk

WRITE_IOPS = 250
DIRTY_MIB = 4
DISK_MIB = 3072
CLIENTS = 6
SCALE = 14
TABLES, ROWS = 4, 200000
# rounds; seconds: filling, of a turn before what counts, and what counts
FULL = (3, 15, 12, 20)
QUICK = (1, 3, 2, 4)

ZIPF = """\\set rank random_zipfian(1, 100000 * :scale, 1.05)
\\set aid permute(:rank, 100000 * :scale)
UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid;
"""
UNIFORM = """\\set aid random(1, 100000 * :scale)
UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid;
"""


class Sysbench(NamedTuple):
    script: str
    rand: str = "pareto"

    def tables(self):
        return "sbtest%"

    def command(self, server, seconds):
        return sysbench(server, f"--rand-type={self.rand}", f"--time={seconds}", "--histogram=on", self.script, "run")

    def read(self, output, seconds):
        ms = [(float(at), int(n)) for at, n in re.findall(r"^ +([\d.]+) \|\**\s*(\d+)$", output, re.M)]
        return float(re.search(r"transactions: +\d+ +\(([\d.]+) per sec", output)[1]), *weighted(ms)


class Pgbench(NamedTuple):
    files: tuple            # names of scripts, with weights
    like: str = "pgbench_%"

    def tables(self):
        return self.like

    def command(self, server, seconds):
        return ["pgbench", "-h", server.folder, "-U", "postgres", "-n", "-s", SCALE, "-M", "prepared", "-c", CLIENTS, "-j", 2, "-T", seconds,
                "-l", f"--log-prefix={server.folder}/turn", *(word for file in self.files for word in ("-f", server.folder / file)),
                "postgres"]

    def read(self, output, seconds, folder):
        us = []
        for log in folder.glob("turn.*"):
            # one that met a deadlock has no time
            us += [int(line.split()[2]) for line in log.read_text().splitlines() if "failed" not in line]
            log.unlink()
        ms = numpy.array(us) / 1000
        return float(re.search(r"^tps = ([\d.]+)", output, re.M)[1]), float(numpy.percentile(ms, 95)), float(numpy.percentile(ms, 99.9))


class Workload(NamedTuple):
    name: str
    kind: object
    times_buffers: float
    least: float            # transactions a device write, times stock's


WORKLOADS = (
    Workload("sysbench oltp_write_only, pareto, 3x", Sysbench("oltp_write_only"), 3.2, 2.0),
    Workload("sysbench oltp_read_write, pareto, 3x", Sysbench("oltp_read_write"), 3.2, 1.8),
    Workload("five transactions like TPC-C's, 3x", Pgbench(tuple(f"{name}.sql@{weight}" for name, weight in tpcc.WEIGHTS.items()), "tpcc_%"), 3.2, 1.5),
    Workload("UPDATE, zipf 1.05, 3x", Pgbench(("zipf.sql",)), 3.2, 2.0),
    Workload("sysbench oltp_write_only, pareto, 8x", Sysbench("oltp_write_only"), 8, 1.3),
    Workload("UPDATE, uniform, 3x", Pgbench(("uniform.sql",)), 3.2, 1.0),
)

RECORDS = {"": ("name", "on")}
LEFT_OUT = counters.NOT_SHOWN


def sysbench(server, *options):
    return ["/usr/bin/env", "sysbench", "--db-driver=pgsql", "--pgsql-db=postgres", f"--pgsql-host={server.folder}", "--pgsql-user=postgres",
            f"--tables={TABLES}", f"--table-size={ROWS}", f"--threads={CLIENTS}", *options]


def weighted(ms):
    """p95 and p99.9 of (milliseconds, how often)."""
    at = numpy.array([each for each, _ in ms])
    upto = numpy.cumsum([n for _, n in ms])
    return [float(at[numpy.searchsorted(upto, share * upto[-1])]) for share in (0.95, 0.999)]


class Bed(CopiedServer):
    def __init__(self, place, disk):
        super().__init__(place, "skewed", SCALE, disk, sql=tpcc.SETUP, shared_buffers="64MB", max_wal_size="16GB",
                         synchronous_commit="on", max_connections=50, max_worker_processes=32)
        for name, text in {"zipf": ZIPF, "uniform": UNIFORM, **tpcc.SCRIPTS}.items():
            (self.server.folder / f"{name}.sql").write_text(text)

    def load_more(self):
        self.place.run(sysbench(self.server, "oltp_read_write", "prepare"))


def bytes_of(connection, like):
    return value(connection, f"SELECT sum(pg_table_size(oid) + pg_indexes_size(oid))::bigint FROM pg_class WHERE relkind = 'r' AND relname LIKE '{like}'")


def turn(bed, connection, workload, on, settle, seconds):
    bed.set(**(SWEEPING if on else {}))
    bed.place.run(workload.kind.command(bed.server, settle))
    for log in bed.server.folder.glob("turn.*"):
        log.unlink()
    before = counters.read(bed, connection)
    output = bed.place.run(workload.kind.command(bed.server, seconds))
    after = counters.read(bed, connection)
    more = (bed.server.folder,) if isinstance(workload.kind, Pgbench) else ()
    tps, p95, p999 = workload.kind.read(output, seconds, *more)
    found = {"tps": tps, "p95": p95, "p99.9": p999, "writers there": sum(worker["writers"] for worker in after["workers"]), **counters.difference(before, after)}
    say(f"  {'on' if on else 'off'}: {tps:.0f} TPS, {transactions_a_write(found):.2f} transactions a write, {pages_a_transaction(found):.2f} pages"
        f" a transaction, p95 {p95:.1f} ms, p99.9 {p999:.0f} ms" + "".join(f", {state}" for state in found.get("state", []) if on))
    return found


def one(bed, disk, workload, quick):
    rounds, fill, settle, seconds = QUICK if quick else FULL
    found = []
    with bed.running(**PRELOADED) as connection:
        size = bytes_of(connection, workload.kind.tables())
    with bed.running(**PRELOADED, shared_buffers=f"{int(size / workload.times_buffers) // 8192 * 8}kB") as connection:
        bed.place.run(workload.kind.command(bed.server, fill))
        disk.slow(write_iops=WRITE_IOPS, dirty_mib=DIRTY_MIB)
        for number, on in stats.rounds(rounds, (False, True)):
            found.append({"name": workload.name, "round": number, "on": on, **turn(bed, connection, workload, on, settle, seconds)})
    return found


def pieces(quick):
    return [workload.name for workload in WORKLOADS]


def measure(place, quick, names):
    with SlowDisk(place.folder / "skewed-disk", DISK_MIB) as disk:
        bed = Bed(place, disk)
        for workload in WORKLOADS:
            if workload.name in names:
                say(workload.name)
                yield workload.name, one(bed, disk, workload, quick)


def whole(found):
    return [record for records in found.values() for record in records]


def transactions_a_write(r):
    return r["tps"] * r["seconds"] / max(r["disk"]["writes"], 1)


def pages_a_transaction(r):
    return r["disk"]["bytes_written"] / counters.PAGE / max(r["tps"] * r["seconds"], 1)


def ratios(results, name, figure):
    """Of the turn with the sweeper to that without it, in each round."""
    found = {(r["round"], r["on"]): figure(r) for r in results if r["name"] == name}
    return [found[number, True] / found[number, False] for number, on in found if on]


FIGURES = (("transactions a write", transactions_a_write, "{:.2f}"), ("TPS", lambda r: r["tps"], "{:.2f}"),
           ("pages a transaction", pages_a_transaction, "{:.2f}"), ("p95", lambda r: r["p95"], "{:.3f}"),
           ("p99.9", lambda r: r["p99.9"], "{:.2f}"), ("dirty pages written by sessions", lambda r: r["evictions"] / r["seconds"], "{:.3f}"))


def show(results):
    rows, ratio_rows = [], []
    for workload in WORKLOADS:
        mine = [r for r in results if r["name"] == workload.name]
        if not mine:
            continue
        for on in (False, True):
            each = [r for r in mine if r["on"] == on]
            rows.append([workload.name, "sweeper" if on else "stock", spread([r["tps"] for r in each], "{:,.0f}"),
                         spread([transactions_a_write(r) for r in each], "{:.2f}"), spread([pages_a_transaction(r) for r in each], "{:.2f}"),
                         spread([r["disk"]["writes"] / r["seconds"] for r in each], "{:.0f}"),
                         spread([r["p95"] for r in each], "{:,.1f}"), spread([r["p99.9"] for r in each], "{:,.0f}"),
                         spread([r["evictions"] / r["seconds"] for r in each], "{:,.1f}"),
                         percent(stats.median([r["sweeper"]["starved"] / max(r["sweeper"]["ticks"], 1) for r in each])) if on else "",
                         percent(stats.median([r["sweeper"]["cpu_ms"] / 1000 / r["seconds"] for r in each]), 2) if on else "",
                         max(r["writers there"] for r in each) if on else ""])
        ratio_rows.append([workload.name, *(spread(ratios(results, workload.name, figure), form) for _, figure, form in FIGURES)])
    return table(["", "", "TPS", "transactions a device write", "pages a transaction", "device writes/s", "p95, ms", "p99.9, ms",
                  "dirty pages/s written by sessions", "ticks starved", "CPU of the sweeper", "writers"], rows) + "\n\n" + \
        table(["sweeper / stock", *(name for name, _, _ in FIGURES)], ratio_rows)


def published(results):
    for workload in WORKLOADS:
        for on in (False, True):
            mine = [r for r in results if (r["name"], r["on"]) == (workload.name, on)]
            yield f"{workload.name}: TPS, {'sweeper' if on else 'stock'}", spread([r["tps"] for r in mine], "{:,.0f}")
        for name, figure, form in FIGURES:
            yield f"{workload.name}: {name}", spread(ratios(results, workload.name, figure), form)


def required(results):
    for workload in WORKLOADS:
        found = ratios(results, workload.name, transactions_a_write)
        yield f"skewed: {workload.name}: transactions a write / stock", spread(found, "{:.2f}"), f"at least {workload.least}", \
            stats.median(found) >= workload.least
        found = ratios(results, workload.name, pages_a_transaction)
        yield f"skewed: {workload.name}: pages a transaction / stock", spread(found, "{:.2f}"), "at most 1.5", stats.median(found) <= 1.5
