"""A session of a role of pg_monitor that asks diagnosis() again and again."""
import threading
import time
from typing import NamedTuple

from cluster import run

ROLE = "oncall"
CREATE = f"CREATE ROLE {ROLE} LOGIN IN ROLE pg_monitor"
COLUMNS = ("rule", "certainty", "sentence", "pid")
DIAGNOSIS = f"SELECT {', '.join(COLUMNS)} FROM pgscale.diagnosis() ORDER BY rank"


class Poll(NamedTuple):
    asked: float
    at: float               # when the answer was there
    rows: list              # a dictionary each, the first line's first

    def first(self):
        return self.rows[0]["rule"] if self.rows else None


class Watch:
    """with Watch(server) as watch: ...; what it saw is in watch.polls, at any time."""

    def __init__(self, server, every_s=0.5):
        self.server = server
        self.every_s = every_s
        self.polls = []
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
        try:
            while not self._ends.is_set():
                began = time.time()
                rows = run(self._connection, DIAGNOSIS)
                self.polls.append(Poll(began, time.time(), [dict(zip(COLUMNS, row)) for row in rows]))
                self._ends.wait(max(began + self.every_s - time.time(), 0))
        except Exception as error:      # the program's own thread raises it
            self._error = error

    def between(self, since, until):
        """What was asked and answered within that time."""
        return [poll for poll in self.polls if since <= poll.asked and poll.at <= until]
