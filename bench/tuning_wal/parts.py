"""The talk's experiments with WAL on today's server, each a comparison of settings in rounds of random orders.

In the first round a turn lasts long enough for pgscale.advice to speak; in the others the clients only count.
"""
import contextlib
import dataclasses
import itertools
import time

import advice
import stats
import wide
from bed import CLIENTS, PREPARED, SIMPLE, WRITE_IOPS, bed_of
from cluster import say
from report import percent, spread, table

# rounds; seconds: before what counts, a turn of the first round, one of the others
FULL = (2, 1, 41, 5)
QUICK = (1, 1, 12, 3)
STARTING = 12

# what advice may be measured by: times as many transactions
GAINS, GAINS_NOTHING = 1.1, 1.02

FAST = "on the fast disk"
SLOW = f"on {WRITE_IOPS} writes/s"


@dataclasses.dataclass(frozen=True)
class Part:
    name: str
    setting: str                # what advice may name, and what the conditions' names contain that change it
    conditions: dict            # settings, by name; the first is what the others are compared with
    said: str
    disk: str = FAST
    load: tuple = SIMPLE
    restart: bool = False       # else what differs is switched while the load runs
    initdb: bool = False        # or it is the server's files that differ: settings are initdb's options
    sql: str = ""
    script: str = None
    RECORDS = {"": ("name",)}
    LEFT_OUT = ("rules",)

    def measure(self, place, quick):
        rounds, *times = QUICK if quick else FULL
        say(f"about {self.minutes(rounds, *times):.0f} minutes")
        options = (*self.load, "-f", place.script(f"{self.name}.sql", self.script)) if self.script else self.load
        results = []
        with contextlib.ExitStack() as undo:
            beds = {name: undo.enter_context(bed_of(place, f"{self.name}{number}", self.disk == SLOW, self.sql,
                                                    settings if self.initdb else ()))
                    for number, (name, settings) in enumerate(self.conditions.items()) if self.initdb or number == 0}
            for number, turns in itertools.groupby(stats.rounds(rounds, self.conditions), key=lambda turn: turn[0]):
                seconds = times[1] if number == 0 else times[2]
                for name, found in self._round(beds, options, [name for _, name in turns], times[0], seconds):
                    say(f"  {name}: {found['tps']:.0f} TPS")
                    results.append({"round": number, "name": name, "seconds": seconds, **found})
        return results

    def _round(self, beds, options, names, settle, seconds):
        if self.initdb or self.restart:
            for name in names:
                bed = beds[name] if self.initdb else next(iter(beds.values()))
                with bed.serving(options, {} if self.initdb else self.conditions[name]) as load:
                    yield name, turn(bed, load, settle, seconds)
            return
        bed = next(iter(beds.values()))
        with bed.serving(options, self.conditions[names[0]]) as load:
            for name in names:
                bed.set(**self.conditions[name])
                yield name, turn(bed, load, settle, seconds)

    def minutes(self, rounds, settle, first, other):
        turns = len(self.conditions) * (first + (rounds - 1) * other + rounds * settle)
        starts = rounds * (len(self.conditions) if self.restart or self.initdb else 1)
        loads = len(self.conditions) if self.initdb else 1
        return (turns + starts * STARTING + loads * 15) / 60

    def show(self, results):
        base = {r["round"]: r["tps"] for r in results if r["name"] == next(iter(self.conditions))}
        rows = []
        for name in self.conditions:
            mine = [r for r in results if r["name"] == name]
            first = mine[0]
            wal = first["efficiency"]
            rows.append([name, spread([r["tps"] for r in mine], "{:,.0f}"),
                         spread([r["tps"] / base[r["round"]] for r in mine], "{:.2f}"),
                         number(wal.get("flush_ms"), "{:.2f}"), number(wal.get("commits_per_flush"), "{:.1f}"),
                         share(wal.get("flush_fraction")), share(wal.get("rewritten_fraction")),
                         share(wal.get("page_image_fraction")), number(wal.get("segment_switches_per_s"), "{:.2f}"),
                         number(wal.get("buffers_full_per_s"), "{:.1f}"),
                         ", ".join(f"`{row['setting'] or row['object']}` {row['recommended']}"
                                   for row in first["advice"]) or "nothing"])
        return self.said + "\n\n" + table(
            ["", "TPS", "to the first", "a flush, ms", "commits a flush", "sessions' time in flushes",
             "written again", "page images", "segments/s", "buffers full/s", "advice"], rows)

    def published(self, results):
        rounds = {name: {r["round"]: r for r in results if r["name"] == name} for name in self.conditions}
        first = next(iter(rounds.values()))
        for name, mine in rounds.items():
            yield f"TPS, {name}", spread([r["tps"] for r in mine.values()], "{:,.0f}")
            yield f"TPS to the first, {name}", spread([r["tps"] / first[at]["tps"] for at, r in mine.items()], "{:.2f}")
            yield f"commits a flush, {name}", number(mine[0]["efficiency"].get("commits_per_flush"), "{:.1f}")

    def required(self, results):
        """Is the setting named where the first condition loses by it, and only there?"""
        first, *others = self.conditions
        by_name = {name: stats.median([r["tps"] for r in results if r["name"] == name]) for name in self.conditions}
        gain = max(by_name[name] for name in others if self.setting in name) / by_name[first]
        advised = [row["setting"] or row["object"] for r in results if r["name"] == first for row in r["advice"]]
        named = self.setting in advised
        met = named if gain >= GAINS else not named if gain <= GAINS_NOTHING else True
        return [(f"{self.name}: `{self.setting}` is named if it gains, which it does {gain:.2f} times here",
                 "named" if named else "not named",
                 f"named from {GAINS}, not named up to {GAINS_NOTHING}", met)]


