"""When the sweeper begins by itself where reads are the bottleneck, what it foretold, and when it stands down again.

The disk is limited, and its controller is at work (pgscale.sweeper_adaptive is on). Rows are read by zipf, with the sweeper off at
first; then the sweeper is switched on with policy "adaptive" and decides for itself when to work. When all buffers have been taken
TURNOVERS times since, what came is measured. Then the load becomes another one, by which nothing is to be gained.
"""
import datetime
import time

import loads
import machine
import turns
from bed import ADAPTIVE, BY_ITSELF, FULL, OFF, QUICK, limited_bed, mode_of, settings_of
from cluster import run, say
from load import Load, latencies
from real import SAMPLED, options
from real_tables import majors
from report import percent, spread, table

AFTERWARDS = tuple(load for load in loads.NEUTRAL if load.name in ("all in memory", "random pages"))
WORKING = "working"
TURNOVERS = 6
MOST_BEGUN = 60         # seconds
# seconds: a warm-up at most, settling, measured, until it works at most, until it stands down at most
FULL_TIMES = (40, 3, 12, 120, 150)
QUICK_TIMES = (5, 1, 4, 30, 40)


class Begins:
    RECORDS = {"": ("afterwards", "major")}
    LEFT_OUT = ("began", "ended", "supplied_clean", "supplied_written", "p50", "p95", "p99.9", "max")
    rounds = 1

    def pieces(self, quick):
        return [load.name for load in AFTERWARDS]

    def measure(self, place, quick, names):
        size = QUICK if quick else FULL
        known = {"major": place.major, "version": place.version, "date": datetime.date.today().isoformat(), "busy before": machine.load()}
        with limited_bed(place, "begins", size) as bed:
            for afterwards in AFTERWARDS:
                if afterwards.name not in names:
                    continue
                say(afterwards.name)
                found = []
                for number in range(1 if quick else self.rounds):
                    # each on a server that has just started
                    with bed.running_with(size.buffers_mib) as connection:
                        found.append({"afterwards": afterwards.name, "round": number, **known,
                                      **one(bed, connection, afterwards, *(QUICK_TIMES if quick else FULL_TIMES))})
                yield afterwards.name, found

    def whole(self, found):
        return [record for records in found.values() for record in records]

    def merged(self, before, found):
        anew = {(r["major"], r["afterwards"]) for r in found}
        return [*(r for r in before if (r["major"], r["afterwards"]) not in anew), *found]

    def show(self, results):
        rows = [[r["major"], r["round"] + 1, seconds(r["begun"]), r["reason"], share(r["expected"]), share(1 - turns.reads(r["on"]) / turns.reads(r["off"])),
                 *(f"{figure(r[when]):,.{digits}f}" for figure, digits in ((turns.reads, 3), (turns.device_reads, 3), (turns.tps, 0), (turns.p99, 2))
                   for when in ("off", "on")),
                 f"{turns.cpu(r['on']) * 100:.1f} %", f"{turns.cpu_a_buffer(r['on']):,.0f}"] for r in results]
        begun = table(["PostgreSQL", "round", "until it works, s", "its reason", "reads saved, foretold then", "saved later",
                       "pages read a transaction, off", "on", "device reads a transaction, off", "on", "TPS, off", "on", "p99, ms, off", "on",
                       "CPU of the sweeper, of a core", "ns a buffer taken"], rows)
        rows = [[r["afterwards"], r["major"], r["round"] + 1, seconds(r["stood down"]), r["reason then"],
                 f"{r['cpu before'] * 100:.1f} %", f"{r['cpu after'] * 100:.1f} %"]
                for r in results]
        return begun + "\n\n" + table(["the load becomes", "PostgreSQL", "round", "until it stands down, s", "its reason",
                                       "CPU of the sweeper until then, of a core", "and after that"], rows)

    def caption(self, results):
        runs = dict.fromkeys((r["version"], r["date"], f"{r['busy before']:.1f}") for r in results)
        return "\n\n" + "; ".join(f"PostgreSQL {version}, {date}, {busy} processes wanting a CPU in the minute before"
                                  for version, date, busy in runs) + "."

    def published(self, results):
        for major in (15, 18, 19):
            mine = [r for r in results if r["major"] == major]
            begun = [r["begun"] for r in mine if r["begun"] is not None]
            yield f"seconds until it works, {major}", spread(begun, "{:.0f}", " s") if begun else None
            for load in AFTERWARDS:
                ended = [r["stood down"] for r in mine if r["afterwards"] == load.name and r["stood down"] is not None]
                yield f"seconds until it stands down, {load.name}, {major}", spread(ended, "{:.0f}", " s") if ended else None

    def required(self, results):
        for major in majors(results):
            mine = [r for r in results if r["major"] == major]
            begun = [r["begun"] for r in mine]
            yield f"begins: zipf 1.05, {major}: seconds until it works", ", ".join(map(seconds, begun)), f"at most {MOST_BEGUN}", \
                all(each is not None and each <= MOST_BEGUN for each in begun)
            for load in AFTERWARDS:
                ended = [r["stood down"] for r in mine if r["afterwards"] == load.name]
                if ended:
                    yield f"begins: then {load.name}, {major}: seconds until it stands down", ", ".join(map(seconds, ended)), \
                        f"at most {FULL_TIMES[-1]}", None not in ended


