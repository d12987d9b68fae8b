"""Skewed writes on a disk of few writes a second: what a device write carries, without the sweeper and with it in each mode.

One server runs throughout a load, and the sweeper in it is off or in a mode, in turns of random order in each round. A turn
settles first; then it is measured, by the load's own program.
"""
import re
from typing import NamedTuple

import counters
import stats
import tpcc
from bed import DIRTY_MIB, DISK_MIB, FREELIST, PRELOADED, STOCK, TURNS, WINDOW
from cluster import say, value
from copied import CopiedServer
from load import sysbench
from report import percent, spread, table
from slowdisk import SlowDisk

WRITE_IOPS = 250
CLIENTS = 6
SCALE = 14
ROWS = 200000
# rounds; seconds: filling, of a turn before what counts, and what counts
FULL = (3, 15, 12, 20)
QUICK = (1, 3, 2, 4)
# transactions a device write, to mode freelist
LEAST_OF_FREELIST = 0.95
MOST_PAGES = 1.5

SCRIPTS = {"zipf": "\\set rank random_zipfian(1, 100000 * :scale, 1.05)\n\\set aid permute(:rank, 100000 * :scale)\n",
           "uniform": "\\set aid random(1, 100000 * :scale)\n"}
UPDATE = "UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid = :aid;\n"


class Sysbench(NamedTuple):
    script: str
    tables: str = "sbtest%"

    def command(self, server, seconds):
        return sysbench(server.folder, ROWS, f"--threads={CLIENTS}", "--rand-type=pareto", f"--time={seconds}", self.script, "run")


class Pgbench(NamedTuple):
    files: tuple            # names of scripts, with weights
    tables: str = "pgbench_%"

    def command(self, server, seconds):
        return ["pgbench", "-h", server.folder, "-U", "postgres", "-n", "-s", SCALE, "-M", "prepared", "-c", CLIENTS, "-j", 2,
                "-T", seconds, *(word for file in self.files for word in ("-f", server.folder / file)), "postgres"]


class Workload(NamedTuple):
    name: str
    kind: object
    times_buffers: float
    least: float            # transactions a device write, times stock's


TPCC = Pgbench(tuple(f"{name}.sql@{weight}" for name, weight in tpcc.WEIGHTS.items()), "tpcc_%")
WORKLOADS = (
    Workload("sysbench oltp_write_only, pareto, 3x", Sysbench("oltp_write_only"), 3.2, 2.0),
    Workload("sysbench oltp_read_write, pareto, 3x", Sysbench("oltp_read_write"), 3.2, 1.8),
    Workload("five transactions like TPC-C's, 3x", TPCC, 3.2, 1.5),
    Workload("UPDATE, zipf 1.05, 3x", Pgbench(("zipf.sql",)), 3.2, 2.0),
    Workload("sysbench oltp_write_only, pareto, 8x", Sysbench("oltp_write_only"), 8, 1.3),
    Workload("UPDATE, uniform, 3x", Pgbench(("uniform.sql",)), 3.2, 1.0),
)


class Bed(CopiedServer):
    def __init__(self, place, name, disk):
        super().__init__(place, name, SCALE, disk, sql=tpcc.SETUP, shared_buffers="64MB", max_wal_size="16GB",
                         synchronous_commit="on", max_connections=50, max_worker_processes=32)
        for name, text in {**{name: text + UPDATE for name, text in SCRIPTS.items()}, **tpcc.SCRIPTS}.items():
            (self.server.folder / f"{name}.sql").write_text(text)

    def load_more(self):
        self.place.run(sysbench(self.server.folder, ROWS, f"--threads={CLIENTS}", "oltp_read_write", "prepare"))


def turn(bed, connection, workload, mode, settle, seconds):
    bed.set(**TURNS[mode])
    bed.place.run(workload.kind.command(bed.server, settle))
    before = counters.read(bed, connection)
    output = bed.place.run(workload.kind.command(bed.server, seconds))
    after = counters.read(bed, connection)
    # pgbench's, or sysbench's
    tps = float(re.search(r"^tps = ([\d.]+)|transactions: +\d+ +\(([\d.]+) per sec", output, re.M).expand(r"\1\2"))
    found = {"tps": tps, **counters.difference(before, after)}
    say(f"  {mode}: {tps:.0f} TPS, {transactions_a_write(found):.2f} transactions a write")
    return found


def transactions(r):
    return max(r["tps"] * r["seconds"], 1)


def transactions_a_write(r):
    return transactions(r) / max(r["disk"]["writes"], 1)


def pages_a_transaction(r):
    return r["disk"]["bytes_written"] / counters.PAGE / transactions(r)


def ratios(results, name, mode, figure, to=STOCK):
    """Of the turn in that mode to the other, in each round."""
    found = {(r["round"], r["mode"]): figure(r) for r in results if r["name"] == name}
    return [found[number, mode] / found[number, to] for number, each in found if each == mode]


