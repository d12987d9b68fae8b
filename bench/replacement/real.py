"""Loads on real servers: the sweeper off, and on with each of its policies, in turns within one running server.

Two of the turns of a round are without the sweeper, so that it is seen by how much two equal turns differ.
"""
import contextlib
import datetime
import itertools

import loads
import machine
import real_tables
import stats
import turns
from bed import (ADAPTIVE, AGAIN, BY_ITSELF, CLOCK, FEW_READS, FEW_WRITES, FULL, HISTORY, OFF, QUICK, WINDOW, Bed, limited_bed, mode_of, settings_of)
from cluster import run, say
from load import Load, latencies

CONDITIONS = (OFF, AGAIN, CLOCK, HISTORY, ADAPTIVE)
FEWER = (OFF, AGAIN, CLOCK, ADAPTIVE)
# seconds: a warm-up at most, where all is in memory; settling; measured
TIMES = (60, 6, 3, 12)
# the kernel's own writes are slower to settle
WRITE_TIMES = (60, 6, 8, 16)
QUICK_TIMES = (5, 2, 1, 4)
# of the transactions, so many are in pgbench's log
SAMPLED = 0.2


class Part(real_tables.Tables):
    def __init__(self, name, of_loads, rounds, conditions=FEWER, limits=FEW_READS, mode=None, times=TIMES, sampled=SAMPLED):
        super().__init__(name, of_loads, limits)
        self.rounds = rounds
        self.conditions = conditions
        self.mode = mode
        self.times = times
        self.sampled = sampled

    def pieces(self, quick):
        return [load.name for load in self.loads]

    def measure(self, place, quick, names):
        size = QUICK if quick else FULL
        wanted = [load for load in self.loads if load.name in names]
        # of the machine before: later it is this load's
        known = {"major": place.major, "version": place.version, "date": datetime.date.today().isoformat(), "busy before": machine.load()}
        if self.limits:
            with limited_bed(place, self.name, size, self.limits) as bed:
                yield from self._all(bed, size, wanted, quick, known)
        else:
            yield from self._all(Bed(place, self.name, size), size, wanted, quick, known)

    def _all(self, bed, size, wanted, quick, known):
        for load in wanted:
            say(load.name)
            with bed.running_with(int(size.buffers_mib * load.buffers)) as connection:
                yield load.name, [{**known, **record} for record in self._one(bed, connection, load, quick)]

    def _one(self, bed, connection, load, quick):
        most, most_if_none, *times = QUICK_TIMES if quick else self.times
        found = []
        make(bed, load)
        # one run of pgbench for a round, or for a turn if its tables grow
        together = itertools.groupby(stats.rounds(1 if quick else self.rounds, self.conditions), key=lambda turn: turn if load.grows else turn[0])
        for n, (_, its_turns) in enumerate(together):
            mine = []
            if load.grows and n:
                make(bed, load)
            with Load(bed.server, *options(bed, load), f"--sampling-rate={self.sampled}", log=True) as running:
                for number, condition in its_turns:
                    settings = settings_of(condition, self.mode or mode_of(bed.place.major))
                    mine.append({"load": load.name, "round": number, "condition": condition,
                                 **turns.turn(bed, connection, running, settings, most_if_none if load.takes_none else most, *times)})
                    turns.say_turn(condition, mine[-1])
            at, ms = running.transactions()
            found += [{**r, "ms": latencies(ms[(at >= r["began"]) & (at < r["ended"])])} for r in mine]
        return found

    def whole(self, found):
        return [record for records in found.values() for record in records]

    def merged(self, before, found):
        """Results of other loads and of other majors stay."""
        anew = {(r["major"], r["load"]) for r in found}
        order = [load.name for load in self.loads]
        return sorted((*(r for r in before if (r["major"], r["load"]) not in anew and r["load"] in order), *found),
                      key=lambda r: (order.index(r["load"]), r["major"]))


def make(bed, load):
    """The tables of the load's own. What they dirtied is written, and the memory that they took is free, before anything is measured."""
    with contextlib.closing(bed.server.connect()) as connection:
        for statement in (*load.tables(bed.buffers), "CHECKPOINT") if load.tables else ():
            run(connection, statement)


def options(bed, load):
    scripts = []
    for name, (text, weight) in load.scripts_for(bed.buffers).items():
        file = bed.server.folder / f"{name}.sql"
        file.write_text(text)
        scripts += ["-f", f"{file}@{weight}"]
    variables = {"rows": int(bed.rows * load.rows), "branches": bed.branches, "n": 0, "oldest": loads.oldest(bed.buffers), "pages": bed.pages}
    return ["-M", "prepared", "-c", load.clients, "-j", 2,
            *(word for name, value in variables.items() for word in ("-D", f"{name}={value}")), *scripts]


PARTS = {part.name: part for part in (
    Part("reads", (loads.ZIPF,), rounds=3, conditions=CONDITIONS),
    Part("reads_window", (loads.ZIPF,), rounds=3, conditions=CONDITIONS, mode=WINDOW),
    Part("cases", loads.GAINS, rounds=2),
    Part("neutral", loads.NEUTRAL, rounds=2, conditions=(*FEWER, BY_ITSELF)),
    Part("slow_writes", loads.WRITES, rounds=1, conditions=CONDITIONS, limits=FEW_WRITES, times=WRITE_TIMES, sampled=1),
    Part("cpu", loads.CPU, rounds=2, conditions=(*FEWER, BY_ITSELF), limits=None),
)}
