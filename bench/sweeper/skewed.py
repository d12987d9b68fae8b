"""Skewed writes on a disk of few writes a second: what a device write carries, without the sweeper and with it in each mode.

One server runs throughout a load, and the sweeper in it is off or in a mode, in turns of random order in each round. A turn
settles first; then it is measured, by the load's own program.
"""
import re
from typing import NamedTuple

import numpy

import counters
import stats
import tpcc
from bed import FREELIST, PRELOADED, STOCK, TURNS, WINDOW
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

# Transactions a device write, to mode freelist.
LEAST_OF_FREELIST = 0.95
MOST_PAGES = 1.5


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


def turn(bed, connection, workload, mode, settle, seconds):
    bed.set(**TURNS[mode])
    bed.place.run(workload.kind.command(bed.server, settle))
    for log in bed.server.folder.glob("turn.*"):
        log.unlink()
    before = counters.read(bed, connection)
    output = bed.place.run(workload.kind.command(bed.server, seconds))
    after = counters.read(bed, connection)
    more = (bed.server.folder,) if isinstance(workload.kind, Pgbench) else ()
    tps, p95, p999 = workload.kind.read(output, seconds, *more)
    found = {"tps": tps, "p95": p95, "p99.9": p999, "writers there": sum(worker["writers"] for worker in after["workers"]), **counters.difference(before, after)}
    say(f"  {mode}: {tps:.0f} TPS, {transactions_a_write(found):.2f} transactions a write, {pages_a_transaction(found):.2f} pages"
        f" a transaction, {reads_a_transaction(found):.2f} read, p95 {p95:.1f} ms, p99.9 {p999:.0f} ms"
        + "".join(f", {state}" for state in found.get("state", []) if mode != STOCK))
    return found


def bytes_of(connection, like):
    return value(connection, f"SELECT sum(pg_table_size(oid) + pg_indexes_size(oid))::bigint FROM pg_class WHERE relkind = 'r' AND relname LIKE '{like}'")


def transactions(r):
    return max(r["tps"] * r["seconds"], 1)


def transactions_a_write(r):
    return transactions(r) / max(r["disk"]["writes"], 1)


def pages_a_transaction(r):
    return r["disk"]["bytes_written"] / counters.PAGE / transactions(r)


def reads_a_transaction(r):
    return r["blocks read"] / transactions(r)


def cpu(r):
    return r["sweeper"]["cpu_ms"] / 1000 / r["seconds"]


def starved(r):
    return r["sweeper"]["starved"] / max(r["sweeper"]["ticks"], 1)


def ratios(results, name, mode, figure, to=STOCK):
    """Of the turn in that mode to the other, in each round."""
    found = {(r["round"], r["mode"]): figure(r) for r in results if r["name"] == name}
    return [found[number, mode] / found[number, to] for number, each in found if each == mode]


FIGURES = (("transactions a write", transactions_a_write, "{:.2f}"), ("TPS", lambda r: r["tps"], "{:.2f}"),
           ("pages a transaction", pages_a_transaction, "{:.2f}"), ("pages read a transaction", reads_a_transaction, "{:.2f}"),
           ("p95", lambda r: r["p95"], "{:.3f}"), ("p99.9", lambda r: r["p99.9"], "{:.2f}"),
           ("dirty pages written by sessions", lambda r: r["evictions"] / r["seconds"], "{:.3f}"))
COLUMNS = ["", "", "TPS", "transactions a device write", "pages a transaction", "pages read a transaction", "device writes/s", "p95, ms",
           "p99.9, ms", "dirty pages/s written by sessions", "ticks starved", "CPU of the sweeper", "writers"]


