"""When the sweeper begins by itself where reads are the bottleneck, what it foretold, and when it stands down again.

The disk is limited, and the sweeper decides for itself (pgscale.sweeper is auto). Rows are read by zipf, with the sweeper
off at first; then it is switched on. When all buffers have been taken TURNOVERS times since, the reads are measured. Then the load becomes another one, by which nothing is to be gained.
"""
import time

import loads
import majors
import real
import turns
from bed import BY_ITSELF, FULL, OFF, QUICK, limited_bed, settings_of
from cluster import run, say
from load import Load
from report import percent, table

AFTERWARDS = (loads.ALL_IN_MEMORY, loads.RANDOM_PAGES)
WORKING = "working"
TURNOVERS = 6
MOST_BEGUN = 60         # seconds
# seconds: a warm-up at most, settling, measured, until it works at most, until it stands down at most
FULL_TIMES = (40, 3, 12, 120, 150)
QUICK_TIMES = (5, 1, 4, 30, 40)
RECORDS = {"": ("afterwards", "major")}
LEFT_OUT = (*real.Part.LEFT_OUT, "allocations", "consumed", "cpu_ms", "device writes", "foretold", "seconds")
caption = majors.caption


def pieces(quick):
    return [load.name for load in AFTERWARDS]


def measure(place, quick, names):
    size = QUICK if quick else FULL
    known = majors.described(place)
    with limited_bed(place, "begins", size) as bed:
        for afterwards in AFTERWARDS:
            if afterwards.name in names:
                say(afterwards.name)
                # each on a server that has just started
                with bed.running_with(size.buffers_mib) as connection:
                    yield afterwards.name, [{"afterwards": afterwards.name, "round": 0, **known,
                                             **one(bed, connection, afterwards, *(QUICK_TIMES if quick else FULL_TIMES))}]


def whole(found):
    return [record for records in found.values() for record in records]


def merged(before, found):
    return majors.merged(before, found, "afterwards", pieces(False))


def one(bed, connection, afterwards, warm_up, settle, measured, begin, stand_down):
    with Load(bed.server, *real.options(bed, loads.ZIPF), f"--sampling-rate={real.SAMPLED}", log=True) as running:
        bed.turn_over(connection, TURNOVERS, warm_up)
        bed.slow()
        time.sleep(settle)
        off = turns.measured(bed, connection, running, measured)
        turns.say_turn(OFF, off)
        bed.set(**settings_of(BY_ITSELF))
        begun = waited(begin, lambda: state(connection)[0] == WORKING)
        reason, expected = state(connection)[1], forecast(connection)
        say(f"  {seconds(begun)} s: {reason}")
        bed.turn_over(connection, TURNOVERS, warm_up)
        on = turns.measured(bed, connection, running, measured)
        turns.say_turn(BY_ITSELF, on)
    real.add_latencies(running, (off, on))
    with Load(bed.server, *real.options(bed, afterwards)):
        ended = waited(stand_down, lambda: state(connection)[0] != WORKING)
        then = state(connection)[1]
        say(f"  {afterwards.name}: {seconds(ended)} s: {then}")
    bed.lift()
    return {"begun": begun, "reason": reason, "expected": expected, "off": off, "on": on, "stood down": ended, "reason then": then}


def waited(most, is_so):
    """Seconds until it is so; None if it was not in that time."""
    began = time.monotonic()
    while not is_so():
        if time.monotonic() - began >= most:
            return None
        time.sleep(0.2)
    return time.monotonic() - began


def seconds(found):
    return "never" if found is None else f"{found:.0f}"


def state(connection):
    return run(connection, "SELECT state, reason FROM pgscale.sweeper_stats")[0]


def forecast(connection):
    """The share of reads that it expects to save."""
    expected = run(connection, "SELECT expected_reads FROM pgscale.replacement_stats")[0][0]
    return None if expected is None else -expected


def show(results):
    figures = ((turns.reads, 3), (turns.device_reads, 3), (turns.tps, 0), (turns.p99, 2))
    rows = [[r["major"], seconds(r["begun"]), r["reason"], "" if r["expected"] is None else percent(r["expected"], 0),
             *(f"{figure(r[when]):,.{digits}f}" for figure, digits in figures for when in ("off", "on")),
             r["afterwards"], seconds(r["stood down"]), r["reason then"]] for r in results]
    return table(["PostgreSQL", "until it works, s", "its reason", "reads saved, foretold then",
                  "pages read a transaction, off", "on", "device reads a transaction, off", "on", "TPS, off", "on",
                  "p99, ms, off", "on", "the load becomes", "until it stands down, s", "its reason"], rows)


def required(results):
    begun = [r["begun"] for r in results]
    yield "begins: seconds until it works", ", ".join(map(seconds, begun)), f"at most {MOST_BEGUN}", \
        all(each is not None and each <= MOST_BEGUN for each in begun)
    ended = [r["stood down"] for r in results]
    yield "begins: seconds until it stands down", ", ".join(map(seconds, ended)), f"at most {FULL_TIMES[-1]}", None not in ended
