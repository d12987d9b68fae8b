"""What the kernel still owes the disk of the relations' files, several times a second."""
import ctypes
import os
import pathlib
import threading
import time

PAGE = 4096
CACHESTAT = 451
EVERY = 0.2


class _Range(ctypes.Structure):
    _fields_ = [("off", ctypes.c_uint64), ("len", ctypes.c_uint64)]


class _Cached(ctypes.Structure):
    _fields_ = [(name, ctypes.c_uint64) for name in ("cache", "dirty", "writeback", "evicted", "recently_evicted")]


_libc = ctypes.CDLL(None, use_errno=True)


def cachestat(path):
    """The kernel's pages of a file."""
    cached = _Cached()
    file = os.open(path, os.O_RDONLY)
    try:
        if _libc.syscall(CACHESTAT, file, ctypes.byref(_Range(0, 0)), ctypes.byref(cached), 0):
            raise OSError(ctypes.get_errno(), "cachestat", str(path))
    finally:
        os.close(file)
    return cached


def relation_files(data):
    """The files of all relations, as they are now."""
    for folder in (data / "global", *(data / "base").iterdir()):
        for entry in os.scandir(folder):
            if entry.name[0].isdigit():
                yield entry.path


def owed(data):
    """Bytes of the relations' files that are dirty, and that are being written."""
    dirty = writeback = 0
    for path in relation_files(data):
        try:
            cached = cachestat(path)
        except FileNotFoundError:
            continue            # dropped meanwhile
        dirty += cached.dirty
        writeback += cached.writeback
    return dirty * PAGE, writeback * PAGE


class Watch:
    """with Watch(data) as watch: ...; watch.samples has (time, bytes dirty, bytes that are being written)."""

    def __init__(self, data):
        self.data = pathlib.Path(data)
        self.samples = []
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *exc):
        self._end.set()
        self._thread.join()

    def _watch(self):
        while not self._end.wait(EVERY):
            self.samples.append((time.time(), *owed(self.data)))
