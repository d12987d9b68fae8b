"""Where nothing is to win, nothing may be lost: other loads and other disks, with the sweeper off and in each mode.

One server runs throughout, and the sweeper in it is off or in a mode in turns of random order in each round, since two
starts of one and the same server differ by far more than what is looked for.
"""
import time
from typing import NamedTuple

import counters
import stats
from bed import PRELOADED, STOCK, TPCB, TURNS, Bed, modes, slow_bed
from cluster import run, say
from report import interval, table

ROUNDS, QUICK_ROUNDS = 6, 1
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
        with bed.loaded(connection, fill, *options) as load:
            # until it does what it will go on doing
            time.sleep(settle)
            for number, mode in turns:
                bed.set(**TURNS[mode])
                time.sleep(settle)
                began = time.time()
                time.sleep(seconds)
                yield number, mode, load.tps(began, time.time())


class Timed(NamedTuple):
    """A statement that fills a table over and over; a turn's figure is how many a second there would be."""
    statement: str

    def turns(self, bed, connection, turns, times):
        run(connection, "CREATE TABLE filled (LIKE pgbench_accounts)")
        file = bed.server.folder / "accounts"
        run(connection, f"COPY (SELECT * FROM pgbench_accounts WHERE aid <= 1000000) TO '{file}'")
        bed.fill(connection, times[0])
        bed.slow()
        for number, mode in turns:
            bed.set(**TURNS[mode])
            # the first time is for the sweeper to find out what to do
            self._time(connection, file)
            yield number, mode, 1 / self._time(connection, file)

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
    turns = stats.rounds(QUICK_ROUNDS if quick else ROUNDS, (STOCK, *modes(bed.place.major)))
    times = QUICK if quick else SLOW if workload.slow else FAST
    found = []
    with bed.running(**settings) as connection:
        for number, mode, speed in workload.kind.turns(bed, connection, turns, times):
            found.append({"name": workload.name, "round": number, "mode": mode, "speed": speed,
                          "states": counters.states(connection)})
    for mode in modes(bed.place.major):
        say(f"  {workload.name}, {mode}: {' '.join(f'{ratio:.2f}' for ratio in ratios(found, workload.name, mode))}")
    return found


RECORDS = {"": ("name", "mode")}


def pieces(quick):
    return [workload.name for workload in WORKLOADS]


def measure(place, quick, names):
    fast, slow = ([workload for workload in WORKLOADS if workload.name in names and workload.slow == is_slow]
                  for is_slow in (False, True))
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


def ratios(results, name, mode):
    """Of the speed in that mode to that without the sweeper, in each round."""
    speed = {(r["round"], r["mode"]): r["speed"] for r in results if r["name"] == name}
    return [speed[number, mode] / speed[number, STOCK] for number, each in speed if each == mode]


def measured(results):
    """Each load with each mode and its ratios."""
    for workload in WORKLOADS:
        for mode in dict.fromkeys(r["mode"] for r in sorted(results, key=lambda r: r["mode"])):
            if mode != STOCK and (found := ratios(results, workload.name, mode)):
                yield workload, mode, found


def show(results):
    rows = {}
    for workload, mode, found in measured(results):
        stock = [r["speed"] for r in results if (r["name"], r["mode"]) == (workload.name, STOCK)]
        row = rows.setdefault(workload.name, [workload.name, f"{stats.median(stock):,.3g}"])
        states = [state for r in results if (r["name"], r["mode"]) == (workload.name, mode) for state in r["states"]]
        row += [interval(found, "{:.3f}"), max(states, key=states.count, default="")]
    columns = [name for mode in dict.fromkeys(mode for _, mode, _ in measured(results))
               for name in (f"{mode} to stock, median and 95 %", "state of the sweeper, mostly")]
    return table(["", "stock, 1/s", *columns], rows.values())


def published(results):
    for workload, mode, found in measured(results):
        yield f"{workload.name}, {mode}", interval(found)


def required(results):
    found = {f"{workload.name}, {mode}": stats.interval(ratios)[1] for workload, mode, ratios in measured(results)}
    below = [name for name, high in found.items() if high < LIMIT]
    said = "; not ".join([f"{len(found) - len(below)} of {len(found)}", *below])
    yield "elsewhere: intervals that reach that share of stock", said, f"{LIMIT}, all", not below
