"""The primary of three nodes is killed under load. What do the archive and the fleet's functions say of before, meanwhile and after?

Clients that know what they did are the truth: some sleep in the server and note each sleep, one commits and notes each answer.
"""
import contextlib
import threading
import time

import psycopg2

import stats
from cluster import TREE, run, say, value
from load import Load
from report import signed, spread, table

from bed import Fleet

SLEEPERS = 3
SLEEP_S = 0.5
ROUNDS, BEFORE_S, AFTER_S, PERIOD_S = 3, 60, 60, 5
QUICK = {"ROUNDS": 1, "BEFORE_S": 12, "AFTER_S": 12, "PERIOD_S": 1}
LIMIT = 0.03
ROLES = ["primary", "standby", "standby"]

RECORDS = {"rounds": ()}

FLEET = "SELECT state, role FROM pgscale.fleet ORDER BY 1, 2"
# rows of both nodes in the order of time, with what is between each and the one before
OVERLAPS = """
    SELECT count(*) FROM (SELECT at, lag(at + make_interval(secs => period_s)) OVER (ORDER BY at) AS ended FROM pgscale.archive_minutes WHERE NOT pulled) m
     WHERE at < ended - interval '0.001 s'"""
SLEPT = """
    SELECT coalesce(sum(wait_ms), 0) FROM pgscale.top_waits(to_timestamp(%s), to_timestamp(%s), by => 'event', top => 100)
     WHERE event_type = 'Timeout' AND event = 'PgSleep'"""
MOST = """
    SELECT max(slept) FROM (SELECT sum(wait_ms) / (1000 * min(period_s)) AS slept FROM pgscale.archive_waits
                             WHERE event = 'PgSleep' AND NOT pulled GROUP BY at) m"""
PAGE = """
    SELECT pgscale_internal.report_page('Nodes', pgscale_internal.report_section('nodes', 'Nodes', NULL, to_timestamp(%s), now(), NULL, NULL, 'html'))"""


class Clients:
    """with Clients(fleet) as clients: ...; they go on with the next primary when theirs is gone."""

    def __init__(self, fleet):
        self.conninfo = fleet.conninfo()
        self.over = threading.Event()
        self.sleeps = []
        self.commits = []
        self.threads = [threading.Thread(target=self._work, args=(self._sleep,)) for _ in range(SLEEPERS)]
        self.threads.append(threading.Thread(target=self._work, args=(self._commit,)))

    def __enter__(self):
        for thread in self.threads:
            thread.start()
        return self

    def __exit__(self, *exc):
        self.over.set()
        for thread in self.threads:
            thread.join()

    def _work(self, step):
        while not self.over.is_set():
            try:
                with contextlib.closing(psycopg2.connect(self.conninfo)) as connection:
                    connection.autocommit = True
                    while not self.over.is_set():
                        step(connection)
            except psycopg2.Error:
                self.over.wait(0.1)

    def _sleep(self, connection):
        since = time.time()
        try:
            run(connection, "SELECT pg_sleep(%s)", SLEEP_S)
        finally:
            self.sleeps.append((since, time.time()))

    def _commit(self, connection):
        run(connection, "INSERT INTO ledger DEFAULT VALUES")
        self.commits.append(time.time())
        time.sleep(0.02)

    def slept_ms(self, since, until):
        return 1000 * sum(max(min(end, until) - max(begin, since), 0) for begin, end in list(self.sleeps))


def rows(connection):
    """Each row of the archive: node, start and end."""
    return [(node, float(at), float(ended)) for node, at, ended in run(
        connection, "SELECT node, extract(epoch FROM at), extract(epoch FROM at) + period_s FROM pgscale.archive_minutes WHERE NOT pulled ORDER BY at")]


def compared(connection, clients, since, until):
    """What top_waits has of the sleeps, and what the clients know."""
    return {"found_ms": float(value(connection, SLEPT, since, until)), "slept_ms": clients.slept_ms(since, until)}


def asked(node):
    with contextlib.closing(node.connect()) as connection:
        return run(connection, FLEET)


def outage(commits, killed, promoted):
    """The longest time between two commits. A kill takes a moment, and the old primary may commit meanwhile."""
    near = [at for at in commits if killed - 5 < at < promoted + 30]
    return max(later - at for at, later in zip(near, near[1:]))


def one(fleet, clients, before_s, after_s, period_s):
    """One failover: its figures, states and roles of the nodes meanwhile, and the old primary."""
    old = fleet.leader()
    began = time.time()
    with Load(old, "-p", old.port, "-c", 4, "-j", 1, "-R", 100, may_fail=True):
        time.sleep(before_s)
        say(f"{old.name} is killed")
        killed = time.time()
        old.kill()
        time.sleep(3)
        witness = next(node for node in fleet.nodes.values() if node is not old)
        meanwhile = asked(witness)
    new = fleet.wait(lambda: next((node for node in fleet.nodes.values() if node is not old and node.role() == "primary"), None), 120)
    promoted = time.time()
    say(f"{new.name} is the primary after {promoted - killed:.0f} s")
    fleet.wait(lambda: clients.commits[-1] > promoted, 30)
    with Load(new, "-p", new.port, "-c", 4, "-j", 1, "-R", 100), contextlib.closing(new.connect()) as connection:
        time.sleep(after_s)
        fleet.wait(lambda: any(at > promoted for _, at, _ in rows(connection)), 30 + 3 * period_s)
        there = rows(connection)
        last = max(ended for _, at, ended in there if at < killed)
        first = min(at for _, at, _ in there if at > killed)
        first_before = min(at for _, at, _ in there if at >= began)
        until = max(ended for _, _, ended in there)
        figures = {
            "outage_s": outage(clients.commits, killed, promoted),
            "promoted_s": promoted - killed, "unwritten_s": killed - last, "gap_s": first - last, "until_first_s": first - promoted,
            "of_old": sum(began <= at < killed for _, at, _ in there), "of_new": sum(at > killed for _, at, _ in there),
            "nodes": len({node for node, at, _ in there if at >= began}),
            "wrongly_labelled": len({node for node, at, _ in there if began <= at < killed} & {node for node, at, _ in there if at > killed}),
            "overlaps": value(connection, OVERLAPS), "most_sessions": float(value(connection, MOST)),
            "memory_s": float(value(connection, "SELECT coalesce(sum(period_s), 0) FROM pgscale_internal.past_coverage(to_timestamp(%s), to_timestamp(%s))"
                                                " WHERE source = 'memory'", last, first)),
            "before": compared(connection, clients, first_before, last), "after": compared(connection, clients, first, until),
            "whole": compared(connection, clients, first_before, until)}
    return figures, meanwhile, old