def number(value, form):
    return "-" if value is None else form.format(value)


def share(value):
    return "-" if value is None else percent(value)


def turn(bed, load, settle, seconds):
    time.sleep(settle)
    began = time.time()
    time.sleep(seconds)
    found = {"tps": load.tps(began, time.time()), "efficiency": {}, "advice": [], "rules": {}}
    if seconds > FULL[3]:
        found["efficiency"] = bed.efficiency(seconds)
        found["advice"] = advice.advice(bed.connection, seconds)
        found["rules"] = advice.rules(bed.connection, seconds)
    return found


ALL = (
    Part("flush", "commit_delay",
         {"synchronous_commit on": {"synchronous_commit": "on"},
          "synchronous_commit off": {"synchronous_commit": "off"},
          "fsync off": {"synchronous_commit": "on", "fsync": "off"},
          "commit_delay 1000": {"synchronous_commit": "on", "commit_delay": 1000}},
         f"Simple update, {CLIENTS} clients, WAL {FAST}. `fsync` off is the bound, not an advice."),
    Part("delay", "commit_delay",
         {f"commit_delay {delay}": {"synchronous_commit": "on", "commit_delay": delay}
          for delay in (0, 10, 100, 1000)},
         f"Simple update, {CLIENTS} clients, WAL {SLOW}.", disk=SLOW),
    Part("buffers", "wal_buffers",
         {f"wal_buffers {size}": {"synchronous_commit": "on", "wal_buffers": size} for size in ("64kB", "1MB", "16MB")},
         f"Updates of rows of 3 kB, {CLIENTS} clients, WAL {SLOW}.", disk=SLOW, load=PREPARED, restart=True,
         sql=wide.TABLE, script=wide.UPDATE),
    Part("segments", "wal_segment_size",
         {f"wal_segment_size {mib}MB": ("--wal-segsize", str(mib)) for mib in (16, 64)},
         f"Simple update, {CLIENTS} clients, WAL {FAST}.", initdb=True),
)
PARTS = {part.name: part for part in ALL}
