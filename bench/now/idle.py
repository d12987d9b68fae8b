"""Thousands of sessions from one process: the protocol by hand, since a library needs a thread or much memory for each."""
import contextlib
import socket
import struct

BATCH = 64
PROTOCOL = 196608


class Session:
    """A connection of a user without a password."""

    def __init__(self, server, user):
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.connect(str(server.folder / f".s.PGSQL.{server.port}"))
        words = ("user", user, "database", "postgres", "application_name", "pool")
        said = struct.pack("!i", PROTOCOL) + b"".join(word.encode() + b"\0" for word in words) + b"\0"
        self._socket.sendall(struct.pack("!i", len(said) + 4) + said)
        self._file = self._socket.makefile("rb")

    def ready(self):
        """Waits until the server is ready for a statement."""
        while True:
            head = self._file.read(5)
            if len(head) < 5:
                raise RuntimeError("the server ended a session")
            kind, length = struct.unpack("!ci", head)
            body = self._file.read(length - 4)
            if kind == b"E":
                raise RuntimeError("a session has an error: " + body.replace(b"\0", b" ").decode(errors="replace"))
            if kind == b"Z":
                return

    def send(self, statement):
        """Does not wait for an answer."""
        said = statement.encode() + b"\0"
        self._socket.sendall(b"Q" + struct.pack("!i", len(said) + 4) + said)

    def close(self):
        self._file.close()
        self._socket.close()


@contextlib.contextmanager
def opened(server, count, user="shop"):
    """Yields count sessions, all of them ready for a statement."""
    found = []
    try:
        while len(found) < count:
            batch = [Session(server, user) for _ in range(min(BATCH, count - len(found)))]
            found += batch
            for session in batch:
                session.ready()
        yield found
    finally:
        for session in found:
            session.close()
