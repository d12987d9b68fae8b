"""Skewed writes on a disk of few writes a second: what a device write carries, without the sweeper and with it.

One server runs throughout a load, and the sweeper in it is off or on, in turns of random order in each round. A turn settles
first; then it is measured, by the load's own program.
"""
import re
from typing import NamedTuple

import counters
import majors
import stats
import tpcc
from bed import DIRTY_MIB, DISK_MIB, PRELOADED, STOCK, SWEEPER, TURNS
from cluster import say, value
from copied import CopiedServer
from load import sysbench
from report import percent, spread, table
from slowdisk import SlowDisk

WRITE_IOPS = 250
CLIENTS = 6
SCALE = 14
ROWS = 200000
rounds = 3
# seconds: filling, of a turn before what counts, and what counts
FULL = (15, 12, 20)
QUICK = (3, 2, 4)
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


def turn(bed, connection, workload, variant, settle, seconds):
    bed.set(**TURNS[variant])
    bed.place.run(workload.kind.command(bed.server, settle))
    before = counters.read(bed, connection)
    output = bed.place.run(workload.kind.command(bed.server, seconds))
    after = counters.read(bed, connection)
    # pgbench's, or sysbench's
    tps = float(re.search(r"^tps = ([\d.]+)|transactions: +\d+ +\(([\d.]+) per sec", output, re.M).expand(r"\1\2"))
    found = {"tps": tps, **counters.difference(before, after)}
    say(f"  {variant}: {tps:.0f} TPS, {transactions_a_write(found):.2f} transactions a write")
    return found


def transactions(r):
    return max(r["tps"] * r["seconds"], 1)


def transactions_a_write(r):
    return transactions(r) / max(r["disk"]["writes"], 1)


def pages_a_transaction(r):
    return r["disk"]["bytes_written"] / counters.PAGE / transactions(r)


def select(mine, variant):
    return [r for r in mine if r["variant"] == variant]


def ratios(mine, figure):
    """Of a load on a major: with the sweeper to without, in each round."""
    found = {(r["round"], r["variant"]): figure(r) for r in mine}
    return [found[number, SWEEPER] / found[number, STOCK] for number, variant in found if variant == SWEEPER]


FIGURES = (("transactions a write", transactions_a_write, "{:.2f}"), ("TPS", lambda r: r["tps"], "{:.2f}"),
           ("pages a transaction", pages_a_transaction, "{:.2f}"),
           ("pages read a transaction", lambda r: r["blocks read"] / transactions(r), "{:.2f}"),
           ("dirty pages written by sessions", lambda r: r["evictions"] / r["seconds"], "{:.3f}"))
RECORDS = {"": ("name", "major", "variant")}
LEFT_OUT = (*counters.NOT_SHOWN, "state", "runs", "written", "neighbours", "writer_cpu_ms")
caption = majors.caption


def pieces(quick):
    return [workload.name for workload in WORKLOADS]


def measure(place, quick, names):
    with SlowDisk(place.folder / "skewed-disk", DISK_MIB) as disk:
        bed = Bed(place, "skewed", disk)
        for workload in WORKLOADS:
            if workload.name in names:
                say(workload.name)
                yield workload.name, one(bed, disk, workload, quick)


def one(bed, disk, workload, quick):
    fill, settle, seconds = QUICK if quick else FULL
    known = {"name": workload.name, **majors.described(bed.place)}
    with bed.running(**PRELOADED) as connection:
        size = value(connection, "SELECT sum(pg_table_size(oid) + pg_indexes_size(oid))::bigint FROM pg_class"
                                 f" WHERE relkind = 'r' AND relname LIKE '{workload.kind.tables}'")
    with bed.running(**PRELOADED, shared_buffers=f"{int(size / workload.times_buffers) // 8192 * 8}kB") as connection:
        bed.place.run(workload.kind.command(bed.server, fill))
        disk.slow(write_iops=WRITE_IOPS, dirty_mib=DIRTY_MIB)
        return [{**known, "round": number, "variant": variant, **turn(bed, connection, workload, variant, settle, seconds)}
                for number, variant in stats.rounds(1 if quick else rounds, TURNS)]


def whole(found):
    return [record for records in found.values() for record in records]


def merged(before, found):
    return majors.merged(before, found, "name", pieces(False))


def show(results):
    rows = []
    for name, major, mine in majors.cases(results, "name"):
        stock, swept = (select(mine, variant) for variant in TURNS)
        rows.append([name, major, *(spread([r["tps"] for r in each], "{:,.0f}") for each in (stock, swept)),
                     *(spread(ratios(mine, figure), form) for _, figure, form in FIGURES),
                     percent(stats.median([r["sweeper"]["starved"] / max(r["sweeper"]["ticks"], 1) for r in swept])),
                     percent(stats.median([r["sweeper"]["cpu_ms"] / 1000 / r["seconds"] for r in swept]))])
    return table(["", "PostgreSQL", "TPS, stock", "TPS, sweeper", *(f"{name}, to stock" for name, _, _ in FIGURES),
                  "ticks starved", "CPU of the sweeper"], rows)


def published(results):
    for name, major, mine in majors.cases(results, "name"):
        for variant in TURNS:
            yield f"{name}: TPS, {variant}, {major}", spread([r["tps"] for r in select(mine, variant)], "{:,.0f}")


def required(results):
    least = {workload.name: workload.least for workload in WORKLOADS}
    for what, figure, limit, is_met in (
            ("transactions a write", transactions_a_write, "at least 1.0 to 2.0, by load", lambda name, x: x >= least[name]),
            ("pages a transaction", pages_a_transaction, f"at most {MOST_PAGES}", lambda name, x: x <= MOST_PAGES)):
        found = {(name, major): ratios(mine, figure) for name, major, mine in majors.cases(results, "name")}
        missed = {case: each for case, each in found.items() if not is_met(case[0], stats.median(each))}
        said = "; not ".join([f"{len(found) - len(missed)} of {len(found)}",
                              *(f"{name}, {major}: {spread(each, '{:.2f}')}" for (name, major), each in missed.items())])
        yield f"skewed: {what} / stock", said, limit, not missed