FIGURES = (("transactions a write", transactions_a_write, "{:.2f}"), ("TPS", lambda r: r["tps"], "{:.2f}"),
           ("pages a transaction", pages_a_transaction, "{:.2f}"),
           ("pages read a transaction", lambda r: r["blocks read"] / transactions(r), "{:.2f}"),
           ("dirty pages written by sessions", lambda r: r["evictions"] / r["seconds"], "{:.3f}"))


class Skewed:
    """The loads in these modes, each beside a stock server's turns."""
    RECORDS = {"": ("name", "mode")}
    LEFT_OUT = (*counters.NOT_SHOWN, "state", "runs", "written", "neighbours", "writer_cpu_ms")

    def __init__(self, name, *modes):
        self.name = name
        self.modes = modes
        self.rounds = FULL[0]

    def pieces(self, quick):
        return [workload.name for workload in WORKLOADS]

    def measure(self, place, quick, names):
        with SlowDisk(place.folder / f"{self.name}-disk", DISK_MIB) as disk:
            bed = Bed(place, self.name, disk)
            for workload in WORKLOADS:
                if workload.name in names:
                    say(workload.name)
                    yield workload.name, self._one(bed, disk, workload, quick)

    def _one(self, bed, disk, workload, quick):
        rounds, fill, settle, seconds = QUICK if quick else (self.rounds, *FULL[1:])
        with bed.running(**PRELOADED) as connection:
            size = value(connection, "SELECT sum(pg_table_size(oid) + pg_indexes_size(oid))::bigint FROM pg_class"
                                     f" WHERE relkind = 'r' AND relname LIKE '{workload.kind.tables}'")
        with bed.running(**PRELOADED, shared_buffers=f"{int(size / workload.times_buffers) // 8192 * 8}kB") as connection:
            bed.place.run(workload.kind.command(bed.server, fill))
            disk.slow(write_iops=WRITE_IOPS, dirty_mib=DIRTY_MIB)
            return [{"name": workload.name, "round": number, "mode": mode, **turn(bed, connection, workload, mode, settle, seconds)}
                    for number, mode in stats.rounds(rounds, (STOCK, *self.modes))]

    def whole(self, found):
        return [record for records in found.values() for record in records]

    def show(self, results):
        rows = []
        for workload in WORKLOADS:
            for mode in self.modes:
                stock, mine = ([r for r in results if (r["name"], r["mode"]) == (workload.name, each)] for each in (STOCK, mode))
                if not mine:
                    continue
                does = [r["sweeper"] for r in mine]
                rows.append([workload.name, mode, *(spread([r["tps"] for r in each], "{:,.0f}") for each in (stock, mine)),
                             *(spread(ratios(results, workload.name, mode, figure), form) for _, figure, form in FIGURES),
                             percent(stats.median([did["starved"] / max(did["ticks"], 1) for did in does])),
                             percent(stats.median([r["sweeper"]["cpu_ms"] / 1000 / r["seconds"] for r in mine]))])
        return table(["", "", "TPS, stock", "TPS", *(f"{name}, to stock" for name, _, _ in FIGURES), "ticks starved",
                      "CPU of the sweeper"], rows)

    def published(self, results):
        for workload in WORKLOADS:
            for mode in (STOCK, *self.modes):
                yield f"{workload.name}: TPS, {mode}", \
                    spread([r["tps"] for r in results if (r["name"], r["mode"]) == (workload.name, mode)], "{:,.0f}")

    def required(self, results):
        for mode in self.modes:
            yield self._required(f"{mode}: transactions a write / stock",
                                 lambda load: ratios(results, load.name, mode, transactions_a_write),
                                 "at least 1.0 to 2.0, by load", lambda load, ratio: ratio >= load.least)
            yield self._required(f"{mode}: pages a transaction / stock",
                                 lambda load: ratios(results, load.name, mode, pages_a_transaction),
                                 f"at most {MOST_PAGES}", lambda load, ratio: ratio <= MOST_PAGES)
        if FREELIST in self.modes and WINDOW in self.modes:
            yield self._required("transactions a write, window / freelist",
                                 lambda load: ratios(results, load.name, WINDOW, transactions_a_write, FREELIST),
                                 f"at least {LEAST_OF_FREELIST}", lambda load, ratio: ratio >= LEAST_OF_FREELIST)

    def _required(self, what, found, limit, is_met):
        """Of all loads, with those that miss the limit."""
        missed = {load.name: found(load) for load in WORKLOADS if not is_met(load, stats.median(found(load)))}
        said = "; not ".join([f"{len(WORKLOADS) - len(missed)} of {len(WORKLOADS)} loads",
                              *(f"{name}: {spread(each, '{:.2f}')}" for name, each in missed.items())])
        return f"{self.name}: {what}", said, limit, not missed
