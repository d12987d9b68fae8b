"""A DBA who looks: a session of pg_monitor that asks diagnosis() again and again, and the screen as \\watch 2 would."""
import threading
import time
from typing import NamedTuple

from cluster import run

ROLE = "oncall"
CREATE = f"CREATE ROLE {ROLE} LOGIN IN ROLE pg_monitor"
DIAGNOSIS = "SELECT rule, certainty, sentence, cure, risk, pid, evidence FROM pgscale.diagnosis() ORDER BY rank"
COLUMNS = ("rule", "certainty", "sentence", "cure", "risk", "pid", "evidence")
SCREEN = "SELECT now FROM pgscale.now"
SCREEN_S = 2
# of a terminal of 120 columns and 40 lines, beside what psql writes
MOST_COLUMNS, MOST_LINES = 118, 36


class Poll(NamedTuple):
    at: float               # when the answer was there
    ms: float
    rows: list              # a dictionary each, the first line's first

    def first(self):
        return self.rows[0]["rule"] if self.rows else None


class Screen(NamedTuple):
    at: float
    ms: float
    lines: list


class Watch:
    """with Watch(server) as watch: ...; what it saw is in watch.polls and watch.screens, at any time."""

    def __init__(self, server, every_s=0.5):
        self.server = server
        self.every_s = every_s
        self.polls = []
        self.screens = []
        self._ends = threading.Event()
        self._error = None

    def __enter__(self):
        self._connection = self.server.connect("psql", ROLE)
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, kind, *exc):
        self._ends.set()
        self._thread.join(30)
        self._connection.close()
        if kind is None and self._error:
            raise self._error

    def _watch(self):
        screen_at = 0
        try:
            while not self._ends.is_set():
                began = time.time()
                rows, ms = self._ask(DIAGNOSIS)
                self.polls.append(Poll(time.time(), ms, [dict(zip(COLUMNS, row)) for row in rows]))
                if began >= screen_at:
                    rows, ms = self._ask(SCREEN)
                    self.screens.append(Screen(time.time(), ms, [line for line, in rows]))
                    screen_at = began + SCREEN_S
                self._ends.wait(max(began + self.every_s - time.time(), 0))
        except Exception as error:      # the program's own thread raises it
            self._error = error

    def _ask(self, statement):
        began = time.monotonic()
        rows = run(self._connection, statement)
        return rows, 1000 * (time.monotonic() - began)

    def between(self, since, until):
        """What was asked and answered within that time."""
        return [poll for poll in self.polls if since <= poll.at - poll.ms / 1000 and poll.at <= until]

    def picture(self, at):
        """The lines of the first screen from then on, or of the last one."""
        return next((screen for screen in self.screens if screen.at >= at), self.screens[-1]).lines

    def widest(self):
        return max((len(line) for screen in self.screens for line in screen.lines), default=0)

    def most_lines(self):
        return max((len(screen.lines) for screen in self.screens), default=0)

    def slowest_ms(self):
        return max(each.ms for each in (*self.polls, *self.screens))
