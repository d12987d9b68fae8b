"""Loads on real servers: the sweeper off, on, and by itself, in turns within one running server.

Two of the turns of a round are without the sweeper, so that it is seen by how much two equal turns differ.
"""
import contextlib
import itertools

import loads
import majors
import stats
import turns
from bed import AGAIN, BY_ITSELF, FEW_READS, FEW_WRITES, FULL, OFF, ON, QUICK, Bed, limited_bed, settings_of
from cluster import run, say
from load import Load, latencies
from report import percent, spread, table

MADE_TO_WORK = (OFF, AGAIN, ON)
CONDITIONS = (*MADE_TO_WORK, BY_ITSELF)
# seconds: a warm-up at most; where all is in memory; settling; measured
TIMES = (60, 6, 3, 12)
# by itself it has the time to decide before; where tables grow, what that is compared with has the same times
ITS_TIMES = (60, 6, 45, 30)
# the kernel's own writes are slower to settle
WRITE_TIMES = (60, 6, 8, 16)
QUICK_TIMES = (5, 2, 1, 4)
# of the transactions, so many are in pgbench's log
SAMPLED = 0.2
WITHIN = 0.2                # of the real saving, the foretold one
MOST_NS = 500               # of CPU time a buffer: 5 % of a core at 100,000 buffers a second
MOST_P99 = 1.05             # to off, where nothing is to be gained

TPS = ("TPS", turns.tps, "{:,.0f}")
READS = ("pages read a transaction", turns.reads, "{:.3f}")
DEVICE_READS = ("device reads a transaction", turns.device_reads, "{:.3f}")
P99 = ("p99, ms", turns.p99, "{:.2f}")
A_WRITE = ("transactions a device write", turns.transactions_a_write, "{:.2f}")


class Part:
    RECORDS = {"": ("load", "major", "condition")}
    LEFT_OUT = ("began", "ended", "p50", "p95", "p99.9", "max")

    def __init__(self, name, of_loads, rounds, conditions=MADE_TO_WORK, limits=FEW_READS, times=TIMES):
        self.name = name
        self.LEFT_OUT = (*self.LEFT_OUT, "device reads" if limits == FEW_WRITES else "device writes")
        self.loads = of_loads
        self.rounds = rounds
        self.conditions = conditions
        self.limits = limits
        self.times = times
        on_disk = ((DEVICE_READS,) if limits == FEW_READS else (A_WRITE,)) if limits else ()
        self.figures = (TPS, READS, *on_disk, P99)

    def pieces(self, quick):
        return [load.name for load in self.loads]

    def measure(self, place, quick, names):
        size = QUICK if quick else FULL
        known = majors.described(place)
        with contextlib.ExitStack() as undo:
            if self.limits:
                bed = undo.enter_context(limited_bed(place, self.name, size, self.limits))
            else:
                bed = Bed(place, self.name, size)
            for load in self.loads:
                if load.name not in names:
                    continue
                say(load.name)
                with bed.running_with(int(size.buffers_mib * load.buffers)) as connection:
                    yield load.name, [{**known, **record} for record in self._one(bed, connection, load, quick)]

    def _one(self, bed, connection, load, quick):
        found = []
        make(bed, load)
        # one run of pgbench for a round, or for a turn if its tables grow
        together = itertools.groupby(stats.rounds(1 if quick else self.rounds, self.conditions),
                                     key=lambda turn: turn if load.grows else turn[0])
        for n, (_, its_turns) in enumerate(together):
            mine = []
            if load.grows and n:
                make(bed, load)
            with Load(bed.server, *options(bed, load), f"--sampling-rate={SAMPLED}", log=True) as running:
                for number, condition in its_turns:
                    longer = condition == BY_ITSELF or load.grows and BY_ITSELF in self.conditions
                    most, most_if_none, *times = QUICK_TIMES if quick else ITS_TIMES if longer else self.times
                    warm_up = most_if_none if load.takes_none else most
                    mine.append({"load": load.name, "round": number, "condition": condition,
                                 **turns.turn(bed, connection, running, settings_of(condition), warm_up, *times)})
                    turns.say_turn(condition, mine[-1])
            add_latencies(running, mine)
            found += mine
        return found

    def whole(self, found):
        return [record for records in found.values() for record in records]

    def merged(self, before, found):
        return majors.merged(before, found, "load", self.pieces(False))

    def _measured(self, results):
        """Each load, major and condition that there are, with the records."""
        for load in self.loads:
            for major in sorted({r["major"] for r in results}):
                for condition in CONDITIONS:
                    if mine := [r for r in results if (r["load"], r["major"], r["condition"]) == (load.name, major, condition)]:
                        yield load, major, condition, mine

    def show(self, results):
        """A row for each condition; what it is compared with stands beside it."""
        rows, off = [], []
        for load, major, condition, mine in self._measured(results):
            if condition == OFF:
                off = [spread([figure[1](r) for r in mine], figure[2]) for figure in self.figures]
            elif condition != AGAIN:
                row = [load.name, major, condition, self._ratio(results, load, major, AGAIN, TPS)]
                for there, figure in zip(off, self.figures):
                    row += [there, self._ratio(results, load, major, condition, figure)]
                rows.append(row + show_sweeper(load, mine))
        columns = [name for figure in self.figures for name in (f"{figure[0]}, off", "to off")]
        return table(["", "PostgreSQL", "sweeper", "TPS, off again to off", *columns, *SWEEPER_COLUMNS], rows)

    def caption(self, results):
        return majors.caption(results)

    @staticmethod
    def _ratio(results, load, major, condition, figure):
        """To off; nothing where there is nothing to compare."""
        if condition == OFF or load.takes_none and figure not in (TPS, P99):
            return ""
        found = ratios(results, load, major, condition, figure[1])
        return spread(found, "{:.2f}") if found else ""

    def published(self, results):
        for load, major, condition, mine in self._measured(results):
            for figure in self.figures:
                yield f"{load.name}: {figure[0]}, {condition}, {major}", spread([figure[1](r) for r in mine], figure[2])
                yield f"{load.name}: {figure[0]}, {condition} / off, {major}", self._ratio(results, load, major, condition, figure)

    def required(self, results):
        """Of all loads and majors, with those that miss their limit."""
        found = {}
        for load, major, condition, mine in self._measured(results):
            if condition not in (OFF, AGAIN):
                for what, limit, said, is_met in self._limits(results, load, major, condition, mine):
                    found.setdefault((what, limit), []).append((f"{load.name}, {major}: {said}", is_met))
        for (what, limit), each in found.items():
            missed = [said for said, is_met in each if not is_met]
            yield f"{self.name}: {what}", "; not ".join([f"{len(each) - len(missed)} of {len(each)}", *missed]), limit, not missed

    @staticmethod
    def _limits(results, load, major, condition, mine):
        """What is required of the load, the limit, what was measured, and whether the limit is met."""
        reads, tps, p99 = (ratios(results, load, major, condition, figure) for figure in (turns.reads, turns.tps, turns.p99))
        by_itself = ", by itself" if condition == BY_ITSELF else ""
        if load.least_tps and load.least_tps >= 1:
            yield "TPS / off", f"at least {load.least_tps:.2f}", spread(tps, "{:.2f}"), stats.median(tps) >= load.least_tps
        elif load.least_tps:
            # by as much as two equal turns differ, it may be less, or more
            least = min(load.least_tps, *ratios(results, load, major, AGAIN, turns.tps))
            most = max(MOST_P99, *ratios(results, load, major, AGAIN, turns.p99))
            yield f"TPS / off{by_itself}", f"at least {load.least_tps:.2f}, or the least of off again / off", \
                spread(tps, "{:.2f}"), stats.median(tps) >= least
            yield f"p99 / off{by_itself}", f"at most {MOST_P99}, or the most of off again / off", \
                spread(p99, "{:.2f}"), stats.median(p99) <= most
        if by_itself:
            return
        if load.most_reads:
            yield "pages read a transaction / off", f"at most {load.most_reads:.2f}", spread(reads, "{:.2f}"), \
                stats.median(reads) <= load.most_reads
        if load.most_reads and load.most_reads < 1:
            foretold, real = stats.median([r["foretold"] for r in mine]), 1 - stats.median(reads)
            yield "reads saved, foretold / real", f"within {percent(WITHIN, 0)}", f"{percent(foretold, 0)} / {percent(real, 0)}", \
                abs(foretold - real) <= WITHIN * real
        if load.has_most_cpu:
            ns = [turns.cpu_a_buffer(r) for r in mine]
            yield "ns of the sweeper's CPU time a buffer", f"at most {MOST_NS}", spread(ns, "{:.0f}"), stats.median(ns) <= MOST_NS


