"""Short statements: how much of the sessions' time is in the profile, and is its CPU time what the kernel counted?

Four sessions, each of a role of its own, so that the profile tells of each. The load is stopped before anything is read:
its sessions idle then, and what they did last has been split.
"""
import os
import signal
import time

import stats
from cluster import end, run, schedstat, value
from load import busy_loops, sysbench
from report import percent, signed, table
from tools import TOOLS, PgWaitSampling, Pgscale

PERIOD = 10
SESSIONS = 4
ROWS = 20000
LOADS = ("pgbench -S", "pgbench -N", "sysbench point_select", "sysbench read_write")
MACHINES = ("idle", "saturated")
RUNNING = "Running|RunningInWait"
QUEUED = "Queued|QueuedInWait"
WITHOUT_EVENT = "without an event"

RECORDS = {"": ("load", "machine", "tool")}


def command(server, name, user):
    tool, what = name.split()
    if tool == "pgbench":
        return ["pgbench", "-h", server.folder, "-U", user, "-n", what, "-c", 1, "-T", 3600, "postgres"]
    return sysbench(server.folder, ROWS, "--threads=1", "--time=3600", f"oltp_{what}", "run", user=user)


def prepare(server, control):
    for tool in TOOLS:
        tool.create(server, control)
    for n in range(SESSIONS):
        run(control, f"CREATE ROLE session{n} LOGIN SUPERUSER")
    server.pgbench("-i", "-q", "-s", 10)
    server.place.run(sysbench(server.folder, ROWS, "oltp_read_write", "prepare", user="session0"))


def backends(control):
    """Process ids by role, once all are there."""
    while True:
        found = dict(run(control, "SELECT usename, pid FROM pg_stat_activity WHERE usename ~ '^session'"))
        if len(found) == SESSIONS:
            return found
        time.sleep(0.1)


def cpu_ms(control, user, events):
    return float(value(control, """
        SELECT coalesce(sum(wait_ms), 0) FROM pgscale_internal.wait_profile() p JOIN pg_roles r ON r.oid = p.userid
         WHERE rolname = %s AND event_type = 'CPU' AND event ~ %s""", user, f"^({events})$"))


def in_rows_ms(control, tool):
    """All that it tells of the sessions, idle or not."""
    if tool is Pgscale:
        return float(value(control, """
            SELECT sum(wait_ms) FROM pgscale_internal.wait_profile() p JOIN pg_roles r ON r.oid = p.userid
             WHERE rolname ~ '^session'"""))
    return PERIOD * float(value(control, """
        SELECT sum(p.count) FROM pg_wait_sampling_profile p JOIN pg_stat_activity a USING (pid)
         WHERE usename ~ '^session'"""))


def without_event_ms(control, user):
    """What the peer shows of a session that waits for nothing: it runs or queues for a CPU, or is held up in the kernel."""
    return PERIOD * float(value(control, """
        SELECT coalesce(sum(p.count), 0) FROM pg_wait_sampling_profile p JOIN pg_stat_activity a USING (pid)
         WHERE usename = %s AND p.event IS NULL""", user))


def errors(told, truth):
    """Of what is told against the kernel's counts, both by session: the worst; and in sum."""
    worst = max((told[user] / truth[user] - 1 for user in truth), key=abs)
    return worst, sum(told.values()) / sum(truth.values()) - 1


