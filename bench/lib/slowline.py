"""A slow line to a server: a proxy on the loopback interface."""
import contextlib
import socket
import threading
import time

# what is on its way at a time: less than a millisecond's at 20 MB/s
PIECE = 16 * 1024


class SlowLine:
    """with SlowLine(server, bytes a second) as line: ...; who connects to line.port on 127.0.0.1 gets to the server.

    What the server sends takes its time on the line, one byte after the other; what it is sent does not.
    """

    def __init__(self, server, bytes_per_s):
        self._to = str(server.folder / f".s.PGSQL.{server.port}")
        self._bytes_per_s = bytes_per_s
        self._open, self._threads = [], []

    def __enter__(self):
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port = self._listening.getsockname()[1]
        self._accepting = threading.Thread(target=self._accept, daemon=True)
        self._accepting.start()
        return self

    def __exit__(self, *exc):
        # who waits for a socket is woken up by its shutdown; by its close he is not
        _shut(self._listening)
        self._accepting.join()
        for each in self._open:
            _shut(each)
        for thread in self._threads:
            thread.join()
        for each in (self._listening, *self._open):
            each.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                client = self._listening.accept()[0]
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                server = socket.socket(socket.AF_UNIX)
                self._open += client, server
                server.connect(self._to)
                for way in ((server, client, self._bytes_per_s), (client, server, None)):
                    self._threads.append(threading.Thread(target=self._carry, args=way, daemon=True))
                    self._threads[-1].start()

    @staticmethod
    def _carry(source, target, bytes_per_s):
        free_at = 0
        with contextlib.suppress(OSError):
            while piece := source.recv(PIECE):
                if bytes_per_s:
                    now = time.monotonic()
                    free_at = max(free_at, now) + len(piece) / bytes_per_s
                    time.sleep(free_at - now)
                target.sendall(piece)
        for each in (source, target):
            _shut(each)


def _shut(end):
    with contextlib.suppress(OSError):
        end.shutdown(socket.SHUT_RDWR)
