"""Threads that each repeat one thing on a connection of their own, whatever becomes of the server."""
import collections
import random
import threading
import time

import psycopg2


def refused(connection, error):
    """Did the server itself say no, and live on? Else what became of the statement is unknown."""
    return not connection.closed and error.diag.severity == "ERROR"


class Loops:
    def __init__(self, server):
        self.server = server
        self.threads = []
        self.stopping = threading.Event()
        self.errors = collections.Counter()     # (loop, what the server answered) -> times
        self.broken = []                        # what is no answer of a server: mistakes of this program

    def __enter__(self):
        return self

    def __exit__(self, kind, *exc):
        self.stopping.set()
        if kind is None:
            self.stop()

    def add(self, name, step, seed, greet=None):
        """Repeats step(connection, random); greet(connection) comes first on each new connection."""
        thread = threading.Thread(target=self._run, args=(name, step, random.Random(seed), greet), name=name, daemon=True)
        self.threads.append(thread)
        thread.start()

    def _run(self, name, step, rng, greet):
        try:
            while not self.stopping.is_set():
                if self.server.held:
                    time.sleep(0.02)
                    continue
                try:
                    connection = self.server.connect()
                except psycopg2.Error:
                    time.sleep(0.1)
                    continue
                try:
                    self._repeat(connection, name, step, rng, greet)
                except psycopg2.Error:
                    pass            # the connection is lost: a new one
                finally:
                    connection.close()
        except Exception as error:
            self.broken.append(f"{name}: {error!r}")

    def _repeat(self, connection, name, step, rng, greet):
        if greet:
            greet(connection)
        while not self.stopping.is_set():
            try:
                step(connection, rng)
            except psycopg2.Error as error:
                if not refused(connection, error):
                    raise
                self.errors[name, f"{error.pgcode} {error.diag.message_primary}"] += 1
                connection.cursor().execute("ROLLBACK")

    def stop(self, seconds=60):
        """Lets each end its round."""
        self.stopping.set()
        until = time.monotonic() + seconds
        for thread in self.threads:
            thread.join(max(0.0, until - time.monotonic()))
        stuck = [thread.name for thread in self.threads if thread.is_alive()]
        if self.broken or stuck:
            raise RuntimeError("; ".join(self.broken + [f"{name} does not end" for name in stuck]))
