"""What the sweeper's settings are worth on the main case, so that their defaults rest on something.

Switched within one running server, in turns of random order in each round; only the number of workers takes a start
of its own. The sweeper works all the time, so that its settings are compared and not its decisions; else a turn differs
from the defaults in one thing.
"""
import itertools
import time

import counters
import stats
from bed import PRELOADED, SWEEPING, TPCB, slow_bed
from cluster import say
from contest import pages_an_io
from report import percent, spread, table

DIRTY_MIB = 4
# rounds; seconds: filling, of a turn before what counts, and what counts
FULL = (3, 10, 6, 8)
QUICK = (1, 4, 2, 3)

OFF, DEFAULTS, WORKERS = "off", "defaults", "sweeper_workers 2"
WORKING = {**SWEEPING, "pgscale.sweeper_adaptive": "off"}
CONDITIONS = {
    OFF: {"pgscale.sweeper": "off", "bgwriter_lru_maxpages": 100},
    DEFAULTS: {},
    "bgwriter_lru_maxpages 100": {"bgwriter_lru_maxpages": 100},
    "sweeper_mode window": {"pgscale.sweeper_mode": "window"},
    **{f"sweeper_high_watermark {high}": {"pgscale.sweeper_high_watermark": high} for high in (0.03, 0.25)},
    **{f"sweeper_writers {writers}": {"pgscale.sweeper_writers": writers} for writers in (1, 4)},
}


def turn(bed, connection, load, settle, seconds):
    time.sleep(settle)
    before = counters.read(bed, connection)
    time.sleep(seconds)
    after = counters.read(bed, connection)
    return {"tps": load.tps(before["at"], after["at"]), **counters.difference(before, after)}


LEFT_OUT = (*counters.NOT_SHOWN, "skipped_locked", "skipped_pinned", "skipped_wal", "skipped_changed", "starved", "ticks",
            "neighbours", "write_ms", "writeback_ms", "state")
RECORDS = {"": ("name",)}


def measure(place, quick):
    rounds, fill, settle, seconds = QUICK if quick else FULL
    results = []

    def keep(number, name, found):
        say(f"  {name}: {found['tps']:.0f} TPS")
        results.append({"round": number, "name": name, **found})

    with slow_bed(place, "modes") as bed:
        for number, names in itertools.groupby(stats.rounds(rounds, CONDITIONS), key=lambda each: each[0]):
            with bed.running(**PRELOADED) as connection, bed.loaded(connection, fill, DIRTY_MIB, *TPCB) as load:
                # or the first turn would be the one in which all settles
                turn(bed, connection, load, settle, seconds)
                for _, name in names:
                    bed.set(**{**WORKING, **CONDITIONS[name]})
                    keep(number, name, turn(bed, connection, load, settle, seconds))
            with bed.running(**PRELOADED, **WORKING, **{"pgscale.sweeper_workers": 2}) as connection, \
                    bed.loaded(connection, fill, DIRTY_MIB, *TPCB) as load:
                keep(number, WORKERS, turn(bed, connection, load, settle, seconds))
    return results


def of_defaults(results):
    """TPS of the defaults, by round."""
    return {r["round"]: r["tps"] for r in results if r["name"] == DEFAULTS}


def show(results):
    defaults = of_defaults(results)
    rows = []
    for name in (*CONDITIONS, WORKERS):
        mine = [r for r in results if r["name"] == name]
        rows.append([name, spread([r["tps"] for r in mine], "{:,.0f}"),
                     spread([r["tps"] / defaults[r["round"]] for r in mine], "{:.2f}"),
                     spread([r["evictions"] / r["seconds"] for r in mine], "{:,.0f}"),
                     spread([pages_an_io(r) for r in mine], "{:.2f}"),
                     spread([r["sweeper"]["written"] / max(r["sweeper"]["runs"], 1) for r in mine], "{:.1f}"),
                     spread([r["sweeper"]["writeback_calls"] / r["seconds"] for r in mine], "{:.0f}"),
                     percent(stats.median([(r["sweeper"]["cpu_ms"] + r["sweeper"]["writer_cpu_ms"]) / 1000 / r["seconds"]
                                           for r in mine]), 2)])
    return table(["", "TPS", "to the defaults", "dirty pages/s written by sessions", "pages per write", "pages a run",
                  "writeback calls/s", "CPU of sweeper and writers"], rows)


def published(results):
    defaults = of_defaults(results)
    for name in (*CONDITIONS, WORKERS):
        mine = [r for r in results if r["name"] == name]
        yield f"TPS, {name}", spread([r["tps"] for r in mine], "{:,.0f}")
        yield f"TPS to the defaults, {name}", spread([r["tps"] / defaults[r["round"]] for r in mine], "{:.2f}")


def required(results):
    return []
