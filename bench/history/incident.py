"""Slow at 03:10: which session was the cause? A load works, a session holds it up, the server crashes; asked at the end.

All is as it is by default, and a minute is a minute.
"""
import contextlib
import signal
import time

from cluster import run, say, value
from load import HOLD_STOCK, STOCK, UPDATE_STOCK, Load
from report import table

import bed

CLIENTS, RATE = 12, 60
# in minutes after the beginning; quick: a minute is a second
STORY = {"minute": 60, "from": 4, "until": 8, "crash": 10, "end": 12}
QUICK = {"minute": 1, "from": 10, "until": 18, "crash": 22, "end": 28}
HOLDER = "nightly_report"
LIMIT_S, LIMIT_GAP = 1, 2

WHO = "SELECT item FROM pgscale.top_waits(to_timestamp(%s), to_timestamp(%s), by => 'blocker') ORDER BY rank LIMIT 1"
LOCKED = "pgscale.archive_waits WHERE event_type = 'Lock' AND backend_type = 'client backend' AND at >= to_timestamp(%s) AND at < to_timestamp(%s)"


class Story:
    def __init__(self, server, story, began):
        self.server = server
        self.minute = story["minute"]
        self.at = {name: began + story[name] * self.minute for name in ("from", "until", "crash", "end")}
        self.began = began

    def sleep_until(self, name):
        time.sleep(max(self.at[name] - time.time(), 0))

    def play(self):
        """What happens, up to the crash and after it."""
        load = ("-U", "shop", "-f", self.server.place.script("shop.sql", UPDATE_STOCK), "-c", CLIENTS, "-j", 2, "-R", RATE)
        with Load(self.server, *load, may_fail=True):
            self.sleep_until("from")
            say("a session holds the others up")
            with contextlib.closing(self.server.connect(HOLDER, "reports")) as holder:
                holder.autocommit = False
                run(holder, HOLD_STOCK)
                self.sleep_until("until")
                holder.commit()
            say("it is gone")
            self.sleep_until("crash")
            say("the server crashes")
            self.server.process.send_signal(signal.SIGQUIT)
            self.server.process.wait()
        self.server.start()
        with Load(self.server, *load):
            self.sleep_until("end")

    def asked(self, connection):
        """What the archive knows."""
        since, until = self.at["from"], self.at["until"]
        began = time.monotonic()
        who = value(connection, WHO, since, until)
        who_ms = 1000 * (time.monotonic() - began)
        # the minutes that are wholly within
        waiting = [float(ms) / (1000 * self.minute) for ms, in run(
            connection, f"SELECT sum(wait_ms) FROM {LOCKED} GROUP BY at ORDER BY at", since + self.minute, until - self.minute)]
        before = float(value(connection, f"SELECT coalesce(sum(wait_ms), 0) FROM {LOCKED}", self.began, since - self.minute))
        named = float(value(connection, f"SELECT coalesce(sum(wait_ms) FILTER (WHERE blocker LIKE '%%{HOLDER}%%') / sum(wait_ms), 0)"
                                        f" FROM {LOCKED}", since, until))
        written = value(connection, "SELECT count(*) FROM pgscale.archive_minutes WHERE at >= to_timestamp(%s) AND at < to_timestamp(%s)",
                        self.began, self.at["end"])
        return {"who": who, "who_ms": who_ms, "waiting": waiting, "before": before / (1000 * (since - self.minute - self.began)),
                "named": named, "minutes": round((self.at["end"] - self.began) / self.minute), "written": written}


def measure(place, quick):
    story = QUICK if quick else STORY
    # at a whole minute, as those of the archive, when the server has been set up
    began = ((time.time() + 20) // 60 + 1) * 60
    settings = {"pgscale.debug_period": "1s", "deadlock_timeout": "100ms"} if quick else {}
    with place.cluster("incident", **bed.SETTINGS, **settings) as server:
        with contextlib.closing(server.connect()) as connection:
            bed.create(server, connection)
            run(connection, STOCK)
        night = Story(server, story, began)
        night.play()
        with contextlib.closing(server.connect()) as connection:
            bed.await_minutes(connection, 1, 3 * story["minute"] + 30)
            return night.asked(connection)


def show(results):
    return table(
        ["minutes of the run", "written", "sessions that waited, each minute", "in the minutes before", "of it under the holder's name"],
        [[results["minutes"], results["written"], f"{min(results['waiting']):.1f} .. {max(results['waiting']):.1f} of {CLIENTS}",
          f"{results['before']:.2f}", f"{100 * results['named']:.1f} %"]])


def required(results):
    ms = results["who_ms"]
    yield "incident: one statement, answered in", f"{ms:.0f} ms", f"{LIMIT_S} s", ms < 1000 * LIMIT_S
    named = HOLDER in results["who"]
    yield "incident: first in its answer", HOLDER if named else "another", HOLDER, named
    least = min(results["waiting"], default=0)
    yield "incident: sessions found waiting, in each minute", f"{least:.1f}", f"at least {CLIENTS - 1} of {CLIENTS}", least >= CLIENTS - 1
    yield "incident: of their time under the holder's name", f"{100 * results['named']:.1f} %", "at least 95 %", results["named"] >= 0.95
    gap = results["minutes"] - results["written"]
    yield "incident: minutes lost, with a crash", str(gap), f"at most {LIMIT_GAP}", gap <= LIMIT_GAP
