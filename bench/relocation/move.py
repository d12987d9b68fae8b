"""The published experiment: ten indexes of a busy table move from a slow to a fast disk while the load runs.

A round starts with all indexes anew on the slow disk. Latency is measured at a rate and in a closed loop; then, without
a pause of the closed loop, relocation_plan looks at it and chooses indexes for half of the bytes, which move; what that
has saved is compared with what was foretold; the rest moves, and both loads are measured again. The limits of the disk
and of memory stand all the while.
"""
import time

import numpy

import mover
from bed import FAST, INDEXES, MEMORY_MIB, READ_IOPS, SCALE, SLOW, TABLE, slow_bed
from cluster import run, say
from load import latencies
from report import percent, signed, spread, table
from stats import median

TPS = 10
CLOSED, PACED = "closed loop, 1 client", f"{TPS} transactions/s"
BEFORE, AFTER = "HDD", "SSD"
# spans of the closed loop, beside these
PLAN, CHOSEN_MOVE, BETWEEN, REST_MOVE = "plan", "the chosen move", "between", "the rest moves"
LATENCY = "mean", "stddev", "p99"
WINDOW = 30
RATIO = 20
ACCURATE = 0.15
# scale, rounds, seconds: settling, at the rate, closed
FULL = (SCALE, 3, 5, 60, 30)
QUICK = (SCALE, 1, 3, 10, 10)


def summary(ended, ms, began, until):
    """Of the transactions that ended in a time."""
    mine = ms[(began <= ended) & (ended < until)]
    return {"transactions": len(mine), "tps": len(mine) / (until - began), "mean": float(mine.mean()),
            "stddev": float(mine.std()), **latencies(mine)}


def seconds(ended, ms, began):
    """Each second: its number, transactions, mean and longest."""
    number = numpy.floor(ended - began).astype(int)
    return [[int(each), int(mine.sum()), round(float(ms[mine].mean()), 2), round(float(ms[mine].max()), 1)]
            for each in numpy.unique(number) for mine in [number == each]]


class Indexes:
    """What moves, and how: the indexes of the table."""

    @staticmethod
    def plan(connection):
        return plan(connection, "pg_indexes_size")

    @staticmethod
    def request(connection, row):
        return mover.request(connection, row["statement"])

    @staticmethod
    def request_rest(connection):
        return mover.relocate_indexes(connection, TABLE, FAST)


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


def plan(connection, size):
    """What relocation_plan says if half of the bytes of a size function may move. It watches at once, and probes afterwards."""
    budget = run(connection, f"SELECT {size}(%s) / 2", TABLE)[0][0]
    return [row for row, in run(connection, f"""
        SELECT row_to_json(p) FROM pgscale.relocation_plan('{FAST}', {budget}, '{WINDOW} s') AS p""")]


def paced(bed, settle, measured):
    with bed.load(rate=TPS) as load:
        clock = Clock()
        clock.sleep("settle", settle)
        clock.sleep("measured", measured)
    return summary(*load.transactions(), *clock.spans["measured"])


def closed(bed, settle, measured, ways):
    """The closed loop with both moves; what was measured of each span, the plan, and the jobs."""
    with bed.load() as load:
        clock = Clock()
        clock.sleep("settle", settle)
        clock.sleep(BEFORE, measured)
        planned = ways.plan(bed.connection)
        clock(PLAN)
        jobs = []
        for row in planned:
            if row["chosen"]:
                jobs += ways.request(bed.connection, row)
        moves = mover.wait(bed.connection, jobs)
        clock(CHOSEN_MOVE)
        clock.sleep("settle again", settle)
        clock.sleep(BETWEEN, measured)
        moves += mover.wait(bed.connection, ways.request_rest(bed.connection))
        clock(REST_MOVE)
        clock.sleep("settle at last", settle)
        clock.sleep(AFTER, measured)
    ended, ms = load.transactions()
    zero = clock.spans["settle"][0]
    watched = clock.spans[PLAN][0]
    clock.spans["watched"] = watched, watched + WINDOW
    return {"spans": {name: [since - zero, until - zero] for name, (since, until) in clock.spans.items()},
            "each second": seconds(ended, ms, zero),
            "measured": {name: summary(ended, ms, *span) for name, span in clock.spans.items()},
            "plan": planned,
            "moves": [{**move, **{name: move[name] - zero for name in ("started", "finished")}} for move in moves]}


