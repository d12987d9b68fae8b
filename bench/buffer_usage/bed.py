"""Servers whose buffers are full, and what evicts the CPU's caches before something is timed.

The buffers hold many relations, used more or less often, some dirty, and a few hold nothing. The relations' files are
holes: a page of zeros is a valid page to the server, and nothing has to be written to disk. What is asked is only what
the headers say. Only pgbench's tables have contents.
"""
import contextlib
import os
import pathlib
import time

from cluster import run, say, value

TABLES = 40
MOST_USED = 5
PAGE = 8192
GIB = 1 << 30
# what the machine keeps for others
SPARED = 6 * GIB


def largest():
    """GiB of shared_buffers, at most 8, that leave the machine enough memory."""
    meminfo = dict(line.split(":") for line in pathlib.Path("/proc/meminfo").read_text().splitlines())
    free = int(meminfo["MemAvailable"].split()[0]) * 1024 - SPARED
    return next((gib for gib in (8, 6, 4, 3, 2) if gib * GIB <= free), 1)


@contextlib.contextmanager
def filled(place, name, gib, scale):
    """Yields a server with so many GiB of full buffers and pgbench's tables, and a connection."""
    server = place.cluster(name, shared_buffers=f"{int(gib * 1024)}MB", bgwriter_lru_maxpages=0)
    with server, contextlib.closing(server.connect()) as connection:
        since = time.monotonic()
        run(connection, "CREATE EXTENSION pg_buffercache; CREATE EXTENSION pg_prewarm")
        server.create_pgscale(connection)
        server.pgbench("-i", "-s", scale, "-q")
        _fill(server, connection)
        say(f"  filled {gib} GiB of buffers: {time.monotonic() - since:.0f} s")
        yield server, connection


def buffers(connection):
    return value(connection, "SELECT setting::integer FROM pg_settings WHERE name = 'shared_buffers'")


def prewarm(connection, relation):
    run(connection, f"SELECT pg_prewarm('{relation}')")


def _fill(server, connection):
    pages = buffers(connection) // TABLES
    for number in range(TABLES):
        _hole(server, connection, f"hole_{number}", pages, 1 + number % MOST_USED)
    # more than fits, so that the clock goes round and some counts come down to 0
    for table in ("pgbench_accounts", "pgbench_accounts_pkey"):
        prewarm(connection, table)
    for number in range(MOST_USED - 1, TABLES, MOST_USED):
        for _ in range(MOST_USED):
            prewarm(connection, f"hole_{number}")
    server.pgbench("-n", "-M", "prepared", "-c", 2, "-T", 2)
    run(connection, f"DROP TABLE hole_{MOST_USED // 2}")


def _hole(server, connection, name, pages, times):
    """A table without contents, read into the buffers so many times."""
    run(connection, f"CREATE TABLE {name} ()")
    file = server.data / value(connection, f"SELECT pg_relation_filepath('{name}')")
    with open(file, "r+b") as opened:
        opened.truncate(pages * PAGE)
        for _ in range(times):
            prewarm(connection, name)
        os.posix_fadvise(opened.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)


class Floor:
    """Reading memory and nothing else: floor.c."""

    def __init__(self, place):
        self.place = place
        self.program = place.compile(str(pathlib.Path(__file__).with_name("floor.c")))

    def read(self, headers):
        """Milliseconds for so many headers, from memory. Leaves nothing of others in the caches."""
        return float(self.place.run([self.program, headers]))


def timed(connection, query):
    """Milliseconds from asking to having all rows."""
    began = time.monotonic()
    run(connection, query)
    return (time.monotonic() - began) * 1000