def measure(place, quick):
    rounds, before_s, after_s, period_s = QUICK.values() if quick else (ROUNDS, BEFORE_S, AFTER_S, PERIOD_S)
    found = {"period_s": period_s, "rounds": []}
    began = time.time()
    with Fleet(place, **{"pgscale.debug_period": f"{period_s}s"}) as fleet:
        leader = fleet.leader()
        with contextlib.closing(leader.connect()) as connection:
            run(connection, "CREATE TABLE ledger (n bigserial, at timestamptz DEFAULT clock_timestamp())")
        place.run(["pgbench", "-h", leader.folder, "-p", leader.port, "-U", "postgres", "-i", "-s", 5, "-q", "postgres"])
        with Clients(fleet) as clients:
            fleet.wait(lambda: len(clients.sleeps) >= 4 * SLEEPERS, 30)
            for number in range(rounds):
                figures, meanwhile, old = one(fleet, clients, before_s, after_s, period_s)
                old.start()
                fleet.wait(lambda: old.role() == "standby", 120)
                found["rounds"].append({"round": number, **figures})
                if number == 0:
                    found["unreachable"] = [state for state, _ in meanwhile].count("unreachable")
                    found["roles"] = sorted(role for _, role in asked(fleet.leader()))
        with contextlib.closing(fleet.leader().connect()) as connection:
            (TREE / "build" / "nodes.html").write_text(value(connection, PAGE, began))
    return found


def each(results, name):
    return [one[name] for one in results["rounds"]]


def errors(results, window):
    """What top_waits has of the sleeps, beside what the clients know."""
    return [one[window]["found_ms"] / one[window]["slept_ms"] - 1 for one in results["rounds"]]


def show(results):
    return table(
        [f"{len(results['rounds'])} failovers, a row every {results['period_s']} s", "median (least .. greatest)"],
        [["without a commit, for the client", spread(each(results, "outage_s"), "{:.1f}", " s")],
         ["gap between the last row of the old primary and the first of the new one", spread(each(results, "gap_s"), "{:.1f}", " s")],
         ["of it: last seconds of the old primary, not written yet", spread(each(results, "unwritten_s"), "{:.1f}", " s")],
         ["of it: after the promotion", spread([round(s, 1) + 0.0 for s in each(results, "until_first_s")], "{:.1f}", " s")],
         ["of it: the new primary remembers its own time as a standby", spread(each(results, "memory_s"), "{:.1f}", " s")],
         ["rows of the old primary, of the new one", spread(each(results, "of_old"), "{:.0f}") + "; " + spread(each(results, "of_new"), "{:.0f}")],
         *[[f"known sleeps, {words}: top_waits to what the clients know", spread([100 * error for error in errors(results, window)], "{:+.2f}", " %")]
           for window, words in (("before", "before the kill"), ("after", "after it"), ("whole", "all of the time in one"))],
         ["until the promotion", spread(each(results, "promoted_s"), "{:.1f}", " s")]])


def required(results):
    for window, words in (("before", "before"), ("after", "after"), ("whole", "all of the time")):
        worst = stats.worst(errors(results, window))
        # of the whole, the old primary's last seconds are lost
        least = -LIMIT if window != "whole" else -1
        yield f"failover: error of top_waits on the new primary, {words}", signed(worst), \
            f"within {100 * LIMIT:.0f} %" if window != "whole" else f"at most +{100 * LIMIT:.0f} %: nothing counts twice", least <= worst <= LIMIT
    overlaps = max(each(results, "overlaps"))
    yield "failover: rows that overlap another", overlaps, 0, overlaps == 0
    most = max(each(results, "most_sessions"))
    yield f"failover: sessions asleep in any row, of {SLEEPERS}", f"{most:.2f}", f"at most {SLEEPERS * (1 + LIMIT):.2f}", most <= SLEEPERS * (1 + LIMIT)
    wrong = sum(each(results, "wrongly_labelled")) + sum(nodes != 2 for nodes in each(results, "nodes"))
    yield "failover: rows labelled by another node", wrong, 0, wrong == 0
    worst = max(gap - outage for gap, outage in zip(each(results, "gap_s"), each(results, "outage_s")))
    limit = 3 * results["period_s"]
    yield "failover: gap of the archive beyond the outage", f"{worst:.1f} s", f"at most {limit} s, three rows", worst <= limit
    claimed = min(min(each(results, "unwritten_s")), min(each(results, "until_first_s")))
    yield "failover: rows that reach into the outage", "none" if claimed > -0.1 else f"by {-claimed:.1f} s", "none", claimed > -0.1
    gone = results["unreachable"]
    yield "failover: the fleet meanwhile, nodes that are unreachable", gone, 1, gone == 1
    yield "failover: the fleet when the old primary is back", ", ".join(results["roles"]), ", ".join(ROLES), results["roles"] == ROLES
