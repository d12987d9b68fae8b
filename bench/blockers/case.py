"""Who held it at 03:10? A session changes a row, idles in its transaction, commits and goes; its name is asked for afterwards.

pgbench's log knows how long its transactions waited for that one: those that were under way when it committed.
"""
import contextlib
import time

import stats
from cluster import run, say, value
from load import HOLD_STOCK, STOCK, UPDATE_STOCK, Load
from report import percent, signed, spread, table

CLIENTS = 8
HOLD_S, ROUNDS = 10, 6
QUICK = {"HOLD_S": 4, "ROUNDS": 1}
HOLDER = "nightly_report"
LIMIT = 0.05

# asked when all have gone: is the root named by the profile, and by the history, where it idled in its transaction?
NAMED = {
    "blocker_profile": f"SELECT EXISTS (SELECT FROM pgscale.blocker_profile WHERE application_name = '{HOLDER}')",
    "wait_history": f"""
        SELECT EXISTS (SELECT FROM pgscale.wait_history w JOIN pgscale.wait_history r ON r.pid = w.root_pid AND r.sampled_at = w.sampled_at
                        WHERE w.root_application_name = '{HOLDER}' AND r.state = 'idle in transaction')""",
}
PROFILE = "SELECT coalesce(sum(waited_ms), 0), coalesce(sum(idle_in_transaction_ms), 0) FROM pgscale_internal.blocker_profile()" \
    f" WHERE application_name = '{HOLDER}'"

RECORDS = {"runs": ()}


def hold(server, seconds):
    """One hold beside the load. Returns when it began and ended."""
    with contextlib.closing(server.connect(HOLDER, "reports")) as holder:
        holder.autocommit = False
        run(holder, HOLD_STOCK)
        began = time.time()
        time.sleep(seconds)
        ended = time.time()
        holder.commit()
    return began, ended


def one(server, connection, script, seconds):
    """A round: what pgscale and pgbench's log say of the time waited. All sessions have gone then."""
    run(connection, "SELECT pgscale.reset('sampler')")
    with Load(server, "-U", "shop", "-f", script, "-c", CLIENTS, "-j", 2, log=True) as load:
        time.sleep(1)
        began, ended = hold(server, seconds)
        time.sleep(0.5)
    at, ms = load.transactions()
    waiting = (at > ended) & (at - ms / 1000 < ended)
    known = sum(1000 * (ended - max(began, end - each / 1000)) for end, each in zip(at[waiting], ms[waiting]))
    waited, idle = run(connection, PROFILE)[0]
    return {"held_ms": 1000 * (ended - began), "waiting": int(waiting.sum()), "known_ms": float(known), "waited_ms": waited,
            "idle_ms": idle}


def measure(place, quick):
    seconds, rounds = QUICK.values() if quick else (HOLD_S, ROUNDS)
    runs, named = [], None
    script = place.script("shop.sql", UPDATE_STOCK)
    with place.cluster("case", shared_preload_libraries="pgscale") as server, contextlib.closing(server.connect()) as connection:
        server.create_pgscale(connection)
        run(connection, STOCK)
        for number in range(rounds):
            say(f"hold {number + 1}")
            runs.append({"round": number, **one(server, connection, script, seconds)})
            named = named or {where: value(connection, query) for where, query in NAMED.items()}
    return {"runs": runs, "named": named}


def errors(results):
    return [each["waited_ms"] / each["known_ms"] - 1 for each in results["runs"]]


def show(results):
    rows = [[spread([each["held_ms"] / 1000 for each in results["runs"]], "{:.2f}", " s"),
             spread([each["waiting"] for each in results["runs"]], "{:.0f}"),
             spread([each["known_ms"] / 1000 for each in results["runs"]], "{:.1f}", " s"),
             spread([each["waited_ms"] / 1000 for each in results["runs"]], "{:.1f}", " s"),
             spread([100 * each for each in errors(results)], "{:+.1f}", " %")]]
    return table(["held", "sessions that waited", "they waited, by pgbench's log", "by blocker_profile", "error"], rows)


def required(results):
    for where, named in results["named"].items():
        yield f"case: the root is named when it has gone, by {where}", HOLDER if named else "no", HOLDER, named
    worst = stats.worst(errors(results))
    yield "case: error of the time waited for it, worst hold", signed(worst), f"within {percent(LIMIT, 0)}", abs(worst) <= LIMIT
    idle = min(each["idle_ms"] / each["waited_ms"] if each["waited_ms"] else 0 for each in results["runs"])
    yield "case: part of it while it idled in its transaction", percent(idle), "at least 90 %", idle >= 0.9
