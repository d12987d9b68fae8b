"""Known loads: how far is the time that a sampler reports from the time that really passed?

Both samplers watch the same server and the same load at once. The truth comes from the sessions' own clock, read in the
same statement just before and after the wait, and for CPU from the kernel: time on a CPU plus time ready for one.
"""
import threading
import time

import stats
from cluster import run, schedstat, value
from report import percent, signed, table
from tools import TOOLS, Pgscale

PERIODS = (10, 1)
LOADS = ("long sleeps", "short sleeps", "long lock waits", "short lock waits", "CPU")

SETUP = """
CREATE TABLE locked (id int PRIMARY KEY);
INSERT INTO locked SELECT generate_series(1, 3);
CREATE FUNCTION wait_for_row(int) RETURNS double precision LANGUAGE plpgsql AS $$
DECLARE began timestamptz := clock_timestamp();
BEGIN
    PERFORM FROM locked WHERE id = $1 FOR UPDATE;
    RETURN extract(epoch FROM clock_timestamp() - began);
END $$;
CREATE FUNCTION wait_for_lock() RETURNS double precision LANGUAGE plpgsql AS $$
DECLARE began timestamptz := clock_timestamp();
BEGIN
    PERFORM pg_advisory_xact_lock_shared(1);
    RETURN extract(epoch FROM clock_timestamp() - began);
END $$;
CREATE FUNCTION sleep_one(double precision) RETURNS double precision LANGUAGE plpgsql AS $$
DECLARE began timestamptz := clock_timestamp();
BEGIN
    PERFORM pg_sleep($1);
    RETURN extract(epoch FROM clock_timestamp() - began);
END $$;
CREATE FUNCTION burn(until timestamptz) RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE n bigint := 0;
BEGIN
    WHILE clock_timestamp() < until LOOP n := n + 1; END LOOP;
    RETURN n;
END $$;
"""


def together(sessions, statement):
    """Runs a statement in all sessions at the same time; the sum of their answers."""
    answers = []
    threads = [threading.Thread(target=lambda s=s, n=n: answers.append(value(s, statement, n)))
               for n, s in enumerate(sessions, 1)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return sum(answers)


def held(holder, lock, seconds, waiters, statement):
    """Likewise, while another session holds what they want for that long."""
    run(holder, "BEGIN")
    run(holder, lock)
    timer = threading.Timer(seconds, run, (holder, "COMMIT"))
    timer.start()
    answer = together(waiters, statement)
    timer.join()
    return answer


def load(name, seconds, sessions):
    """Runs a load; returns wait event type, event, the true time in seconds, and for CPU the share spent ready."""
    first, others = sessions[0], sessions[1:]
    if name == "long sleeps":
        return "Timeout", "PgSleep", together(sessions, f"SELECT sleep_one({seconds} + 0 * %s)"), 0
    if name == "short sleeps":
        # 1 to 9 ms, not in step with any period
        return "Timeout", "PgSleep", together(
            sessions, f"SELECT sum(sleep_one(0.001 + 0.008 * random())) FROM generate_series(1, {seconds * 190:.0f} + 0 * %s)"), 0
    if name == "long lock waits":
        return "Lock", "advisory", held(first, "SELECT pg_advisory_xact_lock(1)", seconds, others,
                                        "SELECT wait_for_lock() + 0 * %s"), 0
    if name == "short lock waits":
        spans = [0.02 + 0.013 * (n % 11) for n in range(int(seconds * 11))]
        return "Lock", "transactionid|tuple", sum(
            held(first, "SELECT FROM locked FOR UPDATE", span, others, "SELECT wait_for_row(%s)") for span in spans), 0
    pid = first.get_backend_pid()
    before = schedstat(pid)
    run(first, f"SELECT burn(clock_timestamp() + interval '{seconds} s')")
    on_cpu, ready = (after - old for old, after in zip(before, schedstat(pid)))
    return "CPU", ".*", (on_cpu + ready) / 1e9, ready / (on_cpu + ready)


RECORDS = {"": ("load", "period", "tool")}


def measure(place, quick):
    repetitions, seconds = (1, 1) if quick else (5, 5)
    results = []
    server = place.cluster("truth", max_connections=30,
                           shared_preload_libraries=",".join(tool.library for tool in TOOLS))
    settings = {period: {k: v for tool in TOOLS for k, v in tool.settings(period).items()} for period in PERIODS}
    for number, period in stats.rounds(repetitions, PERIODS):
        server.start(**settings[period])
        control = server.connect()
        if number == 0 and not value(control, "SELECT to_regclass('locked') IS NOT NULL"):
            run(control, SETUP)
            for tool in TOOLS:
                tool.create(server, control)
        sessions = [server.connect() for _ in range(4)]
        for name in LOADS:
            for tool in TOOLS:
                tool.reset(control)
            event_type, event, truth, ready = load(name, seconds, sessions)
            time.sleep(0.1)
            for tool in TOOLS:
                error = tool.wait_ms(control, event_type, event) / (truth * 1000) - 1
                if tool is not Pgscale and name == "CPU" and not tool.counts_cpu(control):
                    error = None
                results.append({"load": name, "period": period, "tool": tool.name, "error": error, "ready": ready})
        server.stop()
    return results


def one(results, **wanted):
    return [r for r in results if all(r[k] == v for k, v in wanted.items())]


def show(results):
    rows = []
    for name in LOADS:
        for period in PERIODS:
            cells = []
            for tool in TOOLS:
                errors = [r["error"] for r in one(results, load=name, period=period, tool=tool.name)]
                if None in errors:
                    cells += ["not counted", ""]
                else:
                    cells += [signed(stats.median(errors), 2), signed(stats.worst(errors), 2)]
            rows.append([name, f"{period} ms"] + cells)
    return table(["load", "period"] + [f"{tool.name}, {what}" for tool in TOOLS for what in ("median", "worst")], rows)


def published(results):
    for tool in TOOLS:
        errors = [r["error"] for r in one(results, tool=tool.name) if r["error"] is not None]
        yield f"worst error, {tool.name}", percent(abs(stats.worst(errors)))


def required(results):
    errors = [r["error"] for r in results if r["tool"] == Pgscale.name]
    yield "truth: error of the reported time, worst", signed(stats.worst(errors), 2), "within 2 %", \
        abs(stats.worst(errors)) <= 0.02