def one(bed, settle, at_rate, measured, ways=Indexes):
    """Measures a round."""
    bed.reset()
    found = {PACED: {BEFORE: paced(bed, settle, at_rate)}, CLOSED: closed(bed, settle, measured, ways)}
    found[PACED][AFTER] = paced(bed, settle, at_rate)
    if bed.on_slow():
        raise RuntimeError(f"not moved: {bed.on_slow()}")
    if bed.memory.kills():
        raise RuntimeError("the limit of memory made the kernel kill a process")
    found[CLOSED]["foretold"] = foretold(found[CLOSED])
    before, after = (found[CLOSED]["measured"][name]["mean"] for name in (BEFORE, AFTER))
    say(f"  {before:.1f} ms -> {after:.2f} ms, {before / after:.1f}x; saved by the chosen: "
        f"foretold {found[CLOSED]['foretold']['predicted']:.1f} ms, "
        f"measured {found[CLOSED]['foretold']['saved']:.1f} ms")
    return found


def foretold(closed):
    """Milliseconds a transaction that the chosen ones were to save, and have saved."""
    chosen = [row for row in closed["plan"] if row["chosen"]]
    measured = closed["measured"]
    predicted = sum(row["saved_ms_per_s"] for row in chosen) / measured["watched"]["tps"]
    saved = measured[BEFORE]["mean"] - measured[BETWEEN]["mean"]
    moved = closed["moves"][:len(chosen)]
    return {"chosen": len(chosen), "predicted": predicted, "saved": saved, "error": predicted / saved - 1,
            "predicted s": sum(row["move_s"] or 0 for row in chosen), "took s": sum(each["finished"] - each["started"] for each in moved)}


def with_table(bed, settle, measured):
    """The same closed loop with the table on the slow disk, too; it stays there when the indexes move."""
    bed.lift()
    run(bed.connection, f"ALTER TABLE {TABLE} SET TABLESPACE {SLOW}")
    found = {}
    for name, tablespace in ((BEFORE, SLOW), (AFTER, FAST)):
        bed.lift()
        run(bed.connection, f"REINDEX (TABLESPACE {tablespace}) TABLE {TABLE}")
        bed.limit()
        with bed.load() as load:
            clock = Clock()
            clock.sleep("settle", settle)
            clock.sleep("measured", measured)
        found[name] = summary(*load.transactions(), *clock.spans["measured"])
    return found


def measure(place, quick):
    scale, rounds, *times = QUICK if quick else FULL
    with slow_bed(place, scale) as bed:
        sizes = bed.bytes()
        return {"bytes": sizes, "rounds": [one(bed, *times) for _ in range(rounds)],
                "table on HDD": with_table(bed, times[0], times[-1])}


def summarise(results):
    """What happened each second, of the typical round alone; of the plan only what it came to."""
    shown = typical(results["rounds"])
    return {**results, "rounds": [
        {**r, CLOSED: {**r[CLOSED], "plan": None, "each second": r[CLOSED]["each second"] if r is shown else None}}
        for r in results["rounds"]]}


def typical(rounds):
    """The one whose ratio is the median one."""
    found = ratios(rounds, CLOSED)
    return rounds[found.index(min(found, key=lambda ratio: abs(ratio - median(found))))]


def loads(round):
    """Of each load, what was measured before and after."""
    return {CLOSED: round[CLOSED]["measured"], PACED: round[PACED]}


def ratios(rounds, load):
    return [loads(r)[load][BEFORE]["mean"] / loads(r)[load][AFTER]["mean"] for r in rounds]


