"""Where nothing is to win, nothing may be lost: other loads and other disks, with the sweeper off and on.

One server runs throughout, and the sweeper in it is off or on, in turns of random order in each round, because two starts of
the same server differ by more than the effect in question.
"""
import time
from typing import NamedTuple

import counters
import majors
import stats
from bed import PRELOADED, STOCK, SWEEPER, TPCB, TURNS, Bed, slow_bed
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
            for number, variant in turns:
                bed.set(**TURNS[variant])
                time.sleep(settle)
                began = time.time()
                time.sleep(seconds)
                yield number, variant, load.tps(began, time.time())


class Timed(NamedTuple):
    """A statement that fills a table over and over; a turn's figure is how many a second there would be."""
    statement: str

    def turns(self, bed, connection, turns, times):
        run(connection, "CREATE TABLE filled (LIKE pgbench_accounts)")
        file = bed.server.folder / "accounts"
        run(connection, f"COPY (SELECT * FROM pgbench_accounts WHERE aid <= 1000000) TO '{file}'")
        bed.fill(connection, times[0])
        bed.slow()
        for number, variant in turns:
            bed.set(**TURNS[variant])
            # the first time is for the sweeper to find out what to do
            self._time(connection, file)
            yield number, variant, 1 / self._time(connection, file)

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
    turns = stats.rounds(QUICK_ROUNDS if quick else ROUNDS, TURNS)
    times = QUICK if quick else SLOW if workload.slow else FAST
    known, found = majors.described(bed.place), []
    with bed.running(**settings) as connection:
        for number, variant, speed in workload.kind.turns(bed, connection, turns, times):
            found.append({"name": workload.name, **known, "round": number, "variant": variant, "speed": speed,
                          "states": counters.states(connection)})
    say(f"  {workload.name}: {' '.join(f'{ratio:.2f}' for ratio in ratios(found))}")
    return found


RECORDS = {"": ("name", "major", "variant")}
caption = majors.caption


def pieces(quick):
    return [workload.name for workload in WORKLOADS]


def merged(before, found):
    return majors.merged(before, found, "name", pieces(False))


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


def ratios(mine):
    """Of the speed with the sweeper to that without, in each round of a load on a major."""
    speed = {(r["round"], r["variant"]): r["speed"] for r in mine}
    return [speed[number, SWEEPER] / speed[number, STOCK] for number, variant in speed if variant == SWEEPER]


def show(results):
    rows = []
    for name, major, mine in majors.cases(results, "name"):
        states = [state for r in mine if r["variant"] == SWEEPER for state in r["states"]]
        rows.append([name, major, f"{stats.median([r['speed'] for r in mine if r['variant'] == STOCK]):,.3g}",
                     interval(ratios(mine), "{:.3f}"), max(states, key=states.count, default="")])
    return table(["", "PostgreSQL", "stock, 1/s", "sweeper to stock, median and 95 %", "state of the sweeper, mostly"], rows)


def published(results):
    for name, major, mine in majors.cases(results, "name"):
        yield f"{name}, {major}", interval(ratios(mine))


def required(results):
    found = {f"{name}, {major}": stats.interval(ratios(mine))[1] for name, major, mine in majors.cases(results, "name")}
    below = [name for name, high in found.items() if high < LIMIT]
    said = "; not ".join([f"{len(found) - len(below)} of {len(found)}", *below])
    yield "elsewhere: intervals that reach that share of stock", said, f"{LIMIT}, all", not below
