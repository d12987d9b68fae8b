"""The published experiment: ten indexes of a busy table move from a slow to a fast disk while the load runs.

A round starts with all indexes anew on the slow disk. Latency is measured at a rate and in a closed loop; then, without
a pause of the closed loop, relocation_plan looks at it and chooses indexes for half of the bytes, which move; what that
has saved is compared with what was foretold; the rest moves, and both loads are measured again. The limits of the disk
and of memory stand all the while.
"""
import time

import mover
from bed import FAST, INDEXES, MEMORY_MIB, READ_IOPS, SCALE, TABLE, slow_bed
from cluster import run, say
from load import latencies
from report import percent, signed, spread, table
from stats import median

TPS = 10
CLOSED, PACED = "closed loop, 1 client", f"{TPS} transactions/s"
SLOW_DISK, FAST_DISK = "slow disk", "fast disk"
# spans of the closed loop, beside these
PLAN, WATCHED, BETWEEN = "plan", "watched", "between"
WINDOW = 30
RATIO = 20
ACCURATE = 0.15
LEFT_OUT = (WATCHED, "tps")
# scale, rounds, seconds: settling, at the rate, closed
FULL = (SCALE, 3, 5, 60, 30)
QUICK = (SCALE, 1, 3, 10, 10)


class Clock:
    """Names for the times between its calls."""

    def __init__(self):
        self.spans = {}
        self._since = time.time()

    def __call__(self, name):
        now = time.time()
        self.spans[name] = self._since, now
        self._since = now

    def sleep(self, name, seconds):
        time.sleep(seconds)
        self(name)

    def measured(self, load, names):
        """The transactions that ended in these times."""
        ended, ms = load.transactions()
        found = {}
        for name in names:
            began, until = self.spans[name]
            mine = ms[(began <= ended) & (ended < until)]
            found[name] = {"tps": len(mine) / (until - began), "mean": float(mine.mean()), "stddev": float(mine.std()),
                           "p99": latencies(mine)["p99"]}
        return found


def plan(connection):
    """What relocation_plan says if half of the bytes of the indexes may move. It watches at once, and probes afterwards."""
    budget = run(connection, "SELECT pg_indexes_size(%s) / 2", TABLE)[0][0]
    return [row for row, in run(connection, f"""
        SELECT row_to_json(p) FROM pgscale.relocation_plan('{FAST}', {budget}, '{WINDOW} s') AS p""")]


def paced(bed, settle, seconds):
    with bed.load(rate=TPS) as load:
        clock = Clock()
        clock.sleep("settle", settle)
        clock.sleep("measured", seconds)
    return clock.measured(load, ["measured"])["measured"]


def closed(bed, settle, seconds):
    """The closed loop with both moves: what was measured of each span, and what the plan's choice saved."""
    with bed.load() as load:
        clock = Clock()
        clock.sleep("settle", settle)
        clock.sleep(SLOW_DISK, seconds)
        chosen = [row for row in plan(bed.connection) if row["chosen"]]
        clock(PLAN)
        mover.wait(bed.connection, [job for row in chosen for job in mover.request(bed.connection, row["statement"])])
        clock("the chosen move")
        clock.sleep("settle again", settle)
        clock.sleep(BETWEEN, seconds)
        mover.wait(bed.connection, mover.relocate_indexes(bed.connection, TABLE, FAST))
        clock("the rest moves")
        clock.sleep("settle at last", settle)
        clock.sleep(FAST_DISK, seconds)
    since = clock.spans[PLAN][0]
    clock.spans[WATCHED] = since, since + WINDOW
    measured = clock.measured(load, [SLOW_DISK, WATCHED, BETWEEN, FAST_DISK])
    predicted = sum(row["saved_ms_per_s"] for row in chosen) / measured[WATCHED]["tps"]
    saved = measured[SLOW_DISK]["mean"] - measured[BETWEEN]["mean"]
    return {**measured, "foretold": {"chosen": len(chosen), "predicted": predicted, "saved": saved, "error": predicted / saved - 1}}


def one(bed, settle, at_rate, seconds):
    """Measures a round."""
    bed.reset()
    found = {PACED: {SLOW_DISK: paced(bed, settle, at_rate)}, CLOSED: closed(bed, settle, seconds)}
    found[PACED][FAST_DISK] = paced(bed, settle, at_rate)
    if bed.on_slow():
        raise RuntimeError(f"not moved: {bed.on_slow()}")
    if bed.memory.kills():
        raise RuntimeError("the limit of memory made the kernel kill a process")
    say(f"  {ratios([found], CLOSED)[0]:.1f} times as fast; saved by the chosen: {found[CLOSED]['foretold']}")
    return found


def measure(place, quick):
    scale, rounds, *times = QUICK if quick else FULL
    with slow_bed(place, scale) as bed:
        return {"bytes": bed.bytes(), "rounds": [one(bed, *times) for _ in range(rounds)]}


def ratios(rounds, load):
    return [r[load][SLOW_DISK]["mean"] / r[load][FAST_DISK]["mean"] for r in rounds]


def show(results):
    rounds = results["rounds"]
    of_table, of_indexes = (size / 2**20 for size in results["bytes"])
    rows = []
    for load in (CLOSED, PACED):
        for where in (SLOW_DISK, BETWEEN, FAST_DISK):
            if where in rounds[0][load]:
                rows.append([load, "half of them on the fast disk" if where == BETWEEN else where,
                             *(spread([r[load][where][what] for r in rounds], "{:.1f}") for what in ("mean", "stddev", "p99")),
                             spread(ratios(rounds, load), "{:.0f}") if where == FAST_DISK else ""])
    plans = [[number + 1, f["chosen"], f"{f['predicted']:.1f}", f"{f['saved']:.1f}", signed(f["error"])]
             for number, f in enumerate(r[CLOSED]["foretold"] for r in rounds)]
    return f"{of_table:.0f} MiB of table on the fast disk, {of_indexes:.0f} MiB of {INDEXES} indexes, {MEMORY_MIB} MiB of memory," \
        f" {READ_IOPS} reads/s; median (least .. greatest) of rounds: {len(rounds)}\n\n" + \
        table(["", "indexes on", "mean, ms", "stddev, ms", "p99, ms", "times as fast"], rows) + "\n\n" + \
        table(["round", "indexes chosen by `relocation_plan`", "foretold: saved a transaction, ms", "measured, ms", "error"], plans)


def required(results):
    rounds = results["rounds"]
    faster = ratios(rounds, CLOSED)
    yield f"move: mean latency, {CLOSED}, {SLOW_DISK} / {FAST_DISK}", spread(faster, "{:.1f}"), f"at least {RATIO}", \
        median(faster) >= RATIO
    errors = [r[CLOSED]["foretold"]["error"] for r in rounds]
    yield "move: foretold / measured saving - 1", spread(errors, "{:+.1%}"), f"within {percent(ACCURATE, 0)}", \
        max(map(abs, errors)) <= ACCURATE
