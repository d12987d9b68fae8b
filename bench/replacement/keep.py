"""A small table that is used each few seconds, beside sessions that take all other buffers, with and without pgscale.keep()."""
import time

import loads
import stats
import turns
from bed import FULL, OFF, ON, QUICK, Bed, settings_of
from cluster import run, say, value
from load import Load
from real import options
from report import spread, table

KEPT = "kept"
CONDITIONS = (OFF, ON, f"{ON}, {KEPT}")
# rows of the small table, about 7 a page; the fraction of the buffers that it may hold
ROWS, FRACTION = 1400, 0.05
USE = "SELECT sum(length(filler)) FROM small WHERE id > 0"
# seconds between two uses, in which sessions take all buffers several times; uses that are measured, after some that are not
PAUSE, USES, BEFORE = 4, 6, 2
QUICK_PAUSE, QUICK_USES = 2, 3
ROUNDS = 3
RECORDS = {"": ("condition",)}


def measure(place, quick):
    size = QUICK if quick else FULL
    pause, uses = (QUICK_PAUSE, QUICK_USES) if quick else (PAUSE, USES)
    bed, found = Bed(place, "keep", size), []
    with bed.running_with(size.buffers_mib) as connection:
        run(connection, "CREATE TABLE small (id int PRIMARY KEY, filler char(1000))")
        run(connection, "INSERT INTO small SELECT i, '' FROM generate_series(1, %s) i", ROWS)
        run(connection, "VACUUM ANALYZE small")
        with Load(bed.server, *options(bed, loads.UNIFORM)) as running:
            for number, condition in stats.rounds(1 if quick else ROUNDS, CONDITIONS):
                found.append({"condition": condition, "round": number, **_turn(bed, connection, running, condition, pause, uses)})
                say(f"  {condition}: {found[-1]['reads']:.0f} pages of the small table read a use")
    return found


def _turn(bed, connection, running, condition, pause, uses):
    sweeper, _, kept = condition.partition(", ")
    bed.set(**settings_of(sweeper))
    value(connection, "SELECT pgscale.keep('small', %s)", FRACTION if kept else 0)
    for _ in range(BEFORE):
        value(connection, USE)
        time.sleep(pause)
    before = turns.read(bed, connection)
    reads, ms = [], []
    for _ in range(uses):
        began = time.monotonic()
        plan = value(connection, f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {USE}")[0]["Plan"]
        ms.append((time.monotonic() - began) * 1000)
        reads.append(plan["Shared Read Blocks"])
        time.sleep(pause)
    after = turns.read(bed, connection)
    return {"reads": sum(reads) / uses, "ms": stats.median(ms), "tps": running.tps(before["seconds"], after["seconds"]),
            "beside": (after["reads"] - before["reads"]) / (after["transactions"] - before["transactions"]),
            "turnovers": (after["allocations"] - before["allocations"]) / bed.buffers / uses}


def _of(results, condition, figure):
    return [r[figure] for r in results if r["condition"] == condition]


def show(results):
    rows = [[condition, spread(_of(results, condition, "reads"), "{:.0f}"), spread(_of(results, condition, "ms"), "{:.1f}"),
             spread(_of(results, condition, "turnovers"), "{:.0f}"), spread(_of(results, condition, "beside"), "{:.3f}"),
             spread(_of(results, condition, "tps"), "{:,.0f}")] for condition in CONDITIONS]
    return table(["", "pages of the small table read a use", "a use, ms", "times all buffers were taken between two uses",
                  "pages read a transaction beside it", "TPS beside it"], rows)


def required(results):
    without, kept = (stats.median(_of(results, condition, "reads")) for condition in CONDITIONS[1:])
    yield "keep: pages of the small table read a use, kept / not", f"{kept:.0f} / {without:.0f}", "at most a tenth", kept <= without / 10
