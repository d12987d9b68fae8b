"""What a screen costs: its time at up to 5,000 connections, idle or all blocked on one row, and what it takes from a load."""
import contextlib
import time

import numpy

import bed
import idle
import stats
import watch
from cluster import run, say
from load import Load
from report import between, percent, signed, spread, table

COUNTS, QUICK_COUNTS = (100, 1000, 5000), (100, 300)
ASKED, QUICK_ASKED = 60, 8
ROUNDS, TURN_S = 10, 8
QUICK_TURNS = (1, 3)
IDLE, BLOCKED, LOADED = "idle", "blocked on one row", "beside a load"
LIMIT_MS = 50
LIMIT_TPS = 0.99
SPARE = 20
# memory of a session (1.7 of 5,000), and what is left for others; more sessions than fit are not opened
SESSION_MIB, LEFT_MIB = 2, 2048
# for comparison: what a server without pgscale shows of its sessions
PEER = "SELECT count(query), count(wait_event) FROM pg_stat_activity"
UPDATE = "UPDATE stock SET amount = amount - 1 WHERE product = 7"
LOAD = ("-S", "-M", "prepared", "-c", 2, "-j", 1)
RECORDS = {"times": ("connections", "state"), "turns": ("connections", "asked")}


def most():
    """Connections that this machine's memory has room for."""
    with open("/proc/meminfo") as file:
        free = next(int(line.split()[1]) // 1024 for line in file if line.startswith("MemAvailable"))
    return int((free - LEFT_MIB) / SESSION_MIB) // 100 * 100


def counts(quick):
    return QUICK_COUNTS if quick else COUNTS


def pieces(quick):
    wanted = counts(quick)
    return [f"{count} {state}" for count in wanted for state in (IDLE, BLOCKED)] + \
        [f"{count} {LOADED}" for count in (wanted[0], wanted[-1])]


def measure(place, quick, names):
    for piece in names:
        wanted, state = piece.split(" ", 1)
        count = min(int(wanted), most())
        say(f"{count} connections, {state}")
        # deadlock_timeout: or each that waits looks at all the others a second later
        with bed.staged(place, piece, max_connections=count + SPARE, deadlock_timeout="1h", shared_buffers="256MB") as stage, \
                contextlib.closing(stage.server.connect("psql", watch.ROLE)) as connection, \
                idle.opened(stage.server, count - 1, "shop") as sessions, contextlib.ExitStack() as undo:
            found = {"wanted": int(wanted), "times": [], "turns": []}
            if state == LOADED:
                found["turns"] = list(turns(stage, count, *(QUICK_TURNS if quick else (ROUNDS, TURN_S))))
            else:
                if state == BLOCKED:
                    block(stage, sessions, undo)
                found["times"] = [asked(connection, count, state, QUICK_ASKED if quick else ASKED)]
            yield piece, found


def block(stage, sessions, undo):
    undo.enter_context(bed.transaction(stage.server, "nightly_report", UPDATE))
    for session in sessions:
        session.send(f"BEGIN; {UPDATE}")
    waiting = f"(SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock') = {len(sessions)}"
    bed.await_true(stage.connection, waiting, "all to wait")


def asked(connection, count, state, times):
    """Each in turn with the others, as often as times says."""
    ms = {watch.SCREEN: [], watch.DIAGNOSIS: [], PEER: []}
    for statement in ms:
        run(connection, statement)
    for _ in range(times):
        for statement in ms:
            began = time.monotonic()
            run(connection, statement)
            ms[statement].append(1000 * (time.monotonic() - began))
            time.sleep(0.1)
    found = {"connections": count, "state": state, "screen": run(connection, watch.SCREEN)[0][0]}
    for name, statement in (("now", watch.SCREEN), ("diagnosis", watch.DIAGNOSIS), ("peer", PEER)):
        found[f"{name}_ms"], found[f"{name}_p99_ms"] = stats.median(ms[statement]), float(numpy.percentile(ms[statement], 99))
    say(f"  now {found['now_ms']:.1f} ms, pg_stat_activity {found['peer_ms']:.1f} ms: {found['screen']}")
    return found


def turns(stage, count, rounds, turn_s):
    with Load(stage.server, *LOAD) as load:
        time.sleep(2)
        for number, is_asked in stats.rounds(rounds, (False, True)):
            with asking(stage) if is_asked else contextlib.nullcontext():
                began = time.time()
                time.sleep(turn_s)
                ended = time.time()
            time.sleep(1.1)             # until pgbench has said what the last second was
            yield {"connections": count, "asked": is_asked, "round": number, "tps": load.tps(began, ended)}


def asking(stage):
    """As \\watch 2 does."""
    return bed.Statements(stage.server, "psql", watch.SCREEN, f"SELECT pg_sleep({watch.SCREEN_S})", again=True, user=watch.ROLE)


def whole(found):
    return {name: sum((each[name] for each in found.values()), []) for name in RECORDS} | \
        {"wanted": max(each["wanted"] for each in found.values())}


def ratios(results):
    """Of the throughput with the screen asked to that without, round by round, for each number of connections."""
    found = {}
    for turn in results["turns"]:
        found.setdefault(turn["connections"], {}).setdefault(turn["asked"], {})[turn["round"]] = turn["tps"]
    return {count: [tps[True][number] / tps[False][number] for number in tps[True]] for count, tps in found.items()}


def show(results):
    rows = [[f"{each['connections']:,}", each["state"],
             *(f"{each[f'{name}_ms']:.1f} ms, {each[f'{name}_p99_ms']:.1f} ms" for name in ("now", "diagnosis", "peer")), each["screen"]]
            for each in results["times"]]
    shown = table(["connections", "", "`now`: median, 99 %", "`diagnosis()`", "count of pg_stat_activity", "first line"], rows)
    rows = []
    for count, each in ratios(results).items():
        without = [turn["tps"] for turn in results["turns"] if turn["connections"] == count and not turn["asked"]]
        rows.append([f"{count:,}", spread(without, "{:,.0f}"), between(stats.median(each), *stats.interval(each), "{:.3f}"), len(each)])
    shown += "\n\n" + table(["connections", "`pgbench -S`, 2 clients: TPS", f"with `now` each {watch.SCREEN_S} s, ratio (95 %)", "rounds"],
                            rows)
    highest = max(each["connections"] for each in results["times"])
    return shown + (f"\n\nThis machine's memory has room for {highest:,} connections." if highest < results["wanted"] else "")


def published(results):
    for each in results["times"]:
        name = f"{each['connections']:,} connections, {each['state']}"
        yield f"{name}, median", f"{each['now_ms']:.1f} ms"
        yield f"{name}, 99 %", f"{each['now_p99_ms']:.1f} ms"
    for count, each in ratios(results).items():
        yield f"TPS beside now, {count:,} connections", between(stats.median(each), *stats.interval(each), "{:.3f}")
        yield f"change of TPS, {count:,} connections", signed(stats.median(each) - 1)


def required(results):
    for each in results["times"]:
        yield f"cost: a screen, {each['connections']:,} connections, {each['state']}, 99 %", f"{each['now_p99_ms']:.1f} ms", \
            f"{LIMIT_MS} ms", each["now_p99_ms"] <= LIMIT_MS
    for count, each in ratios(results).items():
        low, high = stats.interval(each)
        yield f"cost: TPS beside it, {count:,} connections", f"{stats.median(each):.3f} ({low:.3f} .. {high:.3f})", \
            f"{percent(LIMIT_TPS, 0)} within its interval", high >= LIMIT_TPS