def one(bed, connection, afterwards, warm_up, settle, measured, begin, stand_down):
    settings = settings_of(BY_ITSELF, mode_of(bed.place.major))
    with Load(bed.server, *options(bed, loads.ZIPF), f"--sampling-rate={SAMPLED}", log=True) as running:
        bed.turn_over(connection, TURNOVERS, warm_up)
        bed.slow()
        time.sleep(settle)
        off = turns.measured(bed, connection, running, measured)
        turns.say_turn(OFF, off)
        bed.set(**settings)
        begun = waited(connection, begin, lambda: state(connection)[0] == WORKING)
        reason, expected = state(connection)[1], forecast(connection)
        say(f"  {seconds(begun)} s: {reason}; expected {expected}")
        bed.turn_over(connection, TURNOVERS, warm_up)
        on = turns.measured(bed, connection, running, measured)
        turns.say_turn(ADAPTIVE, on)
    at, ms = running.transactions()
    for turn in (off, on):
        turn["ms"] = latencies(ms[(at >= turn["began"]) & (at < turn["ended"])])
    with Load(bed.server, *options(bed, afterwards)):
        cpu = cpu_ms(connection)
        ended = waited(connection, stand_down, lambda: state(connection)[0] != WORKING)
        took, then = max(ended or stand_down, 0.1), state(connection)[1]
        cpu_before, cpu = (cpu_ms(connection) - cpu) / 1000 / took, cpu_ms(connection)
        time.sleep(measured)
        cpu_after = (cpu_ms(connection) - cpu) / 1000 / measured
        say(f"  {afterwards.name}: {seconds(ended)} s: {then}; CPU {cpu_before * 100:.1f} %, then {cpu_after * 100:.1f} %")
    bed.lift()
    return {"begun": begun, "reason": reason, "expected": expected, "off": off, "on": on,
            "stood down": ended, "reason then": then, "cpu before": cpu_before, "cpu after": cpu_after}


def waited(connection, most, is_so):
    """Seconds until it is so; None if it was not in that time."""
    began = time.monotonic()
    while not is_so():
        if time.monotonic() - began >= most:
            return None
        time.sleep(0.2)
    return time.monotonic() - began


def seconds(found):
    return "never" if found is None else f"{found:.0f}"


def share(found):
    return "" if found is None else percent(found, 0)


def state(connection):
    return run(connection, "SELECT state, reason FROM pgscale.sweeper_stats WHERE worker = 1")[0]


def forecast(connection):
    """The share of reads that it expects to save."""
    expected = run(connection, "SELECT expected_reads FROM pgscale.replacement_stats WHERE worker = 1")[0][0]
    return None if expected is None else -expected


def cpu_ms(connection):
    return run(connection, "SELECT cpu_ms FROM pgscale.sweeper_stats WHERE worker = 1")[0][0]
