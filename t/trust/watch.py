"""What the processes of a server hold on to, again and again, and whether that grows."""
import collections
import math
import os
import pathlib
import re
import threading
import time

import numpy

# Student's t, 97.5 %, by degrees of freedom
STUDENT = {6: 2.447, 8: 2.306, 10: 2.228, 13: 2.160, 18: 2.101}
BATCHES = 12
DATA = re.compile(r"VmData:\s+(\d+) kB")


def memory(pid):
    """kB that a process has for data of its own: shared buffers and the program's text are none of it. What it has allocated
    and not touched yet counts: a table of fixed size that fills up is no leak."""
    found = DATA.search(pathlib.Path(f"/proc/{pid}/status").read_text())
    return int(found[1]) if found else 0


def descriptors(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def cpu(pid):
    """Seconds that it had of a processor."""
    fields = pathlib.Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def slope(times, values):
    """What a series grows by in an hour: (slope, half of its 95 % confidence interval), or None of too short a one.

    Neighbours are alike, so it is not the values but the means of some batches that the line is laid through.
    """
    if len(values) < 3 * BATCHES:
        return None
    hours = numpy.array([part.mean() for part in numpy.array_split(numpy.asarray(times, float) / 3600, BATCHES)])
    means = numpy.array([part.mean() for part in numpy.array_split(numpy.asarray(values, float), BATCHES)])
    away = hours - hours.mean()
    grows = (away * means).sum() / (away ** 2).sum()
    rest = means - means.mean() - grows * away
    error = math.sqrt((rest ** 2).sum() / (BATCHES - 2) / (away ** 2).sum())
    return float(grows), STUDENT[BATCHES - 2] * error


class Watch:
    """Looks every some seconds: look() -> {(name, what): number}; remembers the series by name."""

    def __init__(self, look, every, file):
        self.look = look
        self.every = every
        self.series = collections.defaultdict(list)        # (name, what) -> [(seconds since the start, value)]
        self.broken = []        # looks that did not come off, and why
        self._file = open(file, "w")
        self._since = time.monotonic()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watch", daemon=True)
        self._thread.start()

    def _run(self):
        due = 0.0
        while not self._stopping.wait(max(0.0, self._since + due - time.monotonic())):
            due += self.every
            try:
                found = self.look()
            except Exception as error:
                self.broken.append(repr(error))
                continue
            now = time.monotonic() - self._since
            for (name, what), number in found.items():
                self.series[name, what].append((now, number))
                self._file.write(f"{now:.1f}\t{name}\t{what}\t{number}\n")
            self._file.flush()

    def stop(self):
        self._stopping.set()
        self._thread.join(60)
        self._file.close()

    def after(self, name, what, warm):
        """Times and values of a series from then on."""
        late = [(at, number) for at, number in self.series.get((name, what), []) if at >= warm]
        return [at for at, _ in late], [number for _, number in late]