def show(results):
    rounds = results["rounds"]
    of_table, of_indexes = (size / 2**20 for size in results["bytes"])
    described = f"{of_table:.0f} MiB of table on the fast disk, {of_indexes:.0f} MiB of {INDEXES} indexes, " \
        f"{MEMORY_MIB} MiB of memory, {READ_IOPS} reads/s; median (least .. greatest) of rounds: {len(rounds)}"
    return "\n\n".join([described, _show_latency(rounds), _show_with_table(results["table on HDD"]),
                        _show_plan(rounds), _show_moves(rounds)])


def _show_latency(rounds):
    rows = []
    for load in (CLOSED, PACED):
        for where in (BEFORE, AFTER):
            mine = [loads(r)[load][where] for r in rounds]
            rows.append([load, where, *(spread([m[what] for m in mine], "{:.1f}") for what in LATENCY),
                         spread(ratios(rounds, load), "{:.1f}x") if where == AFTER else ""])
    return table(["", "indexes on", "mean, ms", "stddev, ms", "p99, ms", "faster by"], rows)


def _show_with_table(found):
    rows = [["table on HDD, closed loop", where, *(f"{found[where][what]:.1f}" for what in LATENCY),
             f"{found[BEFORE]['mean'] / found[AFTER]['mean']:.1f}x" if where == AFTER else ""]
            for where in (BEFORE, AFTER)]
    return table(["", "indexes on", "mean, ms", "stddev, ms", "p99, ms", "faster by"], rows)


def _show_plan(rounds):
    rows = [[number + 1, f["chosen"], f"{f['predicted']:.1f}", f"{f['saved']:.1f}", signed(f["error"])]
            for number, f in enumerate(r[CLOSED]["foretold"] for r in rounds)]
    return table(["round", "indexes chosen", "foretold: saved a transaction, ms", "measured, ms", "error"], rows)


def _show_moves(rounds):
    rows = []
    for number, r in enumerate(rounds):
        mine = r[CLOSED]
        each = [move["finished"] - move["started"] for move in mine["moves"]]
        both = [mine["measured"][name] for name in (CHOSEN_MOVE, REST_MOVE)]
        rows.append([number + 1, len(each), f"{sum(each):.1f}", spread(each, "{:.1f}"),
                     *(f"{move['mean']:.1f}" for move in both), f"{max(move['max'] for move in both):,.0f}"])
    return table(["round", "indexes moved", "in all, s", "each, s", "mean latency as the chosen move, ms",
                  "as the rest moves", "longest, ms"], rows)


def published(results):
    rounds = results["rounds"]
    for where in (BEFORE, AFTER):
        yield f"mean, {where}", spread([loads(r)[CLOSED][where]["mean"] for r in rounds], "{:.1f}", " ms")
        yield f"mean at a rate, {where}", spread([loads(r)[PACED][where]["mean"] for r in rounds], "{:.1f}", " ms")
        yield f"stddev at a rate, {where}", spread([loads(r)[PACED][where]["stddev"] for r in rounds], "{:.1f}", " ms")
    yield "mean, half of them on SSD", spread([r[CLOSED]["measured"][BETWEEN]["mean"] for r in rounds], "{:.0f}", " ms")
    for load in (CLOSED, PACED):
        yield f"faster, {load}", spread(ratios(rounds, load), "{:.0f}")
    errors = [r[CLOSED]["foretold"]["error"] for r in rounds]
    yield "foretold, least", signed(min(errors))
    yield "foretold, greatest", signed(max(errors))
    yield "foretold, worst", percent(max(map(abs, errors)), 0)


def required(results):
    rounds = results["rounds"]
    faster = ratios(rounds, CLOSED)
    yield f"move: mean latency, {CLOSED}, {BEFORE} / {AFTER}", spread(faster, "{:.1f}"), f"at least {RATIO}", \
        median(faster) >= RATIO
    errors = [r[CLOSED]["foretold"]["error"] for r in rounds]
    yield "move: foretold / measured saving - 1", spread(errors, "{:+.1%}"), f"within {percent(ACCURATE, 0)}", \
        max(map(abs, errors)) <= ACCURATE
