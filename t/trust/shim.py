"""Makes a server's writes and syncs fail, or vanish, while it runs: the other side of shim.c."""
import mmap
import pathlib
import struct
import subprocess

# struct orders of shim.c
WORD = struct.Struct("64s")
CALL = struct.Struct("=IiqQ")
CALLS = ("write", "sync", "writeback")
MILLION = 1_000_000


class Shim:
    """preload goes before a server's command; until told otherwise all calls go through."""

    def __init__(self, place, name):
        self.library = place.folder / "shim.so"
        if not self.library.exists():
            source = pathlib.Path(__file__).with_name("shim.c")
            subprocess.run(["cc", "-O2", "-Wall", "-shared", "-fPIC", "-o", self.library, source, "-ldl"], check=True)
        orders = place.folder / f"{name}.shim"
        orders.write_bytes(bytes(WORD.size + CALL.size * len(CALLS)))
        for file in (self.library, orders):
            place.give(file)
        with open(orders, "r+b") as file:
            self.orders = mmap.mmap(file.fileno(), 0)
        self.preload = ["/usr/bin/env", f"LD_PRELOAD={self.library}", f"PGSCALE_SHIM={orders}"]

    def on(self, call, word, error=0, rate=1.0, times=None):
        """These calls fail with that errno, or without one do nothing, on files with the word in their path."""
        WORD.pack_into(self.orders, 0, word.encode())
        self._put(call, int(rate * MILLION), error, times or 2**62)

    def off(self):
        for call in CALLS:
            self._put(call, 0, 0, 0)

    def hits(self):
        return sum(CALL.unpack_from(self.orders, self._at(call))[3] for call in CALLS)

    @staticmethod
    def _at(call):
        return WORD.size + CALL.size * CALLS.index(call)

    def _put(self, call, rate, error, left):
        hits = CALL.unpack_from(self.orders, self._at(call))[3]
        CALL.pack_into(self.orders, self._at(call), rate, error, left, hits)