def one_load(server, control, name, seconds):
    programs = [server.place.popen(command(server, name, f"session{n}"), stdout=-3, stderr=-3) for n in range(SESSIONS)]
    try:
        time.sleep(2)       # a program's first session may be another one
        pids = backends(control)
        for tool in reversed(TOOLS):        # the peer's takes a moment
            tool.reset(control)
        began, before = time.monotonic(), {user: schedstat(pid) for user, pid in pids.items()}
        time.sleep(seconds)
        for program in programs:
            program.send_signal(signal.SIGSTOP)
        time.sleep(2.5)
        after = {user: schedstat(pid) for user, pid in pids.items()}
        clock = (time.monotonic() - began) * 1000 * SESSIONS
        found = {tool.name: {"in rows": in_rows_ms(control, tool) / clock} for tool in TOOLS}
        kernel = {user: [(b - a) / 1e6 for a, b in zip(before[user], after[user])] for user in pids}
        for what, column, events in (("running", 0, RUNNING), ("queued", 1, QUEUED)):
            worst, total = errors({user: cpu_ms(control, user, events) for user in pids},
                                  {user: kernel[user][column] for user in pids})
            found[Pgscale.name] |= {f"{what} worst": worst, what: total}
        if PgWaitSampling.counts_cpu(control):
            worst, total = errors({user: without_event_ms(control, user) for user in pids},
                                  {user: sum(kernel[user]) for user in pids})
            found[PgWaitSampling.name] |= {f"{WITHOUT_EVENT} worst": worst, WITHOUT_EVENT: total}
        total = sum(queued for _, queued in kernel.values()) / clock
        return {name: {**each, "queued fraction": total} for name, each in found.items()}
    finally:
        for program in programs:
            program.send_signal(signal.SIGCONT)
            end(program)
        while value(control, "SELECT count(*) FROM pg_stat_activity WHERE usename ~ '^session'"):
            time.sleep(0.1)


def measure(place, quick):
    repetitions, seconds = (1, 5) if quick else (3, 20)
    results = []
    with place.cluster("clock", max_connections=30,
                       shared_preload_libraries=",".join(tool.library for tool in TOOLS),
                       **{k: v for tool in TOOLS for k, v in tool.settings(PERIOD).items()}) as server:
        control = server.connect()
        prepare(server, control)
        for _, machine in stats.rounds(repetitions, MACHINES):
            with busy_loops(place, 2 * os.cpu_count() if machine == "saturated" else 0):
                for name in LOADS:
                    for tool, found in one_load(server, control, name, seconds).items():
                        results.append({"load": name, "machine": machine, "tool": tool, **found})
    return results


def of(results, what, **wanted):
    return [r.get(what) for r in results if all(r[k] == v for k, v in wanted.items())]


def show(results):
    rows = []
    for name in LOADS:
        for machine in MACHINES:
            mine = {"load": name, "machine": machine, "tool": Pgscale.name}
            cells = [percent(stats.median(of(results, "in rows", load=name, machine=machine, tool=tool.name))) for tool in TOOLS]
            cells += [signed(stats.worst(of(results, what, **mine)), 1)
                      for what in ("running", "running worst", "queued", "queued worst")]
            theirs = of(results, WITHOUT_EVENT, **{**mine, "tool": PgWaitSampling.name})
            cells.append(signed(stats.worst(theirs), 1) if None not in theirs else "not counted")
            rows.append([name, machine, percent(stats.median(of(results, "queued fraction", **mine)))] + cells)
    return table(["load", "machine", "queued, by the kernel"] + [f"{tool.name}: in its rows" for tool in TOOLS] +
                 ["running, error", "of one session", "queued, error", "of one session",
                  f"{PgWaitSampling.name}: without an event, against running + queued"], rows)


def published(results):
    for tool in TOOLS:
        shares = of(results, "in rows", tool=tool.name)
        yield f"least part of the sessions' time, {tool.name}", percent(min(shares))
    theirs = of(results, f"{WITHOUT_EVENT} worst", tool=PgWaitSampling.name)
    yield f"worst error of CPU time, {PgWaitSampling.name}", \
        percent(abs(stats.worst(theirs)), 0) if None not in theirs else "not counted"
    yield "worst error of CPU time", percent(abs(stats.worst(
        [each for what in ("running worst", "queued worst") for each in of(results, what, tool=Pgscale.name)])))


def required(results):
    missing = [1 - each for each in of(results, "in rows", tool=Pgscale.name)]
    yield "clock: part of the sessions' time in the rows, worst", percent(1 - stats.worst(missing)), "100 ± 1 %", \
        abs(stats.worst(missing)) <= 0.01
    for what in ("running", "running worst", "queued", "queued worst"):
        worst = stats.worst(of(results, what, tool=Pgscale.name))
        yield f"clock: {what.replace(' worst', ', of one session')}, worst error against the kernel", signed(worst, 1), \
            "within 3 %", abs(worst) <= 0.03