SWEEPER_COLUMNS = ["buffers supplied", "CPU of the sweeper, of a core", "ns a buffer taken", "reads saved, foretold"]


def show_sweeper(load, mine):
    if load.takes_none:
        return ["", show_cpu(mine), "", ""]
    foretold = [r["foretold"] for r in mine if r["foretold"] is not None]
    return [percent(stats.median([turns.served(r) for r in mine]), 0), show_cpu(mine),
            spread([turns.cpu_a_buffer(r) for r in mine], "{:,.0f}"),
            percent(stats.median(foretold), 0) if foretold else ""]


def show_cpu(mine):
    return spread([turns.cpu(r) * 100 for r in mine], "{:.1f}", " %")


def add_latencies(load, mine):
    """To records with the times "began" and "ended", when the load has ended."""
    at, ms = load.transactions()
    for r in mine:
        r["ms"] = latencies(ms[(at >= r["began"]) & (at < r["ended"])])


def ratios(results, load, major, condition, figure):
    """To off, in each round in which that is not 0."""
    found = {(r["round"], r["condition"]): figure(r) for r in results if (r["load"], r["major"]) == (load.name, major)}
    return [mine / found[number, OFF] for (number, each), mine in found.items() if each == condition and found[number, OFF]]


def make(bed, load):
    """The tables of the load's own. What they dirtied is written before anything is measured, and their memory is free."""
    with contextlib.closing(bed.server.connect()) as connection:
        for statement in (*load.tables(bed.buffers), "CHECKPOINT") if load.tables else ():
            run(connection, statement)


def options(bed, load):
    scripts = []
    for name, (text, weight) in load.scripts_for(bed.buffers).items():
        file = bed.server.folder / f"{name}.sql"
        file.write_text(text)
        scripts += ["-f", f"{file}@{weight}"]
    variables = {"rows": int(bed.rows * load.rows), "branches": bed.branches, "n": 0, "oldest": loads.oldest(bed.buffers),
                 "pages": bed.pages}
    return ["-M", "prepared", "-c", load.clients, "-j", 2,
            *(word for name, value in variables.items() for word in ("-D", f"{name}={value}")), *scripts]


PARTS = {part.name: part for part in (
    Part("reads", (loads.ZIPF,), rounds=3),
    Part("cases", loads.GAINS, rounds=2),
    Part("neutral", loads.NEUTRAL, rounds=2, conditions=CONDITIONS),
    Part("slow_writes", loads.WRITES, rounds=1, limits=FEW_WRITES, times=WRITE_TIMES),
    Part("cpu", loads.CPU, rounds=2, conditions=CONDITIONS, limits=None),
)}