class Skewed:
    """The loads in these modes, each beside a stock server's turns."""
    RECORDS = {"": ("name", "mode")}
    LEFT_OUT = counters.NOT_SHOWN

    def __init__(self, name, *modes):
        self.name = name
        self.modes = modes
        self.rounds = FULL[0]

    def pieces(self, quick):
        return [workload.name for workload in WORKLOADS]

    def measure(self, place, quick, names):
        with SlowDisk(place.folder / f"{self.name}-disk", DISK_MIB) as disk:
            bed = Bed(place, disk)
            for workload in WORKLOADS:
                if workload.name in names:
                    say(workload.name)
                    yield workload.name, self._one(bed, disk, workload, quick)

    def _one(self, bed, disk, workload, quick):
        rounds, fill, settle, seconds = QUICK if quick else (self.rounds, *FULL[1:])
        found = []
        with bed.running(**PRELOADED) as connection:
            size = bytes_of(connection, workload.kind.tables())
        with bed.running(**PRELOADED, shared_buffers=f"{int(size / workload.times_buffers) // 8192 * 8}kB") as connection:
            bed.place.run(workload.kind.command(bed.server, fill))
            disk.slow(write_iops=WRITE_IOPS, dirty_mib=DIRTY_MIB)
            for number, mode in stats.rounds(rounds, (STOCK, *self.modes)):
                found.append({"name": workload.name, "round": number, "mode": mode, **turn(bed, connection, workload, mode, settle, seconds)})
        return found

    def whole(self, found):
        return [record for records in found.values() for record in records]

    def show(self, results):
        rows, ratio_rows = [], []
        for workload in WORKLOADS:
            if not any(r["name"] == workload.name for r in results):
                continue
            for mode in (STOCK, *self.modes):
                each = [r for r in results if (r["name"], r["mode"]) == (workload.name, mode)]
                on = mode != STOCK
                rows.append([workload.name, mode, spread([r["tps"] for r in each], "{:,.0f}"),
                             spread([transactions_a_write(r) for r in each], "{:.2f}"), spread([pages_a_transaction(r) for r in each], "{:.2f}"),
                             spread([reads_a_transaction(r) for r in each], "{:.2f}"),
                             spread([r["disk"]["writes"] / r["seconds"] for r in each], "{:.0f}"),
                             spread([r["p95"] for r in each], "{:,.1f}"), spread([r["p99.9"] for r in each], "{:,.0f}"),
                             spread([r["evictions"] / r["seconds"] for r in each], "{:,.1f}"),
                             percent(stats.median([starved(r) for r in each])) if on else "",
                             percent(stats.median([cpu(r) for r in each]), 2) if on else "",
                             max(r["writers there"] for r in each) if on else ""])
            ratio_rows += [[workload.name, mode, *(spread(ratios(results, workload.name, mode, figure), form) for _, figure, form in FIGURES)]
                           for mode in self.modes]
        return table(COLUMNS, rows) + "\n\n" + table(["to stock", "", *(name for name, _, _ in FIGURES)], ratio_rows)

    def published(self, results):
        for workload in WORKLOADS:
            for mode in (STOCK, *self.modes):
                mine = [r for r in results if (r["name"], r["mode"]) == (workload.name, mode)]
                yield f"{workload.name}: TPS, {mode}", spread([r["tps"] for r in mine], "{:,.0f}")
            for mode in self.modes:
                for name, figure, form in FIGURES:
                    yield f"{workload.name}: {name}, {mode} / stock", spread(ratios(results, workload.name, mode, figure), form)

    def required(self, results):
        for workload in WORKLOADS:
            for mode in self.modes:
                what = f"{self.name}: {workload.name}: {mode}"
                found = ratios(results, workload.name, mode, transactions_a_write)
                yield f"{what}: transactions a write / stock", spread(found, "{:.2f}"), f"at least {workload.least}", \
                    stats.median(found) >= workload.least
                found = ratios(results, workload.name, mode, pages_a_transaction)
                yield f"{what}: pages a transaction / stock", spread(found, "{:.2f}"), f"at most {MOST_PAGES}", stats.median(found) <= MOST_PAGES
            if FREELIST in self.modes and WINDOW in self.modes:
                found = ratios(results, workload.name, WINDOW, transactions_a_write, FREELIST)
                yield f"{self.name}: {workload.name}: transactions a write, window / freelist", spread(found, "{:.2f}"), \
                    f"at least {LEAST_OF_FREELIST}", stats.median(found) >= LEAST_OF_FREELIST
