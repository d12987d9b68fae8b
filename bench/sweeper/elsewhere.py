"""Where nothing is to win, nothing may be lost: other loads and other disks, with the sweeper on and off.

One server runs throughout, and the sweeper in it is switched on and off in pairs of turns of random order, since two
starts of one and the same server differ by far more than what is looked for.
"""
import random
import time
from typing import NamedTuple

import counters
import stats
from bed import PRELOADED, SWEEPING, TPCB, Bed, slow_bed
from cluster import run, say
from report import between, table

PAIRS, QUICK_PAIRS = 6, 1
DIRTY_MIB = 4
LIMIT = 0.98
# seconds: filling, of a turn before what counts, and what counts; loads settle slower on the slow disk
FAST = (8, 2, 4)
SLOW = (10, 4, 8)
QUICK = (3, 2, 3)

READ = ("-S", *TPCB)
UPDATED = 1000
RANGES = f"""\\set first random(1, :scale * 100000 - {UPDATED - 1})
UPDATE pgbench_accounts SET abalance = abalance + 1 WHERE aid BETWEEN :first AND :first + {UPDATED - 1};
"""


class Steady(NamedTuple):
    """A pgbench without end; a turn's figure is its TPS."""
    options: tuple = TPCB
    script: str = None

    def turns(self, bed, connection, turns, times):
        fill, settle, seconds = times
        options = self.options
        if self.script:
            file = bed.server.folder / "script.sql"
            file.write_text(self.script)
            options = (*options, "-f", file)
        with bed.loaded(connection, fill, DIRTY_MIB, *options) as load:
            # until it does what it will go on doing
            time.sleep(settle)
            for pair, on in turns:
                bed.set(**(SWEEPING if on else {}))
                time.sleep(settle)
                began = time.time()
                time.sleep(seconds)
                yield pair, on, load.tps(began, time.time())


class Timed(NamedTuple):
    """A statement that fills a table over and over; a turn's figure is how many a second there would be."""
    statement: str

    def turns(self, bed, connection, turns, times):
        run(connection, "CREATE TABLE filled (LIKE pgbench_accounts)")
        file = bed.server.folder / "accounts"
        run(connection, f"COPY (SELECT * FROM pgbench_accounts WHERE aid <= 1000000) TO '{file}'")
        bed.fill(connection, times[0])
        bed.slow(DIRTY_MIB)
        for pair, on in turns:
            bed.set(**(SWEEPING if on else {}))
            # the first time is for the sweeper to find out what to do
            self._time(connection, file)
            yield pair, on, 1 / self._time(connection, file)

    def _time(self, connection, file):
        run(connection, "TRUNCATE filled")
        began = time.monotonic()
        run(connection, self.statement.format(file=file))
        return time.monotonic() - began


class Workload(NamedTuple):
    name: str
    kind: object
    slow: bool = False
    shared_buffers: str = None
    # the data are so many times the buffers
    times_buffers: int = None


COPY = Timed("COPY filled FROM '{file}'")
INSERT = Timed("INSERT INTO filled SELECT * FROM pgbench_accounts")

WORKLOADS = (
    Workload("TPC-B, fast disk", Steady()),
    Workload("-S, data fit", Steady(READ), shared_buffers="1GB"),
    Workload("-S, data do not fit", Steady(READ)),
    Workload(f"UPDATE of {UPDATED:,} neighbours, fast disk", Steady(script=RANGES)),
    Workload("TPC-B, data 5x buffers, fast disk", Steady(), times_buffers=5),
    Workload("TPC-B, data 8x buffers, fast disk", Steady(), times_buffers=8),
    Workload("COPY, fast disk", COPY),
    Workload("INSERT .. SELECT, fast disk", INSERT),
    Workload("TPC-B, data 5x buffers, slow disk", Steady(), slow=True, times_buffers=5),
    Workload("TPC-B, data 8x buffers, slow disk", Steady(), slow=True, times_buffers=8),
    Workload("COPY, slow disk", COPY, slow=True),
    Workload("INSERT .. SELECT, slow disk", INSERT, slow=True),
)


def one(bed, workload, quick):
    settings = dict(PRELOADED)
    if workload.times_buffers:
        settings["shared_buffers"] = f"{bed.bytes // workload.times_buffers // 1024}kB"
    elif workload.shared_buffers:
        settings["shared_buffers"] = workload.shared_buffers
    turns = [(pair, on) for pair in range(QUICK_PAIRS if quick else PAIRS)
             for on in random.Random(pair).sample([True, False], 2)]
    times = QUICK if quick else SLOW if workload.slow else FAST
    found = []
    with bed.running(**settings) as connection:
        for pair, on, speed in workload.kind.turns(bed, connection, turns, times):
            states = {f"{worker['state']}: {worker['reason']}" for worker in counters.sweeper(bed, connection)}
            found.append({"name": workload.name, "pair": pair, "on": on, "speed": speed, "states": sorted(states)})
    say(f"  {workload.name}: {' '.join(f'{ratio:.2f}' for ratio in ratios(found, workload.name))}")
    return found


RECORDS = {"": ("name", "on")}


def pieces(quick):
    return [workload.name for workload in WORKLOADS]


def measure(place, quick, names):
    fast, slow = ([workload for workload in WORKLOADS if workload.name in names and workload.slow == is_slow] for is_slow in (False, True))
    if fast:
        bed = Bed(place, "elsewhere")
        for workload in fast:
            yield workload.name, one(bed, workload, quick)
    if slow:
        with slow_bed(place, "elsewhere-slow") as bed:
            for workload in slow:
                yield workload.name, one(bed, workload, quick)


def whole(found):
    return [record for records in found.values() for record in records]


def ratios(results, name):
    """Of the speed with the sweeper to that without it, in each pair."""
    speed = {(r["pair"], r["on"]): r["speed"] for r in results if r["name"] == name}
    return [speed[pair, True] / speed[pair, False] for pair, on in speed if on]


def show(results):
    rows = []
    for workload in WORKLOADS:
        found = ratios(results, workload.name)
        low, high = stats.interval(found)
        mine = [r for r in results if r["name"] == workload.name]
        states = [state for r in mine if r["on"] for state in r["states"]]
        rows.append([workload.name, f"{stats.median([r['speed'] for r in mine if not r['on']]):,.3g}",
                     f"{stats.median(found):.3f}", f"{low:.3f} .. {high:.3f}", len(found),
                     max(states, key=states.count, default="")])
    return table(["", "stock, 1/s", "on / off, median of pairs", "95 %", "pairs", "state of the sweeper, mostly"], rows)


def published(results):
    found = {workload: ratios(results, workload.name) for workload in WORKLOADS}
    for workload, each in found.items():
        yield workload.name, between(stats.median(each), *stats.interval(each), "{:.2f}")
    fast = [stats.median(each) for workload, each in found.items() if not workload.slow]
    yield "fast disk, least", f"{min(fast):.2f}"
    yield "fast disk, greatest", f"{max(fast):.2f}"


def required(results):
    for workload in WORKLOADS:
        found = ratios(results, workload.name)
        low, high = stats.interval(found)
        yield f"elsewhere: {workload.name}", f"{stats.median(found):.3f} ({low:.3f} .. {high:.3f})", \
            f"{LIMIT} within its interval", high >= LIMIT
