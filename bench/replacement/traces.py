"""Misses of the policies and of known algorithms on references that were recorded from a real server: see recording.py."""
import recording
import simulator
from cluster import say
from report import percent, table
from simulator import ADAPTIVE, ALGORITHMS, CLOCK, TICKS

FULL, QUICK = 2500000, 1000000      # references of a load
RECORDS = {"": ("load", "algorithm")}
MOST = 1.05                         # misses to the clock's
FASTER = 4                          # times as many references a tick of the sweeper
FASTER_NAME = f"{ADAPTIVE}, {FASTER} times as fast"
NAMES = (*ALGORITHMS[1:], FASTER_NAME)


def pieces(quick):
    return list(recording.LOADS)


def measure(place, quick, names):
    recorder = recording.Recorder(place)
    trace = place.folder / "trace"
    with recorder.running():
        for name in names:
            say(name)
            entries = recorder.record(name, QUICK if quick else FULL)
            mine = entries[entries["by_ring"] == 0]
            buffers = recording.LOADS[name]["buffers"]
            facts = {"load": name, "buffers": buffers, "by ring": 1 - len(mine) / len(entries), "pages": recording.save(mine, trace)}
            windows = simulated(place, trace, buffers)
            windows[FASTER_NAME] = simulated(place, trace, buffers, TICKS // FASTER, ADAPTIVE)[ADAPTIVE]
            yield name, [{**facts, "algorithm": algorithm, "references": len(counted(windows[algorithm])) * buffers,
                          "misses": sum(counted(windows[algorithm]))} for algorithm in (CLOCK, *NAMES)]


def simulated(place, trace, buffers, ticks=TICKS, *algorithms):
    return simulator.run(simulator.compiled(place, buffers=buffers, ticks=ticks), f"trace:{trace}", 0, *algorithms)


def counted(windows):
    """After the warm-up."""
    return windows[simulator.WARM_UP:]


def whole(found):
    return [record for records in found.values() for record in records]


def loads(results):
    return list(dict.fromkeys(r["load"] for r in results))


def of(results, load, algorithm=CLOCK):
    return next(r for r in results if (r["load"], r["algorithm"]) == (load, algorithm))


def ratio(results, load, algorithm):
    return simulator.ratio(of(results, load, algorithm)["misses"], of(results, load)["misses"])


def show(results):
    rows = []
    for load in loads(results):
        r = of(results, load)
        rows.append([load, f"{r['pages'] / r['buffers']:.1f}", percent(r["by ring"]), f"{r['references'] / 1e6:.1f}",
                     f"{r['misses'] / r['buffers']:.0f}", percent(r["misses"] / r["references"]),
                     *(f"{ratio(results, load, algorithm):.2f}" for algorithm in NAMES)])
    return "Misses relative to the clock's, after the warm-up.\n\n" + table(
        ["", "pages a buffer", "by rings, left out", "references, millions", "misses a buffer, clock", "misses of the clock", *NAMES], rows)


def published(results):
    for load in loads(results):
        for algorithm in NAMES:
            yield f"{load}: misses, {algorithm} / clock", f"{ratio(results, load, algorithm):.2f}"


def required(results):
    for load in loads(results):
        found = ratio(results, load, ADAPTIVE)
        yield f"traces: {load}: misses / clock's", f"{found:.3f}", f"at most {MOST}", found <= MOST
