"""The published experiment, with the table too: it and ten indexes move from a slow to a fast disk while the load runs.

As in move.py, but the table is logged, and on the slow disk at first. relocation_plan chooses for half of all bytes. What it
chooses moves by its statements, then relocate_tablespace moves the rest.
"""
import move
import mover
from bed import FAST, INDEXES, MEMORY_MIB, READ_IOPS, SCALE, SLOW, TABLE, slow_bed
from report import signed, spread, table
from stats import median

# scale, rounds, seconds: settling, at the rate, closed
FULL = (SCALE, 2, 5, 30, 30)
QUICK = (1, 1, 3, 10, 10)
ON = {move.BEFORE: "all on HDD", move.BETWEEN: "the chosen on SSD", move.AFTER: "all on SSD"}


class Both(move.Indexes):
    """What moves: the table and its indexes."""

    @staticmethod
    def plan(connection):
        return move.plan(connection, "pg_total_relation_size")

    @staticmethod
    def request_rest(connection):
        return mover.relocate_tablespace(connection, SLOW, FAST)


def measure(place, quick):
    scale, rounds, *times = QUICK if quick else FULL
    with slow_bed(place, scale, table_too=True) as bed:
        sizes = bed.bytes()
        return {"bytes": sizes, "rounds": [move.one(bed, *times, ways=Both) for _ in range(rounds)]}


summarise = move.summarise


def of_kind(moves, is_table):
    return [each for each in moves if each["relation"].endswith(TABLE) == is_table]


def locks(moves):
    """Milliseconds; of what was built anew there is none."""
    return [each["locked ms"] for each in moves if each["locked ms"] is not None]


def show(results):
    rounds = results["rounds"]
    of_table, of_indexes = (size / 2**20 for size in results["bytes"])
    described = f"{of_table:.0f} MiB of table and {of_indexes:.0f} MiB of {INDEXES} indexes, {MEMORY_MIB} MiB of memory, " \
        f"{READ_IOPS} reads/s; median (least .. greatest) of rounds: {len(rounds)}"
    return "\n\n".join([described, _show_latency(rounds), _show_moves(rounds)])


def _show_latency(rounds):
    rows = []
    for load, places in ((move.CLOSED, ON), (move.PACED, (move.BEFORE, move.AFTER))):
        for where in places:
            mine = [move.loads(r)[load][where] for r in rounds]
            faster = [move.loads(r)[load][move.BEFORE]["mean"] / each["mean"] for r, each in zip(rounds, mine)]
            rows.append([load, ON[where], *(spread([m[what] for m in mine], "{:.1f}") for what in move.LATENCY),
                         "" if where == move.BEFORE else spread(faster, "{:.1f}x")])
    return table(["", "table and indexes", "mean, ms", "stddev, ms", "p99, ms", "faster by"], rows)


def _show_moves(rounds):
    rows = []
    for number, r in enumerate(rounds):
        mine = r[move.CLOSED]
        chosen, rest = (mine["measured"][name] for name in (move.CHOSEN_MOVE, move.REST_MOVE))
        seconds = {is_table: [each["finished"] - each["started"] for each in of_kind(mine["moves"], is_table)] for is_table in (False, True)}
        rows.append([number + 1, mine["foretold"]["chosen"], signed(mine["foretold"]["error"]),
                     f"{mine['foretold']['predicted s']:.0f} / {mine['foretold']['took s']:.0f}", len(mine["moves"]), spread(seconds[False], "{:.1f}"), spread(seconds[True], "{:.1f}"),
                     spread(locks(mine["moves"]), "{:.1f}"), f"{chosen['mean']:.1f}", f"{rest['mean']:.1f}",
                     f"{max(chosen['max'], rest['max']):,.0f}", f"{mine['measured'][move.BEFORE]['max']:,.0f}"])
    return table(["round", "chosen by the plan", "error of the foretold gain", "their moves: foretold / measured, s", "moved in all", "an index, s", "the table, s", "lock held, ms",
                  "mean latency as the chosen move, ms", "as the rest moves", "longest as they move", "longest before"], rows)


def published(results):
    rounds = results["rounds"]
    for where in ON:
        yield f"mean, {where}", spread([r[move.CLOSED]["measured"][where]["mean"] for r in rounds], "{:.1f}", " ms")
    yield "faster", spread(move.ratios(rounds, move.CLOSED), "{:.0f}")
    moves = [each for r in rounds for each in r[move.CLOSED]["moves"]]
    yield "moves", str(len(moves))
    yield "lock held", spread(locks(moves), "{:.1f}", " ms")


def required(results):
    faster = move.ratios(results["rounds"], move.CLOSED)
    yield f"live_both: mean latency, {move.CLOSED}, {move.BEFORE} / {move.AFTER}", spread(faster, "{:.1f}"), \
        f"at least {move.RATIO}", median(faster) >= move.RATIO
